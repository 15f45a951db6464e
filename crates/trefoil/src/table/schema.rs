//! What a table looks like: typed columns, the primary key, secondary indexes with their own settings.
//!
//! A [`Schema`] is checked when it is made, by a builder or from the catalog, and never changes; a clone is a count.
//! What it does with rows is in `rows`, its form in the catalog in `schema_codec`, what it is made of in `parts`.
//!
//! Invariants: names of columns, and of indexes, are distinct, 1 to [`NAME_BYTES_MAX`] bytes; the primary key has at
//! least one column, each once, none nullable; an index names existing columns, each once, at least one.

use std::sync::Arc;

use base::Result;

use super::SchemaBuilder;
use super::collation::Collations;
use super::column::Column;
use super::index_schema::{IndexSchema, KeyPart};
use super::parts::Parts;
use crate::options::IndexOptions;

/// Longest name of a column or index in a schema, in bytes. Tables and plain indexes have names of at most 640 bytes.
///
/// ```
/// use trefoil::{ColumnType, Schema, table::schema::NAME_BYTES_MAX};
///
/// let named = |bytes: usize| Schema::builder().column(&"x".repeat(bytes), ColumnType::I64);
/// assert!(named(NAME_BYTES_MAX).primary_key(&[&"x".repeat(NAME_BYTES_MAX)]).build().is_ok());
/// assert!(named(NAME_BYTES_MAX + 1).primary_key(&[&"x".repeat(NAME_BYTES_MAX + 1)]).build().is_err());
/// ```
pub const NAME_BYTES_MAX: usize = 255;
/// Most columns of a table.
///
/// ```
/// use trefoil::{ColumnType, Schema, table::schema::COLUMNS_MAX};
///
/// let wide = |columns| (0..columns).fold(Schema::builder(), |s, n| s.column(&format!("c{n}"), ColumnType::Bool));
/// assert!(wide(COLUMNS_MAX).primary_key(&["c0"]).build().is_ok());
/// assert!(wide(COLUMNS_MAX + 1).primary_key(&["c0"]).build().is_err());
/// ```
pub const COLUMNS_MAX: usize = 1024;
/// Most columns of a key, primary or secondary. Its encoded length is limited as well, to three quarters
/// of a node.
///
/// ```
/// use trefoil::{ColumnType, Schema, table::schema::KEY_COLUMNS_MAX};
///
/// let names: Vec<String> = (0..=KEY_COLUMNS_MAX).map(|n| format!("c{n}")).collect();
/// let names: Vec<&str> = names.iter().map(String::as_str).collect();
/// let columns = names.iter().fold(Schema::builder(), |s, name| s.column(name, ColumnType::Bool));
/// assert!(columns.clone().primary_key(&names[1..]).build().is_ok());
/// assert!(columns.primary_key(&names).build().is_err());
/// ```
pub const KEY_COLUMNS_MAX: usize = 32;
/// Most secondary indexes of a table.
///
/// ```
/// use trefoil::{ColumnType, IndexSchema, Schema, table::schema::INDEXES_MAX};
///
/// let table = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]);
/// let with = |n| (0..n).fold(table.clone(), |s, n| s.index(IndexSchema::new(&format!("i{n}"), &["id"])));
/// assert!(with(INDEXES_MAX).build().is_ok() && with(INDEXES_MAX + 1).build().is_err());
/// ```
pub const INDEXES_MAX: usize = 64;

/// Columns, primary key and secondary indexes of a table. Cheap to clone.
///
/// ```
/// use trefoil::{ColumnType, IndexSchema, Schema};
/// let schema = Schema::builder()
///     .column("id", ColumnType::I64)
///     .column("name", ColumnType::Text)
///     .nullable("born", ColumnType::Timestamp)
///     .primary_key(&["id"])
///     .index(IndexSchema::new("by_name", &["name", "born"]))
///     .build()?;
/// assert_eq!(schema.column_number("born"), Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema(pub(super) Arc<Parts>);

impl Schema {
    /// Starts a schema, with nothing in it; at least one column and a primary key are needed.
    ///
    /// ```
    /// use trefoil::{ColumnType, Schema};
    ///
    /// let counters = Schema::builder().column("name", ColumnType::Text).column("value", ColumnType::U64);
    /// let counters = counters.primary_key(&["name"]).build()?;
    /// assert_eq!(counters.primary_key(), [0]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn builder() -> SchemaBuilder {
        SchemaBuilder::default()
    }

    /// Columns in order; a column is named by its number below, from 0.
    ///
    /// ```
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// let names: Vec<&str> = schema.columns().iter().map(|column| column.name.as_str()).collect();
    /// assert_eq!(names, ["id", "name"]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.0.columns
    }

    /// Number of the column of this name, from 0; none if there is none.
    ///
    /// ```
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// assert_eq!(schema.column_number("name"), Some(1));
    /// assert_eq!(schema.column_number("Name"), None); // letters are compared as they are
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn column_number(&self, name: &str) -> Option<usize> {
        self.0.columns.iter().position(|c| c.name == name)
    }

    /// Numbers of the primary key's columns, in key order.
    ///
    /// ```
    /// use trefoil::{ColumnType, Schema};
    ///
    /// let lines = Schema::builder().column("line", ColumnType::U32).column("order", ColumnType::U64);
    /// let lines = lines.primary_key(&["order", "line"]).build()?;
    /// assert_eq!(lines.primary_key(), [1, 0]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn primary_key(&self) -> &[usize] {
        &self.0.primary
    }

    /// The parts of the primary key, in order.
    ///
    /// ```
    /// use trefoil::{ColumnType, KeyPart, Schema};
    ///
    /// let newest = Schema::builder().column("at", ColumnType::Timestamp);
    /// let newest = newest.primary_key_of([KeyPart::new("at").descending()]).build()?;
    /// assert_eq!(newest.primary_key_parts().next(), Some(KeyPart::new("at").descending()));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn primary_key_parts(&self) -> impl Iterator<Item = KeyPart> + '_ {
        let pairs = self.0.primary.iter().zip(&self.0.primary_parts);
        pairs.map(|(&n, options)| KeyPart { column: self.0.columns[n].name.clone(), options: *options })
    }

    /// Settings of the primary index, which holds the rows.
    ///
    /// ```
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// assert_eq!(schema.primary_options(), trefoil::IndexOptions::default());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn primary_options(&self) -> IndexOptions {
        self.0.primary_options
    }

    /// Secondary indexes; an index is named by its number below, from 0.
    ///
    /// ```
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// let names: Vec<&str> = schema.indexes().iter().map(IndexSchema::name).collect();
    /// assert_eq!(names, ["by_name"]); // the primary key is not among them
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn indexes(&self) -> &[IndexSchema] {
        &self.0.indexes
    }

    /// Number of the secondary index of this name, from 0; none if there is none.
    ///
    /// ```
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// assert_eq!(schema.index_number("by_name"), Some(0));
    /// assert_eq!(schema.index_number("name"), None); // a column
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn index_number(&self, name: &str) -> Option<usize> {
        self.0.indexes.iter().position(|i| i.name == name)
    }

    /// Numbers of the columns of secondary index `n`, in key order.
    ///
    /// # Panics
    /// If there is no such index.
    ///
    /// ```
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// let by_name = schema.index_number("by_name").expect("it has been added");
    /// assert_eq!(schema.index_columns(by_name), [1]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn index_columns(&self, n: usize) -> &[usize] {
        &self.0.derived.index_columns[n]
    }

    /// The same table with one more secondary index, behind the others. A value only: a table gets it by
    /// [`Database::create_table_indexes`](crate::Database::create_table_indexes).
    ///
    /// # Errors
    /// `Invalid` or `Limit` if the index does not fit.
    ///
    /// ```
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// let more = schema.with_index(IndexSchema::new("by_both", &["name", "id"]))?;
    /// assert_eq!(more.index_number("by_both"), Some(1));
    /// assert!(schema.with_index(IndexSchema::new("by_age", &["age"])).is_err()); // no such column
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn with_index(&self, index: IndexSchema) -> Result<Self> {
        let mut parts = Parts::clone(&self.0);
        parts.indexes.push(index);
        parts.checked()
    }

    /// The same table without secondary index `n`.
    ///
    /// # Panics
    /// If there is no such index.
    ///
    /// ```
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// let fewer = schema.without_index(0);
    /// assert!(fewer.indexes().is_empty());
    /// assert_eq!(fewer.columns(), schema.columns());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn without_index(&self, n: usize) -> Self {
        let mut parts = Parts::clone(&self.0);
        parts.indexes.remove(n);
        parts.checked().expect("a part of a valid schema is valid")
    }
}

impl Schema {
    /// With index `n` a second time, behind the others and under the same name: its successor while that is built.
    pub(crate) fn with_successor(&self, n: usize) -> Self {
        let mut parts = Parts::clone(&self.0);
        let mut columns = parts.derived.index_columns.clone();
        columns.push(columns[n].clone());
        parts.indexes.push(parts.indexes[n].clone());
        parts.derived = parts.derive(columns);
        Self(Arc::new(parts))
    }

    /// With what orders its text.
    pub(crate) fn with_collations(&self, collations: &Option<Arc<dyn Collations>>) -> Self {
        let mut parts = Parts::clone(&self.0);
        parts.collations.0.clone_from(collations);
        Self(Arc::new(parts))
    }

    /// With other settings of the rows.
    pub(crate) fn with_primary_options(&self, options: IndexOptions) -> Self {
        let mut parts = Parts::clone(&self.0);
        parts.primary_options = options;
        Self(Arc::new(parts))
    }

    /// With other settings of index `n`.
    pub(crate) fn with_index_options(&self, n: usize, options: IndexOptions) -> Self {
        let mut parts = Parts::clone(&self.0);
        parts.indexes[n].options = options;
        Self(Arc::new(parts))
    }
}
