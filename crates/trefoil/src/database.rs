//! The database as a user holds it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use index::VerifyReport;
use vfs::time::Instant;

use crate::background::Threads;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::handle::{Index, Table};
use crate::options::{IndexOptions, Isolation, Options};
use crate::snapshot::Snapshot;
use crate::stats::Stats;
use crate::table::{IndexSchema, Schema};
use crate::transaction::Transaction;

/// An open database. Cheap to clone; the last clone to go stops the background threads.
///
/// ```
/// # fn main() -> Result<(), trefoil::Error> {
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let path = dir.path().join("db");
/// use trefoil::{Database, IndexOptions, Options};
///
/// let db = Database::open(&path, Options::default())?;
/// let users = db.create_index("users", IndexOptions::default())?;
/// let mut tx = db.begin()?;
/// tx.put(&users, b"ada", b"1815")?;
/// tx.commit()?; // on disk when this returns: the default durability is `Sync`
/// assert_eq!(db.begin()?.get(&users, b"ada")?.as_deref(), Some(&b"1815"[..]));
/// db.close()
/// # }
/// ```
#[derive(Clone)]
pub struct Database(Arc<Open>);

struct Open {
    engine: Arc<Engine>,
    threads: Arc<Threads>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.engine.stop(&self.threads);
    }
}

impl Database {
    /// Opens the database in directory `path`; creates it if the directory is empty or absent and
    /// `options.create` is set. After a crash this replays the log: `stats().replayed_operations` says how much.
    ///
    /// # Errors
    /// `NotADatabase`, `Locked`, `NewerFormat`, `UpgradeRequired`, `Corrupt`, `Io`, `InvalidArgument`.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let (engine, threads) = Engine::open(path.as_ref(), options)?;
        Ok(Self(Arc::new(Open { engine, threads })))
    }

    /// Checkpoints and closes. All handles give `Closed` afterwards. Without it, dropping the last handle stops
    /// the threads and the next open replays the log.
    ///
    /// # Errors
    /// What the checkpoint met; the database is closed all the same.
    pub fn close(&self) -> Result<()> {
        self.0.engine.close(&self.0.threads)
    }

    /// Begins a transaction with the database's isolation.
    ///
    /// # Errors
    /// `Closed`.
    pub fn begin(&self) -> Result<Transaction> {
        self.begin_with(self.0.engine.options.isolation)
    }

    /// Begins a transaction with the isolation given.
    ///
    /// # Errors
    /// `Closed`.
    pub fn begin_with(&self, isolation: Isolation) -> Result<Transaction> {
        Transaction::begin(&self.0.engine, isolation)
    }

    /// What is committed now, for reading.
    ///
    /// # Errors
    /// `Closed`.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::take(&self.0.engine)
    }

    /// Creates a plain index.
    ///
    /// # Errors
    /// `AlreadyExists`, `Unsupported` structures, `DiskFull`, `Poisoned`.
    pub fn create_index(&self, name: &str, options: IndexOptions) -> Result<Index> {
        self.0.engine.create_plain(name, options).map(Index)
    }

    /// The plain index of this name.
    ///
    /// # Errors
    /// `NotFound`, `Closed`.
    pub fn index(&self, name: &str) -> Result<Index> {
        self.0.engine.check_open()?;
        let found = self.0.engine.names.read().plain.get(name).cloned();
        found.map(Index).ok_or_else(|| Error::NotFound { kind: "index", name: name.to_owned() })
    }

    /// Drops a plain index. Its space comes back when no snapshot is older and no handle is left.
    ///
    /// # Errors
    /// `NotFound`, `Poisoned`.
    pub fn drop_index(&self, name: &str) -> Result<()> {
        self.0.engine.drop_plain(name)
    }

    /// Creates a table with the secondary indexes of its schema.
    ///
    /// # Errors
    /// As [`Database::create_index`].
    pub fn create_table(&self, name: &str, schema: Schema) -> Result<Table> {
        self.0.engine.create_table(name, schema).map(Table)
    }

    /// The table of this name.
    ///
    /// # Errors
    /// `NotFound`, `Closed`.
    pub fn table(&self, name: &str) -> Result<Table> {
        self.0.engine.check_open()?;
        let found = self.0.engine.names.read().tables.get(name).cloned();
        found.map(Table).ok_or_else(|| Error::NotFound { kind: "table", name: name.to_owned() })
    }

    /// Adds secondary indexes to a table in one pass over its rows. Writers of the table wait; readers do not.
    ///
    /// # Errors
    /// `LockTimeout` if writers do not leave, `InvalidArgument` for unknown columns, `DiskFull`, `Poisoned`.
    pub fn create_table_indexes(&self, table: &Table, indexes: Vec<IndexSchema>) -> Result<()> {
        self.0.engine.add_indexes(&table.0, indexes)
    }

    /// Drops a table and its indexes.
    ///
    /// # Errors
    /// `NotFound`, `LockTimeout` if writers do not leave, `Poisoned`.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.0.engine.drop_table(name)
    }

    /// Names of plain indexes and of tables, sorted.
    #[must_use]
    pub fn names(&self) -> (Vec<String>, Vec<String>) {
        let names = self.0.engine.names.read();
        let mut plain: Vec<_> = names.plain.keys().cloned().collect();
        let mut tables: Vec<_> = names.tables.keys().cloned().collect();
        plain.sort();
        tables.sort();
        (plain, tables)
    }

    /// Checkpoints now: afterwards the log before this moment is not needed any more.
    ///
    /// # Errors
    /// `Poisoned`, `Io`, `DiskFull`.
    pub fn checkpoint(&self) -> Result<()> {
        self.0.engine.check_open()?;
        Ok(self.0.engine.run_checkpoint()?)
    }

    /// Makes every commit so far durable, whatever its own durability was.
    ///
    /// # Errors
    /// `Poisoned`, `Io`.
    pub fn sync(&self) -> Result<()> {
        self.0.engine.check_open()?;
        Ok(self.0.engine.wal.sync_all()?)
    }

    /// Waits until background work is done: runs drained, dead leaves purged, then a checkpoint.
    ///
    /// # Errors
    /// `Poisoned`, `Io`, `DiskFull`.
    pub fn settle(&self) -> Result<()> {
        self.settle_for(Duration::MAX).map(|_| ())
    }

    /// As [`Database::settle`], but stops the background work after `limit`; the checkpoint comes in any case. True if all
    /// was done.
    ///
    /// # Errors
    /// As [`Database::settle`].
    pub fn settle_for(&self, limit: Duration) -> Result<bool> {
        self.0.engine.check_open()?;
        let began = Instant::now();
        let mut more = true;
        while more && began.elapsed() < limit {
            more = self.0.engine.upkeep_step()?;
        }
        self.0.engine.run_checkpoint()?;
        Ok(!more)
    }

    /// Reads and checks everything: order, fences, checksums, counts, and that the secondary indexes of each
    /// table hold exactly what its rows say. One report an index, by name.
    ///
    /// # Errors
    /// Only what prevents the check itself; damage is in the reports.
    pub fn verify(&self) -> Result<Vec<(String, VerifyReport)>> {
        self.0.engine.check_open()?;
        crate::verify::verify(&self.0.engine)
    }

    /// Statistics as of now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.engine.stats()
    }
}
