//! The rows of a table in another structure, beside its readers and writers (rule A16). Every test says which guard it stands for:
//! with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;

use crate::support::*;
use trefoil::{
    ALL, BuildStage, Database, Error, IndexOptions, LockMode, Locking, Options, Snapshot, Structure, Table, Value,
};
use vfs::sim::SimDisk;
use vfs::thread::JoinHandle;

pub const STRUCTURES: [Structure; 3] = [Structure::Btree, Structure::Betree, Structure::Lsm];

/// Ids and colours.
pub type Model = BTreeMap<u64, u32>;

pub fn of(structure: Structure) -> IndexOptions {
    IndexOptions { structure, ..small_nodes() }
}

/// From each structure to each other.
pub fn ways() -> impl Iterator<Item = (Structure, Structure)> {
    let all = STRUCTURES.into_iter().flat_map(|from| STRUCTURES.map(|to| (from, to)));
    all.filter(|(from, to)| from != to)
}

/// A table of [`TABLE_ROWS`] rows in this structure with an index of colours.
pub fn made_of(db: &Database, structure: Structure) -> (Table, Model) {
    let t = table_of(db, "t", of(structure));
    insert(db, &t, 0..TABLE_ROWS).unwrap();
    db.create_table_indexes(&t, vec![by_colour()]).unwrap();
    (t, (0..TABLE_ROWS).map(|id| (id, id as u32 % 7)).collect())
}

pub fn change(db: &Database, t: &Table, to: Structure) -> JoinHandle<Result<(), Error>> {
    let (db, t) = (db.clone(), t.clone());
    spawn("change", move || db.change_table_rows(&t, of(to)))
}

/// Some of everything, in transactions of their own and in one.
pub fn work(db: &Database, t: &Table, model: &mut Model, from: u64) {
    let mut tx = db.begin().unwrap();
    for id in from..from + 30 {
        tx.insert(t, &row(id)).unwrap();
        model.insert(id, id as u32 % 7);
    }
    tx.commit().unwrap();
    let gone: Vec<u64> = model.keys().copied().step_by(9).collect();
    for id in gone {
        delete(db, t, id);
        model.remove(&id);
    }
    let mut tx = db.begin().unwrap();
    for (id, colour) in model.iter_mut().step_by(5) {
        *colour = (from % 1000) as u32 + 10;
        assert!(tx.update(t, &[Value::U64(*id), Value::U32(*colour)]).unwrap());
    }
    tx.commit().unwrap();
}

pub fn seen(snapshot: &Snapshot, t: &Table) -> Result<Model, Error> {
    let (mut rows, mut all) = (snapshot.scan(t, ALL)?, Model::new());
    while let Some(row) = rows.next()? {
        let (Value::U64(id), Value::U32(colour)) = (&row[0], &row[1]) else { panic!("{row:?}") };
        all.insert(*id, *colour);
    }
    Ok(all)
}

/// The rows are these, each is found by itself, the index agrees, and nothing is wrong.
pub fn are(db: &Database, t: &Table, model: &Model) {
    let tx = db.begin().unwrap();
    for id in 0..2000 {
        let found = tx.get_row(t, &[Value::U64(id)]).unwrap();
        assert_eq!(found, model.get(&id).map(|colour| vec![Value::U64(id), Value::U32(*colour)]), "{id}");
    }
    drop(tx);
    let found = seen(&db.snapshot().unwrap(), t).unwrap();
    assert!(found == *model, "{} rows, {} wanted", found.len(), model.len());
    agrees(db, t, "by_colour");
}

pub fn structure(t: &Table) -> Structure {
    t.schema().primary_options().structure
}

/// What the rows are kept in, as the engine shows it.
pub fn kept_in(db: &Database) -> Structure {
    db.indexes().into_iter().find(|index| index.name == "primary").unwrap().options.structure
}

/// Names of what stands beside the rows.
pub fn beside(db: &Database) -> Vec<String> {
    db.settle().unwrap();
    db.checkpoint().unwrap();
    let named = db.stats().indexes.into_iter().map(|(name, _)| name);
    named.filter(|name| name.contains("to be")).collect()
}

/// Everything by another opening.
pub fn again(disk: &SimDisk, db: Database, options: &Options) -> (SimDisk, Database, Table) {
    let disk = cut(disk, db);
    let options = Options { vfs: std::sync::Arc::new(disk.clone()), ..options.clone() };
    let db = Database::open("/db", options).unwrap();
    let t = db.table("t").unwrap();
    (disk, db, t)
}

const POINTS: [&str; 8] = [
    "build.registered",
    "build.swept",
    "build.batch",
    "ddl.built",
    "checkpoint.composed",
    "ddl.registered",
    "rows.switched",
    "build.public",
];

/// From each structure to each other, writers come in at each step, and all that they do is there: at once, behind more of it, and
/// in a database that is opened anew. Guards: the pair applies to both and attaches to both; what the log has goes to new.
#[test]
fn a16_rows_get_another_structure_beside_writers() {
    for (from, to) in ways() {
        for (n, point) in POINTS.into_iter().enumerate() {
            simulate(move |sim| {
                let disk = disk();
                let inline = if n % 2 == 0 { 200 } else { 1 << 20 };
                let options = Options { inline_batch_bytes: inline, ..options(&disk) };
                let db = Database::open("/db", options.clone()).unwrap();
                let (t, mut model) = made_of(&db, from);
                work(&db, &t, &mut model, 500);
                let gate = sim.hold(point);
                let changing = change(&db, &t, to);
                gate.wait_reached();
                work(&db, &t, &mut model, 600);
                gate.open();
                work(&db, &t, &mut model, 700);
                changing.join().unwrap().unwrap();
                assert_eq!((structure(&t), kept_in(&db)), (to, to), "{point}");
                are(&db, &t, &model);
                work(&db, &t, &mut model, 800);
                are(&db, &t, &model);
                assert!(beside(&db).is_empty() && db.index_builds().is_empty());
                drop(t);
                let (disk, db, t) = again(&disk, db, &options);
                assert_eq!((structure(&t), kept_in(&db)), (to, to), "{point}");
                are(&db, &t, &model);
                work(&db, &t, &mut model, 900);
                db.change_table_rows(&t, of(from)).unwrap();
                are(&db, &t, &model);
                drop(t);
                let (_disk, db, t) = again(&disk, db, &options);
                are(&db, &t, &model);
            });
        }
    }
}

/// A snapshot from before, a cursor that is open, and a transaction that has read see what they saw, whatever is written behind
/// them; when they are over the rows are there once. Guards: who looks from before s reads old; old is kept for them, and written
/// for whoever came in before.
#[test]
fn a16c_who_looked_before_sees_what_was_there() {
    for (from, to) in ways() {
        simulate(move |sim| {
            let db = open(&disk());
            let (t, mut model) = made_of(&db, from);
            let (old, was) = (db.snapshot().unwrap(), model.clone());
            let mut cursor = old.scan(&t, ALL).unwrap();
            assert!(cursor.next().unwrap().is_some());
            let reader = db.begin().unwrap();
            assert!(reader.get_row(&t, &[Value::U64(1)]).unwrap().is_some());
            work(&db, &t, &mut model, 500);
            let gate = sim.hold("build.batch");
            let changing = change(&db, &t, to);
            gate.wait_reached();
            work(&db, &t, &mut model, 600);
            let (middle, then) = (db.snapshot().unwrap(), model.clone());
            gate.open();
            changing.join().unwrap().unwrap();
            work(&db, &t, &mut model, 700);
            for _ in 0..3 {
                db.settle().unwrap();
                db.checkpoint().unwrap();
            }
            assert!(seen(&old, &t).unwrap() == was);
            assert!(seen(&middle, &t).unwrap() == then);
            let mut rest = 1;
            while cursor.next().unwrap().is_some() {
                rest += 1;
            }
            assert_eq!(rest, was.len());
            for id in 0..800 {
                let row = reader.get_row(&t, &[Value::U64(id)]).unwrap();
                assert_eq!(row.is_some(), was.contains_key(&id), "{id}");
                assert_eq!(old.get_row(&t, &[Value::U64(id)]).unwrap().is_some(), was.contains_key(&id), "{id}");
            }
            are(&db, &t, &model);
            // Another change waits for them.
            let refused = db.change_table_rows(&t, of(from)).unwrap_err();
            assert!(matches!(refused, Error::LockTimeout { .. }), "{refused}");
            let both = live_bytes(&db);
            drop((cursor, reader));
            // Nobody has an entry from before: the snapshot alone keeps the rows.
            live_bytes(&db);
            assert!(seen(&old, &t).unwrap() == was);
            drop(old);
            assert!(seen(&middle, &t).unwrap() == then);
            drop(middle);
            let one = live_bytes(&db);
            assert!(one < both, "{one} bytes of {both}");
            are(&db, &t, &model);
            db.change_table_rows(&t, of(from)).unwrap();
            are(&db, &t, &model);
        });
    }
}

/// Bytes of blocks, once all that can be freed is.
pub fn live_bytes(db: &Database) -> u64 {
    for _ in 0..3 {
        db.settle().unwrap();
        db.checkpoint().unwrap();
    }
    db.stats().space.live_bytes
}

/// A transaction that has written before the change ends goes on behind it: it meets the locks of others and they its own, it reads
/// under locks what they commit, and what it commits is there. Guards: both structures are written for as long as somebody has an
/// entry from before; locks and ranges are the same.
#[test]
fn a16a_a_transaction_goes_on_across_the_change() {
    for (from, to) in ways() {
        simulate(move |sim| {
            let disk = disk();
            let db = open(&disk);
            let (t, mut model) = made_of(&db, from);
            let gate = sim.hold("build.batch");
            let changing = change(&db, &t, to);
            gate.wait_reached();
            let mut tx = db.begin().unwrap();
            tx.insert(&t, &row(1000)).unwrap();
            let bounds = ([Value::U64(1200)], [Value::U64(1300)]);
            let range = (std::ops::Bound::Included(&bounds.0[..]), std::ops::Bound::Included(&bounds.1[..]));
            assert!(tx.scan_locked(&t, range, LockMode::Shared).unwrap().next().unwrap().is_none());
            gate.open();
            changing.join().unwrap().unwrap();
            live_bytes(&db);
            let mut other = db.begin().unwrap();
            assert!(matches!(other.insert(&t, &row(1000)), Err(Error::LockTimeout { .. })));
            assert!(matches!(other.insert(&t, &row(1250)), Err(Error::LockTimeout { .. })));
            other.insert(&t, &row(1001)).unwrap();
            assert!(other.delete_row(&t, &[Value::U64(7)]).unwrap());
            let taken = tx.get_row_locked(&t, &[Value::U64(1001)], Locking::EXCLUSIVE.no_wait());
            assert!(taken.is_err(), "{taken:?}");
            other.commit().unwrap();
            assert!(tx.get_row_locked(&t, &[Value::U64(1001)], LockMode::Exclusive).unwrap().is_some());
            assert!(tx.get_row_locked(&t, &[Value::U64(7)], LockMode::Exclusive).unwrap().is_none());
            assert!(matches!(tx.insert(&t, &row(1001)), Err(Error::DuplicateKey(_))));
            assert!(tx.delete_row(&t, &[Value::U64(1001)]).unwrap());
            tx.insert(&t, &row(7)).unwrap();
            assert_eq!(tx.delete_first(&t, ALL, 2).unwrap(), 2);
            tx.commit().unwrap();
            model.insert(1000, 1000 % 7);
            model.retain(|id, _| *id > 1);
            are(&db, &t, &model);
            drop(t);
            let options = options(&disk);
            let (_disk, db, t) = again(&disk, db, &options);
            are(&db, &t, &model);
        });
    }
}

/// Whoever wrote before is waited for. What he deletes of rows that others have put into both is in neither. Guards: the wait;
/// `sweep_rows`.
#[test]
fn a16a_what_an_older_writer_deletes_is_no_row() {
    for (from, to) in ways() {
        simulate(move |_| {
            let db = open(&disk());
            let (t, mut model) = made_of(&db, from);
            let mut older = db.begin().unwrap();
            older.insert(&t, &row(500)).unwrap();
            let changing = change(&db, &t, to);
            sleep(50);
            assert_eq!(db.index_builds()[0].stage(), BuildStage::Registered);
            insert(&db, &t, 600..620).unwrap();
            (600..610).for_each(|id| assert!(older.delete_row(&t, &[Value::U64(id)]).unwrap()));
            assert!(older.update(&t, &[Value::U64(611), Value::U32(99)]).unwrap());
            older.commit().unwrap();
            changing.join().unwrap().unwrap();
            model.insert(500, 500 % 7);
            model.extend((610..620).map(|id| (id, if id == 611 { 99 } else { id as u32 % 7 })));
            are(&db, &t, &model);
        });
    }
}

/// A row deleted behind s leaves a tombstone in new that stays until the row has come. Guard: `expect_late`.
#[test]
fn a16d_tombstones_of_rows_stay_until_they_have_come() {
    for (from, to) in ways() {
        simulate(move |sim| {
            let db = open(&disk());
            let (t, mut model) = made_of(&db, from);
            let gate = sim.hold("build.swept");
            let changing = change(&db, &t, to);
            gate.wait_reached();
            (0..TABLE_ROWS).step_by(2).for_each(|id| {
                delete(&db, &t, id);
                model.remove(&id);
            });
            // Everybody but the build sees that they are gone.
            for _ in 0..3 {
                db.settle().unwrap();
                db.checkpoint().unwrap();
            }
            gate.open();
            changing.join().unwrap().unwrap();
            are(&db, &t, &model);
        });
    }
}

/// A crash at any step leaves the rows in one structure or the other, with all that was committed, and nothing beside them. Guards:
/// the checkpoint before the switch; the settings before the state; the owner before the state of what is not in the catalog.
#[test]
fn a16f_a_crash_leaves_the_rows_in_one_structure() {
    for (from, to) in ways() {
        for (n, point) in POINTS.into_iter().chain(["checkpoint.published"]).enumerate() {
            for inline in [200, 1 << 20] {
                simulate(move |sim| {
                    let disk = disk();
                    let options = Options { inline_batch_bytes: inline, ..options(&disk) };
                    let db = Database::open("/db", options.clone()).unwrap();
                    let (t, mut model) = made_of(&db, from);
                    let gate = sim.hold(point);
                    let changing = change(&db, &t, to);
                    gate.wait_reached();
                    work(&db, &t, &mut model, 600);
                    disk.power_cut(n as u64);
                    gate.open();
                    assert_eq!(changing.join().unwrap().is_ok(), point == "build.public", "{point}");
                    drop(t);
                    let (disk, db, t) = again(&disk, db, &options);
                    let is_new = point == "build.public";
                    let now = if is_new { to } else { from };
                    assert_eq!((structure(&t), kept_in(&db)), (now, now), "{point}");
                    assert!(beside(&db).is_empty());
                    are(&db, &t, &model);
                    work(&db, &t, &mut model, 700);
                    drop(t);
                    let (_disk, db, t) = again(&disk, db, &options);
                    assert_eq!((structure(&t), kept_in(&db)), (now, now), "{point}");
                    are(&db, &t, &model);
                    let used = live_bytes(&db);
                    db.change_table_rows(&t, of(if is_new { from } else { to })).unwrap();
                    are(&db, &t, &model);
                    drop(t);
                    assert!(used < 300 << 10, "{point}: {used} bytes are live");
                });
            }
        }
    }
}
