//! Packed writes.
//!
//! 1. Every payload is compressed.
//! 2. Under the allocator's mutex all blocks of the call get their place, or, if extents are missing, none, and the
//!    file grows first.
//! 3. Outside the mutex the blocks are stamped with their addresses and made [`Block`]s, so that whatever happens
//!    next, dropping them gives their bytes back.
//! 4. They are written as few large aligned writes.
//!
//! Calls of several threads meet only in step 2.

use std::cell::Cell;
use std::sync::Arc;

use base::{Fault, Result};

use super::allocator::{Piece, Wish};
use super::{AllocScope, NewBlock, Space, UpdateGroup};
use crate::codec::HEADER_BYTES;
use crate::{Block, BlockRef, codec};

/// Larger buffers are not kept between writes: a batch of write-back, and a little more.
const KEPT_BUFFER_BYTES: usize = (1 << 20) + (64 << 10);

thread_local! {
    // Memory that is asked for and given back many times a second stays resident in pieces.
    static SEALED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Space {
    /// Compresses, packs and writes the blocks, in order, as few large writes; each call starts on a fresh
    /// 4 KiB boundary, so no sector that was ever synced is written again (rule A19). May use the reserve: whoever
    /// writes blocks is a checkpoint or write-back, and what it writes was admitted before ([`Space::check_room`]).
    ///
    /// # Errors
    /// [`Fault::NoSpace`] with nothing written; any other fault poisons the database.
    pub fn write(&self, blocks: Vec<NewBlock>) -> Result<Vec<Arc<Block>>> {
        self.write_in(AllocScope::Reserve, blocks)
    }

    /// [`Space::write`] for work that may have to leave the reserve alone.
    ///
    /// # Errors
    /// As [`Space::write`].
    pub fn write_in(&self, scope: AllocScope, blocks: Vec<NewBlock>) -> Result<Vec<Arc<Block>>> {
        if blocks.is_empty() {
            return Ok(Vec::new());
        }
        self.0.poison.check()?;
        let mut batches = self.seal_batches(blocks)?;
        let wishes: Vec<Wish<'_>> = batches.iter().map(|b| Wish { group: b.group, sizes: &b.stored_bytes }).collect();
        let places = self.reserve(scope, &wishes)?;
        vfs::thread::point("space.reserved");
        // From here on the blocks exist: whatever happens, dropping them gives their bytes back.
        let mut out: Vec<Option<Arc<Block>>> = Vec::new();
        out.resize_with(batches.iter().map(|b| b.stored_bytes.len()).sum(), || None);
        for (batch, pieces) in batches.iter_mut().zip(&places) {
            batch.place(self, pieces, &mut out);
        }
        for (batch, pieces) in batches.iter().zip(&places) {
            for piece in pieces {
                self.write_piece(batch, piece)?;
            }
        }
        batches.into_iter().for_each(Batch::keep_buffer);
        Ok(out.into_iter().map(|block| block.expect("every block of the call was placed")).collect())
    }

    fn seal_batches(&self, blocks: Vec<NewBlock>) -> Result<Vec<Batch>> {
        let mut batches: Vec<Batch> = Vec::new();
        let bytes = blocks.iter().map(|block| HEADER_BYTES + block.payload.len()).sum();
        for (position, block) in blocks.into_iter().enumerate() {
            if block.payload.len() > self.payload_bytes_max() {
                return Err(Fault::Limit {
                    what: "the payload of a block, in bytes",
                    limit: self.payload_bytes_max() as u64,
                    got: block.payload.len() as u64,
                });
            }
            let at = batches.iter().position(|b| b.group == block.group).unwrap_or_else(|| {
                batches.push(Batch::new(block.group, bytes));
                batches.len() - 1
            });
            let batch = &mut batches[at];
            let NewBlock { kind, index, compression, .. } = block;
            let stored = codec::seal(kind, index, compression, &block.payload, &block.cuts, &mut batch.bytes)?;
            batch.stored_bytes.push(u32::try_from(stored).expect("a block fits an extent"));
            batch.positions.push(position);
        }
        Ok(batches)
    }

    fn reserve(&self, scope: AllocScope, wishes: &[Wish<'_>]) -> Result<Vec<Vec<Piece>>> {
        self.check_owed(scope, wishes.iter().flat_map(|wish| wish.sizes).map(|bytes| u64::from(*bytes)).sum())?;
        loop {
            let kept = self.kept_extents(scope);
            let (reserved, opened) = {
                let mut allocator = self.0.allocator.lock();
                let before = allocator.usable_count();
                let reserved = allocator.reserve(wishes, kept);
                (reserved, before - allocator.usable_count())
            };
            if opened > 0 {
                self.note_opened(opened);
            }
            match reserved {
                Ok(places) => return Ok(places),
                Err(shortage) => self.grow(shortage.0)?,
            }
        }
    }

    fn write_piece(&self, batch: &Batch, piece: &Piece) -> Result<()> {
        let start: u64 = batch.stored_bytes[..piece.first].iter().map(|n| u64::from(*n)).sum();
        let bytes = &batch.bytes[start as usize..(start + piece.bytes) as usize];
        // The space is allocated: any error here, a full disk too, is a broken promise of the file system (B7).
        self.0.data.write(bytes, piece.offset).map_err(|e| self.0.poison.set(Fault::io("write", &self.0.data.name, &e)))
    }
}

/// The blocks of one call and one group, sealed back to back.
struct Batch {
    group: UpdateGroup,
    bytes: Vec<u8>,
    stored_bytes: Vec<u32>,
    /// Where each block stood in the call.
    positions: Vec<usize>,
}

impl Batch {
    /// Room for `bytes`, so that it does not grow by copying.
    fn new(group: UpdateGroup, bytes: usize) -> Self {
        let mut buffer = SEALED.take();
        buffer.clear();
        buffer.reserve(bytes);
        Self { group, bytes: buffer, stored_bytes: Vec::new(), positions: Vec::new() }
    }

    fn keep_buffer(self) {
        if self.bytes.capacity() <= KEPT_BUFFER_BYTES {
            SEALED.set(self.bytes);
        }
    }

    /// Stamps the blocks with their addresses and makes them owned.
    fn place(&mut self, space: &Space, pieces: &[Piece], out: &mut [Option<Arc<Block>>]) {
        let mut start = 0;
        for piece in pieces {
            let mut offset = piece.offset;
            for i in piece.first..piece.first + piece.count {
                let stored_bytes = self.stored_bytes[i];
                let block = &mut self.bytes[start..start + stored_bytes as usize];
                let at = BlockRef { offset, stored_bytes, crc: codec::stamp(block, offset) };
                out[self.positions[i]] = Some(Block::new(space, at, 0));
                start += stored_bytes as usize;
                offset += u64::from(stored_bytes);
            }
        }
    }
}
