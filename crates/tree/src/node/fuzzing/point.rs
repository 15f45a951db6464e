//! Point reads of an image, compared with the leaf.

use base::{CommitTs, IndexId};
use index::ReadAt;
use store::codec::{self, Want};
use store::{BlockKind, Compression};

use super::super::basement::{ImageLookup, look_up_in_image};
use super::super::leaf::{Leaf, Lookup, Value};
use super::super::page::Kind;

const INDEX: IndexId = IndexId(5);

/// An image as a block.
pub(in super::super) struct Sealed(Vec<u8>);

impl Sealed {
    pub fn new(image: &[u8], cuts: &[usize], compression: Compression) -> Self {
        let mut block = Vec::new();
        codec::seal(BlockKind::Leaf, INDEX, compression, image, cuts, &mut block).expect("it is short");
        codec::stamp(&mut block, 0);
        Self(block)
    }

    /// Reads the key at its timestamps, just below them, and at the end of time: what the leaf says, which covers the key.
    pub fn check_key(&self, leaf: &Leaf, key: &[u8]) {
        let mut limits = vec![CommitTs::MAX, CommitTs::ZERO];
        if let Ok(first) = leaf.search(key) {
            let slots = (first..leaf.slots()).map(|i| leaf.page.slot(i));
            let versions = slots.enumerate().take_while(|(i, slot)| *i == 0 || slot.is_older());
            for (_, slot) in versions.filter(|(_, slot)| slot.kind() != Kind::Chain) {
                let ts = leaf.page.ts(slot);
                limits.extend([ts, CommitTs(ts.0.saturating_sub(1))]);
            }
        }
        limits.into_iter().for_each(|limit| drop(self.check(leaf, key, limit)));
    }

    /// Reads a key of what may be no image.
    pub fn read(&self, key: &[u8]) {
        let want = Want { kind: BlockKind::Leaf, index: INDEX, crc: None };
        let block = codec::open_block(&"a leaf", 0, &self.0, &want).expect("it is whole");
        let _ = look_up_in_image(&block, key, CommitTs::MAX, &mut Default::default());
    }

    /// Reads the key once. Returns the buffers, with what was decompressed for it.
    pub fn check(&self, leaf: &Leaf, key: &[u8], limit: CommitTs) -> [Vec<u8>; 2] {
        let want = Want { kind: BlockKind::Leaf, index: INDEX, crc: None };
        let block = codec::open_block(&"a leaf", 0, &self.0, &want).expect("it is whole");
        let mut buffers = [Vec::new(), Vec::new()];
        let found = look_up_in_image(&block, key, limit, &mut buffers).expect("the image is sound");
        if is_beside(leaf, key, limit) {
            assert!(matches!(found, ImageLookup::Beside), "a large value, or a chain");
        } else {
            match (leaf.get(key, ReadAt::Snapshot(limit)), found) {
                (Lookup::Absent, ImageLookup::Absent) => {}
                (Lookup::Tombstone { ts }, ImageLookup::Version(found, None)) => assert_eq!(ts, found),
                (Lookup::Found { ts, value: Value::Inline(value) }, ImageLookup::Version(at, Some(found))) => {
                    assert_eq!((ts, value), (at, found));
                }
                (expected, _) => panic!("a point read says otherwise: {expected:?}"),
            }
        }
        buffers
    }
}

/// True if what is visible of the key is not in the page, or may not be.
fn is_beside(leaf: &Leaf, key: &[u8], limit: CommitTs) -> bool {
    let Ok(first) = leaf.search(key) else { return false };
    for i in first..leaf.slots() {
        let slot = leaf.page.slot(i);
        match slot.kind() {
            _ if i > first && !slot.is_older() => return false,
            Kind::Chain => return true,
            kind if leaf.page.ts(slot) <= limit => return kind == Kind::Overflow,
            _ => {}
        }
    }
    false
}
