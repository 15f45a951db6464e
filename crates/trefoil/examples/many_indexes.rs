//! What many small indexes cost that share one small budget: the same rows put into one index, and spread over sixteen.
//!
//! `cargo run --release -p trefoil --example many_indexes` loads a million rows in random order with two threads under 32 MiB, five times in
//! turns, and prints rows a second, the longest commit, and the median ratio of each structure. Each thread writes to all of the indexes. What
//! was put in is counted.

use std::sync::Arc;
use std::time::Duration;

use trefoil::{Database, Durability, Error, Index, IndexOptions, Options, Structure};
use vfs::time::Instant;

const BUDGET: u64 = 32 << 20;
const THREADS: u64 = 2;
const MANY: usize = 16;
const ROWS_A_COMMIT: u64 = 100;
const ROWS: u64 = 1_000_000;
const TURNS: usize = 5;
const VALUE: [u8; 100] = [b'v'; 100];

fn main() -> Result<(), Error> {
    for structure in [Structure::Lsm, Structure::Betree, Structure::Btree] {
        let mut ratios = Vec::new();
        for _ in 0..TURNS {
            let one = load(structure, 1, ROWS)?;
            let many = load(structure, MANY, ROWS)?;
            ratios.push(many / one);
        }
        ratios.sort_by(f64::total_cmp);
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        println!("{structure:?}: {MANY} indexes by one: {:.2} [{least:.2}-{most:.2}]", ratios[ratios.len() / 2]);
    }
    Ok(())
}

/// Rows a second.
fn load(structure: Structure, count: usize, rows: u64) -> Result<f64, Error> {
    let dir = tempfile::tempdir_in(".").expect("a temporary directory");
    let db = Database::open(dir.path(), Options { budget_bytes: BUDGET, ..Options::default() })?;
    let options = IndexOptions { structure, ..IndexOptions::default() };
    let indexes: Result<Vec<_>, Error> = (0..count).map(|n| db.create_index(&format!("index{n}"), options)).collect();
    let indexes = Arc::new(indexes?);
    let start = Instant::now();
    let writers: Vec<_> = (0..THREADS)
        .map(|writer| {
            let (db, indexes) = (db.clone(), indexes.clone());
            vfs::thread::spawn("writer", move || write(&db, &indexes, writer, rows / THREADS).expect("rows are put in"))
                .expect("a thread")
        })
        .collect();
    let longest = writers.into_iter().map(|writer| writer.join().expect("no panic")).max().unwrap_or_default();
    let rate = (rows / THREADS * THREADS) as f64 / start.elapsed().as_secs_f64();
    let tx = db.begin()?;
    let mut found = 0;
    for index in indexes.iter() {
        let mut cursor = tx.range(index, ..)?;
        while cursor.next()?.is_some() {
            found += 1;
        }
    }
    assert_eq!(found, rows / THREADS * THREADS, "each row is there once");
    println!("{structure:?}, {count:>2}: {rate:>8.0} rows/s, longest commit {} ms", longest.as_millis());
    Ok(rate)
}

/// The longest commit.
fn write(db: &Database, indexes: &[Index], writer: u64, rows: u64) -> Result<Duration, Error> {
    let mut longest = Duration::ZERO;
    for from in (0..rows).step_by(ROWS_A_COMMIT as usize) {
        let mut tx = db.begin()?;
        for row in from..rows.min(from + ROWS_A_COMMIT) {
            // Odd factors permute the numbers of 64 bits: all keys are different.
            let key = (row * THREADS + writer).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            tx.put(&indexes[row as usize % indexes.len()], &key.to_be_bytes(), &VALUE)?;
        }
        let began = Instant::now();
        tx.commit_with(Durability::Write)?;
        longest = longest.max(began.elapsed());
    }
    Ok(longest)
}
