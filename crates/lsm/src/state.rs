//! What the manifest keeps of an index: its runs, and the file runs that were attached and are in none of them yet.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | format version |
//! | varint | number of runs; for each what [`Run::encode`] says: level (1; 0 to 7), versions, keys with a value, deleted keys, data blocks, bytes on disk, lowest and highest timestamp, log need (varints), first key, a key that none is above (length, bytes), number of top blocks, their addresses (16 each) |
//! | varint | number of attached runs; for each: its description, timestamp (varint) |
//! | varint | number of dead spans, of which nobody at or above its timestamp sees anything, or nothing more; for each: first key (length, bytes), 1 and the key it ends before or 0, timestamp, entries that it spares (varints) |
//! | 4 | CRC32C of everything before, little-endian |
//!
//! With the format came data blocks without offsets, with the one before fresh puts: a program that does not know them refuses the state, and meets none of
//! these blocks.
//!
//! The first byte is none that a tree's state begins with: a state that is opened as the wrong structure's is refused.

use std::sync::Arc;

use base::bytes::{Reader, put_bytes, put_varint};
use base::checksum::crc32c;
use base::{CommitTs, Fault, Result};
use store::RunMeta;

use crate::dead::Span;
use crate::run::Run;

const FORMAT_VERSION: u8 = 0x85;
/// The same, of a program whose data blocks have offsets.
const FORMAT_WITH_OFFSETS: u8 = 0x84;
/// And no fresh puts.
const FORMAT_WITHOUT_FRESH: u8 = 0x83;
/// And no dead spans.
const FORMAT_WITHOUT_DEAD: u8 = 0x82;

/// First bytes of such states, of this version and of later ones.
const FORMATS: std::ops::RangeInclusive<u8> = 0x80..=0x8f;

/// True if these bytes are, or were meant to be, the state of such an index, of whatever version.
#[must_use]
pub fn is_state(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|version| FORMATS.contains(version))
}

fn is_known(version: &u8) -> bool {
    [FORMAT_VERSION, FORMAT_WITH_OFFSETS, FORMAT_WITHOUT_FRESH, FORMAT_WITHOUT_DEAD].contains(version)
}

/// An attached run as a checkpoint names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedRun {
    pub meta: RunMeta,
    pub ts: CommitTs,
}

/// An index as the manifest has it.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub runs: Vec<Arc<Run>>,
    pub attached: Vec<NamedRun>,
    pub dead: Vec<Span>,
}

impl State {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT_VERSION];
        put_varint(&mut out, self.runs.len() as u64);
        self.runs.iter().for_each(|run| run.encode(&mut out));
        put_varint(&mut out, self.attached.len() as u64);
        for run in &self.attached {
            run.meta.encode(&mut out);
            put_varint(&mut out, run.ts.0);
        }
        put_varint(&mut out, self.dead.len() as u64);
        for Span { low, high, from, worth } in &self.dead {
            put_bytes(&mut out, low);
            out.push(u8::from(high.is_some()));
            high.iter().for_each(|high| put_bytes(&mut out, high));
            put_varint(&mut out, from.0);
            put_varint(&mut out, *worth);
        }
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self> {
        if let Some(&version) = bytes.first().filter(|version| !is_known(version)) {
            return Err(Fault::Format {
                path: "the state of an index with STRUCTURE=lsm".to_owned(),
                found: u32::from(version),
                supported: u32::from(FORMAT_VERSION),
                remedy: "open the database with the version that wrote it".to_owned(),
            });
        }
        let Some((body, crc)) = bytes.split_last_chunk::<4>() else {
            return Err(damaged("length", "at least 5 bytes", format!("{} bytes", bytes.len())));
        };
        let (stored, computed) = (u32::from_le_bytes(*crc), crc32c(body));
        if stored != computed {
            return Err(damaged("checksum", &format!("{stored:08x}"), format!("{computed:08x}")));
        }
        Self::decode_body(body).ok_or_else(|| damaged("fields", "runs", "something else".to_owned()))
    }

    fn decode_body(body: &[u8]) -> Option<Self> {
        let mut r = Reader::new(body);
        let has_dead = r.u8()? != FORMAT_WITHOUT_DEAD;
        let mut runs = Vec::new();
        for _ in 0..r.varint()? {
            runs.push(Run::decode(&mut r)?);
        }
        let mut attached = Vec::new();
        for _ in 0..r.varint()? {
            attached.push(NamedRun { meta: RunMeta::decode(&mut r)?, ts: CommitTs(r.varint()?) });
        }
        let mut dead: Vec<Span> = Vec::new();
        let count = if has_dead { r.varint()? } else { 0 };
        for _ in 0..count {
            let span = decode_span(&mut r)?;
            let is_behind = |last: &Span| last.high.as_ref().is_some_and(|high| *high <= span.low);
            if !dead.last().is_none_or(is_behind) {
                return None;
            }
            dead.push(span);
        }
        r.is_empty().then_some(Self { runs, attached, dead })
    }
}

fn decode_span(r: &mut Reader<'_>) -> Option<Span> {
    let low = r.bytes()?.to_vec();
    let high = match r.u8()? {
        0 => None,
        1 => Some(r.bytes()?.to_vec()),
        _ => return None,
    };
    let span = Span { low, high, from: CommitTs(r.varint()?), worth: r.varint()? };
    span.high.as_ref().is_none_or(|high| span.low < *high).then_some(span)
}

fn damaged(what: &'static str, expected: &str, found: String) -> Fault {
    Fault::corrupt("the state of an index with STRUCTURE=lsm in the manifest", 0, what, expected, found)
}

#[cfg(test)]
mod tests {
    use store::BlockRef;

    use super::*;
    use crate::run::RunInfo;

    fn state() -> State {
        let at = BlockRef { offset: 4096, stored_bytes: 777, crc: 0xdead_beef };
        let info = RunInfo {
            level: 2,
            entries: 300,
            live: 200,
            deleted: 7,
            slots: 4,
            stored_bytes: 1 << 33,
            oldest: CommitTs(16),
            newest: CommitTs(960),
            log_need: CommitTs(976),
            min_key: Vec::new(),
            max_key: b"zz".to_vec(),
        };
        let meta = RunMeta { id: 3, bytes: 9, entries: 1, height: 1, root: at, min_key: vec![1], max_key: vec![2] };
        let span = |low: &[u8], high: Option<&[u8]>| Span {
            low: low.to_vec(),
            high: high.map(<[u8]>::to_vec),
            from: CommitTs(64),
            worth: 1000,
        };
        State {
            runs: vec![Run::named(info, vec![at, at])],
            attached: vec![NamedRun { meta, ts: CommitTs(32) }],
            dead: vec![span(b"", Some(b"c")), span(b"c", Some(b"d")), span(b"x", None)],
        }
    }

    #[test]
    fn comes_back() {
        for state in [state(), State::default()] {
            let back = State::decode(&state.encode()).unwrap();
            assert_eq!((&back.attached, &back.dead), (&state.attached, &state.dead));
            let said = |state: &State| {
                state.runs.iter().map(|run| (run.info.clone(), run.top_at().to_vec())).collect::<Vec<_>>()
            };
            assert_eq!(said(&back), said(&state));
        }
    }

    #[test]
    fn a_state_without_dead_spans_is_read() {
        let bare = State { dead: Vec::new(), ..state() };
        let mut bytes = bare.encode();
        // Without the count of spans, under the number of before.
        bytes.truncate(bytes.len() - 5);
        bytes[0] = FORMAT_WITHOUT_DEAD;
        let crc = crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        assert!(is_state(&bytes));
        let back = State::decode(&bytes).unwrap();
        assert_eq!((back.attached, back.dead), (bare.attached, bare.dead));
    }

    #[test]
    fn a_state_of_before_is_read() {
        for version in [FORMAT_WITH_OFFSETS, FORMAT_WITHOUT_FRESH] {
            let mut bytes = state().encode();
            bytes.truncate(bytes.len() - 4);
            bytes[0] = version;
            let crc = crc32c(&bytes);
            bytes.extend_from_slice(&crc.to_le_bytes());
            let back = State::decode(&bytes).unwrap();
            assert_eq!((back.attached, back.dead), (state().attached, state().dead));
        }
    }

    #[test]
    fn damage_is_found() {
        let bytes = state().encode();
        for i in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[i] ^= 1 << (i % 8);
            assert!(State::decode(&bad).is_err(), "bit of byte {i}");
            assert!(State::decode(&bytes[..i]).is_err(), "cut at {i}");
        }
    }
}
