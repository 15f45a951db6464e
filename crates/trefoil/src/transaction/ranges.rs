//! Range locks of a transaction (rule A22): what a locking read of a range keeps others from inserting, and what an insert
//! waits for. The protocol is in `txn::ranges`.
//!
//! A scan locks its range piece by piece, as far as it goes: a piece ends with the last key found for it, or with the range.

use std::ops::Bound;
use std::sync::Arc;

use base::IndexId;
use index::{Direction, KeyRange, ReadAt};
use txn::LockOutcome;
use txn::write_set::Seq;

use super::Transaction;
use super::locking::Patience;
use crate::entry::IndexEntry;
use crate::error::Result;
use crate::options::Isolation;

/// Pending keys of one transaction that a piece takes in, at most.
const PENDING_MAX: usize = 4096;
/// Of long values fewer keys are found at once: whoever has found them reads them again, and keeps what he has read until it is given out.
const FOUND_BYTES_MAX: usize = 1 << 20;

impl Transaction {
    /// Locking reads keep others from inserting into what they have read.
    fn locks_ranges(&self) -> bool {
        self.isolation >= Isolation::RepeatableRead
    }

    /// Keys for a locking read to look at: those of the newest committed state with the own writes on top, in cursor order,
    /// about `chunk` of them, fewer of long values. What was looked through is cut off `rest`. False behind them if that was all.
    ///
    /// Where ranges are locked, the keys that others are about to write are among them, and no others come up behind it.
    pub(crate) fn candidates(
        &self,
        entry: &Arc<IndexEntry>,
        rest: &mut KeyRange,
        direction: Direction,
        chunk: usize,
    ) -> Result<(Vec<Vec<u8>>, bool)> {
        let (mut keys, mut more) = self.keys_newest(entry, rest.bounds(), direction, chunk, FOUND_BYTES_MAX)?;
        vfs::thread::point("locking.found");
        let mut end = keys.last().filter(|_| more).cloned();
        if self.locks_ranges() {
            let mut piece = cut(rest, end.as_deref(), direction);
            self.lock_range(entry, &piece)?;
            vfs::thread::point("locking.published");
            let backward = direction == Direction::Backward;
            let pending =
                self.engine.writers.pending(entry.id(), piece.bounds(), &self.writes, PENDING_MAX, backward)?;
            vfs::thread::point("locking.probed");
            if pending.up_to.is_some() {
                (end, more) = (pending.up_to, true);
                piece = cut(rest, end.as_deref(), direction);
            }
            (keys, _) = self.keys_newest(entry, piece.bounds(), direction, usize::MAX, usize::MAX)?;
            if !pending.keys.is_empty() {
                keys.extend(pending.keys);
                keys.sort_unstable();
                keys.dedup();
                if backward {
                    keys.reverse();
                }
            }
        }
        if let Some(end) = end {
            match direction {
                Direction::Forward => rest.low = Bound::Excluded(end),
                Direction::Backward => rest.high = Bound::Excluded(end),
            }
        }
        Ok((keys, more))
    }

    /// Keys in a range of the newest committed state, with the own writes on top, in cursor order: at most `limit`, and fewer once
    /// the values have `bytes`. True behind them if there may be more. Nothing holds them.
    fn keys_newest(
        &self,
        entry: &Arc<IndexEntry>,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        limit: usize,
        bytes: usize,
    ) -> Result<(Vec<Vec<u8>>, bool)> {
        let mut cursor = self.cursor_newest(entry, range, direction)?.expect(limit);
        let (mut keys, mut read) = (Vec::with_capacity(limit.min(1024)), 0);
        while keys.len() < limit && read < bytes {
            if !cursor.advance()? {
                return Ok((keys, false));
            }
            let (key, value) = cursor.entry();
            keys.push(key.to_vec());
            read += value.len();
        }
        Ok((keys, true))
    }

    fn lock_range(&self, entry: &Arc<IndexEntry>, range: &KeyRange) -> Result<()> {
        self.check_running()?;
        let mut held = self.locks.borrow_mut();
        if !held.ranges.iter().any(|other| other.ranges_of == entry.ranges_of) {
            self.engine.locks.announce_end(&mut held.owner, entry.ranges_of);
            held.ranges.push(entry.clone());
        }
        held.bytes += entry.ranges.lock(self.id, range.bounds()) as u64;
        self.charge_locks(held)
    }

    /// Before the lock of a row that may be inserted: waits for those who have locked the range it comes into. Whoever waited
    /// with the row locked would stand in the way of an insert of the same row by the very transaction it waits for.
    pub(crate) fn wait_for_ranges(&self, entry: &IndexEntry, key: &[u8]) -> Result<()> {
        self.check_running()?;
        self.engine.check_writable()?;
        entry.check()?;
        let patience = self.patience(self.lock_timeout);
        while let Some(other) = entry.ranges.covers(self.id, key)
            && !self.is_there(entry, key)?
        {
            self.wait_for_end((other, entry.ranges_of), entry, key, patience)?;
        }
        Ok(())
    }

    /// Adds an operation to the write set: its position, and the memory of the set. A key that is new, and comes into a range
    /// that another transaction has locked, waits for that one's end.
    pub(super) fn enter_write(
        &self,
        entry: &IndexEntry,
        key: &[u8],
        value: Option<&[u8]>,
        is_absent: bool,
    ) -> Result<(Seq, u64)> {
        let id = entry.id();
        let add = |writes: &mut txn::WriteSet| -> Result<(Seq, u64)> {
            let before = match value {
                Some(value) if is_absent => writes.put_fresh(id, key, value)?,
                Some(value) => writes.put(id, key, value)?,
                None => writes.delete(id, key)?,
            };
            Ok((before, writes.bytes() as u64))
        };
        let patience = self.patience(self.lock_timeout);
        // What is there, or was written before, comes into no range: its row lock decides.
        while value.is_some() {
            match entry.ranges.write(self.id, key, &self.writes, add) {
                Ok(added) => return added,
                Err(_) if self.is_there(entry, key)? => break,
                Err(other) => self.wait_for_end((other, entry.ranges_of), entry, key, patience)?,
            }
        }
        self.writes.write(add)
    }

    /// In the newest committed state, or written by this transaction, if only to delete it.
    fn is_there(&self, entry: &IndexEntry, key: &[u8]) -> Result<bool> {
        let mut there = false;
        // Where a range was deleted its place is a write, of a key that may never have been there: who locks a range around it need not have met it.
        let is_place = self.is_place_of_range(entry, key);
        self.writes.get(entry.id(), key, Seq::LATEST, |written| there = !is_place || written.value().is_some())?;
        // What is there and may expire meanwhile is not there for who has locked the range, and locks no row of it.
        if !there && entry.index.expiry().is_none() {
            entry.index.get_many(ReadAt::Newest, &[key], &mut |_, _, _| there = true)?;
        }
        Ok(there)
    }

    /// Waits until `other` has ended, which has announced that under this index: who locks ranges under that which has them, who folds locks under
    /// the index itself. Under another one nobody would be waited for.
    pub(super) fn wait_for_end(
        &self,
        (other, announced): (base::TxnId, IndexId),
        entry: &IndexEntry,
        key: &[u8],
        patience: Patience,
    ) -> Result<()> {
        let weight = self.weight();
        let mut held = self.locks.borrow_mut();
        let (wanted, timeout) = ((announced, key), patience.left(&held));
        match self.engine.locks.wait_for_end(&mut held.owner, other, wanted, Some(timeout), weight) {
            LockOutcome::Granted { seen, .. } => {
                self.seen.set(self.seen.get().max(seen));
                Ok(())
            }
            outcome => {
                drop(held);
                Err(self.not_granted(outcome, entry, key))
            }
        }
    }
}

/// The part of a range that ends with a key, if there is one.
fn cut(range: &KeyRange, end: Option<&[u8]>, direction: Direction) -> KeyRange {
    let mut piece = range.clone();
    if let Some(end) = end {
        match direction {
            Direction::Forward => piece.high = Bound::Included(end.to_vec()),
            Direction::Backward => piece.low = Bound::Included(end.to_vec()),
        }
    }
    piece
}
