//! How a column stands in a key: which way round, and how much of it.
//!
//! | part | bytes |
//! |---|---|
//! | whole | as [`super::key`] says |
//! | front | the same of the first so many bytes of the value; of text, characters |
//! | collated | a byte for NULL or not if it may be, then what the collation makes of the text, as a string |
//! | descending | any of these, every bit inverted |
//!
//! Only a whole part gives the value back. What a key does not give back is beside it: in the row, for the primary key;
//! in the value of the entry, for a secondary index ([`super::rows`]).
//!
//! Why inverted strings need no other end: every part is as long as it says itself, and no part begins with another one, so
//! the first byte that differs decides, whichever way round.

use base::Result;
use base::bytes::Reader;

use super::collation::Provider;
use super::column::{Column, ColumnType};
use super::key::{self, NULL, PRESENT};
use super::typed::FromColumn;
use super::value::Value;
use super::visitor::RowVisitor;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Its number in the table.
    pub column: usize,
    pub descending: bool,
    pub image: Image,
}

/// What stands for a value that is not NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Image {
    Whole,
    Front(u32),
    /// The collation, and the number of characters if not all.
    Collated(u32, Option<u32>),
}

impl Part {
    /// The value can be read from the key.
    #[inline]
    pub fn holds(&self) -> bool {
        self.image == Image::Whole
    }

    /// There is nothing to it but what module `key` does.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.holds() && !self.descending
    }

    /// What all bits of it are inverted with.
    fn mask(&self) -> u8 {
        if self.descending { u8::MAX } else { 0 }
    }

    /// Appends `value`, which fits the column.
    #[inline]
    pub fn put(&self, out: &mut Vec<u8>, column: &Column, value: &Value<'_>, collations: &Provider) -> Result<()> {
        if self.is_plain() {
            key::put(out, column, value);
            return Ok(());
        }
        self.put_other(out, column, value, collations)
    }

    fn put_other(&self, out: &mut Vec<u8>, column: &Column, value: &Value<'_>, collations: &Provider) -> Result<()> {
        let start = out.len();
        match self.image {
            _ if value.is_null() => key::put(out, column, value),
            Image::Whole => key::put(out, column, value),
            Image::Front(length) => key::put(out, column, &front(value, length as usize)),
            Image::Collated(collation, characters) => {
                let mut image = Vec::new();
                collations.sort_key(column, (collation, characters), text(value), &mut image)?;
                if column.nullable {
                    out.push(PRESENT);
                }
                key::put_string(out, &image);
            }
        }
        let mask = self.mask();
        out[start..].iter_mut().for_each(|byte| *byte ^= mask);
        Ok(())
    }

    /// Reads a part that holds its value. `None` on malformed bytes.
    pub fn take<'a>(&self, reader: &mut Reader<'a>, column: &Column) -> Option<Value<'a>> {
        debug_assert!(self.holds(), "other parts are passed over");
        if !self.descending {
            return key::take(reader, column);
        }
        let image = reader.rest();
        self.skip(reader, column)?;
        let image: Vec<u8> = image[..image.len() - reader.rest().len()].iter().map(|byte| !byte).collect();
        key::take(&mut Reader::new(&image), column).map(Value::into_owned)
    }

    /// Gives what it holds to `visitor`. `None` on malformed bytes.
    #[inline]
    pub fn give(&self, reader: &mut Reader<'_>, column: &Column, visitor: &mut impl RowVisitor) -> Option<()> {
        let n = self.column;
        match column.column_type {
            ColumnType::I64 if self.is_plain() && !column.nullable => visitor.i64(n, i64::from_key(reader)?),
            ColumnType::I32 if self.is_plain() && !column.nullable => visitor.i32(n, i32::from_key(reader)?),
            ColumnType::U64 if self.is_plain() && !column.nullable => visitor.u64(n, u64::from_key(reader)?),
            ColumnType::U32 if self.is_plain() && !column.nullable => visitor.u32(n, u32::from_key(reader)?),
            _ => visitor.value(n, &self.take(reader, column)?),
        }
        Some(())
    }

    /// Passes over a part. `None` on malformed bytes.
    #[inline]
    pub fn skip(&self, reader: &mut Reader<'_>, column: &Column) -> Option<()> {
        if self.is_plain() { key::skip(reader, column) } else { self.skip_other(reader, column) }
    }

    fn skip_other(&self, reader: &mut Reader<'_>, column: &Column) -> Option<()> {
        let mask = self.mask();
        if column.nullable {
            match reader.u8()? ^ mask {
                NULL => return Some(()),
                PRESENT => {}
                _ => return None,
            }
        }
        let width = match self.image {
            Image::Whole => key::width(column.column_type),
            Image::Front(length) => key::width(column.column_type).map(|width| width.min(length as usize)),
            Image::Collated(..) => None,
        };
        let bytes = match width {
            Some(width) => width,
            None => key::string_extent(reader.rest(), mask)?.0,
        };
        reader.take(bytes).map(drop)
    }

    /// True if the part that a key goes on with is NULL.
    pub fn is_null(&self, rest: &[u8], column: &Column) -> bool {
        column.nullable && rest.first() == Some(&(NULL ^ self.mask()))
    }
}

/// The first bytes of bytes, the first characters of text.
fn front<'a>(value: &'a Value<'_>, length: usize) -> Value<'a> {
    match value {
        Value::Text(text) => {
            let end = text.char_indices().nth(length).map_or(text.len(), |(at, _)| at);
            Value::Text(text[..end].into())
        }
        Value::Bytes(bytes) => Value::Bytes(bytes[..length.min(bytes.len())].into()),
        other => unreachable!("{:?} has no front: the schema was checked", other.column_type()),
    }
}

fn text<'a>(value: &'a Value<'_>) -> &'a [u8] {
    match value {
        Value::Text(text) => text.as_bytes(),
        Value::Bytes(bytes) => bytes,
        other => unreachable!("{:?} has no collation: the schema was checked", other.column_type()),
    }
}

/// True if a column of this type can have a collation, or a front of it can be in a key.
pub(super) fn is_string(column_type: ColumnType) -> bool {
    matches!(column_type, ColumnType::Text | ColumnType::Bytes | ColumnType::Fixed(_))
}
