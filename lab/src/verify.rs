//! `lab verify`: is a run folder whole, and does it agree with itself?
//!
//! 1. Every file can be read and has this lab's schema.
//! 2. Each step belongs to a target, a case and a step of the plan, and its file has its turn's name.
//! 3. Within a step, statements, histogram, classes and series count the same, series of clients add up to that of all; rates are what
//!    was done by time.
//! 4. `results.json` holds exactly the results of the steps, and medians that follow from them.
//! 5. A run that is done has every turn, and every turn every step.
//! 6. All targets hold the same rows after the same step.
//!
//! What is wrong is printed line by line; a folder that contradicts itself ends with the code of a violated invariant.

use std::fs;
use std::path::Path;

use lab_measure::Series;
use lab_measure::record::StepRecord;
use lab_measure::result::{Repeat, SCHEMA, StepResult};
use lab_workload::Case;

use crate::across::{compare_checksums, with_medians};
use crate::folder::{Folder, RunRecord, State, Turn, read_json, step_files};
use crate::outcome::Failure;

/// Numbers that were written and read again are this near, as a share of themselves.
const NEAR: f64 = 1e-9;

/// Runs the command.
pub fn verify(run: &Path) -> Result<(), Failure> {
    if crate::run::plan::is_plan(run) {
        return crate::run::plan::verify(run);
    }
    let (folder, record) = Folder::open(run)?;
    let mut problems = Vec::new();
    let mut steps = Vec::new();
    for file in step_files(&folder.path)? {
        let step: StepRecord = read_json(&file)?;
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        problems.extend(of_step(&record, &name, &step).into_iter().map(|what| format!("steps/{name}: {what}")));
        steps.push(step);
    }
    let file = folder.path.join("results.json");
    let results: Vec<StepResult> = if file.exists() { read_json(&file)? } else { Vec::new() };
    problems.extend(of_results(&record, &steps, &results));
    problems.extend(of_turns(&record, &steps));
    if record.plan.max_seconds() == 0 {
        let all: Vec<StepResult> = steps.iter().map(|step| step.result.clone()).collect();
        problems.extend(compare_checksums(&all).err().map(|failure| failure.to_string()));
    }
    left_over(&folder.path).iter().for_each(|note| println!("note: {note}"));
    problems.iter().for_each(|problem| println!("{problem}"));
    let state = format!("{:?}", record.state).to_lowercase();
    match problems.len() {
        0 => {
            println!("{}: {} steps, {} results, {state}: sound", run.display(), steps.len(), results.len());
            Ok(())
        }
        count => Err(Failure::Violated(format!("{} contradicts itself: {count} problems", run.display()))),
    }
}

fn near(left: f64, right: f64) -> bool {
    (left - right).abs() <= NEAR * left.abs().max(right.abs()).max(1.0)
}

fn of_step(record: &RunRecord, name: &str, step: &StepRecord) -> Vec<String> {
    let mut problems = Vec::new();
    let result = &step.result;
    let mut say = |wrong: bool, what: String| problems.extend(wrong.then_some(what));
    say(step.schema != SCHEMA || result.schema != SCHEMA, format!("schema {} and {}", step.schema, result.schema));
    let is_its = |case: &Case| case.is_of(result);
    say(!record.plan.cases().iter().any(is_its), "its tables, clients and cores are none of the plan".into());
    say(!record.plan.steps().contains(&result.step), format!("step {} is none of the plan", result.step));
    let named = Turn::of_file(name).filter(|turn| {
        record.targets.get(turn.target) == Some(&result.target)
            && record.plan.cases().get(turn.case).is_some_and(is_its)
            && result.repeat == Repeat::Number(turn.repeat)
    });
    say(named.is_none(), "its name is not that of its target, case and repetition".into());
    for (kind, kept) in &step.histograms {
        let service = kept.service.restored().count();
        let classes = kept.classes.total();
        say(
            service != kept.statements || classes != kept.statements,
            format!("{} {kind} statements, {service} response times, {classes} in classes", kept.statements),
        );
        let by_second = step.series.get(kind).map(|series| series.counts.iter().sum::<u64>());
        say(by_second != Some(kept.amount), format!("{} of {kind}, second by second {by_second:?}", kept.amount));
        let mut of_clients = Series::default();
        step.by_client.iter().filter_map(|client| client.get(kind)).for_each(|series| of_clients.merge(series));
        let adds_up = step.by_client.is_empty() || step.series.get(kind) == Some(&of_clients);
        say(!adds_up, format!("{kind} of all clients, second by second, is not the sum of theirs"));
    }
    let throughput = &result.throughput;
    if let (Some(rows), Some(secs), Some(rate)) = (throughput.rows, throughput.secs, throughput.ips_av) {
        say(secs > 0.0 && !near(rows / secs, rate), format!("{rows} rows in {secs} s are not {rate} rows/s"));
    }
    let inserted = step.histograms.get("insert").map(|kept| kept.amount as f64);
    say(
        inserted.is_some() && inserted != throughput.rows,
        format!("{:?} rows, {inserted:?} inserted", throughput.rows),
    );
    problems
}

fn of_results(record: &RunRecord, steps: &[StepRecord], results: &[StepResult]) -> Vec<String> {
    let mut problems = Vec::new();
    let told = |result: &StepResult| format!("{} of {}, repetition {:?}", result.step, result.target, result.repeat);
    let mut left: Vec<&StepResult> =
        results.iter().filter(|result| matches!(result.repeat, Repeat::Number(_))).collect();
    let numbered: Vec<StepResult> = left.iter().map(|result| (*result).clone()).collect();
    for step in steps {
        match left.iter().position(|result| **result == step.result) {
            Some(place) => drop(left.swap_remove(place)),
            None => problems.push(format!("results.json lacks, or tells otherwise, {}", told(&step.result))),
        }
    }
    problems.extend(left.into_iter().map(|result| format!("results.json has no step for {}", told(result))));
    let medians = |all: &[StepResult]| -> Vec<StepResult> {
        all.iter().filter(|result| matches!(result.repeat, Repeat::Name(_))).cloned().collect()
    };
    let (found, expected) = (medians(results), medians(&with_medians(numbered, record.repeat)));
    if !found.is_empty() && found.len() != expected.len() {
        problems.push(format!("results.json has {} medians, {} follow from its results", found.len(), expected.len()));
    }
    for median in &found {
        let same = |other: &&StepResult| {
            (&other.target, &other.step, other.case()) == (&median.target, &median.step, median.case())
        };
        let follows = expected.iter().find(same).is_some_and(|other| {
            let pairs = median.numbers().into_iter().zip(other.numbers());
            pairs.into_iter().all(|((_, left), (_, right))| match (left, right) {
                (Some(left), Some(right)) => near(left, right),
                (left, right) => left == right,
            })
        });
        if !follows {
            problems.push(format!(
                "the median of {} of {} does not follow from its repetitions",
                median.step, median.target
            ));
        }
    }
    problems
}

fn of_turns(record: &RunRecord, steps: &[StepRecord]) -> Vec<String> {
    let mut problems = Vec::new();
    let is_left_out = |target: usize| record.left_out.iter().any(|left| left.target == target);
    let wanted =
        |target: usize| if is_left_out(target) { 0 } else { record.plan.cases().len() * record.repeat as usize };
    let wanted: usize = (0..record.targets.len()).map(wanted).sum();
    let done = record.turns_done.iter().filter(|turn| !is_left_out(turn.target)).count();
    if record.state == State::Done && done != wanted {
        problems.push(format!("the run is done, but {done} of {wanted} turns are"));
    }
    // A settle has no record of its own.
    let with_record = record.plan.steps().iter().filter(|name| *name != "settle").count();
    let least = record.turns_done.len() * with_record;
    if steps.len() < least {
        problems.push(format!(
            "{} turns are done, which is {least} steps; {} are there",
            record.turns_done.len(),
            steps.len()
        ));
    }
    problems
}

/// Files of writes that were cut off, and databases that were kept.
fn left_over(run: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    for dir in [run.to_path_buf(), run.join("steps")] {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".tmp") || name.starts_with("db-") {
                notes.push(format!("{} is left over", entry.path().display()));
            }
        }
    }
    notes
}
