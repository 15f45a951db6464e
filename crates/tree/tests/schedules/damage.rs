//! Damage below buffers: who needs the range meets it, everything else goes on.

use base::bytes::printable;
use base::{CommitTs, Fault, Result};
use index::{Index, ReadAt};
use store::{BlockRef, Class};

use super::uncached::nearly_full;
use super::{filled, small};
use crate::common::{Rig, Setup, key};

fn buffered() -> Setup {
    Setup { buffered: true, ..small() }
}

/// What the images of the last checkpoint name, with names.
fn named(rig: &Rig) -> Vec<(String, BlockRef)> {
    let mut all = Vec::new();
    let problems = rig.tree.reach(&mut |at, who| all.push((who(), at))).unwrap();
    assert!(problems.is_empty(), "{problems:#?}");
    all
}

/// Blocks of messages.
pub fn segments(rig: &Rig) -> Vec<BlockRef> {
    named(rig).into_iter().filter(|(who, _)| who.starts_with("messages")).map(|(_, at)| at).collect()
}

/// The image of the leaf of a key.
fn leaf_of(rig: &Rig, key: &[u8]) -> BlockRef {
    let low = |who: &str| who.strip_prefix("Leaf [").map(|rest| rest.split(", ").next().unwrap().to_owned());
    let before = |(who, at): (String, BlockRef)| low(&who).filter(|low| *low <= printable(key)).map(|low| (low, at));
    named(rig).into_iter().filter_map(before).max_by(|a, b| a.0.cmp(&b.0)).unwrap().1
}

/// Done twice, it is undone.
fn rot(rig: &Rig, at: BlockRef) {
    rig.vfs.rot(at.offset + 50);
}

fn read(rig: &Rig, key: &[u8]) -> Result<Option<Vec<u8>>> {
    read_at(rig, ReadAt::Newest, key)
}

fn read_at(rig: &Rig, at: ReadAt, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut value = None;
    rig.tree.get_many(at, &[key], &mut |_, _, found| value = Some(found.to_vec())).map(|()| value)
}

/// The damage is named, with its place.
fn assert_damaged<T: std::fmt::Debug>(done: Result<T>) {
    let Err(Fault::Corrupt(damage)) = done else { panic!("{done:?}") };
    assert!(!damage.file.is_empty() && damage.offset.is_some(), "{damage}");
    assert!(damage.index.is_some() && damage.key_range.is_some(), "{damage}");
}

/// Two hundred rows, none in memory. Row 3 is in its leaf on disk, which a checkpoint names whose F is older: whatever of
/// its timestamp comes when the log is replayed comes late.
fn ahead() -> (Rig, CommitTs) {
    let rig = filled(buffered(), 200);
    rig.checkpoint();
    let before = rig.now();
    let ts = rig.put(key(3), "early");
    rig.log.set_durable(rig.now().0);
    rig.evict_all();
    assert_eq!(rig.checkpoint_as_of(before).unwrap().skip, before.as_lsn());
    (rig, ts)
}

#[test]
fn a10_what_comes_late_for_a_damaged_leaf_stays_in_the_log() {
    let (rig, late) = ahead();
    let leaf = leaf_of(&rig, &key(3));
    let rig = rig.reopen(true);
    rot(&rig, leaf);
    assert!(rig.cache.budget().used(Class::Buffers) > 0, "recovery reads no leaf for it");
    for round in 0..3 {
        assert!(rig.checkpoint().skip < late.as_lsn(), "round {round}");
        rig.maintain_fully();
        assert_damaged(read(&rig, &key(3)));
        // What is newer than the leaf does not stay with what is late.
        let stuck = rig.cache.budget().used(Class::Buffers);
        rig.put(key(3), format!("{round}"));
        rig.put(key(201), format!("{round}"));
        let short = rig.cache.budget().charge(Class::Buffers, rig.cache.budget().limit() / 3);
        rig.maintain_fully();
        drop(short);
        assert_eq!(rig.cache.budget().used(Class::Buffers), stuck, "round {round}");
        rig.checkpoint();
        assert_eq!(rig.newest(key(201)), Some(format!("{round}").into_bytes()));
    }
    let rig = rig.reopen(true);
    assert!(rig.checkpoint().skip < late.as_lsn(), "not even when opened again");
    assert_damaged(read(&rig, &key(3)));
    rot(&rig, leaf);
    assert_eq!(rig.newest(key(3)).as_deref(), Some(&b"2"[..]));
    assert_eq!(rig.keys().len(), 202);
    assert_eq!(rig.checkpoint().skip, rig.now().as_lsn());
    assert_eq!(rig.cache.budget().used(Class::Buffers), 0);
    rig.verify();
}

/// The log has what is newer than what is stuck, runs too: named as well, a run would be there twice.
#[test]
fn a_run_behind_what_is_stuck_comes_from_the_log() {
    let (rig, late) = ahead();
    let leaf = leaf_of(&rig, &key(3));
    let rig = rig.reopen(true);
    rot(&rig, leaf);
    rig.attach_file(1, vec![(key(301), Some(b"of the run".to_vec()))]);
    let state = rig.checkpoint();
    assert!(state.skip < late.as_lsn() && state.runs.is_empty(), "{state:?}");
    let rig = rig.reopen(true);
    assert_eq!(rig.newest(key(301)).as_deref(), Some(&b"of the run"[..]));
}

/// More of one key than a block of the data file can be: nobody loads a leaf that is damaged, so they come to any number.
#[test]
fn any_number_of_versions_of_one_key_go_into_segments() {
    let rig = filled(buffered(), 200);
    rig.checkpoint();
    let leaf = leaf_of(&rig, &key(3));
    let rig = rig.reopen(true);
    rot(&rig, leaf);
    let value = |n: usize| format!("{n:050}");
    let versions = 20_000;
    for n in 0..versions {
        rig.put(key(3), value(n));
    }
    assert_eq!(rig.checkpoint().skip, rig.now().as_lsn());
    assert_eq!(rig.cache.budget().used(Class::Buffers), 0);
    assert!(segments(&rig).len() > 10, "{} blocks", segments(&rig).len());
    let rig = rig.reopen(true);
    assert_damaged(read(&rig, &key(3)));
    rot(&rig, leaf);
    assert_eq!(rig.newest(key(3)), Some(value(versions - 1).into_bytes()));
    assert_eq!(rig.keys().len(), 201);
    rig.verify();
}

/// What is no damage is a fault of the checkpoint, as ever.
#[test]
fn a_write_that_fails_beside_a_damaged_leaf_is_a_fault() {
    let (rig, _) = ahead();
    let leaf = leaf_of(&rig, &key(3));
    let rig = rig.reopen(true);
    rot(&rig, leaf);
    rig.put(key(201), "elsewhere");
    rig.vfs.fail_writes(true);
    assert!(matches!(rig.try_checkpoint(), Err(Fault::Io { .. })));
    rig.vfs.fail_writes(false);
}

/// Memory is short of room for messages, and all there is cannot go anywhere.
#[test]
fn messages_that_are_stuck_keep_nobody_busy() {
    let (rig, _) = ahead();
    let leaf = leaf_of(&rig, &key(3));
    let rig = rig.reopen(true);
    rot(&rig, leaf);
    let short = rig.cache.budget().charge(Class::Buffers, rig.cache.budget().limit() / 3);
    rig.maintain_fully();
    drop(short);
}

/// What was drained of a run is neither in the run nor in the log. So it must not wait beside a leaf that it is too late for.
#[test]
fn a4_a_run_is_not_drained_beside_a_leaf_that_it_is_late_for() {
    let (rig, late) = ahead();
    let leaf = leaf_of(&rig, &key(3));
    let rig = rig.reopen(false);
    rot(&rig, leaf);
    assert_eq!(rig.attach_file(1, vec![(key(3), Some(b"early".to_vec()))]), late);
    assert_eq!(rig.checkpoint().skip, late.as_lsn(), "the run is named");
    assert_damaged(rig.tree.maintain(&rig.upkeep()));
    let state = rig.checkpoint();
    assert_eq!((state.skip, state.runs), (late.as_lsn(), vec![1]));
    rot(&rig, leaf);
    rig.maintain_fully();
    assert_eq!(rig.newest(key(3)).as_deref(), Some(&b"early"[..]));
    rig.verify();
}

/// A buffer with more than it should have, of three blocks. Nothing is in memory.
fn full_buffer() -> Rig {
    full_buffer_of(Setup { node_bytes: 4096, ..buffered() })
}

pub fn full_buffer_of(setup: Setup) -> Rig {
    let rig = filled(setup, 400);
    rig.checkpoint();
    let rig = rig.reopen(false);
    assert_eq!(rig.keys().len(), 400);
    rig.evict_all();
    for part in 0..3 {
        for n in part * 260..(part + 1) * 260 {
            rig.put(key(n), "some thirty bytes of a message");
        }
        rig.checkpoint();
    }
    assert_eq!(segments(&rig).len(), 3);
    rig
}

#[test]
fn a_damaged_leaf_does_not_keep_others_from_being_drained() {
    let rig = full_buffer();
    let (first, leaf) = (segments(&rig)[0], leaf_of(&rig, &key(50)));
    rot(&rig, leaf);
    rig.maintain_fully();
    rig.checkpoint();
    let left = segments(&rig);
    assert!(left.len() < 3 && left.contains(&first), "others could go: {left:?}");
    assert_damaged(read(&rig, &key(50)));
    for n in [400, 500, 700] {
        assert_eq!(rig.newest(key(n)).as_deref(), Some(&b"some thirty bytes of a message"[..]), "{n}");
    }
    rot(&rig, leaf);
    assert_eq!(rig.keys().len(), 790);
    rig.verify();
}

#[test]
fn a_damaged_segment_does_not_keep_others_from_being_drained() {
    let rig = full_buffer();
    let first = segments(&rig)[0];
    rot(&rig, first);
    rig.maintain_fully();
    rig.checkpoint();
    let left = segments(&rig);
    assert!(left.len() < 3 && left.contains(&first), "others could go: {left:?}");
    assert_damaged(read(&rig, &key(50)));
    assert_eq!(rig.newest(key(700)).as_deref(), Some(&b"some thirty bytes of a message"[..]));
    rot(&rig, first);
    assert_eq!(rig.keys().len(), 790);
    rig.verify();
}

/// Leaves that were drained together are read together by the next drain; one of them that is damaged keeps none of the others.
#[test]
fn neighbours_are_read_ahead_also_beside_damage() {
    for is_damaged in [false, true] {
        let rig = full_buffer();
        rig.maintain_fully();
        rig.checkpoint();
        assert_eq!(segments(&rig).len(), 0, "drained");
        let rig = rig.reopen(false);
        for part in 0..3 {
            for n in part * 260..(part + 1) * 260 {
                rig.put(key(n), "once more thirty bytes of a message");
            }
            rig.checkpoint();
        }
        assert_eq!((rig.tree.stats().loads, segments(&rig).len()), (0, 3), "all on disk");
        let leaf = leaf_of(&rig, &key(300));
        if is_damaged {
            rot(&rig, leaf);
        }
        rig.maintain_fully();
        let stats = rig.tree.stats();
        assert!(stats.read_ahead >= stats.loads / 2, "{} of {} leaves", stats.read_ahead, stats.loads);
        rig.evict_all();
        let others = [0, 100, 500, 700].map(|n| rig.newest(key(n)));
        assert!(others.iter().all(|value| value.as_deref() == Some(&b"once more thirty bytes of a message"[..])));
        if is_damaged {
            assert_damaged(read(&rig, &key(300)));
            rot(&rig, leaf);
        }
        rig.checkpoint();
        assert_eq!(rig.keys().len(), 790);
        rig.verify();
    }
}

/// A node is split between the leaves of a segment that cannot be read: each half has damage of its own, on disk, too.
#[test]
fn a_damaged_segment_is_not_lost_when_its_node_is_split() {
    // In the middle many leaves come, so that each half ends or begins with new ones; at the lower end so few that both have old ones.
    split_beside_damage(200, 300);
    split_beside_damage(20, 0);
}

fn split_beside_damage(at: u64, at_least: u64) {
    let rig = filled(buffered(), 200);
    rig.checkpoint();
    rig.evict_all();
    for n in (0..400).step_by(4) {
        rig.put(key(n), "buffered");
    }
    rig.checkpoint();
    let [segment] = segments(&rig)[..] else { panic!("one block") };
    assert_eq!(rig.keys().len(), 200, "all is in memory now");
    rot(&rig, segment);
    let wide = |n: u64| [key(at), key(n)].concat();
    let mut rows = 0;
    let lost = loop {
        rig.put(wide(rows), "new");
        rows += 1;
        if rows >= at_least && rows % 10 == 0 {
            rig.checkpoint();
            let lost = segments(&rig);
            if lost.len() >= 2 {
                break lost;
            }
        }
    };
    assert!(!lost.contains(&segment), "{lost:?}");
    let mut rig = rig;
    // Loaded, and where leaves stay on disk.
    for is_full in [false, true] {
        rig = rig.reopen(false);
        let _hog = is_full.then(|| nearly_full(&rig));
        let (mut right, mut damaged) = (0, 0);
        // Downwards: whoever met the damage of a leaf would have told those behind.
        for n in (0..200).rev() {
            match read_at(&rig, ReadAt::Snapshot(rig.now()), &key(2 * n)) {
                Ok(value) => {
                    let expected: &[u8] = if n % 2 == 0 { b"buffered" } else { b"first" };
                    assert_eq!(value.as_deref(), Some(expected), "{n} is stale");
                    right += 1;
                }
                Err(fault) => {
                    assert_damaged::<()>(Err(fault));
                    damaged += 1;
                }
            }
        }
        assert!(right > 0 && damaged > 0, "{right} right, {damaged} damaged");
        assert_eq!(rig.tree.stats().uncached_reads > 0, is_full);
    }
    for n in 0..rows {
        assert!(read(&rig, &wide(n)).is_err() || rig.newest(wide(n)).as_deref() == Some(b"new"), "{n}");
    }
    let problems = rig.tree.verify().unwrap().problems;
    assert_eq!(problems.len(), lost.len(), "{problems:#?}");
    problems.into_iter().for_each(|damage| assert_damaged::<()>(Err(damage.into())));
    rig.checkpoint();
    rig.maintain_fully();
}

#[test]
fn a_damaged_segment_is_named_by_verify() {
    let rig = full_buffer();
    rot(&rig, segments(&rig)[1]);
    let mut problems = rig.tree.verify().unwrap().problems;
    assert_eq!(problems.len(), 1, "{problems:#?}");
    let damage = problems.remove(0);
    assert_eq!(damage.what, "block checksum", "{damage}");
    assert!(damage.key_range.as_ref().is_some_and(|keys| keys.contains(&printable(&key(260)))), "{damage}");
    assert_damaged::<()>(Err(damage.into()));
}

/// Values beside a leaf have an owner before the tree lets go, whatever became of the messages above it.
#[test]
fn destroying_beside_a_damaged_segment_frees_everything() {
    let rig = filled(buffered(), 200);
    rig.put(key(3), vec![7; 3000]);
    rig.checkpoint();
    rig.evict_all();
    rig.put(key(5), "buffered");
    rig.checkpoint();
    let rig = rig.reopen(false);
    let [segment] = segments(&rig)[..] else { panic!("one block") };
    rot(&rig, segment);
    rig.tree.destroy().unwrap();
    rig.checkpoint();
    let live: u64 = named(&rig).iter().map(|(_, at)| u64::from(at.stored_bytes)).sum();
    assert_eq!(rig.space.written_and_live().1, live, "nothing is left but an empty root");
}

/// A leaf has a message, and a run brings what it has already: nothing is late, so nothing is stuck when the leaf rots.
#[test]
fn what_changes_nothing_is_not_pending() {
    let (rig, late) = ahead();
    let leaf = leaf_of(&rig, &key(3));
    let rig = rig.reopen(false);
    let mut run = vec![(key(3), Some(b"early".to_vec()))];
    run.extend((0..600).map(|n| (key(10_000 + n), Some(b"of the run".to_vec()))));
    assert_eq!(rig.attach_file(1, run), late);
    let state = rig.checkpoint();
    assert_eq!((state.skip, state.runs), (late.as_lsn(), vec![1]), "the log is trimmed to here");
    assert_eq!(rig.newest(key(3)).as_deref(), Some(&b"early"[..]));
    rig.put([key(2), b"/".to_vec()].concat(), "a message of the leaf");
    rig.maintain();
    rig.evict_all();
    rot(&rig, leaf);
    assert_damaged(rig.tree.get_many(ReadAt::Newest, &[&key(3)], &mut |_, _, _| ()));
    let state = rig.checkpoint();
    assert!(state.skip >= late.as_lsn() && state.runs == [1], "F fell behind the trimmed log: {state:?}");
}

/// The leaf was loaded for the drain; before it is written, it is parked.
#[test]
fn a4_a_run_is_not_drained_beside_a_parked_leaf_that_it_is_late_for() {
    super::simulated(|sim| {
        let (rig, late) = ahead();
        let leaf = leaf_of(&rig, &key(3));
        let rig = std::sync::Arc::new(rig.reopen(false));
        let mut run = vec![(key(3), Some(b"early".to_vec()))];
        run.extend((0..600).map(|n| (key(10_000 + n), Some(b"of the run".to_vec()))));
        assert_eq!(rig.attach_file(1, run), late);
        assert_eq!(rig.checkpoint().skip, late.as_lsn(), "the run is named, the log is trimmed to here");
        let reserved = sim.hold("tree.drain_reserved");
        let drain = super::in_thread(&rig, |rig| {
            let _ = rig.maintain();
        });
        reserved.wait_reached();
        for n in 0..5 {
            rig.put([key(2), vec![b'a' + n]].concat(), "x");
        }
        reserved.open();
        drain.join().unwrap();
        rig.evict_all();
        rot(&rig, leaf);
        let state = rig.checkpoint();
        assert!(state.skip >= late.as_lsn() && state.runs == [1], "F fell behind the trimmed log: {state:?}");
    });
}

/// A leaf begins anew where one was unlinked, under messages that are void, and is complete through these from then on. An older run is late for it, and
/// between two pieces of the run it rots: the drain waits there, and what the log no longer has stays named. Guard: what a run is late for is loaded.
#[test]
fn a4_a_run_stays_named_while_a_leaf_that_it_is_late_for_is_damaged() {
    let rig = filled(buffered(), 200);
    rig.checkpoint();
    (20..70).for_each(|n| _ = rig.delete(key(2 * n)));
    rig.maintain_fully();
    rig.checkpoint();
    rig.evict_all();
    let before = rig.put(key(0), "left of it");
    rig.put(key(150), "right of it");
    rig.log.set_durable(rig.now().0);
    assert_eq!(rig.checkpoint_as_of(before).unwrap().skip, before.as_lsn());
    assert_eq!(segments(&rig).len(), 1, "over what was deleted, and newer than the checkpoint");
    let rig = rig.reopen(false);
    let row = |n: u64| [key(100), format!("/{n:05}").into_bytes()].concat();
    let late = rig.attach_file(1, (0..600).map(|n| (row(n), Some(b"of the run".to_vec()))).collect());
    rig.attach_file(2, vec![(key(2000), Some(b"of the other run".to_vec()))]);
    assert_eq!(rig.checkpoint().runs, [1, 2], "the log is trimmed to here");
    assert_eq!(rig.maintain().entries, 256);
    rig.checkpoint();
    rig.evict_all();
    let leaf = leaf_of(&rig, &row(256));
    rot(&rig, leaf);
    for _ in 0..2 {
        assert_damaged(rig.tree.maintain(&rig.upkeep()));
        let state = rig.checkpoint();
        assert!(state.skip > late.as_lsn() && state.runs == [1, 2], "F fell behind the trimmed log: {state:?}");
    }
    let rig = rig.reopen(false);
    assert_damaged(read(&rig, &row(500)));
    assert_eq!(rig.newest(key(2000)).as_deref(), Some(&b"of the other run"[..]));
    rot(&rig, leaf);
    rig.maintain_fully();
    assert!((0..600).all(|n| rig.newest(row(n)).as_deref() == Some(b"of the run")));
    assert_eq!(rig.checkpoint().runs, [0; 0]);
    rig.verify();
}
