//! What reads bring from disk: filters spare look-ups blocks, scans read ahead in either direction and leave alone what is read again and again.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::{Bound, Range};
use std::path::Path;
use std::sync::Arc;

use crate::support::{Durable, checkpoint, env_of, flush, key, keys, put};
use base::{CommitTs, GcView, Lsn};
use index::{Direction, EntryBatch, Index, IndexEnv, ReadAt};
use store::WriteEnv;
use trefoil_lsm::Lsm;

const VALUE: [u8; 40] = [7; 40];

/// An index whose runs have what `runs` gives, opened anew: nothing of them is in memory.
fn opened(dir: &Path, node_bytes: usize, budget_bytes: u64, runs: &[Vec<u32>]) -> (IndexEnv, Arc<Lsm>) {
    let surroundings = env_of(dir, node_bytes, 64 << 20, None);
    let index = Lsm::open(surroundings.clone(), None).unwrap();
    for (run, rows) in runs.iter().enumerate() {
        put(&index, 16 + run as u64, rows.iter().copied(), |_| VALUE.to_vec());
        flush(&index);
    }
    let (state, saved) = checkpoint(&surroundings, &index);
    drop((index, surroundings));
    let env = env_of(dir, node_bytes, budget_bytes, Some(&saved));
    let index = Lsm::open(env.clone(), Some(&state)).unwrap();
    (env, index)
}

fn is_there(index: &Lsm, n: u32) -> bool {
    let (key, mut found) = (key(n), false);
    index.get_many(ReadAt::Newest, &[&key], &mut |_, _, value| found = value == VALUE).unwrap();
    found
}

/// Guards: `may_have` in `IndexBlock::spot`; the hashes that the writer gives a block's filter (without one a key that is there is not found).
#[test]
fn filters_spare_look_ups_blocks() {
    const RUNS: u32 = 8;
    let dir = tempfile::tempdir().unwrap();
    // Each run has keys from everywhere, half of the keys are in none, and a run has far more blocks than there are look-ups.
    let runs: Vec<Vec<u32>> = (0..RUNS).map(|run| (0..6000).map(|n| 2 * (n * RUNS + run)).collect()).collect();
    let (_env, index) = opened(dir.path(), 1024, 64 << 20, &runs);
    assert_eq!(index.stats().height, RUNS, "a strand for each run");
    let blocks = index.stats().leaves;
    let asked: Vec<u32> = (0..120).map(|n| n * 787).collect();
    assert!(asked.iter().all(|n| !is_there(&index, n | 1)));
    let traffic = index.stats().traffic;
    eprintln!("{blocks} data blocks; 120 keys that are not there read {}", traffic.point_blocks);
    // 960 blocks could have one of them. A filter of few keys is a line of 512 bits, and errs seldom.
    assert!(traffic.point_blocks < 20, "{}", traffic.point_blocks);
    assert_eq!(traffic.point_reads, 120);
    assert!((1..100).contains(&traffic.cold_reads), "until index blocks are in memory: {}", traffic.cold_reads);
    assert!(asked.iter().all(|n| is_there(&index, n & !1)));
    let more = index.stats().traffic.since(&traffic).point_blocks;
    let traffic = index.stats().traffic;
    assert!(asked.iter().all(|n| is_there(&index, n & !1)));
    assert_eq!(index.stats().traffic.since(&traffic).cold_reads, 0, "now all of it is in memory");
    eprintln!("as many that are there read {more}");
    assert!((120..140).contains(&more), "one each, and where a filter errs: {more}");
}

/// What the background does meanwhile: what is in memory beyond its share leaves.
fn evict_a_little(env: &IndexEnv) {
    let write_env = WriteEnv { view: GcView::keep_all(), applied: Lsn(0), durable: Lsn(0) };
    while env.cache.step(&write_env, &Durable, &env.space).unwrap().advanced() {}
}

/// Keys of a range, some at a time, with the background between.
fn scan(env: &IndexEnv, index: &Lsm, range: Range<u32>, direction: Direction) -> usize {
    let (low, high) = (key(range.start), key(range.end));
    // Who reads the newest begins anew at each call.
    let at = ReadAt::Snapshot(CommitTs(1 << 30));
    let mut cursor = index.cursor(at, (Bound::Included(&low), Bound::Excluded(&high)), direction);
    let (mut out, mut count) = (EntryBatch::new(), 0);
    loop {
        let more = cursor.fill(&mut out, 50).unwrap();
        count += out.len();
        evict_a_little(env);
        if !more {
            return count;
        }
    }
}

/// Guard: who has come through many blocks keeps none once memory is nearly full (`source/ahead.rs`).
#[test]
fn a_scan_leaves_what_is_read_often() {
    for direction in [Direction::Forward, Direction::Backward] {
        let dir = tempfile::tempdir().unwrap();
        let (often, all) = (0..6_000, 6_000..200_000);
        let (env, index) = opened(dir.path(), 4096, 4 << 20, &[(0..200_000).collect()]);
        let read_often = || often.clone().step_by(5).for_each(|n| assert!(is_there(&index, n)));
        let loads = |index: &Lsm| index.stats().loads;
        (0..3).for_each(|_| read_often());
        let once = loads(&index);
        read_often();
        assert_eq!(loads(&index), once, "all of it is in memory");
        assert_eq!(scan(&env, &index, all.clone(), direction), all.len());
        let scanned = loads(&index);
        assert!(scanned - once > 10 * once, "a scan of far more than that: {once} and {} blocks", scanned - once);
        read_often();
        let again = loads(&index) - scanned;
        eprintln!(
            "{direction:?}: of {once} blocks that are read often {again} were read again behind a scan of {}",
            scanned - once
        );
        assert!(again * 4 < once, "{direction:?}: {again} of {once}");
    }
}

/// Guards: a reader that has come through a block reads more of them at once, in both directions (`source/ahead.rs`); blocks that were read
/// ahead come in the direction's order.
#[test]
fn scans_read_ahead_in_either_direction() {
    for direction in [Direction::Forward, Direction::Backward] {
        let dir = tempfile::tempdir().unwrap();
        let (_env, index) = opened(dir.path(), 1024, 256 << 20, &[(0..100_000).collect()]);
        let mut expected: Vec<u32> = (0..100_000).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        assert_eq!(keys(&index, ReadAt::Newest, direction), expected);
        let stats = index.stats();
        let reads = stats.loads - stats.read_ahead;
        eprintln!("{direction:?}: {} blocks in {reads} reads", stats.loads);
        assert_eq!(stats.loads, stats.leaves, "each block once");
        assert!(reads * 20 < stats.loads, "{direction:?}: {reads} reads of {} blocks", stats.loads);
        // And each is kept where it belongs.
        assert_eq!(keys(&index, ReadAt::Newest, direction), expected);
        assert_eq!(index.stats().loads, stats.loads, "from memory");
    }
}
