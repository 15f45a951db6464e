//! The rows of a table in another structure, beside its readers and writers (rule A16).
//!
//! Locks, ranges, the log, write sets, what is prepared, and tables that refer to this one know rows by the number of their
//! index. So that stays what it is, and another structure comes under it. Of the entries with this number
//!
//! - `E` has the structure that is there, old;
//! - `W` has the [`Pair`] (old, new): it writes to both and reads old;
//! - `P` has the pair (new, old): it writes to both and reads new, but old for who looks from before s;
//! - `F` has new.
//!
//! 1. **Registered**: `W` takes the place of `E`. A commit reaches the structures by the entry that its transaction came in with:
//!    those who came in before are waited for, as for the build of an index ([`super::online`]).
//! 2. **Building**: s is the snapshot that is taken now. Every commit above s is applied to both; the rows of s are put into new
//!    at s, below those, and what is there at s and is no row is deleted at s. Until then nothing above s - 1 is collected in new.
//! 3. A checkpoint makes new durable. It is named there by a number of its own, which no record of the log has, and before its
//!    state stands the owner that its blocks name: the table ([`Said::Owner`]).
//! 4. **The switch** is a checkpoint: its manifest has the state of new as that of the table's rows, and that of old by the other
//!    number. Before the state stand the settings ([`Said::Settings`]). Nothing is decided by it: both structures are named, and the log
//!    goes on to have what either needs.
//! 5. One commit of the catalog tells the settings, and what else changes with them: **this decides**. Then `P` takes the place of `W`.
//! 6. `E` and `W` are in the hands of who came in before: old is written until they are gone, or damage is met in it
//!    ([`crate::pair`]). Snapshots from before s read it. When there are none of either, `F` takes the place of `P`, and once nobody
//!    has `P`, old is freed as what is dropped. Whoever has `P` has `F` too, so that new is not freed under him with the table.
//!
//! Why no reader misses anything: what may be read of old, through whichever entry, is written to old by everybody whose
//! transaction is not over. Why no writer's work is lost: everybody behind 1 writes to new, and the log has each commit once, by the
//! number that both structures had or have in the manifest: whichever is found there is brought to its end by it.
//!
//! It ends before 4, by an error or with the process: old is what the manifest names, new has a number that the catalog does not
//! know, and is freed. Between 4 and 5 an error goes back: `E` takes the place of `W`, and the next checkpoint names old again, which
//! has everything. A process that ends before that checkpoint, or a database whose log has failed, leaves the manifest of the switch:
//! the next open holds the settings that it says against the catalog's. They are others, so the record of 5 is not there: it reads the
//! manifest as before 4 ([`crate::open`]'s `take_back_switches`), and old is brought to its end by the log, which has by the number of
//! the rows what was committed meanwhile. They are the same: it is there, or the rows were made anew with the settings that they had,
//! and then new is as good as old. So whatever of the record of a failed log is found, rows and all that changes with them are of
//! before, or of behind.
//!
//! Behind 3 it may stand for as long as its owner likes ([`Conversion`]): 4 to 6 are done when he says so, or it is given up.
//!
//! Latches: `names`, and under it the table's shape; for the switch `steps`, `catalog_rows`, `checkpoint`.

use std::sync::{Arc, Weak};

use base::{CommitTs, IndexId};

use super::Wait;
use crate::alter::Planned;
use crate::build;
use crate::builds::{BuildStage, Progress};
use crate::catalog::{self, IndexDef, Role};
use crate::commit::Room;
use crate::engine::Engine;
use crate::entry::{IndexEntry, Stage, TableEntry, Twin};
use crate::error::{Error, Result};
use crate::gate::Taken;
use crate::layout::FORMAT_VERSIONS;
use crate::options::IndexOptions;
use crate::pair::{Pair, Was};
use crate::said::Said;
use crate::table::TableChanges;

/// Rows as they were before they were made anew, and who has what by which they are read.
pub struct Former {
    /// Not held: its shape has `P`.
    table: Weak<TableEntry>,
    id: IndexId,
    /// `P`.
    after: Weak<IndexEntry>,
    new: Arc<dyn index::Index>,
    /// Keeps old from being freed.
    was: Arc<Was>,
    /// `F` has the place of `P`.
    is_over: bool,
}

impl Former {
    /// Nobody has an entry by which old is read or written.
    fn is_out_of_reach(&self) -> bool {
        self.was.has_snapshots_alone() && self.after.strong_count() == 0
    }

    /// Its structure.
    pub fn entry(&self) -> &Arc<IndexEntry> {
        &self.was.entry
    }
}

/// A conversion under way; dropped before its end, nothing of it stays. Whoever was asked whether it is wanted is so no more once
/// its rows are there.
pub struct Conversion {
    engine: Arc<Engine>,
    table: Arc<TableEntry>,
    /// What the schema says, which may leave the structure to the engine.
    options: IndexOptions,
    /// `E`.
    old: Arc<IndexEntry>,
    /// `W`, and its pair.
    both: Arc<IndexEntry>,
    pair: Arc<Pair>,
    /// The new structure, as an index under construction: in the manifest by a number of its own.
    new: Arc<IndexEntry>,
    progress: Arc<Progress>,
    /// Its snapshot, once its rows are there.
    s: CommitTs,
    ended: bool,
    /// Its turn of the table, until all else is over.
    _turn: Taken,
}

impl Engine {
    /// Makes the rows of a table anew with these settings, beside those that are there: steps 1 to 3.
    pub fn convert_rows(
        self: &Arc<Self>,
        table: &Arc<TableEntry>,
        options: IndexOptions,
        wait: &Wait<'_>,
    ) -> Result<Conversion> {
        let turn = self.begin_build(table, wait)?;
        let schema = table.shape().def.schema.with_primary_options(options);
        self.check_format(schema.format())?;
        self.wait_for_former(table, wait)?;
        let mut conversion = Conversion::new(self, table, options, wait, turn)?;
        conversion.s = conversion.run(wait)?;
        vfs::thread::point("rows.there");
        Ok(conversion)
    }

    /// Waits until nobody needs the rows of this table as they were before another conversion. The caller has its turn.
    ///
    /// Whoever still has the `P` of that is waited for, too, although `F` has its place: behind another conversion nobody would write
    /// to what he reads.
    pub fn wait_for_former(&self, table: &TableEntry, wait: &Wait<'_>) -> Result<()> {
        let wait = wait.again();
        loop {
            self.let_former_go(Some(table.id));
            if self.names.read().former.iter().all(|former| former.id != table.id) {
                return Ok(());
            }
            let why = || wait.timeout(table, "(the whole table, as it was before its last change of structure)");
            vfs::thread::sleep(wait.look_in_time(why)?);
        }
    }

    /// Step 6. The caller may have the turn of a table; of others it is taken, if nobody has it.
    pub(super) fn let_former_go(&self, mine: Option<IndexId>) {
        if self.names.read().former.is_empty() {
            return;
        }
        // Behind this no snapshot is taken that is older: one that is being taken holds the floor back, and is none of those that live.
        let view = self.snapshots.refresh_view();
        let oldest = view.oldest().min(view.floor());
        let mut names = self.names.write();
        let names = &mut *names;
        for former in names.former.iter_mut().filter(|former| !former.is_over) {
            // None, if the table was dropped: then all that is left is in the hands of readers.
            let (table, after) = (former.table.upgrade(), former.after.upgrade());
            let (Some(table), Some(after)) = (table, after.filter(|entry| entry.dropped_at().is_none())) else {
                continue;
            };
            if !former.was.has_snapshots_alone() || oldest < former.was.since {
                continue;
            }
            let held = (mine != Some(former.id)).then(|| table.changes.take(|| Err(Error::Cancelled)));
            if matches!(held, Some(Err(_))) {
                continue;
            }
            let alone = after.in_place(after.def.options, former.new.clone(), former.was.since, None);
            // What was met by P is of new: old is left out where it is damaged.
            after.damage().into_iter().for_each(|damage| alone.set_damaged(Box::new(damage.clone())));
            after.succeed(&alone);
            names.indexes.insert(alone.id(), alone.clone());
            table.update_shape(|now| now.with_primary(alone));
            former.is_over = true;
        }
        names.former.retain(|former| !former.is_out_of_reach());
    }
}

impl Conversion {
    /// Step 1.
    fn new(
        engine: &Arc<Engine>,
        table: &Arc<TableEntry>,
        options: IndexOptions,
        wait: &Wait<'_>,
        turn: Taken,
    ) -> Result<Self> {
        let (engine, table, asked) = (engine.clone(), table.clone(), options);
        let old = table.shape().primary.clone();
        let options = options.chosen(engine.layout.format, engine.options.budget_bytes);
        let def = IndexDef { options, ..old.def_now() };
        def.check_new()?;
        let index = engine.open_structure(&def, None)?;
        // Which moment it will be is not known yet.
        index.expect_late(Some(CommitTs::ZERO));
        let id = engine.new_index_id();
        let new = IndexEntry::to_build(def_beside(id, &table, "primary to be", options), index, None);
        new.say(Some(Said::Owner(table.id)));
        let twin = Twin { options, build: Some(new.clone()), was: None };
        let pair = Pair::building(&old, new.clone());
        let both = old.in_place(old.def.options, pair.clone(), CommitTs::ZERO, Some(twin));
        let progress =
            Progress::new(table.name(), vec![old.name().to_owned()], old.index.stats().live_keys, wait.options());
        engine.builds.lock().push(progress.clone());
        let s = CommitTs::ZERO;
        let this = Self { engine, table, options: asked, old, both, pair, new, progress, s, ended: false, _turn: turn };
        let mut names = this.engine.names.write();
        names.indexes.insert(this.new.id(), this.new.clone());
        names.indexes.insert(this.table.id, this.both.clone());
        this.table.update_shape(|now| now.with_primary(this.both.clone()));
        drop(names);
        vfs::thread::point("build.registered");
        Ok(this)
    }

    /// Steps 2 and 3. Returns s.
    fn run(&self, wait: &Wait<'_>) -> Result<CommitTs> {
        let new = std::slice::from_ref(&self.new);
        self.engine.wait_for_writers_inside(&self.table, new, &self.progress, (wait, true))?;
        let snapshot = self.engine.snapshot_of_all()?;
        let s = snapshot.ts();
        self.new.index.expect_late(Some(s));
        self.progress.enter(BuildStage::Building);
        build::copy_rows(&self.engine, &*self.old.index, &self.new, snapshot, &self.progress)?;
        self.new.index.expect_late(None);
        self.progress.enter(BuildStage::Verifying);
        self.engine.make_durable(new, s)?;
        self.progress.check()?;
        Ok(s)
    }

    /// Steps 4 to 6, and these changes in the same moment: if there are any, none of the table's writers is inside then. None of
    /// them is a foreign key.
    pub fn publish(mut self, changes: &TableChanges, wait: &Wait<'_>) -> Result<()> {
        let (engine, table) = (self.engine.clone(), self.table.clone());
        engine.check_writable()?;
        if changes.adds_foreign_keys() {
            return Err(Error::InvalidArgument("foreign keys are added by a change of their own".into()));
        }
        if !changes.is_empty() {
            engine.check_format(table.shape().def.schema.with_changes(changes)?.format().max(FORMAT_VERSIONS))?;
        }
        let _alone = match changes.is_empty() {
            true => (Vec::new(), engine.steps.take(|| wait.look())?),
            false => engine.step_alone(&table, "(the whole table, for a change of its rows and indexes)", wait)?,
        };
        let _rows = engine.catalog_rows.lock();
        engine.check_undamaged(&self.both)?;
        let planned = if changes.is_empty() { None } else { engine.plan_changes(&table, changes, wait)? };
        let mut planned = planned.unwrap_or_else(|| Planned::same(&table.shape()));
        // What the background has met since the checkpoint: of rows that are there it would be damage.
        self.new.check_build()?;
        // From here on what it meets is the writer's error.
        self.new.advance(Stage::Building, Stage::Public)?;
        vfs::thread::point("ddl.registered");
        let (old, settings) = (self.old.def.options, self.new.def.options);
        let def = def_beside(self.new.id(), &table, "former primary", old);
        let former = IndexEntry::new(IndexDef { role: Role::Primary, ..def }, self.old.index.clone(), CommitTs::ZERO);
        former.say(Some(Said::Owner(table.id)));
        let was = Was::new(former.clone(), self.s, [&self.old, &self.both]);
        let pair = Pair::succeeding(&self.new, was.clone());
        let twin = Twin { options: old, build: None, was: Some(was.clone()) };
        let after = self.both.in_place(settings, pair, CommitTs::ZERO, Some(twin));
        after.say(Some(Said::Settings(settings)));
        self.switch(&after, &former)?;
        vfs::thread::point("rows.switched");
        planned.def.schema = planned.def.schema.with_primary_options(self.options);
        let mut change = planned.rows(&engine.names.read());
        change.push((catalog::index_key(table.id).to_vec(), Some(after.def.encode())));
        let ts = engine.commit_catalog(change, Room::Reserve)?;
        self.ended = true;
        after.say(None);
        vfs::thread::point("rows.recorded");
        let begins = || {
            former.set_replaced();
            self.pair.was_replaced(was.clone());
            Former {
                table: Arc::downgrade(&table),
                id: table.id,
                after: Arc::downgrade(&after),
                new: self.new.index.clone(),
                was,
                is_over: false,
            }
        };
        engine.put_planned(&table, planned, ts, Some((after.clone(), begins)));
        vfs::thread::point("build.public");
        Ok(())
    }

    /// Step 4: between two checkpoints the numbers change hands, and the second is made at once.
    fn switch(&self, after: &Arc<IndexEntry>, former: &Arc<IndexEntry>) -> Result<()> {
        let engine = &self.engine;
        let awaited = engine.await_checkpoint();
        let mut published = engine.checkpoint.lock();
        let mut names = engine.names.write();
        names.indexes.insert(self.table.id, after.clone());
        names.indexes.remove(&self.new.id());
        names.dropped.push(former.clone());
        drop(names);
        let done = engine.publish_checkpoint(&mut published)?;
        drop((published, awaited));
        Ok(engine.after_checkpoint(&done)?)
    }
}

/// The definition of what stands beside the rows of a table: as of an index of its own.
fn def_beside(id: IndexId, table: &TableEntry, name: &str, options: IndexOptions) -> IndexDef {
    IndexDef { id, name: name.into(), role: Role::Secondary(table.id), options, quarantined: false }
}

impl Drop for Conversion {
    fn drop(&mut self) {
        let engine = &self.engine;
        engine.builds.lock().retain(|other| !Arc::ptr_eq(other, &self.progress));
        if self.ended {
            return;
        }
        self.new.index.expect_late(None);
        if let Some(damage) = self.both.damage() {
            self.old.set_damaged(Box::new(damage.clone()));
        }
        vfs::thread::point("rows.given_up");
        // As it was before the switch, too: the next checkpoint says so. In one step, so that no checkpoint has less than all of it.
        let mut names = engine.names.write();
        names.indexes.insert(self.table.id, self.old.clone());
        names.indexes.insert(self.new.id(), self.new.clone());
        names.dropped.retain(|entry| !Arc::ptr_eq(&entry.index, &self.old.index));
        self.table.update_shape(|now| now.with_primary(self.old.clone()));
        drop(names);
        // Not before: a checkpoint that had it for the rows has all that was committed.
        self.new.abandon();
        // It is freed when nobody writes to both any more.
        engine.bury(vec![self.new.clone()], CommitTs(1));
    }
}
