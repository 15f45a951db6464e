//! A full disk: an ordinary error in allocation, a reserve for what must go on, and recovery by itself (B7, P4).

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::{self, EXTENT, INDEX, Scratch, noise, options};
use crate::faulty::FaultyVfs;
use base::{Fault, Poison};
use trefoil_store::{
    AllocScope, Block, BlockKind, Compression, GivenBack, NewBlock, RunWriter, Space, SpaceOptions, Weight, Weights,
};
use vfs::thread::JoinHandle;

fn space(dir: &Scratch, vfs: &FaultyVfs, reserve_extents: u64) -> (Space, Poison) {
    let poison = Poison::new();
    let options = SpaceOptions { reserve_bytes: reserve_extents * EXTENT, ..options() };
    (Space::open(Arc::new(vfs.clone()), dir.path(), options, None, poison.clone()).unwrap(), poison)
}

/// A block that takes an extent to itself.
fn large(space: &Space, seed: u64) -> Vec<NewBlock> {
    vec![noise(seed, space.payload_bytes_max())]
}

fn is_full<T>(result: Result<T, Fault>) -> bool {
    matches!(result, Err(Fault::NoSpace { .. }))
}

/// Writes until the disk is full; the blocks written.
fn fill(space: &Space, scope: AllocScope) -> Vec<Arc<Block>> {
    let mut blocks = Vec::new();
    for seed in 0..1000 {
        match space.write_in(scope, large(space, seed)) {
            Ok(written) => {
                // A manifest names them: their space comes back with the next one.
                written.iter().for_each(|block| {
                    block.publish();
                });
                blocks.extend(written);
            }
            Err(fault) => {
                assert!(is_full(Err::<(), _>(fault)));
                checkpoint(space);
                return blocks;
            }
        }
    }
    panic!("the disk never filled");
}

fn checkpoint(space: &Space) {
    space.sync().unwrap();
    let _ = space.save();
    space.checkpoint_durable();
}

#[test]
fn b7_a_full_disk_is_an_ordinary_error_in_allocation() {
    let dir = Scratch::new("b7-alloc");
    let vfs = FaultyVfs::new(10 * EXTENT);
    let (space, poison) = space(&dir, &vfs, 0);
    let blocks = fill(&space, AllocScope::Reserve);
    assert_eq!(blocks.len(), 10);
    poison.check().expect("nothing is poisoned");
    let mut out = Vec::new();
    for (seed, block) in blocks.iter().enumerate() {
        space.read(block.at(), BlockKind::Leaf, INDEX, &mut out).unwrap();
        assert_eq!(out, large(&space, seed as u64)[0].payload);
    }
    // All or nothing: a call that needs two extents while one is free places nothing.
    let free_before = vfs.0.free_bytes.fetch_add(EXTENT, Ordering::SeqCst);
    assert_eq!(free_before, 0);
    let held = space.stats().held_bytes;
    let two = vec![noise(1, space.payload_bytes_max()), noise(2, space.payload_bytes_max())];
    assert!(is_full(space.write(two)));
    assert_eq!(space.stats().held_bytes, held);
    space.write(large(&space, 3)).unwrap();
}

/// The disk fills between the look at it and the allocation: the allocation's error is an ordinary one, too.
#[test]
fn b7_a_disk_that_fills_during_allocation_is_an_ordinary_error() {
    let dir = Scratch::new("b7-race");
    let vfs = FaultyVfs::new(3 * EXTENT);
    vfs.0.claimed_bytes.store(100 * EXTENT, Ordering::SeqCst);
    let (space, poison) = space(&dir, &vfs, 0);
    let blocks = fill(&space, AllocScope::Reserve);
    assert_eq!(blocks.len(), 3);
    poison.check().expect("nothing is poisoned");
    vfs.0.free_bytes.fetch_add(EXTENT, Ordering::SeqCst);
    space.write(large(&space, 3)).expect("resumes by itself");
}

#[test]
fn b7_a_full_disk_in_a_write_poisons() {
    let dir = Scratch::new("b7-write");
    let vfs = FaultyVfs::new(100 * EXTENT);
    let (space, poison) = space(&dir, &vfs, 0);
    let before = space.write(vec![noise(1, 1000)]).unwrap();
    vfs.0.writes_fail.store(true, Ordering::SeqCst);
    let held = space.stats().held_bytes;
    assert!(matches!(space.write(vec![noise(2, 1000)]), Err(Fault::Io { op: "write", .. })));
    assert_eq!(space.stats().held_bytes, held, "what was not written is not held");
    vfs.0.writes_fail.store(false, Ordering::SeqCst);
    assert!(poison.check().is_err());
    assert!(matches!(space.write(vec![noise(3, 1000)]), Err(Fault::Poisoned(_))), "until reopened");
    assert!(matches!(space.sync(), Err(Fault::Poisoned(_))));
    space.read(before[0].at(), BlockKind::Leaf, INDEX, &mut Vec::new()).expect("verified reads go on");
}

#[test]
fn b7_a_failed_sync_and_a_broken_allocation_poison() {
    let dir = Scratch::new("b7-sync");
    let vfs = FaultyVfs::new(100 * EXTENT);
    let (space, poison) = space(&dir, &vfs, 0);
    vfs.0.allocations_break.store(true, Ordering::SeqCst);
    assert!(matches!(space.write(vec![noise(1, 1000)]), Err(Fault::Io { op: "allocate", .. })));
    assert!(poison.check().is_err());

    let dir = Scratch::new("b7-sync2");
    let vfs = FaultyVfs::new(100 * EXTENT);
    let (space, poison) = self::space(&dir, &vfs, 0);
    vfs.0.syncs_fail.store(true, Ordering::SeqCst);
    assert!(matches!(space.sync(), Err(Fault::Io { op: "sync", .. })));
    vfs.0.syncs_fail.store(false, Ordering::SeqCst);
    assert!(poison.check().is_err() && space.sync().is_err(), "a sync that failed once is never believed again");
}

#[test]
fn p4_the_reserve_is_kept_for_what_must_go_on() {
    let dir = Scratch::new("p4-reserve");
    let vfs = FaultyVfs::new(40 * EXTENT);
    let (space, _) = space(&dir, &vfs, 8);
    space.check_room(0).unwrap();
    let mut blocks = fill(&space, AllocScope::Ordinary);
    assert_eq!(blocks.len(), 32, "the reserve is left");
    assert!(is_full(space.check_room(0)), "statements are refused");
    // Another program eats the disk: the reserve is in the file already.
    vfs.0.free_bytes.store(0, Ordering::SeqCst);
    blocks.extend(fill(&space, AllocScope::Reserve));
    assert_eq!(blocks.len(), 40, "a checkpoint could use all of it");
    // DROP gives space back, a checkpoint later, and writing resumes by itself.
    blocks.truncate(10);
    assert!(is_full(space.check_room(0)));
    checkpoint(&space);
    space.check_room(0).unwrap();
    space.write_in(AllocScope::Ordinary, large(&space, 1)).unwrap();
}

/// What can wait leaves what was admitted and is not written, whatever it finds first; what must go on has it. Guards: ordinary writes ask; for what they write,
/// too; the disk is looked at again.
#[test]
fn p4_what_is_owed_is_left_by_what_can_wait() {
    let dir = Scratch::new("p4-owed");
    let vfs = FaultyVfs::new(40 * EXTENT);
    let (space, _) = space(&dir, &vfs, 8);
    space.check_room(0).unwrap();
    space.note_owed(10 * EXTENT);
    let ordinary = fill(&space, AllocScope::Ordinary);
    assert!((15..=18).contains(&ordinary.len()), "{} of 40, 8, 10 and 4 are left", ordinary.len());
    let owed = fill(&space, AllocScope::Reserve);
    assert!(owed.len() >= 22, "{} for what was admitted", owed.len());
    vfs.0.free_bytes.fetch_add(50 * EXTENT, Ordering::SeqCst);
    vfs::thread::sleep(std::time::Duration::from_millis(60));
    space.write_in(AllocScope::Ordinary, large(&space, 1)).expect("looked at again by itself");
}

/// More pages are owed than is left: they leave the last of the reserve to who brings space back, and what that moves leaves a part of it to the nodes that
/// are to name it. Guards: both do; pages that find space have all of it.
#[test]
fn p4_pages_leave_the_last_of_the_reserve_if_not_all_find_space() {
    for (owed, left) in [(100, 3), (20, 0)] {
        let dir = Scratch::new("p4-pages");
        let vfs = FaultyVfs::new(40 * EXTENT);
        let (space, _) = space(&dir, &vfs, 8);
        let _ordinary = fill(&space, AllocScope::Ordinary);
        space.check_room(0).unwrap_err();
        space.note_owed(owed * EXTENT);
        space.note_owed_pages(if left == 0 { 0 } else { owed * EXTENT });
        let pages = fill(&space, AllocScope::Pages);
        assert_eq!(pages.len(), 8 - left, "{owed} are owed");
        assert_eq!(fill(&space, AllocScope::Moved).len(), left / 3 * 2);
        assert_eq!(fill(&space, AllocScope::Reserve).len(), left / 3);
    }
}

/// Guards: not what was tried, nor of what something cannot be moved, nor what is clean next to all, nor what is being filled; what is least to be written
/// comes first; half of what is left is taken.
#[test]
fn p4_extents_are_emptied_of_which_least_is_clean() {
    let dir = Scratch::new("p4-evacuate");
    let vfs = FaultyVfs::new(16 * EXTENT);
    let (space, _) = space(&dir, &vfs, 4);
    let blocks: Vec<_> = (0..10).flat_map(|seed| space.write(large(&space, seed)).unwrap()).collect();
    let bytes = u64::from(blocks[0].at().stored_bytes);
    let extent = |i: usize| space.extent_of(blocks[i].at());
    let weight = |clean: u64| Weight { clean: clean * bytes / 100, dirty: bytes - clean * bytes / 100 };
    let mut weights: Weights = [80, 0, 50, 10, 95, 20, 60, 0, 70, 0]
        .into_iter()
        .enumerate()
        .map(|(i, clean)| (extent(i), weight(clean)))
        .collect();
    // The one is not all of this, of the other one is being filled.
    weights.get_mut(&extent(7)).unwrap().dirty -= 1;
    let tried = BTreeSet::from([extent(5)]);
    let found = |left: u64, tried: &BTreeSet<u32>| {
        vfs.0.free_bytes.store(left * EXTENT, Ordering::SeqCst);
        space.to_evacuate(&weights, tried, 90).unwrap()
    };
    let ids = |all: &[usize]| all.iter().map(|i| extent(*i)).collect::<Vec<_>>();
    assert_eq!(found(100, &tried), ids(&[0, 1, 2, 3, 6, 8]));
    assert_eq!(found(6, &tried), ids(&[1, 2, 3]));
    assert_eq!(found(4, &tried), ids(&[1, 3]));
    assert_eq!(found(4, &BTreeSet::new()), ids(&[1, 3]));
    assert_eq!(found(6, &BTreeSet::new()), ids(&[1, 3, 5]));
    assert_eq!(found(1, &tried), [0; 0]);
}

#[test]
fn p4_on_a_tight_disk_the_reserve_is_in_the_file() {
    let dir = Scratch::new("p4-tight");
    let vfs = FaultyVfs::new(40 * EXTENT);
    let (space, _) = space(&dir, &vfs, 8);
    let first = space.write(large(&space, 0)).unwrap();
    // Another program eats the disk before any statement was refused.
    vfs.0.free_bytes.store(0, Ordering::SeqCst);
    assert!(is_full(space.write_in(AllocScope::Ordinary, large(&space, 1))));
    assert_eq!(fill(&space, AllocScope::Reserve).len(), 8);
    drop(first);
}

#[test]
fn p4_room_comes_back_when_the_disk_does() {
    let dir = Scratch::new("p4-resume");
    let vfs = FaultyVfs::new(20 * EXTENT);
    let (space, _) = space(&dir, &vfs, 4);
    let _blocks = fill(&space, AllocScope::Ordinary);
    assert!(is_full(space.check_room(0)));
    vfs.0.free_bytes.fetch_add(50 * EXTENT, Ordering::SeqCst);
    vfs::thread::sleep(std::time::Duration::from_millis(60));
    space.check_room(0).expect("looked at again by itself");
    space.write_in(AllocScope::Ordinary, large(&space, 1)).unwrap();
}

#[test]
fn the_size_limit_is_a_disk_too() {
    let dir = Scratch::new("max-bytes");
    let options = SpaceOptions { max_bytes: Some(16 * EXTENT), reserve_bytes: 4 * EXTENT, ..options() };
    let space = Space::open(common::real(), dir.path(), options, None, Poison::new()).unwrap();
    let ordinary = fill(&space, AllocScope::Ordinary);
    let reserve = fill(&space, AllocScope::Reserve);
    assert_eq!((ordinary.len(), reserve.len()), (11, 4), "one for the header");
    assert!(space.stats().file_bytes <= 16 * EXTENT);
}

/// A merge that does not fit calls for nothing, however often it is tried; a statement that is refused does, once each time. Guard: `refused` is set in
/// `check_room`, and not in `no_space`.
#[test]
fn who_is_refused_at_his_statement_calls_for_space() {
    let dir = Scratch::new("refused");
    let options = SpaceOptions { max_bytes: Some(16 * EXTENT), reserve_bytes: 4 * EXTENT, ..options() };
    let space = Space::open(common::real(), dir.path(), options, None, Poison::new()).unwrap();
    let _kept = fill(&space, AllocScope::Ordinary);
    for seed in 100..105 {
        let fault = space.write_in(AllocScope::Ordinary, large(&space, seed)).unwrap_err();
        assert!(matches!(fault, Fault::NoSpace { .. }), "{fault}");
        assert!(!space.take_refused(), "a merge did not fit");
    }
    assert!(is_full(space.check_room(0)));
    assert!(space.take_refused() && !space.take_refused(), "a statement was refused");
}

/// What was written and replaced between two checkpoints is in no manifest: its extent is used again at once.
#[test]
fn what_no_manifest_names_is_reused_at_once() {
    let dir = Scratch::new("reuse");
    let vfs = FaultyVfs::new(20 * EXTENT);
    let (space, _) = space(&dir, &vfs, 4);
    let kept = space.write(large(&space, 0)).unwrap();
    for seed in 1..200 {
        drop(space.write_in(AllocScope::Ordinary, large(&space, seed)).unwrap());
    }
    assert!(space.stats().file_bytes <= 8 * EXTENT, "{:?}", space.stats());
    space.check_room(0).unwrap();
    let mut out = Vec::new();
    space.read(kept[0].at(), BlockKind::Leaf, INDEX, &mut out).unwrap();
    assert_eq!(out, large(&space, 0)[0].payload);
}

#[test]
fn space_is_given_back() {
    let dir = Scratch::new("give-back");
    let vfs = FaultyVfs::new(1000 * EXTENT);
    let (space, _) = space(&dir, &vfs, 0);
    let mut blocks: Vec<_> = (0..40).flat_map(|seed| space.write(large(&space, seed)).unwrap()).collect();
    blocks.iter().for_each(|block| {
        block.publish();
    });
    checkpoint(&space);
    // A hole in the middle, and the end.
    blocks.truncate(30);
    blocks.drain(5..15);
    space.give_back(true, || true).unwrap();
    let before = space.stats();
    assert_eq!(before.pending_bytes, 19 * EXTENT, "the last extent is still open");
    checkpoint(&space);
    assert_eq!(space.stats().pending_bytes, 0);
    let given = space.give_back(true, || true).unwrap().bytes;
    assert!(given >= 17 * EXTENT, "{given}");
    assert!(vfs.0.punched_bytes.load(Ordering::SeqCst) >= given);
    let after = space.stats();
    assert!(after.file_bytes <= 25 * EXTENT && after.free_bytes <= 2 * EXTENT, "{after:?}");
    let mut out = Vec::new();
    for block in &blocks {
        space.read(block.at(), BlockKind::Leaf, INDEX, &mut out).unwrap();
    }
    // Punched extents are allocated again before use.
    let before = vfs.0.free_bytes.load(Ordering::SeqCst);
    blocks.extend((0..30).flat_map(|seed| space.write(large(&space, 100 + seed)).unwrap()));
    assert!(before - vfs.0.free_bytes.load(Ordering::SeqCst) >= 27 * EXTENT);
}

/// A full disk, of whose extents all but the first and the last are free in the file; the blocks in those two.
fn emptied(vfs: &FaultyVfs, space: &Space) -> Vec<Arc<Block>> {
    let mut blocks = fill(space, AllocScope::Reserve);
    blocks.drain(1..blocks.len() - 1);
    checkpoint(space);
    assert_eq!(vfs.0.free_bytes.load(Ordering::SeqCst), 0);
    blocks
}

/// Guard: a few extents go before the caller is asked, and no more if he does not go on.
#[test]
fn space_is_given_back_a_little_at_a_time() {
    let dir = Scratch::new("give-back-lots");
    let vfs = FaultyVfs::new(100 * EXTENT);
    let (space, _) = space(&dir, &vfs, 0);
    let kept = emptied(&vfs, &space);
    let given = |vfs: &FaultyVfs| vfs.0.punched_bytes.load(Ordering::SeqCst) / EXTENT;
    assert!(space.give_back(true, || false).unwrap().is_more);
    assert_eq!(given(&vfs), 16);
    let mut before = given(&vfs);
    let mut asked = 0;
    space
        .give_back(true, || {
            assert!(given(&vfs) - before <= 16);
            (before, asked) = (given(&vfs), asked + 1);
            true
        })
        .unwrap();
    // Besides the two that are in use, two are spare.
    assert_eq!((given(&vfs), asked), (96, 5));
    assert_eq!(space.stats().file_bytes, 4 * EXTENT + 4096, "the header too");
    let mut out = Vec::new();
    kept.iter().for_each(|block| space.read(block.at(), BlockKind::Leaf, INDEX, &mut out).unwrap());
}

/// Guards: no latch is held while a hole is punched, and what is on its way to the file system counts as there.
#[test]
fn nobody_misses_what_is_being_given_back() {
    let dir = Scratch::new("give-back-meanwhile");
    let faulty = FaultyVfs::new(40 * EXTENT);
    let (space, _) = space(&dir, &faulty, 0);
    let _kept = emptied(&faulty, &space);
    faulty.0.punch_awaits_write.store(true, Ordering::SeqCst);
    let giver = giver(&faulty, &space);
    vfs::thread::sleep(std::time::Duration::from_millis(60));
    assert!(is_full(space.check_room(1000 * EXTENT)), "looks at the disk again");
    space.check_room(30 * EXTENT).unwrap();
    space.write_in(AllocScope::Ordinary, large(&space, 7)).unwrap();
    giver.join().unwrap();
}

/// Whoever gives back, and is in the middle of the first hole.
fn giver(vfs: &FaultyVfs, space: &Space) -> JoinHandle<GivenBack> {
    let space = space.clone();
    let giver = vfs::thread::spawn("gives back", move || space.give_back(true, || true).unwrap()).unwrap();
    while vfs.0.punched_bytes.load(Ordering::SeqCst) == 0 {
        vfs::thread::spin();
    }
    giver
}

/// Guard: who finds no space waits for what is on its way to the file system. The reserve is there for who may use it, all the while.
#[test]
fn p4_what_is_being_given_back_is_waited_for() {
    for (scope, reserve) in [(AllocScope::Reserve, 0), (AllocScope::Ordinary, 0), (AllocScope::Reserve, 4)] {
        let dir = Scratch::new("give-back-waited");
        let vfs = FaultyVfs::new(20 * EXTENT);
        let (space, _) = space(&dir, &vfs, reserve);
        let _kept = emptied(&vfs, &space);
        vfs.0.punch_takes.store(200, Ordering::SeqCst);
        let giver = giver(&vfs, &space);
        // Two are kept; more than those and the reserve has to come back from the file system.
        let written: Vec<_> = (0..12).map(|seed| space.write_in(scope, large(&space, seed)).unwrap()).collect();
        giver.join().unwrap();
        drop(written);
    }
}

/// Guard: what is free when the file is opened is given back, though nobody knows whether it is a hole.
#[test]
fn what_was_not_given_back_before_a_crash_is_given_back_after_it() {
    let dir = Scratch::new("give-back-crash");
    let saved = {
        let vfs = FaultyVfs::new(40 * EXTENT);
        let (space, _) = space(&dir, &vfs, 0);
        let kept = emptied(&vfs, &space);
        assert_eq!(kept.len(), 2, "at the front and at the end");
        space.sync().unwrap();
        let saved = space.save();
        space.checkpoint_durable();
        space.close();
        saved
    };
    let vfs = FaultyVfs::new(0);
    let poison = Poison::new();
    let space = Space::open(Arc::new(vfs.clone()), dir.path(), options(), Some(&saved), poison).unwrap();
    assert!(is_full(space.write(large(&space, 1))), "the disk is full");
    space.give_back(true, || true).unwrap();
    assert_eq!(vfs.0.punched_bytes.load(Ordering::SeqCst), 38 * EXTENT);
    space.write(large(&space, 1)).unwrap();
    assert_eq!(space.give_back(true, || true).unwrap(), GivenBack { bytes: 0, is_more: false }, "once");
}

#[test]
fn b7_a_run_that_does_not_fit_poisons_nothing_and_leaves_nothing() {
    let dir = Scratch::new("run-full");
    let vfs = FaultyVfs::new(6 << 20);
    let mut writer = RunWriter::create(Arc::new(vfs.clone()), dir.path(), 5, Compression::None).unwrap();
    let mut failed = None;
    for i in 0..20_000u32 {
        if let Err(fault) = writer.add(&i.to_be_bytes(), Some(&[7; 1000])) {
            failed = Some(fault);
            break;
        }
    }
    assert!(is_full(failed.map_or(Ok(()), Err)));
    drop(writer);
    assert!(trefoil_store::run::list(&vfs, dir.path()).unwrap().is_empty());
}
