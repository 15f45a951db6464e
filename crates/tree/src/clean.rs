//! Moving blocks out of extents that are mostly free.
//!
//! The space names sealed extents less than half live. Steps, one parent of leaves per call: (1) descend to where the
//! last call ended, loading inner nodes; (2) an inner node whose image lies in a named extent is noted as changed: the
//! next checkpoint writes it elsewhere; (3) a leaf whose image does is loaded and made to lack something of unknown
//! age, so that write-back or the next checkpoint writes it elsewhere. When a pass is through, its extents are left
//! alone until two more checkpoints: what a manifest names of them is freed only by then. How much is moved is bounded
//! by [`Allowance`].
//!
//! Blocks of large values and chains are not moved; they leave with the value or the leaf's last reference.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{CommitTs, Result};
use store::{BlockRef, epoch};
use vfs::time::Instant;

use crate::descent::{Seek, Stop};
use crate::handle::{Child, LeafHandle};
use crate::image::{Fence, Image};
use crate::tree::Core;

/// What is moved in one pass, in extents: the emptier they are, the more of them are cleaned at a time.
const MOVED_PER_PASS: u64 = 4;
/// Leaves read in one call.
const LOADS_PER_CALL: usize = 8;

/// Bytes moved in a second when nothing else is written.
const MOVED_PER_SECOND: u64 = 4 << 20;
/// Beside that, one byte is moved for so many that are written: what is written leaves as much to clean behind it.
const WRITTEN_PER_MOVED: u64 = 4;

/// What may be moved now, so that cleaning does not push out of memory what is in use.
#[derive(Debug, Default)]
struct Allowance {
    bytes: u64,
    /// When and at how many bytes written it was last raised.
    raised: Option<(Instant, u64)>,
}

impl Allowance {
    /// To at most `most`, which it starts with.
    fn raise(&mut self, written: u64, most: u64) {
        let Some((at, before)) = self.raised.replace((Instant::now(), written)) else {
            self.bytes = most;
            return;
        };
        let micros = u64::try_from(at.elapsed().as_micros()).unwrap_or(u64::MAX).min(1_000_000);
        let more = micros * MOVED_PER_SECOND / 1_000_000 + written.saturating_sub(before) / WRITTEN_PER_MOVED;
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
        cleaning.allowance.raise(self.env.space.written_and_live().0, most);
        if cleaning.allowance.bytes < self.page_bytes() {
            return Ok((0, false));
        }
        if cleaning.extents.is_empty() {
            cleaning.done.retain(|_, again| *again > checkpoint);
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
            moved += u64::from(self.make_dirty(leaf)?);
            cleaning.allowance.bytes = cleaning.allowance.bytes.saturating_sub(self.page_bytes());
        }
        match end {
            Some(end) => {
                cleaning.at = end.to_vec();
                Ok((moved, true))
            }
            None => {
                let again = checkpoint + 2;
                cleaning.done.extend(std::mem::take(&mut cleaning.extents).into_iter().map(|e| (e, again)));
                Ok((moved, false))
            }
        }
    }

    /// Steps 1 and 2: the leaves with images in the extents under the parent of `from`, and the parent's end.
    fn leaves_in(&self, extents: &[u32], from: &[u8]) -> Result<(Vec<Arc<LeafHandle>>, Option<Fence>)> {
        let lies_in = |at: BlockRef| extents.binary_search(&self.env.space.extent_of(at)).is_ok();
        let has_block = |image: &Option<Arc<Image>>| image.as_ref().is_some_and(|image| lies_in(image.address()));
        loop {
            let cold = {
                let guard = epoch::pin();
                match self.seek(&guard, Seek::At(from)) {
                    Ok(_) => {
                        let path = self.path(&guard, from);
                        let mut change = false;
                        for step in path.iter().rev() {
                            change |= has_block(&step.handle.record.lock().image);
                            if change {
                                step.handle.note_change();
                            }
                        }
                        let bottom = path.last().expect("a path has a root");
                        let wanted = |child: &Child| match child {
                            Child::Leaf(leaf) if *leaf.low >= *from && has_block(&leaf.record.lock().image) => {
                                Some(leaf.clone())
                            }
                            _ => None,
                        };
                        let leaves = bottom.keys.children().iter().filter_map(wanted).collect();
                        return Ok((leaves, bottom.keys.hi().map(Fence::from)));
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
    fn make_dirty(&self, leaf: &Arc<LeafHandle>) -> Result<bool> {
        self.load_leaf(leaf, None)?;
        let mut slot = leaf.latch.write();
        let Some(resident) = slot.resident_mut() else { return Ok(false) };
        if leaf.record.lock().is_dirty() {
            return Ok(false);
        }
        self.note_applied(leaf, resident, CommitTs::ZERO);
        Ok(true)
    }
}
