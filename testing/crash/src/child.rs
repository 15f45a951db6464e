//! The process that is killed: three writers, one that empties and fills an index, two that add to counters, two coordinators of two-phase commits, definition changes, index builds and
//! checkpoints, each acknowledged commit reported on standard output after it was acknowledged.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use trefoil::{
    ColumnType, Database, Durability, Error, IndexOptions, IndexSchema, Options, Schema, Shape, Structure, Table,
    Transaction, Value,
};
use vfs::random::Rng;

use crate::two_phase::{self, Decisions};
use crate::{adds, rounds};

/// Small sizes, so that a life of milliseconds sees splits, eviction, checkpoints and runs.
pub fn options() -> Options {
    Options {
        budget_bytes: 8 << 20,
        log_capacity_bytes: 4 << 20,
        checkpoint_replay: Duration::from_millis(20),
        extent_bytes: 64 << 10,
        inline_batch_bytes: 8 << 10,
        disk_reserve_bytes: 1 << 20,
        // Of a build behind what is prepared.
        lock_timeout: Duration::from_millis(200),
        ..Options::default()
    }
}

/// Works until it is killed. Transactions are numbered from `first`.
pub fn work(path: &Path, seed: u64, first: u64) {
    let db = Database::open(path, options()).expect("the parent checked that it opens");
    let mut structures = Structures(Rng::new(seed ^ 101));
    let table = table(&db, &mut structures);
    let next = AtomicU64::new(first);
    let decisions = Decisions::open(path).expect("the file of decisions");
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (db, table, next) = (&db, &table, &next);
            scope.spawn(move || write(db, table, next, &mut Rng::new(seed ^ thread)));
        }
        let (db, table, next, decisions) = (&db, &table, &next, &decisions);
        // The others behind it: what it does not find is theirs.
        scope.spawn(move || {
            two_phase::end_old(db, path, decisions, &mut Rng::new(seed ^ 97));
            for thread in 10..12 {
                scope.spawn(move || two_phase::coordinate(db, table, next, decisions, &mut Rng::new(seed ^ thread)));
            }
        });
        let counters = adds::indexes(db, structures.options());
        for thread in 20..22 {
            let counters = counters.clone();
            scope.spawn(move || adds::work(db, &counters, &mut Rng::new(seed ^ thread)));
        }
        let options = structures.options();
        scope.spawn(move || rounds::work(db, options, &mut Rng::new(seed ^ 103)));
        scope.spawn(move || manage(db, table, &mut Rng::new(seed ^ 99), &mut structures));
    });
}

/// Of new indexes, one as often as the other.
struct Structures(Rng);

impl Structures {
    fn options(&mut self) -> IndexOptions {
        let structure = [Structure::Btree, Structure::Betree, Structure::Lsm][self.0.index(3)];
        let shapes = [Shape::Lazy, Shape::Leveled, Shape::Universal];
        let shape = shapes[if structure == Structure::Lsm { self.0.index(3) } else { 0 }];
        IndexOptions { structure, shape, node_bytes: 4096, ..IndexOptions::default() }
    }
}

fn table(db: &Database, structures: &mut Structures) -> Table {
    match db.table("rows") {
        Err(Error::NotFound { .. }) => {}
        other => return other.expect("readable"),
    }
    let options = structures.options();
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
pub fn report(words: std::fmt::Arguments<'_>) {
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
        let mut tx = db.begin().expect("open");
        insert(&mut tx, table, id, numbers);
        let durability = if numbers.below(2) == 0 { Durability::Sync } else { Durability::Write };
        tx.commit_with(durability).expect("commits");
        report(format_args!("committed {id}"));
    }
}

/// The rows of a transaction: each says how many they are.
pub fn insert(tx: &mut Transaction, table: &Table, id: u64, numbers: &mut Rng) {
    // Mostly small; now and then large enough for a run file.
    let rows = if numbers.below(20) == 0 { 300 } else { 1 + numbers.below(12) } as u32;
    let data = vec![id as u8; numbers.index(200)];
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
}

/// Adds, makes anew, also as another structure, or drops an index of the table, beside its writers: `verify` tells what came
/// of it.
fn build(db: &Database, table: &Table, numbers: &mut Rng, structures: &mut Structures) {
    let options = structures.options();
    let new = || IndexSchema::new("by_of", &["of", "random"]).with_options(options);
    let done = match (table.schema().index_number("by_of"), numbers.below(2)) {
        (None, _) => db.create_table_indexes(table, vec![new()]),
        (Some(n), 0) if table.schema().indexes()[n].options() != options => {
            db.change_table_index(table, "by_of", options)
        }
        (_, 0) => db.rebuild_index(table, "by_of"),
        _ => db.drop_table_index(table, "by_of"),
    };
    match done {
        Ok(()) | Err(Error::LockTimeout { .. } | Error::HeldByPrepared { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

fn manage(db: &Database, table: &Table, numbers: &mut Rng, structures: &mut Structures) {
    loop {
        std::thread::sleep(Duration::from_micros(numbers.below(20_000)));
        match numbers.below(6) {
            0 | 1 => {
                db.checkpoint().expect("a checkpoint");
                continue;
            }
            2 => {
                build(db, table, numbers, structures);
                continue;
            }
            _ => {}
        }
        let name = format!("extra{}", numbers.below(6));
        report(format_args!("changing {name}"));
        match db.create_index(&name, IndexOptions { node_bytes: 0, ..structures.options() }) {
            Ok(_) => report(format_args!("created {name}")),
            Err(Error::AlreadyExists { .. }) => {
                db.drop_index(&name).expect("drops");
                report(format_args!("dropped {name}"));
            }
            Err(error) => panic!("{error}"),
        }
    }
}
