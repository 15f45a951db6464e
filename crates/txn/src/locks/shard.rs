//! One shard of the lock table: a chained hash table of entries in a slab, and the commit timestamps that released
//! locks leave behind.
//!
//! An entry's number stays valid while somebody holds the lock or waits for it. The timestamps are one maximum per
//! bucket of keys, a fixed number of them (rule A17): another key of the same bucket makes an owner wait for a
//! `visible` it did not need, for microseconds, and never the other way round.

use std::sync::Arc;

use base::{CommitTs, IndexId};

use super::entry::{Entry, Mode};
use super::owner::OwnerState;

const NONE: u32 = u32::MAX;
/// Buckets of remembered timestamps per shard.
const LEFT_BUCKETS: usize = 16;
/// A table that has become empty keeps at most this many entries.
const KEPT_ENTRIES: usize = 256;
const BUCKETS_MIN: usize = 16;
/// Groups of indexes, of which a shard knows how many entries it has.
const GROUPS: usize = 16;

#[derive(Debug)]
pub(super) struct Shard {
    /// First entry of each hash bucket.
    buckets: Vec<u32>,
    entries: Vec<Entry>,
    free: u32,
    used: usize,
    key_heap_bytes: usize,
    left: [CommitTs; LEFT_BUCKETS],
    of_group: [u32; GROUPS],
}

impl Shard {
    pub(super) fn new() -> Self {
        Self {
            buckets: Vec::new(),
            entries: Vec::new(),
            free: NONE,
            used: 0,
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
        if self.used == 0 {
            return None;
        }
        let mut number = self.buckets[self.bucket(hash)];
        while number != NONE {
            let entry = self.entry(number);
            if entry.hash == hash && entry.index == index && entry.key.as_bytes() == key {
                return Some(number);
            }
            number = entry.next;
        }
        None
    }

    /// Adds an entry for a key that has none.
    pub(super) fn insert(&mut self, hash: u64, index: IndexId, key: &[u8], holder: Arc<OwnerState>, mode: Mode) -> u32 {
        if self.used >= self.buckets.len() {
            self.grow();
        }
        let bucket = self.bucket(hash);
        let mut entry = Entry::new(hash, index, key, holder, mode);
        entry.next = self.buckets[bucket];
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
        self.buckets[bucket] = number;
        self.used += 1;
        self.of_group[group(index)] += 1;
        number
    }

    /// Removes an entry if nobody holds it or waits for it.
    pub(super) fn remove_if_unused(&mut self, number: u32) {
        if !self.entry(number).is_unused() {
            return;
        }
        let (hash, next) = (self.entry(number).hash, self.entry(number).next);
        let bucket = self.bucket(hash);
        if self.buckets[bucket] == number {
            self.buckets[bucket] = next;
        } else {
            let mut before = self.buckets[bucket];
            while self.entry(before).next != number {
                before = self.entry(before).next;
            }
            self.entry_mut(before).next = next;
        }
        self.key_heap_bytes -= self.entry(number).key.heap_bytes();
        self.of_group[group(self.entry(number).index)] -= 1;
        let free = self.free;
        let entry = self.entry_mut(number);
        entry.vacate();
        entry.next = free;
        self.free = number;
        self.used -= 1;
        if self.used == 0 && self.entries.len() > KEPT_ENTRIES {
            // A large transaction is over: give its memory back.
            (self.buckets, self.entries, self.free) = (Vec::new(), Vec::new(), NONE);
        }
    }

    /// Memory held, in bytes; queues, which exist only where threads wait, are not counted.
    pub(super) fn bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<u32>() + self.entries.capacity() * size_of::<Entry>() + self.key_heap_bytes
    }

    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    fn grow(&mut self) {
        let size = (2 * self.buckets.len()).max(BUCKETS_MIN);
        let old = std::mem::replace(&mut self.buckets, vec![NONE; size]);
        for mut number in old {
            while number != NONE {
                let entry = self.entry(number);
                let (bucket, next) = (self.bucket(entry.hash), entry.next);
                self.entry_mut(number).next = std::mem::replace(&mut self.buckets[bucket], number);
                number = next;
            }
        }
    }
}

fn group(index: IndexId) -> usize {
    index.0 as usize % GROUPS
}

/// Bits that neither the shard nor the hash bucket uses first.
fn left_bucket(hash: u64) -> usize {
    (hash >> 40) as usize % LEFT_BUCKETS
}
