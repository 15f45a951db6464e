//! What was applied and is in no run yet: an ordered map of versions in memory.
//!
//! Leaves of a few dozen versions, each under a latch of its own, below one map from their lowest keys. A writer holds the map's latch
//! shared and one leaf's; only a split takes the map's alone, for the time it takes to cut one leaf. No latch is held over I/O.
//!
//! A superseded version that nobody may see any more goes when its key is written next, so that a hot row stays small. The newest stays whatever it is:
//! what a tombstone hides lies in runs.

use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use base::{CommitTs, GcView};
use index::Op;
use store::Charge;
use vfs::sync::{Mutex, RwLock};

use crate::block::common_prefix_bytes;
use crate::collect::{Around, Fate, Says, judge};
use crate::signposts::front;
use directory::{Directory, Place};

mod directory;

/// Versions of a leaf, at most, unless they are of one key.
const LEAF_ENTRIES_MAX: usize = 128;
/// Bytes of their keys and values, likewise.
const LEAF_BYTES_MAX: usize = 16 << 10;
/// What a leaf takes beside its entries and bytes, about, with its place in the map.
const LEAF_OVERHEAD_BYTES: usize = 256;

/// A memtable. Once it is sealed nobody writes to it.
#[derive(Debug)]
pub(crate) struct Memtable {
    leaves: RwLock<Directory>,
    /// Bytes of memory. Relaxed, as are the next two, which are exact once nobody writes: who seals holds the list's latch alone.
    memory: AtomicI64,
    oldest: AtomicU64,
    newest: AtomicU64,
    /// Relaxed: statistics.
    entries: AtomicI64,
    live: AtomicI64,
    deleted: AtomicI64,
    charge: Mutex<Charge>,
}

/// What an insert changed: versions, keys by what their newest versions say.
#[derive(Debug, Clone, Copy, Default)]
struct Change {
    entries: i64,
    live: i64,
    deleted: i64,
}

type Latched = Arc<RwLock<Leaf>>;

/// One version.
#[derive(Debug, Clone, Copy)]
struct Entry {
    key_at: u32,
    value_at: u32,
    /// `DELETE` for a delete.
    value_bytes: u32,
    key_bytes: u16,
    /// A put of a key of which nothing was alive [A15].
    is_fresh: bool,
    ts: CommitTs,
}

const DELETE: u32 = u32::MAX;

impl Entry {
    fn says(&self) -> Says {
        match self.value_bytes {
            DELETE => Says::Delete,
            _ if self.is_fresh => Says::Fresh,
            _ => Says::Put,
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

/// Ascending by key, the newest of a key last: so what is newest of a key that is written again and again is put behind the others, which
/// stay where they are.
#[derive(Debug, Default)]
pub(crate) struct Leaf {
    entries: Vec<Entry>,
    /// Of each entry's key the four bytes behind those that all keys of the leaf have in common: what a search compares before it looks
    /// at a key.
    heads: Vec<u32>,
    /// How many bytes they have in common: as many as the leaf's bounds. 0 in the last leaf, which has no upper one.
    common: usize,
    bytes: Vec<u8>,
    /// Of `bytes`, nobody's.
    unused: usize,
}

/// Memory to be had for one operation, in bytes, at least.
pub(crate) fn cost(key: &[u8], op: Op<'_>) -> u64 {
    let bytes = key.len() + op.value_bytes() + size_of::<Entry>();
    (bytes + bytes / 4 + 16) as u64
}

impl Leaf {
    fn key(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.key_at as usize..][..usize::from(entry.key_bytes)]
    }

    fn value(&self, entry: &Entry) -> Option<&[u8]> {
        (entry.value_bytes != DELETE).then(|| &self.bytes[entry.value_at as usize..][..entry.value_bytes as usize])
    }

    /// Of a key between the leaf's bounds. Zeros stand behind a shorter one, so equal heads say nothing.
    fn head(&self, key: &[u8]) -> u32 {
        front(key, self.common)
    }

    /// How many entries are below `key` or, of it, `is_before` by their timestamps.
    fn place(&self, key: &[u8], is_before: impl Fn(CommitTs) -> bool) -> usize {
        let before = |e: &Entry| match self.key(e).cmp(key) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Greater => false,
            std::cmp::Ordering::Equal => is_before(e.ts),
        };
        let head = self.head(key);
        // Keys that ascend.
        if self.heads.last().is_none_or(|last| *last < head || *last == head && self.entries.last().is_some_and(before))
        {
            return self.entries.len();
        }
        let from = self.heads.partition_point(|other| *other < head);
        let alike = self.heads[from..].partition_point(|other| *other == head);
        from + self.entries[from..from + alike].partition_point(before)
    }

    /// The first entry of a higher key, or of this one and newer than `ts`.
    fn past(&self, key: &[u8], ts: CommitTs) -> usize {
        self.place(key, |other| other <= ts)
    }

    fn is_of(&self, at: usize, key: &[u8]) -> bool {
        self.heads[at] == self.head(key) && self.key(&self.entries[at]) == key
    }

    /// The newest version of `key` at or below `ts`.
    fn find(&self, key: &[u8], ts: CommitTs) -> Option<&Entry> {
        let at = self.past(key, ts).checked_sub(1)?;
        self.is_of(at, key).then(|| &self.entries[at])
    }

    /// The entries of a range that cuts no key, the newest of a key first, until `each` has enough.
    fn newest_first<'a>(&'a self, range: Range<usize>, mut each: impl FnMut(&'a Entry) -> bool) {
        let mut first = range.start;
        while first < range.end {
            let key = self.key(&self.entries[first]);
            let versions = self.entries[first..range.end].iter().take_while(|e| self.key(e) == key).count();
            if !self.entries[first..first + versions].iter().rev().all(&mut each) {
                return;
            }
            first += versions;
        }
    }

    fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.heads.capacity() * size_of::<u32>()
            + self.bytes.capacity()
            + LEAF_OVERHEAD_BYTES
    }

    /// Adds a version; one that is there changes nothing.
    fn insert(&mut self, key: &[u8], ts: CommitTs, (op, is_fresh): (Op<'_>, bool), prune: &Prune<'_>) -> Change {
        let at = self.past(key, ts);
        let here = at.checked_sub(1).filter(|before| self.is_of(*before, key)).map(|before| &self.entries[before]);
        if here.is_some_and(|e| e.ts == ts) {
            return Change::default();
        }
        let newer = (at < self.entries.len() && self.is_of(at, key)).then(|| &self.entries[at]);
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
        let more = if known.is_some() { 0 } else { key.len() } + op.value_bytes();
        if self.bytes.capacity() - self.bytes.len() < more {
            // By a quarter, not to the double: what is charged is what is used, about.
            self.bytes.reserve_exact(more.max(self.bytes.len() / 4).max(64));
        }
        let position =
            |len: usize| u32::try_from(len).expect("a leaf is cut long before 4 GiB, and a value ends there");
        let key_at = known.unwrap_or_else(|| {
            let start = position(self.bytes.len());
            self.bytes.extend_from_slice(key);
            start
        });
        let value_at = position(self.bytes.len());
        let value_bytes = match op {
            Op::Put(value) => {
                self.bytes.extend_from_slice(value);
                u32::try_from(value.len()).ok().filter(|n| *n != DELETE).expect("the engine limits values")
            }
            Op::Delete => DELETE,
        };
        let key_bytes = u16::try_from(key.len()).expect("the engine limits keys to 48 KiB");
        if self.entries.capacity() == self.entries.len() {
            let more = (self.entries.len() / 4).max(4);
            self.entries.reserve_exact(more);
            self.heads.reserve_exact(more);
        }
        let head = self.head(key);
        self.heads.insert(at, head);
        self.entries.insert(at, Entry { key_at, value_at, value_bytes, key_bytes, is_fresh, ts });
        change.entries -= self.prune(at, key, prune);
        change
    }

    /// Drops the versions of the key at `at` that nobody may see. Returns how many.
    fn prune(&mut self, at: usize, key: &[u8], prune: &Prune<'_>) -> i64 {
        if prune.view.floor() == CommitTs::ZERO {
            return 0;
        }
        let first = (0..at).rev().find(|i| !self.is_of(*i, key)).map_or(0, |i| i + 1);
        let past = (at..self.entries.len()).find(|i| !self.is_of(*i, key)).unwrap_or(self.entries.len());
        if past - first == 1 {
            return 0;
        }
        let around = OfKey { prune, newest: self.entries[past - 1].ts };
        if (first + 1..past).all(|i| around.keeps(self.entries[i - 1].ts, self.entries[i].ts)) {
            return 0;
        }
        let mut fates = Vec::new();
        // Of puts alone, as of a row that is changed again and again, each goes that nobody sees.
        let are_puts = self.entries[first..past].iter().all(|e| e.value_bytes != DELETE);
        if !are_puts {
            let versions: Vec<_> = self.entries[first..past].iter().rev().map(|e| (e.ts, e.says())).collect();
            judge(&around, &versions, &mut fates);
        }
        let (mut kept, mut unused, mut newer) = (past, 0, None);
        for i in (first..past).rev() {
            let mut entry = self.entries[i];
            let seen = if prune.view.keeps(entry.ts, newer) { Fate::Stays } else { Fate::Goes };
            let fate = if are_puts { seen } else { fates[past - 1 - i] };
            if fate != Fate::Goes {
                kept -= 1;
                entry.is_fresh &= fate == Fate::Stays;
                self.entries[kept] = entry;
            } else if entry.value_bytes != DELETE {
                unused += entry.value_bytes as usize;
            }
            newer = Some(entry.ts);
        }
        self.entries.drain(first..kept);
        self.heads.drain(first..kept);
        self.unused += unused;
        if self.unused > self.bytes.len() / 2 && self.unused > 512 {
            *self = self.copy(0..self.entries.len(), self.common);
        }
        (kept - first) as i64
    }

    /// The entries of a range, of whose keys so many bytes are the same, in as many bytes as they take.
    fn copy(&self, range: Range<usize>, common: usize) -> Self {
        let room = range.len() + 4;
        let (entries, heads) = (Vec::with_capacity(room), Vec::with_capacity(room));
        let mut to = Self { entries, heads, common, bytes: Vec::new(), unused: 0 };
        let entries = &self.entries[range];
        let bytes: usize =
            entries.iter().map(|e| usize::from(e.key_bytes) + self.value(e).map_or(0, <[u8]>::len)).sum();
        to.bytes.reserve_exact(bytes);
        for entry in entries {
            let known = to.entries.last().filter(|last| to.key(last) == self.key(entry)).map(|last| last.key_at);
            let key_at = known.unwrap_or_else(|| {
                let start = to.bytes.len() as u32;
                to.bytes.extend_from_slice(self.key(entry));
                start
            });
            let value_at = to.bytes.len() as u32;
            to.bytes.extend_from_slice(self.value(entry).unwrap_or_default());
            to.entries.push(Entry { key_at, value_at, ..*entry });
            to.heads.push(to.head(self.key(entry)));
        }
        to
    }

    /// Of one key it never is: there is nowhere to cut it.
    fn is_full(&self) -> bool {
        let is_large = self.entries.len() > LEAF_ENTRIES_MAX || self.bytes.len() - self.unused > LEAF_BYTES_MAX;
        let ends = self.entries.first().zip(self.entries.last());
        is_large && ends.is_some_and(|(first, last)| self.key(first) != self.key(last))
    }

    /// Where to cut it, between two keys; none if it is of one key. At the end of the map it is left almost full.
    fn cut(&self, is_last: bool) -> Option<usize> {
        let wanted = if is_last { self.entries.len() - 1 } else { self.entries.len() / 2 };
        let is_cut = |at: &usize| self.key(&self.entries[*at - 1]) != self.key(&self.entries[*at]);
        (1..=wanted).rev().find(is_cut).or_else(|| (wanted + 1..self.entries.len()).find(is_cut))
    }

    /// (Keys whose newest version is a value, keys of which it is a delete, whether any version is a value) between the bounds.
    fn count(&self, within: impl Fn(&[u8]) -> bool) -> (u64, u64, bool) {
        let mut counts = (0, 0, false);
        let mut entries = self.entries.iter().peekable();
        while let Some(entry) = entries.next() {
            let key = self.key(entry);
            if !within(key) {
                continue;
            }
            counts.2 |= entry.value_bytes != DELETE;
            if entries.peek().is_none_or(|next| self.key(next) != key) {
                if entry.value_bytes == DELETE { counts.1 += 1 } else { counts.0 += 1 }
            }
        }
        counts
    }
}

impl Memtable {
    /// An empty one; `charge` is what its memory is charged to.
    pub fn new(charge: Charge) -> Self {
        Self {
            leaves: RwLock::new(Directory::new()),
            memory: AtomicI64::new(0),
            oldest: AtomicU64::new(u64::MAX),
            newest: AtomicU64::new(0),
            entries: AtomicI64::new(0),
            live: AtomicI64::new(0),
            deleted: AtomicI64::new(0),
            charge: Mutex::new(charge),
        }
    }

    /// Nothing was ever put in.
    pub fn is_empty(&self) -> bool {
        self.newest() == CommitTs::ZERO
    }

    pub fn memory_bytes(&self) -> u64 {
        u64::try_from(self.memory.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// The lowest timestamp that was put in; MAX if none was.
    pub fn oldest(&self) -> CommitTs {
        CommitTs(self.oldest.load(Ordering::Relaxed))
    }

    /// The highest.
    pub fn newest(&self) -> CommitTs {
        CommitTs(self.newest.load(Ordering::Relaxed))
    }

    /// Says what will be put in, before it is.
    pub fn announce(&self, ts: CommitTs) {
        self.oldest.fetch_min(ts.0, Ordering::Relaxed);
        self.newest.fetch_max(ts.0, Ordering::Relaxed);
    }

    /// Adds a version, said to be a fresh put or not.
    pub fn insert(&self, key: &[u8], ts: CommitTs, op: (Op<'_>, bool), prune: &Prune<'_>) {
        let (low, is_full) = {
            let leaves = self.leaves.read();
            let Place { low, leaf } = leaves.at(key);
            let mut leaf = leaf.write();
            let before = leaf.memory_bytes();
            let change = leaf.insert(key, ts, op, prune);
            self.count_change(change);
            let delta = leaf.memory_bytes() as i64 - before as i64;
            if delta != 0 {
                self.memory.fetch_add(delta, Ordering::Relaxed);
            }
            (leaf.is_full().then(|| low.clone()), leaf.is_full())
        };
        if let Some(low) = low.filter(|_| is_full) {
            vfs::thread::point("lsm.before_split");
            self.split(&low);
        }
    }

    fn count_change(&self, change: Change) {
        for (to, n) in [(&self.entries, change.entries), (&self.live, change.live), (&self.deleted, change.deleted)] {
            if n != 0 {
                to.fetch_add(n, Ordering::Relaxed);
            }
        }
    }

    fn split(&self, low: &[u8]) {
        let mut leaves = self.leaves.write();
        let high = leaves.after(low).map(|place| place.low.clone());
        let Some(cell) = leaves.get(low).map(|place| place.leaf.clone()) else { return };
        let mut leaf = cell.write();
        let Some(at) = leaf.is_full().then(|| leaf.cut(high.is_none())).flatten() else { return };
        let before = leaf.memory_bytes();
        let separator: Box<[u8]> = leaf.key(&leaf.entries[at]).into();
        let left = leaf.copy(0..at, common_prefix_bytes(low, &separator));
        let common = high.map_or(0, |high| common_prefix_bytes(&separator, &high));
        let right = leaf.copy(at..leaf.entries.len(), common);
        let delta = (left.memory_bytes() + right.memory_bytes() + separator.len()) as i64 - before as i64;
        self.memory.fetch_add(delta, Ordering::Relaxed);
        *leaf = left;
        leaves.insert(separator, Arc::new(RwLock::new(right)));
    }

    /// Takes a reservation over: the charge becomes what the memtable takes.
    pub fn settle(&self, reserved: Charge) {
        let mut charge = self.charge.lock();
        charge.merge(reserved);
        charge.set(self.memory_bytes());
    }

    /// Calls `found` with the newest version of `key` at or below `at`, if there is one.
    pub fn get<T>(&self, key: &[u8], at: CommitTs, found: impl FnOnce(CommitTs, Option<&[u8]>) -> T) -> Option<T> {
        let leaves = self.leaves.read();
        let leaf = leaves.at(key).leaf.read();
        let entry = leaf.find(key, at)?;
        Some(found(entry.ts, leaf.value(entry)))
    }

    /// Calls `each` for the versions of the leaf that has the keys from `from` on, ascending, the newest of a key first, with whether it is a fresh put.
    /// Returns where the next leaf begins. Keys of a leaf are in no other one. `each` says whether to go on.
    pub fn leaf_from(
        &self,
        from: &Bound<Vec<u8>>,
        mut each: impl FnMut(&[u8], CommitTs, Option<&[u8]>, bool) -> bool,
    ) -> Option<Vec<u8>> {
        let leaves = self.leaves.read();
        let Place { low, leaf } = match from {
            Bound::Unbounded => leaves.at(&[]),
            Bound::Included(key) | Bound::Excluded(key) => leaves.at(key),
        };
        let next = leaves.after(low).map(|place| place.low.to_vec());
        let leaf = leaf.read();
        let start = match from {
            Bound::Unbounded => 0,
            Bound::Included(key) => leaf.place(key, |_| false),
            Bound::Excluded(key) => leaf.place(key, |_| true),
        };
        leaf.newest_first(start..leaf.entries.len(), |e| each(leaf.key(e), e.ts, leaf.value(e), e.is_fresh));
        next
    }

    /// The same backwards: the versions of the leaf that has the keys below `below` (of all keys, without), ascending all the same. Returns
    /// the leaf's lowest key, below which the next call goes on; none at the beginning.
    pub fn leaf_below(
        &self,
        below: &Bound<Vec<u8>>,
        mut each: impl FnMut(&[u8], CommitTs, Option<&[u8]>),
    ) -> Option<Vec<u8>> {
        let leaves = self.leaves.read();
        let Place { low, leaf } = leaves.below(below.as_ref().map(Vec::as_slice))?;
        let leaf = leaf.read();
        let past = match below {
            Bound::Unbounded => leaf.entries.len(),
            Bound::Included(key) => leaf.place(key, |_| true),
            Bound::Excluded(key) => leaf.place(key, |_| false),
        };
        leaf.newest_first(0..past, |e| {
            each(leaf.key(e), e.ts, leaf.value(e));
            true
        });
        (!low.is_empty()).then(|| low.to_vec())
    }

    /// (Keys with a value, deleted keys) by their newest versions, in a range.
    pub fn count(&self, range: &index::KeyRange) -> (u64, u64, bool) {
        let leaves = self.leaves.read();
        let from: &[u8] = match &range.low {
            Bound::Included(low) | Bound::Excluded(low) => low,
            Bound::Unbounded => &[],
        };
        let concerned = leaves.from(from).take_while(|place| place.low.is_empty() || !range.is_above(&place.low));
        concerned.fold((0, 0, false), |sum, place| {
            let (live, deleted, has_value) = place.leaf.read().count(|key| range.contains(key));
            (sum.0 + live, sum.1 + deleted, sum.2 || has_value)
        })
    }

    /// Lowest keys of the leaves.
    pub fn leaf_keys(&self) -> Vec<Vec<u8>> {
        self.leaves.read().iter().map(|place| place.low.to_vec()).collect()
    }

    /// Number of versions.
    pub fn entries(&self) -> u64 {
        u64::try_from(self.entries.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// (Keys with a value, deleted keys) by their newest versions.
    pub fn keys(&self) -> (u64, u64) {
        let load = |of: &AtomicI64| u64::try_from(of.load(Ordering::Relaxed)).unwrap_or(0);
        (load(&self.live), load(&self.deleted))
    }
}

#[cfg(test)]
mod tests;
