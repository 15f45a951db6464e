//! What an index says about how many keys lie in a range, and what it reads for that.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;

use crate::support::{checkpoint, env, evict, flush, key, put};
use base::{CommitTs, GcView};
use index::{Batch, Index, Op, Reservation};
use trefoil_lsm::Lsm;

const ROWS: u32 = 60_000;

fn estimate(index: &Lsm, from: u32, to: u32) -> i64 {
    let (low, high) = (key(from), key(to));
    index.estimate((Bound::Included(low.as_slice()), Bound::Excluded(high.as_slice()))).unwrap() as i64
}

fn delete(index: &Lsm, ts: u64, keys: impl Iterator<Item = u32>) {
    let keys: Vec<_> = keys.map(key).collect();
    for some in keys.chunks(100) {
        let batch: Batch = some.iter().map(|key| (key.as_slice(), Op::Delete)).collect();
        let Reservation::Direct(room) = index.reserve(&batch).unwrap() else { panic!("small") };
        index.apply(&batch, room, CommitTs(ts), &GcView::keep_all());
    }
}

/// A planner asks before each query: blocks at the ends of a range are read where they are a good part of it, and nowhere else.
#[test]
fn an_estimate_reads_what_may_matter() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path(), 512, 64 << 20);
    let index = Lsm::open(env.clone(), None).unwrap();
    put(&index, 160, 0..ROWS, |n| vec![n as u8; 60]);
    flush(&index);
    checkpoint(&env, &index);
    // Rows of it; an error of so many at most; data blocks that may be read.
    for (rows, error, blocks) in
        [(2, 0, 2), (6, 0, 2), (30, 2, 2), (300, 10, 0), (30_000, 2000, 0), (ROWS - 300, 4000, 0)]
    {
        for from in [0, 7, 251] {
            evict(&env);
            let before = index.stats().loads;
            let estimate = estimate(&index, from, from + rows);
            let read = index.stats().loads - before;
            assert!(
                (estimate - i64::from(rows)).abs() <= error && read <= blocks,
                "{estimate} of {rows}, {read} blocks"
            );
        }
    }
}

/// Many versions of one key, of which blocks are full, are one key; its neighbours do not count for it, nor it for them.
#[test]
fn versions_of_one_key_are_one_key() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path(), 4096, 64 << 20);
    let index = Lsm::open(env, None).unwrap();
    put(&index, 1, 0..3000, |n| vec![n as u8; 30]);
    for ts in 2..3000 {
        put(&index, ts, [1500].into_iter(), |n| vec![n as u8; 60]);
    }
    for place in ["in memory", "in a run"] {
        for (from, to) in [(1500, 1501), (1499, 1502), (1450, 1550), (1400, 1501), (1500, 1600), (0, 3000), (700, 1501)]
        {
            let (found, real) = (estimate(&index, from, to), i64::from(to - from));
            assert!(
                found <= 2 * real + 4 && real <= 2 * found + 4,
                "{place}: {found} instead of {real} from {from} to {to}"
            );
        }
        flush(&index);
    }
}

/// What was deleted in one go, as the oldest rows of a queue are, takes away no more and no less than what is there, also where it ends.
#[test]
fn deletes_take_away_what_they_delete() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path(), 4096, 64 << 20);
    let index = Lsm::open(env, None).unwrap();
    put(&index, 1, 0..ROWS, |n| vec![n as u8; 60]);
    flush(&index);
    delete(&index, 2, 10_000..50_000);
    put(&index, 3, 30_000..30_900, |n| vec![n as u8; 60]);
    let real = |from: u32, to: u32| {
        (from..to).filter(|n| !(10_000..50_000).contains(n) || (30_000..30_900).contains(n)).count()
    };
    for place in ["in memory", "in a run"] {
        for (from, to) in [
            (9_900, 10_100),
            (10_000, 49_000),
            (9_000, 20_000),
            (29_990, 30_950),
            (29_000, 32_000),
            (49_950, 50_050),
            (0, ROWS),
        ] {
            let (found, real) = (estimate(&index, from, to), real(from, to) as i64);
            // A share of what lies in memory is known by some leaves of it.
            let error = i64::from(to - from) / 20;
            assert!(
                found <= 2 * real + 4 + error && real <= 2 * found + 4 + error,
                "{place}: {found} of {real}, {from} to {to}"
            );
        }
        flush(&index);
    }
}
