//! How a block in parts is made up: enough to read one of them, and to know it for the right one, without the others.
//!
//! A block's checksum covers all of it. Whoever has read and checked the whole can keep, in memory, where each part lies and the
//! checksum of its stored bytes ([`Parts`]); the next reader fetches the part that it needs and checks that. Nothing of this is on disk.
//! What a part's checksum says is as good as the block's: it was taken of bytes that the block's own had covered, at that address.
//!
//! The stored bytes can be kept in memory, too ([`Packed`]): they are a fraction of what a page of them takes, and one part is decompressed in a
//! fraction of what a read takes.

use std::ops::Range;
use std::sync::Arc;

use base::checksum::crc32c;
use base::{IndexId, Result};

use crate::codec::{Compression, Place, decompress};
use crate::{BlockRef, Frame, FramePool, allocated};

/// The parts of one block.
#[derive(Debug)]
pub struct Parts {
    compression: Compression,
    /// Where the first one begins, in the block.
    begin: u32,
    parts: Box<[Part]>,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    /// Before compression, and as stored.
    bytes: u32,
    stored_bytes: u32,
    /// CRC32C of what is stored.
    crc: u32,
}

/// The stored bytes of a block's parts, in memory. In pieces, so that blocks of all lengths fill their frames.
#[derive(Debug)]
pub struct Packed(Box<[Frame]>);

/// Bytes of a piece.
const PIECE_BYTES: usize = 4 << 10;

impl Packed {
    pub(crate) fn new(pool: &Arc<FramePool>, stored: &[u8]) -> Self {
        Self(stored.chunks(PIECE_BYTES).map(|piece| pool.frame_of(piece)).collect())
    }

    /// Puts the bytes of `range` into `out` (cleared first).
    fn copy(&self, range: Range<usize>, out: &mut Vec<u8>) {
        out.clear();
        let mut at = range.start;
        while at < range.end {
            let (piece, from) = (&self.0[at / PIECE_BYTES], at % PIECE_BYTES);
            let bytes = (PIECE_BYTES - from).min(range.end - at);
            out.extend_from_slice(&piece[from..from + bytes]);
            at += bytes;
        }
    }
}

/// Neighbouring parts of a block.
pub(crate) struct Wanted<'a> {
    compression: Compression,
    parts: &'a [Part],
    /// Where they begin in the payload.
    begin: usize,
    /// Where they lie in the block, and where its first part does.
    stored: Range<usize>,
    first: usize,
}

impl Parts {
    /// Of a block whose parts are stored from byte `begin` on, one behind the other: the length of each, and its bytes.
    pub(crate) fn new<'a>(
        compression: Compression,
        begin: usize,
        parts: impl Iterator<Item = (usize, &'a [u8])>,
    ) -> Self {
        let part = |(bytes, stored): (usize, &[u8])| Part {
            bytes: bytes as u32,
            stored_bytes: stored.len() as u32,
            crc: crc32c(stored),
        };
        Self { compression, begin: begin as u32, parts: parts.map(part).collect() }
    }

    /// Bytes of the payload before compression.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes as usize).sum()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.parts.len()
    }

    /// Memory of its stored bytes ([`Packed`]).
    #[must_use]
    pub fn packed_bytes(&self) -> u64 {
        let stored: usize = self.parts.iter().map(|part| part.stored_bytes as usize).sum();
        let (pieces, rest) = (stored / PIECE_BYTES, stored % PIECE_BYTES);
        let rest = if rest > 0 { FramePool::bytes_for(rest) } else { 0 };
        (pieces * PIECE_BYTES + rest) as u64 + allocated((pieces + 1) * size_of::<Frame>())
    }

    /// Memory beside the value itself, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        allocated(size_of_val(&*self.parts))
    }

    /// Those that have some of the payload's `range`.
    pub(crate) fn over(&self, range: &Range<usize>) -> Wanted<'_> {
        let (mut first, mut begin, mut stored) = (0, 0, self.begin as usize);
        let mut is_before = |part: &Part| {
            let is_before = begin + part.bytes as usize <= range.start;
            if is_before {
                (begin, stored) = (begin + part.bytes as usize, stored + part.stored_bytes as usize);
            }
            is_before
        };
        first += self.parts.iter().take_while(|part| is_before(part)).count();
        let (mut past, mut end, mut stored_end) = (first, begin, stored);
        while let Some(part) = self.parts.get(past).filter(|_| end < range.end) {
            (past, end, stored_end) = (past + 1, end + part.bytes as usize, stored_end + part.stored_bytes as usize);
        }
        Wanted {
            compression: self.compression,
            parts: &self.parts[first..past],
            begin,
            stored: stored..stored_end,
            first: self.begin as usize,
        }
    }
}

impl Wanted<'_> {
    /// Where they lie in the file, of the block at `at`; none if there are none.
    pub fn place(&self, at: BlockRef) -> Option<BlockRef> {
        let (offset, stored_bytes) = (at.offset + self.stored.start as u64, self.stored.len() as u32);
        (stored_bytes > 0).then_some(BlockRef { offset, stored_bytes, ..at })
    }

    /// The same from the stored bytes of all parts of the block at `at`.
    pub fn open_packed(
        &self,
        file: &dyn std::fmt::Display,
        at: BlockRef,
        index: IndexId,
        packed: &Packed,
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        let mut bytes = Vec::with_capacity(self.stored.len());
        packed.copy(self.stored.start - self.first..self.stored.end - self.first, &mut bytes);
        self.open(file, at, index, &bytes, out)
    }

    /// Checks and decompresses their `bytes` into `out` (cleared first). Returns where in the payload that begins.
    pub fn open(
        &self,
        file: &dyn std::fmt::Display,
        at: BlockRef,
        index: IndexId,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        let (place, mut rest) = (Place { file, offset: at.offset, index }, bytes);
        out.clear();
        for part in self.parts {
            let (stored, behind) = rest.split_at(part.stored_bytes as usize);
            let found = crc32c(stored);
            if found != part.crc {
                let (expected, found) = (format!("{:08x}", part.crc), format!("{found:08x}"));
                return Err(place.corrupt("checksum of a part of a block", expected, found));
            }
            decompress(&place, self.compression, stored, part.bytes as usize, out)?;
            rest = behind;
        }
        Ok(self.begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockKind;
    use crate::codec::{self, Want};

    const INDEX: IndexId = IndexId(3);
    const AT: u64 = 8192;

    /// A block of these parts, and what its whole says of them.
    fn sealed(cuts: &[usize], payload: &[u8]) -> (Vec<u8>, Option<Parts>) {
        let mut block = Vec::new();
        codec::seal(BlockKind::Leaf, INDEX, Compression::Lz4, payload, cuts, &mut block).expect("it is short");
        let crc = codec::stamp(&mut block, AT);
        let want = Want { kind: BlockKind::Leaf, index: INDEX, crc: Some(crc) };
        let parts = codec::open_block(&"a file", AT, &block, &want).expect("it is whole").parts();
        (block, parts)
    }

    fn read(block: &[u8], parts: &Parts, range: Range<usize>) -> Result<(usize, Vec<u8>)> {
        let (wanted, mut out) = (parts.over(&range), vec![1]);
        let at = BlockRef { offset: AT, stored_bytes: block.len() as u32, crc: 0 };
        let Some(place) = wanted.place(at) else { return Ok((range.start, Vec::new())) };
        let start = (place.offset - AT) as usize;
        let bytes = &block[start..start + place.stored_bytes as usize];
        wanted.open(&"a file", at, INDEX, bytes, &mut out).map(|begin| (begin, out))
    }

    #[test]
    fn a_part_is_what_it_is_in_the_whole() {
        let payload: Vec<u8> = (0..4000).map(|n| (n / 100) as u8).collect();
        let cuts = [50, 1000, 1001, 3000];
        let (block, parts) = sealed(&cuts, &payload);
        let parts = parts.expect("it is in parts");
        assert_eq!(parts.payload_bytes(), payload.len());
        let ends = [50, 1000, 1001, 3000, 4000];
        for (from, to) in
            [(0, 1), (0, 50), (49, 51), (50, 51), (1000, 1001), (999, 1002), (3999, 4000), (0, 4000), (3000, 9000)]
        {
            let (begin, out) = read(&block, &parts, from..to).expect("it is sound");
            let first = ends.iter().rev().find(|end| **end <= from).copied().unwrap_or(0);
            let last = ends.iter().find(|end| **end >= to).copied().unwrap_or(4000);
            assert_eq!((begin, &*out), (first, &payload[first..last]), "{from}..{to}");
        }
        assert_eq!(read(&block, &parts, 4000..5000).expect("nothing is there"), (4000, Vec::new()));
    }

    #[test]
    fn each_part_has_its_own_checksum() {
        let payload: Vec<u8> = (0..4000).map(|n| (n / 100) as u8).collect();
        let (mut block, parts) = sealed(&[1000, 2000], &payload);
        let parts = parts.expect("it is in parts");
        let middle = parts.over(&(1500..1501)).stored;
        for at in middle.clone() {
            block[at] ^= 1;
            assert!(read(&block, &parts, 1500..1501).is_err(), "byte {at}");
            read(&block, &parts, 0..1).expect("another part");
            block[at] ^= 1;
        }
        read(&block, &parts, 1500..1501).expect("as it was");
    }

    #[test]
    fn a_block_of_one_part_is_read_as_a_whole() {
        assert!(sealed(&[], &[7; 1000]).1.is_none());
        // Nothing shrinks: the cuts are not there.
        assert!(sealed(&[10], &[1; 20]).1.is_none());
    }
}
