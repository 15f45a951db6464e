//! What messages in the buffer of an inner node add to the counts of the leaves below, without being read.
//!
//! Of a block it is known how many messages it has, how many of them are deletes, and its first and last key. They are taken for spread
//! evenly over the leaves that these reach; a leaf whose image is newer than the block has its part of them. Each put counts as a
//! key that comes, each delete as one that goes: about right where keys are new, as in a secondary index; a row that is written again
//! counts twice until its leaf gets it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use base::CommitTs;

use crate::handle::{Child, InnerHandle};
use crate::node::{ChildDescriptor, Inner, InnerImage, SegmentDescriptor};
use crate::segment::SegmentBlock;

/// Entries and live keys below a node.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    pub entries: i128,
    /// Below 0 where messages delete what is not there.
    pub live: i128,
}

impl Counts {
    /// Those of the images that the node's image names, and what the messages in its buffer add, about.
    pub fn below(image: &InnerImage) -> Self {
        // Wide: what was read from disk may be anything.
        let mut counts = Self { entries: 0, live: 0 };
        for child in image.node.children() {
            let ChildDescriptor::Node(node) = child else { continue };
            counts.entries += i128::from(node.entries);
            counts.live += i128::from(node.live);
        }
        for block in &image.segments {
            let children = &image.node.children()[reached(&image.node, &block.first, &block.last)];
            let lacks = |child: &&ChildDescriptor| match child {
                ChildDescriptor::Node(leaf) => leaf.write_lsn.0 < block.newest.0,
                // No message on disk counts for it.
                ChildDescriptor::Empty { .. } => false,
            };
            let lack = children.iter().filter(lacks).count() as i128;
            let part = |messages: i128| messages.saturating_mul(lack) / children.len() as i128;
            counts.entries += part(block.count.into());
            counts.live += part(surplus(block.count, block.deletes));
        }
        counts
    }

    /// As a description of the node has them: entries, and live keys.
    pub fn said(self) -> (u64, u64) {
        let entries = self.entries.clamp(0, i128::from(u64::MAX));
        (entries as u64, self.live.clamp(0, entries) as u64)
    }
}

/// Live keys that the buffer adds to the `i`th child, a leaf whose image is complete `through` there.
pub(crate) fn added_keys(handle: &InnerHandle, keys: &Inner<Child>, i: usize, through: CommitTs) -> f64 {
    let (low, high) = keys.fence_of(i);
    let record = handle.record.lock();
    let lacking =
        record.segments.iter().filter(|block| block.newest > through && block.overlaps(&low, high.as_deref()));
    let part = |block: &Arc<SegmentBlock>| {
        // One that reaches beyond the node has messages for leaves of the next one, too.
        let leaves = reached(keys, &block.first, &block.last).count().max(block.leaves);
        surplus(block.count, block.deletes) as f64 / leaves as f64
    };
    lacking.map(part).sum()
}

/// How many children the block reaches.
pub(crate) fn leaves_reached(keys: &Inner<Child>, block: &SegmentDescriptor) -> usize {
    reached(keys, &block.first, &block.last).count()
}

/// The children among which a block's messages lie.
fn reached<C: Clone>(keys: &Inner<C>, first: &[u8], last: &[u8]) -> RangeInclusive<usize> {
    let first = keys.child_for(first);
    first..=keys.child_for(last).max(first)
}

fn surplus(count: u64, deletes: u64) -> i128 {
    i128::from(count) - 2 * i128::from(deletes)
}
