//! A checkpoint: everything committed up to a moment reaches the data file, and the log before it may go.
//!
//! 1. `applied` := the applied prefix.
//! 2. Each index writes what it must and returns its state and its F (decision D7, rule A9). The applied
//!    prefix was read before any index is asked, so an idle index that answers "nothing dirty" cannot speak
//!    for a commit that is logged but not applied (rule A7b). Dropped indexes whose blocks are not freed yet are
//!    asked too: whoever opens the manifest frees them, and would not know of blocks that it does not name.
//! 3. The log floor := the least F. Blocks that lost their owner are looked for, if there are any
//!    ([`crate::quarantine`]). The allocator's state is taken: it counts exactly the blocks the states reach (rule P9).
//! 4. Blocks are synced, then the manifest is published (written, synced, renamed, directory synced).
//! 5. Only now: what no manifest names any more becomes reusable (rule A20), the log is trimmed, files that nobody names are removed, free space goes back to the file system.
//!
//! A crash before 4 leaves the older manifest, whose blocks are untouched, and the log it needs. A crash
//! between 4 and 5 leaves work for the next checkpoint.
//!
//! One checkpoint runs at a time (`Engine::checkpoint`); commits, reads and write-back go on.

use std::sync::atomic::Ordering;
use std::time::Duration;

use base::{Fault, IndexId, Lsn, Result};
use index::Upkeep;
use vfs::time::Instant;

use crate::engine::{Engine, Published};
use crate::entry::Stage;
use crate::make_way::Way;
use crate::manifest::{IndexEntry as SavedIndex, Manifest};
use crate::pace::Paced;
use crate::said::Said;

/// Space is given back for so long at once. Not a little all the time: what a journal of the file system commits while holes are punched the device may have
/// to discard at that moment, for which reads wait, 50 to 500 ms whether it is little or much (docs/PERFORMANCE.md).
const GIVE_BACK_TURN: Duration = Duration::from_millis(250);

/// What a manifest is complete to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Complete {
    /// The applied prefix, as far as indexes can.
    ToNow,
    /// What the manifest before is: it names what was written since, and what it no longer names is free.
    AsBefore,
}

type States = (Vec<SavedIndex>, Vec<(IndexId, Lsn)>, Lsn);

impl Engine {
    /// Runs a checkpoint now.
    pub fn run_checkpoint(&self) -> Result<()> {
        self.checkpoint_now().map(drop)
    }

    /// Runs one as the background does: within the budget of its writing, unless somebody waits for it. Free space is left for later.
    pub fn checkpoint_at_leisure(&self) -> Result<()> {
        self.make_checkpoint()?;
        self.space_waits.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Runs one, and tells what it published.
    pub fn checkpoint_now(&self) -> Result<Manifest> {
        let awaited = self.await_checkpoint();
        let done = self.make_checkpoint()?;
        drop(awaited);
        self.give_space_back(true)?;
        Ok(done)
    }

    fn make_checkpoint(&self) -> Result<Manifest> {
        let mut published = self.checkpoint.lock();
        let mut done = self.publish_checkpoint(&mut published)?;
        match self.make_room_to_delete(&mut published) {
            Ok(None) => {}
            Ok(Some(later)) => done = later,
            // Whoever waits is refused; the checkpoint is done.
            Err(Fault::NoSpace { .. } | Fault::Limit { .. }) => {}
            Err(fault) => return Err(fault),
        }
        drop(published);
        self.after_checkpoint(&done)?;
        Ok(done)
    }

    /// Steps 1 to 4, and the first half of 5. The caller holds `Engine::checkpoint`. If there is no space for all that is dirty, what can be
    /// written is, and brings some back ([`crate::make_way`]).
    pub fn publish_checkpoint(&self, published: &mut Published) -> Result<Manifest> {
        let mut upkept = false;
        let done = self.publish_or_make_way(published, &mut upkept);
        if done.is_err() {
            self.upkept.fetch_or(upkept, Ordering::Relaxed);
        }
        done
    }

    fn publish_or_make_way(&self, published: &mut Published, upkept: &mut bool) -> Result<Manifest> {
        let mut way = Way::default();
        loop {
            self.poison.check()?;
            *upkept |= self.upkept.swap(false, Ordering::Relaxed);
            self.space.note_owed_pages(self.pages_owed());
            let log_end = self.wal.end();
            let old = Lsn(self.log_at_checkpoint.load(Ordering::Relaxed));
            match self.rewrite_prepared(old).and_then(|()| self.publish(published, Complete::ToNow)) {
                Err(Fault::NoSpace { .. }) if self.make_way(published, &mut way)? => {}
                Err(fault) => return Err(fault),
                Ok(done) => {
                    self.log_at_checkpoint.store(log_end.0, Ordering::Relaxed);
                    self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
                    return Ok(done);
                }
            }
        }
    }

    /// The same, as complete as is said.
    pub(crate) fn publish(&self, published: &mut Published, complete: Complete) -> Result<Manifest> {
        published.is_behind = true;
        let (indexes, skips, floor) = self.index_states(published, complete)?;
        vfs::thread::point("checkpoint.composed");
        let kept = self.prepared.kept(&skips);
        let floor = floor.min(kept.floor);
        self.reclaim_lost(&mut published.lost);
        // What lies below the floor is never replayed, so it must not be lost either: a commit on an index that
        // was dropped meanwhile is applied, and no block waits for its record.
        self.wal.sync_to(floor)?;
        let manifest = Manifest {
            generation: published.generation + 1,
            database_id: self.layout.database_id,
            incarnation: self.incarnation,
            log_durable: self.wal.durable(),
            log_floor: floor,
            next_index: self.next_index.load(Ordering::SeqCst),
            next_run: self.next_run.load(Ordering::SeqCst),
            space: self.space.save(),
            indexes,
            prepared: kept.sets,
        };
        self.space.sync()?;
        vfs::thread::point("checkpoint.before_publish");
        manifest.publish(&self.layout.vfs, &self.layout.dir).map_err(|fault| match fault {
            // Nothing was published, the next checkpoint starts over (B7).
            Fault::NoSpace { .. } => fault,
            _ => self.poison.set(fault),
        })?;
        vfs::thread::point("checkpoint.published");
        self.space.checkpoint_durable();
        self.prepared.forget_unneeded(&skips);
        published.generation = manifest.generation;
        published.is_behind = false;
        published.floor = manifest.log_floor;
        published.skips = manifest.skips();
        self.written_at_checkpoint.store(self.space.written_and_live().0, Ordering::Relaxed);
        Ok(manifest)
    }

    /// The rest of step 5. A backup under way holds the log from where it has not copied it yet, and all run files; so does `verify`.
    pub fn after_checkpoint(&self, done: &Manifest) -> Result<()> {
        let held = self.held_log.look();
        self.wal.trim(done.log_floor.min(held.unwrap_or(Lsn::MAX)))?;
        if held.is_none() {
            let named: Vec<u64> = done.indexes.iter().flat_map(|index| &index.runs).copied().collect();
            self.runs.remove_unnamed(&self.layout, done.log_floor, &named)?;
        }
        Ok(())
    }

    /// Free space to the file system, for a moment; the rest is left for later.
    pub fn give_space_back(&self, is_busy: bool) -> Result<()> {
        // Before it begins: what becomes free meanwhile, or is left, is noted again.
        self.space_waits.store(false, Ordering::Relaxed);
        let began = Instant::now();
        let goes_on = || !self.options.background || began.elapsed() < GIVE_BACK_TURN;
        if self.space.give_back(is_busy, goes_on)?.is_more {
            self.space_waits.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// States; of each its F with the index whose operations it takes; and the least F.
    fn index_states(&self, published: &Published, complete: Complete) -> Result<States> {
        let paced = Paced::checkpoint(self);
        let upkeep = Upkeep { log: &paced, ..self.upkeep() };
        let (mut states, mut skips) = (Vec::new(), Vec::new());
        let mut floor = upkeep.applied;
        for entry in self.upkept_indexes() {
            let state = match complete {
                Complete::ToNow => entry.index.checkpoint(&upkeep)?,
                Complete::AsBefore => {
                    let applied = published.skip_of(entry.id()).min(upkeep.applied);
                    entry.index.checkpoint_written(&Upkeep { applied, ..upkeep.clone() })?
                }
            };
            // What is being built has rows that are in no log, and come below what an earlier checkpoint had: they want nothing of it.
            let is_built = entry.stage() == Stage::Public;
            floor = floor.min(if is_built { state.skip } else { state.skip.max(published.floor) });
            let said = entry.said();
            skips.push((if let Some(Said::Owner(owner)) = said { owner } else { entry.id() }, state.skip));
            let bytes = said.map_or_else(|| state.bytes.clone(), |said| said.before(&state.bytes));
            states.push(SavedIndex { id: entry.id(), skip: state.skip, state: bytes, runs: state.runs });
        }
        if complete == Complete::ToNow {
            paced.note_checkpoint();
        }
        Ok((states, skips, floor))
    }
}
