//! Two-phase commit: what is prepared outlives everything but its decision, and costs no more than it must.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test panics on what it does not expect")]

use std::time::Duration;

use crate::support::*;
use trefoil::{
    ColumnType, Database, Durability, Error, Index, IndexSchema, Isolation, LockMode, Locking, Options, Schema,
    Transaction, Value,
};
use vfs::fault::{Action, Class, Rule};
use vfs::sim::SimDisk;

const XID: &[u8] = b"order 7";

fn prepare(db: &Database, index: &Index, keys: &[&[u8]], value: &[u8], xid: &[u8]) -> Result<(), Error> {
    let mut tx = db.begin()?;
    keys.iter().try_for_each(|key| tx.put(index, key, value))?;
    tx.prepare(xid)
}

fn names(db: &Database) -> Vec<Vec<u8>> {
    db.prepared().unwrap().into_iter().map(|waiting| waiting.xid).collect()
}

fn is_locked(db: &Database, index: &Index, key: &[u8]) -> bool {
    let outcome = db.begin().unwrap().get_locked(index, key, Locking::EXCLUSIVE.no_wait());
    matches!(outcome, Err(Error::LockBusy { .. }))
}

fn again(disk: &SimDisk, db: Database) -> (SimDisk, Database, Index) {
    let disk = cut(disk, db);
    let db = open(&disk);
    let index = db.index("i").unwrap();
    (disk, db, index)
}

/// A7: prepared is durable, with its locks, until it is decided; the decision is durable too. Guards: `log_prepare`
/// registers and `prepare_transaction` syncs; `recovered.rs` takes locks; a decision is synced.
#[test]
fn a7_what_is_prepared_outlives_its_session_and_crashes() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let i = index(&db, "i");
        put(&db, &i, b"a", b"old", Durability::Sync).unwrap();
        prepare(&db, &i, &[b"a", b"b"], b"new", XID).unwrap();
        let check = |db: &Database, i: &Index| {
            let waiting = db.prepared().unwrap();
            assert_eq!((waiting.len(), waiting[0].xid.as_slice(), waiting[0].writes), (1, XID, 2));
            assert!(waiting[0].since > Duration::from_secs(1_700_000_000));
            assert!(is_locked(db, i, b"a") && is_locked(db, i, b"b") && !is_locked(db, i, b"c"));
            assert_eq!(get(db, i, b"a").unwrap(), b"old");
            assert_eq!(get(db, i, b"b"), None);
        };
        check(&db, &i);
        drop(i);
        let (mut disk, mut db, mut i) = again(&disk, db);
        for round in 0..4 {
            check(&db, &i);
            if round == 2 {
                (0..3).for_each(|_| db.checkpoint().unwrap());
            }
            drop(i);
            (disk, db, i) = again(&disk, db);
        }
        let waiting = db.prepared().unwrap();
        let (d, owner) = (db.clone(), waiting[0].transaction);
        let ts = spawn("another", move || d.commit_prepared(XID)).join().unwrap().unwrap();
        assert!(db.snapshot().unwrap().ts() >= ts && owner > 0);
        drop(i);
        let (_disk, db, i) = again(&disk, db);
        assert!(names(&db).is_empty());
        assert_eq!((get(&db, &i, b"a").unwrap(), get(&db, &i, b"b").unwrap()), (b"new".to_vec(), b"new".to_vec()));
        assert!(!is_locked(&db, &i, b"a"));
        sound(&db);
    });
}

/// A rollback is durable, before and after a reopening. Guard: the rollback record is synced.
#[test]
fn a7_a_rollback_by_name_is_durable() {
    for reopen in [false, true] {
        simulate(move |_| {
            let mut disk = disk();
            let mut db = open(&disk);
            let mut i = index(&db, "i");
            prepare(&db, &i, &[b"a"], b"new", XID).unwrap();
            if reopen {
                drop(i);
                (disk, db, i) = again(&disk, db);
            }
            db.rollback_prepared(XID).unwrap();
            assert!(!is_locked(&db, &i, b"a") && names(&db).is_empty());
            drop(i);
            let (_disk, db, i) = again(&disk, db);
            assert!(names(&db).is_empty() && !is_locked(&db, &i, b"a"));
            assert_eq!(get(&db, &i, b"a"), None);
            assert!(matches!(db.commit_prepared(XID), Err(Error::NotFound { .. })));
            sound(&db);
        });
    }
}

/// Names are checked, are taken once at a time, and come back.
#[test]
fn names_of_prepared_transactions() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let i = index(&db, "i");
        assert!(matches!(db.begin().unwrap().prepare(b""), Err(Error::InvalidArgument(_))));
        assert!(matches!(db.begin().unwrap().prepare(&[1; 141]), Err(Error::Limit { .. })));
        prepare(&db, &i, &[b"a"], b"1", &[1; 140]).unwrap();
        let taken = prepare(&db, &i, &[b"b"], b"2", &[1; 140]);
        assert!(matches!(&taken, Err(Error::AlreadyExists { kind: "prepared transaction", .. })), "{taken:?}");
        assert!(!is_locked(&db, &i, b"b"), "who cannot be prepared is rolled back");
        for unknown in [db.commit_prepared(b"?").map(|_| ()), db.rollback_prepared(b"?")] {
            assert!(matches!(unknown, Err(Error::NotFound { .. })));
        }
        db.commit_prepared(&[1; 140]).unwrap();
        prepare(&db, &i, &[b"b"], b"2", &[1; 140]).unwrap();
        // One that wrote nothing holds its locks too.
        let tx = db.begin().unwrap();
        tx.get_locked(&i, b"c", LockMode::Exclusive).unwrap();
        tx.prepare(b"reader").unwrap();
        assert!(is_locked(&db, &i, b"c"));
        drop(i);
        let (_disk, db, i) = again(&disk, db);
        assert_eq!(names(&db), [[1; 140].to_vec(), b"reader".to_vec()]);
        assert!(!is_locked(&db, &i, b"c"), "the locks of reads are gone with the process");
        db.commit_prepared(b"reader").unwrap();
        db.rollback_prepared(&[1; 140]).unwrap();
        assert_eq!(all(&db, &i), [(b"a".to_vec(), b"1".to_vec())]);
    });
}

/// A22: the pending keys of what recovery found are met by readers of ranges. Guard: `Held::recovered` enters the list
/// of writers.
#[test]
fn a22_a_reader_of_a_range_waits_for_a_recovered_insert() {
    for checkpoints in [0, 3] {
        simulate(move |_| {
            let disk = disk();
            let db = open(&disk);
            let i = index(&db, "i");
            prepare(&db, &i, &[b"m"], b"1", XID).unwrap();
            (0..checkpoints).for_each(|_| db.checkpoint().unwrap());
            drop(i);
            let (_disk, db, i) = again(&disk, db);
            let (d, range) = (db.clone(), i.clone());
            let reader = spawn("reader", move || {
                let tx = d.begin_with(Isolation::Serializable).unwrap();
                let first = tx.range_locked(&range, .., LockMode::Shared).and_then(trefoil::Cursor::collect).unwrap();
                first.len()
            });
            sleep(50);
            db.commit_prepared(XID).unwrap();
            assert_eq!(reader.join().unwrap(), 1, "it has waited");
        });
    }
}

/// A24: the values that a recovered set adds to or removes from a unique index are locked again. Guard: `Held::retake` locks
/// the value.
#[test]
fn a24_a_recovered_set_holds_its_unique_values() {
    for checkpoints in [0, 3] {
        simulate(move |_| {
            let disk = disk();
            let db = open(&disk);
            let schema = Schema::builder().column("id", ColumnType::U64).column("colour", ColumnType::U32);
            let unique = IndexSchema::new("by_colour", &["colour"]).unique();
            let rows = db.create_table("rows", schema.primary_key(&["id"]).index(unique).build().unwrap()).unwrap();
            let mut tx = db.begin().unwrap();
            tx.insert(&rows, &[1u64.into(), 5u32.into()]).unwrap();
            tx.commit().unwrap();
            let mut tx = db.begin().unwrap();
            tx.update(&rows, &[1u64.into(), 6u32.into()]).unwrap();
            tx.prepare(XID).unwrap();
            (0..checkpoints).for_each(|_| db.checkpoint().unwrap());
            drop(rows);
            let db = open(&cut(&disk, db));
            let rows = db.table("rows").unwrap();
            let mut tx = db.begin().unwrap();
            for colour in [5u32, 6] {
                let waits = tx.insert(&rows, &[2u64.into(), colour.into()]);
                assert!(matches!(waits, Err(Error::LockTimeout { .. })), "{colour}: {waits:?}");
            }
            tx.insert(&rows, &[2u64.into(), 7u32.into()]).unwrap();
            tx.rollback();
            db.commit_prepared(XID).unwrap();
            let mut tx = db.begin().unwrap();
            tx.insert(&rows, &[2u64.into(), 5u32.into()]).unwrap();
            assert!(matches!(tx.insert(&rows, &[3u64.into(), 6u32.into()]), Err(Error::DuplicateKey(_))));
        });
    }
}

/// A24: so are values that were locked by their name, in an index that is not unique. Guard: `Held::retake` locks those too.
#[test]
fn a24_a_recovered_set_holds_its_values_by_name() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let schema = Schema::builder().column("id", ColumnType::U64).nullable("hash", ColumnType::U64);
        let by_hash = IndexSchema::new("by_hash", &["hash"]);
        let rows = db.create_table("rows", schema.primary_key(&["id"]).index(by_hash).build().unwrap()).unwrap();
        let mut tx = db.begin().unwrap();
        tx.insert(&rows, &[2u64.into(), Value::Null]).unwrap();
        assert!(tx.lock_index_value(&rows, "by_hash", &[5u64.into()], Locking::EXCLUSIVE).unwrap());
        tx.insert(&rows, &[1u64.into(), 5u64.into()]).unwrap();
        tx.prepare(XID).unwrap();
        drop(rows);
        let db = open(&cut(&disk, db));
        let rows = db.table("rows").unwrap();
        let tx = db.begin().unwrap();
        let lock = |value: u64| tx.lock_index_value(&rows, "by_hash", &[value.into()], Locking::EXCLUSIVE.no_wait());
        assert!(matches!(lock(5), Err(Error::LockBusy { .. })));
        assert!(lock(6).unwrap());
        db.commit_prepared(XID).unwrap();
        assert!(lock(5).unwrap());
    });
}

/// A24: rows of two recovered sets may have one value of an index that is not unique: neither keeps the database from opening.
/// Guard: `Held::retake` does not wait for it.
#[test]
fn a24_recovered_sets_may_have_the_same_value() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let t = table(&db, "t");
        db.create_table_indexes(&t, vec![by_colour()]).unwrap();
        for id in [1, 8] {
            let mut tx = db.begin().unwrap();
            tx.insert(&t, &row(id)).unwrap();
            tx.prepare(&[id as u8]).unwrap();
        }
        drop(t);
        let db = open(&cut(&disk, db));
        assert_eq!(names(&db), [[1], [8]]);
        db.commit_prepared(&[1]).unwrap();
        db.rollback_prepared(&[8]).unwrap();
        sound(&db);
    });
}

/// A16: a table that a prepared transaction has written to keeps its definition, after a reopening too; the error names
/// who keeps it. Guards: `recovered.rs` enters the gate; `ddl.rs` asks who is prepared.
#[test]
fn a16_definitions_wait_for_what_is_prepared() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let (rows, i) = (table(&db, "rows"), index(&db, "i"));
        let mut tx = db.begin().unwrap();
        tx.insert_many(&rows, &[row(1), row(2)]).unwrap();
        tx.put(&i, b"k", b"v").unwrap();
        tx.prepare(XID).unwrap();
        drop((rows, i));
        let (disk, db, i) = again(&disk, db);
        let rows = db.table("rows").unwrap();
        let refused = [db.drop_table("rows"), db.create_table_indexes(&rows, vec![by_colour()]), db.drop_index("i")];
        for refused in refused {
            let Err(Error::HeldByPrepared { xid, .. }) = &refused else { panic!("{refused:?}") };
            assert_eq!(xid, "order 7");
        }
        db.commit_prepared(XID).unwrap();
        db.create_table_indexes(&rows, vec![by_colour()]).unwrap();
        assert_eq!(indexed(&db, &rows), 2);
        db.drop_index("i").unwrap();
        drop((rows, i));
        let db = open(&cut(&disk, db));
        assert_eq!(indexed(&db, &db.table("rows").unwrap()), 2);
        sound(&db);
    });
}

/// A14: large sets are run files that the prepare record names: they stay until the decision, and go after it.
#[test]
fn a14_files_of_a_prepared_set_stay_until_it_is_decided() {
    for commit in [true, false] {
        simulate(move |_| {
            let disk = disk();
            let small = Options { inline_batch_bytes: 1000, ..options(&disk) };
            let db = Database::open("/db", small.clone()).unwrap();
            let i = index(&db, "i");
            let mut tx = db.begin().unwrap();
            (0..300u32).for_each(|n| tx.put(&i, &n.to_be_bytes(), &[7; 40]).unwrap());
            tx.prepare(XID).unwrap();
            (0..3).for_each(|_| db.checkpoint().unwrap());
            assert_eq!(run_files(&disk), 1);
            drop(i);
            let (disk, db, i) = again(&disk, db);
            (0..3).for_each(|_| db.checkpoint().unwrap());
            assert_eq!(run_files(&disk), 1);
            sound(&db);
            assert!(is_locked(&db, &i, &299u32.to_be_bytes()));
            if commit {
                db.commit_prepared(XID).unwrap();
            } else {
                db.rollback_prepared(XID).unwrap();
            }
            let count = if commit { 300 } else { 0 };
            assert_eq!(all(&db, &i).len(), count);
            db.settle().unwrap();
            db.checkpoint().unwrap();
            db.checkpoint().unwrap();
            assert_eq!(run_files(&disk), 0);
            drop(i);
            let (_disk, db, i) = again(&disk, db);
            assert_eq!(all(&db, &i).len(), count);
            sound(&db);
        });
    }
}

/// A7 (a): the log is kept from the prepare record on while it is not decided. Guard: `Registry::kept` looks at `sets`.
#[test]
fn a7a_a_checkpoint_keeps_the_log_of_what_is_prepared() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let (i, other) = (index(&db, "i"), index(&db, "other"));
        prepare(&db, &i, &[b"a"], b"1", XID).unwrap();
        fill(&db, &other, 0, 50, 10).unwrap();
        db.checkpoint().unwrap();
        db.commit_prepared(XID).unwrap();
        drop((i, other));
        let (_disk, db, i) = again(&disk, db);
        assert_eq!(get(&db, &i, b"a").expect("committed"), b"1");
        sound(&db);
    });
}

/// A7 (a): and while it is decided behind the state of an index. A checkpoint has its states, then the commit comes, then it
/// looks what is prepared. Guard: `Registry::kept` looks at `decided`.
#[test]
fn a7a_a_checkpoint_keeps_the_log_of_what_was_committed_behind_its_states() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let (i, other) = (index(&db, "i"), index(&db, "other"));
        prepare(&db, &i, &[b"a"], b"1", XID).unwrap();
        fill(&db, &other, 0, 50, 10).unwrap();
        let gate = sim.hold("checkpoint.composed");
        let d = db.clone();
        let checkpoint = spawn("checkpoint", move || d.checkpoint());
        gate.wait_reached();
        db.commit_prepared(XID).unwrap();
        gate.open();
        checkpoint.join().unwrap().unwrap();
        drop((i, other));
        let (_disk, db, i) = again(&disk, db);
        assert_eq!(get(&db, &i, b"a").expect("committed"), b"1");
        sound(&db);
    });
}

/// A7 (b): a prepare record that is in the log and not registered yet holds the applied prefix back, and so the floor.
/// Guard: it is marked applied after it is registered.
#[test]
fn a7b_a_prepare_beside_a_checkpoint_is_kept() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let (i, other) = (index(&db, "i"), index(&db, "other"));
        put(&db, &other, b"k", b"v", Durability::Sync).unwrap();
        let gate = sim.hold("prepare.appended");
        let (d, index) = (db.clone(), i.clone());
        let late = spawn("late", move || prepare(&d, &index, &[b"a"], b"1", XID));
        gate.wait_reached();
        db.checkpoint().unwrap();
        gate.open();
        late.join().unwrap().unwrap();
        drop((i, other));
        let (_disk, db, i) = again(&disk, db);
        assert_eq!(names(&db), [XID.to_vec()]);
        db.commit_prepared(XID).unwrap();
        assert_eq!(get(&db, &i, b"a").unwrap(), b"1");
    });
}

/// A7 (c): a commit by name is on disk when it returns, whatever the database's durability is. Guard: `commit_prepared`
/// asks for `Sync`.
#[test]
fn a7c_a_commit_by_name_is_on_disk() {
    simulate(|_| {
        let disk = disk();
        let db = Database::open("/db", Options { durability: Durability::Buffered, ..options(&disk) }).unwrap();
        let i = index(&db, "i");
        prepare(&db, &i, &[b"a"], b"1", XID).unwrap();
        prepare(&db, &i, &[b"b"], b"2", b"other").unwrap();
        db.commit_prepared(XID).unwrap();
        drop(i);
        let (_disk, db, i) = again(&disk, db);
        assert_eq!(get(&db, &i, b"a").expect("told and lost"), b"1");
        assert_eq!(names(&db), [b"other".to_vec()]);
    });
}

/// A7 (d): a set older than one checkpoint no longer holds the log, and is found all the same. Guard: `checkpoint.rs` has
/// old sets rewritten.
#[test]
fn a7d_a_forgotten_set_does_not_hold_the_log() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let (i, other) = (index(&db, "i"), index(&db, "other"));
        prepare(&db, &i, &[b"a"], b"1", XID).unwrap();
        let load = |db: &Database, other: &Index, from: u32| {
            for n in from..from + 60 {
                fill(db, other, n * 10, n * 10 + 10, 900).unwrap();
                if n % 20 == 19 {
                    db.checkpoint().unwrap();
                }
            }
        };
        load(&db, &other, 0);
        load(&db, &other, 60);
        let log = |db: &Database| db.stats().log.segments;
        assert!(log(&db) <= 3, "{:?}", db.stats().log);
        assert_eq!(run_files(&disk), 1);
        drop((i, other));
        let (disk, db, i) = again(&disk, db);
        let other = db.index("other").unwrap();
        assert_eq!(names(&db), [XID.to_vec()]);
        load(&db, &other, 120);
        assert!(log(&db) <= 3, "{:?}", db.stats().log);
        assert!(is_locked(&db, &i, b"a"));
        db.commit_prepared(XID).unwrap();
        assert_eq!(get(&db, &i, b"a").unwrap(), b"1");
        drop((i, other));
        let (disk, db, i) = again(&disk, db);
        assert_eq!(get(&db, &i, b"a").unwrap(), b"1");
        db.settle().unwrap();
        (0..2).for_each(|_| db.checkpoint().unwrap());
        assert_eq!(run_files(&disk), 0, "the run goes when nothing names it");
        sound(&db);
        drop(i);
    });
}

/// A7 (d): what is decided while its run is being written is decided as it was. Guard: `Registry::rewritten` looks at the
/// state.
#[test]
fn a7d_a_decision_beside_the_rewriting() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let i = index(&db, "i");
        prepare(&db, &i, &[b"a"], b"1", XID).unwrap();
        db.checkpoint().unwrap();
        let gate = sim.hold("prepared.rewritten");
        let d = db.clone();
        let checkpoint = spawn("checkpoint", move || d.checkpoint());
        gate.wait_reached();
        db.commit_prepared(XID).unwrap();
        prepare(&db, &i, &[b"a"], b"2", XID).unwrap();
        gate.open();
        checkpoint.join().unwrap().unwrap();
        assert_eq!(run_files(&disk), 0);
        drop(i);
        let (_disk, db, i) = again(&disk, db);
        assert_eq!(get(&db, &i, b"a").unwrap(), b"1");
        db.commit_prepared(XID).unwrap();
        assert_eq!(get(&db, &i, b"a").unwrap(), b"2");
    });
}

/// P4, A23 (c): a full disk refuses new work, and neither commits nor rollbacks of what is prepared. Guard: they ask for
/// room in the log as `Room::Reserve` does.
#[test]
fn p4_a_full_disk_does_not_refuse_decisions() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let i = index(&db, "i");
        for n in 0..60u32 {
            prepare(&db, &i, &[&n.to_be_bytes()], &[1; 400], &n.to_be_bytes()).unwrap();
        }
        disk.faults().add(Rule::new(Action::StorageFull).on(Class::Allocate).forever());
        // Until even the log has no room but its reserve, for the shortest record either.
        for value in [&[2; 400][..], &[2]] {
            let refused = (0..20_000u32).find_map(|n| put(&db, &i, &[n as u8 % 50], value, Durability::Write).err());
            assert!(matches!(refused, Some(Error::DiskFull { .. })), "{refused:?}");
        }
        for n in 0..60u32 {
            let xid = n.to_be_bytes();
            if n % 2 == 0 {
                db.rollback_prepared(&xid).expect("rollbacks go on");
            } else {
                db.commit_prepared(&xid).expect("commits go on");
            }
        }
        disk.faults().clear();
        drop(i);
        let (_disk, db, i) = again(&disk, db);
        let there = all(&db, &i).into_iter().filter(|(_, value)| value[0] == 1).count();
        assert_eq!((there, names(&db).len()), (30, 0));
        sound(&db);
    });
}

/// A backup holds what is prepared, from the log or from run files.
#[test]
fn a_backup_holds_what_is_prepared() {
    for checkpoints in [0, 3] {
        simulate(move |_| {
            let disk = disk();
            let db = open(&disk);
            let i = index(&db, "i");
            prepare(&db, &i, &[b"a"], b"1", XID).unwrap();
            (0..checkpoints).for_each(|_| db.checkpoint().unwrap());
            db.checkpoint_to("/copy").unwrap();
            db.rollback_prepared(XID).unwrap();
            let copy = Database::open("/copy", options(&disk)).unwrap();
            assert_eq!(names(&copy), [XID.to_vec()]);
            let i = copy.index("i").unwrap();
            assert!(is_locked(&copy, &i, b"a"));
            copy.commit_prepared(XID).unwrap();
            assert_eq!(get(&copy, &i, b"a").unwrap(), b"1");
            sound(&copy);
        });
    }
}

/// Who only reads is told what is prepared, and decides nothing.
#[test]
fn a_reader_lists_what_is_prepared() {
    for checkpoints in [0, 3] {
        simulate(move |_| {
            let disk = disk();
            let db = open(&disk);
            let i = index(&db, "i");
            prepare(&db, &i, &[b"a"], b"1", XID).unwrap();
            (0..checkpoints).for_each(|_| db.checkpoint().unwrap());
            drop(i);
            let disk = cut(&disk, db);
            let db = Database::open("/db", Options { read_only: true, ..options(&disk) }).unwrap();
            assert_eq!(names(&db), [XID.to_vec()]);
            assert!(matches!(db.commit_prepared(XID), Err(Error::ReadOnly)));
            assert!(matches!(db.rollback_prepared(XID), Err(Error::ReadOnly)));
        });
    }
}

/// D12: while the database refuses writes nothing is prepared or decided, and what was prepared still is.
#[test]
fn nothing_is_prepared_while_the_database_is_poisoned() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let i = index(&db, "i");
        prepare(&db, &i, &[b"a"], b"1", XID).unwrap();
        let tx = |key: &[u8]| -> Transaction {
            let mut tx = db.begin().unwrap();
            tx.put(&i, key, b"2").unwrap();
            tx
        };
        let (first, second) = (tx(b"b"), tx(b"c"));
        disk.faults().add(Rule::new(Action::Eio).on(Class::Sync).forever());
        let failed = first.prepare(b"first");
        assert!(
            matches!(&failed, Err(Error::CommitOutcomeUnknown { cause, .. }) if cause.contains("prepare")),
            "{failed:?}"
        );
        // It may be found prepared: nobody may go around its locks into the same log.
        let other = db.begin().unwrap().get_locked(&i, b"b", trefoil::Locking::SHARED.no_wait());
        assert!(matches!(other, Err(Error::LockBusy { .. })), "{other:?}");
        assert!(matches!(second.prepare(b"second"), Err(Error::Poisoned { .. })));
        assert!(matches!(db.commit_prepared(XID), Err(Error::Poisoned { .. })));
        assert!(matches!(db.rollback_prepared(XID), Err(Error::Poisoned { .. })));
        assert_eq!(names(&db), [XID.to_vec()]);
        disk.faults().clear();
        drop(i);
        let (_disk, db, i) = again(&disk, db);
        let found = names(&db);
        assert!(found.contains(&XID.to_vec()) && !found.contains(&b"second".to_vec()), "{found:?}");
        db.commit_prepared(XID).unwrap();
        assert_eq!(get(&db, &i, b"a").unwrap(), b"1");
    });
}

/// A prepared set whose run file is damaged is named at open, and what was locked for it until then is let go. Guard:
/// `hold_again` releases.
#[test]
fn a_damaged_run_of_a_prepared_set_is_refused_at_open() {
    simulate(|_| {
        let disk = disk();
        let small = Options { inline_batch_bytes: 1000, ..options(&disk) };
        let db = Database::open("/db", small).unwrap();
        let (i, j) = (index(&db, "i"), index(&db, "j"));
        let mut tx = db.begin().unwrap();
        tx.put(&i, b"a", b"1").unwrap();
        (0..300u32).for_each(|n| tx.put(&j, &n.to_be_bytes(), &[7; 40]).unwrap());
        tx.prepare(XID).unwrap();
        drop((i, j));
        let disk = cut(&disk, db);
        let runs = disk.files().into_iter().filter(|(path, _)| path.to_string_lossy().contains("run-"));
        let (path, len) = runs.max_by_key(|(_, len)| *len).unwrap();
        (0..8).for_each(|n| disk.flip_bit(&path, len * n + 77).unwrap());
        let refused = Database::open("/db", options(&disk)).err();
        assert!(matches!(&refused, Some(Error::Corrupt(damage)) if damage.file.contains("run-")), "{refused:?}");
    });
}
