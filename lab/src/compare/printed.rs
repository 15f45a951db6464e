//! A comparison as text.

use lab_measure::judge::Verdict;

use super::Line;
use crate::cli::Format;
use crate::table::{aligned, brief_bytes, brief_count, brief_us, csv_line, markdown};

/// The lines in the wanted form, ending with a line end.
pub fn printed(lines: &[Line], format: Format) -> String {
    match format {
        Format::Table => format!("{}\n{}\n", aligned(&rows_of(lines)), summary(lines)),
        Format::Md => format!("{}\n{}\n", markdown(&rows_of(lines)), summary(lines)),
        Format::Json => serde_json::to_string_pretty(lines).expect("lines hold only text and numbers") + "\n",
        Format::Csv => csv(lines),
    }
}

/// A number with the unit its name says.
fn with_unit(metric: &str, value: f64) -> String {
    match metric {
        _ if metric.ends_with("_us") => brief_us(value),
        _ if metric.ends_with("_ms") => brief_us(value * 1e3),
        _ if metric.ends_with("_bytes") => brief_bytes(value),
        _ if metric.contains("_per_") && value < 10.0 => format!("{value:.3}"),
        _ => brief_count(value),
    }
}

fn interval(line: &Line) -> String {
    line.ratio_low.zip(line.ratio_high).map_or_else(String::new, |(low, high)| format!("{low:.3} .. {high:.3}"))
}

/// The table: headings, then a row for each line.
pub fn rows_of(lines: &[Line]) -> Vec<Vec<String>> {
    let headings =
        ["target", "base", "step", "number", "of base", "of target", "ratio", "95 % interval", "n", "verdict"];
    let several = lines.iter().any(|line| (&line.target, &line.base) != (&lines[0].target, &lines[0].base));
    let mut rows = vec![headings.map(String::from).to_vec()];
    for line in lines {
        let show = |value: Option<f64>| value.map(|value| with_unit(line.metric, value)).unwrap_or_default();
        rows.push(vec![
            if several { line.target.clone() } else { String::new() },
            if several { line.base.clone() } else { String::new() },
            line.step.clone(),
            line.metric.to_owned(),
            show(line.base_mean),
            show(line.mean),
            line.ratio.map(|ratio| format!("{ratio:.3}")).unwrap_or_default(),
            interval(line),
            format!("{}/{}", line.base_repeats, line.repeats),
            line.verdict.name().to_owned(),
        ]);
    }
    rows
}

/// One line about a pair, and how many of each verdict.
pub fn summary(lines: &[Line]) -> String {
    let count = |wanted: Verdict| lines.iter().filter(|line| line.verdict == wanted).count();
    let counts = [Verdict::Better, Verdict::Worse, Verdict::Same, Verdict::Unclear]
        .map(|verdict| format!("{} {}", count(verdict), verdict.name()));
    let mut pairs: Vec<String> = lines.iter().map(|line| format!("{} against {}", line.target, line.base)).collect();
    pairs.dedup();
    format!("{}: {}", pairs.join("; "), counts.join(", "))
}

/// One line as a sentence.
pub fn sentence(line: &Line) -> String {
    let change = line.ratio.map_or_else(|| "no ratio".to_owned(), |ratio| format!("{:+.1} %", (ratio - 1.0) * 100.0));
    let bounds = line.ratio_low.zip(line.ratio_high).map_or_else(String::new, |(low, high)| {
        format!(" ({:+.1} .. {:+.1} %)", (low - 1.0) * 100.0, (high - 1.0) * 100.0)
    });
    format!("{} of {} is {change}{bounds} of {}: {}.{}", line.metric, line.target, line.base, line.step, line.metric)
}

fn csv(lines: &[Line]) -> String {
    let headings = [
        "base",
        "target",
        "tables",
        "clients",
        "step",
        "metric",
        "base_repeats",
        "repeats",
        "base_mean",
        "mean",
        "ratio",
        "ratio_low",
        "ratio_high",
        "p",
        "verdict",
    ];
    let mut out = csv_line(&headings.map(String::from));
    for line in lines {
        let show = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        out.push_str(&csv_line(&[
            line.base.clone(),
            line.target.clone(),
            line.tables.to_string(),
            line.clients.to_string(),
            line.step.clone(),
            line.metric.to_owned(),
            line.base_repeats.to_string(),
            line.repeats.to_string(),
            show(line.base_mean),
            show(line.mean),
            show(line.ratio),
            show(line.ratio_low),
            show(line.ratio_high),
            show(line.p),
            line.verdict.name().to_owned(),
        ]));
    }
    out
}
