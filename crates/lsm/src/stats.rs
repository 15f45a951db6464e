//! Counts of one index, and drawings of it.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Result;
use base::bytes::printable;
use index::expiry::has_expired;
use index::{IndexShape, IndexStats, IndexTraffic, LEVELS, LevelStats, ReadAt};

use crate::choose::{BOTTOM, debt, share_at_or_below};
use crate::lsm::{Core, Sources};

const _: () = assert!(LEVELS == BOTTOM as usize + 1);

/// Since open. Relaxed throughout: no order hangs on a count.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    changes: AtomicU64,
    ingested_bytes: AtomicU64,
    point_reads: AtomicU64,
    point_blocks: AtomicU64,
    loads: AtomicU64,
    read_ahead: AtomicU64,
    cold_reads: AtomicU64,
    flushed_bytes: AtomicU64,
    merged_bytes: [AtomicU64; LEVELS],
    moved_bytes: [AtomicU64; LEVELS],
    written: AtomicU64,
    split_merges: AtomicU64,
    passed: AtomicU64,
    more_strands: AtomicU64,
    prefix_skipped_runs: AtomicU64,
    prefix_skipped_blocks: AtomicU64,
    expired: AtomicU64,
    expired_runs: AtomicU64,
}

impl Counters {
    pub fn add_changes(&self, n: u64, bytes: u64) {
        self.changes.fetch_add(n, Ordering::Relaxed);
        self.ingested_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn add_point_reads(&self, n: u64) {
        self.point_reads.fetch_add(n, Ordering::Relaxed);
    }

    pub fn count_point_block(&self) {
        self.point_blocks.fetch_add(1, Ordering::Relaxed);
        self.count_load();
    }

    pub fn count_load(&self) {
        self.loads.fetch_add(1, Ordering::Relaxed);
    }

    /// Blocks were read together with one before them.
    pub fn add_read_ahead(&self, n: u64) {
        self.read_ahead.fetch_add(n, Ordering::Relaxed);
    }

    /// A key that was looked up was not decided by what is in memory.
    pub fn count_cold_read(&self) {
        self.cold_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// A cursor came to entries and did not give them out.
    pub fn add_passed(&self, n: u64) {
        if n > 0 {
            self.passed.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// A range passed over blocks of a run, perhaps over all of it.
    pub fn add_prefix_skips(&self, is_whole_run: bool, blocks: u64) {
        self.prefix_skipped_runs.fetch_add(u64::from(is_whole_run), Ordering::Relaxed);
        self.prefix_skipped_blocks.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Versions were dropped since they had expired.
    pub fn add_expired(&self, n: u64) {
        if n > 0 {
            self.expired.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Runs went as a whole since all of them had expired.
    pub fn add_expired_runs(&self, n: u64) {
        self.expired_runs.fetch_add(n, Ordering::Relaxed);
    }

    /// A range began in so many strands.
    pub fn count_range(&self, strands: usize) {
        if strands > 1 {
            self.more_strands.fetch_add(strands as u64 - 1, Ordering::Relaxed);
        }
    }

    /// Strands in which ranges began, beside one each.
    pub fn more_strands(&self) -> u64 {
        self.more_strands.load(Ordering::Relaxed)
    }

    /// A run was written from a memtable.
    pub fn add_flushed(&self, bytes: u64) {
        self.written.fetch_add(1, Ordering::Relaxed);
        self.flushed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Runs of a level were written from others.
    pub fn add_merged(&self, level: u8, runs: usize, bytes: u64) {
        self.written.fetch_add(runs as u64, Ordering::Relaxed);
        self.merged_bytes[usize::from(level)].fetch_add(bytes, Ordering::Relaxed);
    }

    /// A merge was cut in two for another thread.
    pub fn count_split_merge(&self) {
        self.split_merges.fetch_add(1, Ordering::Relaxed);
    }

    /// Blocks came to a level as they were.
    pub fn add_moved(&self, level: u8, bytes: u64) {
        self.moved_bytes[usize::from(level)].fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Core {
    pub(crate) fn stats(&self) -> IndexStats {
        let sources = self.sources();
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let (mut live, mut entries, mut expired) = (0u64, 0, 0);
        let cut = self.cut(ReadAt::Newest);
        for run in sources.runs.iter().rev() {
            let gone = share_at_or_below(cut, run.info.oldest, run.info.newest);
            let unexpired = |of: u64| of - (of as f64 * gone) as u64;
            live = live.saturating_sub(unexpired(run.info.deleted)) + unexpired(run.info.live);
            entries += run.info.entries;
            expired += run.info.entries - unexpired(run.info.entries);
        }
        let mut memory_bytes = 0;
        for table in sources.sealed.iter().chain([&sources.active]) {
            let (more, deleted) = if has_expired(table.newest(), cut) { (0, 0) } else { table.keys() };
            let hides = sources.runs.is_empty() && sources.sealed.is_empty();
            live = live.saturating_sub(if hides { 0 } else { deleted }) + more;
            entries += table.entries();
            memory_bytes += table.memory_bytes();
        }
        let strands: Vec<_> = sources.strands.iter().map(|strand| (strand.level, strand.stored_bytes())).collect();
        let stored = |of: fn(&crate::run::RunInfo) -> u64| sources.runs.iter().map(|run| of(&run.info)).sum::<u64>();
        let levels = self.levels(&sources);
        let merged_bytes = levels.iter().map(|level| level.merged_bytes).sum();
        let traffic = IndexTraffic {
            ingested_bytes: load(&self.counters.ingested_bytes),
            leaf_bytes: merged_bytes,
            segment_bytes: load(&self.counters.flushed_bytes),
            point_reads: load(&self.counters.point_reads),
            cold_reads: load(&self.counters.cold_reads),
            point_blocks: load(&self.counters.point_blocks),
            ..IndexTraffic::default()
        };
        IndexStats {
            live_keys: live,
            dead_versions: entries.saturating_sub(live),
            disk_bytes: stored(|info| info.stored_bytes),
            memory_bytes,
            leaves: stored(|info| info.slots),
            node_bytes: self.env.options.node_bytes as u64,
            height: sources.strands.len() as u32,
            runs: sources.attached.len() as u64,
            run_bytes: sources.attached.iter().map(|attached| attached.run.bytes().max(1)).sum(),
            run_keys: sources.attached.iter().map(|attached| attached.run.len() as i64).sum(),
            changes: load(&self.counters.changes),
            loads: load(&self.counters.loads),
            read_ahead: load(&self.counters.read_ahead),
            writes: load(&self.counters.written),
            gc_debt_bytes: debt(&strands, self.env.options.shape, self.flush_bytes()),
            gc_paid_bytes: merged_bytes,
            split_merges: load(&self.counters.split_merges),
            dead_spans: self.dead.len() as u64,
            passed: load(&self.counters.passed),
            prefix_skipped_runs: load(&self.counters.prefix_skipped_runs),
            prefix_skipped_blocks: load(&self.counters.prefix_skipped_blocks),
            ttl_seconds: self.env.expiry.as_ref().map_or(0, |expiry| expiry.ttl_seconds()),
            expired_through: cut,
            expired_versions: expired,
            expired_dropped: load(&self.counters.expired),
            expired_runs: load(&self.counters.expired_runs),
            traffic,
            levels,
            ..IndexStats::default()
        }
    }

    fn levels(&self, sources: &Sources) -> [LevelStats; LEVELS] {
        let mut levels = [LevelStats::default(); LEVELS];
        for run in &sources.runs {
            let level = &mut levels[usize::from(run.info.level)];
            level.runs += 1;
            level.disk_bytes += run.info.stored_bytes;
            level.versions += run.info.entries;
            level.live_keys += run.info.live;
            level.deleted_keys += run.info.deleted;
        }
        for strand in &sources.strands {
            levels[usize::from(strand.level)].strands += 1;
        }
        let counters = &self.counters;
        for (level, (merged, moved)) in levels.iter_mut().zip(counters.merged_bytes.iter().zip(&counters.moved_bytes)) {
            level.merged_bytes = merged.load(Ordering::Relaxed);
            level.moved_bytes = moved.load(Ordering::Relaxed);
        }
        levels
    }

    pub(crate) fn shape(&self) -> Result<IndexShape> {
        let sources = self.sources();
        let mut shape = IndexShape::default();
        for run in &sources.runs {
            shape.leaf_bytes += run.info.stored_bytes;
            shape.live_keys += run.info.live;
            shape.bottoms += run.top_at().len() as u64;
        }
        Ok(shape)
    }

    pub(crate) fn draw(&self) -> String {
        let sources = self.sources();
        let mut out = String::new();
        for table in sources.memtables() {
            let _ = writeln!(out, "memtable {} versions", table.entries());
        }
        for attached in &sources.attached {
            let _ = writeln!(out, "attached {} entries at {}", attached.run.len(), attached.ts);
        }
        for run in &sources.runs {
            let info = &run.info;
            let (low, high) = (printable(&info.min_key), printable(&info.max_key));
            let _ = writeln!(
                out,
                "run level {} blocks {} versions {} live {} deleted {} [{low}, {high}] {}..{}",
                info.level, info.slots, info.entries, info.live, info.deleted, info.oldest, info.newest
            );
        }
        out
    }
}
