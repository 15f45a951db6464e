//! What images hold and lack [A4, A5, A6, A8].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{CommitTs, GcView, Lsn};
use index::{Direction, Index, ReadAt, Upkeep};

use super::{filled, in_thread, simulated, small, thin};
use crate::common::{self, key};

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

/// The same, and the node that owed it to the log is absorbed, or takes the place of the root.
#[test]
fn a6_the_need_of_the_log_goes_where_the_children_go() {
    for kept in [0..20, 190..210, 380..400] {
        let rig = filled(small(), 400);
        let height = rig.tree.stats().height;
        rig.checkpoint();
        let ts = rig.commit((0..400).filter(|n| !kept.contains(n)).map(|n| (key(n * 2), None)).collect());
        rig.put(key(kept.start * 2), "moves the floor");
        rig.maintain_fully();
        assert!(rig.tree.stats().height < height, "{}", rig.tree.draw());
        let upkeep = Upkeep { applied: Lsn(ts.0 - 16), view: rig.view(), log: &*rig.log, tight: false };
        rig.tree.checkpoint(&upkeep).unwrap();
        assert!(rig.log.asked.load(Ordering::SeqCst) >= ts.0, "the image lacks rows that {ts} deleted");
    }
}

/// Leaves that were all written and are clean are merged: no image has what the left one has now.
#[test]
fn a8_a_leaf_that_absorbed_another_is_written() {
    let rig = thin();
    let (rows, leaves) = (rig.all(ReadAt::Newest, Direction::Forward), rig.tree.stats().leaves);
    rig.maintain_fully();
    assert!(rig.tree.stats().leaves < leaves);
    rig.evict_all();
    assert_eq!(rig.all(ReadAt::Newest, Direction::Forward), rows);
    rig.checkpoint();
    let rig = rig.reopen(false);
    assert_eq!(rig.all(ReadAt::Newest, Direction::Forward), rows);
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
    let state =
        rig.tree.checkpoint(&Upkeep { applied: Lsn(old), view: rig.view(), log: &*rig.log, tight: false }).unwrap();
    *rig.manifest.lock() = common::Manifest { state: Some(state.bytes), space: rig.space.save(), skip: state.skip };
    rig.space.checkpoint_durable();
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
