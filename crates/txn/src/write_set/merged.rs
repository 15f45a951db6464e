//! Reading several parts of a write set as one.

use std::ops::Bound;
use std::sync::Arc;

use base::{IndexId, Result};
use store::RunCursor;

use super::layers::{Data, Layer, SpilledRun};
use super::{Range, Seq, Written};

pub(super) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Moves over runs that do not overlap, in one direction.
pub(super) struct RunsCursor<'a> {
    /// Those not opened yet.
    runs: &'a [Arc<SpilledRun>],
    range: Bounds<'a>,
    backward: bool,
    at: Option<(&'a SpilledRun, RunCursor)>,
}

impl<'a> RunsCursor<'a> {
    /// Before the first entry of `range`, or behind the last one.
    pub(super) fn new(runs: &'a [Arc<SpilledRun>], range: Bounds<'a>, backward: bool) -> Self {
        Self { runs, range, backward, at: None }
    }

    /// Moves on. False at the end.
    pub(super) fn advance(&mut self) -> Result<bool> {
        loop {
            let valid = match &mut self.at {
                Some((_, cursor)) if self.backward => cursor.prev()?,
                Some((_, cursor)) => cursor.next()?,
                None => false,
            };
            if !valid && !self.open_next()? {
                return Ok(false);
            }
            let key = self.key();
            let (before, behind) = (is_below(key, self.range.0), is_above(key, self.range.1));
            let (outside, ahead) = if self.backward { (behind, before) } else { (before, behind) };
            if ahead {
                (self.at, self.runs) = (None, &[]);
                return Ok(false);
            }
            if !outside {
                return Ok(true);
            }
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        self.at.as_ref().expect("the cursor stands on an entry").1.key()
    }

    /// The newest operation of the entry before `view`, given to `with`. False if there is none.
    fn seen(&self, view: Seq, with: &mut dyn FnMut(Written<'_>)) -> Result<bool> {
        let (run, cursor) = self.at.as_ref().expect("the cursor stands on an entry");
        let list = cursor.value()?.unwrap_or_default();
        Ok(run.seen(&list, view)?.map(with).is_some())
    }

    fn operations(&self, with: &mut dyn FnMut(Seq, Written<'_>)) -> Result<()> {
        let (run, cursor) = self.at.as_ref().expect("the cursor stands on an entry");
        let list = cursor.value()?.unwrap_or_default();
        run.operations(&list).try_for_each(|operation| operation.map(|(seq, written)| with(seq, written)))
    }

    /// Stands on the first entry of the next run that may have something in the range.
    fn open_next(&mut self) -> Result<bool> {
        loop {
            let next = if self.backward { self.runs.split_last() } else { self.runs.split_first() };
            let Some((run, rest)) = next else { return Ok(false) };
            self.runs = rest;
            let Some((min, max)) = run.run.key_range() else { continue };
            if is_below(max, self.range.0) || is_above(min, self.range.1) {
                continue;
            }
            let mut cursor = run.run.cursor();
            let found = match (self.backward, self.range) {
                (false, (Bound::Included(low) | Bound::Excluded(low), _)) => cursor.seek(low)?,
                (false, _) => cursor.seek_first()?,
                (true, (_, Bound::Excluded(high))) => cursor.seek_before(high)?,
                // What is at the bound is wanted, what is above it is passed over by `advance`.
                (true, (_, Bound::Included(high))) => cursor.seek(high)? || cursor.seek_last()?,
                (true, _) => cursor.seek_last()?,
            };
            if found {
                self.at = Some((run, cursor));
                return Ok(true);
            }
        }
    }
}

fn is_below(key: &[u8], low: Bound<&[u8]>) -> bool {
    match low {
        Bound::Unbounded => false,
        Bound::Included(low) => key < low,
        Bound::Excluded(low) => key <= low,
    }
}

fn is_above(key: &[u8], high: Bound<&[u8]>) -> bool {
    match high {
        Bound::Unbounded => false,
        Bound::Included(high) => key > high,
        Bound::Excluded(high) => key >= high,
    }
}

/// All operations of several layers on each key, newest first: for merging them.
pub(super) struct Histories<'a> {
    /// Newest layer first, with its cut; those that are at their end are gone.
    cursors: Vec<(RunsCursor<'a>, Seq)>,
}

impl<'a> Histories<'a> {
    pub(super) fn new(cursors: impl Iterator<Item = (RunsCursor<'a>, Seq)>) -> Result<Self> {
        let mut standing = Vec::new();
        for (mut cursor, cut) in cursors {
            if cursor.advance()? {
                standing.push((cursor, cut));
            }
        }
        Ok(Self { cursors: standing })
    }

    /// The lowest key not taken yet.
    pub(super) fn next_key(&self) -> Option<&[u8]> {
        self.cursors.iter().map(|(cursor, _)| cursor.key()).min()
    }

    /// Gives the operations on the lowest key to `with`.
    pub(super) fn take(&mut self, key: &[u8], with: &mut dyn FnMut(Seq, Written<'_>)) -> Result<()> {
        let mut n = 0;
        while let Some((cursor, cut)) = self.cursors.get_mut(n) {
            if cursor.key() == key {
                let cut = *cut;
                cursor.operations(&mut |seq, written| {
                    if seq < cut {
                        with(seq, written);
                    }
                })?;
                if !cursor.advance()? {
                    self.cursors.remove(n);
                    continue;
                }
            }
            n += 1;
        }
        Ok(())
    }
}

/// A key and what was written to it last; nothing: it was deleted.
pub(super) type Entry = (Vec<u8>, Option<Vec<u8>>);

/// The newest operation of each key, of several parts.
pub(super) struct Merged<'a> {
    /// Newest part first.
    sources: Vec<Source<'a>>,
    backward: bool,
    current: usize,
}

struct Source<'a> {
    kind: Kind<'a>,
    view: Seq,
    entry: Entry,
    /// `entry` is the next of this source.
    valid: bool,
    /// `entry` was given out, or hidden by a newer one: on to the next.
    taken: bool,
}

enum Kind<'a> {
    Memory(Range<'a>),
    Runs(RunsCursor<'a>),
    /// Copied out of the memory that is being written.
    Copied(std::vec::IntoIter<Entry>),
}

impl<'a> Merged<'a> {
    /// What `layers`, oldest first, hold before `view`, and newer than all of them `copied`, entries in cursor order.
    pub(super) fn new(
        layers: &'a [Layer],
        copied: Vec<Entry>,
        index: IndexId,
        range: Bounds<'a>,
        view: Seq,
        backward: bool,
    ) -> Self {
        let source = |kind, view| Source { kind, view, entry: Entry::default(), valid: true, taken: true };
        let mut sources = vec![source(Kind::Copied(copied.into_iter()), view)];
        for layer in layers.iter().rev() {
            let view = view.min(layer.cut);
            if view <= layer.from {
                continue;
            }
            let kind = match &layer.data {
                Data::Memory(set) => Kind::Memory(set.range(index, range, view)),
                Data::Files(_) => Kind::Runs(RunsCursor::new(layer.runs(index), range, backward)),
            };
            sources.push(source(kind, view));
        }
        Self { sources, backward, current: 0 }
    }

    /// Moves to the next key. False at the end.
    pub(super) fn advance(&mut self) -> Result<bool> {
        let backward = self.backward;
        for source in self.sources.iter_mut().filter(|source| source.valid && source.taken) {
            source.advance(backward)?;
        }
        let valid = self.sources.iter().enumerate().filter(|(_, source)| source.valid);
        // Of equal keys the first source's, which is the newest.
        let next = valid.reduce(|best, other| {
            let nearer = if backward { other.1.entry.0 > best.1.entry.0 } else { other.1.entry.0 < best.1.entry.0 };
            if nearer { other } else { best }
        });
        let Some((current, _)) = next else { return Ok(false) };
        self.current = current;
        let (newer, rest) = self.sources.split_at_mut(current + 1);
        let key = &newer[current].entry.0;
        rest.iter_mut().filter(|source| source.valid && source.entry.0 == *key).for_each(|source| source.taken = true);
        newer[current].taken = true;
        Ok(true)
    }

    pub(super) fn entry(&self) -> &Entry {
        &self.sources[self.current].entry
    }
}

impl Source<'_> {
    fn advance(&mut self, backward: bool) -> Result<()> {
        self.taken = false;
        match &mut self.kind {
            Kind::Copied(entries) => match entries.next() {
                Some(entry) => self.entry = entry,
                None => self.valid = false,
            },
            Kind::Memory(range) => match if backward { range.next_back() } else { range.next() } {
                Some((key, written)) => set(&mut self.entry, key, written),
                None => self.valid = false,
            },
            Kind::Runs(cursor) => {
                self.valid = false;
                while !self.valid && cursor.advance()? {
                    let entry = &mut self.entry;
                    self.valid = cursor.seen(self.view, &mut |written| set(entry, cursor.key(), written))?;
                }
            }
        }
        Ok(())
    }
}

fn set(entry: &mut Entry, key: &[u8], written: Written<'_>) {
    entry.0.clear();
    entry.0.extend_from_slice(key);
    match written {
        Written::Delete => entry.1 = None,
        Written::Put(value) => {
            let kept = entry.1.get_or_insert_default();
            kept.clear();
            kept.extend_from_slice(value);
        }
    }
}
