//! Many blocks as one owned thing, known by what they take in each extent and no more.
//!
//! The space asks of a block that goes only how many bytes its extent holds less. So who names very many blocks in blocks of its own (the
//! indexes of sorted runs) need not have a [`Block`] for each in memory: a [`Lot`] owns them together, and dropping it frees them. One
//! that somebody else is to own too is cut out, and can be put back.
//!
//! Invariants: a block is in one lot or has a [`Block`] of its own, never both; a lot is published as a [`Block`] is, all of it at once.

use std::sync::Arc;

use base::bytes::{Reader, put_varint};

use crate::block::{Block, BlockRef};
use crate::space::{ExtentId, Space};

/// Blocks that are owned together; dropping it frees them.
#[derive(Debug)]
pub struct Lot {
    space: Space,
    /// Ascending, no extent twice; none without bytes.
    bytes: Vec<(ExtentId, u32)>,
    published: u32,
}

impl Lot {
    /// An empty one.
    #[must_use]
    pub fn new(space: &Space) -> Self {
        Self { space: space.clone(), bytes: Vec::new(), published: 0 }
    }

    /// Blocks that the manifest the database was opened from names, once, as [`Space::adopt`] does one.
    #[must_use]
    pub fn adopt(space: &Space, named: LotBytes) -> Self {
        Self { space: space.clone(), bytes: named.0, published: 1 }
    }

    /// Takes a block over; it comes back if somebody else has it too, or other images name it than name the lot.
    pub fn fold(&mut self, block: Arc<Block>) -> Option<Arc<Block>> {
        if block.published() != self.published {
            return Some(block);
        }
        match Arc::try_unwrap(block) {
            Ok(block) => {
                self.add(block.disown());
                None
            }
            Err(block) => Some(block),
        }
    }

    /// Makes a block its own owner's. None if there are not so many bytes where it is said to be.
    pub fn cut(&mut self, at: BlockRef) -> Option<Arc<Block>> {
        let extent = self.space.extent_of(at);
        let place = self.bytes.binary_search_by_key(&extent, |(id, _)| *id).ok()?;
        let left = self.bytes[place].1.checked_sub(at.stored_bytes)?;
        if left == 0 {
            self.bytes.remove(place);
        } else {
            self.bytes[place].1 = left;
        }
        Some(Block::new(&self.space, at, self.published))
    }

    fn add(&mut self, at: BlockRef) {
        let mut bytes = LotBytes(std::mem::take(&mut self.bytes));
        bytes.add(&self.space, at);
        self.bytes = bytes.0;
    }

    /// As [`Block::publish`], all of it.
    pub fn publish(&mut self) {
        self.published += 1;
        if self.published == 1 {
            self.space.note_lot(&self.bytes, 1);
        }
    }

    /// As [`Block::unpublish`].
    ///
    /// # Panics
    /// If no image names it.
    pub fn unpublish(&mut self) {
        self.published = self.published.checked_sub(1).expect("a lot is unpublished as often as it was published");
        if self.published == 0 {
            self.space.note_lot(&self.bytes, -1);
        }
    }

    /// What is in it.
    #[must_use]
    pub fn bytes(&self) -> LotBytes {
        LotBytes(self.bytes.clone())
    }

    /// Bytes of memory behind it.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() * size_of::<(ExtentId, u32)>()
    }
}

impl Drop for Lot {
    fn drop(&mut self) {
        self.space.free_lot(&self.bytes, self.published > 0);
    }
}

/// What blocks take in each extent, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LotBytes(Vec<(ExtentId, u32)>);

impl LotBytes {
    /// Counts one more block. No extent has 4 GiB: of addresses that are damaged no more is counted.
    pub fn add(&mut self, space: &Space, at: BlockRef) {
        let extent = space.extent_of(at);
        match self.0.binary_search_by_key(&extent, |(id, _)| *id) {
            Ok(place) => {
                let bytes = &mut self.0[place].1;
                *bytes = bytes.saturating_add(at.stored_bytes);
            }
            Err(place) => self.0.insert(place, (extent, at.stored_bytes)),
        }
    }

    /// All of them, in bytes.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.iter().map(|(_, bytes)| u64::from(*bytes)).sum()
    }

    /// Appends it: the number of extents, and for each by how much its number is above the one before and its bytes, varints.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        let mut last = 0;
        for (extent, bytes) in &self.0 {
            put_varint(out, u64::from(extent - last));
            put_varint(out, u64::from(*bytes));
            last = *extent;
        }
    }

    /// Reads one. Whether the file has such extents is asked of [`LotBytes::is_within`].
    #[must_use]
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let count = r.length()?;
        let mut this = Self::default();
        let mut last = 0u32;
        for _ in 0..count {
            let extent = last.checked_add(u32::try_from(r.varint()?).ok().filter(|step| *step > 0)?)?;
            this.0.push((extent, u32::try_from(r.varint()?).ok().filter(|bytes| *bytes > 0)?));
            last = extent;
        }
        Some(this)
    }

    /// True if these may be bytes of blocks in this space: no extent has more than it can.
    #[must_use]
    pub fn is_within(&self, space: &Space) -> bool {
        self.0.iter().all(|(_, bytes)| u64::from(*bytes) <= space.extent_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let bytes = LotBytes(vec![(1, 4096), (2, 1), (70_000, 300)]);
        let mut out = Vec::new();
        bytes.encode(&mut out);
        assert_eq!(LotBytes::decode(&mut Reader::new(&out)), Some(bytes));
        assert!((0..out.len()).all(|n| LotBytes::decode(&mut Reader::new(&out[..n])).is_none()));
        assert!(LotBytes::decode(&mut Reader::new(&[1, 0, 9])).is_none(), "the header's extent");
        assert!(LotBytes::decode(&mut Reader::new(&[1, 1, 0])).is_none(), "nothing there");
    }
}
