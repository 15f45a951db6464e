//! Every fuzz body of the house, by name: the decoders of each crate on hostile bytes, and sequences of operations
//! against the model. Plain functions: `make test` runs each for half a second on stable Rust (`tests/smoke.rs`), `make
//! fuzz` for as long as one likes under libFuzzer (`fuzz/fuzz_targets`, one thin target a body).
//!
//! A body returns, whatever it is given: it does not panic, hang, or allocate much more than it was given.

#![forbid(unsafe_code)]

use index::conformance::{Bench, history};

/// Takes any bytes.
pub type Body = fn(&[u8]);

/// All bodies, by the name of their target.
pub const ALL: [(&str, Body); 21] = [
    ("store_block", store::fuzzing::block),
    ("store_block_round_trip", store::fuzzing::block_round_trip),
    ("store_saved_state", store::fuzzing::saved_state),
    ("store_references", store::fuzzing::references),
    ("store_run_block", store::fuzzing::run_block),
    ("wal_frame", wal::fuzzing::fuzz_frame),
    ("wal_segment", wal::fuzzing::fuzz_segment),
    ("tree_leaf_image", tree::node::fuzzing::leaf_image),
    ("tree_inner_image", tree::node::fuzzing::inner_image),
    ("tree_leaf_operations", tree::node::fuzzing::operations),
    ("tree_history", tree_history),
    ("lsm_data_block", lsm::fuzzing::data_block),
    ("lsm_index_block", lsm::fuzzing::index_block),
    ("lsm_state", lsm::fuzzing::state),
    ("lsm_history", lsm_history),
    ("trefoil_catalog_row", trefoil::fuzzing::catalog_row),
    ("trefoil_commit_record", trefoil::fuzzing::commit_record),
    ("trefoil_ranged_state", trefoil::fuzzing::ranged_state),
    ("trefoil_said_state", trefoil::fuzzing::said_state),
    ("trefoil_manifest", trefoil::fuzzing::manifest),
    ("trefoil_table", trefoil::fuzzing::table),
];

/// A history of operations on a whole tree, judged by the model.
///
/// # Panics
/// If the tree answers otherwise, with the history that shows it.
pub fn tree_history(bytes: &[u8]) {
    judge_history(&Bench::new(|env, state| Ok(tree::Tree::open(env, state)?)), bytes);
}

/// The same on a log-structured merge tree.
///
/// # Panics
/// As [`tree_history`].
pub fn lsm_history(bytes: &[u8]) {
    let mut bench = Bench::new(|env, state| Ok(lsm::Lsm::open(env, state)?));
    bench.relieves = true;
    judge_history(&bench, bytes);
}

fn judge_history(bench: &Bench, bytes: &[u8]) {
    let steps = history::steps_from(bytes);
    if let Err(complaint) = history::run(bench, &steps) {
        panic!("{complaint}\n{}", history::picture(&steps, &[]));
    }
}

/// Runs the body of this name.
///
/// # Panics
/// If there is none: a target without a body.
pub fn run(name: &str, bytes: &[u8]) {
    let (_, body) = ALL.iter().find(|(n, _)| *n == name).expect("a body of this name");
    body(bytes);
}
