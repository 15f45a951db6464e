//! What comparisons switch reaches the engine, and tells: bytes by level, and how commits are slowed down. In simulated time, so the figures are
//! the same each time: `cargo test -p trefoil --test all comparing -- --nocapture` prints them.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crate::support::*;
use trefoil::comparing::{self, LevelCompression, MergePolicy, Policies};
use trefoil::{Compression, Database, Durability, Index, IndexOptions, IndexStats, Options, Shape, Structure};
use vfs::random::Rng;
use vfs::time::Instant;

const MIB: u64 = 1 << 20;

fn lsm(shape: Shape) -> IndexOptions {
    IndexOptions { structure: Structure::Lsm, compression: Compression::None, shape, ..IndexOptions::default() }
}

/// Commits of four rows of some hundred bytes, of which three in eight are zeros, at random places.
fn change(db: &Database, index: &Index, rng: &mut Rng) {
    let mut tx = db.begin().unwrap();
    for _ in 0..4 {
        let value: Vec<u8> = (0..60).flat_map(|_| (rng.u64() >> 24).to_le_bytes()).collect();
        tx.put(index, &((rng.u64() % 30_000) as u32).to_be_bytes(), &value).unwrap();
    }
    tx.commit_with(Durability::Buffered).unwrap();
}

/// In a simulation of its own, so that the same body does the same each time.
fn simulated<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    simulate(move |_| send.send(body()).unwrap());
    receive.recv().unwrap()
}

/// What some thousand commits made of an index, without a limit of what the background may do.
fn loaded(shape: Shape, policies: Policies) -> IndexStats {
    simulated(move || load(shape, policies))
}

fn load(shape: Shape, policies: Policies) -> IndexStats {
    let disk = disk();
    let options = Options { budget_bytes: 2 * MIB, log_capacity_bytes: 16 * MIB, ..options(&disk) };
    let db = comparing::open("/db", options, policies).unwrap();
    assert_eq!(comparing::of(&db), policies);
    let index = db.create_index("i", lsm(shape)).unwrap();
    let mut rng = Rng::new(5);
    for _ in 0..5_000 {
        change(&db, &index, &mut rng);
        sleep(1);
    }
    db.settle_for(std::time::Duration::from_secs(600)).unwrap();
    let stats = index.stats();
    db.close().unwrap();
    stats
}

fn merged(stats: &IndexStats) -> u64 {
    stats.levels.iter().map(|level| level.merged_bytes).sum()
}

#[test]
fn policies_of_merges_reach_the_indexes() {
    let with = loaded(Shape::Leveled, Policies::default());
    let rows = MergePolicy { least_overlap: false, ..MergePolicy::default() };
    let without = loaded(Shape::Leveled, Policies { rows, ..Policies::default() });
    println!("compaction_pri: {} B merged by the least overlap, {} without", merged(&with), merged(&without));
    // 47.1 and 53.3 MB.
    assert!(merged(&with) * 20 < merged(&without) * 19, "{} and {}", merged(&with), merged(&without));
    let (top, middle, bottom) = (Compression::None, Compression::Lz4, Compression::Zstd);
    let rows = MergePolicy { compression: Some(LevelCompression { top, middle, bottom }), ..MergePolicy::default() };
    let zstd = loaded(Shape::Leveled, Policies { rows, ..Policies::default() });
    // Of a version at the bottom: how much else lies there depends on when it was merged last.
    let of_version = |stats: &IndexStats| stats.levels[7].disk_bytes / stats.levels[7].versions;
    println!("compression: {} B on disk of a version, {} with one for all", of_version(&zstd), of_version(&with));
    assert!(of_version(&zstd) < of_version(&with));
    // Those of secondary indexes are no business of a plain one.
    let secondary = MergePolicy { least_overlap: false, ..MergePolicy::default() };
    let other = loaded(Shape::Leveled, Policies { secondary, ..Policies::default() });
    assert_eq!(merged(&other), merged(&with));
}

/// Bytes of commits in each second of a load that runs far ahead of a background that may write little, and delays for all reasons: how
/// many, and the longest in milliseconds.
fn admitted(rate: Option<u64>, seconds: u64) -> (Vec<u64>, u64, u64) {
    let disk = disk();
    let options = Options {
        budget_bytes: 16 * MIB,
        log_capacity_bytes: 64 * MIB,
        log_segment_bytes: MIB,
        io_budget_bytes: MIB / 2,
        ..options(&disk)
    };
    let db = comparing::open("/db", options, Policies { delayed_write_rate: rate, ..Policies::default() }).unwrap();
    let index = db.create_index("i", lsm(Shape::Lazy)).unwrap();
    let (mut rng, began, mut each) = (Rng::new(5), Instant::now(), vec![0; seconds as usize]);
    loop {
        let second = began.elapsed().as_secs();
        if second >= seconds {
            break;
        }
        let before = db.stats().log.appended_bytes;
        change(&db, &index, &mut rng);
        each[second as usize] += db.stats().log.appended_bytes - before;
        vfs::thread::sleep(std::time::Duration::from_micros(300));
    }
    let delays = db.stats().delays;
    let count = delays.iter().map(|delay| delay.count).sum();
    let worst = delays.iter().map(|delay| delay.worst_us).max().unwrap() / 1000;
    drop((db, index));
    (each, count, worst)
}

/// The old way lets everything in until the wall, and then as much as it is told.
#[test]
fn a_delayed_write_rate_is_a_cliff() {
    let second_of_limit = |each: &[u64]| each.iter().position(|bytes| *bytes < each[0] * 9 / 10).expect("a limit");
    let (own, own_delays, _) = simulated(|| admitted(None, 22));
    println!("debt: {own_delays} delays, KiB in each second {:?}", own.iter().map(|b| b >> 10).collect::<Vec<_>>());
    let mut rates = Vec::new();
    for rate in [MIB / 8, MIB / 2] {
        let (each, delays, worst) = simulated(move || admitted(Some(rate), 22));
        println!(
            "delayed_write_rate {rate}: {delays} delays, worst {worst} ms, KiB in each second {:?}",
            each.iter().map(|b| b >> 10).collect::<Vec<_>>()
        );
        let wall = second_of_limit(&each);
        assert!(wall > second_of_limit(&own) + 2, "a limit in second {wall}, of the engine's own in {own:?}");
        let behind = &each[wall + 1..];
        let close = behind.iter().filter(|bytes| bytes.abs_diff(rate) < rate / 10).count();
        assert!(close * 10 >= behind.len() * 9 && behind.len() > 5, "{rate} a second behind the wall: {behind:?}");
        rates.push(behind.iter().sum::<u64>() / behind.len() as u64);
    }
    assert!(rates[1] > rates[0] * 3, "{rates:?}");
}
