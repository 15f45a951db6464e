//! Opening and closing: the parts are put together here, and taken apart.
//!
//! The order of opening is in [`crate::recovery`]; what each combination of files means, in docs/RECOVERY.md.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use base::link_buffer::LinkBuffer;
use base::{CommitTs, Fault, IndexId, Lsn, Poison};
use store::{Budget, Cache, CacheOptions, Class, Run, RunMeta, Space, SpaceOptions};
use txn::{Locks, Snapshots, Visible, Writers};
use vfs::ReadOnlyVfs;
use vfs::sync::{Mutex, RwLock};
use vfs::time::Instant;
use wal::{DatabaseId, Incarnation, ManifestMark, RecordRef, Wal, WalEnd, WalOptions, WalStart};

use crate::background::{self, Lanes, Threads};
use crate::catalog::{IndexDef, Role};
use crate::comparing::Policies;
use crate::engine::{CLEANING_EXTENTS, Engine, Published};
use crate::entry::{IndexEntry, Names};
use crate::error::{Error, Result};
use crate::gate::Steps;
use crate::helpers::Helpers;
use crate::layout::{FORMAT_BASEMENTS, Layout};
use crate::manifest::Manifest;
use crate::options::{IndexOptions, Options};
use crate::prepared::recovered::Undecided;
use crate::read_only;
use crate::record;
use crate::recovery::{Replayer, Target};
use crate::refused::Refused;
use crate::room_to_delete::WaitingDeletes;

mod register;

use register::{read_catalog, register, take_back_switches};

const BUDGET_BYTES_MIN: u64 = 256 << 10;

impl Engine {
    /// Opens or creates the database in `dir`, and starts its threads.
    pub fn open(dir: &Path, mut options: Options, policies: Policies) -> Result<(Arc<Self>, Arc<Threads>)> {
        check(&options)?;
        if options.read_only {
            options.create = false;
            options.vfs = Arc::new(ReadOnlyVfs::new(options.vfs));
        }
        let layout = Layout::open(options.vfs.clone(), dir, options.create)?;
        if layout.created {
            check_bound(&options)?;
            create(&layout, &options)?;
        }
        let manifest = Manifest::newest(&layout.vfs, &layout.dir)?.ok_or_else(|| Error::NotADatabase {
            path: dir.display().to_string(),
            why: "its manifest is missing; restore the directory from a backup".into(),
        })?;
        if manifest.database_id != layout.database_id {
            let (expected, found) = (layout.database_id, manifest.database_id);
            return Err(Fault::corrupt(dir.display(), 0, "database id of the manifest", expected, found).into());
        }
        let opening = Opening::new(layout, options, policies, manifest)?;
        opening.run()
    }

    /// Checkpoints, stops the threads, gives back what the log kept to use again, and lets go of the files. Later calls give `Closed`.
    pub fn close(&self, threads: &Threads) -> Result<()> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        // A poisoned database says so here as well: what `Buffered` commits left may be lost.
        let result = match self.options.read_only {
            true => Ok(()),
            false => self.poison.check().and_then(|()| {
                self.keep_time_at_close();
                self.run_checkpoint()
            }),
        };
        self.stop(threads);
        if result.is_ok() && !self.options.read_only {
            // Best effort: what is not removed now is used again, or removed, behind the next opening.
            let _ = self.wal.give_back();
        }
        result.map_err(Error::from)
    }

    /// Stops the threads without a checkpoint; what `Buffered` commits left is synced.
    pub fn stop(&self, threads: &Threads) {
        self.closed.store(true, Ordering::SeqCst);
        self.signal.wake(background::Wake::Stop);
        self.helpers.stop();
        self.cache.wake_worker();
        self.wal.end_wait();
        threads.join();
        if self.poison.cause().is_none() {
            // Best effort: `Buffered` promises a second, not the end of the process.
            let _ = self.wal.sync_all();
        }
        self.space.close();
    }
}

fn check(options: &Options) -> Result<()> {
    let invalid = |why: String| Err(Error::InvalidArgument(why));
    if options.budget_bytes < BUDGET_BYTES_MIN {
        return invalid(format!("budget_bytes is {}; the least is {BUDGET_BYTES_MIN}", options.budget_bytes));
    }
    if !options.extent_bytes.is_power_of_two() || !(64 << 10..=4 << 20).contains(&options.extent_bytes) {
        let range = "a power of two from 64 KiB to 4 MiB";
        return invalid(format!("extent_bytes is {}; it must be {range}", options.extent_bytes));
    }
    let (threads, range) = (options.background_threads, Lanes::RANGE);
    if threads != 0 && !range.contains(&threads) {
        return invalid(format!(
            "background_threads is {threads}; it must be 0, or from {} to {}",
            range.start(),
            range.end()
        ));
    }
    if options.log_segment_bytes < 256 << 10 {
        return invalid(format!("log_segment_bytes is {}; the least is 256 KiB", options.log_segment_bytes));
    }
    if options.log_capacity_bytes < 1 << 20 {
        return invalid(format!("log_capacity_bytes is {}; the least is 1 MiB", options.log_capacity_bytes));
    }
    Ok(())
}

/// A new database whose data file may not grow to what a statement is let in with would never have a row. One that is there has rows to read,
/// to drop, and room in its file.
fn check_bound(options: &Options) -> Result<()> {
    let extent_bytes = options.extent_bytes;
    // What cleaning is left, the catalog, and what the statement owes: nodes are as large as the smallest extents.
    let least = space_options(options).max_bytes_min() + (CLEANING_EXTENTS + 6) * extent_bytes;
    match options.data_bytes_max.filter(|&max| max < least) {
        Some(max) => Err(Error::InvalidArgument(format!(
            "data_bytes_max is {max}, with which nothing could be written; with disk_reserve_bytes of {} and extent_bytes of \
             {extent_bytes} the least is {least}",
            options.disk_reserve_bytes
        ))),
        None => Ok(()),
    }
}

/// First manifest, header, second manifest: a crash leaves nothing, or something that a next creation
/// recognises as unfinished (generation 1, no header), or a database.
fn create(layout: &Layout, options: &Options) -> Result<()> {
    layout.clear_unfinished()?;
    for dir in [layout.wal(), layout.runs()] {
        layout.vfs.create_dir_all(&dir).map_err(|e| Fault::io("create", dir.display(), &e))?;
    }
    layout.vfs.sync_dir(&layout.dir).map_err(|e| Fault::io("sync directory", layout.dir.display(), &e))?;
    let space = Space::open(layout.vfs.clone(), &layout.dir, space_options(options), None, Poison::new())?;
    let mut manifest = Manifest {
        generation: 1,
        database_id: layout.database_id,
        log_durable: Lsn(0),
        log_floor: Lsn(0),
        next_index: 1,
        next_run: 1,
        space: space.save(),
        ..Manifest::default()
    };
    space.sync()?;
    manifest.publish(&layout.vfs, &layout.dir)?;
    layout.seal()?;
    manifest.generation = 2;
    manifest.publish(&layout.vfs, &layout.dir)?;
    space.close();
    Ok(())
}

fn space_options(options: &Options) -> SpaceOptions {
    SpaceOptions {
        extent_bytes: options.extent_bytes,
        direct: options.direct_io,
        reserve_bytes: options.disk_reserve_bytes,
        max_bytes: options.data_bytes_max,
        budget: None,
    }
}

/// The parts while the log has not been replayed.
struct Opening {
    layout: Layout,
    options: Options,
    policies: Policies,
    manifest: Manifest,
    poison: Poison,
    budget: Budget,
    space: Space,
    cache: Arc<Cache>,
}

impl Opening {
    fn new(layout: Layout, options: Options, policies: Policies, manifest: Manifest) -> Result<Self> {
        let poison = Poison::telling(options.on_poison.clone());
        let saved = Some(manifest.space.as_slice());
        let budget = Budget::new(options.budget_bytes);
        let space_options = SpaceOptions { budget: Some(budget.clone()), ..space_options(&options) };
        let space = Space::open(layout.vfs.clone(), &layout.dir, space_options, saved, poison.clone())?;
        let mut cache = CacheOptions::default();
        // Each thread that writes keeps what it needs for a batch, three times over: together a seventh of the budget.
        let share = options.budget_bytes * 3 / 64 / Lanes::new(&options).writers();
        cache.batch_bytes = cache.batch_bytes.min(share).max(cache.page_bytes);
        cache.batch_pages = (cache.batch_bytes / cache.page_bytes) as usize;
        if options.read_only {
            // Nobody writes pages back: what is not evicted by then stays.
            cache.grant_timeout = Duration::from_secs(2);
        }
        let cache = Arc::new(Cache::new(budget.clone(), cache));
        Ok(Self { layout, options, policies, manifest, poison, budget, space, cache })
    }

    fn run(self) -> Result<(Arc<Engine>, Arc<Threads>)> {
        let catalog = self.open_catalog()?;
        let (log_end, next_index) = self.replay_catalog(&catalog)?;
        let rows = read_catalog(&catalog)?;
        let mut manifest = self.manifest.clone();
        take_back_switches(&mut manifest, &rows)?;
        let engine = self.assemble(&log_end, next_index)?;
        engine.checkpoint.lock().skips = manifest.skips();
        engine.locks.search_deadlocks(engine.options.deadlock_detect);
        engine.io_budget.set(engine.options.io_budget_bytes);
        engine.controller.limit_gc(engine.options.gc_debt_limit_bytes);
        engine.controller.delay_at_wall(engine.policies.delayed_write_rate);
        register(&engine, catalog, rows, &manifest)?;
        let threads = Arc::new(Threads::default());
        let started = recover(&engine, &threads, &manifest, &log_end);
        if let Err(error) = started {
            engine.stop(&threads);
            return Err(error);
        }
        Ok((engine, threads))
    }

    fn open_catalog(&self) -> Result<Target> {
        let saved = self.manifest.indexes.iter().find(|e| e.id == IndexId::CATALOG);
        let env = index::IndexEnv {
            id: IndexId::CATALOG,
            options: IndexOptions::default().resolve()?,
            space: self.space.clone(),
            cache: self.cache.clone(),
            runs: index::RunFiles { vfs: self.layout.vfs.clone(), dir: self.layout.runs() },
            basements: self.layout.format >= FORMAT_BASEMENTS,
            read_only: self.options.read_only,
            expiry: None,
        };
        let index = tree::Tree::open(env, saved.map(|e| e.state.as_slice()))?;
        let def = IndexDef {
            id: IndexId::CATALOG,
            name: "catalog".into(),
            role: Role::Plain,
            options: IndexOptions::default(),
            quarantined: false,
        };
        let entry = IndexEntry::new(def, index, CommitTs::ZERO);
        let skip = saved.map_or(self.manifest.log_floor, |e| e.skip);
        Ok(Target { entry, skip, refused: None, read_only: self.options.read_only })
    }

    /// Reads the whole log once: finds its end, replays the catalog's part, and the highest index number.
    fn replay_catalog(&self, catalog: &Target) -> Result<(WalEnd, u32)> {
        let targets = BTreeMap::from([(IndexId::CATALOG, catalog.clone())]);
        let open_run = |_: &RunMeta, _: bool| Err(Fault::Unsupported("the catalog has no run files".into()));
        let settle = || Ok(());
        let mut replayer = Replayer::new(&targets, u32::MAX, &open_run, &settle, &self.budget);
        let end = self.read_log(&mut |r: RecordRef<'_>| match r.kind.0 {
            record::KIND_COMMIT => replayer.commit(r.end, r.payload),
            _ => Ok(()),
        })?;
        replayer.apply_gathered()?;
        Ok((end, self.manifest.next_index.max(replayer.next_catalog_id)))
    }

    fn read_log(&self, visit: &mut dyn FnMut(RecordRef<'_>) -> base::Result<()>) -> Result<WalEnd> {
        Ok(read_log(&self.layout, &self.manifest, visit)?)
    }

    fn assemble(self, log_end: &WalEnd, next_index: u32) -> Result<Arc<Engine>> {
        let wal_options = WalOptions {
            segment_bytes: segment_bytes(&self.options),
            capacity_bytes: self.options.log_capacity_bytes,
            ring_bytes: ring_bytes(&self.options),
        };
        let ring_bytes = wal_options.ring_bytes;
        let (vfs, dir, poison) = (self.layout.vfs.clone(), self.layout.wal(), self.poison.clone());
        let (start, wal) = if self.options.read_only {
            let start = WalStart::end_of(log_id(&self.layout), log_end);
            (start, Wal::read_only(vfs, &dir, wal_options, start, poison)?)
        } else {
            let start = WalStart::after(log_id(&self.layout), log_end);
            (start, Wal::open(vfs, &dir, wal_options, start, poison)?)
        };
        let visible = Arc::new(Visible::new(start.first_lsn, 4 * ring_bytes));
        let held = ring_bytes + LinkBuffer::bytes_of(ring_bytes) + LinkBuffer::bytes_of(visible.window_bytes());
        Ok(Arc::new(Engine {
            _log_charge: self.budget.charge(Class::Log, held),
            _work_charge: self.budget.charge(Class::Work, work_bytes(&self.options)),
            snapshots: Snapshots::new(visible.clone()),
            visible,
            locks: Locks::new(),
            writers: Writers::new(),
            ring_bytes,
            log_step: AtomicU64::new(0).into(),
            names: RwLock::new(Names::default()),
            has_foreign_keys: AtomicBool::new(false),
            steps: Steps::default(),
            builds: Mutex::default(),
            catalog_rows: Mutex::new(()),
            next_index: AtomicU32::new(next_index),
            next_run: Arc::new(AtomicU64::new(self.manifest.next_run)),
            next_txn: AtomicU64::new(1),
            checkpoint: Mutex::new(Published::of(&self.manifest)),
            held_log: Default::default(),
            incarnation: u64::from(log_end.next_incarnation.0),
            log_at_checkpoint: AtomicU64::new(start.first_lsn.0),
            space_waits: AtomicBool::new(false),
            deletes: WaitingDeletes::default(),
            written_at_checkpoint: AtomicU64::new(0),
            upkept: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            recovering: AtomicBool::new(true),
            view_refreshed_ns: AtomicU64::new(0).into(),
            opened: Instant::now(),
            signal: background::Signal::default(),
            helpers: Helpers::new(&self.options),
            promised: Default::default(),
            controller: Default::default(),
            flushes: Default::default(),
            io_budget: Default::default(),
            clock: Default::default(),
            spread: Default::default(),
            counters: Default::default(),
            prepared: Default::default(),
            ordered: Default::default(),
            runs: Default::default(),
            layout: self.layout,
            options: self.options,
            policies: self.policies,
            poison: self.poison,
            budget: self.budget,
            space: self.space,
            cache: self.cache,
            wal,
        }))
    }
}

fn read_log(
    layout: &Layout,
    manifest: &Manifest,
    visit: &mut dyn FnMut(RecordRef<'_>) -> base::Result<()>,
) -> base::Result<WalEnd> {
    let incarnation = u32::try_from(manifest.incarnation).unwrap_or(u32::MAX);
    let mark = ManifestMark { durable: manifest.log_durable, incarnation: Incarnation(incarnation) };
    wal::recover(&*layout.vfs, &layout.wal(), log_id(layout), manifest.log_floor, mark, visit)
}

/// The database's number as the log carries it.
fn log_id(layout: &Layout) -> DatabaseId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&layout.database_id.to_le_bytes());
    id[8..].copy_from_slice(b"trefoil\0");
    DatabaseId(id)
}

/// Length of a log segment: whole sectors, at most a quarter of the log.
fn segment_bytes(options: &Options) -> u64 {
    let sector = base::limits::SECTOR_BYTES as u64;
    options.log_segment_bytes.min(options.log_capacity_bytes / 4) / sector * sector
}

/// A ring of 4 MiB, less when the budget or the segments are small: a segment holds at least two rings. With its
/// trackers it takes three and a half times as much, and a commit of more than an eighth of it becomes a run file.
fn ring_bytes(options: &Options) -> u64 {
    let share = (options.budget_bytes / 64).max((options.budget_bytes / 32).min(1 << 20));
    let most = share.min(segment_bytes(options) / 2).min(4 << 20);
    1 << most.max(4096).ilog2()
}

/// What the background has in hand: write-back, the checkpoint and cleaning each a batch of images of 1 MiB and the
/// blocks made of it; stacks; and what the allocator keeps back: 546 MiB were resident under 512 MiB with half of this.
fn work_bytes(options: &Options) -> u64 {
    (options.budget_bytes / 16).min(16 << 20)
}

/// While the log is replayed nothing of a counter is summed up [A21]: those who add to one are applied in any order, so an image may
/// have a later commit and lack an earlier one.
fn expect_late(engine: &Engine, ts: Option<CommitTs>) {
    let counters = engine.all_indexes().into_iter().filter(|entry| entry.of_counters());
    counters.for_each(|entry| entry.index.expect_late(ts));
}

/// Replays the log into the registered indexes, then starts the new life.
fn recover(engine: &Arc<Engine>, threads: &Threads, manifest: &Manifest, log_end: &WalEnd) -> Result<()> {
    if engine.options.read_only {
        threads.start("trefoil-evict", engine, background::evict)?;
        return read_only::recover(engine, manifest, log_end);
    }
    let lanes = Lanes::new(&engine.options);
    for _ in 0..lanes.urgent {
        threads.start("trefoil-writeback", engine, background::writeback)?;
    }
    let settle = || {
        while engine.upkeep_step()? {}
        Ok(())
    };
    expect_late(engine, Some(CommitTs(1)));
    let (mut keep, prepared) = replay(engine, manifest, log_end, &settle)?;
    expect_late(engine, None);
    keep.extend(prepared.files());
    for id in manifest.indexes.iter().flat_map(|e| &e.runs) {
        keep.entry(*id).or_insert(CommitTs::ZERO);
    }
    let highest = keep.keys().next_back().map_or(0, |id| id + 1);
    engine.next_run.fetch_max(highest, Ordering::SeqCst);
    engine.runs.after_recovery(&engine.layout, &keep)?;
    prepared.restore(engine)?;
    engine.recovering.store(false, Ordering::Release);
    engine.all_indexes().iter().filter_map(|entry| entry.index.as_ranged()).for_each(index::Ranged::start);
    // Before a checkpoint: what was not replayed into a damaged index is never asked for again.
    engine
        .all_indexes()
        .iter()
        .filter(|e| e.def.quarantined && e.is_noted())
        .try_for_each(|entry| engine.record_quarantine(entry).map(|_| ()))?;
    engine.quarantine_noted()?;
    engine.run_checkpoint()?;
    // Nobody reads before what has expired meanwhile is known to have.
    engine.keep_time_if_can()?;
    if engine.options.background {
        start_background(engine, threads, &lanes)?;
    }
    Ok(())
}

fn start_background(engine: &Arc<Engine>, threads: &Threads, lanes: &Lanes) -> Result<()> {
    let merges = lanes.merge;
    for n in 0..merges {
        threads.start("trefoil-upkeep", engine, move |engine| background::upkeep(engine, n, merges))?;
    }
    threads.start("trefoil-checkpoint", engine, background::checkpoint)?;
    threads.start("trefoil-log", engine, background::log)?;
    for n in 0..engine.helpers.count() {
        threads.start("trefoil-apply", engine, move |engine| engine.helpers.help(n))?;
    }
    Ok(())
}

/// Replays the log into all indexes but the catalog. Returns the run files that it names, with their commits, and what is
/// prepared.
pub fn replay(
    engine: &Engine,
    manifest: &Manifest,
    log_end: &WalEnd,
    settle: &dyn Fn() -> base::Result<()>,
) -> base::Result<(BTreeMap<u64, CommitTs>, Undecided)> {
    let skip_of = |id: IndexId| manifest.indexes.iter().find(|e| e.id == id).map_or(manifest.log_floor, |e| e.skip);
    let read_only = engine.options.read_only;
    let targets: BTreeMap<IndexId, Target> = engine
        .all_indexes()
        .into_iter()
        .filter(|entry| entry.id() != IndexId::CATALOG && !entry.def.quarantined)
        .map(|entry| {
            let is_secondary = matches!(entry.def.role, Role::Secondary(_));
            let refused = (!is_secondary).then(|| Arc::new(Refused::new(engine.cache.clone())));
            (entry.id(), Target { skip: skip_of(entry.id()), entry, refused, read_only })
        })
        .collect();
    let open_run = |meta: &RunMeta, or_lost: bool| match or_lost && engine.options.read_only {
        true => Run::open_or_lost(&*engine.layout.vfs, &engine.layout.runs(), meta),
        false => engine.open_run(meta),
    };
    let next_index = engine.next_index.load(Ordering::SeqCst);
    let mut replayer = Replayer::new(&targets, next_index, &open_run, settle, &engine.budget);
    let mut prepared = Undecided::new(manifest, &engine.budget);
    read_log(&engine.layout, manifest, &mut |r: RecordRef<'_>| match r.kind.0 {
        _ if r.end > log_end.end => Ok(()),
        record::KIND_COMMIT => replayer.commit(r.end, r.payload),
        record::KIND_COMMIT_RANGED => replayer.commit_ranged(r.end, r.payload),
        _ => prepared.take(r, &mut replayer),
    })?;
    replayer.finish()?;
    engine.counters.replayed_operations.store(replayer.operations, Ordering::Relaxed);
    Ok((std::mem::take(&mut replayer.runs), prepared))
}
