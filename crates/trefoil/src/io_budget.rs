//! How much the background may write in a second ([`crate::Options::io_budget_bytes`]).
//!
//! A bucket that fills at the budget's rate, and that all bytes empty that go to the data file, whoever wrote them: what is
//! urgent is not held up, but the rest pays for it. It is asked before a piece of work is begun, so that a piece of 1 MiB
//! may overdraw it; the next one waits until that is paid back.
//!
//! Held up are write-back ahead of need, the checkpoint between two batches, and cleaning and collection, which make pages
//! dirty. Nobody rests while a writer waits: write-back not while memory is asked for and nothing clean is left
//! ([`Engine::write_back_hurries`]), a checkpoint not while the log is nearly full, the disk is, or somebody waits for it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use vfs::sync::Mutex;
use vfs::time::Instant;

use crate::engine::Engine;

/// What a bucket holds that nobody empties: bytes of so much time.
const CREDIT: Duration = Duration::from_millis(100);
/// What is urgent is seen after so long.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The bucket of one database.
#[derive(Debug, Default)]
pub struct IoBudget {
    /// Bytes a second; 0: no bound.
    rate: AtomicU64,
    bucket: Mutex<Bucket>,
    /// Callers who wait for a checkpoint to end.
    awaited: AtomicUsize,
}

#[derive(Debug, Default)]
struct Bucket {
    /// Bytes; negative: overdrawn.
    level: f64,
    /// As of when, and how much was written by then.
    seen: Option<(Instant, u64)>,
}

impl Bucket {
    fn look(&mut self, now: Instant, written: u64, rate: u64) -> bool {
        let (then, before) = self.seen.replace((now, written)).unwrap_or((now, written));
        let came = rate as f64 * (now - then).as_secs_f64();
        // What was spent counts before what is too much to keep.
        self.level += came - written.saturating_sub(before) as f64;
        self.level = self.level.min(rate as f64 * CREDIT.as_secs_f64());
        self.level >= 0.0
    }
}

impl IoBudget {
    /// Sets the budget anew, in bytes a second; 0: none. Nothing is owed at first.
    pub fn set(&self, rate: u64) {
        *self.bucket.lock() = Bucket::default();
        self.rate.store(rate, Ordering::Relaxed);
    }

    /// Bytes a second, if there is a bound.
    pub fn rate(&self) -> Option<u64> {
        Some(self.rate.load(Ordering::Relaxed)).filter(|rate| *rate != 0)
    }

    fn has_room(&self, now: Instant, written: u64) -> bool {
        self.rate().is_none_or(|rate| self.bucket.lock().look(now, written, rate))
    }
}

/// While it lasts somebody waits for a checkpoint.
pub struct Awaited<'a>(&'a IoBudget);

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.awaited.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// A checkpoint is waited for from now on, whoever makes it.
    pub fn await_checkpoint(&self) -> Awaited<'_> {
        self.io_budget.awaited.fetch_add(1, Ordering::Relaxed);
        Awaited(&self.io_budget)
    }

    /// True if the background may write what is not urgent.
    pub fn may_write(&self) -> bool {
        self.io_budget.has_room(Instant::now(), self.space.written_and_live().0)
    }

    /// True if a checkpoint is waited for, or will be before long.
    pub fn checkpoint_hurries(&self) -> bool {
        let awaited = self.io_budget.awaited.load(Ordering::Relaxed) > 0;
        awaited || self.log_is_nearly_full() || self.is_full() || self.must_end()
    }

    /// True if somebody waits for memory. What is clean is taken first.
    pub fn write_back_hurries(&self) -> bool {
        self.cache.is_waited_for() || self.must_end()
    }

    fn must_end(&self) -> bool {
        self.signal.stopping() || self.poison.cause().is_some()
    }

    /// Waits until the background may write, or has to. With no latch held that a reader or writer may want.
    pub fn rest_from_writing(&self) {
        while !self.may_write() && !self.checkpoint_hurries() {
            vfs::thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_fills_at_its_rate_and_keeps_little() {
        let (mut bucket, start) = (Bucket::default(), Instant::now());
        let mut look =
            |millis: u64, written: u64| bucket.look(start + Duration::from_millis(millis), written, 1_000_000);
        assert!(look(0, 500), "what was written before the first look is not owed");
        assert!(look(10_000, 500), "a long rest");
        assert!(look(10_000, 100_500), "earns a tenth of a second");
        assert!(!look(10_000, 300_500), "and no more");
        assert!(!look(10_199, 300_500));
        assert!(look(10_200, 300_500), "until it is paid back");
    }
}
