//! Threads.

use std::cell::Cell;
use std::io;
use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::sim::context;
use crate::sim::scheduler::WaitOn;
use crate::sim::spawn::{self, Joiner};
use crate::sim::trace::Place;

/// A running thread.
pub struct JoinHandle<T>(Kind<T>);

enum Kind<T> {
    Real(std::thread::JoinHandle<T>),
    Simulated(Joiner<T>),
}

impl<T> JoinHandle<T> {
    /// Waits for the end of the thread; `Err` carries its panic.
    #[track_caller]
    pub fn join(self) -> std::thread::Result<T> {
        match self.0 {
            Kind::Real(handle) => handle.join(),
            Kind::Simulated(joiner) => Ok(joiner.join()),
        }
    }

    /// True if the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Kind::Real(handle) => handle.is_finished(),
            Kind::Simulated(joiner) => joiner.is_finished(),
        }
    }
}

/// Starts a named thread. A thread started inside a simulation belongs to it.
#[track_caller]
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    let line = Location::caller();
    let kind = match spawn::inside(name, body, line) {
        Ok(joiner) => Kind::Simulated(joiner?),
        Err(body) => {
            // Boxed: compiled once for each result and not for each closure.
            let body: Box<dyn FnOnce() -> T + Send> = Box::new(body);
            Kind::Real(std::thread::Builder::new().name(name.to_owned()).spawn(body)?)
        }
    };
    Ok(JoinHandle(kind))
}

/// Sleeps.
#[track_caller]
pub fn sleep(duration: Duration) {
    let line = Location::caller();
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let inside = context::with(|thread| thread.wait(Place { name: "thread.sleep", line }, WaitOn::Time, Some(nanos)));
    if inside.is_none() {
        std::thread::sleep(duration);
    }
}

/// One turn of a short spin: lets another thread run.
#[inline]
#[track_caller]
pub fn spin() {
    if context::active() {
        let line = Location::caller();
        context::with(|thread| thread.spin(line));
    }
    std::hint::spin_loop();
}

/// Gives the core to another thread: for a spin that has lasted.
#[track_caller]
pub fn yield_now() {
    let line = Location::caller();
    if context::with(|thread| thread.spin(line)).is_none() {
        std::thread::yield_now();
    }
}

/// A place where the simulator may switch threads: between two steps whose separation once was a bug. Costs
/// one predictable branch outside a simulation. `name` says which step ("wal.reserved", "leaf.unlatched").
#[inline]
#[track_caller]
pub fn point(name: &'static str) {
    if context::active() {
        let line = Location::caller();
        context::with(|thread| thread.point(name, line));
    }
    if cfg!(debug_assertions)
        && let Some(tell) = AT_POINT.get()
    {
        tell(name);
    }
}

static AT_POINT: OnceLock<fn(&'static str)> = OnceLock::new();

/// From now on this is told of each place that is passed, in builds with debug assertions: for tests in which a process dies there.
pub fn at_points(tell: fn(&'static str)) {
    AT_POINT.get_or_init(|| tell);
}

/// How many threads can run at once; at least 1.
#[must_use]
pub fn cores() -> usize {
    context::with(|thread| thread.shared.config.cores)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// A number of the running thread: stable, and spread evenly over threads, so that `number() % shards` chooses a
/// shard of what is sharded to keep cores off each other's cache lines. Only a hint, for which any answer is correct:
/// numbers are given once, and never tell threads of different simulations apart.
///
/// Inside a simulation it follows from the order of creation, where a counter of the process would go on counting
/// from one simulation to the next.
#[inline]
#[must_use]
pub fn number() -> usize {
    // No partner: the numbers only have to differ.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    if let Some(id) = context::with(|thread| thread.id) {
        return id;
    }
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        mine.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_a_simulation() {
        let thread = spawn("seven", || 7).unwrap();
        assert_eq!(thread.join().unwrap(), 7);
        let panics = spawn("panics", || panic!("on purpose")).unwrap();
        assert!(panics.join().is_err());
        sleep(Duration::from_micros(1));
        spin();
        yield_now();
        point("vfs.test");
        assert!(cores() >= 1);
        let other = spawn("number", || (number(), number())).unwrap().join().unwrap();
        assert!(other.0 == other.1 && other.0 != number());
    }
}
