//! Memory promised to the foreground, and the wait for it.
//!
//! A grant, in steps: 1. if nobody waits, charge and go; 2. otherwise take a place at the end of the queue, call
//! the worker, and wait in slices until this place is the first and the charge succeeds. The queue is first come,
//! first served, so a large grant is not passed for ever by small ones. Slices of at most [`SLICE`]: charges that
//! others drop (write sets, runs) tell nobody, so a waiter also looks for itself. If a slice went by in vain, the first waiter evicts
//! what is clean: the worker may be waiting for the disk, with a batch of dirty pages or for the log, for a third of a second now and then.
//!
//! Invariant: `waiters` = length of the queue, changed under the mutex, read without it by step 1.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::{Fault, Result};
use crossbeam_utils::CachePadded;
use vfs::sync::{Condvar, Mutex};
use vfs::time::Instant;

use super::funds::Asked;
use super::{Cache, CacheStats};
use crate::{Charge, Class};

/// The longest single wait (B8).
const SLICE: Duration = Duration::from_millis(20);
/// Places of the clock that a waiter looks at after a slice in vain: less than a millisecond of work.
const PLACES_MAX: usize = 2048;
/// How long the worker waits after a step that could do nothing: what is pinned or latched is so for microseconds.
const STALLED: Duration = Duration::from_millis(1);

#[derive(Default)]
struct Queue {
    next: u64,
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    ticket: u64,
    asked: Asked,
}

#[derive(Default)]
pub(super) struct Grants {
    queue: Mutex<Queue>,
    /// For waiters: memory may have become free.
    freed: Condvar,
    /// For the worker: there is something to do.
    work: Condvar,
    /// The worker has been called and has not looked yet. Set outside the mutex, so that callers after the first
    /// cost nothing; the first then takes the mutex to notify, and so comes before or after the worker's look.
    called: CachePadded<AtomicBool>,
    /// The last step could do nothing, though there was something to do. Relaxed: it only makes the worker wait.
    stalled: AtomicBool,
    /// Bytes of pages that somebody would have kept, and did not wait for, since the last step. Relaxed: a hint.
    wished: CachePadded<AtomicU64>,
    /// Relaxed: who misses a waiter that arrives at the same moment has come first.
    waiters: CachePadded<AtomicU64>,
    waits: AtomicU64,
    wait_sum_us: AtomicU64,
    wait_worst_us: AtomicU64,
    refused: AtomicU64,
}

impl Grants {
    pub(super) fn call_worker(&self) {
        // AcqRel, with the swap in `wait_for_work`.
        if !self.called.load(Ordering::Relaxed) && !self.called.swap(true, Ordering::AcqRel) {
            let _queue = self.queue.lock();
            self.work.notify_one();
        }
    }

    pub(super) fn wake_waiters(&self) {
        if self.waiters.load(Ordering::Relaxed) > 0 {
            let _queue = self.queue.lock();
            self.freed.notify_all();
        }
    }

    pub(super) fn note_step(&self, advanced: bool) {
        self.wished.store(0, Ordering::Relaxed);
        self.stalled.store(!advanced, Ordering::Relaxed);
        if advanced {
            self.wake_waiters();
        }
    }

    /// Bytes of pages that somebody would have kept.
    pub(super) fn wished_bytes(&self) -> u64 {
        self.wished.load(Ordering::Relaxed)
    }

    /// Bytes waited for: of pages, and of all classes.
    pub(super) fn waiting_bytes(&self) -> (u64, u64) {
        if self.waiters.load(Ordering::Relaxed) == 0 {
            return (0, 0);
        }
        let queue = self.queue.lock();
        waiting_bytes(&queue)
    }

    pub(super) fn add_stats(&self, stats: &mut CacheStats) {
        stats.waits = self.waits.load(Ordering::Relaxed);
        stats.wait_sum_us = self.wait_sum_us.load(Ordering::Relaxed);
        stats.wait_worst_us = self.wait_worst_us.load(Ordering::Relaxed);
        stats.refused = self.refused.load(Ordering::Relaxed);
    }

    fn count_wait(&self, waited: Duration) {
        let us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.wait_sum_us.fetch_add(us, Ordering::Relaxed);
        self.wait_worst_us.fetch_max(us, Ordering::Relaxed);
    }
}

impl Cache {
    /// Promises `bytes` of page memory. Waits while memory is short (reason `frames`): so it is called before
    /// locks and an LSN are taken. Who waits may evict: the caller holds nothing that [`Page::try_evict`](crate::Page::try_evict) or the drop
    /// of what is evicted waits for, as no latch of a page, and no mutex of the clock, of frames or of slabs.
    ///
    /// # Errors
    /// [`Fault::Limit`] if the budget can never give that much, or did not for ten seconds.
    pub fn grant(&self, bytes: u64) -> Result<Grant> {
        self.charge_waiting(Class::Frames, bytes).map(|charge| Grant { charge })
    }

    /// The same, if nobody needs to wait for it.
    #[must_use]
    pub fn try_grant(&self, bytes: u64) -> Option<Grant> {
        self.try_charge(Class::Frames, bytes).map(|charge| Grant { charge })
    }

    /// Charges `bytes` to any class, if nobody needs to wait for it, or waits already.
    pub(super) fn try_charge(&self, class: Class, bytes: u64) -> Option<Charge> {
        let waited_for = self.grants.waiters.load(Ordering::Relaxed) > 0;
        let charge = if waited_for { None } else { self.budget.try_charge(class, bytes) }?;
        self.call_if_short();
        Some(charge)
    }

    /// The same for a page that is kept only if there is room. If there is none, the next step of eviction makes as much, as far as is kept
    /// ready: a page may take the place of another, also where pages are down to their floor.
    #[must_use]
    pub fn try_grant_or_wish(&self, bytes: u64) -> Option<Grant> {
        let grant = self.try_grant(bytes);
        if grant.is_none() {
            self.grants.wished.fetch_add(bytes, Ordering::Relaxed);
            self.grants.call_worker();
        }
        grant
    }

    /// The same for a page that nobody has asked for yet: only as long as nothing has to leave memory for it, now or soon.
    #[must_use]
    pub fn try_grant_spare(&self, bytes: u64) -> Option<Grant> {
        if self.is_nearly_full() { None } else { self.try_grant(bytes) }
    }

    /// The same at once, past the limit if need be: for the one page through which others make room.
    pub fn grant_at_once(&self, bytes: u64) -> Grant {
        Grant { charge: self.budget.charge(Class::Frames, bytes) }
    }

    fn call_if_short(&self) {
        if self.budget.free() < self.ready_bytes() {
            self.grants.call_worker();
        }
    }

    /// Charges `bytes` to any class, waiting for the background to make room as [`Cache::grant`] does.
    ///
    /// # Errors
    /// As [`Cache::grant`].
    pub fn charge_waiting(&self, class: Class, bytes: u64) -> Result<Charge> {
        if let Some(charge) = self.try_charge(class, bytes) {
            return Ok(charge);
        }
        Ok(match class {
            Class::Frames => self.wait_for(Asked { pages: bytes, others: 0 }, Class::Buffers)?.0,
            _ => self.wait_for(Asked { pages: 0, others: bytes }, class)?.1,
        })
    }

    /// # Errors
    /// If the budget can never give that much at once.
    fn check_at_once(&self, asked: Asked) -> Result<()> {
        let (all, limit) = (asked.pages + asked.others, self.budget.limit());
        let most = limit - self.budget.page_floor();
        if asked.others > most {
            return Err(too_much(asked.others, most));
        }
        if all > limit { Err(too_much(all, limit)) } else { Ok(()) }
    }

    /// Charges what is asked for pages and for one other class, both or none, behind those that wait already.
    pub(super) fn wait_for(&self, asked: Asked, class: Class) -> Result<(Charge, Charge)> {
        self.check_at_once(asked)?;
        // Where the second is not to be had, the first is given back.
        let try_charge = || {
            let pages = self.budget.try_charge(Class::Frames, asked.pages)?;
            Some((pages, self.budget.try_charge(class, asked.others)?))
        };
        let start = Instant::now();
        let mut queue = self.grants.queue.lock();
        let ticket = queue.next;
        queue.next += 1;
        queue.waiting.push_back(Waiter { ticket, asked });
        self.grants.waiters.fetch_add(1, Ordering::Relaxed);
        let charges = loop {
            if queue.waiting.front().is_some_and(|first| first.ticket == ticket)
                && let Some(charges) = try_charge()
            {
                break Some(charges);
            }
            if start.elapsed() >= self.options.grant_timeout {
                break None;
            }
            self.grants.called.store(true, Ordering::Release);
            self.grants.work.notify_one();
            let in_vain = self.grants.freed.wait_for(&mut queue, SLICE);
            if in_vain && queue.waiting.front().is_some_and(|first| first.ticket == ticket) {
                drop(queue);
                vfs::thread::point("cache.waiter_evicts");
                self.evict_for_waiters(PLACES_MAX);
                queue = self.grants.queue.lock();
            }
        };
        queue.waiting.retain(|other| other.ticket != ticket);
        self.grants.waiters.fetch_sub(1, Ordering::Relaxed);
        // The next in the queue may fit as well.
        self.grants.freed.notify_all();
        drop(queue);
        self.grants.count_wait(start.elapsed());
        charges.ok_or_else(|| {
            self.grants.refused.fetch_add(1, Ordering::Relaxed);
            too_much(asked.pages + asked.others, self.budget.free())
        })
    }

    /// Waits until there is something to do for [`Cache::step`]: memory is short, a grant waits, or too much is
    /// dirty; or until `timeout`. True if there is something to do. After a step that could do nothing it waits a
    /// moment in any case, so that its caller may simply loop.
    pub fn wait_for_work(&self, timeout: Duration) -> bool {
        let stalled = self.grants.stalled.swap(false, Ordering::Relaxed);
        if stalled || !self.is_short() {
            let mut queue = self.grants.queue.lock();
            if stalled || !self.grants.called.load(Ordering::Acquire) {
                let limit = if stalled { timeout.min(STALLED) } else { timeout };
                self.grants.work.wait_for(&mut queue, limit);
            }
        }
        self.grants.called.swap(false, Ordering::AcqRel) || self.is_short()
    }

    /// Ends [`Cache::wait_for_work`] at once, for shutting down.
    pub fn wake_worker(&self) {
        self.grants.call_worker();
    }
}

fn waiting_bytes(queue: &Queue) -> (u64, u64) {
    let add = |(pages, all): (u64, u64), asked: Asked| (pages + asked.pages, all + asked.pages + asked.others);
    queue.waiting.iter().map(|waiter| waiter.asked).fold((0, 0), add)
}

fn too_much(bytes: u64, left: u64) -> Fault {
    Fault::Limit { what: "memory for pages under the budget, in bytes", limit: left, got: bytes }
}

/// Memory promised to a committer before it takes an LSN. What is not taken is given back on drop.
#[derive(Debug)]
#[must_use = "dropping a grant gives it back"]
pub struct Grant {
    charge: Charge,
}

impl Grant {
    /// Bytes still promised.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.charge.bytes()
    }

    /// Turns `bytes` of the grant into the charge of a page.
    ///
    /// # Panics
    /// If less is left: the grant is made for the worst case before anything is changed.
    pub fn take(&mut self, bytes: u64) -> Charge {
        self.charge.split(bytes)
    }

    /// As [`Grant::take`]; `None` if less is left.
    #[must_use]
    pub fn try_take(&mut self, bytes: u64) -> Option<Charge> {
        (bytes <= self.bytes()).then(|| self.charge.split(bytes))
    }

    /// Adds what was charged for the same.
    pub fn add(&mut self, more: Charge) {
        self.charge.merge(more);
    }

    /// Turns all that is left into one charge.
    pub fn into_charge(self) -> Charge {
        self.charge
    }
}

impl From<Charge> for Grant {
    fn from(charge: Charge) -> Self {
        Self { charge }
    }
}
