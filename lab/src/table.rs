//! Results as text: a table for people, JSON, CSV, Markdown.

use lab_measure::formula::mcpu_per_operation;
use lab_measure::result::{Repeat, StepResult};
use lab_measure::{contention, tpcc};

use crate::cli::Format;

/// Results in the wanted form, ending with a line end.
pub fn printed(results: &[StepResult], format: Format, legacy_units: bool) -> String {
    match format {
        Format::Table => {
            let blocks = contention::printed(&contention::blocks(results)) + &blocks_of_tpcc(results, aligned, "");
            aligned(&rows_of(results, legacy_units)) + &blocks
        }
        Format::Md => {
            let blocks = markdown_blocks(results) + &blocks_of_tpcc(results, markdown, "\n");
            markdown(&rows_of(results, legacy_units)) + &blocks
        }
        Format::Csv => csv(results),
        Format::Json => {
            let mut text = serde_json::to_string_pretty(results).expect("results hold only text and numbers");
            text.push('\n');
            text
        }
    }
}

/// A count with a unit: 132k, 1.25m.
pub fn brief_count(value: f64) -> String {
    match value {
        _ if value >= 1e9 => format!("{:.2}g", value / 1e9),
        _ if value >= 1e6 => format!("{:.2}m", value / 1e6),
        _ if value >= 1e4 => format!("{:.0}k", value / 1e3),
        _ if value >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    }
}

/// A time given in microseconds.
pub fn brief_us(us: f64) -> String {
    match us {
        _ if us >= 1e6 => format!("{:.2}s", us / 1e6),
        _ if us >= 1e4 => format!("{:.0}ms", us / 1e3),
        _ if us >= 1e3 => format!("{:.1}ms", us / 1e3),
        _ if us >= 10.0 => format!("{us:.0}us"),
        _ => format!("{us:.2}us"),
    }
}

/// Bytes in binary units.
pub fn brief_bytes(bytes: f64) -> String {
    match bytes {
        _ if bytes >= 1e9 => format!("{:.2} GiB", bytes / 1_073_741_824.0),
        _ => format!("{:.1} MiB", bytes / 1_048_576.0),
    }
}

fn repeat_of(result: &StepResult) -> String {
    match &result.repeat {
        Repeat::Number(number) => number.to_string(),
        Repeat::Name(name) => name.clone(),
    }
}

/// Reads one cell of a result.
type CellOf = Box<dyn Fn(&StepResult) -> String>;

/// Heading and rows; columns that say the same for all rows are left out.
/// The table: headings, then a row for each result.
pub fn rows_of(results: &[StepResult], legacy_units: bool) -> Vec<Vec<String>> {
    let differ = |of: &dyn Fn(&StepResult) -> String| results.windows(2).any(|pair| of(&pair[0]) != of(&pair[1]));
    let mut leading: Vec<(&str, CellOf)> = Vec::new();
    if differ(&|result| result.target.clone()) {
        leading.push(("target", Box::new(|result| result.target.clone())));
    }
    if differ(&|result| format!("{:?}", result.case())) {
        leading.push(("tables", Box::new(|result| result.tables.to_string())));
        leading.push(("clients", Box::new(|result| result.clients.to_string())));
        let cores = |result: &StepResult| result.case().2.map(|cores| cores.to_string()).unwrap_or_default();
        leading.push(("cores", Box::new(cores)));
    }
    if differ(&repeat_of) {
        leading.push(("repeat", Box::new(repeat_of)));
    }
    let cpu = if legacy_units { "Mcpu/op" } else { "cpu us/op" };
    let fixed = [
        "step", "ops/s", "ops/s.99", "ins/s", "p50", "p99", "max", cpu, "wKB/ins", "rKB/op", "size", "rss", "stall",
        "min-key", "rate",
    ];
    let mut rows = vec![leading.iter().map(|(name, _)| name.to_string()).chain(fixed.map(String::from)).collect()];
    for result in results {
        let mut row: Vec<String> = leading.iter().map(|(_, of)| of(result)).collect();
        row.extend(cells_of(result, legacy_units));
        rows.push(row);
        if result.last_quarter.last_quarter_ips_av.is_some() {
            let mut row: Vec<String> = leading.iter().map(|(_, of)| of(result)).collect();
            row.extend(cells_of(&end_of(result), legacy_units));
            rows.push(row);
        }
    }
    rows
}

/// The end of a load, as far as it is known by itself.
fn end_of(load: &StepResult) -> StepResult {
    let quarter = &load.last_quarter;
    let mut end =
        StepResult { step: format!("{} 4/4", load.step), workload: load.workload.clone(), ..Default::default() };
    (end.throughput.ips_av, end.throughput.ips_99) = (quarter.last_quarter_ips_av, quarter.last_quarter_ips_99);
    (end.costs.cpu_us_per_op, end.costs.wkb_per_insert) =
        (quarter.last_quarter_cpu_us_per_insert, quarter.last_quarter_wkb_per_insert);
    end
}

fn cells_of(result: &StepResult, legacy_units: bool) -> Vec<String> {
    let show = |value: Option<f64>, print: &dyn Fn(f64) -> String| value.map(print).unwrap_or_default();
    let (throughput, responses, costs) = (&result.throughput, &result.responses, &result.costs);
    let rate = result.main_rate();
    let low = if result.is_query_step() { throughput.qps_99 } else { throughput.ips_99 };
    let cpu = if legacy_units {
        costs.cpu_pct.zip(rate).map(|(pct, rate)| mcpu_per_operation(pct, rate))
    } else {
        costs.cpu_us_per_op
    };
    vec![
        result.step.clone(),
        show(rate, &brief_count),
        show(low, &brief_count),
        show(throughput.ips_av.filter(|_| result.is_query_step()), &brief_count),
        show(responses.p50_us, &brief_us),
        show(responses.p99_us, &brief_us),
        show(responses.max_us, &brief_us),
        show(cpu, &|value| format!("{value:.1}")),
        show(costs.wkb_per_insert, &|value| format!("{value:.2}")),
        show(costs.rkb_per_op, &|value| format!("{value:.3}")),
        show(result.space.total_bytes, &brief_bytes),
        show(result.space.rss_bytes, &brief_bytes),
        show(result.steadiness.stall_max_ms, &|ms| brief_us(ms * 1e3)),
        show(result.steadiness.min_key_ms, &|ms| brief_us(ms * 1e3)),
        result.sla_met.map(|met| if met { "kept" } else { "missed" }.to_owned()).unwrap_or_default(),
    ]
}

/// Without the columns that are empty in every row.
fn used_columns(rows: &[Vec<String>]) -> Vec<usize> {
    (0..rows[0].len()).filter(|column| rows[1..].iter().any(|row| !row[*column].is_empty())).collect()
}

/// Rows as aligned text; the first row is the headings.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let used = used_columns(rows);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for column in &used {
            let cell = &row[*column];
            let width = width(*column);
            // Names on the left, numbers on the right.
            let left = matches!(
                rows[0][*column].as_str(),
                "target" | "base" | "step" | "number" | "rate" | "verdict" | "transaction"
            );
            let cell = if left { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
            line.push_str(&cell);
            line.push_str("  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Rows as a Markdown table; the first row is the headings.
pub fn markdown(rows: &[Vec<String>]) -> String {
    let used = used_columns(rows);
    let line = |row: &[String]| {
        let cells: Vec<&str> = used.iter().map(|column| row[*column].as_str()).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut out = line(&rows[0]);
    out.push_str(&format!("|{}\n", "---|".repeat(used.len())));
    rows[1..].iter().for_each(|row| out.push_str(&line(row)));
    out
}

/// The tables of TPC-C.
fn blocks_of_tpcc(results: &[StepResult], print: fn(&[Vec<String>]) -> String, gap: &str) -> String {
    let block = |block: tpcc::Block| {
        let headings: Vec<String> = block.headings.into_iter().map(String::from).collect();
        let rows: Vec<Vec<String>> = std::iter::once(headings).chain(block.rows).collect();
        format!("\n{}\n{gap}{}", block.title, print(&rows))
    };
    tpcc::blocks(results).into_iter().map(block).collect()
}

/// The tables of sysbench.
fn markdown_blocks(results: &[StepResult]) -> String {
    let mut out = String::new();
    for test in contention::blocks(results) {
        for (block, digits) in
            test.rates.iter().map(|block| (block, 0)).chain(test.ratios.iter().map(|block| (block, 3)))
        {
            out.push_str(&format!("\n{}, {} {}\n\n", test.test, test.unit, block.title));
            let mut rows = vec![std::iter::once("clients".to_owned()).chain(block.targets.iter().cloned()).collect()];
            for (clients, values) in block.clients.iter().zip(&block.values) {
                let cell = |value: &Option<f64>| value.map(|value| format!("{value:.digits$}")).unwrap_or_default();
                rows.push(std::iter::once(clients.to_string()).chain(values.iter().map(cell)).collect());
            }
            out.push_str(&markdown(&rows));
        }
    }
    out
}

/// One line of comma-separated values.
pub fn csv_line(cells: &[String]) -> String {
    let quoted = |text: &String| match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.clone(),
    };
    cells.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n"
}

fn csv(results: &[StepResult]) -> String {
    let numbers: Vec<&str> = StepResult::default().numbers().into_iter().map(|(name, _)| name).collect();
    let mut out = String::from(
        "schema,target,version,config,workload,step,tables,clients,cores,repeat,sla_met,invariants,checksum,",
    );
    out.push_str(&numbers.join(","));
    out.push('\n');
    for result in results {
        let mut cells = vec![
            result.schema.clone(),
            result.target.clone(),
            result.version.clone(),
            result.config.clone(),
            result.workload.clone(),
            result.step.clone(),
            result.tables.to_string(),
            result.clients.to_string(),
            result.cores.to_string(),
            repeat_of(result),
            result.sla_met.map(|met| met.to_string()).unwrap_or_default(),
            result.invariants.clone(),
            result.checksum.clone().unwrap_or_default(),
        ];
        cells.extend(result.numbers().into_iter().map(|(_, value)| value.map(|v| v.to_string()).unwrap_or_default()));
        out.push_str(&csv_line(&cells));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(target: &str, step: &str) -> StepResult {
        let mut result = StepResult { target: target.into(), step: step.into(), ..StepResult::default() };
        result.throughput.ips_av = Some(123_456.0);
        result.responses.p99_us = Some(1_234.0);
        result.costs.cpu_pct = Some(50.0);
        result
    }

    #[test]
    fn columns_that_say_nothing_are_left_out() {
        let one = printed(&[result("a", "l.i0")], Format::Table, false);
        assert_eq!(one, "step  ops/s    p99\nl.i0   123k  1.2ms\n");
        let two = printed(&[result("a", "l.i0"), result("b,c", "l.i0")], Format::Md, false);
        assert!(two.starts_with("| target | step | ops/s | p99 |\n|---|---|---|---|\n| a | l.i0 |"), "{two}");
        let older = printed(&[result("a", "l.i0")], Format::Table, true);
        assert!(older.contains("Mcpu/op") && older.contains("405.0"), "{older}");
    }

    #[test]
    fn ratios_of_sysbench_follow_the_table() {
        let of = |tables: u32, qps: f64| {
            let mut result = result("a", "insert");
            (result.workload, result.tables, result.clients) = ("sysbench".into(), tables, 48);
            result.throughput.qps_av = Some(qps);
            result
        };
        let text = printed(&[of(8, 2_000.0), of(1, 500.0)], Format::Table, false);
        assert!(text.contains("\ninsert\nQPS\n") && text.contains("\n0.250   48 clients\n"), "{text}");
        let text = printed(&[of(8, 2_000.0), of(1, 500.0)], Format::Md, false);
        assert!(text.contains("insert, QPS ratio: 1 table by 8 tables") && text.contains("| 48 | 0.250 |"), "{text}");
    }

    #[test]
    fn transactions_a_minute_follow_the_table() {
        let of = |cores: u32, tpm: f64| {
            let mut result = result("a", "run");
            (result.workload, result.tables, result.clients, result.cores) = ("tpcc".into(), 1, cores, cores);
            (result.throughput.tpm, result.costs.cores_cpu_pct) = (Some(tpm), Some(81.25));
            result
        };
        let text = printed(&[of(1, 1_000.0), of(2, 1_600.0)], Format::Table, false);
        assert!(text.contains("TPC-C: the best number of sessions for each number of processors"), "{text}");
        assert!(
            text.lines().filter(|line| line.contains("a, run") && line.contains("800  81.2")).count() == 2,
            "{text}"
        );
        let text = printed(&[of(1, 1_000.0)], Format::Md, false);
        assert!(text.contains("| a, run | 1 | 1 | 1 | 1000 | 1000 |") && !text.contains("the best"), "{text}");
    }

    #[test]
    fn csv_quotes_and_leaves_missing_cells_empty() {
        let text = printed(&[result("b,c", "l.i0")], Format::Csv, false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("\"b,c\",,") && lines[1].contains(",123456,"), "{}", lines[1]);
        let commas = |line: &str| line.matches(',').count();
        assert_eq!(commas(lines[0]), commas(&lines[1].replace("\"b,c\"", "bc")));
    }

    #[test]
    fn units_are_short() {
        assert_eq!([brief_count(9.5), brief_count(950.0), brief_count(2.5e6)], ["9.5", "950", "2.50m"]);
        assert_eq!([brief_us(0.5), brief_us(250.0), brief_us(2e6)], ["0.50us", "250us", "2.00s"]);
    }
}
