//! Waits for locks as people see them: listed, remembered, ended from outside.

use std::time::Duration;

use base::IndexId;
use txn::Mode;
use txn::locks::{HeldLock, WaitEdge, WaitNews};

use crate::database::Database;
use crate::engine::Engine;
use crate::locking::LockMode;

/// A transaction that waits for a row lock, and one that is in its way: [`Database::lock_waits`](crate::Database::lock_waits)
/// and [`Deadlock::edges`].
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// use trefoil::LockEdge;
///
/// fn show(edge: &LockEdge) -> String {
///     let LockEdge { waiter, blocker, index, key, waited, .. } = edge;
///     format!("{waiter} waits for {blocker} on {index} {key:?}, for {waited:?}")
/// }
/// db.lock_waits().iter().for_each(|edge| println!("{}", show(edge))); // nobody waits here
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockEdge {
    /// The waiting transaction: its [`Transaction::id`](crate::Transaction::id).
    pub waiter: u64,
    /// A transaction that holds the lock, or waits for it before the waiter.
    pub blocker: u64,
    /// The index; `TABLE.primary` for a table's rows.
    pub index: String,
    /// The key, as it is stored.
    pub key: Vec<u8>,
    /// How the waiter wants to lock it.
    pub mode: LockMode,
    /// It would insert the key into a range that the blocker has read under locks.
    pub on_range: bool,
    /// How long it has waited.
    pub waited: Duration,
}

/// Transactions that waited for each other: [`Database::deadlocks`](crate::Database::deadlocks).
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// use trefoil::{Deadlock, LockMode};
///
/// let (first, second) = (db.begin()?, db.begin()?);
/// first.get_locked(&fruit, b"apple", LockMode::Exclusive)?;
/// second.get_locked(&fruit, b"pear", LockMode::Exclusive)?;
/// std::thread::scope(|s| {
///     s.spawn(|| { let first = first; first.get_locked(&fruit, b"pear", LockMode::Exclusive).map(|_| ()) });
///     second.get_locked(&fruit, b"apple", LockMode::Exclusive).map(|_| drop(second)).ok();
/// }); // one of them was rolled back
/// let Deadlock { victim, edges, .. } = db.deadlocks().swap_remove(0);
/// assert!(edges.len() == 2 && edges.iter().any(|edge| edge.waiter == victim));
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlock {
    /// The transaction that was rolled back.
    pub victim: u64,
    /// The cycle: the blocker of each is the waiter of the next.
    pub edges: Vec<LockEdge>,
    /// How long ago it was ended.
    pub ago: Duration,
}

/// What a running transaction has locked: [`Database::locks`](crate::Database::locks).
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// use trefoil::RowLock;
///
/// fn show(lock: &RowLock) -> String {
///     let RowLock { transaction, index, key, mode, waiters, .. } = lock;
///     format!("{transaction} has {index} {key:?} {mode:?}, for which {waiters} wait")
/// }
/// db.locks(1000).iter().for_each(|lock| println!("{}", show(lock))); // nothing is locked here
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowLock {
    /// The transaction: its [`Transaction::id`](crate::Transaction::id).
    pub transaction: u64,
    /// The index; `TABLE.primary` for a table's rows.
    pub index: String,
    /// The key, as it is stored. Of a range the first one in it.
    pub key: Vec<u8>,
    /// How it is locked.
    pub mode: LockMode,
    /// It is a range, in which nobody else may insert.
    pub is_range: bool,
    /// Of a range the key that it ends before; none: it goes on to the end of the index.
    pub end: Option<Vec<u8>>,
    /// How many wait for it; not known of a range, see [`Database::lock_waits`](crate::Database::lock_waits).
    pub waiters: usize,
}

/// What a thread that waits for a row lock tells [`Database::report_lock_waits`](crate::Database::report_lock_waits).
///
/// ```
/// use trefoil::LockWaitNews;
///
/// fn show(news: LockWaitNews<'_>) -> String {
///     match news {
///         LockWaitNews::Begins => "waits".into(),
///         LockWaitNews::Blocked(by) => format!("waits for {by:?}"),
///         LockWaitNews::Ends => "goes on".into(),
///     }
/// }
/// assert_eq!(show(LockWaitNews::Blocked(&[7])), "waits for [7]");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWaitNews<'a> {
    /// It is about to wait.
    Begins,
    /// Transactions that are in its way now, by their [`Transaction::id`](crate::Transaction::id): they have the lock, or
    /// stand before it. They may have ended since. Told at first, and then as often as was asked for.
    Blocked(&'a [u64]),
    /// It has waited.
    Ends,
}

/// Ends waits of one transaction from another thread: [`Transaction::canceller`](crate::Transaction::canceller). Cheap to
/// clone, and good for as long as anybody likes.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// use trefoil::Error;
///
/// let (mut first, mut second) = (db.begin()?, db.begin()?);
/// first.put(&fruit, b"apple", b"12")?;
/// let canceller = second.canceller();
/// let thread = std::thread::spawn(move || canceller.cancel());
/// assert!(matches!(second.put(&fruit, b"apple", b"13"), Err(Error::Cancelled))); // it would wait for `first`
/// # thread.join().expect("no panic");
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Canceller(pub(crate) txn::locks::Canceller);

impl Canceller {
    /// The statement that waits for a lock, or the next that would, gives [`Error::Cancelled`](crate::Error::Cancelled), and so
    /// does every later one until [`Transaction::clear_cancelled`](crate::Transaction::clear_cancelled). What needs not wait
    /// goes on.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let mut tx = db.begin()?;
    /// tx.canceller().cancel();
    /// tx.put(&fruit, b"apple", b"12")?; // nobody else has it locked
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

impl Database {
    /// From now on `report` is called by each thread that waits for a row lock, or for a table that is
    /// being changed, with what [`LockWaitNews`] says: so that
    /// somebody who counts threads lets another one run meanwhile, or who wants transactions to commit in an order ends one
    /// that is in another's way. It answers [`LockWaitNews::Begins`] with how often it wants to hear who is in the way; `None`:
    /// not at all. What was given first stays; it may end transactions and their waits, and wait for none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// use std::{sync::mpsc, time::Duration};
    /// use trefoil::LockWaitNews;
    ///
    /// let (told, hear) = mpsc::channel();
    /// db.report_lock_waits(move |news| {
    ///     if let LockWaitNews::Blocked(by) = news { told.send(by.to_vec()).expect("somebody hears it") }
    ///     Some(Duration::from_secs(3600))
    /// });
    /// let (mut first, mut second) = (db.begin()?, db.begin()?);
    /// let holder = first.id();
    /// first.put(&fruit, b"apple", b"12")?;
    /// std::thread::scope(|s| {
    ///     s.spawn(|| { let mut second = second; second.put(&fruit, b"apple", b"13") });
    ///     assert_eq!(hear.recv(), Ok(vec![holder]));
    ///     first.rollback();
    /// });
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn report_lock_waits(&self, report: impl Fn(LockWaitNews<'_>) -> Option<Duration> + Send + Sync + 'static) {
        self.engine().locks.report_waits(Box::new(move |news| match news {
            WaitNews::Begins => report(LockWaitNews::Begins),
            WaitNews::Ends => report(LockWaitNews::Ends),
            WaitNews::Blocked(by) => {
                let by: Vec<u64> = by.iter().map(|txn| txn.0).collect();
                report(LockWaitNews::Blocked(&by))
            }
        }));
    }

    /// Who waits for a row lock now, with everybody in the way: those who hold it, and those who came before.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let (mut first, mut second) = (db.begin()?, db.begin()?);
    /// first.put(&fruit, b"apple", b"12")?;
    /// let (waiter, holder) = (second.id(), first.id());
    /// std::thread::scope(|s| {
    ///     s.spawn(|| { let mut second = second; second.put(&fruit, b"apple", b"13") });
    ///     let edge = loop {
    ///         let waits = db.lock_waits();
    ///         match waits.into_iter().next() {
    ///             Some(edge) => break edge,
    ///             None => std::thread::yield_now(),
    ///         }
    ///     };
    ///     assert_eq!((edge.waiter, edge.blocker, edge.index.as_str()), (waiter, holder, "fruit"));
    ///     first.rollback();
    /// });
    /// assert!(db.lock_waits().is_empty());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn lock_waits(&self) -> Vec<LockEdge> {
        self.engine().lock_waits()
    }

    /// What running transactions have locked, rows before ranges, at most `most` of them: a lock is looked at after the other,
    /// and nobody is kept from what he does meanwhile. Of a transaction that locks very much a part is kept in short form,
    /// which is not listed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// use trefoil::LockMode;
    ///
    /// let mut tx = db.begin()?;
    /// tx.put(&fruit, b"apple", b"12")?;
    /// let lock = &db.locks(10)[0];
    /// assert_eq!((lock.transaction, lock.index.as_str(), &*lock.key), (tx.id(), "fruit", &b"apple"[..]));
    /// assert_eq!((lock.mode, lock.is_range), (LockMode::Exclusive, false));
    /// tx.rollback();
    /// assert!(db.locks(10).is_empty());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn locks(&self, most: usize) -> Vec<RowLock> {
        self.engine().row_locks(most)
    }

    /// The last 64 deadlocks since open, the newest first: who waited for whom, on which index and key.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// for deadlock in db.deadlocks() {
    ///     println!("{:?} ago, {} was rolled back: {:?}", deadlock.ago, deadlock.victim, deadlock.edges);
    /// }
    /// assert!(db.deadlocks().is_empty()); // there was none
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn deadlocks(&self) -> Vec<Deadlock> {
        self.engine().deadlocks()
    }
}

impl Engine {
    /// Who waits for whom now.
    pub fn lock_waits(&self) -> Vec<LockEdge> {
        self.locks.waits().into_iter().map(|edge| self.shown(edge)).collect()
    }

    /// Rows and ranges that are locked.
    pub fn row_locks(&self, most: usize) -> Vec<RowLock> {
        let name = |id| self.named(id);
        let mut all: Vec<_> = self.locks.held(most).into_iter().map(|held| row_lock(held, name)).collect();
        for entry in self.all_indexes().iter().filter(|entry| !entry.ranges.is_quiet()) {
            let room = most - all.len();
            all.extend(entry.ranges.list().into_iter().take(room).map(|(txn, key, end)| RowLock {
                transaction: txn.0,
                index: self.index_name(entry),
                key,
                mode: LockMode::Shared,
                is_range: true,
                end,
                waiters: 0,
            }));
        }
        all
    }

    /// The last deadlocks, newest first.
    pub fn deadlocks(&self) -> Vec<Deadlock> {
        let shown = |(ago, deadlock): (Duration, txn::locks::Deadlock)| Deadlock {
            victim: deadlock.victim.0,
            edges: deadlock.edges.into_iter().map(|edge| self.shown(edge)).collect(),
            ago,
        };
        self.locks.deadlocks().into_iter().map(shown).collect()
    }

    /// The name of an index; it may have been dropped since.
    fn named(&self, id: IndexId) -> String {
        let entry = self.names.read().indexes.get(&id).cloned();
        entry.map_or_else(|| format!("index {id}"), |entry| self.index_name(&entry))
    }

    fn shown(&self, edge: WaitEdge) -> LockEdge {
        LockEdge {
            waiter: edge.waiter.0,
            blocker: edge.blocker.0,
            index: self.named(edge.index),
            key: edge.key,
            mode: shown_mode(edge.mode),
            on_range: edge.on_range,
            waited: edge.waited,
        }
    }
}

fn shown_mode(mode: Mode) -> LockMode {
    match mode {
        Mode::Shared => LockMode::Shared,
        Mode::Increment => LockMode::Increment,
        Mode::Exclusive => LockMode::Exclusive,
    }
}

fn row_lock(held: HeldLock, name: impl Fn(IndexId) -> String) -> RowLock {
    let HeldLock { txn, index, key, mode, waiters } = held;
    let (index, mode) = (name(index), shown_mode(mode));
    RowLock { transaction: txn.0, index, key, mode, is_range: false, end: None, waiters }
}
