//! What has expired: nobody finds it, by whatever way he reads; merges drop it, whole runs unread; older snapshots keep what they had.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;
use std::sync::Arc;

use crate::support::{self, ALL, Durable, checkpoint, env, env_of, flush, key, keys, put};
use base::{CommitTs, GcView, Lsn};
use index::{BatchBuilder, Direction, EntryBatch, Expiry, Index, IndexEnv, Op, ReadAt, Reservation, Upkeep};
use trefoil_lsm::Lsm;
use vfs::sim::{Config, Simulation};

const TTL: u64 = 1000;

fn expiring(dir: &std::path::Path) -> (IndexEnv, Arc<Expiry>) {
    let expiry = Expiry::new(TTL);
    (IndexEnv { expiry: Some(expiry.clone()), ..env(dir, 1024, 64 << 20) }, expiry)
}

/// The clock says `seconds`, and what lies below `from` was there before.
fn tick(expiry: &Expiry, from: u64, seconds: u64) {
    expiry.take(CommitTs(from), expiry.next(CommitTs(from - 1), seconds * 1000, false));
}

/// All at or below `through` has expired for who reads from `from` on.
fn expire(expiry: &Expiry, through: u64, from: u64) {
    let now = expiry.last_ms() / 1000 + 100;
    tick(expiry, through + 1, now);
    tick(expiry, from - 16, now + TTL + 100);
    tick(expiry, from, now + TTL + 200);
    assert_eq!(expiry.newest(), (CommitTs(from), CommitTs(through)));
}

fn upkeep(floor: u64, snapshots: &[u64]) -> Upkeep<'static> {
    let snapshots = snapshots.iter().map(|ts| CommitTs(*ts)).collect();
    Upkeep { view: GcView::new(CommitTs(floor), snapshots), applied: Lsn(floor), log: &Durable, tight: false }
}

fn settle(index: &Lsm, upkeep: &Upkeep<'_>) {
    let steps = (0..10_000).take_while(|_| index.maintain(upkeep).unwrap().more).count();
    assert!(steps < 10_000, "it never comes to rest: {}", index.draw());
}

fn apply(index: &Lsm, ts: u64, n: u32, op: impl Fn(&mut BatchBuilder, &[u8])) {
    let mut builder = BatchBuilder::new();
    op(&mut builder, &key(n));
    let batch = builder.finish();
    let Reservation::Direct(room) = index.reserve(&batch).unwrap() else { panic!("small") };
    index.apply(&batch, room, CommitTs(ts), &GcView::keep_all());
}

fn get(index: &Lsm, at: ReadAt, n: u32) -> Option<Vec<u8>> {
    let mut value = None;
    index.get_many(at, &[&key(n)], &mut |_, _, found| value = Some(found.to_vec())).unwrap();
    value
}

fn both_ways(index: &Lsm, at: ReadAt) -> Vec<u32> {
    let found = keys(index, at, Direction::Forward);
    let mut back = keys(index, at, Direction::Backward);
    back.reverse();
    assert_eq!(found, back);
    for n in 0..40 {
        assert_eq!(get(index, at, n).is_some(), found.contains(&n), "key {n}");
    }
    found
}

fn snapshot(ts: u64) -> ReadAt {
    ReadAt::Snapshot(CommitTs(ts))
}

/// Wherever a version lies. Guards: `Best::begin` in `get_many`; `Look::value`; `has_expired` in `RunSource::give` and `give_block`; the filter of attached runs in
/// `begin`; the cut that a cursor of the newest asks for anew.
#[test]
fn what_has_expired_is_found_by_nobody_and_what_it_hid_neither() {
    for place in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let (env, expiry) = expiring(dir.path());
        let index = Lsm::open(env, None).unwrap();
        // Rows 0 to 9 were put before, too; 10 to 19 were deleted again.
        put(&index, 16, 0..20, |_| b"older".to_vec());
        flush(&index);
        match place {
            0 => put(&index, 32, 0..10, |_| b"old".to_vec()),
            1 => {
                // Every other one is a large value, and one that is alive keeps the run from being passed over.
                put(&index, 80, 20..21, |_| b"new".to_vec());
                put(&index, 32, 0..10, |n| vec![n as u8; if n % 2 == 0 { 700 } else { 7 }]);
                flush(&index);
            }
            _ => {
                index.attach(store::Run::from_sorted((0..10).map(|n| (key(n), Some(b"old".as_slice())))), CommitTs(32))
            }
        }
        (10..20).for_each(|n| apply(&index, 48, n, |builder, key| builder.push(key, Op::Delete)));
        put(&index, 80, 20..30, |_| b"new".to_vec());
        let mut newest = index.cursor(ReadAt::Newest, ALL, Direction::Forward);
        let mut out = EntryBatch::new();
        assert!(newest.fill(&mut out, 3).unwrap());
        expire(&expiry, 64, 160);
        let alive: Vec<u32> = (20..30).collect();
        let before: Vec<u32> = (0..10).chain(20..30).collect();
        for round in 0..2 {
            for at in [ReadAt::Newest, snapshot(160), snapshot(1000)] {
                assert_eq!(both_ways(&index, at), alive, "place {place} round {round} {at:?}");
            }
            assert_eq!(both_ways(&index, snapshot(159)), before, "a snapshot from before keeps its moment");
            assert!(index.estimate((Bound::Included(&key(0)), Bound::Excluded(&key(20)))).unwrap() <= 20);
            settle(&index, &upkeep(200, &[159]));
        }
        assert!(newest.fill(&mut out, 100).unwrap() || !out.is_empty());
        assert_eq!(out.key(0), key(20), "a cursor of the newest goes on with what is there now");
        expiry.trim(&GcView::new(CommitTs(200), Vec::new()));
        settle(&index, &upkeep(200, &[]));
        assert_eq!(both_ways(&index, ReadAt::Newest), alive);
        assert!(index.verify().unwrap().problems.is_empty());
    }
}

/// What has expired beside what has not, in a block that has to be read. Guard: what memory said of a key, and the cut with it, goes with it to the disk
/// (`Wave::push`).
#[test]
fn what_has_expired_on_disk_is_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let (env, expiry) = expiring(dir.path());
    let index = Lsm::open(env.clone(), None).unwrap();
    put(&index, 16, (0..40).step_by(2), |_| b"old".to_vec());
    put(&index, 900, (1..40).step_by(2), |_| b"alive".to_vec());
    flush(&index);
    let (state, saved) = checkpoint(&env, &index);
    drop((index, env));
    let env = IndexEnv { expiry: Some(expiry.clone()), ..env_of(dir.path(), 1024, 64 << 20, Some(&saved)) };
    let index = Lsm::open(env, Some(&state)).unwrap();
    expire(&expiry, 64, 1000);
    let loads = index.stats().loads;
    assert!((0..40).all(|n| get(&index, ReadAt::Newest, n).is_some() == (n % 2 == 1)));
    assert!(index.stats().loads > loads, "it was read");
}

/// Guards: `let_expired_go` and `is_memtable_expired` in `maintain`; the view in `cut_of_all` (an open snapshot).
#[test]
fn runs_of_which_all_has_expired_go_unread_once_nobody_sees_them() {
    let dir = tempfile::tempdir().unwrap();
    let (env, expiry) = expiring(dir.path());
    let index = Lsm::open(env, None).unwrap();
    for round in 0..3u32 {
        put(&index, 16 + u64::from(round), round * 5000..round * 5000 + 4000, |n| vec![n as u8; 40]);
        flush(&index);
    }
    settle(&index, &upkeep(100, &[]));
    put(&index, 48, 0..50, |_| b"in memory".to_vec());
    let merged = |index: &Lsm| index.stats().levels.iter().map(|level| level.merged_bytes).sum::<u64>();
    let (full, merged_before) = (index.stats(), merged(&index));
    assert!(full.disk_bytes > 100_000 && full.live_keys >= 12_000);
    expire(&expiry, 64, 160);
    let stats = index.stats();
    assert_eq!((stats.live_keys, stats.expired_versions), (0, 12_000), "counted before anything went");
    settle(&index, &upkeep(200, &[100]));
    assert_eq!(keys(&index, snapshot(100), Direction::Forward).len(), 12_000);
    assert_eq!(index.stats().disk_bytes, full.disk_bytes, "somebody sees it");
    expiry.trim(&GcView::new(CommitTs(200), Vec::new()));
    let loads = index.stats().loads;
    settle(&index, &upkeep(200, &[]));
    let stats = index.stats();
    assert_eq!((stats.disk_bytes, stats.memory_bytes, stats.height), (0, 0, 0), "{}", index.draw());
    assert_eq!((stats.expired_dropped, stats.expired_runs), (12_050, full.levels.iter().map(|level| level.runs).sum()));
    assert_eq!((merged(&index), stats.loads), (merged_before, loads), "nothing was written, nothing read");
    assert_eq!(index.estimate(ALL).unwrap(), 0);
}

/// What has expired for the newest is there for a snapshot of before, also in what a flush and a merge write beside it. Guard: a pass drops what has expired for all
/// of its view (`collection` in `jobs.rs`), not for who reads the newest.
#[test]
fn a_merge_keeps_what_has_not_expired_for_an_open_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let (env, expiry) = expiring(dir.path());
    let index = Lsm::open(env, None).unwrap();
    // Those of later lie between them.
    let old: Vec<u32> = (0..40).chain([5000]).collect();
    put(&index, 16, old.iter().copied(), |_| b"old".to_vec());
    flush(&index);
    expire(&expiry, 64, 160);
    for round in 0..20 {
        put(&index, 176 + round, 40..1000, |n| vec![n as u8; 100]);
        flush(&index);
        settle(&index, &upkeep(400, &[150]));
    }
    assert!(index.stats().levels.iter().any(|level| level.merged_bytes > 0), "{}", index.draw());
    assert_eq!(both_ways(&index, snapshot(150)), old);
    assert_eq!(keys(&index, ReadAt::Newest, Direction::Forward).len(), 960);
}

/// A run of which half has expired is written anew, though nobody reads and nothing is deleted, and all that has expired is out of it. Guards: `expire`
/// in `choose`, `may_have_expired` in `take_over`.
#[test]
fn a_run_of_which_half_has_expired_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (env, expiry) = expiring(dir.path());
    let index = Lsm::open(env, None).unwrap();
    // The old ones lie between the new ones, and beside them whole blocks of old ones.
    put(&index, 16, (0..4000).step_by(2).chain(4000..8000), |n| vec![n as u8; 40]);
    put(&index, 112, (1..4000).step_by(2).chain(8000..12_000), |n| vec![n as u8; 40]);
    flush(&index);
    settle(&index, &upkeep(200, &[]));
    expire(&expiry, 40, 60);
    settle(&index, &upkeep(400, &[]));
    assert_eq!(index.stats().expired_dropped, 0, "a quarter of what the log has between the two");
    expire(&expiry, 100, 500);
    expiry.trim(&GcView::new(CommitTs(600), Vec::new()));
    settle(&index, &upkeep(600, &[]));
    let stats = index.stats();
    assert_eq!((stats.expired_dropped, stats.expired_versions), (6000, 0), "{}", index.draw());
    assert_eq!(stats.levels.iter().map(|level| level.versions).sum::<u64>(), 6000);
    assert_eq!(keys(&index, ReadAt::Newest, Direction::Forward).len(), 6000);
    let (merged, before) = (stats.traffic.leaf_bytes, index.draw());
    settle(&index, &upkeep(600, &[]));
    assert_eq!((index.stats().traffic.leaf_bytes, index.draw()), (merged, before), "once is enough");
}

/// A delete goes with what has expired, and the older put that it hid stays in another run for now: nobody sees it. Guard: what lies at or below the cut
/// is passed over by readers, not only what a merge found.
#[test]
fn a_delete_that_has_expired_may_go_before_what_it_hid() {
    let dir = tempfile::tempdir().unwrap();
    let (env, expiry) = expiring(dir.path());
    let index = Lsm::open(env, None).unwrap();
    put(&index, 16, 0..40, |_| b"hidden".to_vec());
    put(&index, 900, 100..140, |_| b"alive".to_vec());
    flush(&index);
    (0..40).for_each(|n| apply(&index, 32, n, |builder, key| builder.push(key, Op::Delete)));
    flush(&index);
    expire(&expiry, 64, 1000);
    settle(&index, &upkeep(1100, &[]));
    assert!(index.stats().levels.iter().all(|level| level.deleted_keys == 0), "{}", index.draw());
    assert!(index.draw().contains("16..900"), "the puts are where they were: {}", index.draw());
    assert_eq!(keys(&index, ReadAt::Newest, Direction::Forward), (100..140).collect::<Vec<_>>());
    assert_eq!(both_ways(&index, snapshot(1050)), (100..140).collect::<Vec<_>>());
}

/// Who passes over much that has expired learns where that is, for all who read from there on; not for those before. Guard: `expired_from` in
/// `explore_piece`.
#[test]
fn cursors_hop_over_what_has_expired_and_older_snapshots_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let (env, expiry) = expiring(dir.path());
    let index = Lsm::open(env, None).unwrap();
    // One that is alive at each end keeps the run.
    put(&index, 16, 1..5000, |n| vec![n as u8; 20]);
    put(&index, 5000, [0, 5000].into_iter(), |_| b"alive".to_vec());
    flush(&index);
    expire(&expiry, 64, 6000);
    assert_eq!(keys(&index, ReadAt::Newest, Direction::Forward), [0, 5000]);
    let passed = index.stats().passed;
    assert!(index.stats().dead_spans > 0);
    assert_eq!(keys(&index, snapshot(6000), Direction::Forward), [0, 5000]);
    assert_eq!(keys(&index, snapshot(6000), Direction::Backward), [5000, 0]);
    assert!(index.stats().passed < passed + 200, "{} entries passed, {passed} before", index.stats().passed);
    assert_eq!(keys(&index, snapshot(5999), Direction::Forward).len(), 5001);
}

/// A put of a key whose value has expired is fresh: its writer found nothing. Guard: the cut in `verify_fresh`.
#[test]
fn a15_a_fresh_put_may_stand_on_what_has_expired() {
    let dir = tempfile::tempdir().unwrap();
    let (env, expiry) = expiring(dir.path());
    let index = Lsm::open(env, None).unwrap();
    apply(&index, 16, 7, |builder, key| builder.push(key, Op::Put(b"old")));
    put(&index, 100, 20..40, |_| b"around".to_vec());
    flush(&index);
    expire(&expiry, 64, 160);
    apply(&index, 176, 7, |builder, key| builder.push_fresh(key, b"new"));
    assert!(index.verify().unwrap().problems.is_empty(), "{:?}", index.verify().unwrap().problems);
    flush(&index);
    assert_eq!(get(&index, ReadAt::Newest, 7).as_deref(), Some(b"new".as_slice()));
    apply(&index, 192, 7, |builder, key| builder.push(key, Op::Delete));
    flush(&index);
    settle(&index, &upkeep(300, &[]));
    assert_eq!(get(&index, ReadAt::Newest, 7), None);
}

/// A reader of the newest takes the list, or his cut, and sleeps; a delete expires, and goes with its run, before the older put of which another run is
/// full. Guard: the cut is asked for behind the list in `get_many`.
#[test]
fn a_reader_with_an_old_cut_has_an_old_list() {
    for point in ["lsm.reading", "lsm.read_listed"] {
        Simulation::new(1, Config::default()).run(move |sim| {
            let dir = tempfile::tempdir().unwrap();
            let (env, expiry) = expiring(dir.path());
            let index = Lsm::open(env, None).unwrap();
            put(&index, 16, 0..40, |_| b"hidden".to_vec());
            put(&index, 900, 100..140, |_| b"alive".to_vec());
            flush(&index);
            apply(&index, 32, 7, |builder, key| builder.push(key, Op::Delete));
            flush(&index);
            let gate = sim.hold(point);
            let reader = {
                let index = index.clone();
                vfs::thread::spawn("reader", move || get(&index, ReadAt::Newest, 7)).unwrap()
            };
            gate.wait_reached();
            expire(&expiry, 64, 1000);
            settle(&index, &upkeep(1100, &[]));
            assert!(!index.draw().contains("deleted 1"), "the delete is gone: {}", index.draw());
            gate.open();
            assert_eq!(reader.join().unwrap(), None);
        });
    }
}

/// Runs that a merge has in hand do not go beside it: what it writes of them would be there again. Guard: `is_busy` in `expired_runs`.
#[test]
fn what_a_merge_has_in_hand_goes_once() {
    Simulation::new(1, Config::default()).run(|sim| {
        let dir = tempfile::tempdir().unwrap();
        let (env, expiry) = expiring(dir.path());
        let index = Lsm::open(env, None).unwrap();
        for round in 0..4u32 {
            put(&index, 16 + u64::from(round), (0..2000).map(|n| 4 * n + round), |n| vec![n as u8; 40]);
            flush(&index);
        }
        let gate = sim.hold("lsm.merging");
        let spawn = |floor: u64, index: Arc<Lsm>| {
            vfs::thread::spawn("upkeep", move || settle(&index, &upkeep(floor, &[]))).unwrap()
        };
        let merger = spawn(100, index.clone());
        gate.wait_reached();
        expire(&expiry, 64, 160);
        expiry.trim(&GcView::new(CommitTs(200), Vec::new()));
        let other = spawn(200, index.clone());
        vfs::thread::sleep(std::time::Duration::from_millis(10));
        gate.open();
        merger.join().unwrap();
        other.join().unwrap();
        assert_eq!((index.stats().expired_dropped, index.stats().disk_bytes), (8000, 0), "{}", index.draw());
    });
}

/// Who forgets cuts beside a tick, and the tick, both have done it in the end. Guard: `changing`.
#[test]
fn a_tick_beside_who_forgets_cuts_is_kept() {
    Simulation::new(1, Config::default()).run(|sim| {
        let expiry = Expiry::new(TTL);
        expire(&expiry, 64, 160);
        assert_eq!(expiry.least(), CommitTs(0));
        let later = expiry.last_ms() / 1000 + 10;
        let gate = sim.hold("expiry.changed");
        let (first, second) = (expiry.clone(), expiry.clone());
        let forgets = move || first.trim(&GcView::new(CommitTs(200), Vec::new()));
        let forgetful = vfs::thread::spawn("forgetful", forgets).unwrap();
        gate.wait_reached();
        let ticker = vfs::thread::spawn("ticker", move || tick(&second, 320, later)).unwrap();
        vfs::thread::sleep(std::time::Duration::from_millis(10));
        gate.open();
        forgetful.join().unwrap();
        ticker.join().unwrap();
        assert_eq!((expiry.last_ms(), expiry.least()), (later * 1000, CommitTs(64)));
    });
}

/// A run of which all has expired is not read, and an estimate counts what is alive. Guards: the filter of runs in `StrandSource::new`; the share of what has expired
/// in `estimate`.
#[test]
fn what_has_expired_is_neither_read_nor_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (env, expiry) = expiring(dir.path());
    let index = Lsm::open(env.clone(), None).unwrap();
    put(&index, 16, 0..2000, |n| vec![n as u8; 40]);
    flush(&index);
    put(&index, 48, 2000..4000, |n| vec![n as u8; 40]);
    put(&index, 80, 4000..4500, |n| vec![n as u8; 40]);
    flush(&index);
    support::evict(&env);
    assert_eq!(keys(&index, ReadAt::Newest, Direction::Forward).len(), 4500);
    assert!(index.stats().loads > 0);
    assert!(index.estimate(ALL).unwrap() > 4000);
    expire(&expiry, 64, 160);
    // Nobody has forgotten the cut of before: no estimate leaves out whole runs.
    assert!(index.estimate(ALL).unwrap() < 2000, "{}", index.estimate(ALL).unwrap());
    support::evict(&env);
    let loads = index.stats().loads;
    let (low, high) = (key(0), key(1999));
    let mut cursor = index.cursor(ReadAt::Newest, (Bound::Included(&low), Bound::Included(&high)), Direction::Forward);
    let mut out = EntryBatch::new();
    while cursor.fill(&mut out, 50).unwrap() {
        assert!(out.is_empty());
    }
    assert_eq!(index.stats().loads, loads, "what has expired is not read");
}
