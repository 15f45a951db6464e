//! What the tests of the rules share: a small database on a simulated disk, and a look at everything in it.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

pub mod collation;
pub mod damage;
pub mod surgery;

use std::sync::Arc;
use std::time::Duration;

use trefoil::{
    ALL, ColumnType, Cursor, Database, Durability, Error, Index, IndexOptions, IndexSchema, Options, Schema, Structure,
    Table, Value,
};
use vfs::fault::{Action, Rule};
use vfs::sim::{Config, DiskConfig, Handle, SimDisk, Simulation};
use vfs::thread::JoinHandle;

/// Keys and values.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Runs a named schedule.
pub fn simulate(body: impl FnOnce(&Handle) + Send + 'static) {
    simulate_by(1, body);
}

/// In the simulation's schedule of this seed.
pub fn simulate_by(seed: u64, body: impl FnOnce(&Handle) + Send + 'static) {
    run_boxed(seed, 20_000_000, Box::new(body));
}

/// The same of what waits much.
pub fn simulate_long_by(seed: u64, body: impl FnOnce(&Handle) + Send + 'static) {
    run_boxed(seed, 200_000_000, Box::new(body));
}

/// Compiled once, and not for each test.
fn run_boxed(seed: u64, steps_max: u64, body: Box<dyn FnOnce(&Handle) + Send>) {
    Simulation::new(seed, Config { steps_max, ..Config::default() }).run(body);
}

/// A disk.
pub fn disk() -> SimDisk {
    SimDisk::new(DiskConfig::seed(7))
}

/// Small sizes.
pub fn options(disk: &SimDisk) -> Options {
    Options {
        vfs: Arc::new(disk.clone()),
        budget_bytes: 8 << 20,
        log_capacity_bytes: 1 << 20,
        log_segment_bytes: 256 << 10,
        extent_bytes: 64 << 10,
        disk_reserve_bytes: 256 << 10,
        lock_timeout: Duration::from_millis(500),
        ..Options::default()
    }
}

/// Opens the database of a disk.
pub fn open(disk: &SimDisk) -> Database {
    Database::open("/db", options(disk)).unwrap()
}

/// Cuts the power, drops the handles and gives the disk as found afterwards.
pub fn cut(disk: &SimDisk, db: Database) -> SimDisk {
    disk.power_cut(3);
    drop(db);
    disk.reboot()
}

/// B-trees of small nodes: a few hundred entries make a tree. Schedules that are about leaves need to know which leaf a commit
/// meets; see [`small_nodes_of`] for both structures.
pub fn small_nodes() -> IndexOptions {
    trefoil::fuzzing::small_nodes();
    IndexOptions { structure: Structure::Btree, node_bytes: 512, ..IndexOptions::default() }
}

/// The same; by the seed B-trees or Bε-trees, two and two.
pub fn small_nodes_of(seed: u64) -> IndexOptions {
    let structure = if seed / 2 % 2 == 1 { Structure::Betree } else { Structure::Btree };
    IndexOptions { structure, ..small_nodes() }
}

/// A new index.
pub fn index(db: &Database, name: &str) -> Index {
    db.create_index(name, small_nodes()).unwrap()
}

/// Commits one entry.
pub fn put(db: &Database, index: &Index, key: &[u8], value: &[u8], durability: Durability) -> Result<(), Error> {
    let mut tx = db.begin()?;
    tx.put(index, key, value)?;
    tx.commit_with(durability).map(|_| ())
}

/// Commits `from..to` as keys, with values of `len` bytes.
pub fn fill(db: &Database, index: &Index, from: u32, to: u32, len: usize) -> Result<(), Error> {
    let mut tx = db.begin()?;
    for n in from..to {
        tx.put(index, &n.to_be_bytes(), &vec![n as u8; len])?;
    }
    tx.commit().map(|_| ())
}

/// What a new transaction reads.
pub fn get(db: &Database, index: &Index, key: &[u8]) -> Option<Vec<u8>> {
    db.begin().unwrap().get(index, key).unwrap()
}

/// Everything in an index.
pub fn all(db: &Database, index: &Index) -> Entries {
    db.begin().unwrap().range(index, ..).and_then(Cursor::collect).unwrap()
}

/// A thread of the simulation.
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    vfs::thread::spawn(name, body).unwrap()
}

/// Simulated milliseconds.
pub fn sleep(ms: u64) {
    vfs::thread::sleep(Duration::from_millis(ms));
}

/// `verify` finds nothing.
pub fn sound(db: &Database) {
    try_sound(db).unwrap();
}

/// The same where the machine may go meanwhile.
pub fn try_sound(db: &Database) -> Result<(), Error> {
    for (name, report) in db.verify()? {
        assert!(report.problems.is_empty(), "{name}: {:?}", report.problems);
    }
    Ok(())
}

/// Bytes charged to a class of the budget.
pub fn charged(db: &Database, class: &str) -> u64 {
    db.stats().memory.iter().find(|(name, _)| *name == class).unwrap().1
}

/// Files of runs on the disk.
pub fn run_files(disk: &SimDisk) -> usize {
    disk.files().into_iter().filter(|(path, _)| path.to_string_lossy().contains("run-")).count()
}

/// A table of numbers with a colour, without secondary indexes.
pub fn table(db: &Database, name: &str) -> Table {
    table_of(db, name, small_nodes())
}

/// The same with settings.
pub fn table_of(db: &Database, name: &str, options: IndexOptions) -> Table {
    let schema = Schema::builder()
        .column("id", ColumnType::U64)
        .column("colour", ColumnType::U32)
        .primary_key(&["id"])
        .primary_options(options)
        .build()
        .unwrap();
    db.create_table(name, schema).unwrap()
}

/// The index the tests add.
pub fn by_colour() -> IndexSchema {
    IndexSchema::new("by_colour", &["colour"]).with_options(small_nodes())
}

/// A row.
pub fn row(id: u64) -> [Value<'static>; 2] {
    [Value::U64(id), Value::U32(id as u32 % 7)]
}

/// Commits rows.
pub fn insert(db: &Database, table: &Table, ids: std::ops::Range<u64>) -> Result<(), Error> {
    let mut tx = db.begin()?;
    tx.insert_many(table, &ids.map(row).collect::<Vec<_>>())?;
    tx.commit().map(|_| ())
}

/// Entries of the index the tests add.
pub fn indexed(db: &Database, table: &Table) -> usize {
    let tx = db.begin().unwrap();
    let mut entries = tx.scan_index(table, "by_colour", ALL).unwrap();
    let mut count = 0;
    while entries.next().unwrap().is_some() {
        count += 1;
    }
    count
}

/// An index of colours has an entry for each row and no other.
pub fn agrees(db: &Database, t: &Table, name: &str) {
    try_agrees(db, t, name).unwrap();
}

/// The same where the machine may go meanwhile.
pub fn try_agrees(db: &Database, t: &Table, name: &str) -> Result<(), Error> {
    let snapshot = db.snapshot()?;
    let (mut wanted, mut found) = (Vec::new(), Vec::new());
    let mut rows = snapshot.scan(t, ALL)?;
    while let Some(row) = rows.next()? {
        wanted.push(vec![row[1].clone().into_owned(), row[0].clone().into_owned()]);
    }
    wanted.sort();
    let mut entries = snapshot.scan_index(t, name, ALL)?;
    while let Some(entry) = entries.next()? {
        found.push(entry.into_iter().map(Value::into_owned).collect::<Vec<_>>());
    }
    assert!(found == wanted, "{} entries, {} rows", found.len(), wanted.len());
    drop((rows, entries));
    try_sound(db)
}

/// A table of 400 rows of distinct colours.
pub fn distinct(db: &Database) -> Table {
    distinct_of(db, small_nodes())
}

/// The same with settings.
pub fn distinct_of(db: &Database, options: IndexOptions) -> Table {
    let t = table_of(db, "t", options);
    let mut tx = db.begin().unwrap();
    (0..400).for_each(|id| tx.insert(&t, &[Value::U64(id), Value::U32(id as u32)]).unwrap());
    tx.commit().unwrap();
    t
}

/// Rows of the table that builds are tried on.
pub const TABLE_ROWS: u64 = 400;

/// A table of so many rows.
pub fn made(db: &Database) -> Table {
    let t = table(db, "t");
    insert(db, &t, 0..TABLE_ROWS).unwrap();
    t
}

/// Adds an index in a thread of its own.
pub fn build(db: &Database, t: &Table, index: IndexSchema) -> JoinHandle<Result<(), Error>> {
    let (db, t) = (db.clone(), t.clone());
    spawn("build", move || db.create_table_indexes(&t, vec![index]))
}

/// Deletes a row that is there.
pub fn delete(db: &Database, t: &Table, id: u64) {
    let mut tx = db.begin().unwrap();
    assert!(tx.delete_row(t, &[Value::U64(id)]).unwrap());
    tx.commit().unwrap();
}

/// Nothing of a build is left.
pub fn no_trace(db: &Database, t: &Table) {
    assert!(t.schema().indexes().is_empty() && db.index_builds().is_empty());
    db.settle().unwrap();
    db.checkpoint().unwrap();
    let names: Vec<_> = db.stats().indexes.into_iter().map(|(name, _)| name).collect();
    assert!(!names.iter().any(|name| name.contains("by_colour")), "{names:?}");
    sound(db);
}

/// The same, of distinct colours.
pub fn unique() -> IndexSchema {
    by_colour().unique()
}

/// Lets each operation on the disk fail once, cuts the power, and gives what came of it to `judge`.
pub fn each_fails_once(prepare: impl Fn(&SimDisk), act: impl Fn(&SimDisk) -> bool, judge: impl Fn(&SimDisk, bool)) {
    for (nth, seed) in (1..).flat_map(|nth| (0..8).map(move |seed| (nth, seed))) {
        let disk = disk();
        prepare(&disk);
        disk.faults().add(Rule::new(Action::Eio).nth(nth));
        let told = act(&disk);
        let fired = disk.faults().fired() > 0;
        disk.faults().clear();
        disk.power_cut(seed);
        judge(&disk.reboot(), told);
        if !fired {
            assert!(nth > 1 && told, "nothing was tried");
            return;
        }
    }
}
