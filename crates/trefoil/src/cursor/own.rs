//! A transaction's writes on one index, read in order.
//!
//! They lie behind the write set's mutex, which others take to look for pending keys (rule A22): so they are copied out
//! in batches, like what is stored, and nobody waits for a cursor that stands still.

use std::collections::VecDeque;
use std::ops::Bound;

use base::IndexId;
use index::{Direction, KeyRange};
use txn::write_set::Seq;

use super::{FILL_FIRST, FILL_MAX};
use crate::entry::IndexEntry;
use crate::error::Result;
use crate::transaction::{Transaction, own_sum};

/// Bytes of values that a batch may hold before it ends.
const BATCH_BYTES: usize = 64 << 10;

/// The writes in a range, one after the other.
pub(crate) struct OwnWrites<'a> {
    tx: &'a Transaction,
    index: IndexId,
    of_counters: bool,
    direction: Direction,
    /// Not copied yet.
    rest: KeyRange,
    batch: VecDeque<(Vec<u8>, Option<Vec<u8>>)>,
    fill: usize,
    more: bool,
    /// The write taken last.
    last: (Vec<u8>, Vec<u8>),
}

impl<'a> OwnWrites<'a> {
    pub(crate) fn new(
        tx: &'a Transaction,
        entry: &IndexEntry,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Self {
        let (rest, batch, last) = (KeyRange::new(range), VecDeque::new(), (Vec::new(), Vec::new()));
        let (index, of_counters) = (entry.id(), entry.of_counters());
        Self { tx, index, of_counters, direction, rest, batch, fill: FILL_FIRST, more: true, last }
    }

    /// The key of the next write.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<Option<&[u8]>> {
        if self.batch.is_empty() && self.more {
            self.copy()?;
        }
        Ok(self.batch.front().map(|(key, _)| key.as_slice()))
    }

    /// Takes the next write, after [`OwnWrites::peek`] found one; true if it is a put. `below` is what is stored under its key.
    pub(super) fn take(&mut self, below: Option<&[u8]>) -> bool {
        let (key, mut value) = self.batch.pop_front().expect("there is a next write");
        if self.of_counters {
            value = value.map(|own| own_sum(&own, below).to_vec());
        }
        let is_put = value.is_some();
        self.last = (key, value.unwrap_or_default());
        is_put
    }

    pub(super) fn last(&self) -> (&[u8], &[u8]) {
        (&self.last.0, &self.last.1)
    }

    fn copy(&mut self) -> Result<()> {
        self.tx.check_running()?;
        let (backward, most) = (self.direction == Direction::Backward, (self.fill, BATCH_BYTES));
        let copied = self.tx.own_writes().copy(self.index, self.rest.bounds(), Seq::LATEST, backward, most)?;
        (self.batch, self.more) = (copied.entries.into(), copied.more);
        if let Some((key, _)) = self.batch.back() {
            let behind = Bound::Excluded(key.clone());
            match self.direction {
                Direction::Forward => self.rest.low = behind,
                Direction::Backward => self.rest.high = behind,
            }
        }
        self.fill = (self.fill * 2).min(FILL_MAX);
        Ok(())
    }
}
