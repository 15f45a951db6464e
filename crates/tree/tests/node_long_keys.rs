//! Keys whose suffix in a page is so long that its length stands beside it.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use base::{CommitTs, GcView};
use index::{Op, ReadAt};
use trefoil_tree::node::{Insert, Leaf, Lookup, Value};

fn put(leaf: &mut Leaf, key: &[u8]) -> Insert {
    leaf.insert(key, CommitTs(16), Op::Put(b""), &GcView::keep_all(), None)
}

/// Everything that the leaf covers is there.
fn check(leaf: &Leaf, keys: &[Vec<u8>]) {
    leaf.check().expect("sound");
    for key in keys.iter().filter(|key| leaf.covers(key)) {
        let found = leaf.get(key, ReadAt::Snapshot(CommitTs(1000)));
        assert!(matches!(found, Lookup::Found { value: Value::Inline(b""), .. }));
    }
}

/// A suffix of 8191 bytes has its length beside it, one of 8190 has not: keys pass that both ways as what is stripped from
/// them changes.
#[test]
fn a_suffix_becomes_long_and_short_again() {
    let key = |own: u8, bytes: usize| [vec![b'c'; 200], vec![own; bytes - 200]].concat();
    for node_bytes in [32 << 10, 64 << 10] {
        for bytes in [8190, 8191, 8195, 8374, 8380, 8390, 8391] {
            let (mut leaf, mut keys) = (Leaf::new(node_bytes, b"", None), Vec::new());
            // Full of keys with a front in common, which is then stripped.
            for next in (b'a'..).map(|own| key(own, bytes)) {
                if put(&mut leaf, &next) == Insert::Full {
                    break;
                }
                keys.push(next);
                check(&leaf, &keys);
            }
            assert_eq!(keys.len(), node_bytes / (bytes - 182 + if bytes < 8391 { 0 } else { 2 }), "{bytes}");
            // One without it: all others are whole again, as far as there is room.
            let other = b"zz".to_vec();
            while put(&mut leaf, &other) == Insert::Full {
                let cut = leaf.choose_split(&other, false);
                let right = leaf.split(&cut);
                check(&leaf, &keys);
                let mut image = Vec::new();
                right.encode_image(&mut image);
                leaf = Leaf::decode_image(&image, right.lo(), right.hi(), node_bytes).expect("what was encoded");
                check(&leaf, &keys);
            }
            keys.push(other);
            check(&leaf, &keys);
            let cut = leaf.choose_split(b"zzz", false);
            let right = leaf.split(&cut);
            let merged_bytes = leaf.merged_bytes(&right);
            leaf.merge(right);
            assert_eq!(leaf.used_bytes(), merged_bytes);
            check(&leaf, &keys);
        }
    }
}
