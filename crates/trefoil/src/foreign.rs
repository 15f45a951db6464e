//! Foreign keys in the catalog: who refers to whom, and what a change of a definition may not take away.
//!
//! A foreign key is in the definition of its child and names its parent. A parent finds its children by its own name
//! ([`Names::children`]), in a map that is built when the database is opened and kept by every change that makes, drops or renames
//! a table or a foreign key. A parent may be missing; it is bound as soon as a table of its name is there.
//!
//! Invariants: a child and the names of its parents change under one hold of [`Engine::names`], so that whoever reads a foreign
//! key and looks for its parent under that lock finds the right table; whoever relies on a definition, of a child or of a
//! parent, is inside the gate of that table.

use std::sync::Arc;

use base::IndexId;

use crate::catalog;
use crate::database::Database;
use crate::ddl::{CatalogChange, Wait};
use crate::engine::Engine;
use crate::entry::{Names, TableEntry, TableShape};
use crate::error::{Error, Result};
use crate::gate::GateWait;
use crate::table::{ForeignKey, Schema, TableChanges};

/// What is waited for at a parent.
pub const OF_PARENT: &str = "(the whole table, for a foreign key that refers to it)";

/// The columns of the parent that a foreign key refers to, or why it can refer to nothing there.
pub fn bind(foreign: &ForeignKey, child: &Schema, parent: &Schema) -> std::result::Result<Vec<usize>, String> {
    let mut columns = Vec::with_capacity(foreign.columns().len());
    for (own, other) in foreign.columns().iter().zip(foreign.parent_columns()) {
        let parent_table = foreign.parent();
        let Some(n) = parent.column_number(other) else {
            return Err(format!("table {parent_table:?} has no column {other:?}"));
        };
        // Of a definition that has changed since the foreign key was looked at.
        let own = child.column_number(own).ok_or_else(|| format!("its table has no column {own:?}"))?;
        let (own, other) = (&child.columns()[own], &parent.columns()[n]);
        if own.column_type != other.column_type || own.collation != other.collation {
            let names = (&own.name, &other.name);
            return Err(format!(
                "column {:?} and column {:?} of {parent_table:?} are not of one type",
                names.0, names.1
            ));
        }
        columns.push(n);
    }
    if parent.index_over(&columns).is_none() {
        let wanted = foreign.parent_columns().join(", ");
        return Err(format!("table {:?} has no index that begins with ({wanted}), whole", foreign.parent()));
    }
    Ok(columns)
}

/// True if a column of the parent goes that a foreign key refers to.
fn loses_column((old, before): (&ForeignKey, &Schema), (new, now): (&ForeignKey, &Schema)) -> bool {
    let mut names = old.parent_columns().iter().zip(new.parent_columns());
    names.any(|(old, new)| before.column_number(old).is_some() && now.column_number(new).is_none())
}

impl Names {
    /// Tables with foreign keys to a table of this name.
    pub fn children(&self, parent: &str) -> &[Arc<TableEntry>] {
        self.references.get(parent).map_or(&[], Vec::as_slice)
    }

    /// Notes whom a table refers to.
    pub fn link(&mut self, table: &Arc<TableEntry>) {
        for foreign in table.shape().def.schema.foreign_keys() {
            let children = self.references.entry(foreign.parent().to_owned()).or_default();
            if children.iter().all(|child| child.id != table.id) {
                children.push(table.clone());
            }
        }
    }

    /// It refers to nobody any more.
    pub fn unlink(&mut self, table: IndexId) {
        self.references.retain(|_, children| {
            children.retain(|child| child.id != table);
            !children.is_empty()
        });
    }

    /// Behind a change of its foreign keys.
    pub fn relink(&mut self, table: &Arc<TableEntry>) {
        self.unlink(table.id);
        self.link(table);
    }
}

impl Database {
    /// Foreign keys to the table of this name, each with the table that has it; there may be some although there is no such
    /// table.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// use trefoil::{ColumnType, ForeignKey, IndexSchema, Schema};
    ///
    /// let people = Schema::builder().column("id", ColumnType::I64).nullable("boss", ColumnType::I64).primary_key(&["id"]);
    /// let people = people.index(IndexSchema::new("by_boss", &["boss"]));
    /// let people = people.foreign_key(ForeignKey::new("boss", &["boss"], "people", &["id"])).build()?;
    /// db.create_table("people", people)?;
    /// let references = db.references_to("people");
    /// assert_eq!((references[0].0.as_str(), references[0].1.name()), ("people", "boss"));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn references_to(&self, table: &str) -> Vec<(String, ForeignKey)> {
        let names = self.engine().names.read();
        let mut all = Vec::new();
        for child in names.children(table) {
            let shape = child.shape();
            let to_it = shape.def.schema.foreign_keys().iter().filter(|foreign| foreign.parent() == table);
            all.extend(to_it.map(|foreign| (child.name().to_owned(), foreign.clone())));
        }
        all
    }

    /// True if there is such a foreign key to the table of this name: what is asked with each row copies none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// assert!(!db.any_reference_to("people", |_| true));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn any_reference_to(&self, table: &str, is_such: impl Fn(&ForeignKey) -> bool) -> bool {
        let names = self.engine().names.read();
        names.children(table).iter().any(|child| {
            let shape = child.shape();
            shape.def.schema.foreign_keys().iter().any(|foreign| foreign.parent() == table && is_such(foreign))
        })
    }
}

impl Database {
    /// All foreign keys, each with the table that has it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// assert!(db.foreign_keys().is_empty());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn foreign_keys(&self) -> Vec<(String, ForeignKey)> {
        let names = self.engine().names.read();
        let mut all = Vec::new();
        for (parent, children) in &names.references {
            for child in children {
                let shape = child.shape();
                let to_it = shape.def.schema.foreign_keys().iter().filter(|foreign| foreign.parent() == parent);
                all.extend(to_it.map(|foreign| (child.name().to_owned(), foreign.clone())));
            }
        }
        all
    }
}

impl Engine {
    /// That each foreign key of a table, as it is going to be, finds what it refers to. `before`: the table as it was, and the name
    /// under which it is looked for; none if it comes. Who found nothing there need not find it now. With unchecked ones the parent
    /// of one that comes may be missing, and one that was there may lose what it refers to.
    pub fn check_foreign_keys(
        &self,
        (name, schema): (&str, &Schema),
        before: Option<(&str, &Schema, &TableChanges)>,
        wait: &Wait<'_>,
    ) -> Result<()> {
        let unchecked = wait.options().unchecked_foreign_keys;
        for foreign in schema.foreign_keys() {
            let Err(unbound) = self.look_for_parent(foreign, name, schema) else { continue };
            let was = before.and_then(|(name, schema, changes)| {
                let was = changes.foreign_key_before(name, foreign);
                let found = || self.look_for_parent(&was, name, schema);
                schema.foreign_keys().iter().any(|old| old.is_like(&was)).then(found)
            });
            let is_let = match was {
                Some(was) => unchecked || was.is_err(),
                None => unchecked && unbound.is_none(),
            };
            if !is_let {
                let why = unbound.unwrap_or_else(|| format!("there is no table {:?}", foreign.parent()));
                return Err(Error::ForeignKeyRefused { constraint: foreign.name().to_owned(), why });
            }
        }
        Ok(())
    }

    /// That a foreign key of a table of this name and definition finds what it refers to, or why not; none: its parent is missing.
    fn look_for_parent(
        &self,
        foreign: &ForeignKey,
        name: &str,
        schema: &Schema,
    ) -> std::result::Result<(), Option<String>> {
        let bound = if foreign.parent() == name {
            bind(foreign, schema, schema)
        } else {
            let parent = self.names.read().tables.get(foreign.parent()).cloned().ok_or(None)?;
            bind(foreign, schema, &parent.shape().def.schema)
        };
        bound.map(|_| ()).map_err(Some)
    }

    /// That a table of this name can be what others' foreign keys refer to, as it is going to be. `before`: the table as it was; none
    /// if it comes. `followers`: those that refer to its columns by their new names. Who found nothing before need not find it now.
    /// With unchecked ones an index may go; a column that is referred to never does.
    pub fn check_parent(
        &self,
        (name, schema): (&str, &Schema),
        before: Option<&Schema>,
        followers: &[(Arc<TableEntry>, Schema)],
        unchecked: bool,
    ) -> Result<()> {
        for child in self.names.read().children(name).iter().filter(|child| child.name() != name) {
            let was = child.shape().def.schema.clone();
            let now = followers.iter().find(|(other, _)| other.id == child.id).map_or(&was, |(_, schema)| schema);
            let pairs = was.foreign_keys().iter().zip(now.foreign_keys());
            for (old, new) in pairs.filter(|(old, _)| old.parent() == name) {
                let Err(what) = bind(new, now, schema) else { continue };
                let is_let = unchecked || before.is_some_and(|before| bind(old, &was, before).is_err());
                if !is_let || before.is_some_and(|before| loses_column((old, before), (new, schema))) {
                    let (constraint, table) = (new.name().to_owned(), child.name().to_owned());
                    return Err(Error::NeededByForeignKey { what, constraint, table });
                }
            }
        }
        Ok(())
    }

    /// That no other table refers to this one, which is going away with its rows.
    pub fn check_unreferenced(&self, table: &TableEntry, wait: &Wait<'_>) -> Result<()> {
        if wait.options().unchecked_foreign_keys {
            return Ok(());
        }
        let names = self.names.read();
        let Some(child) = names.children(table.name()).iter().find(|child| child.id != table.id) else { return Ok(()) };
        let shape = child.shape();
        let foreign = shape.def.schema.foreign_keys().iter().find(|foreign| foreign.parent() == table.name());
        let constraint = foreign.map_or_else(String::new, |foreign| foreign.name().to_owned());
        let what = format!("table {:?}", table.name());
        Err(Error::NeededByForeignKey { what, constraint, table: child.name().to_owned() })
    }

    /// That no foreign key of a table needs its index `n`, which is going away.
    pub fn check_index_unneeded(
        &self,
        table: &TableEntry,
        shape: &TableShape,
        n: usize,
        wait: &Wait<'_>,
    ) -> Result<()> {
        let schema = &shape.def.schema;
        if let Some(foreign) = schema.foreign_key_on(n) {
            let what = format!("index {:?}", schema.indexes()[n].name());
            let (constraint, table) = (foreign.name().to_owned(), table.name().to_owned());
            return Err(Error::NeededByForeignKey { what, constraint, table });
        }
        let (name, before, schema) = (table.name(), schema, schema.without_index(n));
        self.check_parent((name, &schema), Some(before), &[], wait.options().unchecked_foreign_keys)?;
        self.check_foreign_keys((name, &schema), Some((name, before, &TableChanges::new())), wait)
    }

    /// The parents of foreign keys, as far as they are there, each once and other than `of` itself.
    pub fn parents_of(&self, of: &str, schema: &Schema) -> Vec<Arc<TableEntry>> {
        let names = self.names.read();
        let mut parents: Vec<Arc<TableEntry>> = Vec::new();
        for foreign in schema.foreign_keys().iter().filter(|foreign| foreign.parent() != of) {
            let parent = names.tables.get(foreign.parent());
            parents.extend(parent.filter(|parent| parents.iter().all(|other| other.id != parent.id)).cloned());
        }
        parents
    }

    /// Those of them whose key that is referred to is not the primary key: see [`Engine::wait_for_unaware`].
    pub fn unaware_parents_of(&self, of: &str, schema: &Schema) -> Vec<Arc<TableEntry>> {
        let mut parents = self.parents_of(of, schema);
        parents.retain(|parent| {
            let shape = parent.shape();
            let to_it = schema.foreign_keys().iter().filter(|foreign| foreign.parent() == parent.name());
            let mut columns = to_it.filter_map(|foreign| bind(foreign, schema, &shape.def.schema).ok());
            columns.any(|columns| !shape.def.schema.has_whole_primary_key(&columns))
        });
        // In one order, whoever takes turns at several.
        parents.sort_unstable_by_key(|parent| parent.id);
        parents
    }

    /// Behind the announcement of a new child: whoever wrote to its parents without knowing of it is done.
    ///
    /// Why: what removes a parent's key other than the primary key locks the key by a name of its own, and only if there is a
    /// child. T1 removes a row of the parent; the child is made; T2 inserts a row of the child, whose parent it still finds,
    /// since nothing keeps it from it; both commit.
    pub fn wait_for_unaware(&self, parents: &[Arc<TableEntry>], wait: &Wait<'_>) -> Result<()> {
        for parent in parents {
            let (wait, mut gate_wait) = (wait.again(), GateWait::default());
            while !parent.gate.wait_for_writers(&mut gate_wait, crate::ddl::LOOK) {
                wait.look()?;
                self.check_open()?;
                if wait.is_over() {
                    self.check_unprepared(parent.name(), parent.id)?;
                    return Err(wait.timeout(parent, OF_PARENT));
                }
            }
        }
        Ok(())
    }

    /// Tables whose foreign keys follow a change of names at the parent, with their new definitions: `change` gives that.
    pub fn followers(
        &self,
        parent: &TableEntry,
        mut change: impl FnMut(&Schema) -> Option<Schema>,
    ) -> Vec<(Arc<TableEntry>, Schema)> {
        let names = self.names.read();
        let others = names.children(parent.name()).iter().filter(|child| child.id != parent.id);
        others.filter_map(|child| change(&child.shape().def.schema).map(|schema| (child.clone(), schema))).collect()
    }
}

/// The catalog's rows of tables whose foreign keys follow; to be called with the step taken. One that is announced and not made
/// yet has none: it follows in memory, and its row is written from there if it is made.
pub fn rows_of(followers: &[(Arc<TableEntry>, Schema)], names: &Names) -> CatalogChange {
    let row = |(table, schema): &(Arc<TableEntry>, Schema)| {
        let mut def = table.shape().def.clone();
        def.schema = schema.clone();
        (catalog::table_key(def.id).to_vec(), Some(def.encode()))
    };
    let is_made = |table: &TableEntry| names.tables.get(table.name()).is_some_and(|made| made.id == table.id);
    followers.iter().filter(|(table, _)| is_made(table)).map(row).collect()
}

/// Their new definitions are public; to be called with the names held.
pub fn publish(followers: Vec<(Arc<TableEntry>, Schema)>, names: &mut Names) {
    for (table, schema) in followers {
        table.update_shape(|now| {
            let mut def = now.def.clone();
            def.schema = schema;
            let mut shape = TableShape::new(def, now.primary.clone(), now.secondaries.clone());
            shape.maintained = now.maintained.clone();
            shape
        });
        names.relink(&table);
    }
}

/// Columns of a table that foreign keys refer to, each list once.
pub fn referenced(names: &Names, name: &str, schema: &Schema) -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    for child in names.children(name) {
        let shape = child.shape();
        for foreign in shape.def.schema.foreign_keys().iter().filter(|foreign| foreign.parent() == name) {
            let columns = bind(foreign, &shape.def.schema, schema).ok();
            all.extend(columns.filter(|columns| !all.contains(columns)));
        }
    }
    all
}

/// Those of these foreign keys of a table, be they made or not, that find their parents, with these and their columns.
pub fn bound(
    names: &Names,
    table: &Arc<TableEntry>,
    keys: &[ForeignKey],
) -> Vec<(ForeignKey, Arc<TableShape>, Vec<usize>)> {
    let bound = |foreign: &ForeignKey| {
        let parent = if foreign.parent() == table.name() { table } else { names.tables.get(foreign.parent())? };
        let (foreign, parent) = (foreign.clone(), parent.shape());
        let columns = bind(&foreign, &table.shape().def.schema, &parent.def.schema).ok()?;
        Some((foreign, parent, columns))
    };
    keys.iter().filter_map(bound).collect()
}

/// Foreign keys to a table, each with the child that has it.
pub fn downwards(names: &Names, parent: &str) -> Vec<(Arc<TableEntry>, ForeignKey)> {
    let mut all = Vec::new();
    for child in names.children(parent) {
        let shape = child.shape();
        let to_it = shape.def.schema.foreign_keys().iter().filter(|foreign| foreign.parent() == parent);
        all.extend(to_it.map(|foreign| (child.clone(), foreign.clone())));
    }
    all
}
