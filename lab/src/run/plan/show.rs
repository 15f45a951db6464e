//! The folder of a plan, looked at: its tables, its report, its line in the list, whether it is sound.

use std::path::{Path, PathBuf};

use lab_measure::record::StepRecord;
use lab_measure::result::{StepResult, median};
use lab_measure::study::{Filled, filled};
use lab_report::study::Study;

use super::resolved::{Part, Resolved, expanded, folder_of};
use crate::browse::{inputs_of, with_remedy};
use crate::cli::{Format, Plan};
use crate::folder::{Folder, RunRecord, State, is_under_way, read_steps, state_in_a_word, write_whole};
use crate::outcome::Failure;
use crate::table;

/// A part that has begun.
struct Begun {
    part: Part,
    path: PathBuf,
    record: RunRecord,
    /// The steps, targets under their names, repetitions folded into medians.
    steps: Vec<StepRecord>,
    /// Every repetition, and medians behind them.
    results: Vec<StepResult>,
}

fn begun(plan: &Resolved, folder: &Path) -> Result<Vec<Begun>, Failure> {
    let mut all = Vec::new();
    for part in &plan.parts {
        let path = folder_of(folder, &part.name);
        if !path.join("run.json").exists() {
            continue;
        }
        let (here, record) = Folder::open(&path)?;
        let mut steps = read_steps(&here.path)?;
        steps.iter_mut().for_each(|step| step.result.target = record.name_of(&step.result.target).to_owned());
        let results: Vec<StepResult> = steps.iter().map(|step| step.result.clone()).collect();
        let results = crate::across::with_medians(results, record.repeat);
        all.push(Begun { part: part.clone(), path, record, steps: folded(steps), results });
    }
    Ok(all)
}

/// One record for each target, case and step: of repetitions the first, with the median of the numbers.
fn folded(steps: Vec<StepRecord>) -> Vec<StepRecord> {
    let key = |step: &StepRecord| (step.result.target.clone(), step.result.case(), step.result.step.clone());
    let mut out: Vec<StepRecord> = Vec::new();
    for step in &steps {
        if out.iter().any(|other| key(other) == key(step)) {
            continue;
        }
        let same: Vec<StepResult> =
            steps.iter().filter(|other| key(other) == key(step)).map(|other| other.result.clone()).collect();
        let mut step = step.clone();
        if same.len() > 1 {
            step.result = median(&same).unwrap_or(step.result);
        }
        out.push(step);
    }
    out
}

/// The study's tables, each for the parts it is of.
fn tables(plan: &Resolved, parts: &[Begun]) -> Vec<Filled> {
    let mut all = Vec::new();
    for spec in &plan.tables {
        let has_step = |begun: &Begun| {
            let mut steps = spec.columns.iter().flat_map(|column| &column.steps);
            steps.any(|step| begun.record.plan.steps().contains(step))
        };
        let of: Vec<&Begun> = parts
            .iter()
            .filter(|begun| if spec.run.is_empty() { has_step(begun) } else { begun.part.name == spec.run })
            .collect();
        for begun in &of {
            let mut table = filled(spec, &lines(begun));
            if spec.run.is_empty() && plan.parts.len() > 1 {
                table.title = format!("{}, {}", begun.part.title, table.title);
            }
            all.push(table);
        }
    }
    all
}

/// Steps by target and case, in the order of the plan.
fn lines(begun: &Begun) -> Vec<(String, Vec<&StepRecord>)> {
    let several = begun.record.plan.cases().len() > 1;
    let mut all = Vec::new();
    for row in &begun.part.rows {
        for case in begun.record.plan.cases() {
            let of_case = |step: &&StepRecord| step.result.target == row.name && case.is_of(&step.result);
            let records: Vec<&StepRecord> = begun.steps.iter().filter(of_case).collect();
            let Some(first) = records.first() else { continue };
            let name = if several { format!("{} {}", row.name, first.result.case_name()) } else { row.name.clone() };
            all.push((name, records));
        }
    }
    all
}

fn left_out(parts: &[Begun]) -> Vec<String> {
    let line = |begun: &Begun, left: &crate::folder::LeftOut| {
        let what = if left.was_missing { "not to be had" } else { "failed" };
        let name = begun.record.names.get(left.target).map_or("a target", String::as_str);
        format!("{}: {name} {what}: {}", begun.part.name, left.why)
    };
    parts.iter().flat_map(|begun| begun.record.left_out.iter().map(move |left| line(begun, left))).collect()
}

fn knobs(plan: &Resolved) -> Vec<[String; 4]> {
    let row = |knob: &super::resolved::Knob| {
        let becomes = if knob.is_no_op { format!("no-op: {}", knob.becomes) } else { knob.becomes.clone() };
        [knob.config.clone(), knob.about.clone(), knob.family.clone(), becomes]
    };
    plan.knobs.iter().map(row).collect()
}

/// Makes the report of a plan and returns where it is.
pub fn report(folder: &Path, output: Option<&Path>) -> Result<PathBuf, Failure> {
    let plan = Resolved::open(folder)?;
    let parts = begun(&plan, folder)?;
    let study = Study {
        title: plan.title.clone(),
        about: plan.about.clone(),
        tables: tables(&plan, &parts),
        knobs: knobs(&plan),
        left_out: left_out(&parts),
    };
    let runs = inputs_of(&expanded(&[folder.to_path_buf()])?)?;
    let path = output.map_or_else(|| folder.join("report.html"), Path::to_path_buf);
    write_whole(&path, &lab_report::page_of(&runs, Some(&study)))?;
    Ok(path)
}

/// What a plan that has run shows.
pub fn print(plan: &Resolved, folder: &Path, options: &Plan) -> Result<(), Failure> {
    let parts = begun(plan, folder)?;
    if parts.iter().all(|begun| begun.steps.is_empty()) {
        return Ok(());
    }
    let report = report(folder, None)?;
    print!("{}", printed(plan, &parts, options.format)?);
    let closing = format!("report: {}\nnext:   lab compare {}", report.display(), folder.display());
    match options.format {
        Format::Table => println!("\n{closing}"),
        _ if !options.quiet => eprintln!("{closing}"),
        _ => {}
    }
    Ok(())
}

/// `lab show` of a plan.
pub fn show(folder: &Path, format: Format) -> Result<(), Failure> {
    let plan = Resolved::open(folder)?;
    let parts = begun(&plan, folder)?;
    if format == Format::Table {
        println!("plan      {}: {} ({:?})", plan.name, plan.title, plan.state);
        println!("began     {}", plan.began);
        println!(
            "file      {}{}",
            plan.source,
            plan.scale.iter().map(|it| format!(", scale {it}")).collect::<String>()
        );
        for begun in &parts {
            println!(
                "run       {}: {} turns done, {:?}",
                begun.path.display(),
                begun.record.turns_done.len(),
                begun.record.state
            );
        }
        left_out(&parts).iter().for_each(|line| println!("left out  {line}"));
    }
    print!("{}", printed(&plan, &parts, format)?);
    Ok(())
}

fn printed(plan: &Resolved, parts: &[Begun], format: Format) -> Result<String, Failure> {
    let mut out = String::new();
    match format {
        Format::Json => {
            let object = |begun: &Begun, result: &StepResult| {
                let mut value = serde_json::to_value(result).expect("results hold only text and numbers");
                value["run"] = begun.part.name.clone().into();
                value
            };
            let all: Vec<serde_json::Value> =
                parts.iter().flat_map(|begun| begun.results.iter().map(move |result| object(begun, result))).collect();
            out.push_str(&serde_json::to_string_pretty(&all).expect("results hold only text and numbers"));
            out.push('\n');
        }
        Format::Csv => {
            for (number, begun) in parts.iter().enumerate() {
                let text = table::printed(&begun.results, format, false);
                for (place, line) in text.lines().enumerate() {
                    match (number, place) {
                        (0, 0) => out.push_str(&format!("run,{line}\n")),
                        (_, 0) => {}
                        _ => out.push_str(&format!("{},{line}\n", begun.part.name)),
                    }
                }
            }
        }
        Format::Table | Format::Md => {
            let print = if format == Format::Md { table::markdown } else { table::aligned };
            let gap = if format == Format::Md { "\n" } else { "" };
            for filled in tables(plan, parts) {
                out.push_str(&format!("\n{}\n{gap}{}", filled.title, print(&filled.rows)));
                filled.notes.iter().for_each(|note| out.push_str(&format!("{gap}{note}\n")));
            }
            for begun in parts.iter().filter(|begun| begun.part.workload != "ibench") {
                let medians: Vec<StepResult> = begun.steps.iter().map(|step| step.result.clone()).collect();
                out.push_str(&format!("\n{}\n{gap}{}", begun.part.title, table::printed(&medians, format, false)));
            }
            if !plan.knobs.is_empty() {
                let headings = ["config", "in the study", "target", "becomes"].map(String::from).to_vec();
                let rows: Vec<Vec<String>> =
                    std::iter::once(headings).chain(knobs(plan).into_iter().map(|row| row.to_vec())).collect();
                out.push_str(&format!("\nWhat each configuration becomes\n{gap}{}", print(&rows)));
            }
        }
    }
    Ok(out)
}

/// A plan for a document: its heading with what was run where, and its tables as Markdown.
pub fn in_words(folder: &Path) -> Result<(String, String), Failure> {
    let plan = Resolved::open(folder)?;
    let parts = begun(&plan, folder)?;
    let scale = plan.scale.as_ref().map(|scale| format!(" --scale {scale}")).unwrap_or_default();
    let environment = parts.first().map(|begun| &begun.record.environment);
    let machine = environment.map(|it| format!("{}, {} processors", it.cpu, it.cores)).unwrap_or_default();
    let mut heading = format!("# {}\n\n{}\n\n", plan.title, plan.about);
    heading.push_str(&format!("Made by `lab run {}{scale}` on {machine}.\n", plan.source));
    left_out(&parts).iter().for_each(|line| heading.push_str(&format!("\nLeft out: {line}\n")));
    Ok((heading, printed(&plan, &parts, Format::Md)?))
}

/// What a list of runs tells of a plan.
pub struct Summary {
    /// Its short name.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// The scale, if one was asked for.
    pub scale: Option<String>,
    /// When it began.
    pub began: String,
    /// How far it got.
    pub state: State,
    /// Its parts: the folder's name and what it is.
    pub parts: Vec<(String, String)>,
    /// The targets of all parts by their names.
    pub targets: Vec<String>,
}

/// What a list of runs tells of the plan in a folder.
pub fn summary_of(folder: &Path) -> Result<Summary, Failure> {
    let Resolved { name, title, scale, began, state, parts, .. } = Resolved::open(folder)?;
    let targets = parts.iter().flat_map(|part| part.rows.iter().map(|row| row.name.clone())).collect();
    let parts = parts.into_iter().map(|part| (part.name, part.title)).collect();
    Ok(Summary { name, title, scale, began, state, parts, targets })
}

/// The tables of a plan's study and what was left out, for a page.
pub fn study_of(folder: &Path) -> Result<(Vec<Filled>, Vec<String>), Failure> {
    let plan = Resolved::open(folder)?;
    let parts = begun(&plan, folder)?;
    Ok((tables(&plan, &parts), left_out(&parts)))
}

/// The line of a plan in the list of runs.
pub fn line_of(folder: &Path) -> Result<String, Failure> {
    let plan = Resolved::open(folder)?;
    let parts: Vec<PathBuf> = plan.parts.iter().map(|part| folder_of(folder, &part.name)).collect();
    let state = state_in_a_word(plan.state, parts.iter().any(|part| is_under_way(part)));
    let resume = format!("lab run --resume {}", folder.display());
    let scale = plan.scale.as_ref().map(|scale| format!(" at {scale}")).unwrap_or_default();
    let rows: usize = plan.parts.iter().map(|part| part.rows.len()).sum();
    let line = format!(
        "{}  {state:<11}  {:<8} {rows:>10} targets  {}{scale}  {}",
        plan.began,
        "plan",
        plan.name,
        folder.display()
    );
    Ok(with_remedy(line, state, &resume))
}

/// Whether every part is sound, and says what the plan says.
pub fn verify(folder: &Path) -> Result<(), Failure> {
    let plan = Resolved::open(folder)?;
    let mut problems = 0;
    for part in &plan.parts {
        let path = folder_of(folder, &part.name);
        if !path.join("run.json").exists() {
            if plan.state == State::Done {
                println!("the plan is done, but its part {} is not there", part.name);
                problems += 1;
            }
            continue;
        }
        let (_, record) = Folder::open(&path)?;
        let names: Vec<&String> = part.rows.iter().map(|row| &row.name).collect();
        if names != record.names.iter().collect::<Vec<_>>() || record.workload != part.workload {
            println!("{}: its targets are not those of the plan", path.display());
            problems += 1;
        }
        match crate::verify::verify(&path) {
            Ok(()) => {}
            Err(Failure::Violated(_)) => problems += 1,
            Err(other) => return Err(other),
        }
    }
    match problems {
        0 => {
            println!("{}: {} parts: sound", folder.display(), plan.parts.len());
            Ok(())
        }
        count => Err(Failure::Violated(format!("{} contradicts itself: {count} of its parts", folder.display()))),
    }
}
