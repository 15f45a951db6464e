//! Checks everything that can be checked, reading all blocks; and taking a tree apart.
//!
//! The walk goes from leaf to leaf by key, as a reader does, so it may run beside everything else. For each leaf: its
//! range begins where the last one ended; what is in memory is checked against itself; its image is read and checked,
//! and agrees with what its descriptor says; its mark says no more than its content. For each inner node passed: its
//! children cover its range in order; its image can be read; marks are not above a child that has none.
//!
//! Leaves that are not in memory are read beside the cache, so that a verify does not throw out what is in use.

use std::sync::Arc;

use base::bytes::printable;
use base::{CommitTs, Fault, Result};
use index::VerifyReport;
use store::epoch;

use crate::dead::mark_of;
use crate::descent::Seek;
use crate::handle::{Child, InnerHandle, InnerState, LeafHandle, LeafSlot, LeafState};
use crate::image::{Fence, Image};
use crate::load::range;
use crate::node::{Inner, Leaf};
use crate::tree::Core;

const PROBLEMS_MAX: usize = 100;
/// A put that climbs is waited for so many times.
const LOOKS_MAX: usize = 100_000;

/// A report in the making.
struct Check<'a> {
    core: &'a Core,
    report: VerifyReport,
    /// Inner nodes of the last path, top down: those are not checked again.
    passed: Vec<*const InnerHandle>,
}

impl Core {
    pub(crate) fn verify(&self) -> Result<VerifyReport> {
        let mut check = Check { core: self, report: VerifyReport::default(), passed: Vec::new() };
        for problem in self.verify_reach()? {
            check.problem(|| problem);
        }
        let mut key = Vec::new();
        loop {
            check.inner_nodes(&key)?;
            match check.leaf(&key)? {
                Some(high) => key = high.to_vec(),
                None => return Ok(check.report),
            }
        }
    }

    /// Frees every block: everything is walked once, so that all blocks have an owner, then let go. The tree is
    /// empty afterwards.
    pub(crate) fn destroy(&self) -> Result<()> {
        let mut key = Vec::new();
        loop {
            self.load_path(&key)?;
            let unknown = |image: &Arc<Image>| image.beside.get().is_none();
            let leaf = {
                let guard = epoch::pin();
                self.seek(&guard, Seek::At(&key)).ok().map(|place| place.leaf.clone())
            };
            let Some(leaf) = leaf else { continue };
            if leaf.record.lock().image.as_ref().is_some_and(unknown) {
                self.load_leaf(&leaf, None)?;
            }
            match leaf.latch.read().high.clone() {
                Some(high) => key = high.to_vec(),
                None => break,
            }
        }
        let latched = self.latch_structure();
        let guard = epoch::pin();
        self.let_go(&self.root);
        let empty = Arc::new(LeafHandle::empty(self.me.clone(), Fence::from([]), None));
        self.replace(&latched, &self.root, 1, Inner::single(Child::Leaf(empty)));
        drop(guard);
        self.root.note_change();
        Ok(())
    }

    /// Nothing at or below `handle` names a block any more.
    fn let_go(&self, handle: &InnerHandle) {
        let guard = epoch::pin();
        if let InnerState::Loaded(node) = handle.cell.load(&guard) {
            for child in node.keys.children() {
                match child {
                    Child::Inner(inner) => self.let_go(inner),
                    Child::Leaf(leaf) => self.let_go_leaf(leaf),
                }
            }
        }
        let record = std::mem::take(&mut *handle.record.lock());
        record.composed.iter().chain(&record.retired).for_each(|image| self.unpublish_image(image));
    }

    fn let_go_leaf(&self, leaf: &LeafHandle) {
        // Nobody uses the index any more: the latch is free.
        let state = std::mem::replace(&mut leaf.latch.write().state, LeafState::Obsolete);
        let (image, composed) = {
            let mut record = leaf.record.lock();
            if record.oldest_unwritten != CommitTs::MAX {
                self.env.cache.note_clean(self.page_bytes());
            }
            record.oldest_unwritten = CommitTs::MAX;
            (record.image.take(), record.composed.take())
        };
        composed.iter().for_each(|image| self.unpublish_image(image));
        if matches!(state, LeafState::Resident(_)) {
            self.counters.add_resident(-1);
        }
        drop((state, image));
    }
}

impl Check<'_> {
    fn problem(&mut self, what: impl FnOnce() -> String) {
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(what());
        }
    }

    /// A corruption is a problem, any other fault ends the walk.
    fn note(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Corrupt(_) => {
                self.problem(|| fault.to_string());
                Ok(())
            }
            other => Err(other),
        }
    }

    fn inner_nodes(&mut self, key: &[u8]) -> Result<()> {
        let path = self.core.load_path(key)?;
        for (depth, handle) in path.iter().enumerate() {
            if self.passed.get(depth) == Some(&Arc::as_ptr(handle)) {
                continue;
            }
            self.report.nodes += 1;
            self.inner_node(handle)?;
        }
        self.passed = path.iter().map(Arc::as_ptr).collect();
        Ok(())
    }

    fn inner_node(&mut self, handle: &InnerHandle) -> Result<()> {
        let image = handle.record.lock().image.clone();
        if let Some(image) = image
            && let Err(fault) = self.core.read_inner_image(image.address(), &image.low, image.high.as_ref())
        {
            self.note(fault)?;
        }
        let guard = epoch::pin();
        let InnerState::Loaded(node) = handle.cell.load(&guard) else { return Ok(()) };
        let mut low = node.keys.lo().to_vec();
        for i in 0..node.keys.len() {
            let (child_low, child_high) = node.keys.fence_of(i);
            if child_low != low {
                self.problem(|| format!("a child begins at {}, expected {}", printable(&child_low), printable(&low)));
            }
            low = child_high.unwrap_or_default();
        }
        if low != node.keys.hi().unwrap_or_default() {
            self.problem(|| format!("the last child ends at {}", printable(&low)));
        }
        drop(guard);
        if !self.is_marked_rightly(handle) {
            self.problem(|| format!("an inner node is marked dead over a live child, below {}", printable(&low)));
        }
        Ok(())
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
                let Ok(place) = core.seek(&guard, Seek::At(key)) else { continue };
                let slot = place.leaf.latch.read();
                if !place.is_for(Seek::At(key), &slot, &guard) {
                    None
                } else {
                    self.report.nodes += 1;
                    self.leaf_in_memory(place.leaf, &slot, key);
                    let image = place.leaf.record.lock().image.clone();
                    Some((place.leaf.clone(), slot.high.clone(), image, slot.resident().is_some()))
                }
            };
            let Some((leaf, high, image, resident)) = found else {
                vfs::thread::spin();
                continue;
            };
            if let Some(image) = image {
                self.image_of_leaf(&leaf, &image, resident)?;
            }
            return Ok(high);
        }
    }

    fn leaf_in_memory(&mut self, handle: &LeafHandle, slot: &LeafSlot, expected_low: &[u8]) {
        // It may begin before: then it absorbed the last one meanwhile.
        if *handle.low > *expected_low {
            self.problem(|| format!("a leaf begins at {}, not {}", printable(&handle.low), printable(expected_low)));
        }
        let name = || range(&handle.low, slot.high.as_ref());
        match &slot.state {
            LeafState::Resident(resident) => {
                let leaf = &resident.leaf;
                if let Err(what) = leaf.check() {
                    self.problem(|| format!("leaf {}: {what}", name()));
                }
                if *leaf.lo() != *handle.low || leaf.hi() != slot.high.as_deref() {
                    self.problem(|| format!("leaf {} has other fences than its handle", name()));
                }
                if handle.mark.get() != mark_of(leaf) {
                    self.problem(|| format!("leaf {} is marked {:?}", name(), handle.mark.get()));
                }
                self.report.entries += u64::from(leaf.stats().entries);
                let record = handle.record.lock();
                let (record_oldest, own) = (record.oldest_unwritten, resident.oldest_unwritten);
                let bare = record.image.is_none() && !record.is_dirty();
                drop(record);
                if own < record_oldest {
                    self.problem(|| format!("leaf {} lacks {own} on disk, its record says {record_oldest}", name()));
                }
                if bare {
                    self.problem(|| format!("leaf {} is clean without an image", name()));
                }
            }
            LeafState::Empty => {
                let record = handle.record.lock();
                if record.image.is_some() || record.is_dirty() || handle.mark.get() != Some(CommitTs::ZERO) {
                    drop(record);
                    self.problem(|| format!("EMPTY slot {} has an image, unwritten changes or no mark", name()));
                }
            }
            LeafState::Cold | LeafState::Loading(_) => {
                if handle.record.lock().is_dirty() {
                    self.problem(|| format!("leaf {} is dirty and not in memory", name()));
                }
            }
            LeafState::Obsolete => {}
        }
    }

    /// The image is read over its own range: a handle may cover a part of it.
    fn image_of_leaf(&mut self, handle: &LeafHandle, image: &Image, resident: bool) -> Result<()> {
        let leaf = match self.core.read_leaf_image(image.address(), &image.low, image.high.as_ref()) {
            Ok(leaf) => leaf,
            Err(fault) => return self.note(fault),
        };
        let name = || range(&image.low, image.high.as_ref());
        if let Err(what) = leaf.check() {
            self.problem(|| format!("image of leaf {}: {what}", name()));
        }
        let stats = leaf.stats();
        // After a reopen a slot may cover a part of what its image was written for: then it has less.
        let more = u64::from(stats.entries) > image.entries || u64::from(stats.live) > image.live;
        let undead = image.dead_from.is_some() && mark_of(&leaf).is_none_or(|mark| Some(mark) > image.dead_from);
        if more || undead {
            self.problem(|| {
                let found = format!("{} entries, {} live, mark {:?}", stats.entries, stats.live, mark_of(&leaf));
                let said = format!("{}, {}, {:?}", image.entries, image.live, image.dead_from);
                format!("image of leaf {} has {found}; its descriptor says {said}", name())
            });
        }
        self.beside(&leaf, image)?;
        if !resident {
            self.report.entries += stats.entries as u64;
        }
        if handle.record.lock().composed.iter().flat_map(|c| c.blocks()).any(|block| !block.is_published()) {
            self.problem(|| format!("the parent's image names blocks of leaf {} that are not published", name()));
        }
        Ok(())
    }

    /// Every block of a large value can be read.
    fn beside(&mut self, leaf: &Leaf, image: &Image) -> Result<()> {
        if !image.has_blocks_beside {
            return Ok(());
        }
        let mut refs = Vec::new();
        leaf.for_each_block(&mut |at| refs.push(at));
        let mut bytes = Vec::new();
        for at in refs {
            self.report.nodes += 1;
            let read = self.core.env.space.read(at, store::BlockKind::Overflow, self.core.env.id, &mut bytes);
            if let Err(fault) = read {
                self.note(fault)?;
            }
        }
        Ok(())
    }
}
