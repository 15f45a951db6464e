//! Reading what was committed at one moment, outside any transaction.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use base::CommitTs;
use index::{Direction, ReadAt};

use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::entry::IndexEntry;
use crate::error::Result;
use crate::handle::{Index, Table};
use crate::rows::{Entries, Rows, ValueRange, as_slice, index_number, index_range, owned, primary_range, whole_key};
use crate::table::{OwnedValue, Value};
use crate::transaction::bounds;

/// What was committed at one moment, for reading: from [`Database::snapshot`](crate::Database::snapshot). It takes no
/// locks; while it lives, nothing it sees is collected, so do not keep it for longer than needed.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// # let mut tx = db.begin()?;
/// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
/// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
/// # }
/// # tx.commit()?;
/// let snapshot = db.snapshot()?;
/// # let mut tx = db.begin()?;
/// tx.put(&fruit, b"apple", b"13")?;
/// tx.commit()?;
/// assert_eq!(snapshot.get(&fruit, b"apple")?.as_deref(), Some(&b"12"[..]));
/// assert_eq!(db.snapshot()?.get(&fruit, b"apple")?.as_deref(), Some(&b"13"[..]));
/// # Ok::<(), trefoil::Error>(())
/// ```
pub struct Snapshot {
    engine: Arc<Engine>,
    slot: txn::SnapshotSlot,
    /// Taken ahead of `visible`: a read waits for that.
    ahead: bool,
}

impl Snapshot {
    pub(crate) fn take(engine: &Arc<Engine>) -> Result<Self> {
        engine.check_open()?;
        Ok(Self { engine: engine.clone(), slot: engine.snapshots.take(), ahead: false })
    }

    pub(crate) fn take_after_reserved(engine: &Arc<Engine>) -> Result<Self> {
        engine.check_open()?;
        Ok(Self { engine: engine.clone(), slot: engine.take_ahead(), ahead: true })
    }

    /// The moment: every commit with a timestamp at or below is seen.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let mut tx = db.begin()?;
    /// tx.put(&fruit, b"apple", b"12")?;
    /// let committed = tx.commit()?;
    /// assert!(db.snapshot()?.ts() >= committed); // a commit that has returned is seen
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn ts(&self) -> CommitTs {
        self.slot.ts()
    }

    /// The value of `key`, copied; none if it is not there.
    ///
    /// # Errors
    /// I/O errors and corruption; `Dropped`, `Closed`, `DefinitionChanged`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// let snapshot = db.snapshot()?;
    /// assert_eq!(snapshot.get(&fruit, b"pear")?, Some(b"7".to_vec()));
    /// assert_eq!(snapshot.get(&fruit, b"peach")?, None);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn get(&self, index: &Index, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let at = self.check(index.entry())?;
        let mut value = None;
        index.entry().index.get_many(at, &[key], &mut |_, _, v| value = Some(v.to_vec()))?;
        Ok(value)
    }

    /// Entries of `range`, ascending. Bounds are byte keys, included or not; `..` is everything.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// let snapshot = db.snapshot()?;
    /// let mut from_b = snapshot.range(&fruit, b"b".as_slice()..)?;
    /// assert_eq!(from_b.next()?, Some((&b"pear"[..], &b"7"[..])));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn range<'a>(&'a self, index: &Index, range: impl RangeBounds<&'a [u8]>) -> Result<Cursor<'a>> {
        self.cursor(index.entry(), bounds(&range), Direction::Forward)
    }

    /// Entries of `range`, descending.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// let snapshot = db.snapshot()?;
    /// let largest = snapshot.range_back(&fruit, ..)?.expect(1).next()?.map(|(key, _)| key.to_vec());
    /// assert_eq!(largest, Some(b"plum".to_vec()));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn range_back<'a>(&'a self, index: &Index, range: impl RangeBounds<&'a [u8]>) -> Result<Cursor<'a>> {
        self.cursor(index.entry(), bounds(&range), Direction::Backward)
    }

    /// The row with this primary key: one value for each of its columns. It comes back owned, in the order of the
    /// columns.
    ///
    /// # Errors
    /// As [`Transaction::get_row`](crate::Transaction::get_row).
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
    /// let snapshot = db.snapshot()?;
    /// assert_eq!(snapshot.get_row(&people, &[1i64.into()])?, Some(vec![1i64.into(), "Ada".into()]));
    /// assert_eq!(snapshot.get_row(&people, &[9i64.into()])?, None);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
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
    /// As [`Transaction::get_row`](crate::Transaction::get_row).
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
    /// let snapshot = db.snapshot()?;
    /// let mut rows = snapshot.scan(&people, trefoil::ALL)?;
    /// assert_eq!(rows.next()?, Some(vec![1i64.into(), "Ada".into()]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan(&self, table: &Table, range: ValueRange<'_>) -> Result<Rows<'_>> {
        let shape = table.0.shape();
        let (low, high) = primary_range(&shape.def.schema, range)?;
        let cursor = self.cursor(&shape.primary, (as_slice(&low), as_slice(&high)), Direction::Forward)?;
        Ok(Rows::new(cursor, shape.def.schema.clone()))
    }

    /// Entries of a secondary index in a range of its columns, ascending: its columns and the primary key,
    /// without reading rows.
    ///
    /// # Errors
    /// As [`Transaction::scan_index`](crate::Transaction::scan_index).
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
    /// let snapshot = db.snapshot()?;
    /// let mut entries = snapshot.scan_index(&people, "by_name", trefoil::ALL)?;
    /// assert_eq!(entries.next()?, Some(vec!["Ada".into(), 1i64.into()]));
    /// assert_eq!(entries.next()?, Some(vec!["Edith".into(), 3i64.into()]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn scan_index(&self, table: &Table, index: &str, range: ValueRange<'_>) -> Result<Entries<'_>> {
        self.scan_index_towards(table, index, range, Direction::Forward)
    }

    /// Entries of a secondary index in a range of its columns, descending.
    ///
    /// # Errors
    /// As [`Snapshot::scan_index`].
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
    /// let snapshot = db.snapshot()?;
    /// let mut entries = snapshot.scan_index_back(&people, "by_name", trefoil::ALL)?.expect(1);
    /// assert_eq!(entries.next()?, Some(vec!["Grace".into(), 2i64.into()]));
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
        let shape = table.0.shape();
        let n = index_number(&shape, index)?;
        let (low, high) = index_range(&shape.def.schema, n, range)?;
        let cursor = self.cursor(&shape.secondaries[n], (as_slice(&low), as_slice(&high)), direction)?;
        Ok(Entries::new(cursor, shape.def.schema.clone(), n))
    }

    fn check(&self, entry: &IndexEntry) -> Result<ReadAt> {
        self.engine.check_open()?;
        if self.ahead {
            self.engine.wait_visible(self.slot.ts())?;
        }
        let at = ReadAt::Snapshot(self.slot.ts());
        entry.check_snapshot(at)?;
        Ok(at)
    }

    fn cursor(
        &self,
        entry: &Arc<IndexEntry>,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Result<Cursor<'_>> {
        let at = self.check(entry)?;
        Ok(Cursor::new(entry, at, range, None, None, direction))
    }
}
