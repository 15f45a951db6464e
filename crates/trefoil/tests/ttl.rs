//! Indexes whose versions expire, in a whole database: by whatever way they are read, behind crashes, with a clock that is set back, and the space that comes back.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use trefoil::{
    ColumnType, Database, Durability, Error, Index, IndexOptions, IndexSchema, LockMode, Options, Schema, Structure,
};
use vfs::fault::{Action, Class, Rule};
use vfs::sim::{Config, Handle, SimDisk, Simulation};

use crate::support::{all, cut, disk, get, open, options, put, simulate, sound};

const TTL: u64 = 64;
const DAY: i64 = 86_400;

fn expiring(ttl_seconds: u64) -> IndexOptions {
    trefoil::fuzzing::small_nodes();
    IndexOptions {
        structure: Structure::Lsm,
        node_bytes: 512,
        ttl_seconds: Some(ttl_seconds),
        ..IndexOptions::default()
    }
}

fn pass(seconds: u64) {
    vfs::thread::sleep(Duration::from_secs(seconds));
}

fn fill(db: &Database, index: &Index, keys: std::ops::Range<u32>) {
    for some in keys.collect::<Vec<_>>().chunks(50) {
        let mut tx = db.begin().unwrap();
        some.iter().for_each(|n| tx.put(index, &n.to_be_bytes(), &[*n as u8; 30]).unwrap());
        tx.commit().unwrap();
    }
}

fn stats(db: &Database) -> trefoil::IndexStats {
    db.stats().indexes.into_iter().find(|(name, _)| name == "sessions").unwrap().1
}

/// By every way of reading: rows are there before their time, and gone soon after; what an older snapshot has it keeps; whoever writes finds nothing.
#[test]
fn rows_expire_for_every_reader_and_not_before_their_time() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let index = db.create_index("sessions", expiring(TTL)).unwrap();
        fill(&db, &index, 0..200);
        db.checkpoint().unwrap();
        fill(&db, &index, 0..20);
        pass(TTL / 2);
        put(&db, &index, b"young", b"1", Durability::Sync).unwrap();
        pass(TTL / 2 - 4);
        let before = db.snapshot().unwrap();
        let mut repeatable = db.begin().unwrap();
        assert_eq!(all(&db, &index).len(), 201, "four seconds before their time");
        assert_eq!(repeatable.get(&index, &7u32.to_be_bytes()).unwrap(), Some(vec![7; 30]));
        pass(4 + TTL / 16);
        assert_eq!(all(&db, &index), [(b"young".to_vec(), b"1".to_vec())]);
        let tx = db.begin().unwrap();
        for n in [0u32, 7, 19, 20, 199] {
            assert_eq!(tx.get(&index, &n.to_be_bytes()).unwrap(), None);
            assert_eq!(tx.get_locked(&index, &n.to_be_bytes(), LockMode::Exclusive).unwrap(), None);
        }
        let back: Vec<_> = tx.range_back(&index, ..).unwrap().collect().unwrap();
        assert_eq!(back, [(b"young".to_vec(), b"1".to_vec())]);
        drop(tx);
        let mut tx = db.begin().unwrap();
        assert!(!tx.delete(&index, &7u32.to_be_bytes()).unwrap(), "there is nothing to delete");
        drop(tx);
        assert_eq!(before.range(&index, ..).unwrap().collect().unwrap().len(), 201, "a snapshot keeps its moment");
        assert_eq!(repeatable.get(&index, &8u32.to_be_bytes()).unwrap(), Some(vec![8; 30]));
        assert_eq!(repeatable.range(&index, ..).unwrap().collect().unwrap().len(), 201);
        repeatable.put(&index, &7u32.to_be_bytes(), b"again").unwrap();
        repeatable.commit().unwrap();
        drop(before);
        assert_eq!(get(&db, &index, &7u32.to_be_bytes()), Some(b"again".to_vec()), "it lives from its commit on");
        sound(&db);
        pass(TTL + TTL / 16);
        assert_eq!(all(&db, &index), []);
        db.close().unwrap();
    });
}

/// Nobody reads, and nobody deletes: the space of what has expired comes back by itself. Guards: `let_expired_go`; `expire` in the choice.
#[test]
fn the_space_of_what_has_expired_comes_back_by_itself() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let index = db.create_index("sessions", expiring(TTL)).unwrap();
        fill(&db, &index, 0..3000);
        db.settle().unwrap();
        let full = stats(&db);
        assert!(full.disk_bytes > 50_000 && full.ttl_seconds == TTL);
        pass(TTL + TTL / 16);
        let left = stats(&db);
        assert_eq!((left.disk_bytes, left.live_keys), (0, 0), "{left:?}");
        assert!(left.expired_dropped >= 3000 && left.expired_runs > 0);
        let live = db.stats().space.live_bytes;
        db.checkpoint().unwrap();
        assert!(db.stats().space.live_bytes < live.max(full.disk_bytes) / 2);
        // Nothing is left to expire: the clock stands still, and writes nothing.
        let log = db.stats().log.appended_bytes;
        pass(10 * TTL);
        assert_eq!(db.stats().log.appended_bytes, log);
        fill(&db, &index, 0..100);
        assert_eq!(all(&db, &index).len(), 100, "and goes on");
        pass(TTL - 4);
        assert_eq!(all(&db, &index).len(), 100);
        pass(4 + TTL / 16);
        assert_eq!(all(&db, &index).len(), 0);
    });
}

/// Behind a crash, a close, and a restored copy, each with the clock set back by a day. Guards: `Expiry::restore`; a tick goes by the moment of the one before.
#[test]
fn what_has_expired_stays_so_whatever_the_clock_says() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let index = db.create_index("sessions", expiring(TTL)).unwrap();
        fill(&db, &index, 0..100);
        // In no run: what a replay brings back.
        pass(TTL + TTL / 16);
        assert_eq!(all(&db, &index).len(), 0);
        fill(&db, &index, 200..210);
        drop(index);
        sim.shift_unix_time(-DAY);
        let disk = cut(&disk, db);
        let db = open(&disk);
        let index = db.index("sessions").unwrap();
        assert_eq!(all(&db, &index).len(), 10, "behind a crash");
        db.backup().to("/copy").unwrap();
        db.close().unwrap();
        drop((db, index));
        sim.shift_unix_time(-DAY);
        for path in ["/db", "/copy"] {
            let db = Database::open(path, options(&disk)).unwrap();
            let index = db.index("sessions").unwrap();
            assert_eq!(all(&db, &index).len(), 10, "{path}");
            // By itself the clock goes on.
            pass(TTL + TTL / 16);
            assert_eq!(all(&db, &index).len(), 0, "{path}");
            db.close().unwrap();
            drop((db, index));
            let read_only = Options { read_only: true, ..options(&disk) };
            let db = Database::open(path, read_only).unwrap();
            assert_eq!(all(&db, &db.index("sessions").unwrap()).len(), 0, "{path}, only read");
        }
    });
}

/// A snapshot between a tick's commit and whatever follows it. Guard: ticks are taken by `note` of `commit_catalog_noting`, not behind it.
#[test]
fn a_snapshot_taken_beside_a_tick_keeps_its_moment() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let index = db.create_index("sessions", expiring(TTL)).unwrap();
        fill(&db, &index, 0..100);
        pass(TTL - 8);
        let mut seen = 101;
        let mut gate = sim.hold("expiry.committed");
        while seen > 0 {
            gate.wait_reached();
            let snapshot = db.snapshot().unwrap();
            let read = || snapshot.range(&index, ..).unwrap().collect().unwrap().len();
            seen = read();
            // The next one follows at once.
            std::mem::replace(&mut gate, sim.hold("expiry.committed")).open();
            pass(1);
            assert_eq!(read(), seen);
        }
        gate.open();
        db.close().unwrap();
    });
}

/// While an earlier commit is applied a tick is not visible: who locks a row and who reads it find the same [A17]. Guard: `visible` in `Expiry::newest`.
#[test]
fn a_locking_read_is_not_ahead_of_the_reads_behind_it() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let index = db.create_index("sessions", expiring(TTL)).unwrap();
        fill(&db, &index, 0..3);
        pass(TTL - 4);
        let key = 1u32.to_be_bytes();
        let mut gate = sim.hold("expiry.committed");
        for n in 100u32.. {
            gate.wait_reached();
            let stop = sim.hold("commit.logged");
            let committer = {
                let (db, index) = (db.clone(), index.clone());
                crate::support::spawn("committer", move || fill(&db, &index, n..n + 1))
            };
            stop.wait_reached();
            std::mem::replace(&mut gate, sim.hold("expiry.committed")).open();
            crate::support::sleep(100);
            let tx = db.begin_with(trefoil::Isolation::ReadCommitted).unwrap();
            let locked = tx.get_locked(&index, &key, LockMode::Exclusive).unwrap();
            assert_eq!(tx.get(&index, &key).unwrap(), locked, "round {n}");
            drop(tx);
            stop.open();
            committer.join().unwrap();
            if get(&db, &index, &key).is_none() {
                break;
            }
        }
        gate.open();
        db.close().unwrap();
    });
}

/// More indexes than ticks fit into one record under a small budget. Guard: `INDEXES_PER_COMMIT`.
#[test]
fn however_many_indexes_expire_all_do() {
    simulate(|_| {
        let disk = disk();
        let small = Options { budget_bytes: 1 << 20, ..options(&disk) };
        let db = Database::open("/db", small).unwrap();
        let all_of: Vec<_> =
            (0..60).map(|n| db.create_index(&format!("sessions {n}"), expiring(TTL)).unwrap()).collect();
        for index in &all_of {
            put(&db, index, b"k", b"v", Durability::Sync).unwrap();
        }
        pass(TTL / 2);
        assert!(all_of.iter().all(|index| get(&db, index, b"k").is_some()));
        pass(TTL);
        assert!(all_of.iter().all(|index| get(&db, index, b"k").is_none()));
        db.close().unwrap();
    });
}

/// A row that is committed while the clock is read lives its time. Guard: the log's end is read before the clock.
#[test]
fn a_row_that_is_committed_beside_a_tick_lives_its_time() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let index = db.create_index("sessions", expiring(60)).unwrap();
        put(&db, &index, b"first", b"1", Durability::Sync).unwrap();
        let gate = sim.hold("expiry.log_end");
        gate.wait_reached();
        pass(20);
        put(&db, &index, b"second", b"1", Durability::Sync).unwrap();
        gate.open();
        pass(58);
        assert!(get(&db, &index, b"second").is_some());
        pass(6);
        assert_eq!(all(&db, &index), []);
        db.close().unwrap();
    });
}

/// What expires while nobody has the database open has expired when it is opened, before anybody reads. Guard: `keep_time_if_can`.
#[test]
fn time_passes_while_the_database_is_closed() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let index = db.create_index("sessions", expiring(TTL)).unwrap();
        fill(&db, &index, 0..100);
        db.close().unwrap();
        drop((db, index));
        pass(TTL + 1);
        let db = open(&disk);
        assert_eq!(all(&db, &db.index("sessions").unwrap()).len(), 0);
        db.close().unwrap();
    });
}

/// Recovery writes nothing before the checkpoint that ends it, so a crash within it leaves what was there. Guard: `recovering` in `keep_time`.
#[test]
fn the_clock_stands_still_while_the_log_is_replayed() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let index = db.create_index("sessions", expiring(TTL)).unwrap();
        fill(&db, &index, 0..100);
        pass(2 * TTL);
        fill(&db, &index, 0..10);
        drop(index);
        let disk = cut(&disk, db);
        pass(TTL);
        let gate = sim.hold("expiry.log_end");
        disk.faults().add(Rule::new(Action::Eio).on(Class::Write).path("MANIFEST").forever());
        let there = disk.clone();
        let opener = vfs::thread::spawn("opener", move || Database::open("/db", options(&there)).is_err()).unwrap();
        pass(10);
        assert!(opener.is_finished(), "it ticks");
        assert!(opener.join().unwrap(), "it could not be opened");
        gate.open();
        disk.faults().clear();
        let db = open(&disk);
        assert_eq!(all(&db, &db.index("sessions").unwrap()).len(), 10, "no tick has come behind them");
        sound(&db);
        db.close().unwrap();
    });
}

/// What was written since the last tick counts as written when the database was closed, not when it is opened again. Guard: the tick at close, due or not.
#[test]
fn what_was_written_last_expires_by_when_it_was_closed() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let index = db.create_index("sessions", expiring(TTL)).unwrap();
        fill(&db, &index, 0..100);
        pass(3);
        put(&db, &index, b"late", b"1", Durability::Sync).unwrap();
        db.close().unwrap();
        drop((db, index));
        pass(TTL + 1);
        let db = open(&disk);
        assert_eq!(all(&db, &db.index("sessions").unwrap()), []);
        db.close().unwrap();
    });
}

/// A disk that is full of what expires has room again when it has. Guard: `keep_time_if_can` comes before whatever fails on a full disk.
#[test]
fn a_full_disk_gets_its_space_back_from_what_expires() {
    simulate(|_| {
        let disk = SimDisk::new(vfs::sim::DiskConfig { capacity_bytes: 6 << 20, ..vfs::sim::DiskConfig::seed(7) });
        let db = open(&disk);
        let index = db.create_index("sessions", expiring(TTL)).unwrap();
        let beside = db.create_index("beside", IndexOptions { ttl_seconds: None, ..expiring(TTL) }).unwrap();
        let mut rng = vfs::random::Rng::new(3);
        let mut write = |index: &Index, n: u32| {
            let value: Vec<u8> = (0..400).map(|_| rng.below(256) as u8).collect();
            let mut tx = db.begin()?;
            (0..20).try_for_each(|i| tx.put(index, &(20 * n + i).to_be_bytes(), &value))?;
            tx.commit().map(drop)
        };
        let mut n = 0;
        let full = loop {
            n += 1;
            if let Err(error) = write(if n % 8 == 0 { &beside } else { &index }, n) {
                break error;
            }
            assert!(n < 5000, "it never was full");
        };
        assert!(matches!(full, Error::DiskFull { .. }), "{full}");
        pass(TTL + TTL / 4);
        assert_eq!(all(&db, &index).len(), 0, "the clock stands: {:?}", stats(&db));
        let begun = std::iter::repeat_with(|| {
            pass(1);
            write(&index, 1_000_000).is_ok()
        });
        assert!(begun.take(60).any(|done| done), "nothing came back: {:?}", stats(&db));
        assert!(stats(&db).expired_dropped > 0, "{:?}", stats(&db));
        sound(&db);
    });
}

fn refused<T>(result: Result<T, Error>, with: &str) {
    match result {
        Err(Error::Unsupported(why) | Error::InvalidArgument(why)) => assert!(why.contains(with), "{why}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was not refused"),
    }
}

/// What would be half of it is refused by name: rows and their entries in secondary indexes would not expire together.
#[test]
fn tables_and_other_structures_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default()).unwrap();
    for structure in [Structure::Auto, Structure::Btree, Structure::Betree] {
        let options = IndexOptions { structure, ttl_seconds: Some(60), ..IndexOptions::default() };
        refused(options.check(), "Structure::Lsm");
        refused(db.create_index("sessions", options), "Structure::Lsm");
    }
    let lsm = IndexOptions { structure: Structure::Lsm, ttl_seconds: Some(60), ..IndexOptions::default() };
    for seconds in [0, IndexOptions::TTL_SECONDS_MAX + 1] {
        refused(db.create_index("sessions", IndexOptions { ttl_seconds: Some(seconds), ..lsm }), "ttl_seconds");
    }
    let table = |primary, secondary| {
        let schema = Schema::builder().column("id", ColumnType::U64).column("at", ColumnType::U64);
        let by_at = IndexSchema::new("by_at", &["at"]).with_options(secondary);
        db.create_table("rows", schema.primary_key(&["id"]).primary_options(primary).index(by_at).build().unwrap())
    };
    let plain = IndexOptions { ttl_seconds: None, ..lsm };
    refused(table(lsm, plain), "of a table");
    refused(table(plain, lsm), "of a table");
    assert_eq!(db.names(), (Vec::<String>::new(), Vec::<String>::new()), "nothing is left of it");
    db.create_index("sessions", lsm).unwrap();
    drop(db);
    let db = Database::open(dir.path(), Options::default()).unwrap();
    let index = db.index("sessions").unwrap();
    assert_eq!(index.stats().ttl_seconds, 60, "it comes back");
    db.drop_index("sessions").unwrap();
}

/// What writers did: of each key the numbers of its values, with the time at which each was committed at the latest, and at the earliest.
type Written = BTreeMap<u32, Vec<(u64, Duration, Duration)>>;

struct Judge {
    written: Written,
    /// Values that somebody missed who should have seen them, but for their time.
    gone: BTreeSet<u64>,
    ttl: Duration,
    /// When the clock was set back, or the database was not open, what is gone may be late by that.
    slack: Duration,
}

impl Judge {
    /// Everything is read at once; the newest value of each key is there or has expired, and what was gone is gone.
    fn look(&mut self, sim: &Handle, db: &Database, index: &Index) {
        let began = sim.elapsed();
        let found: BTreeMap<u32, u64> = all(db, index)
            .into_iter()
            .map(|(k, v)| (u32::from_be_bytes(k.try_into().unwrap()), u64::from_be_bytes(v.try_into().unwrap())))
            .collect();
        let ended = sim.elapsed();
        for (key, versions) in &self.written {
            let Some((number, earliest, latest)) = versions.last().copied() else { continue };
            match found.get(key) {
                // 0 is a delete.
                None if number != 0 => {
                    assert!(earliest + self.ttl <= ended, "{key}: {number} is gone before its time");
                    self.gone.insert(number);
                }
                Some(seen) => {
                    assert_eq!(*seen, number, "{key}");
                    assert!(!self.gone.contains(seen), "{key}: {number} is back");
                    let late = latest + self.ttl + self.slack + self.ttl / 16 + Duration::from_secs(2);
                    assert!(began <= late, "{key}: {number} of {latest:?} is still there at {began:?}");
                }
                None => {}
            }
        }
        assert!(found.keys().all(|key| self.written.contains_key(key)));
    }
}

/// Random writes, deletes, pauses, checkpoints, crashes, and a clock that is set back now and then: nothing is gone before its time, all is soon after, and
/// nothing comes back.
fn history(sim: &Handle) {
    let mut rng = sim.rng();
    let mut disk = SimDisk::new(vfs::sim::DiskConfig::seed(sim.seed()));
    let ttl = [4, 15, 60][rng.index(3)];
    let mut judge =
        Judge { written: Written::new(), gone: BTreeSet::new(), ttl: Duration::from_secs(ttl), slack: Duration::ZERO };
    let mut number = 0;
    for life in 0..4 {
        let db = Database::open("/db", options(&disk)).unwrap();
        let index = if life == 0 { db.create_index("sessions", expiring(ttl)) } else { db.index("sessions") }.unwrap();
        for _ in 0..30 {
            judge.look(sim, &db, &index);
            let mut tx = db.begin().unwrap();
            let mut writes = BTreeMap::new();
            for _ in 0..1 + rng.index(12) {
                let key = rng.below(60) as u32;
                if rng.chance(0.2) {
                    tx.delete(&index, &key.to_be_bytes()).unwrap();
                    writes.insert(key, 0);
                } else {
                    number += 1;
                    tx.put(&index, &key.to_be_bytes(), &u64::to_be_bytes(number)).unwrap();
                    writes.insert(key, number);
                }
            }
            let earliest = sim.elapsed();
            tx.commit().unwrap();
            let latest = sim.elapsed();
            for (key, number) in writes {
                judge.written.entry(key).or_default().push((number, earliest, latest));
            }
            match rng.index(10) {
                0 => db.checkpoint().unwrap(),
                1 => db.settle().unwrap(),
                2 => sim.shift_unix_time(-(rng.below(3 * ttl) as i64)),
                _ => {}
            }
            vfs::thread::sleep(Duration::from_millis(rng.below(ttl * 100)));
        }
        sound(&db);
        drop(index);
        if rng.chance(0.5) {
            db.close().unwrap();
            drop(db);
        } else {
            disk = cut(&disk, db);
        }
        // With the clock that may have been set back nobody knows how long that was.
        let closed = rng.below(ttl);
        pass(closed);
        judge.slack += Duration::from_secs(closed) + Duration::from_secs(ttl) / 16;
    }
}

#[test]
fn random_histories_of_what_expires() {
    let seeds: u64 = std::env::var("TREFOIL_HISTORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    for seed in 0..seeds {
        Simulation::new(seed, Config { steps_max: 40_000_000, ..Config::default() }).run(history);
    }
}
