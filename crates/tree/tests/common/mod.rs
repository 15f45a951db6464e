//! A tree on files in memory, with just enough of an engine around it: timestamps, a log, checkpoints, crashes.

#![allow(dead_code, clippy::unwrap_used)]

pub mod memory;

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{CommitTs, GcView, IndexId, Lsn, Poison, Result};
use index::{
    Batch, Direction, EntryBatch, Index, IndexEnv, IndexOptions, IndexState, LogGate, Op, Progress, ReadAt,
    Reservation, RunFiles, Upkeep,
};
use memory::MemoryVfs;
use store::{Budget, Cache, CacheOptions, Census, Class, Compression, Run, RunWriter, Space, SpaceOptions, WriteEnv};
use trefoil_tree::Tree;
use vfs::sync::Mutex;

/// Time this thread spent on the processor: other processes of a busy machine do not count. (`schedstat` of the system moves on in
/// ticks, of 4 ms on some machines.)
pub fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A log that is durable as far as somebody asked.
#[derive(Default)]
pub struct Log {
    durable: AtomicU64,
    /// What was asked for, at most.
    pub asked: AtomicU64,
}

impl Log {
    pub fn set_durable(&self, lsn: u64) {
        self.durable.fetch_max(lsn, Ordering::SeqCst);
    }
}

impl LogGate for Log {
    fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::SeqCst))
    }

    fn make_durable(&self, lsn: Lsn) -> Result<()> {
        self.asked.fetch_max(lsn.0, Ordering::SeqCst);
        self.durable.fetch_max(lsn.0, Ordering::SeqCst);
        Ok(())
    }
}

pub type Write = (Vec<u8>, Option<Vec<u8>>);

/// A commit as the log has it.
#[derive(Clone)]
pub struct Commit {
    pub ts: CommitTs,
    pub writes: Vec<Write>,
}

/// What a manifest keeps.
#[derive(Clone)]
pub struct Manifest {
    pub state: Option<Vec<u8>>,
    pub space: Vec<u8>,
    pub skip: Lsn,
}

#[derive(Debug, Clone)]
pub struct Setup {
    pub node_bytes: usize,
    pub budget_bytes: u64,
    pub extent_bytes: u64,
    pub compression: Compression,
    pub buffered: bool,
    pub counters: bool,
    pub read_only: bool,
    /// Of the data file.
    pub max_bytes: Option<u64>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            node_bytes: 1024,
            budget_bytes: 64 << 20,
            extent_bytes: 256 << 10,
            compression: Compression::None,
            buffered: false,
            counters: false,
            read_only: false,
            max_bytes: None,
        }
    }
}

/// A tree and what it stands on.
pub struct Rig {
    pub setup: Setup,
    pub vfs: Arc<MemoryVfs>,
    pub cache: Arc<Cache>,
    pub space: Space,
    pub tree: Arc<Tree>,
    pub log: Arc<Log>,
    pub commits: Mutex<Vec<Commit>>,
    pub manifest: Mutex<Manifest>,
    /// Timestamp of the last commit.
    pub now: AtomicU64,
    /// Snapshots that the view respects.
    pub snapshots: Mutex<Vec<CommitTs>>,
    /// Recovery: nothing is collected.
    pub keep_all: bool,
}

pub fn dir() -> PathBuf {
    PathBuf::from("/db")
}

fn space_options(setup: &Setup) -> SpaceOptions {
    SpaceOptions {
        extent_bytes: setup.extent_bytes,
        direct: false,
        reserve_bytes: 0,
        max_bytes: setup.max_bytes,
        budget: None,
    }
}

impl Rig {
    pub fn new(setup: Setup) -> Self {
        let vfs = Arc::new(MemoryVfs::default());
        let space = Space::open(vfs.clone(), Path::new("/db"), space_options(&setup), None, Poison::new()).unwrap();
        let manifest = Manifest { state: None, space: space.save(), skip: Lsn::ZERO };
        Self::over(setup, vfs, space, manifest, Vec::new(), 0)
    }

    fn over(
        setup: Setup,
        vfs: Arc<MemoryVfs>,
        space: Space,
        manifest: Manifest,
        commits: Vec<Commit>,
        now: u64,
    ) -> Self {
        let options = CacheOptions {
            page_bytes: setup.node_bytes as u64,
            ready_pages: 8,
            batch_pages: 16,
            ..CacheOptions::default()
        };
        let cache = Arc::new(Cache::new(Budget::new(setup.budget_bytes), options));
        let env = IndexEnv {
            id: IndexId(7),
            options: IndexOptions {
                compression: setup.compression,
                node_bytes: setup.node_bytes,
                buffered: setup.buffered,
                counters: setup.counters,
                ..IndexOptions::default()
            },
            space: space.clone(),
            cache: cache.clone(),
            runs: RunFiles { vfs: vfs.clone(), dir: dir() },
            basements: true,
            read_only: setup.read_only,
            expiry: None,
        };
        let tree = Tree::open(env, manifest.state.as_deref()).unwrap();
        Self {
            setup,
            vfs,
            cache,
            space,
            tree,
            log: Arc::default(),
            commits: Mutex::new(commits),
            manifest: Mutex::new(manifest),
            now: AtomicU64::new(now),
            snapshots: Mutex::default(),
            keep_all: false,
        }
    }

    // ---- commits -----------------------------------------------------------------------------------------

    pub fn now(&self) -> CommitTs {
        CommitTs(self.now.load(Ordering::SeqCst))
    }

    pub fn view(&self) -> GcView {
        if self.keep_all {
            return GcView::keep_all();
        }
        GcView::new(self.now(), self.snapshots.lock().clone())
    }

    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> CommitTs {
        self.commit(vec![(key.as_ref().to_vec(), Some(value.as_ref().to_vec()))])
    }

    pub fn delete(&self, key: impl AsRef<[u8]>) -> CommitTs {
        self.commit(vec![(key.as_ref().to_vec(), None)])
    }

    /// Sorts, applies, or attaches if the tree says so.
    pub fn commit(&self, writes: Vec<Write>) -> CommitTs {
        let ts = CommitTs(self.now.load(Ordering::SeqCst) + 16);
        let view = self.view();
        let writes = sorted(writes);
        apply(&self.tree, &writes, ts, &view);
        self.commits.lock().push(Commit { ts, writes });
        self.now.store(ts.0, Ordering::SeqCst);
        ts
    }

    /// Attaches a run in memory as a commit.
    pub fn attach(&self, writes: Vec<Write>) -> CommitTs {
        let ts = CommitTs(self.now.load(Ordering::SeqCst) + 16);
        let writes = sorted(writes);
        self.tree.attach(Run::from_sorted(writes.iter().map(|(k, v)| (k, v.as_ref()))), ts);
        self.commits.lock().push(Commit { ts, writes });
        self.now.store(ts.0, Ordering::SeqCst);
        ts
    }

    /// Attaches a run in a file as a commit.
    pub fn attach_file(&self, number: u64, writes: Vec<Write>) -> CommitTs {
        let ts = CommitTs(self.now.load(Ordering::SeqCst) + 16);
        let mut writer = RunWriter::create(self.vfs.clone(), &dir(), number, Compression::None).unwrap();
        let writes = sorted(writes);
        writes.iter().for_each(|(key, value)| writer.add(key, value.as_deref()).unwrap());
        let meta = writer.finish().unwrap();
        self.tree.attach(Run::open(&*self.vfs, &dir(), &meta).unwrap(), ts);
        self.commits.lock().push(Commit { ts, writes });
        self.now.store(ts.0, Ordering::SeqCst);
        ts
    }

    // ---- reads -------------------------------------------------------------------------------------------

    pub fn get(&self, at: ReadAt, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        get(&self.tree, at, key.as_ref())
    }

    pub fn newest(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        self.get(ReadAt::Newest, key)
    }

    pub fn all(&self, at: ReadAt, direction: Direction) -> Vec<(Vec<u8>, CommitTs, Vec<u8>)> {
        scan(&self.tree, at, (Bound::Unbounded, Bound::Unbounded), direction, 7)
    }

    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.all(ReadAt::Newest, Direction::Forward).into_iter().map(|(key, ..)| key).collect()
    }

    // ---- upkeep ------------------------------------------------------------------------------------------

    pub fn upkeep(&self) -> Upkeep<'_> {
        Upkeep { applied: Lsn(self.now().0), view: self.view(), log: &*self.log, tight: false }
    }

    pub fn maintain(&self) -> Progress {
        self.tree.maintain(&self.upkeep()).unwrap()
    }

    pub fn maintain_fully(&self) {
        for _ in 0..100_000 {
            if !self.maintain().more {
                return;
            }
        }
        panic!("maintenance does not end");
    }

    /// One step of the cache's background.
    pub fn cache_step(&self) {
        let env = WriteEnv { view: self.view(), applied: Lsn(self.now().0), durable: self.log.durable() };
        self.cache.step(&env, &*self.log, &self.space).unwrap();
    }

    /// Throws out of memory whatever may go, writing it first where needed: memory is full, and somebody waits for half
    /// of it.
    pub fn evict_all(&self) {
        let waits = self.cache.stats().waits;
        // Once more if the other thread came too late to wait.
        while self.cache.stats().pages > 0 && self.cache.stats().waits == waits {
            let mut idle = 0;
            self.while_short(self.cache.budget().limit() / 2, || {
                let before = self.cache.stats();
                self.cache_step();
                let after = self.cache.stats();
                let moved = (after.evicted_pages, after.written_pages) != (before.evicted_pages, before.written_pages);
                idle = if moved { 0 } else { idle + 1 };
                idle < 20 && after.pages > 0
            });
        }
    }

    /// Throws out one page.
    pub fn evict_one(&self) {
        let evicted = self.cache.stats().evicted_pages;
        self.while_short(1, || {
            self.cache_step();
            self.cache.stats().evicted_pages == evicted
        });
    }

    /// Steps while memory is full and somebody waits for `bytes` of it, until told to stop.
    pub fn while_short(&self, bytes: u64, mut step: impl FnMut() -> bool) {
        let hog = self.cache.budget().charge(Class::Work, self.cache.budget().limit());
        let cache = self.cache.clone();
        let waiter = vfs::thread::spawn("waiter", move || drop(cache.grant(bytes))).unwrap();
        while step() {
            vfs::thread::sleep(std::time::Duration::from_micros(100));
        }
        drop(hog);
        waiter.join().unwrap();
    }

    /// A whole checkpoint, manifest included.
    pub fn checkpoint(&self) -> IndexState {
        self.try_checkpoint().unwrap()
    }

    pub fn try_checkpoint(&self) -> Result<IndexState> {
        self.checkpoint_as_of(self.now())
    }

    /// With an older moment than now.
    pub fn checkpoint_as_of(&self, applied: CommitTs) -> Result<IndexState> {
        self.checkpoint_by(|| self.tree.checkpoint(&Upkeep { applied: applied.as_lsn(), ..self.upkeep() }))
    }

    /// Of what is written, as complete as the last one.
    pub fn checkpoint_written(&self) -> Result<IndexState> {
        let applied = self.manifest.lock().skip;
        self.checkpoint_written_to(applied)
    }

    /// The same with this F.
    pub fn checkpoint_written_to(&self, applied: Lsn) -> Result<IndexState> {
        self.checkpoint_by(|| self.tree.checkpoint_written(&Upkeep { applied, ..self.upkeep() }))
    }

    fn checkpoint_by(&self, of_tree: impl FnOnce() -> Result<IndexState>) -> Result<IndexState> {
        let state = of_tree()?;
        self.space.sync()?;
        *self.manifest.lock() =
            Manifest { state: Some(state.bytes.clone()), space: self.space.save(), skip: state.skip };
        self.space.checkpoint_durable();
        Ok(state)
    }

    /// Throws everything in memory away and opens from the last manifest; replays the log if asked.
    pub fn reopen(self, replay: bool) -> Self {
        let manifest = self.manifest.lock().clone();
        let (setup, vfs) = (self.setup.clone(), self.vfs.clone());
        let commits = self.commits.lock().clone();
        let now = if replay { self.now().0 } else { manifest.skip.0 };
        self.space.close();
        drop(self);
        let space =
            Space::open(vfs.clone(), Path::new("/db"), space_options(&setup), Some(&manifest.space), Poison::new())
                .unwrap();
        let rig = Self::over(setup, vfs, space, manifest.clone(), commits, now);
        rig.log.set_durable(now);
        if replay {
            for commit in rig.commits.lock().iter().filter(|commit| commit.ts.as_lsn() > manifest.skip) {
                apply(&rig.tree, &commit.writes, commit.ts, &GcView::keep_all());
            }
        }
        rig
    }

    pub fn verify(&self) {
        let report = self.tree.verify().unwrap();
        assert!(report.problems.is_empty(), "{:#?}", report.problems);
        let mut named = std::collections::BTreeSet::new();
        let problems = self.tree.reach(&mut |at, who| assert!(named.insert(at.offset), "{} twice", who())).unwrap();
        assert!(problems.is_empty(), "{problems:#?}");
    }

    /// What the last checkpoint names is what the allocator counts.
    pub fn assert_counted(&self) {
        let mut census = Census::new(&self.space);
        assert!(self.tree.reach(&mut |at, _| census.add(at, IndexId(7))).unwrap().is_empty());
        assert_eq!(census.shared(), []);
        assert_eq!(census.miscounted(), []);
    }
}

pub fn sorted(writes: Vec<Write>) -> Vec<Write> {
    let mut by_key = std::collections::BTreeMap::new();
    by_key.extend(writes);
    by_key.into_iter().collect()
}

pub fn batch(writes: &[Write]) -> Batch {
    writes.iter().map(|(key, value)| (key.as_slice(), value.as_deref().map_or(Op::Delete, Op::Put))).collect()
}

/// Steps 1b and 3 of a commit. True if it was applied, false if it was attached.
pub fn apply(tree: &Tree, writes: &[Write], ts: CommitTs, view: &GcView) -> bool {
    let batch = batch(writes);
    match tree.reserve(&batch).unwrap() {
        Reservation::Direct(reserved) => {
            tree.apply(&batch, reserved, ts, view);
            true
        }
        Reservation::TooCold => {
            tree.attach(Run::from_sorted(writes.iter().map(|(k, v)| (k, v.as_ref()))), ts);
            false
        }
    }
}

pub fn get(tree: &Tree, at: ReadAt, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = None;
    tree.get_many(at, &[key], &mut |_, _, found| value = Some(found.to_vec())).unwrap();
    value
}

pub fn scan(
    tree: &Tree,
    at: ReadAt,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
    max: usize,
) -> Vec<(Vec<u8>, CommitTs, Vec<u8>)> {
    let mut cursor = tree.cursor(at, range, direction);
    let (mut all, mut out) = (Vec::new(), EntryBatch::new());
    loop {
        let more = cursor.fill(&mut out, max).unwrap();
        assert!(out.len() <= max);
        all.extend((0..out.len()).map(|i| (out.key(i).to_vec(), out.ts(i), out.value(i).to_vec())));
        if !more {
            return all;
        }
    }
}

/// Numbers from a seed (splitmix64, Steele et al. 2014).
#[derive(Debug, Clone)]
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

pub fn key(n: u64) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}
