//! What the last checkpoint's images reach, read as a reopen would read it: every block that a slot names is shown to the
//! caller, who knows whether somebody else names it too; and each inner image agrees with what its parent says of it. Messages
//! are read by `verify`.
//!
//! A block named twice would have two owners after a reopen: the first to let go frees it under the other.
//!
//! No checkpoint runs meanwhile; so no image of the last one is replaced, and its blocks stay.

use base::bytes::printable;
use base::{CommitTs, Corruption, Fault, Result};
use index::VisitBlock;
use store::BlockRef;

use crate::buffered::Counts;
use crate::descent::later;
use crate::image::Fence;
use crate::load::range;
use crate::node::{ChildDescriptor, Inner, InnerImage, NodeDescriptor, NodeKind, SegmentDescriptor};
use crate::tree::Core;

/// A walk over images.
struct Reach<'a, 'b> {
    core: &'a Core,
    visit: &'a mut VisitBlock<'b>,
    problems: Vec<Corruption>,
}

/// A slot: what it names and its fences.
struct Slot<'a> {
    says: NodeDescriptor,
    low: &'a [u8],
    high: Option<Fence>,
}

impl Slot<'_> {
    fn range(&self) -> String {
        range(self.low, self.high.as_ref())
    }
}

impl Core {
    /// Shows every block that the images of the last checkpoint name, and returns what is wrong with them.
    pub(crate) fn reach(&self, visit: &mut VisitBlock<'_>) -> Result<Vec<Corruption>> {
        let _no_checkpoint = self.checkpointing.lock();
        let Some(root) = self.root_image.lock().clone() else { return Ok(Vec::new()) };
        let mut reach = Reach { core: self, visit, problems: Vec::new() };
        let says = root.descriptor(&root.low, root.high.as_deref());
        (reach.visit)(says.block, &|| "the root".to_owned());
        reach.inner(&Slot { says, low: &root.low, high: root.high.clone() }, None)?;
        Ok(reach.problems)
    }
}

impl Reach<'_, '_> {
    /// Corruption is a problem, everything else ends the walk.
    fn note(&mut self, fault: Fault, slot: &Slot<'_>) -> Result<()> {
        match fault.in_index(self.core.env.id, || slot.range()) {
            Fault::Corrupt(corruption) => {
                self.problems.push(*corruption);
                Ok(())
            }
            other => Err(other),
        }
    }

    fn inner(&mut self, slot: &Slot<'_>, level: Option<u8>) -> Result<()> {
        let at = slot.says.block;
        let read = self.core.read_inner_image(at, slot.low, slot.high.as_ref(), slot.says.is_exact);
        // Once more, untrimmed: the counts are those of all that is in it.
        let both = read.and_then(|image| Ok((image, self.core.read_inner_image(at, &[], None, true)?)));
        let (image, whole) = match both {
            Ok(both) => both,
            Err(fault) => return self.note(fault, slot),
        };
        if let Some((what, expected, found)) = disagreement(slot, level, &whole) {
            let place = self.core.env.space.file_name();
            let problem = Corruption::of_index(self.core.env.id, slot.range(), what, expected, found);
            self.problems.push(problem.at(place, at.offset));
        }
        for segment in &image.segments {
            let name = || format!("messages in {}", segment.keys());
            (self.visit)(segment.block, &name);
        }
        for (i, child) in image.node.children().iter().enumerate() {
            let ChildDescriptor::Node(says) = child else { continue };
            let (low, high) = image.node.fence_of(i);
            let slot = Slot { says: *says, low: &low, high: high.map(Fence::from) };
            (self.visit)(says.block, &|| format!("{:?} {}", says.kind, slot.range()));
            match says.kind {
                NodeKind::Inner => self.inner(&slot, Some(level.unwrap_or(image.level).saturating_sub(1)))?,
                NodeKind::Leaf if says.has_overflow => self.leaf(&slot)?,
                NodeKind::Leaf => {}
            }
        }
        Ok(())
    }

    fn leaf(&mut self, slot: &Slot<'_>) -> Result<()> {
        let leaf = match self.core.read_leaf_image(slot.says.block, slot.low, slot.high.as_ref()) {
            Ok(leaf) => leaf,
            Err(fault) => return self.note(fault, slot),
        };
        let mut refs: Vec<BlockRef> = Vec::new();
        leaf.for_each_block(&mut |at| refs.push(at));
        refs.into_iter().for_each(|at| (self.visit)(at, &|| format!("a value of leaf {}", slot.range())));
        Ok(())
    }
}

/// How an inner image differs from what its parent says of it: what, expected, found.
fn disagreement(slot: &Slot<'_>, level: Option<u8>, image: &InnerImage) -> Option<(&'static str, String, String)> {
    if let Some(level) = level.filter(|level| *level != image.level) {
        return Some(("level of an inner node", level.to_string(), image.level.to_string()));
    }
    if slot.says.is_exact
        && let Some(separator) = stray_separator(slot, &image.node)
    {
        return Some(("fences of an inner node", format!("separators within {}", slot.range()), separator));
    }
    if slot.says.is_exact
        && let Some(keys) = stray_segment(slot, image)
    {
        return Some(("keys of messages", format!("within {}", slot.range()), keys));
    }
    let (said, mut found) = (Sums::said(&slot.says), Sums::of(image.node.children()));
    // What is buffered may be alive.
    found.dead_from = found.dead_from.filter(|_| image.segments.is_empty());
    // Older images leave out what is buffered.
    let with_messages = Counts::below(image).said();
    if said.counts != with_messages && said.counts != found.counts {
        return Some(("counts of an inner node", show(said.counts), show(with_messages)));
    }
    if said.dead_from != found.dead_from {
        return Some(("dead mark of an inner node", format!("{:?}", found.dead_from), format!("{:?}", said.dead_from)));
    }
    if said.max_ts != found.max_ts {
        return Some(("highest timestamp of an inner node", found.max_ts.to_string(), said.max_ts.to_string()));
    }
    None
}

fn stray_separator(slot: &Slot<'_>, node: &Inner<ChildDescriptor>) -> Option<String> {
    let within = |key: &[u8]| slot.low < key && slot.high.as_deref().is_none_or(|high| key < high);
    (1..node.len()).map(|i| node.fence_of(i).0).find(|key| !within(key)).map(|key| printable(&key))
}

fn stray_segment(slot: &Slot<'_>, image: &InnerImage) -> Option<String> {
    let high = slot.high.as_deref();
    let strays = |s: &&SegmentDescriptor| *s.first < *slot.low || high.is_some_and(|high| *s.last >= *high);
    image.segments.iter().find(strays).map(SegmentDescriptor::keys)
}

/// Entries and live keys.
pub(crate) fn show((entries, live): (u64, u64)) -> String {
    format!("{entries} entries, {live} live")
}

/// What children add up to.
struct Sums {
    counts: (u64, u64),
    dead_from: Option<CommitTs>,
    max_ts: CommitTs,
}

impl Sums {
    fn said(node: &NodeDescriptor) -> Self {
        Self { counts: (node.entries, node.live), dead_from: node.dead_from, max_ts: node.max_ts }
    }

    fn of(children: &[ChildDescriptor]) -> Self {
        let mut sums = Self { counts: (0, 0), dead_from: Some(CommitTs::ZERO), max_ts: CommitTs::ZERO };
        for child in children {
            let ChildDescriptor::Node(node) = child else { continue };
            // Saturating: what is read here may be anything.
            sums.counts.0 = sums.counts.0.saturating_add(node.entries);
            sums.counts.1 = sums.counts.1.saturating_add(node.live);
            sums.dead_from = sums.dead_from.and_then(|all| later(Some(all), node.dead_from));
            sums.max_ts = sums.max_ts.max(node.max_ts);
        }
        sums
    }
}
