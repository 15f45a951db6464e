//! `trefoil stats`.

use std::io::Write;

use serde_json::json;
use trefoil::{IndexStats, LevelStats};

use crate::{Failure, Format, Opened};

/// Prints sizes and counts: of the data file, of the log, of each index.
pub(crate) fn run(database: &Opened, format: Format, out: &mut impl Write) -> Result<(), Failure> {
    let opened = database.open_to_read()?;
    let stats = opened.stats();
    let (space, log) = (&stats.space, &stats.log);
    match format {
        Format::Text => {
            writeln!(out, "data file   {}, {} live", bytes(space.file_bytes), bytes(space.live_bytes))?;
            writeln!(out, "log         {} in {} files", bytes(log.disk_bytes), log.segment_files)?;
            writeln!(out, "replayed    {} operations at this open", stats.replayed_operations)?;
            if stats.prepared > 0 {
                writeln!(out, "prepared    {} transactions wait for their decision: trefoil prepared", stats.prepared)?;
            }
            writeln!(
                out,
                "\n{:<32} {:>12} {:>12} {:>10} {:>10} {:>6}",
                "index", "keys", "dead", "disk", "leaves", "height"
            )?;
            for (name, index) in &stats.indexes {
                let (keys, dead, leaves, height) = (index.live_keys, index.dead_versions, index.leaves, index.height);
                writeln!(
                    out,
                    "{name:<32} {keys:>12} {dead:>12} {:>10} {leaves:>10} {height:>6}",
                    bytes(index.disk_bytes)
                )?;
            }
            levels(&stats.indexes, out)?;
            expiring(&stats.indexes, out)?;
        }
        Format::Json => {
            let of_index = |(name, index): &(String, IndexStats)| {
                json!({
                    "index": name, "live_keys": index.live_keys, "dead_versions": index.dead_versions,
                    "disk_bytes": index.disk_bytes, "leaves": index.leaves, "height": index.height,
                    "runs": index.runs, "deleted_ranges": index.deleted_ranges,
                    "run_bytes": index.run_bytes,
                    "space_amplification": index.space_amplification(),
                    "ttl_seconds": (index.ttl_seconds > 0).then_some(index.ttl_seconds),
                    "expired_versions": index.expired_versions,
                    "levels": used(index).map(of_level).collect::<Vec<_>>(),
                })
            };
            let all = json!({
                "file_bytes": space.file_bytes, "live_bytes": space.live_bytes, "free_bytes": space.free_bytes,
                "pending_bytes": space.pending_bytes, "dead_bytes": space.dead_bytes,
                "log_bytes": log.disk_bytes, "log_files": log.segment_files,
                "replayed_operations": stats.replayed_operations, "prepared": stats.prepared,
                "indexes": stats.indexes.iter().map(of_index).collect::<Vec<_>>(),
            });
            writeln!(out, "{all:#}")?;
        }
    }
    Ok(opened.close()?)
}

/// Levels of a log-structured merge tree that have something, by their numbers.
fn used(index: &IndexStats) -> impl Iterator<Item = (usize, &LevelStats)> {
    index.levels.iter().enumerate().filter(|(_, level)| level.runs > 0)
}

fn of_level((number, level): (usize, &LevelStats)) -> serde_json::Value {
    json!({
        "level": number, "runs": level.runs, "strands": level.strands, "disk_bytes": level.disk_bytes,
        "versions": level.versions, "live_keys": level.live_keys, "tombstones": level.deleted_keys,
        "dead_share": level.dead_share(),
    })
}

/// A line for each level of each log-structured merge tree; nothing if there is none.
fn levels(indexes: &[(String, IndexStats)], out: &mut impl Write) -> Result<(), Failure> {
    if indexes.iter().all(|(_, index)| used(index).next().is_none()) {
        return Ok(());
    }
    writeln!(
        out,
        "\n{:<32} {:>5} {:>6} {:>7} {:>10} {:>12} {:>12} {:>10} {:>6}",
        "levels (0 is what flushes write)",
        "level",
        "runs",
        "strands",
        "disk",
        "versions",
        "live",
        "tombstones",
        "dead"
    )?;
    for (name, index) in indexes {
        for (number, level) in used(index) {
            writeln!(
                out,
                "{name:<32} {number:>5} {:>6} {:>7} {:>10} {:>12} {:>12} {:>10} {:>5.1}%",
                level.runs,
                level.strands,
                bytes(level.disk_bytes),
                level.versions,
                level.live_keys,
                level.deleted_keys,
                level.dead_share() * 100.0
            )?;
        }
        if let Some(space) = index.space_amplification().filter(|_| used(index).next().is_some()) {
            let strands = index.height;
            writeln!(
                out,
                "{name:<32} a look-up may meet {strands} sorted runs; {space:.2} versions kept for a live key"
            )?;
        }
    }
    writeln!(out, "strands: runs of one level that may have one key in common")?;
    Ok(())
}

/// A line for each index whose versions expire.
fn expiring(indexes: &[(String, IndexStats)], out: &mut impl Write) -> Result<(), Failure> {
    for (name, index) in indexes.iter().filter(|(_, index)| index.ttl_seconds > 0) {
        let (seconds, expired) = (index.ttl_seconds, index.expired_versions);
        writeln!(out, "{name:<32} versions expire after {seconds} s; about {expired} that have are still on disk")?;
    }
    Ok(())
}

/// A size for people.
fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = n as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < units.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{size:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_are_readable() {
        assert_eq!([0, 1023, 1024, 1536 << 20].map(bytes), ["0 B", "1023 B", "1.0 KiB", "1.5 GiB"]);
    }
}
