//! Merging under-filled leaves.
//!
//! Steps: (1) a leaf that fell under a quarter, and a neighbour under the same parent, are latched without waiting;
//! both must be in memory, with nothing in flight, and fit one page with room to spare; (2) the left one takes
//! everything, under the structure latch; from now on it lacks something of unknown age, so that it is written before the
//! next checkpoint can compose its parent: absorbing is an event, and comparing ranges would not do [A8]; (3) the right
//! one is OBSOLETE.
//!
//! > Why not compare: A's image is of [a, z). A splits at m, B = [m, z) gets newer rows and its own image, and is merged
//! > back. A's range is again the range of its image, whose part in [m, z) is stale.

use std::sync::Arc;

use base::CommitTs;
use store::{Charge, epoch};

use crate::dead::mark_of;
use crate::handle::{Child, InnerHandle, LeafHandle, LeafRecord, LeafSlot, LeafState, Resident};
use crate::image::Image;
use crate::tree::Core;

impl Core {
    /// Merges the leaf that starts at or around `low` with a neighbour, if that is possible now. True if it was.
    pub(crate) fn merge_at(&self, low: &[u8]) -> bool {
        let pairs: Vec<_> = {
            let guard = epoch::pin();
            let path = self.path(&guard, low);
            let bottom = path.last().expect("a path has a root");
            let pair = |left: usize| match (bottom.keys.children().get(left), bottom.keys.children().get(left + 1)) {
                (Some(Child::Leaf(a)), Some(Child::Leaf(b))) => Some((a.clone(), b.clone())),
                _ => None,
            };
            [Some(bottom.index), bottom.index.checked_sub(1)].into_iter().flatten().filter_map(pair).collect()
        };
        pairs.iter().any(|(left, right)| self.merge_leaves(left, right))
    }

    fn merge_leaves(&self, left: &Arc<LeafHandle>, right: &Arc<LeafHandle>) -> bool {
        let Some(mut left_slot) = left.latch.try_write() else { return false };
        let Some(mut right_slot) = right.latch.try_write() else { return false };
        let (Some(a), Some(b)) = (left_slot.resident(), right_slot.resident()) else { return false };
        if left.record.lock().in_flight || right.record.lock().in_flight || !a.leaf.can_merge(&b.leaf) {
            return false;
        }
        let latched = self.latch_structure();
        let guard = epoch::pin();
        let path = self.path(&guard, &left.low);
        let bottom = path.last().expect("a path has a root");
        let next = bottom.keys.children().get(bottom.index + 1);
        if !matches!(next, Some(Child::Leaf(leaf)) if Arc::ptr_eq(leaf, right)) {
            // An inner node was split between the two.
            return false;
        }
        let LeafState::Resident(b) = std::mem::replace(&mut right_slot.state, LeafState::Obsolete) else {
            unreachable!("checked above, under the latch")
        };
        left_slot.high = right_slot.high.clone();
        // The left one is dirty from now on, so nothing needs to be pending.
        let messages = (left_slot.pending.take(), right_slot.pending.take());
        let outdated = self.absorb_leaf(left, &mut left_slot, right, *b, bottom.handle);
        self.fold(&latched, &guard, &path, bottom.index..bottom.index + 2);
        if let Some(from) = left.mark.get() {
            self.purge.offer(left.low.clone(), from);
            self.summarise(&latched, &left.low);
        }
        drop((latched, right_slot, left_slot));
        drop((outdated, messages));
        true
    }

    /// Step 2. Returns what is to be dropped without latches.
    fn absorb_leaf(
        &self,
        left: &LeafHandle,
        left_slot: &mut LeafSlot,
        right: &LeafHandle,
        b: Resident,
        parent: &InnerHandle,
    ) -> (Option<Arc<Image>>, Charge) {
        let a = left_slot.resident_mut().expect("checked by the caller, under the latch");
        let Resident { leaf, beside, charge, through, .. } = b;
        a.leaf.merge(leaf);
        a.through = a.through.max(through);
        a.beside.extend(beside);
        a.oldest_unwritten = CommitTs::ZERO;
        a.charge.set(a.leaf.memory_bytes() as u64);
        let gone = std::mem::replace(&mut *right.record.lock(), LeafRecord::clean(None));
        let before = {
            let mut record = left.record.lock();
            record.oldest_pending = CommitTs::MAX;
            std::mem::replace(&mut record.oldest_unwritten, CommitTs::ZERO)
        };
        parent.record.lock().retire(&right.low, gone.composed);
        if before == CommitTs::MAX {
            self.env.cache.note_dirty(self.page_bytes());
        }
        if gone.oldest_unwritten != CommitTs::MAX {
            self.env.cache.note_clean(self.page_bytes());
        }
        left.reserve_for(right.last_reserved());
        left.mark.set(mark_of(&a.leaf));
        self.counters.add_leaves(-1);
        self.counters.add_resident(-1);
        self.counters.count_unlink();
        (gone.image, charge)
    }
}
