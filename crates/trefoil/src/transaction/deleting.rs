//! Deleting a range whole ([`index::Ranged`]).
//!
//! Steps of [`Transaction::delete_range`]:
//! 1. The range is locked, as an area: no other transaction has a row of it, or gets one ([`txn`]'s `locks::areas`), until this one ends.
//! 2. Under snapshot isolation: nothing in it was changed after the snapshot.
//! 3. What the transaction itself has put there is deleted key by key. From now on its own writes lie above its own ranges: who reads looks at the
//!    writes first, and what is not among them and lies in one of the ranges is gone.
//! 4. The lowest key of the range is deleted, whether it is there or not. It is the range's place among the writes: going back to a savepoint before it
//!    takes back both.
//!
//! The commit's record has the range as it is, whatever it covers.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use base::bytes::printable;
use base::limits::KEY_BYTES_MAX;
use index::damaged::just_above;
use index::{Cursor, Direction, EntryBatch, KeyRange, ReadAt, Skips, Span};
use txn::SnapshotSlot;
use txn::write_set::Seq;

use super::{Transaction, bounds};
use crate::entry::IndexEntry;
use crate::error::{Error, Result};
use crate::handle::Index;
use crate::layout::FORMAT_RANGES;

/// Ranges of one transaction, at most.
const RANGES_MAX: usize = 1024;
/// Ranges of an index that wait to be drained, past which whoever deletes more helps; and steps of his, at most.
const PENDING_MAX: usize = 64;
const HELP_ROUNDS_MAX: usize = 10_000;
/// Bytes of their keys, at most: one record has them all.
const RANGES_BYTES_MAX: usize = 64 << 10;
/// The transaction's own writes are copied so many at a time, and so many bytes of them.
const OWN_MAX: (usize, usize) = (1024, 1 << 20);

/// A range that the transaction has deleted, and where it stands among its writes.
pub(crate) struct OwnRange {
    at: Seq,
    pub(crate) span: Span,
}

impl Transaction {
    /// Deletes all keys of a range at once: the newest committed ones and those that this transaction has put, as it would with
    /// [`Transaction::delete`] for each, but at a cost that does not depend on how many there are. Bounds are byte keys, included or not; `..` is
    /// everything. What this transaction puts there afterwards stays. Nobody else reads the range under locks, or writes there, until the transaction ends.
    ///
    /// Of a plain index. The rows of a table are deleted one by one, since each has its entries in other indexes; a transaction that has deleted ranges
    /// can be committed, not prepared ([`Transaction::prepare`]).
    ///
    /// # Errors
    /// As [`Transaction::put`]; `SnapshotConflict` under [snapshot isolation](crate::TransactionOptions::snapshot_isolation);
    /// `Limit` past 1024 ranges or 64 KiB of their bounds in one transaction; `Unsupported` of an index of counters; `UpgradeRequired` if the database is older
    /// than that ([`Database::upgrade`](crate::Database::upgrade)).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// let before = db.snapshot()?;
    /// let mut tx = db.begin()?;
    /// tx.delete_range(&fruit, b"p".as_slice()..b"q".as_slice())?;
    /// tx.put(&fruit, b"peach", b"5")?;
    /// tx.commit()?;
    /// let all = db.begin()?.range(&fruit, ..)?.collect()?;
    /// assert_eq!(all.iter().map(|(key, _)| &key[..]).collect::<Vec<_>>(), [&b"apple"[..], b"peach"]);
    /// assert_eq!(before.range(&fruit, ..)?.collect()?.len(), 3); // who looks from before sees all
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn delete_range<'k>(&mut self, index: &Index, range: impl RangeBounds<&'k [u8]>) -> Result<()> {
        self.check_running()?;
        let entry = index.entry().clone();
        entry.check()?;
        self.engine.check_format(FORMAT_RANGES)?;
        if entry.index.as_ranged().is_none() {
            let what = format!("deleting a range of index {:?}; delete its keys one by one", entry.name());
            return Err(Error::Unsupported(what));
        }
        let range = KeyRange::new(bounds(&range));
        if range.is_empty() {
            return Ok(());
        }
        let span = self.span_of(&entry, &range)?;
        self.engine.check_writable()?;
        self.engine.check_undamaged(&entry)?;
        self.check_room_to_delete(&entry, 0)?;
        self.help_drain(&entry)?;
        self.lock_area(&entry, &span)?;
        self.statement(|tx| {
            tx.check_range_unchanged(&entry, &range)?;
            tx.delete_own(&entry, &span)?;
            let at = tx.writes.position();
            tx.write(&entry, &span.low, None)?;
            tx.deleted.get_mut().entry(entry.id()).or_default().push(OwnRange { at, span });
            Ok(())
        })
    }

    /// The range, cut to the keys that there can be.
    fn span_of(&self, entry: &IndexEntry, range: &KeyRange) -> Result<Span> {
        let mut span = Span::of(range);
        self.engine.check_key(entry, &span.low)?;
        // A longer bound says no more: no key lies between it and its front of this length.
        if let Some(high) = &mut span.high
            && high.len() > KEY_BYTES_MAX + 1
        {
            high.truncate(KEY_BYTES_MAX);
            *high = just_above(high);
        }
        let deleted = self.deleted.borrow();
        let all = || deleted.values().flatten();
        let bytes_of = |span: &Span| span.low.len() + span.high.as_ref().map_or(0, Vec::len);
        let bytes = all().map(|own| bytes_of(&own.span)).sum::<usize>() + bytes_of(&span);
        if all().count() >= RANGES_MAX {
            let limit = RANGES_MAX as u64;
            return Err(Error::Limit { what: "ranges deleted by one transaction", limit, got: limit + 1 });
        }
        if bytes > RANGES_BYTES_MAX {
            let (limit, got) = (RANGES_BYTES_MAX as u64, bytes as u64);
            return Err(Error::Limit { what: "bytes of the bounds of ranges deleted by one transaction", limit, got });
        }
        Ok(span)
    }

    /// Who deletes ranges faster than they are drained drains some himself, before he has locked anything for this one.
    fn help_drain(&self, entry: &IndexEntry) -> Result<()> {
        let pending = || entry.index.as_ranged().map_or(0, index::Ranged::pending);
        let mut rounds = 0;
        while pending() > PENDING_MAX && entry.is_kept_up() && rounds < HELP_ROUNDS_MAX {
            rounds += 1;
            self.engine.wal.sync_to(self.engine.visible.visible().as_lsn())?;
            if !self.engine.maintain(entry)? {
                break;
            }
        }
        Ok(())
    }

    /// Step 1.
    fn lock_area(&self, entry: &IndexEntry, span: &Span) -> Result<()> {
        let keys = (span.low.as_slice(), span.high.as_deref());
        let patience = self.patience(self.lock_timeout);
        loop {
            let mut held = self.locks.borrow_mut();
            match self.engine.locks.lock_area(&mut held.owner, &self.writes, entry.id(), keys) {
                Ok(bytes) => {
                    held.bytes += bytes as u64;
                    self.charge_locks(held)?;
                    break;
                }
                Err(other) => {
                    drop(held);
                    self.wait_for_end((other, entry.id()), entry, &span.low, patience)?;
                }
            }
        }
        vfs::thread::point("deleting.published");
        let (others, seen) = self.engine.locks.others_in(&self.locks.borrow().owner, entry.id(), keys);
        self.seen.set(self.seen.get().max(seen));
        others.iter().try_for_each(|key| self.lock_for_write(entry, key))?;
        vfs::thread::point("deleting.looked");
        // Behind the look at the table: whoever had something there by then has it still, or has folded it meanwhile.
        loop {
            let other = self.engine.locks.folded_in(&self.locks.borrow().owner, entry.id(), keys)?;
            let Some(other) = other else { break };
            self.wait_for_end((other, entry.id()), entry, &span.low, patience)?;
        }
        // Who had folded something there may have committed between the looks (rule A17).
        self.seen.set(self.seen.get().max(self.engine.locks.left_by_folded()));
        Ok(())
    }

    /// Step 2.
    fn check_range_unchanged(&self, entry: &IndexEntry, range: &KeyRange) -> Result<()> {
        let is_kept = self.snapshot_isolation && !self.gives_locks_back();
        let snapshot = self.snapshot.borrow().as_ref().map(SnapshotSlot::ts).filter(|_| is_kept);
        let Some(snapshot) = snapshot else { return Ok(()) };
        let changed = |key: &[u8]| Error::SnapshotConflict { index: entry.name().to_owned(), key: printable(key) };
        let mut newest = Keys::new(entry, ReadAt::Newest, range);
        let mut before = Keys::new(entry, ReadAt::Snapshot(snapshot), range);
        loop {
            match (newest.next()?, before.next()?) {
                (None, None) => return Ok(()),
                (Some((key, ts)), Some((old, _))) if key == old && ts <= snapshot => {}
                (Some((key, _)), Some((old, _))) => return Err(changed(key.min(old))),
                (Some((key, _)), None) | (None, Some((key, _))) => return Err(changed(key)),
            }
        }
    }

    /// Step 3.
    fn delete_own(&mut self, entry: &Arc<IndexEntry>, span: &Span) -> Result<()> {
        let mut rest = span.clone();
        loop {
            let copied = self.writes.copy(entry.id(), rest.bounds(), Seq::LATEST, false, OWN_MAX)?;
            for (key, _) in copied.entries.iter().filter(|(_, value)| value.is_some()) {
                self.write(entry, key, None)?;
            }
            match copied.entries.last() {
                Some((last, _)) if copied.more => rest.low = just_above(last),
                _ => return Ok(()),
            }
        }
    }

    /// Going back to `to`.
    pub(super) fn take_back_ranges(&mut self, to: Seq) {
        self.deleted.get_mut().values_mut().for_each(|all| all.retain(|own| own.at < to));
    }

    /// True if the transaction has deleted a range.
    pub(crate) fn has_deleted_ranges(&self) -> bool {
        self.deleted.borrow().values().any(|all| !all.is_empty())
    }

    /// True if it has deleted a range that has this key.
    pub(super) fn has_deleted(&self, entry: &IndexEntry, key: &[u8]) -> bool {
        let deleted = self.deleted.borrow();
        deleted.get(&entry.id()).is_some_and(|all| all.iter().any(|own| own.span.contains(key)))
    }

    /// True if this key is the place of a range that it has deleted (step 4).
    pub(super) fn is_place_of_range(&self, entry: &IndexEntry, key: &[u8]) -> bool {
        let deleted = self.deleted.borrow();
        deleted.get(&entry.id()).is_some_and(|all| all.iter().any(|own| own.span.low == key))
    }

    /// What it has deleted of an index.
    pub(crate) fn spans_deleted(&self, entry: &IndexEntry) -> Vec<Span> {
        let deleted = self.deleted.borrow();
        deleted.get(&entry.id()).into_iter().flatten().map(|own| own.span.clone()).collect()
    }
}

/// The keys of an index in a range, one after the other.
struct Keys {
    cursor: Box<dyn Cursor>,
    batch: EntryBatch,
    at: usize,
    more: bool,
}

impl Keys {
    fn new(entry: &IndexEntry, at: ReadAt, range: &KeyRange) -> Self {
        let cursor = entry.index.cursor(at, range.bounds(), Direction::Forward);
        Self { cursor, batch: EntryBatch::new(), at: 0, more: true }
    }

    fn next(&mut self) -> Result<Option<(&[u8], base::CommitTs)>> {
        while self.at == self.batch.len() {
            if !self.more {
                return Ok(None);
            }
            self.more = self.cursor.fill(&mut self.batch, 256)?;
            self.at = 0;
        }
        self.at += 1;
        Ok(Some((self.batch.key(self.at - 1), self.batch.ts(self.at - 1))))
    }
}

/// What an index has outside some ranges.
pub(crate) struct Outside {
    entry: Arc<IndexEntry>,
    at: ReadAt,
    direction: Direction,
    /// Ascending, disjoint.
    spans: Vec<Span>,
    /// What was not given out yet.
    rest: KeyRange,
    inner: Option<Box<dyn Cursor>>,
    skips: Option<Skips>,
}

impl Outside {
    pub(crate) fn new(
        entry: &Arc<IndexEntry>,
        at: ReadAt,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        spans: Vec<Span>,
    ) -> Self {
        let spans = joined(spans);
        Self { entry: entry.clone(), at, direction, spans, rest: KeyRange::new(range), inner: None, skips: None }
    }

    fn deleted(&self, key: &[u8]) -> Option<&Span> {
        let at = self.spans.partition_point(|span| span.low.as_slice() <= key);
        self.spans[..at].last().filter(|span| span.contains(key))
    }

    /// Goes on behind a range. False if nothing is left.
    fn pass(&mut self, span: &Span) -> bool {
        self.inner = None;
        match (self.direction, &span.high) {
            (Direction::Forward, None) => return false,
            (Direction::Forward, Some(high)) => self.rest.low = Bound::Included(high.clone()),
            (Direction::Backward, _) => self.rest.high = Bound::Excluded(span.low.clone()),
        }
        !self.rest.is_empty()
    }
}

/// Ascending and disjoint.
fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by(|a, b| a.low.cmp(&b.low));
    let mut all: Vec<Span> = Vec::new();
    for span in spans {
        match all.last_mut() {
            Some(last) if last.high.as_ref().is_none_or(|high| *high >= span.low) => {
                last.high = match (last.high.take(), span.high) {
                    (Some(one), Some(other)) => Some(one.max(other)),
                    _ => None,
                };
            }
            _ => all.push(span),
        }
    }
    all
}

impl Cursor for Outside {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> base::Result<bool> {
        out.clear();
        let inner = match &mut self.inner {
            Some(inner) => inner,
            none => {
                let mut inner = self.entry.index.cursor(self.at, self.rest.bounds(), self.direction);
                self.skips.iter().for_each(|skips| inner.skip_damaged(skips.clone()));
                none.insert(inner)
            }
        };
        let more = inner.fill(out, max)?;
        let Some(last) = out.len().checked_sub(1) else { return Ok(more) };
        let passed = self.deleted(out.key(last)).cloned();
        out.retain(|key, _| self.deleted(key).is_none());
        Ok(match passed {
            Some(span) => self.pass(&span),
            None => more,
        })
    }

    fn skip_damaged(&mut self, skips: Skips) {
        self.inner.iter_mut().for_each(|inner| inner.skip_damaged(skips.clone()));
        self.skips = Some(skips);
    }
}
