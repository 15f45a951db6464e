//! Databases of every released format, kept as they were written: each later build opens them, verifies them, reads exactly
//! what was put in, and goes on. And formats that this build does not know are refused by name.
//!
//! A fixture is `testing/fixtures/format-N.zst`: the files of a database, one after the other, compressed. It is made once,
//! by the build that first writes format N, and never again: these tests make it if it is missing, and fail.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test on real files panics on what it does not expect"
)]

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::bytes::{Reader, put_bytes};
use base::checksum::crc32c;
use trefoil::{
    ALL, Collations, ColumnType, Compression, Database, Durability, Error, IndexOptions, IndexSchema, KeyPart, Options,
    Schema, TableChanges, Upgraded, Value,
};

type Files = BTreeMap<String, Vec<u8>>;
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// The format that this build writes.
const FORMAT: u32 = 4;
const FIXTURE_BYTES_MAX: usize = 100 << 10;
/// From this on there is a table whose columns were changed.
const FORMAT_VERSIONS: u32 = 2;
/// From this on there is a table of what keys can be since.
const FORMAT_KEYS: u32 = 3;
/// From this on there is a table with an index that has its rows.
const FORMAT_CLUSTERING: u32 = 4;

fn fixture(format: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../testing/fixtures/format-{format}.zst"))
}

fn options() -> Options {
    Options {
        background: false,
        durability: Durability::Write,
        extent_bytes: 64 << 10,
        log_capacity_bytes: 1 << 20,
        log_segment_bytes: 256 << 10,
        inline_batch_bytes: 20_000,
        disk_reserve_bytes: 1 << 20,
        collations: Some(Arc::new(AnyCase)),
        ..Options::default()
    }
}

// ---- what is in it ----------------------------------------------------------------------------------------------

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

fn schema() -> Schema {
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

fn row(n: i64) -> Vec<Value<'static>> {
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

const ROWS: i64 = 250;

fn make(path: &Path) {
    let db = Database::open(path, options()).unwrap();
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
    for compression in ALL_COMPRESSIONS {
        let index = db.index(name_of(compression)).unwrap();
        let mut tx = db.begin().unwrap();
        (390..400).for_each(|n| tx.put(&index, &key(n), b"behind the checkpoint").unwrap());
        (20..25).for_each(|n| assert!(tx.delete(&index, &key(n)).unwrap()));
        tx.commit().unwrap();
    }
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
struct AnyCase;

impl Collations for AnyCase {
    fn sort_key(&self, collation: u32, text: &[u8], length: Option<u32>, out: &mut Vec<u8>) -> trefoil::Result<()> {
        assert_eq!(collation, 1);
        let length = length.map_or(text.len(), |n| text.len().min(n as usize));
        out.extend(text[..length].to_ascii_lowercase());
        Ok(())
    }
}

fn keys_schema() -> Schema {
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
fn make_keys(db: &Database) {
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

fn judge_keys(db: &Database) {
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
fn make_clustered(db: &Database) {
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

fn judge_clustered(db: &Database) {
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

/// Exactly what was put in, by the build that wrote `format` first.
fn judge(db: &Database, format: u32) {
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
    let four = vec!["altered", "clustered", "keys", "table"];
    let expected = [vec!["table"], vec!["altered", "table"], vec!["altered", "keys", "table"], four];
    let expected = &expected[format as usize - 1];
    assert_eq!((indexes.len(), tables.iter().map(String::as_str).collect::<Vec<_>>()), (5, expected.to_vec()));
    for (name, report) in db.verify().unwrap() {
        assert!(report.problems.is_empty(), "{name}: {:?}", report.problems);
    }
}

// ---- the fixtures -----------------------------------------------------------------------------------------------

fn collect(dir: &Path, below: &str, files: &mut Files) {
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
        let name = format!("{below}{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{name}/"), files);
        } else if name != "LOCK" {
            files.insert(name, fs::read(entry.path()).unwrap());
        }
    }
}

fn pack(files: &Files) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in files {
        put_bytes(&mut bytes, name.as_bytes());
        put_bytes(&mut bytes, content);
    }
    zstd::bulk::compress(&bytes, 19).unwrap()
}

fn unpack(packed: &[u8], dir: &Path) {
    let bytes = zstd::bulk::decompress(packed, 64 << 20).unwrap();
    let mut r = Reader::new(&bytes);
    while !r.is_empty() {
        let path = dir.join(std::str::from_utf8(r.bytes().unwrap()).unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, r.bytes().unwrap()).unwrap();
    }
}

/// The fixture of `format`; one of the format that this build is the first to write is made.
fn packed(format: u32) -> Vec<u8> {
    let path = fixture(format);
    if path.exists() || format != FORMAT {
        return fs::read(path).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let mut files = Files::new();
    collect(dir.path(), "", &mut files);
    let packed = pack(&files);
    assert!(packed.len() < FIXTURE_BYTES_MAX, "{} bytes", packed.len());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, packed).unwrap();
    panic!("{} was missing and is made now: add it, and never change it again", path.display());
}

/// The fixture still tests what it is for: this build writes the same contents.
#[test]
fn what_this_build_makes_is_what_is_judged() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    judge(&Database::open(dir.path(), options()).unwrap(), FORMAT);
}

#[test]
fn every_released_format_is_opened_verified_and_read() {
    for format in 1..=FORMAT {
        let dir = tempfile::tempdir().unwrap();
        unpack(&packed(format), dir.path());
        assert!(fs::read_dir(dir.path().join("runs")).unwrap().count() >= 2, "run files, of the state and of the log");
        let db = Database::open(dir.path(), options()).unwrap();
        assert!(db.stats().replayed_operations > 0, "a log to replay");
        judge(&db, format);
        // It goes on: written to, closed, opened again.
        let index = db.index("plain lz4").unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&index, b"new", b"1").unwrap();
        tx.commit().unwrap();
        db.settle().unwrap();
        db.close().unwrap();
        drop((db, index));
        let db = Database::open(dir.path(), options()).unwrap();
        let index = db.index("plain lz4").unwrap();
        let mut tx = db.begin().unwrap();
        assert!(tx.delete(&index, b"new").unwrap());
        tx.commit().unwrap();
        judge(&db, format);
    }
}

/// A database of an older format is read and written as it is; what came since is refused until it is upgraded.
#[test]
fn an_older_format_is_upgraded_once() {
    let dir = tempfile::tempdir().unwrap();
    unpack(&packed(1), dir.path());
    let header = || fs::read(dir.path().join("TREFOIL")).unwrap();
    let before = header();
    let db = Database::open(dir.path(), options()).unwrap();
    let (table, changes) = (db.table("table").unwrap(), TableChanges::new().drop_column("bytes"));
    let error = db.alter_table(&table, &changes).unwrap_err();
    assert!(matches!(error, Error::UpgradeRequired { found: 1, supported: FORMAT, .. }), "{error}");
    assert!(error.to_string().contains("trefoil upgrade"), "{error}");
    assert!(matches!(Database::upgrade(dir.path(), options()), Err(Error::Locked { .. })));
    let copy = tempfile::tempdir().unwrap();
    db.checkpoint_to(copy.path()).unwrap();
    drop((db, table));
    assert_eq!(header(), before);
    assert_eq!(fs::read(copy.path().join("TREFOIL")).unwrap(), before, "a backup has the format of what it is of");
    let read_only = Options { read_only: true, ..options() };
    assert!(matches!(Database::upgrade(dir.path(), read_only), Err(Error::ReadOnly)));
    assert_eq!(Database::upgrade(dir.path(), options()).unwrap(), Upgraded { from: 1, to: FORMAT });
    assert_ne!(header(), before);
    assert_eq!(Database::upgrade(dir.path(), options()).unwrap(), Upgraded { from: FORMAT, to: FORMAT });
    let db = Database::open(dir.path(), options()).unwrap();
    judge(&db, 1);
    let table = db.table("table").unwrap();
    db.alter_table(&table, &changes).unwrap();
    let tx = db.begin().unwrap();
    let mut rows = tx.scan(&table, ALL).unwrap();
    (0..ROWS).for_each(|n| assert_eq!(rows.next().unwrap().as_deref(), Some(&row(n)[..9])));
}

/// An index that has its rows is refused by a database of format 3, which stays as it was.
#[test]
fn clustering_needs_format_4() {
    let dir = tempfile::tempdir().unwrap();
    unpack(&packed(FORMAT_KEYS), dir.path());
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.table("table").unwrap();
    let error = db.create_table_indexes(&table, vec![IndexSchema::new("c", &["i32"]).clustering()]).unwrap_err();
    assert!(matches!(error, Error::UpgradeRequired { found: FORMAT_KEYS, .. }), "{error}");
    judge(&db, FORMAT_KEYS);
    db.close().unwrap();
    drop((db, table));
    assert_eq!(Database::upgrade(dir.path(), options()).unwrap(), Upgraded { from: FORMAT_KEYS, to: FORMAT });
    let db = Database::open(dir.path(), options()).unwrap();
    make_clustered(&db);
    judge_clustered(&db);
}

/// What a key can be since format 3 is refused by a database of an older one, which stays as it was.
#[test]
fn what_came_with_a_format_needs_it() {
    for format in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        unpack(&packed(format), dir.path());
        let db = Database::open(dir.path(), options()).unwrap();
        let error = db.create_table("keys", keys_schema()).err().unwrap();
        assert!(matches!(error, Error::UpgradeRequired { found, supported: FORMAT, .. } if found == format), "{error}");
        let table = db.table("table").unwrap();
        let fixed = TableChanges::new().add_nullable("fixed", ColumnType::Fixed(3), Value::Null);
        let error = db.alter_table(&table, &fixed).unwrap_err();
        assert!(matches!(error, Error::UpgradeRequired { found, .. } if found == format), "{error}");
        let descending = IndexSchema::of_parts("descending", [KeyPart::new("i32").descending()]);
        let error = db.create_table_indexes(&table, vec![descending]).unwrap_err();
        assert!(matches!(error, Error::UpgradeRequired { found, .. } if found == format), "{error}");
        judge(&db, format);
        db.close().unwrap();
        drop((db, table));
        assert_eq!(Database::upgrade(dir.path(), options()).unwrap(), Upgraded { from: format, to: FORMAT });
        let db = Database::open(dir.path(), options()).unwrap();
        make_keys(&db);
        judge_keys(&db);
    }
}

// ---- other formats ----------------------------------------------------------------------------------------------

/// Writes another version number at `at` of the file, and the checksum over all before its last four bytes if `sealed`.
fn set_version(path: &Path, at: usize, version: u32, sealed: bool) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at..at + 4].copy_from_slice(&version.to_le_bytes());
    if sealed {
        let crc = crc32c(&bytes[..4092]);
        bytes[4092..4096].copy_from_slice(&crc.to_le_bytes());
    }
    fs::write(path, bytes).unwrap();
}

fn newest(dir: &Path, prefix: &str) -> PathBuf {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix)).max().unwrap()
}

/// Each file that states its format, with another one: refused by name, and left as it is.
fn refused(version: u32, expected: fn(&Error) -> bool) {
    type Change = fn(&Path, u32);
    let changes: [(&str, Change); 4] = [
        ("TREFOIL", |dir, version| set_version(&dir.join("TREFOIL"), 16, version, true)),
        ("MANIFEST-", |dir, version| set_version(&newest(dir, "MANIFEST-"), 8, version, false)),
        ("data.trefoil", |dir, version| set_version(&dir.join("data.trefoil"), 8, version, true)),
        ("wal", |dir, version| {
            let path = newest(&dir.join("wal"), "wal-");
            let mut bytes = fs::read(&path).unwrap();
            bytes[8..12].copy_from_slice(&version.to_le_bytes());
            bytes[12..16].fill(0);
            let crc = crc32c(&bytes[..4096]);
            bytes[12..16].copy_from_slice(&crc.to_le_bytes());
            fs::write(&path, bytes).unwrap();
        }),
    ];
    for (file, change) in changes {
        let dir = tempfile::tempdir().unwrap();
        unpack(&packed(FORMAT), dir.path());
        change(dir.path(), version);
        let mut before = Files::new();
        collect(dir.path(), "", &mut before);
        let error = Database::open(dir.path(), options()).err().unwrap();
        assert!(expected(&error), "{file}: {error:?}");
        let said = error.to_string();
        assert!(said.contains(file) && said.contains(&format!("format {version}")), "{said}");
        let mut after = Files::new();
        collect(dir.path(), "", &mut after);
        assert!(before == after, "{file}: a refused database was changed");
    }
}

#[test]
fn newer_formats_are_refused_by_name() {
    refused(FORMAT + 8, |error| matches!(error, Error::NewerFormat { found: 12, supported: 1..=FORMAT, .. }));
}

#[test]
fn older_formats_ask_for_an_upgrade() {
    refused(0, |error| matches!(error, Error::UpgradeRequired { found: 0, supported: 1..=FORMAT, .. }));
}
