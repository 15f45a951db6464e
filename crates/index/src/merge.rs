//! Merging sorted sources into what a reader sees: leaves with the attached runs that are not drained yet
//! (rule A3), a transaction's own writes over an index.
//!
//! 1. Each source yields, in the cursor's direction, for each key at most one entry: the newest version that
//!    the reader may see, a tombstone included. It is read in batches.
//! 2. The heads of the sources play a tournament ([`LoserTree`]) by key, newest first among equal keys.
//! 3. The first entry of a key decides: a value is given out, a tombstone hides the key. Further entries of the
//!    same key, older or copies of the same version, are skipped.
//!
//! Invariants: within a source keys strictly ascend (descend); the winner of `order` is the least head, if any is left; `last` is the key
//! decided last, and no head lies before it.
//!
//! Why a source may show a version that another one shows too: a run is drained by copying to the leaf before
//! the run is shortened, and the run list is read before the leaf. A merge that counted on disjoint sources
//! would have to stop the drain.

use std::cmp::Ordering;
use std::ops::Bound;

use base::{CommitTs, Result};
use store::run::{Run, RunCursor};

use crate::loser_tree::LoserTree;
use crate::{Batch, Cursor, Direction, EntryBatch, KeyRange, Op};

/// What a merge reads from.
pub trait Source: Send {
    /// Clears `out` and appends up to `max` entries, tombstones included, in the merge's direction, each key
    /// once, all beyond those given before; none behind [`EntryBatch::has_enough`]. Returns false at the end. May return fewer
    /// than `max`, even none, with more to come.
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool>;
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        (**self).fill(out, max)
    }
}

/// Whether a merge gives out tombstones: for a merge of merges, and for rewriting runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tombstones {
    /// A tombstone only hides.
    Hide,
    /// A tombstone is given out too.
    Show,
}

/// One source with the entries read ahead.
struct Head<S> {
    source: S,
    ahead: EntryBatch,
    at: usize,
    more: bool,
    /// The first eight bytes of the key at `at`, as a number: heads that differ there are not looked at any further.
    front: u64,
}

/// The merge of any number of sources.
///
/// ```
/// use base::CommitTs;
/// use trefoil_index::merge::{BatchSource, Merge, Tombstones};
/// use trefoil_index::{BatchBuilder, Direction, EntryBatch, KeyRange, Op};
///
/// let mut old = BatchBuilder::new();
/// old.push(b"apple", Op::Put(b"red"));
/// old.push(b"plum", Op::Put(b"blue"));
/// let mut new = BatchBuilder::new();
/// new.push(b"apple", Op::Put(b"green"));
/// new.push(b"plum", Op::Delete);
/// let (old, new) = (old.finish(), new.finish());
///
/// let source = |batch, ts| BatchSource::new(batch, CommitTs(ts), KeyRange::all(), Direction::Forward);
/// let mut merge = Merge::new(Direction::Forward, Tombstones::Hide, vec![source(&old, 16), source(&new, 32)]);
/// let mut out = EntryBatch::new();
/// while merge.fill(&mut out, 10).unwrap() {}
/// assert_eq!(out.len(), 1);
/// assert_eq!((out.key(0), out.value(0), out.ts(0)), (b"apple".as_slice(), b"green".as_slice(), CommitTs(32)));
/// ```
pub struct Merge<S> {
    heads: Vec<Head<S>>,
    order: LoserTree,
    /// Heads that have entries.
    left: usize,
    direction: Direction,
    tombstones: Tombstones,
    last: Option<Vec<u8>>,
    started: bool,
    /// Looks since an entry was given out: in a long row of tombstones as much is read ahead as was passed, so that its
    /// sources are not asked for each of them.
    passed: usize,
    /// All looks.
    looked: u64,
}

/// Entries read ahead for nothing, at most.
const READ_AHEAD_MAX: usize = 512;
/// So few are read ahead only as far as they are wanted, and a few more: to ask once more costs about as much as those.
const FEW: usize = 64;
/// Looks in a row for nothing, at most, before the caller gets a word in.
const PASSED_MAX: usize = 1024;

impl<S: Source> Merge<S> {
    /// A merge of sources that run in `direction`.
    #[must_use]
    pub fn new(direction: Direction, tombstones: Tombstones, sources: Vec<S>) -> Self {
        let heads: Vec<_> = sources
            .into_iter()
            .map(|source| Head { source, ahead: EntryBatch::new(), at: 0, more: true, front: 0 })
            .collect();
        let order = LoserTree::default();
        Self { heads, order, left: 0, direction, tombstones, last: None, started: false, passed: 0, looked: 0 }
    }

    /// Clears `out` and appends up to `max` entries. Returns false at the end.
    ///
    /// # Errors
    /// The first fault of a source; the merge must not be used afterwards.
    pub fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        out.clear();
        if !self.started && self.heads.len() == 1 && self.tombstones == Tombstones::Show {
            return self.heads[0].source.fill(out, max);
        }
        // Whoever wants no more will hardly come again. (Backward a memtable copies a leaf each time that it is asked.)
        let is_few = max <= FEW && self.direction == Direction::Forward;
        if !self.started {
            self.started = true;
            // Each has its part.
            let part = if is_few { (max.div_ceil(self.heads.len().max(1)) + 1).min(max) } else { max };
            for head in &mut self.heads {
                head.refill(part)?;
            }
            // Those that have nothing would be played against all the same.
            self.heads.retain(Head::stands);
            self.left = self.heads.len();
            self.order = LoserTree::new(self.heads.len(), |a, b| is_before(&self.heads, self.direction, a, b));
            // Nobody else has a part: who begins anew with each call gets what he wants all the same.
            if is_few && self.left == 1 {
                self.least().read_on(max)?;
            }
        }
        if self.take_all(out, max)? {
            return Ok(self.left > 0);
        }
        // Bounded by entries looked at, not only by those given out: a long row of tombstones must not hold
        // the caller, who may want to look around between two calls.
        let mut looks = max.saturating_mul(4).max(64);
        while !out.has_enough(max) && looks > 0 && self.left > 0 {
            looks -= 1;
            self.looked += 1;
            let given = out.len();
            self.take_least(out);
            self.passed = if out.len() > given { 0 } else { self.passed + 1 };
            let wanted = if is_few { (max - out.len()).max(max / 4) } else { max };
            self.advance_least(wanted.max(self.passed.min(READ_AHEAD_MAX)))?;
            if !out.is_empty() && self.left == 1 && self.least().at == 0 {
                break;
            }
            // In a long row of tombstones the caller may know better than to pass over all of it.
            if self.passed > 0 && self.passed.is_multiple_of(PASSED_MAX) {
                break;
            }
        }
        Ok(self.left > 0)
    }

    /// Which head is the least; one is left.
    fn least_at(&self) -> usize {
        self.order.winner().expect("a head is left")
    }

    fn least(&mut self) -> &mut Head<S> {
        let at = self.least_at();
        &mut self.heads[at]
    }

    /// While one source is left, what it has read ahead is given out as it is. False if that cannot be.
    fn take_all(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        if self.left != 1 {
            return Ok(false);
        }
        // The others have ended: it stays the winner.
        let at = self.least_at();
        let head = &mut self.heads[at];
        // What was begun beside others is ended one by one, and so is what begins with a key that was decided.
        if head.at > 0 || head.ahead.len() > max || self.last.as_deref() == Some(head.ahead.key(0)) {
            return Ok(false);
        }
        std::mem::swap(out, &mut head.ahead);
        self.looked += out.len() as u64;
        self.passed += out.len();
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(out.key(out.len() - 1));
        if self.tombstones == Tombstones::Hide {
            out.drop_tombstones();
        }
        if !out.is_empty() {
            self.passed = 0;
        }
        if !head.refill(max.max(self.passed.min(READ_AHEAD_MAX)))? {
            self.left = 0;
        }
        Ok(true)
    }

    /// The key decided last, given out or hidden: a merge that begins behind it gives what this one would go on with.
    #[must_use]
    pub fn last_key(&self) -> Option<&[u8]> {
        self.last.as_deref()
    }

    /// Entries of all sources that it has come through: those given out, and those that hid others or were hidden.
    #[must_use]
    pub fn looked(&self) -> u64 {
        self.looked
    }

    /// Decides on the least head: a new key is given out or hidden, a known one skipped.
    fn take_least(&mut self, out: &mut EntryBatch) {
        let head = &self.heads[self.least_at()];
        let key = head.ahead.key(head.at);
        if self.last.as_deref() == Some(key) {
            return;
        }
        debug_assert!(self.last.as_ref().is_none_or(|last| self.in_order(last, key)), "a source went back");
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        let value = (!head.ahead.is_tombstone(head.at)).then(|| head.ahead.value(head.at));
        if value.is_some() || self.tombstones == Tombstones::Show {
            out.push_any(key, value, head.ahead.ts(head.at));
        }
    }

    /// Moves the least head on.
    fn advance_least(&mut self, max: usize) -> Result<()> {
        let head = self.least();
        head.at += 1;
        if head.stands() {
            head.front = front(head.ahead.key(head.at));
        } else if !head.refill(max)? {
            self.left -= 1;
        }
        self.order.replay(|a, b| is_before(&self.heads, self.direction, a, b));
        Ok(())
    }

    fn in_order(&self, first: &[u8], second: &[u8]) -> bool {
        if self.direction == Direction::Forward { first < second } else { first > second }
    }
}

impl<S: Source> Source for Merge<S> {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        Merge::fill(self, out, max)
    }
}

impl<S: Source> Cursor for Merge<S> {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        debug_assert_eq!(self.tombstones, Tombstones::Hide, "a cursor gives out live entries");
        Merge::fill(self, out, max)
    }
}

/// True if head `a` comes before head `b`: by key in the direction, newest first among equal keys. One that has ended comes last.
fn is_before<S>(heads: &[Head<S>], direction: Direction, a: usize, b: usize) -> bool {
    let (a, b) = (&heads[a], &heads[b]);
    if !(a.stands() && b.stands()) {
        return a.stands();
    }
    let by_key = a.front.cmp(&b.front).then_with(|| a.ahead.key(a.at).cmp(b.ahead.key(b.at)));
    let by_key = if direction == Direction::Forward { by_key } else { by_key.reverse() };
    by_key.then_with(|| b.ahead.ts(b.at).cmp(&a.ahead.ts(a.at))) == Ordering::Less
}

impl<S> Head<S> {
    /// It has not ended.
    #[inline]
    fn stands(&self) -> bool {
        self.at < self.ahead.len()
    }
}

impl<S: Source> Head<S> {
    /// Reads ahead; false at the end.
    fn refill(&mut self, max: usize) -> Result<bool> {
        self.at = 0;
        self.ahead.clear();
        while self.more && self.ahead.is_empty() {
            self.more = self.source.fill(&mut self.ahead, max.max(1))?;
        }
        self.front = if self.ahead.is_empty() { 0 } else { front(self.ahead.key(0)) };
        Ok(!self.ahead.is_empty())
    }

    /// Reads ahead further, until there are `max`.
    fn read_on(&mut self, max: usize) -> Result<()> {
        let left = max.saturating_sub(self.ahead.len());
        if self.more && left > 0 {
            let mut behind = EntryBatch::new();
            self.more = self.source.fill(&mut behind, left)?;
            behind.iter().for_each(|(key, value, ts)| self.ahead.push_any(key, value, ts));
        }
        Ok(())
    }
}

/// The first eight bytes of a key as a number, in the order of keys; zeros stand behind a shorter one, so of two that are equal here nothing is known.
#[must_use]
#[inline]
pub fn front(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => key.iter().zip((0..8).rev()).fold(0, |front, (byte, at)| front | u64::from(*byte) << (8 * at)),
    }
}

/// A cursor as a source: an index below a transaction's own writes.
pub struct CursorSource<C>(pub C);

impl<C: Cursor> Source for CursorSource<C> {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        self.0.fill(out, max)
    }
}

/// A batch as a source: all its operations at one timestamp.
pub struct BatchSource<B> {
    batch: B,
    ts: CommitTs,
    direction: Direction,
    /// What is left: operations `low..high`.
    low: usize,
    high: usize,
}

impl<B: AsRef<Batch>> BatchSource<B> {
    /// The operations of `batch` within `range`.
    #[must_use]
    pub fn new(batch: B, ts: CommitTs, range: KeyRange, direction: Direction) -> Self {
        let ops = batch.as_ref();
        let low = ops.partition_point(|key| range.is_below(key));
        let high = ops.partition_point(|key| !range.is_above(key)).max(low);
        Self { batch, ts, direction, low, high }
    }
}

impl<B: AsRef<Batch> + Send> Source for BatchSource<B> {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        out.clear();
        let batch = self.batch.as_ref();
        while !out.has_enough(max) && self.low < self.high {
            let i = if self.direction == Direction::Forward { self.low } else { self.high - 1 };
            let value = match batch.op(i) {
                Op::Put(value) => Some(value),
                Op::Delete => None,
            };
            out.push_any(batch.key(i), value, self.ts);
            match self.direction {
                Direction::Forward => self.low += 1,
                Direction::Backward => self.high -= 1,
            }
        }
        Ok(self.low < self.high)
    }
}

/// A run as a source: all its operations at one timestamp. What is drained already may be shown too.
pub struct RunSource {
    cursor: RunCursor,
    ts: CommitTs,
    range: KeyRange,
    direction: Direction,
    started: bool,
    keys_only: bool,
}

impl RunSource {
    /// The operations of `run` within `range`.
    #[must_use]
    pub fn new(run: &Run, ts: CommitTs, range: KeyRange, direction: Direction) -> Self {
        Self { cursor: run.cursor(), ts, range, direction, started: false, keys_only: false }
    }

    /// It gives out empty values, and reads none: for whoever asks only what is there.
    #[must_use]
    pub fn keys_only(self) -> Self {
        Self { keys_only: true, ..self }
    }

    /// To the first entry within the bounds.
    fn start(&mut self) -> Result<bool> {
        let cursor = &mut self.cursor;
        match (self.direction, &self.range.low, &self.range.high) {
            (Direction::Forward, Bound::Unbounded, _) => cursor.seek_first(),
            (Direction::Forward, Bound::Included(low), _) => cursor.seek(low),
            (Direction::Forward, Bound::Excluded(low), _) => {
                let found = cursor.seek(low)?;
                if found && cursor.key() == low { cursor.next() } else { Ok(found) }
            }
            (Direction::Backward, _, Bound::Unbounded) => cursor.seek_last(),
            (Direction::Backward, _, Bound::Excluded(high)) => cursor.seek_before(high),
            (Direction::Backward, _, Bound::Included(high)) => {
                if cursor.seek(high)? && cursor.key() == high {
                    Ok(true)
                } else {
                    cursor.seek_before(high)
                }
            }
        }
    }
}

impl Source for RunSource {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        out.clear();
        let mut stands = if self.started { self.cursor.is_valid() } else { self.start()? };
        self.started = true;
        while stands && !out.has_enough(max) && self.range.contains(self.cursor.key()) {
            if self.keys_only {
                let value = if self.cursor.is_delete() { None } else { Some([].as_slice()) };
                out.push_any(self.cursor.key(), value, self.ts);
            } else {
                out.push_any(self.cursor.key(), self.cursor.value()?.as_deref(), self.ts);
            }
            stands = match self.direction {
                Direction::Forward => self.cursor.next()?,
                Direction::Backward => self.cursor.prev()?,
            };
        }
        Ok(stands && self.range.contains(self.cursor.key()))
    }
}
