//! The places of pages, in shards.
//!
//! A shard is a queue: the sweep takes places from the front and puts those that stay at the back, which is the
//! second-chance clock with the hand at the front. Places taken out are worked on with no latch held, so a page
//! may do what it likes in `try_evict`, and dropping the last reference to one happens outside the latch.
//!
//! Invariant: a place is in exactly one shard or in the hands of one sweep; the number of places is what was
//! inserted less what was found evicted or gone.

use std::collections::VecDeque;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use vfs::sync::Mutex;

use super::Page;

/// At least 8: threads that load pages at the same time rarely meet.
pub(super) const SHARDS: usize = 16;

/// A page's place.
pub(super) struct Place {
    pub(super) page: Weak<dyn Page>,
    pub(super) bytes: u64,
}

#[derive(Default)]
pub(super) struct Clock {
    shards: [CachePadded<Mutex<VecDeque<Place>>>; SHARDS],
    /// Next shard to insert into. By turns, not by the page's address, which differs from run to run.
    insert_at: CachePadded<AtomicU64>,
    /// Next shard to sweep.
    hand: CachePadded<AtomicU64>,
}

impl Clock {
    pub(super) fn insert(&self, page: Weak<dyn Page>, bytes: u64) {
        let shard = self.insert_at.fetch_add(1, Ordering::Relaxed) as usize % SHARDS;
        self.shards[shard].lock().push_back(Place { page, bytes });
    }

    /// The same for a page that nobody has read yet: the sweep comes to it first, and finds it referenced if somebody has by then.
    pub(super) fn insert_first(&self, page: Weak<dyn Page>, bytes: u64) {
        let shard = self.insert_at.fetch_add(1, Ordering::Relaxed) as usize % SHARDS;
        self.shards[shard].lock().push_front(Place { page, bytes });
    }

    /// Takes up to `max` places from the next shard; returns the shard to put survivors back into.
    pub(super) fn take(&self, max: usize) -> (usize, Vec<Place>) {
        let shard = self.hand.fetch_add(1, Ordering::Relaxed) as usize % SHARDS;
        let mut queue = self.shards[shard].lock();
        let count = max.min(queue.len());
        (shard, queue.drain(..count).collect())
    }

    /// Puts places at the back of a shard.
    pub(super) fn put_back(&self, shard: usize, places: impl IntoIterator<Item = Place>) {
        self.shards[shard].lock().extend(places);
    }

    pub(super) fn len(&self) -> u64 {
        self.shards.iter().map(|s| s.lock().len() as u64).sum()
    }
}
