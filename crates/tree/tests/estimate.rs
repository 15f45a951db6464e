//! Estimates of a range against the exact count, over many shapes of data.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

mod common;

use std::ops::Bound;

use common::{Rig, Setup, Write};
use index::{Index, KeyRange};
use vfs::random::Rng;

const MOST: u64 = 1_000_000;
const ENTRIES: u64 = 200_000;

/// Keys of a table's rows, eight bytes: sorted, with what stands beside each.
type Shape = Vec<(u64, usize)>;
type Maker = fn(&mut Rng) -> Shape;

fn rig() -> Rig {
    Rig::new(Setup { node_bytes: 4096, budget_bytes: 2 << 30, extent_bytes: 4 << 20, ..Setup::default() })
}

fn filled(shape: &Shape) -> Rig {
    let rig = rig();
    for writes in shape.chunks(500) {
        rig.commit(writes.iter().map(put).collect());
    }
    rig
}

fn put((key, bytes): &(u64, usize)) -> Write {
    (key.to_be_bytes().to_vec(), Some(vec![b'v'; *bytes]))
}

fn uniform(random: &mut Rng) -> Shape {
    scattered(random, MOST)
}

fn scattered(random: &mut Rng, entries: u64) -> Shape {
    sorted((0..entries).map(|_| (random.below(u64::MAX), 20)).collect())
}

/// The more entries, the lower the key: half of them in the lowest thousandth.
fn skewed(random: &mut Rng) -> Shape {
    let skew = |u: f64| (u.powi(20) * 1e15) as u64;
    sorted((0..ENTRIES).map(|_| (skew(random.below(1 << 40) as f64 / (1u64 << 40) as f64), 20)).collect())
}

/// A hundred clusters with gaps between; rows of every other one are ten times as long.
fn clustered(_: &mut Rng) -> Shape {
    let of = |n: u64| n / (ENTRIES / 100);
    (0..ENTRIES).map(|n| ((of(n) << 40) | n, if of(n).is_multiple_of(2) { 20 } else { 200 })).collect()
}

fn sorted(mut shape: Shape) -> Shape {
    shape.sort_unstable();
    shape.dedup_by_key(|(key, _)| *key);
    shape
}

fn bound(random: &mut Rng, keys: &[u64]) -> Bound<Vec<u8>> {
    let at = random.index(keys.len());
    // Also keys that are not there.
    let key = keys[at].wrapping_add(random.below(2)).to_be_bytes().to_vec();
    match random.below(9) {
        0 => Bound::Unbounded,
        1..5 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

/// A range of about `width` keys, or of any width.
fn range(random: &mut Rng, keys: &[u64], width: Option<usize>) -> KeyRange {
    let Some(width) = width else {
        let (mut low, mut high) = (bound(random, keys), bound(random, keys));
        if let (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) = (&low, &high)
            && a > b
        {
            std::mem::swap(&mut low, &mut high);
        }
        return KeyRange { low, high };
    };
    let first = random.index(keys.len());
    let last = keys[(first + width).min(keys.len() - 1)];
    let (low, high) = (keys[first].to_be_bytes().to_vec(), last.to_be_bytes().to_vec());
    KeyRange { low: Bound::Included(low), high: Bound::Included(high) }
}

fn exact(keys: &[u64], range: &KeyRange) -> u64 {
    let low = keys.partition_point(|key| range.is_below(&key.to_be_bytes()));
    let high = keys.partition_point(|key| !range.is_above(&key.to_be_bytes()));
    high.saturating_sub(low) as u64
}

fn check_ranges(what: &str, rig: &Rig, keys: &[u64], random: &mut Rng) {
    for round in 0..1000 {
        let width = [None, Some(1), Some(30), Some(500), Some(5_000)][round % 5];
        let range = range(random, keys, width);
        let (exact, estimate) = (exact(keys, &range), rig.tree.estimate(range.bounds()).unwrap());
        let near = if width.is_some_and(|width| width <= 30) {
            // One leaf, or neighbours.
            estimate == exact.max(u64::from(estimate > 0))
        } else {
            // Or off by a thousandth of the table: where all but the last of many leaves are empty, nobody looks.
            let little = keys.len() as u64 / 500;
            estimate <= 2 * exact + little && exact <= 2 * estimate + little
        };
        assert!(near, "{what}, round {round}: {estimate} for {exact} keys in {range:?}");
        assert!(estimate > 0 || exact == 0, "{what}: nothing in {range:?}");
    }
}

/// Guard: `LOOKS`.
#[test]
fn an_estimate_takes_microseconds() {
    let shape = uniform(&mut Rng::new(3));
    let rig = filled(&shape);
    let keys: Vec<u64> = shape.iter().map(|(key, _)| *key).collect();
    let mut random = Rng::new(6);
    let ranges: Vec<KeyRange> = (0..1000).map(|_| range(&mut random, &keys, None)).collect();
    let started = vfs::time::Instant::now();
    ranges.iter().for_each(|range| assert!(rig.tree.estimate(range.bounds()).is_ok()));
    let each = started.elapsed() / 1000;
    println!("{each:?} for an estimate");
    assert!(each.as_millis() < 2, "{each:?} for an estimate, on a machine however busy");
}

/// Guards: the groups of `collect_whole`, the places looked at in `weigh`.
#[test]
fn an_estimate_is_within_a_factor_of_two() {
    let shapes: [(&str, Maker); 3] = [("uniform", uniform), ("skewed", skewed), ("clustered", clustered)];
    for (n, (what, shape)) in shapes.into_iter().enumerate() {
        let mut random = Rng::new(n as u64);
        let shape = shape(&mut random);
        let rig = filled(&shape);
        let keys: Vec<u64> = shape.iter().map(|(key, _)| *key).collect();
        check_ranges(what, &rig, &keys, &mut random);
        rig.checkpoint();
        let rig = rig.reopen(false);
        check_ranges(&format!("{what}, opened again"), &rig, &keys, &mut random);
        let loads = rig.tree.stats().loads;
        assert!(loads <= 2 * 1000, "{loads} leaves were read for 1000 estimates");
    }
}

#[test]
fn deleted_keys_are_not_counted_and_yet_nothing_is_not_said_too_early() {
    let mut random = Rng::new(5);
    let shape = scattered(&mut random, ENTRIES);
    let rig = filled(&shape);
    // Somebody still sees all of it.
    rig.snapshots.lock().push(rig.now());
    let (gone, kept): (Shape, Shape) = shape.iter().partition(|(key, _)| *key < u64::MAX / 2 || key % 3 == 0);
    for keys in gone.chunks(500) {
        rig.commit(keys.iter().map(|(key, _)| (key.to_be_bytes().to_vec(), None)).collect());
    }
    let keys: Vec<u64> = kept.iter().map(|(key, _)| *key).collect();
    check_ranges("deleted", &rig, &keys, &mut random);
    let middle = (u64::MAX / 4).to_be_bytes();
    assert_eq!(rig.tree.estimate((Bound::Unbounded, Bound::Excluded(&middle))).unwrap(), 1);
    rig.snapshots.lock().clear();
    rig.maintain_fully();
    assert_eq!(rig.tree.estimate((Bound::Unbounded, Bound::Excluded(&[0; 8]))).unwrap(), 0);
}

/// Guard: the runs in `estimate`.
#[test]
fn what_is_not_drained_counts() {
    let shape = scattered(&mut Rng::new(8), ENTRIES);
    let all = (Bound::Unbounded, Bound::Unbounded);
    let near = |estimate: u64, exact: u64| estimate <= exact + exact / 10 && exact <= estimate + estimate / 10;
    for in_file in [false, true] {
        let rig = rig();
        let attach = |n: u64, writes: Vec<Write>| match in_file {
            true => rig.attach_file(n, writes),
            false => rig.attach(writes),
        };
        attach(1, shape.iter().map(put).collect());
        let stats = rig.tree.stats();
        let keys: Vec<u64> = shape.iter().map(|(key, _)| *key).collect();
        assert!(near(stats.live_keys + stats.run_keys as u64, keys.len() as u64), "{stats:?}");
        check_ranges("attached", &rig, &keys, &mut Rng::new(1));
        rig.maintain();
        check_ranges("partly drained", &rig, &keys, &mut Rng::new(2));
        assert!(rig.tree.split_keys(24).unwrap().len() >= 12);
        rig.maintain_fully();
        let gone = || shape.iter().map(|(key, _)| (key.to_be_bytes().to_vec(), None));
        attach(2, gone().take(shape.len() / 2).collect());
        rig.maintain();
        let left = (keys.len() - keys.len() / 2) as u64;
        assert!(near(rig.tree.estimate(all).unwrap(), left), "{} for {left}", rig.tree.estimate(all).unwrap());
        let stats = rig.tree.stats();
        assert!(near((stats.live_keys as i64 + stats.run_keys) as u64, left), "{stats:?}");
    }
}

#[test]
fn nothing_and_little() {
    let rig = rig();
    let all = (Bound::Unbounded, Bound::Unbounded);
    assert_eq!(rig.tree.estimate(all).unwrap(), 0);
    rig.put(b"b", b"1");
    assert_eq!(rig.tree.estimate(all).unwrap(), 1);
    assert_eq!(rig.tree.estimate((Bound::Excluded(b"b"), Bound::Unbounded)).unwrap(), 0);
    assert_eq!(rig.tree.estimate((Bound::Included(b"b"), Bound::Included(b"b"))).unwrap(), 1);
    assert_eq!(rig.tree.estimate((Bound::Included(b"c"), Bound::Included(b"a"))).unwrap(), 0);
    assert_eq!(rig.tree.split_keys(9).unwrap(), [b""]);
}

/// Keys that cut the tree are spread over it.
#[test]
fn split_keys_are_spread() {
    let shape = skewed(&mut Rng::new(4));
    let rig = filled(&shape);
    let keys: Vec<u64> = shape.iter().map(|(key, _)| *key).collect();
    let cuts = rig.tree.split_keys(20).unwrap();
    assert!(cuts.len() == 21 && cuts.is_sorted());
    for pair in cuts.windows(2) {
        let range = KeyRange { low: Bound::Included(pair[0].clone()), high: Bound::Excluded(pair[1].clone()) };
        let between = exact(&keys, &range);
        assert!(between < keys.len() as u64 / 4, "{between} of {} keys between two cuts", keys.len());
    }
}

/// All short ranges, with every kind of bounds: guard: the fences in `count_leaves`.
#[test]
fn short_ranges_are_counted_exactly() {
    let rig = Rig::new(Setup { node_bytes: 16 << 10, ..Setup::default() });
    rig.commit((0..1000u64).map(|key| put(&(key, 0))).collect());
    let keys: Vec<u64> = (0..1000).collect();
    for low in keys.iter().map(|key| key.to_be_bytes().to_vec()) {
        for width in [0, 1, 76, 77, 200] {
            let high = (u64::from_be_bytes(low[..].try_into().unwrap()) + width).to_be_bytes().to_vec();
            for low in [Bound::Included(low.clone()), Bound::Excluded(low.clone())] {
                for high in [Bound::Included(high.clone()), Bound::Excluded(high.clone())] {
                    let range = KeyRange { low: low.clone(), high };
                    assert_eq!(rig.tree.estimate(range.bounds()).unwrap(), exact(&keys, &range), "{range:?}");
                }
            }
        }
    }
}
