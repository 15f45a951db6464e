//! The end of a prepared transaction: everything apply can need is got ([`Engine::ready`]), the position in the log is
//! taken ([`Ready::order`]), the write set is applied ([`Engine::apply_ordered`]).
//!
//! A poison that falls between the first and the second changes nothing: the coordinator has decided, the commit is applied
//! and shows, and recovery comes to the same end from the coordinator's log (A23).
//!
//! Between the second and the third a commit is *ordered*: its place among all others is certain, and it cannot fail. Its
//! owner applies it when it likes; but `visible` cannot pass it, so **whoever waits for `visible` applies what is ordered
//! before** ([`Engine::wait_visible`]): nobody depends on a thread that sleeps, or on the one that waits itself.
//!
//! > A takes 100 (ordered), B takes 200, applies and waits for `visible` >= 200. If it is the same thread that has both,
//! > nobody would ever apply A.
//!
//! `count` is raised before the position is taken, and a committer takes its own position after that: so it finds every
//! ordered commit below its own.
//!
//! What is ready holds memory (leaves, or room in a memtable) and room in the log. Both are bounded: past [`PINNED_PART`] of the
//! budget a share becomes a run in memory, which holds no page and waits for nothing; past [`ROOM_PART`] of the ring nobody else gets ready without being
//! ordered at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::bytes::printable;
use base::{CommitTs, Fault, Lsn};
use vfs::sync::Mutex;
use wal::{HeldGrant, RecordKind};

use super::decision;
use super::registry::{Brief, Form, SetShare};
use crate::commit::{Deserts, OutOfMemory, Share};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::record;

/// Part of the budget that reservations of ready commits hold, at most.
const PINNED_PART: u64 = 16;
/// Part of the log's ring that ready commits hold, at most.
const ROOM_PART: u64 = 4;

/// Commits that are ready or ordered, and not applied.
#[derive(Default)]
pub struct Turns {
    /// Ordered and not applied, in the order of the log.
    list: Mutex<VecDeque<Arc<Pending>>>,
    /// Raised before a position is taken, lowered when its commit is applied. SeqCst, with the log's counter.
    count: AtomicU64,
    /// Bytes of memory that reservations of ready commits hold, at most.
    pinned: AtomicU64,
    /// Bytes of the ring that ready commits hold while they wait.
    held: AtomicU64,
}

/// A commit whose position is taken.
pub struct Pending {
    start: Lsn,
    end: Lsn,
    bytes: u64,
    deserts: Deserts,
    /// Whoever takes it applies it.
    work: Mutex<Option<Work>>,
}

struct Work {
    brief: Arc<Brief>,
    shares: Vec<Share>,
    files: Vec<u64>,
    pinned: u64,
}

/// A commit that can be ordered. Dropping it leaves the transaction prepared.
pub struct Ready {
    engine: Arc<Engine>,
    work: Option<Work>,
    grant: Option<HeldGrant>,
    record: Vec<u8>,
    /// Counted in `held`.
    waits: u64,
}

/// Puts a set back unless it is decided.
struct Undecided<'a>(Option<(&'a Engine, &'a [u8])>);

impl Drop for Undecided<'_> {
    fn drop(&mut self) {
        if let Some((engine, xid)) = self.0 {
            engine.prepared.undecide(xid);
        }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        self.engine.ordered.held.fetch_sub(self.waits, Ordering::Relaxed);
        if let Some(work) = self.work.take() {
            self.engine.ordered.pinned.fetch_sub(work.pinned, Ordering::Relaxed);
            self.engine.prepared.undecide(&work.brief.xid);
        }
    }
}

impl Engine {
    /// Step 1b of the commit of a prepared transaction. If it `waits` before it is ordered, what it holds of the log is
    /// bounded together with others.
    pub fn ready(self: &Arc<Self>, xid: &[u8], waits: bool) -> Result<Ready> {
        self.check_writable()?;
        let (brief, set) = self.prepared.decide(xid)?;
        let mut undecided = Undecided(Some((self, xid)));
        let (shares, pinned) = loop {
            match self.shares_of(&set) {
                // As with any commit: it goes on without a damaged secondary index.
                Err(Error::Corrupt(met)) => match self.set_aside(&met) {
                    Ok(true) => {}
                    Ok(false) => return Err(self.damaged(met)),
                    Err(_) => return Err(Error::Corrupt(met)),
                },
                done => break done?,
            }
        };
        let record = decision(brief.end, xid, &set);
        let files = files_of(&set).collect();
        let mut ready = Ready {
            engine: self.clone(),
            work: Some(Work { brief, shares, files, pinned }),
            grant: None,
            record,
            waits: 0,
        };
        undecided.0 = None;
        if waits {
            ready.wait_with_room()?;
        }
        ready.grant = Some(self.wal.hold(self.wal.reserve_space_privileged(ready.record.len())?));
        self.wait_for_window()?;
        self.poison.check()?;
        Ok(ready)
    }

    /// Everything apply can need, and bytes of memory that are held for it.
    fn shares_of(&self, set: &[SetShare]) -> Result<(Vec<Share>, u64)> {
        let mut shares = Vec::with_capacity(set.len());
        for share in set.iter().filter(|share| share.entry.is_written()) {
            self.check_undamaged(&share.entry)?;
            let entry = share.entry.clone();
            shares.push(match &share.form {
                Form::File(meta) => {
                    let run = self.open_run(meta)?;
                    if share.only_deletes {
                        run.note_only_deletes();
                    }
                    if let Some(bytes) = share.content_bytes {
                        run.note_content_bytes(bytes);
                    }
                    Share::of_file(entry, run, meta.clone())
                }
                Form::Inline(batch) => Share::planned(entry, Arc::unwrap_or_clone(batch.clone())),
            });
        }
        self.reserve_all(&mut shares, OutOfMemory::Attaches)?;
        // It waits with what it holds: all that wait hold a bounded part of memory.
        let limit = self.budget.limit() / PINNED_PART;
        let mut pinned = Pinned { engine: self, bytes: 0 };
        for share in &mut shares {
            if let Some(held) = share.held_bytes()
                && !pinned.add(held, limit)
            {
                self.attach_later(share);
            }
        }
        Ok((shares, pinned.keep()))
    }

    /// Applies an ordered commit, unless somebody has begun to. Cannot fail.
    pub fn apply_ordered(&self, pending: &Arc<Pending>) {
        let Some(work) = pending.work.lock().take() else { return };
        let ts = pending.end.as_commit_ts();
        let view = self.commit_view();
        self.helpers.apply_all(work.shares, ts, view);
        vfs::thread::point("commit.applied");
        work.files.iter().for_each(|id| self.runs.named(*id, ts));
        let held = self.prepared.committed(&work.brief.xid, ts);
        self.visible.mark_applied(pending.start, pending.end);
        self.signal_after_commit(pending.end);
        if let Some(held) = held {
            held.release(self, Some(ts));
        }
        self.ordered.pinned.fetch_sub(work.pinned, Ordering::Relaxed);
        self.ordered.list.lock().retain(|other| !Arc::ptr_eq(other, pending));
        self.ordered.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits until everything up to `ts` is applied, and applies what is ordered below it and waits for its owner.
    pub fn wait_visible(&self, ts: CommitTs) -> base::Result<()> {
        if self.visible.visible() < ts && self.ordered.count.load(Ordering::SeqCst) > 0 {
            loop {
                let below = |pending: &&Arc<Pending>| pending.end.as_commit_ts() <= ts && pending.work.lock().is_some();
                let Some(next) = self.ordered.list.lock().iter().find(below).cloned() else { break };
                self.apply_ordered(&next);
            }
        }
        self.visible.wait_for(ts)
    }

    /// Rolls a prepared transaction back; that is durable on return.
    pub fn rollback_prepared(&self, xid: &[u8]) -> Result<()> {
        self.check_writable()?;
        let (brief, set) = self.prepared.decide(xid)?;
        let mut undecided = Undecided(Some((self, xid)));
        let record = decision(brief.end, xid, &set);
        let grant = self.wal.reserve_space_privileged(record.len())?;
        self.wait_for_window()?;
        self.poison.check()?;
        undecided.0 = None;
        let (start, end) = self.wal.append(grant, RecordKind(record::KIND_ROLLBACK_PREPARED), &record);
        self.wal.end_promise(brief.decision_bytes);
        vfs::thread::point("rollback.logged");
        let held = self.prepared.withdraw(xid);
        // They go with a checkpoint: until then a manifest, or the prepare record, may name them.
        files_of(&set).for_each(|id| self.runs.named(id, end.as_commit_ts()));
        self.visible.mark_applied(start, end);
        self.signal_after_commit(end);
        if let Some(held) = held {
            held.release(self, None);
        }
        self.wal.sync_to(end).map_err(|fault| unknown(end, "rollback", xid, &fault))
    }
}

fn files_of(set: &[SetShare]) -> impl Iterator<Item = u64> {
    set.iter().filter_map(|share| if let Form::File(meta) = &share.form { Some(meta.id) } else { None })
}

/// The log failed behind a record of two-phase commit.
pub fn unknown(end: Lsn, what: &str, xid: &[u8], fault: &Fault) -> Error {
    let cause = format!("{what} of the prepared transaction {}: {fault}", printable(xid));
    Error::CommitOutcomeUnknown { ts: end.as_commit_ts(), cause }
}

impl Ready {
    /// Counts what its record takes of the ring while it waits.
    fn wait_with_room(&mut self) -> Result<()> {
        let (limit, bytes) = (self.engine.ring_bytes / ROOM_PART, wal::record::record_bytes(self.record.len()));
        let got = self.engine.ordered.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.waits = bytes;
        if got > limit {
            return Err(Error::Limit { what: "bytes of the log held by commits that are ready", limit, got });
        }
        Ok(())
    }

    /// Whose it is.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The point of no return: takes the position and copies the record. Neither waits nor fails.
    pub fn order(mut self) -> Arc<Pending> {
        let engine = self.engine.clone();
        let grant = self.grant.take().expect("what is ready has room");
        let work = self.work.take();
        let Work { brief, shares, .. } = work.as_ref().expect("what is ready has its shares");
        let (brief, deserts) = (brief.clone(), shares.iter().filter_map(Share::desert).collect());
        engine.ordered.count.fetch_add(1, Ordering::SeqCst);
        let mut list = engine.ordered.list.lock();
        let (start, end) = engine.wal.append_held(grant, RecordKind(record::KIND_COMMIT_PREPARED), &self.record);
        engine.wal.end_promise(brief.decision_bytes);
        let bytes = brief.bytes;
        let pending = Arc::new(Pending { start, end, bytes, deserts, work: Mutex::new(work) });
        list.push_back(pending.clone());
        drop(list);
        vfs::thread::point("commit.logged");
        pending
    }
}

impl Pending {
    /// The commit's timestamp.
    pub fn ts(&self) -> CommitTs {
        self.end.as_commit_ts()
    }

    /// What is to be cleared away when it is done.
    pub fn deserts(&self) -> &Deserts {
        &self.deserts
    }

    /// What the background gets to write for it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Memory held while shares are gathered.
struct Pinned<'a> {
    engine: &'a Engine,
    bytes: u64,
}

impl Pinned<'_> {
    /// False, and nothing counted, if all together would hold more than `limit`.
    fn add(&mut self, bytes: u64, limit: u64) -> bool {
        let fits = self.engine.ordered.pinned.fetch_add(bytes, Ordering::Relaxed) + bytes <= limit;
        if fits {
            self.bytes += bytes;
        } else {
            self.engine.ordered.pinned.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    fn keep(mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.engine.ordered.pinned.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
