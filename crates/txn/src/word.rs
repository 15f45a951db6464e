//! An atomic word as the protocols of this crate use it. They are written over this trait, so that their tests can run
//! the very same steps under loom, which tries every value that the memory model allows.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// An atomic word of 64 bits.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn fetch_min(&self, value: u64, order: Ordering);
    /// Compare-exchange, relaxed on failure; true if it took place.
    fn replace(&self, from: u64, to: u64, success: Ordering) -> bool;
    /// A fence of the same memory model.
    fn fence(order: Ordering);
}

macro_rules! word {
    ($atomic:ty, $fence:path) => {
        impl Word for $atomic {
            fn load(&self, order: Ordering) -> u64 {
                <$atomic>::load(self, order)
            }
            fn store(&self, value: u64, order: Ordering) {
                <$atomic>::store(self, value, order);
            }
            fn fetch_min(&self, value: u64, order: Ordering) {
                <$atomic>::fetch_min(self, value, order);
            }
            fn replace(&self, from: u64, to: u64, success: Ordering) -> bool {
                self.compare_exchange(from, to, success, Ordering::Relaxed).is_ok()
            }
            fn fence(order: Ordering) {
                $fence(order);
            }
        }
    };
}
word!(AtomicU64, fence);
#[cfg(test)]
word!(loom::sync::atomic::AtomicU64, loom::sync::atomic::fence);
