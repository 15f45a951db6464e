//! The slotted page under a leaf.
//!
//! One buffer of `node_bytes`. Slots of eight bytes grow from the front, in key order; entries grow from the
//! back, in no order. A slot is one little-endian integer, most significant part first:
//!
//! ```text
//! head: 32 | offset: 16 | older: 1 | kind: 2 | key length: 13
//! ```
//!
//! and an entry is `key suffix | timestamp: 8 | value length: 2 | value`. The versions of one key are
//! neighbours, newest first. Only the first one has the key bytes; the others carry the `older` flag and key
//! length 0, and repeat the head so that a search by heads needs no walk. An offset always names an existing
//! byte, so 16 bits are enough for a page of 64 KiB. A suffix of 8191 bytes or more has that number as its length, and
//! its own in two bytes before it: a page has room for eight of them at most.
//!
//! Invariants:
//! 1. `8 * count <= heap <= bytes.len()`; slots end at `8 * count`, entries start at `heap`.
//! 2. Live entries do not overlap; `bytes.len() - heap` = bytes of live entries + `garbage`.
//! 3. Slot 0 is not `older`; heads ascend over the slots.
//!
//! The page knows neither fences nor visibility. Why bytes and not `Vec<Entry>`: one allocation of a known
//! size for each leaf, and a shift of eight bytes for each slot above an insert.

use std::cmp::Ordering;
use std::ops::Range;

use base::CommitTs;
use index::Piece;
use store::{Frame, prefetch};

use super::key::head;

/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = 8;
/// Bytes of an entry besides key suffix and value.
pub(super) const HEADER_BYTES: usize = 10;
/// Bytes of the value of an entry that names something beside the page.
pub(super) const SIDE_BYTES: usize = 4;

const KEY_BITS: u32 = 13;
const KEY_MASK: u64 = (1 << KEY_BITS) - 1;
/// Suffixes from this on have their length before them.
const LONG: usize = KEY_MASK as usize;
/// Bytes of that length.
const LONG_BYTES: usize = 2;
const KIND_SHIFT: u32 = 13;
const OLDER: u64 = 1 << 15;
const OFFSET_SHIFT: u32 = 16;
const HEAD_SHIFT: u32 = 32;

const _: () = assert!(KEY_BITS <= KIND_SHIFT && super::NODE_BYTES_MAX / 4 * 3 <= u16::MAX as usize);
const _: () = assert!(super::NODE_BYTES_MAX <= 1 << (HEAD_SHIFT - OFFSET_SHIFT));
const _: () = assert!(super::NODE_BYTES_MAX / 4 <= u16::MAX as usize);

/// What an entry's value means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A put; the value is the value.
    Put = 0,
    /// A put; the value is the number of a large value.
    Overflow = 1,
    /// A delete; no value.
    Tombstone = 2,
    /// Not a version: the value is the number of the chain that has the key's oldest versions.
    Chain = 3,
}

impl Kind {
    /// From two bits.
    pub(super) fn from_bits(bits: u64) -> Self {
        match bits & 3 {
            0 => Kind::Put,
            1 => Kind::Overflow,
            2 => Kind::Tombstone,
            _ => Kind::Chain,
        }
    }
}

/// One slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot(u64);

impl Slot {
    #[inline]
    pub(super) fn from_bytes(bytes: [u8; SLOT_BYTES]) -> Self {
        Slot(u64::from_le_bytes(bytes))
    }

    fn new(head: u32, offset: usize, kind: Kind, older: bool, key_bytes: usize) -> Self {
        debug_assert!(offset < 1 << 16);
        Slot(
            u64::from(head) << HEAD_SHIFT
                | (offset as u64) << OFFSET_SHIFT
                | if older { OLDER } else { 0 }
                | (kind as u64) << KIND_SHIFT
                | key_bytes.min(LONG) as u64,
        )
    }
    #[inline]
    pub(super) fn head(self) -> u32 {
        (self.0 >> HEAD_SHIFT) as u32
    }
    #[inline]
    pub(super) fn offset(self) -> usize {
        (self.0 >> OFFSET_SHIFT) as u16 as usize
    }
    #[inline]
    pub(super) fn is_older(self) -> bool {
        self.0 & OLDER != 0
    }
    #[inline]
    pub(super) fn kind(self) -> Kind {
        Kind::from_bits(self.0 >> KIND_SHIFT)
    }
    /// Bytes of the suffix if they are fewer than `LONG`.
    #[inline]
    fn short_key_bytes(self) -> usize {
        (self.0 & KEY_MASK) as usize
    }
    /// The same slot of an entry that lies elsewhere.
    fn moved(self, offset: usize) -> Self {
        debug_assert!(offset < 1 << 16);
        Slot(self.0 & !(0xffff << OFFSET_SHIFT) | (offset as u64) << OFFSET_SHIFT)
    }
    /// A key's newest version, and a put whose value is in the page.
    #[inline]
    pub(super) fn is_newest_put(self) -> bool {
        const { assert!(Kind::Put as u64 == 0) };
        self.0 & (OLDER | 3 << KIND_SHIFT) == 0
    }
}

/// An entry to be placed.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewEntry<'a> {
    pub kind: Kind,
    /// An older version of the key to its left; `suffix` is then used for the head only.
    pub older: bool,
    /// The key suffix, in two pieces to save a copy when a prefix gets shorter.
    pub front: &'a [u8],
    pub suffix: &'a [u8],
    pub ts: CommitTs,
    pub value: &'a [u8],
}

/// The page.
#[derive(Debug, Clone)]
pub(super) struct Page {
    bytes: Frame,
    count: usize,
    heap: usize,
    garbage: usize,
}

impl Page {
    /// An empty page.
    pub(super) fn new(frame: Frame) -> Self {
        let node_bytes = frame.len();
        assert!((super::NODE_BYTES_MIN..=super::NODE_BYTES_MAX).contains(&node_bytes), "node size is checked at open");
        Page { bytes: frame, count: 0, heap: node_bytes, garbage: 0 }
    }

    /// A frame for a page beside this one.
    pub(super) fn another_frame(&self) -> Frame {
        self.bytes.another()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn garbage(&self) -> usize {
        self.garbage
    }

    /// Bytes of slots and live entries.
    pub(super) fn used_bytes(&self) -> usize {
        self.bytes.len() - self.heap - self.garbage + self.count * SLOT_BYTES
    }

    /// Bytes free after a compaction.
    pub(super) fn free_bytes(&self) -> usize {
        self.bytes.len() - self.used_bytes()
    }

    #[inline]
    pub(super) fn slots(&self) -> &[[u8; SLOT_BYTES]] {
        &self.bytes.as_chunks::<SLOT_BYTES>().0[..self.count]
    }

    #[inline]
    pub(super) fn slot(&self, i: usize) -> Slot {
        Slot::from_bytes(self.slots()[i])
    }

    fn set_slot(&mut self, i: usize, slot: Slot) {
        self.bytes.as_chunks_mut::<SLOT_BYTES>().0[i] = slot.0.to_le_bytes();
    }

    /// Asks for where the next entry goes.
    pub(super) fn prefetch_heap(&self) {
        prefetch(&self.bytes[self.heap - 1]);
    }

    /// Asks for an entry.
    pub(super) fn prefetch_entry(&self, slot: Slot) {
        prefetch(&self.bytes[slot.offset()]);
    }

    /// Where an entry's key suffix is.
    #[inline]
    fn suffix_span(&self, slot: Slot) -> Range<usize> {
        let (at, bytes) = (slot.offset(), slot.short_key_bytes());
        if bytes < LONG { at..at + bytes } else { self.long_suffix_span(at) }
    }

    #[cold]
    fn long_suffix_span(&self, at: usize) -> Range<usize> {
        let length = self.bytes[at..].first_chunk().expect("a long suffix has its length before it");
        let at = at + LONG_BYTES;
        at..at + usize::from(u16::from_le_bytes(*length))
    }

    /// Bytes of an entry before its timestamp.
    #[inline]
    fn key_bytes(&self, slot: Slot) -> usize {
        self.suffix_span(slot).end - slot.offset()
    }

    /// The key suffix of a key's first slot (empty for older versions).
    #[inline]
    pub(super) fn suffix(&self, slot: Slot) -> &[u8] {
        &self.bytes[self.suffix_span(slot)]
    }

    #[inline]
    pub(super) fn ts(&self, slot: Slot) -> CommitTs {
        let at = self.suffix_span(slot).end;
        CommitTs(u64::from_le_bytes(*self.bytes[at..].first_chunk().expect("an entry has a timestamp")))
    }

    #[inline]
    pub(super) fn value(&self, slot: Slot) -> &[u8] {
        let at = self.suffix_span(slot).end + 8;
        let (length, rest) = self.bytes[at..].split_first_chunk::<2>().expect("an entry has a value length");
        &rest[..u16::from_le_bytes(*length) as usize]
    }

    pub(super) fn value_mut(&mut self, slot: Slot) -> &mut [u8] {
        let (at, length) = (self.suffix_span(slot).end + HEADER_BYTES, self.value(slot).len());
        &mut self.bytes[at..at + length]
    }

    /// Timestamp and value.
    #[inline]
    pub(super) fn version(&self, slot: Slot) -> (CommitTs, &[u8]) {
        let (_, ts, value) = self.entry(slot);
        (ts, value)
    }

    /// Key suffix (empty for older versions), timestamp and value.
    #[inline]
    pub(super) fn entry(&self, slot: Slot) -> (&[u8], CommitTs, &[u8]) {
        let span = self.suffix_span(slot);
        let (suffix, rest) = self.bytes[span.start..].split_at(span.len());
        let (ts, rest) = rest.split_first_chunk::<8>().expect("an entry has a timestamp");
        let (length, rest) = rest.split_first_chunk::<2>().expect("an entry has a value length");
        (suffix, CommitTs(u64::from_le_bytes(*ts)), &rest[..u16::from_le_bytes(*length) as usize])
    }

    /// The timestamp, and key suffix and value with what is between them.
    #[inline]
    pub(super) fn piece(&self, slot: Slot) -> (CommitTs, Piece<'_>) {
        let span = self.suffix_span(slot);
        let (bytes, key_bytes) = (&self.bytes[span.start..], span.len());
        let (ts, rest) = bytes[key_bytes..].split_first_chunk::<8>().expect("an entry has a timestamp");
        let length = rest.first_chunk::<2>().expect("an entry has a value length");
        let value_bytes = usize::from(u16::from_le_bytes(*length));
        (CommitTs(u64::from_le_bytes(*ts)), Piece { bytes, key_bytes, gap: HEADER_BYTES as u8, value_bytes })
    }

    /// The number in an entry that names something beside the page.
    pub(super) fn side_id(&self, slot: Slot) -> u32 {
        debug_assert!(matches!(slot.kind(), Kind::Overflow | Kind::Chain));
        side_id(self.value(slot))
    }

    /// Bytes that the entry and its slot use.
    #[inline]
    pub(super) fn entry_bytes(&self, slot: Slot) -> usize {
        SLOT_BYTES + self.key_bytes(slot) + self.version_bytes(slot)
    }

    fn version_bytes(&self, slot: Slot) -> usize {
        HEADER_BYTES + self.value(slot).len()
    }

    /// Bytes of the lengths that suffixes get which become long with this many bytes more.
    pub(super) fn newly_long_bytes(&self, more: usize) -> usize {
        let slots = self.slots().iter().map(|slot| Slot::from_bytes(*slot));
        let becomes_long =
            |slot: &Slot| !slot.is_older() && (LONG.saturating_sub(more)..LONG).contains(&slot.short_key_bytes());
        if more == 0 { 0 } else { slots.filter(becomes_long).count() * LONG_BYTES }
    }

    /// First slot of the key that slot `i` belongs to.
    #[inline]
    pub(super) fn group_start(&self, mut i: usize) -> usize {
        let slots = self.slots();
        while Slot::from_bytes(slots[i]).is_older() {
            i -= 1;
        }
        i
    }

    /// Slot past the key that slot `i` belongs to.
    #[inline]
    pub(super) fn group_end(&self, i: usize) -> usize {
        let slots = self.slots();
        let mut end = i + 1;
        while end < slots.len() && Slot::from_bytes(slots[end]).is_older() {
            end += 1;
        }
        end
    }

    /// Order of the key at slot `i`, a key's first slot, against `suffix`.
    #[inline]
    pub(super) fn compare(&self, i: usize, suffix: &[u8]) -> Ordering {
        let slot = self.slot(i);
        slot.head().cmp(&head(suffix)).then_with(|| self.suffix(slot).cmp(suffix))
    }

    // ---- change --------------------------------------------------------------------------------------------

    /// Makes `bytes` (slots included) contiguous, compacting if that helps. False: not even then.
    pub(super) fn reserve(&mut self, bytes: usize) -> bool {
        if self.heap - self.count * SLOT_BYTES >= bytes {
            return true;
        }
        if self.free_bytes() < bytes {
            return false;
        }
        self.compact();
        true
    }

    /// Moves all entries together, in slot order.
    #[cold]
    pub(super) fn compact(&mut self) {
        let mut bytes = self.bytes.another();
        let mut heap = bytes.len();
        for i in 0..self.count {
            let slot = self.slot(i);
            let n = self.key_bytes(slot) + self.version_bytes(slot);
            heap -= n;
            bytes[heap..heap + n].copy_from_slice(&self.bytes[slot.offset()..slot.offset() + n]);
            bytes.as_chunks_mut::<SLOT_BYTES>().0[i] = slot.moved(heap).0.to_le_bytes();
        }
        self.bytes = bytes;
        self.heap = heap;
        self.garbage = 0;
    }

    fn open_slot(&mut self, i: usize, slot: Slot) {
        self.bytes.copy_within(i * SLOT_BYTES..self.count * SLOT_BYTES, (i + 1) * SLOT_BYTES);
        self.count += 1;
        self.set_slot(i, slot);
    }

    /// Places an entry at slot `i`. Room was reserved.
    pub(super) fn insert(&mut self, i: usize, e: &NewEntry<'_>) {
        let suffix_bytes = if e.older { 0 } else { e.front.len() + e.suffix.len() };
        let key_bytes = key_bytes_of(suffix_bytes);
        let n = key_bytes + HEADER_BYTES + e.value.len();
        debug_assert!(self.heap - self.count * SLOT_BYTES >= n + SLOT_BYTES, "room was reserved");
        self.heap -= n;
        let (mut key, version) = self.bytes[self.heap..self.heap + n].split_at_mut(key_bytes);
        if key_bytes > suffix_bytes {
            let (length, rest) = key.split_at_mut(LONG_BYTES);
            length.copy_from_slice(&(suffix_bytes as u16).to_le_bytes());
            key = rest;
        }
        if !e.older {
            let (front, rest) = key.split_at_mut(e.front.len());
            front.copy_from_slice(e.front);
            rest.copy_from_slice(e.suffix);
        }
        write_version(version, e.ts, e.value);
        let head = if e.front.is_empty() { head(e.suffix) } else { head_of_pieces(e.front, e.suffix) };
        self.open_slot(i, Slot::new(head, self.heap, e.kind, e.older, suffix_bytes));
    }

    /// Appends an entry after all others if there is room.
    #[must_use]
    pub(super) fn push(&mut self, e: &NewEntry<'_>) -> bool {
        let key_bytes = if e.older { 0 } else { key_bytes_of(e.front.len() + e.suffix.len()) };
        if !self.reserve(SLOT_BYTES + key_bytes + HEADER_BYTES + e.value.len()) {
            return false;
        }
        self.insert(self.count, e);
        true
    }

    /// Removes slot `i`. The caller keeps the rule that a key's first slot has the key bytes.
    pub(super) fn remove(&mut self, i: usize) {
        let slot = self.slot(i);
        self.garbage += self.key_bytes(slot) + self.version_bytes(slot);
        self.bytes.copy_within((i + 1) * SLOT_BYTES..self.count * SLOT_BYTES, i * SLOT_BYTES);
        self.count -= 1;
        if self.count == 0 {
            self.heap = self.bytes.len();
            self.garbage = 0;
        }
    }

    /// Turns a key's first slot into an older version: its key bytes become garbage. The caller puts a new
    /// first slot before it at once.
    pub(super) fn demote(&mut self, i: usize) {
        let slot = self.slot(i);
        let key_bytes = self.key_bytes(slot);
        self.garbage += key_bytes;
        self.set_slot(i, Slot::new(slot.head(), slot.offset() + key_bytes, slot.kind(), true, 0));
    }

    /// Puts a newer version before slot `i`, a key's first slot whose value is as long as `value`: the new version
    /// takes over the place beside the key bytes, the old one moves out, to the place of slot `recycled` (which
    /// is removed; same length, same key) or to fresh room (reserved).
    pub(super) fn supersede(&mut self, i: usize, kind: Kind, ts: CommitTs, value: &[u8], recycled: Option<usize>) {
        let slot = self.slot(i);
        let n = self.version_bytes(slot);
        debug_assert_eq!(n, HEADER_BYTES + value.len());
        let at = self.suffix_span(slot).end;
        let to = match recycled {
            Some(dropped) => {
                let to = self.slot(dropped).offset();
                // Slots i + 1 ..= dropped move up by one; the old version becomes slot i + 1.
                self.bytes.copy_within((i + 1) * SLOT_BYTES..dropped * SLOT_BYTES, (i + 2) * SLOT_BYTES);
                to
            }
            None => {
                self.heap -= n;
                self.heap
            }
        };
        self.bytes.copy_within(at..at + n, to);
        write_version(&mut self.bytes[at..at + n], ts, value);
        let older = Slot::new(slot.head(), to, slot.kind(), true, 0);
        match recycled {
            Some(_) => self.set_slot(i + 1, older),
            None => self.open_slot(i + 1, older),
        }
        self.set_slot(i, Slot::new(slot.head(), slot.offset(), kind, false, slot.short_key_bytes()));
    }

    /// Appends slot `i` of `from` to this page with another prefix: `front` is put before the key suffix,
    /// `strip` bytes are taken off it. `value` replaces the value if given.
    #[must_use]
    pub(super) fn push_from(
        &mut self,
        from: &Page,
        i: usize,
        front: &[u8],
        strip: usize,
        key_suffix: &[u8],
        value: Option<&[u8]>,
    ) -> bool {
        let slot = from.slot(i);
        self.push(&NewEntry {
            kind: slot.kind(),
            older: slot.is_older(),
            front,
            suffix: &key_suffix[strip..],
            ts: from.ts(slot),
            value: value.unwrap_or_else(|| from.value(slot)),
        })
    }

    /// Recomputes what can be recomputed: invariants 1 to 3.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.count * SLOT_BYTES > self.heap || self.heap > self.bytes.len() {
            return Err(format!("page: {} slots, entries from {} of {}", self.count, self.heap, self.bytes.len()));
        }
        let mut spans = Vec::with_capacity(self.count);
        let mut key: &[u8] = &[];
        let mut last_head = 0;
        for i in 0..self.count {
            let slot = self.slot(i);
            if !slot.is_older() {
                key = self.suffix(slot);
            } else if i == 0 || slot.short_key_bytes() != 0 {
                return Err(format!("page: slot {i} is an older version of nothing"));
            }
            if slot.head() != head(key) || slot.head() < last_head {
                return Err(format!("page: head of slot {i}"));
            }
            last_head = slot.head();
            spans.push((slot.offset(), slot.offset() + self.key_bytes(slot) + self.version_bytes(slot)));
        }
        spans.sort_unstable();
        let mut at = self.heap;
        let mut live = 0;
        for (start, end) in spans {
            if start < at {
                return Err(format!("page: entry at {start} overlaps what ends at {at}"));
            }
            live += end - start;
            at = end;
        }
        if live + self.garbage != self.bytes.len() - self.heap {
            return Err(format!(
                "page: {live} live and {} garbage bytes of {}",
                self.garbage,
                self.bytes.len() - self.heap
            ));
        }
        Ok(())
    }
}

/// Bytes of an entry before its timestamp, if its key has a suffix of this many.
#[inline]
pub(super) const fn key_bytes_of(suffix_bytes: usize) -> usize {
    if suffix_bytes < LONG { suffix_bytes } else { LONG_BYTES + suffix_bytes }
}

/// Bytes that the lengths of long suffixes take at most in a page, which may become long when a prefix gets shorter.
pub(super) const fn long_bytes_max(node_bytes: usize) -> usize {
    node_bytes / LONG * LONG_BYTES
}

fn write_version(place: &mut [u8], ts: CommitTs, value: &[u8]) {
    let length = u16::try_from(value.len()).expect("longer values are kept beside the page");
    place[..8].copy_from_slice(&ts.0.to_le_bytes());
    place[8..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
    place[HEADER_BYTES..].copy_from_slice(value);
}

/// The number in the value of an entry that names something beside the page.
pub(super) fn side_id(value: &[u8]) -> u32 {
    u32::from_le_bytes(*value.first_chunk().expect("the value of such an entry is a number"))
}

fn head_of_pieces(front: &[u8], suffix: &[u8]) -> u32 {
    let mut four = [0; 4];
    for (to, from) in four.iter_mut().zip(front.iter().chain(suffix)) {
        *to = *from;
    }
    u32::from_be_bytes(four)
}
