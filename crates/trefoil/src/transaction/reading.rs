//! What a transaction reads, where it reads, and how its own writes come on top.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use base::CommitTs;
use index::{Direction, ReadAt};
use txn::write_set::{Seq, Written};
use txn::{SharedWriteSet, SnapshotSlot};

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

    /// A statement of several reads begins: under READ COMMITTED its plain reads are of one moment, that of the first of
    /// them, until the next statement begins or [`Transaction::end_statement`]. Without it each read has its own. Under
    /// REPEATABLE READ all reads of the transaction are of one moment anyway.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// use trefoil::Isolation;
    ///
    /// let mut tx = db.begin_with(Isolation::ReadCommitted)?;
    /// tx.begin_statement();
    /// assert_eq!(tx.get(&fruit, b"apple")?, None);
    /// let mut other = db.begin()?;
    /// other.put(&fruit, b"apple", b"12")?;
    /// other.commit()?;
    /// assert_eq!(tx.get(&fruit, b"apple")?, None); // as the statement began
    /// tx.begin_statement();
    /// assert!(tx.get(&fruit, b"apple")?.is_some());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn begin_statement(&mut self) {
        self.end_statement();
        self.in_statement = true;
    }

    /// The statement is over: under READ COMMITTED its moment is forgotten, and what only it could see is collected.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let mut tx = db.begin_with(trefoil::Isolation::ReadCommitted)?;
    /// tx.begin_statement();
    /// tx.get(&fruit, b"apple")?;
    /// tx.end_statement(); // nothing waits for this transaction now
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn end_statement(&mut self) {
        self.in_statement = false;
        if self.isolation <= Isolation::ReadCommitted {
            self.snapshot.take();
        }
    }

    /// Where plain reads read.
    pub(crate) fn read_at(&self) -> Result<(ReadAt, Option<SnapshotSlot>)> {
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
            Isolation::ReadUncommitted | Isolation::ReadCommitted if !self.in_statement => Ok((at, Some(slot))),
            _ => {
                self.snapshot.replace(Some(slot));
                Ok((at, None))
            }
        }
    }

    /// What is committed, to be taken behind the lock of a key: all that whoever had it before has written is in it (A17). What is
    /// read at it is one moment for as long as this is kept.
    pub(crate) fn moment(&self) -> Result<SnapshotSlot> {
        self.engine.wait_visible(self.seen.get())?;
        Ok(self.engine.snapshots.take())
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
        self.read_where(entry, at, keys, found)
    }

    /// Current point reads of ascending keys, own writes first: what a write acts on.
    pub(crate) fn read_newest(
        &self,
        entry: &IndexEntry,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<usize> {
        entry.check()?;
        self.read_where(entry, ReadAt::Newest, keys, found)
    }

    /// Point reads of ascending keys at a moment that a read has had checked, own writes first.
    pub(crate) fn read_where(
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
        if entry.of_counters() {
            return self.read_counters(entry, at, keys, found);
        }
        let (mut rest, mut places) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
        for (i, key) in keys.iter().enumerate() {
            let written = self.writes.get(entry.id(), key, Seq::LATEST, |written| {
                if let Written::Put(value) = written {
                    count += 1;
                    found(i, value);
                }
            })?;
            if !written && !self.has_deleted(entry, key) {
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

    /// Of an index of counters with own writes: what these add is added to what is there.
    fn read_counters(
        &self,
        entry: &IndexEntry,
        at: ReadAt,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<usize> {
        let mut values: Vec<Option<[u8; 8]>> = vec![None; keys.len()];
        entry.index.get_many(at, keys, &mut |i, _, value| values[i] = value.try_into().ok())?;
        let mut count = 0;
        for (i, (key, value)) in keys.iter().zip(&mut values).enumerate() {
            self.writes.get(entry.id(), key, Seq::LATEST, |own| {
                *value = own.value().map(|own| super::own_sum(own, value.as_ref().map(<[u8; 8]>::as_slice)));
            })?;
            if let Some(value) = value {
                count += 1;
                found(i, value);
            }
        }
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
        Ok(self.cursor_where(entry, at, slot, range, direction))
    }

    /// A cursor of plain reads at a moment that a read has had checked.
    pub(crate) fn cursor_where<'a>(
        &'a self,
        entry: &Arc<IndexEntry>,
        at: ReadAt,
        slot: Option<SnapshotSlot>,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Cursor<'a> {
        let own = self.has_touched(entry).then(|| OwnWrites::new(self, entry, range, direction));
        Cursor::new(entry, at, range, slot, own, direction).outside(at, range, self.spans_deleted(entry))
    }

    /// A cursor over the newest applied versions, for statements that lock what they find.
    pub(crate) fn cursor_newest<'a>(
        &'a self,
        entry: &Arc<IndexEntry>,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Result<Cursor<'a>> {
        entry.check()?;
        let own = self.has_touched(entry).then(|| OwnWrites::new(self, entry, range, direction));
        let cursor = Cursor::new(entry, ReadAt::Newest, range, None, own, direction);
        Ok(cursor.outside(ReadAt::Newest, range, self.spans_deleted(entry)))
    }

    fn has_touched(&self, entry: &IndexEntry) -> bool {
        self.touched.borrow().binary_search_by_key(&entry.id(), |other| other.id()).is_ok()
    }

    /// For a cursor's copies of the own writes.
    pub(crate) fn own_writes(&self) -> &SharedWriteSet {
        &self.writes
    }
}
