//! All of it at the same time: writers, readers, write-back, maintenance, checkpoints.
//!
//! Each writer owns some keys, so that the commits of one key are applied in the order of their positions, as row
//! locks ensure. Every commit writes a pair of keys, far apart, with the same value: a reader at a snapshot that
//! finds the two different has seen half a commit. One hot pair belongs to everybody, under a mutex that is held
//! from before the position is taken until the commit is applied.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::link_buffer::LinkBuffer;
use base::{CommitTs, GcView, Lsn};
use store::{Cache, Space, WriteEnv};
use vfs::random::Rng;
use vfs::sync::Mutex;

use super::{key, puts};
use crate::conformance::world::{Gate, Manifest, Write, batch_of, read_all};
use crate::conformance::{Bench, Complaint, Verdict, World, ensure};
use crate::{Assisted, Batch, Direction, Index, Progress, ReadAt, Reservation, Upkeep};

/// Pairs of keys of each writer.
const PAIRS: usize = 60;
/// The two keys of a pair lie this far apart.
const APART: usize = 100_000;

/// What all threads share: the middle of an engine.
struct Shared {
    index: Arc<dyn Index>,
    space: Space,
    cache: Arc<Cache>,
    gate: Arc<Gate>,
    /// Next position of the log.
    tail: AtomicU64,
    applied: LinkBuffer,
    /// Open snapshots, with how many hold each.
    snapshots: Mutex<BTreeMap<CommitTs, usize>>,
    hot: Mutex<()>,
    commits: Mutex<Vec<(CommitTs, Batch)>>,
    /// Of the last checkpoint.
    manifest: Mutex<Option<Manifest>>,
    stop: AtomicBool,
}

impl Shared {
    fn new(world: &World<'_>) -> Self {
        Self {
            index: world.index().clone(),
            space: world.space.clone(),
            cache: world.cache.clone(),
            gate: world.gate.clone(),
            tail: AtomicU64::new(world.end().0),
            applied: LinkBuffer::new(world.end(), 1 << 20),
            snapshots: Mutex::new(BTreeMap::new()),
            hot: Mutex::new(()),
            commits: Mutex::new(Vec::new()),
            manifest: Mutex::new(None),
            stop: AtomicBool::new(false),
        }
    }

    fn view(&self) -> GcView {
        // Snapshots are taken under the same mutex, so the scan misses none that is below the floor.
        let snapshots = self.snapshots.lock();
        GcView::new(self.applied.prefix().as_commit_ts(), snapshots.keys().copied().collect())
    }

    fn commit(&self, batch: Batch) -> Verdict<CommitTs> {
        let reserved = self.index.reserve(&batch)?;
        let view = self.view();
        // SeqCst: positions are handed out once.
        let start = self.tail.fetch_add(32, Ordering::SeqCst);
        let ts = CommitTs(start + 32);
        vfs::thread::point("conformance.reserved");
        match reserved {
            Reservation::Direct(reserved) => self.index.apply(&batch, reserved, ts, &view),
            Reservation::TooCold => {
                let entries = batch.iter().map(|(key, op)| match op {
                    crate::Op::Put(value) => (key, Some(value)),
                    crate::Op::Delete => (key, None),
                });
                self.index.attach(store::run::Run::from_sorted(entries), ts);
            }
        }
        self.applied.mark(Lsn(start), Lsn(start + 32));
        self.applied.advance();
        self.commits.lock().push((ts, batch));
        Ok(ts)
    }

    fn with_snapshot<T>(&self, read: impl FnOnce(CommitTs) -> T) -> T {
        let at = {
            let mut snapshots = self.snapshots.lock();
            let at = self.applied.prefix().as_commit_ts();
            *snapshots.entry(at).or_default() += 1;
            at
        };
        let outcome = read(at);
        let mut snapshots = self.snapshots.lock();
        let holders = snapshots.get_mut(&at).expect("it was entered above");
        *holders -= 1;
        if *holders == 0 {
            snapshots.remove(&at);
        }
        outcome
    }

    fn upkeep(&self) -> Upkeep<'_> {
        let applied = self.applied.prefix();
        Upkeep { view: self.view(), applied, log: &*self.gate, tight: false }
    }

    fn stopped(&self) -> bool {
        // Relaxed: a round more does no harm.
        self.stop.load(Ordering::Relaxed)
    }
}

/// A thread's part. The number tells the parts of one kind apart.
type Role = fn(&Shared, u64) -> Verdict;

/// Runs writers to their end, and everything else until they are through.
fn run(world: &mut World<'_>, writers: &[Role], others: &[Role]) -> Verdict {
    let shared = Arc::new(Shared::new(world));
    let start = |name: &str, role: Role, number: u64| {
        let shared = shared.clone();
        let body = move || {
            let verdict = crate::conformance::guarded(|| role(&shared, number));
            if verdict.is_err() {
                shared.stop.store(true, Ordering::Relaxed);
            }
            verdict
        };
        vfs::thread::spawn(name, body).map_err(|e| Complaint(format!("spawn: {e}")))
    };
    let other_threads: Vec<_> =
        others.iter().enumerate().map(|(i, r)| start("conformance-other", *r, i as u64)).collect::<Verdict<_>>()?;
    let writer_threads: Vec<_> =
        writers.iter().enumerate().map(|(i, r)| start("conformance-writer", *r, i as u64)).collect::<Verdict<_>>()?;
    let mut verdicts = Vec::new();
    for thread in writer_threads {
        verdicts.push(thread.join());
    }
    shared.stop.store(true, Ordering::Relaxed);
    for thread in other_threads {
        verdicts.push(thread.join());
    }
    for verdict in verdicts {
        verdict.map_err(|_| Complaint("a thread panicked".into()))??;
    }
    if let Some(manifest) = shared.manifest.lock().take() {
        world.adopt_manifest(manifest);
    }
    let mut commits = std::mem::take(&mut *shared.commits.lock());
    commits.sort_by_key(|(ts, _)| *ts);
    for (ts, batch) in commits {
        world.adopt(ts, batch);
    }
    Ok(())
}

fn pair(i: usize, value: Option<&[u8]>) -> [Write; 2] {
    [(key(i), value.map(<[u8]>::to_vec)), (key(i + APART), value.map(<[u8]>::to_vec))]
}

/// Commits of own pairs, and now and then of the hot one.
fn writer(shared: &Shared, number: u64) -> Verdict {
    let mut random = Rng::new(number + 1);
    for round in 0..400u64 {
        if shared.stopped() {
            break;
        }
        let value = format!("{number}.{round}").repeat(1 + random.index(12)).into_bytes();
        if random.below(8) == 0 {
            let _held = shared.hot.lock();
            shared.commit(batch_of(&pair(99_999, Some(&value))))?;
            continue;
        }
        let mut writes = Vec::new();
        for _ in 0..1 + random.index(4) {
            let i = number as usize * 1_000 + random.index(PAIRS);
            writes.extend(pair(i, (random.below(4) != 0).then_some(&value)));
        }
        shared.commit(batch_of(&writes))?;
    }
    Ok(())
}

/// Ever new keys at the right edge.
fn appender(shared: &Shared, number: u64) -> Verdict {
    for round in 0..400 {
        if shared.stopped() {
            break;
        }
        let i = 10_000 + round * 4 + number as usize;
        shared.commit(batch_of(&pair(i, Some(format!("appended {i}, of some length").as_bytes()))))?;
    }
    Ok(())
}

/// Looks for half commits at snapshots, in points and ranges, both ways.
fn reader(shared: &Shared, number: u64) -> Verdict {
    let mut random = Rng::new(number + 100);
    while !shared.stopped() {
        shared.with_snapshot(|at| {
            let low = scan(shared, at, 0, &mut random)?;
            let high = scan(shared, at, APART, &mut random)?;
            ensure!(low == high, "half a commit at {at}: {} and {} rows", low.len(), high.len());
            for _ in 0..10 {
                let i = random.index(3) * 1_000 + random.index(PAIRS);
                let keys = [key(i), key(i + APART)];
                let mut found = Vec::new();
                shared.index.get_many(ReadAt::Snapshot(at), &[&keys[0], &keys[1]], &mut |_, ts, value| {
                    found.push((ts, value.to_vec()));
                })?;
                ensure!(found.len() != 1 && found.first() == found.last(), "half a commit of {i} at {at}: {found:?}");
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Rows of one half: their number within it, timestamp and value.
fn scan(shared: &Shared, at: CommitTs, offset: usize, random: &mut Rng) -> Verdict<Vec<(usize, CommitTs, Vec<u8>)>> {
    let (low, high) = (key(offset), key(offset + APART));
    let range = (Bound::Included(low.as_slice()), Bound::Excluded(high.as_slice()));
    let direction = if random.below(2) == 0 { Direction::Forward } else { Direction::Backward };
    let mut cursor = shared.index.cursor(ReadAt::Snapshot(at), range, direction);
    let mut rows = Vec::new();
    for entry in read_all(&mut *cursor, direction, 1 + random.index(64))? {
        let number = String::from_utf8_lossy(&entry.key[b"table/row/".len()..]).parse::<usize>();
        let number = number.map_err(|e| Complaint(format!("a key that nobody wrote: {e}")))?;
        rows.push((number - offset, entry.ts, entry.value));
    }
    if direction == Direction::Backward {
        rows.reverse();
    }
    Ok(rows)
}

/// Evicts and writes back, by taking the budget away for a moment.
fn evictor(shared: &Shared, _: u64) -> Verdict {
    while !shared.stopped() {
        let pressure = shared.cache.budget().charge(store::Class::Frames, shared.cache.budget().limit());
        let upkeep = shared.upkeep();
        let env = WriteEnv { view: upkeep.view, applied: upkeep.applied, durable: upkeep.log.durable() };
        shared.cache.step(&env, &*shared.gate, &shared.space)?;
        drop(pressure);
        vfs::thread::sleep(std::time::Duration::from_micros(200));
    }
    Ok(())
}

/// Drains, purges, merges.
fn maintainer(shared: &Shared, _: u64) -> Verdict {
    while !shared.stopped() {
        let Progress { more, .. } = shared.index.maintain(&shared.upkeep())?;
        if !more {
            vfs::thread::sleep(std::time::Duration::from_micros(200));
        }
    }
    Ok(())
}

/// Goes on with what the maintainer has begun.
fn assistant(shared: &Shared, _: u64) -> Verdict {
    while !shared.stopped() {
        if shared.index.assist(&shared.upkeep(), true)? != Assisted::Step {
            vfs::thread::sleep(std::time::Duration::from_micros(200));
        }
    }
    Ok(())
}

/// One checkpoint after the other, each with its manifest; a crash afterwards judges the last one.
fn checkpointer(shared: &Shared, _: u64) -> Verdict {
    let mut last = Lsn::ZERO;
    while !shared.stopped() {
        let upkeep = shared.upkeep();
        let state = shared.index.checkpoint(&upkeep)?;
        ensure!(state.skip <= upkeep.applied, "skips {} of {} applied", state.skip, upkeep.applied);
        ensure!(state.skip >= last, "the skip position went back from {last} to {}", state.skip);
        last = state.skip;
        shared.space.sync()?;
        *shared.manifest.lock() = Some(Manifest { index: Some(state), space: shared.space.save() });
        shared.space.checkpoint_durable();
        vfs::thread::sleep(std::time::Duration::from_micros(500));
    }
    Ok(())
}

/// Writers of neighbouring keys, and of one hot pair.
pub fn writers_do_not_lose_each_other(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    run(&mut world, &[writer, writer, writer, appender], &[])?;
    world.check()?;
    world.crash_durably()?;
    world.check()
}

/// Readers at snapshots see whole commits, whatever is written, split, collected and unlinked meanwhile.
pub fn readers_see_whole_commits(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    run(&mut world, &[writer, writer, appender], &[reader, reader, maintainer])?;
    world.check()
}

/// Rule A2: eviction and loading under writers make no second copy of a leaf.
pub fn a2_eviction_under_writers_loses_nothing(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..300, 0))?;
    run(&mut world, &[writer, writer, appender], &[evictor, maintainer])?;
    world.check()?;
    world.evict()?;
    world.check()?;
    world.crash_durably()?;
    world.check()
}

/// Rule A9: checkpoints while leaves split and merge; afterwards a crash.
pub fn a9_checkpoints_while_leaves_split(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.checkpoint()?;
    run(&mut world, &[writer, appender, appender], &[checkpointer, evictor])?;
    world.crash_durably()?;
    world.check()?;
    world.checkpoint()?;
    world.crash_durably()?;
    world.check()
}

/// Everything at once.
pub fn everything_at_once(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    run(&mut world, &[writer, writer, writer, appender], &[reader, evictor, maintainer, assistant, checkpointer])?;
    world.check()?;
    world.settle()?;
    world.check()?;
    world.checkpoint()?;
    world.crash_durably()?;
    world.check()
}
