//! What a commit reserved is there when it is applied [A1].

use std::sync::Arc;

use base::CommitTs;
use index::{Index, Reservation};

use super::{filled, in_thread, simulated, small, thin};
use crate::common::{Rig, batch, key};

/// Another commit splits the leaves that were reserved, and everything that may be evicted is.
#[test]
fn a1_apply_after_reserve_does_no_io() {
    let rig = filled(small(), 400);
    rig.checkpoint();
    rig.evict_all();
    let writes: Vec<_> = [101, 301, 303, 777].map(|n| (key(n), Some(b"late".to_vec()))).to_vec();
    let batch = batch(&writes);
    let Reservation::Direct(reserved) = rig.tree.reserve(&batch).unwrap() else {
        panic!("four leaves are not too cold")
    };
    let splits = rig.tree.stats().splits;
    // The leaves are split so that the reserved keys are in right halves, too.
    for n in [100, 300, 302, 776] {
        let near = |i: u64| [key(n), format!("/{i:03}").into_bytes()].concat();
        rig.commit((0..30).map(|i| (near(i), Some(vec![b'x'; 20]))).collect());
        let before = |i: u64| [key(n - 1), format!("/{i:03}").into_bytes()].concat();
        rig.commit((0..30).map(|i| (before(i), Some(vec![b'x'; 20]))).collect());
    }
    assert!(rig.tree.stats().splits > splits + 8);
    rig.evict_all();
    let (reads, writes_before) = (rig.vfs.reads(), rig.vfs.writes());
    rig.vfs.fail_reads(true);
    rig.tree.apply(&batch, reserved, CommitTs(rig.now().0 + 16), &rig.view());
    rig.vfs.fail_reads(false);
    assert_eq!((rig.vfs.reads(), rig.vfs.writes()), (reads, writes_before));
    for (key, value) in writes {
        assert_eq!(rig.newest(key), value);
    }
    // Once it is applied, nothing is held any more.
    rig.evict_all();
    assert!(rig.tree.stats().memory_bytes < 200_000, "{:?}", rig.tree.stats());
}

/// A slot that was EMPTY when it was reserved is filled by another commit, written and evicted.
#[test]
fn a1_an_empty_slot_is_reserved_too() {
    let rig = filled(small(), 200);
    rig.commit((0..200).map(|n| (key(n * 2), None)).collect());
    rig.maintain_fully();
    assert_eq!(rig.tree.stats().leaves, 0);
    let writes = vec![(key(50), Some(b"mine".to_vec()))];
    let batch = batch(&writes);
    let Reservation::Direct(reserved) = rig.tree.reserve(&batch).unwrap() else { panic!("nothing is cold") };
    rig.put(key(51), "other");
    rig.evict_all();
    rig.vfs.fail_reads(true);
    rig.tree.apply(&batch, reserved, CommitTs(rig.now().0 + 16), &rig.view());
    rig.vfs.fail_reads(false);
    assert_eq!(rig.keys(), [key(50), key(51)]);
}

/// Leaves are looked for ahead; before the first of them is latched a commit that came earlier splits it between two operations. Guard: where it ends is asked of the
/// node above only if that is the same still.
#[test]
fn a1_a_leaf_that_is_split_before_it_is_latched_is_reserved_in_both_halves() {
    simulated(|sim| {
        let rig = Arc::new(filled(small(), 400));
        rig.checkpoint();
        let near = |n: u64, i: u64| [key(n), format!("/{i:03}").into_bytes()].concat();
        let late = || Some(b"late".to_vec());
        let writes = vec![(key(81), late()), (near(101, 29), late()), (key(701), late())];
        let between = batch(&(1..29).map(|i| (near(101, i), Some(vec![b'x'; 20]))).collect::<Vec<_>>());
        let earlier = reserve(&rig, &between);
        let ahead = sim.hold("tree.looked_ahead");
        let reserving = {
            let batch = batch(&writes);
            in_thread(&rig, move |rig| {
                let reserved = reserve(rig, &batch);
                rig.evict_all();
                rig.vfs.fail_reads(true);
                rig.tree.apply(&batch, reserved, CommitTs(rig.now().0 + 32), &rig.view());
                rig.vfs.fail_reads(false);
            })
        };
        ahead.wait_reached();
        let splits = rig.tree.stats().splits;
        rig.tree.apply(&between, earlier, CommitTs(rig.now().0 + 16), &rig.view());
        assert!(rig.tree.stats().splits > splits);
        ahead.open();
        reserving.join().unwrap();
        for (key, value) in writes {
            assert_eq!(rig.newest(key), value);
        }
    });
}

fn reserve(rig: &Rig, batch: &index::Batch) -> Box<dyn index::Reserved> {
    let Reservation::Direct(reserved) = rig.tree.reserve(batch).unwrap() else { panic!("not too cold") };
    reserved
}

/// A leaf that is reserved is merged into its left neighbour, which is not; that is written, and clean.
#[test]
fn a1_a_merged_leaf_is_still_reserved() {
    let rig = thin();
    let writes = vec![(key(79), Some(b"late".to_vec()))];
    let batch = batch(&writes);
    let reserved = reserve(&rig, &batch);
    let leaves = rig.tree.stats().leaves;
    rig.maintain_fully();
    assert!(rig.tree.stats().leaves < leaves);
    rig.evict_all();
    rig.vfs.fail_reads(true);
    rig.tree.apply(&batch, reserved, CommitTs(rig.now().0 + 16), &rig.view());
    rig.vfs.fail_reads(false);
    assert_eq!(rig.newest(key(79)), Some(b"late".to_vec()));
}

/// Two commits have reserved an EMPTY slot, which is folded into its left neighbour. The first one fills it; before the
/// second one comes, it is written and everything is thrown out that may be.
#[test]
fn a1_a_folded_slot_is_still_reserved() {
    let rig = filled(small(), 200);
    rig.commit((60..140).map(|n| (key(n * 2), None)).collect());
    rig.put("z", "moves the floor");
    rig.maintain_fully();
    let unlinks = rig.tree.stats().unlinks;
    assert!(unlinks > 0);
    rig.commit((0..60).chain(140..200).map(|n| (key(n * 2), None)).collect());
    let batches = [200, 201].map(|n| batch(&[(key(n), Some(b"late".to_vec()))]));
    let [first, second] = [0, 1].map(|i| reserve(&rig, &batches[i]));
    rig.maintain_fully();
    assert!(rig.tree.stats().unlinks > unlinks);
    let ts = rig.now().0;
    rig.tree.apply(&batches[0], first, CommitTs(ts + 16), &rig.view());
    rig.evict_all();
    rig.vfs.fail_reads(true);
    rig.tree.apply(&batches[1], second, CommitTs(ts + 32), &rig.view());
    rig.vfs.fail_reads(false);
    assert_eq!(rig.keys(), [key(200), key(201), b"z".to_vec()]);
}

/// A commit over more cold leaves than it may wait for gets none of them, and is attached whole.
#[test]
fn a1_a_commit_over_too_many_cold_leaves_is_a_run() {
    let rig = filled(small(), 2000);
    rig.checkpoint();
    rig.evict_all();
    let (leaves, loads) = (rig.tree.stats().leaves, rig.tree.stats().loads);
    assert!(leaves > 100, "{leaves}");
    let writes: Vec<_> = (0..2000).step_by(7).map(|n| (key(n * 2), Some(b"second".to_vec()))).collect();
    assert!(matches!(rig.tree.reserve(&batch(&writes)).unwrap(), Reservation::TooCold));
    assert_eq!(rig.tree.stats().loads, loads, "it would wait for no leaf");
    rig.commit(writes.clone());
    assert!(rig.tree.stats().run_bytes > 0);
    for (key, value) in writes {
        assert_eq!(rig.newest(key), value);
    }
}
