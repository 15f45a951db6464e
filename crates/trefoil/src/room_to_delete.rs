//! Deletes while the disk is full.
//!
//! What is deleted from a tree comes back only behind the leaf that is written without it, and that takes new space first. So a delete is let in where other
//! writes are refused:
//!
//! 1. It may take what cleaning has, what is to be cut into whole extents, and a part of the reserve ([`store::Space::check_room_to_delete`]): all
//!    that is owed still has its place, and three quarters of the reserve are left.
//! 2. Where that is used up it waits for what deletes before it bring back, which is free behind two checkpoints (rule A20), and behind drains, where
//!    messages wait for their leaves.
//! 3. Deletes here and there leave no extent empty, and cleaning rests on a full disk. So a checkpoint that somebody waits for empties
//!    extents, those with most to win first ([`store::Space::to_evacuate`]).
//! 4. Where that brings nothing, it is refused, and those behind it at once, for a while: nobody has checkpoints made all the time.
//!
//! Not in log-structured merge trees: a delete is one more entry there until a merge has dropped it, for which there has to be room first.

use std::collections::BTreeSet;
use std::time::Duration;

use vfs::sync::Mutex;
use vfs::time::Instant;

use crate::background::Wake;
use crate::engine::{Engine, Published};

/// So long one waits, at most.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// After one was refused, others are not waited for, so long.
const REFUSED_REST: Duration = Duration::from_secs(1);
/// Between two checkpoints for them.
const CHECKPOINT_REST: Duration = Duration::from_millis(50);
/// Extents made free beyond what is waited for, so that not each delete needs a checkpoint.
const EXTENTS_AHEAD: u64 = 2;
/// Of an extent that is emptied so much of a hundred may have to be moved: less would come back than it is worth.
const MOVED_PERCENT_MAX: u64 = 80;

/// Who waits.
#[derive(Default)]
pub(crate) struct WaitingDeletes(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    count: usize,
    /// The most that one of them will owe.
    bytes: u64,
    refused_at: Option<Instant>,
}

/// One of them.
struct Waits<'a>(&'a WaitingDeletes);

impl WaitingDeletes {
    /// True if one waits for a checkpoint and the last one began so long ago.
    pub fn want_checkpoint(&self, since: Duration) -> bool {
        self.wanted().is_some() && since >= CHECKPOINT_REST
    }

    /// What one that waits will owe.
    fn wanted(&self) -> Option<u64> {
        let waiting = self.0.lock();
        (waiting.count > 0).then_some(waiting.bytes)
    }

    /// Nobody waits if one was refused just now.
    fn enter(&self, bytes: u64) -> Option<Waits<'_>> {
        let mut waiting = self.0.lock();
        if waiting.refused_at.is_some_and(|at| at.elapsed() < REFUSED_REST) {
            return None;
        }
        waiting.bytes = if waiting.count == 0 { bytes } else { waiting.bytes.max(bytes) };
        waiting.count += 1;
        Some(Waits(self))
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.0.lock().count -= 1;
    }
}

impl Engine {
    /// As [`Engine::check_room_for`] for a delete from a tree that will owe so much.
    pub fn check_room_to_delete(&self, bytes: u64) -> base::Result<()> {
        if self.has_room_beside(self.cleaning_bytes() + bytes) {
            return Ok(());
        }
        let mut checked = self.space.check_room_to_delete(self.owed_bytes() + bytes);
        if checked.is_ok() || !self.options.background {
            return checked;
        }
        let Some(waits) = self.deletes.enter(bytes) else { return checked };
        let began = Instant::now();
        while checked.is_err() {
            self.poison.check()?;
            if began.elapsed() >= WAIT_MAX {
                waits.0.0.lock().refused_at = Some(Instant::now());
                break;
            }
            self.signal.wake(Wake::Checkpoint);
            vfs::thread::sleep(Duration::from_millis(1));
            checked = self.space.check_room_to_delete(self.owed_bytes() + bytes);
        }
        checked
    }

    /// Behind a checkpoint: true if extents were emptied for deletes that wait, so that the next one brings more.
    pub(crate) fn make_room_to_delete(&self, published: &mut Published) -> base::Result<bool> {
        let mut tried = BTreeSet::new();
        let ahead = EXTENTS_AHEAD * self.space.extent_bytes();
        while let Some(bytes) = self.deletes.wanted()
            && self.space.check_room_to_delete(self.owed_bytes() + bytes + ahead).is_err()
        {
            let extents = self.to_evacuate(&tried, MOVED_PERCENT_MAX)?;
            if extents.is_empty() {
                break;
            }
            tried.extend(&extents);
            vfs::thread::point("checkpoint.makes_room");
            self.evacuate_and_publish(published, &extents)?;
        }
        Ok(!tried.is_empty())
    }
}
