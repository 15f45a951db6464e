//! A condition variable.

use std::panic::Location;
use std::time::Duration;

use super::MutexGuard;
use crate::sim::context;

/// A condition variable: one word. Waiters look at their condition again after each wake-up; the simulator can be
/// asked to wake them for no reason.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: parking_lot::Condvar,
}

impl Condvar {
    /// Nobody waits.
    #[must_use]
    pub const fn new() -> Self {
        Self { inner: parking_lot::Condvar::new() }
    }

    /// Releases the mutex, waits to be notified, and takes the mutex again.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        if context::active() && self.wait_watched(guard, None).is_some() {
            return;
        }
        self.inner.wait(&mut guard.inner);
    }

    /// The same for at most this long; true if the time ran out before a notification came.
    #[track_caller]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        if context::active()
            && let Some(timed_out) = self.wait_watched(guard, Some(timeout))
        {
            return timed_out;
        }
        self.inner.wait_for(&mut guard.inner, timeout).timed_out()
    }

    /// Waits while `condition` is true.
    #[track_caller]
    pub fn wait_while<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, mut condition: impl FnMut(&mut T) -> bool) {
        while condition(&mut *guard) {
            self.wait(guard);
        }
    }

    /// Wakes one waiter, if there is one.
    #[track_caller]
    pub fn notify_one(&self) {
        let line = Location::caller();
        if context::with(|thread| thread.notify(self.key(), false, line)).is_none() {
            self.inner.notify_one();
        }
    }

    /// Wakes all waiters.
    #[track_caller]
    pub fn notify_all(&self) {
        let line = Location::caller();
        if context::with(|thread| thread.notify(self.key(), true, line)).is_none() {
            self.inner.notify_all();
        }
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[cold]
    #[track_caller]
    fn wait_watched<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Option<Duration>) -> Option<bool> {
        let line = Location::caller();
        context::with(|thread| {
            thread.point("sync.wait", line);
            let key = guard.key();
            let mutex = parking_lot::MutexGuard::mutex(&guard.inner);
            let nanos = timeout.map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
            parking_lot::MutexGuard::unlocked(&mut guard.inner, || {
                thread.wait_notified(self.key(), key, line, nanos, || mutex.is_locked())
            })
        })
    }
}

const _: () = assert!(size_of::<Condvar>() == 8);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Mutex;
    use std::sync::Arc;

    #[test]
    fn notified_and_timed_out() {
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let mut guard = pair.0.lock();
        assert!(pair.1.wait_for(&mut guard, Duration::from_millis(1)));
        let other = Arc::clone(&pair);
        let thread = crate::thread::spawn("notifier", move || {
            *other.0.lock() = true;
            other.1.notify_one();
            other.1.notify_all();
        })
        .unwrap();
        pair.1.wait_while(&mut guard, |ready| !*ready);
        assert!(*guard);
        drop(guard);
        thread.join().unwrap();
    }
}
