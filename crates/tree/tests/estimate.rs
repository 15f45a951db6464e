//! Estimates of a range against the exact count, over many shapes of data.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;

use crate::common::{Rig, Setup, Write};
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

/// Every other row lies beside leaves on disk, then in the buffers above them, also with some leaves in memory, then comes with the database
/// opened again, then goes into leaves that are read. Guards: what is pending in `live_of_leaf`, the buffer in `weigh`, and what leaves in memory
/// or images have of it; the buffer in the counts of a checkpoint.
#[test]
fn messages_count_wherever_they_are() {
    let rig = Rig::new(Setup { node_bytes: 4096, buffered: true, extent_bytes: 4 << 20, ..Setup::default() });
    let mut random = Rng::new(9);
    let shape = scattered(&mut random, 40_000);
    let keys: Vec<u64> = shape.iter().map(|(key, _)| *key).collect();
    let (first, mut then): (Shape, Shape) = shape.iter().partition(|(key, _)| key % 2 == 0);
    first.chunks(500).for_each(|rows| _ = rig.commit(rows.iter().map(put).collect()));
    rig.checkpoint();
    rig.evict_all();
    let check = |what: &str, rig: &Rig| {
        let (all, near) = (keys.len() as u64, |found: u64, exact: u64, part| found.abs_diff(exact) <= exact / part);
        let rows = rig.tree.stats().live_keys;
        assert!(near(rows, all, 10), "{what}: {rows} rows of {all}");
        for eighth in 0..8 {
            let key = |n: usize| keys[(keys.len() - 1) * n / 8].to_be_bytes().to_vec();
            let range = KeyRange { low: Bound::Included(key(eighth)), high: Bound::Excluded(key(eighth + 1)) };
            let (exact, found) = (exact(&keys, &range), rig.tree.estimate(range.bounds()).unwrap());
            assert!(near(found, exact, 5), "{what}: {found} of {exact} in the {eighth}th eighth");
        }
    };
    then.sort_by_cached_key(|_| random.u64());
    then.chunks(500).for_each(|rows| _ = rig.commit(rows.iter().map(put).collect()));
    assert!(rig.tree.stats().resident_leaves < 20, "they wait beside the leaves");
    check("pending", &rig);
    rig.checkpoint();
    let in_buffers = |rig: &Rig| rig.tree.shape().unwrap().segment_bytes;
    assert!(in_buffers(&rig) > 100_000);
    check("in buffers", &rig);
    let rig = rig.reopen(false);
    check("in buffers, opened again", &rig);
    // One leaf in four: of those, some are split.
    keys.iter().step_by(4 * 60).for_each(|key| assert!(rig.newest(key.to_be_bytes()).is_some()));
    check("some leaves in memory", &rig);
    rig.evict_all();
    check("some leaves written", &rig);
    rig.checkpoint();
    assert!(in_buffers(&rig) > 100_000);
    let rig = rig.reopen(false);
    check("some leaves written, opened again", &rig);
    rig.verify();
    assert_eq!(rig.keys().len(), keys.len());
    check("read", &rig);
    rig.checkpoint();
    let rig = rig.reopen(false);
    check("read and opened again", &rig);
    rig.verify();
}

/// More deletes wait in buffers than there are rows, of keys that are not there: an image says no less than nothing, and what it leaves
/// out does not stay in the counts when the leaves get them. Guard: what a loaded node's image says too much is taken off.
#[test]
fn deletes_of_nothing_do_not_count_for_long() {
    let rig = Rig::new(Setup { node_bytes: 4096, buffered: true, extent_bytes: 4 << 20, ..Setup::default() });
    let keys: Vec<u64> = (0..4000).map(|n| n * 4).collect();
    keys.chunks(500).for_each(|keys| _ = rig.commit(keys.iter().map(|key| put(&(*key, 20))).collect()));
    rig.checkpoint();
    rig.evict_all();
    for beside in 1..4 {
        for keys in keys.chunks(500) {
            let gone = |key: &u64| ((key + beside).to_be_bytes().to_vec(), None);
            rig.commit(keys.iter().map(gone).collect());
        }
    }
    rig.checkpoint();
    let rig = rig.reopen(false);
    assert_eq!(rig.tree.stats().live_keys, 0, "12,000 deletes, 4000 rows");
    assert_eq!(rig.keys().len(), keys.len());
    let rows = rig.tree.stats().live_keys;
    assert!(rows.abs_diff(4000) < 200, "{rows} rows instead of 4000");
}

/// Leaves whose rows are all deleted by messages are unlinked unread, on disk or parked: what the counts have for them goes with them. Guards:
/// with the image, what segments had when a leaf left memory, and what went there since; of a parked one what is pending, once.
#[test]
fn what_is_unlinked_unread_is_no_longer_counted() {
    for (what, checkpoints, evicted, read) in [
        ("in the buffer", 2..4, true, true),
        ("there after the leaf went", 1..3, true, true),
        ("in the buffer, parked before", 2..4, true, false),
        ("parked, and pending", 2..3, false, false),
        ("parked, pending, and in the buffer", 1..3, false, false),
    ] {
        let rig = Rig::new(Setup { node_bytes: 4096, buffered: true, extent_bytes: 4 << 20, ..Setup::default() });
        let commit = |rows: Vec<Write>| rows.chunks(100).for_each(|rows| _ = rig.commit(rows.to_vec()));
        commit((0..4000).map(|key| put(&(key, 20))).collect());
        rig.checkpoint();
        rig.evict_all();
        rig.keys();
        for round in 0..4 {
            commit((round..4000).step_by(4).map(|key: u64| (key.to_be_bytes().to_vec(), None)).collect());
            if read {
                assert_eq!(rig.keys().len() as u64, 3000 - round * 1000, "{what}: all leaves are in memory");
            }
            if checkpoints.contains(&round) {
                rig.checkpoint();
            }
        }
        if evicted {
            rig.evict_all();
            rig.checkpoint();
        }
        rig.put("z", "moves the floor");
        let before = rig.tree.stats();
        rig.maintain_fully();
        let stats = rig.tree.stats();
        assert!(stats.unlinks > 20 + (stats.loads - before.loads), "{what}, most unread: {stats:?}");
        assert_eq!((before.live_keys, stats.live_keys), (1, 1), "{what}");
        assert!(stats.dead_versions < 50 * (stats.leaves + 2), "{what}, but for leaves that are there: {stats:?}");
        rig.put("y", "counts");
        assert_eq!(rig.tree.stats().live_keys, 2, "{what}: nothing was below 0");
        rig.verify();
    }
}

/// Every inner node is cut while its buffer has blocks for leaves on both sides. Guard: each half takes its part of them, not all.
#[test]
fn blocks_that_two_nodes_share_count_once() {
    for is_opened_again in [false, true] {
        let rig = Rig::new(Setup { node_bytes: 1024, buffered: true, extent_bytes: 4 << 20, ..Setup::default() });
        let commit = |rig: &Rig, rows: Vec<u64>| {
            rows.chunks(500).for_each(|rows| _ = rig.commit(rows.iter().map(|key| put(&(*key, 20))).collect()))
        };
        commit(&rig, (0..8000).map(|n| n * 100).collect());
        rig.checkpoint();
        rig.evict_all();
        for round in 1..8 {
            commit(&rig, (0..8000).filter(|n| n % 10 == round).map(|n| n * 100 + 1).collect());
            rig.checkpoint();
        }
        let rig = if is_opened_again { rig.reopen(false) } else { rig };
        let before = rig.tree.shape().unwrap();
        assert!(before.segment_bytes > 50_000, "{before:?}");
        // Fifteen rows of each 240 are read and become many.
        let dense = (0..8000).filter(|n| n % 240 < 15);
        dense.clone().for_each(|n| assert!(rig.newest((n * 100u64).to_be_bytes()).is_some()));
        commit(&rig, dense.flat_map(|n| (2..62).map(move |beside| n * 100 + beside)).collect());
        let after = rig.tree.shape().unwrap();
        assert!(
            after.bottoms >= 2 * before.bottoms && after.segment_bytes > before.segment_bytes,
            "{before:?} {after:?}"
        );
        // Of the others nothing changed: 200 rows and 140 messages between each two.
        let (mut found, mut rows) = (0, 0);
        for first in (30..7700).step_by(240) {
            let key = |n: u64| (n * 100).to_be_bytes().to_vec();
            let range = KeyRange { low: Bound::Included(key(first)), high: Bound::Excluded(key(first + 200)) };
            found += rig.tree.estimate(range.bounds()).unwrap();
            rows += 340;
        }
        assert!(found.abs_diff(rows) < rows / 10, "{found} for {rows}, opened again: {is_opened_again}");
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
