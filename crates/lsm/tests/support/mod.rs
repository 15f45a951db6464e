//! What tests share that look at an index's files.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "a test panics on what it does not expect, and not every test uses all of it"
)]

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use base::{CommitTs, GcView, IndexId, Lsn, Poison, Result};
use index::{
    Batch, Direction, EntryBatch, Index, IndexEnv, IndexOptions, LogGate, Op, ReadAt, Reservation, RunFiles, Upkeep,
};
use store::{BlockRef, Budget, Cache, CacheOptions, Census, Compression, Space, SpaceOptions, WriteEnv};
use trefoil_lsm::Lsm;

pub const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

/// A log that has everything.
pub struct Durable;

impl LogGate for Durable {
    fn durable(&self) -> Lsn {
        Lsn(u64::MAX)
    }

    fn make_durable(&self, _: Lsn) -> Result<()> {
        Ok(())
    }
}

/// An index's surroundings, with its files in `dir`.
pub fn env(dir: &Path, node_bytes: usize, budget_bytes: u64) -> IndexEnv {
    env_of(dir, node_bytes, budget_bytes, None)
}

/// The same after a close, as a manifest has saved the data file's accounts.
pub fn env_of(dir: &Path, node_bytes: usize, budget_bytes: u64, saved: Option<&[u8]>) -> IndexEnv {
    env_on(Arc::new(vfs::RealVfs), dir, node_bytes, budget_bytes, saved)
}

/// The same on a file system.
pub fn env_on(
    vfs: Arc<dyn vfs::Vfs>,
    dir: &Path,
    node_bytes: usize,
    budget_bytes: u64,
    saved: Option<&[u8]>,
) -> IndexEnv {
    let budget = Budget::new(budget_bytes);
    let options =
        SpaceOptions { extent_bytes: 1 << 20, direct: false, budget: Some(budget.clone()), ..SpaceOptions::default() };
    IndexEnv {
        id: IndexId(3),
        options: IndexOptions { node_bytes, compression: Compression::None, ..IndexOptions::default() },
        space: Space::open(vfs.clone(), dir, options, saved, Poison::new()).unwrap(),
        cache: Arc::new(Cache::new(budget, CacheOptions::default())),
        runs: RunFiles { vfs, dir: dir.to_owned() },
        basements: true,
        read_only: false,
        expiry: None,
    }
}

pub fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

/// A step when everything is applied and visible.
pub fn upkeep() -> Upkeep<'static> {
    Upkeep { view: GcView::new(CommitTs(1 << 40), Vec::new()), applied: Lsn(1 << 40), log: &Durable, tight: false }
}

/// Commits of a hundred rows each, all at `ts`.
pub fn put(index: &Lsm, ts: u64, keys: impl Iterator<Item = u32>, value: impl Fn(u32) -> Vec<u8>) {
    let rows: Vec<_> = keys.map(|n| (key(n), value(n))).collect();
    for some in rows.chunks(100) {
        let batch: Batch = some.iter().map(|(key, value)| (key.as_slice(), Op::Put(value))).collect();
        let Reservation::Direct(room) = index.reserve(&batch).unwrap() else { panic!("small") };
        index.apply(&batch, room, CommitTs(ts), &GcView::keep_all());
    }
}

pub fn flush(index: &Lsm) {
    while index.relieve(&Durable).unwrap() > 0 {}
}

pub fn settle(index: &Lsm) {
    while index.maintain(&upkeep()).unwrap().more {}
}

/// A checkpoint whose manifest is durable at once; what it names is what the allocator counts. The states of index and data file.
pub fn checkpoint(env: &IndexEnv, index: &Lsm) -> (Vec<u8>, Vec<u8>) {
    let state = index.checkpoint(&upkeep()).unwrap();
    let saved = env.space.save();
    env.space.checkpoint_durable();
    assert_counted(env, index);
    (state.bytes, saved)
}

pub fn assert_counted(env: &IndexEnv, index: &Lsm) {
    let mut census = Census::new(&env.space);
    assert!(index.reach(&mut |at, _| census.add(at, env.id)).unwrap().is_empty());
    assert_eq!(census.shared(), []);
    assert_eq!(census.miscounted(), []);
}

/// The blocks that a checkpoint names, with what they are said to be.
pub fn blocks(index: &Lsm) -> Vec<(BlockRef, String)> {
    index.checkpoint(&upkeep()).unwrap();
    let mut blocks = Vec::new();
    assert!(index.reach(&mut |at, name| blocks.push((at, name()))).unwrap().is_empty());
    blocks
}

/// Everything that can leave memory leaves it.
pub fn evict(env: &IndexEnv) {
    let budget = env.cache.budget();
    let pressure = budget.charge(store::Class::Frames, budget.limit());
    let write_env = WriteEnv { view: GcView::keep_all(), applied: Lsn(0), durable: Lsn(0) };
    while env.cache.step(&write_env, &Durable, &env.space).unwrap().advanced() {}
    drop(pressure);
}

/// All keys that a cursor gives out, in its direction, a few at a time.
pub fn keys(index: &Lsm, at: ReadAt, direction: Direction) -> Vec<u32> {
    let mut cursor = index.cursor(at, ALL, direction);
    let (mut out, mut keys) = (EntryBatch::new(), Vec::new());
    loop {
        let more = cursor.fill(&mut out, 50).unwrap();
        keys.extend(out.iter().map(|(key, ..)| u32::from_be_bytes(key.try_into().unwrap())));
        if !more {
            return keys;
        }
    }
}
