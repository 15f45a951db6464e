//! Moving blocks out of extents that are mostly free.
//!
//! The space names sealed extents less than half live. Steps, one parent of leaves per call: (1) descend to where the
//! last call ended, loading inner nodes; (2) an inner node whose image lies in a named extent is noted as changed: the
//! next checkpoint writes it elsewhere; (3) a leaf whose image does is loaded and marked
//! ([`TO_BE_RENEWED`]), so that write-back or the next checkpoint writes it elsewhere. When a pass is through, its extents are left
//! alone until two more checkpoints: one that is under way may have been by already. How much is moved is bounded
//! by [`Allowance`], which follows what is dead.
//!
//! Blocks of large values and chains are not moved; they leave with the value or the leaf's last reference.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{CommitTs, Result};
use store::{BlockRef, epoch};
use vfs::time::Instant;

use crate::descent::{Seek, Step, Stop};
use crate::handle::{Child, LeafHandle};
use crate::image::{Fence, Image};
use crate::settle::{Payloads, TO_BE_RENEWED};
use crate::tree::Core;

/// What is moved in one pass, in extents: the emptier they are, the more of them are cleaned at a time.
const MOVED_PER_PASS: u64 = 4;
/// Leaves read in one call.
const LOADS_PER_CALL: usize = 8;

/// Bytes moved in a second when nothing else is written, and little is dead.
const MOVED_PER_SECOND: u64 = 4 << 20;
/// Beside that, moved for a thousand bytes that others write, which leave as many to clean behind them: as many as are dead
/// for a thousand that live, within these bounds. An extent of which a fifth lives gives four bytes back for one that is
/// moved: the least is enough for it. At half, which is the most that is cleaned, it takes a thousand; beyond that the
/// debt shrinks.
const MOVED_PER_THOUSAND: std::ops::RangeInclusive<u64> = 250..=2000;

/// What may be moved now, so that cleaning does not push out of memory what is in use.
#[derive(Debug, Default)]
struct Allowance {
    bytes: u64,
    /// When and at how many bytes written it was last raised.
    raised: Option<(Instant, u64)>,
    /// Dead for a thousand bytes that live, when the last pass began.
    dead_per_thousand: u64,
}

impl Allowance {
    /// To at most `most`, which it starts with.
    fn raise(&mut self, written: u64, most: u64) {
        let Some((at, before)) = self.raised.replace((Instant::now(), written)) else {
            self.bytes = most;
            return;
        };
        let micros = u64::try_from(at.elapsed().as_micros()).unwrap_or(u64::MAX).min(1_000_000);
        let share = self.dead_per_thousand.clamp(*MOVED_PER_THOUSAND.start(), *MOVED_PER_THOUSAND.end());
        let idle = micros * MOVED_PER_SECOND / 1_000_000 * share / MOVED_PER_THOUSAND.start();
        let more = idle + written.saturating_sub(before) * share / 1000;
        self.bytes = (self.bytes + more).min(most);
    }
}

/// Where cleaning stands.
#[derive(Debug, Default)]
pub(crate) struct Cleaning {
    allowance: Allowance,
    /// The extents of the pass under way, ascending; empty if there is none.
    extents: Vec<u32>,
    /// Where the pass goes on.
    at: Vec<u8>,
    /// Extents of earlier passes, and the checkpoint after which they may be tried again.
    done: BTreeMap<u32, u64>,
}

impl Core {
    /// One call. Returns blocks that will move, and whether the pass goes on.
    pub(crate) fn clean(&self, cleaning: &mut Cleaning, checkpoint: u64) -> Result<(u64, bool)> {
        let most = MOVED_PER_PASS * self.env.space.extent_bytes();
        // Not what cleaning itself wrote: it would call for more.
        let written = self.env.space.written_and_live().0.saturating_sub(self.env.space.moved_bytes());
        cleaning.allowance.raise(written, most);
        if cleaning.allowance.bytes < self.page_bytes() {
            return Ok((0, false));
        }
        if cleaning.extents.is_empty() {
            cleaning.done.retain(|_, again| *again > checkpoint);
            let (dead, live) = (self.env.space.cleaning_debt().dead, self.env.space.written_and_live().1);
            cleaning.allowance.dead_per_thousand = dead.saturating_mul(1000) / live.max(1);
            let untried = |extent| !cleaning.done.contains_key(&extent);
            cleaning.extents = self.env.space.cleaning_candidates(most, untried);
            cleaning.at.clear();
            if cleaning.extents.is_empty() {
                return Ok((0, false));
            }
        }
        let (leaves, end) = self.leaves_in(&cleaning.extents, &cleaning.at)?;
        let mut moved = 0;
        for (loads, leaf) in leaves.iter().enumerate() {
            if loads == LOADS_PER_CALL || cleaning.allowance.bytes == 0 {
                cleaning.at = leaf.low.to_vec();
                return Ok((moved, true));
            }
            moved += u64::from(self.make_dirty(leaf, TO_BE_RENEWED)?);
            cleaning.allowance.bytes = cleaning.allowance.bytes.saturating_sub(self.page_bytes());
        }
        match end {
            Some(end) => {
                cleaning.at = end.to_vec();
                Ok((moved, true))
            }
            None => {
                let again = checkpoint + 2;
                self.env.space.note_passed(&cleaning.extents);
                cleaning.done.extend(std::mem::take(&mut cleaning.extents).into_iter().map(|e| (e, again)));
                Ok((moved, false))
            }
        }
    }

    /// Steps 1 and 2: the leaves with images in the extents under the parent of `from`, and the parent's end.
    pub(crate) fn leaves_in(&self, extents: &[u32], from: &[u8]) -> Result<(Vec<Arc<LeafHandle>>, Option<Fence>)> {
        let lies_in = |at: BlockRef| extents.binary_search(&self.env.space.extent_of(at)).is_ok();
        let has_block = |image: &Option<Arc<Image>>| image.as_ref().is_some_and(|image| lies_in(image.address()));
        let mut leaves = Vec::new();
        let end = self.at_parent(from, |path| {
            let mut change = false;
            for step in path.iter().rev() {
                let mut record = step.handle.record.lock();
                if has_block(&record.image) {
                    // It is written, whatever it names.
                    record.image_edition = None;
                    change = true;
                }
                drop(record);
                if change {
                    step.handle.note_change();
                }
            }
            let bottom = path.last().expect("a path has a root");
            let wanted = |child: &Child| match child {
                Child::Leaf(leaf) if *leaf.low >= *from && has_block(&leaf.record.lock().image) => Some(leaf.clone()),
                _ => None,
            };
            leaves = bottom.keys.children().iter().filter_map(wanted).collect();
        })?;
        Ok((leaves, end))
    }

    /// Looks at the inner nodes from the root to the parent of the leaf of `from`. The parent's end.
    pub(crate) fn at_parent(&self, from: &[u8], look: impl FnOnce(&[Step<'_>])) -> Result<Option<Fence>> {
        loop {
            let cold = {
                let guard = epoch::pin();
                match self.seek(&guard, Seek::At(from)) {
                    Ok(_) => {
                        let path = self.path(&guard, from);
                        look(&path);
                        let bottom = path.last().expect("a path has a root");
                        return Ok(bottom.keys.hi().map(Fence::from));
                    }
                    Err(Stop::Cold(cold)) => Some(cold),
                    Err(Stop::Obsolete) => None,
                }
            };
            match cold {
                Some(cold) => self.load_inner(&cold)?,
                None => vfs::thread::spin(),
            }
        }
    }

    /// Step 3. False if the leaf is being changed anyway.
    pub(crate) fn make_dirty(&self, leaf: &Arc<LeafHandle>, lacks: CommitTs) -> Result<bool> {
        if !self.load_for_upkeep(leaf, &mut Payloads::default())? {
            return Ok(false);
        }
        let mut slot = leaf.latch.write();
        let Some(resident) = slot.resident_mut() else { return Ok(false) };
        if leaf.record.lock().is_dirty() {
            return Ok(false);
        }
        self.note_applied(leaf, resident, lacks);
        drop(slot);
        let moved = leaf.record.lock().image.as_ref().map_or(0, |image| u64::from(image.address().stored_bytes));
        self.env.space.note_moved(moved);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What 100 MiB of writing allow to move, with so much dead for a thousand bytes that live.
    fn moved_for_writing(dead_per_thousand: u64) -> u64 {
        let mut allowance = Allowance { dead_per_thousand, raised: Some((Instant::now(), 0)), bytes: 0 };
        allowance.raise(100 << 20, u64::MAX);
        allowance.bytes >> 20
    }

    #[test]
    fn what_may_be_moved_follows_what_is_dead() {
        // A little more: time passes, too.
        for (dead, moved) in [(0, 25), (250, 25), (1000, 100), (2000, 200), (9000, 200)] {
            let found = moved_for_writing(dead);
            assert!((moved..moved + 20).contains(&found), "{dead} dead for 1000: {found} MiB");
        }
    }
}
