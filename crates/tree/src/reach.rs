//! What the last checkpoint's images reach, read as a reopen would read it: every block is named by one slot, and is one
//! that the space counts as published.
//!
//! A block named twice would have two owners after a reopen: the first to let go frees it under the other.
//!
//! No checkpoint runs meanwhile; so no image of the last one is replaced, and its blocks stay.

use std::collections::BTreeMap;

use base::{Fault, Result};
use store::BlockRef;

use crate::image::Fence;
use crate::load::range;
use crate::node::{ChildDescriptor, NodeKind};
use crate::tree::Core;

/// A walk over images.
struct Reach<'a> {
    core: &'a Core,
    /// By offset: where a block was first named.
    named: BTreeMap<u64, String>,
    problems: Vec<String>,
}

impl Core {
    /// Problems with the images of the last checkpoint.
    pub(crate) fn verify_reach(&self) -> Result<Vec<String>> {
        let _no_checkpoint = self.checkpointing.lock();
        let Some(root) = self.root.record.lock().composed.clone() else { return Ok(Vec::new()) };
        let mut reach = Reach { core: self, named: BTreeMap::new(), problems: Vec::new() };
        reach.name(root.address(), "the root");
        reach.inner(root.address(), &root.low, root.high.as_ref())?;
        Ok(reach.problems)
    }
}

impl Reach<'_> {
    fn name(&mut self, at: BlockRef, who: &str) {
        if let Some(other) = self.named.insert(at.offset, who.to_owned()) {
            self.problems.push(format!("the block at {} is named by {other} and by {who}", at.offset));
        }
    }

    /// Corruption is a problem, everything else ends the walk.
    fn note(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Corrupt(_) => {
                self.problems.push(fault.to_string());
                Ok(())
            }
            other => Err(other),
        }
    }

    fn inner(&mut self, at: BlockRef, low: &[u8], high: Option<&Fence>) -> Result<()> {
        let decoded = match self.core.read_inner_image(at, low, high) {
            Ok(decoded) => decoded,
            Err(fault) => return self.note(fault),
        };
        for (i, child) in decoded.node.children().iter().enumerate() {
            let ChildDescriptor::Node(child) = child else { continue };
            let (low, high) = decoded.node.fence_of(i);
            let high = high.map(Fence::from);
            self.name(child.block, &format!("{:?} {}", child.kind, range(&low, high.as_ref())));
            match child.kind {
                NodeKind::Inner => self.inner(child.block, &low, high.as_ref())?,
                NodeKind::Leaf if child.has_overflow => self.leaf(child.block, &low, high.as_ref())?,
                NodeKind::Leaf => {}
            }
        }
        Ok(())
    }

    fn leaf(&mut self, at: BlockRef, low: &[u8], high: Option<&Fence>) -> Result<()> {
        let leaf = match self.core.read_leaf_image(at, low, high) {
            Ok(leaf) => leaf,
            Err(fault) => return self.note(fault),
        };
        let mut refs = Vec::new();
        leaf.for_each_block(&mut |at| refs.push(at));
        refs.into_iter().for_each(|at| self.name(at, &format!("a value of leaf {}", range(low, high))));
        Ok(())
    }
}
