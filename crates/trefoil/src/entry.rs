//! Open indexes and tables: what the names in the catalog stand for while the database is open.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::{CommitTs, Corruption, Fault, IndexId};
use vfs::sync::{Mutex, RwLock};

use crate::catalog::{IndexDef, Role, TableDef};
use crate::ddl::Former;
use crate::error::{Error, Result};
use crate::estimate::Distinct;
use crate::gate::{Turn, WriterGate};
use crate::options::{IndexOptions, Structure};
use crate::pair::Was;
use crate::said::Said;
use crate::table::Schema;

/// An open index.
pub struct IndexEntry {
    /// As the catalog has it.
    pub def: IndexDef,
    name: Name,
    /// The structure.
    pub index: Arc<dyn index::Index>,
    /// Commit timestamp of its drop; 0 while it exists. Shared with what takes its place under its number.
    dropped_at: Arc<AtomicU64>,
    /// Set aside, for good: [`crate::quarantine`].
    quarantined: AtomicBool,
    /// Somebody met damage in it.
    noted: AtomicBool,
    /// Damage that its upkeep met, if it cannot be made anew.
    damage: OnceLock<Box<Corruption>>,
    /// Where nothing may be inserted for now; shared with what takes its place, which has the same keys.
    pub ranges: Arc<txn::Ranges>,
    /// The number under which the end of a range's owner is waited for: that of the first who had `ranges`.
    pub ranges_of: IndexId,
    /// Snapshots older than this would miss rows: the index was built at this moment (rule A16c). Set before it is public. Shared with
    /// what takes its place under its number.
    usable_from: Arc<AtomicU64>,
    /// What is committed goes to what has its place, for good, and need not be here any more. Shared with the pairs that read it.
    replaced: Arc<AtomicBool>,
    /// How far its build is.
    stage: AtomicU8,
    /// Why its build cannot succeed any more.
    failure: OnceLock<Error>,
    /// Different values of its columns, once they were counted.
    pub distinct: RwLock<Option<Arc<Distinct>>>,
    /// Held by who counts them.
    pub counting: Mutex<()>,
    /// A worker of the merge lane keeps it in shape just now.
    pub in_hand: AtomicBool,
    /// What stands beside its structure and gets the same writes.
    pub twin: Option<Twin>,
    /// What has its structure alone, in its place: a structure is freed when nobody has an entry of it.
    alone: OnceLock<Arc<IndexEntry>>,
    /// What the manifest says before its state.
    said: Mutex<Option<Said>>,
}

/// Of the rows of a table, what is written along with them: [`crate::pair`].
pub struct Twin {
    /// Its settings: keys have to fit both.
    pub options: IndexOptions,
    /// It is being built.
    pub build: Option<Arc<IndexEntry>>,
    /// It is what was there before.
    pub was: Option<Arc<Was>>,
}

/// How far an index is, beside the writers of its table (rule A16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Anybody uses it.
    Public,
    /// Writers keep it up; the rows that were there are added.
    Building,
    /// All rows are in it: who adds a value to a unique index looks whether it is taken.
    Verifying,
    /// Nobody keeps it up any more: its build failed.
    Abandoned,
}

impl IndexEntry {
    /// Wraps an open structure.
    pub fn new(def: IndexDef, index: Arc<dyn index::Index>, usable_from: CommitTs) -> Arc<Self> {
        let (quarantined, noted, failure) = Default::default();
        let (dropped_at, damage, ranges) = Default::default();
        let (distinct, counting) = Default::default();
        let (usable_from, stage) = (Arc::new(AtomicU64::new(usable_from.0)), AtomicU8::new(Stage::Public as u8));
        let (ranges_of, name) = (def.id, Name::new(&def.name));
        Arc::new(Self {
            def,
            name,
            index,
            dropped_at,
            quarantined,
            noted,
            damage,
            ranges,
            ranges_of,
            usable_from,
            replaced: Arc::default(),
            stage,
            failure,
            distinct,
            counting,
            in_hand: AtomicBool::new(false),
            twin: None,
            alone: OnceLock::new(),
            said: Mutex::new(None),
        })
    }

    /// What is deleted from it gives space back with nothing to merge, which needs room first.
    pub fn frees_what_is_deleted(&self) -> bool {
        let frees = |options: &IndexOptions| options.structure != Structure::Lsm;
        frees(&self.def.options) && self.twin.as_ref().is_none_or(|twin| frees(&twin.options))
    }

    /// Wraps the structure of an index to be built, perhaps to take the place of another one.
    pub fn to_build(def: IndexDef, index: Arc<dyn index::Index>, old: Option<&IndexEntry>) -> Arc<Self> {
        let mut entry = Self::new(def, index, CommitTs::MAX);
        let new = Arc::get_mut(&mut entry).expect("nobody else has it yet");
        new.stage = AtomicU8::new(Stage::Building as u8);
        if let Some(old) = old {
            (new.ranges, new.ranges_of) = (old.ranges.clone(), old.ranges_of);
        }
        entry
    }

    /// Another structure under the same number, in whose place it comes: locks, ranges, a drop, and the moment before which nobody looks
    /// are those of both. What is known of the damage of this one is not told of it.
    pub fn in_place(
        &self,
        options: IndexOptions,
        index: Arc<dyn index::Index>,
        usable_from: CommitTs,
        twin: Option<Twin>,
    ) -> Arc<Self> {
        let mut entry = Self::new(IndexDef { options, ..self.def_now() }, index, CommitTs::ZERO);
        let new = Arc::get_mut(&mut entry).expect("nobody else has it yet");
        (new.ranges, new.ranges_of) = (self.ranges.clone(), self.ranges_of);
        (new.dropped_at, new.usable_from) = (self.dropped_at.clone(), self.usable_from.clone());
        new.hide_before(usable_from);
        new.distinct = RwLock::new(self.distinct.read().clone());
        if twin.as_ref().is_some_and(|twin| twin.build.is_some()) {
            new.replaced = self.replaced.clone();
        }
        new.twin = twin;
        entry
    }

    /// What was there before its rows were made anew, while somebody may look from before that.
    pub fn was(&self) -> Option<&Was> {
        self.twin.as_ref()?.was.as_deref()
    }

    /// Its structure is that of this entry from now on: whoever has this one keeps that one.
    pub fn succeed(&self, alone: &Arc<IndexEntry>) {
        let _ = self.alone.set(alone.clone());
    }

    /// From now on the manifest says this before its state, or nothing.
    pub fn say(&self, said: Option<Said>) {
        *self.said.lock() = said;
    }

    /// What the manifest says before its state.
    pub fn said(&self) -> Option<Said> {
        *self.said.lock()
    }

    /// Its name: that of its definition, or the last that it was given.
    pub fn name(&self) -> &str {
        &self.name.last().text
    }

    /// Has this name from now on.
    pub fn rename(&self, to: &str) {
        let named = self.name.last().next.set(Box::new(Name::new(to)));
        debug_assert!(named.is_ok(), "definitions are changed one at a time");
    }

    /// Its definition, under its name.
    pub fn def_now(&self) -> IndexDef {
        IndexDef { name: self.name().to_owned(), ..self.def.clone() }
    }

    /// How far it is.
    pub fn stage(&self) -> Stage {
        // SeqCst, with the gate's counts: whoever comes in behind a change sees it.
        match self.stage.load(Ordering::SeqCst) {
            0 => Stage::Public,
            1 => Stage::Building,
            2 => Stage::Verifying,
            _ => Stage::Abandoned,
        }
    }

    /// Goes on with its build; an error if that has failed.
    pub fn advance(&self, from: Stage, to: Stage) -> Result<()> {
        let moved = self.stage.compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst);
        if moved.is_ok() { Ok(()) } else { Err(self.failure.get().cloned().unwrap_or(Error::Cancelled)) }
    }

    /// An error if its build has failed.
    pub fn check_build(&self) -> Result<()> {
        match self.failure.get() {
            Some(error) => Err(error.clone()),
            None if self.is_noted() => {
                let problem = Corruption::of_index(self.id(), None, "new index", "blocks as written", "damaged ones");
                Err(Fault::from(problem).into())
            }
            None => Ok(()),
        }
    }

    /// Ends its build for this reason, whatever stage that has come to. False if it is public already.
    pub fn fail_build(&self, why: Error) -> bool {
        loop {
            let stage = self.stage();
            match stage {
                Stage::Public => return false,
                Stage::Abandoned => return true,
                Stage::Building | Stage::Verifying => {}
            }
            let _ = self.failure.set(why.clone());
            vfs::thread::point("build.failing");
            if self.advance(stage, Stage::Abandoned).is_ok() {
                return true;
            }
        }
    }

    /// Nobody keeps it up from now on.
    pub fn abandon(&self) {
        self.stage.store(Stage::Abandoned as u8, Ordering::SeqCst);
    }

    /// The moment of its build: readers from there on find all rows.
    pub fn set_usable_from(&self, ts: CommitTs) {
        self.usable_from.store(ts.0, Ordering::Release);
    }

    /// Snapshots from before this moment, or from before a later one that was given, are refused.
    pub fn hide_before(&self, ts: CommitTs) {
        self.usable_from.fetch_max(ts.0, Ordering::AcqRel);
    }

    /// What is committed from now on need not be here.
    pub fn set_replaced(&self) {
        // SeqCst, as of what is set aside: whoever sees a commit that left it out sees this.
        self.replaced.store(true, Ordering::SeqCst);
    }

    /// What is committed need not be here.
    pub fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::SeqCst)
    }

    /// Commits leave it out if it was set aside or dropped, or its build failed.
    pub fn is_written(&self) -> bool {
        let gone = matches!(self.def.role, Role::Secondary(_)) && self.dropped_at().is_some();
        !self.is_quarantined() && self.stage() != Stage::Abandoned && !gone
    }

    /// An error for a snapshot from before the index was built, or from behind its end: to be asked once the snapshot is taken.
    /// Writers leave out what is dropped or set aside, and that may come between any look before and the snapshot.
    pub fn check_snapshot(&self, at: index::ReadAt) -> Result<()> {
        self.check()?;
        match at {
            index::ReadAt::Snapshot(ts) if ts.0 < self.usable_from.load(Ordering::Acquire) => {
                Err(Error::DefinitionChanged { name: self.name().to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Its number.
    pub fn id(&self) -> IndexId {
        self.def.id
    }

    /// Its values are counters.
    pub fn of_counters(&self) -> bool {
        self.def.options.counters
    }

    /// What the locks on it are named by.
    pub fn lock_names(&self) -> txn::KeyNames {
        match self.def.role {
            Role::Secondary(_) => txn::KeyNames::Fronts,
            Role::Plain if self.of_counters() => txn::KeyNames::Counters,
            Role::Plain | Role::Primary => txn::KeyNames::Whole,
        }
    }

    /// Marks it dropped: handles refuse from now on.
    pub fn set_dropped(&self, at: CommitTs) {
        // Release: pairs with the load in `check`; nothing else is published by it.
        self.dropped_at.store(at.0, Ordering::Release);
    }

    /// When it was dropped.
    pub fn dropped_at(&self) -> Option<CommitTs> {
        match self.dropped_at.load(Ordering::Acquire) {
            0 => None,
            at => Some(CommitTs(at)),
        }
    }

    /// True if it was set aside.
    pub fn is_quarantined(&self) -> bool {
        // SeqCst, with the log's counter: whoever sees it appends behind the record that says so.
        self.quarantined.load(Ordering::SeqCst)
    }

    /// Commits leave it out from now on, readers are refused.
    pub fn set_quarantined(&self) {
        self.quarantined.store(true, Ordering::SeqCst);
    }

    /// Leaves word of damage, if the index can be made anew: maintenance leaves out what is noted, and any other index has
    /// to go on with its damage. Relaxed, whoever looks comes by again.
    pub fn note_damage(&self) {
        if matches!(self.def.role, Role::Secondary(_)) {
            self.noted.store(true, Ordering::Relaxed);
        }
    }

    /// What a reader gets; of damage that he met he leaves word.
    pub fn read<T>(&self, read: base::Result<T>) -> base::Result<T> {
        if matches!(read, Err(Fault::Corrupt(_))) {
            self.note_damage();
        }
        read
    }

    /// True if damage was met in an index that can be made anew.
    pub fn is_noted(&self) -> bool {
        self.noted.load(Ordering::Relaxed)
    }

    /// Damage was met by what keeps the index in shape, and it cannot be made anew: from now on it is only read.
    pub fn set_damaged(&self, damage: Box<Corruption>) {
        debug_assert!(!matches!(self.def.role, Role::Secondary(_)) && self.id() != IndexId::CATALOG);
        let _ = self.damage.set(damage);
    }

    /// Why it is only read.
    pub fn damage(&self) -> Option<&Corruption> {
        self.damage.get().map(|damage| &**damage)
    }

    /// False once damage was met in it: it is left alone until it is made anew, or for good.
    pub fn is_kept_up(&self) -> bool {
        !self.is_noted() && self.damage().is_none()
    }

    /// An error if it was dropped or set aside, or is not written any more.
    pub fn check(&self) -> Result<()> {
        if self.is_quarantined() {
            return Err(Error::Quarantined { index: self.name().to_owned() });
        }
        if self.is_replaced() {
            return Err(Error::DefinitionChanged { name: self.name().to_owned() });
        }
        match self.dropped_at() {
            None => Ok(()),
            Some(_) => Err(Error::Dropped { name: self.name().to_owned() }),
        }
    }
}

/// Columns and indexes of a table as of one moment; replaced as a whole by DDL.
pub struct TableShape {
    /// As the catalog has it.
    pub def: TableDef,
    /// The rows.
    pub primary: Arc<IndexEntry>,
    /// The secondary indexes, in the schema's order.
    pub secondaries: Vec<Arc<IndexEntry>>,
    /// What writers maintain.
    pub maintained: Maintained,
}

/// The secondary indexes that writers maintain: the public ones, then those that are being built.
#[derive(Clone)]
pub struct Maintained {
    /// The table's schema, with the indexes that are being built behind the others.
    pub schema: Schema,
    /// In the order of `schema`.
    pub indexes: Vec<Arc<IndexEntry>>,
}

impl TableShape {
    /// A table with nothing being built.
    pub fn new(def: TableDef, primary: Arc<IndexEntry>, secondaries: Vec<Arc<IndexEntry>>) -> Self {
        let maintained = Maintained { schema: def.schema.clone(), indexes: secondaries.clone() };
        Self { def, primary, secondaries, maintained }
    }

    /// The same with another entry of its rows.
    pub fn with_primary(&self, primary: Arc<IndexEntry>) -> Self {
        let (def, secondaries, maintained) = (self.def.clone(), self.secondaries.clone(), self.maintained.clone());
        Self { def, primary, secondaries, maintained }
    }

    /// The same with these being built; `schema` has them behind the others.
    pub fn building(&self, schema: Schema, new: &[Arc<IndexEntry>]) -> Self {
        let mut shape = Self::new(self.def.clone(), self.primary.clone(), self.secondaries.clone());
        shape.maintained.schema = schema;
        shape.maintained.indexes.extend_from_slice(new);
        shape
    }
}

/// A name, and the one that came behind it: whoever has borrowed it keeps it.
struct Name {
    text: String,
    next: OnceLock<Box<Name>>,
}

impl Name {
    fn new(text: &str) -> Self {
        Self { text: text.to_owned(), next: OnceLock::new() }
    }

    fn last(&self) -> &Self {
        let mut name = self;
        while let Some(next) = name.next.get() {
            name = next;
        }
        name
    }
}

impl Drop for Name {
    /// One after the other, however many they are.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut name) = next {
            next = name.next.take();
        }
    }
}

/// An open table.
pub struct TableEntry {
    /// Id of its primary index.
    pub id: IndexId,
    name: Name,
    /// Who changes the definition.
    pub changes: Arc<Turn>,
    /// Who writes.
    pub gate: WriterGate,
    shape: RwLock<Arc<TableShape>>,
}

impl TableEntry {
    /// A table with its first shape.
    pub fn new(shape: TableShape) -> Arc<Self> {
        Arc::new(Self {
            id: shape.def.id,
            name: Name::new(&shape.def.name),
            changes: Arc::default(),
            gate: WriterGate::default(),
            shape: RwLock::new(Arc::new(shape)),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name.last().text
    }

    /// Has this definition from now on, which differs from the one before in its name.
    pub fn rename(&self, def: TableDef) {
        let next = Box::new(Name::new(&def.name));
        let named = self.name.last().next.set(next);
        debug_assert!(named.is_ok(), "definitions are changed one at a time");
        self.update_shape(|now| TableShape {
            def,
            primary: now.primary.clone(),
            secondaries: now.secondaries.clone(),
            maintained: Maintained { schema: now.maintained.schema.clone(), indexes: now.maintained.indexes.clone() },
        });
    }

    /// The shape now.
    pub fn shape(&self) -> Arc<TableShape> {
        self.shape.read().clone()
    }

    /// Replaces the shape by one made of the one that is there. Writers inside keep the one they came in with. Nobody gets
    /// either while it is made.
    pub fn update_shape(&self, make: impl FnOnce(&TableShape) -> TableShape) {
        let mut shape = self.shape.write();
        *shape = Arc::new(make(&shape));
    }

    /// Puts another entry in place of the secondary index of the same number.
    pub fn put_secondary(&self, entry: &Arc<IndexEntry>) {
        let put = |old: &Arc<IndexEntry>| if old.id() == entry.id() { entry.clone() } else { old.clone() };
        self.update_shape(|shape| TableShape {
            def: shape.def.clone(),
            primary: shape.primary.clone(),
            secondaries: shape.secondaries.iter().map(put).collect(),
            maintained: Maintained {
                schema: shape.maintained.schema.clone(),
                indexes: shape.maintained.indexes.iter().map(put).collect(),
            },
        });
    }
}

/// The names of the database.
#[derive(Default)]
pub struct Names {
    /// Every open index by number, the catalog included.
    pub indexes: BTreeMap<IndexId, Arc<IndexEntry>>,
    /// Plain indexes by name.
    pub plain: BTreeMap<String, Arc<IndexEntry>>,
    /// Tables by name.
    pub tables: BTreeMap<String, Arc<TableEntry>>,
    /// By the name of a parent, which may be missing: the tables with foreign keys to it ([`crate::foreign`]).
    pub references: BTreeMap<String, Vec<Arc<TableEntry>>>,
    /// Names of parents that are missing for a moment: left to another table by the one that had it, which is given.
    pub left: BTreeMap<String, IndexId>,
    /// Dropped indexes whose blocks are not freed yet. An index leaves `indexes` and comes here in one step, so that
    /// each checkpoint names it until it is freed.
    pub dropped: Vec<Arc<IndexEntry>>,
    /// Rows as they were before they were made anew, for as long as somebody reads them; their entries are in `dropped`.
    pub former: Vec<Former>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Damage that a commit meets while its index goes on to the next stage ends the build all the same: the commit is not told
    /// of it. Guard: `fail_build` looks again.
    #[test]
    fn a16e_a_build_fails_in_whatever_stage_it_is_by_then() {
        use vfs::sim::{Config, Simulation};
        for (next, fails) in [(Stage::Verifying, true), (Stage::Public, false)] {
            Simulation::new(1, Config::default()).run(move |sim| {
                let (id, role) = (IndexId(2), Role::Secondary(IndexId(1)));
                let def = IndexDef { id, name: "i".into(), role, options: Default::default(), quarantined: false };
                let index = crate::quarantine::entry(&def).index.clone();
                let entry = IndexEntry::to_build(def, index, None);
                let gate = sim.hold("build.failing");
                let other = entry.clone();
                let failing = vfs::thread::spawn("failing", move || other.fail_build(Error::Closed)).expect("starts");
                gate.wait_reached();
                entry.advance(Stage::Building, next).expect("nothing has failed yet");
                gate.open();
                assert_eq!(failing.join().expect("no panic"), fails);
                assert_eq!(entry.stage() == Stage::Abandoned, fails);
            });
        }
    }
}
