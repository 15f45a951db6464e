//! What a row of a scan costs in memory: 1 M rows of the insert benchmark's table with one secondary index.
//!
//! `cargo run --release -p trefoil --example scan` prints nanoseconds a row, the best of seven.

use std::borrow::Cow;

use trefoil::{
    ALL, ColumnType, Database, Durability, Error, IndexSchema, Options, Schema, Table, Timestamp, Transaction, Value,
};
use vfs::time::Instant;

const ROWS: i64 = 1_000_000;

type Columns<'a> = (i64, Option<Timestamp>, i32, i32, i32, i32, Option<Cow<'a, str>>);

fn main() -> Result<(), Error> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Database::open(dir.path(), Options { budget_bytes: 1 << 30, ..Options::default() })?;
    let schema = Schema::builder()
        .column("id", ColumnType::I64)
        .nullable("at", ColumnType::Timestamp)
        .column("register", ColumnType::I32)
        .column("customer", ColumnType::I32)
        .column("product", ColumnType::I32)
        .column("price", ColumnType::I32)
        .nullable("data", ColumnType::Text)
        .primary_key(&["id"])
        .index(IndexSchema::new("market", &["price", "customer"]));
    let table = db.create_table("rows", schema.build()?)?;
    fill(&db, &table)?;
    let tx = db.begin()?;
    best("rows", || rows(&tx, &table))?;
    best("one column of rows", || column(&tx, &table))?;
    best("entries", || entries(&tx, &table))?;
    best("rows as values", || values(&tx, &table))?;
    Ok(())
}

fn fill(db: &Database, table: &Table) -> Result<(), Error> {
    let mut seed = 7u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 33) % below) as i32
    };
    for first in (0..ROWS).step_by(1000) {
        let mut tx = db.begin()?;
        for id in first..first + 1000 {
            let time = Value::Timestamp(1_700_000_000_000_000 + first);
            let [register, customer, product, price] = [1000, 100_000, 10_000, 500].map(|n| Value::I32(random(n)));
            tx.insert(table, &[id.into(), time, register, customer, product, price, "0123456789".into()])?;
        }
        tx.commit_with(Durability::Buffered)?;
    }
    Ok(())
}

fn best(what: &str, mut scan: impl FnMut() -> Result<i64, Error>) -> Result<(), Error> {
    let mut best = f64::MAX;
    for _ in 0..7 {
        let start = Instant::now();
        assert_eq!(scan()?, ROWS);
        best = best.min((Instant::now() - start).as_secs_f64());
    }
    println!("{what}: {:.1} ns a row", best * 1e9 / ROWS as f64);
    Ok(())
}

fn rows(tx: &Transaction, table: &Table) -> Result<i64, Error> {
    let (mut seen, mut rows) = (0, tx.scan(table, ALL)?);
    while let Some(row) = rows.next_as::<Columns<'_>>()? {
        seen += i64::from(row.3 >= 0 && row.6.is_some());
    }
    Ok(seen)
}

fn column(tx: &Transaction, table: &Table) -> Result<i64, Error> {
    let (mut seen, mut rows) = (0, tx.scan(table, ALL)?);
    while let Some(row) = rows.next_row()? {
        seen += i64::from(row.column_as::<i32>(3)? >= 0);
    }
    Ok(seen)
}

fn entries(tx: &Transaction, table: &Table) -> Result<i64, Error> {
    let (mut seen, mut entries) = (0, tx.scan_index(table, "market", ALL)?);
    while let Some((price, customer, _)) = entries.next_as::<(i32, i32, i64)>()? {
        seen += i64::from(price >= 0 && customer >= 0);
    }
    Ok(seen)
}

fn values(tx: &Transaction, table: &Table) -> Result<i64, Error> {
    let (mut seen, mut rows) = (0, tx.scan(table, ALL)?);
    while let Some(row) = rows.next()? {
        seen += i64::from(row.len() == 7);
    }
    Ok(seen)
}
