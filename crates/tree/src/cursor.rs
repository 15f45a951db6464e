//! Range reads: the leaves, and the attached runs merged into them.
//!
//! Without runs a cursor is a [`LeafSource`]. With runs it merges the leaves, tombstones shown, with the runs, whose
//! list is taken before any leaf is read; what was merged counts only if no run was removed by then (see `runs`). What
//! of a run was drained by then is in the leaves, and is not read in the run: a drain goes forward, so behind a mass delete
//! there is soon nothing left to pass over.
//!
//! A cursor that skips damage leaves out, in the ranges that its sources passed over, what is not known to be the newest.
//! It knows in time: a merge gives out a key when every source stands beyond it.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;

use base::{CommitTs, Fault, IndexId, Result};
use index::damaged::just_above;
use index::merge::{Merge, Source, Tombstones};
use index::{Cursor, DamagedRange, Direction, EntryBatch, KeyRange, ReadAt, Skips};
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
        let Stand { at, direction, range, skips, keys_only, .. } = &self.leaves.stand;
        // The edition first: what is attached between the two is seen, and looked for again.
        let edition = self.leaves.hand.runs.edition();
        let mut runs = self.leaves.hand.runs.seen_at(*at);
        let mut ranges = Vec::new();
        runs.retain(|run| run.left_of(range).map(|left| ranges.push(left)).is_some());
        if runs.is_empty() {
            self.merged = None;
            return;
        }
        let mut stand = Stand::new(*at, range.clone(), *direction);
        stand.show_tombstones = true;
        let with_puts = runs.iter().filter(|run| !run.run.has_only_deletes()).map(|run| run.ts);
        stand.needed_above = with_puts.min().unwrap_or(CommitTs::MAX);
        stand.skips = skips.clone();
        stand.keys_only = *keys_only;
        let mut sources: Vec<Box<dyn Source>> = vec![Box::new(LeafSource { hand: self.leaves.hand.clone(), stand })];
        for (run, range) in runs.iter().zip(ranges) {
            sources.push(Box::new(RunSource::new(run, range, &self.leaves)));
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
    fn skip_damaged(&mut self, skips: Skips) {
        self.leaves.stand.skips = Some(skips);
    }

    fn keys_only(&mut self) {
        self.leaves.stand.keys_only = true;
    }

    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        if self.is_merge_wanted() {
            self.merge_runs();
        }
        let mut wanted = max;
        loop {
            let Some(merged) = &mut self.merged else { return self.leaves.fill(out, max) };
            out.clear();
            let more = match merged.merge.fill(out, wanted) {
                Ok(more) => more,
                Err(fault) => {
                    // Its heads may be wrong now; where the leaves stand has not moved.
                    self.merged = None;
                    out.clear();
                    return Err(fault);
                }
            };
            vfs::thread::point("tree.merged");
            let last = out.len().checked_sub(1).map(|last| out.key(last).to_vec());
            if let Some(skips) = self.leaves.stand.skips.as_ref().filter(|skips| !skips.is_empty()) {
                out.retain(|key, ts| !skips.hides(key, ts));
            }
            if !merged.runs.iter().any(|run| run.is_removed()) {
                if let Some(last) = last {
                    self.leaves.stand.go_on_past(&last);
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
    index: IndexId,
    ts: CommitTs,
    /// First and last key of the run.
    ends: (Vec<u8>, Vec<u8>),
    range: KeyRange,
    direction: Direction,
    skips: Option<Skips>,
    keys_only: bool,
    started: bool,
    /// The last key given out, or passed over.
    key: Option<Vec<u8>>,
}

impl RunSource {
    fn new(run: &Attached, range: KeyRange, leaves: &LeafSource) -> Self {
        let (min, max) = run.run.key_range().expect("an attached run has entries");
        Self {
            cursor: run.run.cursor(),
            index: leaves.hand.env.id,
            ts: run.ts,
            ends: (min.to_vec(), max.to_vec()),
            range,
            direction: leaves.stand.direction,
            skips: leaves.stand.skips.clone(),
            keys_only: leaves.stand.keys_only,
            started: false,
            key: None,
        }
    }

    /// The run cannot be read from here on: all that is left of it is passed over. Where its next readable block begins
    /// is not known to the cursor.
    #[cold]
    fn pass_rest(&self, fault: Fault) -> Result<bool> {
        let Some(skips) = &self.skips else { return Err(fault.of_index(self.index)) };
        let (min, max) = &self.ends;
        let (low, high) = match (self.direction, &self.key) {
            (Direction::Forward, key) => (key.as_ref().map_or(min.clone(), |key| just_above(key)), just_above(max)),
            (Direction::Backward, Some(key)) => (min.clone(), key.clone()),
            (Direction::Backward, None) => (min.clone(), just_above(max)),
        };
        skips.add(DamagedRange::met(fault, self.index, &low, Some(&high))?, self.ts);
        Ok(false)
    }

    /// The value of one entry cannot be read.
    #[cold]
    fn pass_key(&self, fault: Fault) -> Result<()> {
        let Some(skips) = &self.skips else { return Err(fault.of_index(self.index)) };
        let key = self.cursor.key();
        skips.add(DamagedRange::met(fault, self.index, key, Some(&just_above(key)))?, self.ts);
        Ok(())
    }

    fn step(&mut self) -> Result<bool> {
        match (self.started, self.direction) {
            (false, _) => {
                self.started = true;
                self.start()
            }
            (true, Direction::Forward) => self.cursor.next(),
            (true, Direction::Backward) => self.cursor.prev(),
        }
    }

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
        while !out.has_enough(max) {
            match self.step() {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(fault) => return self.pass_rest(fault),
            }
            let past = match self.direction {
                Direction::Forward => self.range.is_above(self.cursor.key()),
                Direction::Backward => self.range.is_below(self.cursor.key()),
            };
            if past {
                return Ok(false);
            }
            let value = match self.keys_only {
                true => Ok((!self.cursor.is_delete()).then_some(Cow::Borrowed(&[][..]))),
                false => self.cursor.value(),
            };
            match value {
                Ok(value) => out.push_any(self.cursor.key(), value.as_deref(), self.ts),
                Err(fault) => self.pass_key(fault)?,
            }
            if self.skips.is_some() {
                self.key = Some(self.cursor.key().to_vec());
            }
        }
        Ok(true)
    }
}
