//! Who has an entry of rows, or a snapshot, while these get another structure (rule A16): nobody misses what is committed behind his
//! back. Every test says which guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crate::rows_anew::*;
use crate::support::*;
use trefoil::{ALL, Database, Error, LockMode, Locking, Options, Rows, Structure, Table, Value};
use vfs::fault::{Action, Class, Rule};

fn rest_of(mut cursor: Rows<'_>) -> usize {
    let mut rows = 0;
    while cursor.next().unwrap().is_some() {
        rows += 1;
    }
    rows
}

/// A locking cursor that came in behind a change has a pair, and reads what the second change would make anew: that waits for it, in
/// vain if the cursor is of the same session, and says what for. The cursor finds every row. Guard: the wait is for all former rows,
/// those in whose place the new ones stand alone among them.
#[test]
fn a_second_change_waits_for_who_has_the_pair_of_the_first() {
    simulate(|_| {
        let db = open(&disk());
        let (t, mut model) = made_of(&db, Structure::Btree);
        let old = db.snapshot().unwrap();
        delete(&db, &t, 1);
        model.remove(&1);
        db.change_table_rows(&t, of(Structure::Lsm)).unwrap();
        let tx = db.begin().unwrap();
        let mut cursor = tx.scan_locked(&t, ALL, LockMode::Shared).unwrap();
        assert!(cursor.next().unwrap().is_some());
        drop(old);
        live_bytes(&db);
        let second = db.change_table_rows(&t, of(Structure::Betree));
        live_bytes(&db);
        insert(&db, &t, 1500..1600).unwrap();
        model.extend((1500..1600).map(|id| (id, id as u32 % 7)));
        live_bytes(&db);
        assert_eq!(1 + rest_of(cursor), model.len());
        let Err(Error::LockTimeout { index, key, waited_ms }) = second else { panic!("{second:?}") };
        assert_eq!((index.as_str(), waited_ms), ("t", 500));
        assert!(key.contains("before its last change of structure"), "{key}");
        drop(tx);
        db.change_table_rows(&t, of(Structure::Betree)).unwrap();
        are(&db, &t, &model);
    });
}

/// A locking cursor that came in while a change was under way that was given up reads the structure that is still there, through
/// the pair of that change. Behind the next change it finds every row all the same. Guard: who has that pair has the entry of what
/// is there.
#[test]
fn who_has_the_pair_of_a_change_that_was_given_up_misses_nothing() {
    for (from, to) in ways() {
        simulate(move |_| {
            let db = open(&disk());
            let (t, mut model) = made_of(&db, from);
            let mut older = db.begin().unwrap();
            older.insert(&t, &row(500)).unwrap();
            let changing = change(&db, &t, to);
            sleep(50);
            let tx = db.begin().unwrap();
            let mut cursor = tx.scan_locked(&t, ALL, LockMode::Shared).unwrap();
            assert!(cursor.next().unwrap().is_some());
            assert!(matches!(changing.join().unwrap(), Err(Error::LockTimeout { .. })));
            older.commit().unwrap();
            model.insert(500, 500 % 7);
            db.change_table_rows(&t, of(to)).unwrap();
            live_bytes(&db);
            insert(&db, &t, 1500..1600).unwrap();
            model.extend((1500..1600).map(|id| (id, id as u32 % 7)));
            live_bytes(&db);
            assert_eq!(1 + rest_of(cursor), model.len());
            drop(tx);
            are(&db, &t, &model);
        });
    }
}

/// A snapshot that is being taken, as of a moment before the change, sees the rows of that moment. Guard: who lets former rows go
/// looks at the floor of views, not at the snapshots that live.
#[test]
fn a_snapshot_that_is_being_taken_sees_what_was_there() {
    for (from, to) in ways() {
        simulate(move |sim| {
            let db = open(&disk());
            let (t, mut model) = made_of(&db, from);
            let was = model.clone();
            let gate = sim.hold("snapshot.loaded");
            let (other, table) = (db.clone(), t.clone());
            let reader = spawn("reader", move || seen(&other.snapshot().unwrap(), &table));
            gate.wait_reached();
            delete(&db, &t, 1);
            model.remove(&1);
            db.change_table_rows(&t, of(to)).unwrap();
            live_bytes(&db);
            gate.open();
            let found = reader.join().unwrap();
            assert!(found.as_ref().is_ok_and(|found| *found == was), "{:?}", found.map(|found| found.len()));
            are(&db, &t, &model);
        });
    }
}

/// Rows that are hidden from older snapshots while they are made anew stay so, at whatever step that is, for who has an entry from before
/// and for who gets one behind it; also if the change is given up. Guard: the moment is that of all entries.
#[test]
fn rows_hidden_beside_the_change_stay_hidden() {
    for (n, point) in
        ["build.registered", "build.batch", "ddl.registered", "rows.switched", "build.public"].into_iter().enumerate()
    {
        for is_cancelled in [false, true] {
            simulate(move |sim| {
                let db = open(&disk());
                let (t, _) = made_of(&db, Structure::Btree);
                let (old, reader) = (db.snapshot().unwrap(), db.begin().unwrap());
                let one = [Value::U64(1)];
                assert!(reader.get_row(&t, &one).unwrap().is_some());
                assert!(old.get_row(&t, &one).unwrap().is_some());
                delete(&db, &t, 2);
                let gate = sim.hold(point);
                let changing = change(&db, &t, Structure::Lsm);
                gate.wait_reached();
                db.hide_from_older_snapshots(&t).unwrap();
                let are_refused = || {
                    let found = [old.get_row(&t, &one), reader.get_row(&t, &one)];
                    for found in found {
                        assert!(matches!(found, Err(Error::DefinitionChanged { .. })), "{point}: {found:?}");
                    }
                    assert!(matches!(old.scan(&t, ALL).err(), Some(Error::DefinitionChanged { .. })), "{point}");
                };
                are_refused();
                if is_cancelled {
                    db.index_builds().iter().for_each(|build| build.cancel());
                }
                gate.open();
                assert_eq!(changing.join().unwrap().is_ok(), !is_cancelled || n > 1, "{point}");
                are_refused();
                assert_eq!(seen(&db.snapshot().unwrap(), &t).unwrap().len() as u64, TABLE_ROWS - 1);
            });
        }
    }
}

/// Former rows are let go of by the background, but not beside another change of the table, which takes its rows for what they were when
/// it looked: a cursor goes on. Guard: the turn.
#[test]
fn former_rows_are_kept_beside_another_change() {
    simulate(|sim| {
        let db = open(&disk());
        let (t, _) = made_of(&db, Structure::Btree);
        let old = db.snapshot().unwrap();
        delete(&db, &t, 1);
        db.change_table_rows(&t, of(Structure::Betree)).unwrap();
        live_bytes(&db);
        let gate = sim.hold("ddl.truncated");
        let other = db.clone();
        let emptying = spawn("truncate", move || drop(other.truncate_table("t").unwrap()));
        gate.wait_reached();
        drop(old);
        sleep(2000);
        let now = db.snapshot().unwrap();
        let mut cursor = now.scan(&t, ALL).unwrap();
        assert!(cursor.next().unwrap().is_some());
        gate.open();
        emptying.join().unwrap();
        for n in 0..3 {
            live_bytes(&db);
            let more = table(&db, &format!("more{n}"));
            insert(&db, &more, 0..1000).unwrap();
        }
        live_bytes(&db);
        assert_eq!(1 + rest_of(cursor) as u64, TABLE_ROWS - 1);
    });
}

/// What a process leaves that ends before the switch is freed by its owner's number: nothing has to be looked for among what other
/// indexes name, which cannot be if one of them is damaged. Guard: the owner that is said before the state.
#[test]
fn what_was_being_made_is_freed_beside_damage() {
    for to in [Structure::Betree, Structure::Lsm] {
        simulate(move |sim| {
            let disk = disk();
            let db = open(&disk);
            let notes = index(&db, "notes");
            (0..20).for_each(|n| fill(&db, &notes, n * 100, n * 100 + 100, 20).unwrap());
            let t = table_of(&db, "t", of(Structure::Btree));
            insert(&db, &t, 0..3000).unwrap();
            let before = live_bytes(&db);
            let gate = sim.hold("ddl.registered");
            let changing = change(&db, &t, to);
            gate.wait_reached();
            assert!(live_bytes(&db) > before + (20 << 10));
            disk.power_cut(5);
            gate.open();
            assert!(changing.join().unwrap().is_err());
            drop((t, notes));
            let disk = cut(&disk, db);
            let at = crate::support::damage::block_of(&disk, 1, (1, 0)).offset;
            let file = std::path::Path::new("/db/data.trefoil");
            crate::support::surgery::rot(&disk, file, |bytes| bytes[at as usize + 70] ^= 8);
            let db = open(&disk);
            assert!(live_bytes(&db) < before + (8 << 10), "{} bytes of {before}", live_bytes(&db));
        });
    }
}

/// Rows that one transaction may insert until the disk has no room for more.
fn room(db: &Database, t: &Table) -> u64 {
    let mut tx = db.begin().unwrap();
    for id in 10_000.. {
        match tx.insert(t, &row(id)) {
            Ok(()) => {}
            Err(Error::DiskFull { .. }) => return id - 10_000,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("the disk is finite")
}

/// Who writes to two structures may dirty a leaf of each with every row: the disk has room for half as many (rule P4). Guard: what a
/// write owes is owed for the one beside, too.
#[test]
fn p4_rows_in_two_structures_owe_twice() {
    simulate(|sim| {
        let disk = disk();
        let limited = Options { budget_bytes: 1 << 20, data_bytes_max: Some(4 << 20), ..options(&disk) };
        let db = Database::open("/db", limited).unwrap();
        let t = table_of(&db, "t", of(Structure::Btree));
        insert(&db, &t, 0..TABLE_ROWS).unwrap();
        let alone = room(&db, &t);
        let gate = sim.hold("build.batch");
        let changing = change(&db, &t, Structure::Betree);
        gate.wait_reached();
        let both = room(&db, &t);
        gate.open();
        changing.join().unwrap().unwrap();
        assert!(alone > 100 && both < alone * 3 / 4, "{both} rows, {alone} before");
    });
}

/// An error behind the switch, before the catalog knows: whoever has the table goes on reading it, nobody writes, and the next opening
/// finds the rows in the structure that the catalog says, whether the record was written or not. Guard: what is there takes the number
/// of the rows back.
#[test]
fn an_error_behind_the_switch_is_made_good_by_the_next_opening() {
    for (from, to) in ways() {
        simulate(move |sim| {
            let disk = disk();
            let options = options(&disk);
            let db = open(&disk);
            let (t, mut model) = made_of(&db, from);
            let gate = sim.hold("rows.switched");
            let changing = change(&db, &t, to);
            gate.wait_reached();
            work(&db, &t, &mut model, 600);
            disk.faults().add(Rule::new(Action::Eio).on(Class::Write).path("wal").forever());
            gate.open();
            let failed = changing.join().unwrap();
            assert!(failed.is_err());
            disk.faults().clear();
            assert_eq!((structure(&t), kept_in(&db)), (from, from));
            assert!(seen(&db.snapshot().unwrap(), &t).unwrap() == model);
            let refused = insert(&db, &t, 1500..1501);
            assert!(refused.is_err());
            drop(t);
            let (disk, db, t) = again(&disk, db, &options);
            let now = structure(&t);
            assert!([from, to].contains(&now) && kept_in(&db) == now);
            are(&db, &t, &model);
            work(&db, &t, &mut model, 700);
            drop(t);
            let (_disk, db, t) = again(&disk, db, &options);
            assert_eq!((structure(&t), kept_in(&db)), (now, now));
            are(&db, &t, &model);
        });
    }
}

/// A change that is cancelled while it deletes what is no row ends there. Guard: it is asked for at each batch.
#[test]
fn a_change_is_cancelled_while_it_sweeps() {
    simulate(|sim| {
        let db = open(&disk());
        let (t, model) = made_of(&db, Structure::Btree);
        let (gate, _never) = (sim.hold("build.sweeping"), sim.hold("build.swept"));
        let changing = change(&db, &t, Structure::Lsm);
        gate.wait_reached();
        db.index_builds()[0].cancel();
        gate.open();
        assert!(matches!(changing.join().unwrap(), Err(Error::Cancelled)));
        are(&db, &t, &model);
        assert!(beside(&db).is_empty());
    });
}

fn counted(db: &Database) -> Vec<(String, u64, u64)> {
    let indexes = db.stats().indexes.into_iter().filter(|(name, _)| name.contains("primary"));
    indexes.map(|(name, stats)| (name, stats.live_keys, stats.changes)).collect()
}

/// Each structure is shown under a name of its own for as long as it is there, once, with its own counts, which go on. Guards: former rows
/// are shown; they are of their table.
#[test]
fn either_structure_is_shown_by_its_name() {
    simulate(|sim| {
        let db = open(&disk());
        let (t, mut model) = made_of(&db, Structure::Btree);
        let names = || counted(&db).into_iter().map(|(name, ..)| name).collect::<Vec<_>>();
        assert_eq!(names(), ["t.primary"]);
        let old = db.snapshot().unwrap();
        delete(&db, &t, 1);
        let gate = sim.hold("build.batch");
        let changing = change(&db, &t, Structure::Betree);
        gate.wait_reached();
        assert_eq!(names(), ["t.primary", "t.primary to be"]);
        let was = counted(&db).swap_remove(0);
        gate.open();
        changing.join().unwrap().unwrap();
        db.settle().unwrap();
        assert_eq!(names(), ["t.primary", "t.former primary"]);
        let former = counted(&db).swap_remove(1);
        assert_eq!((was.1, was.2), (former.1, former.2));
        let all: Vec<_> = db.indexes().into_iter().map(|index| (index.full_name(), index.options.structure)).collect();
        let shown = |name: &str| all.iter().filter(|(other, _)| other == name).map(|(_, s)| *s).collect::<Vec<_>>();
        assert_eq!((shown("t.primary"), shown("t.former primary")), (vec![Structure::Betree], vec![Structure::Btree]));
        delete(&db, &t, 2);
        let now = counted(&db).swap_remove(0);
        assert_eq!(counted(&db).swap_remove(1), former, "nobody writes to it");
        drop(old);
        live_bytes(&db);
        assert_eq!(names(), ["t.primary"]);
        assert_eq!(counted(&db).swap_remove(0).2, now.2);
        model.retain(|id, _| ![1, 2].contains(id));
        are(&db, &t, &model);
    });
}

/// A row that is locked and read before, in or behind the change, and is kept for its writer, is changed behind it as it is: what others
/// have committed before the lock is seen, the index has the one entry. Guard: what others commit beside the change is in both.
#[test]
fn a_row_kept_across_the_change_is_changed_as_it_is() {
    for (from, to) in ways() {
        for (read_at, is_alone) in (0..4).flat_map(|n| [(n, false), (n, true)]) {
            simulate(move |sim| {
                let disk = disk();
                let options = options(&disk);
                let db = open(&disk);
                let (t, mut model) = made_of(&db, from);
                let old = db.snapshot().unwrap();
                delete(&db, &t, 1);
                model.remove(&1);
                let (mut tx, mut gone) = (db.begin().unwrap(), db.begin().unwrap());
                let mut turn = 0;
                let mut reads = |at: u32, tx: &trefoil::Transaction, gone: &trefoil::Transaction| {
                    if at > read_at {
                        return;
                    }
                    turn += 1;
                    let mut other = db.begin().unwrap();
                    for id in [5, 6] {
                        assert!(other.update(&t, &[Value::U64(id), Value::U32(50 + turn)]).unwrap());
                    }
                    other.commit().unwrap();
                    if at == read_at {
                        for (id, tx) in [(5, tx), (6, gone)] {
                            let row = tx.get_row_locked(&t, &[Value::U64(id)], Locking::EXCLUSIVE).unwrap().unwrap();
                            assert_eq!(row[1], Value::U32(50 + turn));
                        }
                    }
                };
                reads(0, &tx, &gone);
                let (build, switch) = (sim.hold("build.batch"), sim.hold("rows.switched"));
                let changing = change(&db, &t, to);
                build.wait_reached();
                reads(1, &tx, &gone);
                build.open();
                switch.wait_reached();
                reads(2, &tx, &gone);
                switch.open();
                changing.join().unwrap().unwrap();
                reads(3, &tx, &gone);
                let mut old = Some(old);
                if is_alone {
                    old.take();
                    live_bytes(&db);
                }
                assert!(tx.update(&t, &[Value::U64(5), Value::U32(99)]).unwrap());
                assert!(gone.delete_row(&t, &[Value::U64(6)]).unwrap());
                tx.commit().unwrap();
                gone.commit().unwrap();
                model.insert(5, 99);
                model.remove(&6);
                are(&db, &t, &model);
                drop((old, t));
                let (_disk, db, t) = again(&disk, db, &options);
                are(&db, &t, &model);
            });
        }
    }
}
