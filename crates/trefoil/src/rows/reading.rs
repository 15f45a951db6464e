//! Typed reads of a transaction.

use index::Direction;
use smallvec::SmallVec;

use super::RowRef;
use super::cursors::{Entries, Rows, owned};
use super::range::{ValueRange, as_slice, index_number, index_range, primary_range, whole_key};
use crate::error::Result;
use crate::handle::Table;
use crate::locking::Locking;
use crate::table::{OwnedValue, Value};
use crate::transaction::Transaction;

impl Transaction {
    /// The row with this primary key, as this transaction sees it: one value for each column of the key, and all
    /// columns come back, owned, in their order.
    ///
    /// # Errors
    /// As [`Transaction::get`]; `InvalidArgument` if the values do not fit the key.
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
    /// assert_eq!(tx.get_row(&people, &[2i64.into()])?, Some(vec![2i64.into(), "Grace".into()]));
    /// assert_eq!(tx.get_row(&people, &[9i64.into()])?, None);
    /// assert!(tx.get_row(&people, &["Grace".into()]).is_err()); // the key is a number
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn get_row(&self, table: &Table, primary_key: &[Value<'_>]) -> Result<Option<Vec<OwnedValue>>> {
        let mut found = None;
        self.get_rows(table, &[primary_key], |_, row| {
            found = Some(owned(row.values()?));
            Ok(())
        })?;
        Ok(found)
    }

    /// Calls `with` for each of these primary keys that has a row, with the key's place in `keys`; returns how
    /// many there are. Rows come in key order. `with` runs under a latch: it must not call the database.
    ///
    /// # Errors
    /// As [`Transaction::get_row`], and the first error of `with`, after which it is not called again.
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
    ///
    /// let tx = db.begin()?;
    /// let mut names = [const { None }; 3];
    /// let keys = [[3i64.into()], [9i64.into()], [1i64.into()]];
    /// let found = tx.get_rows(&people, &keys, |place, row| {
    ///     let (_id, name): (i64, Cow<'_, str>) = row.read_as()?;
    ///     names[place] = Some(name.into_owned());
    ///     Ok(())
    /// })?;
    /// assert_eq!((found, names), (2, [Some("Edith".into()), None, Some("Ada".into())]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn get_rows<'v, K: AsRef<[Value<'v>]>>(
        &self,
        table: &Table,
        keys: &[K],
        mut with: impl FnMut(usize, RowRef<'_>) -> Result<()>,
    ) -> Result<usize> {
        let shape = self.table_shape(&table.0);
        let schema = &shape.def.schema;
        // One key needs no list.
        let mut sorted: SmallVec<[_; 1]> = SmallVec::with_capacity(keys.len());
        for (i, key) in keys.iter().enumerate() {
            sorted.push((whole_key(schema, key.as_ref())?, i));
        }
        sorted.sort_unstable();
        // Keys may repeat; the structure wants each once.
        let mut places: SmallVec<[usize; 1]> = SmallVec::with_capacity(keys.len());
        let mut unique: SmallVec<[&[u8]; 1]> = SmallVec::with_capacity(keys.len());
        for (at, (key, _)) in sorted.iter().enumerate() {
            if unique.last() != Some(&key.as_slice()) {
                unique.push(key);
                places.push(at);
            }
        }
        let (mut count, mut outcome) = (0, Ok(()));
        self.read(&shape.primary, &unique, &mut |u, value| {
            let same = sorted[places[u]..].iter().take_while(|(key, _)| key.as_slice() == unique[u]);
            for (_, i) in same {
                if outcome.is_ok() {
                    outcome = with(*i, RowRef::new(schema, unique[u], value));
                }
                count += 1;
            }
        })?;
        outcome.map(|()| count)
    }

    /// Rows in a range of the primary key, ascending; [`ALL`](crate::ALL) is every row.
    ///
    /// # Errors
    /// As [`Transaction::get_row`].
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
    /// use std::ops::Bound;
    ///
    /// let tx = db.begin()?;
    /// let from = [2i64.into()];
    /// let mut rows = tx.scan(&people, (Bound::Included(&from), Bound::Unbounded))?;
    /// assert_eq!(rows.next()?, Some(vec![2i64.into(), "Grace".into()]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan(&self, table: &Table, range: ValueRange<'_>) -> Result<Rows<'_>> {
        self.scan_towards(table, range, Direction::Forward)
    }

    /// Rows in a range of the primary key, descending.
    ///
    /// # Errors
    /// As [`Transaction::get_row`].
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
    /// let mut newest = tx.scan_back(&people, trefoil::ALL)?.expect(1);
    /// assert_eq!(newest.next()?, Some(vec![3i64.into(), "Edith".into()]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_back(&self, table: &Table, range: ValueRange<'_>) -> Result<Rows<'_>> {
        self.scan_towards(table, range, Direction::Backward)
    }

    fn scan_towards(&self, table: &Table, range: ValueRange<'_>, direction: Direction) -> Result<Rows<'_>> {
        let shape = self.table_shape(&table.0);
        let (low, high) = primary_range(&shape.def.schema, range)?;
        let cursor = self.cursor(&shape.primary, (as_slice(&low), as_slice(&high)), direction)?;
        Ok(Rows::new(cursor, shape.def.schema.clone()))
    }

    /// Entries of a secondary index in a range of its columns, ascending: its columns and the primary key,
    /// without reading rows.
    ///
    /// # Errors
    /// `NotFound` if the table has no such index; as [`Transaction::get_row`].
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
    /// use std::ops::Bound;
    ///
    /// let tx = db.begin()?;
    /// let grace = ["Grace".into()];
    /// let mut entries = tx.scan_index(&people, "by_name", (Bound::Included(&grace), Bound::Included(&grace)))?;
    /// assert_eq!(entries.next()?, Some(vec!["Grace".into(), 2i64.into()])); // name, then the primary key
    /// assert_eq!(entries.next()?, None);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_index(&self, table: &Table, index: &str, range: ValueRange<'_>) -> Result<Entries<'_>> {
        self.scan_index_towards(table, index, range, Direction::Forward)
    }

    /// Entries of a secondary index in a range of its columns, descending: for the last one of a range, such as a
    /// customer's newest order.
    ///
    /// # Errors
    /// As [`Transaction::scan_index`].
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
    /// let mut entries = tx.scan_index_back(&people, "by_name", trefoil::ALL)?.expect(1);
    /// assert_eq!(entries.next()?, Some(vec!["Grace".into(), 2i64.into()])); // the last name
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_index_back(&self, table: &Table, index: &str, range: ValueRange<'_>) -> Result<Entries<'_>> {
        self.scan_index_towards(table, index, range, Direction::Backward)
    }

    fn scan_index_towards(
        &self,
        table: &Table,
        index: &str,
        range: ValueRange<'_>,
        direction: Direction,
    ) -> Result<Entries<'_>> {
        if self.reads_lock() {
            return self.scan_index_locked_towards(table, index, range, Locking::SHARED, direction);
        }
        let shape = self.table_shape(&table.0);
        let n = index_number(&shape, index)?;
        let (low, high) = index_range(&shape.def.schema, n, range)?;
        let cursor = self.cursor(&shape.secondaries[n], (as_slice(&low), as_slice(&high)), direction)?;
        Ok(Entries::new(cursor, shape.def.schema.clone(), n))
    }
}
