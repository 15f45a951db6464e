//! Tables as a study has them: rows are targets, columns numbers of one step or of several.
//!
//! A column is written `HEADING = NUMBER@STEP+STEP`. Without a heading the number's name is it; without a step it is
//! that of the table; several steps are added up. A number is one of [`NUMBERS`], by the names of the published tables,
//! or any key of the results.

use serde::{Deserialize, Serialize};

use crate::record::StepRecord;
use crate::result::StepResult;

/// Bytes in the tables' GB.
const GIB: f64 = (1u64 << 30) as f64;
/// KB in the tables' MB.
const KIB: f64 = 1024.0;

/// Numbers by the names of the published tables: how each is read, its decimals.
pub const NUMBERS: &[(&str, &str, usize)] = &[
    ("ips.av", "inserts a second", 0),
    ("ips.99", "the insert rate that 99 % of the seconds reach; with fewer than ten seconds, marked *, the lowest", 0),
    ("qps.av", "queries a second", 0),
    ("qps.99", "the query rate that 99 % of the seconds reach; with fewer than ten seconds, marked *, the lowest", 0),
    ("r/i", "reads an insert: of the device, else what Trefoil asked of its file layer, marked *", 3),
    ("rKB/i", "KB read an insert", 2),
    ("wKB/i", "KB written an insert", 2),
    ("rKB/q", "KB read a query", 2),
    ("Mcpu/i", "millionths of a percentage point of the machine's processors an insert", 0),
    ("CPU/q", "millionths of a percentage point of the machine's processors a query", 0),
    ("rKB/o", "KB read a row of a scan", 3),
    ("Mcpu/o", "millionths of a percentage point of the machine's processors a row of a scan", 3),
    ("size(GB)", "GB (2^30) of everything on disk", 3),
    ("rss(GB)", "GB (2^30) of resident memory", 3),
    ("r/s", "reads a second: of the device, else what Trefoil asked of its file layer, marked *", 0),
    ("rMB/s", "MB read a second", 1),
    ("wMB/s", "MB written a second", 1),
    ("rGB", "GB (2^30) read in the step", 3),
    ("cpu", "processor use of the machine, percent", 1),
    ("secs", "seconds", 2),
    ("min(s)", "seconds of the first look-up of the smallest key", 3),
    ("diff", "seconds between the fastest and the slowest client", 2),
    ("pct", "the same in percent of the fastest", 1),
    ("debt", "dead versions and tombstones at the end of the step", 0),
    ("tpm", "transactions a minute", 0),
    ("nopm", "new orders committed a minute", 0),
    ("cores", "processors that the run may use", 0),
    ("cpu%", "processor use in percent of those processors", 1),
];

/// A table of a study.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Its caption.
    pub title: String,
    /// The part of the plan that it is of; empty = every part that has its steps.
    pub run: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// What the column of the targets is called.
    pub rows: String,
    /// Whether the targets stand behind the numbers, as in the studies.
    pub names_last: bool,
}

/// A column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Its heading.
    pub heading: String,
    /// The number.
    pub number: String,
    /// The steps whose numbers are added up.
    pub steps: Vec<String>,
}

impl Column {
    /// Reads `HEADING = NUMBER@STEP+STEP`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, step: Option<&str>) -> Result<Column, String> {
        let (heading, rest) = match text.split_once(" = ") {
            Some((heading, rest)) => (Some(heading.trim()), rest.trim()),
            None => (None, text.trim()),
        };
        let (number, steps) = match rest.split_once('@') {
            Some((number, steps)) => (number, steps.split('+').map(str::to_owned).collect()),
            None => (rest, step.map(str::to_owned).into_iter().collect::<Vec<_>>()),
        };
        if steps.is_empty() {
            return Err(format!("column `{text}` has no step: {number}@STEP, or a `step` of the table"));
        }
        let heading = heading.unwrap_or(number).to_owned();
        Ok(Column { heading, number: number.to_owned(), steps })
    }
}

/// Names that a column can have.
#[must_use]
pub fn number_names() -> Vec<&'static str> {
    let keys = StepResult::default().numbers().into_iter().map(|(name, _)| name);
    NUMBERS.iter().map(|(name, ..)| *name).chain(keys).collect()
}

/// A table that was filled: rows of text, the headings first, and what is below it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Filled {
    /// The caption.
    pub title: String,
    /// The headings and the rows.
    pub rows: Vec<Vec<String>>,
    /// What the marks mean.
    pub notes: Vec<String>,
}

/// Fills a table from a line of steps for each target and case: its name, and one record a step.
#[must_use]
pub fn filled(spec: &Spec, lines: &[(String, Vec<&StepRecord>)]) -> Filled {
    let with_name = |name: String, cells: Vec<String>| match spec.names_last {
        true => cells.into_iter().chain([name]).collect::<Vec<_>>(),
        false => [name].into_iter().chain(cells).collect(),
    };
    let mut rows =
        vec![with_name(spec.rows.clone(), spec.columns.iter().map(|column| column.heading.clone()).collect())];
    for (name, records) in lines {
        let cells: Vec<String> = spec.columns.iter().map(|column| cell(column, records)).collect();
        if cells.iter().any(|cell| !cell.is_empty()) {
            rows.push(with_name(name.clone(), cells));
        }
    }
    let marked = rows.iter().skip(1).flatten().any(|cell| cell.ends_with('*'));
    let note = "* not measured as the original does: of less than ten seconds the lowest one, or what Trefoil asked of its \
                file layer instead of what the device was asked";
    let notes = if marked { vec![note.split_whitespace().collect::<Vec<_>>().join(" ")] } else { Vec::new() };
    Filled { title: spec.title.clone(), rows, notes }
}

fn cell(column: &Column, records: &[&StepRecord]) -> String {
    let mut sum = 0.0;
    let mut is_marked = false;
    for step in &column.steps {
        let found = records.iter().find(|record| record.result.step == *step);
        let Some((value, marked)) = found.and_then(|record| number(&column.number, record)) else {
            return String::new();
        };
        (sum, is_marked) = (sum + value, is_marked | marked);
    }
    let decimals = NUMBERS.iter().find(|(name, ..)| *name == column.number).map_or(2, |(_, _, decimals)| *decimals);
    format!("{sum:.decimals$}{}", if is_marked { "*" } else { "" })
}

/// A number of a step, and whether it was measured in another way than the original does.
#[must_use]
pub fn number(name: &str, record: &StepRecord) -> Option<(f64, bool)> {
    let result = &record.result;
    let (throughput, costs) = (&result.throughput, &result.costs);
    let plain = |value: Option<f64>| value.map(|value| (value, false));
    let mega_cpu = |rate: Option<f64>| {
        let rate = rate.filter(|rate| *rate > 0.0)?;
        Some((1e6 * costs.cpu_pct? / rate, false))
    };
    match name {
        "ips.av" => plain(throughput.ips_av),
        "ips.99" => plain(throughput.ips_99).or_else(|| Some((lowest(record, "insert", throughput.ips_av?), true))),
        "qps.av" => plain(throughput.qps_av),
        "qps.99" => plain(throughput.qps_99).or_else(|| Some((lowest(record, "query", throughput.qps_av?), true))),
        "r/i" => {
            plain(costs.reads_per_insert).or_else(|| Some((asked_reads(record)? / throughput.rows.filter(some)?, true)))
        }
        "r/s" => {
            plain(costs.reads_per_s).or_else(|| Some((asked_reads(record)? / throughput.secs.filter(some)?, true)))
        }
        "rKB/i" => plain(costs.rkb_per_insert),
        "wKB/i" => plain(costs.wkb_per_insert),
        "rKB/q" => plain(costs.rkb_per_query),
        "rKB/o" => plain(costs.rkb_per_op),
        "Mcpu/i" => mega_cpu(throughput.ips_av),
        "CPU/q" => mega_cpu(throughput.qps_av),
        "Mcpu/o" => mega_cpu(Some(throughput.rows? / throughput.secs.filter(some)?)),
        "size(GB)" => plain(result.space.total_bytes.map(|bytes| bytes / GIB)),
        "rss(GB)" => plain(result.space.rss_bytes.map(|bytes| bytes / GIB)),
        "rMB/s" => plain(of_process(costs.rmb_per_s, record.kernel.process_read_bytes, record.kernel.secs)),
        "wMB/s" => plain(of_process(costs.wmb_per_s, record.kernel.process_write_bytes, record.kernel.secs)),
        "rGB" => plain(costs.rkb_per_op.zip(throughput.rows).map(|(kib, rows)| kib * rows / KIB / KIB)),
        "cpu" => plain(costs.cpu_pct),
        "secs" => plain(throughput.secs),
        "min(s)" => plain(result.steadiness.min_key_ms.map(|ms| ms / 1e3)),
        "diff" => plain(difference_secs(result)),
        "pct" => plain(result.steadiness.fairness_pct.or_else(|| difference_secs(result).filter(|secs| *secs == 0.0))),
        "debt" => plain(result.steadiness.gc_debt),
        "tpm" => plain(throughput.tpm),
        "nopm" => plain(throughput.nopm),
        "cores" => Some((f64::from(result.cores), false)),
        "cpu%" => plain(costs.cores_cpu_pct),
        key => plain(result.numbers().into_iter().find(|(name, _)| *name == key)?.1),
    }
}

fn some(value: &f64) -> bool {
    *value > 0.0
}

fn difference_secs(result: &StepResult) -> Option<f64> {
    let steadiness = &result.steadiness;
    Some(steadiness.client_secs_max? - steadiness.client_secs_min?)
}

/// The device's, else that of the engine's process.
fn of_process(device: Option<f64>, bytes: Option<u64>, secs: f64) -> Option<f64> {
    device.or_else(|| Some(bytes? as f64 / KIB / KIB / Some(secs).filter(some)?))
}

/// The lowest whole second, or the average of a step that has none.
fn lowest(record: &StepRecord, kind: &str, average: f64) -> f64 {
    let counts = record.series.get(kind).map(|series| series.counts.as_slice()).unwrap_or_default();
    let whole = &counts[..counts.len().saturating_sub(1)];
    whole.iter().min().map_or(average, |count| *count as f64)
}

/// Reads that Trefoil asked of its file layer during the step.
fn asked_reads(record: &StepRecord) -> Option<f64> {
    let (before, after) = (record.counters_before.get("read.calls")?, record.counters_after.get("read.calls")?);
    Some(after.saturating_sub(*before) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(step: &str, secs: f64) -> StepRecord {
        let mut record = StepRecord::default();
        record.result.step = step.into();
        record.result.throughput.secs = Some(secs);
        record.result.throughput.ips_av = Some(200.0);
        record.result.costs.cpu_pct = Some(50.0);
        record
    }

    #[test]
    fn columns_are_read() {
        let column = Column::parse("2+3+4 = secs@scan.market+scan.register+scan.pdc", None).unwrap();
        assert_eq!((column.heading.as_str(), column.number.as_str(), column.steps.len()), ("2+3+4", "secs", 3));
        let column = Column::parse("wKB/i", Some("load")).unwrap();
        assert_eq!((column.heading.as_str(), column.steps), ("wKB/i", vec!["load".to_owned()]));
        assert!(Column::parse("wKB/i", None).unwrap_err().contains("has no step"));
    }

    #[test]
    fn steps_add_up_and_what_is_missing_stays_empty() {
        let (one, two) = (record("a", 1.25), record("b", 2.5));
        let columns =
            ["secs@a+b", "secs@a+c", "Mcpu/i@a", "ips.99@a"].map(|text| Column::parse(text, None).unwrap()).to_vec();
        let spec = Spec { title: "t".into(), columns, rows: "engine".into(), names_last: true, ..Spec::default() };
        let filled = filled(&spec, &[("x".into(), vec![&one, &two]), ("y".into(), vec![])]);
        // A target without any of the numbers has no row; the rate of a short step is marked.
        assert_eq!(filled.rows.len(), 2);
        assert_eq!(filled.rows[1], ["3.75", "", "250000", "200*", "x"]);
        assert_eq!((filled.rows[0][4].as_str(), filled.notes.len()), ("engine", 1));
    }

    #[test]
    fn every_named_number_is_known_to_the_code() {
        // Of a record that has everything, every name has a value.
        let mut full = StepRecord::default();
        full.result.throughput.values_mut().into_iter().for_each(|value| *value = Some(1.0));
        full.result.responses.values_mut().into_iter().for_each(|value| *value = Some(1.0));
        full.result.costs.values_mut().into_iter().for_each(|value| *value = Some(1.0));
        full.result.space.values_mut().into_iter().for_each(|value| *value = Some(1.0));
        full.result.steadiness.values_mut().into_iter().for_each(|value| *value = Some(1.0));
        for (name, ..) in NUMBERS {
            assert!(number(name, &full).is_some(), "{name}");
        }
        assert!(number("p99_us", &full).is_some() && number("nothing", &full).is_none());
    }
}
