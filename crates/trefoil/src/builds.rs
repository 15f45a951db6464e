//! Secondary indexes of a table made and dropped, as people ask for it; builds under way, how far they are, and a way to end
//! one. What is done is in [`crate::ddl`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::database::Database;
use crate::ddl::Conversion;
use crate::error::{Error, Result};
use crate::handle::Table;
use crate::options::{ChangeOptions, IndexOptions};
use crate::table::{IndexSchema, TableChanges};

/// How far the build of an index is: [`IndexBuild::stage`].
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// use trefoil::BuildStage;
///
/// let builds = db.index_builds();
/// assert!(builds.iter().all(|build| build.stage() != BuildStage::Registered)); // none waits for writers, none runs
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildStage {
    /// Waits for the end of transactions that wrote to the table before the build began.
    Registered,
    /// Reads the rows and adds their entries.
    Building,
    /// All rows are in it. A unique index: waits for the end of transactions that wrote before this, then looks for values
    /// that two rows have. Then the index is made durable.
    Verifying,
}

/// What is known of a build while it runs, shared with who asks.
#[derive(Debug)]
pub struct Progress {
    table: String,
    indexes: Vec<String>,
    rows: AtomicU64,
    entries: AtomicU64,
    estimate: u64,
    stage: AtomicU8,
    cancelled: AtomicBool,
    /// How long it is wanted.
    options: ChangeOptions,
}

impl Progress {
    /// Of a build that begins.
    pub fn new(table: &str, indexes: Vec<String>, estimate: u64, options: &ChangeOptions) -> Arc<Self> {
        let (rows, entries, stage, cancelled) = Default::default();
        let (table, options) = (table.to_owned(), options.clone());
        Arc::new(Self { table, indexes, rows, entries, estimate, stage, cancelled, options })
    }

    // Relaxed, all of these: numbers for people, and a word that is met at the next look.

    /// The next stage.
    pub fn enter(&self, stage: BuildStage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// More rows were read.
    pub fn read(&self, rows: usize) -> Result<()> {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.check()
    }

    /// More entries were added.
    pub fn added(&self, entries: usize) -> Result<()> {
        self.entries.fetch_add(entries as u64, Ordering::Relaxed);
        self.check()
    }

    /// An error if somebody ended the build, or it is not wanted any more.
    pub fn check(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { self.options.check() }
    }
}

/// The build of one or more secondary indexes of a table that is under way: [`Database::index_builds`].
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// use trefoil::IndexBuild;
///
/// fn show(build: &IndexBuild) -> String {
///     let percent = 100 * build.rows_read() / build.rows_estimated().max(1);
///     format!("{}: {:?} {:?}, {percent} %", build.table(), build.indexes(), build.stage())
/// }
/// db.index_builds().iter().for_each(|build| println!("{}", show(build))); // none here
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct IndexBuild(Arc<Progress>);

impl IndexBuild {
    /// The table.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// assert!(!db.index_builds().iter().any(|build| build.table() == "people"));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn table(&self) -> &str {
        &self.0.table
    }

    /// The indexes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// let is_built = |name: &str| db.index_builds().iter().any(|build| build.indexes().iter().any(|index| index == name));
    /// assert!(!is_built("by_name"));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn indexes(&self) -> &[String] {
        &self.0.indexes
    }

    /// What it does now.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// use trefoil::BuildStage;
    ///
    /// let waiting = db.index_builds().iter().filter(|build| build.stage() == BuildStage::Registered).count();
    /// assert_eq!(waiting, 0);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn stage(&self) -> BuildStage {
        match self.0.stage.load(Ordering::Relaxed) {
            0 => BuildStage::Registered,
            1 => BuildStage::Building,
            _ => BuildStage::Verifying,
        }
    }

    /// Rows read so far.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// let rows: u64 = db.index_builds().iter().map(|build| build.rows_read()).sum();
    /// assert_eq!(rows, 0);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn rows_read(&self) -> u64 {
        self.0.rows.load(Ordering::Relaxed)
    }

    /// Entries added so far: in the end one a row and index, after all rows were read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// let entries: u64 = db.index_builds().iter().map(|build| build.entries_added()).sum();
    /// assert_eq!(entries, 0);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn entries_added(&self) -> u64 {
        self.0.entries.load(Ordering::Relaxed)
    }

    /// Rows that the table had when it began, by the leaves' counts.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// let left = |build: &trefoil::IndexBuild| build.rows_estimated().saturating_sub(build.rows_read());
    /// assert_eq!(db.index_builds().iter().map(left).sum::<u64>(), 0);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn rows_estimated(&self) -> u64 {
        self.0.estimate
    }

    /// Ends it: whoever asked for the index gets [`Error::Cancelled`], and nothing of it stays. Too late once the index is
    /// being made durable.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// db.index_builds().iter().filter(|build| build.table() == "people").for_each(|build| build.cancel());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }
}

/// Rows of a table made anew, beside those that are there: [`Database::begin_table_rows`].
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # use trefoil::{ColumnType, Schema};
/// # let schema = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
/// # let people = db.create_table("people", schema)?;
/// use trefoil::{IndexOptions, RowsChange, Structure};
///
/// let lsm = IndexOptions { structure: Structure::Lsm, ..IndexOptions::default() };
/// let change: RowsChange = db.begin_table_rows(&people, lsm)?;
/// drop(change); // they stay as they are
/// assert_ne!(people.schema().primary_options(), lsm);
/// # Ok::<(), trefoil::Error>(())
/// ```
pub struct RowsChange {
    conversion: Conversion,
    /// Open until the rest is gone, and how long it waits.
    db: Database,
}

impl std::fmt::Debug for RowsChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowsChange").finish_non_exhaustive()
    }
}

impl RowsChange {
    /// From now on changes of definitions that it stands for wait so long, and as long as they are wanted.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// use trefoil::{ChangeOptions, IndexOptions, Structure, TableChanges};
    ///
    /// let btree = IndexOptions { structure: Structure::Btree, ..IndexOptions::default() };
    /// let change = db.begin_table_rows(&people, btree)?;
    /// let at_once = ChangeOptions { lock_timeout: Some(std::time::Duration::ZERO), ..Default::default() };
    /// change.changing(at_once).finish(&TableChanges::new())?;
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn changing(self, options: ChangeOptions) -> Self {
        Self { db: self.db.changing(options), ..self }
    }

    /// Puts them in their place, in a moment, and makes these changes of the table in the same moment: whoever opens the database behind
    /// a process that ended in the middle of that finds all of it, or nothing. If there are changes it waits for transactions that have
    /// written to the table, as [`Database::alter_table`] does.
    ///
    /// # Errors
    /// As [`Database::change_table_rows`] and [`Database::alter_table`]; `InvalidArgument` if a change adds a foreign key. All is as it
    /// was before then.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// use trefoil::{IndexOptions, Structure, TableChanges};
    ///
    /// let btree = IndexOptions { structure: Structure::Btree, ..IndexOptions::default() };
    /// db.begin_table_rows(&people, btree)?.finish(&TableChanges::new())?;
    /// assert_eq!(people.schema().primary_options(), btree);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn finish(self, changes: &TableChanges) -> Result<()> {
        self.conversion.publish(changes, &self.db.wait())
    }
}

impl Database {
    /// Adds secondary indexes to a table in one pass over its rows. Nobody waits for it: readers and writers of the table go
    /// on, and writers keep the new indexes up from its beginning. It waits itself, at most
    /// [`Options::lock_timeout`](crate::Options::lock_timeout), for transactions that have written to the table before; and,
    /// for a unique index, for those that wrote before all rows were in it. How far it is tells
    /// [`Database::index_builds`]. Transactions whose snapshot is older get `DefinitionChanged` when they use such an index.
    ///
    /// # Errors
    /// `LockTimeout` if writers do not end, `InvalidArgument` for unknown columns, `DuplicateKey` if two rows have one value of
    /// a unique index, or a writer would give a row one that is taken: he goes on then; `Cancelled`, `DiskFull`, `Poisoned`;
    /// `UpgradeRequired` if the database is too old for such an index. Nothing stays of an index that was not made.
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
    /// db.create_table_indexes(&people, vec![IndexSchema::new("by_both", &["name", "id"])])?;
    /// let tx = db.begin()?;
    /// let mut entries = tx.scan_index(&people, "by_both", trefoil::ALL)?; // the rows that were there are in it
    /// assert_eq!(entries.next()?.map(|entry| entry[0].clone()), Some("Ada".into()));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn create_table_indexes(&self, table: &Table, indexes: Vec<IndexSchema>) -> Result<()> {
        self.engine().add_indexes(&table.0, indexes, &self.wait())
    }

    /// Makes a secondary index anew from the rows of its table, in one pass: the way back for one that is quarantined, and
    /// for one that [`Database::verify`] found not to agree with its rows. Readers and writers of the table go on, with the index
    /// that is there, as for [`Database::create_table_indexes`].
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` if the rows themselves cannot be read; as [`Database::create_table_indexes`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// for index in db.stats().quarantined {
    ///     println!("{index} is damaged");
    /// }
    /// db.rebuild_index(&people, "by_name")?;
    /// assert!(db.stats().quarantined.is_empty());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn rebuild_index(&self, table: &Table, index: &str) -> Result<()> {
        self.engine().rebuild_index(&table.0, index, &self.wait())
    }

    /// Gives a secondary index other settings: it is made anew from the rows and takes the place of the one that is there.
    /// Readers and writers of the table go on, as for [`Database::create_table_indexes`].
    ///
    /// # Errors
    /// `NotFound`; as [`Database::create_table_indexes`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// use trefoil::{Compression, IndexOptions};
    ///
    /// let dense = IndexOptions { compression: Compression::Zstd, ..IndexOptions::default() };
    /// db.change_table_index(&people, "by_name", dense)?;
    /// assert_eq!(people.schema().indexes()[0].options(), dense);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn change_table_index(&self, table: &Table, index: &str, options: IndexOptions) -> Result<()> {
        self.engine().change_index(&table.0, index, options, &self.wait())
    }

    /// Gives the rows of a table other settings, another structure among them: they are made anew and take the place of those that
    /// are there, however many. Readers and writers of the table go on, and whatever is locked, prepared or looked at stays so, also
    /// by a snapshot from before. Writers write each row twice meanwhile, and go on with that until transactions and cursors that were
    /// under way at its end are over; for snapshots from before its moment the rows are kept as they were. It waits itself as
    /// [`Database::create_table_indexes`] does, and for all who have the rows of an earlier change;
    /// [`Database::index_builds`] tells how far it is, under the name `primary`.
    ///
    /// # Errors
    /// As [`Database::create_table_indexes`]; `Damaged`; `InvalidArgument`, `Unsupported` of settings that rows cannot have; `Limit`
    /// if a primary key is too long for them. The rows stay as they are then. A process that ends in the middle leaves them as they
    /// are or as they were to be.
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
    /// use trefoil::{IndexOptions, Structure};
    ///
    /// let lsm = IndexOptions { structure: Structure::Lsm, ..IndexOptions::default() };
    /// db.change_table_rows(&people, lsm)?;
    /// assert_eq!(people.schema().primary_options(), lsm);
    /// assert_eq!(db.begin()?.get_row(&people, &[2i64.into()])?, Some(vec![2i64.into(), "Grace".into()]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn change_table_rows(&self, table: &Table, options: IndexOptions) -> Result<()> {
        self.begin_table_rows(table, options)?.finish(&TableChanges::new())
    }

    /// The long part of [`Database::change_table_rows`]: the rows are made anew beside those that are there, and are kept up from
    /// then on. [`RowsChange::finish`] puts them in their place; dropped before, nothing of them stays. Until then other changes of
    /// the table wait.
    ///
    /// # Errors
    /// As [`Database::change_table_rows`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// use trefoil::{IndexOptions, Structure, TableChanges};
    ///
    /// let lsm = IndexOptions { structure: Structure::Lsm, ..IndexOptions::default() };
    /// let change = db.begin_table_rows(&people, lsm)?;
    /// assert_ne!(people.schema().primary_options(), lsm);
    /// change.finish(&TableChanges::new().rename_index("by_name", "names"))?;
    /// assert_eq!(people.schema().primary_options(), lsm);
    /// assert_eq!(people.schema().indexes()[0].name(), "names");
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn begin_table_rows(&self, table: &Table, options: IndexOptions) -> Result<RowsChange> {
        let conversion = self.engine().convert_rows(&table.0, options, &self.wait())?;
        Ok(RowsChange { conversion, db: self.clone() })
    }

    /// Waits until nobody needs the rows of a table as they were before an earlier change of them. [`Database::begin_table_rows`] does
    /// that, too: this is for who has something long to do before it, in vain if that fails.
    ///
    /// # Errors
    /// `LockTimeout`, `Cancelled`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// use trefoil::{ChangeOptions, IndexOptions, Structure};
    ///
    /// let before = db.snapshot()?;
    /// let mut tx = db.begin()?;
    /// tx.insert(&people, &[1i64.into()])?;
    /// tx.commit()?;
    /// let btree = IndexOptions { structure: Structure::Btree, ..IndexOptions::default() };
    /// db.change_table_rows(&people, btree)?;
    /// let at_once = ChangeOptions { lock_timeout: Some(std::time::Duration::ZERO), ..Default::default() };
    /// assert!(db.changing(at_once).wait_for_former_rows(&people).is_err()); // the snapshot reads them
    /// drop(before);
    /// db.wait_for_former_rows(&people)?;
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn wait_for_former_rows(&self, table: &Table) -> Result<()> {
        let (engine, wait) = (self.engine(), self.wait());
        let _turn = engine.turn_of(&table.0, &wait)?;
        engine.wait_for_former(&table.0, &wait)
    }

    /// Drops a secondary index of a table. Nobody waits: writers under way leave it out, and transactions that would read it
    /// get `DefinitionChanged` if they have written to the table, `NotFound` otherwise.
    ///
    /// # Errors
    /// `NotFound`, `Poisoned`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// db.drop_table_index(&people, "by_name")?;
    /// assert!(people.schema().indexes().is_empty());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn drop_table_index(&self, table: &Table, index: &str) -> Result<()> {
        self.engine().drop_table_index(&table.0, index, &self.wait())
    }

    /// Builds of secondary indexes under way: [`Database::create_table_indexes`], [`Database::rebuild_index`],
    /// [`Database::change_table_index`] in other threads; and of rows, [`Database::change_table_rows`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// for build in db.index_builds() {
    ///     println!("{}: {} of about {} rows", build.table(), build.rows_read(), build.rows_estimated());
    /// }
    /// assert!(db.index_builds().is_empty());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn index_builds(&self) -> Vec<IndexBuild> {
        self.engine().builds.lock().iter().cloned().map(IndexBuild).collect()
    }
}
