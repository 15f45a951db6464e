//! Where reading along a secondary index starts.

use index::{Direction, ReadAt};

use super::{CHUNK_FIRST, IndexRows};
use crate::error::Result;
use crate::handle::Table;
use crate::locking::Locking;
use crate::rows::{ValueRange, index_number, index_range};
use crate::transaction::Transaction;

impl Transaction {
    /// Rows in a range of the columns of a secondary index, in its order: entries and rows are of one moment, also under READ
    /// COMMITTED. Where the entries have all that is wanted, [`Transaction::scan_index`] reads no rows.
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
    /// use std::ops::Bound;
    ///
    /// let tx = db.begin()?;
    /// let from = ["B".into()];
    /// let mut rows = tx.scan_index_rows(&people, "by_name", (Bound::Included(&from), Bound::Unbounded))?;
    /// assert_eq!(rows.next_row()?.expect("two are behind").values()?, [3i64.into(), "Edith".into()]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_index_rows(&self, table: &Table, index: &str, range: ValueRange<'_>) -> Result<IndexRows<'_>> {
        self.scan_index_rows_towards(table, index, range, None, Direction::Forward)
    }

    /// Rows in a range of the columns of a secondary index, in its order from the end.
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
    /// let mut rows = tx.scan_index_rows_back(&people, "by_name", trefoil::ALL)?;
    /// assert_eq!(rows.next_row()?.expect("there are rows").column_as::<i64>(0)?, 2); // Grace
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_index_rows_back(&self, table: &Table, index: &str, range: ValueRange<'_>) -> Result<IndexRows<'_>> {
        self.scan_index_rows_towards(table, index, range, None, Direction::Backward)
    }

    /// Rows in a range of the columns of a secondary index, in its order, each locked as it is reached and read as it is
    /// then.
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
    /// use trefoil::{ALL, Isolation, LockMode, Locking};
    ///
    /// let tx = db.begin_with(Isolation::ReadCommitted)?;
    /// let mut rows = tx.scan_index_rows_locked(&people, "by_name", ALL, LockMode::Exclusive)?;
    /// assert_eq!(rows.next_row()?.expect("there are rows").column_as::<i64>(0)?, 1); // Ada
    /// assert!(tx.unlock_row()); // not wanted
    /// assert!(db.begin()?.get_row_locked(&people, &[1i64.into()], Locking::EXCLUSIVE.no_wait()).is_ok());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_index_rows_locked(
        &self,
        table: &Table,
        index: &str,
        range: ValueRange<'_>,
        locking: impl Into<Locking>,
    ) -> Result<IndexRows<'_>> {
        self.scan_index_rows_towards(table, index, range, Some(locking.into()), Direction::Forward)
    }

    /// Rows in a range of the columns of a secondary index, in its order from the end, each locked as it is reached.
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
    /// let mut rows = tx.scan_index_rows_back_locked(&people, "by_name", ALL, LockMode::Exclusive)?;
    /// assert_eq!(rows.next_row()?.expect("there are rows").column_as::<i64>(0)?, 2); // Grace
    /// assert!(db.begin()?.get_row_locked(&people, &[2i64.into()], Locking::SHARED.no_wait()).is_err());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_index_rows_back_locked(
        &self,
        table: &Table,
        index: &str,
        range: ValueRange<'_>,
        locking: impl Into<Locking>,
    ) -> Result<IndexRows<'_>> {
        self.scan_index_rows_towards(table, index, range, Some(locking.into()), Direction::Backward)
    }

    /// Rows in several ranges of the columns of a secondary index: those of the first in its order, then those of the second,
    /// and so on; [`IndexRows::range`] tells them apart. Rows are read together, however few there are in each range.
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
    /// use std::ops::Bound::Included;
    ///
    /// let tx = db.begin()?;
    /// let names = [["Grace".into()], ["Bob".into()], ["Ada".into()]];
    /// let ranges: Vec<_> = names.iter().map(|name| (Included(&name[..]), Included(&name[..]))).collect();
    /// let mut rows = tx.scan_index_ranges(&people, "by_name", &ranges)?;
    /// assert_eq!(rows.next_row()?.expect("Grace").column_as::<i64>(0)?, 2);
    /// assert_eq!(rows.next_row()?.expect("Ada").column_as::<i64>(0)?, 1);
    /// assert_eq!(rows.range(), 2);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_index_ranges(&self, table: &Table, index: &str, ranges: &[ValueRange<'_>]) -> Result<IndexRows<'_>> {
        self.scan_ranges_towards(table, index, ranges, None, Direction::Forward)
    }

    fn scan_index_rows_towards(
        &self,
        table: &Table,
        index: &str,
        range: ValueRange<'_>,
        locking: Option<Locking>,
        direction: Direction,
    ) -> Result<IndexRows<'_>> {
        self.scan_ranges_towards(table, index, &[range], locking, direction)
    }

    fn scan_ranges_towards(
        &self,
        table: &Table,
        index: &str,
        ranges: &[ValueRange<'_>],
        locking: Option<Locking>,
        direction: Direction,
    ) -> Result<IndexRows<'_>> {
        let shape = self.table_shape(&table.0);
        let n = index_number(&shape, index)?;
        let mut rest = Vec::with_capacity(ranges.len());
        for range in ranges {
            rest.push(index_range(&shape.def.schema, n, *range)?);
        }
        let locking = locking.or_else(|| self.reads_lock().then_some(Locking::SHARED));
        let (at, slot) = match locking {
            Some(_) => (ReadAt::Newest, None),
            None => {
                vfs::thread::point("read.shape");
                let (at, slot) = self.read_at()?;
                shape.secondaries[n].check_snapshot(at)?;
                shape.primary.check_snapshot(at)?;
                (at, slot)
            }
        };
        let mut rows = IndexRows {
            tx: self,
            cursor: None,
            at,
            _slot: slot,
            shape,
            n,
            locking,
            direction,
            rest: rest.into_iter(),
            begun: 0,
            expected: None,
            filter: None,
            chunk: if locking.is_some() { 1 } else { CHUNK_FIRST },
            more: true,
            keys: Vec::new(),
            rows: Vec::new(),
            found: Vec::new(),
            read: 0,
            at_once: usize::MAX,
            given: 0,
        };
        // What is wrong with the index is told at once.
        rows.more = rows.open()?;
        Ok(rows)
    }
}
