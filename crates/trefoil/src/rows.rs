//! Typed rows in transactions: what a statement does to a table's indexes.
//!
//! A row is an entry of the primary index and one of each secondary index ([`crate::table`]). A write locks the row
//! (its primary key in the primary index), looks at the newest committed version and then writes all entries that
//! change. Secondary entries need no locks: they change only under their row's. The values of unique indexes do
//! ([`unique`]).
//!
//! A statement over many rows locks and checks all of them before it writes the first; what fails later (a value
//! that does not fit, a limit, a full disk) takes back what the statement has written. So an error leaves nothing
//! half done.

use std::sync::Arc;

use index::{Direction, KeyRange};

use crate::entry::{IndexEntry, Stage, TableShape};
use crate::error::Result;
use crate::handle::Table;
use crate::table::Value;
use crate::transaction::Transaction;
use unique::Taken;

mod cascade;
mod changing;
mod conflicts;
mod cursors;
mod entry_ref;
mod foreign;
mod index_rows;
mod locking;
mod range;
mod reading;
mod row_ref;
mod unique;
mod unread;

pub(crate) use cascade::Step;
pub use conflicts::Upserted;
pub use cursors::{Entries, Rows};
pub use entry_ref::EntryRef;
pub use index_rows::{IndexRows, Judged};
pub use range::{ALL, ValueRange};
pub use row_ref::RowRef;

pub(crate) use cursors::owned;
pub(crate) use foreign::name_of;
pub(crate) use range::{as_slice, index_number, index_range, primary_range, whole_key};
pub(crate) use unique::duplicate;

impl Transaction {
    /// Inserts a row: one value for each column, in their order.
    ///
    /// # Errors
    /// `DuplicateKey`; `InvalidArgument` if the values do not fit the schema; as [`Transaction::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// use trefoil::Error;
    ///
    /// let mut tx = db.begin()?;
    /// tx.insert(&people, &[1i64.into(), "Ada".into()])?;
    /// let again = tx.insert(&people, &[1i64.into(), "Grace".into()]);
    /// assert!(matches!(again, Err(Error::DuplicateKey(_))));
    /// tx.commit()?; // with Ada
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn insert(&mut self, table: &Table, row: &[Value<'_>]) -> Result<()> {
        self.insert_many(table, &[row])
    }

    /// Inserts rows: all or, on an error, none. Faster than one by one: each leaf is visited once.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// let mut tx = db.begin()?;
    /// let rows = [[2i64.into(), "Grace".into()], [1i64.into(), "Ada".into()]]; // in any order
    /// tx.insert_many(&people, &rows)?;
    /// assert!(tx.insert_many(&people, &[[3i64.into(), "Edith".into()], [1i64.into(), "Alan".into()]]).is_err());
    /// assert_eq!(tx.get_row(&people, &[3i64.into()])?, None); // all or none
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn insert_many<'v, R: AsRef<[Value<'v>]>>(&mut self, table: &Table, rows: &[R]) -> Result<()> {
        self.statement(|tx| tx.insert_rows(table, rows))
    }

    fn insert_rows<'v, R: AsRef<[Value<'v>]>>(&mut self, table: &Table, rows: &[R]) -> Result<()> {
        let shape = self.open_table(&table.0, true)?;
        let schema = &shape.maintained.schema;
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
        let there = |key: &[u8], stored: Vec<u8>| Err(Taken::primary(key, stored).error(&shape));
        if let Some(first) = sorted.windows(2).position(|pair| pair[0] == pair[1]) {
            let mut stored = Vec::new();
            schema.row_value(rows[order[first]].as_ref(), &mut stored)?;
            return there(sorted[first], stored);
        }
        for key in &sorted {
            self.wait_for_ranges(&shape.primary, key)?;
            self.lock_for_write(&shape.primary, key)?;
        }
        let mut found = None;
        self.read_newest(&shape.primary, &sorted, &mut |i, stored| {
            found.get_or_insert_with(|| (i, stored.to_vec()));
        })?;
        if let Some((i, stored)) = found {
            return there(sorted[i], stored);
        }
        for &n in schema.unique_indexes() {
            let entries = rows.iter().zip(&keys).map(|(row, key)| unique::entry_of(schema, n, key, row.as_ref()));
            let entries = entries.collect::<Result<Vec<_>>>()?;
            if let Some(taken) = self.claim(&shape, n, &entries, &[], &[])? {
                return Err(taken.error(&shape));
            }
        }
        rows.iter().zip(&keys).try_for_each(|(row, key)| self.write_row(&shape, key, row.as_ref()))
    }

    /// Writes a new row: it is locked, and what it must have to itself nobody else has.
    fn write_row(&mut self, shape: &Arc<TableShape>, key: &[u8], row: &[Value<'_>]) -> Result<()> {
        let schema = &shape.maintained.schema;
        let (mut bytes, mut beside) = (Vec::new(), Vec::new());
        self.lock_referenced(shape, None, Some(row))?;
        schema.row_value(row, &mut bytes)?;
        self.write(&shape.primary, key, Some(&bytes))?;
        for (n, secondary) in shape.maintained.indexes.iter().enumerate() {
            schema.index_key_of_row(n, key, row, &mut bytes)?;
            schema.entry_value_of_row(n, row, &mut beside)?;
            self.write_new_entry(secondary, &bytes, &beside)?;
        }
        self.check_parents(shape, None, row)
    }

    /// Replaces the row with the same primary key: one value for each column. False if there is none. To change
    /// the primary key itself, delete and insert.
    ///
    /// # Errors
    /// `InvalidArgument` if the values do not fit the schema; as [`Transaction::put`].
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
    /// let mut tx = db.begin()?;
    /// assert!(tx.update(&people, &[2i64.into(), "Grace Hopper".into()])?);
    /// assert!(!tx.update(&people, &[9i64.into(), "Nobody".into()])?);
    /// assert_eq!(tx.get_row(&people, &[2i64.into()])?.map(|row| row[1].clone()), Some("Grace Hopper".into()));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn update(&mut self, table: &Table, row: &[Value<'_>]) -> Result<bool> {
        self.statement(|tx| tx.update_row(table, row))
    }

    fn update_row(&mut self, table: &Table, row: &[Value<'_>]) -> Result<bool> {
        let shape = self.open_table(&table.0, true)?;
        let mut key = Vec::new();
        shape.def.schema.primary_key_of_row(row, &mut key)?;
        let Some(old) = self.lock_newest(&shape, &key)? else { return Ok(false) };
        self.write_over(&shape, &key, &old, row)?;
        Ok(true)
    }

    /// Locks a row and returns what is stored for it now.
    fn lock_newest(&mut self, shape: &TableShape, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(old) = self.take_last_row(&shape.primary, key) {
            return Ok(Some(old));
        }
        self.lock_for_write(&shape.primary, key)?;
        let mut old = None;
        self.read_newest(&shape.primary, &[key], &mut |_, value| old = Some(value.to_vec()))?;
        Ok(old)
    }

    /// Writes a locked row, and the entries that differ from those of what was stored for it. False if it is the same row.
    fn write_over(&mut self, shape: &Arc<TableShape>, key: &[u8], old: &[u8], row: &[Value<'_>]) -> Result<bool> {
        let schema = &shape.maintained.schema;
        let [mut old_entry, mut new_entry, mut old_beside, mut new_beside] = [const { Vec::new() }; 4];
        let mut new = Vec::with_capacity(old.len());
        schema.row_value(row, &mut new)?;
        if schema.says_the_same(key, old, &new)? {
            return Ok(false);
        }
        // Most updates leave most indexes as they are.
        let before = if shape.maintained.indexes.is_empty() { Vec::new() } else { schema.decode_row(key, old)? };
        let differs = |n: usize| schema.entry_differs(n, &before, row);
        for &n in schema.unique_indexes().iter().filter(|&&n| differs(n)) {
            schema.secondary_key(n, key, old, &mut old_entry)?;
            let new_entry = unique::entry_of(schema, n, key, row)?;
            if old_entry != new_entry.key
                && let Some(taken) = self.claim(shape, n, &[new_entry], std::slice::from_ref(&old_entry), &[])?
            {
                return Err(taken.error(shape));
            }
        }
        self.lock_referenced(shape, Some((key, old)), Some(row))?;
        self.write(&shape.primary, key, Some(&new))?;
        for (n, secondary) in shape.maintained.indexes.iter().enumerate().filter(|(n, _)| differs(*n)) {
            schema.secondary_key(n, key, old, &mut old_entry)?;
            schema.index_key_of_row(n, key, row, &mut new_entry)?;
            schema.secondary_value(n, key, old, &mut old_beside)?;
            schema.entry_value_of_row(n, row, &mut new_beside)?;
            if old_entry != new_entry {
                self.write_entry(secondary, &old_entry, None)?;
            }
            if old_entry != new_entry {
                self.write_new_entry(secondary, &new_entry, &new_beside)?;
            } else if old_beside != new_beside {
                // The key is the same, and says less than the columns do: this one stands over the old one.
                self.write_entry(secondary, &new_entry, Some(&new_beside))?;
            }
        }
        self.act_on_children(shape, (key, old), Some(row))?;
        self.check_parents(shape, Some((key, old)), row)?;
        Ok(true)
    }

    /// Deletes the row with this primary key, and its entries of the secondary indexes. False if there is none.
    ///
    /// # Errors
    /// As [`Transaction::put`].
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
    /// let mut tx = db.begin()?;
    /// assert!(tx.delete_row(&people, &[1i64.into()])?);
    /// assert!(!tx.delete_row(&people, &[1i64.into()])?);
    /// let mut entries = tx.scan_index(&people, "by_name", trefoil::ALL)?;
    /// assert_eq!(entries.next()?.map(|entry| entry[0].clone()), Some("Edith".into()));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
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
    /// let mut deleted = Vec::new();
    /// while deleted.last() != Some(&0) {
    ///     let mut tx = db.begin()?; // a large delete in small transactions
    ///     deleted.push(tx.delete_first(&people, trefoil::ALL, 2)?);
    ///     tx.commit()?;
    /// }
    /// assert_eq!(deleted, [2, 1, 0]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn delete_first(&mut self, table: &Table, range: ValueRange<'_>, limit: usize) -> Result<usize> {
        self.statement(|tx| tx.delete_rows(table, range, limit))
    }

    fn delete_rows(&mut self, table: &Table, range: ValueRange<'_>, limit: usize) -> Result<usize> {
        let shape = self.open_table(&table.0, true)?;
        let (low, high) = primary_range(&shape.def.schema, range)?;
        let mut rest = KeyRange { low, high };
        let (mut deleted, mut more) = (0, true);
        while deleted < limit && more {
            let keys;
            (keys, more) = self.candidates(&shape.primary, &mut rest, Direction::Forward, limit - deleted)?;
            // Keys that others are about to write may make them more than asked for.
            let mut keys = keys.as_slice();
            while !keys.is_empty() && deleted < limit {
                let (now, later) = keys.split_at(keys.len().min(limit - deleted));
                deleted += self.delete_keys(&shape, now)?;
                keys = later;
            }
        }
        Ok(deleted)
    }

    /// Writes an entry of a secondary index, unless the index was set aside or is gone.
    fn write_entry(&mut self, secondary: &Arc<IndexEntry>, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        if secondary.is_written() { self.write(secondary, key, value) } else { Ok(()) }
    }

    /// An entry that its row, which is locked, did not have: nothing of its key is alive, since an entry ends with its row's key. Said so where the key
    /// determines the entry [A15], and not while the index is built: rows come to it behind what is written meanwhile.
    fn write_new_entry(&mut self, secondary: &Arc<IndexEntry>, key: &[u8], value: &[u8]) -> Result<()> {
        let is_absent = value.is_empty() && secondary.stage() == Stage::Public;
        if secondary.is_written() { self.write_known(secondary, key, Some(value), is_absent) } else { Ok(()) }
    }

    /// Locks ascending keys, then deletes those rows that are still there.
    fn delete_keys(&mut self, shape: &Arc<TableShape>, keys: &[Vec<u8>]) -> Result<usize> {
        let sorted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut rows: Vec<(usize, Vec<u8>)> = Vec::with_capacity(keys.len());
        if let [key] = sorted[..] {
            rows.extend(self.lock_newest(shape, key)?.map(|value| (0, value)));
        } else {
            sorted.iter().try_for_each(|key| self.lock_for_write(&shape.primary, key))?;
            self.read_newest(&shape.primary, &sorted, &mut |i, value| rows.push((i, value.to_vec())))?;
        }
        let mut entry = Vec::new();
        let schema = &shape.maintained.schema;
        for &n in schema.unique_indexes() {
            let mut gone = Vec::with_capacity(rows.len());
            for (i, row) in &rows {
                schema.secondary_key(n, sorted[*i], row, &mut entry)?;
                gone.push(entry.clone());
            }
            self.claim(shape, n, &[], &gone, &[])?;
        }
        for (i, row) in &rows {
            self.lock_referenced(shape, Some((sorted[*i], row)), None)?;
            self.write(&shape.primary, sorted[*i], None)?;
            for (n, secondary) in shape.maintained.indexes.iter().enumerate() {
                schema.secondary_key(n, sorted[*i], row, &mut entry)?;
                self.write_entry(secondary, &entry, None)?;
            }
        }
        for (i, row) in &rows {
            self.act_on_children(shape, (sorted[*i], row), None)?;
        }
        Ok(rows.len())
    }
}
