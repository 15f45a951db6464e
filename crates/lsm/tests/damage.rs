//! Bytes on disk that are not what was written: named where they are met, passed over by who asks for it, and in nobody else's way.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test breaks files behind the engine's back"
)]

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::support::{self, ALL, blocks, evict, flush, key, put, upkeep};
use base::{CommitTs, Fault, GcView, IndexId};
use index::{Batch, Direction, EntryBatch, Index, IndexEnv, Op, ReadAt, Reservation, Skips};
use store::{BlockRef, Compression};
use trefoil_lsm::Lsm;

const ROWS: u32 = 2000;

fn env(dir: &Path) -> IndexEnv {
    support::env(dir, 1024, 64 << 20)
}

/// Two runs over the same keys, every row in the older one, every third in the newer.
fn made(env: &IndexEnv) -> Arc<Lsm> {
    made_of(env, ROWS)
}

fn made_of(env: &IndexEnv, rows: u32) -> Arc<Lsm> {
    let index = Lsm::open(env.clone(), None).unwrap();
    for (ts, step) in [(160, 1), (320, 3)] {
        let value = format!("written at {ts}").repeat(3).into_bytes();
        put(&index, ts, (0..rows).step_by(step), |_| value.clone());
        flush(&index);
    }
    // What is read is read from disk.
    evict(env);
    index
}

fn break_block(env: &IndexEnv, at: BlockRef) {
    break_byte(Path::new(env.space.file_name()), at.offset + u64::from(at.stored_bytes) / 2);
}

fn break_byte(path: &Path, place: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, place).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], place).unwrap();
}

/// How often upkeep met damage until it had nothing to do.
fn faults_of_upkeep(index: &Lsm) -> u32 {
    let mut faults = 0;
    loop {
        match index.maintain(&upkeep()) {
            Ok(progress) if !progress.more => return faults,
            Ok(_) => {}
            Err(Fault::Corrupt(_)) => faults += 1,
            Err(fault) => panic!("{fault}"),
        }
        assert!(faults < 3, "it is tried again and again");
    }
}

fn found(index: &Lsm, skips: &Skips, direction: Direction) -> Vec<u32> {
    let mut cursor = index.cursor(ReadAt::Newest, ALL, direction);
    cursor.skip_damaged(skips.clone());
    let (mut out, mut keys) = (EntryBatch::new(), Vec::new());
    loop {
        let more = cursor.fill(&mut out, 50).unwrap();
        keys.extend(out.iter().map(|(key, ..)| u32::from_be_bytes(key.try_into().unwrap())));
        if !more {
            return keys;
        }
    }
}

#[test]
fn a_damaged_block_costs_its_own_keys() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path());
    let index = made(&env);
    let data: Vec<_> = blocks(&index).into_iter().filter(|(_, name)| name.starts_with("data")).collect();
    // Of the older run: its blocks come behind those of the newer one.
    let (at, name) = &data[data.len() - 20];
    break_block(&env, *at);

    let is_named = |fault: &Fault| matches!(fault, Fault::Corrupt(c) if c.index == Some(IndexId(3)));
    let mut unread = Vec::new();
    for n in 0..ROWS {
        match index.get_many(ReadAt::Newest, &[&key(n)], &mut |_, _, _| {}) {
            Ok(()) => {}
            Err(fault) if is_named(&fault) => unread.push(n),
            Err(fault) => panic!("{name}: {fault}"),
        }
    }
    // A third of the block's keys are newer elsewhere.
    assert!(unread.len() > 3 && unread.iter().all(|n| n % 3 != 0), "{unread:?}");
    let (low, high) = (unread[0] - 2, unread[unread.len() - 1] + 2);

    let mut cursor = index.cursor(ReadAt::Newest, ALL, Direction::Forward);
    let mut out = EntryBatch::new();
    let fault = loop {
        match cursor.fill(&mut out, 100) {
            Ok(true) => {}
            Ok(false) => panic!("nobody noticed"),
            Err(fault) => break fault,
        }
    };
    assert!(is_named(&fault), "{fault}");
    for direction in [Direction::Forward, Direction::Backward] {
        let skips = Skips::default();
        let mut keys = found(&index, &skips, direction);
        let ranges = skips.take();
        assert_eq!(ranges.len(), 1, "{ranges:?}");
        keys.sort_unstable();
        let expected = (0..ROWS).filter(|n| !ranges[0].contains(&key(*n)) || n % 3 == 0);
        assert_eq!(keys, expected.collect::<Vec<_>>(), "{direction:?}");
        assert!(unread.iter().all(|n| ranges[0].contains(&key(*n))));
        assert!(!ranges[0].contains(&key(low - 40)) && !ranges[0].contains(&key(high + 40)));
    }
    assert_eq!(index.verify().unwrap().problems.len(), 1);
}

/// Behind a fault a cursor stands where it stood: when what it met can be read again, it goes on with every key once.
#[test]
fn a_cursor_goes_on_behind_a_fault() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path());
    let index = made(&env);
    let data: Vec<_> = blocks(&index).into_iter().filter(|(_, name)| name.starts_with("data")).collect();
    for direction in [Direction::Forward, Direction::Backward] {
        for (at, name) in [&data[3], &data[data.len() - 20]] {
            support::evict(&env);
            break_block(&env, *at);
            let mut cursor = index.cursor(ReadAt::Snapshot(CommitTs(1600)), ALL, direction);
            let (mut out, mut keys, mut faults) = (EntryBatch::new(), Vec::new(), 0);
            loop {
                let filled = cursor.fill(&mut out, 7);
                keys.extend(out.iter().map(|(key, ..)| u32::from_be_bytes(key.try_into().unwrap())));
                match filled {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(_) if faults < 2 => faults += 1,
                    Err(_) => {
                        faults += 1;
                        // Once more, and it is as it was.
                        break_block(&env, *at);
                    }
                }
            }
            keys.sort_unstable();
            assert_eq!((faults, keys), (3, (0..ROWS).collect()), "{name}, {direction:?}");
        }
    }
}

/// A merge meets it once; then the runs are left alone, and what comes in is taken all the same.
#[test]
fn a_damaged_run_keeps_nobody_busy() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path());
    let index = made(&env);
    let (at, _) = blocks(&index).into_iter().rfind(|(_, name)| name.starts_with("data")).unwrap();
    break_block(&env, at);
    let mut faults = 0;
    for round in 0..12u64 {
        let batch: Batch = [(key(round as u32).as_slice(), Op::Put(b"later"))].into_iter().collect();
        let Reservation::Direct(room) = index.reserve(&batch).unwrap() else { panic!("small") };
        index.apply(&batch, room, CommitTs(640 + 16 * round), &GcView::keep_all());
        flush(&index);
        loop {
            match index.maintain(&upkeep()) {
                Ok(progress) if !progress.more => break,
                Ok(_) => {}
                Err(Fault::Corrupt(_)) => faults += 1,
                Err(fault) => panic!("{fault}"),
            }
        }
    }
    assert_eq!(faults, 1);
    let mut newest = None;
    index.get_many(ReadAt::Newest, &[&key(7)], &mut |_, _, value| newest = Some(value.to_vec())).unwrap();
    assert_eq!(newest.as_deref(), Some(b"later".as_slice()));
}

/// Opens an index anew; this life's owners of its blocks let go of nothing any more.
fn reopened(env: &IndexEnv, index: &Lsm) -> Arc<Lsm> {
    let state = index.checkpoint(&upkeep()).unwrap();
    env.space.close();
    Lsm::open(env.clone(), Some(&state.bytes)).unwrap()
}

/// Nothing of a run can be read without its top: that is damage, and the rest of the index stays readable.
#[test]
fn a_damaged_top_of_a_run_costs_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path());
    let index = made(&env);
    let tops: Vec<_> = blocks(&index).into_iter().filter(|(_, name)| name.starts_with("the index of run")).collect();
    let (at, _) = tops.last().unwrap();
    break_block(&env, *at);
    let index = reopened(&env, &index);
    let fault = index.get_many(ReadAt::Newest, &[&key(1)], &mut |_, _, _| {}).unwrap_err();
    assert!(matches!(&fault, Fault::Corrupt(c) if c.index == Some(IndexId(3)) && c.key_range.is_some()), "{fault}");
    index.get_many(ReadAt::Newest, &[&key(3)], &mut |_, ts, _| assert_eq!(ts, CommitTs(320))).unwrap();
    let skips = Skips::default();
    assert_eq!(found(&index, &skips, Direction::Forward), (0..ROWS).step_by(3).collect::<Vec<_>>());
    assert_eq!(skips.take().len(), 1);
    assert!(!index.verify().unwrap().problems.is_empty());
    assert!(!index.reach(&mut |_, _| {}).unwrap().is_empty());
    assert!(matches!(index.destroy(), Err(Fault::Corrupt(_))));
}

/// An index block that cannot be read costs its own data blocks; what they take is known without it.
#[test]
fn a_damaged_index_block_costs_its_partition() {
    const MANY: u32 = 30_000;
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path());
    let index = made_of(&env, MANY);
    let parts: Vec<_> = blocks(&index).into_iter().filter(|(_, name)| name.starts_with("the index of data")).collect();
    // Of the older run, neither its first nor its last.
    let (at, name) = &parts[parts.len() - 2];
    break_block(&env, *at);
    assert_eq!(index.verify().unwrap().problems.len(), 1, "memory has it sound");
    let index = reopened(&env, &index);
    for direction in [Direction::Forward, Direction::Backward] {
        let skips = Skips::default();
        let mut keys = found(&index, &skips, direction);
        let ranges = skips.take();
        assert_eq!(ranges.len(), 1, "{name}: {ranges:?}");
        keys.sort_unstable();
        let is_lost = |n: &u32| ranges[0].contains(&key(*n));
        assert_eq!(keys, (0..MANY).filter(|n| !is_lost(n) || n % 3 == 0).collect::<Vec<_>>(), "{direction:?}");
        let lost: Vec<_> = (0..MANY).filter(is_lost).collect();
        assert!((1000..MANY as usize / 2).contains(&lost.len()), "{} keys", lost.len());
        let fault = index.get_many(ReadAt::Newest, &[&key(lost[1] / 3 * 3 + 1)], &mut |_, _, _| {}).unwrap_err();
        assert!(matches!(&fault, Fault::Corrupt(c) if c.index == Some(IndexId(3)) && c.key_range.is_some()), "{fault}");
    }
    assert_eq!(index.verify().unwrap().problems.len(), 1);
    assert_eq!(index.reach(&mut |_, _| {}).unwrap().len(), 1);
    index.destroy().unwrap();
}

/// A large value that cannot be read costs its key, and whatever of it is older; who does not skip damage is told.
#[test]
fn a_damaged_large_value_costs_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path());
    let index = Lsm::open(env.clone(), None).unwrap();
    put(&index, 160, 0..500, |n| vec![n as u8; 40]);
    flush(&index);
    put(&index, 320, (0..500).step_by(50), |n| vec![n as u8; 5000]);
    flush(&index);
    put(&index, 480, [250].into_iter(), |_| b"newer".to_vec());
    let values: Vec<_> = blocks(&index).into_iter().filter(|(_, name)| name.starts_with("a value")).collect();
    assert_eq!(values.len(), 10);
    // Of 100, and of 250, which is newer elsewhere.
    for (at, _) in [&values[2], &values[5]] {
        break_block(&env, *at);
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor = index.cursor(ReadAt::Newest, ALL, direction);
        let mut out = EntryBatch::new();
        let fault = std::iter::repeat_with(|| cursor.fill(&mut out, 50)).find_map(Result::err).unwrap();
        assert!(matches!(fault, Fault::Corrupt(_)), "{fault}");
        let skips = Skips::default();
        let mut keys = found(&index, &skips, direction);
        keys.sort_unstable();
        assert_eq!(keys, (0..500).filter(|n| *n != 100).collect::<Vec<_>>(), "{direction:?}");
        let ranges = skips.take();
        let is_of = |n: u32| ranges.iter().any(|range| range.contains(&key(n)) && !range.contains(&key(n + 1)));
        assert!(ranges.len() == 2 && is_of(100) && is_of(250), "{ranges:?}");
    }
}

/// Backward, the versions of a key come oldest first: only the one that the reader sees is read, also if it is large.
#[test]
fn backward_only_what_is_seen_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path());
    let index = Lsm::open(env.clone(), None).unwrap();
    for ts in 1..=20 {
        put(&index, ts * 16, 0..3, |n| vec![n as u8; 50_000]);
    }
    flush(&index);
    let before = env.space.stats().read_bytes;
    let keys = found(&index, &Skips::default(), Direction::Backward);
    let read = env.space.stats().read_bytes - before;
    assert_eq!(keys, [2, 1, 0]);
    assert!(read < 6 * 50_000, "{read} bytes were read");
}

/// A run whose top cannot be read is met when a merge begins; once, and what is sound is merged all the same.
#[test]
fn a_merge_that_cannot_begin_keeps_nobody_busy() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path());
    let index = Lsm::open(env.clone(), None).unwrap();
    for ts in 1..=4 {
        put(&index, ts * 16, 0..ROWS, |n| vec![n as u8; 40]);
        flush(&index);
    }
    let tops: Vec<_> = blocks(&index).into_iter().filter(|(_, name)| name.starts_with("the index of run")).collect();
    break_block(&env, tops[1].0);
    let index = reopened(&env, &index);
    let mut faults = 0;
    for ts in 5..=12 {
        put(&index, ts * 16, 0..ROWS, |n| vec![n as u8; 40]);
        flush(&index);
        faults += faults_of_upkeep(&index);
    }
    assert_eq!(faults, 1);
    assert!(index.stats().height < 10, "nothing is merged: {}", index.draw());
}

/// The same of an attached run: it stays attached, others become runs.
#[test]
fn a_damaged_attached_run_keeps_nobody_busy() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path());
    let index = Lsm::open(env.clone(), None).unwrap();
    let mut writer = store::RunWriter::create(env.runs.vfs.clone(), dir.path(), 1, Compression::None).unwrap();
    (0..ROWS).for_each(|n| writer.add(&key(n), Some(b"from a file")).unwrap());
    let meta = writer.finish().unwrap();
    let run = store::Run::open(&*env.runs.vfs, dir.path(), &meta).unwrap();
    let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let file = files.into_iter().find(|path| path.to_str().is_some_and(|path| path.contains("run-"))).unwrap();
    // The first data block: where a merge begins.
    break_byte(&file, 200);
    index.attach(run, CommitTs(160));
    let mut faults = 0;
    for ts in 2..=6 {
        index.attach(store::Run::from_sorted([(key(ts), Some(b"from memory"))]), CommitTs(u64::from(ts) * 160));
        faults += faults_of_upkeep(&index);
    }
    assert_eq!((faults, index.stats().runs), (1, 1), "{}", index.draw());
}

/// Guard: backward what lies above a block that cannot be read is read together as well (`slot.rs`), and not again for each of its blocks.
#[test]
fn a_scan_backward_reads_each_block_beside_a_damaged_one_once() {
    let dir = tempfile::tempdir().unwrap();
    let env = support::env(dir.path(), 1024, 256 << 20);
    let index = made_of(&env, 20_000);
    let data: Vec<_> = blocks(&index).into_iter().filter(|(_, name)| name.starts_with("data")).collect();
    break_block(&env, data[data.len() - 100].0);
    evict(&env);
    let before = env.space.stats().read_bytes;
    let skips = Skips::default();
    let keys = found(&index, &skips, Direction::Backward);
    assert_eq!(skips.take().len(), 1);
    assert!(keys.len() > 19_900, "{}", keys.len());
    let (read, stored) = (env.space.stats().read_bytes - before, index.stats().disk_bytes);
    eprintln!("{read} bytes read of {stored}");
    assert!(read < 2 * stored, "{read} of {stored}");
}
