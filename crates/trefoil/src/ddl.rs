//! Changing definitions: create and drop indexes and tables.
//!
//! Every change is one logged transaction on index 0 (rule A26), synced before it is acted on. One at a time
//! (`Engine::steps`); what has to be waited for before is waited for by changes of that table alone: [`waiting`]. A new index is registered with the engine *before* its catalog record, so that a
//! checkpoint in between keeps its state; if the record never becomes durable, recovery finds a state whose
//! id the catalog does not know and frees it. A dropped index is unregistered only *after* the record is
//! durable, and its blocks are freed when no handle, table or cursor is left that could read them.
//!
//! Indexes are added to a table that has rows beside its writers: module [`online`]; rows get another structure beside them:
//! [`rows`]. Tables renamed and emptied: [`tables`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{CommitTs, Fault, IndexId};
use index::{BatchBuilder, Expiry, IndexEnv, Op, Ranged, RunFiles};
use store::Class;

use crate::catalog::{self, IndexDef, Role, TableDef};
use crate::commit::{Changes, Room};
use crate::counters::Counters;
use crate::engine::Engine;
use crate::entry::{IndexEntry, TableEntry, TableShape};
use crate::error::{Error, Result};
use crate::layout::FORMAT_BASEMENTS;
use crate::options::{Durability, IndexOptions, Structure};
use crate::ranged_runs::RangedRuns;
use crate::table::{IndexSchema, Schema, TableChanges};

mod online;
mod rows;
mod tables;
mod waiting;

pub use rows::{Conversion, Former};
pub use waiting::{LOOK, Wait, WaitForChange};

/// Of a plain index or a table. MariaDB calls a table by a path, in which a character may have five bytes.
const NAME_BYTES_MAX: usize = 640;

/// A change of index 0: rows to write (`Some`) or remove.
pub type CatalogChange = Vec<(Vec<u8>, Option<Vec<u8>>)>;

impl Engine {
    /// Creates a plain index.
    pub fn create_plain(&self, name: &str, options: IndexOptions, wait: &Wait<'_>) -> Result<Arc<IndexEntry>> {
        check_name(name)?;
        self.check_writable()?;
        self.check_room()?;
        let _step = self.steps.take(|| wait.look())?;
        if self.names.read().plain.contains_key(name) {
            return Err(Error::AlreadyExists { kind: "index", name: name.to_owned() });
        }
        self.check_format(options.format())?;
        let options = options.chosen(self.layout.format, self.options.budget_bytes);
        let def =
            IndexDef { id: self.new_index_id(), name: name.to_owned(), role: Role::Plain, options, quarantined: false };
        let entry = self.open_new(def, CommitTs::ZERO)?;
        let change = vec![(catalog::index_key(entry.id()).to_vec(), Some(entry.def.encode()))];
        self.publish_new(std::slice::from_ref(&entry), change)?;
        self.names.write().plain.insert(name.to_owned(), entry.clone());
        Ok(entry)
    }

    /// Creates a table with the indexes of its schema.
    pub fn create_table(&self, name: &str, schema: Schema, wait: &Wait<'_>) -> Result<Arc<TableEntry>> {
        check_name(name)?;
        self.check_writable()?;
        self.check_room()?;
        let schema = schema.of_new_table().with_collations(&self.options.collations);
        self.check_format(schema.format())?;
        let parents = self.unaware_parents_of(name, &schema);
        let turns = parents.iter().map(|parent| self.turn_of(parent, wait)).collect::<Result<Vec<_>>>()?;
        let step = self.steps.take(|| wait.look())?;
        if self.names.read().tables.contains_key(name) {
            return Err(Error::AlreadyExists { kind: "table", name: name.to_owned() });
        }
        self.check_new(name, &schema, wait)?;
        let (def, new) = self.new_table(name, schema)?;
        let table = TableEntry::new(shape_of(def.clone(), new.clone()));
        if parents.is_empty() {
            self.publish_new(&new, catalog_rows(&def, &new))?;
            self.name_table(name, &table);
            return Ok(table);
        }
        drop(step);
        self.create_child((&table, &new), &parents, wait).inspect_err(|_| {
            self.names.write().unlink(table.id);
            self.forget_new(&new);
        })?;
        drop(turns);
        Ok(table)
    }

    /// A table with foreign keys to others is announced to those who write to these, and made when all of them know.
    fn create_child(
        &self,
        (table, new): (&Arc<TableEntry>, &[Arc<IndexEntry>]),
        parents: &[Arc<TableEntry>],
        wait: &Wait<'_>,
    ) -> Result<()> {
        self.has_foreign_keys.store(true, Ordering::Relaxed);
        self.names.write().link(table);
        vfs::thread::point("foreign.announced");
        self.wait_for_unaware(parents, wait)?;
        let _step = self.steps.take(|| wait.look())?;
        // Parents may have got other names meanwhile.
        let def = &table.shape().def;
        if self.names.read().tables.contains_key(&def.name) {
            return Err(Error::AlreadyExists { kind: "table", name: def.name.clone() });
        }
        self.check_new(&def.name, &def.schema, wait)?;
        self.publish_new(new, catalog_rows(def, new))?;
        self.name_table(&def.name, table);
        Ok(())
    }

    /// That foreign keys let a new table be, its own and those to it; see [`ChangeOptions::takes_place_of`](crate::ChangeOptions).
    fn check_new(&self, name: &str, schema: &Schema, wait: &Wait<'_>) -> Result<()> {
        let place = wait.options().takes_place_of.as_deref();
        let before = place.and_then(|place| self.names.read().tables.get(place).cloned());
        let before = before.map(|table| table.shape().def.schema.clone());
        let same = TableChanges::new();
        let was = place.zip(before.as_ref()).map(|(place, before)| (place, before, &same));
        self.check_foreign_keys((name, schema), was, wait)?;
        let unchecked = wait.options().unchecked_foreign_keys;
        self.check_parent((place.unwrap_or(name), schema), before.as_ref(), &[], unchecked)
    }

    fn name_table(&self, name: &str, table: &Arc<TableEntry>) {
        let mut names = self.names.write();
        names.link(table);
        if !names.references.is_empty() {
            self.has_foreign_keys.store(true, Ordering::Relaxed);
        }
        names.left.remove(name);
        names.tables.insert(name.to_owned(), table.clone());
    }

    /// A table with empty indexes, all under new numbers: the primary, then the others.
    fn new_table(&self, name: &str, schema: Schema) -> Result<(TableDef, Vec<Arc<IndexEntry>>)> {
        let id = self.new_index_id();
        let primary = IndexDef {
            id,
            name: "primary".into(),
            role: Role::Primary,
            options: schema.primary_options().chosen(self.layout.format, self.options.budget_bytes),
            quarantined: false,
        };
        let mut new = vec![self.open_new(primary, CommitTs::ZERO)?];
        for index in schema.indexes() {
            new.push(self.open_new(self.secondary_def(id, index), CommitTs::ZERO)?);
        }
        let secondaries = new[1..].iter().map(|entry| entry.id()).collect();
        Ok((TableDef { id, name: name.to_owned(), schema, secondaries }, new))
    }

    /// Drops a plain index.
    pub fn drop_plain(&self, name: &str, wait: &Wait<'_>) -> Result<()> {
        self.check_open()?;
        self.check_not_read_only()?;
        let _step = self.steps.take(|| wait.look())?;
        let entry = self.names.read().plain.get(name).cloned();
        let entry = entry.ok_or_else(|| Error::NotFound { kind: "index", name: name.to_owned() })?;
        self.check_unprepared(name, entry.id())?;
        let _rows = self.catalog_rows.lock();
        let mut change: CatalogChange = vec![(catalog::index_key(entry.id()).to_vec(), None)];
        if entry.def.options.ttl_seconds.is_some() {
            change.push((catalog::clock_key(entry.id()).to_vec(), None));
        }
        let ts = self.commit_catalog(change, Room::Reserve)?;
        vfs::thread::point("ddl.dropped");
        self.names.write().plain.remove(name);
        self.bury(vec![entry], ts);
        Ok(())
    }

    /// Drops a table and its indexes.
    pub fn drop_table(&self, name: &str, wait: &Wait<'_>) -> Result<()> {
        self.check_open()?;
        self.check_not_read_only()?;
        let (table, _turn) = self.turn_at(name, wait)?;
        // Nobody is waited for in vain: those inside may be writers of its children.
        self.check_unreferenced(&table, wait)?;
        let _alone = self.step_alone(&table, "(the whole table, for its drop)", wait)?;
        self.check_unreferenced(&table, wait)?;
        let _rows = self.catalog_rows.lock();
        let shape = table.shape();
        let mut entries = vec![shape.primary.clone()];
        entries.extend(shape.secondaries.iter().cloned());
        let mut change: CatalogChange = entries.iter().map(|e| (catalog::index_key(e.id()).to_vec(), None)).collect();
        change.push((catalog::table_key(table.id).to_vec(), None));
        let ts = self.commit_catalog(change, Room::Reserve)?;
        let mut names = self.names.write();
        names.tables.remove(name);
        names.left.retain(|_, by| *by != table.id);
        names.unlink(table.id);
        drop(names);
        self.bury(entries, ts);
        Ok(())
    }

    fn table_named(&self, name: &str) -> Result<Arc<TableEntry>> {
        let table = self.names.read().tables.get(name).cloned();
        table.ok_or_else(|| Error::NotFound { kind: "table", name: name.to_owned() })
    }

    /// Frees dropped indexes that nobody can reach any more.
    ///
    /// Not while a checkpoint runs: its manifest may name the index, taken before the drop, and must count the
    /// blocks as reachable; whoever opens that manifest frees them, once.
    pub fn free_dropped(&self) -> base::Result<()> {
        if self.names.read().dropped.is_empty() {
            return Ok(());
        }
        self.let_former_go(None);
        let Some(mut no_checkpoint) = self.checkpoint.try_lock() else { return Ok(()) };
        // Whoever can still read it, with a snapshot however old, holds its entry.
        let unreachable = |entry: &mut Arc<IndexEntry>| Arc::strong_count(entry) == 1;
        let free: Vec<_> = self.names.write().dropped.extract_if(.., unreachable).collect();
        for (n, entry) in free.iter().enumerate() {
            let freed = entry.index.destroy();
            // It is gone all the same if it could not be read; not all its blocks were known.
            if let Err(fault) = &freed
                && !matches!(fault, Fault::Corrupt(_) | Fault::Io { .. })
            {
                // It was not destroyed, nor were those behind it: they are named by the next checkpoint, and tried again.
                self.names.write().dropped.extend_from_slice(&free[n..]);
                return freed;
            }
            no_checkpoint.lost.freed(freed.is_ok());
        }
        drop(no_checkpoint);
        // Space comes back with a durable checkpoint, and while writes are refused the log does not call for one.
        if !free.is_empty() && self.is_full() { self.run_checkpoint() } else { Ok(()) }
    }

    fn secondary_def(&self, table: IndexId, index: &IndexSchema) -> IndexDef {
        IndexDef {
            id: self.new_index_id(),
            name: index.name().to_owned(),
            role: Role::Secondary(table),
            options: index.options().chosen(self.layout.format, self.options.budget_bytes),
            quarantined: false,
        }
    }

    fn new_index_id(&self) -> IndexId {
        IndexId(self.next_index.fetch_add(1, Ordering::SeqCst))
    }

    /// Opens the empty structure of a new index.
    fn open_new(&self, def: IndexDef, usable_from: CommitTs) -> Result<Arc<IndexEntry>> {
        def.check_new()?;
        let index = self.open_structure(&def, None)?;
        Ok(IndexEntry::new(def, index, usable_from))
    }

    /// Opens the structure of an index.
    pub fn open_structure(&self, def: &IndexDef, state: Option<&[u8]>) -> Result<Arc<dyn index::Index>> {
        let env = IndexEnv {
            id: def.id,
            options: index::IndexOptions {
                policy: self.policies.of(def.role),
                single_deletes: matches!(def.role, Role::Secondary(_)),
                ..def.options.resolve()?
            },
            space: self.space.clone(),
            cache: self.cache.clone(),
            runs: RunFiles { vfs: self.layout.vfs.clone(), dir: self.layout.runs() },
            basements: self.layout.format >= FORMAT_BASEMENTS,
            read_only: self.options.read_only,
            expiry: def.options.ttl_seconds.map(|seconds| {
                let visible = self.visible.clone();
                Expiry::beside(seconds, Box::new(move || visible.visible()))
            }),
        };
        if def.role == Role::Plain && def.id != IndexId::CATALOG && !def.options.counters {
            let runs = Arc::new(RangedRuns {
                files: env.runs.clone(),
                compression: env.options.compression,
                next: self.next_run.clone(),
                registry: self.runs.clone(),
                visible: self.visible.clone(),
            });
            let charge = self.budget.charge(Class::Inner, 0);
            let ranged = Ranged::open(state, runs, charge, |state| self.open_bare(def, env, state))?;
            // There is nothing to be replayed into an index that is new; the others are started when all is.
            if state.is_none() && !self.recovering.load(Ordering::Acquire) {
                ranged.start();
            }
            return Ok(ranged);
        }
        // Of an index that the catalog does not know any more nothing says what it was.
        let state = state.map(Ranged::state_inside).transpose()?;
        self.open_bare(def, env, state)
    }

    fn open_bare(&self, def: &IndexDef, env: IndexEnv, state: Option<&[u8]>) -> Result<Arc<dyn index::Index>> {
        // The state says whose it is: of an index that the catalog does not know any more, nothing else does.
        let is_lsm = state.map_or(def.options.structure == Structure::Lsm, lsm::is_state);
        if is_lsm {
            return Ok(lsm::Lsm::open(env, state)?);
        }
        let index = tree::Tree::open(env, state)?;
        Ok(if def.options.counters { Counters::around(def.id, index) } else { index })
    }

    /// Makes indexes that were built at `s` durable before the catalog names them (rule A16f): nothing of that is in the log.
    ///
    /// A checkpoint writes what is at or below its F. A commit that writers have attached in memory at or before `s` holds F
    /// below it: then it is drained, and there is another checkpoint.
    fn make_durable(&self, entries: &[Arc<IndexEntry>], s: CommitTs) -> Result<()> {
        vfs::thread::point("ddl.built");
        loop {
            let done = self.checkpoint_now()?;
            let is_whole = |entry: &&Arc<IndexEntry>| {
                done.indexes.iter().any(|saved| saved.id == entry.id() && saved.skip >= s.as_lsn())
            };
            let mut rest = entries.iter().filter(|entry| !is_whole(entry)).peekable();
            if rest.peek().is_none() {
                break;
            }
            for entry in rest {
                entry.check_build()?;
                while entry.index.maintain(&self.upkeep())?.more {}
            }
        }
        // What is met behind this look stays noted: the index is set aside once its table has it.
        entries.iter().try_for_each(|entry| entry.check_build())
    }

    /// Registers new indexes, then commits their catalog rows; undoes the first if the second fails.
    fn publish_new(&self, entries: &[Arc<IndexEntry>], change: CatalogChange) -> Result<CommitTs> {
        for entry in entries {
            self.names.write().indexes.insert(entry.id(), entry.clone());
        }
        vfs::thread::point("ddl.registered");
        match self.commit_catalog(change, Room::Ordinary) {
            Ok(ts) => Ok(ts),
            Err(error) => {
                self.forget_new(entries);
                Err(error)
            }
        }
    }

    /// A checkpoint under way may be reading them: they are freed as dropped ones are.
    fn forget_new(&self, entries: &[Arc<IndexEntry>]) {
        self.bury(entries.to_vec(), CommitTs(1));
    }

    /// Commits rows of index 0.
    pub fn commit_catalog(&self, change: CatalogChange, room: Room) -> Result<CommitTs> {
        self.commit_catalog_noting(change, room, |_| {})
    }

    /// The same; of `note`, see [`Engine::commit_changes_noting`].
    pub fn commit_catalog_noting(
        &self,
        mut change: CatalogChange,
        room: Room,
        note: impl FnOnce(CommitTs),
    ) -> Result<CommitTs> {
        self.poison.check()?;
        change.sort();
        let mut batch = BatchBuilder::new();
        for (key, value) in &change {
            batch.push(key, value.as_deref().map_or(Op::Delete, Op::Put));
        }
        let catalog = self.index(IndexId::CATALOG).expect("the catalog is open while the database is");
        let committed = self.commit_changes_noting(vec![(catalog, Changes::Batch(batch.finish()))], room, note)?;
        self.finish_commit(committed.ts, Durability::Sync)?;
        Ok(committed.ts)
    }

    pub fn bury(&self, entries: Vec<Arc<IndexEntry>>, ts: CommitTs) {
        let mut names = self.names.write();
        for entry in entries {
            entry.set_dropped(ts);
            names.indexes.remove(&entry.id());
            if !entry.def.quarantined {
                names.dropped.push(entry);
            }
        }
    }
}

/// The catalog's rows of a new table.
fn catalog_rows(def: &TableDef, indexes: &[Arc<IndexEntry>]) -> CatalogChange {
    let rows = indexes.iter().map(|entry| (catalog::index_key(entry.id()).to_vec(), Some(entry.def.encode())));
    rows.chain([(catalog::table_key(def.id).to_vec(), Some(def.encode()))]).collect()
}

/// Its shape: the first of the indexes is the primary.
fn shape_of(def: TableDef, mut indexes: Vec<Arc<IndexEntry>>) -> TableShape {
    let secondaries = indexes.split_off(1);
    TableShape::new(def, indexes.remove(0), secondaries)
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::InvalidArgument("a name is empty".into()));
    }
    if name.len() > NAME_BYTES_MAX {
        let (limit, got) = (NAME_BYTES_MAX as u64, name.len() as u64);
        return Err(Error::Limit { what: "length of a name in bytes", limit, got });
    }
    Ok(())
}
