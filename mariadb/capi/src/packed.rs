// SPDX-License-Identifier: GPL-2.0-only
//! A record of the server without what stands behind the values of its VARCHARs, and back.
//!
//! The server's record has room for the longest value of each VARCHAR, which is kilobytes where most values are a few bytes. Rows that
//! are read ahead are kept packed.

use std::ops::Range;

use crate::field::{Field, Text};

/// Where the pieces of a record are, in its order.
#[derive(Debug)]
pub struct Packing {
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    /// All of these bytes.
    All(Range<usize>),
    /// Of these as many as the value has.
    Text(Text),
}

impl Packing {
    pub fn new(fields: &[Field], record_bytes: usize) -> Self {
        let mut texts: Vec<Text> = fields.iter().filter_map(Field::text).collect();
        texts.sort_by_key(|text| text.offset);
        let (mut pieces, mut done) = (Vec::new(), 0);
        for text in texts {
            if done < text.offset {
                pieces.push(Piece::All(done..text.offset));
            }
            done = text.offset + text.length_bytes + text.length;
            pieces.push(Piece::Text(text));
        }
        if done < record_bytes {
            pieces.push(Piece::All(done..record_bytes));
        }
        Self { pieces }
    }

    /// Records are packed as they are.
    pub fn is_whole(&self) -> bool {
        matches!(self.pieces[..], [Piece::All(_)])
    }

    /// Appends a record.
    pub fn pack(&self, record: &[u8], out: &mut Vec<u8>) {
        for piece in &self.pieces {
            out.extend_from_slice(match piece {
                Piece::All(bytes) => &record[bytes.clone()],
                Piece::Text(text) => &record[text.offset..][..text.used(&record[text.offset..])],
            });
        }
    }

    /// What `packed` begins with into a record, whose bytes behind the values of VARCHARs stay as they are.
    pub fn unpack(&self, packed: &[u8], record: &mut [u8]) {
        let mut rest = packed;
        for piece in &self.pieces {
            let (offset, length) = match piece {
                Piece::All(bytes) => (bytes.start, bytes.len()),
                Piece::Text(text) => (text.offset, text.used(rest)),
            };
            let (bytes, behind) = rest.split_at(length);
            record[offset..][..length].copy_from_slice(bytes);
            rest = behind;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::tests::{numbered, varchar};

    /// Guards: the order of the pieces in `new`; `used` of a VARCHAR with one and with two bytes of length.
    #[test]
    fn a_packed_record_comes_back_without_what_is_behind_its_values() {
        // An INT at 1, then a VARCHAR at 8, one at 200, one that is too short to be a piece at 600.
        let fields = [varchar(200, 300, 2), numbered(0), varchar(8, 100, 1), varchar(600, 20, 1)];
        let packing = Packing::new(&fields, 640);
        let mut record: Vec<u8> = (0..640).map(|n| n as u8).collect();
        record[8] = 3;
        record[200..202].copy_from_slice(&257u16.to_le_bytes());
        let mut packed = Vec::new();
        packing.pack(&record, &mut packed);
        assert_eq!(packed.len(), 8 + 1 + 3 + (200 - 109) + 2 + 257 + (640 - 502));
        packed.extend([0xEE; 9]); // of the next one
        let mut again = vec![0xAA; 640];
        packing.unpack(&packed, &mut again);
        for (at, byte) in again.iter().enumerate() {
            let is_behind = (12..109).contains(&at) || (459..502).contains(&at);
            assert_eq!(*byte, if is_behind { 0xAA } else { record[at] }, "{at}");
        }
    }
}
