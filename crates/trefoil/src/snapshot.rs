//! Reading what was committed at one moment, outside any transaction.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use base::CommitTs;
use index::{Direction, ReadAt};

use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::entry::IndexEntry;
use crate::error::Result;
use crate::handle::{Index, Table};
use crate::rows::{Entries, Rows, ValueRange, as_slice, index_number, index_range, owned, primary_range, whole_key};
use crate::table::{OwnedValue, Value};
use crate::transaction::bounds;

/// What was committed at one moment, for reading. While it lives, nothing it sees is collected.
pub struct Snapshot {
    engine: Arc<Engine>,
    slot: txn::Snapshot,
}

impl Snapshot {
    pub(crate) fn take(engine: &Arc<Engine>) -> Result<Self> {
        engine.check_open()?;
        Ok(Self { engine: engine.clone(), slot: engine.snapshots.take() })
    }

    /// The moment: every commit with a timestamp at or below is seen.
    #[must_use]
    pub fn ts(&self) -> CommitTs {
        self.slot.ts()
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// I/O errors and corruption; `Dropped`, `Closed`, `DefinitionChanged`.
    pub fn get(&self, index: &Index, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let at = self.check(index.entry())?;
        let mut value = None;
        index.entry().index.get_many(at, &[key], &mut |_, _, v| value = Some(v.to_vec()))?;
        Ok(value)
    }

    /// Entries of `range`, ascending.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn range<'a>(&'a self, index: &Index, range: impl RangeBounds<&'a [u8]>) -> Result<Cursor<'a>> {
        self.cursor(index.entry(), bounds(&range), Direction::Forward)
    }

    /// Entries of `range`, descending.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn range_back<'a>(&'a self, index: &Index, range: impl RangeBounds<&'a [u8]>) -> Result<Cursor<'a>> {
        self.cursor(index.entry(), bounds(&range), Direction::Backward)
    }

    /// The row with this primary key.
    ///
    /// # Errors
    /// As [`Transaction::get_row`].
    pub fn get_row(&self, table: &Table, primary_key: &[Value<'_>]) -> Result<Option<Vec<OwnedValue>>> {
        let shape = table.0.shape();
        let at = self.check(&shape.primary)?;
        let key = whole_key(&shape.def.schema, primary_key)?;
        let mut value = None;
        shape.primary.index.get_many(at, &[&key], &mut |_, _, v| value = Some(v.to_vec()))?;
        let row = value.map(|value| shape.def.schema.decode_row(&key, &value).map(owned)).transpose()?;
        Ok(row)
    }

    /// Rows in a range of the primary key, ascending.
    ///
    /// # Errors
    /// As [`Transaction::get_row`].
    pub fn scan(&self, table: &Table, range: ValueRange<'_>) -> Result<Rows<'_>> {
        let shape = table.0.shape();
        let (low, high) = primary_range(&shape.def.schema, range)?;
        let cursor = self.cursor(&shape.primary, (as_slice(&low), as_slice(&high)), Direction::Forward)?;
        Ok(Rows::new(cursor, shape.def.schema.clone()))
    }

    /// Entries of a secondary index, ascending.
    ///
    /// # Errors
    /// As [`Transaction::scan_index`].
    pub fn scan_index(&self, table: &Table, index: &str, range: ValueRange<'_>) -> Result<Entries<'_>> {
        let shape = table.0.shape();
        let n = index_number(&shape, index)?;
        let (low, high) = index_range(&shape.def.schema, n, range)?;
        let cursor = self.cursor(&shape.secondaries[n], (as_slice(&low), as_slice(&high)), Direction::Forward)?;
        Ok(Entries::new(cursor, shape.def.schema.clone(), n))
    }
    fn check(&self, entry: &IndexEntry) -> Result<ReadAt> {
        self.engine.check_open()?;
        entry.check()?;
        let at = ReadAt::Snapshot(self.slot.ts());
        entry.check_snapshot(at)?;
        Ok(at)
    }

    fn cursor(
        &self,
        entry: &Arc<IndexEntry>,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Result<Cursor<'_>> {
        let at = self.check(entry)?;
        Ok(Cursor::new(entry, at, range, None, None, direction))
    }
}
