//! The tail that recovery accepted, written once more.
//!
//! What lies behind the last known durable mark was read through the system's cache, and the cache may hold what the
//! disk does not:
//!
//! ```text
//! life 1: frame F written; its sync fails; the system drops the pages' "dirty" state and keeps the pages
//! life 2: recovery reads F from the cache, replays it; syncs the file: success, nothing is dirty
//!         commits, acknowledged, that saw what F says
//! power cut: F was never on the disk, and what life 2 acknowledged stands on nothing
//! ```
//!
//! So the next life does not rely on a sync of old pages: it copies the records behind the mark, at their
//! positions, into a segment of its own.
//!
//! 1. Frames go to a temporary file, with the new life's number and the mark that recovery knew.
//! 2. The header is written, the file synced, renamed to its final name, the directory synced.
//! 3. Only then does the life's first segment for new records come into being.
//!
//! Until the rename the directory says what it said before. After it, the old frames behind the mark are dead
//! because a newer life continues at the mark, and recovery finds the same records in the copy. A crash before step
//! 3 leaves a life of which no frame claims to be durable beyond the old mark: the next recovery copies again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::limits::SECTOR_BYTES;
use base::{Fault, Lsn, Result, checksum};
use vfs::{File, OpenHow, Vfs};

use crate::format::{
    DatabaseId, FRAME_HEADER_BYTES, FrameCompression, FrameHeader, Incarnation, SEGMENT_HEADER_BYTES, SegmentHeader,
    SegmentId, block_boundary, frame_boundary,
};
use crate::options::WalStart;
use crate::recovery::{Frame, read_tail};
use crate::segment::no_space;

/// Bytes handed to the system at once.
const WRITE_BYTES: usize = 1 << 20;

/// What became of the tail.
pub(crate) struct Relogged {
    /// What was written before is dead from here on.
    pub(crate) continues_at: Lsn,
    /// Frames in it.
    pub(crate) frames: u64,
}

/// Makes segment `id` of the records between what is durable and the end.
///
/// # Errors
/// [`Fault::NoSpace`], or whatever reading and writing meet. Nothing has happened then.
pub(crate) fn relog(vfs: &dyn Vfs, dir: &Path, start: &WalStart, id: SegmentId, tmp: &Path) -> Result<Relogged> {
    let mut copy = Copy::create(vfs, tmp, (start.database, start.incarnation, id), start.end)?;
    read_tail(vfs, dir, start.database, (start.durable, start.end), &mut |frame| copy.add(frame))?;
    copy.finish()?;
    let relogged = Relogged { continues_at: copy.continues_at, frames: copy.number };
    drop(copy);
    let named = vfs.rename(tmp, &dir.join(id.file_name())).and_then(|()| vfs.sync_dir(dir));
    named.map_err(|e| Fault::io("rename", tmp.display(), &e))?;
    Ok(relogged)
}

/// A segment being made of frames that were read elsewhere.
pub(crate) struct Copy {
    file: Arc<dyn File>,
    tmp: PathBuf,
    database: DatabaseId,
    incarnation: Incarnation,
    id: SegmentId,
    seed: u32,
    /// Where the frame before the first one ended.
    continues_at: Lsn,
    /// Position of the first frame. Below the mark, if that lies inside a frame.
    first_lsn: Lsn,
    number: u64,
    /// Where the last frame ended.
    end: Lsn,
    /// The file is written up to here; `buffer` follows.
    written: u64,
    buffer: Vec<u8>,
}

impl Copy {
    /// Begins segment `id` of a life as file `tmp`; without a frame it would continue at `end`.
    pub(crate) fn create(
        vfs: &dyn Vfs,
        tmp: &Path,
        (database, incarnation, id): (DatabaseId, Incarnation, SegmentId),
        end: Lsn,
    ) -> Result<Self> {
        let how = OpenHow { write: true, create: true, ..OpenHow::default() };
        let file = vfs.open(tmp, how).map_err(|e| Fault::io("open", tmp.display(), &e))?;
        Ok(Self {
            file,
            tmp: tmp.to_owned(),
            database,
            incarnation,
            id,
            seed: database.checksum_seed(),
            continues_at: end,
            first_lsn: end,
            number: 0,
            end,
            written: SEGMENT_HEADER_BYTES,
            buffer: Vec::new(),
        })
    }

    pub(crate) fn add(&mut self, frame: Frame<'_>) -> Result<()> {
        if self.number == 0 {
            (self.continues_at, self.first_lsn) = (frame.continues_at, frame.header.first_lsn);
        }
        let length = u32::try_from(frame.raw.len()).expect("a frame was read");
        let header = FrameHeader {
            segment: self.id,
            incarnation: self.incarnation,
            number: self.number,
            first_lsn: frame.header.first_lsn,
            durable: self.first_lsn,
            compression: FrameCompression::None,
            raw_bytes: length,
            stored_bytes: length,
            payload_crc: checksum::crc32c(frame.raw),
        };
        self.number += 1;
        self.end = frame.header.end();
        let at = self.buffer.len();
        self.buffer.resize(at + FRAME_HEADER_BYTES, 0);
        header.encode(self.seed, &mut self.buffer[at..]);
        self.buffer.extend_from_slice(frame.raw);
        self.pad(frame_boundary);
        if self.buffer.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    /// Where the next frame has to begin: that of another life does not.
    pub(crate) fn end(&self) -> Lsn {
        self.end
    }

    /// Of no frame: a life that begins at the copy's end, behind one that ended at `at`.
    pub(crate) fn continue_at(&mut self, at: Lsn) {
        self.continues_at = at;
    }

    fn pad(&mut self, boundary: fn(u64) -> u64) {
        let end = boundary(self.written + self.buffer.len() as u64);
        self.buffer.resize((end - self.written) as usize, 0);
    }

    fn write(&mut self) -> Result<()> {
        self.file.write_at(&self.buffer, self.written).map_err(|e| self.fault(&e))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes what is left and the header, and syncs.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.pad(block_boundary);
        self.write()?;
        let header = SegmentHeader {
            database: self.database,
            segment: self.id,
            incarnation: self.incarnation,
            first_lsn: self.first_lsn,
            continues_at: self.continues_at,
            segment_bytes: self.written,
        };
        let done = self.file.write_at(&header.encode(), 0).and_then(|()| self.file.sync());
        done.map_err(|e| self.fault(&e))
    }

    fn fault(&self, error: &io::Error) -> Fault {
        match no_space(error, self.written + self.buffer.len() as u64) {
            // It may be a copy elsewhere.
            Some(Fault::NoSpace { what, .. }) => Fault::NoSpace {
                what: format!("{what} in {}", self.tmp.display()),
                remedy: "free space on its file system".to_owned(),
            },
            _ => Fault::io("write", self.tmp.display(), error),
        }
    }
}

const _: () = assert!(SEGMENT_HEADER_BYTES as usize == SECTOR_BYTES);
