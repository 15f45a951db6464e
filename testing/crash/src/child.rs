//! The process that is killed: three writers, definition changes and checkpoints, each acknowledged commit reported
//! on standard output after it was acknowledged.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use trefoil::{ColumnType, Database, Durability, Error, IndexOptions, IndexSchema, Options, Schema, Table, Value};
use vfs::random::Rng;

/// Small sizes, so that a life of milliseconds sees splits, eviction, checkpoints and runs.
pub fn options() -> Options {
    Options {
        budget_bytes: 8 << 20,
        log_capacity_bytes: 4 << 20,
        checkpoint_replay: Duration::from_millis(20),
        extent_bytes: 64 << 10,
        inline_batch_bytes: 8 << 10,
        disk_reserve_bytes: 1 << 20,
        ..Options::default()
    }
}

/// Works until it is killed. Transactions are numbered from `first`.
pub fn work(path: &Path, seed: u64, first: u64) {
    let db = Database::open(path, options()).expect("the parent checked that it opens");
    let table = table(&db);
    let next = AtomicU64::new(first);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (db, table, next) = (&db, &table, &next);
            scope.spawn(move || write(db, table, next, &mut Rng::new(seed ^ thread)));
        }
        let db = &db;
        scope.spawn(move || manage(db, &mut Rng::new(seed ^ 99)));
    });
}

fn table(db: &Database) -> Table {
    match db.table("rows") {
        Err(Error::NotFound { .. }) => {}
        other => return other.expect("readable"),
    }
    let options = IndexOptions { node_bytes: 4096, ..IndexOptions::default() };
    let schema = Schema::builder()
        .column("transaction", ColumnType::U64)
        .column("row", ColumnType::U32)
        .column("of", ColumnType::U32)
        .column("random", ColumnType::U64)
        .column("data", ColumnType::Bytes)
        .primary_key(&["transaction", "row"])
        .primary_options(options)
        .index(IndexSchema::new("by_random", &["random"]).with_options(options))
        .build()
        .expect("a sound schema");
    db.create_table("rows", schema).expect("creates")
}

/// One line on standard output, handed to the system at once.
fn report(words: std::fmt::Arguments<'_>) {
    let line = format!("{words} .\n");
    std::io::stdout()
        .lock()
        .write_all(line.as_bytes())
        .and_then(|()| std::io::stdout().flush())
        .expect("the pipe is open");
}

fn write(db: &Database, table: &Table, next: &AtomicU64, numbers: &mut Rng) {
    loop {
        let id = next.fetch_add(1, Ordering::Relaxed);
        report(format_args!("begun {id}"));
        // Mostly small; now and then large enough for a run file.
        let rows = if numbers.below(20) == 0 { 300 } else { 1 + numbers.below(12) } as u32;
        let data = vec![id as u8; numbers.index(200)];
        let mut tx = db.begin().expect("open");
        for row in 0..rows {
            let values = [
                Value::U64(id),
                Value::U32(row),
                Value::U32(rows),
                Value::U64(numbers.u64()),
                Value::Bytes(data.as_slice().into()),
            ];
            tx.insert(table, &values).expect("a new row");
        }
        let durability = if numbers.below(2) == 0 { Durability::Sync } else { Durability::Write };
        tx.commit_with(durability).expect("commits");
        report(format_args!("committed {id}"));
    }
}

fn manage(db: &Database, numbers: &mut Rng) {
    loop {
        std::thread::sleep(Duration::from_micros(numbers.below(20_000)));
        if numbers.below(3) == 0 {
            db.checkpoint().expect("a checkpoint");
            continue;
        }
        let name = format!("extra{}", numbers.below(6));
        report(format_args!("changing {name}"));
        match db.create_index(&name, IndexOptions::default()) {
            Ok(_) => report(format_args!("created {name}")),
            Err(Error::AlreadyExists { .. }) => {
                db.drop_index(&name).expect("drops");
                report(format_args!("dropped {name}"));
            }
            Err(error) => panic!("{error}"),
        }
    }
}
