//! What the bars on transactions ask for (docs/PERFORMANCE.md). Each command prints what it measured.
//!
//! ```text
//! cargo run --release -p lab-target --example transactions -- COMMAND DIR
//!
//! large [ROWS]     ROWS (10 M) rows inserted in one transaction and half of them updated in another, under 64 MiB, rolled
//!                  back and committed; beside it a client that commits one row a millisecond
//! savepoints       100,000 savepoints in one transaction, and going back through them
//! long-snapshot    1,000 rows updated by 4 threads for ten seconds, with a snapshot held open and without, in turns
//! ```

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program outside the engine")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use trefoil::{
    ColumnType, Database, Durability, Index, IndexOptions, IndexSchema, Options, Schema, Table, Transaction, Value,
};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const BUDGET_BYTES: u64 = 64 << 20;
const ROWS: u64 = 10_000_000;
const ROWS_PER_STATEMENT: u64 = 100;
const HOT_ROWS: u64 = 1000;
const THREADS: u64 = 4;
const ROUND: Duration = Duration::from_secs(10);
const ROUNDS: usize = 5;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["large", dir] => large(&fresh(dir)?, ROWS),
        ["large", dir, rows] => large(&fresh(dir)?, rows.parse()?),
        ["savepoints", dir] => savepoints(&fresh(dir)?),
        ["long-snapshot", dir] => long_snapshot(&fresh(dir)?),
        _ => Err("usage: transactions large DIR [ROWS] | savepoints DIR | long-snapshot DIR".into()),
    }
}

fn fresh(dir: &str) -> Outcome<PathBuf> {
    let path = Path::new(dir).join("transactions");
    match std::fs::remove_dir_all(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
        _ => Ok(path),
    }
}

fn options() -> Options {
    Options { budget_bytes: BUDGET_BYTES, durability: Durability::Write, ..Options::default() }
}

/// A line of `/proc/self/status`, in MiB.
fn status_mib(name: &str) -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(name)).ok_or("no such line")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse::<f64>()? / 1024.0)
}

/// A client that commits small changes all the time, and how long the slowest of them took.
struct Bystander {
    stop: Arc<AtomicBool>,
    worst_us: Arc<AtomicU64>,
    commits: Arc<AtomicU64>,
    thread: JoinHandle<trefoil::Result<()>>,
}

impl Bystander {
    fn start(db: &Database, index: &Index) -> Self {
        let (stop, worst_us, commits) = (Arc::<AtomicBool>::default(), Arc::default(), Arc::default());
        let (db, index, stopped) = (db.clone(), index.clone(), stop.clone());
        let (worst, count): (Arc<AtomicU64>, Arc<AtomicU64>) = (Arc::clone(&worst_us), Arc::clone(&commits));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                let mut tx = db.begin()?;
                let n = count.fetch_add(1, Ordering::Relaxed);
                tx.put(&index, &(n % 1000).to_be_bytes(), &n.to_be_bytes())?;
                tx.commit()?;
                worst.fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        Self { stop, worst_us, commits, thread }
    }

    /// Commits and the slowest in milliseconds since the last call.
    fn take(&self) -> (u64, f64) {
        (self.commits.swap(0, Ordering::Relaxed), self.worst_us.swap(0, Ordering::Relaxed) as f64 / 1e3)
    }

    fn finish(self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.thread.join().map_err(|_| "the bystander panicked")??)
    }
}

fn phase<T>(name: &str, rows: u64, bystander: &Bystander, body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    bystander.take();
    let began = Instant::now();
    let done = body()?;
    let seconds = began.elapsed().as_secs_f64();
    let ((commits, worst), rss) = (bystander.take(), status_mib("VmHWM:")?);
    println!(
        "{name:<28} {seconds:>7.1} s {:>9.0} rows/s, beside it {commits:>6} commits, slowest {worst:>7.1} ms, RSS {rss:.0} MiB",
        rows as f64 / seconds
    );
    Ok(done)
}

fn row(id: u64, k: u64) -> [Value<'static>; 3] {
    [Value::U64(id), Value::U64(k), Value::Text("0123456789012345678901234567890123456789".into())]
}

fn insert_all(db: &Database, table: &Table, rows: u64) -> Outcome<Transaction> {
    let mut tx = db.begin()?;
    for first in (0..rows).step_by(ROWS_PER_STATEMENT as usize) {
        let scattered = |id: u64| id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let many: Vec<_> = (first..rows.min(first + ROWS_PER_STATEMENT)).map(|id| row(id, scattered(id))).collect();
        tx.insert_many(table, &many)?;
    }
    Ok(tx)
}

fn update_half(db: &Database, table: &Table, rows: u64) -> Outcome<Transaction> {
    let mut tx = db.begin()?;
    for id in (0..rows).step_by(2) {
        let there = tx.update_with(table, &[Value::U64(id)], |row| {
            if let Value::U64(k) = &mut row[1] {
                *k += 1;
            }
        })?;
        assert!(there, "row {id} was inserted");
    }
    Ok(tx)
}

fn large(dir: &Path, rows: u64) -> Outcome {
    let before = status_mib("VmRSS:")?;
    let db = Database::open(dir, options())?;
    let schema = Schema::builder()
        .column("id", ColumnType::U64)
        .column("k", ColumnType::U64)
        .column("text", ColumnType::Text)
        .primary_key(&["id"])
        .index(IndexSchema::new("by_k", &["k"]))
        .build()?;
    let table = db.create_table("large", schema)?;
    let small = db.create_index("small", IndexOptions::default())?;
    let bystander = Bystander::start(&db, &small);
    phase("nothing else", 0, &bystander, || {
        std::thread::sleep(Duration::from_secs(3));
        Ok(())
    })?;
    let tx = phase("insert", rows, &bystander, || insert_all(&db, &table, rows))?;
    phase("roll back the insert", rows, &bystander, || rolled_back(tx))?;
    let tx = phase("insert again", rows, &bystander, || insert_all(&db, &table, rows))?;
    phase("commit the insert", rows, &bystander, || Ok(tx.commit().map(drop)?))?;
    phase("drain", rows, &bystander, || drained(&db))?;
    let half = rows / 2;
    let tx = phase("update half", half, &bystander, || update_half(&db, &table, rows))?;
    phase("roll back the update", half, &bystander, || rolled_back(tx))?;
    let tx = phase("update half again", half, &bystander, || update_half(&db, &table, rows))?;
    phase("commit the update", half, &bystander, || Ok(tx.commit().map(drop)?))?;
    phase("drain", half, &bystander, || drained(&db))?;
    bystander.finish()?;
    let (high, stats) = (status_mib("VmHWM:")?, db.stats());
    println!("RSS {:.1} MiB above before the open, spills {}", high - before, stats.spills);
    println!("{:?}", stats.delays);
    drop((table, small));
    let began = Instant::now();
    drop(db);
    let db = Database::open(dir, options())?;
    println!("closed and opened in {:.1} s", began.elapsed().as_secs_f64());
    let tx = db.begin()?;
    let table = db.table("large")?;
    for id in [0, 1, rows / 2, rows - 1] {
        assert!(tx.get_row(&table, &[Value::U64(id)])?.is_some(), "row {id}");
    }
    Ok(())
}

fn rolled_back(tx: Transaction) -> Outcome {
    tx.rollback();
    Ok(())
}

/// Waits until no run is attached any more.
fn drained(db: &Database) -> Outcome {
    while db.stats().indexes.iter().any(|(_, index)| index.runs > 0) {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn savepoints(dir: &Path) -> Outcome {
    let db = Database::open(dir, options())?;
    let index = db.create_index("rows", IndexOptions::default())?;
    for count in [10_000u64, 100_000] {
        let mut tx = db.begin()?;
        let began = Instant::now();
        let mut all = Vec::new();
        for n in 0..count {
            all.push(tx.savepoint());
            tx.put(&index, &(n * 7919 % count).to_be_bytes(), &[1; 100])?;
        }
        let taken = began.elapsed();
        let began = Instant::now();
        for savepoint in all.iter().rev() {
            tx.rollback_to(*savepoint)?;
        }
        let back = began.elapsed();
        tx.put(&index, b"kept", b"")?;
        tx.commit()?;
        let each = |time: Duration| time.as_nanos() as f64 / count as f64;
        println!("{count} savepoints: {:.0} ns each with a write, {:.0} ns each to go back", each(taken), each(back));
    }
    Ok(())
}

/// Updates a second.
fn update_hot_rows(db: &Database, index: &Index) -> Outcome<f64> {
    let began = Instant::now();
    let work = |thread: u64| {
        let (db, index) = (db.clone(), index.clone());
        move || -> trefoil::Result<u64> {
            let mut done = 0;
            while began.elapsed() < ROUND {
                let mut tx = db.begin()?;
                let key = (done * THREADS + thread) * 7919 % HOT_ROWS;
                tx.put(&index, &key.to_be_bytes(), &[done as u8; 100])?;
                tx.commit()?;
                done += 1;
            }
            Ok(done)
        }
    };
    let threads: Vec<_> = (0..THREADS).map(|thread| std::thread::spawn(work(thread))).collect();
    let mut done = 0;
    for thread in threads {
        done += thread.join().map_err(|_| "a writer panicked")??;
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

fn long_snapshot(dir: &Path) -> Outcome {
    let db = Database::open(dir, options())?;
    let index = db.create_index("rows", IndexOptions::default())?;
    let mut tx = db.begin()?;
    (0..HOT_ROWS).try_for_each(|n| tx.put(&index, &n.to_be_bytes(), &[0; 100]))?;
    tx.commit()?;
    let versions = |db: &Database| {
        db.stats()
            .indexes
            .iter()
            .find(|(name, _)| name == "rows")
            .map_or(0, |(_, index)| index.live_keys + index.dead_versions)
    };
    for round in 1..=ROUNDS {
        let free = update_hot_rows(&db, &index)?;
        let snapshot = db.snapshot()?;
        let held = update_hot_rows(&db, &index)?;
        let kept = versions(&db);
        let seen = snapshot.range(&index, ..)?.collect()?.len();
        drop(snapshot);
        db.checkpoint()?;
        println!(
            "round {round}: {free:.0} updates/s without, {held:.0} with a snapshot of {seen} rows: {:.2}; versions kept \
             {kept}, after its end and a checkpoint {}",
            held / free,
            versions(&db)
        );
    }
    Ok(())
}
