//! Locking reads of typed rows.

use std::sync::Arc;

use index::Direction;

use super::{Entries, RowRef, Rows, ValueRange, as_slice, index_number, index_range, owned, primary_range, whole_key};
use crate::cursor::LockingScan;
use crate::error::{Error, Result};
use crate::handle::Table;
use crate::locking::{LockMode, Locking};
use crate::table::{OwnedValue, Value};
use crate::transaction::{StoredRow, Transaction};

impl Transaction {
    /// The row with this primary key under its lock, as [`Transaction::get_locked`]: the newest committed one, with the
    /// own writes on top.
    ///
    /// # Errors
    /// As [`Transaction::get_row`] and [`Transaction::get_locked`].
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
    /// use trefoil::{Error, LockMode, Locking};
    ///
    /// let tx = db.begin()?;
    /// let row = tx.get_row_locked(&people, &[2i64.into()], LockMode::Exclusive)?.expect("Grace is there");
    /// assert_eq!(row[1], "Grace".into());
    /// let busy = db.begin()?.get_row_locked(&people, &[2i64.into()], Locking::SHARED.no_wait());
    /// assert!(matches!(busy, Err(Error::LockBusy { .. })));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn get_row_locked(
        &self,
        table: &Table,
        primary_key: &[Value<'_>],
        locking: impl Into<Locking>,
    ) -> Result<Option<Vec<OwnedValue>>> {
        self.get_row_locked_with(table, primary_key, locking, |row| row.values().map(owned))
    }

    /// The same, given to `with` without copying its values.
    ///
    /// # Errors
    /// As [`Transaction::get_row_locked`], and those of `with`.
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
    /// use std::borrow::Cow;
    /// use trefoil::LockMode;
    ///
    /// let tx = db.begin()?;
    /// let length = tx.get_row_locked_with(&people, &[2i64.into()], LockMode::Exclusive, |row| {
    ///     let (_id, name): (i64, Cow<'_, str>) = row.read_as()?;
    ///     Ok(name.len())
    /// })?;
    /// assert_eq!(length, Some("Grace".len()));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn get_row_locked_with<T>(
        &self,
        table: &Table,
        primary_key: &[Value<'_>],
        locking: impl Into<Locking>,
        with: impl FnOnce(RowRef<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let (shape, locking) = (self.table_shape(&table.0), locking.into());
        let key = whole_key(&shape.def.schema, primary_key)?;
        if !self.lock_for_read(&shape.primary, &key, locking)? {
            return Ok(None);
        }
        let (StoredRow { key, mut value }, turn) = self.row_to_keep(key);
        if self.read_newest(&shape.primary, &[&key], &mut |_, found| value.extend_from_slice(found))? == 0 {
            return Ok(None);
        }
        let given = with(RowRef::new(&shape.def.schema, &key, &value))?;
        if locking.mode == LockMode::Exclusive {
            self.keep_row(&shape.primary, StoredRow { key, value }, turn);
        }
        Ok(Some(given))
    }

    /// Rows in a range of the primary key, ascending, each locked as it is reached: see [`Transaction::range_locked`].
    ///
    /// # Errors
    /// As [`Transaction::get_row`]; each step as [`Transaction::get_locked`].
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
    /// use trefoil::{ALL, Locking};
    ///
    /// let (first, second) = (db.begin()?, db.begin()?);
    /// let mut all = first.scan_locked(&people, ALL, Locking::EXCLUSIVE)?;
    /// assert_eq!(all.next()?, Some(vec![1i64.into(), "Ada".into()]));
    /// let mut free = second.scan_locked(&people, ALL, Locking::EXCLUSIVE.skip_locked())?;
    /// assert_eq!(free.next()?, Some(vec![2i64.into(), "Grace".into()])); // Ada is taken
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_locked(&self, table: &Table, range: ValueRange<'_>, locking: impl Into<Locking>) -> Result<Rows<'_>> {
        self.scan_locked_towards(table, range, locking.into(), Direction::Forward)
    }

    /// Rows in a range of the primary key, descending, each locked as it is reached.
    ///
    /// # Errors
    /// As [`Transaction::scan_locked`].
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
    /// let mut newest = tx.scan_back_locked(&people, trefoil::ALL, trefoil::LockMode::Exclusive)?;
    /// assert_eq!(newest.next()?, Some(vec![3i64.into(), "Edith".into()]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_back_locked(
        &self,
        table: &Table,
        range: ValueRange<'_>,
        locking: impl Into<Locking>,
    ) -> Result<Rows<'_>> {
        self.scan_locked_towards(table, range, locking.into(), Direction::Backward)
    }

    pub(super) fn scan_locked_towards(
        &self,
        table: &Table,
        range: ValueRange<'_>,
        locking: Locking,
        direction: Direction,
    ) -> Result<Rows<'_>> {
        let shape = self.table_shape(&table.0);
        let (low, high) = primary_range(&shape.def.schema, range)?;
        let range = (as_slice(&low), as_slice(&high));
        let cursor = self.locking_cursor(LockingScan::new(self, &shape.primary, range, direction, locking))?;
        Ok(Rows::new(cursor, shape.def.schema.clone()))
    }

    /// Entries of a secondary index in a range of its columns, ascending; as each is reached, the row that it belongs to
    /// is locked. An entry that its row does not have any more when the lock is got is passed over.
    ///
    /// # Errors
    /// As [`Transaction::scan_index`]; each step as [`Transaction::get_locked`].
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
    /// let mut by_name = tx.scan_index_locked(&people, "by_name", ALL, LockMode::Exclusive)?;
    /// assert_eq!(by_name.next()?, Some(vec!["Ada".into(), 1i64.into()]));
    /// let other = db.begin()?;
    /// assert!(other.get_row_locked(&people, &[1i64.into()], Locking::SHARED.no_wait()).is_err()); // Ada's row
    /// assert!(other.get_row_locked(&people, &[3i64.into()], Locking::SHARED.no_wait()).is_ok());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_index_locked(
        &self,
        table: &Table,
        index: &str,
        range: ValueRange<'_>,
        locking: impl Into<Locking>,
    ) -> Result<Entries<'_>> {
        self.scan_index_locked_towards(table, index, range, locking.into(), Direction::Forward)
    }

    /// Entries of a secondary index in a range of its columns, descending, each row locked as it is reached.
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
    /// let mut by_name = tx.scan_index_back_locked(&people, "by_name", ALL, LockMode::Exclusive)?;
    /// assert_eq!(by_name.next()?, Some(vec!["Grace".into(), 2i64.into()]));
    /// let other = db.begin()?;
    /// assert!(other.get_row_locked(&people, &[2i64.into()], Locking::SHARED.no_wait()).is_err()); // Grace's row
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_index_back_locked(
        &self,
        table: &Table,
        index: &str,
        range: ValueRange<'_>,
        locking: impl Into<Locking>,
    ) -> Result<Entries<'_>> {
        self.scan_index_locked_towards(table, index, range, locking.into(), Direction::Backward)
    }

    /// Locks values of all columns of a secondary index until the end of the transaction, whether a row has them or not. No row
    /// is locked by it, and no write needs it but those of a unique index, which lock their values so: it keeps out who asks for
    /// the same. What must not be there twice although no unique index can say so, is locked before it is looked for, by locking
    /// reads. False if it was passed over.
    ///
    /// # Errors
    /// As [`Transaction::get_locked`]; `InvalidArgument` if there are not as many values as columns.
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
    /// use trefoil::Locking;
    ///
    /// let (first, second) = (db.begin()?, db.begin()?);
    /// first.lock_index_value(&people, "by_name", &["Barbara".into()], Locking::EXCLUSIVE)?; // who is not there yet
    /// let barbara = second.lock_index_value(&people, "by_name", &["Barbara".into()], Locking::EXCLUSIVE.no_wait());
    /// assert!(matches!(barbara, Err(trefoil::Error::LockBusy { .. })));
    /// second.lock_index_value(&people, "by_name", &["Ada".into()], Locking::EXCLUSIVE)?;
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn lock_index_value(
        &self,
        table: &Table,
        index: &str,
        values: &[Value<'_>],
        locking: impl Into<Locking>,
    ) -> Result<bool> {
        let shape = self.table_shape(&table.0);
        let n = index_number(&shape, index)?;
        let columns = shape.def.schema.index_columns(n).len();
        if values.len() != columns {
            return Err(Error::InvalidArgument(format!("index {index:?} has {columns} columns, not {}", values.len())));
        }
        let mut value = Vec::new();
        shape.def.schema.index_prefix(n, values, &mut value)?;
        self.lock_to_keep(&shape.secondaries[n], &value, locking.into())
    }

    pub(super) fn scan_index_locked_towards(
        &self,
        table: &Table,
        index: &str,
        range: ValueRange<'_>,
        locking: Locking,
        direction: Direction,
    ) -> Result<Entries<'_>> {
        let shape = self.table_shape(&table.0);
        let n = index_number(&shape, index)?;
        let (low, high) = index_range(&shape.def.schema, n, range)?;
        let range = (as_slice(&low), as_slice(&high));
        let scan = LockingScan::new(self, &shape.secondaries[n], range, direction, locking);
        let cursor = self.locking_cursor(scan.of_rows(&Arc::clone(&shape), n))?;
        Ok(Entries::new(cursor, shape.def.schema.clone(), n))
    }
}
