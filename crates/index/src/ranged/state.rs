//! What the manifest keeps of deleted ranges: it stands before the state of the structure, while there are any.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | `0xa1` |
//! | varint | number of ranges; for each: low key (length, bytes), 1 and the key it ends before or 0, timestamp (varint), ascending |
//! | 4 | CRC32C of everything before, little-endian |
//! | rest | the structure's state |
//!
//! The first byte is none that a structure's state begins with.

use base::bytes::{Reader, put_varint};
use base::checksum::crc32c;
use base::{CommitTs, Fault, Result};

use super::list::Deleted;
use crate::Span;

const FORMAT_VERSION: u8 = 0xa1;
/// First bytes of such states, of this version and of later ones.
const FORMATS: std::ops::RangeInclusive<u8> = 0xa0..=0xaf;

/// The state with what is before it.
pub(crate) fn encode(pending: &[Deleted], state: Vec<u8>) -> Vec<u8> {
    if pending.is_empty() {
        return state;
    }
    let mut out = vec![FORMAT_VERSION];
    put_varint(&mut out, pending.len() as u64);
    for deleted in pending {
        deleted.span.encode(&mut out);
        put_varint(&mut out, deleted.ts.0);
    }
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&state);
    out
}

/// Takes apart what [`encode`] made: ranges, and the structure's state.
pub(crate) fn split(bytes: &[u8]) -> Result<(Vec<Deleted>, &[u8])> {
    match bytes.first() {
        Some(&FORMAT_VERSION) => {
            decode(bytes).ok_or_else(|| damaged("ranges under a good checksum", "something else".to_owned()))
        }
        Some(found) if FORMATS.contains(found) => Err(Fault::Format {
            path: "the deleted ranges of an index".to_owned(),
            found: u32::from(*found),
            supported: u32::from(FORMAT_VERSION),
            remedy: "open the database with the version that wrote it".to_owned(),
        }),
        _ => Ok((Vec::new(), bytes)),
    }
}

fn decode(bytes: &[u8]) -> Option<(Vec<Deleted>, &[u8])> {
    let mut r = Reader::new(bytes.get(1..)?);
    let mut all: Vec<Deleted> = Vec::new();
    for _ in 0..r.varint()? {
        let (span, ts) = (Span::decode(&mut r)?, CommitTs(r.varint()?));
        if all.last().is_some_and(|last| last.ts > ts) {
            return None;
        }
        all.push(Deleted { span, ts, is_known: false, is_drained: false });
    }
    let (body, rest) = bytes.split_at(bytes.len() - r.rest().len());
    let (crc, state) = rest.split_first_chunk::<4>()?;
    (!all.is_empty() && u32::from_le_bytes(*crc) == crc32c(body)).then_some((all, state))
}

fn damaged(expected: &str, found: String) -> Fault {
    Fault::corrupt("the deleted ranges of an index in the manifest", 0, "fields", expected, found)
}

/// Bytes that may be such a state: for fuzzing.
pub fn fuzz(bytes: &[u8]) {
    if let Ok((all, state)) = split(bytes) {
        let again = encode(&all, state.to_vec());
        let back = split(&again).expect("what was encoded");
        assert_eq!(back, (all, state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<Deleted> {
        let of = |low: &[u8], high: Option<&[u8]>, ts| Deleted {
            span: Span { low: low.to_vec(), high: high.map(<[u8]>::to_vec) },
            ts: CommitTs(ts),
            is_known: false,
            is_drained: false,
        };
        vec![of(b"", Some(b"c"), 16), of(b"b", None, 400)]
    }

    #[test]
    fn comes_back_before_any_state() {
        for state in [&b""[..], &[1, 2, 3], &[0x85, 0]] {
            assert_eq!(split(&encode(&some(), state.to_vec())).unwrap(), (some(), state));
            assert_eq!(split(&encode(&[], state.to_vec())).unwrap(), (Vec::new(), state));
        }
    }

    #[test]
    fn damage_is_found() {
        let bytes = encode(&some(), Vec::new());
        for i in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[i] ^= 1 << (i % 8);
            // A first byte that is no such state's is left to the structure, which knows its own.
            let is_other = i == 0 && !FORMATS.contains(&bad[0]);
            assert!(is_other || split(&bad).is_err(), "bit of byte {i}");
            assert!(i == 0 || split(&bytes[..i]).is_err(), "cut at {i}");
        }
    }
}
