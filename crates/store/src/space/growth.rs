//! Extents from the file system.
//!
//! Space is allocated by whole extents with `File::allocate` before it is used, so that a full disk shows here
//! and nowhere else (B7): [`Fault::NoSpace`], an ordinary error.
//!
//! The reserve (P4). What a manifest names returns only with the next durable one, and a checkpoint needs space, so
//! `reserve_bytes` are kept for work that must go on. What is left = usable extents + what the file system (or
//! `max_bytes`) still gives. 1. Ordinary work leaves the reserve alone: it gets an extent only while the reserve
//! is left afterwards. 2. While the disk has plenty the reserve is a number. Once less than [`TIGHT_FACTOR`]
//! reserves are left, it becomes extents that are allocated in the file, because other programs eat from the same
//! disk. 3. `check_room` answers at statement time; it re-examines a full disk by itself every
//! [`RECHECK`], and whenever extents come back. 4. Deletes make room, and what was deleted comes back only behind what their leaves are
//! written to: they may take a part of the reserve ([`Space::check_room_to_delete`]).
//!
//! What was admitted is written later: pages that are dirty in memory, and the nodes above them, each need a place
//! before anything comes back. `check_room` is told how much that is; without it, more can be admitted than the
//! reserve holds, no checkpoint ever succeeds again, and a drop gives nothing back. Ordinary work, as merges are, leaves
//! alone what is owed ([`Space::note_owed`]): it would else take it in between.
//!
//! Invariant: `left` is what the last examination found, less the extents opened since, and those usable again. What is on
//! its way back to the file system counts all the while.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::{Fault, Result};
use vfs::time::Instant;

use super::allocator::ExtentId;
use super::{AllocScope, Space, SpaceOptions, UpdateGroup};

/// The disk is tight when less than this many reserves are left on it.
const TIGHT_FACTOR: u64 = 8;
/// The last of the reserve is one in so many extents of it, and so many at least.
const LAST_SHARE: u64 = 4;
const LAST_EXTENTS_MIN: u64 = 3;
/// Of which one in so many is for the nodes above what is moved.
const NODES_SHARE: u64 = 3;
/// Deletes may owe one in so many extents of the reserve.
const DELETES_SHARE: u64 = 4;
/// A file grows by at most this much more than what is missing.
const GROW_AHEAD_BYTES: u64 = 16 << 20;
/// How often a full disk is looked at again.
const RECHECK: Duration = Duration::from_millis(50);

/// State under the growth latch.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// The reserve is held as allocated extents.
    pub(super) tight: bool,
    examined: Option<Instant>,
}

/// What is left, in bytes.
struct Left {
    /// In extents that are allocated and free.
    usable: u64,
    /// In extents that are on their way back to the file system.
    returning: u64,
    /// What the file may still grow by.
    growable: u64,
}

impl SpaceOptions {
    fn reserve_extents(&self) -> u64 {
        self.reserve_bytes.div_ceil(self.extent_bytes)
    }

    /// The last of the reserve: an extent that is emptied, the nodes above its leaves, and one more.
    fn last_extents(&self) -> u64 {
        let reserve = self.reserve_extents();
        (reserve / LAST_SHARE).max(LAST_EXTENTS_MIN).min(reserve)
    }

    /// What has to be left for a statement to be let in: what is to be written is cut into whole extents by each group that has some of it.
    fn room_bytes(&self) -> u64 {
        (self.reserve_extents() + 1 + UpdateGroup::FLUSHED).saturating_mul(self.extent_bytes)
    }

    /// What has to be left for a delete to be let in.
    fn room_to_delete_bytes(&self) -> u64 {
        let reserve = self.reserve_extents();
        (reserve - reserve / DELETES_SHARE).saturating_mul(self.extent_bytes)
    }

    /// The least `max_bytes` with which a file that has one extent has room for a statement that owes nothing.
    #[must_use]
    pub fn max_bytes_min(&self) -> u64 {
        self.room_bytes().saturating_add(self.extent_bytes)
    }
}

impl Space {
    /// Refuses work that would need new space while only the reserve is left beside `owed_bytes`, which what was
    /// admitted before will still take, and this will: asked at statement time, never later (P4).
    ///
    /// # Errors
    /// [`Fault::NoSpace`].
    pub fn check_room(&self, owed_bytes: u64) -> Result<()> {
        self.check_left(self.0.options.room_bytes().saturating_add(owed_bytes))
    }

    /// The same for what is deleted from a structure that gives space back without any to merge in.
    ///
    /// # Errors
    /// [`Fault::NoSpace`].
    pub fn check_room_to_delete(&self, owed_bytes: u64) -> Result<()> {
        self.check_left(self.0.options.room_to_delete_bytes().saturating_add(owed_bytes))
    }

    fn check_left(&self, needed: u64) -> Result<()> {
        if self.finds_left(needed)? {
            return Ok(());
        }
        // Only who is refused here waits for what a checkpoint gives back. A merge that does not fit is tried again all the time: each try would
        // call for one.
        self.0.refused.store(true, Ordering::Relaxed);
        Err(self.no_space())
    }

    /// [`Space::has_left`], after another look at the disk if there seems to be less.
    fn finds_left(&self, needed: u64) -> Result<bool> {
        if self.has_left(needed) {
            return Ok(true);
        }
        let mut growth = self.0.growth.lock();
        if growth.examined.is_none_or(|at| at.elapsed() >= RECHECK) {
            self.examine(&mut growth)?;
        }
        Ok(self.has_left(needed))
    }

    /// So much was admitted and is not written yet: ordinary work leaves it alone, as it does the reserve.
    pub fn note_owed(&self, bytes: u64) {
        // Relaxed: what is let in a moment before or after a write has looked is covered by the reserve.
        self.0.owed.store(bytes, Ordering::Relaxed);
    }

    /// So much of it is pages: if that is more than is left, they leave the last of the reserve alone, too ([`AllocScope::Pages`]).
    pub fn note_owed_pages(&self, bytes: u64) {
        // Relaxed: as above.
        self.0.owed_pages.store(bytes, Ordering::Relaxed);
    }

    /// Before a write of `bytes`: ordinary work does not take what is owed.
    pub(super) fn check_owed(&self, scope: AllocScope, bytes: u64) -> Result<()> {
        let owed = self.0.owed.load(Ordering::Relaxed);
        // Where nothing is owed the reserve is all that is kept, by whole extents.
        let needed = || self.0.options.room_bytes().saturating_add(owed + bytes);
        if scope != AllocScope::Ordinary || owed == 0 || self.finds_left(needed())? {
            Ok(())
        } else {
            Err(self.no_space())
        }
    }

    /// Extents became usable without a checkpoint.
    pub(super) fn note_returned(&self, extents: u64) {
        let bytes = extents * self.0.options.extent_bytes;
        let more = |left: u64| Some(left.saturating_add(bytes));
        let _ = self.0.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// [`Space::check_room`] as last seen: one relaxed read.
    #[must_use]
    pub fn has_room(&self, owed_bytes: u64) -> bool {
        self.has_left(self.0.options.room_bytes().saturating_add(owed_bytes))
    }

    fn has_left(&self, needed: u64) -> bool {
        self.0.left.load(Ordering::Relaxed) >= needed
    }

    /// Extents were opened: so much less is left.
    pub(super) fn note_opened(&self, extents: u64) {
        let bytes = extents * self.0.options.extent_bytes;
        // Relaxed: a hint, made right by the next examination.
        let less = |left: u64| Some(left.saturating_sub(bytes));
        let _ = self.0.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Usable extents that `scope` must leave untouched.
    pub(super) fn kept_extents(&self, scope: AllocScope) -> u64 {
        let finds_room = || self.0.left.load(Ordering::Relaxed) >= self.0.owed_pages.load(Ordering::Relaxed);
        let kept = match scope {
            AllocScope::Ordinary => self.reserve_extents(),
            AllocScope::Pages if finds_room() => 0,
            AllocScope::Pages => self.0.options.last_extents(),
            AllocScope::Moved => self.0.options.last_extents() / NODES_SHARE,
            AllocScope::Reserve => 0,
        };
        if kept > 0 && self.0.growth.lock().tight { kept } else { 0 }
    }

    pub(super) fn reserve_extents(&self) -> u64 {
        self.0.options.reserve_extents()
    }

    /// What is left, the reserve included, in bytes.
    ///
    /// # Errors
    /// [`Fault::Io`] if the file system does not say.
    pub fn left_bytes(&self) -> Result<u64> {
        let left = self.left()?;
        Ok((left.usable + left.returning).saturating_add(left.growable))
    }

    fn left(&self) -> Result<Left> {
        let extent_bytes = self.0.options.extent_bytes;
        let (usable, returning, backed) = {
            let allocator = self.0.allocator.lock();
            (allocator.usable_count(), allocator.returning_count(), allocator.backed_count())
        };
        let on_disk = self
            .0
            .vfs
            .free_bytes(&self.0.dir)
            .map_err(|e| Fault::io("read free space of", self.0.dir.display(), &e))?;
        let allowed = self.0.options.max_bytes.map_or(u64::MAX, |max| max.saturating_sub((backed + 1) * extent_bytes));
        let growable = on_disk.min(allowed) / extent_bytes * extent_bytes;
        Ok(Left { usable: usable * extent_bytes, returning: returning * extent_bytes, growable })
    }

    /// Looks at what is left; sets `left` and `tight`.
    fn examine(&self, growth: &mut Growth) -> Result<Left> {
        let left = self.left()?;
        let reserve = self.reserve_extents() * self.0.options.extent_bytes;
        let all = left.usable + left.returning;
        self.0.left.store(all.saturating_add(left.growable), Ordering::Relaxed);
        growth.tight = left.growable < reserve.saturating_mul(TIGHT_FACTOR);
        growth.examined = Some(Instant::now());
        Ok(left)
    }

    /// Makes `count` more extents usable. Ordinary work is held off the reserve by [`Self::kept_extents`]: on a
    /// tight disk it asks for the reserve's extents on top, and fails if those cannot be had.
    pub(super) fn grow(&self, count: u64) -> Result<()> {
        let mut growth = self.0.growth.lock();
        let extent_bytes = self.0.options.extent_bytes;
        let mut left = self.examine(&mut growth)?;
        while left.growable / extent_bytes < count && left.returning > 0 {
            // What is on its way to the file system can be had of it in a moment.
            drop(growth);
            drop(self.0.under_way.lock());
            growth = self.0.growth.lock();
            left = self.examine(&mut growth)?;
        }
        let growable = left.growable / extent_bytes;
        if growable < count {
            return Err(self.no_space());
        }
        let ahead = if growth.tight {
            // The reserve becomes extents.
            self.reserve_extents().saturating_sub(left.usable / extent_bytes)
        } else {
            // A busy file grows in larger steps, a small one by what it needs.
            let backed = self.0.allocator.lock().backed_count();
            (backed / 8).min(GROW_AHEAD_BYTES / extent_bytes)
        };
        self.allocate(count, ahead.min(growable.saturating_sub(count)))?;
        self.examine(&mut growth)?;
        Ok(())
    }

    /// Allocates `needed` extents in the file, and up to `ahead` more if that works too.
    fn allocate(&self, needed: u64, ahead: u64) -> Result<()> {
        let ids = self.0.allocator.lock().start_growth(needed + ahead);
        let mut failure = None;
        let mut got = 0;
        for run in contiguous(&ids) {
            let result =
                if failure.is_none() { self.allocate_run(run) } else { Err(io::ErrorKind::StorageFull.into()) };
            let backed = result.is_ok();
            let mut allocator = self.0.allocator.lock();
            for &id in run {
                allocator.finish_growth(id, backed);
            }
            drop(allocator);
            match result {
                Ok(()) => got += run.len() as u64,
                Err(e) => failure = failure.or(Some(e)),
            }
        }
        match failure {
            Some(e) if got < needed => Err(self.allocation_fault(&e)),
            _ => Ok(()),
        }
    }

    fn allocate_run(&self, run: &[ExtentId]) -> io::Result<()> {
        let extent_bytes = self.0.options.extent_bytes;
        self.0.data.file().allocate(u64::from(run[0]) * extent_bytes, run.len() as u64 * extent_bytes)
    }

    fn allocation_fault(&self, e: &io::Error) -> Fault {
        match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                self.0.left.store(0, Ordering::Relaxed);
                self.no_space()
            }
            // Anything else is a broken file, not a full one.
            _ => self.0.poison.set(Fault::io("allocate", &self.0.data.name, e)),
        }
    }

    fn no_space(&self) -> Fault {
        Fault::NoSpace {
            what: format!("an extent of {}", self.0.data.name),
            remedy: "free space on the disk, raise the size limit, or drop what is not needed; writing resumes by \
                     itself"
                .to_owned(),
        }
    }

    /// Extents became usable: a full disk may have room again.
    pub(super) fn space_returned(&self) {
        let mut growth = self.0.growth.lock();
        // If the file system does not answer now, the next `check_room` asks again.
        let _ = self.examine(&mut growth);
    }
}

/// Splits ascending ids into runs of neighbours.
pub(super) fn contiguous(ids: &[ExtentId]) -> impl Iterator<Item = &[ExtentId]> {
    ids.chunk_by(|a, b| *a + 1 == *b)
}
