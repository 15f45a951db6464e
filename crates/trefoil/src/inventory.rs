//! What indexes there are, each with its settings, its health and its numbers: for people who look at all of them.

use crate::database::Database;
use crate::entry::IndexEntry;
use crate::options::{IndexOptions, Structure};
use crate::stats::TableNames;

/// Whether an index can be used.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # db.create_index("fruit", trefoil::IndexOptions::default())?;
/// use trefoil::IndexHealth;
///
/// assert!(db.indexes().iter().all(|index| index.health == IndexHealth::Sound));
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexHealth {
    /// As far as anybody has met.
    Sound,
    /// Damage was met in it: it is only read. Rows of a table, and plain indexes.
    Damaged,
    /// Damage was met in it, and nobody uses it until it is made anew: [`Database::rebuild_index`](crate::Database::rebuild_index).
    SetAside,
}

/// An index: [`Database::indexes`](crate::Database::indexes).
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # db.create_index("fruit", trefoil::IndexOptions::default())?;
/// for trefoil::IndexInfo { table, name, options, stats, .. } in db.indexes() {
///     println!("{table:?} {name}: {:?}, {} keys", options.structure, stats.live_keys);
/// }
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct IndexInfo {
    /// The table that it is of, if it is of one.
    pub table: Option<String>,
    /// Its name; `primary` for a table's rows, `primary to be` and `former primary` of those that are made anew.
    pub name: String,
    /// Its settings: never [`Structure::Auto`], but what was made of that.
    pub options: IndexOptions,
    /// Whether it can be used.
    pub health: IndexHealth,
    /// Counts and sizes; nothing of one that is set aside.
    pub stats: index::IndexStats,
}

impl IndexInfo {
    /// Its name among locks and statistics: `TABLE.NAME`, or the name of one without a table.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// assert!(db.indexes().iter().any(|index| index.full_name() == "fruit"));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn full_name(&self) -> String {
        match &self.table {
            Some(table) => format!("{table}.{}", self.name),
            None => self.name.clone(),
        }
    }
}

impl Database {
    /// All indexes, plain ones and those of tables, without the catalog's own. Nothing is read from disk for it. Rows that are made
    /// anew are there twice meanwhile, and for as long as somebody needs them as they were: `primary to be`, `former primary`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// use trefoil::Structure;
    ///
    /// let index = &db.indexes()[0];
    /// assert_eq!((index.table.as_deref(), index.name.as_str()), (None, "fruit"));
    /// assert_eq!(index.options.structure, Structure::Betree); // what `Auto` is
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn indexes(&self) -> Vec<IndexInfo> {
        let engine = self.engine();
        let (entries, names) = (engine.shown_indexes(), engine.table_names());
        // The catalog has number 0.
        entries.iter().filter(|entry| entry.id().0 != 0).map(|entry| IndexInfo::new(entry, &names)).collect()
    }
}

impl IndexInfo {
    fn new(entry: &IndexEntry, names: &TableNames) -> Self {
        let is_aside = entry.def.quarantined;
        let options = entry.def.options;
        // Of a database from before there was a choice.
        let structure = if options.structure == Structure::Auto { Structure::Btree } else { options.structure };
        Self {
            table: names.table_name(entry).map(str::to_owned),
            name: entry.name().to_owned(),
            options: IndexOptions { structure, ..options },
            health: match (is_aside, entry.damage().is_some()) {
                (true, _) => IndexHealth::SetAside,
                (_, true) => IndexHealth::Damaged,
                (false, false) => IndexHealth::Sound,
            },
            stats: if is_aside { index::IndexStats::default() } else { entry.index.stats() },
        }
    }
}
