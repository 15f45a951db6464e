//! Messages beside leaves that are not in memory, and in segments above them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{CommitTs, GcView, Lsn};
use index::{Index, LogGate, Reservation, Upkeep};
use store::{Class, WriteEnv};

use super::{filled, in_thread, simulated, small};
use crate::common::{Rig, Setup, batch, key};

fn buffered() -> Setup {
    Setup { buffered: true, ..small() }
}

/// Rows of which none is in memory, the inner nodes apart.
fn cold() -> Rig {
    let rig = filled(buffered(), 200);
    rig.checkpoint();
    let rig = rig.reopen(false);
    assert_eq!(rig.keys().len(), 200);
    rig.evict_all();
    rig
}

/// Throws everything out as a step of the cache does that began long ago.
fn evict_as_of(rig: &Rig, applied: CommitTs) {
    let env = WriteEnv { view: GcView::keep_all(), applied: applied.as_lsn(), durable: rig.log.durable() };
    let hog = rig.cache.budget().charge(Class::Frames, rig.cache.budget().limit());
    while rig.cache.step(&env, &*rig.log, &rig.space).unwrap().advanced() {}
    drop(hog);
    assert_eq!(rig.cache.stats().pages, 0, "all is out");
}

#[test]
fn messages_are_read_wherever_they_are() {
    let rig = cold();
    let loads = rig.tree.stats().loads;
    rig.put(key(3), "beside the leaf");
    assert_eq!(rig.tree.stats().loads, loads, "nobody waited for the leaf");
    assert!(rig.cache.budget().used(Class::Buffers) > 0);
    assert_eq!(rig.newest(key(3)).as_deref(), Some(&b"beside the leaf"[..]));
    assert_eq!(rig.cache.budget().used(Class::Buffers), 0);
    rig.evict_all();
    rig.put(key(5), "in a segment");
    rig.delete(key(6));
    rig.checkpoint();
    assert_eq!(rig.cache.budget().used(Class::Buffers), 0);
    let rig = rig.reopen(false);
    assert_eq!(rig.newest(key(3)).as_deref(), Some(&b"beside the leaf"[..]));
    assert_eq!(rig.newest(key(5)).as_deref(), Some(&b"in a segment"[..]));
    assert_eq!(rig.newest(key(6)), None);
    assert_eq!(rig.keys().len(), 201);
    // What segments hold makes no leaf dirty.
    rig.evict_all();
    assert_eq!(rig.tree.stats().writes, 0);
    assert_eq!(rig.keys().len(), 201);
    rig.verify();
}

/// A flush is under way when the leaf is loaded: the loader has not seen the segment, and finds the message still pending.
#[test]
fn a10_a_flush_leaves_a_loader_its_messages() {
    simulated(|sim| {
        let rig = Arc::new(cold());
        rig.put(key(3), "new");
        let written = sim.hold("tree.segment_written");
        let checkpoint = in_thread(&rig, |rig| drop(rig.checkpoint()));
        written.wait_reached();
        let loaded = sim.hold("tree.loaded");
        let reader = in_thread(&rig, |rig| assert_eq!(rig.newest(key(3)).as_deref(), Some(&b"new"[..])));
        loaded.wait_reached();
        let composing = sim.hold("tree.before_compose");
        written.open();
        composing.wait_reached();
        loaded.open();
        reader.join().unwrap();
        composing.open();
        checkpoint.join().unwrap();
        rig.verify();
    });
}

/// What a flush has put into the buffer stays pending until the flush comes to the leaf again. A loader that finds it in both, or that is
/// not done when the flush comes, counts it once, and it is not put into the buffer again. Guards: it is taken off the counts once; the
/// loader removes what the flush could not; what it has not found in the buffer, but is there, is on disk.
#[test]
fn what_a_loader_finds_twice_counts_once() {
    for (is_found_twice, is_still_loading) in [(true, false), (true, true), (false, true)] {
        simulated(move |sim| {
            // One leaf, with room: what is pending beside it stays so when it is loaded.
            let rig = Arc::new(filled(buffered(), 5));
            rig.checkpoint();
            rig.evict_all();
            rig.put(key(3), "new");
            let flushed = sim.hold(if is_found_twice { "tree.segment_placed" } else { "tree.segment_written" });
            let checkpoint = in_thread(&rig, |rig| drop(rig.checkpoint()));
            flushed.wait_reached();
            let loaded = sim.hold("tree.loaded");
            let reader = in_thread(&rig, |rig| assert!(rig.newest(key(3)).is_some()));
            loaded.wait_reached();
            let composing = sim.hold("tree.before_compose");
            if is_still_loading {
                flushed.open();
                composing.wait_reached();
                loaded.open();
                reader.join().unwrap();
            } else {
                loaded.open();
                reader.join().unwrap();
                flushed.open();
                composing.wait_reached();
            }
            composing.open();
            checkpoint.join().unwrap();
            let check = |rig: &Rig, when: &str| {
                let stats = rig.tree.stats();
                assert_eq!(
                    (stats.live_keys, stats.dead_versions),
                    (6, 0),
                    "{when}, {is_found_twice}, {is_still_loading}"
                );
            };
            check(&rig, "loaded");
            rig.evict_all();
            check(&rig, "thrown out");
            assert!(rig.newest(key(3)).is_some());
            check(&rig, "loaded again");
            rig.checkpoint();
            rig.evict_all();
            check(&rig, "thrown out again");
            rig.verify();
            let rig = Arc::into_inner(rig).expect("the others are done").reopen(false);
            check(&rig, "opened again");
            assert!(rig.newest(key(3)).is_some());
            check(&rig, "opened again and loaded");
        });
    }
}

/// What the log brings again, and is in the buffer already, was counted twice, and is taken off twice when the leaf gets it.
#[test]
fn what_is_replayed_beside_the_buffer_counts_once() {
    let rig = filled(buffered(), 5);
    rig.checkpoint();
    rig.evict_all();
    let first = rig.put(key(3), "in the checkpoint");
    rig.put(key(5), "in the buffer, and replayed");
    rig.checkpoint_as_of(first).unwrap();
    let rig = rig.reopen(true);
    assert!(rig.newest(key(3)).is_some() && rig.newest(key(5)).is_some());
    assert_eq!(rig.tree.stats().live_keys, 7);
    rig.checkpoint();
    rig.evict_all();
    let rig = rig.reopen(false);
    assert!(rig.newest(key(3)).is_some() && rig.newest(key(5)).is_some());
    assert_eq!(rig.tree.stats().live_keys, 7);
}

/// What a segment holds was deleted, and both are gone from the leaf: the segment does not bring it back.
#[test]
fn a5_a_segment_does_not_bring_back_what_was_collected() {
    let rig = cold();
    rig.put(key(3), "in a segment");
    rig.checkpoint();
    assert!(rig.newest(key(3)).is_some());
    rig.delete(key(3));
    rig.put("z", "moves the floor");
    // The next commit of the leaf collects.
    rig.put(key(5), "another");
    rig.evict_all();
    assert_eq!(rig.newest(key(3)), None);
    assert!(rig.newest(key(5)).is_some());
    rig.verify();
}

/// As before, but the leaf is collected while a step of the cache is under way, which writes it with an older prefix.
#[test]
fn a5_an_image_is_complete_through_what_was_collected() {
    let rig = cold();
    let before = rig.now();
    rig.put(key(3), "in a segment");
    rig.checkpoint();
    assert!(rig.newest(key(3)).is_some());
    rig.delete(key(3));
    rig.put("z", "moves the floor");
    rig.delete(key(3));
    rig.put("z", "moves the floor again");
    // A commit to the key collects its versions.
    rig.delete(key(3));
    evict_as_of(&rig, before);
    assert_eq!(rig.newest(key(3)), None);
    rig.verify();
}

/// A range died and was unlinked with a message in a segment; a leaf that grows there does not have it.
#[test]
fn a8_messages_for_an_empty_slot_are_void() {
    let rig = cold();
    let before = rig.now();
    rig.put(key(3), "in a segment");
    rig.checkpoint();
    assert!(rig.newest(key(3)).is_some());
    rig.commit((0..=400).map(|n| (key(n), None)).collect());
    rig.put("z", "moves the floor");
    rig.maintain_fully();
    assert!(rig.tree.stats().unlinks > 0);
    assert_eq!(rig.newest(key(3)), None);
    rig.put(key(4), "fresh");
    evict_as_of(&rig, before);
    assert_eq!(rig.newest(key(3)), None);
    assert!(rig.newest(key(4)).is_some());
    rig.checkpoint();
    let rig = rig.reopen(false);
    assert_eq!(rig.newest(key(3)), None);
    assert!(rig.newest(key(4)).is_some());
    rig.verify();
}

/// The first time that somebody waits for it, others get on.
struct Slow<'a> {
    rig: &'a Rig,
    waited: AtomicBool,
    meanwhile: &'a (dyn Fn() + Sync),
}

impl LogGate for Slow<'_> {
    fn durable(&self) -> Lsn {
        self.rig.log.durable()
    }

    fn make_durable(&self, lsn: Lsn) -> base::Result<()> {
        if !self.waited.swap(true, Ordering::SeqCst) {
            (self.meanwhile)();
        }
        self.rig.log.make_durable(lsn)
    }
}

/// A flush waits for the log. Meanwhile what it has on its way is loaded, deleted, unlinked; a fresh leaf grows there and goes
/// to disk. Then the segment is put in place.
#[test]
fn a8_what_is_on_its_way_to_a_segment_is_void_for_a_fresh_leaf() {
    let rig = Rig::new(buffered());
    rig.put("a", "1");
    rig.checkpoint();
    rig.evict_all();
    rig.put("k", "2");
    let meanwhile = || {
        assert!(rig.newest("k").is_some());
        rig.commit(vec![(b"a".to_vec(), None), (b"k".to_vec(), None)]);
        rig.maintain_fully();
        assert_eq!(rig.tree.stats().unlinks, 1, "purged");
        rig.put("j", "3");
        rig.evict_all();
        assert_eq!(rig.cache.stats().pages, 0);
    };
    let slow = Slow { rig: &rig, waited: AtomicBool::new(false), meanwhile: &meanwhile };
    let upkeep = Upkeep { log: &slow, ..rig.upkeep() };
    rig.tree.checkpoint(&upkeep).unwrap();
    assert!(slow.waited.load(Ordering::SeqCst), "a segment waits for the log");
    assert_eq!(rig.newest("k"), None, "it was deleted");
}

/// While something older may still come, no image is complete through what segments hold: draining would not help.
#[test]
fn a4_a_drain_that_is_held_back_ends() {
    for held_back in [false, true] {
        let rig = Rig::new(buffered());
        for n in 0..400 {
            rig.put(key(n), "a value of some thirty bytes...");
        }
        rig.checkpoint();
        rig.evict_all();
        if held_back {
            rig.tree.expect_late(Some(CommitTs(rig.now().0 + 16)));
        }
        for _ in 0..3 {
            for n in (0..400).step_by(2) {
                rig.put(key(n), "another value of some thirty bytes");
            }
            rig.checkpoint();
            rig.evict_all();
        }
        rig.maintain_fully();
    }
}

#[test]
fn messages_count_after_a_reopen() {
    let rig = Rig::new(buffered());
    for n in 0..5 {
        rig.put(key(2 * n), "1");
    }
    rig.checkpoint();
    rig.evict_all();
    for n in 0..5 {
        rig.put(key(2 * n + 1), "1");
    }
    rig.checkpoint();
    rig.evict_all();
    let rig = rig.reopen(false);
    assert_eq!(rig.keys().len(), 10);
    assert_eq!(rig.tree.stats().live_keys, 10);
}

/// A leaf dies, and is on disk with its mark; then a put comes as a message. Scans find it, also after a reopen.
#[test]
fn a25_a_buffered_put_is_not_hopped_over() {
    let rig = cold();
    rig.snapshots.lock().push(rig.now());
    rig.commit((0..=400).map(|n| (key(n), None)).collect());
    assert!(rig.keys().is_empty());
    rig.evict_all();
    rig.put(key(3), "alive");
    assert_eq!(rig.keys(), [key(3)], "beside the leaf");
    rig.evict_all();
    rig.put(key(103), "alive, too");
    rig.checkpoint();
    assert_eq!(rig.cache.budget().used(Class::Buffers), 0, "in a segment");
    let rig = rig.reopen(false);
    assert_eq!(rig.keys(), [key(3), key(103)]);
    rig.verify();
}

/// A few changes of leaves in memory are messages beside them: the leaves go as they are, not written, and come back with their changes, from
/// memory and from a segment. A leaf with many is written. Guard: `is_light`.
#[test]
fn a_leaf_with_few_changes_leaves_memory_unwritten() {
    let rig = filled(Setup { node_bytes: 4096, ..buffered() }, 2000);
    // Room in each leaf, so that none is split.
    rig.commit((0..2000).filter(|n| n % 4 == 1).map(|n| (key(n * 2), None)).collect());
    rig.put("z", "moves the floor");
    rig.checkpoint();
    let rig = rig.reopen(false);
    assert_eq!(rig.keys().len(), 1501);
    let written = |rig: &Rig| (rig.tree.stats().writes, rig.tree.stats().traffic.leaf_bytes);
    let (leaves, before) = (rig.tree.stats().leaves, written(&rig));
    assert_eq!(rig.tree.stats().resident_leaves, leaves);
    // Two of each leaf or so.
    let changed: Vec<u64> = (0..2000).step_by(70).map(|n| n * 2).collect();
    changed.iter().for_each(|n| {
        rig.put(key(*n), "few");
    });
    rig.evict_all();
    assert_eq!(rig.tree.stats().resident_leaves, 0, "all are out");
    assert_eq!(written(&rig), before, "no leaf was written");
    assert!(rig.cache.budget().used(Class::Buffers) > 0, "what changed is beside them");
    let check = |rig: &Rig, when: &str| {
        let found = changed.iter().filter(|n| rig.newest(key(**n)).as_deref() == Some(b"few")).count();
        assert_eq!(found, changed.len(), "{when}");
    };
    check(&rig, "from memory");
    rig.evict_all();
    rig.checkpoint();
    rig.evict_all();
    assert_eq!(rig.cache.budget().used(Class::Buffers), 0);
    assert_eq!(written(&rig), before, "a checkpoint writes messages, no leaf");
    let segment_bytes = rig.tree.stats().traffic.segment_bytes;
    assert!(segment_bytes > 0 && segment_bytes < leaves * 4096 / 4, "{segment_bytes} bytes for {leaves} leaves");
    check(&rig, "from a segment");
    assert!(rig.newest(key(4)).is_some());
    // More than a quarter of a page for one leaf.
    (0..30).for_each(|_| {
        rig.put(key(4), vec![b'm'; 40]);
    });
    rig.evict_all();
    assert_eq!(written(&rig).0, before.0 + 1, "one leaf was written");
    let rig = rig.reopen(false);
    check(&rig, "opened again");
    rig.verify();
}

/// Of each block of messages an inner node names the first key and the last one: long ones would not fit.
#[test]
fn what_has_a_long_key_is_no_message() {
    let rig = filled(Setup { node_bytes: 16 << 10, ..buffered() }, 200);
    rig.checkpoint();
    let rig = rig.reopen(false);
    assert_eq!(rig.keys().len(), 200);
    let long = |bytes: usize| [key(3), vec![b'k'; bytes - key(3).len()]].concat();
    for (bytes, waits) in [(1024, true), (1025, false)] {
        rig.evict_all();
        rig.put(long(bytes), "value");
        assert_eq!(rig.cache.budget().used(Class::Buffers) > 0, waits, "{bytes}, beside a leaf on disk");
        rig.checkpoint();
        assert!(rig.newest(long(bytes)).is_some());
        rig.put(long(bytes), "again");
        assert_eq!(rig.cache.budget().used(Class::Buffers) > 0, waits, "{bytes}, beside a leaf in memory");
        rig.checkpoint();
    }
    rig.verify();
    let rig = rig.reopen(false);
    assert!([1024, 1025].iter().all(|bytes| rig.newest(long(*bytes)).as_deref() == Some(b"again")));
}

/// Rows in some five hundred leaves of several inner nodes, none of them in memory, under a budget of so many bytes.
fn wide(budget_bytes: u64) -> Rig {
    let rig = Rig::new(Setup { buffered: true, node_bytes: 4096, ..Setup::default() });
    for from in (0..4000).step_by(50) {
        rig.commit((from..from + 50).map(|n| (key(n * 2), Some(vec![b'v'; 400]))).collect());
    }
    rig.checkpoint();
    let mut rig = rig;
    rig.setup.budget_bytes = budget_bytes;
    let rig = rig.reopen(false);
    assert!(rig.tree.stats().leaves > 400, "{:?}", rig.tree.stats());
    rig
}

/// Memory is taken; messages are what can make room. Bringing them to disk waits for no leaf that is just being loaded, whose
/// loader may be what waits for memory.
#[test]
fn d10_messages_make_room_for_whoever_waits() {
    simulated(|sim| {
        let rig = Arc::new(wide(64 << 20));
        let budget = rig.cache.budget().clone();
        rig.put(key(3), "of a leaf that is being loaded");
        let loading = sim.hold("tree.loading");
        let reader = in_thread(&rig, |rig| assert!(rig.newest(key(3)).is_some()));
        loading.wait_reached();
        let before = budget.used(Class::Buffers);
        rig.put(key(7001), "of one under another node");
        let hog = budget.charge(Class::Work, budget.free());
        assert!(rig.tree.relieve(&*rig.log).unwrap() > 0);
        assert_eq!(budget.used(Class::Buffers), before);
        assert_eq!(rig.tree.relieve(&*rig.log).unwrap(), 0);
        loading.open();
        drop(hog);
        reader.join().unwrap();
        assert_eq!(rig.newest(key(7001)).as_deref(), Some(&b"of one under another node"[..]));
        rig.verify();
    });
}

/// A flush of one inner node gives back what the messages below it took, although those of other nodes came between them.
#[test]
fn d10_a_flush_gives_memory_back() {
    let rig = wide(64 << 20);
    for n in 0..2000 {
        rig.put(key(n * 1237 % 2000 * 4), vec![b'w'; 300]);
    }
    let budget = rig.cache.budget();
    let before = budget.used(Class::Buffers);
    let short = budget.charge(Class::Buffers, budget.limit() / 3);
    let moved = rig.maintain().entries;
    drop(short);
    assert!((100..1000).contains(&moved), "{moved} messages below one of several nodes");
    let freed = before - budget.used(Class::Buffers);
    assert!(freed * 2000 > before * moved * 9 / 10, "{freed} of {before} bytes for {moved} of 2000 messages");
    rig.checkpoint();
    assert_eq!(rig.cache.budget().used(Class::Buffers), 0);
    rig.verify();
}

/// Messages beside very many leaves take much more than they are long: then the commit is a run, which is drained piece by piece.
#[test]
fn a1_a_commit_with_messages_beside_too_many_leaves_is_a_run() {
    let rig = wide(2 << 20);
    let write = |n: u64| (key(n * 2), Some(b"second".to_vec()));
    let (few, many) =
        ((0..4000).step_by(400).map(write).collect::<Vec<_>>(), (0..4000).step_by(7).map(write).collect());
    assert!(matches!(rig.tree.reserve(&batch(&few)).unwrap(), Reservation::Direct(_)));
    let many: Vec<_> = many;
    assert!(matches!(rig.tree.reserve(&batch(&many)).unwrap(), Reservation::TooCold));
    rig.commit(many.clone());
    assert!(rig.tree.stats().run_bytes > 0);
    rig.maintain_fully();
    let stats = rig.tree.stats();
    assert!(stats.run_bytes == 0 && stats.loads < 10, "messages, hardly any leaf is read for them: {stats:?}");
    assert_eq!(rig.cache.budget().over_commits().count, 0);
    assert!(rig.cache.budget().used(Class::Buffers) > 0);
    rig.checkpoint();
    rig.evict_all();
    for (key, value) in many.into_iter().step_by(10) {
        assert_eq!(rig.newest(key), value);
    }
}

/// An attached run, in memory or in a file, whose keys lie far apart: the drain puts them beside leaves on disk as it does a commit's,
/// a flush brings them into segments, and hardly any leaf is read or written for it.
#[test]
fn a3_an_attached_run_is_drained_through_buffers() {
    for in_file in [false, true] {
        let rig = wide(64 << 20);
        let before = rig.tree.stats();
        let writes: Vec<_> = (0..4000).step_by(40).map(|n| (key(n * 2), Some(b"of the run".to_vec()))).collect();
        if in_file {
            rig.attach_file(9, writes.clone())
        } else {
            rig.attach(writes.clone())
        };
        rig.maintain_fully();
        let stats = rig.tree.stats();
        let read = stats.loads - before.loads;
        assert!(stats.runs == 0 && read < 5, "{read} leaves were read for a hundred rows, in a file: {in_file}");
        assert!(rig.cache.budget().used(Class::Buffers) > 0, "messages, in a file: {in_file}");
        rig.checkpoint();
        let stats = rig.tree.stats();
        let written = stats.writes - before.writes;
        assert!(written < 5, "{written} leaves were written, in a file: {in_file}");
        assert!(stats.traffic.segment_bytes > before.traffic.segment_bytes, "in a file: {in_file}");
        let rig = rig.reopen(false);
        assert!(writes.iter().all(|(key, value)| rig.newest(key) == *value), "in a file: {in_file}");
        rig.verify();
    }
}

/// What is ingested in key order comes as a run. Where it makes up most of a leaf, that leaf is read and gets it at once, since no segment
/// would spare a write; where it is a row here and there, it waits as a message. Behind the last key fresh leaves are filled.
#[test]
fn a3_sorted_ingest_goes_to_the_leaves_that_it_fills_and_to_buffers_elsewhere() {
    let rig = wide(64 << 20);
    let before = rig.tree.stats();
    let row = |n: u64| (key(n), Some(vec![b'i'; 100]));
    let dense = (1000..1400).map(|n| row(n * 2 + 1));
    let (sparse, behind) = ((2000..4000).step_by(100).map(|n| row(n * 2 + 1)), (9000..9400).map(row));
    let writes: Vec<_> = dense.chain(sparse).chain(behind).collect();
    rig.attach_file(9, writes.clone());
    rig.maintain_fully();
    let stats = rig.tree.stats();
    let read = stats.loads - before.loads;
    assert!((1..400 / 4).contains(&read), "leaves of the dense part, many rows each: {read}");
    let waiting = rig.cache.budget().used(Class::Buffers);
    assert!(waiting > 0, "the rows here and there wait");
    rig.checkpoint();
    let rig = rig.reopen(false);
    assert!(writes.iter().all(|(key, value)| rig.newest(key) == *value));
    rig.verify();
}

/// The memory that is granted is enough, although each inner node gets slabs of its own and nothing else is free.
#[test]
fn a1_what_is_granted_is_enough_for_messages() {
    let rig = wide(64 << 20);
    for round in 0..20 {
        // One row, which may be the first of its node, or some of several nodes.
        let (first, step) = if round % 2 == 0 { (round * 200, 4000) } else { (round, 400) };
        let writes: Vec<_> = (first..4000).step_by(step).map(|n| (key(n * 2), Some(vec![b'x'; 30]))).collect();
        let batch = batch(&writes);
        let Reservation::Direct(granted) = rig.tree.reserve(&batch).unwrap() else { panic!("few messages") };
        let hog = rig.cache.budget().charge(Class::Frames, rig.cache.budget().free());
        rig.tree.apply(&batch, granted, CommitTs(rig.now().0 + 16 * (round + 1)), &rig.view());
        assert_eq!(rig.cache.budget().over_commits().count, 0, "round {round}");
        drop(hog);
    }
    assert!(rig.cache.budget().used(Class::Buffers) > 0);
}

/// Many small blocks of messages with keys as long as they may be: what a node says of them would be more than a block takes.
#[test]
fn a_node_does_not_name_more_messages_than_it_can() {
    let rig = Rig::new(Setup { buffered: true, node_bytes: 16 << 10, extent_bytes: 64 << 10, ..Setup::default() });
    let long = |n: u64| [key(n), vec![b'k'; 1000]].concat();
    for from in (0..600).step_by(20) {
        rig.commit((from..from + 20).map(|n| (long(n), Some(vec![b'v'; 100]))).collect());
    }
    rig.checkpoint();
    let rig = rig.reopen(false);
    for round in 0..60 {
        rig.evict_all();
        rig.put(long(round * 7), format!("in round {round}"));
        rig.checkpoint();
    }
    let rig = rig.reopen(false);
    for round in 0..60 {
        assert_eq!(rig.newest(long(round * 7)), Some(format!("in round {round}").into_bytes()));
    }
    rig.verify();
}

/// A drain has written chains of versions, not yet the leaves that name them: no image has their blocks, and what the leaves lack is
/// in segments, so that by its age alone no checkpoint would wait for it.
#[test]
fn chains_that_a_drain_has_written_are_named_by_the_next_checkpoint() {
    let rig = cold();
    for n in 0..10 {
        for row in (0..400).step_by(10) {
            let ts = rig.put(key(row), [n; 60]);
            rig.snapshots.lock().push(ts);
        }
    }
    rig.checkpoint();
    assert_eq!(rig.tree.stats().traffic.beside_bytes, 0, "messages still");
    rig.maintain_fully();
    let written = rig.tree.stats().traffic.beside_bytes;
    assert!(written > 40 * 60, "{written} bytes of chains were written");
    // What a checkpoint frees counts until the next one.
    rig.checkpoint();
    rig.checkpoint();
    let (space, tree) = (rig.space.stats(), rig.tree.stats());
    assert_eq!(space.held_bytes, space.live_bytes, "{tree:?}");
    assert_eq!(tree.disk_bytes, space.live_bytes, "{tree:?}");
    let rig = rig.reopen(false);
    assert_eq!(rig.keys().len(), 200);
    assert_eq!(rig.newest(key(10)), Some(vec![9; 60]));
    rig.verify();
}
