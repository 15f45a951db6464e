//! Prepared transactions as recovery finds them: in the manifest and in the log, decided or not.
//!
//! A set becomes known by the manifest or by its prepare record, whichever names it first, and is kept until the record
//! that decides it. A commit is replayed at the end of that record (rule P6), a rollback forgets it. What is left at the end
//! of the log is prepared: it takes its locks, its pending keys and its places in the gates of tables again, before anybody
//! else has the database. Its operations stay in memory until the checkpoint that ends recovery writes them as runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::{CommitTs, IndexId, Lsn, Result, TxnId};
use store::{Budget, Charge, Class};
use txn::Mode;
use wal::RecordRef;

use super::references;
use super::registry::{Brief, Decided, Form, SetShare};
use crate::catalog::Role;
use crate::engine::Engine;
use crate::entry::{IndexEntry, TableEntry};
use crate::manifest::Manifest;
use crate::record::{self, Change};
use crate::recovery::Replayer;
use crate::transaction::Held;

/// A set that is not decided yet, as far as the log has been read.
pub struct Found {
    xid: Vec<u8>,
    since_ms: u64,
    start: Lsn,
    changes: Vec<(IndexId, Change)>,
    _charge: Charge,
}

/// The sets met so far, by the end of their prepare records.
pub struct Undecided {
    sets: BTreeMap<Lsn, Found>,
    /// Those that were committed: an index that could not take the commit in, for damage, needs the set again at the next
    /// opening.
    committed: Vec<Decided>,
    budget: Budget,
}

impl Undecided {
    /// Those that the manifest names.
    pub fn new(manifest: &Manifest, budget: &Budget) -> Self {
        let sets = manifest.prepared.iter().map(|set| {
            let changes = set.shares.iter().map(|(id, meta)| (*id, Change::Run(meta.clone()))).collect();
            let _charge = budget.charge(Class::WriteSets, 0);
            let found = Found { xid: set.xid.clone(), since_ms: set.since_ms, start: set.prepare, changes, _charge };
            (set.prepare, found)
        });
        Self { sets: sets.collect(), committed: Vec::new(), budget: budget.clone() }
    }

    /// Takes a record.
    pub fn take(&mut self, r: RecordRef<'_>, replayer: &mut Replayer<'_>) -> Result<()> {
        match r.kind.0 {
            // What the manifest names is in run files: their numbers are the ones to go by.
            record::KIND_PREPARE if !self.sets.contains_key(&r.end) => {
                let (prepare, changes) = record::decode_prepare(r.payload, r.end)?;
                let (xid, since_ms) = (prepare.xid, prepare.since_ms);
                let _charge = self.budget.charge(Class::WriteSets, r.payload.len() as u64);
                self.sets.insert(r.end, Found { xid, since_ms, start: r.start, changes, _charge });
                Ok(())
            }
            record::KIND_COMMIT_PREPARED => {
                let decision = record::decode_decision(r.payload, r.end)?;
                match self.sets.remove(&decision.prepare) {
                    Some(found) => {
                        self.committed.push(found.committed(decision.prepare, r.end.as_commit_ts()));
                        replayer.changes(r.end, found.changes)
                    }
                    // Below the floor: legal if no index needs it (rule A7).
                    None => replayer.check_not_needed(r.end, &decision),
                }
            }
            record::KIND_ROLLBACK_PREPARED => {
                let decision = record::decode_decision(r.payload, r.end)?;
                self.sets.remove(&decision.prepare);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Run files of what is prepared: they stay until it is decided.
    pub fn files(&self) -> impl Iterator<Item = (u64, CommitTs)> {
        let changes = self.sets.values().flat_map(|found| &found.changes);
        changes.filter_map(
            |(_, change)| if let Change::Run(meta) = change { Some((meta.id, CommitTs::MAX)) } else { None },
        )
    }

    /// The end of the log: what is left is prepared.
    pub fn restore(self, engine: &Arc<Engine>) -> Result<()> {
        engine.prepared.were_committed(self.committed);
        let mut restored = Vec::new();
        let done = self.sets.into_iter().try_for_each(|(end, found)| {
            restored.push(restore(engine, end, found)?);
            Ok(())
        });
        let done = done.and_then(|()| retake_references(engine, &mut restored));
        // Also if that failed, and the open with it: who closes the engine gives back what is registered.
        restored.into_iter().for_each(|Restored { brief, shares, held }| {
            engine.prepared.register(brief, shares, held, true);
        });
        done
    }
}

/// Behind all row locks: what nobody has of the others is theirs.
fn retake_references(engine: &Arc<Engine>, restored: &mut [Restored]) -> Result<()> {
    for mode in [Mode::Exclusive, Mode::Shared] {
        for Restored { shares, held, .. } in restored.iter_mut() {
            held.iter_mut().try_for_each(|held| references::retake(engine, held, shares, mode))?;
        }
    }
    Ok(())
}

impl Found {
    fn committed(&self, end: Lsn, ts: CommitTs) -> Decided {
        let file = |(id, change): &(IndexId, Change)| match change {
            Change::Inline(_) => None,
            Change::Run(meta) => Some((*id, meta.clone())),
        };
        let (xid, since) = (self.xid.clone(), Duration::from_millis(self.since_ms));
        let (writes, bytes, decision_bytes) = Default::default();
        let transaction = TxnId::ZERO;
        let brief = Brief { xid, transaction, since, start: self.start, end, writes, bytes, decision_bytes };
        let indexes = self.changes.iter().map(|(id, _)| *id).collect();
        Decided { brief: Arc::new(brief), ts, indexes, files: self.changes.iter().map(file).collect() }
    }
}

/// A set that is prepared, with its locks.
struct Restored {
    brief: Brief,
    shares: Vec<SetShare>,
    held: Option<Held>,
}

fn restore(engine: &Arc<Engine>, end: Lsn, found: Found) -> Result<Restored> {
    let transaction = TxnId(engine.next_txn.fetch_add(1, Ordering::Relaxed));
    let mut shares = Vec::new();
    for (id, change) in found.changes {
        // None, of a plain index that was dropped meanwhile.
        let Some(entry) = engine.index(id) else { continue };
        let form = match change {
            Change::Inline(batch) => Form::Inline(Arc::new(batch)),
            Change::Run(meta) => Form::File(meta),
        };
        shares.push(SetShare { entry, form, only_deletes: false, content_bytes: None });
    }
    let writable = !engine.options.read_only;
    let held = if writable { Some(hold_again(engine, transaction, &shares)?) } else { None };
    let (xid, start) = (found.xid, found.start);
    let since = Duration::from_millis(found.since_ms);
    let decision_bytes = record::decision_bytes(&xid, shares.len());
    if writable {
        engine.wal.promise(decision_bytes);
    }
    let (writes, bytes) = (shares.iter().map(SetShare::len).sum(), shares.iter().map(SetShare::bytes).sum());
    let brief = Brief { xid, transaction, since, start, end, writes, bytes, decision_bytes };
    Ok(Restored { brief, shares, held })
}

/// Takes again what a set held.
fn hold_again(engine: &Arc<Engine>, transaction: TxnId, shares: &[SetShare]) -> Result<Held> {
    let mut held = Held::recovered(engine, transaction);
    match shares.iter().try_for_each(|share| retake(engine, &mut held, share)) {
        Ok(()) => {
            held.charge(super::inline_batches(shares));
            Ok(held)
        }
        Err(fault) => {
            held.release(engine, None);
            Err(fault)
        }
    }
}

/// Takes again what a share of a set held.
fn retake(engine: &Arc<Engine>, held: &mut Held, share: &SetShare) -> Result<()> {
    let (entry, table) = (&share.entry, table_of(engine, &share.entry));
    table.iter().for_each(|table| held.enter(table));
    let shape = table.map(|table| table.shape());
    let shape = shape.as_deref();
    match &share.form {
        Form::Inline(batch) => {
            batch.iter().try_for_each(|(key, op)| held.retake(engine, entry, shape, (key, op.value())))
        }
        Form::File(meta) => {
            let run = engine.open_run(meta)?;
            let mut cursor = run.cursor();
            let mut more = cursor.seek_first()?;
            while more {
                let value = if share.entry.of_counters() { cursor.value()? } else { None };
                held.retake(engine, entry, shape, (cursor.key(), value.as_deref()))?;
                more = cursor.next()?;
            }
            Ok(())
        }
    }
}

fn table_of(engine: &Arc<Engine>, entry: &IndexEntry) -> Option<Arc<TableEntry>> {
    let table = match entry.def.role {
        Role::Plain => return None,
        Role::Primary => entry.id(),
        Role::Secondary(table) => table,
    };
    engine.names.read().tables.values().find(|t| t.id == table).cloned()
}
