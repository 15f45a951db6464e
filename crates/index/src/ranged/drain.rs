//! From deleted ranges to deletes of keys, a piece at a time.
//!
//! The oldest range first. It is read from the structure as of its timestamp, with what it hides: each entry that is older than the range, and
//! not gone by another one, becomes a delete in a run file. The file is attached at the range's timestamp; then the range begins behind it.
//!
//! What is older than the range and was collected meanwhile, nobody can see. A version of the commit itself is there
//! (it is not collected while the range is listed), and shows that its key is not to be deleted.
//!
//! A step that fails gives up the file under way, and the next one begins anew where the range begins.

use std::sync::atomic::Ordering;

use base::{CommitTs, Result};
use store::run::RunWriter;

use super::Ranged;
use super::list::Deleted;
use crate::damaged::just_above;
use crate::{Cursor, Direction, EntryBatch, ReadAt, Span, Upkeep};

/// Entries looked at in one step.
const STEP_ENTRIES: usize = 512;
/// Deletes in a file, at most.
const FILE_ENTRIES: u64 = 1 << 18;
/// Bytes of their keys; the one that passes it is the last. Of a disk that has only its reserve left a file takes little: it is what gives space back.
const FILE_BYTES: usize = 16 << 20;
const FILE_BYTES_TIGHT: usize = 1 << 20;
/// No range is begun while the structure has so many runs attached.
const RUNS_MAX: u64 = 4;
/// Deletes that are brought to where nobody passes over them before the range is not listed any more.
const CLEARED_ENTRIES: u64 = 1 << 14;
/// Ranges that are listed only for those who hop.
const HOPPED_MAX: usize = 64;

/// A range under way.
pub(super) struct Drain {
    ts: CommitTs,
    span: Span,
    entries: Box<dyn Cursor>,
    batch: EntryBatch,
    file: Option<(u64, RunWriter)>,
    written: u64,
    bytes: usize,
    /// Everything below is looked at.
    up_to: Vec<u8>,
}

impl Ranged {
    /// A piece of the oldest range that can be drained. None if there is none.
    pub(super) fn drain_some(&self, upkeep: &Upkeep<'_>) -> Result<Option<u64>> {
        let mut under_way = self.drain.lock();
        if !self.is_ready.load(Ordering::Acquire) {
            return Ok(None);
        }
        if under_way.is_none() {
            self.forget_hopped();
            let list = self.shared.list();
            let can_go = |ts: CommitTs| ts.as_lsn() <= upkeep.applied.min(upkeep.log.durable());
            let Some(oldest) = list.pending().next().filter(|oldest| can_go(oldest.ts)) else { return Ok(None) };
            if self.shared.inner.stats().runs >= RUNS_MAX {
                return Ok(None);
            }
            *under_way = Some(self.begin(oldest));
        }
        let drain = under_way.as_mut().expect("just begun");
        match self.step(drain, upkeep) {
            Ok((seen, is_done)) => {
                if is_done {
                    *under_way = None;
                }
                Ok(Some(seen.max(1)))
            }
            Err(fault) => {
                self.give_up(under_way.take());
                Err(fault)
            }
        }
    }

    fn begin(&self, Deleted { span, ts, .. }: &Deleted) -> Drain {
        let mut entries = self.shared.inner.cursor(ReadAt::Snapshot(*ts), span.bounds(), Direction::Forward);
        // A large value goes with its key, whether it can be read or not.
        entries.keys_only();
        Drain {
            ts: *ts,
            span: span.clone(),
            entries,
            batch: EntryBatch::new(),
            file: None,
            written: 0,
            bytes: 0,
            up_to: span.low.clone(),
        }
    }

    /// Entries looked at, and whether the range, or a file's worth of it, is done.
    fn step(&self, drain: &mut Drain, upkeep: &Upkeep<'_>) -> Result<(u64, bool)> {
        let more = drain.entries.fill(&mut drain.batch, STEP_ENTRIES)?;
        for i in 0..drain.batch.len() {
            if drain.batch.ts(i) >= drain.ts {
                continue;
            }
            if drain.file.is_none() {
                drain.file = Some(self.runs.create()?);
            }
            let (_, writer) = drain.file.as_mut().expect("just made");
            writer.add(drain.batch.key(i), None)?;
            drain.written += 1;
            drain.bytes += drain.batch.key(i).len();
        }
        let seen = drain.batch.len();
        if seen > 0 {
            drain.up_to = just_above(drain.batch.key(seen - 1));
        }
        let bytes_max = if upkeep.tight { FILE_BYTES_TIGHT } else { FILE_BYTES };
        let is_done = !more || drain.written >= FILE_ENTRIES || drain.bytes >= bytes_max;
        if is_done {
            self.attach_drained(drain, upkeep)?;
            self.shrink(drain, more);
        }
        Ok((seen as u64, is_done))
    }

    fn attach_drained(&self, drain: &mut Drain, upkeep: &Upkeep<'_>) -> Result<()> {
        let Some((id, writer)) = drain.file.take() else { return Ok(()) };
        let content_bytes = writer.content_bytes();
        let opened = writer.finish().and_then(|meta| self.runs.open(&meta));
        let run = match opened {
            Ok(run) => run,
            Err(fault) => {
                // What cannot be removed now, the next open removes.
                drop(self.runs.abandoned(id));
                return Err(fault);
            }
        };
        run.note_only_deletes();
        run.note_content_bytes(content_bytes);
        vfs::thread::point("ranged.drained");
        self.shared.inner.attach(run, drain.ts);
        self.runs.attached(id);
        vfs::thread::point("ranged.attached");
        // What fails here upkeep meets again.
        let _ = self.shared.inner.clear_away(upkeep, drain.ts, CLEARED_ENTRIES);
        Ok(())
    }

    /// The structure has the deletes of the range up to where the drain has come.
    fn shrink(&self, drain: &Drain, more: bool) {
        self.shared.update(|all| {
            let is_it = |other: &Deleted| other.ts == drain.ts && other.span == drain.span && !other.is_drained;
            let Some(at) = all.iter().position(is_it) else { return };
            let mut done = all.remove(at);
            let rest = Span { low: drain.up_to.clone(), high: done.span.high.clone() };
            if more && !rest.is_empty() {
                all.push(Deleted { span: rest, ..done.clone() });
                done.span.high = Some(drain.up_to.clone());
            }
            if !done.is_known || done.span.is_empty() {
                return;
            }
            // One piece behind the other stays one range.
            let is_before = |other: &&mut Deleted| {
                other.is_drained
                    && other.is_known
                    && other.ts == done.ts
                    && other.span.high.as_ref() == Some(&done.span.low)
            };
            match all.iter_mut().find(is_before) {
                Some(before) => before.span.high = done.span.high,
                None => all.push(Deleted { is_drained: true, ..done }),
            }
        });
    }

    /// Once the structure has drained its runs, its readers hop by themselves.
    fn forget_hopped(&self) {
        let list = self.shared.list();
        let hopped = list.all.iter().filter(|deleted| deleted.is_drained).count();
        if hopped > 0 && (hopped > HOPPED_MAX || self.shared.inner.stats().runs == 0) {
            self.shared.update(|all| all.retain(|deleted| !deleted.is_drained));
        }
    }

    fn give_up(&self, drain: Option<Drain>) {
        if let Some((id, writer)) = drain.and_then(|drain| drain.file) {
            drop(writer);
            drop(self.runs.abandoned(id));
        }
    }

    /// The index goes.
    pub(super) fn abandon_drain(&self) {
        let mut under_way = self.drain.lock();
        // Nobody begins another one.
        self.is_ready.store(false, Ordering::Release);
        let drain = under_way.take();
        drop(under_way);
        self.give_up(drain);
    }
}
