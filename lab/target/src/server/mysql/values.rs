//! The forms of values: what a prepared statement is given, and what a row holds.

use std::io;
use std::ops::Range;

use mysql_common::constants::{ColumnFlags, ColumnType};

use super::super::client::Argument;
use super::super::dates;
use super::wire::{Left, put_number};

/// What the server tells of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    kind: ColumnType,
    is_unsigned: bool,
}

impl Column {
    /// Reads a definition. Names come first: of the catalog, the schema, the table and the column.
    pub fn of(payload: &[u8]) -> io::Result<Column> {
        let mut left = Left(payload);
        for _ in 0..6 {
            left.text()?;
        }
        // Their length, the character set, the width.
        left.bytes(1 + 2 + 4)?;
        let kind = left.byte()?;
        let flags = ColumnFlags::from_bits_truncate(u16::from_le_bytes(left.array()?));
        let strange = |_| io::Error::new(io::ErrorKind::InvalidData, format!("a column of an unknown type {kind}"));
        let kind = ColumnType::try_from(kind).map_err(strange)?;
        Ok(Column { kind, is_unsigned: flags.contains(ColumnFlags::UNSIGNED_FLAG) })
    }

    /// How long a value in binary is; nothing where its length stands before it.
    fn width(self) -> Option<usize> {
        match self.kind {
            ColumnType::MYSQL_TYPE_TINY => Some(1),
            ColumnType::MYSQL_TYPE_SHORT | ColumnType::MYSQL_TYPE_YEAR => Some(2),
            ColumnType::MYSQL_TYPE_LONG | ColumnType::MYSQL_TYPE_INT24 | ColumnType::MYSQL_TYPE_FLOAT => Some(4),
            ColumnType::MYSQL_TYPE_LONGLONG | ColumnType::MYSQL_TYPE_DOUBLE => Some(8),
            _ => None,
        }
    }
}

fn kind_of(argument: Argument<'_>) -> ColumnType {
    match argument {
        Argument::Null => ColumnType::MYSQL_TYPE_NULL,
        Argument::Number(_) => ColumnType::MYSQL_TYPE_LONGLONG,
        Argument::Hundredths(_) => ColumnType::MYSQL_TYPE_FLOAT,
        Argument::Text(_) => ColumnType::MYSQL_TYPE_VAR_STRING,
        Argument::Seconds(_) | Argument::Micros(_) => ColumnType::MYSQL_TYPE_DATETIME,
    }
}

/// Writes the arguments of a prepared statement; there is at least one. `kinds` are the types that the server knows from the
/// last time, one byte an argument: they are told only if they are others now.
pub fn write_all(arguments: &[Argument<'_>], kinds: &mut Vec<u8>, out: &mut Vec<u8>) {
    let nulls = out.len();
    out.resize(nulls + arguments.len().div_ceil(8), 0);
    for (place, _) in arguments.iter().enumerate().filter(|(_, argument)| matches!(argument, Argument::Null)) {
        out[nulls + place / 8] |= 1 << (place % 8);
    }
    let are_known = kinds.len() == arguments.len()
        && kinds.iter().zip(arguments).all(|(known, argument)| *known == kind_of(*argument) as u8);
    out.push(u8::from(!are_known));
    if !are_known {
        kinds.clear();
        kinds.extend(arguments.iter().map(|argument| kind_of(*argument) as u8));
        out.extend(kinds.iter().flat_map(|kind| [*kind, 0]));
    }
    for argument in arguments {
        write(*argument, out);
    }
}

fn write(argument: Argument<'_>, out: &mut Vec<u8>) {
    let (seconds, micros) = match argument {
        Argument::Null => return,
        Argument::Number(number) => return out.extend(number.to_le_bytes()),
        Argument::Hundredths(number) => return out.extend(((f64::from(number) / 100.0) as f32).to_le_bytes()),
        Argument::Text(text) => {
            put_number(text.len() as u64, out);
            return out.extend_from_slice(text);
        }
        Argument::Seconds(seconds) => (seconds, 0),
        Argument::Micros(micros) => (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000) as u32),
    };
    let [year, rest @ ..] = dates::civil(seconds);
    out.push(if micros == 0 { 7 } else { 11 });
    out.extend((year as u16).to_le_bytes());
    out.extend(rest.map(|part| part as u8));
    if micros != 0 {
        out.extend(micros.to_le_bytes());
    }
}

/// Where the columns of a row are; of NULL nowhere.
pub fn find(row: &[u8], columns: &[Column], binary: bool, out: &mut Vec<Option<Range<usize>>>) -> io::Result<()> {
    out.clear();
    let mut left = Left(row);
    let bytes_of = |left: &Left<'_>, bytes: &[u8]| row.len() - left.0.len() - bytes.len()..row.len() - left.0.len();
    if !binary {
        for _ in columns {
            let text = left.text()?;
            out.push(text.map(|text| bytes_of(&left, text)));
        }
        return Ok(());
    }
    // A zero, then a bit a column; the first two have no meaning.
    left.bytes(1)?;
    let nulls = left.bytes((columns.len() + 2).div_ceil(8))?;
    for (place, column) in columns.iter().enumerate() {
        let place = place + 2;
        if nulls[place / 8] & 1 << (place % 8) != 0 {
            out.push(None);
            continue;
        }
        let bytes = match column.width() {
            Some(width) => left.bytes(width)?,
            None => left.text()?.unwrap_or_default(),
        };
        out.push(Some(bytes_of(&left, bytes)));
    }
    Ok(())
}

/// A row.
#[derive(Clone, Copy)]
pub struct Cells<'a> {
    /// Its bytes.
    pub row: &'a [u8],
    /// Where each column is; of NULL nowhere.
    pub ranges: &'a [Option<Range<usize>>],
    /// Of each column.
    pub columns: &'a [Column],
    /// Whether values are in binary.
    pub binary: bool,
}

impl Cells<'_> {
    fn bytes(&self, place: usize) -> Option<&[u8]> {
        self.row.get(self.ranges.get(place)?.clone()?)
    }

    fn column(&self, place: usize) -> Option<Column> {
        self.columns.get(place).copied()
    }

    /// Whether the value is written as a text.
    fn is_text(&self, column: Column) -> bool {
        let is_date = matches!(
            column.kind,
            ColumnType::MYSQL_TYPE_DATE
                | ColumnType::MYSQL_TYPE_DATETIME
                | ColumnType::MYSQL_TYPE_TIMESTAMP
                | ColumnType::MYSQL_TYPE_TIME
        );
        !self.binary || column.width().is_none() && !is_date
    }

    /// Whether it is NULL, or no column.
    pub fn is_null(&self, place: usize) -> bool {
        self.bytes(place).is_none()
    }

    /// A whole number.
    pub fn number(&self, place: usize) -> Option<i64> {
        let (bytes, column) = (self.bytes(place)?, self.column(place)?);
        if self.is_text(column) {
            return std::str::from_utf8(bytes).ok()?.parse().ok();
        }
        let is_whole = !matches!(column.kind, ColumnType::MYSQL_TYPE_FLOAT | ColumnType::MYSQL_TYPE_DOUBLE);
        if !is_whole || column.width().is_none() {
            return None;
        }
        // What is missing above is the sign.
        let is_negative = !column.is_unsigned && bytes.last().is_some_and(|last| last & 0x80 != 0);
        let mut wide = [if is_negative { 0xff } else { 0 }; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let number = i64::from_le_bytes(wide);
        (number >= 0 || is_negative).then_some(number)
    }

    /// A FLOAT or a DOUBLE.
    pub fn float(&self, place: usize) -> Option<f64> {
        let (bytes, column) = (self.bytes(place)?, self.column(place)?);
        match column.kind {
            _ if self.is_text(column) => std::str::from_utf8(bytes).ok()?.parse().ok(),
            ColumnType::MYSQL_TYPE_FLOAT => Some(f32::from_le_bytes(bytes.try_into().ok()?).into()),
            ColumnType::MYSQL_TYPE_DOUBLE => Some(f64::from_le_bytes(bytes.try_into().ok()?)),
            _ => None,
        }
    }

    /// A text.
    pub fn text(&self, place: usize) -> Option<&[u8]> {
        let (bytes, column) = (self.bytes(place)?, self.column(place)?);
        self.is_text(column).then_some(bytes)
    }

    /// What it says, for people and for what the server tells of itself.
    pub fn string(&self, place: usize) -> String {
        match self.text(place) {
            Some(text) => String::from_utf8_lossy(text).into_owned(),
            None => self.number(place).map_or_else(String::new, |number| number.to_string()),
        }
    }

    /// A DATETIME as microseconds since 1970.
    pub fn micros(&self, place: usize) -> Option<i64> {
        let (bytes, column) = (self.bytes(place)?, self.column(place)?);
        if self.is_text(column) {
            return dates::parse_micros(bytes);
        }
        if column.width().is_some() || column.kind == ColumnType::MYSQL_TYPE_TIME {
            return None;
        }
        // Zeros at the end are left out: no fraction, no time of day.
        let mut all = [0; 11];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let [year_low, year_high, month, day, hour, minute, second, micros @ ..] = all;
        let year = i64::from(u16::from_le_bytes([year_low, year_high]));
        let [month, day, hour, minute, second] = [month, day, hour, minute, second].map(i64::from);
        let seconds = dates::seconds([year, month, day, hour, minute, second]);
        Some(seconds * 1_000_000 + i64::from(u32::from_le_bytes(micros)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: ColumnType) -> Column {
        Column { kind, is_unsigned: false }
    }

    #[test]
    fn what_is_given_is_read_again() {
        let arguments = [
            Argument::Number(-5),
            Argument::Null,
            Argument::Text(b"text"),
            Argument::Hundredths(1_025),
            Argument::Seconds(1_700_000_000),
            Argument::Micros(1_700_000_000_250_000),
        ];
        let (mut kinds, mut out) = (Vec::new(), Vec::new());
        write_all(&arguments, &mut kinds, &mut out);
        // The bits of a row begin two later, behind a zero; its types are told elsewhere.
        assert_eq!((out[0], out[1], out[2..14].len()), (0b10, 1, 2 * kinds.len()));
        let row = [&[0, 0b1000][..], &out[14..]].concat();
        let columns: Vec<Column> = arguments.iter().map(|argument| column(kind_of(*argument))).collect();
        let mut ranges = Vec::new();
        find(&row, &columns, true, &mut ranges).unwrap();
        let cells = Cells { row: &row, ranges: &ranges, columns: &columns, binary: true };
        assert_eq!((cells.number(0), cells.is_null(1), cells.is_null(0)), (Some(-5), true, false));
        assert_eq!((cells.text(2), cells.float(3)), (Some(&b"text"[..]), Some(10.25)));
        assert_eq!((cells.micros(4), cells.micros(5)), (Some(1_700_000_000_000_000), Some(1_700_000_000_250_000)));
        // No value is another kind of value, and none is behind the last.
        assert_eq!((cells.text(0), cells.number(3), cells.micros(0), cells.number(4)), (None, None, None, None));
        assert!(cells.is_null(6) && cells.text(6).is_none() && cells.string(0) == "-5");
        assert!(find(&row[..row.len() - 1], &columns, true, &mut ranges).is_err());
        // Types that the server knows are not told again, others are.
        let told = out.len();
        out.clear();
        write_all(&arguments, &mut kinds, &mut out);
        assert_eq!((out.len(), out[1]), (told - 12, 0));
        out.clear();
        write_all(&[Argument::Null; 6], &mut kinds, &mut out);
        assert_eq!(out[1], 1);
    }

    #[test]
    fn numbers_of_every_width_with_and_without_a_sign() {
        use ColumnType::{MYSQL_TYPE_LONG, MYSQL_TYPE_LONGLONG, MYSQL_TYPE_SHORT, MYSQL_TYPE_TINY};
        for (kind, bytes, signed, unsigned) in [
            (MYSQL_TYPE_TINY, &[0xfe][..], Some(-2), Some(254)),
            (MYSQL_TYPE_SHORT, &[0, 0x80], Some(-32_768), Some(32_768)),
            (MYSQL_TYPE_LONG, &[1, 0, 0, 0], Some(1), Some(1)),
            (MYSQL_TYPE_LONGLONG, &[0xff; 8], Some(-1), None),
        ] {
            let row = [&[0, 0][..], bytes].concat();
            for (is_unsigned, wanted) in [(false, signed), (true, unsigned)] {
                let (columns, mut ranges) = ([Column { kind, is_unsigned }], Vec::new());
                find(&row, &columns, true, &mut ranges).unwrap();
                let cells = Cells { row: &row, ranges: &ranges, columns: &columns, binary: true };
                assert_eq!(cells.number(0), wanted, "{kind:?}");
            }
        }
    }

    #[test]
    fn a_row_of_texts() {
        let row = b"\x02-7\xfb\x0410.5\x132023-11-14 22:13:20";
        let columns = [column(ColumnType::MYSQL_TYPE_LONG); 4];
        let mut ranges = Vec::new();
        find(row, &columns, false, &mut ranges).unwrap();
        let cells = Cells { row, ranges: &ranges, columns: &columns, binary: false };
        assert_eq!((cells.number(0), cells.is_null(1), cells.float(2)), (Some(-7), true, Some(10.5)));
        assert_eq!((cells.micros(3), cells.string(0)), (Some(1_700_000_000_000_000), "-7".into()));
        assert_eq!((cells.text(0), cells.string(1)), (Some(&b"-7"[..]), String::new()));
    }

    #[test]
    fn a_definition_of_a_column() {
        let names = b"\x03def\x03lab\x03pi1\x03pi1\x01c\x01c";
        let rest = [0x0c, 8, 0, 11, 0, 0, 0, 3, 0x20, 0, 0, 0, 0];
        let read = Column::of(&[&names[..], &rest].concat()).unwrap();
        assert_eq!(read, Column { kind: ColumnType::MYSQL_TYPE_LONG, is_unsigned: true });
        assert!(Column::of(names).is_err());
    }
}
