//! Reads and writes as direct I/O wants them: whole sectors, through buffers that each thread keeps.

use std::cell::Cell;
use std::io;

use base::limits::{SECTOR_BYTES, round_up};
use base::{Fault, Result};
use vfs::{AlignedBuf, File};

use crate::BlockRef;

/// Larger buffers are not kept between reads.
const KEPT_BUFFER_BYTES: usize = 256 << 10;
/// The buffer a thread keeps for writes: a batch of write-back, and a little more.
const WRITE_BUFFER_BYTES: usize = (1 << 20) + (64 << 10);
/// Smallest buffer, so that ordinary blocks all fit the first one.
const BUFFER_BYTES_MIN: usize = 32 << 10;

thread_local! {
    // Taken out while in use; a thread that is switched in the middle finds none and makes another.
    static BUFFER: Cell<Option<AlignedBuf>> = const { Cell::new(None) };
    static WRITE_BUFFER: Cell<Option<AlignedBuf>> = const { Cell::new(None) };
}

/// Hands `with` an aligned copy of `bytes`, filled up with zeroes to whole sectors.
pub(crate) fn in_whole_sectors<T>(bytes: &[u8], with: impl FnOnce(&[u8]) -> T) -> T {
    let whole = bytes.len().next_multiple_of(SECTOR_BYTES);
    let mut buffer = WRITE_BUFFER
        .take()
        .filter(|b| b.len() >= whole)
        .unwrap_or_else(|| AlignedBuf::zeroed(whole.max(WRITE_BUFFER_BYTES)));
    buffer[..bytes.len()].copy_from_slice(bytes);
    buffer[bytes.len()..whole].fill(0);
    let result = with(&buffer[..whole]);
    if buffer.len() <= WRITE_BUFFER_BYTES {
        WRITE_BUFFER.set(Some(buffer));
    }
    result
}

/// Reads the bytes of a block and hands them to `with`. A direct file is read in whole sectors around it. The
/// caller has checked that the length is one a block can have.
pub(crate) fn read_block<T>(
    file: &dyn File,
    name: &str,
    at: BlockRef,
    with: impl FnOnce(&[u8]) -> Result<T>,
) -> Result<T> {
    let unit = if file.is_direct() { SECTOR_BYTES as u64 } else { 1 };
    let start = at.offset / unit * unit;
    let bytes = (round_up(at.end(), unit) - start) as usize;
    let mut buffer = BUFFER
        .take()
        .filter(|b| b.len() >= bytes)
        .unwrap_or_else(|| AlignedBuf::zeroed(bytes.next_multiple_of(SECTOR_BYTES).max(BUFFER_BYTES_MIN)));
    let result = match file.read_at(&mut buffer[..bytes], start) {
        Ok(()) => {
            let skip = (at.offset - start) as usize;
            with(&buffer[skip..skip + at.stored_bytes as usize])
        }
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            Err(Fault::corrupt(name, at.offset, "block", "a block", "the end of the file"))
        }
        Err(e) => Err(Fault::io("read", name, &e)),
    };
    if buffer.len() <= KEPT_BUFFER_BYTES {
        BUFFER.set(Some(buffer));
    }
    result
}
