//! A written block as an owned thing.
//!
//! Life of a block: written ([`Space::write`](crate::Space::write)) → named by an `Arc<Block>` → published by each
//! parent image of the checkpoint in progress that names it → unpublished when such an image is replaced → last
//! `Arc` dropped: freed. Reading needs the `Arc` (or a pin of the space), so a block in use is never freed: this
//! stands for the reader epochs of rule A20.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use base::bytes::Reader;

use crate::budget::{Class, allocated};
use crate::space::Space;

/// Address and checksum of a block, as a parent stores it. 16 bytes on disk:
/// offset u64 | stored length u32 | CRC32C u32, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockRef {
    /// Byte offset in the data file.
    pub offset: u64,
    /// Bytes stored there, header included.
    pub stored_bytes: u32,
    /// CRC32C over header, payload and address; also in the block itself, so a misdirected or stale block
    /// is told from the right one.
    pub crc: u32,
}

impl BlockRef {
    /// Bytes of a stored reference.
    pub const BYTES: usize = 16;

    /// Appends the reference.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.stored_bytes.to_le_bytes());
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    /// Reads a reference. Any 16 bytes are one; the space checks the address when it reads the block.
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self { offset: r.u64()?, stored_bytes: r.u32()?, crc: r.u32()? })
    }

    /// One past the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.stored_bytes))
    }
}

/// A block that somebody names. Dropping the last `Arc<Block>` frees the block; the space becomes reusable
/// once a manifest is durable that names nothing in its extent (rule A20), at once if that is so already.
///
/// `published` counts the parents' images (as of the checkpoint in progress) that name the block; the space
/// manager's saved live-byte counts are the sum over blocks with `published > 0`, so that the counts in a
/// manifest are exactly what is reachable from it, and blocks written after the last durable manifest are
/// free at open (P9).
///
/// A node's block holds those of the large values and version chains beside the node, once they are known.
#[derive(Debug)]
pub struct Block {
    space: Space,
    at: BlockRef,
    published: AtomicU32,
    /// False once a lot has taken it over.
    is_owner: bool,
    /// A pointer and no more: almost every block has nothing beside it, and there are as many blocks as leaves.
    #[allow(clippy::box_collection, reason = "a pointer of eight bytes, not of sixteen")]
    beside: OnceLock<Option<Box<Vec<Arc<Block>>>>>,
}

/// Memory of a block, in bytes.
const BLOCK_BYTES: u64 = allocated(2 * size_of::<usize>() + size_of::<Block>());

impl Block {
    /// A block that `published` images name.
    pub(crate) fn new(space: &Space, at: BlockRef, published: u32) -> Arc<Self> {
        space.hold(Class::Inner, BLOCK_BYTES);
        let published = AtomicU32::new(published);
        Arc::new(Self { space: space.clone(), at, published, is_owner: true, beside: OnceLock::new() })
    }

    /// The blocks that it holds, if it has been said which.
    #[must_use]
    pub fn beside(&self) -> Option<&[Arc<Block>]> {
        self.beside.get().map(|blocks| blocks.as_deref().map_or(&[][..], Vec::as_slice))
    }

    /// Says which blocks it holds. Once: later calls change nothing.
    pub fn set_beside(&self, blocks: Vec<Arc<Block>>) {
        let _ = self.beside.set((!blocks.is_empty()).then(|| Box::new(blocks)));
    }

    /// Where it is.
    #[must_use]
    pub fn at(&self) -> BlockRef {
        self.at
    }

    /// Bytes it takes on disk.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        u64::from(self.at.stored_bytes)
    }

    /// The space it is in.
    #[must_use]
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// A parent image that will be part of the next manifest names the block. Counts: a block may be named by
    /// two images at a time. True if none did before.
    pub fn publish(&self) -> bool {
        // AcqRel, with `unpublish`: the one that turns the count from or to 0 tells the space, and the space's
        // mutex orders the telling. A parent publishes and unpublishes its own mentions one after the other.
        let first = self.published.fetch_add(1, Ordering::AcqRel) == 0;
        if first {
            self.space.note_published(self.at);
        }
        first
    }

    /// A parent image that named the block is no longer part of the next manifest. True if none does any more.
    ///
    /// # Panics
    /// If no image names it.
    pub fn unpublish(&self) -> bool {
        let before = self.published.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a block is unpublished as often as it was published");
        if before == 1 {
            self.space.note_unpublished(self.at);
        }
        before == 1
    }

    /// How many images of the next manifest name it.
    pub(crate) fn published(&self) -> u32 {
        self.published.load(Ordering::Acquire)
    }

    /// Somebody else frees it from now on.
    pub(crate) fn disown(mut self) -> BlockRef {
        self.is_owner = false;
        self.at
    }

    /// True if an image of the next manifest names it.
    #[must_use]
    pub fn is_published(&self) -> bool {
        self.published.load(Ordering::Acquire) > 0
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.is_owner {
            self.space.free(self.at, *self.published.get_mut() > 0);
        }
        self.space.release(Class::Inner, BLOCK_BYTES);
    }
}
