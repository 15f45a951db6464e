//! RocksDB: one log-structured merge tree; a tree of a table is a four-byte prefix of its keys.
//!
//! As it is, a transaction is an atomic batch, and deletes of one table take turns at a latch. With `txn=pessimistic`
//! it is a transaction that locks the keys it writes, and the check of an insert locks its key first.
//!
//! Durability: `sync` syncs the log at each commit; `write` and `buffered` write it to the operating system at each
//! commit, which is more than `buffered` asks.
//!
//! Of the budget a quarter is for write buffers and the rest is the block cache, in which indexes and filters count
//! too. Levels have no compression at the top, then LZ4, and Zstandard at the bottom; filters have ten bits a key.

mod cells;
mod options;
mod plain;
mod sysbench;
mod tpcc;
mod transactional;

use std::path::Path;
use std::time::Duration;

use ::rocksdb::{
    DB, DBAccess, DBPinnableSlice, Error, FlushOptions, Options, ReadOptions, SnapshotWithThreadMode, WriteOptions,
};

use super::kv::{KvTarget, ROWS, Reader, Store, TREES, Writer, settings};
use super::{BUDGET_BYTES_DEFAULT, failed};
use crate::api::{Counters, Description, Durability, Result, Setup, Sizes, Target, TargetError};
use crate::spec::TargetSpec;
use options::Tuned;

fn wrong(error: Error) -> TargetError {
    failed("rocksdb", error)
}

fn pessimistic(mut spec: TargetSpec) -> Result<bool> {
    let pessimistic = match spec.take("txn").as_deref() {
        None | Some("none") => false,
        Some("pessimistic") => true,
        Some(other) => {
            return Err(TargetError::Usage(format!("target `{spec}`: txn `{other}` is none of none, pessimistic")));
        }
    };
    spec.finish(&["txn"])?;
    Ok(pessimistic)
}

/// Checks the parameters.
pub fn check(spec: TargetSpec) -> Result<()> {
    pessimistic(spec).map(|_| ())
}

/// Creates a database in the run's directory.
pub fn open(spec: TargetSpec, setup: &Setup) -> Result<Box<dyn Target>> {
    let pessimistic = pessimistic(spec)?;
    let tuned = Tuned::new(setup)?;
    if pessimistic { created::<transactional::Locking>(tuned, setup) } else { created::<DB>(tuned, setup) }
}

/// The prefixes of a table's trees; they are never the largest, so that each has one behind it.
type Trees = [[u8; 4]; TREES];

fn trees(table: u32) -> Trees {
    [0, 1, 2, 3].map(|tree| (table * TREES as u32 + tree).to_be_bytes())
}

/// A key with the prefix of its tree, in memory that is used again.
fn prefixed<'b>(buffer: &'b mut Vec<u8>, prefix: [u8; 4], key: &[u8]) -> &'b [u8] {
    buffer.clear();
    buffer.extend_from_slice(&prefix);
    buffer.extend_from_slice(key);
    buffer
}

/// Where a scan of a tree ends: at `to`, or where the next tree begins.
fn end_of(prefix: [u8; 4], to: &[u8]) -> Vec<u8> {
    if to.is_empty() { (u32::from_be_bytes(prefix) + 1).to_be_bytes().to_vec() } else { [&prefix, to].concat() }
}

/// Options of a scan up to `end`. A block that is not in the cache is put there, as every block is.
fn bounded(end: Vec<u8>) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_upper_bound(end);
    options
}

/// What the two ways to open differ in.
trait Engine: DBAccess + Sized + Send + Sync + 'static {
    /// What a statement writes into.
    type Write<'s>;

    const CONFIG: &'static str;
    const NOTE: &'static str;

    fn create(options: &Options, dir: &Path) -> Result<Self, Error>;
    fn snapshot(&self) -> Snapshot<'_, Self>;
    /// The newest value of a key, without a snapshot.
    fn newest(&self, key: &[u8], options: &ReadOptions) -> Result<Option<DBPinnableSlice<'_>>, Error>;
    fn property(&self, name: &str) -> Result<Option<u64>, Error>;
    fn flush(&self, options: &FlushOptions) -> Result<(), Error>;
    fn begin(&self, options: &WriteOptions) -> Self::Write<'_>;
    /// Whether a key that is to be inserted exists.
    fn exists(write: &Self::Write<'_>, snapshot: &Snapshot<'_, Self>, key: &[u8]) -> Result<bool, Error>;
    fn put(write: &mut Self::Write<'_>, key: &[u8], value: &[u8]) -> Result<(), Error>;
    fn delete(write: &mut Self::Write<'_>, key: &[u8]) -> Result<(), Error>;
    fn commit(&self, write: Self::Write<'_>, options: &WriteOptions) -> Result<(), Error>;
    /// The tables of sysbench.
    fn sysbench(rocks: &Rocks<Self>) -> Result<Box<dyn crate::sysbench::Tables + '_>>;
    /// The tables of TPC-C.
    fn tpcc(rocks: &Rocks<Self>) -> Result<Box<dyn crate::tpcc::Tables + '_>>;
}

type Snapshot<'s, D> = SnapshotWithThreadMode<'s, D>;

/// The open database.
struct Rocks<D> {
    database: D,
    tuned: Tuned,
    read_options: ReadOptions,
}

fn created<D: Engine>(tuned: Tuned, setup: &Setup) -> Result<Box<dyn Target>> {
    let database = D::create(&tuned.options(), &setup.dir).map_err(wrong)?;
    let budget_bytes = tuned.budget_bytes;
    Ok(Box::new(KvTarget::new(Rocks { database, tuned, read_options: ReadOptions::default() }, budget_bytes)))
}

impl<D: Engine> Rocks<D> {
    fn property(&self, name: &str) -> Result<Option<u64>> {
        self.database.property(name).map_err(wrong)
    }

    fn show(&self, name: &str) -> String {
        self.property(name).ok().flatten().map_or_else(|| "unknown".into(), |value| value.to_string())
    }

    /// Nothing flushed, nothing compacted, no compaction wanted.
    fn at_rest(&self) -> Result<bool> {
        for name in ["mem-table-flush-pending", "num-running-flushes", "compaction-pending", "num-running-compactions"]
        {
            if self.property(&format!("rocksdb.{name}"))? != Some(0) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<D: Engine> Store for Rocks<D> {
    type Trees = Trees;

    const PARALLEL_WRITES: bool = true;

    fn create(&self, table: u32) -> Result<Trees> {
        Ok(trees(table))
    }

    fn read<R>(&self, trees: &Trees, run: impl FnOnce(&dyn Reader) -> Result<R>) -> Result<R> {
        run(&Reading { snapshot: self.database.snapshot(), trees })
    }

    /// The newest value, without a snapshot.
    fn get(&self, trees: &Trees, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut buffer = [0; 12];
        buffer[..4].copy_from_slice(&trees[ROWS]);
        buffer[4..].copy_from_slice(key);
        let value = self.database.newest(&buffer, &self.read_options).map_err(wrong)?;
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn write<R>(&self, trees: &Trees, run: impl FnOnce(&mut dyn Writer) -> Result<R>) -> Result<R> {
        let options = self.tuned.write_options();
        let reading = Reading { snapshot: self.database.snapshot(), trees };
        let mut writing = Writing::<D> { reading, write: self.database.begin(&options), key: Vec::new() };
        let result = run(&mut writing)?;
        self.database.commit(writing.write, &options).map_err(wrong)?;
        Ok(result)
    }

    fn sysbench(&self) -> Result<Box<dyn crate::sysbench::Tables + '_>> {
        D::sysbench(self)
    }

    fn tpcc(&self) -> Result<Box<dyn crate::tpcc::Tables + '_>> {
        D::tpcc(self)
    }

    fn describe(&self) -> Description {
        let tuned = &self.tuned;
        let version = env!("LAB_LIBROCKSDB_SYS_VERSION");
        Description {
            engine: "rocksdb".into(),
            // The crate's version ends in that of the engine inside it.
            version: version.rsplit('+').next().unwrap_or(version).into(),
            config: D::CONFIG.into(),
            settings: settings([
                ("block_cache", self.show("rocksdb.block-cache-capacity")),
                ("write_buffer_size", tuned.write_buffer_bytes.to_string()),
                ("max_write_buffer_number", options::WRITE_BUFFERS.to_string()),
                ("max_total_wal_size", tuned.wal_bytes_max.to_string()),
                ("max_background_jobs", tuned.background_jobs.to_string()),
                ("filter", format!("bloom, {} bits a key", options::FILTER_BITS)),
                ("block_size", options::BLOCK_BYTES.to_string()),
                ("compression", tuned.compression_in_force().unwrap_or_else(|| "unknown".into())),
                ("level_compaction_dynamic_level_bytes", "true".into()),
                ("io", if tuned.direct { "direct" } else { "buffered" }.into()),
                ("durability", format!("{:?}", tuned.durability).to_lowercase()),
                ("wal_sync", (tuned.durability == Durability::Sync).to_string()),
            ]),
            notes: vec![D::NOTE.into()],
        }
    }

    /// Flushes, and waits for flushes and compactions. At rest is at rest several times in a row: one ends before the next starts.
    fn settle(&self, limit: Duration) -> Result<()> {
        self.database.flush(&flush_waiting()).map_err(wrong)?;
        let start = std::time::Instant::now();
        let mut quiet = 0;
        while quiet < 5 && start.elapsed() < limit {
            quiet = if self.at_rest()? { quiet + 1 } else { 0 };
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn sizes(&self) -> Result<Sizes> {
        let total = self.property("rocksdb.total-sst-files-size")?;
        let live = self.property("rocksdb.live-sst-files-size")?;
        let classes = live.into_iter().map(|bytes| ("live".to_owned(), bytes)).collect();
        Ok(Sizes { data_bytes: total, total_bytes: None, classes })
    }

    fn counters(&self) -> Result<Counters> {
        let mut counters = Counters::new();
        for name in [
            "estimate-pending-compaction-bytes",
            "num-running-compactions",
            "num-running-flushes",
            "cur-size-all-mem-tables",
            "block-cache-usage",
            "num-files-at-level0",
            "actual-delayed-write-rate",
            "is-write-stopped",
            "background-errors",
        ] {
            // Not every property is a number in every version; what is not is left out.
            if let Ok(Some(value)) = self.property(&format!("rocksdb.{name}")) {
                counters.insert(name.into(), value);
            }
        }
        Ok(counters)
    }

    /// Checksums are verified by every read; the lab itself compares indexes with rows.
    fn verify(&self) -> Result<()> {
        Ok(())
    }
}

struct Reading<'s, D: Engine> {
    snapshot: Snapshot<'s, D>,
    trees: &'s Trees,
}

struct Writing<'s, D: Engine> {
    reading: Reading<'s, D>,
    write: D::Write<'s>,
    key: Vec<u8>,
}

impl<D: Engine> Reader for Reading<'_, D> {
    fn get(&self, tree: usize, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut buffer = Vec::with_capacity(12);
        let value = self.snapshot.get_pinned(prefixed(&mut buffer, self.trees[tree], key)).map_err(wrong)?;
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, tree: usize, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let prefix = self.trees[tree];
        let mut pairs = self.snapshot.raw_iterator_opt(bounded(end_of(prefix, to)));
        pairs.seek([&prefix, from].concat());
        while let Some((key, value)) = pairs.item() {
            if !each(&key[prefix.len()..], value) {
                break;
            }
            pairs.next();
        }
        pairs.status().map_err(wrong)
    }

    fn last(&self, tree: usize, found: &mut dyn FnMut(&[u8])) -> Result<()> {
        let prefix = self.trees[tree];
        let mut pairs = self.snapshot.raw_iterator();
        pairs.seek_for_prev(end_of(prefix, &[]));
        if let Some(key) = pairs.key().and_then(|key| key.strip_prefix(&prefix)) {
            found(key);
        }
        pairs.status().map_err(wrong)
    }
}

impl<D: Engine> Reader for Writing<'_, D> {
    fn get(&self, tree: usize, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.reading.get(tree, key, found)
    }

    fn scan(&self, tree: usize, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.reading.scan(tree, from, to, each)
    }

    fn last(&self, tree: usize, found: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.reading.last(tree, found)
    }
}

impl<D: Engine> Writer for Writing<'_, D> {
    fn insert_new(&mut self, tree: usize, key: &[u8], value: &[u8]) -> Result<bool> {
        let key = prefixed(&mut self.key, self.reading.trees[tree], key);
        let exists = D::exists(&self.write, &self.reading.snapshot, key).map_err(wrong)?;
        if !exists {
            D::put(&mut self.write, key, value).map_err(wrong)?;
        }
        Ok(!exists)
    }

    fn put(&mut self, tree: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let key = prefixed(&mut self.key, self.reading.trees[tree], key);
        D::put(&mut self.write, key, value).map_err(wrong)
    }

    fn delete(&mut self, tree: usize, key: &[u8]) -> Result<()> {
        D::delete(&mut self.write, prefixed(&mut self.key, self.reading.trees[tree], key)).map_err(wrong)
    }
}

fn flush_waiting() -> FlushOptions {
    let mut options = FlushOptions::default();
    options.set_wait(true);
    options
}
