//! Carrying a plan out.
//!
//! 1. The folder is made: `plan.json`, the plan's file, the option files of configurations; a run folder for each part.
//! 2. Turn by turn in the order of [`super::schedule`]; a turn that is done is passed over. What cannot be had is left out
//!    with one line; what fails is not run any further, and the rest goes on.
//! 3. With `--sample`: behind all turns, one more of each target in each case, which is in no number.
//! 4. After each turn the part's record is written. At the end, however it came, each part has its results and report, and
//!    the plan its own.
//!
//! Targets that were left out are tried again when the plan is gone on with: they may be there now.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use lab_measure::environment::counting_note;
use lab_measure::result::StepResult;
use lab_target::{TargetSpec, registry};

use super::copied::without_passwords;
use super::resolved::{FOLDER, Resolved, folder_of};
use super::schedule::{self, Ready, told};
use super::show;
use crate::across::{compare_checksums, with_medians};
use crate::cli::Plan;
use crate::folder::{Folder, LeftOut, RUNS, RunRecord, State, Turn};
use crate::group::{DiskGroup, MemoryGroup};
use crate::keeper::Keeper;
use crate::outcome::{self, Failure};
use crate::progress::Progress;
use crate::run::{check_terms, check_workload, fresh_folder, interrupt_flag, one_turn, point_latest_at, record_of};

/// A part under way.
struct Open {
    ready: Ready,
    path: PathBuf,
    record: RunRecord,
    /// Whether the disk's rates are those of a control group.
    by_group: bool,
}

/// Runs a plan.
pub fn execute(plan: Resolved, options: &Plan) -> Result<(), Failure> {
    if options.sample {
        crate::sample::check()?;
    }
    let parts = schedule::ready(&plan)?;
    parts.iter().try_for_each(|part| check_terms(&part.options))?;
    let folder = made_folder(&plan, options)?;
    let say = |text: &str| {
        if !options.quiet {
            eprintln!("{text}");
        }
    };
    say(&format!("results go to {}", folder.display()));
    let turns = schedule::turns(&parts);
    let mut open = parts.into_iter().map(|part| opened(part, &folder, options)).collect::<Result<Vec<_>, _>>()?;
    if let Some(note) = open.first().and_then(|part| counting_note(&part.record.environment)) {
        say(&note);
    }
    for part in &open {
        part.record.left_out.iter().for_each(|left| say(&left_line(part, left)));
    }
    let mut plan = Resolved { state: State::Running, ..plan };
    plan.write(&folder)?;
    let interrupt = interrupt_flag()?;
    let ended = all_turns(&mut open, &turns, options, &interrupt);
    let ended = match ended {
        Ok(()) if options.sample => open.iter().try_for_each(|part| sampled_part(part, options, &interrupt)),
        other => other,
    };
    let outcome = concluded(&mut plan, &mut open, &folder, ended, options);
    show::print(&plan, &folder, options)?;
    if matches!(outcome, Err(Failure::Interrupted(_))) {
        eprintln!("next:   lab run {} --resume {}", options_of(&plan), folder.display());
    }
    outcome
}

fn options_of(plan: &Resolved) -> String {
    let scale = plan.scale.as_ref().map(|scale| format!(" --scale {scale}")).unwrap_or_default();
    format!("{}{scale}", plan.source)
}

fn made_folder(plan: &Resolved, options: &Plan) -> Result<PathBuf, Failure> {
    if let Some(folder) = &options.resume {
        return Ok(folder.clone());
    }
    let folder = options.out.clone().unwrap_or_else(|| fresh_folder(Path::new(RUNS), &plan.name));
    if super::is_plan(&folder) || folder.join("run.json").exists() {
        return Err(Failure::Usage(format!(
            "{} already holds a run; choose another --out, or go on with --resume {}",
            folder.display(),
            folder.display()
        )));
    }
    fs::create_dir_all(&folder).map_err(|error| Failure::io("make", &folder, &error))?;
    for (name, text) in &plan.files {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(&folder);
        fs::create_dir_all(parent).map_err(|error| Failure::io("make", parent, &error))?;
        crate::folder::write_whole(&path, text)?;
    }
    if let Some(file) = &options.file {
        // For whoever reads the folder; what counts is plan.json.
        crate::folder::write_whole(&folder.join("plan.toml"), &without_passwords(&super::source_of(file)?)?)?;
    }
    plan.write(&folder)?;
    if options.out.is_none() {
        point_latest_at(&folder);
    }
    Ok(folder)
}

/// Why a target cannot be had, if that is known without trying it.
pub fn why_not(target: &str, part: &Ready) -> Option<String> {
    let spec = match TargetSpec::parse(target) {
        Ok(spec) => spec,
        Err(error) => return Some(error.to_string()),
    };
    let checked = registry::check(&spec).map_err(Failure::from);
    let checked = checked.and_then(|()| check_workload(&part.plan, std::slice::from_ref(&spec)));
    let checked =
        checked.and_then(|()| match registry::is_out_of_reach(&spec) && part.options.memory_limit.is_some() {
            true => Err(Failure::Usage("a server that runs already is outside the memory limit".into())),
            false => Ok(()),
        });
    let checked = checked.and_then(|()| {
        let disk = crate::run::disk_of(&part.options)?.without_rates();
        Ok(registry::check_disk(&spec, &disk)?)
    });
    checked.err().map(|failure| failure.to_string())
}

/// Opens the folder of a part, or makes it.
fn opened(ready: Ready, folder: &Path, options: &Plan) -> Result<Open, Failure> {
    let path = folder_of(folder, &ready.part.name);
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let mut ready = ready;
    ready.options.dir = options.dir.clone().or(ready.options.dir);
    ready.options.targets =
        ready.part.rows.iter().map(|row| row.target.replace(FOLDER, &whole.display().to_string())).collect();
    let mut record = match path.join("run.json").exists() {
        true => Folder::open(&path)?.1,
        false => {
            Folder::create(&path)?;
            record_of(&ready.options, ready.plan.clone(), &path)?
        }
    };
    record.names = ready.part.rows.iter().map(|row| row.name.clone()).collect();
    record.state = State::Running;
    record.ended_by = None;
    let disk = record.setup.disk;
    let targets = ready.options.targets.clone();
    let specs: Vec<TargetSpec> = targets.iter().filter_map(|text| TargetSpec::parse(text).ok()).collect();
    let mut by_group = disk != disk.without_rates() && specs.iter().any(registry::reaches_the_disk_itself);
    let mut missing: Vec<Option<String>> = targets.iter().map(|text| why_not(text, &ready)).collect();
    if by_group {
        let place = ready.options.dir.as_deref().unwrap_or(&path);
        if let Err(failure) = DiskGroup::enter(&disk, place) {
            by_group = false;
            for (why, text) in missing.iter_mut().zip(&targets) {
                let reaches = TargetSpec::parse(text).is_ok_and(|spec| registry::reaches_the_disk_itself(&spec));
                if reaches && why.is_none() {
                    *why = Some(format!("it would not feel the slower disk: {failure}"));
                }
            }
        }
    }
    let left = missing.into_iter().enumerate().filter_map(|(target, why)| Some((target, why?)));
    record.left_out = left.map(|(target, why)| LeftOut { target, why, was_missing: true }).collect();
    let part = Open { ready, path, record, by_group };
    Folder { path: part.path.clone() }.write_run(&part.record)?;
    Ok(part)
}

fn left_line(part: &Open, left: &LeftOut) -> String {
    let what = if left.was_missing { "not to be had" } else { "failed" };
    format!("{}: {} {what}: {}", part.ready.part.name, part.record.names[left.target], left.why)
}

fn all_turns(
    open: &mut [Open],
    turns: &[(usize, Turn)],
    options: &Plan,
    interrupt: &AtomicBool,
) -> Result<(), Failure> {
    let count = turns.len();
    for (number, (place, turn)) in turns.iter().enumerate() {
        let part = &mut open[*place];
        let is_left_out = part.record.left_out.iter().any(|left| left.target == turn.target);
        if is_left_out || part.record.turns_done.contains(turn) {
            continue;
        }
        if interrupt.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted("interrupted; what is finished is kept".into()));
        }
        let progress = Progress::new(options.quiet);
        progress.say(&format!("[{}/{count}] {}", number + 1, told(&part.ready, *turn)));
        match a_turn(part, *turn, (progress, options), interrupt) {
            Ok(()) => {}
            Err(failure @ Failure::Interrupted(_)) => return Err(failure),
            Err(failure) => leave_out(part, turn.target, failure, options.quiet)?,
        }
    }
    Ok(())
}

/// One turn of a part under the part's limits.
fn a_turn(
    part: &mut Open,
    turn: Turn,
    (progress, options): (Progress, &Plan),
    interrupt: &AtomicBool,
) -> Result<(), Failure> {
    let spec = TargetSpec::parse(&part.ready.options.targets[turn.target])?;
    let memory = part.record.setup.memory_limit_bytes.map(MemoryGroup::enter).transpose()?;
    let place = part.ready.options.dir.as_deref().unwrap_or(&part.path);
    let disk = part.by_group.then(|| DiskGroup::enter(&part.record.setup.disk, place)).transpose()?;
    part.record.setup.disk_group = disk.as_ref().map(|group| group.in_force.clone());
    let mut keeper = Keeper::new(Folder { path: part.path.clone() }, progress, &part.record)?;
    keeper.metrics = options.metrics.clone();
    keeper.start_turn(turn)?;
    let ran = one_turn(&part.ready.options, &spec, turn, &mut part.record, &keeper, interrupt);
    keeper.progress.clear();
    drop((memory, disk));
    ran?;
    part.record.turns_done.push(turn);
    keeper.folder.write_run(&part.record)
}

/// One more repetition of what a part has, sampled, under the part's limits. What was left out is left out here too.
fn sampled_part(part: &Open, options: &Plan, interrupt: &AtomicBool) -> Result<(), Failure> {
    let targets = &part.ready.options.targets;
    let specs = targets.iter().map(|text| TargetSpec::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let _memory = part.record.setup.memory_limit_bytes.map(MemoryGroup::enter).transpose()?;
    let place = part.ready.options.dir.as_deref().unwrap_or(&part.path);
    let _disk = part.by_group.then(|| DiskGroup::enter(&part.record.setup.disk, place)).transpose()?;
    let keeper = Keeper::new(Folder { path: part.path.clone() }, Progress::new(options.quiet), &part.record)?;
    keeper.end_metrics();
    let own = crate::cli::Common { quiet: options.quiet, ..part.ready.options.clone() };
    super::super::sampled::sampled(&own, &specs, &part.record, &keeper, interrupt)
}

/// A target that could not be opened, or failed, is not run any further.
fn leave_out(part: &mut Open, target: usize, failure: Failure, quiet: bool) -> Result<(), Failure> {
    // A server that cannot be started is one that cannot be had; an embedded engine that cannot be opened has failed.
    let is_server = part.record.targets[target].contains("://") || part.record.targets[target].starts_with("server:");
    let was_opened = part.record.described[target].is_some();
    let was_missing = matches!(failure, Failure::Usage(_)) || (is_server && !was_opened);
    let was_violated = matches!(failure, Failure::Violated(_));
    let why = if was_violated { format!("{VIOLATED}{failure}") } else { failure.to_string() };
    let left = LeftOut { target, why, was_missing };
    if !quiet {
        eprintln!("{}", left_line(part, &left));
    }
    let folder = Folder { path: part.path.clone() };
    folder.log(&left_line(part, &left));
    part.record.left_out.push(left);
    folder.write_run(&part.record)
}

/// How the reason of a violated invariant begins.
const VIOLATED: &str = "violated: ";

/// Results, reports and states, and how the plan ended.
fn concluded(
    plan: &mut Resolved,
    open: &mut [Open],
    folder: &Path,
    ended: Result<(), Failure>,
    options: &Plan,
) -> Result<(), Failure> {
    let mut violated = Vec::new();
    for part in open.iter_mut() {
        let here = Folder { path: part.path.clone() };
        // Steps of a turn that came to no end are sound too: their invariants were looked at.
        let results: Vec<StepResult> =
            crate::folder::read_steps(&part.path)?.into_iter().map(|step| step.result).collect();
        if part.record.plan.max_seconds() == 0 {
            violated.extend(compare_checksums(&results).err().map(|failure| failure.to_string()));
        }
        part.record.state = match &ended {
            Err(Failure::Interrupted(_)) => State::Interrupted,
            Err(_) => State::Failed,
            Ok(()) if part.record.left_out.iter().any(|left| !left.was_missing) => State::Failed,
            Ok(()) => State::Done,
        };
        let failed = part.record.left_out.iter().find(|left| !left.was_missing);
        part.record.ended_by =
            ended.as_ref().err().map(ToString::to_string).or_else(|| failed.map(|left| left_line(part, left)));
        here.write_run(&part.record)?;
        if !results.is_empty() {
            here.write_results(&with_medians(results, part.record.repeat))?;
            crate::browse::write_report(std::slice::from_ref(&part.path), None)?;
        }
    }
    plan.state = match &ended {
        Err(Failure::Interrupted(_)) => State::Interrupted,
        Ok(()) if violated.is_empty() && open.iter().all(|part| part.record.state == State::Done) => State::Done,
        _ => State::Failed,
    };
    plan.write(folder)?;
    ended?;
    let all: Vec<(String, &LeftOut)> =
        open.iter().flat_map(|part| part.record.left_out.iter().map(|left| (left_line(part, left), left))).collect();
    violated.extend(all.iter().filter(|(_, left)| left.why.starts_with(VIOLATED)).map(|(line, _)| line.clone()));
    let failed: Vec<&String> = all.iter().filter(|(_, left)| !left.was_missing).map(|(line, _)| line).collect();
    let missing: Vec<&String> = all.iter().filter(|(_, left)| left.was_missing).map(|(line, _)| line).collect();
    let nothing = open.iter().all(|part| part.record.turns_done.is_empty());
    match (violated.first(), failed.first()) {
        (Some(what), _) => Err(Failure::Violated(what.clone())),
        (None, Some(what)) => Err(Failure::Failed((*what).clone())),
        (None, None) if nothing => {
            Err(Failure::Failed(format!("no target of the plan could be had; the first: {}", missing[0])))
        }
        (None, None) if options.require_targets && !missing.is_empty() => {
            Err(Failure::Failed(format!("{} targets could not be had; the first: {}", missing.len(), missing[0])))
        }
        (None, None) => Ok(()),
    }
}

/// The exit codes a plan ends with, for its reference.
pub const CODES: &[(u8, &str)] = &[
    (0, "every turn of every target that could be had is done"),
    (outcome::FAILED, "a target failed, none could be had, or one could not and `--require-targets` was given"),
    (outcome::USAGE, "the plan has a mistake, named with its line; nothing was run"),
    (outcome::VIOLATED, "an invariant was violated: that step has no number"),
    (outcome::INTERRUPTED, "interrupted; `--resume` goes on"),
];
