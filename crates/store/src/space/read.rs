//! Blocks from the file: one, neighbours, or a part of one.

use std::ops::Range;

use base::{Fault, IndexId, Result};

use super::Space;
use crate::codec::{self, HEADER_BYTES, OpenBlock};
use crate::{BlockKind, BlockRef, Packed, Parts};

impl Space {
    /// Reads, checks and decompresses a block into `out` (cleared first).
    ///
    /// # Errors
    /// [`Fault::Corrupt`] if the bytes there are not this block, [`Fault::Io`] if they cannot be read. Neither
    /// poisons.
    pub fn read(&self, at: BlockRef, kind: BlockKind, index: IndexId, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        self.read_with(at, kind, index, |block| block.read_whole(out))
    }

    /// Reads and checks a block, and hands it to `with`, who decompresses what is needed of it.
    ///
    /// # Errors
    /// As [`Space::read`], and those of `with`.
    pub fn read_with<T>(
        &self,
        at: BlockRef,
        kind: BlockKind,
        index: IndexId,
        with: impl FnOnce(&OpenBlock<'_>) -> Result<T>,
    ) -> Result<T> {
        self.check_address(at, index)?;
        let want = codec::Want { kind, index, crc: Some(at.crc) };
        self.0.data.read(at, |bytes| with(&codec::open_block(&self.0.data.name, at.offset, bytes, &want)?))
    }

    /// Reads the parts of the block at `at` that have some of the payload's `range`, and nothing else of it; checks and decompresses them into
    /// `out` (cleared first). Returns where in the payload `out` begins.
    ///
    /// # Errors
    /// As [`Space::read`].
    pub fn read_parts(
        &self,
        at: BlockRef,
        index: IndexId,
        parts: &Parts,
        range: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        self.check_address(at, index)?;
        let wanted = parts.over(&range);
        let Some(place) = wanted.place(at) else {
            out.clear();
            return Ok(range.start);
        };
        self.0.data.read(place, |bytes| wanted.open(&self.0.data.name, at, index, bytes, out))
    }

    /// The same from the stored bytes of that block's parts.
    ///
    /// # Errors
    /// [`Fault::Corrupt`].
    pub fn unpack(
        &self,
        at: BlockRef,
        index: IndexId,
        parts: &Parts,
        packed: &Packed,
        range: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        parts.over(&range).open_packed(&self.0.data.name, at, index, packed, out)
    }

    /// Reads blocks that lie one behind the other in one extent, ascending, with little between them, as one read of the file, and
    /// hands each to `each` with its place among them.
    ///
    /// # Errors
    /// As [`Space::read`], and those of `each`; blocks before the one that is damaged were handed out.
    ///
    /// # Panics
    /// If the blocks do not ascend within one extent.
    pub fn read_neighbours(
        &self,
        blocks: &[BlockRef],
        kind: BlockKind,
        index: IndexId,
        mut each: impl FnMut(usize, &OpenBlock<'_>) -> Result<()>,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return Ok(()) };
        blocks.iter().try_for_each(|at| self.check_address(*at, index))?;
        let is_in_order = blocks.windows(2).all(|pair| pair[0].end() <= pair[1].offset);
        assert!(is_in_order && self.extent_of(*first) == self.extent_of(*last), "neighbours ascend within an extent");
        let stored_bytes = u32::try_from(last.end() - first.offset).expect("an extent has at most 4 MiB");
        self.0.data.read(BlockRef { stored_bytes, ..*first }, |bytes| {
            for (i, at) in blocks.iter().enumerate() {
                let want = codec::Want { kind, index, crc: Some(at.crc) };
                let start = (at.offset - first.offset) as usize;
                let bytes = &bytes[start..start + at.stored_bytes as usize];
                each(i, &codec::open_block(&self.0.data.name, at.offset, bytes, &want)?)?;
            }
            Ok(())
        })
    }

    pub(super) fn is_address(&self, at: BlockRef) -> bool {
        let extent_bytes = self.0.options.extent_bytes;
        // Also far from the end of numbers, so that what is computed from it cannot overflow.
        let within = at.offset % extent_bytes + u64::from(at.stored_bytes) <= extent_bytes && at.offset < 1 << 62;
        within && at.stored_bytes as usize >= HEADER_BYTES && at.offset >= extent_bytes
    }

    /// A block lies within one extent; anything else is not an address that was ever handed out.
    pub(super) fn check_address(&self, at: BlockRef, index: IndexId) -> Result<()> {
        if self.is_address(at) {
            return Ok(());
        }
        let found = format!("{} bytes at {}", at.stored_bytes, at.offset);
        let fault = Fault::corrupt(&self.0.data.name, at.offset, "block address", "a block within an extent", found);
        Err(fault.of_index(index))
    }
}
