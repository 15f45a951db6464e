//! Commits held back by what a log-structured merge tree owes (decision D11): levels that are not merged, and runs that are attached.
//! The merges stand at a point, so what is owed is exact.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::time::Duration;

use crate::support::*;
use trefoil::{Compression, Database, DelayStats, Durability, Index, IndexOptions, Options, Shape, Structure};
use vfs::random::Rng;
use vfs::time::Instant;

/// No commit waits longer for what is owed (`controller.rs`); what else it does takes no more than a quarter of that here.
const LONGEST: Duration = Duration::from_millis(200);

fn lsm(db: &Database, shape: Shape) -> Index {
    let plain = IndexOptions { structure: Structure::Lsm, compression: Compression::None, ..IndexOptions::default() };
    db.create_index("rows", IndexOptions { shape, ..plain }).unwrap()
}

/// Commits `rows` of a kilobyte. How long that took.
fn commit(db: &Database, index: &Index, rows: u32, seed: u64) -> Duration {
    let mut rng = Rng::new(seed);
    let mut tx = db.begin().unwrap();
    for _ in 0..rows {
        let value: Vec<u8> = (0..125).flat_map(|_| rng.u64().to_le_bytes()).collect();
        tx.put(index, &rng.u64().to_le_bytes(), &value).unwrap();
    }
    let asked = Instant::now();
    tx.commit_with(Durability::Buffered).unwrap();
    asked.elapsed()
}

fn delay(db: &Database, reason: &str) -> DelayStats {
    *db.stats().delays.iter().find(|delay| delay.reason == reason).unwrap()
}

/// Nobody has waited for another reason.
fn no_other(db: &Database, reason: &str) {
    let delays = db.stats().delays;
    assert!(delays.iter().all(|delay| delay.reason == reason || delay.count == 0), "{delays:?}");
}

/// Commits wait while something is owed, each at most so long, and do not once it is paid.
fn judge_delays(db: &Database, index: &Index, reason: &str, rows: u32, pay: impl FnOnce()) {
    // Whoever looks first waits already.
    sleep(100);
    let before = delay(db, reason);
    for n in 0..20 {
        let took = commit(db, index, rows, 1_000 + n);
        let slept = delay(db, reason);
        assert_eq!(slept.count, before.count + n + 1, "each of them waits");
        assert!(took >= Duration::from_millis(1) && took <= LONGEST * 11 / 10, "{took:?}");
    }
    // So many at once that the last of them would have to wait for longer.
    let all_at_once: Vec<_> = (0..16)
        .map(|n| {
            let (db, index) = (db.clone(), index.clone());
            spawn("writer", move || commit(&db, &index, rows, 4_000 + n))
        })
        .collect();
    let longest = all_at_once.into_iter().map(|writer| writer.join().unwrap()).max().unwrap();
    assert!(longest >= LONGEST / 2 && longest <= LONGEST * 5 / 4, "{longest:?}");
    let held = delay(db, reason);
    assert!(
        held.sum_us > before.sum_us + 20 * 1_000 && held.worst_us <= LONGEST.as_micros() as u64 * 5 / 4,
        "{held:?}"
    );
    no_other(db, reason);
    pay();
    // One finds that nothing is owed any more, and may wait for that; the next ones do not.
    sleep(100);
    commit(db, index, rows, 2_000);
    let paid = delay(db, reason);
    for n in 0..20 {
        let took = commit(db, index, 1, 3_000 + n);
        assert!(took <= LONGEST / 10, "{took:?}");
        sleep(60);
    }
    assert_eq!(delay(db, reason), paid, "nothing is owed");
    no_other(db, reason);
    db.settle().unwrap();
    sound(db);
}

/// Level 0 has more strands than are merged at once, behind a merge that stands still: `gc`. Guard: `debt` of `choose.rs`.
#[test]
fn d11_levels_that_are_not_merged_delay_writers() {
    for shape in [Shape::Lazy, Shape::Leveled, Shape::Universal] {
        simulate(move |sim| {
            let disk = disk();
            let db = Database::open("/db", Options { log_capacity_bytes: 64 << 20, ..options(&disk) }).unwrap();
            db.set_gc_debt_limit(64 << 10);
            let index = lsm(&db, shape);
            let gate = sim.hold("lsm.merging");
            let mut runs = 0;
            while index.stats().gc_debt_bytes < 96 << 10 {
                assert_eq!(delay(&db, "gc").count, 0, "{} of {runs} runs are owed", index.stats().gc_debt_bytes);
                (0..5).for_each(|n| _ = commit(&db, &index, 8, runs * 5 + n));
                db.checkpoint().unwrap();
                sleep(60);
                runs += 1;
                assert!(runs < 40, "{shape:?}: {:?}", index.stats().levels);
            }
            gate.wait_reached();
            judge_delays(&db, &index, "gc", 8, || {
                gate.open();
                let began = Instant::now();
                while index.stats().gc_debt_bytes > 0 {
                    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", index.stats().levels);
                    sleep(10);
                }
            });
        });
    }
}

/// Large commits are attached as runs, which no merge takes up: `runs`. Guard: their number in `lag`.
#[test]
fn d11_attached_runs_that_are_not_merged_delay_writers() {
    simulate(|sim| {
        let disk = disk();
        let small = Options { log_capacity_bytes: 64 << 20, inline_batch_bytes: 8 << 10, ..options(&disk) };
        let db = Database::open("/db", small).unwrap();
        let index = lsm(&db, Shape::Lazy);
        let gate = sim.hold("lsm.merging");
        // Each one is a file; from a tenth of 512 on writers wait.
        for n in 0..50 {
            commit(&db, &index, 10, n);
            sleep(60);
        }
        assert_eq!((index.stats().runs, delay(&db, "runs").count), (50, 0));
        (50..60).for_each(|n| _ = commit(&db, &index, 10, n));
        gate.wait_reached();
        judge_delays(&db, &index, "runs", 10, || {
            gate.open();
            let began = Instant::now();
            while index.stats().runs > 0 {
                assert!(began.elapsed() < Duration::from_secs(60), "{:?}", index.stats());
                sleep(10);
            }
        });
    });
}
