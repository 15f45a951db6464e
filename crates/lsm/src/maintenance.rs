//! Flushes and merges, in bounded steps.
//!
//! One call of `maintain` does one of these, the first that has work: (1) a piece of a flush; a memtable that has grown is sealed first;
//! (2) a piece of the merge that makes attached runs a run; (3) a piece of a merge that was chosen ([`choose`]), the smaller one if there are
//! two; (4) blocks in extents that are mostly free are given up.
//!
//! What a merge may collect is found in this order: its caller took the view; then the list is taken. Whatever was applied at or below the
//! view's floor is in the list. So of a key that has a tombstone at or below the floor, and below the lowest timestamp of every source
//! outside of the merge, the merge sees all that is older, and all that ever will be ([`whole_below`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{CommitTs, Fault, GcView, Result};
use index::{Progress, Upkeep};
use store::{AllocScope, Class};

use crate::choose::{Candidate, Choice, choose};
use crate::collect::Collection;
use crate::input::Input;
use crate::lsm::{Attached, Core, Sources, below_late};
use crate::memtable::Memtable;
use crate::merge::Merge;
use crate::run::Run;

/// Bytes looked at in one step.
const STEP_BYTES: usize = 128 << 10;
/// Attached runs merged at once.
const ATTACHED_MAX: usize = 16;
/// Memtables of all indexes together may take one in so many bytes of the budget; then those go that take more than
/// [`SEALED_BYTES_MIN`].
const MEMORY_SHARE: u64 = 4;
/// Less is not worth a run.
const SEALED_BYTES_MIN: u64 = 32 << 10;

/// A flush under way.
pub(crate) struct Flush {
    table: Arc<Memtable>,
    merge: Merge,
}

/// What one call leaves for later ones.
#[derive(Default)]
pub(crate) struct Plan {
    jobs: Vec<Job>,
    /// Extents that were passed, and the checkpoint from which on they are looked at again.
    cleaning: BTreeMap<u32, u64>,
    /// Runs of a merge that met damage, and attached ones: it would meet it again.
    damaged: Vec<Arc<Run>>,
    damaged_attached: Vec<Arc<Attached>>,
    /// Runs of a merge of what everybody sees that all the same could not drop what is dead: nobody tries again.
    unpurged: Vec<Arc<Run>>,
}

/// A merge under way.
struct Job {
    merge: Merge,
    runs: Vec<Arc<Run>>,
    attached: Vec<Arc<Attached>>,
    bytes: u64,
    /// Everybody sees all of it, and nothing older lies elsewhere.
    is_settled: bool,
}

impl Core {
    pub(crate) fn maintain(&self, upkeep: &Upkeep<'_>) -> Result<Progress> {
        // Waits for another thread's step: who asks until nothing is left must not take "busy" for "done".
        let mut plan = self.plan.lock();
        if self.is_memtable_due() {
            self.seal();
        }
        if let Some(entries) = self.flush_some(Some(&upkeep.view))? {
            return Ok(Progress { entries, more: true });
        }
        self.begin_merge(&mut plan, upkeep)?;
        // The smallest: what is attached, or a level.
        let next = (0..plan.jobs.len()).min_by_key(|i| (plan.jobs[*i].attached.is_empty(), plan.jobs[*i].bytes));
        if let Some(next) = next.filter(|next| !upkeep.tight || !plan.jobs[*next].attached.is_empty()) {
            let entries = self.go_on(&mut plan, next)?;
            return Ok(Progress { entries, more: true });
        }
        self.pass_extents(&mut plan);
        Ok(Progress::default())
    }

    /// True if the memtable takes more than it should.
    fn is_memtable_due(&self) -> bool {
        let sources = self.sources();
        let (bytes, budget) = (sources.active.memory_bytes(), self.env.cache.budget());
        // What is sealed gives memory back soon: another one, half full, would only be another run.
        let may_be_small = bytes > SEALED_BYTES_MIN && sources.sealed.is_empty();
        bytes > self.memtable_bytes_max()
            || (may_be_small && budget.used(Class::Buffers) > budget.limit() / MEMORY_SHARE)
    }

    /// Seals the memtable, if it has anything.
    pub(crate) fn seal(&self) {
        if self.sources.read().active.is_empty() {
            return;
        }
        let fresh = self.memtable();
        self.update(|sources| {
            if !sources.active.is_empty() {
                sources.sealed.push(std::mem::replace(&mut sources.active, fresh));
            }
        });
    }

    /// One piece of the oldest sealed memtable's flush; nothing is collected without a view. None if there is none.
    fn flush_some(&self, view: Option<&GcView>) -> Result<Option<u64>> {
        let mut under_way = self.flushing.lock();
        if under_way.is_none() {
            let (late, sources) = self.late_and_sources();
            let Some(table) = sources.sealed.first() else { return Ok(None) };
            let below = whole_below(&sources, late, Some(table), &[], &[]);
            let collection = match view {
                Some(view) => Collection::new(below_late(view, late), below),
                None => Collection::nothing(),
            };
            let inputs = vec![Input::memtable(table.clone())];
            let merge = Merge::new(&self.env, 0, AllocScope::RESERVE, inputs, collection, table.newest());
            *under_way = Some(Flush { table: table.clone(), merge });
        }
        let flush = under_way.as_mut().expect("just made");
        let step = flush.merge.step(STEP_BYTES).inspect_err(|_| *under_way = None)?;
        if step.is_done {
            let Flush { table, merge } = under_way.take().expect("it was just stepped");
            self.log_need.fetch_max(merge.log_need.0, Ordering::Release);
            let (run, bytes) = merge.finish()?;
            self.counters.add_flushed(bytes);
            vfs::thread::point("lsm.flushed");
            self.update(|sources| {
                sources.sealed.retain(|other| !Arc::ptr_eq(other, &table));
                sources.runs.extend(run);
                sources.sort();
            });
        }
        Ok(Some(step.entries.max(1)))
    }

    /// Flushes every memtable that is sealed now.
    pub(crate) fn flush_sealed(&self, upkeep: &Upkeep<'_>) -> Result<()> {
        let wanted = self.sources().sealed.clone();
        let is_left =
            || self.sources.read().sealed.iter().any(|table| wanted.iter().any(|other| Arc::ptr_eq(table, other)));
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

    /// Begins the merge that is due, if there is one and its like is not under way.
    fn begin_merge(&self, plan: &mut Plan, upkeep: &Upkeep<'_>) -> Result<()> {
        let (late, sources) = self.late_and_sources();
        if plan.jobs.iter().all(|job| job.attached.is_empty()) {
            self.begin_attached(plan, upkeep, (late, &sources))?;
        }
        if upkeep.tight {
            // What they have written is room for others.
            plan.jobs.retain(|job| !job.attached.is_empty());
            return Ok(());
        }
        for list in [&mut plan.damaged, &mut plan.unpurged] {
            list.retain(|run| sources.runs.iter().any(|other| Arc::ptr_eq(run, other)));
        }
        let busy = || plan.jobs.iter().flat_map(|job| &job.runs).chain(&plan.damaged);
        let is_busy = |run: &Arc<Run>| busy().any(|other| Arc::ptr_eq(other, run));
        let settled = settled_below(&sources, late, &upkeep.view);
        let candidate = |run: &Arc<Run>| Candidate {
            level: run.info.level,
            bytes: run.info.stored_bytes,
            entries: run.info.entries,
            live: run.info.live,
            is_settled: run.info.newest <= settled && !plan.unpurged.iter().any(|other| Arc::ptr_eq(run, other)),
            is_busy: is_busy(run),
        };
        let candidates: Vec<_> = sources.runs.iter().map(candidate).collect();
        if let Some(Choice { inputs, level }) = choose(&candidates) {
            let runs: Vec<_> = inputs.into_iter().map(|i| sources.runs[i].clone()).collect();
            let below = whole_below(&sources, late, None, &[], &runs);
            let collection = Collection::new(below_late(&upkeep.view, late), below);
            let mut inputs = Vec::new();
            for run in &runs {
                inputs.push(Input::run(&self.env, run.clone()).inspect_err(|fault| {
                    // The others may be merged without it.
                    plan.damaged.extend(is_damage(fault).then(|| run.clone()));
                })?);
            }
            let need = runs.iter().map(|run| run.info.log_need).max().expect("at least one");
            let merge = Merge::new(&self.env, level, AllocScope::ORDINARY, inputs, collection, need);
            let bytes = runs.iter().map(|run| run.info.stored_bytes).sum();
            let is_settled = runs.iter().all(|run| run.info.newest <= settled);
            plan.jobs.push(Job { merge, runs, attached: Vec::new(), bytes, is_settled });
        }
        Ok(())
    }

    /// Begins to make a run of the oldest attached ones.
    fn begin_attached(
        &self,
        plan: &mut Plan,
        upkeep: &Upkeep<'_>,
        (late, sources): (CommitTs, &Sources),
    ) -> Result<()> {
        let is_in = |list: &[Arc<Attached>], run: &Arc<Attached>| list.iter().any(|other| Arc::ptr_eq(run, other));
        plan.damaged_attached.retain(|run| is_in(&sources.attached, run));
        let sound = sources.attached.iter().filter(|run| !is_in(&plan.damaged_attached, run));
        let attached: Vec<_> = sound.take(ATTACHED_MAX).cloned().collect();
        let Some(need) = attached.iter().map(|run| run.ts).max() else { return Ok(()) };
        let below = whole_below(sources, late, None, &attached, &[]);
        let collection = Collection::new(below_late(&upkeep.view, late), below);
        let mut inputs = Vec::new();
        for run in &attached {
            inputs.push(Input::attached(run).inspect_err(|fault| {
                plan.damaged_attached.extend(is_damage(fault).then(|| run.clone()));
            })?);
        }
        let merge = Merge::new(&self.env, 0, AllocScope::RESERVE, inputs, collection, need);
        let bytes = attached.iter().map(|run| run.run.bytes()).sum();
        plan.jobs.push(Job { merge, runs: Vec::new(), attached, bytes, is_settled: false });
        Ok(())
    }

    /// One piece of a merge; at its end its run takes the place of its sources.
    fn go_on(&self, plan: &mut Plan, at: usize) -> Result<u64> {
        // What was written so far is given back; the sources are as they were.
        let step = plan.jobs[at].merge.step(STEP_BYTES).inspect_err(|fault| {
            let job = plan.jobs.swap_remove(at);
            if is_damage(fault) {
                plan.damaged.extend(job.runs);
                plan.damaged_attached.extend(job.attached);
            }
        })?;
        if step.is_done {
            let Job { merge, runs, attached, is_settled, .. } = plan.jobs.swap_remove(at);
            self.log_need.fetch_max(merge.log_need.0, Ordering::Release);
            let (run, bytes) = merge.finish()?;
            plan.unpurged.extend(run.iter().filter(|run| is_settled && run.info.entries > run.info.live).cloned());
            self.counters.add_merged(bytes);
            vfs::thread::point("lsm.merged");
            self.update(|sources| {
                sources.runs.retain(|other| !runs.iter().any(|run| Arc::ptr_eq(run, other)));
                sources.attached.retain(|other| !attached.iter().any(|run| Arc::ptr_eq(run, other)));
                sources.runs.extend(run);
                sources.sort();
            });
        }
        Ok(step.entries.max(1))
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
        *self.plan.lock() = Plan::default();
        *self.flushing.lock() = None;
    }
}

/// It would be met again.
fn is_damage(fault: &Fault) -> bool {
    matches!(fault, Fault::Corrupt(_))
}

/// Of a key with a version at or below this, everything older lies in these sources: the lowest timestamp of all others, less one.
fn whole_below(
    sources: &Sources,
    late: CommitTs,
    table: Option<&Arc<Memtable>>,
    attached: &[Arc<Attached>],
    runs: &[Arc<Run>],
) -> CommitTs {
    let tables = std::iter::once(&sources.active).chain(&sources.sealed);
    let tables =
        tables.filter(|other| !table.is_some_and(|table| Arc::ptr_eq(table, other))).map(|table| table.oldest());
    let is_out = |other: &&Arc<Attached>| !attached.iter().any(|run| Arc::ptr_eq(run, other));
    let other_attached = sources.attached.iter().filter(is_out).map(|run| run.ts);
    let is_out = |other: &&Arc<Run>| !runs.iter().any(|run| Arc::ptr_eq(run, other));
    let other_runs = sources.runs.iter().filter(is_out).map(|run| run.info.oldest);
    let lowest = tables.chain(other_attached).chain(other_runs).min().unwrap_or(CommitTs::MAX);
    CommitTs(lowest.min(late).0.saturating_sub(1))
}

/// Everybody sees what is at or below this, and all of it lies in runs with nothing above.
fn settled_below(sources: &Sources, late: CommitTs, view: &GcView) -> CommitTs {
    let mut below = view.oldest().min(whole_below(sources, late, None, &[], &sources.runs));
    loop {
        let others = sources.runs.iter().filter(|run| run.info.newest > below);
        let oldest = others.map(|run| run.info.oldest).min().unwrap_or(CommitTs::MAX);
        let next = below.min(CommitTs(oldest.0.saturating_sub(1)));
        if next == below {
            return below;
        }
        below = next;
    }
}
