//! What a transaction holds until its end, apart from its session: after [`Transaction::prepare`] it belongs to the database.

use std::sync::Arc;
use std::time::Duration;

use base::{CommitTs, Fault, IndexId, Result, TxnId};
use index::Batch;
use index::counter::Counter;
use smallvec::SmallVec;
use store::{Charge, Class};
use txn::write_set::Seq;
use txn::{LockOutcome, LockRequest, Mode, SharedWriteSet};

use super::locking::RowLocks;
use super::spilling::spill;
use super::{OpenTable, Transaction};
use crate::catalog::Role;
use crate::engine::Engine;
use crate::entry::{IndexEntry, TableEntry, TableShape};

/// Locks, pending keys and places in the gates of tables.
pub(crate) struct Held {
    id: TxnId,
    locks: RowLocks,
    tables: SmallVec<[OpenTable; 2]>,
    writes: Arc<SharedWriteSet>,
    is_writer: bool,
    charge: Charge,
    /// Keys that recovery took again.
    taken: u64,
}

impl Transaction {
    /// Takes everything that it holds off the transaction, which is at its end. It is never chosen to end a deadlock (P2):
    /// it waits for nothing any more.
    pub(crate) fn detach(&self) -> Held {
        debug_assert!(!self.done.get(), "a transaction ends once");
        self.done.set(true);
        let none = RowLocks::new(self.id, self.engine.budget.charge(Class::Locks, 0));
        let locks = self.locks.replace(none);
        locks.owner.set_prepared();
        self.touched.take();
        self.snapshot.take();
        // The registry says from now on what it will owe.
        self.promise.borrow_mut().take_back(&self.engine.promised, Seq(0));
        Held {
            id: self.id,
            locks,
            tables: self.tables.take(),
            writes: self.writes.clone(),
            is_writer: self.is_writer.get(),
            charge: self.charge.replace(self.engine.budget.charge(Class::WriteSets, 0)),
            taken: 0,
        }
    }

    /// Its number.
    pub(crate) fn txn(&self) -> TxnId {
        self.id
    }
}

impl Held {
    /// Of a transaction that recovery found.
    pub(crate) fn recovered(engine: &Engine, id: TxnId) -> Self {
        let locks = RowLocks::new(id, engine.budget.charge(Class::Locks, 0));
        locks.owner.set_prepared();
        let writes = Arc::default();
        engine.writers.enter(id, &writes);
        let charge = engine.budget.charge(Class::WriteSets, 0);
        Self { id, locks, tables: SmallVec::new(), writes, is_writer: true, charge, taken: 0 }
    }

    /// Takes again what a write of `key` held, or may have: the lock of the row, or of the value of an entry of table `shape`,
    /// and the pending key that readers of ranges look for (rules A22, A24).
    pub(crate) fn retake(
        &mut self,
        engine: &Arc<Engine>,
        entry: &IndexEntry,
        shape: Option<&TableShape>,
        (key, value): (&[u8], Option<&[u8]>),
    ) -> Result<()> {
        self.writes.write(|writes| writes.delete(entry.id(), key))?;
        self.shrink_if_large(engine)?;
        if !matches!(entry.def.role, Role::Secondary(_)) {
            let adds = entry.of_counters() && matches!(value.and_then(Counter::decode), Some(Counter::Delta(_)));
            self.lock(engine, entry.id(), key, if adds { Mode::Increment } else { Mode::Exclusive });
            return Ok(());
        }
        // Entries of secondary indexes change only under their row's lock; values of those that are not unique are locked by
        // who wants to (`Transaction::lock_index_value`).
        let Some(shape) = shape else { return Ok(()) };
        let Some(n) = shape.secondaries.iter().position(|secondary| secondary.id() == entry.id()) else {
            return Ok(());
        };
        let schema = &shape.def.schema;
        if schema.indexes()[n].is_unique() {
            schema
                .unique_value(n, key)?
                .into_iter()
                .for_each(|value| self.lock(engine, entry.id(), value, Mode::Exclusive));
            return Ok(());
        }
        // Others may have the same value: then nobody had locked it.
        let value = &key[..schema.columns_end(Some(n), schema.index_columns(n).len(), key)?];
        self.lock_if_free(engine, entry.id(), value);
        Ok(())
    }

    /// While the keys of a large set are taken again: its locks are folded and its keys go to files, as they were before.
    fn shrink_if_large(&mut self, engine: &Arc<Engine>) -> Result<()> {
        self.taken += 1;
        let limit = engine.budget.limit();
        if !self.taken.is_multiple_of(1024) || self.locks.bytes.max(self.writes.bytes()) < limit / 16 {
            return Ok(());
        }
        self.locks.fold(engine, self.id, &self.writes);
        match spill(engine, &self.writes) {
            // They stay in memory: a full disk does not keep a database from being opened.
            Err(Fault::NoSpace { .. }) => Ok(()),
            done => done,
        }
    }

    fn lock(&mut self, engine: &Engine, index: IndexId, key: &[u8], mode: Mode) {
        let is_granted = self.ask(engine, index, key, mode, None);
        debug_assert!(is_granted, "they held their locks side by side");
    }

    fn lock_if_free(&mut self, engine: &Engine, index: IndexId, key: &[u8]) {
        self.ask(engine, index, key, Mode::Exclusive, Some(Duration::ZERO));
    }

    /// One of a key that a foreign key refers to, unless another transaction has it.
    pub(crate) fn lock_reference(&mut self, engine: &Engine, index: IndexId, name: &[u8], mode: Mode) {
        self.ask(engine, index, name, mode, Some(Duration::ZERO));
    }

    fn ask(&mut self, engine: &Engine, index: IndexId, key: &[u8], mode: Mode, timeout: Option<Duration>) -> bool {
        let request = LockRequest { index, key, mode, timeout, weight: 0 };
        let outcome = engine.locks.lock(&mut self.locks.owner, &request);
        if matches!(outcome, LockOutcome::Granted { fresh: true, .. }) {
            self.locks.bytes += txn::lock_bytes(key) as u64;
        }
        matches!(outcome, LockOutcome::Granted { .. })
    }

    /// Enters the gate of a table that it has written to.
    pub(crate) fn enter(&mut self, table: &Arc<TableEntry>) {
        if self.tables.iter().all(|open| open.entry.id != table.id) {
            let slot = table.gate.enter(self.id.0, || Ok(crate::ddl::LOOK));
            let slot = Some(slot.expect("this wait has no end of its own"));
            self.tables.push(OpenTable { entry: table.clone(), shape: table.shape(), slot });
        }
    }

    /// True if it keeps changes of this table's definition out.
    pub(crate) fn keeps(&self, table: IndexId) -> bool {
        self.tables.iter().any(|open| open.slot.is_some() && open.entry.id == table)
    }

    /// From now on it keeps only the keys of its writes: the values are in run files.
    pub(crate) fn keep_keys(&mut self) {
        self.writes.keep_keys();
        self.charge([]);
    }

    /// Charges what it has in memory, with the batches made of it. Past the limit if need be: it is there already.
    pub(crate) fn charge<'a>(&mut self, batches: impl IntoIterator<Item = &'a Batch>) {
        let batches: usize = batches.into_iter().map(Batch::bytes).sum();
        let bytes = self.writes.bytes() + batches as u64;
        self.charge.set(bytes);
        self.locks.charge_all();
    }

    /// The end: with the timestamp of the commit once it is applied, without after a rollback.
    pub(crate) fn release(mut self, engine: &Engine, ts: Option<CommitTs>) {
        self.locks.unlock_ranges(self.id);
        self.locks.release_all(&engine.locks, ts);
        for table in self.tables {
            if let Some(slot) = table.slot {
                table.entry.gate.leave(slot);
            }
        }
        if self.is_writer {
            engine.writers.leave(self.id, &self.writes);
        }
    }
}
