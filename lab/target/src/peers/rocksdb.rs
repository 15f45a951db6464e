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

mod options;
mod plain;
mod transactional;

use std::time::Duration;

use ::rocksdb::{Error, FlushOptions, ReadOptions};

use super::kv::{TREES, settings};
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
    Ok(if pessimistic { Box::new(transactional::open(tuned, setup)?) } else { Box::new(plain::open(tuned, setup)?) })
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

/// What both ways to open share: both have the same properties.
struct Facts<'s> {
    tuned: &'s Tuned,
    config: &'static str,
    property: &'s dyn Fn(&str) -> Result<Option<u64>>,
}

impl Facts<'_> {
    fn describe(&self, notes: &[&str]) -> Description {
        let tuned = self.tuned;
        let version = env!("LAB_LIBROCKSDB_SYS_VERSION");
        Description {
            engine: "rocksdb".into(),
            // The crate's version ends in that of the engine inside it.
            version: version.rsplit('+').next().unwrap_or(version).into(),
            config: self.config.into(),
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
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
        }
    }

    fn show(&self, name: &str) -> String {
        (self.property)(name).ok().flatten().map_or_else(|| "unknown".into(), |value| value.to_string())
    }

    fn sizes(&self) -> Result<Sizes> {
        let total = (self.property)("rocksdb.total-sst-files-size")?;
        let live = (self.property)("rocksdb.live-sst-files-size")?;
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
            if let Ok(Some(value)) = (self.property)(&format!("rocksdb.{name}")) {
                counters.insert(name.into(), value);
            }
        }
        Ok(counters)
    }

    /// Nothing flushed, nothing compacted, no compaction wanted.
    fn at_rest(&self) -> Result<bool> {
        for name in ["mem-table-flush-pending", "num-running-flushes", "compaction-pending", "num-running-compactions"]
        {
            if (self.property)(&format!("rocksdb.{name}"))? != Some(0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for flushes and compactions. At rest is at rest several times in a row: one ends before the next starts.
    fn settle(&self, limit: Duration) -> Result<()> {
        let start = std::time::Instant::now();
        let mut quiet = 0;
        while quiet < 5 && start.elapsed() < limit {
            quiet = if self.at_rest()? { quiet + 1 } else { 0 };
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

fn flush_waiting() -> FlushOptions {
    let mut options = FlushOptions::default();
    options.set_wait(true);
    options
}
