//! A transaction: its snapshot, its locks, its writes.
//!
//! Writes stay in the write set until commit (decision D1): the indexes hold committed data only, rollback
//! drops the set. A write takes its row's exclusive lock first and acts on the newest committed version, as
//! InnoDB does; plain reads see the snapshot with the own writes on top.
//!
//! Invariant: after `done` no lock is held, no table gate is entered and the write set is empty.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use base::{CommitTs, IndexId, TxnId};
use index::{Batch, BatchBuilder, Direction, Op};
use store::{Charge, Class};
use txn::write_set::{Seq, Written};
use txn::{LockOutcome, LockOwner, LockRequest, Mode, Snapshot as Slot, WriteSet};

use crate::commit::Room;
use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::entry::{IndexEntry, TableEntry, TableShape};
use crate::error::{Error, Result};
use crate::handle::Index;
use crate::options::{Durability, Isolation};

mod reading;

/// A place in a transaction to which it can return.
#[derive(Debug, Clone, Copy)]
pub struct Savepoint(Seq);

/// A running transaction. Dropping it rolls it back.
pub struct Transaction {
    pub(crate) engine: Arc<Engine>,
    id: TxnId,
    isolation: Isolation,
    /// The snapshot of all plain reads under REPEATABLE READ, taken by the first.
    snapshot: OnceCell<Slot>,
    writes: WriteSet,
    locks: LockOwner,
    /// Indexes written to.
    touched: BTreeMap<IndexId, Arc<IndexEntry>>,
    /// Tables used, each with the shape it had when first used, and the gate slot if written to.
    tables: Vec<OpenTable>,
    /// Commits this transaction has met through locks: its next snapshot waits for them (rule A17).
    seen: Cell<CommitTs>,
    charge: Charge,
    done: bool,
}

struct OpenTable {
    entry: Arc<TableEntry>,
    shape: Arc<TableShape>,
    slot: Option<usize>,
}

/// Write-set bytes between two looks at the budget.
const CHARGE_STEP_BYTES: u64 = 64 << 10;

impl Transaction {
    pub(crate) fn begin(engine: &Arc<Engine>, isolation: Isolation) -> Result<Self> {
        engine.check_open()?;
        let id = TxnId(engine.next_txn.fetch_add(1, Ordering::Relaxed));
        Ok(Self {
            engine: engine.clone(),
            id,
            isolation,
            snapshot: OnceCell::new(),
            writes: WriteSet::new(),
            locks: LockOwner::new(id),
            touched: BTreeMap::new(),
            tables: Vec::new(),
            seen: Cell::new(CommitTs::ZERO),
            charge: engine.budget.charge(Class::WriteSets, 0),
            done: false,
        })
    }

    /// The value of `key`, as this transaction sees it.
    ///
    /// # Errors
    /// I/O errors and corruption; `Dropped`, `Closed`.
    pub fn get(&self, index: &Index, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        self.get_with(index, key, |v| value = Some(v.to_vec()))?;
        Ok(value)
    }

    /// Calls `with` with the value of `key`, without copying it. True if there is one. `with` runs under a
    /// latch: it must not call the database.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_with(&self, index: &Index, key: &[u8], mut with: impl FnMut(&[u8])) -> Result<bool> {
        self.read(index.entry(), &[key], &mut |_, value| with(value)).map(|n| n > 0)
    }

    /// Entries of `range` in ascending key order.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn range<'a>(&'a self, index: &Index, range: impl RangeBounds<&'a [u8]>) -> Result<Cursor<'a>> {
        self.cursor(index.entry(), bounds(&range), Direction::Forward)
    }

    /// Entries of `range` in descending key order.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn range_back<'a>(&'a self, index: &Index, range: impl RangeBounds<&'a [u8]>) -> Result<Cursor<'a>> {
        self.cursor(index.entry(), bounds(&range), Direction::Backward)
    }

    /// Sets the value of `key`, whatever it was.
    ///
    /// # Errors
    /// `Deadlock` (the transaction is rolled back), `LockTimeout`, `Limit`, `DiskFull`, `Poisoned`.
    pub fn put(&mut self, index: &Index, key: &[u8], value: &[u8]) -> Result<()> {
        let entry = index.entry();
        self.lock_row(entry, key)?;
        self.write(entry, key, Some(value))
    }

    /// Removes `key`. True if it was there.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&mut self, index: &Index, key: &[u8]) -> Result<bool> {
        let entry = index.entry();
        self.lock_row(entry, key)?;
        let there = self.read_newest(entry, &[key], &mut |_, _| {})? > 0;
        if there {
            self.write(entry, key, None)?;
        }
        Ok(there)
    }

    /// The newest committed value of `key`, under its exclusive row lock until the end of the transaction.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn get_for_update(&mut self, index: &Index, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let entry = index.entry();
        self.lock_row(entry, key)?;
        let mut value = None;
        self.read_newest(entry, &[key], &mut |_, v| value = Some(v.to_vec()))?;
        Ok(value)
    }

    /// A place to return to.
    #[must_use]
    pub fn savepoint(&self) -> Savepoint {
        Savepoint(self.writes.position())
    }

    /// Undoes the writes since `savepoint`, at a cost proportional to them. Locks are kept.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        self.writes.rollback_to(savepoint.0);
    }

    /// Runs a statement: if it fails, its writes are taken back and the transaction can go on.
    pub(crate) fn statement<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.savepoint();
        let result = body(self);
        // After a deadlock there is nothing left to take back.
        if result.is_err() && !self.done {
            self.rollback_to(before);
        }
        result
    }

    /// An error once a deadlock has rolled the transaction back: what it would lock or enter now, nobody would
    /// release, and what it would commit is not all it was told to do.
    fn check_running(&self) -> Result<()> {
        if self.done {
            return Err(Error::InvalidArgument("the transaction was rolled back by a deadlock".into()));
        }
        Ok(())
    }

    /// Commits with the database's durability.
    ///
    /// # Errors
    /// `CommitOutcomeUnknown` if the log failed after the commit was handed to it; any other error means that
    /// it did not happen.
    pub fn commit(self) -> Result<CommitTs> {
        let durability = self.engine.options.durability;
        self.commit_with(durability)
    }

    /// Commits with the durability given. The reply comes when later snapshots see the commit.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit_with(mut self, durability: Durability) -> Result<CommitTs> {
        self.check_running()?;
        let batches = self.batches();
        if batches.is_empty() {
            self.finish(None);
            let seen = self.seen.get();
            self.engine.visible.wait_for(seen)?;
            return Ok(seen);
        }
        self.engine.check_writable()?;
        self.engine.check_room()?;
        let committed = self.engine.commit_batches(batches, Room::Ordinary)?;
        self.finish(Some(committed.ts));
        self.engine.finish_commit(committed.ts, durability)?;
        Ok(committed.ts)
    }

    /// Rolls back.
    pub fn rollback(mut self) {
        self.finish(None);
    }

    /// Takes the exclusive lock of a row.
    pub(crate) fn lock_row(&mut self, entry: &IndexEntry, key: &[u8]) -> Result<()> {
        self.check_running()?;
        self.engine.check_writable()?;
        entry.check()?;
        check_key(key)?;
        let request = LockRequest {
            index: entry.id(),
            key,
            mode: Mode::Exclusive,
            timeout: Some(self.engine.options.lock_timeout),
            weight: self.writes.len(),
        };
        match self.engine.locks.lock(&mut self.locks, &request) {
            LockOutcome::Granted { seen, .. } => {
                self.seen.set(self.seen.get().max(seen));
                Ok(())
            }
            LockOutcome::Deadlock { who } => {
                self.finish(None);
                Err(Error::Deadlock { cycle: who.to_string() })
            }
            LockOutcome::Timeout => Err(Error::LockTimeout {
                index: entry.def.name.clone(),
                key: base::bytes::printable(key),
                waited_ms: self.engine.options.lock_timeout.as_millis() as u64,
            }),
            LockOutcome::Cancelled => Err(Error::Closed),
        }
    }

    /// Adds an operation to the write set, or on an error does nothing; the row is locked.
    pub(crate) fn write(&mut self, entry: &Arc<IndexEntry>, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.check_running()?;
        check_key(key)?;
        // While only the reserve of the disk is left, work is refused here and before its commit, never later (P4).
        self.engine.check_room()?;
        if let Some(value) = value
            && value.len() as u64 > VALUE_BYTES_MAX
        {
            let got = value.len() as u64;
            return Err(Error::Limit { what: "length of a value in bytes", limit: VALUE_BYTES_MAX, got });
        }
        let before = self.savepoint();
        match value {
            Some(value) => self.writes.put(entry.id(), key, value)?,
            None => self.writes.delete(entry.id(), key)?,
        };
        self.touched.entry(entry.id()).or_insert_with(|| entry.clone());
        self.charge_writes().inspect_err(|_| self.writes.rollback_to(before.0))
    }

    fn charge_writes(&mut self) -> Result<()> {
        let bytes = self.writes.bytes() as u64;
        if bytes < self.charge.bytes() + CHARGE_STEP_BYTES {
            return Ok(());
        }
        // Half the budget: the rest must hold the pages the commit touches.
        let limit = self.engine.budget.limit() / 2;
        let others = self.engine.budget.used(Class::WriteSets) - self.charge.bytes();
        if bytes + others > limit {
            return Err(Error::Limit { what: "bytes of uncommitted writes in memory", limit, got: bytes + others });
        }
        self.charge.set(bytes);
        Ok(())
    }

    /// The table's shape for this transaction; `write` enters its gate until the end.
    pub(crate) fn open_table(&mut self, table: &Arc<TableEntry>, write: bool) -> Result<Arc<TableShape>> {
        self.check_running()?;
        let at = self.tables.iter().position(|t| t.entry.id == table.id);
        let at = at.unwrap_or_else(|| {
            self.tables.push(OpenTable { entry: table.clone(), shape: table.shape(), slot: None });
            self.tables.len() - 1
        });
        let open = &mut self.tables[at];
        if write && open.slot.is_none() {
            open.slot = Some(table.gate.enter(self.id.0));
            // The definition may have changed while nobody of this transaction was inside.
            open.shape = table.shape();
        }
        open.shape.primary.check()?;
        Ok(open.shape.clone())
    }

    /// The table's shape for reading.
    pub(crate) fn table_shape(&self, table: &Arc<TableEntry>) -> Arc<TableShape> {
        self.tables.iter().find(|t| t.entry.id == table.id).map_or_else(|| table.shape(), |t| t.shape.clone())
    }

    /// The write set as sorted batches, ascending by index.
    fn batches(&mut self) -> Vec<(Arc<IndexEntry>, Batch)> {
        let mut batches = Vec::with_capacity(self.touched.len());
        for entry in self.touched.values() {
            let mut builder = BatchBuilder::new();
            for (key, written) in self.writes.net(entry.id()) {
                let op = match written {
                    Written::Put(value) => Op::Put(value),
                    Written::Delete => Op::Delete,
                };
                builder.push(key, op);
            }
            let batch = builder.finish();
            if !batch.is_empty() {
                batches.push((entry.clone(), batch));
            }
        }
        batches
    }

    /// Releases everything; locks keep the commit's timestamp for their next owners.
    fn finish(&mut self, ts: Option<CommitTs>) {
        if self.done {
            return;
        }
        self.done = true;
        self.engine.locks.release_all(&mut self.locks, ts);
        for table in self.tables.drain(..) {
            if let Some(slot) = table.slot {
                table.entry.gate.leave(slot);
            }
        }
        self.touched.clear();
        self.writes.clear();
        self.snapshot.take();
        self.charge.set(0);
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.finish(None);
    }
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        let (limit, got) = (KEY_BYTES_MAX as u64, key.len() as u64);
        return Err(Error::Limit { what: "length of a key in bytes", limit, got });
    }
    Ok(())
}

/// A range of byte keys as the structures take it.
pub(crate) fn bounds<'a>(range: &impl RangeBounds<&'a [u8]>) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (range.start_bound().cloned(), range.end_bound().cloned())
}
