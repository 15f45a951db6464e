//! The commit pipeline (ENGINE.md section 6).
//!
//! 1. Row locks are held and the write set is complete: the transaction did that.
//! 2. (Step 1b.) Everything apply can need is got, all or nothing: for each touched index either its leaves, loaded
//!    and held, or a run (a file, synced, above `inline_batch_bytes`; in memory when too many leaves are cold, or too much memory is lacking); and
//!    room in the log. An error here aborts the transaction and leaves no trace (rule A1).
//! 3. The log position is reserved and the record copied. The end of the record is the commit timestamp. From here
//!    on nothing can fail but the disk under the log.
//! 4. Each index applies its batch, or attaches its run; of a large commit side by side ([`crate::helpers`]).
//! 5. The range is marked applied: `visible` moves over it when everything before it is (rule A12).
//! 6. Row locks are released and keep the timestamp, so that their next owner's snapshot waits for it (A17).
//! 7. The log is handed over or synced, as the durability asks. An error here is `CommitOutcomeUnknown`.
//! 8. The reply waits until `visible` has reached the commit, and until much that it deleted is cleared away
//!    ([`Engine::clear_away`]).
//!
//! Invariant: between 3 and 5 there is no return. A thread that left there would hold `visible` for ever.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{CommitTs, GcView, IndexId, Lsn};
use index::{Batch, Reservation, Reserved, Span};
use store::{Class, Funds, Run, RunMeta, RunWriter};
use txn::SharedWriteSet;
use wal::RecordKind;

use crate::engine::Engine;
use crate::entry::IndexEntry;
use crate::error::{Error, Result};
use crate::options::Durability;
use crate::quarantine::as_damage;
use crate::record;
use crate::recovery::run_of;

/// Bytes that the record adds to each operation, at most: two lengths.
const RECORD_BYTES_PER_OPERATION: usize = 10;

/// A leaf in memory, about.
const LEAF_BYTES: usize = 16 << 10;

/// Deletes of one index that a commit clears away before its reply, at most.
const CLEARED_ENTRIES_MAX: u64 = 1 << 18;

/// What a commit does to one index.
pub enum Changes {
    /// Operations in memory.
    Batch(Batch),
    /// Writes of which a part lies in files.
    Spilled(Arc<SharedWriteSet>),
    /// Ranges are deleted, then come changes.
    Behind(Vec<Span>, Box<Changes>),
}

impl Changes {
    /// Ranges, and what comes behind them.
    fn apart(self) -> (Vec<Span>, Changes) {
        match self {
            Changes::Behind(spans, changes) => (spans, *changes),
            changes => (Vec::new(), changes),
        }
    }
}

/// One index's share of a commit, ready to be applied.
pub struct Share {
    entry: Arc<IndexEntry>,
    /// Deleted before all else.
    spans: Vec<Span>,
    batch: Batch,
    how: How,
}

enum How {
    /// In place, once what that needs is reserved: not beyond step 2.
    Planned,
    /// As a run in memory, which is made once all else is reserved: not beyond step 2.
    ToAttach,
    /// In place.
    Direct(Box<dyn Reserved>),
    /// As a run in memory; the record holds the operations.
    MemoryRun(Run),
    /// As a run file, durable already; the record names it.
    FileRun(Run, RunMeta),
}

impl Share {
    /// Operations to be applied in place; a run takes none.
    pub fn operations(&self) -> usize {
        if matches!(self.how, How::Direct(_)) { self.batch.len() } else { 0 }
    }

    /// Step 4.
    pub fn apply(self, ts: CommitTs, view: &GcView) {
        let is_in_file = matches!(self.how, How::FileRun(..));
        match self.how {
            How::Planned | How::ToAttach => unreachable!("reserved in step 2"),
            How::Direct(reserved) => self.entry.index.apply(&self.batch, reserved, ts, view),
            How::MemoryRun(run) | How::FileRun(run, _) => self.entry.index.attach(run, ts),
        }
        if !self.spans.is_empty() {
            vfs::thread::point("commit.ranges");
            let ranged = self.entry.index.as_ranged().expect("ranges are deleted of nothing else");
            let put = self.batch.iter().map(|(key, _)| key);
            ranged.delete_ranges(&self.spans, ts, (!is_in_file).then_some(put));
        }
    }

    /// A share whose operations are in the record, or were before; to be applied in place.
    pub fn planned(entry: Arc<IndexEntry>, batch: Batch) -> Self {
        Self { entry, spans: Vec::new(), batch, how: How::Planned }
    }

    /// A share whose operations are in a run file, durable already.
    pub fn of_file(entry: Arc<IndexEntry>, run: Run, meta: RunMeta) -> Self {
        Self { entry, spans: Vec::new(), batch: Batch::default(), how: How::FileRun(run, meta) }
    }

    /// The index, if all that it gets is a run of deletes, or so many in place that it wants to look after them.
    pub fn desert(&self) -> Option<Arc<IndexEntry>> {
        match &self.how {
            How::MemoryRun(run) | How::FileRun(run, _) if run.has_only_deletes() => Some(self.entry.clone()),
            How::Direct(_) if self.entry.index.clears_behind(&self.batch) => Some(self.entry.clone()),
            _ => None,
        }
    }

    /// Bytes of memory that others lack while it holds what it needs in place.
    pub fn held_bytes(&self) -> Option<u64> {
        if let How::Direct(reserved) = &self.how { Some(reserved.held_bytes()) } else { None }
    }

    /// What it may ask for in place, to be held against other shares: each key may lie in another leaf.
    fn ask(&self) -> usize {
        self.batch.bytes() + self.batch.len() * LEAF_BYTES
    }

    /// Gives back what is reserved for it.
    fn let_go(&mut self) {
        if matches!(self.how, How::Direct(_)) {
            self.how = How::Planned;
        }
    }

    /// Bytes of its run file.
    pub fn file_bytes(&self) -> u64 {
        if let How::FileRun(_, meta) = &self.how { meta.bytes } else { 0 }
    }
}

/// Which space on the disk a commit may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// All but the reserve.
    Ordinary,
    /// The reserve too: for drops, which give space back.
    Reserve,
}

/// What becomes of a commit that waited for memory, in place, in vain ([`store::Cache::grant`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutOfMemory {
    Fails,
    /// It was promised to commit: it is attached.
    Attaches,
}

/// A commit past its point of no return.
pub struct Committed {
    /// When it takes effect.
    pub ts: CommitTs,
    /// What the background gets to write for it: its record, and its run files.
    pub bytes: u64,
    /// What was only deleted from, and much.
    pub deserts: Deserts,
}

/// Indexes with many deletes that readers would pass over one by one.
pub type Deserts = Vec<Arc<IndexEntry>>;

impl Engine {
    /// Steps 2 to 5, ascending by index.
    pub fn commit_changes(&self, changes: Vec<(Arc<IndexEntry>, Changes)>, room: Room) -> Result<Committed> {
        self.commit_changes_noting(changes, room, |_| {})
    }

    /// The same. `note` is told the timestamp before anybody can have a snapshot that sees the commit; it cannot fail.
    pub fn commit_changes_noting(
        &self,
        changes: Vec<(Arc<IndexEntry>, Changes)>,
        room: Room,
        note: impl FnOnce(CommitTs),
    ) -> Result<Committed> {
        self.check_not_read_only()?;
        changes.iter().try_for_each(|(entry, _)| self.check_undamaged(entry))?;
        // A drop gives space back, which the drain may be waiting for on a full disk (P4).
        if room == Room::Ordinary {
            self.wait_at_wall()?;
        }
        let mut files = Vec::new();
        let prepared = self.prepare_all(changes, &mut files).and_then(|shares| {
            let (kind, record) = encode(&shares);
            let grant = match room {
                Room::Ordinary => self.wal.reserve_space(record.len())?,
                Room::Reserve => self.wal.reserve_space_privileged(record.len())?,
            };
            self.wait_for_window()?;
            self.poison.check()?;
            Ok((shares, kind, record, grant))
        });
        let (shares, kind, record, grant) = match prepared {
            Ok(ready) => ready,
            Err(error) => {
                // Nothing names the files. If one cannot be removed, the next open does it.
                files.iter().for_each(|id| drop(self.runs.abandoned(&self.layout, *id)));
                return Err(error);
            }
        };
        let view = self.commit_view();

        let (start, end) = self.wal.append(grant, RecordKind(kind), &record);
        vfs::thread::point("commit.logged");
        let ts = end.as_commit_ts();
        note(ts);
        let in_files: u64 = shares.iter().map(Share::file_bytes).sum();
        if in_files > 0 {
            self.controller.note_files(in_files);
        }
        let deserts = shares.iter().filter_map(Share::desert).collect();
        self.helpers.apply_all(shares, ts, view);
        vfs::thread::point("commit.applied");
        files.iter().for_each(|id| self.runs.named(*id, ts));
        self.visible.mark_applied(start, end);
        self.signal_after_commit(end);
        Ok(Committed { ts, bytes: end.0 - start.0 + in_files, deserts })
    }

    /// The applied prefix may lag the log by a bounded number of bytes (rule A12's buffer has a size). Whoever
    /// is past this check holds a grant, and all grants together are at most a ring, so nobody leaves the window.
    pub fn wait_for_window(&self) -> Result<()> {
        let lag_max = self.visible.window_bytes() - 2 * self.ring_bytes;
        let end = self.wal.end().0;
        // Others append and apply between the two loads: the prefix may be beyond this end already.
        if end.saturating_sub(self.visible.visible().0) > lag_max {
            self.wait_visible(CommitTs(end - lag_max))?;
        }
        Ok(())
    }

    /// The log up to `end`, as durable as asked.
    pub fn make_durable_as(&self, end: Lsn, durability: Durability) -> base::Result<()> {
        match durability {
            Durability::Sync => self.wal.sync_to(end),
            Durability::Write => self.wal.write_to(end),
            Durability::Buffered => {
                // Release, with the log thread's swap: whoever counts this commit syncs past its record.
                self.counters.buffered.fetch_add(1, Ordering::Release);
                // SeqCst, with the swap in `close`: either this sees that the log thread is going, or the sync
                // behind that swap covers this record.
                if self.closed.load(Ordering::SeqCst) { self.wal.sync_to(end) } else { self.wal.relieve() }
            }
        }
    }

    /// Steps 7 and 8.
    pub fn finish_commit(&self, ts: CommitTs, durability: Durability) -> Result<()> {
        let logged = self.make_durable_as(ts.as_lsn(), durability);
        let unknown = |cause: base::Fault| Error::CommitOutcomeUnknown { ts, cause: cause.to_string() };
        logged.map_err(unknown)?;
        self.wait_visible(ts).map_err(unknown)
    }

    /// Behind step 8: who has deleted much clears it away, as far as that is in memory. Nobody waits for it but him, and who
    /// reads next hops over what is gone. The entries that he holds keep indexes that are dropped meanwhile.
    pub fn clear_away(&self, deserts: &Deserts, ts: CommitTs) {
        if deserts.is_empty() {
            return;
        }
        let upkeep = self.upkeep();
        for entry in deserts.iter().filter(|entry| entry.is_kept_up()) {
            // What fails here the background meets again, and knows what to do about it.
            let _ = entry.index.clear_away(&upkeep, ts, CLEARED_ENTRIES_MAX);
        }
    }

    fn prepare_all(&self, changes: Vec<(Arc<IndexEntry>, Changes)>, files: &mut Vec<u64>) -> Result<Vec<Share>> {
        // What one record can hold beside `inline_batch_bytes` of the last share, with its framing.
        let mut room = self.wal.payload_bytes_max() / 2;
        let mut shares = Vec::with_capacity(changes.len());
        for (entry, changes) in changes {
            let (spans, changes) = changes.apart();
            let taken: usize =
                spans.iter().map(|span| span.low.len() + span.high.as_ref().map_or(0, Vec::len) + 16).sum();
            room = room.saturating_sub(taken);
            let before = room;
            match changes {
                Changes::Batch(batch) if self.fits_record(&entry, &batch, &mut room) => {
                    shares.push(Share::planned(entry, batch));
                }
                Changes::Batch(batch) if entry.id() == IndexId::CATALOG => {
                    let (limit, got) = (before as u64, batch.bytes() as u64);
                    return Err(Error::Limit { what: "bytes of one change of definitions", limit, got });
                }
                changes => match self.write_run(&entry, &changes, files)? {
                    Some((run, meta)) => shares.push(Share::of_file(entry, run, meta)),
                    None if spans.is_empty() => continue,
                    None => shares.push(Share::planned(entry, Batch::default())),
                },
            }
            shares.last_mut().expect("just pushed").spans = spans;
        }
        self.reserve_all(&mut shares, OutOfMemory::Fails)?;
        Ok(shares)
    }

    /// Everything that shares need, all or nothing [A1]. Nobody waits for memory with a part of it in hand: of commits that do, each
    /// may lack what the others hold. Where all together is more than a commit may wait for, the largest is attached instead.
    pub fn reserve_all(&self, shares: &mut [Share], then: OutOfMemory) -> Result<()> {
        let mut funds = Funds::default();
        loop {
            let mut is_short = false;
            for share in shares.iter_mut().filter(|share| matches!(share.how, How::Planned)) {
                match share.entry.index.reserve_from(&share.batch, &mut funds) {
                    Ok(Some(Reservation::Direct(reserved))) => {
                        share.how = How::Direct(reserved);
                        vfs::thread::point("commit.reserved");
                    }
                    Ok(Some(Reservation::TooCold)) => share.how = How::ToAttach,
                    // The others are asked all the same: what they need is waited for with it.
                    Ok(None) => is_short = true,
                    Err(base::Fault::Limit { .. }) if then == OutOfMemory::Attaches => share.how = How::ToAttach,
                    Err(fault) => return Err(as_damage(&share.entry, fault).into()),
                }
            }
            if !is_short {
                break;
            }
            shares.iter_mut().for_each(Share::let_go);
            let planned = shares.iter_mut().filter(|share| matches!(share.how, How::Planned));
            if funds.are_asked_too_much() {
                planned.max_by_key(|share| share.ask()).expect("one is short").how = How::ToAttach;
                funds = Funds::default();
                continue;
            }
            match funds.wait() {
                Err(base::Fault::Limit { .. }) if then == OutOfMemory::Attaches => {
                    planned.for_each(|share| share.how = How::ToAttach)
                }
                waited => waited?,
            }
        }
        drop(funds);
        shares.iter_mut().filter(|share| matches!(share.how, How::ToAttach)).for_each(|share| self.attach_later(share));
        Ok(())
    }

    /// Makes a share, which gives back what it has, a run in memory. Charged past the limit if need be: the write set, as large, is let go
    /// in a moment.
    pub fn attach_later(&self, share: &mut Share) {
        share.let_go();
        let charge = self.budget.charge(Class::Runs, share.batch.bytes() as u64);
        share.how = How::MemoryRun(run_of(&share.batch).with_charge(charge));
    }

    /// True if a batch goes into the record, of whose `room` it takes its part then; otherwise into a run file.
    pub fn fits_record(&self, entry: &IndexEntry, batch: &Batch, room: &mut usize) -> bool {
        let bytes = batch.bytes() + RECORD_BYTES_PER_OPERATION * batch.len() + 64;
        // The catalog is always in the record: it is replayed before run files are looked at.
        let small = batch.bytes() <= self.options.inline_batch_bytes || entry.id() == IndexId::CATALOG;
        let fits = small && bytes <= *room;
        if fits {
            *room -= bytes;
        }
        fits
    }

    /// Writes changes of an index as a run file, durable on return; its number goes into `files` first. None if there are
    /// none: everything may have been taken back.
    pub fn write_run(
        &self,
        entry: &IndexEntry,
        changes: &Changes,
        files: &mut Vec<u64>,
    ) -> base::Result<Option<(Run, RunMeta)>> {
        let id = self.next_run.fetch_add(1, Ordering::SeqCst);
        self.runs.begun(id);
        files.push(id);
        let (vfs, dir) = (self.layout.vfs.clone(), self.layout.runs());
        let mut writer = RunWriter::create(vfs, &dir, id, entry.def.options.compression)?;
        match changes {
            Changes::Batch(batch) => batch.iter().try_for_each(|(key, op)| writer.add(key, op.value())),
            Changes::Spilled(writes) => writes.net(entry.id(), |key, written, _| writer.add(key, written.value())),
            Changes::Behind(..) => unreachable!("what comes behind ranges comes behind none"),
        }?;
        if writer.is_empty() {
            drop(writer);
            files.pop();
            self.runs.abandoned(&self.layout, id)?;
            return Ok(None);
        }
        let (only_deletes, content_bytes) = (writer.has_only_deletes(), writer.content_bytes());
        let meta = writer.finish()?;
        let run = self.open_run(&meta)?;
        if only_deletes {
            run.note_only_deletes();
        }
        run.note_content_bytes(content_bytes);
        Ok(Some((run, meta)))
    }

    /// Opens a run file.
    pub fn open_run(&self, meta: &RunMeta) -> base::Result<Run> {
        Run::open(&*self.layout.vfs, &self.layout.runs(), meta)
    }
}

/// The record, and its kind.
fn encode(shares: &[Share]) -> (u8, Vec<u8>) {
    let bytes: usize = shares.iter().map(|share| record::inline_bytes(&share.batch)).sum();
    let mut out = Vec::with_capacity(bytes);
    let ranged = shares.iter().filter(|share| !share.spans.is_empty());
    let ranges: Vec<_> = ranged.map(|share| (share.entry.id(), share.spans.as_slice())).collect();
    let kind = if ranges.is_empty() { record::KIND_COMMIT } else { record::KIND_COMMIT_RANGED };
    if !ranges.is_empty() {
        record::put_ranges(&mut out, &ranges);
    }
    record::begin(&mut out, shares.len());
    for share in shares {
        match &share.how {
            How::FileRun(_, meta) => record::put_run(&mut out, share.entry.id(), meta),
            How::Direct(_) | How::MemoryRun(_) => record::put_inline(&mut out, share.entry.id(), &share.batch),
            How::Planned | How::ToAttach => unreachable!("reserved before"),
        }
    }
    (kind, out)
}
