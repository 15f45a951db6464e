//! The tables over all steps: absolute, relative, background rates, and what is compared across steps.

use lab_measure::judge::{Estimate, Verdict, corrected, estimate, verdict};

use crate::colour::{self, Cell};
use crate::html::{Table, coloured, rate, time_us};
use crate::lines::{Entry, Lines};

/// The summary.
#[must_use]
pub fn section(lines: &Lines<'_>) -> String {
    let mut out = String::from("<h2 id=\"summary\">Summary</h2>\n");
    if lines.all.is_empty() {
        return out + "<p>No step was finished.</p>\n";
    }
    out.push_str(
        "<p class=\"soft\">Absolute: red is within a quarter of the range from the lowest value of the column, green \
         within a quarter from the highest; no red where the lowest is at least 80 % of the highest; gray missed the \
         background rate. Relative: to the first row; yellow is more than 5 % less, blue more than 5 % more.</p>\n",
    );
    out.push_str(&absolute(lines));
    out.push_str(&relative(lines));
    out.push_str(&verdicts(lines));
    out.push_str(&background(lines));
    out.push_str(&across_steps(lines));
    out
}

fn headings<'a>(lines: &'a Lines<'_>, wanted: impl Fn(&str) -> bool) -> Vec<&'a str> {
    lines.steps.iter().map(String::as_str).filter(|step| wanted(step)).collect()
}

fn with_name<'a>(first: &'a str, steps: &[&'a str]) -> Vec<&'a str> {
    std::iter::once(first).chain(steps.iter().copied()).collect()
}

/// Colours of one column, for the lines that have the step.
fn absolute_column(lines: &Lines<'_>, step: &str) -> Vec<Option<(f64, Cell)>> {
    let value = |entry: &Entry<'_>| Some((entry.result.main_rate()?, entry.result.sla_met != Some(false)));
    let cells: Vec<Option<(f64, bool)>> = lines.all.iter().map(|line| line.entry(step).and_then(value)).collect();
    let present: Vec<(f64, bool)> = cells.iter().flatten().copied().collect();
    let mut colours = colour::absolute(&present).into_iter();
    cells.into_iter().map(|cell| cell.map(|(value, _)| (value, colours.next().unwrap_or(Cell::Plain)))).collect()
}

fn absolute(lines: &Lines<'_>) -> String {
    let steps = headings(lines, |_| true);
    let columns: Vec<_> = steps.iter().map(|step| absolute_column(lines, step)).collect();
    let mut table = Table::new(
        "Absolute: rows/s in loads, queries/s elsewhere; medians of repetitions",
        &with_name("target", &steps),
    );
    for (place, line) in lines.all.iter().enumerate() {
        let cells = columns.iter().map(|column| match column[place] {
            Some((value, cell)) => coloured(rate(value), cell),
            None => (String::new(), String::new()),
        });
        table.row(&line.name, cells);
    }
    table.finished()
}

fn relative(lines: &Lines<'_>) -> String {
    let steps = headings(lines, |_| true);
    let base = &lines.all[0];
    let mut table = Table::new("Relative to the first row", &with_name("target", &steps));
    for line in &lines.all {
        let cells = steps.iter().map(|step| {
            let of = |line: &crate::lines::Line<'_>| line.entry(step).and_then(|entry| entry.result.main_rate());
            match of(line).zip(of(base)).filter(|(_, base)| *base > 0.0) {
                Some((value, base)) => coloured(format!("{:.2}", value / base), colour::relative(value / base)),
                None => (String::new(), String::new()),
            }
        });
        table.row(&line.name, cells);
    }
    table.finished()
}

/// A difference below this does not matter; the same as in `lab compare`.
const MARGIN: f64 = 0.05;

/// What `lab compare` says of the rates: 95 % interval of each ratio, and the verdict over all of them together.
fn verdicts(lines: &Lines<'_>) -> String {
    let Some((base, others)) = lines.all.split_first().filter(|(_, others)| !others.is_empty()) else {
        return String::new();
    };
    let steps = headings(lines, |_| true);
    let of_line = |line: &crate::lines::Line<'_>| -> Vec<Option<Estimate>> {
        let of_step = |step: &&str| {
            let made = estimate(&base.entry(step)?.rates, &line.entry(step)?.rates)?;
            made.interval.map(|_| made)
        };
        steps.iter().map(of_step).collect()
    };
    let estimates: Vec<Vec<Option<Estimate>>> = others.iter().map(of_line).collect();
    let probabilities: Vec<f64> = estimates.iter().flatten().flatten().filter_map(|made| made.p).collect();
    if probabilities.is_empty() {
        return String::new();
    }
    let mut corrected = corrected(&probabilities).into_iter();
    let caption = "95 % interval of the ratio, and what can be claimed (fewer than five repetitions: nothing)";
    let mut table = Table::new(caption, &with_name("target", &steps));
    for (line, made) in others.iter().zip(estimates) {
        let cells = made.into_iter().map(|made| {
            let Some(made) = made else { return (String::new(), String::new()) };
            let said = verdict(&made, corrected.next().unwrap_or(1.0), true, MARGIN);
            let (low, high) = made.interval.unwrap_or((made.ratio, made.ratio));
            let cell = match said {
                Verdict::Better => Cell::Blue,
                Verdict::Worse => Cell::Yellow,
                Verdict::Same | Verdict::Unclear => Cell::Plain,
            };
            coloured(format!("{low:.2} … {high:.2} {}", said.name()), cell)
        });
        table.row(&line.name, cells);
    }
    table.finished()
}

fn background(lines: &Lines<'_>) -> String {
    let steps = headings(lines, |step| step.starts_with('q'));
    if steps.is_empty() {
        return String::new();
    }
    let wanted = |entry: &Entry<'_>| Some(entry.record.paced_at? as f64 * f64::from(entry.result.clients));
    let mut table = Table::new(
        "Background inserts/s during the query steps; red is below 95 % of the target",
        &with_name("target", &steps),
    );
    for line in &lines.all {
        let cells = steps.iter().map(|step| {
            let entry = line.entry(step);
            match entry.and_then(|entry| entry.result.throughput.ips_av.zip(wanted(entry))) {
                Some((got, wanted)) => coloured(rate(got), colour::background(got, wanted)),
                None => (String::new(), String::new()),
            }
        });
        table.row(&line.name, cells);
    }
    let targets = steps.iter().map(|step| {
        let rates: Vec<f64> = lines.with(step).filter_map(|(_, entry)| wanted(entry)).collect();
        let mut rates: Vec<String> = rates.into_iter().map(rate).collect();
        rates.dedup();
        (rates.join(" / "), "gray".to_owned())
    });
    table.row("target", targets);
    table.finished()
}

/// One row a line, one column a step, for a number that not every step has; empty when none has it.
fn by_step(lines: &Lines<'_>, caption: &str, text: impl Fn(&Entry<'_>) -> Option<String>) -> String {
    let steps = headings(lines, |step| lines.with(step).any(|(_, entry)| text(entry).is_some()));
    if steps.is_empty() {
        return String::new();
    }
    let mut table = Table::new(caption, &with_name("target", &steps));
    for line in &lines.all {
        table.plain_row(&line.name, steps.iter().map(|step| line.entry(step).and_then(&text).unwrap_or_default()));
    }
    table.finished()
}

fn across_steps(lines: &Lines<'_>) -> String {
    let mut out = String::from("<h3>Steadiness over all steps</h3>\n");
    out.push_str(&by_step(lines, "Longest stall; in paced steps the largest lateness", |entry| {
        entry.result.steadiness.stall_max_ms.map(|ms| time_us(ms * 1e3))
    }));
    out.push_str(&by_step(lines, "First look-up of the smallest key", |entry| {
        entry.result.steadiness.min_key_ms.map(|ms| time_us(ms * 1e3))
    }));
    out.push_str(&by_step(lines, "Fairness: fastest and slowest client, seconds, difference in percent", |entry| {
        let steadiness = &entry.result.steadiness;
        let (least, most) = steadiness.client_secs_min.zip(steadiness.client_secs_max)?;
        Some(format!("{least:.1} / {most:.1} / {:.1} %", steadiness.fairness_pct?))
    }));
    out.push_str(&by_step(lines, "Agreed rate (95 % of inserts and of deletes)", |entry| {
        entry.result.sla_met.map(|met| if met { "kept" } else { "missed" }.to_owned())
    }));
    out.push_str(&by_step(lines, "Dead versions and tombstones at the end of the step", |entry| {
        entry.result.steadiness.gc_debt.map(crate::html::grouped)
    }));
    out.push_str(&by_step(lines, "Years until the drive has written its rated volume", |entry| {
        entry.result.steadiness.drive_life_years.map(crate::html::short)
    }));
    out.push_str(&by_step(lines, "Lowest and highest rate of the repetitions", |entry| {
        entry.spread.map(|(least, most)| format!("{} – {}", rate(least), rate(most)))
    }));
    out
}
