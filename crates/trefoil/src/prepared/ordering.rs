//! Commits in an order that a server decides: it writes a log of its own, syncs that once for many, and then tells each
//! engine in the same order. The steps of a commit by name taken apart, as [`ReadyCommit`] and [`OrderedCommit`].

use std::sync::Arc;

use base::CommitTs;

use super::ordered::{Pending, Ready};
use crate::database::Database;
use crate::engine::Engine;
use crate::error::Result;
use crate::options::Durability;
use crate::snapshot::Snapshot;

/// A prepared transaction with everything that its commit can need: [`Database::ready_prepared`]. Dropping it leaves the
/// transaction prepared.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// use trefoil::Durability;
///
/// let mut tx = db.begin()?;
/// tx.put(&fruit, b"apple", b"12")?;
/// tx.prepare(b"order 7")?;
/// let ready = db.ready_prepared(b"order 7")?; // before the server's log is written: this may fail
/// let ordered = ready.order(); // behind that, under the server's lock
/// ordered.finish(Durability::Buffered)?; // anywhere: the server's log repeats it after a crash
/// assert!(db.begin()?.get(&fruit, b"apple")?.is_some());
/// # Ok::<(), trefoil::Error>(())
/// ```
#[must_use = "dropping it leaves the transaction prepared"]
pub struct ReadyCommit(Ready);

/// A commit whose place among all others is certain: [`ReadyCommit::order`]. It shows once it is finished; dropping it
/// finishes it too.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// use trefoil::Durability;
///
/// for (xid, key) in [(b"a", b"apple"), (b"b", b"peach")] {
///     let mut tx = db.begin()?;
///     tx.put(&fruit, key, b"12")?;
///     tx.prepare(xid)?;
/// }
/// let (b, a) = (db.ready_prepared(b"b")?, db.ready_prepared(b"a")?);
/// let (first, second) = (a.order(), b.order()); // the order of these calls, and no other
/// assert!(first.ts() < second.ts());
/// second.finish(Durability::Sync)?; // finishes the first as well: nothing shows before what is ordered before it
/// assert!(db.begin()?.get(&fruit, b"apple")?.is_some());
/// # Ok::<(), trefoil::Error>(())
/// ```
#[must_use = "it shows once it is finished"]
pub struct OrderedCommit {
    engine: Arc<Engine>,
    pending: Arc<Pending>,
}

impl Database {
    /// Gets everything that the commit of what is prepared under `xid` can need, so that it can be ordered in microseconds
    /// and cannot fail any more. As long as it waits it holds leaves in memory, or a copy of its writes, and a little room
    /// in the log.
    ///
    /// # Errors
    /// As [`Database::commit_prepared`]; `Limit` if a quarter of the log's ring is held by commits that are ready.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let mut tx = db.begin()?;
    /// tx.put(&fruit, b"apple", b"12")?;
    /// tx.prepare(b"order 7")?;
    /// drop(db.ready_prepared(b"order 7")?); // the server changed its mind
    /// db.rollback_prepared(b"order 7")?;
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn ready_prepared(&self, xid: &[u8]) -> Result<ReadyCommit> {
        Ok(ReadyCommit(self.engine().ready(xid, true)?))
    }

    /// A snapshot of everything that has its place in the order of commits by now, also of what is ordered and not finished:
    /// it is taken at once, and its first read waits for the rest. Called where the server orders commits, it shows exactly
    /// what the server's log holds at this moment.
    ///
    /// # Errors
    /// `Closed`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # tx.put(&fruit, b"apple", b"12")?;
    /// # tx.prepare(b"order 7")?;
    /// let ordered = db.ready_prepared(b"order 7")?.order();
    /// let snapshot = db.snapshot_after_reserved()?;
    /// assert!(snapshot.get(&fruit, b"apple")?.is_some());
    /// # drop(ordered);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn snapshot_after_reserved(&self) -> Result<Snapshot> {
        Snapshot::take_after_reserved(self.engine())
    }
}

impl ReadyCommit {
    /// Takes its place in the order of commits, which is that of these calls: it copies a small record. It neither waits nor
    /// fails, whatever the disk does: from here on it is committed (`commit_ordered` of MariaDB).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # tx.put(&fruit, b"apple", b"12")?;
    /// # tx.prepare(b"order 7")?;
    /// let before = db.snapshot()?.ts();
    /// let ordered = db.ready_prepared(b"order 7")?.order();
    /// assert!(ordered.ts() > before);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn order(self) -> OrderedCommit {
        let engine = self.0.engine().clone();
        OrderedCommit { pending: self.0.order(), engine }
    }
}

impl OrderedCommit {
    /// The commit's timestamp.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # db.begin()?.prepare(b"order 7")?;
    /// let ordered = db.ready_prepared(b"order 7")?.order();
    /// assert_eq!(ordered.ts(), ordered.finish(trefoil::Durability::Buffered)?);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn ts(&self) -> CommitTs {
        self.pending.ts()
    }

    /// Applies it, releases its locks, and waits until it shows; then until it is as durable as asked. `Buffered` is for
    /// who has it in a durable log of its own, and orders it again if it is found prepared after a crash.
    ///
    /// # Errors
    /// `CommitOutcomeUnknown` if the log failed and `Sync` or `Write` was asked for: it shows all the same, and after a
    /// reopening it is committed, or prepared as before.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # tx.put(&fruit, b"apple", b"12")?;
    /// # tx.prepare(b"order 7")?;
    /// let ts = db.ready_prepared(b"order 7")?.order().finish(trefoil::Durability::Sync)?;
    /// assert!(db.snapshot()?.ts() >= ts);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn finish(self, durability: Durability) -> Result<CommitTs> {
        self.engine.finish_ordered(&self.pending, durability)
    }
}

impl Drop for OrderedCommit {
    fn drop(&mut self) {
        self.engine.apply_ordered(&self.pending);
    }
}
