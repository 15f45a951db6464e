//! Counters (rule A21): added to blindly and side by side, read as sums, exactly once across power cuts. Every test says which
//! guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::support::*;
use trefoil::{
    ColumnType, Database, Durability, Error, Index, IndexOptions, LockMode, Locking, Options, Schema, Structure,
    Transaction, TransactionOptions,
};
use vfs::random::Rng;
use vfs::sim::{Config, Handle, SimDisk, Simulation};

const NOW: Locking = Locking::EXCLUSIVE.no_wait();

fn counters(db: &Database, name: &str) -> Index {
    db.create_index(name, IndexOptions { counters: true, ..small_nodes() }).unwrap()
}

fn number(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().unwrap())
}

fn read(tx: &Transaction, i: &Index, key: &[u8]) -> Option<i64> {
    tx.get(i, key).unwrap().map(|value| number(&value))
}

fn add(db: &Database, i: &Index, key: &[u8], delta: i64) {
    let mut tx = db.begin().unwrap();
    tx.add(i, key, delta).unwrap();
    tx.commit().unwrap();
}

fn sums(db: &Database, i: &Index) -> Vec<(Vec<u8>, i64)> {
    all(db, i).into_iter().map(|(key, value)| (key, number(&value))).collect()
}

/// Those who add do not wait for each other, and whoever reads under a lock, sets or deletes waits for all of them. Guards:
/// `Mode::conflicts`, the mode of `Transaction::add`.
#[test]
fn a21_who_adds_waits_for_nobody_who_adds() {
    simulate(|_| {
        let db = open(&disk());
        let i = counters(&db, "i");
        let (mut first, mut second) = (db.begin().unwrap(), db.begin().unwrap());
        first.add(&i, b"k", 1).unwrap();
        second.add(&i, b"k", 10).unwrap();
        first.add(&i, b"k", 100).unwrap();
        assert_eq!((read(&first, &i, b"k"), read(&second, &i, b"k")), (Some(101), Some(10)));
        let third = db.begin().unwrap();
        for busy in [third.get_locked(&i, b"k", NOW), third.get_locked(&i, b"k", Locking::SHARED.no_wait())] {
            assert!(matches!(busy, Err(Error::LockBusy { .. })), "{busy:?}");
        }
        drop(third);
        let (d, handle) = (db.clone(), i.clone());
        let setter = spawn("setter", move || {
            let mut tx = d.begin().unwrap();
            let before = tx.get_locked(&handle, b"k", LockMode::Exclusive).unwrap().map(|value| number(&value));
            tx.put(&handle, b"k", &1000i64.to_le_bytes()).unwrap();
            tx.add(&handle, b"k", 1).unwrap();
            tx.commit().unwrap();
            before
        });
        sleep(50);
        second.commit().unwrap();
        sleep(50);
        first.commit().unwrap();
        assert_eq!(setter.join().unwrap(), Some(111), "it has waited for both");
        assert_eq!(sums(&db, &i), [(b"k".to_vec(), 1001)]);
        sound(&db);
    });
}

/// Own writes of all kinds are seen on top of what is there, by point reads and by cursors of both directions. Guards:
/// `read_counters`; `OwnWrites::take` adds to what is below.
#[test]
fn own_writes_of_counters() {
    simulate(|_| {
        let db = open(&disk());
        let i = counters(&db, "i");
        (0..6u8).for_each(|n| add(&db, &i, &[n], i64::from(n)));
        let mut tx = db.begin().unwrap();
        tx.add(&i, &[1], 10).unwrap();
        tx.put(&i, &[2], &(-7i64).to_le_bytes()).unwrap();
        tx.add(&i, &[2], 1).unwrap();
        assert!(tx.delete(&i, &[3]).unwrap());
        assert!(tx.delete(&i, &[4]).unwrap());
        tx.add(&i, &[4], 40).unwrap();
        tx.add(&i, &[9], i64::MAX).unwrap();
        let kept = tx.savepoint();
        tx.add(&i, &[9], 1).unwrap();
        tx.add(&i, &[5], -5).unwrap();
        assert_eq!((read(&tx, &i, &[9]), read(&tx, &i, &[5])), (Some(i64::MIN), Some(0)));
        tx.rollback_to(kept).unwrap();
        let expect = [(0, 0), (1, 11), (2, -6), (4, 40), (5, 5), (9, i64::MAX)].map(|(key, sum)| (vec![key], sum));
        let seen = |tx: &Transaction| {
            let up = tx.range(&i, ..).unwrap().collect().unwrap();
            let mut down = tx.range_back(&i, ..).unwrap().collect().unwrap();
            down.reverse();
            assert_eq!(up, down);
            up.into_iter().map(|(key, value)| (key, number(&value))).collect::<Vec<_>>()
        };
        assert_eq!(seen(&tx), expect);
        for n in 0..10u8 {
            let there = expect.iter().find(|(key, _)| *key == [n]).map(|(_, sum)| *sum);
            assert_eq!(read(&tx, &i, &[n]), there, "key {n}");
            assert_eq!(tx.get_locked(&i, &[n], LockMode::Exclusive).unwrap().map(|value| number(&value)), there);
        }
        tx.commit().unwrap();
        assert_eq!(sums(&db, &i), expect);
        assert_eq!(seen(&db.begin().unwrap()), expect);
        sound(&db);
    });
}

/// What cannot be is refused, and nothing is changed.
#[test]
fn what_counters_refuse() {
    simulate(|_| {
        let db = open(&disk());
        let (i, plain) = (counters(&db, "i"), index(&db, "plain"));
        let mut tx = db.begin().unwrap();
        let invalid = |result: Result<(), Error>, word: &str| {
            let error = result.unwrap_err();
            assert!(matches!(&error, Error::InvalidArgument(why) if why.contains(word)), "{error}");
        };
        invalid(tx.put(&i, b"k", b"seven b"), "8 bytes");
        invalid(tx.add(&plain, b"k", 1), "plain");
        invalid(tx.get_locked(&i, b"k", LockMode::Increment).map(drop), "Transaction::add");
        invalid(tx.range_locked(&i, .., LockMode::Increment).and_then(|mut c| c.next().map(drop)), "Transaction::add");
        drop(tx);
        let schema = Schema::builder().column("id", ColumnType::U64).primary_key(&["id"]);
        let schema = schema.primary_options(IndexOptions { counters: true, ..small_nodes() }).build().unwrap();
        invalid(db.create_table("t", schema).map(drop), "plain indexes");
        assert!(all(&db, &i).is_empty() && all(&db, &plain).is_empty());
    });
}

/// Under snapshot isolation whoever only adds meets no conflict; whoever reads under a lock what others added to does, and has its
/// lock as it was before. Guard: `check_unchanged` is asked of a lock that was raised, and lowers it.
#[test]
fn adding_is_no_conflict_of_snapshots() {
    simulate(|_| {
        let db = open(&disk());
        let i = counters(&db, "i");
        add(&db, &i, b"k", 1);
        let isolated = TransactionOptions { snapshot_isolation: true, ..Default::default() };
        let mut tx = db.begin_with(isolated).unwrap();
        assert_eq!(read(&tx, &i, b"k"), Some(1));
        add(&db, &i, b"k", 10);
        tx.add(&i, b"k", 100).unwrap();
        for _ in 0..2 {
            let conflict = tx.get_locked(&i, b"k", LockMode::Exclusive);
            assert!(matches!(conflict, Err(Error::SnapshotConflict { .. })), "{conflict:?}");
        }
        let mut other = db.begin().unwrap();
        other.set_lock_timeout(std::time::Duration::ZERO);
        other.add(&i, b"k", 1000).expect("the lock is one to add with");
        other.commit().unwrap();
        assert_eq!(read(&tx, &i, b"k"), Some(101));
        tx.commit().unwrap();
        assert_eq!(sums(&db, &i), [(b"k".to_vec(), 1111)]);
    });
}

/// Prepared transactions that add to one counter hold it together, also after a power cut. Guard: `Held::retake` takes the lock of
/// one who adds in its mode.
#[test]
fn a21_prepared_transactions_share_a_counter() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let i = counters(&db, "i");
        add(&db, &i, b"k", 1);
        for (name, delta) in [(b"a", 10), (b"b", 100)] {
            let mut tx = db.begin().unwrap();
            tx.add(&i, b"k", delta).unwrap();
            tx.prepare(name).unwrap();
        }
        drop(i);
        let disk = cut(&disk, db);
        let db = open(&disk);
        let i = db.index("i").unwrap();
        assert!(matches!(db.begin().unwrap().get_locked(&i, b"k", NOW), Err(Error::LockBusy { .. })));
        add(&db, &i, b"k", 1000);
        db.commit_prepared(b"a").unwrap();
        db.rollback_prepared(b"b").unwrap();
        assert_eq!(sums(&db, &i), [(b"k".to_vec(), 1011)]);
        sound(&db);
    });
}

/// Who has looked at a counter under its lock, and then adds, keeps others away until its end, also if it is prepared and the machine
/// fails: found by seed 264 of the simulator.
#[test]
fn a21_a_prepared_transaction_that_looked_is_alone_after_a_restart() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let i = counters(&db, "i");
        add(&db, &i, b"k", 1);
        let mut tx = db.begin().unwrap();
        assert_eq!(tx.get_locked(&i, b"k", LockMode::Exclusive).unwrap().map(|value| number(&value)), Some(1));
        tx.add(&i, b"k", 10).unwrap();
        tx.prepare(b"a").unwrap();
        drop(i);
        let disk = cut(&disk, db);
        let db = open(&disk);
        let i = db.index("i").unwrap();
        let mut other = db.begin().unwrap();
        other.set_lock_timeout(std::time::Duration::ZERO);
        let beside = other.add(&i, b"k", 1000);
        assert!(matches!(beside, Err(Error::LockTimeout { .. })), "{beside:?}");
        drop(other);
        db.commit_prepared(b"a").unwrap();
        add(&db, &i, b"k", 1000);
        assert_eq!(sums(&db, &i), [(b"k".to_vec(), 1011)]);
        sound(&db);
    });
}

/// The same of one that adds first, and then looks: at the key, at a range, with any lock. What it took back is not added.
/// Guard: `settle_looked` before a transaction is prepared.
#[test]
fn a21_a_prepared_transaction_that_looked_later_is_alone_after_a_restart() {
    type Look = fn(&Transaction, &Index);
    let looks: [Look; 4] = [
        |tx, i| assert_eq!(tx.get_locked(i, b"k", LockMode::Exclusive).unwrap().map(|value| number(&value)), Some(11)),
        |tx, i| assert_eq!(tx.get_locked(i, b"k", LockMode::Shared).unwrap().map(|value| number(&value)), Some(11)),
        |tx, i| assert_eq!(tx.range_locked(i, .., LockMode::Exclusive).unwrap().collect().unwrap().len(), 2),
        |tx, i| assert_eq!(tx.range_back_locked(i, .., LockMode::Shared).unwrap().collect().unwrap().len(), 2),
    ];
    for look in looks {
        simulate(move |_| {
            let disk = disk();
            let db = open(&disk);
            let i = counters(&db, "i");
            add(&db, &i, b"k", 1);
            add(&db, &i, b"l", 1);
            let mut tx = db.begin().unwrap();
            tx.add(&i, b"k", 10).unwrap();
            let before = tx.savepoint();
            tx.add(&i, b"l", 10).unwrap();
            look(&tx, &i);
            tx.rollback_to(before).unwrap();
            look(&tx, &i);
            tx.prepare(b"a").unwrap();
            drop(i);
            let disk = cut(&disk, db);
            let db = open(&disk);
            let i = db.index("i").unwrap();
            let mut other = db.begin().unwrap();
            other.set_lock_timeout(std::time::Duration::ZERO);
            let beside = other.add(&i, b"k", 1000);
            assert!(matches!(beside, Err(Error::LockTimeout { .. })), "{beside:?}");
            other.add(&i, b"l", 100).unwrap();
            other.commit().unwrap();
            db.commit_prepared(b"a").unwrap();
            add(&db, &i, b"k", 1000);
            assert_eq!(sums(&db, &i), [(b"k".to_vec(), 1011), (b"l".to_vec(), 101)]);
            sound(&db);
        });
    }
}

/// Large transactions that add to the same counters: locks that nobody else has are folded, the others stay, and nothing is lost.
/// Guards: `mode_to_fold` raises, and only where nobody else has the key; what was written says nothing of counters.
#[test]
fn b1_large_transactions_that_add() {
    simulate(|_| {
        const KEYS: u32 = 3000;
        let disk = disk();
        let db = Database::open("/db", Options { budget_bytes: 1 << 20, ..options(&disk) }).unwrap();
        let i = counters(&db, "i");
        let mut small = db.begin().unwrap();
        small.add(&i, &7u32.to_be_bytes(), 1000).unwrap();
        let mut large = db.begin().unwrap();
        for round in 1..=2 {
            (0..KEYS).for_each(|n| large.add(&i, &(n * 1009 % KEYS).to_be_bytes(), round).unwrap());
        }
        let mut other = db.begin().unwrap();
        other.set_lock_timeout(std::time::Duration::ZERO);
        let alone = other.add(&i, &8u32.to_be_bytes(), 1);
        assert!(matches!(alone, Err(Error::LockTimeout { .. })), "it is folded: {alone:?}");
        small.add(&i, &7u32.to_be_bytes(), 1000).unwrap();
        drop(other);
        let (d, handle) = (db.clone(), i.clone());
        let setter = spawn("setter", move || {
            let tx = d.begin().unwrap();
            tx.get_locked(&handle, &7u32.to_be_bytes(), LockMode::Exclusive).unwrap().map(|value| number(&value))
        });
        sleep(20);
        small.commit().unwrap();
        sleep(20);
        large.commit().unwrap();
        assert_eq!(setter.join().unwrap(), Some(2003), "it has waited for both");
        let sums = sums(&db, &i);
        assert_eq!(sums.len(), KEYS as usize);
        let wrong = sums.iter().find(|(key, sum)| *sum != if **key == 7u32.to_be_bytes() { 2003 } else { 3 });
        assert_eq!(wrong, None);
        sound(&db);
    });
}

/// While a reader goes down from version to version, all of them are summed up and those that it passed last are dropped. Guard: a
/// version that is gone sends the reader back.
#[test]
fn a21_a_reader_starts_again_where_what_it_passed_is_gone() {
    simulate(|sim| {
        let db = open(&disk());
        let i = counters(&db, "i");
        // Within a millisecond: the floor stays below them.
        for delta in [1, 10, 100] {
            let mut tx = db.begin().unwrap();
            tx.add(&i, b"k", delta).unwrap();
            tx.commit_with(Durability::Buffered).unwrap();
        }
        let snapshot = db.snapshot().unwrap();
        let held = sim.hold_nth("counters.look", 1);
        let handle = i.clone();
        let reader = spawn("reader", move || snapshot.get(&handle, b"k").unwrap().map(|value| number(&value)));
        held.wait_reached();
        sleep(5);
        add(&db, &i, b"k", 1000);
        add(&db, &i, b"k", 1000);
        held.open();
        assert_eq!(reader.join().unwrap(), Some(111));
    });
}

/// The image of a leaf has what was added last, and lacks what was added before: that comes from the log, behind so much else
/// that the leaf is written, and so collected, in between. Nothing is summed up by then. Guard: `expect_late` in `recover`.
#[test]
fn a21_nothing_is_summed_up_while_the_log_is_replayed() {
    for structure in [Structure::Btree, Structure::Betree] {
        simulate(move |sim| {
            let disk = disk();
            let open = |disk: &SimDisk| {
                let options = Options { budget_bytes: 4 << 20, log_capacity_bytes: 32 << 20, ..options(disk) };
                Database::open("/db", options).unwrap()
            };
            let db = open(&disk);
            let of_rows = IndexOptions { structure: Structure::Btree, node_bytes: 8 << 10, ..IndexOptions::default() };
            let rows = db.create_index("rows", of_rows).unwrap();
            let i = db.create_index("i", IndexOptions { counters: true, structure, ..small_nodes() }).unwrap();
            (0..8).for_each(|part| fill(&db, &rows, 1000 * part, 1000 * part + 1000, 1000).unwrap());
            db.checkpoint().unwrap();
            // Each is in the log, those that are held are not in the index, and the others wait for them to show.
            let mut threads = Vec::new();
            let mut commits = |body: Box<dyn Fn(&Database) + Send>| {
                let db = db.clone();
                threads.push(spawn("client", move || body(&db)));
                sleep(20);
            };
            let adds = |key: &'static [u8], delta| {
                let i = i.clone();
                Box::new(move |db: &Database| add(db, &i, key, delta))
            };
            let gate = sim.hold("commit.logged");
            commits(adds(b"l", 1));
            gate.wait_reached();
            for part in (0..8).chain(0..8) {
                let rows = rows.clone();
                commits(Box::new(move |db| fill(db, &rows, 1000 * part, 1000 * part + 1000, 4).unwrap()));
            }
            let second = sim.hold("commit.logged");
            commits(adds(b"k", 1));
            second.wait_reached();
            commits(adds(b"k", 10));
            commits(adds(b"k", 100));
            db.checkpoint().unwrap();
            db.sync().unwrap();
            disk.power_cut(3);
            gate.open();
            second.open();
            threads.into_iter().for_each(|thread| drop(thread.join()));
            drop((rows, i, db));
            let db = open(&disk.reboot());
            let i = db.index("i").unwrap();
            assert!(db.stats().replayed_operations > 8000, "{}", db.stats().replayed_operations);
            assert_eq!(sums(&db, &i), [(b"k".to_vec(), 111), (b"l".to_vec(), 1)], "{structure:?}");
            sound(&db);
        });
    }
}

const THREADS: u64 = 3;
const KEYS: u64 = 12;

/// What one life of a database was told.
#[derive(Default)]
struct Told {
    /// Commits of each thread that were acknowledged.
    acknowledged: [AtomicI64; THREADS as usize],
    stop: AtomicBool,
}

/// Moves amounts between counters, and counts its commits in one of its own.
fn client(db: &Database, i: &Index, me: u64, told: &Told, rng: &mut Rng) {
    while !told.stop.load(Ordering::Relaxed) {
        let mut tx = db.begin().unwrap();
        let (from, to, amount) = (rng.below(KEYS), rng.below(KEYS), rng.below(100) as i64);
        let moved = (|| {
            if rng.chance(0.1) {
                // What it reads under a lock it may set.
                let now = tx.get_locked(i, &from.to_be_bytes(), LockMode::Exclusive)?.map_or(0, |value| number(&value));
                tx.put(i, &from.to_be_bytes(), &(now - amount).to_le_bytes())?;
            } else if rng.chance(0.1) {
                let now = tx.get_locked(i, &from.to_be_bytes(), LockMode::Exclusive)?.map_or(0, |value| number(&value));
                tx.delete(i, &from.to_be_bytes())?;
                tx.add(i, &from.to_be_bytes(), now - amount)?;
            } else {
                tx.add(i, &from.to_be_bytes(), -amount)?;
            }
            tx.add(i, &to.to_be_bytes(), amount)?;
            tx.add(i, &(1000 + me).to_be_bytes(), 1)
        })();
        let moved = moved.and_then(|()| tx.commit_with(Durability::Sync));
        match moved {
            Ok(_) => drop(told.acknowledged[me as usize].fetch_add(1, Ordering::Relaxed)),
            Err(Error::Deadlock { .. } | Error::LockTimeout { .. }) => {}
            Err(error) => {
                assert!(told.stop.load(Ordering::Relaxed), "{error}");
                return;
            }
        }
    }
}

/// The moved amounts add up to nothing at every moment, by whichever way they are read.
fn check_moment(db: &Database, i: &Index) -> bool {
    let Ok(snapshot) = db.snapshot() else { return false };
    let of_key = |key: u64| snapshot.get(i, &key.to_be_bytes()).map(|value| value.map_or(0, |value| number(&value)));
    let Ok(points) = (0..KEYS).map(of_key).collect::<Result<Vec<_>, _>>() else { return false };
    vfs::thread::sleep(std::time::Duration::from_micros(300));
    let Ok(scanned) = snapshot.range(i, ..1000u64.to_be_bytes().as_slice()).and_then(|cursor| cursor.collect()) else {
        return false;
    };
    assert_eq!(points.iter().sum::<i64>(), 0, "{points:?}");
    for (key, value) in &scanned {
        let key = u64::from_be_bytes(key[..].try_into().unwrap());
        assert_eq!(points[key as usize], number(value), "key {key} at {}", snapshot.ts());
    }
    assert_eq!(scanned.iter().map(|(_, value)| number(value)).sum::<i64>(), 0);
    true
}

fn one_life(disk: &SimDisk, counted: &mut [i64; THREADS as usize], first: bool, seed: u64, rng: &mut Rng) -> SimDisk {
    let db = open(disk);
    if first {
        let structure = if seed.is_multiple_of(2) { Structure::Betree } else { Structure::Btree };
        let options = IndexOptions { counters: true, structure, ..small_nodes() };
        db.create_index("i", options).unwrap();
        // Others around, so that there are leaves to throw out.
        let i = db.index("i").unwrap();
        let mut tx = db.begin().unwrap();
        (2000..2300u64).for_each(|n| tx.put(&i, &n.to_be_bytes(), &1i64.to_le_bytes()).unwrap());
        tx.commit().unwrap();
    }
    let i = db.index("i").unwrap();
    let told = Arc::new(Told::default());
    let threads: Vec<_> = (0..THREADS)
        .map(|me| {
            let (db, i, told, mut rng) = (db.clone(), i.clone(), told.clone(), rng.fork());
            spawn("client", move || client(&db, &i, me, &told, &mut rng))
        })
        .collect();
    for _ in 0..4 + rng.below(6) {
        assert!(check_moment(&db, &i));
        if rng.chance(0.4) {
            db.checkpoint().unwrap();
        }
    }
    told.stop.store(true, Ordering::Relaxed);
    let disk = if rng.chance(0.7) {
        disk.power_cut(rng.below(1 << 20));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop((i, db));
        disk.reboot()
    } else {
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        db.close().unwrap();
        drop((i, db));
        disk.clone()
    };
    let db = open(&disk);
    let i = db.index("i").unwrap();
    assert!(check_moment(&db, &i));
    for (me, counted) in counted.iter_mut().enumerate() {
        let acknowledged = *counted + told.acknowledged[me].load(Ordering::Relaxed);
        let found = read(&db.begin().unwrap(), &i, &(1000 + me as u64).to_be_bytes()).unwrap_or(0);
        assert!((acknowledged..=acknowledged + 1).contains(&found), "thread {me}: {found} of {acknowledged}");
        *counted = found;
    }
    sound(&db);
    db.close().unwrap();
    disk
}

/// Transfers between counters on a lying disk: each moment adds up, and each commit counts once. Guards: the floor in
/// `Leaf::sum_up`, `Counters` looks again at what it passed.
#[test]
fn a21_each_addition_counts_once() {
    for seed in 0..24 {
        let history = move |sim: &Handle| {
            let (mut rng, mut counted) = (sim.rng(), [0; THREADS as usize]);
            let mut disk = disk();
            for life in 0..3 {
                disk = one_life(&disk, &mut counted, life == 0, seed, &mut rng);
            }
            counted.iter().sum::<i64>()
        };
        let config = Config { steps_max: 20_000_000, cores: 2, ..Config::default() };
        let commits = Simulation::new(seed, config).run(history).value;
        assert!(commits > 20, "seed {seed}: {commits} commits");
    }
}
