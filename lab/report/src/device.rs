//! The device's means over a step, with the names and formulas of `iostat -x`.

use lab_measure::snapshot::Difference;

use crate::html::{Table, short};
use crate::lines::Lines;

/// Requests a second, merged ones, KB a second, milliseconds and KB of a request; how many were under way, and for how much of the time any.
const NAMES: [&str; 12] = [
    "r/s", "rrqm/s", "rkB/s", "r_await", "rareq-sz", "w/s", "wrqm/s", "wkB/s", "w_await", "wareq-sz", "aqu-sz", "%util",
];

/// A table of the targets whose device is known.
#[must_use]
pub fn part(lines: &Lines<'_>, step: &str) -> String {
    let rows: Vec<_> =
        lines.with(step).filter_map(|(line, entry)| Some((&line.name, means(&entry.record.kernel)?))).collect();
    if rows.is_empty() {
        return String::new();
    }
    let headings: Vec<&str> = ["target"].into_iter().chain(NAMES).collect();
    let mut table = Table::new("The device, means as iostat has them: of all programs, KB and milliseconds", &headings);
    for (name, means) in rows {
        table.plain_row(name, means.map(short));
    }
    table.finished()
}

/// Of a span, in the order of the names.
fn means(span: &Difference) -> Option<[f64; NAMES.len()]> {
    let queue = span.disk_queue.filter(|_| span.secs > 0.0)?;
    let over = |sum: f64, number: f64| if number > 0.0 { sum / number } else { 0.0 };
    let direction = |requests: Option<u64>, bytes: Option<u64>, merges: u64, ms: u64| {
        let (requests, kib) = (requests? as f64, bytes? as f64 / 1024.0);
        let rates = [requests, merges as f64, kib].map(|sum| sum / span.secs);
        Some([rates[0], rates[1], rates[2], over(ms as f64, requests), over(kib, requests)])
    };
    let reads = direction(span.disk_reads, span.disk_read_bytes, queue.read_merges, queue.read_ms)?;
    let writes = direction(span.disk_writes, span.disk_write_bytes, queue.write_merges, queue.write_ms)?;
    let whole_ms = 1_000.0 * span.secs;
    // The kernel counts in ticks, which a short step may have one of too many.
    let busy = (100.0 * queue.busy_ms as f64 / whole_ms).min(100.0);
    let all: Vec<f64> = reads.into_iter().chain(writes).chain([queue.weighted_ms as f64 / whole_ms, busy]).collect();
    all.try_into().ok()
}

#[cfg(test)]
mod tests {
    use lab_measure::disk::DiskQueue;

    use super::*;

    #[test]
    fn means_are_those_of_iostat() {
        let queue =
            DiskQueue { read_merges: 4, write_merges: 20, read_ms: 50, write_ms: 0, busy_ms: 500, weighted_ms: 3_000 };
        let mut span = Difference {
            secs: 2.0,
            disk_reads: Some(100),
            disk_read_bytes: Some(400 << 10),
            disk_writes: Some(0),
            disk_write_bytes: Some(0),
            disk_queue: Some(queue),
            ..Difference::default()
        };
        // Nothing was written: no request has a size.
        assert_eq!(means(&span), Some([50.0, 2.0, 200.0, 0.5, 4.0, 0.0, 10.0, 0.0, 0.0, 0.0, 1.5, 25.0]));
        // Folders of before have no times, file systems in memory no device.
        span.disk_queue = None;
        assert_eq!(means(&span), None);
    }
}
