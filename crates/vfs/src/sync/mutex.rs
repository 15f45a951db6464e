//! A mutex.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

use super::key_of;
use crate::sim::context;
use crate::sim::locks::{self, Mode};

/// A mutex: one byte beside the data.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    inner: parking_lot::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A free mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self { inner: parking_lot::Mutex::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the mutex and takes it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let inner = if context::active() { self.lock_watched() } else { self.inner.lock() };
        MutexGuard { inner, released: Released(&self.inner) }
    }

    /// Takes the mutex if it is free.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = if context::active() { self.try_lock_watched() } else { self.inner.try_lock() };
        Some(MutexGuard { inner: inner?, released: Released(&self.inner) })
    }

    /// The value, by the only reference there is.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// True if someone holds the mutex: for assertions.
    pub fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    #[cold]
    #[track_caller]
    fn lock_watched(&self) -> parking_lot::MutexGuard<'_, T> {
        let (key, line) = (key_of(&self.inner), Location::caller());
        let inside = context::with(|thread| {
            thread.acquire(key, Mode::Lock, line, || self.inner.try_lock(), || self.inner.lock())
        });
        inside.unwrap_or_else(|| self.inner.lock())
    }

    #[cold]
    #[track_caller]
    fn try_lock_watched(&self) -> Option<parking_lot::MutexGuard<'_, T>> {
        let (key, line) = (key_of(&self.inner), Location::caller());
        let inside = context::with(|thread| thread.try_acquire(key, Mode::Lock, line, || self.inner.try_lock()));
        inside.unwrap_or_else(|| self.inner.try_lock())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// Holds a [`Mutex`]; released on drop.
#[must_use = "the mutex is released at once"]
pub struct MutexGuard<'a, T: ?Sized> {
    // Order matters: the word is released before the scheduler is told.
    pub(super) inner: parking_lot::MutexGuard<'a, T>,
    released: Released<'a, T>,
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// The mutex this guard holds.
    pub(super) fn key(&self) -> crate::sim::scheduler::LockKey {
        key_of(self.released.0)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

struct Released<'a, T: ?Sized>(&'a parking_lot::Mutex<T>);

impl<T: ?Sized> Drop for Released<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if context::active() {
            locks::released(key_of(self.0));
        }
    }
}

const _: () = assert!(size_of::<Mutex<()>>() == 1 && size_of::<Mutex<u64>>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excludes_and_gives_back() {
        static GLOBAL: Mutex<u32> = Mutex::new(1);
        let held = GLOBAL.lock();
        assert!(GLOBAL.is_locked() && GLOBAL.try_lock().is_none());
        drop(held);
        *GLOBAL.try_lock().unwrap() += 1;
        assert_eq!(GLOBAL.lock().to_string(), "2");
        let mut own = Mutex::from(5);
        *own.get_mut() += 1;
        assert_eq!(own.into_inner(), 6);
    }

    #[test]
    fn counts_under_contention() {
        let count = std::sync::Arc::new(Mutex::new(0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let count = std::sync::Arc::clone(&count);
                crate::thread::spawn("adder", move || (0..10_000).for_each(|_| *count.lock() += 1)).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(*count.lock(), 40_000);
    }
}
