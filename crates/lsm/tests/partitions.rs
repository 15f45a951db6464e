//! Runs in parts: what of them is in memory, what a step writes, and parts that two runs have.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crate::support::{
    self, ALL, assert_counted, checkpoint, env, env_of, evict, flush, key, keys, put, settle, upkeep,
};
use base::{CommitTs, GcView};
use index::{Direction, EntryBatch, Index, ReadAt, Upkeep};
use store::Class;
use trefoil_lsm::Lsm;

const ROWS: u32 = 60_000;

fn get(index: &Lsm, n: u32) -> Option<Vec<u8>> {
    let mut found = None;
    index.get_many(ReadAt::Newest, &[&key(n)], &mut |_, _, value| found = Some(value.to_vec())).unwrap();
    found
}

/// The filters and first keys of small blocks are a good part of a run. They come and go like the blocks themselves; what stays is little.
#[test]
fn d10_indexes_of_runs_leave_memory() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path(), 512, 64 << 20);
    let index = Lsm::open(env.clone(), None).unwrap();
    put(&index, 160, 0..ROWS, |n| vec![n as u8; 60]);
    flush(&index);
    let budget = env.cache.budget();
    let stored = index.stats().disk_bytes;
    assert!(stored > 4 << 20, "{stored}");
    assert!(budget.used(Class::Frames) > stored / 20, "what was written is in memory as long as there is room");
    let (state, _) = checkpoint(&env, &index);
    for round in 0..2 {
        evict(&env);
        assert_eq!(budget.used(Class::Frames), 0, "round {round}");
        let kept = budget.total() - budget.used(Class::Buffers);
        assert!(kept < stored / 100, "{kept} of {stored}");
        assert_eq!(get(&index, 777), Some(vec![777u32 as u8; 60]));
        let read = budget.used(Class::Frames);
        assert!((1..200 << 10).contains(&read), "one index block and one data block, not {read} bytes");
        assert_eq!(keys(&index, ReadAt::Newest, Direction::Backward).len(), ROWS as usize);
    }
    // A reopening reads no more than the top.
    env.space.close();
    let read_before = env.space.stats().read_bytes;
    let index = Lsm::open(env.clone(), Some(&state)).unwrap();
    assert_eq!(get(&index, 777), Some(vec![777u32 as u8; 60]));
    let read = env.space.stats().read_bytes - read_before;
    assert!(read < 200 << 10, "{read} bytes were read for one key");
}

/// A step of a merge writes no more near its end, where the index was written whole, than in its middle.
#[test]
fn no_step_writes_a_whole_index() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path(), 512, 256 << 20);
    let index = Lsm::open(env.clone(), None).unwrap();
    for ts in 1..=5u64 {
        put(&index, ts * 16, (0..3 * ROWS).skip(ts as usize).step_by(2), |n| vec![n as u8; 60]);
        flush(&index);
    }
    let mut worst = 0;
    loop {
        let before = env.space.stats().written_bytes;
        let more = index.maintain(&upkeep()).unwrap().more;
        worst = worst.max(env.space.stats().written_bytes - before);
        if !more {
            break;
        }
    }
    let stored = index.stats().disk_bytes;
    assert!(index.stats().height < 5 && stored > 14 << 20, "{stored}");
    assert!(worst < 1 << 20, "{worst} bytes in one step");
    assert!(index.verify().unwrap().problems.is_empty());
}

/// New keys behind all others, and a few in the middle: the rest of the older runs is taken over, partitions and single blocks, and large
/// values stay where they are. What a reader of the older runs has stays until he is gone; what the manifests name is counted exactly.
#[test]
fn parts_of_two_runs_are_freed_with_the_last() {
    let dir = tempfile::tempdir().unwrap();
    let mut env = env(dir.path(), 1024, 64 << 20);
    let mut index = Lsm::open(env.clone(), None).unwrap();
    let value = |n: u32| vec![n as u8; if n.is_multiple_of(997) { 5000 } else { 40 }];
    let mut rows = 0;
    for round in 0..12u64 {
        put(&index, 1 + round * 32, rows..rows + ROWS / 4, value);
        rows += ROWS / 4;
        flush(&index);
        // In the middle of what is there, as it is.
        put(&index, 17 + round * 32, (0..3).map(|n| rows / 3 + n * 5), value);
        flush(&index);
        let mut old = index.cursor(ReadAt::Snapshot(CommitTs(1 << 30)), ALL, Direction::Forward);
        let mut out = EntryBatch::new();
        assert!(old.fill(&mut out, 10).unwrap());
        let before = index.stats().traffic.leaf_bytes;
        settle(&index);
        let merged = index.stats().traffic.leaf_bytes - before;
        assert!(round < 6 || merged < index.stats().disk_bytes / 2, "{merged} bytes written for a few keys");
        checkpoint(&env, &index);
        let mut left = 10;
        while old.fill(&mut out, 1000).unwrap() {
            left += out.len();
        }
        assert_eq!(left + out.len(), rows as usize);
        drop(old);
        let (state, saved) = checkpoint(&env, &index);
        let stored = index.stats().disk_bytes;
        assert_eq!(env.space.stats().held_bytes, stored, "round {round}: nothing but the runs");
        let inner = env.cache.budget().used(Class::Inner);
        assert!(inner < stored / 50, "{inner} bytes of memory for {stored} on disk: parts are still apart");
        if round % 4 == 3 {
            env.space.close();
            env = env_of(dir.path(), 1024, 64 << 20, Some(&saved));
            index = Lsm::open(env.clone(), Some(&state)).unwrap();
        }
    }
    assert_eq!(keys(&index, ReadAt::Newest, Direction::Forward), (0..rows).collect::<Vec<_>>());
    assert!(index.verify().unwrap().problems.is_empty());
    assert_counted(&env, &index);
    index.destroy().unwrap();
    assert_eq!(env.space.stats().held_bytes, 0);
}

/// One key has two versions, and a partition ends between them: it is not taken over without the one behind.
#[test]
fn a_key_that_goes_on_in_the_next_partition_stays_whole() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path(), 512, 64 << 20);
    let value = |_: u32| vec![7; 60];
    let runs = |twice: Option<u32>| {
        let index = Lsm::open(env.clone(), None).unwrap();
        put(&index, 16, 0..4000, value);
        put(&index, 32, twice.into_iter(), value);
        flush(&index);
        index
    };
    // Where a partition ends if no key is there twice; with one it ends at most a few keys before.
    let name = support::blocks(&runs(None))
        .into_iter()
        .filter_map(|(_, name)| Some(name.strip_prefix("the index of data from ")?.to_owned()));
    let ends: Vec<u32> =
        (1..4000).filter(|n| name.clone().any(|name| name == base::bytes::printable(&key(*n)))).collect();
    assert!(!ends.is_empty());
    for twice in ends[0] - 12..ends[0] + 2 {
        let index = runs(Some(twice));
        for ts in 3..8u64 {
            // Over its end, so that it is merged, not moved.
            put(&index, ts * 16, (0..600).map(|n| 3990 + n * ts as u32), value);
            flush(&index);
        }
        settle(&index);
        assert!(index.stats().height == 1, "the bottom was not merged");
        let report = index.verify().unwrap();
        assert!(report.problems.is_empty(), "{twice}: {:?}", report.problems);
        index.destroy().unwrap();
    }
}

/// Another source stands right behind a partition that is taken over as it is, the last one of a run: its key is next, not the next run's.
#[test]
fn a_key_between_two_partitions_comes_between_them() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path(), 512, 8 << 20);
    let index = Lsm::open(env, None).unwrap();
    let (value, even) = (|_: u32| vec![7; 60], || (0..60_000).step_by(2));
    for ts in 1..=5u64 {
        put(&index, ts * 16, even().skip(ts as usize - 1).step_by(5), value);
        flush(&index);
    }
    settle(&index);
    assert_eq!(index.stats().height, 1, "{}", index.draw());
    let names: Vec<_> = support::blocks(&index).into_iter().map(|(_, name)| name).collect();
    let begins = |n: u32| format!("the index of data from {}", base::bytes::printable(&key(n)));
    let between: Vec<u32> = even().skip(1).filter(|n| names.contains(&begins(*n))).map(|n| n - 1).collect();
    assert!(between.len() > 4, "{between:?}");
    let before = index.stats().traffic.leaf_bytes;
    for ts in 6..=10u64 {
        put(&index, ts * 16, between.iter().copied().step_by(2), value);
        flush(&index);
    }
    // What was read in many strands is merged into one.
    settle(&index);
    for _ in 0..200 {
        if index.stats().height > 1 {
            keys(&index, ReadAt::Newest, Direction::Forward);
            settle(&index);
        }
    }
    let written = index.stats().traffic.leaf_bytes - before;
    assert!(written < index.stats().disk_bytes / 2, "{written} bytes: no partition was taken over");
    assert_eq!(index.stats().height, 1, "{}", index.draw());
    let mut expected: Vec<u32> = even().chain(between.into_iter().step_by(2)).collect();
    expected.sort_unstable();
    assert_eq!(keys(&index, ReadAt::Newest, Direction::Forward), expected);
    let report = index.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// A cursor in the middle of its range, at a snapshot: what was flushed and merged meanwhile leaves memory and disk all the same.
#[test]
fn a_cursor_that_waits_holds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path(), 1024, 64 << 20);
    let index = Lsm::open(env.clone(), None).unwrap();
    let value = |n: u32| vec![n as u8; 60];
    put(&index, 16, 0..ROWS / 4, value);
    flush(&index);
    put(&index, 32, (0..ROWS / 4).step_by(2), value);
    let attached: Vec<_> = (0..ROWS / 4).step_by(3).map(|n| (key(n), Some(value(n)))).collect();
    let budget = env.cache.budget();
    let attached = store::Run::from_sorted(attached).with_charge(budget.charge(Class::Runs, 5000));
    index.attach(attached, CommitTs(48));
    let mut cursors = [Direction::Forward, Direction::Backward].map(|direction| {
        let mut cursor = index.cursor(ReadAt::Snapshot(CommitTs(64)), ALL, direction);
        let mut out = EntryBatch::new();
        assert!(cursor.fill(&mut out, 10).unwrap());
        (cursor, out.len())
    });
    assert!(budget.used(Class::Buffers) > 0);
    flush(&index);
    for ts in 5..10 {
        put(&index, ts * 16, 0..ROWS / 4, value);
        flush(&index);
    }
    let view = GcView::new(CommitTs(1 << 40), vec![CommitTs(64)]);
    while index.maintain(&Upkeep { view: view.clone(), ..upkeep() }).unwrap().more {}
    // The second manifest no longer names what the first did.
    checkpoint(&env, &index);
    checkpoint(&env, &index);
    assert_eq!((budget.used(Class::Buffers), budget.used(Class::Runs)), (0, 0), "a memtable or a run is held");
    assert_eq!(env.space.stats().held_bytes, index.stats().disk_bytes, "a run is held");
    for (cursor, seen) in &mut cursors {
        let mut out = EntryBatch::new();
        while cursor.fill(&mut out, 500).unwrap() {
            *seen += out.len();
        }
        assert_eq!(*seen + out.len(), ROWS as usize / 4);
    }
}

/// Some keys twice in one run, since nothing could be collected when it was written; then the bottom is merged with new keys behind them.
#[test]
fn d4_a_partition_with_superseded_versions_is_not_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path(), 512, 64 << 20);
    let index = Lsm::open(env.clone(), None).unwrap();
    let value = |_: u32| vec![7; 60];
    put(&index, 16, 0..4000, value);
    put(&index, 32, (0..4000).step_by(5), value);
    flush(&index);
    assert_eq!(index.verify().unwrap().entries, 4800);
    for ts in 3..8u64 {
        // With its last key, so that it is merged, not moved.
        put(&index, ts * 16, std::iter::once(3999).chain((0..1200).map(|n| 2000 * ts as u32 + n)), value);
        flush(&index);
    }
    settle(&index);
    let report = index.verify().unwrap();
    assert_eq!((report.entries, report.problems.len()), (10_000, 0), "{}", index.draw());
}

/// What a flush has written comes back at its end; the write controller knows of it before, step by step.
#[test]
fn what_a_flush_has_written_is_no_debt() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path(), 4096, 64 << 20);
    let index = Lsm::open(env.clone(), None).unwrap();
    put(&index, 160, 0..ROWS / 4, |n| vec![n as u8; 60]);
    let (cache, used) = (&env.cache, || env.cache.budget().used(Class::Buffers));
    let all = used();
    let of_index = index.memtables();
    assert_eq!((of_index.active, of_index.sealed), (all, 0));
    assert_eq!((cache.unsealed_bytes(), cache.unwritten_bytes()), (all, all));
    index.seal();
    // The next memtable has nothing yet.
    let of_index = index.memtables();
    assert_eq!((of_index.active, of_index.sealed), (0, all));
    put(&index, 176, 0..1, |_| vec![0; 60]);
    let little = used() - all;
    assert_eq!((cache.unsealed_bytes(), cache.unwritten_bytes()), (little, all + little));
    let (mut steps, mut before) = (0, all + little);
    while index.memtables().sealed > 0 {
        index.maintain(&upkeep()).unwrap();
        let left = cache.unwritten_bytes();
        assert!(left < before || left == little, "{left} bytes behind a step, {before} before");
        assert_eq!(used(), if index.memtables().sealed > 0 { all + little } else { little });
        (steps, before) = (steps + 1, left);
    }
    assert!(steps > 4, "{steps}");
    assert_eq!((cache.unsealed_bytes(), cache.unwritten_bytes(), cache.balance().sealed_bytes()), (little, little, 0));
}
