//! A table renamed, or emptied as a whole.
//!
//! A new name is one record of the catalog: rows, indexes and whoever has the table open stay as they are.
//!
//! Emptied is a table that gets new indexes, with nothing in them, and gives up those it had, in one commit of the catalog. So
//! it takes as long whatever it holds, and the space comes back as that of a dropped table does. It is another table then, of
//! the same name and definition: handles of the one before answer `Dropped`.
//!
//! Why a snapshot from before does not find it empty: its new indexes cannot be used by snapshots older than that commit, as
//! those that were built behind a snapshot cannot. They know of it before anybody can find them by the name.

use std::sync::Arc;

use super::{CatalogChange, Wait, catalog_rows, check_name, shape_of};
use crate::catalog;
use crate::commit::Room;
use crate::database::Database;
use crate::engine::Engine;
use crate::entry::TableEntry;
use crate::error::{Error, Result};
use crate::foreign;
use crate::gate::{GateClosed, Step};
use crate::handle::Table;

impl Database {
    /// Gives a table another name, whoever uses it. Handles and transactions go on with it. Durable on return.
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists` if a table has that name; `InvalidArgument` or `Limit` if it is no name; `Poisoned`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// let mut tx = db.begin()?;
    /// tx.insert(&people, &[1i64.into(), "Ada".into()])?;
    /// db.rename_table("people", "users")?;
    /// tx.insert(&people, &[2i64.into(), "Grace".into()])?; // it is the same table
    /// tx.commit()?;
    /// assert_eq!(people.name(), "users");
    /// assert!(db.table("people").is_err());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn rename_table(&self, name: &str, to: &str) -> Result<()> {
        self.engine().rename_table(name, to, &self.wait())
    }

    /// Empties a table in a moment, however many rows it has; the space comes back as that of a dropped table does. Durable on
    /// return. It waits for transactions that have written to the table, at most
    /// [`Options::lock_timeout`](crate::Options::lock_timeout). The handle is of the empty table; those from before answer
    /// `Dropped`, and snapshots from before get `DefinitionChanged` from the empty one.
    ///
    /// # Errors
    /// `NotFound`, `LockTimeout` if writers do not leave, `HeldByPrepared`, `DiskFull`, `Poisoned`. The table is as it was then.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// let mut tx = db.begin()?;
    /// tx.insert(&people, &[1i64.into(), "Ada".into()])?;
    /// tx.commit()?;
    /// let people = db.truncate_table("people")?;
    /// assert_eq!(db.begin()?.get_row(&people, &[1i64.into()])?, None);
    /// assert_eq!(people.schema().indexes().len(), 1); // as it was
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn truncate_table(&self, name: &str) -> Result<Table> {
        self.engine().truncate_table(name, &self.wait()).map(Table)
    }

    /// Waits until each transaction that has written to the table is decided, prepared ones too: for a caller that keeps others
    /// away from the table and is about to copy its rows, among which theirs must be.
    ///
    /// # Errors
    /// `LockTimeout`, `HeldByPrepared`, `Cancelled`, `Closed`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ChangeOptions, ColumnType, Error, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// let mut tx = db.begin()?;
    /// tx.insert(&people, &[1i64.into()])?;
    /// let at_once = || db.changing(ChangeOptions { lock_timeout: Some(std::time::Duration::ZERO), ..Default::default() });
    /// assert!(matches!(at_once().wait_for_writers(&people), Err(Error::LockTimeout { .. })));
    /// tx.commit()?;
    /// at_once().wait_for_writers(&people)?;
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn wait_for_writers(&self, table: &Table) -> Result<()> {
        self.engine().wait_for_writers(&table.0, &self.wait())
    }

    /// From now on snapshots from before this moment get `DefinitionChanged` from the table, as they do from one that was
    /// emptied: for one that takes the place of another, whose rows they would look for in vain. Until the database is closed:
    /// no snapshot lasts longer.
    ///
    /// # Errors
    /// `Dropped`, `Closed`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, Error, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build()?;
    /// let before = db.begin()?;
    /// before.snapshot_after_reserved()?;
    /// let people = db.create_table("people", schema)?;
    /// let mut tx = db.begin()?;
    /// tx.insert(&people, &[1i64.into()])?;
    /// tx.commit()?;
    /// db.hide_from_older_snapshots(&people)?;
    /// assert!(matches!(before.get_row(&people, &[1i64.into()]), Err(Error::DefinitionChanged { .. })));
    /// assert!(db.begin()?.get_row(&people, &[1i64.into()])?.is_some());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn hide_from_older_snapshots(&self, table: &Table) -> Result<()> {
        let (ts, shape) = (self.snapshot()?.ts(), table.0.shape());
        shape.primary.check()?;
        std::iter::once(&shape.primary).chain(&shape.secondaries).for_each(|entry| entry.hide_before(ts));
        Ok(())
    }
}

impl Engine {
    fn rename_table(&self, name: &str, to: &str, wait: &Wait<'_>) -> Result<()> {
        check_name(to)?;
        self.check_open()?;
        self.check_not_read_only()?;
        let (table, _turn) = self.turn_at(name, wait)?;
        let (_alone, _step) = self.step_of_rename(&table, to, wait)?;
        if name == to {
            return Ok(());
        }
        if self.names.read().tables.contains_key(to) {
            return Err(Error::AlreadyExists { kind: "table", name: to.to_owned() });
        }
        let _rows = self.catalog_rows.lock();
        let mut def = table.shape().def.clone();
        to.clone_into(&mut def.name);
        let followers = match wait.options().leave_references {
            true => Vec::new(),
            false => {
                def.schema = def.schema.with_parent_renamed(name, to).unwrap_or(def.schema);
                self.followers(&table, |child| child.with_parent_renamed(name, to))
            }
        };
        // A copy was looked at when it was made.
        let unchecked = wait.options().leave_references && wait.options().unchecked_foreign_keys;
        self.check_parent((to, &def.schema), None, &[], unchecked)?;
        let mut change = foreign::rows_of(&followers, &self.names.read());
        change.push((catalog::table_key(def.id).to_vec(), Some(def.encode())));
        self.commit_catalog(change, Room::Reserve)?;
        vfs::thread::point("ddl.renamed");
        let mut names = self.names.write();
        table.rename(def);
        foreign::publish(followers, &mut names);
        names.relink(&table);
        names.tables.remove(name);
        names.left.retain(|left, by| left != to && *by != table.id);
        if wait.options().leave_references && !names.children(name).is_empty() {
            names.left.insert(name.to_owned(), table.id);
        }
        names.tables.insert(to.to_owned(), table.clone());
        Ok(())
    }

    /// The step of a table that gets the name `to`. Writers that do not know of the children that wait for a table of that name are
    /// let out first, as for a new child: see [`Engine::wait_for_unaware`]. Nobody is inside if that is asked for: then the gate is
    /// closed until the name is another one.
    fn step_of_rename<'a>(
        &'a self,
        table: &'a TableEntry,
        to: &str,
        wait: &Wait<'_>,
    ) -> Result<(Vec<GateClosed<'a>>, Step<'a>)> {
        let has_unaware = || {
            let (names, shape) = (self.names.read(), table.shape());
            // One that comes back to its name was written to under it.
            let is_back = table.name() == to || names.left.get(to) == Some(&table.id);
            let mut columns = foreign::referenced(&names, to, &shape.def.schema).into_iter();
            !is_back && columns.any(|columns| !shape.def.schema.has_whole_primary_key(&columns))
        };
        if wait.options().without_writers {
            return self.step_alone(table, "(the whole table, to be renamed)", wait);
        }
        loop {
            if has_unaware() {
                let why = "(the whole table, for the tables that refer to its new name)";
                return self.step_alone(table, why, wait);
            }
            let step = self.steps.take(|| wait.look())?;
            // A child may have been made meanwhile.
            if !has_unaware() {
                return Ok((Vec::new(), step));
            }
        }
    }

    fn truncate_table(&self, name: &str, wait: &Wait<'_>) -> Result<Arc<TableEntry>> {
        self.check_writable()?;
        self.check_room()?;
        let (table, _turn) = self.turn_at(name, wait)?;
        self.check_unreferenced(&table, wait)?;
        let _alone = self.step_alone(&table, "(the whole table, to be emptied)", wait)?;
        self.check_unreferenced(&table, wait)?;
        let _rows = self.catalog_rows.lock();
        let old = table.shape();
        let (def, new) = self.new_table(name, old.def.schema.of_new_table())?;
        let mut change: CatalogChange = catalog_rows(&def, &new);
        let gone: Vec<_> = std::iter::once(&old.primary).chain(&old.secondaries).cloned().collect();
        change.extend(gone.iter().map(|entry| (catalog::index_key(entry.id()).to_vec(), None)));
        change.push((catalog::table_key(old.def.id).to_vec(), None));
        let ts = self.publish_new(&new, change)?;
        vfs::thread::point("ddl.truncated");
        new.iter().for_each(|entry| entry.set_usable_from(ts));
        let empty = TableEntry::new(shape_of(def, new));
        let mut names = self.names.write();
        names.unlink(table.id);
        names.link(&empty);
        names.tables.insert(name.to_owned(), empty.clone());
        drop(names);
        self.bury(gone, ts);
        Ok(empty)
    }
}
