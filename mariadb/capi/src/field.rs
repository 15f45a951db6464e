// SPDX-License-Identifier: GPL-2.0-only
//! One column: bytes of the server's record as a value of the engine, and back.
//!
//! | in the record | column of the engine |
//! |---|---|
//! | integer of up to 4 bytes, of 8 | `I32` or `U32`, `I64` or `U64` |
//! | FLOAT, DOUBLE | `F64`; 0 and -0 are one value where a key has the column |
//! | image in the order of the values, of up to 4 bytes, of 8, longer | `U32`, `U64`, `Bytes` |
//! | CHAR | `Bytes`: of the whole length where a key has the column, otherwise without what it is filled up with |
//! | VARCHAR, BLOB | `Bytes` |

use std::borrow::Cow;

use trefoil::{ColumnType, Value};

use crate::abi;
use crate::failure::{Code, Failure, Result};
use crate::raw::Record;

/// How the bytes of a column are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Signed,
    Unsigned,
    Float,
    Double,
    Image,
    Char,
    Varchar,
    Blob,
}

/// A column of the server's record.
#[derive(Debug, Clone)]
pub struct Field {
    kind: Kind,
    offset: usize,
    length: usize,
    length_bytes: usize,
    /// Where its NULL is told, and by which bit.
    null: Option<(usize, u8)>,
    pad: u8,
    /// A key has it.
    pub keyed: bool,
}

impl Field {
    pub fn new(name: &str, from: &abi::Field, record_length: usize) -> Result<Self> {
        let kind = match from.kind {
            1 => Kind::Signed,
            2 => Kind::Unsigned,
            3 => Kind::Float,
            4 => Kind::Double,
            5 => Kind::Image,
            6 => Kind::Char,
            7 => Kind::Varchar,
            8 => Kind::Blob,
            _ => return Err(Failure::new(Code::Unsupported, &format!("column `{name}` is of a type unknown here"))),
        };
        let (offset, length) = (from.offset as usize, from.length as usize);
        let length_bytes = usize::from(from.length_bytes);
        let null = (from.null_bit != 0).then_some((from.null_offset as usize, from.null_bit));
        let field = Self { kind, offset, length, length_bytes, null, pad: from.pad, keyed: false };
        let fits = match kind {
            Kind::Signed | Kind::Unsigned => (1..=8).contains(&length),
            Kind::Float => length == 4,
            Kind::Double => length == 8,
            Kind::Image | Kind::Char => true,
            Kind::Varchar => (1..=2).contains(&length_bytes),
            Kind::Blob => (1..=4).contains(&length_bytes),
        };
        let end = offset + field.record_bytes();
        if !fits || end > record_length || null.is_some_and(|(at, _)| at >= record_length) {
            return Err(Failure::definition(&format!("column `{name}` does not lie in the record")));
        }
        Ok(field)
    }

    /// Bytes that it takes in the record.
    fn record_bytes(&self) -> usize {
        match self.kind {
            Kind::Blob => self.length_bytes + size_of::<usize>(),
            _ => self.length_bytes + self.length,
        }
    }

    pub fn is_nullable(&self) -> bool {
        self.null.is_some()
    }

    pub fn is_unsigned(&self) -> bool {
        self.kind == Kind::Unsigned
    }

    pub fn column_type(&self) -> ColumnType {
        match (self.kind, self.length) {
            (Kind::Signed, 1..=4) => ColumnType::I32,
            (Kind::Signed, _) => ColumnType::I64,
            (Kind::Unsigned | Kind::Image, 0..=4) => ColumnType::U32,
            (Kind::Unsigned | Kind::Image, 5..=8) => ColumnType::U64,
            (Kind::Float | Kind::Double, _) => ColumnType::F64,
            _ => ColumnType::Bytes,
        }
    }

    /// Bytes of its key at most.
    pub fn key_bytes_max(&self) -> usize {
        match self.column_type() {
            ColumnType::I32 | ColumnType::U32 => 4,
            ColumnType::Bytes => 2 * self.length + 2,
            _ => 8,
        }
    }

    /// Its value in a record.
    pub fn value<'a>(&self, record: Record<'a>) -> Value<'a> {
        let bytes = record.bytes();
        if self.null.is_some_and(|(at, bit)| bytes[at] & bit != 0) {
            return Value::Null;
        }
        let at = &bytes[self.offset..];
        match self.kind {
            Kind::Varchar => self.string(&at[self.length_bytes..][..little_endian(&at[..self.length_bytes]) as usize]),
            Kind::Blob => {
                let length = little_endian(&at[..self.length_bytes]) as usize;
                self.string(record.blob(self.offset + self.length_bytes, length))
            }
            _ => self.fixed(&at[..self.length]),
        }
    }

    /// Its value at the front of a key of the server, and what is behind it.
    pub fn key_value<'a>(&self, image: &'a [u8]) -> Option<(Value<'a>, &'a [u8])> {
        let (mut image, mut is_null) = (image, false);
        if self.is_nullable() {
            let (flag, rest) = image.split_first()?;
            (image, is_null) = (rest, *flag != 0);
        }
        let (value, rest) = match self.kind {
            Kind::Varchar | Kind::Blob => {
                let (length, rest) = image.split_first_chunk::<2>()?;
                let (slot, rest) = rest.split_at_checked(self.length)?;
                (self.string(slot.get(..usize::from(u16::from_le_bytes(*length)))?), rest)
            }
            _ => {
                let (slot, rest) = image.split_at_checked(self.length)?;
                (self.fixed(slot), rest)
            }
        };
        Some((if is_null { Value::Null } else { value }, rest))
    }

    fn fixed<'a>(&self, bytes: &'a [u8]) -> Value<'a> {
        match self.kind {
            Kind::Signed => {
                let shift = 64 - 8 * self.length;
                let n = ((little_endian(bytes) << shift) as i64) >> shift;
                if self.length <= 4 { Value::I32(n as i32) } else { Value::I64(n) }
            }
            Kind::Unsigned => self.number(little_endian(bytes)),
            Kind::Image if self.length <= 8 => self.number(bytes.iter().fold(0, |n, &byte| n << 8 | u64::from(byte))),
            Kind::Float => self.real(f64::from(f32::from_bits(little_endian(bytes) as u32))),
            Kind::Double => self.real(f64::from_bits(little_endian(bytes))),
            _ => self.string(bytes),
        }
    }

    fn number(&self, n: u64) -> Value<'static> {
        if self.length <= 4 { Value::U32(n as u32) } else { Value::U64(n) }
    }

    fn real(&self, n: f64) -> Value<'static> {
        Value::F64(if self.keyed && n == 0.0 { 0.0 } else { n })
    }

    fn string<'a>(&self, bytes: &'a [u8]) -> Value<'a> {
        let mut bytes = bytes;
        if self.kind == Kind::Char && !self.keyed {
            let filled = bytes.iter().rev().take_while(|&&byte| byte == self.pad).count();
            bytes = &bytes[..bytes.len() - filled];
        }
        Value::Bytes(Cow::Borrowed(bytes))
    }

    /// Writes a value into a record. A blob is kept in `blobs`, where the record points to.
    pub fn put(&self, value: &Value<'_>, record: &mut [u8], blobs: &mut Vec<Box<[u8]>>) -> Result<()> {
        if let Some((at, bit)) = self.null {
            record[at] &= !bit;
            if value.is_null() {
                record[at] |= bit;
                return Ok(());
            }
        }
        let bytes = self.record_bytes();
        let slot = &mut record[self.offset..][..bytes];
        match (self.kind, value) {
            (Kind::Signed, Value::I32(n)) => put_little_endian(slot, i64::from(*n) as u64),
            (Kind::Signed, Value::I64(n)) => put_little_endian(slot, *n as u64),
            (Kind::Unsigned, Value::U32(n)) => put_little_endian(slot, u64::from(*n)),
            (Kind::Unsigned, Value::U64(n)) => put_little_endian(slot, *n),
            (Kind::Image, Value::U32(n)) => put_big_endian(slot, u64::from(*n)),
            (Kind::Image, Value::U64(n)) => put_big_endian(slot, *n),
            (Kind::Float, Value::F64(n)) => slot.copy_from_slice(&(*n as f32).to_le_bytes()),
            (Kind::Double, Value::F64(n)) => slot.copy_from_slice(&n.to_le_bytes()),
            (Kind::Image | Kind::Char, Value::Bytes(b)) if b.len() <= slot.len() => {
                slot[..b.len()].copy_from_slice(b);
                slot[b.len()..].fill(self.pad);
            }
            (Kind::Varchar, Value::Bytes(b)) if b.len() <= self.length => {
                put_little_endian(&mut slot[..self.length_bytes], b.len() as u64);
                slot[self.length_bytes..][..b.len()].copy_from_slice(b);
            }
            (Kind::Blob, Value::Bytes(b)) => {
                put_little_endian(&mut slot[..self.length_bytes], b.len() as u64);
                let blob: Box<[u8]> = b.as_ref().into();
                slot[self.length_bytes..].copy_from_slice(&(blob.as_ptr() as usize).to_ne_bytes());
                blobs.push(blob);
            }
            _ => return Err(Failure::definition("a stored value does not fit its column")),
        }
        Ok(())
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte))
}

fn put_little_endian(slot: &mut [u8], n: u64) {
    let length = slot.len();
    slot.copy_from_slice(&n.to_le_bytes()[..length]);
}

fn put_big_endian(slot: &mut [u8], n: u64) {
    let length = slot.len();
    slot.copy_from_slice(&n.to_be_bytes()[8 - length..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(kind: u8, length: u32, length_bytes: u8) -> Field {
        let name = abi::Text { ptr: std::ptr::null(), len: 0 };
        let from = abi::Field { name, offset: 1, length, null_offset: 0, null_bit: 2, kind, length_bytes, pad: b' ' };
        Field::new("c", &from, 64).expect("it fits")
    }

    fn there_and_back(field: &Field, bytes: &[u8]) -> Value<'static> {
        let mut record = [0xEE; 64];
        record[0] = 0;
        record[1..=bytes.len()].copy_from_slice(bytes);
        let value = field.value(Record::without_blobs(&record)).into_owned();
        let mut again = [0xEE; 64];
        field.put(&value, &mut again, &mut Vec::new()).expect("it fits");
        assert_eq!(again[1..=bytes.len()], *bytes);
        assert_eq!(again[0] & 2, 0);
        value
    }

    #[test]
    fn bytes_of_a_record_become_values_and_the_same_bytes_again() {
        assert_eq!(there_and_back(&field(1, 1, 0), &[0x80]), Value::I32(-128));
        assert_eq!(there_and_back(&field(1, 3, 0), &[0xFE, 0xFF, 0xFF]), Value::I32(-2));
        assert_eq!(there_and_back(&field(1, 8, 0), &(-7i64).to_le_bytes()), Value::I64(-7));
        assert_eq!(there_and_back(&field(2, 3, 0), &[1, 2, 3]), Value::U32(0x03_0201));
        assert_eq!(there_and_back(&field(2, 8, 0), &u64::MAX.to_le_bytes()), Value::U64(u64::MAX));
        assert_eq!(there_and_back(&field(3, 4, 0), &1.5f32.to_le_bytes()), Value::F64(1.5));
        assert_eq!(there_and_back(&field(4, 8, 0), &(-0.0f64).to_le_bytes()), Value::F64(-0.0));
        assert_eq!(there_and_back(&field(5, 5, 0), &[0x99, 1, 2, 3, 4]), Value::U64(0x99_0102_0304));
        assert_eq!(there_and_back(&field(5, 9, 0), &[7; 9]), Value::Bytes(vec![7; 9].into()));
        assert_eq!(there_and_back(&field(6, 4, 0), b"ab  "), Value::Bytes(b"ab".to_vec().into()));
        assert_eq!(there_and_back(&field(7, 9, 1), b"\x02ab"), Value::Bytes(b"ab".to_vec().into()));
        assert_eq!(there_and_back(&field(7, 9, 2), b"\x00\x00"), Value::Bytes(Vec::new().into()));
    }

    /// Guards: `keyed` in `string` and `real`.
    #[test]
    fn what_a_key_has_is_stored_in_one_form() {
        let (mut char, mut double) = (field(6, 4, 0), field(4, 8, 0));
        (char.keyed, double.keyed) = (true, true);
        assert_eq!(there_and_back(&char, b"ab  "), Value::Bytes(b"ab  ".to_vec().into()));
        let mut record = [0; 64];
        record[1..9].copy_from_slice(&(-0.0f64).to_le_bytes());
        let Value::F64(zero) = double.value(Record::without_blobs(&record)) else { panic!("a double") };
        assert!(zero.is_sign_positive());
    }

    #[test]
    fn null_and_blobs() {
        let blob = field(8, 100, 2);
        let (mut record, mut blobs) = ([0; 64], Vec::new());
        blob.put(&Value::from(&b"a blob"[..]), &mut record, &mut blobs).expect("it fits");
        assert_eq!((record[1], &*blobs[0]), (6, &b"a blob"[..]));
        assert_eq!(record[3..11], (blobs[0].as_ptr() as usize).to_ne_bytes());
        assert_eq!(blob.value(Record::without_blobs(&record)), Value::from(&b""[..])); // nobody promised them
        blob.put(&Value::Null, &mut record, &mut blobs).expect("it fits");
        assert!(blob.value(Record::without_blobs(&record)).is_null());
    }

    #[test]
    fn a_key_of_the_server_is_read_part_by_part() {
        let (int, text) = (field(1, 4, 0), field(7, 5, 1));
        let image = [&[0][..], &7i32.to_le_bytes(), &[0, 2, 0], b"ab\0\0\0", &[1], &[0; 4]].concat();
        let (value, rest) = int.key_value(&image).expect("an integer");
        assert_eq!(value, Value::I32(7));
        let (value, rest) = text.key_value(rest).expect("a string");
        assert_eq!(value, Value::from(&b"ab"[..]));
        let (value, rest) = int.key_value(rest).expect("a NULL");
        assert!(value.is_null() && rest.is_empty());
        assert!(int.key_value(&image[..3]).is_none());
    }

    /// Guard: the check in `new`.
    #[test]
    fn a_column_outside_the_record_is_refused() {
        let name = abi::Text { ptr: std::ptr::null(), len: 0 };
        let from =
            abi::Field { name, offset: 60, length: 8, null_offset: 0, null_bit: 0, kind: 1, length_bytes: 0, pad: 0 };
        assert!(Field::new("c", &from, 64).expect_err("it ends behind").is(Code::Definition));
    }
}
