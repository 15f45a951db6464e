//! Whole extents are emptied, so that they come back with the next checkpoint ([`store::Space::to_evacuate`]).
//!
//! Steps: (1) [`Core::weigh_extents`]: what of each extent is this tree's newest images, and which of these are of dirty leaves; (2) once the
//! engine has chosen extents, [`Core::evacuate`] writes every leaf whose image lies in one of them, dirty or not, a few at a time, notes inner
//! nodes whose images do as changed, as cleaning does, and copies blocks of messages; (3) a checkpoint of what is written
//! ([`index::Index::checkpoint_written`]) names these in the place of the old ones.
//!
//! Large values and chains are not moved, nor are blocks of messages that reach into two nodes: those are written apart before either of the nodes is. An
//! extent that has some is not chosen.

use std::sync::Arc;

use base::{Fault, Result};
use index::Upkeep;
use store::{AllocScope, BlockKind, BlockRef, Weights, epoch};

use crate::descent::Step;
use crate::handle::{Child, InnerHandle, InnerState, LeafHandle};
use crate::image::Image;
use crate::segment::SegmentBlock;
use crate::settle::TO_BE_WRITTEN;
use crate::tree::Core;

/// Leaves loaded before they are written may take one in so many bytes of the budget.
const MEMORY_SHARE: u64 = 16;

impl Core {
    /// Step 1.
    pub(crate) fn weigh_extents(&self, weights: &mut Weights) -> Result<()> {
        let mut from = Vec::new();
        loop {
            match self.at_parent(&from, |path| self.weigh_path(path, weights))? {
                Some(end) => from = end.to_vec(),
                None => return Ok(()),
            }
        }
    }

    /// A parent's leaves, and the inner nodes of which it is the first.
    fn weigh_path(&self, path: &[Step<'_>], weights: &mut Weights) {
        let mut add = |at: BlockRef, is_dirty: bool| {
            let weight = weights.entry(self.env.space.extent_of(at)).or_default();
            *if is_dirty { &mut weight.dirty } else { &mut weight.clean } += u64::from(at.stored_bytes);
        };
        let bottom = path.last().expect("a path has a root");
        for step in path.iter().filter(|step| step.keys.lo() == bottom.keys.lo()) {
            step.handle.record.lock().image.iter().for_each(|image| add(image.address(), step.handle.is_changed()));
        }
        for block in bottom.handle.record.lock().segments.iter().filter(|block| is_alone_in(block, bottom)) {
            add(block.block.at(), false);
        }
        let mut last: Option<Arc<Image>> = None;
        for child in bottom.keys.children() {
            let Child::Leaf(leaf) = child else { continue };
            let record = leaf.record.lock();
            let Some(image) = &record.image else { continue };
            // Halves of a leaf have one together.
            if !last.as_ref().is_some_and(|last| Arc::ptr_eq(last, image)) {
                add(image.address(), record.is_dirty());
                last = Some(image.clone());
            }
        }
    }

    /// Step 2. What cannot be loaded stays. Leaves of many parents are written together: each write begins on a fresh sector.
    pub(crate) fn evacuate(&self, extents: &[u32], upkeep: &Upkeep<'_>) -> Result<()> {
        let at_once = self.moved_at_once();
        let (mut from, mut waiting) = (Vec::new(), Vec::new());
        loop {
            let (leaves, end) = self.leaves_in(extents, &from)?;
            for leaf in leaves {
                // If there is no space for it after all, no checkpoint needs it.
                self.make_dirty(&leaf, TO_BE_WRITTEN)?;
                waiting.push(leaf);
                if waiting.len() == at_once {
                    self.write_evacuated(&std::mem::take(&mut waiting), upkeep)?;
                }
            }
            if self.env.options.buffered {
                self.move_segments(extents, &from)?;
            }
            match end {
                Some(end) => from = end.to_vec(),
                None => return self.write_evacuated(&waiting, upkeep),
            }
        }
    }

    /// As many pages as may be in memory for it.
    fn moved_at_once(&self) -> usize {
        let in_memory = (self.env.cache.budget().limit() / MEMORY_SHARE / self.page_bytes()) as usize;
        in_memory.clamp(1, self.env.cache.batch_pages())
    }

    /// Step 2 for the buffer of the node of `from`. The log is durable to these messages since they were first written.
    fn move_segments(&self, extents: &[u32], from: &[u8]) -> Result<()> {
        let mut found = None;
        self.at_parent(from, |path| {
            let bottom = path.last().expect("a path has a root");
            let lies_in = |block: &Arc<SegmentBlock>| {
                extents.binary_search(&self.env.space.extent_of(block.block.at())).is_ok() && is_alone_in(block, bottom)
            };
            let blocks: Vec<_> = bottom.handle.record.lock().segments.iter().filter(|b| lies_in(b)).cloned().collect();
            found = Some((bottom.handle.clone(), blocks));
        })?;
        let (handle, blocks) = found.expect("there is a parent");
        for some in blocks.chunks(self.moved_at_once()) {
            let mut moved = Vec::new();
            for block in some {
                let mut payload = Vec::new();
                match self.read_segment(block, &mut payload).map_err(Fault::into_damage) {
                    Ok(()) => moved.push((block, self.new_segment(payload))),
                    // Met by those who need it.
                    Err(Ok(_damage)) => {}
                    Err(Err(fault)) => return Err(fault),
                }
            }
            let (before, moved): (Vec<_>, Vec<_>) = moved.into_iter().unzip();
            let written = self.env.space.write_in(AllocScope::Moved, moved)?;
            self.counters.add_written(BlockKind::Segment, &written);
            self.env.space.note_moved(written.iter().map(|block| block.stored_bytes()).sum());
            let after: Vec<_> = before.iter().zip(written).map(|(before, block)| before.moved_to(block)).collect();
            vfs::thread::point("tree.messages_copied");
            self.name_moved(&handle, &before, &after);
        }
        Ok(())
    }

    /// The node may have been split or merged since, or drained: what it no longer has alone stays where it is.
    fn name_moved(&self, handle: &InnerHandle, before: &[&Arc<SegmentBlock>], after: &[Arc<SegmentBlock>]) {
        let _latched = self.latch_structure();
        let guard = epoch::pin();
        let InnerState::Loaded(node) = handle.cell.load(&guard) else { return };
        let mut record = handle.record.lock();
        for (before, after) in before.iter().zip(after) {
            let place = record.segments.iter_mut().find(|block| Arc::ptr_eq(block, before));
            if let Some(place) = place.filter(|_| before.lies_in(node.keys.lo(), node.keys.hi())) {
                *place = after.clone();
            }
        }
        drop(record);
        self.path(&guard, node.keys.lo()).iter().rev().for_each(|step| step.handle.note_change());
    }

    fn write_evacuated(&self, leaves: &[Arc<LeafHandle>], upkeep: &Upkeep<'_>) -> Result<()> {
        self.write_leaves(leaves, upkeep, AllocScope::Moved)?;
        // Of those with large values these were written, and not the leaves.
        self.write_leaves(leaves, upkeep, AllocScope::Moved)
    }
}

/// True if no other node has a part of the block.
fn is_alone_in(block: &SegmentBlock, bottom: &Step<'_>) -> bool {
    block.lies_in(bottom.keys.lo(), bottom.keys.hi())
}
