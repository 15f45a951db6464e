//! Bounded background steps.
//!
//! One call does one of these, the first that has work, except that draining and moving messages let the others have one call
//! in [`REST_EVERY`]: (0) a piece of the oldest attached run is drained; (1) messages are moved towards the leaves; (2) dead
//! leaves of one parent are unlinked; (3) an under-filled leaf is merged with its neighbour; (4) a few leaves that are
//! mostly dead are collected; (5) blocks in extents that are mostly free are moved.
//!
//! Nothing here waits long for a latch that a foreground thread holds: where several are needed they are tried, and
//! what is busy is put off to a later call.

use std::sync::atomic::Ordering;

use base::{CommitTs, Result};
use index::{Progress, Upkeep};

use crate::clean::Cleaning;
use crate::dead::Waiting;
use crate::drain::Moving;
use crate::image::Fence;
use crate::runs::{DRAIN_COLD_LEAVES, Draining};
use crate::tree::{Core, Hand};

/// Merges tried in one call.
const MERGES_PER_CALL: usize = 8;

/// What one call leaves for later ones.
#[derive(Default)]
pub(crate) struct Plan {
    /// Dead, but not for everybody: looked at again when the view has moved to the timestamp.
    pub dead: Waiting,
    /// Mostly dead, likewise.
    pub stale: Waiting,
    /// In which run.
    pub draining: Draining,
    /// Calls so far.
    pub turn: u32,
    /// Busy at the last call.
    pub busy: Vec<Fence>,
    pub cleaning: Cleaning,
    pub moving: Moving,
}

/// While runs are drained, one call in so many does something else, too.
const REST_EVERY: u32 = 4;

impl Core {
    pub(crate) fn maintain(&self, hand: &Hand, upkeep: &Upkeep<'_>) -> Result<Progress> {
        // Waits for another thread's step: who asks until nothing is left must not take "busy" for "done".
        let mut plan = self.upkeep.lock();
        let view = self.capped(&upkeep.view);
        self.seen_by_all.store(view.oldest().0, Ordering::Relaxed);
        let drained = self.drain(hand, upkeep, &mut plan.draining, DRAIN_COLD_LEAVES)?;
        plan.turn = plan.turn.wrapping_add(1);
        // Draining may never end under load: the rest gets its turn.
        if drained > 0 && !plan.turn.is_multiple_of(REST_EVERY) {
            return Ok(Progress { entries: drained, more: true });
        }
        let moved = self.move_messages(upkeep, &mut plan.moving)?;
        if moved > 0 && !plan.turn.is_multiple_of(REST_EVERY) {
            return Ok(Progress { entries: moved, more: true });
        }
        let view = self.capped(&upkeep.view);
        plan.dead.wake(&view, &self.purge);
        plan.stale.wake(&view, &self.stale);
        if let Some((low, _)) = self.purge.take() {
            let entries = self.purge_at(&low, &view, &mut plan)?;
            return Ok(Progress { entries, more: true });
        }
        // Each is to be written before the next checkpoint, whatever space there is.
        if !upkeep.tight
            && let Some(progress) = self.merge_some()
        {
            return Ok(progress);
        }
        // Each is written anew before what it was comes back.
        if !upkeep.tight
            && let Some(progress) = self.collect_some(&view, &mut plan)?
        {
            return Ok(progress);
        }
        let checkpoint = *self.last_checkpoint.lock();
        let (entries, more) = if upkeep.tight { (0, false) } else { self.clean(&mut plan.cleaning, checkpoint)? };
        // What was busy gets its turn at the next call, not in this round.
        plan.busy.drain(..).for_each(|low| self.purge.offer(low, CommitTs::ZERO));
        Ok(Progress { entries: drained + moved + entries, more: more || drained + moved > 0 })
    }

    fn merge_some(&self) -> Option<Progress> {
        let mut progress = None;
        for _ in 0..MERGES_PER_CALL {
            let Some((low, _)) = self.thin.take() else { break };
            let progress = progress.get_or_insert(Progress { entries: 0, more: true });
            if self.merge_at(&low) {
                progress.entries += 1;
                // What grew together may be thin still.
                self.thin.offer(low, CommitTs::ZERO);
            }
        }
        progress
    }
}
