//! A structure and another one beside it that gets all that is written to the first: the rows of a table while, and for a moment
//! after, they are made anew in another structure ([`crate::ddl`]'s `rows`).
//!
//! A commit reserves in both or in neither, so that both have it or it did not happen (rule A1). Which of them it writes to is
//! settled by what it has reserved: one that is given up meanwhile gets it all the same, which harms nobody.
//!
//! Damage of old ([`Was`]) behind the switch stops nobody who writes: new has everything. Old is left out of all that is written
//! then. Snapshots from before go on reading what can be read of it, for they see nothing that is left out. Transactions that came in
//! before get `DefinitionChanged` from whatever they read next, and begin anew.
//!
//! Everything but writing is asked of the main one, for the other has an entry of its own that keeps it in shape and names it in
//! the manifest.

use std::any::Any;
use std::ops::Bound;
use std::sync::{Arc, OnceLock, Weak};

use base::{CommitTs, Corruption, Fault, GcView, Result};
use index::{
    Assisted, Batch, Cursor, Direction, Index, IndexShape, IndexState, IndexStats, LogGate, Memtables, Progress,
    ReadAt, Reservation, Reserved, Upkeep, VerifyReport, VisitBlock,
};
use store::run::Run;
use store::{ExtentId, Funds, Weights};

use crate::entry::IndexEntry;
use crate::error::Error;

/// Two structures that get the same writes.
pub struct Pair {
    main: Arc<dyn Index>,
    beside: Arc<dyn Index>,
    other: Other,
    /// Whoever has the pair of a change that was given up reads and writes old: he counts among those who have its entry. Who has that
    /// of a switch counts among those who have the entry that new was built under, which is freed if the switch goes back.
    #[expect(dead_code, reason = "held")]
    of: Arc<IndexEntry>,
}

/// What the one beside is.
enum Other {
    /// It is being built: what it meets fails the build, not the writer. Once it is there for good, what the main one was.
    Build(Arc<IndexEntry>, OnceLock<Arc<Was>>),
    /// It was the main one: whoever looks from before its end reads it.
    Former(Arc<Was>),
}

/// Rows as they were before they were made anew, which is so for good.
pub struct Was {
    /// Their structure, in the manifest by a number of its own.
    pub entry: Arc<IndexEntry>,
    /// Snapshots older than this read it.
    pub since: CommitTs,
    /// By what else it is read: nobody gets hold of these any more.
    before: [Weak<IndexEntry>; 2],
}

impl Was {
    pub fn new(entry: Arc<IndexEntry>, since: CommitTs, before: [&Arc<IndexEntry>; 2]) -> Arc<Self> {
        Arc::new(Self { entry, since, before: before.map(Arc::downgrade) })
    }

    /// Nobody came in before their end: snapshots alone read them, and those see nothing that is written from now on.
    pub fn has_snapshots_alone(&self) -> bool {
        self.before.iter().all(|entry| entry.strong_count() == 0)
    }

    /// They are written for who came in before, unless they are damaged.
    fn is_written(&self) -> bool {
        if self.has_snapshots_alone() {
            return false;
        }
        let is_damaged = self.entry.damage().is_some();
        if is_damaged {
            self.tell();
        }
        !is_damaged
    }

    /// Who came in before is told to begin anew: what is committed from here on is not written to what he reads. He is told before a
    /// commit leaves it out, and so before any lock or snapshot shows him that.
    fn tell(&self) {
        self.before.iter().filter_map(Weak::upgrade).for_each(|entry| entry.set_replaced());
    }

    /// Room in their structure. None if it is left out: damage met there is no writer's, for new has everything.
    fn reserve(&self, old: &dyn Index, batch: &Batch, funds: &mut Funds) -> Result<Option<Option<Reservation>>> {
        if !self.is_written() {
            return Ok(None);
        }
        old.reserve_from(batch, funds).map(Some).or_else(|fault| {
            self.entry.set_damaged(fault.into_damage()?);
            self.tell();
            Ok(None)
        })
    }
}

/// Room in the main one and in the one beside, as far as they are written.
struct Both(Option<Box<dyn Reserved>>, Option<Box<dyn Reserved>>);

impl Both {
    /// Of what was granted in either.
    fn of(main: Option<Reservation>, beside: Option<Reservation>) -> Reservation {
        let direct = |granted| match granted {
            None => Some(None),
            Some(Reservation::Direct(reserved)) => Some(Some(reserved)),
            Some(Reservation::TooCold) => None,
        };
        match (direct(main), direct(beside)) {
            (Some(main), Some(beside)) => Reservation::Direct(Box::new(Self(main, beside))),
            _ => Reservation::TooCold,
        }
    }
}

impl Reserved for Both {
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    fn held_bytes(&self) -> u64 {
        [&self.0, &self.1].into_iter().flatten().map(|reserved| reserved.held_bytes()).sum()
    }
}

impl Pair {
    /// Of the entry that is there with one that is being built.
    pub fn building(old: &Arc<IndexEntry>, build: Arc<IndexEntry>) -> Arc<Self> {
        let (main, beside) = (old.index.clone(), build.index.clone());
        Arc::new(Self { main, beside, other: Other::Build(build, OnceLock::new()), of: old.clone() })
    }

    /// With the one that was there before; `new` has all rows from its end on.
    pub fn succeeding(new: &Arc<IndexEntry>, was: Arc<Was>) -> Arc<Self> {
        let (main, beside) = (new.index.clone(), was.entry.index.clone());
        Arc::new(Self { main, beside, other: Other::Former(was), of: new.clone() })
    }

    /// What was built has the place of the main one, for good.
    pub fn was_replaced(&self, was: Arc<Was>) {
        let Other::Build(_, replaced) = &self.other else { unreachable!("nothing was built") };
        let _ = replaced.set(was);
    }

    fn is_main_written(&self) -> bool {
        match &self.other {
            Other::Build(_, replaced) => replaced.get().is_none_or(|was| was.is_written()),
            Other::Former(_) => true,
        }
    }

    fn is_beside_written(&self) -> bool {
        match &self.other {
            Other::Build(build, _) => build.is_written(),
            Other::Former(was) => was.is_written(),
        }
    }

    /// None if it is left out.
    fn reserve_main(&self, batch: &Batch, funds: &mut Funds) -> Result<Option<Option<Reservation>>> {
        match &self.other {
            Other::Build(_, replaced) if replaced.get().is_some() => {
                replaced.get().expect("just looked at").reserve(&*self.main, batch, funds)
            }
            _ => self.main.reserve_from(batch, funds).map(Some),
        }
    }

    /// The same. What a build meets is the build's as long as that can fail, and else the writer's.
    fn reserve_beside(&self, batch: &Batch, funds: &mut Funds) -> Result<Option<Option<Reservation>>> {
        let build = match &self.other {
            Other::Build(build, _) => build,
            Other::Former(was) => return was.reserve(&*self.beside, batch, funds),
        };
        if !build.is_written() {
            return Ok(None);
        }
        self.beside.reserve_from(batch, funds).map(Some).or_else(|fault| {
            let damage = fault.into_damage()?;
            let failed = build.fail_build(Error::Corrupt(damage.clone()));
            if failed { Ok(None) } else { Err(Fault::Corrupt(damage)) }
        })
    }

    /// Who has what is read at this moment.
    fn of(&self, at: ReadAt) -> &dyn Index {
        match (&self.other, at) {
            (Other::Former(was), ReadAt::Snapshot(ts)) if ts < was.since => &*self.beside,
            _ => &*self.main,
        }
    }
}

impl Index for Pair {
    fn reserve_from(&self, batch: &Batch, funds: &mut Funds) -> Result<Option<Reservation>> {
        let main = self.reserve_main(batch, funds)?;
        // The other is asked all the same: what both need is waited for together.
        let beside = self.reserve_beside(batch, funds)?;
        match (main, beside) {
            (Some(None), _) | (_, Some(None)) => Ok(None),
            (main, beside) => Ok(Some(Both::of(main.flatten(), beside.flatten()))),
        }
    }

    fn apply(&self, batch: &Batch, reserved: Box<dyn Reserved>, ts: CommitTs, view: &GcView) {
        let reserved: Box<dyn Any + Send> = reserved.into_any();
        let Both(main, beside) = *reserved.downcast::<Both>().expect("a reservation of this pair");
        if let Some(main) = main {
            self.main.apply(batch, main, ts, view);
        }
        vfs::thread::point("pair.between");
        if let Some(beside) = beside {
            self.beside.apply(batch, beside, ts, view);
        }
    }

    fn attach(&self, run: Run, ts: CommitTs) {
        if self.is_beside_written() {
            self.beside.attach(run.clone(), ts);
        }
        if self.is_main_written() {
            self.main.attach(run, ts);
        }
    }

    fn expect_late(&self, ts: Option<CommitTs>) {
        self.main.expect_late(ts);
    }

    fn get_many(&self, at: ReadAt, keys: &[&[u8]], found: &mut dyn FnMut(usize, CommitTs, &[u8])) -> Result<()> {
        self.of(at).get_many(at, keys, found)
    }

    fn cursor(&self, at: ReadAt, range: (Bound<&[u8]>, Bound<&[u8]>), direction: Direction) -> Box<dyn Cursor> {
        self.of(at).cursor(at, range, direction)
    }

    fn clear_away(&self, upkeep: &Upkeep<'_>, ts: CommitTs, entries: u64) -> Result<u64> {
        self.main.clear_away(upkeep, ts, entries)
    }

    fn clears_behind(&self, batch: &Batch) -> bool {
        self.main.clears_behind(batch)
    }

    fn maintain(&self, upkeep: &Upkeep<'_>) -> Result<Progress> {
        self.main.maintain(upkeep)
    }

    fn assist(&self, upkeep: &Upkeep<'_>, may_split: bool) -> Result<Assisted> {
        self.main.assist(upkeep, may_split)
    }

    fn relieve(&self, log: &dyn LogGate) -> Result<u64> {
        self.main.relieve(log)
    }

    fn memtables(&self) -> Memtables {
        self.main.memtables()
    }

    fn seal(&self) -> u64 {
        self.main.seal()
    }

    fn relievable_bytes(&self) -> u64 {
        self.main.relievable_bytes()
    }

    fn superseded_bytes(&self) -> u64 {
        self.main.superseded_bytes()
    }

    fn checkpoint(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        self.main.checkpoint(upkeep)
    }

    fn checkpoint_written(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        self.main.checkpoint_written(upkeep)
    }

    fn weigh(&self, weights: &mut Weights) -> Result<()> {
        self.main.weigh(weights)
    }

    fn evacuate(&self, extents: &[ExtentId], upkeep: &Upkeep<'_>) -> Result<()> {
        self.main.evacuate(extents, upkeep)
    }

    fn stats(&self) -> IndexStats {
        self.main.stats()
    }

    fn shape(&self) -> Result<IndexShape> {
        self.main.shape()
    }

    fn estimate(&self, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<u64> {
        self.main.estimate(range)
    }

    fn split_keys(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        self.main.split_keys(count)
    }

    fn verify(&self) -> Result<VerifyReport> {
        self.main.verify()
    }

    fn reach(&self, visit: &mut VisitBlock<'_>) -> Result<Vec<Corruption>> {
        self.main.reach(visit)
    }

    fn destroy(&self) -> Result<()> {
        self.main.destroy()
    }
}
