//! Indexes with STRUCTURE=lsm in a whole database: more than memory holds, crashes, conversions, space that comes back.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trefoil::{
    ALL, ColumnType, Compression, Database, Durability, Error, Index, IndexOptions, IndexSchema, Options, Schema,
    Shape, Structure, Value,
};
use vfs::random::Rng;

use crate::support::{self, charged, disk, simulate, sleep};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options {
        budget_bytes: 2 << 20,
        log_capacity_bytes: 4 << 20,
        log_segment_bytes: 1 << 20,
        durability: Durability::Write,
        ..Options::default()
    }
}

fn lsm() -> IndexOptions {
    IndexOptions { structure: Structure::Lsm, compression: Compression::Zstd, ..IndexOptions::default() }
}

fn judge(db: &Database, index: &Index, rows: &Rows) {
    let tx = db.begin().unwrap();
    let found: Vec<_> = tx.range(index, ..).unwrap().collect().unwrap();
    assert_eq!(found.len(), rows.len());
    assert!(found.iter().map(|(key, value)| (key, value)).eq(rows.iter()), "the same rows in the same order");
    for n in (0..60_000u32).step_by(997) {
        let key = n.wrapping_mul(2_654_435_761).to_be_bytes();
        assert_eq!(tx.get(index, &key).unwrap().map(|value| value.to_vec()), rows.get(key.as_slice()).cloned());
    }
    for (name, report) in db.verify().unwrap() {
        assert!(report.problems.is_empty(), "{name}: {:?}", report.problems);
    }
}

/// Inserts, overwrites and deletes at random, several times what memory holds, with a large value now and then, and an end without a close
/// after each round.
#[test]
fn larger_than_memory_and_left_without_a_close() {
    let dir = tempfile::tempdir().unwrap();
    let (mut rows, mut rng) = (Rows::new(), Rng::new(7));
    for round in 0..3 {
        let db = Database::open(dir.path(), options()).unwrap();
        let index = db.index("rows").or_else(|_| db.create_index("rows", lsm())).unwrap();
        if round > 0 {
            judge(&db, &index, &rows);
        }
        for _ in 0..400 {
            let mut tx = db.begin().unwrap();
            for _ in 0..50 {
                let key = (rng.below(60_000) as u32).wrapping_mul(2_654_435_761).to_be_bytes().to_vec();
                if rng.chance(0.2) {
                    assert_eq!(tx.delete(&index, &key).unwrap(), rows.remove(&key).is_some());
                } else {
                    let bytes = if rng.chance(0.001) { 100_000 } else { 20 + rng.index(200) };
                    let value: Vec<u8> = (0..bytes).map(|n| (n as u64 ^ rng.below(16)) as u8).collect();
                    tx.put(&index, &key, &value).unwrap();
                    rows.insert(key, value);
                }
            }
            tx.commit().unwrap();
        }
        judge(&db, &index, &rows);
        if round == 1 {
            db.close().unwrap();
        }
    }
    let db = Database::open(dir.path(), options()).unwrap();
    judge(&db, &db.index("rows").unwrap(), &rows);
}

/// What was deleted, and what was dropped, comes back to the data file. No row is like another: what merges leave at rest, dead rows and tombstones up to a
/// quarter of what lives there, is then a small part of what was deleted. Of rows that compress to a dozen bytes it is as much as the test allows, or more,
/// depending on how many flushes a busy machine makes of the deletes.
#[test]
fn space_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let index = db.create_index("rows", lsm()).unwrap();
    let all: Vec<u32> = (0..40_000).collect();
    let mut rng = Rng::new(3);
    for some in all.chunks(500) {
        let mut tx = db.begin().unwrap();
        for n in some {
            let value: Vec<u8> = (0..150).map(|_| rng.below(256) as u8).collect();
            tx.put(&index, &n.to_be_bytes(), &value).unwrap();
        }
        tx.commit().unwrap();
    }
    let settle = || {
        for _ in 0..3 {
            db.checkpoint().unwrap();
            db.settle().unwrap();
        }
    };
    settle();
    let full = index.stats().disk_bytes;
    for some in all[..36_000].chunks(500) {
        let mut tx = db.begin().unwrap();
        some.iter().for_each(|n| assert!(tx.delete(&index, &n.to_be_bytes()).unwrap()));
        tx.commit().unwrap();
    }
    settle();
    let rest = index.stats().disk_bytes;
    assert!(rest < full / 5, "{full} bytes before nine of ten rows were deleted, {rest} after");
    let first: Vec<_> = db.begin().unwrap().range(&index, ..).unwrap().collect().unwrap();
    assert_eq!(first[0].0, 36_000u32.to_be_bytes());
    let live = db.stats().space.live_bytes;
    drop(index);
    db.drop_index("rows").unwrap();
    settle();
    assert!(db.stats().space.live_bytes < live - rest / 2);
}

fn schema(by_colour: IndexOptions, primary: IndexOptions) -> Schema {
    Schema::builder()
        .column("id", ColumnType::U64)
        .column("colour", ColumnType::U32)
        .primary_key(&["id"])
        .primary_options(primary)
        .index(IndexSchema::new("by_colour", &["colour"]).with_options(by_colour))
        .build()
        .unwrap()
}

/// A table of which everything is a log-structured merge tree, and an index of it that becomes a tree and comes back, beside a writer.
#[test]
fn an_index_changes_its_structure_under_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table("rows", schema(lsm(), lsm())).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (db, table, stop) = (db.clone(), table.clone(), stop.clone());
        move || {
            let mut rng = Rng::new(1);
            let mut ids = 0u64;
            while !stop.load(Ordering::Relaxed) {
                let mut tx = db.begin().unwrap();
                for _ in 0..20 {
                    let id = rng.below(ids + 20);
                    let row = [Value::U64(id), Value::U32(rng.below(50) as u32)];
                    if !tx.update(&table, &row).unwrap() {
                        tx.insert(&table, &row).unwrap();
                    }
                    ids = ids.max(id);
                }
                tx.commit().unwrap();
            }
        }
    };
    let writer = vfs::thread::spawn("writer", writer).unwrap();
    for structure in [Structure::Btree, Structure::Lsm, Structure::Betree, Structure::Lsm] {
        let options = IndexOptions { structure, ..IndexOptions::default() };
        db.change_table_index(&table, "by_colour", options).unwrap();
        db.checkpoint().unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    let number = |value: &Value<'_>| match value {
        Value::U32(n) => u64::from(*n),
        Value::U64(n) => *n,
        other => panic!("{other:?}"),
    };
    let tx = db.begin().unwrap();
    let (mut rows, mut expected) = (tx.scan(&table, ALL).unwrap(), Vec::new());
    while let Some(row) = rows.next().unwrap() {
        expected.push((number(&row[1]), number(&row[0])));
    }
    expected.sort_unstable();
    let (mut entries, mut found) = (tx.scan_index(&table, "by_colour", ALL).unwrap(), Vec::new());
    while let Some(entry) = entries.next().unwrap() {
        found.push((number(&entry[0]), number(&entry[1])));
    }
    assert!(expected.len() > 20);
    assert_eq!(found, expected);
    for (name, report) in db.verify().unwrap() {
        assert!(report.problems.is_empty(), "{name}: {:?}", report.problems);
    }
}

/// Each shape: the same rows, and what was asked for, before and after a reopening; no other structure has one.
#[test]
fn shapes_answer_alike_and_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let shaped = |shape| IndexOptions { shape, ..lsm() };
    let mut rows = Rows::new();
    {
        let db = Database::open(dir.path(), options()).unwrap();
        let lazy = db.create_index("lazy", shaped(Shape::Lazy)).unwrap();
        let leveled = db.create_index("leveled", shaped(Shape::Leveled)).unwrap();
        let universal = db.create_index("universal", shaped(Shape::Universal)).unwrap();
        db.create_table("rows", schema(shaped(Shape::Universal), shaped(Shape::Leveled))).unwrap();
        let mut rng = Rng::new(11);
        for _ in 0..300 {
            let mut tx = db.begin().unwrap();
            for _ in 0..50 {
                let key = (rng.below(20_000) as u32).wrapping_mul(2_654_435_761).to_be_bytes().to_vec();
                let value: Vec<u8> = (0..200).map(|_| rng.below(256) as u8).collect();
                for index in [&lazy, &leveled, &universal] {
                    if value[0] < 60 {
                        tx.delete(index, &key).unwrap();
                    } else {
                        tx.put(index, &key, &value).unwrap();
                    }
                }
                if value[0] < 60 { drop(rows.remove(&key)) } else { drop(rows.insert(key, value)) }
            }
            tx.commit().unwrap();
        }
        [&lazy, &leveled, &universal].into_iter().for_each(|index| judge(&db, index, &rows));
    }
    let db = Database::open(dir.path(), options()).unwrap();
    for name in ["lazy", "leveled", "universal"] {
        judge(&db, &db.index(name).unwrap(), &rows);
    }
    let schema = db.table("rows").unwrap().schema();
    assert_eq!(schema.primary_options().shape, Shape::Leveled);
    assert_eq!(schema.indexes()[0].options().shape, Shape::Universal);
    let tree = IndexOptions { structure: Structure::Betree, ..shaped(Shape::Leveled) };
    assert!(matches!(db.create_index("tree", tree), Err(Error::InvalidArgument(_))));
}

/// Together three indexes have more in memory than should be buffered: the largest memtable is flushed, and no other. None is as large as to be flushed
/// for itself.
#[test]
fn the_largest_memtable_is_flushed() {
    simulate(|_| {
        let options = Options { log_capacity_bytes: 64 << 20, ..support::options(&disk()) };
        let db = Database::open("/db", options).unwrap();
        let indexes = ["a", "b", "c"].map(|name| db.create_index(name, lsm()).unwrap());
        let mut rows = [0u32; 3];
        let mut put_some = || {
            // So small that they are no runs.
            for (index, (row, more)) in indexes.iter().zip(rows.iter_mut().zip([9, 12, 6])) {
                let mut tx = db.begin().unwrap();
                for n in *row..*row + more {
                    tx.put(index, &n.to_be_bytes(), &[0; 900]).unwrap();
                }
                tx.commit_with(Durability::Buffered).unwrap();
                *row += more;
            }
            sleep(100);
            indexes.each_ref().map(|index| index.stats().levels.iter().map(|level| level.runs).sum::<u64>())
        };
        let aim = db.stats().buffered_aim_bytes;
        let mut most = 0;
        let flushed = (0..200).map(|_| (charged(&db, "buffers"), put_some())).find(|(charged, runs)| {
            most = most.max(*charged);
            *runs != [0; 3]
        });
        let (_, flushed) = flushed.expect("a flush");
        assert!(flushed[0] == 0 && flushed[1] > 0 && flushed[2] == 0, "{flushed:?}");
        assert!((aim / 10 * 9..aim / 16 * 17).contains(&most), "{most} of {aim}");
        let left = charged(&db, "buffers");
        assert!((aim / 2..aim / 3 * 2).contains(&left), "five ninths are left, not {left} of {aim}");
        db.close().unwrap();
    });
}
