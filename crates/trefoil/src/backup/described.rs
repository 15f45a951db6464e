//! What a backup is made of: the file `BACKUP`, written when the rest of it is there.
//!
//! It names each extent with its sum and whether it is in this backup or in one before, each file beside them with its sum, and the
//! manifest. So a later backup knows what it may leave out without looking at the blocks of this one, and who restores knows whether
//! what he has is what was written.
//!
//! An increment is no database by itself: it has neither header nor manifest file, and nothing opens it by mistake.
//!
//! Format: docs/formats/backup.md.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use base::bytes::{Reader, put_bytes, put_varint};
use base::checksum::crc32c;
use base::sum::Sum;
use base::{CommitTs, Fault};
use store::{CopiedExtent, ExtentId};
use vfs::{OpenHow, Vfs};

use super::target::there;
use crate::error::{Error, Result};
use crate::layout::publish;
use crate::manifest::Manifest;

/// Name of the file.
pub const DESCRIPTION: &str = "BACKUP";
const MAGIC: &[u8; 8] = b"TREFBAK1";
const FORMAT: u32 = 1;
/// magic 8 | format u32 | crc u32 | payload length u64
const HEADER_BYTES: usize = 24;

/// What is in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Drawn for this backup; never 0.
    pub id: u64,
    /// Of the backup that this one is an increment to; 0 for a full one.
    pub base: u64,
    /// The format of the database.
    pub format: u32,
    /// The life of the database in which it was made, and the generation of its manifest in it.
    pub life: u64,
    pub generation: u64,
    pub extent_bytes: u64,
    pub moment: CommitTs,
    pub manifest: Manifest,
    /// All that the manifest reaches, ascending.
    pub extents: Vec<CopiedExtent>,
    /// Paths from the backup's directory.
    pub files: Vec<DescribedFile>,
}

/// A file other than blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedFile {
    pub path: String,
    pub bytes: u64,
    pub sum: Sum,
}

impl Described {
    /// Whether it is one that stands by itself.
    pub fn is_full(&self) -> bool {
        self.base == 0
    }

    /// Whether `wal/` in the backup's directory has the files that are described, and no others.
    pub fn has_its_log(&self, vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<bool> {
        let path = dir.join("wal");
        let mut found = vfs.list(&path).map_err(|e| Fault::io("list", path.display(), &e))?;
        found.sort_unstable();
        let mut described: Vec<_> = self.files.iter().filter_map(|file| file.path.strip_prefix("wal/")).collect();
        described.sort_unstable();
        Ok(found == described)
    }

    /// The sums of all extents.
    pub fn sums(&self) -> BTreeMap<ExtentId, Sum> {
        self.extents.iter().map(|of| (of.extent, of.sum)).collect()
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut p = Vec::new();
        for n in [self.id, self.base, self.life, self.generation, self.extent_bytes, self.moment.0] {
            p.extend_from_slice(&n.to_le_bytes());
        }
        p.extend_from_slice(&self.format.to_le_bytes());
        put_bytes(&mut p, &self.manifest.encode());
        put_varint(&mut p, self.extents.len() as u64);
        let mut last = 0;
        for of in &self.extents {
            put_varint(&mut p, u64::from(of.extent - last) << 1 | u64::from(of.is_here));
            of.sum.encode(&mut p);
            last = of.extent;
        }
        put_varint(&mut p, self.files.len() as u64);
        for file in &self.files {
            put_bytes(&mut p, file.path.as_bytes());
            put_varint(&mut p, file.bytes);
            file.sum.encode(&mut p);
        }
        let mut out = Vec::with_capacity(HEADER_BYTES + p.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&crc32c(&p).to_le_bytes());
        out.extend_from_slice(&(p.len() as u64).to_le_bytes());
        out.extend_from_slice(&p);
        out
    }

    /// Reads the bytes of a file named `name`.
    pub fn decode(name: &str, bytes: &[u8]) -> base::Result<Self> {
        let bad = |what, expected: String, found: String| Fault::corrupt(name, 0, what, expected, found);
        if bytes.len() < HEADER_BYTES || &bytes[..8] != MAGIC {
            return Err(bad("header of a backup", "its magic".into(), format!("{} bytes", bytes.len())));
        }
        let mut r = Reader::new(&bytes[8..]);
        let (format, crc, len) = (r.u32().unwrap_or(0), r.u32().unwrap_or(0), r.u64().unwrap_or(0));
        if format != FORMAT {
            let remedy = "use the version that made it, or a newer one".into();
            return Err(Fault::Format { path: name.into(), found: format, supported: FORMAT, remedy });
        }
        if r.rest().len() as u64 != len {
            return Err(bad("length", len.to_string(), r.rest().len().to_string()));
        }
        if crc32c(r.rest()) != crc {
            return Err(bad("checksum", format!("{crc:08x}"), format!("{:08x}", crc32c(r.rest()))));
        }
        Self::parse(name, r)
            .ok_or_else(|| bad("contents", "a description of a backup".into(), "a malformed one".into()))
    }

    fn parse(name: &str, mut r: Reader<'_>) -> Option<Self> {
        let (id, base, life, generation) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
        let (extent_bytes, moment, format) = (r.u64()?, CommitTs(r.u64()?), r.u32()?);
        let manifest = Manifest::decode(name, r.bytes()?).ok()?;
        let (mut extents, mut last) = (Vec::new(), 0u32);
        for _ in 0..r.varint()? {
            let step = r.varint()?;
            let extent =
                u32::try_from(step >> 1).ok().filter(|step| *step > 0).and_then(|step| last.checked_add(step))?;
            extents.push(CopiedExtent { extent, sum: Sum::decode(&mut r)?, is_here: step & 1 == 1 });
            last = extent;
        }
        let mut files = Vec::new();
        for _ in 0..r.varint()? {
            let path = String::from_utf8(r.bytes()?.to_vec()).ok().filter(|path| is_below(path))?;
            files.push(DescribedFile { path, bytes: r.varint()?, sum: Sum::decode(&mut r)? });
        }
        let is_whole = r.is_empty() && id != 0 && extent_bytes > 0;
        is_whole.then_some(Self { id, base, format, life, generation, extent_bytes, moment, manifest, extents, files })
    }

    /// The description of the backup in `dir`.
    pub fn read(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<Self> {
        let path = dir.join(DESCRIPTION);
        let file = vfs.open(&path, OpenHow::default()).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::InvalidArgument(format!(
                "{} is no backup that can be built on: it has no file {DESCRIPTION}; the backup did not come to its end, or was \
                 made by an older release",
                dir.display()
            )),
            _ => Fault::io("open", path.display(), &e).into(),
        })?;
        let len = file.len().map_err(|e| Fault::io("size", path.display(), &e))?;
        let mut bytes = vec![0; usize::try_from(len).expect("a description fits memory")];
        file.read_at(&mut bytes, 0).map_err(|e| Fault::io("read", path.display(), &e))?;
        Ok(Self::decode(&path.display().to_string(), &bytes)?)
    }

    /// Writes it to `dir`, all at once.
    pub fn publish(&self, vfs: &Arc<dyn Vfs>, dir: &Path) -> base::Result<()> {
        let fault = |op, e: &std::io::Error| there(dir)(Fault::io(op, dir.join(DESCRIPTION).display(), e));
        publish(vfs, dir, DESCRIPTION, &self.encode(), fault)
    }
}

/// A path that leads into the backup's directory and not out of it.
fn is_below(path: &str) -> bool {
    path.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Described {
        let mut sum = Sum::default();
        sum.add(b"something");
        let extent = |extent, is_here| CopiedExtent { extent, sum, is_here };
        Described {
            id: 7,
            base: 6,
            format: 9,
            life: 5,
            generation: 4,
            extent_bytes: 1 << 20,
            moment: CommitTs(99),
            manifest: Manifest { generation: 3, database_id: 42, ..Manifest::default() },
            extents: vec![extent(1, true), extent(2, false), extent(90, true)],
            files: vec![DescribedFile { path: "wal/1".into(), bytes: 9, sum }],
        }
    }

    #[test]
    fn comes_back() {
        assert_eq!(Described::decode("b", &sample().encode()).expect("decodes"), sample());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let bytes = sample().encode();
        for at in 0..bytes.len() * 8 {
            let mut b = bytes.clone();
            b[at / 8] ^= 1 << (at % 8);
            assert!(Described::decode("b", &b).is_err(), "bit {at}");
        }
        for cut in 0..bytes.len() {
            assert!(Described::decode("b", &bytes[..cut]).is_err(), "cut {cut}");
        }
    }

    #[test]
    fn no_file_leads_out_of_the_directory() {
        for path in ["../x", "/x", "wal/../../x", "", "wal//x"] {
            let mut bad = sample();
            bad.files[0].path = path.into();
            assert!(Described::decode("b", &bad.encode()).is_err(), "{path}");
        }
    }
}
