//! The tables of TPC-C: transactions a minute, responses of each kind, and the best against processors.

use crate::result::{Repeat, StepResult};

/// A table: its title, headings, and rows of a name and cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// What it is.
    pub title: &'static str,
    /// Headings, that of the names first.
    pub headings: Vec<&'static str>,
    /// Names and cells.
    pub rows: Vec<Vec<String>>,
}

/// Everything with transactions a minute; medians alone where there are repetitions.
#[must_use]
pub fn runs(results: &[StepResult]) -> Vec<&StepResult> {
    let is_run = |result: &&StepResult| result.workload == "tpcc" && result.throughput.tpm.is_some();
    let has_median = results.iter().any(|result| is_run(&result) && matches!(result.repeat, Repeat::Name(_)));
    results.iter().filter(is_run).filter(|result| !has_median || matches!(result.repeat, Repeat::Name(_))).collect()
}

/// For each target and number of processors the number of sessions with the most transactions a minute; the step beside
/// which snapshots are checked does not count. Nothing where nobody chose processors or sessions.
#[must_use]
pub fn best(results: &[StepResult]) -> Vec<&StepResult> {
    let all: Vec<&StepResult> = runs(results).into_iter().filter(|result| result.step == "run").collect();
    let mut out: Vec<&StepResult> = Vec::new();
    for result in &all {
        let same = |other: &&mut &StepResult| {
            (&other.target, other.tables, other.cores) == (&result.target, result.tables, result.cores)
        };
        match out.iter_mut().find(same) {
            Some(known) if known.throughput.tpm < result.throughput.tpm => *known = result,
            Some(_) => {}
            None => out.push(result),
        }
    }
    let first = all.first().map(|result| (result.clients, result.cores));
    if all.iter().all(|result| Some((result.clients, result.cores)) == first) { Vec::new() } else { out }
}

/// The tables; none without TPC-C.
#[must_use]
pub fn blocks(results: &[StepResult]) -> Vec<Block> {
    let all = runs(results);
    if all.is_empty() {
        return Vec::new();
    }
    let mut out = vec![rates("TPC-C: transactions a minute", &all), responses(&all)];
    let best = best(results);
    if !best.is_empty() {
        out.push(rates("TPC-C: the best number of sessions for each number of processors", &best));
    }
    out
}

fn name_of(result: &StepResult) -> String {
    format!("{}, {}", result.target, result.step)
}

fn shown(value: Option<f64>, digits: usize) -> String {
    value.map(|value| format!("{value:.digits$}")).unwrap_or_default()
}

fn rates(title: &'static str, results: &[&StepResult]) -> Block {
    let headings = vec![
        "target",
        "warehouses",
        "cores",
        "sessions",
        "tpm",
        "NOPM",
        "tpm/core",
        "cpu%",
        "cpu us/txn",
        "rKB/txn",
        "wKB/txn",
        "cs/txn",
        "retries",
        "stall ms",
    ];
    let row = |result: &&StepResult| {
        let (throughput, costs) = (&result.throughput, &result.costs);
        let a_core = throughput.tpm.map(|tpm| tpm / f64::from(result.cores.max(1)));
        vec![
            name_of(result),
            result.tables.to_string(),
            result.cores.to_string(),
            result.clients.to_string(),
            shown(throughput.tpm, 0),
            shown(throughput.nopm, 0),
            shown(a_core, 0),
            shown(costs.cores_cpu_pct, 1),
            shown(costs.cpu_us_per_op, 1),
            shown(costs.rkb_per_op, 3),
            shown(costs.wkb_per_op, 3),
            shown(costs.cs_per_op, 2),
            shown(throughput.retries, 0),
            shown(result.steadiness.stall_max_ms, 1),
        ]
    };
    Block { title, headings, rows: results.iter().map(row).collect() }
}

fn responses(results: &[&StepResult]) -> Block {
    let headings = vec![
        "target",
        "cores",
        "sessions",
        "transaction",
        "count",
        "rolled back",
        "retries",
        "p50 us",
        "p90 us",
        "p95 us",
        "p99 us",
        "max us",
    ];
    let rows_of = |result: &&StepResult| {
        let (name, cores, clients) = (name_of(result), result.cores.to_string(), result.clients.to_string());
        let row = move |(kind, of): (&String, &crate::result::OfTransaction)| {
            let numbers = [of.count, of.rolled_back, of.retries, of.p50_us, of.p90_us, of.p95_us, of.p99_us, of.max_us];
            let leading = [name.clone(), cores.clone(), clients.clone(), kind.clone()];
            leading.into_iter().chain(numbers.map(|number| shown(number, 0))).collect()
        };
        result.transactions.iter().map(row).collect::<Vec<Vec<String>>>()
    };
    Block { title: "TPC-C: responses", headings, rows: results.iter().flat_map(rows_of).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::OfTransaction;

    fn run(step: &str, cores: u32, clients: u32, tpm: f64) -> StepResult {
        let mut result = StepResult { workload: "tpcc".into(), target: "t".into(), ..StepResult::default() };
        (result.step, result.cores, result.clients, result.tables) = (step.into(), cores, clients, 1);
        result.throughput.tpm = Some(tpm);
        let of = OfTransaction { count: Some(7.0), p95_us: Some(12.0), ..OfTransaction::default() };
        result.transactions.insert("payment".into(), of);
        result
    }

    #[test]
    fn the_best_number_of_sessions_is_taken_for_each_number_of_processors() {
        let all = [
            run("run", 1, 1, 100.0),
            run("run", 1, 2, 120.0),
            run("run", 2, 2, 230.0),
            run("run", 2, 4, 190.0),
            run("snapshot", 2, 4, 900.0),
        ];
        let found: Vec<_> = best(&all).iter().map(|result| (result.cores, result.clients)).collect();
        assert_eq!(found, [(1, 2), (2, 2)]);
        let blocks = blocks(&all);
        assert_eq!((blocks.len(), blocks[0].rows.len(), blocks[2].rows.len()), (3, 5, 2));
        assert_eq!(blocks[2].rows[1][..7], ["t, run", "1", "2", "2", "230", "", "115"]);
        assert_eq!(blocks[1].rows[0][3..10], ["payment", "7", "", "", "", "", "12"]);
        assert!(best(&all[..1]).is_empty() && super::blocks(&[StepResult::default()]).is_empty());
    }

    #[test]
    fn medians_stand_for_their_repetitions() {
        let mut all = vec![run("run", 1, 1, 100.0), run("run", 1, 1, 300.0), run("run", 1, 1, 200.0)];
        all[2].repeat = Repeat::Name("median".into());
        assert_eq!(runs(&all).len(), 1);
        assert_eq!(runs(&all)[0].throughput.tpm, Some(200.0));
    }
}
