//! The rows of two tables change their structure over and over, beside writers of all kinds, snapshots, what is prepared, backups,
//! renames, builds, full disks and ends of the power (rules A1, A7, A16).
//!
//! Each writer has rows of its own, and with each transaction it counts one of them up. So whoever sees any state, however old or
//! copied, knows from that row which rows of the writer he should see.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::rows_anew_actors::*;
use crate::support::*;
use trefoil::{ALL, Database, Error, IndexOptions, Options, Snapshot, Structure, Table, Value};
use vfs::random::Rng;
use vfs::sim::{Config, DiskConfig, Handle, SimDisk, Simulation, Strategy};
use vfs::sync::Mutex;
use vfs::thread::JoinHandle;

pub const WRITERS: usize = 3;
/// Rows of a writer.
pub const ROWS: u64 = 60;
/// From one writer's first row to the next one's.
pub const APART: u64 = 1000;
/// The row that is counted up.
pub const COUNT: u64 = 998;
/// Where somebody may be when the power ends.
const POINTS: [&str; 12] = [
    "rows.switched",
    "rows.switched",
    "rows.given_up",
    "rows.there",
    "ddl.registered",
    "ddl.built",
    "build.public",
    "build.registered",
    "checkpoint.composed",
    "checkpoint.before_publish",
    "checkpoint.published",
    "pair.between",
];
const STRUCTURES: [Structure; 3] = [Structure::Btree, Structure::Betree, Structure::Lsm];

pub type Model = BTreeMap<u64, u32>;

/// What the writers have done so far; it outlives crashes.
#[derive(Default)]
pub struct Done {
    /// Of each the rows behind each of its transactions; the last may not be committed.
    pub all: [Mutex<Vec<Model>>; WRITERS],
    /// So many of them are known to be.
    pub known: [AtomicU64; WRITERS],
    /// Changes of rows that were made, and that were not.
    pub changes: [AtomicU64; 2],
}

impl Done {
    pub fn known(&self) -> [u64; WRITERS] {
        std::array::from_fn(|w| self.known[w].load(Ordering::SeqCst))
    }

    /// These rows are of one moment, not before `from`. Returns how far each writer was.
    pub fn check(&self, rows: &Model, from: [u64; WRITERS], what: &str) -> [u64; WRITERS] {
        std::array::from_fn(|w| {
            let first = w as u64 * APART;
            let own: Model = rows.range(first..first + APART).map(|(id, colour)| (*id, *colour)).collect();
            let count = own.get(&(first + COUNT)).copied().map_or(0, u64::from);
            assert!(count >= from[w], "{what}: writer {w} is at {count}, {} is known", from[w]);
            let all = self.all[w].lock();
            let wanted = all.get(count as usize).unwrap_or_else(|| panic!("{what}: writer {w} is at {count}"));
            let wrong: Vec<_> = (first..first + APART).filter(|id| own.get(id) != wanted.get(id)).collect();
            let of = |id: &u64| (*id, own.get(id).copied(), wanted.get(id).copied());
            assert!(
                wrong.is_empty(),
                "{what}: writer {w} at {count}: (row, found, wanted) {:?}",
                wrong.iter().map(of).collect::<Vec<_>>()
            );
            count
        })
    }
}

/// A life of the database.
pub struct Life {
    pub db: Database,
    pub disk: SimDisk,
    pub tables: [Table; 2],
    pub done: Arc<Done>,
    /// Errors are expected from now on.
    pub over: AtomicBool,
    pub seed: u64,
}

pub fn rows_of(snapshot: &Snapshot, tables: &[Table; 2]) -> Result<Model, Error> {
    let mut all = Model::new();
    for t in tables {
        let mut rows = snapshot.scan(t, ALL)?;
        while let Some(row) = rows.next()? {
            let (Value::U64(id), Value::U32(colour)) = (&row[0], &row[1]) else { panic!("{row:?}") };
            assert!(all.insert(*id, *colour).is_none(), "row {id} twice");
        }
    }
    Ok(all)
}

impl Life {
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub fn table(&self, id: u64) -> &Table {
        &self.tables[(id % 2) as usize]
    }

    /// False if it is over.
    pub fn may_fail<T>(&self, outcome: Result<T, Error>, what: &str) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(
                Error::LockTimeout { .. } | Error::Deadlock { .. } | Error::DiskFull { .. } | Error::LockBusy { .. },
            ) => None,
            Err(_) if self.is_over() => None,
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

pub fn settings(rng: &mut Rng) -> IndexOptions {
    let structure = STRUCTURES[rng.index(3)];
    let node_bytes = if rng.chance(0.3) { 1024 } else { 512 };
    IndexOptions { structure, node_bytes, ..small_nodes() }
}

fn start<F: FnOnce(&Life, Rng) + Send + 'static>(life: &Arc<Life>, name: &str, n: u64, body: F) -> JoinHandle<()> {
    let (life, rng) = (life.clone(), Rng::new(life.seed * 100 + n));
    spawn(name, move || body(&life, rng))
}

pub fn tables(db: &Database) -> [Table; 2] {
    ["t", "u"].map(|name| db.table(name).or_else(|_| db.table(&format!("{name}2"))).unwrap())
}

/// Behind a crash: what was prepared is decided, what is known is there, and everything is sound.
fn found(db: &Database, done: &Done, rng: &mut Rng) {
    let mut known = done.known();
    for set in db.prepared().unwrap() {
        let xid = String::from_utf8(set.xid.clone()).unwrap();
        let (w, count) =
            xid.split_once('-').map(|(w, n)| (w.parse::<usize>().unwrap(), n.parse::<u64>().unwrap())).unwrap();
        match rng.chance(0.5) {
            true => {
                db.commit_prepared(&set.xid).unwrap();
                known[w] = count;
            }
            false => db.rollback_prepared(&set.xid).unwrap(),
        }
    }
    let counts = done.check(&rows_of(&db.snapshot().unwrap(), &tables(db)).unwrap(), known, "behind a crash");
    for (w, count) in counts.into_iter().enumerate() {
        done.all[w].lock().truncate(count as usize + 1);
        done.known[w].store(count, Ordering::SeqCst);
    }
    tables(db).iter().for_each(|t| t.schema().indexes().iter().for_each(|index| agrees(db, t, index.name())));
    sound(db);
}

fn live(sim: &Handle, seed: u64, lives: u64, disk: &SimDisk, done: &Arc<Done>, rng: &mut Rng) -> SimDisk {
    let inline = if rng.chance(0.4) { 200 } else { 1 << 20 };
    let isolated = Options { inline_batch_bytes: inline, background: rng.chance(0.8), ..options(disk) };
    let tight = if rng.chance(0.3) { 448 << 10 } else { 8 << 20 };
    let isolated = Options { budget_bytes: tight, ..isolated };
    if rng.chance(0.3) && lives > 0 {
        let only = Options { read_only: true, ..isolated.clone() };
        let db = Database::open("/db", only).unwrap();
        done.check(&rows_of(&db.snapshot().unwrap(), &tables(&db)).unwrap(), done.known(), "only read");
    }
    let db = Database::open("/db", isolated).unwrap();
    if lives == 0 {
        for name in ["t", "u"] {
            let t = table_of(&db, name, settings(rng));
            if rng.chance(0.5) {
                db.create_table_indexes(&t, vec![by_colour()]).unwrap();
            }
        }
    }
    found(&db, done, rng);
    drop(db.drop_table("v"));
    let life = Arc::new(Life {
        tables: tables(&db),
        db: db.clone(),
        disk: disk.clone(),
        done: done.clone(),
        over: AtomicBool::new(false),
        seed: seed * 10 + lives,
    });
    let mut threads = Vec::new();
    for w in 0..WRITERS {
        threads.push(start(&life, "writer", w as u64, move |life, mut rng| write(life, w, &mut rng)));
    }
    for n in 0..2 {
        threads.push(start(&life, "changes", 10 + n as u64, move |life, mut rng| change(life, n, &mut rng)));
    }
    for n in 0..2 {
        threads.push(start(&life, "reader", 20 + n, |life, mut rng| look(life, &mut rng)));
    }
    threads.push(start(&life, "goer", 40, |life, mut rng| come_and_go(life, &mut rng)));
    threads.push(start(&life, "tender", 30, move |life, mut rng| tend(life, &mut rng, lives)));
    sleep(rng.below(8000));
    let gate = rng.chance(0.6).then(|| sim.hold_nth(POINTS[rng.index(POINTS.len())], rng.below(2)));
    for _ in 0..rng.below(400) {
        if gate.as_ref().is_some_and(|gate| gate.is_reached()) {
            sleep(rng.below(200));
            break;
        }
        sleep(10);
    }
    life.over.store(true, Ordering::SeqCst);
    let is_closed = rng.chance(0.15);
    if !is_closed {
        disk.power_cut(rng.u64());
    }
    if let Some(gate) = gate {
        gate.open();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    drop(life);
    if is_closed {
        disk.faults().clear();
        db.close().unwrap();
        return disk.clone();
    }
    drop(db);
    disk.reboot()
}

/// Three lives, and a look at what is left.
fn run(seed: u64) {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let mut config = Config { steps_max: 200_000_000, ..Config::default() };
    match seed % 4 {
        0 => config = config.bias("rows.", 0.5).bias("build.", 0.3).bias("ddl.", 0.3),
        1 => config = config.bias("checkpoint.", 0.5).bias("commit.", 0.2).bias("pair.", 0.5),
        2 => config = config.strategy(Strategy::Priorities { change: 0.01 }),
        _ => {}
    }
    Simulation::new(seed, config).run(move |sim| {
        let done = Arc::new(Done::default());
        done.all.iter().for_each(|all| all.lock().push(Model::new()));
        let mut disk = SimDisk::new(DiskConfig::seed(seed));
        for lives in 0..3 {
            disk = live(sim, seed, lives, &disk, &done, &mut rng);
        }
        let db = open(&disk);
        found(&db, &done, &mut rng);
        let (counts, changes) = (done.known(), &done.changes);
        println!("seed {seed}: {counts:?} commits, changes of rows made and not: {changes:?}");
    });
}

/// Guards: those of every step of the change, beside all that may come between two of them. Of other seeds with TREFOIL_ROWS_SEED, the first, and
/// TREFOIL_ROWS_SEEDS, how many.
#[test]
fn rows_change_over_and_over_beside_everything() {
    let of = |name: &str, or: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(or);
    let (from, count) = (of("TREFOIL_ROWS_SEED", 8), of("TREFOIL_ROWS_SEEDS", 8));
    (from..from + count).for_each(run);
}
