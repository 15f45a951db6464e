//! The log-structured merge tree under the conformance suite of the seam.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use index::conformance::Bench;
use index::{Shape, Subcompactions};
use trefoil_lsm::Lsm;

fn bench() -> Bench {
    let mut bench = Bench::new(|env, state| Ok(Lsm::open(env, state)?));
    bench.options.node_bytes = 16 << 10;
    bench.relieves = true;
    bench
}

index::conformance_suite!(bench());

/// The same histories on blocks so small that a few dozen keys make many, under a budget so small that memtables are sealed all the time,
/// and levels have many runs.
fn on_tiny_blocks(shape: Shape) {
    on_tiny_blocks_cut(shape, Subcompactions::default());
}

fn on_tiny_blocks_cut(shape: Shape, subcompactions: Subcompactions) {
    let mut bench = bench();
    bench.options.policy.subcompactions = subcompactions;
    bench.options.node_bytes = 512;
    bench.options.shape = shape;
    bench.budget_bytes = 1 << 20;
    if let Err(failure) = index::conformance::history::run_many(&bench, index::conformance::history::seeds(300)) {
        panic!("{failure}");
    }
}

#[test]
fn random_histories_on_tiny_blocks() {
    on_tiny_blocks(Shape::Lazy);
}

#[test]
fn random_histories_on_tiny_blocks_leveled() {
    on_tiny_blocks(Shape::Leveled);
}

#[test]
fn random_histories_on_tiny_blocks_universal() {
    on_tiny_blocks(Shape::Universal);
}

#[test]
fn random_histories_on_tiny_blocks_with_merges_in_parts() {
    for shape in [Shape::Lazy, Shape::Leveled, Shape::Universal] {
        on_tiny_blocks_cut(shape, Subcompactions::Always);
    }
}

/// Several threads with parts of merges in hand, beside checkpoints, and a crash behind that.
#[test]
fn everything_at_once_with_merges_in_parts() {
    let mut bench = bench();
    bench.options.node_bytes = 512;
    bench.options.policy.subcompactions = Subcompactions::Always;
    bench.budget_bytes = 1 << 20;
    let verdict = index::conformance::checks::threads::everything_at_once(&bench);
    verdict.unwrap_or_else(|complaint| panic!("{}", complaint.0));
}
