//! Reads a run file: point look-ups and single blocks.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use base::bytes::Reader;
use base::limits::SECTOR_BYTES;
use base::{Fault, Result};
use vfs::sync::Mutex;
use vfs::{AlignedBuf, File, OpenHow, Vfs};

use super::block::{Body, LEVEL_LIST, LEVEL_PIECE, RunBlock, Spot};
use super::{PIECE_BYTES, RunMeta, file_path, footer, owner};
use crate::blockio::read_block;
use crate::codec::{self, HEADER_BYTES, PAYLOAD_BYTES_MAX};
use crate::{BlockKind, BlockRef};

/// Blocks of one run kept in memory, beside its root: 128 KiB.
const KEPT_BLOCKS: usize = 8;

pub(super) struct FileRun {
    file: Arc<dyn File>,
    name: String,
    pub(super) meta: RunMeta,
    pub(super) root: Arc<RunBlock>,
    /// Whoever wrote it says so. Relaxed: set before the run is shared.
    pub(super) only_deletes: AtomicBool,
    /// The same; 0: it is not known.
    pub(super) content_bytes: AtomicU64,
    /// Last read first. A reader that finds it latched reads from the file.
    kept: Mutex<Vec<(BlockRef, Arc<RunBlock>)>>,
}

impl FileRun {
    pub(super) fn open(vfs: &dyn Vfs, dir: &Path, meta: &RunMeta) -> Result<Self> {
        let path = file_path(dir, meta.id);
        let name = path.display().to_string();
        let how = OpenHow { write: false, create: false, create_new: false, direct: true };
        let file = vfs.open(&path, how).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Fault::corrupt(&name, 0, "run file", "the file a durable record names", "none"),
            _ => Fault::io("open", &name, &e),
        })?;
        let len = file.len().map_err(|e| Fault::io("read length of", &name, &e))?;
        let whole = meta.bytes >= SECTOR_BYTES as u64 && meta.bytes.is_multiple_of(SECTOR_BYTES as u64);
        if len != meta.bytes || !whole {
            return Err(Fault::corrupt(&name, len, "length", meta.bytes, len));
        }
        let mut sector = AlignedBuf::zeroed(SECTOR_BYTES);
        file.read_at(&mut sector, meta.bytes - SECTOR_BYTES as u64).map_err(|e| Fault::io("read", &name, &e))?;
        footer::check(&name, &sector, meta)?;
        let mut payload = Vec::new();
        read_payload(&*file, &name, meta, meta.root, &mut payload)?;
        let root = Arc::new(parse(payload, &name, meta.root, meta.height)?);
        Ok(Self {
            file,
            name,
            meta: meta.clone(),
            root,
            only_deletes: AtomicBool::new(false),
            content_bytes: AtomicU64::new(0),
            kept: Mutex::new(Vec::new()),
        })
    }

    /// The file's path, for messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// A block of `level`, kept or read.
    pub(super) fn block(&self, at: BlockRef, level: u8) -> Result<Arc<RunBlock>> {
        if let Some(mut kept) = self.kept.try_lock()
            && let Some(i) = kept.iter().position(|(other, _)| *other == at)
        {
            kept[..=i].rotate_right(1);
            return Ok(kept[0].1.clone());
        }
        let block = Arc::new(self.load(at, level)?);
        if let Some(mut kept) = self.kept.try_lock() {
            kept.truncate(KEPT_BLOCKS - 1);
            kept.insert(0, (at, block.clone()));
        }
        Ok(block)
    }

    /// A block of `level`, read.
    pub(super) fn load(&self, at: BlockRef, level: u8) -> Result<RunBlock> {
        let mut payload = Vec::new();
        read_payload(&*self.file, &self.name, &self.meta, at, &mut payload)?;
        parse(payload, &self.name, at, level)
    }

    /// A block of `level` whose bytes were read already.
    pub(super) fn open_block(&self, bytes: &[u8], at: BlockRef, level: u8) -> Result<RunBlock> {
        let mut payload = Vec::new();
        open(&self.name, at, bytes, &self.meta, &mut payload)?;
        parse(payload, &self.name, at, level)
    }

    /// The data block at or before an offset of the file, the first one if there is none, and the bytes from it to the next, large values
    /// between them included; nothing if the root is the only block.
    pub(super) fn data_block_at(&self, offset: u64) -> Result<Option<(Arc<RunBlock>, u64)>> {
        let (mut block, mut level) = (self.root.clone(), self.meta.height);
        let mut bytes = None;
        while level > 0 {
            let (mut spot, mut next) = (Spot::default(), Spot::default());
            block.first(&mut spot);
            next.clone_from(&spot);
            bytes = Some(u64::from(child(&spot).stored_bytes));
            while block.next(&mut next) {
                // Blocks of an index lie behind all that they lead to.
                let is_behind = if level > 1 { child(&spot).offset > offset } else { child(&next).offset > offset };
                bytes = Some(child(&next).offset - child(&spot).offset);
                if is_behind {
                    break;
                }
                spot.clone_from(&next);
                bytes = Some(u64::from(child(&spot).stored_bytes));
            }
            level -= 1;
            block = self.block(child(&spot), level)?;
        }
        Ok(bytes.map(|bytes| (block, bytes)))
    }

    /// Whole sectors of the file.
    pub(super) fn read_sectors(&self, sectors: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_at(sectors, offset).map_err(|e| Fault::io("read", &self.name, &e))
    }

    /// The entry of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Option<Vec<u8>>>> {
        let mut block = self.root.clone();
        let mut spot = Spot::default();
        for level in (0..self.meta.height).rev() {
            if !block.seek(key, &mut spot) {
                return Ok(None);
            }
            block = self.block(child(&spot), level)?;
        }
        if !block.seek(key, &mut spot) || spot.key != key {
            return Ok(None);
        }
        Ok(Some(match &spot.body {
            Body::Inline(range) => Some(block.inline(range).to_vec()),
            Body::Far { bytes, list, at } => Some(self.far(*bytes, *list, *at)?),
            Body::Delete | Body::Child(_) => None,
        }))
    }

    /// A large value.
    pub(super) fn far(&self, bytes: u64, list: bool, at: BlockRef) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        let mut payload = Vec::new();
        if list {
            self.read_raw(at, LEVEL_LIST, &mut payload)?;
            let mut r = Reader::new(&payload[1..]);
            let mut piece = Vec::new();
            while let Some(at) = BlockRef::decode(&mut r) {
                self.read_raw(at, LEVEL_PIECE, &mut piece)?;
                value.extend_from_slice(&piece[1..]);
            }
        } else {
            self.read_raw(at, LEVEL_PIECE, &mut payload)?;
            value.extend_from_slice(&payload[1..]);
        }
        if value.len() as u64 != bytes {
            return Err(Fault::corrupt(&self.name, at.offset, "length of a large value", bytes, value.len()));
        }
        Ok(value)
    }

    fn read_raw(&self, at: BlockRef, level: u8, out: &mut Vec<u8>) -> Result<()> {
        read_payload(&*self.file, &self.name, &self.meta, at, out)?;
        match out.first() {
            Some(found) if *found == level && out.len() <= PIECE_BYTES + 1 => Ok(()),
            found => Err(Fault::corrupt(&self.name, at.offset, "level of a run block", level, format!("{found:?}"))),
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let kept: usize = self.kept.lock().iter().map(|(_, b)| b.memory_bytes()).sum();
        (kept + self.root.memory_bytes()) as u64
    }
}

/// The child an entry of an index block leads to.
pub(super) fn child(spot: &Spot) -> BlockRef {
    match spot.body {
        Body::Child(at) => at,
        _ => unreachable!("blocks above level 0 were checked to hold children only"),
    }
}

fn parse(payload: Vec<u8>, name: &str, at: BlockRef, level: u8) -> Result<RunBlock> {
    RunBlock::parse(payload, level).map_err(|found| {
        Fault::corrupt(name, at.offset, "run block", format!("sorted entries of level {level}"), found)
    })
}

fn want(meta: &RunMeta, at: BlockRef) -> codec::Want {
    codec::Want { kind: BlockKind::Run, index: owner(meta.id), crc: Some(at.crc) }
}

fn read_payload(file: &dyn File, name: &str, meta: &RunMeta, at: BlockRef, out: &mut Vec<u8>) -> Result<()> {
    let stored = at.stored_bytes as usize;
    if !(HEADER_BYTES..=HEADER_BYTES + PAYLOAD_BYTES_MAX).contains(&stored) || at.end() > meta.bytes {
        let found = format!("{stored} bytes at {}", at.offset);
        return Err(Fault::corrupt(name, at.offset, "block address", "a block within the file", found));
    }
    read_block(file, name, at, |bytes| open(name, at, bytes, meta, out))
}

/// The owner of a run's block is the run: which index is concerned, the caller knows.
fn open(name: &str, at: BlockRef, bytes: &[u8], meta: &RunMeta, out: &mut Vec<u8>) -> Result<()> {
    codec::open(&name, at.offset, bytes, &want(meta, at), out).map_err(|mut fault| {
        if let Fault::Corrupt(corruption) = &mut fault {
            corruption.index = None;
        }
        fault
    })
}
