// SPDX-License-Identifier: GPL-2.0-only
//! Which columns a statement reads: no others of a row go into the server's record.
//!
//! Those of the primary key and of the key that is scanned always do: where a scan goes on is made of them. Who may change
//! the row says that all are read: its change is told from the whole of it.

use smallvec::SmallVec;

/// Columns by the numbers that they have in the engine.
#[derive(Debug, Clone)]
pub struct ColumnSet {
    /// A bit for each of the first 64, the lowest first: few tables have more.
    first: u64,
    /// The same of the others, word by word. Behind the last one all are wanted.
    others: SmallVec<[u64; 1]>,
}

impl Default for ColumnSet {
    /// All.
    fn default() -> Self {
        Self { first: u64::MAX, others: SmallVec::new() }
    }
}

impl ColumnSet {
    /// Not `column` any more.
    pub fn leave_out(&mut self, column: usize) {
        let Some(other) = (column / 64).checked_sub(1) else {
            self.first &= !(1 << column);
            return;
        };
        if self.others.len() <= other {
            self.others.resize(other + 1, u64::MAX);
        }
        self.others[other] &= !(1 << (column % 64));
    }

    #[inline]
    pub fn has(&self, column: usize) -> bool {
        match column {
            0..64 => self.first >> column & 1 == 1,
            _ => self.others.get(column / 64 - 1).is_none_or(|word| word >> (column % 64) & 1 == 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_columns_are_wanted_but_those_that_are_left_out() {
        let mut wanted = ColumnSet::default();
        let out = [0, 7, 63, 64, 65, 127, 200];
        out.iter().for_each(|&column| wanted.leave_out(column));
        assert!((0..500).all(|column| wanted.has(column) != out.contains(&column)));
    }
}
