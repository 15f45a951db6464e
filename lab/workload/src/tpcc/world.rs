//! What all sessions of a run share: its size, its random constants, and how much of each district was begun and
//! acknowledged, so that what a snapshot holds can be judged while transactions go on.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::draw::Constants;
use super::plan::{DISTRICTS, Size};

/// Something that the tables show once it is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// An order was taken in the district of this place.
    Ordered {
        /// The district.
        place: usize,
        /// The order.
        order: i64,
    },
    /// One was delivered.
    Delivered {
        /// The district.
        place: usize,
    },
    /// A payment came in.
    Paid {
        /// The district.
        place: usize,
    },
}

/// How often something was done in each district since the load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Orders taken.
    pub ordered: Vec<u64>,
    /// Orders delivered.
    pub delivered: Vec<u64>,
    /// Payments.
    pub paid: Vec<u64>,
}

impl Counts {
    /// Nothing in any district.
    #[must_use]
    pub fn none(size: &Size) -> Counts {
        let zeros = vec![0; (size.warehouses * DISTRICTS) as usize];
        Counts { ordered: zeros.clone(), delivered: zeros.clone(), paid: zeros }
    }

    /// Adds one.
    pub fn add(&mut self, deed: Deed) {
        match deed {
            Deed::Ordered { place, .. } => self.ordered[place] += 1,
            Deed::Delivered { place } => self.delivered[place] += 1,
            Deed::Paid { place } => self.paid[place] += 1,
        }
    }

    /// The same and so many more in every district: what can have been committed without an answer.
    #[must_use]
    pub fn plus(&self, more: u64) -> Counts {
        let raised = |counts: &[u64]| counts.iter().map(|count| count + more).collect();
        Counts { ordered: raised(&self.ordered), delivered: raised(&self.delivered), paid: raised(&self.paid) }
    }
}

/// Begun and acknowledged. A thread counts a deed as begun before its commit and as done after it, each with a release
/// that pairs with the acquire of [`World::done`] and [`World::begun`].
#[derive(Debug, Default)]
struct Tally {
    begun: AtomicU64,
    done: AtomicU64,
}

/// What all sessions share.
#[derive(Debug)]
pub struct World {
    /// How large the tables are.
    pub size: Size,
    /// The constants of the non-uniform numbers.
    pub constants: Constants,
    /// Whether answers can be looked at.
    pub answers: bool,
    /// The next hidden key of a payment. It only hands out numbers: relaxed.
    next_history: AtomicI64,
    ordered: Vec<Tally>,
    delivered: Vec<Tally>,
    paid: Vec<Tally>,
}

impl World {
    /// That of a run; different `life`s of one database give payments different keys.
    #[must_use]
    pub fn new(size: Size, seed: u64, answers: bool, life: i64) -> World {
        let tallies = || (0..size.warehouses * DISTRICTS).map(|_| Tally::default()).collect();
        World {
            size,
            constants: Constants::new(seed),
            answers,
            next_history: AtomicI64::new((life + 1) << 40),
            ordered: tallies(),
            delivered: tallies(),
            paid: tallies(),
        }
    }

    /// A hidden key for a payment.
    pub fn history_key(&self) -> i64 {
        self.next_history.fetch_add(1, Ordering::Relaxed)
    }

    fn tally(&self, deed: Deed) -> &Tally {
        match deed {
            Deed::Ordered { place, .. } => &self.ordered[place],
            Deed::Delivered { place } => &self.delivered[place],
            Deed::Paid { place } => &self.paid[place],
        }
    }

    /// Their transaction is about to commit.
    pub fn begin(&self, deeds: &[Deed]) {
        for deed in deeds {
            self.tally(*deed).begun.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// It did.
    pub fn acknowledge(&self, deeds: &[Deed]) {
        for deed in deeds {
            self.tally(*deed).done.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// It did not.
    pub fn take_back(&self, deeds: &[Deed]) {
        for deed in deeds {
            self.tally(*deed).begun.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn counts(&self, of: impl Fn(&Tally) -> &AtomicU64) -> Counts {
        let read = |tallies: &[Tally]| tallies.iter().map(|tally| of(tally).load(Ordering::Acquire)).collect();
        Counts { ordered: read(&self.ordered), delivered: read(&self.delivered), paid: read(&self.paid) }
    }

    /// What every snapshot from now on has to show.
    #[must_use]
    pub fn done(&self) -> Counts {
        self.counts(|tally| &tally.done)
    }

    /// What no snapshot until now can show more of.
    #[must_use]
    pub fn begun(&self) -> Counts {
        self.counts(|tally| &tally.begun)
    }
}
