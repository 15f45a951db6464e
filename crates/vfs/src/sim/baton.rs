//! The baton: a word in memory on which one OS thread sleeps until another hands over.
//!
//! A futex, and not `std::thread::park`, because a simulated thread still hands over while its thread-local values
//! are being destroyed, when `std` may no longer know the thread.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

const AWAY: u32 = 0;
const HERE: u32 = 1;

#[derive(Debug, Default)]
pub(crate) struct Baton(AtomicU32);

impl Baton {
    /// Hands the baton to the thread that waits, or soon will.
    pub(crate) fn give(&self) {
        // Release: partner of the acquire in `wait`; what the giver did happens before what the taker does.
        self.0.store(HERE, Ordering::Release);
        // An error could only mean that the kernel has no futexes; the taker would then spin in `wait`.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
    }

    /// Waits for the baton and takes it.
    pub(crate) fn wait(&self) {
        // Acquire: partner of the release in `give`.
        while self.0.compare_exchange(HERE, AWAY, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // Returns at once if the word is no longer AWAY, and now and then for no reason.
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, AWAY, None);
        }
    }
}
