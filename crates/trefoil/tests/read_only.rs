//! A database that is opened to be read: it shows what an ordinary opening shows, refuses every change, and leaves its
//! directory as it is, byte for byte.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::*;
use trefoil::{ALL, Database, Error, IndexOptions, IndexSchema, Options, Value};

fn plenty() -> Options {
    Options {
        budget_bytes: 32 << 20,
        log_segment_bytes: 256 << 10,
        extent_bytes: 64 << 10,
        inline_batch_bytes: 20_000,
        ..Options::default()
    }
}

fn to_read() -> Options {
    Options { read_only: true, ..plenty() }
}

/// Everything below a directory: names, and what the files hold.
fn everything(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(everything(&path));
            found.insert(path, None);
        } else {
            found.insert(path.clone(), Some(fs::read(path).unwrap()));
        }
    }
    found
}

fn set_writable(dir: &Path, writable: bool) {
    for path in everything(dir).into_keys().chain([dir.to_owned()]) {
        let mut permissions = fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(!writable);
        fs::set_permissions(path, permissions).unwrap();
    }
}

/// What a reader sees: entries, rows, entries of the secondary index.
fn seen(db: &Database) -> (Entries, Vec<Vec<Value<'static>>>, usize) {
    let rows = db.table("rows").unwrap();
    let snapshot = db.snapshot().unwrap();
    let (mut scan, mut found) = (snapshot.scan(&rows, ALL).unwrap(), Vec::new());
    while let Some(row) = scan.next().unwrap() {
        found.push(row.into_iter().map(Value::into_owned).collect());
    }
    (all(db, &db.index("notes").unwrap()), found, indexed(db, &rows))
}

/// Some of it behind a checkpoint, some in the log alone: puts, deletes, a run file, an index made, one dropped.
fn made(dir: &Path) {
    let db = Database::open(dir, Options { background: false, ..plenty() }).unwrap();
    let (notes, gone) = (index(&db, "notes"), index(&db, "gone"));
    let rows = table(&db, "rows");
    db.create_table_indexes(&rows, vec![by_colour()]).unwrap();
    fill(&db, &notes, 0, 2000, 30).unwrap();
    fill(&db, &gone, 0, 500, 30).unwrap();
    insert(&db, &rows, 0..500).unwrap();
    db.settle().unwrap();
    db.drop_index("gone").unwrap();
    fill(&db, &notes, 1000, 1100, 40).unwrap();
    fill(&db, &notes, 5000, 7000, 30).unwrap();
    insert(&db, &rows, 500..600).unwrap();
    let mut tx = db.begin().unwrap();
    (0..50u32).for_each(|n| assert!(tx.delete(&notes, &n.to_be_bytes()).unwrap()));
    assert!(tx.delete_row(&rows, &[Value::U64(3)]).unwrap());
    tx.commit().unwrap();
    index(&db, "late");
    put(&db, &db.index("late").unwrap(), b"k", b"v", trefoil::Durability::Sync).unwrap();
}

#[test]
fn a_read_only_database_shows_everything_and_its_directory_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    made(&path);
    set_writable(&path, false);
    let before = everything(&path);
    assert!(before.keys().any(|path| path.to_string_lossy().contains("run-")), "a run file is among them");
    let db = Database::open(&path, to_read()).unwrap();
    let shown = seen(&db);
    assert_eq!(get(&db, &db.index("late").unwrap(), b"k").as_deref(), Some(&b"v"[..]));
    assert!(matches!(db.index("gone"), Err(Error::NotFound { .. })));
    assert!(db.stats().replayed_operations > 2000);
    sound(&db);
    db.close().unwrap();
    drop(db);
    assert!(everything(&path) == before, "opened, read, verified and closed: nothing changed");
    drop(Database::open(&path, to_read()).unwrap());
    assert!(everything(&path) == before, "dropped: nothing changed");
    set_writable(&path, true);
    let db = Database::open(&path, plenty()).unwrap();
    assert!(seen(&db) == shown, "an ordinary opening shows the same");
    sound(&db);
}

#[test]
fn every_change_is_refused_and_names_the_option() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    made(&path);
    let before = everything(&path);
    let db = Database::open(&path, to_read()).unwrap();
    let (notes, rows) = (db.index("notes").unwrap(), db.table("rows").unwrap());
    let mut tx = db.begin().unwrap();
    let refused: Vec<Result<(), Error>> = vec![
        tx.put(&notes, b"k", b"v"),
        tx.delete(&notes, &60u32.to_be_bytes()).map(|_| ()),
        tx.insert(&rows, &row(10_000)),
        tx.update(&rows, &row(7)).map(|_| ()),
        tx.delete_row(&rows, &[Value::U64(7)]).map(|_| ()),
        db.create_index("new", small_nodes()).map(|_| ()),
        db.drop_index("notes"),
        db.create_table_indexes(&rows, vec![IndexSchema::new("other", &["colour"])]),
        db.rebuild_index(&rows, "by_colour"),
        db.drop_table("rows"),
        db.checkpoint(),
        db.settle(),
        db.checkpoint_to(dir.path().join("copy")).map(|_| ()),
        trefoil::fuzzing::write_raw(&db, "notes", b"k", Some(b"v")),
    ];
    for (n, outcome) in refused.into_iter().enumerate() {
        let error = outcome.expect_err("a change");
        assert!(matches!(error, Error::ReadOnly), "{n}: {error}");
        assert!(error.to_string().contains("Options::read_only"), "{error}");
    }
    assert!(tx.get(&notes, &60u32.to_be_bytes()).unwrap().is_some(), "the transaction goes on");
    tx.commit().unwrap();
    db.sync().unwrap();
    drop((notes, rows, db));
    assert!(everything(&path) == before && !dir.path().join("copy").exists());
}

/// Readers share, a writer is alone; without a lock file none is made.
#[test]
fn readers_keep_a_writer_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    made(&path);
    let reader = Database::open(&path, to_read()).unwrap();
    let second = Database::open(&path, to_read()).unwrap();
    assert!(matches!(Database::open(&path, plenty()), Err(Error::Locked { .. })));
    drop((reader, second));
    let writer = Database::open(&path, plenty()).unwrap();
    assert!(matches!(Database::open(&path, to_read()), Err(Error::Locked { .. })));
    writer.checkpoint_to(dir.path().join("copy")).unwrap();
    let before = everything(&dir.path().join("copy"));
    let copy = Database::open(dir.path().join("copy"), to_read()).unwrap();
    assert!(seen(&copy) == seen(&writer));
    drop(copy);
    assert!(everything(&dir.path().join("copy")) == before && !dir.path().join("copy/LOCK").exists());
}

#[test]
fn what_is_not_there_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent");
    for path in [dir.path(), absent.as_path()] {
        assert!(matches!(Database::open(path, to_read()), Err(Error::NotADatabase { .. })));
    }
    assert!(everything(dir.path()).is_empty());
}

/// The log holds more than the budget: a clear refusal instead of files beside it.
#[test]
fn a_log_larger_than_memory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = Database::open(&path, Options { background: false, ..plenty() }).unwrap();
    let notes = index(&db, "notes");
    (0..400).for_each(|n| fill(&db, &notes, n * 100, n * 100 + 100, 100).unwrap());
    drop((notes, db));
    let before = everything(&path);
    let small = Options { budget_bytes: 2 << 20, ..to_read() };
    let error = Database::open(&path, small).err().expect("it does not fit");
    assert!(matches!(error, Error::Limit { .. }) && error.to_string().contains("budget_bytes"), "{error}");
    let db = Database::open(&path, to_read()).unwrap();
    assert_eq!(all(&db, &db.index("notes").unwrap()).len(), 40_000);
    drop(db);
    assert!(everything(&path) == before);
}

/// Pages come and go under a small budget although nothing is written back.
#[test]
fn a_database_larger_than_memory_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = Database::open(&path, plenty()).unwrap();
    let notes = db.create_index("notes", IndexOptions { node_bytes: 16 << 10, ..IndexOptions::default() }).unwrap();
    (0..60).for_each(|n| fill(&db, &notes, n * 1000, n * 1000 + 1000, 100).unwrap());
    // What is in runs is in no leaf.
    db.settle().unwrap();
    db.close().unwrap();
    drop((notes, db));
    let db = Database::open(&path, Options { budget_bytes: 2 << 20, ..to_read() }).unwrap();
    for _ in 0..2 {
        assert_eq!(all(&db, &db.index("notes").unwrap()).len(), 60_000);
    }
    let loads = db.index("notes").unwrap().stats().loads;
    assert!(loads > 500, "{loads} leaves");
}

/// The end of the log is torn or not: what recovery would find is what is shown.
#[test]
fn after_a_power_cut_a_reader_sees_what_recovery_finds() {
    simulate(|_| {
        let first = disk();
        let db = Database::open("/db", Options { background: false, ..options(&first) }).unwrap();
        let notes = index(&db, "notes");
        (0..20).for_each(|n| fill(&db, &notes, n * 10, n * 10 + 10, 50).unwrap());
        for n in 0..40u32 {
            put(&db, &notes, &n.to_be_bytes(), b"late", trefoil::Durability::Buffered).unwrap();
        }
        drop(notes);
        let disk = cut(&first, db);
        let shown = {
            let db = Database::open("/db", Options { read_only: true, ..options(&disk) }).unwrap();
            sound(&db);
            all(&db, &db.index("notes").unwrap())
        };
        let db = open(&disk);
        assert!(all(&db, &db.index("notes").unwrap()) == shown && shown.len() == 200);
    });
}
