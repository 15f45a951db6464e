//! `visible`: the end of the contiguous applied prefix of the log, and those who wait for it.
//!
//! A commit is seen by snapshots once every log range below its end is marked: commits when they are applied,
//! all other records when they are copied (rule A12). The tracker is [`base::link_buffer::LinkBuffer`].
//!
//! Steps of [`Visible::mark_applied`]:
//! 1. mark the range;
//! 2. advance the prefix over everything contiguous;
//! 3. fence; if somebody is parked, look at the lots whose lowest awaited position the prefix has reached and
//!    wake all who sleep there, one batch per lot.
//!
//! Steps of [`Visible::wait_for`]:
//! 1. return at once, or after a short spin that gives the core away now and then, when the prefix is there;
//! 2. under the lot's gate: publish the position in `lowest`, fence, look at the prefix and at `failed` again;
//! 3. sleep; after each wake-up repeat step 2.
//!
//! Of a marker in step 3 and a waiter in step 2 at least one sees the other, because both put a `SeqCst` fence
//! between their store and their load; and the marker takes the gate before it notifies, so a waiter that has
//! looked but does not sleep yet is not missed.
//!
//! Window: a range must end within [`Visible::window_bytes`] of the prefix. Whoever reserves log positions
//! guarantees it (the engine throttles reservations by the log ring, which is not larger than the window).
//!
//! Latches: a lot's gate; nothing is taken under it. Positions, waiter count and lots are on separate cache lines:
//! a commit that waits for nobody writes only its link and the prefix (C9).
//!
//! Why not one condition variable: with 48 committers each advance would wake all of them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use base::limits::LSN_UNIT;
use base::link_buffer::LinkBuffer;
use base::{CommitTs, Lsn, Poison, Result};
use crossbeam_utils::CachePadded;
use vfs::sync::{Condvar, Mutex};
use vfs::thread;

use crate::word::Word;

/// Lots that waiters are spread over, by the position they wait for.
const LOTS: usize = 16;
/// Turns before a waiter parks, if there is another core: a few times as long as one commit takes to apply.
const SPIN_TURNS: u32 = 400;
/// One of so many turns gives the core away. With more clients than cores the one that is waited for may have lost its core
/// in the middle, and all behind it would park: it would then have to wake them one by one.
const TURNS_PER_YIELD: u32 = 25;

#[derive(Debug)]
struct Lot {
    /// Lowest position awaited here, `u64::MAX` if none; may be stale on the low side, which costs one needless
    /// wake-up. Partner: the fence in `somebody_waits`.
    lowest: AtomicU64,
    gate: Mutex<()>,
    wake: Condvar,
}

/// The applied prefix and its waiters.
#[derive(Debug)]
pub struct Visible {
    applied: CachePadded<LinkBuffer>,
    /// Threads that are parked or about to. Partner: the fence in `somebody_waits`.
    parked: CachePadded<AtomicU64>,
    lots: Box<[CachePadded<Lot>]>,
    /// Set once, by `fail_all`.
    failed: OnceLock<Poison>,
    spin_turns: u32,
}

impl Visible {
    /// A prefix that ends at `start` (the end of what recovery applied), for ranges that end within
    /// `window_bytes` of the prefix.
    #[must_use]
    pub fn new(start: Lsn, window_bytes: u64) -> Self {
        let lot = || Lot { lowest: AtomicU64::new(u64::MAX), gate: Mutex::new(()), wake: Condvar::new() };
        Self {
            applied: CachePadded::new(LinkBuffer::new(start, window_bytes)),
            parked: CachePadded::new(AtomicU64::new(0)),
            lots: (0..LOTS).map(|_| CachePadded::new(lot())).collect(),
            failed: OnceLock::new(),
            spin_turns: if thread::cores() > 1 { SPIN_TURNS } else { 0 },
        }
    }

    /// How far beyond the prefix a range may end, in bytes; whoever reserves log positions keeps to it.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        self.applied.window_bytes()
    }

    /// The newest moment a snapshot may be taken at.
    #[must_use]
    pub fn visible(&self) -> CommitTs {
        self.applied.prefix().as_commit_ts()
    }

    /// Marks the log range `[start, end)` done: a commit when it is applied, any other record when it is copied.
    /// Publishes what the caller wrote before, and wakes whoever waited for a position reached by it.
    ///
    /// # Panics
    /// If the range is empty, not a multiple of the unit, or outside the window.
    pub fn mark_applied(&self, start: Lsn, end: Lsn) {
        thread::point("visible.mark");
        self.applied.mark(start, end);
        thread::point("visible.marked");
        let prefix = self.applied.advance();
        self.wake_up_to(prefix.0);
    }

    /// Waits until everything up to `ts` is applied.
    ///
    /// # Errors
    /// `Fault::Poisoned` if the database failed before that; positions already reached never fail.
    pub fn wait_for(&self, ts: CommitTs) -> Result<()> {
        if self.visible() >= ts {
            return Ok(());
        }
        for turn in 0..self.spin_turns {
            if self.visible() >= ts {
                return Ok(());
            }
            if self.failed.get().is_some() {
                break;
            }
            if turn % TURNS_PER_YIELD == TURNS_PER_YIELD - 1 { thread::yield_now() } else { thread::spin() }
        }
        self.park_until(ts)
    }

    /// Lets everybody who waits, now or later, for a position that is not reached return the first cause: after
    /// a fault, ranges may stay unmarked for ever.
    pub fn fail_all(&self, poison: &Poison) {
        let _ = self.failed.set(poison.clone());
        for lot in &self.lots {
            // The gate orders this behind a waiter that has looked at `failed` and does not sleep yet.
            drop(lot.gate.lock());
            lot.wake.notify_all();
        }
    }

    fn park_until(&self, ts: CommitTs) -> Result<()> {
        let lot = &self.lots[(ts.0 / LSN_UNIT) as usize % LOTS];
        self.parked.fetch_add(1, Ordering::Relaxed);
        let mut gate = lot.gate.lock();
        let outcome = loop {
            if must_park(&lot.lowest, ts.0, || self.visible().0) {
                if let Some(poison) = self.failed.get() {
                    break poison.check();
                }
            } else {
                break Ok(());
            }
            lot.wake.wait(&mut gate);
        };
        drop(gate);
        self.parked.fetch_sub(1, Ordering::Relaxed);
        outcome
    }

    fn wake_up_to(&self, prefix: u64) {
        thread::point("visible.advanced");
        if !somebody_waits(&*self.parked) {
            return;
        }
        for lot in &self.lots {
            if lot.lowest.load(Ordering::Relaxed) <= prefix {
                let gate = lot.gate.lock();
                // Those who still have to wait publish their position again before they look at the prefix.
                lot.lowest.store(u64::MAX, Ordering::Relaxed);
                drop(gate);
                lot.wake.notify_all();
            }
        }
    }
}

/// Step 2 of a waiter, under its lot's gate: publishes what it waits for and looks again. False if it need not wait.
fn must_park<W: Word>(lowest: &W, ts: u64, visible: impl FnOnce() -> u64) -> bool {
    lowest.fetch_min(ts, Ordering::Relaxed);
    thread::point("visible.park");
    // Partner: the fence in `somebody_waits`.
    W::fence(Ordering::SeqCst);
    visible() < ts
}

/// Step 3 of a marker, after it has moved the prefix: from here on it sees what a waiter published that did not see
/// the new prefix. Of the loads that follow, those of `lowest` are ordered by the same fence.
fn somebody_waits<W: Word>(parked: &W) -> bool {
    // Partner: the fence in `must_park`.
    W::fence(Ordering::SeqCst);
    parked.load(Ordering::Relaxed) != 0
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::Fault;

    use super::*;

    fn ts(n: u64) -> CommitTs {
        CommitTs(n)
    }

    /// A waiter against a marker, under every order and value that the memory model allows: a waiter that parks is seen.
    #[test]
    fn a_waiter_that_parks_is_seen() {
        use loom::sync::Arc;
        use loom::sync::atomic::AtomicU64 as Model;
        loom::model(|| {
            let prefix = Arc::new(Model::new(0));
            let (parked, lowest) = (Arc::new(Model::new(0)), Arc::new(Model::new(u64::MAX)));
            let waiter = {
                let (prefix, parked, lowest) = (prefix.clone(), parked.clone(), lowest.clone());
                loom::thread::spawn(move || {
                    parked.fetch_add(1, Ordering::Relaxed);
                    must_park(&*lowest, 16, || prefix.load(Ordering::Acquire))
                })
            };
            prefix.store(16, Ordering::Release);
            let woken = somebody_waits(&*parked) && lowest.load(Ordering::Relaxed) <= 16;
            assert!(woken || !waiter.join().expect("no panic"), "parked and not seen");
        });
    }

    #[test]
    fn a12_a_gap_holds_visible() {
        let v = Visible::new(Lsn(96), 4096);
        // The schedule of A12: the lower range is reserved but its owner sleeps before it can register itself.
        v.mark_applied(Lsn(112), Lsn(208));
        assert_eq!(v.visible(), ts(96), "a commit above a gap is not visible");
        v.mark_applied(Lsn(96), Lsn(112));
        assert_eq!(v.visible(), ts(208));
    }

    #[test]
    fn waiters_are_woken_when_the_gap_closes() {
        let v = Arc::new(Visible::new(Lsn(0), 4096));
        let waiters: Vec<_> = (1..=40u64)
            .map(|i| {
                let v = v.clone();
                vfs::thread::spawn("waiter", move || v.wait_for(ts(i * 16)).map(|()| v.visible() >= ts(i * 16)))
                    .expect("thread")
            })
            .collect();
        for i in (0..40u64).rev() {
            v.mark_applied(Lsn(i * 16), Lsn(i * 16 + 16));
        }
        for w in waiters {
            assert!(w.join().expect("no panic").expect("not poisoned"));
        }
        assert_eq!(v.parked.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn nobody_hangs_when_the_database_fails() {
        let v = Arc::new(Visible::new(Lsn(16), 4096));
        let waiter = {
            let v = v.clone();
            vfs::thread::spawn("waiter", move || v.wait_for(ts(64))).expect("thread")
        };
        let poison = Poison::new();
        poison.set(Fault::Unsupported("the disk is gone".into()));
        v.fail_all(&poison);
        let fault = waiter.join().expect("no panic").expect_err("poisoned");
        assert!(matches!(&fault, Fault::Poisoned(cause) if cause.contains("the disk is gone")), "{fault}");
        assert!(v.wait_for(ts(16)).is_ok(), "what is applied stays readable");
        assert!(v.wait_for(ts(32)).is_err());
    }

    #[test]
    fn many_committers_wait_for_each_other() {
        let v = Arc::new(Visible::new(Lsn(0), 1 << 16));
        let next = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..4u64)
            .map(|t| {
                let (v, next) = (v.clone(), next.clone());
                let body = move || {
                    for i in 0..5_000u64 {
                        let bytes = LSN_UNIT * (1 + (i + t) % 3);
                        let start = next.fetch_add(bytes, Ordering::SeqCst);
                        v.mark_applied(Lsn(start), Lsn(start + bytes));
                        v.wait_for(ts(start + bytes)).expect("not poisoned");
                        assert!(v.visible() >= ts(start + bytes));
                    }
                };
                vfs::thread::spawn("committer", body).expect("thread")
            })
            .collect();
        for t in threads {
            t.join().expect("no panic");
        }
        assert_eq!(v.visible().0, next.load(Ordering::SeqCst));
    }
}
