//! Deletes while the disk is full.
//!
//! What is deleted from a tree comes back only behind the leaf that is written without it, and that takes new space first. So a delete is let in where other
//! writes are refused:
//!
//! 1. It may take what cleaning has, what is to be cut into whole extents, and a part of the reserve ([`store::Space::check_room_to_delete`]): all
//!    that is owed still has its place, and three quarters of the reserve are left.
//! 2. Where that is used up it waits for what deletes before it bring back, which is free behind a checkpoint (rule A20), and behind drains, where
//!    messages wait for their leaves.
//! 3. Deletes here and there leave no extent empty, and cleaning rests on a full disk. So a checkpoint that somebody waits for empties
//!    extents, those with most to win first ([`store::Space::to_evacuate`]).
//! 4. What deletes took from cleaning is brought back in the same way, so that cleaning goes on, and other writes do.
//! 5. Where that brings nothing, it is refused, and those behind it at once, for a while: nobody has checkpoints made all the time.
//!
//! Not in log-structured merge trees: a delete is one more entry there until a merge has dropped it, for which there has to be room first.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vfs::sync::Mutex;
use vfs::time::Instant;

use crate::background::Wake;
use crate::engine::{Engine, Published};
use crate::error::Result;
use crate::manifest::Manifest;

/// So long one waits, at most.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// After one was refused, others are not waited for, so long.
const REFUSED_REST: Duration = Duration::from_secs(1);
/// Between two checkpoints for them.
const CHECKPOINT_REST: Duration = Duration::from_millis(50);
/// And for what was taken from cleaning.
const TAKEN_REST: Duration = Duration::from_secs(1);
/// Extents made free beyond what is waited for, so that not each delete needs a checkpoint.
const EXTENTS_AHEAD: u64 = 2;
/// Of an extent that is emptied so much of a hundred may have to be moved: less would come back than it is worth.
const MOVED_PERCENT_MAX: u64 = 80;

/// Who waits.
#[derive(Default)]
pub(crate) struct WaitingDeletes {
    waiting: Mutex<Waiting>,
    /// One was let in where other writes are not, and nobody looked since whether extents bring that back. Relaxed: a hint.
    taken: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    count: usize,
    /// The most that one of them will owe.
    bytes: u64,
    refused_at: Option<Instant>,
    /// A checkpoint was asked for last.
    asked_at: Option<Instant>,
}

/// One of them.
struct Waits<'a>(&'a WaitingDeletes);

impl WaitingDeletes {
    /// What one that waits will owe.
    fn wanted(&self) -> Option<u64> {
        let waiting = self.waiting.lock();
        (waiting.count > 0).then_some(waiting.bytes)
    }

    /// Once for each rest between checkpoints, by whoever looks first: each asking wakes all threads, also from the rest behind a full disk.
    fn is_to_ask(&self) -> bool {
        let mut waiting = self.waiting.lock();
        let is_due = waiting.asked_at.is_none_or(|at| at.elapsed() >= CHECKPOINT_REST);
        if is_due {
            waiting.asked_at = Some(Instant::now());
        }
        is_due
    }

    /// Nobody waits if one was refused just now.
    fn enter(&self, bytes: u64) -> Option<Waits<'_>> {
        let mut waiting = self.waiting.lock();
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
        self.0.waiting.lock().count -= 1;
    }
}

impl Engine {
    /// As [`Engine::check_room_for`] for a delete from a tree that will owe so much.
    /// `goes_on`: an error for who is not to wait any longer.
    pub fn check_room_to_delete(&self, bytes: u64, goes_on: impl Fn() -> Result<()>) -> Result<()> {
        if self.has_room_beside(self.cleaning_bytes() + bytes) {
            return Ok(());
        }
        let check = || {
            let owed = self.owed_bytes() + bytes;
            // While somebody holds back reuse nothing comes back of what is deleted.
            match self.space.is_pinned() {
                true => self.space.check_room(owed + self.cleaning_bytes()),
                false => self.space.check_room_to_delete(owed),
            }
        };
        let mut checked = check();
        if checked.is_err()
            && self.options.background
            && let Some(waits) = self.deletes.enter(bytes)
        {
            let began = Instant::now();
            while checked.is_err() {
                self.check_writable()?;
                goes_on()?;
                if began.elapsed() >= WAIT_MAX {
                    waits.0.waiting.lock().refused_at = Some(Instant::now());
                    break;
                }
                if self.deletes.is_to_ask() {
                    self.signal.wake(Wake::Checkpoint);
                }
                vfs::thread::sleep(Duration::from_millis(1));
                checked = check();
            }
        }
        if checked.is_ok() {
            self.deletes.taken.store(true, Ordering::Relaxed);
        }
        Ok(checked?)
    }

    /// True if a checkpoint would make room for deletes, and the last one began so long ago.
    pub(crate) fn deletes_want_checkpoint(&self, since: Duration) -> bool {
        let is_awaited = since >= CHECKPOINT_REST && self.deletes.wanted().is_some();
        let is_taken = || since >= TAKEN_REST && self.deletes.taken.load(Ordering::Relaxed);
        is_awaited || (is_taken() && self.is_full() && !self.space.is_pinned())
    }

    /// Behind a checkpoint: if extents were emptied for deletes, another one brings more.
    pub(crate) fn make_room_to_delete(&self, published: &mut Published) -> base::Result<Option<Manifest>> {
        // Nothing that is moved would come back: all that is left would be used up for it.
        if self.space.is_pinned() {
            return Ok(None);
        }
        let taken = self.deletes.taken.swap(false, Ordering::Relaxed) && self.check_open().is_ok();
        let mut tried = BTreeSet::new();
        while self.deletes_lack_room(taken) {
            let left = self.space.left_bytes()?;
            let extents = self.to_evacuate(&tried, MOVED_PERCENT_MAX)?;
            if extents.is_empty() {
                break;
            }
            tried.extend(&extents);
            vfs::thread::point("checkpoint.makes_room");
            self.evacuate_and_publish(published, &extents)?;
            if self.space.left_bytes()? <= left {
                break;
            }
        }
        if tried.is_empty() { Ok(None) } else { self.publish_checkpoint(published).map(Some) }
    }

    fn deletes_lack_room(&self, taken: bool) -> bool {
        let ahead = EXTENTS_AHEAD * self.space.extent_bytes();
        let lacks = |bytes| self.space.check_room_to_delete(self.owed_bytes() + bytes + ahead).is_err();
        self.deletes.wanted().is_some_and(lacks) || (taken && !self.has_room_beside(self.cleaning_bytes() + ahead))
    }
}
