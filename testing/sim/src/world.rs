//! An open database with its handles, and reading all of it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use trefoil::{
    ALL, ColumnType, Database, Error, Index, IndexOptions, IndexSchema, Options, Schema, Shape, Snapshot, Structure,
    Table, Value,
};
use vfs::random::Rng;
use vfs::sync::Mutex;

use crate::history::Map;

/// Plain indexes that are always there.
pub const PLAIN: usize = 2;
/// Distinct keys of each map: few, so that transactions meet.
pub const KEYS: u64 = 60;
/// Keys of the wide index: with the smallest nodes more leaves than a commit loads.
pub const WIDE_KEYS: u64 = 480;

/// Keys and values.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

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
    /// With an index of so many leaves that a commit all over it finds them too cold.
    pub wide: bool,
    /// Checkpoints that a thread of its own makes one after the other.
    pub checkpoints: u64,
    /// Whether rows are unique in a column.
    pub unique: Unique,
    /// Some transactions are prepared, and decided later.
    pub prepares: bool,
    /// How indexes are stored.
    pub structure: Structure,
    /// Of log-structured merge trees.
    pub shape: Shape,
    /// With an index of counters.
    pub counters: bool,
    /// Indexes are emptied now and then.
    pub deserts: bool,
    /// Plain indexes have a clock, by which nothing expires so soon, and filters of prefixes.
    pub extras: bool,
}

/// Seeds below are B-trees: those that documents name do what they did.
const BTREES_BELOW: u64 = 250;
/// Seeds from here on may be log-structured merge trees, likewise.
const LSMS_FROM: u64 = 2100;
/// Structures are drawn from a stream of their own, so that everything else of a seed is what it was before there were two.
const STRUCTURES: u64 = 0x0b37_7ee5;
/// The same of the third one.
const LSMS: u64 = 0x0015_b7ee;
/// Seeds from here on may have them in any shape.
const SHAPES_FROM: u64 = 2300;
/// The same of shapes.
const SHAPES: u64 = 0x005a_be55;
/// In half of the worlds from this seed on indexes are emptied now and then.
const DESERTS_FROM: u64 = 3000;
/// Drawn from a stream of its own, too.
const DESERTS: u64 = 0x00de_5e27;
/// In half of the worlds on log-structured merge trees from this seed on plain indexes have all that only they can.
const EXTRAS_FROM: u64 = 4000;
/// Drawn from a stream of its own, too.
const EXTRAS: u64 = 0x00e8_72a5;
/// The same of counters.
const COUNTERS: u64 = 0x00c0_0072;

/// Which tables have an index named like [`ONE_A`] that is unique in column `a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unique {
    /// None.
    Never,
    /// All, from the start.
    Always,
    /// The table may get one.
    Added,
}

/// How names of unique indexes begin.
pub const ONE_A: &str = "one_a";

impl Sizes {
    /// Drawn; the structure by the seed alone.
    #[must_use]
    pub fn draw(seed: u64, rng: &mut Rng) -> Self {
        trefoil::fuzzing::small_nodes();
        let wide = rng.chance(0.15);
        let whole = wide && rng.chance(0.8);
        let inline = [200, 2000, 1 << 20][if whole { 2 } else { rng.index(3) }];
        // A batch all over the wide index fits into a record, which the ring bounds, and that the budget.
        let deserts = seed >= DESERTS_FROM && Rng::new(seed ^ DESERTS).chance(0.5);
        let betree = seed >= BTREES_BELOW && Rng::new(seed ^ STRUCTURES).chance(0.5);
        let lsm = seed >= LSMS_FROM && Rng::new(seed ^ LSMS).chance(0.5);
        let shapes = [Shape::Lazy, Shape::Leveled, Shape::Universal];
        let shape = shapes[if lsm && seed >= SHAPES_FROM { Rng::new(seed ^ SHAPES).index(3) } else { 0 }];
        let extras = lsm && seed >= EXTRAS_FROM && Rng::new(seed ^ EXTRAS).chance(0.5);
        let counters = seed >= BTREES_BELOW && Rng::new(seed ^ COUNTERS).chance(0.5);
        let budget = [256 << 10, 1 << 20, 8 << 20][if whole { 1 + rng.index(2) } else { rng.index(3) }];
        Self {
            node_bytes: if wide { 512 } else { [512, 1024, 4096][rng.index(3)] },
            budget_bytes: budget,
            inline_batch_bytes: inline,
            checkpoint_replay: Duration::from_micros([50, 500, 30_000_000][rng.index(3)]),
            writers: 1 + rng.index(3),
            transactions: 4 + rng.below(if wide { 8 } else { 20 }),
            value_bytes_max: [8, 60, 600][rng.index(3)],
            wide,
            checkpoints: if rng.chance(0.25) { 5 + rng.below(20) } else { 0 },
            unique: [Unique::Never, Unique::Never, Unique::Always, Unique::Always, Unique::Added][rng.index(5)],
            prepares: rng.chance(0.5),
            structure: match (lsm, betree) {
                (true, _) => Structure::Lsm,
                (false, true) => Structure::Betree,
                (false, false) => Structure::Btree,
            },
            shape,
            counters,
            deserts,
            extras,
        }
    }

    /// A value of column `a`.
    pub fn some_a(&self, rng: &mut Rng) -> u32 {
        // Fewer values than rows where they are unique, so that rows meet.
        rng.below(if self.unique == Unique::Never { 9 } else { 2 * KEYS / 3 }) as u32
    }

    /// The indexes every table has.
    #[must_use]
    pub fn first_indexes(&self) -> &'static [&'static str] {
        if self.unique == Unique::Always { &["by_a", ONE_A] } else { &["by_a"] }
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
            // With some numbers of writers every commit of several indexes is shared out.
            parallel_apply_from: if self.writers == 2 { 1 } else { Options::default().parallel_apply_from },
            lock_timeout: Duration::from_millis(200),
            // One worker of the merge lane, or three.
            background_threads: if self.writers.is_multiple_of(2) { 4 } else { 2 },
            ..Options::default()
        }
    }

    /// The options of plain indexes.
    #[must_use]
    pub fn plain_options(&self) -> IndexOptions {
        let (ttl_seconds, prefix_bytes) = if self.extras { (Some(3600), 3) } else { (None, 0) };
        IndexOptions { ttl_seconds, prefix_bytes, ..self.index_options() }
    }

    /// The options of the indexes of tables.
    #[must_use]
    pub fn index_options(&self) -> IndexOptions {
        IndexOptions {
            structure: self.structure,
            shape: self.shape,
            node_bytes: self.node_bytes,
            ..IndexOptions::default()
        }
    }
}

/// A handle of something that comes and goes.
#[derive(Clone)]
pub enum Extra {
    /// A plain index.
    Index(Index),
    /// A table.
    Table(Table),
}

/// An open database and its handles.
#[derive(Clone)]
pub struct World {
    /// The database.
    pub db: Database,
    /// Plain indexes.
    pub plain: Vec<Index>,
    /// The wide index, where there is one.
    pub wide: Option<Index>,
    /// The index of counters, where there is one.
    pub counters: Option<Index>,
    /// The table.
    pub table: Table,
    /// The journal.
    pub journal: Index,
    /// What comes and goes and is there now, by name: the number of its creation and a handle. A handle keeps the
    /// blocks of what was dropped, so it leaves with the drop.
    pub extras: Arc<Mutex<BTreeMap<String, (u64, Extra)>>>,
    /// Sizes.
    pub sizes: Sizes,
}

impl World {
    /// Opens the database and makes what is not there yet. `extras` is empty.
    pub fn open(disk: Arc<dyn vfs::Vfs>, sizes: &Sizes) -> Result<Self, Error> {
        let db = Database::open("/db", sizes.options(disk))?;
        let options = sizes.plain_options();
        let index_with = |name: &str, options| match db.index(name) {
            Err(Error::NotFound { .. }) => db.create_index(name, options),
            other => other,
        };
        let index = |name: &str| index_with(name, options);
        let plain = (0..PLAIN).map(|n| index(&format!("plain{n}"))).collect::<Result<_, _>>()?;
        let wide = sizes.wide.then(|| index("wide")).transpose()?;
        let structure = if options.structure == Structure::Lsm { Structure::Btree } else { options.structure };
        let of_counters = IndexOptions {
            counters: true,
            structure,
            shape: Shape::default(),
            ttl_seconds: None,
            prefix_bytes: 0,
            ..options
        };
        let counters = sizes.counters.then(|| index_with("counters", of_counters)).transpose()?;
        let journal = index("journal")?;
        let table = match db.table("rows") {
            Err(Error::NotFound { .. }) => db.create_table("rows", schema(sizes))?,
            other => other?,
        };
        Ok(Self { db, plain, wide, counters, table, journal, extras: Arc::default(), sizes: sizes.clone() })
    }

    /// All maps.
    pub fn maps(&self) -> Vec<Map> {
        let always = (0..PLAIN).map(Map::Plain).chain([Map::Table, Map::Journal]);
        let extras: Vec<_> = self.extras.lock().values().map(|(creation, _)| Map::Extra(*creation)).collect();
        let some = self.wide.iter().map(|_| Map::Wide).chain(self.counters.iter().map(|_| Map::Counters));
        always.chain(some).chain(extras).collect()
    }

    /// The handle of a map, if it is there.
    #[must_use]
    pub fn handle(&self, map: Map) -> Option<Extra> {
        match map {
            Map::Plain(n) => Some(Extra::Index(self.plain[n].clone())),
            Map::Wide => self.wide.clone().map(Extra::Index),
            Map::Counters => self.counters.clone().map(Extra::Index),
            Map::Journal => Some(Extra::Index(self.journal.clone())),
            Map::Table => Some(Extra::Table(self.table.clone())),
            Map::Extra(creation) => {
                self.extras.lock().values().find(|(c, _)| *c == creation).map(|(_, handle)| handle.clone())
            }
        }
    }

    /// One of what comes and goes, if anything is there.
    #[must_use]
    pub fn some_extra(&self, rng: &mut Rng) -> Option<(Map, Extra)> {
        let extras = self.extras.lock();
        let nth = rng.index(extras.len().max(1));
        extras.values().nth(nth).map(|(creation, handle)| (Map::Extra(*creation), handle.clone()))
    }

    /// Everything in a map, read by a new snapshot.
    #[must_use]
    pub fn all(&self, map: Map) -> Vec<(Vec<u8>, Vec<u8>)> {
        let snapshot = self.db.snapshot().expect("open");
        let handle = self.handle(map).expect("the map is there");
        entries(&snapshot, &handle, &[], &[]).expect("readable")
    }
}

/// A column that has this value in every row, and is dropped and added again and again.
pub const SPARE: (&str, u32) = ("spare", 300);

/// What the tables look like at first; all secondary indexes are on the same column.
#[must_use]
pub fn schema(sizes: &Sizes) -> Schema {
    let options = sizes.index_options();
    let columns = Schema::builder()
        .column("id", ColumnType::U64)
        .column("a", ColumnType::U32)
        .column("b", ColumnType::Bytes)
        .column(SPARE.0, ColumnType::U32)
        .primary_key(&["id"])
        .primary_options(options);
    let all = sizes.first_indexes().iter().fold(columns, |schema, name| schema.index(secondary(sizes, name)));
    all.build().expect("a sound schema")
}

/// A secondary index of such a table; where none is unique they have the whole row.
#[must_use]
pub fn secondary(sizes: &Sizes, name: &str) -> IndexSchema {
    let index = IndexSchema::new(name, &["a"]).with_options(sizes.index_options());
    let index = if sizes.unique == Unique::Never { index.clustering() } else { index };
    if sizes.unique != Unique::Never && name.starts_with(ONE_A) { index.unique() } else { index }
}

/// A range of byte keys; empty bounds are open.
#[must_use]
pub fn range<'a>(low: &'a [u8], high: &'a [u8]) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (Bound::Included(low), if high.is_empty() { Bound::Unbounded } else { Bound::Excluded(high) })
}

/// Entries from `low` to below `high` as the model holds them; an empty `high` is the end.
pub fn entries(snapshot: &Snapshot, handle: &Extra, low: &[u8], high: &[u8]) -> Result<Entries, Error> {
    match handle {
        Extra::Index(index) => snapshot.range(index, range(low, high))?.collect(),
        Extra::Table(table) => {
            let (from, to) = ([Value::U64(number(low))], [Value::U64(number(high))]);
            let high = if high.is_empty() { Bound::Unbounded } else { Bound::Excluded(&to[..]) };
            let mut rows = snapshot.scan(table, (Bound::Included(&from[..]), high))?;
            let mut all = Vec::new();
            while let Some(row) = rows.next()? {
                all.push(flat(&row));
            }
            Ok(all)
        }
    }
}

/// The same read downwards, in ascending order; tables have no such cursor at a snapshot.
pub fn entries_back(snapshot: &Snapshot, handle: &Extra, low: &[u8], high: &[u8]) -> Result<Entries, Error> {
    let Extra::Index(index) = handle else { return entries(snapshot, handle, low, high) };
    let mut back = snapshot.range_back(index, range(low, high))?.collect()?;
    back.reverse();
    Ok(back)
}

/// Each secondary index of a table has one entry for each row, as the snapshot sees both. Indexes built after the
/// snapshot refuse it.
pub fn check_secondaries(snapshot: &Snapshot, table: &Table) -> Result<(), Error> {
    let mut rows = snapshot.scan(table, ALL)?;
    let mut expected = Vec::new();
    while let Some(row) = rows.next()? {
        let (Value::U64(id), Value::U32(a)) = (&row[0], &row[1]) else { panic!("not a row of the table: {row:?}") };
        expected.push((*a, *id));
    }
    expected.sort_unstable();
    for index in table.schema().indexes() {
        let mut entries = match snapshot.scan_index(table, index.name(), ALL) {
            Err(Error::DefinitionChanged { .. }) => continue,
            other => other?,
        };
        let mut found = Vec::new();
        while let Some(entry) = entries.next()? {
            let (Value::U32(a), Value::U64(id)) = (&entry[0], &entry[1]) else { panic!("not an entry: {entry:?}") };
            found.push((*a, *id));
        }
        assert!(found == expected, "{} at {}: {found:?} for rows {expected:?}", index.name(), snapshot.ts());
        let (mut down, mut entries) = (Vec::new(), snapshot.scan_index_back(table, index.name(), ALL)?);
        while let Some(entry) = entries.next_as::<(u32, u64)>()? {
            down.push(entry);
        }
        down.reverse();
        assert!(down == expected, "{} at {}, downwards: {down:?}", index.name(), snapshot.ts());
    }
    Ok(())
}

/// A key of the tables as the number it is; nothing is 0.
fn number(key: &[u8]) -> u64 {
    key.try_into().map_or(0, u64::from_be_bytes)
}

/// A row as the model holds it: key bytes to value bytes.
#[must_use]
pub fn flat(row: &[Value<'_>]) -> (Vec<u8>, Vec<u8>) {
    let (Value::U64(id), Value::U32(a), Value::Bytes(b)) = (&row[0], &row[1], &row[2]) else {
        panic!("not a row of the table: {row:?}");
    };
    assert!(row.len() == 4 && row[3] == Value::U32(SPARE.1), "not what the column has in every row: {row:?}");
    let mut value = a.to_be_bytes().to_vec();
    value.extend_from_slice(b);
    (id.to_be_bytes().to_vec(), value)
}
