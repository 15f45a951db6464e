//! Schedules that would break a naive build, each with the guard that keeps it from doing so.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;
use std::sync::Arc;

use base::{CommitTs, GcView, Lsn};
use index::conformance::{Bench, World};
use index::{Batch, Direction, EntryBatch, Index, Op, ReadAt, Reservation, Span, Upkeep};
use store::Run;
use trefoil_lsm::Lsm;

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

fn bench() -> Bench {
    let mut bench = Bench::new(|env, state| Ok(Lsm::open(env, state)?));
    bench.options.node_bytes = 512;
    bench.relieves = true;
    bench
}

fn world(bench: &Bench) -> World<'_> {
    World::new(bench).map_err(|complaint| complaint.0).unwrap()
}

fn apply(index: &Arc<dyn Index>, ts: u64, ops: &[(&[u8], Op<'_>)]) {
    let batch: Batch = ops.iter().copied().collect();
    let Reservation::Direct(room) = index.reserve(&batch).unwrap() else { panic!("a small batch") };
    index.apply(&batch, room, CommitTs(ts), &GcView::keep_all());
}

/// Maintenance to its end, when everything up to `floor` is applied.
fn maintain(world: &World<'_>, floor: u64) {
    let view = GcView::new(CommitTs(floor), Vec::new());
    let upkeep = Upkeep { view, applied: Lsn(floor), log: &*world.gate, tight: false };
    while world.index().maintain(&upkeep).unwrap().more {}
}

fn flush(world: &World<'_>) {
    while world.index().relieve(&*world.gate).unwrap() > 0 {}
}

/// What a reader finds of a key: by a point read, and by cursors both ways.
fn get(index: &Arc<dyn Index>, at: ReadAt, key: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    index.get_many(at, &[key], &mut |_, _, value| found = Some(value.to_vec())).unwrap();
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor = index.cursor(at, ALL, direction);
        let (mut out, mut seen) = (EntryBatch::new(), None);
        while cursor.fill(&mut out, 3).unwrap() || !out.is_empty() {
            seen = seen.or(out.iter().find(|(k, ..)| *k == key).and_then(|(_, value, _)| value.map(<[u8]>::to_vec)));
        }
        assert_eq!(seen, found, "{direction:?} at {at:?}");
    }
    found
}

/// A commit at 160 is preempted before it is applied; a later one, at 320, deletes its key, and is flushed. The first is applied, everybody
/// sees both, and the run with the tombstone is merged while the put is in memory only.
#[test]
fn a4_a_tombstone_waits_for_what_is_older_elsewhere() {
    let bench = bench();
    let world = world(&bench);
    apply(world.index(), 320, &[(b"k", Op::Delete)]);
    flush(&world);
    apply(world.index(), 160, &[(b"k", Op::Put(b"old"))]);
    maintain(&world, 400);
    assert_eq!(get(world.index(), ReadAt::Newest, b"k"), None);
    flush(&world);
    maintain(&world, 400);
    assert_eq!(get(world.index(), ReadAt::Newest, b"k"), None);
    assert_eq!(world.index().verify().unwrap().entries, 0, "both are gone in the end");
}

/// The same with an entry that is announced, and comes after the tombstone could have been collected; also where a range is deleted and drained meanwhile,
/// whose deletes are announced, too. Guards: [`index::Ranged`] passes on at once what is announced, and announces the earlier of both.
#[test]
fn a4_a_tombstone_waits_for_what_is_announced() {
    let bench = bench();
    let world = world(&bench);
    world.index().expect_late(Some(CommitTs(160)));
    apply(world.index(), 320, &[(b"k", Op::Delete)]);
    let span = Span { low: b"x".to_vec(), high: None };
    let ranged = world.index().as_ranged().unwrap();
    ranged.delete_ranges(&[span], CommitTs(336), Some(std::iter::empty()));
    flush(&world);
    maintain(&world, 400);
    apply(world.index(), 160, &[(b"k", Op::Put(b"old"))]);
    world.index().expect_late(None);
    assert_eq!(get(world.index(), ReadAt::Newest, b"k"), None);
    flush(&world);
    maintain(&world, 400);
    assert_eq!(get(world.index(), ReadAt::Newest, b"k"), None);
}

/// A run is attached at 160 when a newer version of its key is on disk already, and an older one, too.
#[test]
fn a18_a_run_attached_late_hides_nothing_newer() {
    let bench = bench();
    let world = world(&bench);
    apply(world.index(), 80, &[(b"k", Op::Put(b"80"))]);
    flush(&world);
    apply(world.index(), 320, &[(b"k", Op::Put(b"320")), (b"l", Op::Delete)]);
    flush(&world);
    let check = |world: &World<'_>| {
        let found =
            [400, 320, 319, 160, 159, 80, 79].map(|at| get(world.index(), ReadAt::Snapshot(CommitTs(at)), b"k"));
        let expected = ["320", "320", "160", "160", "80", "80", ""]
            .map(|value| (!value.is_empty()).then(|| value.as_bytes().to_vec()));
        assert_eq!(found, expected);
        assert_eq!(get(world.index(), ReadAt::Newest, b"k").unwrap(), b"320");
        assert_eq!(get(world.index(), ReadAt::Newest, b"l"), None);
    };
    world.index().attach(Run::from_sorted([("k", Some("160")), ("l", Some("160"))]), CommitTs(160));
    check(&world);
    maintain(&world, 80);
    check(&world);
    apply(world.index(), 336, &[(b"m", Op::Put(b""))]);
    flush(&world);
    check(&world);
}

/// Versions of one key fill many blocks, and end in the middle of one; a merge meets them beside those of another run.
#[test]
fn versions_of_one_key_over_many_blocks_stay_together() {
    let bench = bench();
    let world = world(&bench);
    let value = |ts: u64| format!("{ts:040}").into_bytes();
    let commit = |ts: u64, keys: &[&[u8]]| {
        let value = value(ts);
        apply(world.index(), ts, &keys.iter().map(|key| (*key, Op::Put(&value))).collect::<Vec<_>>());
    };
    for n in 1..=300u64 {
        match n % 3 {
            0 => commit(n * 16, &[b"a", b"k", b"z"]),
            1 => commit(n * 16, &[b"k"]),
            _ => commit(n * 16, &[b"k", b"y"]),
        }
        if n % 50 == 0 {
            flush(&world);
        }
    }
    let check = || {
        for n in (1..=300u64).step_by(7) {
            let at = ReadAt::Snapshot(CommitTs(n * 16 + 5));
            assert_eq!(get(world.index(), at, b"k"), Some(value(n * 16)));
            assert_eq!(get(world.index(), at, b"z"), (n >= 3).then(|| value(n / 3 * 48)));
        }
        assert!(world.index().verify().unwrap().problems.is_empty());
    };
    check();
    maintain(&world, 0);
    check();
    // One dump at 1600, and everything else goes.
    let view = GcView::new(CommitTs(4801), vec![CommitTs(1600)]);
    let upkeep = Upkeep { view, applied: Lsn(4801), log: &*world.gate, tight: false };
    while world.index().maintain(&upkeep).unwrap().more {}
    assert_eq!(get(world.index(), ReadAt::Snapshot(CommitTs(1600)), b"k"), Some(value(1600)));
    assert_eq!(get(world.index(), ReadAt::Newest, b"k"), Some(value(4800)));
}

/// Ascending keys: the blocks of earlier runs are taken over as they are, so that what is written stays near what came in.
#[test]
fn ascending_keys_are_written_about_once() {
    let mut bench = bench();
    bench.options.node_bytes = 4096;
    let world = world(&bench);
    let mut key = 0u32;
    for ts in 1..=200u64 {
        let rows: Vec<([u8; 4], Vec<u8>)> = (0..50).map(|n| ((key + n).to_be_bytes(), vec![ts as u8; 60])).collect();
        key += 50;
        apply(
            world.index(),
            ts * 16,
            &rows.iter().map(|(key, value)| (key.as_slice(), Op::Put(value))).collect::<Vec<_>>(),
        );
        if ts % 5 == 0 {
            flush(&world);
            maintain(&world, ts * 16);
        }
    }
    let traffic = world.index().stats().traffic;
    assert!(traffic.leaf_bytes < traffic.segment_bytes, "{traffic:?}");
    let report = world.index().verify().unwrap();
    assert_eq!((report.entries, report.problems.len()), (10_000, 0));
    let mut cursor = world.index().cursor(ReadAt::Newest, ALL, Direction::Forward);
    let (mut out, mut count) = (EntryBatch::new(), 0);
    while cursor.fill(&mut out, 100).unwrap() || !out.is_empty() {
        count += out.len();
    }
    assert_eq!(count, 10_000);
}

/// Rows whose deletes the log may still lose are collected with them, until no run is left that could say so.
#[test]
fn a6_an_index_that_is_empty_does_not_outrun_its_deletes() {
    let bench = bench();
    let mut world = world(&bench);
    let rows = |value: Option<&str>| -> Vec<_> {
        (0..50u8).map(|n| (vec![n], value.map(|value| value.as_bytes().to_vec()))).collect()
    };
    let done = |verdict: Result<(), index::conformance::Complaint>| verdict.map_err(|complaint| complaint.0).unwrap();
    world.commit(&rows(Some("there"))).map_err(|complaint| complaint.0).unwrap();
    done(world.sync_log());
    done(world.checkpoint());
    world.commit(&rows(None)).map_err(|complaint| complaint.0).unwrap();
    flush(&world);
    done(world.settle());
    assert_eq!(world.index().verify().unwrap().entries, 0, "all of it is collected");
    done(world.checkpoint());
    done(world.crash());
    done(world.check());
}

/// Deleted since, but an old snapshot sees it: nobody may say that there is nothing.
#[test]
fn an_estimate_counts_what_only_old_snapshots_see() {
    let bench = bench();
    let world = world(&bench);
    let index = world.index();
    apply(index, 160, &[(b"k", Op::Put(b"v"))]);
    apply(index, 320, &[(b"k", Op::Delete)]);
    assert_eq!(get(index, ReadAt::Snapshot(CommitTs(200)), b"k").as_deref(), Some(b"v".as_slice()));
    assert!(index.estimate(ALL).unwrap() > 0, "in a memtable");
    flush(&world);
    assert!(index.estimate(ALL).unwrap() > 0, "in a run");
    maintain(&world, 400);
    assert_eq!(index.estimate(ALL).unwrap(), 0, "collected");
}

/// As a log is replayed: nothing of a hot row is collected.
#[test]
fn many_versions_of_one_key_are_no_burden() {
    let bench = bench();
    let world = world(&bench);
    let index = world.index();
    let begun = vfs::time::Instant::now();
    for n in 1..=300_000u64 {
        apply(index, 16 * n, &[(b"hot", Op::Put(&n.to_be_bytes()))]);
    }
    flush(&world);
    let newest = 300_000u64.to_be_bytes();
    assert_eq!(get(index, ReadAt::Newest, b"hot").as_deref(), Some(newest.as_slice()));
    // With every version looked at, or moved, for every other one it takes minutes.
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}
