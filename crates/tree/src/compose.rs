//! One inner node's image from the handles below it: step 3 of the checkpoint, under the structure latch.
//!
//! Steps: (1) every child is checked: a leaf lacks nothing at or below F, an inner node was seen by this checkpoint;
//! who is not complete is returned instead of an image; (2) neighbours that share an image become one slot over both
//! ranges (R1, see `structure`); (3) the slots are encoded; (4) the accounts are settled: each image that a slot names
//! is published, each that the last image of this node named, and this one does not, is unpublished. So the
//! published blocks are exactly those that the manifest will reach, once the root is composed.
//!
//! A shared image was written before a split, and neither half was written since; both are dirty, in memory, and
//! lack only what is newer than F. So the unsplit image is the right picture of both as of F.
//!
//! Beyond F, two things send a leaf back to be written first, because its image would count blocks that its slot
//! does not reach, or be named by two slots:
//! - the image names blocks of large values and covers more than the slot;
//! - another slot, not a neighbour, names the same image (an EMPTY slot stands between).

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use base::{CommitTs, Lsn};
use store::{Block, epoch};

use crate::buffered::Counts;
use crate::checkpoint::Walk;
use crate::descent::later;
use crate::drain::is_void;
use crate::handle::{Child, InnerHandle, InnerNode, InnerState, LeafHandle};
use crate::image::{Fence, Image};
use crate::node::{ChildDescriptor, Inner, InnerImage, NodeKind};
use crate::segment::SegmentBlock;

/// What came of composing a node.
pub(crate) enum Outcome {
    Composed(Box<Composed>),
    /// These leaves must be written first.
    Leaves(Vec<Arc<LeafHandle>>),
    /// Messages for leaves below must be flushed first.
    Messages,
    /// These blocks of messages reach beyond the node: it needs its part for itself first.
    Shared(Vec<Arc<SegmentBlock>>),
    /// Nodes below must be composed first.
    Inner,
    /// The node was absorbed by another one.
    Obsolete,
    /// In a checkpoint of what is written: nothing of what the node's image names has changed, so it stays.
    Unchanged,
}

/// A node's image before it has an address.
pub(crate) struct Composed {
    pub payload: Vec<u8>,
    pub absorptions: u64,
    pub edition: u64,
    low: Fence,
    high: Option<Fence>,
    entries: u64,
    live: u64,
    dead_from: Option<CommitTs>,
    log_need: CommitTs,
    max_ts: CommitTs,
    write_lsn: Lsn,
}

/// A slot of the image: the children from `first` up to the next slot's.
struct Slot {
    first: usize,
    image: Option<Arc<Image>>,
}

impl Walk<'_> {
    pub fn try_compose(&self, handle: &Arc<InnerHandle>) -> Outcome {
        let latched = self.core.latch_structure();
        let guard = epoch::pin();
        let InnerState::Loaded(node) = handle.cell.load(&guard) else { return Outcome::Obsolete };
        // Before the slots: what they name is what was seen here, or newer. An image that comes in between would make void what
        // the image named beside it lacks.
        let segments = {
            let mut record = handle.record.lock();
            record.segments.retain(|block| !is_void(&node.keys, block));
            record.segments.clone()
        };
        vfs::thread::point("tree.segments_chosen");
        let slots = match self.slots(&node.keys) {
            Ok(slots) => slots,
            Err(outcome) => return outcome,
        };
        vfs::thread::point("tree.slots_chosen");
        if self.is_of_written && self.is_unchanged(handle, node, &segments) {
            return Outcome::Unchanged;
        }
        let (low, high) = (node.keys.lo(), node.keys.hi());
        let shared: Vec<_> = segments.iter().filter(|block| !block.lies_in(low, high)).cloned().collect();
        if !shared.is_empty() {
            return Outcome::Shared(shared);
        }
        let separators: Vec<Vec<u8>> = slots[1..].iter().map(|slot| node.keys.fence_of(slot.first).0).collect();
        let children = (0..slots.len()).map(|i| descriptor(&node.keys, &slots, i)).collect();
        let keys = Inner::new(node.keys.lo(), node.keys.hi(), &separators, children)
            .expect("some separators of an ordered node are ordered");
        let named = segments.iter().map(|block| block.descriptor()).collect();
        let image = InnerImage { level: node.level, segments: named, node: keys };
        let mut composed = Composed::new(&slots, handle, &image, self.skip);
        image.encode(&mut composed.payload);
        // Until this one is written the last image is of something else.
        handle.record.lock().image_edition = None;
        let still_dirty = self.settle(handle, &node.keys, &slots);
        self.settle_segments(handle, segments);
        if still_dirty {
            self.note_still_dirty(handle, node);
        }
        drop(latched);
        Outcome::Composed(Box::new(composed))
    }

    /// True if an image composed now would name what the last one does: leaves were changed, and none was written. It is complete to F
    /// then, as they are. Under the structure latch.
    fn is_unchanged(&self, handle: &InnerHandle, node: &InnerNode, segments: &[Arc<SegmentBlock>]) -> bool {
        let mut still_dirty = false;
        let mut is_same = |child: &Child| {
            let Child::Leaf(leaf) = child else { return false };
            let record = leaf.record.lock();
            still_dirty |= record.is_dirty() || record.oldest_pending != CommitTs::MAX;
            let newest = record.image.as_ref().map(|image| Arc::as_ptr(&image.block));
            record.in_parent_image && newest == record.composed.as_ref().map(Arc::as_ptr)
        };
        if !node.keys.children().iter().all(&mut is_same) {
            return false;
        }
        let mut record = handle.record.lock();
        let named = &record.composed_segments;
        let is_same = record.image_edition == Some(record.edition)
            && record.retired.is_empty()
            && named.len() == segments.len()
            && named.iter().zip(segments).all(|(named, segment)| Arc::ptr_eq(named, segment));
        if !is_same || record.image.is_none() {
            return false;
        }
        record.seen = self.number;
        drop(record);
        if still_dirty {
            self.note_still_dirty(handle, node);
        }
        true
    }

    /// What was changed below and is in no image: the next checkpoint comes by again.
    fn note_still_dirty(&self, handle: &InnerHandle, node: &InnerNode) {
        handle.note_change();
        let guard = epoch::pin();
        for step in self.core.path_to(&guard, node.keys.lo(), node.level).iter().rev() {
            step.handle.note_change();
        }
    }

    /// Steps 1 and 2.
    fn slots(&self, keys: &Inner<Child>) -> Result<Vec<Slot>, Outcome> {
        let mut slots: Vec<Slot> = Vec::with_capacity(keys.len());
        let mut missing = Vec::new();
        let (mut inner_missing, mut messages_missing) = (false, false);
        for (i, child) in keys.children().iter().enumerate() {
            let image = match child {
                Child::Leaf(leaf) => {
                    let record = leaf.record.lock();
                    if record.is_stuck() {
                        self.stuck.set(self.stuck.get().min(record.oldest_pending));
                    } else {
                        messages_missing |= !self.is_complete(record.oldest_pending);
                    }
                    if !self.is_complete(record.oldest()) {
                        missing.push(leaf.clone());
                        continue;
                    }
                    record.image.clone()
                }
                Child::Inner(inner) => {
                    let record = inner.record.lock();
                    inner_missing |= record.seen != self.number || record.image.is_none();
                    record.image.clone()
                }
            };
            match (slots.last().map(|slot| &slot.image), &image) {
                (Some(Some(last)), Some(image)) if Arc::ptr_eq(last, image) => {}
                (Some(None), None) => {}
                _ => slots.push(Slot { first: i, image }),
            }
        }
        if messages_missing {
            return Err(Outcome::Messages);
        }
        if missing.is_empty() && !inner_missing {
            inner_missing |= self.send_back(keys, &slots, &mut missing);
        }
        match (missing.is_empty(), inner_missing) {
            (true, false) => Ok(slots),
            (false, _) => Err(Outcome::Leaves(missing)),
            (true, true) => Err(Outcome::Inner),
        }
    }

    /// What must have an image of its own although it is complete. True if an inner node must.
    fn send_back(&self, keys: &Inner<Child>, slots: &[Slot], missing: &mut Vec<Arc<LeafHandle>>) -> bool {
        let mut named = BTreeSet::new();
        let mut inner = false;
        for (i, slot) in slots.iter().enumerate() {
            let Some(image) = &slot.image else { continue };
            let end = end_of(keys, slots, i);
            let (low, high) = fences_of(keys, slots, i);
            let twice = !named.insert(Arc::as_ptr(image));
            let counts_more = image.has_blocks_beside && !image.is_whole(&low, high.as_deref());
            if !twice && !counts_more {
                continue;
            }
            for child in &keys.children()[slot.first..end] {
                match child {
                    Child::Leaf(leaf) => missing.push(leaf.clone()),
                    Child::Inner(node) => {
                        node.record.lock().image = None;
                        node.note_change();
                        inner = true;
                    }
                }
            }
        }
        inner
    }

    /// Step 4 for the buffer.
    fn settle_segments(&self, handle: &InnerHandle, now: Vec<Arc<SegmentBlock>>) {
        let before = std::mem::replace(&mut handle.record.lock().composed_segments, now.clone());
        // Publish first: a block named before and now is never unnamed in between.
        now.iter().for_each(|segment| self.core.counters.publish(&segment.block));
        before.iter().for_each(|segment| self.core.counters.unpublish(&segment.block));
    }

    /// Step 4. True if something below is not in any image yet.
    fn settle(&self, handle: &InnerHandle, keys: &Inner<Child>, slots: &[Slot]) -> bool {
        let mut still_dirty = false;
        let mut outdated: Vec<Arc<Block>> = Vec::new();
        let (mut slot, mut chosen) = (slots.iter().peekable(), None);
        for (i, child) in keys.children().iter().enumerate() {
            let starts = slot.next_if(|slot| slot.first == i);
            chosen = starts.map_or(chosen, |slot| slot.image.as_ref());
            let named = starts.and_then(|slot| slot.image.as_ref()).map(|image| image.block.clone());
            let before = match child {
                Child::Leaf(leaf) => {
                    let mut record = leaf.record.lock();
                    // A write that landed since the slots were chosen: the leaf is clean, by an image that this one does not name.
                    let has_newer = record.image.as_ref().map(Arc::as_ptr) != chosen.map(Arc::as_ptr);
                    still_dirty |= has_newer || record.is_dirty() || record.oldest_pending != CommitTs::MAX;
                    record.in_parent_image = starts.is_some();
                    std::mem::replace(&mut record.composed, named.clone())
                }
                Child::Inner(inner) => {
                    still_dirty |= inner.is_changed();
                    let mut record = inner.record.lock();
                    record.in_parent_image = starts.is_some();
                    std::mem::replace(&mut record.composed, named.clone())
                }
            };
            if before.as_ref().map(Arc::as_ptr) != named.as_ref().map(Arc::as_ptr) {
                // Publish first: a block named before and now is never unnamed in between.
                named.iter().for_each(|block| self.core.counters.publish(block));
                outdated.extend(before);
            }
        }
        outdated.extend(std::mem::take(&mut handle.record.lock().retired).into_iter().map(|retired| retired.block));
        outdated.iter().for_each(|block| self.core.counters.unpublish(block));
        still_dirty
    }
}

/// Past the last child of slot `i`.
fn end_of(keys: &Inner<Child>, slots: &[Slot], i: usize) -> usize {
    slots.get(i + 1).map_or(keys.len(), |next| next.first)
}

fn fences_of(keys: &Inner<Child>, slots: &[Slot], i: usize) -> (Vec<u8>, Option<Vec<u8>>) {
    (keys.fence_of(slots[i].first).0, keys.fence_of(end_of(keys, slots, i) - 1).1)
}

fn descriptor(keys: &Inner<Child>, slots: &[Slot], i: usize) -> ChildDescriptor {
    match &slots[i].image {
        Some(image) => {
            let (low, high) = fences_of(keys, slots, i);
            ChildDescriptor::Node(image.descriptor(&low, high.as_deref()))
        }
        None => ChildDescriptor::Empty { log_need: CommitTs::ZERO },
    }
}

impl Composed {
    fn new(slots: &[Slot], handle: &InnerHandle, image: &InnerImage, applied: Lsn) -> Self {
        let named = || slots.iter().filter_map(|slot| slot.image.as_ref());
        let dead = |slot: &Slot| slot.image.as_ref().map_or(Some(CommitTs::ZERO), |image| image.dead_from);
        let (entries, live) = Counts::below(image).said();
        let (absorptions, edition) = {
            let record = handle.record.lock();
            (record.absorptions, record.edition)
        };
        Self {
            payload: Vec::new(),
            absorptions,
            edition,
            low: image.node.lo().into(),
            high: image.node.hi().map(Fence::from),
            entries,
            live,
            // What is buffered may be alive.
            dead_from: (slots.iter().map(dead))
                .try_fold(CommitTs::ZERO, |all, one| later(Some(all), one))
                .filter(|_| image.segments.is_empty()),
            log_need: handle.log_need(),
            max_ts: named().map(|image| image.max_ts).fold(CommitTs::ZERO, CommitTs::max),
            write_lsn: applied,
        }
    }

    pub fn log_need(&self) -> Lsn {
        self.log_need.as_lsn()
    }

    pub fn into_image(self, block: Arc<Block>) -> Arc<Image> {
        block.set_beside(Vec::new());
        Image {
            kind: NodeKind::Inner,
            block,
            has_blocks_beside: false,
            low: self.low,
            high: self.high,
            is_exact: true,
            entries: self.entries,
            live: self.live,
            dead_from: self.dead_from,
            max_ts: self.max_ts,
            write_lsn: self.write_lsn,
            outline: OnceLock::new(),
        }
        .share()
    }
}
