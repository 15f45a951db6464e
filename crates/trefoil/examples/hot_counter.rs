//! One hot counter: what an addition costs by a delta, and by a read under a lock and a write.
//!
//! `cargo run --release -p trefoil --example hot_counter` prints, for each durability, number of threads and way, additions a second,
//! and what a read of the counter takes beside them. The sum is checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use trefoil::{Database, Durability, Error, Index, IndexOptions, LockMode, Options};
use vfs::time::Instant;

const KEY: &[u8] = b"the one";
const TIME: Duration = Duration::from_secs(4);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Delta,
    ReadAndWrite,
}

fn main() -> Result<(), Error> {
    for durability in [Durability::Buffered, Durability::Sync] {
        for threads in [1, 8, 48] {
            for way in [Way::ReadAndWrite, Way::Delta] {
                run(durability, way, threads)?;
            }
        }
    }
    Ok(())
}

struct Counted {
    stop: AtomicBool,
    commits: AtomicU64,
}

fn run(durability: Durability, way: Way, threads: u64) -> Result<(), Error> {
    let dir = tempfile::tempdir_in(".").expect("a temporary directory");
    let db = Database::open(dir.path(), Options::default())?;
    let index = db.create_index("counters", IndexOptions { counters: true, ..IndexOptions::default() })?;
    let counted = Arc::new(Counted { stop: AtomicBool::new(false), commits: AtomicU64::new(0) });
    let start = Instant::now();
    let adders: Vec<_> = (0..threads)
        .map(|_| {
            let (db, index, counted) = (db.clone(), index.clone(), counted.clone());
            let body = move || {
                while !counted.stop.load(Ordering::Relaxed) {
                    add(&db, &index, way, durability).expect("an addition");
                    counted.commits.fetch_add(1, Ordering::Relaxed);
                }
            };
            vfs::thread::spawn("adder", body).expect("a thread")
        })
        .collect();
    let (mut reading, mut reads) = (Duration::ZERO, 0u32);
    while start.elapsed() < TIME {
        vfs::thread::sleep(Duration::from_millis(10));
        let began = Instant::now();
        db.begin()?.get(&index, KEY)?;
        reading += began.elapsed();
        reads += 1;
    }
    counted.stop.store(true, Ordering::Relaxed);
    adders.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let elapsed = start.elapsed();
    let commits = counted.commits.load(Ordering::Relaxed);
    let sum = db.begin()?.get(&index, KEY)?.map_or(0, |value| number(&value));
    assert_eq!(sum as u64, commits, "each addition counts once");
    let (rate, read) = (commits as f64 / elapsed.as_secs_f64(), (reading / reads).as_micros());
    let (durability, way) = (format!("{durability:?}"), format!("{way:?}"));
    println!("{durability:<8} {threads:>2} threads, {way:<12} {rate:>8.0} a second; a read {read} us");
    Ok(())
}

fn add(db: &Database, index: &Index, way: Way, durability: Durability) -> Result<(), Error> {
    let mut tx = db.begin()?;
    if way == Way::Delta {
        tx.add(index, KEY, 1)?;
    } else {
        let sum = tx.get_locked(index, KEY, LockMode::Exclusive)?.map_or(0, |value| number(&value));
        tx.put(index, KEY, &(sum + 1).to_le_bytes())?;
    }
    tx.commit_with(durability).map(|_| ())
}

fn number(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().expect("a counter has eight bytes"))
}
