//! Writes a run file from sorted entries, bottom up.
//!
//! 1. Entries fill a data block; a full block is sealed, stamped and queued; its separator and address go to the
//!    block being built one level up, and so on.
//! 2. Queued bytes leave in whole sectors, [`WRITE_BYTES`] at a time, into space allocated ahead.
//! 3. `finish` closes the levels up to one root, writes the footer sector, cuts the file to its length, syncs file
//!    and directory.
//!
//! No sector is written twice. A writer that is dropped before `finish` removes its file. Errors concern this run
//! only and poison nothing (B7): nothing durable names the file yet.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::limits::{SECTOR_BYTES, round_up};
use base::{Fault, Result};
use vfs::{AlignedBuf, File, OpenHow, Vfs};

use super::block::{BlockBuilder, LEVEL_LIST, LEVEL_PIECE, NewBody};
use super::{BLOCK_BYTES, INLINE_BYTES_MAX, KEY_BYTES_MAX, PIECE_BYTES, RunMeta, file_path, footer, owner};
use crate::{BlockKind, BlockRef, Compression, codec};

const WRITE_BYTES: usize = 256 << 10;
const ALLOCATE_BYTES: u64 = 4 << 20;

const _: () = assert!(WRITE_BYTES.is_multiple_of(SECTOR_BYTES));

/// Writes a run file.
pub struct RunWriter {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    path: PathBuf,
    name: String,
    file: Arc<dyn File>,
    id: u64,
    compression: Compression,
    /// By level: the block being built, the data block first.
    levels: Vec<BlockBuilder>,
    /// A finished data block and its last key: its separator is chosen when the next key is known.
    awaiting: Option<(Vec<u8>, BlockRef)>,
    /// Stamped blocks not written yet, and where they start in the file.
    queue: Vec<u8>,
    queue_at: u64,
    allocated: u64,
    sectors: AlignedBuf,
    entries: u64,
    puts: u64,
    content_bytes: u64,
    min_key: Vec<u8>,
    max_key: Vec<u8>,
    finished: bool,
}

impl std::fmt::Debug for RunWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RunWriter({}, {} entries)", self.name, self.entries)
    }
}

impl RunWriter {
    /// Starts run `id` in `dir`. A file of that name that nothing names (left by a crash) is overwritten.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn create(vfs: Arc<dyn Vfs>, dir: &Path, id: u64, compression: Compression) -> Result<Self> {
        let path = file_path(dir, id);
        let name = path.display().to_string();
        let how = OpenHow { write: true, create: true, create_new: false, direct: true };
        let file = vfs.open(&path, how).map_err(|e| Fault::io("open", &name, &e))?;
        file.set_len(0).map_err(|e| Fault::io("cut", &name, &e))?;
        Ok(Self {
            vfs,
            dir: dir.to_owned(),
            path,
            name,
            file,
            id,
            compression,
            levels: vec![BlockBuilder::new(0)],
            awaiting: None,
            queue: Vec::with_capacity(WRITE_BYTES + BLOCK_BYTES),
            queue_at: 0,
            allocated: 0,
            sectors: AlignedBuf::zeroed(WRITE_BYTES),
            entries: 0,
            puts: 0,
            content_bytes: 0,
            min_key: Vec::new(),
            max_key: Vec::new(),
            finished: false,
        })
    }

    /// Adds an entry: a value, or a delete.
    ///
    /// # Errors
    /// [`Fault::NoSpace`], [`Fault::Io`], [`Fault::Limit`]. The run cannot be finished afterwards.
    ///
    /// # Panics
    /// If `key` is not above the last one.
    pub fn add(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        assert!(self.entries == 0 || self.max_key.as_slice() < key, "keys of a run ascend");
        if key.len() > KEY_BYTES_MAX {
            let (limit, got) = (KEY_BYTES_MAX as u64, key.len() as u64);
            return Err(Fault::Limit { what: "the key of a run, in bytes", limit, got });
        }
        if self.entries == 0 {
            self.min_key = key.to_vec();
        }
        let inline_bytes = value.map_or(0, |v| if v.len() > INLINE_BYTES_MAX { 32 } else { v.len() });
        if !self.levels[0].is_empty() && self.levels[0].bytes() + key.len() + inline_bytes + 16 > BLOCK_BYTES {
            self.finish_data_block()?;
        }
        self.settle_separator(Some(key))?;
        match value {
            None => self.levels[0].push(key, &NewBody::Delete),
            Some(v) if v.len() > INLINE_BYTES_MAX => {
                let (list, at) = self.write_far(v)?;
                self.levels[0].push(key, &NewBody::Far { bytes: v.len() as u64, list, at });
            }
            Some(v) => self.levels[0].push(key, &NewBody::Inline(v)),
        }
        self.entries += 1;
        self.puts += u64::from(value.is_some());
        self.content_bytes += (key.len() + value.map_or(0, <[u8]>::len)) as u64;
        self.max_key.clear();
        self.max_key.extend_from_slice(key);
        Ok(())
    }

    /// True before the first entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// True if every entry so far is a delete.
    #[must_use]
    pub fn has_only_deletes(&self) -> bool {
        self.puts == 0
    }

    /// Bytes of keys and values so far.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Makes the run durable.
    ///
    /// # Errors
    /// [`Fault::NoSpace`], [`Fault::Io`]; the file is removed.
    pub fn finish(self) -> Result<RunMeta> {
        let (file, name, vfs, dir) = (self.file.clone(), self.name.clone(), self.vfs.clone(), self.dir.clone());
        let path = self.path.clone();
        let meta = self.finish_temporary()?;
        let synced = file
            .sync()
            .map_err(|e| Fault::io("sync", &name, &e))
            .and_then(|()| vfs.sync_dir(&dir).map_err(|e| Fault::io("sync directory", dir.display(), &e)));
        synced.inspect_err(|_| drop(vfs.remove(&path)))?;
        Ok(meta)
    }

    /// Completes the file and leaves it to the system when it is written: nothing durable may name the run.
    ///
    /// # Errors
    /// As [`RunWriter::finish`].
    pub fn finish_temporary(mut self) -> Result<RunMeta> {
        let (height, root) = self.close_levels()?;
        let footer_at = round_up(self.queue_at + self.queue.len() as u64, SECTOR_BYTES as u64);
        let meta = RunMeta {
            id: self.id,
            bytes: footer_at + SECTOR_BYTES as u64,
            entries: self.entries,
            height,
            root,
            min_key: std::mem::take(&mut self.min_key),
            max_key: std::mem::take(&mut self.max_key),
        };
        self.queue.resize((footer_at - self.queue_at) as usize, 0);
        self.queue.extend_from_slice(&footer::encode(&meta));
        self.write_out(0)?;
        self.file.set_len(meta.bytes).map_err(|e| Fault::io("cut", &self.name, &e))?;
        self.finished = true;
        Ok(meta)
    }

    fn finish_data_block(&mut self) -> Result<()> {
        let last_key = self.levels[0].last_key().to_vec();
        let payload = self.levels[0].finish();
        let at = self.write_block(&payload)?;
        self.awaiting = Some((last_key, at));
        Ok(())
    }

    /// Puts the data block that waits for its separator into the level above: the shortest key that is not below
    /// its last and below `next`.
    fn settle_separator(&mut self, next: Option<&[u8]>) -> Result<()> {
        let Some((last_key, at)) = self.awaiting.take() else { return Ok(()) };
        self.add_child(1, separator(&last_key, next), at)
    }

    fn add_child(&mut self, level: usize, key: &[u8], at: BlockRef) -> Result<()> {
        if level == self.levels.len() {
            self.levels.push(BlockBuilder::new(u8::try_from(level).expect("far fewer than 200 levels")));
        }
        let full = self.levels[level].bytes() + key.len() + BlockRef::BYTES + 16 > BLOCK_BYTES;
        // At least two children a block, however long the keys: each level is smaller than the one below.
        if full && self.levels[level].count() >= 2 {
            let (last_key, full_at) = self.finish_index_block(level)?;
            self.add_child(level + 1, &last_key, full_at)?;
        }
        self.levels[level].push(key, &NewBody::Child(at));
        Ok(())
    }

    fn finish_index_block(&mut self, level: usize) -> Result<(Vec<u8>, BlockRef)> {
        let last_key = self.levels[level].last_key().to_vec();
        let payload = self.levels[level].finish();
        Ok((last_key, self.write_block(&payload)?))
    }

    /// Closes all levels up to one block; returns its height and address.
    fn close_levels(&mut self) -> Result<(u8, BlockRef)> {
        if self.awaiting.is_none() && self.levels.len() == 1 {
            let payload = self.levels[0].finish();
            return Ok((0, self.write_block(&payload)?));
        }
        if !self.levels[0].is_empty() {
            self.settle_separator(None)?;
            self.finish_data_block()?;
        }
        self.settle_separator(None)?;
        let mut level = 1;
        loop {
            let (last_key, at) = self.finish_index_block(level)?;
            if level + 1 == self.levels.len() {
                return Ok((u8::try_from(level).expect("far fewer than 200 levels"), at));
            }
            self.add_child(level + 1, &last_key, at)?;
            level += 1;
        }
    }

    /// Writes a value that does not go inline: one piece, or pieces and their list.
    fn write_far(&mut self, value: &[u8]) -> Result<(bool, BlockRef)> {
        let mut payload = Vec::with_capacity(value.len().min(PIECE_BYTES) + 1);
        let mut list = vec![LEVEL_LIST];
        let mut last = None;
        for piece in value.chunks(PIECE_BYTES) {
            payload.clear();
            payload.push(LEVEL_PIECE);
            payload.extend_from_slice(piece);
            let at = self.write_block(&payload)?;
            at.encode(&mut list);
            last = Some(at);
        }
        if value.len() <= PIECE_BYTES {
            return Ok((false, last.expect("a far value is not empty")));
        }
        Ok((true, self.write_block(&list)?))
    }

    fn write_block(&mut self, payload: &[u8]) -> Result<BlockRef> {
        let start = self.queue.len();
        let offset = self.queue_at + start as u64;
        let stored = codec::seal(BlockKind::Run, owner(self.id), self.compression, payload, &[], &mut self.queue)?;
        let crc = codec::stamp(&mut self.queue[start..], offset);
        self.write_out(WRITE_BYTES)?;
        Ok(BlockRef { offset, stored_bytes: u32::try_from(stored).expect("a block is at most 4 MiB"), crc })
    }

    /// Writes whole sectors from the queue while it holds at least `keep` bytes, and one sector.
    fn write_out(&mut self, keep: usize) -> Result<()> {
        let mut done = 0;
        while self.queue.len() - done >= keep.max(SECTOR_BYTES) {
            let bytes = (self.queue.len() - done).min(WRITE_BYTES) / SECTOR_BYTES * SECTOR_BYTES;
            self.sectors[..bytes].copy_from_slice(&self.queue[done..done + bytes]);
            let end = self.queue_at + bytes as u64;
            if end > self.allocated {
                self.allocate(end)?;
            }
            self.file
                .write_at(&self.sectors[..bytes], self.queue_at)
                .map_err(|e| Fault::io("write", &self.name, &e))?;
            self.queue_at = end;
            done += bytes;
        }
        self.queue.drain(..done);
        Ok(())
    }

    fn allocate(&mut self, end: u64) -> Result<()> {
        let to = round_up(end, ALLOCATE_BYTES);
        self.file.allocate(self.allocated, to - self.allocated).map_err(|e| match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Fault::NoSpace { what: format!("run file {}", self.name), remedy: "free space on the disk".to_owned() }
            }
            _ => Fault::io("allocate", &self.name, &e),
        })?;
        self.allocated = to;
        Ok(())
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if !self.finished {
            // Best effort: a file that stays is one that nothing names, and recovery removes it.
            let _ = self.vfs.remove(&self.path);
        }
    }
}

/// The shortest key `s` with `last <= s < next`.
fn separator<'a>(last: &'a [u8], next: Option<&'a [u8]>) -> &'a [u8] {
    let Some(next) = next else { return last };
    let shared = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    // One byte more than what they share lies above `last`; it lies below `next` only if that goes on.
    if shared + 1 < last.len() && shared + 1 < next.len() { &next[..=shared] } else { last }
}
