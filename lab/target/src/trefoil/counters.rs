//! The engine's statistics as counters by name.

use trefoil::Stats;

use crate::api::Counters;

/// Every number of the statistics. `written.*` are all bytes written, by cause; `gc_debt` is the sum of the dead versions of all indexes.
pub(super) fn counters_of(stats: &Stats) -> Counters {
    let (space, log, cache, locks) = (&stats.space, &stats.log, &stats.cache, &stats.locks);
    let mut all: Vec<(String, u64)> = [
        ("checkpoints", stats.checkpoints),
        ("disk_full", stats.disk_full),
        ("written.data", space.written_bytes),
        ("written.log", log.written_bytes),
        ("written.log_ahead", log.filled_bytes),
        ("space.read_bytes", space.read_bytes),
        ("space.file_bytes", space.file_bytes),
        ("space.live_bytes", space.live_bytes),
        ("log.appended_bytes", log.appended_bytes),
        ("log.syncs", log.syncs),
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
    for (name, index) in &stats.indexes {
        let of_index = [
            ("live_keys", index.live_keys),
            ("dead_versions", index.dead_versions),
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
    }
    all.push(("gc_debt".into(), stats.indexes.iter().map(|(_, index)| index.dead_versions).sum()));
    all.into_iter().collect()
}
