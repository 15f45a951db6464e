//! What a user may set. Each option states its unit, range and default; some may be set anew later ([`crate::tuning`]).

use std::sync::Arc;
use std::time::Duration;

use base::{Fault, TellPoison};
use index::Shape;
use vfs::{RealVfs, Vfs};

use crate::error::Result;
use crate::layout::{FORMAT_BETREE, FORMAT_COUNTERS, FORMAT_LSM, FORMAT_OLDEST, FORMAT_TTL};

/// How durable a commit is when `commit` returns: of the database ([`Options::durability`]) or of one commit
/// ([`Transaction::commit_with`](crate::Transaction::commit_with)).
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// use trefoil::Durability;
///
/// let mut tx = db.begin()?;
/// tx.put(&fruit, b"apple", b"12")?;
/// tx.commit_with(Durability::Buffered)?; // seen by others at once, not on disk yet
/// assert!(db.begin()?.get(&fruit, b"apple")?.is_some());
/// db.sync()?; // now it survives a power cut
/// assert_eq!(trefoil::Options::default().durability, Durability::Sync);
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// On disk: survives a power cut. The default.
    #[default]
    Sync,
    /// Handed to the operating system: survives the end of the process, not of the machine.
    Write,
    /// In memory; on disk within a second.
    Buffered,
}

/// What a transaction's reads see: of the database ([`Options::isolation`]) or of one transaction
/// ([`Database::begin_with`](crate::Database::begin_with)). Locking reads and writes see the newest committed rows under
/// all of them. Under REPEATABLE READ and SERIALIZABLE a locking read of a range also keeps others from inserting into it, as
/// far as it was read, until the transaction ends.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// use trefoil::Isolation;
///
/// let repeatable = db.begin()?; // the default
/// let each = db.begin_with(Isolation::ReadCommitted)?;
/// assert!(repeatable.get(&fruit, b"apple")?.is_none() && each.get(&fruit, b"apple")?.is_none());
/// # let mut other = db.begin()?;
/// # other.put(&fruit, b"apple", b"12")?;
/// other.commit()?; // puts an apple
/// assert!(repeatable.get(&fruit, b"apple")?.is_none());
/// assert!(each.get(&fruit, b"apple")?.is_some());
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Isolation {
    /// As READ COMMITTED: what is not committed is nowhere to be read.
    ReadUncommitted,
    /// Each read sees what was committed when it began.
    ReadCommitted,
    /// All plain reads see what was committed when the first one began. The default.
    #[default]
    RepeatableRead,
    /// All reads lock shared what they read, rows and the ranges between them: the outcome is that of some order of the
    /// transactions.
    Serializable,
}

/// Settings of one transaction: [`Database::begin_with`](crate::Database::begin_with). An [`Isolation`] alone will do.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// use std::time::Duration;
/// use trefoil::{Error, TransactionOptions};
///
/// let impatient = TransactionOptions { lock_timeout: Some(Duration::from_millis(5)), ..Default::default() };
/// let (mut first, mut second) = (db.begin()?, db.begin_with(impatient)?);
/// first.put(&fruit, b"apple", b"12")?;
/// assert!(matches!(second.put(&fruit, b"apple", b"13"), Err(Error::LockTimeout { waited_ms: 5, .. })));
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransactionOptions {
    /// Its isolation; none: the database's, [`Options::isolation`].
    pub isolation: Option<Isolation>,
    /// Longest wait for a row lock; none: the database's, [`Options::lock_timeout`].
    pub lock_timeout: Option<Duration>,
    /// Under REPEATABLE READ: a row that was changed after the transaction's snapshot is not written or locked, but gives
    /// [`Error::SnapshotConflict`](crate::Error::SnapshotConflict). So nothing is written over that was not seen. Default
    /// false: writes and locking reads act on the newest committed row.
    pub snapshot_isolation: bool,
}

/// How long changes of definitions wait for others: [`Database::changing`](crate::Database::changing).
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # use trefoil::{ColumnType, Schema};
/// # let schema = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
/// # let people = db.create_table("people", schema)?;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use trefoil::{ChangeOptions, Error};
///
/// let wanted = Arc::new(AtomicBool::new(true));
/// let asked = wanted.clone();
/// let goes_on = move || asked.load(Ordering::Relaxed);
/// let changing = db.changing(ChangeOptions { goes_on: Some(Arc::new(goes_on)), ..Default::default() });
/// let mut tx = db.begin()?;
/// tx.insert(&people, &[1i64.into()])?;
/// wanted.store(false, Ordering::Relaxed); // by another thread
/// assert!(matches!(changing.drop_table("people"), Err(Error::Cancelled))); // it would wait for `tx`
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct ChangeOptions {
    /// Longest wait for transactions that have written to the table, and for another change of it; none: the database's,
    /// [`Options::lock_timeout`].
    pub lock_timeout: Option<Duration>,
    /// Asked now and then while a change waits, and while an index is built, by whatever thread: `false` ends it with
    /// [`Error::Cancelled`](crate::Error::Cancelled).
    pub goes_on: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
    /// A parent of a foreign key that comes may be missing, rows may have none, and tables and indexes that are referred to may go.
    /// Nothing of that is checked later on. A parent that is there has to be fit nevertheless, as has a table that is given the
    /// name of one that is missing; columns that are referred to stay.
    pub unchecked_foreign_keys: bool,
    /// A table that is renamed leaves the foreign keys to it with its name of before, for another one that takes that name.
    pub leave_references: bool,
    /// A table that is renamed is so while none of its writers is inside: those who are decide first, who comes meanwhile waits until
    /// it has its new name.
    pub without_writers: bool,
    /// A table that is created is going to take the place of the table of this name, which stays for now: it has to be fit to be
    /// the parent of that one's children.
    pub takes_place_of: Option<String>,
}

impl ChangeOptions {
    /// An error once the change is not wanted any more.
    pub(crate) fn check(&self) -> crate::Result<()> {
        if self.goes_on.as_ref().is_none_or(|goes_on| goes_on()) { Ok(()) } else { Err(crate::Error::Cancelled) }
    }
}

impl std::fmt::Debug for ChangeOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeOptions").field("lock_timeout", &self.lock_timeout).finish_non_exhaustive()
    }
}

impl From<Isolation> for TransactionOptions {
    fn from(isolation: Isolation) -> Self {
        Self { isolation: Some(isolation), ..Self::default() }
    }
}

/// How an index is stored. What a structure cannot do is refused with `Unsupported`.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// use trefoil::{Error, IndexOptions, Structure};
///
/// let lsm = IndexOptions { structure: Structure::Lsm, ..IndexOptions::default() };
/// db.create_index("events", lsm)?;
/// let counters = IndexOptions { counters: true, ..lsm };
/// assert!(matches!(db.create_index("hits", counters), Err(Error::Unsupported(_)))); // never a silent substitute
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Structure {
    /// The engine's choice when the index is created: `betree`; `btree` in a database older than format 5, or opened with
    /// a budget below 4 MiB.
    #[default]
    Auto,
    /// B-tree.
    Btree,
    /// Bε-tree: a B-tree whose changes for leaves that are not in memory wait in buffers above them.
    /// Needs a database of format 5.
    Betree,
    /// Log-structured merge tree: what is written goes to sorted runs, which are merged in the background. For what is written much
    /// and kept long. Not for counters. Needs a database of format 8.
    Lsm,
}

/// Settings of one index, fixed when it is created.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// use trefoil::{Compression, Error, IndexOptions, Structure};
///
/// let archive = IndexOptions { compression: Compression::Zstd, node_bytes: 64 << 10, ..IndexOptions::default() };
/// db.create_index("archive", archive)?;
/// let odd = IndexOptions { node_bytes: 10_000, ..archive }; // no power of two
/// assert!(matches!(db.create_index("odd", odd), Err(Error::InvalidArgument(_))));
/// let a_day = IndexOptions { structure: Structure::Lsm, ttl_seconds: Some(86_400), ..IndexOptions::default() };
/// let sessions = db.create_index("sessions", a_day)?; // what is put there is gone a day later, by itself
/// assert_eq!(sessions.stats().ttl_seconds, 86_400);
/// let by_device = IndexOptions { structure: Structure::Lsm, prefix_bytes: 8, ..IndexOptions::default() };
/// db.create_index("readings", by_device)?; // keys begin with a device's number, which is what is asked for
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexOptions {
    /// How it is stored. Default [`Structure::Auto`].
    pub structure: Structure,
    /// Compression of its blocks. Default LZ4.
    pub compression: store::Compression,
    /// Node size in memory in bytes: 4096 to 65536, a power of two; 0 = 16 KiB, of a Bε-tree 64 KiB.
    pub node_bytes: usize,
    /// How a log-structured merge tree keeps its runs; of no other structure. Default [`Shape::Lazy`].
    pub shape: Shape,
    /// Its values are counters: an `i64` each, of 8 bytes, little-endian, to which
    /// [`Transaction::add`](crate::Transaction::add) adds. Plain indexes only. Default false.
    pub counters: bool,
    /// Versions expire so many seconds after their commit, as if they had been deleted then: readers do not find them, and their space comes back
    /// by itself. Plain indexes with [`Structure::Lsm`] only; 1 to [`IndexOptions::TTL_SECONDS_MAX`], fixed at creation. None, the default: never.
    /// None expires sooner; how much later, by which clock, and what readers keep: docs/LIMITS.md. Needs a database of format 10.
    pub ttl_seconds: Option<u64>,
    /// The filters of its runs know the first so many bytes of keys, beside the keys: a range of which all keys have these in common reads nothing of runs
    /// that have none. What it takes for keys of the same beginning, a tenant or a device, read some at a time. Plain indexes with [`Structure::Lsm`] only; up
    /// to 256, fixed at creation; 0, the default: no. Needs a database of format 10.
    pub prefix_bytes: usize,
}

/// Sizes of nodes that users may ask for.
const NODE_BYTES_MIN: usize = 4096;
const NODE_BYTES_MAX: usize = 64 * 1024;
/// The size of those who ask for none.
const NODE_BYTES: usize = 16 * 1024;
/// The same of Bε-trees.
const NODE_BYTES_BUFFERED: usize = 64 * 1024;
/// Some dozens of such nodes, the least with which a Bε-tree is of use.
const BETREE_BUDGET_BYTES_MIN: u64 = 4 << 20;
/// The smallest that tests may.
const NODE_BYTES_LEAST: usize = tree::node::NODE_BYTES_MIN;
/// Longest prefix that filters may know.
const PREFIX_BYTES_MAX: usize = 256;

impl IndexOptions {
    /// The longest [`IndexOptions::ttl_seconds`]: a hundred years.
    ///
    /// ```
    /// use trefoil::{Error, IndexOptions, Structure};
    ///
    /// let kept = |ttl_seconds| IndexOptions { structure: Structure::Lsm, ttl_seconds: Some(ttl_seconds), ..IndexOptions::default() };
    /// kept(IndexOptions::TTL_SECONDS_MAX).check()?;
    /// assert!(matches!(kept(IndexOptions::TTL_SECONDS_MAX + 1).check(), Err(Error::InvalidArgument(_))));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub const TTL_SECONDS_MAX: u64 = 100 * 366 * 86_400;

    /// Whether a new index may have these settings.
    ///
    /// # Errors
    /// What creating it would give: `Unsupported` of a structure, `InvalidArgument` of a node size, or of a shape of another structure.
    ///
    /// ```
    /// use trefoil::{Error, IndexOptions, Shape, Structure};
    ///
    /// let counters = IndexOptions { structure: Structure::Lsm, counters: true, ..IndexOptions::default() };
    /// assert!(matches!(counters.check(), Err(Error::Unsupported(_))));
    /// IndexOptions { structure: Structure::Auto, ..counters }.check()?;
    /// let shaped = IndexOptions { structure: Structure::Btree, shape: Shape::Leveled, ..IndexOptions::default() };
    /// assert!(matches!(shaped.check(), Err(Error::InvalidArgument(_))));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn check(&self) -> Result<()> {
        self.check_new().and_then(|()| self.resolve()).map(drop)
    }

    /// As given, or what there is in its place.
    fn node_bytes(&self) -> usize {
        match (self.node_bytes, self.structure) {
            (0, Structure::Betree) => NODE_BYTES_BUFFERED,
            (0, _) => NODE_BYTES,
            (bytes, _) => bytes,
        }
    }

    /// What a write may make dirty beside itself.
    pub(crate) fn leaf_bytes(&self) -> u64 {
        if self.structure == Structure::Lsm { 0 } else { self.node_bytes() as u64 }
    }

    /// The settings for the structure, checked.
    pub(crate) fn resolve(&self) -> Result<index::IndexOptions> {
        let buffered = match self.structure {
            // Indexes that were created before the choice was kept with them.
            Structure::Auto | Structure::Btree => false,
            Structure::Betree => true,
            Structure::Lsm if self.counters => {
                return Err(Fault::Unsupported("an index of counters with STRUCTURE=lsm".into()).into());
            }
            Structure::Lsm => false,
        };
        let node_bytes = self.node_bytes();
        if !node_bytes.is_power_of_two() || !(NODE_BYTES_LEAST..=NODE_BYTES_MAX).contains(&node_bytes) {
            return Err(self.wrong_node_size());
        }
        let (compression, counters, shape) = (self.compression, self.counters, self.shape);
        let prefix_bytes = self.prefix_bytes;
        Ok(index::IndexOptions {
            compression,
            node_bytes,
            buffered,
            counters,
            prefix_bytes,
            shape,
            ..Default::default()
        })
    }

    /// The number under which the catalog keeps structure and shape.
    pub(crate) fn structure_number(&self) -> u8 {
        match (self.structure, self.shape) {
            (Structure::Auto, _) => 0,
            (Structure::Btree, _) => 1,
            (Structure::Betree, _) => 2,
            (Structure::Lsm, Shape::Lazy) => 3,
            (Structure::Lsm, Shape::Leveled) => 4,
            (Structure::Lsm, Shape::Universal) => 5,
        }
    }

    /// Structure and shape of such a number.
    pub(crate) fn of_structure_number(number: u8) -> Option<(Structure, Shape)> {
        Some(match number {
            0 => (Structure::Auto, Shape::default()),
            1 => (Structure::Btree, Shape::default()),
            2 => (Structure::Betree, Shape::default()),
            3 => (Structure::Lsm, Shape::Lazy),
            4 => (Structure::Lsm, Shape::Leveled),
            5 => (Structure::Lsm, Shape::Universal),
            _ => return None,
        })
    }

    /// The same with a structure of its own: what [`Structure::Auto`] means in a new index of a database of this format, under
    /// this budget.
    pub(crate) fn chosen(self, format: u32, budget_bytes: u64) -> Self {
        let structure = match self.structure {
            Structure::Auto if format >= FORMAT_BETREE && budget_bytes >= BETREE_BUDGET_BYTES_MIN => Structure::Betree,
            Structure::Auto => Structure::Btree,
            asked => asked,
        };
        Self { structure, ..self }
    }

    /// Settings with which the nodes of every index can be read, to free what they name.
    pub(crate) fn of_unknown() -> Self {
        Self { structure: Structure::Betree, node_bytes: NODE_BYTES_MAX, ..Self::default() }
    }

    /// The oldest format of a database that may have it.
    pub(crate) fn format(&self) -> u32 {
        match self.structure {
            Structure::Lsm if self.has_extras() => FORMAT_TTL,
            Structure::Lsm => FORMAT_LSM,
            _ if self.counters => FORMAT_COUNTERS,
            Structure::Betree => FORMAT_BETREE,
            Structure::Auto | Structure::Btree => FORMAT_OLDEST,
        }
    }

    /// The same for a new index: what users may ask for. Tests make smaller nodes, see [`crate::fuzzing::small_nodes`].
    pub(crate) fn check_new(&self) -> Result<()> {
        if self.shape != Shape::default() && self.structure != Structure::Lsm {
            let why = format!("shape is {:?} and structure {:?}; only Lsm has shapes", self.shape, self.structure);
            return Err(crate::Error::InvalidArgument(why));
        }
        self.check_ttl()?;
        self.check_prefix()?;
        let small = self.node_bytes != 0 && self.node_bytes < NODE_BYTES_MIN;
        if small && !crate::fuzzing::are_nodes_small() { Err(self.wrong_node_size()) } else { Ok(()) }
    }

    /// True if it has anything that came with format 10.
    pub(crate) fn has_extras(&self) -> bool {
        self.ttl_seconds.is_some() || self.prefix_bytes > 0
    }

    fn check_prefix(&self) -> Result<()> {
        let bytes = self.prefix_bytes;
        if bytes > PREFIX_BYTES_MAX {
            let why = format!("prefix_bytes is {bytes}; it must be at most {PREFIX_BYTES_MAX}");
            return Err(crate::Error::InvalidArgument(why));
        }
        if bytes > 0 && self.structure != Structure::Lsm {
            let why = format!(
                "prefix_bytes with structure {:?}; only indexes with Structure::Lsm have filters of prefixes",
                self.structure
            );
            return Err(Fault::Unsupported(why).into());
        }
        Ok(())
    }

    fn check_ttl(&self) -> Result<()> {
        let Some(seconds) = self.ttl_seconds else { return Ok(()) };
        let range = 1..=Self::TTL_SECONDS_MAX;
        if !range.contains(&seconds) {
            let why = format!("ttl_seconds is {seconds}; it must be from {} to {}", range.start(), range.end());
            return Err(crate::Error::InvalidArgument(why));
        }
        if self.structure != Structure::Lsm {
            let why = format!(
                "ttl_seconds with structure {:?}; only in an index with Structure::Lsm do versions expire",
                self.structure
            );
            return Err(Fault::Unsupported(why).into());
        }
        Ok(())
    }

    fn wrong_node_size(&self) -> crate::Error {
        let (least, most) = (NODE_BYTES_MIN, NODE_BYTES_MAX);
        let why = format!("node_bytes is {}; it must be a power of two from {least} to {most}", self.node_bytes);
        crate::Error::InvalidArgument(why)
    }
}

/// Settings of a database, for as long as it is open; `extent_bytes` is fixed at creation. Name those that differ and
/// take the rest from the default. A budget, log capacity or extent size out of range is refused at open.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// use std::time::Duration;
/// use trefoil::{Database, Durability, Error, Options};
///
/// let small = Options {
///     budget_bytes: 64 << 20,
///     durability: Durability::Write,
///     lock_timeout: Duration::from_secs(5),
///     ..Options::default()
/// };
/// let db = Database::open(dir.path(), small)?;
/// assert_eq!(db.stats().budget_bytes, 64 << 20);
/// # db.close()?;
/// let tiny = Options { budget_bytes: 1024, ..Options::default() };
/// assert!(matches!(Database::open(dir.path(), tiny), Err(Error::InvalidArgument(_))));
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Clone)]
pub struct Options {
    /// Create the database if the directory is empty or absent. Default true.
    pub create: bool,
    /// Open to read only: the directory stays as it is, byte for byte, and need not be writable; what only the log holds
    /// is kept in memory, so the budget has to be large enough for it; whatever would change something gives
    /// [`Error::ReadOnly`](crate::Error::ReadOnly). Several processes may read, none beside one that writes; without a
    /// file `LOCK` that can be opened nothing keeps a writer away. `create` does not count. Default false.
    pub read_only: bool,
    /// The one memory cap, in bytes, at least 256 KiB, sensibly 8 MiB and more: pages, write sets, locks, log
    /// ring and everything else. Default 512 MiB.
    pub budget_bytes: u64,
    /// Log kept before a checkpoint is forced, in bytes, at least 1 MiB. Default 1 GiB.
    pub log_capacity_bytes: u64,
    /// Checkpoints keep the estimated replay after a crash below this. Default 30 s.
    pub checkpoint_replay: Duration,
    /// Durability of commits that do not say. Default [`Durability::Sync`].
    pub durability: Durability,
    /// Isolation of transactions that do not say. Default [`Isolation::RepeatableRead`].
    pub isolation: Isolation,
    /// Longest wait for a row lock. Default 50 s.
    pub lock_timeout: Duration,
    /// Transactions that wait for each other are found at once, and one of them gets
    /// [`Error::Deadlock`](crate::Error::Deadlock). Off, the first whose `lock_timeout` has passed gets `LockTimeout`. Default
    /// true; [`Database::set_deadlock_detect`](crate::Database::set_deadlock_detect) sets it anew.
    pub deadlock_detect: bool,
    /// Bytes of leaves that wait to be collected (`gc_debt_bytes` of all indexes together) from which on writers are slowed
    /// down, step by step up to ten times as many. Default 0: a tenth of what lives in the data file, at least 6.4 MiB;
    /// [`Database::set_gc_debt_limit`](crate::Database::set_gc_debt_limit) sets it anew.
    pub gc_debt_limit_bytes: u64,
    /// Data files bypass the page cache where the file system can. Default true.
    pub direct_io: bool,
    /// Upper bound of the data file in bytes; of a new one at least `disk_reserve_bytes` and sixteen extents. Default none.
    pub data_bytes_max: Option<u64>,
    /// Disk space kept for checkpoints, drops and commits in flight, in bytes; deletes may take a quarter of it. Default 64 MiB.
    pub disk_reserve_bytes: u64,
    /// Extent size in bytes, a power of two from 64 KiB to 4 MiB. Default 1 MiB.
    pub extent_bytes: u64,
    /// Log segment size in bytes, at least 256 KiB, rounded down to whole sectors of 4 KiB. Default 8 MiB; a quarter of
    /// `log_capacity_bytes` if that is less.
    pub log_segment_bytes: u64,
    /// Largest batch of one index applied in place at commit, in bytes; larger ones become a run. Default 1 MiB.
    pub inline_batch_bytes: usize,
    /// A commit of this many operations and more, in several indexes, is applied by several threads, as far as cores are
    /// idle: it takes less time and a little more CPU. `usize::MAX` turns that off. Default 128, below which
    /// waking a thread costs more than it saves.
    pub parallel_apply_from: usize,
    /// Bytes that the background writes to the data file in a second, on average; 0, the default, is no bound. The log is not
    /// counted, nor held up, nor is what a writer waits for: it is written at once, and the rest pays for it. Writers are
    /// slowed down to what the budget keeps up with. [`Database::set_io_budget`](crate::Database::set_io_budget) sets it anew.
    pub io_budget_bytes: u64,
    /// Threads that write pages back, and that drain, purge, merge and clean: together 2 to 64, one in four for the first.
    /// Several indexes are kept in shape side by side, one index by one thread at a time. Default 0: one for two
    /// cores, 2 to 8. The log, checkpoints and large commits have threads of their own.
    pub background_threads: usize,
    /// Background threads on. Off, nothing is written back, purged or checkpointed unless called for: for tests.
    pub background: bool,
    /// What orders the text of columns that have a collation ([`SchemaBuilder::collate`](crate::SchemaBuilder::collate)).
    /// Without it such a database is opened, recovered, backed up and read in the order it has; what needs the sort key of a
    /// text, as writing a row does, gives `InvalidArgument`. Default none.
    pub collations: Option<Arc<dyn crate::Collations>>,
    /// Told the first cause, once, when the database begins to refuse writes ([`Error::Poisoned`](crate::Error::Poisoned)): for a log, or an
    /// alarm. By the thread that met the fault, which may be one of the background and may hold locks of the engine: it
    /// returns soon, and neither calls the database nor waits for who does. Default none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # use vfs::fault::{Action, Class, FaultVfs, Rule};
    /// # let disk = FaultVfs::new(vfs::RealVfs);
    /// use std::sync::{Arc, mpsc};
    /// use trefoil::{Database, Options};
    ///
    /// let (alarm, alarms) = mpsc::channel();
    /// let on_poison = move |cause: &str| drop(alarm.send(cause.to_owned()));
    /// let options = Options { on_poison: Some(Arc::new(on_poison)), ..Options::default() };
    /// # let options = Options { vfs: Arc::new(disk.clone()), ..options };
    /// let db = Database::open(dir.path(), options)?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # disk.faults().add(Rule::new(Action::Eio).on(Class::Sync).path("wal"));
    /// # let mut tx = db.begin()?;
    /// # tx.put(&fruit, b"apple", b"12")?;
    /// assert!(tx.commit().is_err()); // the disk fails
    /// assert!(alarms.try_recv().expect("it is told").starts_with("sync "));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub on_poison: Option<TellPoison>,
    /// The file system. Default the machine's own: [`RealVfs`].
    pub vfs: Arc<dyn Vfs>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            read_only: false,
            budget_bytes: 512 << 20,
            log_capacity_bytes: 1 << 30,
            checkpoint_replay: Duration::from_secs(30),
            durability: Durability::Sync,
            isolation: Isolation::RepeatableRead,
            lock_timeout: Duration::from_secs(50),
            deadlock_detect: true,
            gc_debt_limit_bytes: 0,
            direct_io: true,
            data_bytes_max: None,
            disk_reserve_bytes: 64 << 20,
            extent_bytes: 1 << 20,
            log_segment_bytes: 8 << 20,
            inline_batch_bytes: 1 << 20,
            parallel_apply_from: 128,
            io_budget_bytes: 0,
            background_threads: 0,
            background: true,
            collations: None,
            on_poison: None,
            vfs: Arc::new(RealVfs),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("budget_bytes", &self.budget_bytes)
            .field("log_capacity_bytes", &self.log_capacity_bytes)
            .field("durability", &self.durability)
            .field("isolation", &self.isolation)
            .field("direct_io", &self.direct_io)
            .finish_non_exhaustive()
    }
}
