//! The threads of one life: writers, readers, definition changes, checkpoints.
//!
//! Every thread runs until its share is done or the database refuses. What it did goes into the shared history the
//! moment it knows, while no other thread of the simulation runs in between.

use std::sync::Arc;
use std::time::Duration;

use trefoil::{
    ALL, ColumnType, Database, Durability, Error, Index, IndexOptions, IndexSchema, Options, Schema, Table,
    Transaction, Value,
};
use vfs::random::Rng;
use vfs::sync::Mutex;

use crate::history::{Acknowledged, Commit, History, Map, Observation, Writes};

/// Plain indexes.
pub const PLAIN: usize = 2;
/// Distinct keys of each map: few, so that transactions meet.
const KEYS: u64 = 60;

/// Sizes of one run, drawn from its seed.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Node size in memory, in bytes.
    pub node_bytes: usize,
    /// Memory cap, in bytes.
    pub budget_bytes: u64,
    /// Batches above this become run files, in bytes.
    pub inline_batch_bytes: usize,
    /// Log replayed at a crash, at most: drives checkpoints.
    pub checkpoint_replay: Duration,
    /// Writers.
    pub writers: usize,
    /// Transactions of each.
    pub transactions: u64,
    /// Longest value, in bytes.
    pub value_bytes_max: u64,
}

impl Sizes {
    /// Drawn.
    #[must_use]
    pub fn draw(rng: &mut Rng) -> Self {
        Self {
            node_bytes: [512, 1024, 4096][rng.index(3)],
            budget_bytes: [256 << 10, 1 << 20, 8 << 20][rng.index(3)],
            inline_batch_bytes: [200, 2000, 1 << 20][rng.index(3)],
            checkpoint_replay: Duration::from_micros([50, 500, 30_000_000][rng.index(3)]),
            writers: 1 + rng.index(3),
            transactions: 5 + rng.below(25),
            value_bytes_max: [8, 60, 600][rng.index(3)],
        }
    }

    /// The options for a disk.
    #[must_use]
    pub fn options(&self, vfs: Arc<dyn vfs::Vfs>) -> Options {
        Options {
            vfs,
            budget_bytes: self.budget_bytes,
            log_capacity_bytes: 1 << 20,
            log_segment_bytes: 256 << 10,
            extent_bytes: 64 << 10,
            disk_reserve_bytes: 256 << 10,
            checkpoint_replay: self.checkpoint_replay,
            inline_batch_bytes: self.inline_batch_bytes,
            lock_timeout: Duration::from_millis(200),
            ..Options::default()
        }
    }

    fn index_options(&self) -> IndexOptions {
        IndexOptions { node_bytes: self.node_bytes, ..IndexOptions::default() }
    }
}

/// An open database and its handles.
#[derive(Clone)]
pub struct World {
    /// The database.
    pub db: Database,
    /// Plain indexes.
    pub plain: Vec<Index>,
    /// The table.
    pub table: Table,
    /// The journal.
    pub journal: Index,
    /// Sizes.
    pub sizes: Sizes,
}

impl World {
    /// Opens the database and makes what is not there yet.
    pub fn open(disk: Arc<dyn vfs::Vfs>, sizes: &Sizes) -> Result<Self, Error> {
        let db = Database::open("/db", sizes.options(disk))?;
        let options = sizes.index_options();
        let index = |name: &str| match db.index(name) {
            Err(Error::NotFound { .. }) => db.create_index(name, options),
            other => other,
        };
        let plain = (0..PLAIN).map(|n| index(&format!("plain{n}"))).collect::<Result<_, _>>()?;
        let journal = index("journal")?;
        let table = match db.table("rows") {
            Err(Error::NotFound { .. }) => {
                let schema = Schema::builder()
                    .column("id", ColumnType::U64)
                    .column("a", ColumnType::U32)
                    .column("b", ColumnType::Bytes)
                    .primary_key(&["id"])
                    .primary_options(options)
                    .index(IndexSchema::new("by_a", &["a"]).with_options(options))
                    .build()
                    .expect("a sound schema");
                db.create_table("rows", schema)?
            }
            other => other?,
        };
        Ok(Self { db, plain, table, journal, sizes: sizes.clone() })
    }

    /// All maps.
    pub fn maps(&self) -> impl Iterator<Item = Map> {
        (0..PLAIN).map(Map::Plain).chain([Map::Table, Map::Journal])
    }

    /// Everything in a map, read by a new transaction.
    #[must_use]
    pub fn all(&self, map: Map) -> Vec<(Vec<u8>, Vec<u8>)> {
        match map {
            Map::Plain(n) => entries(&self.db, &self.plain[n]),
            Map::Journal => entries(&self.db, &self.journal),
            Map::Table => {
                let snapshot = self.db.snapshot().expect("open");
                let mut rows = snapshot.scan(&self.table, ALL).expect("readable");
                let mut all = Vec::new();
                while let Some(row) = rows.next().expect("readable") {
                    all.push(flat(&row));
                }
                all
            }
        }
    }
}

/// Everything in a plain index.
#[must_use]
pub fn entries(db: &Database, index: &Index) -> Vec<(Vec<u8>, Vec<u8>)> {
    let snapshot = db.snapshot().expect("open");
    snapshot.range(index, ..).and_then(trefoil::Cursor::collect).expect("readable")
}

/// A row as the model holds it: key bytes to value bytes.
fn flat(row: &[Value<'_>]) -> (Vec<u8>, Vec<u8>) {
    let (Value::U64(id), Value::U32(a), Value::Bytes(b)) = (&row[0], &row[1], &row[2]) else {
        panic!("not a row of the table: {row:?}");
    };
    let mut value = a.to_be_bytes().to_vec();
    value.extend_from_slice(b);
    (id.to_be_bytes().to_vec(), value)
}

/// The history, shared by the threads of a life.
pub type Shared = Arc<Mutex<History>>;

/// True if the error ends the life of a thread: the disk is gone or the database refuses.
fn is_over(error: &Error) -> bool {
    matches!(error, Error::Poisoned { .. } | Error::CommitOutcomeUnknown { .. } | Error::Io { .. } | Error::Closed)
}

/// What a step of a thread came to.
enum Step {
    Done,
    Over,
}

fn step(result: Result<(), Error>) -> Step {
    match result {
        Ok(()) => Step::Done,
        Err(error) if is_over(&error) => Step::Over,
        Err(
            Error::Deadlock { .. }
            | Error::LockTimeout { .. }
            | Error::DiskFull { .. }
            | Error::DuplicateKey { .. }
            | Error::NotFound { .. }
            | Error::Limit { .. }
            | Error::Dropped { .. },
        ) => Step::Done,
        Err(error) => panic!("not an error of this workload: {error}"),
    }
}

/// A writer's life.
pub fn write(world: &World, history: &Shared, rng: &mut Rng) {
    for _ in 0..world.sizes.transactions {
        if let Step::Over = step(transaction(world, history, rng)) {
            return;
        }
    }
}

/// What a transaction under way has done.
#[derive(Default)]
struct Doing {
    writes: Writes,
    current_reads: Vec<(Map, Vec<u8>, Option<Vec<u8>>)>,
}

fn transaction(world: &World, history: &Shared, rng: &mut Rng) -> Result<(), Error> {
    let id = {
        let mut history = history.lock();
        history.next_id += 1;
        history.next_id
    };
    let mut tx = world.db.begin()?;
    let mut doing = Doing::default();
    let operations = if rng.chance(0.1) { 40 } else { 1 + rng.below(6) };
    for _ in 0..operations {
        if rng.chance(0.1) {
            // A part that is taken back. Locks taken in it stay, reads under them too.
            let (savepoint, before) = (tx.savepoint(), doing.writes.clone());
            operation(world, &mut tx, rng, &mut doing)?;
            tx.rollback_to(savepoint)?;
            doing.writes = before;
        } else {
            operation(world, &mut tx, rng, &mut doing)?;
        }
    }
    check_own(world, &tx, &doing)?;
    if rng.chance(0.1) {
        tx.rollback();
        return Ok(());
    }
    tx.put(&world.journal, &id.to_be_bytes(), b"")?;
    doing.writes.insert((Map::Journal, id.to_be_bytes().to_vec()), Some(Vec::new()));
    let (durability, acknowledged) = match rng.below(3) {
        0 => (Durability::Sync, Acknowledged::Synced),
        1 => (Durability::Write, Acknowledged::Written),
        _ => (Durability::Buffered, Acknowledged::Buffered),
    };
    let result = tx.commit_with(durability);
    let (ts, acknowledged) = match &result {
        Ok(ts) => (*ts, acknowledged),
        Err(Error::CommitOutcomeUnknown { ts, .. }) => (*ts, Acknowledged::Unknown),
        Err(error) => return Err(error.clone()),
    };
    let Doing { writes, current_reads } = doing;
    history.lock().commits.push(Commit { id, ts, writes, current_reads, acknowledged });
    result.map(|_| ())
}

fn value(rng: &mut Rng, max: u64) -> Vec<u8> {
    let n = rng.below(max) as usize;
    let byte = rng.u64() as u8;
    (0..n).map(|i| byte.wrapping_add(i as u8)).collect()
}

fn operation(world: &World, tx: &mut Transaction, rng: &mut Rng, doing: &mut Doing) -> Result<(), Error> {
    let key = rng.below(KEYS);
    let max = world.sizes.value_bytes_max;
    let n = rng.index(PLAIN);
    let (map, index, bytes) = (Map::Plain(n), &world.plain[n], key.to_be_bytes().to_vec());
    match rng.below(8) {
        0..=2 => {
            let value = value(rng, max);
            tx.put(index, &bytes, &value)?;
            doing.writes.insert((map, bytes), Some(value));
        }
        3 => {
            let there = tx.delete(index, &bytes)?;
            let own = doing.writes.get(&(map, bytes.clone()));
            assert!(own.is_none_or(|v| v.is_some() == there), "delete answers for the own write");
            if there {
                doing.writes.insert((map, bytes), None);
            }
        }
        4 => {
            let old = tx.get_for_update(index, &bytes)?;
            match doing.writes.get(&(map, bytes.clone())) {
                Some(own) => assert_eq!(*own, old, "a current read sees the own write"),
                None => doing.current_reads.push((map, bytes.clone(), old.clone())),
            }
            let mut value = old.unwrap_or_default();
            value.truncate(max as usize);
            value.push(rng.u64() as u8);
            tx.put(index, &bytes, &value)?;
            doing.writes.insert((map, bytes), Some(value));
        }
        5 => {
            let row = [Value::U64(key), Value::U32(rng.below(9) as u32), Value::Bytes(value(rng, max).into())];
            let flat = flat(&row);
            match tx.insert(&world.table, &row) {
                Ok(()) => drop(doing.writes.insert((Map::Table, flat.0), Some(flat.1))),
                Err(Error::DuplicateKey { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        6 => {
            let row = [Value::U64(key), Value::U32(rng.below(9) as u32), Value::Bytes(value(rng, max).into())];
            let flat = flat(&row);
            if tx.update(&world.table, &row)? {
                doing.writes.insert((Map::Table, flat.0), Some(flat.1));
            }
        }
        _ => {
            if tx.delete_row(&world.table, &[Value::U64(key)])? {
                doing.writes.insert((Map::Table, bytes), None);
            }
        }
    }
    Ok(())
}

/// A transaction sees its own writes.
fn check_own(world: &World, tx: &Transaction, doing: &Doing) -> Result<(), Error> {
    for ((map, key), expected) in &doing.writes {
        let found = match map {
            Map::Plain(n) => tx.get(&world.plain[*n], key)?,
            Map::Journal => continue,
            Map::Table => {
                let id = u64::from_be_bytes(key.as_slice().try_into().expect("eight bytes"));
                tx.get_row(&world.table, &[Value::U64(id)])?.map(|row| flat(&row).1)
            }
        };
        assert_eq!(found, *expected, "own write on {key:?} of {map:?}");
    }
    Ok(())
}

/// A reader's life: snapshots held for a while and read more than once.
pub fn read(world: &World, history: &Shared, rng: &mut Rng) {
    for _ in 0..world.sizes.transactions {
        if let Step::Over = step(observe(world, history, rng)) {
            return;
        }
    }
}

fn observe(world: &World, history: &Shared, rng: &mut Rng) -> Result<(), Error> {
    let snapshot = world.db.snapshot()?;
    for _ in 0..1 + rng.below(3) {
        let (a, b) = (rng.below(KEYS), rng.below(KEYS));
        let (low, high) = (a.min(b).to_be_bytes().to_vec(), (a.max(b) + 1).to_be_bytes().to_vec());
        let map = match rng.below(4) {
            0 => Map::Table,
            n => Map::Plain(n as usize % PLAIN),
        };
        let entries = match map {
            Map::Plain(n) => {
                let range = (std::ops::Bound::Included(low.as_slice()), std::ops::Bound::Excluded(high.as_slice()));
                if rng.chance(0.5) {
                    snapshot.range(&world.plain[n], range)?.collect()?
                } else {
                    let mut back = snapshot.range_back(&world.plain[n], range)?.collect()?;
                    back.reverse();
                    back
                }
            }
            Map::Journal | Map::Table => {
                let (from, to) = ([Value::U64(a.min(b))], [Value::U64(a.max(b))]);
                let range = (std::ops::Bound::Included(&from[..]), std::ops::Bound::Included(&to[..]));
                let mut rows = snapshot.scan(&world.table, range)?;
                let mut all = Vec::new();
                while let Some(row) = rows.next()? {
                    all.push(flat(&row));
                }
                all
            }
        };
        let ts = snapshot.ts();
        history.lock().observations.push(Observation { ts, map, low, high, entries });
        vfs::thread::sleep(Duration::from_micros(rng.below(3000)));
    }
    Ok(())
}

/// Definition changes, checkpoints and checks beside the others.
pub fn manage(world: &World, history: &Shared, rng: &mut Rng) {
    for _ in 0..3 {
        vfs::thread::sleep(Duration::from_micros(rng.below(5000)));
        let result = match rng.below(4) {
            0 => world.db.checkpoint(),
            1 => world.db.settle(),
            2 => create(world, history, rng),
            _ => drop_one(world, history, rng),
        };
        if let Step::Over = step(result) {
            return;
        }
    }
}

fn create(world: &World, history: &Shared, rng: &mut Rng) -> Result<(), Error> {
    let name = format!("extra{}", rng.below(4));
    if history.lock().extra.get(&name) == Some(&Some(true)) {
        return Ok(());
    }
    history.lock().extra.insert(name.clone(), None);
    let result = world.db.create_index(&name, world.sizes.index_options());
    definite(history, &name, result.map(|_| ()), true)
}

fn drop_one(world: &World, history: &Shared, rng: &mut Rng) -> Result<(), Error> {
    let name = format!("extra{}", rng.below(4));
    if history.lock().extra.get(&name) != Some(&Some(true)) {
        return Ok(());
    }
    history.lock().extra.insert(name.clone(), None);
    let result = world.db.drop_index(&name);
    definite(history, &name, result, false)
}

/// Notes what is certain after a definition change.
fn definite(history: &Shared, name: &str, result: Result<(), Error>, there: bool) -> Result<(), Error> {
    let state = match &result {
        Ok(()) => Some(there),
        Err(Error::DiskFull { .. }) => Some(!there),
        Err(_) => None,
    };
    history.lock().extra.insert(name.to_owned(), state);
    result
}
