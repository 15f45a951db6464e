//! Damage of a primary or plain index, met by a commit, the background or replay in a database that is written to: it is
//! only read from then on, everything else goes on, and nothing that the log holds for it is lost [P10].

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::damage::block_of;
use crate::support::surgery::{DIR, rot};
use crate::support::*;
use trefoil::{Database, Durability, Error, Options, Value};
use vfs::sim::SimDisk;

const NOTES: u32 = 1;
const ROWS: u32 = 3;

fn quiet(disk: &SimDisk) -> Options {
    Options { background: false, inline_batch_bytes: 30_000, ..options(disk) }
}

fn open_quiet(disk: &SimDisk) -> Database {
    Database::open(DIR, quiet(disk)).unwrap()
}

/// Two plain indexes and a table, of three levels each.
fn made(disk: &SimDisk) {
    let db = open_quiet(disk);
    for name in ["notes", "other"] {
        let index = index(&db, name);
        (0..20).for_each(|n| fill(&db, &index, n * 100, n * 100 + 100, 20).unwrap());
    }
    let rows = table(&db, "rows");
    (0..1000).step_by(50).for_each(|id| insert(&db, &rows, id..id + 50).unwrap());
    db.settle().unwrap();
    db.close().unwrap();
}

/// Done twice, it is undone.
fn rot_at(disk: &SimDisk, at: u64) {
    rot(disk, &Path::new(DIR).join("data.trefoil"), |bytes| bytes[at as usize + 70] ^= 8);
}

fn one(db: &Database, name: &str, key: u32) -> Result<(), Error> {
    put(db, &db.index(name).unwrap(), &key.to_be_bytes(), b"new", Durability::Sync)
}

/// A commit of more cold leaves than one waits for: it is attached as a run in memory.
fn cold(db: &Database, name: &str, from: u32, value: &[u8]) {
    let notes = db.index(name).unwrap();
    let mut tx = db.begin().unwrap();
    (from..2000u32).step_by(10).for_each(|n| tx.put(&notes, &n.to_be_bytes(), value).unwrap());
    tx.commit().unwrap();
}

/// `name` is only read, and says so; the others are written, and checkpoints go on.
fn only_read(db: &Database, name: &str, index: u32) {
    assert_eq!(db.stats().damaged, [name]);
    let error = if name == "notes" {
        one(db, "notes", 1999).expect_err("it is only read")
    } else {
        insert(db, &db.table("rows").unwrap(), 5000..5001).expect_err("it is only read")
    };
    let Error::Damaged { name: said, damage } = &error else { panic!("{error}") };
    assert_eq!((said.as_str(), damage.index.map(|id| id.0)), (name, Some(index)));
    assert!(error.to_string().contains("trefoil dump") && error.to_string().contains("data.trefoil"), "{error}");
    one(db, "other", 7).unwrap();
    if name == "notes" {
        let rows = db.table("rows").unwrap();
        let mut tx = db.begin().unwrap();
        assert!(tx.update(&rows, &[Value::U64(9), Value::U32(77)]).unwrap());
        tx.commit().unwrap();
    } else {
        one(db, "notes", 7).unwrap();
    }
    assert!(matches!(db.checkpoint_to("/copy"), Err(Error::Damaged { .. })), "it would miss what the log holds");
    let before = db.stats().checkpoints;
    db.settle().unwrap();
    assert!(db.stats().checkpoints > before);
}

#[test]
fn p10_a_commit_that_meets_damaged_rows_makes_them_only_read() {
    simulate(|_| {
        let disk = disk();
        made(&disk);
        rot_at(&disk, block_of(&disk, NOTES, (0, 3)).offset);
        let db = open_quiet(&disk);
        let met = (0..2000).find_map(|key| one(&db, "notes", key).err()).expect("a commit meets it");
        assert!(matches!(met, Error::Damaged { .. }), "{met}");
        only_read(&db, "notes", NOTES);
        // The next opening does not know before somebody meets it.
        db.close().unwrap();
        drop(db);
        let db = open_quiet(&disk);
        assert!(db.stats().damaged.is_empty());
        one(&db, "notes", 1999).unwrap();
    });
}

#[test]
fn p10_rows_of_a_table_that_are_damaged_are_only_read() {
    simulate(|_| {
        let disk = disk();
        made(&disk);
        rot_at(&disk, block_of(&disk, ROWS, (1, 0)).offset);
        let db = open_quiet(&disk);
        let rows = db.table("rows").unwrap();
        // A statement looks at the row first: an error of that read, and nothing else.
        let mut tx = db.begin().unwrap();
        assert!(matches!(tx.update(&rows, &row(0)), Err(Error::Corrupt(_))));
        tx.rollback();
        assert!(db.stats().damaged.is_empty());
        // So it takes a write that reads nothing.
        let met = trefoil::fuzzing::write_raw(&db, "rows.primary", b"\0", Some(b"")).expect_err("damage");
        let Error::Corrupt(met) = met else { panic!("{met}") };
        trefoil::fuzzing::damaged(&db, met);
        only_read(&db, "rows.primary", ROWS);
        db.drop_table("rows").unwrap();
        drop(rows);
        db.settle().unwrap();
        assert!(db.stats().damaged.is_empty());
        sound(&db);
    });
}

/// A transaction under way when the damage is met does not get through; one on other indexes does.
#[test]
fn p10_a_transaction_under_way_does_not_write_to_what_is_only_read() {
    simulate(|_| {
        let disk = disk();
        made(&disk);
        rot_at(&disk, block_of(&disk, NOTES, (0, 3)).offset);
        let db = open_quiet(&disk);
        let (notes, other) = (db.index("notes").unwrap(), db.index("other").unwrap());
        let mut both = db.begin().unwrap();
        both.put(&other, b"x", b"x").unwrap();
        both.put(&notes, &1999u32.to_be_bytes(), b"x").unwrap();
        let mut fine = db.begin().unwrap();
        fine.put(&other, b"y", b"y").unwrap();
        (0..2000).find_map(|key| one(&db, "notes", key).err()).expect("a commit meets it");
        assert!(matches!(both.commit(), Err(Error::Damaged { .. })));
        fine.commit().unwrap();
        assert_eq!((get(&db, &other, b"x"), get(&db, &other, b"y")), (None, Some(b"y".to_vec())));
    });
}

/// Met by the drain: the run stays, and so does the log behind it, over checkpoints, crashes and closes, until the damage is
/// gone; then everything is there.
#[test]
fn p10_damage_met_by_the_background_costs_nothing_that_the_log_holds() {
    simulate(|_| {
        let first = disk();
        made(&first);
        let at = block_of(&first, NOTES, (1, 1)).offset;
        let db = open_quiet(&first);
        // Two moments: what is kept has to be found again from the first one on.
        cold(&db, "notes", 5, b"of the first");
        cold(&db, "notes", 0, b"of the run");
        let notes = db.index("notes").unwrap();
        assert!(notes.stats().runs > 0, "it waits for the drain");
        let truth: BTreeMap<_, _> = all(&db, &notes).into_iter().collect();
        drop((notes, db));
        let disk = first;
        let db = {
            // The leaves are in memory of the handle before; this one meets the damage while it replays.
            rot_at(&disk, at);
            open_quiet(&disk)
        };
        only_read(&db, "notes", NOTES);
        db.close().unwrap();
        drop(db);
        // Again, from what that life left, and after a power cut.
        let db = open_quiet(&disk);
        only_read(&db, "notes", NOTES);
        let (mut found, mut skipped) = (0, 0);
        for (key, value) in &truth {
            match db.begin().unwrap().get(&db.index("notes").unwrap(), key) {
                Ok(here) => {
                    assert_eq!(here.as_ref(), Some(value));
                    found += 1;
                }
                Err(Error::Corrupt(_)) => skipped += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(found > 500 && skipped > 100, "{found} {skipped}");
        let disk = cut(&disk, db);
        let db = open_quiet(&disk);
        only_read(&db, "notes", NOTES);
        drop(db);
        rot_at(&disk, at);
        let db = open_quiet(&disk);
        assert!(db.stats().damaged.is_empty());
        let now: BTreeMap<_, _> = all(&db, &db.index("notes").unwrap()).into_iter().collect();
        assert!(now == truth, "{} of {}", now.len(), truth.len());
        one(&db, "notes", 1).unwrap();
        db.settle().unwrap();
        sound(&db);
    });
}

/// The drain of a living database meets it.
#[test]
fn p10_the_background_goes_on_without_a_damaged_index() {
    simulate(|_| {
        let disk = disk();
        made(&disk);
        let offsets: Vec<u64> = (1..6).map(|n| block_of(&disk, NOTES, (0, n * 3)).offset).collect();
        let db = Database::open(DIR, Options { budget_bytes: 1 << 20, ..quiet(&disk) }).unwrap();
        cold(&db, "notes", 0, b"of the run");
        cold(&db, "other", 0, b"of the run");
        let truth = all(&db, &db.index("other").unwrap());
        offsets.iter().for_each(|at| rot_at(&disk, *at));
        for _ in 0..50 {
            db.settle().unwrap();
        }
        only_read(&db, "notes", NOTES);
        assert!(db.index("notes").unwrap().stats().runs > 0 && db.index("other").unwrap().stats().runs == 0);
        let mut now = all(&db, &db.index("other").unwrap());
        now.retain(|(key, _)| key != &7u32.to_be_bytes());
        assert_eq!(now.len(), truth.len() - 1);
        let disk = cut(&disk, db);
        offsets.iter().for_each(|at| rot_at(&disk, *at));
        let db = open_quiet(&disk);
        assert!(db.stats().damaged.is_empty());
        let notes = db.index("notes").unwrap();
        (0..2000u32).step_by(10).for_each(|n| assert_eq!(get(&db, &notes, &n.to_be_bytes()).unwrap(), b"of the run"));
        drop(notes);
        db.settle().unwrap();
        sound(&db);
    });
}

/// One of two damaged leaves can be read again: what is kept for both is not drained as far as that goes, or the log would be
/// given up from its beginning on.
#[test]
fn p10_what_is_kept_of_the_log_is_not_drained_in_part() {
    simulate(|_| {
        let disk = disk();
        made(&disk);
        let [a, b] = [2, 30].map(|n| block_of(&disk, NOTES, (0, n)).offset);
        let db = open_quiet(&disk);
        cold(&db, "notes", 5, b"of the first");
        cold(&db, "notes", 0, b"of the run");
        let truth = all(&db, &db.index("notes").unwrap());
        drop(db);
        [a, b].iter().for_each(|at| rot_at(&disk, *at));
        let db = open_quiet(&disk);
        only_read(&db, "notes", NOTES);
        rot_at(&disk, a);
        db.settle().unwrap();
        db.close().unwrap();
        drop(db);
        rot_at(&disk, b);
        let db = open_quiet(&disk);
        assert!(db.stats().damaged.is_empty());
        assert!(all(&db, &db.index("notes").unwrap()) == truth);
    });
}
