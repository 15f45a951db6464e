//! What the progress line reads while the measuring threads run.
//!
//! Each thread owns one [`LiveCell`] on cache lines of its own and is the only one to write it, with plain stores;
//! the coordinator only reads. Every atomic here is relaxed: the numbers are shown, nothing is decided by them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Coarse latency classes: four to every power of two.
const CLASSES: usize = 160;

/// One thread's running totals.
#[derive(Debug)]
#[repr(align(128))]
pub struct LiveCell {
    amount: AtomicU64,
    statements: AtomicU64,
    worst_ns: AtomicU64,
    classes: [AtomicU32; CLASSES],
}

impl Default for LiveCell {
    fn default() -> LiveCell {
        LiveCell {
            amount: AtomicU64::new(0),
            statements: AtomicU64::new(0),
            worst_ns: AtomicU64::new(0),
            classes: [const { AtomicU32::new(0) }; CLASSES],
        }
    }
}

fn class_of(ns: u64) -> usize {
    let ns = ns.max(16);
    let power = 63 - ns.leading_zeros() as usize;
    let quarter = (ns >> (power - 2)) as usize & 3;
    ((power - 4) * 4 + quarter).min(CLASSES - 1)
}

/// Upper end of a class.
fn class_top_ns(class: usize) -> u64 {
    let power = class / 4 + 4;
    (1u64 << power) + ((class as u64 % 4 + 1) << (power - 2))
}

impl LiveCell {
    /// Called by the owner after each statement.
    pub fn record(&self, amount: u64, response_ns: u64) {
        let add = |cell: &AtomicU64, more: u64| cell.store(cell.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        add(&self.amount, amount);
        add(&self.statements, 1);
        if response_ns > self.worst_ns.load(Ordering::Relaxed) {
            self.worst_ns.store(response_ns, Ordering::Relaxed);
        }
        let class = &self.classes[class_of(response_ns)];
        class.store(class.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Called by the coordinator: the worst response since the last call. A response that lands in between may be
    /// shown one interval late or not at all; the recorder's own numbers are exact.
    pub fn take_worst_ns(&self) -> u64 {
        self.worst_ns.swap(0, Ordering::Relaxed)
    }
}

/// The sum of several cells.
#[derive(Clone, Debug)]
pub struct LiveTotals {
    /// Rows or queries.
    pub amount: u64,
    /// Statements.
    pub statements: u64,
    classes: [u64; CLASSES],
}

impl Default for LiveTotals {
    fn default() -> LiveTotals {
        LiveTotals { amount: 0, statements: 0, classes: [0; CLASSES] }
    }
}

impl LiveTotals {
    /// Adds one cell.
    pub fn add(&mut self, cell: &LiveCell) {
        self.amount += cell.amount.load(Ordering::Relaxed);
        self.statements += cell.statements.load(Ordering::Relaxed);
        for (sum, class) in self.classes.iter_mut().zip(&cell.classes) {
            *sum += u64::from(class.load(Ordering::Relaxed));
        }
    }

    /// The 99th percentile, about 19 % exact, of what happened since `earlier`.
    #[must_use]
    pub fn p99_ns_since(&self, earlier: &LiveTotals) -> Option<u64> {
        let counts = self.classes.iter().zip(&earlier.classes).map(|(now, then)| now.saturating_sub(*then));
        let counts: Vec<u64> = counts.collect();
        let total: u64 = counts.iter().sum();
        let mut left = (total as f64 * 0.99).ceil() as u64;
        for (class, count) in counts.iter().enumerate() {
            if *count > 0 && *count >= left {
                return Some(class_top_ns(class));
            }
            left -= count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_live_percentile_is_close() {
        let cell = LiveCell::default();
        let before = LiveTotals::default();
        for us in 1..=1_000u64 {
            cell.record(2, us * 1_000);
        }
        let mut after = LiveTotals::default();
        after.add(&cell);
        assert_eq!((after.amount, after.statements), (2_000, 1_000));
        let p99 = after.p99_ns_since(&before).unwrap();
        assert!((990_000..=1_200_000).contains(&p99), "{p99}");
        assert_eq!(after.p99_ns_since(&after), None);
        assert_eq!(cell.take_worst_ns(), 1_000_000);
        assert_eq!(cell.take_worst_ns(), 0);
    }

    #[test]
    fn classes_contain_their_values() {
        for ns in [1, 16, 17, 100, 1_023, 1_024, 1_000_000, u64::from(u32::MAX), 1 << 42] {
            let class = class_of(ns);
            assert!(ns <= class_top_ns(class), "{ns}");
            assert!(class == 0 || ns >= class_top_ns(class - 1), "{ns}");
        }
    }
}
