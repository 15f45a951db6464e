//! Which pages stay in memory: a second-chance clock over pages that others own, write-back ahead of the
//! foreground, and the grants that committers get before they take an LSN (rules A5, A6, B8).
//!
//! | file | owns |
//! |---|---|
//! | `mod.rs` | the public face: pages, options, counters |
//! | `clock.rs` | the places of pages, in shards |
//! | `grant.rs` | memory promised to the foreground, and the wait for it (reason `frames`) |
//! | `funds.rs` | memory for one commit, which may change several indexes |
//! | `owed.rs` | what pages owe to the data file beside their own bytes |
//! | `step.rs` | one step of the background: evict, write back, wake |
//!
//! The engine's background thread loops: [`Cache::wait_for_work`] → [`Cache::step`]. A foreground thread never
//! writes a page (B8): it takes a [`Grant`] first, and if memory is short it waits for the background, before it
//! holds a latch or an LSN; where the background waits for the disk, it evicts what is clean.
//!
//! Why a clock and not an order of use: a hit sets a bit in the page, which is read first, so that a hot page's
//! hits write nothing; an order of use would move list entries under a lock.

mod clock;
mod funds;
mod grant;
mod owed;
mod step;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{GcView, Lsn, Result};
use crossbeam_utils::CachePadded;

use crate::{Balance, Block, Budget, Class, Frame, FramePool, LeftAt, NewBlock, Slabs};

pub use funds::Funds;
pub use grant::Grant;
pub use owed::{Owed, Owing};
pub use step::StepReport;

/// What came of an attempt to evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evict {
    /// The page left memory; its charge was dropped.
    Evicted,
    /// It has to be written first.
    Dirty,
    /// Pinned, latched or being written; try later.
    Busy,
    /// It is no longer a page in memory: forget it.
    Gone,
}

/// What a page's write may rely on.
#[derive(Debug, Clone)]
pub struct WriteEnv {
    /// One GC view for the whole write (rule A5).
    pub view: GcView,
    /// The applied prefix, read before the page is looked at (rule A4).
    pub applied: Lsn,
    /// The log was durable to here when this was made.
    pub durable: Lsn,
}

/// A page on its way to disk.
pub struct PageWrite {
    /// The page's blocks.
    pub blocks: Vec<NewBlock>,
    /// The log must be durable to this position before the blocks are written (rule A6).
    pub log_need: Lsn,
    /// Called with the blocks in the order given, or with the fault.
    pub done: WriteDone,
}

/// Takes what came of a page's write: its blocks, in the order given, or the fault.
pub type WriteDone = Box<dyn FnOnce(Result<Vec<Arc<Block>>>) + Send>;

/// A page that lives in the cache: a leaf, later a block of a run. The owner keeps it; the cache only holds
/// a weak place in its clock.
pub trait Page: Send + Sync {
    /// Takes the reference bit.
    fn take_referenced(&self) -> bool;
    /// Leaves memory if clean and unpinned. Never blocks.
    fn try_evict(&self) -> Evict;
    /// It left memory to make room, at this moment; it may be there again. To be told to [`Cache::note_page_read`].
    fn note_left(&self, _at: LeftAt) {}
    /// Starts writing a dirty page: encodes it under its latch, leaves it readable and writable. `Ok(None)`
    /// if it is clean, gone or already being written.
    fn begin_write(self: Arc<Self>, env: &WriteEnv) -> Result<Option<PageWrite>>;
    /// The log position its write would need now, as far as that is known without blocking: pages whose need is
    /// already durable are written first. A hint; [`PageWrite::log_need`] decides.
    fn log_need_hint(&self) -> Lsn {
        Lsn::ZERO
    }
    /// False if the page is clean, as far as that is known without blocking: a hint, to spare `begin_write` when
    /// dirty pages are written ahead of eviction.
    fn is_dirty_hint(&self) -> bool {
        true
    }
}

/// Answers for the log, and for when to go on.
pub trait LogGate: Send + Sync {
    /// The log is durable to here.
    fn durable(&self) -> Lsn;
    /// Makes it durable to at least `lsn`.
    fn make_durable(&self, lsn: Lsn) -> Result<()>;
    /// Called between the batches of a checkpoint, with no latch held: waits while more is written than may be.
    fn rest(&self) {}
    /// Called between steps, with no latch held: leaves the processors to others for a while.
    fn give_way(&self) {}
}

/// Settings of the cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheOptions {
    /// Size of an ordinary page, in bytes.
    pub page_bytes: u64,
    /// Free memory kept ready: at least this many pages, and at least a fiftieth of the budget; never more than an
    /// eighth of it.
    pub ready_pages: u64,
    /// Dirty pages are written back ahead of eviction above this share of the budget, in percent.
    pub dirty_percent: u64,
    /// Pages of one write-back batch, at most.
    pub batch_pages: usize,
    /// Bytes of one write-back batch; the page that passes it is the last.
    pub batch_bytes: u64,
    /// How long a grant waits before it is refused.
    pub grant_timeout: Duration,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            page_bytes: 16 << 10,
            ready_pages: 64,
            dirty_percent: 40,
            batch_pages: 64,
            batch_bytes: 1 << 20,
            grant_timeout: Duration::from_secs(10),
        }
    }
}

/// Counts of one cache, since open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Places in the clock, now.
    pub pages: u64,
    /// Dirty bytes, as told by [`Cache::note_dirty`] and [`Cache::note_clean`], now.
    pub dirty_bytes: u64,
    /// Pages evicted.
    pub evicted_pages: u64,
    /// Pages written back.
    pub written_pages: u64,
    /// Bytes of their blocks.
    pub written_bytes: u64,
    /// Grants that had to wait (reason `frames`).
    pub waits: u64,
    /// Sum of their waits, in microseconds.
    pub wait_sum_us: u64,
    /// The worst of them, in microseconds.
    pub wait_worst_us: u64,
    /// Grants refused after the timeout.
    pub refused: u64,
}

/// The cache of one database.
pub struct Cache {
    budget: Budget,
    options: CacheOptions,
    balance: Balance,
    frames: Arc<FramePool>,
    clock: clock::Clock,
    grants: grant::Grants,
    owed: Owed,
    /// Signed, because a page may tell "clean" before the thread that made it dirty has told so. Relaxed: a
    /// threshold, no order hangs on it.
    dirty_bytes: CachePadded<AtomicI64>,
    evicted_pages: AtomicU64,
    written_pages: AtomicU64,
    written_bytes: AtomicU64,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("options", &self.options).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Cache {
    /// A cache under `budget`.
    #[must_use]
    pub fn new(budget: Budget, options: CacheOptions) -> Self {
        Self {
            balance: Balance::new(budget.limit()),
            frames: FramePool::new(budget.limit(), ready_bytes(&budget, &options)),
            budget,
            options,
            clock: clock::Clock::default(),
            grants: grant::Grants::default(),
            owed: Owed::default(),
            dirty_bytes: CachePadded::default(),
            evicted_pages: AtomicU64::new(0),
            written_pages: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        }
    }

    /// The budget it works under.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// How it is shared between pages and what is buffered.
    #[must_use]
    pub fn balance(&self) -> &Balance {
        &self.balance
    }

    /// What is buffered is flushed beyond this, in bytes.
    #[must_use]
    pub fn buffered_aim(&self) -> u64 {
        self.balance.buffered_aim()
    }

    /// Bytes of what is buffered beside memtables that are sealed.
    #[must_use]
    pub fn unsealed_bytes(&self) -> u64 {
        self.budget.used(Class::Buffers).saturating_sub(self.balance.sealed_bytes())
    }

    /// Bytes of what is buffered that are not written yet.
    #[must_use]
    pub fn unwritten_bytes(&self) -> u64 {
        self.budget.used(Class::Buffers).saturating_sub(self.balance.written_bytes())
    }

    /// A page that left memory at that moment is read from disk, as `bytes`.
    pub fn note_page_read(&self, left: LeftAt, bytes: u64) {
        self.balance.note_page_read(left, bytes);
        self.balance.look_if_due(&self.budget);
    }

    /// Messages that took `bytes` of memory are flushed.
    pub fn note_flushed(&self, bytes: u64) -> LeftAt {
        let at = self.balance.note_flushed(bytes);
        self.balance.look_if_due(&self.budget);
        at
    }

    /// Messages that were flushed at that moment are read from disk, as `bytes`.
    pub fn note_messages_read(&self, flushed: LeftAt, bytes: u64) {
        self.balance.note_messages_read(flushed, bytes);
        self.balance.look_if_due(&self.budget);
    }

    /// A merge wrote `bytes` of an index that has `data_bytes` on disk.
    pub fn note_merged(&self, bytes: u64, data_bytes: u64) {
        self.balance.note_merged(bytes, data_bytes);
        self.balance.look_if_due(&self.budget);
    }

    /// Pages of one write-back batch, at most: for who writes pages beside the cache.
    #[must_use]
    pub fn batch_pages(&self) -> usize {
        self.options.batch_pages
    }

    /// A frame for a page of `bytes`; the page's charge is its owner's.
    #[must_use]
    pub fn frame(&self, bytes: usize) -> Frame {
        self.frames.frame(bytes)
    }

    /// Where its frames come from.
    #[must_use]
    pub fn frames(&self) -> &Arc<FramePool> {
        &self.frames
    }

    /// Slabs of `bytes` each from the same frames, charged to `class`.
    #[must_use]
    pub fn slabs(&self, class: Class, bytes: usize) -> Arc<Slabs> {
        Slabs::new(self.frames.clone(), self.budget.clone(), class, bytes)
    }

    /// Gives a page a place in the clock, once for each stay in memory. The page's owner holds its charge.
    pub fn insert(&self, page: Weak<dyn Page>, bytes: u64) {
        self.clock.insert(page, bytes);
    }

    /// The same for a page that nobody has read yet: until somebody has, it is the first to leave.
    pub fn insert_spare(&self, page: Weak<dyn Page>, bytes: u64) {
        self.clock.insert_first(page, bytes);
    }

    /// A page that its owner does not need any more leaves memory, if it can at once.
    pub fn let_go(&self, page: &dyn Page) {
        if page.try_evict() == Evict::Evicted {
            self.evicted_pages.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A clean page of `bytes` became dirty. Told on the change of state only, not on every write.
    pub fn note_dirty(&self, bytes: u64) {
        let before = self.dirty_bytes.fetch_add(bytes as i64, Ordering::Relaxed);
        let limit = self.dirty_limit() as i64;
        if before <= limit && before + bytes as i64 > limit {
            self.grants.call_worker();
        }
    }

    /// A dirty page of `bytes` became clean, or left memory dirty.
    pub fn note_clean(&self, bytes: u64) {
        self.dirty_bytes.fetch_sub(bytes as i64, Ordering::Relaxed);
    }

    /// What pages owe to the data file beside their own bytes.
    #[must_use]
    pub fn owed(&self) -> &Owed {
        &self.owed
    }

    /// Counts.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats {
            pages: self.clock.len(),
            dirty_bytes: self.dirty_bytes(),
            evicted_pages: self.evicted_pages.load(Ordering::Relaxed),
            written_pages: self.written_pages.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            ..CacheStats::default()
        };
        self.grants.add_stats(&mut stats);
        stats
    }

    /// True if what comes into memory soon makes something else leave it.
    #[must_use]
    pub fn is_nearly_full(&self) -> bool {
        self.budget.free() < 2 * self.ready_bytes()
    }

    /// True if somebody waits for memory.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.grants.waiting_bytes() != (0, 0)
    }

    /// True if somebody waits for more memory than is free.
    #[must_use]
    pub fn is_waited_for_in_vain(&self) -> bool {
        let (for_pages, for_all) = self.grants.waiting_bytes();
        let left_to_pages = self.budget.page_floor().saturating_sub(self.budget.used(Class::Frames));
        let floor = if for_all > for_pages { left_to_pages } else { 0 };
        for_all > 0 && self.budget.free() < for_all + floor
    }

    /// Memory was made free by other means than [`Cache::step`]: whoever waits looks again.
    pub fn note_freed(&self) {
        self.grants.wake_waiters();
    }

    /// Bytes of dirty pages, now.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// Dirty bytes above which pages are written ahead of eviction: less where more of the budget is for what is buffered.
    #[must_use]
    pub fn dirty_limit(&self) -> u64 {
        let more_buffered = self.buffered_aim().saturating_sub(self.budget.limit() / 4);
        (self.budget.limit() / 100 * self.options.dirty_percent).saturating_sub(more_buffered / 2)
    }

    fn ready_bytes(&self) -> u64 {
        ready_bytes(&self.budget, &self.options)
    }
}

/// Free memory to keep ready, in bytes.
fn ready_bytes(budget: &Budget, options: &CacheOptions) -> u64 {
    let limit = budget.limit();
    (options.ready_pages * options.page_bytes).max(limit / 50).min(limit / 8)
}
