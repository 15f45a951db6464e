//! What the driver asks of an engine.
//!
//! A [`Target`] is one open engine, shared by all threads. A [`Session`] is one connection, owned by one thread;
//! every statement on it is a transaction of its own (autocommit), except between [`Session::hold_begin`] and
//! [`Session::hold_end`].
//!
//! Rules every adapter keeps:
//! 1. A statement that returns `Ok` has happened completely; one that returns `Err` ends the run. Nothing is retried
//!    silently.
//! 2. Secondary indexes are read covering: the answer comes from the index alone.
//! 3. A delete finds the smallest keys itself, as `DELETE … ORDER BY transactionid LIMIT n` does, and is right with
//!    other deleters on the same table.
//! 4. Keys are handed out per table, rising, starting at 1.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lab_measure::procfs::Runs;
use lab_measure::record::{IndexCosts, LevelsAt};
use serde::{Deserialize, Serialize};

use crate::limited::DiskLimits;
use crate::row::{Batch, Entry, IndexSet, Price, RowView, Secondary};
use crate::sysbench::Tables;
use crate::tpcc;

/// Result of everything a target does.
pub type Result<T, E = TargetError> = std::result::Result<T, E>;

/// Why a target could not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TargetError {
    /// The target string or an option is wrong.
    #[error("{0}")]
    Usage(String),
    /// Understood, but not built into this program.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// A deadlock, a lock wait or a conflict: the transaction can be run again.
    #[error("{0}")]
    Retry(String),
    /// The engine failed.
    #[error("{0}")]
    Failed(String),
}

/// When an acknowledged commit is safe, and from what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// On the device at commit.
    Sync,
    /// Handed to the operating system at commit: survives the process, not the machine.
    Write,
    /// Handed to the operating system within a second.
    Buffered,
}

/// How data files are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoMode {
    /// Past the page cache.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// What every target is opened with, so that all of them get the same terms.
#[derive(Clone, Debug)]
pub struct Setup {
    /// An empty directory of the target's own.
    pub dir: PathBuf,
    /// When a commit is safe.
    pub durability: Durability,
    /// Memory of the engine under test, in bytes; `None` = the engine's own default.
    pub budget_bytes: Option<u64>,
    /// Direct or buffered; `None` = the engine's own default.
    pub io: Option<IoMode>,
    /// Compression by name; `None` = the engine's own default.
    pub compression: Option<String>,
    /// A disk that is slower or smaller than the machine's.
    pub disk: DiskLimits,
    /// The seed of the run.
    pub seed: u64,
    /// What kind of column the insert benchmark's `price` is.
    pub price: Price,
}

/// What a target says about itself once it is open: every knob as it was read back.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Description {
    /// The engine's name.
    pub engine: String,
    /// Its version.
    pub version: String,
    /// Short name of the configuration, for table rows.
    pub config: String,
    /// Every setting as it is in force.
    pub settings: BTreeMap<String, String>,
    /// What the reader of a report has to know (a knob without effect, a fallback).
    pub notes: Vec<String>,
}

/// What a target can be asked and checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ability {
    /// Rows can be read back, so invariants can be checked.
    pub stores_rows: bool,
    /// Keys are handed out without gaps, so minimum, maximum and contents are known in advance.
    pub dense_keys: bool,
}

/// Bytes on disk by class; a missing number was not measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sizes {
    /// Tables and indexes.
    pub data_bytes: Option<u64>,
    /// Everything, logs included.
    pub total_bytes: Option<u64>,
    /// By class, as the engine names its classes.
    pub classes: BTreeMap<String, u64>,
}

/// The engine's own counters by name. Fixed names: `gc_debt` (dead versions and tombstones not yet reclaimed), and
/// `written.*` (all bytes written, by cause: their sum is what the kernel counts for the process where it counts by pages).
pub type Counters = BTreeMap<String, u64>;

/// `SELECT` of the index columns `WHERE first column >= (or >) first ORDER BY all index columns LIMIT limit`.
#[derive(Clone, Copy, Debug)]
pub struct RangeQuery {
    /// The index that must serve the query.
    pub index: Secondary,
    /// Bound of the first index column.
    pub first: i64,
    /// Whether the bound itself is left out.
    pub strict: bool,
    /// Rows wanted.
    pub limit: u32,
}

/// What a point look-up projects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PointRow {
    /// The key.
    pub transactionid: u64,
    /// The product.
    pub productid: i32,
    /// The text.
    pub data: Vec<u8>,
}

/// One open engine.
pub trait Target: Send + Sync {
    /// What the engine says about itself.
    fn describe(&self) -> Description;

    /// What can be asked and checked.
    fn ability(&self) -> Ability;

    /// Creates table number `table` with its primary key only.
    fn create_table(&self, table: u32) -> Result<()>;

    /// Creates the three secondary indexes of a table that may hold rows already.
    fn create_indexes(&self, table: u32, set: IndexSet) -> Result<()>;

    /// Where the engine runs, so that its costs are told apart from the driver's.
    fn runs(&self) -> Runs {
        Runs::Inside
    }

    /// The tables of sysbench, not created yet.
    fn sysbench(&self) -> Result<Box<dyn Tables + '_>> {
        let engine = self.describe().engine;
        Err(TargetError::Unsupported(format!("`{engine}` has no adapter for sysbench")))
    }

    /// The tables of TPC-C, not created or found yet.
    fn tpcc(&self) -> Result<Box<dyn tpcc::Tables + '_>> {
        let engine = self.describe().engine;
        Err(TargetError::Unsupported(format!("`{engine}` has no adapter for TPC-C")))
    }

    /// Opens a connection.
    fn session(&self) -> Result<Box<dyn Session>>;

    /// Brings the engine to rest: everything flushed, background work drained. Returns when done or after `limit`.
    fn settle(&self, limit: Duration) -> Result<()>;

    /// Bytes on disk.
    fn sizes(&self) -> Result<Sizes>;

    /// The engine's counters.
    fn counters(&self) -> Result<Counters>;

    /// Levels of its log-structured merge trees, where it tells of such; asked once a second while a step runs.
    fn levels(&self) -> Option<LevelsAt> {
        None
    }

    /// What each index has cost since the engine was opened, by name, where it tells that; asked once a second while a step runs.
    fn costs(&self) -> BTreeMap<String, IndexCosts> {
        BTreeMap::new()
    }

    /// The engine's own check of its structures.
    fn verify(&self) -> Result<()>;

    /// Closes the engine; every session is gone by then.
    fn close(&self) -> Result<()>;
}

/// One connection.
pub trait Session: Send {
    /// Inserts the rows as one transaction and returns the key of the first.
    fn insert(&mut self, table: u32, rows: &Batch) -> Result<u64>;

    /// Deletes the `count` rows with the smallest keys ≥ `from` as one transaction; returns how many there were.
    fn delete_smallest(&mut self, table: u32, from: u64, count: u32) -> Result<u32>;

    /// Deletes the rows with keys in `from..to` as one transaction; returns how many there were.
    fn delete_range(&mut self, table: u32, from: u64, to: u64) -> Result<u32>;

    /// Runs a covering range query; `out` is cleared first.
    fn range(&mut self, table: u32, query: RangeQuery, out: &mut Vec<Entry>) -> Result<()>;

    /// Looks up one row by its key and hands key and row to `found`, which must not call the engine; says whether the
    /// row is there.
    fn get(&mut self, table: u32, key: u64, found: &mut dyn FnMut(u64, RowView<'_>)) -> Result<bool>;

    /// Looks up an IN list of keys; `out` is cleared first, keys that do not exist are left out.
    fn points(&mut self, table: u32, keys: &[u64], out: &mut Vec<PointRow>) -> Result<()>;

    /// The smallest key.
    fn min_key(&mut self, table: u32) -> Result<Option<u64>>;

    /// The largest key.
    fn max_key(&mut self, table: u32) -> Result<Option<u64>>;

    /// Opens a transaction and reads one row in it, so that its snapshot is held from here on.
    fn hold_begin(&mut self, table: u32) -> Result<()>;

    /// Reads rows with keys up to `to` in the transaction that holds the snapshot: how many, and the sum of their hashes.
    fn held_rows(&mut self, _table: u32, _to: u64) -> Result<(u64, u64)> {
        Err(TargetError::Unsupported("what a held snapshot sees is not read here".into()))
    }

    /// Commits the transaction that holds the snapshot.
    fn hold_end(&mut self) -> Result<()>;

    /// Reads the whole table in key order.
    fn scan_table(&mut self, table: u32, each: &mut dyn FnMut(u64, RowView<'_>)) -> Result<()>;

    /// Reads the whole table in key order for one of its columns, `customerid`.
    fn scan_customers(&mut self, table: u32, each: &mut dyn FnMut(i32)) -> Result<()>;

    /// Reads a whole index in its order: entry and key.
    fn scan_index(&mut self, table: u32, index: Secondary, each: &mut dyn FnMut(Entry, u64)) -> Result<()>;

    /// Reads the whole table in key order with a condition that no row meets, `customerid < 0`: how many rows were looked
    /// at, and how many met it.
    fn look_at_table(&mut self, table: u32) -> Result<(u64, u64)> {
        let (mut rows, mut met) = (0, 0);
        self.scan_customers(table, &mut |customerid| {
            rows += 1;
            met += u64::from(customerid < 0);
        })?;
        Ok((rows, met))
    }

    /// The same of a whole index in its order; the condition is that any of its columns is below 0.
    fn look_at_index(&mut self, table: u32, index: Secondary) -> Result<(u64, u64)> {
        let (mut rows, mut met) = (0, 0);
        self.scan_index(table, index, &mut |entry, _| {
            rows += 1;
            met += u64::from(entry.iter().any(|value| *value < 0));
        })?;
        Ok((rows, met))
    }
}
