//! The row codec: the columns beside the primary key, in the order of the schema.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | 1 + version: which columns are stored, see [`super::versions`] |
//! | varint | number of columns stored |
//! | ⌈nullable / 8⌉ | for each nullable column stored, in order: 1 = NULL; lowest bit first, unused bits 0 |
//! | … | each column that is not NULL, in order |
//!
//! Unsigned integers are varints, signed ones zigzag varints, doubles and timestamps eight bytes little-endian, a bool
//! one byte, text and bytes a varint length and the bytes, bytes of fixed width nothing but themselves.
//!
//! A row may store fewer columns than its version has: those at the end read as NULL.
//! Why not fixed offsets: most integers of a row are small, and a row is read whole from a leaf that was already
//! fetched; bytes per row decide how many rows stay in memory.

use std::borrow::Cow;

use base::bytes::{Reader, put_bytes, put_varint};

use super::column::{Column, ColumnType};
use super::typed::{FromColumn, Timestamp};
use super::value::Value;
use super::visitor::RowVisitor;

/// What a row of version 0 begins with; one of version `v` with `v` more.
const FIRST: u8 = 1;
/// Most versions of a table's rows. First bytes above them, and 0, are for other forms of rows.
pub(super) const VERSIONS_MAX: usize = 240;

/// Type of a column, and whether it may be NULL: what there is to know to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    pub column_type: ColumnType,
    pub nullable: bool,
}

impl From<&Column> for Kind {
    #[inline]
    fn from(column: &Column) -> Self {
        Self { column_type: column.column_type, nullable: column.nullable }
    }
}

/// The version of a row. `None` if it is no row.
pub(super) fn version(row: &[u8]) -> Option<u8> {
    row.first()?.checked_sub(FIRST).filter(|&version| usize::from(version) < VERSIONS_MAX)
}

/// Appends a row of `columns`, each with its value, which fits.
pub(super) fn put<'c, 'v: 'c>(
    out: &mut Vec<u8>,
    version: u8,
    columns: impl Iterator<Item = (&'c Column, &'c Value<'v>)> + Clone,
) {
    out.push(FIRST + version);
    put_varint(out, columns.clone().count() as u64);
    put_columns(out, columns);
}

/// Bytes that a row of these values takes at most.
pub(super) fn bytes_max<'c, 'v: 'c>(values: impl Iterator<Item = &'c Value<'v>>) -> usize {
    let bytes_of = |value: &Value<'_>| match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    // A number, or a length, has ten at most, the head as many.
    values.fold(10, |bytes, value| bytes + 11 + bytes_of(value))
}

/// Appends what is behind the head of a row: which columns are NULL, and the others.
pub(super) fn put_columns<'c, 'v: 'c>(
    out: &mut Vec<u8>,
    columns: impl Iterator<Item = (&'c Column, &'c Value<'v>)> + Clone,
) {
    let bitmap = out.len();
    let mut nullable = 0;
    for (column, value) in columns.clone() {
        if column.nullable {
            if nullable % 8 == 0 {
                out.push(0);
            }
            out[bitmap + nullable / 8] |= u8::from(value.is_null()) << (nullable % 8);
            nullable += 1;
        }
    }
    for (column, value) in columns {
        put_value(out, column.column_type, value);
    }
}

/// What a row begins with that stores this many columns, none of them NULL.
pub(super) struct Head {
    pub bytes: Vec<u8>,
    /// Where the bitmap begins.
    pub bitmap: usize,
}

pub(super) fn head_of_full(version: u8, columns: usize, nullable: usize) -> Head {
    let mut bytes = vec![FIRST + version];
    put_varint(&mut bytes, columns as u64);
    let bitmap = bytes.len();
    bytes.resize(bitmap + nullable.div_ceil(8), 0);
    Head { bytes, bitmap }
}

pub(super) fn put_value(out: &mut Vec<u8>, column_type: ColumnType, value: &Value<'_>) {
    match value {
        Value::Null => {}
        Value::I64(n) => put_varint(out, zigzag(*n)),
        Value::I32(n) => put_varint(out, zigzag(i64::from(*n))),
        Value::U64(n) => put_varint(out, *n),
        Value::U32(n) => put_varint(out, u64::from(*n)),
        Value::F64(n) => out.extend_from_slice(&n.to_bits().to_le_bytes()),
        Value::Timestamp(n) => out.extend_from_slice(&n.to_le_bytes()),
        Value::Text(s) => put_bytes(out, s.as_bytes()),
        Value::Bytes(b) if matches!(column_type, ColumnType::Fixed(_)) => out.extend_from_slice(b),
        Value::Bytes(b) => put_bytes(out, b),
        Value::Bool(b) => out.push(u8::from(*b)),
    }
}

/// The columns of a row, to be read one after another by whoever knows that all are there.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    pub(super) reader: Reader<'a>,
    nulls: &'a [u8],
    nullable_seen: usize,
}

impl<'a> Fields<'a> {
    /// The columns that lie in `rest`, behind `nullable_seen` that may be NULL.
    #[inline]
    pub(super) fn new(rest: &'a [u8], nulls: &'a [u8], nullable_seen: usize) -> Self {
        Self { reader: Reader::new(rest), nulls, nullable_seen }
    }

    /// Steps to the next column that may be NULL: is it?
    #[inline]
    pub(super) fn next_is_null(&mut self) -> bool {
        let bit = self.nullable_seen;
        self.nullable_seen += 1;
        self.nulls[bit / 8] >> (bit % 8) & 1 == 1
    }
}

/// Reads the columns of a row one after another.
#[derive(Debug, Clone)]
pub(super) struct Columns<'a> {
    fields: Fields<'a>,
    /// Columns stored and not read yet.
    left: usize,
}

impl<'a> Columns<'a> {
    /// Reads the head of a row. `nullable[n]` of the first `n` columns that rows of this version store may be NULL, for every
    /// `n` up to how many there are. `None` on malformed bytes, or if it is a row of another version.
    #[inline(always)]
    pub(super) fn new(row: &'a [u8], version: u8, nullable: &[usize]) -> Option<Self> {
        let mut reader = Reader::new(row);
        if reader.u8()? != FIRST + version {
            return None;
        }
        let left = usize::try_from(reader.varint()?).ok()?;
        Self::behind_head(reader, left, *nullable.get(left)?)
    }

    /// Reads what [`put_columns`] wrote of so many columns, of which so many may be NULL. `None` on malformed bytes.
    #[inline(always)]
    pub(super) fn behind_head(mut reader: Reader<'a>, left: usize, nullable: usize) -> Option<Self> {
        let nulls = reader.take(nullable.div_ceil(8))?;
        let unused_set = !nullable.is_multiple_of(8) && nulls.last().is_some_and(|last| last >> (nullable % 8) != 0);
        (!unused_set).then_some(Self { fields: Fields { reader, nulls, nullable_seen: 0 }, left })
    }

    /// The columns, if the row has exactly this many.
    #[inline]
    pub(super) fn all(self, columns: usize) -> Option<Fields<'a>> {
        (self.left == columns).then_some(self.fields)
    }

    /// The next column's value. `None` on malformed bytes.
    pub(super) fn next(&mut self, kind: impl Into<Kind>) -> Option<Value<'a>> {
        let kind = kind.into();
        if self.next_is_null(kind)? { Some(Value::Null) } else { take_value(&mut self.fields, kind.column_type) }
    }

    /// The next column's value, of the column's type. `None` on malformed bytes.
    #[inline]
    pub(super) fn next_as<T: FromColumn<'a>>(&mut self) -> Option<T> {
        if self.left == 0 {
            return T::NULL;
        }
        self.left -= 1;
        T::from_row(&mut self.fields)
    }

    /// Passes over the next column. `None` on malformed bytes.
    #[inline]
    pub(super) fn skip(&mut self, kind: impl Into<Kind>) -> Option<()> {
        let kind = kind.into();
        if self.next_is_null(kind)? {
            return Some(());
        }
        let reader = &mut self.fields.reader;
        match kind.column_type {
            ColumnType::I64 | ColumnType::I32 | ColumnType::U64 | ColumnType::U32 => reader.varint().map(drop),
            ColumnType::F64 | ColumnType::Timestamp => reader.take(8).map(drop),
            ColumnType::Text | ColumnType::Bytes => reader.bytes().map(drop),
            ColumnType::Bool => reader.take(1).map(drop),
            ColumnType::Fixed(bytes) => reader.take(bytes.into()).map(drop),
        }
    }

    /// Gives the next column, which is number `n` of its table, to `visitor`. `None` on malformed bytes.
    #[inline(always)]
    pub(super) fn give(&mut self, n: usize, kind: impl Into<Kind>, visitor: &mut impl RowVisitor) -> Option<()> {
        let kind = kind.into();
        if self.next_is_null(kind)? {
            visitor.null(n);
            return Some(());
        }
        let row = &mut self.fields;
        match kind.column_type {
            ColumnType::I64 => visitor.i64(n, i64::from_row(row)?),
            ColumnType::I32 => visitor.i32(n, i32::from_row(row)?),
            ColumnType::U64 => visitor.u64(n, u64::from_row(row)?),
            ColumnType::U32 => visitor.u32(n, u32::from_row(row)?),
            ColumnType::Bytes => visitor.bytes(n, row.reader.bytes()?),
            ColumnType::Fixed(bytes) => visitor.bytes(n, row.reader.take(bytes.into())?),
            other => visitor.value(n, &take_value(row, other)?),
        }
        Some(())
    }

    /// Steps to the next column: is it NULL? `None` if it is absent and may not be.
    #[inline]
    fn next_is_null(&mut self, kind: Kind) -> Option<bool> {
        if self.left == 0 {
            return kind.nullable.then_some(true);
        }
        self.left -= 1;
        Some(kind.nullable && self.fields.next_is_null())
    }

    /// True if nothing is left over after the last column.
    pub(super) fn is_empty(&self) -> bool {
        self.left == 0 && self.fields.reader.is_empty()
    }
}

/// A value that [`put_value`] wrote, and nothing else. `None` on malformed bytes.
pub(super) fn read_value(bytes: &[u8], column_type: ColumnType) -> Option<Value<'_>> {
    let mut fields = Fields::new(bytes, &[], 0);
    take_value(&mut fields, column_type).filter(|_| fields.reader.is_empty())
}

fn take_value<'a>(row: &mut Fields<'a>, column_type: ColumnType) -> Option<Value<'a>> {
    Some(match column_type {
        ColumnType::I64 => Value::I64(i64::from_row(row)?),
        ColumnType::I32 => Value::I32(i32::from_row(row)?),
        ColumnType::U64 => Value::U64(u64::from_row(row)?),
        ColumnType::U32 => Value::U32(u32::from_row(row)?),
        ColumnType::F64 => Value::F64(f64::from_row(row)?),
        ColumnType::Timestamp => Value::Timestamp(Timestamp::from_row(row)?.0),
        ColumnType::Text => Value::Text(Cow::from_row(row)?),
        ColumnType::Bytes => Value::Bytes(Cow::from_row(row)?),
        ColumnType::Bool => Value::Bool(bool::from_row(row)?),
        ColumnType::Fixed(bytes) => Value::Bytes(row.reader.take(bytes.into())?.into()),
    })
}

fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

#[inline]
pub(super) fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}
