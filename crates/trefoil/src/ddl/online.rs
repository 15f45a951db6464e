//! Building secondary indexes beside the writers of their table (rule A16).
//!
//! 1. The numbers of the new indexes are told to the log by a record of the catalog, which removes rows that are not there.
//!    Commits log what they do to these indexes: once one is public the log must have it all. Who replays a log of a build
//!    that never ended skips that as it skips what is of dropped indexes, and needs to know that the numbers were given.
//! 2. **Registered**: the table's shape has the indexes as ones to be kept up. Whoever writes to the table from now on keeps
//!    them up; transactions that wrote before are waited for, while others come in ([`WriterGate::wait_for_writers`]).
//! 3. Then every row that is not kept up is in the snapshot s that is taken now. **Building**: what the index holds at s and no
//!    row has is deleted at s (one who keeps it up has inserted the row, one who does not has deleted it since); the rows of s
//!    are added at timestamp s, below all that writers have put there since ([`crate::build`]). Until then nothing above s - 1 is
//!    collected in the new indexes: a row deleted behind s leaves a tombstone, and its entry comes after it.
//! 4. **Verifying**, for unique indexes: whoever adds a value looks whether it is taken; those who came in before are waited
//!    for; then neighbours are compared. A value had twice fails the build.
//! 5. A checkpoint makes the indexes durable (A16f), they are **public** to writers, the catalog names them, readers find
//!    them. A successor takes the place of the index that was there.
//!
//! Nobody waits for a build: a writer comes in at any time, and has one index more to write to.
//!
//! Why nothing is had twice behind 4. Of two rows with one value, look at the later one to lock it. If its writer came in
//! behind the change to *verifying*, he finds the other: it was added by the build, which has ended, or by somebody who had the
//! lock before and has applied it. If both came in before, both are in the snapshot in which neighbours are compared.
//!
//! Why no reader misses a row that is in the new index alone. A writer has the new shape, or leaves the old index out, not
//! before that is marked as dropped; and readers look at the mark once they have their snapshot ([`IndexEntry::check_snapshot`]).
//!
//! When it fails, or the process ends: the indexes are dropped. Their states in manifests have numbers that the catalog does
//! not know, and the next open frees them. Writers that came in meanwhile leave them out.

use std::sync::Arc;

use base::CommitTs;

use super::waiting::LOOK;
use super::{CatalogChange, Wait, check_name};
use crate::build;
use crate::builds::{BuildStage, Progress};
use crate::catalog::{self, IndexDef, TableDef};
use crate::commit::Room;
use crate::engine::Engine;
use crate::entry::{IndexEntry, Stage, TableEntry, TableShape};
use crate::error::Result;
use crate::gate::{GateWait, Taken};
use crate::options::IndexOptions;
use crate::rows::index_number;
use crate::table::{IndexSchema, Schema};

impl Engine {
    /// Waits for the writers inside: as long as changes wait for those that are prepared, and for all if it is limited.
    pub(super) fn wait_for_writers_inside(
        &self,
        table: &TableEntry,
        entries: &[Arc<IndexEntry>],
        progress: &Progress,
        (wait, is_limited): (&Wait<'_>, bool),
    ) -> Result<()> {
        let (wait, mut gate_wait) = (wait.again(), GateWait::default());
        while !table.gate.wait_for_writers(&mut gate_wait, LOOK) {
            self.check_writable()?;
            progress.check()?;
            entries.iter().try_for_each(|entry| entry.check_build())?;
            if !wait.is_over() {
                continue;
            }
            self.check_unprepared(table.name(), table.id)?;
            if is_limited {
                return Err(wait.timeout(table, "(the whole table, for a change of its definition)"));
            }
        }
        Ok(())
    }

    /// A snapshot that sees what every writer has done who left the gate: he leaves when his commit is applied, which may be
    /// before it is visible.
    pub(super) fn snapshot_of_all(&self) -> Result<txn::SnapshotSlot> {
        self.wait_visible(self.wal.end().as_commit_ts())?;
        Ok(self.snapshots.take())
    }
}

/// A build under way; dropped before its end, nothing of it stays.
struct Online<'a> {
    engine: &'a Engine,
    table: &'a TableEntry,
    wait: &'a Wait<'a>,
    /// The table's schema with the new indexes behind the others.
    schema: Schema,
    /// Their numbers in it.
    numbers: Vec<usize>,
    entries: Vec<Arc<IndexEntry>>,
    progress: Arc<Progress>,
    ended: bool,
}

impl Engine {
    /// Adds secondary indexes to a table, all in one pass over its rows.
    pub fn add_indexes(&self, table: &TableEntry, new: Vec<IndexSchema>, wait: &Wait<'_>) -> Result<()> {
        let _turn = self.begin_build(table, wait)?;
        let shape = table.shape();
        let mut def = shape.def.clone();
        for index in &new {
            check_name(index.name())?;
            def.schema = def.schema.with_index(index.clone())?;
        }
        self.check_format(def.schema.format())?;
        let defs = new.iter().map(|index| self.secondary_def(def.id, index)).collect();
        let built = Online::new((self, table, wait), def.schema.clone(), defs, None)?.run()?;
        let _step = self.steps.take(|| wait.look())?;
        let _rows = self.catalog_rows.lock();
        def.secondaries.extend(built.entries.iter().map(|e| e.id()));
        let secondaries = table.shape().secondaries.iter().chain(&built.entries).cloned().collect();
        built.publish(def, secondaries, None)
    }

    /// Makes a secondary index anew from the rows, under a new number. Killed in the middle, it is as it was, or made.
    pub fn rebuild_index(&self, table: &TableEntry, name: &str, wait: &Wait<'_>) -> Result<()> {
        self.build_successor(table, name, None, wait)
    }

    /// Makes a secondary index anew with other settings.
    pub fn change_index(&self, table: &TableEntry, name: &str, options: IndexOptions, wait: &Wait<'_>) -> Result<()> {
        self.build_successor(table, name, Some(options), wait)
    }

    fn build_successor(
        &self,
        table: &TableEntry,
        name: &str,
        options: Option<IndexOptions>,
        wait: &Wait<'_>,
    ) -> Result<()> {
        let _turn = self.begin_build(table, wait)?;
        let shape = table.shape();
        let n = index_number(&shape, name)?;
        let mut def = shape.def.clone();
        if let Some(options) = options {
            def.schema = def.schema.with_index_options(n, options);
            self.check_format(def.schema.format())?;
        }
        let new = self.secondary_def(def.id, &def.schema.indexes()[n]);
        let (schema, old) = (def.schema.with_successor(n), Some(&*shape.secondaries[n]));
        let built = Online::new((self, table, wait), schema, vec![new], old)?.run()?;
        vfs::thread::point("rebuild.built");
        let _step = self.steps.take(|| wait.look())?;
        let _rows = self.catalog_rows.lock();
        def.secondaries[n] = built.entries[0].id();
        let mut secondaries = table.shape().secondaries.clone();
        let old = std::mem::replace(&mut secondaries[n], built.entries[0].clone());
        built.publish(def, secondaries, Some(old))
    }

    pub(super) fn begin_build(&self, table: &TableEntry, wait: &Wait<'_>) -> Result<Taken> {
        self.check_writable()?;
        self.check_room()?;
        let turn = self.turn_of(table, wait)?;
        let shape = table.shape();
        shape.primary.check()?;
        self.check_undamaged(&shape.primary)?;
        Ok(turn)
    }

    /// Drops a secondary index of a table. Its writers do not wait: those under way leave it out.
    pub fn drop_table_index(&self, table: &TableEntry, name: &str, wait: &Wait<'_>) -> Result<()> {
        self.check_open()?;
        self.check_not_read_only()?;
        let _turn = self.turn_of(table, wait)?;
        let _step = self.steps.take(|| wait.look())?;
        let _rows = self.catalog_rows.lock();
        let shape = table.shape();
        shape.primary.check()?;
        let n = index_number(&shape, name)?;
        self.check_index_unneeded(table, &shape, n, wait)?;
        let (mut def, mut secondaries) = (shape.def.clone(), shape.secondaries.clone());
        def.schema = def.schema.without_index(n);
        def.secondaries.remove(n);
        let old = secondaries.remove(n);
        let change = vec![
            (catalog::index_key(old.id()).to_vec(), None),
            (catalog::table_key(def.id).to_vec(), Some(def.encode())),
        ];
        let ts = self.commit_catalog(change, Room::Reserve)?;
        vfs::thread::point("ddl.dropped");
        table.update_shape(|now| {
            old.set_dropped(ts);
            TableShape::new(def, now.primary.clone(), secondaries)
        });
        self.bury(vec![old], ts);
        Ok(())
    }
}

impl<'a> Online<'a> {
    /// Steps 1 and 2. `schema` has the new indexes behind the others.
    fn new(
        (engine, table, wait): (&'a Engine, &'a TableEntry, &'a Wait<'a>),
        schema: Schema,
        defs: Vec<IndexDef>,
        old: Option<&IndexEntry>,
    ) -> Result<Self> {
        let shape = table.shape();
        let first = shape.secondaries.len();
        let mut entries = Vec::new();
        for def in defs {
            def.check_new()?;
            let index = engine.open_structure(&def, None)?;
            // Which moment it will be is not known yet.
            index.expect_late(Some(CommitTs::ZERO));
            entries.push(IndexEntry::to_build(def, index, old));
        }
        let taken = entries.iter().map(|entry| (catalog::index_key(entry.id()).to_vec(), None)).collect();
        let step = engine.steps.take(|| wait.look())?;
        engine.commit_catalog(taken, Room::Ordinary)?;
        drop(step);
        vfs::thread::point("build.numbered");
        let names = entries.iter().map(|entry| entry.def.name.clone()).collect();
        let progress = Progress::new(table.name(), names, shape.primary.index.stats().live_keys, wait.options());
        engine.builds.lock().push(progress.clone());
        let numbers = (first..first + entries.len()).collect();
        let this = Self { engine, table, wait, schema, numbers, entries, progress, ended: false };
        for entry in &this.entries {
            engine.names.write().indexes.insert(entry.id(), entry.clone());
        }
        table.update_shape(|now| now.building(this.schema.clone(), &this.entries));
        vfs::thread::point("build.registered");
        Ok(this)
    }

    /// Steps 2 to 4, and the checkpoint of 5.
    fn run(self) -> Result<Self> {
        self.wait_for_writers(true)?;
        let snapshot = self.engine.snapshot_of_all()?;
        let s = snapshot.ts();
        for entry in &self.entries {
            entry.set_usable_from(snapshot.ts());
            entry.index.expect_late(Some(snapshot.ts()));
        }
        self.progress.enter(BuildStage::Building);
        let shape = self.table.shape();
        let what = (&self.schema, self.numbers.as_slice());
        build::build(self.engine, &shape, what, &self.entries, snapshot, &self.progress)?;
        self.entries.iter().for_each(|entry| entry.index.expect_late(None));
        self.progress.enter(BuildStage::Verifying);
        self.verify()?;
        self.engine.make_durable(&self.entries, s)?;
        self.progress.check()?;
        Ok(self)
    }

    fn wait_for_writers(&self, is_limited: bool) -> Result<()> {
        self.engine.wait_for_writers_inside(self.table, &self.entries, &self.progress, (self.wait, is_limited))
    }

    fn unique(&self) -> impl Iterator<Item = (usize, &Arc<IndexEntry>)> {
        self.numbers.iter().copied().zip(&self.entries).filter(|(n, _)| self.schema.indexes()[*n].is_unique())
    }

    /// Step 4.
    fn verify(&self) -> Result<()> {
        if self.unique().next().is_none() {
            return Ok(());
        }
        for (_, entry) in self.unique() {
            entry.advance(Stage::Building, Stage::Verifying)?;
        }
        vfs::thread::point("build.verifying");
        self.wait_for_writers(false)?;
        let snapshot = self.engine.snapshot_of_all()?;
        for (n, entry) in self.unique() {
            let what = (&self.schema, n);
            build::verify(self.engine, self.table.name(), what, entry, &snapshot, &self.progress)?;
        }
        Ok(())
    }

    /// The rest of step 5. `old` is what the new index takes the place of. The caller holds `catalog_rows`.
    fn publish(
        mut self,
        mut def: TableDef,
        secondaries: Vec<Arc<IndexEntry>>,
        old: Option<Arc<IndexEntry>>,
    ) -> Result<()> {
        for entry in &self.entries {
            // From here on a value that is taken is the writer's error.
            let before = if entry.stage() == Stage::Verifying { Stage::Verifying } else { Stage::Building };
            entry.advance(before, Stage::Public)?;
        }
        vfs::thread::point("ddl.registered");
        // They have followed their parents meanwhile.
        def.schema = def.schema.with_foreign_keys(self.table.shape().def.schema.foreign_keys().to_vec())?;
        let mut change: CatalogChange =
            self.entries.iter().map(|e| (catalog::index_key(e.id()).to_vec(), Some(e.def.encode()))).collect();
        change.extend(old.iter().map(|old| (catalog::index_key(old.id()).to_vec(), None)));
        change.push((catalog::table_key(def.id).to_vec(), Some(def.encode())));
        let ts = self.engine.commit_catalog(change, Room::Ordinary)?;
        self.ended = true;
        self.table.update_shape(|now| {
            old.iter().for_each(|old| old.set_dropped(ts));
            TableShape::new(def, now.primary.clone(), secondaries)
        });
        vfs::thread::point("build.public");
        self.engine.bury(old.into_iter().collect(), ts);
        Ok(())
    }
}

impl Drop for Online<'_> {
    fn drop(&mut self) {
        self.engine.builds.lock().retain(|other| !Arc::ptr_eq(other, &self.progress));
        if self.ended {
            return;
        }
        self.table.update_shape(|now| TableShape::new(now.def.clone(), now.primary.clone(), now.secondaries.clone()));
        for entry in &self.entries {
            entry.abandon();
            entry.index.expect_late(None);
        }
        // A checkpoint under way may be reading them: they are freed as dropped ones are.
        self.engine.bury(self.entries.clone(), CommitTs(1));
    }
}
