//! `lab report`, `lab list`, `lab show`: looking at runs that are done.

use std::fs;
use std::path::{Path, PathBuf};

use lab_measure::result::StepResult;
use lab_target::known_targets;
use lab_target::trefoil::PARAMETERS;

use crate::cli::Format;
use crate::folder::{
    Folder, RUNS, RunRecord, SAMPLED, is_under_way, read_json, read_steps, state_in_a_word, write_whole,
};
use crate::outcome::Failure;
use crate::run::plan;
use crate::table;

/// What the report shows of each run, targets under their names.
pub fn inputs_of(runs: &[PathBuf]) -> Result<Vec<lab_report::Run>, Failure> {
    let mut inputs = Vec::new();
    for run in runs {
        let (folder, record) = Folder::open(run)?;
        let mut steps = read_steps(&folder.path)?;
        steps.iter_mut().for_each(|step| step.result.target = record.name_of(&step.result.target).to_owned());
        inputs.push(input_of(run, record, steps));
    }
    Ok(inputs)
}

/// Makes the report of one or more runs and returns where it is.
pub fn write_report(runs: &[PathBuf], output: Option<&Path>) -> Result<PathBuf, Failure> {
    let inputs = inputs_of(runs)?;
    let first = runs.first().ok_or_else(|| Failure::Usage("no run was named".into()))?;
    let path = output.map_or_else(|| first.join("report.html"), Path::to_path_buf);
    write_whole(&path, &lab_report::page(&inputs))?;
    Ok(path)
}

fn input_of(path: &Path, record: RunRecord, steps: Vec<lab_measure::record::StepRecord>) -> lab_report::Run {
    let plan = &record.plan;
    let or_default = |text: Option<String>| text.unwrap_or_else(|| "the engine's own".into());
    let mut settings = plan.settings();
    settings.extend([
        ("repetitions".into(), record.repeat.to_string()),
        ("durability".into(), format!("{:?}", record.setup.durability).to_lowercase()),
        ("budget".into(), or_default(record.setup.budget_bytes.map(|bytes| format!("{} MiB", bytes >> 20)))),
        ("io".into(), or_default(record.setup.io.map(|io| format!("{io:?}").to_lowercase()))),
        ("compression".into(), or_default(record.setup.compression.clone())),
    ]);
    if record.setup.disk.is_any() {
        settings.push(("disk".into(), record.setup.disk.to_string()));
    }
    settings.extend(record.setup.disk_group.clone().map(|rates| ("disk's control group".into(), rates)));
    settings
        .extend(record.setup.memory_limit_bytes.map(|bytes| ("memory limit".into(), format!("{} MiB", bytes >> 20))));
    settings.extend(record.is_sampled.then(|| ("sampled".into(), SAMPLED.into())));
    let targets = record.targets.iter().cloned().zip(record.described.iter().cloned());
    lab_report::Run {
        name: path.display().to_string(),
        began: record.began.clone(),
        command: record.command.join(" "),
        state: format!("{:?}", record.state).to_lowercase(),
        rows: plan.rows(),
        settings,
        targets: targets
            .map(|(text, described)| {
                let mut settings = described.as_ref().map(|it| it.settings.clone()).unwrap_or_default();
                let name = record.name_of(&text).to_owned();
                if name != text {
                    settings.insert("target".into(), text);
                }
                lab_report::TargetInfo {
                    text: name,
                    version: described.as_ref().map(|it| it.version.clone()).unwrap_or_default(),
                    settings,
                    notes: described.map(|it| it.notes).unwrap_or_default(),
                }
            })
            .collect(),
        flames: crate::sample::flames_of(path, &record),
        environment: record.environment,
        steps,
    }
}

/// `lab report`.
pub fn report(runs: &[PathBuf], output: Option<&Path>, gallery: Option<&Path>) -> Result<(), Failure> {
    let page = match runs {
        [only] if plan::is_plan(only) => plan::report(only, output)?,
        runs => {
            let first = runs.first().map(|run| run.join("report.html"));
            let output = output.map(Path::to_path_buf).or(first.filter(|_| runs.iter().any(|run| plan::is_plan(run))));
            write_report(&plan::expanded(runs)?, output.as_deref())?
        }
    };
    println!("{}", page.display());
    match (gallery, runs) {
        (None, _) => Ok(()),
        (Some(folder), [only]) => {
            println!("{}", write_gallery(only, &page, folder)?.display());
            Ok(())
        }
        (Some(_), _) => Err(Failure::Usage("--gallery is of one run, or of one plan".into())),
    }
}

/// Tables as Markdown and charts as pictures, in a folder.
fn write_gallery(run: &Path, page: &Path, folder: &Path) -> Result<PathBuf, Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::io("make", folder, &error))?;
    let page = fs::read_to_string(page).map_err(|error| Failure::io("read", page, &error))?;
    let (heading, tables) = match plan::is_plan(run) {
        true => plan::in_words(run)?,
        false => {
            let (here, record) = Folder::open(run)?;
            let results: Vec<StepResult> = read_steps(&here.path)?.into_iter().map(|step| step.result).collect();
            (format!("# {}\n", record.workload), table::printed(&results, Format::Md, false))
        }
    };
    let mut text = format!("{heading}\n{}\n", tables.trim());
    for (number, chart) in lab_report::gallery::charts(&page).into_iter().enumerate() {
        let name: String =
            chart.section.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
        let file = format!("{:02}-{}.svg", number + 1, name.trim_matches('-').to_lowercase());
        write_whole(&folder.join(&file), &chart.svg)?;
        text.push_str(&format!("\n{}\n\n![{}]({file})\n", chart.section, chart.section));
    }
    let path = folder.join("README.md");
    write_whole(&path, &text)?;
    Ok(path)
}

/// `lab list --targets`.
pub fn list_targets() -> Result<(), Failure> {
    let mut out = String::from("targets, as --target NAME or --target NAME:KEY=VALUE,KEY=VALUE\n");
    for (name, about) in known_targets() {
        out.push_str(&format!("  {name:<9} {about}\n"));
    }
    out.push_str("\nkeys of trefoil; pk. or secondary. before compression, shape, compaction_pri or l0_l0: of these indexes alone\n");
    for (name, values, about) in PARAMETERS {
        out.push_str(&format!("  {name:<18} {values}\n  {:<18}   {about}\n", ""));
    }
    print!("{out}");
    Ok(())
}

/// `lab list --plans`.
pub fn list_plans() -> Result<(), Failure> {
    for (name, title) in crate::run::plan::studies::all() {
        println!("{name}  {title}");
    }
    println!("\nlab run NAME --dry-run tells what one would do, --scale mini does it in less than a minute");
    Ok(())
}

/// `lab list`.
pub fn list(dir: Option<&Path>) -> Result<(), Failure> {
    let none_yet = |dir: &Path| {
        println!("no runs in {}; make one with: lab run ibench --rows 100k --seconds 2", dir.display());
    };
    if dir.is_none() && !Path::new(RUNS).exists() {
        none_yet(Path::new(RUNS));
        return Ok(());
    }
    let dir = dir.unwrap_or(Path::new(RUNS));
    let mut lines = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| Failure::io("list", dir, &error))?.flatten() {
        let path = entry.path();
        // `latest` points at a run that is listed under its own name.
        if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            continue;
        }
        if plan::is_plan(&path) {
            match plan::line_of(&path) {
                Ok(line) => lines.push(line),
                Err(failure) => eprintln!("note: {failure}"),
            }
            continue;
        }
        if !path.join("run.json").exists() {
            continue;
        }
        // One run that cannot be read does not hide the others.
        let run = match Folder::open(&path) {
            Ok((_, run)) => run,
            Err(failure) => {
                eprintln!("note: {failure}");
                continue;
            }
        };
        let state = state_in_a_word(run.state, is_under_way(&path));
        let text = format!(
            "{}  {state:<11}  {:<8} {:>10} rows  {}  {}",
            run.began,
            run.workload,
            table::brief_count(run.plan.rows() as f64),
            run.targets.join(" "),
            path.display()
        );
        lines.push(with_remedy(text, state, &format!("lab run {} --resume {}", run.workload, path.display())));
    }
    lines.sort();
    if lines.is_empty() {
        none_yet(dir);
    }
    lines.iter().rev().for_each(|line| println!("{line}"));
    Ok(())
}

/// A run's line, and below it how one that came to no end goes on.
pub fn with_remedy(line: String, state: &str, resume: &str) -> String {
    match state {
        "interrupted" | "failed" => format!("{line}\n    goes on with: {resume}"),
        _ => line,
    }
}

/// `lab show`.
pub fn show(run: &Path, format: Format) -> Result<(), Failure> {
    if plan::is_plan(run) {
        return plan::show(run, format);
    }
    let (folder, record) = Folder::open(run)?;
    let path = folder.path.join("results.json");
    let results: Vec<StepResult> = if path.exists() { read_json(&path)? } else { Vec::new() };
    if format == Format::Table {
        let environment = &record.environment;
        println!("run       {} ({})", run.display(), state_in_a_word(record.state, is_under_way(run)));
        println!("began     {}", record.began);
        println!("command   {}", record.command.join(" "));
        println!("targets   {}", record.targets.join(" "));
        println!("machine   {}, {} processors, {}", environment.cpu, environment.cores, environment.kernel);
        if let Some(mount) = &environment.mount {
            println!("storage   {} on {} ({})", mount.filesystem, mount.source, mount.options);
        }
        println!("commit    {} ({})", environment.commit, environment.build);
        if record.is_sampled {
            println!("sampled   {SAMPLED}");
        }
        if let Some(why) = &record.ended_by {
            println!("ended by  {why}");
        }
        println!();
    }
    if !results.is_empty() {
        print!("{}", table::printed(&results, format, false));
    }
    Ok(())
}
