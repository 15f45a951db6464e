//! Trefoil: a transactional storage engine whose index structure is chosen per index.
//!
//! Start at [`Database`]. Plain ordered indexes: [`Database::create_index`]; typed tables with secondary indexes:
//! [`Database::create_table`]. Everything is synchronous; handles are cheap to clone and may be used from many
//! threads; a [`Transaction`] belongs to one thread at a time and rolls back when dropped. The default durability
//! is [`Durability::Sync`]: a commit that has returned survives a power cut.
//!
//! How it works: docs/ARCHITECTURE.md.

#![forbid(unsafe_code)]

mod advise;
mod alter;
mod background;
mod backup;
mod build;
mod builds;
mod catalog;
mod checkpoint;
mod commit;
#[doc(hidden)]
pub mod comparing;
mod controller;
mod counters;
mod cursor;
mod database;
mod ddl;
mod distinct;
mod due;
mod engine;
mod entry;
mod error;
mod estimate;
mod expiry;
mod flushes;
mod foreign;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod handle;
mod held_log;
mod helpers;
mod inventory;
mod io_budget;
mod key_limits;
mod layout;
mod locking;
mod make_way;
mod manifest;
mod open;
mod options;
mod pace;
mod pair;
mod prepared;
mod quarantine;
mod ranged_runs;
mod read_only;
mod record;
mod recovery;
mod refused;
mod room_to_delete;
mod rows;
mod runs;
mod said;
mod snapshot;
mod stats;
pub mod table;
mod transaction;
mod tuning;
mod upgrade;
mod verify;
mod waits;

/// What is wrong, and where: in [`Error::Corrupt`], and one for each damage in the reports of [`Database::verify`].
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// use trefoil::Corruption;
///
/// let mut found: Vec<Corruption> = db.verify()?.into_iter().flat_map(|(_, report)| report.problems).collect();
/// found.sort_by(|a, b| (&a.file, a.offset).cmp(&(&b.file, b.offset)));
/// found.iter().for_each(|damage| println!("{damage}")); // none here
/// # assert!(found.is_empty());
/// # Ok::<(), trefoil::Error>(())
/// ```
pub use base::Corruption;
/// Number of an index in [`Corruption::index`]; never used again after a drop. 0 is the catalog.
///
/// ```
/// use trefoil::{Corruption, IndexId};
///
/// fn is_in_the_catalog(damage: &Corruption) -> bool {
///     damage.index == Some(IndexId(0))
/// }
/// # let _ = is_in_the_catalog;
/// ```
pub use base::IndexId;

pub use advise::{Advice, Amplification};
pub use backup::{Backup, BackupMoment, BackupProgress};
/// Commits are ordered by it, and a snapshot sees those at or below its own. It is a position in the log, in bytes:
/// it grows with every commit that writes, skips numbers, and is never given out twice in the life of the database.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// let mut tx = db.begin()?;
/// tx.put(&fruit, b"apple", b"12")?;
/// let first = tx.commit()?;
/// let seen = db.snapshot()?;
/// # let mut tx = db.begin()?;
/// # tx.put(&fruit, b"apple", b"13")?;
/// let second = tx.commit()?; // another put
/// assert!(first <= seen.ts() && seen.ts() < second);
/// # Ok::<(), trefoil::Error>(())
/// ```
pub use base::CommitTs;
pub use builds::{BuildStage, IndexBuild, RowsChange};
pub use controller::DelayStats;
pub use cursor::Cursor;
pub use database::Database;
pub use error::{Duplicate, Error, ForeignKeyFailure, ForeignKeyFailureKind, Result};
pub use estimate::TableStats;
pub use handle::{Index, Table};
/// Keys that a reader passed over because they cannot be read: [`Cursor::skipped`], [`Rows::skipped`]. Rows from `low` on
/// and below `high` may be missing; what stands there is the newest version of its row.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// use trefoil::DamagedRange;
///
/// fn may_be_missing(key: &[u8], skipped: &[DamagedRange]) -> bool {
///     skipped.iter().any(|range| range.contains(key))
/// }
/// let snapshot = db.snapshot()?;
/// let mut all = snapshot.range(&fruit, ..)?.skip_damaged();
/// while let Some((key, value)) = all.next()? {
///     println!("{key:?} {value:?}");
/// }
/// all.skipped().iter().for_each(|range| eprintln!("{range}")); // none here
/// assert!(!may_be_missing(b"apple", all.skipped()));
/// # Ok::<(), trefoil::Error>(())
/// ```
pub use index::DamagedRange;
/// Of one index: [`Index::stats`], [`Stats::indexes`]. Bytes where the name says so, else counts.
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
/// let stats = fruit.stats();
/// assert_eq!((stats.live_keys, stats.leaves), (3, 1)); // three keys in one leaf
/// assert_eq!((stats.loads, stats.run_bytes), (0, 0));
/// # Ok::<(), trefoil::Error>(())
/// ```
pub use index::IndexStats;
/// One level of a log-structured merge tree: [`IndexStats::levels`], that which flushes write to first.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// use trefoil::{IndexOptions, LevelStats, Structure};
///
/// let fruit = db.create_index("fruit", IndexOptions { structure: Structure::Lsm, ..IndexOptions::default() })?;
/// let mut tx = db.begin()?;
/// tx.put(&fruit, b"apple", b"12")?;
/// tx.commit()?;
/// db.checkpoint()?; // what was in memory is a run now
/// let stats = fruit.stats();
/// let used: Vec<&LevelStats> = stats.levels.iter().filter(|level| level.runs > 0).collect();
/// assert_eq!((used.len(), used[0].versions, used[0].dead_share()), (1, 1, 0.0));
/// assert!(stats.write_amplification() > Some(0.0) && stats.space_amplification() == Some(1.0));
/// # Ok::<(), trefoil::Error>(())
/// ```
pub use index::LevelStats;
/// How the runs of a log-structured merge tree are kept: [`IndexOptions::shape`].
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// use trefoil::{IndexOptions, Shape, Structure};
///
/// let lsm = IndexOptions { structure: Structure::Lsm, ..IndexOptions::default() };
/// db.create_index("events", lsm)?; // lazy
/// db.create_index("archive", IndexOptions { shape: Shape::Leveled, ..lsm })?; // the least space
/// # Ok::<(), trefoil::Error>(())
/// ```
pub use index::Shape;
/// Of one index: [`Database::verify`]. Sound if `problems` is empty.
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
/// for (name, report) in db.verify()? {
///     assert!(report.problems.is_empty(), "{name}: {:?}", report.problems);
///     assert!(name != "fruit" || report.entries == 3);
/// }
/// # Ok::<(), trefoil::Error>(())
/// ```
pub use index::VerifyReport;
pub use inventory::{IndexHealth, IndexInfo};
pub use locking::{LockMode, LockWait, Locking};
pub use options::{ChangeOptions, Durability, IndexOptions, Isolation, Options, Structure, TransactionOptions};
pub use prepared::PreparedTransaction;
pub use prepared::ordering::{OrderedCommit, ReadyCommit};
pub use rows::{ALL, Entries, EntryRef, IndexRows, Judged, RowRef, Rows, Upserted, ValueRange};
pub use snapshot::Snapshot;
pub use stats::Stats;
/// Pages in memory: [`Stats::cache`].
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// # let mut tx = db.begin()?;
/// # tx.put(&fruit, b"apple", b"12")?;
/// # tx.commit()?;
/// use trefoil::CacheStats;
///
/// let cache: CacheStats = db.stats().cache;
/// assert_eq!((cache.waits, cache.refused), (0, 0)); // nobody waited for memory
/// # Ok::<(), trefoil::Error>(())
/// ```
pub use store::CacheStats;
/// Set by [`IndexOptions::compression`]; the default is LZ4. Checksums are there with each of them.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// use trefoil::{Compression, IndexOptions};
///
/// let colours = IndexOptions { compression: Compression::None, ..IndexOptions::default() };
/// db.create_index("colours", colours)?;
/// assert_eq!(IndexOptions::default().compression, Compression::Lz4);
/// # Ok::<(), trefoil::Error>(())
/// ```
pub use store::Compression;
/// The data file, in bytes: [`Stats::space`].
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// # let mut tx = db.begin()?;
/// # tx.put(&fruit, b"apple", b"12")?;
/// # tx.commit()?;
/// use trefoil::SpaceStats;
///
/// db.checkpoint()?;
/// let space: SpaceStats = db.stats().space;
/// assert!(0 < space.live_bytes && space.live_bytes <= space.file_bytes);
/// # Ok::<(), trefoil::Error>(())
/// ```
pub use store::SpaceStats;
pub use table::{
    Collations, Column, ColumnType, ForeignKey, FromColumn, FromRow, IndexSchema, KeyPart, OwnedValue, ReferenceAction,
    RowVisitor, Schema, SchemaBuilder, TableChanges, Timestamp, Value,
};
pub use transaction::{Savepoint, Transaction};
/// Row locks: [`Stats::locks`].
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// # let mut tx = db.begin()?;
/// # tx.put(&fruit, b"apple", b"12")?;
/// # tx.commit()?;
/// use trefoil::LockStats;
///
/// let locks: LockStats = db.stats().locks;
/// assert_eq!((locks.waits, locks.deadlocks), (0, 0));
/// # Ok::<(), trefoil::Error>(())
/// ```
pub use txn::locks::LockStats;
pub use upgrade::Upgraded;
/// The machine's own files: the default of [`Options::vfs`].
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// use std::sync::Arc;
/// use trefoil::{Database, Options, RealVfs};
///
/// Database::open(dir.path(), Options { vfs: Arc::new(RealVfs), ..Options::default() })?;
/// # Ok::<(), trefoil::Error>(())
/// ```
pub use vfs::RealVfs;
/// What the engine asks of files: [`Options::vfs`]. Another one than the machine's own stands in tests: a disk that fails,
/// or is simulated.
///
/// ```
/// use std::sync::Arc;
/// use trefoil::{Options, Vfs};
///
/// fn on(disk: Arc<dyn Vfs>) -> Options {
///     Options { vfs: disk, ..Options::default() }
/// }
/// # let _ = on;
/// ```
pub use vfs::Vfs;
pub use waits::{Canceller, Deadlock, LockEdge, LockWaitNews, RowLock};
