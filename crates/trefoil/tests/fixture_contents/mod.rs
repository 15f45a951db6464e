//! What is in the fixtures: made by [`make`], and judged row by row.

mod foreign;
mod ten;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use trefoil::{
    ALL, Collations, ColumnType, Compression, Database, IndexOptions, IndexSchema, KeyPart, Schema, Structure,
    TableChanges, Value,
};

use crate::options;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// From this on there is a table whose columns were changed.
pub const FORMAT_VERSIONS: u32 = 2;
/// From this on there is a table of what keys can be since.
pub const FORMAT_KEYS: u32 = 3;
/// From this on there is a table with an index that has its rows.
pub const FORMAT_CLUSTERING: u32 = 4;
/// From this on there are Bε-trees.
pub const FORMAT_BETREE: u32 = 5;
/// From this on there is a table with keys longer than 3 KiB.
pub const FORMAT_LONG_KEYS: u32 = 5;
/// From this on there are leaves in basements.
pub const FORMAT_BASEMENTS: u32 = 6;
/// From this on there are counters.
pub const FORMAT_COUNTERS: u32 = 7;
/// From this on there is a log-structured merge tree.
pub const FORMAT_LSM: u32 = 8;

pub use foreign::{FORMAT_FOREIGN_KEYS, foreign_schema, judge_foreign, make_foreign};
pub use ten::{FORMAT_TEN, judge_expired};
use ten::{judge_ten, make_ten, make_ten_cold, make_ten_late};

/// Plain indexes: one for each compression, with large values and deleted keys, last written behind the checkpoint.
fn plain(compression: Compression) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let salt = compression as u32 * 1000;
    let value = |n: u32| format!("value {} of {n}", n.wrapping_mul(2_654_435_761) ^ salt).repeat(1 + n as usize % 3);
    let mut all: BTreeMap<_, _> = (0..400).map(|n| (key(n), value(n).into_bytes())).collect();
    all.insert(b"large".to_vec(), (0..9000u32).flat_map(|n| (n ^ salt).to_le_bytes()).collect());
    all.insert(vec![0; 700], Vec::new());
    all.insert(Vec::new(), b"the empty key".to_vec());
    (100..150).for_each(|n| drop(all.remove(&key(n))));
    (390..400).for_each(|n| drop(all.insert(key(n), b"behind the checkpoint".to_vec())));
    (20..25).for_each(|n| drop(all.remove(&key(n))));
    all
}

fn key(n: u32) -> Vec<u8> {
    format!("key {n:05}").into_bytes()
}

/// A commit large enough to be a run file.
fn bulk() -> BTreeMap<Vec<u8>, Vec<u8>> {
    (0..500u32).map(|n| (n.to_be_bytes().to_vec(), vec![n as u8; 60])).collect()
}

fn name_of(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "plain none",
        Compression::Lz4 => "plain lz4",
        Compression::Zstd => "plain zstd",
    }
}

const ALL_COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

pub fn schema() -> Schema {
    let columns = Schema::builder()
        .column("id", ColumnType::I64)
        .column("part", ColumnType::Text)
        .nullable("u64", ColumnType::U64)
        .nullable("i32", ColumnType::I32)
        .nullable("u32", ColumnType::U32)
        .nullable("f64", ColumnType::F64)
        .nullable("bool", ColumnType::Bool)
        .nullable("when", ColumnType::Timestamp)
        .nullable("text", ColumnType::Text)
        .nullable("bytes", ColumnType::Bytes);
    let small = IndexOptions { node_bytes: 4096, ..IndexOptions::default() };
    columns
        .primary_key(&["id", "part"])
        .primary_options(small)
        .index(IndexSchema::new("by_text", &["text", "bool"]).with_options(small))
        .index(IndexSchema::new("by_numbers", &["f64", "i32", "when"]).with_options(small))
        .build()
        .unwrap()
}

pub fn row(n: i64) -> Vec<Value<'static>> {
    let or_null = |is: bool, value: Value<'static>| if is { Value::Null } else { value };
    vec![
        Value::I64(n - 100),
        Value::Text(["", "a", "a\0b", "ü"][n as usize % 4].into()),
        or_null(n % 5 == 0, Value::U64(u64::MAX - n as u64)),
        or_null(n % 6 == 0, Value::I32(i32::MIN + n as i32)),
        or_null(n % 7 == 0, Value::U32(n as u32)),
        or_null(n % 8 == 0, Value::F64(n as f64 / -3.0)),
        or_null(n % 3 == 0, Value::Bool(n % 2 == 0)),
        or_null(n % 9 == 0, Value::Timestamp(n * 1_000_003)),
        or_null(n % 4 == 0, Value::Text(format!("row {}", n % 17).into())),
        or_null(n % 10 == 0, Value::Bytes(vec![0, n as u8, 255].into())),
    ]
}

pub const ROWS: i64 = 250;

pub fn make(path: &Path) {
    make_cold(path);
    let db = Database::open(path, options()).unwrap();
    make_messages(&db);
    make_counters(&db);
    make_lsm(&db);
    make_foreign(&db);
    make_ten(&db);
    for compression in ALL_COMPRESSIONS {
        let small = IndexOptions { compression, node_bytes: 4096, ..IndexOptions::default() };
        let index = db.create_index(name_of(compression), small).unwrap();
        let mut tx = db.begin().unwrap();
        (0..400).for_each(|n| tx.put(&index, &key(n), b"before").unwrap());
        tx.commit().unwrap();
        // Two versions and tombstones of these go into the blocks.
        let _snapshot = db.snapshot().unwrap();
        for some in plain(compression).into_iter().collect::<Vec<_>>().chunks(100) {
            let mut tx = db.begin().unwrap();
            some.iter().for_each(|(key, value)| tx.put(&index, key, value).unwrap());
            tx.commit().unwrap();
        }
        let mut tx = db.begin().unwrap();
        (100..150).for_each(|n| assert!(tx.delete(&index, &key(n)).unwrap()));
        tx.commit().unwrap();
    }
    let table = db.create_table("table", schema()).unwrap();
    let mut tx = db.begin().unwrap();
    tx.insert_many(&table, &(0..ROWS - 20).map(row).collect::<Vec<_>>()).unwrap();
    tx.commit().unwrap();
    let gone = db.create_index("gone", IndexOptions::default()).unwrap();
    drop(gone);
    db.drop_index("gone").unwrap();
    for name in ["bulk in the state", "bulk in the log"] {
        let index = db.create_index(name, IndexOptions::default()).unwrap();
        let mut tx = db.begin().unwrap();
        bulk().iter().for_each(|(key, value)| tx.put(&index, key, value).unwrap());
        tx.commit().unwrap();
        if name == "bulk in the state" {
            db.checkpoint().unwrap();
        }
    }
    make_altered(&db);
    make_keys(&db);
    make_clustered(&db);
    make_long_keys(&db);
    for compression in ALL_COMPRESSIONS {
        let index = db.index(name_of(compression)).unwrap();
        let mut tx = db.begin().unwrap();
        (390..400).for_each(|n| tx.put(&index, &key(n), b"behind the checkpoint").unwrap());
        (20..25).for_each(|n| assert!(tx.delete(&index, &key(n)).unwrap()));
        tx.commit().unwrap();
    }
    make_late_messages(&db);
    change_basements(&db);
    change_counters(&db);
    make_ten_late(&db);
    let mut tx = db.begin().unwrap();
    (ROWS - 20..ROWS).for_each(|n| tx.insert(&table, &row(n)).unwrap());
    tx.commit().unwrap();
}

/// A table whose rows are of three versions, the last of them behind the checkpoint; what it is to be read as.
fn make_altered(db: &Database) {
    let schema = Schema::builder().column("id", ColumnType::U32).column("a", ColumnType::Text).primary_key(&["id"]);
    let table = db.create_table("altered", schema.build().unwrap()).unwrap();
    let insert = |row: &[Value<'_>]| {
        let mut tx = db.begin().unwrap();
        tx.insert(&table, row).unwrap();
        tx.commit().unwrap();
    };
    insert(&[1u32.into(), "one".into()]);
    let add = TableChanges::new().add_column("b", ColumnType::I64, 7i64.into()).move_after("b", "id");
    db.alter_table(&table, &add).unwrap();
    insert(&[2u32.into(), 8i64.into(), "two".into()]);
    db.checkpoint().unwrap();
    let change = TableChanges::new().drop_column("a").add_nullable("c", ColumnType::Text, "as it was".into());
    db.alter_table(&table, &change).unwrap();
    insert(&[3u32.into(), 9i64.into(), Value::Null]);
}

fn altered() -> Vec<Vec<Value<'static>>> {
    vec![
        vec![1u32.into(), 7i64.into(), "as it was".into()],
        vec![2u32.into(), 8i64.into(), "as it was".into()],
        vec![3u32.into(), 9i64.into(), Value::Null],
    ]
}

/// Number 1: letters of ASCII in either case are alike.
pub struct AnyCase;

impl Collations for AnyCase {
    fn sort_key(&self, collation: u32, text: &[u8], length: Option<u32>, out: &mut Vec<u8>) -> trefoil::Result<()> {
        assert_eq!(collation, 1);
        let length = length.map_or(text.len(), |n| text.len().min(n as usize));
        out.extend(text[..length].to_ascii_lowercase());
        Ok(())
    }
}

pub fn keys_schema() -> Schema {
    let columns = Schema::builder()
        .column("day", ColumnType::Fixed(3))
        .column("name", ColumnType::Text)
        .collate("name", 1)
        .nullable("amount", ColumnType::Fixed(2))
        .column("path", ColumnType::Bytes);
    columns
        .primary_key_of([KeyPart::new("day").descending(), KeyPart::new("name").front(2)])
        .index(IndexSchema::of_parts("by_amount", [KeyPart::new("amount").descending()]))
        .index(IndexSchema::new("by_name", &["name"]).unique())
        .index(IndexSchema::of_parts("by_path", [KeyPart::new("path").front(3).descending(), "name".into()]))
        .build()
        .unwrap()
}

fn keys_row(n: u8) -> Vec<Value<'static>> {
    vec![
        Value::Bytes(vec![0, n % 3, n / 2].into()),
        Value::Text(format!("{}{n:02}", ["Na", "nA", "x"][usize::from(n % 3)]).into()),
        if n.is_multiple_of(5) { Value::Null } else { Value::Bytes(vec![n % 7, n].into()) },
        Value::Bytes(format!("/{}/{n}", n % 4).into_bytes().into()),
    ]
}

const KEYS: u8 = 40;

/// A table of what keys can be since format 3; rows behind the checkpoint, and one whose text was changed under the same key.
pub fn make_keys(db: &Database) {
    let table = db.create_table("keys", keys_schema()).unwrap();
    let mut tx = db.begin().unwrap();
    (0..KEYS - 5).for_each(|n| tx.insert(&table, &keys_row(n)).unwrap());
    tx.commit().unwrap();
    db.checkpoint().unwrap();
    let mut tx = db.begin().unwrap();
    (KEYS - 5..KEYS).for_each(|n| tx.insert(&table, &keys_row(n)).unwrap());
    let upper = |row: &mut [Value<'_>]| row[1] = "NA03".into();
    assert!(tx.update_with(&table, &keys_row(3)[..2], upper).unwrap());
    tx.commit().unwrap();
}

pub fn judge_keys(db: &Database) {
    let (tx, table) = (db.begin().unwrap(), db.table("keys").unwrap());
    assert_eq!(table.schema(), keys_schema());
    let mut expected: Vec<_> = (0..KEYS).map(keys_row).collect();
    expected[3][1] = "NA03".into();
    let lower = |row: &[Value<'_>]| if let Value::Text(name) = &row[1] { name.to_lowercase() } else { unreachable!() };
    expected.sort_by(|a, b| b[0].cmp(&a[0]).then_with(|| lower(a)[..2].cmp(&lower(b)[..2])));
    let mut rows = tx.scan(&table, ALL).unwrap();
    expected.iter().for_each(|row| assert_eq!(rows.next().unwrap().as_ref(), Some(row)));
    assert!(rows.next().unwrap().is_none());
    let mut judge_index = |name: &str, columns: &[usize], order: &dyn Fn(&[Value<'_>], &[Value<'_>]) -> Ordering| {
        expected.sort_by(|a, b| order(a, b));
        let mut entries = tx.scan_index(&table, name, ALL).unwrap();
        for row in &expected {
            let entry: Vec<_> = columns.iter().chain(&[0, 1]).map(|&n| row[n].clone()).collect();
            assert_eq!(entries.next().unwrap(), Some(entry), "{name}");
        }
    };
    judge_index("by_name", &[1], &|a, b| lower(a).cmp(&lower(b)));
    judge_index("by_amount", &[2], &|a, b| b[2].cmp(&a[2]).then_with(|| b[0].cmp(&a[0])));
    let front = |row: &[Value<'_>]| if let Value::Bytes(path) = &row[3] { path[..3].to_vec() } else { unreachable!() };
    judge_index("by_path", &[3, 1], &|a, b| front(b).cmp(&front(a)).then_with(|| lower(a).cmp(&lower(b))));
}

/// A table with an index that has its rows, of three versions, the last of them behind the checkpoint.
pub fn make_clustered(db: &Database) {
    let schema = Schema::builder().column("id", ColumnType::U32).nullable("a", ColumnType::Text).primary_key(&["id"]);
    let index = IndexSchema::new("by_a", &["a"]).clustering();
    let table = db.create_table("clustered", schema.index(index).build().unwrap()).unwrap();
    let insert = |row: &[Value<'_>]| {
        let mut tx = db.begin().unwrap();
        tx.insert(&table, row).unwrap();
        tx.commit().unwrap();
    };
    insert(&[1u32.into(), "one".into()]);
    db.alter_table(&table, &TableChanges::new().add_column("b", ColumnType::I64, 7i64.into())).unwrap();
    insert(&[2u32.into(), "a".into(), 8i64.into()]);
    db.checkpoint().unwrap();
    db.alter_table(&table, &TableChanges::new().add_nullable("c", ColumnType::Text, "as it was".into())).unwrap();
    insert(&[3u32.into(), Value::Null, 9i64.into(), Value::Null]);
}

pub fn judge_clustered(db: &Database) {
    let (tx, table) = (db.begin().unwrap(), db.table("clustered").unwrap());
    assert!(table.schema().indexes()[0].is_clustering());
    let mut rows = tx.scan_index_rows(&table, "by_a", ALL).unwrap();
    let expected: [[Value<'_>; 4]; 3] = [
        [3u32.into(), Value::Null, 9i64.into(), Value::Null],
        [2u32.into(), "a".into(), 8i64.into(), "as it was".into()],
        [1u32.into(), "one".into(), 7i64.into(), "as it was".into()],
    ];
    expected.iter().for_each(|row| assert_eq!(rows.next_row().unwrap().unwrap().values().unwrap(), row));
    assert!(rows.next_row().unwrap().is_none());
}

/// The settings of Bε-trees here.
fn buffered() -> IndexOptions {
    IndexOptions { structure: Structure::Betree, node_bytes: 4096, ..IndexOptions::default() }
}

/// The Bε-trees before their messages: so many leaves that there are inner nodes, all with an image. Closed, so that none of
/// them is in memory.
fn make_cold(path: &Path) {
    let db = Database::open(path, options()).unwrap();
    let index = db.create_index("buffered", buffered()).unwrap();
    let mut tx = db.begin().unwrap();
    (0..400).for_each(|n| tx.put(&index, &key(n), &[b'a'; 90]).unwrap());
    tx.commit().unwrap();
    make_buffered_table(&db);
    make_basements(&db);
    make_ten_cold(&db);
    // The first commit is a run otherwise.
    db.settle().unwrap();
    db.close().unwrap();
}

/// A table all of whose indexes are Bε-trees, one of them with whole rows.
pub fn make_buffered_table(db: &Database) {
    let columns = Schema::builder().column("id", ColumnType::U32).column("a", ColumnType::U32).primary_key(&["id"]);
    let columns = columns.primary_options(buffered()).index(IndexSchema::new("by_a", &["a"]).with_options(buffered()));
    let whole = IndexSchema::new("whole", &["a"]).clustering().with_options(buffered());
    let table = db.create_table("buffered", columns.index(whole).build().unwrap()).unwrap();
    let mut tx = db.begin().unwrap();
    (0..400u32).for_each(|n| tx.insert(&table, &[n.into(), (n % 7).into()]).unwrap());
    tx.commit().unwrap();
}

/// Puts and deletes for leaves that are not in memory: at each checkpoint they go to segments, so buffers have several, and
/// some keys are in two. Then deletes that read: what segments have for those leaves is in the leaves, too.
fn make_messages(db: &Database) {
    let (index, table) = (db.index("buffered").unwrap(), db.table("buffered").unwrap());
    for round in 0..3u32 {
        let mut tx = db.begin().unwrap();
        (0..400).step_by(18).for_each(|n| tx.put(&index, &key(n), format!("message {round}").as_bytes()).unwrap());
        (0..400u32).step_by(100).for_each(|n| assert!(tx.delete_row(&table, &[(n + 25 * round).into()]).unwrap()));
        tx.commit().unwrap();
        db.checkpoint().unwrap();
    }
    let mut tx = db.begin().unwrap();
    (0..400u32).filter(|n| n % 100 == 25).for_each(|n| tx.insert(&table, &[n.into(), (n % 7).into()]).unwrap());
    (0..400).step_by(9).for_each(|n| tx.put(&index, &key(n), b"a message").unwrap());
    (0..400).step_by(45).for_each(|n| assert!(tx.delete(&index, &key(n)).unwrap()));
    (400..420u32).for_each(|n| tx.insert(&table, &[n.into(), (n % 7).into()]).unwrap());
    tx.commit().unwrap();
}

/// The same behind the checkpoint.
fn make_late_messages(db: &Database) {
    let index = db.index("buffered").unwrap();
    let mut tx = db.begin().unwrap();
    (4..400).step_by(90).for_each(|n| tx.put(&index, &key(n), b"a late message").unwrap());
    tx.commit().unwrap();
}

/// Of both.
fn judge_messages(db: &Database) {
    let tx = db.begin().unwrap();
    let mut expected: BTreeMap<_, _> = (0..400).map(|n| (key(n), vec![b'a'; 90])).collect();
    (0..400).step_by(9).for_each(|n| drop(expected.insert(key(n), b"a message".to_vec())));
    (0..400).step_by(45).for_each(|n| drop(expected.remove(&key(n))));
    (4..400).step_by(90).for_each(|n| drop(expected.insert(key(n), b"a late message".to_vec())));
    let found = tx.range(&db.index("buffered").unwrap(), ..).and_then(|c| c.collect()).unwrap();
    assert_eq!(found, expected.into_iter().collect::<Entries>());
    judge_buffered_table(db, &(0..420).filter(|n| *n >= 400 || n % 50 != 0).collect::<Vec<_>>());
}

/// The table of Bε-trees has these rows, and entries of them.
pub fn judge_buffered_table(db: &Database, ids: &[u32]) {
    let (tx, table) = (db.begin().unwrap(), db.table("buffered").unwrap());
    let mut rows = tx.scan(&table, ALL).unwrap();
    let row = |n: u32| -> Vec<Value<'_>> { vec![n.into(), (n % 7).into()] };
    ids.iter().for_each(|&n| assert_eq!(rows.next().unwrap(), Some(row(n)), "row {n}"));
    assert!(rows.next().unwrap().is_none());
    let mut order = ids.to_vec();
    order.sort_by_key(|n| (n % 7, *n));
    for index in ["by_a", "whole"] {
        let mut entries = tx.scan_index(&table, index, ALL).unwrap();
        for n in &order {
            assert_eq!(entries.next().unwrap(), Some(vec![(n % 7).into(), (*n).into()]), "{index}");
        }
        assert!(entries.next().unwrap().is_none());
    }
}

/// Indexes with leaves as large as they may be, of both structures.
const BASEMENTS: [(&str, Structure, Compression); 2] =
    [("basements", Structure::Btree, Compression::Lz4), ("basements, buffered", Structure::Betree, Compression::Zstd)];

/// So many rows that there are several leaves of several basements.
pub fn make_basements(db: &Database) {
    for (name, structure, compression) in BASEMENTS {
        let options = IndexOptions { structure, compression, node_bytes: 64 << 10, ..IndexOptions::default() };
        let index = db.create_index(name, options).unwrap();
        let mut tx = db.begin().unwrap();
        (0..500).for_each(|n| tx.put(&index, &key(n), &[b'a'; 200]).unwrap());
        tx.commit().unwrap();
    }
}

/// A change to each leaf.
pub fn change_basements(db: &Database) {
    for (name, ..) in BASEMENTS {
        let index = db.index(name).unwrap();
        let mut tx = db.begin().unwrap();
        (7..500).step_by(50).for_each(|n| assert!(tx.delete(&index, &key(n)).unwrap()));
        (8..500).step_by(50).for_each(|n| tx.put(&index, &key(n), b"changed").unwrap());
        tx.commit().unwrap();
    }
}

pub fn judge_basements(db: &Database) {
    let tx = db.begin().unwrap();
    let mut expected: BTreeMap<_, _> = (0..500).map(|n| (key(n), vec![b'a'; 200])).collect();
    (7..500).step_by(50).for_each(|n| drop(expected.remove(&key(n))));
    (8..500).step_by(50).for_each(|n| drop(expected.insert(key(n), b"changed".to_vec())));
    for (name, ..) in BASEMENTS {
        let index = db.index(name).unwrap();
        for n in 0..500 {
            assert_eq!(tx.get(&index, &key(n)).unwrap().as_deref(), expected.get(&key(n)).map(Vec::as_slice), "{name}");
        }
        let found = tx.range(&index, ..).and_then(|c| c.collect()).unwrap();
        assert!(found == expected.clone().into_iter().collect::<Entries>(), "{name}");
    }
}

const COUNTERS: [(&str, Structure); 2] = [("counters", Structure::Btree), ("counters, buffered", Structure::Betree)];

/// Counters that were set, and added to by several commits.
pub fn make_counters(db: &Database) {
    for (name, structure) in COUNTERS {
        let options = IndexOptions { structure, counters: true, node_bytes: 4096, ..IndexOptions::default() };
        let index = db.create_index(name, options).unwrap();
        for round in 0..3i64 {
            let mut tx = db.begin().unwrap();
            (0..300).for_each(|n| match n % 3 {
                0 if round == 0 => tx.put(&index, &key(n), &1000i64.to_le_bytes()).unwrap(),
                _ => tx.add(&index, &key(n), i64::from(n)).unwrap(),
            });
            tx.commit().unwrap();
        }
    }
}

/// More of that behind the checkpoint, in the log and in a run file.
pub fn change_counters(db: &Database) {
    for (name, _) in COUNTERS {
        let index = db.index(name).unwrap();
        for round in [-5i64, -7] {
            let mut tx = db.begin().unwrap();
            (0..20).for_each(|n| tx.add(&index, &key(n), round).unwrap());
            tx.commit().unwrap();
        }
        let mut tx = db.begin().unwrap();
        assert!(tx.delete(&index, &key(4)).unwrap());
        tx.add(&index, &key(4), 44).unwrap();
        assert!(tx.delete(&index, &key(5)).unwrap());
        tx.commit().unwrap();
        let mut tx = db.begin().unwrap();
        (0..1200).for_each(|n| tx.add(&index, &key(n), 1_000_000).unwrap());
        tx.commit().unwrap();
    }
}

pub fn judge_counters(db: &Database) {
    let sum = |n: i64| {
        let made = match n {
            0..300 if n % 3 == 0 => 1000 + 2 * n,
            0..300 => 3 * n,
            _ => 0,
        };
        match n {
            4 => 44 + 1_000_000,
            5 => 1_000_000,
            0..20 => made - 12 + 1_000_000,
            _ => made + 1_000_000,
        }
    };
    let expected: Entries = (0..1200).map(|n| (key(n), sum(i64::from(n)).to_le_bytes().to_vec())).collect();
    let tx = db.begin().unwrap();
    for (name, _) in COUNTERS {
        let index = db.index(name).unwrap();
        assert!(tx.range(&index, ..).and_then(|c| c.collect()).unwrap() == expected, "{name}");
        for (key, value) in &expected {
            assert_eq!(tx.get(&index, key).unwrap().as_ref(), Some(value), "{name}");
        }
    }
}

pub fn long_keys_schema() -> Schema {
    let columns =
        Schema::builder().column("id", ColumnType::U32).column("path", ColumnType::Bytes).primary_key(&["id"]);
    let large = IndexOptions { node_bytes: 64 << 10, ..IndexOptions::default() };
    columns.index(IndexSchema::new("by_path", &["path"]).with_options(large)).build().unwrap()
}

/// Paths of all lengths that a key may have in nodes of 64 KiB, its end and the primary key left out.
pub fn long_keys_row(n: u32) -> Vec<Value<'static>> {
    let longest = (48 << 10) - 2 - 4;
    let bytes = [3066, 3067, 8184, 8185, 20_000, longest][n as usize % 6];
    vec![n.into(), Value::Bytes(vec![b'a' + (n * 7 % 26) as u8; bytes].into())]
}

pub const LONG_KEYS: u32 = 18;

/// A table with keys longer than 3 KiB, some of them behind the checkpoint.
pub fn make_long_keys(db: &Database) {
    let table = db.create_table("long keys", long_keys_schema()).unwrap();
    let insert = |some: Range<u32>| {
        let mut tx = db.begin().unwrap();
        some.for_each(|n| tx.insert(&table, &long_keys_row(n)).unwrap());
        tx.commit().unwrap();
    };
    insert(0..LONG_KEYS - 5);
    db.checkpoint().unwrap();
    insert(LONG_KEYS - 5..LONG_KEYS);
}

pub fn judge_long_keys(db: &Database) {
    let (tx, table) = (db.begin().unwrap(), db.table("long keys").unwrap());
    assert_eq!(table.schema(), long_keys_schema());
    let mut expected: Vec<_> = (0..LONG_KEYS).map(long_keys_row).collect();
    expected.sort_by(|a, b| (&a[1], &a[0]).cmp(&(&b[1], &b[0])));
    let mut entries = tx.scan_index(&table, "by_path", ALL).unwrap();
    for row in expected {
        assert_eq!(entries.next().unwrap().unwrap(), [row[1].clone(), row[0].clone()]);
    }
    assert!(entries.next().unwrap().is_none());
}

fn lsm() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all: BTreeMap<_, _> = (0..600).map(|n| (key(n), format!("round {} of {n}", n % 3).into_bytes())).collect();
    all.insert(b"large".to_vec(), (0..9000u32).flat_map(u32::to_le_bytes).collect());
    (100..150).for_each(|n| drop(all.remove(&key(n))));
    (590..600).for_each(|n| drop(all.insert(key(n), b"behind the checkpoint".to_vec())));
    all
}

/// A log-structured merge tree of three runs, with deletes, a large value, and changes behind the last checkpoint.
pub fn make_lsm(db: &Database) {
    let options = IndexOptions { structure: Structure::Lsm, node_bytes: 4096, ..IndexOptions::default() };
    let index = db.create_index("lsm", options).unwrap();
    for round in 0..3 {
        let mut tx = db.begin().unwrap();
        let all = lsm();
        let mine = (0..600).filter(|n| n % 3 >= round).map(|n| (n, format!("round {round} of {n}")));
        mine.for_each(|(n, value)| tx.put(&index, &key(n), value.as_bytes()).unwrap());
        tx.put(&index, b"large", &all[b"large".as_slice()]).unwrap();
        if round == 2 {
            (100..150).for_each(|n| assert!(tx.delete(&index, &key(n)).unwrap()));
        }
        tx.commit().unwrap();
        db.checkpoint().unwrap();
    }
    change_lsm(db);
}

pub fn change_lsm(db: &Database) {
    let index = db.index("lsm").unwrap();
    let mut tx = db.begin().unwrap();
    (590..600).for_each(|n| tx.put(&index, &key(n), b"behind the checkpoint").unwrap());
    tx.commit().unwrap();
}

pub fn judge_lsm(db: &Database) {
    let tx = db.begin().unwrap();
    let index = db.index("lsm").unwrap();
    let all: Entries = tx.range(&index, ..).and_then(|c| c.collect()).unwrap();
    assert_eq!(all, lsm().into_iter().collect::<Entries>());
}

/// Exactly what was put in, by the build that wrote `format` first.
pub fn judge(db: &Database, format: u32) {
    if format >= FORMAT_VERSIONS {
        let (tx, table) = (db.begin().unwrap(), db.table("altered").unwrap());
        let mut rows = tx.scan(&table, ALL).unwrap();
        altered().iter().for_each(|row| assert_eq!(rows.next().unwrap().as_ref(), Some(row)));
        assert!(rows.next().unwrap().is_none());
    }
    let tx = db.begin().unwrap();
    let all = |name: &str| -> Entries { tx.range(&db.index(name).unwrap(), ..).and_then(|c| c.collect()).unwrap() };
    for compression in ALL_COMPRESSIONS {
        assert_eq!(all(name_of(compression)), plain(compression).into_iter().collect::<Entries>());
    }
    for name in ["bulk in the state", "bulk in the log"] {
        assert_eq!(all(name), bulk().into_iter().collect::<Entries>(), "{name}");
    }
    let table = db.table("table").unwrap();
    assert_eq!(table.schema(), schema());
    let mut rows = tx.scan(&table, ALL).unwrap();
    for n in 0..ROWS {
        assert_eq!(rows.next().unwrap().as_deref(), Some(&row(n)[..]), "row {n}");
    }
    assert!(rows.next().unwrap().is_none());
    for index in ["by_text", "by_numbers"] {
        let mut entries = tx.scan_index(&table, index, ALL).unwrap();
        let mut count = 0;
        while entries.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, ROWS, "{index}");
    }
    let (indexes, tables) = db.names();
    if format >= FORMAT_KEYS {
        judge_keys(db);
    }
    if format >= FORMAT_CLUSTERING {
        judge_clustered(db);
    }
    if format >= FORMAT_BETREE {
        judge_messages(db);
    }
    if format >= FORMAT_LONG_KEYS {
        judge_long_keys(db);
    }
    if format >= FORMAT_COUNTERS {
        judge_counters(db);
    }
    if format >= FORMAT_LSM {
        judge_lsm(db);
    }
    if format >= FORMAT_FOREIGN_KEYS {
        judge_foreign(db);
    }
    if format >= FORMAT_TEN {
        judge_ten(db);
    }
    let since = [("altered", FORMAT_VERSIONS), ("buffered", FORMAT_BETREE), ("clustered", FORMAT_CLUSTERING)];
    let since = since.iter().chain(&[
        ("foreign", FORMAT_FOREIGN_KEYS),
        ("keys", FORMAT_KEYS),
        ("long keys", FORMAT_LONG_KEYS),
        ("table", 1),
    ]);
    let expected: Vec<&str> = since.filter(|(_, since)| format >= *since).map(|(name, _)| *name).collect();
    assert_eq!(tables, expected);
    if format >= FORMAT_BASEMENTS {
        judge_basements(db);
    }
    let since = [(FORMAT_BETREE, 1), (FORMAT_BASEMENTS, 2), (FORMAT_COUNTERS, 2), (FORMAT_LSM, 1), (FORMAT_TEN, 6)];
    let more: usize = since.iter().filter(|(since, _)| format >= *since).map(|(_, count)| count).sum();
    assert_eq!(indexes.len(), 5 + more);
    for (name, report) in db.verify().unwrap() {
        assert!(report.problems.is_empty(), "{name}: {:?}", report.problems);
    }
}
