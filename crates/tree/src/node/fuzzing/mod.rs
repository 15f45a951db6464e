//! Fuzz bodies: plain functions over hostile bytes. They return nothing; they must not panic.
//!
//! The decoders must refuse or yield something sound; [`operations`] reads the bytes as a script and compares
//! leaves with a sorted map of versions after every few steps. The property tests run the same bodies over
//! seeded bytes.

mod model;
pub(super) mod point;
mod script;

pub use script::operations;

use super::{InnerImage, Leaf};
use base::CommitTs;
use base::bytes::Reader;
use index::ReadAt;
use point::Sealed;
use store::Compression;

/// What a decoder is told, and the bytes it gets.
struct Frame<'a> {
    node_bytes: usize,
    lo: &'a [u8],
    hi: Option<&'a [u8]>,
    image: &'a [u8],
}

/// Cuts a node size and fences off the front of the bytes.
fn frame(bytes: &[u8]) -> Option<Frame<'_>> {
    let mut r = Reader::new(bytes);
    let node_bytes = 512usize << (r.u8()? % 8);
    let lo_bytes = usize::from(r.u8()? % 4);
    let lo = r.take(lo_bytes)?;
    let hi_bytes = usize::from(r.u8()? % 4);
    let hi = r.take(hi_bytes)?;
    Some(Frame { node_bytes, lo, hi: (hi > lo).then_some(hi), image: r.rest() })
}

/// Decodes a leaf image, or reads a key of it; what is accepted must hold its invariants, be readable, and encode to an image of the
/// same leaf.
pub fn leaf_image(bytes: &[u8]) {
    let Some(Frame { node_bytes, lo, hi, image }) = frame(bytes) else { return };
    let sealed = Sealed::new(image, &[], Compression::None);
    sealed.read(lo);
    let Ok(mut leaf) = Leaf::decode_image(image, lo, hi, node_bytes) else { return };
    leaf.check().expect("an accepted leaf is sound");
    for (id, _, _) in leaf.missing_chains() {
        if leaf.install_chain(id, image).is_err() {
            return;
        }
    }
    let mut slot = 0;
    while let Some(item) = leaf.next_item(slot..leaf.slots(), ReadAt::Newest) {
        let key = item.key.to_vec();
        assert!(leaf.search(&key).is_ok(), "an accepted key is found");
        sealed.check_key(&leaf, &key);
        slot = item.next;
    }
    let _ = leaf.previous_live(0..leaf.slots(), ReadAt::Snapshot(CommitTs(1)));
    let mut again = Vec::new();
    leaf.encode_image(&mut again);
    let second = Leaf::decode_image(&again, lo, hi, node_bytes).expect("an encoded leaf decodes");
    assert_eq!(second.stats(), leaf.stats());
    assert_eq!(second.slots(), leaf.slots());
    let mut cut = Vec::new();
    let cuts = leaf.encode_basements(20, &mut cut);
    let third = Leaf::decode_image(&cut, lo, hi, node_bytes).expect("an encoded leaf decodes");
    assert_eq!((third.stats(), third.slots()), (leaf.stats(), leaf.slots()));
    let mut once_more = Vec::new();
    third.encode_image(&mut once_more);
    assert_eq!(once_more, again, "basements hold the same");
    let sealed = Sealed::new(&cut, &cuts, Compression::Lz4);
    (0..leaf.slots()).step_by(7).for_each(|i| sealed.check_key(&leaf, &leaf.key_at(i).to_vec()));
}

/// Decodes an inner image; what is accepted must route keys to children whose fences have them.
pub fn inner_image(bytes: &[u8]) {
    let Some(Frame { lo, hi, image, .. }) = frame(bytes) else { return };
    let Ok(inner) = InnerImage::decode(image, lo, hi) else { return };
    for i in 0..inner.node.len() {
        let (lo, hi) = inner.node.fence_of(i);
        assert_eq!(inner.node.child_for(&lo), i, "a child has its lower fence");
        if let Some(hi) = hi {
            assert!(lo < hi, "fences are in order");
            assert_eq!(inner.node.child_before(&hi), i, "a child ends at its upper fence");
        }
    }
    let mut again = Vec::new();
    inner.encode(&mut again);
    let second = InnerImage::decode(&again, lo, hi).expect("an encoded inner node decodes");
    assert_eq!(second.level, inner.level);
    assert_eq!(second.node.children(), inner.node.children());
}
