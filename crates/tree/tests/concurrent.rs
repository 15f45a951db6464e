//! Writers, readers, eviction, maintenance and checkpoints at the same time, one thread at a time by seed, judged by
//! the model; then a crash, and everything again from the last manifest and the log.
//!
//! `TREFOIL_SEEDS=from..to` says which seeds; one seed replays one failure.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{self, Numbers, Rig, Setup, Write, apply, key, scan, sorted};
use base::link_buffer::LinkBuffer;
use base::{CommitTs, GcView, Lsn};
use index::{Direction, Index, LogGate, ReadAt, Upkeep};
use model::Model;
use store::WriteEnv;
use vfs::sim::{Config, Handle, explore};
use vfs::sync::Mutex;

type Entry = (Vec<u8>, CommitTs, Vec<u8>);

/// What the engine would be around the tree.
struct World {
    rig: Rig,
    next: AtomicU64,
    applied: LinkBuffer,
    model: Mutex<Model>,
    /// Commits by timestamp.
    log: Mutex<BTreeMap<u64, Vec<Write>>>,
    snapshots: Mutex<Vec<CommitTs>>,
    done: AtomicBool,
}

impl World {
    fn new(setup: Setup) -> Self {
        Self {
            rig: Rig::new(setup),
            next: AtomicU64::new(16),
            applied: LinkBuffer::new(Lsn(16), 1 << 20),
            model: Mutex::new(Model::new()),
            log: Mutex::default(),
            snapshots: Mutex::default(),
            done: AtomicBool::new(false),
        }
    }

    fn visible(&self) -> CommitTs {
        self.applied.prefix().as_commit_ts()
    }

    /// The floor first, then the snapshots.
    fn view(&self) -> GcView {
        let floor = self.visible();
        vfs::thread::point("test.view");
        GcView::new(floor, self.snapshots.lock().clone())
    }

    fn commit(&self, writes: Vec<Write>) {
        let writes = sorted(writes);
        let batch = common::batch(&writes);
        let view = self.view();
        let reservation = self.rig.tree.reserve(&batch).unwrap();
        let start = self.next.fetch_add(16, Ordering::SeqCst);
        let ts = CommitTs(start + 16);
        self.log.lock().insert(ts.0, writes.clone());
        self.model.lock().commit(ts, writes.iter().map(|(k, v)| (k, v.as_ref())));
        vfs::thread::point("test.logged");
        match reservation {
            index::Reservation::Direct(reserved) => self.rig.tree.apply(&batch, reserved, ts, &view),
            index::Reservation::TooCold => {
                self.rig.tree.attach(store::Run::from_sorted(writes.iter().map(|(k, v)| (k, v.as_ref()))), ts);
            }
        }
        self.applied.mark(Lsn(start), ts.as_lsn());
        self.applied.advance();
    }

    fn attach(&self, writes: Vec<Write>) {
        let writes = sorted(writes);
        let start = self.next.fetch_add(16, Ordering::SeqCst);
        let ts = CommitTs(start + 16);
        self.log.lock().insert(ts.0, writes.clone());
        self.model.lock().commit(ts, writes.iter().map(|(k, v)| (k, v.as_ref())));
        self.rig.tree.attach(store::Run::from_sorted(writes.iter().map(|(k, v)| (k, v.as_ref()))), ts);
        self.applied.mark(Lsn(start), ts.as_lsn());
        self.applied.advance();
    }

    /// The applied prefix first, then the view.
    fn upkeep(&self) -> Upkeep<'_> {
        let applied = self.applied.prefix();
        Upkeep { applied, view: self.view(), log: &*self.rig.log, tight: false }
    }

    fn checkpoint(&self) {
        self.publish(self.rig.tree.checkpoint(&self.upkeep()).unwrap());
        self.rig.verify();
    }

    fn publish(&self, state: index::IndexState) {
        self.rig.space.sync().unwrap();
        let manifest = common::Manifest { state: Some(state.bytes), space: self.rig.space.save(), skip: state.skip };
        self.rig.assert_counted();
        *self.rig.manifest.lock() = manifest;
        self.rig.space.checkpoint_durable();
    }

    /// One of a checkpoint in rounds: some extents are emptied, and what is written is named.
    fn round(&self, numbers: &mut Numbers) {
        let mut weights = store::Weights::new();
        self.rig.tree.weigh(&mut weights).unwrap();
        let extents: Vec<_> = weights.keys().copied().filter(|_| numbers.one_in(2)).collect();
        self.rig.tree.evacuate(&extents, &self.upkeep()).unwrap();
        let applied = self.rig.manifest.lock().skip;
        self.publish(self.rig.tree.checkpoint_written(&Upkeep { applied, ..self.upkeep() }).unwrap());
    }

    fn check_at(&self, numbers: &mut Numbers, keys: u64) {
        let at = {
            let mut snapshots = self.snapshots.lock();
            let at = self.visible();
            snapshots.push(at);
            at
        };
        for _ in 0..1 + numbers.below(3) {
            let (a, b) = (numbers.below(keys), numbers.below(keys));
            let (low, high) = (key(a.min(b)), key(a.max(b)));
            let direction = if numbers.one_in(2) { Direction::Forward } else { Direction::Backward };
            let range = (Bound::Included(low.as_slice()), Bound::Excluded(high.as_slice()));
            let found = scan(&self.rig.tree, ReadAt::Snapshot(at), range, direction, 1 + numbers.below(9) as usize);
            let mut expected: Vec<_> =
                self.model.lock().range(at, range).map(|entry| (entry.key, entry.ts, entry.value)).collect();
            if direction == Direction::Backward {
                expected.reverse();
            }
            self.assert_same(&found, &expected, &format!("{direction:?} at {at} from {a} to {b}"));
        }
        for _ in 0..4 {
            let key = key(numbers.below(keys));
            let found = self.rig.get(ReadAt::Snapshot(at), &key);
            assert_eq!(found, self.model.lock().get(at, &key).map(|entry| entry.value), "get {key:?} at {at}");
        }
        let mut snapshots = self.snapshots.lock();
        let mine = snapshots.iter().position(|s| *s == at).unwrap();
        snapshots.swap_remove(mine);
    }

    /// Says where the first difference is, and what happened to the keys there.
    fn assert_same(&self, found: &[Entry], expected: &[Entry], what: &str) {
        if found == expected {
            return;
        }
        let at = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
        let (found, expected) = (found.get(at), expected.get(at));
        let mut keys: Vec<_> = found.iter().chain(&expected).map(|entry| &entry.0).collect();
        keys.dedup();
        let mut story = String::new();
        for (ts, writes) in &*self.log.lock() {
            for (key, value) in writes.iter().filter(|(key, _)| keys.contains(&key)) {
                let bytes = value.as_ref().map(Vec::len);
                story += &format!("{ts}: {} {bytes:?}\n", String::from_utf8_lossy(key));
            }
        }
        let show = |entry: Option<&Entry>| {
            entry.map(|(key, ts, value)| format!("{}@{ts} of {} bytes", String::from_utf8_lossy(key), value.len()))
        };
        panic!("{what}: entry {at} is {:?}, expected {:?}\n{story}", show(found), show(expected));
    }

    fn check_all(&self) {
        let background = Background::start(&self.rig, self.next.load(Ordering::SeqCst));
        let found = self.rig.all(ReadAt::Newest, Direction::Forward);
        let expected: Vec<_> = self
            .model
            .lock()
            .range(CommitTs::MAX, (Bound::Unbounded, Bound::Unbounded))
            .map(|entry| (entry.key, entry.ts, entry.value))
            .collect();
        self.assert_same(&found, &expected, "all");
        self.rig.verify();
        background.end();
    }

    /// Opens from the last manifest and replays.
    fn crash(self) -> Self {
        let log = std::mem::take(&mut *self.log.lock());
        let end = self.next.load(Ordering::SeqCst);
        self.rig.now.store(end, Ordering::SeqCst);
        let rig = self.rig.reopen(false);
        let skip = rig.manifest.lock().skip;
        let background = Background::start(&rig, end);
        for (ts, writes) in log.range(skip.0 + 1..) {
            apply(&rig.tree, writes, CommitTs(*ts), &GcView::keep_all());
        }
        background.end();
        Self {
            rig,
            next: AtomicU64::new(end),
            applied: LinkBuffer::new(Lsn(end), 1 << 20),
            model: self.model,
            log: Mutex::new(log),
            snapshots: Mutex::default(),
            done: AtomicBool::new(false),
        }
    }
}

/// The cache's thread while the main one replays or checks.
struct Background(Arc<AtomicBool>, vfs::thread::JoinHandle<()>);

impl Background {
    fn start(rig: &Rig, end: u64) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let (cache, log, space) = (rig.cache.clone(), rig.log.clone(), rig.space.clone());
        let stop = done.clone();
        let body = move || {
            let env = WriteEnv { view: GcView::keep_all(), applied: Lsn(end), durable: log.durable() };
            while !stop.load(Ordering::SeqCst) {
                cache.wait_for_work(Duration::from_millis(1));
                cache.step(&env, &*log, &space).unwrap();
            }
        };
        Self(done, vfs::thread::spawn("cache", body).unwrap())
    }

    fn end(self) {
        self.0.store(true, Ordering::SeqCst);
        self.1.join().unwrap();
    }
}

struct Shape {
    setup: Setup,
    keys: u64,
    writers: u64,
    commits: u64,
    delete_share: u64,
    attach_share: u64,
}

fn spawn(name: &str, world: &Arc<World>, body: impl FnOnce(&World) + Send + 'static) -> vfs::thread::JoinHandle<()> {
    let world = world.clone();
    vfs::thread::spawn(name, move || body(&world)).unwrap()
}

fn writer(world: &World, shape: &Shape, writer: u64, seed: u64) {
    let mut numbers = Numbers(seed);
    let deleting = |numbers: &mut Numbers| numbers.below(10) < shape.delete_share;
    for round in 0..shape.commits {
        let mut writes = Vec::new();
        let start = numbers.below(shape.keys);
        let dense = numbers.one_in(3);
        for i in 0..1 + numbers.below(12) {
            // A key belongs to one writer: the lock the engine would hold.
            let n = if dense { (start + i) % shape.keys } else { numbers.below(shape.keys) };
            let n = n / shape.writers * shape.writers + writer;
            let bytes = match numbers.below(20) {
                0 => 400,
                1 => 1200,
                _ => numbers.below(60) as usize,
            };
            let value = format!("{writer}/{round}/{i}").into_bytes().into_iter().cycle().take(8 + bytes).collect();
            writes.push((key(n), (!deleting(&mut numbers)).then_some(value)));
        }
        if numbers.below(100) < shape.attach_share { world.attach(writes) } else { world.commit(writes) }
    }
}

fn background(world: &Arc<World>) -> Vec<vfs::thread::JoinHandle<()>> {
    let cache = spawn("cache", world, |world| {
        while !world.done.load(Ordering::SeqCst) {
            world.rig.cache.wait_for_work(Duration::from_micros(50));
            let applied = world.applied.prefix();
            let env = WriteEnv { view: world.view(), applied, durable: world.rig.log.durable() };
            world.rig.cache.step(&env, &*world.rig.log, &world.rig.space).unwrap();
        }
    });
    let maintenance = spawn("maintenance", world, |world| {
        while !world.done.load(Ordering::SeqCst) {
            world.rig.tree.maintain(&world.upkeep()).unwrap();
            vfs::thread::sleep(Duration::from_micros(5));
        }
    });
    let checkpoint = spawn("checkpoint", world, |world| {
        let mut numbers = Numbers(world.next.load(Ordering::SeqCst) + 5);
        while !world.done.load(Ordering::SeqCst) {
            world.checkpoint();
            if numbers.one_in(2) {
                world.round(&mut numbers);
            }
            vfs::thread::sleep(Duration::from_micros(200));
        }
    });
    vec![cache, maintenance, checkpoint]
}

fn run(handle: &Handle, shape: Shape) {
    let shape = Arc::new(shape);
    let seed = handle.seed();
    let mut world = World::new(shape.setup.clone());
    for life in 0..2 {
        let shared = Arc::new(world);
        let mut working = Vec::new();
        for n in 0..shape.writers {
            let shape = shape.clone();
            let seed = seed * 1000 + life * 100 + n;
            working.push(spawn("writer", &shared, move |world| writer(world, &shape, n, seed)));
        }
        for n in 0..2 {
            let keys = shape.keys;
            working.push(spawn("reader", &shared, move |world| {
                let mut numbers = Numbers(seed + 77 + n);
                for _ in 0..12 {
                    world.check_at(&mut numbers, keys);
                }
            }));
        }
        let upkeep = background(&shared);
        working.into_iter().for_each(|thread| thread.join().unwrap());
        shared.done.store(true, Ordering::SeqCst);
        shared.rig.cache.wake_worker();
        upkeep.into_iter().for_each(|thread| thread.join().unwrap());
        world = Arc::into_inner(shared).expect("all threads have ended");
        world.check_all();
        world = world.crash();
        world.check_all();
        world.checkpoint();
        world = world.crash();
        world.check_all();
    }
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("TREFOIL_SEEDS") else { return 0..count };
    let (from, to) = text.split_once("..").unwrap();
    from.parse().unwrap()..to.parse().unwrap()
}

fn explore_shape(count: u64, shape: fn() -> Shape) {
    let explored = explore(seeds(count), &Config::default(), move |handle| run(handle, shape()));
    match explored {
        Ok(explored) => println!("{explored:?}"),
        Err(failure) => panic!("{failure}"),
    }
}

/// Everything fits into memory: splits, merges, unlinking and checkpoints meet.
#[test]
fn in_memory() {
    explore_shape(60, || Shape {
        setup: Setup { node_bytes: 512, extent_bytes: 64 << 10, ..Setup::default() },
        keys: 300,
        writers: 3,
        commits: 40,
        delete_share: 4,
        attach_share: 3,
    });
}

/// A tenth fits: loads, eviction and write-back meet everything else.
#[test]
fn larger_than_memory() {
    explore_shape(60, || Shape {
        setup: Setup { node_bytes: 512, budget_bytes: 600 << 10, extent_bytes: 64 << 10, ..Setup::default() },
        keys: 3_000,
        writers: 3,
        commits: 60,
        delete_share: 3,
        attach_share: 5,
    });
}

/// Mostly deletes: leaves die and are unlinked all the time.
#[test]
fn deserts() {
    explore_shape(60, || Shape {
        setup: Setup { node_bytes: 512, budget_bytes: 400 << 10, extent_bytes: 64 << 10, ..Setup::default() },
        keys: 200,
        writers: 2,
        commits: 60,
        delete_share: 7,
        attach_share: 2,
    });
}

/// As [`larger_than_memory`], but commits do not wait for leaves: messages are buffered, flushed, drained.
#[test]
fn larger_than_memory_with_buffers() {
    explore_shape(60, || Shape {
        setup: Setup {
            node_bytes: 512,
            budget_bytes: 600 << 10,
            extent_bytes: 64 << 10,
            buffered: true,
            ..Setup::default()
        },
        keys: 3_000,
        writers: 3,
        commits: 60,
        delete_share: 3,
        attach_share: 5,
    });
}

/// As [`deserts`], with buffers over leaves that die.
#[test]
fn deserts_with_buffers() {
    explore_shape(60, || Shape {
        setup: Setup {
            node_bytes: 512,
            budget_bytes: 300 << 10,
            extent_bytes: 64 << 10,
            buffered: true,
            ..Setup::default()
        },
        keys: 600,
        writers: 2,
        commits: 60,
        delete_share: 6,
        attach_share: 2,
    });
}

/// A load splits a leaf whose upper half seems dead, before a message brings it to life: a scan meanwhile does not hop over it.
#[test]
fn a25_a_half_that_is_being_settled_is_not_hopped_over() {
    let explored = explore(seeds(300), &Config::default(), move |_| {
        let setup = Setup { node_bytes: 512, extent_bytes: 64 << 10, buffered: true, ..Setup::default() };
        let rig = Rig::new(setup);
        for n in 0..9 {
            rig.put(key(n), "");
        }
        rig.snapshots.lock().push(rig.now());
        for n in 1..9 {
            rig.delete(key(n));
        }
        rig.checkpoint();
        rig.evict_all();
        for n in 0..4u8 {
            rig.put([&key(0)[..], &[n]].concat(), "thirty bytes, thirty bytes....");
        }
        rig.put(key(8), "alive");
        let splits = rig.tree.stats().splits;
        let rig = Arc::new(rig);
        let other = rig.clone();
        let loader = vfs::thread::spawn("loader", move || drop(other.newest(key(0)))).unwrap();
        let low = key(7);
        let range = (Bound::Included(low.as_slice()), Bound::Unbounded);
        for _ in 0..12 {
            let found = scan(&rig.tree, ReadAt::Newest, range, Direction::Forward, 7);
            assert_eq!(found.len(), 1, "key 8 was put before");
            vfs::thread::point("test.again");
        }
        loader.join().unwrap();
        assert!(rig.tree.stats().splits > splits, "the shape does not split");
    });
    if let Err(failure) = explored {
        panic!("{failure}");
    }
}
