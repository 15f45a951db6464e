//! Index builds beside the writers of the table (rule A16). Every test says which guard it stands for: with that guard removed
//! it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::time::Duration;

use crate::support::*;
use trefoil::{
    ALL, BuildStage, Compression, Database, Error, IndexOptions, IndexSchema, Options, Structure, Table, Transaction,
    Value,
};
use vfs::time::Instant;

fn paint(db: &Database, t: &Table, id: u64, colour: u32) -> Result<(), Error> {
    let mut tx = db.begin()?;
    assert!(tx.update(t, &[Value::U64(id), Value::U32(colour)])?);
    tx.commit().map(|_| ())
}

/// Writers come in while the index is built, and what they do is in it: rows inserted, changed and deleted, by transactions
/// that begin in each stage, also ones that have read the table before. Guards: the shape has the index before writers are
/// waited for; a transaction takes the shape it finds with its first write.
#[test]
fn a16_writers_go_on_in_every_stage() {
    for point in ["build.registered", "build.read", "build.batch", "ddl.built", "checkpoint.composed", "ddl.registered"]
    {
        simulate(move |sim| {
            let db = open(&disk());
            let t = made(&db);
            let mut reader = db.begin().unwrap();
            assert!(reader.get_row(&t, &[Value::U64(1)]).unwrap().is_some());
            let gate = sim.hold(point);
            let building = build(&db, &t, by_colour());
            gate.wait_reached();
            let began = Instant::now();
            insert(&db, &t, TABLE_ROWS..TABLE_ROWS + 50).unwrap();
            (0..20).for_each(|id| delete(&db, &t, id));
            (20..40).for_each(|id| paint(&db, &t, id, 9).unwrap());
            reader.insert(&t, &row(1000)).unwrap();
            assert!(Instant::now() - began < Duration::from_millis(100), "{point}: {:?}", Instant::now() - began);
            if point != "build.registered" {
                gate.open();
                building.join().unwrap().unwrap();
                let read = reader.scan_index(&t, "by_colour", ALL).map(|_| ());
                assert!(matches!(read, Err(Error::DefinitionChanged { .. })), "{read:?}");
                reader.delete_row(&t, &[Value::U64(50)]).unwrap();
                reader.commit().unwrap();
            } else {
                reader.commit().unwrap();
                gate.open();
                building.join().unwrap().unwrap();
            }
            agrees(&db, &t, "by_colour");
            assert!(t.schema().index_number("by_colour").is_some());
        });
    }
}

/// A transaction that wrote before the build began is waited for, and keeps nobody else waiting. Guard: `wait_for_writers`.
#[test]
fn a16a_only_the_build_waits_for_writers() {
    simulate(|_| {
        let db = open(&disk());
        let t = made(&db);
        let mut writer = db.begin().unwrap();
        writer.insert(&t, &row(500)).unwrap();
        let building = build(&db, &t, by_colour());
        sleep(50);
        assert_eq!(db.index_builds()[0].stage(), BuildStage::Registered);
        let began = Instant::now();
        (0..9).for_each(|id| delete(&db, &t, id));
        assert!(Instant::now() - began < Duration::from_millis(50));
        writer.insert(&t, &row(501)).unwrap();
        writer.commit().unwrap();
        building.join().unwrap().unwrap();
        agrees(&db, &t, "by_colour");

        // Given up: nothing of it stays, and the writers that came in are waited for by the next one.
        let mut writer = db.begin().unwrap();
        writer.insert(&t, &row(502)).unwrap();
        let second = || IndexSchema::new("second", &["colour"]).with_options(small_nodes());
        let error = db.create_table_indexes(&t, vec![second()]).unwrap_err();
        assert!(matches!(error, Error::LockTimeout { .. }), "{error}");
        let mut later = db.begin().unwrap();
        later.insert(&t, &row(503)).unwrap();
        let building = build(&db, &t, second());
        sleep(50);
        writer.commit().unwrap();
        sleep(50);
        assert_eq!(db.index_builds()[0].stage(), BuildStage::Registered, "the later one is inside");
        later.commit().unwrap();
        building.join().unwrap().unwrap();
        agrees(&db, &t, "second");
    });
}

/// A writer that keeps the index up inserts rows, and one that came in before it and does not deletes them, all before the moment
/// of the build. Guard: `sweep`.
#[test]
fn a16a_what_an_older_writer_deletes_leaves_no_entry() {
    simulate(|_| {
        let db = open(&disk());
        let t = made(&db);
        let mut older = db.begin().unwrap();
        older.insert(&t, &row(500)).unwrap();
        let building = build(&db, &t, by_colour());
        sleep(50);
        insert(&db, &t, 600..620).unwrap();
        (600..610).for_each(|id| assert!(older.delete_row(&t, &[Value::U64(id)]).unwrap()));
        assert!(older.update(&t, &[Value::U64(611), Value::U32(99)]).unwrap());
        older.commit().unwrap();
        building.join().unwrap().unwrap();
        agrees(&db, &t, "by_colour");
    });
}

/// A row deleted behind the moment of the build leaves a tombstone that stays until its entry has come. Guard: `expect_late`.
#[test]
fn a16d_tombstones_stay_until_the_build_is_done() {
    simulate(|sim| {
        let db = open(&disk());
        let t = made(&db);
        let gate = sim.hold("build.read");
        let building = build(&db, &t, by_colour());
        gate.wait_reached();
        (0..TABLE_ROWS).step_by(2).for_each(|id| delete(&db, &t, id));
        // Everybody sees that they are gone.
        for _ in 0..3 {
            db.settle().unwrap();
            db.checkpoint().unwrap();
        }
        gate.open();
        building.join().unwrap().unwrap();
        agrees(&db, &t, "by_colour");
        assert_eq!(indexed(&db, &t) as u64, TABLE_ROWS / 2);
        db.settle().unwrap();
        let stats = db.stats().indexes.into_iter().find(|(name, _)| name == "t.by_colour").unwrap().1;
        assert!(stats.dead_versions < TABLE_ROWS / 4, "they are collected behind it: {stats:?}");
    });
}

/// Older snapshots do not read what was built behind them; those that were taken while it was built do. Guard:
/// `set_usable_from`.
#[test]
fn a16c_a_snapshot_from_the_middle_of_a_build_sees_all_rows() {
    simulate(|sim| {
        let db = open(&disk());
        let t = made(&db);
        let old = db.snapshot().unwrap();
        delete(&db, &t, 3);
        let gate = sim.hold("build.read");
        let building = build(&db, &t, by_colour());
        gate.wait_reached();
        delete(&db, &t, 4);
        let middle = db.snapshot().unwrap();
        delete(&db, &t, 5);
        gate.open();
        building.join().unwrap().unwrap();
        db.settle().unwrap();
        let count = |snapshot: &trefoil::Snapshot| {
            let mut entries = snapshot.scan_index(&t, "by_colour", ALL)?;
            let mut count = 0;
            while entries.next()?.is_some() {
                count += 1;
            }
            Ok::<u64, Error>(count)
        };
        assert!(matches!(count(&old), Err(Error::DefinitionChanged { .. })));
        assert_eq!(count(&middle).unwrap(), TABLE_ROWS - 2);
        assert_eq!(count(&db.snapshot().unwrap()).unwrap(), TABLE_ROWS - 3);
    });
}

/// A crash at any point leaves the table as it was or with the index, and all that writers have committed; the numbers of the
/// indexes in their records are known. Guards: the record that tells the numbers; the checkpoint before the catalog.
#[test]
fn a16f_a_crash_beside_writers_leaves_old_or_new() {
    let points = [
        ("build.numbered", false),
        ("build.registered", false),
        ("build.read", false),
        ("build.batch", false),
        ("ddl.built", false),
        ("checkpoint.published", false),
        ("ddl.registered", false),
    ];
    for (point, there) in points {
        for inline in [200, 1 << 20] {
            simulate(move |sim| {
                let disk = disk();
                let options = Options { inline_batch_bytes: inline, ..options(&disk) };
                let db = Database::open("/db", options).unwrap();
                let t = made(&db);
                let gate = sim.hold(point);
                let building = build(&db, &t, by_colour());
                gate.wait_reached();
                insert(&db, &t, TABLE_ROWS..TABLE_ROWS + 60).unwrap();
                (0..20).for_each(|id| delete(&db, &t, id));
                disk.power_cut(5);
                gate.open();
                assert!(building.join().unwrap().is_err(), "{point}");
                drop(t);
                let db = open(&cut(&disk, db));
                let t = db.table("t").unwrap();
                assert_eq!(t.schema().index_number("by_colour").is_some(), there, "{point}");
                sound(&db);
                insert(&db, &t, 1000..1010).unwrap();
                db.create_table_indexes(&t, vec![by_colour()]).unwrap();
                assert_eq!(indexed(&db, &t) as u64, TABLE_ROWS + 50, "{point}");
                agrees(&db, &t, "by_colour");
            });
        }
    }
}

/// After the index is public a crash costs nothing of what writers did to it before.
#[test]
fn a16f_what_writers_did_during_the_build_survives() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let t = made(&db);
        // Behind the checkpoint that makes it durable.
        let gate = sim.hold("ddl.registered");
        let building = build(&db, &t, by_colour());
        gate.wait_reached();
        insert(&db, &t, TABLE_ROWS..TABLE_ROWS + 60).unwrap();
        (0..20).for_each(|id| delete(&db, &t, id));
        gate.open();
        building.join().unwrap().unwrap();
        drop(t);
        let db = open(&cut(&disk, db));
        let t = db.table("t").unwrap();
        assert_eq!(indexed(&db, &t) as u64, TABLE_ROWS + 40);
        agrees(&db, &t, "by_colour");
    });
}

fn add(tx: &mut Transaction, t: &Table, id: u64, colour: u32) -> Result<(), Error> {
    tx.insert(t, &[Value::U64(id), Value::U32(colour)])
}

/// A value that a writer gives a second row fails the build, in whichever stage he does it and with whatever stage he came
/// in; he himself goes on. Once the index is public it is his error. Guards: the look in `claim` while it is verified;
/// neighbours are compared behind the writers that came in before.
#[test]
fn a16b_a_value_had_twice_fails_the_build_and_not_the_writer() {
    for (point, commits_before) in [
        ("build.registered", true),
        ("build.read", true),
        ("build.read", false),
        ("build.verifying", true),
        ("ddl.built", true),
    ] {
        simulate(move |sim| {
            let db = open(&disk());
            let t = distinct(&db);
            let gate = sim.hold(point);
            let building = build(&db, &t, unique());
            gate.wait_reached();
            let mut tx = db.begin().unwrap();
            add(&mut tx, &t, 900, 7).unwrap();
            if commits_before {
                tx.commit().unwrap();
                gate.open();
            } else {
                gate.open();
                sleep(100);
                assert_eq!(db.index_builds()[0].stage(), BuildStage::Verifying, "it waits for the writer");
                tx.commit().unwrap();
            }
            let error = building.join().unwrap().unwrap_err();
            let Error::DuplicateKey(taken) = &error else { panic!("{point}: {error}") };
            assert_eq!((taken.index.as_str(), &taken.key[..]), ("by_colour", &[Value::U32(7)][..]), "{point}");
            no_trace(&db, &t);
            let mut tx = db.begin().unwrap();
            add(&mut tx, &t, 901, 7).unwrap();
            tx.rollback();
            delete(&db, &t, 900);
            db.create_table_indexes(&t, vec![unique()]).unwrap();
            agrees(&db, &t, "by_colour");
        });
    }
}

/// A writer that came in during the verification waits for one that came in before and has not committed: the build sees
/// the one, he sees the other. Guard: values are locked from the registration on.
#[test]
fn a16b_values_are_locked_before_they_are_looked_for() {
    simulate(|sim| {
        let db = open(&disk());
        let t = distinct(&db);
        let (read, verifying) = (sim.hold("build.read"), sim.hold("build.verifying"));
        let building = build(&db, &t, unique());
        read.wait_reached();
        let mut first = db.begin().unwrap();
        add(&mut first, &t, 900, 5000).unwrap();
        read.open();
        verifying.wait_reached();
        let (d, handle) = (db.clone(), t.clone());
        let second = spawn("second", move || {
            let mut tx = d.begin().unwrap();
            add(&mut tx, &handle, 901, 5000).map(|()| tx)
        });
        sleep(50);
        first.commit().unwrap();
        let second = second.join().unwrap().unwrap();
        verifying.open();
        assert!(matches!(building.join().unwrap(), Err(Error::DuplicateKey(_))));
        second.commit().unwrap();
        no_trace(&db, &t);
    });
}

/// Values that move while the index is built are had once; nobody is told otherwise. A writer that came in during the build
/// gets the error once the index is public.
#[test]
fn a16b_values_may_move_during_the_build() {
    for point in ["build.registered", "build.read", "build.batch", "build.verifying", "ddl.built"] {
        simulate(move |sim| {
            let db = open(&disk());
            let t = distinct(&db);
            let gate = sim.hold(point);
            let building = build(&db, &t, unique());
            gate.wait_reached();
            delete(&db, &t, 1);
            paint(&db, &t, 2, 1).unwrap();
            paint(&db, &t, 3, 2).unwrap();
            let mut tx = db.begin().unwrap();
            assert!(tx.delete_row(&t, &[Value::U64(5)]).unwrap());
            add(&mut tx, &t, 600, 5).unwrap();
            tx.commit().unwrap();
            let mut inside = db.begin().unwrap();
            if point == "ddl.built" {
                add(&mut inside, &t, 601, 3).unwrap();
            }
            gate.open();
            building.join().unwrap().unwrap();
            assert!(matches!(add(&mut inside, &t, 602, 7), Err(Error::DuplicateKey(_))), "{point}");
            add(&mut inside, &t, 603, 999).unwrap();
            inside.commit().unwrap();
            agrees(&db, &t, "by_colour");
        });
    }
}

/// How far a build is can be read, and it can be ended: nothing of it stays. Guards: `Progress::check`, `Online::drop`.
#[test]
fn a_build_is_watched_and_ended() {
    simulate(|sim| {
        let db = open(&disk());
        let t = made(&db);
        let live = db.stats().space.live_bytes;
        for point in ["build.registered", "build.read", "build.batch", "ddl.built"] {
            let gate = sim.hold(point);
            let building = build(&db, &t, by_colour());
            gate.wait_reached();
            let one = db.index_builds().pop().unwrap();
            assert_eq!((one.table(), one.indexes()), ("t", &["by_colour".to_owned()][..]));
            assert_eq!(one.rows_estimated(), TABLE_ROWS);
            assert_eq!(one.rows_read(), if point == "build.registered" { 0 } else { TABLE_ROWS });
            assert_eq!(one.entries_added(), if point == "ddl.built" { TABLE_ROWS } else { 0 });
            let mut inside = db.begin().unwrap();
            inside.insert(&t, &row(700)).unwrap();
            one.cancel();
            gate.open();
            assert!(matches!(building.join().unwrap(), Err(Error::Cancelled)), "{point}");
            inside.commit().unwrap();
            delete(&db, &t, 700);
            no_trace(&db, &t);
            assert!(db.stats().space.live_bytes <= live + (64 << 10));
        }
    });
}

/// An index gets other settings, another structure among them, or is made anew, while the one that is there serves readers and writers; a transaction that
/// has both writes both, and is told when it reads the old one. A dropped one is left out by those who had it.
#[test]
fn a_successor_takes_the_place_of_an_index_in_use() {
    use Structure::{Betree, Btree};
    for (is_unique, from, to) in
        [(false, Btree, Betree), (true, Btree, Betree), (false, Betree, Btree), (true, Betree, Btree)]
    {
        simulate(move |sim| {
            let disk = disk();
            let db = open(&disk);
            let t = distinct(&db);
            let first = if is_unique { unique() } else { by_colour() };
            let settings = IndexOptions { structure: from, ..small_nodes() };
            db.create_table_indexes(&t, vec![first.with_options(settings)]).unwrap();
            let dense = IndexOptions { structure: to, compression: Compression::Zstd, ..small_nodes() };
            let gate = sim.hold("build.read");
            let (d, handle) = (db.clone(), t.clone());
            let change = spawn("change", move || d.change_table_index(&handle, "by_colour", dense));
            gate.wait_reached();
            let mut inside = db.begin().unwrap();
            add(&mut inside, &t, 700, 700).unwrap();
            assert_eq!(add(&mut inside, &t, 701, 7).is_err(), is_unique, "the old one judges");
            delete(&db, &t, 4);
            assert_eq!(indexed(&db, &t) as u64, TABLE_ROWS - 1, "the old one is read");
            gate.open();
            if is_unique {
                // It came in before the new one was verified.
                sleep(50);
                assert_eq!(db.index_builds().len(), 1);
                inside.commit().unwrap();
                change.join().unwrap().unwrap();
                inside = db.begin().unwrap();
                add(&mut inside, &t, 709, 709).unwrap();
            } else {
                change.join().unwrap().unwrap();
                let read = inside.scan_index(&t, "by_colour", ALL).map(|_| ());
                assert!(matches!(read, Err(Error::DefinitionChanged { .. })), "{read:?}");
            }
            add(&mut inside, &t, 702, 702).unwrap();
            inside.commit().unwrap();
            assert_eq!(t.schema().indexes()[0].options(), dense);
            assert_eq!(add(&mut db.begin().unwrap(), &t, 703, 702).is_err(), is_unique);
            agrees(&db, &t, "by_colour");
            let mut inside = db.begin().unwrap();
            add(&mut inside, &t, 704, 704).unwrap();
            db.drop_table_index(&t, "by_colour").unwrap();
            add(&mut inside, &t, 705, 7).unwrap();
            assert!(matches!(inside.scan_index(&t, "by_colour", ALL), Err(Error::DefinitionChanged { .. })));
            assert!(matches!(db.drop_table_index(&t, "by_colour"), Err(Error::NotFound { .. })));
            inside.commit().unwrap();
            drop(t);
            let db = open(&cut(&disk, db));
            let t = db.table("t").unwrap();
            no_trace(&db, &t);
            assert!(db.begin().unwrap().get_row(&t, &[Value::U64(705)]).unwrap().is_some());
        });
    }
}

/// A transaction that is prepared during the build, also across a crash: it commits into the index that became public, and
/// without the one that did not, or was dropped. What was prepared before the build is waited for. Guards: the number of an
/// index is told to the log; `is_written` in commits of what is prepared.
#[test]
fn a16_prepared_transactions_and_builds() {
    for (ends, crashes) in [("public", false), ("public", true), ("cut", true), ("dropped", false), ("dropped", true)] {
        simulate(move |sim| {
            let disk = disk();
            let db = open(&disk);
            let t = made(&db);
            let gate = sim.hold("build.batch");
            let building = build(&db, &t, by_colour());
            gate.wait_reached();
            let mut tx = db.begin().unwrap();
            tx.insert(&t, &row(600)).unwrap();
            assert!(tx.delete_row(&t, &[Value::U64(5)]).unwrap());
            tx.prepare(b"one").unwrap();
            if ends == "cut" {
                disk.power_cut(5);
            }
            gate.open();
            assert_eq!(building.join().unwrap().is_ok(), ends != "cut");
            if ends == "dropped" {
                db.drop_table_index(&t, "by_colour").unwrap();
            }
            drop(t);
            let (disk, db) = if crashes {
                let disk = cut(&disk, db);
                (disk.clone(), open(&disk))
            } else {
                (disk, db)
            };
            let t = db.table("t").unwrap();
            let second = IndexSchema::new("second", &["colour"]).with_options(small_nodes());
            let held = db.create_table_indexes(&t, vec![second.clone()]).unwrap_err();
            assert!(matches!(held, Error::HeldByPrepared { .. }), "{held}");
            db.commit_prepared(b"one").unwrap();
            assert_eq!(t.schema().index_number("by_colour").is_some(), ends == "public");
            db.create_table_indexes(&t, vec![second]).unwrap();
            t.schema().indexes().iter().for_each(|index| agrees(&db, &t, index.name()));
            drop(t);
            let db = open(&cut(&disk, db));
            let t = db.table("t").unwrap();
            let tx = db.begin().unwrap();
            assert!(tx.get_row(&t, &[Value::U64(600)]).unwrap().is_some());
            assert!(tx.get_row(&t, &[Value::U64(5)]).unwrap().is_none());
            t.schema().indexes().iter().for_each(|index| agrees(&db, &t, index.name()));
        });
    }
}
