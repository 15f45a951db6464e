//! A leaf of a memtable: some dozen versions in one part of the memtable's arena.
//!
//! The part has, each array with room for as many entries: heads, entries, and behind them keys and values as they came. When one of them is full all
//! move to a larger part: by an eighth, so that what is charged is what is used, about; by a quarter where the leaf is of one key and has outgrown others.
//!
//! Invariants: entries ascend by key, the newest of a key last, so that what is newest of a key that is written again and again is put behind the
//! others, which stay where they are; neighbours of one key share its bytes; `heads[i]` is the head of the key of `entries[i]`; `live` and `deleted` are those
//! that [`View::count`] finds in all.

use std::ops::Range;

use base::CommitTs;
use base::GcView;
use index::Op;
use store::{Arena, ArenaPart, Charge};

use crate::block::common_prefix_bytes;
use crate::collect::{Around, Fate, Says, judge};
use crate::estimate::Counts;
use crate::signposts::front;

/// Versions of a leaf, at most, unless they are of one key.
const LEAF_ENTRIES_MAX: usize = 128;
/// Bytes of their keys and values, likewise.
const LEAF_BYTES_MAX: usize = 8 << 10;

/// Where a leaf grows.
pub(super) struct Memory<'a> {
    pub arena: &'a Arena,
    /// What was granted for it.
    pub room: &'a mut Charge,
}

/// What an insert changed: versions, keys by what their newest versions say.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Change {
    pub entries: i64,
    pub live: i64,
    pub deleted: i64,
}

/// One version.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    key_at: u32,
    value_at: u32,
    /// `DELETE` for a delete.
    value_bytes: u32,
    key_bytes: u16,
    /// A put of a key of which nothing was alive [A15].
    pub is_fresh: bool,
    pub ts: CommitTs,
}

const DELETE: u32 = u32::MAX;
/// Bytes of an entry, as it lies in memory, and of a head.
pub(super) const ENTRY_BYTES: usize = 24;
const HEAD_BYTES: usize = 4;

impl Entry {
    fn says(&self) -> Says {
        match self.value_bytes {
            DELETE => Says::Delete,
            _ if self.is_fresh => Says::Fresh,
            _ => Says::Put,
        }
    }

    fn bytes(&self) -> [u8; ENTRY_BYTES] {
        let mut out = [0; ENTRY_BYTES];
        out[..4].copy_from_slice(&self.key_at.to_ne_bytes());
        out[4..8].copy_from_slice(&self.value_at.to_ne_bytes());
        out[8..12].copy_from_slice(&self.value_bytes.to_ne_bytes());
        out[12..14].copy_from_slice(&self.key_bytes.to_ne_bytes());
        out[14] = u8::from(self.is_fresh);
        out[16..].copy_from_slice(&self.ts.0.to_ne_bytes());
        out
    }
}

impl From<&[u8; ENTRY_BYTES]> for Entry {
    fn from(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (words, _) = bytes.as_chunks();
        Self {
            key_at: word(0),
            value_at: word(4),
            value_bytes: word(8),
            key_bytes: u16::from_ne_bytes([bytes[12], bytes[13]]),
            is_fresh: bytes[14] != 0,
            ts: CommitTs(u64::from_ne_bytes(words[2])),
        }
    }
}

/// What an insert drops of a key's other versions.
pub(crate) struct Prune<'a> {
    pub view: &'a GcView,
    /// Puts may be fresh. Where none is, no delete is kept for their sake.
    pub single_deletes: bool,
    /// Nothing that is not in this memtable has a version above this.
    pub above: CommitTs,
}

/// The versions of one key, for [`judge`].
struct OfKey<'a> {
    prune: &'a Prune<'a>,
    newest: CommitTs,
}

impl Around for OfKey<'_> {
    fn keeps(&self, ts: CommitTs, newer: CommitTs) -> bool {
        self.prune.view.keeps(ts, Some(newer))
    }

    fn is_apart(&self, older: CommitTs, newer: CommitTs) -> bool {
        !self.prune.single_deletes || (older > self.prune.above && newer < self.newest)
    }

    fn may_have_older(&self, _: CommitTs) -> bool {
        true
    }
}

#[derive(Debug, Default)]
pub(super) struct Leaf {
    part: Option<ArenaPart>,
    entries: usize,
    /// Entries there is room for.
    room: usize,
    /// Bytes of keys and values.
    bytes: usize,
    /// Of those, nobody's.
    unused: usize,
    /// What all entries say: a value or a delete, of each key's newest.
    live: u32,
    deleted: u32,
    /// How many bytes all its keys have in common: as many as the leaf's bounds. 0 in the last leaf, which has no upper one. A head is the four
    /// bytes behind: what a search compares before it looks at a key.
    common: usize,
}

/// What lies in the part.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    heads: &'a [[u8; HEAD_BYTES]],
    entries: &'a [[u8; ENTRY_BYTES]],
    bytes: &'a [u8],
    common: usize,
}

/// Room for what comes.
#[derive(Clone, Copy)]
struct Room {
    entries: usize,
    bytes: usize,
}

impl Room {
    const LITTLE: Self = Self { entries: 4, bytes: 0 };
}

/// Memory to be had for one operation, in bytes, at least.
pub(crate) fn cost(key: &[u8], op: Op<'_>) -> u64 {
    let bytes = key.len() + op.value_bytes() + ENTRY_BYTES + HEAD_BYTES;
    (bytes + bytes / 4 + 16) as u64
}

/// Of a key between the leaf's bounds. Zeros stand behind a shorter one, so equal heads say nothing.
fn head(key: &[u8], common: usize) -> u32 {
    front(key, common)
}

fn position(at: usize) -> u32 {
    u32::try_from(at).ok().filter(|at| *at != DELETE).expect("a leaf is cut long before 4 GiB, and a value ends there")
}

impl<'a> View<'a> {
    pub fn len(self) -> usize {
        self.entries.len()
    }

    fn entry(self, i: usize) -> Entry {
        Entry::from(&self.entries[i])
    }

    fn head(self, i: usize) -> u32 {
        u32::from_ne_bytes(self.heads[i])
    }

    pub fn key(self, entry: &Entry) -> &'a [u8] {
        &self.bytes[entry.key_at as usize..][..usize::from(entry.key_bytes)]
    }

    pub fn value(self, entry: &Entry) -> Option<&'a [u8]> {
        (entry.value_bytes != DELETE).then(|| &self.bytes[entry.value_at as usize..][..entry.value_bytes as usize])
    }

    /// How many entries are below `key` or, of it, `is_before` by their timestamps.
    pub fn place(self, key: &[u8], is_before: impl Fn(CommitTs) -> bool) -> usize {
        let before = |bytes: &[u8; ENTRY_BYTES]| {
            let e = Entry::from(bytes);
            match self.key(&e).cmp(key) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Greater => false,
                std::cmp::Ordering::Equal => is_before(e.ts),
            }
        };
        let head = head(key, self.common);
        // Keys that ascend.
        let last = self.heads.last().map(|last| u32::from_ne_bytes(*last));
        if last.is_none_or(|last| last < head || last == head && self.entries.last().is_some_and(before)) {
            return self.len();
        }
        let from = self.heads.partition_point(|other| u32::from_ne_bytes(*other) < head);
        let alike = self.heads[from..].partition_point(|other| u32::from_ne_bytes(*other) == head);
        from + self.entries[from..from + alike].partition_point(before)
    }

    /// The first entry of a higher key, or of this one and newer than `ts`.
    fn past(self, key: &[u8], ts: CommitTs) -> usize {
        self.place(key, |other| other <= ts)
    }

    fn is_of(self, at: usize, key: &[u8]) -> bool {
        self.head(at) == head(key, self.common) && self.key(&self.entry(at)) == key
    }

    /// The newest version of `key` at or below `ts`.
    pub fn find(self, key: &[u8], ts: CommitTs) -> Option<Entry> {
        let at = self.past(key, ts).checked_sub(1)?;
        self.is_of(at, key).then(|| self.entry(at))
    }

    /// The entries of a range that cuts no key, the newest of a key first, until `each` has enough.
    pub fn newest_first(self, range: Range<usize>, mut each: impl FnMut(Entry) -> bool) {
        let mut first = range.start;
        while first < range.end {
            let key = self.key(&self.entry(first));
            let versions = (first..range.end).take_while(|i| self.key(&self.entry(*i)) == key).count();
            if !(first..first + versions).rev().all(|i| each(self.entry(i))) {
                return;
            }
            first += versions;
        }
    }

    /// What the entries of a range say, which cuts no key.
    pub fn count(self, range: Range<usize>) -> Counts {
        let mut counts = Counts::new(0, 0, range.len() as u64);
        let mut entries = self.entries[range].iter().map(Entry::from).peekable();
        while let Some(entry) = entries.next() {
            let is_delete = entry.value_bytes == DELETE;
            // Neighbours of one key share its bytes.
            let goes_on = |next: &Entry| (next.key_at, next.key_bytes) == (entry.key_at, entry.key_bytes);
            if !entries.peek().is_some_and(goes_on) {
                if is_delete { counts.deleted += 1 } else { counts.live += 1 }
            }
        }
        counts
    }
}

impl Leaf {
    /// An empty one with room for so many entries, and bytes of keys and values.
    fn with_room(entries: usize, bytes: usize, common: usize, memory: &mut Memory<'_>) -> Self {
        let each = HEAD_BYTES + ENTRY_BYTES;
        let wanted = entries * each + bytes;
        let part = memory.arena.take(wanted, memory.room);
        // What the part has more is for both.
        let room = entries + (part.len() - wanted) / (wanted / entries);
        Self { part: Some(part), room, common, ..Self::default() }
    }

    pub fn view(&self) -> View<'_> {
        let Some(part) = &self.part else { return View { heads: &[], entries: &[], bytes: &[], common: self.common } };
        let (heads, rest) = part.split_at(self.room * HEAD_BYTES);
        let (entries, bytes) = rest.split_at(self.room * ENTRY_BYTES);
        View {
            heads: &heads.as_chunks().0[..self.entries],
            entries: &entries.as_chunks().0[..self.entries],
            bytes,
            common: self.common,
        }
    }

    fn parts(&mut self) -> (&mut [u8], &mut [u8], &mut [u8]) {
        let Some(part) = &mut self.part else { return (&mut [], &mut [], &mut []) };
        let (heads, rest) = part.split_at_mut(self.room * HEAD_BYTES);
        let (entries, bytes) = rest.split_at_mut(self.room * ENTRY_BYTES);
        (heads, entries, bytes)
    }

    fn set(&mut self, i: usize, entry: Entry, head: u32) {
        let (heads, entries, _) = self.parts();
        heads[i * HEAD_BYTES..][..HEAD_BYTES].copy_from_slice(&head.to_ne_bytes());
        entries[i * ENTRY_BYTES..][..ENTRY_BYTES].copy_from_slice(&entry.bytes());
    }

    /// Moves the entries from `from` on to `to`, and those behind them along; there is room.
    fn shift(&mut self, from: usize, to: usize) {
        let past = self.entries;
        let (heads, entries, _) = self.parts();
        heads.copy_within(from * HEAD_BYTES..past * HEAD_BYTES, to * HEAD_BYTES);
        entries.copy_within(from * ENTRY_BYTES..past * ENTRY_BYTES, to * ENTRY_BYTES);
        self.entries = past - from + to;
    }

    /// Appends bytes of a key or a value; there is room.
    fn append(&mut self, new: &[u8]) -> u32 {
        let at = self.bytes;
        self.parts().2[at..at + new.len()].copy_from_slice(new);
        self.bytes += new.len();
        position(at)
    }

    /// Makes room for another entry and so many bytes.
    fn make_room(&mut self, more: usize, memory: &mut Memory<'_>) {
        let capacity = self.part.as_ref().map_or(0, |part| part.len() - self.room * (HEAD_BYTES + ENTRY_BYTES));
        if self.entries < self.room && more <= capacity - self.bytes {
            return;
        }
        // How much of one is moved again and again is bounded: it may be of one key, and grow to any size.
        let is_large = self.entries > LEAF_ENTRIES_MAX || self.bytes > LEAF_BYTES_MAX;
        let share = if is_large { 4 } else { 8 };
        let bytes = self.bytes + more.max(self.bytes / share).max(64);
        let mut to = Self::with_room(self.entries + (self.entries / share).max(4), bytes, self.common, memory);
        let (of, all) = (self.view(), self.bytes);
        let (heads, entries, rest) = to.parts();
        heads[..of.len() * HEAD_BYTES].copy_from_slice(of.heads.as_flattened());
        entries[..of.len() * ENTRY_BYTES].copy_from_slice(of.entries.as_flattened());
        rest[..all].copy_from_slice(&of.bytes[..all]);
        (to.entries, to.bytes, to.unused) = (self.entries, self.bytes, self.unused);
        (to.live, to.deleted) = (self.live, self.deleted);
        self.replace(to, memory);
    }

    /// Gives its part back and becomes another.
    pub fn replace(&mut self, by: Self, memory: &Memory<'_>) {
        let old = std::mem::replace(self, by);
        old.part.into_iter().for_each(|part| memory.arena.give_back(part));
    }

    /// Adds a version; one that is there changes nothing.
    pub fn insert(
        &mut self,
        key: &[u8],
        ts: CommitTs,
        (op, is_fresh): (Op<'_>, bool),
        prune: &Prune<'_>,
        memory: &mut Memory<'_>,
    ) -> Change {
        let of = self.view();
        let at = of.past(key, ts);
        let here = at.checked_sub(1).filter(|before| of.is_of(*before, key)).map(|before| of.entry(before));
        if here.is_some_and(|e| e.ts == ts) {
            return Change::default();
        }
        let newer = (at < of.len() && of.is_of(at, key)).then(|| of.entry(at));
        let mut change = Change { entries: 1, ..Change::default() };
        if newer.is_none() {
            let mut count = |is_delete: bool, n: i64| if is_delete { change.deleted += n } else { change.live += n };
            count(op.value().is_none(), 1);
            if let Some(before) = here {
                count(before.value_bytes == DELETE, -1);
            }
        }
        // A neighbour of the same key has its bytes.
        let known = here.or(newer).map(|e| e.key_at);
        self.make_room(if known.is_some() { 0 } else { key.len() } + op.value_bytes(), memory);
        let key_at = known.unwrap_or_else(|| self.append(key));
        let (value_at, value_bytes) = match op {
            Op::Put(value) => (self.append(value), position(value.len())),
            Op::Delete => (position(self.bytes), DELETE),
        };
        let key_bytes = u16::try_from(key.len()).expect("the engine limits keys to 48 KiB");
        self.shift(at, at + 1);
        let entry = Entry { key_at, value_at, value_bytes, key_bytes, is_fresh, ts };
        self.set(at, entry, head(key, self.common));
        let sum = |of: u32, n: i64| of.checked_add_signed(n as i32).expect("a leaf has the keys that it loses");
        (self.live, self.deleted) = (sum(self.live, change.live), sum(self.deleted, change.deleted));
        change.entries -= self.prune(at, key, prune, memory);
        change
    }

    /// Drops the versions of the key at `at` that nobody may see. Returns how many.
    fn prune(&mut self, at: usize, key: &[u8], prune: &Prune<'_>, memory: &mut Memory<'_>) -> i64 {
        if prune.view.floor() == CommitTs::ZERO {
            return 0;
        }
        let of = self.view();
        let first = (0..at).rev().find(|i| !of.is_of(*i, key)).map_or(0, |i| i + 1);
        let past = (at..of.len()).find(|i| !of.is_of(*i, key)).unwrap_or(of.len());
        if past - first == 1 {
            return 0;
        }
        let around = OfKey { prune, newest: of.entry(past - 1).ts };
        if (first + 1..past).all(|i| around.keeps(of.entry(i - 1).ts, of.entry(i).ts)) {
            return 0;
        }
        let mut fates = Vec::new();
        // Of puts alone, as of a row that is changed again and again, each goes that nobody sees.
        let are_puts = (first..past).all(|i| of.entry(i).value_bytes != DELETE);
        if !are_puts {
            let versions: Vec<_> = (first..past).rev().map(|i| of.entry(i)).map(|e| (e.ts, e.says())).collect();
            judge(&around, &versions, &mut fates);
        }
        let (mut kept, mut unused, mut newer) = (past, 0, None);
        let head = head(key, self.common);
        for i in (first..past).rev() {
            let mut entry = self.view().entry(i);
            let seen = if prune.view.keeps(entry.ts, newer) { Fate::Stays } else { Fate::Goes };
            let fate = if are_puts { seen } else { fates[past - 1 - i] };
            newer = Some(entry.ts);
            if fate != Fate::Goes {
                kept -= 1;
                entry.is_fresh &= fate == Fate::Stays;
                self.set(kept, entry, head);
            } else if entry.value_bytes != DELETE {
                unused += entry.value_bytes as usize;
            }
        }
        self.shift(kept, first);
        self.unused += unused;
        if self.unused > self.bytes / 2 && self.unused > 512 {
            let copy = self.copy(0..self.entries, self.common, Room::LITTLE, memory);
            self.replace(copy, memory);
        }
        (kept - first) as i64
    }

    /// The entries of a range, of whose keys so many bytes are the same, with room for some more.
    fn copy(&self, range: Range<usize>, common: usize, more: Room, memory: &mut Memory<'_>) -> Self {
        let of = self.view();
        let entries = || of.entries[range.clone()].iter().map(Entry::from);
        let (mut bytes, mut known) = (more.bytes, None);
        for entry in entries() {
            bytes += of.value(&entry).map_or(0, <[u8]>::len);
            // Neighbours of one key share its bytes.
            let key = of.key(&entry);
            bytes += if known == Some(key) { 0 } else { key.len() };
            known = Some(key);
        }
        let mut to = Self::with_room(range.len() + more.entries, bytes, common, memory);
        let mut last: Option<(&[u8], u32)> = None;
        for entry in entries() {
            let key = of.key(&entry);
            let known = last.filter(|last| last.0 == key).map(|last| last.1);
            let key_at = known.unwrap_or_else(|| to.append(key));
            last = Some((key, key_at));
            let value_at = to.append(of.value(&entry).unwrap_or_default());
            to.entries += 1;
            to.set(to.entries - 1, Entry { key_at, value_at, ..entry }, head(key, common));
        }
        let counts = to.view().count(0..to.entries);
        (to.live, to.deleted) = (counts.live as u32, counts.deleted as u32);
        to
    }

    /// What all its entries say.
    pub fn counts(&self) -> Counts {
        Counts::new(self.live.into(), self.deleted.into(), self.entries as u64)
    }

    /// Of one key it never is: there is nowhere to cut it.
    pub fn is_full(&self) -> bool {
        let is_large = self.entries > LEAF_ENTRIES_MAX || self.bytes - self.unused > LEAF_BYTES_MAX;
        let of = self.view();
        is_large && of.key(&of.entry(0)) != of.key(&of.entry(of.len() - 1))
    }

    /// Cuts a full leaf of the keys from `low` on and below `high` in two; returns the lowest key of the second.
    pub fn split(&mut self, low: &[u8], high: Option<&[u8]>, memory: &mut Memory<'_>) -> Option<(Box<[u8]>, Self)> {
        let at = self.is_full().then(|| self.cut(high.is_none())).flatten()?;
        let of = self.view();
        let separator: Box<[u8]> = of.key(&of.entry(at)).into();
        let left = self.copy(0..at, common_prefix_bytes(low, &separator), Room::LITTLE, memory);
        let common = high.map_or(0, |high| common_prefix_bytes(&separator, high));
        // Keys that ascend come into the last leaf: it will be as large as this one.
        let room =
            if high.is_some() { Room::LITTLE } else { Room { entries: at, bytes: left.bytes.min(LEAF_BYTES_MAX) } };
        let right = self.copy(at..self.entries, common, room, memory);
        self.replace(left, memory);
        Some((separator, right))
    }

    /// Where to cut it, between two keys; none if it is of one key. At the end of the map it is left almost full.
    fn cut(&self, is_last: bool) -> Option<usize> {
        let of = self.view();
        let wanted = if is_last { of.len() - 1 } else { of.len() / 2 };
        let is_cut = |at: &usize| of.key(&of.entry(*at - 1)) != of.key(&of.entry(*at));
        (1..=wanted).rev().find(is_cut).or_else(|| (wanted + 1..of.len()).find(is_cut))
    }
}
