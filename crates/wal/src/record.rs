//! Records inside a frame.
//!
//! A record is a header of 8 bytes (payload length, kind, three spare bytes that are zero), the payload, and
//! zeroes up to a multiple of 16. Its position is that of its header; the position just past its padding is
//! where the next record starts, and for a commit record is the commit's timestamp.

use base::Lsn;
use base::limits::{LSN_UNIT, round_up};

/// Bytes before a record's payload.
pub const RECORD_HEADER_BYTES: usize = 8;

/// What a record says; the numbers belong to the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordKind(pub u8);

/// A record as recovery finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Its position.
    pub start: Lsn,
    /// The position just past it.
    pub end: Lsn,
    /// What it says.
    pub kind: RecordKind,
    /// The bytes that were appended.
    pub payload: &'a [u8],
}

/// Bytes of the log's stream that a record with a payload of this length takes.
#[must_use]
pub const fn record_bytes(payload_bytes: usize) -> u64 {
    round_up((RECORD_HEADER_BYTES + payload_bytes) as u64, LSN_UNIT)
}

/// The header of a record, as one little-endian word.
pub(crate) const fn header_word(kind: RecordKind, payload_bytes: u32) -> u64 {
    payload_bytes as u64 | ((kind.0 as u64) << 32)
}

/// Kind and payload length in a header word; `None` if a spare byte is not zero.
fn read_header_word(word: u64) -> Option<(RecordKind, usize)> {
    (word >> 40 == 0).then_some((RecordKind((word >> 32) as u8), word as u32 as usize))
}

/// Walks the records of a frame's raw bytes.
#[derive(Debug, Clone)]
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
    at: Lsn,
}

impl<'a> Records<'a> {
    /// The records in `bytes`, whose first one is at `at`.
    pub(crate) fn new(bytes: &'a [u8], at: Lsn) -> Self {
        Self { bytes, at }
    }

    /// Bytes not walked yet.
    pub(crate) fn rest(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that the next record takes, if its header is here.
    pub(crate) fn next_bytes(&self) -> Option<u64> {
        let word = self.bytes.first_chunk::<RECORD_HEADER_BYTES>()?;
        read_header_word(u64::from_le_bytes(*word)).map(|(_, payload_bytes)| record_bytes(payload_bytes))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = RecordRef<'a>;

    /// The next record; `None` at the end or where the bytes are no whole record (then `rest` is not 0).
    fn next(&mut self) -> Option<RecordRef<'a>> {
        let word = self.bytes.first_chunk::<RECORD_HEADER_BYTES>()?;
        let (kind, payload_bytes) = read_header_word(u64::from_le_bytes(*word))?;
        let (record, rest) = self.bytes.split_at_checked(usize::try_from(record_bytes(payload_bytes)).ok()?)?;
        let (start, end) = (self.at, Lsn(self.at.0 + record.len() as u64));
        (self.bytes, self.at) = (rest, end);
        let payload = &record[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + payload_bytes];
        Some(RecordRef { start, end, kind, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_padded_to_the_unit() {
        for (payload, whole) in [(0, 16), (1, 16), (8, 16), (9, 32), (24, 32), (100, 112)] {
            assert_eq!(record_bytes(payload), whole);
        }
    }

    #[test]
    fn a_cut_record_ends_the_walk() {
        let mut bytes = header_word(RecordKind(4), 20).to_le_bytes().to_vec();
        bytes.resize(32, 7);
        let mut whole = Records::new(&bytes, Lsn(64));
        let record = whole.next().expect("one record");
        assert_eq!(
            (record.start, record.end, record.kind, record.payload),
            (Lsn(64), Lsn(96), RecordKind(4), &[7; 20][..])
        );
        assert_eq!((whole.next(), whole.rest()), (None, 0));
        let mut cut = Records::new(&bytes[..16], Lsn(64));
        assert_eq!((cut.next(), cut.rest()), (None, 16));
    }
}
