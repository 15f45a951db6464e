//! Who learns that a range of keys is dead ([`dead`](crate::dead)), and when.
//!
//! - *Who deletes.* A commit that only deletes, and not few, leaves a hint; he follows it before his reply ([`Core::clear_away`]): his own, and no
//!   further than a few entries for each of his deletes, so that what others left is no part of his commit. What he leaves
//!   upkeep follows. So the first read behind a mass delete finds the span there. Hints are in memory only, and a replay of the log
//!   leaves none but those of runs that it attaches: it applies commits one operation at a time. Readers learn then.
//! - *Who reads.* A cursor that has passed over many deleted keys in a row looks whether everybody would, so that the next one need not.
//!
//! Both go through the range once, key by key, in pieces: a piece has a watch of its own and what it finds is learned at once, so that a put
//! somewhere in the range costs no more than the piece it falls into. What is known to be dead is hopped over and ends a piece: a span
//! says nothing but what its learner has seen. Keys and timestamps are all that is looked at: no value is read for it.
//!
//! What has expired for who reads the newest is as a delete, for all who read from there on where that cut holds: a span says so by its moment.
//!
//! Where merges have dropped all that lay in a span it spares nobody anything: upkeep finds those with one look each, and forgets them
//! ([`Core::forget_hollow`]). That is always right: what no span says is gone through.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{CommitTs, Result};
use index::damaged::just_above;
use index::merge::Tombstones;
use index::{Batch, Direction, EntryBatch, IndexOptions, KeyRange, ReadAt};

use crate::cursor::begin;
use crate::dead::{Hint, Span};
use crate::lsm::{Attached, Core};
use crate::source::Look;

/// Entries of a piece, at most.
const PIECE_ENTRIES: u64 = 4096;
/// Entries read at once: few at first, since much may be alive there, and twice as many each time while all is dead.
const FILL_ENTRIES_FIRST: usize = 8;
const FILL_ENTRIES_MAX: usize = 256;
/// What a beginning costs, in entries.
const BEGIN_ENTRIES: u64 = 32;
/// Keys with a value, and little that is dead before each, that are met before it is given up: much is alive there.
const LIVE_MAX: u32 = 2;
/// Entries that a committer goes through, for each that he has deleted: the delete, what it deleted, and some that is older or beside.
const LOOKS_PER_DELETE: u64 = 4;

/// What ends a piece.
enum End {
    /// This key has a value.
    Live(Vec<u8>),
    /// Below this key everything was seen, or is known to be dead.
    Paused(Vec<u8>),
    /// The range.
    Range,
}

/// What was seen of a piece.
struct Piece {
    /// Deletes before its end.
    dead: u64,
    /// Entries that were read.
    read: u64,
    end: End,
}

fn dead_row(options: &IndexOptions) -> u64 {
    let kibibytes = options.node_bytes as u64 >> 10;
    (2 * kibibytes * kibibytes).clamp(4, 512)
}

/// A span that spares fewer entries is neither learned nor kept.
pub(crate) fn worth_min(options: &IndexOptions) -> u64 {
    dead_row(options) / 32 + 1
}

impl Core {
    /// Deleted keys in a row that are worth a span: 512, and few with the small blocks of tests.
    pub(crate) fn dead_row(&self) -> u64 {
        dead_row(&self.env.options)
    }

    /// A commit is applied: one of many deletes and nothing else leaves a hint.
    pub(crate) fn note_applied(&self, batch: &Batch, ts: CommitTs) {
        if self.is_desert(batch) {
            let (low, last) = (batch.key(0).to_vec(), batch.key(batch.len() - 1).to_vec());
            self.dead.hint(Hint { low, last, ts, deletes: batch.len() as u64 });
        }
        let is_put = |i: &usize| batch.op(*i).value().is_some();
        self.dead.note_puts((0..batch.len()).filter(is_put).map(|i| batch.key(i)));
    }

    /// True if it deletes so much, and nothing else, that readers would notice.
    pub(crate) fn is_desert(&self, batch: &Batch) -> bool {
        batch.len() as u64 >= (self.dead_row() / 8).max(2) && batch.iter().all(|(_, op)| op.value().is_none())
    }

    /// The same of a run that is attached, and in the list.
    pub(crate) fn note_attached(&self, Attached { run, ts }: &Attached) {
        let Some((min, max)) = run.key_range() else { return };
        if run.has_only_deletes() {
            self.dead.hint(Hint { low: min.to_vec(), last: max.to_vec(), ts: *ts, deletes: run.len() });
        } else {
            self.dead.note_range(min, max);
        }
    }

    /// Follows the hint of the commit at `ts`, as far as what it deleted is worth, and `entries` deletes at most. Returns how many
    /// entries were looked at.
    pub(crate) fn clear_away(self: &Arc<Self>, ts: CommitTs, entries: u64) -> Result<u64> {
        let Some(hint) = self.dead.take_hint_of(ts) else { return Ok(0) };
        let most = hint.deletes.min(entries).saturating_mul(LOOKS_PER_DELETE);
        self.follow(hint, most)
    }

    /// One step of upkeep: hints, whoever left them; none if there is no hint.
    pub(crate) fn follow_hint(self: &Arc<Self>) -> Result<u64> {
        let mut looked = 0;
        while looked < PIECE_ENTRIES
            && let Some(hint) = self.dead.take_hint()
        {
            looked += self.follow(hint, PIECE_ENTRIES - looked)?;
        }
        Ok(looked)
    }

    /// Goes through what a hint names until so many entries were looked at; what is left of it is a hint again.
    fn follow(self: &Arc<Self>, Hint { low, last, ts, deletes }: Hint, most: u64) -> Result<u64> {
        let (looked, rest) = self.explore(low, None, Some(&last), most)?;
        if let Some(low) = rest.filter(|low| *low <= last) {
            self.dead.hint_again(Hint { low, last, ts, deletes });
        }
        Ok(looked)
    }

    /// Looks whether anything still lies in a span that was not looked at since a merge that may have dropped that, and forgets it if not. Returns how many entries that cost,
    /// about; none if there is no such span.
    pub(crate) fn forget_hollow(self: &Arc<Self>) -> Result<u64> {
        let purges = self.purges.load(Ordering::Acquire);
        let Some(span) = self.dead.next_unlooked(purges) else { return Ok(0) };
        let high = span.high.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let range = KeyRange { low: Bound::Included(span.low.clone()), high };
        let sources = self.sources();
        let mut merge = begin(&self.look(range), &sources, Tombstones::Show);
        let mut out = EntryBatch::new();
        let mut more = true;
        while more && out.is_empty() {
            more = merge.fill(&mut out, 1)?;
        }
        if out.is_empty() {
            self.dead.forget(&span);
        }
        Ok(BEGIN_ENTRIES)
    }

    /// The newest versions of a range, and of these no values.
    pub(crate) fn look(self: &Arc<Self>, range: KeyRange) -> Look {
        Look {
            core: self.clone(),
            at: CommitTs::MAX,
            cut: self.cut(ReadAt::Newest),
            range,
            direction: Direction::Forward,
            skips: None,
            keys_only: true,
        }
    }

    /// Learns what is dead from `from` on, up to `to`, or to the first key with a value behind `last`. Returns how many entries were looked at,
    /// about, and where it would go on if that is not all.
    pub(crate) fn explore(
        self: &Arc<Self>,
        mut from: Vec<u8>,
        to: Option<&[u8]>,
        last: Option<&[u8]>,
        most: u64,
    ) -> Result<(u64, Option<Vec<u8>>)> {
        let (mut looked, mut live) = (0, 0);
        loop {
            match self.dead.behind(&from, CommitTs::MAX) {
                Some(Some(behind)) => from = behind,
                Some(None) => return Ok((looked, None)),
                None => {}
            }
            if to.is_some_and(|to| from.as_slice() >= to) {
                return Ok((looked, None));
            }
            if looked >= most {
                return Ok((looked, Some(from)));
            }
            let Piece { dead, read, end } = self.explore_piece(&from, to, PIECE_ENTRIES.min(most - looked))?;
            looked += read + BEGIN_ENTRIES;
            live = if dead >= worth_min(&self.env.options) { 0 } else { live + 1 };
            from = match end {
                End::Range => return Ok((looked, None)),
                End::Live(key) if live >= LIVE_MAX || last.is_some_and(|last| key.as_slice() > last) => {
                    return Ok((looked, None));
                }
                End::Live(key) => just_above(&key),
                End::Paused(at) => at,
            };
        }
    }

    fn explore_piece(self: &Arc<Self>, from: &[u8], to: Option<&[u8]>, most: u64) -> Result<Piece> {
        let watch = self.dead.watch(from);
        vfs::thread::point("lsm.dead_watched");
        // Behind the watch.
        let sources = self.sources();
        let range = KeyRange {
            low: Bound::Included(from.to_vec()),
            high: to.map_or(Bound::Unbounded, |to| Bound::Excluded(to.to_vec())),
        };
        // The newest versions: whoever reads from the newest of these deletes on, and from where what has expired here has for him, sees the same.
        let (expired_from, cut) = self.env.expiry.as_ref().map(|expiry| expiry.newest()).unwrap_or_default();
        let mut merge = begin(&Look { cut, ..self.look(range) }, &sources, Tombstones::Show);
        let (mut out, mut seen, mut newest) = (EntryBatch::new(), 0, expired_from);
        let (mut read, mut fill) = (0, FILL_ENTRIES_FIRST);
        // Just above the last delete.
        let mut at = from.to_vec();
        let end = loop {
            let more = merge.fill(&mut out, fill)?;
            read += out.len() as u64;
            fill = (2 * fill).min(FILL_ENTRIES_MAX);
            let alive = out.iter().position(|(_, value, _)| value.is_some());
            let dead = alive.unwrap_or(out.len());
            seen += dead as u64;
            newest = (0..dead).map(|i| out.ts(i)).fold(newest, CommitTs::max);
            if let Some(last) = dead.checked_sub(1) {
                at = just_above(out.key(last));
            }
            if let Some(live) = alive {
                break End::Live(out.key(live).to_vec());
            }
            if !more {
                break End::Range;
            }
            // What is known is not gone through. Of one source the merge counts nothing; older versions it does.
            if merge.looked().max(read) >= most || self.dead.has(&at) {
                break End::Paused(at.clone());
            }
        };
        vfs::thread::point("lsm.dead_seen");
        let read = merge.looked().max(read);
        self.counters.add_passed(read);
        let high = match &end {
            End::Live(key) | End::Paused(key) => Some(key.clone()),
            End::Range => to.map(<[u8]>::to_vec),
        };
        if seen >= worth_min(&self.env.options) {
            self.dead.learn(watch, Span { low: from.to_vec(), high, from: newest, worth: seen }, &at);
        }
        Ok(Piece { dead: seen, read, end })
    }
}
