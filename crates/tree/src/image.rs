//! A node as it is on disk.
//!
//! An [`Image`] owns its blocks: the node's own, and those of large values and version chains beside it. Handles
//! share images, they never copy them: after a split both halves name the old image, each trimmed to its own
//! fences [A9], and the blocks are freed when the last of them lets go.
//!
//! Invariants:
//! 1. `blocks beside` is known (`beside` is set) if the image was written in this life of the process, or was
//!    loaded once; it stays unknown only for an image that a parent's image names and nobody has read.
//! 2. An image names blocks beside it only if `has_blocks_beside`.
//! 3. `[low, high)` are the fences of the node when it was encoded, or those of the slot it was found in. A handle
//!    that names the image covers a part of it.
//! 4. `is_exact` ⇒ the node had no key outside `[low, high)`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use base::{CommitTs, Lsn};
use store::{Block, BlockRef, Space};

use crate::node::{NodeDescriptor, NodeKind};

/// A fence: shared between neighbours.
pub(crate) type Fence = Arc<[u8]>;

/// A written node.
#[derive(Debug)]
pub(crate) struct Image {
    pub kind: NodeKind,
    pub block: Arc<Block>,
    /// Blocks of large values and chains, once known.
    pub beside: OnceLock<Vec<Arc<Block>>>,
    pub has_blocks_beside: bool,
    /// Slots of parents' images that name it.
    pub named: AtomicU32,
    pub low: Fence,
    pub high: Option<Fence>,
    pub is_exact: bool,
    pub entries: u64,
    pub live: u64,
    pub dead_from: Option<CommitTs>,
    pub log_need: CommitTs,
    pub max_ts: CommitTs,
    pub write_lsn: Lsn,
}

impl Image {
    /// The image that `descriptor`, found in a slot with these fences, names. Called once for each slot: a block
    /// is adopted by one owner.
    pub fn adopt(space: &Space, descriptor: &NodeDescriptor, low: Fence, high: Option<Fence>) -> Self {
        let beside = OnceLock::new();
        if !descriptor.has_overflow {
            let _ = beside.set(Vec::new());
        }
        Self {
            kind: descriptor.kind,
            block: space.adopt(descriptor.block),
            beside,
            has_blocks_beside: descriptor.has_overflow,
            named: AtomicU32::new(1),
            low,
            high,
            is_exact: descriptor.is_exact,
            entries: descriptor.entries,
            live: descriptor.live,
            dead_from: descriptor.dead_from,
            log_need: descriptor.log_need,
            max_ts: descriptor.max_ts,
            write_lsn: descriptor.write_lsn,
        }
    }

    /// What a parent's image says about it, in a slot with these fences.
    pub fn descriptor(&self, low: &[u8], high: Option<&[u8]>) -> NodeDescriptor {
        NodeDescriptor {
            kind: self.kind,
            block: self.address(),
            entries: self.entries,
            live: self.live,
            dead_from: self.dead_from,
            log_need: self.log_need,
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

    /// A parent's image names it from now on. True if none did before.
    pub fn publish(&self) -> bool {
        for block in self.blocks() {
            block.publish();
        }
        // Relaxed here and in `unpublish`: counted under the structure latch or by the one checkpoint.
        self.named.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// A parent's image that named it was replaced. True if none does any more.
    pub fn unpublish(&self) -> bool {
        for block in self.blocks() {
            block.unpublish();
        }
        self.named.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// True if `[low, high)` is the whole range that the image was written for.
    pub fn is_whole(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        *self.low == *low && self.high.as_deref() == high
    }

    /// Its blocks, as far as they are known.
    pub fn blocks(&self) -> impl Iterator<Item = &Arc<Block>> {
        std::iter::once(&self.block).chain(self.beside.get().into_iter().flatten())
    }

    /// Bytes on disk.
    pub fn stored_bytes(&self) -> u64 {
        self.blocks().map(|b| u64::from(b.at().stored_bytes)).sum()
    }
}
