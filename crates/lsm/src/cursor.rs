//! Range reads: every source that concerns the reader, merged.
//!
//! A cursor at a snapshot goes on with what it has begun until the list changes: all that its snapshot sees was in the list when it was
//! taken. Between two calls the list keeps what was begun ([`Parked`](crate::parked::Parked)), so that a cursor that nobody moves holds nothing.
//! A reader of the newest begins anew from where it stands at each call, so that it sees what was applied since.
//!
//! A cursor that skips damage leaves out, in the ranges that its sources passed over, what is not known to be the newest.

use std::ops::Bound;
use std::sync::{Arc, Weak};

use base::checksum::crc32c;
use base::{CommitTs, Result};
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
    is_done: bool,
}

/// The timestamp at which a reader looks.
pub(crate) fn moment(at: ReadAt) -> CommitTs {
    match at {
        ReadAt::Snapshot(ts) => ts,
        ReadAt::Newest => CommitTs::MAX,
    }
}

impl LsmCursor {
    pub fn new(core: Arc<Core>, at: ReadAt, range: KeyRange, direction: Direction) -> Self {
        let is_done = range.is_empty();
        let look = Look { core, at: moment(at), range, direction, skips: None };
        Self { look, is_newest: at == ReadAt::Newest, parked: None, is_done }
    }

    fn drop_parked(&mut self) {
        let parked = self.parked.take().and_then(|(list, ticket)| list.upgrade()?.parked.take(ticket));
        drop(parked);
    }

    /// What was begun on this list, or a beginning from where the cursor stands.
    fn go_on(&mut self, sources: &Arc<Sources>) -> Begun {
        self.unpark(sources).filter(|_| !self.is_newest).unwrap_or_else(|| self.begin(sources))
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

    fn begin(&self, sources: &Sources) -> Begun {
        let look = &self.look;
        let mut all: Vec<Box<dyn Source>> = Vec::new();
        for table in sources.memtables().filter(|table| table.oldest() <= look.at) {
            all.push(Box::new(MemtableSource::new(look.clone(), table.clone())));
        }
        for attached in sources.attached.iter().filter(|attached| attached.ts <= look.at) {
            let is_apart =
                attached.run.key_range().is_none_or(|(min, max)| look.range.is_above(min) || look.range.is_below(max));
            if !is_apart {
                all.push(Box::new(AttachedSource::new(look.clone(), attached.clone())));
            }
        }
        for strand in &sources.strands {
            let source = StrandSource::new(look.clone(), strand);
            if !source.is_empty() {
                all.push(Box::new(source));
            }
        }
        Merge::new(look.direction, Tombstones::Hide, all)
    }
}

impl Cursor for LsmCursor {
    fn skip_damaged(&mut self, skips: Skips) {
        self.look.skips = Some(skips);
        self.drop_parked();
    }

    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        out.clear();
        if self.is_done {
            return Ok(false);
        }
        let sources = self.look.core.sources();
        let mut merge = self.go_on(&sources);
        // After a fault its heads may be wrong; the range has not moved.
        let more = merge.fill(out, max.max(1)).inspect_err(|_| out.clear())?;
        vfs::thread::point("lsm.cursor_filled");
        if let Some(passed) = merge.last_key() {
            let passed = Bound::Excluded(passed.to_vec());
            match self.look.direction {
                Direction::Forward => self.look.range.low = passed,
                Direction::Backward => self.look.range.high = passed,
            }
        }
        if let Some(skips) = self.look.skips.as_ref().filter(|skips| !skips.is_empty()) {
            out.retain(|key, ts| !skips.hides(key, ts));
        }
        self.is_done = !more;
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
