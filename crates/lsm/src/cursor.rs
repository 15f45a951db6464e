//! Range reads: every source that concerns the reader, merged.
//!
//! A cursor at a snapshot keeps its list until that changes: all that its snapshot sees was in the list when it was taken, and a
//! newer list lets go of what was merged away. A reader of the newest begins anew from where it stands at each call, so that it sees
//! what was applied since.
//!
//! A cursor that skips damage leaves out, in the ranges that its sources passed over, what is not known to be the newest.

use std::ops::Bound;
use std::sync::Arc;

use base::{CommitTs, Result};
use index::merge::{Merge, Source, Tombstones};
use index::{Cursor, Direction, EntryBatch, KeyRange, ReadAt, Skips};

use crate::lsm::Core;
use crate::source::{AttachedSource, Look, MemtableSource, RunSource};

/// A cursor over one index.
pub(crate) struct LsmCursor {
    /// Its range is what is left.
    look: Look,
    is_newest: bool,
    merged: Option<(u64, Merge<Box<dyn Source>>)>,
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
        Self { look, is_newest: at == ReadAt::Newest, merged: None, is_done }
    }

    fn merge(&mut self) {
        let look = &self.look;
        let sources = look.core.sources();
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
        for run in sources.runs.iter().filter(|run| run.info.oldest <= look.at) {
            if !look.range.is_above(&run.info.min_key) && !look.range.is_below(&run.info.max_key) {
                all.push(Box::new(RunSource::new(look.clone(), run.clone())));
            }
        }
        self.merged = Some((sources.edition, Merge::new(look.direction, Tombstones::Hide, all)));
    }
}

impl Cursor for LsmCursor {
    fn skip_damaged(&mut self, skips: Skips) {
        self.look.skips = Some(skips);
        self.merged = None;
    }

    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        out.clear();
        if self.is_done {
            return Ok(false);
        }
        let is_old = |edition: u64| self.is_newest || edition != self.look.core.sources.read().edition;
        if self.merged.as_ref().is_none_or(|(edition, _)| is_old(*edition)) {
            self.merge();
        }
        let (_, merge) = self.merged.as_mut().expect("just made");
        let more = match merge.fill(out, max.max(1)) {
            Ok(more) => more,
            Err(fault) => {
                // Its heads may be wrong now; the range has not moved.
                self.merged = None;
                out.clear();
                return Err(fault);
            }
        };
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
        Ok(more)
    }
}
