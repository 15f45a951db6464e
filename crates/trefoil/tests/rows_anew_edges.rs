//! Rows that get another structure where something is in the way (rule A16): what is prepared, given up, damaged, too long, failing
//! or copied beside it. Every test says which guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::rows_anew::*;
use crate::support::*;
use trefoil::{
    ColumnType, Database, Error, ForeignKey, IndexOptions, IndexSchema, KeyPart, Options, Schema, Structure, Table,
    Value,
};
use vfs::fault::{Action, Class, Rule};
use vfs::sim::SimDisk;

/// What is prepared beside the change is committed behind its end, or by another opening, and is there in whichever structure the
/// rows are; what was prepared before it holds it up. Guards: the gate; what is prepared has the pair.
#[test]
fn a16_prepared_transactions_and_rows_made_anew() {
    for (from, to) in ways() {
        for (is_cut, crashes) in [(false, false), (false, true), (true, true)] {
            simulate(move |sim| {
                let disk = disk();
                let options = options(&disk);
                let db = open(&disk);
                let (t, mut model) = made_of(&db, from);
                let gate = sim.hold("build.batch");
                let changing = change(&db, &t, to);
                gate.wait_reached();
                let mut tx = db.begin().unwrap();
                tx.insert(&t, &row(600)).unwrap();
                assert!(tx.delete_row(&t, &[Value::U64(5)]).unwrap());
                tx.prepare(b"one").unwrap();
                if is_cut {
                    disk.power_cut(5);
                }
                gate.open();
                assert_eq!(changing.join().unwrap().is_ok(), !is_cut);
                let (disk, db, t) = if crashes {
                    drop(t);
                    again(&disk, db, &options)
                } else {
                    (disk, db, t)
                };
                assert_eq!(structure(&t), if is_cut { from } else { to });
                let held = db.change_table_rows(&t, of(from)).unwrap_err();
                // Not by an earlier change either.
                assert!(matches!(held, Error::HeldByPrepared { .. } | Error::LockTimeout { .. }), "{held}");
                assert!(crashes == matches!(held, Error::HeldByPrepared { .. }), "{held}");
                db.commit_prepared(b"one").unwrap();
                model.insert(600, 600 % 7);
                model.remove(&5);
                are(&db, &t, &model);
                drop(t);
                let (_disk, db, t) = again(&disk, db, &options);
                are(&db, &t, &model);
                db.change_table_rows(&t, of(from)).unwrap();
                are(&db, &t, &model);
            });
        }
    }
}

/// A change that is ended, or waits in vain, leaves the rows as they are and nothing beside them; who came in meanwhile goes on.
/// Guards: what is dropped before its end; new is freed, and not before nobody writes to it.
#[test]
fn a_change_of_rows_that_is_given_up_leaves_nothing() {
    for (from, to) in ways() {
        simulate(move |sim| {
            let disk = disk();
            let db = open(&disk);
            let (t, mut model) = made_of(&db, from);
            let before = live_bytes(&db);
            let gate = sim.hold("build.batch");
            let changing = change(&db, &t, to);
            gate.wait_reached();
            let mut inside = db.begin().unwrap();
            inside.insert(&t, &row(900)).unwrap();
            work(&db, &t, &mut model, 500);
            db.index_builds()[0].cancel();
            gate.open();
            assert!(matches!(changing.join().unwrap(), Err(Error::Cancelled)));
            assert_eq!((structure(&t), kept_in(&db), db.index_builds().len()), (from, from, 0));
            assert!(beside(&db).is_empty());
            inside.insert(&t, &row(901)).unwrap();
            inside.commit().unwrap();
            model.extend((900..902).map(|id| (id, id as u32 % 7)));
            are(&db, &t, &model);

            let mut writer = db.begin().unwrap();
            writer.insert(&t, &row(902)).unwrap();
            let late = db.change_table_rows(&t, of(to)).unwrap_err();
            assert!(matches!(late, Error::LockTimeout { .. }), "{late}");
            writer.commit().unwrap();
            model.insert(902, 902 % 7);
            are(&db, &t, &model);
            let behind = live_bytes(&db);
            assert!(behind < before * 2, "{before} bytes before, {behind} behind it");
            db.change_table_rows(&t, of(to)).unwrap();
            are(&db, &t, &model);
            drop(t);
            let options = options(&disk);
            let (_disk, db, t) = again(&disk, db, &options);
            are(&db, &t, &model);
        });
    }
}

/// Damage that a commit meets in what is being built ends the change, and the commit goes on, as does the next one. Guards: what is
/// met beside is the build's; what is given up is not written.
#[test]
fn a16e_damage_of_new_rows_ends_the_change_and_not_the_writer() {
    let met = Arc::new(AtomicU64::new(0));
    for n in 0..2u64 {
        let met = met.clone();
        simulate(move |sim| {
            let disk = disk();
            let options = Options { budget_bytes: 448 << 10, background: false, ..options(&disk) };
            let db = Database::open("/db", options).unwrap();
            let t = table_of(&db, "t", of(Structure::Lsm));
            insert(&db, &t, 0..200).unwrap();
            let gate = sim.hold("build.swept");
            let changing = change(&db, &t, Structure::Btree);
            gate.wait_reached();
            for some in (1000..13000).collect::<Vec<u64>>().chunks(200) {
                insert(&db, &t, some[0]..some[199] + 1).unwrap();
                db.settle().unwrap();
            }
            db.checkpoint().unwrap();
            let ids = [2000 + n * 97, 4000 + n * 97].map(|id| [Value::U64(id)]);
            let mut both = ids.clone().map(|id| {
                let mut tx = db.begin().unwrap();
                assert!(tx.delete_row(&t, &id).unwrap());
                tx
            });
            both.reverse();
            disk.faults().add(Rule::new(Action::Eio).on(Class::Read).path("data.trefoil").forever());
            for tx in both {
                tx.commit().unwrap();
            }
            disk.faults().clear();
            gate.open();
            if let Err(Error::Corrupt(_)) = changing.join().unwrap() {
                met.fetch_add(1, Ordering::Relaxed);
                assert!(beside(&db).is_empty());
            }
            let tx = db.begin().unwrap();
            assert!(ids.iter().all(|id| tx.get_row(&t, id).unwrap().is_none()));
            sound(&db);
            drop(tx);
            db.change_table_rows(&t, of(Structure::Btree)).unwrap();
            assert_eq!(seen(&db.snapshot().unwrap(), &t).unwrap().len(), 12198);
        });
    }
    assert!(met.load(Ordering::Relaxed) > 0, "{met:?}");
}

fn texts(db: &Database, node_bytes: usize) -> Table {
    let options = IndexOptions { structure: Structure::Btree, node_bytes, ..IndexOptions::default() };
    let schema = Schema::builder().column("key", ColumnType::Bytes).primary_key(&["key"]).primary_options(options);
    db.create_table("texts", schema.build().unwrap()).unwrap()
}

/// A key that only one of two structures takes: one that is there ends the change, so does one that a writer adds meanwhile, who is
/// not told; behind the change, while the rows are kept as they were, it is refused. Guard: keys are held against both.
#[test]
fn keys_fit_both_structures() {
    simulate(|sim| {
        let db = open(&disk());
        let long = |n: u8| [Value::Bytes(vec![n; 10 << 10].into())];
        let of = |node_bytes| IndexOptions { structure: Structure::Btree, node_bytes, ..IndexOptions::default() };
        let t = texts(&db, 64 << 10);
        let add = |row: &[Value<'_>]| {
            let mut tx = db.begin().unwrap();
            tx.insert(&t, row)?;
            tx.commit().map(|_| ())
        };
        add(&[Value::Bytes(b"short".into())]).unwrap();
        let gate = sim.hold("build.swept");
        let changing = {
            let (db, t) = (db.clone(), t.clone());
            spawn("change", move || db.change_table_rows(&t, of(4 << 10)))
        };
        gate.wait_reached();
        add(&long(1)).unwrap();
        gate.open();
        assert!(matches!(changing.join().unwrap(), Err(Error::Limit { .. })));
        assert!(matches!(db.change_table_rows(&t, of(4 << 10)), Err(Error::Limit { .. })));
        let mut tx = db.begin().unwrap();
        assert!(tx.delete_row(&t, &long(1)).unwrap());
        tx.commit().unwrap();
        db.change_table_rows(&t, of(4 << 10)).unwrap();
        assert!(matches!(add(&long(2)), Err(Error::Limit { .. })));
        db.settle().unwrap();
        let old = db.snapshot().unwrap();
        add(&[Value::Bytes(b"other".into())]).unwrap();
        db.change_table_rows(&t, of(64 << 10)).unwrap();
        assert!(matches!(add(&long(3)), Err(Error::Limit { .. })));
        drop(old);
        db.settle().unwrap();
        add(&long(3)).unwrap();
        sound(&db);
    });
}

/// Each operation on the disk fails once: the rows are in one structure or the other, all of them, and nothing is beside them; told
/// to be in the new one they are. Guard: back to before the switch where that fails.
#[test]
fn rows_are_whole_whatever_fails() {
    for (from, to) in [(Structure::Btree, Structure::Lsm), (Structure::Lsm, Structure::Betree)] {
        let wanted = |db: &Database, t: &Table| {
            assert!(seen(&db.snapshot().unwrap(), t).unwrap().keys().copied().eq(0..60));
            sound(db);
        };
        let prepare = |disk: &SimDisk| {
            let db = open(disk);
            let t = table_of(&db, "t", of(from));
            insert(&db, &t, 0..50).unwrap();
            drop(t);
            db.close().unwrap();
        };
        let act = |disk: &SimDisk| {
            let Ok(db) = Database::open("/db", options(disk)) else { return false };
            let t = db.table("t").unwrap();
            if insert(&db, &t, 50..60).is_err() {
                return false;
            }
            let changed = db.change_table_rows(&t, of(to));
            if changed.is_err() && db.stats().disk_full == 0 {
                assert!(kept_in(&db) == from || structure(&t) == to);
            }
            changed.is_ok()
        };
        each_fails_once(prepare, act, |disk, told| {
            let db = open(disk);
            let t = db.table("t").unwrap();
            assert!(!told || structure(&t) == to);
            assert_eq!(structure(&t), kept_in(&db));
            assert!(beside(&db).is_empty());
            let _ = insert(&db, &t, 50..60);
            wanted(&db, &t);
            db.change_table_rows(&t, of(if structure(&t) == to { from } else { to })).unwrap();
            wanted(&db, &t);
        });
    }
}

/// A full disk refuses the switch: the rows are as they were, and writers and a reopened database have them. Guard: the same.
#[test]
fn a_switch_that_is_refused_leaves_the_rows() {
    simulate(|sim| {
        let disk = disk();
        let options = options(&disk);
        let db = open(&disk);
        let (t, mut model) = made_of(&db, Structure::Btree);
        let gate = sim.hold("ddl.registered");
        let changing = change(&db, &t, Structure::Lsm);
        gate.wait_reached();
        work(&db, &t, &mut model, 500);
        disk.faults().add(Rule::new(Action::StorageFull).on(Class::Write).path("MANIFEST").forever());
        gate.open();
        let refused = changing.join().unwrap().unwrap_err();
        disk.faults().clear();
        assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
        assert_eq!((structure(&t), kept_in(&db)), (Structure::Btree, Structure::Btree));
        work(&db, &t, &mut model, 600);
        assert!(beside(&db).is_empty());
        are(&db, &t, &model);
        drop(t);
        let (_disk, db, t) = again(&disk, db, &options);
        assert_eq!((structure(&t), kept_in(&db)), (Structure::Btree, Structure::Btree));
        are(&db, &t, &model);
    });
}

/// A copy that is made beside the change has the rows as they were, one that is made while they are kept as they were has them as
/// they are; neither has anything else. Guard: the switch is a step.
#[test]
fn a_copy_beside_rows_made_anew() {
    for point in ["build.registered", "build.swept", "build.batch", "ddl.built", "ddl.registered"] {
        simulate(move |sim| {
            let disk = disk();
            let db = open(&disk);
            let (t, mut model) = made_of(&db, Structure::Btree);
            let gate = sim.hold(point);
            let changing = change(&db, &t, Structure::Lsm);
            gate.wait_reached();
            let copying = sim.hold("backup.begun");
            let backup = |to: &'static str| {
                let db = db.clone();
                spawn("backup", move || db.checkpoint_to(to).unwrap())
            };
            let first = backup("/copy");
            if point == "ddl.registered" {
                // It waits for the step.
                sleep(50);
                gate.open();
                copying.wait_reached();
            } else {
                copying.wait_reached();
                work(&db, &t, &mut model, 500);
                gate.open();
                sleep(1000);
                assert!(!changing.is_finished(), "{point}");
            }
            let old = db.snapshot().unwrap();
            copying.open();
            first.join().unwrap();
            changing.join().unwrap().unwrap();
            let check = |dir: &str, now: Structure, model: &Model| {
                let copy = Database::open(dir, options(&disk)).unwrap();
                let t = copy.table("t").unwrap();
                assert_eq!((structure(&t), kept_in(&copy)), (now, now), "{point}");
                assert!(beside(&copy).is_empty());
                are(&copy, &t, model);
            };
            let is_behind = point == "ddl.registered";
            check("/copy", if is_behind { Structure::Lsm } else { Structure::Btree }, &model);
            work(&db, &t, &mut model, 600);
            backup("/second").join().unwrap();
            drop(old);
            check("/second", Structure::Lsm, &model);
            are(&db, &t, &model);
        });
    }
}

/// Rows of a table that others refer to, and of one that refers to itself, are locked and looked for in the same way before and
/// behind the change; so are rows written unread. Guard: the number of the rows stays.
#[test]
fn who_refers_to_rows_finds_them_across_the_change() {
    for (from, to) in ways() {
        simulate(move |sim| {
            let db = open(&disk());
            let parents = table_of(&db, "t", of(from));
            let key = ForeignKey::new("parent", &["parent"], "t", &["id"]);
            let schema = Schema::builder().column("id", ColumnType::U64).column("parent", ColumnType::U64);
            let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_parent", &["parent"]));
            let children = db.create_table("children", schema.foreign_key(key).build().unwrap()).unwrap();
            insert(&db, &parents, 0..50).unwrap();
            let gate = sim.hold("build.batch");
            let changing = change(&db, &parents, to);
            gate.wait_reached();
            let mut child = db.begin().unwrap();
            child.insert(&children, &[Value::U64(1), Value::U64(7)]).unwrap();
            gate.open();
            changing.join().unwrap().unwrap();
            let mut tx = db.begin().unwrap();
            assert!(matches!(tx.delete_row(&parents, &[Value::U64(7)]), Err(Error::LockTimeout { .. })));
            tx.insert(&parents, &row(60)).unwrap();
            child.insert(&children, &[Value::U64(2), Value::U64(8)]).unwrap();
            let orphan = child.insert(&children, &[Value::U64(3), Value::U64(99)]);
            assert!(matches!(orphan, Err(Error::ForeignKey(_))), "{orphan:?}");
            child.commit().unwrap();
            let kept = tx.delete_row(&parents, &[Value::U64(8)]);
            assert!(matches!(kept, Err(Error::ForeignKey(_))), "{kept:?}");
            tx.commit().unwrap();
            sound(&db);
        });
    }
}

/// Rows that nobody looks at before he writes them.
#[test]
fn rows_written_unread_beside_the_change() {
    for (from, to) in ways() {
        simulate(move |sim| {
            let db = open(&disk());
            let t = table_of(&db, "t", of(from));
            insert(&db, &t, 0..100).unwrap();
            for point in ["build.registered", "build.swept", "build.batch"] {
                let gate = sim.hold(point);
                let changing = change(&db, &t, if structure(&t) == from { to } else { from });
                gate.wait_reached();
                let mut tx = db.begin().unwrap();
                (50..70).for_each(|id| assert!(tx.remove_row(&t, &[Value::U64(id)]).unwrap()));
                (60..130).for_each(|id| assert!(tx.put_row(&t, &row(id)).unwrap()));
                tx.commit().unwrap();
                gate.open();
                changing.join().unwrap().unwrap();
                db.settle().unwrap();
                assert!(seen(&db.snapshot().unwrap(), &t).unwrap().keys().copied().eq((0..50).chain(60..130)));
                sound(&db);
            }
        });
    }
}

/// A table is dropped, emptied or renamed while its rows are kept as they were for a snapshot: that goes on, the snapshot reads what
/// it saw or is told, and everything comes back. Guard: what is kept is let go of without the table's rows.
#[test]
fn a_table_goes_while_its_rows_are_kept_as_they_were() {
    for what in ["drop", "truncate", "rename"] {
        simulate(move |_| {
            let db = open(&disk());
            let before = live_bytes(&db);
            let (t, model) = made_of(&db, Structure::Btree);
            let old = db.snapshot().unwrap();
            let mut cursor = old.scan(&t, trefoil::ALL).unwrap();
            assert!(cursor.next().unwrap().is_some());
            delete(&db, &t, 3);
            db.change_table_rows(&t, of(Structure::Lsm)).unwrap();
            let mut second = old.scan(&t, trefoil::ALL).unwrap();
            assert!(second.next().unwrap().is_some());
            match what {
                "drop" => db.drop_table("t").unwrap(),
                "truncate" => drop(db.truncate_table("t").unwrap()),
                _ => db.rename_table("t", "other").unwrap(),
            }
            live_bytes(&db);
            for cursor in [&mut cursor, &mut second] {
                let mut rows = 1;
                while cursor.next().unwrap().is_some() {
                    rows += 1;
                }
                assert_eq!(rows, model.len(), "{what}");
            }
            drop((cursor, second));
            match what {
                "rename" => assert!(seen(&old, &t).unwrap() == model),
                _ => assert!(seen(&old, &t).is_err()),
            }
            drop(old);
            drop(t);
            let behind = live_bytes(&db);
            if what != "rename" {
                assert!(behind < before + (8 << 10), "{what}: {before} bytes before, {behind} behind it");
            }
            sound(&db);
        });
    }
}

/// A value longer than what a commit puts in place is built as others are: in rows made anew, and in an index of a front, which has
/// the whole column. It is there behind a crash. Guard: one entry of a build is put in place, however long.
#[test]
fn a_build_puts_a_long_value_in_place() {
    for (from, to) in ways() {
        simulate(move |_| {
            let disk = disk();
            let options = Options { log_capacity_bytes: 8 << 20, log_segment_bytes: 2 << 20, ..options(&disk) };
            let db = Database::open("/db", options.clone()).unwrap();
            let schema = Schema::builder().column("id", ColumnType::U64).column("text", ColumnType::Bytes);
            let schema = schema.primary_key(&["id"]).primary_options(of(from)).build().unwrap();
            let t = db.create_table("t", schema).unwrap();
            let long = vec![7; (1 << 20) + 1];
            let mut tx = db.begin().unwrap();
            (0..3).for_each(|id| tx.insert(&t, &[Value::U64(id), Value::Bytes((&long).into())]).unwrap());
            tx.commit().unwrap();
            db.change_table_rows(&t, of(to)).unwrap();
            let begins = IndexSchema::of_parts("begins", vec![KeyPart::new("text").front(3)]).with_options(of(from));
            db.create_table_indexes(&t, vec![begins]).unwrap();
            drop(t);
            let (_disk, db, t) = again(&disk, db, &options);
            assert_eq!(
                db.snapshot().unwrap().get_row(&t, &[Value::U64(2)]).unwrap().unwrap()[1],
                Value::Bytes((&long).into())
            );
            agrees(&db, &t, "begins");
        });
    }
}
