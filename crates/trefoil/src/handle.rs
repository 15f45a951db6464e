//! Handles of indexes and tables.

use std::sync::Arc;

use crate::entry::{IndexEntry, TableEntry};
use crate::table::Schema;

/// A plain ordered index: keys of at most three quarters of a node, in the order of their bytes, to values below 4 GiB. Cheap to
/// clone; from [`Database::create_index`](crate::Database::create_index) or
/// [`Database::index`](crate::Database::index). After a drop it answers `Dropped`.
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
/// let again = db.index("fruit")?; // a second handle of the same index
/// assert_eq!(db.begin()?.get(&again, b"pear")?.as_deref(), Some(&b"7"[..]));
/// assert_eq!(again.name(), fruit.name());
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Clone)]
pub struct Index(pub(crate) Arc<IndexEntry>);

/// A table: typed rows under a primary key, with secondary indexes that the engine keeps. Cheap to clone; from
/// [`Database::create_table`](crate::Database::create_table) or [`Database::table`](crate::Database::table).
/// After a drop it answers `Dropped`.
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
/// let row = tx.get_row(&people, &[2i64.into()])?.expect("Grace is there");
/// assert_eq!(row, [2i64.into(), "Grace".into()]); // in the order of the columns
/// let mut by_name = tx.scan_index(&people, "by_name", trefoil::ALL)?;
/// assert_eq!(by_name.next()?, Some(vec!["Ada".into(), 1i64.into()]));
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Clone)]
pub struct Table(pub(crate) Arc<TableEntry>);

impl Index {
    pub(crate) fn entry(&self) -> &Arc<IndexEntry> {
        &self.0
    }

    /// Its name, as it was created.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// assert_eq!(fruit.name(), "fruit");
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.def.name
    }

    /// Counts and sizes now, in bytes where the name says so. Keys and versions are estimates while others write.
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
    /// let stats = fruit.stats();
    /// assert_eq!((stats.live_keys, stats.dead_versions), (3, 0));
    /// # let mut tx = db.begin()?;
    /// tx.delete(&fruit, b"apple")?;
    /// # tx.commit()?;
    /// assert_eq!(fruit.stats().live_keys, 2);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> index::IndexStats {
        self.0.index.stats()
    }
}

impl Table {
    /// Its name: the one it was created with, or the last that it was given.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// assert_eq!(people.name(), "people");
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Columns and indexes as of now: a copy that later changes of the definition leave alone.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// let schema = people.schema();
    /// let names: Vec<&str> = schema.columns().iter().map(|column| column.name.as_str()).collect();
    /// assert_eq!(names, ["id", "name"]);
    /// assert_eq!(schema.indexes()[0].name(), "by_name");
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn schema(&self) -> Schema {
        self.0.shape().def.schema.clone()
    }
}
