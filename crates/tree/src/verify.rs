//! Checks everything that can be checked, reading all blocks.
//!
//! The walk goes from leaf to leaf by key, as a reader does, so it may run beside everything else. For each leaf: its
//! range begins where the last one ended; what is in memory is checked against itself; its image is read and checked,
//! and agrees with what its descriptor says; its mark says no more than its content. For each inner node passed: its
//! children cover its range in order; marks are not above a child that has none; its buffer is read. What the images of inner nodes say is
//! the matter of `reach`. Attached runs are read whole.
//!
//! What cannot be read is named with its key range, and the walk goes on behind it. Leaves that are not in memory are
//! read beside the cache, so that a verify does not throw out what is in use.

use std::sync::Arc;

use base::bytes::printable;
use base::{Corruption, Fault, Result};
use index::{ReadAt, VerifyReport};
use store::epoch;

use crate::dead::mark_of;
use crate::descent::{Seek, Stop};
use crate::handle::{InnerHandle, InnerState, LeafHandle, LeafSlot, LeafState};
use crate::image::{Fence, Image, blocks};
use crate::load::range;
use crate::node::Leaf;
use crate::reach::show;
use crate::segment::disagreement as disagreement_of_messages;
use crate::tree::Core;

/// A put that climbs is waited for so many times.
const LOOKS_MAX: usize = 100_000;

/// A report in the making.
struct Check<'a> {
    core: &'a Core,
    report: VerifyReport,
    /// Inner nodes of the last path, top down: those are not checked again.
    passed: Vec<*const InnerHandle>,
}

/// The inner nodes above a key, or where to go on because one of them cannot be read.
enum Path {
    Nodes(Vec<Arc<InnerHandle>>),
    Unreadable(Option<Fence>),
}

impl Core {
    pub(crate) fn verify(&self) -> Result<VerifyReport> {
        let mut check = Check { core: self, report: VerifyReport::default(), passed: Vec::new() };
        check.runs()?;
        let mut key = Vec::new();
        loop {
            let next = match check.path(&key)? {
                Path::Unreadable(high) => high,
                Path::Nodes(path) => {
                    check.inner_nodes(&path)?;
                    check.leaf(&key)?
                }
            };
            match next {
                Some(high) => key = high.to_vec(),
                None => return Ok(check.report),
            }
        }
    }
}

impl Check<'_> {
    /// Something in memory that should not be so.
    fn wrong(&mut self, key_range: String, what: &'static str, expected: impl ToString, found: impl ToString) {
        let (expected, found) = (expected.to_string(), found.to_string());
        let id = self.core.env.id;
        self.report.add(|| Corruption::of_index(id, key_range, what, expected, found).at("memory", None));
    }

    /// A corruption is a problem, any other fault ends the walk.
    fn note(&mut self, fault: Fault, key_range: impl FnOnce() -> String) -> Result<()> {
        self.report.note(fault.in_index(self.core.env.id, key_range))
    }

    /// Runs in memory are as good as the memory; those in files are read.
    fn runs(&mut self) -> Result<()> {
        for attached in self.core.runs.seen_at(ReadAt::Newest) {
            if attached.run.meta().is_some()
                && let Err(fault) = attached.run.verify()
            {
                let ends = attached.run.key_range().map(|(min, max)| (printable(min), printable(max)));
                self.note(fault, || ends.map_or("none".to_owned(), |(min, max)| format!("[{min}, {max}]")))?;
            }
        }
        Ok(())
    }

    fn path(&mut self, key: &[u8]) -> Result<Path> {
        loop {
            let cold = {
                let guard = epoch::pin();
                match self.core.seek(&guard, Seek::At(key)) {
                    Ok(_) => {
                        let path = self.core.path(&guard, key);
                        return Ok(Path::Nodes(path.iter().map(|step| step.handle.clone()).collect()));
                    }
                    Err(Stop::Cold(cold)) => cold,
                    Err(Stop::Obsolete) => {
                        drop(guard);
                        vfs::thread::spin();
                        continue;
                    }
                }
            };
            if let Err(fault) = self.core.load_inner(&cold) {
                self.note(fault, || range(&cold.low, cold.high.as_ref()))?;
                return Ok(Path::Unreadable(cold.high));
            }
        }
    }

    fn inner_nodes(&mut self, path: &[Arc<InnerHandle>]) -> Result<()> {
        for (depth, handle) in path.iter().enumerate() {
            if self.passed.get(depth) != Some(&Arc::as_ptr(handle)) {
                self.report.nodes += 1;
                self.inner_node(handle);
                self.buffer(handle)?;
            }
        }
        self.passed = path.iter().map(Arc::as_ptr).collect();
        Ok(())
    }

    /// Blocks of messages are what the node says they are.
    fn buffer(&mut self, handle: &InnerHandle) -> Result<()> {
        let (id, mut payload) = (self.core.env.id, Vec::new());
        let blocks = handle.record.lock().segments.clone();
        for block in blocks {
            self.report.nodes += 1;
            let says = block.descriptor();
            if let Err(fault) = self.core.read_segment(&block, &mut payload) {
                self.note(fault, || says.keys())?;
            } else if let Some((expected, found)) = disagreement_of_messages(&says, &payload) {
                let (file, at) = (self.core.env.space.file_name(), says.block.offset);
                let what = "segment of messages";
                self.report.add(|| Corruption::of_index(id, says.keys(), what, expected, found).at(file, at));
            }
        }
        Ok(())
    }

    fn inner_node(&mut self, handle: &InnerHandle) {
        let guard = epoch::pin();
        let InnerState::Loaded(node) = handle.cell.load(&guard) else { return };
        let high = node.keys.hi().map(Fence::from);
        let name = || range(node.keys.lo(), high.as_ref());
        let mut low = node.keys.lo().to_vec();
        for i in 0..node.keys.len() {
            let (child_low, child_high) = node.keys.fence_of(i);
            if child_low != low {
                self.wrong(name(), "fences of a child", printable(&low), printable(&child_low));
            }
            low = child_high.unwrap_or_default();
        }
        if low != node.keys.hi().unwrap_or_default() {
            self.wrong(name(), "fences of the last child", name(), printable(&low));
        }
        let name = name();
        drop(guard);
        if !self.is_marked_rightly(handle) {
            self.wrong(name, "dead mark of an inner node", "none over a live child", "a mark");
        }
    }

    /// A mark over a live child may be seen while a put climbs, or a marker looks twice: not for long.
    fn is_marked_rightly(&self, handle: &InnerHandle) -> bool {
        (0..LOOKS_MAX).any(|_| {
            let latched = self.core.latch_structure();
            let guard = epoch::pin();
            let InnerState::Loaded(node) = handle.cell.load(&guard) else { return true };
            let alive = node.keys.children().iter().any(|child| child.mark().get().is_none());
            let right = handle.mark.get().is_none() || !alive;
            drop(latched);
            if !right {
                vfs::thread::spin();
            }
            right
        })
    }

    /// Checks the leaf of `key`; returns its upper fence.
    fn leaf(&mut self, key: &[u8]) -> Result<Option<Fence>> {
        let core = self.core;
        loop {
            let found = {
                let guard = epoch::pin();
                match core.seek(&guard, Seek::At(key)) {
                    Err(_) => None,
                    Ok(place) => {
                        let slot = place.leaf.latch.read();
                        place.is_for(Seek::At(key), &slot, &guard).then(|| {
                            self.report.nodes += 1;
                            self.leaf_in_memory(place.leaf, &slot, key);
                            let image = place.leaf.record.lock().image.clone();
                            (place.leaf.clone(), slot.high.clone(), image, slot.resident().is_some())
                        })
                    }
                }
            };
            let Some((leaf, high, image, resident)) = found else {
                vfs::thread::spin();
                if let Path::Unreadable(high) = self.path(key)? {
                    return Ok(high);
                }
                continue;
            };
            if let Some(image) = image {
                self.image_of_leaf(&leaf, &image, high.as_ref(), resident)?;
            }
            return Ok(high);
        }
    }

    fn leaf_in_memory(&mut self, handle: &LeafHandle, slot: &LeafSlot, expected_low: &[u8]) {
        let name = || range(&handle.low, slot.high.as_ref());
        // It may begin before: then it absorbed the last one meanwhile.
        if *handle.low > *expected_low {
            self.wrong(name(), "fences of a leaf", printable(expected_low), printable(&handle.low));
        }
        match &slot.state {
            LeafState::Resident(resident) => {
                let leaf = &resident.leaf;
                if let Err(what) = leaf.check() {
                    self.wrong(name(), "leaf", "a sound one", what);
                }
                if *leaf.lo() != *handle.low || leaf.hi() != slot.high.as_deref() {
                    self.wrong(name(), "fences of a leaf", "those of its handle", "others");
                }
                if handle.mark.get() != mark_of(leaf) {
                    let expected = format!("{:?}", mark_of(leaf));
                    self.wrong(name(), "dead mark of a leaf", expected, format!("{:?}", handle.mark.get()));
                }
                self.report.entries += u64::from(leaf.stats().entries);
                let record = handle.record.lock();
                let (record_oldest, own) = (record.oldest_unwritten, resident.oldest_unwritten);
                let bare = record.image.is_none() && !record.is_dirty();
                drop(record);
                if own < record_oldest {
                    self.wrong(name(), "oldest unwritten version of a leaf", record_oldest, own);
                }
                if bare {
                    self.wrong(name(), "image of a clean leaf", "one", "none");
                }
            }
            LeafState::Empty => {
                let record = handle.record.lock();
                let is_pending = slot.pending.is_some() || record.oldest_pending != base::CommitTs::MAX;
                if record.image.is_some()
                    || record.is_dirty()
                    || is_pending
                    || handle.mark.get() != Some(base::CommitTs::ZERO)
                {
                    drop(record);
                    self.wrong(
                        name(),
                        "EMPTY slot",
                        "no image, nothing unwritten or pending, a mark",
                        "something else",
                    );
                }
            }
            LeafState::Cold | LeafState::Parked(_) | LeafState::Loading(_) => {
                if handle.record.lock().is_dirty() {
                    self.wrong(name(), "unwritten versions of a cold leaf", "none", "some");
                }
            }
            LeafState::Obsolete => {}
        }
    }

    /// The image is read whole, whatever part of it the handle covers today.
    fn image_of_leaf(
        &mut self,
        handle: &LeafHandle,
        image: &Image,
        high: Option<&Fence>,
        resident: bool,
    ) -> Result<()> {
        let leaf = match self.core.read_leaf_image(image.address(), &[], None) {
            Ok(leaf) => leaf,
            Err(fault) => return self.note(fault, || range(&handle.low, high)),
        };
        if let Some((what, expected, found)) = disagreement(&leaf, image) {
            let (file, at) = (self.core.env.space.file_name(), image.address().offset);
            let range = range(&handle.low, high);
            self.report.add(|| Corruption::of_index(self.core.env.id, range, what, expected, found).at(file, at));
        }
        self.beside(&leaf, image, &handle.low, high)?;
        if !resident {
            self.report.entries += u64::from(leaf.stats().entries);
        }
        if handle.record.lock().composed.iter().flat_map(blocks).any(|block| !block.is_published()) {
            self.wrong(range(&handle.low, high), "blocks that the parent's image names", "published", "not published");
        }
        Ok(())
    }

    /// Every large value can be read, and is as long as the leaf says.
    fn beside(&mut self, leaf: &Leaf, image: &Image, low: &Fence, high: Option<&Fence>) -> Result<()> {
        if !image.has_blocks_beside {
            return Ok(());
        }
        let mut values = Vec::new();
        leaf.for_each_stored_value(&mut |blocks, bytes| values.push((blocks.to_vec(), bytes)));
        for (blocks, bytes) in values {
            self.report.nodes += blocks.len() as u64;
            if let Err(fault) = self.core.read_beside(&blocks, bytes) {
                self.note(fault, || range(low, high))?;
            }
        }
        Ok(())
    }
}

/// How a whole image differs from what its descriptor says: what, expected, found.
fn disagreement(leaf: &Leaf, image: &Image) -> Option<(&'static str, String, String)> {
    if let Err(what) = leaf.check() {
        return Some(("leaf", "a sound one".to_owned(), what));
    }
    if image.is_exact
        && let Some(key) = stray_key(leaf, image)
    {
        return Some(("fences of a leaf", format!("keys in {}", range(&image.low, image.high.as_ref())), key));
    }
    let stats = leaf.stats();
    let (said, found) = ((image.entries, image.live), (u64::from(stats.entries), u64::from(stats.live)));
    if said != found {
        return Some(("counts of a leaf", show(said), show(found)));
    }
    // The mark may be later than need be: of a tombstone that was collected.
    let mark = mark_of(leaf);
    if image.dead_from.is_some() != mark.is_some() || image.dead_from < mark {
        return Some(("dead mark of a leaf", format!("{mark:?}"), format!("{:?}", image.dead_from)));
    }
    if image.max_ts != stats.max_ts {
        return Some(("highest timestamp of a leaf", stats.max_ts.to_string(), image.max_ts.to_string()));
    }
    None
}

/// A key of the image outside the range that it was written for.
fn stray_key(leaf: &Leaf, image: &Image) -> Option<String> {
    let last = leaf.slots().checked_sub(1)?;
    let (first, last) = (leaf.key_at(0).to_vec(), leaf.key_at(last).to_vec());
    if *first < *image.low {
        return Some(printable(&first));
    }
    image.high.as_ref().is_some_and(|high| *last >= **high).then(|| printable(&last))
}
