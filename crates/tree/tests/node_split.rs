//! How full splits leave leaves [C8].

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use base::{CommitTs, GcView};
use index::Op;
use trefoil_tree::node::{Insert, Leaf};

const NODE_BYTES: usize = 16 * 1024;

/// A row of leaves, split as the tree does it. Returns the shares of bytes used, the last leaf left out.
fn fill(keys: impl Iterator<Item = u64>) -> Vec<f64> {
    let mut leaves = vec![Leaf::new(NODE_BYTES, b"", None)];
    let keep = GcView::keep_all();
    for key in keys {
        let key = key.to_be_bytes();
        loop {
            let at = leaves.partition_point(|leaf| leaf.lo() <= &key[..]) - 1;
            if leaves[at].insert(&key, CommitTs(16), Op::Put(&[7; 40]), &keep, None) != Insert::Full {
                break;
            }
            let edge = at + 2 >= leaves.len();
            let cut = leaves[at].choose_split(&key, edge);
            let right = leaves[at].split(&cut);
            leaves.insert(at + 1, right);
        }
    }
    leaves.pop();
    leaves.iter().map(|leaf| leaf.used_bytes() as f64 / NODE_BYTES as f64).collect()
}

fn mean(shares: &[f64]) -> f64 {
    shares.iter().sum::<f64>() / shares.len() as f64
}

#[test]
fn c8_append_fills_leaves() {
    let shares = fill(0..40_000);
    assert!(shares.iter().all(|share| *share >= 0.97), "{shares:?}");
}

#[test]
fn c8_append_slightly_out_of_order_fills_leaves() {
    // Sixteen neighbours at a time arrive in a fixed shuffle.
    let keys = (0..40_000u64).map(|n| n / 16 * 16 + (n * 7 + 3) % 16);
    let shares = fill(keys);
    let low = shares.iter().filter(|share| **share < 0.90).count();
    assert!(mean(&shares) >= 0.90 && low * 10 <= shares.len(), "mean {} low {low} of {}", mean(&shares), shares.len());
}

#[test]
fn c8_clients_that_fill_ranges_beside_each_other_fill_leaves() {
    // Eight clients take turns of 20 rows, each in its own range of 1,000 keys.
    let mut keys = Vec::new();
    for range in 0..6u64 {
        for turn in 0..50 {
            for client in 0..8 {
                keys.extend((0..20).map(|n| range * 8000 + client * 1000 + turn * 20 + n));
            }
        }
    }
    let shares = fill(keys.into_iter());
    assert!(mean(&shares) >= 0.72, "mean {}", mean(&shares));
}

#[test]
fn c8_random_inserts_split_in_the_middle() {
    let mut state = 1u64;
    let keys = std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state
    });
    let shares = fill(keys.take(40_000));
    assert!((0.62..0.78).contains(&mean(&shares)), "mean {}", mean(&shares));
    assert!(shares.iter().all(|share| *share > 0.40), "{shares:?}");
}
