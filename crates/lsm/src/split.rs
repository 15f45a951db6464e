//! A merge that is cut in two, for a thread that has nothing to do (elsewhere called a subcompaction).
//!
//! 1. A thread finds no merge that it could go on with, and asks ([`Core::assist`]). Nothing is cut for a thread that does not come.
//! 2. The next merge that begins, or has just given its sources back as far as it came, is cut if it is large enough: at a key that leaves as much
//!    below as above ([`choose::split_key`](crate::choose::split_key)). Each of its runs that reaches over that key is made two: of the same blocks, but for the one in which the key lies, so
//!    for next to nothing.
//! 3. The two are two merges from then on, each with its own runs, its own view and its own end. So they are installed, given up, met by damage
//!    or a full disk each for itself, as any two are, and each may be cut again.
//!
//! Invariants: all versions of a key are in one of the two, or each would take its part for all that there is: a tombstone would go in the one, and what it hides stay
//! in the other. The halves of a run have what it had, no more and no less, so the list is sound at every moment, for readers and for a checkpoint; and there is
//! nothing that only both parts together would be.
//!
//! Why not parts that share their sources and are installed together: nothing could be given back before the last of them ends, and a merge of the bottom would
//! take as much space again as the bottom has (decision 0010).

use std::sync::Arc;

use base::{GcView, Result};
use index::Subcompactions;
use store::AllocScope;

use crate::choose::split_key;
use crate::input::Input;
use crate::jobs::{CUT_RUNS, Job, Plan};
use crate::lsm::{Core, Env};
use crate::run::Run;
use crate::writer::Writer;

/// Runs on the two sides of a key.
struct Sides {
    low: Vec<Arc<Run>>,
    high: Vec<Arc<Run>>,
    /// Those that reached over it.
    cut: Vec<Arc<Run>>,
    /// Bytes written for their halves.
    bytes: u64,
}

impl Core {
    /// Cuts a merge in two that has not begun, or has just given back what it came through, if a thread waits for that and it is large enough.
    /// True if so: the two are in the plan then, and it is not.
    pub(crate) fn split(&self, plan: &mut Plan, job: &Job, view: &GcView) -> Result<bool> {
        let is_always = self.env.options.policy.subcompactions == Subcompactions::Always;
        if !(plan.is_split_wanted || is_always) || !job.attached.is_empty() {
            return Ok(false);
        }
        let least_bytes = if is_always { 1 } else { CUT_RUNS as u64 * self.run_bytes(&self.sources()) };
        let Some(key) = middle(&job.runs, least_bytes) else { return Ok(false) };
        plan.is_split_wanted = false;
        // Whoever goes on with it meets the same damage, or the same full disk.
        let Ok(sides) = apart(&self.env, &job.runs, &key) else { return Ok(false) };
        self.update(|sources| {
            sources.runs.retain(|run| !sides.cut.iter().any(|cut| Arc::ptr_eq(cut, run)));
            let halves =
                sides.low.iter().chain(&sides.high).filter(|run| !job.runs.iter().any(|of| Arc::ptr_eq(of, run)));
            sources.runs.extend(halves.cloned());
            sources.arrange();
        });
        self.counters.add_merged(job.level, 0, sides.bytes);
        self.counters.count_split_merge();
        vfs::thread::point("lsm.split");
        // Behind the change: of each of them the other's runs are elsewhere.
        let (late, sources) = self.late_and_sources();
        for runs in [sides.low, sides.high] {
            let part = self.job_of_runs(&sources, late, view, (runs, job.level, job.is_purge))?;
            plan.push(part);
        }
        Ok(true)
    }
}

/// The key that cuts these runs in two.
fn middle(runs: &[Arc<Run>], least_bytes: u64) -> Option<Vec<u8>> {
    let partitions = runs.iter().filter_map(|run| run.loaded()).flat_map(|top| top.partitions.iter());
    let mut parts: Vec<_> = partitions.map(|partition| (&*partition.info.key, partition.bytes().sum())).collect();
    split_key(&mut parts, least_bytes).map(<[u8]>::to_vec)
}

/// Runs below a key, and those that have nothing below it; of one that reaches over it a half in each.
fn apart(env: &Env, runs: &[Arc<Run>], key: &[u8]) -> Result<Sides> {
    let mut sides = Sides { low: Vec::new(), high: Vec::new(), cut: Vec::new(), bytes: 0 };
    for run in runs {
        if *run.info.max_key < *key {
            sides.low.push(run.clone());
        } else if *run.info.min_key >= *key {
            sides.high.push(run.clone());
        } else {
            let ((low, high), bytes) = halves(env, run, key)?;
            sides.low.extend(low);
            sides.high.extend(high);
            sides.cut.push(run.clone());
            sides.bytes += bytes;
        }
    }
    Ok(sides)
}

/// What a run has below a key, and the rest, as runs of their own; and the bytes that were written for them.
#[expect(clippy::type_complexity, reason = "two runs, either of which may have nothing in it, and a number")]
fn halves(env: &Env, run: &Arc<Run>, key: &[u8]) -> Result<((Option<Arc<Run>>, Option<Arc<Run>>), u64)> {
    let mut input = Input::runs(env, vec![run.clone()])?;
    let mut low = Writer::new(env, run.info.level, AllocScope::Ordinary);
    input.copy_until(env, run, Some(key), &mut low)?;
    // Nothing may say that keys of the other are in it.
    let (low, low_bytes) = low.finish_before(run.info.log_need)?;
    let mut high = Writer::new(env, run.info.level, AllocScope::Ordinary);
    input.copy_until(env, run, None, &mut high)?;
    let (high, high_bytes) = high.finish(run.info.log_need)?;
    Ok(((low, high), low_bytes + high_bytes))
}

#[cfg(test)]
mod tests;
