//! Whole ranges of an index locked exclusively: rows that are there, and keys that might come to be. For who deletes a range.
//!
//! An area is something folded ([`super::folded`]) that no lock was folded for: who gets the lock of a key in it from the table asks
//! [`Locks::folded_by`], gives the lock back and waits for the end of the area's owner. So steps 1 and 2 there are those here:
//! 1. The owner publishes the area, unless another one is in its way, which is waited for first. Two that overlap would else wait for each other.
//! 2. Whoever has got a lock before that is in the table ([`Locks::others_in`]), or has folded it ([`Locks::folded_in`]). He is waited for, as an ordinary
//!    owner of that key is.
//!
//! Why one look at the table is enough: who gets a lock behind the publication gives it back. And the look at what is folded comes behind it: who folds a lock
//! publishes that before the table loses it. Who takes back what he has written has the lock in the table again, maybe behind the look at it: so where somebody's area
//! has the key, it becomes something folded before the write set forgets it ([`Locks::keep_before_areas`]), and what was written is asked before that is.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{CommitTs, IndexId, Result, TxnId};

use super::Locks;
use super::folded::Fold;
use super::owner::LockOwner;
use crate::write_set::SharedWriteSet;

/// Part of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Area {
    pub index: IndexId,
    /// The lowest key of it.
    pub low: Vec<u8>,
    /// The lowest key above it, if there is one.
    pub high: Option<Vec<u8>>,
}

impl Area {
    pub fn has(&self, index: IndexId, key: &[u8]) -> bool {
        self.index == index && *self.low <= *key && self.high.as_ref().is_none_or(|high| key < high.as_slice())
    }

    pub fn covers(&self, other: &Area) -> bool {
        let reaches = match (&self.high, &other.high) {
            (None, _) => true,
            (Some(high), Some(other)) => high >= other,
            (Some(_), None) => false,
        };
        self.index == other.index && self.low <= other.low && reaches
    }

    pub fn meets(&self, other: &Area) -> bool {
        let ends_above = |a: &Area, b: &Area| a.high.as_ref().is_none_or(|high| *high > b.low);
        self.index == other.index && ends_above(self, other) && ends_above(other, self)
    }

    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let high = self.high.as_ref().map_or(Bound::Unbounded, |high| Bound::Excluded(high.as_slice()));
        (Bound::Included(&self.low), high)
    }

    /// Memory, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.low.len() + self.high.as_ref().map_or(0, Vec::len)
    }
}

/// Keys from one on, below another or up to the end.
pub type AreaOf<'a> = (&'a [u8], Option<&'a [u8]>);

fn area(index: IndexId, (low, high): AreaOf<'_>) -> Area {
    Area { index, low: low.to_vec(), high: high.map(<[u8]>::to_vec) }
}

impl Locks {
    /// Step 1. Returns bytes of memory that came with it.
    ///
    /// # Errors
    /// Another transaction that has an area in the way: nothing is locked; its end is to be waited for, and this tried again.
    pub fn lock_area(
        &self,
        owner: &mut LockOwner,
        writes: &Arc<SharedWriteSet>,
        index: IndexId,
        keys: AreaOf<'_>,
    ) -> std::result::Result<usize, TxnId> {
        let wanted = area(index, keys);
        self.announce_end(owner, index);
        let fold = owner.fold.get_or_insert_with(|| Arc::new(Fold::new(owner.state.txn, writes.clone()))).clone();
        let bytes = wanted.bytes();
        self.folds.publish_area(&fold, wanted)?;
        super::thread::point("locks.area_published");
        Ok(bytes)
    }

    /// Step 2: keys in the area that others have locked; and the newest commit that has released a lock of the table so far, of whatever key (rule A17). What
    /// those leave who had folded theirs is asked for behind [`Locks::folded_in`].
    #[must_use]
    pub fn others_in(&self, owner: &LockOwner, index: IndexId, keys: AreaOf<'_>) -> (Vec<Vec<u8>>, CommitTs) {
        let wanted = area(index, keys);
        let (mut found, mut seen) = (Vec::new(), CommitTs::ZERO);
        for slot in &self.shards {
            let shard = slot.shard.lock();
            seen = seen.max(shard.newest_left());
            for entry in shard.entries_of(index).filter(|entry| wanted.has(entry.index, entry.key.as_bytes())) {
                if entry.holders().any(|(holder, _)| holder.txn != owner.txn()) {
                    found.push(entry.key.as_bytes().to_vec());
                }
            }
        }
        found.sort_unstable();
        (found, seen)
    }

    /// What `owner` takes back, of what it has written and folded, stays locked by what is folded, where an area that came behind it has the key: to be called
    /// behind the lock of the key in the table, and before the write set forgets it.
    pub fn keep_before_areas(&self, owner: &LockOwner, index: IndexId, key: &[u8]) {
        let Some(own) = &owner.fold else { return };
        let is_in = |fold: &Arc<Fold>| fold.areas.read().iter().any(|area| area.has(index, key));
        if self.folds.table.read().iter().any(|fold| !Arc::ptr_eq(fold, own) && is_in(fold)) {
            own.add_one(index, key);
        }
    }

    /// Step 2: another transaction that has folded locks in the area.
    ///
    /// # Errors
    /// Faults of reading writes that lie in files.
    pub fn folded_in(&self, owner: &LockOwner, index: IndexId, keys: AreaOf<'_>) -> Result<Option<TxnId>> {
        if self.folds.count.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        let wanted = area(index, keys);
        let others: Vec<_> = self.folds.table.read().iter().filter(|fold| fold.txn != owner.txn()).cloned().collect();
        for fold in others {
            if fold.has_in(&wanted)? {
                return Ok(Some(fold.txn));
            }
        }
        Ok(None)
    }
}

impl Fold {
    /// Something of the area is folded, or was written by its owner, taken back or not.
    fn has_in(&self, wanted: &Area) -> Result<bool> {
        // Of an index where it has dropped none, locks in the table tell; and nobody could wait for its end there.
        let is_told = self.spans.read().contains_key(&wanted.index);
        // First: what is taken back in between is a span by then.
        if is_told && self.writes.wrote_in(wanted.index, wanted.bounds())? {
            return Ok(true);
        }
        super::thread::point("locks.written_looked_at");
        // Areas stand apart: no two that meet are published.
        Ok(self.has_span_in(wanted))
    }

    fn has_span_in(&self, wanted: &Area) -> bool {
        let spans = self.spans.read();
        let Some(spans) = spans.get(&wanted.index) else { return false };
        let high = wanted.high.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        // They are disjoint: the last one that begins below the end reaches highest.
        let last = spans.range::<[u8], _>((Bound::Unbounded, high)).next_back();
        last.is_some_and(|(_, (end, _))| *end >= wanted.low)
    }
}
