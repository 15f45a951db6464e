//! Range reads: every source that concerns the reader, merged.
//!
//! A cursor at a snapshot goes on with what it has begun until the list changes: all that its snapshot sees was in the list when it was
//! taken. Between two calls the list keeps what was begun ([`Parked`](crate::parked::Parked)), so that a cursor that nobody moves holds nothing.
//! A reader of the newest begins anew from where it stands at each call, so that it sees what was applied since.
//!
//! What has expired for the reader ([`index::expiry`]) is a delete to him, and what has nothing else is no source of his.
//!
//! What is known to be dead is hopped over ([`dead`](crate::dead)); a cursor that passes over many deleted keys in a row finds that out for the next one.
//!
//! A cursor that skips damage leaves out, in the ranges that its sources passed over, what is not known to be the newest.

use std::ops::Bound;
use std::sync::{Arc, Weak};

use base::checksum::crc32c;
use base::{CommitTs, Result};
use index::damaged::just_above;
use index::expiry::has_expired;
use index::merge::{Merge, Source, Tombstones};
use index::{Cursor, Direction, EntryBatch, KeyRange, ReadAt, Skips};

use crate::lsm::{Core, Sources};
use crate::parked::{Begun, Ticket};
use crate::source::{AttachedSource, Look, MemtableSource, StrandSource};

/// A cursor over one index.
pub(crate) struct LsmCursor {
    /// Its range is what is left.
    look: Look,
    is_newest: bool,
    parked: Option<(Weak<Sources>, Ticket)>,
    row: Option<Row>,
    /// It has hopped, and found nothing since.
    is_hopping: bool,
    is_done: bool,
}

/// Deleted keys that a cursor passes over, one behind the other.
struct Row {
    /// Where it was when that began, as the bound on the side that it comes from.
    from: Bound<Vec<u8>>,
    passed: u64,
}

/// The timestamp at which a reader looks.
pub(crate) fn moment(at: ReadAt) -> CommitTs {
    match at {
        ReadAt::Snapshot(ts) => ts,
        ReadAt::Newest => CommitTs::MAX,
    }
}

/// What a reader sees of all sources that concern him.
pub(crate) fn begin(look: &Look, sources: &Sources, tombstones: Tombstones) -> Begun {
    let look = Arc::new(look.clone());
    let mut all: Vec<Box<dyn Source>> = Vec::new();
    for table in sources.memtables().filter(|table| table.oldest() <= look.at && !has_expired(table.newest(), look.cut))
    {
        all.push(Box::new(MemtableSource::new(look.clone(), table.clone())));
    }
    for attached in
        sources.attached.iter().filter(|attached| attached.ts <= look.at && !has_expired(attached.ts, look.cut))
    {
        let is_apart =
            attached.run.key_range().is_none_or(|(min, max)| look.range.is_above(min) || look.range.is_below(max));
        if !is_apart {
            all.push(Box::new(AttachedSource::new(look.clone(), attached.clone())));
        }
    }
    let beside = all.len();
    for strand in &sources.strands {
        let source = StrandSource::new(look.clone(), strand);
        if !source.is_empty() {
            all.push(Box::new(source));
        }
    }
    look.core.counters.count_range(all.len() - beside);
    Merge::new(look.direction, tombstones, all)
}

impl LsmCursor {
    pub fn new(core: Arc<Core>, at: ReadAt, range: KeyRange, direction: Direction) -> Self {
        let is_done = range.is_empty();
        let cut = core.cut(at);
        let look = Look { core, at: moment(at), cut, range, direction, skips: None, keys_only: false };
        Self { look, is_newest: at == ReadAt::Newest, parked: None, row: None, is_hopping: false, is_done }
    }

    fn drop_parked(&mut self) {
        let parked = self.parked.take().and_then(|(list, ticket)| list.upgrade()?.parked.take(ticket));
        drop(parked);
    }

    /// What was begun on this list, or a beginning from where the cursor stands.
    fn go_on(&mut self, sources: &Arc<Sources>) -> Begun {
        let begun = self.unpark(sources).filter(|_| !self.is_newest);
        if self.is_newest {
            self.look.cut = self.look.core.cut(ReadAt::Newest);
        }
        begun.unwrap_or_else(|| begin(&self.look, sources, Tombstones::Hide))
    }

    /// What was begun, if it was on this list.
    fn unpark(&mut self, sources: &Arc<Sources>) -> Option<Begun> {
        let (list, ticket) = self.parked.take()?;
        let list = list.upgrade()?;
        let begun = list.parked.take(ticket)?;
        Arc::ptr_eq(&list, sources).then_some(begun)
    }

    fn park(&mut self, sources: &Arc<Sources>, begun: Begun) {
        if self.is_newest {
            return;
        }
        let hint = match &self.look.range.low {
            Bound::Included(low) | Bound::Excluded(low) => u64::from(crc32c(low)),
            Bound::Unbounded => 0,
        };
        self.parked = Some((Arc::downgrade(sources), sources.parked.put(hint, begun)));
    }

    /// The bound on the side that it comes from: where it stands.
    fn stands(&mut self) -> &mut Bound<Vec<u8>> {
        match self.look.direction {
            Direction::Forward => &mut self.look.range.low,
            Direction::Backward => &mut self.look.range.high,
        }
    }

    /// Moves on; returns where it stood.
    fn move_to(&mut self, bound: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
        std::mem::replace(self.stands(), bound)
    }

    /// Hops over what is dead where it stands. Who passes over what is damaged passes over everything himself.
    fn hop(&mut self) {
        if self.look.skips.is_some() {
            return;
        }
        let (dead, at) = (&self.look.core.dead, self.look.at);
        let to = match self.look.direction {
            Direction::Forward => match dead.behind(&first_key(&self.look.range.low), at) {
                None => return,
                Some(behind) => behind.map(Bound::Included),
            },
            Direction::Backward => match dead.below(&self.look.range.high, at) {
                None => return,
                Some(low) => Some(Bound::Excluded(low)),
            },
        };
        self.drop_parked();
        self.is_hopping = true;
        let Some(to) = to else {
            self.is_done = true;
            return;
        };
        let from = self.move_to(to);
        self.row.get_or_insert(Row { from, passed: 0 }).passed += HOP_ENTRIES;
        self.is_done = self.look.range.is_empty();
    }

    /// A call has passed over `looked` entries from `from` on, and gave out what is in `out`. If there were many in a row, others need not do
    /// that again.
    fn note_passed(&mut self, from: Option<Bound<Vec<u8>>>, looked: u64, out: &EntryBatch) {
        let core = self.look.core.clone();
        core.counters.add_passed(looked.saturating_sub(out.len() as u64));
        if self.look.skips.is_some() {
            return;
        }
        if out.is_empty()
            && let Some(from) = from
        {
            self.row.get_or_insert(Row { from, passed: 0 }).passed += looked;
        }
        let enough = core.dead_row();
        let is_over = !out.is_empty() || self.is_done;
        let enough = if is_over { enough } else { 8 * enough };
        if self.row.as_ref().is_none_or(|row| row.passed < enough) {
            if is_over {
                self.row = None;
            }
            return;
        }
        let row = self.row.take().expect("just looked at");
        // Up to what is given out now, all of the range that is left, or with the last key that was passed.
        let end = if out.is_empty() { None } else { Some(out.key(0).to_vec()) };
        let (low, high) = match (self.look.direction, end, self.is_done) {
            (Direction::Forward, Some(given), _) => (first_key(&row.from), Some(given)),
            (Direction::Forward, None, true) => (first_key(&row.from), past_key(&self.look.range.high)),
            (Direction::Forward, None, false) => (first_key(&row.from), Some(first_key(&self.look.range.low))),
            (Direction::Backward, Some(given), _) => (just_above(&given), past_key(&row.from)),
            (Direction::Backward, None, true) => (first_key(&self.look.range.low), past_key(&row.from)),
            (Direction::Backward, None, false) => match &self.look.range.high {
                Bound::Included(passed) | Bound::Excluded(passed) => (passed.clone(), past_key(&row.from)),
                Bound::Unbounded => return,
            },
        };
        // What fails here the reader has met himself, or others will.
        let _ = core.explore(low, high.as_deref(), None, 2 * row.passed + EXPLORED_MIN);
    }
}

/// What is asked for between two hops.
const HOPPING_ENTRIES: usize = 8;
/// A hop, as entries passed over: about what a new beginning costs.
const HOP_ENTRIES: u64 = 16;
/// Entries that are looked at again, at least, beside twice those that a reader has passed over: older versions are among these.
const EXPLORED_MIN: u64 = 256;

/// The first key that a lower bound lets in.
fn first_key(low: &Bound<Vec<u8>>) -> Vec<u8> {
    match low {
        Bound::Unbounded => Vec::new(),
        Bound::Included(key) => key.clone(),
        Bound::Excluded(key) => just_above(key),
    }
}

/// The key below which an upper bound lets everything in; none if that is everything.
fn past_key(high: &Bound<Vec<u8>>) -> Option<Vec<u8>> {
    match high {
        Bound::Unbounded => None,
        Bound::Excluded(key) => Some(key.clone()),
        Bound::Included(key) => Some(just_above(key)),
    }
}

impl Cursor for LsmCursor {
    fn skip_damaged(&mut self, skips: Skips) {
        self.look.skips = Some(skips);
        self.drop_parked();
    }

    fn keys_only(&mut self) {
        self.look.keys_only = true;
        self.drop_parked();
    }

    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        out.clear();
        self.is_done = self.is_done || {
            self.hop();
            self.is_done
        };
        if self.is_done {
            return Ok(false);
        }
        let sources = self.look.core.sources();
        let mut merge = self.go_on(&sources);
        let before = merge.looked();
        // After a fault its heads may be wrong; the range has not moved.
        // The next dead span may begin in a moment: a look around first.
        let max = if self.is_hopping { max.min(HOPPING_ENTRIES) } else { max };
        let more = merge.fill(out, max.max(1)).inspect_err(|_| out.clear())?;
        let looked = merge.looked() - before;
        vfs::thread::point("lsm.cursor_filled");
        let from = merge.last_key().map(|passed| Bound::Excluded(passed.to_vec())).map(|passed| self.move_to(passed));
        self.is_done = !more;
        self.is_hopping &= out.is_empty();
        self.note_passed(from, looked, out);
        if let Some(skips) = self.look.skips.as_ref().filter(|skips| !skips.is_empty()) {
            out.retain(|key, ts| !skips.hides(key, ts));
        }
        if more {
            self.park(&sources, merge);
        }
        Ok(more)
    }
}

impl Drop for LsmCursor {
    fn drop(&mut self) {
        self.drop_parked();
    }
}
