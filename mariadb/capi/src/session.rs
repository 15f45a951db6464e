// SPDX-License-Identifier: GPL-2.0-only
//! One connection: its transaction, the statement in it, named savepoints.
//!
//! A transaction begins with the first statement that needs one. A statement that fails is undone to where it began; a
//! deadlock ends the transaction under it, and then there is nothing left to undo.
//!
//! In two phases: a prepared transaction belongs to the database, under its name; the session keeps the name, and what its
//! commit needs if the server is going to order it. A session that is closed leaves it prepared.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use trefoil::{
    Canceller, ChangeOptions, Database, Durability, Error, Isolation, OrderedCommit, ReadyCommit, Savepoint,
    Transaction, TransactionOptions,
};

use crate::abi;
use crate::crash;
use crate::database::{Engine, at_once, is_temporary};
use crate::failure::{Code, Failure, Result, check_sound};
use crate::status::Ends;
use crate::watch::Face;
use crate::writes::{TableNumber, Writes};

/// A connection.
pub struct Session {
    db: Database,
    tx: Option<Transaction>,
    /// The name of what is prepared, and how far its commit has come.
    prepared: Option<Vec<u8>>,
    ready: Option<ReadyCommit>,
    ordered: Option<OrderedCommit>,
    isolation: Isolation,
    statement: Option<Savepoint>,
    savepoints: Vec<(u64, Savepoint)>,
    next_savepoint: u64,
    /// Who has read ahead looks at them.
    writes: Writes,
    /// Calls that may have locked a row: the engine gives back the lock of the last one.
    reads: u64,
    cancel: Arc<CancelSlot>,
    engine: Arc<Engine>,
    /// Temporary tables that the transaction may have written to, dropped while it runs.
    dropped: Vec<String>,
    /// For who looks at all connections, and the number by which it is found there.
    face: Arc<Face>,
    number: u64,
}

/// The same for other threads: what ends its waits.
#[derive(Default)]
pub struct CancelSlot {
    waits: Mutex<Option<Canceller>>,
    /// Since the statement began. Relaxed: it is met at the next look.
    cancelled: AtomicBool,
}

impl CancelSlot {
    /// The statement was ended.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        if let Some(canceller) = &*self.waits.lock().unwrap_or_else(PoisonError::into_inner) {
            canceller.cancel();
        }
    }

    fn set(&self, canceller: Option<Canceller>) {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = canceller;
    }
}

impl Session {
    /// `thread`: the server's number of the connection; `connection`: its pointer.
    pub fn new(engine: &Arc<Engine>, thread: u64, connection: *mut c_void) -> Self {
        let (number, face) = engine.watch.enter(thread, connection);
        Self {
            db: engine.db.clone(),
            tx: None,
            prepared: None,
            ready: None,
            ordered: None,
            isolation: Isolation::default(),
            statement: None,
            savepoints: Vec::new(),
            next_savepoint: 0,
            writes: Writes::default(),
            reads: 0,
            cancel: Arc::default(),
            engine: engine.clone(),
            dropped: Vec::new(),
            face,
            number,
        }
    }

    pub fn cancel_slot(&self) -> Arc<CancelSlot> {
        self.cancel.clone()
    }

    /// Begins a transaction unless one runs, and a statement unless one is open.
    pub fn begin_statement(&mut self, options: &abi::BeginOptions) -> Result<()> {
        let tx = match &mut self.tx {
            Some(tx) => tx,
            None => {
                self.isolation = match options.isolation {
                    0 => Isolation::ReadUncommitted,
                    1 => Isolation::ReadCommitted,
                    2 => Isolation::RepeatableRead,
                    _ => Isolation::Serializable,
                };
                let tx = self.db.begin_with(TransactionOptions {
                    isolation: Some(self.isolation),
                    lock_timeout: Some(Duration::from_millis(options.lock_timeout_ms)),
                    snapshot_isolation: options.snapshot_isolation != 0,
                })?;
                self.cancel.set(Some(tx.canceller()));
                self.face.begin(&tx, self.isolation);
                self.tx.insert(tx)
            }
        };
        if self.statement.is_none() {
            tx.set_foreign_key_checks(options.unchecked_foreign_keys == 0);
            tx.clear_cancelled();
            tx.set_lock_timeout(Duration::from_millis(options.lock_timeout_ms));
            tx.begin_statement();
            self.cancel.cancelled.store(false, Ordering::Relaxed);
            self.statement = Some(tx.savepoint());
            // What a cursor has read ahead was read in another moment.
            if self.isolation <= Isolation::ReadCommitted {
                self.writes.any();
            }
        }
        Ok(())
    }

    pub fn end_statement(&mut self) {
        self.statement = None;
        if let Some(tx) = &mut self.tx {
            tx.end_statement();
            self.face.look(tx);
        }
    }

    pub fn undo_statement(&mut self) -> Result<()> {
        let statement = self.statement.take();
        if let (Some(tx), Some(savepoint)) = (&mut self.tx, statement) {
            self.writes.any();
            tx.end_statement();
            tx.rollback_to(savepoint)?;
        }
        Ok(())
    }

    /// The snapshot of the transaction is taken now, of all that the server has ordered.
    pub fn snapshot(&self) -> Result<()> {
        self.tx()?.snapshot_after_reserved()?;
        Ok(())
    }

    /// First phase. What the server will order gets all that this can need; what a user prepares waits without it.
    pub fn prepare(&mut self, xid: &[u8], to_order: bool, durability: Durability) -> Result<()> {
        check_sound()?;
        let Some(tx) = self.take() else { return Ok(()) };
        crash::point("to_prepare");
        tx.prepare_with(xid, durability)?;
        crash::point("prepared");
        self.prepared = Some(xid.to_vec());
        if to_order {
            self.ready = Some(self.db.ready_prepared(xid)?);
            crash::point("ready");
        }
        Ok(())
    }

    /// The commit takes its place in the order of the server's log. It cannot fail.
    pub fn order(&mut self) {
        crash::point("to_order");
        self.ordered = self.ready.take().map(ReadyCommit::order);
        crash::point("ordered");
    }

    pub fn commit(&mut self, durability: Durability) -> Result<()> {
        self.face.let_go();
        let prepared = self.prepared.take();
        // What the server does not log it does not order: then its place is here.
        if let Some(ordered) = self.ordered.take().or_else(|| self.ready.take().map(ReadyCommit::order)) {
            crash::point("to_finish");
            ordered.finish(durability)?;
            crash::point("finished");
            Ends::count(&self.engine.ends.commits);
            return Ok(());
        }
        match (prepared, self.take()) {
            (Some(xid), _) => drop(self.db.commit_prepared(&xid)?),
            (None, Some(tx)) => drop(tx.commit_with(durability)?),
            (None, None) => return Ok(()),
        }
        Ends::count(&self.engine.ends.commits);
        Ok(())
    }

    pub fn rollback(&mut self) -> Result<()> {
        self.face.let_go();
        let prepared = self.prepared.take();
        if self.take().is_some() || prepared.is_some() {
            Ends::count(&self.engine.ends.rollbacks);
        }
        self.ready = None;
        match prepared {
            Some(xid) => Ok(self.db.rollback_prepared(&xid)?),
            None => Ok(()),
        }
    }

    /// Drops a table. A temporary one may go in the middle of a transaction that wrote to it, and goes with its end then; of
    /// another one only the statement that made it can have written to it, and that failed. A session that ends drops its own
    /// beside what it has prepared, which stays.
    pub fn drop_table(&mut self, name: &str, wait: ChangeOptions) -> Result<()> {
        if is_temporary(name) && (self.tx.is_some() || self.prepared.is_some()) {
            self.db.table(name)?;
            self.dropped.push(name.to_owned());
            return Ok(());
        }
        // Otherwise the drop waits for the one who asks for it.
        self.rollback()?;
        self.engine.drop_table(name, wait)
    }

    /// Behind the end of the transaction. What is prepared and still holds one leaves it to the next server.
    pub fn drop_temporary(&mut self) {
        for name in std::mem::take(&mut self.dropped) {
            self.engine.drop_table(&name, at_once()).ok();
        }
    }

    fn take(&mut self) -> Option<Transaction> {
        self.statement = None;
        self.savepoints.clear();
        self.writes.any();
        self.cancel.set(None);
        self.face.end();
        self.tx.take()
    }

    /// A savepoint that lasts until the end of the transaction.
    pub fn savepoint(&mut self) -> Result<u64> {
        let savepoint = self.tx()?.savepoint();
        self.next_savepoint += 1;
        self.savepoints.push((self.next_savepoint, savepoint));
        Ok(self.next_savepoint)
    }

    pub fn undo_to(&mut self, id: u64) -> Result<()> {
        let found = self.savepoints.iter().find(|(of, _)| *of == id).map(|(_, savepoint)| *savepoint);
        let savepoint = found.ok_or_else(|| Failure::new(Code::Failed, "no such savepoint"))?;
        self.savepoints.retain(|(of, _)| *of <= id);
        self.statement = None;
        self.writes.any();
        match &mut self.tx {
            Some(tx) => Ok(tx.rollback_to(savepoint)?),
            None => Ok(()),
        }
    }

    /// True if nobody waits for this transaction, and it relies on no table's definition.
    pub fn holds_nothing(&self) -> bool {
        self.prepared.is_none() && self.tx.as_ref().is_none_or(Transaction::holds_nothing)
    }

    pub fn release(&mut self, id: u64) {
        self.savepoints.retain(|(of, _)| *of != id);
    }

    /// The running transaction.
    pub fn tx(&self) -> Result<&Transaction> {
        let tx = self.tx.as_ref().ok_or_else(not_running)?;
        self.face.look(tx);
        Ok(tx)
    }

    /// The same to write rows of this table with, and if `acts` with them, by what foreign keys say, those of any table.
    pub fn tx_to_write(&mut self, table: TableNumber, acts: bool) -> Result<&mut Transaction> {
        check_sound()?;
        match acts {
            true => self.writes.any(),
            false => self.writes.one(table),
        }
        self.tx.as_mut().ok_or_else(not_running)
    }

    /// A row was written.
    pub fn wrote_row(&self) {
        self.face.wrote();
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn writes(&self) -> &Writes {
        &self.writes
    }

    /// Rows that were read and are not wanted are unlocked again.
    pub fn gives_locks_back(&self) -> bool {
        self.isolation <= Isolation::ReadCommitted
    }

    /// A call that may lock a row begins: its number.
    pub fn next_read(&mut self) -> u64 {
        self.reads += 1;
        self.reads
    }

    /// The lock that the call of this number took is given back, where isolation allows it and nothing was read since: the
    /// server speaks of the last row of one handler, and another may have locked a row behind it (joins, partitions).
    pub fn unlock_row(&self, read: u64) {
        if let Some(tx) = self.tx.as_ref().filter(|_| self.reads == read) {
            tx.unlock_row();
        }
    }

    /// Takes note of what an error has done to the transaction.
    pub fn met<T>(&mut self, outcome: trefoil::Result<T>) -> Result<T> {
        outcome.map_err(|error| {
            if matches!(error, Error::Deadlock { .. }) {
                Ends::count(&self.engine.ends.rollbacks);
                drop(self.take());
                self.face.let_go();
            }
            error.into()
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.face.let_go();
        self.engine.watch.leave(self.number);
    }
}

fn not_running() -> Box<Failure> {
    Failure::new(Code::Failed, "the transaction has ended")
}
