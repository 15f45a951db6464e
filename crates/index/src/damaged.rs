//! Ranges of keys that cannot be read, for cursors that pass over them.
//!
//! What else is known of such a range counts only if it is newer than everything that cannot be read there: each range has
//! a moment up to which something may be missing, and [`Skips::hides`] what is not newer.
//!
//! > The leaf of K cannot be read, a run has K@30. The leaf may hold K@50, a tombstone: K@30 is not given out.

use std::fmt;
use std::sync::Arc;

use base::bytes::printable;
use base::{CommitTs, Corruption, Fault, IndexId, Result};
use vfs::sync::Mutex;

/// A range of keys that a cursor passed over, because it cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedRange {
    /// The lowest key that may be missing.
    pub low: Vec<u8>,
    /// The lowest key above that is read again; none if the range has no end.
    pub high: Option<Vec<u8>>,
    /// What is wrong, and where.
    pub damage: Corruption,
    /// False: nothing that lies in the damaged place was given out. True: the place holds changes of these keys, and the keys
    /// were given out as they are without those: old, or deleted since.
    pub is_incomplete: bool,
}

impl DamagedRange {
    /// What reading `[low, high)` of an index met. A fault that is no damage comes back.
    ///
    /// # Errors
    /// That fault.
    pub fn met(fault: Fault, index: IndexId, low: &[u8], high: Option<&[u8]>) -> Result<Self> {
        let mut damage = *fault.into_damage()?;
        let this =
            Self { low: low.to_vec(), high: high.map(<[u8]>::to_vec), damage: damage.clone(), is_incomplete: false };
        damage.index.get_or_insert(index);
        damage.key_range.get_or_insert_with(|| this.keys());
        Ok(Self { damage, ..this })
    }

    /// True if `key` lies in it.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.low.as_slice() <= key && self.high.as_ref().is_none_or(|high| key < high.as_slice())
    }

    /// The range, printable.
    #[must_use]
    pub fn keys(&self) -> String {
        match &self.high {
            Some(high) => format!("[{}, {})", printable(&self.low), printable(high)),
            None => format!("[{}, end)", printable(&self.low)),
        }
    }
}

impl fmt::Display for DamagedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_incomplete { "may be old or deleted" } else { "were passed over" };
        write!(f, "keys {} {what}: {}", self.keys(), self.damage)
    }
}

/// What the sources of one cursor passed over. Clones are the same list.
#[derive(Debug, Clone, Default)]
pub struct Skips(Arc<Mutex<List>>);

#[derive(Debug, Default)]
struct List {
    /// With the moment up to which something may be missing.
    ranges: Vec<(DamagedRange, CommitTs)>,
    taken: usize,
}

impl Skips {
    /// A source passed over a range, in which versions at or below `missing` may be missing.
    pub fn add(&self, range: DamagedRange, missing: CommitTs) {
        let mut list = self.0.lock();
        // A merge that starts again comes by again.
        if !list.ranges.iter().any(|(other, _)| *other == range) {
            list.ranges.push((range, missing));
        }
    }

    /// True if nothing was passed over.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.lock().ranges.is_empty()
    }

    /// True if something newer than the version at `ts` may be missing, and it is not given out all the same.
    #[must_use]
    pub fn hides(&self, key: &[u8], ts: CommitTs) -> bool {
        let hides = |range: &DamagedRange| !range.is_incomplete && range.contains(key);
        self.0.lock().ranges.iter().any(|(range, missing)| ts <= *missing && hides(range))
    }

    /// The ranges that were added since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<DamagedRange> {
        let mut list = self.0.lock();
        let new = list.ranges[list.taken..].iter().map(|(range, _)| range.clone()).collect();
        list.taken = list.ranges.len();
        new
    }
}

/// The least key above `key`.
#[must_use]
pub fn just_above(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
