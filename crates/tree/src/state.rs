//! What the manifest keeps of a tree: the root's descriptor and the file runs not drained yet.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | format version |
//! | 16 | address of the root's image: offset u64, stored length u32, CRC32C u32, little-endian |
//! | varint | versions, live keys, dead mark + 1 (0: none), log need, highest timestamp, write LSN, leaves, bytes on disk (estimates) |
//! | varint | number of runs; for each: its description, timestamp (varint), the key drained to (length, bytes) |
//! | 4 | CRC32C of everything before, little-endian |

use base::bytes::{Reader, put_varint};
use base::checksum::crc32c;
use base::{CommitTs, Fault, Lsn, Result};
use store::BlockRef;

use crate::node::{NodeDescriptor, NodeKind};
use crate::runs::NamedRun;

const FORMAT_VERSION: u8 = 1;

/// A tree as the manifest has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub root: NodeDescriptor,
    /// Leaves, as counted when the checkpoint ended.
    pub leaves: u64,
    /// Bytes of the blocks that the root's image reaches, about.
    pub disk_bytes: u64,
    pub runs: Vec<NamedRun>,
}

impl State {
    pub fn encode(&self) -> Vec<u8> {
        let root = &self.root;
        let mut out = vec![FORMAT_VERSION];
        root.block.encode(&mut out);
        let dead = root.dead_from.map_or(0, |ts| ts.0 + 1);
        let (need, newest, written) = (root.log_need.0, root.max_ts.0, root.write_lsn.0);
        for n in [root.entries, root.live, dead, need, newest, written, self.leaves, self.disk_bytes] {
            put_varint(&mut out, n);
        }
        put_varint(&mut out, self.runs.len() as u64);
        for run in &self.runs {
            run.encode(&mut out);
        }
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self> {
        if let Some(&version) = bytes.first().filter(|version| **version != FORMAT_VERSION) {
            return Err(Fault::Format {
                path: "the state of a tree".to_owned(),
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
        Self::decode_body(body).ok_or_else(|| damaged("fields", "a root and its runs", "something else".to_owned()))
    }

    fn decode_body(body: &[u8]) -> Option<Self> {
        let mut r = Reader::new(body);
        r.u8()?;
        let block = BlockRef::decode(&mut r)?;
        let mut next = || r.varint();
        let root = NodeDescriptor {
            kind: NodeKind::Inner,
            block,
            entries: next()?,
            live: next()?,
            dead_from: next()?.checked_sub(1).map(CommitTs),
            log_need: CommitTs(next()?),
            max_ts: CommitTs(next()?),
            write_lsn: Lsn(next()?),
            has_overflow: false,
            is_exact: true,
        };
        let (leaves, disk_bytes) = (next()?, next()?);
        let count = next()?;
        let runs = (0..count).map(|_| NamedRun::decode(&mut r)).collect::<Option<_>>()?;
        r.is_empty().then_some(Self { root, leaves, disk_bytes, runs })
    }
}

/// The root that a state names: for tests that damage a database on purpose.
///
/// # Errors
/// As opening the tree.
pub fn root_of(state: &[u8]) -> Result<NodeDescriptor> {
    Ok(State::decode(state)?.root)
}

/// The state with another root.
///
/// # Errors
/// As opening the tree.
pub fn with_root(state: &[u8], root: NodeDescriptor) -> Result<Vec<u8>> {
    Ok(State { root, ..State::decode(state)? }.encode())
}

fn damaged(what: &'static str, expected: &str, found: String) -> Fault {
    Fault::corrupt("the state of a tree in the manifest", 0, what, expected, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::RunMeta;

    fn state() -> State {
        let block = BlockRef { offset: 4096, stored_bytes: 777, crc: 0xdead_beef };
        let root = NodeDescriptor {
            kind: NodeKind::Inner,
            block,
            entries: 12,
            live: 5,
            dead_from: Some(CommitTs(0)),
            log_need: CommitTs(960),
            max_ts: CommitTs(944),
            write_lsn: Lsn(u64::MAX),
            has_overflow: false,
            is_exact: true,
        };
        let meta = RunMeta { id: 3, bytes: 9, entries: 1, height: 1, root: block, min_key: vec![1], max_key: vec![2] };
        State {
            root,
            leaves: 2,
            disk_bytes: 1 << 40,
            runs: vec![NamedRun { meta, ts: CommitTs(32), drained_to: b"k".to_vec() }],
        }
    }

    #[test]
    fn comes_back() {
        let one = state();
        let two =
            State { root: NodeDescriptor { dead_from: None, ..one.root }, leaves: 0, disk_bytes: 0, runs: Vec::new() };
        for state in [one, two] {
            assert_eq!(State::decode(&state.encode()).unwrap(), state);
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
