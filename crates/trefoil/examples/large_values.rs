//! What it costs, and gives, to keep values apart from their keys in a log-structured merge tree, by their size.
//!
//! `cargo run --release -p trefoil --example large_values` puts 256 MiB of values in, at random, and then as many over them, with one
//! client under 64 MiB; then it looks up keys and reads ranges of ten; all of it three times in turns. Values from half a block (8 KiB)
//! on have blocks of their own as it is; beside that, from 4 KiB and from 2 KiB on. Every answer is looked at. Values are half words, half noise.

use trefoil::comparing::{MergePolicy, Policies};
use trefoil::{Compression, Database, Durability, Error, Index, IndexOptions, Options, Structure};
use vfs::random::Rng;
use vfs::time::Instant;

const BUDGET: u64 = 64 << 20;
const TURNS: usize = 3;
const DATA_BYTES: u64 = 256 << 20;
const BYTES_A_COMMIT: u64 = 64 << 10;
const LOOKS: u64 = 20_000;
const RANGES: u64 = 4_000;
const VALUES: [usize; 4] = [1 << 10, 2200, 4400, 7000];
const APART: [Option<usize>; 3] = [None, Some(4 << 10), Some(2 << 10)];

fn main() -> Result<(), Error> {
    println!(
        "value  apart from  load rows/s  B written/B in  overwritten rows/s  B written/B in  on disk/live  gets/s  ranges/s"
    );
    for _ in 0..TURNS {
        for value_bytes in VALUES {
            // What is below the first of them lies with its keys in any case.
            for apart in APART.iter().filter(|apart| apart.is_none_or(|from| value_bytes > from)) {
                measure(value_bytes, *apart)?;
            }
        }
    }
    Ok(())
}

struct Values {
    bytes: usize,
    rng: Rng,
}

impl Values {
    /// The value of a key, of which each round has another.
    fn of(&mut self, key: u64, round: u64) -> Vec<u8> {
        let mut value = [key.to_le_bytes(), round.to_le_bytes()].concat();
        while value.len() < self.bytes / 2 {
            value.extend_from_slice(b"tea sugar flour butter paper lamp chair table ");
        }
        while value.len() < self.bytes {
            value.extend_from_slice(&self.rng.u64().to_le_bytes());
        }
        value.truncate(self.bytes);
        value
    }
}

fn measure(value_bytes: usize, apart: Option<usize>) -> Result<(), Error> {
    let dir = tempfile::tempdir_in(".").expect("a temporary directory");
    let rows = MergePolicy { separated_bytes: apart, ..MergePolicy::default() };
    let policies = Policies { rows, ..Policies::default() };
    let options = Options { budget_bytes: BUDGET, direct_io: true, ..Options::default() };
    let db = trefoil::comparing::open(dir.path(), options, policies)?;
    let options = IndexOptions { structure: Structure::Lsm, compression: Compression::Zstd, ..IndexOptions::default() };
    let index = db.create_index("values", options)?;
    let rows = DATA_BYTES / value_bytes as u64;
    let mut values = Values { bytes: value_bytes, rng: Rng::new(7) };
    let loaded = put_all(&db, &index, rows, &mut values, 0)?;
    let overwritten = put_all(&db, &index, rows, &mut values, 1)?;
    let on_disk = db.stats().space.live_bytes as f64 / DATA_BYTES as f64;
    let (gets, ranges) = read(&db, &index, rows, value_bytes)?;
    println!(
        "{value_bytes:>5}  {:>10}  {:>11.0}  {:>14.2}  {:>18.0}  {:>14.2}  {on_disk:>12.2}  {gets:>6.0}  {ranges:>8.0}",
        apart.map_or("half block".into(), |bytes| bytes.to_string()),
        loaded.0,
        loaded.1,
        overwritten.0,
        overwritten.1,
    );
    Ok(())
}

/// Odd factors permute the numbers of 64 bits: all keys are different, and in no order.
fn key(row: u64) -> [u8; 8] {
    row.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Puts each key once: rows a second until all of it is in shape, and bytes written to the data file for one that was put.
fn put_all(db: &Database, index: &Index, rows: u64, values: &mut Values, round: u64) -> Result<(f64, f64), Error> {
    let before = db.stats().space.written_bytes;
    let start = Instant::now();
    // Each round in another order: an odd step over a power of two meets each once.
    let all = rows.next_power_of_two();
    let step = 0x5851_f42d_4c95_7f2d + 2 * round;
    let rows_a_commit = BYTES_A_COMMIT / values.bytes as u64;
    let mut tx = db.begin()?;
    let mut put = 0;
    for row in (0..all).map(|n| n.wrapping_mul(step) % all).filter(|row| *row < rows) {
        tx.put(index, &key(row), &values.of(row, round))?;
        put += 1;
        if put % rows_a_commit == 0 {
            std::mem::replace(&mut tx, db.begin()?).commit_with(Durability::Write)?;
        }
    }
    tx.commit_with(Durability::Write)?;
    assert_eq!(put, rows, "each key is put once");
    db.settle()?;
    let seconds = start.elapsed().as_secs_f64();
    let written = db.stats().space.written_bytes - before;
    Ok((rows as f64 / seconds, written as f64 / (rows * values.bytes as u64) as f64))
}

/// Look-ups and ranges of ten, a second.
fn read(db: &Database, index: &Index, rows: u64, value_bytes: usize) -> Result<(f64, f64), Error> {
    let mut rng = Rng::new(8);
    let is_newest = |value: &[u8]| value.len() == value_bytes && value[8..16] == 1u64.to_le_bytes();
    let start = Instant::now();
    for _ in 0..LOOKS {
        let value = db.begin()?.get(index, &key(rng.below(rows)))?.expect("it was put");
        assert!(is_newest(&value), "the newest one");
    }
    let gets = LOOKS as f64 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    for _ in 0..RANGES {
        let tx = db.begin()?;
        let from = key(rng.below(rows));
        let mut cursor = tx.range(index, &from[..]..)?;
        for _ in 0..10 {
            let Some((_, value)) = cursor.next()? else { break };
            assert!(is_newest(value), "the newest one");
        }
    }
    Ok((gets, RANGES as f64 / start.elapsed().as_secs_f64()))
}
