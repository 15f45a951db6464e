//! The index behind the seam: what all modules share, and [`Lsm`], which hands each call to its module.
//!
//! # The list
//!
//! `Sources` is everything that holds versions: the memtable that takes them, sealed ones, attached runs, runs. It is replaced as a
//! whole, under the latch `sources`. Whoever reads takes one list and keeps it; whoever applies holds the latch shared until his versions
//! are in the memtable, so that nobody writes to a memtable once it is sealed.
//!
//! # Latches, in this order
//!
//! `plan` (what is under way; not held while a merge goes on) → `checkpointing` → `flushing` (one flush at a time; waits for no memory) → `sources` → a memtable's
//! map → a leaf → its arena. No I/O under `sources` or below it.

use std::any::Any;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{CommitTs, Corruption, Fault, GcView, Result};
use index::{
    Assisted, Batch, Cursor, Direction, Expiry, Index, IndexEnv, IndexShape, IndexState, IndexStats, KeyRange, LogGate,
    Memtables, Progress, ReadAt, Reservation, Reserved, Upkeep, VerifyReport, VisitBlock,
};
use store::{Charge, Class, Funds};
use vfs::sync::{Condvar, Mutex, RwLock};

use crate::cursor::LsmCursor;
use crate::dead::DeadSpans;
use crate::explore::worth_min;
use crate::jobs::Plan;
use crate::maintenance::Flush;
use crate::memtable::{Memtable, Prune, cost};
use crate::parked::Parked;
use crate::run::Run;
use crate::state::State;
use crate::stats::Counters;
use crate::strand::{Strand, strands};

/// What the modules take from it: number, options, space, cache.
pub(crate) type Env = IndexEnv;

/// The least and the most that a memtable takes before it is sealed: less is not worth a run.
const MEMTABLE_BYTES: std::ops::RangeInclusive<u64> = 32 << 10..=64 << 20;
/// One in so many bytes of what may be buffered, between these.
const MEMTABLE_SHARE: u64 = 2;

/// A run as it was attached, with its commit's timestamp.
#[derive(Debug)]
pub(crate) struct Attached {
    pub run: store::Run,
    pub ts: CommitTs,
}

/// Everything that holds versions, as of one moment.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    /// Takes what is applied.
    pub active: Arc<Memtable>,
    /// Oldest first.
    pub sealed: Vec<Arc<Memtable>>,
    /// Oldest first.
    pub attached: Vec<Arc<Attached>>,
    /// The one with the highest timestamp first.
    pub runs: Vec<Arc<Run>>,
    /// The same, as readers look at them, in the same order.
    pub strands: Vec<Strand>,
    /// What cursors have begun on it.
    pub parked: Parked,
}

impl Sources {
    /// Memtables that have something.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(self.sealed.iter().rev()).filter(|table| !table.is_empty())
    }

    /// What memtables take. One that is not on disk yet gives memory back soon: the next, half full, would only be another run.
    fn bytes(&self) -> Memtables {
        let sealed = self.sealed.iter().map(|table| table.memory_bytes()).sum();
        let is_worth_it = sealed == 0 && self.active.used_bytes() > *MEMTABLE_BYTES.start();
        Memtables { active: if is_worth_it { self.active.memory_bytes() } else { 0 }, sealed }
    }

    /// The highest timestamp of what is not in the memtable that takes versions.
    fn newest_beside(&self) -> CommitTs {
        let sealed = self.sealed.iter().map(|table| table.newest());
        let attached = self.attached.last().map(|run| run.ts);
        sealed.chain(attached).chain(self.runs.first().map(|run| run.info.newest)).max().unwrap_or(CommitTs::ZERO)
    }

    /// After each change of `runs`.
    pub fn arrange(&mut self) {
        self.runs.sort_by_key(|run| std::cmp::Reverse(run.info.newest));
        self.strands = strands(&self.runs);
    }
}

/// What all modules of one index share.
pub(crate) struct Core {
    pub env: Env,
    pub sources: RwLock<Arc<Sources>>,
    /// Nothing above the timestamp below this is collected; MAX if nothing comes late. Release and Acquire.
    pub late: AtomicU64,
    pub plan: Mutex<Plan>,
    /// Told when a merge is in nobody's hand any more.
    pub stepped: Condvar,
    pub flushing: Mutex<Option<Flush>>,
    pub checkpointing: Mutex<()>,
    /// The highest timestamp that a flush or merge of this life has looked at: what is missing may be missing for it, also if nothing is left
    /// that could say so [A6]. Raised (Release) before the list that lacks something is there, read (Acquire) after a list was taken.
    pub log_need: AtomicU64,
    /// The runs that the last checkpoint names.
    pub published: Mutex<Vec<Arc<Run>>>,
    /// Checkpoints so far.
    pub checkpoints: AtomicU64,
    pub dead: DeadSpans,
    /// Merges that may have dropped what lay in dead spans, so far: of the deepest level. Release and Acquire: who reads it sees their lists.
    pub purges: AtomicU64,
    pub counters: Counters,
}

impl Core {
    /// The list of this moment.
    pub fn sources(&self) -> Arc<Sources> {
        self.sources.read().clone()
    }

    /// Replaces the list by an edited copy. Waits until nobody applies.
    pub fn update<T>(&self, edit: impl FnOnce(&mut Sources) -> T) -> T {
        let mut list = self.sources.write();
        let mut next = Sources::clone(&list);
        let result = edit(&mut next);
        let old = std::mem::replace(&mut *list, Arc::new(next));
        drop(list);
        // With what cursors have begun on it, and whatever nothing else has.
        drop(old);
        result
    }

    pub fn memtable(&self) -> Arc<Memtable> {
        Arc::new(Memtable::new(&self.env.cache))
    }

    /// A memtable is sealed beyond this, in bytes.
    pub fn memtable_bytes_max(&self) -> u64 {
        (self.env.cache.buffered_aim() / MEMTABLE_SHARE).clamp(*MEMTABLE_BYTES.start(), *MEMTABLE_BYTES.end())
    }

    /// More memory would make it larger.
    pub fn may_memtable_grow(&self) -> bool {
        self.memtable_bytes_max() < *MEMTABLE_BYTES.end()
    }

    /// A reader sees nothing at or below this.
    pub fn cut(&self, at: ReadAt) -> CommitTs {
        self.env.expiry.as_ref().map_or(CommitTs::ZERO, |expiry| expiry.cut(at))
    }

    /// Nobody of whom a view knows sees anything at or below this, nor will anybody.
    pub fn cut_of_all(&self, view: &GcView) -> CommitTs {
        self.env.expiry.as_ref().map_or(CommitTs::ZERO, |expiry| expiry.cut_of_all(view))
    }

    /// True if any source has something above.
    fn has_above(&self, cut: CommitTs) -> bool {
        let sources = self.sources();
        sources.memtables().any(|table| table.newest() > cut) || sources.newest_beside() > cut
    }

    /// What may come late, and the list, read in this order: what came late and is over is in the list.
    pub fn late_and_sources(&self) -> (CommitTs, Arc<Sources>) {
        let late = CommitTs(self.late.load(Ordering::Acquire));
        vfs::thread::point("lsm.late_read");
        (late, self.sources())
    }

    fn reserve(&self, batch: &Batch, funds: &mut Funds) -> Option<Reservation> {
        let bytes = cost_of(batch);
        // Attached, it is in memory, or on disk, once; a memtable would end half empty for it.
        if bytes > self.memtable_bytes_max() / 2 && !(batch.len() == 1 && funds.are_in_place()) {
            return Some(Reservation::TooCold);
        }
        let wanted = self.sources.read().active.wants_frame();
        if let Some(frame) = wanted.and_then(|bytes| funds.take(&self.env.cache, Class::Buffers, bytes)) {
            self.sources.read().active.bring(frame);
        }
        // Nothing either where a frame was not to be had.
        let charge = funds.take(&self.env.cache, Class::Buffers, bytes)?;
        Some(Reservation::Direct(Box::new(Room(charge))))
    }

    fn apply(&self, batch: &Batch, Room(mut room): Room, ts: CommitTs, view: &GcView) {
        let capped;
        let view = match CommitTs(self.late.load(Ordering::Acquire)) {
            CommitTs::MAX => view,
            late => {
                capped = below_late(view, late);
                &capped
            }
        };
        let list = self.sources.read();
        let active = list.active.clone();
        vfs::thread::point("lsm.applying");
        if !batch.is_empty() {
            active.announce(ts);
        }
        let single_deletes = self.env.options.single_deletes;
        let prune = Prune { view, single_deletes, above: list.newest_beside() };
        for (i, (key, op)) in batch.iter().enumerate() {
            active.insert(key, ts, (op, single_deletes && batch.is_fresh(i)), &prune, &mut room);
        }
        vfs::thread::point("lsm.applied");
        // Before the list is let go: what is in a run was cut out of dead spans before.
        self.note_applied(batch, ts);
        drop(list);
        active.settle(room);
    }

    fn attach(&self, run: store::Run, ts: CommitTs) {
        if run.is_empty() {
            return;
        }
        let attached = Arc::new(Attached { run, ts });
        self.update(|sources| {
            let at = sources.attached.partition_point(|other| other.ts <= ts);
            sources.attached.insert(at, attached.clone());
            // Who takes a list behind this waits for the one that has it; who took one before, has a watch that is told.
            self.note_attached(&attached);
        });
    }
}

/// The view, held back below what may come late [A4]; MAX if nothing does.
pub(crate) fn below_late(view: &GcView, late: CommitTs) -> GcView {
    if late == CommitTs::MAX { view.clone() } else { view.capped(CommitTs(late.0.saturating_sub(1))) }
}

/// Memory to be had for a batch, in bytes.
fn cost_of(batch: &Batch) -> u64 {
    batch.iter().map(|(key, op)| cost(key, op)).sum()
}

/// Memory for one batch.
struct Room(Charge);

impl Reserved for Room {
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    fn held_bytes(&self) -> u64 {
        self.0.bytes()
    }
}

/// A log-structured merge tree: one index.
pub struct Lsm {
    pub(crate) core: Arc<Core>,
}

impl std::fmt::Debug for Lsm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lsm").field("id", &self.core.env.id).finish_non_exhaustive()
    }
}

impl Lsm {
    /// Opens an index from its state in the manifest, or a new one without. Reads nothing but the files of attached runs: the indexes
    /// of runs are read when they are first needed.
    ///
    /// # Errors
    /// A damaged or newer state; faults of opening runs; [`Fault::Unsupported`] of an index of counters.
    pub fn open(env: IndexEnv, state: Option<&[u8]>) -> Result<Arc<Lsm>> {
        if env.options.counters {
            return Err(Fault::Unsupported("an index of counters with STRUCTURE=lsm".into()));
        }
        let state = state.map(State::decode).transpose()?.unwrap_or_default();
        let open = |named: &crate::state::NamedRun| {
            let open = if env.read_only { store::Run::open_or_lost } else { store::Run::open };
            let run = open(&*env.runs.vfs, &env.runs.dir, &named.meta).map_err(|fault| fault.of_index(env.id))?;
            Ok(Arc::new(Attached { run, ts: named.ts }))
        };
        let attached = state.attached.iter().map(open).collect::<Result<_>>()?;
        let active = Arc::new(Memtable::new(&env.cache));
        let published = state.runs.clone();
        let dead = DeadSpans::new(env.cache.budget().charge(Class::Inner, 0), state.dead, worth_min(&env.options));
        let parked = Parked::default();
        let mut sources =
            Sources { active, sealed: Vec::new(), attached, runs: state.runs, strands: Vec::new(), parked };
        sources.arrange();
        let core = Core {
            env,
            sources: RwLock::new(Arc::new(sources)),
            late: AtomicU64::new(u64::MAX),
            plan: Mutex::default(),
            stepped: Condvar::default(),
            flushing: Mutex::default(),
            checkpointing: Mutex::default(),
            log_need: AtomicU64::new(0),
            published: Mutex::new(published),
            checkpoints: AtomicU64::new(0),
            dead,
            purges: AtomicU64::new(0),
            counters: Counters::default(),
        };
        Ok(Arc::new(Lsm { core: Arc::new(core) }))
    }

    /// A corruption says which index it was met in, also if it lies in a run file.
    fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|fault| fault.of_index(self.core.env.id))
    }

    /// A drawing of the list, one line for each source: for tests and tools.
    #[must_use]
    pub fn draw(&self) -> String {
        self.core.draw()
    }
}

impl Index for Lsm {
    fn reserve_from(&self, batch: &Batch, funds: &mut Funds) -> Result<Option<Reservation>> {
        Ok(self.core.reserve(batch, funds))
    }

    fn apply(&self, batch: &Batch, reserved: Box<dyn Reserved>, ts: CommitTs, view: &GcView) {
        let room = reserved.into_any().downcast::<Room>().expect("a reservation of this index");
        self.core.counters.add_changes(batch.len() as u64, batch.bytes() as u64);
        self.core.apply(batch, *room, ts, view);
    }

    fn attach(&self, run: store::Run, ts: CommitTs) {
        self.core.counters.add_changes(run.len(), run.content_bytes());
        self.core.attach(run, ts);
    }

    fn expiry(&self) -> Option<&Arc<Expiry>> {
        self.core.env.expiry.as_ref()
    }

    fn has_unexpired(&self) -> bool {
        self.core.has_above(self.core.cut(ReadAt::Newest))
    }

    fn expect_late(&self, ts: Option<CommitTs>) {
        self.core.late.store(ts.map_or(u64::MAX, |ts| ts.0), Ordering::Release);
    }

    fn get_many(&self, at: ReadAt, keys: &[&[u8]], found: &mut dyn FnMut(usize, CommitTs, &[u8])) -> Result<()> {
        self.named(self.core.get_many(at, keys, found))
    }

    fn cursor(&self, at: ReadAt, range: (Bound<&[u8]>, Bound<&[u8]>), direction: Direction) -> Box<dyn Cursor> {
        Box::new(LsmCursor::new(self.core.clone(), at, KeyRange::new(range), direction))
    }

    fn clears_behind(&self, batch: &Batch) -> bool {
        self.core.is_desert(batch)
    }

    fn clear_away(&self, _upkeep: &Upkeep<'_>, ts: CommitTs, entries: u64) -> Result<u64> {
        self.named(self.core.clear_away(ts, entries))
    }

    fn maintain(&self, upkeep: &Upkeep<'_>) -> Result<Progress> {
        self.named(self.core.maintain(upkeep))
    }

    fn assist(&self, upkeep: &Upkeep<'_>, may_split: bool) -> Result<Assisted> {
        self.named(self.core.assist(upkeep, may_split))
    }

    fn relieve(&self, _log: &dyn LogGate) -> Result<u64> {
        self.named(self.core.relieve())
    }

    fn memtables(&self) -> Memtables {
        self.core.sources().bytes()
    }

    fn seal(&self) -> u64 {
        self.core.seal_if(|sources| sources.bytes().active > 0)
    }

    fn relievable_bytes(&self) -> u64 {
        self.core.relievable_bytes()
    }

    fn superseded_bytes(&self) -> u64 {
        self.core.superseded_bytes()
    }

    fn checkpoint(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        self.named(self.core.checkpoint(upkeep))
    }

    fn checkpoint_written(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        self.named(self.core.checkpoint_written(upkeep))
    }

    fn stats(&self) -> IndexStats {
        self.core.stats()
    }

    fn shape(&self) -> Result<IndexShape> {
        self.named(self.core.shape())
    }

    fn estimate(&self, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<u64> {
        self.named(self.core.estimate(&KeyRange::new(range)))
    }

    fn split_keys(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        self.named(self.core.split_keys(count))
    }

    fn verify(&self) -> Result<VerifyReport> {
        self.core.verify()
    }

    fn reach(&self, visit: &mut VisitBlock<'_>) -> Result<Vec<Corruption>> {
        self.core.reach(visit)
    }

    fn destroy(&self) -> Result<()> {
        self.named(self.core.destroy())
    }
}
