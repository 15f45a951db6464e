//! Blocks that are owned together: freed and published as each of them would be.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crate::common::{INDEX, Scratch, noise, open};
use trefoil_store::{AllocScope, BlockRef, Census, Lot, Space};

/// These blocks and no others are published, by the allocator's accounts.
fn assert_published<'a>(space: &Space, blocks: impl IntoIterator<Item = &'a BlockRef>) {
    let mut census = Census::new(space);
    blocks.into_iter().for_each(|at| census.add(*at, INDEX));
    assert_eq!(census.miscounted(), []);
}

#[test]
fn a_lot_is_freed_and_published_as_its_blocks_would_be() {
    let dir = Scratch::new("lot");
    let space = open(dir.path(), None);
    let blocks = (0..20).map(|seed| noise(seed, 9000)).collect();
    let blocks = space.write_in(AllocScope::Ordinary, blocks).unwrap();
    let at: Vec<BlockRef> = blocks.iter().map(|block| block.at()).collect();
    let bytes = |at: &[BlockRef]| at.iter().map(|at| u64::from(at.stored_bytes)).sum::<u64>();
    // Somebody else has one of them.
    let shared = blocks[0].clone();
    let mut lot = Lot::new(&space);
    let back: Vec<_> = blocks.into_iter().filter_map(|block| lot.fold(block)).collect();
    assert_eq!((back.len(), lot.bytes().sum(), space.stats().held_bytes), (1, bytes(&at[1..]), bytes(&at)));
    lot.publish();
    lot.publish();
    assert_published(&space, &at[1..]);
    let cut = lot.cut(at[7]).unwrap();
    assert_published(&space, &at[1..]);
    lot.unpublish();
    assert_published(&space, &at[1..]);
    // It is named once more than the lot is.
    let cut = lot.fold(cut).unwrap();
    cut.unpublish();
    assert!(lot.fold(cut).is_none());
    lot.unpublish();
    assert_published(&space, []);
    lot.publish();
    let cut = lot.cut(at[9]).unwrap();
    drop(lot);
    assert_published(&space, [&at[9]]);
    assert_eq!(space.stats().held_bytes, bytes(&at[..1]) + cut.stored_bytes());
    assert!(Lot::new(&space).cut(at[2]).is_none());
    drop((cut, back, shared));
    assert_published(&space, []);
    assert_eq!(space.stats().held_bytes, 0);
}
