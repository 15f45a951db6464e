//! Keys and values of the peers: bytes whose order is the order of the columns.
//!
//! Numbers are big-endian, signed ones with the sign bit turned, so that bytes compare as the numbers do. A primary
//! key is the row's number; an index key is the index columns followed by that number, and its value is empty: a range
//! query is answered from the index keys alone. A row is its fixed columns followed by the text.

use std::ops::Deref;

use crate::api::{Result, TargetError};
use crate::row::{Column, Entry, IndexSet, RowView, Secondary};

/// Bytes of the longest index key: price, date, customer and the row's number.
const INDEX_KEY_BYTES_MAX: usize = 4 + 8 + 4 + 8;
/// Bytes of a row before its text.
const ROW_FIXED_BYTES: usize = 8 + 4 * 4;

/// The key of a row.
#[must_use]
pub fn primary(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

/// The number of a row.
pub fn primary_of(bytes: &[u8]) -> Result<u64> {
    bytes.try_into().map(u64::from_be_bytes).map_err(|_| broken("primary key", bytes))
}

/// Appends the value of a row.
pub fn encode_row(row: &RowView<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&row.dateandtime.to_le_bytes());
    for number in [row.cashregisterid, row.customerid, row.productid, row.price] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(row.data);
}

/// The row in a value.
pub fn row_of(bytes: &[u8]) -> Result<RowView<'_>> {
    let (fixed, data) = bytes.split_at_checked(ROW_FIXED_BYTES).ok_or_else(|| broken("row", bytes))?;
    let number = |at: usize| i32::from_le_bytes(fixed[at..at + 4].try_into().expect("a slice of four bytes"));
    Ok(RowView {
        dateandtime: i64::from_le_bytes(fixed[..8].try_into().expect("a slice of eight bytes")),
        cashregisterid: number(8),
        customerid: number(12),
        productid: number(16),
        price: number(20),
        data,
    })
}

/// The customer in the value of a row: the third of its columns, and no other is looked at.
pub fn customer_of(bytes: &[u8]) -> Result<i32> {
    let number = bytes.get(12..).and_then(|rest| rest.first_chunk()).ok_or_else(|| broken("row", bytes))?;
    Ok(i32::from_le_bytes(*number))
}

/// A key of a secondary index. The bytes past its length are 0, and all keys of one index are equally long, so that
/// the derived order is that of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexKey {
    bytes: [u8; INDEX_KEY_BYTES_MAX],
    length: u8,
}

impl IndexKey {
    const EMPTY: IndexKey = IndexKey { bytes: [0; INDEX_KEY_BYTES_MAX], length: 0 };

    fn push(&mut self, bytes: &[u8]) {
        let from = usize::from(self.length);
        self.bytes[from..from + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len() as u8;
    }

    fn push_column(&mut self, column: Column, value: i64) {
        match column {
            Column::DateAndTime => self.push(&(value ^ i64::MIN).to_be_bytes()),
            _ => self.push(&(value as i32 ^ i32::MIN).to_be_bytes()),
        }
    }
}

impl Deref for IndexKey {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The index key of a row.
#[must_use]
pub fn index_key(set: IndexSet, index: Secondary, row: &RowView<'_>, key: u64) -> IndexKey {
    let mut built = IndexKey::EMPTY;
    for column in set.columns(index) {
        built.push_column(*column, column.of(row));
    }
    built.push(&key.to_be_bytes());
    built
}

/// Where a range query starts: the first column alone, which every key with that value or a larger one follows.
/// All first columns are 32-bit numbers, so `None` = behind the largest.
#[must_use]
pub fn index_bound(set: IndexSet, index: Secondary, first: i64, strict: bool) -> Option<IndexKey> {
    let least = i32::try_from(first.saturating_add(i64::from(strict)).max(i64::from(i32::MIN))).ok()?;
    let mut built = IndexKey::EMPTY;
    built.push_column(set.columns(index)[0], i64::from(least));
    Some(built)
}

/// The columns in an index key, and the row's number.
pub fn index_entry(set: IndexSet, index: Secondary, bytes: &[u8]) -> Result<(Entry, u64)> {
    let mut entry = [0; 3];
    let mut rest = bytes;
    for (place, column) in entry.iter_mut().zip(set.columns(index)) {
        *place = match column {
            Column::DateAndTime => i64::from_be_bytes(front(&mut rest, bytes)?) ^ i64::MIN,
            _ => i64::from(i32::from_be_bytes(front(&mut rest, bytes)?) ^ i32::MIN),
        };
    }
    Ok((entry, primary_of(rest)?))
}

fn front<const N: usize>(rest: &mut &[u8], whole: &[u8]) -> Result<[u8; N]> {
    let (head, tail) = rest.split_first_chunk().ok_or_else(|| broken("index key", whole))?;
    *rest = tail;
    Ok(*head)
}

fn broken(what: &str, bytes: &[u8]) -> TargetError {
    TargetError::Failed(format!("a {what} of {} bytes cannot be read: {bytes:?}", bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(dateandtime: i64, customerid: i32, price: i32) -> RowView<'static> {
        RowView { dateandtime, cashregisterid: 7, customerid, productid: -9, price, data: b"text" }
    }

    #[test]
    fn rows_and_keys_come_back() {
        let mut bytes = Vec::new();
        encode_row(&row(-5, i32::MAX, i32::MIN), &mut bytes);
        assert_eq!(row_of(&bytes).unwrap(), row(-5, i32::MAX, i32::MIN));
        assert_eq!(row_of(&bytes[..ROW_FIXED_BYTES]).unwrap().data, b"");
        assert!(row_of(&bytes[..ROW_FIXED_BYTES - 1]).is_err());
        assert_eq!(customer_of(&bytes).unwrap(), i32::MAX);
        assert!(customer_of(&bytes[..15]).is_err());
        assert_eq!(primary_of(&primary(u64::MAX - 1)).unwrap(), u64::MAX - 1);
        assert!(primary_of(&[0; 7]).is_err());
        for set in [IndexSet::Y2017, IndexSet::Y2023] {
            for index in Secondary::ALL {
                let row = row(-1_700_000_000, -3, 499);
                let key = index_key(set, index, &row, 77);
                assert_eq!(index_entry(set, index, &key).unwrap(), (set.entry(index, &row), 77));
                assert!(index_entry(set, index, &key[..key.len() - 1]).is_err());
                assert!(index_entry(set, index, &key[..3]).is_err());
            }
        }
    }

    #[test]
    fn bytes_are_in_the_order_of_the_columns() {
        let numbers = [i32::MIN, -2, -1, 0, 1, 255, 256, i32::MAX];
        let dates = [i64::MIN, -1, 0, 1, i64::MAX];
        let mut entries = Vec::new();
        for (price, customerid) in numbers.iter().flat_map(|price| numbers.map(|customer| (*price, customer))) {
            for (date, key) in dates.iter().flat_map(|date| [1, 2, 256].map(|key| (*date, key))) {
                let row = row(date, customerid, price);
                let entry = IndexSet::Y2023.entry(Secondary::Pdc, &row);
                entries.push(((entry, key), index_key(IndexSet::Y2023, Secondary::Pdc, &row, key)));
            }
        }
        let mut by_bytes = entries.clone();
        entries.sort_by_key(|(columns, _)| *columns);
        by_bytes.sort_by(|(_, one), (_, other)| one[..].cmp(other));
        assert_eq!(entries, by_bytes);
        by_bytes.sort_by_key(|(_, key)| *key);
        assert_eq!(entries, by_bytes);
        assert!(primary(255) < primary(256));
    }

    #[test]
    fn a_bound_is_before_its_keys_and_behind_smaller_ones() {
        let key = |price| index_key(IndexSet::Y2023, Secondary::Pdc, &row(i64::MIN, i32::MIN, price), 0);
        for first in [-1, 0, 255, 499] {
            let bound = |strict| index_bound(IndexSet::Y2023, Secondary::Pdc, first, strict).unwrap();
            assert!(bound(false)[..] <= key(first as i32)[..] && bound(false)[..] > key(first as i32 - 1)[..]);
            assert!(bound(true)[..] > key(first as i32)[..] && bound(true)[..] <= key(first as i32 + 1)[..]);
        }
        assert!(index_bound(IndexSet::Y2023, Secondary::Pdc, i64::from(i32::MAX), true).is_none());
        assert!(index_bound(IndexSet::Y2023, Secondary::Pdc, i64::MIN, false).is_some());
    }
}
