//! Counters of a transaction [A21]: it adds to one without looking at it, beside others that do.

use base::IndexId;
use index::counter::{COUNTER_BYTES, Counter};
use txn::Mode;
use txn::write_set::{Seq, Written};

use super::Transaction;
use crate::entry::IndexEntry;
use crate::error::{Error, Result};
use crate::handle::Index;
use crate::locking::LockMode;

impl Transaction {
    /// Adds `delta` to the counter of `key` in an index of counters ([`IndexOptions::counters`](crate::IndexOptions::counters));
    /// one that is not there counts as 0. Others may add to it at the same time, and none waits for the end of another; who reads
    /// it under a lock, sets or deletes it waits for all of them. Nothing is read. At the ends of the range of `i64` it wraps
    /// around.
    ///
    /// # Errors
    /// As [`Transaction::put`]; `InvalidArgument` if the index is not one of counters.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// use trefoil::IndexOptions;
    ///
    /// let views = db.create_index("views", IndexOptions { counters: true, ..IndexOptions::default() })?;
    /// let (mut first, mut second) = (db.begin()?, db.begin()?);
    /// first.add(&views, b"front page", 1)?;
    /// second.add(&views, b"front page", 2)?; // does not wait for the first
    /// assert_eq!(first.get(&views, b"front page")?.as_deref(), Some(&1i64.to_le_bytes()[..]));
    /// first.commit()?;
    /// second.commit()?;
    /// assert_eq!(db.begin()?.get(&views, b"front page")?.as_deref(), Some(&3i64.to_le_bytes()[..]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn add(&mut self, index: &Index, key: &[u8], delta: i64) -> Result<()> {
        let entry = index.entry();
        if !entry.of_counters() {
            let why = format!("index {:?} is not one of counters: IndexOptions::counters says so", entry.name());
            return Err(Error::InvalidArgument(why));
        }
        self.wait_for_ranges(entry, key)?;
        self.lock_to_add(entry, key)?;
        let mut change = Counter::Delta(delta);
        self.writes.get(entry.id(), key, Seq::LATEST, |own| {
            change = match own {
                Written::Put(own) => of_own(own).plus(delta),
                Written::Delete => Counter::Sum(delta),
            };
        })?;
        // Who has looked at it under a lock writes what it is then: a prepared transaction has its lock again after a restart by
        // what it wrote, and beside one who adds others may.
        if matches!(change, Counter::Delta(_)) && self.has_alone(entry, key) {
            let now = self.get_locked(index, key, LockMode::Exclusive)?;
            change = Counter::Sum(now.map_or(0, |now| of_reader(&now)).wrapping_add(delta));
        }
        self.write(entry, key, Some(&change.encode()))
    }

    /// What was added to counters that were looked at later, under a lock, becomes what they are then, as in [`Transaction::add`].
    pub(crate) fn settle_looked(&mut self) -> Result<()> {
        let looked = std::mem::take(&mut self.locks.borrow_mut().looked);
        for (id, key) in looked {
            let Some(entry) = self.touched.borrow().iter().find(|entry| entry.id() == id).cloned() else { continue };
            if self.has_added(id, &key)? {
                let mut now = 0;
                self.read_newest(&entry, &[&key], &mut |_, value| now = of_reader(value))?;
                self.write_let_in(&entry, &key, Some(&Counter::Sum(now).encode()), false)?;
            }
        }
        Ok(())
    }

    /// True if what it has written of a counter is what it adds to it.
    pub(super) fn has_added(&self, index: IndexId, key: &[u8]) -> Result<bool> {
        let mut added = false;
        self.writes.get(index, key, Seq::LATEST, |own| {
            added = matches!(own, Written::Put(own) if matches!(of_own(own), Counter::Delta(_)));
        })?;
        Ok(added)
    }

    fn has_alone(&self, entry: &IndexEntry, key: &[u8]) -> bool {
        self.engine.locks.mode_of(&self.locks.borrow().owner, entry.id(), key) == Some(Mode::Exclusive)
    }
}

/// What a transaction has written.
fn of_own(written: &[u8]) -> Counter {
    Counter::decode(written).expect("what is written to an index of counters is one")
}

/// What a reader sees of an own write, with what the index has below it.
pub(crate) fn own_sum(written: &[u8], below: Option<&[u8]>) -> [u8; 8] {
    of_own(written).over(below.map_or(0, of_reader)).to_le_bytes()
}

fn of_reader(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().expect("readers see eight bytes"))
}

/// The stored form of a value that a user puts into an index.
pub(super) fn stored<'v>(
    entry: &IndexEntry,
    value: &'v [u8],
    counter: &'v mut [u8; COUNTER_BYTES],
) -> Result<&'v [u8]> {
    if !entry.of_counters() {
        return Ok(value);
    }
    let Ok(bytes) = value.try_into() else {
        let (name, got) = (entry.name(), value.len());
        let why =
            format!("index {name:?} is one of counters: a value is an i64 of 8 bytes, little-endian, not {got} bytes");
        return Err(Error::InvalidArgument(why));
    };
    *counter = Counter::Sum(i64::from_le_bytes(bytes)).encode();
    Ok(counter)
}
