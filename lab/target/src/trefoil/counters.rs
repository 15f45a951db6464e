//! The engine's statistics as counters by name.

use lab_measure::record::{IndexCosts, LevelsAt};
use trefoil::{IndexStats, LevelStats, Stats, Structure};

use crate::api::Counters;
use crate::counted::CountedVfs;

/// Levels of an index.
const LEVELS: usize = IndexStats::LEVELS;

/// Every number of the statistics. `gc_debt` is the sum of the dead versions of all indexes. `written.*` are all bytes
/// written, by cause: the log, zeroes ahead of it, run files (commits and index builds too large for the log), dirty
/// pages written back for room, whatever checkpoints write of the data file, and manifests with all other small files.
/// Pages that drains and cleaning made dirty are written by one of the two that write pages.
pub(super) fn counters_of(stats: &Stats, counted: &CountedVfs) -> Counters {
    let (space, log, cache, locks) = (&stats.space, &stats.log, &stats.cache, &stats.locks);
    let (log_bytes, data_bytes) = (counted.log_bytes(), counted.data_bytes());
    let (ahead_bytes, back_bytes) = (log.filled_bytes.min(log_bytes), cache.written_bytes.min(data_bytes));
    let mut all: Vec<(String, u64)> = [
        ("checkpoints", stats.checkpoints),
        ("disk_full", stats.disk_full),
        ("written.log", log_bytes - ahead_bytes),
        ("written.log_ahead", ahead_bytes),
        ("written.runs", counted.run_bytes()),
        ("written.write_back", back_bytes),
        ("written.checkpoint", data_bytes - back_bytes),
        ("written.names", counted.other_bytes()),
        ("read.calls", counted.reads()),
        ("space.read_bytes", space.read_bytes),
        ("space.file_bytes", space.file_bytes),
        ("space.live_bytes", space.live_bytes),
        ("space.pending_bytes", space.pending_bytes),
        ("space.dead_bytes", space.dead_bytes),
        ("space.cleaning_bytes", space.cleaning_bytes),
        ("space.moved_bytes", space.moved_bytes),
        ("log.appended_bytes", log.appended_bytes),
        ("log.syncs", log.syncs),
        ("log.company_wait_us", log.company_wait_time.as_micros() as u64),
        ("log.room_waits", log.room_waits),
        ("log.room_wait_us", log.room_wait_time.as_micros() as u64),
        ("log.room_wait_worst_us", log.room_wait_worst.as_micros() as u64),
        ("cache.pages", cache.pages),
        ("cache.dirty_bytes", cache.dirty_bytes),
        ("cache.evicted_pages", cache.evicted_pages),
        ("cache.written_pages", cache.written_pages),
        ("cache.waits", cache.waits),
        ("cache.wait_us", cache.wait_sum_us),
        ("cache.wait_worst_us", cache.wait_worst_us),
        ("locks.waits", locks.waits),
        ("locks.wait_us", locks.wait_nanos / 1_000),
        ("locks.wait_worst_us", locks.wait_nanos_max / 1_000),
        ("locks.deadlocks", locks.deadlocks),
        ("locks.timeouts", locks.timeouts),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    all.extend(stats.memory.iter().map(|(class, bytes)| (format!("memory.{class}"), *bytes)));
    all.push(("memory.buffered_aim".to_owned(), stats.buffered_aim_bytes));
    for (name, index) in &stats.indexes {
        let of_index = [
            ("live_keys", index.live_keys),
            ("dead_versions", index.dead_versions),
            ("gc_debt_bytes", index.gc_debt_bytes),
            ("leaves", index.leaves),
            ("height", u64::from(index.height)),
            ("splits", index.splits),
            ("unlinks", index.unlinks),
            ("loads", index.loads),
            ("writes", index.writes),
            ("disk_bytes", index.disk_bytes),
            ("memory_bytes", index.memory_bytes),
            ("run_bytes", index.run_bytes),
        ];
        all.extend(of_index.map(|(key, value)| (format!("{name}.{key}"), value)));
        all.extend(of_levels(index).into_iter().map(|(key, value)| (format!("{name}.{key}"), value)));
    }
    for delay in &stats.delays {
        let of_reason = [("count", delay.count), ("us", delay.sum_us), ("worst_us", delay.worst_us)];
        all.extend(of_reason.map(|(key, value)| (format!("delays.{}.{key}", delay.reason), value)));
    }
    all.push(("gc_debt".into(), stats.indexes.iter().map(|(_, index)| index.dead_versions).sum()));
    all.into_iter().collect()
}

/// True of a log-structured merge tree that has, or had, something on disk.
fn has_levels(index: &IndexStats) -> bool {
    index.levels.iter().any(|level| level.runs > 0 || level.merged_bytes > 0)
}

/// What came to its levels, by cause, and each level; nothing of other structures. `lsm.*` are those names of which a report makes charts.
fn of_levels(index: &IndexStats) -> Vec<(String, u64)> {
    if !has_levels(index) {
        return Vec::new();
    }
    let moved = index.levels.iter().map(|level| level.moved_bytes).sum();
    let of_all = [
        ("ingested_bytes", index.traffic.ingested_bytes),
        ("point_reads", index.traffic.point_reads),
        ("point_blocks", index.traffic.point_blocks),
        ("lsm.flush", index.traffic.segment_bytes),
        ("lsm.move", moved),
    ];
    let mut all: Vec<(String, u64)> = of_all.map(|(key, value)| (key.to_owned(), value)).into();
    for (number, level) in index.levels.iter().enumerate() {
        if level.merged_bytes > 0 {
            all.push((format!("lsm.merge_{number}"), level.merged_bytes));
        }
        if level.runs == 0 {
            continue;
        }
        let of_level = [
            ("runs", level.runs),
            ("strands", level.strands),
            ("bytes", level.disk_bytes),
            ("versions", level.versions),
            ("dead_versions", level.versions.saturating_sub(level.live_keys)),
        ];
        all.extend(of_level.map(|(key, value)| (format!("level_{number}.{key}"), value)));
    }
    all
}

/// What an index has cost since open. A log-structured merge tree counts a key as live in each run that has it, most of all where it keeps
/// most: how many live it does not know.
pub(super) fn costs_of(index: &IndexStats, structure: Structure) -> IndexCosts {
    let traffic = &index.traffic;
    IndexCosts {
        ingested_bytes: traffic.ingested_bytes,
        written_bytes: traffic.written_bytes(),
        point_reads: traffic.point_reads,
        point_blocks: traffic.point_blocks,
        live_keys: if structure == Structure::Lsm { 0 } else { index.live_keys },
        versions: index.live_keys + index.dead_versions,
    }
}

/// The levels of all indexes that have some, added up; none if none has.
pub(super) fn levels_of(stats: &Stats) -> Option<LevelsAt> {
    let mut with_levels = stats.indexes.iter().map(|(_, index)| index).filter(|index| has_levels(index)).peekable();
    with_levels.peek()?;
    let mut sums = [LevelStats::default(); LEVELS];
    for index in with_levels {
        sums = std::array::from_fn(|level| sums[level].plus(&index.levels[level]));
    }
    let list = |of: fn(&LevelStats) -> u64| sums.iter().map(of).collect();
    Some(LevelsAt { secs: 0.0, bytes: list(|level| level.disk_bytes), strands: list(|level| level.strands) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guard: the sum of what runs count for themselves is told for no structure but those that know.
    #[test]
    fn how_many_keys_of_a_log_structured_merge_tree_live_is_not_told() {
        let index = IndexStats { live_keys: 30, dead_versions: 12, ..IndexStats::default() };
        let told = |structure| (costs_of(&index, structure).live_keys, costs_of(&index, structure).versions);
        assert_eq!(told(Structure::Lsm), (0, 42));
        assert_eq!([told(Structure::Btree), told(Structure::Betree)], [(30, 42); 2]);
    }
}
