//! Columns added, dropped, renamed and moved: what is asked for, and the schema that comes of it.

use base::{Fault, Result};

use super::column::{Column, ColumnType};
use super::foreign_key::ForeignKey;
use super::parts::Parts;
use super::row;
use super::rows::check_value;
use super::schema::Schema;
use super::value::{OwnedValue, Value};
use super::versions::Versions;

/// Longest value that the rows that are there can be given in a new column, in bytes.
const VALUE_BYTES_MAX: usize = 8 << 10;

/// Changes of a table's columns, done one after the other, and all or none:
/// [`Database::alter_table`](crate::Database::alter_table).
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// use trefoil::{ColumnType, Schema, TableChanges};
///
/// let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text).primary_key(&["id"]);
/// let people = db.create_table("people", schema.build()?)?;
/// let mut tx = db.begin()?;
/// tx.insert(&people, &[1i64.into(), "Ada".into()])?;
/// tx.commit()?;
/// let changes = TableChanges::new().add_column("visits", ColumnType::U32, 0u32.into()).move_after("visits", "id");
/// db.alter_table(&people, &changes)?;
/// assert_eq!(db.begin()?.get_row(&people, &[1i64.into()])?, Some(vec![1i64.into(), 0u32.into(), "Ada".into()]));
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct TableChanges(Vec<Change>);

#[derive(Debug, Clone)]
enum Change {
    Add(Column, OwnedValue),
    Drop(String),
    Collate(String, u32),
    Rename {
        from: String,
        to: String,
    },
    AddForeignKey(ForeignKey),
    DropForeignKey(String),
    RenameForeignKey {
        from: String,
        to: String,
    },
    FitForeignKey {
        name: String,
        bytes: Vec<u32>,
        characters: Vec<u32>,
    },
    DropIndex(String),
    RenameIndex {
        from: String,
        to: String,
    },
    /// Behind this one; first without one.
    Move {
        name: String,
        after: Option<String>,
    },
}

impl TableChanges {
    /// No changes yet.
    ///
    /// ```
    /// # use trefoil::{ColumnType, Schema, TableChanges};
    /// let people = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
    /// assert_eq!(people.with_changes(&TableChanges::new())?, people);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a column that always has a value, behind the others. The rows that are there have `value` (at most 8 KiB) in it,
    /// until they are written with another one; new rows are inserted with all their values, as ever.
    ///
    /// ```
    /// # use trefoil::{ColumnType, Schema, TableChanges, Value};
    /// # let people = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
    /// let more = people.with_changes(&TableChanges::new().add_column("visits", ColumnType::U32, 0u32.into()))?;
    /// assert_eq!(more.columns()[1].name, "visits");
    /// // A column that is not nullable needs a value, and one of its type.
    /// assert!(people.with_changes(&TableChanges::new().add_column("visits", ColumnType::U32, Value::Null)).is_err());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn add_column(mut self, name: &str, column_type: ColumnType, value: Value<'_>) -> Self {
        let column = Column { name: name.to_owned(), column_type, nullable: false, collation: None };
        self.0.push(Change::Add(column, value.into_owned()));
        self
    }

    /// Adds a column that may be NULL, behind the others. The rows that are there have `value` in it, NULL for example.
    ///
    /// ```
    /// # use trefoil::{ColumnType, Schema, TableChanges, Value};
    /// # let people = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
    /// let more = people.with_changes(&TableChanges::new().add_nullable("born", ColumnType::Timestamp, Value::Null))?;
    /// assert!(more.columns()[1].nullable);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn add_nullable(mut self, name: &str, column_type: ColumnType, value: Value<'_>) -> Self {
        let column = Column { name: name.to_owned(), column_type, nullable: true, collation: None };
        self.0.push(Change::Add(column, value.into_owned()));
        self
    }

    /// Drops a column that is neither in the primary key nor in an index.
    ///
    /// ```
    /// # use trefoil::{ColumnType, IndexSchema, Schema, TableChanges};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// let drop = TableChanges::new().drop_column("name");
    /// let fault = schema.with_changes(&drop).expect_err("an index has it");
    /// assert!(fault.to_string().contains("by_name"), "{fault}");
    /// assert_eq!(schema.without_index(0).with_changes(&drop)?.columns().len(), 1);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn drop_column(mut self, name: &str) -> Self {
        self.0.push(Change::Drop(name.to_owned()));
        self
    }

    /// Gives a column that is in no key a collation, or another one: also one that is added here.
    ///
    /// ```
    /// # use trefoil::{ColumnType, Schema, TableChanges};
    /// # let people = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
    /// let changes = TableChanges::new().add_column("city", ColumnType::Text, "".into()).collate("city", 1);
    /// assert_eq!(people.with_changes(&changes)?.columns()[1].collation, Some(1));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn collate(mut self, column: &str, collation: u32) -> Self {
        self.0.push(Change::Collate(column.to_owned(), collation));
        self
    }

    /// Gives a column another name, in the indexes that have it as well.
    ///
    /// ```
    /// # use trefoil::{ColumnType, IndexSchema, Schema, TableChanges};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// let renamed = schema.with_changes(&TableChanges::new().rename_column("name", "surname"))?;
    /// assert_eq!(renamed.indexes()[0].columns(), ["surname"]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn rename_column(mut self, name: &str, to: &str) -> Self {
        self.0.push(Change::Rename { from: name.to_owned(), to: to.to_owned() });
        self
    }

    /// Moves a column to the front.
    ///
    /// ```
    /// # use trefoil::{ColumnType, Schema, TableChanges};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).build()?;
    /// let moved = schema.with_changes(&TableChanges::new().move_first("name"))?;
    /// assert_eq!((moved.column_number("name"), moved.primary_key()), (Some(0), &[1][..]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn move_first(mut self, name: &str) -> Self {
        self.0.push(Change::Move { name: name.to_owned(), after: None });
        self
    }

    /// Moves a column to the place behind another one.
    ///
    /// ```
    /// # use trefoil::{ColumnType, Schema, TableChanges};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.column("city", ColumnType::Text).primary_key(&["id"]).build()?;
    /// let moved = schema.with_changes(&TableChanges::new().move_after("city", "id"))?;
    /// assert_eq!((moved.column_number("city"), moved.column_number("name")), (Some(1), Some(2)));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn move_after(mut self, name: &str, other: &str) -> Self {
        self.0.push(Change::Move { name: name.to_owned(), after: Some(other.to_owned()) });
        self
    }
}

impl TableChanges {
    /// Drops a secondary index.
    ///
    /// ```
    /// # use trefoil::{ColumnType, IndexSchema, Schema, TableChanges};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// let fewer = schema.with_changes(&TableChanges::new().drop_index("by_name").drop_column("name"))?;
    /// assert!(fewer.indexes().is_empty());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn drop_index(mut self, name: &str) -> Self {
        self.0.push(Change::DropIndex(name.to_owned()));
        self
    }

    /// Gives a secondary index another name.
    ///
    /// ```
    /// # use trefoil::{ColumnType, IndexSchema, Schema, TableChanges};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// let renamed = schema.with_changes(&TableChanges::new().rename_index("by_name", "names"))?;
    /// assert_eq!(renamed.index_number("names"), Some(0));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn rename_index(mut self, name: &str, to: &str) -> Self {
        self.0.push(Change::RenameIndex { from: name.to_owned(), to: to.to_owned() });
        self
    }

    /// Adds a foreign key. That the rows there are have parents is looked at, unless
    /// [`ChangeOptions::unchecked_foreign_keys`](crate::ChangeOptions::unchecked_foreign_keys) says otherwise.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).nullable("boss", ColumnType::I64);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_boss", &["boss"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// use trefoil::{Error, ForeignKey, TableChanges};
    ///
    /// let boss = TableChanges::new().add_foreign_key(ForeignKey::new("boss", &["boss"], "people", &["id"]));
    /// db.alter_table(&people, &boss)?;
    /// let mut tx = db.begin()?;
    /// assert!(matches!(tx.insert(&people, &[1i64.into(), 2i64.into()]), Err(Error::ForeignKey(_))));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn add_foreign_key(mut self, foreign_key: ForeignKey) -> Self {
        self.0.push(Change::AddForeignKey(foreign_key));
        self
    }

    /// Drops a foreign key. Its index stays.
    ///
    /// ```
    /// # use trefoil::{ColumnType, ForeignKey, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).nullable("boss", ColumnType::I64);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_boss", &["boss"]));
    /// # let schema = schema.foreign_key(ForeignKey::new("boss", &["boss"], "people", &["id"])).build()?;
    /// use trefoil::TableChanges;
    ///
    /// let free = schema.with_changes(&TableChanges::new().drop_foreign_key("boss").drop_index("by_boss"))?;
    /// assert!(free.foreign_keys().is_empty());
    /// assert!(schema.with_changes(&TableChanges::new().drop_index("by_boss")).is_err());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn drop_foreign_key(mut self, name: &str) -> Self {
        self.0.push(Change::DropForeignKey(name.to_owned()));
        self
    }

    /// Gives a foreign key another name; nothing if there is none of this one.
    ///
    /// ```
    /// # use trefoil::{ColumnType, ForeignKey, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).nullable("boss", ColumnType::I64);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_boss", &["boss"]));
    /// # let schema = schema.foreign_key(ForeignKey::new("boss", &["boss"], "people", &["id"])).build()?;
    /// use trefoil::TableChanges;
    ///
    /// let renamed = schema.with_changes(&TableChanges::new().rename_foreign_key("boss", "their_boss"))?;
    /// assert_eq!(renamed.foreign_keys()[0].name(), "their_boss");
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn rename_foreign_key(mut self, name: &str, to: &str) -> Self {
        self.0.push(Change::RenameForeignKey { from: name.to_owned(), to: to.to_owned() });
        self
    }

    /// Gives the columns of a foreign key other room ([`ForeignKey::room`], [`ForeignKey::room_in_characters`]); nothing if
    /// there is none of this name.
    ///
    /// ```
    /// # use trefoil::{ColumnType, ForeignKey, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).nullable("boss", ColumnType::I64);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_boss", &["boss"]));
    /// # let schema = schema.foreign_key(ForeignKey::new("boss", &["boss"], "people", &["id"]).room(&[2])).build()?;
    /// use trefoil::TableChanges;
    ///
    /// let wider = schema.with_changes(&TableChanges::new().fit_foreign_key("boss", &[4], &[0]))?;
    /// assert_eq!(wider.foreign_keys()[0], schema.foreign_keys()[0].clone().room(&[4]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn fit_foreign_key(mut self, name: &str, bytes: &[u32], characters: &[u32]) -> Self {
        let (bytes, characters) = (bytes.to_vec(), characters.to_vec());
        self.0.push(Change::FitForeignKey { name: name.to_owned(), bytes, characters });
        self
    }

    /// Columns that get another name, in the order of the changes.
    pub(crate) fn renamed_columns(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|change| match change {
            Change::Rename { from, to } => Some((from.as_str(), to.as_str())),
            _ => None,
        })
    }

    /// A foreign key of the table behind the changes, by the names that it and its columns have before them.
    pub(crate) fn foreign_key_before(&self, table: &str, foreign: &ForeignKey) -> ForeignKey {
        let renamed: Vec<_> = self.renamed_columns().collect();
        let before = |name: &mut String| {
            for (from, to) in renamed.iter().rev() {
                if name == to {
                    (*from).clone_into(name);
                }
            }
        };
        let mut foreign = foreign.clone();
        for change in self.0.iter().rev() {
            if let Change::RenameForeignKey { from, to } = change
                && foreign.name == *to
            {
                foreign.name.clone_from(from);
            }
        }
        foreign.columns.iter_mut().for_each(before);
        if foreign.parent == table {
            foreign.parent_columns.iter_mut().for_each(before);
        }
        foreign
    }

    /// True if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if there are foreign keys to add.
    pub(crate) fn adds_foreign_keys(&self) -> bool {
        self.0.iter().any(|change| matches!(change, Change::AddForeignKey(_)))
    }

    /// What is left of secondary indexes, in their order, each with its name.
    pub(crate) fn apply_to_indexes<T>(&self, indexes: &mut Vec<(String, T)>) {
        for change in &self.0 {
            match change {
                Change::DropIndex(gone) => indexes.retain(|(name, _)| name != gone),
                Change::RenameIndex { from, to } => {
                    indexes.iter_mut().filter(|(name, _)| name == from).for_each(|(name, _)| name.clone_from(to));
                }
                _ => {}
            }
        }
    }
}

impl Schema {
    /// The same table with its columns changed; rows stored so far are read with it as with the schema before. A value only:
    /// a table gets it by [`Database::alter_table`](crate::Database::alter_table).
    ///
    /// # Errors
    /// `Invalid` or `Limit` if a change does not fit.
    ///
    /// ```
    /// # use trefoil::{ColumnType, Schema, TableChanges};
    /// # let people = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
    /// let more = people.with_changes(&TableChanges::new().add_column("visits", ColumnType::U32, 0u32.into()))?;
    /// assert_eq!(more.columns().len(), 2);
    /// assert!(more.with_changes(&TableChanges::new().drop_column("id")).is_err()); // the primary key
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn with_changes(&self, changes: &TableChanges) -> Result<Self> {
        let mut parts = Parts::clone(&self.0);
        let mut versions = parts.versions.take().unwrap_or_else(|| Versions::first(&parts));
        for change in &changes.0 {
            match change {
                Change::Add(column, value) => parts.add(&mut versions, column, value)?,
                Change::Drop(name) => parts.drop_column(&mut versions, name)?,
                Change::Collate(name, collation) => parts.collate(name, *collation)?,
                Change::Rename { from, to } => parts.rename(from, to)?,
                Change::AddForeignKey(foreign) => parts.foreign_keys.push(foreign.clone()),
                Change::DropForeignKey(name) => {
                    let n = parts.foreign_keys.iter().position(|foreign| foreign.name == *name);
                    let n = n.ok_or_else(|| Fault::Invalid(format!("the table has no foreign key {name:?}")))?;
                    parts.foreign_keys.remove(n);
                }
                Change::RenameForeignKey { from, to } => {
                    for foreign in parts.foreign_keys.iter_mut().filter(|foreign| foreign.name == *from) {
                        to.clone_into(&mut foreign.name);
                    }
                }
                Change::FitForeignKey { name, bytes, characters } => {
                    for foreign in parts.foreign_keys.iter_mut().filter(|foreign| foreign.name == *name) {
                        *foreign = foreign.clone().room(bytes).room_in_characters(characters);
                    }
                }
                Change::DropIndex(name) => {
                    let n = parts.index_number(name)?;
                    parts.indexes.remove(n);
                }
                Change::RenameIndex { from, to } => {
                    let n = parts.index_number(from)?;
                    to.clone_into(&mut parts.indexes[n].name);
                }
                Change::Move { name, after } => parts.move_column(&mut versions, name, after.as_deref())?,
            }
        }
        versions.advance(&parts.held())?;
        parts.versions = (versions.newest() > 0).then_some(versions);
        parts.checked()
    }

    /// The same for a table that has no rows yet.
    pub(crate) fn of_new_table(&self) -> Self {
        if self.0.versions.is_none() {
            return self.clone();
        }
        let parts = Parts { versions: None, ..Parts::clone(&self.0) };
        parts.checked().expect("a valid schema stays valid without its past")
    }
}

impl Parts {
    fn add(&mut self, versions: &mut Versions, column: &Column, value: &Value<'_>) -> Result<()> {
        self.check_free(&column.name)?;
        check_value(column, value)?;
        let id = versions.new_id()?;
        if !value.is_null() {
            let mut bytes = Vec::new();
            row::put_value(&mut bytes, column.column_type, value);
            if bytes.len() > VALUE_BYTES_MAX {
                let (limit, got) = (VALUE_BYTES_MAX as u64, bytes.len() as u64);
                return Err(Fault::Limit { what: "bytes of the value of a new column", limit, got });
            }
            versions.values.insert(id, bytes);
        }
        self.columns.push(column.clone());
        versions.ids.push(id);
        Ok(())
    }

    /// An error if a column has this name: of two with one name the next change would take the wrong one, though the names are
    /// distinct again in the end.
    fn check_free(&self, name: &str) -> Result<()> {
        if self.columns.iter().any(|column| column.name == name) {
            return Err(Fault::Invalid(format!("the table has a column {name:?}")));
        }
        Ok(())
    }

    fn index_number(&self, name: &str) -> Result<usize> {
        let found = self.indexes.iter().position(|index| index.name == name);
        found.ok_or_else(|| Fault::Invalid(format!("the table has no index {name:?}")))
    }

    /// The number of a column that is in no key.
    fn free_of_keys(&self, name: &str) -> Result<usize> {
        let n = self.number(name)?;
        if self.primary.contains(&n) {
            return Err(Fault::Invalid(format!("column {name:?} is in the primary key")));
        }
        if let Some(index) = self.indexes.iter().find(|index| index.columns.iter().any(|column| column == name)) {
            let why = format!("column {name:?} is in index {:?}; drop the index first", index.name);
            return Err(Fault::Invalid(why));
        }
        Ok(n)
    }

    fn collate(&mut self, name: &str, collation: u32) -> Result<()> {
        let n = self.free_of_keys(name)?;
        self.columns[n].collation = Some(collation);
        Ok(())
    }

    fn drop_column(&mut self, versions: &mut Versions, name: &str) -> Result<()> {
        let n = self.free_of_keys(name)?;
        let (column, id) = (self.columns.remove(n), versions.ids.remove(n));
        self.primary.iter_mut().filter(|key| **key > n).for_each(|key| *key -= 1);
        versions.values.remove(&id);
        if versions.stored.iter().any(|stored| stored.contains(&id)) {
            versions.dropped.insert(id, (&column).into());
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let n = self.number(from)?;
        if to != from {
            self.check_free(to)?;
        }
        to.clone_into(&mut self.columns[n].name);
        let of_indexes = self.indexes.iter_mut().flat_map(|index| &mut index.columns);
        let of_foreign_keys = self.foreign_keys.iter_mut().flat_map(|foreign| &mut foreign.columns);
        for name in of_indexes.chain(of_foreign_keys).filter(|name| *name == from) {
            to.clone_into(name);
        }
        Ok(())
    }

    fn move_column(&mut self, versions: &mut Versions, name: &str, after: Option<&str>) -> Result<()> {
        let from = self.number(name)?;
        let other = after.map(|after| self.number(after)).transpose()?;
        if other == Some(from) {
            return Err(Fault::Invalid(format!("column {name:?} cannot be moved behind itself")));
        }
        let key: Vec<_> = self.primary.iter().map(|&n| versions.ids[n]).collect();
        let (column, id) = (self.columns.remove(from), versions.ids.remove(from));
        let to = other.map_or(0, |other| if other > from { other } else { other + 1 });
        self.columns.insert(to, column);
        versions.ids.insert(to, id);
        let place = |id: &u32| versions.ids.iter().position(|i| i == id).expect("columns of the key are of the table");
        self.primary = key.iter().map(place).collect();
        Ok(())
    }
}
