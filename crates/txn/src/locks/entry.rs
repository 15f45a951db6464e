//! One locked key: who holds it, who waits, and what happens when either changes.
//!
//! Rules of the queue (C2, P2):
//! 1. Waiters stand in order of arrival; an upgrade (S held, X wanted) goes before all who hold nothing.
//! 2. When the lock can be had by the first waiter, it is *offered*: the waiter wakes and takes it if it is still to
//!    be had. Until then a running thread may take it first: handing a lock to a parked thread idles it for a wake-up.
//! 3. The first time somebody passes a waiter is noted. Once that is the limit ago for the first waiter, nobody
//!    passes any more and the lock is *granted* to it outright. Those who passed the first waiter passed all, and
//!    stamps are set from the back until one is found, so the first waiter's stamp is the oldest.
//! 4. A waiter whose wait ended otherwise (victim, cancelled, timed out) takes itself out; rules 2 and 3 skip it.
//!
//! Invariants: `holder` is none only if `others` is empty; `others` hold S; with mode X, `others` is empty.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base::{CommitTs, IndexId};
use vfs::time::Instant;

use super::ends;
use super::listing::WaitEdge;
use super::owner::OwnerState;

/// Nobody is passed for longer than this, or than [`PASS_LIMIT_PER_WAITER`] for each who waits.
pub(super) const PASS_LIMIT: Duration = Duration::from_millis(5);
/// Once the limit is over each waiter in turn is woken with the lock in its hand, and meanwhile nobody works: some 15
/// microseconds each. So waking them costs no more than a twentieth of the time, however many they are (decision 0007).
const PASS_LIMIT_PER_WAITER: Duration = Duration::from_micros(300);

/// How a key is locked. Ordered by strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Shared: others may hold it shared.
    Shared,
    /// Exclusive.
    Exclusive,
}

impl Mode {
    pub(super) fn conflicts(self, other: Self) -> bool {
        self == Mode::Exclusive || other == Mode::Exclusive
    }
}

/// A key's bytes: short ones in place.
#[derive(Debug)]
pub(super) enum Key {
    Short { len: u8, bytes: [u8; Key::SHORT_BYTES] },
    Long(Box<[u8]>),
}

impl Key {
    const SHORT_BYTES: usize = 22;

    pub(super) fn new(key: &[u8]) -> Self {
        if key.len() > Self::SHORT_BYTES {
            return Self::Long(key.into());
        }
        let mut bytes = [0; Self::SHORT_BYTES];
        bytes[..key.len()].copy_from_slice(key);
        Self::Short { len: key.len() as u8, bytes }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        if let Self::Long(bytes) = self { bytes.len() } else { 0 }
    }
}

/// Somebody in the queue.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) owner: Arc<OwnerState>,
    pub(super) mode: Mode,
    /// It holds S already.
    upgrade: bool,
    since: Instant,
    first_passed: Option<Instant>,
}

/// What an entry needs only when it is shared or waited for.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Holders beside `Entry::holder`, all S.
    others: Vec<Arc<OwnerState>>,
    waiters: VecDeque<Waiter>,
}

/// One locked key.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) hash: u64,
    pub(super) key: Key,
    pub(super) index: IndexId,
    /// Next of the same hash bucket, or of the free list.
    pub(super) next: u32,
    holder: Option<Arc<OwnerState>>,
    queue: Option<Box<Queue>>,
    /// Of `holder`.
    mode: Mode,
}
const _: () = assert!(size_of::<Entry>() <= 64, "a lock is one cache line");

/// Owners to wake once the shard's latch is given up.
pub(super) type Wakes = Vec<Arc<OwnerState>>;

/// How long the first of so many waiters is passed.
pub(super) fn pass_limit(waiters: usize) -> Duration {
    PASS_LIMIT.max(PASS_LIMIT_PER_WAITER * u32::try_from(waiters).unwrap_or(u32::MAX))
}

impl Entry {
    /// Memory of an entry for `key`.
    pub(super) fn bytes_for(key: &[u8]) -> usize {
        size_of::<Self>() + if key.len() > Key::SHORT_BYTES { key.len() } else { 0 }
    }

    pub(super) fn new(hash: u64, index: IndexId, key: &[u8], holder: Arc<OwnerState>, mode: Mode) -> Self {
        Self { hash, key: Key::new(key), index, next: u32::MAX, holder: Some(holder), queue: None, mode }
    }

    /// Nobody holds it and nobody waits.
    pub(super) fn is_unused(&self) -> bool {
        self.holder.is_none() && self.queue.as_ref().is_none_or(|q| q.waiters.is_empty())
    }

    /// Makes an unused entry forget its owner and queue.
    pub(super) fn vacate(&mut self) {
        self.queue = None;
        self.key = Key::new(&[]);
    }

    /// Holders with their modes.
    pub(super) fn holders(&self) -> impl Iterator<Item = (&Arc<OwnerState>, Mode)> {
        let others = self.queue.iter().flat_map(|q| q.others.iter().map(|o| (o, Mode::Shared)));
        self.holder.iter().map(|h| (h, self.mode)).chain(others)
    }

    /// Waiters in order.
    pub(super) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.queue.iter().flat_map(|q| q.waiters.iter())
    }

    /// How `owner` holds it.
    pub(super) fn held_by(&self, owner: &Arc<OwnerState>) -> Option<Mode> {
        self.holders().find(|(o, _)| Arc::ptr_eq(o, owner)).map(|(_, mode)| mode)
    }

    /// True if no other owner's hold stands against `owner` having `mode`.
    pub(super) fn is_open_to(&self, owner: &Arc<OwnerState>, mode: Mode) -> bool {
        self.holders().all(|(o, held)| Arc::ptr_eq(o, owner) || !mode.conflicts(held))
    }

    /// Takes an open lock for somebody who does not wait, ahead of those who do. False if they have been passed for
    /// long enough.
    pub(super) fn take_ahead(&mut self, owner: &Arc<OwnerState>, mode: Mode) -> bool {
        if let Some(queue) = self.queue.as_mut().filter(|q| !q.waiters.is_empty()) {
            let now = Instant::now();
            if queue.waiters[0].first_passed.is_some_and(|since| now - since >= pass_limit(queue.waiters.len())) {
                return false;
            }
            let unstamped = queue.waiters.iter_mut().rev().take_while(|w| w.first_passed.is_none());
            unstamped.for_each(|w| w.first_passed = Some(now));
        }
        self.add_holder(owner.clone(), mode);
        true
    }

    /// Makes `owner` a holder, or raises the mode of one that is alone.
    pub(super) fn add_holder(&mut self, owner: Arc<OwnerState>, mode: Mode) {
        debug_assert!(self.is_open_to(&owner, mode));
        match &self.holder {
            None => (self.holder, self.mode) = (Some(owner), mode),
            Some(holder) if Arc::ptr_eq(holder, &owner) => self.mode = self.mode.max(mode),
            Some(_) => self.queue.get_or_insert_default().others.push(owner),
        }
    }

    /// `owner`, if it holds it, holds it shared.
    pub(super) fn lower(&mut self, owner: &Arc<OwnerState>) {
        if self.holder.as_ref().is_some_and(|holder| Arc::ptr_eq(holder, owner)) {
            self.mode = Mode::Shared;
        }
    }

    /// `owner` holds it no more.
    pub(super) fn drop_holder(&mut self, owner: &Arc<OwnerState>) {
        if self.holder.as_ref().is_some_and(|h| Arc::ptr_eq(h, owner)) {
            self.holder = self.queue.as_mut().and_then(|q| q.others.pop());
            self.mode = Mode::Shared;
        } else if let Some(queue) = &mut self.queue {
            queue.others.retain(|o| !Arc::ptr_eq(o, owner));
        }
    }

    /// Puts `owner` into the queue, and tells how many stand before it.
    pub(super) fn enqueue(&mut self, owner: Arc<OwnerState>, mode: Mode) -> usize {
        let upgrade = self.held_by(&owner).is_some();
        let queue = self.queue.get_or_insert_default();
        let at = if upgrade { queue.waiters.iter().take_while(|w| w.upgrade).count() } else { queue.waiters.len() };
        queue.waiters.insert(at, Waiter { owner, mode, upgrade, since: Instant::now(), first_passed: None });
        at
    }

    /// Where `owner` stands in the queue.
    pub(super) fn position(&self, owner: &Arc<OwnerState>) -> Option<usize> {
        self.waiters().position(|w| Arc::ptr_eq(&w.owner, owner))
    }

    /// Takes `owner` out of the queue.
    pub(super) fn leave(&mut self, owner: &Arc<OwnerState>) {
        if let Some(at) = self.position(owner) {
            self.queue.as_mut().expect("it has waiters").waiters.remove(at);
        }
    }

    /// A waiter tries: takes the lock and leaves the queue, if it is open and no earlier waiter stands against it.
    pub(super) fn take_from_queue(&mut self, owner: &Arc<OwnerState>) -> bool {
        let at = self.position(owner).expect("a waiter is in the queue until it is granted");
        let mode = self.waiters().nth(at).expect("position is in range").mode;
        let behind = self.waiters().take(at).any(|w| mode.conflicts(w.mode) && w.owner.is_live());
        if behind || !self.is_open_to(owner, mode) {
            return false;
        }
        self.leave(owner);
        self.add_holder(owner.clone(), mode);
        true
    }

    /// After a holder or waiter has gone, or a shared holder has come: offers or grants the lock to those it is open
    /// to (rules 2 and 3).
    pub(super) fn promote(&mut self, seen: CommitTs, wakes: &mut Wakes) {
        loop {
            let Some((at, waiter)) = self.waiters().enumerate().find(|(_, w)| w.owner.is_live()) else { return };
            let (owner, mode) = (waiter.owner.clone(), waiter.mode);
            if !self.is_open_to(&owner, mode) {
                return;
            }
            if waiter.first_passed.is_none_or(|since| since.elapsed() < pass_limit(self.waiters().count())) {
                if owner.offer() {
                    wakes.push(owner);
                }
                return;
            }
            // False: its wait has just ended otherwise, and it is not live in the next turn.
            if owner.grant(seen) {
                self.queue.as_mut().expect("it has waiters").waiters.remove(at);
                self.add_holder(owner.clone(), mode);
                wakes.push(owner);
            }
        }
    }

    /// True if `waiter`, in the queue at `at`, cannot have the lock because of `other` (rule P2): it holds the lock
    /// or stands before it in the queue, in a mode that conflicts.
    pub(super) fn blocks(&self, at: usize, other: &Arc<OwnerState>) -> bool {
        let waiter = self.waiters().nth(at).expect("position is in range");
        let held = || self.held_by(other).is_some_and(|held| waiter.mode.conflicts(held));
        let earlier = || {
            let mut before = self.waiters().take(at);
            before.any(|w| Arc::ptr_eq(&w.owner, other) && waiter.mode.conflicts(w.mode) && w.owner.is_live())
        };
        !Arc::ptr_eq(&waiter.owner, other) && (held() || earlier())
    }

    /// The waiter at `at` and one in its way, for people to look at.
    pub(super) fn edge(&self, at: usize, blocker: &Arc<OwnerState>) -> WaitEdge {
        let waiter = self.waiters().nth(at).expect("position is in range");
        let on_range = self.index == ends::ENDS;
        let (index, key) = match self.key.as_bytes() {
            end if on_range => (ends::index_of(end), waiter.owner.wanted()),
            key => (self.index, key.to_vec()),
        };
        let mode = if on_range { Mode::Exclusive } else { waiter.mode };
        WaitEdge {
            waiter: waiter.owner.txn,
            index,
            key,
            mode,
            on_range,
            blocker: blocker.txn,
            waited: waiter.since.elapsed(),
        }
    }
}
