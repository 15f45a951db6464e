//! Locks of large transactions, folded (rule B1): millions of row locks would not fit.
//!
//! A lock on a key that the transaction has written is dropped: the write set itself says that the key is locked. Locks on
//! keys that it has not written become spans: sixteen neighbours one span, which locks what lies between them too; when
//! there are too many spans, neighbours are joined.
//!
//! 1. The large transaction publishes what it folds, and only then drops the locks from the table.
//! 2. Whoever gets a lock from the table then asks [`Locks::folded_by`]; if a large transaction has that key, it gives the
//!    lock back, waits for the end of that transaction ([`super::ends`]), and begins anew.
//!
//! Several may have written a counter that nobody else has locked: there what was written says nothing, and locks become spans
//! ([`KeyNames::Counters`]). One to add with (mode I) is folded as an exclusive one, if nobody else has the key; it is raised first,
//! so that nobody gets it in between. If others add to that key, too, the lock stays in the table.
//!
//! Why nothing slips through: who gets a lock after 1 finds the entry free because it was dropped, under the latch of its
//! shard, behind the publication. Who got it before held it together with the large transaction, both shared; when it raises
//! its lock it asks again, and if somebody stands against it has it as before: else it would have it the next time.
//!
//! Why the lock is given back before waiting: the large transaction may ask for the same key once more.
//!
//! On a secondary index a lock stands for a value: its name is the front of the entries' keys. So there a key counts as
//! written if an entry that begins with it was ([`KeyNames::Fronts`]).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use base::{CommitTs, IndexId, Result, TxnId};
use smallvec::SmallVec;
use vfs::sync::RwLock;

use super::Locks;
use super::areas::Area;
use super::ends::ENDS;
use super::entry::{Mode, Wakes};
use super::owner::{LockOwner, OwnerState, Place};
use crate::write_set::SharedWriteSet;

/// Neighbouring locks that become one span.
const NEIGHBOURS: usize = 16;
/// Spans of an index past which neighbours are joined.
const SPANS_MAX: usize = 4096;
/// Memory of a span beside its keys, in bytes.
const SPAN_BYTES: usize = 80;

/// What the names of an index's locks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyNames {
    /// Keys of entries.
    Whole,
    /// Fronts of keys.
    Fronts,
    /// Keys of counters: several may have written one.
    Counters,
}

/// From a key to another, both included, locked so.
pub(super) type Spans = BTreeMap<Vec<u8>, (Vec<u8>, Mode)>;

/// What one transaction has folded.
#[derive(Debug)]
pub(super) struct Fold {
    pub(super) txn: TxnId,
    pub(super) writes: Arc<SharedWriteSet>,
    pub(super) spans: RwLock<BTreeMap<IndexId, Spans>>,
    /// Locks on what was written were dropped: the write set tells them. Release and Acquire, before they are dropped.
    tells_writes: AtomicBool,
    /// Locked as a whole, exclusively: [`super::areas`].
    pub(super) areas: RwLock<Vec<Area>>,
}

/// All of them. Lock-free as long as there are none.
#[derive(Debug, Default)]
pub(super) struct Folds {
    pub(super) count: AtomicUsize,
    /// Newest commit of a transaction that had folded locks: no bucket knows it (rule A17).
    left: AtomicU64,
    pub(super) table: RwLock<Vec<Arc<Fold>>>,
}

impl Fold {
    pub(super) fn new(txn: TxnId, writes: Arc<SharedWriteSet>) -> Self {
        let (spans, areas) = Default::default();
        Self { txn, writes, spans, tells_writes: AtomicBool::new(false), areas }
    }

    fn stands_against(&self, index: IndexId, key: &[u8], mode: Mode, names: KeyNames) -> Result<bool> {
        let spans = self.spans.read();
        if let Some(spans) = spans.get(&index) {
            let below = spans.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
            if below.is_some_and(|(_, (high, held))| key <= high.as_slice() && held.conflicts(mode)) {
                return Ok(true);
            }
        }
        drop(spans);
        if self.areas.read().iter().any(|area| area.has(index, key)) {
            return Ok(true);
        }
        let is_told = self.tells_writes.load(Ordering::Acquire) && names != KeyNames::Counters;
        Ok(is_told && self.writes.wrote(index, key, names == KeyNames::Fronts)?)
    }

    /// Adds spans over ascending keys.
    fn add(&self, index: IndexId, keys: &[(Vec<u8>, Mode)]) {
        let mut all = self.spans.write();
        let spans = all.entry(index).or_default();
        for group in keys.chunks(NEIGHBOURS) {
            let mode = group.iter().map(|(_, mode)| *mode).reduce(Mode::join).expect("a chunk is not empty");
            join(spans, group[0].0.clone(), group[group.len() - 1].0.clone(), mode);
        }
        while spans.len() > SPANS_MAX {
            let all: Vec<_> = std::mem::take(spans).into_iter().collect();
            for pair in all.chunks(2) {
                let ((low, (_, mode)), (_, (high, other))) = (&pair[0], &pair[pair.len() - 1]);
                spans.insert(low.clone(), (high.clone(), mode.join(*other)));
            }
        }
    }

    /// Adds a key, locked exclusively.
    pub(super) fn add_one(&self, index: IndexId, key: &[u8]) {
        let mut all = self.spans.write();
        join(all.entry(index).or_default(), key.to_vec(), key.to_vec(), Mode::Exclusive);
    }

    fn bytes(&self) -> usize {
        let areas: usize = self.areas.read().iter().map(Area::bytes).sum();
        let spans = self.spans.read();
        areas + spans.values().flatten().map(|(low, (high, _))| low.len() + high.len() + SPAN_BYTES).sum::<usize>()
    }
}

/// Adds a span, together with those that it meets.
fn join(spans: &mut Spans, mut low: Vec<u8>, mut high: Vec<u8>, mut mode: Mode) {
    while let Some((start, (end, held))) =
        spans.range::<[u8], _>((Bound::Unbounded, Bound::Included(high.as_slice()))).next_back()
        && *end >= low
    {
        let start = start.clone();
        (low, mode) = (low.min(start.clone()), mode.join(*held));
        let (end, _) = spans.remove(&start).expect("it was there");
        high = high.max(end);
    }
    spans.insert(low, (high, mode));
}

impl Locks {
    /// Folds locks of `owner`, whose writes are `writes`: all on what was written, and of the others all but the newest
    /// quarter, which are likely to be written in a moment. Returns the memory of what is left of them, in bytes.
    ///
    /// To be called before writes leave the memory too: what was written under a lock that is not folded is told by it.
    pub fn fold(
        &self,
        owner: &mut LockOwner,
        writes: &Arc<SharedWriteSet>,
        names: impl Fn(IndexId) -> KeyNames,
    ) -> usize {
        let mut spans: BTreeMap<IndexId, Vec<(Vec<u8>, Mode)>> = BTreeMap::new();
        let (mut kept, mut kept_bytes) = (SmallVec::new(), 0);
        let held = std::mem::take(&mut owner.held);
        let old = held.len() * 3 / 4;
        let mut folded = Vec::with_capacity(held.len());
        for (n, packed) in held.into_iter().enumerate() {
            let (index, key, mode) = self.name_of(owner, packed);
            let names = names(index);
            let is_written =
                || names != KeyNames::Counters && writes.has_in_memory(index, &key, names == KeyNames::Fronts);
            let bytes = super::lock_bytes(&key);
            if index != ENDS && is_written() {
                spans.entry(index).or_default();
                folded.push(packed);
            } else if index != ENDS
                && n < old
                && let Some(mode) = self.mode_to_fold(owner, packed, mode)
            {
                spans.entry(index).or_default().push((key, mode));
                folded.push(packed);
            } else {
                kept.push(packed);
                kept_bytes += bytes;
            }
        }
        owner.held = kept;
        let fold = owner.fold.get_or_insert_with(|| Arc::new(Fold::new(owner.state.txn, writes.clone())));
        let fold = fold.clone();
        fold.tells_writes.store(true, Ordering::Release);
        for (index, mut keys) in spans {
            self.announce_end(owner, index);
            keys.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            fold.add(index, &keys);
        }
        self.folds.publish(&fold);
        vfs::thread::point("locks.folded");
        self.drop_folded(&owner.state, &folded);
        fold.bytes() + kept_bytes
    }

    /// A transaction other than `owner` that has `key` locked, in a mode that conflicts, in folded form. To be asked after
    /// each lock that was got or raised.
    ///
    /// # Errors
    /// Faults of reading writes that lie in files.
    pub fn folded_by(
        &self,
        owner: &LockOwner,
        index: IndexId,
        key: &[u8],
        mode: Mode,
        names: KeyNames,
    ) -> Result<Option<TxnId>> {
        // Acquire: behind the latch under which the lock was got; it orders the load of `left` behind this one.
        if self.folds.count.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        vfs::thread::point("locks.probing");
        let others: Vec<_> = self.folds.table.read().iter().filter(|fold| fold.txn != owner.txn()).cloned().collect();
        for fold in others {
            if fold.stands_against(index, key, mode, names)? {
                return Ok(Some(fold.txn));
            }
        }
        Ok(None)
    }

    /// The newest commit whose locks were folded: whoever has got a lock and asked [`Locks::folded_by`] may meet what it
    /// wrote (rule A17).
    pub fn left_by_folded(&self) -> CommitTs {
        CommitTs(self.folds.left.load(Ordering::Acquire))
    }

    /// What `owner` holds there.
    fn name_of(&self, owner: &LockOwner, packed: u64) -> (IndexId, Vec<u8>, Mode) {
        let Place { shard, entry } = Place::unpack(packed);
        let shard = self.shard(shard).lock();
        let entry = shard.entry(entry);
        let mode = entry.held_by(&owner.state).expect("what is listed is held");
        (entry.index, entry.key.as_bytes().to_vec(), mode)
    }

    /// How what `owner` holds there is folded; `None` if it stays where it is.
    fn mode_to_fold(&self, owner: &LockOwner, packed: u64, held: Mode) -> Option<Mode> {
        if held != Mode::Increment {
            return Some(held);
        }
        let Place { shard, entry } = Place::unpack(packed);
        let is_alone = self.shard(shard).lock().entry_mut(entry).set_mode_of(&owner.state, Mode::Exclusive);
        is_alone.then_some(Mode::Exclusive)
    }

    /// Drops locks that were folded from the table; who waits for one of them is sent on.
    fn drop_folded(&self, owner: &Arc<OwnerState>, folded: &[u64]) {
        let mut wakes = Wakes::new();
        for &packed in folded {
            let Place { shard: number, entry } = Place::unpack(packed);
            let slot = &self.shards[number as usize];
            let mut shard = slot.shard.lock();
            Self::release_in(&mut shard, entry, owner, None, &mut wakes);
            slot.bytes.store(shard.bytes(), Ordering::Relaxed);
        }
        wakes.drain(..).for_each(|waiter| waiter.wake());
    }
}

impl Folds {
    fn publish(&self, fold: &Arc<Fold>) {
        let mut table = self.table.write();
        if !table.iter().any(|other| Arc::ptr_eq(other, fold)) {
            table.push(fold.clone());
            self.count.store(table.len(), Ordering::Release);
        }
    }

    /// The same with an area, unless that of another one is in its way.
    pub(super) fn publish_area(&self, fold: &Arc<Fold>, wanted: Area) -> std::result::Result<(), TxnId> {
        let mut table = self.table.write();
        for other in table.iter().filter(|other| !Arc::ptr_eq(other, fold)) {
            if other.areas.read().iter().any(|area| area.meets(&wanted)) {
                return Err(other.txn);
            }
        }
        let mut areas = fold.areas.write();
        if !areas.iter().any(|area| area.covers(&wanted)) {
            areas.push(wanted);
        }
        drop(areas);
        if !table.iter().any(|other| Arc::ptr_eq(other, fold)) {
            table.push(fold.clone());
            self.count.store(table.len(), Ordering::Release);
        }
        Ok(())
    }

    /// The end of a transaction: before its other locks are released.
    pub(super) fn withdraw(&self, fold: &Arc<Fold>, commit: Option<CommitTs>) {
        if let Some(ts) = commit {
            self.left.fetch_max(ts.0, Ordering::Release);
        }
        let mut table = self.table.write();
        table.retain(|other| !Arc::ptr_eq(other, fold));
        self.count.store(table.len(), Ordering::Release);
    }
}

impl LockOwner {
    /// True if locks of this owner were folded.
    #[must_use]
    pub fn is_folded(&self) -> bool {
        self.fold.as_ref().is_some_and(|fold| fold.tells_writes.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_meet_are_one() {
        let mut spans = Spans::new();
        let mut add = |low: u8, high: u8, mode| join(&mut spans, vec![low], vec![high], mode);
        add(10, 20, Mode::Shared);
        add(30, 40, Mode::Exclusive);
        add(50, 60, Mode::Shared);
        add(15, 30, Mode::Shared);
        add(70, 70, Mode::Shared);
        let all: Vec<_> = spans.into_iter().map(|(low, (high, mode))| (low[0], high[0], mode)).collect();
        let expect = [(10, 40, Mode::Exclusive), (50, 60, Mode::Shared), (70, 70, Mode::Shared)];
        assert_eq!(all, expect);
    }
}
