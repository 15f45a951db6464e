//! The schedules that break a naive tree, one test for each rule. Each fails when its guard is taken out.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

mod common;

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{CommitTs, GcView, Lsn};
use common::{Rig, Setup, batch, key, scan};
use index::{Direction, Index, ReadAt, Reservation, Upkeep};
use vfs::sim::{Config, Handle, Simulation};

fn small() -> Setup {
    Setup { node_bytes: 512, extent_bytes: 64 << 10, ..Setup::default() }
}

/// A rig with `keys` rows, every second number, so that there is room between.
fn filled(setup: Setup, keys: u64) -> Rig {
    let rig = Rig::new(setup);
    for from in (0..keys).step_by(50) {
        rig.commit((from..(from + 50).min(keys)).map(|n| (key(n * 2), Some(b"first".to_vec()))).collect());
    }
    rig
}

fn simulated(body: impl FnOnce(&Handle) + Send + 'static) {
    Simulation::new(1, Config::default()).run(body);
}

fn in_thread(rig: &Arc<Rig>, body: impl FnOnce(&Rig) + Send + 'static) -> vfs::thread::JoinHandle<()> {
    let rig = rig.clone();
    vfs::thread::spawn("other", move || body(&rig)).unwrap()
}

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

/// Forty rows of which few are left: leaves that are found thin.
fn thin() -> Rig {
    let rig = filled(small(), 40);
    rig.commit((0..39).filter(|n| n % 8 != 0).map(|n| (key(n * 2), None)).collect());
    rig.put("z", "moves the floor");
    // Written, the leaves are collected, and found thin.
    rig.checkpoint();
    rig
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

/// The checkpoint will name a run with nothing drained; then it is drained, and a newer delete of one of its keys is
/// due for collection before that leaf is written.
#[test]
fn a4_the_cap_stands_while_a_checkpoint_names_the_run() {
    simulated(|sim| {
        let rig = Arc::new(filled(small(), 10));
        rig.attach_file(1, vec![(key(4), Some(b"from the run".to_vec()))]);
        rig.delete(key(4));
        rig.put(key(1000), "moves the floor");
        let gate = sim.hold("tree.checkpoint_begun");
        let checkpoint = in_thread(&rig, |rig| {
            rig.checkpoint();
        });
        gate.wait_reached();
        rig.maintain_fully();
        assert_eq!(rig.tree.stats().run_bytes, 0, "drained");
        gate.open();
        checkpoint.join().unwrap();
        let rig = Arc::into_inner(rig).unwrap().reopen(false);
        assert_eq!(rig.newest(key(4)), None);
        rig.maintain_fully();
        assert_eq!(rig.newest(key(4)), None, "the run is drained again under the delete");
    });
}

/// A clean leaf loses a row and its tombstone at once: nothing in memory shows it any more, the image does.
#[test]
fn a5_a_leaf_that_collected_a_tombstone_is_written() {
    let rig = filled(small(), 5);
    rig.checkpoint();
    // The delete and everything older vanish: everybody sees the delete.
    let ts = CommitTs(rig.now().0 + 16);
    let view = GcView::new(CommitTs(ts.0 + 16), Vec::new());
    common::apply(&rig.tree, &[(key(4), None)], ts, &view);
    rig.now.store(ts.0 + 16, Ordering::SeqCst);
    assert_eq!(rig.newest(key(4)), None);
    rig.evict_all();
    assert_eq!(rig.newest(key(4)), None, "its image still had it");
    rig.checkpoint();
    let rig = rig.reopen(false);
    assert_eq!(rig.newest(key(4)), None);
}

/// Nothing is left of a leaf but what its parent owes to the log.
#[test]
fn a6_an_unlinked_leaf_leaves_its_need_of_the_log() {
    for evict in [false, true] {
        let rig = filled(small(), 100);
        rig.checkpoint();
        let asked = rig.log.asked.load(Ordering::SeqCst);
        let ts = rig.commit((0..100).map(|n| (key(n * 2), None)).collect());
        if evict {
            // Written and thrown out: the leaves' own images made the log durable. Dropping them needs no more.
            rig.evict_all();
            assert!(rig.log.asked.load(Ordering::SeqCst) >= ts.0);
        }
        rig.put("other", "other");
        rig.maintain_fully();
        assert!(rig.tree.stats().unlinks > 0);
        if !evict {
            assert_eq!(rig.log.asked.load(Ordering::SeqCst), asked, "no page was written yet");
        }
        // F is below the delete: an image without the rows is right only because the log will say why.
        let upkeep = Upkeep { applied: Lsn(ts.0 - 16), view: rig.view(), log: &*rig.log, tight: false };
        rig.tree.checkpoint(&upkeep).unwrap();
        assert!(rig.log.asked.load(Ordering::SeqCst) >= ts.0, "the images lack rows that {ts} deleted");
    }
}

/// A is split, its right half B gets newer rows and its own image, and is merged back: A's range is that of its old
/// image again.
#[test]
fn a8_a_merged_leaf_has_no_image() {
    let rig = filled(small(), 12);
    rig.checkpoint();
    let leaves = rig.tree.stats().leaves;
    rig.commit((0..12).map(|n| (key(n * 2 + 1), Some(b"second".to_vec()))).collect());
    assert!(rig.tree.stats().leaves > leaves);
    rig.evict_all();
    assert_eq!(rig.keys().len(), 24);
    // Small enough to be merged, and a view that lets everything go.
    rig.commit((0..24).filter(|n| n % 6 != 1).map(|n| (key(n), None)).collect());
    rig.put(key(9999), "moves the floor");
    rig.delete(key(9999));
    let before = rig.all(ReadAt::Newest, Direction::Forward);
    rig.checkpoint();
    rig.maintain_fully();
    rig.commit((0..24).filter(|n| n % 6 == 1).map(|n| (key(n), Some(b"third".to_vec()))).collect());
    rig.maintain_fully();
    assert!(rig.tree.stats().unlinks > 0, "{:?}", rig.tree.stats());
    let now = rig.all(ReadAt::Newest, Direction::Forward);
    assert_eq!(now.len(), before.len());
    rig.evict_all();
    assert_eq!(rig.all(ReadAt::Newest, Direction::Forward), now);
    rig.checkpoint();
    let rig = rig.reopen(false);
    assert_eq!(rig.all(ReadAt::Newest, Direction::Forward), now);
    rig.verify();
}

/// A's image reaches over B, which split off and was unlinked dead; A comes back from that image.
#[test]
fn a8_unlinking_beside_a_cold_leaf_revives_nothing() {
    let rig = filled(small(), 12);
    rig.checkpoint();
    let leaves = rig.tree.stats().leaves;
    let old = rig.now().0;
    // Both halves lack only what is newer than this checkpoint's F: it may name the unsplit image for the left one.
    rig.commit((6..12).map(|n| (key(n * 2 + 1), Some(vec![b'x'; 60]))).collect());
    assert!(rig.tree.stats().leaves > leaves);
    let mark = rig.space.checkpoint_begin();
    let state =
        rig.tree.checkpoint(&Upkeep { applied: Lsn(old), view: rig.view(), log: &*rig.log, tight: false }).unwrap();
    *rig.manifest.lock() = common::Manifest { state: Some(state.bytes), space: rig.space.save(), skip: state.skip };
    rig.space.checkpoint_durable(mark);
    let rig = rig.reopen(true);
    // Only the right part is deleted, and unlinked; the left part is thrown out and read again.
    rig.commit((10..40).map(|n| (key(n), None)).collect());
    rig.put("z", "moves the floor");
    rig.maintain_fully();
    rig.evict_all();
    let expected: Vec<_> = (0..5).map(|n| key(n * 2)).chain([b"z".to_vec()]).collect();
    assert_eq!(rig.keys(), expected);
    rig.checkpoint();
    let rig = rig.reopen(false);
    assert_eq!(rig.keys(), expected);
    rig.verify();
}

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
        let mark = rig.space.checkpoint_begin();
        rig.tree
            .checkpoint(&Upkeep { applied: Lsn(old), view: GcView::keep_all(), log: &*rig.log, tight: false })
            .unwrap();
        rig.space.checkpoint_durable(mark);
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

/// Four hundred rows under several inner nodes, of which the last one is left. (Nobody looks at the root's mark.)
fn desert() -> Rig {
    let rig = filled(small(), 400);
    assert!(rig.tree.stats().height >= 3);
    rig.commit((0..399).map(|n| (key(n * 2), None)).collect());
    rig
}

fn come_alive(rig: &Rig, n: u64) {
    common::apply(&rig.tree, &[(key(n), Some(b"alive".to_vec()))], CommitTs(1 << 20), &GcView::keep_all());
}

/// A row put into a dead leaf under marked inner nodes.
#[test]
fn a25_a_row_under_marked_nodes_is_seen() {
    for n in [1, 201, 401, 601, 797] {
        let rig = desert();
        rig.delete(key(798));
        assert_eq!(rig.keys().len(), 0);
        come_alive(&rig, n);
        assert_eq!(rig.keys(), [key(n)]);
        rig.verify();
    }
}

/// Between the marker's two looks at a node's children, before and after it sets the mark, a put brings one of them to
/// life.
#[test]
fn a25_a_put_between_the_markers_looks() {
    simulated(|sim| {
        for point in ["tree.inner_judged", "tree.inner_marked"] {
            let rig = Arc::new(desert());
            // The last delete makes the last leaf die: its parent is marked.
            let gate = sim.hold(point);
            let marker = in_thread(&rig, |rig| {
                rig.delete(key(798));
            });
            gate.wait_reached();
            // It cannot take the structure latch, and needs none.
            in_thread(&rig, |rig| come_alive(rig, 781)).join().unwrap();
            gate.open();
            marker.join().unwrap();
            assert_eq!(rig.keys(), [key(781)], "{point}");
            rig.verify();
        }
    });
}

/// A put has cleared its leaf's mark but not yet those above, when the marker comes.
#[test]
fn a25_marks_are_cleared_before_the_put_is_applied() {
    simulated(|sim| {
        let rig = Arc::new(desert());
        let gate = sim.hold("tree.mark_cleared");
        let put = in_thread(&rig, |rig| come_alive(rig, 781));
        gate.wait_reached();
        rig.delete(key(798));
        gate.open();
        put.join().unwrap();
        assert_eq!(rig.keys(), [key(781)]);
        rig.verify();
    });
}

/// A cursor has chosen an inner node by the root; the node is split before it is loaded, and what is left of it dies:
/// the marks in it are not about the place sought.
#[test]
fn a25_a_hop_by_an_old_grandparent() {
    simulated(|sim| {
        for sought in [60, 150, 250, 330, 399] {
            let rig = Arc::new(filled(small(), 400));
            let gate = sim.hold("tree.before_hop");
            let reader = in_thread(&rig, move |rig| {
                let end = key(sought * 2);
                let range = (Bound::Unbounded, Bound::Included(end.as_slice()));
                let found = scan(&rig.tree, ReadAt::Newest, range, Direction::Backward, 3);
                assert_eq!(found.first().map(|entry| entry.0.clone()), Some(end));
            });
            gate.wait_reached();
            for n in 0..400 {
                rig.put(key(n * 2 + 1), [b'x'; 100]);
            }
            rig.commit((0..800).filter(|n| *n != sought * 2).map(|n| (key(n), None)).collect());
            gate.open();
            reader.join().unwrap();
        }
    });
}

/// Every row of a leaf is deleted, and a run that is not drained holds one of them: a scan that merges runs must not hop.
#[test]
fn a25_a_dead_leaf_hides_what_a_run_holds() {
    let rig = filled(small(), 10);
    rig.attach(vec![(key(4), Some(b"from the run".to_vec()))]);
    rig.commit((0..10).map(|n| (key(n * 2), None)).collect());
    assert_eq!(rig.keys().len(), 0);
    assert_eq!(rig.newest(key(4)), None);
    assert!(rig.tree.stats().run_bytes > 0, "not drained");
}

/// A reader stands on a parent in which a leaf spans [a, z). The leaf is split, and what is left of it dies: the mark
/// that the reader finds is not about [m, z).
#[test]
fn a25_a_hop_by_an_old_parent() {
    simulated(|sim| {
        let rig = Arc::new(filled(small(), 12));
        let gate = sim.hold("tree.before_hop");
        let reader = in_thread(&rig, |rig| {
            let keys = rig.keys();
            assert!((0..5).all(|n| keys.contains(&key(n + 100))), "{keys:?}");
        });
        gate.wait_reached();
        let leaves = rig.tree.stats().leaves;
        rig.commit((0..12).map(|n| (key(n + 100), Some(vec![b'x'; 60]))).collect());
        assert!(rig.tree.stats().leaves > leaves);
        rig.commit((0..24).map(|n| (key(n), None)).collect());
        gate.open();
        reader.join().unwrap();
    });
}

/// A thousand snapshots over one hot row.
#[test]
fn a27_one_key_larger_than_a_leaf() {
    let rig = filled(small(), 20);
    let mut expected = Vec::new();
    for n in 0..1_000 {
        let ts = rig.put(key(10), format!("value {n}"));
        rig.snapshots.lock().push(ts);
        expected.push((ts, format!("value {n}")));
    }
    let check = |rig: &Rig| {
        for (ts, value) in expected.iter().step_by(37) {
            assert_eq!(rig.get(ReadAt::Snapshot(*ts), key(10)).as_deref(), Some(value.as_bytes()));
        }
        assert_eq!(rig.keys().len(), 20);
    };
    check(&rig);
    rig.evict_all();
    check(&rig);
    rig.checkpoint();
    rig.verify();
    let snapshots = rig.snapshots.lock().clone();
    let rig = rig.reopen(false);
    *rig.snapshots.lock() = snapshots;
    check(&rig);
    // Without the snapshots, one version remains.
    rig.snapshots.lock().clear();
    rig.put(key(10), "last");
    rig.checkpoint();
    assert!(rig.tree.stats().dead_versions < 5, "{:?}", rig.tree.stats());
    rig.verify();
}

/// Keys of many threads that draw numbers and commit a little out of order fill leaves as well as one thread.
#[test]
fn c8_slightly_disordered_appends_fill_leaves() {
    let rows = 40_000;
    let fill = |order: &mut dyn Iterator<Item = u64>| {
        let rig = Rig::new(Setup { node_bytes: 16 << 10, ..Setup::default() });
        order.for_each(|n| {
            rig.put(key(n), [b'v'; 60]);
        });
        assert_eq!(rig.tree.stats().live_keys, rows);
        rig.tree.stats().leaves
    };
    let ordered = fill(&mut (0..rows));
    // Eight threads: each draws the next number when its last row is in.
    let mut numbers = common::Numbers(5);
    let mut waiting: Vec<u64> = (0..8).collect();
    let mut next = 8;
    let disordered = fill(&mut (0..rows).map(|_| {
        let i = numbers.below(waiting.len() as u64) as usize;
        let row = if next < rows { std::mem::replace(&mut waiting[i], next) } else { waiting.swap_remove(i) };
        next += 1;
        row
    }));
    // Sixty bytes of value, four of key, about ten of bookkeeping.
    assert!(ordered * (16 << 10) * 9 / 10 <= rows * 74, "{ordered} leaves in order");
    assert!(disordered * 9 <= ordered * 10, "{disordered} leaves, {ordered} in order");
}
