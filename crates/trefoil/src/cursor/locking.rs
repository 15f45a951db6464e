//! Reading in order under locks (rule P3). Steps for each entry:
//! 1. find: the next key of the newest committed state, with the own writes on top (a chunk of keys at a time, one at first,
//!    then twice as many each time); where ranges are locked ([`Transaction::candidates`]), the piece up to the last of them
//!    is locked and what others are about to write there is found too;
//! 2. lock its row, waiting if need be; or pass it over, if the reader skips what is locked;
//! 3. look again: what stands there now is given out. If it is gone, its lock is given back where that is allowed, and
//!    the scan goes on.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use index::{Direction, KeyRange};

use super::FILL_MAX;
use crate::entry::{IndexEntry, TableShape};
use crate::error::Result;
use crate::locking::Locking;
use crate::transaction::Transaction;

/// A range under way.
pub(crate) struct LockingScan<'a> {
    tx: &'a Transaction,
    entry: Arc<IndexEntry>,
    /// If `entry` is a secondary index: its table and its number there. An entry is locked by its row.
    rows: Option<(Arc<TableShape>, usize)>,
    locking: Locking,
    direction: Direction,
    /// Where no keys were found yet.
    rest: KeyRange,
    found: VecDeque<Vec<u8>>,
    /// Keys to find next.
    chunk: usize,
    more: bool,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> LockingScan<'a> {
    pub(crate) fn new(
        tx: &'a Transaction,
        entry: &Arc<IndexEntry>,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        locking: Locking,
    ) -> Self {
        let (key, value, found) = Default::default();
        let (entry, rest) = (entry.clone(), KeyRange::new(range));
        Self { tx, entry, rows: None, locking, direction, rest, found, chunk: 1, more: true, key, value }
    }

    /// The scanned index is secondary index `n` of this table.
    pub(crate) fn of_rows(mut self, shape: &Arc<TableShape>, n: usize) -> Self {
        self.rows = Some((shape.clone(), n));
        self
    }

    pub(crate) fn entry(&self) -> &Arc<IndexEntry> {
        &self.entry
    }

    pub(super) fn expect(&mut self, entries: usize) {
        self.chunk = entries.clamp(1, FILL_MAX);
    }

    /// Key and value locked last.
    pub(super) fn current(&self) -> (&[u8], &[u8]) {
        (&self.key, &self.value)
    }

    pub(super) fn advance(&mut self) -> Result<bool> {
        loop {
            self.tx.check_running()?;
            if self.found.is_empty() {
                if !self.more {
                    return Ok(false);
                }
                self.find()?;
                continue;
            }
            self.key = self.found.pop_front().expect("something was found");
            if self.lock()? && self.look_again()? {
                return Ok(true);
            }
        }
    }

    /// Step 1.
    fn find(&mut self) -> Result<()> {
        let (keys, more) = self.tx.candidates(&self.entry, &mut self.rest, self.direction, self.chunk)?;
        (self.found, self.more) = (keys.into(), more);
        self.chunk = (self.chunk * 2).min(FILL_MAX);
        Ok(())
    }

    /// Step 2.
    fn lock(&self) -> Result<bool> {
        let Some((shape, n)) = &self.rows else {
            return self.tx.lock_for_read(&self.entry, &self.key, self.locking);
        };
        let row = shape.def.schema.primary_key_of(*n, &self.key)?;
        self.tx.lock_for_read(&shape.primary, row, self.locking)
    }

    /// Step 3.
    fn look_again(&mut self) -> Result<bool> {
        self.value.clear();
        let value = &mut self.value;
        let there = self.tx.read_newest(&self.entry, &[&self.key], &mut |_, now| value.extend_from_slice(now))? > 0;
        if !there {
            self.tx.unlock_row();
        }
        Ok(there)
    }
}
