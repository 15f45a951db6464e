//! The tables of TPC-C with pessimistic transactions.
//!
//! A table is two trees: rows under their keys, and entries of its index without values. The index is kept here, in the
//! transaction of the row. A write locks its row and reads it under the lock; so does an insert, which finds out whether its
//! key exists.
//!
//! Plain reads see one snapshot, taken at the first of them, with the own writes on top; writes act on what is newest. The
//! snapshot is no part of the transaction, where a write of a row that has changed since would be a conflict.

use ::rocksdb::{DBPinnableSlice, DBRawIteratorWithThreadMode, ReadOptions, Transaction, WriteOptions};

use super::cells::{behind, cells_of, entry_key, entry_of, row_key, some_of, value_of};
use super::transactional::{Each, Locking, judged, walk};
use super::{Rocks, Snapshot, bounded};
use crate::api::{Result, TargetError};
use crate::tpcc::{Cell, Key, Row, Session, Table, Tables};

/// The tables of a run: there is nothing to create.
pub struct TpccTables<'a> {
    rocks: &'a Rocks<Locking>,
    /// Columns of entries, in the order of [`Table::ALL`].
    entry_columns: Vec<Vec<usize>>,
}

impl<'a> TpccTables<'a> {
    pub fn new(rocks: &'a Rocks<Locking>) -> TpccTables<'a> {
        TpccTables { rocks, entry_columns: Table::ALL.iter().map(|table| table.definition().entry_columns()).collect() }
    }
}

impl Tables for TpccTables<'_> {
    fn create(&self) -> Result<()> {
        Ok(())
    }

    fn attach(&self) -> Result<()> {
        Ok(())
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Connection { all: self, write_options: self.rocks.tuned.write_options(), begun: None }))
    }
}

/// A transaction that was begun.
struct Begun<'a> {
    /// None where nothing is written. Dropped without a commit, it is rolled back.
    transaction: Option<Transaction<'a, Locking>>,
    /// From the first plain read on.
    snapshot: Option<Snapshot<'a, Locking>>,
}

struct Connection<'a> {
    all: &'a TpccTables<'a>,
    write_options: WriteOptions,
    begun: Option<Begun<'a>>,
}

fn none_begun() -> TargetError {
    TargetError::Failed("rocksdb: no transaction that writes was begun".into())
}

fn locked<'t>(transaction: &'t Transaction<'_, Locking>, key: &[u8]) -> Result<Option<DBPinnableSlice<'t>>> {
    transaction.get_pinned_for_update(key, true).map_err(judged)
}

impl<'a> Connection<'a> {
    fn writing(&self) -> Result<&Transaction<'a, Locking>> {
        self.begun.as_ref().and_then(|begun| begun.transaction.as_ref()).ok_or_else(none_begun)
    }

    /// The transaction, and options that read its snapshot.
    fn reading(&mut self, mut options: ReadOptions) -> Result<(Option<&Transaction<'a, Locking>>, ReadOptions)> {
        let begun = self.begun.as_mut().ok_or_else(none_begun)?;
        let snapshot = begun.snapshot.get_or_insert_with(|| self.all.rocks.database.snapshot());
        options.set_snapshot(snapshot);
        Ok((begun.transaction.as_ref(), options))
    }

    /// Keys and values of the snapshot from one key up to another.
    fn walk(&mut self, from: &[u8], end: Vec<u8>, each: Each<'_>) -> Result<()> {
        let database = &self.all.rocks.database;
        match self.reading(bounded(end))? {
            (Some(transaction), options) => walk(&mut transaction.raw_iterator_opt(options), from, each),
            (None, options) => walk(&mut database.raw_iterator_opt(options), from, each),
        }
    }

    /// Takes a row that is locked out of its trees.
    fn remove(&self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        let transaction = self.writing()?;
        if let Some(entry) = self.entry(table, || cells_of(table, key, value, usize::MAX))? {
            transaction.delete(entry).map_err(judged)?;
        }
        transaction.delete(key).map_err(judged)
    }

    /// The key of a row's entry, where the table has an index.
    fn entry<'r>(&self, table: Table, row: impl FnOnce() -> Result<Vec<Cell<'r>>>) -> Result<Option<Vec<u8>>> {
        if table.definition().index.is_none() {
            return Ok(None);
        }
        let (row, columns) = (row()?, &self.all.entry_columns[table as usize]);
        Ok(Some(entry_key(table, columns, columns.iter().map(|column| &row[*column]))))
    }

    /// Where entries begin that begin with these cells.
    fn entries_with(&self, table: Table, prefix: &[Cell<'_>]) -> Vec<u8> {
        entry_key(table, &self.all.entry_columns[table as usize], prefix)
    }
}

/// The last key of what a cursor is bounded to.
fn last<D: ::rocksdb::DBAccess>(mut pairs: DBRawIteratorWithThreadMode<'_, D>, found: Each<'_>) -> Result<bool> {
    pairs.seek_to_last();
    let there = pairs.item().map(|(key, value)| found(key, value)).transpose()?.is_some();
    pairs.status().map_err(judged).map(|()| there)
}

impl Session for Connection<'_> {
    fn begin(&mut self, only_reads: bool) -> Result<()> {
        let transaction = (!only_reads).then(|| self.all.rocks.transaction(&self.write_options, false));
        self.begun = Some(Begun { transaction, snapshot: None });
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        match self.begun.take().ok_or_else(none_begun)?.transaction {
            Some(transaction) => transaction.commit().map_err(judged),
            None => Ok(()),
        }
    }

    fn rollback(&mut self) {
        self.begun = None;
    }

    fn insert(&mut self, table: Table, rows: &[Row]) -> Result<()> {
        let (transaction, definition) = (self.writing()?, table.definition());
        for row in rows {
            let number = definition.key_of(row);
            let key = row_key(table, &number[..definition.key]);
            if locked(transaction, &key)?.is_some() {
                return Err(TargetError::Failed(format!("rocksdb: {table:?} {number:?} exists")));
            }
            transaction.put(key, value_of(definition, row)).map_err(judged)?;
            if let Some(entry) = self.entry(table, || Ok(row.iter().map(Cell::borrowed).collect()))? {
                transaction.put(entry, []).map_err(judged)?;
            }
        }
        Ok(())
    }

    fn get(
        &mut self,
        table: Table,
        keys: &[Key],
        columns: &[usize],
        found: &mut dyn FnMut(usize, &[Cell<'_>]),
    ) -> Result<usize> {
        let (database, key_columns) = (&self.all.rocks.database, table.definition().key);
        let (transaction, options) = self.reading(ReadOptions::default())?;
        let mut there = 0;
        for (place, key) in keys.iter().enumerate() {
            let key = row_key(table, &key[..key_columns]);
            let value = match transaction {
                Some(transaction) => transaction.get_pinned_opt(&key, &options),
                None => database.get_pinned_opt(&key, &options),
            };
            if let Some(value) = value.map_err(judged)? {
                found(place, &some_of(table, &key, &value, columns)?);
                there += 1;
            }
        }
        Ok(there)
    }

    /// The entry stays what it is: none of its columns is changed.
    fn update(&mut self, table: Table, key: Key, change: &mut dyn FnMut(&mut [Cell<'_>])) -> Result<bool> {
        let (transaction, definition) = (self.writing()?, table.definition());
        let key = row_key(table, &key[..definition.key]);
        let Some(value) = locked(transaction, &key)? else { return Ok(false) };
        let mut row = cells_of(table, &key, &value, usize::MAX)?;
        change(&mut row);
        transaction.put(&key, value_of(definition, &row)).map_err(judged)?;
        Ok(true)
    }

    fn delete(&mut self, table: Table, key: Key) -> Result<bool> {
        let key = row_key(table, &key[..table.definition().key]);
        let Some(value) = locked(self.writing()?, &key)? else { return Ok(false) };
        self.remove(table, &key, &value).map(|()| true)
    }

    /// The first of the newest rows is locked and looked at again: somebody may have taken it meanwhile.
    fn take_first(&mut self, table: Table, prefix: &[i64]) -> Result<Option<Key>> {
        let (transaction, from) = (self.writing()?, row_key(table, prefix));
        loop {
            let mut pairs = transaction.raw_iterator_opt(bounded(behind(from.clone())));
            pairs.seek(&from);
            let Some(key) = pairs.key().map(<[u8]>::to_vec) else {
                pairs.status().map_err(judged)?;
                return Ok(None);
            };
            drop(pairs);
            if let Some(value) = locked(transaction, &key)? {
                self.remove(table, &key, &value)?;
                let definition = table.definition();
                return Ok(Some(definition.key_of(&cells_of(table, &key, &value, definition.key)?)));
            }
        }
    }

    fn scan(
        &mut self,
        table: Table,
        (low, high): (&[i64], &[i64]),
        columns: &[usize],
        each: &mut dyn FnMut(&[Cell<'_>]),
    ) -> Result<()> {
        self.walk(&row_key(table, low), behind(row_key(table, high)), &mut |key, value| {
            each(&some_of(table, key, value, columns)?);
            Ok(())
        })
    }

    fn scan_index(&mut self, table: Table, prefix: &[Cell<'_>], each: &mut dyn FnMut(&[Cell<'_>])) -> Result<()> {
        let (from, columns) = (self.entries_with(table, prefix), &self.all.entry_columns[table as usize]);
        self.walk(&from, behind(from.clone()), &mut |key, _| {
            each(&entry_of(table, columns, key)?);
            Ok(())
        })
    }

    fn last_entry(&mut self, table: Table, prefix: &[Cell<'_>], found: &mut dyn FnMut(&[Cell<'_>])) -> Result<bool> {
        let (from, columns) = (self.entries_with(table, prefix), &self.all.entry_columns[table as usize]);
        let mut options = bounded(behind(from.clone()));
        options.set_iterate_lower_bound(from);
        let database = &self.all.rocks.database;
        let found: Each<'_> = &mut |key, _| {
            found(&entry_of(table, columns, key)?);
            Ok(())
        };
        match self.reading(options)? {
            (Some(transaction), options) => last(transaction.raw_iterator_opt(options), found),
            (None, options) => last(database.raw_iterator_opt(options), found),
        }
    }
}
