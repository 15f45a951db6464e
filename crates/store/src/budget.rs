//! The one memory cap (decision D10).
//!
//! Every holder of memory owns a [`Charge`]; the sum of all charges is the total, and [`Budget::try_charge`] keeps
//! it at or below the limit. Invariants, at every moment at which no call is under way:
//!
//! 1. `total` = sum over classes of `used` = sum of the bytes of all living charges and of what is held.
//! 2. `total > limit` only by what [`Budget::charge`] took over the limit, which is counted.
//! 3. Classes other than [`Class::Frames`] leave an eighth of the limit to pages ([`Budget::try_charge`]): a load of
//!    large write sets cannot end with no leaf in memory.
//!
//! One atomic for the total and one for each class, each on its own cache line. A charge is taken per page, per
//! chunk of a write set or per run, never per row: that keeps the lines quiet without the slack that sharded
//! counters would hold back from a small budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

/// Who holds memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Leaves in memory, and large values beside them.
    Frames,
    /// Inner nodes, handles and image descriptors.
    Inner,
    /// Messages for leaves that are not in memory.
    Buffers,
    /// Write sets of running transactions.
    WriteSets,
    /// Runs in memory.
    Runs,
    /// The log's ring.
    Log,
    /// Row locks.
    Locks,
    /// Buffers of running I/O, checkpoints, sorts.
    Work,
    /// Where the parts of blocks on disk lie, with their checksums.
    Outlines,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 9] = [
        Class::Frames,
        Class::Inner,
        Class::Buffers,
        Class::WriteSets,
        Class::Runs,
        Class::Log,
        Class::Locks,
        Class::Work,
        Class::Outlines,
    ];
}

/// Charges against one limit, in bytes. Cheap to clone: all clones are one budget.
///
/// ```
/// use trefoil_store::{Budget, Class};
///
/// let budget = Budget::new(1000);
/// let mut pages = budget.try_charge(Class::Frames, 900).expect("there is room");
/// assert!(budget.try_charge(Class::Frames, 200).is_none());
/// pages.shrink(100);
/// assert_eq!(budget.free(), 200);
/// drop(pages);
/// assert_eq!(budget.total(), 0);
/// ```
#[derive(Debug, Clone)]
pub struct Budget(Arc<Counters>);

#[derive(Debug)]
struct Counters {
    limit: u64,
    // Relaxed throughout: the counters order nothing but themselves. `total` is raised before and lowered after
    // the class, so that a class never shows more than the total.
    total: CachePadded<AtomicU64>,
    peak: CachePadded<AtomicU64>,
    used: [CachePadded<AtomicU64>; Class::ALL.len()],
    over: CachePadded<OverCommits>,
}

#[derive(Debug, Default)]
struct OverCommits {
    count: AtomicU64,
    worst_bytes: AtomicU64,
}

/// How often and how far the limit was passed by charges that may not fail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OverCommit {
    /// Charges that passed the limit.
    pub count: u64,
    /// The farthest the total was above the limit after such a charge, in bytes.
    pub worst_bytes: u64,
}

impl Budget {
    /// A budget of `limit_bytes`.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        Self(Arc::new(Counters {
            limit: limit_bytes,
            total: CachePadded::default(),
            peak: CachePadded::default(),
            used: Default::default(),
            over: CachePadded::default(),
        }))
    }

    /// The limit, in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Bytes charged to a class.
    #[must_use]
    pub fn used(&self, class: Class) -> u64 {
        self.0.used[class as usize].load(Ordering::Relaxed)
    }

    /// Bytes charged to all classes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.total.load(Ordering::Relaxed)
    }

    /// Bytes below the limit that nobody holds.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.0.limit.saturating_sub(self.total())
    }

    /// The highest total ever seen at a charge that raised it over the limit or took the last eighth, in bytes;
    /// the total itself if that never happened.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.0.peak.load(Ordering::Relaxed).max(self.total())
    }

    /// Bytes that charges of classes other than frames leave to pages.
    #[must_use]
    pub fn page_floor(&self) -> u64 {
        self.0.limit / 8
    }

    /// Charges if the limit allows it.
    #[must_use]
    pub fn try_charge(&self, class: Class, bytes: u64) -> Option<Charge> {
        self.try_take(class, bytes).then(|| Charge { budget: self.clone(), class, bytes })
    }

    /// Charges although the limit may be passed. Only where failing or waiting would be worse than a bounded
    /// overshoot: memory that is already held (recovery, a node that must split), never for what can be refused.
    /// Passing the limit is counted in [`Budget::over_commits`].
    pub fn charge(&self, class: Class, bytes: u64) -> Charge {
        self.take(class, bytes);
        Charge { budget: self.clone(), class, bytes }
    }

    /// Charges for one of a kind of small things of which there are many, and which know their size: a [`Charge`] in each
    /// would be a good part of what it counts. May pass the limit, like [`Budget::charge`]. Who holds gives the same back
    /// with [`Budget::release`].
    pub fn hold(&self, class: Class, bytes: u64) {
        self.take(class, bytes);
    }

    /// Gives back what [`Budget::hold`] charged.
    pub fn release(&self, class: Class, bytes: u64) {
        self.give_back(class, bytes);
    }

    /// How often and how far [`Budget::charge`] and [`Charge::grow`] passed the limit.
    #[must_use]
    pub fn over_commits(&self) -> OverCommit {
        let over = &self.0.over;
        OverCommit { count: over.count.load(Ordering::Relaxed), worst_bytes: over.worst_bytes.load(Ordering::Relaxed) }
    }

    fn try_take(&self, class: Class, bytes: u64) -> bool {
        let total = &self.0.total;
        // Optimistic: add, look, take back. Two threads that both overshoot may both fail with room for one;
        // a caller that was refused waits and asks again, and the limit holds at every moment that matters:
        // nobody goes on to use memory above it.
        let before = total.fetch_add(bytes, Ordering::Relaxed);
        let after = before.saturating_add(bytes);
        let page_room = self.page_floor().saturating_sub(self.used(Class::Frames));
        let limit = if class == Class::Frames { self.0.limit } else { self.0.limit - page_room };
        if after > limit && bytes > 0 {
            total.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.0.used[class as usize].fetch_add(bytes, Ordering::Relaxed);
        self.note_peak(after);
        true
    }

    fn take(&self, class: Class, bytes: u64) {
        let after = self.0.total.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        self.0.used[class as usize].fetch_add(bytes, Ordering::Relaxed);
        if after > self.0.limit && bytes > 0 {
            self.0.over.count.fetch_add(1, Ordering::Relaxed);
            self.0.over.worst_bytes.fetch_max(after - self.0.limit, Ordering::Relaxed);
        }
        self.note_peak(after);
    }

    fn note_peak(&self, after: u64) {
        // Read first: in the steady state the peak stands and its line stays shared.
        if after > self.0.limit - self.0.limit / 8 && after > self.0.peak.load(Ordering::Relaxed) {
            self.0.peak.fetch_max(after, Ordering::Relaxed);
        }
    }

    fn give_back(&self, class: Class, bytes: u64) {
        self.0.used[class as usize].fetch_sub(bytes, Ordering::Relaxed);
        self.0.total.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn is(&self, other: &Budget) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Bytes that an allocation of `bytes` takes: allocators round up to multiples of 16 and, from 128 on, to four sizes for
/// each power of two (mimalloc, jemalloc). To be charged for what there are many of.
#[must_use]
pub const fn allocated(bytes: usize) -> u64 {
    let step = if bytes <= 128 { 16 } else { bytes.next_power_of_two() / 8 };
    bytes.next_multiple_of(step) as u64
}

/// Bytes charged to a class until dropped.
#[derive(Debug)]
#[must_use = "dropping a charge gives its bytes back"]
pub struct Charge {
    budget: Budget,
    class: Class,
    bytes: u64,
}

impl Charge {
    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The class they are charged to.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// Takes `more` bytes if the limit allows it.
    #[must_use]
    pub fn try_grow(&mut self, more: u64) -> bool {
        let grown = self.budget.try_take(self.class, more);
        if grown {
            self.bytes += more;
        }
        grown
    }

    /// Takes `more` bytes although the limit may be passed; see [`Budget::charge`].
    pub fn grow(&mut self, more: u64) {
        self.budget.take(self.class, more);
        self.bytes += more;
    }

    /// Gives `fewer` bytes back.
    ///
    /// # Panics
    /// If the charge holds less.
    pub fn shrink(&mut self, fewer: u64) {
        self.bytes = self.bytes.checked_sub(fewer).expect("a charge gives back no more than it holds");
        self.budget.give_back(self.class, fewer);
    }

    /// Makes the charge hold exactly `bytes`, passing the limit if it must.
    pub fn set(&mut self, bytes: u64) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow(more),
            None => self.shrink(self.bytes - bytes),
        }
    }

    /// Moves `bytes` of this charge into a charge of their own.
    ///
    /// # Panics
    /// If the charge holds less.
    pub fn split(&mut self, bytes: u64) -> Charge {
        self.bytes = self.bytes.checked_sub(bytes).expect("a charge is split within what it holds");
        Charge { budget: self.budget.clone(), class: self.class, bytes }
    }

    /// Takes over the bytes of another charge, whatever its class.
    ///
    /// # Panics
    /// If `other` is of another budget.
    pub fn merge(&mut self, mut other: Charge) {
        assert!(self.budget.is(&other.budget), "charges of one budget are merged");
        let bytes = std::mem::take(&mut other.bytes);
        if other.class != self.class {
            self.budget.0.used[self.class as usize].fetch_add(bytes, Ordering::Relaxed);
            self.budget.0.used[other.class as usize].fetch_sub(bytes, Ordering::Relaxed);
        }
        self.bytes += bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give_back(self.class, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::random::Rng;

    fn sums(budget: &Budget, charges: &[Charge]) {
        for class in Class::ALL {
            let held: u64 = charges.iter().filter(|c| c.class() == class).map(Charge::bytes).sum();
            assert_eq!(budget.used(class), held, "{class:?}");
        }
        assert_eq!(budget.total(), charges.iter().map(Charge::bytes).sum::<u64>());
    }

    #[test]
    fn allocations_take_what_allocators_give() {
        let sizes = [1, 16, 17, 128, 129, 160, 161, 256, 257, 320, 1000, 1024, 1025];
        let taken = [16, 16, 32, 128, 160, 160, 192, 256, 320, 320, 1024, 1024, 1280];
        assert_eq!(sizes.map(allocated), taken);
    }

    #[test]
    fn d10_charges_add_up_and_stay_below_the_limit() {
        let mut rng = Rng::new(1);
        let budget = Budget::new(10_000);
        let mut charges = Vec::new();
        let mut refused = 0;
        for _ in 0..20_000 {
            let class = Class::ALL[rng.index(7)];
            match rng.below(8) {
                0..3 => match budget.try_charge(class, rng.below(2000)) {
                    Some(charge) => charges.push(charge),
                    None => refused += 1,
                },
                _ if charges.is_empty() => {}
                3..5 => drop(charges.swap_remove(rng.index(charges.len()))),
                5 => {
                    let i = rng.index(charges.len());
                    let bytes = rng.below(charges[i].bytes() + 1);
                    let part = charges[i].split(bytes);
                    charges.push(part);
                }
                6 => {
                    let i = rng.index(charges.len());
                    if !charges[i].try_grow(rng.below(500)) {
                        refused += 1;
                    }
                    let bytes = rng.below(charges[i].bytes() + 1);
                    charges[i].shrink(bytes);
                }
                _ => {
                    let other = charges.swap_remove(rng.index(charges.len()));
                    match charges.last_mut() {
                        Some(last) => last.merge(other),
                        None => charges.push(other),
                    }
                }
            }
            sums(&budget, &charges);
            assert!(budget.total() <= budget.limit());
            assert_eq!(budget.free(), budget.limit() - budget.total());
        }
        assert!(refused > 1000);
        assert_eq!(budget.over_commits(), OverCommit::default());
        drop(charges);
        assert_eq!((budget.total(), budget.used(Class::Frames)), (0, 0));
    }

    #[test]
    fn d10_other_classes_leave_an_eighth_to_pages() {
        let budget = Budget::new(800);
        assert!(budget.try_charge(Class::WriteSets, 701).is_none());
        let mut sets = budget.try_charge(Class::WriteSets, 700).expect("what is not the pages'");
        assert!(!sets.try_grow(1) && budget.try_charge(Class::Log, 1).is_none());
        let pages = budget.try_charge(Class::Frames, 100).expect("kept for pages");
        assert!(budget.try_charge(Class::Frames, 1).is_none());
        drop(sets);
        // What pages hold counts for their share.
        assert!(budget.try_charge(Class::WriteSets, 700).is_some());
        drop(pages);
    }

    #[test]
    fn passing_the_limit_is_counted() {
        let budget = Budget::new(100);
        let mut must = budget.charge(Class::Inner, 90);
        assert_eq!(budget.over_commits().count, 0);
        must.grow(30);
        assert_eq!(budget.over_commits(), OverCommit { count: 1, worst_bytes: 20 });
        must.set(95);
        must.set(105);
        assert_eq!(budget.over_commits(), OverCommit { count: 2, worst_bytes: 20 });
        assert_eq!((budget.free(), budget.peak()), (0, 120));
        assert!(budget.try_charge(Class::Frames, 1).is_none());
        assert!(budget.try_charge(Class::Frames, 0).is_some(), "nothing is always there");
    }

    #[test]
    fn d10_threads_that_compete_never_pass_the_limit() {
        let budget = Budget::new(1000);
        let threads: Vec<_> = (0..4)
            .map(|n| {
                let budget = budget.clone();
                let body = move || {
                    let mut rng = Rng::new(n);
                    let mut got = 0u64;
                    for _ in 0..50_000 {
                        if let Some(charge) = budget.try_charge(Class::Frames, 1 + rng.below(600)) {
                            assert!(charge.bytes() <= 1000);
                            got += 1;
                        }
                    }
                    got
                };
                vfs::thread::spawn("charger", body).expect("a thread can be started")
            })
            .collect();
        let got: u64 = threads.into_iter().map(|t| t.join().expect("no charger panics")).sum();
        assert!(got > 0 && budget.peak() <= 1000 && budget.total() == 0, "{got} {}", budget.peak());
    }
}
