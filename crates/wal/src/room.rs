//! How much may be granted: room in the ring and space in segments, in one number.
//!
//! `outstanding` packs the records that were granted and are not framed yet: their count (upper half) and
//! their bytes in units of 16 (lower half). A grant is one `fetch_add` and two comparisons:
//!
//! 1. bytes outstanding fit the ring;
//! 2. bytes outstanding, plus the worst a frame can add for each record, fit the space that is `ready` in
//!    the current segment and the spare ones.
//!
//! So an append never waits and a write never looks for space. The writer lowers `ready` by what a frame takes
//! and only then lowers `outstanding` by what its records were charged, which is never less: whoever reads
//! `outstanding` first and `ready` second errs towards refusing.
//!
//! A grant that fails takes back what it added and goes the slow way: one thread at a time, which writes out
//! what is there, makes a segment, or waits for a release.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use base::limits::LSN_UNIT;
use crossbeam_utils::CachePadded;
use vfs::sync::{Condvar, Mutex};

use crate::options::{FRAME_ROOM_BYTES, WalOptions};
use crate::wanted::Wanted;

const COUNT_SHIFT: u32 = 32;

/// What is outstanding, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    /// Bytes of records.
    pub(crate) bytes: u64,
    /// Bytes of disk space that the records may need.
    pub(crate) charge: u64,
}

impl Load {
    fn unpack(packed: u64) -> Self {
        let bytes = (packed & u64::from(u32::MAX)) * LSN_UNIT;
        Self { bytes, charge: bytes + (packed >> COUNT_SHIFT) * FRAME_ROOM_BYTES }
    }
}

fn pack(bytes: u64, records: u64) -> u64 {
    debug_assert!(bytes.is_multiple_of(LSN_UNIT));
    (bytes / LSN_UNIT) | (records << COUNT_SHIFT)
}

/// Accounts for grants.
pub(crate) struct Room {
    outstanding: CachePadded<AtomicU64>,
    ready: CachePadded<AtomicU64>,
    ring_bytes: u64,
    reserve_bytes: u64,
    /// Space that a segment has.
    segment_bytes: u64,
    /// Told when less is ready than a segment has beside what ordinary grants leave.
    pub(crate) wanted: CachePadded<Wanted>,
    /// Space that ordinary grants leave beside the reserve, for records that were promised room. Changes with a prepare
    /// and a decision; who takes room a moment before or after a change was there before or after it.
    promised: AtomicU64,
    /// Told when room is released, and when a record is copied and so can be written out.
    pub(crate) changed: Signal,
    /// Held by the one thread that gets room the slow way.
    pub(crate) turn: Mutex<()>,
}

impl Room {
    pub(crate) fn new(options: &WalOptions) -> Self {
        Self {
            outstanding: CachePadded::new(AtomicU64::new(0)),
            ready: CachePadded::new(AtomicU64::new(0)),
            ring_bytes: options.ring_bytes,
            reserve_bytes: options.reserve_bytes(),
            segment_bytes: options.usable_bytes(),
            wanted: CachePadded::default(),
            promised: AtomicU64::new(0),
            changed: Signal::default(),
            turn: Mutex::new(()),
        }
    }

    /// Takes room for one record; the load with it, or `None` if there is no room. A privileged taker may use
    /// the reserve.
    ///
    /// A failure wakes the waiter: what it added for a moment may have made the waiter's own look fail.
    pub(crate) fn take(&self, bytes: u64, privileged: bool) -> Option<Load> {
        let load = self.take_quietly(bytes, privileged);
        if load.is_none() {
            self.changed.wake();
        }
        load
    }

    /// As [`Room::take`], for the waiter itself.
    pub(crate) fn take_quietly(&self, bytes: u64, privileged: bool) -> Option<Load> {
        let packed = pack(bytes, 1);
        // SeqCst, here and in `release`: pairs with `Signal`, so that a release between a failed try and the
        // sleep that follows it is not missed; Acquire is what hands over the ring's words.
        let load = Load::unpack(self.outstanding.fetch_add(packed, Ordering::SeqCst) + packed);
        vfs::thread::point("wal.room.added");
        if self.fits(load, privileged) {
            return Some(load);
        }
        self.outstanding.fetch_sub(packed, Ordering::SeqCst);
        None
    }

    /// True if a load fits ring and space.
    fn fits(&self, load: Load, privileged: bool) -> bool {
        load.bytes <= self.ring_bytes && !self.is_short_of_space(load, privileged)
    }

    /// True if a load does not fit the space that is ready.
    fn is_short_of_space(&self, load: Load, privileged: bool) -> bool {
        let reserve = if privileged { 0 } else { self.kept_bytes() };
        load.charge + reserve > self.ready.load(Ordering::SeqCst)
    }

    /// True if one more record would not fit the space that is ready.
    pub(crate) fn lacks_space_for(&self, bytes: u64, privileged: bool) -> bool {
        let packed = self.outstanding.load(Ordering::SeqCst) + pack(bytes, 1);
        self.is_short_of_space(Load::unpack(packed), privileged)
    }

    /// What ordinary grants leave.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.reserve_bytes + self.promised.load(Ordering::SeqCst)
    }

    /// Keeps space for a record of this length, in a frame of its own.
    pub(crate) fn promise(&self, bytes: u64) {
        self.promised.fetch_add(bytes + FRAME_ROOM_BYTES, Ordering::SeqCst);
    }

    /// The record is granted, or will not come.
    pub(crate) fn end_promise(&self, bytes: u64) {
        self.promised.fetch_sub(bytes + FRAME_ROOM_BYTES, Ordering::SeqCst);
        self.changed.wake();
    }

    /// What is outstanding now.
    pub(crate) fn load(&self) -> Load {
        Load::unpack(self.outstanding.load(Ordering::Relaxed))
    }

    /// Gives room of records back: they are framed, or were granted and not appended.
    pub(crate) fn release(&self, bytes: u64, records: u64) {
        self.outstanding.fetch_sub(pack(bytes, records), Ordering::SeqCst);
        self.changed.wake();
    }

    /// A frame has taken space. Before the release of its records.
    pub(crate) fn use_space(&self, bytes: u64) {
        let before = self.ready.fetch_sub(bytes, Ordering::SeqCst);
        assert!(before >= bytes, "grants cover what frames take: {before} ready, {bytes} taken");
        if before - bytes < self.aim() {
            self.wanted.tell();
        }
    }

    /// A segment is ready.
    pub(crate) fn add_space(&self, bytes: u64) {
        self.ready.fetch_add(bytes, Ordering::SeqCst);
        self.changed.wake();
    }

    /// As much is kept ready: a segment beside what ordinary grants leave.
    fn aim(&self) -> u64 {
        self.segment_bytes + self.kept_bytes()
    }

    /// True if another segment is wanted.
    pub(crate) fn wants_segment(&self) -> bool {
        self.ready() < self.aim()
    }

    /// Space that is ready.
    pub(crate) fn ready(&self) -> u64 {
        self.ready.load(Ordering::SeqCst)
    }
}

/// Threads that wait for something that others bring about without a latch.
///
/// A waiter raises `waiting` and then looks; whoever brings it about stores and then looks at `waiting`. Both
/// sides are SeqCst, so one of them sees the other. Costs the others one load of a line that is rarely written.
#[derive(Default)]
pub(crate) struct Signal {
    waiting: CachePadded<AtomicU32>,
    latch: Mutex<()>,
    told: Condvar,
}

impl Signal {
    /// Wakes the waiters, if there are any, to look again.
    pub(crate) fn wake(&self) {
        if self.waiting.load(Ordering::SeqCst) != 0 {
            // Taking the latch waits out a waiter that has looked and does not sleep yet.
            drop(self.latch.lock());
            self.told.notify_all();
        }
    }

    /// True if somebody waits.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) != 0
    }

    /// Waits until `look` finds something. `look` runs under this signal's latch and must not wake it.
    pub(crate) fn wait_until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        let mut latch = self.latch.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        vfs::thread::point("wal.signal.waiting");
        loop {
            if let Some(found) = look() {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                return found;
            }
            self.told.wait(&mut latch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_end_where_ring_or_space_ends() {
        let options = WalOptions { segment_bytes: 1 << 20, ring_bytes: 4096, ..WalOptions::default() };
        let room = Room::new(&options);
        assert!(room.take(1024, true).is_none(), "no segment yet");
        room.add_space(1 << 20);
        for _ in 0..4 {
            assert!(room.take(1024, false).is_some());
        }
        assert!(room.take(16, true).is_none(), "the ring is full");
        assert_eq!(room.load(), Load { bytes: 4096, charge: 4096 + 4 * FRAME_ROOM_BYTES });
        room.release(2048, 2);
        room.use_space((1 << 20) - 2 * (1024 + FRAME_ROOM_BYTES) - 16 - FRAME_ROOM_BYTES);
        assert!(room.take(16, false).is_none(), "the reserve is kept");
        assert!(room.take(16, true).is_some(), "for the privileged");
        assert!(room.lacks_space_for(16, true));
    }
}
