//! How many different values the first columns of an index have, from samples.
//!
//! Steps: (1) the index is cut in parts of like size; from the front of each some keys are read in order, and from the end
//! of the index its last key; (2) within a piece, for each number of columns, neighbours that differ in those are counted;
//! (3) between two pieces lie keys that were not read: none of them brings a new value of columns that are the same on
//! both sides of the gap, since the keys are sorted; where they differ there are as many as the pieces on both sides make
//! likely, or, if those are few, as many as one meets who hops from value to value. The sum is the estimate. An index of
//! no more keys than all pieces together may have is one piece: it is counted exactly.
//!
//! Why neighbours and not a set of the values seen: a value that fills half the index is one value, whatever is sampled,
//! and the gap that lies within it says so for certain.

use std::ops::Bound;

use index::{Direction, EntryBatch, Index, ReadAt};

use crate::error::Result;
use crate::table::{Schema, key};

/// Parts that the index is cut in.
const PIECES: usize = 48;
/// Keys read of each.
const PIECE_KEYS: usize = 256;
/// Bytes of entries after which a piece ends: rows may be long.
const PIECE_BYTES: usize = 128 << 10;

/// Values hopped over in a gap, at most.
const HOPS: usize = 16;

/// Keys read in a row.
struct Piece {
    first: Vec<u8>,
    last: Vec<u8>,
    keys: u64,
    /// For each number of columns, neighbours that differ.
    changes: Vec<u64>,
    /// The index has no more.
    is_end: bool,
}

/// Counts of one index.
pub(crate) struct Sampler<'a> {
    pub index: &'a dyn Index,
    pub schema: &'a Schema,
    /// The secondary index, or the primary one.
    pub number: Option<usize>,
    /// Its keys, about.
    pub keys: u64,
}

impl Sampler<'_> {
    /// For 1, 2 … columns of the entries' keys, how many different values they have.
    pub fn count(&self) -> Result<Vec<u64>> {
        let mut pieces: Vec<Piece> = Vec::new();
        let is_small = self.keys <= (PIECES * PIECE_KEYS) as u64;
        let (starts, size) = match is_small {
            true => (vec![Vec::new()], PIECES),
            false => (self.index.split_keys(PIECES)?, 1),
        };
        for start in starts {
            let behind = pieces.last().map(|piece| (&piece.last, piece.is_end));
            if behind.is_some_and(|(last, is_end)| is_end || start <= *last) {
                continue;
            }
            pieces.extend(self.read(&start, size)?);
        }
        let columns = self.schema.key_columns(self.number);
        let Some(first) = pieces.first() else { return Ok(vec![0; columns]) };
        let mut counts = vec![1.0; columns];
        add(&mut counts, first);
        for pair in pieces.windows(2) {
            self.add_gap(&mut counts, &pair[0], &pair[1])?;
            add(&mut counts, &pair[1]);
        }
        if let Some(piece) = pieces.last().filter(|piece| !piece.is_end)
            && let Some(end) = self.read_last()?
        {
            self.add_gap(&mut counts, piece, &end)?;
        }
        Ok(counts.into_iter().map(|count| count.round() as u64).collect())
    }

    /// Step 3.
    fn add_gap(&self, counts: &mut [f64], left: &Piece, right: &Piece) -> Result<()> {
        let same = self.schema.same_columns(self.number, &left.last, &right.first)?;
        let between = (Bound::Excluded(&left.last[..]), Bound::Included(&right.first[..]));
        let steps = self.index.estimate(between)? as f64;
        let pairs = (left.keys + right.keys).saturating_sub(2).max(1) as f64;
        for (n, count) in counts.iter_mut().enumerate().skip(same) {
            let likely = steps * (left.changes[n] + right.changes[n]) as f64 / pairs;
            let met = if likely < 4.0 * HOPS as f64 { self.hop(n + 1, &left.last, &right.first)? } else { None };
            *count += met.unwrap_or(likely.clamp(1.0, steps.max(1.0)));
        }
        Ok(())
    }

    /// How many values of the first `columns` follow that of `from`, up to that of `to`; none if they are many.
    fn hop(&self, columns: usize, from: &[u8], to: &[u8]) -> Result<Option<f64>> {
        let (mut at, mut out) = (from.to_vec(), EntryBatch::new());
        for hops in 1..=HOPS {
            at.truncate(self.schema.columns_end(self.number, columns, &at)?);
            if !key::successor(&mut at) {
                return Ok(None);
            }
            let range = (Bound::Included(&at[..]), Bound::Included(to));
            let mut cursor = self.index.cursor(ReadAt::Newest, range, Direction::Forward);
            while cursor.fill(&mut out, 1)? && out.is_empty() {}
            if out.is_empty() || self.schema.same_columns(self.number, out.key(0), to)? >= columns {
                return Ok(Some(hops as f64));
            }
            at.clear();
            at.extend_from_slice(out.key(0));
        }
        Ok(None)
    }

    /// Step 2, of as much as `size` pieces; none if nothing is there.
    fn read(&self, start: &[u8], size: usize) -> Result<Option<Piece>> {
        let range = (Bound::Included(start), Bound::Unbounded);
        let mut cursor = self.index.cursor(ReadAt::Newest, range, Direction::Forward);
        let mut piece: Option<Piece> = None;
        let (mut out, mut bytes) = (EntryBatch::new(), 0);
        loop {
            let more = cursor.fill(&mut out, 32)?;
            for n in 0..out.len() {
                let (key, value) = out.entry(n);
                bytes += key.len() + value.len();
                self.add_key(&mut piece, key)?;
            }
            let is_full = piece.as_ref().is_some_and(|piece| piece.keys >= (size * PIECE_KEYS) as u64);
            if !more || is_full || bytes >= size * PIECE_BYTES {
                if let Some(piece) = &mut piece {
                    piece.is_end = !more;
                }
                return Ok(piece);
            }
        }
    }

    fn add_key(&self, piece: &mut Option<Piece>, key: &[u8]) -> Result<()> {
        let Some(piece) = piece else {
            *piece = Some(self.piece(key));
            return Ok(());
        };
        let same = self.schema.same_columns(self.number, &piece.last, key)?;
        piece.changes.iter_mut().skip(same).for_each(|changes| *changes += 1);
        piece.keys += 1;
        piece.last.clear();
        piece.last.extend_from_slice(key);
        Ok(())
    }

    fn piece(&self, key: &[u8]) -> Piece {
        let changes = vec![0; self.schema.key_columns(self.number)];
        Piece { first: key.to_vec(), last: key.to_vec(), keys: 1, changes, is_end: false }
    }

    fn read_last(&self) -> Result<Option<Piece>> {
        let mut cursor = self.index.cursor(ReadAt::Newest, (Bound::Unbounded, Bound::Unbounded), Direction::Backward);
        let mut out = EntryBatch::new();
        while cursor.fill(&mut out, 1)? && out.is_empty() {}
        Ok((!out.is_empty()).then(|| self.piece(out.key(0))))
    }
}

fn add(counts: &mut [f64], piece: &Piece) {
    for (count, changes) in counts.iter_mut().zip(&piece.changes) {
        *count += *changes as f64;
    }
}
