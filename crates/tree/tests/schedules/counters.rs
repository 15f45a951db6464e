//! Counters [A21]: what is summed up, and when.

use base::CommitTs;
use index::ReadAt;
use index::counter::Counter;

use super::small;
use super::uncached::nearly_full;
use crate::common::{Rig, Setup, Write, key};

fn delta(n: u64, delta: i64) -> Write {
    (key(n), Some(Counter::Delta(delta).encode().to_vec()))
}

/// The sum as readers find it, from version to version, and how many versions were looked at.
fn sum(rig: &Rig, n: u64) -> (i64, u64) {
    let (mut sum, mut looks, mut at) = (0, 0, rig.now());
    loop {
        looks += 1;
        let mut version = None;
        let found = &mut |_: usize, ts: CommitTs, value: &[u8]| version = Some((ts, Counter::decode(value).unwrap()));
        index::Index::get_many(&*rig.tree, ReadAt::Snapshot(at), &[&key(n)], found).unwrap();
        match version {
            None => return (sum, looks),
            Some((_, Counter::Sum(rest))) => return (sum + rest, looks),
            Some((ts, Counter::Delta(delta))) => (sum, at) = (sum + delta, CommitTs(ts.0 - 1)),
        }
    }
}

/// Rows of some leaves, and a counter among them that was added to.
fn some(buffered: bool) -> Rig {
    let rig = Rig::new(Setup { buffered, counters: true, ..small() });
    for part in 0..4 {
        rig.commit((part * 50..part * 50 + 50).map(|n| delta(2 * n, 1)).collect());
    }
    rig
}

/// What a run adds, and what is in the leaf from before and after: nothing above the run is summed up before it is drained. Guard:
/// `Core::apply` caps the view.
#[test]
fn a21_nothing_is_summed_up_above_a_run_that_is_not_drained() {
    for buffered in [false, true] {
        let rig = some(buffered);
        rig.commit(vec![delta(100, 10)]);
        rig.attach(vec![delta(100, 100), delta(102, 100)]);
        rig.commit(vec![delta(100, 1000)]);
        rig.commit(vec![delta(100, 10_000)]);
        assert_eq!(sum(&rig, 100).0, 11_111);
        rig.maintain_fully();
        assert_eq!((sum(&rig, 100).0, sum(&rig, 102).0), (11_111, 101));
        rig.commit(vec![delta(100, 100_000)]);
        assert_eq!(sum(&rig, 100), (111_111, 2), "what the run added is in a sum");
        rig.checkpoint();
        rig.evict_all();
        assert_eq!(sum(&rig, 100).0, 111_111);
        rig.verify();
    }
}

/// What may still come, as in a recovery, holds sums back. Guard: `Runs::set_cap` counts what is expected late.
#[test]
fn a21_nothing_is_summed_up_above_what_is_expected_late() {
    let rig = some(true);
    index::Index::expect_late(&*rig.tree, Some(CommitTs(1)));
    rig.commit(vec![delta(100, 10)]);
    rig.commit(vec![delta(100, 100)]);
    rig.checkpoint();
    assert_eq!(sum(&rig, 100), (111, 4), "each addition is a version, and nothing is below them");
    index::Index::expect_late(&*rig.tree, None);
    rig.commit(vec![delta(100, 1000)]);
    assert_eq!(sum(&rig, 100), (1111, 2));
}

/// An image that is newer than F has as a sum what is replayed beside the leaf, which stays on disk. Guard: a point read of a
/// counter loads its leaf.
#[test]
fn a21_what_is_replayed_beside_a_sum_is_in_it() {
    let rig = some(true);
    rig.checkpoint();
    let before = rig.now();
    rig.commit(vec![delta(100, 10)]);
    rig.commit(vec![delta(100, 100)]);
    rig.evict_all();
    rig.checkpoint_as_of(before).unwrap();
    // The leaf has its image and messages; what they are together is written, and said to be of before.
    assert_eq!(sum(&rig, 100).0, 111);
    rig.commit((0..40).map(|n| delta(90 + n, 1000)).collect());
    rig.commit(vec![delta(100, 10_000)]);
    rig.maintain_fully();
    rig.evict_all();
    rig.checkpoint_as_of(before).unwrap();
    let rig = rig.reopen(true);
    let hog = nearly_full(&rig);
    assert_eq!(sum(&rig, 100).0, 11_111);
    drop(hog);
    assert_eq!(sum(&rig, 100).0, 11_111);
    rig.verify();
}
