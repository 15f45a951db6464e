//! Range locks and SERIALIZABLE (rule A22): no row comes up in what a transaction has read under locks. Every test says which
//! guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;
use std::time::Duration;

use crate::support::*;
use trefoil::{
    ALL, Cursor, Database, Durability, Error, Index, Isolation, LockMode, Locking, Options, Table, Transaction,
    TransactionOptions, Value,
};

const LEVELS: [Isolation; 2] = [Isolation::RepeatableRead, Isolation::Serializable];

/// Does not wait for long.
fn impatient(db: &Database) -> Transaction {
    let options = TransactionOptions { lock_timeout: Some(Duration::from_millis(20)), ..Default::default() };
    db.begin_with(options).unwrap()
}

/// True if the statement had to wait.
fn waits<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    match result {
        Ok(_) => false,
        Err(Error::LockTimeout { .. }) => true,
        Err(other) => panic!("{other}"),
    }
}

/// Which of these keys cannot be inserted now. Nothing stays of the try.
fn refused(db: &Database, index: &Index, keys: &[u8]) -> Vec<u8> {
    let try_one = |key: &u8| waits(impatient(db).put(index, &[*key], b""));
    keys.iter().copied().filter(try_one).collect()
}

fn keys(cursor: Cursor<'_>) -> Vec<u8> {
    cursor.collect().unwrap().into_iter().map(|(key, _)| key[0]).collect()
}

fn tens(db: &Database) -> Index {
    let i = index(db, "i");
    (10..=50u8).step_by(10).for_each(|n| put(db, &i, &[n], b"", Durability::Sync).unwrap());
    i
}

/// What was read under locks stays free of new keys, as far as it was read and no further, until its reader ends; rows that are
/// there can be written by those who have them locked. READ COMMITTED locks no ranges. Guard: `Transaction::add` asks.
#[test]
fn a22_nothing_is_inserted_into_what_was_read() {
    simulate(|_| {
        let db = open(&disk());
        let i = tens(&db);
        for isolation in LEVELS {
            let mut tx = db.begin_with(isolation).unwrap();
            let (low, high): (&[u8], &[u8]) = (&[15], &[35]);
            assert_eq!(keys(tx.range_locked(&i, low..high, LockMode::Shared).unwrap()), [20, 30]);
            assert_eq!(refused(&db, &i, &[14, 15, 25, 34, 35]), [15, 25, 34]);
            tx.put(&i, &[25], b"").expect("one's own range");
            assert_eq!(keys(tx.range_locked(&i, low..high, LockMode::Shared).unwrap()), [20, 25, 30]);
            tx.rollback();
            assert_eq!(refused(&db, &i, &[15, 25, 34]), []);

            let tx = db.begin_with(isolation).unwrap();
            let mut first = tx.range_locked(&i, .., LockMode::Exclusive).unwrap();
            assert!(first.advance().unwrap());
            assert_eq!(refused(&db, &i, &[1, 10, 11, 55]), [1, 10], "as far as it was read");
            drop(first);
            let mut last = tx.range_back_locked(&i, .., LockMode::Exclusive).unwrap();
            assert!(last.advance().unwrap());
            assert_eq!(refused(&db, &i, &[11, 45, 50, 55, 255]), [50, 55, 255], "from above");
            drop(last);
            assert_eq!(keys(tx.range_locked(&i, .., LockMode::Exclusive).unwrap()).len(), 5);
            assert_eq!(refused(&db, &i, &[1, 11, 45, 255]), [1, 11, 45, 255]);
        }
        let tx = db.begin_with(Isolation::ReadCommitted).unwrap();
        assert_eq!(keys(tx.range_locked(&i, .., LockMode::Exclusive).unwrap()).len(), 5);
        assert_eq!(refused(&db, &i, &[1, 20, 25]), [20], "rows, not what lies between");

        let mut holder = db.begin().unwrap();
        tx.rollback();
        holder.put(&i, &[20], b"held").unwrap();
        let tx = db.begin().unwrap();
        assert_eq!(keys(tx.range_locked(&i, .., Locking::SHARED.skip_locked()).unwrap()), [10, 30, 40, 50]);
        holder.put(&i, &[20], b"again").expect("a row that is there comes into no range");
        holder.commit().unwrap();
    });
}

/// The same for rows of a table and for entries of a secondary index, also when an update moves one into the range.
/// Guards: `write_entry` goes the way of `write`; `delete_range` locks what it looks through.
#[test]
fn a22_entries_do_not_move_into_what_was_read() {
    simulate(|_| {
        let db = open(&disk());
        let t = table(&db, "t");
        db.create_table_indexes(&t, vec![by_colour()]).unwrap();
        insert(&db, &t, 0..7).unwrap();
        let mut tx = db.begin().unwrap();
        let (two, four) = ([Value::U32(2)], [Value::U32(4)]);
        let range = (Bound::Included(&two[..]), Bound::Included(&four[..]));
        let mut entries = tx.scan_index_locked(&t, "by_colour", range, LockMode::Shared).unwrap();
        while entries.next().unwrap().is_some() {}
        drop(entries);
        assert!(waits(impatient(&db).insert(&t, &[Value::U64(100), Value::U32(3)])));
        assert!(waits(impatient(&db).update(&t, &[Value::U64(0), Value::U32(3)])), "moved into it");
        assert!(!waits(impatient(&db).insert(&t, &[Value::U64(100), Value::U32(5)])));
        assert!(!waits(impatient(&db).update(&t, &[Value::U64(0), Value::U32(1)])));
        assert!(waits(impatient(&db).delete_row(&t, &[Value::U64(3)])), "its row is locked");
        assert_eq!(tx.delete_first(&t, (Bound::Unbounded, Bound::Excluded(&[Value::U64(6)])), 100).unwrap(), 6);
        assert!(waits(impatient(&db).insert(&t, &[Value::U64(5), Value::U32(0)])), "deleted, and locked");
        tx.commit().unwrap();
        let mut tx = db.begin().unwrap();
        assert_eq!(tx.delete_first(&t, (Bound::Unbounded, Bound::Excluded(&[Value::U64(6)])), 100).unwrap(), 0);
        assert!(waits(impatient(&db).insert(&t, &row(3))), "nothing was there");
        assert!(!waits(impatient(&db).insert(&t, &row(9))));
        tx.rollback();
        sound(&db);
    });
}

/// A key that is written and not committed is waited for by who reads its range, and read or not as its writer ends.
/// Guard: `candidates` looks for pending keys.
#[test]
fn a22_a_reader_waits_for_a_pending_insert() {
    for isolation in LEVELS {
        for commits in [true, false] {
            simulate(move |_| {
                let db = open(&disk());
                let (i, t) = (tens(&db), table(&db, "t"));
                db.create_table_indexes(&t, vec![by_colour()]).unwrap();
                let mut writer = db.begin().unwrap();
                writer.put(&i, &[25], b"").unwrap();
                writer.put(&i, &[60], b"").unwrap();
                writer.insert(&t, &row(3)).unwrap();
                let busy = db.begin_with(isolation).unwrap();
                assert_eq!(
                    keys(busy.range_locked(&i, .., Locking::SHARED.skip_locked()).unwrap()),
                    [10, 20, 30, 40, 50]
                );
                let mut cursor = busy.range_locked(&i, .., Locking::SHARED.no_wait()).unwrap();
                assert!(matches!((0..3).try_for_each(|_| cursor.advance().map(drop)), Err(Error::LockBusy { .. })));
                drop(cursor);
                busy.rollback();
                let read = |read: fn(&Transaction, &Index, &Table) -> Vec<u8>| {
                    let (d, i, t) = (db.clone(), i.clone(), t.clone());
                    spawn("reader", move || read(&d.begin_with(isolation).unwrap(), &i, &t))
                };
                let readers = [
                    read(|tx, i, _| keys(tx.range_locked(i, .., LockMode::Shared).unwrap())),
                    read(|tx, i, _| {
                        let mut down = keys(tx.range_back_locked(i, .., LockMode::Shared).unwrap());
                        down.reverse();
                        down
                    }),
                    read(|tx, _, t| {
                        let mut entries = tx.scan_index_locked(t, "by_colour", ALL, LockMode::Shared).unwrap();
                        entries.next().unwrap().map_or(vec![], |_| vec![3])
                    }),
                ];
                sleep(50);
                assert_eq!(db.lock_waits().len(), 3, "{:?}", db.lock_waits());
                if commits {
                    writer.commit().unwrap();
                } else {
                    writer.rollback();
                }
                let found = readers.map(|reader| reader.join().unwrap());
                let all: &[u8] = if commits { &[10, 20, 25, 30, 40, 50, 60] } else { &[10, 20, 30, 40, 50] };
                let entry: &[u8] = if commits { &[3] } else { &[] };
                assert_eq!(found, [all, all, entry]);
            });
        }
    }
}

/// Whenever the insert comes, before the range is published, before the probe, behind it: a second look finds what the first
/// found. Guards: the range is published before the probe, and read after it.
#[test]
fn a22_two_looks_are_the_same_whenever_the_insert_comes() {
    for point in ["locking.found", "locking.published", "locking.probed", "locking.none"] {
        for begun_before in [true, false] {
            simulate(move |sim| {
                let db = open(&disk());
                let i = tens(&db);
                let mut writer = db.begin().unwrap();
                if begun_before {
                    writer.put(&i, &[25], b"").unwrap();
                }
                let tx = db.begin().unwrap();
                let gate = sim.hold(point);
                let (d, handle) = (db.clone(), i.clone());
                let inserter = spawn("inserter", move || {
                    if point != "locking.none" {
                        gate.wait_reached();
                    }
                    let handle_too = handle.clone();
                    let other = spawn("other", move || {
                        writer.put(&handle, &[25], b"").unwrap();
                        writer.commit().unwrap();
                    });
                    sleep(30);
                    gate.open();
                    put(&d, &handle_too, &[26], b"", Durability::Sync).unwrap();
                    other.join().unwrap();
                });
                let look = || keys(tx.range_locked(&i, .., LockMode::Shared).unwrap().expect(100));
                let first = look();
                sleep(100);
                assert_eq!(look(), first, "{point}");
                tx.rollback();
                inserter.join().unwrap();
                assert_eq!(all(&db, &i).len(), 7);
            });
        }
    }
}

/// Two that have read and insert into each other's range: a deadlock like any other, listed with the keys they could not insert.
/// Guard: the wait for a range is a wait for a lock that its owner holds (P2).
#[test]
fn p2_ranges_are_in_the_deadlock_graph() {
    simulate(|_| {
        let db = open(&disk());
        let i = tens(&db);
        let (mut one, mut two) = (db.begin().unwrap(), db.begin().unwrap());
        let middle: &[u8] = &[30];
        assert_eq!(keys(one.range_locked(&i, ..middle, LockMode::Shared).unwrap()), [10, 20]);
        assert_eq!(keys(two.range_locked(&i, middle.., LockMode::Shared).unwrap()), [30, 40, 50]);
        let ids = (one.id(), two.id());
        let handle = i.clone();
        let first = spawn("first", move || one.put(&handle, &[35], b"").and_then(|()| one.commit()));
        sleep(50);
        let waits = db.lock_waits();
        assert_eq!((waits.len(), waits[0].waiter, waits[0].blocker, waits[0].on_range), (1, ids.0, ids.1, true));
        assert_eq!((waits[0].index.as_str(), &waits[0].key[..]), ("i", &[35][..]));
        let second = two.put(&i, &[15], b"");
        assert!(matches!(second, Err(Error::Deadlock { .. })), "{second:?}");
        first.join().unwrap().unwrap();
        let deadlock = db.deadlocks().swap_remove(0);
        assert_eq!((deadlock.victim, deadlock.edges.len()), (ids.1, 2));
        assert!(deadlock.edges.iter().all(|edge| edge.on_range && edge.index == "i"), "{deadlock:?}");
    });
}

/// Who has read a range inserts into it while somebody else waits to insert the same: no deadlock, the other one finds the row
/// there. Guard: `wait_for_ranges` waits before the row is locked.
#[test]
fn a22_the_reader_of_a_range_inserts_into_it() {
    simulate(|_| {
        let db = open(&disk());
        let t = table(&db, "t");
        let mut tx = db.begin().unwrap();
        assert!(tx.scan_locked(&t, ALL, LockMode::Exclusive).unwrap().next().unwrap().is_none());
        let (d, handle) = (db.clone(), t.clone());
        let other = spawn("other", move || insert(&d, &handle, 5..6));
        sleep(50);
        assert_eq!(db.lock_waits().len(), 1);
        tx.insert(&t, &row(5)).unwrap();
        tx.commit().unwrap();
        let error = other.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::DuplicateKey { .. }), "{error}");
        assert_eq!(db.stats().locks.deadlocks, 0);
    });
}

/// The end of a range's owner lets those in who waited, and tells them its commit (A17). Guard: `wait_for_end` keeps what it has
/// seen.
#[test]
fn a17_who_waited_for_a_range_sees_its_owners_commit() {
    simulate(|sim| {
        let db = open(&disk());
        let (i, gap) = (tens(&db), index(&db, "gap"));
        let gate = sim.hold("commit.logged");
        let (d, g) = (db.clone(), gap.clone());
        let slow = spawn("slow", move || put(&d, &g, b"k", b"", Durability::Buffered));
        gate.wait_reached();
        let mut tx = db.begin().unwrap();
        assert_eq!(keys(tx.range_locked(&i, .., LockMode::Shared).unwrap()).len(), 5);
        tx.put(&gap, b"told", b"").unwrap();
        let (d, handle, g) = (db.clone(), i.clone(), gap.clone());
        let inserter = spawn("inserter", move || {
            let mut tx = d.begin().unwrap();
            tx.put(&handle, &[25], b"").unwrap();
            tx.get(&g, b"told").unwrap()
        });
        sleep(50);
        let owner = spawn("owner", move || tx.commit_with(Durability::Buffered).map(drop));
        sleep(50);
        gate.open();
        assert_eq!(inserter.join().unwrap(), Some(Vec::new()));
        owner.join().unwrap().unwrap();
        slow.join().unwrap().unwrap();
    });
}

/// Under SERIALIZABLE plain reads lock: rows, ranges and keys that are not there; so of two that read what the other writes one
/// is rolled back. Guards: `read`, `cursor` and `scan_index` lock for such a transaction.
#[test]
fn serializable_reads_lock() {
    type Read = fn(&Transaction, &Index, &Table);
    const READS: [(&str, Read); 8] = [
        ("get", |tx, i, _| drop(tx.get(i, &[25]).unwrap())),
        ("range", |tx, i, _| drop(keys(tx.range(i, ..).unwrap()))),
        ("range_back", |tx, i, _| drop(keys(tx.range_back(i, ..).unwrap()))),
        ("get_row", |tx, _, t| drop(tx.get_row(t, &[Value::U64(25)]).unwrap())),
        ("scan", |tx, _, t| while tx.scan(t, ALL).unwrap().next_key().unwrap().is_some_and(|_| false) {}),
        ("scan_back", |tx, _, t| while tx.scan_back(t, ALL).unwrap().next_key().unwrap().is_some_and(|_| false) {}),
        (
            "scan_index",
            |tx, _, t| {
                while tx.scan_index(t, "by_colour", ALL).unwrap().next().unwrap().is_some_and(|_| false) {}
            },
        ),
        ("scan_index_back", |tx, _, t| {
            while tx.scan_index_back(t, "by_colour", ALL).unwrap().next().unwrap().is_some_and(|_| false) {}
        }),
    ];
    for (name, read) in READS {
        for isolation in LEVELS {
            simulate(move |_| {
                let db = open(&disk());
                let (i, t) = (tens(&db), table(&db, "t"));
                db.create_table_indexes(&t, vec![by_colour()]).unwrap();
                let (one, mut two) = (db.begin_with(isolation).unwrap(), db.begin_with(isolation).unwrap());
                read(&one, &i, &t);
                let mut other = impatient(&db);
                let put = waits(other.put(&i, &[25], b""));
                let insert = waits(other.insert(&t, &[Value::U64(25), Value::U32(2)]));
                other.rollback();
                assert_eq!(put || insert, isolation == Isolation::Serializable, "{name}");
                // Write skew: each has read what the other inserts.
                read(&two, &i, &t);
                let (handle, rows_of) = (i.clone(), t.clone());
                let first = spawn("first", move || {
                    let mut one = one;
                    one.put(&handle, &[25], b"")?;
                    one.insert(&rows_of, &[Value::U64(25), Value::U32(2)])?;
                    one.commit()
                });
                sleep(20);
                let second = two.put(&i, &[25], b"").and_then(|()| two.insert(&t, &[Value::U64(25), Value::U32(3)]));
                let second = second.and_then(|()| two.commit());
                let both = [first.join().unwrap(), second];
                let deadlocks = both.iter().filter(|end| matches!(end, Err(Error::Deadlock { .. }))).count();
                assert_eq!(deadlocks == 1, isolation == Isolation::Serializable, "{name} {isolation:?}: {both:?}");
                sound(&db);
            });
        }
    }
}

/// A SERIALIZABLE read sees what is committed last and waits for who is writing it, and a row found by an entry of an index
/// keeps its entry; a database that is only read can be read so too. Guards: `read` and `scan_index` lock rows.
#[test]
fn serializable_reads_see_the_newest() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let (i, t) = (tens(&db), table(&db, "t"));
        db.create_table_indexes(&t, vec![by_colour()]).unwrap();
        insert(&db, &t, 0..5).unwrap();
        let tx = db.begin_with(Isolation::Serializable).unwrap();
        assert_eq!(tx.get(&i, b"k").unwrap(), None);
        put(&db, &i, &[10], b"new", Durability::Sync).unwrap();
        assert_eq!(tx.get(&i, &[10]).unwrap().unwrap(), b"new");
        let mut entries = tx.scan_index(&t, "by_colour", ALL).unwrap();
        assert_eq!(entries.next().unwrap().unwrap()[1], Value::U64(0));
        drop(entries);
        assert!(waits(impatient(&db).update(&t, &[Value::U64(0), Value::U32(6)])));
        assert!(!waits(impatient(&db).update(&t, &[Value::U64(4), Value::U32(6)])), "not read yet");
        let mut writer = db.begin().unwrap();
        writer.put(&i, &[20], b"new").unwrap();
        let lock_timeout = Some(Duration::from_millis(20));
        let options = TransactionOptions { lock_timeout, ..Isolation::Serializable.into() };
        assert!(waits(db.begin_with(options).unwrap().get(&i, &[20])));
        drop((tx, writer, i, t));
        db.close().unwrap();
        drop(db);
        let db = Database::open("/db", Options { read_only: true, ..crate::support::options(&disk) }).unwrap();
        let i = db.index("i").unwrap();
        let tx = db.begin_with(Isolation::Serializable).unwrap();
        assert_eq!(keys(tx.range(&i, ..).unwrap()).len(), 5);
        assert_eq!(tx.get(&i, &[10]).unwrap().unwrap(), b"new");
    });
}
