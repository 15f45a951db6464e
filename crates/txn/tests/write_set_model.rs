//! The write set, in memory and spilled to files, against a naive one: a list of operations and a sorted map rebuilt
//! from it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{IndexId, Result};
use proptest::prelude::*;
use store::{Compression, Run, RunMeta, RunWriter};
use trefoil_txn::write_set::SpillFiles;
use trefoil_txn::{Seq, SharedWriteSet, WriteSet, Written};
use vfs::RealVfs;
use vfs::sync::Mutex;

type Key = Vec<u8>;

#[derive(Debug, Clone)]
enum Step {
    Put(u32, Key, Vec<u8>),
    Delete(u32, Key),
    Savepoint,
    Rollback(usize),
    /// Filters may take so many bytes.
    Spill(usize),
    Check(u32, Key, Key, usize),
}

/// Keys that share heads, are prefixes of each other, or are shorter than a head.
fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        (0u16..400).prop_map(|n| n.to_be_bytes().to_vec()),
        (0u8..40).prop_map(|n| [b"a common head ".as_slice(), &[n]].concat()),
        (0usize..12).prop_map(|n| vec![0; n]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0u32..3, key(), proptest::collection::vec(any::<u8>(), 0..8)).prop_map(|(i, k, v)| Step::Put(i, k, v)),
        4 => (0u32..3, key()).prop_map(|(i, k)| Step::Delete(i, k)),
        1 => Just(Step::Savepoint),
        1 => any::<usize>().prop_map(Step::Rollback),
        2 => prop_oneof![Just(0), 0usize..200, Just(1 << 20)].prop_map(Step::Spill),
        1 => (0u32..3, key(), key(), any::<usize>()).prop_map(|(i, a, b, v)| Step::Check(i, a, b, v)),
    ]
}

type Op = (u32, Key, Option<Vec<u8>>);

fn naive(ops: &[Op], index: u32) -> BTreeMap<Key, Option<Vec<u8>>> {
    ops.iter().filter(|op| op.0 == index).map(|op| (op.1.clone(), op.2.clone())).collect()
}

fn owned((key, written): (&[u8], Written<'_>)) -> (Key, Option<Vec<u8>>) {
    (key.to_vec(), if let Written::Put(v) = written { Some(v.to_vec()) } else { None })
}

/// Files in a directory that goes away, and which of them are there.
#[derive(Debug)]
struct Files {
    dir: tempfile::TempDir,
    next: AtomicU64,
    there: Mutex<BTreeSet<u64>>,
    /// Files that cannot be made before one can.
    failing: AtomicU64,
}

impl Files {
    fn new() -> Arc<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Arc::new(Self { dir, next: AtomicU64::new(1), there: Mutex::default(), failing: AtomicU64::new(0) })
    }
}

impl SpillFiles for Files {
    fn create(&self) -> Result<(u64, RunWriter)> {
        if self.failing.load(Ordering::Relaxed) > 0 {
            self.failing.fetch_sub(1, Ordering::Relaxed);
            return Err(base::Fault::NoSpace { what: "a test".into(), remedy: "wait".into() });
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.there.lock().insert(id);
        Ok((id, RunWriter::create(Arc::new(RealVfs), self.dir.path(), id, Compression::Lz4)?))
    }

    fn open(&self, meta: &RunMeta) -> Result<Run> {
        Run::open(&RealVfs, self.dir.path(), meta)
    }

    fn remove(&self, id: u64) {
        assert!(self.there.lock().remove(&id), "removed once");
        store::run::remove(&RealVfs, self.dir.path(), id).expect("removed");
    }

    fn is_looked_up(&self, index: IndexId) -> bool {
        index != IndexId(2)
    }
}

/// Reads of a set with spilled parts, with batches of all sizes.
fn check_shared(set: &SharedWriteSet, ops: &[Op], index: u32, low: &[u8], high: &[u8], view: usize) {
    let expect = naive(&ops[..view.min(ops.len())], index);
    let (id, seq) = (IndexId(index), Seq(view as u64));
    let mut got = None;
    let there = set.get(id, low, seq, |written| got = Some(owned((low, written)).1)).expect("reads");
    assert_eq!((got.as_ref(), there), (expect.get(low), expect.contains_key(low)));
    let bounds = |key: &[u8]| [Bound::Unbounded, Bound::Included(key.to_vec()), Bound::Excluded(key.to_vec())];
    for (from, to) in bounds(low).into_iter().flat_map(|from| bounds(high).map(|to| (from.clone(), to))) {
        let within = |key: &Vec<u8>| std::ops::RangeBounds::<Vec<u8>>::contains(&(from.clone(), to.clone()), key);
        let mut expect: Vec<_> =
            expect.iter().filter(|(k, _)| within(k)).map(|(k, v)| (k.clone(), v.clone())).collect();
        for backward in [false, true] {
            for most in [(1, usize::MAX), (5, usize::MAX), (usize::MAX, 9), (usize::MAX, usize::MAX)] {
                let (mut low, mut high, mut found) = (from.clone(), to.clone(), Vec::new());
                loop {
                    let range = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
                    let copied = set.copy(id, range, seq, backward, most).expect("reads");
                    assert!(copied.entries.len() <= most.0);
                    found.extend(copied.entries);
                    let Some((last, _)) = found.last().filter(|_| copied.more) else { break };
                    *(if backward { &mut high } else { &mut low }) = Bound::Excluded(last.clone());
                }
                assert_eq!(found, expect, "{from:?} {to:?} {most:?}");
            }
            expect.reverse();
        }
    }
}

fn check(set: &WriteSet, ops: &[Op], index: u32, low: &[u8], high: &[u8], view: usize) {
    let expect = naive(&ops[..view.min(ops.len())], index);
    let id = IndexId(index);
    let seq = Seq(view as u64);
    let got = set.get(id, low, seq).map(|w| owned((low, w)).1);
    assert_eq!(got.as_ref(), expect.get(low));
    let ranges = [
        (Bound::Unbounded, Bound::Unbounded),
        (Bound::Included(low), Bound::Included(high)),
        (Bound::Excluded(low), Bound::Unbounded),
        (Bound::Included(low), Bound::Excluded(high)),
        (Bound::Excluded(low), Bound::Excluded(high)),
        (Bound::Unbounded, Bound::Included(high)),
    ];
    for range in ranges {
        let within = |k: &[u8]| {
            (match range.0 {
                Bound::Included(low) => k >= low,
                Bound::Excluded(low) => k > low,
                Bound::Unbounded => true,
            }) && match range.1 {
                Bound::Included(high) => k <= high,
                Bound::Excluded(high) => k < high,
                Bound::Unbounded => true,
            }
        };
        let expect: Vec<_> = expect.iter().filter(|(k, _)| within(k)).map(|(k, v)| (k.clone(), v.clone())).collect();
        let forward: Vec<_> = set.range(id, range, seq).map(owned).collect();
        assert_eq!(forward, expect, "{range:?}");
        let mut backward: Vec<_> = set.range(id, range, seq).rev().map(owned).collect();
        backward.reverse();
        assert_eq!(backward, expect, "{range:?}");
        // From both ends in turn: every key once.
        let mut both = set.range(id, range, seq);
        let mut seen = 0;
        while (if seen % 2 == 0 { both.next() } else { both.next_back() }).is_some() {
            seen += 1;
        }
        assert_eq!(seen, expect.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_a_naive_set(steps in proptest::collection::vec(step(), 1..1200)) {
        let mut set = WriteSet::new();
        let (shared, kept) = (SharedWriteSet::new(), Files::new());
        let files: Arc<dyn SpillFiles> = kept.clone();
        let mut ops: Vec<Op> = Vec::new();
        let mut savepoints = vec![0];
        for step in steps {
            match step {
                Step::Put(index, key, value) => {
                    set.put(IndexId(index), &key, &value).expect("within limits");
                    shared.write(|set| set.put(IndexId(index), &key, &value)).expect("within limits");
                    ops.push((index, key, Some(value)));
                }
                Step::Delete(index, key) => {
                    set.delete(IndexId(index), &key).expect("within limits");
                    shared.write(|set| set.delete(IndexId(index), &key)).expect("within limits");
                    ops.push((index, key, None));
                }
                Step::Savepoint => savepoints.push(set.position().0 as usize),
                Step::Rollback(at) => {
                    let at = at % savepoints.len();
                    set.rollback_to(Seq(savepoints[at] as u64));
                    shared.rollback_to(Seq(savepoints[at] as u64));
                    prop_assert_eq!(shared.position(), set.position());
                    ops.truncate(savepoints[at]);
                    savepoints.truncate(at + 1);
                }
                Step::Spill(filter_bytes) => shared.spill(&files, filter_bytes).expect("there is room"),
                Step::Check(index, low, high, view) => {
                    check_shared(&shared, &ops, index, &low, &high, view % (ops.len() + 1));
                    check_shared(&shared, &ops, index, &low, &high, ops.len());
                    check(&set, &ops, index, &low, &high, view % (ops.len() + 1));
                    check(&set, &ops, index, &low, &high, ops.len());
                }
            }
        }
        for index in 0..3 {
            prop_assert_eq!(set.net(IndexId(index)).map(owned).collect::<Vec<_>>(),
                naive(&ops, index).into_iter().collect::<Vec<_>>());
            let mut net = Vec::new();
            shared.net(IndexId(index), |key, written, _| -> Result<()> { net.push(owned((key, written))); Ok(()) })?;
            prop_assert_eq!(net, naive(&ops, index).into_iter().collect::<Vec<_>>());
        }
        let (written, third) = (ops.len(), ops.len() / 3);
        shared.spill(&files, 1 << 10).expect("there is room");
        shared.rollback_to(Seq(third as u64));
        check_shared(&shared, &ops[..third], 1, &[], &[255], third);
        for (index, key, _) in &ops[..written] {
            prop_assert!(shared.wrote(IndexId(*index), key, false)?, "what was taken back stays locked");
            prop_assert!(shared.wrote(IndexId(*index), &key[..key.len() / 2], true)?);
        }
        shared.clear();
        prop_assert!(kept.there.lock().is_empty(), "a file stays");
        set.rollback_to(Seq(0));
        prop_assert!(set.is_empty());
        prop_assert!((0..3).all(|index| set.net(IndexId(index)).next().is_none()));
    }
}

/// What was taken back is kept for its locks: each part once, and in few files, however often that happens.
#[test]
fn what_is_taken_back_again_and_again_stays_small() {
    let (set, kept) = (SharedWriteSet::new(), Files::new());
    let files: Arc<dyn SpillFiles> = kept.clone();
    let put = |n: u32| drop(set.write(|set| set.put(IndexId(1), &n.to_be_bytes(), &[7; 100])));
    (0..50).for_each(put);
    let savepoint = set.position();
    (50..100).for_each(put);
    set.spill(&files, 1 << 20).expect("there is room");
    for round in 0..100 {
        set.rollback_to(savepoint);
        (0..100).for_each(|n| put(round * 100 + n));
        set.spill(&files, 1 << 20).expect("there is room");
    }
    let (there, bytes) = (kept.there.lock().len(), set.bytes());
    assert!(there < 80, "{there} files open");
    assert!(bytes < 1 << 20, "{bytes} bytes of memory");
    assert!((0..10_000u32).step_by(13).all(|n| set.wrote(IndexId(1), &n.to_be_bytes(), false).expect("reads")));
    set.clear();
    assert!(kept.there.lock().is_empty(), "a file stays");
}

/// A part that could not be moved to a file counts once, taken back in part or not, and goes with the next that can.
#[test]
fn what_could_not_be_moved_counts_once_and_goes_later() {
    let (set, kept) = (SharedWriteSet::new(), Files::new());
    let files: Arc<dyn SpillFiles> = kept.clone();
    (0..10_000u32).for_each(|n| drop(set.write(|set| set.put(IndexId(1), &n.to_be_bytes(), &[7; 100]))));
    let (before, savepoint) = (set.bytes(), Seq(set.position().0 - 1));
    kept.failing.store(2, Ordering::Relaxed);
    for _ in 0..2 {
        set.spill(&files, 0).expect_err("no space");
        set.rollback_to(savepoint);
        assert!(set.bytes() < before * 5 / 4, "{} bytes where there were {before}", set.bytes());
    }
    set.spill(&files, 0).expect("there is room");
    assert!(set.bytes() < before / 2, "{} bytes stay in memory", set.bytes());
    assert!((0..10_000u32).step_by(13).all(|n| set.wrote(IndexId(1), &n.to_be_bytes(), false).expect("reads")));
}

/// Ascending keys make runs side by side: few, each is an open file.
#[test]
fn few_files_are_open_whatever_the_order_of_keys() {
    let (set, kept) = (SharedWriteSet::new(), Files::new());
    let files: Arc<dyn SpillFiles> = kept.clone();
    for n in 0..200u32 {
        set.write(|set| set.put(IndexId(1), &n.to_be_bytes(), b"v")).expect("put");
        set.spill(&files, 0).expect("there is room");
        let there = kept.there.lock().len();
        assert!(there < 90, "{there} files open after {n}");
    }
    let mut found = 0;
    set.net(IndexId(1), |_, _, _| -> Result<()> {
        found += 1;
        Ok(())
    })
    .expect("reads");
    assert_eq!(found, 200);
}

/// Deep trees: a million random keys, half of them taken back.
#[test]
fn a_million_random_keys() {
    let mut set = WriteSet::new();
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    let keys: Vec<u64> = (0..1_000_000).map(|_| next()).collect();
    for key in &keys {
        set.put(IndexId(1), &key.to_be_bytes(), b"v").expect("put");
    }
    assert_eq!(set.net(IndexId(1)).count(), keys.len());
    set.rollback_to(Seq(500_000));
    let mut kept = keys[..500_000].to_vec();
    kept.sort_unstable();
    assert!(set.net(IndexId(1)).map(|(k, _)| k.to_vec()).eq(kept.iter().map(|k| k.to_be_bytes().to_vec())));
    set.rollback_to(Seq(0));
    assert!(set.is_empty());
}
