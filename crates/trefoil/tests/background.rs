//! The background's threads: how many there are, and what several of them do side by side.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::*;
use trefoil::{Compression, Database, Durability, Error, IndexOptions, Options, Structure};
use vfs::Vfs;
use vfs::fault::{Action, Class, Rule};
use vfs::sim::{DiskConfig, SimDisk};
use vfs::time::Instant;

const INDEXES: usize = 6;
const KEYS: u32 = 1_500;

fn name(n: usize) -> String {
    format!("index {n}")
}

/// On a disk that takes a millisecond to read a block: how long runs over cold leaves in several indexes take to drain.
fn time_to_drain(threads: usize) -> Duration {
    let disk =
        SimDisk::new(DiskConfig { times: [1_000, 10, 10, 10].map(Duration::from_micros), ..DiskConfig::seed(7) });
    let options = Options { log_capacity_bytes: 64 << 20, inline_batch_bytes: 600, ..options(&disk) };
    let db = Database::open("/db", options.clone()).unwrap();
    (0..INDEXES).for_each(|n| fill(&db, &index(&db, &name(n)), 0, KEYS, 40).unwrap());
    db.settle().unwrap();
    db.close().unwrap();
    drop(db);
    let db = Database::open("/db", Options { background_threads: threads, ..options }).unwrap();
    let mut tx = db.begin().unwrap();
    for n in 0..INDEXES {
        let index = db.index(&name(n)).unwrap();
        (0..KEYS).step_by(3).for_each(|key| tx.put(&index, &key.to_be_bytes(), b"new").unwrap());
    }
    tx.commit_with(Durability::Buffered).unwrap();
    let began = Instant::now();
    let undrained = || db.stats().indexes.iter().any(|(_, stats)| stats.run_bytes > 0);
    assert!(undrained(), "the commit left runs");
    while undrained() {
        sleep(1);
    }
    let took = began.elapsed();
    for n in 0..INDEXES {
        assert_eq!(get(&db, &db.index(&name(n)).unwrap(), &3u32.to_be_bytes()).as_deref(), Some(&b"new"[..]));
    }
    sound(&db);
    took
}

/// Guard: more than one worker is started.
#[test]
fn indexes_are_drained_side_by_side() {
    simulate(|_| {
        let (one, three) = (time_to_drain(2), time_to_drain(4));
        let times = one.as_secs_f64() / three.as_secs_f64();
        assert!(times > 2.0, "{one:?} by one worker, {three:?} by three");
    });
}

/// Of three workers two are in the middle of the only indexes there are, the catalog and another one: the third finds
/// nothing to do, and does not wait. Guard: who has an index in hand.
#[test]
fn an_index_is_kept_in_shape_by_one_worker_at_a_time() {
    simulate(|sim| {
        let disk = disk();
        let db = Database::open("/db", Options { background_threads: 4, ..options(&disk) }).unwrap();
        fill(&db, &index(&db, "i"), 0, 100, 10).unwrap();
        let held: Vec<_> = (0..2)
            .map(|_| {
                let gate = sim.hold("background.maintain");
                gate.wait_reached();
                gate
            })
            .collect();
        let third = sim.hold("background.maintain");
        sleep(500);
        assert!(!third.is_reached(), "two workers have one index in hand");
        held.iter().for_each(|gate| gate.open());
        third.wait_reached();
        third.open();
        db.close().unwrap();
    });
}

/// An index that is a log-structured merge tree, on a slow disk, behind a load: with two threads in all the second one, of the urgent lane, merges too; with three two of the
/// merge lane do. Meanwhile the database may be closed. Guards: who has nothing to do helps, of each lane.
#[test]
fn threads_with_nothing_to_do_merge() {
    for threads in [2, 3] {
        simulate(move |_| {
            let disk = SimDisk::new(DiskConfig {
                times: [3_000, 3_000, 10, 10].map(Duration::from_micros),
                ..DiskConfig::seed(7)
            });
            let options = Options { log_capacity_bytes: 64 << 20, background_threads: threads, ..options(&disk) };
            let db = Database::open("/db", options.clone()).unwrap();
            let lsm =
                IndexOptions { structure: Structure::Lsm, compression: Compression::None, ..IndexOptions::default() };
            let rows = db.create_index("i", lsm).unwrap();
            let split_merges = || db.stats().indexes.iter().map(|(_, stats)| stats.split_merges).sum::<u64>();
            let mut loads = 0;
            while split_merges() == 0 {
                loads += 1;
                assert!(loads < 20, "nobody helps");
                (0..40).for_each(|n| fill(&db, &rows, n * 500, n * 500 + 500, 400).unwrap());
                sleep(2000);
            }
            db.close().unwrap();
            drop((rows, db));
            let db = Database::open("/db", options).unwrap();
            assert_eq!(all(&db, &db.index("i").unwrap()).len(), 20_000);
            sound(&db);
            db.close().unwrap();
        });
    }
}

/// Guard: the range is looked at.
#[test]
fn numbers_of_threads_out_of_range_are_refused() {
    simulate(|_| {
        let disk = disk();
        for threads in [1, 65] {
            let refused = Database::open("/db", Options { background_threads: threads, ..options(&disk) });
            let error = refused.map(drop).unwrap_err();
            assert!(matches!(&error, Error::InvalidArgument(why) if why.contains("from 2 to 64")), "{error}");
        }
        let db = Database::open("/db", Options { background_threads: 64, ..options(&disk) }).unwrap();
        fill(&db, &index(&db, "i"), 0, 100, 10).unwrap();
        db.close().unwrap();
    });
}

/// Commits that go on, slowly, behind many: the log of the many goes, though it never rests. Guards: a log that has hardly grown rests; what was trimmed is not kept for
/// commits that do not use it.
#[test]
fn a_log_that_hardly_grows_is_trimmed() {
    simulate(|_| {
        let disk = disk();
        let db = Database::open("/db", Options { log_capacity_bytes: 64 << 20, ..options(&disk) }).unwrap();
        let rows = index(&db, "i");
        let kept = || db.stats().log.disk_bytes;
        (0..200).for_each(|tenth| fill(&db, &rows, tenth * 10, (tenth + 1) * 10, 1000).unwrap());
        let grown = kept();
        assert!(grown >= 1 << 20, "{grown} bytes of 2 MB committed");
        for second in 0..40 {
            put(&db, &rows, format!("slow {second}").as_bytes(), b"", Durability::Sync).unwrap();
            sleep(1000);
        }
        assert!(kept() <= 3 * (256 << 10), "{} of {grown} bytes are kept", kept());
        assert!(db.stats().checkpoints < 6, "{} checkpoints for 40 rows", db.stats().checkpoints);
        // All of it is there behind a power cut, from the manifest and what is left of the log.
        let db = open(&cut(&disk, db));
        assert_eq!(all(&db, &db.index("i").unwrap()).len(), 2040);
        sound(&db);
        db.close().unwrap();
    });
}

/// Guards: a log that rests is trimmed by a checkpoint, one that grows is left to those that are due; a short one is left alone.
#[test]
fn a_log_that_rests_is_trimmed() {
    simulate(|_| {
        let disk = disk();
        let db = Database::open("/db", Options { log_capacity_bytes: 64 << 20, ..options(&disk) }).unwrap();
        let rows = index(&db, "i");
        let kept = || db.stats().log.disk_bytes;
        for tenth in 0..200 {
            fill(&db, &rows, tenth * 10, (tenth + 1) * 10, 1000).unwrap();
            sleep(100);
        }
        let grown = kept();
        assert!(grown > 1 << 20, "{grown} bytes of 2 MB committed");
        sleep(20_000);
        assert!(kept() <= 3 * (256 << 10), "{} of {grown} bytes are kept", kept());
        let before = db.stats().space.written_bytes;
        put(&db, &rows, b"one more", b"", Durability::Sync).unwrap();
        sleep(20_000);
        assert_eq!(db.stats().space.written_bytes, before, "a checkpoint for one row");
        sound(&db);
        db.close().unwrap();
    });
}

/// A log that is small beside the data waits ten seconds for more, one that is as large as the data a few. Guards: `Engine::log_rest`, and that the checkpoint
/// goes by it.
#[test]
fn a_log_as_large_as_the_data_rests_for_a_shorter_time() {
    simulate(|_| {
        let disk = disk();
        let db = Database::open("/db", Options { log_capacity_bytes: 64 << 20, ..options(&disk) }).unwrap();
        let as_is = IndexOptions { compression: Compression::None, ..IndexOptions::default() };
        let rows = db.create_index("i", as_is).unwrap();
        let write = |batches: u32| (0..batches).for_each(|n| fill(&db, &rows, n * 100, n * 100 + 100, 1000).unwrap());
        let log = || (db.stats().checkpoints, db.stats().log.segment_files);
        write(100);
        sleep(30_000);
        let (before, least) = log();
        while log().1 < least + 2 {
            write(1);
        }
        sleep(5_000);
        assert_eq!(log().0, before, "a small log beside ten megabytes of data: {:?}", db.stats().log);
        sleep(20_000);
        assert_eq!(log(), (before + 1, least));
        while log().1 < least + 20 {
            write(4);
        }
        let before = log().0;
        sleep(4_000);
        assert_eq!(log(), (before + 1, least), "a large one");
        sound(&db);
        db.close().unwrap();
    });
}

/// Guard: a database that is closed keeps no log to use again.
#[test]
fn a_log_that_is_closed_keeps_what_is_ready_and_no_more() {
    simulate(|_| {
        let disk = disk();
        let db = Database::open("/db", Options { log_capacity_bytes: 64 << 20, ..options(&disk) }).unwrap();
        let rows = index(&db, "i");
        (0..200).for_each(|n| fill(&db, &rows, n * 10, (n + 1) * 10, 1000).unwrap());
        db.checkpoint().unwrap();
        let log = db.stats().log;
        assert!(log.segment_files > log.segments + log.spare_segments, "nothing is kept to be used again: {log:?}");
        db.close().unwrap();
        drop(db);
        let files = disk.list(Path::new("/db/wal")).unwrap();
        assert!(files.len() as u64 <= 1 + log.spare_segments.max(1), "{files:?} of {log:?}");
        let db = Database::open("/db", options(&disk)).unwrap();
        assert_eq!(all(&db, &db.index("i").unwrap()).len(), 2000);
        sound(&db);
        db.close().unwrap();
    });
}

/// Guard: the checkpoint of a log that rests keeps nothing of what it frees for steady work. Where space was given back right before it, it waits for the
/// next turn of that.
#[test]
fn what_a_checkpoint_of_a_rest_frees_goes_back_with_it() {
    static KEPT: AtomicU64 = AtomicU64::new(0);
    for seed in 1..=4 {
        simulate_by(seed, |_| {
            let disk = disk();
            let options =
                Options { checkpoint_replay: Duration::from_secs(60), log_capacity_bytes: 1 << 30, ..options(&disk) };
            let db = Database::open("/db", options.clone()).unwrap();
            let as_is = IndexOptions { compression: Compression::None, ..IndexOptions::default() };
            let rows = db.create_index("i", as_is).unwrap();
            (0..8).for_each(|_| fill(&db, &rows, 0, 2_000, 1000).unwrap());
            db.checkpoint().unwrap();
            // Extents are cleaned behind it, too.
            sleep(3_000);
            let before = db.stats().checkpoints;
            // In the log, and too little to make one due.
            (0..200).for_each(|tenth| fill(&db, &rows, tenth * 10, (tenth + 1) * 10, 1000).unwrap());
            for _ in 0..300 {
                sleep(100);
                if db.stats().checkpoints > before {
                    break;
                }
            }
            sleep(2_000);
            assert_eq!(db.stats().checkpoints, before + 1);
            KEPT.fetch_add(u64::from(db.stats().space.free_bytes > 2 * options.extent_bytes), Ordering::SeqCst);
            sound(&db);
            db.close().unwrap();
        });
    }
    let kept = KEPT.load(Ordering::SeqCst);
    assert!(kept <= 1, "free extents are kept in {kept} schedules of four");
}

/// Guard: a log that rests within one segment is left alone; what lies in an earlier one is trimmed, however short it is.
#[test]
fn a_short_log_in_two_segments_is_trimmed_in_a_rest() {
    simulate(|_| {
        let disk = disk();
        let db = Database::open("/db", Options { log_capacity_bytes: 64 << 20, ..options(&disk) }).unwrap();
        let rows = index(&db, "i");
        let segments = || db.stats().log.segments;
        while segments() == 1 {
            db.checkpoint().unwrap();
            fill(&db, &rows, 0, 20, 1000).unwrap();
        }
        sleep(20_000);
        assert_eq!(segments(), 1, "the first one is kept");
        let before = db.stats().checkpoints;
        fill(&db, &rows, 0, 1, 1000).unwrap();
        sleep(20_000);
        assert_eq!((db.stats().checkpoints, segments()), (before, 1), "nothing is trimmed of it");
        sound(&db);
        db.close().unwrap();
    });
}

/// Commits of rows that cannot be compressed, on a disk of these times for reads, writes, syncs and others, in microseconds, with a rest
/// behind each.
struct FastLog {
    times: [u64; 4],
    segment_bytes: u64,
    commits: u64,
    rows: u64,
    row_bytes: usize,
    rest_ms: u64,
    durability: Durability,
}

impl FastLog {
    /// None of the commits makes a segment, and waits for the disk. How long it took from one sync to the next at most.
    fn finds_room(self) -> Duration {
        let disk = SimDisk::new(DiskConfig { times: self.times.map(Duration::from_micros), ..DiskConfig::seed(7) });
        let options = Options {
            budget_bytes: 64 << 20,
            log_capacity_bytes: 256 << 20,
            log_segment_bytes: self.segment_bytes,
            checkpoint_replay: Duration::from_secs(60),
            ..options(&disk)
        };
        let db = Database::open("/db", options).unwrap();
        let rows = index(&db, "i");
        let mut random = vfs::random::Rng::new(1);
        let before = db.stats().log;
        let (mut synced, mut syncs, mut longest) = (Instant::now(), before.syncs, Duration::ZERO);
        for _ in 0..self.commits {
            let mut tx = db.begin().unwrap();
            for key in 0..self.rows {
                let value: Vec<u8> = (0..self.row_bytes / 8).flat_map(|_| random.u64().to_be_bytes()).collect();
                tx.put(&rows, &key.to_be_bytes(), &value).unwrap();
            }
            tx.commit_with(self.durability).unwrap();
            sleep(self.rest_ms);
            if db.stats().log.syncs > syncs {
                (longest, syncs) = (longest.max(synced.elapsed()), db.stats().log.syncs);
                synced = Instant::now();
            }
        }
        let log = db.stats().log;
        assert!(log.segments >= before.segments + 3, "{log:?}");
        assert_eq!(log.room_waits, before.room_waits, "{log:?}");
        sound(&db);
        db.close().unwrap();
        longest.max(synced.elapsed())
    }
}

const FAST: FastLog = FastLog {
    times: [10, 100, 100, 10],
    segment_bytes: 2 << 20,
    commits: 600,
    rows: 20,
    row_bytes: 1520,
    rest_ms: 1,
    durability: Durability::Sync,
};

/// A segment lasts less than the log's thread rests. Guard: who writes the log tells that thread that a segment is wanted. Of small commits each
/// takes a block.
#[test]
fn segments_are_made_before_a_fast_log_needs_them() {
    simulate(|_| {
        FAST.finds_room();
        FastLog { segment_bytes: 256 << 10, rows: 1, row_bytes: 200, ..FAST }.finds_room();
    });
}

/// Guards: what `Buffered` commits left is synced in time although segments are wanted all the while; a sync that takes longer than the rest
/// leaves time to make segments.
#[test]
fn a_fast_log_is_synced_within_a_second() {
    simulate(|_| {
        let buffered = FastLog { durability: Durability::Buffered, ..FAST };
        let longest =
            FastLog { segment_bytes: 256 << 10, commits: 2000, rows: 1, row_bytes: 8000, ..buffered }.finds_room();
        assert!(longest < Duration::from_millis(400), "{longest:?}");
        let slow = [10, 100, 250_000, 10];
        let longest =
            FastLog { times: slow, segment_bytes: 8 << 20, rows: 20, row_bytes: 4000, rest_ms: 20, ..buffered }
                .finds_room();
        assert!(longest < Duration::from_secs(2), "{longest:?}");
    });
}

/// Guard: space that was kept for steady work goes back to the file system once there is none.
#[test]
fn spare_space_goes_back_when_nothing_is_written() {
    simulate(|_| {
        let disk = disk();
        let options = Options { checkpoint_replay: Duration::from_secs(60), ..options(&disk) };
        let db = Database::open("/db", options.clone()).unwrap();
        let as_is = IndexOptions { compression: Compression::None, ..IndexOptions::default() };
        let rows = db.create_index("i", as_is).unwrap();
        for _ in 0..8 {
            fill(&db, &rows, 0, 2_000, 1000).unwrap();
        }
        db.checkpoint().unwrap();
        let free = || db.stats().space.free_bytes / options.extent_bytes;
        let spare = free();
        assert!(spare > 2, "{spare} extents are kept");
        sleep(30_000);
        assert!(free() <= 2, "{} of {spare} extents are kept", free());
        sound(&db);
        db.close().unwrap();
    });
}

/// Guards: who asks for a checkpoint does not wait for all that it gives back; the background gives back the rest, and rests meanwhile, from the last time and not from the last checkpoint; checkpoints go on.
#[test]
fn much_space_goes_back_in_the_background() {
    simulate(|_| {
        let disk = disk();
        let options = Options { log_capacity_bytes: 4 << 20, ..options(&disk) };
        let db = Database::open("/db", options.clone()).unwrap();
        let as_is = || IndexOptions { compression: Compression::None, ..IndexOptions::default() };
        let (large, behind) = (db.create_index("large", as_is()).unwrap(), db.create_index("behind", as_is()).unwrap());
        (0..24).for_each(|n| fill(&db, &large, n * 1000, (n + 1) * 1000, 1000).unwrap());
        db.settle().unwrap();
        fill(&db, &behind, 0, 1000, 1000).unwrap();
        db.settle().unwrap();
        drop(large);
        db.drop_index("large").unwrap();
        disk.faults().add(Rule::new(Action::Slow(Duration::from_millis(100))).on(Class::Punch).path("data").forever());
        let mut waited = Duration::ZERO;
        for _ in 0..4 {
            sleep(50);
            let began = Instant::now();
            db.checkpoint().unwrap();
            waited = waited.max(began.elapsed());
        }
        let free = || db.stats().space.free_bytes / options.extent_bytes;
        assert!(waited >= Duration::from_millis(200) && waited < Duration::from_millis(500), "{waited:?}");
        let left = free();
        assert!(left > 100, "{left} extents are left to the background");
        sleep(2_000);
        assert!(left - free() <= 4 * 16, "{left}, then {}: it rests", free());
        // A checkpoint in between; it is not held up by what goes on.
        let (began, before) = (Instant::now(), db.stats().checkpoints);
        let mut n = 0;
        while db.stats().checkpoints == before {
            put(&db, &behind, b"again", &[7; 1000], Durability::Buffered).unwrap();
            sleep(1);
            n += 1;
            assert!(n < 10_000, "none comes");
        }
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        let left = free();
        assert!(left > 50, "{left} extents are still to go");
        // Checkpoints that follow each other faster than space rests do not put it off.
        let before = db.stats().checkpoints;
        for _ in 0..9_000 {
            put(&db, &behind, b"again", &[7; 1000], Durability::Buffered).unwrap();
            sleep(1);
        }
        assert!(db.stats().checkpoints - before > 3, "{} checkpoints", db.stats().checkpoints - before);
        assert!(free() + 32 < left, "{} of {left} extents are left", free());
        sleep(120_000);
        assert!(free() <= 2, "{}", free());
        sound(&db);
        db.close().unwrap();
    });
}
