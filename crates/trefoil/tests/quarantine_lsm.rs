//! Damaged runs of log-structured merge trees [P10]: a secondary index is set aside, whoever meets it, and made anew; of rows and
//! plain indexes the damage costs its own keys.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;

use crate::quarantine::{ROWS, count, delete, quiet, rebuilt, reopened, rot_at, set_aside};
use crate::support::damage::blocks_of_lsm;
use crate::support::surgery::DIR;
use crate::support::*;
use trefoil::{
    ALL, Compression, Cursor, DamagedRange, Database, Durability, Error, Index, IndexOptions, IndexSchema, Options,
    Structure, Table,
};
use vfs::sim::SimDisk;

const BY_COLOUR: u32 = 2;
const NOTES: u32 = 1;

fn lsm() -> IndexOptions {
    let plain = IndexOptions { structure: Structure::Lsm, compression: Compression::None, ..small_nodes() };
    IndexOptions { node_bytes: 1024, ..plain }
}

/// A table with an index of three runs, too few to be merged, closed behind a checkpoint.
fn made(disk: &SimDisk) {
    let db = Database::open(DIR, quiet(disk)).unwrap();
    let rows = table(&db, "rows");
    db.create_table_indexes(&rows, vec![IndexSchema::new("by_colour", &["colour"]).with_options(lsm())]).unwrap();
    for from in (0..ROWS).step_by(500) {
        (from..from + 500).step_by(100).for_each(|id| insert(&db, &rows, id..id + 100).unwrap());
        db.checkpoint().unwrap();
    }
    db.close().unwrap();
}

/// In the middle one of the blocks that are called so.
fn damage(disk: &SimDisk, index: u32, kind: &str) {
    let mut blocks = blocks_of_lsm(disk, index);
    blocks.retain(|(_, name)| name.starts_with(kind));
    assert!(!blocks.is_empty(), "{kind}: {:?}", blocks_of_lsm(disk, index));
    rot_at(disk, blocks[blocks.len() / 2].0.offset);
}

fn damaged(disk: &SimDisk, kind: &str) -> (Database, Table) {
    made(disk);
    damage(disk, BY_COLOUR, kind);
    let db = Database::open(DIR, quiet(disk)).unwrap();
    let rows = db.table("rows").unwrap();
    (db, rows)
}

/// Rows in runs of their own, until upkeep merges.
fn merge(db: &Database, rows: &Table) -> u64 {
    for n in 0..6 {
        insert(db, rows, 15_000 + n * 50..15_050 + n * 50).unwrap();
        delete(db, rows, n).unwrap();
        db.checkpoint().unwrap();
    }
    db.settle().unwrap();
    ROWS + 6 * 49
}

/// Blocks of data and those that name them.
const KINDS: [&str; 3] = ["data", "the index of data", "the index of run"];

fn scan(db: &Database, rows: &Table) -> Result<usize, Error> {
    let tx = db.begin().unwrap();
    let mut entries = tx.scan_index(rows, "by_colour", ALL)?;
    let mut count = 0;
    while entries.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// Verify tells, and a reader leaves word: writes go on, the index is set aside, also behind a power cut, and made anew.
#[test]
fn p10_a_reader_of_a_damaged_run_has_it_set_aside() {
    for kind in KINDS {
        simulate(move |_| {
            let disk = disk();
            let (db, rows) = damaged(&disk, kind);
            assert!(db.stats().quarantined.is_empty(), "nobody met it yet");
            let problems: Vec<_> = db.verify().unwrap().into_iter().flat_map(|(_, report)| report.problems).collect();
            let of_index = |problem: &trefoil::Corruption| problem.index.map(|id| id.0) == Some(BY_COLOUR);
            assert!(!problems.is_empty() && problems.iter().all(of_index), "{problems:#?}");
            let error = scan(&db, &rows).expect_err("the reader met no damage");
            let named = matches!(&error, Error::Corrupt(c) if of_index(c) && c.file.contains("data.trefoil"));
            assert!(named, "{error}");
            // No time for the background to meet it itself.
            assert!(!db.settle_for(std::time::Duration::ZERO).unwrap());
            set_aside(&db, &rows);
            insert(&db, &rows, 15_000..15_100).unwrap();
            delete(&db, &rows, 3).unwrap();
            assert_eq!(count(&db, &rows), ROWS + 99);
            drop(rows);
            let (disk, db) = reopened(&disk, db);
            set_aside(&db, &db.table("rows").unwrap());
            rebuilt(&disk, db, ROWS + 99);
        });
    }
}

/// A merge meets it, behind commits that did not; its blocks are freed.
#[test]
fn p10_a_merge_of_a_damaged_run_has_it_set_aside() {
    simulate(|_| {
        let disk = disk();
        let (db, rows) = damaged(&disk, "data");
        let left = merge(&db, &rows);
        set_aside(&db, &rows);
        assert_eq!(count(&db, &rows), left);
        let freed = |db: &Database| {
            (0..2).for_each(|_| db.checkpoint().unwrap());
            db.stats().space.live_bytes
        };
        db.settle().unwrap();
        let without = freed(&db);
        db.rebuild_index(&rows, "by_colour").unwrap();
        db.settle().unwrap();
        let with = freed(&db);
        let of_index = db.stats().indexes.iter().find(|(name, _)| name.contains("by_colour")).unwrap().1.disk_bytes;
        assert!(of_index > 10_000 && with - without < of_index * 5 / 4, "{without} bytes, then {with}: {of_index}");
        drop(rows);
        rebuilt(&disk, db, left);
    });
}

#[test]
fn p10_killed_while_a_run_is_set_aside_it_is_quarantined_or_made() {
    for point in ["lsm.merging", "quarantine.recorded"] {
        simulate(move |sim| {
            let disk = disk();
            let (db, rows) = damaged(&disk, "data");
            let gate = sim.hold(point);
            let (d, handle) = (db.clone(), rows.clone());
            let work = spawn("merge", move || {
                (0..6).for_each(|n| {
                    insert(&d, &handle, 15_000 + n * 50..15_050 + n * 50).unwrap();
                    d.checkpoint().unwrap();
                });
                d.settle()
            });
            gate.wait_reached();
            disk.power_cut(5);
            gate.open();
            assert!(work.join().unwrap().is_err(), "{point}");
            drop(rows);
            let disk = cut(&disk, db);
            let db = Database::open(DIR, quiet(&disk)).unwrap();
            let rows = db.table("rows").unwrap();
            assert_eq!(count(&db, &rows), ROWS + 300);
            db.settle().unwrap();
            set_aside(&db, &rows);
            drop(rows);
            rebuilt(&disk, db, ROWS + 300);
        });
    }
    for point in ["ddl.built", "checkpoint.composed", "checkpoint.published", "rebuild.built", "commit.logged"] {
        simulate(move |sim| {
            let disk = disk();
            let (db, rows) = damaged(&disk, "data");
            let left = merge(&db, &rows);
            set_aside(&db, &rows);
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

type Truth = BTreeMap<Vec<u8>, Vec<u8>>;

/// Two plain indexes of three runs each.
fn notes(disk: &SimDisk) -> Truth {
    let db = Database::open(DIR, quiet(disk)).unwrap();
    let both = ["notes", "other"].map(|name| db.create_index(name, lsm()).unwrap());
    for from in (0..1500).step_by(500) {
        for index in &both {
            (from..from + 500).step_by(100).for_each(|n| fill(&db, index, n, n + 100, 20).unwrap());
        }
        db.checkpoint().unwrap();
    }
    let truth = all(&db, &both[0]).into_iter().collect();
    db.close().unwrap();
    truth
}

/// What can be read of it, in both directions, and the ranges that cannot.
fn salvaged(db: &Database) -> (Truth, Vec<DamagedRange>) {
    let (notes, snapshot) = (db.index("notes").unwrap(), db.snapshot().unwrap());
    let mut ways = [snapshot.range(&notes, ..), snapshot.range_back(&notes, ..)].map(|cursor| {
        let mut cursor = cursor.unwrap().skip_damaged();
        let mut found = Truth::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            found.insert(key.to_vec(), value.to_vec());
        }
        (found, cursor.skipped().to_vec())
    });
    assert!(ways[0].0 == ways[1].0, "both ways alike");
    std::mem::take(&mut ways[0])
}

/// Keys whose reads fail; the fault names the damage. All others are as in `truth`.
fn unread(db: &Database, truth: &Truth) -> Vec<Vec<u8>> {
    let notes = db.index("notes").unwrap();
    let tx = db.begin().unwrap();
    let fails = |(key, value): &(&Vec<u8>, &Vec<u8>)| match tx.get(&notes, key) {
        Ok(found) => {
            assert_eq!(found.as_ref(), Some(*value), "{key:?}");
            false
        }
        Err(Error::Corrupt(c)) => {
            assert!(c.index.map(|id| id.0) == Some(NOTES) && c.file.contains("data.trefoil"), "{c}");
            true
        }
        Err(error) => panic!("{error}"),
    };
    truth.iter().filter(fails).map(|(key, _)| key.clone()).collect()
}

fn one(db: &Database, index: &Index, key: &[u8], value: &[u8]) -> Result<(), Error> {
    put(db, index, key, value, Durability::Sync)
}

/// Reads of the damaged keys say so, others go on, and writes, until a merge meets it: then it is only read. What was written meanwhile is there, over
/// power cuts and a close, and all of it once the block can be read again. Guard: `enduring`.
#[test]
fn p10_damage_of_a_run_of_rows_costs_its_own_keys() {
    simulate(|_| {
        let disk = disk();
        let mut truth = notes(&disk);
        let data: Vec<_> =
            blocks_of_lsm(&disk, NOTES).into_iter().filter(|(_, name)| name.starts_with("data")).collect();
        let at = data[data.len() / 2].0.offset;
        rot_at(&disk, at);
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        let lost = unread(&db, &truth);
        assert!((3..100).contains(&lost.len()), "{}", lost.len());
        let judge = |db: &Database, truth: &Truth, lost: &[Vec<u8>]| {
            // A key that is newer in another run is read there, or not at all, as the runs lie.
            let now = unread(db, truth);
            assert!(lost.iter().all(|key| now.contains(key)), "{now:?}");
            assert!(now.iter().all(|key| lost.contains(key) || truth[key] == b"later"), "{now:?}");
            let (found, ranges) = salvaged(db);
            assert_eq!(ranges.len(), 1, "{ranges:?}");
            let expected: Truth =
                truth.iter().filter(|(key, _)| !lost.contains(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
            let missing: Vec<_> = expected.keys().filter(|key| !found.contains_key(*key)).collect();
            assert!(missing.iter().all(|key| ranges[0].contains(key)) && missing.len() <= 2, "{missing:?} {ranges:?}");
            assert!(found.iter().all(|entry| expected.get(entry.0) == Some(entry.1)), "nothing is stale");
            assert!(lost.iter().all(|key| ranges[0].contains(key)));
            let whole = db.begin().unwrap().range(&db.index("notes").unwrap(), ..).and_then(Cursor::collect);
            assert!(matches!(whole, Err(Error::Corrupt(_))));
        };
        judge(&db, &truth, &lost);
        // A write needs nothing of what is damaged.
        let write = |db: &Database, truth: &mut Truth, key: &[u8]| {
            one(db, &db.index("notes").unwrap(), key, b"later").unwrap();
            truth.insert(key.to_vec(), b"later".to_vec());
        };
        write(&db, &mut truth, &lost[1]);
        write(&db, &mut truth, b"more");
        let lost: Vec<_> = [&lost[..1], &lost[2..]].concat();
        judge(&db, &truth, &lost);
        assert!(db.stats().damaged.is_empty(), "no merge has met it");
        for n in 0..6u8 {
            // Over all others.
            for key in [0, 1499] {
                write(&db, &mut truth, &u32::to_be_bytes(key));
            }
            write(&db, &mut truth, &[b'n', n]);
            db.checkpoint().unwrap();
        }
        db.settle().unwrap();
        only_read(&db);
        judge(&db, &truth, &lost);
        // The next opening does not know before somebody meets it.
        let disk = cut(&disk, db);
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        assert!(db.stats().damaged.is_empty());
        write(&db, &mut truth, b"in the log");
        db.settle().unwrap();
        only_read(&db);
        judge(&db, &truth, &lost);
        db.close().unwrap();
        drop(db);
        let read = Database::open(DIR, Options { read_only: true, ..quiet(&disk) }).unwrap();
        judge(&read, &truth, &lost);
        drop(read);
        rot_at(&disk, at);
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        assert!(all(&db, &db.index("notes").unwrap()).into_iter().collect::<Truth>() == truth);
        write(&db, &mut truth, b"again");
        db.settle().unwrap();
        db.checkpoint_to("/copy").unwrap();
        sound(&db);
    });
}

/// It says so, a backup too; everything else goes on.
fn only_read(db: &Database) {
    assert_eq!(db.stats().damaged, ["notes"]);
    let error = one(db, &db.index("notes").unwrap(), b"x", b"x").expect_err("it is only read");
    assert!(matches!(&error, Error::Damaged { name, .. } if name == "notes"), "{error}");
    assert!(error.to_string().contains("trefoil dump") && error.to_string().contains("data.trefoil"), "{error}");
    assert!(matches!(db.checkpoint_to("/copy"), Err(Error::Damaged { .. })), "it would miss what the log holds");
    one(db, &db.index("other").unwrap(), b"x", b"x").unwrap();
    let before = db.stats().checkpoints;
    db.settle().unwrap();
    db.checkpoint().unwrap();
    assert!(db.stats().checkpoints > before);
}
