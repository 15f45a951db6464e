//! Row locks of a transaction, and the reads that take them (rule P3): find on the newest, lock, look again.

use std::cell::RefMut;
use std::collections::BTreeSet;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use base::bytes::printable;
use base::{CommitTs, IndexId, TxnId};
use index::{Direction, ReadAt};
use store::Charge;
use txn::write_set::Seq;
use txn::{KeyNames, LockOutcome, LockOwner, LockRequest, Locks, Mode, SharedWriteSet, SnapshotSlot};

use super::{CHARGE_STEP_BYTES, Transaction, bounds, check_key};
use crate::cursor::{Cursor, LockingScan};
use crate::engine::Engine;
use crate::entry::IndexEntry;
use crate::error::{Error, Result};
use crate::handle::Index;
use crate::locking::{LockMode, LockWait, Locking};
use crate::options::Isolation;
use crate::waits::Canceller;

/// The row locks of one transaction.
pub(super) struct RowLocks {
    pub(super) owner: LockOwner,
    charge: Charge,
    /// Memory of the locks held, as far as known.
    pub(super) bytes: u64,
    /// Indexes with ranges of this transaction.
    pub(super) ranges: Vec<Arc<IndexEntry>>,
    /// The index of the row that the last locking read locked, if it was that read which took the lock.
    pub(super) loose: Option<IndexId>,
    loose_key: Vec<u8>,
    /// Counters that were added to before they were looked at under a lock, of `bytes`.
    pub(super) looked: BTreeSet<(IndexId, Vec<u8>)>,
}

/// What came of asking for a row's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// It is the transaction's now.
    Taken,
    /// The transaction had it before.
    Held,
    /// Somebody else has it, and the row may be passed over.
    PassedOver,
}

impl RowLocks {
    pub(super) fn new(id: TxnId, charge: Charge) -> Self {
        Self {
            owner: LockOwner::new(id),
            charge,
            bytes: 0,
            ranges: Vec::new(),
            loose: None,
            loose_key: Vec::new(),
            looked: BTreeSet::new(),
        }
    }

    /// True if neither rows nor ranges are locked.
    pub(super) fn is_empty(&self) -> bool {
        self.owner.is_empty() && !self.owner.is_folded() && self.ranges.is_empty()
    }

    /// Charges all of them, past the limit if need be.
    pub(super) fn charge_all(&mut self) {
        self.charge.set(self.bytes);
    }

    /// Before the locks: who is woken by their release looks at the ranges again, and would do so until they are gone.
    pub(super) fn unlock_ranges(&mut self, id: TxnId) {
        self.ranges.drain(..).for_each(|entry| entry.ranges.unlock(id));
    }

    /// Makes little of many locks (rule B1); see `txn::locks::folded`.
    pub(super) fn fold(&mut self, engine: &Engine, id: TxnId, writes: &Arc<SharedWriteSet>) {
        let names = |id| engine.index(id).map_or(KeyNames::Whole, |entry| entry.lock_names());
        self.loose = None;
        let ranges: usize = self.ranges.iter().map(|entry| entry.ranges.bytes_of(id)).sum();
        let looked: usize = self.looked.iter().map(|(_, key)| txn::lock_bytes(key)).sum();
        self.bytes = (engine.locks.fold(&mut self.owner, writes, names) + ranges + looked) as u64;
        self.charge.set(self.bytes);
    }

    pub(super) fn release_all(&mut self, locks: &Locks, ts: Option<CommitTs>) {
        locks.release_all(&mut self.owner, ts);
        (self.bytes, self.loose) = (0, None);
        self.charge.set(0);
    }
}

/// How long one wait may take in all: who gets the lock of a row and finds it folded by somebody gives it back, waits for that
/// one's end and asks again, and may then find the next one.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    timeout: Duration,
    waited_before: Duration,
}

impl Patience {
    pub(super) fn left(self, held: &RowLocks) -> Duration {
        self.timeout.saturating_sub(held.owner.waited() - self.waited_before)
    }
}

impl Transaction {
    /// The newest committed value of `key`, with the own writes on top, under its row lock: how it is locked, and what
    /// happens if another transaction has locked it, says `locking`. The row is locked until the end of the
    /// transaction, there or not; a weaker lock held before is raised.
    ///
    /// # Errors
    /// As [`Transaction::put`]; `LockBusy` if the read may not wait.
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
    /// use trefoil::LockMode;
    ///
    /// let mut tx = db.begin()?;
    /// let stock = tx.get_locked(&fruit, b"plum", LockMode::Exclusive)?.expect("plums are there");
    /// let stock: u32 = String::from_utf8_lossy(&stock).parse().expect("a number");
    /// tx.put(&fruit, b"plum", (stock - 1).to_string().as_bytes())?; // nobody has come between
    /// assert_eq!(tx.get(&fruit, b"plum")?.as_deref(), Some(&b"29"[..]));
    /// tx.commit()?;
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn get_locked(&self, index: &Index, key: &[u8], locking: impl Into<Locking>) -> Result<Option<Vec<u8>>> {
        let entry = index.entry();
        let mut value = None;
        if self.lock_for_read(entry, key, locking.into())? {
            self.read_newest(entry, &[key], &mut |_, v| value = Some(v.to_vec()))?;
        }
        Ok(value)
    }

    /// Entries of `range` in ascending key order, each locked as it is reached and read as it is then: the newest
    /// committed, with the own writes on top. Rows that are gone when their lock is got are passed over.
    ///
    /// # Errors
    /// As [`Transaction::get`]; each step of the cursor as [`Transaction::get_locked`].
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
    /// use trefoil::{LockMode, Locking};
    ///
    /// let tx = db.begin()?;
    /// let mut with_p = tx.range_locked(&fruit, b"p".as_slice()..b"q".as_slice(), LockMode::Exclusive)?;
    /// assert_eq!(with_p.next()?, Some((&b"pear"[..], &b"7"[..])));
    /// let other = db.begin()?;
    /// assert!(other.get_locked(&fruit, b"pear", Locking::SHARED.no_wait()).is_err());
    /// assert!(other.get_locked(&fruit, b"plum", Locking::SHARED.no_wait()).is_ok()); // not reached yet
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn range_locked<'a>(
        &'a self,
        index: &Index,
        range: impl RangeBounds<&'a [u8]>,
        locking: impl Into<Locking>,
    ) -> Result<Cursor<'a>> {
        self.locking_cursor(LockingScan::new(self, index.entry(), bounds(&range), Direction::Forward, locking.into()))
    }

    /// Entries of `range` in descending key order, locked as by [`Transaction::range_locked`].
    ///
    /// # Errors
    /// As [`Transaction::range_locked`].
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
    /// let last = tx.range_back_locked(&fruit, .., trefoil::LockMode::Exclusive)?.next()?.map(|(key, _)| key.to_vec());
    /// tx.delete(&fruit, &last.expect("there is fruit"))?;
    /// assert_eq!(tx.get(&fruit, b"plum")?, None);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn range_back_locked<'a>(
        &'a self,
        index: &Index,
        range: impl RangeBounds<&'a [u8]>,
        locking: impl Into<Locking>,
    ) -> Result<Cursor<'a>> {
        self.locking_cursor(LockingScan::new(self, index.entry(), bounds(&range), Direction::Backward, locking.into()))
    }

    /// Gives back the lock of the row that the last locking read returned: its caller looked at it and does not want
    /// it. True if that was done: under READ COMMITTED, if it was that read which took the lock, and nothing was locked
    /// since. Under the other levels what was read stays locked.
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
    /// use trefoil::{Isolation, LockMode, Locking};
    ///
    /// let tx = db.begin_with(Isolation::ReadCommitted)?;
    /// let mut rows = tx.range_locked(&fruit, .., LockMode::Exclusive)?;
    /// while let Some((_name, count)) = rows.next()? {
    ///     if count != b"7" {
    ///         assert!(tx.unlock_row());
    ///     }
    /// }
    /// let rest = db.begin()?.range_locked(&fruit, .., Locking::EXCLUSIVE.skip_locked())?.collect()?;
    /// assert_eq!(rest.len(), 2); // all but the pears
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn unlock_row(&self) -> bool {
        self.last_row.forget();
        let mut held = self.locks.borrow_mut();
        let RowLocks { owner, bytes, loose, loose_key, .. } = &mut *held;
        let Some(index) = loose.take() else { return false };
        self.engine.locks.release_one(owner, index, loose_key);
        *bytes = bytes.saturating_sub(txn::lock_bytes(loose_key) as u64);
        true
    }

    /// Its number, in this life of the database: in [`Database::lock_waits`](crate::Database::lock_waits) and
    /// [`Database::deadlocks`](crate::Database::deadlocks).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// assert_ne!(db.begin()?.id(), db.begin()?.id());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id.0
    }

    /// For another thread, which may end this transaction's waits.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// use trefoil::{Error, LockMode};
    ///
    /// let (mut first, second) = (db.begin()?, db.begin()?);
    /// first.put(&fruit, b"apple", b"12")?;
    /// second.canceller().cancel(); // before it waits, or while it does
    /// assert!(matches!(second.get_locked(&fruit, b"apple", LockMode::Shared), Err(Error::Cancelled)));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller(self.locks.borrow().owner.canceller())
    }

    /// Forgets a cancellation: statements wait again.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let (mut first, mut second) = (db.begin()?, db.begin()?);
    /// first.put(&fruit, b"apple", b"12")?;
    /// second.canceller().cancel();
    /// assert!(second.put(&fruit, b"apple", b"13").is_err());
    /// second.clear_cancelled();
    /// let thread = std::thread::spawn(move || second.put(&fruit, b"apple", b"13").map(|()| second));
    /// first.commit()?;
    /// thread.join().expect("no panic")?.commit()?;
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn clear_cancelled(&self) {
        self.locks.borrow().owner.clear_cancelled();
    }

    /// How long it waits for a lock from now on, instead of [`crate::TransactionOptions::lock_timeout`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// use std::time::Duration;
    ///
    /// let (mut first, mut second) = (db.begin()?, db.begin()?);
    /// first.put(&fruit, b"apple", b"12")?;
    /// second.set_lock_timeout(Duration::from_millis(20));
    /// let error = second.put(&fruit, b"apple", b"13").expect_err("the first has it");
    /// assert!(matches!(error, trefoil::Error::LockTimeout { .. }));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn set_lock_timeout(&mut self, timeout: Duration) {
        self.lock_timeout = timeout;
    }

    /// Takes the exclusive lock of a row that will be written.
    pub(crate) fn lock_for_write(&self, entry: &IndexEntry, key: &[u8]) -> Result<()> {
        self.lock_asked(entry, key, Locking::EXCLUSIVE).map(|_| ())
    }

    /// Takes a lock that is not given back before the end. False if it was passed over.
    pub(crate) fn lock_to_keep(&self, entry: &IndexEntry, key: &[u8], locking: Locking) -> Result<bool> {
        self.lock_asked(entry, key, locking).map(|asked| asked != Asked::PassedOver)
    }

    /// Locks a row for a locking read. False if it was passed over.
    pub(crate) fn lock_for_read(&self, entry: &IndexEntry, key: &[u8], locking: Locking) -> Result<bool> {
        let asked = self.lock_asked(entry, key, locking)?;
        if asked == Asked::Taken && self.gives_locks_back() {
            let mut held = self.locks.borrow_mut();
            held.loose = Some(entry.id());
            held.loose_key.clear();
            held.loose_key.extend_from_slice(key);
        }
        Ok(asked != Asked::PassedOver)
    }

    /// Takes the lock of a counter that will be added to.
    pub(super) fn lock_to_add(&self, entry: &IndexEntry, key: &[u8]) -> Result<()> {
        self.lock_for(entry, key, Locking::from(LockMode::Increment)).map(|_| ())
    }

    fn lock_asked(&self, entry: &IndexEntry, key: &[u8], locking: Locking) -> Result<Asked> {
        check_mode(locking)?;
        let asked = self.lock_for(entry, key, locking)?;
        if asked != Asked::PassedOver && entry.of_counters() && self.has_added(entry.id(), key)? {
            let mut held = self.locks.borrow_mut();
            if held.looked.insert((entry.id(), key.to_vec())) {
                held.bytes += txn::lock_bytes(key) as u64;
                self.charge_locks(held)?;
            }
        }
        Ok(asked)
    }

    fn lock_for(&self, entry: &IndexEntry, key: &[u8], locking: Locking) -> Result<Asked> {
        if locking.mode != LockMode::Shared {
            self.engine.check_writable()?;
            self.engine.check_undamaged(entry)?;
        }
        self.engine.check_open()?;
        self.lock_row(entry, key, locking)
    }

    /// Rows that were read and are not wanted are given back: [`Transaction::unlock_row`].
    pub(crate) fn gives_locks_back(&self) -> bool {
        self.isolation <= Isolation::ReadCommitted
    }

    /// Locks a row.
    fn lock_row(&self, entry: &IndexEntry, key: &[u8], locking: Locking) -> Result<Asked> {
        self.check_running()?;
        entry.check()?;
        check_key(key)?;
        let mode = match locking.mode {
            LockMode::Shared => Mode::Shared,
            LockMode::Increment => Mode::Increment,
            LockMode::Exclusive => Mode::Exclusive,
        };
        let timeout = match locking.wait {
            LockWait::Timeout => self.lock_timeout,
            LockWait::NoWait | LockWait::SkipLocked => Duration::ZERO,
        };
        let weight = self.weight();
        let patience = self.patience(timeout);
        loop {
            let mut held = self.locks.borrow_mut();
            held.loose = None;
            let timeout = patience.left(&held);
            let request = LockRequest { index: entry.id(), key, mode, timeout: Some(timeout), weight };
            let (seen, fresh, raised) = match self.engine.locks.lock(&mut held.owner, &request) {
                LockOutcome::Granted { seen, fresh, raised } => (seen, fresh, raised),
                LockOutcome::Timeout => {
                    // Somebody who asks for what this transaction has folded has it for a moment.
                    if timeout.is_zero() && self.has_folded(&held, entry, key)? {
                        return Ok(Asked::Held);
                    }
                    drop(held);
                    return self.not_in_time(entry, key, locking).map(|()| Asked::PassedOver);
                }
                other => {
                    drop(held);
                    return Err(self.not_granted(other, entry, key));
                }
            };
            if (fresh || raised.is_some())
                && let Some(other) = self.folded_by(&mut held, entry, key, mode, raised)?
            {
                drop(held);
                if locking.wait == LockWait::Timeout {
                    self.wait_for_end((other, entry.id()), entry, key, patience)?;
                    continue;
                }
                return self.not_in_time(entry, key, locking).map(|()| Asked::PassedOver);
            }
            let seen = seen.max(self.engine.locks.left_by_folded());
            self.seen.set(self.seen.get().max(seen));
            if fresh {
                held.bytes += txn::lock_bytes(key) as u64;
            }
            self.charge_locks(held)?;
            // Who adds does not look at what is there.
            if mode != Mode::Increment && (fresh || raised == Some(Mode::Increment)) {
                self.check_unchanged(entry, key, raised)?;
            }
            return Ok(if fresh { Asked::Taken } else { Asked::Held });
        }
    }

    /// Of a wait that begins now, however many others it is made of.
    pub(super) fn patience(&self, timeout: Duration) -> Patience {
        Patience { timeout, waited_before: self.locks.borrow().owner.waited() }
    }

    /// A large transaction that has the row whose lock was just got, or raised to `mode`; see `txn::locks::folded`. The lock is
    /// then as it was before: who does not wait, or not long enough, has not got it.
    fn folded_by(
        &self,
        held: &mut RowLocks,
        entry: &IndexEntry,
        key: &[u8],
        mode: Mode,
        raised: Option<Mode>,
    ) -> Result<Option<TxnId>> {
        let locks = &self.engine.locks;
        let other = locks.folded_by(&held.owner, entry.id(), key, mode, entry.lock_names());
        let other = match other {
            // It has neighbours, and what lies between them with them.
            Ok(Some(other)) => self.has_folded(held, entry, key).map(|own| Some(other).filter(|_| !own)),
            other => other,
        };
        if !matches!(other, Ok(None)) {
            match raised {
                None => locks.release_one(&mut held.owner, entry.id(), key),
                Some(before) => locks.lower_one(&held.owner, entry.id(), key, before),
            }
        }
        Ok(other?)
    }

    /// True if this transaction has the row, exclusively, without a lock in the table: its write set says so.
    fn has_folded(&self, held: &RowLocks, entry: &IndexEntry, key: &[u8]) -> base::Result<bool> {
        // A front may be one of several values.
        let is_whole = entry.lock_names() == KeyNames::Whole;
        Ok(is_whole && held.owner.is_folded() && self.writes.wrote(entry.id(), key, false)?)
    }

    /// The lock was not got in the time that the statement gave it: an error, unless it passes over what is locked.
    fn not_in_time(&self, entry: &IndexEntry, key: &[u8], locking: Locking) -> Result<()> {
        match locking.wait {
            LockWait::SkipLocked => Ok(()),
            LockWait::NoWait => Err(Error::LockBusy { index: entry.name().to_owned(), key: printable(key) }),
            LockWait::Timeout => Err(self.not_granted(LockOutcome::Timeout, entry, key)),
        }
    }

    /// What was written stays locked when it is taken back: in folded form the write set alone says so.
    pub(super) fn lock_again(&self, since: Seq) {
        if !self.locks.borrow().owner.is_folded() {
            return;
        }
        for (id, key) in self.writes.keys_since(since) {
            let Some(entry) = self.engine.index(id).filter(|entry| entry.lock_names() == KeyNames::Whole) else {
                continue;
            };
            let mut held = self.locks.borrow_mut();
            let timeout = Some(self.lock_timeout);
            let request =
                LockRequest { index: entry.id(), key: &key, mode: Mode::Exclusive, timeout, weight: usize::MAX };
            // Nobody else can have it but for a moment: it is this transaction's until the writes are taken back.
            if let LockOutcome::Granted { fresh: true, .. } = self.engine.locks.lock(&mut held.owner, &request) {
                held.bytes += txn::lock_bytes(&key) as u64;
            }
            self.engine.locks.keep_before_areas(&held.owner, entry.id(), &key);
        }
        let mut held = self.locks.borrow_mut();
        let bytes = held.bytes;
        held.charge.set(bytes);
    }

    /// What a deadlock compares: the operations so far.
    pub(super) fn weight(&self) -> usize {
        usize::try_from(self.writes.position().0).unwrap_or(usize::MAX)
    }

    /// Why a lock was not got; a deadlock ends the transaction.
    pub(super) fn not_granted(&self, outcome: LockOutcome, entry: &IndexEntry, key: &[u8]) -> Error {
        match outcome {
            LockOutcome::Granted { .. } => unreachable!("the lock was got"),
            LockOutcome::Deadlock { who } => {
                self.finish(None);
                Error::Deadlock { cycle: who.to_string() }
            }
            LockOutcome::Timeout => Error::LockTimeout {
                index: entry.name().to_owned(),
                key: printable(key),
                waited_ms: self.lock_timeout.as_millis() as u64,
            },
            LockOutcome::Cancelled => Error::Cancelled,
        }
    }

    /// Under snapshot isolation: an error if the row, whose lock was just got, was changed after the snapshot. The lock is
    /// given back then, or is what it was before: the next try has to find the same.
    fn check_unchanged(&self, entry: &IndexEntry, key: &[u8], before: Option<Mode>) -> Result<()> {
        let is_kept = self.snapshot_isolation && !self.gives_locks_back();
        let snapshot = self.snapshot.borrow().as_ref().map(SnapshotSlot::ts).filter(|_| is_kept);
        let Some(snapshot) = snapshot else { return Ok(()) };
        let mut newest = None;
        entry.index.get_many(ReadAt::Newest, &[key], &mut |_, ts, _| newest = Some(ts))?;
        // A row that was copied has the moment of the copy; when it was changed is known to what it was copied from. If that is damaged,
        // it may have been.
        if let Some(was) = entry.was().filter(|was| newest == Some(was.since)) {
            let mut known = None;
            let read = was.entry.index.get_many(ReadAt::Snapshot(was.since), &[key], &mut |_, ts, _| known = Some(ts));
            newest = read.ok().and(known).or(newest);
        }
        let mut changed = newest.is_some_and(|ts| ts > snapshot);
        if newest.is_none() {
            // Gone, or never there.
            entry.index.get_many(ReadAt::Snapshot(snapshot), &[key], &mut |_, _, _| changed = true)?;
        }
        if !changed {
            return Ok(());
        }
        let mut held = self.locks.borrow_mut();
        match before {
            Some(before) => self.engine.locks.lower_one(&held.owner, entry.id(), key, before),
            None => {
                self.engine.locks.release_one(&mut held.owner, entry.id(), key);
                held.bytes = held.bytes.saturating_sub(txn::lock_bytes(key) as u64);
            }
        }
        Err(Error::SnapshotConflict { index: entry.name().to_owned(), key: printable(key) })
    }

    /// The lock itself is held, charged or not, until the transaction ends.
    pub(super) fn charge_locks(&self, mut held: RefMut<'_, RowLocks>) -> Result<()> {
        let more = held.bytes.saturating_sub(held.charge.bytes());
        if more < CHARGE_STEP_BYTES {
            return Ok(());
        }
        if held.bytes > self.engine.budget.limit() / 16 {
            held.fold(&self.engine, self.id, &self.writes);
            return Ok(());
        }
        self.check_share(more)?;
        let bytes = held.bytes;
        held.charge.set(bytes);
        Ok(())
    }

    /// A cursor over what a scan locks.
    pub(crate) fn locking_cursor<'a>(&'a self, scan: LockingScan<'a>) -> Result<Cursor<'a>> {
        self.check_running()?;
        check_mode(scan.locking())?;
        scan.entry().check()?;
        Ok(Cursor::locking(scan))
    }
}

/// Of a locking read.
fn check_mode(locking: Locking) -> Result<()> {
    if locking.mode == LockMode::Increment {
        return Err(Error::InvalidArgument("LockMode::Increment is of Transaction::add, not of reads".into()));
    }
    Ok(())
}
