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

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::bytes::{Reader, put_bytes};
use base::checksum::crc32c;
use trefoil::{
    ALL, ColumnType, Database, Durability, Error, ForeignKey, IndexOptions, IndexSchema, KeyPart, Options, Schema,
    Structure, TableChanges, Upgraded, Value,
};

mod fixture_contents;

use fixture_contents::{
    AnyCase, FORMAT_BASEMENTS, FORMAT_BETREE, FORMAT_CLUSTERING, FORMAT_COUNTERS, FORMAT_FOREIGN_KEYS, FORMAT_KEYS,
    FORMAT_LSM, FORMAT_TEN, ROWS, change_basements, change_counters, foreign_schema, judge, judge_basements,
    judge_buffered_table, judge_clustered, judge_counters, judge_expired, judge_foreign, judge_keys, judge_long_keys,
    judge_lsm, keys_schema, long_keys_row, long_keys_schema, make, make_basements, make_buffered_table, make_clustered,
    make_counters, make_foreign, make_keys, make_long_keys, make_lsm, row,
};

type Files = BTreeMap<String, Vec<u8>>;

/// The format that this build writes.
const FORMAT: u32 = 10;
/// Formats that have a fixture. Of two there is none: a build writes new databases in its newest format, and none wrote these when it was kept.
const FORMATS_KEPT: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, FORMAT];
/// The newest one that has a fixture and is an older one.
const FORMAT_KEPT: u32 = 7;
const FIXTURE_BYTES_MAX: usize = 128 << 10;

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

/// Blocks of messages in the data file, by their headers.
fn segments(dir: &Path) -> usize {
    let file = fs::read(dir.join("data.trefoil")).unwrap();
    file.windows(4).filter(|bytes| *bytes == b"BL\x01\x05").count()
}

/// Blocks of several parts in the data file, all of them leaves: for each its index.
fn blocks_in_parts(dir: &Path) -> Vec<u32> {
    let file = fs::read(dir.join("data.trefoil")).unwrap();
    let headers = || file.windows(12).filter(|header| header.starts_with(b"BL\x02"));
    assert_eq!(headers().filter(|header| (2..=5).contains(&header[3])).count(), 0, "blocks of other kinds");
    let leaves = headers().filter(|header| header[3] == 1);
    leaves.map(|header| u32::from_le_bytes(header[8..].try_into().unwrap())).collect()
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
    for format in FORMATS_KEPT {
        let dir = tempfile::tempdir().unwrap();
        unpack(&packed(format), dir.path());
        assert!(fs::read_dir(dir.path().join("runs")).unwrap().count() >= 2, "run files, of the state and of the log");
        assert!(format < FORMAT_BETREE || segments(dir.path()) >= 6, "buffers with several segments");
        let in_parts = blocks_in_parts(dir.path());
        assert_eq!(in_parts.len() >= 4, format >= FORMAT_BASEMENTS, "leaves in basements");
        assert_eq!(BTreeSet::from_iter(in_parts).len(), 2 * usize::from(format >= FORMAT_BASEMENTS), "of two indexes");
        let db = Database::open(dir.path(), options()).unwrap();
        assert!(db.stats().replayed_operations > 0, "a log to replay");
        let ranges: u64 = db.stats().indexes.iter().map(|(_, stats)| stats.deleted_ranges).sum();
        assert_eq!(
            ranges,
            6 * u64::from(format >= FORMAT_TEN),
            "one of the state and one of the log for each structure"
        );
        judge(&db, format);
        if format >= FORMAT_TEN {
            judge_expired(&db);
        }
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

/// A Bε-tree is refused by a database of format 4, in every way to ask for one, and the database stays as it was.
#[test]
fn betree_needs_format_5() {
    let dir = tempfile::tempdir().unwrap();
    unpack(&packed(FORMAT_CLUSTERING), dir.path());
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.table("table").unwrap();
    let betree = IndexOptions { structure: Structure::Betree, ..IndexOptions::default() };
    let columns = || Schema::builder().column("id", ColumnType::U32).primary_key(&["id"]);
    let by_id = IndexSchema::new("by_id", &["id"]).with_options(betree);
    let refused = [
        db.create_index("plain", betree).err(),
        db.create_table("new", columns().primary_options(betree).build().unwrap()).err(),
        db.create_table("new", columns().index(by_id).build().unwrap()).err(),
        db.create_table_indexes(&table, vec![IndexSchema::new("b", &["i32"]).with_options(betree)]).err(),
        db.change_table_index(&table, "by_text", betree).err(),
    ];
    for error in refused.map(Option::unwrap) {
        assert!(matches!(error, Error::UpgradeRequired { found: FORMAT_CLUSTERING, supported: FORMAT, .. }), "{error}");
    }
    judge(&db, FORMAT_CLUSTERING);
    db.close().unwrap();
    drop((db, table));
    assert_eq!(Database::upgrade(dir.path(), options()).unwrap(), Upgraded { from: FORMAT_CLUSTERING, to: FORMAT });
    let db = Database::open(dir.path(), options()).unwrap();
    make_buffered_table(&db);
    db.change_table_index(&db.table("table").unwrap(), "by_text", betree).unwrap();
    drop(db);
    judge_buffered_table(&Database::open(dir.path(), options()).unwrap(), &(0..400).collect::<Vec<_>>());
}

/// A key longer than 3 KiB is refused by a database of format 4, which stays as it was: of a row, and of an index that is built.
#[test]
fn long_keys_need_format_5() {
    let dir = tempfile::tempdir().unwrap();
    unpack(&packed(FORMAT_CLUSTERING), dir.path());
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table("long keys", long_keys_schema()).unwrap();
    assert_eq!(db.key_bytes_max(&table.schema().indexes()[0].options()).unwrap(), 3072);
    let mut tx = db.begin().unwrap();
    tx.insert(&table, &long_keys_row(0)).unwrap();
    assert!(matches!(tx.insert(&table, &long_keys_row(1)), Err(Error::Limit { got: 3073, limit: 3072, .. })));
    tx.commit().unwrap();
    db.drop_table_index(&table, "by_path").unwrap();
    let mut tx = db.begin().unwrap();
    tx.insert(&table, &long_keys_row(1)).unwrap();
    tx.commit().unwrap();
    let by_path = long_keys_schema().indexes()[0].clone();
    let error = db.create_table_indexes(&table, vec![by_path]).unwrap_err();
    assert!(matches!(error, Error::Limit { got: 3073, limit: 3072, .. }), "{error}");
    db.drop_table("long keys").unwrap();
    judge(&db, FORMAT_CLUSTERING);
    db.close().unwrap();
    drop((db, table));
    assert_eq!(Database::upgrade(dir.path(), options()).unwrap(), Upgraded { from: FORMAT_CLUSTERING, to: FORMAT });
    let db = Database::open(dir.path(), options()).unwrap();
    make_long_keys(&db);
    judge_long_keys(&db);
}

/// A database of format 5 gets no leaves in basements, which older builds do not read; upgraded, it gets them as leaves are
/// written.
#[test]
fn basements_need_format_6() {
    let dir = tempfile::tempdir().unwrap();
    unpack(&packed(FORMAT_BASEMENTS - 1), dir.path());
    let change = |change: fn(&Database)| {
        let db = Database::open(dir.path(), options()).unwrap();
        change(&db);
        db.settle().unwrap();
        db.close().unwrap();
        drop(db);
        blocks_in_parts(dir.path())
    };
    assert_eq!(change(make_basements), []);
    assert_eq!(change(change_basements), []);
    judge_basements(&Database::open(dir.path(), options()).unwrap());
    let from = FORMAT_BASEMENTS - 1;
    assert_eq!(Database::upgrade(dir.path(), options()).unwrap(), Upgraded { from, to: FORMAT });
    let put_again = |db: &Database| {
        let index = db.index("basements").unwrap();
        let mut tx = db.begin().unwrap();
        (8..500).step_by(50).for_each(|n| tx.put(&index, format!("key {n:05}").as_bytes(), b"changed").unwrap());
        tx.commit().unwrap();
    };
    assert!(change(put_again).len() >= 2);
    let db = Database::open(dir.path(), options()).unwrap();
    judge_basements(&db);
    assert!(db.verify().unwrap().iter().all(|(_, report)| report.problems.is_empty()));
}

/// Counters are refused by a database of format 6, which stays as it was.
#[test]
fn counters_need_format_7() {
    let dir = tempfile::tempdir().unwrap();
    unpack(&packed(FORMAT_COUNTERS - 1), dir.path());
    let db = Database::open(dir.path(), options()).unwrap();
    let error = db.create_index("counters", IndexOptions { counters: true, ..IndexOptions::default() }).err().unwrap();
    let from = FORMAT_COUNTERS - 1;
    assert!(matches!(error, Error::UpgradeRequired { found, supported: FORMAT, .. } if found == from), "{error}");
    judge(&db, from);
    db.close().unwrap();
    drop(db);
    assert_eq!(Database::upgrade(dir.path(), options()).unwrap(), Upgraded { from, to: FORMAT });
    let db = Database::open(dir.path(), options()).unwrap();
    make_counters(&db);
    change_counters(&db);
    judge_counters(&db);
}

/// A log-structured merge tree is refused by a database of format 7, which stays as it was.
#[test]
fn lsm_needs_format_8() {
    let dir = tempfile::tempdir().unwrap();
    let from = FORMAT_LSM - 1;
    unpack(&packed(from), dir.path());
    let db = Database::open(dir.path(), options()).unwrap();
    let lsm = IndexOptions { structure: Structure::Lsm, ..IndexOptions::default() };
    let error = db.create_index("lsm", lsm).err().unwrap();
    assert!(matches!(error, Error::UpgradeRequired { found, supported: FORMAT, .. } if found == from), "{error}");
    let error = db.change_table_index(&db.table("table").unwrap(), "by_text", lsm).unwrap_err();
    assert!(matches!(error, Error::UpgradeRequired { found, supported: FORMAT, .. } if found == from), "{error}");
    judge(&db, from);
    db.close().unwrap();
    drop(db);
    assert_eq!(Database::upgrade(dir.path(), options()).unwrap(), Upgraded { from, to: FORMAT });
    let db = Database::open(dir.path(), options()).unwrap();
    make_lsm(&db);
    judge_lsm(&db);
}

/// Foreign keys are refused by a database of an older format, in new tables and in old ones, and it stays as it was.
#[test]
fn foreign_keys_need_format_9() {
    let dir = tempfile::tempdir().unwrap();
    let from = FORMAT_KEPT;
    assert!(from < FORMAT_FOREIGN_KEYS);
    unpack(&packed(from), dir.path());
    let db = Database::open(dir.path(), options()).unwrap();
    let error = db.create_table("foreign", foreign_schema()).err().unwrap();
    assert!(matches!(error, Error::UpgradeRequired { found, supported: FORMAT, .. } if found == from), "{error}");
    let foreign = ForeignKey::new("own", &["id"], "table", &["id"]);
    let error = db.alter_table(&db.table("table").unwrap(), &TableChanges::new().add_foreign_key(foreign)).unwrap_err();
    assert!(matches!(error, Error::UpgradeRequired { found, supported: FORMAT, .. } if found == from), "{error}");
    judge(&db, from);
    db.close().unwrap();
    drop(db);
    assert_eq!(Database::upgrade(dir.path(), options()).unwrap(), Upgraded { from, to: FORMAT });
    let db = Database::open(dir.path(), options()).unwrap();
    make_foreign(&db);
    judge_foreign(&db);
}

/// Ranges are deleted whole in a database of format 10 and later only; an older one stays as it was.
#[test]
fn deleted_ranges_need_format_10() {
    let dir = tempfile::tempdir().unwrap();
    let from = FORMAT_KEPT;
    unpack(&packed(from), dir.path());
    let db = Database::open(dir.path(), options()).unwrap();
    judge(&db, from);
    let index = db.create_index("ranges", IndexOptions::default()).unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&index, b"k", b"v").unwrap();
    let error = tx.delete_range(&index, ..).unwrap_err();
    assert!(matches!(error, Error::UpgradeRequired { found, supported: FORMAT, .. } if found == from), "{error}");
    tx.commit().unwrap();
    db.close().unwrap();
    drop((db, index));
    assert_eq!(Database::upgrade(dir.path(), options()).unwrap(), Upgraded { from, to: FORMAT });
    let db = Database::open(dir.path(), options()).unwrap();
    let index = db.index("ranges").unwrap();
    let mut tx = db.begin().unwrap();
    tx.delete_range(&index, ..).unwrap();
    tx.commit().unwrap();
    db.close().unwrap();
    drop((db, index));
    let db = Database::open(dir.path(), options()).unwrap();
    let index = db.index("ranges").unwrap();
    assert!(db.begin().unwrap().get(&index, b"k").unwrap().is_none());
}

/// An index whose versions expire is refused by a database of an older format, which stays as it was.
#[test]
fn ttl_needs_format_10() {
    let dir = tempfile::tempdir().unwrap();
    let from = FORMAT_KEPT;
    unpack(&packed(from), dir.path());
    let db = Database::open(dir.path(), options()).unwrap();
    let expiring = IndexOptions { structure: Structure::Lsm, ttl_seconds: Some(3600), ..IndexOptions::default() };
    let error = db.create_index("sessions", expiring).err().unwrap();
    assert!(matches!(error, Error::UpgradeRequired { found, supported: FORMAT, .. } if found == from), "{error}");
    judge(&db, from);
    db.close().unwrap();
    drop(db);
    assert_eq!(Database::upgrade(dir.path(), options()).unwrap(), Upgraded { from, to: FORMAT });
    let db = Database::open(dir.path(), options()).unwrap();
    db.create_index("sessions", expiring).unwrap();
    db.close().unwrap();
    drop(db);
    let db = Database::open(dir.path(), options()).unwrap();
    assert_eq!(db.index("sessions").unwrap().stats().ttl_seconds, 3600);
    db.drop_index("sessions").unwrap();
    judge(&db, from);
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
        unpack(&packed(FORMAT_KEPT), dir.path());
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
    refused(FORMAT + 8, |error| matches!(error, Error::NewerFormat { found: 18, supported: 1..=FORMAT, .. }));
}

#[test]
fn older_formats_ask_for_an_upgrade() {
    refused(0, |error| matches!(error, Error::UpgradeRequired { found: 0, supported: 1..=FORMAT, .. }));
}
