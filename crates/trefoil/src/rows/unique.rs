//! Unique secondary indexes (rule A24).
//!
//! What a row has to itself there is the *value* of its entry: the entry without the primary key behind it. Of a value with
//! a NULL in it nobody has anything to himself. Steps of a statement, for each unique index in the order of the schema,
//! behind the check of the primary key:
//! 1. lock the values of all entries that come **or go**, exclusively and in key order, until the end of the transaction;
//! 2. look for an entry with a value that comes: in the newest applied, attached runs included, with the own writes on top;
//! 3. when all indexes agree, write.
//!
//! Why whoever removes an entry locks its value too: its delete is private until it commits. Somebody else would find the
//! entry still there and call it a duplicate, or replace a row that is going away; so he waits, and looks when it is
//! certain. Why the lock comes before the look: what was found free could be taken until it is locked. A transaction
//! gives its locks back when its commit is applied, so the next one to lock a value finds what came of it.
//!
//! The lock is one of the lock table, in the index, under the value as its key: with its place in the deadlock graph, its
//! time limit and its line in the list of waits. No row lock has that name: entries of secondary indexes are locked by
//! their row, and no value is the whole key of an entry (`Schema::unique_value`).
//!
//! While an index is built beside its writers they lock its values from the start. Not before all rows are in it they look,
//! and then a value that is taken fails the build, not the writer (rule A16).
//!
//! A statement that finds a value taken ends at that index. The value is locked in an index that is built to take its place, too: who
//! was told of a row has it where it is until his end, whichever of both others come by.
//!
//! While a unique index is set aside nobody can tell which values are taken: what would add one is refused
//! (`Quarantined`), everything else goes on. So it can be made anew.

use std::ops::Bound;
use std::sync::Arc;

use index::Direction;

use super::owned;
use crate::entry::{IndexEntry, Stage, TableShape};
use crate::error::{Duplicate, Error, Result};
use crate::table::{Schema, Value, key};
use crate::transaction::Transaction;

/// A row has the key that another should get.
pub(crate) struct Taken {
    /// The unique index; none: the primary key.
    pub n: Option<usize>,
    pub value: Vec<u8>,
    /// Its primary key.
    pub row: Vec<u8>,
    /// What is stored under the key: the value of the entry of the index, or the row.
    pub stored: Vec<u8>,
}

/// An entry of an index.
pub(super) struct Entry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl Taken {
    /// The primary key of a row, of which this is stored.
    pub fn primary(key: &[u8], stored: Vec<u8>) -> Self {
        Self { n: None, value: Vec::new(), row: key.to_vec(), stored }
    }

    /// For people.
    pub fn shown(&self, shape: &TableShape) -> Result<Duplicate> {
        duplicate(&shape.def.name, &shape.maintained.schema, self.n, (&self.value, &self.row, &self.stored))
    }

    pub fn error(&self, shape: &TableShape) -> Error {
        self.shown(shape).map_or_else(|error| error, |duplicate| Error::DuplicateKey(Box::new(duplicate)))
    }
}

/// That the row with primary key `row` has a value of unique index `n`, or, with none, its primary key; `stored` is what
/// stands there.
pub(crate) fn duplicate(
    table: &str,
    schema: &Schema,
    n: Option<usize>,
    (value, row, stored): (&[u8], &[u8], &[u8]),
) -> Result<Duplicate> {
    let (index, key, row) = match n {
        None => {
            let row = owned(schema.decode_primary_key_of(row, stored)?);
            ("primary".to_owned(), row.clone(), row)
        }
        Some(n) => {
            let entry = [value, row].concat();
            let mut key = owned(schema.decode_entry(n, &entry, stored)?);
            let row = key.split_off(schema.index_columns(n).len());
            (schema.indexes()[n].name().to_owned(), key, row)
        }
    };
    Ok(Duplicate { table: table.to_owned(), index, key, row })
}

/// The entry of index `n` for a row.
pub(super) fn entry_of(schema: &Schema, n: usize, primary: &[u8], row: &[Value<'_>]) -> Result<Entry> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    schema.index_key_of_row(n, primary, row, &mut key)?;
    schema.entry_value_of_row(n, row, &mut value)?;
    Ok(Entry { key, value })
}

impl Transaction {
    /// Steps 1 and 2 for unique index `n`: entries that come, and that go. The first of those that come whose value is
    /// taken, if there is one, by a row other than those with the primary keys `leaving`, which the statement removes.
    pub(super) fn claim(
        &mut self,
        shape: &Arc<TableShape>,
        n: usize,
        come: &[Entry],
        go: &[Vec<u8>],
        leaving: &[Vec<u8>],
    ) -> Result<Option<Taken>> {
        let (schema, secondary) = (&shape.maintained.schema, &shape.maintained.indexes[n]);
        // (value, entry, what is stored with it if it comes), in key order.
        let mut values = Vec::with_capacity(come.len() + go.len());
        let come = come.iter().map(|entry| (&entry.key, Some(entry.value.as_slice())));
        for (entry, stored) in come.chain(go.iter().map(|entry| (entry, None))) {
            if let Some(value) = schema.unique_value(n, entry)? {
                values.push((value, entry.as_slice(), stored));
            }
        }
        values.sort_unstable();
        for &(value, entry, stored) in &values {
            self.lock_value(secondary, value, entry, stored.is_some())?;
        }
        // Not before the locks are had: whoever came in when it was being built is waited for by its build.
        if matches!(secondary.stage(), Stage::Building | Stage::Abandoned) || is_gone(secondary) {
            return Ok(None);
        }
        let mut last: Option<(&[u8], &[u8], &[u8])> = None;
        for (value, entry, stored) in values.iter().filter_map(|&(value, entry, stored)| Some((value, entry, stored?)))
        {
            let holder = match last.filter(|(before, ..)| *before == value) {
                // Two rows of one statement.
                Some((_, before, stored)) => Some((schema.primary_key_of(n, before)?.to_vec(), stored.to_vec())),
                None => self.holder(shape, n, value, leaving)?,
            };
            if let Some((row, stored)) = holder {
                let taken = Taken { n: Some(n), value: value.to_vec(), row, stored };
                // The writer goes on, unless the index is public by now.
                if secondary.fail_build(taken.error(shape)) {
                    return Ok(None);
                }
                self.lock_in_successor(shape, n, value, entry)?;
                return Ok(Some(taken));
            }
            last = Some((value, entry, stored));
        }
        Ok(None)
    }

    /// The statement ends, and comes to no other index: who is told of a row has its value also in what may take the place of this
    /// index before the transaction ends, so that the row stays.
    fn lock_in_successor(&mut self, shape: &TableShape, n: usize, value: &[u8], entry: &[u8]) -> Result<()> {
        let indexes = shape.maintained.schema.indexes();
        for (m, other) in shape.maintained.indexes.iter().enumerate() {
            if m != n && indexes[m].is_unique() && indexes[m].parts().eq(indexes[n].parts()) {
                self.lock_value(other, value, entry, true)?;
            }
        }
        Ok(())
    }

    /// Step 1 for one value. An index that is gone has a successor, or nobody asks for it.
    fn lock_value(&mut self, secondary: &IndexEntry, value: &[u8], entry: &[u8], comes: bool) -> Result<()> {
        let locked = self.wait_for_ranges(secondary, entry).and_then(|()| self.lock_for_write(secondary, value));
        match locked {
            Err(Error::Quarantined { .. }) if !comes => Ok(()),
            Err(Error::Dropped { .. }) if is_gone(secondary) => Ok(()),
            other => other,
        }
    }

    /// Step 2 for one value, which is locked: the primary key of the row that has it, and what is stored in the entry.
    fn holder(
        &self,
        shape: &TableShape,
        n: usize,
        value: &[u8],
        leaving: &[Vec<u8>],
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut behind = value.to_vec();
        let high = if key::successor(&mut behind) { Bound::Excluded(behind.as_slice()) } else { Bound::Unbounded };
        let (secondary, range) = (&shape.maintained.indexes[n], (Bound::Included(value), high));
        let mut cursor = match self.cursor_newest(secondary, range, Direction::Forward) {
            Err(Error::Dropped { .. }) if is_gone(secondary) => return Ok(None),
            cursor => cursor?.expect(1),
        };
        while cursor.advance()? {
            let (entry, stored) = cursor.entry();
            let row = shape.maintained.schema.primary_key_of(n, entry)?;
            if !leaving.iter().any(|key| key == row) {
                return Ok(Some((row.to_vec(), stored.to_vec())));
            }
        }
        Ok(None)
    }
}

/// Dropped, or its build failed.
fn is_gone(secondary: &IndexEntry) -> bool {
    secondary.dropped_at().is_some()
}
