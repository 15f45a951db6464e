//! Range reads: the leaves, and the attached runs merged into them.
//!
//! Without runs a cursor is a [`LeafSource`]. With runs it merges the leaves, tombstones shown, with the runs, whose
//! list is taken before any leaf is read; what was merged counts only if no run was removed by then (see `runs`).

use std::ops::Bound;
use std::sync::Arc;

use base::{CommitTs, Result};
use index::merge::{Merge, Source, Tombstones};
use index::{Cursor, Direction, EntryBatch, KeyRange, ReadAt};
use store::RunCursor;

use crate::runs::Attached;
use crate::scan::{LeafSource, Stand};
use crate::tree::Hand;

/// A cursor over a tree.
pub(crate) struct TreeCursor {
    leaves: LeafSource,
    merged: Option<Merged>,
}

/// A cursor's merge with the runs of one moment.
struct Merged {
    merge: Merge<Box<dyn Source>>,
    runs: Vec<Arc<Attached>>,
    edition: u64,
}

impl TreeCursor {
    pub fn new(hand: Hand, at: ReadAt, range: KeyRange, direction: Direction) -> Self {
        Self { leaves: LeafSource { hand, stand: Stand::new(at, range, direction) }, merged: None }
    }

    /// Starts the merge with the runs of now, from where the cursor stands; none if there are no runs to see.
    #[cold]
    fn merge_runs(&mut self) {
        let Stand { at, direction, range, .. } = &self.leaves.stand;
        // The edition first: what is attached between the two is seen, and looked for again.
        let edition = self.leaves.hand.runs.edition();
        let runs = self.leaves.hand.runs.seen_at(*at);
        if runs.is_empty() {
            self.merged = None;
            return;
        }
        let mut stand = Stand::new(*at, range.clone(), *direction);
        stand.show_tombstones = true;
        let mut sources: Vec<Box<dyn Source>> = vec![Box::new(LeafSource { hand: self.leaves.hand.clone(), stand })];
        for run in &runs {
            let (cursor, range) = (run.run.cursor(), range.clone());
            sources.push(Box::new(RunSource { cursor, ts: run.ts, range, direction: *direction, started: false }));
        }
        let merge = Merge::new(*direction, Tombstones::Hide, sources);
        self.merged = Some(Merged { merge, runs, edition });
    }

    /// A reader of the newest takes up what was attached meanwhile; a snapshot's runs were attached before it was taken.
    fn is_merge_wanted(&self) -> bool {
        let runs = &self.leaves.hand.runs;
        match &self.merged {
            None => !runs.is_empty(),
            Some(merged) => self.leaves.stand.at == ReadAt::Newest && merged.edition != runs.edition(),
        }
    }
}

impl Cursor for TreeCursor {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        if self.is_merge_wanted() {
            self.merge_runs();
        }
        let mut wanted = max;
        loop {
            let Some(merged) = &mut self.merged else { return self.leaves.fill(out, max) };
            out.clear();
            let more = merged.merge.fill(out, wanted)?;
            vfs::thread::point("tree.merged");
            if !merged.runs.iter().any(|run| run.is_removed()) {
                if let Some(last) = out.len().checked_sub(1) {
                    self.leaves.stand.go_on_past(out.key(last));
                }
                return Ok(more);
            }
            // The leaves may have been collected without a run that they were merged with: once more from where the
            // cursor stands, and less at a time, so that an attempt ends before the next run is drained.
            wanted = (wanted / 4).max(1);
            self.merge_runs();
        }
    }
}

/// An attached run as a sorted source.
struct RunSource {
    cursor: RunCursor,
    ts: CommitTs,
    range: KeyRange,
    direction: Direction,
    started: bool,
}

impl RunSource {
    fn start(&mut self) -> Result<bool> {
        let Self { cursor, range, direction, .. } = self;
        match (direction, &range.low, &range.high) {
            (Direction::Forward, Bound::Unbounded, _) => cursor.seek_first(),
            (Direction::Forward, Bound::Included(key), _) => cursor.seek(key),
            (Direction::Forward, Bound::Excluded(key), _) => {
                Ok(cursor.seek(key)? && (cursor.key() != key.as_slice() || cursor.next()?))
            }
            (Direction::Backward, _, Bound::Unbounded) => cursor.seek_last(),
            (Direction::Backward, _, Bound::Excluded(key)) => cursor.seek_before(key),
            (Direction::Backward, _, Bound::Included(key)) => {
                Ok((cursor.seek(key)? && cursor.key() == key.as_slice()) || cursor.seek_before(key)?)
            }
        }
    }
}

impl Source for RunSource {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        out.clear();
        let mut there = if self.started { self.cursor.is_valid() } else { self.start()? };
        self.started = true;
        while there && out.len() < max {
            let past = match self.direction {
                Direction::Forward => self.range.is_above(self.cursor.key()),
                Direction::Backward => self.range.is_below(self.cursor.key()),
            };
            if past {
                return Ok(false);
            }
            out.push_any(self.cursor.key(), self.cursor.value()?.as_deref(), self.ts);
            there = match self.direction {
                Direction::Forward => self.cursor.next()?,
                Direction::Backward => self.cursor.prev()?,
            };
        }
        Ok(there)
    }
}
