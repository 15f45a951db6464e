//! A value that is read without a lock and replaced as a whole (inner nodes of a tree, lists of attached runs).
//!
//! Steps of a reader: pin the epoch, load the pointer, use the value while the guard lives. Steps of a writer:
//! swap the pointer, hand the old value to `crossbeam-epoch`, which drops it once every guard that was pinned at
//! the swap is gone. Writers of one cell are serialised by their owner where that matters (a tree's structure
//! latch); two racing `replace` calls are safe, one of them comes second.
//!
//! With `frame/chunk.rs` and `prefetch.rs` the unsafe files of the crate. What must hold, and who guarantees it:
//!
//! 1. The pointer is never null and points to a live `T`: `new` stores an owned one, `replace` swaps in an owned
//!    one, nothing else writes it.
//! 2. A value taken out of the cell is dropped only by the cell's collector, also when the cell itself is dropped.
//!    So a reference obtained under a guard stays good as long as the guard, even if the cell goes first: this is
//!    what lets [`EpochCell::load`] tie the reference to the guard alone, and a reader walk through cells inside
//!    values.
//! 3. Retired values may be dropped on any thread, at any later `pin`: hence `T: Send + Sync + 'static`. Dropping
//!    a `T` must not need a latch that a thread may hold while it pins.
//! 4. A guard protects values of one collector only. Cell and guard carry theirs, and `load` compares them.
//!
//! Why there is more than one collector: a collector drops what is retired on whatever thread comes along. Each
//! simulation has its own, so that its drops happen in its own threads, at moments that follow from the seed, and
//! no simulation drops what another left behind. Outside simulations there is one for the process.
//!
//! Why not `Arc` behind a lock: every reader would write a shared count; 48 readers of one root would share one
//! cache line.

use std::fmt;
use std::sync::atomic::Ordering;

use crossbeam_epoch::{Atomic, Collector, LocalHandle, Owned, Shared};
#[cfg(crossbeam_loom)]
use loom::thread_local;

/// Whose guards protect a value: the process's (`None`), or a simulation's.
#[derive(Clone, PartialEq, Eq)]
struct Domain(Option<Collector>);

impl Domain {
    fn collector(&self) -> &Collector {
        self.0.as_ref().unwrap_or_else(|| crossbeam_epoch::default_collector())
    }

    /// The domain of this OS thread. A simulated thread is a fresh OS thread, so it never changes.
    fn of_thread() -> Self {
        Self(vfs::sim::current().map(|simulation| (*simulation.local(Collector::new)).clone()))
    }
}

struct Here {
    domain: Domain,
    handle: LocalHandle,
}

impl Here {
    fn new() -> Self {
        let domain = Domain::of_thread();
        let handle = domain.collector().register();
        Self { domain, handle }
    }

    fn pin(&self) -> Guard {
        Guard { guard: self.handle.pin(), domain: self.domain.clone() }
    }
}

thread_local! {
    static HERE: Here = Here::new();
}

/// While it lives, no value loaded under it is dropped. Not `Send`.
pub struct Guard {
    guard: crossbeam_epoch::Guard,
    domain: Domain,
}

/// Pins the current thread's epoch. Cheap; nests. Hold it briefly: memory is not reclaimed past the oldest guard.
#[must_use]
pub fn pin() -> Guard {
    // While the thread's values are being destroyed: a handle for this once; the guard keeps what it needs of it.
    HERE.try_with(Here::pin).unwrap_or_else(|_| Here::new().pin())
}

impl Guard {
    /// Lets go of everything loaded so far and pins anew: for long scans, once a leaf.
    pub fn repin(&mut self) {
        self.guard.repin();
    }

    /// Hands what this thread has retired to whoever collects next, and collects some.
    pub fn flush(&self) {
        self.guard.flush();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// A value that is read without a lock and replaced as a whole.
///
/// ```
/// use trefoil_store::{EpochCell, epoch};
///
/// let cell = EpochCell::new(vec![1, 2]);
/// let guard = epoch::pin();
/// let old = cell.load(&guard);
/// cell.replace(vec![3]);
/// assert_eq!((old.as_slice(), cell.load(&guard).as_slice()), ([1, 2].as_slice(), [3].as_slice()));
/// ```
pub struct EpochCell<T: Send + Sync + 'static> {
    value: Atomic<T>,
    domain: Domain,
}

impl<T: Send + Sync + 'static> EpochCell<T> {
    /// A cell that holds `value`, to be used in the simulation it was made in, or outside any.
    #[must_use]
    pub fn new(value: T) -> Self {
        let domain = HERE.try_with(|here| here.domain.clone()).unwrap_or_else(|_| Domain::of_thread());
        Self { value: Atomic::new(value), domain }
    }

    /// The value, good as long as the guard.
    ///
    /// # Panics
    /// If the cell was made in another simulation than the guard.
    #[must_use]
    pub fn load<'g>(&self, guard: &'g Guard) -> &'g T {
        assert!(self.domain == guard.domain, "a cell is read in the simulation it was made in");
        // Acquire, with the AcqRel swap in `replace` and the release of the cell's own publication: the reader
        // sees the value as it was built.
        let shared = self.value.load(Ordering::Acquire, &guard.guard);
        // SAFETY: not null and live by (1); not dropped before `guard` by (2) and (4), since it was in the cell while
        // `guard` was pinned; only shared references to it exist, since nobody gets it back out of the cell.
        unsafe { shared.deref() }
    }

    /// The value, if the guard is one of the cell's collector.
    #[must_use]
    pub fn load_here<'g>(&self, guard: &'g Guard) -> Option<&'g T> {
        (self.domain == guard.domain).then(|| self.load(guard))
    }

    /// Puts `value` in; the old value is dropped once nobody can still be reading it.
    pub fn replace(&self, value: T) {
        self.with_own_guard(|guard| {
            let old = self.value.swap(Owned::new(value), Ordering::AcqRel, guard);
            // SAFETY: `old` was in the cell and is no longer reachable from it, so only guards pinned before now
            // can hold it, and they are of this collector (2, 4); it is retired once, because one swap returns it;
            // `T` may be dropped on any thread (3).
            unsafe { guard.defer_destroy(old) };
            // Otherwise it waits with dozens of others for this thread to come again, and nobody else can free them:
            // on a small budget a thread that stands in line for memory kept the memory it stood in line for.
            guard.flush();
        });
    }

    /// A guard of the cell's collector, also on a thread of another domain (a simulation's value dropped after it).
    fn with_own_guard(&self, body: impl FnOnce(&crossbeam_epoch::Guard)) {
        let guard = pin();
        if guard.domain == self.domain {
            body(&guard.guard);
        } else {
            body(&self.domain.collector().register().pin());
        }
    }
}

impl<T: Send + Sync + 'static> Drop for EpochCell<T> {
    fn drop(&mut self) {
        self.with_own_guard(|guard| {
            let old = self.value.swap(Shared::null(), Ordering::AcqRel, guard);
            // SAFETY: as in `replace`; the null is never loaded, since `&mut self` ends the cell.
            unsafe { guard.defer_destroy(old) };
        });
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for EpochCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EpochCell")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    struct Counted(u64, Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Pins until the collector has advanced that far; other tests pin too, so that takes its time.
    fn settle(drops: &AtomicUsize, until: usize) {
        for _ in 0..30_000 {
            pin().flush();
            if drops.load(Ordering::SeqCst) >= until {
                return;
            }
            vfs::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn a_value_outlives_its_replacement_while_a_guard_stands() {
        let drops = Arc::new(AtomicUsize::new(0));
        let cell = EpochCell::new(Counted(1, drops.clone()));
        let guard = pin();
        let first = cell.load(&guard);
        cell.replace(Counted(2, drops.clone()));
        for _ in 0..1000 {
            pin().flush();
        }
        assert_eq!((first.0, drops.load(Ordering::SeqCst)), (1, 0));
        assert_eq!(cell.load(&guard).0, 2);
        drop(guard);
        settle(&drops, 1);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_value_outlives_its_cell_while_a_guard_stands() {
        let drops = Arc::new(AtomicUsize::new(0));
        let cell = EpochCell::new(EpochCell::new(Counted(7, drops.clone())));
        let guard = pin();
        let inner = cell.load(&guard);
        let value = inner.load(&guard);
        drop(cell);
        for _ in 0..1000 {
            pin().flush();
        }
        assert_eq!((value.0, drops.load(Ordering::SeqCst)), (7, 0));
        drop(guard);
        settle(&drops, 1);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    }

    /// Wiped when dropped, so that a reader that comes too late has a chance to see it.
    struct Canary(Box<[u64; 4]>);

    impl Drop for Canary {
        fn drop(&mut self) {
            self.0.fill(u64::MAX);
        }
    }

    /// Readers load and look, with points for the simulator; the writer replaces `count` times.
    fn readers_and_a_writer(count: u64) {
        let cell = Arc::new(EpochCell::new(Canary(Box::new([0; 4]))));
        let read = |cell: Arc<EpochCell<Canary>>| {
            move || {
                let mut last = 0;
                while last < count {
                    let mut guard = pin();
                    for _ in 0..4 {
                        let value = cell.load(&guard);
                        vfs::thread::point("epoch.loaded");
                        let seen = value.0[0];
                        assert!(value.0.iter().all(|n| *n == seen) && (last..=count).contains(&seen));
                        last = seen;
                        guard.repin();
                    }
                    drop(guard);
                    vfs::thread::spin();
                }
            }
        };
        let readers: Vec<_> = (0..3).map(|_| vfs::thread::spawn("reader", read(cell.clone())).unwrap()).collect();
        for n in 1..=count {
            cell.replace(Canary(Box::new([n; 4])));
            vfs::thread::point("epoch.replaced");
            pin().flush();
        }
        readers.into_iter().for_each(|r| r.join().unwrap());
    }

    #[test]
    fn readers_never_see_a_dropped_value() {
        readers_and_a_writer(if cfg!(miri) { 50 } else { 20_000 });
    }

    #[test]
    #[cfg_attr(miri, ignore = "the simulator pins threads to cores")]
    fn in_a_simulation_drops_follow_from_the_seed() {
        use vfs::sim::{Config, Simulation};
        for seed in 0..50 {
            let run = || {
                Simulation::new(seed, Config::default()).run(|sim| {
                    let drops = Arc::new(AtomicUsize::new(0));
                    let cell = EpochCell::new(Counted(0, drops.clone()));
                    for n in 0..300 {
                        cell.replace(Counted(n, drops.clone()));
                        sim.note(drops.load(Ordering::SeqCst) as u64);
                    }
                    readers_and_a_writer(30);
                    drops.load(Ordering::SeqCst)
                })
            };
            let (first, second) = (run(), run());
            assert!(first.value > 0, "values are dropped while the simulation runs");
            assert_eq!((first.value, first.trace_hash), (second.value, second.trace_hash));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "the simulator pins threads to cores")]
    #[should_panic(expected = "in the simulation it was made in")]
    fn a_guard_of_another_collector_is_refused() {
        use vfs::sim::{Config, Simulation};
        let cell = Simulation::new(1, Config::default()).run(|_| EpochCell::new(7)).value;
        let _ = cell.load(&pin());
    }
}
