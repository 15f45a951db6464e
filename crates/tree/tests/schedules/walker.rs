//! A checkpoint beside changes of leaves [A9].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{CommitTs, GcView, Lsn};
use index::{Direction, Index, ReadAt, Upkeep};
use vfs::sim::Handle;

use super::{filled, in_thread, simulated, small};
use crate::common::{self, Rig, key};

/// Where the walker is held, and how often it is let by: before it looks at the leaves, while they are being written,
/// when all of them are, and while their parent is.
const WALKER: [(&str, u64); 4] =
    [("tree.before_compose", 0), ("tree.leaf_written", 0), ("tree.before_compose", 1), ("tree.inner_written", 0)];

/// A checkpoint that is held there until `meanwhile` is done.
fn checkpoint_held(sim: &Handle, rig: &Arc<Rig>, (point, skip): (&str, u64), meanwhile: impl FnOnce()) {
    let gate = sim.hold_nth(point, skip);
    let checkpoint = in_thread(rig, |rig| {
        rig.checkpoint();
    });
    gate.wait_reached();
    meanwhile();
    gate.open();
    checkpoint.join().unwrap();
}

/// What changes behind the walker is in the next checkpoint.
#[test]
fn a9_a_change_behind_the_walker_is_noted() {
    simulated(|sim| {
        for held in WALKER {
            let rig = Arc::new(filled(small(), 60));
            checkpoint_held(sim, &rig, held, || {
                for n in 0..60 {
                    rig.put(key(n * 2), b"again");
                }
            });
            rig.checkpoint();
            let before = rig.all(ReadAt::Newest, Direction::Forward);
            let rig = Arc::into_inner(rig).unwrap().reopen(false);
            assert_eq!(rig.all(ReadAt::Newest, Direction::Forward), before, "{held:?}");
        }
    });
}

/// The clock has a leaf's write in flight when the walker looks at the leaf.
#[test]
fn a9_a_write_in_flight_is_waited_for() {
    simulated(|sim| {
        let rig = Arc::new(filled(small(), 10));
        let gate = sim.hold("tree.leaf_written");
        let clock = in_thread(&rig, Rig::evict_all);
        gate.wait_reached();
        let checkpoint = in_thread(&rig, |rig| {
            rig.checkpoint();
        });
        vfs::thread::sleep(std::time::Duration::from_millis(50));
        gate.open();
        clock.join().unwrap();
        checkpoint.join().unwrap();
        assert_eq!(Arc::into_inner(rig).unwrap().reopen(false).keys().len(), 10);
    });
}

/// A leaf that lacks what is newer than F is being written, and the write lands when its parent, which is being composed, has chosen
/// the image before. The leaf is clean from then on; the next checkpoint names what it has.
#[test]
fn a9_a_write_that_lands_while_its_parent_is_composed_is_noted() {
    simulated(|sim| {
        let rig = Arc::new(filled(small(), 10));
        rig.checkpoint();
        let old = rig.now();
        rig.put(key(4), b"again");
        let landing = sim.hold("tree.leaf_written");
        let clock = in_thread(&rig, Rig::evict_all);
        landing.wait_reached();
        let composing = sim.hold("tree.slots_chosen");
        let checkpoint = in_thread(&rig, move |rig| {
            rig.checkpoint_as_of(old).unwrap();
        });
        composing.wait_reached();
        landing.open();
        clock.join().unwrap();
        composing.open();
        checkpoint.join().unwrap();
        rig.checkpoint();
        let rig = Arc::into_inner(rig).unwrap().reopen(false);
        assert_eq!(rig.newest(key(4)), Some(b"again".to_vec()));
        rig.verify();
    });
}

/// Leaves split while the walker is about them.
#[test]
fn a9_a_leaf_splits_in_mid_walk() {
    simulated(|sim| {
        for held in WALKER {
            let rig = Arc::new(filled(small(), 60));
            let before = rig.all(ReadAt::Newest, Direction::Forward);
            checkpoint_held(sim, &rig, held, || {
                let splits = rig.tree.stats().splits;
                for n in 0..60 {
                    rig.put(key(n * 2 + 1), [b'x'; 60]);
                }
                assert!(rig.tree.stats().splits > splits);
            });
            let rig = Arc::into_inner(rig).unwrap();
            let skip = rig.manifest.lock().skip;
            let rig = rig.reopen(false);
            let at = ReadAt::Snapshot(skip.as_commit_ts());
            assert_eq!(rig.all(at, Direction::Forward), before, "{held:?}");
            rig.verify();
        }
    });
}

/// The same, and so much is put in that the root becomes one of two, then several levels grow; over an earlier image of
/// the root, and over none.
#[test]
fn a9_the_root_splits_in_mid_walk() {
    simulated(|sim| {
        for (held, earlier) in WALKER.into_iter().flat_map(|held| [(held, false), (held, true)]) {
            let rig = Arc::new(filled(small(), 60));
            if earlier {
                rig.checkpoint();
                rig.commit((0..60).map(|n| (key(n * 2), Some(b"again".to_vec()))).collect());
            }
            let before = rig.all(ReadAt::Newest, Direction::Forward);
            let height = rig.tree.stats().height;
            checkpoint_held(sim, &rig, held, || {
                for n in 0..600 {
                    rig.put([key(n % 120), format!("/{n}").into_bytes()].concat(), [b'x'; 60]);
                }
                assert!(rig.tree.stats().height > height);
            });
            let rig = Arc::into_inner(rig).unwrap();
            let skip = rig.manifest.lock().skip;
            let now = rig.all(ReadAt::Newest, Direction::Forward);
            let rig = rig.reopen(false);
            let then = rig.all(ReadAt::Snapshot(skip.as_commit_ts()), Direction::Forward);
            assert_eq!(then, before, "{held:?}, {earlier}");
            rig.verify();
            rig.now.store(rig.commits.lock().last().unwrap().ts.0, Ordering::SeqCst);
            let rig = rig.reopen(true);
            assert_eq!(rig.all(ReadAt::Newest, Direction::Forward), now);
            rig.checkpoint();
            assert_eq!(rig.reopen(false).all(ReadAt::Newest, Direction::Forward), now);
        }
    });
}

/// All leaves share one image. While one of them is being split, the root is cut in two before it.
#[test]
fn a9_a_right_half_learns_what_its_left_half_owes() {
    simulated(|sim| {
        let rig = Arc::new(filled(small(), 6));
        rig.checkpoint();
        let old = rig.now().0;
        let put = |row: u64, n: u8| rig.put([key(row), vec![b'/', n]].concat(), [b'x'; 60]);
        for row in [4, 1] {
            for n in 0..20 {
                put(row, n);
            }
        }
        let gate = sim.hold("tree.before_structure");
        let splitter = in_thread(&rig, |rig| {
            for n in 0..20 {
                let writes = [([key(10), vec![b'/', n]].concat(), Some(vec![b'x'; 60]))];
                common::apply(&rig.tree, &writes, CommitTs(1 << 20), &GcView::keep_all());
            }
        });
        gate.wait_reached();
        let height = rig.tree.stats().height;
        for n in 0..200 {
            put(0, n);
        }
        assert!(rig.tree.stats().height > height);
        gate.open();
        splitter.join().unwrap();
        // The image is complete to this F for all of them.
        rig.tree
            .checkpoint(&Upkeep { applied: Lsn(old), view: GcView::keep_all(), log: &*rig.log, tight: false })
            .unwrap();
        let _ = rig.space.save();
        rig.space.checkpoint_durable();
        rig.verify();
    });
}

/// A leaf's write is in flight when the leaf splits, and lands between the split's copy and the structure latch. A commit
/// that is late, and lower than the one that split the leaf, changes both halves; F of the next checkpoint lies between.
#[test]
fn a9_a_late_commit_in_a_half_whose_write_landed_during_the_split() {
    simulated(|sim| {
        let rig = Arc::new(filled(small(), 10));
        let landing = sim.hold("tree.leaf_written");
        let writer = in_thread(&rig, |rig| {
            rig.checkpoint();
        });
        landing.wait_reached();
        let split = sim.hold("tree.before_structure");
        let splits = rig.tree.stats().splits;
        let high = CommitTs(1 << 20);
        let splitter = in_thread(&rig, move |rig| {
            let writes: Vec<_> = (0..10).map(|n| (key(n * 2 + 1), Some(vec![b'x'; 30]))).collect();
            assert!(common::apply(&rig.tree, &writes, high, &GcView::keep_all()));
        });
        split.wait_reached();
        landing.open();
        writer.join().unwrap();
        split.open();
        splitter.join().unwrap();
        assert!(rig.tree.stats().splits > splits);
        let late = CommitTs(rig.now().0 + 16);
        assert!(late < high);
        for n in 0..10 {
            common::apply(&rig.tree, &[(key(n * 2), Some(b"late".to_vec()))], late, &GcView::keep_all());
        }
        rig.now.store(late.0, Ordering::SeqCst);
        rig.checkpoint();
        let rig = Arc::into_inner(rig).unwrap().reopen(false);
        for n in 0..10 {
            assert_eq!(rig.get(ReadAt::Snapshot(late), key(n * 2)), Some(b"late".to_vec()), "row {}", n * 2);
        }
        rig.verify();
    });
}

/// The clock comes by while a split's right half is made and not linked yet.
#[test]
fn a_right_half_is_not_thrown_out_before_it_is_linked() {
    simulated(|sim| {
        let rig = Arc::new(filled(small(), 10));
        let splits = rig.tree.stats().splits;
        let gate = sim.hold("tree.before_structure");
        let splitter = in_thread(&rig, |rig| {
            rig.commit((0..10).map(|n| (key(n * 2 + 1), Some(vec![b'x'; 30]))).collect());
        });
        gate.wait_reached();
        rig.evict_all();
        gate.open();
        splitter.join().unwrap();
        assert!(rig.tree.stats().splits > splits);
        assert_eq!(rig.keys().len(), 20);
        rig.evict_all();
        assert_eq!(rig.keys().len(), 20);
        rig.checkpoint();
        let rig = Arc::into_inner(rig).unwrap().reopen(false);
        assert_eq!(rig.keys().len(), 20);
        rig.verify();
    });
}
