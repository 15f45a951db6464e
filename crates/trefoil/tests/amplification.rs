//! What an index writes, reads and takes on disk for what its user sees: of every structure, held against what the test itself knows.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::quarantine::{quiet, rot_at};
use crate::support::damage::blocks_of_lsm;
use crate::support::surgery::DIR;
use crate::support::*;
use trefoil::{Compression, Database, Durability, IndexOptions, Options, Structure};
use vfs::random::Rng;
use vfs::sim::SimDisk;

const KEYS: u32 = 8_000;
const LOOK_UPS: u64 = 2_000;

/// The lower half of the keys has small values, the upper one larger ones.
fn value_bytes(key: u32) -> usize {
    if key < KEYS / 2 { 64 } else { 200 }
}

/// All keys, then the lower half of them seven times, each time as a checkpoint finds them; then look-ups. True if a fifth of the keys is in
/// several runs in the end.
fn check(structure: Structure) -> bool {
    let disk = disk();
    let options = Options { budget_bytes: 2 << 20, log_capacity_bytes: 16 << 20, ..options(&disk) };
    let db = Database::open("/db", options).unwrap();
    let options = IndexOptions { structure, compression: Compression::None, ..IndexOptions::default() };
    let index = db.create_index("rows", options).unwrap();
    let (mut rng, mut came) = (Rng::new(5), 0);
    for round in 0..8u32 {
        let keys: Vec<u32> = (0..KEYS).filter(|n| round == 0 || *n < KEYS / 2).collect();
        for some in keys.chunks(100) {
            let mut tx = db.begin().unwrap();
            for n in some {
                let value: Vec<u8> = (0..value_bytes(*n) / 8).flat_map(|_| rng.u64().to_le_bytes()).collect();
                tx.put(&index, &n.to_be_bytes(), &value).unwrap();
                came += 4 + value_bytes(*n) as u64;
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
    let live_bytes = (0..KEYS).map(|n| 4 + value_bytes(n)).sum::<usize>() as f64;
    let space = stats.disk_bytes as f64 / live_bytes;
    println!("{structure:?}: {:?}, space {space:.3}, {} keys by counts, {stats:?}", advice.measured, stats.live_keys);
    assert_eq!((stats.traffic.ingested_bytes, stats.traffic.point_reads), (came, LOOK_UPS), "{structure:?}");
    let written = stats.traffic.written_bytes();
    assert!(written > 0 && written <= db.stats().space.written_bytes, "{structure:?}: {written}");
    assert_eq!(advice.measured.write, Some(written as f64 / came as f64), "{structure:?}");
    assert_eq!(advice.measured.read, Some(stats.traffic.point_blocks as f64 / LOOK_UPS as f64), "{structure:?}");
    let measured = advice.measured.space.unwrap();
    // All that lives is on disk, plain. What is there besides, trees give back behind the next checkpoint, and do not count.
    // Of runs it is a sample that says what lives: of 1.82 it said 1.92 in most schedules.
    let off = if structure == Structure::Lsm { 0.1 } else { 0.05 };
    assert!((1.0..=space * (1.0 + off)).contains(&measured), "{structure:?}: {measured} said, {space} is");
    if structure == Structure::Lsm {
        assert!(measured > space * (1.0 - off), "{measured} said, {space} is");
        assert!(stats.traffic.point_blocks > 0, "{:?}", stats.traffic);
        assert_eq!((advice.other, advice.predicted), (structure, trefoil::Amplification::default()));
        assert_eq!((advice.verdict().as_str(), advice.notes.len()), ("compared with none", 1));
    }
    db.close().unwrap();
    stats.live_keys > u64::from(KEYS) * 6 / 5
}

/// Guards: what the counts of runs say lives is held against a sample; each place of that counts by what it stands for.
#[test]
fn every_structure_says_what_it_costs() {
    for structure in [Structure::Btree, Structure::Betree, Structure::Lsm] {
        let in_several = Arc::new(AtomicU32::new(0));
        for seed in 0..if structure == Structure::Lsm { 3 } else { 1 } {
            let in_several = in_several.clone();
            simulate_by(seed, move |_| _ = in_several.fetch_add(u32::from(check(structure)), Ordering::Relaxed));
        }
        let is_lsm = structure == Structure::Lsm;
        assert_eq!(
            in_several.load(Ordering::Relaxed) > 0,
            is_lsm,
            "{structure:?}: schedules with keys in several runs"
        );
    }
}

/// Run files that are there.
fn run_files(disk: &SimDisk) -> usize {
    disk.files().iter().filter(|(path, _)| path.starts_with("/db/runs")).count()
}

/// With so little memory every commit becomes a run in a file, which takes whole blocks. Guard: that is not what came in.
#[test]
fn what_is_attached_counts_by_its_keys_and_values() {
    for structure in [Structure::Btree, Structure::Lsm] {
        simulate(move |_| {
            let disk = disk();
            let db = Database::open("/db", Options { budget_bytes: 768 << 10, ..options(&disk) }).unwrap();
            let index = db.create_index("rows", IndexOptions { structure, ..IndexOptions::default() }).unwrap();
            let mut most = (0, 0);
            for round in 0..100 {
                fill(&db, &index, round * 30, round * 30 + 30, 200).unwrap();
                most = (most.0.max(index.stats().runs), most.1.max(run_files(&disk)));
            }
            println!("{structure:?}: {most:?} runs and files at once");
            assert!(most.0 > 0 && most.1 > 0, "{structure:?}: {most:?} runs and files");
            assert_eq!(index.stats().traffic.ingested_bytes, 3_000 * 204, "{structure:?}");
            db.close().unwrap();
        });
    }
}

/// Guard: what the file of a prepared transaction takes is not what came in.
#[test]
fn what_was_prepared_in_a_file_counts_by_its_keys_and_values() {
    for structure in [Structure::Btree, Structure::Lsm] {
        simulate(move |_| {
            let disk = disk();
            let db = Database::open("/db", options(&disk)).unwrap();
            let index = db.create_index("rows", IndexOptions { structure, ..IndexOptions::default() }).unwrap();
            let mut tx = db.begin().unwrap();
            (0..4_000u32).for_each(|n| tx.put(&index, &n.to_be_bytes(), &[7; 200]).unwrap());
            tx.prepare(b"one").unwrap();
            assert!(run_files(&disk) > 0, "it is in no file");
            db.ready_prepared(b"one").unwrap().order().finish(Durability::Sync).unwrap();
            assert_eq!(index.stats().traffic.ingested_bytes, 4_000 * 204, "{structure:?}");
            db.close().unwrap();
        });
    }
}

/// Its deletes are written to a file, piece by piece. Guard: what that takes is not what came in.
#[test]
fn a_range_that_is_deleted_counts_by_its_keys() {
    for structure in [Structure::Btree, Structure::Lsm] {
        simulate(move |_| {
            let disk = disk();
            let db = Database::open("/db", options(&disk)).unwrap();
            let index = db.create_index("rows", IndexOptions { structure, ..IndexOptions::default() }).unwrap();
            (0..40).for_each(|n| fill(&db, &index, n * 100, n * 100 + 100, 60).unwrap());
            let mut tx = db.begin().unwrap();
            tx.delete_range(&index, ..3_000u32.to_be_bytes().as_slice()).unwrap();
            tx.commit().unwrap();
            db.settle().unwrap();
            assert_eq!(index.stats().traffic.ingested_bytes, 4_000 * 64 + 3_000 * 4, "{structure:?}");
            db.close().unwrap();
        });
    }
}

/// Guard: where a place has nothing that lives, the sample goes on.
#[test]
fn a_desert_has_its_space_told() {
    for structure in [Structure::Btree, Structure::Lsm] {
        simulate(move |_| {
            let db = Database::open("/db", options(&disk())).unwrap();
            let index = db.create_index("rows", IndexOptions { structure, ..IndexOptions::default() }).unwrap();
            (0..80).for_each(|n| fill(&db, &index, n * 100, n * 100 + 100, 60).unwrap());
            db.checkpoint().unwrap();
            let old = db.snapshot().unwrap();
            for from in (0..7_990u32).step_by(10) {
                let mut tx = db.begin().unwrap();
                (from..from + 10).for_each(|n| assert!(tx.delete(&index, &n.to_be_bytes()).unwrap()));
                tx.commit().unwrap();
            }
            db.checkpoint().unwrap();
            let advice = db.advise().unwrap().remove(0);
            println!("{advice:?}");
            assert!(advice.measured.space.unwrap() > 100.0, "{advice:?}");
            drop(old);
            db.close().unwrap();
        });
    }
}

/// Guards: a fault of one index's sample is a note; why numbers are missing is said of a log-structured merge tree, too.
#[test]
fn damage_of_one_index_leaves_the_others_their_numbers() {
    simulate(|_| {
        let disk = disk();
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        let plain = IndexOptions { structure: Structure::Lsm, compression: Compression::None, ..small_nodes() };
        for name in ["damaged", "sound"] {
            let index = db.create_index(name, plain).unwrap();
            (0..10).for_each(|n| fill(&db, &index, n * 100, n * 100 + 100, 60).unwrap());
        }
        db.checkpoint().unwrap();
        db.close().unwrap();
        drop(db);
        let data = |(_, name): &(_, String)| name.starts_with("data");
        blocks_of_lsm(&disk, 1).into_iter().filter(data).for_each(|(block, _)| rot_at(&disk, block.offset));
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        db.create_index("empty", plain).unwrap();
        let advice = db.advise().unwrap();
        let of = |name: &str| advice.iter().find(|advice| advice.index == name).unwrap();
        let has = |name: &str, what: &str| of(name).notes.iter().any(|note| note.contains(what));
        assert!(of("damaged").measured.space.is_none() && has("damaged", "damaged"), "{advice:#?}");
        assert!(of("sound").measured.space.is_some() && !has("sound", "damaged"), "{advice:#?}");
        assert!(has("sound", "1000 changes") && has("sound", "1000 point reads"), "{advice:#?}");
        assert!(has("empty", "nothing of it is on disk") && !has("sound", "on disk"), "{advice:#?}");
    });
}
