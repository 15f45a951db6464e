//! The open database behind every handle: the parts, and the few things done with all of them.
//!
//! Nothing here decides; each duty has its own file: [`crate::commit`], [`crate::checkpoint`],
//! [`crate::recovery`], [`crate::ddl`], [`crate::background`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use base::{GcView, IndexId, Lsn, Poison};
use crossbeam_utils::CachePadded;
use index::{LogGate, Upkeep};
use store::{Budget, Cache, Space};
use txn::{Locks, Snapshots, Visible};
use vfs::sync::{Mutex, RwLock};
use vfs::time::Instant;
use wal::Wal;

use crate::entry::{IndexEntry, Names};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::options::Options;
use crate::runs::RunRegistry;
use crate::stats::Counters;

/// The parts of an open database.
pub struct Engine {
    /// Directory, file system, identity, lock.
    pub layout: Layout,
    /// As given at open.
    pub options: Options,
    /// Falls with the first failed write (decision D12).
    pub poison: Poison,
    /// The one memory cap.
    pub budget: Budget,
    /// The log.
    pub wal: Wal,
    /// The data file.
    pub space: Space,
    /// Pages in memory.
    pub cache: Arc<Cache>,
    /// The applied prefix.
    pub visible: Arc<Visible>,
    /// Live snapshots, and what may be collected.
    pub snapshots: Snapshots,
    /// When the GC view was last refreshed, in nanoseconds since open; only a hint.
    pub view_refreshed_ns: CachePadded<AtomicU64>,
    /// Start of the clock behind `view_refreshed_ns`.
    pub opened: Instant,
    /// True while the log is replayed: nothing may be collected (rule P6).
    pub recovering: AtomicBool,
    /// Run files and the commits that named them; see [`crate::runs`].
    pub runs: RunRegistry,
    /// Row locks.
    pub locks: Locks,
    /// Open indexes and tables.
    pub names: RwLock<Names>,
    /// One definition change at a time; holds the dropped indexes whose blocks are still needed.
    pub ddl: Mutex<Vec<Arc<IndexEntry>>>,
    /// Numbers for indexes.
    pub next_index: AtomicU32,
    /// Numbers for runs.
    pub next_run: AtomicU64,
    /// Numbers for transactions.
    pub next_txn: AtomicU64,
    /// One checkpoint at a time; what the last one published.
    pub checkpoint: Mutex<Published>,
    /// Log incarnation of this life.
    pub incarnation: u64,
    /// Log position at which the last checkpoint began, for `checkpoint_due`.
    pub log_at_checkpoint: AtomicU64,
    /// Bytes of the log's ring.
    pub ring_bytes: u64,
    /// The log's end in MiB as the last commit to cross a step saw it; a hint.
    pub log_step: CachePadded<AtomicU64>,
    /// Set by `close`.
    pub closed: AtomicBool,
    /// Background work is asked to stop, or to hurry.
    pub signal: crate::background::Signal,
    /// What is counted.
    pub counters: Counters,
}

/// What the last checkpoint published.
#[derive(Debug, Clone, Default)]
pub struct Published {
    /// Its generation.
    pub generation: u64,
}

/// How old a commit's GC view may be.
const VIEW_AGE_NS: u64 = 1_000_000;

impl Engine {
    /// An error once the database is closed.
    pub fn check_open(&self) -> Result<()> {
        // Relaxed: a handle used while another thread closes may or may not still get through; `close` waits
        // for what did by stopping the background last.
        if self.closed.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    /// An error once the database is closed or refuses writes.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.poison.check()?;
        Ok(())
    }

    /// What a background step may rely on; the applied prefix is read before the view.
    pub fn upkeep(&self) -> Upkeep<'_> {
        let applied = self.visible.visible().as_lsn();
        let view = if self.recovering.load(Ordering::Acquire) {
            GcView::keep_all()
        } else {
            self.snapshots.refresh_view().as_ref().clone()
        };
        Upkeep { view, applied, log: self }
    }

    /// The GC view of a commit: at most about a millisecond old.
    pub fn commit_view(&self) -> Arc<GcView> {
        let now = self.opened.elapsed().as_nanos() as u64;
        let last = self.view_refreshed_ns.load(Ordering::Relaxed);
        // Relaxed: losing the race costs one refresh more or a view a little older, nothing else.
        if now.saturating_sub(last) > VIEW_AGE_NS
            && self.view_refreshed_ns.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            return self.snapshots.refresh_view();
        }
        self.snapshots.view()
    }

    /// Every open index, the catalog included.
    pub fn all_indexes(&self) -> Vec<Arc<IndexEntry>> {
        self.names.read().indexes.values().cloned().collect()
    }

    /// The index with this number.
    pub fn index(&self, id: IndexId) -> Option<Arc<IndexEntry>> {
        self.names.read().indexes.get(&id).cloned()
    }

    /// Wakes the checkpointer once the log behind the last checkpoint passes its bound: the commit that
    /// crosses a step of 1 MiB looks.
    pub fn signal_after_commit(&self, end: Lsn) {
        let step = end.0 >> 20;
        // Relaxed: a hint; two threads that both look do no harm.
        if self.log_step.load(Ordering::Relaxed) != step {
            self.log_step.store(step, Ordering::Relaxed);
            if self.checkpoint_due() {
                self.signal.wake(crate::background::Wake::Checkpoint);
            }
        }
    }
}

impl LogGate for Engine {
    fn durable(&self) -> Lsn {
        self.wal.durable()
    }

    fn make_durable(&self, lsn: Lsn) -> base::Result<()> {
        self.wal.sync_to(lsn)
    }
}
