//! Flushes and merges, in bounded steps.
//!
//! One call of `maintain` does one of these, the first that has work: (0) a look at what was deleted together
//! ([`explore`](crate::explore)), unless the call before did that: deletes may come faster than they are looked at, and flushes and merges go on; runs of which all has expired go, which takes no space; (1) a piece of a flush; a memtable that has grown is sealed first;
//! (2) a piece of the merge that makes attached runs a run; (3) a piece of a merge that was chosen, the smallest one if there are
//! several ([`jobs`](crate::jobs)); (4) blocks in extents that are mostly free are given up; (5) a look whether anything still lies in a dead span.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{GcView, Result};
use index::expiry::has_expired;
use index::{Assisted, Progress, Subcompactions, Upkeep};

use crate::collect::Collection;
use crate::input::Input;
use crate::jobs::{Plan, elsewhere, of_level_zero};
use crate::lsm::{Core, Sources, below_late};
use crate::memtable::Memtable;
use crate::merge::Merge;

/// Bytes looked at in one step.
pub(crate) const STEP_BYTES: usize = 128 << 10;
/// A flush under way.
pub(crate) struct Flush {
    table: Arc<Memtable>,
    merge: Merge,
    /// Versions that it has been through.
    entries: u64,
}

impl Core {
    pub(crate) fn maintain(self: &Arc<Self>, upkeep: &Upkeep<'_>) -> Result<Progress> {
        // What cannot be read there is met by others.
        let may_look = !self.plan.lock().has_looked;
        let looked = if may_look { self.follow_hint().unwrap_or(0) } else { 0 };
        let mut plan = self.plan.lock();
        plan.has_looked = looked > 0;
        if looked > 0 {
            return Ok(Progress { entries: looked, more: true });
        }
        // Before whatever takes space.
        if self.let_expired_go(&mut plan, &upkeep.view)? {
            return Ok(Progress { entries: 1, more: true });
        }
        // A thread that comes to help finds the merges at rest while this one flushes.
        drop(plan);
        if self.is_memtable_due() || self.is_memtable_expired(&upkeep.view) {
            self.seal();
        }
        if let Some(entries) = self.flush_some(Some(&upkeep.view))? {
            return Ok(Progress { entries, more: true });
        }
        let mut plan = self.plan.lock();
        let is_moved = self.begin_merge(&mut plan, upkeep)?;
        if let Some(next) = plan.next(upkeep.tight) {
            let entries = self.go_on(plan, next, &upkeep.view)?;
            return Ok(Progress { entries, more: true });
        }
        if is_moved {
            return Ok(Progress { entries: 1, more: true });
        }
        if plan.in_hand > 0 {
            // Another thread's step: who asks until nothing is left must not take "busy" for "done".
            self.stepped.wait(&mut plan);
            return Ok(Progress { entries: 0, more: true });
        }
        self.pass_extents(&mut plan);
        // Nothing else to do: the next hint after all.
        let looked = self.follow_hint().unwrap_or(0);
        let looked = if looked == 0 { self.forget_hollow().unwrap_or(0) } else { looked };
        Ok(Progress { entries: looked, more: looked > 0 })
    }

    /// A piece of a merge that no thread has in hand, for a thread that has nothing of its own to do. If there is none, and it may ask for that, what others
    /// have in hand is cut in two as soon as that can be.
    pub(crate) fn assist(&self, upkeep: &Upkeep<'_>, may_split: bool) -> Result<Assisted> {
        if upkeep.tight || self.env.options.policy.subcompactions == Subcompactions::Off {
            return Ok(Assisted::Nothing);
        }
        // Whoever has the plan chooses.
        let Some(mut plan) = self.plan.try_lock() else { return Ok(Assisted::Nothing) };
        if let Some(next) = plan.next(false) {
            self.go_on(plan, next, &upkeep.view)?;
            return Ok(Assisted::Step);
        }
        if !may_split || plan.in_hand == 0 {
            return Ok(Assisted::Nothing);
        }
        plan.is_split_wanted = true;
        Ok(Assisted::Asked)
    }

    /// True if the memtable takes more than it should.
    fn is_memtable_due(&self) -> bool {
        self.sources().active.memory_bytes() > self.memtable_bytes_max()
    }

    /// True if nobody sees anything in the memtable any more: its flush gives the memory back and writes nothing.
    fn is_memtable_expired(&self, view: &GcView) -> bool {
        let table = &self.sources().active;
        !table.is_empty() && has_expired(table.newest(), self.cut_of_all(view))
    }

    /// Seals the memtable, if it has anything.
    pub(crate) fn seal(&self) {
        if !self.sources.read().active.is_empty() {
            self.seal_if(|_| true);
        }
    }

    /// The same, if that holds of the list. Returns its bytes.
    pub(crate) fn seal_if(&self, is_wanted: impl FnOnce(&Sources) -> bool) -> u64 {
        let fresh = self.memtable();
        self.update(|sources| {
            if sources.active.is_empty() || !is_wanted(sources) {
                return 0;
            }
            sources.active.close(&self.env.cache);
            let bytes = sources.active.memory_bytes();
            sources.sealed.push(std::mem::replace(&mut sources.active, fresh));
            bytes
        })
    }

    /// One piece of the oldest sealed memtable's flush; nothing is collected without a view. None if there is none.
    fn flush_some(&self, view: Option<&GcView>) -> Result<Option<u64>> {
        let mut under_way = self.flushing.lock();
        if under_way.is_none() {
            let (late, sources) = self.late_and_sources();
            let Some(table) = sources.sealed.first() else { return Ok(None) };
            let collection = match view {
                Some(view) => {
                    let elsewhere = elsewhere(&sources, late, Some(table), &[], &[]);
                    self.collection(below_late(view, late), elsewhere)
                }
                None => Collection::nothing(),
            };
            let inputs = vec![Input::memtable(table.clone())];
            let merge = Merge::new(&self.env, of_level_zero(u64::MAX), inputs, collection, table.newest());
            table.note_flushed(0);
            *under_way = Some(Flush { table: table.clone(), merge, entries: 0 });
        }
        let flush = under_way.as_mut().expect("just made");
        let step = match flush.merge.step(STEP_BYTES) {
            Ok(step) => step,
            Err(fault) => {
                flush.table.note_flushed(0);
                *under_way = None;
                return Err(fault);
            }
        };
        flush.entries += step.entries;
        flush.table.note_flushed(flush.entries);
        if step.is_done {
            let Flush { table, mut merge, .. } = under_way.take().expect("it was just stepped");
            self.log_need.fetch_max(merge.log_need.0, Ordering::Release);
            let (runs, bytes) = merge.finish().inspect_err(|_| table.note_flushed(0))?;
            self.counters.add_expired(merge.pass_expired());
            self.counters.add_flushed(bytes);
            vfs::thread::point("lsm.flushed");
            self.update(|sources| {
                sources.sealed.retain(|other| !Arc::ptr_eq(other, &table));
                sources.runs.extend(runs);
                sources.arrange();
            });
        }
        Ok(Some(step.entries.max(1)))
    }

    /// Flushes every memtable that is sealed now.
    pub(crate) fn flush_sealed(&self, upkeep: &Upkeep<'_>) -> Result<()> {
        // Not kept until the last of them is flushed.
        let wanted: Vec<_> = self.sources().sealed.iter().map(Arc::downgrade).collect();
        let is_wanted = |table: &Arc<Memtable>| wanted.iter().any(|other| other.as_ptr() == Arc::as_ptr(table));
        let is_left = || self.sources.read().sealed.iter().any(is_wanted);
        while is_left() {
            upkeep.log.rest();
            self.flush_some(Some(&upkeep.view))?;
        }
        Ok(())
    }

    /// What [`Core::relieve`] could bring to disk, in bytes of memory.
    pub(crate) fn relievable_bytes(&self) -> u64 {
        self.sources().memtables().map(|table| table.memory_bytes()).sum()
    }

    /// A memtable to disk, for whoever waits for memory. Waits for none, and not for the merges. How many bytes.
    pub(crate) fn relieve(&self) -> Result<u64> {
        if self.sources.read().sealed.is_empty() {
            self.seal();
        }
        let Some(table) = self.sources().sealed.first().cloned() else { return Ok(0) };
        let is_left = || self.sources.read().sealed.iter().any(|other| Arc::ptr_eq(other, &table));
        while is_left() {
            self.flush_some(None)?;
        }
        Ok(table.memory_bytes().max(1))
    }

    /// Extents that are mostly free: their blocks move when their runs are merged. Nobody waits for that.
    fn pass_extents(&self, plan: &mut Plan) {
        let checkpoint = self.checkpoints.load(Ordering::Relaxed);
        plan.cleaning.retain(|_, again| *again > checkpoint);
        let untried = |extent| !plan.cleaning.contains_key(&extent);
        let extents = self.env.space.cleaning_candidates(u64::MAX, untried);
        if !extents.is_empty() {
            self.env.space.note_passed(&extents);
            plan.cleaning.extend(extents.into_iter().map(|extent| (extent, checkpoint + 2)));
        }
    }

    /// Nothing is under way any more.
    pub(crate) fn abandon(&self) {
        let mut plan = self.plan.lock();
        plan.clear();
        while plan.in_hand > 0 {
            self.stepped.wait(&mut plan);
            // Somebody may have begun another one.
            plan.clear();
        }
        drop(plan);
        if let Some(flush) = self.flushing.lock().take() {
            flush.table.note_flushed(0);
        }
    }
}
