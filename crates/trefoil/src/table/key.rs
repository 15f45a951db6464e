//! The key codec: byte strings compare as the values they were made of.
//!
//! | type | bytes |
//! |---|---|
//! | unsigned | big-endian |
//! | signed, timestamp | big-endian with the sign bit flipped |
//! | double | its bits: sign bit flipped if positive, all bits if negative (IEEE 754 total order) |
//! | bool | 0 or 1 |
//! | text, bytes | each 00 as 00 FF, then 00 00 |
//! | bytes of fixed width | themselves |
//!
//! A nullable column has 00 (NULL) or 01 before that. The columns of a key stand one after another: every encoding is
//! fixed in length or ends itself, so a key of the first columns is a prefix of the keys that have them, and of no other.
//!
//! Why 00 00 ends a string: whatever follows in a longer string, an ordinary byte or 00 FF, is larger.

use std::borrow::Cow;

use base::bytes::Reader;

use super::column::{Column, ColumnType};
use super::typed::{FromColumn, Timestamp};
use super::value::Value;

/// Most keys fit here, and so are made without growing.
pub const KEY_BYTES_USUAL: usize = 32;
pub(super) const NULL: u8 = 0;
pub(super) const PRESENT: u8 = 1;
pub(super) const SIGN_64: u64 = 1 << 63;
pub(super) const SIGN_32: u32 = 1 << 31;
/// After a 00 byte of a string.
const ESCAPED: u8 = 0xff;
const END: u8 = 0;

/// Appends `value`, which fits the column.
///
/// # Panics
/// If NULL is given for a column that is not nullable; [`super::Schema`] checks before.
pub fn put(out: &mut Vec<u8>, column: &Column, value: &Value<'_>) {
    if column.nullable {
        out.push(if value.is_null() { NULL } else { PRESENT });
    }
    match value {
        Value::Null => assert!(column.nullable, "values are checked against the schema first"),
        Value::I64(n) | Value::Timestamp(n) => out.extend_from_slice(&(*n as u64 ^ SIGN_64).to_be_bytes()),
        Value::I32(n) => out.extend_from_slice(&(*n as u32 ^ SIGN_32).to_be_bytes()),
        Value::U64(n) => out.extend_from_slice(&n.to_be_bytes()),
        Value::U32(n) => out.extend_from_slice(&n.to_be_bytes()),
        Value::F64(n) => out.extend_from_slice(&order_bits(n.to_bits()).to_be_bytes()),
        Value::Text(s) => put_string(out, s.as_bytes()),
        Value::Bytes(b) if matches!(column.column_type, ColumnType::Fixed(_)) => out.extend_from_slice(b),
        Value::Bytes(b) => put_string(out, b),
        Value::Bool(b) => out.push(u8::from(*b)),
    }
}

/// Reads what [`put`] wrote for `column`. `None` on malformed bytes.
pub fn take<'a>(reader: &mut Reader<'a>, column: &Column) -> Option<Value<'a>> {
    if column.nullable && take_null(reader)? {
        return Some(Value::Null);
    }
    Some(match column.column_type {
        ColumnType::I64 => Value::I64(i64::from_key(reader)?),
        ColumnType::Timestamp => Value::Timestamp(Timestamp::from_key(reader)?.0),
        ColumnType::I32 => Value::I32(i32::from_key(reader)?),
        ColumnType::U64 => Value::U64(u64::from_key(reader)?),
        ColumnType::U32 => Value::U32(u32::from_key(reader)?),
        ColumnType::F64 => Value::F64(f64::from_key(reader)?),
        ColumnType::Text => Value::Text(Cow::from_key(reader)?),
        ColumnType::Bytes => Value::Bytes(Cow::from_key(reader)?),
        ColumnType::Bool => Value::Bool(bool::from_key(reader)?),
        ColumnType::Fixed(bytes) => Value::Bytes(reader.take(bytes.into())?.into()),
    })
}

/// Reads the byte before a column that may be NULL: is it?
#[inline]
pub(super) fn take_null(reader: &mut Reader<'_>) -> Option<bool> {
    match reader.u8()? {
        NULL => Some(true),
        PRESENT => Some(false),
        _ => None,
    }
}

/// Passes over what [`put`] wrote for `column`. `None` on malformed bytes.
pub fn skip(reader: &mut Reader<'_>, column: &Column) -> Option<()> {
    if column.nullable && take_null(reader)? {
        return Some(());
    }
    let bytes = match width(column.column_type) {
        Some(bytes) => bytes,
        None => string_extent(reader.rest(), 0)?.0,
    };
    reader.take(bytes).map(drop)
}

/// Bytes of a value that is not NULL, if all of the type have as many.
#[inline]
pub(super) fn width(column_type: ColumnType) -> Option<usize> {
    match column_type {
        ColumnType::I64 | ColumnType::U64 | ColumnType::Timestamp | ColumnType::F64 => Some(8),
        ColumnType::I32 | ColumnType::U32 => Some(4),
        ColumnType::Bool => Some(1),
        ColumnType::Fixed(bytes) => Some(bytes.into()),
        ColumnType::Text | ColumnType::Bytes => None,
    }
}

/// Turns `prefix` into the smallest byte string above every string that starts with it. False, and empty, if there is
/// none: the range is open at the top.
///
/// ```
/// let mut end = vec![7, 0xff];
/// assert!(trefoil::table::key::successor(&mut end));
/// assert_eq!(end, [8]);
/// ```
pub fn successor(prefix: &mut Vec<u8>) -> bool {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            return true;
        }
    }
    false
}

fn order_bits(bits: u64) -> u64 {
    if bits & SIGN_64 == 0 { bits ^ SIGN_64 } else { !bits }
}

#[inline]
pub(super) fn value_bits(order: u64) -> u64 {
    if order & SIGN_64 == 0 { !order } else { order ^ SIGN_64 }
}

#[inline]
pub(super) fn be_u64(reader: &mut Reader<'_>) -> Option<u64> {
    reader.take(8).and_then(|b| b.try_into().ok()).map(u64::from_be_bytes)
}

#[inline]
pub(super) fn be_u32(reader: &mut Reader<'_>) -> Option<u32> {
    reader.take(4).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes)
}

pub(super) fn put_string(out: &mut Vec<u8>, mut bytes: &[u8]) {
    out.reserve(bytes.len() + 2);
    while let Some(at) = bytes.iter().position(|&b| b == 0) {
        out.extend_from_slice(&bytes[..=at]);
        out.push(ESCAPED);
        bytes = &bytes[at + 1..];
    }
    out.extend_from_slice(bytes);
    out.extend_from_slice(&[0, END]);
}

/// Encoded length of the string at the front, its end included, and how many zeroes it holds. All its bits are inverted with
/// those of `mask`.
#[inline]
pub(super) fn string_extent(bytes: &[u8], mask: u8) -> Option<(usize, usize)> {
    let (mut at, mut zeroes) = (0, 0);
    loop {
        at += bytes[at..].iter().position(|&b| b == mask)? + 1;
        match *bytes.get(at)? ^ mask {
            END => return Some((at + 1, zeroes)),
            ESCAPED => zeroes += 1,
            _ => return None,
        }
        at += 1;
    }
}

pub(super) fn take_string<'a>(reader: &mut Reader<'a>) -> Option<Cow<'a, [u8]>> {
    let (bytes, zeroes) = string_extent(reader.rest(), 0)?;
    let encoded = &reader.take(bytes)?[..bytes - 2];
    if zeroes == 0 {
        return Some(Cow::Borrowed(encoded));
    }
    let mut decoded = Vec::with_capacity(encoded.len() - zeroes);
    let mut rest = encoded.iter();
    while let Some(&byte) = rest.next() {
        decoded.push(byte);
        if byte == 0 {
            rest.next();
        }
    }
    Some(Cow::Owned(decoded))
}
