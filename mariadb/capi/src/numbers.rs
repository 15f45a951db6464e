// SPDX-License-Identifier: GPL-2.0-only
//! Numbers of AUTO_INCREMENT that are never given out again, whatever becomes of the rows that had them.
//!
//! A plain index of the database has, for each table, a number that is free as far as is known on disk. Before a number at or
//! above it is used, it is put [`STEP`] numbers ahead, in a transaction of its own that waits for no sync: it is in the log
//! before the transaction that uses the number, so that one is never durable without it. When the database is closed the
//! exact number is put; after a crash at most `STEP` are left out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use trefoil::{Database, Durability, Error, Index, IndexOptions};

use crate::failure::Result;

const INDEX: &str = "auto_increment";
/// How far ahead the number on disk is.
const STEP: u64 = 32;

/// The index of all tables.
#[derive(Clone)]
pub struct Numbers {
    db: Database,
    index: Index,
}

/// The next number of one table. 0: not looked up yet.
#[derive(Debug, Default)]
pub struct Next {
    next: AtomicU64,
    /// What is on disk.
    kept: Mutex<u64>,
}

impl Numbers {
    pub fn open(db: &Database) -> Result<Self> {
        let index = match db.index(INDEX) {
            Err(Error::NotFound { .. }) => db.create_index(INDEX, IndexOptions::default())?,
            found => found?,
        };
        Ok(Self { db: db.clone(), index })
    }

    /// What is known to be free in a table; 0 if nothing is known.
    pub fn kept(&self, table: &str) -> Result<u64> {
        let kept = self.db.begin()?.get(&self.index, table.as_bytes())?;
        Ok(kept.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes))
    }

    /// Keeps a number, or forgets what was kept if it is 0.
    pub fn keep(&self, table: &str, number: u64) -> Result<()> {
        let mut tx = self.db.begin()?;
        match number {
            0 => drop(tx.delete(&self.index, table.as_bytes())?),
            _ => tx.put(&self.index, table.as_bytes(), &number.to_le_bytes())?,
        }
        tx.commit_with(Durability::Buffered)?;
        Ok(())
    }
}

impl Next {
    pub fn get(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Starts at `number`, unless another thread has started meanwhile. `kept` is on disk.
    pub fn start(&self, number: u64, kept: u64) {
        let mut known = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if self.get() == 0 {
            *known = kept;
            self.next.store(number, Ordering::Relaxed);
        }
    }

    /// Takes the numbers from `first` up to `behind`, if `next` is still the next one; otherwise that is returned.
    pub fn take(&self, numbers: &Numbers, table: &str, next: u64, behind: u64) -> Result<Option<u64>> {
        match self.next.compare_exchange(next, behind, Ordering::Relaxed, Ordering::Relaxed) {
            Err(now) => Ok(Some(now)),
            Ok(_) => self.keep_ahead(numbers, table, behind).map(|()| None),
        }
    }

    /// `number` and all below it are taken.
    pub fn raise(&self, numbers: &Numbers, table: &str, number: u64) -> Result<()> {
        let behind = number.saturating_add(1);
        if self.next.fetch_max(behind, Ordering::Relaxed) < behind {
            self.keep_ahead(numbers, table, behind)?;
        }
        Ok(())
    }

    fn keep_ahead(&self, numbers: &Numbers, table: &str, behind: u64) -> Result<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if *kept < behind {
            let ahead = behind.saturating_add(STEP);
            numbers.keep(table, ahead)?;
            *kept = ahead;
        }
        Ok(())
    }

    /// Begins anew at `number`.
    pub fn reset(&self, numbers: &Numbers, table: &str, number: u64) -> Result<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.keep(table, number)?;
        *kept = number;
        self.next.store(number, Ordering::Relaxed);
        Ok(())
    }

    /// Puts the exact number on disk.
    pub fn keep_exactly(&self, numbers: &Numbers, table: &str) -> Result<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if self.get() != 0 && *kept != self.get() {
            numbers.keep(table, self.get())?;
            *kept = self.get();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards: `keep_ahead`, `keep_exactly`.
    #[test]
    fn what_is_kept_is_ahead_and_exact_at_the_end() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let db = Database::open(dir.path(), trefoil::Options::default()).expect("it opens");
        let numbers = Numbers::open(&db).expect("it opens");
        let next = Next::default();
        next.start(5, 0);
        assert_eq!(next.take(&numbers, "d/t", 4, 7).expect("a number"), Some(5));
        assert_eq!(next.take(&numbers, "d/t", 5, 7).expect("a number"), None);
        assert!((7..=7 + STEP).contains(&numbers.kept("d/t").expect("kept")));
        next.raise(&numbers, "d/t", 1000).expect("raised");
        next.raise(&numbers, "d/t", 10).expect("not lowered");
        assert!((1001..=1001 + STEP).contains(&numbers.kept("d/t").expect("kept")));
        next.keep_exactly(&numbers, "d/t").expect("kept");
        assert_eq!((next.get(), numbers.kept("d/t").expect("kept")), (1001, 1001));
        next.reset(&numbers, "d/t", 1).expect("reset");
        assert_eq!((next.get(), numbers.kept("d/t").expect("kept")), (1, 1));
        next.raise(&numbers, "d/t", u64::MAX).expect("raised");
        assert_eq!(next.get(), u64::MAX);
        numbers.keep("d/t", 0).expect("forgotten");
        assert_eq!(numbers.kept("d/t").expect("nothing"), 0);
    }
}
