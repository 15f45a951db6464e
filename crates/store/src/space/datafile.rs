//! The data file itself: its header, and reads and writes as direct I/O wants them.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::bytes::Reader;
use base::checksum::crc32c;
use base::limits::SECTOR_BYTES;
use base::{Fault, Result};
use crossbeam_utils::CachePadded;
use vfs::{AlignedBuf, File, OpenHow, Vfs};

use crate::BlockRef;
use crate::blockio::{in_whole_sectors, read_block};

/// Name of the data file in the database's directory.
pub const DATA_FILE: &str = "data.trefoil";
const MAGIC: [u8; 8] = *b"TREFOILD";
const FORMAT_VERSION: u32 = 1;

pub(super) struct DataFile {
    file: Arc<dyn File>,
    pub(super) name: String,
    pub(super) written_bytes: CachePadded<AtomicU64>,
    pub(super) read_bytes: CachePadded<AtomicU64>,
}

impl DataFile {
    /// Opens `data.trefoil` in `dir`, created if `create`.
    pub(super) fn open(vfs: &dyn Vfs, dir: &Path, create: bool, direct: bool) -> Result<Self> {
        let path = dir.join(DATA_FILE);
        let name = path.display().to_string();
        let how = OpenHow { write: true, create, create_new: false, direct };
        let file = vfs.open(&path, how).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Fault::corrupt(&name, 0, "data file", "the file the manifest names", "no file"),
            _ => Fault::io("open", &name, &e),
        })?;
        Ok(Self { file, name, written_bytes: CachePadded::default(), read_bytes: CachePadded::default() })
    }

    pub(super) fn file(&self) -> &dyn File {
        &*self.file
    }

    pub(super) fn shared(&self) -> Arc<dyn File> {
        self.file.clone()
    }

    pub(super) fn len(&self) -> Result<u64> {
        self.file.len().map_err(|e| Fault::io("read length of", &self.name, &e))
    }

    pub(super) fn write_header(&self, extent_bytes: u64, database_id: u64) -> Result<()> {
        let mut sector = AlignedBuf::zeroed(SECTOR_BYTES);
        sector[0..8].copy_from_slice(&MAGIC);
        sector[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        sector[16..24].copy_from_slice(&extent_bytes.to_le_bytes());
        sector[24..32].copy_from_slice(&database_id.to_le_bytes());
        let crc = crc32c(&sector[..SECTOR_BYTES - 4]);
        sector[SECTOR_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        self.file.write_at(&sector, 0).map_err(|e| Fault::io("write", &self.name, &e))
    }

    /// Extent size and database id.
    pub(super) fn read_header(&self) -> Result<(u64, u64)> {
        let corrupt = |what, expected: &dyn std::fmt::Display, found: &dyn std::fmt::Display| {
            Fault::corrupt(&self.name, 0, what, expected, found)
        };
        let mut sector = AlignedBuf::zeroed(SECTOR_BYTES);
        self.file.read_at(&mut sector, 0).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => corrupt("file header", &"4096 bytes", &"a shorter file"),
            _ => Fault::io("read", &self.name, &e),
        })?;
        if sector[0..8] != MAGIC {
            return Err(corrupt("magic", &"a Trefoil data file", &base::bytes::printable(&sector[0..8])));
        }
        let mut r = Reader::new(&sector[8..32]);
        let fields = (r.u32(), r.u32(), r.u64(), r.u64());
        let (Some(version), Some(_), Some(extent_bytes), Some(database_id)) = fields else {
            return Err(corrupt("file header", &"4096 bytes", &"a shorter file"));
        };
        let stored = u32::from_le_bytes(sector[SECTOR_BYTES - 4..].try_into().expect("four bytes"));
        let computed = crc32c(&sector[..SECTOR_BYTES - 4]);
        if stored != computed {
            return Err(corrupt("header checksum", &format!("{stored:08x}"), &format!("{computed:08x}")));
        }
        if version != FORMAT_VERSION {
            return Err(Fault::Format {
                path: self.name.clone(),
                found: version,
                supported: FORMAT_VERSION,
                remedy: "open the database with the release that wrote it".to_owned(),
            });
        }
        Ok((extent_bytes, database_id))
    }

    /// Writes from a sector's start on; the rest of the last sector becomes zero.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        in_whole_sectors(bytes, |sectors| {
            self.file.write_at(sectors, offset)?;
            self.written_bytes.fetch_add(sectors.len() as u64, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Reads the bytes of a block and hands them to `with`.
    pub(super) fn read<T>(&self, at: BlockRef, with: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        self.read_bytes.fetch_add(u64::from(at.stored_bytes), Ordering::Relaxed);
        read_block(&*self.file, &self.name, at, with)
    }
}
