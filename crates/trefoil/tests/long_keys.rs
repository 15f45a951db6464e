//! The longest keys through everything that keys go through: spilled write sets, attached runs, index builds, checkpoints,
//! the log, locks.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;

use trefoil::{
    ALL, ColumnType, Database, Durability, IndexOptions, IndexSchema, Options, Schema, Structure, Table, Value,
};

const PATH_BYTES_MAX: usize = (48 << 10) - 2 - 4;
const ROWS: u32 = 400;

fn large(structure: Structure) -> IndexOptions {
    IndexOptions { structure, node_bytes: 64 << 10, ..IndexOptions::default() }
}

fn options() -> Options {
    Options { budget_bytes: 8 << 20, durability: Durability::Write, log_capacity_bytes: 16 << 20, ..Options::default() }
}

/// Keys that differ at their ends alone, and such as differ at once.
fn path(n: u32) -> Vec<u8> {
    let bytes = [PATH_BYTES_MAX, PATH_BYTES_MAX - 1, 8191, 8190, 4000, 100][n as usize % 6];
    let mut path = vec![if n.is_multiple_of(2) { b'm' } else { b'a' + (n % 26) as u8 }; bytes - 4];
    path.extend_from_slice(format!("{n:04}").as_bytes());
    path
}

fn row(n: u32) -> [Value<'static>; 2] {
    [n.into(), Value::Bytes(path(n).into())]
}

fn check(db: &Database, table: &Table, rows: impl Iterator<Item = u32>) {
    let mut expected: Vec<(Vec<u8>, u32)> = rows.map(|n| (path(n), n)).collect();
    expected.sort();
    let tx = db.begin().unwrap();
    let mut entries = tx.scan_index(table, "by_path", ALL).unwrap();
    for (path, n) in &expected {
        let found = entries.next().unwrap().unwrap();
        assert!(found == [Value::Bytes(path.into()), (*n).into()], "row {n}");
    }
    assert!(entries.next().unwrap().is_none());
    let (path, n) = &expected[expected.len() / 2];
    let bound = [Value::Bytes(path.into())];
    let mut one = tx.scan_index(table, "by_path", (Bound::Included(&bound), Bound::Included(&bound))).unwrap();
    assert_eq!(one.next().unwrap().unwrap()[1], Value::U32(*n));
    assert!(one.next().unwrap().is_none());
    for (name, report) in db.verify().unwrap() {
        assert!(report.problems.is_empty(), "{name}: {:?}", report.problems);
    }
}

#[test]
fn the_longest_keys_go_everywhere() {
    go_everywhere(Structure::Btree);
}

#[test]
fn the_longest_keys_go_everywhere_in_a_betree() {
    go_everywhere(Structure::Betree);
}

fn go_everywhere(structure: Structure) {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let index = IndexSchema::new("by_path", &["path"]).with_options(large(structure));
    let schema = Schema::builder().column("id", ColumnType::U32).column("path", ColumnType::Bytes).primary_key(&["id"]);
    let table = db.create_table("paths", schema.index(index.clone()).build().unwrap()).unwrap();
    // More in one transaction than memory has for it; then row by row.
    let mut tx = db.begin().unwrap();
    (0..ROWS).for_each(|n| tx.insert(&table, &row(n)).unwrap());
    tx.commit().unwrap();
    check(&db, &table, 0..ROWS);
    db.settle().unwrap();
    db.checkpoint().unwrap();
    for n in ROWS..ROWS + 20 {
        let mut tx = db.begin().unwrap();
        tx.insert(&table, &row(n)).unwrap();
        tx.commit().unwrap();
    }
    let mut tx = db.begin().unwrap();
    (0..ROWS).step_by(3).for_each(|n| assert!(tx.delete_row(&table, &[n.into()]).unwrap()));
    tx.commit().unwrap();
    let left = || (0..ROWS + 20).filter(|n| *n >= ROWS || !n.is_multiple_of(3));
    check(&db, &table, left());
    db.close().unwrap();
    drop((db, table));
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.table("paths").unwrap();
    check(&db, &table, left());
    db.drop_table_index(&table, "by_path").unwrap();
    db.create_table_indexes(&table, vec![index]).unwrap();
    check(&db, &table, left());
    // A lock on one of two that differ in their last byte alone.
    let plain = db.create_index("plain", large(structure)).unwrap();
    let keys = [0u8, 1].map(|last| [vec![0xff; (48 << 10) - 1], vec![last]].concat());
    let (mut one, mut other) = (db.begin().unwrap(), db.begin().unwrap());
    one.put(&plain, &keys[0], b"one").unwrap();
    other.put(&plain, &keys[1], b"other").unwrap();
    other.commit().unwrap();
    one.commit().unwrap();
    let tx = db.begin().unwrap();
    let all = tx.range(&plain, ..).and_then(|cursor| cursor.collect()).unwrap();
    assert!(all == [(keys[0].clone(), b"one".to_vec()), (keys[1].clone(), b"other".to_vec())]);
}

/// A record that names a run file has its first key and its last one, which a small budget may have no room for. It is said what has.
#[test]
fn a_record_without_room_for_two_long_keys_says_what_has() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options { budget_bytes: 256 << 10, ..Options::default() };
    let long = |n: u8| [vec![n], vec![7; 2900]].concat();
    for (xid, has_room) in [(b"1", false), (b"2", true)] {
        let db = Database::open(dir.path(), options.clone()).unwrap();
        let index = db.index("i").or_else(|_| db.create_index("i", large(Structure::Btree))).unwrap();
        let filled = || {
            let mut tx = db.begin().unwrap();
            (0..4).for_each(|n| tx.put(&index, &long(n), b"value").unwrap());
            tx
        };
        let prepared = filled().prepare(xid);
        if has_room {
            prepared.unwrap();
            db.rollback_prepared(xid).unwrap();
            filled().commit().unwrap();
        } else {
            for refused in [prepared, filled().commit().map(drop)] {
                let error = refused.unwrap_err();
                let is_told = error.to_string().contains("Options::budget_bytes");
                assert!(is_told && matches!(error, trefoil::Error::Limit { .. }), "{error}");
            }
        }
        options.budget_bytes = 1 << 20;
    }
}
