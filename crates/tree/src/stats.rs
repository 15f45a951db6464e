//! Counts of one tree.
//!
//! Entries and live keys change with every commit: they are counted in shards, by leaf, on lines of their own.
//! Everything else is rare. All of it is an estimate: a checkpoint saves the counts of its images, and replay adds to
//! them what it applies.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use base::CommitTs;
use crossbeam_utils::CachePadded;
use index::IndexStats;
use store::{Block, epoch};

use crate::handle::{InnerState, LEAF_BYTES, LeafHandle};
use crate::image::blocks;
use crate::state::State;
use crate::tickets::thread_place;
use crate::tree::Core;

const SHARDS: usize = 16;

/// Relaxed throughout: no order hangs on a count.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    shards: [CachePadded<Shard>; SHARDS],
    leaves: AtomicI64,
    resident: AtomicI64,
    disk_bytes: AtomicI64,
    splits: AtomicU64,
    unlinks: AtomicU64,
    loads: AtomicU64,
    uncached_reads: AtomicU64,
    writes: AtomicU64,
    collects: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    live: AtomicI64,
    entries: AtomicI64,
    /// Operations of commits, by thread.
    changes: AtomicU64,
}

impl Counters {
    pub fn new(state: Option<&State>) -> Self {
        let this = Self::default();
        if let Some(state) = state {
            this.shards[0].live.store(state.root.live as i64, Ordering::Relaxed);
            this.shards[0].entries.store(state.root.entries as i64, Ordering::Relaxed);
            this.leaves.store(state.leaves as i64, Ordering::Relaxed);
            this.disk_bytes.store(state.disk_bytes as i64, Ordering::Relaxed);
        }
        this
    }

    /// A leaf's content changed.
    #[inline]
    pub fn add(&self, leaf: &LeafHandle, live: i64, entries: i64) {
        let shard = &self.shards[(std::ptr::from_ref(leaf).addr() >> 6) % SHARDS];
        if live != 0 {
            shard.live.fetch_add(live, Ordering::Relaxed);
        }
        if entries != 0 {
            shard.entries.fetch_add(entries, Ordering::Relaxed);
        }
    }

    /// Operations were applied or attached.
    #[inline]
    pub fn add_changes(&self, n: u64) {
        self.shards[thread_place() % SHARDS].changes.fetch_add(n, Ordering::Relaxed);
    }

    /// Leaves came or went.
    pub fn add_leaves(&self, n: i64) {
        self.leaves.fetch_add(n, Ordering::Relaxed);
    }

    /// Leaves came into or left memory.
    pub fn add_resident(&self, n: i64) {
        self.resident.fetch_add(n, Ordering::Relaxed);
    }

    pub fn count_split(&self) {
        self.splits.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_unlink(&self) {
        self.unlinks.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_load(&self) {
        self.loads.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_uncached_read(&self) {
        self.uncached_reads.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_collect(&self) {
        self.collects.fetch_add(1, Ordering::Relaxed);
    }

    pub fn leaves(&self) -> u64 {
        positive(&self.leaves)
    }

    pub fn disk_bytes(&self) -> u64 {
        positive(&self.disk_bytes)
    }

    /// A parent's image names the node's block from now on.
    pub fn publish(&self, block: &Arc<Block>) {
        block.beside().into_iter().flatten().for_each(|beside| {
            beside.publish();
        });
        if block.publish() {
            self.disk_bytes.fetch_add(stored_bytes(block) as i64, Ordering::Relaxed);
        }
    }

    /// A parent's image that named the node's block was replaced.
    pub fn unpublish(&self, block: &Arc<Block>) {
        block.beside().into_iter().flatten().for_each(|beside| {
            beside.unpublish();
        });
        if block.unpublish() {
            self.disk_bytes.fetch_sub(stored_bytes(block) as i64, Ordering::Relaxed);
        }
    }
}

/// Bytes on disk of a node's block and those beside it.
fn stored_bytes(block: &Arc<Block>) -> u64 {
    blocks(block).map(|b| b.stored_bytes()).sum()
}

fn positive(count: &AtomicI64) -> u64 {
    count.load(Ordering::Relaxed).max(0) as u64
}

impl Core {
    pub(crate) fn stats(&self) -> IndexStats {
        let counters = &self.counters;
        let sum = |of: fn(&Shard) -> &AtomicI64| -> i64 {
            counters.shards.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum()
        };
        let live = sum(|shard| &shard.live).max(0);
        let entries = sum(|shard| &shard.entries).max(live);
        let leaves = counters.leaves();
        IndexStats {
            live_keys: live as u64,
            dead_versions: (entries - live) as u64,
            disk_bytes: counters.disk_bytes(),
            memory_bytes: positive(&counters.resident) * self.page_bytes() + leaves * LEAF_BYTES,
            leaves,
            node_bytes: self.env.options.node_bytes as u64,
            height: self.height(),
            runs: self.runs.count(),
            run_bytes: self.runs.bytes(),
            run_keys: self.runs.keys(),
            changes: counters.shards.iter().map(|shard| shard.changes.load(Ordering::Relaxed)).sum(),
            splits: counters.splits.load(Ordering::Relaxed),
            unlinks: counters.unlinks.load(Ordering::Relaxed),
            loads: counters.loads.load(Ordering::Relaxed),
            uncached_reads: counters.uncached_reads.load(Ordering::Relaxed),
            writes: counters.writes.load(Ordering::Relaxed),
            gc_debt_bytes: self.gc_debt_bytes(),
            gc_paid_bytes: (counters.unlinks.load(Ordering::Relaxed) + counters.collects.load(Ordering::Relaxed))
                * self.page_bytes(),
        }
    }

    /// Leaves to be unlinked, merged or collected, as bytes of pages. What an open snapshot or an undrained run still needs
    /// is not in it: no work could pay it (see `collect.rs`).
    fn gc_debt_bytes(&self) -> u64 {
        let oldest = CommitTs(self.seen_by_all.load(Ordering::Relaxed));
        let places = [&self.purge, &self.thin, &self.stale];
        places.iter().map(|places| places.due(oldest)).sum::<u64>() * self.page_bytes()
    }

    /// Levels, leaves included; 0 while the root has not been read.
    fn height(&self) -> u32 {
        match self.root.cell.load(&epoch::pin()) {
            InnerState::Loaded(node) => u32::from(node.level) + 1,
            InnerState::Cold | InnerState::Obsolete => 0,
        }
    }
}
