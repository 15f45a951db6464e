//! The forms of values: what a statement's parameter wants, and what a column holds.

use std::ops::Range;

use bytes::{BufMut, BytesMut};
use postgres_protocol::IsNull;

use super::super::client::{Argument, Dialect};
use super::super::dates;
use super::Written;

/// Types by the numbers that the server's catalog gives them.
const BIGINT: u32 = 20;
const SMALLINT: u32 = 21;
const INTEGER: u32 = 23;
const BOOLEAN: u32 = 16;
const REAL: u32 = 700;
const CHARACTER: u32 = 1042;
const TIMESTAMP: u32 = 1114;
/// Microseconds from 1970 to 2000, where the server's times begin.
const TO_2000: i64 = 946_684_800_000_000;

/// Writes a value as the parameter's type has it in binary.
pub fn write(kind: u32, argument: Argument<'_>, out: &mut BytesMut) -> Written {
    let number = match argument {
        Argument::Null => return Ok(IsNull::Yes),
        Argument::Number(number) => number,
        Argument::Hundredths(number) if kind == REAL => {
            out.put_f32((f64::from(number) / 100.0) as f32);
            return Ok(IsNull::No);
        }
        Argument::Hundredths(number) => number.into(),
        Argument::Seconds(seconds) => seconds * 1_000_000 - TO_2000,
        Argument::Micros(micros) => micros - TO_2000,
        Argument::Text(text) => {
            out.put_slice(text);
            return Ok(IsNull::No);
        }
    };
    match kind {
        SMALLINT => out.put_i16(number.try_into()?),
        INTEGER => out.put_i32(number.try_into()?),
        BIGINT | TIMESTAMP => out.put_i64(number),
        _ => {
            let mut text = String::new();
            argument.write(Dialect::Postgres, &mut text).map_err(|error| error.to_string())?;
            out.put_slice(text.trim_matches('\'').as_bytes());
        }
    }
    Ok(IsNull::No)
}

/// A row.
#[derive(Clone, Copy)]
pub struct Cells<'a> {
    /// Its bytes.
    pub buffer: &'a [u8],
    /// Where each column is; of NULL nowhere.
    pub ranges: &'a [Option<Range<usize>>],
    /// Of each column.
    pub types: &'a [u32],
    /// Whether values are in binary.
    pub binary: bool,
}

impl Cells<'_> {
    fn bytes(&self, place: usize) -> Option<&[u8]> {
        self.buffer.get(self.ranges.get(place)?.clone()?)
    }

    fn kind(&self, place: usize) -> u32 {
        self.types.get(place).copied().unwrap_or(0)
    }

    /// Whether it is NULL, or no column.
    pub fn is_null(&self, place: usize) -> bool {
        self.bytes(place).is_none()
    }

    /// A whole number.
    pub fn number(&self, place: usize) -> Option<i64> {
        let bytes = self.bytes(place)?;
        if !self.binary {
            return std::str::from_utf8(bytes).ok()?.parse().ok();
        }
        match self.kind(place) {
            SMALLINT => Some(i16::from_be_bytes(bytes.try_into().ok()?).into()),
            INTEGER => Some(i32::from_be_bytes(bytes.try_into().ok()?).into()),
            BIGINT => Some(i64::from_be_bytes(bytes.try_into().ok()?)),
            _ => None,
        }
    }

    /// A REAL.
    pub fn float(&self, place: usize) -> Option<f64> {
        let bytes = self.bytes(place)?;
        match (self.binary, self.kind(place)) {
            (true, REAL) => Some(f32::from_be_bytes(bytes.try_into().ok()?).into()),
            (false, _) => std::str::from_utf8(bytes).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// A text. What CHAR is filled up with is no part of it.
    pub fn text(&self, place: usize) -> Option<&[u8]> {
        let bytes = self.bytes(place)?;
        match self.kind(place) {
            CHARACTER => Some(bytes.trim_ascii_end()),
            SMALLINT | INTEGER | BIGINT | TIMESTAMP => None,
            _ => Some(bytes),
        }
    }

    /// What it says, for people and for what the server tells of itself.
    pub fn string(&self, place: usize) -> String {
        let Some(bytes) = self.bytes(place) else { return String::new() };
        if self.binary && self.kind(place) == BOOLEAN {
            return if bytes == [1] { "t" } else { "f" }.into();
        }
        let text = || String::from_utf8_lossy(bytes).into_owned();
        if self.binary { self.number(place).map_or_else(text, |number| number.to_string()) } else { text() }
    }

    /// A TIMESTAMP as microseconds since 1970.
    pub fn micros(&self, place: usize) -> Option<i64> {
        let bytes = self.bytes(place)?;
        match (self.binary, self.kind(place)) {
            (true, TIMESTAMP) => Some(i64::from_be_bytes(bytes.try_into().ok()?) + TO_2000),
            (false, _) => dates::parse_micros(bytes),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let kinds = [SMALLINT, INTEGER, BIGINT, TIMESTAMP, CHARACTER, BIGINT, REAL];
        let values = [
            Argument::Number(-7),
            Argument::Number(1 << 20),
            Argument::Number(i64::MIN),
            Argument::Micros(1_700_000_000_123_456),
            Argument::Text(b"a b  "),
            Argument::Null,
            Argument::Hundredths(100_499),
        ];
        let (mut buffer, mut ranges) = (BytesMut::new(), Vec::new());
        for (kind, value) in kinds.into_iter().zip(values) {
            let from = buffer.len();
            let is_null = matches!(write(kind, value, &mut buffer).unwrap(), IsNull::Yes);
            ranges.push((!is_null).then_some(from..buffer.len()));
        }
        let cells = Cells { buffer: &buffer, ranges: &ranges, types: &kinds, binary: true };
        assert_eq!([0, 1, 2].map(|place| cells.number(place)), [Some(-7), Some(1 << 20), Some(i64::MIN)]);
        assert_eq!((cells.micros(3), cells.text(4)), (Some(1_700_000_000_123_456), Some(&b"a b"[..])));
        assert!(cells.is_null(5) && cells.is_null(7) && !cells.is_null(0));
        assert_eq!(cells.float(6).map(|number| (number * 100.0).round()), Some(100_499.0));
        assert!(write(SMALLINT, Argument::Number(1 << 20), &mut buffer).is_err());
    }
}
