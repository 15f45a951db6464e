//! Writes that memory cannot hold go to files (rules A14, P7).
//!
//! All running transactions share one limit. Past an eighth of the budget, those that hold much move what they have
//! written to run files of their own; past a quarter, those that hold anything worth a file. So a transaction is limited by
//! the disk. Its commit merges the files of an index into one, durable before the record that names it
//! ([`crate::commit`]), and attached in one step: others do not wait for it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use base::IndexId;
use index::{BatchBuilder, Op};
use store::{Class, Run, RunMeta, RunWriter};
use txn::write_set::SpillFiles;
use txn::{SharedWriteSet, Written};

use super::{CHARGE_STEP_BYTES, Transaction};
use crate::catalog::Role;
use crate::commit::Changes;
use crate::engine::Engine;
use crate::entry::IndexEntry;
use crate::error::{Error, Result};

/// The files of spilled writes, beside those of runs that records name. The engine has prepared transactions, and those
/// have files: so files do not keep the engine.
struct Spilled(Weak<Engine>);

impl std::fmt::Debug for Spilled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spilled")
    }
}

impl Spilled {
    fn engine(&self) -> Arc<Engine> {
        self.0.upgrade().expect("who writes has the engine")
    }
}

impl SpillFiles for Spilled {
    fn create(&self) -> base::Result<(u64, RunWriter)> {
        let engine = self.engine();
        let id = engine.next_run.fetch_add(1, Ordering::SeqCst);
        engine.runs.begun(id);
        let (vfs, dir) = (engine.layout.vfs.clone(), engine.layout.runs());
        // LZ4 whatever the index has: it is read again soon.
        match RunWriter::create(vfs, &dir, id, store::Compression::Lz4) {
            Ok(writer) => Ok((id, writer)),
            Err(fault) => {
                self.remove(id);
                Err(fault)
            }
        }
    }

    fn open(&self, meta: &RunMeta) -> base::Result<Run> {
        self.engine().open_run(meta)
    }

    fn remove(&self, id: u64) {
        // Nothing names it: what cannot be removed now, the next open removes; so also what is prepared when the engine goes.
        if let Some(engine) = self.0.upgrade() {
            let _ = engine.runs.abandoned(&engine.layout, id);
        }
    }

    fn is_looked_up(&self, index: IndexId) -> bool {
        // Entries of secondary indexes are found by ranges, rows by their key.
        self.engine().index(index).is_none_or(|entry| !matches!(entry.def.role, Role::Secondary(_)))
    }
}

impl Transaction {
    /// Accounts for the memory of the writes, `bytes` of them where new ones are added; too much goes to files.
    pub(super) fn charge_writes(&mut self, bytes: u64) -> Result<()> {
        let held = bytes + self.spilled_bytes;
        let more = held.saturating_sub(self.charge.get_mut().bytes());
        if more < CHARGE_STEP_BYTES {
            return Ok(());
        }
        let budget = &self.engine.budget;
        let limit = budget.limit();
        let used = budget.used(Class::WriteSets) + budget.used(Class::Locks) + more;
        let is_much = bytes >= (limit / 64).max(CHARGE_STEP_BYTES);
        if (used > limit / 8 && is_much) || (used > limit / 4 && bytes >= CHARGE_STEP_BYTES) {
            return self.spill();
        }
        self.check_share(more)?;
        self.charge.get_mut().set(held);
        Ok(())
    }

    /// Before a write: what could not be moved goes first. Else each refusal would let some more in.
    pub(super) fn spill_again(&mut self) -> Result<()> {
        if self.spill_failed { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> Result<()> {
        // Which locks need not be held is told by what is still in memory.
        self.locks.get_mut().fold(&self.engine, self.id, &self.writes);
        let spilled = spill(&self.engine, &self.writes);
        self.spill_failed = spilled.is_err();
        // Nothing is left where writes are added, whether it could be moved on or not.
        self.spilled_bytes = self.writes.bytes();
        self.charge.get_mut().set(self.spilled_bytes);
        Ok(spilled?)
    }

    /// Transactions under way hold at most half the budget: the rest must hold the pages the commits touch.
    pub(super) fn check_share(&self, more: u64) -> Result<()> {
        let budget = &self.engine.budget;
        let limit = budget.limit() / 2;
        let got = budget.used(Class::WriteSets) + budget.used(Class::Locks) + more;
        if got > limit {
            return Err(Error::Limit { what: "bytes of uncommitted writes and row locks in memory", limit, got });
        }
        Ok(())
    }

    /// The net effect on each index, ascending by index.
    pub(crate) fn changes(&self) -> Result<Vec<(Arc<IndexEntry>, Changes)>> {
        let touched = self.touched.borrow();
        let mut all = Vec::with_capacity(touched.len());
        for entry in touched.iter().filter(|entry| entry.is_written()) {
            let spans = self.spans_deleted(entry);
            let behind = |changes| if spans.is_empty() { changes } else { Changes::Behind(spans, Box::new(changes)) };
            if self.writes.is_spilled(entry.id()) {
                all.push((entry.clone(), behind(Changes::Spilled(self.writes.clone()))));
                continue;
            }
            let (operations, bytes) = self.writes.room_of_net(entry.id());
            let mut builder = BatchBuilder::with_capacity(operations, bytes);
            self.writes.net(entry.id(), |key, written, is_fresh| -> Result<()> {
                match written {
                    Written::Put(value) if is_fresh => builder.push_fresh(key, value),
                    Written::Put(value) => builder.push(key, Op::Put(value)),
                    Written::Delete => builder.push(key, Op::Delete),
                }
                Ok(())
            })?;
            let batch = builder.finish();
            if !batch.is_empty() {
                all.push((entry.clone(), behind(Changes::Batch(batch))));
            }
        }
        Ok(all)
    }
}

/// Moves what a write set has in memory to files.
pub(super) fn spill(engine: &Arc<Engine>, writes: &SharedWriteSet) -> base::Result<()> {
    let files: Arc<dyn SpillFiles> = Arc::new(Spilled(Arc::downgrade(engine)));
    engine.counters.spills.fetch_add(1, Ordering::Relaxed);
    writes.spill(&files, usize::try_from(engine.budget.limit() / 16).unwrap_or(usize::MAX))
}
