//! A node as it is on disk.
//!
//! An [`Image`] owns its blocks: the node's own, which holds those of large values and version chains beside it. Handles
//! share images, they never copy them: after a split both halves name the old image, each trimmed to its own
//! fences [A9], and the blocks are freed when the last of them lets go. Of an image that was replaced and that the
//! parent's last image still names, only the block is kept.
//!
//! Invariants:
//! 1. The blocks beside are known ([`Block::beside`]) if the image was written in this life of the process, or was
//!    loaded once; it stays unknown only for an image that a parent's image names and nobody has read.
//! 2. An image names blocks beside it only if `has_blocks_beside`.
//! 3. `[low, high)` are the fences of the node when it was encoded, or those of the slot it was found in. A handle
//!    that names the image covers a part of it.
//! 4. `is_exact` ⇒ the node had no key outside `[low, high)`.

use std::sync::{Arc, OnceLock};

use base::{CommitTs, Lsn};
use store::{Block, BlockRef, Class, Packed, Space, allocated};

use crate::node::{NodeDescriptor, NodeKind, Outline};

/// A fence: shared between neighbours.
pub(crate) type Fence = Arc<[u8]>;

/// A written node.
#[derive(Debug)]
pub(crate) struct Image {
    pub kind: NodeKind,
    pub block: Arc<Block>,
    pub has_blocks_beside: bool,
    pub low: Fence,
    pub high: Option<Fence>,
    pub is_exact: bool,
    pub entries: u64,
    pub live: u64,
    pub dead_from: Option<CommitTs>,
    pub max_ts: CommitTs,
    pub write_lsn: Lsn,
    /// Of a leaf, once it was read for one key.
    pub outline: OnceLock<Box<Outline>>,
}

impl Image {
    /// The image that `descriptor`, found in a slot with these fences, names. Called once for each slot: a block
    /// is adopted by one owner.
    pub fn adopt(space: &Space, descriptor: &NodeDescriptor, low: Fence, high: Option<Fence>) -> Self {
        let block = space.adopt(descriptor.block);
        if !descriptor.has_overflow {
            block.set_beside(Vec::new());
        }
        Self {
            kind: descriptor.kind,
            block,
            has_blocks_beside: descriptor.has_overflow,
            low,
            high,
            is_exact: descriptor.is_exact,
            entries: descriptor.entries,
            live: descriptor.live,
            dead_from: descriptor.dead_from,
            max_ts: descriptor.max_ts,
            write_lsn: descriptor.write_lsn,
            outline: OnceLock::new(),
        }
    }

    /// Keeps in mind where its basements lie, and charges for it.
    pub fn learn(&self, outline: Outline) {
        let bytes = outline.memory_bytes();
        // Of several readers one has it set.
        if self.outline.set(Box::new(outline)).is_ok() {
            self.block.space().hold(Class::Outlines, bytes);
        }
    }

    /// Its stored bytes, if they are in memory.
    pub fn packed(&self) -> Option<Arc<Packed>> {
        self.outline.get()?.packed.share()
    }

    /// Shares it, and charges for it.
    pub fn share(self) -> Arc<Self> {
        self.block.space().hold(Class::Inner, IMAGE_BYTES);
        Arc::new(self)
    }

    /// What a parent's image says about it, in a slot with these fences.
    pub fn descriptor(&self, low: &[u8], high: Option<&[u8]>) -> NodeDescriptor {
        NodeDescriptor {
            kind: self.kind,
            block: self.address(),
            entries: self.entries,
            live: self.live,
            dead_from: self.dead_from,
            // Not read any more: whoever has an image waited for the log when it was written.
            log_need: self.max_ts,
            max_ts: self.max_ts,
            write_lsn: self.write_lsn,
            has_overflow: self.has_blocks_beside,
            is_exact: self.is_exact && self.is_whole(low, high),
        }
    }

    /// Where it is.
    pub fn address(&self) -> BlockRef {
        self.block.at()
    }

    /// Messages at or below this are in the image, or were dropped with what hid them.
    pub fn complete_through(&self) -> CommitTs {
        CommitTs(self.write_lsn.0)
    }

    /// True if `[low, high)` is the whole range that the image was written for.
    pub fn is_whole(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        *self.low == *low && self.high.as_deref() == high
    }
}

/// Memory of a shared image, in bytes.
const IMAGE_BYTES: u64 = allocated(2 * size_of::<usize>() + size_of::<Image>());

impl Drop for Image {
    fn drop(&mut self) {
        self.block.space().release(Class::Inner, IMAGE_BYTES);
        let outline_bytes = self.outline.get().map_or(0, |outline| outline.memory_bytes());
        self.block.space().release(Class::Outlines, outline_bytes);
    }
}

/// A node's block and those beside it, as far as they are known.
pub(crate) fn blocks(block: &Arc<Block>) -> impl Iterator<Item = &Arc<Block>> {
    std::iter::once(block).chain(block.beside().into_iter().flatten())
}
