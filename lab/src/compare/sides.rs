//! What is set beside what: one target in one case of one run is a side.

use std::path::{Path, PathBuf};

use lab_measure::judge::LEAST_REPEATS;
use lab_measure::result::{Repeat, StepResult};

use super::Base;
use super::origin::Origin;
use crate::folder::read_json;
use crate::outcome::Failure;

/// Names of all numbers.
pub fn known_metrics() -> Vec<&'static str> {
    StepResult::default().numbers().into_iter().map(|(name, _)| name).collect()
}

/// Whether two paths name one folder.
pub fn same_folder(left: &Path, right: &Path) -> bool {
    left.canonicalize().ok().is_some_and(|left| right.canonicalize().is_ok_and(|right| left == right))
}

/// As [`StepResult::case`].
pub type Case = (u32, u32, Option<u32>);

/// One target in one case of one run, all its repetitions.
#[derive(Debug)]
pub struct Side {
    /// Its name in tables.
    pub name: String,
    run: usize,
    target: String,
    /// Tables, clients, and processors where there is a choice.
    pub case: Case,
    case_name: String,
    /// Step names in order.
    pub steps: Vec<String>,
    results: Vec<StepResult>,
}

impl Side {
    /// The repetitions of one number of a step.
    pub fn values(&self, step: &str, metric: &str) -> Vec<f64> {
        let of_step = self.results.iter().filter(|result| result.step == step);
        let value = |result: &StepResult| result.numbers().into_iter().find(|(name, _)| *name == metric)?.1;
        of_step.filter_map(value).collect()
    }

    /// Whether inserts were paced in a step.
    pub fn is_paced(&self, step: &str) -> bool {
        self.results.iter().any(|result| result.step == step && result.sla_met.is_some())
    }
}

/// Two sides, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The base.
    pub base: usize,
    /// What is set beside it.
    pub new: usize,
}

/// A run that was read.
#[derive(Debug)]
struct Run {
    origin: Origin,
    /// What was named on the command line: the run itself, or the plan it is a part of.
    source: usize,
}

/// All sides of all runs.
#[derive(Debug)]
pub struct Sides {
    /// The sides.
    pub all: Vec<Side>,
    runs: Vec<Run>,
    sources: Vec<PathBuf>,
}

impl Sides {
    /// Reads runs, and the parts of plans.
    pub fn read(sources: &[PathBuf]) -> Result<Sides, Failure> {
        let mut sides = Sides { all: Vec::new(), runs: Vec::new(), sources: sources.to_vec() };
        for (source, named) in sources.iter().enumerate() {
            for origin in Origin::all(named)? {
                sides.read_run(origin, source)?;
            }
        }
        if sides.all.is_empty() {
            let names: Vec<String> = sources.iter().map(|path| path.display().to_string()).collect();
            return Err(Failure::Failed(format!("{} holds no finished step", names.join(", "))));
        }
        sides.give_names();
        Ok(sides)
    }

    fn read_run(&mut self, origin: Origin, source: usize) -> Result<(), Failure> {
        let (path, record) = (&origin.path, &origin.record);
        let file = path.join("results.json");
        let mut results: Vec<StepResult> = match file.exists() {
            true => read_json(&file)?,
            // A plan goes on with its other parts.
            false if origin.part.is_some() => Vec::new(),
            false => return Err(Failure::Failed(format!("{} holds no finished step", path.display()))),
        };
        results.iter_mut().for_each(|result| result.target = record.name_of(&result.target).to_owned());
        let run = self.runs.len();
        self.runs.push(Run { origin, source });
        for result in results.into_iter().filter(|result| matches!(result.repeat, Repeat::Number(_))) {
            add(&mut self.all, run, result);
        }
        Ok(())
    }

    fn give_names(&mut self) {
        let first = self.all.first().map(|side| side.case);
        let cases = self.all.iter().any(|side| Some(side.case) != first);
        for side in &mut self.all {
            side.name = side.target.clone();
            if cases {
                side.name.push_str(&format!(" {}", side.case_name));
            }
            let origin = &self.runs[side.run].origin;
            if self.sources.len() > 1 {
                side.name.push_str(&format!(" [{}]", origin.path.display()));
            } else if let Some(part) = origin.part.as_ref().filter(|part| part.has_others) {
                side.name.push_str(&format!(" [{}]", part.name));
            }
        }
    }

    /// What is set beside what; `base` is a run, a plan or a target. What finds nothing it belongs to is named in the notes.
    pub fn pairs(&self, base: Option<&Base>) -> Result<(Vec<Pair>, Vec<String>), Failure> {
        let (pairs, alone) = match base {
            Some(Base::Run(run)) => {
                let place = self.sources.iter().position(|path| same_folder(path, run));
                self.beside_source(place.expect("the base is among what was read"))
            }
            Some(Base::Target(target)) => (self.beside_target(target)?, Vec::new()),
            Some(Base::Number(number)) => {
                let targets = self.targets();
                let target = number.checked_sub(1).and_then(|place| targets.get(place));
                let none = || Failure::Usage(format!("there is no target {number} among {}", targets.len()));
                (self.beside_target(target.ok_or_else(none)?)?, Vec::new())
            }
            None if self.sources.len() > 1 => self.beside_source(0),
            // Every run by itself: parts of a plan do not belong together.
            None => ((0..self.runs.len()).flat_map(|run| self.beside_first(run)).collect(), Vec::new()),
        };
        if pairs.is_empty() {
            let reasons = if alone.is_empty() { String::new() } else { format!(" ({})", alone.join("; ")) };
            return Err(Failure::Usage(format!(
                "there is nothing to compare{reasons}: name a second run of the same workload, or a run with several \
                 targets, with the same tables and clients; parts of a plan are compared within themselves, or with the \
                 same part of another run of the plan"
            )));
        }
        Ok((pairs, alone))
    }

    /// All targets by their names, in the order of names.
    pub fn targets(&self) -> Vec<String> {
        let mut names: Vec<String> = self.all.iter().map(|side| side.target.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The other targets of a run beside its first.
    fn beside_first(&self, run: usize) -> Vec<Pair> {
        let of_run = || self.all.iter().enumerate().filter(move |(_, side)| side.run == run);
        let Some((_, first)) = of_run().next() else { return Vec::new() };
        let base_of = |case: Case| of_run().find(|(_, side)| side.case == case && side.target == first.target);
        let others = of_run().filter(|(_, side)| side.target != first.target);
        others.filter_map(|(new, side)| Some(Pair { base: base_of(side.case)?.0, new })).collect()
    }

    /// Sides of other sources beside those of one, and runs that have none there that they belong to.
    fn beside_source(&self, source: usize) -> (Vec<Pair>, Vec<String>) {
        let (mut pairs, mut alone) = (Vec::new(), Vec::new());
        let bases: Vec<usize> = (0..self.runs.len()).filter(|run| self.runs[*run].source == source).collect();
        for (run, other) in self.runs.iter().enumerate().filter(|(_, other)| other.source != source) {
            let other = &other.origin;
            let origin = |base: &usize| &self.runs[*base].origin;
            if bases.iter().any(|base| same_folder(&origin(base).path, &other.path)) {
                continue;
            }
            match bases.iter().find(|base| origin(base).apart(other).is_none()) {
                Some(base) => pairs.extend(self.beside_run(*base, run)),
                None => {
                    let same_part = |base: &&usize| origin(base).part == other.part;
                    let near = bases.iter().find(same_part).or(bases.first());
                    let why = near.and_then(|base| origin(base).apart(other)).unwrap_or_default();
                    alone.push(format!("{} has nothing beside it: {why}", other.path.display()));
                }
            }
        }
        (pairs, alone)
    }

    fn beside_run(&self, base_run: usize, run: usize) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for (new, side) in self.all.iter().enumerate().filter(|(_, side)| side.run == run) {
            let case = |other: &Side| other.run == base_run && other.case == side.case;
            let same = self.all.iter().position(|other| case(other) && other.target == side.target);
            let mut of_case = (0..self.all.len()).filter(|place| case(&self.all[*place]));
            // Another target is a base only where there is no choice.
            let only = of_case.next().filter(|_| of_case.next().is_none());
            pairs.extend(same.or(only).map(|base| Pair { base, new }));
        }
        pairs
    }

    fn beside_target(&self, target: &str) -> Result<Vec<Pair>, Failure> {
        if !self.all.iter().any(|side| side.target == target) {
            return Err(Failure::Usage(format!(
                "--base {target}: neither a run folder nor a target of these runs ({})",
                self.targets().join(", ")
            )));
        }
        let mut pairs = Vec::new();
        for (new, side) in self.all.iter().enumerate().filter(|(_, side)| side.target != target) {
            let own = &self.runs[side.run];
            let fits = |other: &Side| other.target == target && other.case == side.case;
            let belongs = |other: &Side| {
                let run = &self.runs[other.run];
                fits(other) && run.source != own.source && run.origin.apart(&own.origin).is_none()
            };
            let here = self.all.iter().position(|other| fits(other) && other.run == side.run);
            let base = here.or_else(|| self.all.iter().position(belongs));
            pairs.extend(base.map(|base| Pair { base, new }));
        }
        Ok(pairs)
    }

    /// What a reader of the comparison has to know.
    pub fn notes(&self, pairs: &[Pair]) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |text: String| {
            if !notes.contains(&text) {
                notes.push(text);
            }
        };
        for pair in pairs {
            let (base, new) = (&self.all[pair.base], &self.all[pair.new]);
            if base.run != new.run {
                note("sides of different runs did not take turns: a change of the machine in between looks like a difference".into());
                for what in self.runs[base.run].origin.differences(&self.runs[new.run].origin) {
                    note(format!("{} and {} differ in their {what}", base.name, new.name));
                }
            }
            let repeats = |side: &Side| side.steps.first().map_or(0, |step| side.values(step, "secs").len());
            if repeats(base).min(repeats(new)) < LEAST_REPEATS {
                note(format!("nothing is claimed from fewer than {LEAST_REPEATS} repetitions: lab run … --repeat 5"));
            }
        }
        notes
    }
}

fn add(all: &mut Vec<Side>, run: usize, result: StepResult) {
    let is_its = |side: &Side| (side.run, &side.target, side.case) == (run, &result.target, result.case());
    let place = all.iter().position(is_its).unwrap_or_else(|| {
        all.push(Side {
            name: String::new(),
            run,
            target: result.target.clone(),
            case: result.case(),
            case_name: result.case_name(),
            steps: Vec::new(),
            results: Vec::new(),
        });
        all.len() - 1
    });
    let side = &mut all[place];
    if !side.steps.contains(&result.step) {
        side.steps.push(result.step.clone());
    }
    side.results.push(result);
}
