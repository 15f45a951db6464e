//! `lab run`: targets take turns, repetition by repetition; every turn gets a fresh database.
//!
//! 1. The command line becomes a plan; targets are checked before anything is made.
//! 2. For each repetition, case and target: open, all steps, close, remove the database. Every second repetition goes
//!    through the targets backwards, so that a steady drift of the machine favours none.
//! 3. After each step its record and all results so far are in the run folder.
//! 4. At the end checksums of all targets are compared, the report is written, results are printed.
//!
//! A turn that is interrupted keeps the records of its finished steps; `--resume` does it again from its beginning,
//! because a database in the middle of a step cannot be continued.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lab_measure::environment::{Environment, counting_note};
use lab_measure::procfs::{Process, Runs};
use lab_measure::result::{Repeat, SCHEMA, StepResult};
use lab_target::secret::{masked_target, masked_text};
use lab_target::server::{ERROR_LOG, NO_SPACE};
use lab_target::{DiskLimits, Setup, TargetError, TargetSpec, registry};
use lab_workload::rows::text_pool;
use lab_workload::{AnyPlan, Case, Place, RunError};

use crate::across::{compare_checksums, with_medians};
use crate::affinity::Restricted;
use crate::cli::{Common, Durability, Format, Io};
use crate::folder::{Folder, RUNS, RunRecord, SetupRecord, State, Turn, epoch_secs, utc_now};
use crate::group::{DiskGroup, MemoryGroup};
use crate::keeper::Keeper;
use crate::outcome::Failure;
use crate::progress::Progress;
use crate::sample::Sampler;
use crate::{browse, table};

mod crash;
mod ibench;
pub mod plan;
mod sampled;
mod sysbench;
mod tpcc;

pub use crash::child as crash_child;
pub use ibench::ibench;
pub use sysbench::sysbench;
pub use tpcc::tpcc;

/// What is measured when nothing is named.
pub const DEFAULT_TARGET: &str = "trefoil";

/// Runs a workload: what `plan` makes of its own options, or what a run that is gone on with has. Returns the results.
pub fn run(
    options: &Common,
    workload: &str,
    plan: impl FnOnce() -> Result<AnyPlan, Failure>,
) -> Result<Vec<StepResult>, Failure> {
    if options.sample {
        crate::sample::check()?;
    }
    let options = &with_targets(options);
    let (folder, mut record, group) = match &options.resume {
        Some(path) => {
            let (folder, record) = Folder::open(path)?;
            check_resumed(options, workload, path, &record)?;
            let group = record.setup.memory_limit_bytes.map(MemoryGroup::enter).transpose()?;
            (folder, record, group)
        }
        None => begin(options, plan()?)?,
    };
    // What a folder has of a target lacks its password.
    let targets = if options.targets.is_empty() { &record.targets } else { &options.targets };
    let (specs, by_group) = checked_targets(targets, &record.setup.disk)?;
    let dir = options.dir.as_deref().unwrap_or(&folder.path);
    let disk_group = by_group.then(|| DiskGroup::enter(&record.setup.disk, dir)).transpose()?;
    record.setup.disk_group = disk_group.as_ref().map(|group| group.in_force.clone());
    let interrupt = interrupt_flag()?;
    let mut keeper = Keeper::new(folder, Progress::new(options.quiet), &record)?;
    keeper.metrics = options.metrics.clone();
    record.state = State::Running;
    keeper.folder.write_run(&record)?;
    keeper.folder.log(&format!("run begins: {}", record.command.join(" ")));
    keeper.progress.say(&format!("results go to {}", keeper.folder.path.display()));
    if let Some(note) = counting_note(&record.environment) {
        keeper.progress.say(&note);
        keeper.folder.log(&note);
    }
    if let Some(note) = disk_note(&record) {
        keeper.progress.say(&note);
        keeper.folder.log(&note);
    }
    let outcome = turns(options, &specs, &mut record, &keeper, &interrupt);
    keeper.progress.clear();
    let outcome = match outcome {
        Ok(()) if options.sample => {
            keeper.end_metrics();
            sampled::sampled(options, &specs, &record, &keeper, &interrupt)
        }
        other => other,
    };
    // A step that a time limit ended holds whatever was done by then.
    let comparable = record.plan.max_seconds() == 0;
    let outcome = outcome.and_then(|()| if comparable { compare_checksums(&keeper.results()) } else { Ok(()) });
    record.state = match &outcome {
        Ok(()) => State::Done,
        Err(Failure::Interrupted(_)) => State::Interrupted,
        Err(_) => State::Failed,
    };
    record.ended_by = outcome.as_ref().err().map(ToString::to_string);
    keeper.folder.write_run(&record)?;
    if let Some(text) = group.as_ref().and_then(memory_verdict) {
        keeper.progress.say(&text);
        keeper.folder.log(&text);
    }
    keeper.folder.log(&format!("run ends: {}", record.ended_by.as_deref().unwrap_or("ok")));
    conclude(options, &record, &keeper)?;
    outcome?;
    Ok(keeper.results())
}

/// The options with the target that is meant where none is named.
fn with_targets(options: &Common) -> Common {
    let mut options = options.clone();
    if options.targets.is_empty() && options.resume.is_none() {
        options.targets.push(DEFAULT_TARGET.to_owned());
    }
    options
}

/// Refuses to go on with another run than the one that was begun.
fn check_resumed(options: &Common, workload: &str, path: &Path, record: &RunRecord) -> Result<(), Failure> {
    if record.workload != workload {
        let (begun, path) = (&record.workload, path.display());
        return Err(Failure::Usage(format!(
            "{path} is a run of {begun}: lab run {begun} --resume {path} goes on with it"
        )));
    }
    let named: Vec<String> = options.targets.iter().map(|target| masked_target(target)).collect();
    let begun: Vec<String> = record.targets.iter().map(|target| masked_target(target)).collect();
    if named.is_empty() || named == begun {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "--target {}: the run that --resume names has {}; leave --target out, or give it the same ones, with their passwords",
        named.join(" --target "),
        begun.join(" and ")
    )))
}

/// Processors alone are measured where the data are in memory.
fn disk_note(record: &RunRecord) -> Option<String> {
    let on = record.environment.mount.as_ref()?.filesystem.as_str();
    let chosen = record.plan.cases().iter().any(|case| case.cores.is_some());
    (chosen && on != "tmpfs").then(|| format!("the data are on {on}, not on tmpfs: the disk is part of the numbers"))
}

/// Whether the memory limit was felt.
fn memory_verdict(group: &MemoryGroup) -> Option<String> {
    let (peak, limit) = (group.peak_bytes()?, group.limit_bytes);
    let verdict = if peak < limit / 100 * 95 { "the limit had no effect" } else { "the limit was reached" };
    Some(format!("memory: at most {} MiB of {} MiB were used: {verdict}", peak >> 20, limit >> 20))
}

/// The disk that the options ask for.
fn disk_of(options: &Common) -> Result<DiskLimits, Failure> {
    let limits = options.disk_limit.as_deref().map(DiskLimits::parse).transpose();
    let limits = limits.map_err(|what| Failure::Usage(format!("--disk-limit {what}")))?.unwrap_or_default();
    Ok(DiskLimits { size_bytes: options.disk_size, ..limits })
}

/// The targets, and whether the disk's rates are those of a control group: all targets have the same ones, and one of them
/// reaches the disk by itself.
fn checked_targets(texts: &[String], disk: &DiskLimits) -> Result<(Vec<TargetSpec>, bool), Failure> {
    let specs = texts.iter().map(|text| TargetSpec::parse(text)).collect::<Result<Vec<_>, _>>()?;
    specs.iter().try_for_each(registry::check)?;
    let by_group = *disk != disk.without_rates() && specs.iter().any(registry::reaches_the_disk_itself);
    specs.iter().try_for_each(|spec| registry::check_disk(spec, &disk.without_rates()))?;
    Ok((specs, by_group))
}

/// Refuses targets that cannot run the workload.
fn check_workload(plan: &AnyPlan, specs: &[TargetSpec]) -> Result<(), Failure> {
    match plan {
        AnyPlan::Ibench(_) => {}
        AnyPlan::Sysbench(_) => specs.iter().try_for_each(|spec| registry::check_locking(spec, "sysbench"))?,
        AnyPlan::Tpcc(plan) => {
            specs.iter().try_for_each(|spec| registry::check_locking(spec, "TPC-C"))?;
            let gone = |spec: &&TargetSpec| plan.crashes() && !registry::outlives_its_process(spec);
            if let Some(spec) = specs.iter().find(gone) {
                return Err(Failure::Usage(format!("unsupported: target `{spec}` has nothing left after a crash")));
            }
        }
    }
    Ok(())
}

fn begin(options: &Common, plan: AnyPlan) -> Result<(Folder, RunRecord, Option<MemoryGroup>), Failure> {
    plan.check()?;
    if options.repeat == 0 {
        return Err(Failure::Usage("--repeat has to be at least 1".into()));
    }
    let disk = disk_of(options)?;
    let (specs, by_group) = checked_targets(&options.targets, &disk)?;
    check_workload(&plan, &specs)?;
    if by_group {
        // What is not permitted is refused before a folder is made.
        drop(DiskGroup::enter(&disk, options.dir.as_deref().unwrap_or(Path::new(".")))?);
    }
    check_terms(options)?;
    let foreign = specs.iter().find(|spec| registry::is_out_of_reach(spec));
    if let (Some(spec), Some(_)) = (foreign, options.memory_limit) {
        return Err(Failure::Usage(format!(
            "unsupported: target `{spec}`: a server that runs already is outside --memory-limit; \
             one that the lab starts is inside: server:mariadb?engine=…, server:mysql?engine=…, server:postgres"
        )));
    }
    if options.legacy_units && matches!(options.format, Format::Json | Format::Csv) {
        return Err(Failure::Usage("--legacy-units has no effect on json and csv, whose keys name their unit".into()));
    }
    let group = options.memory_limit.map(MemoryGroup::enter).transpose()?;
    let path = match &options.out {
        Some(path) => path.clone(),
        None => fresh_folder(Path::new(RUNS), plan.workload()),
    };
    let folder = Folder::create(&path)?;
    if options.out.is_none() {
        point_latest_at(&path);
    }
    let mut record = record_of(options, plan, &path)?;
    record.setup.memory_limit_bytes = group.as_ref().map(|group| group.limit_bytes);
    Ok((folder, record, group))
}

/// Refuses options that contradict each other.
fn check_terms(options: &Common) -> Result<(), Failure> {
    if let (Some(budget), Some(limit)) = (options.budget, options.memory_limit)
        && budget >= limit
    {
        return Err(Failure::Usage("--budget leaves no room below --memory-limit for driver and page cache".into()));
    }
    Ok(())
}

/// The record of a run that begins.
fn record_of(options: &Common, plan: AnyPlan, path: &Path) -> Result<RunRecord, Failure> {
    let setup = SetupRecord {
        durability: match options.durability {
            Durability::Sync => lab_target::Durability::Sync,
            Durability::Write => lab_target::Durability::Write,
            Durability::Buffered => lab_target::Durability::Buffered,
        },
        // The rest is for driver and page cache: an engine's own default knows no limit, and may be all of it.
        budget_bytes: options.budget.or(options.memory_limit.map(|limit| limit / 4 * 3)),
        io: options.io.map(|io| match io {
            Io::Direct => lab_target::IoMode::Direct,
            Io::Buffered => lab_target::IoMode::Buffered,
        }),
        compression: options.compression.clone(),
        disk: disk_of(options)?,
        disk_group: None,
        drive_rated_bytes: options.drive_rated,
        memory_limit_bytes: options.memory_limit,
    };
    Ok(RunRecord {
        schema: SCHEMA.into(),
        began: utc_now(),
        command: std::env::args().map(|word| masked_text(&word, &options.targets)).collect(),
        workload: plan.workload().into(),
        plan,
        setup,
        described: vec![None; options.targets.len()],
        targets: options.targets.iter().map(|target| masked_target(target)).collect(),
        repeat: options.repeat,
        environment: Environment::read(options.dir.as_deref().unwrap_or(path), env!("LAB_COMMIT")),
        turns_done: Vec::new(),
        state: State::Running,
        ended_by: None,
        names: Vec::new(),
        is_sampled: false,
        left_out: Vec::new(),
    })
}

fn fresh_folder(runs: &Path, workload: &str) -> PathBuf {
    let stamp: String = utc_now().chars().filter(|letter| letter.is_ascii_digit() || *letter == 'T').collect();
    let name = format!("{stamp}-{workload}");
    let mut path = runs.join(&name);
    let mut number = 2;
    while path.exists() {
        path = runs.join(format!("{name}-{number}"));
        number += 1;
    }
    path
}

/// `bench-results/latest`: a convenience, so its failure is nobody's trouble.
fn point_latest_at(path: &Path) {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return };
    let link = parent.join("latest");
    if link.symlink_metadata().is_ok_and(|meta| meta.file_type().is_symlink()) {
        let _ = fs::remove_file(&link);
    }
    let _ = std::os::unix::fs::symlink(name, &link);
}

pub fn interrupt_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&flag);
    let handler = ctrlc::set_handler(move || {
        // The second Ctrl-C does not wait for the step to wind down.
        if shared.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(crate::outcome::INTERRUPTED));
        }
    });
    handler.map_err(|error| Failure::Failed(format!("cannot catch Ctrl-C: {error}")))?;
    Ok(flag)
}

fn turns(
    options: &Common,
    specs: &[TargetSpec],
    record: &mut RunRecord,
    keeper: &Keeper,
    interrupt: &AtomicBool,
) -> Result<(), Failure> {
    let many = specs.len() as u32 * record.repeat * record.plan.cases().len() as u32 > 1;
    for repeat in 1..=record.repeat {
        for case in 0..record.plan.cases().len() {
            for place in 0..specs.len() {
                let target = if repeat % 2 == 0 { specs.len() - 1 - place } else { place };
                let (spec, turn) = (&specs[target], Turn { target, case, repeat });
                let is_left_out = record.left_out.iter().any(|left| left.target == target);
                if record.turns_done.contains(&turn) || is_left_out {
                    continue;
                }
                if many {
                    let Case { tables, clients, cores } = record.plan.cases()[case];
                    let cores = cores.map(|cores| format!(", {cores} cores")).unwrap_or_default();
                    let tables_are = if record.plan.workload() == "tpcc" { "warehouses" } else { "tables" };
                    keeper.progress.say(&format!(
                        "{spec}: {clients} clients, {tables} {tables_are}{cores}, repetition {repeat} of {}",
                        record.repeat
                    ));
                }
                keeper.start_turn(turn)?;
                one_turn(options, spec, turn, record, keeper, interrupt)?;
                record.turns_done.push(turn);
                keeper.folder.write_run(record)?;
            }
        }
    }
    Ok(())
}

fn one_turn(
    options: &Common,
    spec: &TargetSpec,
    turn: Turn,
    record: &mut RunRecord,
    keeper: &Keeper,
    interrupt: &AtomicBool,
) -> Result<(), Failure> {
    let parent = options.dir.clone().unwrap_or_else(|| keeper.folder.path.clone());
    let name = format!("db-{}-{}", std::process::id(), epoch_secs());
    let dir = parent.join(format!("{name}-t{}-c{}-r{}", turn.target + 1, turn.case + 1, turn.repeat));
    fs::create_dir_all(&dir).map_err(|error| Failure::io("make", &dir, &error))?;
    let setup = setup_of(record, &dir);
    // Before the engine is opened, so that its threads are restricted too.
    let restricted = record.plan.cases()[turn.case].cores.map(Restricted::to).transpose()?;
    let text = text_pool(record.plan.seed());
    let before_open = Process::read().map(|process| process.rss_bytes);
    let target = registry::open(spec, &setup).inspect_err(|_| {
        // What a server left of its start is looked at; where nothing was begun there is nothing to see.
        let _ = fs::remove_dir(&dir);
    })?;
    // A server's memory is its own from the start.
    let rss_before_open_bytes = before_open.filter(|_| target.runs() == Runs::Inside);
    let description = target.describe();
    for note in &description.notes {
        keeper.progress.say(&format!("{spec}: {note}"));
    }
    record.described[turn.target] = Some(description);
    keeper.folder.write_run(record)?;
    keeper.sampler.iter().for_each(|sampler| sampler.watch(target.runs(), turn));
    let case = record.plan.cases()[turn.case];
    let (repeat, drive_rated_bytes) = (turn.repeat, record.setup.drive_rated_bytes);
    let place = Place { target: &spec.text, dir: &dir, case, repeat, text, rss_before_open_bytes, drive_rated_bytes };
    let ran = record.plan.run_case(&*target, &place, interrupt, keeper);
    let ran = ran.map_err(|error| of_a_full_disk(error, spec, &dir));
    // The last step may be one that nobody says is finished.
    keeper.sampler.iter().for_each(Sampler::ends);
    // Once more: some knobs can be read back only when there are tables.
    record.described[turn.target] = Some(target.describe());
    let before = match (&record.plan, &ran) {
        (AnyPlan::Tpcc(plan), Ok(())) if plan.crashes() => Some((plan, crash::counts(&*target, plan)?)),
        _ => None,
    };
    // A server that failed may never end in good order: PostgreSQL waits for ever if it is told to while it recovers.
    let is_lost = is_own_server(spec) && matches!(ran, Err(RunError::Target(_)));
    let mut closed = if is_lost { Ok(()) } else { target.close().map_err(Failure::from) };
    drop(target);
    if let (Some((plan, before)), Ok(())) = (before, &closed) {
        let description = record.described[turn.target].clone().unwrap_or_default();
        closed = crash::crash((spec, &setup, &description), (plan, case, turn), &before, keeper);
    }
    drop(restricted);
    // What went wrong can be looked at.
    let is_evidence = matches!(ran, Err(RunError::Violated(_) | RunError::Target(_))) || closed.is_err();
    if !options.keep && !is_evidence {
        fs::remove_dir_all(&dir).map_err(|error| Failure::io("remove", &dir, &error))?;
    } else {
        keeper.progress.say(&format!("the database is kept in {}", dir.display()));
    }
    ran?;
    closed?;
    keeper.take_failure()
}

/// What a target is given for a turn in that directory.
fn setup_of(record: &RunRecord, dir: &Path) -> Setup {
    Setup {
        dir: dir.to_owned(),
        durability: record.setup.durability,
        budget_bytes: record.setup.budget_bytes,
        io: record.setup.io,
        compression: record.setup.compression.clone(),
        disk: match record.setup.disk_group {
            Some(_) => record.setup.disk.without_rates(),
            None => record.setup.disk,
        },
        seed: record.plan.seed(),
        price: record.plan.price(),
    }
}

/// Whether the lab starts the server, in the turn's directory.
fn is_own_server(spec: &TargetSpec) -> bool {
    spec.name == "server"
}

/// A server of the lab's own whose disk is full may be gone before it says so to who asks; its log has it.
fn of_a_full_disk(error: RunError, spec: &TargetSpec, dir: &Path) -> RunError {
    let log = fs::read(dir.join(ERROR_LOG)).unwrap_or_default();
    let is_full = is_own_server(spec) && String::from_utf8_lossy(&log).contains("No space left on device");
    match error {
        RunError::Target(TargetError::Failed(text)) if is_full && !text.ends_with(NO_SPACE) => {
            RunError::Target(TargetError::Failed(format!("{text}{NO_SPACE}")))
        }
        error => error,
    }
}

/// Results, report and the next command to try. What was finished is shown even when the run was not.
fn conclude(options: &Common, record: &RunRecord, keeper: &Keeper) -> Result<(), Failure> {
    let results = with_medians(keeper.results(), record.repeat);
    if results.is_empty() {
        return Ok(());
    }
    keeper.folder.write_results(&results)?;
    let report = browse::write_report(std::slice::from_ref(&keeper.folder.path), None)?;
    let medians_only: Vec<StepResult> =
        results.iter().filter(|result| matches!(result.repeat, Repeat::Name(_))).cloned().collect();
    let table_rows = if medians_only.is_empty() { &results } else { &medians_only };
    let shown = if options.format == Format::Table { table_rows } else { &results };
    print!("{}", table::printed(shown, options.format, options.legacy_units));
    let next = next_command(record, &keeper.folder.path);
    let closing = format!("report: {}\nnext:   {next}", report.display());
    match options.format {
        Format::Table => println!("{closing}"),
        _ if !options.quiet => eprintln!("{closing}"),
        _ => {}
    }
    Ok(())
}

fn next_command(record: &RunRecord, folder: &Path) -> String {
    // A shell would read more into a URL.
    let quote = |text: &String| if text.contains(['?', '&']) { format!("'{text}'") } else { text.clone() };
    let targets: Vec<String> = record.targets.iter().map(|text| format!("--target {}", quote(text))).collect();
    let (targets, rows) = (targets.join(" "), record.plan.rows());
    let workload = record.plan.workload();
    match (record.state, &record.plan) {
        (State::Interrupted, _) => format!("lab run {workload} --resume {}", folder.display()),
        (_, AnyPlan::Tpcc(plan)) if record.repeat < 3 => {
            format!("lab run tpcc {targets} --warehouses {} --repeat 5", plan.warehouses)
        }
        _ if record.repeat < 3 => format!("lab run {workload} {targets} --rows {rows} --repeat 5"),
        (_, AnyPlan::Ibench(_)) => {
            format!("lab run ibench {targets} --rows {} --clients 2 --tables 1", rows.saturating_mul(10))
        }
        (_, AnyPlan::Sysbench(_) | AnyPlan::Tpcc(_)) => format!("lab compare {}", folder.display()),
    }
}
