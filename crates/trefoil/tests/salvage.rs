//! A damaged primary or plain index, opened to be read: everything outside the damaged range reads as before, what only the
//! log holds is not lost with its leaf, nothing stale comes up, and each range that is passed over is named.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::support::damage::block_of;
use crate::support::surgery::{DIR, rot};
use crate::support::*;
use trefoil::{ALL, DamagedRange, Database, Durability, Error, IndexOptions, Options, Structure, Value};
use vfs::fault::{Action, Class, Rule};
use vfs::sim::SimDisk;

const NOTES: u32 = 1;
const ROWS: u32 = 2;

fn quiet(disk: &SimDisk) -> Options {
    Options { background: false, inline_batch_bytes: 1500, ..options(disk) }
}

fn to_read(disk: &SimDisk) -> Options {
    Options { read_only: true, ..quiet(disk) }
}

/// Too long for a leaf, and not to be compressed.
fn large(n: u32) -> Vec<u8> {
    let mut state = n;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..3000).map(|_| next()).collect()
}

fn made(disk: &SimDisk) {
    made_of(disk, Structure::Btree);
}

/// Keys 0 to 1500 by twos in an index of three levels, some with large values; rows in a table. Behind a checkpoint.
fn made_of(disk: &SimDisk, structure: Structure) {
    let db = Database::open(DIR, quiet(disk)).unwrap();
    let notes = db.create_index("notes", IndexOptions { structure, ..small_nodes() }).unwrap();
    for from in (0..1500u32).step_by(20) {
        let mut tx = db.begin().unwrap();
        for n in (from..from + 20).step_by(2) {
            let value = if n % 300 == 0 { large(n) } else { format!("early {n}").into_bytes() };
            tx.put(&notes, &n.to_be_bytes(), &value).unwrap();
        }
        tx.commit().unwrap();
    }
    let rows = table(&db, "rows");
    (0..1000).step_by(50).for_each(|id| insert(&db, &rows, id..id + 50).unwrap());
    db.settle().unwrap();
    db.close().unwrap();
}

/// Changes that only the log holds: new keys, new values, deletes; one commit is a run file. Returns the keys.
fn changed(disk: &SimDisk) -> (SimDisk, BTreeSet<Vec<u8>>) {
    let db = Database::open(DIR, quiet(disk)).unwrap();
    let notes = db.index("notes").unwrap();
    let mut touched = BTreeSet::new();
    let mut write = |from: u32, step: usize, late: &str| {
        let mut tx = db.begin().unwrap();
        for n in (from..1500u32).step_by(step) {
            let key = n.to_be_bytes();
            touched.insert(key.to_vec());
            if n % 4 == 2 {
                tx.delete(&notes, &key).unwrap();
            } else {
                tx.put(&notes, &key, format!("{late} {n}").as_bytes()).unwrap();
            }
        }
        tx.commit().unwrap();
    };
    write(4, 14, "late");
    write(1, 5, "run");
    write(1, 55, "later");
    write(3, 35, "last");
    assert!(run_files(disk) > 0, "one of them is a run file");
    drop(notes);
    (cut(disk, db), touched)
}

fn rot_at(disk: &SimDisk, at: u64) {
    rot(disk, &Path::new(DIR).join("data.trefoil"), |bytes| bytes[at as usize + 70] ^= 8);
}

fn entries(db: &Database) -> BTreeMap<Vec<u8>, Vec<u8>> {
    all(db, &db.index("notes").unwrap()).into_iter().collect()
}

fn salvaged(db: &Database, back: bool) -> (BTreeMap<Vec<u8>, Vec<u8>>, Vec<DamagedRange>) {
    let (notes, snapshot) = (db.index("notes").unwrap(), db.snapshot().unwrap());
    let cursor = if back { snapshot.range_back(&notes, ..) } else { snapshot.range(&notes, ..) };
    let mut cursor = cursor.unwrap().skip_damaged();
    let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        let in_order = found.last().is_none_or(|(last, _)| (last.as_slice() < key) != back);
        assert!(in_order, "keys ascend, or descend");
        found.push((key.to_vec(), value.to_vec()));
    }
    (found.into_iter().collect(), cursor.skipped().to_vec())
}

fn is_named(error: &Error, index: u32) -> bool {
    matches!(error, Error::Corrupt(damage) if !damage.file.is_empty()
        && damage.index.map(|id| id.0) == Some(index) && damage.key_range.is_some())
}

/// Holds a damaged database against what it was: `known` are keys whose newest version does not lie in what is damaged.
fn judge(db: &Database, truth: &BTreeMap<Vec<u8>, Vec<u8>>, known: &BTreeSet<Vec<u8>>) -> Vec<DamagedRange> {
    let (found, skipped) = salvaged(db, false);
    let (back, mut skipped_back) = salvaged(db, true);
    skipped_back.reverse();
    assert!(found == back, "both ways alike");
    assert_eq!(skipped.len(), skipped_back.len(), "{skipped:?} {skipped_back:?}");
    assert!(!skipped.is_empty(), "nothing is damaged");
    let missing = |key: &Vec<u8>| skipped.iter().any(|range| range.contains(key));
    for (key, value) in truth {
        let here = found.get(key);
        assert!(here == Some(value) || (here.is_none() && missing(key) && !known.contains(key)), "{key:?}: {here:?}");
    }
    for (key, value) in &found {
        assert_eq!(truth.get(key), Some(value), "{key:?} is stale");
    }
    for range in &skipped {
        let damage = Error::Corrupt(Box::new(range.damage.clone()));
        assert!(is_named(&damage, NOTES), "{damage}");
    }
    // Reads that do not skip: an error in the range, the truth outside.
    let notes = db.index("notes").unwrap();
    let tx = db.begin().unwrap();
    let error = tx.range(&notes, ..).and_then(trefoil::Cursor::collect).expect_err("damage is met");
    assert!(is_named(&error, NOTES), "{error}");
    for n in 0..1500u32 {
        let key = n.to_be_bytes().to_vec();
        match tx.get(&notes, &key) {
            Ok(value) => assert_eq!(value.as_ref(), truth.get(&key), "{key:?}"),
            Err(error) => assert!(missing(&key) && is_named(&error, NOTES), "{key:?}: {error}"),
        }
    }
    skipped
}

/// Damages a node and looks; then repairs it. Returns the ranges, and how many keys lie in them.
fn with_damage(
    disk: &SimDisk,
    at: u64,
    truth: &BTreeMap<Vec<u8>, Vec<u8>>,
    known: &BTreeSet<Vec<u8>>,
) -> (usize, usize) {
    rot_at(disk, at);
    let before = disk.files();
    let db = Database::open(DIR, to_read(disk)).unwrap();
    let skipped = judge(&db, truth, known);
    drop(db);
    assert!(disk.files() == before);
    rot_at(disk, at);
    (skipped.len(), truth.keys().filter(|key| skipped.iter().any(|range| range.contains(key))).count())
}

fn offset_of(disk: &SimDisk, node: (u8, usize)) -> u64 {
    block_of(disk, NOTES, node).offset
}

/// Leaves, inner nodes, the root; with and without changes that only the log holds.
#[test]
fn p10_a_damaged_node_costs_its_own_range_and_not_what_the_log_holds() {
    a_damaged_node_costs_its_own_range(Structure::Btree);
}

#[test]
fn p10_a_damaged_node_of_a_betree_costs_its_own_range_and_not_what_the_log_holds() {
    a_damaged_node_costs_its_own_range(Structure::Betree);
}

fn a_damaged_node_costs_its_own_range(structure: Structure) {
    simulate(move |_| {
        let first = disk();
        made_of(&first, structure);
        let truth = entries(&Database::open(DIR, to_read(&first)).unwrap());
        let none = BTreeSet::new();
        let (ranges, leaf) = with_damage(&first, offset_of(&first, (0, 9)), &truth, &none);
        assert!(ranges == 1 && (1..40).contains(&leaf), "{leaf}");
        let (disk, known) = changed(&first);
        let truth = entries(&Database::open(DIR, to_read(&disk)).unwrap());
        for n in [0, 1, 9, 20] {
            let (ranges, leaf) = with_damage(&disk, offset_of(&disk, (0, n)), &truth, &known);
            assert!(ranges == 1 && (1..60).contains(&leaf), "leaf {n}: {leaf}");
        }
        for n in [0, 1] {
            let (ranges, inner) = with_damage(&disk, offset_of(&disk, (1, n)), &truth, &known);
            assert!(ranges == 1 && (60..truth.len()).contains(&inner), "inner node {n}: {inner}");
        }
        let (ranges, root) = with_damage(&disk, offset_of(&disk, (2, 0)), &truth, &known);
        assert_eq!((ranges, root), (1, truth.len()));
        // Nothing of this was for good.
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        assert!(entries(&db) == truth);
        sound(&db);
    });
}

/// One key is lost with a block of its value.
#[test]
fn p10_a_damaged_large_value_costs_its_key() {
    simulate(|_| {
        let disk = disk();
        made(&disk);
        let truth = entries(&Database::open(DIR, to_read(&disk)).unwrap());
        let mut found = 0;
        let len = disk.files().into_iter().find(|(path, _)| path.ends_with("data.trefoil")).unwrap().1;
        // Where they lie is found by trying.
        for at in (1u64 << 16..len).step_by(4096) {
            rot_at(&disk, at);
            let db = Database::open(DIR, to_read(&disk));
            if let Ok(db) = &db {
                let (_, skipped) = salvaged(db, false);
                if let [one] = skipped.as_slice()
                    && one.high == Some([&one.low[..], &[0]].concat())
                {
                    judge(db, &truth, &BTreeSet::new());
                    found += 1;
                }
            }
            drop(db);
            rot_at(&disk, at);
        }
        assert!(found > 0, "no large value was hit");
    });
}

/// A run that the manifest names, and a leaf with something newer that cannot be read: what the run holds is stale.
#[test]
fn p10_what_an_old_run_holds_does_not_come_up_from_under_a_damaged_leaf() {
    simulate(|_| {
        let disk = disk();
        made(&disk);
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        let notes = db.index("notes").unwrap();
        let mut tx = db.begin().unwrap();
        (0..1500u32).step_by(3).for_each(|n| tx.put(&notes, &n.to_be_bytes(), b"of the run").unwrap());
        tx.commit().unwrap();
        for from in [0u32, 500, 1000] {
            let mut tx = db.begin().unwrap();
            (from..from + 30).step_by(3).for_each(|n| tx.put(&notes, &n.to_be_bytes(), b"newer").unwrap());
            tx.commit().unwrap();
        }
        db.checkpoint().unwrap();
        assert!(notes.stats().runs > 0, "the run is not drained");
        drop((notes, db));
        let truth = entries(&Database::open(DIR, to_read(&disk)).unwrap());
        assert!(truth.values().any(|value| value == b"newer") && truth.values().any(|value| value == b"of the run"));
        for n in [0, 1, 2] {
            with_damage(&disk, offset_of(&disk, (0, n)), &truth, &BTreeSet::new());
        }
        with_damage(&disk, offset_of(&disk, (1, 0)), &truth, &BTreeSet::new());
    });
}

/// A run file that is cut off, flipped or gone: its keys may be missing, the others are as they were.
#[test]
fn p10_a_damaged_run_file_costs_its_keys() {
    simulate(|_| {
        let first = disk();
        made(&first);
        let (disk, _) = changed(&first);
        let truth = entries(&Database::open(DIR, to_read(&disk)).unwrap());
        let files = disk.files();
        let (path, _) = files.iter().find(|(path, _)| path.to_string_lossy().contains("run-")).unwrap();
        for at in [60, 4096 + 60] {
            rot(&disk, path, |bytes| {
                let at = at.min(bytes.len() - 10);
                bytes[at] ^= 1;
            });
            let db = Database::open(DIR, to_read(&disk)).unwrap();
            judge(&db, &truth, &BTreeSet::new());
            drop(db);
            rot(&disk, path, |bytes| {
                let at = at.min(bytes.len() - 10);
                bytes[at] ^= 1;
            });
        }
    });
}

/// A sector that cannot be read is no better than one that was changed.
#[test]
fn p10_an_unreadable_sector_is_passed_over() {
    simulate(|_| {
        let first = disk();
        made(&first);
        let (disk, known) = changed(&first);
        let truth = entries(&Database::open(DIR, to_read(&disk)).unwrap());
        let mut met = 0;
        for nth in (2..60).step_by(4) {
            let rule = Rule::new(Action::Eio).on(Class::Read).path("data.trefoil").nth(nth);
            disk.faults().add(rule);
            let db = Database::open(DIR, to_read(&disk));
            if let Ok(db) = &db {
                let (found, skipped) = salvaged(db, false);
                met += skipped.len();
                for (key, value) in &truth {
                    let missing = skipped.iter().any(|range| range.contains(key)) && !known.contains(key);
                    assert!(found.get(key) == Some(value) || (missing && !found.contains_key(key)), "{nth}: {key:?}");
                }
            }
            drop(db);
            disk.faults().clear();
            let db = Database::open(DIR, to_read(&disk)).unwrap();
            assert!(entries(&db) == truth, "it passed");
        }
        assert!(met > 0, "no read of a scan failed");
    });
}

/// Reads fail twice and pass: what was kept of the log for the first one does not lie over what was applied since.
#[test]
fn p10_a_read_that_failed_does_not_put_old_over_new() {
    simulate(|_| {
        let first = disk();
        made(&first);
        let db = Database::open(DIR, quiet(&first)).unwrap();
        let notes = db.index("notes").unwrap();
        for n in 0..3u8 {
            put(&db, &notes, &100u32.to_be_bytes(), &[n], Durability::Sync).unwrap();
        }
        put(&db, &notes, &1000u32.to_be_bytes(), b"last", Durability::Sync).unwrap();
        drop(notes);
        let disk = cut(&first, db);
        let truth = entries(&Database::open(DIR, to_read(&disk)).unwrap());
        for (a, b) in (0..12).flat_map(|a| (a..12).map(move |b| (a, b))) {
            for nth in [a, b] {
                disk.faults().add(Rule::new(Action::Eio).on(Class::Read).path("data.trefoil").nth(nth));
            }
            let db = Database::open(DIR, to_read(&disk));
            disk.faults().clear();
            if let Ok(db) = &db {
                assert!(entries(db) == truth, "reads {a} and {b} failed");
            }
        }
    });
}

/// Rows of a table whose primary index is damaged; its other index reads on, other indexes are whole.
#[test]
fn p10_rows_of_a_damaged_table_are_read_around_the_damage() {
    simulate(|_| {
        let disk = disk();
        made(&disk);
        rot_at(&disk, block_of(&disk, ROWS, (0, 5)).offset);
        let db = Database::open(DIR, to_read(&disk)).unwrap();
        let rows = db.table("rows").unwrap();
        let snapshot = db.snapshot().unwrap();
        let mut scan = snapshot.scan(&rows, ALL).unwrap().skip_damaged();
        let mut found = BTreeSet::new();
        while let Some(row) = scan.next().unwrap() {
            let Value::U64(id) = row[0] else { panic!("a number") };
            assert_eq!(row[..], crate::support::row(id)[..]);
            found.insert(id);
        }
        assert!(found.len() > 900 && found.len() < 1000, "{}", found.len());
        let [range] = scan.skipped() else { panic!("{:?}", scan.skipped()) };
        assert_eq!(range.damage.index.map(|id| id.0), Some(ROWS));
        for id in (0..1000).filter(|id| !found.contains(id)) {
            let error = snapshot.get_row(&rows, &[Value::U64(id)]).err().unwrap();
            assert!(is_named(&error, ROWS), "{error}");
        }
        let error = snapshot.scan(&rows, ALL).and_then(|mut all| {
            while all.next()?.is_some() {}
            Ok(())
        });
        assert!(matches!(error, Err(Error::Corrupt(_))));
        assert_eq!(entries(&db).len(), 750);
        let problems = db.verify().unwrap().into_iter().flat_map(|(_, report)| report.problems).count();
        assert_eq!(problems, 1);
    });
}

/// What is kept of damaged ranges is memory: it is asked for, not taken.
#[test]
fn what_the_log_holds_of_a_damaged_range_keeps_to_the_budget() {
    simulate(|_| {
        let first = disk();
        let db = Database::open(DIR, Options { inline_batch_bytes: 30_000, ..quiet(&first) }).unwrap();
        let notes = index(&db, "notes");
        fill(&db, &notes, 0, 50, 20).unwrap();
        db.checkpoint().unwrap();
        for n in 0..600u32 {
            put(&db, &notes, &n.to_be_bytes(), &large(n)[..2000], Durability::Buffered).unwrap();
        }
        db.sync().unwrap();
        drop(notes);
        let disk = cut(&first, db);
        let root = block_of(&disk, NOTES, (1, 0)).offset;
        rot_at(&disk, root);
        let open = |budget_bytes| Database::open(DIR, Options { budget_bytes, ..to_read(&disk) });
        let error = open(1 << 20).err().expect("it does not fit");
        assert!(matches!(error, Error::Limit { .. }) && error.to_string().contains("budget_bytes"), "{error}");
        let db = open(8 << 20).unwrap();
        assert_eq!(salvaged(&db, false).0.len(), 600, "all of them are in the log");
    });
}
