//! Keeps what the workload reports: step records and results in the run folder, a log, the display.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use lab_measure::record::StepRecord;
use lab_measure::result::{Repeat, StepResult};
use lab_workload::{Case, Tick, Watcher};

use crate::folder::{Folder, METRICS, PROGRESS, RunRecord, Turn};
use crate::metrics::{self, Labels};
use crate::outcome::Failure;
use crate::progress::{COLUMNS_HEADING, Progress, columns_of};
use crate::sample::Sampler;

/// Writes what the workload reports, and shows it.
pub struct Keeper {
    /// The run folder.
    pub folder: Folder,
    /// The display.
    pub progress: Progress,
    /// Where the running numbers are written for a collector, beside the run folder.
    pub metrics: Option<PathBuf>,
    /// Samples the steps of a repetition that is not measured.
    pub sampler: Option<Sampler>,
    /// Says that the run is under way.
    _held: Option<File>,
    /// The targets by their names, and the cases.
    names: Vec<String>,
    cases: Vec<Case>,
    kept: Mutex<Kept>,
}

/// What has been kept so far. `place` is the position of the current step in the plan.
struct Kept {
    turn: Turn,
    place: usize,
    began: Option<String>,
    results: Vec<(Turn, usize, StepResult)>,
    failure: Option<Failure>,
}

impl Keeper {
    /// A keeper that knows the finished turns of a resumed run.
    pub fn new(folder: Folder, progress: Progress, record: &RunRecord) -> Result<Keeper, Failure> {
        let mut results: Vec<(Turn, usize, StepResult)> = Vec::new();
        if !record.turns_done.is_empty() {
            for step in crate::folder::read_steps(&folder.path)? {
                let target = record.targets.iter().position(|text| *text == step.result.target).unwrap_or(0);
                let is_its = |case: &Case| case.is_of(&step.result);
                let case = record.plan.cases().iter().position(is_its).unwrap_or(0);
                let Repeat::Number(repeat) = step.result.repeat else { continue };
                let turn = Turn { target, case, repeat };
                let place = results.iter().filter(|(other, ..)| *other == turn).count();
                if record.turns_done.contains(&turn) {
                    results.push((turn, place, step.result));
                }
            }
        }
        let turn = Turn { target: 0, case: 0, repeat: 1 };
        let kept = Mutex::new(Kept { turn, place: 0, began: None, results, failure: None });
        let names = record.targets.iter().map(|text| record.name_of(text).to_owned()).collect();
        let cases = record.plan.cases().to_vec();
        if !folder.path.join(PROGRESS).exists() {
            folder.append(PROGRESS, COLUMNS_HEADING);
        }
        let held = folder.hold()?;
        Ok(Keeper { folder, progress, metrics: None, sampler: None, _held: held, names, cases, kept })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no thread panics while it keeps results")
    }

    /// A turn begins: whatever an earlier attempt left of it is forgotten.
    pub fn start_turn(&self, turn: Turn) -> Result<(), Failure> {
        let mut kept = self.kept();
        (kept.turn, kept.place, kept.began) = (turn, 0, None);
        kept.results.retain(|(other, ..)| *other != turn);
        self.folder.forget_turn(turn)
    }

    /// All results so far.
    pub fn results(&self) -> Vec<StepResult> {
        self.kept().results.iter().map(|(_, _, result)| result.clone()).collect()
    }

    /// What goes on is no step of this run: its running numbers end.
    pub fn end_metrics(&self) {
        let _ = std::fs::remove_file(self.folder.path.join(METRICS));
    }

    fn metrics_files(&self) -> Vec<PathBuf> {
        self.metrics.iter().cloned().chain([self.folder.path.join(METRICS)]).collect()
    }

    /// The first thing that could not be written.
    pub fn take_failure(&self) -> Result<(), Failure> {
        self.kept().failure.take().map_or(Ok(()), Err)
    }
}

/// What is no longer under way has no running numbers. A killed run leaves them, and nobody takes them for a run's.
impl Drop for Keeper {
    fn drop(&mut self) {
        self.end_metrics();
    }
}

impl Watcher for Keeper {
    fn begins(&self, step: &str) {
        let mut kept = self.kept();
        if kept.began.replace(step.to_owned()).is_some() {
            kept.place += 1;
        }
        self.progress.begins(step);
        self.folder.log(&format!("step {step} begins"));
        if let Some(sampler) = &self.sampler {
            sampler.begins(step);
        }
    }

    fn tick(&self, step: &str, tick: &Tick) {
        let turn = self.kept().turn;
        if let (Some(target), Some(case)) = (self.names.get(turn.target), self.cases.get(turn.case)) {
            let labels = Labels { target, step, case: [case.tables, case.clients, turn.repeat] };
            metrics::write(&self.metrics_files(), &metrics::text(&labels, tick));
        }
        let turn = format!("t{}-c{}-r{}", turn.target + 1, turn.case + 1, turn.repeat);
        self.folder.append(PROGRESS, &format!("{turn}\t{step}\t{}", columns_of(tick)));
        self.progress.tick(step, tick);
    }

    fn finished(&self, step: &str, record: &StepRecord) {
        if let Some(sampler) = &self.sampler {
            sampler.ends();
        }
        let mut kept = self.kept();
        // A record that comes again belongs to the load before the settle that is under way.
        let again = kept.began.as_deref() == Some("settle");
        let place = kept.place - usize::from(again);
        let turn = kept.turn;
        kept.results.retain(|(other, at, _)| (*other, *at) != (turn, place));
        kept.results.push((turn, place, record.result.clone()));
        let results: Vec<StepResult> = kept.results.iter().map(|(_, _, result)| result.clone()).collect();
        let written = self.folder.write_step(turn, place, record).and_then(|()| self.folder.write_results(&results));
        if let Err(failure) = written {
            kept.failure.get_or_insert(failure);
        }
        if !again {
            self.progress.finished(record);
            self.folder.log(&format!("step {step} done"));
        }
    }

    fn phase(&self, text: &str) {
        // What a check does is no part of the step.
        if let Some(sampler) = self.sampler.as_ref().filter(|_| text.starts_with("checking")) {
            sampler.ends();
        }
        self.progress.phase(text);
    }
}
