//! Rows in another structure, and keys that come along with them: the catalog's record behind the switch decides about all of it (rules
//! A16, A26). Every test says which guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::rows_anew::*;
use crate::support::*;
use trefoil::{ColumnType, Database, Error, IndexSchema, Options, RowsChange, Structure, Table, TableChanges, Value};
use vfs::fault::{Action, Class, Rule};
use vfs::sim::SimDisk;

/// What becomes of keys in the moment in which the rows get another structure.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Keys {
    Stay,
    /// One more.
    Added,
    /// Another one takes the place and the name of the one that is there.
    Anew,
}

const KEYS: [Keys; 3] = [Keys::Stay, Keys::Added, Keys::Anew];

/// The rows are made anew, and what comes along with them is built: one step is left.
fn begun(db: &Database, t: &Table, to: Structure, keys: Keys) -> (RowsChange, TableChanges) {
    let none = TableChanges::new();
    if keys != Keys::Stay {
        let beside = IndexSchema::new("beside", &["colour"]).with_options(of(Structure::Lsm));
        db.create_table_indexes(t, vec![beside]).unwrap();
    }
    let changes = match keys {
        Keys::Stay => none,
        Keys::Added => none.rename_index("beside", "more"),
        Keys::Anew => none.drop_index("by_colour").rename_index("beside", "by_colour"),
    };
    (db.begin_table_rows(t, of(to)).unwrap(), changes)
}

/// Rows and keys are all as they were, or all as they were to be, which is told; nothing is lost, nothing is wrong, nothing is beside them but what
/// was built and not wanted yet.
fn is_behind(db: &Database, t: &Table, model: &Model, (from, to): (Structure, Structure), keys: Keys) -> bool {
    assert_eq!(structure(t), kept_in(db));
    let there = t.schema();
    let mut found: Vec<_> = there.indexes().iter().map(|index| (index.name(), index.options().structure)).collect();
    found.retain(|(name, _)| *name != "beside");
    let behind: &[_] = match keys {
        Keys::Stay => &[("by_colour", Structure::Btree)],
        Keys::Added => &[("by_colour", Structure::Btree), ("more", Structure::Lsm)],
        Keys::Anew => &[("by_colour", Structure::Lsm)],
    };
    let is_behind = structure(t) == to;
    assert!(is_behind || structure(t) == from);
    let wanted = if is_behind { behind } else { &[("by_colour", Structure::Btree)] };
    assert_eq!(found, wanted, "rows from {from:?} are {:?}", structure(t));
    are(db, t, model);
    there.indexes().iter().for_each(|index| agrees(db, t, index.name()));
    is_behind
}

/// The rows, which are the first index, lie on the disk as their table says. Btree and Betree are not told apart.
fn lie_as_said(disk: &SimDisk, t: &Table) {
    let vfs: Arc<dyn vfs::Vfs> = Arc::new(disk.clone());
    let manifest = trefoil::fuzzing::Manifest::newest(&vfs, std::path::Path::new("/db")).unwrap().unwrap();
    let rows = manifest.indexes.iter().find(|index| index.id == base::IndexId(1)).unwrap();
    let is_lsm = lsm::is_state(trefoil::fuzzing::state_of_structure(&rows.state));
    assert_eq!(is_lsm, structure(t) == Structure::Lsm, "{:?}", structure(t));
}

/// An opening whose machine goes down in the checkpoint that ends it; the disk as it is found then.
fn opened_in_vain(sim: &vfs::sim::Handle, disk: &SimDisk, options: &Options, point: &'static str) -> SimDisk {
    let gate = sim.hold(point);
    let options = Options { vfs: Arc::new(disk.clone()), ..options.clone() };
    let opening = spawn("opening", move || Database::open("/db", options).map(drop));
    gate.wait_reached();
    disk.power_cut(2);
    gate.open();
    let _ = opening.join().unwrap();
    disk.reboot()
}

/// The process or the machine ends at any step around the switch and the record: whoever opens it then, to read only, to be cut off himself, or for good,
/// finds rows and keys of before, or of behind. Guards: the catalog is asked which; the states change back, not the settings alone.
#[test]
fn a26_rows_and_keys_are_of_before_or_of_behind() {
    for (from, to) in ways() {
        for (n, keys) in KEYS.into_iter().enumerate() {
            for point in ["ddl.registered", "checkpoint.published", "rows.switched", "rows.recorded", "build.public"] {
                simulate(move |sim| {
                    let disk = disk();
                    let options = options(&disk);
                    let db = open(&disk);
                    let (t, mut model) = made_of(&db, from);
                    let (changing, changes) = begun(&db, &t, to, keys);
                    work(&db, &t, &mut model, 500);
                    let gate = sim.hold(point);
                    let finishing = spawn("finish", move || changing.finish(&changes));
                    gate.wait_reached();
                    if keys == Keys::Stay {
                        work(&db, &t, &mut model, 600);
                    }
                    disk.power_cut(n as u64);
                    gate.open();
                    let is_done = finishing.join().unwrap().is_ok();
                    assert_eq!(is_done, ["rows.recorded", "build.public"].contains(&point), "{point}");
                    drop(t);
                    let mut disk = cut(&disk, db);
                    let only = Options { read_only: true, vfs: Arc::new(disk.clone()), ..options.clone() };
                    let db = Database::open("/db", only).unwrap();
                    let t = db.table("t").unwrap();
                    assert_eq!((structure(&t), kept_in(&db)), if is_done { (to, to) } else { (from, from) }, "{point}");
                    assert!(seen(&db.snapshot().unwrap(), &t).unwrap() == model, "{point}");
                    drop((t, db));
                    for point in ["checkpoint.composed", "checkpoint.before_publish", "checkpoint.published"] {
                        disk = opened_in_vain(sim, &disk, &options, point);
                    }
                    let (disk, db, t) = again(&disk, open(&disk), &options);
                    assert_eq!(is_behind(&db, &t, &model, (from, to), keys), is_done, "{point}");
                    lie_as_said(&disk, &t);
                    work(&db, &t, &mut model, 700);
                    drop(t);
                    let (_disk, db, t) = again(&disk, db, &options);
                    assert_eq!(is_behind(&db, &t, &model, (from, to), keys), is_done, "{point}");
                    assert!(beside(&db).is_empty(), "{point}");
                    let used = live_bytes(&db);
                    assert!(used < 300 << 10, "{point}: {used} bytes are live");
                    db.change_table_rows(&t, of(if is_done { from } else { to })).unwrap();
                    are(&db, &t, &model);
                });
            }
        }
    }
}

/// A change of definitions that no record of the log holds.
fn too_many_columns(mut changes: TableChanges) -> TableChanges {
    for n in 0..400 {
        changes = changes.add_nullable(&format!("{n:0250}"), ColumnType::U32, Value::Null);
    }
    changes
}

/// The record is refused behind the switch, and nothing else is wrong: everything is as it was, and goes on; so it is if the machine goes down before
/// another checkpoint. Guard: the catalog is asked.
#[test]
fn a_record_that_is_refused_behind_the_switch_leaves_everything() {
    for (from, to) in ways() {
        for (keys, are_dropped) in KEYS.into_iter().flat_map(|keys| [(keys, false), (keys, true)]) {
            simulate(move |_| {
                let disk = disk();
                let options = Options { background: false, ..options(&disk) };
                let db = Database::open("/db", options.clone()).unwrap();
                let (t, mut model) = made_of(&db, from);
                let (changing, changes) = begun(&db, &t, to, keys);
                work(&db, &t, &mut model, 500);
                let before = db.stats().checkpoints;
                let refused = changing.finish(&too_many_columns(changes)).unwrap_err();
                assert!(matches!(refused, Error::Limit { .. }), "{refused}");
                assert_eq!(db.stats().checkpoints, before + 1, "the switch was made");
                assert!(!is_behind(&db, &t, &model, (from, to), keys));
                work(&db, &t, &mut model, 600);
                if are_dropped && keys != Keys::Stay {
                    db.drop_table_index(&t, "beside").unwrap();
                }
                assert_eq!(db.stats().checkpoints, before + 1, "nor another one");
                drop(t);
                let (disk, db, t) = again(&disk, db, &options);
                assert!(!is_behind(&db, &t, &model, (from, to), keys));
                lie_as_said(&disk, &t);
                work(&db, &t, &mut model, 700);
                drop(t);
                let (_disk, db, t) = again(&disk, db, &options);
                assert!(!is_behind(&db, &t, &model, (from, to), keys));
                assert!(beside(&db).is_empty());
            });
        }
    }
}

/// The log fails under the record, which may be found then or not: rows and keys go by it. Guard: the same.
#[test]
fn what_is_found_of_a_record_whose_log_failed_decides() {
    let met: Arc<[AtomicU64; 2]> = Arc::default();
    for (from, to) in ways() {
        for (keys, class) in KEYS.into_iter().flat_map(|keys| [(keys, Class::Write), (keys, Class::Sync)]) {
            for seed in 0..4 {
                let met = met.clone();
                simulate(move |sim| {
                    let disk = disk();
                    let options = options(&disk);
                    let db = open(&disk);
                    let (t, mut model) = made_of(&db, from);
                    let (changing, changes) = begun(&db, &t, to, keys);
                    work(&db, &t, &mut model, 500);
                    let gate = sim.hold("rows.switched");
                    let finishing = spawn("finish", move || changing.finish(&changes));
                    gate.wait_reached();
                    disk.faults().add(Rule::new(Action::Eio).on(class).path("wal").forever());
                    gate.open();
                    let failed = finishing.join().unwrap().unwrap_err();
                    assert!(matches!(failed, Error::CommitOutcomeUnknown { .. }), "{failed}");
                    disk.faults().clear();
                    assert!(seen(&db.snapshot().unwrap(), &t).unwrap() == model);
                    assert!(insert(&db, &t, 1500..1501).is_err());
                    disk.power_cut(seed);
                    drop((t, db));
                    let (disk, db, t) = again(&disk, open(&disk.reboot()), &options);
                    met[usize::from(is_behind(&db, &t, &model, (from, to), keys))].fetch_add(1, Ordering::Relaxed);
                    lie_as_said(&disk, &t);
                    work(&db, &t, &mut model, 700);
                    drop(t);
                    let (_disk, db, t) = again(&disk, db, &options);
                    is_behind(&db, &t, &model, (from, to), keys);
                });
            }
        }
    }
    assert!(met.iter().all(|count| count.load(Ordering::Relaxed) > 0), "{met:?}");
}

/// What an earlier change has left and nobody has freed yet is of the same table: the rows are not there. Guard: they are by the highest number.
#[test]
fn rows_of_before_are_told_from_what_an_earlier_change_left() {
    for (from, to) in ways() {
        simulate(move |sim| {
            let disk = disk();
            let options = Options { background: false, ..options(&disk) };
            let db = Database::open("/db", options.clone()).unwrap();
            let (t, mut model) = made_of(&db, to);
            db.change_table_rows(&t, of(from)).unwrap();
            work(&db, &t, &mut model, 500);
            let gate = sim.hold("rows.switched");
            let changing = change(&db, &t, to);
            gate.wait_reached();
            work(&db, &t, &mut model, 600);
            disk.power_cut(1);
            gate.open();
            assert!(changing.join().unwrap().is_err());
            drop(t);
            let (disk, db, t) = again(&disk, db, &options);
            assert!(!is_behind(&db, &t, &model, (from, to), Keys::Stay));
            lie_as_said(&disk, &t);
            assert!(live_bytes(&db) < 300 << 10);
        });
    }
}
