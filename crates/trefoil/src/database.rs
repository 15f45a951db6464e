//! The database as a user holds it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use index::VerifyReport;
use vfs::time::Instant;

use crate::background::Threads;
use crate::comparing::Policies;
use crate::ddl::Wait;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::handle::{Index, Table};
use crate::options::{ChangeOptions, IndexOptions, Options, TransactionOptions};
use crate::snapshot::Snapshot;
use crate::stats::Stats;
use crate::table::Schema;
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
pub struct Database {
    open: Arc<Open>,
    /// Of changes that are asked for by this handle.
    changes: ChangeOptions,
}

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
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.open.engine
    }

    pub(crate) fn wait(&self) -> Wait<'_> {
        Wait::new(&self.changes, self.open.engine.options.lock_timeout)
    }

    /// Opens the database in directory `path`; creates it if the directory is empty or absent and
    /// `options.create` is set. After a crash this replays the log: `stats().replayed_operations` says how much.
    ///
    /// # Errors
    /// `NotADatabase`, `Locked`, `NewerFormat`, `UpgradeRequired`, `Corrupt`, `Io`, `InvalidArgument`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// use trefoil::{Database, Error, Options};
    ///
    /// let only = Options { create: false, ..Options::default() };
    /// let path = dir.path().join("db");
    /// assert!(matches!(Database::open(&path, only), Err(Error::NotADatabase { .. })));
    /// let db = Database::open(&path, Options::default())?; // creates it
    /// let second = Database::open(&path, Options::default());
    /// assert!(matches!(second, Err(Error::Locked { .. }))); // clone the handle instead
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_under(path.as_ref(), options, Policies::default())
    }

    pub(crate) fn open_under(path: &Path, options: Options, policies: Policies) -> Result<Self> {
        let (engine, threads) = Engine::open(path, options, policies)?;
        Ok(Self { open: Arc::new(Open { engine, threads }), changes: ChangeOptions::default() })
    }

    /// Checkpoints and closes. All handles give `Closed` afterwards. Without it, dropping the last handle stops
    /// the threads and the next open replays the log.
    ///
    /// # Errors
    /// What the checkpoint met; the database is closed all the same.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// use trefoil::{Database, Error, Options};
    ///
    /// db.close()?;
    /// assert!(matches!(db.begin(), Err(Error::Closed)));
    /// # drop((db, fruit));
    /// let db = Database::open(dir.path(), Options::default())?;
    /// assert_eq!(db.stats().replayed_operations, 0); // the checkpoint left nothing to replay
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn close(&self) -> Result<()> {
        self.open.engine.close(&self.open.threads)
    }

    /// Begins a transaction with the database's isolation ([`Options::isolation`], by default REPEATABLE READ).
    /// It costs nothing until it reads or writes.
    ///
    /// # Errors
    /// `Closed`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let mut tx = db.begin()?;
    /// tx.put(&fruit, b"apple", b"12")?;
    /// assert!(db.begin()?.get(&fruit, b"apple")?.is_none()); // nobody sees it before the commit
    /// tx.commit()?;
    /// assert!(db.begin()?.get(&fruit, b"apple")?.is_some());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn begin(&self) -> Result<Transaction> {
        self.begin_with(TransactionOptions::default())
    }

    /// Begins a transaction with settings of its own: an [`Isolation`](crate::Isolation), or [`TransactionOptions`].
    ///
    /// # Errors
    /// `Closed`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// use trefoil::Isolation;
    ///
    /// let tx = db.begin_with(Isolation::ReadCommitted)?;
    /// assert_eq!(tx.get(&fruit, b"pear")?.as_deref(), Some(&b"7"[..]));
    /// # let mut other = db.begin()?;
    /// # other.delete(&fruit, b"pear")?;
    /// other.commit()?; // deletes the pear
    /// assert_eq!(tx.get(&fruit, b"pear")?, None); // each read looks anew
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn begin_with(&self, options: impl Into<TransactionOptions>) -> Result<Transaction> {
        Transaction::begin(&self.open.engine, options.into())
    }

    /// What is committed now, for reading: no locks, and writers do not wait for it.
    ///
    /// # Errors
    /// `Closed`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// let before = db.snapshot()?;
    /// # let mut tx = db.begin()?;
    /// tx.put(&fruit, b"quince", b"1")?;
    /// tx.commit()?;
    /// assert_eq!(before.range(&fruit, ..)?.collect()?.len(), 3);
    /// assert_eq!(db.snapshot()?.range(&fruit, ..)?.collect()?.len(), 4);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::take(&self.open.engine)
    }

    /// Creates a plain index, empty; its name has 1 to 640 bytes. Durable when it returns, and no part of any
    /// transaction.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidArgument` and `Limit` for names and node sizes, `Unsupported` structures, `UpgradeRequired` if
    /// the database is too old for the structure, `DiskFull`, `Poisoned`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// use trefoil::{Error, IndexOptions};
    ///
    /// let fruit = db.create_index("fruit", IndexOptions::default())?;
    /// assert_eq!(fruit.name(), "fruit");
    /// let again = db.create_index("fruit", IndexOptions::default());
    /// assert!(matches!(again, Err(Error::AlreadyExists { .. })));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn create_index(&self, name: &str, options: IndexOptions) -> Result<Index> {
        self.open.engine.create_plain(name, options, &self.wait()).map(Index)
    }

    /// The plain index of this name.
    ///
    /// # Errors
    /// `NotFound`, `Closed`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// use trefoil::{Error, IndexOptions};
    ///
    /// let veg = match db.index("vegetables") {
    ///     Err(Error::NotFound { .. }) => db.create_index("vegetables", IndexOptions::default())?,
    ///     found => found?,
    /// };
    /// assert_eq!(db.index("vegetables")?.name(), veg.name());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn index(&self, name: &str) -> Result<Index> {
        self.open.engine.check_open()?;
        let found = self.open.engine.names.read().plain.get(name).cloned();
        found.map(Index).ok_or_else(|| Error::NotFound { kind: "index", name: name.to_owned() })
    }

    /// Drops a plain index. Its space comes back when no handle, cursor or transaction that uses it is left.
    ///
    /// # Errors
    /// `NotFound`, `Poisoned`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// use trefoil::Error;
    ///
    /// db.drop_index("fruit")?;
    /// assert!(matches!(db.begin()?.get(&fruit, b"apple"), Err(Error::Dropped { .. })));
    /// assert!(matches!(db.drop_index("fruit"), Err(Error::NotFound { .. })));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn drop_index(&self, name: &str) -> Result<()> {
        self.open.engine.drop_plain(name, &self.wait())
    }

    /// The same database: changes of definitions that are asked for by this handle wait so long, and as long as they are
    /// wanted.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// use std::time::Duration;
    /// use trefoil::{ChangeOptions, Error};
    ///
    /// let impatient = db.changing(ChangeOptions { lock_timeout: Some(Duration::ZERO), ..Default::default() });
    /// let mut tx = db.begin()?;
    /// tx.insert(&people, &[1i64.into()])?;
    /// assert!(matches!(impatient.truncate_table("people"), Err(Error::LockTimeout { waited_ms: 0, .. })));
    /// tx.commit()?;
    /// impatient.truncate_table("people")?;
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn changing(&self, options: ChangeOptions) -> Self {
        Self { open: self.open.clone(), changes: options }
    }

    /// Creates a table, empty, with the secondary indexes of its schema; its name has 1 to 640 bytes. Durable when it
    /// returns, and no part of any transaction.
    ///
    /// # Errors
    /// As [`Database::create_index`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// use trefoil::{ColumnType, IndexSchema, Schema};
    ///
    /// let schema = Schema::builder()
    ///     .column("id", ColumnType::I64)
    ///     .nullable("born", ColumnType::Timestamp)
    ///     .primary_key(&["id"])
    ///     .index(IndexSchema::new("by_birth", &["born"]));
    /// let people = db.create_table("people", schema.build()?)?;
    /// assert_eq!(people.schema().indexes().len(), 1);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn create_table(&self, name: &str, schema: Schema) -> Result<Table> {
        self.open.engine.create_table(name, schema, &self.wait()).map(Table)
    }

    /// The table of this name.
    ///
    /// # Errors
    /// `NotFound`, `Closed`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// use trefoil::Error;
    ///
    /// assert_eq!(db.table("people")?.schema(), people.schema());
    /// assert!(matches!(db.table("animals"), Err(Error::NotFound { kind: "table", .. })));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn table(&self, name: &str) -> Result<Table> {
        self.open.engine.check_open()?;
        let found = self.open.engine.names.read().tables.get(name).cloned();
        found.map(Table).ok_or_else(|| Error::NotFound { kind: "table", name: name.to_owned() })
    }

    /// Drops a table and its indexes.
    ///
    /// # Errors
    /// `NotFound`, `LockTimeout` if writers do not leave, `Poisoned`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// use trefoil::Error;
    ///
    /// db.drop_table("people")?;
    /// let tx = db.begin()?;
    /// assert!(matches!(tx.get_row(&people, &[1i64.into()]), Err(Error::Dropped { .. })));
    /// assert_eq!(db.names().1, Vec::<String>::new());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.open.engine.drop_table(name, &self.wait())
    }

    /// Names of plain indexes, and names of tables, each sorted.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let (indexes, tables) = db.names();
    /// assert_eq!(indexes, ["fruit"]);
    /// assert_eq!(tables, ["people"]); // secondary indexes are in the table's schema
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn names(&self) -> (Vec<String>, Vec<String>) {
        let names = self.open.engine.names.read();
        let mut plain: Vec<_> = names.plain.keys().cloned().collect();
        let mut tables: Vec<_> = names.tables.keys().cloned().collect();
        plain.sort();
        tables.sort();
        (plain, tables)
    }

    /// Checkpoints now: afterwards the log before this moment is not needed any more. The background does it by itself,
    /// before a replay would take longer than [`Options::checkpoint_replay`].
    ///
    /// # Errors
    /// `Poisoned`, `Io`, `DiskFull`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// let before = db.stats().checkpoints;
    /// db.checkpoint()?;
    /// assert!(db.stats().checkpoints > before);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn checkpoint(&self) -> Result<()> {
        self.open.engine.check_open()?;
        self.open.engine.check_not_read_only()?;
        Ok(self.open.engine.run_checkpoint()?)
    }

    /// Makes every commit so far durable, whatever its own durability was.
    ///
    /// # Errors
    /// `Poisoned`, `Io`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// use trefoil::Durability;
    ///
    /// let before = db.stats().log.syncs;
    /// for key in [b"apple", b"lemon", b"mango"] {
    ///     let mut tx = db.begin()?;
    ///     tx.put(&fruit, key, b"1")?;
    ///     tx.commit_with(Durability::Buffered)?; // fast: waits for no disk
    /// }
    /// db.sync()?; // all three survive a power cut from here on
    /// assert!(db.stats().log.syncs > before);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn sync(&self) -> Result<()> {
        self.open.engine.check_open()?;
        Ok(self.open.engine.wal.sync_all()?)
    }

    /// Waits until background work is done: runs drained, dead leaves purged, then a checkpoint. Cleaning keeps to its rate
    /// and may have more to do.
    ///
    /// # Errors
    /// `Poisoned`, `Io`, `DiskFull`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// db.settle()?;
    /// assert_eq!(fruit.stats().run_bytes, 0);
    /// assert!(db.stats().space.live_bytes > 0); // the data file holds it all
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn settle(&self) -> Result<()> {
        self.settle_for(Duration::MAX).map(|_| ())
    }

    /// As [`Database::settle`], but stops the background work after `limit`; the checkpoint comes in any case.
    /// True if all was done.
    ///
    /// # Errors
    /// As [`Database::settle`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// use std::time::Duration;
    ///
    /// let before = db.stats().checkpoints;
    /// let all_done = db.settle_for(Duration::from_secs(60))?;
    /// assert!(all_done && db.stats().checkpoints > before);
    /// assert!(!db.settle_for(Duration::ZERO)?); // no time for the work, still a checkpoint
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn settle_for(&self, limit: Duration) -> Result<bool> {
        self.open.engine.check_open()?;
        self.open.engine.check_not_read_only()?;
        let began = Instant::now();
        self.open.engine.quarantine_noted()?;
        let mut more = true;
        while more && began.elapsed() < limit {
            more = self.open.engine.upkeep_step()?;
        }
        self.open.engine.run_checkpoint()?;
        self.open.engine.wal.give_back()?;
        Ok(!more)
    }

    /// Reads and checks everything, while readers and writers go on; changes of definitions and checkpoints wait for
    /// parts of it. What is damaged is named with its place, and the check goes on behind it. The reports:
    ///
    /// | report | checks |
    /// |---|---|
    /// | `files` | headers, manifest, run files, log |
    /// | each index by name | checksums, order of keys and versions, fences, counts, dead marks, large values, runs |
    /// | `data file` | blocks with two owners, leaked and uncounted bytes; what inner nodes say of those below |
    /// | `TABLE rows` | each row can be read |
    /// | `INDEX against its rows` | a secondary index holds exactly what the rows ask for, at one snapshot |
    ///
    /// # Errors
    /// Only what prevents the check itself; damage is in the reports.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
    /// #     tx.insert(&people, &[id.into(), name.into()])?;
    /// # }
    /// # tx.commit()?;
    /// let reports = db.verify()?;
    /// assert!(reports.iter().all(|(_, report)| report.problems.is_empty()));
    /// let names: Vec<&str> = reports.iter().map(|(name, _)| name.as_str()).collect();
    /// assert!(names.contains(&"people.by_name") && names.contains(&"people.by_name against its rows"));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn verify(&self) -> Result<Vec<(String, VerifyReport)>> {
        self.open.engine.check_open()?;
        crate::verify::verify(&self.open.engine)
    }

    /// Statistics as of now: memory, space, log, locks, and each index. Cheap enough to ask every second.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// let stats = db.stats();
    /// assert_eq!(stats.budget_bytes, 512 << 20); // the default
    /// assert!(stats.log.appended_bytes > 0 && stats.cache.waits == 0);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.open.engine.stats()
    }

    /// For tests: memory is short for a moment. What may leave it does, and is written first where it is dirty.
    ///
    /// # Errors
    /// As of the background: faults of the files.
    #[doc(hidden)]
    pub fn shed_memory(&self) -> Result<()> {
        self.open.engine.check_writable()?;
        Ok(self.open.engine.shed_memory()?)
    }
}
