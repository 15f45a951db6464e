//! What a transaction reads, where it reads, and how its own writes come on top.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use base::CommitTs;
use index::{Direction, ReadAt};
use txn::write_set::{Seq, Written};
use txn::{SharedWriteSet, Snapshot as Slot};

use super::{Transaction, bounds};
use crate::cursor::{Cursor, LockingScan, OwnWrites};
use crate::entry::IndexEntry;
use crate::error::Result;
use crate::handle::Index;
use crate::locking::Locking;
use crate::options::Isolation;

impl Transaction {
    /// The value of `key`, copied, as this transaction sees it; none if it is not there.
    ///
    /// # Errors
    /// I/O errors and corruption; `Dropped`, `Closed`.
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
    /// let tx = db.begin()?;
    /// assert_eq!(tx.get(&fruit, b"pear")?, Some(b"7".to_vec()));
    /// assert_eq!(tx.get(&fruit, b"peach")?, None);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn get(&self, index: &Index, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        self.get_with(index, key, |v| value = Some(v.to_vec()))?;
        Ok(value)
    }

    /// Calls `with` with the value of `key`, without copying it. True if there is one. `with` runs under a
    /// latch: it must not call the database.
    ///
    /// # Errors
    /// As [`Transaction::get`].
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
    /// let tx = db.begin()?;
    /// let mut length = 0;
    /// assert!(tx.get_with(&fruit, b"plum", |value| length = value.len())?);
    /// assert_eq!(length, "30".len());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn get_with(&self, index: &Index, key: &[u8], mut with: impl FnMut(&[u8])) -> Result<bool> {
        self.read(index.entry(), &[key], &mut |_, value| with(value)).map(|n| n > 0)
    }

    /// Entries of `range` in ascending key order. Bounds are byte keys, included or not; `..` is everything.
    ///
    /// # Errors
    /// As [`Transaction::get`].
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
    /// let tx = db.begin()?;
    /// let mut with_p = tx.range(&fruit, b"p".as_slice()..b"q".as_slice())?;
    /// assert_eq!(with_p.next()?, Some((&b"pear"[..], &b"7"[..])));
    /// assert_eq!(with_p.collect()?.len(), 1);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn range<'a>(&'a self, index: &Index, range: impl RangeBounds<&'a [u8]>) -> Result<Cursor<'a>> {
        self.cursor(index.entry(), bounds(&range), Direction::Forward)
    }

    /// Entries of `range` in descending key order.
    ///
    /// # Errors
    /// As [`Transaction::get`].
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
    /// let tx = db.begin()?;
    /// let mut below = tx.range_back(&fruit, ..b"plum".as_slice())?; // the largest key below "plum" comes first
    /// assert_eq!(below.next()?.map(|(key, _)| key), Some(&b"pear"[..]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn range_back<'a>(&'a self, index: &Index, range: impl RangeBounds<&'a [u8]>) -> Result<Cursor<'a>> {
        self.cursor(index.entry(), bounds(&range), Direction::Backward)
    }

    /// Plain reads lock what they read.
    pub(crate) fn reads_lock(&self) -> bool {
        self.isolation == Isolation::Serializable
    }

    /// Takes the snapshot of all plain reads now, as [`Database::snapshot_after_reserved`](crate::Database::snapshot_after_reserved)
    /// does: `START TRANSACTION WITH CONSISTENT SNAPSHOT`, where the server orders commits. Under READ COMMITTED each
    /// statement has its own, and this does nothing; nor does it once there is a snapshot. Returns the moment.
    ///
    /// # Errors
    /// `Closed`; `InvalidArgument` if a deadlock has rolled the transaction back.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let dump = db.begin()?;
    /// let moment = dump.snapshot_after_reserved()?;
    /// let mut tx = db.begin()?;
    /// tx.put(&fruit, b"apple", b"12")?;
    /// assert!(tx.commit()? > moment);
    /// assert!(dump.get(&fruit, b"apple")?.is_none());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn snapshot_after_reserved(&self) -> Result<CommitTs> {
        self.check_running()?;
        self.engine.check_open()?;
        let mut snapshot = self.snapshot.borrow_mut();
        if let Some(slot) = &*snapshot {
            return Ok(slot.ts());
        }
        let slot = self.engine.take_ahead();
        let ts = slot.ts();
        if self.isolation >= Isolation::RepeatableRead {
            self.ahead.set(true);
            *snapshot = Some(slot);
        }
        Ok(ts)
    }

    /// Where plain reads read.
    pub(crate) fn read_at(&self) -> Result<(ReadAt, Option<Slot>)> {
        self.check_running()?;
        self.engine.check_open()?;
        if let Some(slot) = &*self.snapshot.borrow() {
            if self.ahead.get() {
                self.engine.wait_visible(slot.ts())?;
            }
            return Ok((ReadAt::Snapshot(slot.ts()), None));
        }
        self.engine.wait_visible(self.seen.get())?;
        let slot = self.engine.snapshots.take();
        let at = ReadAt::Snapshot(slot.ts());
        match self.isolation {
            Isolation::ReadUncommitted | Isolation::ReadCommitted => Ok((at, Some(slot))),
            Isolation::RepeatableRead | Isolation::Serializable => {
                self.snapshot.replace(Some(slot));
                Ok((at, None))
            }
        }
    }

    /// Plain point reads of ascending keys, own writes first. Returns how many were found.
    pub(crate) fn read(
        &self,
        entry: &IndexEntry,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<usize> {
        if self.reads_lock() {
            for key in keys {
                self.lock_for_read(entry, key, Locking::SHARED)?;
            }
            return self.read_newest(entry, keys, found);
        }
        let (at, _slot) = self.read_at()?;
        entry.check_snapshot(at)?;
        self.read_merged(entry, at, keys, found)
    }

    /// Current point reads of ascending keys, own writes first: what a write acts on.
    pub(crate) fn read_newest(
        &self,
        entry: &IndexEntry,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<usize> {
        entry.check()?;
        self.read_merged(entry, ReadAt::Newest, keys, found)
    }

    fn read_merged(
        &self,
        entry: &IndexEntry,
        at: ReadAt,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<usize> {
        let mut count = 0;
        if !self.has_touched(entry) {
            entry.index.get_many(at, keys, &mut |i, _, value| {
                count += 1;
                found(i, value);
            })?;
            return Ok(count);
        }
        let (mut rest, mut places) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
        for (i, key) in keys.iter().enumerate() {
            let written = self.writes.get(entry.id(), key, Seq::LATEST, |written| {
                if let Written::Put(value) = written {
                    count += 1;
                    found(i, value);
                }
            })?;
            if !written {
                rest.push(*key);
                places.push(i);
            }
        }
        entry.index.get_many(at, &rest, &mut |i, _, value| {
            count += 1;
            found(places[i], value);
        })?;
        Ok(count)
    }

    pub(crate) fn cursor<'a>(
        &'a self,
        entry: &Arc<IndexEntry>,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Result<Cursor<'a>> {
        if self.reads_lock() {
            return self.locking_cursor(LockingScan::new(self, entry, range, direction, Locking::SHARED));
        }
        vfs::thread::point("read.shape");
        let (at, slot) = self.read_at()?;
        entry.check_snapshot(at)?;
        let own = self.has_touched(entry).then(|| OwnWrites::new(self, entry.id(), range, direction));
        Ok(Cursor::new(entry, at, range, slot, own, direction))
    }

    /// A cursor over the newest applied versions, for statements that lock what they find.
    pub(crate) fn cursor_newest<'a>(
        &'a self,
        entry: &Arc<IndexEntry>,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Result<Cursor<'a>> {
        entry.check()?;
        let own = self.has_touched(entry).then(|| OwnWrites::new(self, entry.id(), range, direction));
        Ok(Cursor::new(entry, ReadAt::Newest, range, None, own, direction))
    }

    fn has_touched(&self, entry: &IndexEntry) -> bool {
        self.touched.borrow().contains_key(&entry.id())
    }

    /// For a cursor's copies of the own writes.
    pub(crate) fn own_writes(&self) -> &SharedWriteSet {
        &self.writes
    }
}
