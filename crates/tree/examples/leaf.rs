//! Times of the leaf's inner loops: `cargo run --release -p trefoil-tree --example leaf`.
//!
//! Each line is the median over rounds of the mean time of one operation, on leaves of 16 KiB with keys of 30 bytes
//! and values of 8. Every round works on another one of many leaves, so that their lines are not all in the
//! first-level cache.

use std::hint::black_box;

use base::{CommitTs, GcView};
use index::{Op, ReadAt};
use trefoil_tree::node::{Insert, Leaf};
use vfs::time::Instant;

const NODE_BYTES: usize = 16 * 1024;
const ROUNDS: usize = 400;

/// SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A key of 30 bytes within fences that share `user/`.
fn key_of(n: u64) -> [u8; 30] {
    let mut key = [b'.'; 30];
    key[..5].copy_from_slice(b"user/");
    key[5..21].copy_from_slice(format!("{n:016x}").as_bytes());
    key
}

fn empty() -> Leaf {
    Leaf::new(NODE_BYTES, b"user/", Some(b"user0"))
}

/// Keys in random order that fill a leaf.
fn filling(numbers: &mut Numbers) -> (Vec<[u8; 30]>, Leaf) {
    let (mut keys, mut leaf) = (Vec::new(), empty());
    loop {
        let key = key_of(numbers.next());
        if leaf.insert(&key, CommitTs(16), Op::Put(&[7; 8]), &GcView::keep_all(), None) == Insert::Full {
            return (keys, leaf);
        }
        keys.push(key);
    }
}

fn report(what: &str, target_nanos: u64, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    println!("{what:<44}{:>8.1} ns   (target {target_nanos} ns)", times[times.len() / 2]);
}

/// Mean nanoseconds of `count` operations done by `work`.
fn timed(count: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / count as f64
}

/// Keys in random order and the leaf they fill.
type Filled = (Vec<[u8; 30]>, Leaf);

fn main() {
    let mut numbers = Numbers(1);
    let leaves: Vec<Filled> = (0..ROUNDS).map(|_| filling(&mut numbers)).collect();
    println!("{} keys fill a leaf", leaves[0].0.len());
    inserts(&leaves);
    reads(&leaves);
    updates(&leaves);
    images(&leaves);
}

fn inserts(leaves: &[Filled]) {
    let view = GcView::new(CommitTs(8), vec![]);
    let insert = |order: &dyn Fn(&mut Vec<[u8; 30]>), hinted: bool| -> Vec<f64> {
        let one = |(keys, _): &(Vec<[u8; 30]>, Leaf)| {
            let mut keys = keys.clone();
            order(&mut keys);
            let mut leaf = empty();
            timed(keys.len(), || {
                let mut hint = None;
                for key in &keys {
                    match leaf.insert(key, CommitTs(16), Op::Put(&[7; 8]), &view, hint) {
                        Insert::Done(applied) if hinted => hint = Some(applied.hint),
                        outcome => _ = black_box(outcome),
                    }
                }
            })
        };
        leaves.iter().map(one).collect()
    };
    report("insert, random", 250, insert(&|_| (), false));
    report("insert, ascending without a hint (append)", 80, insert(&|keys| keys.sort_unstable(), false));
    report("insert, ascending with a hint", 80, insert(&|keys| keys.sort_unstable(), true));
}

fn reads(leaves: &[Filled]) {
    let search = |(keys, leaf): &(Vec<[u8; 30]>, Leaf)| {
        timed(keys.len(), || {
            for key in keys {
                let _ = black_box(leaf.get(key, ReadAt::Newest));
            }
        })
    };
    report("get", 120, leaves.iter().map(search).collect());

    let scan = |(_, leaf): &(Vec<[u8; 30]>, Leaf)| {
        timed(leaf.slots() / 10, || {
            let (mut slot, mut sum) = (0, 0);
            while let Some(item) = leaf.next_live(slot..leaf.slots(), ReadAt::Snapshot(CommitTs(20))) {
                sum += item.key.suffix.len();
                slot = item.next;
            }
            black_box(sum);
        })
    };
    report("ten entries forward", 150, leaves.iter().map(scan).collect());
    let back = |(_, leaf): &(Vec<[u8; 30]>, Leaf)| {
        timed(leaf.slots() / 10, || {
            let (mut slot, mut sum) = (leaf.slots(), 0);
            while let Some(item) = leaf.previous_live(0..slot, ReadAt::Snapshot(CommitTs(20))) {
                sum += item.key.suffix.len();
                slot = item.first;
            }
            black_box(sum);
        })
    };
    report("ten entries backward", 150, leaves.iter().map(back).collect());
}

fn updates(leaves: &[Filled]) {
    let update = |(_, leaf): &(Vec<[u8; 30]>, Leaf)| {
        let mut leaf = leaf.clone();
        let cut = leaf.choose_split(&key_of(5), false);
        drop(leaf.split(&cut));
        let hot = leaf.key_at(leaf.slots() / 2).to_vec();
        let mut ts = 32;
        timed(1000, || {
            for _ in 0..1000 {
                ts += 16;
                let view = GcView::new(CommitTs(ts - 32), vec![]);
                let _ = black_box(leaf.insert(&hot, CommitTs(ts), Op::Put(&[9; 8]), &view, None));
            }
        })
    };
    report("new version of a hot row", 250, leaves.iter().take(50).map(update).collect());
}

fn images(leaves: &[Filled]) {
    let encode = |(_, leaf): &(Vec<[u8; 30]>, Leaf)| {
        let mut out = Vec::with_capacity(2 * NODE_BYTES);
        timed(1, || leaf.encode_image(&mut out))
    };
    report("encode a full leaf", 20_000, leaves.iter().map(encode).collect());
    let decode = |(_, leaf): &(Vec<[u8; 30]>, Leaf)| {
        let mut out = Vec::new();
        leaf.encode_image(&mut out);
        timed(1, || drop(black_box(Leaf::decode_image(&out, leaf.lo(), leaf.hi(), NODE_BYTES))))
    };
    report("decode a full leaf", 20_000, leaves.iter().map(decode).collect());
    let split = |(_, leaf): &(Vec<[u8; 30]>, Leaf)| {
        let mut leaf = leaf.clone();
        let cut = leaf.choose_split(&key_of(5), false);
        timed(1, || drop(black_box(leaf.split(&cut))))
    };
    report("split a full leaf", 20_000, leaves.iter().map(split).collect());
}
