//! Fuzz bodies: plain functions that take any bytes and must never panic. And what tests need that damage a database on
//! purpose: its manifest, and a way past the rules of tables.

use std::sync::atomic::{AtomicBool, Ordering};

pub use crate::manifest::Manifest;

static SMALL_NODES: AtomicBool = AtomicBool::new(false);

/// From now on this process may create indexes with nodes from 512 bytes: a few hundred entries make a high tree. Users may
/// not: a node below 4 KiB is smaller than a sector.
pub fn small_nodes() {
    // Relaxed: a switch for tests, thrown before anything is created.
    SMALL_NODES.store(true, Ordering::Relaxed);
}

pub(crate) fn are_nodes_small() -> bool {
    SMALL_NODES.load(Ordering::Relaxed)
}

/// From now on this is told of each place that is passed, in builds with debug assertions.
pub fn at_points(tell: fn(&'static str)) {
    vfs::thread::at_points(tell);
}

/// Commits an entry of any index, by the name that `verify` calls it: `None` removes it. Nobody sees to it that rows and
/// their entries agree.
///
/// # Errors
/// As a commit.
pub fn write_raw(db: &crate::Database, index: &str, key: &[u8], value: Option<&[u8]>) -> crate::Result<()> {
    let engine = db.engine();
    let entry = engine.all_indexes().into_iter().find(|entry| engine.index_name(entry) == index);
    let entry = entry.ok_or_else(|| crate::Error::NotFound { kind: "index", name: index.to_owned() })?;
    let mut batch = index::BatchBuilder::new();
    batch.push(key, value.map_or(index::Op::Delete, index::Op::Put));
    let committed = engine
        .commit_changes(vec![(entry, crate::commit::Changes::Batch(batch.finish()))], crate::commit::Room::Ordinary)?;
    engine.finish_commit(committed.ts, crate::Durability::Sync)
}

/// As a reader who meets damage in the index of this number.
pub fn note_damage(db: &crate::Database, index: u32) {
    db.engine().index(base::IndexId(index)).expect("there is such an index").note_damage();
}

/// As a commit that meets this damage.
pub fn damaged(db: &crate::Database, met: Box<crate::Corruption>) -> crate::Error {
    db.engine().damaged(met)
}

/// A row of the catalog.
pub fn catalog_row(bytes: &[u8]) {
    let id = base::IndexId(1);
    for key in [crate::catalog::index_key(id), crate::catalog::table_key(id), crate::catalog::clock_key(id)] {
        let _ = crate::catalog::decode_row(&key, bytes);
    }
}

/// A record of a commit, in one phase or two.
pub fn commit_record(bytes: &[u8]) {
    let _ = crate::record::decode(bytes, base::Lsn::ZERO, |_| true);
    let _ = crate::record::decode_ranged(bytes, base::Lsn::ZERO, |_| true);
    let _ = crate::record::decode_prepare(bytes, base::Lsn::ZERO);
    let _ = crate::record::decode_decision(bytes, base::Lsn::ZERO);
}

/// What the manifest has of an index without what it says before that.
///
/// # Panics
/// On what is no such state.
#[must_use]
pub fn state_of_structure(state: &[u8]) -> &[u8] {
    crate::said::Said::split(state).expect("it is whole").1
}

/// The state of an index before which something is said.
pub fn said_state(bytes: &[u8]) {
    crate::said::fuzz(bytes);
}

/// The state of an index of which ranges were deleted.
pub fn ranged_state(bytes: &[u8]) {
    index::ranged::fuzz_state(bytes);
}

/// A manifest file, its checksum made right so that the payload is reached.
pub fn manifest(bytes: &[u8]) {
    let _ = crate::manifest::Manifest::decode("fuzz", bytes);
    (1..=crate::manifest::FORMAT).for_each(|format| drop(crate::manifest::Manifest::decode_payload(format, bytes)));
}

/// Schemas, rows and keys.
pub fn table(bytes: &[u8]) {
    crate::table::fuzz(bytes);
}
