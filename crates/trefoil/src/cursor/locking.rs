//! Reading in order under locks (rule P3). Steps for each entry:
//! 1. find: the next key of the newest committed state, with the own writes on top (a chunk of keys at a time, one at first,
//!    then twice as many each time); where ranges are locked ([`Transaction::candidates`]), the piece up to the last of them
//!    is locked and what others are about to write there is found too;
//! 2. lock its row, waiting if need be; or pass it over, if the reader skips what is locked;
//! 3. look again: what stands there now is given out. If it is gone, its lock is given back where that is allowed, and
//!    the scan goes on.
//!
//! Who wants to see what others have locked before it waits gets it as it was committed, without a lock, and asks again if it
//! wants the row.
//!
//! Where the reader says how many it will read, and nothing is given back, that many are locked at once, as far as nobody
//! has to be waited for, and looked at at once: leaves are visited once.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use index::{Direction, KeyRange};

use super::FILL_MAX;
use crate::entry::{IndexEntry, TableShape};
use crate::error::{Error, Result};
use crate::locking::{LockWait, Locking};
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
    /// Entries to lock at once.
    ahead: usize,
    /// What others have locked is shown before it is waited for: as it was committed, and not locked.
    shows: bool,
    /// The current entry is only shown.
    is_shown: bool,
    /// Locked and looked at, in cursor order.
    locked: VecDeque<(Vec<u8>, Vec<u8>)>,
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
        let (key, value, found, locked) = Default::default();
        let (entry, rest) = (entry.clone(), KeyRange::new(range));
        let (chunk, ahead, more, shows, is_shown) = (1, 1, true, false, false);
        let rows = None;
        Self {
            tx,
            entry,
            rows,
            locking,
            direction,
            rest,
            found,
            chunk,
            more,
            ahead,
            shows,
            is_shown,
            locked,
            key,
            value,
        }
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
        if !self.tx.gives_locks_back() {
            self.ahead = self.chunk;
        }
    }

    /// Where what was read is given back: one by one.
    pub(super) fn show_locked(&mut self) {
        self.shows = self.tx.gives_locks_back() && self.ahead == 1;
    }

    pub(super) fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Key and value locked last.
    pub(super) fn current(&self) -> (&[u8], &[u8]) {
        (&self.key, &self.value)
    }

    pub(super) fn advance(&mut self) -> Result<bool> {
        loop {
            self.tx.check_running()?;
            if let Some(entry) = self.locked.pop_front() {
                (self.key, self.value) = entry;
                return Ok(true);
            }
            if !self.found.is_empty() {
                self.lock_some()?;
            } else if self.more {
                self.find()?;
            } else {
                return Ok(false);
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

    /// Step 2, and 3 for all that were locked.
    fn lock_some(&mut self) -> Result<()> {
        let mut keys = Vec::with_capacity(self.ahead.min(self.found.len()));
        while keys.len() < self.ahead
            && let Some(key) = self.found.front()
        {
            // What somebody else has is waited for when it is the reader's turn.
            let is_first = keys.is_empty();
            let waits = is_first && !self.shows;
            self.is_shown = false;
            let locking = if waits { self.locking } else { self.locking.at_once() };
            match self.lock(key, locking) {
                Err(Error::LockBusy { .. }) if !is_first => break,
                Err(Error::LockBusy { .. }) if self.shows && self.locking.wait == LockWait::Timeout => {
                    keys.push(self.found.pop_front().expect("there is a next one"));
                    self.is_shown = true;
                    break;
                }
                got => {
                    let key = self.found.pop_front().expect("there is a next one");
                    if got? {
                        keys.push(key);
                    }
                }
            }
        }
        self.look_again(keys)
    }

    pub(crate) fn locking(&self) -> Locking {
        self.locking
    }

    fn lock(&self, key: &[u8], locking: Locking) -> Result<bool> {
        let Some((shape, n)) = &self.rows else {
            return self.tx.lock_for_read(&self.entry, key, locking);
        };
        let row = shape.def.schema.primary_key_of(*n, key)?;
        self.tx.lock_for_read(&shape.primary, row, locking)
    }

    /// Step 3.
    fn look_again(&mut self, keys: Vec<Vec<u8>>) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut ascending: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let backward = self.direction == Direction::Backward;
        if backward {
            ascending.reverse();
        }
        let last = keys.len() - 1;
        let mut values = vec![None; keys.len()];
        let there = self.tx.read_newest(&self.entry, &ascending, &mut |i, now| {
            values[if backward { last - i } else { i }] = Some(now.to_vec());
        })?;
        if there == 0 {
            self.tx.unlock_row();
        }
        self.locked.extend(keys.into_iter().zip(values).filter_map(|(key, value)| Some((key, value?))));
        Ok(())
    }
}
