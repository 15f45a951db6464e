//! What a row of the tables is: one target in one case of one run, its repetitions folded into their median.

use lab_measure::record::StepRecord;
use lab_measure::result::{StepResult, median};

use crate::Run;

/// One step of a line.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The median of all repetitions, or the only one.
    pub result: StepResult,
    /// The repetition whose rate is nearest to the median: its series and histograms are drawn.
    pub record: &'a StepRecord,
    /// The lowest and highest rate, where there are repetitions.
    pub spread: Option<(f64, f64)>,
    /// Repetitions.
    pub repeats: usize,
    /// The rate of each.
    pub rates: Vec<f64>,
}

/// A target in a case.
#[derive(Debug)]
pub struct Line<'a> {
    /// Its name in tables.
    pub name: String,
    /// Tables.
    pub tables: u32,
    /// Clients.
    pub clients: u32,
    /// Steps by name.
    pub entries: Vec<(String, Entry<'a>)>,
}

impl Line<'_> {
    /// The entry of a step.
    #[must_use]
    pub fn entry(&self, step: &str) -> Option<&Entry<'_>> {
        self.entries.iter().find(|(name, _)| name == step).map(|(_, entry)| entry)
    }
}

/// All lines, the base first.
#[derive(Debug)]
pub struct Lines<'a> {
    /// The lines.
    pub all: Vec<Line<'a>>,
    /// Step names in the order in which they ran.
    pub steps: Vec<String>,
}

impl<'a> Lines<'a> {
    /// Groups the steps of all runs.
    #[must_use]
    pub fn of(runs: &'a [Run]) -> Lines<'a> {
        let mut keys: Vec<Key> = Vec::new();
        let mut steps: Vec<String> = Vec::new();
        for (number, run) in runs.iter().enumerate() {
            for record in &run.steps {
                let key = key_of(number, &record.result);
                if !keys.contains(&key) {
                    keys.push(key);
                }
                if !steps.contains(&record.result.step) {
                    steps.push(record.result.step.clone());
                }
            }
        }
        let several_cases = keys.windows(2).any(|pair| pair[0].2 != pair[1].2);
        let all = keys
            .iter()
            .map(|key| {
                let (number, target, case) = key;
                let mut name = target.clone();
                let again = keys.iter().filter(|other| (&other.1, other.2) == (target, *case)).count();
                let of_key = |record: &&StepRecord| key_of(*number, &record.result) == *key;
                if let Some(first) = runs[*number].steps.iter().find(of_key).filter(|_| several_cases) {
                    name.push_str(&format!(" {}", first.result.case_name()));
                }
                if again > 1 {
                    let run = &runs[*number].name;
                    name.push_str(&format!(" [{}]", run.rsplit('/').next().unwrap_or(run)));
                }
                let entries = steps
                    .iter()
                    .filter_map(|step| Some((step.clone(), entry_of(&runs[*number], key, *number, step)?)))
                    .collect();
                Line { name, tables: case.0, clients: case.1, entries }
            })
            .collect();
        Lines { all, steps }
    }

    /// Lines that have a step, with it.
    pub fn with<'b>(&'b self, step: &'b str) -> impl Iterator<Item = (&'b Line<'a>, &'b Entry<'b>)> {
        self.all.iter().filter_map(move |line| Some((line, line.entry(step)?)))
    }
}

/// Run, target, and [`StepResult::case`].
type Key = (usize, String, (u32, u32, Option<u32>));

fn key_of(run: usize, result: &StepResult) -> Key {
    (run, result.target.clone(), result.case())
}

fn entry_of<'a>(run: &'a Run, key: &Key, number: usize, step: &str) -> Option<Entry<'a>> {
    let of_step = |record: &&StepRecord| record.result.step == step && key_of(number, &record.result) == *key;
    let records: Vec<&StepRecord> = run.steps.iter().filter(of_step).collect();
    let results: Vec<StepResult> = records.iter().map(|record| record.result.clone()).collect();
    let rates: Vec<f64> = results.iter().filter_map(StepResult::main_rate).collect();
    let repeats = records.len();
    let result = if repeats > 1 { median(&results)? } else { results.into_iter().next()? };
    let wanted = result.main_rate().unwrap_or(0.0);
    let distance = |record: &StepRecord| (record.result.main_rate().unwrap_or(0.0) - wanted).abs();
    let record = records.into_iter().min_by(|left, right| distance(left).total_cmp(&distance(right)))?;
    let least = rates.iter().copied().reduce(f64::min);
    let most = rates.iter().copied().reduce(f64::max);
    Some(Entry { result, record, spread: least.zip(most).filter(|_| repeats > 1), repeats, rates })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_measure::result::Repeat;

    fn record(target: &str, step: &str, repeat: u32, rate: f64) -> StepRecord {
        let mut record = StepRecord::default();
        record.result.target = target.into();
        record.result.step = step.into();
        record.result.clients = 1;
        record.result.tables = 1;
        record.result.repeat = Repeat::Number(repeat);
        record.result.throughput.ips_av = Some(rate);
        record
    }

    #[test]
    fn repetitions_fold_and_the_same_target_of_two_runs_stays_apart() {
        let steps = [9.0, 1.0, 5.0].iter().zip(1..).map(|(rate, repeat)| record("a", "l.i0", repeat, *rate));
        let one = Run { name: "runs/one".into(), steps: steps.collect(), ..Run::default() };
        let two = Run { name: "runs/two".into(), steps: vec![record("a", "l.i1", 1, 7.0)], ..Run::default() };
        let runs = [one, two];
        let lines = Lines::of(&runs);
        assert_eq!(lines.steps, ["l.i0", "l.i1"]);
        assert_eq!(lines.all.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(), ["a [one]", "a [two]"]);
        let entry = lines.all[0].entry("l.i0").unwrap();
        assert_eq!((entry.result.throughput.ips_av, entry.repeats), (Some(5.0), 3));
        assert_eq!(entry.spread, Some((1.0, 9.0)));
        assert_eq!(entry.record.result.repeat, Repeat::Number(3));
        assert!(lines.all[1].entry("l.i0").is_none());
    }
}
