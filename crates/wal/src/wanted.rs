//! Where the one who makes segments ahead of their use sleeps until one is wanted.
//!
//! Told by the writer, while less is ready than a segment has beside what ordinary grants leave: records say little of how fast that goes, since each
//! sync takes a block whatever is in it. So most of a segment's space is left while the next one is made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vfs::sync::{Condvar, Mutex};

#[derive(Default)]
pub(crate) struct Wanted {
    /// Told and not seen yet. Set outside the mutex, so that telling again costs a look.
    is_told: AtomicBool,
    sleeps: Mutex<()>,
    told: Condvar,
}

impl Wanted {
    /// Ends a wait, or the next one if nobody waits.
    pub(crate) fn tell(&self) {
        // SeqCst here and in `wait`, with `Room::ready`: of one who takes space and then looks here, and one who clears this and then looks
        // at the space, one sees the other.
        if !self.is_told.load(Ordering::SeqCst) && !self.is_told.swap(true, Ordering::SeqCst) {
            // Taking the mutex waits out one that has looked and does not sleep yet.
            drop(self.sleeps.lock());
            self.told.notify_one();
        }
    }

    /// Waits until told, or for so long.
    pub(crate) fn wait(&self, timeout: Duration) {
        let mut sleeps = self.sleeps.lock();
        if !self.is_told.load(Ordering::SeqCst) && !timeout.is_zero() {
            self.told.wait_for(&mut sleeps, timeout);
        }
        self.is_told.store(false, Ordering::SeqCst);
    }
}
