//! The open database behind every handle: the parts, and the few things done with all of them.
//!
//! Nothing here decides; each duty has its own file: [`crate::commit`], [`crate::checkpoint`],
//! [`crate::recovery`], [`crate::ddl`], [`crate::backup`], [`crate::background`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use base::{GcView, IndexId, Lsn, Poison};
use crossbeam_utils::CachePadded;
use index::{LogGate, Upkeep};
use store::{Budget, Cache, Charge, Class, Space};
use txn::{Locks, Snapshots, Visible, Writers};
use vfs::sync::{Mutex, RwLock};
use vfs::time::Instant;
use wal::Wal;

use crate::background::Wake;
use crate::builds::Progress;
use crate::comparing::Policies;
use crate::controller::{Controller, Debts};
use crate::ddl::Former;
use crate::entry::{IndexEntry, Names};
use crate::error::{Error, Result};
use crate::expiry::Clock;
use crate::flushes::Flushes;
use crate::gate::Steps;
use crate::held_log::HeldLog;
use crate::helpers::Helpers;
use crate::io_budget::IoBudget;
use crate::layout::Layout;
use crate::manifest::Manifest;
use crate::options::Options;
use crate::pace::Spread;
use crate::prepared::ordered::Turns;
use crate::prepared::registry::Registry;
use crate::quarantine::Lost;
use crate::room_to_delete::WaitingDeletes;
use crate::runs::RunRegistry;
use crate::stats::Counters;
use crate::transaction::promise::Promised;

/// The parts of an open database.
pub struct Engine {
    /// Directory, file system, identity, lock.
    pub layout: Layout,
    /// As given at open.
    pub options: Options,
    /// What comparisons switch, as given at open.
    pub policies: Policies,
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
    /// True while the log is replayed.
    pub recovering: AtomicBool,
    /// Run files and the commits that named them; see [`crate::runs`].
    pub runs: Arc<RunRegistry>,
    /// Row locks.
    pub locks: Locks,
    /// Transactions under way that have written.
    pub writers: Writers,
    /// Open indexes and tables.
    pub names: RwLock<Names>,
    /// There is, or was, a foreign key: without one no write looks for any. Relaxed: who has to see it comes behind a lock
    /// that somebody gave back who had seen it, or through a gate.
    pub has_foreign_keys: AtomicBool,
    /// One step of a change of definitions at a time.
    pub steps: Steps,
    /// Index builds under way.
    pub builds: Mutex<Vec<Arc<Progress>>>,
    /// Held from looking at which indexes there are to having changed their rows in the catalog; below `steps`. A
    /// quarantine takes this one alone: it does not wait for a backup.
    pub catalog_rows: Mutex<()>,
    /// Numbers for indexes.
    pub next_index: AtomicU32,
    /// Numbers for runs.
    pub next_run: Arc<AtomicU64>,
    /// Numbers for transactions.
    pub next_txn: AtomicU64,
    /// One checkpoint at a time; what the last one published.
    pub checkpoint: Mutex<Published>,
    /// Who needs the log, and the run files, beyond what a checkpoint does.
    pub held_log: Arc<HeldLog>,
    /// Log incarnation of this life.
    pub incarnation: u64,
    /// Log position at which the last checkpoint began, for `checkpoint_due`.
    pub log_at_checkpoint: AtomicU64,
    /// Bytes written to the data file when the last checkpoint ended, for `checkpoint_due`.
    pub written_at_checkpoint: AtomicU64,
    /// Upkeep did something since the last checkpoint began: it may have made blocks superfluous that the manifest names. Relaxed: a hint.
    pub upkept: AtomicBool,
    /// There may be free space that is left for the checkpoint's thread to give back. Relaxed: a hint.
    pub space_waits: AtomicBool,
    /// Deletes that wait for room on a full disk.
    pub(crate) deletes: WaitingDeletes,
    /// Bytes of the log's ring.
    pub ring_bytes: u64,
    /// The log's ring and the trackers of its prefixes.
    pub _log_charge: Charge,
    /// What the background's threads keep for their I/O.
    pub _work_charge: Charge,
    /// The log's end in MiB as the last commit to cross a step saw it; a hint.
    pub log_step: CachePadded<AtomicU64>,
    /// Set by `close`.
    pub closed: AtomicBool,
    /// Background work is asked to stop, or to hurry.
    pub signal: crate::background::Signal,
    /// Who helps large commits.
    pub helpers: Helpers,
    /// How much the background writes.
    pub io_budget: IoBudget,
    /// What versions expire by.
    pub clock: Clock,
    /// How checkpoints take their time.
    pub spread: Spread,
    /// Room on the disk that running transactions were let in for.
    pub promised: Promised,
    /// How fast commits are admitted.
    pub controller: Controller,
    /// Which memtables are flushed.
    pub flushes: Flushes,
    /// Prepared transactions.
    pub prepared: Registry,
    /// Commits of theirs that are ordered and not applied.
    pub ordered: Turns,
    /// What is counted.
    pub counters: Counters,
}

/// What the last checkpoint published.
#[derive(Debug, Clone, Default)]
pub struct Published {
    /// Its generation.
    pub generation: u64,
    /// What the next one looks for.
    pub lost: Lost,
    /// Another one began since, and did not come to its end: what is counted is not what it names.
    pub is_behind: bool,
    /// What of the log it needs: what lies before may be gone.
    pub floor: Lsn,
    /// F of each index that it names.
    pub skips: BTreeMap<IndexId, Lsn>,
}

impl Published {
    /// What the manifest that was opened says; its indexes come as they are opened.
    pub fn of(manifest: &Manifest) -> Self {
        Self { generation: manifest.generation, floor: manifest.log_floor, ..Self::default() }
    }

    /// F of an index. One that it does not name came after it: all its records are above the catalog's.
    pub fn skip_of(&self, id: IndexId) -> Lsn {
        let of = |id| self.skips.get(&id).copied();
        of(id).or_else(|| of(IndexId::CATALOG)).unwrap_or_default()
    }
}

/// Extents left to cleaning on a full disk: what one pass of a tree moves, at most.
pub(crate) const CLEANING_EXTENTS: u64 = 4;

/// How long a commit waits for runs to be drained before it is refused.
const WALL_MAX: Duration = Duration::from_secs(10);

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
        self.check_not_read_only()?;
        self.poison.check()?;
        Ok(())
    }

    /// An error if the database was opened only to be read.
    pub fn check_not_read_only(&self) -> Result<()> {
        if self.options.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// An error if an index is only read since damage was met in it.
    pub fn check_undamaged(&self, entry: &IndexEntry) -> Result<()> {
        match entry.damage() {
            None => Ok(()),
            Some(damage) => Err(Error::Damaged { name: self.index_name(entry), damage: Box::new(damage.clone()) }),
        }
    }

    /// An error while the disk has no room for more than what was admitted before (rule P4). What frees space is asked
    /// for: a checkpoint.
    pub fn check_room(&self) -> base::Result<()> {
        self.check_room_for(0)
    }

    /// The same for what will owe so much.
    pub fn check_room_for(&self, bytes: u64) -> base::Result<()> {
        let beside = self.cleaning_bytes() + bytes;
        if self.has_room_beside(beside) {
            return Ok(());
        }
        self.space.check_room(self.owed_bytes() + beside).inspect_err(|_| self.signal.wake(Wake::Checkpoint))
    }

    /// True while [`Engine::check_room`] refuses, so far as known without asking the file system.
    pub fn is_full(&self) -> bool {
        !self.has_room_beside(self.cleaning_bytes())
    }

    /// Is there room for what is owed and `bytes` more?
    pub(crate) fn has_room_beside(&self, bytes: u64) -> bool {
        // More than memory can owe: no need to add it up.
        if self.space.has_room(2 * self.budget.limit() + self.promised.bytes() + bytes) {
            return true;
        }
        let owed = self.owed_bytes();
        // Whatever writes at leisure leaves it alone.
        self.space.note_owed(owed);
        self.space.note_owed_pages(self.pages_owed());
        self.space.has_room(owed + bytes)
    }

    /// What is owed, of pages: dirty leaves and all inner nodes.
    pub fn pages_owed(&self) -> u64 {
        self.cache.dirty_bytes() + self.budget.used(Class::Inner)
    }

    /// What cleaning may take before it gives anything back: so much is left to it when statements are refused.
    pub(crate) fn cleaning_bytes(&self) -> u64 {
        CLEANING_EXTENTS * self.space.extent_bytes()
    }

    /// What is in memory and not on disk: dirty leaves and large values beside them, runs, and messages and memtables; and all inner
    /// nodes: leaves written back since the last checkpoint leave theirs to be written by the next one. And what running transactions
    /// were let in for.
    pub(crate) fn owed_bytes(&self) -> u64 {
        let runs: u64 = self.upkept_indexes().iter().map(|entry| entry.index.stats().run_bytes).sum();
        let pages = self.cache.stats().dirty_bytes + self.budget.used(Class::Buffers) + self.budget.used(Class::Inner);
        // A piece of a large value that does not fit the rest of an extent begins another: of two next to each other more than one is full.
        let beside = 2 * self.cache.owed().bytes();
        pages + beside + runs + self.prepared.owed_bytes() + self.promised.bytes()
    }

    /// What a background step may rely on; the applied prefix is read before the view.
    pub fn upkeep(&self) -> Upkeep<'_> {
        let applied = self.visible.visible().as_lsn();
        let recovering = self.recovering.load(Ordering::Acquire);
        let view = self.snapshots.refresh_view().as_ref().clone();
        // Cleaning reads all inner nodes and the leaves it moves: nobody who opens a database waits for that.
        Upkeep { view, applied, log: self, tight: recovering || !self.has_room_beside(0) || !self.may_write() }
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

    /// A snapshot at the end of the log: of all commits that have their position, applied or not. Who reads by it waits for
    /// `visible` first.
    pub fn take_ahead(&self) -> txn::SnapshotSlot {
        self.snapshots.take_ahead(|| self.wal.end().as_commit_ts())
    }

    /// Every open index, the catalog included.
    pub fn all_indexes(&self) -> Vec<Arc<IndexEntry>> {
        self.names.read().indexes.values().cloned().collect()
    }

    /// Those that people are shown: every open index, and rows as they were before they were made anew.
    pub fn shown_indexes(&self) -> Vec<Arc<IndexEntry>> {
        let names = self.names.read();
        names.indexes.values().chain(names.former.iter().map(Former::entry)).cloned().collect()
    }

    /// Every index that holds blocks, by number: the open ones and the dropped ones that are not freed yet.
    pub fn upkept_indexes(&self) -> Vec<Arc<IndexEntry>> {
        let names = self.names.read();
        let with_blocks = names.indexes.values().filter(|entry| !entry.def.quarantined);
        let mut all: Vec<_> = with_blocks.chain(&names.dropped).cloned().collect();
        all.sort_by_key(|entry| entry.id());
        all
    }

    /// The index with this number.
    pub fn index(&self, id: IndexId) -> Option<Arc<IndexEntry>> {
        self.names.read().indexes.get(&id).cloned()
    }

    /// After a commit's locks are released: it waits for the background if that has fallen behind.
    pub fn pay(&self, bytes: u64) {
        self.controller.pay(bytes, self.opened.elapsed(), || self.debts());
    }

    /// Before step 1b: while runs are at their wall, a commit that could leave one more waits for the drain, which needs
    /// nothing of what the commit holds.
    pub fn wait_at_wall(&self) -> Result<()> {
        let full = || {
            self.budget.used(Class::Runs) > self.budget.limit() / 8
                || self.controller.runs_are_full(self.opened.elapsed(), || self.debts())
        };
        if !full() {
            return Ok(());
        }
        let began = Instant::now();
        while full() {
            self.poison.check()?;
            if began.elapsed() > WALL_MAX {
                let (limit, got) = (self.budget.limit() / 8, self.budget.used(Class::Runs));
                return Err(Error::Limit { what: "bytes of runs that are not drained", limit, got });
            }
            self.signal.wake(Wake::Upkeep);
            vfs::thread::sleep(Duration::from_millis(1));
        }
        self.controller.note_wall(began.elapsed());
        Ok(())
    }

    fn debts(&self) -> Debts {
        let log_end = self.wal.end().0;
        let mut debts = Debts {
            committed: log_end,
            written: self.space.written_and_live().0,
            run_memory: self.budget.used(Class::Runs),
            run_memory_max: self.budget.limit() / 8,
            buffered: self.cache.unwritten_bytes(),
            buffered_aim: self.cache.buffered_aim(),
            dirty: self.cache.dirty_bytes(),
            dirty_aim: self.cache.dirty_limit(),
            budget: self.budget.limit(),
            log_behind: self.log_behind(),
            log_free: self.log_free_bytes(),
            log_capacity: self.options.log_capacity_bytes,
            live: self.space.written_and_live().1,
            io_rate: self.io_budget.rate(),
            ..Debts::default()
        };
        // Nothing is collected or moved on a full disk, nor in an index that is damaged: that is no debt.
        let can_work = self.has_room_beside(0);
        for entry in self.upkept_indexes() {
            let stats = entry.index.stats();
            // Nobody waits for what is not drained.
            if entry.damage().is_none() {
                debts.runs += stats.runs;
                debts.ranges += stats.deleted_ranges;
                debts.run_bytes += stats.run_bytes;
            }
            debts.gc_paid += stats.gc_paid_bytes;
            debts.drained += stats.drained_bytes;
            if can_work && entry.is_kept_up() {
                debts.gc += stats.gc_debt_bytes;
                debts.messages += stats.message_bytes;
                debts.messages_aim += stats.message_aim_bytes;
            }
        }
        let cleaning = self.space.cleaning_debt();
        debts.moved = cleaning.moved;
        if can_work {
            (debts.to_move, debts.dead) = (cleaning.to_move, cleaning.dead);
        }
        debts
    }

    /// Wakes the checkpointer once the log behind the last checkpoint passes its bound: the commit that
    /// crosses a step of 1 MiB looks.
    pub fn signal_after_commit(&self, end: Lsn) {
        let step = end.0 >> 20;
        // Relaxed: a hint; two threads that both look do no harm.
        if self.log_step.load(Ordering::Relaxed) != step {
            self.log_step.store(step, Ordering::Relaxed);
            if self.checkpoint_due() {
                self.signal.wake(Wake::Checkpoint);
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // What is prepared is found again by the next opening.
        self.prepared.take_all().into_iter().for_each(|held| held.release(self, None));
    }
}

impl LogGate for Engine {
    fn durable(&self) -> Lsn {
        self.wal.durable()
    }

    fn make_durable(&self, lsn: Lsn) -> base::Result<()> {
        self.wal.sync_to(lsn)
    }

    fn rest(&self) {
        self.rest_from_writing();
    }
}
