//! Open indexes and tables: what the names in the catalog stand for while the database is open.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::{CommitTs, Corruption, IndexId};
use crossbeam_utils::CachePadded;
use vfs::sync::{Condvar, Mutex, RwLock};
use vfs::time::Instant;

use crate::catalog::{IndexDef, Role, TableDef};
use crate::error::{Error, Result};

/// An open index.
pub struct IndexEntry {
    /// As the catalog has it.
    pub def: IndexDef,
    /// The structure.
    pub index: Arc<dyn index::Index>,
    /// Commit timestamp of its drop; 0 while it exists.
    dropped_at: AtomicU64,
    /// Set aside, for good: [`crate::quarantine`].
    quarantined: AtomicBool,
    /// Somebody met damage in it.
    noted: AtomicBool,
    /// Damage that its upkeep met, if it cannot be made anew.
    damage: OnceLock<Box<Corruption>>,
    /// Where nothing may be inserted for now.
    pub ranges: txn::Ranges,
    /// Snapshots older than this would miss rows: the index was built at this moment (rule A16c).
    usable_from: CommitTs,
}

impl IndexEntry {
    /// Wraps an open structure.
    pub fn new(def: IndexDef, index: Arc<dyn index::Index>, usable_from: CommitTs) -> Arc<Self> {
        let (quarantined, noted) = Default::default();
        let (dropped_at, damage, ranges) = Default::default();
        Arc::new(Self { def, index, dropped_at, quarantined, noted, damage, ranges, usable_from })
    }

    /// An error for a snapshot from before the index was built.
    pub fn check_snapshot(&self, at: index::ReadAt) -> Result<()> {
        match at {
            index::ReadAt::Snapshot(ts) if ts < self.usable_from => {
                Err(Error::DefinitionChanged { name: self.def.name.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Its number.
    pub fn id(&self) -> IndexId {
        self.def.id
    }

    /// What the locks on it are named by.
    pub fn lock_names(&self) -> txn::KeyNames {
        if matches!(self.def.role, Role::Secondary(_)) { txn::KeyNames::Fronts } else { txn::KeyNames::Whole }
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

    /// An error if it was dropped or set aside.
    pub fn check(&self) -> Result<()> {
        if self.is_quarantined() {
            return Err(Error::Quarantined { index: self.def.name.clone() });
        }
        match self.dropped_at() {
            None => Ok(()),
            Some(_) => Err(Error::Dropped { name: self.def.name.clone() }),
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
}

/// An open table.
pub struct TableEntry {
    /// Id of its primary index.
    pub id: IndexId,
    /// Its name.
    pub name: String,
    /// Who writes and who changes the definition.
    pub gate: WriterGate,
    shape: RwLock<Arc<TableShape>>,
}

impl TableEntry {
    /// A table with its first shape.
    pub fn new(shape: TableShape) -> Arc<Self> {
        Arc::new(Self {
            id: shape.def.id,
            name: shape.def.name.clone(),
            gate: WriterGate::default(),
            shape: RwLock::new(Arc::new(shape)),
        })
    }

    /// The shape now.
    pub fn shape(&self) -> Arc<TableShape> {
        self.shape.read().clone()
    }

    /// Replaces the shape by one made of the one that is there. The caller holds the gate closed, or changes nothing
    /// that writers must agree on.
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
        });
    }
}

/// Lets writers of a table in, each until the end of its transaction, and one change of the definition after
/// they have left. Writers are counted on separate cache lines, so that they do not meet.
///
/// Schedule that shaped it: a writer counts itself in and then looks at `closed`; the changer sets `closed`
/// and then looks at the counts; both sequentially consistent, so one of them sees the other.
#[derive(Default)]
pub struct WriterGate {
    counts: [CachePadded<AtomicU64>; WriterGate::SLOTS],
    closed: AtomicU64,
    mutex: Mutex<()>,
    changed: Condvar,
}

impl WriterGate {
    const SLOTS: usize = 16;

    /// Counts a writer in, waiting while the definition is being changed. Returns the slot for `leave`.
    pub fn enter(&self, hint: u64) -> usize {
        let slot = (hint as usize) % Self::SLOTS;
        loop {
            self.counts[slot].fetch_add(1, Ordering::SeqCst);
            if self.closed.load(Ordering::SeqCst) == 0 {
                return slot;
            }
            self.leave(slot);
            let mut held = self.mutex.lock();
            while self.closed.load(Ordering::SeqCst) != 0 {
                self.changed.wait(&mut held);
            }
        }
    }

    /// Counts a writer out.
    pub fn leave(&self, slot: usize) {
        let before = self.counts[slot].fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "whoever leaves has entered");
        if self.closed.load(Ordering::SeqCst) != 0 {
            let _held = self.mutex.lock();
            self.changed.notify_all();
        }
    }

    /// Keeps writers out and waits until those inside have left; `None` if they have not in `timeout`.
    pub fn close(&self, timeout: Duration) -> Option<GateClosed<'_>> {
        let deadline = Instant::now() + timeout;
        let mut held = self.mutex.lock();
        while self.closed.load(Ordering::SeqCst) != 0 {
            if self.changed.wait_for(&mut held, deadline - Instant::now()) {
                return None;
            }
        }
        self.closed.store(1, Ordering::SeqCst);
        let closed = GateClosed(self);
        while self.counts.iter().any(|c| c.load(Ordering::SeqCst) != 0) {
            if self.changed.wait_for(&mut held, deadline - Instant::now()) {
                drop(held);
                drop(closed);
                return None;
            }
        }
        drop(held);
        Some(closed)
    }
}

/// The gate is closed until this is dropped.
pub struct GateClosed<'a>(&'a WriterGate);

impl Drop for GateClosed<'_> {
    fn drop(&mut self) {
        let _held = self.0.mutex.lock();
        self.0.closed.store(0, Ordering::SeqCst);
        self.0.changed.notify_all();
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
    /// Dropped indexes whose blocks are not freed yet. An index leaves `indexes` and comes here in one step, so that
    /// each checkpoint names it until it is freed.
    pub dropped: Vec<Arc<IndexEntry>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_waits_for_writers_and_holds_new_ones_back() {
        let gate = Arc::new(WriterGate::default());
        let slot = gate.enter(3);
        let order = Arc::new(Mutex::new(Vec::new()));
        let (g, o) = (gate.clone(), order.clone());
        let changer = vfs::thread::spawn("changer", move || {
            let _closed = g.close(Duration::from_secs(60)).expect("the writer leaves");
            o.lock().push("changed");
        })
        .expect("a thread starts");
        while gate.closed.load(Ordering::SeqCst) == 0 {
            vfs::thread::spin();
        }
        let (g, o) = (gate.clone(), order.clone());
        let writer = vfs::thread::spawn("writer", move || {
            let slot = g.enter(7);
            o.lock().push("wrote");
            g.leave(slot);
        })
        .expect("a thread starts");
        order.lock().push("left");
        gate.leave(slot);
        changer.join().expect("no panic");
        writer.join().expect("no panic");
        assert_eq!(*order.lock(), ["left", "changed", "wrote"]);
    }
}
