//! Damage of rows that get another structure (rule A16, P10): of the one that was there, of the one that is being built, and of the one
//! that is there now. Every test says which guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::path::Path;

use crate::rows_anew::*;
use crate::support::damage::block_beside;
use crate::support::surgery::{DIR, rot};
use crate::support::*;
use base::{Corruption, IndexId};
use trefoil::{ALL, Database, Error, IndexOptions, LockMode, Options, Snapshot, Structure, Table, Value};
use vfs::sim::SimDisk;

/// The number of the table's rows.
const ROWS: u32 = 1;
/// And by which the manifest has the ones before.
const FORMER: u32 = 3;
const COUNT: u64 = 3000;
/// Entries of an index that takes more memory than there is.
const BIG: u32 = 6000;
/// Rows about the leaf that is damaged, which has some of them.
const ABOUT: std::ops::Range<u64> = 20..160;

fn quiet(disk: &SimDisk) -> Options {
    Options { budget_bytes: 640 << 10, inline_batch_bytes: 48 << 10, background: false, ..options(disk) }
}

/// A table whose rows are on disk.
fn made_cold(disk: &SimDisk) -> (Database, Table, Model) {
    let db = Database::open(DIR, quiet(disk)).unwrap();
    let t = table_of(&db, "t", of(Structure::Btree));
    for from in (0..COUNT).step_by(200) {
        insert(&db, &t, from..from + 200).unwrap();
    }
    let big = IndexOptions { structure: Structure::Btree, node_bytes: 4096, ..IndexOptions::default() };
    let big = db.create_index("big", big).unwrap();
    for from in (0..BIG).step_by(200) {
        fill(&db, &big, from, from + 200, 150).unwrap();
        db.settle().unwrap();
    }
    db.settle().unwrap();
    drop((t, big));
    db.close().unwrap();
    drop(db);
    let db = Database::open(DIR, quiet(disk)).unwrap();
    let t = db.table("t").unwrap();
    (db, t, (0..COUNT).map(|id| (id, id as u32 % 7)).collect())
}

/// Damages the fourth leaf of the rows as they were, which is in memory no more.
fn damage(disk: &SimDisk, db: &Database) {
    db.settle().unwrap();
    db.checkpoint().unwrap();
    let big = db.index("big").unwrap();
    for _ in 0..2 {
        (0..BIG).for_each(|n| assert!(get(db, &big, &n.to_be_bytes()).is_some()));
    }
    let at = block_beside(disk, ROWS, FORMER, (0, 3)).offset;
    rot(disk, &Path::new(DIR).join("data.trefoil"), |bytes| bytes[at as usize + 70] ^= 8);
}

/// Rows that a snapshot cannot read; all others are as they were.
fn lost(old: &Snapshot, t: &Table) -> usize {
    let mut lost = 0;
    for id in 0..COUNT {
        match old.get_row(t, &[Value::U64(id)]) {
            Ok(row) => assert!(row.is_some(), "{id}"),
            Err(Error::Corrupt(damage)) => {
                assert_eq!(damage.index, Some(IndexId(ROWS)), "{damage}");
                assert!(ABOUT.contains(&id), "{id}");
                lost += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    lost
}

fn remove(db: &Database, t: &Table, model: &mut Model, ids: impl Iterator<Item = u64>) {
    for id in ids {
        delete(db, t, id);
        model.remove(&id);
    }
}

fn is_as(db: &Database, t: &Table, model: &Model) {
    let found = seen(&db.snapshot().unwrap(), t).unwrap();
    assert!(found == *model, "{} rows, {} wanted", found.len(), model.len());
}

fn damaged(db: &Database) -> Vec<String> {
    db.stats().damaged
}

/// Snapshots from before read what can be read of the rows as they were, and nobody else does: these are not written any more, so no
/// writer meets their damage. Guard: who came in before is what they are written for.
#[test]
fn damage_of_former_rows_is_met_by_snapshots_alone() {
    simulate(|_| {
        let disk = disk();
        let (db, t, mut model) = made_cold(&disk);
        let old = db.snapshot().unwrap();
        remove(&db, &t, &mut model, 5..10);
        db.change_table_rows(&t, of(Structure::Lsm)).unwrap();
        damage(&disk, &db);
        let met = lost(&old, &t);
        assert!((5..60).contains(&met), "{met} rows");
        assert!(damaged(&db).is_empty(), "who reads leaves no word of rows");
        let changes = || db.stats().indexes.iter().find(|(name, _)| name == "t.former primary").unwrap().1.changes;
        let before = changes();
        remove(&db, &t, &mut model, ABOUT);
        assert_eq!(changes(), before);
        assert!(damaged(&db).is_empty(), "no commit has met it");
        db.settle().unwrap();
        is_as(&db, &t, &model);
        assert_eq!(lost(&old, &t), met);
        drop(old);
        live_bytes(&db);
        is_as(&db, &t, &model);
        sound(&db);
        db.change_table_rows(&t, of(Structure::Btree)).unwrap();
        is_as(&db, &t, &model);
    });
}

/// Who came in before, and holds what he reads of them.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Holder {
    Cursor,
    Writer,
}

/// While somebody who came in before reads the rows as they were they are written, by a commit, or by the background if a commit
/// was attached. Their damage is theirs, under their name, and no writer's, neither of one who came in before nor of one behind him;
/// who reads them begins anew, snapshots go on, a copy is made, and when they are gone all is sound. Guards: what is met of old is left out,
/// whichever pair meets it, and by no error of the writer; it is written no more; whoever reads it is told; a backup does not ask for it.
#[test]
fn damage_of_former_rows_stops_no_writer() {
    for (holder, is_attached) in
        [(Holder::Cursor, false), (Holder::Cursor, true), (Holder::Writer, false), (Holder::Writer, true)]
    {
        simulate(move |sim| {
            let disk = disk();
            let (db, t, mut model) = made_cold(&disk);
            let old = db.snapshot().unwrap();
            remove(&db, &t, &mut model, 5..10);
            let (reader, mut tx) = (db.begin().unwrap(), db.begin().unwrap());
            let mut cursor = (holder == Holder::Cursor).then(|| reader.scan_locked(&t, ALL, LockMode::Shared).unwrap());
            if let Some(cursor) = &mut cursor {
                assert!(cursor.next().unwrap().is_some());
            }
            let gate = sim.hold("build.batch");
            let changing = change(&db, &t, Structure::Lsm);
            gate.wait_reached();
            let own = if is_attached { ABOUT.start..ABOUT.start + 5 } else { ABOUT };
            if cursor.is_none() {
                own.clone().for_each(|id| assert!(tx.delete_row(&t, &[Value::U64(id)]).unwrap()));
            }
            gate.open();
            changing.join().unwrap().unwrap();
            damage(&disk, &db);
            if is_attached {
                let mut many = db.begin().unwrap();
                for id in (ABOUT.start + 40..COUNT).step_by(5) {
                    assert!(many.delete_row(&t, &[Value::U64(id)]).unwrap());
                    model.remove(&id);
                }
                many.commit().unwrap();
            } else if holder == Holder::Cursor {
                remove(&db, &t, &mut model, ABOUT);
            }
            db.settle().unwrap();
            let ends = |tx: trefoil::Transaction, model: &mut Model| {
                tx.commit().unwrap();
                model.retain(|id, _| !own.contains(id));
            };
            if let Some(mut cursor) = cursor {
                assert_eq!(damaged(&db), ["t.former primary"], "{holder:?}");
                remove(&db, &t, &mut model, 1002..1003);
                let told = cursor.next();
                assert!(matches!(told, Err(Error::DefinitionChanged { .. })), "{told:?}");
            } else if is_attached {
                assert_eq!(damaged(&db), ["t.former primary"], "{holder:?}");
                remove(&db, &t, &mut model, 1001..1002);
                let told = tx.delete_row(&t, &[Value::U64(2001)]);
                assert!(matches!(told, Err(Error::DefinitionChanged { .. })), "{told:?}");
                ends(tx, &mut model);
            } else {
                ends(tx, &mut model);
                assert_eq!(damaged(&db), ["t.former primary"], "{holder:?}");
            }
            goes_on(&disk, &db, &t, &mut model);
            drop(reader);
            assert!((5..60).contains(&lost(&old, &t)));
            drop(old);
            live_bytes(&db);
            assert!(damaged(&db).is_empty());
            is_as(&db, &t, &model);
            sound(&db);
            db.change_table_rows(&t, of(Structure::Btree)).unwrap();
            is_as(&db, &t, &model);
        });
    }
}

/// More is written than the log has room for, the damage is told by its name, and a copy has everything.
fn goes_on(disk: &SimDisk, db: &Database, t: &Table, model: &mut Model) {
    for round in 0..25 {
        // Run files, and records in the log.
        let rows_at_once = if round < 5 { COUNT as usize } else { 100 };
        let mut rows: Vec<_> = model.iter_mut().skip(1).collect();
        for some in rows.chunks_mut(rows_at_once) {
            let mut tx = db.begin().unwrap();
            for (id, colour) in some {
                **colour = round + 10;
                assert!(tx.update(t, &[Value::U64(**id), Value::U32(**colour)]).unwrap());
            }
            tx.commit().unwrap();
        }
        db.settle().unwrap();
    }
    let stats = db.stats();
    let former = stats.indexes.iter().find(|(name, _)| name == "t.former primary").unwrap();
    assert!(former.1.runs <= 1, "{} runs that nobody drains", former.1.runs);
    let problems: Vec<_> = db.verify().unwrap().into_iter().filter(|(_, report)| !report.problems.is_empty()).collect();
    let names: Vec<_> = problems.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["t.former primary"]);
    db.checkpoint_to("/copy").unwrap();
    let copy = Database::open("/copy", options(disk)).unwrap();
    let copied = copy.table("t").unwrap();
    is_as(&copy, &copied, model);
    assert!(damaged(&copy).is_empty());
    sound(&copy);
}

fn some_damage() -> Box<Corruption> {
    Box::new(Corruption::of_index(IndexId(ROWS), None, "leaf", "one", "another"))
}

/// Damage of what is there now is the table's, also once the rows as they were are gone. Guard: what is known of the pair's is known of
/// what comes in its place.
#[test]
fn damage_of_new_rows_stays_known_when_the_former_are_gone() {
    simulate(|_| {
        let db = open(&disk());
        let t = table_of(&db, "t", of(Structure::Btree));
        insert(&db, &t, 0..TABLE_ROWS).unwrap();
        let old = db.snapshot().unwrap();
        delete(&db, &t, 1);
        db.change_table_rows(&t, of(Structure::Lsm)).unwrap();
        let met = trefoil::fuzzing::damaged(&db, some_damage());
        assert!(matches!(&met, Error::Damaged { name, .. } if name == "t.primary"), "{met}");
        let is_refused = || matches!(insert(&db, &t, 1000..1001), Err(Error::Damaged { .. }));
        assert!(is_refused());
        drop(old);
        live_bytes(&db);
        assert!(db.stats().indexes.iter().all(|(name, _)| name != "t.former primary"));
        assert_eq!(damaged(&db), ["t.primary"]);
        assert!(is_refused());
    });
}

/// Damage that is met in what was built while the switch waits for its step ends the change: the rows that are there are sound. Guard:
/// it is looked at once more.
#[test]
fn damage_met_before_the_switch_ends_the_change() {
    simulate(|sim| {
        let db = open(&disk());
        let t = table_of(&db, "t", of(Structure::Btree));
        insert(&db, &t, 0..TABLE_ROWS).unwrap();
        let copying = sim.hold("backup.begun");
        let other = db.clone();
        let backup = spawn("backup", move || other.checkpoint_to("/copy").unwrap());
        copying.wait_reached();
        let changing = change(&db, &t, Structure::Lsm);
        sleep(1000);
        assert!(!changing.is_finished());
        trefoil::fuzzing::note_damage(&db, ROWS + 1);
        copying.open();
        backup.join().unwrap();
        let ended = changing.join().unwrap();
        assert!(matches!(ended, Err(Error::Corrupt(_))), "{ended:?}");
        assert_eq!((structure(&t), kept_in(&db)), (Structure::Btree, Structure::Btree));
        assert!(beside(&db).is_empty());
        insert(&db, &t, 1000..1010).unwrap();
        sound(&db);
        db.change_table_rows(&t, of(Structure::Lsm)).unwrap();
        sound(&db);
    });
}

/// Who has the pair of a change that was given up reads the rows as they were: once these are damaged and left out, he is told, too. Guard:
/// whoever reads them is told.
#[test]
fn damage_of_former_rows_is_told_to_who_has_the_pair_of_a_change_that_was_given_up() {
    simulate(move |_| {
        let disk = disk();
        let (db, t, mut model) = made_cold(&disk);
        let begun = db.begin_table_rows(&t, of(Structure::Lsm)).unwrap();
        let reader = db.begin().unwrap();
        let low = [Value::U64(1000)];
        let range = (std::ops::Bound::Included(&low[..]), std::ops::Bound::Unbounded);
        let mut cursor = reader.scan_locked(&t, range, LockMode::Shared).unwrap();
        assert!(cursor.next().unwrap().is_some());
        drop(begun);
        db.settle().unwrap();
        db.change_table_rows(&t, of(Structure::Lsm)).unwrap();
        db.settle().unwrap();
        db.checkpoint().unwrap();
        let big = db.index("big").unwrap();
        for _ in 0..2 {
            (0..BIG).for_each(|n| assert!(get(&db, &big, &n.to_be_bytes()).is_some()));
        }
        let at = block_beside(&disk, ROWS, FORMER + 1, (0, 3)).offset;
        rot(&disk, &Path::new(DIR).join("data.trefoil"), |bytes| bytes[at as usize + 70] ^= 8);
        remove(&db, &t, &mut model, ABOUT);
        assert_eq!(damaged(&db), ["t.former primary"]);
        remove(&db, &t, &mut model, 2002..2003);
        loop {
            match cursor.next() {
                Err(Error::DefinitionChanged { .. }) => break,
                Ok(Some(row)) => assert_ne!(row[0], Value::U64(2002), "it was deleted before it was looked at"),
                other => panic!("{other:?}"),
            }
        }
    });
}
