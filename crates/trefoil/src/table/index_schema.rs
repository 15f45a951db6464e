//! A secondary index as it is described, and what a key is made of.

use crate::options::IndexOptions;

/// A column in a key: which way round, and how much of it. A name is one too: whole, ascending.
///
/// ```
/// use trefoil::{IndexSchema, KeyPart};
///
/// let newest = IndexSchema::of_parts("newest", [KeyPart::new("host").front(16), KeyPart::new("at").descending()]);
/// assert_eq!(newest.columns(), ["host", "at"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPart {
    pub(super) column: String,
    pub(super) options: PartOptions,
}

/// What there is to say of a part of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PartOptions {
    pub descending: bool,
    pub front: Option<u32>,
}

impl KeyPart {
    /// All of the column, ascending.
    ///
    /// ```
    /// let part = trefoil::KeyPart::new("name");
    /// assert_eq!((part.column(), part.is_descending(), part.front_length()), ("name", false, None));
    /// ```
    #[must_use]
    pub fn new(column: &str) -> Self {
        Self { column: column.to_owned(), options: PartOptions::default() }
    }

    /// The other way round: the largest value first, NULL last.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// use std::ops::Bound;
    /// use trefoil::{ColumnType, KeyPart, Schema};
    ///
    /// let years = Schema::builder().column("year", ColumnType::I32).primary_key_of([KeyPart::new("year").descending()]);
    /// let years = db.create_table("years", years.build()?)?;
    /// let mut tx = db.begin()?;
    /// tx.insert_many(&years, &[[1815.into()], [1906.into()], [1912.into()]])?;
    /// let from = [1906.into()];
    /// let mut rows = tx.scan(&years, (Bound::Included(&from), Bound::Unbounded))?; // from there on, in the key's order
    /// assert_eq!(rows.next()?, Some(vec![1906.into()]));
    /// assert_eq!(rows.next()?, Some(vec![1815.into()]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn descending(mut self) -> Self {
        self.options.descending = true;
        self
    }

    /// Its first `length` bytes only, of text and of a column with a collation characters: at least 1, of columns of type
    /// `Text`, `Bytes` and `Fixed`. Values that are the same there are the same to the key: a unique index has one of them, and a
    /// bound of a range stands for all of them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// use trefoil::{ColumnType, Error, IndexSchema, KeyPart, Schema};
    ///
    /// let pages = Schema::builder().column("id", ColumnType::I64).column("address", ColumnType::Text).primary_key(&["id"]);
    /// let by_front = IndexSchema::of_parts("by_front", [KeyPart::new("address").front(4)]).unique();
    /// let pages = db.create_table("pages", pages.index(by_front).build()?)?;
    /// let mut tx = db.begin()?;
    /// tx.insert(&pages, &[1i64.into(), "oak tree".into()])?;
    /// tx.insert(&pages, &[2i64.into(), "oaks".into()])?;
    /// assert!(matches!(tx.insert(&pages, &[3i64.into(), "oak table".into()]), Err(Error::DuplicateKey(_))));
    /// let mut entries = tx.scan_index(&pages, "by_front", trefoil::ALL)?;
    /// assert_eq!(entries.next()?, Some(vec!["oak tree".into(), 1i64.into()])); // whole, without its row
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn front(mut self, length: u32) -> Self {
        self.options.front = Some(length);
        self
    }

    /// The name of the column.
    ///
    /// ```
    /// assert_eq!(trefoil::KeyPart::new("name").front(3).column(), "name");
    /// ```
    #[must_use]
    pub fn column(&self) -> &str {
        &self.column
    }

    /// True if it is the other way round.
    ///
    /// ```
    /// assert!(trefoil::KeyPart::new("name").descending().is_descending());
    /// ```
    #[must_use]
    pub fn is_descending(&self) -> bool {
        self.options.descending
    }

    /// How much of the column it has; none: all.
    ///
    /// ```
    /// assert_eq!(trefoil::KeyPart::new("name").front(3).front_length(), Some(3));
    /// ```
    #[must_use]
    pub fn front_length(&self) -> Option<u32> {
        self.options.front
    }
}

impl From<&str> for KeyPart {
    fn from(column: &str) -> Self {
        Self::new(column)
    }
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
    /// For each column.
    pub(super) parts: Vec<PartOptions>,
    pub(super) unique: bool,
    pub(super) clustering: bool,
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
        Self::of_parts(name, columns.iter().map(|&c| KeyPart::new(c)))
    }

    /// An index on these parts, in this order, with default settings: columns ascending or descending, whole or the front of
    /// them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// use trefoil::{ColumnType, IndexSchema, KeyPart, Schema};
    ///
    /// let scores = Schema::builder().column("name", ColumnType::Text).column("points", ColumnType::I32);
    /// let ranking = IndexSchema::of_parts("ranking", [KeyPart::new("points").descending(), "name".into()]);
    /// let scores = db.create_table("scores", scores.primary_key(&["name"]).index(ranking).build()?)?;
    /// let mut tx = db.begin()?;
    /// tx.insert_many(&scores, &[["Ada".into(), 7.into()], ["Grace".into(), 9.into()], ["Edith".into(), 7.into()]])?;
    /// let mut entries = tx.scan_index(&scores, "ranking", trefoil::ALL)?;
    /// let mut names = Vec::new();
    /// while let Some(entry) = entries.next()? {
    ///     names.push(entry[1].clone().into_owned());
    /// }
    /// assert_eq!(names, ["Grace".into(), "Ada".into(), "Edith".into()]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn of_parts(name: &str, parts: impl IntoIterator<Item = KeyPart>) -> Self {
        let (columns, parts) = parts.into_iter().map(|part| (part.column, part.options)).unzip();
        Self {
            name: name.to_owned(),
            columns,
            parts,
            unique: false,
            clustering: false,
            options: IndexOptions::default(),
        }
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

    /// Its entries have the whole row: what is read along it needs no look into the primary index
    /// ([`Transaction::scan_index_rows`](crate::Transaction::scan_index_rows)). In return the rows are stored once more, and a
    /// change of any column is one of the index. Needs a database of format 4.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// use std::ops::Bound;
    /// use trefoil::{ColumnType, IndexSchema, Schema};
    ///
    /// let columns = Schema::builder().column("id", ColumnType::I64).column("day", ColumnType::I32);
    /// let columns = columns.column("text", ColumnType::Text).primary_key(&["id"]);
    /// let diary = db.create_table("diary", columns.index(IndexSchema::new("by_day", &["day"]).clustering()).build()?)?;
    /// let mut tx = db.begin()?;
    /// tx.insert_many(&diary, &[[1i64.into(), 7.into(), "rain".into()], [2i64.into(), 6.into(), "sun".into()]])?;
    /// let day = [6.into()];
    /// let mut of_day = tx.scan_index_rows(&diary, "by_day", (Bound::Included(&day), Bound::Included(&day)))?;
    /// let row = of_day.next_row()?.expect("there is one");
    /// assert_eq!(row.column_as::<std::borrow::Cow<'_, str>>(2)?, "sun"); // from the entry itself
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn clustering(mut self) -> Self {
        self.clustering = true;
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

    /// Its parts, in order.
    ///
    /// ```
    /// let newest = trefoil::IndexSchema::of_parts("newest", [trefoil::KeyPart::new("at").descending()]);
    /// assert!(newest.parts().all(|part| part.is_descending()));
    /// ```
    pub fn parts(&self) -> impl Iterator<Item = KeyPart> + '_ {
        let pairs = self.columns.iter().zip(&self.parts);
        pairs.map(|(column, options)| KeyPart { column: column.clone(), options: *options })
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

    /// True if its entries have the whole row.
    ///
    /// ```
    /// let by_day = trefoil::IndexSchema::new("by_day", &["day"]);
    /// assert!(!by_day.is_clustering());
    /// assert!(by_day.clustering().is_clustering());
    /// ```
    #[must_use]
    pub fn is_clustering(&self) -> bool {
        self.clustering
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
