//! Rows in the order of a secondary index, each read with its entry, in one range or in several, one behind another. Steps for
//! as many rows as are expected:
//! 1. take entries, behind the end of a range those of the next; under locks the row of each is locked and the entry looked at again ([`crate::cursor`]);
//! 2. leave out those that the caller's filter passes over;
//! 3. read the rows of all, in the order of their keys, where the entries were read: the same snapshot with the own writes on
//!    top, or under locks what is newest;
//! 4. give them out in the order of the entries.
//!
//! Entries of a clustering index have their rows: steps 1, 2 and 4.

use std::ops::Range;
use std::sync::Arc;

use index::{Direction, ReadAt};
use txn::Snapshot as Slot;

use super::range::KeyRange;
use super::{EntryRef, RowRef, ValueRange, as_slice, index_number, index_range};
use crate::cursor::{Cursor, LockingScan};
use crate::entry::TableShape;
use crate::error::Result;
use crate::handle::Table;
use crate::locking::Locking;
use crate::transaction::Transaction;

const CHUNK_FIRST: usize = 16;
const CHUNK_MAX: usize = 1024;

/// What a filter of [`IndexRows`] says of an entry.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # use trefoil::{ColumnType, IndexSchema, Schema};
/// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
/// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
/// # let people = db.create_table("people", schema)?;
/// # let mut tx = db.begin()?;
/// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
/// #     tx.insert(&people, &[id.into(), name.into()])?;
/// # }
/// # tx.commit()?;
/// use trefoil::{ALL, Judged, Value};
///
/// let tx = db.begin()?;
/// let mut rows = tx.scan_index_rows(&people, "by_name", ALL)?.filter(|entry| match &entry.values()?[0] {
///     Value::Text(name) if name.len() > 4 => Ok(Judged::Take),
///     _ => Ok(Judged::Pass),
/// });
/// assert_eq!(rows.next_row()?.expect("two are long").column_as::<i64>(0)?, 3); // the row of Ada was not read
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// Its row is wanted.
    Take,
    /// It is not.
    Pass,
    /// Nor is any behind it.
    End,
}

type Filter<'a> = Box<dyn FnMut(usize, EntryRef<'_>) -> Result<Judged> + 'a>;

/// Rows in the order of a secondary index: from [`Transaction::scan_index_rows`] and its like.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # use trefoil::{ColumnType, IndexSchema, Schema};
/// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
/// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
/// # let people = db.create_table("people", schema)?;
/// # let mut tx = db.begin()?;
/// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
/// #     tx.insert(&people, &[id.into(), name.into()])?;
/// # }
/// # tx.commit()?;
/// let tx = db.begin()?;
/// let mut by_name = tx.scan_index_rows(&people, "by_name", trefoil::ALL)?;
/// let mut ids = Vec::new();
/// while let Some(row) = by_name.next_row()? {
///     ids.push(row.column_as::<i64>(0)?);
/// }
/// assert_eq!(ids, [1, 3, 2]); // Ada, Edith, Grace
/// # Ok::<(), trefoil::Error>(())
/// ```
pub struct IndexRows<'a> {
    tx: &'a Transaction,
    /// Of the entries of the range that is read.
    cursor: Option<Cursor<'a>>,
    /// Where entries and rows are read, and what keeps it there.
    at: ReadAt,
    _slot: Option<Slot>,
    shape: Arc<TableShape>,
    n: usize,
    locking: Option<Locking>,
    direction: Direction,
    /// Ranges to be read.
    rest: std::vec::IntoIter<KeyRange>,
    /// Ranges begun.
    begun: usize,
    /// Rows said to be read.
    expected: Option<usize>,
    filter: Option<Filter<'a>>,
    /// Rows to read next.
    chunk: usize,
    more: bool,
    /// Keys and values of the rows read ahead.
    bytes: Vec<u8>,
    /// In the order of the entries.
    found: Vec<Found>,
    /// Of `found`, given out.
    given: usize,
}

/// Where a row lies in `bytes`.
struct Found {
    /// Number of its range.
    range: usize,
    key: Range<usize>,
    value: Range<usize>,
}

impl<'a> IndexRows<'a> {
    /// The next range; false if there is none.
    fn open(&mut self) -> Result<bool> {
        let Some((low, high)) = self.rest.next() else { return Ok(false) };
        let (range, entry) = ((as_slice(&low), as_slice(&high)), &self.shape.secondaries[self.n]);
        let cursor = match self.locking {
            Some(locking) => {
                let scan = LockingScan::new(self.tx, entry, range, self.direction, locking);
                self.tx.locking_cursor(scan.of_rows(&self.shape, self.n))?
            }
            None => self.tx.cursor_where(entry, self.at, None, range, self.direction),
        };
        self.begun += 1;
        self.cursor = Some(match self.expected {
            Some(rows) => cursor.expect(rows),
            None => cursor,
        });
        Ok(true)
    }

    /// Says how many rows will be read, 1 to 1024: that many are fetched at once, or locked at once, see [`Cursor::expect`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
    /// #     tx.insert(&people, &[id.into(), name.into()])?;
    /// # }
    /// # tx.commit()?;
    /// let tx = db.begin()?;
    /// let mut first = tx.scan_index_rows(&people, "by_name", trefoil::ALL)?.expect(1);
    /// assert_eq!(first.next_row()?.expect("there are rows").column_as::<i64>(0)?, 1);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn expect(mut self, rows: usize) -> Self {
        if self.at != ReadAt::Newest || !self.tx.gives_locks_back() {
            self.chunk = rows.clamp(1, CHUNK_MAX);
        }
        self.expected = Some(rows);
        self.cursor = self.cursor.map(|cursor| cursor.expect(rows));
        self
    }

    /// Entries are shown to `judge` before their rows are read; its error is that of the step. Under locks
    /// a row is locked first: what is passed over is free again where isolation allows it
    /// ([`Transaction::unlock_row`]).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
    /// #     tx.insert(&people, &[id.into(), name.into()])?;
    /// # }
    /// # tx.commit()?;
    /// use trefoil::{Judged, LockMode};
    ///
    /// let tx = db.begin()?;
    /// let is_ada = |entry: trefoil::EntryRef<'_>| Ok::<_, trefoil::Error>(entry.values()?[1] == 1i64.into());
    /// let rows = tx.scan_index_rows_locked(&people, "by_name", trefoil::ALL, LockMode::Exclusive)?;
    /// let mut rows = rows.filter(|entry| Ok(if is_ada(entry)? { Judged::Pass } else { Judged::Take }));
    /// assert_eq!(rows.next_row()?.expect("two are left").column_as::<i64>(0)?, 3);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn filter(self, mut judge: impl FnMut(EntryRef<'_>) -> Result<Judged> + 'a) -> Self {
        self.filter_ranges(move |_, entry| judge(entry))
    }

    /// As [`IndexRows::filter`], where the number of the entry's range matters too: [`Transaction::scan_index_ranges`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
    /// #     tx.insert(&people, &[id.into(), name.into()])?;
    /// # }
    /// # tx.commit()?;
    /// use trefoil::{ALL, Judged};
    ///
    /// let tx = db.begin()?;
    /// let rows = tx.scan_index_ranges(&people, "by_name", &[ALL, ALL])?;
    /// let mut rows = rows.filter_ranges(|range, _| Ok(if range == 1 { Judged::Take } else { Judged::Pass }));
    /// assert_eq!(rows.next_row()?.expect("three, once").column_as::<i64>(0)?, 1);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn filter_ranges(mut self, judge: impl FnMut(usize, EntryRef<'_>) -> Result<Judged> + 'a) -> Self {
        self.filter = Some(Box::new(judge));
        self
    }

    /// Which of the ranges, from 0 on, the row given last lies in.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
    /// #     tx.insert(&people, &[id.into(), name.into()])?;
    /// # }
    /// # tx.commit()?;
    /// let tx = db.begin()?;
    /// let mut rows = tx.scan_index_rows(&people, "by_name", trefoil::ALL)?;
    /// while rows.next_row()?.is_some() {
    ///     assert_eq!(rows.range(), 0); // there is one
    /// }
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn range(&self) -> usize {
        self.given.checked_sub(1).and_then(|last| self.found.get(last)).map_or(0, |found| found.range)
    }

    /// The next row, not decoded yet; none at the end.
    ///
    /// # Errors
    /// I/O errors and corruption; under locks as [`Transaction::get_locked`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
    /// #     tx.insert(&people, &[id.into(), name.into()])?;
    /// # }
    /// # tx.commit()?;
    /// let tx = db.begin()?;
    /// let mut rows = tx.scan_index_rows_back(&people, "by_name", trefoil::ALL)?;
    /// assert_eq!(rows.next_row()?.expect("there are rows").values()?, [2i64.into(), "Grace".into()]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn next_row(&mut self) -> Result<Option<RowRef<'_>>> {
        while self.given == self.found.len() {
            if !self.more {
                return Ok(None);
            }
            self.fill()?;
        }
        let Found { key, value, .. } = &self.found[self.given];
        self.given += 1;
        let (key, value) = (&self.bytes[key.clone()], &self.bytes[value.clone()]);
        Ok(Some(RowRef::new(&self.shape.def.schema, key, value)))
    }

    fn fill(&mut self) -> Result<()> {
        self.bytes.clear();
        self.found.clear();
        self.given = 0;
        while self.found.len() < self.chunk {
            let Some(cursor) = &mut self.cursor else {
                self.more = self.open()?;
                match self.more {
                    true => continue,
                    false => break,
                }
            };
            if !cursor.advance()? {
                self.cursor = None;
                continue;
            }
            let (key, value) = cursor.entry();
            let (schema, n, range) = (&self.shape.def.schema, self.n, self.begun - 1);
            let judged = match &mut self.filter {
                Some(filter) => filter(range, EntryRef::new(schema, n, key, value))?,
                None => Judged::Take,
            };
            match judged {
                Judged::Take => {
                    let start = self.bytes.len();
                    self.bytes.extend_from_slice(schema.primary_key_of(n, key)?);
                    let end = self.bytes.len();
                    if schema.indexes()[n].is_clustering() {
                        self.bytes.extend_from_slice(value);
                    }
                    self.found.push(Found { range, key: start..end, value: end..self.bytes.len() });
                }
                Judged::Pass => {
                    self.tx.unlock_row();
                }
                Judged::End => {
                    self.more = false;
                    break;
                }
            }
        }
        if self.at != ReadAt::Newest {
            self.chunk = (self.chunk * 2).min(CHUNK_MAX);
        }
        let is_clustering = self.shape.def.schema.indexes()[self.n].is_clustering();
        if is_clustering { Ok(()) } else { self.read() }
    }

    /// Step 3. Every entry has its row: both were read at the same moment, or under the row's lock.
    fn read(&mut self) -> Result<()> {
        let keys = std::mem::take(&mut self.bytes);
        let key_of = |found: &Found| &keys[found.key.clone()];
        let mut order: Vec<usize> = (0..self.found.len()).collect();
        if !self.found.is_sorted_by(|a, b| key_of(a) < key_of(b)) {
            order.sort_unstable_by(|&a, &b| key_of(&self.found[a]).cmp(key_of(&self.found[b])));
        }
        let sorted: Vec<&[u8]> = order.iter().map(|&i| key_of(&self.found[i])).collect();
        let mut bytes = Vec::with_capacity(keys.len() * 4);
        let mut rows = vec![0..0; order.len()];
        self.tx.read_where(&self.shape.primary, self.at, &sorted, &mut |place, value| {
            let start = bytes.len();
            bytes.extend_from_slice(value);
            rows[order[place]] = start..bytes.len();
        })?;
        let base = bytes.len();
        bytes.extend_from_slice(&keys);
        for (found, value) in self.found.iter_mut().zip(rows) {
            debug_assert!(!value.is_empty(), "an entry has its row");
            *found = Found { key: base + found.key.start..base + found.key.end, value, ..*found };
        }
        // Where a row is missing the index is damaged, which its verification tells.
        self.found.retain(|found| !found.value.is_empty());
        self.bytes = bytes;
        Ok(())
    }
}

impl Transaction {
    /// Rows in a range of the columns of a secondary index, in its order: entries and rows are of one moment, also under READ
    /// COMMITTED. Where the entries have all that is wanted, [`Transaction::scan_index`] reads no rows.
    ///
    /// # Errors
    /// As [`Transaction::scan_index`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
    /// #     tx.insert(&people, &[id.into(), name.into()])?;
    /// # }
    /// # tx.commit()?;
    /// use std::ops::Bound;
    ///
    /// let tx = db.begin()?;
    /// let from = ["B".into()];
    /// let mut rows = tx.scan_index_rows(&people, "by_name", (Bound::Included(&from), Bound::Unbounded))?;
    /// assert_eq!(rows.next_row()?.expect("two are behind").values()?, [3i64.into(), "Edith".into()]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_index_rows(&self, table: &Table, index: &str, range: ValueRange<'_>) -> Result<IndexRows<'_>> {
        self.scan_index_rows_towards(table, index, range, None, Direction::Forward)
    }

    /// Rows in a range of the columns of a secondary index, in its order from the end.
    ///
    /// # Errors
    /// As [`Transaction::scan_index`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
    /// #     tx.insert(&people, &[id.into(), name.into()])?;
    /// # }
    /// # tx.commit()?;
    /// let tx = db.begin()?;
    /// let mut rows = tx.scan_index_rows_back(&people, "by_name", trefoil::ALL)?;
    /// assert_eq!(rows.next_row()?.expect("there are rows").column_as::<i64>(0)?, 2); // Grace
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_index_rows_back(&self, table: &Table, index: &str, range: ValueRange<'_>) -> Result<IndexRows<'_>> {
        self.scan_index_rows_towards(table, index, range, None, Direction::Backward)
    }

    /// Rows in a range of the columns of a secondary index, in its order, each locked as it is reached and read as it is
    /// then.
    ///
    /// # Errors
    /// As [`Transaction::scan_index_locked`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
    /// #     tx.insert(&people, &[id.into(), name.into()])?;
    /// # }
    /// # tx.commit()?;
    /// use trefoil::{ALL, Isolation, LockMode, Locking};
    ///
    /// let tx = db.begin_with(Isolation::ReadCommitted)?;
    /// let mut rows = tx.scan_index_rows_locked(&people, "by_name", ALL, LockMode::Exclusive)?;
    /// assert_eq!(rows.next_row()?.expect("there are rows").column_as::<i64>(0)?, 1); // Ada
    /// assert!(tx.unlock_row()); // not wanted
    /// assert!(db.begin()?.get_row_locked(&people, &[1i64.into()], Locking::EXCLUSIVE.no_wait()).is_ok());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_index_rows_locked(
        &self,
        table: &Table,
        index: &str,
        range: ValueRange<'_>,
        locking: impl Into<Locking>,
    ) -> Result<IndexRows<'_>> {
        self.scan_index_rows_towards(table, index, range, Some(locking.into()), Direction::Forward)
    }

    /// Rows in a range of the columns of a secondary index, in its order from the end, each locked as it is reached.
    ///
    /// # Errors
    /// As [`Transaction::scan_index_locked`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
    /// #     tx.insert(&people, &[id.into(), name.into()])?;
    /// # }
    /// # tx.commit()?;
    /// use trefoil::{ALL, LockMode, Locking};
    ///
    /// let tx = db.begin()?;
    /// let mut rows = tx.scan_index_rows_back_locked(&people, "by_name", ALL, LockMode::Exclusive)?;
    /// assert_eq!(rows.next_row()?.expect("there are rows").column_as::<i64>(0)?, 2); // Grace
    /// assert!(db.begin()?.get_row_locked(&people, &[2i64.into()], Locking::SHARED.no_wait()).is_err());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_index_rows_back_locked(
        &self,
        table: &Table,
        index: &str,
        range: ValueRange<'_>,
        locking: impl Into<Locking>,
    ) -> Result<IndexRows<'_>> {
        self.scan_index_rows_towards(table, index, range, Some(locking.into()), Direction::Backward)
    }

    /// Rows in several ranges of the columns of a secondary index: those of the first in its order, then those of the second,
    /// and so on; [`IndexRows::range`] tells them apart. Rows are read together, however few there are in each range.
    ///
    /// # Errors
    /// As [`Transaction::scan_index`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
    /// #     tx.insert(&people, &[id.into(), name.into()])?;
    /// # }
    /// # tx.commit()?;
    /// use std::ops::Bound::Included;
    ///
    /// let tx = db.begin()?;
    /// let names = [["Grace".into()], ["Bob".into()], ["Ada".into()]];
    /// let ranges: Vec<_> = names.iter().map(|name| (Included(&name[..]), Included(&name[..]))).collect();
    /// let mut rows = tx.scan_index_ranges(&people, "by_name", &ranges)?;
    /// assert_eq!(rows.next_row()?.expect("Grace").column_as::<i64>(0)?, 2);
    /// assert_eq!(rows.next_row()?.expect("Ada").column_as::<i64>(0)?, 1);
    /// assert_eq!(rows.range(), 2);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_index_ranges(&self, table: &Table, index: &str, ranges: &[ValueRange<'_>]) -> Result<IndexRows<'_>> {
        self.scan_ranges_towards(table, index, ranges, None, Direction::Forward)
    }

    fn scan_index_rows_towards(
        &self,
        table: &Table,
        index: &str,
        range: ValueRange<'_>,
        locking: Option<Locking>,
        direction: Direction,
    ) -> Result<IndexRows<'_>> {
        self.scan_ranges_towards(table, index, &[range], locking, direction)
    }

    fn scan_ranges_towards(
        &self,
        table: &Table,
        index: &str,
        ranges: &[ValueRange<'_>],
        locking: Option<Locking>,
        direction: Direction,
    ) -> Result<IndexRows<'_>> {
        let shape = self.table_shape(&table.0);
        let n = index_number(&shape, index)?;
        let mut rest = Vec::with_capacity(ranges.len());
        for range in ranges {
            rest.push(index_range(&shape.def.schema, n, *range)?);
        }
        let locking = locking.or_else(|| self.reads_lock().then_some(Locking::SHARED));
        let (at, slot) = match locking {
            Some(_) => (ReadAt::Newest, None),
            None => {
                vfs::thread::point("read.shape");
                let (at, slot) = self.read_at()?;
                shape.secondaries[n].check_snapshot(at)?;
                shape.primary.check_snapshot(at)?;
                (at, slot)
            }
        };
        let mut rows = IndexRows {
            tx: self,
            cursor: None,
            at,
            _slot: slot,
            shape,
            n,
            locking,
            direction,
            rest: rest.into_iter(),
            begun: 0,
            expected: None,
            filter: None,
            chunk: if locking.is_some() { 1 } else { CHUNK_FIRST },
            more: true,
            bytes: Vec::new(),
            found: Vec::new(),
            given: 0,
        };
        // What is wrong with the index is told at once.
        rows.more = rows.open()?;
        Ok(rows)
    }
}
