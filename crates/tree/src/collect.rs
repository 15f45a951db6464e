//! Collecting leaves that are mostly dead and that nobody writes to.
//!
//! What a write leaves behind is collected when its leaf is written back, unless somebody still sees it. Such a leaf may
//! then lie on disk for ever, twice as large as need be. Steps: (1) whoever writes, or finds, an image with as many dead
//! entries as live ones offers its place, with the timestamp from which on all of them may go; (2) a step of
//! maintenance puts what an open snapshot, or an undrained run, still holds back aside until the view has moved; (3) the
//! others are loaded and collected, and marked ([`TO_BE_RENEWED`]), so that write-back or the next checkpoint writes them.
//!
//! Here the two kinds of dead entries are told apart: what waits in step 2 is nobody's debt, since no work could pay it,
//! and what is in step 3 is.

use std::sync::Arc;

use base::{GcView, Result};
use index::Progress;
use store::epoch;

use crate::handle::{Child, LeafHandle};
use crate::image::Fence;
use crate::maintenance::Plan;
use crate::settle::{Payloads, TO_BE_RENEWED};
use crate::tree::Core;

/// Leaves read in one call.
const LOADS_PER_CALL: usize = 8;

/// At least as much of it is dead as alive; all of it is [`crate::purge`]'s.
pub(crate) fn is_stale(entries: u64, live: u64) -> bool {
    live > 0 && entries >= 2 * live
}

impl Core {
    /// Steps 2 and 3 for a few places, if there are any.
    pub(crate) fn collect_some(&self, view: &GcView, plan: &mut Plan) -> Result<Option<Progress>> {
        let mut progress = None;
        for _ in 0..LOADS_PER_CALL {
            let Some((low, from)) = self.stale.take() else { break };
            let progress = progress.get_or_insert(Progress { entries: 0, more: true });
            if view.all_see(from) {
                progress.entries += self.collect_at(&low, view)?;
            } else {
                plan.stale.insert(low, from);
            }
        }
        Ok(progress)
    }

    /// Step 3. Returns how many entries went.
    fn collect_at(&self, low: &Fence, view: &GcView) -> Result<u64> {
        let Some(leaf) = self.leaf_from(low)? else { return Ok(0) };
        let was_written = leaf.record.lock().image.as_ref().is_none_or(|image| !is_stale(image.entries, image.live));
        if was_written {
            return Ok(0);
        }
        if !self.load_for_upkeep(&leaf, &mut Payloads::default())? {
            return Ok(0);
        }
        let mut slot = leaf.latch.write();
        let Some(resident) = slot.resident_mut() else { return Ok(0) };
        // What is dirty is collected when it is written.
        if leaf.record.lock().is_dirty() {
            return Ok(0);
        }
        let (used_before, before) = (resident.leaf.used_bytes(), resident.leaf.stats().entries);
        self.collect_leaf(&leaf, resident, view);
        let gone = before - resident.leaf.stats().entries;
        if gone > 0 {
            self.note_applied(&leaf, resident, TO_BE_RENEWED);
            self.refresh_mark(&leaf, &resident.leaf);
            self.counters.count_collect();
            self.note_thin(&leaf, used_before, &slot);
        }
        Ok(u64::from(gone))
    }

    /// The leaf that starts at `low`, if there still is one.
    fn leaf_from(&self, low: &Fence) -> Result<Option<Arc<LeafHandle>>> {
        self.load_path(low)?;
        let guard = epoch::pin();
        let path = self.path(&guard, low);
        let bottom = path.last().expect("a path has a root");
        Ok(match bottom.keys.child(bottom.index) {
            Child::Leaf(leaf) if leaf.low == *low => Some(leaf.clone()),
            Child::Leaf(_) => None,
            Child::Inner(_) => unreachable!("a path ends above the leaves"),
        })
    }
}
