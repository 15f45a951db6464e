//! Filters of prefixes: a range of which all keys begin alike reads nothing of runs that have none, and any other range reads all.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;
use std::sync::Arc;

use crate::support::{checkpoint, env_of, flush};
use base::{CommitTs, GcView};
use index::{Batch, Direction, EntryBatch, Index, IndexEnv, IndexOptions, Op, ReadAt, Reservation};
use trefoil_lsm::Lsm;

/// One run for each of so many groups of devices, which lie side by side everywhere.
const RUNS: u32 = 8;
const DEVICES: u32 = 400;
const READINGS: u32 = 6;

fn key(device: u32, reading: u32) -> Vec<u8> {
    [device.to_be_bytes(), reading.to_be_bytes()].concat()
}

fn env(dir: &std::path::Path, prefix_bytes: usize, saved: Option<&[u8]>) -> IndexEnv {
    let env = env_of(dir, 1024, 64 << 20, saved);
    IndexEnv { options: IndexOptions { prefix_bytes, ..env.options }, ..env }
}

/// Written, and opened again: nothing is in memory.
fn opened(dir: &std::path::Path, prefix_bytes: usize) -> Arc<Lsm> {
    let surroundings = env(dir, prefix_bytes, None);
    let index = Lsm::open(surroundings.clone(), None).unwrap();
    for run in 0..RUNS {
        let mut rows: Vec<_> = (0..DEVICES)
            .filter(|device| device % RUNS == run)
            .flat_map(|device| (0..READINGS).map(move |reading| key(device, reading)))
            .collect();
        // Keys without a prefix of their own, and one that is a prefix.
        rows.extend([vec![0], 7u32.to_be_bytes().to_vec(), vec![0xff; 2]]);
        rows.sort();
        for some in rows.chunks(50) {
            let batch: Batch = some.iter().map(|key| (key.as_slice(), Op::Put([7; 40].as_slice()))).collect();
            let Reservation::Direct(room) = index.reserve(&batch).unwrap() else { panic!("small") };
            index.apply(&batch, room, CommitTs(16 + u64::from(run)), &GcView::keep_all());
        }
        flush(&index);
    }
    let (state, saved) = checkpoint(&surroundings, &index);
    drop((index, surroundings));
    Lsm::open(env(dir, prefix_bytes, Some(&saved)), Some(&state)).unwrap()
}

fn read(index: &Lsm, low: &[u8], high: Bound<&[u8]>, direction: Direction) -> Vec<Vec<u8>> {
    let mut cursor = index.cursor(ReadAt::Newest, (Bound::Included(low), high), direction);
    let (mut out, mut keys) = (EntryBatch::new(), Vec::new());
    loop {
        let more = cursor.fill(&mut out, 4).unwrap();
        keys.extend(out.iter().map(|(key, ..)| key.to_vec()));
        if !more {
            break;
        }
    }
    if direction == Direction::Backward {
        keys.reverse();
    }
    keys
}

/// Blocks read for all readings of some devices, one device after the other, and runs passed over.
fn blocks_read(prefix_bytes: usize) -> (u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path(), prefix_bytes);
    for device in (0..DEVICES).step_by(37).filter(|device| *device != 7) {
        let readings: Vec<_> = (0..READINGS).map(|reading| key(device, reading)).collect();
        let (low, high) = (device.to_be_bytes(), (device + 1).to_be_bytes());
        for direction in [Direction::Forward, Direction::Backward] {
            assert_eq!(read(&index, &low, Bound::Excluded(&high), direction), readings);
            assert_eq!(read(&index, &readings[0], Bound::Included(&readings[5]), direction), readings);
            assert_eq!(read(&index, &readings[2], Bound::Excluded(&readings[4]), direction), readings[2..4]);
        }
    }
    let stats = index.stats();
    assert!(stats.prefix_skipped_blocks >= stats.prefix_skipped_runs);
    (stats.loads, stats.prefix_skipped_runs)
}

/// Guards: `prefix::hash_of` in `Writer::push`, `may_have` of the prefix in `RunSource::enter`.
#[test]
fn runs_that_have_nothing_of_a_prefix_are_not_read() {
    let (without, none) = blocks_read(0);
    let (with, skipped) = blocks_read(4);
    eprintln!("data blocks read {with}, {without} without filters of prefixes; runs passed over {skipped}");
    assert_eq!(none, 0);
    // Six ranges, eleven devices; seven of eight runs have nothing of the device.
    assert!(skipped >= 6 * 11 * 6, "{skipped}");
    assert!(with * 3 < without, "{with} of {without}");
}

/// Guard: the prefix is what both bounds have in common ([`common_prefix`] in `prefix.rs`), not what the lower one begins with.
#[test]
fn a_range_over_several_prefixes_passes_over_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path(), 4);
    for device in (0..DEVICES - 3).step_by(11) {
        let mut expected: Vec<_> =
            (device..device + 3).flat_map(|device| (0..READINGS).map(move |reading| key(device, reading))).collect();
        let (low, high) = (key(device, 0), key(device + 3, 0));
        expected.extend([7u32.to_be_bytes().to_vec()].into_iter().filter(|key| low <= *key && *key < high));
        expected.sort();
        for direction in [Direction::Forward, Direction::Backward] {
            assert_eq!(read(&index, &low, Bound::Excluded(&high), direction), expected, "{device} {direction:?}");
            let last = key(device + 2, READINGS - 1);
            assert_eq!(read(&index, &low, Bound::Included(&last), direction), expected, "{device} {direction:?}");
        }
    }
    let all = read(&index, &[], Bound::Unbounded, Direction::Forward);
    assert_eq!(all.len() as u32, DEVICES * READINGS + 3);
    // A prefix that is a key, alone and with what begins with it.
    let seven = 7u32.to_be_bytes();
    assert_eq!(read(&index, &seven, Bound::Included(&seven), Direction::Forward), [seven.to_vec()]);
    assert_eq!(
        read(&index, &seven, Bound::Excluded(&8u32.to_be_bytes()), Direction::Forward).len() as u32,
        READINGS + 1
    );
}

/// A key whose versions fill many blocks has its prefix in the filter of each: what an old snapshot sees lies in one in which the key does not begin. Guard: a block
/// that begins within a key knows that key (`Writer::push`).
#[test]
fn a_key_that_goes_on_in_the_next_block_is_found_there() {
    const VERSIONS: u64 = 100;
    let dir = tempfile::tempdir().unwrap();
    let index = Lsm::open(env(dir.path(), 4, None), None).unwrap();
    for n in 0..VERSIONS {
        let (row, value) = (key(7, 1), [n as u8; 200]);
        let batch: Batch = [(row.as_slice(), Op::Put(value.as_slice()))].into_iter().collect();
        let Reservation::Direct(room) = index.reserve(&batch).unwrap() else { panic!("small") };
        index.apply(&batch, room, CommitTs(16 + n), &GcView::keep_all());
    }
    flush(&index);
    assert_eq!(index.stats().memory_bytes, 0, "{}", index.draw());
    for n in 0..VERSIONS {
        let at = ReadAt::Snapshot(CommitTs(16 + n));
        for direction in [Direction::Forward, Direction::Backward] {
            let (low, high, mut out) = (key(7, 0), key(8, 0), EntryBatch::new());
            let mut cursor = index.cursor(at, (Bound::Included(&low), Bound::Excluded(&high)), direction);
            while cursor.fill(&mut out, 4).unwrap() && out.is_empty() {}
            assert_eq!(
                out.iter().map(|(_, value, _)| value.unwrap()[0]).collect::<Vec<_>>(),
                [n as u8],
                "{direction:?}"
            );
        }
        let mut found = None;
        index.get_many(at, &[&key(7, 1)], &mut |_, _, value| found = Some(value[0])).unwrap();
        assert_eq!(found, Some(n as u8));
    }
}
