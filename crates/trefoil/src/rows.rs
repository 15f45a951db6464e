//! Typed rows in transactions and snapshots: what a statement does to a table's indexes.
//!
//! A row is an entry of the primary index and one of each secondary index ([`crate::table`]). A write locks the row
//! (its primary key in the primary index), looks at the newest committed version and then writes all entries that
//! change. Secondary entries need no locks: they change only under their row's.
//!
//! A statement over many rows locks and checks all of them before it writes the first; what fails later (a value
//! that does not fit, a limit, a full disk) takes back what the statement has written. So an error leaves nothing
//! half done.

use std::ops::Bound;
use std::sync::Arc;

use base::bytes::printable;
use base::limits::KEY_BYTES_MAX;
use index::Direction;

use crate::cursor::Cursor;
use crate::database::{Snapshot, Table};
use crate::entry::TableShape;
use crate::error::{Error, Result};
use crate::table::{OwnedValue, Schema, Value, key};
use crate::transaction::Transaction;

/// A range over the first columns of a key: each bound gives values of as many columns as it likes, and
/// stands for all keys that begin with them.
pub type ValueRange<'a> = (Bound<&'a [Value<'a>]>, Bound<&'a [Value<'a>]>);

/// Everything.
pub const ALL: ValueRange<'static> = (Bound::Unbounded, Bound::Unbounded);

impl Transaction {
    /// Inserts a row.
    ///
    /// # Errors
    /// `DuplicateKey`; `InvalidArgument` if the values do not fit the schema; as [`Transaction::put`].
    pub fn insert(&mut self, table: &Table, row: &[Value<'_>]) -> Result<()> {
        self.insert_many(table, &[row])
    }

    /// Inserts rows: all or, on an error, none.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn insert_many<'v, R: AsRef<[Value<'v>]>>(&mut self, table: &Table, rows: &[R]) -> Result<()> {
        self.statement(|tx| tx.insert_rows(table, rows))
    }

    fn insert_rows<'v, R: AsRef<[Value<'v>]>>(&mut self, table: &Table, rows: &[R]) -> Result<()> {
        let shape = self.open_table(&table.0, true)?;
        let schema = &shape.def.schema;
        let keys = rows
            .iter()
            .map(|row| {
                let mut key = Vec::new();
                schema.primary_key_of_row(row.as_ref(), &mut key).map(|()| key)
            })
            .collect::<base::Result<Vec<_>>>()?;
        let mut order: Vec<usize> = (0..rows.len()).collect();
        if !keys.is_sorted() {
            order.sort_unstable_by(|&a, &b| keys[a].cmp(&keys[b]));
        }
        let sorted: Vec<&[u8]> = order.iter().map(|&i| keys[i].as_slice()).collect();
        let duplicate = |key: &[u8]| Error::DuplicateKey { index: table.name().to_owned(), key: printable(key) };
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(duplicate(twice[0]));
        }
        for key in &sorted {
            self.lock_row(&shape.primary, key)?;
        }
        let mut there = None;
        self.read_newest(&shape.primary, &sorted, &mut |i, _| there = there.or(Some(i)))?;
        if let Some(i) = there {
            return Err(duplicate(sorted[i]));
        }
        let mut bytes = Vec::new();
        for (row, key) in rows.iter().zip(&keys) {
            schema.row_value(row.as_ref(), &mut bytes)?;
            self.write(&shape.primary, key, Some(&bytes))?;
            for (n, secondary) in shape.secondaries.iter().enumerate() {
                schema.index_key_of_row(n, key, row.as_ref(), &mut bytes)?;
                self.write(secondary, &bytes, Some(&[]))?;
            }
        }
        Ok(())
    }

    /// Replaces the row with the same primary key. False if there is none.
    ///
    /// # Errors
    /// `InvalidArgument` if the values do not fit the schema; as [`Transaction::put`].
    pub fn update(&mut self, table: &Table, row: &[Value<'_>]) -> Result<bool> {
        self.statement(|tx| tx.update_row(table, row))
    }

    fn update_row(&mut self, table: &Table, row: &[Value<'_>]) -> Result<bool> {
        let shape = self.open_table(&table.0, true)?;
        let schema = &shape.def.schema;
        let (mut key, mut new, mut old_entry, mut new_entry) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        schema.primary_key_of_row(row, &mut key)?;
        schema.row_value(row, &mut new)?;
        self.lock_row(&shape.primary, &key)?;
        let mut old = None;
        self.read_newest(&shape.primary, &[&key], &mut |_, value| old = Some(value.to_vec()))?;
        let Some(old) = old else { return Ok(false) };
        if old == new {
            return Ok(true);
        }
        self.write(&shape.primary, &key, Some(&new))?;
        for (n, secondary) in shape.secondaries.iter().enumerate() {
            schema.secondary_key(n, &key, &old, &mut old_entry)?;
            schema.index_key_of_row(n, &key, row, &mut new_entry)?;
            if old_entry != new_entry {
                self.write(secondary, &old_entry, None)?;
                self.write(secondary, &new_entry, Some(&[]))?;
            }
        }
        Ok(true)
    }

    /// Deletes the row with this primary key. False if there is none.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete_row(&mut self, table: &Table, primary_key: &[Value<'_>]) -> Result<bool> {
        let shape = self.open_table(&table.0, true)?;
        let key = whole_key(&shape.def.schema, primary_key)?;
        self.statement(|tx| Ok(tx.delete_keys(&shape, &[key])? == 1))
    }

    /// Deletes the `limit` first rows of a range of the primary key, in key order; returns how many there were.
    /// Acts on the newest committed rows: found, locked, looked at again.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete_first(&mut self, table: &Table, range: ValueRange<'_>, limit: usize) -> Result<usize> {
        self.statement(|tx| tx.delete_range(table, range, limit))
    }

    fn delete_range(&mut self, table: &Table, range: ValueRange<'_>, limit: usize) -> Result<usize> {
        let shape = self.open_table(&table.0, true)?;
        let (mut low, high) = primary_range(&shape.def.schema, range)?;
        let mut deleted = 0;
        while deleted < limit {
            let keys = self.keys_newest(&shape, (as_slice(&low), as_slice(&high)), limit - deleted)?;
            let Some(last) = keys.last() else { break };
            low = Bound::Excluded(last.clone());
            deleted += self.delete_keys(&shape, &keys)?;
        }
        Ok(deleted)
    }

    fn keys_newest(
        &self,
        shape: &TableShape,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        limit: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let mut cursor = self.cursor_newest(&shape.primary, range, Direction::Forward)?.expect(limit);
        let mut keys = Vec::with_capacity(limit.min(1024));
        while keys.len() < limit && cursor.advance()? {
            keys.push(cursor.entry().0.to_vec());
        }
        Ok(keys)
    }

    /// Locks ascending keys, then deletes those rows that are still there.
    fn delete_keys(&mut self, shape: &Arc<TableShape>, keys: &[Vec<u8>]) -> Result<usize> {
        for key in keys {
            self.lock_row(&shape.primary, key)?;
        }
        let sorted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut rows: Vec<(usize, Vec<u8>)> = Vec::with_capacity(keys.len());
        self.read_newest(&shape.primary, &sorted, &mut |i, value| rows.push((i, value.to_vec())))?;
        let mut entry = Vec::new();
        for (i, row) in &rows {
            self.write(&shape.primary, sorted[*i], None)?;
            for (n, secondary) in shape.secondaries.iter().enumerate() {
                shape.def.schema.secondary_key(n, sorted[*i], row, &mut entry)?;
                self.write(secondary, &entry, None)?;
            }
        }
        Ok(rows.len())
    }

    /// The row with this primary key, as this transaction sees it.
    ///
    /// # Errors
    /// As [`Transaction::get`]; `InvalidArgument` if the values do not fit the key.
    pub fn get_row(&self, table: &Table, primary_key: &[Value<'_>]) -> Result<Option<Vec<OwnedValue>>> {
        let mut found = None;
        self.get_rows(table, &[primary_key], |_, row| found = Some(owned(row)))?;
        Ok(found)
    }

    /// Calls `with` for each of these primary keys that has a row, with the key's place in `keys`; returns how
    /// many there are. Rows come in key order. `with` runs under a latch: it must not call the database.
    ///
    /// # Errors
    /// As [`Transaction::get_row`].
    pub fn get_rows<'v, K: AsRef<[Value<'v>]>>(
        &self,
        table: &Table,
        keys: &[K],
        mut with: impl FnMut(usize, Vec<Value<'_>>),
    ) -> Result<usize> {
        let shape = self.table_shape(&table.0);
        let schema = &shape.def.schema;
        let mut sorted = Vec::with_capacity(keys.len());
        for (i, key) in keys.iter().enumerate() {
            sorted.push((whole_key(schema, key.as_ref())?, i));
        }
        sorted.sort_unstable();
        // Keys may repeat; the structure wants each once.
        let mut places: Vec<usize> = Vec::with_capacity(keys.len());
        let mut unique: Vec<&[u8]> = Vec::with_capacity(keys.len());
        for (at, (key, _)) in sorted.iter().enumerate() {
            if unique.last() != Some(&key.as_slice()) {
                unique.push(key);
                places.push(at);
            }
        }
        let (mut count, mut fault) = (0, None);
        self.read(&shape.primary, &unique, &mut |u, value| {
            let same = sorted[places[u]..].iter().take_while(|(key, _)| key.as_slice() == unique[u]);
            for (_, i) in same {
                match schema.decode_row(unique[u], value) {
                    Ok(row) => with(*i, row),
                    Err(error) => fault = Some(error),
                }
                count += 1;
            }
        })?;
        fault.map_or(Ok(count), |fault| Err(fault.into()))
    }

    /// Rows in a range of the primary key, ascending.
    ///
    /// # Errors
    /// As [`Transaction::get_row`].
    pub fn scan(&self, table: &Table, range: ValueRange<'_>) -> Result<Rows<'_>> {
        self.scan_towards(table, range, Direction::Forward)
    }

    /// Rows in a range of the primary key, descending.
    ///
    /// # Errors
    /// As [`Transaction::get_row`].
    pub fn scan_back(&self, table: &Table, range: ValueRange<'_>) -> Result<Rows<'_>> {
        self.scan_towards(table, range, Direction::Backward)
    }

    fn scan_towards(&self, table: &Table, range: ValueRange<'_>, direction: Direction) -> Result<Rows<'_>> {
        let shape = self.table_shape(&table.0);
        let (low, high) = primary_range(&shape.def.schema, range)?;
        let cursor = self.cursor(&shape.primary, (as_slice(&low), as_slice(&high)), direction)?;
        Ok(Rows { cursor, schema: shape.def.schema.clone() })
    }

    /// Entries of a secondary index in a range of its columns, ascending: its columns and the primary key, without
    /// reading rows.
    ///
    /// # Errors
    /// `NotFound` if the table has no such index; as [`Transaction::get_row`].
    pub fn scan_index(&self, table: &Table, index: &str, range: ValueRange<'_>) -> Result<Entries<'_>> {
        let shape = self.table_shape(&table.0);
        let n = index_number(&shape, index)?;
        let (low, high) = index_range(&shape.def.schema, n, range)?;
        let cursor = self.cursor(&shape.secondaries[n], (as_slice(&low), as_slice(&high)), Direction::Forward)?;
        Ok(Entries { cursor, schema: shape.def.schema.clone(), n })
    }
}

impl Snapshot {
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
        Ok(Rows { cursor, schema: shape.def.schema.clone() })
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
        Ok(Entries { cursor, schema: shape.def.schema.clone(), n })
    }
}

/// Rows in order.
pub struct Rows<'a> {
    cursor: Cursor<'a>,
    schema: Schema,
}

impl Rows<'_> {
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

impl Entries<'_> {
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

fn owned(row: Vec<Value<'_>>) -> Vec<OwnedValue> {
    row.into_iter().map(Value::into_owned).collect()
}

fn whole_key(schema: &Schema, values: &[Value<'_>]) -> Result<Vec<u8>> {
    let columns = schema.primary_key().len();
    if values.len() != columns {
        let counts = format!("the primary key has {columns} columns, {} values were given", values.len());
        return Err(Error::InvalidArgument(counts));
    }
    let mut key = Vec::new();
    schema.primary_prefix(values, &mut key)?;
    Ok(key)
}

fn index_number(shape: &TableShape, name: &str) -> Result<usize> {
    let found = shape.def.schema.index_number(name);
    found.ok_or_else(|| Error::NotFound { kind: "index", name: format!("{}.{name}", shape.def.name) })
}

type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn primary_range(schema: &Schema, range: ValueRange<'_>) -> Result<KeyRange> {
    key_range(range, |values, out| schema.primary_prefix(values, out))
}

fn index_range(schema: &Schema, n: usize, range: ValueRange<'_>) -> Result<KeyRange> {
    key_range(range, |values, out| schema.index_prefix(n, values, out))
}

/// A bound's values stand for all keys that begin with them: "after" them means behind the last such key.
fn key_range(
    range: ValueRange<'_>,
    prefix: impl Fn(&[Value<'_>], &mut Vec<u8>) -> base::Result<()>,
) -> Result<KeyRange> {
    let bound = |values: &[Value<'_>], behind: bool, open: fn(Vec<u8>) -> Bound<Vec<u8>>| -> Result<Bound<Vec<u8>>> {
        let mut key = Vec::new();
        prefix(values, &mut key)?;
        if behind && !key::successor(&mut key) {
            return Ok(Bound::Unbounded);
        }
        Ok(open(key))
    };
    let low = match range.0 {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(values) => bound(values, false, Bound::Included)?,
        Bound::Excluded(values) => match bound(values, true, Bound::Included)? {
            // Nothing lies behind: a bound above every key.
            Bound::Unbounded => Bound::Excluded(vec![u8::MAX; KEY_BYTES_MAX]),
            behind => behind,
        },
    };
    let high = match range.1 {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(values) => bound(values, true, Bound::Excluded)?,
        Bound::Excluded(values) => bound(values, false, Bound::Excluded)?,
    };
    Ok((low, high))
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}
