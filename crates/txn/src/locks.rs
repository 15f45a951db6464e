//! Row locks: a sharded hash table on (index, key), modes S, I and X, the older transaction first within bounds,
//! deadlocks found when they close.
//!
//! Steps of [`Locks::lock`], under the latch of the key's shard:
//! 1. no entry: make one; done (the fast path: one latch, one cache line);
//! 2. held by the caller strongly enough: nothing to do; not so, and by nobody else: raise the mode;
//! 3. open to the caller, and it would stand before all who wait, or these have not been passed for long: take it
//!    ahead of them (C2);
//! 4. otherwise stand in the queue, give the latch up, spin briefly, search for a deadlock, park. Woken by an offer:
//!    try; if somebody was faster, that is a new wait and is searched again.
//!
//! Steps of [`Locks::release_all`], per lock, under its latch: leave the commit timestamp in the bucket, drop the hold,
//! offer or grant to whom the lock is now open, remove the entry if it is of no use; then wake outside the latch.
//!
//! The commit timestamp left behind (rule A17): a committer releases its locks when it is applied, which may be before
//! `visible` has reached it, because an earlier commit is still applying. The next owner reads the newest version under
//! the lock, and then a plain snapshot read of other rows of the same commit must see them too. So a grant returns
//! `seen`, and the transaction's next snapshot waits for `visible >= seen`.
//!
//! Invariants: holders of an entry are compatible with each other; an entry with neither holder nor waiter is not in
//! the table; an owner waits in at most one queue; every element of `LockOwner::held` names an entry it holds, once.
//!
//! Latches: a shard, then an owner's gate (innermost). Never two shards at once, not in the deadlock search either.
//!
//! Why locks beside the tree and not bits in the leaves: structures hold committed data only, leaves are evicted and
//! split while rows are locked, and a key that does not exist can be locked.

mod areas;
mod deadlock;
mod ends;
mod entry;
mod folded;
mod listing;
mod news;
mod numbers;
mod owner;
mod shard;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::{CommitTs, IndexId};
use crossbeam_utils::CachePadded;
use vfs::sync::{Mutex, MutexGuard};
use vfs::thread;
use vfs::time::Instant;

pub use self::areas::AreaOf;
pub use self::deadlock::Deadlock;
pub use self::entry::Mode;
use self::entry::Wakes;
use self::folded::Folds;
pub use self::folded::KeyNames;
use self::listing::RecentDeadlocks;
pub use self::listing::{DEADLOCKS_KEPT, HeldLock, WaitEdge};
pub use self::news::{Report, TOLD_MAX, WaitNews};
pub use self::owner::{Canceller, LockOwner};
use self::owner::{OwnerState, Place, State};
use self::shard::Shard;

const SHARD_BITS: u32 = 9;
const SHARDS: usize = 1 << SHARD_BITS;
/// In the last byte of a key, what tells neighbours apart: they share a shard and a cache line of its table of numbers, so that rows that
/// are locked one after the other, as those of a large insert are, miss the caches once for all. Not more of them: they share a latch, too,
/// and the moment that a release leaves.
const NEIGHBOURS: u8 = 3;
/// Turns a waiter spins before it parks, if there is another core: some microseconds.
const SPIN_TURNS: u32 = 300;
/// Locks released under one hold of a shard's latch, at most.
const RELEASE_BATCH: usize = 32;

/// Memory of one lock on `key`, in bytes: its entry, its place in the owner's list, two slots in the table of numbers, and a key that is too
/// long to lie in the entry.
#[must_use]
pub fn lock_bytes(key: &[u8]) -> usize {
    entry::Entry::bytes_for(key) + 3 * size_of::<u64>()
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct LockRequest<'a> {
    /// The index.
    pub index: IndexId,
    /// The key, whether there is such a row or not.
    pub key: &'a [u8],
    /// The mode.
    pub mode: Mode,
    /// Longest wait; none: as long as it takes; zero: not at all.
    pub timeout: Option<Duration>,
    /// Size of the caller's write set in operations: the smallest of a deadlock is rolled back.
    pub weight: usize,
}

/// How a request ended.
#[derive(Debug)]
#[must_use]
pub enum LockOutcome {
    /// The caller holds the lock.
    Granted {
        /// The caller's next snapshot, and its reply, wait until `visible` is here.
        seen: CommitTs,
        /// False if the caller held the lock before, in whatever mode.
        fresh: bool,
        /// The mode in which the caller held it before, if that was not enough.
        raised: Option<Mode>,
    },
    /// The caller was chosen to end a deadlock and should roll back.
    Deadlock {
        /// Who waited for whom.
        who: Box<Deadlock>,
    },
    /// The wait was longer than the request allows.
    Timeout,
    /// Another thread cancelled the wait.
    Cancelled,
}

/// Counts of waits, since the table was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LockStats {
    /// Requests that wait now.
    pub waiting: u64,
    /// Requests that have waited.
    pub waits: u64,
    /// Time waited, in nanoseconds.
    pub wait_nanos: u64,
    /// Longest wait, in nanoseconds.
    pub wait_nanos_max: u64,
    /// Deadlocks ended.
    pub deadlocks: u64,
    /// Waits that timed out.
    pub timeouts: u64,
}

#[derive(Debug, Default)]
struct Counters {
    waiting: AtomicU64,
    waits: AtomicU64,
    wait_nanos: AtomicU64,
    wait_nanos_max: AtomicU64,
    deadlocks: AtomicU64,
    timeouts: AtomicU64,
}

struct Slot {
    shard: Mutex<Shard>,
    /// Copy of the shard's size for readers without the latch; written under it.
    bytes: AtomicUsize,
}

/// The lock table of a database.
pub struct Locks {
    shards: Box<[CachePadded<Slot>]>,
    seed: u64,
    spin_turns: u32,
    /// Deadlocks are searched for; see [`Locks::search_deadlocks`].
    searches: AtomicBool,
    folds: CachePadded<Folds>,
    stats: CachePadded<Counters>,
    deadlocks: RecentDeadlocks,
    /// Told of waits, if somebody wants to know.
    report: OnceLock<Report>,
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Locks({} bytes, {:?})", self.bytes(), self.stats())
    }
}

impl Default for Locks {
    fn default() -> Self {
        Self::new()
    }
}

impl Locks {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        let slot = || Slot { shard: Mutex::new(Shard::new()), bytes: AtomicUsize::new(0) };
        Self {
            shards: (0..SHARDS).map(|_| CachePadded::new(slot())).collect(),
            seed: vfs::random::u64(),
            spin_turns: if thread::cores() > 1 { SPIN_TURNS } else { 0 },
            searches: AtomicBool::new(true),
            folds: CachePadded::new(Folds::default()),
            stats: CachePadded::new(Counters::default()),
            deadlocks: RecentDeadlocks::default(),
            report: OnceLock::new(),
        }
    }

    /// Locks a key for `owner`, waiting if need be.
    pub fn lock(&self, owner: &mut LockOwner, request: &LockRequest<'_>) -> LockOutcome {
        let LockRequest { index, key, mode, .. } = *request;
        let hash = hash(self.seed, index, key);
        let shard_number = (hash >> (64 - SHARD_BITS)) as u32;
        let slot = &self.shards[shard_number as usize];
        let mut shard = slot.shard.lock();
        let seen = shard.left(hash);
        let Some(number) = shard.find(hash, index, key) else {
            let number = shard.insert(hash, index, key, owner.state.clone(), mode);
            slot.bytes.store(shard.bytes(), Ordering::Relaxed);
            drop(shard);
            owner.held.push(Place { shard: shard_number, entry: number }.pack());
            return LockOutcome::Granted { seen, fresh: true, raised: None };
        };
        let place = Place { shard: shard_number, entry: number };
        let entry = shard.entry_mut(number);
        let held = entry.held_by(&owner.state);
        let mode = held.map_or(mode, |held| held.join(mode));
        if held == Some(mode) {
            return LockOutcome::Granted { seen, fresh: false, raised: None };
        }
        if entry.is_open_to(&owner.state, mode) {
            if held.is_some() {
                entry.add_holder(owner.state.clone(), mode);
                return LockOutcome::Granted { seen, fresh: false, raised: held };
            }
            if entry.take_ahead(&owner.state, mode) {
                drop(shard);
                owner.held.push(place.pack());
                return LockOutcome::Granted { seen, fresh: true, raised: None };
            }
        }
        if request.timeout == Some(Duration::ZERO) {
            return LockOutcome::Timeout;
        }
        owner.state.weight.store(u32::try_from(request.weight).unwrap_or(u32::MAX), Ordering::Relaxed);
        let spins = entry.enqueue(owner.state.clone(), mode);
        owner.state.begin_wait(place);
        drop(shard);
        self.wait(owner, place, held, request.timeout, spins)
    }

    /// Releases all locks of `owner`. With the timestamp of its commit, once that is applied; without, if it changed
    /// nothing or was rolled back.
    pub fn release_all(&self, owner: &mut LockOwner, commit: Option<CommitTs>) {
        if let Some(fold) = owner.fold.take() {
            self.folds.withdraw(&fold, commit);
        }
        let mut held = std::mem::take(&mut owner.held);
        if held.len() > RELEASE_BATCH {
            held.sort_unstable();
        }
        let mut wakes = Wakes::new();
        let mut rest = held.as_slice();
        while let Some(&first) = rest.first() {
            let number = Place::unpack(first).shard;
            let same = rest.iter().take(RELEASE_BATCH).take_while(|&&p| Place::unpack(p).shard == number).count();
            let slot = &self.shards[number as usize];
            let mut shard = slot.shard.lock();
            for &packed in &rest[..same] {
                Self::release_in(&mut shard, Place::unpack(packed).entry, &owner.state, commit, &mut wakes);
            }
            slot.bytes.store(shard.bytes(), Ordering::Relaxed);
            drop(shard);
            wakes.drain(..).for_each(|waiter| waiter.wake());
            thread::point("locks.released");
            rest = &rest[same..];
        }
        held.clear();
        if held.capacity() <= 4096 {
            owner.held = held;
        }
    }

    /// Releases one lock before the end of the transaction: a row that a READ COMMITTED statement locked, looked at and
    /// did not want. Only for a lock whose grant was `fresh`. Does nothing if it is not held.
    pub fn release_one(&self, owner: &mut LockOwner, index: IndexId, key: &[u8]) {
        let hash = hash(self.seed, index, key);
        let number = (hash >> (64 - SHARD_BITS)) as u32;
        let slot = &self.shards[number as usize];
        let mut wakes = Wakes::new();
        let mut shard = slot.shard.lock();
        let Some(entry) = shard.find(hash, index, key) else { return };
        let packed = Place { shard: number, entry }.pack();
        let Some(at) = owner.held.iter().rposition(|&held| held == packed) else { return };
        owner.held.remove(at);
        shard.entry_mut(entry).give_back(&owner.state);
        Self::release_in(&mut shard, entry, &owner.state, None, &mut wakes);
        slot.bytes.store(shard.bytes(), Ordering::Relaxed);
        drop(shard);
        wakes.drain(..).for_each(|waiter| waiter.wake());
    }

    /// Gives a lock that was raised to exclusive the mode from before: somebody stood against it whom the table does not know.
    pub fn lower_one(&self, owner: &LockOwner, index: IndexId, key: &[u8], to: Mode) {
        let (hash, shard) = self.shard_of(index, key);
        let mut wakes = Wakes::new();
        let mut shard = shard.lock();
        let Some(number) = shard.find(hash, index, key) else { return };
        let seen = shard.left(hash);
        let entry = shard.entry_mut(number);
        entry.set_mode_of(&owner.state, to);
        entry.promote(seen, &mut wakes);
        drop(shard);
        wakes.drain(..).for_each(|waiter| waiter.wake());
    }

    /// How `owner` holds this key in the table.
    #[must_use]
    pub fn mode_of(&self, owner: &LockOwner, index: IndexId, key: &[u8]) -> Option<Mode> {
        let (hash, shard) = self.shard_of(index, key);
        let shard = shard.lock();
        shard.find(hash, index, key).and_then(|number| shard.entry(number).held_by(&owner.state))
    }

    /// Newest commit that released a lock on this key (or on another of its bucket): what a current read without a lock
    /// must see.
    #[must_use]
    pub fn seen(&self, index: IndexId, key: &[u8]) -> CommitTs {
        let (hash, shard) = self.shard_of(index, key);
        shard.lock().left(hash)
    }

    /// Memory of all locks, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|slot| slot.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Counts of waits.
    #[must_use]
    pub fn stats(&self) -> LockStats {
        let Counters { waiting, waits, wait_nanos, wait_nanos_max, deadlocks, timeouts } = &*self.stats;
        LockStats {
            waiting: waiting.load(Ordering::Relaxed),
            waits: waits.load(Ordering::Relaxed),
            wait_nanos: wait_nanos.load(Ordering::Relaxed),
            wait_nanos_max: wait_nanos_max.load(Ordering::Relaxed),
            deadlocks: deadlocks.load(Ordering::Relaxed),
            timeouts: timeouts.load(Ordering::Relaxed),
        }
    }

    /// The hash of a key, and where it belongs.
    fn shard_of(&self, index: IndexId, key: &[u8]) -> (u64, &Mutex<Shard>) {
        let hash = hash(self.seed, index, key);
        (hash, self.shard((hash >> (64 - SHARD_BITS)) as u32))
    }

    fn shard(&self, number: u32) -> &Mutex<Shard> {
        &self.shards[number as usize].shard
    }

    fn release_in(
        shard: &mut MutexGuard<'_, Shard>,
        number: u32,
        owner: &Arc<OwnerState>,
        commit: Option<CommitTs>,
        wakes: &mut Wakes,
    ) {
        let hash = shard.entry(number).hash;
        if let Some(ts) = commit {
            shard.leave(hash, ts);
        }
        let seen = shard.left(hash);
        let entry = shard.entry_mut(number);
        entry.drop_holder(owner);
        entry.promote(seen, wakes);
        shard.remove_if_unused(number);
    }

    /// Spins in the queue; whoever has not been offered the lock by then is from now on one who sleeps.
    fn spin(&self, state: &Arc<OwnerState>, place: Place) {
        for _ in 0..self.spin_turns {
            if !state.is_waiting() {
                return;
            }
            thread::spin();
        }
        self.shard(place.shard).lock().entry_mut(place.entry).calm(state);
    }

    /// Step 4 from the moment the owner is in the queue.
    fn wait(
        &self,
        owner: &mut LockOwner,
        place: Place,
        held: Option<Mode>,
        timeout: Option<Duration>,
        spins: bool,
    ) -> LockOutcome {
        self.stats.waiting.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        let deadline = timeout.map(|timeout| started + timeout);
        if spins {
            self.spin(&owner.state, place);
        }
        // Somebody may be faster than one who spins was told of the lock: then the wait begins later.
        let mut told = None;
        let outcome = loop {
            thread::point("locks.queued");
            if owner.state.is_waiting() {
                let every = *told.get_or_insert_with(|| self.tell(WaitNews::Begins));
                deadlock::resolve(self, &owner.state);
                self.sleep(&owner.state, place, deadline, every);
            }
            thread::point("locks.woken");
            let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if let Some(outcome) = self.look_again(&owner.state, place, late, held) {
                break outcome;
            }
        };
        owner.state.end_wait();
        if told.is_some() {
            self.tell(WaitNews::Ends);
        }
        if held.is_none() && matches!(outcome, LockOutcome::Granted { .. }) {
            owner.held.push(place.pack());
        }
        let waited = started.elapsed();
        owner.waited += waited;
        self.count_wait(waited, &outcome);
        outcome
    }

    /// After a wake-up or the deadline: takes the lock, leaves the queue, or starts the next wait.
    fn look_again(&self, state: &Arc<OwnerState>, place: Place, late: bool, held: Option<Mode>) -> Option<LockOutcome> {
        let (fresh, raised) = (held.is_none(), held);
        let mut wakes = Wakes::new();
        let slot = &self.shards[place.shard as usize];
        let mut shard = slot.shard.lock();
        let seen = shard.left(shard.entry(place.entry).hash);
        let entry = shard.entry_mut(place.entry);
        // Under the latch nobody can offer or grant; a verdict or a cancellation may still come, and is then too late.
        let outcome = match state.signal().state() {
            State::Granted => Some(LockOutcome::Granted { seen: state.seen(), fresh, raised }),
            State::Victim => Some(LockOutcome::Deadlock { who: state.take_verdict() }),
            State::Cancelled => Some(LockOutcome::Cancelled),
            State::Waiting | State::Offered if entry.take_from_queue(state) => {
                Some(LockOutcome::Granted { seen, fresh, raised })
            }
            State::Waiting | State::Offered if late => Some(LockOutcome::Timeout),
            State::Waiting | State::Offered => {
                entry.calm(state);
                state.begin_wait(place);
                None
            }
            State::Idle => unreachable!("only the owner itself ends its wait"),
        };
        if outcome.is_some() {
            entry.leave(state);
        }
        // Also after a failure: one who spun may have been offered what is by now the first one's alone.
        entry.promote(seen, &mut wakes);
        if outcome.is_some() {
            shard.remove_if_unused(place.entry);
            slot.bytes.store(shard.bytes(), Ordering::Relaxed);
        }
        drop(shard);
        wakes.drain(..).for_each(|waiter| waiter.wake());
        outcome
    }

    fn count_wait(&self, waited: Duration, outcome: &LockOutcome) {
        let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.stats.waiting.fetch_sub(1, Ordering::Relaxed);
        self.stats.waits.fetch_add(1, Ordering::Relaxed);
        self.stats.wait_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.stats.wait_nanos_max.fetch_max(nanos, Ordering::Relaxed);
        if matches!(outcome, LockOutcome::Timeout) {
            self.stats.timeouts.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Multiply-and-fold over words of eight bytes. Only speed depends on its quality: keys are compared in full. Keys that differ in the lowest
/// bits of their last byte alone are neighbours: what they are hashed to differs in its lowest bits alone.
fn hash(seed: u64, index: IndexId, key: &[u8]) -> u64 {
    const A: u64 = 0x9e37_79b9_7f4a_7c15;
    const B: u64 = 0xd6e8_feb8_6659_fd93;
    let fold = |x: u64, y: u64| {
        let product = u128::from(x) * u128::from(y);
        (product as u64) ^ (product >> 64) as u64
    };
    let mut h = seed ^ (u64::from(index.0) + 1).wrapping_mul(A) ^ (key.len() as u64).wrapping_mul(B);
    let (last, front) = key.split_last().unwrap_or((&0, key));
    let mut words = front.chunks_exact(8);
    for word in &mut words {
        h = fold(h ^ u64::from_le_bytes(word.try_into().expect("eight bytes")), A);
    }
    let mut rest = [0; 8];
    rest[..words.remainder().len()].copy_from_slice(words.remainder());
    rest[7] = last & !NEIGHBOURS;
    fold(h ^ u64::from_le_bytes(rest) ^ B, B) & !u64::from(NEIGHBOURS) | u64::from(last & NEIGHBOURS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_hashed_side_by_side() {
        for front in [&b""[..], b"four", b"a key of two words"] {
            let hash = |last: u8| hash(7, IndexId(1), &[front, &[last]].concat());
            let near = u64::from(NEIGHBOURS);
            for last in (0..250).step_by(4) {
                assert!((0..4).all(|n| hash(last + n) == hash(last) | u64::from(n)));
                assert_ne!(hash(last) & !near, hash(last + 4) & !near);
            }
        }
    }
}
