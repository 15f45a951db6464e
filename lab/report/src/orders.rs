//! The tables of TPC-C, run by run, and the charts of the most transactions a minute against processors.

use lab_measure::result::StepResult;
use lab_measure::tpcc::{best, blocks};

use crate::Run;
use crate::chart;
use crate::contention::with_medians;
use crate::html::{Table, escaped, rate};

/// The section; empty without TPC-C.
#[must_use]
pub fn section(runs: &[Run]) -> String {
    let mut out = String::new();
    for run in runs {
        let results = with_medians(run);
        let blocks = blocks(&results);
        if blocks.is_empty() {
            continue;
        }
        if runs.len() > 1 {
            out.push_str(&format!("<h3>Run <code>{}</code></h3>\n", escaped(&run.name)));
        }
        out.push_str(&charts(&best(&results)));
        for block in blocks {
            let mut table = Table::new(block.title, &block.headings);
            block.rows.iter().for_each(|row| table.plain_row(&row[0], row[1..].iter().cloned()));
            out.push_str(&table.finished());
        }
        let memory = run.environment.mount.as_ref().map(|mount| mount.filesystem == "tmpfs");
        if memory == Some(false) {
            out.push_str("<p class=\"soft\">The data were not on tmpfs: the disk is part of these numbers.</p>\n");
        }
    }
    if out.is_empty() {
        return out;
    }
    format!(
        "<h2 id=\"orders\">Transactions a minute</h2>\n<p class=\"soft\">tpm counts all transactions, NOPM new orders that were \
         committed. There are no keying and think times, so NOPM is not tpmC, which is at most 12.86 a warehouse with \
         them. cpu% is of the processors that the run may use: falling with more of them it shows waiting, high with few \
         transactions it shows spinning.</p>\n{out}"
    )
}

fn charts(best: &[&StepResult]) -> String {
    let bars = |title: &str, value: &dyn Fn(&StepResult) -> Option<f64>, text: &dyn Fn(f64) -> String| {
        let row = |result: &&StepResult| {
            let name = format!("{}, {} cores, {} sessions", result.target, result.cores, result.clients);
            let value = value(result)?;
            Some((name, value, text(value)))
        };
        let rows: Vec<_> = best.iter().filter_map(row).collect();
        if rows.is_empty() { String::new() } else { chart::bars(title, &rows) }
    };
    let percent = |value: f64| format!("{value:.0} %");
    bars("Transactions a minute by cores, the best number of sessions", &|result| result.throughput.tpm, &rate)
        + &bars("Processor use, of the enabled cores", &|result| result.costs.cores_cpu_pct, &percent)
}
