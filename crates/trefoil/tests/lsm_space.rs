//! What merges of an LSM index give back comes to the data file without a commit that would call for a checkpoint.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::time::Duration;

use trefoil::{Compression, Database, Durability, Error, Index, IndexOptions, Options, Structure};
use vfs::random::Rng;
use vfs::time::Instant;

const VALUE_BYTES: usize = 1000;
/// For what the background does: far more than it takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The log never calls for a checkpoint: neither by its length nor, at rest, for a segment that could go.
fn options(data_bytes_max: Option<u64>) -> Options {
    Options {
        budget_bytes: 4 << 20,
        log_capacity_bytes: 1 << 30,
        log_segment_bytes: 64 << 20,
        extent_bytes: 64 << 10,
        data_bytes_max,
        disk_reserve_bytes: 1 << 20,
        durability: Durability::Buffered,
        ..Options::default()
    }
}

fn open(dir: &tempfile::TempDir, data_bytes_max: Option<u64>) -> (Database, Index) {
    let db = Database::open(dir.path(), options(data_bytes_max)).unwrap();
    let plain = IndexOptions { structure: Structure::Lsm, compression: Compression::None, ..IndexOptions::default() };
    let index = db.create_index("rows", plain).unwrap();
    (db, index)
}

fn put(db: &Database, index: &Index, rows: std::ops::Range<u32>, rng: &mut Rng) -> Result<(), Error> {
    let mut tx = db.begin()?;
    for n in rows {
        let value: Vec<u8> = (0..VALUE_BYTES / 8).flat_map(|_| rng.below(u64::MAX).to_le_bytes()).collect();
        tx.put(index, &n.to_be_bytes(), &value)?;
    }
    tx.commit().map(drop)
}

fn wait(what: &str, mut is_there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_there() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        vfs::thread::sleep(Duration::from_millis(20));
    }
}

/// Nine of ten rows are deleted, and nothing is committed behind that: the background merges them away and gives their space back, with one
/// checkpoint or a few, and then rests. Guard: the first rule of `Engine::space_is_due`.
#[test]
fn what_was_purged_is_given_back_at_rest() {
    const ROWS: u32 = 30_000;
    let dir = tempfile::tempdir().unwrap();
    let (db, index) = open(&dir, None);
    let mut rng = Rng::new(1);
    (0..ROWS).step_by(100).for_each(|from| put(&db, &index, from..from + 100, &mut rng).unwrap());
    db.settle().unwrap();
    db.checkpoint().unwrap();
    let full = db.stats().space.file_bytes;
    assert!(full > u64::from(ROWS) * VALUE_BYTES as u64);
    for from in (0..ROWS / 10 * 9).step_by(1000) {
        let mut tx = db.begin().unwrap();
        (from..from + 1000).for_each(|n| assert!(tx.delete(&index, &n.to_be_bytes()).unwrap()));
        tx.commit().unwrap();
    }
    // All of it in runs: what is in memory waits for more. The checkpoint that comes with this is one before anything is merged away.
    db.checkpoint().unwrap();
    let before = db.stats().checkpoints;
    // Less than 8 MiB of what merges left is not worth a checkpoint.
    wait("the space comes back", || db.stats().space.file_bytes < full / 3 + (8 << 20));
    let made = db.stats().checkpoints;
    assert!(made > before && made <= before + 7, "{} checkpoints", made - before);
    wait("the index is in shape", || index.stats().dead_versions < 100);
    vfs::thread::sleep(Duration::from_millis(500));
    let rested = db.stats().checkpoints;
    vfs::thread::sleep(Duration::from_secs(2));
    // One more is that of a log at rest, ten seconds behind the last commit, which a slow machine may be now.
    assert!(db.stats().checkpoints <= rested + 1, "an idle database comes to rest");
    assert_eq!(index.stats().live_keys, u64::from(ROWS / 10));
}

/// A data file is nearly full of rows that were deleted and purged, too few to call for a checkpoint by their size: whoever is refused for it calls
/// for one, and goes on. Guard: the second rule of `Engine::space_is_due`.
#[test]
fn who_is_refused_gets_what_was_merged_away() {
    const ROWS: u32 = 6000;
    let dir = tempfile::tempdir().unwrap();
    let (db, index) = open(&dir, Some(12 << 20));
    let mut rng = Rng::new(2);
    (0..ROWS).step_by(100).for_each(|from| put(&db, &index, from..from + 100, &mut rng).unwrap());
    db.settle().unwrap();
    for from in (0..ROWS / 10 * 9).step_by(600) {
        let mut tx = db.begin().unwrap();
        (from..from + 600).for_each(|n| assert!(tx.delete(&index, &n.to_be_bytes()).unwrap()));
        tx.commit().unwrap();
    }
    db.checkpoint().unwrap();
    wait("the index is in shape", || index.stats().dead_versions < 100);
    let held = db.stats().space.held_bytes;
    assert!(held > u64::from(ROWS) * VALUE_BYTES as u64, "{held} bytes: the last manifest still names what was purged");
    for from in (ROWS..ROWS + 4500).step_by(50) {
        wait("writes resume", || match put(&db, &index, from..from + 50, &mut rng) {
            Ok(()) => true,
            Err(Error::DiskFull { .. }) => false,
            Err(other) => panic!("{other}"),
        });
    }
    let found = db.begin().unwrap().range(&index, ..).unwrap().collect().unwrap().len();
    assert_eq!(found, (ROWS / 10 + 4500) as usize);
}
