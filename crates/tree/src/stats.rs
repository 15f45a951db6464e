//! Counts of one tree.
//!
//! Entries and live keys change with every commit: they are counted in shards, by leaf, on lines of their own.
//! Everything else is rare. All of it is an estimate: a checkpoint saves the counts of its images, and replay adds to
//! them what it applies.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use base::{CommitTs, Result};
use crossbeam_utils::CachePadded;
use index::{IndexShape, IndexStats, IndexTraffic};
use store::{Block, BlockKind, epoch};

use crate::descent::loaded;
use crate::handle::{Child, InnerState, LEAF_BYTES, LeafHandle};
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
    read_ahead: AtomicU64,
    writes: AtomicU64,
    collects: AtomicU64,
    leaf_bytes: AtomicU64,
    inner_bytes: AtomicU64,
    segment_bytes: AtomicU64,
    drained_bytes: AtomicU64,
    beside_bytes: AtomicU64,
    cold_reads: AtomicU64,
    point_blocks: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    live: AtomicI64,
    entries: AtomicI64,
    /// Operations of commits, by thread, and their bytes.
    changes: AtomicU64,
    ingested_bytes: AtomicU64,
    visits: AtomicU64,
    cold_visits: AtomicU64,
    /// Address of the leaf on disk that got messages last, from whichever thread has this shard. Compared only; a stale one counts one visit too few.
    last_cold: AtomicUsize,
    point_reads: AtomicU64,
    uncached_reads: AtomicU64,
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

    fn shard(&self) -> &Shard {
        &self.shards[thread_place() % SHARDS]
    }

    /// Operations were applied or attached, of so many bytes of keys and values.
    #[inline]
    pub fn add_changes(&self, n: u64, bytes: u64) {
        let shard = self.shard();
        shard.changes.fetch_add(n, Ordering::Relaxed);
        shard.ingested_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A commit changes so many leaves.
    #[inline]
    pub fn add_visits(&self, n: u64) {
        self.shard().visits.fetch_add(n, Ordering::Relaxed);
    }

    /// So many of these are on disk.
    pub fn add_cold_visits(&self, n: u64) {
        self.shard().cold_visits.fetch_add(n, Ordering::Relaxed);
    }

    /// One of these is on disk, and gets messages. Counted once while what comes to leaves on disk comes to this one: with it in memory, as a
    /// B-tree had it, all of that were hits.
    pub fn count_cold_visit(&self, leaf: &LeafHandle) {
        let (shard, leaf) = (self.shard(), std::ptr::from_ref(leaf).addr());
        if shard.last_cold.load(Ordering::Relaxed) != leaf {
            shard.last_cold.store(leaf, Ordering::Relaxed);
            shard.cold_visits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Keys are looked up.
    #[inline]
    pub fn add_point_reads(&self, n: u64) {
        self.shard().point_reads.fetch_add(n, Ordering::Relaxed);
    }

    /// The leaf of one of them was on disk.
    pub fn count_cold_read(&self) {
        self.cold_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Blocks were read for that.
    pub fn add_point_blocks(&self, n: u64) {
        self.point_blocks.fetch_add(n, Ordering::Relaxed);
    }

    /// Blocks were written.
    pub fn add_written(&self, kind: BlockKind, blocks: &[Arc<Block>]) {
        let count = match kind {
            BlockKind::Leaf => &self.leaf_bytes,
            BlockKind::Inner => &self.inner_bytes,
            BlockKind::Segment => &self.segment_bytes,
            BlockKind::Overflow | BlockKind::Run => &self.beside_bytes,
        };
        count.fetch_add(blocks.iter().map(|block| block.stored_bytes()).sum(), Ordering::Relaxed);
    }

    /// Messages on disk, as they were stored, went into leaves.
    pub fn add_drained(&self, bytes: u64) {
        self.drained_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn traffic(&self) -> IndexTraffic {
        let sum = |of: fn(&Shard) -> &AtomicU64| -> u64 {
            self.shards.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum()
        };
        IndexTraffic {
            ingested_bytes: sum(|shard| &shard.ingested_bytes),
            visits: sum(|shard| &shard.visits),
            cold_visits: sum(|shard| &shard.cold_visits),
            leaf_bytes: self.leaf_bytes.load(Ordering::Relaxed),
            inner_bytes: self.inner_bytes.load(Ordering::Relaxed),
            segment_bytes: self.segment_bytes.load(Ordering::Relaxed),
            beside_bytes: self.beside_bytes.load(Ordering::Relaxed),
            point_reads: sum(|shard| &shard.point_reads),
            cold_reads: self.cold_reads.load(Ordering::Relaxed),
            point_blocks: self.point_blocks.load(Ordering::Relaxed),
        }
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

    pub fn count_read_ahead(&self) {
        self.read_ahead.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_load(&self) {
        self.loads.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_uncached_read(&self) {
        self.shard().uncached_reads.fetch_add(1, Ordering::Relaxed);
    }

    fn uncached_reads(&self) -> u64 {
        self.shards.iter().map(|shard| shard.uncached_reads.load(Ordering::Relaxed)).sum()
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
        let filled = self.fillings.filled();
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
            read_ahead: counters.read_ahead.load(Ordering::Relaxed),
            uncached_reads: counters.uncached_reads(),
            writes: counters.writes.load(Ordering::Relaxed),
            gc_debt_bytes: self.gc_debt_bytes(),
            gc_paid_bytes: (counters.unlinks.load(Ordering::Relaxed) + counters.collects.load(Ordering::Relaxed))
                * self.page_bytes(),
            message_bytes: filled.new_bytes,
            message_aim_bytes: filled.aim,
            drained_bytes: counters.drained_bytes.load(Ordering::Relaxed),
            resident_leaves: positive(&counters.resident),
            traffic: counters.traffic(),
            ..IndexStats::default()
        }
    }

    /// By the nodes just above the leaves, which are brought into memory one after the other.
    pub(crate) fn shape(&self) -> Result<IndexShape> {
        let (mut shape, mut at) = (IndexShape::default(), Vec::new());
        loop {
            let path = self.load_path(&at)?;
            let handle = path.last().expect("a path has a root");
            let _latched = self.latch_structure();
            let guard = epoch::pin();
            let Some(keys) = loaded(handle, &guard) else { continue };
            let mut last = None;
            for child in keys.children() {
                let Child::Leaf(leaf) = child else { continue };
                let image = leaf.record.lock().image.clone();
                // Neighbours share an image after a split.
                if let Some(image) = image.filter(|image| last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, image))) {
                    shape.leaf_bytes += stored_bytes(&image.block);
                    shape.live_keys += image.live;
                    last = Some(image);
                }
            }
            shape.segment_bytes += handle.record.lock().segments.iter().map(|s| s.block.stored_bytes()).sum::<u64>();
            shape.bottoms += 1;
            match keys.hi() {
                Some(next) => at = next.to_vec(),
                None => return Ok(shape),
            }
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
