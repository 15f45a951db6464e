//! Bytes of a run file read ahead of a cursor. Run files bypass the page cache, so nobody else reads ahead.
//!
//! The first blocks of a cursor are read one by one. Once it asks for neighbours, in either direction, the file is
//! read [`WINDOW_BYTES`] at a time and blocks are opened from there.

use base::Result;
use base::limits::{SECTOR_BYTES, round_up};
use vfs::AlignedBuf;

use super::block::RunBlock;
use super::reader::FileRun;
use crate::BlockRef;

const WINDOW_BYTES: usize = 128 << 10;
/// Blocks this close are neighbours: index blocks and long values lie between data blocks.
const NEAR_BYTES: u64 = 64 << 10;
const SECTOR: u64 = SECTOR_BYTES as u64;

const _: () = assert!(WINDOW_BYTES.is_multiple_of(SECTOR_BYTES) && WINDOW_BYTES >= 4 * super::BLOCK_BYTES);

#[derive(Default)]
pub(super) struct Window {
    /// Made when first needed.
    buffer: Option<AlignedBuf>,
    /// What the buffer holds.
    start: u64,
    end: u64,
    last: Option<BlockRef>,
}

impl Window {
    /// A data block, from the window if it is there.
    pub(super) fn block(&mut self, run: &FileRun, at: BlockRef) -> Result<RunBlock> {
        let last = self.last.replace(at);
        if at.end() > run.meta.bytes {
            return run.load(at, 0);
        }
        if !self.holds(at) {
            let forward = last.is_some_and(|last| at.offset >= last.end() && at.offset - last.end() < NEAR_BYTES);
            let backward = last.is_some_and(|last| at.end() <= last.offset && last.offset - at.end() < NEAR_BYTES);
            let whole = round_up(at.end(), SECTOR) - at.offset / SECTOR * SECTOR;
            if (!forward && !backward) || whole > WINDOW_BYTES as u64 {
                return run.load(at, 0);
            }
            self.fill(run, at, forward)?;
        }
        let skip = (at.offset - self.start) as usize;
        let buffer = self.buffer.as_deref().unwrap_or_default();
        run.open_block(&buffer[skip..skip + at.stored_bytes as usize], at, 0)
    }

    fn holds(&self, at: BlockRef) -> bool {
        at.offset >= self.start && at.end() <= self.end
    }

    /// Reads the window that begins, or backward ends, with the block.
    fn fill(&mut self, run: &FileRun, at: BlockRef, forward: bool) -> Result<()> {
        let (start, end) = if forward {
            let start = at.offset / SECTOR * SECTOR;
            (start, (start + WINDOW_BYTES as u64).min(run.meta.bytes))
        } else {
            let end = round_up(at.end(), SECTOR);
            (end.saturating_sub(WINDOW_BYTES as u64), end)
        };
        // Empty until the read has succeeded.
        (self.start, self.end) = (0, 0);
        let buffer = self.buffer.get_or_insert_with(|| AlignedBuf::zeroed(WINDOW_BYTES));
        run.read_sectors(&mut buffer[..(end - start) as usize], start)?;
        (self.start, self.end) = (start, end);
        Ok(())
    }
}
