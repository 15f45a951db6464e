//! A damaged secondary index is set aside, and made anew from its table [P10].
//!
//! Everything in a secondary index follows from the rows, so its damage need not stop anybody. When damage is met (by a
//! commit that prepares its entries, in the background, at open, or by a reader, who leaves word):
//!
//! 1. The catalog row of the index becomes that of a quarantined one: a logged transaction. From here on commits leave
//!    the index out; they are behind that record in the log, so whoever finds them there finds it too.
//! 2. In place of the structure stands [`Unusable`]; it has no state in the manifest. Readers get `Quarantined`.
//! 3. The structure goes the way of dropped ones. What it cannot name any more, because the nodes above are damaged,
//!    is found by elimination, in the next checkpoint: bytes counted that no other index reaches. That reads all inner
//!    nodes of the database.
//!
//! Killed after 1: the manifest still has the old state; the next open frees it in the same way. Killed before: nothing
//! happened, and the next who meets the damage begins again.
//!
//! The way back is a build under a new number and one catalog transaction (`Engine::rebuild_index`); killed in the middle,
//! the index is still quarantined, or made.
//!
//! A damaged primary or plain index cannot be made from anything. Once a commit, the background or replay met its damage
//! it is only read, so that what can be read is saved; everything else goes on. Nobody keeps it in shape any more: its runs
//! stay attached, and so F and the log behind it stay where they are needed. Nothing of this is written down: the next
//! opening meets the damage, or does not.

use std::ops::Bound;
use std::sync::Arc;

use base::{CommitTs, Corruption, Fault, GcView, IndexId};
use index::{
    Batch, Cursor, Direction, EntryBatch, Index, IndexState, IndexStats, Progress, ReadAt, Reservation, Reserved,
    Upkeep, VerifyReport, VisitBlock,
};
use store::{Funds, Run, Tally};

use crate::catalog::{self, IndexDef, Role};
use crate::commit::Room;
use crate::engine::Engine;
use crate::entry::{IndexEntry, TableEntry};
use crate::error::{Error, Result};

/// In place of a quarantined index.
struct Unusable(IndexId);

impl Unusable {
    fn problem(&self) -> Corruption {
        let remedy = "a quarantined one; rebuild it from its table";
        Corruption::of_index(self.0, None, "quarantined index", "a usable one", remedy)
    }
}

impl Index for Unusable {
    fn reserve_from(&self, _: &Batch, _: &mut Funds) -> base::Result<Option<Reservation>> {
        Err(self.problem().into())
    }

    fn apply(&self, _: &Batch, _: Box<dyn Reserved>, _: CommitTs, _: &GcView) {
        unreachable!("it grants no reservation");
    }

    fn attach(&self, _: Run, _: CommitTs) {}

    fn expect_late(&self, _: Option<CommitTs>) {}

    fn get_many(&self, _: ReadAt, _: &[&[u8]], _: &mut dyn FnMut(usize, CommitTs, &[u8])) -> base::Result<()> {
        Err(self.problem().into())
    }

    fn cursor(&self, _: ReadAt, _: (Bound<&[u8]>, Bound<&[u8]>), _: Direction) -> Box<dyn Cursor> {
        Box::new(Unusable(self.0))
    }

    fn maintain(&self, _: &Upkeep<'_>) -> base::Result<Progress> {
        Ok(Progress::default())
    }

    fn checkpoint(&self, _: &Upkeep<'_>) -> base::Result<IndexState> {
        unreachable!("the manifest has no state of it");
    }

    fn stats(&self) -> IndexStats {
        IndexStats::default()
    }

    fn estimate(&self, _: (Bound<&[u8]>, Bound<&[u8]>)) -> base::Result<u64> {
        Err(self.problem().into())
    }

    fn split_keys(&self, _: usize) -> base::Result<Vec<Vec<u8>>> {
        Err(self.problem().into())
    }

    fn verify(&self) -> base::Result<VerifyReport> {
        Ok(VerifyReport { problems: vec![self.problem()], ..VerifyReport::default() })
    }

    fn reach(&self, _: &mut VisitBlock<'_>) -> base::Result<Vec<Corruption>> {
        Ok(Vec::new())
    }

    fn destroy(&self) -> base::Result<()> {
        Ok(())
    }
}

impl Cursor for Unusable {
    fn fill(&mut self, _: &mut EntryBatch, _: usize) -> base::Result<bool> {
        Err(self.problem().into())
    }
}

/// The entry of a quarantined index.
pub fn entry(def: &IndexDef) -> Arc<IndexEntry> {
    let def = IndexDef { quarantined: true, ..def.clone() };
    let unusable = Arc::new(Unusable(def.id));
    let entry = IndexEntry::new(def, unusable, CommitTs::ZERO);
    entry.set_quarantined();
    entry
}

impl Engine {
    /// Steps 1 to 3, unless somebody was faster, or it is no secondary index that its table uses.
    pub fn quarantine(&self, damaged: &Arc<IndexEntry>) -> Result<()> {
        let _rows = self.catalog_rows.lock();
        self.quarantine_under(damaged)
    }

    /// The caller holds `catalog_rows`.
    fn quarantine_under(&self, damaged: &Arc<IndexEntry>) -> Result<()> {
        let Role::Secondary(table) = damaged.def.role else { return Ok(()) };
        if damaged.is_quarantined() || damaged.dropped_at().is_some() {
            return Ok(());
        }
        // One that is being built is not in the catalog yet: its build fails, or it is asked for again behind it.
        let holds = |table: &TableEntry| table.shape().secondaries.iter().any(|entry| Arc::ptr_eq(entry, damaged));
        let table = self.names.read().tables.values().find(|entry| entry.id == table).cloned();
        let Some(table) = table.filter(|table| holds(table)) else { return Ok(()) };
        let stub = entry(&damaged.def_now());
        let ts = self.record_quarantine(&stub)?;
        vfs::thread::point("quarantine.recorded");
        damaged.set_quarantined();
        table.put_secondary(&stub);
        let mut names = self.names.write();
        damaged.set_dropped(ts);
        names.indexes.insert(stub.id(), stub);
        names.dropped.push(damaged.clone());
        Ok(())
    }

    /// Step 1.
    pub fn record_quarantine(&self, stub: &IndexEntry) -> Result<CommitTs> {
        let row = (catalog::index_key(stub.id()).to_vec(), Some(stub.def.encode()));
        self.commit_catalog(vec![row], Room::Reserve)
    }

    /// What to do about a corruption that a commit met: true if the damaged index is quarantined now, so that the commit
    /// may go on without it.
    pub fn set_aside(&self, met: &Corruption) -> Result<bool> {
        let Some(entry) = met.index.and_then(|id| self.index(id)) else { return Ok(false) };
        // The commit is not to blame for the build.
        if entry.fail_build(Error::Corrupt(Box::new(met.clone()))) {
            return Ok(true);
        }
        self.quarantine(&entry)?;
        Ok(entry.is_quarantined())
    }

    /// The error of a commit that met damage which cannot be set aside: what cannot be made anew is only read from now on.
    pub fn damaged(&self, met: Box<Corruption>) -> Error {
        let entry = met.index.filter(|id| *id != IndexId::CATALOG).and_then(|id| self.index(id));
        let Some(entry) = entry.filter(|entry| !matches!(entry.def.role, Role::Secondary(_))) else {
            return Error::Corrupt(met);
        };
        entry.set_damaged(met.clone());
        self.check_undamaged(&entry).err().unwrap_or(Error::Corrupt(met))
    }

    /// Quarantines what readers and the background left word of.
    pub fn quarantine_noted(&self) -> Result<()> {
        self.noted().iter().try_for_each(|entry| self.quarantine(entry))
    }

    /// The same for the background, which neither waits for a change of definitions nor for a log that is full: whoever
    /// makes room in it may wait for the background.
    pub fn try_quarantine_noted(&self) -> Result<()> {
        let noted = self.noted();
        if noted.is_empty() || self.log_is_half_full() {
            return Ok(());
        }
        let Some(_rows) = self.catalog_rows.try_lock() else { return Ok(()) };
        noted.iter().try_for_each(|entry| self.quarantine_under(entry))
    }

    fn noted(&self) -> Vec<Arc<IndexEntry>> {
        let mut all = self.all_indexes();
        all.retain(|entry| entry.is_noted() && !entry.is_quarantined());
        all
    }

    /// The last of step 3, if there are blocks to be found: a part of a checkpoint, between its last root and the
    /// allocator's state. Only there is what is counted exactly what is named: a checkpoint that failed has counted leaves
    /// whose parents are not written, and to the walk they are nobody's.
    ///
    /// If an index cannot be walked its bytes would be taken for lost ones, so nothing is done. Whatever is freed after
    /// that makes it worth another look.
    pub fn reclaim_lost(&self, lost: &mut Lost) {
        if *lost != Lost::Due {
            return;
        }
        *lost = Lost::PutOff;
        let mut named = Tally::new(&self.space);
        for entry in self.upkept_indexes() {
            match entry.index.reach(&mut |at, _| named.add(at)) {
                Ok(problems) if problems.is_empty() => {}
                _ => return,
            }
        }
        self.space.reclaim(named);
        *lost = Lost::None;
    }
}

/// Blocks that are counted and have no owner: only a damaged node knew them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Lost {
    /// There are none.
    #[default]
    None,
    /// The next checkpoint looks for them.
    Due,
    /// It could not; the one behind the next freed index does.
    PutOff,
}

impl Lost {
    /// An index was freed, as far as it could be read.
    pub fn freed(&mut self, wholly: bool) {
        if !wholly || *self == Self::PutOff {
            *self = Self::Due;
        }
    }
}

/// What reading an index met, as the index's damage: a sector that cannot be read is no better than one that was changed.
/// For an index that cannot be made anew it stays what it is.
pub fn as_damage(entry: &IndexEntry, fault: Fault) -> Fault {
    if !matches!(entry.def.role, Role::Secondary(_)) {
        return fault;
    }
    fault.into_damage().map_or_else(|other| other, |damage| Fault::Corrupt(damage).of_index(entry.id()))
}

/// Runs `work` on an index; its corruption is noted if the index can be made anew, and all else comes back.
pub fn tolerating<T: Default>(entry: &IndexEntry, work: impl FnOnce() -> base::Result<T>) -> base::Result<T> {
    match work().map_err(|fault| as_damage(entry, fault)) {
        Err(Fault::Corrupt(_)) if matches!(entry.def.role, Role::Secondary(_)) => {
            entry.note_damage();
            Ok(T::default())
        }
        done => done,
    }
}

/// The same for what keeps an index in shape: one that cannot be made anew is only read from now on.
pub fn enduring<T: Default>(entry: &IndexEntry, work: impl FnOnce() -> base::Result<T>) -> base::Result<T> {
    match tolerating(entry, work) {
        Err(fault) if entry.id() != IndexId::CATALOG && !matches!(entry.def.role, Role::Secondary(_)) => {
            entry.set_damaged(fault.into_damage()?);
            Ok(T::default())
        }
        done => done,
    }
}
