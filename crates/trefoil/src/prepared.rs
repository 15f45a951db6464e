//! Two-phase commit (rules A7, A23): a transaction is prepared, which is durable, and decided later, by its name.
//!
//! 1. [`Transaction::prepare`]: the write set goes into a prepare record, large shares into run files that it names, as those
//!    of a commit; the record is synced. Locks, pending keys and the places in the gates of tables stay held, by the
//!    database: [`registry`].
//! 2. A commit by name gets everything apply can need (step 1b), takes its position with a small record that names the
//!    prepare record, applies, and syncs: [`ordered`]. A server with a log of its own takes these steps apart: [`ordering`].
//! 3. A rollback by name is a small record too, synced.
//! 4. Recovery finds what is prepared in the manifest and in the log: [`recovered`].
//!
//! The log is kept from the first prepare record that may be needed; a checkpoint that finds a set older than the checkpoint
//! before it writes its operations as run files, which the manifest names in place of the log
//! ([`Engine::rewrite_prepared`]). So a transaction that is forgotten for a week costs its own size.
//!
//! Commits and rollbacks of what is prepared may use the reserve of the disk (P4): a coordinator has decided already.

use std::sync::Arc;
use std::time::Duration;

use base::{CommitTs, Fault, Lsn};
use index::Batch;
use wal::RecordKind;

use crate::commit::Changes;
use crate::database::Database;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::options::Durability;
use crate::record;
use crate::transaction::Transaction;

pub mod ordered;
pub mod ordering;
pub mod recovered;
mod references;
pub mod registry;

use ordered::{Pending, unknown};
use registry::{Brief, Form, SetShare};

/// Bytes of the name of a prepared transaction, at most: a format number, two lengths and 128 bytes of X/Open.
pub const XID_BYTES_MAX: usize = 140;

/// A prepared transaction, as [`Database::prepared`] lists it.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// let mut tx = db.begin()?;
/// tx.put(&fruit, b"apple", b"12")?;
/// tx.prepare(b"order 7")?;
/// let waiting = &db.prepared()?[0];
/// assert_eq!((waiting.xid.as_slice(), waiting.writes), (&b"order 7"[..], 1));
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreparedTransaction {
    /// The name that it was prepared under.
    pub xid: Vec<u8>,
    /// When it was prepared, since 1970, by the clock of that machine.
    pub since: Duration,
    /// Keys that it writes, entries of secondary indexes included.
    pub writes: u64,
    /// Position of its prepare record in the log.
    pub lsn: CommitTs,
    /// Its number among lock waits, in this life of the database: [`Transaction::id`].
    pub transaction: u64,
}

impl Transaction {
    /// First phase of a commit in two: after this it can be committed for certain. It is on disk, with its writes and its
    /// locks, under the name `xid` (1 to 140 bytes), and belongs to the database: it outlives its session, the process and
    /// a crash until [`Database::commit_prepared`] or [`Database::rollback_prepared`] decides it, from any thread. It shows to
    /// nobody until then. After a reopening it holds the locks of what it wrote, those of what it read are gone.
    ///
    /// # Errors
    /// `AlreadyExists` if something is prepared under this name; `InvalidArgument`, `Limit`, `DiskFull`, `Poisoned`. The
    /// transaction is rolled back then. `CommitOutcomeUnknown` if the log failed: it may be found prepared after a
    /// reopening.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let path = dir.path().join("db");
    /// # use trefoil::{Database, IndexOptions, Options};
    /// # let db = Database::open(&path, Options::default())?;
    /// # let fruit = db.create_index("fruit", IndexOptions::default())?;
    /// let mut tx = db.begin()?;
    /// tx.put(&fruit, b"apple", b"12")?;
    /// tx.prepare(b"order 7")?;
    /// # drop(fruit);
    /// drop(db); // or a crash
    ///
    /// let db = Database::open(&path, Options::default())?;
    /// let fruit = db.index("fruit")?;
    /// assert!(db.begin()?.get(&fruit, b"apple")?.is_none());
    /// db.commit_prepared(b"order 7")?;
    /// assert!(db.begin()?.get(&fruit, b"apple")?.is_some());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn prepare(self, xid: &[u8]) -> Result<()> {
        self.prepare_with(xid, Durability::Sync)
    }

    /// As [`Transaction::prepare`], but no more durable than asked: with less than `Sync` what is prepared may be gone when the
    /// machine fails. For a coordinator on the same machine whose own log is no more durable.
    ///
    /// # Errors
    /// As [`Transaction::prepare`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let mut tx = db.begin()?;
    /// tx.put(&fruit, b"apple", b"12")?;
    /// tx.prepare_with(b"order 7", trefoil::Durability::Write)?; // outlives the process, not the machine
    /// db.commit_prepared(b"order 7")?; // on disk
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn prepare_with(mut self, xid: &[u8], durability: Durability) -> Result<()> {
        self.check_running()?;
        if self.has_deleted_ranges() {
            let what =
                "preparing a transaction that has deleted ranges; commit it in one step, or delete its keys one by one";
            return Err(Error::Unsupported(what.into()));
        }
        self.settle_looked()?;
        let engine = self.engine.clone();
        engine.prepare_transaction(&self, xid, durability)
    }
}

impl Database {
    /// What is prepared and not decided, ordered by name.
    ///
    /// # Errors
    /// `Closed`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// for waiting in db.prepared()? {
    ///     println!("{:?} since {:?}: {} writes", waiting.xid, waiting.since, waiting.writes);
    /// }
    /// # assert!(db.prepared()?.is_empty());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn prepared(&self) -> Result<Vec<PreparedTransaction>> {
        self.engine().check_open()?;
        let told = |brief: &Arc<Brief>| PreparedTransaction {
            xid: brief.xid.clone(),
            since: brief.since,
            writes: brief.writes,
            lsn: brief.end.as_commit_ts(),
            transaction: brief.transaction.0,
        };
        Ok(self.engine().prepared.list().iter().map(told).collect())
    }

    /// Commits what is prepared under `xid`; on disk when it returns, whatever the database's durability is: who
    /// coordinates it forgets it then. Also while a full disk refuses writes.
    ///
    /// # Errors
    /// `NotFound` if nothing is prepared under this name; `InvalidArgument` if another thread decides it at this moment;
    /// `Limit` if memory is short: it stays prepared. `CommitOutcomeUnknown` if the log failed: after a reopening it is
    /// committed, or prepared as before.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let mut tx = db.begin()?;
    /// tx.put(&fruit, b"apple", b"12")?;
    /// tx.prepare(b"order 7")?;
    /// let ts = db.commit_prepared(b"order 7")?;
    /// assert!(db.snapshot()?.ts() >= ts);
    /// assert!(matches!(db.commit_prepared(b"order 7"), Err(trefoil::Error::NotFound { .. }))); // it is decided
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn commit_prepared(&self, xid: &[u8]) -> Result<CommitTs> {
        let engine = self.engine();
        let pending = engine.ready(xid, false)?.order();
        engine.finish_ordered(&pending, Durability::Sync)
    }

    /// Rolls back what is prepared under `xid`; on disk when it returns. Also while a full disk refuses writes.
    ///
    /// # Errors
    /// As [`Database::commit_prepared`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let mut tx = db.begin()?;
    /// tx.put(&fruit, b"apple", b"12")?;
    /// tx.prepare(b"order 7")?;
    /// db.rollback_prepared(b"order 7")?;
    /// let mut tx = db.begin()?;
    /// tx.put(&fruit, b"apple", b"13")?; // its locks are free
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn rollback_prepared(&self, xid: &[u8]) -> Result<()> {
        self.engine().rollback_prepared(xid)
    }
}

impl SetShare {
    /// Operations.
    pub fn len(&self) -> u64 {
        match &self.form {
            Form::Inline(batch) => batch.len() as u64,
            Form::File(meta) => meta.entries,
        }
    }

    /// Bytes of the operations, or of their file.
    pub fn bytes(&self) -> u64 {
        match &self.form {
            Form::Inline(batch) => batch.bytes() as u64,
            Form::File(meta) => meta.bytes,
        }
    }
}

impl Engine {
    fn prepare_transaction(&self, tx: &Transaction, xid: &[u8], durability: Durability) -> Result<()> {
        if xid.is_empty() {
            return Err(Error::InvalidArgument("the name of a prepared transaction is empty".into()));
        }
        if xid.len() > XID_BYTES_MAX {
            let (limit, got) = (XID_BYTES_MAX as u64, xid.len() as u64);
            return Err(Error::Limit { what: "length of the name of a prepared transaction in bytes", limit, got });
        }
        self.check_writable()?;
        self.prepared.claim(xid)?;
        let mut files = Vec::new();
        let end = self.log_prepare(tx, xid, &mut files).inspect_err(|_| {
            drop(self.prepared.withdraw(xid));
            // Nothing names them. If one cannot be removed, the next open does it.
            files.iter().for_each(|id| drop(self.runs.abandoned(&self.layout, *id)));
        })?;
        vfs::thread::point("prepare.logged");
        if let Err(fault) = self.make_durable_as(end, durability) {
            // What the log holds, the next opening says. Its locks stay until then: a commit that went around them, into
            // a log whose end is not known, might be found beside it.
            return Err(unknown(end, "prepare", xid, &fault));
        }
        self.prepared.durable(xid);
        Ok(())
    }

    /// Writes the prepare record and registers the set. After an error there is no trace but the files.
    fn log_prepare(&self, tx: &Transaction, xid: &[u8], files: &mut Vec<u64>) -> Result<Lsn> {
        let changes = tx.changes()?;
        changes.iter().try_for_each(|(entry, _)| self.check_undamaged(entry))?;
        let mut room = self.wal.payload_bytes_max() / 2;
        let mut shares = Vec::with_capacity(changes.len());
        for (entry, changes) in changes {
            let share = match changes {
                Changes::Batch(batch) if self.fits_record(&entry, &batch, &mut room) => {
                    SetShare { entry, form: Form::Inline(Arc::new(batch)), only_deletes: false, content_bytes: None }
                }
                changes => match self.write_run(&entry, &changes, files)? {
                    Some((run, meta)) => SetShare::of_file(entry, &run, meta),
                    None => continue,
                },
            };
            shares.push(share);
        }
        let since = vfs::time::unix_time();
        let record = encode(xid, since.as_millis() as u64, &shares);
        let decision_bytes = record::decision_bytes(xid, shares.len());
        self.wal.promise(decision_bytes);
        let granted = self.wal.reserve_space(record.len()).map_err(Error::from).and_then(|grant| {
            self.wait_for_window()?;
            self.poison.check()?;
            Ok(grant)
        });
        let grant = granted.inspect_err(|_| self.wal.end_promise(decision_bytes))?;
        let in_files: u64 =
            shares.iter().map(|share| if let Form::File(meta) = &share.form { meta.bytes } else { 0 }).sum();
        let (start, end) = self.wal.append(grant, RecordKind(record::KIND_PREPARE), &record);
        vfs::thread::point("prepare.appended");
        if in_files > 0 {
            self.controller.note_files(in_files);
        }
        let writes = shares.iter().map(SetShare::len).sum();
        let bytes = end.0 - start.0 + in_files;
        let mut held = tx.detach();
        held.charge(inline_batches(&shares));
        let brief =
            Brief { xid: xid.to_vec(), transaction: tx.txn(), since, start, end, writes, bytes, decision_bytes };
        self.prepared.register(brief, shares, Some(held), false);
        self.visible.mark_applied(start, end);
        self.signal_after_commit(end);
        Ok(end)
    }

    /// Applies an ordered commit and waits until it shows. A failure of the log is one only if durability was asked for:
    /// the commit stays, and its coordinator brings recovery to the same end (A23).
    pub fn finish_ordered(&self, pending: &Arc<Pending>, durability: Durability) -> Result<CommitTs> {
        let ts = pending.ts();
        self.apply_ordered(pending);
        self.pay(pending.bytes());
        match self.finish_commit(ts, durability) {
            Err(_) if durability == Durability::Buffered => {}
            done => done?,
        }
        self.clear_away(pending.deserts(), ts);
        Ok(ts)
    }

    /// Before a checkpoint: sets older than the one before it become run files (A7). What does not fit the disk stays in
    /// the log.
    pub fn rewrite_prepared(&self, before: Lsn) -> base::Result<()> {
        for (brief, shares) in self.prepared.old(before) {
            let mut files = Vec::new();
            let mut rewrite = |share: SetShare| match &share.form {
                Form::Inline(batch) => {
                    let written = self.write_run(&share.entry, &Changes::Batch(Batch::clone(batch)), &mut files)?;
                    let (run, meta) = written.expect("a share is not empty");
                    Ok(SetShare::of_file(share.entry, &run, meta))
                }
                Form::File(_) => Ok(share),
            };
            let rewritten: base::Result<Vec<_>> = shares.into_iter().map(&mut rewrite).collect();
            vfs::thread::point("prepared.rewritten");
            let (done, fault) = match rewritten {
                Ok(shares) => (self.prepared.rewritten(&brief, shares), None),
                Err(Fault::NoSpace { .. }) => (false, None),
                Err(fault) => (false, Some(self.poison.set(fault))),
            };
            if !done {
                files.iter().for_each(|id| drop(self.runs.abandoned(&self.layout, *id)));
            }
            fault.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// The name of a prepared transaction that keeps a table, or a plain index, as it is.
    pub fn check_unprepared(&self, name: &str, id: base::IndexId) -> Result<()> {
        match self.prepared.keeper(id) {
            Some(xid) => Err(Error::HeldByPrepared { name: name.to_owned(), xid }),
            None => Ok(()),
        }
    }
}

fn inline_batches(shares: &[SetShare]) -> impl Iterator<Item = &Batch> {
    shares.iter().filter_map(|share| if let Form::Inline(batch) = &share.form { Some(&**batch) } else { None })
}

/// The record that decides a set.
pub fn decision(prepare: Lsn, xid: &[u8], shares: &[SetShare]) -> Vec<u8> {
    record::encode_decision(prepare, xid, shares.iter().map(|share| share.entry.id()))
}

fn encode(xid: &[u8], since_ms: u64, shares: &[SetShare]) -> Vec<u8> {
    let inline = |share: &SetShare| if let Form::Inline(batch) = &share.form { record::inline_bytes(batch) } else { 0 };
    let mut out = Vec::with_capacity(xid.len() + 32 + shares.iter().map(inline).sum::<usize>());
    record::put_prepare(&mut out, xid, since_ms);
    record::begin(&mut out, shares.len());
    for share in shares {
        match &share.form {
            Form::Inline(batch) => record::put_inline(&mut out, share.entry.id(), batch),
            Form::File(meta) => record::put_run(&mut out, share.entry.id(), meta),
        }
    }
    out
}
