//! Histories of the engine, in the simulator.
//!
//! One seed is one level, and up to three lives of one database. In each a few threads run transactions that append, write
//! and read, by key and by range, plainly and under locks, with savepoints, in two phases, some of them larger than memory;
//! the power may be cut at any write or sync. What they saw is checked life by life: what a life begins with is what the one
//! before has left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use trefoil::{
    Cursor, Database, Durability, Error, Index, IndexOptions, Isolation, LockMode, Options, Structure, Transaction,
    TransactionOptions,
};
use vfs::fault::{Action, Class, Rule};
use vfs::random::Rng;
use vfs::sim::{Config, DiskConfig, Failure, Handle, SimDisk, Simulation};
use vfs::sync::Mutex;

use crate::check::{self, Counts};
use crate::record::{Id, Key, Level, Life, Op, Outcome, State, Txn};

/// Few, so that transactions meet.
const KEYS: u8 = 5;
const THREADS: usize = 4;
const LIVES: usize = 3;
/// A budget of 1 MiB: so much ballast makes a transaction spill and fold its locks.
const BALLAST: (u8, usize) = (48, 8 << 10);

/// Isolation of a run and what that promises.
const LEVELS: [(Isolation, bool, Level); 5] = [
    (Isolation::ReadUncommitted, false, Level::ReadCommitted),
    (Isolation::ReadCommitted, false, Level::ReadCommitted),
    (Isolation::RepeatableRead, false, Level::RepeatableRead),
    (Isolation::RepeatableRead, true, Level::Snapshot),
    (Isolation::Serializable, false, Level::Serializable),
];

/// Runs a seed; the sum over its lives.
///
/// # Errors
/// The failure of the simulation, a wrong history among them.
pub fn run(seed: u64) -> Result<Counts, Box<Failure>> {
    let config = Config { steps_max: 20_000_000, quiet: true, ..Config::default() }
        .bias("commit.", 0.2)
        .bias("locks.", 0.2)
        .bias("locking.", 0.2)
        .bias("prepare", 0.2);
    let counts = Arc::new(Mutex::new(Counts::default()));
    let all = counts.clone();
    Simulation::new(seed, config).try_run(move |handle| lives(handle, seed, &all))?;
    let counts = *counts.lock();
    Ok(counts)
}

/// An open database.
#[derive(Clone)]
struct World {
    db: Database,
    disk: SimDisk,
    lists: Index,
    registers: Index,
    ballast: Index,
    options: TransactionOptions,
    shared: Arc<Shared>,
}

/// Drawn from a stream of its own: everything else of a seed is what it was before there were two structures.
fn structure(seed: u64) -> Structure {
    const STRUCTURES: u64 = 0x0b37_7ee5;
    const LSMS_FROM: u64 = 2100;
    const LSMS: u64 = 0x0015_b7ee;
    if seed >= LSMS_FROM && Rng::new(seed ^ LSMS).chance(0.5) {
        return Structure::Lsm;
    }
    if Rng::new(seed ^ STRUCTURES).chance(0.5) { Structure::Betree } else { Structure::Btree }
}

#[derive(Default)]
struct Shared {
    txns: Mutex<Vec<Txn>>,
    clock: AtomicU64,
    ids: AtomicU64,
}

fn lives(handle: &Handle, seed: u64, counts: &Mutex<Counts>) {
    let mut rng = handle.rng();
    let (isolation, snapshot_isolation, level) = LEVELS[(seed % LEVELS.len() as u64) as usize];
    let options =
        TransactionOptions { isolation: Some(isolation), snapshot_isolation, ..TransactionOptions::default() };
    let mut disk = SimDisk::new(DiskConfig::seed(seed));
    let mut before = State::default();
    let structure = structure(seed);
    let shared = Arc::new(Shared::default());
    for _ in 0..LIVES {
        let world = open(&disk, structure, &options, &shared);
        assert_eq!(world.state(), before, "what was found at first is what is there now");
        if rng.chance(0.6) {
            let class = if rng.chance(0.5) { Class::Sync } else { Class::Write };
            disk.faults().add(Rule::new(Action::PowerCut(rng.u64())).on(class).nth(rng.below(150)));
        }
        let threads: Vec<_> = (0..THREADS)
            .map(|n| {
                let (world, mut rng) = (world.clone(), rng.fork());
                vfs::thread::spawn("client", move || client(&world, n as u8, &mut rng)).expect("a thread starts")
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let crashed = disk.is_off();
        disk.faults().clear();
        if !crashed && rng.chance(0.5) {
            world.db.close().expect("closes");
        }
        drop(world);
        if disk.is_off() {
            disk = disk.reboot();
        }
        let world = open(&disk, structure, &options, &shared);
        let txns = std::mem::take(&mut *shared.txns.lock());
        let life = Life { before: before.clone(), txns, after: world.state(), crashed };
        before = decide(&world, &life, &mut rng);
        match check::check(&life, level) {
            Ok(found) => {
                let mut all = counts.lock();
                all.committed += found.committed;
                all.edges += found.edges;
                all.cycles += found.cycles;
            }
            Err(wrong) => {
                if std::env::var_os("TREFOIL_SIM_VERBOSE").is_some() {
                    life.txns.iter().enumerate().for_each(|(n, txn)| eprintln!("{}: {txn:?}", n + 1));
                    eprintln!("before {:?}\nafter {:?}, crashed: {crashed}", life.before, life.after);
                }
                panic!("{structure:?}, {isolation:?}, snapshot isolation {snapshot_isolation}: {wrong}")
            }
        }
        world.db.close().expect("closes");
    }
}

/// What was found prepared is decided: all of it is there then, or nothing, behind what else was found.
fn decide(world: &World, life: &Life, rng: &mut Rng) -> State {
    let mut expect = life.after.clone();
    for waiting in world.db.prepared().expect("open") {
        if rng.chance(0.5) {
            world.db.rollback_prepared(&waiting.xid).expect("what is prepared can be rolled back");
            continue;
        }
        world.db.commit_prepared(&waiting.xid).expect("what is prepared can be committed");
        let of = |txn: &&Txn| txn.xid == Some(ids(&waiting.xid)[0]);
        for op in &life.txns.iter().find(of).expect("somebody prepared it").ops {
            match op {
                Op::Append { key, id, .. } => expect.lists.entry(*key).or_default().push(*id),
                Op::Write { key, id } => drop(expect.registers.insert(*key, *id)),
                Op::Read { .. } | Op::Get { .. } => {}
            }
        }
    }
    assert_eq!(world.state(), expect, "what was prepared, and only what was, can be decided");
    expect
}

fn open(disk: &SimDisk, structure: Structure, options: &TransactionOptions, shared: &Arc<Shared>) -> World {
    trefoil::fuzzing::small_nodes();
    let sizes = Options {
        vfs: Arc::new(disk.clone()),
        budget_bytes: 1 << 20,
        log_capacity_bytes: 1 << 20,
        log_segment_bytes: 256 << 10,
        extent_bytes: 64 << 10,
        disk_reserve_bytes: 256 << 10,
        lock_timeout: Duration::from_millis(200),
        ..Options::default()
    };
    let db = Database::open("/db", sizes).expect("opens");
    let index = |name: &str| match db.index(name) {
        Ok(index) => index,
        Err(_) => {
            let options = IndexOptions { structure, node_bytes: 512, ..IndexOptions::default() };
            db.create_index(name, options).expect("created")
        }
    };
    let (lists, registers, ballast) = (index("lists"), index("registers"), index("ballast"));
    World { disk: disk.clone(), lists, registers, ballast, options: *options, shared: shared.clone(), db }
}

impl World {
    fn state(&self) -> State {
        let tx = self.db.begin().expect("begins");
        let all = |index| tx.range(index, ..).and_then(Cursor::collect).expect("reads");
        State {
            lists: all(&self.lists).into_iter().map(|(key, list)| (key[0], ids(&list))).collect(),
            registers: all(&self.registers).into_iter().map(|(key, id)| (key[0], ids(&id)[0])).collect(),
        }
    }

    fn now(&self) -> u64 {
        self.shared.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn new_id(&self) -> Id {
        self.shared.ids.fetch_add(1, Ordering::SeqCst) as Id + 1
    }
}

fn ids(bytes: &[u8]) -> Vec<Id> {
    bytes.chunks_exact(4).map(|id| Id::from_le_bytes(id.try_into().expect("four bytes"))).collect()
}

fn client(world: &World, number: u8, rng: &mut Rng) {
    for _ in 0..6 + rng.below(10) {
        if world.disk.is_off() {
            return;
        }
        let began = world.now();
        let mut done = Doing { ops: Vec::new(), undone: Vec::new(), plain: true };
        let xid = rng.chance(0.2).then(|| world.new_id());
        let outcome = match world.db.begin_with(world.options) {
            Ok(mut tx) => match body(world, &mut tx, &mut done, number, rng) {
                Ok(()) => end(world, tx, xid, rng),
                Err(error) => {
                    expected(world, &error);
                    Outcome::RolledBack
                }
            },
            Err(error) => {
                expected(world, &error);
                return;
            }
        };
        let Doing { ops, undone, plain } = done;
        world.shared.txns.lock().push(Txn { ops, undone, outcome, xid, began, ended: world.now(), plain });
    }
}

/// Errors that transactions meet, or that the power cut brings.
fn expected(world: &World, error: &Error) {
    let meets = matches!(
        error,
        Error::Deadlock { .. } | Error::LockTimeout { .. } | Error::LockBusy { .. } | Error::SnapshotConflict { .. }
    );
    assert!(meets || world.disk.is_off(), "{error}");
}

struct Doing {
    ops: Vec<Op>,
    undone: Vec<Id>,
    plain: bool,
}

fn body(world: &World, tx: &mut Transaction, done: &mut Doing, number: u8, rng: &mut Rng) -> Result<(), Error> {
    let reads_only = rng.chance(0.3);
    let (ops, large) = (1 + rng.below(5), !reads_only && rng.chance(0.1));
    for n in 0..ops {
        if large && n == ops / 2 {
            // What was written so far is spilled, and its locks are folded.
            (0..BALLAST.0).try_for_each(|n| tx.put(&world.ballast, &[number, n], &vec![n; BALLAST.1]))?;
        }
        let key = rng.below(KEYS.into()) as Key;
        match if reads_only { rng.below(4) } else { rng.below(10) } {
            0 | 1 => {
                let list = tx.get(&world.lists, &[key])?.unwrap_or_default();
                done.ops.push(Op::Read { key, list: ids(&list) });
            }
            2 => {
                let id = tx.get(&world.registers, &[key])?.map(|id| ids(&id)[0]);
                done.ops.push(Op::Get { key, id });
            }
            3 => all(tx.range(&world.lists, ..)?.collect()?, done),
            4 => {
                done.plain = false;
                let list = tx.get_locked(&world.lists, &[key], LockMode::Shared)?.unwrap_or_default();
                done.ops.push(Op::Read { key, list: ids(&list) });
            }
            5 => {
                done.plain = false;
                all(tx.range_locked(&world.lists, .., LockMode::Shared)?.collect()?, done);
            }
            6 => {
                let id = world.new_id();
                tx.put(&world.registers, &[key], &id.to_le_bytes())?;
                done.ops.push(Op::Write { key, id });
            }
            7 => {
                let kept = tx.savepoint();
                let (id, other) = (world.new_id(), world.new_id());
                done.undone.extend([id, other]);
                append(world, tx, key, id)?;
                tx.put(&world.registers, &[key], &other.to_le_bytes())?;
                tx.rollback_to(kept)?;
                done.plain = false;
            }
            _ => {
                let id = world.new_id();
                let before = append(world, tx, key, id)?;
                done.ops.push(Op::Append { key, id, before });
            }
        }
    }
    Ok(())
}

/// A read of all lists: those that are not there are empty.
fn all(found: Vec<(Vec<u8>, Vec<u8>)>, done: &mut Doing) {
    let mut lists: BTreeMap<Key, Vec<Id>> = (0..KEYS).map(|key| (key, Vec::new())).collect();
    lists.extend(found.into_iter().map(|(key, list)| (key[0], ids(&list))));
    done.ops.extend(lists.into_iter().map(|(key, list)| Op::Read { key, list }));
}

fn append(world: &World, tx: &mut Transaction, key: Key, id: Id) -> Result<Vec<Id>, Error> {
    let mut list = tx.get_locked(&world.lists, &[key], LockMode::Exclusive)?.unwrap_or_default();
    let before = ids(&list);
    list.extend_from_slice(&id.to_le_bytes());
    tx.put(&world.lists, &[key], &list)?;
    Ok(before)
}

fn end(world: &World, tx: Transaction, xid: Option<Id>, rng: &mut Rng) -> Outcome {
    if rng.chance(0.1) {
        tx.rollback();
        return Outcome::RolledBack;
    }
    let ended = if let Some(xid) = xid.map(Id::to_le_bytes) {
        tx.prepare(&xid).and_then(|()| {
            if rng.chance(0.2) {
                return world.db.rollback_prepared(&xid).map(|()| None);
            }
            world.db.commit_prepared(&xid).map(Some)
        })
    } else {
        tx.commit_with(Durability::Sync).map(Some)
    };
    match ended {
        Ok(Some(ts)) => Outcome::Committed(ts.0),
        Ok(None) => Outcome::RolledBack,
        Err(Error::CommitOutcomeUnknown { .. }) => Outcome::Unknown,
        Err(_) if world.disk.is_off() => Outcome::Unknown,
        Err(error) => {
            expected(world, &error);
            Outcome::RolledBack
        }
    }
}
