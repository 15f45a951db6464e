//! The merge against the model: random sources, both directions, all bounds, small reads.

use std::ops::Bound;

use base::{CommitTs, Result};
use model::Model;
use trefoil_index::merge::{BatchSource, Merge, Source, Tombstones};
use trefoil_index::{Batch, Direction, EntryBatch, KeyRange, Op};
use vfs::random::Rng;

/// Gives its entries in pieces of the length that suits it least: none, one, all.
struct Reluctant<S>(S, u8);

impl<S: Source> Source for Reluctant<S> {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        self.1 = (self.1 + 1) % 3;
        match self.1 {
            0 => {
                out.clear();
                Ok(true)
            }
            1 => self.0.fill(out, 1),
            _ => self.0.fill(out, max),
        }
    }
}

fn read_all(merge: &mut impl Source, max: usize) -> Vec<(Vec<u8>, Option<Vec<u8>>, CommitTs)> {
    let (mut all, mut out) = (Vec::new(), EntryBatch::new());
    loop {
        let more = merge.fill(&mut out, max).expect("no source is broken");
        assert!(out.len() <= max);
        all.extend(out.iter().map(|(k, v, t)| (k.to_vec(), v.map(<[u8]>::to_vec), t)));
        if !more {
            return all;
        }
    }
}

fn random_batch(random: &mut Rng, ts: u64) -> Batch {
    let keys = 1 + random.below(12);
    let mut ops: Vec<(Vec<u8>, Option<Vec<u8>>)> = (0..random.below(20))
        .map(|_| {
            let key = vec![b'k', random.below(keys) as u8];
            (key, (random.below(3) > 0).then(|| ts.to_be_bytes().to_vec()))
        })
        .collect();
    ops.sort();
    ops.dedup_by(|a, b| a.0 == b.0);
    ops.iter().map(|(k, v)| (k.as_slice(), v.as_deref().map_or(Op::Delete, Op::Put))).collect()
}

fn bound(random: &mut Rng) -> Bound<Vec<u8>> {
    let key = vec![b'k', random.below(14) as u8];
    match random.below(3) {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    }
}

#[test]
fn merged_sources_answer_as_the_model() {
    for seed in 0..3_000 {
        let mut random = Rng::new(seed);
        let mut model = Model::new();
        let batches: Vec<(Batch, CommitTs)> =
            (1..1 + random.below(6)).map(|i| (random_batch(&mut random, i * 16), CommitTs(i * 16))).collect();
        for (batch, ts) in &batches {
            let value = |op| match op {
                Op::Put(v) => Some(v),
                Op::Delete => None,
            };
            model.commit(*ts, batch.iter().map(|(k, op)| (k, value(op))));
        }
        let range = KeyRange { low: bound(&mut random), high: bound(&mut random) };
        let direction = if random.below(2) == 0 { Direction::Forward } else { Direction::Backward };
        let mut sources: Vec<Reluctant<BatchSource<&Batch>>> = batches
            .iter()
            .map(|(b, ts)| Reluctant(BatchSource::new(b, *ts, range.clone(), direction), random.below(3) as u8))
            .collect();
        // A run that is being drained: its newest part stands in two sources.
        if let Some((batch, ts)) = batches.last() {
            sources.push(Reluctant(BatchSource::new(batch, *ts, range.clone(), direction), 0));
        }
        let max = 1 + random.below(5) as usize;
        let found = read_all(&mut Merge::new(direction, Tombstones::Hide, sources), max);
        let mut expected: Vec<_> =
            model.range(CommitTs::MAX, range.bounds()).map(|e| (e.key, Some(e.value), e.ts)).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        assert_eq!(found, expected, "seed {seed}, {range:?}, {direction:?}");
    }
}

#[test]
fn tombstones_are_shown_to_those_who_ask() {
    let old: Batch = [(b"a".as_slice(), Op::Put(b"1".as_slice())), (b"b", Op::Put(b"1"))].into_iter().collect();
    let new: Batch = [(b"a".as_slice(), Op::Delete)].into_iter().collect();
    for (tombstones, keys) in [(Tombstones::Show, vec!["a", "b"]), (Tombstones::Hide, vec!["b"])] {
        let sources = [(&old, 16), (&new, 32)]
            .map(|(b, ts)| BatchSource::new(b, CommitTs(ts), KeyRange::all(), Direction::Forward));
        let found = read_all(&mut Merge::new(Direction::Forward, tombstones, sources.into()), 8);
        assert_eq!(found.into_iter().map(|e| String::from_utf8(e.0).unwrap()).collect::<Vec<_>>(), keys);
    }
}

#[test]
fn a_fault_of_a_source_is_passed_on() {
    struct Broken;
    impl Source for Broken {
        fn fill(&mut self, _: &mut EntryBatch, _: usize) -> Result<bool> {
            Err(base::Fault::Unsupported("broken".into()))
        }
    }
    let mut merge = Merge::new(Direction::Forward, Tombstones::Hide, vec![Broken]);
    assert!(merge.fill(&mut EntryBatch::new(), 1).is_err());
}

#[test]
fn a_desert_of_tombstones_does_not_hold_the_caller() {
    let keys: Vec<[u8; 4]> = (0..100_000u32).map(u32::to_be_bytes).collect();
    let dead: Batch = keys.iter().map(|k| (k.as_slice(), Op::Delete)).collect();
    let source = BatchSource::new(&dead, CommitTs(16), KeyRange::all(), Direction::Forward);
    let mut merge = Merge::new(Direction::Forward, Tombstones::Hide, vec![source]);
    let mut out = EntryBatch::new();
    assert!(merge.fill(&mut out, 10).unwrap(), "more to come");
    assert!(out.is_empty());
}

/// Counts how often it is asked.
struct Asked<'a, S>(S, &'a std::sync::atomic::AtomicUsize);

impl<S: Source> Source for Asked<'_, S> {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.0.fill(out, max)
    }
}

/// A reader that wants one entry behind many tombstones does not ask its sources for each of them, nor for many where every
/// entry is alive.
#[test]
fn a_desert_is_read_in_pieces() {
    let keys: Vec<[u8; 4]> = (0..50_000u32).map(u32::to_be_bytes).collect();
    let count = |op: Op<'_>, wanted: usize| {
        let batch: Batch = keys.iter().map(|k| (k.as_slice(), op)).collect();
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let source = BatchSource::new(&batch, CommitTs(16), KeyRange::all(), Direction::Forward);
        let mut merge = Merge::new(Direction::Forward, Tombstones::Hide, vec![Asked(source, &asked)]);
        let (mut out, mut found) = (EntryBatch::new(), 0);
        while found < wanted && merge.fill(&mut out, 1).unwrap() {
            found += out.len();
        }
        asked.into_inner()
    };
    assert!(count(Op::Delete, 1) < 150, "asked {} times", count(Op::Delete, 1));
    assert_eq!(count(Op::Put(b"alive"), 1000), 1001, "one ahead");
}

/// Counts what it gives.
struct Given<'a, S>(S, &'a std::sync::atomic::AtomicUsize);

impl<S: Source> Source for Given<'_, S> {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        let more = self.0.fill(out, max)?;
        self.1.fetch_add(out.len(), std::sync::atomic::Ordering::Relaxed);
        Ok(more)
    }
}

/// Who wants sixteen of five sources gets them, and five times as many are not read for it; of four empty ones and one that has all he gets no fewer. A
/// source that runs dry is asked for what is still wanted.
#[test]
fn few_entries_are_read_ahead_as_far_as_they_are_wanted() {
    let keys: Vec<[u8; 4]> = (0..1_000u32).map(u32::to_be_bytes).collect();
    let every = |step: usize, from: usize| -> Batch {
        keys.iter().skip(from).step_by(step).map(|key| (key.as_slice(), Op::Put(b"v".as_slice()))).collect()
    };
    let even: Vec<Batch> = (0..5).map(|from| every(5, from)).collect();
    let one: Vec<Batch> = [1000, 0, 1000, 1000, 1000].map(|from| every(1, from)).into();
    let first = vec![every(1, 0), every(1, 999)];
    for (batches, most) in [(even, 40), (one, 40), (first, 24)] {
        let given = std::sync::atomic::AtomicUsize::new(0);
        let source = |batch| Given(BatchSource::new(batch, CommitTs(16), KeyRange::all(), Direction::Forward), &given);
        let mut merge = Merge::new(Direction::Forward, Tombstones::Hide, batches.iter().map(source).collect());
        let mut out = EntryBatch::new();
        assert!(merge.fill(&mut out, 16).unwrap(), "more to come");
        assert_eq!(out.len(), 16);
        let given = given.into_inner();
        assert!(given <= most, "{given} were read, {most} at most");
    }
}
