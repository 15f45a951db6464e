//! Rows changed by what they hold: `UPDATE … SET k = k + 1 WHERE id = ?`.

use std::sync::Arc;

use super::range::whole_key;
use super::unique::{self, Taken};
use crate::entry::TableShape;
use crate::error::{Error, Result};
use crate::handle::Table;
use crate::table::Value;
use crate::transaction::Transaction;

impl Transaction {
    /// Changes columns of the row with this primary key, starting from its newest committed values with the own writes on
    /// top, whatever this transaction's snapshot is: nobody's change is lost. The row is locked until the end of the
    /// transaction. False if there is none. To change the primary key itself, delete and insert.
    ///
    /// # Errors
    /// `InvalidArgument` if the values do not fit the schema or the primary key differs; as [`Transaction::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("k", ColumnType::I32);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_k", &["k"])).build()?;
    /// # let counts = db.create_table("counts", schema)?;
    /// # let mut tx = db.begin()?;
    /// # tx.insert(&counts, &[1i64.into(), 41.into()])?;
    /// # tx.commit()?;
    /// use trefoil::Value;
    ///
    /// let mut tx = db.begin()?;
    /// let there = tx.update_with(&counts, &[1i64.into()], |row| {
    ///     if let Value::I32(k) = &mut row[1] {
    ///         *k += 1; // and its entry of the index moves
    ///     }
    /// })?;
    /// assert!(there);
    /// assert_eq!(tx.get_row(&counts, &[1i64.into()])?.map(|row| row[1].clone()), Some(42.into()));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn update_with(
        &mut self,
        table: &Table,
        primary_key: &[Value<'_>],
        change: impl FnOnce(&mut [Value<'_>]),
    ) -> Result<bool> {
        self.statement(|tx| {
            let shape = tx.open_table(&table.0, true)?;
            let key = whole_key(&shape.def.schema, primary_key)?;
            let Some(old) = tx.lock_newest(&shape, &key)? else { return Ok(false) };
            tx.change_row(&shape, &key, &old, change)?;
            Ok(true)
        })
    }

    /// Changes a locked row, of which `old` is stored. False if that leaves it as it was.
    /// Writes a row in the place of the one with this primary key; its own may be another one. Returns whether the row was there.
    /// To foreign keys this is a change of the row, where a delete and an insert would be just that.
    ///
    /// # Errors
    /// As [`Transaction::update`]; `DuplicateKey` if a row has the new primary key.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let people = db.create_table("people", schema.primary_key(&["id"]).build()?)?;
    /// let mut tx = db.begin()?;
    /// tx.insert(&people, &[1i64.into(), "Ada".into()])?;
    /// assert!(tx.move_row(&people, &[1i64.into()], &[7i64.into(), "Ada".into()])?);
    /// assert_eq!(tx.get_row(&people, &[1i64.into()])?, None);
    /// assert!(!tx.move_row(&people, &[1i64.into()], &[8i64.into(), "Ada".into()])?);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn move_row(&mut self, table: &Table, primary_key: &[Value<'_>], row: &[Value<'_>]) -> Result<bool> {
        self.statement(|tx| {
            let shape = tx.open_table(&table.0, true)?;
            let key = whole_key(&shape.def.schema, primary_key)?;
            let Some(old) = tx.lock_newest(&shape, &key)? else { return Ok(false) };
            tx.write_moved(&shape, &key, &old, row)?;
            Ok(true)
        })
    }

    /// The row at `key`, which is locked, becomes this one.
    pub(super) fn write_moved(
        &mut self,
        shape: &Arc<TableShape>,
        key: &[u8],
        old: &[u8],
        row: &[Value<'_>],
    ) -> Result<()> {
        let schema = &shape.maintained.schema;
        let mut new_key = Vec::new();
        schema.primary_key_of_row(row, &mut new_key)?;
        if new_key == key {
            return self.write_over(shape, key, old, row).map(drop);
        }
        self.wait_for_ranges(&shape.primary, &new_key)?;
        if let Some(stored) = self.lock_newest(shape, &new_key)? {
            return Err(Taken::primary(&new_key, stored).error(shape));
        }
        let [mut bytes, mut entry] = [const { Vec::new() }; 2];
        for &n in schema.unique_indexes() {
            schema.secondary_key(n, key, old, &mut entry)?;
            let new = unique::entry_of(schema, n, &new_key, row)?;
            let leaving = [key.to_vec()];
            if let Some(taken) = self.claim(shape, n, &[new], std::slice::from_ref(&entry), &leaving)? {
                return Err(taken.error(shape));
            }
        }
        self.lock_referenced(shape, Some((key, old)), Some(row))?;
        schema.row_value(row, &mut bytes)?;
        self.write(&shape.primary, key, None)?;
        self.write(&shape.primary, &new_key, Some(&bytes))?;
        for (n, secondary) in shape.maintained.indexes.iter().enumerate() {
            schema.secondary_key(n, key, old, &mut entry)?;
            self.write_entry(secondary, &entry, None)?;
            schema.index_key_of_row(n, &new_key, row, &mut entry)?;
            schema.entry_value_of_row(n, row, &mut bytes)?;
            self.write_new_entry(secondary, &entry, &bytes)?;
        }
        self.act_on_children(shape, (key, old), Some(row))?;
        // With another primary key it is a new row of each foreign key, as it is in InnoDB.
        self.check_parents(shape, None, row)
    }

    pub(super) fn change_row(
        &mut self,
        shape: &Arc<TableShape>,
        key: &[u8],
        old: &[u8],
        change: impl FnOnce(&mut [Value<'_>]),
    ) -> Result<bool> {
        let schema = &shape.def.schema;
        let mut row = schema.decode_row(key, old)?;
        change(&mut row);
        let mut new_key = Vec::new();
        schema.primary_key_of_row(&row, &mut new_key)?;
        if new_key != key {
            return Err(Error::InvalidArgument("an update leaves the primary key as it is".into()));
        }
        self.write_over(shape, key, old, &row)
    }
}
