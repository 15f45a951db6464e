//! One step of the background.
//!
//! 1. Aim: free memory = what is kept ready + what grants wait for; dirty bytes below their limit. For other
//!    classes than frames pages are evicted down to their floor only: past it, eviction helps nobody.
//!    Replaced values of [`crate::EpochCell`]s that nobody reads any more are dropped: their memory counts, too.
//! 2. Sweep the clock, at most twice around: a referenced page loses its bit and stays; a clean one is evicted while
//!    memory is short; a dirty one is noted for the batch; a gone one is forgotten.
//! 3. Write back the batch: pages whose log need is known durable first. Each page is encoded by `begin_write`,
//!    then the log is made durable to the highest need of the batch (A6), then all blocks go out in one
//!    [`Space::write`], then each page's `done` is called.
//! 4. While memory is short, pages of the batch are tried for eviction at once: they were not referenced a moment
//!    ago.
//! 5. Waiters are woken.
//!
//! Invariants: every `PageWrite` begun is ended by `done`, with the blocks or with the fault; no place is lost.
//!
//! Several threads may step at the same time: each works on the places it took.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Result;

use super::clock::{Place, SHARDS};
use super::{Cache, Evict, LogGate, Page, PageWrite, WriteEnv};
use crate::{AllocScope, Class, NewBlock, Space, epoch};

/// Places taken from a shard at a time.
const STRIDE: usize = 32;

/// What a step did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepReport {
    /// Pages evicted.
    pub evicted_pages: u64,
    /// Their bytes.
    pub evicted_bytes: u64,
    /// Pages written back.
    pub written_pages: u64,
    /// Bytes of the blocks written, as stored.
    pub written_bytes: u64,
    /// Pages that were pinned, latched or being written.
    pub busy_pages: u64,
    /// True if the aim was not reached: step again at once if something was done, soon otherwise.
    pub more: bool,
}

impl StepReport {
    /// True if anything was evicted or written.
    #[must_use]
    pub fn advanced(&self) -> bool {
        self.evicted_pages + self.written_pages > 0
    }
}

/// A dirty page noted for the batch.
struct Dirty {
    shard: usize,
    place: Place,
    page: Arc<dyn Page>,
}

/// What a step is to reach.
#[derive(Clone, Copy)]
struct Aim {
    /// Bytes to evict.
    evict_bytes: u64,
    /// Write back what is dirty although it need not be evicted.
    write_ahead: bool,
}

impl Cache {
    /// One step of eviction and write-back. Called by background threads only.
    ///
    /// # Errors
    /// The first fault of encoding, of the log or of the space; the pages concerned were told, and stay dirty.
    pub fn step(&self, env: &WriteEnv, gate: &dyn LogGate, space: &Space) -> Result<StepReport> {
        let mut report = StepReport::default();
        let aim = self.aim();
        if !aim.is_something() {
            return Ok(report);
        }
        epoch::pin().flush();
        let dirty = self.sweep(aim, &mut report);
        if report.evicted_pages > 0 {
            self.grants.wake_waiters();
        }
        let result = self.write_back(dirty, aim, env, gate, space, &mut report);
        self.evicted_pages.fetch_add(report.evicted_pages, Ordering::Relaxed);
        self.written_pages.fetch_add(report.written_pages, Ordering::Relaxed);
        self.written_bytes.fetch_add(report.written_bytes, Ordering::Relaxed);
        self.grants.note_step(report.advanced());
        report.more = self.aim().is_something();
        result.map(|()| report)
    }

    /// One step of eviction alone: what is dirty stays as it is. For a database that is only read.
    pub fn evict_step(&self) -> StepReport {
        let mut report = StepReport::default();
        let aim = Aim { write_ahead: false, ..self.aim() };
        if !aim.is_something() {
            return report;
        }
        epoch::pin().flush();
        for Dirty { shard, place, .. } in self.sweep(aim, &mut report) {
            self.clock.put_back(shard, [place]);
        }
        self.evicted_pages.fetch_add(report.evicted_pages, Ordering::Relaxed);
        self.grants.note_step(report.advanced());
        report.more = self.aim().evict_bytes > 0;
        report
    }

    /// Evicts what is clean until there is what grants wait for, or so many places were looked at: for who waits while the worker waits for
    /// the disk. What the worker was told stays as it is.
    pub(super) fn evict_for_waiters(&self, places_max: usize) {
        let (aim, mut report) = (Aim { write_ahead: false, ..self.aim_beyond(0, 0) }, StepReport::default());
        // Twice around at most: a first turn may only take reference bits.
        let mut places_left = places_max.min(2 * self.clock.len() as usize);
        let mut empty_shards = 0;
        while places_left > 0 && report.evicted_bytes < aim.evict_bytes && empty_shards < SHARDS {
            let (shard, places) = self.clock.take(STRIDE.min(places_left));
            places_left -= places.len();
            empty_shards = if places.is_empty() { empty_shards + 1 } else { 0 };
            let stay = places.into_iter().filter(|place| {
                let Some(page) = place.page.upgrade() else { return false };
                page.take_referenced() || !matches!(self.visit(aim, &*page, place, &mut report), Visit::Forget)
            });
            let stay: Vec<Place> = stay.collect();
            self.clock.put_back(shard, stay);
        }
        self.evicted_pages.fetch_add(report.evicted_pages, Ordering::Relaxed);
        epoch::pin().flush();
    }

    fn aim(&self) -> Aim {
        self.aim_beyond(self.ready_bytes(), self.grants.wished_bytes().min(self.ready_bytes()))
    }

    /// What grants wait for; `ready` bytes more for all classes, and `wished` more for pages.
    fn aim_beyond(&self, ready: u64, wished: u64) -> Aim {
        let (for_pages, for_all) = self.grants.waiting_bytes();
        let free = self.budget.free();
        // Pages that are waited for with other memory hold the floor when they come.
        let frames = self.budget.used(Class::Frames);
        let above_floor = (frames + for_pages).saturating_sub(self.budget.page_floor()).min(frames);
        let for_all = (ready + for_all).saturating_sub(free).min(above_floor);
        let evict_bytes = for_all.max((for_pages + wished).saturating_sub(free));
        Aim { evict_bytes, write_ahead: self.dirty_bytes() > self.dirty_limit() }
    }

    /// True if a step would have something to do.
    pub(super) fn is_short(&self) -> bool {
        self.aim().is_something()
    }

    /// Step 2: evicts what the aim asks for and returns the dirty pages met.
    fn sweep(&self, aim: Aim, report: &mut StepReport) -> Vec<Dirty> {
        let mut batch = Batch::default();
        // Twice around: a first turn may only take reference bits.
        let mut left = self.clock.len() * 2;
        let mut empty_shards = 0;
        while left > 0 && empty_shards < SHARDS && !self.swept(aim, &batch, report) {
            let (shard, places) = self.clock.take(STRIDE);
            empty_shards = if places.is_empty() { empty_shards + 1 } else { 0 };
            left = left.saturating_sub(places.len() as u64);
            let mut stay = Vec::with_capacity(places.len());
            for place in places {
                let Some(page) = place.page.upgrade() else { continue };
                if self.swept(aim, &batch, report) || page.take_referenced() {
                    stay.push(place);
                    continue;
                }
                match self.visit(aim, &*page, &place, report) {
                    Visit::Forget => {}
                    Visit::Stay => stay.push(place),
                    Visit::Write => {
                        batch.bytes += place.bytes;
                        batch.pages.push(Dirty { shard, place, page });
                    }
                }
            }
            self.clock.put_back(shard, stay);
        }
        batch.pages
    }

    /// The sweep ends when its aim is reached or its batch is full.
    fn swept(&self, aim: Aim, batch: &Batch, report: &StepReport) -> bool {
        let full = batch.pages.len() >= self.options.batch_pages || batch.bytes >= self.options.batch_bytes;
        full || (report.evicted_bytes >= aim.evict_bytes && !aim.write_ahead)
    }

    fn visit(&self, aim: Aim, page: &dyn Page, place: &Place, report: &mut StepReport) -> Visit {
        if report.evicted_bytes >= aim.evict_bytes {
            // Only what is dirty counts any more.
            return if page.is_dirty_hint() { Visit::Write } else { Visit::Stay };
        }
        vfs::thread::point("cache.evict");
        match page.try_evict() {
            Evict::Evicted => {
                report.evicted_pages += 1;
                report.evicted_bytes += place.bytes;
                page.note_left(self.balance.note_evicted(place.bytes));
                Visit::Forget
            }
            Evict::Gone => Visit::Forget,
            Evict::Busy => {
                report.busy_pages += 1;
                Visit::Stay
            }
            Evict::Dirty => Visit::Write,
        }
    }

    /// Steps 3 and 4.
    fn write_back(
        &self,
        dirty: Vec<Dirty>,
        aim: Aim,
        env: &WriteEnv,
        gate: &dyn LogGate,
        space: &Space,
        report: &mut StepReport,
    ) -> Result<()> {
        if dirty.is_empty() {
            return Ok(());
        }
        let durable = gate.durable();
        let needs_log = |d: &Dirty| d.page.log_need_hint() > durable;
        // Half a batch that needs no wait for the log goes alone; the others' need becomes durable meanwhile.
        let log_may_wait = dirty.iter().filter(|d| !needs_log(d)).count() * 2 >= dirty.len();
        let mut result = Ok(());
        let mut writes = Vec::with_capacity(dirty.len());
        for d in &dirty {
            if log_may_wait && needs_log(d) {
                continue;
            }
            match d.page.clone().begin_write(env) {
                Ok(Some(write)) => writes.push(write),
                Ok(None) => {}
                Err(fault) => result = result.and(Err(fault)),
            }
        }
        let written = write_pages(writes, gate, space, report);
        for Dirty { shard, place, page } in dirty {
            if !matches!(self.visit(aim, &*page, &place, report), Visit::Forget) {
                self.clock.put_back(shard, [place]);
            }
        }
        result.and(written)
    }
}

impl Aim {
    fn is_something(self) -> bool {
        self.evict_bytes > 0 || self.write_ahead
    }
}

#[derive(Default)]
struct Batch {
    pages: Vec<Dirty>,
    bytes: u64,
}

/// What becomes of a place that was looked at.
enum Visit {
    Forget,
    Stay,
    Write,
}

/// Makes the log durable to what the pages need, writes them in one batch, and tells each.
fn write_pages(writes: Vec<PageWrite>, gate: &dyn LogGate, space: &Space, report: &mut StepReport) -> Result<()> {
    let Some(need) = writes.iter().map(|w| w.log_need).max() else { return Ok(()) };
    let mut blocks: Vec<NewBlock> = Vec::new();
    let mut waiting = Vec::with_capacity(writes.len());
    for write in writes {
        waiting.push((write.blocks.len(), write.done));
        blocks.extend(write.blocks);
    }
    // Rule A6: no consequence of a commit reaches the data file before its record is durable.
    let log = if gate.durable() < need { gate.make_durable(need) } else { Ok(()) };
    vfs::thread::point("cache.log_durable");
    match log.and_then(|()| space.write_in(AllocScope::Pages, blocks)) {
        Ok(written) => {
            report.written_bytes += written.iter().map(|b| b.stored_bytes()).sum::<u64>();
            report.written_pages += waiting.len() as u64;
            let mut written = written.into_iter();
            for (count, done) in waiting {
                done(Ok(written.by_ref().take(count).collect()));
            }
            Ok(())
        }
        Err(fault) => {
            for (_, done) in waiting {
                done(Err(fault.clone()));
            }
            Err(fault)
        }
    }
}
