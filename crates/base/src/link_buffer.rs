//! The contiguous-prefix tracker behind `visible` and behind the log's copied prefix (rule A12).
//!
//! Ranges `[start, end)` of log positions are marked done in any order by any thread; `advance` moves the
//! prefix over every range that is contiguous with it. It walks ranges, never a list of known commits, so a
//! range reserved by a thread that was preempted before it could register itself still holds the prefix.
//!
//! A range is marked by storing its end in the slot of its start. Slots are reused once the prefix has
//! passed them. The end, not the length, is stored: a thread that read a slot, slept while the prefix went
//! once around the buffer, and then tries to take the slot, must not mistake a newer range for the one it saw.
//!
//! Invariants: every reserved range is marked exactly once; `end - prefix <= capacity` for every range
//! marked, which whoever reserves guarantees; a slot is non-zero only between its mark and the moment the
//! prefix passes it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Lsn;
use crate::limits::LSN_UNIT;

/// Tracks the end of the contiguous prefix of ranges marked done.
#[derive(Debug)]
pub struct LinkBuffer {
    slots: Box<[AtomicU64]>,
    mask: u64,
    prefix: AtomicU64,
}

impl LinkBuffer {
    /// A tracker whose prefix ends at `start`, for ranges that lie within `window_bytes` of the prefix.
    /// `window_bytes` is rounded up to a power of two.
    #[must_use]
    pub fn new(start: Lsn, window_bytes: u64) -> Self {
        assert_eq!(start.0 % LSN_UNIT, 0, "positions are multiples of the unit");
        let slots = window_bytes.div_ceil(LSN_UNIT).next_power_of_two().max(2);
        Self {
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            mask: slots - 1,
            prefix: AtomicU64::new(start.0),
        }
    }

    /// Memory of a tracker for a window, in bytes.
    #[must_use]
    pub fn bytes_of(window_bytes: u64) -> u64 {
        window_bytes.div_ceil(LSN_UNIT).next_power_of_two() * size_of::<AtomicU64>() as u64
    }

    /// How far beyond the prefix a range may end, in bytes.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        (self.mask + 1) * LSN_UNIT
    }

    /// End of the contiguous prefix. What was written before the marks below it is visible to the caller.
    #[must_use]
    pub fn prefix(&self) -> Lsn {
        Lsn(self.prefix.load(Ordering::Acquire))
    }

    /// Marks `[start, end)` done. Publishes what the caller wrote before.
    ///
    /// # Panics
    /// If the range is empty, not a multiple of the unit, or outside the window.
    pub fn mark(&self, start: Lsn, end: Lsn) {
        assert!(start < end && (start.0 | end.0).is_multiple_of(LSN_UNIT), "range {start}..{end}");
        assert!(end.0 - self.prefix.load(Ordering::Acquire) <= self.window_bytes(), "range beyond the window");
        // SeqCst, with the SeqCst load in `advance`: of two threads that mark neighbouring ranges at the same
        // time, at least one sees the other's mark, so the prefix never stays behind a finished range.
        let before = self.slot(start.0).swap(end.0, Ordering::SeqCst);
        debug_assert_eq!(before, 0, "a range is marked once");
    }

    /// Moves the prefix over every contiguous range marked so far; returns its new end.
    pub fn advance(&self) -> Lsn {
        let mut at = self.prefix.load(Ordering::SeqCst);
        loop {
            let end = self.slot(at).load(Ordering::SeqCst);
            if end <= at || end - at > self.window_bytes() {
                // Empty, or a newer range: then another thread has moved the prefix past this slot.
                let now = self.prefix.load(Ordering::SeqCst);
                if now == at {
                    return Lsn(at);
                }
                at = now;
                continue;
            }
            // Whoever empties the slot owns the step; nobody can mark it again before the prefix has passed it.
            if self.slot(at).compare_exchange(end, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                self.prefix.store(end, Ordering::SeqCst);
                at = end;
            } else {
                at = self.prefix.load(Ordering::SeqCst);
            }
        }
    }

    fn slot(&self, position: u64) -> &AtomicU64 {
        &self.slots[((position / LSN_UNIT) & self.mask) as usize]
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "below vfs: these tests race real threads")]
mod tests {
    use super::*;

    #[test]
    fn a_gap_holds_the_prefix() {
        let b = LinkBuffer::new(Lsn(16), 1024);
        b.mark(Lsn(32), Lsn(64));
        assert_eq!(b.advance(), Lsn(16));
        b.mark(Lsn(16), Lsn(32));
        assert_eq!(b.advance(), Lsn(64));
        assert_eq!(b.prefix(), Lsn(64));
    }

    #[test]
    fn many_threads_many_times_around() {
        use std::sync::atomic::AtomicU64;
        let b = LinkBuffer::new(Lsn(0), 4096);
        let next = AtomicU64::new(0);
        std::thread::scope(|s| {
            for t in 0..4u64 {
                let (b, next) = (&b, &next);
                s.spawn(move || {
                    for i in 0..20_000u64 {
                        let len = LSN_UNIT * (1 + (i + t) % 5);
                        let start = next.fetch_add(len, Ordering::SeqCst);
                        while start + len - b.prefix().0 > b.window_bytes() {
                            b.advance();
                            std::hint::spin_loop();
                        }
                        b.mark(Lsn(start), Lsn(start + len));
                        b.advance();
                    }
                });
            }
        });
        assert_eq!(b.advance().0, next.load(Ordering::SeqCst));
    }
}
