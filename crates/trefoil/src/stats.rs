//! What is counted, and the statistics made of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{CommitTs, IndexId};
use store::{Class, SpaceStats};

use crate::catalog::Role;
use crate::controller::DelayStats;
use crate::engine::Engine;
use crate::entry::IndexEntry;
use crate::said::Said;

/// Counters of the engine itself.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Checkpoints published.
    pub checkpoints: AtomicU64,
    /// Background steps refused for want of disk space.
    pub disk_full: AtomicU64,
    /// `Buffered` commits since the log was last synced for them.
    pub buffered: AtomicU64,
    /// Operations replayed at open.
    pub replayed_operations: AtomicU64,
    /// Times that a transaction moved its writes to files.
    pub spills: AtomicU64,
}

/// Statistics of a database, as of one moment: [`Database::stats`](crate::Database::stats). Sizes are in bytes unless
/// the name says otherwise; counts are since open.
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
/// let used: u64 = stats.memory.iter().map(|(_class, bytes)| bytes).sum();
/// assert!(used > 0 && used <= stats.budget_bytes);
/// assert_eq!(stats.replayed_operations, 0); // this database was not open when a process died
/// assert!(stats.log.syncs > 0 && stats.locks.deadlocks == 0);
/// assert!(stats.indexes.iter().any(|(name, _)| name == "fruit"));
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Memory charged, by class: frames, inner nodes, message buffers, write sets, runs, log, locks, work, outlines.
    pub memory: Vec<(&'static str, u64)>,
    /// The memory cap.
    pub budget_bytes: u64,
    /// What is buffered, messages and memtables, is flushed beyond this: between a quarter and a half of the cap, to where a little more
    /// memory would spare more reads and writes.
    pub buffered_aim_bytes: u64,
    /// The data file.
    pub space: SpaceStats,
    /// The log.
    pub log: wal::WalStats,
    /// Per index: name and numbers. Rows that are made anew, [`Database::change_table_rows`](crate::Database::change_table_rows), are
    /// beside `TABLE.primary` as `TABLE.primary to be`, and as they were before as `TABLE.former primary` for as long as they are kept.
    pub indexes: Vec<(String, index::IndexStats)>,
    /// Times that a transaction moved writes from memory to files.
    pub spills: u64,
    /// Names of secondary indexes that are damaged and set aside: [`Database::rebuild_index`](crate::Database::rebuild_index).
    pub quarantined: Vec<String>,
    /// Names of tables' rows (`TABLE.primary`) and plain indexes that are only read since damage was met in them. A table of which
    /// `TABLE.former primary` is damaged is written: what is damaged are its rows as snapshots from before see them.
    pub damaged: Vec<String>,
    /// Pages in memory, written back, evicted; waits for memory.
    pub cache: store::CacheStats,
    /// Waits for row locks.
    pub locks: txn::locks::LockStats,
    /// Commits that waited for the background, by reason.
    pub delays: Vec<DelayStats>,
    /// Checkpoints since open.
    pub checkpoints: u64,
    /// Transactions that are prepared and not decided: [`Database::prepared`](crate::Database::prepared).
    pub prepared: u64,
    /// Operations replayed at open.
    pub replayed_operations: u64,
    /// Background steps that met a full disk.
    pub disk_full: u64,
    /// The applied prefix.
    pub visible: CommitTs,
    /// The oldest timestamp anyone may read at.
    pub oldest_snapshot: CommitTs,
    /// Moments that somebody reads at just now, the oldest first: transactions, [`Snapshot`](crate::Snapshot)s, builds.
    pub snapshots: Vec<CommitTs>,
}

/// Names of tables, by the index of their rows.
pub(crate) struct TableNames(BTreeMap<IndexId, String>);

impl TableNames {
    /// Name of the index's table; none of a plain one.
    pub fn table_name(&self, entry: &IndexEntry) -> Option<&str> {
        table_of(entry).map(|table| self.0.get(&table).map_or("?", |name| name))
    }

    /// As [`Engine::index_name`] has it.
    fn index_name(&self, entry: &IndexEntry) -> String {
        match self.table_name(entry) {
            Some(table) => format!("{table}.{}", entry.name()),
            None => entry.name().to_owned(),
        }
    }
}

/// The table whose index this is; none of a plain one.
fn table_of(entry: &IndexEntry) -> Option<IndexId> {
    match (entry.def.role, entry.said()) {
        (Role::Primary, Some(Said::Owner(table))) | (Role::Secondary(table), _) => Some(table),
        (Role::Primary, _) => Some(entry.id()),
        (Role::Plain, _) => None,
    }
}

impl Engine {
    /// Name of an index for people: `name`, or `table.name`.
    pub fn index_name(&self, entry: &IndexEntry) -> String {
        let Some(table) = table_of(entry) else { return entry.name().to_owned() };
        let names = self.names.read();
        let table_name = names.tables.iter().find(|(_, t)| t.id == table).map_or("?", |(name, _)| name);
        format!("{table_name}.{}", entry.name())
    }

    /// Names of all tables, for who asks about many indexes.
    pub fn table_names(&self) -> TableNames {
        TableNames(self.names.read().tables.iter().map(|(name, table)| (table.id, name.clone())).collect())
    }

    /// Gathers the statistics.
    pub fn stats(&self) -> Stats {
        let classes = [
            ("frames", Class::Frames),
            ("inner", Class::Inner),
            ("buffers", Class::Buffers),
            ("write_sets", Class::WriteSets),
            ("runs", Class::Runs),
            ("log", Class::Log),
            ("locks", Class::Locks),
            ("work", Class::Work),
            ("outlines", Class::Outlines),
        ];
        let cache = self.cache.stats();
        let (quarantined, usable): (Vec<_>, Vec<_>) =
            self.shown_indexes().into_iter().partition(|entry| entry.def.quarantined);
        let names = self.table_names();
        Stats {
            memory: classes.iter().map(|(n, c)| (*n, self.budget.used(*c))).collect(),
            budget_bytes: self.budget.limit(),
            buffered_aim_bytes: self.cache.buffered_aim(),
            space: self.space.stats(),
            log: self.wal.stats(),
            quarantined: quarantined.iter().map(|entry| names.index_name(entry)).collect(),
            damaged: usable.iter().filter(|e| e.damage().is_some()).map(|e| names.index_name(e)).collect(),
            indexes: usable.iter().map(|e| (names.index_name(e), e.index.stats())).collect(),
            cache,
            delays: self.controller.stats(),
            prepared: self.prepared.list().len() as u64,
            checkpoints: self.counters.checkpoints.load(Ordering::Relaxed),
            spills: self.counters.spills.load(Ordering::Relaxed),
            replayed_operations: self.counters.replayed_operations.load(Ordering::Relaxed),
            disk_full: self.counters.disk_full.load(Ordering::Relaxed),
            visible: self.visible.visible(),
            oldest_snapshot: self.snapshots.view().oldest(),
            snapshots: self.snapshots.live(),
            locks: self.locks.stats(),
        }
    }
}
