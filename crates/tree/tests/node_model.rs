//! Leaves against a sorted map of versions, and hostile images: the fuzz bodies over seeded bytes.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use trefoil_tree::node::fuzzing;

/// Bytes from a seed (SplitMix64, Steele, Lea and Flood, OOPSLA 2014).
fn seeded(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[test]
fn random_scripts_agree_with_the_model() {
    for seed in 0..100 {
        let mut script = seeded(seed, 3000);
        script[0] = seed as u8 ^ (seed << 7) as u8;
        let run = std::panic::catch_unwind(|| fuzzing::operations(&script));
        assert!(run.is_ok(), "script of seed {seed}");
    }
}

/// Images of leaves with versions, chains and large values.
fn leaf_images() -> Vec<Vec<u8>> {
    use base::{CommitTs, GcView};
    use index::Op;
    use trefoil_tree::node::Leaf;
    let mut out = Vec::new();
    for n in 0..4u64 {
        let mut leaf = Leaf::new(2048, b"", None);
        let held = GcView::keep_all();
        for i in 0..12 + 12 * n {
            let key = format!("k{}", i % (3 + n * 5));
            let value = vec![7; if i % 9 == 8 && n > 0 { 700 } else { 5 + i as usize % 7 }];
            let op = if i % 5 == 4 { Op::Delete } else { Op::Put(&value) };
            let _ = leaf.insert(key.as_bytes(), CommitTs(16 * i), op, &held, None);
        }
        loop {
            let parts = leaf.unwritten();
            if parts.is_empty() {
                break;
            }
            for part in parts {
                let at = store::BlockRef { offset: part.edition, stored_bytes: 9, crc: 9 };
                assert!(leaf.set_stored(part.id, part.edition, vec![at]));
            }
        }
        for basement_bytes in [usize::MAX, 60] {
            let mut image = vec![2, 0, 0];
            let cuts = leaf.encode_basements(basement_bytes, &mut image);
            assert!(cuts.is_empty() || basement_bytes == 60);
            out.push(image);
        }
    }
    out
}

#[test]
fn damaged_leaf_images_are_refused_or_sound() {
    for (n, image) in leaf_images().into_iter().enumerate() {
        fuzzing::leaf_image(&image);
        for at in 0..image.len() {
            for bit in 0..8 {
                let mut damaged = image.clone();
                damaged[at] ^= 1 << bit;
                fuzzing::leaf_image(&damaged);
            }
            fuzzing::leaf_image(&image[..at]);
        }
        for seed in 0..500 {
            let mut damaged = image.clone();
            for pair in seeded(seed * 7 + n as u64, 8).chunks_exact(2) {
                let at = usize::from(pair[0]) * image.len() / 256;
                damaged[at] = pair[1];
            }
            fuzzing::leaf_image(&damaged);
        }
    }
}

#[test]
fn damaged_inner_images_are_refused_or_sound() {
    use base::{CommitTs, Lsn};
    use trefoil_tree::node::{ChildDescriptor, Inner, InnerImage, NodeDescriptor, NodeKind};
    let child = ChildDescriptor::Node(NodeDescriptor {
        kind: NodeKind::Inner,
        block: store::BlockRef { offset: 4096, stored_bytes: 700, crc: 77 },
        entries: 300,
        live: 0,
        dead_from: Some(CommitTs(900)),
        log_need: CommitTs(1000),
        max_ts: CommitTs(1000),
        write_lsn: Lsn(1200),
        has_overflow: true,
        is_exact: false,
    });
    let empty = ChildDescriptor::Empty { log_need: CommitTs(3) };
    let node = Inner::new(b"", None, &["apple", "apply", "pear"], vec![child, empty, child, child]).expect("in order");
    let mut image = vec![2, 0, 0];
    InnerImage { level: 2, segments: Vec::new(), node }.encode(&mut image);
    fuzzing::inner_image(&image);
    for at in 0..image.len() {
        for byte in 0..=255 {
            let mut damaged = image.clone();
            damaged[at] = byte;
            fuzzing::inner_image(&damaged);
        }
        fuzzing::inner_image(&image[..at]);
    }
}

#[test]
fn noise_is_refused() {
    for seed in 0..20_000 {
        let noise = seeded(seed, 60);
        fuzzing::leaf_image(&noise);
        fuzzing::inner_image(&noise);
        // Past the format byte as well.
        let mut framed = vec![0, 0, 0, 1];
        framed.extend_from_slice(&noise);
        fuzzing::leaf_image(&framed);
        fuzzing::inner_image(&framed);
    }
}
