//! Log-structured merge trees in a step: how large levels were, what was written for them and why, where writers waited.

use std::collections::BTreeMap;

use lab_measure::record::LevelsAt;

use crate::chart::{Fold, Trace, over_time};
use crate::html::{Table, grouped, size};
use crate::lines::{Entry, Lines};
use crate::stack;

/// The part of a step's section; nothing if no target has levels.
#[must_use]
pub fn part(lines: &Lines<'_>, step: &str) -> String {
    let causes = causes(lines, step);
    let mut out = String::new();
    for (line, entry) in lines.with(step) {
        out.push_str(&sizes(&format!("{step}: bytes by level, second by second: {}", line.name), &entry.record.levels));
    }
    out.push_str(&strands(lines, step));
    out.push_str(&causes);
    out.push_str(&delays(lines, step));
    // Steps of a moment have neither.
    if out.is_empty() { out } else { format!("<h3>Levels</h3>\n{out}") }
}

fn sizes(title: &str, levels: &[LevelsAt]) -> String {
    let count = levels.iter().map(|at| at.bytes.len()).max().unwrap_or(0);
    let value = |at: &LevelsAt, level: usize| at.bytes.get(level).copied().unwrap_or(0) as f64;
    let of_level = |level: usize| Trace {
        name: if level == 0 { "level 0, what flushes wrote".into() } else { format!("level {level}") },
        place: level,
        values: levels.iter().map(|at| value(at, level)).collect(),
    };
    // The bottom lowest, as it is drawn everywhere.
    let used = (0..count).rev().map(of_level).filter(|trace| trace.values.iter().any(|value| *value > 0.0));
    let seconds: Vec<f64> = levels.iter().map(|at| at.secs).collect();
    stack::over_time(title, &seconds, &used.collect::<Vec<_>>())
}

/// What a look-up has to look at, second by second.
fn strands(lines: &Lines<'_>, step: &str) -> String {
    let traces = lines.with(step).enumerate().filter(|(_, (_, entry))| entry.record.levels.len() > 1);
    let traces = traces.map(|(place, (line, entry))| Trace {
        name: line.name.clone(),
        place,
        values: entry.record.levels.iter().map(|at| at.strands.iter().sum::<u64>() as f64).collect(),
    });
    let traces: Vec<Trace> = traces.collect();
    over_time(&format!("{step}: sorted runs that a look-up may meet, all indexes together"), &traces, Fold::Largest)
}

/// What came in a step, by a part of its name; of all indexes together. Settles are in it where one followed.
fn during(entry: &Entry<'_>, part: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (name, after) in &entry.record.counters_after {
        let Some((_, key)) = name.split_once(part) else { continue };
        let before = entry.record.counters_before.get(name).copied().unwrap_or(0);
        *sums.entry(key.to_owned()).or_default() += after.saturating_sub(before);
    }
    sums
}

/// How much was flushed, merged into each level and moved, by target.
fn causes(lines: &Lines<'_>, step: &str) -> String {
    let all: Vec<(String, BTreeMap<String, u64>, u64)> = lines
        .with(step)
        .map(|(line, entry)| {
            let came = during(entry, ".ingested_bytes").values().sum();
            (line.name.clone(), during(entry, ".lsm."), came)
        })
        .filter(|(_, causes, _)| !causes.is_empty())
        .collect();
    let mut keys: Vec<&String> = all.iter().flat_map(|(_, causes, _)| causes.keys()).collect();
    // `flush`, then `merge_1` and so on, then `move`.
    keys.sort_unstable();
    keys.dedup();
    if keys.is_empty() {
        return String::new();
    }
    let names: Vec<String> = keys.iter().map(|key| name_of(key)).collect();
    let values = |causes: &BTreeMap<String, u64>| -> Vec<f64> {
        keys.iter().map(|key| causes.get(*key).copied().unwrap_or(0) as f64).collect()
    };
    let rows: Vec<_> =
        all.iter().map(|(name, causes, _)| (name.clone(), values(causes), size(written(causes)))).collect();
    let mut out =
        stack::bars(&format!("{step}: bytes of levels by cause; what was moved was not written"), &names, &rows);
    let headings: Vec<&str> =
        ["target"].into_iter().chain(names.iter().map(String::as_str)).chain(["written", "came in", "ratio"]).collect();
    let mut table = Table::new("Levels: bytes by cause, the settle included", &headings);
    for (name, causes, came) in &all {
        let mut cells: Vec<String> = values(causes).into_iter().map(size).collect();
        cells.extend([size(written(causes)), size(*came as f64)]);
        cells.push(if *came > 0 { format!("{:.2}", written(causes) / *came as f64) } else { String::new() });
        table.plain_row(name, cells);
    }
    out.push_str(&table.finished());
    out
}

fn name_of(key: &str) -> String {
    key.strip_prefix("merge_").map_or_else(|| key.to_owned(), |level| format!("merge into {level}"))
}

fn written(causes: &BTreeMap<String, u64>) -> f64 {
    causes.iter().filter(|(key, _)| *key != "move").map(|(_, bytes)| *bytes as f64).sum()
}

/// Commits that waited for the background, by reason; nothing if none did.
fn delays(lines: &Lines<'_>, step: &str) -> String {
    let mut table = Table::new(
        "Commits that were slowed down, by what they ran ahead of",
        &["target", "reason", "commits", "seconds", "longest so far, ms"],
    );
    let mut is_any = false;
    for (line, entry) in lines.with(step) {
        let counted = during(entry, "delays.");
        for (key, count) in counted.iter().filter(|(key, count)| key.ends_with(".count") && **count > 0) {
            let reason = key.trim_end_matches(".count");
            let micros = counted.get(&format!("{reason}.us")).copied().unwrap_or(0) as f64;
            let worst = entry.record.counters_after.get(&format!("delays.{reason}.worst_us")).copied().unwrap_or(0);
            let cells = [
                reason.to_owned(),
                grouped(*count as f64),
                format!("{:.2}", micros / 1e6),
                format!("{:.1}", worst as f64 / 1e3),
            ];
            table.plain_row(&line.name, cells);
            is_any = true;
        }
    }
    if is_any { table.finished() } else { String::new() }
}
