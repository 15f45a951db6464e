//! What the background may write in a second is what it writes, and nobody comes to a stop by it.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::*;
use trefoil::{Database, Durability, Index, IndexOptions, Options};
use vfs::random::Rng;
use vfs::time::Instant;

/// One and a half times as many bytes as memory has.
const KEYS: u64 = 60_000;

/// Commits that change rows all over the index, for as long as it takes.
fn change(db: &Database, index: &Index, rng: &mut Rng) -> Duration {
    let mut tx = db.begin().unwrap();
    for _ in 0..4 {
        let value: Vec<u8> = (0..25).flat_map(|_| rng.u64().to_le_bytes()).collect();
        tx.put(index, &((rng.u64() % KEYS) as u32).to_be_bytes(), &value).unwrap();
    }
    let asked = Instant::now();
    tx.commit_with(Durability::Buffered).unwrap();
    asked.elapsed()
}

fn filled(db: &Database) -> Index {
    let index = db.create_index("i", IndexOptions::default()).unwrap();
    (0..KEYS as u32).step_by(1_000).for_each(|from| fill(db, &index, from, from + 1_000, 200).unwrap());
    index
}

/// Writers who would be many times as fast; the budget is set anew meanwhile. Guards: write-back rests; what is admitted
/// follows the budget.
#[test]
fn the_background_keeps_to_its_budget() {
    simulate_long_by(1, |_| {
        let disk = disk();
        let options = Options { log_capacity_bytes: 64 << 20, ..options(&disk) };
        let db = Database::open("/db", options).unwrap();
        let index = filled(&db);
        let stop = Arc::new(AtomicBool::new(false));
        let writer = {
            let (db, index, stop) = (db.clone(), index.clone(), stop.clone());
            spawn("writer", move || {
                let mut rng = Rng::new(5);
                while !stop.load(Ordering::SeqCst) {
                    change(&db, &index, &mut rng);
                    vfs::thread::sleep(Duration::from_micros(200));
                }
            })
        };
        let written_in = |seconds: u64| {
            let before = db.stats().space.written_bytes;
            sleep(seconds * 1000);
            (db.stats().space.written_bytes - before) as f64 / seconds as f64
        };
        for budget in [1 << 20, 512 << 10] {
            db.set_io_budget(budget);
            sleep(5_000);
            // A flush or a checkpoint writes some seconds at once, and rests for them: forty seconds are a quarter off in some schedules.
            let rate = written_in(80) / budget as f64;
            println!("{rate} of the budget of {budget}, {:?}", db.stats().delays);
            assert!((0.9..1.1).contains(&rate), "{rate} of the budget of {budget}");
        }
        db.set_io_budget(0);
        sleep(200);
        assert!(written_in(1) > 2e6, "no budget any more");
        stop.store(true, Ordering::SeqCst);
        writer.join().unwrap();
        sound(&db);
    });
}

/// A byte a second, a log of a megabyte, more data than memory: commits go on, and so does whoever wants a checkpoint. Guards:
/// write-back hurries when memory is waited for, a checkpoint when the log is nearly full or somebody waits for it.
#[test]
fn a_tiny_budget_stops_nobody() {
    simulate(|_| {
        let disk = disk();
        let db = Database::open("/db", options(&disk)).unwrap();
        let index = filled(&db);
        db.set_io_budget(1);
        let mut rng = Rng::new(5);
        let mut longest = Duration::ZERO;
        for _ in 0..3_000 {
            longest = longest.max(change(&db, &index, &mut rng));
        }
        assert!(longest < Duration::from_secs(3), "a commit took {longest:?}");
        let asked = Instant::now();
        db.checkpoint().unwrap();
        db.create_index("another", small_nodes()).unwrap();
        db.drop_index("another").unwrap();
        db.checkpoint_to("/copy/of").unwrap();
        db.close().unwrap();
        assert!(asked.elapsed() < Duration::from_secs(60), "{:?}", asked.elapsed());
    });
}
