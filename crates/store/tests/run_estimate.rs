//! Estimates of ranges of a run against the exact count.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;

use crate::common::{Scratch, real};
use trefoil_store::{Compression, Run, RunWriter};
use vfs::random::Rng;

fn key(n: u64) -> Vec<u8> {
    format!("row {n:08}").into_bytes()
}

fn check(run: &Run, entries: u64, exactly: bool) {
    let mut random = Rng::new(9);
    for _ in 0..500 {
        let (a, b) = (random.below(entries), random.below(entries));
        let (low, high) = (a.min(b), a.max(b));
        let high = if random.chance(0.4) { (low + random.below(60)).min(entries - 1) } else { high };
        let found = run.estimate(Bound::Excluded(&key(low)), Bound::Included(&key(high))).unwrap();
        let exact = high - low;
        let near = found.puts + found.deletes;
        let tolerance = if exactly || exact < 64 { 0 } else { exact / 10 + entries / 200 };
        assert!(near.abs_diff(exact) <= tolerance, "{near} instead of {exact} from {low}");
        assert!(exact < 640 || found.deletes.abs_diff(exact / 4) < exact / 20, "{} deletes of {exact}", found.deletes);
    }
    let keys = run.split_keys(20).unwrap();
    assert!((10..=20).contains(&keys.len()) && keys.is_sorted(), "{} keys", keys.len());
}

/// Guards: the byte before an entry in `RunCursor::fraction`, the bound behind the range.
#[test]
fn ranges_are_counted_in_memory_and_in_files() {
    let entries = 60_000;
    let all = || (0..entries).map(|n| (key(n), (n % 4 != 3).then(|| vec![b'v'; 40])));
    check(&Run::from_sorted(all()), entries, true);
    let dir = Scratch::new("run-estimate");
    let vfs = real();
    let mut writer = RunWriter::create(vfs.clone(), dir.path(), 1, Compression::Lz4).unwrap();
    all().for_each(|(key, value)| writer.add(&key, value.as_deref()).unwrap());
    let meta = writer.finish().unwrap();
    check(&Run::open(&*vfs, dir.path(), &meta).unwrap(), entries, false);
}

/// Most entries have keys that are like their neighbours and hardly take a byte, and a few have large values. Guard: the blocks that are
/// looked at in `entries_of`, the bytes up to the next block.
#[test]
fn entries_of_unlike_sizes_are_counted() {
    let dir = Scratch::new("run-estimate-unlike");
    let vfs = real();
    let mut writer = RunWriter::create(vfs.clone(), dir.path(), 1, Compression::Lz4).unwrap();
    let mut random = Rng::new(3);
    let unlike = |random: &mut Rng, n: u64| {
        let text: Vec<u8> = (0..60).map(|_| b'a' + random.below(26) as u8).collect();
        [&(n << 32).to_be_bytes()[..], &text].concat()
    };
    // 24,000 alike, 6,000 unlike, 2,000 with values in blocks of their own, one behind the other.
    let alike = |n: u64| [&[0, 0, 0, 1][..], &n.to_be_bytes()].concat();
    (0..24_000).for_each(|n| writer.add(&alike(n), Some(b"")).unwrap());
    for n in 2..6002 {
        writer.add(&unlike(&mut random, n), Some(b"")).unwrap();
    }
    let large: Vec<u8> = (0..9000).map(|_| random.below(256) as u8).collect();
    (10_000..12_000).for_each(|n: u64| writer.add(&(n << 32).to_be_bytes(), Some(&large)).unwrap());
    let meta = writer.finish().unwrap();
    let run = Run::open(&*vfs, dir.path(), &meta).unwrap();
    let near = |low: &[u8], high: &[u8], exact: u64| {
        let found = run.estimate(Bound::Included(low), Bound::Excluded(high)).unwrap().puts;
        assert!(found * 2 >= exact && found <= exact * 2, "{found} of {exact}");
    };
    let at = |n: u64| (n << 32).to_be_bytes();
    near(&alike(0), &at(2), 24_000);
    near(&alike(1000), &alike(4000), 3000);
    near(&at(1000), &at(5000), 4000);
    near(&at(10_100), &at(11_900), 1800);
}
