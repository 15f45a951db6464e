//! One locked key: who holds it, who waits, and what happens when either changes.
//!
//! Rules of the queue (C2, P2):
//! 1. Waiters stand by age: a transaction that began earlier goes before one that began later (Huang and others, "A
//!    Top-Down Approach to Achieving Performance Predictability in Database Systems", SIGMOD 2017). An upgrade (held, and
//!    wanted in another mode) goes before all who hold nothing; upgrades stand in order of arrival. By order of arrival,
//!    who has waited for a row that is gone would begin anew at the next one, behind those who came there at once.
//!    Who gave the lock back before its end while others waited, and comes again, stands behind all who wait: it would come as
//!    often as it likes. But not behind those who begin later, or it would stand there for ever.
//! 2. When the lock can be had by the first waiter, it is *offered*: the waiter wakes and takes it if it is still to
//!    be had. Until then a running thread may take it first: handing a lock to a parked thread idles it for a wake-up.
//!    For the same reason it is offered to one who still spins instead, if there is one: nobody needs to be woken then.
//! 3. Who takes the lock though others stand before the place where it would stand itself passes them; the first time is
//!    noted. Once that is [`PASS_LIMIT`] ago for the first waiter, nobody passes any more and the lock is *granted* to it
//!    outright. Those who passed a waiter passed all before it, and stamps are set from the back until one is found, so
//!    the first waiter's stamp is the oldest. Who comes before others gets the stamp of the next.
//! 4. A waiter whose wait ended otherwise (victim, cancelled, timed out) takes itself out; rules 2 and 3 skip it.
//!
//! Who would stand first takes an open lock at once ([`Entry::take_ahead`]): in the queue nobody would offer it, and the
//! deadlock search would find nobody in its way.
//!
//! Invariants: `holder` is none only if `others` is empty; all hold it in one mode; with mode X, `others` is empty. A waiter
//! to whom the lock is open has one before it that conflicts, or one that is awake and will promote it, or is called.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base::{CommitTs, IndexId, TxnId};
use vfs::time::Instant;

use super::ends;
use super::listing::WaitEdge;
use super::owner::OwnerState;

/// Nobody is passed for longer than this.
pub(super) const PASS_LIMIT: Duration = Duration::from_millis(5);
/// Waiters of one key that spin at once: one takes over from the holder while that one's commit is written.
const SPINNING_MAX: usize = 2;
/// Transactions of one queue that are known to have given the lock back.
const RETURNED_MAX: usize = 32;

/// How a key is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Shared: others may hold it shared.
    Shared,
    /// To add to a counter: others may hold it so, too [A21].
    Increment,
    /// Exclusive.
    Exclusive,
}

impl Mode {
    /// Two owners cannot have it in these at once.
    pub(super) fn conflicts(self, other: Self) -> bool {
        self == Mode::Exclusive || self != other
    }

    /// What an owner holds who has it in both.
    pub(super) fn join(self, other: Self) -> Self {
        if self == other { self } else { Mode::Exclusive }
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
    /// By what it stands.
    age: TxnId,
    /// It holds it already.
    upgrade: bool,
    since: Instant,
    first_passed: Option<Instant>,
    /// It has not parked yet.
    spins: bool,
}

/// What an entry needs only when it is shared or waited for.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Holders beside `Entry::holder`.
    others: Vec<Arc<OwnerState>>,
    waiters: VecDeque<Waiter>,
    /// Waiters that spin.
    spinning: usize,
    /// Those who gave it back while others waited, who may be here still.
    returned: Vec<TxnId>,
}

impl Queue {
    /// The first has been passed for as long as anybody is.
    fn is_overdue(&self) -> bool {
        let since = self.waiters.front().and_then(|first| first.first_passed);
        since.is_some_and(|since| since.elapsed() >= PASS_LIMIT)
    }

    /// Where `owner` would stand (rule 1).
    fn place_of(&self, owner: &OwnerState, upgrade: bool) -> usize {
        let age = self.age_of(owner);
        let before = |w: &Waiter| w.upgrade || !upgrade && w.age <= age;
        self.waiters.iter().rposition(before).map_or(0, |last| last + 1)
    }

    fn age_of(&self, owner: &OwnerState) -> TxnId {
        let last = self.waiters.back().filter(|_| self.returned.contains(&owner.txn));
        last.map_or(owner.txn, |last| last.age.max(owner.txn))
    }

    /// Notes that somebody passes the first `count` waiters.
    fn pass(&mut self, count: usize) {
        let now = Instant::now();
        let passed = self.waiters.range_mut(..count).rev();
        passed.take_while(|w| w.first_passed.is_none()).for_each(|w| w.first_passed = Some(now));
    }

    fn calm(&mut self, at: usize) {
        self.spinning -= usize::from(std::mem::take(&mut self.waiters[at].spins));
    }

    fn remove(&mut self, at: usize) {
        self.calm(at);
        self.waiters.remove(at);
        if self.waiters.is_empty() {
            self.returned.clear();
        }
    }
}

/// One locked key.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    pub(super) hash: u64,
    pub(super) key: Key,
    pub(super) index: IndexId,
    /// Next of the free list.
    pub(super) next: u32,
    holder: Option<Arc<OwnerState>>,
    queue: Option<Box<Queue>>,
    /// Of all who hold it.
    mode: Mode,
}
const _: () = assert!(size_of::<Entry>() == 64, "a lock is one cache line");

/// Owners to wake once the shard's latch is given up.
pub(super) type Wakes = Vec<Arc<OwnerState>>;

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
        let others = self.queue.iter().flat_map(|q| q.others.iter());
        self.holder.iter().chain(others).map(|holder| (holder, self.mode))
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

    /// Takes an open lock for somebody who does not wait, ahead of those who do. False if those before whom it does not
    /// belong have been passed for long enough.
    pub(super) fn take_ahead(&mut self, owner: &Arc<OwnerState>, mode: Mode) -> bool {
        if let Some(queue) = &mut self.queue {
            let before = queue.place_of(owner, false);
            if before > 0 {
                if queue.is_overdue() {
                    return false;
                }
                queue.pass(before);
            }
        }
        self.add_holder(owner.clone(), mode);
        true
    }

    /// Makes `owner` a holder, or raises the mode of one that is alone.
    pub(super) fn add_holder(&mut self, owner: Arc<OwnerState>, mode: Mode) {
        debug_assert!(self.is_open_to(&owner, mode));
        match &self.holder {
            None => (self.holder, self.mode) = (Some(owner), mode),
            Some(holder) if Arc::ptr_eq(holder, &owner) => self.mode = self.mode.join(mode),
            Some(_) => self.queue.get_or_insert_default().others.push(owner),
        }
    }

    /// `owner`, which holds it alone, holds it in this mode. False if it is not alone.
    pub(super) fn set_mode_of(&mut self, owner: &Arc<OwnerState>, mode: Mode) -> bool {
        let is_alone = self.holders().all(|(holder, _)| Arc::ptr_eq(holder, owner));
        if is_alone {
            self.mode = mode;
        }
        is_alone
    }

    /// `owner` holds it no more.
    pub(super) fn drop_holder(&mut self, owner: &Arc<OwnerState>) {
        if self.holder.as_ref().is_some_and(|h| Arc::ptr_eq(h, owner)) {
            self.holder = self.queue.as_mut().and_then(|q| q.others.pop());
        } else if let Some(queue) = &mut self.queue {
            queue.others.retain(|o| !Arc::ptr_eq(o, owner));
        }
    }

    /// `owner`, which goes on, gives it back: if it comes again, it stands behind those who wait now (rule 1).
    pub(super) fn give_back(&mut self, owner: &OwnerState) {
        let Some(queue) = self.queue.as_mut().filter(|queue| !queue.waiters.is_empty()) else { return };
        if !queue.returned.contains(&owner.txn) {
            if queue.returned.len() == RETURNED_MAX {
                queue.returned.remove(0);
            }
            queue.returned.push(owner.txn);
        }
    }

    /// Puts `owner` into the queue. True if it may spin before it parks: not behind others that do, nor when the lock goes
    /// to those who sleep, for whom the core is needed then.
    pub(super) fn enqueue(&mut self, owner: Arc<OwnerState>, mode: Mode) -> bool {
        let upgrade = self.held_by(&owner).is_some();
        let queue = self.queue.get_or_insert_default();
        let at = queue.place_of(&owner, upgrade);
        let spins = queue.spinning < SPINNING_MAX && !queue.is_overdue();
        queue.spinning += usize::from(spins);
        // Stamps lie at the front: one that comes before those who were passed has theirs.
        let first_passed = queue.waiters.get(at).and_then(|next| next.first_passed);
        let (age, since) = (queue.age_of(&owner), Instant::now());
        queue.waiters.insert(at, Waiter { owner, mode, age, upgrade, since, first_passed, spins });
        spins
    }

    /// `owner`, which is in the queue, spins no more.
    pub(super) fn calm(&mut self, owner: &Arc<OwnerState>) {
        if let Some(at) = self.position(owner) {
            self.queue.as_mut().expect("it has waiters").calm(at);
        }
    }

    /// Where `owner` stands in the queue.
    pub(super) fn position(&self, owner: &Arc<OwnerState>) -> Option<usize> {
        self.waiters().position(|w| Arc::ptr_eq(&w.owner, owner))
    }

    /// Takes `owner` out of the queue.
    pub(super) fn leave(&mut self, owner: &Arc<OwnerState>) {
        if let Some(at) = self.position(owner) {
            self.queue.as_mut().expect("it has waiters").remove(at);
        }
    }

    /// A waiter tries: takes the lock and leaves the queue, if it is open and no earlier waiter stands against it; or if
    /// it spins and these have not been passed for long.
    pub(super) fn take_from_queue(&mut self, owner: &Arc<OwnerState>) -> bool {
        let at = self.position(owner).expect("a waiter is in the queue until it is granted");
        let Waiter { mode, spins, .. } = *self.waiters().nth(at).expect("position is in range");
        let behind = self.waiters().take(at).any(|w| mode.conflicts(w.mode) && w.owner.is_live());
        if !self.is_open_to(owner, mode) {
            return false;
        }
        let queue = self.queue.as_mut().expect("it has waiters");
        if behind && (!spins || queue.is_overdue()) {
            return false;
        }
        if behind {
            queue.pass(at);
        }
        queue.remove(at);
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
            if waiter.first_passed.is_none_or(|since| since.elapsed() < PASS_LIMIT) {
                let called = self.spinner().unwrap_or(owner);
                if called.offer() {
                    wakes.push(called);
                }
                return;
            }
            // False: its wait has just ended otherwise, and it is not live in the next turn.
            if owner.grant(seen) {
                self.queue.as_mut().expect("it has waiters").remove(at);
                self.add_holder(owner.clone(), mode);
                wakes.push(owner);
            }
        }
    }

    /// The first of those who spin and to whom the lock is open.
    fn spinner(&self) -> Option<Arc<OwnerState>> {
        if self.queue.as_ref().is_none_or(|queue| queue.spinning == 0) {
            return None;
        }
        let mut spinning = self.waiters().filter(|w| w.spins && w.owner.is_live());
        spinning.find(|w| self.is_open_to(&w.owner, w.mode)).map(|w| w.owner.clone())
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

    /// All for whom [`Entry::blocks`] is true of the waiter at `at`, holders first, in one pass.
    pub(super) fn blockers(&self, at: usize) -> impl Iterator<Item = &Arc<OwnerState>> {
        let waiter = self.waiters().nth(at).expect("position is in range");
        let holders = self.holders().filter(|(_, held)| waiter.mode.conflicts(*held)).map(|(other, _)| other);
        let before = self.waiters().take(at).filter(|w| waiter.mode.conflicts(w.mode) && w.owner.is_live());
        holders.chain(before.map(|w| &w.owner)).filter(|other| !Arc::ptr_eq(&waiter.owner, other))
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

#[cfg(test)]
mod tests {
    use base::TxnId;

    use super::super::owner::{LockOwner, Place, State};
    use super::*;

    fn owner(n: u64) -> Arc<OwnerState> {
        LockOwner::new(TxnId(n)).state.clone()
    }

    fn wait(entry: &mut Entry, owner: &Arc<OwnerState>) -> bool {
        let spins = entry.enqueue(owner.clone(), Mode::Exclusive);
        owner.begin_wait(Place { shard: 0, entry: 0 });
        spins
    }

    fn release(entry: &mut Entry, owner: &Arc<OwnerState>) -> Vec<u64> {
        let mut wakes = Wakes::new();
        entry.drop_holder(owner);
        entry.promote(CommitTs(0), &mut wakes);
        wakes.iter().map(|woken| woken.txn.0).collect()
    }

    /// The lock is offered to who spins, ahead of one who sleeps, until that one has been passed for long. Guards: `promote`
    /// and `enqueue` look at how long the first has been passed, and so does one who was offered the lock just before.
    #[test]
    fn c2_nobody_is_passed_by_those_who_spin() {
        let [holder, sleeper, second, third, fourth] = [1, 2, 3, 4, 5].map(owner);
        let mut entry = Entry::new(7, IndexId(1), b"hot", holder.clone(), Mode::Exclusive);
        assert!(wait(&mut entry, &sleeper), "nobody spins yet");
        entry.calm(&sleeper);
        assert!(wait(&mut entry, &second) && wait(&mut entry, &third) && !wait(&mut entry, &fourth), "two spin");
        assert_eq!(release(&mut entry, &holder), [3], "to who spins");
        assert!(!entry.take_from_queue(&fourth) && entry.take_from_queue(&second));
        assert_eq!(release(&mut entry, &second), [4]);
        vfs::thread::sleep(PASS_LIMIT);
        assert!(!entry.take_from_queue(&third), "offered to it, but now the first one's");
        assert!(!wait(&mut entry, &owner(6)), "whoever comes now sleeps");
        assert!(!entry.take_ahead(&owner(7), Mode::Exclusive));
        let mut wakes = Wakes::new();
        entry.promote(CommitTs(0), &mut wakes);
        assert!(wakes.iter().map(|woken| woken.txn.0).eq([2]) && sleeper.signal().state() == State::Granted);
        assert!(entry.held_by(&sleeper).is_some());
    }

    /// The older transaction stands first, however late it came; it has the stamp of those it comes before, passes nobody
    /// when it takes the lock, and takes it at once if it would stand first. Guards: `place_of` looks at the age, in
    /// `enqueue` and in `take_ahead`.
    #[test]
    fn c2_waiters_stand_by_age() {
        let [eldest, elder, middle, younger, youngest, holder, new] = [1, 2, 3, 4, 5, 6, 7].map(owner);
        let mut entry = Entry::new(7, IndexId(1), b"hot", holder.clone(), Mode::Exclusive);
        for waiter in [&middle, &youngest, &elder, &younger] {
            wait(&mut entry, waiter);
            entry.calm(waiter);
        }
        let order = |entry: &Entry| entry.waiters().map(|w| w.owner.txn.0).collect::<Vec<_>>();
        assert_eq!(order(&entry), [2, 3, 4, 5]);
        assert_eq!(release(&mut entry, &holder), [2]);
        assert!(entry.take_ahead(&new, Mode::Exclusive), "it passes all");
        vfs::thread::sleep(PASS_LIMIT);
        entry.drop_holder(&new);
        assert!(!entry.take_ahead(&owner(8), Mode::Exclusive), "they have been passed for long");
        assert!(entry.take_ahead(&eldest, Mode::Exclusive), "it passes nobody");
        assert_eq!(release(&mut entry, &eldest), [2], "granted");
        assert_eq!((order(&entry), elder.signal().state()), (vec![3, 4, 5], State::Granted));
    }

    /// An elder one that gave the lock back while others waited stands behind them when it comes again, and before those who
    /// begin later; once they are gone, by its age. Guards: `age_of`, and that `remove` forgets whom `give_back` noted.
    #[test]
    fn c2_who_comes_again_stands_behind_those_who_wait() {
        let [elder, middle, waiter, younger, holder] = [1, 2, 3, 4, 5].map(owner);
        let mut entry = Entry::new(7, IndexId(1), b"hot", elder.clone(), Mode::Exclusive);
        wait(&mut entry, &waiter);
        let order = |entry: &Entry| entry.waiters().map(|w| w.owner.txn.0).collect::<Vec<_>>();
        entry.give_back(&elder);
        assert_eq!(release(&mut entry, &elder), [3]);
        assert!(entry.take_ahead(&holder, Mode::Exclusive));
        [&younger, &elder, &middle].into_iter().for_each(|other| _ = wait(&mut entry, other));
        assert_eq!(order(&entry), [2, 3, 4, 1]);
        wait(&mut entry, &owner(6));
        assert_eq!(order(&entry), [2, 3, 4, 1, 6]);
        [&elder, &middle, &waiter, &younger].into_iter().for_each(|other| entry.leave(other));
        wait(&mut entry, &elder);
        assert_eq!(order(&entry), [6, 1], "one is there still behind whom it stood");
        entry.leave(&elder);
        let last = entry.waiters().next().expect("one is left").owner.clone();
        entry.leave(&last);
        [&middle, &elder].into_iter().for_each(|other| _ = wait(&mut entry, other));
        assert_eq!(order(&entry), [1, 2]);
    }

    /// Readers who keep coming do not pass an upgrade for ever that came before one they had passed. Guard: `enqueue` gives
    /// it the stamp of the next, since `pass` sets stamps from the back until one is found.
    #[test]
    fn c2_an_upgrade_before_one_who_was_passed_is_not_passed_for_long() {
        let [first, second, writer, third, fourth] = [1, 2, 3, 4, 5].map(owner);
        let mut entry = Entry::new(7, IndexId(1), b"hot", first.clone(), Mode::Shared);
        assert!(entry.take_ahead(&second, Mode::Shared));
        wait(&mut entry, &writer);
        assert!(entry.take_ahead(&third, Mode::Shared), "passes the writer");
        wait(&mut entry, &first);
        assert_eq!(entry.position(&first), Some(0));
        vfs::thread::sleep(PASS_LIMIT);
        assert!(!entry.take_ahead(&fourth, Mode::Shared));
        assert!(release(&mut entry, &second).is_empty());
        assert_eq!(release(&mut entry, &third), [1]);
        assert_eq!(entry.held_by(&first), Some(Mode::Exclusive), "handed to it");
    }
}
