// SPDX-License-Identifier: GPL-2.0-only
//! One column: bytes of the server's record as a value of the engine, and back.
//!
//! | in the record | column of the engine |
//! |---|---|
//! | integer of up to 4 bytes, of 8 | `I32` or `U32`, `I64` or `U64` |
//! | FLOAT, DOUBLE | `Fixed`, with a collation of their own: 0 and -0 are one key, and come back as they were written |
//! | image in the order of the values, of up to 4 bytes, of 8, longer | `U32`, `U64`, `Fixed` |
//! | BINARY, and CHAR that its bytes order | `Fixed` |
//! | other CHAR | `Bytes`, without what it is filled up with, and its collation |
//! | VARCHAR, BLOB | `Bytes`, and the collation if its bytes do not order it |
//!
//! That is so whether a key has the column or not: a key can come later.

use trefoil::{ColumnType, Value};

use crate::abi;
use crate::collation;
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

/// To copy less is no more work than to look how much it is.
const LONG_VARCHAR: usize = 64;

/// A VARCHAR in the server's record.
#[derive(Debug, Clone, Copy)]
pub struct Text {
    pub offset: usize,
    pub length_bytes: usize,
    /// Bytes of the longest value.
    pub length: usize,
}

impl Text {
    /// Bytes of its length and its value, which `bytes` begin with.
    #[inline]
    pub fn used(&self, bytes: &[u8]) -> usize {
        self.length_bytes + self.length.min(little_endian(&bytes[..self.length_bytes]) as usize)
    }
}

/// A column of the server's record.
#[derive(Debug, Clone)]
pub struct Field {
    kind: Kind,
    offset: usize,
    length: usize,
    length_bytes: usize,
    /// In the server.
    number: usize,
    /// Where its NULL is told, and by which bit.
    null: Option<(usize, u8)>,
    /// What stands in the record while it is NULL, as the server has it there: the default.
    under_null: Box<[u8]>,
    /// What it is filled up with.
    pad: [u8; 4],
    pad_length: usize,
    /// What orders it in keys, as the engine knows it; its bytes if there is none.
    collation: Option<u32>,
}

impl Field {
    /// `defaults` is a record of the default values.
    pub fn new(name: &str, from: &abi::Field, defaults: &[u8]) -> Result<Self> {
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
        let collation = match kind {
            Kind::Float => Some(collation::FLOAT),
            Kind::Double => Some(collation::DOUBLE),
            Kind::Char | Kind::Varchar | Kind::Blob if from.collation != 0 => {
                Some(collation::number(from.collation, from.characters))
            }
            _ => None,
        };
        let (pad, pad_length) = (from.pad, usize::from(from.pad_length));
        let number = from.number as usize;
        let under_null = Box::default();
        let mut field =
            Self { kind, offset, length, length_bytes, number, null, under_null, pad, pad_length, collation };
        let fits = match kind {
            Kind::Signed | Kind::Unsigned => (1..=8).contains(&length),
            Kind::Float => length == 4,
            Kind::Double => length == 8,
            Kind::Image => (1..=255).contains(&length),
            Kind::Char => length <= 255 * 4 && (1..=4).contains(&pad_length),
            Kind::Varchar => (1..=2).contains(&length_bytes),
            Kind::Blob => (1..=4).contains(&length_bytes),
        };
        let slot = defaults.get(offset..offset + field.record_bytes()).filter(|_| fits);
        let Some(slot) = slot.filter(|_| null.is_none_or(|(at, _)| at < defaults.len())) else {
            return Err(Failure::definition(&format!("column `{name}` does not lie in the record")));
        };
        if null.is_some() {
            field.under_null = field.text().map_or(slot, |text| &slot[..text.used(slot)]).into();
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

    /// Where it is, if its value may be much shorter than its room.
    pub fn text(&self) -> Option<Text> {
        let Self { offset, length_bytes, length, .. } = *self;
        (self.kind == Kind::Varchar && length >= LONG_VARCHAR).then_some(Text { offset, length_bytes, length })
    }

    /// It is among the columns that the server reads: a bit for each, the lowest of a byte first. Behind the last byte all are.
    pub fn is_read(&self, bits: &[u8]) -> bool {
        bits.get(self.number / 8).is_none_or(|byte| byte >> (self.number % 8) & 1 == 1)
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
            (Kind::Float | Kind::Double | Kind::Image, length) => ColumnType::Fixed(length as u8),
            (Kind::Char, 1..=255) if self.collation.is_none() => ColumnType::Fixed(self.length as u8),
            _ => ColumnType::Bytes,
        }
    }

    pub fn collation(&self) -> Option<u32> {
        self.collation
    }

    /// Bytes of its key at most, if a key has all of it.
    pub fn key_bytes_max(&self) -> usize {
        self.front_bytes_max(self.length)
    }

    /// The same of its first `length` bytes, if its bytes order it.
    pub fn front_bytes_max(&self, length: usize) -> usize {
        match self.column_type() {
            ColumnType::I32 | ColumnType::U32 => 4,
            ColumnType::Fixed(width) => width.into(),
            ColumnType::Bytes => 2 * length + 2,
            _ => 8,
        }
    }

    /// Bytes that a row's reference needs for it, where it is made of values; `length` in a key of the server.
    pub fn ref_bytes_max(&self, length: usize) -> usize {
        match self.column_type() {
            ColumnType::I32 | ColumnType::U32 => 4,
            ColumnType::I64 | ColumnType::U64 => 8,
            ColumnType::Fixed(whole) => 2 + usize::from(whole),
            _ => 2 + length,
        }
    }

    /// Appends a value to a row's reference: of a string as much as the key can have.
    pub fn put_ref(&self, value: &Value<'_>, length: usize, out: &mut Vec<u8>) {
        match value {
            Value::I32(n) => out.extend(n.to_le_bytes()),
            Value::U32(n) => out.extend(n.to_le_bytes()),
            Value::I64(n) => out.extend(n.to_le_bytes()),
            Value::U64(n) => out.extend(n.to_le_bytes()),
            Value::Bytes(bytes) => {
                let whole = matches!(self.column_type(), ColumnType::Fixed(_));
                let bytes = if whole { bytes } else { &bytes[..bytes.len().min(length)] };
                out.extend((bytes.len() as u16).to_le_bytes());
                out.extend_from_slice(bytes);
            }
            _ => {}
        }
    }

    /// The value at the front of what is left of a reference.
    pub fn take_ref<'a>(&self, rest: &mut &'a [u8]) -> Option<Value<'a>> {
        let mut take = |bytes: usize| {
            let (taken, behind) = rest.split_at_checked(bytes)?;
            *rest = behind;
            Some(taken)
        };
        Some(match self.column_type() {
            ColumnType::I32 => Value::I32(little_endian(take(4)?) as i32),
            ColumnType::U32 => Value::U32(little_endian(take(4)?) as u32),
            ColumnType::I64 => Value::I64(little_endian(take(8)?) as i64),
            ColumnType::U64 => Value::U64(little_endian(take(8)?)),
            _ => {
                let length = little_endian(take(2)?) as usize;
                Value::from(take(length)?)
            }
        })
    }

    /// A value of a number, cut to a whole one; 0 if there is none above.
    pub fn whole_number(&self, value: &Value<'_>) -> u64 {
        match value {
            Value::I32(n) => u64::try_from(*n).unwrap_or(0),
            Value::I64(n) => u64::try_from(*n).unwrap_or(0),
            Value::U32(n) => u64::from(*n),
            Value::U64(n) => *n,
            Value::Bytes(bytes) if self.kind == Kind::Float => {
                bytes.as_ref().try_into().map_or(0, |bits| f32::from_le_bytes(bits) as u64)
            }
            Value::Bytes(bytes) if self.kind == Kind::Double => {
                bytes.as_ref().try_into().map_or(0, |bits| f64::from_le_bytes(bits) as u64)
            }
            _ => 0,
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
            Kind::Varchar => Value::from(&at[self.length_bytes..][..little_endian(&at[..self.length_bytes]) as usize]),
            Kind::Blob => {
                let length = little_endian(&at[..self.length_bytes]) as usize;
                Value::from(record.blob(self.offset + self.length_bytes, length))
            }
            _ => self.fixed(&at[..self.length]),
        }
    }

    /// Its value at the front of a key of the server, which has `length` bytes of it, and what is behind it.
    pub fn key_value<'a>(&self, image: &'a [u8], length: usize) -> Option<(Value<'a>, &'a [u8])> {
        let (mut image, mut is_null) = (image, false);
        if self.is_nullable() {
            let (flag, rest) = image.split_first()?;
            (image, is_null) = (rest, *flag != 0);
        }
        let head = if matches!(self.kind, Kind::Varchar | Kind::Blob) { 2 } else { 0 };
        if is_null {
            // Whatever stands there.
            return Some((Value::Null, image.get(head + length..)?));
        }
        let (value, rest) = match self.kind {
            Kind::Varchar | Kind::Blob => {
                let (used, rest) = image.split_first_chunk::<2>()?;
                let (slot, rest) = rest.split_at_checked(length)?;
                (Value::from(slot.get(..usize::from(u16::from_le_bytes(*used)))?), rest)
            }
            _ => {
                let (slot, rest) = image.split_at_checked(length)?;
                (self.fixed(slot), rest)
            }
        };
        Some((value, rest))
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
            Kind::Char => self.char(bytes),
            _ => Value::from(bytes),
        }
    }

    fn number(&self, n: u64) -> Value<'static> {
        if self.length <= 4 { Value::U32(n as u32) } else { Value::U64(n) }
    }

    /// Of BINARY a key of the server may have the front alone: what is behind it does not matter to the key here.
    fn char<'a>(&self, bytes: &'a [u8]) -> Value<'a> {
        let mut text = bytes;
        if let ColumnType::Fixed(length) = self.column_type() {
            if bytes.len() == usize::from(length) {
                return Value::from(bytes);
            }
            let mut whole = bytes.to_vec();
            whole.resize(length.into(), 0);
            return Value::Bytes(whole.into());
        }
        while let Some(rest) = text.strip_suffix(self.pad()) {
            text = rest;
        }
        Value::from(text)
    }

    fn pad(&self) -> &[u8] {
        &self.pad[..self.pad_length]
    }

    /// Writes a value into a record. A blob is kept in `blobs`, where the record points to.
    pub fn put(&self, value: &Value<'_>, record: &mut [u8], blobs: &mut Vec<Box<[u8]>>) -> Result<()> {
        match value {
            Value::Null => self.put_null(record),
            Value::I32(n) => self.put_signed((*n).into(), record),
            Value::I64(n) => self.put_signed(*n, record),
            Value::U32(n) => self.put_unsigned((*n).into(), record),
            Value::U64(n) => self.put_unsigned(*n, record),
            Value::Bytes(bytes) => self.put_bytes(bytes, record, blobs),
            _ => Err(misfit()),
        }
    }

    #[inline]
    pub fn put_null(&self, record: &mut [u8]) -> Result<()> {
        let (at, bit) = self.null.ok_or_else(misfit)?;
        record[at] |= bit;
        record[self.offset..][..self.under_null.len()].copy_from_slice(&self.under_null);
        Ok(())
    }

    #[inline]
    pub fn put_signed(&self, n: i64, record: &mut [u8]) -> Result<()> {
        match (self.kind, self.slot(record)) {
            (Kind::Signed, slot) => put_little_endian(slot, n as u64),
            _ => return Err(misfit()),
        }
        Ok(())
    }

    #[inline]
    pub fn put_unsigned(&self, n: u64, record: &mut [u8]) -> Result<()> {
        match (self.kind, self.slot(record)) {
            (Kind::Unsigned, slot) => put_little_endian(slot, n),
            (Kind::Image, slot) => put_big_endian(slot, n),
            _ => return Err(misfit()),
        }
        Ok(())
    }

    #[inline]
    pub fn put_bytes(&self, bytes: &[u8], record: &mut [u8], blobs: &mut Vec<Box<[u8]>>) -> Result<()> {
        let slot = self.slot(record);
        match self.kind {
            Kind::Float | Kind::Double | Kind::Image if bytes.len() == slot.len() => slot.copy_from_slice(bytes),
            Kind::Char if bytes.len() <= slot.len() => {
                let (text, behind) = slot.split_at_mut(bytes.len());
                text.copy_from_slice(bytes);
                match *self.pad() {
                    [pad] => behind.fill(pad),
                    ref pad => behind.iter_mut().zip(pad.iter().cycle()).for_each(|(byte, pad)| *byte = *pad),
                }
            }
            Kind::Varchar if bytes.len() <= self.length => {
                let (length, text) = slot.split_at_mut(self.length_bytes);
                put_little_endian(length, bytes.len() as u64);
                text[..bytes.len()].copy_from_slice(bytes);
            }
            Kind::Blob => {
                let (length, to) = slot.split_at_mut(self.length_bytes);
                put_little_endian(length, bytes.len() as u64);
                let blob: Box<[u8]> = bytes.into();
                to.copy_from_slice(&(blob.as_ptr() as usize).to_ne_bytes());
                blobs.push(blob);
            }
            _ => return Err(misfit()),
        }
        Ok(())
    }

    /// Where a record has it, which is not NULL from now on.
    #[inline]
    fn slot<'a>(&self, record: &'a mut [u8]) -> &'a mut [u8] {
        if let Some((at, bit)) = self.null {
            record[at] &= !bit;
        }
        &mut record[self.offset..][..self.record_bytes()]
    }
}

#[cold]
fn misfit() -> Box<Failure> {
    Failure::definition("a stored value does not fit its column")
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte))
}

#[inline]
fn put_little_endian(slot: &mut [u8], n: u64) {
    match slot.len() {
        4 => slot.copy_from_slice(&(n as u32).to_le_bytes()),
        8 => slot.copy_from_slice(&n.to_le_bytes()),
        length => slot.copy_from_slice(&n.to_le_bytes()[..length]),
    }
}

fn put_big_endian(slot: &mut [u8], n: u64) {
    let length = slot.len();
    slot.copy_from_slice(&n.to_be_bytes()[8 - length..]);
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An INT that has this number in the server.
    pub fn numbered(number: u32) -> Field {
        Field::new("c", &abi::Field { number, ..from(1, 4, 0) }, &[0; 64]).expect("it fits")
    }

    /// A VARCHAR at that place of a record.
    pub fn varchar(offset: u32, length: u32, length_bytes: u8) -> Field {
        Field::new("c", &abi::Field { offset, ..from(7, length, length_bytes) }, &[0; 1024]).expect("it fits")
    }

    fn from(kind: u8, length: u32, length_bytes: u8) -> abi::Field {
        let (offset, null_offset, null_bit) = (1, 0, 2);
        let name = abi::Text { ptr: std::ptr::null(), len: 0 };
        let (pad, pad_length, collation, characters, number) = ([b' ', 0, 0, 0], 1, 0, 0, 0);
        abi::Field {
            name,
            offset,
            length,
            null_offset,
            null_bit,
            kind,
            length_bytes,
            pad_length,
            pad,
            collation,
            characters,
            number,
        }
    }

    fn field(kind: u8, length: u32, length_bytes: u8) -> Field {
        Field::new("c", &from(kind, length, length_bytes), &[0; 64]).expect("it fits")
    }

    fn text(length: u32) -> Field {
        Field::new("c", &abi::Field { collation: 8, ..from(6, length, 0) }, &[0; 64]).expect("it fits")
    }

    fn there_and_back(field: &Field, bytes: &[u8]) -> Value<'static> {
        let mut record = [0xEE; 64];
        record[0] = 0;
        record[1..=bytes.len()].copy_from_slice(bytes);
        let value = field.value(Record::with_blobs(&record, &[])).into_owned();
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
        assert_eq!(there_and_back(&field(3, 4, 0), &1.5f32.to_le_bytes()), Value::from(&1.5f32.to_le_bytes()[..]));
        assert_eq!(
            there_and_back(&field(4, 8, 0), &(-0.0f64).to_le_bytes()),
            Value::from(&(-0.0f64).to_le_bytes()[..])
        );
        assert_eq!(there_and_back(&field(5, 5, 0), &[0x99, 1, 2, 3, 4]), Value::U64(0x99_0102_0304));
        assert_eq!(there_and_back(&field(5, 9, 0), &[7; 9]), Value::Bytes(vec![7; 9].into()));
        assert_eq!(there_and_back(&field(6, 4, 0), b"ab  "), Value::Bytes(b"ab  ".to_vec().into()));
        assert_eq!(there_and_back(&text(4), b"ab  "), Value::Bytes(b"ab".to_vec().into()));
        let wide = abi::Field { collation: 35, pad: [0, b' ', 0, 0], pad_length: 2, ..from(6, 6, 0) };
        let wide = Field::new("c", &wide, &[0; 64]).expect("it fits");
        assert_eq!(there_and_back(&wide, b"\x01 \0 \0 "), Value::Bytes(b"\x01 ".to_vec().into()));
        assert_eq!(there_and_back(&field(7, 9, 1), b"\x02ab"), Value::Bytes(b"ab".to_vec().into()));
        assert_eq!(there_and_back(&field(7, 9, 2), b"\x00\x00"), Value::Bytes(Vec::new().into()));
    }

    /// Guards: the column's type and collation in `column_type` and `new`.
    #[test]
    fn what_does_not_stand_for_itself_in_a_key_has_a_collation() {
        assert_eq!(
            (field(4, 8, 0).column_type(), field(4, 8, 0).collation()),
            (ColumnType::Fixed(8), Some(1 << 31 | 1))
        );
        assert_eq!((field(6, 4, 0).column_type(), field(6, 4, 0).collation()), (ColumnType::Fixed(4), None));
        assert_eq!((text(4).column_type(), text(4).collation()), (ColumnType::Bytes, Some(8)));
        let padded = abi::Field { collation: 8, characters: 4, ..from(6, 4, 0) };
        assert_eq!(Field::new("c", &padded, &[0; 64]).expect("it fits").collation(), Some(4 << 16 | 8));
    }

    #[test]
    fn a_value_in_a_reference_comes_back() {
        let fields = [field(1, 4, 0), field(2, 8, 0), field(6, 3, 0), field(7, 9, 1), field(4, 8, 0)];
        let values = [Value::I32(-5), Value::U64(7), Value::from(&b"a\0b"[..]), Value::from(&b"text"[..])];
        let values: Vec<Value<'_>> = values.into_iter().chain([Value::from(&[0x80; 8][..])]).collect();
        let mut reference = Vec::new();
        fields.iter().zip(&values).for_each(|(field, value)| field.put_ref(value, 9, &mut reference));
        let mut rest = &reference[..];
        for (field, value) in fields.iter().zip(&values) {
            assert_eq!(field.take_ref(&mut rest), Some(value.clone()));
        }
        assert!(rest.is_empty() && fields[0].take_ref(&mut rest).is_none());
    }

    #[test]
    fn null_and_blobs() {
        let blob = field(8, 100, 2);
        let (mut record, mut blobs) = ([0; 64], Vec::new());
        blob.put(&Value::from(&b"a blob"[..]), &mut record, &mut blobs).expect("it fits");
        assert_eq!((record[1], &*blobs[0]), (6, &b"a blob"[..]));
        assert_eq!(record[3..11], (blobs[0].as_ptr() as usize).to_ne_bytes());
        assert_eq!(blob.value(Record::with_blobs(&record, &[])), Value::from(&b""[..])); // nobody promised them
        blob.put(&Value::Null, &mut record, &mut blobs).expect("it fits");
        assert!(blob.value(Record::with_blobs(&record, &[])).is_null());
    }

    /// Guard: what stands under a NULL is put back, in `put_null`. Records are made one over another.
    #[test]
    fn under_a_null_is_the_default() {
        let mut defaults = [0; 64];
        defaults[..5].copy_from_slice(b"\x02\x03abc");
        let fields = [from(1, 4, 0), from(7, 62, 1), from(7, 40, 1)];
        for field in fields.map(|field| Field::new("c", &field, &defaults[..]).expect("it fits")) {
            let (mut record, mut blobs) = (defaults, Vec::new());
            let text = Value::from(&b"a value"[..]);
            let value = if field.kind == Kind::Signed { Value::I32(-1) } else { text };
            field.put(&value, &mut record, &mut blobs).expect("it fits");
            assert_ne!(record, defaults);
            field.put(&Value::Null, &mut record, &mut blobs).expect("it can be NULL");
            assert_eq!(record[..5], defaults[..5]);
        }
    }

    #[test]
    fn a_key_of_the_server_is_read_part_by_part() {
        let (int, text) = (field(1, 4, 0), field(7, 5, 1));
        let image = [&[0][..], &7i32.to_le_bytes(), &[0, 2, 0], b"ab\0\0\0", &[1], &[0xEE; 4]].concat();
        let (value, rest) = int.key_value(&image, 4).expect("an integer");
        assert_eq!(value, Value::I32(7));
        let (value, rest) = text.key_value(rest, 5).expect("a string");
        assert_eq!(value, Value::from(&b"ab"[..]));
        let (value, rest) = int.key_value(rest, 4).expect("a NULL");
        assert!(value.is_null() && rest.is_empty());
        let null = [1, 0xEE, 0xEE, 0xEE, 0xEE, 0xEE, 0xEE, 0xEE];
        assert_eq!(text.key_value(&null, 5), Some((Value::Null, &[][..])));
        assert!(int.key_value(&image[..3], 4).is_none());
    }

    /// Guards: the numbers of the server in `is_read`.
    #[test]
    fn a_column_is_read_by_the_number_that_it_has_in_the_server() {
        let fields = [0, 2, 3, 8].map(numbered); // 1 is not kept
        assert_eq!(fields.map(|field| field.is_read(&[0b0000_1010])), [false, false, true, true]);
    }

    /// Guard: the check in `new`.
    #[test]
    fn a_column_outside_the_record_is_refused() {
        let outside = abi::Field { offset: 60, ..from(1, 8, 0) };
        assert!(Field::new("c", &outside, &[0; 64]).expect_err("it ends behind").is(Code::Definition));
    }
}
