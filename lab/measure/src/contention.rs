//! The tables of sysbench: rates by clients, tables and target, and what one table costs where there were several.
//!
//! For each test: a block of rates for each number of tables, the most first. Below it the ratio of the rate on the
//! fewest tables to that on the most: less than 1 is what contention takes. `hot-points` has a block for each number of
//! tables instead, each by `random-points` on the most tables: what it takes that everybody wants the same rows.
//!
//! Tests that only warm up are left out. The rate of a scan is thousands of rows a second of one client.

use crate::result::{Repeat, StepResult};

/// A table of one number for each number of clients and target.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// What it is.
    pub title: String,
    /// Targets, in the order of the results.
    pub targets: Vec<String>,
    /// Numbers of clients, the least first.
    pub clients: Vec<u32>,
    /// By number of clients, then by target.
    pub values: Vec<Vec<Option<f64>>>,
}

/// The blocks of one test.
#[derive(Clone, Debug, PartialEq)]
pub struct TestBlocks {
    /// The test.
    pub test: String,
    /// What its rates count.
    pub unit: &'static str,
    /// Rates, one block for each number of tables.
    pub rates: Vec<Block>,
    /// Ratios.
    pub ratios: Vec<Block>,
}

/// The rate of a test, as its tables have it.
#[must_use]
pub fn score(result: &StepResult) -> Option<f64> {
    let throughput = &result.throughput;
    if !is_scan(&result.step) {
        return throughput.qps_av;
    }
    let client_secs = throughput.secs? * f64::from(result.clients);
    throughput.rows.filter(|_| client_secs > 0.0).map(|rows| rows / client_secs / 1_000.0)
}

fn is_scan(step: &str) -> bool {
    step == "scan" || step.starts_with("scan.")
}

fn plural(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The blocks of all tests of sysbench, in the order of the results; medians are taken where there are repetitions.
#[must_use]
pub fn blocks(results: &[StepResult]) -> Vec<TestBlocks> {
    let all = Rates::of(results);
    let tests = distinct(all.results.iter().map(|result| result.step.clone()));
    tests.into_iter().map(|test| all.test(test)).collect()
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut out = Vec::new();
    for value in values {
        if !out.contains(&value) {
            out.push(value);
        }
    }
    out
}

struct Rates<'a> {
    results: Vec<&'a StepResult>,
    targets: Vec<String>,
    clients: Vec<u32>,
    /// The most first.
    tables: Vec<u32>,
}

impl<'a> Rates<'a> {
    fn of(results: &'a [StepResult]) -> Rates<'a> {
        let is_test = |result: &&StepResult| {
            result.workload == "sysbench" && result.step != "load" && !result.step.contains(".warm")
        };
        let results: Vec<&StepResult> = results.iter().filter(is_test).collect();
        let targets = distinct(results.iter().map(|result| result.target.clone()));
        let mut clients = distinct(results.iter().map(|result| result.clients));
        let mut tables = distinct(results.iter().map(|result| result.tables));
        clients.sort_unstable();
        tables.sort_unstable_by(|left, right| right.cmp(left));
        Rates { results, targets, clients, tables }
    }

    /// The median, or the only repetition.
    fn rate(&self, test: &str, target: &str, tables: u32, clients: u32) -> Option<f64> {
        let is_it = |result: &&&StepResult| {
            (result.step.as_str(), result.target.as_str()) == (test, target)
                && (result.tables, result.clients) == (tables, clients)
        };
        let mut found = self.results.iter().filter(is_it);
        let median = found.clone().find(|result| matches!(result.repeat, Repeat::Name(_)));
        median.or_else(|| found.next()).and_then(|result| score(result))
    }

    fn block(&self, title: String, value: impl Fn(&str, u32) -> Option<f64>) -> Block {
        let of_clients = |clients: &u32| self.targets.iter().map(|target| value(target, *clients)).collect();
        let values = self.clients.iter().map(of_clients).collect();
        Block { title, targets: self.targets.clone(), clients: self.clients.clone(), values }
    }

    fn ratio(&self, title: String, (test, tables): (&str, u32), (base, base_tables): (&str, u32)) -> Option<Block> {
        let block = self.block(title, |target, clients| {
            let base = self.rate(base, target, base_tables, clients).filter(|base| *base > 0.0)?;
            Some(self.rate(test, target, tables, clients)? / base)
        });
        block.values.iter().flatten().any(Option::is_some).then_some(block)
    }

    fn test(&self, test: String) -> TestBlocks {
        let tables_name = |tables: u32| plural(tables, "table");
        let of_tables = |tables: &u32| {
            let block = self.block(tables_name(*tables), |target, clients| self.rate(&test, target, *tables, clients));
            Some(block).filter(|block| block.values.iter().flatten().any(Option::is_some))
        };
        let rates = self.tables.iter().filter_map(of_tables).collect();
        let (most, fewest) = (self.tables.first().copied().unwrap_or(0), self.tables.last().copied().unwrap_or(0));
        let ratios = if let Some(rows) = test.strip_prefix("hot-points") {
            let rows = if rows.is_empty() { ".100" } else { rows };
            let base = format!("random-points{rows}");
            let of_tables = |tables: &u32| {
                let title = format!("ratio for {}: by {base} on {}", tables_name(*tables), tables_name(most));
                self.ratio(title, (&test, *tables), (&base, most))
            };
            self.tables.iter().filter_map(of_tables).collect()
        } else if most == fewest {
            Vec::new()
        } else {
            let title = format!("ratio: {} by {}", tables_name(fewest), tables_name(most));
            self.ratio(title, (&test, fewest), (&test, most)).into_iter().collect()
        };
        let unit = if is_scan(&test) { "thousand rows/s a client" } else { "QPS" };
        TestBlocks { test, unit, rates, ratios }
    }
}

/// The blocks as text, in the manner of the published ones: targets below clients for rates, beside each other for
/// ratios, three decimals.
#[must_use]
pub fn printed(tests: &[TestBlocks]) -> String {
    let mut out = String::new();
    for test in tests {
        out.push_str(&format!("\n{}\n{}\n", test.test, test.unit));
        let mut lines: Vec<(Vec<String>, String)> = Vec::new();
        if let Some(block) = test.rates.first() {
            lines.push((block.clients.iter().map(u32::to_string).collect(), "clients/target".into()));
        }
        for block in &test.rates {
            lines.push((Vec::new(), format!("- {}", block.title)));
            for (place, target) in block.targets.iter().enumerate() {
                let cells = block.values.iter().map(|row| row[place].map_or("-".into(), |rate| format!("{rate:.0}")));
                lines.push((cells.collect(), target.clone()));
            }
        }
        out.push_str(&columns(&lines));
        for block in &test.ratios {
            out.push_str(&format!("{} {}\n", test.unit, block.title));
            let mut lines = vec![(block.targets.clone(), String::new())];
            for (clients, row) in block.clients.iter().zip(&block.values) {
                let cells = row.iter().map(|ratio| ratio.map_or("-".into(), |ratio| format!("{ratio:.3}")));
                lines.push((cells.collect(), plural(*clients, "client")));
            }
            out.push_str(&columns(&lines));
        }
    }
    out
}

/// Cells to the right of their columns, names behind them; a line without cells is its name.
fn columns(lines: &[(Vec<String>, String)]) -> String {
    let columns = lines.iter().map(|(cells, _)| cells.len()).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|(cells, _)| cells.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut out = String::new();
    for (cells, name) in lines {
        let mut line = String::new();
        for (column, cell) in (0..columns).zip(cells) {
            line.push_str(&format!("{cell:>0$}   ", width(column)));
        }
        line.push_str(name);
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(step: &str, target: &str, tables: u32, clients: u32, qps: f64) -> StepResult {
        let mut result = StepResult {
            workload: "sysbench".into(),
            step: step.into(),
            target: target.into(),
            tables,
            clients,
            ..StepResult::default()
        };
        result.throughput.qps_av = Some(qps);
        result
    }

    fn published(step: &str, tables: u32, target: &str, rates: [f64; 3]) -> Vec<StepResult> {
        let rates = [1, 8, 48].into_iter().zip(rates);
        rates.map(|(clients, qps)| result(step, target, tables, clients, qps)).collect()
    }

    /// Rates and ratios of September 2017, as they were published.
    #[test]
    fn the_published_ratios_follow_from_the_published_rates() {
        let results = [
            published("update-one", 8, "rocks", [8672.0, 43342.0, 39902.0]),
            published("update-one", 8, "toku", [2912.0, 13736.0, 19551.0]),
            published("update-one", 1, "rocks", [9072.0, 17348.0, 13055.0]),
            published("update-one", 1, "toku", [2926.0, 3254.0, 3077.0]),
            published("random-points.100", 8, "rocks", [897.0, 6871.0, 23189.0]),
            published("hot-points", 8, "rocks", [1376.0, 10256.0, 28762.0]),
            published("hot-points", 1, "rocks", [1577.0, 8489.0, 8691.0]),
            published("point-query.warm", 8, "rocks", [1.0, 1.0, 1.0]),
        ]
        .concat();
        let tests = blocks(&results);
        assert_eq!(
            tests.iter().map(|test| (test.test.as_str(), test.rates.len(), test.ratios.len())).collect::<Vec<_>>(),
            [("update-one", 2, 1), ("random-points.100", 1, 0), ("hot-points", 2, 2)]
        );
        let text = printed(&tests);
        let expected = "
update-one
QPS
   1       8      48   clients/target
- 8 tables
8672   43342   39902   rocks
2912   13736   19551   toku
- 1 table
9072   17348   13055   rocks
2926    3254    3077   toku
QPS ratio: 1 table by 8 tables
rocks    toku
1.046   1.005   1 client
0.400   0.237   8 clients
0.327   0.157   48 clients
";
        assert!(text.starts_with(expected), "{text}");
        let hot = text.split_once("QPS ratio for 8 tables: by random-points.100 on 8 tables\n").unwrap().1;
        assert!(hot.starts_with("rocks   toku\n1.534      -   1 client\n1.493      -   8 clients\n1.240 "), "{hot}");
        let one = hot.split_once("QPS ratio for 1 table: by random-points.100 on 8 tables\n").unwrap().1;
        assert!(one.contains("1.758      -   1 client\n1.235      -   8 clients\n0.375      -   48 clients"), "{one}");
    }

    #[test]
    fn medians_come_before_repetitions_and_scans_count_rows() {
        let mut median = result("scan", "a", 1, 2, 9.0);
        median.repeat = Repeat::Name("median".into());
        (median.throughput.rows, median.throughput.secs) = (Some(4_000_000.0), Some(10.0));
        let tests = blocks(&[result("scan", "a", 1, 2, 1.0), median]);
        assert_eq!((tests[0].rates[0].values[0][0], tests[0].ratios.len()), (Some(200.0), 0));
        assert_eq!(tests[0].unit, "thousand rows/s a client");
        assert!(blocks(&[StepResult { workload: "ibench".into(), ..result("qr100", "a", 1, 1, 1.0) }]).is_empty());
    }
}
