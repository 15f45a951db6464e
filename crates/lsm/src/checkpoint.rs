//! What the next manifest needs.
//!
//! 1. F is known before anything is looked at: the applied prefix.
//! 2. The memtable is sealed, and all sealed ones are flushed: whatever was applied at or below F is in a run, or in an attached one.
//! 3. One list is taken, and F is lowered below what of it is in memory only.
//! 4. The log is made durable to what the runs of this list need, and to what justified leaving anything out of it [A6]: it alone makes a
//!    run part of the database, so nothing had to wait when it was written.
//! 5. Its blocks become the manifest's.
//!
//! The list is one moment's, and nothing in it changes. So whatever is flushed, merged or collected meanwhile is in it as a whole or not
//! at all: there is nothing to hold back for a checkpoint under way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::limits::LSN_UNIT;
use base::{CommitTs, Lsn, Result};
use index::{IndexState, Upkeep};

use crate::lsm::Core;
use crate::run::Run;
use crate::state::{NamedRun, State};
use crate::top::Top;

impl Core {
    pub(crate) fn checkpoint(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        let _one = self.checkpointing.lock();
        self.seal();
        vfs::thread::point("lsm.checkpoint_sealed");
        self.flush_sealed(upkeep)?;
        self.checkpoint_list(upkeep)
    }

    /// Without step 2: F lies below what memtables hold.
    pub(crate) fn checkpoint_written(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        let _one = self.checkpointing.lock();
        self.checkpoint_list(upkeep)
    }

    /// From step 3 on.
    fn checkpoint_list(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        let sources = self.sources();
        let in_memory = sources.memtables().map(|table| table.oldest());
        let attached_in_memory = sources.attached.iter().filter(|run| run.run.meta().is_none()).map(|run| run.ts);
        let held_back = in_memory.chain(attached_in_memory).min();
        let skip = held_back.map_or(upkeep.applied, |ts| upkeep.applied.min(Lsn(ts.0.saturating_sub(LSN_UNIT))));
        let named = |run: &Arc<crate::lsm::Attached>| Some(NamedRun { meta: run.run.meta()?.clone(), ts: run.ts });
        let mut attached: Vec<NamedRun> = sources.attached.iter().filter_map(named).collect();
        // The log holds those above F.
        attached.retain(|run| run.ts.as_lsn() <= skip);
        // Behind the list: what it has is cut out of them. And before `log_need` is read, below: a span may say more than the list shows.
        // Say the list has K, alive at 10; K is deleted at 150, flushed, and merged away with its delete; then somebody learns a span over K,
        // from 100 on, and it is copied here. It is true of a database that has the log up to 150, and of no other. Whoever
        // learned it saw a list from behind that merge, and the merge had raised `log_need` to 150 before: read behind the copy, it is at least that,
        // and the log is made durable up to there. Read before, it might be less.
        let mut dead = self.dead.copy();
        // What lies above F the log may lose.
        dead.retain(|span| span.from.as_lsn() <= skip);
        let needs = sources.runs.iter().map(|run| run.info.log_need).chain(attached.iter().map(|run| run.ts));
        let needs = needs.chain(dead.iter().map(|span| span.from));
        let need =
            needs.chain([CommitTs(self.log_need.load(Ordering::Acquire))]).max().map_or(Lsn::ZERO, CommitTs::as_lsn);
        if upkeep.log.durable() < need {
            upkeep.log.make_durable(need)?;
        }
        self.publish(&sources.runs)?;
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        let runs = attached.iter().map(|run| run.meta.id).collect();
        let state = State { runs: sources.runs.clone(), attached, dead };
        Ok(IndexState { bytes: state.encode(), skip, runs })
    }

    /// Bytes of blocks that only the last manifest's runs have.
    pub(crate) fn superseded_bytes(&self) -> u64 {
        let sources = self.sources();
        let listed: BTreeSet<*const Run> = sources.runs.iter().map(Arc::as_ptr).collect();
        let published = self.published.lock();
        let superseded = published.iter().filter(|run| !listed.contains(&Arc::as_ptr(run)));
        superseded.filter_map(|run| run.loaded()).map(Top::bytes_alone).sum()
    }

    /// The blocks of these runs are the next manifest's, and no others. One that both lists have stays.
    fn publish(&self, runs: &[Arc<Run>]) -> Result<()> {
        let mut published = self.published.lock();
        let is_in = |list: &[Arc<Run>], run: &Arc<Run>| list.iter().any(|other| Arc::ptr_eq(other, run));
        let (new, old): (Vec<_>, Vec<_>) = (
            runs.iter().filter(|run| !is_in(&published, run)).collect(),
            published.iter().filter(|run| !is_in(runs, run)).collect(),
        );
        // Whatever was merged away, or written, has its top in memory.
        new.iter().chain(&old).try_for_each(|run| run.top(&self.env).map(drop))?;
        new.iter().filter_map(|run| run.loaded()).for_each(Top::publish);
        old.iter().filter_map(|run| run.loaded()).for_each(Top::unpublish);
        *published = runs.to_vec();
        // What the runs before had, too, and nobody reads any more.
        let parts = runs.iter().filter_map(|run| run.loaded()).flat_map(|top| &top.partitions);
        parts.for_each(|partition| partition.fold());
        Ok(())
    }

    /// After the index is taken apart: nothing is named any more.
    pub(crate) fn unpublish_all(&self) {
        self.published.lock().clear();
    }
}
