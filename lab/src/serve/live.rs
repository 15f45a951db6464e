//! A run under way, second by second: the end of `progress.tsv`, and of `metrics.prom` what stands there alone.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use lab_measure::result::StepResult;
use serde_json::{Value, json};

use super::history::{state_of, under_way};
use super::place::{Refused, below};
use crate::folder::{Folder, METRICS, PROGRESS, RunRecord, Turn, is_under_way, read_json};
use crate::metrics;
use crate::outcome::Failure;

/// How much of the end of `progress.tsv` is read.
const TAIL_BYTES: u64 = 256 << 10;
/// Seconds that are drawn.
const SECONDS_SHOWN: usize = 600;
/// Finished steps that are listed.
const STEPS_SHOWN: usize = 20;

/// A second of a step: when, rates and worst responses of inserts, deletes and queries, totals.
#[derive(Clone, Debug, PartialEq)]
struct Second {
    turn: String,
    step: String,
    numbers: [f64; 10],
}

/// Columns of `progress.tsv` behind turn and step, of what is drawn.
const COLUMNS: [usize; 10] = [3, 4, 6, 8, 10, 11, 12, 13, 14, 15];

fn second_of(line: &str) -> Option<Second> {
    let columns: Vec<&str> = line.split('\t').collect();
    let mut numbers = [0.0; 10];
    for (number, column) in numbers.iter_mut().zip(COLUMNS) {
        *number = columns.get(column)?.parse().ok()?;
    }
    Some(Second { turn: columns[0].to_owned(), step: columns[1].to_owned(), numbers })
}

/// The seconds of the step that is, or was, the last one; lines that are not whole yet are left out.
fn last_step(text: &str) -> Vec<Second> {
    let mut seconds: Vec<Second> = Vec::new();
    for second in text.lines().rev().filter_map(second_of) {
        let is_same = seconds.last().is_none_or(|later| (&later.turn, &later.step) == (&second.turn, &second.step));
        // A step that was begun again after an interruption has its time begin again.
        let is_before = seconds.last().is_none_or(|later| second.numbers[0] < later.numbers[0]);
        if !is_same || !is_before || seconds.len() == SECONDS_SHOWN {
            break;
        }
        seconds.push(second);
    }
    seconds.reverse();
    seconds
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // The first line of a piece is half a line.
    let text = if start == 0 { text } else { text.split_once('\n').map_or(String::new(), |(_, rest)| rest.to_owned()) };
    // The last one may be: its end is still to come.
    Ok(text.rsplit_once('\n').map_or(String::new(), |(whole, _)| whole.to_owned()))
}

/// What the page draws.
pub fn view(root: &Path, name: &str) -> Result<Value, Failure> {
    let path = below(root, name).map_err(|refused| missing(name, refused))?;
    let (_, record) = Folder::open(&path)?;
    let seconds = tail(&path.join(PROGRESS)).map(|text| last_step(&text)).unwrap_or_default();
    let metrics = std::fs::read_to_string(path.join(METRICS)).unwrap_or_default();
    let of_metrics = |family: &str| metrics::value_of(&metrics, family);
    let last = seconds.last();
    let turn = last.and_then(|second| Turn::of_file(&second.turn));
    let (target, case) = named(&record, turn);
    let turns = record.targets.len() * record.plan.cases().len() * record.repeat as usize;
    Ok(json!({
        "run": name,
        "state": state_of(&path, record.state),
        "running": is_under_way(&path),
        "workload": record.workload,
        "target": target,
        "case": case,
        "step": last.map(|second| second.step.clone()),
        "elapsed": last.map(|second| second.numbers[0]),
        "totals": last.map(|second| second.numbers[7..].to_vec()),
        "done": of_metrics("lab_step_done_ratio"),
        "p99_us": of_metrics("lab_p99_seconds").map(|secs| secs * 1e6),
        "stalls": of_metrics("lab_stalls_total"),
        "turns_done": record.turns_done.len(),
        "turns": turns,
        "points": seconds.iter().map(|second| second.numbers[..7].to_vec()).collect::<Vec<_>>(),
        "finished": finished(&path, &record),
    }))
}

fn missing(name: &str, refused: Refused) -> Failure {
    Failure::Failed(match refused {
        Refused::Missing => format!("there is no run {name}"),
        Refused::Outside => format!("{name} is not below the folder that is served"),
    })
}

fn named(record: &RunRecord, turn: Option<Turn>) -> (Option<String>, Option<String>) {
    let Some(turn) = turn else { return (None, None) };
    let target = record.targets.get(turn.target).map(|text| record.name_of(text).to_owned());
    let tables_are = if record.workload == "tpcc" { "warehouses" } else { "tables" };
    let case = record.plan.cases().get(turn.case).map(|case| {
        let repeat = if record.repeat > 1 {
            format!(", repetition {} of {}", turn.repeat, record.repeat)
        } else {
            String::new()
        };
        format!("{} clients, {} {tables_are}{repeat}", case.clients, case.tables)
    });
    (target, case)
}

/// Steps that are done, the latest first: target, step, rate, 99 % of the responses, longest stall.
fn finished(path: &Path, record: &RunRecord) -> Vec<Value> {
    let results: Vec<StepResult> = read_json(&path.join("results.json")).unwrap_or_default();
    let row = |result: &StepResult| {
        json!([
            record.name_of(&result.target),
            result.step,
            result.main_rate(),
            result.responses.p99_us,
            result.steadiness.stall_max_ms
        ])
    };
    results.iter().rev().take(STEPS_SHOWN).map(row).collect()
}

/// The running numbers of all runs under way, for a collector.
pub fn metrics_text(root: &Path) -> Result<String, Failure> {
    let text_of = |name: String| {
        let text = std::fs::read_to_string(root.join(&name).join(METRICS)).unwrap_or_default();
        (name, text)
    };
    Ok(metrics::merged(&under_way(root)?.into_iter().map(text_of).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(turn: &str, step: &str, elapsed: f64, ips: u32) -> String {
        format!("{turn}\t{step}\t1.0\t{elapsed:.1}\t{ips}\t9\t8\t9\t7\t9\t300\t200\t100\t50\t40\t30\t0\t0\t0\n")
    }

    #[test]
    fn the_last_step_is_what_is_drawn() {
        let mut text = String::from(crate::progress::COLUMNS_HEADING) + "\n";
        text.push_str(&line("t1-c1-r1", "l.i0", 1.0, 5));
        text.push_str(&line("t1-c1-r1", "l.i1", 7.0, 5));
        text.push_str(&line("t1-c1-r1", "l.i1", 1.0, 6));
        text.push_str(&line("t1-c1-r1", "l.i1", 2.0, 0));
        let seconds = last_step(&text);
        assert_eq!(seconds.len(), 2, "what an interrupted attempt left is another step: {seconds:?}");
        assert_eq!(seconds[0].numbers, [1.0, 6.0, 8.0, 7.0, 300.0, 200.0, 100.0, 50.0, 40.0, 30.0]);
        assert_eq!(last_step(&(text + "t1-c1-r1\tl.i1\t1.0\t3.0\t")).len(), 2, "half a line is none");
        assert_eq!(last_step(crate::progress::COLUMNS_HEADING), []);
    }

    #[test]
    fn a_long_file_is_read_from_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(PROGRESS);
        let text: String = (1..=6_000).map(|second| line("t1-c1-r1", "l.i1", f64::from(second), second)).collect();
        std::fs::write(&path, text + "t1-c1-r1\tl.i1\t1.0").unwrap();
        let seconds = last_step(&tail(&path).unwrap());
        assert_eq!((seconds.len(), seconds.last().unwrap().numbers[0]), (SECONDS_SHOWN, 6_000.0));
    }
}
