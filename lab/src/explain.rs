//! `lab explain RUN_A RUN_B`: why is an operation slower or faster, part by part? The model is in [`lab_measure::explain`].
//!
//! 1. Steps are set side by side: the same target (by its name), case and step of both runs; with one target in each run,
//!    whatever they are called.
//! 2. Repetitions are averaged, which keeps parts adding up.
//! 3. The part that changed most comes first.

use std::path::{Path, PathBuf};

use lab_measure::explain::{Change, Split, UNEXPLAINED, changes, mean, split};
use lab_measure::record::StepRecord;
use serde::Serialize;

use crate::cli::{Explain, ExplainFormat};
use crate::folder::{Folder, read_steps};
use crate::outcome::Failure;
use crate::run::plan::expanded;

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

/// A target in a case: its name, tables, clients, cores.
type Key = (String, (u32, u32, Option<u32>));

/// All steps of a run or a plan, targets under their names: a plan of several parts has each part's targets apart.
fn steps_of(run: &Path) -> Result<Vec<StepRecord>, Failure> {
    let mut all = Vec::new();
    let paths = expanded(&[run.to_path_buf()])?;
    for path in &paths {
        let (folder, record) = Folder::open(path)?;
        let mut steps = read_steps(&folder.path)?;
        let part = path.file_name().filter(|_| paths.len() > 1);
        let part = part.map(|part| format!(" [{}]", part.to_string_lossy())).unwrap_or_default();
        for step in &mut steps {
            step.result.target = format!("{}{part}", record.name_of(&step.result.target));
        }
        all.extend(steps);
    }
    Ok(all)
}

fn targets(steps: &[StepRecord]) -> Vec<&str> {
    let mut names: Vec<&str> = steps.iter().map(|step| step.result.target.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Steps of one target and case with their averages, in the order in which they ran.
fn splits(steps: &[StepRecord], key: &Key) -> Vec<(String, Split, usize)> {
    let mut names: Vec<&str> = Vec::new();
    let own: Vec<&StepRecord> =
        steps.iter().filter(|step| (&step.result.target, step.result.case()) == (&key.0, key.1)).collect();
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
    let all = explained_steps(options)?;
    match options.format {
        ExplainFormat::Json => {
            println!("{}", serde_json::to_string_pretty(&all).expect("only text and numbers"));
        }
        ExplainFormat::Text => all.iter().for_each(|explained| print!("{}", told(explained))),
    }
    Ok(())
}

/// Every step that both runs have.
pub fn explained_steps(options: &Explain) -> Result<Vec<Explained>, Failure> {
    let (before, after) = (steps_of(&options.base)?, steps_of(&options.run)?);
    let chosen = |steps: &[StepRecord], wanted: &Option<String>, run: &PathBuf| -> Result<Vec<String>, Failure> {
        let known = targets(steps);
        match wanted {
            None => Ok(known.into_iter().map(String::from).collect()),
            Some(name) if known.contains(&name.as_str()) => Ok(vec![name.clone()]),
            Some(name) => {
                Err(Failure::Usage(format!("{} has no target {name}; it has {}", run.display(), known.join(", "))))
            }
        }
    };
    let bases = chosen(&before, &options.base_target, &options.base)?;
    let others = chosen(&after, &options.target, &options.run)?;
    let pairs: Vec<(&String, &String)> = match (bases.as_slice(), others.as_slice()) {
        ([base], [other]) => vec![(base, other)],
        _ => bases.iter().filter_map(|base| Some((base, others.iter().find(|other| *other == base)?))).collect(),
    };
    let mut all = Vec::new();
    for (base, other) in pairs {
        let mut cases: Vec<_> =
            before.iter().filter(|step| step.result.target == *base).map(|step| step.result.case()).collect();
        cases.dedup();
        for case in cases {
            let of_after = splits(&after, &(other.clone(), case));
            for (step, left, left_count) in splits(&before, &(base.clone(), case)) {
                if options.step.as_ref().is_some_and(|wanted| *wanted != step) {
                    continue;
                }
                let Some((_, right, count)) = of_after.iter().find(|(name, ..)| *name == step) else { continue };
                all.push(explained((base, other), case, &step, (&left, left_count), (right, *count)));
            }
        }
    }
    if all.is_empty() {
        return Err(Failure::Usage(
            "the runs have no step of statements in common, with the same tables and clients; name targets with \
             --base-target and --target, or runs of this lab's version"
                .into(),
        ));
    }
    Ok(all)
}

fn explained(
    (base, target): (&str, &str),
    (tables, clients, _): (u32, u32, Option<u32>),
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
