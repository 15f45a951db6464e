//! Messages from the buffers into the leaves.
//!
//! In memory they are limited to a share of the budget: beyond it, node after node is flushed (`flush`). On disk they are limited
//! for each inner node to half of what its leaves take, so that a leaf is rewritten for about half a page of messages.
//! Steps, beyond that: (1) the oldest block of the buffer says where; (2) its leaves are loaded, which puts all their
//! messages into them, whatever block they are in; (3) they are written, complete through now; (4) blocks of which every
//! message is void go; (5) leaves that were read for this leave memory, if it is short.
//!
//! Leaves that cannot be read for damage are passed over, and so are blocks of which nothing else is left.
//!
//! A leaf with more than half a page of pending messages is loaded at once: no segment would spare a write.

use std::sync::Arc;

use base::{CommitTs, Result};
use index::Upkeep;
use store::{Class, Page, epoch};

use crate::descent::{Seek, loaded};
use crate::handle::{Child, InnerHandle, LeafHandle};
use crate::image::Fence;
use crate::node::Inner;
use crate::segment::SegmentBlock;
use crate::settle::TO_BE_WRITTEN;
use crate::tree::Core;

/// Messages in memory take at most one in so many bytes of the budget, about.
const MEMORY_SHARE: u64 = 4;
/// Messages on disk may take one in so many bytes of the pages of the leaves below.
const DISK_SHARE: u64 = 2;
/// Leaves drained in one call, at most.
const LEAVES_PER_CALL: usize = 16;
/// Inner nodes that are looked at in one call for one with messages.
const NODES_PER_CALL: usize = 64;

impl Core {
    /// One step. Returns how many messages were moved, about; none if there is nothing to do.
    pub(crate) fn move_messages(&self, upkeep: &Upkeep<'_>, flush_at: &mut Vec<u8>) -> Result<u64> {
        if !self.env.options.buffered {
            return Ok(0);
        }
        if let Some((low, _)) = self.full.take() {
            return self.load_full(&low);
        }
        let budget = self.env.cache.budget();
        if budget.used(Class::Buffers) > budget.limit() / MEMORY_SHARE {
            let flushed = self.flush_next(upkeep, flush_at)?;
            if flushed > 0 {
                return Ok(flushed);
            }
        }
        match self.overfull.take() {
            // Its turn comes again after a fault.
            Some((low, _)) => self.drain_node(&low, upkeep).inspect_err(|_| self.overfull.offer(low, CommitTs::ZERO)),
            None => Ok(0),
        }
    }

    fn load_full(&self, low: &Fence) -> Result<u64> {
        self.load_path(low)?;
        let leaf = {
            let guard = epoch::pin();
            self.seek(&guard, Seek::At(low)).ok().map(|place| place.leaf.clone())
        };
        if let Some(leaf) = leaf
            && leaf.latch.read().pending.as_ref().is_some_and(|pending| self.is_worth_loading(pending.bytes()))
            && !leaf.record.lock().is_damaged
        {
            self.load_for_upkeep(&leaf)?;
        }
        Ok(1)
    }

    pub(crate) fn is_worth_loading(&self, pending_bytes: usize) -> bool {
        pending_bytes > self.env.options.node_bytes / 2
    }

    /// The next node with messages in memory, from where the last call ended.
    fn flush_next(&self, upkeep: &Upkeep<'_>, at: &mut Vec<u8>) -> Result<u64> {
        for _ in 0..NODES_PER_CALL {
            let path = self.load_path(at)?;
            let handle = path.last().expect("a path has a root");
            let pending = |leaf: &Arc<LeafHandle>| leaf.latch.read().pending.is_some();
            let any = self.leaves_of(handle).iter().any(pending);
            let high = loaded(handle, &epoch::pin()).and_then(Inner::hi).map(<[u8]>::to_vec);
            *at = high.unwrap_or_default();
            // None, if all of it is stuck.
            let flushed = if any { self.flush(handle, upkeep.log)? } else { 0 };
            if flushed > 0 {
                return Ok(flushed);
            }
        }
        Ok(0)
    }

    /// True if the buffer holds more than it should.
    pub(crate) fn is_overfull(&self, segments: &[Arc<SegmentBlock>], children: usize) -> bool {
        let bytes: u64 = segments.iter().map(|block| block.bytes).sum();
        bytes > (children * self.env.options.node_bytes) as u64 / DISK_SHARE
    }

    fn drain_node(&self, low: &Fence, upkeep: &Upkeep<'_>) -> Result<u64> {
        let path = self.load_path(low)?;
        let handle = path.last().expect("a path has a root");
        let Some(leaves) = self.to_drain(handle, upkeep) else { return Ok(0) };
        let (mut there, mut was_resident) = (Vec::new(), Vec::new());
        for leaf in &leaves {
            // Those that are damaged are not asked for again.
            let was = leaf.latch.read().resident().is_some();
            if self.load_to_write(leaf)? {
                there.push(leaf.clone());
                was_resident.push(was);
            }
        }
        self.write_leaves(&there, upkeep)?;
        let moved = self.drop_void(low);
        let budget = self.env.cache.budget();
        for (leaf, _) in there.iter().zip(was_resident).filter(|(_, was_resident)| !was_resident) {
            if budget.free() < budget.page_floor() {
                leaf.try_evict();
            }
        }
        let moved = moved + leaves.len() as u64;
        if moved > 0 {
            self.overfull.offer(low.clone(), CommitTs::ZERO);
        }
        Ok(moved)
    }

    /// Step 1: leaves under the oldest block that an image written now would be complete through. None while runs, or the build of
    /// an index, hold back all of them [A4]: the next flush, or checkpoint, asks again.
    fn to_drain(&self, handle: &InnerHandle, upkeep: &Upkeep<'_>) -> Option<Vec<Arc<LeafHandle>>> {
        let through = upkeep.applied.min(upkeep.log.durable()).min(self.runs.cap().as_lsn());
        let _latched = self.latch_structure();
        let guard = epoch::pin();
        let keys = loaded(handle, &guard)?;
        let record = handle.record.lock();
        if !self.is_overfull(&record.segments, keys.len()) {
            return None;
        }
        let old = record.segments.iter().filter(|block| block.newest.as_lsn() <= through);
        old.map(|block| wanted_for(keys, block)).find_map(|wanted| wanted)
    }

    /// Step 2: loaded, and to be written even if nothing is missing. False if it is damaged.
    fn load_to_write(&self, leaf: &Arc<LeafHandle>) -> Result<bool> {
        let there = self.load_for_upkeep(leaf)?;
        if let Some(resident) = leaf.latch.write().resident_mut() {
            self.note_applied(leaf, resident, TO_BE_WRITTEN);
        }
        Ok(there)
    }

    /// Loads a leaf for what can as well be left. In a Bε-tree damage, which may be that of a segment over many leaves, is not met
    /// here, but by those who need the leaf: then false.
    pub(crate) fn load_for_upkeep(&self, leaf: &Arc<LeafHandle>) -> Result<bool> {
        match self.load_leaf(leaf, None) {
            Err(fault) if self.env.options.buffered => fault.into_damage().map(|_| false),
            done => done.map(|()| true),
        }
    }

    /// Step 4 for the node of `low`. Returns how many messages were in the blocks that went.
    fn drop_void(&self, low: &[u8]) -> u64 {
        let latched = self.latch_structure();
        let guard = epoch::pin();
        let path = self.path(&guard, low);
        let bottom = path.last().expect("a path has a root");
        let mut record = bottom.handle.record.lock();
        let gone: Vec<_> = record.segments.extract_if(.., |block| is_void(bottom.keys, block)).collect();
        drop(record);
        if !gone.is_empty() {
            path.iter().rev().for_each(|step| step.handle.note_change());
        }
        drop(latched);
        gone.iter().map(|block| block.count).sum()
    }
}

/// The leaves of a node that have a part in the block's range.
fn leaves_over<'a>(keys: &'a Inner<Child>, block: &SegmentBlock) -> impl Iterator<Item = &'a Arc<LeafHandle>> {
    let (first, last) = (keys.child_for(&block.first), keys.child_for(&block.last));
    keys.children()[first..=last].iter().filter_map(|child| match child {
        Child::Leaf(leaf) => Some(leaf),
        Child::Inner(_) => None,
    })
}

/// Leaves to be drained of the block's messages; `None` if all that are left are damaged.
fn wanted_for(keys: &Inner<Child>, block: &SegmentBlock) -> Option<Vec<Arc<LeafHandle>>> {
    let left: Vec<_> = leaves_over(keys, block).filter(|leaf| !is_void_for(leaf, block)).collect();
    let sound = left.iter().filter(|leaf| !leaf.record.lock().is_damaged);
    let wanted: Vec<_> = sound.take(LEAVES_PER_CALL).map(|leaf| Arc::clone(leaf)).collect();
    (left.is_empty() || !wanted.is_empty()).then_some(wanted)
}

/// Nothing of the block counts any more.
pub(crate) fn is_void(keys: &Inner<Child>, block: &SegmentBlock) -> bool {
    leaves_over(keys, block).all(|leaf| is_void_for(leaf, block))
}

/// The leaf has everything of the block, on disk; or it never had an image, and nothing of the block counts for it.
fn is_void_for(leaf: &LeafHandle, block: &SegmentBlock) -> bool {
    leaf.complete_through().is_none_or(|through| through >= block.newest)
}
