//! Chains of backups, each made beside writers, checkpoints, flushes and merges, deleted ranges, transactions larger than memory, indexes
//! and tables that come, change their structure and go, and space that is given back: to full disks, cancelled, cut short by the end of
//! the power or of the database, and built on in its next life. Each is restored, and holds exactly the commits of its moment.
//!
//! A writer's transactions follow from the seed and their number, which each puts into every index: who finds the number knows the rest.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::*;
use trefoil::{
    ALL, CommitTs, Compression, Database, Durability, Error, Index, IndexOptions, Options, Structure, Table, Value, Vfs,
};
use vfs::fault::{Action, Rule};
use vfs::random::Rng;
use vfs::sim::{Config, DiskConfig, Handle, SimDisk, Simulation};
use vfs::sync::Mutex;

const WRITERS: usize = 2;
/// Of a writer.
const KEYS: u64 = 120;
/// From one writer's first row to the next one's; the last row of a writer has the number.
const APART: u64 = 1000;
const STRUCTURES: [(&str, Structure); 3] =
    [("btree", Structure::Btree), ("betree", Structure::Betree), ("lsm", Structure::Lsm)];
/// Where somebody may be when the power ends.
const POINTS: [&str; 8] = [
    "backup.begun",
    "backup.copying",
    "backup.copying",
    "backup.log_copied",
    "checkpoint.before_publish",
    "checkpoint.published",
    "io.rename",
    "space.giving_back",
];

/// From this seed on values are large, and the memory for them is little.
const LARGE: u64 = 1000;

/// What a transaction does.
struct Work {
    deleted: Option<Range<u64>>,
    entries: Vec<(u64, Option<Vec<u8>>)>,
}

fn work(seed: u64, writer: usize, n: u64) -> Work {
    let mut rng = Rng::new(seed << 40 | (writer as u64) << 32 | n);
    let deleted = rng.chance(0.06).then(|| {
        let from = rng.below(KEYS);
        from..from + 1 + rng.below(20)
    });
    let (count, words) = match (rng.below(40), seed < LARGE) {
        (0, true) => (300, 250),
        (1..=5, true) => (40, 60),
        (_, true) => (8, 40),
        (0, false) => (60, 4000),
        (1..=5, false) => (3, 60_000),
        (6..=9, false) => (1, 200_000),
        (_, false) => (8, 400),
    };
    let entries = (0..count).map(|_| {
        let key = rng.below(KEYS);
        let value = (!rng.chance(0.2)).then(|| (0..rng.below(words)).flat_map(|_| rng.u64().to_le_bytes()).collect());
        (key, value)
    });
    Work { deleted, entries: entries.collect() }
}

fn key(writer: usize, n: u64) -> Vec<u8> {
    format!("{writer}/{n:03}").into_bytes()
}

fn number_key(writer: usize) -> Vec<u8> {
    format!("{writer}/number").into_bytes()
}

fn id(writer: usize, n: u64) -> u64 {
    writer as u64 * APART + n
}

/// What there is of a writer.
#[derive(Default, PartialEq)]
struct State {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    rows: BTreeMap<u64, u32>,
}

/// Behind transaction `n`.
fn state(seed: u64, writer: usize, n: u64) -> State {
    let mut state = State::default();
    for n in 1..=n {
        let work = work(seed, writer, n);
        for n in work.deleted.into_iter().flatten() {
            state.entries.remove(&key(writer, n));
        }
        for (n, value) in work.entries {
            match value {
                Some(value) => {
                    state.rows.insert(id(writer, n), value.len() as u32);
                    state.entries.insert(key(writer, n), value);
                }
                None => {
                    state.rows.remove(&id(writer, n));
                    state.entries.remove(&key(writer, n));
                }
            }
        }
        state.entries.insert(number_key(writer), n.to_be_bytes().to_vec());
        state.rows.insert(id(writer, APART - 1), n as u32);
    }
    state
}

/// A backup with those that it builds on, from the full one on.
#[derive(Clone)]
struct Made {
    dirs: Vec<String>,
    at: CommitTs,
}

/// What outlives crashes.
struct Done {
    seed: u64,
    /// Of each writer: when its transactions were committed, as far as it was told.
    told: [Mutex<BTreeMap<u64, CommitTs>>; WRITERS],
    made: Mutex<Vec<Made>>,
    restored: AtomicU64,
}

impl Done {
    /// All that a database has is of one moment, and of this one if it is known. Returns the numbers of the writers.
    fn check(&self, db: &Database, at: Option<CommitTs>, what: &str) -> Result<[u64; WRITERS], Error> {
        let snapshot = db.snapshot()?;
        let t = db.table("t").unwrap();
        let mut rows = BTreeMap::new();
        let mut cursor = snapshot.scan(&t, ALL)?;
        while let Some(row) = cursor.next()? {
            let (Value::U64(id), Value::U32(colour)) = (&row[0], &row[1]) else { panic!("{row:?}") };
            rows.insert(*id, *colour);
        }
        drop(cursor);
        let mut entries = Vec::new();
        for (name, _) in STRUCTURES {
            let index = db.index(name).unwrap();
            entries.push(snapshot.range(&index, ..)?.collect()?.into_iter().collect::<BTreeMap<_, _>>());
        }
        let numbers = std::array::from_fn(|w| {
            let number = rows.get(&id(w, APART - 1)).map_or(0, |n| u64::from(*n));
            let wanted = state(self.seed, w, number);
            let own: BTreeMap<_, _> = rows.range(id(w, 0)..id(w + 1, 0)).map(|(id, colour)| (*id, *colour)).collect();
            assert!(own == wanted.rows, "{what}: rows of writer {w} at {number}");
            for (entries, (name, _)) in entries.iter().zip(STRUCTURES) {
                let own = entries.iter().filter(|(key, _)| key[0] == b'0' + w as u8);
                assert!(own.eq(&wanted.entries), "{what}: {name} of writer {w} at {number}");
            }
            for (n, ts) in self.told[w].lock().iter().filter(|_| at.is_some()) {
                assert_eq!(Some(*ts) <= at, *n <= number, "{what}, of {at:?}: transaction {n} of writer {w} at {ts}");
            }
            number
        });
        let indexes: Vec<_> = t.schema().indexes().iter().map(|index| index.name().to_owned()).collect();
        indexes.iter().try_for_each(|index| try_agrees(db, &t, index))?;
        try_sound(db)?;
        Ok(numbers)
    }

    fn restore(&self, disk: &SimDisk, made: &Made, to: &str) -> Result<(), Error> {
        let what = format!("{:?}", made.dirs);
        let budget_bytes = 2 << 20;
        let at = Database::restore(&made.dirs, to, Options { budget_bytes, ..options(disk) })?;
        assert_eq!(at, made.at, "{what}");
        let copy = Database::open(to, Options { create: false, ..options(disk) })?;
        self.check(&copy, Some(at), &what)?;
        self.restored.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// A life of the database.
struct Life {
    db: Database,
    disk: SimDisk,
    number: u64,
    indexes: [Index; 3],
    table: Table,
    done: Arc<Done>,
    over: AtomicBool,
}

impl Life {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// False if it is over.
    fn goes_on<T>(&self, outcome: Result<T, Error>, what: &str) -> bool {
        match outcome {
            Err(_) if self.is_over() => false,
            Ok(_) | Err(Error::LockTimeout { .. } | Error::Deadlock { .. }) => true,
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

fn rest(rng: &mut Rng, most: u64) {
    if rng.chance(0.6) {
        sleep(rng.below(most));
    }
}

fn settings(rng: &mut Rng, structure: Structure) -> IndexOptions {
    let node_bytes = if structure == Structure::Lsm { 4096 } else { 512 };
    let compression = if rng.chance(0.5) { Compression::None } else { Compression::Lz4 };
    IndexOptions { structure, node_bytes, compression, ..small_nodes() }
}

fn write_one(life: &Life, writer: usize, n: u64) -> Result<CommitTs, Error> {
    let work = work(life.done.seed, writer, n);
    let mut tx = life.db.begin()?;
    if let Some(deleted) = work.deleted {
        let (low, high) = (key(writer, deleted.start), key(writer, deleted.end));
        life.indexes.iter().try_for_each(|index| tx.delete_range(index, low.as_slice()..high.as_slice()))?;
    }
    for (n, value) in &work.entries {
        let row_id = id(writer, *n);
        match value {
            Some(value) => {
                life.indexes.iter().try_for_each(|index| tx.put(index, &key(writer, *n), value))?;
                tx.replace(&life.table, &[Value::U64(row_id), Value::U32(value.len() as u32)])?;
            }
            None => {
                life.indexes.iter().try_for_each(|index| tx.delete(index, &key(writer, *n)).map(drop))?;
                tx.delete_row(&life.table, &[Value::U64(row_id)])?;
            }
        }
    }
    let number = n.to_be_bytes();
    life.indexes.iter().try_for_each(|index| tx.put(index, &number_key(writer), &number))?;
    tx.replace(&life.table, &[Value::U64(id(writer, APART - 1)), Value::U32(n as u32)])?;
    tx.commit_with(if n.is_multiple_of(3) { Durability::Sync } else { Durability::Buffered })
}

fn write(life: &Life, writer: usize, mut n: u64, rng: &mut Rng) {
    while !life.is_over() {
        let outcome = write_one(life, writer, n);
        if let Ok(ts) = outcome {
            life.done.told[writer].lock().insert(n, ts);
            n += 1;
        }
        if !life.goes_on(outcome, "a transaction") {
            return;
        }
        rest(rng, 4);
    }
}

/// Checkpoints and upkeep.
fn tend(life: &Life, rng: &mut Rng) {
    while !life.is_over() {
        let outcome = if rng.chance(0.7) { life.db.checkpoint() } else { life.db.settle() };
        if !life.goes_on(outcome, "upkeep") {
            return;
        }
        rest(rng, 20);
    }
}

/// Indexes and tables that come and go, and change.
fn change(life: &Life, rng: &mut Rng) {
    while !life.is_over() {
        let outcome = change_one(life, rng);
        if !life.goes_on(outcome, "a change") {
            return;
        }
        rest(rng, 60);
    }
}

fn change_one(life: &Life, rng: &mut Rng) -> Result<(), Error> {
    let (db, t) = (&life.db, &life.table);
    let structure = STRUCTURES[rng.index(3)].1;
    match rng.below(5) {
        0 => {
            if db.index("passing").is_err() {
                let passing = db.create_index("passing", settings(rng, structure))?;
                for from in (0..600).step_by(100) {
                    fill(db, &passing, from, from + 100, 150)?;
                }
            }
            let kept = rng.chance(0.5).then(|| db.snapshot()).transpose()?;
            rest(rng, 30);
            db.drop_index("passing")?;
            drop(kept);
            Ok(())
        }
        1 => {
            if db.table("emptied").is_err() {
                db.create_table("emptied", t.schema())?;
            }
            let emptied = db.truncate_table("emptied")?;
            insert(db, &emptied, 0..200)
        }
        2 if t.schema().indexes().is_empty() => {
            db.create_table_indexes(t, vec![by_colour().with_options(settings(rng, structure))])
        }
        2 => db.drop_table_index(t, "by_colour"),
        3 if !t.schema().indexes().is_empty() => db.rebuild_index(t, "by_colour"),
        _ => db.change_table_rows(t, settings(rng, structure)),
    }
}

/// Full backups, and increments to any that there are.
fn copy(life: &Life, rng: &mut Rng) {
    let mut n = 0;
    while !life.is_over() && n < 5 {
        rest(rng, 60);
        let made = life.done.made.lock().clone();
        let base = (!made.is_empty() && rng.chance(0.75)).then(|| match rng.chance(0.7) {
            true => made[made.len() - 1].clone(),
            false => made[rng.index(made.len())].clone(),
        });
        let dir = format!("/copy-{}/{n}", life.number);
        let Some(at) = copy_one(life, base.as_ref(), &dir, rng) else { continue };
        let dirs = base.into_iter().flat_map(|base| base.dirs).chain([dir]).collect();
        let new = Made { dirs, at };
        life.done.made.lock().push(new.clone());
        if rng.chance(0.3) {
            let restored = life.done.restore(&life.disk, &new, &format!("/restored-{}/beside-{n}", life.number));
            if !life.goes_on(restored, "a restore") {
                return;
            }
        }
        n += 1;
    }
}

/// One backup, perhaps one that fails or is cancelled: nothing is left of it then.
fn copy_one(life: &Life, base: Option<&Made>, dir: &str, rng: &mut Rng) -> Option<CommitTs> {
    let left = Cell::new(if rng.chance(0.2) { rng.below(40) } else { u64::MAX });
    let look = |_| {
        left.set(left.get().saturating_sub(1));
        if left.get() == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let backup = life.db.backup().watch(&look);
    let backup = match rng.below(3) {
        0 => backup,
        1 => backup.rate_bytes(4 << 20),
        _ => backup.rate_bytes(u64::MAX),
    };
    let fired = life.disk.faults().fired();
    if left.get() == u64::MAX && rng.chance(0.3) {
        let action = if rng.chance(0.5) { Action::Eio } else { Action::StorageFull };
        life.disk.faults().add(Rule::new(action).path(dir).nth(rng.below(80)));
    }
    let outcome = match base {
        Some(base) => backup.since(base.dirs.last().unwrap()).to(dir),
        None => backup.to(dir),
    };
    let has_failed = life.disk.faults().fired() > fired;
    life.disk.faults().clear();
    if life.is_over() {
        return outcome.ok();
    }
    let error = match outcome {
        Ok(at) => return Some(at),
        Err(error) => error,
    };
    assert!(has_failed || (left.get() == 0 && matches!(error, Error::Cancelled)), "{dir}: {error}");
    for below in ["", "/wal", "/runs"] {
        let names = life.disk.list(Path::new(&format!("{dir}{below}"))).unwrap_or_default();
        let is_place = |name: &String| below.is_empty() && (name == "wal" || name == "runs");
        assert!(names.iter().all(is_place) || life.is_over(), "{dir}{below} behind {error}: {names:?}");
    }
    None
}

/// Behind a life: what was told to be made shows its moment, what was not is no database, or is whole.
fn look_at_copies(disk: &SimDisk, done: &Done, lives: u64) {
    let made = done.made.lock().clone();
    for (n, one) in made.iter().enumerate() {
        done.restore(disk, one, &format!("/restored-{lives}/{n}")).unwrap();
    }
    let read_only = Options { create: false, read_only: true, ..options(disk) };
    for n in 0..6 {
        let dir = format!("/copy-{lives}/{n}");
        let known = made.iter().find(|made| made.dirs.last() == Some(&dir));
        match Database::open(&dir, read_only.clone()) {
            Ok(copy) => drop(done.check(&copy, known.map(|made| made.at), &dir).unwrap()),
            Err(Error::NotADatabase { .. }) => assert!(known.is_none_or(|made| made.dirs.len() > 1), "{dir}"),
            Err(error) => panic!("{dir}: {error}"),
        }
    }
}

fn open_life(disk: &SimDisk, done: &Arc<Done>, number: u64, rng: &mut Rng) -> (Arc<Life>, [u64; WRITERS]) {
    let inline_batch_bytes = if rng.chance(0.5) { 600 } else { 1 << 20 };
    let (budget_bytes, extent_bytes) = match done.seed {
        ..LARGE => (2 << 20, options(disk).extent_bytes),
        seed => ([1 << 20, 2 << 20, 256 << 10][seed as usize % 3], [4 << 20, 64 << 10][seed as usize / 3 % 2]),
    };
    let disk_reserve_bytes = options(disk).disk_reserve_bytes.max(extent_bytes);
    let small = Options { budget_bytes, extent_bytes, disk_reserve_bytes, inline_batch_bytes, ..options(disk) };
    let db = Database::open("/db", small).unwrap();
    if number == 0 {
        for (name, structure) in STRUCTURES {
            db.create_index(name, settings(rng, structure)).unwrap();
        }
        table_of(&db, "t", settings(rng, Structure::Btree));
    }
    let numbers = done.check(&db, None, "the database").unwrap();
    for (told, number) in done.told.iter().zip(numbers) {
        told.lock().retain(|n, _| *n <= number);
    }
    let indexes = STRUCTURES.map(|(name, _)| db.index(name).unwrap());
    let (table, disk, done) = (db.table("t").unwrap(), disk.clone(), done.clone());
    (Arc::new(Life { db, disk, number, indexes, table, done, over: AtomicBool::new(false) }), numbers)
}

/// What a thread does of a life.
type Part = Box<dyn FnOnce(&Life, &mut Rng) + Send>;

fn live(sim: &Handle, disk: &SimDisk, done: &Arc<Done>, number: u64, rng: &mut Rng) -> SimDisk {
    let (life, numbers) = open_life(disk, done, number, rng);
    let mut threads = Vec::new();
    let mut start = |name: &str, body: Part| {
        let (life, mut rng) = (life.clone(), Rng::new(rng.u64()));
        threads.push(spawn(name, move || body(&life, &mut rng)));
    };
    for (w, number) in numbers.into_iter().enumerate() {
        start("writer", Box::new(move |life, rng| write(life, w, number + 1, rng)));
    }
    start("tender", Box::new(tend));
    start("changes", Box::new(change));
    start("copies", Box::new(copy));
    sleep(rng.below(600));
    let gate = rng.chance(0.7).then(|| sim.hold_nth(POINTS[rng.index(POINTS.len())], rng.below(6)));
    for _ in 0..40 {
        if gate.as_ref().is_some_and(|gate| gate.is_reached()) {
            sleep(rng.below(20));
            break;
        }
        sleep(rng.below(20));
    }
    life.over.store(true, Ordering::SeqCst);
    let is_closed = rng.chance(0.25);
    if !is_closed {
        disk.power_cut(rng.u64());
    }
    drop(gate);
    if is_closed {
        life.db.close().unwrap();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    drop(life);
    if is_closed { disk.clone() } else { disk.reboot() }
}

/// Three lives, and a look at what is left behind each.
fn run(seed: u64) -> (usize, u64) {
    let mut rng = Rng::new(seed ^ 0xbac0);
    let report = Simulation::new(seed, Config { steps_max: 400_000_000, ..Config::default() }).run(move |sim| {
        let done =
            Arc::new(Done { seed, told: Default::default(), made: Mutex::default(), restored: AtomicU64::new(0) });
        let mut disk = SimDisk::new(DiskConfig::seed(seed));
        for lives in 0..3 {
            disk = live(sim, &disk, &done, lives, &mut rng);
            look_at_copies(&disk, &done, lives);
        }
        let db = open(&disk);
        let numbers = done.check(&db, None, "in the end").unwrap();
        let made: Vec<usize> = done.made.lock().iter().map(|made| made.dirs.len()).collect();
        println!("seed {seed}: {numbers:?} transactions, chains of {made:?}");
        (made.into_iter().filter(|links| *links > 1).count(), done.restored.load(Ordering::Relaxed))
    });
    report.value
}

/// Guards: those of every step of a backup, beside all that may come between two of them. Of other seeds with TREFOIL_BACKUP_SEED, the first, and
/// TREFOIL_BACKUP_SEEDS, how many.
#[test]
fn backups_beside_everything_show_their_moments() {
    let of = |name: &str, or: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(or);
    let (from, count) = (of("TREFOIL_BACKUP_SEED", 0), of("TREFOIL_BACKUP_SEEDS", 2));
    let seen: Vec<_> = (from..from + count).map(run).collect();
    let with_increments = seen.iter().filter(|(increments, restored)| *increments > 0 && *restored > 0).count() as u64;
    assert!(with_increments * 2 >= count, "too few seeds with increments that were restored: {seen:?}");
}

/// The same with values of up to a megabyte and a half under 256 KiB: an opening ended with a `Limit`, whenever it was tried. Guard: a piece of a run
/// that there is no memory for is cut, after it was waited for.
#[test]
fn a_chain_of_large_values_is_opened_with_little_memory() {
    let (increments, restored) = run(LARGE + 16);
    assert!(increments > 0 && restored > 0);
}
