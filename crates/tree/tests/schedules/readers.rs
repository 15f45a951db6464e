//! Readers and writers that come by what is changing: splits, merges, runs, loads [A2, A3, A10].

use std::ops::Bound;
use std::sync::Arc;

use base::{CommitTs, GcView};
use index::{Direction, Index, ReadAt, Reservation};

use super::{filled, in_thread, simulated, small, thin};
use crate::common::{self, Rig, batch, key, scan};

/// A reader and a writer stand before a leaf that is split under them.
#[test]
fn a2_whoever_comes_by_an_old_parent_starts_again() {
    simulated(|sim| {
        let rig = Arc::new(filled(small(), 10));
        let gate = sim.hold("tree.before_latch");
        let reader = in_thread(&rig, |rig| assert_eq!(rig.newest(key(18)), Some(b"first".to_vec())));
        gate.wait_reached();
        let gate_2 = sim.hold("tree.before_latch");
        let writer = in_thread(&rig, |rig| {
            let batch = batch(&[(key(19), Some(b"written".to_vec()))]);
            let Reservation::Direct(reserved) = rig.tree.reserve(&batch).unwrap() else { panic!("nothing is cold") };
            rig.tree.apply(&batch, reserved, CommitTs(1 << 20), &GcView::keep_all());
        });
        gate_2.wait_reached();
        let splits = rig.tree.stats().splits;
        for n in 0..10 {
            rig.put(key(n * 2 + 1), [b'x'; 100]);
        }
        assert!(rig.tree.stats().splits > splits);
        gate.open();
        gate_2.open();
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(rig.newest(key(19)), Some(b"written".to_vec()));
        rig.verify();
    });
}

/// A reader has chosen an inner node by the root, and the node is split before the reader loads it: its parent-to-be is
/// current, and no longer the parent of what it seeks.
#[test]
fn a2_a_current_parent_reached_by_an_old_grandparent() {
    simulated(|sim| {
        for sought in [1, 150, 399] {
            let rig = Arc::new(filled(small(), 400));
            assert!(rig.tree.stats().height >= 3);
            let gate = sim.hold("tree.descend");
            let reader = in_thread(&rig, move |rig| {
                assert_eq!(rig.newest(key(sought * 2)), Some(b"first".to_vec()));
            });
            gate.wait_reached();
            for n in 0..400 {
                rig.put(key(n * 2 + 1), [b'x'; 100]);
            }
            gate.open();
            reader.join().unwrap();
        }
    });
}

/// The leaf that a reader and a writer stand before is merged into its neighbour.
#[test]
fn a2_a_merged_leaf_sends_its_readers_back() {
    simulated(|sim| {
        let rig = Arc::new(thin());
        let last = rig.keys();
        let gate = sim.hold("tree.before_latch");
        let reader = in_thread(&rig, |rig| assert_eq!(rig.newest(key(78)), Some(b"first".to_vec())));
        gate.wait_reached();
        let gate_2 = sim.hold("tree.before_latch");
        let writer = in_thread(&rig, |rig| {
            let writes = [(key(79), Some(b"written".to_vec()))];
            assert!(common::apply(&rig.tree, &writes, CommitTs(1 << 20), &GcView::keep_all()));
        });
        gate_2.wait_reached();
        let leaves = rig.tree.stats().leaves;
        rig.maintain_fully();
        assert!(rig.tree.stats().leaves < leaves);
        gate.open();
        assert_eq!(rig.keys(), last);
        gate_2.open();
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(rig.newest(key(79)), Some(b"written".to_vec()));
        assert_eq!(rig.keys().len(), last.len() + 1);
        rig.verify();
    });
}

/// A run is drained and removed, and its key collected, between a reader's list of runs and its leaf.
#[test]
fn a3_a_run_removed_while_leaves_are_read() {
    simulated(|sim| {
        for by_cursor in [false, true] {
            let rig = Arc::new(filled(small(), 10));
            rig.attach(vec![(key(4), Some(b"from the run".to_vec()))]);
            rig.delete(key(4));
            let at = ReadAt::Snapshot(rig.now());
            let gate = sim.hold("tree.before_latch");
            let reader = in_thread(&rig, move |rig| {
                if by_cursor {
                    let range = (Bound::Included(key(3)), Bound::Included(key(5)));
                    let range = (range.0.as_ref().map(Vec::as_slice), range.1.as_ref().map(Vec::as_slice));
                    assert!(scan(&rig.tree, at, range, Direction::Forward, 3).is_empty());
                } else {
                    assert_eq!(rig.get(at, key(4)), None);
                }
            });
            gate.wait_reached();
            rig.put(key(1000), "moves the floor");
            rig.maintain_fully();
            assert_eq!(rig.tree.stats().run_bytes, 0);
            rig.put(key(4), "again");
            rig.delete(key(4));
            gate.open();
            reader.join().unwrap();
        }
    });
}

/// While a leaf is being read, others wait for it, and nobody evicts, unlinks or reads it a second time.
#[test]
fn a10_one_thread_reads_a_leaf_and_all_others_leave_it_alone() {
    simulated(|sim| {
        let rig = filled(small(), 40);
        rig.commit((0..20).map(|n| (key(n * 2), None)).collect());
        rig.put("z", "moves the floor");
        let snapshot = CommitTs(16);
        rig.snapshots.lock().push(snapshot);
        rig.checkpoint();
        let rig = Arc::new(rig.reopen(false));
        assert_eq!(rig.newest(key(79)), None, "the inner nodes are in memory");
        rig.evict_all();
        let loads = rig.tree.stats().loads;
        let gate = sim.hold("tree.loading");
        let at = ReadAt::Snapshot(snapshot);
        let read = move |rig: &Rig| assert_eq!(rig.get(at, key(2)), Some(b"first".to_vec()));
        let first = in_thread(&rig, read);
        gate.wait_reached();
        let second = in_thread(&rig, read);
        rig.evict_all();
        rig.maintain();
        gate.open();
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(rig.tree.stats().loads, loads + 1);
        rig.verify();
    });
}

/// A fault while a leaf is read reaches each who waited, and leaves the leaf as it was.
#[test]
fn a10_a_fault_leaves_the_leaf_cold() {
    let rig = filled(small(), 40);
    rig.checkpoint();
    let rig = rig.reopen(false);
    assert!(rig.newest(key(2)).is_some());
    rig.evict_all();
    rig.vfs.fail_reads(true);
    let mut found = 0;
    let result = rig.tree.get_many(ReadAt::Newest, &[&key(70)], &mut |_, _, _| found += 1);
    assert!(result.is_err() && found == 0);
    let mut cursor = rig.tree.cursor(ReadAt::Newest, (Bound::Unbounded, Bound::Unbounded), Direction::Forward);
    assert!(cursor.fill(&mut index::EntryBatch::new(), 10).is_err());
    assert!(rig.tree.reserve(&batch(&[(key(71), None)])).is_err());
    rig.vfs.fail_reads(false);
    assert_eq!(rig.newest(key(70)), Some(b"first".to_vec()));
    assert_eq!(rig.keys().len(), 40);
}

/// A leaf has two places in the cache, since it was unlinked and filled again; by one it was thrown out. While it is
/// being read, the clock comes by the other one: a second reader would bring the image back over what was committed.
#[test]
fn a10_a_leaf_that_is_being_read_is_not_evicted() {
    simulated(|sim| {
        let rig = filled(small(), 5);
        rig.commit((0..5).map(|n| (key(n * 2), None)).collect());
        rig.put("z", "moves the floor");
        rig.delete("z");
        rig.maintain_fully();
        let fresh = rig.tree.stats().leaves == 0;
        rig.put(key(4), "second");
        rig.checkpoint();
        assert!(fresh && rig.cache.stats().pages == 2, "{} {:?}", rig.tree.draw(), rig.cache.stats());
        rig.evict_one();
        let rig = Arc::new(rig);
        let loads = rig.tree.stats().loads;
        let gate = sim.hold("tree.loading");
        let read = |rig: &Rig| assert_eq!(rig.newest(key(4)), Some(b"second".to_vec()));
        let first = in_thread(&rig, read);
        gate.wait_reached();
        assert_eq!(rig.cache.stats().pages, 1);
        rig.evict_all();
        let second = in_thread(&rig, read);
        vfs::thread::sleep(std::time::Duration::from_millis(50));
        gate.open();
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(rig.tree.stats().loads, loads + 1);
        rig.verify();
    });
}

/// Whoever asks for maintenance until nothing is left waits for a step that another thread is about: "busy" is not "done".
#[test]
fn a_step_of_maintenance_waits_for_another_one() {
    simulated(|sim| {
        let rig = Arc::new(filled(small(), 10));
        rig.attach((0..600).map(|n| (key(n), Some(b"from the run".to_vec()))).collect());
        let gate = sim.hold("tree.drain_reserved");
        let background = in_thread(&rig, |rig| {
            rig.maintain();
        });
        gate.wait_reached();
        let settler = in_thread(&rig, |rig| {
            rig.maintain_fully();
            assert_eq!(rig.tree.stats().run_bytes, 0);
        });
        vfs::thread::sleep(std::time::Duration::from_millis(50));
        gate.open();
        settler.join().unwrap();
        background.join().unwrap();
    });
}
