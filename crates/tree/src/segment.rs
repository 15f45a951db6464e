//! A block of a segment: sorted messages of some neighbouring leaves, on disk.
//!
//! Layout of the payload in `docs/formats/node.md`: a format byte, the number of messages, the lowest timestamp, then for each
//! message the length that its key shares with the one before, the rest of the key, the timestamp above the lowest, and
//! the value (length + 1 and bytes, 0 for a delete). Ascending by key, the newest of a key first.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use base::CommitTs;
use base::bytes::{Reader, put_bytes, put_varint};
use base::limits::KEY_BYTES_MAX;
use index::Op;
use store::{Block, BlockRef, Cache, Class, Filter, KeyHash, LeftAt, Space, allocated};

use crate::image::Fence;
use crate::messages::{Message, Messages};
use crate::node::{SegmentDescriptor, common_prefix_bytes};

const SEGMENT_FORMAT: u8 = 1;
/// Of a payload that stands for messages which could not be read any more.
const LOST_FORMAT: u8 = 2;

/// One block of a buffer, as the inner node knows it. Always shared ([`SegmentBlock::share`]).
#[derive(Debug)]
pub(crate) struct SegmentBlock {
    pub block: Arc<Block>,
    /// First and last key in it.
    pub first: Fence,
    pub last: Fence,
    pub count: u64,
    pub deletes: u64,
    /// Before compression.
    pub bytes: u64,
    pub newest: CommitTs,
    /// Leaves that it was written for; or, if that was before the database was opened, that it reached then.
    pub leaves: usize,
    /// When its messages left memory, if that was since the database was opened.
    pub flushed: LeftAt,
    /// Once it was read for one key.
    pub filter: OnceLock<Filter>,
}

impl SegmentBlock {
    /// The one that a description names, which reaches so many leaves; the block becomes this one's.
    pub fn adopt(space: &Space, from: &SegmentDescriptor, leaves: usize) -> Self {
        Self {
            block: space.adopt(from.block),
            first: from.first.as_slice().into(),
            last: from.last.as_slice().into(),
            count: from.count,
            deletes: from.deletes,
            bytes: from.bytes,
            newest: from.newest,
            leaves,
            flushed: LeftAt::default(),
            filter: OnceLock::new(),
        }
    }

    /// The same messages in another place.
    pub fn moved_to(&self, block: Arc<Block>) -> Arc<Self> {
        let (first, last, filter) = (self.first.clone(), self.last.clone(), OnceLock::new());
        Self { block, first, last, filter, ..*self }.share()
    }

    /// Shares it, and charges for it.
    pub fn share(self) -> Arc<Self> {
        self.block.space().hold(Class::Inner, self.memory_bytes());
        Arc::new(self)
    }

    fn memory_bytes(&self) -> u64 {
        let fence = |fence: &Fence| allocated(2 * size_of::<usize>() + fence.len());
        let filter = self.filter.get().map_or(0, Filter::memory_bytes);
        allocated(2 * size_of::<usize>() + size_of::<Self>()) + fence(&self.first) + fence(&self.last) + filter
    }

    /// Keeps in mind which keys the payload has.
    ///
    /// # Errors
    /// As [`for_each`].
    pub fn learn(&self, payload: &[u8]) -> Result<(), String> {
        if self.filter.get().is_some() {
            return Ok(());
        }
        let (mut keys, mut last) = (Vec::with_capacity(self.count as usize), None);
        for_each(payload, |message| {
            let key = KeyHash::of(message.key);
            if last.replace(key) != Some(key) {
                keys.push(key);
            }
            true
        })?;
        // Of several readers one has it set, and charges for it.
        if self.filter.set(Filter::of(&keys)).is_ok() {
            let bytes = self.filter.get().map_or(0, Filter::memory_bytes);
            self.block.space().hold(Class::Inner, bytes);
        }
        Ok(())
    }

    /// It is read from disk.
    pub fn note_read(&self, cache: &Cache) {
        cache.note_messages_read(self.flushed, self.block.stored_bytes());
    }

    /// What the inner node's image says of it.
    pub fn descriptor(&self) -> SegmentDescriptor {
        SegmentDescriptor {
            block: self.block.at(),
            first: self.first.to_vec(),
            last: self.last.to_vec(),
            count: self.count,
            deletes: self.deletes,
            bytes: self.bytes,
            newest: self.newest,
        }
    }

    /// True if some key of `[low, high)` may be in it.
    pub fn overlaps(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        *self.last >= *low && high.is_none_or(|high| *self.first < *high)
    }

    /// True if `key`, which is in a leaf that it overlaps, may be in it. What stands for messages that were lost ends with a leaf, not
    /// with a key.
    pub fn may_have(&self, key: &[u8], hash: KeyHash) -> bool {
        *self.first <= *key
            && (*key <= *self.last || self.is_lost())
            && self.filter.get().is_none_or(|filter| filter.may_have(hash))
    }

    /// It stands for messages that could not be read any more.
    pub fn is_lost(&self) -> bool {
        self.count == 0
    }

    /// True if all its keys are in `[low, high)`.
    pub fn lies_in(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        *self.first >= *low && high.is_none_or(|high| *self.last < *high)
    }
}

impl Drop for SegmentBlock {
    fn drop(&mut self) {
        self.block.space().release(Class::Inner, self.memory_bytes());
    }
}

/// The payload of a block of these messages, which are sorted.
pub(crate) fn encode(messages: &[Message<'_>]) -> Vec<u8> {
    let oldest = messages.iter().map(|message| message.ts.0).min().unwrap_or(0);
    let mut out = vec![SEGMENT_FORMAT];
    put_varint(&mut out, messages.len() as u64);
    put_varint(&mut out, oldest);
    let mut before: &[u8] = &[];
    for message in messages {
        let shared = common_prefix_bytes(before, message.key);
        put_varint(&mut out, shared as u64);
        put_bytes(&mut out, &message.key[shared..]);
        put_varint(&mut out, message.ts.0 - oldest);
        match message.op {
            Op::Delete => put_varint(&mut out, 0),
            Op::Put(value) => {
                put_varint(&mut out, value.len() as u64 + 1);
                out.extend_from_slice(value);
            }
        }
        before = message.key;
    }
    out
}

/// A payload in place of messages that are damaged: whoever needs them finds damage, as before.
pub(crate) fn lost() -> Vec<u8> {
    vec![LOST_FORMAT]
}

/// A place in a payload: at a message, or behind the last one.
#[derive(Debug)]
pub(crate) struct Place {
    /// Where what follows begins, and how many messages that are.
    next: usize,
    left: u64,
    /// The lowest timestamp of all.
    oldest: u64,
    key: Vec<u8>,
    ts: Option<u64>,
    /// Of a put, where its value is.
    value: Option<Range<usize>>,
    is_end: bool,
    /// All messages of lower keys lie before.
    passed: Vec<u8>,
}

impl Place {
    /// The first message.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the bytes.
    pub fn first(bytes: &[u8]) -> Result<Self, String> {
        let mut r = Reader::new(bytes);
        match r.u8() {
            Some(SEGMENT_FORMAT) => {}
            Some(LOST_FORMAT) => return Err("segment: could not be read when its node was split".to_owned()),
            _ => return Err("segment: not of a known format".to_owned()),
        }
        let (left, oldest) = (r.varint().ok_or_else(broken)?, r.varint().ok_or_else(broken)?);
        let next = bytes.len() - r.rest().len();
        let (key, passed) = (Vec::new(), Vec::new());
        let mut first = Self { next, left, oldest, key, ts: None, value: None, is_end: false, passed };
        first.advance(bytes)?;
        Ok(first)
    }

    /// The next message.
    ///
    /// # Errors
    /// As [`Place::first`].
    fn advance(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut r = Reader::new(&bytes[self.next..]);
        if self.left == 0 {
            self.is_end = true;
            return if r.is_empty() { Ok(()) } else { Err("segment: bytes behind the last message".to_owned()) };
        }
        let shared = r.length().filter(|shared| *shared <= self.key.len()).ok_or_else(broken)?;
        let rest = r.bytes().ok_or_else(broken)?;
        let ts = r.varint().and_then(|above| self.oldest.checked_add(above)).ok_or_else(broken)?;
        // Keys that begin alike are ordered as their rests are.
        let ascends = match self.key[shared..].cmp(rest) {
            Ordering::Less => true,
            Ordering::Equal => self.ts.is_none_or(|newer| newer > ts),
            Ordering::Greater => false,
        };
        if !ascends || shared + rest.len() > KEY_BYTES_MAX {
            return Err("segment: messages do not ascend".to_owned());
        }
        let length = r.length().ok_or_else(broken)?;
        let starts = bytes.len() - r.rest().len();
        self.value = match length.checked_sub(1) {
            None => None,
            Some(value) => Some(starts..starts + r.take(value).ok_or_else(broken)?.len()),
        };
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
        self.ts = Some(ts);
        self.next = bytes.len() - r.rest().len();
        self.left -= 1;
        Ok(())
    }

    fn message<'a>(&'a self, bytes: &'a [u8]) -> Option<Message<'a>> {
        let ts = CommitTs(self.ts.filter(|_| !self.is_end)?);
        let op = self.value.clone().map_or(Op::Delete, |value| Op::Put(&bytes[value]));
        Some(Message { key: &self.key, ts, op })
    }
}

fn broken() -> String {
    "segment: the bytes do not hold".to_owned()
}

/// Calls `each` for every message of a payload; it says whether to go on.
///
/// # Errors
/// As [`Place::first`].
pub(crate) fn for_each(bytes: &[u8], mut each: impl FnMut(Message<'_>) -> bool) -> Result<(), String> {
    let mut place = Place::first(bytes)?;
    while let Some(message) = place.message(bytes)
        && each(message)
    {
        place.advance(bytes)?;
    }
    Ok(())
}

/// What an inner node should say of the block at `at`, which has this payload.
///
/// # Errors
/// As [`for_each`]; an empty one is none.
fn describe(at: BlockRef, bytes: &[u8]) -> Result<SegmentDescriptor, String> {
    let mut found: Option<SegmentDescriptor> = None;
    for_each(bytes, |message| {
        let found = found.get_or_insert_with(|| SegmentDescriptor {
            block: at,
            first: message.key.to_vec(),
            last: Vec::new(),
            count: 0,
            deletes: 0,
            bytes: bytes.len() as u64,
            newest: CommitTs::ZERO,
        });
        found.last.clear();
        found.last.extend_from_slice(message.key);
        found.count += 1;
        found.deletes += u64::from(message.op.value().is_none());
        found.newest = found.newest.max(message.ts);
        true
    })?;
    found.ok_or_else(|| "segment: no messages".to_owned())
}

/// How a payload differs from what an inner node says of it: expected, found.
pub(crate) fn disagreement(says: &SegmentDescriptor, bytes: &[u8]) -> Option<(String, String)> {
    let found = match describe(says.block, bytes) {
        Ok(found) if found == *says => return None,
        Err(what) => return Some(("a well-formed one".to_owned(), what)),
        Ok(found) => found,
    };
    let show = |of: &SegmentDescriptor| {
        let (keys, newest) = (of.keys(), of.newest);
        format!("{} messages, {} deletes, {} bytes, keys {keys}, newest {newest}", of.count, of.deletes, of.bytes)
    };
    Some((show(says), show(&found)))
}

/// Calls `each` for every version of `key`: its timestamp, and its value unless that is a tombstone.
///
/// # Errors
/// As [`for_each`].
pub(crate) fn versions_of(
    bytes: &[u8],
    key: &[u8],
    mut each: impl FnMut(CommitTs, Option<&[u8]>),
) -> Result<(), String> {
    for_each(bytes, |message| {
        let place = message.key.cmp(key);
        if place.is_eq() {
            each(message.ts, message.op.value());
        }
        place.is_le()
    })
}

/// Adds to `out` the messages for `[low, high)` that are newer than `above`. `place` is where the last call on these bytes ended: of
/// ascending ranges each takes up where the one before left off.
///
/// # Errors
/// As [`Place::first`].
pub(crate) fn select(
    bytes: &[u8],
    place: &mut Option<Place>,
    (low, high): (&[u8], Option<&[u8]>),
    above: CommitTs,
    out: &mut Messages,
) -> Result<(), String> {
    let known = place.take().filter(|place| *place.passed <= *low);
    let mut at = known.map_or_else(|| Place::first(bytes), Ok)?;
    while let Some(message) = at.message(bytes)
        && high.is_none_or(|high| message.key < high)
    {
        if message.key >= low && message.ts > above {
            out.push(message);
        }
        at.advance(bytes)?;
    }
    // Nothing lies above what has no end.
    if let Some(high) = high {
        at.passed.clear();
        at.passed.extend_from_slice(high);
        *place = Some(at);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use vfs::random::Rng;

    use super::*;

    type Seen = (Vec<u8>, CommitTs);

    /// Of ascending ranges each takes up where the one before left off; others begin anew. Each gets what is its own.
    #[test]
    fn ranges_in_any_order_get_their_messages() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let number = |rng: &mut Rng| rng.below(60).to_string().into_bytes();
            let mut all: Vec<Seen> = (0..rng.index(80)).map(|_| (number(&mut rng), CommitTs(rng.below(9)))).collect();
            all.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            all.dedup();
            let messages = all.iter().map(|(key, ts)| Message { key, ts: *ts, op: Op::Put(b"value") });
            let payload = encode(&messages.collect::<Vec<_>>());
            let (mut place, mut low) = (None, Vec::new());
            for _ in 0..30 {
                if rng.chance(0.2) {
                    low = number(&mut rng);
                }
                let high = rng.chance(0.9).then(|| number(&mut rng).max(low.clone()));
                let (above, mut out) = (CommitTs(rng.below(3)), Messages::default());
                select(&payload, &mut place, (&low, high.as_deref()), above, &mut out).unwrap();
                let found: Vec<Seen> = out.iter().map(|message| (message.key.to_vec(), message.ts)).collect();
                let in_range = |m: &&Seen| m.0 >= low && high.as_ref().is_none_or(|high| m.0 < *high) && m.1 > above;
                let wanted: Vec<Seen> = all.iter().filter(in_range).cloned().collect();
                assert_eq!(found, wanted, "seed {seed}: {low:?} to {high:?}");
                low = high.unwrap_or(low);
            }
        }
    }
}
