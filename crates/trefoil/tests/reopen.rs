//! Opening again: after a close, after a crash of the process, and on things that are not a sound database.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test breaks files behind the engine's back")]

use std::fs;
use std::path::{Path, PathBuf};

use trefoil::{ALL, ColumnType, Database, Durability, Error, Index, IndexOptions, IndexSchema, Options, Schema};

fn options() -> Options {
    Options { durability: Durability::Write, ..Options::default() }
}

fn fill(db: &Database, name: &str, from: u32, to: u32) {
    let index = db.index(name).or_else(|_| db.create_index(name, IndexOptions::default())).unwrap();
    for chunk in (from..to).collect::<Vec<_>>().chunks(100) {
        let mut tx = db.begin().unwrap();
        for n in chunk {
            tx.put(&index, &n.to_be_bytes(), format!("value {n}").as_bytes()).unwrap();
        }
        tx.commit().unwrap();
    }
}

fn count(db: &Database, name: &str) -> usize {
    let index = db.index(name).unwrap();
    let all = db.begin().unwrap().range(&index, ..).unwrap().collect().unwrap();
    for (key, value) in &all {
        let n = u32::from_be_bytes(key.as_slice().try_into().unwrap());
        assert_eq!(value, format!("value {n}").as_bytes());
    }
    all.len()
}

fn sound(db: &Database) {
    for (name, report) in db.verify().unwrap() {
        assert!(report.problems.is_empty(), "{name}: {:?}", report.problems);
    }
}

#[test]
fn closed_and_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    for round in 0..4 {
        let db = Database::open(&path, options()).unwrap();
        assert_eq!(db.stats().replayed_operations, 0, "a closed database has nothing to replay");
        fill(&db, "a", round * 1000, (round + 1) * 1000);
        fill(&db, &format!("r{round}"), 0, 50);
        assert_eq!(count(&db, "a"), (round as usize + 1) * 1000);
        sound(&db);
        db.close().unwrap();
    }
    let db = Database::open(&path, options()).unwrap();
    assert_eq!(db.names().0, ["a", "r0", "r1", "r2", "r3"]);
}

#[test]
fn an_open_does_not_clean() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let options = || Options { background: false, ..options() };
    let db = Database::open(&path, options()).unwrap();
    fill(&db, "a", 0, 1000);
    db.close().unwrap();
    drop(db);
    // Its extents are mostly free: cleaning would move all of it.
    let db = Database::open(&path, options()).unwrap();
    let loads = || db.index("a").unwrap().stats().loads;
    assert_eq!(loads(), 0, "leaves read by an open that has nothing to replay");
    db.settle().unwrap();
    assert!(loads() > 0, "nothing was left to clean: the test shows nothing");
}

#[test]
fn left_without_close() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    for round in 0..4 {
        let db = Database::open(&path, options()).unwrap();
        assert_eq!(db.index("a").map_or(0, |_| count(&db, "a")), round as usize * 1000);
        fill(&db, "a", round * 1000, (round + 1) * 1000);
        if round == 2 {
            db.checkpoint().unwrap();
            db.drop_index("gone1").unwrap();
        }
        fill(&db, &format!("gone{round}"), 0, 100);
        sound(&db);
    }
    let db = Database::open(&path, options()).unwrap();
    assert!(db.stats().replayed_operations > 0);
    assert_eq!(count(&db, "a"), 4000);
    assert_eq!(db.names().0, ["a", "gone0", "gone2", "gone3"]);
    sound(&db);
}

#[test]
fn a_second_handle_is_refused_and_a_copy_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = Database::open(&path, options()).unwrap();
    assert!(matches!(Database::open(&path, options()), Err(Error::Locked { .. })));
    drop(db);
    Database::open(&path, options()).unwrap();
}

#[test]
fn not_a_database() {
    let dir = tempfile::tempdir().unwrap();
    let none = Options { create: false, ..options() };
    let missing = Database::open(dir.path().join("missing"), none.clone());
    assert!(matches!(missing, Err(Error::NotADatabase { .. })));
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert!(matches!(Database::open(&empty, none), Err(Error::NotADatabase { .. })));
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("letter.txt"), "dear").unwrap();
    let error = Database::open(&other, options()).err().unwrap();
    assert!(error.to_string().contains("letter.txt"), "{error}");
    assert_eq!(fs::read_to_string(other.join("letter.txt")).unwrap(), "dear");
}

fn made(dir: &Path) -> PathBuf {
    let path = dir.join("db");
    let db = Database::open(&path, options()).unwrap();
    fill(&db, "a", 0, 20_000);
    db.close().unwrap();
    path
}

fn file_named(path: &Path, prefix: &str) -> PathBuf {
    let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
    names.retain(|p| p.file_name().unwrap().to_str().unwrap().starts_with(prefix));
    assert_eq!(names.len(), 1, "{names:?}");
    names.pop().unwrap()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_header_and_manifest_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path());
    let header = path.join("TREFOIL");
    let saved = fs::read(&header).unwrap();
    flip(&header, 30);
    let error = Database::open(&path, options()).err().unwrap();
    assert!(matches!(&error, Error::Corrupt(c) if c.file.contains("TREFOIL")), "{error}");
    fs::remove_file(&header).unwrap();
    let error = Database::open(&path, options()).err().unwrap();
    assert!(error.to_string().contains("header file TREFOIL is missing"), "{error}");
    fs::write(&header, &saved[..100]).unwrap();
    assert!(matches!(Database::open(&path, options()), Err(Error::NotADatabase { .. })));
    fs::write(&header, &saved).unwrap();

    let manifest = file_named(&path, "MANIFEST-");
    let saved = fs::read(&manifest).unwrap();
    flip(&manifest, 60);
    let error = Database::open(&path, options()).err().unwrap();
    assert!(matches!(&error, Error::Corrupt(c) if c.file.contains("MANIFEST")), "{error}");
    fs::write(&manifest, &saved[..saved.len() - 1]).unwrap();
    assert!(matches!(Database::open(&path, options()), Err(Error::Corrupt(_))));
    fs::remove_file(&manifest).unwrap();
    let error = Database::open(&path, options()).err().unwrap();
    assert!(error.to_string().contains("manifest is missing"), "{error}");
    fs::write(&manifest, &saved).unwrap();
    assert_eq!(count(&Database::open(&path, options()).unwrap(), "a"), 20_000);
}

#[test]
fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path());
    let manifest = file_named(&path, "MANIFEST-");
    let mut bytes = fs::read(&manifest).unwrap();
    bytes[8] = 9;
    fs::write(&manifest, bytes).unwrap();
    let error = Database::open(&path, options()).err().unwrap();
    assert!(matches!(error, Error::NewerFormat { found: 9, supported: 2, .. }), "{error}");
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|e| e.unwrap().path()) {
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy_all(&entry, &target);
        } else {
            fs::copy(&entry, &target).unwrap();
        }
    }
}

#[test]
fn a_flipped_bit_in_a_block_names_file_offset_and_index() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path());
    let clean = fs::read(path.join("data.trefoil")).unwrap();
    let mut seen = 0;
    for at in (8192..clean.len()).step_by(40_009) {
        if clean[at] == 0 {
            continue;
        }
        // A copy each time: opening goes on to write.
        let copy = dir.path().join(format!("copy{at}"));
        copy_all(&path, &copy);
        flip(&copy.join("data.trefoil"), at);
        let found = Database::open(&copy, options()).and_then(|db| {
            let index = db.index("a")?;
            let tx = db.begin()?;
            tx.range(&index, ..).and_then(|c| c.collect())
        });
        match found {
            Ok(all) => assert_eq!(all.len(), 20_000, "the flip was in a dead block"),
            Err(Error::Corrupt(c)) => {
                seen += 1;
                assert!(c.file.contains("data.trefoil") && c.index.is_some(), "{c}");
            }
            Err(other) => panic!("{other}"),
        }
        fs::remove_dir_all(&copy).unwrap();
    }
    assert!(seen > 0, "no flip was met");
}

/// A bound of the data file that would refuse every statement is an argument to mend, not a full disk; what is there already is opened.
#[test]
fn a_bound_of_a_new_data_file_has_room_for_a_statement() {
    let dir = tempfile::tempdir().unwrap();
    let bounded =
        |max| Options { extent_bytes: 64 << 10, disk_reserve_bytes: 1 << 20, data_bytes_max: Some(max), ..options() };
    let least = (1 << 20) + 16 * (64 << 10);
    let refused = Database::open(dir.path(), bounded(least - 1));
    let why = refused.err().unwrap().to_string();
    assert!(why.contains("data_bytes_max") && why.contains(&least.to_string()), "{why}");

    let put = |db: &Database, index: &Index| {
        db.checkpoint()?;
        // Until the disk is looked at again.
        std::thread::sleep(std::time::Duration::from_millis(60));
        let mut tx = db.begin()?;
        tx.put(index, b"k", b"v")?;
        tx.commit().map(drop)
    };
    let db = Database::open(dir.path(), bounded(least)).unwrap();
    let index = db.create_index("t", IndexOptions::default()).unwrap();
    put(&db, &index).expect("the least lets something be written");
    drop(index);
    db.close().unwrap();
    drop(db);
    let db = Database::open(dir.path(), bounded(1)).expect("it is there");
    let index = db.index("t").unwrap();
    assert_eq!(db.begin().unwrap().get(&index, b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert!(matches!(put(&db, &index), Err(Error::DiskFull { .. })));
}

/// What the documentation says of sizes is what is asked of users.
#[test]
fn sizes_out_of_range_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for extent_bytes in [0, 16 << 10, 32 << 10, 100_000, 8 << 20] {
        let refused = Database::open(dir.path(), Options { extent_bytes, ..options() });
        assert!(matches!(&refused, Err(Error::InvalidArgument(why)) if why.contains("64 KiB")), "{extent_bytes}");
    }
    let db = Database::open(dir.path(), Options { extent_bytes: 64 << 10, ..options() }).unwrap();
    for node_bytes in [1, 512, 2048, 4097, 128 << 10] {
        let refused = db.create_index("refused", IndexOptions { node_bytes, ..IndexOptions::default() });
        let why = refused.err().unwrap().to_string();
        assert!(why.contains("from 4096 to 65536") && why.contains(&node_bytes.to_string()), "{why}");
    }
    for node_bytes in [0, 4096, 64 << 10] {
        let options = IndexOptions { node_bytes, ..IndexOptions::default() };
        db.create_index(&format!("of {node_bytes}"), options).unwrap();
    }
}

/// A new name is durable at once, for a table with rows; indexes and handles go with it.
#[test]
fn a_table_keeps_its_rows_under_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let schema = Schema::builder().column("id", ColumnType::I64).column("v", ColumnType::I64).primary_key(&["id"]);
    let schema = schema.index(IndexSchema::new("by_v", &["v"])).build().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let (old, _other) = (db.create_table("old", schema.clone()).unwrap(), db.create_table("other", schema).unwrap());
    let mut tx = db.begin().unwrap();
    tx.insert(&old, &[1i64.into(), 7i64.into()]).unwrap();
    tx.commit().unwrap();
    assert!(matches!(db.rename_table("none", "new"), Err(Error::NotFound { .. })));
    assert!(matches!(db.rename_table("old", "other"), Err(Error::AlreadyExists { .. })));
    assert!(matches!(db.rename_table("old", ""), Err(Error::InvalidArgument(_))));
    db.rename_table("old", "new").unwrap();
    let mut tx = db.begin().unwrap();
    tx.insert(&old, &[2i64.into(), 8i64.into()]).unwrap();
    tx.commit().unwrap();
    assert!(db.stats().indexes.iter().any(|(name, _)| name == "new.by_v"));
    drop((old, _other));
    drop(db); // as a process ends

    let db = Database::open(dir.path(), options()).unwrap();
    assert_eq!(db.names().1, ["new", "other"]);
    let (tx, table) = (db.begin().unwrap(), db.table("new").unwrap());
    let mut entries = tx.scan_index(&table, "by_v", ALL).unwrap();
    assert_eq!(entries.next().unwrap(), Some(vec![7i64.into(), 1i64.into()]));
    assert_eq!(entries.next().unwrap(), Some(vec![8i64.into(), 2i64.into()]));
    drop(entries);
    sound(&db);
}
