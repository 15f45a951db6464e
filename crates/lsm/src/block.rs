//! A data block of a run: sorted versions, searched where they lie.
//!
//! Layout of the payload in `docs/formats/lsm.md`: a format byte, the number of versions, the lowest timestamp, what all keys
//! start with, and the versions. Ascending by key, the newest of a key first. A large value is a list of blocks of its own, and never fresh.
//!
//! Bytes from disk are checked once, by [`DataBlock::parse`]; what is read later of a [`DataBlock`] holds. That walk also finds where each version begins,
//! so that a look-up halves the block without decoding it. On disk that would be four bytes for each version of which compression makes no less than two or
//! three: of a secondary index that is compressed a fifth of everything.
//!
//! In memory all of a block lies in one frame of the page cache, behind the versions their offsets and the signposts. A [`BlockBuilder`] says what a block
//! will take there, so that a writer ends it where the frame ends.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use base::CommitTs;
use base::bytes::{Reader, put_bytes, put_varint};
use base::limits::KEY_BYTES_MAX;
use index::Piece;
use store::{BlockRef, Frame, FramePool};

use crate::signposts::Signposts;

const DATA_FORMAT: u8 = 4;
/// The same of a block that has fresh puts: the lowest bit of what an inline value's code has more says which are.
const FRESH_FORMAT: u8 = 5;
/// Both of before, with the offset of each version behind the versions.
const OFFSETS_FORMATS: [u8; 2] = [1, 3];
/// Codes of values; from the last on it is an inline value of so many bytes more.
const DELETE: u64 = 0;
const LARGE: u64 = 1;
const INLINE: u64 = 2;
/// Bytes of an entry's offset, in memory, and on disk where that has them.
const OFFSET_BYTES: usize = 4;
/// Bytes before the first version, at most, beside what all keys start with: a format byte, the number of versions, a timestamp, a length.
const FRONT_BYTES_MAX: usize = 1 + 4 + 10 + 3;
/// Bytes of a large value's two lengths, at most.
const LARGE_FRONT_BYTES_MAX: usize = 10 + 5;
/// A version takes at least so many: three lengths, one of them with its timestamp.
const ENTRY_BYTES_MIN: usize = 3;
/// One signpost in memory for so many entries.
const POST_STEP: usize = 4;

/// What a version says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// The key is gone.
    Delete,
    /// The value itself.
    Inline(&'a [u8]),
    /// The same, of a key of which nothing was alive [A15].
    Fresh(&'a [u8]),
    /// A value in blocks of its own.
    Large(Pieces<'a>),
}

impl Value<'_> {
    pub fn is_delete(self) -> bool {
        self == Value::Delete
    }

    /// Bytes of it in its block, beside its code, at most.
    fn block_bytes(self) -> usize {
        match self {
            Value::Delete => 0,
            Value::Inline(bytes) | Value::Fresh(bytes) => bytes.len(),
            Value::Large(pieces) => Pieces::block_bytes(pieces.refs.len() / BlockRef::BYTES),
        }
    }
}

/// As memtables and attached runs have it.
impl<'a> From<Option<&'a [u8]>> for Value<'a> {
    fn from(value: Option<&'a [u8]>) -> Self {
        value.map_or(Value::Delete, Value::Inline)
    }
}

/// The blocks of a large value, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pieces<'a> {
    /// Bytes of the value.
    pub value_bytes: u64,
    refs: &'a [u8],
}

impl Pieces<'_> {
    /// Bytes of so many of them, at most.
    pub fn block_bytes(pieces: usize) -> usize {
        pieces * BlockRef::BYTES + LARGE_FRONT_BYTES_MAX
    }

    /// Their addresses.
    pub fn iter(&self) -> impl Iterator<Item = BlockRef> {
        self.refs.chunks_exact(BlockRef::BYTES).map(|at| BlockRef::decode(&mut Reader::new(at)).expect("16 bytes"))
    }
}

/// One version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version<'a> {
    pub ts: CommitTs,
    pub value: Value<'a>,
}

/// Builds the payload of one block.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    /// Keys and values back to back.
    bytes: Vec<u8>,
    entries: Vec<Drawn>,
    sums: Sums,
    has_fresh: bool,
}

/// What the size of a block hangs on, whatever its keys are cut to.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    entries: usize,
    key_bytes: usize,
    /// Of values and of all lengths.
    other_bytes: usize,
    /// Bytes that all keys start with.
    prefix: usize,
    oldest: u64,
    /// Of timestamps, less the oldest.
    ts_bytes: usize,
}

impl Sums {
    /// Bytes of the payload, at most.
    fn payload_bytes(&self) -> usize {
        let keys = self.key_bytes - self.entries * self.prefix;
        FRONT_BYTES_MAX + self.prefix + keys + self.other_bytes + self.ts_bytes
    }

    /// Bytes of memory, at most.
    fn memory_bytes(&self) -> usize {
        self.payload_bytes() + (self.entries + Signposts::count(POST_STEP, self.entries)) * OFFSET_BYTES
    }
}

fn varint_bytes(n: u64) -> usize {
    (u64::BITS - (n | 1).leading_zeros()).div_ceil(7) as usize
}

#[derive(Debug)]
struct Drawn {
    start: usize,
    key_bytes: usize,
    ts: CommitTs,
    /// None for a delete.
    value: Option<DrawnValue>,
}

#[derive(Debug)]
enum DrawnValue {
    Inline { bytes: usize, is_fresh: bool },
    Large { value_bytes: u64, refs: usize },
}

impl BlockBuilder {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of the payload, at most, if there is anything.
    pub fn payload_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { self.sums.payload_bytes() }
    }

    /// True if the block takes no more than so many bytes of memory with this version, of whose value it has so many.
    pub fn fits(&self, key: &[u8], ts: CommitTs, value_bytes: usize, most: usize) -> bool {
        self.with(key, ts, value_bytes).memory_bytes() <= most
    }

    fn with(&self, key: &[u8], ts: CommitTs, value_bytes: usize) -> Sums {
        let Sums { entries, key_bytes, other_bytes, prefix, oldest, ts_bytes } = self.sums;
        let prefix = match self.entries.first() {
            Some(first) => common_prefix_bytes(&self.bytes[first.start..][..first.key_bytes.min(prefix)], key),
            None => key.len(),
        };
        // Rarely: of versions in no order of time a few are older than all before.
        let (oldest, ts_bytes) = if entries == 0 || ts.0 < oldest {
            (ts.0, self.entries.iter().map(|entry| varint_bytes(entry.ts.0 - ts.0)).sum())
        } else {
            (oldest, ts_bytes)
        };
        // The code of a value has a bit more, and one that says the kind.
        let more = varint_bytes(key.len() as u64) + varint_bytes(INLINE + 2 * value_bytes as u64 + 1) + value_bytes;
        Sums {
            entries: entries + 1,
            key_bytes: key_bytes + key.len(),
            other_bytes: other_bytes + more,
            prefix,
            oldest,
            ts_bytes: ts_bytes + varint_bytes(ts.0 - oldest),
        }
    }

    /// Appends a version, behind the last one: the caller keeps the order.
    pub fn push(&mut self, key: &[u8], ts: CommitTs, value: Value<'_>) {
        self.sums = self.with(key, ts, value.block_bytes());
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let value = match value {
            Value::Delete => None,
            Value::Inline(bytes) | Value::Fresh(bytes) => {
                let is_fresh = matches!(value, Value::Fresh(_));
                self.bytes.extend_from_slice(bytes);
                self.has_fresh |= is_fresh;
                Some(DrawnValue::Inline { bytes: bytes.len(), is_fresh })
            }
            Value::Large(pieces) => {
                self.bytes.extend_from_slice(pieces.refs);
                Some(DrawnValue::Large { value_bytes: pieces.value_bytes, refs: pieces.refs.len() })
            }
        };
        self.entries.push(Drawn { start, key_bytes: key.len(), ts, value });
    }

    /// The payload; the builder is empty afterwards.
    pub fn finish(&mut self) -> Vec<u8> {
        let key = |entry: &Drawn| &self.bytes[entry.start..entry.start + entry.key_bytes];
        let Sums { prefix, oldest, .. } = self.sums;
        let mut out = Vec::with_capacity(self.sums.payload_bytes());
        out.push(if self.has_fresh { FRESH_FORMAT } else { DATA_FORMAT });
        put_varint(&mut out, self.entries.len() as u64);
        put_varint(&mut out, oldest);
        put_bytes(&mut out, &key(&self.entries[0])[..prefix]);
        for entry in &self.entries {
            put_bytes(&mut out, &key(entry)[prefix..]);
            put_varint(&mut out, entry.ts.0 - oldest);
            let at = entry.start + entry.key_bytes;
            match entry.value {
                None => put_varint(&mut out, DELETE),
                Some(DrawnValue::Inline { bytes, is_fresh }) => {
                    let more = bytes as u64;
                    put_varint(&mut out, INLINE + if self.has_fresh { 2 * more + u64::from(is_fresh) } else { more });
                    out.extend_from_slice(&self.bytes[at..at + bytes]);
                }
                Some(DrawnValue::Large { value_bytes, refs }) => {
                    put_varint(&mut out, LARGE);
                    put_varint(&mut out, value_bytes);
                    put_bytes(&mut out, &self.bytes[at..at + refs]);
                }
            }
        }
        self.bytes.clear();
        self.entries.clear();
        self.sums = Sums::default();
        self.has_fresh = false;
        out
    }
}

/// The list of a large value's blocks, as a version holds it.
pub(crate) fn encode_pieces(refs: impl IntoIterator<Item = BlockRef>) -> Vec<u8> {
    let mut out = Vec::new();
    refs.into_iter().for_each(|at| at.encode(&mut out));
    out
}

impl<'a> Pieces<'a> {
    /// From what [`encode_pieces`] gave.
    pub fn new(value_bytes: u64, refs: &'a [u8]) -> Self {
        Self { value_bytes, refs }
    }

    /// The same.
    pub fn refs(self) -> &'a [u8] {
        self.refs
    }
}

/// How a block writes its versions.
#[derive(Debug, Clone, Copy)]
struct Coding {
    has_fresh: bool,
    oldest: u64,
}

impl Coding {
    #[inline]
    fn decode<'a>(self, r: &mut Reader<'a>) -> Option<(&'a [u8], Version<'a>)> {
        let suffix = r.bytes()?;
        let ts = CommitTs(self.oldest.checked_add(r.varint()?)?);
        let value = match r.varint()? {
            DELETE => Value::Delete,
            LARGE => {
                let value_bytes = r.varint()?;
                let refs = r.bytes()?;
                if refs.len() % BlockRef::BYTES != 0 {
                    return None;
                }
                Value::Large(Pieces { value_bytes, refs })
            }
            inline if self.has_fresh => {
                let more = inline - INLINE;
                let value = r.take(usize::try_from(more / 2).ok()?)?;
                if more % 2 == 1 { Value::Fresh(value) } else { Value::Inline(value) }
            }
            inline => Value::Inline(r.take(usize::try_from(inline - INLINE).ok()?)?),
        };
        Some((suffix, Version { ts, value }))
    }
}

/// What lies before the versions.
struct Front {
    coding: Coding,
    /// Number of versions.
    count: usize,
    prefix: Range<usize>,
    /// Where the last version ends, and a table of offsets begins if there is one.
    end: usize,
}

/// A block whose bytes were checked.
///
/// Its frame has the payload up to where the last version ends; where each version begins; the signposts.
#[derive(Debug)]
pub(crate) struct DataBlock {
    frame: Frame,
    coding: Coding,
    prefix: Range<u32>,
    end: u32,
    count: u32,
}

impl DataBlock {
    /// Checks a payload.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the bytes.
    pub fn parse(mut bytes: Vec<u8>, frames: &Arc<FramePool>) -> Result<Self, String> {
        let front = Self::read_front(&bytes).ok_or("run: the front of a block does not hold")?;
        let Front { coding, count, prefix, end } = front;
        let (versions, table) = bytes.split_at(end);
        let offsets = walk(versions, coding, &prefix, count)?;
        let is_as_said = table.as_chunks().0.iter().map(|at| u32::from_le_bytes(*at)).eq(offsets.iter().copied());
        if !table.is_empty() && !is_as_said {
            return Err("run: an offset does not name an entry".to_owned());
        }
        let suffix = |i: usize| Reader::new(&versions[offsets[i] as usize..]).bytes().expect("just checked");
        let mut posts = Vec::with_capacity(Signposts::count(POST_STEP, count) * OFFSET_BYTES);
        Signposts::put(POST_STEP, count, suffix, &mut posts);
        bytes.truncate(end);
        bytes.reserve_exact(offsets.len() * OFFSET_BYTES + posts.len());
        offsets.iter().for_each(|at| bytes.extend_from_slice(&at.to_le_bytes()));
        bytes.extend_from_slice(&posts);
        let prefix = prefix.start as u32..prefix.end as u32;
        Ok(Self { frame: frames.frame_of(&bytes), coding, prefix, end: end as u32, count: count as u32 })
    }

    fn read_front(bytes: &[u8]) -> Option<Front> {
        let mut r = Reader::new(bytes);
        let format = r.u8()?;
        let has_fresh = format == FRESH_FORMAT || format == OFFSETS_FORMATS[1];
        let has_table = OFFSETS_FORMATS.contains(&format);
        if !has_fresh && !has_table && format != DATA_FORMAT {
            return None;
        }
        let (count, oldest) = (r.length().filter(|count| *count > 0)?, r.varint()?);
        let prefix_bytes = r.bytes()?.len();
        let behind = bytes.len() - r.rest().len();
        let table_bytes = if has_table { count.checked_mul(OFFSET_BYTES)? } else { 0 };
        let end = bytes.len().checked_sub(table_bytes).filter(|end| *end >= behind && *end <= u32::MAX as usize)?;
        if (end - behind) / ENTRY_BYTES_MIN < count {
            return None;
        }
        Some(Front { coding: Coding { has_fresh, oldest }, count, prefix: behind - prefix_bytes..behind, end })
    }

    fn versions(&self) -> &[u8] {
        &self.frame[..self.end as usize]
    }

    fn offset(&self, i: usize) -> usize {
        let offsets = self.frame[self.end as usize..].as_chunks().0;
        u32::from_le_bytes(offsets[i]) as usize
    }

    fn posts(&self) -> Signposts<'_> {
        let at = self.end as usize + self.len() * OFFSET_BYTES;
        let fronts = self.frame[at..].as_chunks().0;
        Signposts::new(POST_STEP, &fronts[..Signposts::count(POST_STEP, self.len())])
    }

    fn entry(&self, i: usize) -> (&[u8], Version<'_>) {
        let mut r = Reader::new(&self.versions()[self.offset(i)..]);
        self.coding.decode(&mut r).expect("a checked block")
    }

    fn suffix(&self, i: usize) -> &[u8] {
        Reader::new(&self.versions()[self.offset(i)..]).bytes().expect("a checked block")
    }

    /// Number of versions, at least one.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Bytes of memory beside the value itself.
    pub fn memory_bytes(&self) -> usize {
        self.frame.len()
    }

    /// What all keys start with.
    pub fn prefix(&self) -> &[u8] {
        &self.frame[self.prefix.start as usize..self.prefix.end as usize]
    }

    /// The `i`-th version, and its key behind [`DataBlock::prefix`].
    pub fn version(&self, i: usize) -> (&[u8], Version<'_>) {
        self.entry(i)
    }

    /// The `i`-th version and all behind it, one after the other: none if there are no more than `i`.
    pub fn entries_from(&self, i: usize) -> Entries<'_> {
        let versions = self.versions();
        let from = if i < self.len() { self.offset(i) } else { versions.len() };
        Entries { coding: self.coding, left: Reader::new(&versions[from..]) }
    }

    /// True if the `i`-th version is of this key.
    pub fn is_of(&self, i: usize, key: &[u8]) -> bool {
        key.strip_prefix(self.prefix()) == Some(self.suffix(i))
    }

    /// True if two neighbours are of one key.
    pub fn same_key(&self, i: usize, j: usize) -> bool {
        self.suffix(i) == self.suffix(j)
    }

    /// Writes the key of the `i`-th version over `key`.
    pub fn key_into(&self, i: usize, key: &mut Vec<u8>) {
        self.whole_key_into(self.suffix(i), key);
    }

    /// Writes a key of which this lies behind [`DataBlock::prefix`] over `key`.
    pub fn whole_key_into(&self, suffix: &[u8], key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(self.prefix());
        key.extend_from_slice(suffix);
    }

    /// The first version at or behind (`key`, `ts`): of a higher key, or of this one and not newer. [`DataBlock::len`] if there is
    /// none.
    pub fn seek(&self, key: &[u8], ts: CommitTs) -> usize {
        self.seek_noting(key, ts, || {})
    }

    /// The same; `note` is told of each key that is looked at.
    fn seek_noting(&self, key: &[u8], ts: CommitTs, mut note: impl FnMut()) -> usize {
        let (rest, Range { start: mut low, end: mut high }) = self.posts().narrow(self.prefix(), key, self.len());
        while low < high {
            let mid = low + (high - low) / 2;
            note();
            let before = match self.suffix(mid).cmp(rest) {
                Ordering::Less => true,
                Ordering::Greater => false,
                Ordering::Equal => self.entry(mid).1.ts > ts,
            };
            if before {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        low
    }
}

/// Versions of a block, one after the other.
pub(crate) struct Entries<'a> {
    coding: Coding,
    left: Reader<'a>,
}

/// A version where it lies.
pub(crate) struct Entry<'a> {
    /// Its key behind [`DataBlock::prefix`].
    pub suffix: &'a [u8],
    pub version: Version<'a>,
    /// From the lengths before its key to the end of the block.
    bytes: &'a [u8],
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        let bytes = self.left.rest();
        if bytes.is_empty() {
            return None;
        }
        let (suffix, version) = self.coding.decode(&mut self.left).expect("a checked block");
        Some(Entry { suffix, version, bytes })
    }
}

impl<'a> Entry<'a> {
    /// All of it in one piece; none of a delete or a large value.
    #[inline]
    pub fn piece(&self) -> Option<Piece<'a>> {
        let (Value::Inline(value) | Value::Fresh(value)) = self.version.value else { return None };
        let place = |part: &[u8]| part.as_ptr().addr() - self.bytes.as_ptr().addr();
        let key = place(self.suffix);
        // Of two numbers, ten bytes each at most.
        let gap = place(value) - key - self.suffix.len();
        Some(Piece {
            bytes: &self.bytes[key..],
            key_bytes: self.suffix.len(),
            gap: gap as u8,
            value_bytes: value.len(),
        })
    }
}

/// Finds the versions: one behind the other, in order, up to the end.
fn walk(versions: &[u8], coding: Coding, prefix: &Range<usize>, count: usize) -> Result<Vec<u32>, String> {
    let mut offsets = Vec::with_capacity(count);
    let mut r = Reader::new(&versions[prefix.end..]);
    let mut last: Option<(&[u8], CommitTs)> = None;
    for _ in 0..count {
        offsets.push((versions.len() - r.rest().len()) as u32);
        let (suffix, version) = coding.decode(&mut r).ok_or("run: the bytes of a block do not hold")?;
        let ascends = last.is_none_or(|(key, ts)| key < suffix || (key == suffix && ts > version.ts));
        if !ascends || prefix.len() + suffix.len() > KEY_BYTES_MAX {
            return Err("run: versions do not ascend".to_owned());
        }
        last = Some((suffix, version.ts));
    }
    if r.is_empty() { Ok(offsets) } else { Err("run: bytes behind the last version".to_owned()) }
}

/// Bytes that two keys start with both.
pub(crate) fn common_prefix_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests;
