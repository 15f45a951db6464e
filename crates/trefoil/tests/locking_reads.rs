//! Locking reads and what they wait for. Every test says which guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;

use crate::support::*;
use trefoil::{
    ALL, Database, Durability, Error, Isolation, LockMode, Locking, Table, Transaction, TransactionOptions, Value,
};
use vfs::time::Instant;

const NOW: Locking = Locking::EXCLUSIVE.no_wait();

fn begin(db: &Database, isolation: Isolation) -> Transaction {
    db.begin_with(isolation).unwrap()
}

fn keys(entries: Entries) -> Vec<u8> {
    entries.into_iter().map(|(key, _)| key[0]).collect()
}

fn is_busy<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    match result {
        Ok(_) => false,
        Err(Error::LockBusy { .. }) => true,
        Err(other) => panic!("{other}"),
    }
}

/// Shared locks are shared, keep writers out, and become exclusive when their holder writes; the other holder is waited
/// for. Guard: `lock_row` asks for the mode it was told.
#[test]
fn a_shared_lock_is_shared_and_becomes_exclusive() {
    simulate(|_| {
        let db = open(&disk());
        let i = index(&db, "i");
        put(&db, &i, b"k", b"1", Durability::Sync).unwrap();
        let (mut first, second) = (db.begin().unwrap(), db.begin().unwrap());
        assert_eq!(first.get_locked(&i, b"k", LockMode::Shared).unwrap().unwrap(), b"1");
        assert_eq!(second.get_locked(&i, b"k", LockMode::Shared).unwrap().unwrap(), b"1");
        assert!(is_busy(second.get_locked(&i, b"k", NOW)));
        let (d, handle) = (db.clone(), i.clone());
        let writer = spawn("writer", move || {
            first.put(&handle, b"k", b"2").unwrap();
            assert!(is_busy(d.begin().unwrap().get_locked(&handle, b"k", Locking::SHARED.no_wait())));
            first.commit().unwrap();
            Instant::now()
        });
        sleep(100);
        assert_eq!(get(&db, &i, b"k").unwrap(), b"1", "it waits for the other holder");
        let released = Instant::now();
        second.commit().unwrap();
        assert!(writer.join().unwrap() >= released);
        assert_eq!(get(&db, &i, b"k").unwrap(), b"2");
    });
}

/// NOWAIT is an error of its own and leaves the transaction as it was; SKIP LOCKED passes over what is locked, also a row
/// that nobody has committed. Guard: `lock_row` tells the three ways to wait apart.
#[test]
fn what_is_locked_is_waited_for_refused_or_skipped() {
    simulate(|_| {
        let db = open(&disk());
        let i = index(&db, "i");
        for n in 0..9u8 {
            put(&db, &i, &[n], b"", Durability::Sync).unwrap();
        }
        let mut holder = db.begin().unwrap();
        holder.delete(&i, &[3]).unwrap();
        holder.get_locked(&i, &[5], LockMode::Exclusive).unwrap();
        let tx = begin(&db, Isolation::ReadCommitted);
        assert!(is_busy(tx.get_locked(&i, &[3], NOW)));
        assert_eq!(tx.get_locked(&i, &[5], Locking::SHARED.skip_locked()).unwrap(), None);
        let free = tx.range_locked(&i, .., Locking::EXCLUSIVE.skip_locked()).unwrap().collect().unwrap();
        assert_eq!(keys(free), [0, 1, 2, 4, 6, 7, 8]);
        let mut back = tx.range_back_locked(&i, .., NOW).unwrap();
        assert_eq!([8, 7, 6].map(|_| back.next().unwrap().unwrap().0[0]), [8, 7, 6]);
        assert!(is_busy(back.advance()));
        let began = Instant::now();
        let waited = tx.get_locked(&i, &[5], LockMode::Shared).unwrap_err();
        assert!(matches!(waited, Error::LockTimeout { waited_ms: 500, .. }), "{waited}");
        assert!(began.elapsed().as_millis() >= 500);
        let short =
            TransactionOptions { lock_timeout: Some(std::time::Duration::from_millis(20)), ..Default::default() };
        let began = Instant::now();
        assert!(db.begin_with(short).unwrap().get_locked(&i, &[5], LockMode::Shared).is_err());
        assert!((20..400).contains(&began.elapsed().as_millis()), "the transaction's own time limit");
        tx.commit().unwrap();
    });
}

/// P3: between finding a row and getting its lock others change it, delete it, move it to another entry of a secondary
/// index: what is given out is what stands there under the lock. Guard: `LockingScan::look_again`.
#[test]
fn p3_a_locking_read_looks_again_under_the_lock() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        simulate(move |sim| {
            let db = open(&disk());
            let (i, t) = (index(&db, "i"), table(&db, "t"));
            db.create_table_indexes(&t, vec![by_colour()]).unwrap();
            insert(&db, &t, 0..5).unwrap();
            (0..5u8).for_each(|n| put(&db, &i, &[n], b"old", Durability::Sync).unwrap());
            let tx = begin(&db, isolation);
            assert_eq!(tx.range(&i, ..).unwrap().collect().unwrap().len(), 5, "the snapshot of plain reads");
            let gate = sim.hold("locking.found");
            let (d, handle) = (db.clone(), i.clone());
            let changer = spawn("changer", move || {
                gate.wait_reached();
                let mut other = d.begin().unwrap();
                other.put(&handle, &[0], b"new").unwrap();
                other.delete(&handle, &[1]).unwrap();
                other.commit().unwrap();
                gate.open();
            });
            let mut cursor = tx.range_locked(&i, .., LockMode::Exclusive).unwrap().expect(5);
            assert_eq!(cursor.next().unwrap().unwrap(), (&[0][..], &b"new"[..]));
            assert_eq!(cursor.next().unwrap().unwrap().0, [2], "row 1 is gone");
            changer.join().unwrap();
            let gate = sim.hold("locking.found");
            let (d, handle) = (db.clone(), t.clone());
            let mover = spawn("mover", move || {
                gate.wait_reached();
                let mut other = d.begin().unwrap();
                assert!(other.update(&handle, &[Value::U64(0), Value::U32(6)]).unwrap());
                other.commit().unwrap();
                gate.open();
            });
            let below_6 = (Bound::Unbounded, Bound::Excluded(&[Value::U32(6)][..]));
            let mut entries = tx.scan_index_locked(&t, "by_colour", below_6, LockMode::Shared).unwrap().expect(5);
            assert_eq!(entries.next().unwrap().unwrap()[1], Value::U64(1), "row 0 has another colour now");
            mover.join().unwrap();
            let plain = tx.get_row(&t, &[Value::U64(0)]).unwrap().unwrap();
            let moved = isolation == Isolation::ReadCommitted;
            assert_eq!(plain[1] == Value::U32(6), moved, "plain reads stay at their snapshot");
        });
    }
}

/// Under READ COMMITTED a row that was locked, looked at and not wanted is free again: given back by its reader, or found
/// gone under its lock. Under REPEATABLE READ it stays locked, and so does what was locked or written before. Guards:
/// `lock_for_read` notes a lock only if it is new and the level allows it; every other lock forgets the note.
#[test]
fn rows_that_do_not_match_are_unlocked_under_read_committed() {
    simulate(|_| {
        let db = open(&disk());
        let i = index(&db, "i");
        for n in 0..4u8 {
            put(&db, &i, &[n], b"", Durability::Sync).unwrap();
        }
        let free = |n: u8| !is_busy(db.begin().unwrap().get_locked(&i, &[n], NOW));
        for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted, Isolation::RepeatableRead] {
            let gives_back = isolation != Isolation::RepeatableRead;
            let mut tx = begin(&db, isolation);
            tx.get_locked(&i, &[0], LockMode::Shared).unwrap();
            tx.put(&i, &[1], b"").unwrap();
            for n in 0..4 {
                tx.get_locked(&i, &[n], LockMode::Exclusive).unwrap();
                assert_eq!(tx.unlock_row(), gives_back && n >= 2, "row {n}");
                assert!(!tx.unlock_row(), "once");
            }
            assert_eq!([0, 1, 2, 3].map(free), [false, false, gives_back, gives_back]);
            tx.get_locked(&i, &[2], LockMode::Exclusive).unwrap();
            tx.put(&i, &[2], b"").unwrap();
            assert!(!tx.unlock_row(), "a row that was written stays locked");
        }
        let mut deleter = db.begin().unwrap();
        deleter.delete(&i, &[3]).unwrap();
        let (d, handle) = (db.clone(), i.clone());
        let reader = spawn("reader", move || {
            let tx = begin(&d, Isolation::ReadCommitted);
            let found = tx.range_locked(&handle, .., LockMode::Exclusive).unwrap().collect().unwrap();
            (tx, keys(found))
        });
        sleep(50);
        deleter.commit().unwrap();
        let (_tx, found) = reader.join().unwrap();
        assert_eq!(found, [0, 1, 2]);
        assert!(free(3), "a row that was gone under its lock");
    });
}

/// A deadlock that a locking read meets ends the transaction, under a cursor that stands beside it too. Guard: cursors ask
/// whether the transaction still runs.
#[test]
fn a_deadlock_of_one_cursor_ends_the_others() {
    simulate(|_| {
        let db = open(&disk());
        let i = index(&db, "i");
        fill(&db, &i, 0, 100, 4).unwrap();
        let survivor = db.begin().unwrap();
        survivor.get_locked(&i, b"a", LockMode::Exclusive).unwrap();
        let (d, handle) = (db.clone(), i.clone());
        let victim = spawn("victim", move || {
            let mut tx = d.begin().unwrap();
            (0..90u32).for_each(|n| tx.put(&handle, &n.to_be_bytes(), b"own").unwrap());
            let mut own = tx.range(&handle, ..).unwrap();
            assert_eq!(own.next().unwrap().unwrap().1, b"own");
            let mut locked = tx.range_locked(&handle, .., LockMode::Shared).unwrap();
            assert!(locked.advance().unwrap());
            sleep(100);
            let error = tx.get_locked(&handle, b"a", LockMode::Exclusive).unwrap_err();
            assert!(matches!(error, Error::Deadlock { .. }), "{error}");
            assert!(locked.advance().is_err());
            assert!(own.collect().is_err(), "own writes that are gone are not left out silently");
        });
        sleep(50);
        let mut survivor = survivor;
        // Heavier than the victim, that it lives.
        (1000..1200u32).for_each(|n| survivor.put(&i, &n.to_be_bytes(), b"").unwrap());
        survivor.put(&i, &0u32.to_be_bytes(), b"survivor").unwrap();
        victim.join().unwrap();
        survivor.commit().unwrap();
    });
}

fn snapshot_isolation(db: &Database) -> Transaction {
    db.begin_with(TransactionOptions { snapshot_isolation: true, ..Default::default() }).unwrap()
}

fn is_conflict<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    match result {
        Ok(_) => false,
        Err(error @ Error::SnapshotConflict { .. }) => error.is_retryable(),
        Err(other) => panic!("{other}"),
    }
}

/// With `snapshot_isolation` a row that was changed, deleted or inserted after the snapshot is neither written nor locked,
/// at the second try as little as at the first; other rows are, and without a snapshot there is nothing to conflict with.
/// Guards: `check_unchanged`, that it looks at the snapshot where nothing is now, and that it gives the lock back.
#[test]
fn a_row_changed_after_the_snapshot_is_a_conflict() {
    simulate(|_| {
        let db = open(&disk());
        let (i, t) = (index(&db, "i"), table(&db, "t"));
        insert(&db, &t, 0..4).unwrap();
        for key in [b"changed", b"deleted", b"the old"] {
            put(&db, &i, key, b"1", Durability::Sync).unwrap();
        }
        let change = || {
            let mut other = db.begin().unwrap();
            other.put(&i, b"changed", b"2").unwrap();
            other.delete(&i, b"deleted").unwrap();
            other.put(&i, b"inserted", b"2").unwrap();
            other.update(&t, &[Value::U64(1), Value::U32(9)]).unwrap();
            other.commit().unwrap();
        };
        let mut tx = snapshot_isolation(&db);
        assert_eq!(tx.get(&i, b"changed").unwrap().unwrap(), b"1");
        change();
        for _ in 0..2 {
            for key in [&b"changed"[..], b"deleted", b"inserted"] {
                assert!(is_conflict(tx.put(&i, key, b"3")), "{key:?}");
                assert!(is_conflict(tx.delete(&i, key)));
                assert!(is_conflict(tx.get_locked(&i, key, LockMode::Shared)));
            }
            assert!(is_conflict(tx.update(&t, &[Value::U64(1), Value::U32(5)])));
            assert!(is_conflict(tx.scan_locked(&t, ALL, LockMode::Exclusive).and_then(count)));
        }
        tx.put(&i, b"the old", b"3").unwrap();
        tx.put(&i, b"new", b"3").unwrap();
        assert_eq!(tx.get(&i, b"changed").unwrap().unwrap(), b"1", "the transaction goes on");
        tx.commit().unwrap();
        let mut fresh = snapshot_isolation(&db);
        fresh.put(&i, b"changed", b"4").unwrap();
        assert_eq!(fresh.get(&i, b"inserted").unwrap().unwrap(), b"2");
        fresh.put(&i, b"changed", b"5").unwrap();
        fresh.commit().unwrap();
        assert_eq!(get(&db, &i, b"changed").unwrap(), b"5");
        let mut plain = db.begin().unwrap();
        plain.get(&i, b"changed").unwrap();
        put(&db, &i, b"changed", b"6", Durability::Sync).unwrap();
        plain.put(&i, b"changed", b"7").expect("without the option the newest is written over");
        sound(&db);
    });
}

fn count(mut rows: trefoil::Rows<'_>) -> Result<usize, Error> {
    let mut n = 0;
    while rows.next()?.is_some() {
        n += 1;
    }
    Ok(n)
}

/// READ UNCOMMITTED reads what is committed, statement by statement. Guard: `read_at` takes a snapshot for it.
#[test]
fn read_uncommitted_reads_what_is_committed() {
    simulate(|_| {
        let db = open(&disk());
        let i = index(&db, "i");
        put(&db, &i, b"k", b"1", Durability::Sync).unwrap();
        let tx = begin(&db, Isolation::ReadUncommitted);
        let mut writer = db.begin().unwrap();
        writer.put(&i, b"k", b"2").unwrap();
        assert_eq!(tx.get(&i, b"k").unwrap().unwrap(), b"1");
        writer.commit().unwrap();
        assert_eq!(tx.get(&i, b"k").unwrap().unwrap(), b"2");
    });
}

/// Rows of a table, read forward and back under locks, with the own writes on top. Guard: `keys_newest` merges them.
#[test]
fn locking_scans_see_own_writes() {
    simulate(|_| {
        let db = open(&disk());
        let t = table(&db, "t");
        insert(&db, &t, 0..60).unwrap();
        let mut tx = db.begin().unwrap();
        tx.insert_many(&t, &(60..80).map(row).collect::<Vec<_>>()).unwrap();
        assert_eq!(tx.delete_first(&t, ALL, 10).unwrap(), 10);
        let ids = |rows: trefoil::Rows<'_>| ids(rows);
        let up: Vec<u64> = (10..80).collect();
        assert_eq!(ids(tx.scan_locked(&t, ALL, LockMode::Shared).unwrap()), up);
        let mut down = ids(tx.scan_back_locked(&t, ALL, LockMode::Exclusive).unwrap());
        down.reverse();
        assert_eq!(down, up);
        assert_eq!(locked(&db, &t), 80, "each row it has seen, and those that it has deleted");
    });
}

fn ids(mut rows: trefoil::Rows<'_>) -> Vec<u64> {
    let mut ids = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let Value::U64(id) = row[0] else { panic!("a number") };
        ids.push(id);
    }
    ids
}

/// How many of the first hundred keys others cannot lock.
fn locked(db: &Database, t: &Table) -> usize {
    let other = db.begin().unwrap();
    (0..100).filter(|id| is_busy(other.get_row_locked(t, &[Value::U64(*id)], NOW))).count()
}

/// A wait is listed with index and key while it lasts, and ends at another thread's word: the statement did nothing, the
/// transaction goes on; the next wait ends too, until the cancellation is forgotten. Guards: `Engine::shown`;
/// `Transaction::canceller` speaks for the transaction's own lock owner.
#[test]
fn a_wait_is_listed_and_cancelled() {
    simulate(|_| {
        let db = open(&disk());
        let (i, t) = (index(&db, "i"), table(&db, "t"));
        insert(&db, &t, 0..3).unwrap();
        let mut holder = db.begin().unwrap();
        holder.update(&t, &[Value::U64(1), Value::U32(9)]).unwrap();
        assert_eq!(db.lock_waits(), []);
        let mut tx = db.begin().unwrap();
        let (holding, waiting, canceller) = (holder.id(), tx.id(), tx.canceller());
        let (handle, rows_of) = (i.clone(), t.clone());
        let waiter = spawn("waiter", move || {
            tx.put(&handle, b"before", b"").unwrap();
            let ids = [0, 1].map(|n| row(n + 1));
            for _ in 0..2 {
                let error = tx.update(&rows_of, &ids[0]).unwrap_err();
                assert!(matches!(error, Error::Cancelled) && !error.is_retryable(), "{error}");
            }
            tx.update(&rows_of, &ids[1]).expect("a free row is locked all the same");
            tx.clear_cancelled();
            let error = tx.update(&rows_of, &ids[0]).unwrap_err();
            assert!(matches!(error, Error::LockTimeout { .. }), "{error}");
            tx.commit().unwrap();
        });
        sleep(100);
        let waits = db.lock_waits();
        assert_eq!(waits.len(), 1, "{waits:?}");
        let edge = &waits[0];
        assert_eq!((edge.waiter, edge.blocker, edge.index.as_str()), (waiting, holding, "t.primary"));
        assert_eq!((edge.key.as_slice(), edge.mode), (&1u64.to_be_bytes()[..], LockMode::Exclusive));
        assert!(edge.waited.as_millis() >= 50, "{edge:?}");
        canceller.cancel();
        waiter.join().unwrap();
        holder.rollback();
        assert_eq!(get(&db, &i, b"before").unwrap(), b"", "what came before the cancelled statement");
    });
}

/// Deadlocks are remembered by the names of their indexes. Guard: `Engine::shown` names them.
#[test]
fn a_deadlock_is_remembered_with_both_sides() {
    simulate(|_| {
        let db = open(&disk());
        let (i, t) = (index(&db, "i"), table(&db, "t"));
        insert(&db, &t, 0..3).unwrap();
        let mut first = db.begin().unwrap();
        first.put(&i, b"k", b"").unwrap();
        let second = db.begin().unwrap();
        let (one, two) = (first.id(), second.id());
        second.get_row_locked(&t, &[Value::U64(2)], LockMode::Shared).unwrap();
        let (handle, rows_of) = (i.clone(), t.clone());
        let other = spawn("other", move || second.get_locked(&handle, b"k", LockMode::Shared).map(|_| ()));
        sleep(50);
        first.delete_row(&rows_of, &[Value::U64(2)]).unwrap();
        assert!(matches!(other.join().unwrap(), Err(Error::Deadlock { .. })));
        let kept = db.deadlocks();
        assert_eq!((kept.len(), kept[0].victim), (1, two));
        let mut sides: Vec<_> = kept[0].edges.iter().map(|e| (e.waiter, e.blocker, e.index.as_str(), &e.key)).collect();
        sides.sort_unstable();
        let (row_2, k) = (2u64.to_be_bytes().to_vec(), b"k".to_vec());
        assert_eq!(sides, [(one, two, "t.primary", &row_2), (two, one, "i", &k)]);
    });
}

/// A scan under READ COMMITTED that shows what others have locked gives it out as it was committed, and has no lock of it; what
/// is free is locked. Under REPEATABLE READ it waits as ever. Guards: `lock_some` shows instead of waiting, and says so of that
/// entry alone; `show_locked` asks for the level.
#[test]
fn what_others_have_locked_is_shown_as_it_was_committed() {
    simulate(|_| {
        let db = open(&disk());
        let t = table(&db, "t");
        insert(&db, &t, 0..4).unwrap();
        let mut first = begin(&db, Isolation::RepeatableRead);
        first.delete_row(&t, &[Value::U64(1)]).unwrap();
        let mut second = begin(&db, Isolation::ReadCommitted);
        second.delete_row(&t, &[Value::U64(2)]).unwrap();
        let mut rows = second.scan_locked(&t, ALL, Locking::EXCLUSIVE).unwrap().show_locked();
        let mut found = Vec::new();
        while let Some(row) = rows.next_row().unwrap() {
            let id: u64 = row.column_as(0).unwrap();
            found.push((id, rows.is_shown()));
        }
        assert_eq!(found, [(0, false), (1, true), (3, false)]);
        drop(rows);
        let third =
            TransactionOptions { lock_timeout: Some(std::time::Duration::from_millis(10)), ..Default::default() };
        let third = db.begin_with(third).unwrap();
        let mut rows = third.scan_locked(&t, ALL, Locking::EXCLUSIVE).unwrap().show_locked();
        assert!(matches!(rows.next_row(), Err(Error::LockTimeout { .. })), "row 0 is waited for");
        drop(rows);
        first.rollback();
        assert!(!is_busy(third.get_row_locked(&t, &[Value::U64(1)], NOW)));
        assert!(is_busy(third.get_row_locked(&t, &[Value::U64(3)], NOW)));
    });
}
