//! `lab explain RUN_A RUN_B`: why is an operation slower or faster, part by part? The model is in [`lab_measure::explain`].
//!
//! 1. Steps are set side by side: of runs that belong together ([`crate::compare::origin`]; of plans part by part) the same
//!    target (by its name), case and step; with one target on each side, whatever they are called.
//! 2. Repetitions are averaged, which keeps parts adding up.
//! 3. The part that changed most comes first.

use std::path::Path;

use lab_measure::explain::{Change, Split, UNEXPLAINED, changes, mean, split};
use lab_measure::record::StepRecord;
use serde::Serialize;

use crate::cli::{Explain, ExplainFormat};
use crate::compare::origin::Origin;
use crate::folder::read_steps;
use crate::outcome::Failure;

/// A step of both runs.
#[derive(Debug, Serialize)]
pub struct Explained {
    step: String,
    base: String,
    target: String,
    tables: u32,
    clients: u32,
    repeats: [usize; 2],
    before_us: f64,
    after_us: f64,
    change_us: f64,
    /// What changed most.
    pub first: String,
    /// Of the change, in percent; of the slower side's time where nothing changed.
    unexplained_pct: f64,
    /// What the time is made of, what changed most first.
    pub parts: Vec<Change>,
    /// Costs that nobody waits for.
    pub beside: Vec<Change>,
}

/// A run or a part of a plan with its steps, targets under their names.
struct Side {
    origin: Origin,
    steps: Vec<StepRecord>,
}

impl Side {
    fn all(run: &Path) -> Result<Vec<Side>, Failure> {
        let read = |origin: Origin| {
            let mut steps = read_steps(&origin.path)?;
            for step in &mut steps {
                step.result.target = origin.record.name_of(&step.result.target).to_owned();
            }
            Ok(Side { origin, steps })
        };
        Origin::all(run)?.into_iter().map(read).collect()
    }

    fn targets(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.steps.iter().map(|step| step.result.target.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// How a target is called where all parts stand beside each other.
    fn shown(&self, target: &str) -> String {
        match self.origin.part.as_ref().filter(|part| part.has_others) {
            Some(part) => format!("{target} [{}]", part.name),
            None => target.to_owned(),
        }
    }

    /// The targets that are looked at.
    fn chosen(&self, wanted: Option<&String>) -> Vec<&str> {
        let is_it = |name: &&str| wanted.is_none_or(|wanted| wanted == name || *wanted == self.shown(name));
        self.targets().into_iter().filter(is_it).collect()
    }
}

/// As [`lab_measure::result::StepResult::case`].
type Case = (u32, u32, Option<u32>);

/// A name that no side has is a mistake.
fn check_name(sides: &[Side], wanted: Option<&String>, run: &Path) -> Result<(), Failure> {
    let Some(name) = wanted.filter(|_| sides.iter().all(|side| side.chosen(wanted).is_empty())) else { return Ok(()) };
    let mut known: Vec<String> = Vec::new();
    sides.iter().for_each(|side| known.extend(side.targets().into_iter().map(|target| side.shown(target))));
    Err(Failure::Usage(format!("{} has no target {name}; it has {}", run.display(), known.join(", "))))
}

/// Steps of one target and case with their averages, in the order in which they ran.
fn splits(steps: &[StepRecord], target: &str, case: Case) -> Vec<(String, Split, usize)> {
    let mut names: Vec<&str> = Vec::new();
    let own: Vec<&StepRecord> =
        steps.iter().filter(|step| (step.result.target.as_str(), step.result.case()) == (target, case)).collect();
    for step in &own {
        if !names.contains(&step.result.step.as_str()) {
            names.push(&step.result.step);
        }
    }
    let averaged = |name: &str| {
        let all: Vec<Split> =
            own.iter().filter(|step| step.result.step == name).filter_map(|step| split(step)).collect();
        Some((name.to_owned(), mean(&all)?, all.len()))
    };
    names.into_iter().filter_map(averaged).collect()
}

/// Runs the command.
pub fn explain(options: &Explain) -> Result<(), Failure> {
    let (all, notes) = explained_steps(options)?;
    notes.iter().for_each(|note| eprintln!("note: {note}"));
    match options.format {
        ExplainFormat::Json => {
            println!("{}", serde_json::to_string_pretty(&all).expect("only text and numbers"));
        }
        ExplainFormat::Text => all.iter().for_each(|explained| print!("{}", told(explained))),
    }
    Ok(())
}

/// Every step that both runs have, and what a reader has to know.
pub fn explained_steps(options: &Explain) -> Result<(Vec<Explained>, Vec<String>), Failure> {
    let (before, after) = (Side::all(&options.base)?, Side::all(&options.run)?);
    let (base_target, target) = (options.base_target.as_ref(), options.target.as_ref());
    check_name(&before, base_target, &options.base)?;
    check_name(&after, target, &options.run)?;
    let (mut all, mut notes, mut apart) = (Vec::new(), Vec::new(), Vec::new());
    for other in &after {
        let Some(base) = before.iter().find(|base| base.origin.apart(&other.origin).is_none()) else {
            let why = before.first().and_then(|base| base.origin.apart(&other.origin)).unwrap_or_default();
            apart.push(format!("{} has nothing beside it: {why}", other.origin.path.display()));
            continue;
        };
        let found = pair(base, other, options);
        if !found.is_empty() {
            let differences = base.origin.differences(&other.origin);
            let [left, right] = [base, other].map(|side| side.origin.path.display());
            notes.extend(differences.iter().map(|what| format!("{left} and {right} differ in their {what}")));
        }
        all.extend(found);
    }
    if all.is_empty() {
        let reasons = if apart.is_empty() { String::new() } else { format!(" ({})", apart.join("; ")) };
        return Err(Failure::Usage(format!(
            "the runs have no step of statements in common{reasons}, with the same tables and clients; name targets with \
             --base-target and --target, or runs of this lab's version"
        )));
    }
    notes.extend(apart);
    Ok((all, notes))
}

/// The steps of two runs that belong together.
fn pair(before: &Side, after: &Side, options: &Explain) -> Vec<Explained> {
    let bases = before.chosen(options.base_target.as_ref());
    let others = after.chosen(options.target.as_ref());
    let pairs: Vec<(&str, &str)> = match (bases.as_slice(), others.as_slice()) {
        ([base], [other]) => vec![(*base, *other)],
        _ => bases.iter().copied().filter(|base| others.contains(base)).map(|base| (base, base)).collect(),
    };
    let mut all = Vec::new();
    for (base, other) in pairs {
        let mut cases: Vec<Case> =
            before.steps.iter().filter(|step| step.result.target == base).map(|step| step.result.case()).collect();
        cases.dedup();
        for case in cases {
            let of_after = splits(&after.steps, other, case);
            for (step, left, left_count) in splits(&before.steps, base, case) {
                if options.step.as_ref().is_some_and(|wanted| *wanted != step) {
                    continue;
                }
                let Some((_, right, count)) = of_after.iter().find(|(name, ..)| *name == step) else { continue };
                let names = (before.shown(base), after.shown(other));
                all.push(explained((&names.0, &names.1), case, &step, (&left, left_count), (right, *count)));
            }
        }
    }
    all
}

fn explained(
    (base, target): (&str, &str),
    (tables, clients, _): Case,
    step: &str,
    (before, before_count): (&Split, usize),
    (after, after_count): (&Split, usize),
) -> Explained {
    let parts = changes(before, after);
    let change_us = after.total_us - before.total_us;
    let left = parts.iter().find(|change| change.part == UNEXPLAINED).map_or(0.0, |change| change.change_us);
    let beside_of = |split: &Split| Split { parts: split.beside.clone(), ..Split::default() };
    let first = parts.first();
    Explained {
        step: step.to_owned(),
        base: base.to_owned(),
        target: target.to_owned(),
        tables,
        clients,
        repeats: [before_count, after_count],
        before_us: before.total_us,
        after_us: after.total_us,
        change_us,
        first: first.map(|change| change.part.clone()).unwrap_or_default(),
        unexplained_pct: if change_us == 0.0 { 0.0 } else { 100.0 * left / change_us.abs() },
        beside: changes(&beside_of(before), &beside_of(after)),
        parts,
    }
}

/// What is explained, and by how much it changed.
pub fn headline(explained: &Explained) -> String {
    let Explained { step, base, target, tables, clients, before_us, after_us, change_us, .. } = explained;
    let times = if *before_us > 0.0 { format!(", {:.2} times", after_us / before_us) } else { String::new() };
    let names = if base == target { base.clone() } else { format!("{base} -> {target}") };
    format!(
        "{step}, {names}, {clients} clients, {tables} tables: {before_us:.2} us an operation -> {after_us:.2} us \
         ({change_us:+.2}{times})"
    )
}

/// A part of the change, in percent of it.
pub fn share(explained: &Explained, us: f64) -> f64 {
    if explained.change_us == 0.0 { 0.0 } else { 100.0 * us / explained.change_us.abs() }
}

/// For people: the whole, then the parts that matter, then what is beside the time.
fn told(explained: &Explained) -> String {
    let mut out = format!("\n{}\nfirst: {}\n", headline(explained), explained.first);
    for part in &explained.parts {
        out.push_str(&format!(
            "  {:<24} {:>10.2} -> {:>10.2} us  {:>+10.2} us  {:>+7.1} % of the change\n",
            part.part,
            part.before_us,
            part.after_us,
            part.change_us,
            share(explained, part.change_us)
        ));
    }
    for part in explained.beside.iter().filter(|part| part.before_us.max(part.after_us) > 0.0) {
        out.push_str(&format!(
            "  beside: {:<24} {:>10.3} -> {:>10.3} an operation\n",
            part.part, part.before_us, part.after_us
        ));
    }
    out
}
