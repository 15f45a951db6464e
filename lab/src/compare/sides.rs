//! What is set beside what: one target in one case of one run is a side.

use std::path::{Path, PathBuf};

use lab_measure::judge::LEAST_REPEATS;
use lab_measure::result::{Repeat, StepResult};

use crate::folder::{Folder, RunRecord, read_json};
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

/// All sides of all runs.
#[derive(Debug)]
pub struct Sides {
    /// The sides.
    pub all: Vec<Side>,
    runs: Vec<(PathBuf, RunRecord)>,
}

impl Sides {
    /// Reads the runs.
    pub fn read(paths: &[PathBuf]) -> Result<Sides, Failure> {
        let mut runs = Vec::new();
        let mut all: Vec<Side> = Vec::new();
        for path in paths {
            let (folder, record) = Folder::open(path)?;
            let file = folder.path.join("results.json");
            if !file.exists() {
                return Err(Failure::Failed(format!("{} holds no finished step", path.display())));
            }
            let run = runs.len();
            let mut results = read_json::<Vec<StepResult>>(&file)?;
            results.iter_mut().for_each(|result| result.target = record.name_of(&result.target).to_owned());
            runs.push((path.clone(), record));
            for result in results {
                if matches!(result.repeat, Repeat::Number(_)) {
                    add(&mut all, run, result);
                }
            }
        }
        let mut sides = Sides { all, runs };
        sides.give_names();
        Ok(sides)
    }

    fn give_names(&mut self) {
        let first = self.all.first().map(|side| side.case);
        let cases = self.all.iter().any(|side| Some(side.case) != first);
        for side in &mut self.all {
            side.name = side.target.clone();
            if cases {
                side.name.push_str(&format!(" {}", side.case_name));
            }
            if self.runs.len() > 1 {
                side.name.push_str(&format!(" [{}]", self.runs[side.run].0.display()));
            }
        }
    }

    /// What is set beside what; `base` is a run or a target.
    pub fn pairs(&self, base: Option<&str>) -> Result<Vec<Pair>, Failure> {
        let base_run = match base {
            Some(text) => self.runs.iter().position(|(path, _)| same_folder(path, Path::new(text))),
            None => (self.runs.len() > 1).then_some(0),
        };
        let pairs = match (base_run, base) {
            (Some(run), _) => self.beside_run(run),
            (None, Some(target)) => self.beside_target(target)?,
            (None, None) => match self.all.first() {
                Some(first) => self.beside_target(&first.target.clone())?,
                None => Vec::new(),
            },
        };
        if pairs.is_empty() {
            return Err(Failure::Usage(
                "there is nothing to compare: name a second run, or a run with several targets, with the same tables and clients".into(),
            ));
        }
        Ok(pairs)
    }

    fn beside_run(&self, run: usize) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for (new, side) in self.all.iter().enumerate().filter(|(_, side)| side.run != run) {
            let case = |other: &Side| other.run == run && other.case == side.case;
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
            let mut names: Vec<&str> = self.all.iter().map(|side| side.target.as_str()).collect();
            names.dedup();
            return Err(Failure::Usage(format!(
                "--base {target}: neither a run folder nor a target of these runs ({})",
                names.join(", ")
            )));
        }
        let mut pairs = Vec::new();
        for (new, side) in self.all.iter().enumerate().filter(|(_, side)| side.target != target) {
            let fits = |other: &Side| other.target == target && other.case == side.case;
            let here = self.all.iter().position(|other| fits(other) && other.run == side.run);
            let base = here.or_else(|| self.all.iter().position(fits));
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
            let (before, after) = (&self.runs[base.run].1, &self.runs[new.run].1);
            if base.run != new.run {
                note("sides of different runs did not take turns: a change of the machine in between looks like a difference".into());
                for (what, differs) in [
                    ("plan", serde_json::to_value(&before.plan).ok() != serde_json::to_value(&after.plan).ok()),
                    ("setup", before.setup != after.setup),
                    ("processor", before.environment.cpu != after.environment.cpu),
                    ("kernel", before.environment.kernel != after.environment.kernel),
                    ("build", before.environment.build != after.environment.build),
                ] {
                    if differs {
                        note(format!("{} and {} differ in their {what}", base.name, new.name));
                    }
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
