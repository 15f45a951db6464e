//! The one block codec (decision D8): compress → (room for encryption) → CRC32C over header, payload and
//! address. The bytes are drawn in `docs/formats/block.md`.
//!
//! Writing: 1. [`seal`] compresses the payload and appends header and payload to a buffer; the block's length is
//! known then, its address is not. 2. Space is allocated. 3. [`stamp`] writes the checksum, which covers the
//! address. Reading: [`open`] checks the header against the bytes at hand, the checksum against the header *and*
//! against what the parent stored, then kind and owner, and only then decompresses. [`open_block`] leaves that to the
//! caller, who may need a part only.
//!
//! A payload may be cut into parts, each compressed alone; a table before them says how long each is, with and without
//! compression. Such a block has [`FORMAT_VERSION`] 2; one without cuts is of version 1, which older builds read.
//!
//! Invariants: a stored payload is never longer than the payload it came from (compression that does not shrink
//! is dropped); no length of a header is believed before the checksum stands, and none above
//! [`PAYLOAD_BYTES_MAX`] ever, so that hostile bytes cannot make the reader allocate more than that.
//!
//! Why the address is in the checksum: a block that the disk wrote to, or read from, another place is whole in
//! itself; only its address gives it away.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use base::bytes::Reader;
use base::checksum::{crc32c, crc32c_append};
use base::{Corruption, Fault, IndexId, Result};

use crate::FramePool;
use crate::parts::{Packed, Parts};

/// First two bytes of every block.
pub const MAGIC: u16 = 0x4c42; // "BL"
/// Newest version of the block format: a payload in parts.
pub const FORMAT_VERSION: u8 = 2;
/// Version of a block whose payload is one part.
const VERSION_WHOLE: u8 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 40;
/// Longest payload, in bytes, before compression.
pub const PAYLOAD_BYTES_MAX: usize = (4 << 20) - HEADER_BYTES;
/// Payloads below this are not worth compressing.
const COMPRESS_FROM_BYTES: usize = 64;
/// Where the checksum stands; it covers what is before it, then the payload, then the address.
const CRC_AT: usize = HEADER_BYTES - 4;
/// Where the header has the lengths of the payload: laid out like a row of the table, and the only row without one.
const LENGTHS: Range<usize> = 12..12 + ROW_BYTES;
/// Bytes of a row of the table, behind the number of parts: a part's length, and its length as stored.
const ROW_BYTES: usize = 8;
const ZSTD_LEVEL: i32 = 1;

const _: () = assert!(HEADER_BYTES + PAYLOAD_BYTES_MAX <= 4 << 20);

/// How a block's payload is compressed. The number is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Compression {
    /// As it is.
    None = 0,
    /// LZ4 block format.
    #[default]
    Lz4 = 1,
    /// Zstandard, level 1.
    Zstd = 2,
}

impl Compression {
    /// The compression of a stored number.
    #[must_use]
    pub fn from_stored(n: u8) -> Option<Self> {
        [Self::None, Self::Lz4, Self::Zstd].into_iter().find(|c| *c as u8 == n)
    }
}

/// What a block holds. The number is stored and checked when the block comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BlockKind {
    /// A leaf of a tree.
    Leaf = 1,
    /// An inner node of a tree.
    Inner = 2,
    /// Part of a value, or of a version chain, that does not fit a leaf.
    Overflow = 3,
    /// Part of a sorted run.
    Run = 4,
    /// A message segment of a Bε-tree (reserved).
    Segment = 5,
}

/// The fixed front of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Version of the format, at most [`FORMAT_VERSION`].
    pub version: u8,
    /// What the block says it holds: a [`BlockKind`] number.
    pub kind: u8,
    /// How the payload is compressed.
    pub compression: Compression,
    /// Whose it is.
    pub index: IndexId,
    /// Bytes of the payload before compression.
    pub payload_bytes: u32,
    /// Bytes of the payload as stored.
    pub stored_payload_bytes: u32,
    /// The checksum.
    pub crc: u32,
}

/// What a block must be to be the right one.
#[derive(Debug, Clone, Copy)]
pub struct Want {
    /// What it holds.
    pub kind: BlockKind,
    /// Whose it is.
    pub index: IndexId,
    /// The checksum its parent stored, where the parent did.
    pub crc: Option<u32>,
}

/// Appends header and compressed payload of a block to `out`; the checksum is left 0 for [`stamp`]. Returns the
/// bytes appended. `cuts` are where the payload is cut into parts; if that shrinks nothing, it stays whole.
///
/// # Errors
/// [`Fault::Limit`] for a payload above [`PAYLOAD_BYTES_MAX`].
///
/// # Panics
/// If the cuts do not ascend strictly, or one is not inside the payload.
///
/// A block sealed, stamped with its address, and opened again:
///
/// ```
/// use base::IndexId;
/// use trefoil_store::codec::{self, Want};
/// use trefoil_store::{BlockKind, Compression};
///
/// let (kind, index) = (BlockKind::Leaf, IndexId(7));
/// let mut block = Vec::new();
/// codec::seal(kind, index, Compression::Lz4, &[b'x'; 1000], &[400], &mut block)?;
/// let crc = codec::stamp(&mut block, 8192);
/// let want = Want { kind, index, crc: Some(crc) };
/// let mut payload = Vec::new();
/// codec::open(&"a file", 8192, &block, &want, &mut payload)?;
/// assert_eq!(payload, [b'x'; 1000]);
/// // And a part of it:
/// let opened = codec::open_block(&"a file", 8192, &block, &want)?;
/// assert_eq!(opened.read(500..501, &mut payload)?, 400, "the second part begins here");
/// assert_eq!(payload.len(), 600);
/// # Ok::<(), base::Fault>(())
/// ```
pub fn seal(
    kind: BlockKind,
    index: IndexId,
    compression: Compression,
    payload: &[u8],
    cuts: &[usize],
    out: &mut Vec<u8>,
) -> Result<usize> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(Fault::Limit {
            what: "the payload of a block, in bytes",
            limit: PAYLOAD_BYTES_MAX as u64,
            got: payload.len() as u64,
        });
    }
    let start = out.len();
    out.resize(start + HEADER_BYTES, 0);
    let (version, compression) = match compress_parts(compression, payload, cuts, out) {
        true => (FORMAT_VERSION, compression),
        false => (VERSION_WHOLE, compress(compression, payload, out)),
    };
    let stored = out.len() - start - HEADER_BYTES;
    let header = &mut out[start..start + HEADER_BYTES];
    header[0..2].copy_from_slice(&MAGIC.to_le_bytes());
    header[2] = version;
    header[3] = kind as u8;
    header[4] = compression as u8;
    // 5: encryption scheme (0 = none), 6..8: zero.
    header[8..12].copy_from_slice(&index.0.to_le_bytes());
    header[12..16].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[16..20].copy_from_slice(&(stored as u32).to_le_bytes());
    // 20..24: key id, 24..36: nonce; zero without encryption.
    Ok(HEADER_BYTES + stored)
}

/// Writes the checksum of a sealed block that will stand at `offset`, and returns it.
///
/// # Panics
/// If `block` is shorter than a header.
pub fn stamp(block: &mut [u8], offset: u64) -> u32 {
    let crc = checksum(block, offset);
    block[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    crc
}

fn checksum(block: &[u8], offset: u64) -> u32 {
    let crc = crc32c(&block[..CRC_AT]);
    let crc = crc32c_append(crc, &block[HEADER_BYTES..]);
    crc32c_append(crc, &offset.to_le_bytes())
}

/// Checks and decompresses the block that makes up exactly `block`, read from `offset` of `file`, into `out`
/// (cleared first).
///
/// # Errors
/// [`Fault::Corrupt`] naming the place and what differs, [`Fault::Format`] for a newer format,
/// [`Fault::Unsupported`] for an encrypted block.
pub fn open(file: &dyn std::fmt::Display, offset: u64, block: &[u8], want: &Want, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    open_block(file, offset, block, want)?.read_whole(out)
}

/// Checks a block like [`open`], and decompresses nothing yet.
///
/// # Errors
/// As [`open`].
pub fn open_block<'a>(
    file: &'a dyn std::fmt::Display,
    offset: u64,
    block: &'a [u8],
    want: &Want,
) -> Result<OpenBlock<'a>> {
    let place = Place { file, offset, index: want.index };
    let header = parse_header(&place, block)?;
    if block.len() != HEADER_BYTES + header.stored_payload_bytes as usize {
        let found = HEADER_BYTES + header.stored_payload_bytes as usize;
        return Err(place.corrupt("block length", block.len(), found));
    }
    let computed = checksum(block, offset);
    if computed != header.crc {
        return Err(place.corrupt("block checksum", format!("{:08x}", header.crc), format!("{computed:08x}")));
    }
    if let Some(crc) = want.crc.filter(|crc| *crc != header.crc) {
        // A whole block, but not the one the parent named: an older or newer one at the same address.
        let (named, found) = (format!("{crc:08x}"), format!("{:08x}", header.crc));
        return Err(place.corrupt("block checksum named by its parent", named, found));
    }
    if header.kind != want.kind as u8 {
        return Err(place.corrupt("block kind", want.kind as u8, header.kind));
    }
    if header.index != want.index {
        return Err(place.corrupt("block owner", want.index, header.index));
    }
    let stored = &block[HEADER_BYTES..];
    let (table, stored) = match header.version {
        FORMAT_VERSION => split_table(&header, stored)
            .ok_or_else(|| place.corrupt("table of a block's parts", "one that fits the lengths", "another"))?,
        _ => (&block[LENGTHS], stored),
    };
    Ok(OpenBlock { place, header, table, stored })
}

/// The table of a payload in parts, whose sums are what the header says, and the parts.
fn split_table<'a>(header: &Header, stored: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let mut r = Reader::new(stored);
    let count = usize::try_from(r.u32()?).ok()?;
    let (table, parts) = (r.take(count.checked_mul(ROW_BYTES)?)?, r.rest());
    let mut sums = (0u64, 0u64);
    for (bytes, stored_bytes) in rows(table) {
        if bytes == 0 || !(1..=bytes).contains(&stored_bytes) {
            return None;
        }
        sums = (sums.0 + bytes as u64, sums.1 + stored_bytes as u64);
    }
    (sums == (u64::from(header.payload_bytes), parts.len() as u64)).then_some((table, parts))
}

/// The lengths of each part, before compression and as stored.
fn rows(table: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    table.chunks_exact(ROW_BYTES).map(move |row| (word(row), word(&row[4..])))
}

/// A block that is the right one, not decompressed yet.
pub struct OpenBlock<'a> {
    place: Place<'a>,
    header: Header,
    /// Rows whose sums are the lengths of payload and `stored`.
    table: &'a [u8],
    stored: &'a [u8],
}

impl OpenBlock<'_> {
    /// Bytes of the payload before compression.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.header.payload_bytes as usize
    }

    /// Decompresses the whole payload into `out` (cleared first).
    ///
    /// # Errors
    /// [`Fault::Corrupt`].
    pub fn read_whole(&self, out: &mut Vec<u8>) -> Result<()> {
        self.read(0..self.payload_bytes(), out).map(drop)
    }

    /// Decompresses the parts that have some of the payload's `range` into `out` (cleared first). Returns where in the
    /// payload `out` begins. What is beyond the payload's end is not there.
    ///
    /// # Errors
    /// [`Fault::Corrupt`].
    pub fn read(&self, range: Range<usize>, out: &mut Vec<u8>) -> Result<usize> {
        out.clear();
        out.reserve(range.len().min(self.payload_bytes()));
        let (mut begin, mut rest, mut first) = (0, self.stored, range.start);
        for (bytes, stored_bytes) in rows(self.table) {
            let (stored, behind) = rest.split_at(stored_bytes);
            if begin < range.end && begin + bytes > range.start {
                if out.is_empty() {
                    first = begin;
                }
                decompress(&self.place, self.header.compression, stored, bytes, out)?;
            }
            (begin, rest) = (begin + bytes, behind);
        }
        Ok(first)
    }

    /// How to read one of its parts next time; none if it is one part.
    #[must_use]
    pub fn parts(&self) -> Option<Parts> {
        if self.header.version < FORMAT_VERSION {
            return None;
        }
        let begin = HEADER_BYTES + size_of::<u32>() + self.table.len();
        let mut rest = self.stored;
        let parts = rows(self.table).map(|(bytes, stored_bytes)| {
            let (stored, behind) = rest.split_at(stored_bytes);
            rest = behind;
            (bytes, stored)
        });
        Some(Parts::new(self.header.compression, begin, parts))
    }

    /// The stored bytes of its parts, to be kept.
    #[must_use]
    pub fn pack(&self, pool: &Arc<FramePool>) -> Packed {
        Packed::new(pool, self.stored)
    }

    /// A fault that names the block, for who finds that what was read from it does not hold.
    #[must_use]
    pub fn corrupt(&self, what: &'static str, expected: impl ToString, found: impl ToString) -> Fault {
        self.place.corrupt(what, expected, found)
    }
}

/// Reads the header at the front of `block`.
///
/// # Errors
/// As [`open`].
pub fn header(file: &dyn std::fmt::Display, offset: u64, block: &[u8], index: IndexId) -> Result<Header> {
    parse_header(&Place { file, offset, index }, block)
}

/// A block, for whoever finds fault with it.
pub(crate) struct Place<'a> {
    pub file: &'a dyn std::fmt::Display,
    pub offset: u64,
    pub index: IndexId,
}

impl Place<'_> {
    pub fn corrupt(&self, what: &'static str, expected: impl ToString, found: impl ToString) -> Fault {
        Fault::from(Corruption {
            file: self.file.to_string(),
            offset: Some(self.offset),
            index: Some(self.index),
            key_range: None,
            what,
            expected: expected.to_string(),
            found: found.to_string(),
        })
    }
}

fn parse_header(place: &Place<'_>, block: &[u8]) -> Result<Header> {
    let short = || place.corrupt("block header", format!("{HEADER_BYTES} bytes"), block.len());
    let mut r = Reader::new(block.get(..HEADER_BYTES).ok_or_else(short)?);
    let magic = r.u16().ok_or_else(short)?;
    if magic != MAGIC {
        return Err(place.corrupt("block magic", format!("{MAGIC:04x}"), format!("{magic:04x}")));
    }
    let version = r.u8().ok_or_else(short)?;
    let kind = r.u8().ok_or_else(short)?;
    let compression = r.u8().ok_or_else(short)?;
    let scheme = r.u8().ok_or_else(short)?;
    let _zero = r.u16().ok_or_else(short)?;
    let index = IndexId(r.u32().ok_or_else(short)?);
    let payload_bytes = r.u32().ok_or_else(short)?;
    let stored_payload_bytes = r.u32().ok_or_else(short)?;
    let _key_and_nonce = r.take(16).ok_or_else(short)?;
    let crc = r.u32().ok_or_else(short)?;
    if version > FORMAT_VERSION {
        // The checksum stands here in every format: a flipped bit is not taken for a version.
        if block.len() < HEADER_BYTES || checksum(block, place.offset) != crc {
            return Err(place.corrupt("block format version", FORMAT_VERSION, version));
        }
        return Err(Fault::Format {
            path: format!("block at offset {} of {}", place.offset, place.file),
            found: u32::from(version),
            supported: u32::from(FORMAT_VERSION),
            remedy: "open the database with a newer build".to_owned(),
        });
    }
    if scheme != 0 {
        return Err(Fault::Unsupported(format!("encryption scheme {scheme} of a block in {}", place.file)));
    }
    let compression = Compression::from_stored(compression)
        .ok_or_else(|| place.corrupt("block compression", "0, 1 or 2", compression))?;
    if payload_bytes as usize > PAYLOAD_BYTES_MAX {
        return Err(place.corrupt("block payload length", format!("at most {PAYLOAD_BYTES_MAX}"), payload_bytes));
    }
    let fits = match compression {
        // In parts it would not have been stored.
        Compression::None => version < FORMAT_VERSION && stored_payload_bytes == payload_bytes,
        Compression::Lz4 | Compression::Zstd => stored_payload_bytes < payload_bytes,
    };
    if !fits {
        return Err(place.corrupt("stored payload length", payload_bytes, stored_payload_bytes));
    }
    Ok(Header { version, kind, compression, index, payload_bytes, stored_payload_bytes, crc })
}

thread_local! {
    // Taken out while in use, so that a thread that is switched in the middle finds none and makes another.
    static ZSTD_IN: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
    static ZSTD_OUT: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Appends the table and the payload's parts, each compressed alone; nothing, and false, unless that is shorter than the
/// payload.
fn compress_parts(how: Compression, payload: &[u8], cuts: &[usize], out: &mut Vec<u8>) -> bool {
    if cuts.is_empty() {
        return false;
    }
    let start = out.len();
    let count = u32::try_from(cuts.len() + 1).expect("there are no more parts than bytes");
    out.extend_from_slice(&count.to_le_bytes());
    let mut row = out.len();
    out.resize(row + count as usize * ROW_BYTES, 0);
    let mut begin = 0;
    for &end in cuts.iter().chain([&payload.len()]) {
        assert!(begin < end, "cuts ascend, inside the payload");
        let at = out.len();
        compress(how, &payload[begin..end], out);
        let stored = out.len() - at;
        out[row..row + 4].copy_from_slice(&((end - begin) as u32).to_le_bytes());
        out[row + 4..row + ROW_BYTES].copy_from_slice(&(stored as u32).to_le_bytes());
        row += ROW_BYTES;
        begin = end;
    }
    let is_shorter = out.len() - start < payload.len();
    if !is_shorter {
        out.truncate(start);
    }
    is_shorter
}

/// Appends the compressed payload to `out`, or the payload itself where compression does not shrink it. Returns
/// which.
fn compress(how: Compression, payload: &[u8], out: &mut Vec<u8>) -> Compression {
    let start = out.len();
    let room = payload.len().saturating_sub(1);
    let shrunk = match how {
        _ if payload.len() < COMPRESS_FROM_BYTES => None,
        Compression::None => None,
        Compression::Lz4 => {
            // The encoder wants room for its worst case before it starts.
            out.resize(start + lz4_flex::block::get_maximum_output_size(payload.len()), 0);
            lz4_flex::block::compress_into(payload, &mut out[start..]).ok()
        }
        Compression::Zstd => {
            out.resize(start + room, 0);
            // No room left is how zstd says that it did not shrink.
            zstd_compress(payload, &mut out[start..])
        }
    };
    match shrunk {
        Some(bytes) if bytes <= room => {
            out.truncate(start + bytes);
            how
        }
        _ => {
            out.truncate(start);
            out.extend_from_slice(payload);
            Compression::None
        }
    }
}

fn zstd_compress(payload: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut context = match ZSTD_IN.take() {
        Some(context) => context,
        None => zstd::bulk::Compressor::new(ZSTD_LEVEL).ok()?,
    };
    let bytes = context.compress_to_buffer(payload, out).ok();
    ZSTD_IN.replace(Some(context));
    bytes
}

fn zstd_decompress(stored: &[u8], out: &mut [u8]) -> Result<usize, String> {
    let mut context = match ZSTD_OUT.take() {
        Some(context) => context,
        None => zstd::bulk::Decompressor::new().map_err(|e| e.to_string())?,
    };
    let bytes = context.decompress_to_buffer(stored, out).map_err(|e| e.to_string());
    ZSTD_OUT.replace(Some(context));
    bytes
}

/// Appends a part of `bytes` bytes to `out`; stored with as many, it is as it was.
pub(crate) fn decompress(
    place: &Place<'_>,
    how: Compression,
    stored: &[u8],
    bytes: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    let start = out.len();
    if stored.len() == bytes {
        out.extend_from_slice(stored);
        return Ok(());
    }
    out.resize(start + bytes, 0);
    let got = match how {
        Compression::None => Err("nothing said to be compressed".to_owned()),
        Compression::Lz4 => lz4_flex::block::decompress_into(stored, &mut out[start..]).map_err(|e| e.to_string()),
        Compression::Zstd => zstd_decompress(stored, &mut out[start..]),
    };
    match got {
        Ok(got) if got == bytes => Ok(()),
        Ok(got) => Err(place.corrupt("decompressed payload, in bytes", bytes, got)),
        Err(e) => Err(place.corrupt("compressed payload", "a whole one", e)),
    }
}
