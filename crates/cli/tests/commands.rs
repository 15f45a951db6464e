//! The commands from outside: what they print, and their exit codes.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use trefoil::{ColumnType, Database, IndexOptions, IndexSchema, Options, Schema, Structure, Value};

fn trefoil(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trefoil")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A database with a table of three rows and a plain index of two entries.
fn shop(dir: &Path) -> String {
    let path = dir.join("shop.db");
    let db = Database::open(&path, Options::default()).unwrap();
    let schema = Schema::builder()
        .column("id", ColumnType::U64)
        .nullable("name", ColumnType::Text)
        .primary_key(&["id"])
        .build()
        .unwrap();
    let table = db.create_table("orders", schema).unwrap();
    let index = db.create_index("notes", IndexOptions::default()).unwrap();
    let mut tx = db.begin().unwrap();
    for (id, name) in [(1, Value::from("tea")), (2, Value::Null), (3, Value::from("a\tb"))] {
        tx.insert(&table, &[Value::U64(id), name]).unwrap();
    }
    tx.put(&index, b"k1", b"v\x001").unwrap();
    tx.put(&index, b"k2", b"").unwrap();
    tx.commit().unwrap();
    db.close().unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_sound_database_is_verified() {
    let dir = tempfile::tempdir().unwrap();
    let db = shop(dir.path());
    let out = trefoil(&["verify", &db]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let printed = text(&out.stdout);
    assert!(printed.contains("orders.primary: ok, 3 entries") && printed.contains("notes: ok, 2 entries"), "{printed}");
}

/// Every block of the data file is damaged in turn: each open or verify says so, with code 4, and names the file.
#[test]
fn damage_is_found_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let db = shop(dir.path());
    let file = dir.path().join("shop.db/data.trefoil");
    let sound = std::fs::read(&file).unwrap();
    let used: Vec<usize> =
        (4096..sound.len()).step_by(64).filter(|at| sound[*at..*at + 64].iter().any(|b| *b != 0)).collect();
    assert!(!used.is_empty());
    let mut found = 0;
    for at in used.iter().step_by(used.len().div_ceil(20)) {
        let mut bytes = sound.clone();
        bytes[*at + 13] ^= 4;
        std::fs::write(&file, &bytes).unwrap();
        let out = trefoil(&["verify", &db]);
        match out.status.code() {
            // A block of an older checkpoint that nobody names any more.
            Some(0) => {}
            Some(4) => {
                let said = text(&out.stdout) + &text(&out.stderr);
                assert!(said.contains("data"), "{said}");
                found += 1;
            }
            other => panic!("{other:?}: {}", text(&out.stderr)),
        }
        std::fs::write(&file, &sound).unwrap();
    }
    assert!(found > 0, "no flip met a living block");
}

#[test]
fn rows_and_entries_are_dumped() {
    let dir = tempfile::tempdir().unwrap();
    let db = shop(dir.path());
    let out = trefoil(&["dump", &db, "--table", "orders"]);
    assert_eq!(text(&out.stdout), "id\tname\n1\ttea\n2\t\\N\n3\ta\\tb\n", "{}", text(&out.stderr));
    let out = trefoil(&["dump", &db, "--table", "orders", "--format", "json"]);
    let lines: Vec<serde_json::Value> =
        text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), lines[1]["name"].is_null(), lines[2]["name"].as_str()), (3, true, Some("a\tb")));
    let out = trefoil(&["dump", &db, "--index", "notes"]);
    assert_eq!(text(&out.stdout), "k1\tv\\x001\nk2\t\n");
    let out = trefoil(&["dump", &db, "--table", "missing"]);
    assert_eq!(out.status.code(), Some(2));
    let said = text(&out.stderr);
    assert!(said.contains("no table named \"missing\"; tables: orders; plain indexes: notes"), "{said}");
}

/// Blocks of a table of several leaves are damaged in turn: what is printed is right, what is not printed lies in a range
/// that is named, and the exit code says which.
#[test]
fn what_can_be_read_is_salvaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("salvage.db");
    let db = Database::open(&path, Options::default()).unwrap();
    let index = db.create_index("notes", IndexOptions { node_bytes: 4096, ..IndexOptions::default() }).unwrap();
    let mut tx = db.begin().unwrap();
    (0..2000u32).for_each(|n| tx.put(&index, format!("key{n:05}").as_bytes(), &[b'v'; 30]).unwrap());
    tx.commit().unwrap();
    db.close().unwrap();
    drop((index, db));
    let (db, file) = (path.to_str().unwrap(), path.join("data.trefoil"));
    let salvage = || trefoil(&["dump", db, "--index", "notes", "--salvage"]);
    let all = salvage();
    assert_eq!((all.status.code(), text(&all.stderr).as_str()), (Some(0), ""));
    let all: Vec<String> = text(&all.stdout).lines().map(str::to_owned).collect();
    assert_eq!(all.len(), 2000);
    let sound = std::fs::read(&file).unwrap();
    let used: Vec<usize> =
        (4096..sound.len()).step_by(64).filter(|at| sound[*at..*at + 64].iter().any(|b| *b != 0)).collect();
    let mut partly = 0;
    for at in used.iter().step_by(used.len().div_ceil(25)) {
        let mut bytes = sound.clone();
        bytes[*at + 13] ^= 4;
        std::fs::write(&file, &bytes).unwrap();
        let out = salvage();
        let (printed, said) = (text(&out.stdout), text(&out.stderr));
        let lines: Vec<&str> = printed.lines().collect();
        assert!(lines.iter().all(|line| all.iter().any(|one| one == line)), "{said}");
        match out.status.code() {
            Some(0) => assert_eq!(lines.len(), 2000),
            // The catalog.
            Some(4) => assert!(lines.is_empty() && said.contains("index 0"), "{said}"),
            Some(5) => {
                assert!(said.contains("trefoil: notes: keys [") && said.contains("data.trefoil"), "{said}");
                partly += usize::from(lines.len() > 1500);
                let out = trefoil(&["dump", db, "--index", "notes"]);
                assert_eq!(out.status.code(), Some(4));
                assert!(text(&out.stderr).contains("--salvage prints what can be read"), "{}", text(&out.stderr));
            }
            other => panic!("{other:?}: {said}"),
        }
        assert!(std::fs::read(&file).unwrap() == bytes);
    }
    assert!(partly > 0, "no flip met a leaf");
}

/// Looking changes nothing, also where nobody may write; what only the log holds is seen.
#[test]
fn looking_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = shop(dir.path());
    let open = Database::open(&db, Options { background: false, ..Options::default() }).unwrap();
    let mut tx = open.begin().unwrap();
    tx.put(&open.index("notes").unwrap(), b"k3", b"late").unwrap();
    tx.commit().unwrap();
    drop(open);
    let everything = || {
        let mut found = Vec::new();
        let mut dirs = vec![std::path::PathBuf::from(&db)];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { dirs.push(path) } else { found.push((path.clone(), std::fs::read(path).unwrap())) }
            }
        }
        found.sort();
        found
    };
    let before = everything();
    for arguments in
        [&["verify", &db][..], &["stats", &db], &["dump", &db, "--index", "notes"], &["dump", &db, "--table", "orders"]]
    {
        let out = trefoil(arguments);
        assert_eq!(out.status.code(), Some(0), "{arguments:?}: {}", text(&out.stderr));
        assert_eq!(text(&out.stdout).contains("k3\tlate"), arguments.contains(&"notes"), "{arguments:?}");
        assert!(everything() == before, "{arguments:?} changed something");
    }
}

#[test]
fn sizes_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let db = shop(dir.path());
    let out = trefoil(&["stats", &db]);
    assert!(text(&out.stdout).contains("orders.primary"), "{}", text(&out.stdout));
    let out = trefoil(&["stats", &db, "--format", "json"]);
    let all: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let keys = |name: &str| {
        all["indexes"].as_array().unwrap().iter().find(|i| i["index"] == name).unwrap()["live_keys"].as_u64()
    };
    assert_eq!((keys("orders.primary"), keys("notes")), (Some(3), Some(2)));
}

/// Of a log-structured merge tree its levels, one line each; of others none.
#[test]
fn levels_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = shop(dir.path());
    let stats = |format: &[&str]| text(&trefoil(&[&["stats", &path], format].concat()).stdout);
    assert!(!stats(&[]).contains("levels"), "there is none");
    let db = Database::open(&path, Options::default()).unwrap();
    let lsm = IndexOptions { structure: Structure::Lsm, ..IndexOptions::default() };
    let index = db.create_index("events", lsm).unwrap();
    // Two flushes, the second of which deletes half of the first.
    for round in 0..2u32 {
        let mut tx = db.begin().unwrap();
        for key in 0..100u32 {
            if round == 0 {
                tx.put(&index, &key.to_be_bytes(), b"value").unwrap();
            } else if key % 2 == 0 {
                tx.delete(&index, &key.to_be_bytes()).unwrap();
            }
        }
        tx.commit().unwrap();
        db.checkpoint().unwrap();
    }
    db.close().unwrap();
    // Its lock goes with the last handle.
    drop((db, index));
    let printed = stats(&[]);
    assert!(printed.contains("levels (0 is what flushes write)"), "{printed}");
    let all: serde_json::Value = serde_json::from_str(&stats(&["--format", "json"])).unwrap();
    let events = all["indexes"].as_array().unwrap().iter().find(|index| index["index"] == "events").unwrap();
    let levels = events["levels"].as_array().unwrap();
    let sum = |key: &str| levels.iter().map(|level| level[key].as_u64().unwrap()).sum::<u64>();
    // The background may have merged both by now: then the deleted half is gone.
    let (live, versions) = (sum("live_keys"), sum("versions"));
    assert!(matches!((live, versions), (100, 150) | (50, 50)), "{events}");
    let lines = printed.lines().filter(|line| line.starts_with("events ")).count();
    assert_eq!(lines, 1 + levels.len() + 1, "one of the index, of each level, and of all of them: {printed}");
    assert!(printed.contains("a look-up may meet"), "{printed}");
    // What it takes on disk for what lives is measured as of other structures; it is compared with none of them.
    let printed = text(&trefoil(&["advise", &path]).stdout);
    let words: Vec<&str> =
        printed.lines().find(|line| line.starts_with("events ")).unwrap().split_whitespace().collect();
    assert_eq!([&words[1..4], &words[5..]].concat().join(" "), "lsm - - - - - - compared with none", "{printed}");
    assert!(words[4].parse::<f64>().unwrap() > 0.0, "{printed}");
    let all: serde_json::Value =
        serde_json::from_slice(&trefoil(&["advise", &path, "--format", "json"]).stdout).unwrap();
    let events = all["indexes"].as_array().unwrap().iter().find(|index| index["index"] == "events").unwrap();
    assert!(events["other"].is_null() && events["measured"]["space"].as_f64().unwrap() > 0.0, "{events}");
}

#[test]
fn what_is_no_database_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    for command in ["verify", "stats"] {
        let absent = dir.path().join("absent");
        let out = trefoil(&[command, absent.to_str().unwrap()]);
        assert_eq!(out.status.code(), Some(1));
        assert!(text(&out.stderr).contains("is not a Trefoil database: it does not exist"), "{}", text(&out.stderr));
        assert!(!absent.exists(), "nothing is made");
    }
    let db = shop(dir.path());
    let open = Database::open(&db, Options::default()).unwrap();
    let out = trefoil(&["verify", &db]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("open in another process"), "{}", text(&out.stderr));
    open.close().unwrap();
}

#[test]
fn a_backup_is_made_and_restored() {
    let dir = tempfile::tempdir().unwrap();
    let db = shop(dir.path());
    let (backup, restored) = (dir.path().join("monday"), dir.path().join("restored.db"));
    let (backup, restored) = (backup.to_str().unwrap(), restored.to_str().unwrap());
    let out = trefoil(&["backup", &db, backup, "--rate", "0m"]);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
    let out = trefoil(&["backup", &db, backup, "--rate", "1g"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let out = trefoil(&["restore", backup, restored]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("ok, 1 tables and 1 plain indexes"), "{}", text(&out.stdout));
    let rows = |path: &str| text(&trefoil(&["dump", path, "--table", "orders"]).stdout);
    assert_eq!(rows(restored), rows(&db));
    // Nothing is overwritten, neither a backup nor a database.
    for arguments in
        [["backup", &db, backup], ["restore", backup, &db], ["restore", dir.path().to_str().unwrap(), restored]]
    {
        let out = trefoil(&arguments);
        assert_eq!(out.status.code(), Some(1), "{arguments:?}");
    }
    assert_eq!(rows(restored), rows(&db));
}

/// A database that somebody has open is not copied file by file: he would write meanwhile. Guard: its lock is asked for.
#[test]
fn a_database_in_use_is_not_copied_by_a_restore() {
    let dir = tempfile::tempdir().unwrap();
    let db = shop(dir.path());
    let open = Database::open(&db, Options::default()).unwrap();
    let restored = dir.path().join("restored.db");
    let out = trefoil(&["restore", &db, restored.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stdout));
    assert!(text(&out.stderr).contains("open in another process"), "{}", text(&out.stderr));
    assert!(!restored.exists());
    drop(open);
    let out = trefoil(&["restore", &db, restored.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
}

/// A backup with a damaged block: the restore says so, with code 4.
#[test]
fn a_damaged_backup_is_found_when_it_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    let db = shop(dir.path());
    let backup = dir.path().join("monday");
    assert!(trefoil(&["backup", &db, backup.to_str().unwrap()]).status.success());
    let file = backup.join("data.trefoil");
    let mut bytes = std::fs::read(&file).unwrap();
    let used = (4096..bytes.len()).filter(|at| bytes[*at] != 0).collect::<Vec<_>>();
    used.iter().step_by(50).for_each(|at| bytes[*at] ^= 1);
    std::fs::write(&file, &bytes).unwrap();
    let out = trefoil(&["restore", backup.to_str().unwrap(), dir.path().join("restored.db").to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(4), "{}", text(&out.stderr));
}

/// A damaged secondary index: `verify` says so and how to mend it, `rebuild` does.
#[test]
fn a_damaged_secondary_index_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    let schema = Schema::builder()
        .column("id", ColumnType::U64)
        .column("name", ColumnType::Text)
        .primary_key(&["id"])
        .index(IndexSchema::new("by_name", &["name"]))
        .build()
        .unwrap();
    let db = Database::open(&path, Options::default()).unwrap();
    let table = db.create_table("orders", schema).unwrap();
    let mut tx = db.begin().unwrap();
    (0..100).for_each(|id| tx.insert(&table, &[Value::U64(id), Value::from(format!("name {id}"))]).unwrap());
    tx.commit().unwrap();
    db.close().unwrap();
    drop((db, table));
    let shop = path.to_str().unwrap();
    let said = |out: &Output| text(&out.stdout) + &text(&out.stderr);
    // The block of its only leaf: index 2, kind 1.
    let file = path.join("data.trefoil");
    let mut bytes = std::fs::read(&file).unwrap();
    let leaves = bytes.windows(12).enumerate().filter(|(_, w)| w[..4] == *b"BL\x01\x01" && w[8..] == [2, 0, 0, 0]);
    let at: Vec<usize> = leaves.map(|(at, _)| at + 50).collect();
    assert!(!at.is_empty());
    at.into_iter().for_each(|at| bytes[at] ^= 2);
    std::fs::write(&file, bytes).unwrap();
    let out = trefoil(&["verify", shop]);
    assert_eq!(out.status.code(), Some(4), "{}", said(&out));
    assert!(said(&out).contains("orders.by_name: DAMAGED") && said(&out).contains("rebuild"), "{}", said(&out));
    let out = trefoil(&["rebuild", shop, "orders.by_day"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(said(&out).contains("there are: orders.by_name"), "{}", said(&out));
    let out = trefoil(&["rebuild", shop, "orders.by_name"]);
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    let out = trefoil(&["verify", shop]);
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    assert!(said(&out).contains("orders.by_name against its rows: ok, 100 entries"), "{}", said(&out));
}

/// What is prepared is told by `prepared`, `verify` and `stats`, and decided by name.
#[test]
fn prepared_transactions_are_listed_and_decided() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = shop(dir.path());
    let db = Database::open(&path, Options::default()).expect("opens");
    let colours = db.create_index("colours", trefoil::IndexOptions::default()).expect("a new name");
    for (xid, key) in [(&b"order-7"[..], b"red"), (&[0, 255], b"tan")] {
        let mut tx = db.begin().expect("open");
        tx.put(&colours, key, b"").expect("put");
        tx.prepare(xid).expect("prepared");
    }
    drop((colours, db));
    let told = |arguments: &[&str]| {
        let output = trefoil(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let listed = told(&["prepared", &path]);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("0x00ff\tprepared ") && lines[1].contains("1 writes"), "{listed}");
    assert!(told(&["verify", &path]).contains("2 prepared transactions wait"));
    assert!(told(&["stats", &path]).contains("prepared    2 transactions"));
    assert!(told(&["commit", &path, "order-7"]).contains("is committed"));
    assert!(told(&["rollback", &path, "0x00ff"]).contains("is rolled back"));
    assert_eq!(told(&["prepared", &path]), "");
    assert_eq!(told(&["dump", &path, "--index", "colours"]).lines().count(), 1);
    let unknown = trefoil(&["commit", &path, "order-7"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("no prepared transaction order-7; there are: none"));
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// A database is brought to the newest format once, and then left alone.
#[test]
fn an_upgrade_says_what_it_did() {
    let dir = tempfile::tempdir().unwrap();
    let db = shop(dir.path());
    let header = dir.path().join("shop.db/TREFOIL");
    // Nothing in it tells it from one of format 1 but the header.
    let mut bytes = std::fs::read(&header).unwrap();
    bytes[16..20].copy_from_slice(&1u32.to_le_bytes());
    let crc = crc32c(&bytes[..4092]);
    bytes[4092..].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&header, bytes).unwrap();
    let said = |expected: &str| {
        let out = trefoil(&["upgrade", &db]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        assert!(text(&out.stdout).contains(expected), "{}", text(&out.stdout));
    };
    said("upgraded from format 1 to 10");
    let upgraded = std::fs::read(&header).unwrap();
    said("already at format 10");
    assert_eq!(std::fs::read(&header).unwrap(), upgraded);
    assert_eq!(trefoil(&["verify", &db]).status.code(), Some(0));
    let out = trefoil(&["upgrade", dir.path().join("nothing").to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
}

/// What is on disk is known of a database that is not in use; nothing is made up of the rest, and nothing changes.
#[test]
fn advice_on_a_closed_database_says_what_it_does_not_know() {
    let dir = tempfile::tempdir().unwrap();
    let db = shop(dir.path());
    let file = dir.path().join("shop.db/data.trefoil");
    let before = std::fs::read(&file).unwrap();
    let out = trefoil(&["advise", &db]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let printed = text(&out.stdout);
    let line = printed.lines().find(|line| line.starts_with("notes ")).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!((words[1], words[2], words[3], words[5]), ("betree", "-", "-", "btree"), "{printed}");
    assert!(words[4].parse::<f64>().unwrap() > 0.0 && line.ends_with("not enough measured"), "{printed}");
    assert_eq!(std::fs::read(&file).unwrap(), before);

    let out = trefoil(&["advise", &db, "--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let index = &json["indexes"].as_array().unwrap().iter().find(|index| index["index"] == "notes").unwrap();
    assert!(index["measured"]["write"].is_null() && index["predicted"]["write"].is_null(), "{index}");
    assert!(index["measured"]["space"].as_f64().unwrap() > 0.0 && !index["notes"].as_array().unwrap().is_empty());

    let out = trefoil(&["advise", dir.path().join("nowhere").to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
}
