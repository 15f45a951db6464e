//! Rows and entries of secondary indexes in order: a cursor, decoded by the schema.

use crate::cursor::Cursor;
use crate::error::Result;
use crate::table::{OwnedValue, Schema, Value};

/// Rows in order.
pub struct Rows<'a> {
    cursor: Cursor<'a>,
    schema: Schema,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(cursor: Cursor<'a>, schema: Schema) -> Self {
        Self { cursor, schema }
    }

    /// Says how many rows will be read: that many are fetched at once.
    #[must_use]
    pub fn expect(mut self, rows: usize) -> Self {
        self.cursor = self.cursor.expect(rows);
        self
    }

    /// The next row's values, in the order of the columns.
    ///
    /// # Errors
    /// I/O errors and corruption.
    #[allow(clippy::should_implement_trait, reason = "a lending iterator: the row borrows the cursor")]
    pub fn next(&mut self) -> Result<Option<Vec<Value<'_>>>> {
        if !self.cursor.advance()? {
            return Ok(None);
        }
        let (key, value) = self.cursor.entry();
        Ok(Some(self.schema.decode_row(key, value)?))
    }

    /// The next row's primary key values only: cheaper than the row.
    ///
    /// # Errors
    /// I/O errors and corruption.
    pub fn next_key(&mut self) -> Result<Option<Vec<Value<'_>>>> {
        if !self.cursor.advance()? {
            return Ok(None);
        }
        Ok(Some(self.schema.decode_primary_key(self.cursor.entry().0)?))
    }
}

/// Entries of a secondary index in order.
pub struct Entries<'a> {
    cursor: Cursor<'a>,
    schema: Schema,
    n: usize,
}

impl<'a> Entries<'a> {
    /// Of secondary index `n`.
    pub(crate) fn new(cursor: Cursor<'a>, schema: Schema, n: usize) -> Self {
        Self { cursor, schema, n }
    }

    /// Says how many entries will be read: that many are fetched at once.
    #[must_use]
    pub fn expect(mut self, entries: usize) -> Self {
        self.cursor = self.cursor.expect(entries);
        self
    }

    /// The next entry's values: the index's columns, then the primary key's.
    ///
    /// # Errors
    /// I/O errors and corruption.
    #[allow(clippy::should_implement_trait, reason = "a lending iterator: the entry borrows the cursor")]
    pub fn next(&mut self) -> Result<Option<Vec<Value<'_>>>> {
        if !self.cursor.advance()? {
            return Ok(None);
        }
        Ok(Some(self.schema.decode_entry(self.n, self.cursor.entry().0)?))
    }
}

pub(crate) fn owned(row: Vec<Value<'_>>) -> Vec<OwnedValue> {
    row.into_iter().map(Value::into_owned).collect()
}
