//! Unlinking what is dead for everybody, without reading it [A8, C7].
//!
//! Steps: (1) around the place in question, whose inner nodes are loaded, neighbouring children with a mark are
//! collected; (2) their latches are tried, in key order, and each is judged: its mark is at or below what every reader
//! sees, nothing of it is in flight, no running commit reserved it; (3) under the structure latch, each becomes EMPTY:
//! its image is dropped, what its parent's image named is retired, and the parent inherits its `log_need` [A6];
//! (4) neighbouring EMPTY slots are folded into the first; (5) marks are summarised, also where nothing could be
//! unlinked.
//!
//! An EMPTY slot is never given to a neighbour: a neighbour that is not in memory may have a stale tail in its image
//! that only its fence hides [A8]. A fold of EMPTY slots has no image to be stale.
//!
//! What is dead, but not for the oldest snapshot, waits in the plan until the view has moved. A cold leaf is read
//! first only if its image names blocks beside it that nobody has looked up yet: they would never be freed.

use std::sync::Arc;

use base::{CommitTs, GcView, Result};
use store::epoch;
use vfs::sync::RwLockWriteGuard;

use crate::dead::mark_of;
use crate::handle::{Child, InnerHandle, LeafHandle, LeafSlot, LeafState};
use crate::image::{Fence, Image};
use crate::maintenance::Plan;
use crate::messages::Pending;
use crate::structure::note_structure_change;
use crate::tree::Core;

/// Leaves judged at a time.
const SPAN_MAX: usize = 256;

/// What step 2 says of a leaf.
enum Verdict {
    /// Nothing here.
    Empty,
    /// Dead for everybody.
    Unlink,
    /// Dead for snapshots at or above this, not for all.
    Later(CommitTs),
    /// Latched, pinned, being read or written.
    Busy,
    /// Its blocks must be known first.
    Load,
    /// Alive, or no longer a leaf.
    Leave,
}

/// What was in a leaf that is EMPTY or OBSOLETE now: dropped without latches.
struct Remains {
    _state: LeafState,
    _pending: Option<Box<Pending>>,
    _image: Option<Arc<Image>>,
}

impl Core {
    /// Works on the span around `low`. Returns how many leaves were unlinked or folded away.
    pub(crate) fn purge_at(&self, low: &Fence, view: &GcView, plan: &mut Plan) -> Result<u64> {
        self.load_path(low)?;
        let span = self.marked_span(low);
        let mut unlinked = 0;
        let mut next = 0;
        while next < span.len() {
            let held: Vec<_> = span[next..].iter().map_while(|leaf| leaf.latch.try_write()).collect();
            let verdicts: Vec<_> =
                span[next..].iter().zip(&held).map(|(leaf, slot)| self.judge(leaf, slot, view)).collect();
            let good = verdicts.iter().take_while(|v| matches!(v, Verdict::Empty | Verdict::Unlink)).count();
            let work = good > 1 || matches!(verdicts.first(), Some(Verdict::Unlink));
            if work {
                let done = self.unlink(&span[next..next + good], held);
                unlinked += done as u64;
                next += done;
                continue;
            }
            drop(held);
            if verdicts.is_empty() {
                self.put_off(&span[next], Verdict::Busy, plan)?;
                next += 1;
            }
            // What cannot be unlinked now is put off together, up to the next that can.
            let idle = verdicts.iter().skip(1).take_while(|v| !matches!(v, Verdict::Empty | Verdict::Unlink)).count();
            for (leaf, verdict) in span[next..].iter().zip(verdicts).take(1 + idle) {
                self.put_off(leaf, verdict, plan)?;
                next += 1;
            }
        }
        // What cannot be unlinked yet is hopped over: inner nodes may have been split since their leaves died.
        let latched = self.latch_structure();
        self.summarise(&latched, low);
        Ok(unlinked)
    }

    /// A leaf that cannot be unlinked now.
    fn put_off(&self, leaf: &Arc<LeafHandle>, verdict: Verdict, plan: &mut Plan) -> Result<()> {
        match verdict {
            Verdict::Later(from) => {
                plan.dead.insert(leaf.low.clone(), from);
                // Its neighbours were queued with it; if it changes, it is queued again.
                self.purge.forget(&leaf.low);
            }
            Verdict::Busy => plan.busy.push(leaf.low.clone()),
            Verdict::Load => {
                self.load_leaf(leaf, None)?;
                plan.busy.push(leaf.low.clone());
            }
            Verdict::Empty | Verdict::Unlink | Verdict::Leave => {}
        }
        Ok(())
    }

    /// Step 1.
    fn marked_span(&self, low: &[u8]) -> Vec<Arc<LeafHandle>> {
        let guard = epoch::pin();
        let path = self.path(&guard, low);
        let bottom = path.last().expect("a path has a root");
        let marked = |i: &usize| bottom.keys.child(*i).mark().get().is_some();
        let left = (0..bottom.index).rev().take_while(marked).take(SPAN_MAX / 2).count();
        let right = (bottom.index..bottom.keys.len()).take_while(marked).take(SPAN_MAX / 2).count();
        let leaf = |i: usize| match bottom.keys.child(i) {
            Child::Leaf(leaf) => leaf.clone(),
            Child::Inner(_) => unreachable!("a path ends above the leaves"),
        };
        (bottom.index - left..bottom.index + right).map(leaf).collect()
    }

    /// Step 2.
    fn judge(&self, leaf: &LeafHandle, slot: &LeafSlot, view: &GcView) -> Verdict {
        let record = leaf.record.lock();
        let dead_from = match &slot.state {
            LeafState::Empty => return Verdict::Empty,
            LeafState::Obsolete => return Verdict::Leave,
            LeafState::Loading(_) => return Verdict::Busy,
            LeafState::Resident(resident) => mark_of(&resident.leaf),
            LeafState::Cold | LeafState::Parked(_) => leaf.mark.get(),
        };
        let Some(dead_from) = dead_from else { return Verdict::Leave };
        if !view.all_see(dead_from) {
            return Verdict::Later(dead_from);
        }
        if record.in_flight || !self.tickets.is_released(leaf.last_reserved()) {
            return Verdict::Busy;
        }
        if record.image.as_ref().is_some_and(|image| image.block.beside().is_none()) {
            return Verdict::Load;
        }
        Verdict::Unlink
    }

    /// Steps 3 to 5 for the leaves of `span`, whose latches are the first of `held`. Returns how many of them were still
    /// under one parent and are done.
    fn unlink(&self, span: &[Arc<LeafHandle>], mut held: Vec<RwLockWriteGuard<'_, LeafSlot>>) -> usize {
        held.truncate(span.len());
        let latched = self.latch_structure();
        let guard = epoch::pin();
        let path = self.path(&guard, &span[0].low);
        let bottom = path.last().expect("a path has a root");
        let here = |(leaf, child): &(&Arc<LeafHandle>, &Child)| matches!(child, Child::Leaf(l) if Arc::ptr_eq(l, leaf));
        let done = span.iter().zip(&bottom.keys.children()[bottom.index..]).take_while(here).count();
        assert!(done > 0, "a latched leaf that is not obsolete is where the root leads");
        let mut remains = Vec::with_capacity(done);
        for (leaf, slot) in span[..done].iter().zip(&mut held) {
            remains.push(self.empty_out(leaf, slot, bottom.handle));
        }
        let high = held[done - 1].high.clone();
        for (leaf, slot) in span[1..done].iter().zip(&mut held[1..]) {
            slot.state = LeafState::Obsolete;
            span[0].reserve_for(leaf.last_reserved());
        }
        held[0].high = high;
        if done > 1 {
            self.fold(&latched, &guard, &path, bottom.index..bottom.index + done);
        } else {
            note_structure_change(&path);
        }
        self.summarise(&latched, &span[0].low);
        drop(latched);
        drop(held);
        drop(remains);
        done
    }

    /// Step 3 for one leaf.
    fn empty_out(&self, leaf: &LeafHandle, slot: &mut LeafSlot, parent: &InnerHandle) -> Remains {
        let (state, pending) = (std::mem::replace(&mut slot.state, LeafState::Empty), slot.pending.take());
        let (image, composed, was_dirty, on_disk) = {
            let mut record = leaf.record.lock();
            let (on_disk, was_dirty) = (record.counted(), record.oldest_unwritten != CommitTs::MAX);
            record.oldest_unwritten = CommitTs::MAX;
            (record.oldest_pending, record.is_damaged) = (CommitTs::MAX, false);
            (record.image.take(), record.composed.take(), was_dirty, on_disk)
        };
        parent.record.lock().retire(&leaf.low, composed);
        if was_dirty {
            self.env.cache.note_clean(self.page_bytes());
        }
        let (live, entries) = match &state {
            LeafState::Resident(resident) => {
                let stats = resident.leaf.stats();
                parent.raise_log_need(stats.max_ts);
                (stats.live.into(), stats.entries.into())
            }
            LeafState::Cold | LeafState::Parked(_) => {
                assert!(image.is_some(), "a cold leaf has an image");
                let (live, entries) = match &state {
                    LeafState::Parked(resident) => resident.counted_on_disk(),
                    _ => on_disk,
                };
                // Whoever has an image, or messages in a segment, waited for the log when it was written [A6].
                let newest = pending.as_ref().map_or(CommitTs::ZERO, |pending| pending.newest());
                parent.raise_log_need(newest);
                let (surplus, count) = pending.as_ref().map_or((0, 0), |p| (p.surplus(), p.count() as i64));
                (live + surplus, entries + count)
            }
            _ => return Remains { _state: state, _pending: pending, _image: image },
        };
        self.counters.add(leaf, -live, -entries);
        if !matches!(state, LeafState::Cold) {
            self.counters.add_resident(-1);
        }
        leaf.mark.set(Some(CommitTs::ZERO));
        self.counters.add_leaves(-1);
        self.counters.count_unlink();
        Remains { _state: state, _pending: pending, _image: image }
    }
}
