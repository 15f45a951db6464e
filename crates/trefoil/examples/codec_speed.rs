//! What the row and key codecs cost: `cargo run --release -p trefoil --example codec_speed`.

use trefoil::{ColumnType, IndexSchema, Schema, Value};
use vfs::time::Instant;

/// The insert benchmark's table.
fn purchases() -> Schema {
    Schema::builder()
        .column("transactionid", ColumnType::I64)
        .nullable("dateandtime", ColumnType::Timestamp)
        .column("cashregisterid", ColumnType::I32)
        .column("customerid", ColumnType::I32)
        .column("productid", ColumnType::I32)
        .column("price", ColumnType::I32)
        .nullable("data", ColumnType::Text)
        .primary_key(&["transactionid"])
        .index(IndexSchema::new("market", &["productid", "customerid", "price"]))
        .index(IndexSchema::new("register", &["cashregisterid", "customerid", "price"]))
        .index(IndexSchema::new("pdc", &["price", "dateandtime", "customerid"]))
        .build()
        .expect("a valid schema")
}

/// The best of many batches: what it costs when nothing else runs.
fn time(what: &str, mut body: impl FnMut(u64)) {
    const BATCH: u64 = 2000;
    let batches = (0..200).map(|batch| {
        let start = Instant::now();
        (batch * BATCH..(batch + 1) * BATCH).for_each(&mut body);
        start.elapsed().as_nanos() as f64 / BATCH as f64
    });
    println!("{what:<50} {:>7.1} ns", batches.fold(f64::INFINITY, f64::min));
}

fn main() {
    let schema = purchases();
    let row = |i: u64| {
        [
            Value::I64(i as i64),
            Value::Timestamp(1_700_000_000_000_000 + i as i64),
            Value::I32((i % 1000) as i32),
            Value::I32((i * 7919 % 100_000) as i32),
            Value::I32((i * 31 % 10_000) as i32),
            Value::I32((i % 500) as i32),
            Value::from("aaaaaaaaaabcdef"),
        ]
    };
    let (mut key, mut stored, mut entry) = (Vec::new(), Vec::new(), Vec::new());
    time("row to primary key", |i| schema.primary_key_of_row(&row(i), &mut key).expect("a row"));
    time("row to stored row", |i| schema.row_value(&row(i), &mut stored).expect("a row"));
    println!("{:<50} {:>7} bytes", "stored row", stored.len());
    time("row to 3 entries", |i| {
        (0..3).for_each(|n| schema.index_key_of_row(n, &key, &row(i), &mut entry).expect("a row"));
    });
    println!("{:<50} {:>7} bytes", "entry", entry.len());
    time("stored row to 3 entries", |_| {
        (0..3).for_each(|n| schema.secondary_key(n, &key, &stored, &mut entry).expect("a row"));
    });
    time("stored row to values", |_| {
        std::hint::black_box(schema.decode_row(&key, &stored).expect("a row"));
    });
    time("entry to values", |_| {
        std::hint::black_box(schema.decode_entry(2, &entry, &[]).expect("an entry"));
    });
    time("entry to primary key", |_| {
        std::hint::black_box(schema.primary_key_of(2, &entry).expect("an entry"));
    });
}
