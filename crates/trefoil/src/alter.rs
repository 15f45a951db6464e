//! Changing the columns of a table, whatever the number of its rows; dropping and renaming indexes along with that.
//!
//! 1. The gate of the table is closed and its writers have left: whoever writes behind that does so with the new definition.
//!    A prepared transaction is inside until it is decided.
//! 2. The new definition is one record of the catalog, durable before it is acted on (rule A26).
//! 3. It is public. No row is touched: each says in which version it is written, and is read so (`table/versions.rs`).
//!
//! Who reads beside it has the old definition or the new one. Both give the right values of rows from before, so a snapshot
//! of any age is read with the definition of now. Rows from behind it say a version that the old definition does not know:
//! whoever meets one with that gets `DefinitionChanged`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::CommitTs;

use crate::catalog::{self, IndexDef, TableDef};
use crate::commit::Room;
use crate::database::Database;
use crate::ddl::{CatalogChange, Former, Wait};
use crate::engine::Engine;
use crate::entry::{IndexEntry, Names, TableEntry, TableShape};
use crate::error::Result;
use crate::foreign;
use crate::gate::Taken;
use crate::handle::Table;
use crate::layout::FORMAT_VERSIONS;
use crate::options::TransactionOptions;
use crate::table::{IndexSchema, Schema, TableChanges};
use crate::transaction::Transaction;

/// What changes come to, before the catalog has it.
pub struct Planned {
    pub def: TableDef,
    /// Children, with what their definitions are behind it.
    followers: Vec<(Arc<TableEntry>, Schema)>,
    /// Secondary indexes that stay, by the names that they have behind it.
    left: Vec<(String, Arc<IndexEntry>)>,
    gone: Vec<Arc<IndexEntry>>,
}

impl Planned {
    /// No change.
    pub fn same(now: &TableShape) -> Self {
        let named = |(index, entry): (&IndexSchema, &Arc<IndexEntry>)| (index.name().to_owned(), entry.clone());
        let left = now.def.schema.indexes().iter().zip(&now.secondaries).map(named).collect();
        Self { def: now.def.clone(), followers: Vec::new(), left, gone: Vec::new() }
    }

    /// What the catalog is told.
    pub fn rows(&self, names: &Names) -> CatalogChange {
        let mut change: CatalogChange = vec![(catalog::table_key(self.def.id).to_vec(), Some(self.def.encode()))];
        change.extend(foreign::rows_of(&self.followers, names));
        change.extend(self.gone.iter().map(|entry| (catalog::index_key(entry.id()).to_vec(), None)));
        let renamed = self.left.iter().filter(|(name, entry)| name != entry.name());
        change.extend(renamed.map(|(name, entry)| {
            let def = IndexDef { name: name.clone(), ..entry.def.clone() };
            (catalog::index_key(entry.id()).to_vec(), Some(def.encode()))
        }));
        change
    }
}

impl Database {
    /// Adds, drops, renames and moves columns of a table, drops and renames its secondary indexes: in a moment, however many rows it has. They stay as they are
    /// written and are read as the table is now; a row takes its new form when it is next written. Durable on return.
    ///
    /// It waits for transactions that have written to the table, at most [`Options::lock_timeout`](crate::Options), and
    /// those that want to wait for it. What reads goes on: snapshots and cursors that are open when the columns are changed
    /// show the rows as the table was when they were opened, or as it is now; a cursor over the newest rows that meets one
    /// written behind the change gives `DefinitionChanged`.
    ///
    /// A table has at most 240 versions; one is used each time that columns beside the primary key are added, dropped or
    /// change places.
    ///
    /// # Errors
    /// `InvalidArgument` if a change does not fit: an unknown column, a column of the primary key or of an index dropped;
    /// `Limit`; `LockTimeout`, `HeldByPrepared`; `UpgradeRequired` if the database is older ([`Database::upgrade`]).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # tx.insert(&people, &[1i64.into(), "Ada".into()])?;
    /// # tx.commit()?;
    /// use trefoil::{TableChanges, Value};
    ///
    /// db.alter_table(&people, &TableChanges::new().add_nullable("city", ColumnType::Text, Value::Null))?;
    /// let mut tx = db.begin()?;
    /// assert_eq!(tx.get_row(&people, &[1i64.into()])?, Some(vec![1i64.into(), "Ada".into(), Value::Null]));
    /// tx.insert(&people, &[2i64.into(), "Grace".into(), "New York".into()])?;
    /// tx.commit()?;
    /// assert!(db.alter_table(&people, &TableChanges::new().drop_column("name")).is_err()); // `by_name` has it
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn alter_table(&self, table: &Table, changes: &TableChanges) -> Result<()> {
        self.engine().alter_table(&table.0, changes, &self.wait())
    }
}

impl Engine {
    fn alter_table(self: &Arc<Self>, table: &Arc<TableEntry>, changes: &TableChanges, wait: &Wait<'_>) -> Result<()> {
        self.check_writable()?;
        self.check_room()?;
        self.check_format(FORMAT_VERSIONS)?;
        let is_checked = changes.adds_foreign_keys() && !wait.options().unchecked_foreign_keys;
        let (parents, _turns) = self.turns_with_parents(table, changes, wait)?;
        let shape = table.shape();
        shape.primary.check()?;
        self.check_undamaged(&shape.primary)?;
        // What does not fit is found before anybody has to wait.
        let planned = shape.def.schema.with_changes(changes)?;
        self.check_format(planned.format())?;
        let mut all: Vec<_> = parents.iter().map(|parent| (&**parent, foreign::OF_PARENT)).collect();
        all.push((table, "(the whole table, for a change of its columns)"));
        let _alone = self.step_alone_in(&all, wait)?;
        vfs::thread::point("alter.closed");
        let _rows = self.catalog_rows.lock();
        let Some(planned) = self.plan_changes(table, changes, wait)? else { return Ok(()) };
        // Rows are read by the definition that they have.
        let (name, keys) = (table.name(), planned.def.schema.foreign_keys());
        let before: Vec<_> = keys.iter().map(|key| changes.foreign_key_before(name, key)).collect();
        if is_checked
            && let Some(orphan) =
                Transaction::begin(self, TransactionOptions::default())?.first_orphan(table, &before)?
        {
            return Err(orphan);
        }
        let change = planned.rows(&self.names.read());
        let ts = self.commit_catalog(change, Room::Ordinary)?;
        vfs::thread::point("alter.committed");
        self.put_planned(table, planned, ts, None::<(_, fn() -> Former)>);
        Ok(())
    }

    /// What the changes come to; none if that is nothing. The caller holds `catalog_rows`, and nobody writes to the table.
    pub fn plan_changes(
        self: &Arc<Self>,
        table: &Arc<TableEntry>,
        changes: &TableChanges,
        wait: &Wait<'_>,
    ) -> Result<Option<Planned>> {
        let now = table.shape();
        let mut def = now.def.clone();
        let schema = def.schema.with_changes(changes)?;
        if schema == def.schema {
            return Ok(None);
        }
        let (name, followers) = (table.name(), self.followers_of_columns(table, changes));
        let schema = renamed_in_parent(&schema, name, changes).unwrap_or(schema);
        self.check_foreign_keys((name, &schema), Some((name, &def.schema, changes)), wait)?;
        let unchecked = wait.options().unchecked_foreign_keys;
        self.check_parent((name, &schema), Some(&def.schema), &followers, unchecked)?;
        let mut left = Planned::same(&now).left;
        changes.apply_to_indexes(&mut left);
        let is_gone = |entry: &&Arc<IndexEntry>| !left.iter().any(|(_, other)| other.id() == entry.id());
        let gone = now.secondaries.iter().filter(is_gone).cloned().collect();
        def.schema = schema;
        def.secondaries = left.iter().map(|(_, entry)| entry.id()).collect();
        Ok(Some(Planned { def, followers, left, gone }))
    }

    /// The catalog has it: now everybody has. `rows`: the entry of the rows from now on, and what ends that of before in the same
    /// moment.
    pub fn put_planned(
        &self,
        table: &Arc<TableEntry>,
        planned: Planned,
        ts: CommitTs,
        rows: Option<(Arc<IndexEntry>, impl FnOnce() -> Former)>,
    ) {
        let Planned { def, followers, left, gone } = planned;
        let (primary, ends) = rows.unzip();
        let mut names = self.names.write();
        foreign::publish(followers, &mut names);
        table.update_shape(|now| {
            gone.iter().for_each(|entry| entry.set_dropped(ts));
            left.iter().filter(|(name, entry)| name != entry.name()).for_each(|(name, entry)| entry.rename(name));
            let primary = primary.unwrap_or_else(|| now.primary.clone());
            TableShape::new(def, primary, left.iter().map(|(_, entry)| entry.clone()).collect())
        });
        names.former.extend(ends.map(|ends| ends()));
        names.relink(table);
        if !names.references.is_empty() {
            self.has_foreign_keys.store(true, Ordering::Relaxed);
        }
        drop(names);
        self.bury(gone, ts);
    }

    /// The parents whose writers are kept out, and the turns of these and of the table, in the order of their numbers: whoever
    /// closes the gate of a table has its turn.
    fn turns_with_parents(
        &self,
        table: &Arc<TableEntry>,
        changes: &TableChanges,
        wait: &Wait<'_>,
    ) -> Result<(Vec<Arc<TableEntry>>, Vec<Taken>)> {
        loop {
            let parents = self.parents_of_change(table, changes, wait);
            let mut all: Vec<_> = parents.iter().chain([table]).collect();
            all.sort_unstable_by_key(|table| table.id);
            let turns = all.into_iter().map(|table| self.turn_of(table, wait)).collect::<Result<Vec<_>>>()?;
            let ids = |tables: &[Arc<TableEntry>]| tables.iter().map(|table| table.id).collect::<Vec<_>>();
            if ids(&self.parents_of_change(table, changes, wait)) == ids(&parents) {
                return Ok((parents, turns));
            }
        }
    }

    /// Parents that foreign keys are added to: all of them if rows are to be checked, else those whose writers have to know, see
    /// [`Engine::wait_for_unaware`].
    fn parents_of_change(
        &self,
        table: &Arc<TableEntry>,
        changes: &TableChanges,
        wait: &Wait<'_>,
    ) -> Vec<Arc<TableEntry>> {
        // One that does not fit is refused behind the turn.
        let planned = table.shape().def.schema.with_changes(changes).ok().filter(|_| changes.adds_foreign_keys());
        let Some(planned) = planned else { return Vec::new() };
        let mut parents = match wait.options().unchecked_foreign_keys {
            true => self.unaware_parents_of(table.name(), &planned),
            false => self.parents_of(table.name(), &planned),
        };
        parents.sort_unstable_by_key(|parent| parent.id);
        parents
    }

    /// Tables whose foreign keys refer to columns that get another name.
    fn followers_of_columns(&self, table: &TableEntry, changes: &TableChanges) -> Vec<(Arc<TableEntry>, Schema)> {
        self.followers(table, |child| renamed_in_parent(child, table.name(), changes))
    }
}

/// The definition of a child behind a change of the names of its parent's columns; none if it does not name them.
fn renamed_in_parent(child: &Schema, parent: &str, changes: &TableChanges) -> Option<Schema> {
    changes.renamed_columns().fold(None, |now: Option<Schema>, (from, to)| {
        now.as_ref().unwrap_or(child).with_parent_column_renamed(parent, from, to).or(now)
    })
}
