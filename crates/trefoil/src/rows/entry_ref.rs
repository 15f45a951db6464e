//! An entry of a secondary index that was found.

use crate::error::Result;
use crate::table::{RowVisitor, Schema, Value};

/// An entry that [`Entries::next_entry`](crate::Entries::next_entry) has found, not decoded yet.
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
/// let mut entries = tx.scan_index(&people, "by_name", trefoil::ALL)?;
/// let entry = entries.next_entry()?.expect("there are entries");
/// assert_eq!(entry.values()?, ["Ada".into(), 1i64.into()]);
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct EntryRef<'a> {
    schema: &'a Schema,
    n: usize,
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> EntryRef<'a> {
    /// Of secondary index `n`.
    pub(crate) fn new(schema: &'a Schema, n: usize, key: &'a [u8], value: &'a [u8]) -> Self {
        Self { schema, n, key, value }
    }

    /// Its values: the index's columns, then the primary key's.
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
    /// use trefoil::Judged;
    ///
    /// let tx = db.begin()?;
    /// let rows = tx.scan_index_rows(&people, "by_name", trefoil::ALL)?;
    /// let mut adas = rows.filter(|entry| Ok(if entry.values()?[0] == "Ada".into() { Judged::Take } else { Judged::Pass }));
    /// assert!(adas.next_row()?.is_some());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn values(&self) -> Result<Vec<Value<'a>>> {
        Ok(self.schema.decode_entry(self.n, self.key, self.value)?)
    }

    /// Gives each of its columns to `visitor`, wanted or not, one that is both the index's and the primary key's maybe twice:
    /// what [`EntryRef::values`] has, without a list of them.
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
    ///     fn value(&mut self, column: usize, value: &Value<'_>) {
    ///         self.0 += &format!("{column} {value:?};");
    ///     }
    /// }
    ///
    /// let tx = db.begin()?;
    /// let mut entries = tx.scan_index(&people, "by_name", trefoil::ALL)?;
    /// let mut line = Line(String::new());
    /// entries.next_entry()?.expect("there are entries").visit(&mut line)?;
    /// assert_eq!(line.0, "1 Text(\"Ada\");0 I64(1);");
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[inline]
    pub fn visit(&self, visitor: &mut impl RowVisitor) -> Result<()> {
        Ok(self.schema.visit_entry(self.n, self.key, self.value, visitor)?)
    }
}
