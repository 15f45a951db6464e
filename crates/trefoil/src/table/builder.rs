//! Building a schema by hand.

use base::Result;

use super::schema::{Column, ColumnType, Derived, IndexSchema, Parts, Schema};
use crate::options::IndexOptions;

/// Collects what a table looks like; [`SchemaBuilder::build`] checks it. From [`Schema::builder`].
///
/// ```
/// use trefoil::{ColumnType, Schema, SchemaBuilder};
///
/// let base = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]);
/// let with_note: SchemaBuilder = base.clone().nullable("note", ColumnType::Text);
/// assert_eq!((base.build()?.columns().len(), with_note.build()?.columns().len()), (1, 2));
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct SchemaBuilder {
    columns: Vec<Column>,
    primary: Vec<String>,
    primary_options: IndexOptions,
    indexes: Vec<IndexSchema>,
}

impl SchemaBuilder {
    /// Adds a column that always has a value. Its name has 1 to 255 bytes and is used once.
    ///
    /// ```
    /// use trefoil::{ColumnType, Schema, Value};
    ///
    /// let people = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
    /// assert!(people.check(&[7i64.into()]).is_ok());
    /// assert!(people.check(&[Value::Null]).is_err());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn column(mut self, name: &str, column_type: ColumnType) -> Self {
        self.columns.push(Column { name: name.to_owned(), column_type, nullable: false });
        self
    }

    /// Adds a column that may be NULL. It cannot be part of the primary key.
    ///
    /// ```
    /// use trefoil::{ColumnType, Schema, Value};
    ///
    /// let people = Schema::builder().column("id", ColumnType::I64).nullable("born", ColumnType::Timestamp);
    /// let people = people.primary_key(&["id"]).build()?;
    /// assert!(people.check(&[7i64.into(), Value::Null]).is_ok());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn nullable(mut self, name: &str, column_type: ColumnType) -> Self {
        self.columns.push(Column { name: name.to_owned(), column_type, nullable: true });
        self
    }

    /// Names the columns of the primary key, in key order: 1 to 32, none nullable.
    ///
    /// ```
    /// use trefoil::{ColumnType, Schema};
    ///
    /// let lines = Schema::builder().column("order", ColumnType::U64).column("line", ColumnType::U32);
    /// assert!(lines.clone().build().is_err()); // a table needs a primary key
    /// assert_eq!(lines.primary_key(&["order", "line"]).build()?.primary_key(), [0, 1]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn primary_key(mut self, columns: &[&str]) -> Self {
        self.primary = columns.iter().map(|&c| c.to_owned()).collect();
        self
    }

    /// Settings of the primary index, which holds the rows; without it the default.
    ///
    /// ```
    /// use trefoil::{ColumnType, Compression, IndexOptions, Schema};
    ///
    /// let zstd = IndexOptions { compression: Compression::Zstd, ..IndexOptions::default() };
    /// let log = Schema::builder().column("at", ColumnType::Timestamp).primary_key(&["at"]).primary_options(zstd);
    /// assert_eq!(log.build()?.primary_options().compression, Compression::Zstd);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn primary_options(mut self, options: IndexOptions) -> Self {
        self.primary_options = options;
        self
    }

    /// Adds a secondary index, up to 64.
    ///
    /// ```
    /// use trefoil::{ColumnType, IndexSchema, Schema};
    ///
    /// let people = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// let people = people.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// assert_eq!(people.indexes().len(), 1);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn index(mut self, index: IndexSchema) -> Self {
        self.indexes.push(index);
        self
    }

    /// The schema, checked.
    ///
    /// # Errors
    /// `Invalid` if names repeat or are unknown, the primary key is missing or nullable; `Limit`.
    ///
    /// ```
    /// use trefoil::{ColumnType, Schema};
    ///
    /// let twice = Schema::builder().column("id", ColumnType::I64).column("id", ColumnType::I32).primary_key(&["id"]);
    /// let fault = twice.build().expect_err("two columns of one name");
    /// assert!(fault.to_string().contains("id"));
    /// ```
    pub fn build(self) -> Result<Schema> {
        let mut parts = Parts {
            columns: self.columns,
            primary: Vec::new(),
            primary_options: self.primary_options,
            indexes: self.indexes,
            versions: None,
            derived: Derived::default(),
        };
        parts.primary = self.primary.iter().map(|name| parts.number(name)).collect::<Result<_>>()?;
        parts.checked()
    }
}
