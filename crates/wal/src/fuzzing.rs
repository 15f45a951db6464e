//! Bodies that hostile bytes must not panic: plain functions, run for seconds by the tests and for longer by
//! the fuzzers. Random bytes never pass a checksum, so each body also repairs the checksums it finds, which lets
//! lengths, positions and record headers from the outside through to the code behind them.

use std::io;
use std::sync::Arc;

use base::{Lsn, checksum};
use vfs::File;

use crate::format::{
    DatabaseId, Decoded, FRAME_ALIGN, FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, SegmentId,
    seal_frame_header, seal_segment_header, starts_like_a_frame,
};
use crate::reader::SegmentFile;
use crate::record::Records;
use crate::recovery::fuzz_walk;

const DATABASE: DatabaseId = DatabaseId([7; 16]);

/// Decodes `bytes` as a frame header, as records, and as a frame in a segment.
pub fn fuzz_frame(bytes: &[u8]) {
    let mut records = Records::new(bytes, Lsn(4096));
    let walked: usize = records.by_ref().map(|record| record.payload.len()).sum();
    assert!(walked <= bytes.len() && records.rest() <= bytes.len());
    let seed = DATABASE.checksum_seed();
    let mut frame = bytes.to_vec();
    for repaired in [false, true] {
        if repaired {
            repair_frame(seed, &mut frame, 0);
        }
        let Decoded::Valid(header) = FrameHeader::decode(seed, &frame) else { continue };
        assert!(header.durable <= header.first_lsn && header.first_lsn < header.end());
        let name = "a frame".to_owned();
        let mut file = SegmentFile::new(Arc::new(Bytes(frame.clone())), header.segment, name).expect("memory");
        let wanted = (header.incarnation, header.first_lsn);
        let mut raw = Vec::new();
        if header.raw_bytes < 1 << 20
            && let Ok(Some(found)) = file.frame(seed, 0, wanted, &mut raw)
        {
            assert_eq!(raw.len(), found.raw_bytes as usize);
            let _ = Records::new(&raw, found.first_lsn).count();
        }
    }
}

/// Recovers from `bytes` as the only segment of a log.
pub fn fuzz_segment(bytes: &[u8]) {
    let seed = DATABASE.checksum_seed();
    let mut segment = bytes.to_vec();
    for repaired in [false, true] {
        if repaired {
            if segment.len() >= SEGMENT_HEADER_BYTES as usize {
                segment[16..32].copy_from_slice(&DATABASE.0);
                seal_segment_header(&mut segment);
            }
            for offset in (0..segment.len()).step_by(FRAME_ALIGN as usize) {
                repair_frame(seed, &mut segment, offset);
            }
        }
        let name = "a segment".to_owned();
        let file = SegmentFile::new(Arc::new(Bytes(segment.clone())), SegmentId(1), name).expect("memory");
        fuzz_walk(file, DATABASE);
    }
}

/// Makes the checksums right of whatever looks like a frame at `offset`.
fn repair_frame(seed: u32, bytes: &mut [u8], offset: usize) {
    let frame = &mut bytes[offset..];
    if frame.len() < FRAME_HEADER_BYTES || !starts_like_a_frame(frame) {
        return;
    }
    let stored_bytes = u32::from_le_bytes(frame[48..52].try_into().expect("four bytes")) as usize;
    if let Some(stored) = frame[FRAME_HEADER_BYTES..].get(..stored_bytes) {
        let crc = checksum::crc32c(stored);
        frame[52..56].copy_from_slice(&crc.to_le_bytes());
    }
    seal_frame_header(seed, frame);
}

/// A file in memory.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl File for Bytes {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = usize::try_from(offset).ok().and_then(|start| self.0.get(start..)?.get(..buf.len()));
        buf.copy_from_slice(end.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn punch(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn is_direct(&self) -> bool {
        false
    }
}
