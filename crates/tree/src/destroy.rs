//! Taking a tree apart: every block gets an owner, then all owners let go.

use std::sync::Arc;

use base::{CommitTs, Fault, Result};
use store::epoch;

use crate::descent::{Seek, Stop};
use crate::drain::Moving;
use crate::handle::{Child, InnerHandle, InnerState, LeafHandle, LeafState};
use crate::image::{Fence, Image};
use crate::node::Inner;
use crate::tree::Core;

impl Core {
    /// Frees every block: everything is walked once, so that all blocks have an owner, then let go. The tree is
    /// empty afterwards.
    ///
    /// What cannot be read, for its bytes or for the disk, is walked around: the blocks it names stay, and the first such
    /// fault is returned in the end. After any other fault nothing was freed.
    pub(crate) fn destroy(&self) -> Result<()> {
        // A drain under way holds blocks.
        self.upkeep.lock().moving = Moving::default();
        let mut damage = None;
        let mut key = Vec::new();
        loop {
            let next = match self.own_at(&key) {
                Ok(next) => next,
                Err((fault @ (Fault::Corrupt(_) | Fault::Io { .. }), high)) => {
                    damage.get_or_insert(fault);
                    high
                }
                Err((fault, _)) => return Err(fault),
            };
            match next {
                Some(high) => key = high.to_vec(),
                None => break,
            }
        }
        let latched = self.latch_structure();
        let guard = epoch::pin();
        self.let_go(&self.root);
        *self.root_image.lock() = None;
        let empty = Arc::new(LeafHandle::empty(self.me.clone(), Fence::from([]), None));
        self.replace(&latched, &self.root, 1, Inner::single(Child::Leaf(empty)));
        drop(guard);
        self.root.note_change();
        damage.map_or(Ok(()), Err)
    }

    /// Gives the blocks of the leaf of `key` an owner. Returns where the next leaf begins; with a fault, where what cannot
    /// be read ends.
    fn own_at(&self, key: &[u8]) -> Result<Option<Fence>, (Fault, Option<Fence>)> {
        loop {
            let stop = {
                let guard = epoch::pin();
                self.seek(&guard, Seek::At(key)).map(|place| place.leaf.clone())
            };
            let leaf = match stop {
                Ok(leaf) => leaf,
                Err(Stop::Cold(cold)) => {
                    self.load_inner(&cold).map_err(|fault| (fault, cold.high.clone()))?;
                    continue;
                }
                Err(Stop::Obsolete) => continue,
            };
            let high = leaf.latch.read().high.clone();
            let unknown = |image: &Arc<Image>| image.block.beside().is_none();
            let image = leaf.record.lock().image.clone().filter(unknown);
            // The image alone: messages name no blocks, and nobody needs them any more.
            if let Some(image) = image {
                let read = self.read_leaf_image(image.address(), &leaf.low, high.as_ref());
                self.own_beside(&read.map_err(|fault| (fault, high.clone()))?, &image);
            }
            return Ok(high);
        }
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
        let retired = record.retired.iter().map(|retired| &retired.block);
        let segments = record.composed_segments.iter().map(|segment| &segment.block);
        record.composed.iter().chain(retired).chain(segments).for_each(|block| self.counters.unpublish(block));
    }

    fn let_go_leaf(&self, leaf: &LeafHandle) {
        // Nobody uses the index any more: the latch is free.
        let (state, pending) = {
            let mut slot = leaf.latch.write();
            (std::mem::replace(&mut slot.state, LeafState::Obsolete), slot.pending.take())
        };
        let (image, composed) = {
            let mut record = leaf.record.lock();
            if record.oldest_unwritten != CommitTs::MAX {
                self.env.cache.note_clean(self.page_bytes());
            }
            record.oldest_unwritten = CommitTs::MAX;
            (record.image.take(), record.composed.take())
        };
        composed.iter().for_each(|block| self.counters.unpublish(block));
        if matches!(state, LeafState::Resident(_) | LeafState::Parked(_)) {
            self.counters.add_resident(-1);
        }
        drop((state, pending, image));
    }
}
