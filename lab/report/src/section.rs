//! One step: bars, throughput over time, response times, costs, steadiness, the 21 columns.

use lab_measure::Kind;
use lab_measure::formula::COLUMN_NAMES;
use lab_measure::histogram::{CLASS_NAMES, Classes};

use crate::amplification;
use crate::chart::{self, Fold, SHARES, Trace};
use crate::clients;
use crate::colour;
use crate::device;
use crate::html::{Table, anchor, coloured, escaped, rate, short, size, time_us};
use crate::levels;
use crate::lines::{Entry, Lines};
use crate::tenths;

/// The heading of a step.
fn title_of(step: &str) -> String {
    let rate = |prefix: &str, what: &str| {
        let rate = step.strip_prefix(prefix)?;
        Some(format!("{what} queries with {rate} insert/s per client"))
    };
    match step {
        "l.i0" => "load without secondary indexes".into(),
        "l.x" => "create secondary indexes".into(),
        "l.i1" => "continue load with 50 inserts per transaction".into(),
        "l.i2" => "continue load with 5 inserts per transaction".into(),
        "load" => "load with the secondary indexes there from the start".into(),
        "scan.pk1" => "scan of the rows right after the load".into(),
        "scan.pk2" => "scan of the rows once more".into(),
        "scan.market" => "scan of index marketsegment".into(),
        "scan.register" => "scan of index registersegment".into(),
        "scan.pdc" => "scan of index pdc".into(),
        _ => {
            let query = rate("qr", "range").or_else(|| rate("qp", "point")).or_else(|| rate("q", "range"));
            query.unwrap_or_else(|| step.to_owned())
        }
    }
}

/// The section of a step.
#[must_use]
pub fn section(lines: &Lines<'_>, step: &str) -> String {
    let mut out = format!("<h2 id=\"{}\">{}: {}</h2>\n", anchor(step), escaped(step), escaped(&title_of(step)));
    out.push_str(&bars(lines, step));
    out.push_str(&over_time(lines, step));
    out.push_str(&tenths::part(lines, step));
    out.push_str(&clients::part(lines, step));
    for kind in [Kind::Query, Kind::Insert, Kind::Delete] {
        out.push_str(&responses(lines, step, kind));
    }
    out.push_str(&costs(lines, step));
    out.push_str(&written(lines, step));
    out.push_str(&levels::part(lines, step));
    out.push_str(&amplification::part(lines, step));
    out.push_str(&steadiness(lines, step));
    out.push_str(&columns(lines, step));
    out.push_str(&device::part(lines, step));
    out.push_str(&notes(lines, step));
    out
}

fn bars(lines: &Lines<'_>, step: &str) -> String {
    let is_query = lines.with(step).any(|(_, entry)| entry.result.is_query_step());
    let unit = if is_query { "queries/s" } else { "rows/s" };
    let main: Vec<(String, f64)> =
        lines.with(step).filter_map(|(line, entry)| Some((line.name.clone(), entry.result.main_rate()?))).collect();
    let rows: Vec<_> = main.iter().map(|(name, value)| (name.clone(), *value, rate(*value))).collect();
    let mut out = chart::bars(&format!("{step}: {unit}"), &rows);
    if is_query {
        let inserts = lines.with(step).filter_map(|(line, entry)| {
            let ips = entry.result.throughput.ips_av?;
            Some((line.name.clone(), ips, rate(ips)))
        });
        let inserts: Vec<_> = inserts.collect();
        if !inserts.is_empty() {
            out.push_str(&chart::bars(&format!("{step}: background inserts/s"), &inserts));
        }
    }
    if let Some((_, base)) = main.first().filter(|(_, base)| *base > 0.0 && main.len() > 1) {
        let rows: Vec<_> =
            main.iter().map(|(name, value)| (name.clone(), value / base, format!("{:.2}", value / base))).collect();
        out.push_str(&chart::bars(&format!("{step}: relative to the first"), &rows));
    }
    out
}

/// Every second that was complete; the last part of a second would look like a drop.
pub(crate) fn complete<T: Copy>(values: &[T], entry: &Entry<'_>) -> Vec<T> {
    let secs = entry.record.result.throughput.secs.unwrap_or(0.0) as usize;
    values[..secs.min(values.len())].to_vec()
}

/// Nothing for steps of less than two complete seconds.
fn over_time(lines: &Lines<'_>, step: &str) -> String {
    let mut out = String::new();
    if lines.with(step).all(|(_, entry)| entry.record.result.throughput.secs.unwrap_or(0.0) < 2.0) {
        return out;
    }
    for (kind, what) in [(Kind::Query, "queries/s"), (Kind::Insert, "inserts/s"), (Kind::Delete, "deletes/s")] {
        let traces = |value: &dyn Fn(&lab_measure::Series) -> Vec<f64>| -> Vec<Trace> {
            lines
                .with(step)
                .enumerate()
                .filter_map(|(place, (line, entry))| {
                    let values = complete(&value(entry.record.series_of(kind)?), entry);
                    Some(Trace { name: line.name.clone(), place, values })
                })
                .collect()
        };
        let rates = traces(&|series| series.counts.iter().map(|count| *count as f64).collect());
        out.push_str(&chart::over_time(&format!("{step}: {what}, second by second"), &rates, Fold::Mean));
        let worst = traces(&|series| series.worst_us.iter().map(|us| *us as f64 / 1e3).collect());
        let heading = format!("{step}: worst {} of each second, ms", kind.name());
        out.push_str(&chart::over_time(&heading, &worst, Fold::Largest));
    }
    out
}

fn responses(lines: &Lines<'_>, step: &str, kind: Kind) -> String {
    let with: Vec<_> = lines
        .with(step)
        .enumerate()
        .filter_map(|(place, (line, entry))| Some((place, line, entry.record.histograms.get(kind.name())?)))
        .collect();
    if with.is_empty() {
        return String::new();
    }
    let mut out = format!("<h3>Response times: {}</h3>\n", kind.name());
    let headings: Vec<&str> = ["target"].into_iter().chain(CLASS_NAMES).chain(["max s"]).collect();
    let mut table = Table::new("Percent of responses up to each bound", &headings);
    let largest: Vec<f64> = with.iter().map(|(_, _, kept)| kept.classes.max_ns as f64 / 1e9).collect();
    let colours = colour::largest(&largest);
    for (row, (_, line, kept)) in with.iter().enumerate() {
        let (total, percents) = (kept.classes.total(), kept.classes.percents());
        let classes = kept.classes.counts.iter().zip(percents);
        let shaded = classes.map(|(count, percent)| (Classes::printed(*count, total), colour::shade(percent)));
        let last = coloured(format!("{:.6}", largest[row]), colours[row]);
        table.row(&line.name, shaded.chain([last]));
    }
    out.push_str(&table.finished());
    let mut traces = Vec::new();
    for (place, line, kept) in &with {
        let mut add = |name: String, place: usize, latency: lab_measure::Latency| {
            let values = SHARES.iter().map(|(share, _)| latency.quantile_us(*share).unwrap_or(0.0)).collect();
            traces.push(Trace { name, place, values });
        };
        add(line.name.clone(), *place, kept.service.restored());
        if let Some(intended) = &kept.intended {
            add(format!("{} from the intended start", line.name), place + with.len(), intended.restored());
        }
    }
    let heading = format!("{step}: {} response time by percentile", kind.name());
    out + &chart::by_percentile(&heading, &traces)
}

fn costs(lines: &Lines<'_>, step: &str) -> String {
    let headings = [
        "target",
        "cpu µs/op",
        "reads/op",
        "rKB/op",
        "wKB/op",
        "wKB/insert",
        "switches/op",
        "data",
        "total",
        "bytes/row",
        "rss",
        "rss less before open",
    ];
    let mut table = Table::new(
        "Cost of an operation, and space: processor time and bytes of this process, reads of the device; \
         where a settle followed, its costs and the size after it",
        &headings,
    );
    for (line, entry) in lines.with(step) {
        let (costs, space) = (&entry.result.costs, &entry.result.space);
        let number = |value: Option<f64>| value.map(short).unwrap_or_default();
        let bytes = |value: Option<f64>| value.map(size).unwrap_or_default();
        let cells = [
            number(costs.cpu_us_per_op),
            number(costs.reads_per_query.or(costs.reads_per_insert)),
            number(costs.rkb_per_op),
            number(costs.wkb_per_op),
            number(costs.wkb_per_insert),
            number(costs.cs_per_op),
            bytes(space.data_bytes),
            bytes(space.total_bytes),
            number(space.bytes_per_row),
            bytes(space.rss_bytes),
            bytes(space.rss_bytes.zip(entry.record.rss_before_open_bytes).map(|(rss, before)| rss - before as f64)),
        ];
        table.plain_row(&line.name, cells);
    }
    format!("<h3>Hardware</h3>\n{}", table.finished())
}

const WRITTEN: &str = "written.";

/// Bytes written by cause, as the engine counts them, beside what the kernel counted for this process.
fn written(lines: &Lines<'_>, step: &str) -> String {
    let causes_of = |entry: &Entry<'_>| -> Vec<(String, u64)> {
        let of_cause = |(name, after): (&String, &u64)| {
            let before = entry.record.counters_before.get(name).copied().unwrap_or(0);
            Some((name.strip_prefix(WRITTEN)?.to_owned(), after.saturating_sub(before)))
        };
        entry.record.counters_after.iter().filter_map(of_cause).collect()
    };
    let mut causes: Vec<String> =
        lines.with(step).flat_map(|(_, entry)| causes_of(entry)).map(|(cause, _)| cause).collect();
    causes.sort();
    causes.dedup();
    if causes.is_empty() {
        return String::new();
    }
    let headings: Vec<&str> = ["target"]
        .into_iter()
        .chain(causes.iter().map(String::as_str))
        .chain(["all", "kernel", "difference"])
        .collect();
    let mut table = Table::new("Bytes written by cause, and what the kernel counted (the settle included)", &headings);
    for (line, entry) in lines.with(step) {
        let by_cause = causes_of(entry);
        let bytes = |cause: &String| by_cause.iter().find(|(name, _)| name == cause).map(|(_, bytes)| *bytes as f64);
        let all: f64 = by_cause.iter().map(|(_, bytes)| *bytes as f64).sum();
        let settle = entry.record.settle.as_ref().map_or(Some(0), |settle| settle.process_write_bytes);
        let kernel = entry.record.kernel.process_write_bytes.zip(settle).map(|(step, settle)| (step + settle) as f64);
        let share = kernel.filter(|kernel| *kernel > 0.0).map(|kernel| 100.0 * (all - kernel) / kernel);
        let mut cells: Vec<String> = causes.iter().map(|cause| bytes(cause).map(size).unwrap_or_default()).collect();
        cells.push(size(all));
        cells.push(kernel.map(size).unwrap_or_default());
        cells.push(share.map(|share| format!("{share:+.1} %")).unwrap_or_default());
        table.plain_row(&line.name, cells);
    }
    table.finished()
}

fn steadiness(lines: &Lines<'_>, step: &str) -> String {
    if lines.with(step).all(|(_, entry)| entry.result.steadiness.stall_max_ms.is_none()) {
        // One statement a table, as in l.x: it has no series and no gaps.
        return String::new();
    }
    let headings = [
        "target",
        "stalls ≥ 50 ms",
        "longest",
        "at second",
        "slow seconds",
        "rate that 99 % of seconds reach",
        "fairness",
        "min-key first",
        "min-key worst later",
        "GC debt",
        "agreed rate",
    ];
    let mut table = Table::new("Steadiness", &headings);
    for (line, entry) in lines.with(step) {
        let (steadiness, throughput) = (&entry.result.steadiness, &entry.result.throughput);
        let whole = |value: Option<f64>| value.map(|value| format!("{value:.0}")).unwrap_or_default();
        let ms = |value: Option<f64>| value.map(|ms| time_us(ms * 1e3)).unwrap_or_default();
        let low = if entry.result.is_query_step() { throughput.qps_99 } else { throughput.ips_99 };
        let cells = [
            whole(steadiness.stalls),
            ms(steadiness.stall_max_ms),
            // Those of 50 ms and more are kept, the longest first.
            entry.record.stalls.first().map(|span| format!("{:.1}", span.from_ns as f64 / 1e9)).unwrap_or_default(),
            whole(steadiness.stall_secs),
            low.map(rate).unwrap_or_default(),
            steadiness.fairness_pct.map(|pct| format!("{pct:.1} %")).unwrap_or_default(),
            ms(steadiness.min_key_ms),
            ms(steadiness.min_key_max_ms),
            steadiness.gc_debt.map(crate::html::grouped).unwrap_or_default(),
            entry.result.sla_met.map(|met| if met { "kept" } else { "missed" }.to_owned()).unwrap_or_default(),
        ];
        table.plain_row(&line.name, cells);
    }
    table.finished()
}

fn columns(lines: &Lines<'_>, step: &str) -> String {
    let headings: Vec<&str> = ["target"].into_iter().chain(COLUMN_NAMES).collect();
    let mut table = Table::new(
        "The insert benchmark's 21 columns: whole machine and device, first client's p50 and p99",
        &headings,
    );
    for (line, entry) in lines.with(step) {
        table.plain_row(&line.name, COLUMN_NAMES.iter().map(|name| entry.record.columns.printed(name)));
    }
    table.finished()
}

fn notes(lines: &Lines<'_>, step: &str) -> String {
    let mut out = String::new();
    for (line, entry) in lines.with(step) {
        for note in &entry.record.notes {
            out.push_str(&format!("<li>{}: {}</li>\n", escaped(&line.name), escaped(note)));
        }
    }
    if out.is_empty() { out } else { format!("<ul class=\"soft\">\n{out}</ul>\n") }
}
