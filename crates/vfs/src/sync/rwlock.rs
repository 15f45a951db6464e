//! A reader-writer lock.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

use super::key_of;
use crate::sim::context;
use crate::sim::locks::{self, Mode};

/// A reader-writer lock: one word beside the data. New readers wait behind a waiting writer.
#[derive(Default)]
pub struct RwLock<T: ?Sized> {
    inner: parking_lot::RwLock<T>,
}

impl<T> RwLock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { inner: parking_lot::RwLock::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits for the lock and takes it, shared.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let inner = if context::active() { self.read_watched() } else { self.inner.read() };
        RwLockReadGuard { inner, released: Released(&self.inner) }
    }

    /// Waits for the lock and takes it, exclusive.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let inner = if context::active() { self.write_watched() } else { self.inner.write() };
        RwLockWriteGuard { inner, released: Released(&self.inner) }
    }

    /// Takes the lock, shared, if no writer has it or waits for it.
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let inner = if context::active() { self.try_read_watched() } else { self.inner.try_read() };
        Some(RwLockReadGuard { inner: inner?, released: Released(&self.inner) })
    }

    /// Takes the lock, exclusive, if it is free.
    #[inline]
    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let inner = if context::active() { self.try_write_watched() } else { self.inner.try_write() };
        Some(RwLockWriteGuard { inner: inner?, released: Released(&self.inner) })
    }

    /// The value, by the only reference there is.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// True if someone holds the lock, shared or exclusive: for assertions, and as a hint.
    pub fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    /// True if someone holds the lock exclusive: for assertions.
    pub fn is_locked_exclusive(&self) -> bool {
        self.inner.is_locked_exclusive()
    }

    #[cold]
    #[track_caller]
    fn read_watched(&self) -> parking_lot::RwLockReadGuard<'_, T> {
        let (key, line) = (key_of(&self.inner), Location::caller());
        let inside = context::with(|thread| {
            thread.acquire(key, Mode::Read, line, || self.inner.try_read(), || self.inner.read())
        });
        inside.unwrap_or_else(|| self.inner.read())
    }

    #[cold]
    #[track_caller]
    fn write_watched(&self) -> parking_lot::RwLockWriteGuard<'_, T> {
        let (key, line) = (key_of(&self.inner), Location::caller());
        let inside = context::with(|thread| {
            thread.acquire(key, Mode::Write, line, || self.inner.try_write(), || self.inner.write())
        });
        inside.unwrap_or_else(|| self.inner.write())
    }

    #[cold]
    #[track_caller]
    fn try_read_watched(&self) -> Option<parking_lot::RwLockReadGuard<'_, T>> {
        let (key, line) = (key_of(&self.inner), Location::caller());
        let inside = context::with(|thread| thread.try_acquire(key, Mode::Read, line, || self.inner.try_read()));
        inside.unwrap_or_else(|| self.inner.try_read())
    }

    #[cold]
    #[track_caller]
    fn try_write_watched(&self) -> Option<parking_lot::RwLockWriteGuard<'_, T>> {
        let (key, line) = (key_of(&self.inner), Location::caller());
        let inside = context::with(|thread| thread.try_acquire(key, Mode::Write, line, || self.inner.try_write()));
        inside.unwrap_or_else(|| self.inner.try_write())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// Holds an [`RwLock`], shared; released on drop.
#[must_use = "the lock is released at once"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    // Order matters: the word is released before the scheduler is told.
    inner: parking_lot::RwLockReadGuard<'a, T>,
    #[expect(dead_code, reason = "its drop tells the scheduler")]
    released: Released<'a, T>,
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Holds an [`RwLock`], exclusive; released on drop.
#[must_use = "the lock is released at once"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    // Order matters: the word is released before the scheduler is told.
    inner: parking_lot::RwLockWriteGuard<'a, T>,
    released: Released<'a, T>,
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Goes on shared, with no writer in between.
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T> {
        let Self { inner, released } = guard;
        let lock = released.0;
        mem::forget(released);
        let inner = parking_lot::RwLockWriteGuard::downgrade(inner);
        context::with(|thread| thread.downgraded(key_of(lock)));
        RwLockReadGuard { inner, released: Released(lock) }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

struct Released<'a, T: ?Sized>(&'a parking_lot::RwLock<T>);

impl<T: ?Sized> Drop for Released<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if context::active() {
            locks::released(key_of(self.0));
        }
    }
}

const _: () = assert!(size_of::<RwLock<()>>() == 8 && size_of::<RwLock<u64>>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_excludes() {
        static GLOBAL: RwLock<u32> = RwLock::new(1);
        let (first, second) = (GLOBAL.read(), GLOBAL.try_read().unwrap());
        assert_eq!(*first + *second, 2);
        assert!(GLOBAL.try_write().is_none() && GLOBAL.is_locked() && !GLOBAL.is_locked_exclusive());
        drop((first, second));
        let mut writer = GLOBAL.write();
        *writer = 7;
        assert!(GLOBAL.try_read().is_none() && GLOBAL.is_locked_exclusive());
        let reader = RwLockWriteGuard::downgrade(writer);
        assert_eq!((*reader, *GLOBAL.try_read().unwrap()), (7, 7));
        drop(reader);
        assert!(GLOBAL.try_write().is_some());
    }
}
