//! Rows of sysbench, made of the seed.
//!
//! `k` of a row is a function of seed, table and id until somebody writes it, so that sums over ranges are known. The
//! groups of `c` are random digits but the last one: it is made of the first, the table and the id, so that a row with
//! another row's text is found by looking at the text. An IN-list update sets one text in several rows: then 0 stands for
//! the id.

use lab_target::row::mix;
use lab_target::sysbench::{C_BYTES, PAD_BYTES, Row};

use crate::random::Random;

/// Digits of a group.
const DIGITS: usize = 11;
/// What a group is below.
const GROUP: u64 = 100_000_000_000;
/// Groups of `c`.
const C_GROUPS: usize = 10;

/// `k` of a row as it is loaded: uniform in 1..=rows of the table.
#[must_use]
pub fn k_of(seed: u64, table: u32, id: i32, table_rows: u64) -> i32 {
    let drawn = mix(mix(seed ^ 0x6b6b ^ u64::from(table) << 32) ^ id as u64);
    1 + ((u128::from(drawn) * u128::from(table_rows)) >> 64) as i32
}

/// A row as it is loaded.
#[must_use]
pub fn loaded(seed: u64, table: u32, id: i32, table_rows: u64) -> Row {
    let mut random = Random::new(seed, 0x7362_0000_0000_0000 ^ u64::from(table) << 32 ^ id as u64);
    made(&mut random, table, id, k_of(seed, table, id, table_rows))
}

/// A row with random texts.
#[must_use]
pub fn made(random: &mut Random, table: u32, id: i32, k: i32) -> Row {
    Row { id, k, c: c_of(random, table, id), pad: groups(random) }
}

/// A random `c`; with id 0 it fits every row of the table.
#[must_use]
pub fn c_of(random: &mut Random, table: u32, id: i32) -> [u8; C_BYTES] {
    let mut c = groups(random);
    let first = number_of(&c[..DIGITS]).unwrap_or(0);
    put(&mut c[C_BYTES - DIGITS..], bound(first, table, id));
    c
}

/// Whether a text is one that this row may have.
#[must_use]
pub fn is_c_of(c: &[u8], table: u32, id: i32) -> bool {
    if c.len() != C_BYTES {
        return false;
    }
    let (Some(first), Some(last)) = (number_of(&c[..DIGITS]), number_of(&c[C_BYTES - DIGITS..])) else { return false };
    last == bound(first, table, id) || last == bound(first, table, 0)
}

fn bound(first: u64, table: u32, id: i32) -> u64 {
    mix(first ^ mix(u64::from(table) << 32 | id as u64)) % GROUP
}

fn groups<const N: usize>(random: &mut Random) -> [u8; N] {
    let mut text = [b'-'; N];
    text.chunks_mut(DIGITS + 1).for_each(|group| put(&mut group[..DIGITS], random.below_wide(GROUP)));
    text
}

fn put(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn number_of(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
}

/// A number for a whole row, to be added up over a table.
#[must_use]
pub fn hash(row: &Row) -> u64 {
    let word = |text: &[u8]| {
        text.chunks(8).fold(0u64, |sum, part| {
            let mut eight = [0; 8];
            eight[..part.len()].copy_from_slice(part);
            mix(sum ^ u64::from_le_bytes(eight))
        })
    };
    mix(entry_hash(row.k, row.id) ^ word(&row.c) ^ word(&row.pad).rotate_left(32))
}

/// The same for an entry of the index.
#[must_use]
pub fn entry_hash(k: i32, id: i32) -> u64 {
    mix((k as u32 as u64) << 32 | id as u32 as u64)
}

const _: () = assert!(C_BYTES == C_GROUPS * (DIGITS + 1) - 1 && PAD_BYTES == C_GROUPS / 2 * (DIGITS + 1) - 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_made_again_and_no_other_row_has_its_text() {
        let row = loaded(7, 3, 11, 1_000);
        assert_eq!(row, loaded(7, 3, 11, 1_000));
        assert!(
            (1..=1_000).contains(&row.k)
                && row.c[DIGITS] == b'-'
                && row.pad.iter().filter(|b| **b == b'-').count() == 4
        );
        assert!(is_c_of(&row.c, 3, 11));
        assert!(!is_c_of(&row.c, 3, 12) && !is_c_of(&row.c, 2, 11) && !is_c_of(&row.c[1..], 3, 11));
        let all = c_of(&mut Random::new(1, 1), 3, 0);
        assert!(is_c_of(&all, 3, 11) && is_c_of(&all, 3, 12) && !is_c_of(&all, 4, 11));
        let mut broken = row.c;
        broken[0] = b'x';
        assert!(!is_c_of(&broken, 3, 11));
        assert_ne!(hash(&row), hash(&Row { k: row.k + 1, ..row.clone() }));
        assert_ne!(hash(&row), hash(&Row { c: all, ..row }));
    }

    #[test]
    fn k_is_uniform() {
        let sum: i64 = (1..=100_000).map(|id| i64::from(k_of(5, 0, id, 1_000))).sum();
        assert!((49_500_000..50_600_000).contains(&sum), "{sum}");
    }
}
