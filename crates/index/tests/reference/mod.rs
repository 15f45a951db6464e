//! The simplest index that keeps every rule of the seam: one leaf that holds everything, in a sorted map of
//! versions. It is loaded, evicted and written as a whole, under one mutex. The conformance suite is tested on it,
//! and on copies of it with one bug each.
//!
//! Invariants: `oldest_unwritten` is the lowest timestamp applied that no image holds, or MAX; `log_need` the highest
//! ever applied; `data` is none only if the image holds everything (clean) and nobody has pinned it.

use std::any::Any;
use std::ops::Bound;
use std::sync::Arc;

use base::bytes::{Reader, put_bytes, put_varint};
use base::{CommitTs, GcView, Lsn, Result};
use store::run::{Run, RunMeta};
use store::{Block, BlockRef, Charge, Class, Evict, Funds, Page, PageWrite, WriteEnv};
use trefoil_index::merge::{Merge, RunSource, Source, Tombstones};
use trefoil_index::{
    Batch, Cursor, Direction, EntryBatch, Index, IndexEnv, IndexState, IndexStats, KeyRange, Progress, ReadAt,
    Reservation, Reserved, Upkeep, VerifyReport, VisitBlock,
};
use vfs::sync::Mutex;

mod bugs;
mod image;
mod versions;

pub use bugs::Bug;
use versions::Versions;

/// The index. Cheap to clone: clones are one index.
#[derive(Clone)]
pub struct Reference(Arc<Inner>);

struct Inner {
    env: IndexEnv,
    bug: Bug,
    state: Mutex<State>,
}

struct Attached {
    run: Run,
    ts: CommitTs,
    /// Everything below is in the data.
    drained_to: Vec<u8>,
}

struct State {
    data: Option<Versions>,
    charge: Option<Charge>,
    image: Vec<Arc<Block>>,
    /// What the last checkpoint named.
    composed: Vec<Arc<Block>>,
    runs: Vec<Attached>,
    log_need: Lsn,
    oldest_unwritten: CommitTs,
    oldest_in_flight: CommitTs,
    /// Counts images begun, so that a write that comes back late does not replace a newer image.
    image_number: u64,
    pins: usize,
    late: Option<CommitTs>,
}

/// Opens the reference, with a bug.
pub fn open(env: IndexEnv, state: Option<&[u8]>, bug: Bug) -> Result<Arc<dyn Index>> {
    let (mut image, mut runs) = (Vec::new(), Vec::new());
    if let Some(bytes) = state {
        let mut r = Reader::new(bytes);
        for _ in 0..r.varint().expect("written by checkpoint") {
            image.push(env.space.adopt(BlockRef::decode(&mut r).expect("written by checkpoint")));
        }
        while !r.is_empty() {
            let ts = CommitTs(r.varint().expect("written by checkpoint"));
            let drained_to = r.bytes().expect("written by checkpoint").to_vec();
            let meta = RunMeta::decode(&mut r).expect("written by checkpoint");
            if bug != Bug::OpenForgetsRuns {
                runs.push(Attached { run: Run::open(&*env.runs.vfs, &env.runs.dir, &meta)?, ts, drained_to });
            }
        }
    }
    let data = image.is_empty().then(Versions::default);
    let state = State {
        data,
        charge: None,
        composed: image.clone(),
        image,
        runs,
        log_need: Lsn::ZERO,
        oldest_unwritten: CommitTs::MAX,
        oldest_in_flight: CommitTs::MAX,
        image_number: 0,
        pins: 0,
        late: None,
    };
    Ok(Arc::new(Reference(Arc::new(Inner { env, bug, state: Mutex::new(state) }))))
}

impl Reference {
    fn bug(&self, bug: Bug) -> bool {
        self.0.bug == bug
    }

    /// Runs `body` over the data, loaded if it was evicted.
    fn with<T>(&self, body: impl FnOnce(&mut State) -> T) -> Result<T> {
        let mut state = self.0.state.lock();
        if state.data.is_none() {
            state.data = Some(image::read(&self.0.env, &state.image)?);
        }
        let out = body(&mut state);
        self.charge(&mut state);
        Ok(out)
    }

    /// Charges the frame, and gives it a place in the clock when it comes into memory.
    fn charge(&self, state: &mut State) {
        let bytes = state.data.as_ref().map_or(0, Versions::bytes) + 64;
        let cache = &self.0.env.cache;
        match &mut state.charge {
            Some(charge) => charge.set(bytes),
            None => {
                state.charge = Some(cache.budget().charge(Class::Frames, bytes));
                let page: Arc<dyn Page> = self.0.clone();
                cache.insert(Arc::downgrade(&page), bytes);
            }
        }
    }

    fn sources(&self, state: &State, at: ReadAt, range: &KeyRange, direction: Direction) -> Vec<RunSource> {
        if self.bug(Bug::ReadsIgnoreRuns) {
            return Vec::new();
        }
        let seen = |ts: CommitTs| match at {
            ReadAt::Snapshot(s) => ts <= s || self.bug(Bug::RunsAreSeenTooEarly),
            ReadAt::Newest => true,
        };
        let runs = state.runs.iter().filter(|r| seen(r.ts));
        runs.map(|r| RunSource::new(&r.run, r.ts, range.clone(), direction)).collect()
    }

    fn snapshot(&self, at: ReadAt) -> CommitTs {
        match at {
            ReadAt::Snapshot(s) if self.bug(Bug::SnapshotsExcludeTheirEnd) => CommitTs(s.0 - 1),
            ReadAt::Snapshot(s) => s,
            ReadAt::Newest => CommitTs::MAX,
        }
    }

    /// Where garbage collection stops: below the oldest run that is not drained (rule A4).
    fn capped(&self, state: &State, view: &GcView) -> GcView {
        let oldest = state.runs.iter().map(|r| r.ts).chain(state.late).min();
        match oldest {
            Some(ts) if !self.bug(Bug::GcIgnoresRuns) => view.capped(CommitTs(ts.0 - 1)),
            _ => view.clone(),
        }
    }
}

struct Pin(Arc<Inner>);

impl Reserved for Pin {
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    fn held_bytes(&self) -> u64 {
        0
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if self.0.bug != Bug::DroppedReservationsStayPinned {
            self.0.state.lock().pins -= 1;
        }
    }
}

impl Index for Reference {
    fn reserve_from(&self, batch: &Batch, _: &mut Funds) -> Result<Option<Reservation>> {
        if batch.len() > 2_000 {
            return Ok(Some(Reservation::TooCold));
        }
        if self.bug(Bug::ReserveDoesNotLoad) {
            self.0.state.lock().pins += 1;
            return Ok(Some(Reservation::Direct(Box::new(Pin(self.0.clone())))));
        }
        self.with(|state| {
            state.pins += 1;
            if self.bug(Bug::ReserveApplies) {
                state.data.as_mut().expect("loaded").put_all(batch, CommitTs(1));
            }
        })?;
        Ok(Some(Reservation::Direct(Box::new(Pin(self.0.clone())))))
    }

    fn apply(&self, batch: &Batch, reserved: Box<dyn Reserved>, ts: CommitTs, view: &GcView) {
        let pin = reserved.into_any().downcast::<Pin>().expect("made by `reserve`");
        let applied = self.with(|state| {
            let view = self.capped(state, view);
            let data = state.data.as_mut().expect("loaded");
            data.put_all(batch, ts);
            if self.bug(Bug::ApplyKeepsOnlyTheNewest) {
                batch.iter().for_each(|(key, _)| data.keep_newest(key));
            } else if !self.bug(Bug::NothingIsCollected) {
                batch.iter().for_each(|(key, _)| data.collect(key, &view, self.0.bug));
            }
            state.log_need = state.log_need.max(ts.as_lsn());
            state.oldest_unwritten = state.oldest_unwritten.min(ts);
        });
        applied.expect("reserved, so loaded");
        drop(pin);
    }

    fn attach(&self, run: Run, ts: CommitTs) {
        self.0.state.lock().runs.push(Attached { run, ts, drained_to: Vec::new() });
    }

    fn expect_late(&self, ts: Option<CommitTs>) {
        self.0.state.lock().late = ts;
    }

    fn get_many(&self, at: ReadAt, keys: &[&[u8]], found: &mut dyn FnMut(usize, CommitTs, &[u8])) -> Result<()> {
        let snapshot = self.snapshot(at);
        self.with(|state| {
            for (i, key) in keys.iter().enumerate() {
                let mut newest = state.data.as_ref().expect("loaded").newest(key, snapshot);
                let runs = state.runs.iter().filter(|r| r.ts <= snapshot && !self.bug(Bug::PointsIgnoreRuns));
                for run in runs {
                    if let Some(value) = run.run.get(key)?
                        && newest.as_ref().is_none_or(|(ts, _)| *ts < run.ts)
                    {
                        newest = Some((run.ts, value));
                    }
                }
                if let Some((ts, Some(value))) = newest {
                    found(i, ts, &value);
                }
            }
            Ok(())
        })?
    }

    fn cursor(&self, at: ReadAt, range: (Bound<&[u8]>, Bound<&[u8]>), direction: Direction) -> Box<dyn Cursor> {
        let mut range = KeyRange::new(range);
        if let (true, Bound::Excluded(low)) = (self.bug(Bug::ExcludedIsIncluded), &range.low) {
            range.low = Bound::Included(low.clone());
        }
        // The run list before the leaf: what is drained meanwhile is in both.
        let runs = self.sources(&self.0.state.lock(), at, &range, direction);
        let leaf = LeafSource { index: self.clone(), snapshot: self.snapshot(at), range, direction };
        let mut sources: Vec<Box<dyn Source>> = vec![Box::new(leaf)];
        sources.extend(runs.into_iter().map(|r| Box::new(r) as Box<dyn Source>));
        Box::new(Merge::new(direction, Tombstones::Hide, sources))
    }

    fn maintain(&self, upkeep: &Upkeep<'_>) -> Result<Progress> {
        self.with(|state| {
            if !self.bug(Bug::NothingIsCollected) {
                let view = self.capped(state, &upkeep.view);
                state.data.as_mut().expect("loaded").collect_all(&view, self.0.bug);
            }
            let entries = self.drain(state)?;
            Ok(Progress { entries, more: !state.runs.is_empty() })
        })?
    }

    fn checkpoint(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        self.with(|state| {
            if state.oldest_unwritten != CommitTs::MAX || state.oldest_in_flight != CommitTs::MAX {
                if !self.bug(Bug::CheckpointOutrunsTheLog) {
                    upkeep.log.make_durable(state.log_need)?;
                }
                let blocks = image::encode(&self.0.env, state.data.as_ref().expect("loaded"), self.0.bug);
                state.image = self.0.env.space.write(blocks)?;
                state.image_number += 1;
                (state.oldest_unwritten, state.oldest_in_flight) = (CommitTs::MAX, CommitTs::MAX);
            }
            self.compose(state, upkeep)
        })?
    }

    fn stats(&self) -> IndexStats {
        self.with(|state| {
            let data = state.data.as_ref().expect("loaded");
            IndexStats {
                live_keys: data.live(),
                leaves: 1,
                height: 1,
                runs: state.runs.len() as u64,
                run_bytes: state.runs.iter().map(|r| r.run.bytes().max(1)).sum(),
                memory_bytes: data.bytes(),
                disk_bytes: state.image.iter().map(|b| b.stored_bytes()).sum(),
                ..IndexStats::default()
            }
        })
        .unwrap_or_default()
    }

    fn estimate(&self, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<u64> {
        let range = if self.bug(Bug::EstimatesForgetTheirEnd) { (range.0, Bound::Unbounded) } else { range };
        let mut cursor = self.cursor(ReadAt::Newest, range, Direction::Forward);
        let (mut count, mut out) = (0, EntryBatch::new());
        while cursor.fill(&mut out, 100)? {
            count += out.len() as u64;
        }
        let count = count + out.len() as u64;
        let range = KeyRange::new(range);
        let hidden = self.with(|state| {
            let in_leaf = state.data.as_ref().expect("loaded").iter().any(|(key, ..)| range.contains(key));
            let (low, high) = range.bounds();
            in_leaf || state.runs.iter().any(|run| run.run.estimate(low, high).is_ok_and(|of| of.puts + of.deletes > 0))
        })?;
        Ok(count.max(u64::from(hidden)))
    }

    fn split_keys(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        self.with(|state| {
            let keys: Vec<&[u8]> = state.data.as_ref().expect("loaded").iter().map(|(key, ..)| key).collect();
            let step = keys.len().div_ceil(count.max(1)).max(1);
            std::iter::once(Vec::new()).chain(keys.chunks(step).skip(1).map(|part| part[0].to_vec())).collect()
        })
    }

    fn reach(&self, _: &mut VisitBlock<'_>) -> Result<Vec<base::Corruption>> {
        Ok(Vec::new())
    }

    fn verify(&self) -> Result<VerifyReport> {
        self.with(|state| VerifyReport {
            nodes: 1,
            entries: state.data.as_ref().expect("loaded").len(),
            problems: Vec::new(),
        })
    }

    fn destroy(&self) -> Result<()> {
        let mut state = self.0.state.lock();
        state.data = Some(Versions::default());
        state.charge = None;
        state.runs.clear();
        if self.bug(Bug::DestroyLeaks) {
            std::mem::forget(std::mem::take(&mut state.composed));
        }
        state.composed.clear();
        state.image.clear();
        Ok(())
    }
}

impl Reference {
    /// Moves a few entries of the oldest run into the data.
    fn drain(&self, state: &mut State) -> Result<u64> {
        let Some(attached) = state.runs.first_mut() else { return Ok(0) };
        let data = state.data.as_mut().expect("loaded");
        let mut cursor = attached.run.cursor();
        let (mut stands, mut moved) = (cursor.seek(&attached.drained_to)?, 0);
        while stands && moved < 16 {
            let value = cursor.value()?.map(|v| v.into_owned());
            let lost = self.bug(Bug::DrainLosesDeletes) && value.is_none();
            if !lost {
                let ts = if self.bug(Bug::DrainTakesTheNewest) { state.log_need.as_commit_ts() } else { attached.ts };
                data.put(cursor.key(), ts.max(attached.ts), value);
            }
            attached.drained_to = [cursor.key(), &[0]].concat();
            moved += 1;
            stands = cursor.next()?;
        }
        state.log_need = state.log_need.max(attached.ts.as_lsn());
        if moved > 0 && !self.bug(Bug::DrainLeavesClean) {
            state.oldest_unwritten = state.oldest_unwritten.min(attached.ts);
        }
        if !stands {
            state.runs.remove(0);
        }
        Ok(moved)
    }

    /// Names the image and the run files; says what replay may skip.
    fn compose(&self, state: &mut State, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        if !self.bug(Bug::ImagesAreNotPublished) {
            state.image.iter().for_each(|block| {
                block.publish();
            });
            state.composed.drain(..).for_each(|block| {
                block.unpublish();
            });
        }
        state.composed.clone_from(&state.image);
        let mut bytes = Vec::new();
        put_varint(&mut bytes, state.image.len() as u64);
        state.image.iter().for_each(|b| b.at().encode(&mut bytes));
        let mut runs = Vec::new();
        let mut skip = upkeep.applied;
        for attached in &state.runs {
            if let Some(meta) = attached.run.meta() {
                // The record that names the run must outlive the manifest that does.
                if !self.bug(Bug::CheckpointOutrunsTheLog) {
                    upkeep.log.make_durable(attached.ts.as_lsn())?;
                }
                put_varint(&mut bytes, attached.ts.0);
                put_bytes(&mut bytes, &attached.drained_to);
                meta.encode(&mut bytes);
                runs.push(meta.id);
            } else if !self.bug(Bug::SkipsRunsInMemory) {
                skip = skip.min(Lsn(attached.ts.0 - 1));
            }
        }
        if let (Bug::SkipsNothing, true) = (self.0.bug, state.runs.is_empty()) {
            skip = Lsn::ZERO;
        }
        Ok(IndexState { bytes, skip, runs })
    }
}

impl Page for Inner {
    fn take_referenced(&self) -> bool {
        false
    }

    fn try_evict(&self) -> Evict {
        let Some(mut state) = self.state.try_lock() else { return Evict::Busy };
        if state.charge.is_none() {
            return Evict::Gone;
        }
        if state.pins > 0 && self.bug != Bug::EvictsPinned {
            return Evict::Busy;
        }
        if state.oldest_in_flight != CommitTs::MAX {
            return Evict::Busy;
        }
        if state.oldest_unwritten != CommitTs::MAX && self.bug != Bug::EvictsDirty {
            return Evict::Dirty;
        }
        if self.bug == Bug::NeverEvicts {
            return Evict::Busy;
        }
        state.data = None;
        state.charge = None;
        Evict::Evicted
    }

    fn begin_write(self: Arc<Self>, _: &WriteEnv) -> Result<Option<PageWrite>> {
        let mut state = self.state.lock();
        if state.oldest_unwritten == CommitTs::MAX || state.oldest_in_flight != CommitTs::MAX {
            return Ok(None);
        }
        let Some(data) = &state.data else { return Ok(None) };
        let blocks = image::encode(&self.env, data, self.bug);
        state.image_number += 1;
        let number = state.image_number;
        state.oldest_in_flight = std::mem::replace(&mut state.oldest_unwritten, CommitTs::MAX);
        let log_need = if self.bug == Bug::WriteBackOutrunsTheLog { Lsn::ZERO } else { state.log_need };
        drop(state);
        let done = Box::new(move |outcome: Result<Vec<Arc<Block>>>| {
            let mut state = self.state.lock();
            if state.image_number != number {
                return;
            }
            let oldest = std::mem::replace(&mut state.oldest_in_flight, CommitTs::MAX);
            match outcome {
                Ok(blocks) => state.image = blocks,
                Err(_) if self.bug == Bug::FailedWritesCountAsDone => {}
                Err(_) => state.oldest_unwritten = state.oldest_unwritten.min(oldest),
            }
        });
        Ok(Some(PageWrite { blocks, log_need, done }))
    }
}

/// The leaf as a source of a merge; each call asks again from where the last one ended.
struct LeafSource {
    index: Reference,
    snapshot: CommitTs,
    range: KeyRange,
    direction: Direction,
}

impl Source for LeafSource {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        out.clear();
        if self.range.is_empty() {
            return Ok(false);
        }
        let (snapshot, range, direction) = (self.snapshot, &self.range, self.direction);
        let last =
            self.index.with(|state| state.data.as_ref().expect("loaded").copy(snapshot, range, direction, max, out))?;
        let Some(last) = last else { return Ok(false) };
        let by = |step: i8| {
            let mut key = last;
            if let (true, Some(end)) = (self.index.bug(Bug::CursorsSkipAtResume), key.last_mut()) {
                *end = end.wrapping_add_signed(step);
            }
            key
        };
        match self.direction {
            Direction::Forward => self.range.low = Bound::Excluded(by(2)),
            Direction::Backward => self.range.high = Bound::Excluded(by(-2)),
        }
        Ok(true)
    }
}
