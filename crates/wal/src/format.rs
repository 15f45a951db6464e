//! Segment headers and frame headers, to the byte (drawn in `docs/formats/wal.md`).
//!
//! A segment is a header block of 4 KiB and frames after it. The header block is covered by one CRC32C at the
//! same place in every format version, so that a newer format is told from damage. A frame header is 64 bytes
//! with a CRC32C of its own, seeded with the database's identity; it contains the CRC32C of the frame's payload,
//! so both are checked, and the header can be believed even where the payload is torn: recovery needs the
//! durable mark of such frames.

use std::fmt;

use base::bytes::Reader;
use base::checksum::{crc32c, crc32c_append};
use base::limits::{LSN_UNIT, SECTOR_BYTES};
use base::{Lsn, limits};

/// Version of everything on this page.
pub const FORMAT: u16 = 1;
/// Bytes of a segment's header block; frames start after it.
pub const SEGMENT_HEADER_BYTES: u64 = SECTOR_BYTES as u64;
/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 64;
/// Frames start at multiples of this.
pub const FRAME_ALIGN: u64 = 64;
/// Longest payload of a frame, before compression.
pub const FRAME_RAW_BYTES_MAX: u32 = 128 * 1024 * 1024;

const SEGMENT_MAGIC: &[u8; 8] = b"TrefoilW";
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"TfWF");
const SEGMENT_CRC_AT: usize = 12;
const FRAME_CRC_AT: usize = 60;

const _: () = assert!(FRAME_ALIGN.is_multiple_of(LSN_UNIT) && SEGMENT_HEADER_BYTES.is_multiple_of(FRAME_ALIGN));
const _: () = assert!(FRAME_HEADER_BYTES as u64 == FRAME_ALIGN && FRAME_CRC_AT + 4 == FRAME_HEADER_BYTES);

/// The next place at or behind `offset` where a frame may start.
pub(crate) const fn frame_boundary(offset: u64) -> u64 {
    limits::round_up(offset, FRAME_ALIGN)
}

/// The next block boundary at or behind `offset`.
pub(crate) const fn block_boundary(offset: u64) -> u64 {
    limits::round_up(offset, SECTOR_BYTES as u64)
}

/// Identity of a database: random, chosen when it is created.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatabaseId(pub [u8; 16]);

impl fmt::Display for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseId({self})")
    }
}

impl DatabaseId {
    /// What frame checksums start from, so that frames of another database never validate.
    pub(crate) fn checksum_seed(self) -> u32 {
        crc32c(&self.0)
    }
}

/// Number of a segment file. Never used twice in one directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u64);

impl SegmentId {
    /// The file's name.
    #[must_use]
    pub fn file_name(self) -> String {
        format!("wal-{:010}.log", self.0)
    }

    /// The number in a file's name, if it is a segment's.
    #[must_use]
    pub fn from_file_name(name: &str) -> Option<Self> {
        let digits = name.strip_prefix("wal-")?.strip_suffix(".log")?;
        let id = Self(digits.parse().ok()?);
        (id.file_name() == name).then_some(id)
    }
}

/// Number of a life of the log: raised each time the database is opened for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Incarnation(pub u32);

/// First block of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Whose log this is.
    pub database: DatabaseId,
    /// Number of the segment; equals the one in its name, unless the file waits to be used again.
    pub segment: SegmentId,
    /// The life that started the segment.
    pub incarnation: Incarnation,
    /// Position of its first frame.
    pub first_lsn: Lsn,
    /// Position at which the segments before it end. In the first segment of a life: the end that recovery
    /// found; whatever older frames say from there on is dead. In all others it equals `first_lsn`.
    pub continues_at: Lsn,
    /// Length of the file.
    pub segment_bytes: u64,
}

/// What a block of bytes turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<T> {
    /// A valid header.
    Valid(T),
    /// A valid header of a format this build does not know.
    Newer(u32),
    /// Anything else.
    Nothing,
}

impl SegmentHeader {
    /// The header block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(SEGMENT_HEADER_BYTES as usize);
        block.extend_from_slice(SEGMENT_MAGIC);
        block.extend_from_slice(&u32::from(FORMAT).to_le_bytes());
        block.extend_from_slice(&[0; 4]);
        block.extend_from_slice(&self.database.0);
        block.extend_from_slice(&self.segment.0.to_le_bytes());
        block.extend_from_slice(&self.first_lsn.0.to_le_bytes());
        block.extend_from_slice(&self.continues_at.0.to_le_bytes());
        block.extend_from_slice(&self.segment_bytes.to_le_bytes());
        block.extend_from_slice(&self.incarnation.0.to_le_bytes());
        block.resize(SEGMENT_HEADER_BYTES as usize, 0);
        seal_segment_header(&mut block);
        block
    }

    /// Reads a header block.
    #[must_use]
    pub fn decode(block: &[u8]) -> Decoded<Self> {
        Self::read(block).unwrap_or(Decoded::Nothing)
    }

    fn read(block: &[u8]) -> Option<Decoded<Self>> {
        let block = block.get(..SEGMENT_HEADER_BYTES as usize)?;
        let mut r = Reader::new(block);
        if r.take(SEGMENT_MAGIC.len())? != SEGMENT_MAGIC {
            return None;
        }
        let version = r.u32()?;
        if r.u32()? != segment_header_crc(block) {
            return None;
        }
        if version != u32::from(FORMAT) {
            return Some(Decoded::Newer(version));
        }
        let header = Self {
            database: DatabaseId(r.take(16)?.try_into().ok()?),
            segment: SegmentId(r.u64()?),
            first_lsn: Lsn(r.u64()?),
            continues_at: Lsn(r.u64()?),
            segment_bytes: r.u64()?,
            incarnation: Incarnation(r.u32()?),
        };
        let aligned = header.first_lsn.0.is_multiple_of(LSN_UNIT) && header.continues_at.0.is_multiple_of(LSN_UNIT);
        (aligned && header.continues_at <= header.first_lsn).then_some(Decoded::Valid(header))
    }
}

fn segment_header_crc(block: &[u8]) -> u32 {
    let crc = crc32c(&block[..SEGMENT_CRC_AT]);
    crc32c_append(crc32c_append(crc, &[0; 4]), &block[SEGMENT_CRC_AT + 4..SEGMENT_HEADER_BYTES as usize])
}

/// Puts the checksum into a header block.
pub(crate) fn seal_segment_header(block: &mut [u8]) {
    let crc = segment_header_crc(block);
    block[SEGMENT_CRC_AT..SEGMENT_CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

/// How a frame's payload is compressed. The number is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameCompression {
    /// As it is.
    None = 0,
    /// LZ4 block format.
    Lz4 = 1,
}

/// Head of a frame: one group of records as it was handed to the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The segment it was written to.
    pub segment: SegmentId,
    /// The life that wrote it.
    pub incarnation: Incarnation,
    /// Number of the frame within that life: with the incarnation it makes a nonce that is never used twice.
    pub number: u64,
    /// Position of its first record.
    pub first_lsn: Lsn,
    /// The log was known to be durable to here when the frame was written.
    pub durable: Lsn,
    /// How the payload is stored.
    pub compression: FrameCompression,
    /// Bytes of records, which is how far the frame advances the position.
    pub raw_bytes: u32,
    /// Bytes stored after the header.
    pub stored_bytes: u32,
    /// CRC32C of the stored bytes.
    pub payload_crc: u32,
}

impl FrameHeader {
    /// Position just past its last record.
    #[must_use]
    pub fn end(&self) -> Lsn {
        Lsn(self.first_lsn.0 + u64::from(self.raw_bytes))
    }

    /// Bytes from the frame's start to the end of what it stores.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + u64::from(self.stored_bytes)
    }

    /// Writes the header into `out`; `seed` is the database's.
    pub(crate) fn encode(&self, seed: u32, out: &mut [u8]) {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&FRAME_MAGIC.to_le_bytes());
        put(&FORMAT.to_le_bytes());
        put(&[self.compression as u8, 0]);
        put(&self.segment.0.to_le_bytes());
        put(&self.first_lsn.0.to_le_bytes());
        put(&self.durable.0.to_le_bytes());
        put(&self.number.to_le_bytes());
        put(&self.incarnation.0.to_le_bytes());
        put(&self.raw_bytes.to_le_bytes());
        put(&self.stored_bytes.to_le_bytes());
        put(&self.payload_crc.to_le_bytes());
        put(&[0; 4]);
        seal_frame_header(seed, out);
    }

    /// Reads a header; `seed` is the database's.
    pub(crate) fn decode(seed: u32, bytes: &[u8]) -> Decoded<Self> {
        Self::read(seed, bytes).unwrap_or(Decoded::Nothing)
    }

    fn read(seed: u32, bytes: &[u8]) -> Option<Decoded<Self>> {
        let bytes = bytes.get(..FRAME_HEADER_BYTES)?;
        let mut r = Reader::new(bytes);
        if r.u32()? != FRAME_MAGIC {
            return None;
        }
        let stored_crc = u32::from_le_bytes(bytes[FRAME_CRC_AT..].try_into().ok()?);
        if stored_crc != crc32c_append(seed, &bytes[..FRAME_CRC_AT]) {
            return None;
        }
        let version = r.u16()?;
        if version != FORMAT {
            return Some(Decoded::Newer(u32::from(version)));
        }
        let compression = match r.u8()? {
            0 => FrameCompression::None,
            1 => FrameCompression::Lz4,
            _ => return None,
        };
        let flags = r.u8()?;
        let header = Self {
            compression,
            segment: SegmentId(r.u64()?),
            first_lsn: Lsn(r.u64()?),
            durable: Lsn(r.u64()?),
            number: r.u64()?,
            incarnation: Incarnation(r.u32()?),
            raw_bytes: r.u32()?,
            stored_bytes: r.u32()?,
            payload_crc: r.u32()?,
        };
        (flags == 0 && r.u32()? == 0 && header.is_plausible()).then_some(Decoded::Valid(header))
    }

    fn is_plausible(&self) -> bool {
        let unit = limits::LSN_UNIT;
        let lengths_fit = match self.compression {
            FrameCompression::None => self.stored_bytes == self.raw_bytes,
            FrameCompression::Lz4 => 0 < self.stored_bytes && self.stored_bytes < self.raw_bytes,
        };
        lengths_fit
            && (1..=FRAME_RAW_BYTES_MAX).contains(&self.raw_bytes)
            && u64::from(self.raw_bytes).is_multiple_of(unit)
            && self.first_lsn.0.is_multiple_of(unit)
            && self.first_lsn.0.checked_add(u64::from(self.raw_bytes)).is_some()
            && self.durable <= self.first_lsn
    }
}

/// True if a frame header may start here; cheap, for scans.
pub(crate) fn starts_like_a_frame(bytes: &[u8]) -> bool {
    bytes.starts_with(&FRAME_MAGIC.to_le_bytes())
}

/// Puts the checksum into a frame header.
pub(crate) fn seal_frame_header(seed: u32, header: &mut [u8]) {
    let crc = crc32c_append(seed, &header[..FRAME_CRC_AT]);
    header[FRAME_CRC_AT..FRAME_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment_header() -> SegmentHeader {
        SegmentHeader {
            database: DatabaseId(*b"0123456789abcdef"),
            segment: SegmentId(7),
            incarnation: Incarnation(3),
            first_lsn: Lsn(8192),
            continues_at: Lsn(4096),
            segment_bytes: 1 << 20,
        }
    }

    fn frame_header() -> FrameHeader {
        FrameHeader {
            segment: SegmentId(7),
            incarnation: Incarnation(3),
            number: 12,
            first_lsn: Lsn(8192),
            durable: Lsn(8000),
            compression: FrameCompression::Lz4,
            raw_bytes: 160,
            stored_bytes: 90,
            payload_crc: 5,
        }
    }

    #[test]
    fn every_flipped_bit_of_a_segment_header_is_noticed() {
        let header = segment_header();
        let block = header.encode();
        assert_eq!(SegmentHeader::decode(&block), Decoded::Valid(header));
        for bit in 0..block.len() * 8 {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&bad), Decoded::Nothing, "bit {bit}");
        }
    }

    #[test]
    fn every_flipped_bit_of_a_frame_header_is_noticed() {
        let header = frame_header();
        let mut bytes = [0; FRAME_HEADER_BYTES];
        header.encode(9, &mut bytes);
        assert_eq!(FrameHeader::decode(9, &bytes), Decoded::Valid(header));
        assert_eq!(FrameHeader::decode(8, &bytes), Decoded::Nothing, "another database");
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::decode(9, &bad), Decoded::Nothing, "bit {bit}");
        }
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let mut block = segment_header().encode();
        block[8] = 2;
        assert_eq!(SegmentHeader::decode(&block), Decoded::Nothing);
        seal_segment_header(&mut block);
        assert_eq!(SegmentHeader::decode(&block), Decoded::Newer(2));
    }

    #[test]
    fn names_come_back() {
        assert_eq!(SegmentId::from_file_name("wal-0000000012.log"), Some(SegmentId(12)));
        for name in ["wal-12.log", "wal-.log", "wal-000000001x.log", "wal-new.tmp", "MANIFEST-1"] {
            assert_eq!(SegmentId::from_file_name(name), None, "{name}");
        }
    }
}
