//! A damaged secondary index is set aside and made anew: met by a commit, a reader, the background, recovery; killed in
//! the middle [P10].

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

mod support;

use std::path::Path;
use std::time::Duration;

use support::damage::block_of;
use support::surgery::{DIR, Surgeon, rot};
use support::*;
use trefoil::{ALL, Database, Durability, Error, Options, Table, Value};
use vfs::sim::SimDisk;

const ROWS: u64 = 1500;
const BY_COLOUR: u32 = 2;

fn quiet(disk: &SimDisk) -> Options {
    Options { background: false, ..options(disk) }
}

/// A table with an index of two levels and more, closed behind a checkpoint.
fn made(disk: &SimDisk) {
    let db = Database::open(DIR, quiet(disk)).unwrap();
    let rows = table(&db, "rows");
    db.create_table_indexes(&rows, vec![by_colour()]).unwrap();
    (0..ROWS).step_by(100).for_each(|id| insert(&db, &rows, id..id + 100).unwrap());
    db.settle().unwrap();
    db.close().unwrap();
}

/// Damages the node of the index.
fn damage(disk: &SimDisk, node: (u8, usize)) {
    let at = block_of(disk, BY_COLOUR, node).offset;
    rot(disk, &Path::new(DIR).join("data.trefoil"), |bytes| bytes[at as usize + 70] ^= 8);
}

fn damaged(disk: &SimDisk, node: (u8, usize)) -> (Database, Table) {
    made(disk);
    damage(disk, node);
    let db = Database::open(DIR, quiet(disk)).unwrap();
    let rows = db.table("rows").unwrap();
    assert!(db.stats().quarantined.is_empty(), "nobody met it yet");
    (db, rows)
}

fn delete(db: &Database, rows: &Table, id: u64) -> Result<(), Error> {
    let mut tx = db.begin()?;
    assert!(tx.delete_row(rows, &[Value::U64(id)])?);
    tx.commit_with(Durability::Sync).map(|_| ())
}

/// Deletes rows, one a commit, until one of them met the damage. Returns how many are left.
fn delete_until_met(db: &Database, rows: &Table) -> u64 {
    for id in 0..ROWS {
        delete(db, rows, id).unwrap();
        if !db.stats().quarantined.is_empty() {
            return ROWS - id - 1;
        }
    }
    panic!("no commit met the damage");
}

fn count(db: &Database, rows: &Table) -> u64 {
    let snapshot = db.snapshot().unwrap();
    let mut all = snapshot.scan(rows, ALL).unwrap();
    let mut count = 0;
    while all.next().unwrap().is_some() {
        count += 1;
    }
    count
}

/// The index is set aside; everything else is in order.
fn set_aside(db: &Database, rows: &Table) {
    assert_eq!(db.stats().quarantined, ["rows.by_colour"]);
    let error = db.snapshot().unwrap().scan_index(rows, "by_colour", ALL).err().unwrap();
    assert!(matches!(&error, Error::Quarantined { index } if index == "by_colour"), "{error}");
    assert!(error.to_string().contains("trefoil rebuild"), "{error}");
    let tx = db.begin().unwrap();
    assert!(matches!(tx.scan_index(rows, "by_colour", ALL), Err(Error::Quarantined { .. })));
    let problems: Vec<_> = db.verify().unwrap().into_iter().flat_map(|(_, report)| report.problems).collect();
    assert!(problems.len() == 1 && problems[0].what == "quarantined index", "{problems:#?}");
}

/// Nothing leaks, the rebuilt index is that of the rows, also after the next open.
fn rebuilt(disk: &SimDisk, db: Database, left: u64) {
    let rows = db.table("rows").unwrap();
    if !db.stats().quarantined.is_empty() {
        db.rebuild_index(&rows, "by_colour").unwrap();
    }
    assert_eq!((count(&db, &rows), indexed(&db, &rows) as u64), (left, left));
    db.settle().unwrap();
    sound(&db);
    insert(&db, &rows, 20_000..20_010).unwrap();
    db.close().unwrap();
    drop((db, rows));
    let db = Database::open(DIR, quiet(disk)).unwrap();
    let rows = db.table("rows").unwrap();
    assert!(db.stats().quarantined.is_empty());
    assert_eq!(indexed(&db, &rows) as u64, left + 10);
    sound(&db);
}

fn reopened(disk: &SimDisk, db: Database) -> (SimDisk, Database) {
    let disk = cut(disk, db);
    let db = Database::open(DIR, quiet(&disk)).unwrap();
    (disk, db)
}

/// Leaf and inner node: below the latter, the blocks that nobody can name any more come back too.
#[test]
fn p10_a_commit_that_meets_damage_goes_on_without_the_index() {
    for node in [(0, 3), (1, 1)] {
        simulate(move |_| {
            let disk = disk();
            let (db, rows) = damaged(&disk, node);
            let left = delete_until_met(&db, &rows);
            set_aside(&db, &rows);
            insert(&db, &rows, 15_000..15_100).unwrap();
            assert_eq!(count(&db, &rows), left + 100);
            db.settle().unwrap();
            set_aside(&db, &rows);
            drop(rows);
            // The log says so, and so do the checkpoints behind it.
            let (disk, db) = reopened(&disk, db);
            set_aside(&db, &db.table("rows").unwrap());
            db.close().unwrap();
            let (disk, db) = reopened(&disk, db);
            set_aside(&db, &db.table("rows").unwrap());
            rebuilt(&disk, db, left + 100);
        });
    }
}

/// The structure was freed, not only forgotten: without the index the data file has no more live bytes than a table that
/// never had it.
#[test]
fn p10_the_blocks_of_a_quarantined_index_come_back() {
    simulate(|_| {
        let disk = disk();
        let (db, rows) = damaged(&disk, (1, 1));
        let before = db.stats().space.live_bytes;
        delete_until_met(&db, &rows);
        db.settle().unwrap();
        db.checkpoint().unwrap();
        let after = db.stats().space.live_bytes;
        assert!(after * 10 < before * 8, "{before} bytes before, {after} after");
    });
}

#[test]
fn p10_readers_and_the_background_leave_word() {
    simulate(|_| {
        let disk = disk();
        let (db, rows) = damaged(&disk, (0, 3));
        let tx = db.begin().unwrap();
        let mut entries = tx.scan_index(&rows, "by_colour", ALL).unwrap();
        let error = loop {
            match entries.next() {
                Ok(entry) => assert!(entry.is_some(), "the reader met no damage"),
                Err(error) => break error,
            }
        };
        let named = matches!(&error, Error::Corrupt(c) if c.index.is_some() && c.key_range.is_some());
        assert!(named, "{error}");
        drop(entries);
        drop(tx);
        // No time for the background to meet it itself.
        assert!(!db.settle_for(Duration::ZERO).unwrap());
        set_aside(&db, &rows);
        drop(rows);
        let (disk, db) = reopened(&disk, db);
        rebuilt(&disk, db, ROWS);
    });
    // A commit over many cold leaves is attached as a run; who drains it meets the damage.
    simulate(|_| {
        let disk = disk();
        let (db, rows) = damaged(&disk, (0, 3));
        let mut tx = db.begin().unwrap();
        for id in (0..ROWS).step_by(2) {
            assert!(tx.delete_row(&rows, &[Value::U64(id)]).unwrap());
        }
        tx.commit().unwrap();
        assert!(db.stats().quarantined.is_empty(), "the commit met it itself: the test shows nothing");
        db.settle().unwrap();
        set_aside(&db, &rows);
        insert(&db, &rows, 15_000..15_001).unwrap();
        rebuilt(&disk, db, ROWS / 2 + 1);
    });
}

/// A transaction that wrote entries before the quarantine and writes more after it.
#[test]
fn p10_a_transaction_that_began_before_goes_on() {
    simulate(|_| {
        let disk = disk();
        let (db, rows) = damaged(&disk, (0, 3));
        let mut tx = db.begin().unwrap();
        (17_000..17_010).for_each(|id| tx.insert(&rows, &row(id)).unwrap());
        let left = delete_until_met(&db, &rows);
        (17_010..17_020).for_each(|id| tx.insert(&rows, &row(id)).unwrap());
        assert!(tx.update(&rows, &[Value::U64(17_000), Value::U32(5)]).unwrap());
        tx.commit().unwrap();
        assert_eq!(count(&db, &rows), left + 20);
        set_aside(&db, &rows);
        drop(rows);
        let (disk, db) = reopened(&disk, db);
        rebuilt(&disk, db, left + 20);
    });
}

/// The damage is met by recovery: in the replay, in the state, in a run file that the state names.
#[test]
fn p10_damage_met_at_open() {
    simulate(|_| {
        let disk = disk();
        made(&disk);
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        let rows = db.table("rows").unwrap();
        (0..ROWS).step_by(3).for_each(|id| delete(&db, &rows, id).unwrap());
        drop(rows);
        let disk = cut(&disk, db);
        damage(&disk, (0, 3));
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        set_aside(&db, &db.table("rows").unwrap());
        rebuilt(&disk, db, ROWS / 3 * 2);
    });
    simulate(|_| {
        let disk = disk();
        made(&disk);
        let mut surgeon = Surgeon::new(&disk, BY_COLOUR);
        let id = surgeon.id;
        surgeon.manifest.indexes.iter_mut().find(|entry| entry.id == id).unwrap().state[7] ^= 1;
        surgeon.publish();
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        set_aside(&db, &db.table("rows").unwrap());
        let (disk, db) = reopened(&disk, db);
        set_aside(&db, &db.table("rows").unwrap());
        rebuilt(&disk, db, ROWS);
    });
    simulate(|_| {
        let disk = disk();
        let small = || Options { inline_batch_bytes: 1000, ..quiet(&disk) };
        let db = Database::open(DIR, small()).unwrap();
        let rows = table(&db, "rows");
        db.create_table_indexes(&rows, vec![by_colour()]).unwrap();
        insert(&db, &rows, 0..ROWS).unwrap();
        drop(rows);
        let disk = cut(&disk, db);
        // The record names two files, of the rows and of their entries: the shorter one is that of the entries, or equal.
        let runs = disk.files().into_iter().filter(|(path, _)| path.to_string_lossy().contains("run-"));
        let last = runs.map(|(path, _)| path).max().unwrap();
        rot(&disk, &last, |bytes| bytes[100] ^= 1);
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        set_aside(&db, &db.table("rows").unwrap());
        rebuilt(&disk, db, ROWS);
    });
}

#[test]
fn p10_killed_in_the_middle_it_is_quarantined_or_made() {
    for point in ["commit.logged", "quarantine.recorded"] {
        simulate(move |sim| {
            let disk = disk();
            let (db, rows) = damaged(&disk, (0, 3));
            let gate = sim.hold(point);
            let (d, handle) = (db.clone(), rows.clone());
            let work = spawn("deletes", move || (0..ROWS).find(|id| delete(&d, &handle, *id).is_err()));
            gate.wait_reached();
            disk.power_cut(5);
            gate.open();
            assert!(work.join().unwrap().is_some());
            drop(rows);
            let disk = { cut(&disk, db) };
            let db = Database::open(DIR, quiet(&disk)).unwrap();
            let rows = db.table("rows").unwrap();
            if db.stats().quarantined.is_empty() {
                let left = count(&db, &rows);
                let met = (ROWS - left..ROWS).find(|id| {
                    delete(&db, &rows, *id).unwrap();
                    !db.stats().quarantined.is_empty()
                });
                assert!(met.is_some());
            }
            set_aside(&db, &rows);
            let left = count(&db, &rows);
            rebuilt(&disk, db, left);
        });
    }
    for point in ["ddl.built", "checkpoint.composed", "checkpoint.published", "rebuild.built", "commit.logged"] {
        simulate(move |sim| {
            let disk = disk();
            let (db, rows) = damaged(&disk, (1, 1));
            let left = delete_until_met(&db, &rows);
            let gate = sim.hold(point);
            let (d, handle) = (db.clone(), rows.clone());
            let work = spawn("rebuild", move || d.rebuild_index(&handle, "by_colour"));
            gate.wait_reached();
            disk.power_cut(5);
            gate.open();
            assert!(work.join().unwrap().is_err(), "{point}");
            drop(rows);
            let disk = cut(&disk, db);
            let db = Database::open(DIR, quiet(&disk)).unwrap();
            if !db.stats().quarantined.is_empty() {
                set_aside(&db, &db.table("rows").unwrap());
            }
            rebuilt(&disk, db, left);
        });
    }
}

/// Readers go on while an index that is in order is rebuilt; older snapshots are told to begin again.
#[test]
fn an_index_in_use_is_rebuilt() {
    simulate(|_| {
        let disk = disk();
        made(&disk);
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        let rows = db.table("rows").unwrap();
        let old = db.snapshot().unwrap();
        // The rows move behind the snapshot.
        insert(&db, &rows, 15_000..15_001).unwrap();
        trefoil::fuzzing::write_raw(&db, "rows.by_colour", &[0; 12], None).unwrap();
        db.rebuild_index(&rows, "by_colour").unwrap();
        assert!(matches!(old.scan_index(&rows, "by_colour", ALL), Err(Error::DefinitionChanged { .. })));
        drop(old);
        assert!(matches!(db.rebuild_index(&rows, "by_size"), Err(Error::NotFound { .. })));
        drop(rows);
        rebuilt(&disk, db, ROWS + 1);
    });
}
