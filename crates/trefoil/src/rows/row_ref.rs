//! A row found, as it lies in its index.

use crate::error::Result;
use crate::table::{FromColumn, FromRow, RowVisitor, Schema, Value};

/// A row that [`Transaction::get_rows`](crate::Transaction::get_rows) has found, not decoded yet.
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
/// tx.get_rows(&people, &[[2i64.into()]], |_place, row| {
///     assert_eq!(row.values()?[1], "Grace".into());
///     Ok(())
/// })?;
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RowRef<'a> {
    schema: &'a Schema,
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> RowRef<'a> {
    pub(crate) fn new(schema: &'a Schema, key: &'a [u8], value: &'a [u8]) -> Self {
        Self { schema, key, value }
    }

    /// Bytes that were read for it: of all columns, as they are stored.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # tx.insert(&people, &[1i64.into(), "Ada".into()])?;
    /// # tx.commit()?;
    /// let tx = db.begin()?;
    /// let mut rows = tx.scan(&people, trefoil::ALL)?;
    /// assert!((4..40).contains(&rows.next_row()?.expect("there are rows").bytes()));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }

    /// Its values, in the order of the columns.
    ///
    /// # Errors
    /// Corruption.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # tx.insert(&people, &[1i64.into(), "Ada".into()])?;
    /// # tx.commit()?;
    /// let tx = db.begin()?;
    /// let mut rows = tx.scan(&people, trefoil::ALL)?;
    /// let row = rows.next_row()?.expect("there are rows");
    /// assert_eq!(row.values()?, [1i64.into(), "Ada".into()]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn values(&self) -> Result<Vec<Value<'a>>> {
        Ok(self.schema.decode_row(self.key, self.value)?)
    }

    /// Gives each column to `visitor`: what [`RowRef::values`] has, without a list of them.
    ///
    /// # Errors
    /// Corruption; some columns may have been given.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # tx.insert(&people, &[1i64.into(), "Ada".into()])?;
    /// # tx.commit()?;
    /// use trefoil::{RowVisitor, Value};
    ///
    /// struct Line(String);
    ///
    /// impl RowVisitor for Line {
    ///     fn value(&mut self, _column: usize, value: &Value<'_>) {
    ///         self.0 += &format!("{value:?};");
    ///     }
    /// }
    ///
    /// let tx = db.begin()?;
    /// let mut rows = tx.scan(&people, trefoil::ALL)?;
    /// let mut line = Line(String::new());
    /// rows.next_row()?.expect("there are rows").visit(&mut line)?;
    /// assert_eq!(line.0, "I64(1);Text(\"Ada\");");
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[inline]
    pub fn visit(&self, visitor: &mut impl RowVisitor) -> Result<()> {
        Ok(self.schema.visit_row(self.key, self.value, visitor)?)
    }

    /// Gives the columns of its primary key to `visitor`, those too that it does not want if they lie in the row; of the others none.
    ///
    /// # Errors
    /// Corruption; some columns may have been given.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # tx.insert(&people, &[1i64.into(), "Ada".into()])?;
    /// # tx.commit()?;
    /// use trefoil::{RowVisitor, Value};
    ///
    /// struct Numbers(Vec<usize>);
    ///
    /// impl RowVisitor for Numbers {
    ///     fn value(&mut self, column: usize, _value: &Value<'_>) {
    ///         self.0.push(column);
    ///     }
    /// }
    ///
    /// let tx = db.begin()?;
    /// let mut rows = tx.scan(&people, trefoil::ALL)?;
    /// let mut numbers = Numbers(Vec::new());
    /// rows.next_row()?.expect("there are rows").visit_key(&mut numbers)?;
    /// assert_eq!(numbers.0, [0]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[inline]
    pub fn visit_key(&self, visitor: &mut impl RowVisitor) -> Result<()> {
        Ok(self.schema.visit_primary_key(self.key, self.value, visitor)?)
    }

    /// One of its columns, by number. Columns behind it are not decoded: for a condition that most rows do not meet.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such column, or its type is not this ([`FromColumn`] has the list); corruption.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # tx.insert(&people, &[1i64.into(), "Ada".into()])?;
    /// # tx.commit()?;
    /// let tx = db.begin()?;
    /// let mut rows = tx.scan(&people, trefoil::ALL)?;
    /// let row = rows.next_row()?.expect("there are rows");
    /// assert_eq!(row.column_as::<i64>(0)?, 1);
    /// assert!(row.column_as::<i64>(1).is_err()); // a name is no number
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[inline(always)]
    pub fn column_as<T: FromColumn<'a>>(&self, column: usize) -> Result<T> {
        Ok(self.schema.decode_column_as(column, self.key, self.value)?)
    }

    /// The row as a tuple of its columns, see [`FromRow`].
    ///
    /// # Errors
    /// `InvalidArgument` if the tuple's types are not those of the columns; corruption.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # tx.insert(&people, &[1i64.into(), "Ada".into()])?;
    /// # tx.commit()?;
    /// let tx = db.begin()?;
    /// let mut rows = tx.scan(&people, trefoil::ALL)?;
    /// let row = rows.next_row()?.expect("there are rows");
    /// let (id, name): (i64, std::borrow::Cow<'_, str>) = row.read_as()?;
    /// assert_eq!((id, &*name), (1, "Ada"));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[inline(always)]
    pub fn read_as<T: FromRow<'a>>(&self) -> Result<T> {
        Ok(self.schema.decode_row_as(self.key, self.value)?)
    }
}
