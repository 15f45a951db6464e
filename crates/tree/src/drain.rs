//! Messages move towards their leaves, so that neither memory nor the disk fills with them.
//!
//! Messages in memory are limited to a share of the budget: beyond it, node after node is flushed (`flush`). On disk they are limited
//! for each inner node to half of what its leaves take there, deletes counted twice, and node after node is drained so that few come to it (`filling`): a
//! [`Sweep`] goes over the node from its first leaf to its last, so that each leaf is written once for all of its messages, and
//! each block is read about once. Steps, for a few neighbouring leaves at a time: (1) those with messages are loaded, which puts all
//! their messages into them, whatever block they are in; (2) they are written, complete through now; (3) blocks of which every message is void go; (4) leaves that were
//! read for this leave memory, if it is short.
//!
//! Leaves that cannot be read for damage are passed over, and so are blocks of which nothing else is left.
//!
//! A leaf with more than half a page of pending messages is loaded at once: no segment would spare a write. So is one that is dead by its
//! counts: then its mark says so (`dead`), and readers need not come to it.

use std::sync::Arc;

use base::Result;
use index::{LogGate, Upkeep};
use store::{AllocScope, Class, epoch};

use crate::descent::{Seek, Stop, loaded};
use crate::filling::{filled_bytes, stored_bytes};
use crate::handle::{Child, InnerHandle, LeafHandle, LeafSlot, LeafState};
use crate::image::Fence;
use crate::node::Inner;
use crate::segment::SegmentBlock;
use crate::settle::{Payloads, TO_BE_WRITTEN};
use crate::tree::Core;

/// Leaves drained in one call, at most.
const LEAVES_PER_CALL: usize = 16;
/// Messages are read ahead for so many leaves from the first one.
const LEAVES_AHEAD: usize = 4 * LEAVES_PER_CALL;
/// Inner nodes that are looked at in one call for one with messages.
const NODES_PER_CALL: usize = 64;

/// Where flushing and draining stand.
#[derive(Default)]
pub(crate) struct Moving {
    sweep: Option<Sweep>,
    /// The last step looked at leaves that seem dead: a drain has the next one.
    looked_at_dead: bool,
}

/// A drain under way: of what lies from `at` to the end that the node had when it began.
struct Sweep {
    at: Vec<u8>,
    end: Option<Vec<u8>>,
    /// Blocks that reach beyond the leaves drained so far: each is read once.
    payloads: Payloads,
}

/// What a call drains.
struct Step {
    leaves: Vec<Arc<LeafHandle>>,
    /// Where to go on.
    next: Option<Vec<u8>>,
    /// Blocks of messages for these leaves, and for some that come behind.
    ahead: Vec<Arc<SegmentBlock>>,
}

impl Core {
    /// One step. Returns how many messages were moved, about; none if there is nothing to do.
    pub(crate) fn move_messages(&self, upkeep: &Upkeep<'_>, moving: &mut Moving) -> Result<u64> {
        if !self.env.options.buffered {
            return Ok(0);
        }
        if let Some((low, _)) = self.full.take() {
            let is_full =
                |slot: &LeafSlot| slot.pending.as_ref().is_some_and(|pending| self.is_worth_loading(pending.bytes()));
            self.load_if(&low, &mut Payloads::default(), |_, slot| is_full(slot))?;
            return Ok(1);
        }
        // What flushes of memtables have written comes back by itself.
        if self.env.cache.unwritten_bytes() > self.env.cache.buffered_aim() {
            let flushed = self.flush_next(|handle| self.flush(handle, upkeep.log))?;
            if flushed > 0 {
                return Ok(flushed);
            }
        }
        if !std::mem::take(&mut moving.looked_at_dead)
            && let looked_at @ 1.. = self.look_at_dead()?
        {
            moving.looked_at_dead = true;
            return Ok(looked_at);
        }
        if moving.sweep.is_none() {
            let Some(low) = self.fillings.take() else { return self.look_at_dead() };
            moving.sweep = self.begin_sweep(&low)?;
        }
        let Some(sweep) = &mut moving.sweep else { return Ok(1) };
        let (moved, is_through) = self.drain_some(sweep, upkeep)?;
        if is_through {
            moving.sweep = None;
        }
        Ok(moved)
    }

    /// Messages of some node to disk, for whoever waits for memory: this waits for none, and for no step of upkeep, which may be
    /// what waits. How many, about.
    pub(crate) fn relieve(&self, log: &dyn LogGate) -> Result<u64> {
        if !self.env.options.buffered || self.env.cache.budget().used(Class::Buffers) == 0 {
            return Ok(0);
        }
        self.flush_next(|handle| self.flush_at_once(handle, log))
    }

    /// Loads a few leaves that seem dead, neighbours one after the other. Returns how many.
    fn look_at_dead(&self) -> Result<u64> {
        let is_out = |slot: &LeafSlot| matches!(slot.state, LeafState::Cold | LeafState::Parked(_));
        let (mut looked_at, mut payloads) = (0, Payloads::default());
        while looked_at < LEAVES_PER_CALL as u64
            && let Some((low, _)) = self.seem_dead.take()
        {
            self.load_if(&low, &mut payloads, |leaf, slot| leaf.mark.get().is_none() && is_out(slot))?;
            looked_at += 1;
        }
        Ok(looked_at)
    }

    fn load_if(
        &self,
        low: &Fence,
        payloads: &mut Payloads,
        is_wanted: impl Fn(&LeafHandle, &LeafSlot) -> bool,
    ) -> Result<()> {
        self.load_path(low)?;
        let leaf = {
            let guard = epoch::pin();
            self.seek(&guard, Seek::At(low)).ok().map(|place| place.leaf.clone())
        };
        if let Some(leaf) = leaf
            && is_wanted(&leaf, &leaf.latch.read())
            && !leaf.record.lock().is_damaged
        {
            self.load_for_upkeep(&leaf, payloads)?;
        }
        Ok(())
    }

    pub(crate) fn is_worth_loading(&self, pending_bytes: usize) -> bool {
        pending_bytes > self.env.options.node_bytes / 2
    }

    /// So much is pending beside a leaf in memory that it is to be written.
    pub(crate) fn is_heavy(&self, pending_bytes: usize) -> bool {
        pending_bytes > self.env.options.node_bytes / 4
    }

    /// Flushes the next node with messages in memory, from where the last call ended, once around at most. Nodes on disk have none.
    fn flush_next(&self, flush: impl Fn(&InnerHandle) -> Result<u64>) -> Result<u64> {
        let start = self.flush_at.lock().clone();
        let (mut at, mut is_around) = (start.clone(), false);
        for _ in 0..NODES_PER_CALL {
            let (handle, high) = self.loaded_node_at(&at);
            at = high.unwrap_or_default();
            is_around |= at.is_empty();
            *self.flush_at.lock() = at.clone();
            let pending = |leaf: &Arc<LeafHandle>| leaf.latch.read().pending.is_some();
            // None, if all of it is stuck.
            if let Some(handle) = handle
                && self.leaves_of(&handle).iter().any(pending)
                && let flushed @ 1.. = flush(&handle)?
            {
                return Ok(flushed);
            }
            if is_around && at >= start {
                break;
            }
        }
        Ok(0)
    }

    /// The node of level 1 over `at`, if it is in memory, and where the next one, or what is not in memory, begins.
    fn loaded_node_at(&self, at: &[u8]) -> (Option<Arc<InnerHandle>>, Option<Fence>) {
        loop {
            {
                let guard = epoch::pin();
                match self.seek(&guard, Seek::At(at)) {
                    Ok(_) => {
                        let path = self.path(&guard, at);
                        let bottom = path.last().expect("a path has a root");
                        return (Some(bottom.handle.clone()), bottom.keys.hi().map(Fence::from));
                    }
                    Err(Stop::Cold(cold)) => return (None, cold.high),
                    Err(Stop::Obsolete) => {}
                }
            }
            vfs::thread::spin();
        }
    }

    /// Over the node of `low`, if it still holds enough.
    fn begin_sweep(&self, low: &Fence) -> Result<Option<Sweep>> {
        let path = self.load_path(low)?;
        let handle = path.last().expect("a path has a root");
        let _latched = self.latch_structure();
        let guard = epoch::pin();
        let Some(keys) = loaded(handle, &guard) else { return Ok(None) };
        let filling = self.filling(&handle.record.lock().segments, keys);
        self.fillings.note(keys.lo(), filling, false);
        let (at, end) = (keys.lo().to_vec(), keys.hi().map(<[u8]>::to_vec));
        Ok(filling.is_worth_draining().then(|| Sweep { at, end, payloads: Payloads::default() }))
    }

    /// All of a node, before it is composed, if its image might not fit into a block: upkeep did not come to it.
    pub(crate) fn drain_before_composing(&self, handle: &InnerHandle, upkeep: &Upkeep<'_>) -> Result<()> {
        if !self.may_outgrow_its_image(&handle.record.lock().segments) {
            return Ok(());
        }
        let low = loaded(handle, &epoch::pin()).map(|keys| Fence::from(keys.lo()));
        let Some(mut sweep) = low.map(|low| self.begin_sweep(&low)).transpose()?.flatten() else { return Ok(()) };
        while !self.drain_some(&mut sweep, upkeep)?.1 {}
        Ok(())
    }

    /// A few leaves. Returns how many, about, and whether they were the last.
    fn drain_some(&self, sweep: &mut Sweep, upkeep: &Upkeep<'_>) -> Result<(u64, bool)> {
        let path = self.load_path(&sweep.at)?;
        let handle = path.last().expect("a path has a root");
        let Some(Step { leaves, next, ahead }) = self.to_drain(handle, &sweep.at, upkeep) else {
            return Ok((1, false));
        };
        let (mut there, mut was_resident) = (Vec::new(), Vec::new());
        self.read_ahead(&leaves, ahead, &mut sweep.payloads);
        for leaf in &leaves {
            // Those that are damaged are not asked for again.
            let was = leaf.latch.read().resident().is_some();
            if self.load_to_write(leaf, &mut sweep.payloads)? {
                there.push(leaf.clone());
                was_resident.push(was);
            }
        }
        self.write_leaves(&self.dirty_between(&sweep.at, next.as_deref()), upkeep, AllocScope::Pages)?;
        self.drop_void(&sweep.at, next.as_deref());
        let budget = self.env.cache.budget();
        for (leaf, _) in there.iter().zip(was_resident).filter(|(_, was_resident)| !was_resident) {
            if budget.free() < budget.page_floor() {
                self.env.cache.let_go(&**leaf);
            }
        }
        let next = next.filter(|next| sweep.end.as_ref().is_none_or(|end| next < end));
        let is_through = next.is_none();
        sweep.at = next.unwrap_or_default();
        sweep.payloads.move_to(&sweep.at, sweep.end.as_deref());
        Ok((leaves.len() as u64 + 1, is_through))
    }

    /// Leaves from `at` that have messages on disk, of blocks that an image written now would be complete through: runs, or the
    /// build of an index, may hold that back [A4]. `None` if the node was replaced.
    fn to_drain(&self, handle: &InnerHandle, at: &[u8], upkeep: &Upkeep<'_>) -> Option<Step> {
        let through = upkeep.applied.min(upkeep.log.durable()).min(self.runs.cap().as_lsn());
        let _latched = self.latch_structure();
        let guard = epoch::pin();
        let keys = loaded(handle, &guard)?;
        let record = handle.record.lock();
        let blocks: Vec<_> = record.segments.iter().filter(|block| block.newest.as_lsn() <= through).collect();
        let (mut leaves, mut next, from) = (Vec::new(), None, keys.child_for(at));
        for i in from..keys.len() {
            let (low, high) = keys.fence_of(i);
            if leaves.len() == LEAVES_PER_CALL {
                next = Some(low);
                break;
            }
            next = high;
            let Child::Leaf(leaf) = keys.child(i) else { continue };
            let counts =
                |block: &&Arc<SegmentBlock>| block.overlaps(&low, next.as_deref()) && !is_void_for(leaf, block);
            if blocks.iter().any(counts) && !leaf.record.lock().is_damaged {
                leaves.push(leaf.clone());
            }
        }
        let end = keys.fence_of(keys.len().min(from + LEAVES_AHEAD) - 1).1;
        let ahead = blocks.into_iter().filter(|block| block.overlaps(at, end.as_deref())).cloned().collect();
        Some(Step { leaves, next, ahead })
    }

    /// Step 1: loaded, and to be written even if nothing is missing. False if it is damaged.
    fn load_to_write(&self, leaf: &Arc<LeafHandle>, payloads: &mut Payloads) -> Result<bool> {
        let there = self.load_for_upkeep(leaf, payloads)?;
        if let Some(resident) = leaf.latch.write().resident_mut() {
            self.note_applied(leaf, resident, TO_BE_WRITTEN);
        }
        Ok(there)
    }

    /// Loads a leaf for what can as well be left. In a Bε-tree damage, which may be that of a segment over many leaves, is not met
    /// here, but by those who need the leaf: then false.
    pub(crate) fn load_for_upkeep(&self, leaf: &Arc<LeafHandle>, payloads: &mut Payloads) -> Result<bool> {
        match self.load_leaf_with(leaf, None, payloads) {
            Err(fault) if self.env.options.buffered => fault.into_damage().map(|_| false),
            done => done.map(|()| true),
        }
    }

    /// What is to be written of `[low, high)`: leaves that did not have room for their messages are several now.
    fn dirty_between(&self, low: &[u8], high: Option<&[u8]>) -> Vec<Arc<LeafHandle>> {
        let (mut found, mut at) = (Vec::new(), low.to_vec());
        let guard = epoch::pin();
        loop {
            let path = self.path(&guard, &at);
            let bottom = path.last().expect("a path has a root");
            for child in &bottom.keys.children()[bottom.index..] {
                match child {
                    Child::Leaf(leaf) if high.is_some_and(|high| *leaf.low >= *high) => return found,
                    Child::Leaf(leaf) if leaf.record.lock().is_dirty() => found.push(leaf.clone()),
                    Child::Leaf(_) | Child::Inner(_) => {}
                }
            }
            match bottom.keys.hi() {
                Some(end) => at = end.to_vec(),
                None => return found,
            }
        }
    }

    /// Step 3 for blocks that reach into `[low, high)`, of the node of `low`.
    fn drop_void(&self, low: &[u8], high: Option<&[u8]>) {
        let latched = self.latch_structure();
        let guard = epoch::pin();
        let path = self.path(&guard, low);
        let bottom = path.last().expect("a path has a root");
        let mut record = bottom.handle.record.lock();
        let is_gone = |block: &mut Arc<SegmentBlock>| block.overlaps(low, high) && is_void(bottom.keys, block);
        let gone: Vec<_> = record.segments.extract_if(.., is_gone).collect();
        let left = filled_bytes(&record.segments);
        drop(record);
        if !gone.is_empty() {
            self.fillings.note_drained(bottom.keys.lo(), left);
            self.counters.add_drained(stored_bytes(&gone));
            path.iter().rev().for_each(|step| step.handle.note_change());
        }
        drop((latched, gone));
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

/// Nothing of the block counts any more. Of one that reaches beyond the node only images can say so: for want of one it would
/// count again when the node next to it, which still has the block, becomes one with this.
pub(crate) fn is_void(keys: &Inner<Child>, block: &SegmentBlock) -> bool {
    let is_ours = block.lies_in(keys.lo(), keys.hi());
    leaves_over(keys, block).all(|leaf| is_void_for(leaf, block) && (is_ours || leaf.complete_through().is_some()))
}

/// The leaf has everything of the block, on disk; or it never had an image, and nothing of the block counts for it.
pub(crate) fn is_void_for(leaf: &LeafHandle, block: &SegmentBlock) -> bool {
    leaf.complete_through().is_none_or(|through| through >= block.newest)
}
