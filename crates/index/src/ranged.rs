//! Ranges deleted whole: an index around a structure, which holds them until each of their keys is marked deleted.
//!
//! It owns the list of ranges {low, high, timestamp} that commits have deleted ([`Ranged::delete_ranges`]). Steps of one:
//! 1. The commit puts it in the list, behind what it has put itself and before it is marked applied. From now on every read leaves out what the list hides
//!    (`List::hides` in `list`, the one rule), and cursors hop over the range. Listed first, a reader of the newest would miss, in between, a key that the commit
//!    deletes and puts anew: the old version is hidden, the new one not there; so a locking read would pass over a row that was there before and is there behind.
//! 2. Once the commit is applied and the log durable to it, the drain (`drain`) looks through the range as of its timestamp and writes a run
//!    file of deletes, a piece at a time. Each is attached at the timestamp of the range, as a commit of as many deletes would have been, and
//!    the range shrinks by what it says.
//!    The drain begins a file only while the structure has few runs, and gives way to its upkeep at every other step.
//! 3. The structure drains the runs in its own way. The range stays listed for those who hop until it has.
//!
//! A checkpoint names what is not drained before the structure's state (`state`); replay lists again what lies above F, and
//! draining twice changes nothing: what is deleted by then is not found alive.
//!
//! Invariants:
//! - Who deletes a range keeps all others from writing there until its commit is applied. So whatever of it is older than the range lies in the
//!   structure before the range is listed, and whatever comes later is newer.
//! - A range leaves the list behind the moment at which the structure has all its deletes. Readers take the list BEFORE the structure: they find
//!   the range in one of the two, or both.
//! - A checkpoint takes the list before it asks the structure, for the same reason.
//! - Until its deletes are attached they are expected late: nothing above the timestamp before the range is collected. So the drain, which reads as of
//!   the range, reads what every reader of then would; and a version of the commit itself is not mistaken for an older one.
//!
//! Why around the structures and not in each: what hides a version is its timestamp alone, and that all of them give out. A structure that
//! knew ranges could drop blocks that lie in one unread; here the drain reads every key of it once.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base::{CommitTs, Corruption, GcView, Result};
use store::run::{Run, RunMeta, RunWriter};
use store::{Charge, ExtentId, Funds, Weights};
use vfs::sync::{Mutex, RwLock};

use crate::{
    Assisted, Batch, Cursor, Direction, Expiry, Index, IndexShape, IndexState, IndexStats, KeyRange, LogGate,
    Memtables, Progress, ReadAt, Reservation, Reserved, Span, Upkeep, VerifyReport, VisitBlock,
};

mod cursor;
mod drain;
mod list;
mod state;

use cursor::RangedCursor;
use drain::Drain;
use list::{Deleted, List, Written};
pub use state::fuzz as fuzz_state;

/// Makes the run files that ranges are drained to.
pub trait RunMaker: Send + Sync {
    /// A new file, under a number of its own.
    fn create(&self) -> Result<(u64, RunWriter)>;
    /// A finished one.
    fn open(&self, meta: &RunMeta) -> Result<Run>;
    /// It is attached: it is kept until no state names it.
    fn attached(&self, id: u64);
    /// Nobody needs it.
    fn abandoned(&self, id: u64) -> Result<()>;
}

/// An index of which ranges can be deleted.
pub struct Ranged {
    shared: Arc<Shared>,
    runs: Arc<dyn RunMaker>,
    drain: Mutex<Option<Drain>>,
    /// Drain and structure take turns.
    is_drains_turn: AtomicBool,
    /// The log is replayed, and whatever could not be replayed is attached.
    is_ready: AtomicBool,
}

/// What cursors share with it.
struct Shared {
    inner: Arc<dyn Index>,
    list: RwLock<Arc<List>>,
    /// Ranges in it. Release, with the list; Acquire: who finds none sees a structure that has what they hid.
    listed: AtomicUsize,
    /// Taken under `list`.
    written: Mutex<Written>,
    /// Memory of both. Taken under both.
    charge: Mutex<Charge>,
    /// What is expected late from outside.
    late: Mutex<Option<CommitTs>>,
}

impl Shared {
    fn list(&self) -> Arc<List> {
        self.list.read().clone()
    }

    fn is_quiet(&self) -> bool {
        self.listed.load(Ordering::Acquire) == 0
    }

    /// Puts another list in place of the one that is there.
    fn update(&self, edit: impl FnOnce(&mut Vec<Deleted>)) {
        self.update_with(edit, std::iter::empty());
    }

    /// The same; `put` came to be in the new ranges before they are listed, and lies above them.
    fn update_with<'a>(&self, edit: impl FnOnce(&mut Vec<Deleted>), mut put: impl Iterator<Item = &'a [u8]>) {
        let late = self.late.lock();
        let mut list = self.list.write();
        let mut all = list.all.clone();
        edit(&mut all);
        let mut next = List::new(all);
        {
            let mut written = self.written.lock();
            if !put.all(|key| !next.covers(key) || written.note(key)) {
                let mut all = next.all;
                all.iter_mut().for_each(|deleted| deleted.is_known = false);
                next = List::new(all);
            }
        }
        *list = Arc::new(next);
        let oldest = list.pending().next().map(|deleted| deleted.ts);
        let expected = late.into_iter().chain(oldest).min();
        self.inner.expect_late(expected);
        let mut written = self.written.lock();
        if list.is_empty() {
            written.clear();
        }
        self.charge.lock().set(list.bytes + written.bytes());
        drop(written);
        self.listed.store(list.all.len(), Ordering::Release);
    }

    /// Notes keys that come into listed ranges. To be called before they do.
    fn note_written<'a>(&self, mut keys: impl Iterator<Item = &'a [u8]>) {
        let list = self.list.read();
        if !list.has_known() {
            return;
        }
        let mut written = self.written.lock();
        let is_noted = keys.all(|key| !list.covers(key) || written.note(key));
        self.charge.lock().set(list.bytes + written.bytes());
        drop((written, list));
        if !is_noted {
            self.forget_written();
        }
    }

    /// Nobody knows any more what was written where.
    fn forget_written(&self) {
        if !self.list().has_known() {
            return;
        }
        self.update(|all| all.iter_mut().for_each(|deleted| deleted.is_known = false));
    }
}

impl Ranged {
    /// Around a structure, which `open` opens from its part of the state. Nothing is drained before [`Ranged::start`]. `charge` counts the memory of the list.
    ///
    /// # Errors
    /// Damage of the state; what `open` says.
    pub fn open<E: From<base::Fault>>(
        state: Option<&[u8]>,
        runs: Arc<dyn RunMaker>,
        charge: Charge,
        open: impl FnOnce(Option<&[u8]>) -> Result<Arc<dyn Index>, E>,
    ) -> Result<Arc<Self>, E> {
        let (deleted, state) = match state {
            Some(bytes) => {
                let (deleted, state) = state::split(bytes)?;
                (deleted, Some(state))
            }
            None => (Vec::new(), None),
        };
        let shared = Shared {
            inner: open(state)?,
            list: RwLock::default(),
            listed: AtomicUsize::new(0),
            written: Mutex::default(),
            charge: Mutex::new(charge),
            late: Mutex::default(),
        };
        if !deleted.is_empty() {
            shared.update(|all| {
                *all = deleted;
                list::leave_out_covered(all);
            });
        }
        let (drain, is_ready, is_drains_turn) = (Mutex::default(), AtomicBool::new(false), AtomicBool::new(true));
        Ok(Arc::new(Self { shared: Arc::new(shared), runs, drain, is_drains_turn, is_ready }))
    }

    /// The structure of a state that [`Index::checkpoint`] gave: its part of it.
    ///
    /// # Errors
    /// Damage of the rest.
    pub fn state_inside(state: &[u8]) -> Result<&[u8]> {
        state::split(state).map(|(_, inside)| inside)
    }

    /// All of the log is replayed: ranges are drained from now on.
    pub fn start(&self) {
        self.is_ready.store(true, Ordering::Release);
    }

    /// Step 4 of a commit at `ts`, behind what it puts: everything in these ranges that is older is deleted. The caller keeps others from
    /// writing there until the commit is applied. `put` has the keys that it has put itself; none if they are not known.
    pub fn delete_ranges<'a>(&self, spans: &[Span], ts: CommitTs, put: Option<impl Iterator<Item = &'a [u8]>>) {
        let is_known = put.is_some();
        let new = spans.iter().filter(|span| !span.is_empty());
        let new = new.map(|span| Deleted { span: span.clone(), ts, is_known, is_drained: false });
        self.shared.update_with(|all| all.extend(new), put.into_iter().flatten());
    }

    /// Ranges that were deleted before this life, ascending by timestamp: what was written there since is not known, and nobody reads as of before the last of
    /// them. So those that lie within newer ones are left out.
    pub fn replay_ranges(&self, ranges: Vec<(CommitTs, Vec<Span>)>) {
        self.shared.update(|all| {
            for (ts, spans) in ranges {
                for span in spans {
                    let new = Deleted { span, ts, is_known: false, is_drained: false };
                    if !all.contains(&new) {
                        all.push(new);
                    }
                }
            }
            list::leave_out_covered(all);
        });
    }

    /// How many are not drained: each makes reads and commits dearer, so whoever adds more of them helps first.
    #[must_use]
    pub fn pending(&self) -> usize {
        if self.shared.is_quiet() { 0 } else { self.shared.list().pending().count() }
    }

    /// Entries of ranges of keys that lie in a listed one are counted by what was written there.
    fn estimate_around(&self, range: &KeyRange, list: &List) -> Result<u64> {
        let (mut rest, mut sum) = (Span::of(range), 0);
        let mut ends: BTreeSet<&[u8]> = BTreeSet::new();
        for deleted in &list.all {
            ends.extend([Some(deleted.span.low.as_slice()), deleted.span.high.as_deref()].into_iter().flatten());
        }
        if ends.len() > ESTIMATED_ENDS_MAX {
            return self.shared.inner.estimate(range.bounds());
        }
        for end in ends.into_iter().map(Some).chain([None]) {
            if end.is_some_and(|end| end <= rest.low.as_slice()) {
                continue;
            }
            let high = match (end, &rest.high) {
                (Some(end), Some(high)) => Some(end.min(high).to_vec()),
                (end, high) => end.map(<[u8]>::to_vec).or_else(|| high.clone()),
            };
            let piece = Span { low: std::mem::take(&mut rest.low), high };
            if piece.is_empty() {
                break;
            }
            let inside = self.shared.inner.estimate(piece.bounds())?;
            // Older readers may find something there.
            sum += if list.covers(&piece.low) { inside.min(1) } else { inside };
            match piece.high {
                Some(high) if rest.high.as_ref() != Some(&high) => rest.low = high,
                _ => break,
            }
        }
        Ok(sum)
    }
}

/// Past so many ends of ranges an estimate takes no notice of them.
const ESTIMATED_ENDS_MAX: usize = 16;
/// Entries of a run that are noted as written one by one.
const NOTED_MAX: u64 = 1024;

impl Ranged {
    /// With the state that `inside` gives of the structure.
    fn checkpoint_by(
        &self,
        upkeep: &Upkeep<'_>,
        inside: impl FnOnce(&dyn Index) -> Result<IndexState>,
    ) -> Result<IndexState> {
        // What is newer the log has, above F. What is drained behind this the structure may have too.
        let list = self.shared.list();
        let pending: Vec<Deleted> =
            list.pending().filter(|deleted| deleted.ts.as_lsn() <= upkeep.applied).cloned().collect();
        vfs::thread::point("ranged.checkpoint");
        if let Some(newest) = pending.last()
            && upkeep.log.durable() < newest.ts.as_lsn()
        {
            upkeep.log.make_durable(newest.ts.as_lsn())?;
        }
        let inside = inside(&*self.shared.inner)?;
        Ok(IndexState { bytes: state::encode(&pending, inside.bytes), ..inside })
    }
}

impl Index for Ranged {
    fn as_ranged(&self) -> Option<&Ranged> {
        Some(self)
    }

    fn reserve_from(&self, batch: &Batch, funds: &mut Funds) -> Result<Option<Reservation>> {
        self.shared.inner.reserve_from(batch, funds)
    }

    fn apply(&self, batch: &Batch, reserved: Box<dyn Reserved>, ts: CommitTs, view: &GcView) {
        if !self.shared.is_quiet() {
            self.shared.note_written(batch.iter().map(|(key, _)| key));
        }
        self.shared.inner.apply(batch, reserved, ts, view);
    }

    fn attach(&self, run: Run, ts: CommitTs) {
        if !self.shared.is_quiet()
            && let Some((low, high)) = run.key_range()
            && self.shared.list().meets(low, high)
        {
            match keys_of(&run) {
                Some(keys) => self.shared.note_written(keys.iter().map(Vec::as_slice)),
                None => self.shared.forget_written(),
            }
        }
        self.shared.inner.attach(run, ts);
    }

    fn expiry(&self) -> Option<&Arc<Expiry>> {
        self.shared.inner.expiry()
    }

    fn has_unexpired(&self) -> bool {
        self.shared.inner.has_unexpired()
    }

    fn expect_late(&self, ts: Option<CommitTs>) {
        *self.shared.late.lock() = ts;
        self.shared.update(|_| {});
    }

    fn get_many(&self, at: ReadAt, keys: &[&[u8]], found: &mut dyn FnMut(usize, CommitTs, &[u8])) -> Result<()> {
        if self.shared.is_quiet() {
            return self.shared.inner.get_many(at, keys, found);
        }
        let (list, moment) = (self.shared.list(), moment(at));
        vfs::thread::point("ranged.listed");
        self.shared.inner.get_many(at, keys, &mut |i, ts, value| {
            if !list.hides(keys[i], ts, moment) {
                found(i, ts, value);
            }
        })
    }

    fn cursor(&self, at: ReadAt, range: (Bound<&[u8]>, Bound<&[u8]>), direction: Direction) -> Box<dyn Cursor> {
        // What a snapshot sees deleted was listed before it was taken.
        if self.shared.is_quiet() && matches!(at, ReadAt::Snapshot(_)) {
            return self.shared.inner.cursor(at, range, direction);
        }
        Box::new(RangedCursor::new(self.shared.clone(), at, KeyRange::new(range), direction))
    }

    fn clear_away(&self, upkeep: &Upkeep<'_>, ts: CommitTs, entries: u64) -> Result<u64> {
        self.shared.inner.clear_away(upkeep, ts, entries)
    }

    fn clears_behind(&self, batch: &Batch) -> bool {
        self.shared.inner.clears_behind(batch)
    }

    fn assist(&self, upkeep: &Upkeep<'_>, may_split: bool) -> Result<Assisted> {
        self.shared.inner.assist(upkeep, may_split)
    }

    fn maintain(&self, upkeep: &Upkeep<'_>) -> Result<Progress> {
        if self.shared.is_quiet() {
            return self.shared.inner.maintain(upkeep);
        }
        // Relaxed: whose turn it is matters to nobody but for speed.
        if self.is_drains_turn.fetch_xor(true, Ordering::Relaxed)
            && let Some(entries) = self.drain_some(upkeep)?
        {
            return Ok(Progress { entries, more: true });
        }
        let done = self.shared.inner.maintain(upkeep)?;
        if !done.more
            && let Some(entries) = self.drain_some(upkeep)?
        {
            return Ok(Progress { entries: done.entries + entries, more: true });
        }
        Ok(done)
    }

    fn relieve(&self, log: &dyn LogGate) -> Result<u64> {
        self.shared.inner.relieve(log)
    }

    fn memtables(&self) -> Memtables {
        self.shared.inner.memtables()
    }

    fn seal(&self) -> u64 {
        self.shared.inner.seal()
    }

    fn relievable_bytes(&self) -> u64 {
        self.shared.inner.relievable_bytes()
    }

    fn superseded_bytes(&self) -> u64 {
        self.shared.inner.superseded_bytes()
    }

    fn checkpoint(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        self.checkpoint_by(upkeep, |inner| inner.checkpoint(upkeep))
    }

    fn checkpoint_written(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        self.checkpoint_by(upkeep, |inner| inner.checkpoint_written(upkeep))
    }

    fn weigh(&self, weights: &mut Weights) -> Result<()> {
        self.shared.inner.weigh(weights)
    }

    fn evacuate(&self, extents: &[ExtentId], upkeep: &Upkeep<'_>) -> Result<()> {
        self.shared.inner.evacuate(extents, upkeep)
    }

    fn stats(&self) -> IndexStats {
        let deleted_ranges = self.shared.list().pending().count() as u64;
        IndexStats { deleted_ranges, ..self.shared.inner.stats() }
    }

    fn shape(&self) -> Result<IndexShape> {
        self.shared.inner.shape()
    }

    fn estimate(&self, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<u64> {
        if self.shared.is_quiet() {
            return self.shared.inner.estimate(range);
        }
        self.estimate_around(&KeyRange::new(range), &self.shared.list())
    }

    fn split_keys(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        self.shared.inner.split_keys(count)
    }

    fn verify(&self) -> Result<VerifyReport> {
        self.shared.inner.verify()
    }

    fn reach(&self, visit: &mut VisitBlock<'_>) -> Result<Vec<Corruption>> {
        self.shared.inner.reach(visit)
    }

    fn destroy(&self) -> Result<()> {
        self.abandon_drain();
        self.shared.inner.destroy()
    }
}

/// The timestamp at which a reader looks.
fn moment(at: ReadAt) -> CommitTs {
    match at {
        ReadAt::Snapshot(ts) => ts,
        ReadAt::Newest => CommitTs::MAX,
    }
}

/// The keys of a small run in memory.
#[must_use]
pub fn keys_of(run: &Run) -> Option<Vec<Vec<u8>>> {
    if run.meta().is_some() || run.len() > NOTED_MAX {
        return None;
    }
    let (mut keys, mut cursor) = (Vec::new(), run.cursor());
    let mut is_there = cursor.seek_first().ok()?;
    while is_there {
        keys.push(cursor.key().to_vec());
        is_there = cursor.next().ok()?;
    }
    Some(keys)
}
