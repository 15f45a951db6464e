//! Basements: parts of a leaf image that are compressed alone, and a point read that needs one of them.
//!
//! A basement begins at a key, with its newest version: all versions of a key, and the chain, are in one. The directory in
//! the image's front has for each one but the first where it begins and its first key, after the image's prefix; that key is
//! nowhere else. So front and basement are enough to find a key, and the front is small: it is a part of its own.
//!
//! The block may be cut elsewhere, or not at all, if compression shrinks nothing: what is read of it is a range of bytes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base::bytes::{Reader, put_bytes, put_varint};
use base::{CommitTs, Fault, Result};
use store::{Cell, OpenBlock, Packed, Parts, allocated};

use super::image::{Content, Decoder, Front, Place};
use super::key::Key;

/// What a leaf image is read from: a block, or the part of one that is in memory and the disk.
pub(crate) trait Payload {
    /// All of it, in bytes.
    fn payload_bytes(&self) -> usize;
    /// Puts what has some of `range` into `out` (cleared first). Returns where in the payload that begins.
    fn read(&self, range: Range<usize>, out: &mut Vec<u8>) -> Result<usize>;
    /// A fault that names it.
    fn corrupt(&self, what: &str) -> Fault;
}

impl Payload for OpenBlock<'_> {
    fn payload_bytes(&self) -> usize {
        OpenBlock::payload_bytes(self)
    }

    fn read(&self, range: Range<usize>, out: &mut Vec<u8>) -> Result<usize> {
        OpenBlock::read(self, range, out)
    }

    fn corrupt(&self, what: &str) -> Fault {
        OpenBlock::corrupt(self, "leaf image", "a well-formed one", what)
    }
}

/// The front of an image in basements, and where its basements lie: kept in memory, it spares the next point read all but one of these.
#[derive(Debug)]
pub(crate) struct Outline {
    pub front: Box<[u8]>,
    pub parts: Parts,
    /// What they are read from, while the cache has room for it.
    pub packed: Arc<Cell<Packed>>,
    /// In which turn of the balance one was read from disk last, and 1. Relaxed: a hint.
    read_in: AtomicU32,
}

/// A cell without what it holds.
const CELL_BYTES: u64 = allocated(2 * size_of::<usize>() + size_of::<Cell<Packed>>());

impl Outline {
    /// Of a block that was read whole; none of one that has no parts.
    ///
    /// # Errors
    /// Corruption.
    pub fn of(block: &OpenBlock<'_>) -> Result<Option<Self>> {
        let Some(parts) = block.parts() else { return Ok(None) };
        let mut front = Vec::new();
        block.read(0..1, &mut front)?;
        Ok(Some(Self { front: front.into(), parts, packed: Cell::new(), read_in: AtomicU32::new(0) }))
    }

    /// Notes that it is read from disk. True if it was in the same turn of the balance: then all of it is worth its place in memory.
    pub fn is_wanted_again(&self, turn: u32) -> bool {
        let now = turn.wrapping_add(1);
        self.read_in.swap(now, Ordering::Relaxed) == now
    }

    /// Memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        allocated(size_of::<Self>()) + CELL_BYTES + allocated(self.front.len()) + self.parts.memory_bytes()
    }
}

/// Where a basement begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Basement<'a> {
    /// Its first slot.
    pub slot: u64,
    /// Its first byte, among those of all entries.
    pub offset: usize,
    /// Its first key, after the image's prefix; of the first basement, it is not here.
    pub key: &'a [u8],
}

impl Basement<'_> {
    /// Begins nowhere.
    pub const NONE: Self = Self { slot: u64::MAX, offset: 0, key: &[] };
    const FIRST: Self = Self { slot: 0, offset: 0, key: &[] };
}

/// The basements behind the first, ascending.
#[derive(Debug, Clone, Copy)]
pub(super) struct Directory<'a> {
    reader: Reader<'a>,
    left: u64,
    slot: u64,
    offset: usize,
}

impl Default for Directory<'_> {
    fn default() -> Self {
        Self { reader: Reader::new(&[]), left: 0, slot: 0, offset: 0 }
    }
}

impl<'a> Directory<'a> {
    /// Reads the directory of an image with so many slots: there is a basement, none is empty, keys ascend.
    pub(super) fn read(r: &mut Reader<'a>, slots: u64) -> Option<Self> {
        let left = r.varint().filter(|left| *left > 0)?;
        let directory = Self { reader: *r, left, slot: 0, offset: 0 };
        let (mut rest, mut last) = (directory, None);
        while rest.left > 0 {
            let basement = rest.next()?;
            if basement.slot >= slots || last.is_some_and(|last| last >= basement.key) {
                return None;
            }
            last = Some(basement.key);
        }
        *r = rest.reader;
        Some(directory)
    }
}

impl<'a> Iterator for Directory<'a> {
    type Item = Basement<'a>;

    fn next(&mut self) -> Option<Basement<'a>> {
        self.left = self.left.checked_sub(1)?;
        self.slot = self.slot.checked_add(self.reader.varint().filter(|slots| *slots > 0)?)?;
        self.offset = self.offset.checked_add(self.reader.length().filter(|bytes| *bytes > 0)?)?;
        Some(Basement { slot: self.slot, offset: self.offset, key: self.reader.bytes()? })
    }
}

/// A directory that is made while entries are appended behind the place where it will stand.
#[derive(Debug)]
pub(super) struct DirectoryWriter {
    bytes: Vec<u8>,
    /// Where each basement begins.
    begins: Vec<usize>,
    last_slot: usize,
    last_begin: usize,
}

impl DirectoryWriter {
    pub(super) fn new(at: usize) -> Self {
        Self { bytes: Vec::new(), begins: vec![at], last_slot: 0, last_begin: at }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.begins.len() == 1
    }

    /// Bytes of the basement under way, if `at` bytes are written.
    #[inline]
    pub(super) fn basement_bytes(&self, at: usize) -> usize {
        at - self.last_begin
    }

    pub(super) fn begin(&mut self, slot: usize, at: usize, key: &[u8]) {
        put_varint(&mut self.bytes, (slot - self.last_slot) as u64);
        put_varint(&mut self.bytes, (at - self.last_begin) as u64);
        put_bytes(&mut self.bytes, key);
        (self.last_slot, self.last_begin) = (slot, at);
        self.begins.push(at);
    }

    /// Puts the directory before the entries, behind `front_bytes` of the image. Returns where front and basements end, in
    /// the image.
    pub(super) fn insert(self, out: &mut Vec<u8>, front_bytes: usize) -> Vec<usize> {
        let at = self.begins[0];
        let mut directory = Vec::with_capacity(self.bytes.len() + 4);
        put_varint(&mut directory, self.begins.len() as u64 - 1);
        directory.extend_from_slice(&self.bytes);
        let entries = front_bytes + directory.len();
        out.splice(at..at, directory);
        self.begins.iter().map(|begin| begin - at + entries).collect()
    }
}

/// What an image says of a key.
pub(crate) enum ImageLookup<'a> {
    /// The newest version that is visible: its value, none for a tombstone.
    Version(CommitTs, Option<&'a [u8]>),
    Absent,
    /// What is visible lies beside the image, or may.
    Beside,
}

/// The newest version of `key` at or below `limit` in the leaf image `block`, without making a page of it: front and
/// one basement are decompressed. Their order is checked as far as they are read.
///
/// # Errors
/// Corruption.
pub(crate) fn look_up_in_image<'a>(
    block: &impl Payload,
    key: &[u8],
    limit: CommitTs,
    buffers: &'a mut [Vec<u8>; 2],
) -> Result<ImageLookup<'a>> {
    let corrupt = |what: &str| block.corrupt(what);
    let [front_bytes, basement_bytes] = buffers;
    block.read(0..1, front_bytes)?;
    let front_bytes: &'a [u8] = front_bytes;
    let front = Front::read(front_bytes).ok_or_else(|| corrupt("leaf image: the header does not hold"))?;
    let (basement, next) = find(&front, key);
    let begin = front.bytes.saturating_add(basement.offset);
    let end = next.map_or(block.payload_bytes(), |next| front.bytes.saturating_add(next.offset));
    let bytes = match front_bytes.get(begin..end) {
        Some(bytes) => bytes,
        None => {
            let at = block.read(begin..end, basement_bytes)?;
            let basement_bytes: &'a [u8] = basement_bytes;
            basement_bytes.get(begin - at..end.saturating_sub(at)).ok_or_else(|| corrupt("a basement is not there"))?
        }
    };
    let slots = next.map_or(front.slots, |next| next.slot) - basement.slot;
    look_up(Decoder::of_basement(&front, basement, bytes), slots, key, limit).map_err(|what| corrupt(&what))
}

/// The basement that has `key` if one does, and the next one.
fn find<'a>(front: &Front<'a>, key: &[u8]) -> (Basement<'a>, Option<Basement<'a>>) {
    let mut found = Basement::FIRST;
    for basement in front.directory {
        if (Key { prefix: front.prefix, suffix: basement.key }).cmp_bytes(key).is_gt() {
            return (found, Some(basement));
        }
        found = basement;
    }
    (found, None)
}

fn look_up<'a>(
    mut decoder: Decoder<'a>,
    slots: u64,
    key: &[u8],
    limit: CommitTs,
) -> std::result::Result<ImageLookup<'a>, String> {
    let (mut place, mut is_at_key) = (Place::Below, false);
    for i in 0..slots {
        let Some(entry) = decoder.entry() else { return Err(format!("leaf image: entry {i} does not hold")) };
        if let Some(what) = decoder.check_order(&entry) {
            return Err(format!("leaf image: entry {i}: {what}"));
        }
        if !entry.older {
            if is_at_key {
                return Ok(ImageLookup::Absent);
            }
            place.follow(&decoder, &[], Some(key));
            is_at_key = !place.is_inside() && decoder.key == key;
            if !place.is_inside() && !is_at_key {
                return Ok(ImageLookup::Absent);
            }
        }
        match entry.content {
            _ if !is_at_key => {}
            Content::Chain(..) => return Ok(ImageLookup::Beside),
            _ if entry.ts > limit => {}
            Content::Put(value) => return Ok(ImageLookup::Version(entry.ts, Some(value))),
            Content::Tombstone => return Ok(ImageLookup::Version(entry.ts, None)),
            Content::Overflow(..) => return Ok(ImageLookup::Beside),
        }
    }
    if !decoder.reader.is_empty() {
        return Err(format!("leaf image: {} bytes too many", decoder.reader.rest().len()));
    }
    Ok(ImageLookup::Absent)
}

#[cfg(test)]
mod tests;
