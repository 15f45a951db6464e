//! A checkpoint of what is written: as complete as the last one, whatever is dirty.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::Fault;
use index::{Index, Upkeep};
use store::Weights;

use super::damage::{full_buffer_of, segments};
use super::{Setup, filled, in_thread, simulated, small, thin};
use crate::common::{Rig, Write, key};

/// The data file is small: what is dirty may always be too much.
fn short() -> Setup {
    Setup { max_bytes: Some(8 * (64 << 10)), ..small() }
}

/// Where what the last checkpoint names lies.
fn named(rig: &Rig) -> BTreeSet<u64> {
    let mut named = BTreeSet::new();
    rig.tree.reach(&mut |at, _| _ = named.insert(at.offset)).unwrap();
    named
}

/// Of these, nodes above leaves.
fn named_above(rig: &Rig) -> BTreeSet<u64> {
    let mut named = BTreeSet::new();
    rig.tree.reach(&mut |at, who| _ = (!who().starts_with("Leaf")).then(|| named.insert(at.offset))).unwrap();
    named
}

fn rows_of_a_run() -> Vec<Write> {
    (0..600).map(|n| (key(2 * n + 1), Some(b"from the run".to_vec()))).collect()
}

/// Leaves that were changed are not written, and neither are nodes above that would name what they name. Guard: `is_unchanged`.
#[test]
fn p4_a_checkpoint_of_what_is_written_writes_nothing_else() {
    // In no order: leaves have room.
    let rig = Rig::new(small());
    for n in 0..4000 {
        rig.put(key(2 * (n * 1543 % 4000)), "first");
    }
    rig.checkpoint();
    let before = named_above(&rig);
    for n in (0..4000).step_by(200) {
        rig.put(key(2 * n), "other");
    }
    let state = rig.checkpoint_written().unwrap();
    assert!(state.skip < rig.now().as_lsn());
    // The root, and what lies between it and the parents of leaves.
    let moved = named_above(&rig).difference(&before).count();
    assert!(moved * 3 < before.len(), "{moved} of {} nodes above leaves", before.len());
    rig.assert_counted();
    let rig = rig.reopen(true);
    assert_eq!(rig.newest(key(0)), Some(b"other".to_vec()));
    rig.checkpoint();
    rig.verify();
    rig.assert_counted();
}

/// A run that the last checkpoint names is drained, and a newer delete would be collected with what it hides. The leaf is written, the
/// run is named still. Guards: such a run is named, and holds back what is collected.
#[test]
fn a4_what_is_drained_on_a_full_disk_is_held_back_until_it_is_written() {
    let rig = filled(short(), 10);
    rig.attach_file(1, vec![(key(4), Some(b"from the run".to_vec()))]);
    rig.delete(key(4));
    rig.put(key(1000), "moves the floor");
    rig.checkpoint();
    rig.maintain_fully();
    assert_eq!(rig.tree.stats().run_bytes, 0, "drained");
    rig.put(key(1002), "the leaf is dirty");
    rig.evict_all();
    let state = rig.checkpoint_written().unwrap();
    assert_eq!(state.runs, [1], "others may not be written");
    let rig = rig.reopen(false);
    assert_eq!(rig.newest(key(4)), None);
    rig.maintain_fully();
    assert_eq!(rig.newest(key(4)), None, "the run is drained again under the delete");
    assert_eq!(rig.checkpoint().runs, [0; 0]);
}

/// A run is drained in part, into leaves that are not written. Guard: the run is named as the last checkpoint named it.
#[test]
fn p4_a_run_is_named_as_the_last_checkpoint_named_it() {
    let rig = filled(short(), 600);
    rig.attach_file(1, rows_of_a_run());
    rig.checkpoint();
    let all = rig.tree.stats().run_bytes;
    while rig.tree.stats().run_bytes == all {
        rig.maintain();
    }
    assert!(rig.tree.stats().run_bytes > 0, "drained in part");
    let writes = rig.vfs.writes();
    assert_eq!(rig.checkpoint_written().unwrap().runs, [1]);
    assert!(rig.vfs.writes() - writes <= 3, "no leaf is asked for");
    let rig = rig.reopen(false);
    rig.maintain_fully();
    for n in 0..600 {
        assert_eq!(rig.newest(key(2 * n + 1)), Some(b"from the run".to_vec()), "{n}");
    }
}

/// The tree is asked for more than its last checkpoint had, as where it takes the number of another one: a leaf that has entries of a named run may lack
/// what came behind that checkpoint, too. Guard: `last_skip`.
#[test]
fn p4_more_than_the_last_checkpoint_had_is_asked_for() {
    let rig = filled(short(), 10);
    rig.attach_file(1, vec![(key(4), Some(b"from the run".to_vec()))]);
    rig.checkpoint();
    rig.maintain_fully();
    assert_eq!(rig.tree.stats().run_bytes, 0, "drained");
    rig.put(key(5), "behind the checkpoint");
    assert_eq!(rig.checkpoint_written_to(rig.now().as_lsn()).unwrap().skip, rig.now().as_lsn());
    let rig = rig.reopen(false);
    assert_eq!(rig.newest(key(5)), Some(b"behind the checkpoint".to_vec()));
    assert_eq!(rig.newest(key(4)), Some(b"from the run".to_vec()));
}

/// There is room for what is dirty when a run is drained, but not for all that may be written before the next checkpoint is through. Guard:
/// `WRITTEN_BYTES` count.
#[test]
fn p4_a_run_is_kept_where_space_may_be_short_before_the_next_checkpoint() {
    for (max_bytes, kept) in [(40 << 20, vec![1]), (80 << 20, vec![])] {
        let rig = filled(Setup { max_bytes: Some(max_bytes), ..small() }, 10);
        rig.attach_file(1, vec![(key(4), Some(b"from the run".to_vec()))]);
        rig.checkpoint();
        rig.maintain_fully();
        assert_eq!(rig.tree.stats().run_bytes, 0, "drained");
        assert_eq!(rig.checkpoint_written().unwrap().runs, kept);
        rig.checkpoint();
        assert_eq!(rig.checkpoint_written().unwrap().runs, [0; 0]);
    }
}

/// A checkpoint has been by at a leaf when a run that it names is drained into it, a large value, which is written: it lacks that value, and it is marked
/// as one that lacks nothing. Guards: the run is kept beyond that checkpoint (where space is short); so is that one was drained that is not kept.
#[test]
fn p4_what_is_drained_behind_a_checkpoint_is_not_lost() {
    for setup in [short, small] {
        simulated(move |sim| {
            let rig = Arc::new(filled(setup(), 600));
            rig.checkpoint();
            let large = vec![7; 2000];
            rig.attach_file(1, vec![(key(4), Some(large.clone()))]);
            rig.put(key(1001), "another leaf");
            let gate = sim.hold("tree.inner_written");
            let checkpoint = in_thread(&rig, |rig| _ = rig.checkpoint());
            gate.wait_reached();
            rig.maintain_fully();
            assert_eq!(rig.tree.stats().run_bytes, 0, "drained");
            gate.open();
            checkpoint.join().unwrap();
            let (written, dirty) = (rig.cache.stats().written_pages, rig.cache.stats().dirty_bytes);
            assert!(dirty > 0, "the checkpoint was by before");
            // The value, and its leaf not yet.
            rig.while_short(1, || {
                rig.cache_step();
                rig.cache.stats().written_pages == written
            });
            assert_eq!(rig.cache.stats().dirty_bytes, dirty);
            rig.checkpoint_written().unwrap();
            let rig = Arc::into_inner(rig).unwrap().reopen(true);
            assert_eq!(rig.newest(key(4)), Some(large));
            rig.maintain_fully();
            rig.checkpoint();
            rig.verify();
            rig.assert_counted();
        });
    }
}

/// Leaves that cleaning is to move lack nothing. Guard: what stands for that counts as had.
#[test]
fn p4_what_cleaning_moves_is_not_asked_for() {
    let rig = filled(small(), 4000);
    rig.checkpoint();
    for n in (0..4000).filter(|n| n % 200 < 150) {
        rig.put(key(2 * n), "elsewhere");
    }
    rig.checkpoint();
    let moved = rig.space.stats().moved_bytes;
    rig.maintain_fully();
    let dirty = rig.cache.stats().dirty_bytes;
    assert!(rig.space.stats().moved_bytes > moved && dirty > 0, "{:?}", rig.space.stats());
    rig.checkpoint_written().unwrap();
    assert_eq!(rig.cache.stats().dirty_bytes, dirty);
    rig.checkpoint();
    assert_eq!(rig.cache.stats().dirty_bytes, 0);
    rig.verify();
}

/// Leaves that upkeep collected lack nothing. Guard: as above.
#[test]
fn p4_what_was_collected_is_not_asked_for() {
    let rig = Rig::new(small());
    let all_rows = |value: u8| (0..600).map(|n| (key(n), Some(vec![value; 20]))).collect();
    rig.commit(all_rows(1));
    rig.snapshots.lock().push(rig.now());
    rig.commit(all_rows(2));
    rig.checkpoint();
    rig.evict_all();
    rig.snapshots.lock().clear();
    rig.maintain_fully();
    let dirty = rig.cache.stats().dirty_bytes;
    assert!(dirty > 0 && rig.tree.stats().gc_paid_bytes > 0, "{:?}", rig.tree.stats());
    rig.checkpoint_written().unwrap();
    assert_eq!(rig.cache.stats().dirty_bytes, dirty);
    rig.assert_counted();
    let rig = rig.reopen(false);
    assert!((0..600).all(|n| rig.newest(key(n)) == Some(vec![2; 20])));
    rig.maintain_fully();
    rig.checkpoint();
    assert_eq!(rig.tree.stats().gc_debt_bytes, 0);
    rig.verify();
    rig.assert_counted();
}

/// A leaf whose large value has been written lacks what it lacked before. Guard: as above.
#[test]
fn p4_what_lacks_a_large_value_is_not_asked_for() {
    let rig = filled(small(), 600);
    // That a run went before the last checkpoint is of no matter.
    rig.attach_file(1, vec![(key(8), Some(b"from the run".to_vec()))]);
    rig.checkpoint();
    rig.maintain_fully();
    rig.checkpoint();
    let (large, written) = (vec![7; 4000], rig.cache.stats().written_pages);
    rig.put(key(4), &large);
    // The value, and its leaf not yet.
    rig.while_short(1, || {
        rig.cache_step();
        rig.cache.stats().written_pages == written
    });
    let (dirty, beside) = (rig.cache.stats().dirty_bytes, rig.tree.stats().traffic.beside_bytes);
    assert!(dirty > 0 && beside > 0);
    rig.checkpoint_written().unwrap();
    assert_eq!(rig.cache.stats().dirty_bytes, dirty);
    rig.assert_counted();
    let rig = rig.reopen(true);
    assert_eq!(rig.newest(key(4)), Some(large));
    rig.checkpoint();
    rig.verify();
    rig.assert_counted();
}

/// There was no room when a run was drained, and there was for the next one, for which nothing is held back: it is not named, so leaves are asked for, whatever
/// else they lack. Guard: `is_lifted`.
#[test]
fn p4_what_was_drained_with_room_to_spare_is_asked_for() {
    let rig = filled(small(), 10);
    rig.attach_file(1, vec![(key(4), Some(b"first run".to_vec()))]);
    rig.attach_file(2, vec![(key(4), Some(b"second run".to_vec()))]);
    rig.checkpoint();
    let look_at_the_disk = |is_full: bool| {
        rig.vfs.set_full(is_full);
        // It is not looked at more often.
        vfs::thread::sleep(std::time::Duration::from_millis(60));
        let _ = rig.space.check_room(1 << 50);
    };
    look_at_the_disk(true);
    while rig.tree.stats().runs == 2 {
        rig.maintain();
    }
    look_at_the_disk(false);
    rig.maintain_fully();
    assert_eq!(rig.checkpoint_written().unwrap().runs, [0; 0]);
    let rig = rig.reopen(false);
    assert_eq!(rig.newest(key(4)), Some(b"second run".to_vec()));
}

/// A node was composed of what is new, and not written: what its children say of the last image is of one that is nowhere. Guard:
/// `image_edition` is none until it is written.
#[test]
fn p4_a_node_that_found_no_space_is_composed_again() {
    let rig = filled(small(), 100);
    rig.checkpoint();
    let mut fault = None;
    for n in 0..200 {
        rig.put(key(2 * n % 200), "second");
        // A leaf has what it needs of the last extent; the nodes above it may not.
        rig.evict_all();
        rig.vfs.set_full(true);
        fault = rig.try_checkpoint().err();
        rig.vfs.set_full(false);
        if fault.is_some() {
            break;
        }
    }
    assert!(matches!(fault, Some(Fault::NoSpace { .. })), "{fault:?}");
    rig.checkpoint_written().unwrap();
    rig.verify();
    rig.assert_counted();
}

/// All that lies in an extent is written elsewhere, what is clean, too, and the nodes above; then it is empty. Guards: leaves that are clean are
/// written; a node that is to move is written though it names the same.
#[test]
fn p4_an_extent_is_emptied() {
    let rig = filled(small(), 400);
    rig.checkpoint();
    rig.put(key(0), "second");
    let mut weights = Weights::new();
    rig.tree.weigh(&mut weights).unwrap();
    let extents: Vec<_> = weights.keys().copied().collect();
    let (clean, dirty) = weights.values().fold((0, 0), |all, one| (all.0 + one.clean, all.1 + one.dirty));
    assert!(clean > 4 * dirty && dirty > 0, "{clean} and {dirty}");
    assert_eq!(clean + dirty, rig.space.stats().held_bytes);
    let before = named(&rig);
    rig.tree.evacuate(&extents, &rig.upkeep()).unwrap();
    rig.checkpoint_written().unwrap();
    assert!(named(&rig).is_disjoint(&before), "something stayed");

    // Nodes above leaves alone: they name the same as before.
    let above = named_above(&rig);
    let extents: BTreeSet<_> = above.iter().map(|at| (at / rig.space.extent_bytes()) as u32).collect();
    rig.tree.evacuate(&extents.into_iter().collect::<Vec<_>>(), &rig.upkeep()).unwrap();
    rig.checkpoint_written().unwrap();
    assert!(named_above(&rig).is_disjoint(&above), "some node stayed");
    rig.verify();
    rig.assert_counted();
}

/// The same of blocks of messages: they are copied, and drained no sooner. Guards: they are weighed, and moved; a node is composed again for them.
#[test]
fn p4_an_extent_with_messages_is_emptied() {
    let rig = full_buffer_of(Setup { buffered: true, node_bytes: 4096, extent_bytes: 16 << 10, ..small() });
    let rig = rig.reopen(false);
    let before = segments(&rig);
    let in_extent = |at: u64| (at / rig.space.extent_bytes()) as u32;
    // A leaf that is written has its messages, and a node above that is to move is composed again anyway.
    let of_messages: BTreeSet<u64> = before.iter().map(|at| at.offset).collect();
    let of_others: BTreeSet<_> = named(&rig).difference(&of_messages).map(|at| in_extent(*at)).collect();
    let extents: BTreeSet<_> = of_messages.iter().map(|at| in_extent(*at)).filter(|e| !of_others.contains(e)).collect();
    assert!(!extents.is_empty(), "{of_messages:?} beside {of_others:?}");
    let mut weights = Weights::new();
    rig.tree.weigh(&mut weights).unwrap();
    for extent in &extents {
        let lie_there = before.iter().filter(|at| in_extent(at.offset) == *extent);
        let bytes: u64 = lie_there.map(|at| u64::from(at.stored_bytes)).sum();
        assert!(weights[extent].clean >= bytes, "{:?} of {bytes} bytes of messages", weights[extent]);
    }
    rig.tree.evacuate(&extents.iter().copied().collect::<Vec<_>>(), &rig.upkeep()).unwrap();
    rig.checkpoint_written().unwrap();
    assert!(named(&rig).iter().all(|at| !extents.contains(&in_extent(*at))), "something stayed");
    assert_eq!(segments(&rig).len(), before.len());
    rig.verify();
    rig.assert_counted();
    let rig = rig.reopen(false);
    assert_eq!(rig.keys().len(), 790);
    rig.verify();
}

/// Messages are drained while they are copied: the copy is nobody's.
#[test]
fn p4_messages_that_are_drained_meanwhile_do_not_come_back() {
    simulated(|sim| {
        let rig = Arc::new(full_buffer_of(Setup { buffered: true, node_bytes: 4096, ..small() }));
        let before = segments(&rig);
        let extents: BTreeSet<_> = before.iter().map(|at| rig.space.extent_of(*at)).collect();
        let gate = sim.hold("tree.messages_copied");
        let evacuates = in_thread(&rig, move |rig| {
            rig.tree.evacuate(&extents.into_iter().collect::<Vec<_>>(), &rig.upkeep()).unwrap();
        });
        gate.wait_reached();
        rig.maintain_fully();
        rig.checkpoint();
        let left = segments(&rig).len();
        assert!(left < before.len());
        gate.open();
        evacuates.join().unwrap();
        rig.checkpoint();
        assert_eq!(segments(&rig).len(), left);
        rig.assert_counted();
        assert_eq!(rig.keys().len(), 790);
        rig.verify();
    });
}

/// Where space is short no leaves are merged: each would have to be written before the next checkpoint. Guard: `tight` is asked.
#[test]
fn p4_no_leaves_are_merged_on_a_full_disk() {
    let rig = thin();
    let leaves = rig.tree.stats().leaves;
    while rig.tree.maintain(&Upkeep { tight: true, ..rig.upkeep() }).unwrap().more {}
    assert_eq!(rig.tree.stats().leaves, leaves);
    rig.maintain_fully();
    assert!(rig.tree.stats().leaves < leaves);
}
