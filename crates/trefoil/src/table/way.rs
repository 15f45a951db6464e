//! The way to one column of a stored row, known when the schema is built.
//!
//! It is for rows as most are: of the newest version, all columns of the table stored, none NULL. Such rows of a table begin with the same few
//! bytes, compared as one number, and what comes before the first column of no fixed width is as long in each. Behind
//! that, integers are passed over by their last bytes, several of them at once: those are the bytes below 0x80.
//!
//! A row that is any different is left to module `row`, which finds out whether it is one at all. So nothing is an error
//! here.

use base::bytes::Reader;

use super::column::{Column, ColumnType};
use super::row::{self, Fields};

const WORD_BYTES: usize = 8;
/// A way of more steps is not kept: in a table of a thousand columns all of them would be much.
const STEPS_MAX: usize = 8;
/// The highest bit of every byte.
const HIGH_BITS: u64 = u64::from_le_bytes([0x80; WORD_BYTES]);

/// How to get to a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Way {
    /// What a row begins with, and which bits of it count.
    head: u64,
    mask: u64,
    /// Of which this is the bitmap.
    bitmap: (usize, usize),
    /// Bytes in front of the first step, the head included.
    start: usize,
    steps: Box<[Step]>,
    nullable_before: usize,
}

/// Columns to be passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Bytes(usize),
    Integers(usize),
    Strings(usize),
}

impl Step {
    fn over(column: &Column) -> Self {
        match column.column_type {
            ColumnType::I64 | ColumnType::I32 | ColumnType::U64 | ColumnType::U32 => Step::Integers(1),
            ColumnType::F64 | ColumnType::Timestamp => Step::Bytes(8),
            ColumnType::Text | ColumnType::Bytes => Step::Strings(1),
            ColumnType::Bool => Step::Bytes(1),
            ColumnType::Fixed(bytes) => Step::Bytes(bytes.into()),
        }
    }

    /// Both, one after the other, as one step.
    fn and(self, next: Self) -> Option<Self> {
        match (self, next) {
            (Step::Bytes(n), Step::Bytes(m)) => Some(Step::Bytes(n + m)),
            (Step::Integers(n), Step::Integers(m)) => Some(Step::Integers(n + m)),
            (Step::Strings(n), Step::Strings(m)) => Some(Step::Strings(n + m)),
            _ => None,
        }
    }
}

impl Way {
    /// The way to the `n`-th of the columns that rows store; none if it is long, or the head of a row longer than a number.
    pub(super) fn new(version: u8, stored: &[&Column], n: usize) -> Option<Self> {
        let nullable = |columns: &[&Column]| columns.iter().filter(|column| column.nullable).count();
        let head = row::head_of_full(version, stored.len(), nullable(stored));
        let mut word = [0; WORD_BYTES];
        word.get_mut(..head.bytes.len())?.copy_from_slice(&head.bytes);
        let mut steps = vec![Step::Bytes(head.bytes.len())];
        for step in stored[..n].iter().map(|column| Step::over(column)) {
            let last = steps.last_mut().expect("a row has a head");
            match last.and(step) {
                Some(both) => *last = both,
                None if steps.len() > STEPS_MAX => return None,
                None => steps.push(step),
            }
        }
        let Step::Bytes(start) = steps.remove(0) else { unreachable!("a row has a head") };
        Some(Self {
            head: u64::from_le_bytes(word),
            mask: u64::MAX >> (64 - 8 * head.bytes.len()),
            bitmap: (head.bitmap, head.bytes.len()),
            start,
            steps: steps.into(),
            nullable_before: nullable(&stored[..n]),
        })
    }

    /// The row from the column on. `None` if the row is not one of those that the way is for.
    #[inline(always)]
    pub(super) fn follow<'a>(&self, row: &'a [u8]) -> Option<Fields<'a>> {
        if u64::from_le_bytes(*row.first_chunk()?) & self.mask != self.head {
            return None;
        }
        let mut rest = row.get(self.start..)?;
        for step in &self.steps {
            rest = match *step {
                Step::Bytes(n) => rest.get(n..)?,
                Step::Integers(n) => skip_integers(rest, n)?,
                Step::Strings(n) => skip_strings(rest, n)?,
            };
        }
        Some(Fields::new(rest, &row[self.bitmap.0..self.bitmap.1], self.nullable_before))
    }
}

#[inline(always)]
fn skip_integers(mut rest: &[u8], n: usize) -> Option<&[u8]> {
    let mut left = n;
    while let Some(word) = rest.first_chunk::<WORD_BYTES>() {
        // A bit for the last byte of each integer that ends in the word.
        let mut ends = !u64::from_le_bytes(*word) & HIGH_BITS;
        if ends == 0 {
            return None;
        }
        while left > 1 && ends & (ends - 1) != 0 {
            ends &= ends - 1;
            left -= 1;
        }
        rest = &rest[ends.trailing_zeros() as usize / 8 + 1..];
        left -= 1;
        if left == 0 {
            return Some(rest);
        }
    }
    let mut reader = Reader::new(rest);
    for _ in 0..left {
        reader.varint()?;
    }
    Some(reader.rest())
}

fn skip_strings(rest: &[u8], n: usize) -> Option<&[u8]> {
    let mut reader = Reader::new(rest);
    for _ in 0..n {
        reader.bytes()?;
    }
    Some(reader.rest())
}
