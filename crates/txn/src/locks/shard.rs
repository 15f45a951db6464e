//! One shard of the lock table: entries in a slab, a hash table of their numbers, and the commit timestamps that
//! released locks leave behind.
//!
//! An entry's number stays valid while somebody holds the lock or waits for it. The timestamps are one maximum per
//! bucket of keys, a fixed number of them (rule A17): another key of the same bucket makes an owner wait for a
//! `visible` it did not need, for microseconds, and never the other way round.

use std::sync::Arc;

use base::{CommitTs, IndexId};

use super::entry::{Entry, Mode};
use super::numbers::Numbers;
use super::owner::OwnerState;

const NONE: u32 = u32::MAX;
/// Buckets of remembered timestamps per shard.
const LEFT_BUCKETS: usize = 16;
/// A table that has become empty keeps at most this many entries.
const KEPT_ENTRIES: usize = 256;
/// Groups of indexes, of which a shard knows how many entries it has.
const GROUPS: usize = 16;

#[derive(Debug)]
pub(super) struct Shard {
    numbers: Numbers,
    entries: Vec<Entry>,
    free: u32,
    key_heap_bytes: usize,
    left: [CommitTs; LEFT_BUCKETS],
    of_group: [u32; GROUPS],
}

impl Shard {
    pub(super) fn new() -> Self {
        Self {
            numbers: Numbers::default(),
            entries: Vec::new(),
            free: NONE,
            key_heap_bytes: 0,
            left: [CommitTs::ZERO; LEFT_BUCKETS],
            of_group: [0; GROUPS],
        }
    }

    /// Newest commit that released a lock of `hash`'s bucket.
    pub(super) fn left(&self, hash: u64) -> CommitTs {
        self.left[left_bucket(hash)]
    }

    /// Newest commit that released any lock of the shard.
    pub(super) fn newest_left(&self) -> CommitTs {
        self.left.iter().copied().max().unwrap_or(CommitTs::ZERO)
    }

    pub(super) fn leave(&mut self, hash: u64, ts: CommitTs) {
        let left = &mut self.left[left_bucket(hash)];
        *left = ts.max(*left);
    }

    pub(super) fn entry(&self, number: u32) -> &Entry {
        &self.entries[number as usize]
    }

    pub(super) fn entry_mut(&mut self, number: u32) -> &mut Entry {
        &mut self.entries[number as usize]
    }

    /// All entries, also those that are vacant.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Those of one index that are in use, and perhaps some of other ones. Looks at none if there are none.
    pub(super) fn entries_of(&self, index: IndexId) -> impl Iterator<Item = &Entry> {
        let of_group = move |entry: &&Entry| group(entry.index) == group(index) && !entry.is_unused();
        self.entries.iter().filter(of_group).take(self.of_group[group(index)] as usize)
    }

    /// For the deadlock search, whose numbers may be out of date.
    pub(super) fn try_entry(&self, number: u32) -> Option<&Entry> {
        self.entries.get(number as usize)
    }

    pub(super) fn find(&self, hash: u64, index: IndexId, key: &[u8]) -> Option<u32> {
        self.numbers.find(half(hash), |number| {
            let entry = self.entry(number);
            entry.hash == hash && entry.index == index && entry.key.as_bytes() == key
        })
    }

    /// Adds an entry for a key that has none.
    pub(super) fn insert(&mut self, hash: u64, index: IndexId, key: &[u8], holder: Arc<OwnerState>, mode: Mode) -> u32 {
        let entry = Entry::new(hash, index, key, holder, mode);
        self.key_heap_bytes += entry.key.heap_bytes();
        let number = match self.free {
            NONE => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).expect("a shard has fewer than 2^32 locks")
            }
            number => {
                self.free = self.entry(number).next;
                *self.entry_mut(number) = entry;
                number
            }
        };
        self.numbers.insert(half(hash), number);
        self.of_group[group(index)] += 1;
        number
    }

    /// Removes an entry if nobody holds it or waits for it.
    pub(super) fn remove_if_unused(&mut self, number: u32) {
        if !self.entry(number).is_unused() {
            return;
        }
        self.numbers.remove(half(self.entry(number).hash), number);
        self.key_heap_bytes -= self.entry(number).key.heap_bytes();
        self.of_group[group(self.entry(number).index)] -= 1;
        let free = self.free;
        let entry = self.entry_mut(number);
        entry.vacate();
        entry.next = free;
        self.free = number;
        if self.numbers.len() == 0 && self.entries.len() > KEPT_ENTRIES {
            // A large transaction is over: give its memory back.
            (self.numbers, self.entries, self.free) = (Numbers::default(), Vec::new(), NONE);
        }
    }

    /// Memory held, in bytes; queues, which exist only where threads wait, are not counted.
    pub(super) fn bytes(&self) -> usize {
        self.numbers.bytes() + self.entries.capacity() * size_of::<Entry>() + self.key_heap_bytes
    }
}

fn group(index: IndexId) -> usize {
    index.0 as usize % GROUPS
}

/// What the table of numbers goes by.
fn half(hash: u64) -> u32 {
    hash as u32
}

/// Bits that neither the shard nor the table of numbers uses.
fn left_bucket(hash: u64) -> usize {
    (hash >> 40) as usize % LEFT_BUCKETS
}
