//! What each index cost in a step: bytes written for one that came in, blocks read for one key, versions kept for one that lives.

use std::collections::BTreeSet;

use lab_measure::record::{CostsAt, IndexCosts};

use crate::chart::{Fold, Trace, over_time};
use crate::html::{Table, grouped, size};
use crate::lines::Lines;

/// Charts, in the order of [`IndexCosts::amplification`].
const CHARTS: [&str; 3] = [
    "bytes written for one that came in, so far",
    "blocks read for one key that was looked up, so far",
    "versions kept for one key that lives",
];
/// Lines of a chart: as many as there are colours.
const LINES_MAX: usize = 8;
/// A key that is looked up is worth as many bytes that come in: a block.
const READ_BYTES: u64 = 16 << 10;

/// The part of a step's section; nothing if no target tells what its indexes cost.
#[must_use]
pub fn part(lines: &Lines<'_>, step: &str) -> String {
    let mut table = Table::new(
        "Indexes: what each cost in the step, without its warm-up and a settle behind it",
        &[
            "target, index",
            "came in",
            "written",
            "ratio",
            "keys looked up",
            "blocks read",
            "ratio",
            "versions/live key",
        ],
    );
    let (mut charts, mut is_any) = (String::new(), false);
    for (line, entry) in lines.with(step) {
        let [first, .., last] = &entry.record.costs[..] else { continue };
        let mut used: Vec<(&String, IndexCosts)> =
            last.indexes.iter().map(|(name, costs)| (name, costs.since(&of(first, name)))).collect();
        used.retain(|(_, costs)| costs.ingested_bytes > 0 || costs.point_reads > 0);
        for (name, costs) in &used {
            let [write, read, space] = costs.amplification().map(|ratio| ratio.map_or(String::new(), two_digits));
            let (came, written) = (size(costs.ingested_bytes as f64), size(costs.written_bytes as f64));
            let (keys, blocks) = (grouped(costs.point_reads as f64), grouped(costs.point_blocks as f64));
            table.plain_row(&format!("{}, {name}", line.name), [came, written, write, keys, blocks, read, space]);
            is_any = true;
        }
        used.sort_by_key(|(_, costs)| std::cmp::Reverse(costs.ingested_bytes + READ_BYTES * costs.point_reads));
        let drawn: BTreeSet<&String> = used.iter().take(LINES_MAX).map(|(name, _)| *name).collect();
        for (which, title) in CHARTS.iter().enumerate() {
            let mut traces: Vec<Trace> = drawn
                .iter()
                .enumerate()
                .map(|(place, name)| Trace {
                    name: (*name).clone(),
                    place,
                    values: by_second(&entry.record.costs, name, which),
                })
                .collect();
            traces.retain(|trace| trace.values.iter().any(|value| !value.is_nan()));
            charts.push_str(&over_time(&format!("{step}: {title}, by index: {}", line.name), &traces, Fold::Mean));
        }
    }
    if is_any { format!("<h3>Amplification</h3>\n{charts}{}", table.finished()) } else { String::new() }
}

fn two_digits(ratio: f64) -> String {
    format!("{ratio:.2}")
}

/// Nothing of an index that was not there yet.
fn of(at: &CostsAt, name: &str) -> IndexCosts {
    at.indexes.get(name).copied().unwrap_or_default()
}

/// One ratio of an index for each second of the step, as of the moment before its end that is known; no number before there is one.
fn by_second(costs: &[CostsAt], name: &str, which: usize) -> Vec<f64> {
    let last = costs.last().map_or(0.0, |at| at.secs);
    let at_second = |second: u64| {
        let end = second as f64 + 0.5;
        let place = costs.partition_point(|at| at.secs < end).max(1) - 1;
        of(&costs[place], name).since(&of(&costs[0], name)).amplification()[which].unwrap_or(f64::NAN)
    };
    (1..=last.round() as u64).map(at_second).collect()
}
