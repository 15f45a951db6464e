//! Locks and condition variables as the scheduler sees them.
//!
//! The lock word itself stays the one of `parking_lot`, taken by `try_lock` while this thread holds the baton: so a
//! lock may be made outside a simulation and used inside, and data is protected the same way in both worlds. What
//! is kept here is who holds a lock, to say so in a deadlock, and to know that somebody will release it: a lock that
//! is taken but held by no simulated thread is held by the outside world, and is waited for as outside.

use std::panic::Location;

use super::context::{SimThread, with};
use super::scheduler::{LockKey, LockState, WaitOn};
use super::trace::Place;

/// How a lock is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A mutex.
    Lock,
    /// Shared.
    Read,
    /// Exclusive.
    Write,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Lock => "sync.lock",
            Self::Read => "sync.read",
            Self::Write => "sync.write",
        }
    }

    fn name_held(self) -> &'static str {
        match self {
            Self::Lock => "sync.locked",
            Self::Read => "sync.reading",
            Self::Write => "sync.writing",
        }
    }
}

type Line = &'static Location<'static>;

impl SimThread {
    /// Takes a lock. `attempt` tries it once, `outside` waits for it as outside a simulation.
    pub(crate) fn acquire<R>(
        &self,
        key: LockKey,
        mode: Mode,
        line: Line,
        mut attempt: impl FnMut() -> Option<R>,
        outside: impl FnOnce() -> R,
    ) -> R {
        self.point(mode.name(), line);
        let guard = loop {
            if let Some(guard) = self.attempt(key, mode, &mut attempt) {
                break guard;
            }
            let mut state = self.state();
            let Some(lock) = state.locks.get_mut(&key) else {
                drop(state);
                break outside();
            };
            if mode == Mode::Write && lock.writer.is_none() {
                lock.draining.get_or_insert(self.id);
            }
            self.wait_in(state, WaitOn::Lock(key), None);
        };
        self.acquired(key, mode);
        self.point(mode.name_held(), line);
        guard
    }

    /// Tries a lock once.
    pub(crate) fn try_acquire<R>(
        &self,
        key: LockKey,
        mode: Mode,
        line: Line,
        mut attempt: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        self.point(mode.name(), line);
        let guard = self.attempt(key, mode, &mut attempt)?;
        self.acquired(key, mode);
        self.point(mode.name_held(), line);
        Some(guard)
    }

    /// `parking_lot` lets no new reader in while a writer waits for the old ones to leave; nor do we.
    fn attempt<R>(&self, key: LockKey, mode: Mode, attempt: &mut impl FnMut() -> Option<R>) -> Option<R> {
        let draining = self.state().locks.get(&key).and_then(|lock| lock.draining);
        match draining {
            Some(writer) if mode != Mode::Lock && writer != self.id => None,
            _ => attempt(),
        }
    }

    fn acquired(&self, key: LockKey, mode: Mode) {
        let mut state = self.state();
        let lock = state.locks.entry(key).or_default();
        match mode {
            Mode::Read => lock.readers.push(self.id),
            Mode::Lock | Mode::Write => lock.writer = Some(self.id),
        }
        if lock.draining == Some(self.id) {
            lock.draining = None;
        }
    }

    /// A lock was released.
    pub(crate) fn released(&self, key: LockKey) {
        let mut state = self.state();
        self.forget_holder(state.locks.get_mut(&key));
        if state.locks.get(&key).is_some_and(|lock| lock.is_free()) {
            state.locks.remove(&key);
        }
        state.wake(WaitOn::Lock(key));
        let line = state.threads[self.id].place.map_or(Location::caller(), |place| place.line);
        self.point_in(state, Place { name: "sync.release", line });
    }

    /// An exclusive lock became a shared one.
    pub(crate) fn downgraded(&self, key: LockKey) {
        let mut state = self.state();
        self.forget_holder(state.locks.get_mut(&key));
        state.locks.entry(key).or_default().readers.push(self.id);
        state.wake(WaitOn::Lock(key));
        self.point_in(state, Place { name: "sync.downgrade", line: Location::caller() });
    }

    fn forget_holder(&self, lock: Option<&mut LockState>) {
        let Some(lock) = lock else { return };
        if lock.writer == Some(self.id) {
            lock.writer = None;
        } else if let Some(at) = lock.readers.iter().position(|t| *t == self.id) {
            lock.readers.swap_remove(at);
        }
    }

    /// Waits on a condition variable; true if the time ran out. Called with the mutex `key` just released by this
    /// thread, which held the baton all the while, so no notification can fall between. Returns when the mutex is
    /// free, still holding the baton, so that taking it back cannot fail.
    pub(crate) fn wait_notified(
        &self,
        condvar: usize,
        key: LockKey,
        line: Line,
        timeout_nanos: Option<u64>,
        is_locked: impl Fn() -> bool,
    ) -> bool {
        let mut state = self.state();
        self.forget_holder(state.locks.get_mut(&key));
        if state.locks.get(&key).is_some_and(|lock| lock.is_free()) {
            state.locks.remove(&key);
        }
        state.wake(WaitOn::Lock(key));
        state = self.step(state, Place { name: "sync.waiting", line });
        let spurious = self.shared.config.spurious_wakeup;
        let timed_out = if spurious > 0.0 && state.chooser.chance(spurious) {
            self.wait_in(state, WaitOn::Time, Some(0));
            false
        } else {
            self.wait_in(state, WaitOn::Notify(condvar), timeout_nanos)
        };
        while is_locked() {
            let state = self.state();
            if !state.locks.contains_key(&key) {
                break;
            }
            self.wait_in(state, WaitOn::Lock(key), None);
        }
        self.acquired(key, Mode::Lock);
        timed_out
    }

    /// Wakes one or all waiters of a condition variable.
    pub(crate) fn notify(&self, condvar: usize, all: bool, line: Line) {
        self.point("sync.notify", line);
        let mut state = self.state();
        if all {
            state.wake(WaitOn::Notify(condvar));
        } else {
            state.wake_one(WaitOn::Notify(condvar));
        }
        self.point_in(state, Place { name: "sync.notified", line });
    }
}

impl LockState {
    fn is_free(&self) -> bool {
        self.writer.is_none() && self.readers.is_empty() && self.draining.is_none()
    }
}

/// A lock was released by this OS thread, simulated or not.
#[cold]
pub(crate) fn released(key: LockKey) {
    with(|thread| thread.released(key));
}
