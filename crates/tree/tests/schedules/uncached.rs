//! Point reads of leaves that stay on disk [A10].

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use base::CommitTs;
use index::{Direction, EntryBatch, Index, ReadAt};
use store::{Charge, Class, Compression};
use vfs::sim::{Config, Simulation};

use super::{filled, in_thread, simulated, small};
use crate::common::{Numbers, Rig, Setup, key};

/// Memory that is nearly full as long as this is held; there is room for a few pages.
pub fn nearly_full(rig: &Rig) -> Charge {
    let budget = rig.cache.budget();
    let hog = budget.charge(Class::WriteSets, budget.limit() - budget.total() - (1 << 20));
    assert!(rig.cache.is_nearly_full());
    hog
}

/// Rows of which none is in memory, the inner nodes apart.
fn cold(buffered: bool) -> Rig {
    let rig = filled(Setup { buffered, ..small() }, 200);
    rig.checkpoint();
    rig.evict_all();
    rig
}

/// As a reader at a snapshot of now: who reads the newest loads.
fn read(rig: &Rig, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    rig.get(ReadAt::Snapshot(rig.now()), key)
}

/// Those that the newest commit at or below `at` has, from the history.
fn of_history(rig: &Rig, at: CommitTs) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut rows = BTreeMap::new();
    for commit in rig.commits.lock().iter().filter(|commit| commit.ts <= at) {
        for (key, value) in &commit.writes {
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
    }
    rows
}

#[test]
fn a_leaf_comes_into_memory_with_the_eighth_read() {
    let rig = cold(true);
    let read = |n: u64| assert_eq!(read(&rig, key(2 * n)).as_deref(), Some(&b"first"[..]));
    let loads = || rig.tree.stats().loads;
    let before = loads();
    read(3);
    assert_eq!(loads(), before + 1, "there is memory enough");
    rig.evict_all();
    let hog = nearly_full(&rig);
    (0..7).for_each(|_| read(3));
    assert_eq!(loads(), before + 1, "it stays on disk");
    read(100);
    assert_eq!(loads(), before + 1, "another one, too");
    (0..7).for_each(|_| read(3));
    assert_eq!(loads(), before + 2, "read often, it is loaded, once");
    drop(hog);
    rig.evict_all();
    let _hog = nearly_full(&rig);
    // Two keys of one leaf: a page is worth it.
    let (a, b) = (key(6), key(8));
    let mut found = 0;
    rig.tree.get_many(ReadAt::Snapshot(rig.now()), &[&a, &b], &mut |_, _, _| found += 1).unwrap();
    assert_eq!((found, loads()), (2, before + 3));
    assert!(rig.newest(key(100)).is_some());
    assert_eq!(loads(), before + 4, "who reads the newest is about to write");
    assert_eq!(rig.tree.stats().uncached_reads, 7 + 1);
}

/// Guard: the look at the filter in `SegmentBlock::may_have`.
#[test]
fn a_block_of_messages_is_read_once_for_keys_that_it_does_not_have() {
    let rig = cold(true);
    for n in (0..200).step_by(10) {
        rig.commit(vec![(key(2 * n), Some(b"second".to_vec()))]);
    }
    rig.checkpoint();
    let _hog = nearly_full(&rig);
    let mut blocks = Vec::new();
    for n in [3, 7, 11, 10, 45, 40] {
        let (before, expected) = (rig.tree.stats().traffic.point_blocks, if n % 10 == 0 { "second" } else { "first" });
        assert_eq!(read(&rig, key(2 * n)).as_deref(), Some(expected.as_bytes()));
        blocks.push(rig.tree.stats().traffic.point_blocks - before);
    }
    // The first reads block and leaf; who finds a message does not read the leaf.
    assert_eq!(blocks, [2, 1, 1, 1, 1, 1]);
}

/// Guard: `Counters::count_cold_visit` knows the leaf of the visit before.
#[test]
fn what_comes_in_key_order_to_one_leaf_on_disk_visits_it_once() {
    let rig = cold(true);
    let cold = || rig.tree.stats().traffic.cold_visits;
    let before = cold();
    for n in 500..520 {
        rig.put(key(n), "appended");
    }
    assert_eq!(cold(), before + 1, "a B-tree would have loaded it with the first");
    for _ in 0..5 {
        rig.put(key(3), "low");
        rig.put(key(520), "high");
    }
    assert_eq!(cold(), before + 11, "leaves by turns: at random, for all that is known");
    assert!(are_in_one_leaf(&rig, &key(500), &key(520)) && !are_in_one_leaf(&rig, &key(3), &key(500)));
}

/// A leaf of three basements that is not in memory, and a key of each.
fn of_basements() -> (Rig, Vec<Vec<u8>>) {
    let setup = Setup { node_bytes: 64 << 10, compression: Compression::Lz4, buffered: true, ..small() };
    let rig = filled(setup, 0);
    for from in (0..700).step_by(50) {
        rig.commit((from..from + 50).map(|n| (key(n), Some(format!("{n:060}").into_bytes()))).collect());
    }
    rig.checkpoint();
    rig.evict_all();
    (rig, [10, 300, 690].map(key).into())
}

/// Bytes that a read of `key`, which is there, reads from disk.
fn cost(rig: &Rig, key: &Vec<u8>) -> u64 {
    let before = rig.space.stats().read_bytes;
    assert!(read(rig, key).is_some());
    rig.space.stats().read_bytes - before
}

/// As much as the budget has leaves memory.
fn next_turn(rig: &Rig) {
    rig.cache.balance().note_evicted(rig.cache.budget().limit());
}

/// Guards: `Image::learn`; a read that is not wanted again in `offer_from_image`.
#[test]
fn of_a_leaf_that_was_read_before_one_basement_is_read() {
    let (rig, keys) = of_basements();
    let whole = {
        let _hog = nearly_full(&rig);
        cost(&rig, &keys[0])
    };
    let parts: Vec<_> = keys
        .iter()
        .map(|key| {
            rig.evict_all();
            next_turn(&rig);
            let _hog = nearly_full(&rig);
            cost(&rig, key)
        })
        .collect();
    assert!(parts.iter().all(|part| (1..whole / 2).contains(part)), "{parts:?} of {whole} bytes");
    assert!(parts.iter().sum::<u64>() < whole, "{parts:?} of {whole} bytes");
    assert_eq!((rig.tree.stats().loads, read(&rig, key(701))), (0, None));
}

/// Guards: `keep_packed` keeps; `is_wanted_again`; `take_packed` in `load_leaf_with`.
#[test]
fn what_was_read_of_a_leaf_stays_in_memory_as_it_is_stored() {
    let (rig, keys) = of_basements();
    let hog = nearly_full(&rig);
    let frames = || rig.cache.budget().used(Class::Frames);
    let before = frames();
    let whole = cost(&rig, &keys[0]);
    assert!((whole / 2..64 << 10).contains(&(frames() - before)), "{} bytes for {whole}", frames() - before);
    keys.iter().for_each(|key| assert_eq!(cost(&rig, key), 0, "from memory"));
    let at_disk = rig.space.stats().read_bytes;
    assert_eq!((read(&rig, key(701)), rig.space.stats().read_bytes), (None, at_disk));
    drop(hog);
    rig.evict_all();
    assert_eq!(frames(), before, "it leaves memory like any page");
    let hog = nearly_full(&rig);
    assert!(cost(&rig, &keys[1]) < whole / 2, "once in a turn is not worth a place");
    assert_eq!(cost(&rig, &keys[1]), whole, "twice is");
    assert_eq!(cost(&rig, &keys[2]), 0);
    drop(hog);
    // Who needs the leaf makes it of that, and has it once.
    let at_disk = rig.space.stats().read_bytes;
    assert!(rig.newest(&keys[0]).is_some());
    assert_eq!((rig.space.stats().read_bytes, rig.tree.stats().loads), (at_disk, 1));
    rig.evict_all();
    assert_eq!(frames(), before);
}

/// Guards: the turn in `LeafHandle::may_stay_packed`; that it counts.
#[test]
fn what_is_packed_comes_into_memory_if_it_is_read_often_in_one_turn() {
    let (rig, keys) = of_basements();
    let hog = nearly_full(&rig);
    assert!(cost(&rig, &keys[0]) > 0);
    for _ in 0..5 {
        (0..40).for_each(|_| assert_eq!(cost(&rig, &keys[0]), 0));
        next_turn(&rig);
    }
    assert_eq!(rig.tree.stats().loads, 0, "it is not read more often than others");
    (0..64).for_each(|_| assert_eq!(cost(&rig, &keys[0]), 0));
    assert_eq!(rig.tree.stats().loads, 1);
    drop(hog);
}

/// Guard: the checksum in `Wanted::open`.
#[test]
fn a_basement_that_rots_behind_the_first_read_is_not_believed() {
    let (rig, keys) = of_basements();
    let mut blocks = Vec::new();
    rig.tree.reach(&mut |at, who| blocks.extend(who().starts_with("Leaf").then_some(at))).unwrap();
    let [block] = blocks[..] else { panic!("one leaf: {blocks:?}") };
    let (mut right, mut damaged, mut reads) = (0, 0, 0);
    for place in (block.offset + 200..block.end()).step_by(97) {
        for key in &keys {
            let hog = nearly_full(&rig);
            assert!(read(&rig, key).is_some());
            drop(hog);
            rig.evict_all();
            next_turn(&rig);
            let hog = nearly_full(&rig);
            rig.vfs.rot(place);
            reads += 1;
            let mut value = None;
            let at = ReadAt::Snapshot(rig.now());
            match rig.tree.get_many(at, &[key], &mut |_, _, found| value = Some(found.to_vec())) {
                Ok(()) => right += i32::from(value.is_some_and(|value| value.ends_with(&key[3..]))),
                Err(fault) => damaged += i32::from(fault.into_damage().is_ok()),
            }
            rig.vfs.rot(place);
            drop(hog);
            // Sound again, for whoever loads it.
            assert!(rig.newest(key).is_some());
            rig.evict_all();
        }
    }
    // Each place lies in one basement, which one of three keys is in.
    assert!(damaged > 10 && right > 10, "{right} right, {damaged} damaged");
    assert_eq!(right + damaged, reads);
}

/// Guards: `load_to_read` marks the leaf; `read_leaf` loads with it; a scan that comes from a neighbour does not.
#[test]
fn a_leaf_that_is_looked_into_keeps_the_messages_it_was_given() {
    let rig = filled(Setup { buffered: true, node_bytes: 2048, ..small() }, 400);
    // Half of each leaf is free, so that none is split for its messages.
    for from in (0..400).step_by(40) {
        rig.commit((from..from + 40).filter(|n| n % 2 == 1).map(|n| (key(2 * n), None)).collect());
    }
    rig.checkpoint();
    rig.evict_all();
    for n in (0..400).step_by(20) {
        rig.commit(vec![(key(2 * n), Some(b"second".to_vec()))]);
    }
    rig.checkpoint();
    rig.evict_all();
    let written = || rig.tree.stats().traffic.leaf_bytes;
    let look_into = |n: u64| {
        let from = key(2 * n);
        let range = (Bound::Included(&*from), Bound::Unbounded);
        let (mut cursor, mut out) = (rig.tree.cursor(ReadAt::Newest, range, Direction::Forward), EntryBatch::new());
        cursor.fill(&mut out, 1).unwrap();
        assert_eq!((out.key(0), out.value(0)), (&*from, &b"second"[..]));
        drop(cursor);
        let before = written();
        rig.evict_all();
        written() - before
    };
    let first = look_into(200);
    assert!(first > 0, "it is written before it goes");
    assert_eq!(look_into(200), 0, "what came back is all of it");
    assert!(look_into(380) > 0, "another leaf");
    let before = written();
    let (from, to) = (key(2 * 100), key(2 * 102));
    assert!(rig.tree.estimate((Bound::Included(&*from), Bound::Included(&*to))).unwrap() > 0);
    rig.evict_all();
    assert!(written() > before, "one of which the optimiser asks how many keys of a range it has");
    let before = written();
    assert_eq!(rig.all(ReadAt::Newest, Direction::Forward).len(), 200);
    rig.evict_all();
    // Only the one where the scan began.
    assert!(written() - before < 2 * first, "{} bytes of leaves, {first} of one", written() - before);
    rig.verify();
}

/// Whatever came before: reads of every key, at every snapshot kept, say what the history says. Who loads a leaf waits for memory; in a
/// simulation that takes no time.
#[test]
fn reads_of_leaves_on_disk_say_what_the_history_says() {
    let (mut uncached, mut packed, mut reads) = (0, 0, 0);
    for seed in 0..24 {
        let counts = Simulation::new(seed, Config::default()).run(move |_| history_is_read(seed)).value;
        uncached += counts.0;
        packed += counts.1;
        reads += counts.2;
    }
    assert!(uncached > reads / 10, "{uncached} of {reads} reads were of leaves that stayed on disk");
    assert!(packed > reads / 50, "{packed} of {reads} reads were of those that are packed");
}

/// How many reads were of leaves that stayed on disk, of those that are packed, and in all.
fn history_is_read(seed: u64) -> (u64, u64, u64) {
    let (mut uncached, mut packed, mut reads) = (0, 0, 0);
    let mut numbers = Numbers(seed);
    let node_bytes = if seed.is_multiple_of(3) { 2048 } else { 512 };
    // Where compression shrinks them, images stay packed.
    let compression = if seed.is_multiple_of(2) { Compression::None } else { Compression::Lz4 };
    let rig = Rig::new(Setup { buffered: !seed.is_multiple_of(4), node_bytes, compression, ..small() });
    let mut snapshots = vec![CommitTs::ZERO];
    for round in 0..6 {
        for _ in 0..60 {
            let n = 1 + numbers.below(4);
            let value = |numbers: &mut Numbers| match numbers.below(8) {
                0 | 1 => None,
                // Beside the leaf, now and then: such a leaf is loaded.
                2 if seed.is_multiple_of(2) => Some(vec![b'l'; 700]),
                _ => Some([&numbers.below(1 << 30).to_be_bytes()[..], &[0; 24]].concat()),
            };
            // A few keys have many versions.
            let key_of = |numbers: &mut Numbers| match numbers.below(3) {
                0 => key(numbers.below(4)),
                _ => key(numbers.below(300)),
            };
            rig.commit((0..n).map(|_| (key_of(&mut numbers), value(&mut numbers))).collect());
            if numbers.one_in(30) {
                snapshots.push(rig.now());
                rig.snapshots.lock().push(rig.now());
            }
        }
        if numbers.one_in(2) {
            rig.checkpoint();
        }
        if numbers.one_in(2) {
            rig.maintain_fully();
        }
        rig.evict_all();
        if numbers.one_in(4) {
            rig.attach((0..20).map(|_| (key(numbers.below(300)), Some(b"of a run".to_vec()))).collect());
        }
        if round % 2 == 0 {
            // On top of what is on disk, some of it for leaves that are read now.
            rig.commit((0..20).map(|_| (key(numbers.below(300)), Some(b"late".to_vec()))).collect());
        }
        let before = rig.tree.stats().uncached_reads;
        for at in [ReadAt::Newest, ReadAt::Snapshot(rig.now())]
            .into_iter()
            .chain(snapshots.iter().map(|s| ReadAt::Snapshot(*s)))
        {
            // What came into memory for others leaves it.
            rig.evict_all();
            let _hog = nearly_full(&rig);
            let rows = of_history(&rig, if let ReadAt::Snapshot(s) = at { s } else { CommitTs::MAX });
            for _ in 0..40 {
                let key = key(numbers.below(302));
                let counts = || (rig.tree.stats().uncached_reads, rig.space.stats().read_bytes);
                let before = counts();
                assert_eq!(rig.get(at, &key).as_ref(), rows.get(&key), "seed {seed}, round {round}, {at:?}");
                let after = counts();
                packed += u64::from(after.0 > before.0 && after.1 == before.1);
                reads += 1;
            }
        }
        uncached += rig.tree.stats().uncached_reads - before;
    }
    rig.verify();
    (uncached, packed, reads)
}

/// A reader has seen what is pending. It goes to a segment, and is pending no more, before the reader asks for segments; or it
/// went there before the reader came.
#[test]
fn a10_a_reader_of_a_leaf_on_disk_misses_no_flush() {
    simulated(|sim| {
        for (put, at) in [(b"a", "tree.uncached"), (b"b", "tree.uncached_blocks"), (b"c", "tree.leaf_unlatched")] {
            let rig = Arc::new(cold(true));
            rig.put(key(6), put);
            let hog = nearly_full(&rig);
            let gate = sim.hold(at);
            let reader = in_thread(&rig, move |rig| assert_eq!(read(rig, key(6)).as_deref(), Some(&put[..])));
            gate.wait_reached();
            let loads = rig.tree.stats().loads;
            rig.checkpoint();
            assert_eq!(rig.cache.budget().used(Class::Buffers), 0, "it is in a segment");
            gate.open();
            reader.join().unwrap();
            assert_eq!(rig.tree.stats().loads, loads, "{at}");
            drop(hog);
        }
    });
}

/// A reader knows the image; then what is in the segment goes into another image, and the segment goes.
#[test]
fn a10_a_reader_of_a_leaf_on_disk_misses_no_drain() {
    simulated(|sim| {
        for at in ["tree.uncached", "tree.uncached_blocks"] {
            let rig = Arc::new(cold(true));
            rig.put(key(6), "in a segment");
            rig.checkpoint();
            rig.evict_all();
            let hog = nearly_full(&rig);
            let gate = sim.hold(at);
            let reader = in_thread(&rig, |rig| assert_eq!(read(rig, key(6)).as_deref(), Some(&b"in a segment"[..])));
            gate.wait_reached();
            drop(hog);
            let written = rig.tree.stats().writes;
            assert!(rig.newest(key(6)).is_some());
            // More than may be pending beside a leaf in memory: it is written.
            for n in 0..5 {
                rig.put(key(7), [n; 60]);
            }
            rig.checkpoint();
            assert!(rig.tree.stats().writes > written);
            rig.evict_all();
            let hog = nearly_full(&rig);
            gate.open();
            reader.join().unwrap();
            drop(hog);
            rig.verify();
        }
    });
}

/// What a segment holds was deleted, and both are gone from the image: a reader of the three does not find it.
#[test]
fn a5_a_reader_of_a_leaf_on_disk_does_not_see_what_is_void() {
    let rig = cold(true);
    rig.put(key(3), "in a segment");
    rig.checkpoint();
    assert!(rig.newest(key(3)).is_some());
    let writes = rig.tree.stats().writes;
    rig.delete(key(3));
    rig.put("z", "moves the floor");
    // The next commit of the leaf collects.
    rig.put(key(5), "another");
    rig.evict_all();
    let (_hog, loads) = (nearly_full(&rig), rig.tree.stats().loads);
    assert!(rig.tree.stats().writes > writes, "images without both");
    assert_eq!(read(&rig, key(3)), None);
    assert_eq!(read(&rig, key(5)).as_deref(), Some(&b"another"[..]));
    assert_eq!(rig.tree.stats().loads, loads);
}

/// Before a reader comes to the leaf it chose, that is split, and both halves go to disk.
#[test]
fn a2_a_leaf_on_disk_that_was_split_sends_its_readers_back() {
    simulated(|sim| {
        let rig = Arc::new(cold(true));
        let last = (0..20).rev().map(|n| key(2 * n)).find(|last| are_in_one_leaf(&rig, &key(0), last)).unwrap();
        assert!(last > key(2), "the first leaf has several keys");
        rig.evict_all();
        let hog = nearly_full(&rig);
        let gate = sim.hold("tree.leaf_unlatched");
        let of_reader = last.clone();
        let reader = in_thread(&rig, move |rig| assert!(read(rig, &of_reader).is_some()));
        gate.wait_reached();
        drop(hog);
        for n in 0..10 {
            assert!(rig.newest(key(0)).is_some());
            rig.put([&key(0)[..], &[n]].concat(), [b'x'; 100]);
        }
        assert!(!are_in_one_leaf(&rig, &key(0), &last));
        rig.checkpoint();
        rig.evict_all();
        let _hog = nearly_full(&rig);
        let loads = rig.tree.stats().loads;
        gate.open();
        reader.join().unwrap();
        assert_eq!(rig.tree.stats().loads, loads + 1, "the left half, which does not have it");
    });
}

fn are_in_one_leaf(rig: &Rig, a: &[u8], b: &[u8]) -> bool {
    rig.evict_all();
    let loads = rig.tree.stats().loads;
    assert!(rig.newest(a).is_some() && rig.newest(b).is_some());
    rig.tree.stats().loads == loads + 1
}
