//! Merges under way: what is chosen is carried out here, piece by piece.
//!
//! A merge of runs gives its sources back as it goes ([`Merge::cut`]): each [`CUT_RUNS`] runs that it has written take the place of
//! what they were made of, in one change of the list. What is left of the sources stays the merge's, and is where another one begins if
//! this one ends early. A run that is moved takes its own place, on another level.
//!
//! A step of a merge takes the plan's latch at its beginning and its end only: meanwhile other threads take other steps. A merge under way is taken
//! out of its job and put back ([`Core::go_on`]), so no two have the same one in hand; its runs stay the job's, and are nobody else's. For a thread that
//! finds nothing to do a large merge is cut in two ([`crate::split`]).
//!
//! What a merge may collect is found in this order: its caller took the view; then the list is taken. Whatever was applied at or below the
//! view's floor is in the list. So of a key that has a tombstone at or below the floor, and below the lowest timestamp of every source
//! outside of the merge that may have the key, the merge sees all that is older, and all that ever will be ([`elsewhere`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{CommitTs, Fault, GcView, Result};
use index::Upkeep;
use index::expiry::has_expired;
use store::AllocScope;
use vfs::sync::MutexGuard;

use crate::choose::{BOTTOM, Candidate, Choice, STRAND_BYTES, Situation, choose, damped};
use crate::collect::{Collection, Elsewhere};
use crate::input::Input;
use crate::lsm::{Attached, Core, Sources, below_late};
use crate::maintenance::STEP_BYTES;
use crate::memtable::Memtable;
use crate::merge::{Merge, Outcome, Step, Written};
use crate::run::Run;
use crate::strand::strands;
use crate::writer::level_compression;

/// Attached runs merged at once.
const ATTACHED_MAX: usize = 16;
/// Of the memory that a flush empties one in so many bytes is written, about: less what indexes and slack take, and compressed.
const FLUSH_SHARE: u64 = 2;
/// A merge writes runs of one in so many bytes of a flush, so that a level has several of them.
const RUN_SHARE: u64 = 4;
/// Data blocks of a run, at least.
const RUN_BLOCKS_MIN: u64 = 8;
/// Runs of an index, about, at most: those of a large one are larger.
const RUNS_MAX: u64 = 1024;
/// Runs that a merge writes before they take their place. A run that is cut in two for that needs a new index, a fortieth of it.
pub(crate) const CUT_RUNS: usize = 4;

/// What one call of `maintain` leaves for later ones.
#[derive(Default)]
pub(crate) struct Plan {
    pub jobs: Vec<Job>,
    /// Extents that were passed, and the checkpoint from which on they are looked at again.
    pub cleaning: BTreeMap<u32, u64>,
    /// Runs of a merge that met damage, and attached ones: it would meet it again.
    damaged: Vec<Arc<Run>>,
    damaged_attached: Vec<Arc<Attached>>,
    /// Runs of a merge for the sake of what is dead that all the same could not drop it: nobody tries again.
    unpurged: Vec<Arc<Run>>,
    /// What sizes of levels go by ([`damped`]).
    size_bytes: u64,
    /// [`Counters::more_strands`](crate::stats::Counters::more_strands) at the last merge for the sake of ranges.
    strands_paid: u64,
    /// The step before followed a hint.
    pub has_looked: bool,
    /// A thread found no merge that it could go on with: the next one that is large enough is cut in two.
    pub is_split_wanted: bool,
    /// Merges that threads have in hand.
    pub in_hand: usize,
    /// Jobs so far.
    jobs_so_far: u64,
}

/// A merge under way.
pub(crate) struct Job {
    number: u64,
    /// None while a thread has it in hand.
    merge: Option<Box<Merge>>,
    /// Those of the list that it has not done with.
    pub runs: Vec<Arc<Run>>,
    pub attached: Vec<Arc<Attached>>,
    pub bytes: u64,
    pub level: u8,
    pub is_purge: bool,
}

impl Plan {
    pub fn push(&mut self, job: Job) {
        self.jobs_so_far += 1;
        self.jobs.push(Job { number: self.jobs_so_far, ..job });
    }

    /// The smallest that no thread has in hand; on a tight disk of what is attached only.
    pub fn next(&self, tight: bool) -> Option<usize> {
        let is_next = |job: &Job| job.merge.is_some() && !(tight && job.attached.is_empty());
        let next = (0..self.jobs.len()).filter(|i| is_next(&self.jobs[*i]));
        // What is attached, or a level.
        next.min_by_key(|i| (self.jobs[*i].attached.is_empty(), self.jobs[*i].bytes))
    }

    /// Nothing is under way any more; a thread that comes back with something finds no job that it belongs to.
    pub fn clear(&mut self) {
        let Plan { in_hand, jobs_so_far, .. } = *self;
        *self = Plan { in_hand, jobs_so_far, ..Plan::default() };
    }
}

/// It would be met again.
fn is_damage(fault: &Fault) -> bool {
    matches!(fault, Fault::Corrupt(_))
}

/// A list that has these: the same runs, not ones like them.
fn has(list: &[Arc<Run>], run: &Arc<Run>) -> bool {
    list.iter().any(|other| Arc::ptr_eq(other, run))
}

impl Core {
    /// Begins what is due and not under way. True if a run was moved: that is done already.
    pub(crate) fn begin_merge(&self, plan: &mut Plan, upkeep: &Upkeep<'_>) -> Result<bool> {
        let (late, sources) = self.late_and_sources();
        if plan.jobs.iter().all(|job| job.attached.is_empty()) {
            self.begin_attached(plan, &sources, late, &upkeep.view)?;
        }
        if upkeep.tight {
            // What they have written is room for others, if that is what is short, and not what may be written in this second: then they wait. More than
            // memory can owe is what the engine looks for first, too.
            if !self.env.space.has_room(2 * self.env.cache.budget().limit()) {
                plan.jobs.retain(|job| !job.attached.is_empty() || job.merge.is_none());
            }
            return Ok(false);
        }
        match self.choose(plan, &sources, late, &upkeep.view) {
            Some(Choice::Move { input, level }) => {
                let run = &sources.runs[input];
                self.move_run(run, level).inspect_err(|fault| {
                    plan.damaged.extend(is_damage(fault).then(|| run.clone()));
                })?;
                Ok(true)
            }
            Some(Choice::Merge { inputs, level, is_purge, is_for_ranges }) => {
                if is_for_ranges {
                    plan.strands_paid = self.counters.more_strands();
                }
                let runs: Vec<_> = inputs.into_iter().map(|i| sources.runs[i].clone()).collect();
                for run in &runs {
                    run.top(&self.env).inspect_err(|fault| {
                        // The others may be merged without it.
                        plan.damaged.extend(is_damage(fault).then(|| run.clone()));
                    })?;
                }
                let job = self.job_of_runs(&sources, late, &upkeep.view, (runs, level, is_purge))?;
                if !self.split(plan, &job, &upkeep.view)? {
                    plan.push(job);
                }
                Ok(false)
            }
            None => Ok(false),
        }
    }

    /// What a pass may drop: by a view, and what has expired for all that it knows of.
    pub(crate) fn collection(&self, view: GcView, elsewhere: Elsewhere) -> Collection {
        let expired = self.cut_of_all(&view);
        Collection::new(view, elsewhere).of(&self.env.options).expiring(expired)
    }

    /// Lets runs go of which everything has expired for everybody. True if there were any.
    pub(crate) fn let_expired_go(&self, plan: &mut Plan, view: &GcView) -> Result<bool> {
        if self.env.expiry.is_none() {
            return Ok(false);
        }
        let (late, sources) = self.late_and_sources();
        let Some(runs) = self.expired_runs(plan, &sources, late, view) else { return Ok(false) };
        self.drop_expired(plan, &runs)?;
        Ok(true)
    }

    /// Runs of which everything has expired for everybody, and that no merge has; none if there are none.
    fn expired_runs(&self, plan: &Plan, sources: &Sources, late: CommitTs, view: &GcView) -> Option<Vec<Arc<Run>>> {
        let expired = self.cut_of_all(&below_late(view, late));
        let is_busy = |run: &Arc<Run>| plan.jobs.iter().any(|job| has(&job.runs, run)) || has(&plan.damaged, run);
        let runs = sources.runs.iter().filter(|run| has_expired(run.info.newest, expired) && !is_busy(run));
        let runs: Vec<_> = runs.cloned().collect();
        (!runs.is_empty()).then_some(runs)
    }

    /// They leave the list, unread but for their tops, which say what blocks come back. What they justified leaving out elsewhere is needed as before.
    fn drop_expired(&self, plan: &mut Plan, runs: &[Arc<Run>]) -> Result<()> {
        for run in runs {
            // One that is damaged stays, and nobody looks at it.
            run.top(&self.env).inspect_err(|fault| plan.damaged.extend(is_damage(fault).then(|| run.clone())))?;
        }
        let need = runs.iter().map(|run| run.info.log_need.0).max().unwrap_or(0);
        self.log_need.fetch_max(need, Ordering::Release);
        self.update(|sources| {
            sources.runs.retain(|run| !has(runs, run));
            sources.arrange();
        });
        self.counters.add_expired(runs.iter().map(|run| run.info.entries).sum());
        self.counters.add_expired_runs(runs.len() as u64);
        self.purges.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn choose(&self, plan: &mut Plan, sources: &Sources, late: CommitTs, view: &GcView) -> Option<Choice> {
        plan.damaged.retain(|run| has(&sources.runs, run));
        plan.unpurged.retain(|run| has(&sources.runs, run));
        let busy: BTreeSet<*const Run> =
            plan.jobs.iter().flat_map(|job| &job.runs).chain(&plan.damaged).map(Arc::as_ptr).collect();
        let unpurged: BTreeSet<*const Run> = plan.unpurged.iter().map(Arc::as_ptr).collect();
        let flags = |run| (busy.contains(&run), unpurged.contains(&run));
        let candidates: Vec<_> = sources.runs.iter().map(|run| candidate(run, flags(Arc::as_ptr(run)))).collect();
        let flush_bytes = self.flush_bytes();
        let size_bytes = damped(plan.size_bytes, largest_level_bytes(sources));
        let choice = choose(&Situation {
            runs: &candidates,
            shape: self.env.options.shape,
            policy: self.env.options.policy,
            compression: level_compression(&self.env),
            flush_bytes,
            run_bytes: self.run_bytes(sources),
            size_bytes,
            range_bytes: (self.counters.more_strands() - plan.strands_paid).saturating_mul(STRAND_BYTES),
            expired: self.cut_of_all(&below_late(view, late)),
            settled: view.oldest().min(in_memory_from(sources, late, None, &[])),
            limit: plan.jobs.iter().filter(|job| job.attached.is_empty()).map(|job| job.level).min(),
        });
        // Levels change by what is chosen; nobody who only asks moves it on.
        if choice.is_some() || plan.size_bytes == 0 {
            plan.size_bytes = size_bytes;
        }
        choice
    }

    /// What a flush writes, about, in bytes.
    pub(crate) fn flush_bytes(&self) -> u64 {
        self.memtable_bytes_max() / FLUSH_SHARE
    }

    /// Bytes of a run that a merge writes, about.
    pub(crate) fn run_bytes(&self, sources: &Sources) -> u64 {
        let all: u64 = sources.runs.iter().map(|run| run.info.stored_bytes).sum();
        let least = RUN_BLOCKS_MIN * self.env.options.node_bytes as u64;
        (self.flush_bytes() / RUN_SHARE).max(least).max(all / RUNS_MAX)
    }

    /// Begins to make a run of the oldest attached ones.
    fn begin_attached(&self, plan: &mut Plan, sources: &Sources, late: CommitTs, view: &GcView) -> Result<()> {
        let is_in = |list: &[Arc<Attached>], run: &Arc<Attached>| list.iter().any(|other| Arc::ptr_eq(run, other));
        plan.damaged_attached.retain(|run| is_in(&sources.attached, run));
        let sound = sources.attached.iter().filter(|run| !is_in(&plan.damaged_attached, run));
        let attached: Vec<_> = sound.take(ATTACHED_MAX).cloned().collect();
        let Some(need) = attached.iter().map(|run| run.ts).max() else { return Ok(()) };
        let elsewhere = elsewhere(sources, late, None, &attached, &[]);
        let collection = self.collection(below_late(view, late), elsewhere);
        let mut inputs = Vec::new();
        for run in &attached {
            inputs.push(Input::attached(run).inspect_err(|fault| {
                plan.damaged_attached.extend(is_damage(fault).then(|| run.clone()));
            })?);
        }
        let merge = Merge::new(&self.env, of_level_zero(self.run_bytes(sources)), inputs, collection, need);
        let bytes = attached.iter().map(|run| run.run.bytes()).sum();
        plan.push(Job::new(merge, (Vec::new(), attached), bytes, (0, false)));
        Ok(())
    }

    pub(crate) fn job_of_runs(
        &self,
        sources: &Sources,
        late: CommitTs,
        view: &GcView,
        (runs, level, is_purge): (Vec<Arc<Run>>, u8, bool),
    ) -> Result<Job> {
        let elsewhere = elsewhere(sources, late, None, &[], &runs);
        let collection = self.collection(below_late(view, late), elsewhere);
        let inputs = strands(&runs).into_iter().map(|strand| Input::runs(&self.env, strand.runs));
        let inputs = inputs.collect::<Result<_>>()?;
        let need = runs.iter().map(|run| run.info.log_need).max().expect("at least one");
        let run_bytes = self.run_bytes(sources);
        let outcome = Outcome { level, scope: AllocScope::Ordinary, run_bytes, ends: ends(sources, &runs, level) };
        let merge = Merge::new(&self.env, outcome, inputs, collection, need);
        let bytes = runs.iter().map(|run| run.info.stored_bytes).sum();
        Ok(Job::new(merge, (runs, Vec::new()), bytes, (level, is_purge)))
    }

    fn move_run(&self, run: &Arc<Run>, level: u8) -> Result<()> {
        let moved = run.moved(&self.env, level)?;
        self.update(|sources| {
            for place in sources.runs.iter_mut().filter(|other| Arc::ptr_eq(other, run)) {
                *place = moved.clone();
            }
            sources.arrange();
        });
        self.counters.add_moved(level, run.info.stored_bytes);
        Ok(())
    }

    /// One piece of a merge that no thread has in hand; the plan is free for others meanwhile. What it has written takes the place of what it was made
    /// of, now and then and at its end.
    pub(crate) fn go_on(&self, mut plan: MutexGuard<'_, Plan>, at: usize, view: &GcView) -> Result<u64> {
        let job = &mut plan.jobs[at];
        let (number, is_attached) = (job.number, !job.attached.is_empty());
        let mut in_hand = InHand { core: self, number, merge: job.merge.take() };
        plan.in_hand += 1;
        drop(plan);
        vfs::thread::point("lsm.merging");
        let stepped = step(in_hand.merge.as_mut().expect("it was at rest"), is_attached);
        let mut plan = self.plan.lock();
        let merge = in_hand.merge.take().expect("just stepped");
        self.note_step(&mut plan, number, merge, stepped, view)
    }

    /// What a step did. At a fault what was not handed out is given back; what is left of the sources is as it was.
    fn note_step(
        &self,
        plan: &mut Plan,
        number: u64,
        mut merge: Box<Merge>,
        stepped: Result<Stepped>,
        view: &GcView,
    ) -> Result<u64> {
        // It was given up meanwhile, with all others.
        let Some(at) = plan.jobs.iter().position(|job| job.number == number) else { return Ok(0) };
        let mut job = plan.jobs.swap_remove(at);
        let (step, written) = stepped.inspect_err(|fault| {
            if is_damage(fault) {
                plan.damaged.append(&mut job.runs);
                plan.damaged_attached.append(&mut job.attached);
            }
        })?;
        if let Some((written, left)) = written {
            let runs = self.install(&mut job, &mut merge, written, left);
            plan.unpurged.extend(runs.into_iter().filter(|run| job.is_purge && run.info.entries > run.info.live));
            if !step.is_done && self.split(plan, &job, view)? {
                return Ok(step.entries.max(1));
            }
        }
        if !step.is_done {
            plan.jobs.push(Job { merge: Some(merge), ..job });
        }
        Ok(step.entries.max(1))
    }

    /// What was written, and what is left of the sources, in place of the sources. Returns what was written.
    fn install(
        &self,
        job: &mut Job,
        merge: &mut Merge,
        (written, bytes): Written,
        left: Vec<Arc<Run>>,
    ) -> Vec<Arc<Run>> {
        self.log_need.fetch_max(merge.log_need.0, Ordering::Release);
        self.counters.add_merged(job.level, written.len(), bytes);
        self.counters.add_moved(job.level, merge.pass_moved());
        if self.may_memtable_grow() {
            let data_bytes = self.sources().runs.iter().map(|run| run.info.stored_bytes).sum();
            self.env.cache.note_merged(bytes, data_bytes);
        }
        let expired = merge.pass_expired();
        self.counters.add_expired(expired);
        vfs::thread::point("lsm.merged");
        let Job { runs, attached, .. } = job;
        let deepest = self.update(|sources| {
            sources.runs.retain(|run| !has(runs, run));
            sources.attached.retain(|other| !attached.iter().any(|run| Arc::ptr_eq(run, other)));
            sources.runs.extend(written.iter().chain(&left).cloned());
            sources.arrange();
            sources.runs.iter().map(|run| run.info.level).max()
        });
        // What is dead goes for good where nothing is below.
        if job.is_purge || expired > 0 || deepest.is_none_or(|deepest| job.level >= deepest) {
            self.purges.fetch_add(1, Ordering::Release);
        }
        job.runs = left;
        written
    }
}

impl Job {
    fn new(
        merge: Merge,
        (runs, attached): (Vec<Arc<Run>>, Vec<Arc<Attached>>),
        bytes: u64,
        (level, is_purge): (u8, bool),
    ) -> Self {
        Self { number: 0, merge: Some(Box::new(merge)), runs, attached, bytes, level, is_purge }
    }
}

/// A merge that a thread has in hand.
struct InHand<'a> {
    core: &'a Core,
    number: u64,
    /// None once it was given back.
    merge: Option<Box<Merge>>,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        // A step that panicked: what it has written is nobody's, and its job ends with it.
        let is_lost = self.merge.take().is_some();
        let mut plan = self.core.plan.lock();
        plan.in_hand -= 1;
        if is_lost {
            plan.jobs.retain(|job| job.number != self.number);
        }
        // Who asked, asked for what is no more; he comes again if he still has nothing to do.
        plan.is_split_wanted &= !plan.jobs.is_empty();
        drop(plan);
        self.core.stepped.notify_all();
    }
}

/// What a step did, and what takes the place of the sources: what was written, and what is left of them.
type Stepped = (Step, Option<(Written, Vec<Arc<Run>>)>);

/// Goes on for a while.
fn step(merge: &mut Merge, is_attached: bool) -> Result<Stepped> {
    let step = merge.step(STEP_BYTES)?;
    if step.is_done {
        return Ok((step, Some((merge.finish()?, Vec::new()))));
    }
    // What is attached is a run of another kind, of which no part can go.
    let is_cut = step.ended >= CUT_RUNS && !is_attached;
    Ok((step, if is_cut { Some(merge.cut()?) } else { None }))
}

/// What is written of memtables and attached runs.
pub(crate) fn of_level_zero(run_bytes: u64) -> Outcome {
    Outcome { level: 0, scope: AllocScope::Reserve, run_bytes, ends: VecDeque::new() }
}

/// Where runs of a level must end so that they overlap none that stays there: where those begin that none of the sources overlaps.
fn ends(sources: &Sources, inputs: &[Arc<Run>], level: u8) -> VecDeque<Vec<u8>> {
    let overlaps = |a: &Run, b: &Run| a.info.min_key <= b.info.max_key && b.info.min_key <= a.info.max_key;
    let stays = |run: &&Arc<Run>| run.info.level == level && !inputs.iter().any(|input| overlaps(input, run));
    let mut ends: Vec<_> = sources.runs.iter().filter(stays).map(|run| run.info.min_key.clone()).collect();
    ends.sort_unstable();
    ends.into()
}

fn candidate(run: &Run, (is_busy, is_unpurged): (bool, bool)) -> Candidate<'_> {
    let info = &run.info;
    Candidate {
        level: info.level,
        bytes: info.stored_bytes,
        entries: info.entries,
        live: info.live,
        keys: (&info.min_key, &info.max_key),
        oldest: info.oldest,
        newest: info.newest,
        is_busy,
        is_unpurged,
    }
}

fn largest_level_bytes(sources: &Sources) -> u64 {
    let of_level = |level| {
        let runs = sources.runs.iter().filter(|run| run.info.level == level);
        runs.map(|run| run.info.stored_bytes).sum::<u64>()
    };
    (1..=BOTTOM).map(of_level).max().unwrap_or(0)
}

/// Below this nothing is in memory, or attached, or may come; without what the merge has.
fn in_memory_from(
    sources: &Sources,
    late: CommitTs,
    table: Option<&Arc<Memtable>>,
    attached: &[Arc<Attached>],
) -> CommitTs {
    let tables = std::iter::once(&sources.active).chain(&sources.sealed);
    let tables =
        tables.filter(|other| !table.is_some_and(|table| Arc::ptr_eq(table, other))).map(|table| table.oldest());
    let is_out = |other: &&Arc<Attached>| !attached.iter().any(|run| Arc::ptr_eq(run, other));
    let other_attached = sources.attached.iter().filter(is_out).map(|run| run.ts);
    let lowest = tables.chain(other_attached).min().unwrap_or(CommitTs::MAX);
    CommitTs(lowest.min(late).0.saturating_sub(1))
}

/// What a merge of these does not see.
pub(crate) fn elsewhere(
    sources: &Sources,
    late: CommitTs,
    table: Option<&Arc<Memtable>>,
    attached: &[Arc<Attached>],
    runs: &[Arc<Run>],
) -> Elsewhere {
    // Asked only for keys of the merge. What has none of them is left out: it would stay on disk until the merge ends, and the parts of one merge would
    // each hold on to what the other has given back.
    let low = runs.iter().map(|run| &run.info.min_key).min();
    let high = runs.iter().map(|run| &run.info.max_key).max();
    let may_have =
        |run: &Run| low.is_none_or(|low| *low <= run.info.max_key) && high.is_none_or(|high| run.info.min_key <= *high);
    let others: Vec<_> = sources.runs.iter().filter(|run| may_have(run) && !has(runs, run)).cloned().collect();
    Elsewhere::new(in_memory_from(sources, late, table, attached), &others)
}
