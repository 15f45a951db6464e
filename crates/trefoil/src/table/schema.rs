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

use super::versions::{Layout, Versions};
use super::way::Way;
use super::{SchemaBuilder, typed};
use crate::options::IndexOptions;

/// Longest name of a column or index in a schema, in bytes. Tables, and indexes that are created, have names of at most
/// 192 bytes.
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
/// Most columns of a key, primary or secondary. Its encoded length is limited as well, to 3072 bytes.
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

/// Type of a column. A value fits only the column of its own type. The number is stored in the catalog.
///
/// ```
/// use trefoil::{ColumnType, Schema, Value};
///
/// let events = Schema::builder().column("at", ColumnType::Timestamp).column("what", ColumnType::Text);
/// let events = events.primary_key(&["at"]).build()?;
/// events.check(&[Value::Timestamp(1_700_000_000_000_000), "started".into()])?; // microseconds
/// assert!(events.check(&[Value::I64(1_700_000_000), "started".into()]).is_err()); // no silent conversion
/// # Ok::<(), trefoil::Error>(())
/// ```
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
    pub(crate) fn from_stored(n: u8) -> Option<Self> {
        use ColumnType::{Bool, Bytes, F64, I32, I64, Text, Timestamp, U32, U64};
        [I64, I32, U64, U32, F64, Text, Bytes, Timestamp, Bool].into_iter().find(|t| *t as u8 == n)
    }
}

/// A column, as [`Schema::columns`] shows it; made by [`SchemaBuilder::column`] and [`SchemaBuilder::nullable`].
///
/// ```
/// # use trefoil::{ColumnType, IndexSchema, Schema};
/// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
/// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
/// let column = &schema.columns()[1];
/// assert_eq!((column.name.as_str(), column.column_type), ("name", ColumnType::Text));
/// assert!(!column.nullable); // `SchemaBuilder::column`; `nullable` makes one that is
/// # Ok::<(), trefoil::Error>(())
/// ```
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
    /// An index on these columns, in this order, with default settings. Whether the columns exist is checked when
    /// the schema is built.
    ///
    /// ```
    /// use trefoil::IndexSchema;
    ///
    /// let by_name = IndexSchema::new("by_name", &["last", "first"]); // sorted by last name, then first
    /// assert_eq!(by_name.columns(), ["last", "first"]);
    /// assert!(!by_name.is_unique());
    /// ```
    #[must_use]
    pub fn new(name: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&c| c.to_owned()).collect();
        Self { name: name.to_owned(), columns, unique: false, options: IndexOptions::default() }
    }

    /// With these settings instead of the default; the other indexes of the table keep theirs.
    ///
    /// ```
    /// use trefoil::{Compression, IndexOptions, IndexSchema};
    ///
    /// let dense = IndexOptions { compression: Compression::Zstd, ..IndexOptions::default() };
    /// let by_text = IndexSchema::new("by_text", &["text"]).with_options(dense);
    /// assert_eq!(by_text.options().compression, Compression::Zstd);
    /// ```
    #[must_use]
    pub fn with_options(mut self, options: IndexOptions) -> Self {
        self.options = options;
        self
    }

    /// No two rows may agree in all columns. A row with a NULL among them agrees with no other.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// use trefoil::{ColumnType, Error, IndexSchema, Schema, Value};
    ///
    /// let users = Schema::builder().column("id", ColumnType::I64).nullable("mail", ColumnType::Text).primary_key(&["id"]);
    /// let users = db.create_table("users", users.index(IndexSchema::new("by_mail", &["mail"]).unique()).build()?)?;
    /// let mut tx = db.begin()?;
    /// tx.insert(&users, &[1i64.into(), "ada@example.org".into()])?;
    /// let again = tx.insert(&users, &[2i64.into(), "ada@example.org".into()]);
    /// assert!(matches!(again, Err(Error::DuplicateKey(taken)) if taken.index == "by_mail" && taken.row == [1i64.into()]));
    /// tx.insert(&users, &[2i64.into(), Value::Null])?;
    /// tx.insert(&users, &[3i64.into(), Value::Null])?;
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn unique(mut self) -> Self {
        self.unique = true;
        self
    }

    /// Its name.
    ///
    /// ```
    /// let by_name = trefoil::IndexSchema::new("by_name", &["name"]);
    /// assert_eq!(by_name.name(), "by_name"); // what `scan_index` is told
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Names of its columns, in order.
    ///
    /// ```
    /// let by_name = trefoil::IndexSchema::new("by_name", &["last", "first"]);
    /// assert_eq!(by_name.columns(), ["last", "first"]);
    /// ```
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// True if no two rows may agree in all columns.
    ///
    /// ```
    /// let by_mail = trefoil::IndexSchema::new("by_mail", &["mail"]);
    /// assert!(!by_mail.is_unique());
    /// assert!(by_mail.unique().is_unique());
    /// ```
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.unique
    }

    /// Its settings: those of [`IndexSchema::with_options`], or the default.
    ///
    /// ```
    /// use trefoil::{IndexOptions, IndexSchema};
    ///
    /// assert_eq!(IndexSchema::new("by_name", &["name"]).options(), IndexOptions::default());
    /// ```
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
    /// What rows of each version store, once there are several.
    pub(super) versions: Option<Versions>,
    pub(super) derived: Derived,
}

/// Where a column is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// The so many-th of the primary key.
    Key(usize),
    /// The so many-th of a stored row, and the way there.
    Stored(usize, Option<Way>),
}

/// What follows from the rest of a schema.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Derived {
    /// The version that rows are written in.
    pub version: u8,
    /// What rows of the versions before store.
    pub old: Vec<Layout>,
    /// Numbers of the columns that are not in the primary key, ascending: what a row stores.
    pub stored: Vec<usize>,
    /// How many of the first `n` stored columns may be NULL, for every `n`.
    pub nullable_stored: Vec<usize>,
    /// Per index, the numbers of its columns.
    pub index_columns: Vec<Vec<usize>>,
    /// Numbers of the unique indexes, ascending.
    pub unique: Vec<usize>,
    /// Of which type each column is ([`typed::code`]), and where.
    pub places: Vec<(u8, Place)>,
    /// What a tuple must be to be read from a row ([`typed::signature`]).
    pub signature: u128,
    /// The same for an entry of each index: its columns, then the primary key's.
    pub entry_signatures: Vec<u128>,
    /// The columns of the primary key are the first of the table, in its order.
    pub key_leads: bool,
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

    /// With other settings of index `n`.
    pub(crate) fn with_index_options(&self, n: usize, options: IndexOptions) -> Self {
        let mut parts = Parts::clone(&self.0);
        parts.indexes[n].options = options;
        Self(Arc::new(parts))
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
        let mut index_columns = Vec::new();
        for index in &self.indexes {
            if index.columns.is_empty() {
                return invalid(format!("index {:?} needs at least one column", index.name));
            }
            let numbers: Result<Vec<usize>> = index.columns.iter().map(|name| self.number(name)).collect();
            let numbers = numbers?;
            self.check_key(&format!("index {:?}", index.name), &numbers)?;
            index_columns.push(numbers);
        }
        self.versions.as_ref().map_or(Ok(()), |versions| versions.check(&self.columns, &self.primary))?;
        self.derived = self.derive(index_columns);
        Ok(Schema(Arc::new(self)))
    }

    fn derive(&self, index_columns: Vec<Vec<usize>>) -> Derived {
        let stored: Vec<usize> = (0..self.columns.len()).filter(|n| !self.primary.contains(n)).collect();
        let mut nullable_stored = vec![0];
        for &n in &stored {
            nullable_stored.push(nullable_stored[nullable_stored.len() - 1] + usize::from(self.columns[n].nullable));
        }
        let entry = |columns: &Vec<usize>| {
            let all: Vec<_> = columns.iter().chain(&self.primary).map(|&n| &self.columns[n]).collect();
            typed::signature(all.into_iter())
        };
        let version = self.versions.as_ref().map_or(0, Versions::newest);
        let stored_columns: Vec<&Column> = stored.iter().map(|&n| &self.columns[n]).collect();
        let place = |n: usize| match self.primary.iter().position(|&key| key == n) {
            Some(at) => Place::Key(at),
            None => {
                let at = stored.partition_point(|&s| s < n);
                Place::Stored(at, Way::new(version, &stored_columns, at))
            }
        };
        Derived {
            version,
            old: self.versions.as_ref().map_or_else(Vec::new, |versions| versions.layouts(&self.columns)),
            places: self.columns.iter().enumerate().map(|(n, column)| (typed::code(column), place(n))).collect(),
            signature: typed::signature(self.columns.iter()),
            entry_signatures: index_columns.iter().map(entry).collect(),
            unique: (0..self.indexes.len()).filter(|&n| self.indexes[n].unique).collect(),
            key_leads: self.primary.iter().copied().eq(0..self.primary.len()),
            stored,
            nullable_stored,
            index_columns,
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<usize> {
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
