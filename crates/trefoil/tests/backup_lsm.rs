//! Hot backups beside the work of log-structured merge trees: flushes, merges, runs that are replaced, and blocks that become free
//! while they are copied.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::*;
use trefoil::{CommitTs, Compression, Database, Durability, Error, Index, IndexOptions, Options, Structure};
use vfs::random::Rng;
use vfs::sim::{Config, SimDisk, explore};
use vfs::sync::Mutex;

const KEYS: u64 = 400;

fn lsm(db: &Database, name: &str) -> Index {
    let plain = IndexOptions { structure: Structure::Lsm, compression: Compression::None, ..IndexOptions::default() };
    db.create_index(name, IndexOptions { node_bytes: 4096, ..plain }).unwrap()
}

/// Memory for memtables of 32 KiB.
fn small(disk: &SimDisk) -> Options {
    Options { budget_bytes: 1 << 20, ..options(disk) }
}

/// What transaction `n` of a writer does: puts of noise, and deletes.
fn writes_of(writer: u64, n: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut rng = Rng::new(writer << 32 | n);
    let one = |_| {
        let key = format!("{writer}/{:04}", rng.below(KEYS)).into_bytes();
        let value = (!rng.chance(0.2)).then(|| (0..rng.below(60)).flat_map(|_| rng.u64().to_le_bytes()).collect());
        (key, value)
    };
    (0..12).map(one).collect()
}

fn write(db: &Database, indexes: &[Index], writer: u64, n: u64) -> Result<CommitTs, Error> {
    let mut tx = db.begin()?;
    for (key, value) in writes_of(writer, n) {
        for index in indexes {
            match &value {
                Some(value) => tx.put(index, &key, value)?,
                None => drop(tx.delete(index, &key)?),
            }
        }
    }
    tx.commit_with(if n.is_multiple_of(3) { Durability::Sync } else { Durability::Buffered })
}

/// What is there once these commits, of writer and number, and nothing else have happened.
fn expected(commits: impl Iterator<Item = (u64, u64)>) -> Entries {
    let mut all = BTreeMap::new();
    for (writer, n) in commits {
        for (key, value) in writes_of(writer, n) {
            match value {
                Some(value) => drop(all.insert(key, value)),
                None => drop(all.remove(&key)),
            }
        }
    }
    all.into_iter().collect()
}

/// Bytes that flushes have written, and merges.
fn work(index: &Index) -> (u64, u64) {
    let stats = index.stats();
    (stats.traffic.segment_bytes, stats.levels.iter().map(|level| level.merged_bytes).sum())
}

fn opened(disk: &SimDisk, dir: &str) -> Database {
    Database::open(dir, Options { create: false, ..options(disk) }).unwrap()
}

/// Writers, checkpoints and the background, until they are told to stop.
struct Load {
    commits: Arc<Mutex<BTreeMap<CommitTs, (u64, u64)>>>,
    done: Arc<AtomicBool>,
    threads: Vec<vfs::thread::JoinHandle<()>>,
}

impl Load {
    fn begin(db: &Database, indexes: &[Index; 2], seed: u64) -> Self {
        let (commits, done) = (Arc::<Mutex<BTreeMap<_, _>>>::default(), Arc::new(AtomicBool::new(false)));
        let mut threads = Vec::new();
        for writer in 0..2 {
            let (db, indexes, commits, done) = (db.clone(), indexes.clone(), commits.clone(), done.clone());
            threads.push(spawn("writer", move || {
                for n in 0.. {
                    let ts = write(&db, &indexes, writer, n).unwrap();
                    commits.lock().insert(ts, (writer, n));
                    if done.load(Ordering::SeqCst) && n > 20 {
                        return;
                    }
                    if n % (seed % 7 + 2) == 0 {
                        vfs::thread::sleep(std::time::Duration::from_micros(50));
                    }
                }
            }));
        }
        let (db, stop) = (db.clone(), done.clone());
        threads.push(spawn("checkpoints", move || {
            while !stop.load(Ordering::SeqCst) {
                db.checkpoint().unwrap();
                sleep(2);
            }
        }));
        Self { commits, done, threads }
    }

    fn end(self) -> BTreeMap<CommitTs, (u64, u64)> {
        self.done.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        self.commits.lock().clone()
    }
}

/// A copy has the commits at or below its moment, and no other.
fn judge(copy: &Database, commits: &BTreeMap<CommitTs, (u64, u64)>, at: CommitTs) {
    let expected = expected(commits.range(..=at).map(|(_, commit)| *commit));
    assert!(!expected.is_empty());
    for name in ["a", "b"] {
        assert!(all(copy, &copy.index(name).unwrap()) == expected, "{name} at {at}");
    }
    sound(copy);
}

/// Memtables are flushed, runs merged and freed while a full backup is copied, and an increment to it: each shows its moment.
/// Guards: the pin; that a publication raises the extent's generation.
#[test]
fn backups_beside_flushes_and_merges_show_their_moments() {
    let beside = Arc::new([const { AtomicU64::new(0) }; 4]);
    let seen = beside.clone();
    let explored = explore(0..24, &Config { steps_max: 20_000_000, ..Config::default() }, move |sim| {
        let disk = disk();
        let db = Database::open("/db", small(&disk)).unwrap();
        let indexes = [lsm(&db, "a"), lsm(&db, "b")];
        let load = Load::begin(&db, &indexes, sim.seed());
        sleep(20 + sim.seed() % 40);
        let before = work(&indexes[0]);
        let full = db.checkpoint_to("/copy/full").unwrap();
        let between = work(&indexes[0]);
        let later = db.backup().since("/copy/full").to("/copy/part").unwrap();
        let behind = work(&indexes[0]);
        // The source goes on for a while, over what the copies were made of.
        sleep(5);
        let commits = load.end();
        for (i, (before, behind)) in [(before, between), (between, behind)].into_iter().enumerate() {
            seen[2 * i].fetch_add(u64::from(before.0 < behind.0), Ordering::Relaxed);
            seen[2 * i + 1].fetch_add(u64::from(before.1 < behind.1), Ordering::Relaxed);
        }
        assert!(*commits.last_key_value().unwrap().0 > later);
        judge(&opened(&disk, "/copy/full"), &commits, full);
        assert_eq!(Database::restore(&["/copy/full", "/copy/part"], "/restored", options(&disk)).unwrap(), later);
        judge(&opened(&disk, "/restored"), &commits, later);
        judge(&db, &commits, CommitTs(u64::MAX));
    });
    if let Err(failure) = explored {
        panic!("{failure}");
    }
    let beside = beside.each_ref().map(|seeds| seeds.load(Ordering::Relaxed));
    assert!(
        beside.iter().all(|seeds| *seeds >= 6),
        "too few seeds with flushes and merges beside the full one and the increment: {beside:?}"
    );
}

/// Commits of a round.
const ROUND: u64 = 144;

/// A round of one writer from number `from` on, in runs, merged, and with two checkpoints behind it: what merges have freed could be used again.
fn rounds(db: &Database, index: &Index, from: u64) {
    for n in from..from + ROUND {
        write(db, std::slice::from_ref(index), 0, n).unwrap();
        if n % 12 == 11 {
            db.checkpoint().unwrap();
        }
    }
    db.settle().unwrap();
    (0..2).for_each(|_| db.checkpoint().unwrap());
}

/// While a backup stands between two pieces, every run that it is to copy is merged away, several times over. Guard: the pin, without which the places
/// of the runs' blocks are written over.
#[test]
fn runs_that_are_merged_away_during_a_backup_are_in_it() {
    for point in ["backup.begun", "backup.copying"] {
        simulate(move |sim| {
            let disk = disk();
            let db = Database::open("/db", small(&disk)).unwrap();
            let index = lsm(&db, "a");
            rounds(&db, &index, 0);
            let gate = sim.hold(point);
            let backup = {
                let db = db.clone();
                spawn("backup", move || db.checkpoint_to("/copy/of").unwrap())
            };
            gate.wait_reached();
            let (before, held) = (work(&index), db.stats().space.held_bytes);
            (1..6).for_each(|n| rounds(&db, &index, n * ROUND));
            let after = work(&index);
            let merged = after.1 - before.1;
            assert!(merged > 3 * index.stats().disk_bytes, "{merged} bytes merged of {}", index.stats().disk_bytes);
            let kept = db.stats().space.file_bytes;
            gate.open();
            backup.join().unwrap();
            // It is through: what it has held is used again.
            rounds(&db, &index, 6 * ROUND);
            rounds(&db, &index, 7 * ROUND);
            let now = db.stats().space.file_bytes;
            assert!(now <= kept, "{held} bytes at first, {kept} beside the backup, {now} behind it");
            let copy = opened(&disk, "/copy/of");
            assert!(all(&copy, &copy.index("a").unwrap()) == expected((0..6 * ROUND).map(|n| (0, n))));
            sound(&copy);
            // And it lives on.
            rounds(&copy, &copy.index("a").unwrap(), 6 * ROUND);
            sound(&copy);
        });
    }
}
