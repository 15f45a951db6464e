//! What an index writes, reads and takes on disk for what its user sees: of every structure, held against what the test itself knows.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crate::support::*;
use trefoil::{Compression, Database, Durability, IndexOptions, Options, Structure};
use vfs::random::Rng;

const KEYS: u32 = 8_000;
const VALUE_BYTES: usize = 64;
const LOOK_UPS: u64 = 2_000;

/// All keys, then half of them seven times, each time as a checkpoint finds them; then look-ups.
fn check(structure: Structure) {
    let disk = disk();
    let options = Options { budget_bytes: 2 << 20, log_capacity_bytes: 16 << 20, ..options(&disk) };
    let db = Database::open("/db", options).unwrap();
    let options = IndexOptions { structure, compression: Compression::None, ..IndexOptions::default() };
    let index = db.create_index("rows", options).unwrap();
    let (mut rng, mut came) = (Rng::new(5), 0);
    for round in 0..8u32 {
        let keys: Vec<u32> = (0..KEYS).filter(|n| round == 0 || n % 2 == 0).collect();
        for some in keys.chunks(100) {
            let mut tx = db.begin().unwrap();
            for n in some {
                let value: Vec<u8> = (0..VALUE_BYTES / 8).flat_map(|_| rng.u64().to_le_bytes()).collect();
                tx.put(&index, &n.to_be_bytes(), &value).unwrap();
                came += 4 + VALUE_BYTES as u64;
            }
            tx.commit_with(Durability::Buffered).unwrap();
        }
        db.checkpoint().unwrap();
    }
    for _ in 0..LOOK_UPS {
        let key = rng.below(u64::from(KEYS)) as u32;
        assert!(db.begin().unwrap().get(&index, &key.to_be_bytes()).unwrap().is_some());
    }
    let (stats, advice) = (index.stats(), db.advise().unwrap().remove(0));
    let live_bytes = f64::from(KEYS) * (4 + VALUE_BYTES) as f64;
    let space = stats.disk_bytes as f64 / live_bytes;
    println!("{structure:?}: {:?}, space {space:.3}, {} keys by counts, {stats:?}", advice.measured, stats.live_keys);
    assert_eq!((stats.traffic.ingested_bytes, stats.traffic.point_reads), (came, LOOK_UPS), "{structure:?}");
    let written = stats.traffic.written_bytes();
    assert!(written > 0 && written <= db.stats().space.written_bytes, "{structure:?}: {written}");
    assert_eq!(advice.measured.write, Some(written as f64 / came as f64), "{structure:?}");
    assert_eq!(advice.measured.read, Some(stats.traffic.point_blocks as f64 / LOOK_UPS as f64), "{structure:?}");
    let measured = advice.measured.space.unwrap();
    // All that lives is on disk, plain. What is there besides, trees give back behind the next checkpoint, and do not count.
    assert!((1.0..=space * 1.05).contains(&measured), "{structure:?}: {measured} said, {space} is");
    if structure == Structure::Lsm {
        assert!(measured > space * 0.95, "{measured} said, {space} is");
        assert!(stats.live_keys > u64::from(KEYS) * 6 / 5, "keys in several runs: {}", stats.live_keys);
        assert!(space > 1.2 && stats.traffic.point_blocks > 0, "{space}, {:?}", stats.traffic);
        assert_eq!((advice.other, advice.predicted), (structure, trefoil::Amplification::default()));
        assert_eq!((advice.verdict().as_str(), advice.notes.len()), ("compared with none", 1));
    }
    db.close().unwrap();
}

/// Guard: what the counts of runs say lives is held against a sample.
#[test]
fn every_structure_says_what_it_costs() {
    for structure in [Structure::Btree, Structure::Betree, Structure::Lsm] {
        simulate(move |_| check(structure));
    }
}

/// With so little memory every commit becomes a run in a file, which takes whole blocks. Guard: that is not what came in.
#[test]
fn what_is_attached_counts_by_its_keys_and_values() {
    for structure in [Structure::Btree, Structure::Lsm] {
        simulate(move |_| {
            let disk = disk();
            let db = Database::open("/db", Options { budget_bytes: 768 << 10, ..options(&disk) }).unwrap();
            let index = db.create_index("rows", IndexOptions { structure, ..IndexOptions::default() }).unwrap();
            let mut most = 0;
            for round in 0..100 {
                fill(&db, &index, round * 30, round * 30 + 30, 200).unwrap();
                most = most.max(index.stats().runs);
            }
            println!("{structure:?}: {most} runs at once");
            assert!(most > 0 || structure != Structure::Lsm, "nothing was attached");
            assert_eq!(index.stats().traffic.ingested_bytes, 3_000 * 204, "{structure:?}");
            db.close().unwrap();
        });
    }
}
