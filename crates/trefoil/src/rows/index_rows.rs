//! Rows in the order of a secondary index, each read with its entry, in one range or in several, one behind another. Steps for
//! as many rows as are expected:
//! 1. take entries, behind the end of a range those of the next; under locks the row of each is locked and the entry looked at again ([`crate::cursor`]);
//! 2. leave out those that the caller's filter passes over;
//! 3. read the rows of all, in the order of their keys, where the entries were read: the same snapshot with the own writes on
//!    top, or under locks what is newest. If that gets more than a megabyte, as many of them as are about that, the others when these
//!    are given out;
//! 4. give them out in the order of the entries.
//!
//! Entries of a clustering index have their rows: steps 1, 2 and 4.

use std::ops::Range;
use std::sync::Arc;

use index::{Direction, ReadAt};
use txn::SnapshotSlot;

use super::range::KeyRange;
use super::{EntryRef, RowRef, as_slice};
use crate::cursor::{Cursor, LockingScan};
use crate::entry::TableShape;
use crate::error::Result;
use crate::locking::Locking;
use crate::transaction::Transaction;

mod starting;
#[cfg(test)]
mod tests;

const CHUNK_FIRST: usize = 16;
const CHUNK_MAX: usize = 1024;
/// Bytes of rows that are in memory at once, but for the last one, which may pass it.
const BYTES_MAX: usize = 1 << 20;

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
    _slot: Option<SnapshotSlot>,
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
    /// Of rows whose entries were taken.
    keys: Vec<u8>,
    rows: Vec<u8>,
    /// In the order of the entries.
    found: Vec<Found>,
    /// Of `found`, rows that are read.
    read: usize,
    /// Rows to read at once.
    at_once: usize,
    /// Of `found`, given out.
    given: usize,
}

/// Where a row's key lies, and the row.
struct Found {
    /// Number of its range.
    range: usize,
    key: Range<usize>,
    row: Option<Range<usize>>,
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
        loop {
            if self.given < self.read {
                self.given += 1;
                // Where a row is missing the index is damaged, which its verification tells.
                if self.found[self.given - 1].row.is_some() {
                    break;
                }
            } else if self.read < self.found.len() {
                self.read()?;
            } else if self.more {
                self.fill()?;
            } else {
                return Ok(None);
            }
        }
        let Found { key, row, .. } = &self.found[self.given - 1];
        let (key, row) = (&self.keys[key.clone()], &self.rows[row.clone().unwrap_or_default()]);
        Ok(Some(RowRef::new(&self.shape.def.schema, key, row)))
    }

    fn fill(&mut self) -> Result<()> {
        self.keys.clear();
        self.rows.clear();
        self.found.clear();
        (self.read, self.given) = (0, 0);
        while self.found.len() < self.chunk && self.rows.len() < BYTES_MAX {
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
                    let start = self.keys.len();
                    self.keys.extend_from_slice(schema.primary_key_of(n, key)?);
                    let row = schema.indexes()[n].is_clustering().then(|| append(&mut self.rows, value));
                    self.read += usize::from(row.is_some());
                    self.found.push(Found { range, key: start..self.keys.len(), row });
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
        Ok(())
    }

    /// Step 3. Every entry has its row: both were read at the same moment, or under the row's lock.
    fn read(&mut self) -> Result<()> {
        let (keys, found, rows) = (&self.keys, &mut self.found[self.read..], &mut self.rows);
        let mut count = found.len().min(self.at_once);
        loop {
            let key_of = |found: &Found| &keys[found.key.clone()];
            let mut order: Vec<usize> = (0..count).collect();
            if !found[..count].is_sorted_by(|a, b| key_of(a) < key_of(b)) {
                order.sort_unstable_by(|&a, &b| key_of(&found[a]).cmp(key_of(&found[b])));
            }
            let sorted: Vec<&[u8]> = order.iter().map(|&i| key_of(&found[i])).collect();
            let (mut places, mut met) = (vec![None; count], 0);
            rows.clear();
            self.tx.read_where(&self.shape.primary, self.at, &sorted, &mut |place, value| {
                met += 1;
                if rows.len() < BYTES_MAX {
                    places[order[place]] = Some(append(rows, value));
                }
            })?;
            let fit = places.iter().flatten().count();
            if fit == met {
                found.iter_mut().zip(places).for_each(|(found, place)| found.row = place);
                break;
            }
            // Rows come in the order of their keys: those that fit are not the first along the index. So few are read anew.
            (count, self.at_once) = (fit, fit);
        }
        self.read += count;
        if rows.len() < BYTES_MAX / 2 {
            self.at_once = self.at_once.saturating_mul(2);
        }
        Ok(())
    }
}

/// Where in `to` it is then.
fn append(to: &mut Vec<u8>, bytes: &[u8]) -> Range<usize> {
    let start = to.len();
    to.extend_from_slice(bytes);
    start..to.len()
}
