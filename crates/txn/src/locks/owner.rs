//! The two halves of a transaction as the lock table sees it: [`LockOwner`], which the transaction owns, and the
//! shared state that entries, queues and the deadlock search point to.
//!
//! One word, `signal`, says how a wait stands: the number of the wait and one of the states below. Whoever ends a
//! wait does so by a compare-exchange from a state it has seen *of that wait*, so of a grant, a deadlock verdict and a
//! cancellation that arrive together exactly one wins.
//!
//! ```text
//!            begin_wait                 offer                 begin_wait (somebody was faster)
//! IDLE ───────────────▶ WAITING(n) ───────────▶ OFFERED(n) ───────────────▶ WAITING(n+1)
//!                        │  │  │                 │     │
//!                  grant │  │  │ cancel          │     └──▶ CANCELLED(n), GRANTED(n), or taken by the waiter
//!                        ▼  ▼  ▼                 ▼
//!              GRANTED(n) VICTIM(n) CANCELLED(n)
//! ```
//!
//! `begin_wait`, `offer` and `grant` happen under the latch of the shard the owner waits in; verdict and
//! cancellation do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use base::{CommitTs, TxnId};
use smallvec::SmallVec;
use vfs::sync::{Condvar, Mutex};
use vfs::time::Instant;

use super::deadlock::Deadlock;
use super::folded::Fold;

const STATE_BITS: u32 = 3;
const STATE_MASK: u64 = (1 << STATE_BITS) - 1;

/// How a wait stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Not waiting.
    Idle,
    /// In a queue.
    Waiting,
    /// The lock may be free: the waiter wakes and tries, still in its queue.
    Offered,
    /// The lock is the waiter's; it is out of the queue.
    Granted,
    /// Chosen to end a deadlock; still in the queue.
    Victim,
    /// Cancelled by another thread; still in the queue.
    Cancelled,
}

/// The signal word, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Signal(u64);

impl Signal {
    fn new(number: u64, state: State) -> Self {
        Self(number << STATE_BITS | state as u64)
    }

    pub(super) fn state(self) -> State {
        const STATES: [State; 6] =
            [State::Idle, State::Waiting, State::Offered, State::Granted, State::Victim, State::Cancelled];
        STATES[(self.0 & STATE_MASK) as usize]
    }

    fn with(self, state: State) -> Self {
        Self(self.0 & !STATE_MASK | state as u64)
    }
}

/// Where an owner waits: shard and entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) shard: u32,
    pub(super) entry: u32,
}

impl Place {
    pub(super) fn pack(self) -> u64 {
        u64::from(self.shard) << 32 | u64::from(self.entry)
    }

    pub(super) fn unpack(packed: u64) -> Self {
        Self { shard: (packed >> 32) as u32, entry: packed as u32 }
    }
}

/// What others need to know of a transaction that holds or waits for locks.
#[derive(Debug)]
pub(super) struct OwnerState {
    pub(super) txn: TxnId,
    /// Number of waits so far and the state of the last. Partners: the transitions above; the fence in
    /// `deadlock::resolve`.
    signal: AtomicU64,
    /// Written under the shard's latch before `signal` says WAITING; read as a hint and checked under that latch.
    place: AtomicU64,
    /// Size of the write set, as of the last request. Relaxed: constant while the owner waits.
    pub(super) weight: AtomicU32,
    pub(super) prepared: AtomicBool,
    /// Sticky. Partner: `begin_wait` stores the signal before it loads this, `cancel` does the reverse.
    cancelled: AtomicBool,
    /// Bucket timestamp at the moment of a grant by hand-over. Published by the signal.
    seen: AtomicU64,
    /// Key that the owner would insert when the transaction it waits for has ended. Read under the latch of the shard it waits
    /// in; innermost.
    wanted: Mutex<Vec<u8>>,
    /// The verdict for a victim; its mutex is the gate of `wake`.
    verdict: Mutex<Option<Box<Deadlock>>>,
    wake: Condvar,
}

impl OwnerState {
    fn new(txn: TxnId) -> Self {
        Self {
            txn,
            signal: AtomicU64::new(0),
            place: AtomicU64::new(0),
            weight: AtomicU32::new(0),
            prepared: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            seen: AtomicU64::new(0),
            wanted: Mutex::new(Vec::new()),
            verdict: Mutex::new(None),
            wake: Condvar::new(),
        }
    }

    pub(super) fn signal(&self) -> Signal {
        Signal(self.signal.load(Ordering::SeqCst))
    }

    pub(super) fn place(&self) -> Place {
        Place::unpack(self.place.load(Ordering::Relaxed))
    }

    /// In a queue and not on the way out of it.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.signal().state(), State::Waiting | State::Offered)
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.signal().state() == State::Waiting
    }

    /// Starts a wait, or the next one in the same queue. Only by the owner, under the shard's latch.
    pub(super) fn begin_wait(&self, place: Place) {
        self.place.store(place.pack(), Ordering::Relaxed);
        let number = (self.signal.load(Ordering::Relaxed) >> STATE_BITS) + 1;
        self.signal.store(Signal::new(number, State::Waiting).0, Ordering::SeqCst);
        vfs::thread::point("locks.begin_wait");
        if self.cancelled.load(Ordering::SeqCst) {
            self.turn(&[State::Waiting], State::Cancelled);
        }
    }

    /// Ends the wait: the owner is in no queue. Only by the owner.
    pub(super) fn end_wait(&self) {
        let now = self.signal();
        self.signal.store(now.with(State::Idle).0, Ordering::SeqCst);
    }

    /// Tells the first waiter that the lock may be free. False if it knows or is on its way out. The caller wakes it.
    pub(super) fn offer(&self) -> bool {
        self.turn(&[State::Waiting], State::Offered)
    }

    /// Makes the waiter an owner. False if it is on its way out. The caller wakes it.
    pub(super) fn grant(&self, seen: CommitTs) -> bool {
        self.seen.store(seen.0, Ordering::Relaxed);
        self.turn(&[State::Waiting, State::Offered], State::Granted)
    }

    /// Ends the wait `during` with a deadlock, and lists it before the victim can know. Nothing if that wait is over.
    pub(super) fn condemn(&self, during: Signal, cycle: &Deadlock, list: impl FnOnce(Deadlock)) {
        let mut verdict = self.verdict.lock();
        let victim = during.with(State::Victim).0;
        vfs::thread::point("locks.condemn");
        if self.signal.compare_exchange(during.0, victim, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return;
        }
        *verdict = Some(Box::new(cycle.clone()));
        list(cycle.clone());
        drop(verdict);
        self.wake.notify_one();
        vfs::thread::point("locks.condemned");
    }

    pub(super) fn take_verdict(&self) -> Box<Deadlock> {
        self.verdict.lock().take().expect("a victim has its verdict")
    }

    pub(super) fn set_wanted(&self, key: &[u8]) {
        let mut wanted = self.wanted.lock();
        wanted.clear();
        wanted.extend_from_slice(key);
    }

    pub(super) fn wanted(&self) -> Vec<u8> {
        self.wanted.lock().clone()
    }

    pub(super) fn seen(&self) -> CommitTs {
        CommitTs(self.seen.load(Ordering::Relaxed))
    }

    fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        vfs::thread::point("locks.cancel");
        if self.turn(&[State::Waiting, State::Offered], State::Cancelled) {
            self.wake();
        }
    }

    /// Wakes the owner if it is parked. The gate orders this behind a look at the signal that came too early.
    pub(super) fn wake(&self) {
        drop(self.verdict.lock());
        self.wake.notify_one();
    }

    /// Parks until the wait is no longer plainly waiting or the deadline has passed.
    pub(super) fn sleep(&self, deadline: Option<Instant>) {
        let mut gate = self.verdict.lock();
        while self.is_waiting() {
            let Some(deadline) = deadline else {
                self.wake.wait(&mut gate);
                continue;
            };
            let now = Instant::now();
            if now >= deadline {
                return;
            }
            self.wake.wait_for(&mut gate, deadline - now);
        }
    }

    /// Moves the state of the present wait from one of `from` to `to`.
    fn turn(&self, from: &[State], to: State) -> bool {
        let mut now = self.signal();
        while from.contains(&now.state()) {
            match self.signal.compare_exchange(now.0, now.with(to).0, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return true,
                Err(newer) => now = Signal(newer),
            }
        }
        false
    }
}

/// A transaction's locks. The transaction owns it; dropping it does not release them, [`super::Locks::release_all`]
/// does.
#[derive(Debug)]
pub struct LockOwner {
    pub(super) state: Arc<OwnerState>,
    /// Packed places of the locks held, in the order in which they were got.
    pub(super) held: SmallVec<[u64; 4]>,
    /// Locks that are in the table no more.
    pub(super) fold: Option<Arc<Fold>>,
    /// Time spent waiting, ever.
    pub(super) waited: Duration,
}

impl LockOwner {
    /// An owner without locks.
    #[must_use]
    pub fn new(txn: TxnId) -> Self {
        Self { state: Arc::new(OwnerState::new(txn)), held: SmallVec::new(), fold: None, waited: Duration::ZERO }
    }

    /// The transaction.
    #[must_use]
    pub fn txn(&self) -> TxnId {
        self.state.txn
    }

    /// Number of locks held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// True if no lock is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Memory of the list of locks, in bytes. The locks themselves are in [`super::Locks::bytes`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.held.capacity() * size_of::<u64>()
    }

    /// Time it has spent waiting so far: what somebody who asks again and again has to look at, so that all of it together
    /// is one wait.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// From now on never chosen to end a deadlock.
    pub fn set_prepared(&self) {
        self.state.prepared.store(true, Ordering::Relaxed);
    }

    /// For other threads: ends this owner's waits.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller(self.state.clone())
    }

    /// Forgets a cancellation, before the next statement.
    pub fn clear_cancelled(&self) {
        self.state.cancelled.store(false, Ordering::SeqCst);
    }
}

impl Drop for LockOwner {
    fn drop(&mut self) {
        debug_assert!(self.held.is_empty() || std::thread::panicking(), "locks of {} were not released", self.txn());
    }
}

/// Ends the waits of one owner from another thread.
#[derive(Debug, Clone)]
pub struct Canceller(Arc<OwnerState>);

impl Canceller {
    /// The present wait, and every later one until [`LockOwner::clear_cancelled`], ends with
    /// [`super::LockOutcome::Cancelled`]. Locks that are free can still be got.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// True from then on until it is forgotten: for waits that are for no lock.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }
}
