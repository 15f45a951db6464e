//! Which blocks are named, gathered from all indexes of a database, and what that says of the allocator's accounts: no
//! two owners, and in each extent exactly the bytes that are counted as published (P9).

use std::collections::BTreeMap;

use base::IndexId;

use super::{ExtentId, Space};
use crate::BlockRef;

/// Blocks and who names them.
#[derive(Debug)]
pub struct Census {
    space: Space,
    named: Vec<Named>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    offset: u64,
    stored_bytes: u32,
    by: IndexId,
}

impl Named {
    fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.stored_bytes))
    }
}

/// An extent that holds other bytes than the allocator counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Miscount {
    /// Where it begins in the data file.
    pub offset: u64,
    /// Bytes that the allocator counts.
    pub counted: u64,
    /// Bytes of the blocks that are named.
    pub named: u64,
}

impl Census {
    /// An empty one.
    #[must_use]
    pub fn new(space: &Space) -> Self {
        Self { space: space.clone(), named: Vec::new() }
    }

    /// Notes that an index names a block. What cannot be a block's address is left to whoever reads there.
    pub fn add(&mut self, at: BlockRef, by: IndexId) {
        if self.space.is_address(at) {
            self.named.push(Named { offset: at.offset, stored_bytes: at.stored_bytes, by });
        }
    }

    /// Offsets of blocks that share bytes with another one, ascending.
    #[must_use]
    pub fn shared(&mut self) -> Vec<u64> {
        self.named.sort_unstable();
        overlaps(&self.named)
    }

    /// Extents whose named blocks, each counted once, are not what the allocator counts. Right while no checkpoint runs.
    #[must_use]
    pub fn miscounted(&mut self) -> Vec<Miscount> {
        self.named.sort_unstable();
        self.named.dedup_by_key(|named| named.offset);
        let mut tally = Tally::new(&self.space);
        self.named.iter().for_each(|named| tally.count(named.offset, named.stored_bytes));
        tally.miscounted()
    }
}

/// Bytes that are named, by extent: what a census comes to, without the blocks. A block named twice is counted twice.
#[derive(Debug)]
pub struct Tally {
    space: Space,
    named: BTreeMap<ExtentId, u64>,
}

impl Tally {
    /// An empty one.
    #[must_use]
    pub fn new(space: &Space) -> Self {
        Self { space: space.clone(), named: BTreeMap::new() }
    }

    /// Notes that somebody names a block.
    pub fn add(&mut self, at: BlockRef) {
        if self.space.is_address(at) {
            self.count(at.offset, at.stored_bytes);
        }
    }

    fn count(&mut self, offset: u64, stored_bytes: u32) {
        let extent = ExtentId::try_from(offset / self.space.extent_bytes()).unwrap_or(ExtentId::MAX);
        *self.named.entry(extent).or_default() += u64::from(stored_bytes);
    }

    /// Extents that hold other bytes than the allocator counts.
    fn miscounted(self) -> Vec<Miscount> {
        let Self { space, named: mut sums } = self;
        let mut wrong = Vec::new();
        let mut judge = |id: ExtentId, counted: u64, named: u64| {
            if counted != named {
                wrong.push(Miscount { offset: u64::from(id) * space.extent_bytes(), counted, named });
            }
        };
        for (id, extent) in space.0.allocator.lock().extents() {
            judge(id, u64::try_from(extent.published).unwrap_or(0), sums.remove(&id).unwrap_or(0));
        }
        sums.into_iter().for_each(|(id, named)| judge(id, 0, named));
        wrong
    }
}

/// Offsets of those that share bytes; `named` is sorted.
fn overlaps(named: &[Named]) -> Vec<u64> {
    let mut shared = Vec::new();
    let mut reaches = None::<Named>;
    for next in named {
        match reaches {
            Some(before) if before.end() > next.offset => shared.extend([before.offset, next.offset]),
            _ => {}
        }
        if reaches.is_none_or(|before| next.end() > before.end()) {
            reaches = Some(*next);
        }
    }
    shared.sort_unstable();
    shared.dedup();
    shared
}

impl Space {
    /// Frees what is counted and not named: blocks whose owner is gone and did not know them all. The caller has shown
    /// every block that anybody names, behind the last root of a checkpoint and before [`Space::save`]. Returns the bytes.
    pub fn reclaim(&self, named: Tally) -> u64 {
        let mut bytes = 0;
        for extent in named.miscounted().into_iter().filter(|extent| extent.counted > extent.named) {
            let lost = extent.counted - extent.named;
            let stored_bytes = u32::try_from(lost).expect("an extent is below 4 GiB");
            self.free(BlockRef { offset: extent.offset, stored_bytes, crc: 0 }, true);
            bytes += lost;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_share_bytes_are_found() {
        let named = [(4096, 100), (4196, 50), (8192, 1000), (8200, 10), (9191, 5), (9196, 7)];
        let named = named.map(|(offset, stored_bytes)| Named { offset, stored_bytes, by: IndexId(1) });
        assert_eq!(overlaps(&named), [8192, 8200, 9191]);
    }
}
