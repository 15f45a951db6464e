//! Extents back to the file system: those at the end of the file by cutting it, others by punching holes.
//!
//! A large table that was dropped frees more than the file system takes in a moment: 0.4 ms a hole on ext4, and all reads and writes of the file wait
//! meanwhile. So extents go a few at a time, and between them the caller is asked whether to go on. No latch is held while holes are punched but that of
//! the few that are under way, which is waited for by who finds no space without them ([`Space::grow`]).
//!
//! What is free when the file is opened may be a hole or not: nobody wrote down what had been given back when the process ended. It is punched, too.
//!
//! Invariant: of extents in [`State::Moving`](super::allocator) those that are given back belong to who holds `giving_back`; the others, which
//! grow, to who holds the growth latch. So whoever has both knows that what is moving is his own.

use std::io;

use base::{Fault, Result};

use super::Space;
use super::allocator::ExtentId;
use super::growth::contiguous;

/// Free extents kept, at least, beside the reserve of a tight disk.
const SPARE_EXTENTS: u64 = 2;
/// What steady work takes between two checkpoints is kept too, up to this share of the file: giving it back would only
/// mean to allocate it again.
const SPARE_SHARE: u64 = 8;
/// As many go before the caller is asked again.
const LOT: usize = 16;

/// What came of giving back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenBack {
    /// Bytes of extents; those count, too, that may have been holes since the file was opened.
    pub bytes: u64,
    /// There is more: the caller did not go on, or somebody else is at it.
    pub is_more: bool,
}

impl Space {
    /// Gives free extents back to the file system but a small spare: with `is_busy` also what was opened between the two newest checkpoints, as far as it
    /// is a small part of the file. After every few `goes_on` says whether to go on. Nothing if somebody else is giving back.
    ///
    /// # Errors
    /// The fault of the file system, which poisons.
    pub fn give_back(&self, is_busy: bool, mut goes_on: impl FnMut() -> bool) -> Result<GivenBack> {
        let mut given = GivenBack { bytes: 0, is_more: true };
        let Some(_alone) = self.0.giving_back.try_lock() else { return Ok(given) };
        let steady = if is_busy { self.steady_extents() } else { 0 };
        loop {
            self.0.poison.check()?;
            let some = self.give_back_some(steady.max(SPARE_EXTENTS))?;
            given.bytes += some as u64 * self.0.options.extent_bytes;
            given.is_more = some == LOT;
            if !given.is_more || !goes_on() {
                return Ok(given);
            }
        }
    }

    fn steady_extents(&self) -> u64 {
        let allocator = self.0.allocator.lock();
        allocator.steady_count().min(allocator.backed_count() / SPARE_SHARE)
    }

    /// The last free extents of the file, as many as go at once. Returns how many there were.
    fn give_back_some(&self, spare: u64) -> Result<usize> {
        let under_way = self.0.under_way.lock();
        let growth = self.0.growth.lock();
        let reserve = if growth.tight { self.reserve_extents() } else { 0 };
        let (mut ids, used, ends_behind) = {
            let mut allocator = self.0.allocator.lock();
            let ids = allocator.start_give_back(spare + reserve, LOT);
            let used = allocator.used_extents();
            (ids, used, allocator.extent_count() > used)
        };
        ids.sort_unstable();
        let (holes, end) = ids.split_at(ids.partition_point(|id| *id < used));
        let cut = if ends_behind { self.cut(used) } else { Ok(()) };
        {
            let mut allocator = self.0.allocator.lock();
            end.iter().for_each(|id| allocator.finish_give_back(*id));
            if cut.is_ok() {
                allocator.truncate(used);
            }
        }
        drop(growth);
        vfs::thread::point("space.giving_back");
        let punched = self.punch(holes, cut);
        drop(under_way);
        punched.map_err(|e| self.0.poison.set(Fault::io("give back space of", &self.0.data.name, &e)))?;
        if !ids.is_empty() {
            self.space_returned();
        }
        Ok(ids.len())
    }

    /// After a failure no more is punched; an extent that may have been is allocated again before use.
    fn punch(&self, ids: &[ExtentId], before: io::Result<()>) -> io::Result<()> {
        let extent_bytes = self.0.options.extent_bytes;
        contiguous(ids).fold(before, |before, run| {
            let (offset, bytes) = (u64::from(run[0]) * extent_bytes, run.len() as u64 * extent_bytes);
            let punched = before.and_then(|()| self.0.data.file().punch(offset, bytes));
            let mut allocator = self.0.allocator.lock();
            run.iter().for_each(|id| allocator.finish_give_back(*id));
            punched
        })
    }

    /// Cuts the file behind its first `used` extents.
    fn cut(&self, used: u32) -> io::Result<()> {
        let header = base::limits::SECTOR_BYTES as u64;
        let file = self.0.data.file();
        let len = if used <= 1 { header } else { u64::from(used) * self.0.options.extent_bytes };
        if file.len()? > len { file.set_len(len) } else { Ok(()) }
    }
}
