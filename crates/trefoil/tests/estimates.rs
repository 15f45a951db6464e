//! What a table says of itself to a planner: rows, ranges, different values.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;

use crate::support::*;
use trefoil::{ALL, ColumnType, Database, Error, IndexSchema, KeyPart, Options, OwnedValue, Schema, Table, Value};
use vfs::random::Rng;

const ROWS: i64 = 100_000;

/// Of 7 countries, the first one has half of the rows; of 1000 cities, most are small; half of the names are NULL.
fn schema() -> Schema {
    let schema = Schema::builder()
        .column("id", ColumnType::I64)
        .column("country", ColumnType::I32)
        .column("city", ColumnType::I32)
        .nullable("name", ColumnType::Text)
        .primary_key(&["id"])
        .index(IndexSchema::new("by_city", &["country", "city"]))
        .index(IndexSchema::of_parts("by_name", [KeyPart::new("name").descending()]));
    schema.build().unwrap()
}

fn row(id: i64, random: &mut Rng) -> Vec<OwnedValue> {
    let country = if random.chance(0.5) { 0 } else { random.below(7) as i32 };
    let skewed = (random.below(1 << 20) as f64 / (1u64 << 20) as f64).powi(3);
    let name = if id % 2 == 0 { Value::Null } else { format!("name {}", random.below(20_000)).into() };
    vec![id.into(), country.into(), ((skewed * 1000.0) as i32).into(), name]
}

fn people(db: &Database) -> (Table, Vec<Vec<OwnedValue>>) {
    let table = db.create_table("people", schema()).unwrap();
    let mut random = Rng::new(11);
    let rows: Vec<_> = (0..ROWS).map(|id| row(id, &mut random)).collect();
    for part in rows.chunks(1000) {
        let mut tx = db.begin().unwrap();
        tx.insert_many(&table, part).unwrap();
        tx.commit().unwrap();
    }
    (table, rows)
}

/// Exact numbers of different values of the first 1, 2 … of these columns.
fn exact(rows: &[Vec<OwnedValue>], columns: &[usize]) -> Vec<u64> {
    let of = |n: usize| {
        let mut values: Vec<String> =
            rows.iter().map(|row| format!("{:?}", columns[..n].iter().map(|&c| &row[c]).collect::<Vec<_>>())).collect();
        values.sort_unstable();
        values.dedup();
        values.len() as u64
    };
    (1..=columns.len()).map(of).collect()
}

fn check_distinct(table: &Table, rows: &[Vec<OwnedValue>], when: &str) {
    for (index, columns) in [(None, &[0][..]), (Some("by_city"), &[1, 2, 0]), (Some("by_name"), &[3, 0])] {
        let (found, exact) = (table.distinct(index).unwrap(), exact(rows, columns));
        assert_eq!(found.len(), exact.len());
        for (found, exact) in found.iter().zip(exact) {
            let near = *found <= 2 * exact && exact <= 2 * *found;
            assert!(near, "{when}: {found} different values instead of {exact} in {index:?}");
        }
    }
}

/// Guards: the gaps in `Sampler::add_gap`, and that nothing is new in one whose ends are the same.
#[test]
fn different_values_are_counted_from_samples() {
    let disk = disk();
    let db = open(&disk);
    let (table, rows) = people(&db);
    check_distinct(&table, &rows, "new");
    assert_eq!(table.distinct(Some("by_city")).unwrap()[0], 7, "a column of few values");
    db.close().unwrap();
    drop((db, table));
    let db = open(&disk);
    let table = db.table("people").unwrap();
    check_distinct(&table, &rows, "opened again");
    assert_eq!(table.stats().rows, ROWS as u64);
}

/// Guard: the share in `Table::distinct`.
#[test]
fn they_are_counted_again_once_a_tenth_has_changed() {
    let disk = disk();
    let db = open(&disk);
    let table = db.create_table("people", schema()).unwrap();
    let mut tx = db.begin().unwrap();
    let row = |id: i64, country: i32| [id.into(), country.into(), 0.into(), Value::Null];
    for id in 0..1000 {
        tx.insert(&table, &row(id, 0)).unwrap();
    }
    tx.commit().unwrap();
    assert_eq!(*table.distinct(Some("by_city")).unwrap(), [1, 1, 1000]);
    let add = |ids: std::ops::Range<i64>| {
        let mut tx = db.begin().unwrap();
        ids.for_each(|id| tx.insert(&table, &row(id, id as i32)).unwrap());
        tx.commit().unwrap();
    };
    add(1000..1100);
    assert_eq!(table.distinct(Some("by_city")).unwrap()[0], 1);
    add(1100..1120);
    assert_eq!(*table.distinct(Some("by_city")).unwrap(), [121, 121, 1120]);
    add(1120..1220);
    assert_eq!(*table.distinct(Some("by_city")).unwrap(), [121, 121, 1120]);
    table.analyze().unwrap();
    assert_eq!(*table.distinct(Some("by_city")).unwrap(), [221, 221, 1220]);
}

#[test]
fn ranges_of_both_kinds_of_keys_are_estimated() {
    let disk = disk();
    let db = open(&disk);
    let (table, rows) = people(&db);
    let mut random = Rng::new(2);
    for _ in 0..300 {
        let (country, city) = (random.below(7) as i32, random.below(1000) as i32);
        let exact = rows.iter().filter(|row| row[1] == country.into() && row[2] < city.into()).count() as u64;
        let (low, high) = ([country.into()], [country.into(), city.into()]);
        let range = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
        let found = table.estimate_rows(Some("by_city"), range).unwrap();
        assert!(found <= 2 * exact + 1 && exact <= 2 * found + 1, "{found} instead of {exact}");
    }
    let (low, high) = ([10i64.into()], [19i64.into()]);
    assert_eq!(table.estimate_rows(None, (Bound::Included(&low), Bound::Included(&high))).unwrap(), 10);
    let null = [Value::Null];
    let nulls = table.estimate_rows(Some("by_name"), (Bound::Included(&null), Bound::Included(&null))).unwrap();
    assert!(nulls.abs_diff(ROWS as u64 / 2) < ROWS as u64 / 20, "{nulls}");
    assert!(matches!(table.estimate_rows(Some("by_age"), ALL), Err(Error::NotFound { .. })));
    let text = ["Ada".into()];
    assert!(table.estimate_rows(None, (Bound::Included(&text), Bound::Unbounded)).is_err());
}

#[test]
fn a_large_commit_counts_before_it_is_drained() {
    let disk = disk();
    let db = open(&disk);
    let table = db.create_table("people", schema()).unwrap();
    let mut random = Rng::new(11);
    let mut tx = db.begin().unwrap();
    for id in 0..40_000 {
        tx.insert(&table, &row(id, &mut random)).unwrap();
    }
    tx.commit().unwrap();
    // What a step of draining moves counts twice while it does.
    let (rows, all) = (table.stats().rows, table.estimate_rows(None, ALL).unwrap());
    for found in [rows, all] {
        assert!(found.abs_diff(40_000) < 10_000, "{found} rows instead of 40000");
    }
    assert!(table.distinct(Some("by_city")).unwrap()[2].abs_diff(40_000) < 10_000);
}

#[test]
fn a_table_that_is_gone_says_so() {
    let disk = disk();
    let db = open(&disk);
    let table = db.create_table("people", schema()).unwrap();
    assert_eq!((table.stats().rows, table.estimate_rows(None, ALL).unwrap()), (0, 0));
    db.drop_table("people").unwrap();
    assert!(matches!(table.estimate_rows(None, ALL), Err(Error::Dropped { .. })));
    assert!(matches!(table.distinct(None), Err(Error::Dropped { .. })));
    assert!(matches!(table.analyze(), Err(Error::Dropped { .. })));
}

/// A large commit lies in a run, and is drained between the look at runs and the look at leaves. Guard: then it is counted again.
#[test]
fn what_is_drained_meanwhile_counts_once() {
    simulate(|sim| {
        let disk = disk();
        let db =
            Database::open("/db", Options { background: false, inline_batch_bytes: 1000, ..options(&disk) }).unwrap();
        let rows = table(&db, "rows");
        insert(&db, &rows, 0..2000).unwrap();
        let gate = sim.hold("tree.runs_estimated");
        let of = rows.clone();
        let asks = spawn("asks", move || of.estimate_rows(None, ALL).unwrap());
        gate.wait_reached();
        db.settle().unwrap();
        gate.open();
        let found = asks.join().unwrap();
        assert!((1800..2200).contains(&found), "2000 rows are taken for {found}");
    });
}
