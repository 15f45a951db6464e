//! New rows where there may be one already: what `INSERT IGNORE`, `REPLACE` and `INSERT … ON DUPLICATE KEY UPDATE` are made
//! of. A conflict is a row with the same primary key, or with the same value in a unique index; the primary key is looked
//! at first, then the unique indexes in the order of the schema.
//!
//! A conflict found stays one: its key is locked ([`super::unique`]), and who would take it from its row has to lock it too.

use std::sync::Arc;

use base::Corruption;
use base::bytes::printable;

use super::unique::{self, Taken};
use crate::entry::TableShape;
use crate::error::{Duplicate, Error, Result};
use crate::handle::Table;
use crate::table::Value;
use crate::transaction::Transaction;

/// What [`Transaction::insert_or_update`] did.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # use trefoil::{ColumnType, Schema};
/// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
/// # let people = db.create_table("people", schema.primary_key(&["id"]).build()?)?;
/// use trefoil::Upserted;
///
/// let mut tx = db.begin()?;
/// let ada = [1i64.into(), "Ada".into()];
/// assert_eq!(tx.insert_or_update(&people, &ada, |_| unreachable!("nobody has the number"))?, Upserted::Inserted);
/// assert_eq!(tx.insert_or_update(&people, &ada, |row| row[1] = "Ada".into())?, Upserted::Unchanged);
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upserted {
    /// The row is new.
    Inserted,
    /// The row that was there was changed.
    Updated,
    /// The row that was there was changed to what it was.
    Unchanged,
}

impl Transaction {
    /// Inserts a row unless there is one with the same primary key or the same value of a unique index; then that is told,
    /// and nothing done.
    ///
    /// # Errors
    /// As [`Transaction::insert`], but for `DuplicateKey`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"]).unique()).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// let mut tx = db.begin()?;
    /// assert!(tx.insert_if_absent(&people, &[1i64.into(), "Ada".into()])?.is_none());
    /// let taken = tx.insert_if_absent(&people, &[2i64.into(), "Ada".into()])?.expect("the name is taken");
    /// assert_eq!((taken.index.as_str(), taken.row), ("by_name", vec![1i64.into()]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn insert_if_absent(&mut self, table: &Table, row: &[Value<'_>]) -> Result<Option<Duplicate>> {
        self.statement(|tx| {
            let (shape, key) = tx.open_for(table, row)?;
            match tx.first_conflict(&shape, &key, row)? {
                Some(taken) => taken.shown(&shape).map(Some),
                None => tx.write_row(&shape, &key, row).map(|()| None),
            }
        })
    }

    /// Inserts a row and removes every row that stands in its way: with the same primary key, or the same value of a
    /// unique index. Returns how many were removed.
    ///
    /// # Errors
    /// As [`Transaction::insert`], but for `DuplicateKey`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"]).unique()).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// let mut tx = db.begin()?;
    /// tx.insert_many(&people, &[[1i64.into(), "Ada".into()], [2i64.into(), "Grace".into()]])?;
    /// assert_eq!(tx.replace(&people, &[3i64.into(), "Edith".into()])?, 0);
    /// assert_eq!(tx.replace(&people, &[1i64.into(), "Grace".into()])?, 2); // number 1, and whoever is called Grace
    /// assert_eq!(tx.get_row(&people, &[2i64.into()])?, None);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn replace(&mut self, table: &Table, row: &[Value<'_>]) -> Result<usize> {
        self.statement(|tx| {
            let (shape, key) = tx.open_for(table, row)?;
            let mut there = Vec::new();
            if tx.lock_new(&shape, &key)?.is_some() {
                there.push(key.clone());
            }
            for &n in shape.maintained.schema.unique_indexes() {
                let entry = unique::entry_of(&shape.maintained.schema, n, &key, row)?;
                let taken = tx.claim(&shape, n, &[entry], &[], &there)?;
                there.extend(taken.map(|taken| taken.row));
            }
            there.sort_unstable();
            there.dedup();
            let removed = tx.delete_keys(&shape, &there)?;
            tx.write_row(&shape, &key, row)?;
            Ok(removed)
        })
    }

    /// Inserts a row; if there is one with the same primary key or the same value of a unique index, calls `change` with
    /// that one instead and writes what it makes of it. The row is locked then, its values are the newest, and it keeps its
    /// primary key. If several rows stand in the way, the first is changed: the one with the primary key, then by the
    /// unique indexes in the order of the schema.
    ///
    /// # Errors
    /// As [`Transaction::insert`]; `DuplicateKey` if what the row is changed to is not free.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("word", ColumnType::Text);
    /// # let schema = schema.column("count", ColumnType::I64).primary_key(&["id"]);
    /// # let words = db.create_table("words", schema.index(IndexSchema::new("by_word", &["word"]).unique()).build()?)?;
    /// use trefoil::{Upserted, Value};
    ///
    /// let mut tx = db.begin()?;
    /// let mut count = |id: i64, word: &str| tx.insert_or_update(&words, &[id.into(), word.into(), 1i64.into()], |row| {
    ///     if let Value::I64(count) = &mut row[2] {
    ///         *count += 1;
    ///     }
    /// });
    /// assert_eq!(count(1, "tree")?, Upserted::Inserted);
    /// assert_eq!(count(2, "tree")?, Upserted::Updated); // row 1 counts trees
    /// assert_eq!(tx.get_row(&words, &[1i64.into()])?.map(|row| row[2].clone()), Some(2i64.into()));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn insert_or_update(
        &mut self,
        table: &Table,
        row: &[Value<'_>],
        change: impl FnOnce(&mut [Value<'_>]),
    ) -> Result<Upserted> {
        self.statement(|tx| {
            let (shape, key) = tx.open_for(table, row)?;
            let Some(taken) = tx.first_conflict(&shape, &key, row)? else {
                return tx.write_row(&shape, &key, row).map(|()| Upserted::Inserted);
            };
            let Some(old) = tx.lock_newest(&shape, &taken.row)? else { return Err(taken.without_row(&shape)) };
            let changed = tx.change_row(&shape, &taken.row, &old, change)?;
            Ok(if changed { Upserted::Updated } else { Upserted::Unchanged })
        })
    }

    fn open_for(&mut self, table: &Table, row: &[Value<'_>]) -> Result<(Arc<TableShape>, Vec<u8>)> {
        let shape = self.open_table(&table.0, true)?;
        let mut key = Vec::new();
        shape.def.schema.primary_key_of_row(row, &mut key)?;
        Ok((shape, key))
    }

    /// Locks the primary key of a row that may be new; what is stored if there is one.
    fn lock_new(&mut self, shape: &TableShape, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.wait_for_ranges(&shape.primary, key)?;
        self.lock_newest(shape, key)
    }

    /// The first row that a new one conflicts with. All keys up to that one are locked, all if there is none.
    fn first_conflict(&mut self, shape: &Arc<TableShape>, key: &[u8], row: &[Value<'_>]) -> Result<Option<Taken>> {
        if let Some(stored) = self.lock_new(shape, key)? {
            return Ok(Some(Taken::primary(key, stored)));
        }
        for &n in shape.maintained.schema.unique_indexes() {
            let entry = unique::entry_of(&shape.maintained.schema, n, key, row)?;
            if let Some(taken) = self.claim(shape, n, &[entry], &[], &[])? {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }
}

impl Taken {
    /// An entry whose row is not there, though nobody can take one without the other: damage of its index.
    fn without_row(&self, shape: &TableShape) -> Error {
        let index = self.n.map_or(&shape.primary, |n| &shape.maintained.indexes[n]);
        index.note_damage();
        let key = printable(&[self.value.as_slice(), &self.row].concat());
        let damage =
            Corruption::of_index(index.id(), key, "index entry without its row", "a row with its values", "none");
        Error::from(base::Fault::from(damage))
    }
}
