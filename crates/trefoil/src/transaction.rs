//! A transaction: its snapshot, its locks, its writes.
//!
//! Writes stay in the write set until commit (decision D1): the indexes hold committed data only, rollback
//! drops the set. A write takes its row's exclusive lock first and acts on the newest committed version, as
//! InnoDB does; plain reads see the snapshot with the own writes on top.
//!
//! Invariant: after `done` no lock is held, no table gate is entered and the write set is empty.
//!
//! Reads borrow the transaction shared, also those that lock: several cursors may stand side by side. A deadlock met by
//! one of them ends the transaction under the others; so what an end takes away lies in cells, nobody keeps a borrow of one
//! across a call of the lock table or of an index, and cursors ask whether the transaction still runs.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::limits::KEY_BYTES_MAX;
use base::{CommitTs, IndexId, TxnId};
use index::counter::COUNTER_BYTES;
use smallvec::SmallVec;
use store::{Charge, Class};
use txn::write_set::Seq;
use txn::{SharedWriteSet, SnapshotSlot};

use crate::commit::Room;
use crate::ddl::WaitForChange;
use crate::engine::Engine;
use crate::entry::{IndexEntry, TableEntry, TableShape};
use crate::error::{Error, Result};
use crate::handle::Index;
use crate::options::{Durability, Isolation, TransactionOptions};
use crate::rows::Step;

mod counters;
mod deleting;
mod held;
mod last_row;
mod locking;
pub(crate) mod promise;
mod ranges;
mod reading;
mod savepoints;
mod spilling;
mod writing;

pub(crate) use counters::own_sum;
pub(crate) use deleting::Outside;
use deleting::OwnRange;
pub(crate) use held::Held;
use last_row::LastRow;
pub(crate) use last_row::StoredRow;
use locking::RowLocks;
use promise::Promise;
use savepoints::Rollbacks;
pub use savepoints::Savepoint;

/// A running transaction. Dropping it rolls it back. It can be as large as the disk allows: when uncommitted writes of all
/// transactions together take more than an eighth of [`Options::budget_bytes`](crate::Options::budget_bytes), those that
/// have written much move it to files.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// # let mut tx = db.begin()?;
/// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
/// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
/// # }
/// # tx.commit()?;
/// let mut tx = db.begin()?;
/// tx.put(&fruit, b"apple", b"13")?;
/// tx.delete(&fruit, b"plum")?;
/// assert_eq!(tx.get(&fruit, b"apple")?.as_deref(), Some(&b"13"[..])); // its own writes, before the commit
/// drop(tx); // nothing of it stays
/// assert_eq!(db.begin()?.get(&fruit, b"apple")?.as_deref(), Some(&b"12"[..]));
/// # Ok::<(), trefoil::Error>(())
/// ```
pub struct Transaction {
    pub(crate) engine: Arc<Engine>,
    id: TxnId,
    isolation: Isolation,
    lock_timeout: Duration,
    /// Rows changed after the snapshot are conflicts.
    snapshot_isolation: bool,
    /// The snapshot of all plain reads under REPEATABLE READ, or of a statement's under READ COMMITTED, taken by the first.
    snapshot: RefCell<Option<SnapshotSlot>>,
    /// It was taken ahead of `visible`: a read waits for that.
    ahead: Cell<bool>,
    /// Under READ COMMITTED: `snapshot` is the statement's, if one is under way.
    in_statement: bool,
    /// Shared with those who look for pending keys, from the first write on.
    writes: Arc<SharedWriteSet>,
    is_writer: Cell<bool>,
    rollbacks: Rollbacks,
    locks: RefCell<RowLocks>,
    /// Ranges deleted, of each index.
    deleted: RefCell<BTreeMap<IndexId, Vec<OwnRange>>>,
    /// Indexes written to, ascending.
    touched: RefCell<SmallVec<[Arc<IndexEntry>; 4]>>,
    /// Tables used, each with the shape it had when first used, and the gate slot if written to.
    tables: RefCell<SmallVec<[OpenTable; 2]>>,
    /// The row that was read last for its change.
    last_row: LastRow,
    /// Commits this transaction has met through locks: its next snapshot waits for them (rule A17).
    seen: Cell<CommitTs>,
    charge: RefCell<Charge>,
    /// Room on the disk.
    promise: RefCell<Promise>,
    /// Memory of writes that were moved to files.
    spilled_bytes: u64,
    /// Some of them could not be moved.
    spill_failed: bool,
    done: Cell<bool>,
    /// See [`Transaction::set_foreign_key_checks`].
    pub(crate) foreign_key_checks: bool,
    /// Changes of rows that led to one another, while one of them is under way.
    pub(crate) steps: Vec<Step>,
}

struct OpenTable {
    entry: Arc<TableEntry>,
    shape: Arc<TableShape>,
    slot: Option<usize>,
}

/// Bytes of writes, or of locks, between two looks at the budget.
const CHARGE_STEP_BYTES: u64 = 64 << 10;

impl Transaction {
    pub(crate) fn begin(engine: &Arc<Engine>, options: TransactionOptions) -> Result<Self> {
        engine.check_open()?;
        let id = TxnId(engine.next_txn.fetch_add(1, Ordering::Relaxed));
        Ok(Self {
            engine: engine.clone(),
            id,
            isolation: options.isolation.unwrap_or(engine.options.isolation),
            lock_timeout: options.lock_timeout.unwrap_or(engine.options.lock_timeout),
            snapshot_isolation: options.snapshot_isolation,
            snapshot: RefCell::default(),
            ahead: Cell::new(false),
            in_statement: false,
            writes: Arc::default(),
            is_writer: Cell::new(false),
            rollbacks: Rollbacks::default(),
            locks: RefCell::new(RowLocks::new(id, engine.budget.charge(Class::Locks, 0))),
            deleted: RefCell::default(),
            touched: RefCell::default(),
            tables: RefCell::default(),
            last_row: LastRow::default(),
            seen: Cell::new(CommitTs::ZERO),
            charge: RefCell::new(engine.budget.charge(Class::WriteSets, 0)),
            promise: RefCell::default(),
            spilled_bytes: 0,
            spill_failed: false,
            done: Cell::new(false),
            foreign_key_checks: true,
            steps: Vec::new(),
        })
    }

    /// Sets the value of `key`, whatever it was; the row is locked until the end of the transaction. A key has at
    /// most three quarters of a node's bytes ([`crate::Database::key_bytes_max`]), a value has fewer than 4 GiB; a counter has
    /// eight bytes ([`IndexOptions::counters`](crate::IndexOptions::counters)).
    ///
    /// # Errors
    /// `Deadlock` (the transaction is rolled back), `LockTimeout`, `Limit`, `DiskFull`, `Poisoned`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let mut tx = db.begin()?;
    /// tx.put(&fruit, b"apple", b"12")?;
    /// tx.put(&fruit, b"apple", b"13")?;
    /// assert!(tx.put(&fruit, &[b'x'; 65536], b"").is_err()); // the key is too long
    /// assert_eq!(tx.get(&fruit, b"apple")?.as_deref(), Some(&b"13"[..]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn put(&mut self, index: &Index, key: &[u8], value: &[u8]) -> Result<()> {
        let entry = index.entry();
        let mut counter = [0; COUNTER_BYTES];
        let value = counters::stored(entry, value, &mut counter)?;
        self.wait_for_ranges(entry, key)?;
        self.lock_for_write(entry, key)?;
        self.write(entry, key, Some(value))
    }

    /// Removes `key`. True if it was there, in the newest committed state with the own writes on top. The row is
    /// locked until the end of the transaction, there or not.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// let mut tx = db.begin()?;
    /// assert!(tx.delete(&fruit, b"pear")?);
    /// assert!(!tx.delete(&fruit, b"pear")?); // it is gone
    /// tx.commit()?;
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn delete(&mut self, index: &Index, key: &[u8]) -> Result<bool> {
        let entry = index.entry();
        self.lock_for_write(entry, key)?;
        let there = self.read_newest(entry, &[key], &mut |_, _| {})? > 0;
        if there {
            self.write(entry, key, None)?;
        }
        Ok(there)
    }

    /// A place to return to: what is written so far.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// let mut tx = db.begin()?;
    /// tx.put(&fruit, b"quince", b"1")?;
    /// let kept = tx.savepoint();
    /// tx.delete(&fruit, b"apple")?;
    /// tx.rollback_to(kept)?;
    /// assert!(tx.get(&fruit, b"quince")?.is_some() && tx.get(&fruit, b"apple")?.is_some());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn savepoint(&self) -> Savepoint {
        self.rollbacks.savepoint(self.writes.position())
    }

    /// Undoes the writes since `savepoint`, at a cost proportional to them. Locks are kept. Savepoints taken after
    /// this one end here.
    ///
    /// # Errors
    /// `InvalidArgument`, with nothing undone, if the savepoint has ended: by going back to an earlier one, or by the
    /// rollback that comes with `Deadlock`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// let mut tx = db.begin()?;
    /// let before = tx.savepoint();
    /// for key in [b"apple".as_slice(), b"pear", b"plum"] {
    ///     tx.delete(&fruit, key)?;
    /// }
    /// tx.rollback_to(before)?;
    /// assert_eq!(tx.range(&fruit, ..)?.collect()?.len(), 3);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.check_running()?;
        if !self.rollbacks.stands(savepoint) {
            let why = "the savepoint ended when the transaction went back to an earlier one";
            return Err(Error::InvalidArgument(why.into()));
        }
        self.take_back(savepoint.at);
        if self.holds_nothing() {
            self.leave_tables();
        }
        Ok(())
    }

    /// True if nobody waits for this transaction: it holds no lock and has written nothing that it did not take back. Behind
    /// [`Transaction::rollback_to`] it keeps no change of a table from being made either, and finds tables as they are by then.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let mut tx = db.begin()?;
    /// let start = tx.savepoint();
    /// assert!(tx.get(&fruit, b"apple")?.is_none() && tx.holds_nothing());
    /// tx.put(&fruit, b"apple", b"12")?;
    /// tx.rollback_to(start)?;
    /// assert!(!tx.holds_nothing()); // the lock is kept
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn holds_nothing(&self) -> bool {
        self.writes.position() == Seq(0) && self.locks.borrow().is_empty()
    }

    /// How many rows it has locked, for people: of so many that they are kept in short form, those that it has written count,
    /// with their entries in secondary indexes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let mut tx = db.begin()?;
    /// tx.put(&fruit, b"apple", b"12")?;
    /// tx.get_locked(&fruit, b"pear", trefoil::LockMode::Shared)?;
    /// assert_eq!(tx.rows_locked(), 2);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn rows_locked(&self) -> u64 {
        let locks = self.locks.borrow();
        let folded = if locks.owner.is_folded() { self.writes.position().0 } else { 0 };
        locks.owner.len() as u64 + folded
    }

    /// The moment that its plain reads see, once one has been made: what is older than that is kept for it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let tx = db.begin()?;
    /// assert_eq!(tx.snapshot_ts(), None);
    /// tx.get(&fruit, b"apple")?;
    /// let moment = tx.snapshot_ts().expect("it has read");
    /// assert!(db.stats().snapshots.contains(&moment));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn snapshot_ts(&self) -> Option<CommitTs> {
        self.snapshot.borrow().as_ref().map(SnapshotSlot::ts)
    }

    fn take_back(&mut self, to: Seq) {
        self.last_row.forget();
        self.lock_again(to);
        self.writes.rollback_to(to);
        self.take_back_ranges(to);
        self.promise.get_mut().take_back(&self.engine.promised, to);
        self.rollbacks.note(to);
    }

    /// Runs a statement: if it fails, its writes are taken back and the transaction can go on.
    pub(crate) fn statement<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.writes.position();
        let result = body(self);
        // After a deadlock there is nothing left to take back.
        if result.is_err() && !self.done.get() {
            self.take_back(before);
        }
        result
    }

    /// An error once a deadlock has rolled the transaction back: what it would lock or enter now, nobody would
    /// release, and what it would commit is not all it was told to do.
    pub(crate) fn check_running(&self) -> Result<()> {
        if self.done.get() {
            return Err(Error::InvalidArgument("the transaction was rolled back by a deadlock".into()));
        }
        Ok(())
    }

    /// Commits with the database's durability ([`Options::durability`](crate::Options::durability), by default on
    /// disk when it returns). Returns the commit's timestamp; without writes, that of the newest commit which its
    /// locks have met, or 0.
    ///
    /// # Errors
    /// `CommitOutcomeUnknown` if the log failed after the commit was handed to it; any other error means that
    /// it did not happen.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let mut tx = db.begin()?;
    /// tx.put(&fruit, b"apple", b"12")?;
    /// let ts = tx.commit()?;
    /// assert!(db.snapshot()?.ts() >= ts); // whoever looks from now on sees it
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn commit(self) -> Result<CommitTs> {
        let durability = self.engine.options.durability;
        self.commit_with(durability)
    }

    /// Commits with the durability given. The reply comes when later snapshots see the commit.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// use trefoil::Durability;
    ///
    /// let mut tx = db.begin()?;
    /// tx.put(&fruit, b"apple", b"12")?;
    /// tx.commit_with(Durability::Write)?; // survives the end of this process, not a power cut
    /// assert!(db.begin()?.get(&fruit, b"apple")?.is_some());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn commit_with(self, durability: Durability) -> Result<CommitTs> {
        self.check_running()?;
        let mut changes = self.changes()?;
        if changes.is_empty() {
            self.finish(None);
            let seen = self.seen.get();
            self.engine.wait_visible(seen)?;
            return Ok(seen);
        }
        self.engine.check_writable()?;
        // Its writes have their room: a full disk was told to their statements (P4).
        let committed = loop {
            match self.engine.commit_changes(changes, Room::Ordinary) {
                // A damaged secondary index is set aside, and the commit goes on without it. If that fails, this commit
                // did not happen: the outcome of the other one is not its own.
                Err(Error::Corrupt(met)) => match self.engine.set_aside(&met) {
                    Ok(true) => changes = self.changes()?,
                    Ok(false) => return Err(self.engine.damaged(met)),
                    Err(_) => return Err(Error::Corrupt(met)),
                },
                done => break done?,
            }
        };
        self.finish(Some(committed.ts));
        self.engine.pay(committed.bytes);
        self.engine.finish_commit(committed.ts, durability)?;
        self.engine.clear_away(&committed.deserts, committed.ts);
        Ok(committed.ts)
    }

    /// Rolls back: nothing of it stays, its locks are free. Dropping the transaction does the same.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// let mut tx = db.begin()?;
    /// tx.delete(&fruit, b"apple")?;
    /// tx.rollback();
    /// assert!(db.begin()?.get(&fruit, b"apple")?.is_some());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn rollback(self) {
        self.finish(None);
    }

    /// The table's shape for this transaction; `write` enters its gate until the end.
    pub(crate) fn open_table(&mut self, table: &Arc<TableEntry>, write: bool) -> Result<Arc<TableShape>> {
        self.check_running()?;
        let entered = if write && !self.is_inside(table) { Some(self.enter_gate(table)?) } else { None };
        let tables = self.tables.get_mut();
        let at = tables.iter().position(|t| t.entry.id == table.id);
        let at = at.unwrap_or_else(|| {
            tables.push(OpenTable { entry: table.clone(), shape: table.shape(), slot: None });
            tables.len() - 1
        });
        let open = &mut tables[at];
        if entered.is_some() {
            open.slot = entered;
            // The definition may have changed while nobody of this transaction was inside.
            open.shape = table.shape();
        }
        open.shape.primary.check()?;
        Ok(open.shape.clone())
    }

    /// True if it is inside the gate of this table.
    pub(crate) fn is_inside(&self, table: &TableEntry) -> bool {
        self.tables.borrow().iter().any(|open| open.entry.id == table.id && open.slot.is_some())
    }

    fn enter_gate(&self, table: &TableEntry) -> Result<usize> {
        let mut wait = None;
        table.gate.enter(self.id.0, || wait.get_or_insert_with(|| self.wait_for_change()).look(table.name()))
    }

    /// A wait for who changes a definition, which begins.
    pub(crate) fn wait_for_change(&self) -> WaitForChange {
        WaitForChange::new(&self.engine, self.locks.borrow().owner.canceller(), self.lock_timeout)
    }

    /// The table's shape for reading.
    pub(crate) fn table_shape(&self, table: &Arc<TableEntry>) -> Arc<TableShape> {
        self.tables.borrow().iter().find(|t| t.entry.id == table.id).map_or_else(|| table.shape(), |t| t.shape.clone())
    }

    /// Whoever changes one of them waits for this transaction no more; it takes the shape anew that it finds.
    /// The table of a shape that this transaction has opened.
    pub(crate) fn entry_of(&self, shape: &TableShape) -> Arc<TableEntry> {
        let tables = self.tables.borrow();
        let open = tables.iter().find(|open| open.entry.id == shape.def.id);
        open.expect("what is written to is open").entry.clone()
    }

    /// Leaves the gate of a table of which nothing was done since it was entered.
    pub(crate) fn leave_table(&mut self, table: &TableEntry) {
        let tables = self.tables.get_mut();
        if let Some(at) = tables.iter().position(|open| open.entry.id == table.id)
            && let Some(slot) = tables[at].slot
        {
            tables.remove(at).entry.gate.leave(slot);
        }
    }

    fn leave_tables(&self) {
        for table in self.tables.take() {
            if let Some(slot) = table.slot {
                table.entry.gate.leave(slot);
            }
        }
    }

    /// Releases everything; locks keep the commit's timestamp for their next owners.
    fn finish(&self, ts: Option<CommitTs>) {
        if self.done.replace(true) {
            return;
        }
        let mut locks = self.locks.borrow_mut();
        locks.unlock_ranges(self.id);
        locks.release_all(&self.engine.locks, ts);
        drop(locks);
        self.leave_tables();
        self.touched.take();
        self.deleted.take();
        if self.is_writer.get() {
            self.engine.writers.leave(self.id, &self.writes);
        }
        self.writes.clear();
        self.snapshot.take();
        self.charge.borrow_mut().set(0);
        self.promise.borrow_mut().take_back(&self.engine.promised, Seq(0));
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
