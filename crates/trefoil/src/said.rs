//! What the manifest says of an index before the state of its structure, while it has to say it: [`crate::ddl`]'s `rows`.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | `0xb1` |
//! | 1 | 1: the owner that its blocks name is another index; 2: its settings, by which the catalog tells whether it has the rows |
//! | varints | of 1 the number of that index; of 2 those of structure and shape, and of the compression, then node bytes |
//! | 4 | CRC32C of everything before, little-endian |
//! | rest | the structure's state |
//!
//! The first byte is none that a structure's state begins with.

use base::bytes::{Reader, put_varint};
use base::checksum::crc32c;
use base::{Fault, IndexId, Result};

use crate::options::IndexOptions;

const FORMAT_VERSION: u8 = 0xb1;
/// First bytes of such states, of this version and of later ones.
const FORMATS: std::ops::RangeInclusive<u8> = 0xb0..=0xbf;

/// What is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// Its blocks are of this index.
    Owner(IndexId),
    /// It has these settings: it has the rows if the catalog says the same of them, and else what was there before has.
    Settings(IndexOptions),
}

impl Said {
    /// The state with this before it.
    pub fn before(self, state: &[u8]) -> Vec<u8> {
        let mut out = vec![FORMAT_VERSION];
        match self {
            Self::Owner(id) => {
                out.push(1);
                put_varint(&mut out, u64::from(id.0));
            }
            Self::Settings(options) => {
                out.push(2);
                put_varint(&mut out, u64::from(options.structure_number()));
                put_varint(&mut out, options.compression as u64);
                put_varint(&mut out, options.node_bytes as u64);
            }
        }
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(state);
        out
    }

    /// Takes apart what [`Said::before`] made: what is said, if anything is, and the structure's state.
    pub fn split(bytes: &[u8]) -> Result<(Option<Self>, &[u8])> {
        match bytes.first() {
            Some(&FORMAT_VERSION) => match Self::decode(bytes) {
                Some((said, state)) => Ok((Some(said), state)),
                None => {
                    let (what, found) = ("what is said before a state", "something else");
                    Err(Fault::corrupt("manifest", 0, what, "an owner or settings under a good checksum", found))
                }
            },
            Some(found) if FORMATS.contains(found) => Err(Fault::Format {
                path: "the state of an index".to_owned(),
                found: u32::from(*found),
                supported: u32::from(FORMAT_VERSION),
                remedy: "open the database with the version that wrote it".to_owned(),
            }),
            _ => Ok((None, bytes)),
        }
    }

    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut r = Reader::new(bytes.get(1..)?);
        let said = match r.u8()? {
            1 => Self::Owner(IndexId(u32::try_from(r.varint()?).ok()?)),
            2 => {
                let (structure, shape) = IndexOptions::of_structure_number(u8::try_from(r.varint()?).ok()?)?;
                let compression = match r.varint()? {
                    0 => store::Compression::None,
                    1 => store::Compression::Lz4,
                    2 => store::Compression::Zstd,
                    _ => return None,
                };
                let node_bytes = r.length()?;
                Self::Settings(IndexOptions { structure, compression, node_bytes, shape, ..IndexOptions::default() })
            }
            _ => return None,
        };
        let (head, rest) = bytes.split_at(bytes.len() - r.rest().len());
        let (crc, state) = rest.split_first_chunk::<4>()?;
        (u32::from_le_bytes(*crc) == crc32c(head)).then_some((said, state))
    }
}

/// Bytes that may be such a state: for fuzzing.
pub fn fuzz(bytes: &[u8]) {
    if let Ok((Some(said), state)) = Said::split(bytes) {
        let again = said.before(state);
        assert_eq!(Said::split(&again).expect("what was encoded"), (Some(said), state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Structure;
    use index::Shape;

    fn all() -> [Said; 2] {
        let lsm = IndexOptions { structure: Structure::Lsm, shape: Shape::Universal, ..IndexOptions::default() };
        [Said::Owner(IndexId(700)), Said::Settings(IndexOptions { node_bytes: 4096, ..lsm })]
    }

    #[test]
    fn what_is_said_comes_back_before_any_state() {
        for state in [&b""[..], &[1, 2, 3], &[0x85, 0]] {
            for said in all() {
                assert_eq!(Said::split(&said.before(state)).expect("it was encoded"), (Some(said), state));
            }
            assert_eq!(Said::split(state).expect("nothing is said"), (None, state));
        }
    }

    #[test]
    fn damage_of_what_is_said_is_found() {
        for said in all() {
            let bytes = said.before(b"");
            for at in 8..bytes.len() * 8 {
                let mut bad = bytes.clone();
                bad[at / 8] ^= 1 << (at % 8);
                assert!(Said::split(&bad).is_err(), "bit {at} of {said:?}");
            }
        }
    }
}
