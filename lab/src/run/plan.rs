//! `lab run plan.toml`: targets × versions × configurations × workloads × repetitions of one file, in turns.
//!
//! | module | owns |
//! |---|---|
//! | `source` | the file, with the place of everything in it |
//! | `studies` | the five that are built in |
//! | `near` | did you mean …? |
//! | `keys`, `options` | which keys there are: a plan's own, and those of the workloads, which are their options |
//! | `read` | from the file to a plan that can be carried out |
//! | `resolved` | that plan, `plan.json` of its folder |
//! | `copied` | the file as the folder has it |
//! | `schedule` | the order of turns, and how long they take |
//! | `execute` | carrying it out |
//! | `show` | its folder: tables of the study, report, list, verify |
//!
//! The folder of a plan holds a run folder for each workload below `parts`, so that whatever reads a run reads a part of a
//! plan. A turn (a target in a case of a workload, one repetition, all steps on a fresh database) is done or not; what is
//! done is never run again, and an interrupted turn is run from its beginning, because a database in the middle of a step
//! cannot be continued.

mod copied;
mod execute;
pub mod keys;
mod near;
pub mod options;
mod read;
mod resolved;
mod schedule;
mod show;
mod source;
pub mod studies;

use std::path::Path;

use lab_workload::AnyPlan;

use crate::cli::{Common, Plan, Workload};
use crate::outcome::Failure;
use resolved::Resolved;
use source::Source;

pub use execute::CODES;
pub use resolved::{expanded, is_plan};
pub use show::{Summary, in_words, line_of, report, show, study_of, summary_of, verify};

/// Runs a plan, or says what it would run.
pub fn run_plan(options: &Plan) -> Result<(), Failure> {
    let read = |path: &Path| read::resolved(&source_of(path)?, options.scale.as_deref());
    let plan = match (&options.file, &options.resume) {
        (Some(file), None) => read(file)?,
        (None, Some(folder)) => of_folder(folder)?,
        (Some(file), Some(folder)) => {
            let (now, then) = (read(file)?, of_folder(folder)?);
            if !now.is_the_work_of(&then) {
                return Err(Failure::Usage(format!(
                    "{} is another plan, or another --scale, than the one that {} was begun with; leave the file out to go on \
                     with that one, or leave --resume out to begin anew",
                    file.display(),
                    folder.display()
                )));
            }
            // What the folder has lacks passwords.
            Resolved { parts: now.parts, ..then }
        }
        (None, None) => {
            return Err(Failure::Usage(
                "lab run needs a workload (ibench, sysbench, tpcc) or a plan: lab run seed-000 --scale mini".into(),
            ));
        }
    };
    if options.dry_run {
        return schedule::dry_run(&plan, options.resume.as_deref());
    }
    execute::execute(plan, options)
}

/// The text of a file, or of the plan that is built in under this name.
fn source_of(path: &Path) -> Result<Source, Failure> {
    match path.exists() {
        true => Source::read(path),
        false => studies::named(path).ok_or_else(|| missing(path)),
    }
}

fn of_folder(folder: &Path) -> Result<Resolved, Failure> {
    if !is_plan(folder) {
        return Err(Failure::Usage(format!(
            "{} is not the folder of a plan; a run of one workload goes on with lab run WORKLOAD --resume {}",
            folder.display(),
            folder.display()
        )));
    }
    Resolved::open(folder)
}

/// A word that is neither a file nor a workload.
fn missing(path: &Path) -> Failure {
    let word = path.display().to_string();
    let studies: Vec<&str> = studies::all().map(|(name, _)| name).collect();
    let known = [&options::WORKLOADS[..], &studies].concat();
    match (near::nearest(&word, &known), studies::like(path)) {
        (Some(name), _) => {
            Failure::Usage(format!("no workload and no plan is called `{word}`; did you mean `{name}`?"))
        }
        (None, Some(study)) => {
            Failure::Usage(format!("the plan {word} does not exist; {study} is built in: lab run {study}"))
        }
        (None, None) => Failure::Usage(format!(
            "the plan {word} does not exist; {} are built in, and the workloads are {}",
            studies.join(", "),
            options::WORKLOADS.join(", ")
        )),
    }
}

/// The plan of a workload's options.
fn plan_of(workload: &Workload) -> Result<AnyPlan, Failure> {
    match workload {
        Workload::Ibench(options) => super::ibench::plan_of(options),
        Workload::Sysbench(options) => super::sysbench::plan_of(options),
        Workload::Tpcc(options) => super::tpcc::plan_of(options),
    }
}

/// The options that every workload has.
fn common_of(workload: Workload) -> Common {
    match workload {
        Workload::Ibench(options) => options.common,
        Workload::Sysbench(options) => options.common,
        Workload::Tpcc(options) => options.common,
    }
}
