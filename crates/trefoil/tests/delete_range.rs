//! Ranges deleted whole: what transactions see of it, whom it keeps out, what a crash and an upgrade do to it.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use trefoil::{
    Database, Error, Index, IndexOptions, Isolation, LockMode, Locking, Options, Structure, Transaction,
    TransactionOptions,
};

const STRUCTURES: [Structure; 3] = [Structure::Btree, Structure::Betree, Structure::Lsm];

fn quiet() -> Options {
    Options { background: false, ..Options::default() }
}

fn key(n: u32) -> Vec<u8> {
    format!("key {n:05}").into_bytes()
}

fn filled(db: &Database, structure: Structure, keys: u32) -> Index {
    let index = db.create_index("it", IndexOptions { structure, ..IndexOptions::default() }).unwrap();
    let mut tx = db.begin().unwrap();
    for n in 0..keys {
        tx.put(&index, &key(n), b"old").unwrap();
    }
    tx.commit().unwrap();
    index
}

fn delete(tx: &mut Transaction, index: &Index, low: u32, high: u32) -> trefoil::Result<()> {
    tx.delete_range(index, key(low).as_slice()..key(high).as_slice())
}

fn numbers(tx: &Transaction, index: &Index) -> Vec<u32> {
    let number = |key: &[u8]| std::str::from_utf8(&key[4..]).unwrap().parse::<u32>().unwrap();
    let forward: Vec<u32> =
        tx.range(index, ..).unwrap().collect().unwrap().iter().map(|(key, _)| number(key)).collect();
    let mut backward: Vec<u32> =
        tx.range_back(index, ..).unwrap().collect().unwrap().iter().map(|(key, _)| number(key)).collect();
    backward.reverse();
    assert_eq!(forward, backward, "both ways");
    let pointwise: Vec<u32> = (0..1100).filter(|n| tx.get(index, &key(*n)).unwrap().is_some()).collect();
    assert_eq!(forward, pointwise, "one by one");
    forward
}

fn upkeep(db: &Database) {
    assert!(db.settle_for(Duration::from_secs(60)).unwrap());
    assert!(db.stats().indexes.iter().all(|(_, stats)| stats.deleted_ranges == 0), "all ranges are drained");
}

#[test]
fn own_reads_see_it_and_what_was_put_behind_it() {
    for structure in STRUCTURES {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), quiet()).unwrap();
        let index = filled(&db, structure, 1000);
        let before = db.begin().unwrap();
        assert_eq!(numbers(&before, &index).len(), 1000);
        let mut tx = db.begin().unwrap();
        tx.put(&index, &key(1050), b"mine").unwrap();
        tx.put(&index, &key(1051), b"mine").unwrap();
        delete(&mut tx, &index, 100, 1051).unwrap();
        tx.put(&index, &key(500), b"new").unwrap();
        let expected: Vec<u32> = (0..100).chain([500, 1051]).collect();
        assert_eq!(numbers(&tx, &index), expected);
        assert!(!tx.delete(&index, &key(600)).unwrap(), "it is gone");
        tx.commit().unwrap();
        for _ in 0..2 {
            assert_eq!(numbers(&db.begin().unwrap(), &index), expected, "{structure:?}");
            assert_eq!(numbers(&before, &index).len(), 1000, "{structure:?}: a snapshot of before");
            upkeep(&db);
        }
        drop(before);
        assert!(db.verify().unwrap().iter().all(|(_, report)| report.problems.is_empty()));
    }
}

#[test]
fn every_kind_of_bound() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), quiet()).unwrap();
    let (low, high) = (key(10), key(20));
    let bounds = |bound: &'static str, key: &'static [u8]| match bound {
        "in" => Bound::Included(key),
        "ex" => Bound::Excluded(key),
        _ => Bound::Unbounded,
    };
    let (low, high): (&'static [u8], &'static [u8]) = (low.leak(), high.leak());
    let index = filled(&db, Structure::Auto, 0);
    for (a, b) in [("in", "ex"), ("ex", "in"), ("in", "in"), ("ex", "ex"), ("", "in"), ("ex", ""), ("", "")] {
        let mut tx = db.begin().unwrap();
        (0..30).for_each(|n| tx.put(&index, &key(n), b"old").unwrap());
        tx.put(&index, b"", b"the lowest key").unwrap();
        tx.commit().unwrap();
        let range = (bounds(a, low), bounds(b, high));
        let mut tx = db.begin().unwrap();
        tx.delete_range(&index, range).unwrap();
        tx.commit().unwrap();
        let left: Vec<_> = db.begin().unwrap().range(&index, ..).unwrap().collect().unwrap();
        let all = (0..30).map(key).chain([Vec::new()]);
        let mut expected: Vec<_> = all.filter(|key| !RangeBounds::<[u8]>::contains(&range, key.as_slice())).collect();
        expected.sort();
        assert_eq!(left.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), expected, "{range:?}");
    }
    let mut tx = db.begin().unwrap();
    tx.delete_range(&index, high..low).unwrap();
    assert!(tx.holds_nothing(), "an empty range is nothing");
}

#[test]
fn a_savepoint_takes_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), quiet()).unwrap();
    let index = filled(&db, Structure::Auto, 300);
    let mut tx = db.begin().unwrap();
    tx.put(&index, &key(150), b"mine").unwrap();
    let first = tx.savepoint();
    delete(&mut tx, &index, 100, 200).unwrap();
    let second = tx.savepoint();
    delete(&mut tx, &index, 0, 120).unwrap();
    tx.put(&index, &key(110), b"new").unwrap();
    tx.rollback_to(second).unwrap();
    assert_eq!(numbers(&tx, &index), (0..100).chain(200..300).collect::<Vec<_>>());
    tx.rollback_to(first).unwrap();
    assert_eq!(numbers(&tx, &index).len(), 300);
    assert_eq!(tx.get(&index, &key(150)).unwrap().as_deref(), Some(&b"mine"[..]), "its own put is back");
    // What is taken back stays locked.
    let mut other = db.begin().unwrap();
    other.set_lock_timeout(Duration::from_millis(10));
    assert!(matches!(other.put(&index, &key(130), b"x"), Err(Error::LockTimeout { .. })));
    tx.commit().unwrap();
    assert_eq!(numbers(&db.begin().unwrap(), &index).len(), 300);
    let mut tx = db.begin().unwrap();
    delete(&mut tx, &index, 0, 300).unwrap();
    drop(tx);
    assert_eq!(numbers(&db.begin().unwrap(), &index).len(), 300, "rolled back");
}

/// Guard: `delete_own` goes on behind what it has copied.
#[test]
fn however_much_it_has_put_there_itself_goes() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), quiet()).unwrap();
    let index = filled(&db, Structure::Auto, 0);
    let mut tx = db.begin().unwrap();
    (0..2500).for_each(|n| tx.put(&index, &key(n), b"mine").unwrap());
    delete(&mut tx, &index, 10, 2490).unwrap();
    assert_eq!(tx.range(&index, ..).unwrap().collect().unwrap().len(), 20);
    tx.commit().unwrap();
    assert_eq!(db.begin().unwrap().range(&index, ..).unwrap().collect().unwrap().len(), 20);
}

/// A commit whose puts are in a file has them behind its ranges. Guard: what a file puts is not known, so nobody hops over it.
#[test]
fn what_a_commit_puts_by_a_file_is_found() {
    for structure in STRUCTURES {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), Options { inline_batch_bytes: 4096, ..quiet() }).unwrap();
        let index = filled(&db, structure, 10);
        let mut tx = db.begin().unwrap();
        tx.delete_range(&index, ..).unwrap();
        (5..300).for_each(|n| tx.put(&index, &key(n), b"a value that is not short").unwrap());
        tx.commit().unwrap();
        assert_eq!(index.stats().runs, 1, "it is in a file");
        assert_eq!(numbers(&db.begin().unwrap(), &index), (5..300).collect::<Vec<_>>(), "{structure:?}");
    }
}

#[test]
fn others_are_kept_out_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), quiet()).unwrap();
    let index = filled(&db, Structure::Auto, 300);
    let mut tx = db.begin().unwrap();
    delete(&mut tx, &index, 100, 200).unwrap();
    let options =
        || TransactionOptions { lock_timeout: Some(Duration::from_millis(10)), ..TransactionOptions::default() };
    let mut other = db.begin_with(options()).unwrap();
    let timed_out = |result: trefoil::Result<()>| matches!(result, Err(Error::LockTimeout { .. }));
    assert!(timed_out(other.put(&index, &key(150), b"x")), "a row that is there");
    assert!(timed_out(other.put(&index, b"key 00150b", b"x")), "a key that is not");
    assert!(timed_out(other.delete(&index, &key(199)).map(drop)), "a delete");
    assert!(timed_out(delete(&mut other, &index, 199, 250)), "another range");
    assert!(timed_out(other.get_locked(&index, &key(100), LockMode::Shared).map(drop)), "a locking read");
    let busy = other.get_locked(&index, &key(100), Locking::SHARED.no_wait());
    assert!(matches!(busy, Err(Error::LockBusy { .. })));
    let passed = other.range_locked(&index, .., Locking::EXCLUSIVE.skip_locked()).unwrap().collect().unwrap();
    assert_eq!(passed.len(), 200, "all but the range");
    assert_eq!(numbers(&other, &index).len(), 300, "a plain read waits for nobody");
    drop(other);
    let mut other = db.begin_with(options()).unwrap();
    other.put(&index, &key(99), b"x").unwrap();
    other.put(&index, &key(200), b"x").unwrap();
    other.commit().unwrap();
    tx.commit().unwrap();
    let mut other = db.begin_with(options()).unwrap();
    other.put(&index, &key(150), b"x").unwrap();
    other.commit().unwrap();
}

#[test]
fn it_waits_for_whoever_has_a_row_there() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), quiet()).unwrap();
    let index = filled(&db, Structure::Auto, 300);
    let try_it = || {
        let mut tx = db.begin().unwrap();
        tx.set_lock_timeout(Duration::from_millis(10));
        let result = delete(&mut tx, &index, 100, 200);
        if result.is_ok() {
            tx.commit().unwrap();
        }
        result
    };
    let reader = db.begin().unwrap();
    reader.get_locked(&index, &key(150), LockMode::Shared).unwrap();
    assert!(matches!(try_it(), Err(Error::LockTimeout { .. })), "a row that was read under a lock");
    drop(reader);
    let mut writer = db.begin().unwrap();
    writer.put(&index, b"key 00150b", b"x").unwrap();
    assert!(matches!(try_it(), Err(Error::LockTimeout { .. })), "a key that somebody is about to put");
    writer.commit().unwrap();
    try_it().unwrap();
    assert_eq!(numbers(&db.begin().unwrap(), &index).len(), 200, "what he had put is gone too");
}

#[test]
fn it_waits_for_locks_that_were_folded() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options { budget_bytes: 64 << 20, ..quiet() }).unwrap();
    let index = filled(&db, Structure::Auto, 0);
    let mut large = db.begin().unwrap();
    for n in 0..80_000u32 {
        large.put(&index, format!("key {n:08}").as_bytes(), b"a value that is not short").unwrap();
    }
    let mut tx = db.begin().unwrap();
    tx.set_lock_timeout(Duration::from_millis(10));
    assert!(matches!(
        tx.delete_range(&index, b"key 00000005".as_slice()..b"key 00000007".as_slice()),
        Err(Error::LockTimeout { .. })
    ));
    drop(tx);
    large.commit().unwrap();
    let mut tx = db.begin().unwrap();
    tx.delete_range(&index, ..).unwrap();
    tx.commit().unwrap();
    assert!(db.begin().unwrap().range(&index, ..).unwrap().next().unwrap().is_none());
}

#[test]
fn it_waits_for_what_was_taken_back_when_it_was_in_files() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options { budget_bytes: 8 << 20, ..quiet() }).unwrap();
    let index = filled(&db, Structure::Auto, 0);
    let mut large = db.begin().unwrap();
    let before = large.savepoint();
    for n in 0..60_000u32 {
        large.put(&index, format!("key {n:08}").as_bytes(), b"a value that is not short").unwrap();
    }
    assert!(db.stats().spills > 0);
    large.rollback_to(before).unwrap();
    let mut tx = db.begin().unwrap();
    tx.set_lock_timeout(Duration::from_millis(10));
    let range = b"key 00000005".as_slice()..b"key 00000007".as_slice();
    assert!(matches!(tx.delete_range(&index, range), Err(Error::LockTimeout { .. })));
    drop(tx);
    large.put(&index, b"key 00000005", b"again").unwrap();
    large.commit().unwrap();
    assert!(db.begin().unwrap().get(&index, b"key 00000005").unwrap().is_some());
}

/// A queue that nobody keeps up: the list stays short, also when it is replayed.
#[test]
fn who_deletes_many_ranges_helps_to_drain_them() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), quiet()).unwrap();
    let index = filled(&db, Structure::Auto, 1000);
    let pending = |db: &Database| db.stats().indexes.iter().map(|(_, stats)| stats.deleted_ranges).sum::<u64>();
    for n in 0..300 {
        let mut tx = db.begin().unwrap();
        tx.delete_range(&index, ..key(n).as_slice()).unwrap();
        tx.put(&index, &key(n / 2), b"new").unwrap();
        tx.commit_with(trefoil::Durability::Write).unwrap();
        assert!(pending(&db) <= 65, "{} ranges wait", pending(&db));
    }
    let expected: Vec<u32> = [149].into_iter().chain(299..1000).collect();
    assert_eq!(numbers(&db.begin().unwrap(), &index), expected);
    drop((db, index));
    let db = Database::open(dir.path(), quiet()).unwrap();
    let index = db.index("it").unwrap();
    assert_eq!(pending(&db), 1, "those within newer ones are left out");
    assert_eq!(numbers(&db.begin().unwrap(), &index), expected);
    upkeep(&db);
    assert_eq!(numbers(&db.begin().unwrap(), &index), expected);
}

/// Guards: the list is charged, and what is written into it; ranges are a debt, which delays commits until they are drained.
#[test]
fn ranges_that_wait_are_charged_and_a_debt() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), quiet()).unwrap();
    let index = filled(&db, Structure::Lsm, 1000);
    let other = db.create_index("other", IndexOptions::default()).unwrap();
    let charged = || db.stats().memory.iter().find(|(class, _)| *class == "inner").expect("a class").1;
    let delays = || db.stats().delays.iter().find(|delay| delay.reason == "runs").expect("a reason").count;
    let before = charged();
    let mut tx = db.begin().unwrap();
    (0..1000).for_each(|n| delete(&mut tx, &index, n, n + 1).unwrap());
    tx.commit().unwrap();
    let listed = charged();
    assert!(listed >= before + 1000 * 100, "{before} before, {listed} with a thousand ranges");
    let mut tx = db.begin().unwrap();
    // The lowest keys of the ranges their own commit has written.
    let inside = |n: u32| [key(2 * n), b" since".to_vec()].concat();
    (0..500).for_each(|n| tx.put(&index, &inside(n), b"new").unwrap());
    tx.commit().unwrap();
    let noted = charged();
    assert!(noted >= listed + 500 * 40, "{listed} before, {noted} with what was put there since");
    let none = delays();
    let began = vfs::time::Instant::now();
    while delays() == none && began.elapsed() < Duration::from_secs(20) {
        let mut tx = db.begin().unwrap();
        tx.put(&other, b"k", b"v").unwrap();
        tx.commit_with(trefoil::Durability::Write).unwrap();
    }
    assert!(delays() > none, "commits that come meanwhile are delayed");
    upkeep(&db);
    assert!(charged() < before + 50_000, "{before} before, {} after", charged());
    let all = db.begin().unwrap().range(&index, ..).unwrap().collect().unwrap();
    assert!(all.into_iter().map(|(key, _)| key).eq((0..500).map(inside)));
}

#[test]
fn two_that_delete_the_same_range_go_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), quiet()).unwrap();
    let index = filled(&db, Structure::Auto, 300);
    let mut first = db.begin().unwrap();
    delete(&mut first, &index, 0, 200).unwrap();
    let (other, there) = (db.clone(), index.clone());
    let work = move || {
        let mut tx = other.begin().unwrap();
        delete(&mut tx, &there, 100, 300).unwrap();
        tx.put(&there, &key(150), b"second").unwrap();
        tx.commit().unwrap();
    };
    let second = vfs::thread::spawn("second", work).unwrap();
    while db.lock_waits().is_empty() {
        vfs::thread::spin();
    }
    first.put(&index, &key(150), b"first").unwrap();
    first.commit().unwrap();
    second.join().unwrap();
    assert_eq!(numbers(&db.begin().unwrap(), &index), [150]);
    assert_eq!(db.stats().locks.deadlocks, 0);
}

#[test]
fn snapshot_isolation_finds_what_was_changed() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), quiet()).unwrap();
    let index = filled(&db, Structure::Auto, 300);
    let options = || TransactionOptions { snapshot_isolation: true, ..TransactionOptions::default() };
    let change: [&dyn Fn(&mut Transaction); 4] = [
        &|tx| tx.put(&index, &key(150), b"x").unwrap(),
        &|tx| tx.put(&index, b"key 00150b", b"x").unwrap(),
        &|tx| assert!(tx.delete(&index, &key(160)).unwrap()),
        &|tx| delete(tx, &index, 199, 300).unwrap(),
    ];
    for change in change {
        let mut tx = db.begin_with(options()).unwrap();
        assert!(tx.get(&index, &key(0)).unwrap().is_some());
        let mut other = db.begin().unwrap();
        change(&mut other);
        other.commit().unwrap();
        assert!(matches!(delete(&mut tx, &index, 100, 200), Err(Error::SnapshotConflict { .. })));
        delete(&mut tx, &index, 20, 30).unwrap();
    }
    let mut tx = db.begin_with(options()).unwrap();
    assert!(tx.get(&index, &key(0)).unwrap().is_some());
    delete(&mut tx, &index, 100, 200).unwrap();
    tx.commit().unwrap();
    assert_eq!(numbers(&db.begin().unwrap(), &index).len(), 99 + 1, "0 to 99");
    // Otherwise the newest is deleted, whatever the snapshot sees.
    let mut tx = db.begin_with(Isolation::RepeatableRead).unwrap();
    assert!(tx.get(&index, &key(0)).unwrap().is_some());
    let mut other = db.begin().unwrap();
    other.put(&index, &key(50), b"x").unwrap();
    other.commit().unwrap();
    delete(&mut tx, &index, 0, 300).unwrap();
    tx.commit().unwrap();
    assert_eq!(numbers(&db.begin().unwrap(), &index), [0; 0]);
}

#[test]
fn a_reopened_database_has_it_whatever_was_done_by_then() {
    for structure in STRUCTURES {
        for stage in 0..4 {
            let dir = tempfile::tempdir().unwrap();
            let db = Database::open(dir.path(), quiet()).unwrap();
            let index = filled(&db, structure, 1000);
            let mut tx = db.begin().unwrap();
            delete(&mut tx, &index, 10, 990).unwrap();
            tx.put(&index, &key(500), b"new").unwrap();
            tx.commit().unwrap();
            if stage & 1 == 1 {
                db.checkpoint().unwrap();
            }
            if stage & 2 == 2 {
                upkeep(&db);
            }
            drop((db, index));
            let expected: Vec<u32> = (0..10).chain([500]).chain(990..1000).collect();
            for _ in 0..2 {
                let db = Database::open(dir.path(), quiet()).unwrap();
                let index = db.index("it").unwrap();
                assert_eq!(numbers(&db.begin().unwrap(), &index), expected, "{structure:?} {stage}");
                assert!(
                    db.verify().unwrap().iter().all(|(_, report)| report.problems.is_empty()),
                    "{structure:?} {stage}"
                );
                upkeep(&db);
                assert_eq!(numbers(&db.begin().unwrap(), &index), expected, "{structure:?} {stage}");
                db.close().unwrap();
            }
        }
    }
}

#[test]
fn a_copy_and_a_database_that_is_only_read_have_it() {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db = Database::open(dir.path(), quiet()).unwrap();
    let index = filled(&db, Structure::Lsm, 1000);
    let mut tx = db.begin().unwrap();
    delete(&mut tx, &index, 10, 990).unwrap();
    tx.commit().unwrap();
    let to = copy.path().join("copy");
    db.checkpoint_to(&to).unwrap();
    drop((db, index));
    for path in [to.as_path(), dir.path()] {
        let db = Database::open(path, Options { read_only: true, ..quiet() }).unwrap();
        let index = db.index("it").unwrap();
        assert_eq!(numbers(&db.begin().unwrap(), &index).len(), 20);
        drop((db, index));
        let db = Database::open(path, quiet()).unwrap();
        assert_eq!(numbers(&db.begin().unwrap(), &db.index("it").unwrap()).len(), 20);
    }
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn content(entries: trefoil::Result<trefoil::Cursor<'_>>) -> Map {
    entries.unwrap().collect().unwrap().into_iter().collect()
}

/// Transactions with savepoints, snapshots held across everything, upkeep, checkpoints, and processes that end without a word.
fn random_life(structure: Structure, seed: u64) {
    let mut rng = vfs::random::Rng::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut db = Database::open(dir.path(), quiet()).unwrap();
    let mut index = filled(&db, structure, 0);
    let mut map = Map::new();
    for _ in 0..40 {
        let mut snapshots = Vec::new();
        for _ in 0..rng.below(6) {
            let mut tx = db.begin().unwrap();
            let mut own = map.clone();
            let mut savepoints = Vec::new();
            for step in 0..rng.below(30) {
                let n = rng.below(400) as u32;
                match rng.below(12) {
                    0 | 1 => {
                        let most = if rng.below(3) == 0 { 400 } else { 12 };
                        let high = n + 1 + rng.below(most) as u32;
                        delete(&mut tx, &index, n, high).unwrap();
                        own.retain(|there, _| *there < key(n) || *there >= key(high));
                    }
                    2 => savepoints.push((tx.savepoint(), own.clone())),
                    3 if !savepoints.is_empty() => {
                        savepoints.truncate(1 + rng.index(savepoints.len()));
                        let (savepoint, then) = savepoints.last().unwrap();
                        tx.rollback_to(*savepoint).unwrap();
                        own.clone_from(then);
                    }
                    4 | 5 => assert_eq!(tx.delete(&index, &key(n)).unwrap(), own.remove(&key(n)).is_some()),
                    6 => assert_eq!(tx.get(&index, &key(n)).unwrap(), own.get(&key(n)).cloned()),
                    7 if rng.below(4) == 0 => {
                        assert_eq!(content(tx.range(&index, ..)), own);
                        assert_eq!(content(tx.range_back(&index, key(n).as_slice()..)), own.split_off(&key(n)));
                        own = content(tx.range(&index, ..));
                    }
                    _ => {
                        for n in n..n + 1 + rng.below(20) as u32 {
                            let value = format!("{seed} {step} {n}").into_bytes();
                            tx.put(&index, &key(n), &value).unwrap();
                            own.insert(key(n), value);
                        }
                    }
                }
            }
            assert_eq!(content(tx.range(&index, ..)), own, "seed {seed}: its own view");
            if rng.below(5) > 0 {
                tx.commit().unwrap();
                map = own;
            }
            if rng.below(3) == 0 {
                snapshots.push((db.snapshot().unwrap(), map.clone()));
            }
        }
        match rng.below(4) {
            0 => upkeep(&db),
            1 => db.checkpoint().unwrap(),
            2 => drop(db.settle_for(Duration::from_micros(rng.below(300))).unwrap()),
            _ => {}
        }
        for (snapshot, then) in &snapshots {
            assert_eq!(content(snapshot.range(&index, ..)), *then, "seed {seed}: a snapshot of before");
            assert_eq!(content(snapshot.range_back(&index, ..)), *then, "seed {seed}: downwards");
        }
        drop(snapshots);
        if rng.below(4) == 0 {
            drop((db, index));
            db = Database::open(dir.path(), quiet()).unwrap();
            index = db.index("it").unwrap();
        }
        assert_eq!(content(db.begin().unwrap().range(&index, ..)), map, "seed {seed}");
    }
    assert!(db.verify().unwrap().iter().all(|(_, report)| report.problems.is_empty()), "seed {seed}");
}

#[test]
fn random_transactions_agree_with_a_map() {
    for structure in STRUCTURES {
        (0..3).for_each(|seed| random_life(structure, seed));
    }
}

/// The first key behind a range is found in as few steps as any, with a snapshot of before open, whatever was put there since.
#[test]
fn c7_the_first_key_behind_a_deleted_range_is_near() {
    for structure in STRUCTURES {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), quiet()).unwrap();
        let index = filled(&db, structure, 50_000);
        upkeep(&db);
        let _before = db.snapshot().unwrap();
        let mut tx = db.begin().unwrap();
        delete(&mut tx, &index, 0, 49_990).unwrap();
        tx.commit().unwrap();
        let passed = || {
            db.stats().indexes.iter().map(|(_, stats)| stats.passed + stats.loads + stats.uncached_reads).sum::<u64>()
        };
        let look = |wanted: u32| {
            let (before, snapshot) = (passed(), db.snapshot().unwrap());
            let mut cursor = snapshot.range(&index, ..).unwrap().expect(1);
            assert_eq!(cursor.next().unwrap().map(|(found, _)| found.to_vec()), Some(key(wanted)), "{structure:?}");
            assert!(passed() - before < 100, "{structure:?}: {} entries were passed over", passed() - before);
        };
        look(49_990);
        let mut tx = db.begin().unwrap();
        tx.put(&index, &key(30_000), b"since").unwrap();
        tx.commit().unwrap();
        look(30_000);
    }
}

/// Whatever it covers.
#[test]
fn its_record_has_one_size() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), quiet()).unwrap();
    let index = filled(&db, Structure::Auto, 1000);
    let bytes = |low, high| {
        let before = db.stats().log.appended_bytes;
        let mut tx = db.begin().unwrap();
        delete(&mut tx, &index, low, high).unwrap();
        tx.commit().unwrap();
        db.stats().log.appended_bytes - before
    };
    assert_eq!(bytes(0, 1), bytes(1, 1000));
}

#[test]
fn what_cannot_be_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), quiet()).unwrap();
    let index = filled(&db, Structure::Auto, 10);
    let counters = IndexOptions { counters: true, ..IndexOptions::default() };
    let counters = db.create_index("counters", counters).unwrap();
    let mut tx = db.begin().unwrap();
    let refused = tx.delete_range(&counters, ..).unwrap_err();
    assert!(matches!(&refused, Error::Unsupported(what) if what.contains("one by one")), "{refused}");
    let long = vec![b'x'; 1 << 16];
    assert!(matches!(tx.delete_range(&index, long.as_slice()..), Err(Error::Limit { .. })));
    tx.delete_range(&index, ..long.as_slice()).unwrap();
    let refused = tx.prepare(b"two phases").unwrap_err();
    assert!(matches!(&refused, Error::Unsupported(what) if what.contains("one step")), "{refused}");
    let mut tx = db.begin().unwrap();
    let many = (0..2000).try_for_each(|n| delete(&mut tx, &index, n, n + 1));
    assert!(matches!(many, Err(Error::Limit { limit: 1024, .. })));
    tx.commit().unwrap();
}
