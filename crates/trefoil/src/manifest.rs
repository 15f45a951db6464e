//! The manifest: what a checkpoint publishes, one whole file per checkpoint.
//!
//! `MANIFEST-<generation>` is written under a temporary name, synced, renamed, and the directory synced;
//! only then are blocks freed, the log trimmed and the older manifest removed. So at most two manifests exist,
//! the newest is whole or it was never named, and a newest that cannot be read is damage: it is reported,
//! never papered over with the older one, whose extents may be reused already (rule A13).
//!
//! Format: docs/formats/manifest.md.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base::bytes::{Reader, put_bytes, put_varint};
use base::checksum::crc32c;
use base::{Fault, IndexId, Lsn, Result};
use store::RunMeta;
use vfs::{OpenHow, Vfs};

use crate::layout::publish;

const MAGIC: &[u8; 8] = b"TREFMAN1";
/// Newest format this build writes and reads: with prepared sets.
pub const FORMAT: u32 = 2;
/// Written while there are no prepared sets; the oldest format this build reads.
const FORMAT_PLAIN: u32 = 1;
const PREFIX: &str = "MANIFEST-";
/// magic 8 | format u32 | crc u32 | payload length u64
const HEADER_BYTES: usize = 24;

/// State of one index as of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// Its number.
    pub id: IndexId,
    /// F: replay skips commits at or below this.
    pub skip: Lsn,
    /// The structure's own state.
    pub state: Vec<u8>,
    /// Run files that the state names.
    pub runs: Vec<u64>,
}

/// What a checkpoint publishes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manifest {
    /// Ascends by one with each checkpoint.
    pub generation: u64,
    /// Of the database, drawn at creation.
    pub database_id: u64,
    /// Log incarnation that was being written.
    pub incarnation: u64,
    /// The log was durable to here when the manifest was written: damage below it is corruption.
    pub log_durable: Lsn,
    /// Records below this are not needed any more.
    pub log_floor: Lsn,
    /// Every index number ever given is below this.
    pub next_index: u32,
    /// Every run number ever given is below this.
    pub next_run: u64,
    /// The allocator's state.
    pub space: Vec<u8>,
    /// The indexes, ascending.
    pub indexes: Vec<IndexEntry>,
    /// Prepared sets that lie in run files; format 2 if there are any.
    pub prepared: Vec<SavedSet>,
}

impl Manifest {
    /// F of each index.
    pub fn skips(&self) -> BTreeMap<IndexId, Lsn> {
        self.indexes.iter().map(|index| (index.id, index.skip)).collect()
    }
}

/// A prepared transaction that needs the log no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedSet {
    /// The end of its prepare record: what the record that decides it names.
    pub prepare: Lsn,
    /// Its name.
    pub xid: Vec<u8>,
    /// When it was prepared, in milliseconds since 1970.
    pub since_ms: u64,
    /// Its operations on each index.
    pub shares: Vec<(IndexId, RunMeta)>,
}

impl SavedSet {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prepare.0.to_le_bytes());
        put_bytes(out, &self.xid);
        out.extend_from_slice(&self.since_ms.to_le_bytes());
        put_varint(out, self.shares.len() as u64);
        for (id, meta) in &self.shares {
            out.extend_from_slice(&id.0.to_le_bytes());
            meta.encode(out);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let (prepare, xid, since_ms) = (Lsn(r.u64()?), r.bytes()?.to_vec(), r.u64()?);
        let mut shares = Vec::new();
        for _ in 0..r.varint()? {
            shares.push((IndexId(r.u32()?), RunMeta::decode(r)?));
        }
        Some(Self { prepare, xid, since_ms, shares })
    }
}

impl Manifest {
    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut p = Vec::new();
        for n in [
            self.generation,
            self.database_id,
            self.incarnation,
            self.log_durable.0,
            self.log_floor.0,
            u64::from(self.next_index),
            self.next_run,
        ] {
            p.extend_from_slice(&n.to_le_bytes());
        }
        put_bytes(&mut p, &self.space);
        put_varint(&mut p, self.indexes.len() as u64);
        for entry in &self.indexes {
            p.extend_from_slice(&entry.id.0.to_le_bytes());
            p.extend_from_slice(&entry.skip.0.to_le_bytes());
            put_bytes(&mut p, &entry.state);
            put_varint(&mut p, entry.runs.len() as u64);
            entry.runs.iter().for_each(|run| put_varint(&mut p, *run));
        }
        let mut format = FORMAT_PLAIN;
        if !self.prepared.is_empty() {
            format = FORMAT;
            put_varint(&mut p, self.prepared.len() as u64);
            self.prepared.iter().for_each(|set| set.encode(&mut p));
        }
        let mut out = Vec::with_capacity(HEADER_BYTES + p.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&format.to_le_bytes());
        out.extend_from_slice(&crc32c(&p).to_le_bytes());
        out.extend_from_slice(&(p.len() as u64).to_le_bytes());
        out.extend_from_slice(&p);
        out
    }

    /// Reads the bytes of a file named `name`.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<Self> {
        let bad = |what, expected: String, found: String| Fault::corrupt(name, 0, what, expected, found);
        if bytes.len() < HEADER_BYTES || &bytes[..8] != MAGIC {
            return Err(bad("manifest header", "the manifest magic".into(), format!("{} bytes", bytes.len())));
        }
        let mut r = Reader::new(&bytes[8..]);
        let (format, crc, len) = (r.u32().unwrap_or(0), r.u32().unwrap_or(0), r.u64().unwrap_or(0));
        if !(FORMAT_PLAIN..=FORMAT).contains(&format) {
            let remedy = if format > FORMAT { "use a newer version" } else { "upgrade the database" };
            return Err(Fault::Format { path: name.into(), found: format, supported: FORMAT, remedy: remedy.into() });
        }
        if r.rest().len() as u64 != len {
            return Err(bad("manifest length", len.to_string(), r.rest().len().to_string()));
        }
        if crc32c(r.rest()) != crc {
            return Err(bad("manifest checksum", format!("{crc:08x}"), format!("{:08x}", crc32c(r.rest()))));
        }
        Self::decode_payload(format, r.rest())
            .ok_or_else(|| bad("manifest payload", "a well-formed manifest".into(), "a malformed one".into()))
    }

    /// Reads the payload behind a good checksum.
    pub(crate) fn decode_payload(format: u32, bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let mut m = Manifest {
            generation: r.u64()?,
            database_id: r.u64()?,
            incarnation: r.u64()?,
            log_durable: Lsn(r.u64()?),
            log_floor: Lsn(r.u64()?),
            next_index: u32::try_from(r.u64()?).ok()?,
            next_run: r.u64()?,
            space: r.bytes()?.to_vec(),
            indexes: Vec::new(),
            prepared: Vec::new(),
        };
        for _ in 0..r.varint()? {
            let (id, skip, state) = (IndexId(r.u32()?), Lsn(r.u64()?), r.bytes()?.to_vec());
            let mut runs = Vec::new();
            for _ in 0..r.varint()? {
                runs.push(r.varint()?);
            }
            let entry = IndexEntry { id, skip, state, runs };
            if m.indexes.last().is_some_and(|last| last.id >= entry.id) {
                return None;
            }
            m.indexes.push(entry);
        }
        for _ in 0..if format == FORMAT { r.varint()? } else { 0 } {
            m.prepared.push(SavedSet::decode(&mut r)?);
        }
        r.is_empty().then_some(m)
    }

    /// Publishes the manifest in `dir` and removes older ones.
    pub fn publish(&self, vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<()> {
        let name = format!("{PREFIX}{:020}", self.generation);
        let target = dir.join(&name);
        let io = |op, e: &std::io::Error| Fault::io(op, target.display(), e);
        // A full disk is an ordinary error until the file has its name: the next try begins it again (B7).
        let fault = |op, e: &std::io::Error| match e.kind() {
            std::io::ErrorKind::StorageFull if matches!(op, "create" | "truncate" | "write") => Fault::NoSpace {
                what: format!("the manifest {}", target.display()),
                remedy: "free some space; checkpoints are tried again by themselves".into(),
            },
            _ => io(op, e),
        };
        publish(vfs, dir, &name, &self.encode(), fault)?;
        for other in generations(vfs, dir)? {
            if other < self.generation {
                vfs.remove(&dir.join(format!("{PREFIX}{other:020}"))).map_err(|e| io("remove older", &e))?;
            }
        }
        Ok(())
    }

    /// The newest manifest in `dir`, `None` if there is none.
    pub fn newest(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<Option<Self>> {
        let Some(newest) = generations(vfs, dir)?.into_iter().max() else { return Ok(None) };
        let path = dir.join(format!("{PREFIX}{newest:020}"));
        let io = |op, e: &std::io::Error| Fault::io(op, path.display(), e);
        let file = vfs.open(&path, OpenHow::default()).map_err(|e| io("open", &e))?;
        let len = file.len().map_err(|e| io("size", &e))?;
        let mut bytes = vec![0; usize::try_from(len).expect("a manifest fits memory")];
        file.read_at(&mut bytes, 0).map_err(|e| io("read", &e))?;
        let manifest = Self::decode(&path.display().to_string(), &bytes)?;
        if manifest.generation != newest {
            return Err(Fault::corrupt(path.display(), 24, "manifest generation", newest, manifest.generation));
        }
        Ok(Some(manifest))
    }
}

/// Generations of the manifests in `dir`.
pub fn generations(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<Vec<u64>> {
    let names = vfs.list(dir).map_err(|e| Fault::io("list", dir.display(), &e))?;
    Ok(names.iter().filter_map(|n| n.strip_prefix(PREFIX)?.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        Manifest {
            generation: 7,
            database_id: 42,
            incarnation: 3,
            log_durable: Lsn(160),
            log_floor: Lsn(32),
            next_index: 9,
            next_run: 4,
            space: vec![1, 2, 3],
            indexes: vec![
                IndexEntry { id: IndexId(0), skip: Lsn(16), state: vec![], runs: vec![] },
                IndexEntry { id: IndexId(5), skip: Lsn(160), state: vec![9; 300], runs: vec![3, 700] },
            ],
            prepared: vec![SavedSet { prepare: Lsn(48), xid: b"x".to_vec(), since_ms: 9, shares: vec![] }],
        }
    }

    #[test]
    fn comes_back() {
        let m = sample();
        assert_eq!(Manifest::decode("m", &m.encode()).expect("decodes"), m);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let bytes = sample().encode();
        for at in 0..bytes.len() * 8 {
            let mut b = bytes.clone();
            b[at / 8] ^= 1 << (at % 8);
            assert!(Manifest::decode("m", &b).is_err(), "bit {at}");
        }
        for cut in 0..bytes.len() {
            assert!(Manifest::decode("m", &bytes[..cut]).is_err(), "cut {cut}");
        }
    }
}
