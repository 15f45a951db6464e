//! Mutual exclusion and waiting, as the simulator's scheduler sees them.
//!
//! Outside a simulation these are `parking_lot` locks with the same API, the same size and the same behaviour, plus
//! one relaxed load of a static that nobody writes while no simulation runs. Inside one, every acquire, release,
//! wait and notification is a scheduling point. Code under `crates/` uses nothing else to wait; spinning uses
//! [`crate::thread::spin`].
//!
//! As in `parking_lot`: no poisoning (a panic releases the lock); guards stay on their thread; a reader that reads
//! the same lock again may wait for ever behind a writer that waits for it, and the simulator shows that.
//!
//! A guard is two fields, dropped in this order: the real guard, which releases the word, then the note to the
//! scheduler, which may run another thread at once.

mod condvar;
mod mutex;
mod rwlock;

pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::sim::scheduler::LockKey;

/// What tells a lock from another.
fn key_of<T: ?Sized>(lock: &T) -> LockKey {
    (std::ptr::from_ref(lock).addr(), size_of_val(lock))
}
