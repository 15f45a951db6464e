//! Attached runs: sorted batches that readers merge and the background drains into leaves [A3].
//!
//! Attaching is O(1) and happens before the commit is marked applied. A reader takes the list BEFORE the leaf: the
//! drain copies an entry to its leaf before it shortens the run, so a reader finds it in one of the two, or both. And
//! AFTER the leaf it makes sure that none of its runs was removed meanwhile, or it starts over:
//!
//! > Run 30 has a put of K, the leaf has K@50, a tombstone. A reader at 60 takes the list. The drain copies K@30 to the
//! > leaf and removes the run; nothing is held back any more, K@30 and the tombstone are collected. The reader finds
//! > nothing of K in the leaf and K@30 in the run: K is alive.
//!
//! The drain goes in key order, run by run, oldest first, through `reserve` and `apply` like a commit, at the run's
//! timestamp; (key, ts) that is already there changes nothing. `drained_to` moves after the copy.
//!
//! # What a run holds back [A4]
//!
//! Its entries arrive in the leaves late, with an old timestamp. So until it is drained,
//! - no version or tombstone above its timestamp is collected ([`Runs::cap`]): a tombstone K@50 that vanished would let
//!   K@30, drained later, come back;
//! - F stays below an in-memory run, whose only durable copy is its log record;
//! - a file run with `ts <= F` is named by the checkpoint with the `drained_to` of the checkpoint's START.
//!
//! Where space is short the cap outlives the drain until a checkpoint has ended that began behind it: one of what is written may come
//! before, which has to name the run as the last one did, for leaves that nobody has written since. A checkpoint that was under way when the
//! run was drained is not enough: it may have been by at those leaves.
//!
//! The cap also outlives the drain until a checkpoint that names the run has ended:
//!
//! > The checkpoint starts and will name run 30 with nothing drained. The drain ends; K@50, a tombstone, is collected;
//! > K's leaf is written and composed. After a crash the run is attached again, K@30 is drained, K is alive.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use base::bytes::{Reader, put_bytes, put_varint};
use base::limits::LSN_UNIT;
use base::{CommitTs, Fault, GcView, Lsn, Result};
use index::{Batch, BatchBuilder, KeyRange, Op, ReadAt, RunFiles, Upkeep};
use store::{EpochCell, Funds, Run, RunCursor, RunEstimate, RunMeta, epoch};
use vfs::sync::Mutex;

use crate::reserve::Found;
use crate::settle::TO_BE_RENEWED;
use crate::tree::{Core, Hand};

/// Entries drained in one maintenance step, at most.
const DRAIN_ENTRIES: usize = 256;
/// Their bytes; the entry that passes it is the last.
const DRAIN_BYTES: usize = 256 << 10;
/// Of a small database about so much may be written from the beginning of one checkpoint to the end of the next. Of a large one what is dirty is more.
const WRITTEN_BYTES: u64 = 64 << 20;
/// Cold leaves one step of the drain loads, at most.
pub(crate) const DRAIN_COLD_LEAVES: usize = 8;

/// A run with what was done with it.
#[derive(Debug)]
pub(crate) struct Attached {
    pub run: Run,
    pub ts: CommitTs,
    /// Keys below this are in the leaves.
    drained_to: Mutex<Vec<u8>>,
    /// Bytes of the entries that are not, as far as counted. Relaxed: a statistic.
    left: AtomicU64,
    /// The same as a number of entries.
    entries_left: AtomicU64,
    /// Deletes among a thousand of its entries, as far as they were looked at. Relaxed: a statistic.
    deletes: AtomicU64,
    /// All keys are. Set before the cap is lifted (Release, with the cap); read after a leaf (Acquire): a reader of a leaf
    /// that was collected without this run's cap sees it.
    removed: AtomicBool,
}

impl Attached {
    fn new(run: Run, ts: CommitTs, drained_to: Vec<u8>) -> Arc<Self> {
        let left = AtomicU64::new(run.bytes());
        let (removed, deletes, drained_to) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::new(drained_to));
        let entries_left = AtomicU64::new(run.len());
        let this = Self { run, ts, drained_to, left, entries_left, deletes, removed };
        // A file is not read for it: the drain will.
        if this.run.meta().is_none()
            && let Ok(RunEstimate { puts, deletes }) = this.run.estimate(Bound::Unbounded, Bound::Unbounded)
        {
            this.note_deletes(deletes, puts + deletes);
        }
        Arc::new(this)
    }

    fn note_deletes(&self, deletes: u64, of: u64) {
        self.deletes.store(deletes * 1000 / of.max(1), Ordering::Relaxed);
    }

    /// Only the drain calls it.
    fn note_drained(&self, batch: &Batch) {
        let deletes = batch.iter().filter(|(_, op)| matches!(op, Op::Delete)).count();
        self.note_deletes(deletes as u64, batch.len() as u64);
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(batch.bytes() as u64), Ordering::Relaxed);
        let entries = self.entries_left.load(Ordering::Relaxed);
        self.entries_left.store(entries.saturating_sub(batch.len() as u64), Ordering::Relaxed);
    }

    /// What it adds to the live keys of the leaves, about: keys that are new to them, less deletes.
    fn keys(&self) -> i64 {
        let surplus = 1.0 - self.deletes.load(Ordering::Relaxed) as f64 / 500.0;
        (self.entries_left.load(Ordering::Relaxed) as f64 * surplus) as i64
    }

    fn drained_to(&self) -> Vec<u8> {
        self.drained_to.lock().clone()
    }

    /// The part of a range for which the run must be merged with leaves that are read after this call; none if there is none.
    pub fn left_of(&self, range: &KeyRange) -> Option<KeyRange> {
        let (min, max) = self.run.key_range()?;
        let mut left = range.clone();
        left.raise_low(&self.drained_to());
        (!left.is_empty() && !left.is_above(min) && !left.is_below(max)).then_some(left)
    }

    /// What is not drained of a range, about.
    pub fn left_in(&self, range: &KeyRange) -> Result<RunEstimate> {
        let drained_to = self.drained_to();
        let (low, high) = range.bounds();
        let low = if range.is_below(&drained_to) { low } else { Bound::Included(drained_to.as_slice()) };
        self.run.estimate(low, high)
    }

    /// Keys that cut what is not drained in parts of about the same size.
    pub fn split_keys(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let drained_to = self.drained_to();
        let mut keys = self.run.split_keys(count)?;
        keys.retain(|key| *key >= drained_to);
        Ok(keys)
    }

    /// True if what was read in leaves before this call must not be merged with the run.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }
}

/// A run as a checkpoint names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedRun {
    pub meta: RunMeta,
    pub ts: CommitTs,
    pub drained_to: Vec<u8>,
}

/// The attached runs of one index.
#[derive(Debug)]
pub(crate) struct Runs {
    /// Ascending by timestamp.
    list: EpochCell<Vec<Arc<Attached>>>,
    /// Length of the list. Release after the list (and, for the drain, the leaf) changed, Acquire in readers.
    count: AtomicUsize,
    /// Nothing above this is collected; MAX if nothing is held back. Release and Acquire.
    cap: AtomicU64,
    /// Changes whenever the list does.
    edition: AtomicU64,
    /// What is newer than this is in no leaf on disk: nothing, unless the database is only read. Set while the log is
    /// replayed, before there are readers.
    missing_in_leaves: AtomicU64,
    change: Mutex<Change>,
}

/// What the writers of the list keep.
#[derive(Debug, Default)]
struct Change {
    /// Timestamps of the runs that a checkpoint in progress names.
    named: Vec<CommitTs>,
    /// What may still arrive, as the entries of a run that is not drained do.
    late: Option<CommitTs>,
    /// The runs of the last checkpoint that came to its end and was complete.
    last: Vec<NamedRun>,
    /// Its F.
    last_skip: Lsn,
    /// Drained since it began, into leaves that may not be written: held back as if they were not.
    kept: Vec<Arc<Attached>>,
    /// One was drained since then and is not kept.
    is_lifted: bool,
    /// A complete checkpoint is in progress, and when it began so many were kept: their entries it writes.
    kept_before: usize,
    /// One was drained since then and is not kept: it may have been by at the leaves.
    is_lifted_since: bool,
}

/// What a checkpoint begins with.
pub(crate) struct Begun {
    /// F.
    pub skip: Lsn,
    /// Runs to name.
    pub named: Vec<NamedRun>,
    /// Of these, what leaves need not have: they are named as the last checkpoint named them. Nothing else that is as old has come to leaves since.
    pub late: BTreeSet<CommitTs>,
}

impl Runs {
    pub fn new(list: Vec<Arc<Attached>>) -> Self {
        let this = Self {
            count: AtomicUsize::new(list.len()),
            list: EpochCell::new(list),
            cap: AtomicU64::new(u64::MAX),
            edition: AtomicU64::new(0),
            missing_in_leaves: AtomicU64::new(u64::MAX),
            // As open: the F of the state is the one that is asked for.
            change: Mutex::new(Change { last_skip: Lsn::MAX, ..Change::default() }),
        };
        this.set_cap(&this.change.lock());
        this
    }

    /// Opens the runs that a state names; with `or_lost`, also if one cannot be read.
    pub fn open(files: &RunFiles, named: &[NamedRun], or_lost: bool) -> Result<Self> {
        let open = |named: &NamedRun| {
            let open = if or_lost { Run::open_or_lost } else { Run::open };
            let run = open(&*files.vfs, &files.dir, &named.meta)?;
            Ok(Attached::new(run, named.ts, named.drained_to.clone()))
        };
        let this = Self::new(named.iter().map(open).collect::<Result<_>>()?);
        this.change.lock().last = named.to_vec();
        Ok(this)
    }

    /// True if nothing is held back: the fast path of `apply`.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.cap.load(Ordering::Acquire) == u64::MAX
    }

    /// True if there is no run: the fast path of readers.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Nothing above this may be collected.
    pub fn cap(&self) -> CommitTs {
        CommitTs(self.cap.load(Ordering::Acquire))
    }

    pub fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// The runs that a reader at `at` merges, oldest first.
    pub fn seen_at(&self, at: ReadAt) -> Vec<Arc<Attached>> {
        if self.is_empty() {
            return Vec::new();
        }
        let guard = epoch::pin();
        let seen = |run: &&Arc<Attached>| match at {
            ReadAt::Newest => true,
            ReadAt::Snapshot(s) => run.ts <= s,
        };
        self.list.load(&guard).iter().filter(seen).cloned().collect()
    }

    pub fn attach(&self, run: Run, ts: CommitTs) {
        if run.is_empty() {
            return;
        }
        let attached = Attached::new(run, ts, Vec::new());
        self.update(|list, _| {
            let at = list.partition_point(|other| other.ts <= ts);
            list.insert(at, attached);
        });
    }

    /// The moment up to which something may be missing where a leaf cannot be read. In a database that is only read: what
    /// is attached comes from the log, from where it was not in the leaves yet.
    pub fn missing_in_leaves(&self) -> CommitTs {
        CommitTs(self.missing_in_leaves.load(Ordering::Relaxed))
    }

    /// A run from the log of a database that is only read is attached: nothing on disk is as new.
    pub fn note_newest(&self, ts: CommitTs) {
        self.missing_in_leaves.fetch_min(ts.0 - 1, Ordering::Relaxed);
    }

    /// A checkpoint starts. One of what is written is as complete as the last one: a run that was drained since, into leaves that may be dirty,
    /// is named as it was then, if it is held back still. Otherwise its leaves are asked for.
    pub fn begin_checkpoint(&self, applied: Lsn, is_of_written: bool) -> Begun {
        let mut change = self.change.lock();
        let guard = epoch::pin();
        let list = self.list.load(&guard);
        let in_memory = list.iter().filter(|run| run.run.meta().is_none()).map(|run| run.ts).min();
        let skip = in_memory.map_or(applied, |ts| applied.min(Lsn(ts.0.saturating_sub(LSN_UNIT))));
        // Above its F leaves have no more than they were asked for.
        let as_before = is_of_written && !change.is_lifted && applied <= change.last_skip;
        let kept = if as_before { change.kept.as_slice() } else { &[] };
        let named = list.iter().chain(kept).filter(|run| run.ts.as_lsn() <= skip).filter_map(|run| {
            let meta = run.run.meta()?.clone();
            let before = || change.last.iter().find(|before| before.meta.id == meta.id);
            // One that the last did not name is of a deleted range: nothing of it was in leaves then.
            let drained_to = match as_before {
                true => before().map_or(Vec::new(), |before| before.drained_to.clone()),
                false => run.drained_to(),
            };
            Some(NamedRun { meta, ts: run.ts, drained_to })
        });
        let mut named: Vec<_> = named.collect();
        named.sort_by_key(|run| run.ts);
        let late = named.iter().map(|run| run.ts).chain([TO_BE_RENEWED]);
        let late = if as_before { late.collect() } else { BTreeSet::new() };
        change.named = named.iter().map(|run| run.ts).collect();
        (change.kept_before, change.is_lifted_since) = (change.kept.len(), false);
        self.set_cap(&change);
        Begun { skip, named, late }
    }

    /// The checkpoint has ended: with these runs and this F, if leaves have all else up to F. Of what was drained meanwhile leaves may lack
    /// everything: the checkpoint names it, and may have written them before.
    pub fn end_checkpoint(&self, complete: Option<(Vec<NamedRun>, Lsn)>) {
        let mut change = self.change.lock();
        change.named.clear();
        let mut kept = Vec::new();
        if let Some((runs, skip)) = complete {
            (change.last, change.last_skip, change.is_lifted) = (runs, skip, change.is_lifted_since);
            let before = change.kept_before;
            kept.extend(change.kept.drain(..before));
        }
        self.set_cap(&change);
        // Files are closed without the mutex.
        drop(change);
        drop(kept);
    }

    /// Entries of this timestamp may arrive late, with no run that holds them; none: no more.
    pub fn expect_late(&self, ts: Option<CommitTs>) {
        let mut change = self.change.lock();
        change.late = ts;
        self.set_cap(&change);
    }

    /// Number of the runs.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed) as u64
    }

    /// Bytes of the runs that are not drained; at least one for each run.
    pub fn bytes(&self) -> u64 {
        self.list.load(&epoch::pin()).iter().map(|run| run.left.load(Ordering::Relaxed).max(1)).sum()
    }

    /// What they add to the live keys of the leaves, about.
    pub fn keys(&self) -> i64 {
        if self.is_empty() {
            return 0;
        }
        self.list.load(&epoch::pin()).iter().map(|run| run.keys()).sum()
    }

    fn oldest(&self) -> Option<Arc<Attached>> {
        self.list.load(&epoch::pin()).first().cloned()
    }

    /// It is drained. `keeps`: it is held back until the next checkpoint all the same.
    fn remove(&self, run: &Arc<Attached>, keeps: bool) {
        run.removed.store(true, Ordering::Release);
        self.update(|list, change| {
            list.retain(|other| !Arc::ptr_eq(other, run));
            // One in memory lies above every F: the log has it.
            match run.run.meta() {
                Some(_) if keeps => change.kept.push(run.clone()),
                Some(_) => (change.is_lifted, change.is_lifted_since) = (true, true),
                None => {}
            }
        });
    }

    fn update(&self, edit: impl FnOnce(&mut Vec<Arc<Attached>>, &mut Change)) {
        let mut change = self.change.lock();
        let mut list = self.list.load(&epoch::pin()).clone();
        edit(&mut list, &mut change);
        let count = list.len();
        self.list.replace(list);
        self.count.store(count, Ordering::Release);
        self.edition.fetch_add(1, Ordering::Release);
        self.set_cap(&change);
    }

    fn set_cap(&self, change: &Change) {
        let guard = epoch::pin();
        let attached = self.list.load(&guard).iter().map(|run| run.ts);
        let kept = change.kept.iter().map(|run| run.ts);
        let lowest = attached.chain(kept).chain(change.named.iter().copied()).chain(change.late).min();
        let cap = lowest.map_or(u64::MAX, |ts| ts.0.saturating_sub(1));
        self.cap.store(cap, Ordering::Release);
    }
}

impl Core {
    /// The view held back below undrained runs.
    pub(crate) fn capped(&self, view: &GcView) -> GcView {
        view.capped(self.runs.cap())
    }

    /// True if what is dirty may not find space before the next checkpoint is through, which may have to do without the leaves of what was drained.
    fn is_short(&self) -> bool {
        !self.env.space.has_room(WRITTEN_BYTES + 2 * self.env.cache.dirty_bytes())
    }

    /// Drains about `entries` entries of the oldest runs; it neither reads a leaf from disk nor waits for memory. Returns how
    /// many.
    pub(crate) fn clear_away(&self, hand: &Hand, upkeep: &Upkeep<'_>, entries: u64) -> Result<u64> {
        let mut cleared = 0;
        while cleared < entries {
            // One step at a time with the background's, which is of use here as well.
            let mut plan = self.upkeep.lock();
            match self.drain(hand, upkeep, &mut plan.draining, 0)? {
                0 => break,
                drained => cleared += drained,
            }
        }
        Ok(cleared)
    }

    /// Drains a piece of the oldest run, with no more than `cold_max` leaves read from disk; if that is none, it may be that
    /// nothing is done. Returns the number of entries.
    pub(crate) fn drain(
        &self,
        hand: &Hand,
        upkeep: &Upkeep<'_>,
        draining: &mut Draining,
        cold_max: usize,
    ) -> Result<u64> {
        let Some(run) = self.runs.oldest() else { return Ok(0) };
        let from = run.drained_to();
        let (mut wanted, mut funds) = (draining.piece, Funds::default());
        loop {
            let cursor = draining.at(&run, &from)?;
            let batch = piece(cursor, wanted)?;
            let next = cursor.is_valid().then(|| cursor.key().to_vec());
            if !batch.is_empty() {
                let mut room = match self.reserve_room(hand, &batch, cold_max, Some(run.ts), &mut funds)? {
                    Found::Room(room) => room,
                    // The disk makes memory free.
                    _ if cold_max == 0 => return Ok(0),
                    // One entry is in one leaf, so this ends.
                    Found::TooCold => {
                        wanted = batch.len() / 2;
                        continue;
                    }
                    Found::TooLittle if batch.len() > 1 && funds.are_asked_too_much() => {
                        (wanted, funds) = (batch.len() / 2, Funds::default());
                        continue;
                    }
                    // It was committed: one entry is drained, however large.
                    Found::TooLittle if batch.len() == 1 => {
                        funds.wait_or_pass()?;
                        continue;
                    }
                    Found::TooLittle => {
                        // What else has the memory may keep it: inner nodes, the log, others' work. The pieces behind this one are cut at once.
                        if let Err(fault) = funds.wait() {
                            wanted = too_large(fault, batch.len())?;
                            (draining.piece, funds) = (wanted, Funds::default());
                        }
                        continue;
                    }
                };
                vfs::thread::point("tree.drain_reserved");
                self.apply(&batch, &mut room, run.ts, &upkeep.view);
                run.note_drained(&batch);
            }
            vfs::thread::point("tree.drain_copied");
            match next {
                Some(next) => *run.drained_to.lock() = next,
                None => {
                    *draining = Draining::default();
                    self.runs.remove(&run, self.is_short());
                }
            }
            return Ok(batch.len() as u64);
        }
    }
}

/// Half of a piece that there was no memory for.
fn too_large(fault: Fault, entries: usize) -> Result<usize> {
    match fault {
        Fault::Limit { .. } if entries > 1 => Ok(entries / 2),
        _ => Err(fault),
    }
}

/// Where the drain stands: a piece begins where the one before it ended, without reading and checking that block once more.
pub(crate) struct Draining {
    stand: Option<(Arc<Attached>, RunCursor)>,
    /// Entries of a piece: fewer while there is no memory for more.
    piece: usize,
}

impl Default for Draining {
    fn default() -> Self {
        Self { stand: None, piece: DRAIN_ENTRIES }
    }
}

impl std::fmt::Debug for Draining {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Draining").field(&self.stand.as_ref().map(|(run, _)| run.ts)).finish()
    }
}

impl Draining {
    /// A cursor on the first entry of `run` at or above `from`, if there is one.
    fn at(&mut self, run: &Arc<Attached>, from: &[u8]) -> Result<&mut RunCursor> {
        let is_there = |(of, cursor): &(Arc<Attached>, RunCursor)| {
            Arc::ptr_eq(of, run) && cursor.is_valid() && cursor.key() == from
        };
        if !self.stand.as_ref().is_some_and(is_there) {
            let mut cursor = run.run.cursor();
            cursor.seek(from)?;
            self.stand = Some((run.clone(), cursor));
        }
        Ok(&mut self.stand.as_mut().expect("it was just set").1)
    }
}

/// Up to `wanted` entries from where the cursor stands; it is left behind them.
fn piece(cursor: &mut RunCursor, wanted: usize) -> Result<Batch> {
    let mut batch = BatchBuilder::new();
    let (mut entries, mut bytes) = (0, 0);
    let mut there = cursor.is_valid();
    while there && entries < wanted.max(1) && bytes < DRAIN_BYTES {
        let value = cursor.value()?;
        bytes += cursor.key().len() + value.as_ref().map_or(0, |v| v.len());
        batch.push(cursor.key(), value.as_deref().map_or(Op::Delete, Op::Put));
        entries += 1;
        drop(value);
        there = cursor.next()?;
    }
    Ok(batch.finish())
}

impl NamedRun {
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.meta.encode(out);
        put_varint(out, self.ts.0);
        put_bytes(out, &self.drained_to);
    }

    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let meta = RunMeta::decode(r)?;
        let ts = CommitTs(r.varint()?);
        Some(Self { meta, ts, drained_to: r.bytes()?.to_vec() })
    }
}
