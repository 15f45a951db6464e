//! Rows and entries of secondary indexes in order: a cursor, decoded by the schema.

use index::DamagedRange;

use super::entry_ref::EntryRef;
use super::row_ref::RowRef;
use crate::cursor::Cursor;
use crate::error::Result;
use crate::table::{FromRow, OwnedValue, Schema, Value};

/// Rows in the order of the primary key: from `scan` and `scan_back` of a transaction or snapshot.
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
/// let mut rows = tx.scan(&people, trefoil::ALL)?;
/// let mut names = Vec::new();
/// while let Some(row) = rows.next()? {
///     names.push(row[1].clone().into_owned()); // a row borrows from the cursor until the next step
/// }
/// assert_eq!(names, ["Ada".into(), "Grace".into(), "Edith".into()]);
/// # Ok::<(), trefoil::Error>(())
/// ```
pub struct Rows<'a> {
    cursor: Cursor<'a>,
    schema: Schema,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(cursor: Cursor<'a>, schema: Schema) -> Self {
        Self { cursor, schema }
    }

    /// What cannot be read is passed over from now on instead of being an error, and listed in [`Rows::skipped`]: a leaf, all
    /// below an inner node, a large value. Where something is missing, only rows that are known to be the newest are
    /// given out: in a database that is opened read-only those that its log holds. For salvage.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// let snapshot = db.snapshot()?;
    /// let mut all = snapshot.scan(&people, trefoil::ALL)?.skip_damaged();
    /// while let Some(row) = all.next()? {
    ///     println!("{row:?}");
    /// }
    /// assert!(all.skipped().is_empty()); // nothing is damaged here
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn skip_damaged(mut self) -> Self {
        self.cursor = self.cursor.skip_damaged();
        self
    }

    /// The ranges of keys passed over so far, in the order met. Empty without [`Rows::skip_damaged`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// let snapshot = db.snapshot()?;
    /// let mut all = snapshot.scan(&people, trefoil::ALL)?.skip_damaged();
    /// while all.next()?.is_some() {}
    /// for range in all.skipped() {
    ///     eprintln!("from {:?} on: {}", range.low, range.damage);
    /// }
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn skipped(&self) -> &[DamagedRange] {
        self.cursor.skipped()
    }

    /// Says how many rows will be read, 1 to 1024: that many are fetched at once, or locked at once as far as nobody else
    /// has them, see [`Cursor::expect`].
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
    /// let mut rows = tx.scan(&people, trefoil::ALL)?.expect(2);
    /// assert!(rows.next()?.is_some() && rows.next()?.is_some());
    /// assert!(rows.next()?.is_some()); // it is a hint, not a limit
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn expect(mut self, rows: usize) -> Self {
        self.cursor = self.cursor.expect(rows);
        self
    }

    /// The next row's values, in the order of the columns; none at the end.
    ///
    /// # Errors
    /// I/O errors and corruption.
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
    /// let mut rows = tx.scan(&people, trefoil::ALL)?;
    /// let row = rows.next()?.expect("there are rows");
    /// assert_eq!(row[0], 1i64.into());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[allow(clippy::should_implement_trait, reason = "a lending iterator: the row borrows the cursor")]
    pub fn next(&mut self) -> Result<Option<Vec<Value<'_>>>> {
        loop {
            if !self.cursor.advance()? {
                return Ok(None);
            }
            if !self.cursor.is_skipping() {
                break;
            }
            let (key, value) = self.cursor.entry();
            match self.schema.decode_row(key, value) {
                Ok(_) => break,
                Err(fault) => self.cursor.pass_entry(fault)?,
            }
        }
        let (key, value) = self.cursor.entry();
        Ok(Some(self.schema.decode_row(key, value)?))
    }

    /// The next row as a tuple of its columns; none at the end. Several times faster than [`Rows::next`]: nothing is
    /// allocated, and nothing decided column by column.
    ///
    /// # Errors
    /// `InvalidArgument` if the tuple's types are not those of the columns ([`FromColumn`](crate::FromColumn) has the
    /// list); I/O errors and corruption.
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
    /// let mut rows = tx.scan(&people, trefoil::ALL)?;
    /// let (id, name): (i64, Cow<'_, str>) = rows.next_as()?.expect("there are rows");
    /// assert_eq!((id, &*name), (1, "Ada"));
    /// assert!(rows.next_as::<(i64, i64)>().is_err()); // a name is no number
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[inline(always)]
    pub fn next_as<'r, T: FromRow<'r>>(&'r mut self) -> Result<Option<T>> {
        if !self.cursor.advance()? {
            return Ok(None);
        }
        let (key, value) = self.cursor.entry();
        Ok(Some(self.schema.decode_row_as(key, value)?))
    }

    /// The next row, not decoded yet; none at the end.
    ///
    /// # Errors
    /// I/O errors and corruption.
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
    /// let mut rows = tx.scan(&people, trefoil::ALL)?;
    /// let mut short = Vec::new();
    /// while let Some(row) = rows.next_row()? {
    ///     if row.column_as::<Cow<'_, str>>(1)?.len() < 5 {
    ///         short.push(row.column_as::<i64>(0)?);
    ///     }
    /// }
    /// assert_eq!(short, [1]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[inline(always)]
    pub fn next_row(&mut self) -> Result<Option<RowRef<'_>>> {
        if !self.cursor.advance()? {
            return Ok(None);
        }
        let (key, value) = self.cursor.entry();
        Ok(Some(RowRef::new(&self.schema, key, value)))
    }

    /// Of a locking scan under READ COMMITTED: rows that others have locked are shown as they were committed, not waited for
    /// and not locked; [`Rows::is_shown`] says so. Who wants such a row reads it again, under its lock. For changes that
    /// leave most rows of a scan as they are.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # tx.insert(&people, &[1i64.into()])?;
    /// # tx.insert(&people, &[2i64.into()])?;
    /// # tx.commit()?;
    /// use trefoil::{ALL, Isolation, LockMode};
    ///
    /// let mut first = db.begin()?;
    /// first.delete_row(&people, &[1i64.into()])?;
    /// let second = db.begin_with(Isolation::ReadCommitted)?;
    /// let mut rows = second.scan_locked(&people, ALL, LockMode::Exclusive)?.show_locked();
    /// assert_eq!(rows.next()?, Some(vec![1i64.into()])); // it was not waited for
    /// assert!(rows.is_shown());
    /// assert_eq!(rows.next()?, Some(vec![2i64.into()]));
    /// assert!(!rows.is_shown());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn show_locked(mut self) -> Self {
        self.cursor = self.cursor.show_locked();
        self
    }

    /// The row given last is another's: see [`Rows::show_locked`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// let tx = db.begin()?;
    /// let mut rows = tx.scan(&people, trefoil::ALL)?;
    /// while rows.next()?.is_some() {
    ///     assert!(!rows.is_shown()); // nothing is locked
    /// }
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.cursor.is_shown()
    }

    /// The next row's primary key values only, in the order of the key: cheaper than the row.
    ///
    /// # Errors
    /// I/O errors and corruption.
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
    /// let mut rows = tx.scan_back(&people, trefoil::ALL)?;
    /// assert_eq!(rows.next_key()?, Some(vec![3i64.into()])); // the largest number given out
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn next_key(&mut self) -> Result<Option<Vec<Value<'_>>>> {
        if !self.cursor.advance()? {
            return Ok(None);
        }
        let (key, row) = self.cursor.entry();
        Ok(Some(self.schema.decode_primary_key_of(key, row)?))
    }
}

/// Entries of a secondary index in its order: from `scan_index` and `scan_index_back` of a transaction or snapshot.
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
/// let mut entries = tx.scan_index(&people, "by_name", trefoil::ALL)?;
/// while let Some(entry) = entries.next()? {
///     let row = tx.get_row(&people, &entry[1..])?.expect("an entry has its row"); // behind `name` is the key
///     assert_eq!(row[1], entry[0]);
/// }
/// # Ok::<(), trefoil::Error>(())
/// ```
pub struct Entries<'a> {
    cursor: Cursor<'a>,
    schema: Schema,
    n: usize,
}

impl<'a> Entries<'a> {
    /// Of secondary index `n`.
    pub(crate) fn new(cursor: Cursor<'a>, schema: Schema, n: usize) -> Self {
        Self { cursor, schema, n }
    }

    /// Says how many entries will be read, 1 to 1024: that many are fetched at once, or locked at once as far as nobody else
    /// has them, see [`Cursor::expect`].
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
    /// let mut first = tx.scan_index(&people, "by_name", trefoil::ALL)?.expect(1);
    /// assert_eq!(first.next()?.map(|entry| entry[0].clone()), Some("Ada".into()));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn expect(mut self, entries: usize) -> Self {
        self.cursor = self.cursor.expect(entries);
        self
    }

    /// The next entry's values: the index's columns, then the primary key's; none at the end.
    ///
    /// # Errors
    /// I/O errors and corruption.
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
    /// let mut entries = tx.scan_index(&people, "by_name", trefoil::ALL)?;
    /// assert_eq!(entries.next()?, Some(vec!["Ada".into(), 1i64.into()]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[allow(clippy::should_implement_trait, reason = "a lending iterator: the entry borrows the cursor")]
    pub fn next(&mut self) -> Result<Option<Vec<Value<'_>>>> {
        self.next_entry()?.map(|entry| entry.values()).transpose()
    }

    /// The next entry, not decoded yet; none at the end.
    ///
    /// # Errors
    /// I/O errors and corruption.
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
    /// let mut entries = tx.scan_index(&people, "by_name", trefoil::ALL)?;
    /// assert_eq!(entries.next_entry()?.expect("there are entries").values()?, ["Ada".into(), 1i64.into()]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[inline(always)]
    pub fn next_entry(&mut self) -> Result<Option<EntryRef<'_>>> {
        if !self.cursor.advance()? {
            return Ok(None);
        }
        let (key, value) = self.cursor.entry();
        Ok(Some(EntryRef::new(&self.schema, self.n, key, value)))
    }

    /// The next entry as a tuple: the index's columns, then the primary key's; none at the end. Faster than
    /// [`Entries::next`], as [`Rows::next_as`] is.
    ///
    /// # Errors
    /// As [`Rows::next_as`].
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
    /// let mut entries = tx.scan_index(&people, "by_name", trefoil::ALL)?;
    /// let (name, id): (Cow<'_, str>, i64) = entries.next_as()?.expect("there are entries");
    /// assert_eq!((&*name, id), ("Ada", 1));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[inline(always)]
    pub fn next_as<'r, T: FromRow<'r>>(&'r mut self) -> Result<Option<T>> {
        if !self.cursor.advance()? {
            return Ok(None);
        }
        let (key, value) = self.cursor.entry();
        Ok(Some(self.schema.decode_entry_as(self.n, key, value)?))
    }
}

pub(crate) fn owned(row: Vec<Value<'_>>) -> Vec<OwnedValue> {
    row.into_iter().map(Value::into_owned).collect()
}
