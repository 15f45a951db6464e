//! The tables of sysbench, run by run: rates by clients, and what fewer tables cost.

use lab_measure::contention::{Block, TestBlocks, blocks};
use lab_measure::result::{StepResult, median};

use crate::Run;
use crate::colour;
use crate::html::{Table, coloured, escaped, rate};

/// The section; empty without sysbench.
#[must_use]
pub fn section(runs: &[Run]) -> String {
    let mut out = String::new();
    for run in runs {
        let tests = blocks(&with_medians(run));
        if tests.is_empty() {
            continue;
        }
        if runs.len() > 1 {
            out.push_str(&format!("<h3>Run <code>{}</code></h3>\n", escaped(&run.name)));
        }
        tests.iter().for_each(|test| out.push_str(&of_test(test)));
    }
    if out.is_empty() {
        return out;
    }
    format!(
        "<h2 id=\"contention\">Rates by clients and tables</h2>\n<p class=\"soft\">A ratio below 1 is what contention for \
         fewer tables, or for the same rows, takes; yellow is more than 5 % below, blue more than 5 % above.</p>\n{out}"
    )
}

/// The results of a run, the median of repetitions before them.
pub(crate) fn with_medians(run: &Run) -> Vec<StepResult> {
    let results: Vec<StepResult> = run.steps.iter().map(|record| record.result.clone()).collect();
    let key = |result: &StepResult| (result.target.clone(), result.case(), result.step.clone());
    let mut out: Vec<StepResult> = Vec::new();
    for result in &results {
        if out.iter().any(|known| key(known) == key(result)) {
            continue;
        }
        let group: Vec<StepResult> = results.iter().filter(|other| key(other) == key(result)).cloned().collect();
        out.extend(if group.len() > 1 { median(&group) } else { Some(result.clone()) });
    }
    out
}

fn of_test(test: &TestBlocks) -> String {
    let mut out = format!("<h3>{}</h3>\n", escaped(&test.test));
    if let Some(first) = test.rates.first() {
        let clients: Vec<String> = first.clients.iter().map(u32::to_string).collect();
        let headings: Vec<&str> = ["clients"].into_iter().chain(clients.iter().map(String::as_str)).collect();
        let mut table = Table::new(&format!("{}: {} by clients", test.test, test.unit), &headings);
        for block in &test.rates {
            for (place, target) in block.targets.iter().enumerate() {
                let cells = block.values.iter().map(|row| row[place].map(rate).unwrap_or_default());
                table.plain_row(&format!("{}, {target}", block.title), cells);
            }
        }
        out.push_str(&table.finished());
    }
    test.ratios.iter().for_each(|block| out.push_str(&ratios(test, block)));
    out
}

fn ratios(test: &TestBlocks, block: &Block) -> String {
    let headings: Vec<&str> = ["clients"].into_iter().chain(block.targets.iter().map(String::as_str)).collect();
    let mut table = Table::new(&format!("{}: {} {}", test.test, test.unit, block.title), &headings);
    for (clients, row) in block.clients.iter().zip(&block.values) {
        let cell = |ratio: &Option<f64>| match ratio {
            Some(ratio) => coloured(format!("{ratio:.3}"), colour::relative(*ratio)),
            None => (String::new(), String::new()),
        };
        table.row(&clients.to_string(), row.iter().map(cell));
    }
    table.finished()
}
