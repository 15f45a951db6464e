// SPDX-License-Identifier: GPL-2.0-only
//! Which columns a statement reads: no others of a row go into the server's record.
//!
//! Those of the primary key and of the key that is scanned always do: where a scan goes on is made of them. Who may change
//! the row says that all are read: its change is told from the whole of it.

use smallvec::SmallVec;

/// Columns by the numbers that they have in the server.
#[derive(Debug, Default, Clone)]
pub struct ColumnSet {
    /// A bit for each, the lowest of a byte first. Behind the last byte all are wanted.
    bits: SmallVec<[u8; 16]>,
}

impl ColumnSet {
    /// From the bits that the server has for them; none: all.
    pub fn new(bits: &[u8]) -> Self {
        Self { bits: bits.into() }
    }

    #[inline]
    pub fn has(&self, number: usize) -> bool {
        self.bits.get(number / 8).is_none_or(|byte| byte >> (number % 8) & 1 == 1)
    }

    pub fn add(&mut self, number: usize) {
        if let Some(byte) = self.bits.get_mut(number / 8) {
            *byte |= 1 << (number % 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_behind_the_last_bit_are_wanted_and_so_are_those_that_are_added() {
        let mut wanted = ColumnSet::new(&[0b0000_0101, 0]);
        wanted.add(9);
        wanted.add(100);
        let has: Vec<usize> = (0..18).filter(|&n| wanted.has(n)).collect();
        assert_eq!(has, [0, 2, 9, 16, 17]);
        assert!((0..100).all(|n| ColumnSet::default().has(n)));
    }
}
