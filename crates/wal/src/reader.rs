//! Frames found in a segment file.
//!
//! The file is read through a window, so that recovery's memory does not grow with the segment size.

use std::io;
use std::path::Path;
use std::sync::Arc;

use base::{Fault, Lsn, Result, checksum};
use vfs::{File, OpenHow, Vfs};

use crate::format::{
    Decoded, FORMAT, FRAME_ALIGN, FRAME_HEADER_BYTES, FrameCompression, FrameHeader, Incarnation, SegmentHeader,
    SegmentId, starts_like_a_frame,
};

const WINDOW_BYTES: u64 = 1 << 20;

/// A segment file being read.
pub(crate) struct SegmentFile {
    pub(crate) id: SegmentId,
    /// Path, for messages.
    pub(crate) name: String,
    file: Arc<dyn File>,
    len: u64,
    window: Vec<u8>,
    window_at: u64,
}

/// A frame and where it starts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundFrame {
    pub(crate) offset: u64,
    pub(crate) header: FrameHeader,
}

impl SegmentFile {
    /// Opens a segment file. `None` if it is gone since it was listed: a log that is open gives files of which
    /// nothing is needed new names at any time, and whether the rest is complete is seen from what it says.
    pub(crate) fn open(vfs: &dyn Vfs, path: &Path, id: SegmentId) -> Result<Option<Self>> {
        match vfs.open(path, OpenHow::default()) {
            Ok(file) => Self::new(file, id, path.display().to_string()).map(Some),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Fault::io("open", path.display(), &e)),
        }
    }

    pub(crate) fn new(file: Arc<dyn File>, id: SegmentId, name: String) -> Result<Self> {
        let len = file.len().map_err(|e| Fault::io("read", &name, &e))?;
        Ok(Self { id, name, file, len, window: Vec::new(), window_at: 0 })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes `[offset, offset + len)`, or `None` if the file ends before.
    pub(crate) fn bytes(&mut self, offset: u64, len: u64) -> Result<Option<&[u8]>> {
        let Some(end) = offset.checked_add(len).filter(|&end| end <= self.len) else { return Ok(None) };
        if offset < self.window_at || end > self.window_at + self.window.len() as u64 {
            let want = len.max(WINDOW_BYTES).min(self.len - offset);
            self.window.resize(want as usize, 0);
            self.window_at = offset;
            if let Err(e) = self.file.read_at(&mut self.window, offset) {
                self.window.clear();
                return Err(Fault::io("read", &self.name, &e));
            }
        }
        let start = (offset - self.window_at) as usize;
        Ok(Some(&self.window[start..start + len as usize]))
    }

    /// The header block.
    pub(crate) fn header(&mut self) -> Result<Decoded<SegmentHeader>> {
        let block = self.bytes(0, crate::format::SEGMENT_HEADER_BYTES)?;
        Ok(block.map_or(Decoded::Nothing, SegmentHeader::decode))
    }

    /// The header at `offset` of a frame that belongs to this file.
    pub(crate) fn frame_header(&mut self, seed: u32, offset: u64) -> Result<Option<FrameHeader>> {
        let id = self.id;
        let Some(bytes) = self.bytes(offset, FRAME_HEADER_BYTES as u64)? else { return Ok(None) };
        match FrameHeader::decode(seed, bytes) {
            Decoded::Valid(header) => Ok((header.segment == id).then_some(header)),
            Decoded::Newer(version) => Err(newer_format(&self.name, version)),
            Decoded::Nothing => Ok(None),
        }
    }

    /// The frame at `offset` if it is whole and is the one of `incarnation` that starts at `lsn`; `raw` becomes
    /// its records.
    pub(crate) fn frame(
        &mut self,
        seed: u32,
        offset: u64,
        (incarnation, lsn): (Incarnation, Lsn),
        raw: &mut Vec<u8>,
    ) -> Result<Option<FrameHeader>> {
        let Some(header) = self.frame_header(seed, offset)? else { return Ok(None) };
        if header.incarnation != incarnation || header.first_lsn != lsn {
            return Ok(None);
        }
        let stored_at = offset + FRAME_HEADER_BYTES as u64;
        let Some(stored) = self.bytes(stored_at, u64::from(header.stored_bytes))? else { return Ok(None) };
        if checksum::crc32c(stored) != header.payload_crc {
            return Ok(None);
        }
        raw.resize(header.raw_bytes as usize, 0);
        match header.compression {
            FrameCompression::None => raw.copy_from_slice(stored),
            FrameCompression::Lz4 => {
                let unpacked = lz4_flex::block::decompress_into(stored, raw);
                if unpacked.as_ref().ok() != Some(&raw.len()) {
                    let found = unpacked.map_or_else(|e| e.to_string(), |bytes| bytes.to_string());
                    return Err(Fault::corrupt(&self.name, stored_at, "unpacked log frame, bytes", raw.len(), found));
                }
            }
        }
        Ok(Some(header))
    }

    /// The first header at or after `offset` of a frame that belongs to this file.
    pub(crate) fn find_frame_header(&mut self, seed: u32, mut offset: u64) -> Result<Option<FoundFrame>> {
        while offset + FRAME_ALIGN <= self.len {
            let stretch = WINDOW_BYTES.min(self.len - offset) / FRAME_ALIGN * FRAME_ALIGN;
            let bytes = self.bytes(offset, stretch)?.expect("within the file");
            match bytes.chunks_exact(FRAME_ALIGN as usize).position(starts_like_a_frame) {
                None => offset += stretch,
                Some(position) => {
                    offset += position as u64 * FRAME_ALIGN;
                    if let Some(header) = self.frame_header(seed, offset)? {
                        return Ok(Some(FoundFrame { offset, header }));
                    }
                    offset += FRAME_ALIGN;
                }
            }
        }
        Ok(None)
    }
}

/// The fault for a file of a format that this build does not know.
pub(crate) fn newer_format(path: &str, found: u32) -> Fault {
    let remedy = "open it with the release that wrote it, or a later one".into();
    Fault::Format { path: path.into(), found, supported: u32::from(FORMAT), remedy }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::DatabaseId;
    use crate::fuzzing::Bytes;

    /// Rule A13: what a frame is believed for is its segment, its life, its position and its database.
    #[test]
    fn a13_a_frame_of_another_segment_life_position_or_database_is_none() {
        let seed = DatabaseId(*b"a test database!").checksum_seed();
        let records = [0; 32];
        let header = FrameHeader {
            segment: SegmentId(4),
            incarnation: Incarnation(2),
            number: 1,
            first_lsn: Lsn(4096),
            durable: Lsn(4096),
            compression: FrameCompression::None,
            raw_bytes: 32,
            stored_bytes: 32,
            payload_crc: checksum::crc32c(&records),
        };
        let mut bytes = vec![0; FRAME_HEADER_BYTES];
        header.encode(seed, &mut bytes);
        bytes.extend_from_slice(&records);
        let read = |seed, segment, incarnation, lsn| {
            let bytes = Arc::new(Bytes(bytes.clone()));
            let mut file = SegmentFile::new(bytes, SegmentId(segment), "a segment".into()).expect("memory");
            let mut raw = Vec::new();
            file.frame(seed, 0, (Incarnation(incarnation), Lsn(lsn)), &mut raw).expect("no fault").is_some()
        };
        assert!(read(seed, 4, 2, 4096));
        assert!(!read(seed, 5, 2, 4096), "another segment");
        assert!(!read(seed, 4, 1, 4096), "another life");
        assert!(!read(seed, 4, 2, 4112), "another position");
        assert!(!read(DatabaseId([0; 16]).checksum_seed(), 4, 2, 4096), "another database");
    }
}
