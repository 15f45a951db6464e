//! One index, with what the engine is around it: a log, a manifest, snapshots — and the model that knows better.
//!
//! The world keeps the engine's order: a commit reserves, then takes its position in the log, then applies; a
//! checkpoint reads the applied prefix before anything else, syncs the data file, and only then is the manifest;
//! a crash loses memory and what the log holds beyond its durable mark, and replay applies what is above the
//! manifest's skip position, in log order.
//!
//! Invariants: `model` holds exactly the commits of `log`; snapshots are at or below `end`; nobody reads at a
//! position that no view ever covered, so a garbage collector may be as eager as it likes.

use std::any::Any;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::limits::LSN_UNIT;
use base::{CommitTs, GcView, IndexId, Lsn, Poison, Result};
use model::{Entry, Model};
use store::run::{Run, RunMeta, RunWriter};
use store::{Budget, Cache, CacheOptions, Class, Space, SpaceOptions, WriteEnv};
use vfs::random::Rng;

pub use super::given::Gate;
use super::given::Runs;
use super::watch::{Watch, Watched};
use super::{Bench, Verdict, ensure};
use crate::{
    Batch, BatchBuilder, Cursor, Direction, EntryBatch, Index, IndexEnv, IndexOptions, IndexState, KeyRange, LogGate,
    Op, Progress, Ranged, ReadAt, Reservation, RunFiles, Span, Upkeep,
};

/// A key and its value, or none for a delete.
pub type Write = (Vec<u8>, Option<Vec<u8>>);

/// How a commit reached the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Applied; attached as a run in memory if the structure found it too cold.
    Apply,
    /// Attached as a run in memory.
    Memory,
    /// Attached as a run in a file.
    File,
}

struct Logged {
    ts: CommitTs,
    /// Ranges deleted, before the batch.
    spans: Vec<Span>,
    batch: Batch,
    /// The run file that the record names, if any.
    file: Option<RunMeta>,
    way: Way,
}

/// What is durable of index and data file.
pub struct Manifest {
    /// None before the first checkpoint.
    pub index: Option<IndexState>,
    /// The data file's accounting.
    pub space: Vec<u8>,
}

/// One index and everything around it.
pub struct World<'b> {
    bench: &'b Bench,
    options: IndexOptions,
    /// Counts and switches of the file system.
    pub watch: Arc<Watch>,
    /// The data file.
    pub space: Space,
    /// The cache.
    pub cache: Arc<Cache>,
    /// None only while reopening, and at the end.
    index: Option<Arc<dyn Index>>,
    /// What it should answer.
    pub model: Model,
    /// The log's durable mark.
    pub gate: Arc<Gate>,
    /// Open snapshots, in the order they were taken.
    pub snapshots: Vec<CommitTs>,
    vfs: Arc<dyn vfs::Vfs>,
    dir: PathBuf,
    log: Vec<Logged>,
    end: Lsn,
    manifest: Manifest,
    next_run: Arc<AtomicU64>,
    random: Rng,
    _disk: Box<dyn Any + Send>,
}

impl<'b> World<'b> {
    /// An empty index whose first manifest is durable.
    pub fn new(bench: &'b Bench) -> Verdict<Self> {
        Self::with(bench, bench.options)
    }

    /// The same with other options.
    pub fn with(bench: &'b Bench, options: IndexOptions) -> Verdict<Self> {
        let (disk, dir, guard) = (bench.disk)();
        let watch = Arc::new(Watch::default());
        let vfs: Arc<dyn vfs::Vfs> = Arc::new(Watched::new(disk, watch.clone()));
        let space = Space::open(vfs.clone(), &dir, space_options(), None, Poison::new())?;
        let manifest = Manifest { index: None, space: space.save() };
        let cache = new_cache(bench, options);
        let next_run = Arc::new(AtomicU64::new(1));
        let runs = Arc::new(Runs { vfs: vfs.clone(), dir: dir.clone(), next: next_run.clone() });
        let charge = cache.budget().charge(Class::Inner, 0);
        let index =
            Ranged::open(None, runs, charge, |state| (bench.open)(env(options, &space, &cache, &vfs, &dir), state))?;
        index.start();
        Ok(Self {
            bench,
            options,
            watch,
            space,
            cache,
            index: Some(index),
            model: Model::new(),
            gate: Arc::new(Gate::default()),
            snapshots: Vec::new(),
            vfs,
            dir,
            log: Vec::new(),
            end: Lsn(LSN_UNIT),
            manifest,
            next_run,
            random: Rng::new(7),
            _disk: guard,
        })
    }

    /// The index under test.
    #[must_use]
    pub fn index(&self) -> &Arc<dyn Index> {
        self.index.as_ref().expect("taken away while reopening only, or for good")
    }

    /// Drops the index, for good.
    pub fn forget_index(&mut self) {
        self.index = None;
    }

    /// Takes over a manifest that a check wrote by itself.
    pub fn adopt_manifest(&mut self, manifest: Manifest) {
        self.manifest = manifest;
    }

    /// Takes over a commit that a check brought through by itself.
    pub fn adopt(&mut self, ts: CommitTs, batch: Batch) {
        assert!(ts.as_lsn() > self.end, "positions only grow");
        self.end = ts.as_lsn();
        self.model.commit(ts, batch.iter().map(|(key, op)| (key, value_of(op))));
        self.log.push(Logged { ts, spans: Vec::new(), batch, file: None, way: Way::Apply });
    }

    /// The end of the log: everything up to here is applied.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// The GC view of this moment.
    #[must_use]
    pub fn view(&self) -> GcView {
        GcView::new(self.end.as_commit_ts(), self.snapshots.clone())
    }

    /// Takes a snapshot.
    pub fn snapshot(&mut self) -> CommitTs {
        let at = self.end.as_commit_ts();
        self.snapshots.push(at);
        at
    }

    /// Lets the `i`-th snapshot go.
    pub fn release(&mut self, i: usize) {
        self.snapshots.remove(i);
    }

    /// Commits in the ordinary way.
    pub fn commit(&mut self, writes: &[Write]) -> Verdict<CommitTs> {
        self.commit_by(Way::Apply, writes)
    }

    /// One put.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Verdict<CommitTs> {
        self.commit(&[(key.to_vec(), Some(value.to_vec()))])
    }

    /// One delete.
    pub fn delete(&mut self, key: &[u8]) -> Verdict<CommitTs> {
        self.commit(&[(key.to_vec(), None)])
    }

    /// Commits; of several writes of one key the last counts.
    pub fn commit_by(&mut self, way: Way, writes: &[Write]) -> Verdict<CommitTs> {
        self.commit_ranges(way, &[], writes)
    }

    /// A range deleted, and nothing else.
    pub fn delete_range(&mut self, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Verdict<CommitTs> {
        self.commit_ranges(Way::Apply, &[Span::of(&KeyRange::new(range))], &[])
    }

    /// Commits deletes of ranges, with writes behind them.
    pub fn commit_ranges(&mut self, way: Way, spans: &[Span], writes: &[Write]) -> Verdict<CommitTs> {
        let batch = batch_of(writes);
        // What a commit puts into a range that it deletes is not known to be absent.
        let marked = if spans.is_empty() { self.marked(&batch) } else { batch_of(writes) };
        let view = self.view();
        let ts = match way {
            Way::Apply => match self.index().reserve(&marked)? {
                Reservation::Direct(reserved) => {
                    let ts = self.advance();
                    let before = self.watch.operations();
                    self.index().apply(&marked, reserved, ts, &view);
                    self.delete_spans(spans, ts, Some(&batch));
                    let after = self.watch.operations();
                    ensure!(before == after, "apply did {} file operations (rule A1)", after - before);
                    ts
                }
                Reservation::TooCold => self.attach_memory(spans, &batch),
            },
            Way::Memory => self.attach_memory(spans, &batch),
            Way::File => {
                let meta = self.write_run(&batch)?;
                let run = Run::open(&*self.vfs, &self.dir, &meta)?;
                let ts = self.advance();
                self.index().attach(run, ts);
                self.delete_spans(spans, ts, None);
                self.log.push(Logged { ts, spans: spans.to_vec(), batch: Batch::default(), file: Some(meta), way });
                ts
            }
        };
        if way != Way::File {
            self.log.push(Logged { ts, spans: spans.to_vec(), batch, file: None, way });
        }
        let mut gone = std::collections::BTreeMap::<Vec<u8>, Option<Vec<u8>>>::new();
        for span in spans {
            gone.extend(self.model.range(CommitTs::MAX, span.bounds()).map(|entry| (entry.key, None)));
        }
        let written: std::collections::BTreeSet<&Vec<u8>> = writes.iter().map(|(key, _)| key).collect();
        self.model.commit(ts, gone.iter().filter(|(key, _)| !written.contains(key)).map(|(k, v)| (k, v.as_ref())));
        self.model
            .commit(ts, writes.iter().map(|(k, v)| (k, v.as_ref())).collect::<std::collections::BTreeMap<_, _>>());
        Ok(ts)
    }

    /// The same with its fresh puts said to be, three times in four [A15]. The log does not say it: what is replayed is plain.
    fn marked(&self, batch: &Batch) -> Batch {
        let mut builder = BatchBuilder::new();
        for (key, op) in batch.iter() {
            let is_fresh = self.model.get(CommitTs::MAX, key).is_none() && !(self.end.0 / LSN_UNIT).is_multiple_of(4);
            match op {
                Op::Put(value) if is_fresh => builder.push_fresh(key, value),
                op => builder.push(key, op),
            }
        }
        builder.finish()
    }

    fn delete_spans(&self, spans: &[Span], ts: CommitTs, put: Option<&Batch>) {
        if !spans.is_empty() {
            let ranged = self.index().as_ranged().expect("the world made it");
            ranged.delete_ranges(spans, ts, put.map(|batch| batch.iter().map(|(key, _)| key)));
        }
    }

    fn attach_memory(&mut self, spans: &[Span], batch: &Batch) -> CommitTs {
        let ts = self.advance();
        self.index().attach(memory_run(batch), ts);
        self.delete_spans(spans, ts, Some(batch));
        ts
    }

    fn advance(&mut self) -> CommitTs {
        self.end.0 += LSN_UNIT * (1 + self.random.below(4));
        self.end.as_commit_ts()
    }

    fn write_run(&mut self, batch: &Batch) -> Result<RunMeta> {
        let id = self.next_run.fetch_add(1, Ordering::Relaxed);
        let mut writer = RunWriter::create(self.vfs.clone(), &self.dir, id, self.options.compression)?;
        for (key, op) in batch.iter() {
            writer.add(key, value_of(op))?;
        }
        writer.finish()
    }

    /// Applies the whole log once more: the same versions at the same timestamps (decision D3).
    pub fn apply_again(&mut self) -> Verdict {
        self.replay(Lsn::ZERO, &GcView::keep_all())
    }

    /// One maintenance step.
    pub fn maintain(&mut self) -> Verdict<Progress> {
        let gate = self.gate.clone();
        Ok(self.index().maintain(&Upkeep { view: self.view(), applied: self.end, log: &*gate, tight: false })?)
    }

    /// Maintenance until there is nothing more to do.
    pub fn settle(&mut self) -> Verdict {
        for _ in 0..100_000 {
            if !self.maintain()?.more {
                return Ok(());
            }
        }
        ensure!(false, "maintenance says `more` for ever");
        Ok(())
    }

    /// Writes back and evicts whatever the cache can, by taking the whole budget for a moment, as pages would: for other classes the
    /// cache leaves pages a floor.
    pub fn evict(&mut self) -> Verdict {
        let pressure = self.cache.budget().charge(Class::Frames, self.bench.budget_bytes);
        let write_env = WriteEnv { view: self.view(), applied: self.end, durable: self.gate.durable() };
        for _ in 0..1_000 {
            if !self.cache.step(&write_env, &*self.gate, &self.space)?.advanced() {
                break;
            }
        }
        // While memory is short: what is written now is not kept in it.
        let gate = self.gate.clone();
        while self.bench.relieves && self.index().relieve(&*gate)? > 0 {}
        drop(pressure);
        Ok(())
    }

    /// Bytes of memory that hold what was committed: pages, and what waits for the disk beside them.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        let budget = self.cache.budget();
        budget.used(Class::Frames) + if self.bench.relieves { budget.used(Class::Buffers) } else { 0 }
    }

    /// A checkpoint, to a durable manifest.
    pub fn checkpoint(&mut self) -> Verdict {
        let gate = self.gate.clone();
        let state =
            self.index().checkpoint(&Upkeep { view: self.view(), applied: self.end, log: &*gate, tight: false })?;
        ensure!(state.skip <= self.end, "skip position {} beyond the applied prefix {}", state.skip, self.end);
        self.space.sync()?;
        self.manifest = Manifest { index: Some(state), space: self.space.save() };
        self.space.checkpoint_durable();
        Ok(())
    }

    /// The process dies: memory is gone, the log is there up to its durable mark; then recovery.
    pub fn crash(&mut self) -> Verdict {
        let durable = self.gate.durable().as_commit_ts();
        // What the log does not hold is not skipped either: an index at rest says "everything", the log's end is
        // what a crash leaves of it.
        let skip = self.manifest.index.as_ref().map_or(Lsn::ZERO, |s| s.skip).min(durable.as_lsn());
        self.log.retain(|l| l.ts <= durable);
        self.model.forget_after(durable);
        self.snapshots.clear();
        self.reopen()?;
        self.replay(skip, &GcView::keep_all())?;
        self.index().as_ranged().expect("the world made it").start();
        Ok(())
    }

    /// The log becomes durable.
    pub fn sync_log(&self) -> Verdict {
        Ok(self.gate.make_durable(self.end)?)
    }

    /// The log becomes durable, then the process dies: nothing may be missing.
    pub fn crash_durably(&mut self) -> Verdict {
        self.sync_log()?;
        self.crash()
    }

    fn reopen(&mut self) -> Verdict {
        self.space.close();
        self.watch.fail_reads(false);
        self.watch.fail_writes(false);
        self.gate.refuse(false);
        // The old cache and index go before the file is opened again.
        self.cache = new_cache(self.bench, self.options);
        self.index = None;
        let saved = Some(self.manifest.space.as_slice());
        self.space = Space::open(self.vfs.clone(), &self.dir, space_options(), saved, Poison::new())?;
        let state = self.manifest.index.as_ref().map(|s| s.bytes.as_slice());
        let runs = Arc::new(Runs { vfs: self.vfs.clone(), dir: self.dir.clone(), next: self.next_run.clone() });
        let env = env(self.options, &self.space, &self.cache, &self.vfs, &self.dir);
        let charge = self.cache.budget().charge(Class::Inner, 0);
        self.index = Some(Ranged::open(state, runs, charge, |state| (self.bench.open)(env, state))?);
        Ok(())
    }

    fn replay(&mut self, skip: Lsn, view: &GcView) -> Verdict {
        for logged in self.log.iter().filter(|l| l.ts.as_lsn() > skip) {
            // With somebody to read as of between two ranges, both are needed.
            if self.snapshots.is_empty() && !logged.spans.is_empty() {
                let ranged = self.index().as_ranged().expect("the world made it");
                ranged.replay_ranges(vec![(logged.ts, logged.spans.clone())]);
            } else {
                self.delete_spans(&logged.spans, logged.ts, None);
            }
            if let Some(meta) = &logged.file {
                self.index().attach(Run::open(&*self.vfs, &self.dir, meta)?, logged.ts);
                continue;
            }
            match (logged.way, self.index().reserve(&logged.batch)?) {
                (Way::Apply, Reservation::Direct(reserved)) => {
                    self.index().apply(&logged.batch, reserved, logged.ts, view);
                }
                _ => self.index().attach(memory_run(&logged.batch), logged.ts),
            }
        }
        Ok(())
    }

    /// Every read at every position that anyone may hold, both ways, and what `verify` says.
    pub fn check(&mut self) -> Verdict {
        let snapshots = self.snapshots.iter().map(|s| ReadAt::Snapshot(*s));
        let all: Vec<ReadAt> = snapshots.chain([ReadAt::Snapshot(self.end.as_commit_ts()), ReadAt::Newest]).collect();
        for at in all {
            self.check_range(at, (Bound::Unbounded, Bound::Unbounded))?;
            self.check_points(at)?;
        }
        self.check_verify()
    }

    /// One range, both ways.
    pub fn check_range(&mut self, at: ReadAt, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Verdict {
        let mut expected: Vec<Entry> = self.model.range(model_at(at), range).collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let max = 1 + self.random.index(40);
            let found = read_all(&mut *self.index().cursor(at, range, direction), direction, max)?;
            if found != expected {
                let what = difference(&found, &expected);
                ensure!(false, "{direction:?} cursor at {at:?} over {}: {what}", printable_range(range));
            }
            expected.reverse();
        }
        Ok(())
    }

    /// All keys there ever were, and their absent neighbours, in calls of random length.
    pub fn check_points(&mut self, at: ReadAt) -> Verdict {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for (key, ..) in self.model.versions() {
            if keys.last().is_none_or(|last| last != key) {
                keys.push(key.to_vec());
                keys.push([key, &[0]].concat());
            }
        }
        keys.sort();
        keys.dedup();
        let mut rest = keys.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(1 + self.random.index(50)));
            self.check_keys(at, &now.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
            rest = later;
        }
        Ok(())
    }

    /// Point reads of ascending keys, in one call.
    pub fn check_keys(&self, at: ReadAt, keys: &[&[u8]]) -> Verdict {
        let mut found: Vec<Entry> = Vec::new();
        let mut order = Vec::new();
        self.index().get_many(at, keys, &mut |i, ts, value| {
            order.push(i);
            found.push(Entry { key: keys[i].to_vec(), ts, value: value.to_vec() });
        })?;
        ensure!(order.is_sorted_by(|a, b| a < b), "get_many reports {order:?}: each key once, ascending");
        let expected: Vec<Entry> = keys.iter().filter_map(|k| self.model.get(model_at(at), k)).collect();
        ensure!(found == expected, "get_many at {at:?}: {}", difference(&found, &expected));
        Ok(())
    }

    /// `verify` finds nothing.
    pub fn check_verify(&self) -> Verdict {
        let report = self.index().verify()?;
        ensure!(report.problems.is_empty(), "verify: {:#?}", report.problems);
        let mut named = std::collections::BTreeSet::new();
        let mut twice = Vec::new();
        let problems = self.index().reach(&mut |at, who| {
            if !named.insert(at.offset) {
                twice.push(format!("the block at {} is also named by {}", at.offset, who()));
            }
        })?;
        ensure!(problems.is_empty(), "reach: {problems:#?}");
        ensure!(twice.is_empty(), "reach: {}", twice.join("; "));
        Ok(())
    }
}

fn space_options() -> SpaceOptions {
    SpaceOptions { extent_bytes: 1 << 20, direct: false, reserve_bytes: 1 << 20, max_bytes: None, budget: None }
}

fn new_cache(bench: &Bench, options: IndexOptions) -> Arc<Cache> {
    let options = CacheOptions { page_bytes: options.node_bytes as u64, ..CacheOptions::default() };
    Arc::new(Cache::new(Budget::new(bench.budget_bytes), options))
}

fn env(
    options: IndexOptions,
    space: &Space,
    cache: &Arc<Cache>,
    vfs: &Arc<dyn vfs::Vfs>,
    dir: &std::path::Path,
) -> IndexEnv {
    IndexEnv {
        id: IndexId(3),
        options,
        space: space.clone(),
        cache: cache.clone(),
        runs: RunFiles { vfs: vfs.clone(), dir: dir.to_owned() },
        basements: true,
        read_only: false,
        expiry: None,
    }
}

/// A sorted batch; of several writes of one key the last counts.
pub fn batch_of(writes: &[Write]) -> Batch {
    let sorted: std::collections::BTreeMap<&[u8], Option<&[u8]>> =
        writes.iter().map(|(k, v)| (k.as_slice(), v.as_deref())).collect();
    sorted.into_iter().map(|(key, value)| (key, value.map_or(Op::Delete, Op::Put))).collect()
}

fn value_of(op: Op<'_>) -> Option<&[u8]> {
    match op {
        Op::Put(value) => Some(value),
        Op::Delete => None,
    }
}

fn memory_run(batch: &Batch) -> Run {
    Run::from_sorted(batch.iter().map(|(key, op)| (key, value_of(op))))
}

fn model_at(at: ReadAt) -> CommitTs {
    match at {
        ReadAt::Snapshot(ts) => ts,
        ReadAt::Newest => CommitTs::MAX,
    }
}

/// Reads a cursor to its end.
pub fn read_all(cursor: &mut dyn Cursor, direction: Direction, max: usize) -> Verdict<Vec<Entry>> {
    let (mut found, mut out, mut idle): (Vec<Entry>, _, _) = (Vec::new(), EntryBatch::new(), 0);
    loop {
        let more = cursor.fill(&mut out, max)?;
        ensure!(out.len() <= max, "a cursor gave {} entries, asked for {max}", out.len());
        for (key, value, ts) in out.iter() {
            let Some(value) = value else {
                ensure!(false, "a cursor gave a tombstone");
                continue;
            };
            let goes_on = found.last().is_none_or(|last| match direction {
                Direction::Forward => last.key.as_slice() < key,
                Direction::Backward => last.key.as_slice() > key,
            });
            ensure!(goes_on, "{direction:?} cursor gave {} out of order", printable(key));
            found.push(Entry { key: key.to_vec(), ts, value: value.to_vec() });
        }
        if !more {
            return Ok(found);
        }
        idle = if out.is_empty() { idle + 1 } else { 0 };
        ensure!(idle < 10_000, "a cursor gives nothing, for ever");
    }
}

/// The first place where two lists differ.
fn difference(found: &[Entry], expected: &[Entry]) -> String {
    let at = found.iter().zip(expected).take_while(|(f, e)| f == e).count();
    let show = |e: Option<&Entry>| match e {
        Some(e) => format!("{} = {} @{}", printable(&e.key), printable(&e.value), e.ts),
        None => "nothing".to_owned(),
    };
    let (n, m) = (found.len(), expected.len());
    format!("{n} entries instead of {m}; entry {at} is {} instead of {}", show(found.get(at)), show(expected.get(at)))
}

fn printable(bytes: &[u8]) -> String {
    format!("\"{}\"", base::bytes::printable(bytes))
}

fn printable_range((low, high): (Bound<&[u8]>, Bound<&[u8]>)) -> String {
    let show = |b: Bound<&[u8]>| match b {
        Bound::Included(key) => format!("including {}", printable(key)),
        Bound::Excluded(key) => format!("excluding {}", printable(key)),
        Bound::Unbounded => "the end".to_owned(),
    };
    format!("{} .. {}", show(low), show(high))
}
