//! What a table looks like: typed columns, the primary key, secondary indexes with their own settings.
//!
//! A [`Schema`] is checked when it is made, by a builder or from the catalog, and never changes; a clone is a count.
//! What it does with rows is in `rows`, its form in the catalog in `schema_codec`.
//!
//! Invariants: names of columns, and of indexes, are distinct, 1 to [`NAME_BYTES_MAX`] bytes; the primary key has at
//! least one column, each once, none nullable; an index names existing columns, each once, at least one.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Fault, Result};

use crate::options::IndexOptions;

/// Longest name of a column or index, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Most columns of a table.
pub const COLUMNS_MAX: usize = 1024;
/// Most columns of a key.
pub const KEY_COLUMNS_MAX: usize = 32;
/// Most secondary indexes of a table.
pub const INDEXES_MAX: usize = 64;

/// Type of a column. The number is stored in the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ColumnType {
    /// Signed, 64 bits.
    I64 = 1,
    /// Signed, 32 bits.
    I32 = 2,
    /// Unsigned, 64 bits.
    U64 = 3,
    /// Unsigned, 32 bits.
    U32 = 4,
    /// IEEE 754 double.
    F64 = 5,
    /// UTF-8.
    Text = 6,
    /// Bytes.
    Bytes = 7,
    /// Microseconds since 1970-01-01 00:00 UTC, signed 64 bits.
    Timestamp = 8,
    /// False or true.
    Bool = 9,
}

impl ColumnType {
    /// The type of a stored number.
    #[must_use]
    pub fn from_stored(n: u8) -> Option<Self> {
        use ColumnType::{Bool, Bytes, F64, I32, I64, Text, Timestamp, U32, U64};
        [I64, I32, U64, U32, F64, Text, Bytes, Timestamp, Bool].into_iter().find(|t| *t as u8 == n)
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub column_type: ColumnType,
    /// May be NULL.
    pub nullable: bool,
}

/// A secondary index, as a user describes it.
///
/// ```
/// use trefoil::{IndexOptions, IndexSchema};
/// let by_name = IndexSchema::new("by_name", &["last", "first"]).with_options(IndexOptions::default());
/// assert_eq!(by_name.columns(), ["last", "first"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexSchema {
    pub(super) name: String,
    pub(super) columns: Vec<String>,
    pub(super) unique: bool,
    pub(super) options: IndexOptions,
}

impl IndexSchema {
    /// An index on these columns, in this order, with default settings.
    #[must_use]
    pub fn new(name: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&c| c.to_owned()).collect();
        Self { name: name.to_owned(), columns, unique: false, options: IndexOptions::default() }
    }

    /// With these settings.
    #[must_use]
    pub fn with_options(mut self, options: IndexOptions) -> Self {
        self.options = options;
        self
    }

    /// No two rows agree in all columns. Room in the format; not built yet, so a schema with it is refused.
    #[must_use]
    pub fn unique(mut self) -> Self {
        self.unique = true;
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Names of its columns, in order.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// True if no two rows may agree in all columns.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.unique
    }

    /// Its settings.
    #[must_use]
    pub fn options(&self) -> IndexOptions {
        self.options
    }
}

/// Everything about a schema; behind an `Arc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) columns: Vec<Column>,
    /// Numbers of the primary key's columns, in key order.
    pub(super) primary: Vec<usize>,
    pub(super) primary_options: IndexOptions,
    pub(super) indexes: Vec<IndexSchema>,
    /// Numbers of the columns that are not in the primary key, ascending: what a row stores. Derived.
    pub(super) stored: Vec<usize>,
    /// Per index, the numbers of its columns. Derived.
    pub(super) index_columns: Vec<Vec<usize>>,
}

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
    /// Starts a schema.
    #[must_use]
    pub fn builder() -> SchemaBuilder {
        SchemaBuilder::default()
    }

    /// Columns in order; a column is named by its number below.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.0.columns
    }

    /// Number of the column of this name.
    #[must_use]
    pub fn column_number(&self, name: &str) -> Option<usize> {
        self.0.columns.iter().position(|c| c.name == name)
    }

    /// Numbers of the primary key's columns, in key order.
    #[must_use]
    pub fn primary_key(&self) -> &[usize] {
        &self.0.primary
    }

    /// Settings of the primary index.
    #[must_use]
    pub fn primary_options(&self) -> IndexOptions {
        self.0.primary_options
    }

    /// Secondary indexes; an index is named by its number below.
    #[must_use]
    pub fn indexes(&self) -> &[IndexSchema] {
        &self.0.indexes
    }

    /// Number of the secondary index of this name.
    #[must_use]
    pub fn index_number(&self, name: &str) -> Option<usize> {
        self.0.indexes.iter().position(|i| i.name == name)
    }

    /// Numbers of the columns of secondary index `n`, in key order.
    #[must_use]
    pub fn index_columns(&self, n: usize) -> &[usize] {
        &self.0.index_columns[n]
    }

    /// The same table with one more secondary index, behind the others.
    ///
    /// # Errors
    /// `Invalid` or `Unsupported` if the index does not fit.
    pub fn with_index(&self, index: IndexSchema) -> Result<Self> {
        let mut parts = Parts::clone(&self.0);
        parts.indexes.push(index);
        parts.checked()
    }

    /// The same table without secondary index `n`.
    ///
    /// # Panics
    /// If there is no such index.
    #[must_use]
    pub fn without_index(&self, n: usize) -> Self {
        let mut parts = Parts::clone(&self.0);
        parts.indexes.remove(n);
        parts.checked().expect("a part of a valid schema is valid")
    }
}

impl Parts {
    /// Checks the invariants and fills in what is derived.
    pub(super) fn checked(mut self) -> Result<Schema> {
        limit("columns of a table", COLUMNS_MAX, self.columns.len())?;
        limit("secondary indexes of a table", INDEXES_MAX, self.indexes.len())?;
        check_names("column", self.columns.iter().map(|c| c.name.as_str()))?;
        check_names("index", self.indexes.iter().map(|i| i.name.as_str()))?;
        if self.primary.is_empty() {
            return invalid("a table needs a primary key of at least one column");
        }
        self.check_key("the primary key", &self.primary)?;
        if let Some(&n) = self.primary.iter().find(|&&n| self.columns[n].nullable) {
            return invalid(format!("column {:?} of the primary key may not be nullable", self.columns[n].name));
        }
        self.index_columns.clear();
        for index in &self.indexes {
            if index.unique {
                return Err(Fault::Unsupported(format!("index {:?}: unique is not built yet", index.name)));
            }
            if index.columns.is_empty() {
                return invalid(format!("index {:?} needs at least one column", index.name));
            }
            let numbers: Result<Vec<usize>> = index.columns.iter().map(|name| self.number(name)).collect();
            let numbers = numbers?;
            self.check_key(&format!("index {:?}", index.name), &numbers)?;
            self.index_columns.push(numbers);
        }
        self.stored = (0..self.columns.len()).filter(|n| !self.primary.contains(n)).collect();
        Ok(Schema(Arc::new(self)))
    }

    fn number(&self, name: &str) -> Result<usize> {
        let found = self.columns.iter().position(|c| c.name == name);
        found.ok_or_else(|| Fault::Invalid(format!("there is no column {name:?}")))
    }

    /// Existing columns, each once, not too many.
    fn check_key(&self, what: &str, columns: &[usize]) -> Result<()> {
        limit("columns of a key", KEY_COLUMNS_MAX, columns.len())?;
        let mut seen = BTreeSet::new();
        for &n in columns {
            let Some(column) = self.columns.get(n) else { return invalid(format!("{what} has no column {n}")) };
            if !seen.insert(n) {
                return invalid(format!("{what} has column {:?} twice", column.name));
            }
        }
        Ok(())
    }
}

fn invalid<T>(why: impl Into<String>) -> Result<T> {
    Err(Fault::Invalid(why.into()))
}

fn limit(what: &'static str, limit: usize, got: usize) -> Result<()> {
    if got <= limit {
        return Ok(());
    }
    Err(Fault::Limit { what, limit: limit as u64, got: got as u64 })
}

fn check_names<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for name in names {
        limit("bytes of a name", NAME_BYTES_MAX, name.len())?;
        if name.is_empty() {
            return invalid(format!("a {what} needs a name"));
        }
        if !seen.insert(name) {
            return invalid(format!("two of the table's {what} names are {name:?}"));
        }
    }
    Ok(())
}

/// Collects what a table looks like; [`SchemaBuilder::build`] checks it.
#[derive(Debug, Clone, Default)]
pub struct SchemaBuilder {
    columns: Vec<Column>,
    primary: Vec<String>,
    primary_options: IndexOptions,
    indexes: Vec<IndexSchema>,
}

impl SchemaBuilder {
    /// Adds a column that always has a value.
    #[must_use]
    pub fn column(mut self, name: &str, column_type: ColumnType) -> Self {
        self.columns.push(Column { name: name.to_owned(), column_type, nullable: false });
        self
    }

    /// Adds a column that may be NULL.
    #[must_use]
    pub fn nullable(mut self, name: &str, column_type: ColumnType) -> Self {
        self.columns.push(Column { name: name.to_owned(), column_type, nullable: true });
        self
    }

    /// Names the columns of the primary key, in key order.
    #[must_use]
    pub fn primary_key(mut self, columns: &[&str]) -> Self {
        self.primary = columns.iter().map(|&c| c.to_owned()).collect();
        self
    }

    /// Settings of the primary index.
    #[must_use]
    pub fn primary_options(mut self, options: IndexOptions) -> Self {
        self.primary_options = options;
        self
    }

    /// Adds a secondary index.
    #[must_use]
    pub fn index(mut self, index: IndexSchema) -> Self {
        self.indexes.push(index);
        self
    }

    /// The schema.
    ///
    /// # Errors
    /// `Invalid` if names repeat or are unknown, the primary key is missing or nullable; `Limit`; `Unsupported` for
    /// unique secondary indexes.
    pub fn build(self) -> Result<Schema> {
        let mut parts = Parts {
            columns: self.columns,
            primary: Vec::new(),
            primary_options: self.primary_options,
            indexes: self.indexes,
            stored: Vec::new(),
            index_columns: Vec::new(),
        };
        parts.primary = self.primary.iter().map(|name| parts.number(name)).collect::<Result<_>>()?;
        parts.checked()
    }
}
