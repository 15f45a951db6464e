//! From disk into memory.
//!
//! Steps for a leaf: (1) memory is granted; (2) under the exclusive latch, COLD → LOADING: this thread reads, all
//! others wait for it; (3) with no latch and no guard held, the image and its version chains are read and checked,
//! and the leaf is trimmed to its fences [A8]; (4) under the latch, LOADING → RESIDENT; the waiters are woken and
//! look again. After a fault the leaf is COLD again, and each waiter tries for itself and gets a fault of its own.
//!
//! Memory comes first, so that a LOADING leaf never waits for it: committers that hold pins wait for loaders, and
//! a loader that waited for memory which only those pins keep would wait for ever.
//!
//! A LOADING leaf is left alone by everybody else: it is not unlinked, merged, split or evicted, so its fences
//! and image stand. The image's blocks cannot be reused meanwhile, since the loader holds a pointer to them [A20].
//!
//! An inner node is read by whoever comes first, perhaps twice at the same time; its children's blocks are
//! adopted under the structure latch, by one of them only.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::bytes::printable;
use base::{Fault, Result};
use store::{Block, BlockKind, BlockRef, Charge, Grant, epoch};

use crate::buffered::{Counts, leaves_reached};
use crate::collect::is_stale;
use crate::descent::{ColdInner, Seek, Stop};
use crate::handle::{
    Arrival, Child, InnerHandle, InnerRecord, InnerState, LeafHandle, LeafRecord, LeafState, Resident,
};
use crate::image::{Fence, Image};
use crate::node::{ChildDescriptor, Inner, InnerImage, Leaf, NodeDescriptor, NodeKind};
use crate::segment::SegmentBlock;
use crate::settle::Payloads;
use crate::tree::Core;

impl Core {
    /// Brings a cold leaf into memory, or waits until another thread has. The caller looks again afterwards. Memory
    /// comes from `funds`, if it has enough.
    pub(crate) fn load_leaf(&self, leaf: &Arc<LeafHandle>, funds: Option<&mut Grant>) -> Result<()> {
        self.load_leaf_with(leaf, funds, &mut Payloads::default())
    }

    /// The same for one of several neighbours, whose messages lie in the same blocks.
    pub(crate) fn load_leaf_with(
        &self,
        leaf: &Arc<LeafHandle>,
        funds: Option<&mut Grant>,
        payloads: &mut Payloads,
    ) -> Result<()> {
        let Some(charge) = self.wait_or_fund(leaf, funds)? else { return Ok(()) };
        let arrival = Arc::new(Arrival::default());
        let (high, on_its_way) = {
            let mut slot = leaf.latch.write();
            match &slot.state {
                LeafState::Cold => slot.state = LeafState::Loading(arrival.clone()),
                LeafState::Parked(_) => {
                    self.unpark(leaf, &mut slot);
                    leaf.note_read();
                    return Ok(());
                }
                LeafState::Loading(other) => {
                    // Began while this thread waited for memory.
                    let other = other.clone();
                    drop(slot);
                    other.wait();
                    return Ok(());
                }
                LeafState::Empty | LeafState::Resident(_) | LeafState::Obsolete => return Ok(()),
            }
            (slot.high.clone(), slot.pending.as_ref().and_then(|pending| pending.flushing.clone()))
        };
        vfs::thread::point("tree.loading");
        let image = leaf.record.lock().image.clone().expect("a cold leaf has an image");
        let packed = self.take_packed(&image);
        if packed.is_none() {
            leaf.note_image_read(&self.env.cache, &image, image.block.stored_bytes());
            payloads.note_leaf_read();
        }
        let ahead = packed.or_else(|| payloads.images.take(&image));
        let result = self.read_resident(leaf, &image, high.as_ref(), ahead, charge);
        let result =
            result.and_then(|resident| Ok((resident, self.gather(leaf, high.as_ref(), &image, payloads, on_its_way)?)));
        vfs::thread::point("tree.loaded");
        let mut slot = leaf.latch.write();
        let result = match result {
            Ok((resident, gathered)) => {
                leaf.record.lock().is_damaged = false;
                self.publish_leaf(leaf, &mut slot, resident, &gathered, &mut None);
                leaf.touch();
                self.enter_cache(leaf);
                self.counters.count_load();
                Ok(())
            }
            Err(fault) => {
                slot.state = LeafState::Cold;
                leaf.record.lock().is_damaged = fault.clone().into_damage().is_ok();
                Err(fault.in_index(self.env.id, || range(&leaf.low, high.as_ref())))
            }
        };
        drop(slot);
        arrival.announce();
        result
    }

    /// Step 1, unless the leaf is there or comes anyway: then `None`, after waiting for it.
    fn wait_or_fund(&self, leaf: &Arc<LeafHandle>, funds: Option<&mut Grant>) -> Result<Option<Charge>> {
        let (under_way, is_parked) = match &leaf.latch.read().state {
            LeafState::Cold => (None, false),
            LeafState::Parked(_) => (None, true),
            LeafState::Loading(arrival) => (Some(arrival.clone()), false),
            LeafState::Empty | LeafState::Resident(_) | LeafState::Obsolete => return Ok(None),
        };
        if is_parked {
            // Thrown out in between, it is COLD, and the caller comes again.
            self.unpark(leaf, &mut leaf.latch.write());
            leaf.note_read();
            return Ok(None);
        }
        match under_way {
            Some(arrival) => {
                arrival.wait();
                Ok(None)
            }
            None => self.fund(funds).map(Some),
        }
    }

    /// Step 3; `ahead` is the payload of the image's block, if it was read before.
    pub(crate) fn read_resident(
        &self,
        handle: &LeafHandle,
        image: &Image,
        high: Option<&Fence>,
        ahead: Option<Vec<u8>>,
        mut charge: Charge,
    ) -> Result<Resident> {
        let leaf = match ahead {
            Some(payload) => self.decode_leaf_image(image.address(), &payload, &handle.low, high)?,
            None => self.read_leaf_image(image.address(), &handle.low, high)?,
        };
        self.own_beside(&leaf, image);
        let beside: BTreeMap<u64, Arc<Block>> =
            image.block.beside().into_iter().flatten().map(|block| (block.at().offset, block.clone())).collect();
        charge.set(leaf.memory_bytes() as u64);
        Ok(Resident { beside, has_image: true, ..Resident::new(leaf, image.complete_through(), charge) })
    }

    /// The blocks that a leaf names get an owner, unless its image has them.
    pub(crate) fn own_beside(&self, leaf: &Leaf, image: &Image) {
        if image.block.beside().is_none() {
            let mut blocks = Vec::new();
            leaf.for_each_block(&mut |at| blocks.push(self.env.space.adopt(at)));
            image.block.set_beside(blocks);
        }
    }

    /// The charge of one page: from the grant, or waited for.
    fn fund(&self, funds: Option<&mut Grant>) -> Result<Charge> {
        if let Some(charge) = funds.and_then(|grant| grant.try_take(self.page_bytes())) {
            return Ok(charge);
        }
        Ok(self.env.cache.grant(self.page_bytes())?.into_charge())
    }

    /// Reads and checks a leaf's image, version chains included.
    pub(crate) fn read_leaf_image(&self, at: BlockRef, low: &[u8], high: Option<&Fence>) -> Result<Leaf> {
        let mut bytes = Vec::new();
        self.env.space.read(at, BlockKind::Leaf, self.env.id, &mut bytes)?;
        self.decode_leaf_image(at, &bytes, low, high)
    }

    fn decode_leaf_image(&self, at: BlockRef, bytes: &[u8], low: &[u8], high: Option<&Fence>) -> Result<Leaf> {
        let mut leaf = Leaf::decode_image(bytes, low, high.map(|h| &**h), self.page_frame())
            .map_err(|what| self.corrupt(at, "leaf image", what))?;
        for (id, blocks, length) in leaf.missing_chains() {
            let chain = self.read_beside(&blocks, length)?;
            let first = blocks.first().copied().unwrap_or(at);
            leaf.install_chain(id, &chain).map_err(|what| self.corrupt(first, "version chain", what))?;
        }
        Ok(leaf.of_counters(self.env.options.counters).owing_to(self.env.cache.owed()))
    }

    /// Reads what lies beside a leaf: a large value or a chain, in several blocks.
    pub(crate) fn read_beside(&self, blocks: &[BlockRef], length: u64) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut piece = Vec::new();
        for at in blocks {
            self.env.space.read(*at, BlockKind::Overflow, self.env.id, &mut piece)?;
            out.extend_from_slice(&piece);
        }
        if out.len() as u64 != length {
            let at = blocks.first().copied().unwrap_or(BlockRef { offset: 0, stored_bytes: 0, crc: 0 });
            return Err(self.corrupt(at, "length of a large value, in bytes", format!("{} of {length}", out.len())));
        }
        Ok(out)
    }

    /// Brings an inner node into memory.
    pub(crate) fn load_inner(&self, cold: &ColdInner) -> Result<()> {
        let Some(image) = cold.handle.record.lock().image.clone() else {
            // Loaded, changed and absorbed since the descent.
            return Ok(());
        };
        let name_range = || range(&cold.low, cold.high.as_ref());
        let decoded = self
            .read_inner_image(image.address(), &cold.low, cold.high.as_ref(), image.is_exact)
            .map_err(|fault| fault.in_index(self.env.id, name_range))?;
        vfs::thread::point("tree.inner_read");
        let latched = self.latch_structure();
        if !matches!(cold.handle.cell.load(&epoch::pin()), InnerState::Cold) {
            return Ok(());
        }
        // Neighbours share the fence between them.
        let mut next = Fence::from(decoded.node.lo());
        let keys = decoded.node.map(|i, descriptor| {
            let high = decoded.node.fence_of(i).1.map(Fence::from);
            let low = std::mem::replace(&mut next, high.clone().unwrap_or_default());
            self.adopt_child(descriptor, low, high)
        });
        if let (Child::Leaf(some), true) = (keys.child(0), image.is_exact) {
            // What the counts have for the node since the database was opened, and what they lose as its leaves get their messages.
            // The image may say more, since it says nothing below 0; or less, if it is an older one, without messages.
            let counts = Counts::below(&decoded);
            let missing = |counted: i128, said: u64| (counted - i128::from(said)) as i64;
            self.counters.add(some, missing(counts.live, image.live), missing(counts.entries, image.entries));
        }
        let adopt = |segment| SegmentBlock::adopt(&self.env.space, segment, leaves_reached(&keys, segment)).share();
        let segments: Vec<_> = decoded.segments.iter().map(adopt).collect();
        revive(&keys, &segments);
        {
            let mut record = cold.handle.record.lock();
            if decoded.level == 1 {
                self.fillings.note(&cold.low, self.filling(&segments, &keys), true);
            }
            record.composed_segments.clone_from(&segments);
            record.segments = segments;
        }
        self.queue_dead(&keys);
        self.replace(&latched, &cold.handle, decoded.level, keys);
        Ok(())
    }

    /// The inner handles above `key`, top down; loads what is missing.
    pub(crate) fn load_path(&self, key: &[u8]) -> Result<Vec<Arc<InnerHandle>>> {
        loop {
            let cold = {
                let guard = epoch::pin();
                match self.seek(&guard, Seek::At(key)) {
                    Ok(_) => return Ok(self.path(&guard, key).iter().map(|step| step.handle.clone()).collect()),
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

    /// Reads and checks an inner node's image: each child is of the kind that the level says. If the image is not exact, the
    /// outer slots may be trimmed, and what was said of their range does not hold.
    pub(crate) fn read_inner_image(
        &self,
        at: BlockRef,
        low: &[u8],
        high: Option<&Fence>,
        is_exact: bool,
    ) -> Result<InnerImage> {
        let mut bytes = Vec::new();
        self.env.space.read(at, BlockKind::Inner, self.env.id, &mut bytes)?;
        let mut decoded = InnerImage::decode(&bytes, low, high.map(|h| &**h))
            .map_err(|what| self.corrupt(at, "inner node image", what))?;
        if !is_exact {
            decoded.forget_outer_ranges();
        }
        for child in decoded.node.children() {
            let (ChildDescriptor::Node(NodeDescriptor { kind, .. }), level) = (child, decoded.level) else {
                if decoded.level == 1 {
                    continue;
                }
                return Err(self.corrupt(at, "child of an upper node", "an empty slot".to_owned()));
            };
            if (*kind == NodeKind::Leaf) != (level == 1) {
                return Err(self.corrupt(at, "kind of a child", format!("{kind:?} below level {level}")));
            }
        }
        Ok(decoded)
    }

    /// What was dead, or mostly dead, when the image was written is queued again: the queues did not survive [C7].
    fn queue_dead(&self, keys: &Inner<Child>) {
        let mut before = false;
        for (i, child) in keys.children().iter().enumerate() {
            let dead = child.mark().get();
            if let Some(from) = dead.filter(|_| !before) {
                self.purge.offer(keys.fence_of(i).0.into(), from);
            }
            // Neighbouring leaves are purged together; each inner node is loaded for itself.
            before = dead.is_some() && matches!(child, Child::Leaf(_));
            if let Child::Leaf(leaf) = child
                && let Some(image) = &leaf.record.lock().image
                && is_stale(image.entries, image.live)
            {
                self.stale.offer(leaf.low.clone(), image.max_ts);
            }
        }
    }

    fn adopt_child(&self, descriptor: &ChildDescriptor, low: Fence, high: Option<Fence>) -> Child {
        let ChildDescriptor::Node(node) = descriptor else {
            let leaf = LeafHandle::empty(self.me.clone(), low, high);
            leaf.record.lock().in_parent_image = true;
            return Child::Leaf(Arc::new(leaf));
        };
        let image = Image::adopt(&self.env.space, node, low.clone(), high.clone()).share();
        match node.kind {
            NodeKind::Leaf => {
                let composed = Some(image.block.clone());
                let mut record = LeafRecord::clean(Some(image));
                record.composed = composed;
                record.in_parent_image = true;
                Child::Leaf(Arc::new(LeafHandle::new(self.me.clone(), low, high, LeafState::Cold, record)))
            }
            NodeKind::Inner => {
                let record = InnerRecord {
                    composed: Some(image.block.clone()),
                    image: Some(image),
                    in_parent_image: true,
                    ..InnerRecord::default()
                };
                Child::Inner(Arc::new(InnerHandle::new(InnerState::Cold, node.dead_from, record)))
            }
        }
    }

    pub(crate) fn corrupt(&self, at: BlockRef, what: &'static str, found: String) -> Fault {
        Fault::corrupt(self.env.space.file_name(), at.offset, what, "a well-formed one", found).of_index(self.env.id)
    }
}

/// A leaf that was dead when its image was written may have got something since.
fn revive(keys: &Inner<Child>, segments: &[Arc<SegmentBlock>]) {
    for (i, child) in keys.children().iter().enumerate() {
        let Child::Leaf(leaf) = child else { continue };
        let (low, high) = keys.fence_of(i);
        let record = leaf.record.lock();
        if let Some(image) = &record.image
            && segments.iter().any(|s| s.newest > image.complete_through() && s.overlaps(&low, high.as_deref()))
        {
            leaf.mark.set(None);
        }
    }
}

/// A key range for error texts.
pub(crate) fn range(low: &[u8], high: Option<&Fence>) -> String {
    match high {
        Some(high) => format!("[{}, {})", printable(low), printable(high)),
        None => format!("[{}, end)", printable(low)),
    }
}
