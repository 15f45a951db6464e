//! Building a schema by hand.

use base::Result;

use super::collation::Provider;
use super::column::{Column, ColumnType};
use super::foreign_key::ForeignKey;
use super::index_schema::{IndexSchema, KeyPart};
use super::parts::{Derived, Parts};
use super::schema::Schema;
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
    collations: Vec<(String, u32)>,
    primary: Vec<KeyPart>,
    primary_options: IndexOptions,
    indexes: Vec<IndexSchema>,
    foreign_keys: Vec<ForeignKey>,
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
        self.columns.push(Column { name: name.to_owned(), column_type, nullable: false, collation: None });
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
        self.columns.push(Column { name: name.to_owned(), column_type, nullable: true, collation: None });
        self
    }

    /// Gives a column of text or bytes a collation, by the number it has for
    /// [`Options::collations`](crate::Options::collations): in keys it is ordered by that, and what has one sort key is one
    /// key. Values are stored and read as they were given.
    ///
    /// ```
    /// use trefoil::{ColumnType, Schema};
    ///
    /// let users = Schema::builder().column("name", ColumnType::Text).collate("name", 1).primary_key(&["name"]);
    /// assert_eq!(users.build()?.columns()[0].collation, Some(1));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn collate(mut self, column: &str, collation: u32) -> Self {
        self.collations.push((column.to_owned(), collation));
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
        self.primary = columns.iter().map(|&c| KeyPart::new(c)).collect();
        self
    }

    /// As [`SchemaBuilder::primary_key`], with the parts described: descending, or of the front of a column. Of two rows
    /// whose columns have the same front there can be one.
    ///
    /// ```
    /// use trefoil::{ColumnType, KeyPart, Schema};
    ///
    /// let log = Schema::builder().column("host", ColumnType::Text).column("at", ColumnType::Timestamp);
    /// let log = log.primary_key_of([KeyPart::new("host"), KeyPart::new("at").descending()]).build()?;
    /// assert!(log.primary_key_parts().nth(1).is_some_and(|part| part.is_descending()));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn primary_key_of(mut self, parts: impl IntoIterator<Item = KeyPart>) -> Self {
        self.primary = parts.into_iter().collect();
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

    /// Adds a foreign key, up to 64. Its parent is looked for when the table is created.
    ///
    /// ```
    /// use trefoil::{ColumnType, ForeignKey, IndexSchema, Schema};
    ///
    /// let dogs = Schema::builder().column("name", ColumnType::Text).column("owner_id", ColumnType::I64);
    /// let dogs = dogs.primary_key(&["name"]).foreign_key(ForeignKey::new("owner", &["owner_id"], "people", &["id"]));
    /// assert!(dogs.clone().build().is_err()); // whoever deletes a person has to find the dogs
    /// assert!(dogs.index(IndexSchema::new("by_owner", &["owner_id"])).build().is_ok());
    /// ```
    #[must_use]
    pub fn foreign_key(mut self, foreign_key: ForeignKey) -> Self {
        self.foreign_keys.push(foreign_key);
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
            primary_parts: self.primary.iter().map(|part| part.options).collect(),
            primary_options: self.primary_options,
            indexes: self.indexes,
            foreign_keys: self.foreign_keys,
            versions: None,
            collations: Provider::default(),
            derived: Derived::default(),
        };
        parts.primary = self.primary.iter().map(|part| parts.number(&part.column)).collect::<Result<_>>()?;
        for (name, collation) in &self.collations {
            let n = parts.number(name)?;
            parts.columns[n].collation = Some(*collation);
        }
        parts.checked()
    }
}
