//! Environment, configuration, counters.

use std::collections::BTreeMap;

use crate::Run;
use crate::html::{Table, escaped, grouped, size};
use crate::lines::Lines;

/// The appendix.
#[must_use]
pub fn section(runs: &[Run], lines: &Lines<'_>) -> String {
    let mut out = String::from("<h2 id=\"appendix\">Appendix</h2>\n");
    for run in runs {
        out.push_str(&format!("<h3>Run {}</h3>\n", escaped(&run.name)));
        out.push_str(&pairs("Machine", &machine(run)));
        let mut plan = vec![("command".to_owned(), run.command.clone()), ("began".into(), run.began.clone())];
        plan.extend(run.settings.iter().cloned());
        out.push_str(&pairs("Plan", &plan));
        for target in &run.targets {
            let mut settings = vec![("version".to_owned(), target.version.clone())];
            settings.extend(target.settings.iter().map(|(name, value)| (name.clone(), value.clone())));
            settings.extend(target.notes.iter().map(|note| ("note".to_owned(), note.clone())));
            out.push_str(&pairs(&format!("Target {}: settings as they were read back", target.text), &settings));
        }
    }
    out.push_str(&counters(lines));
    out
}

fn pairs(caption: &str, pairs: &[(String, String)]) -> String {
    let mut table = Table::new(caption, &[]);
    for (name, value) in pairs {
        table.row(name, [(value.clone(), "text".to_owned())]);
    }
    table.finished()
}

fn machine(run: &Run) -> Vec<(String, String)> {
    let machine = &run.environment;
    let mut all = vec![
        ("processor".to_owned(), format!("{}, {} usable", machine.cpu, machine.cores)),
        ("memory".into(), size(machine.memory_bytes as f64)),
        ("kernel".into(), machine.kernel.clone()),
        ("system".into(), machine.system.clone()),
        ("build".into(), format!("{} of commit {}", machine.build, machine.commit)),
    ];
    let mut add = |name: &str, value: Option<String>| all.extend(value.map(|value| (name.to_owned(), value)));
    add("memory limit", machine.memory_limit_bytes.map(|bytes| size(bytes as f64)));
    let mount = machine.mount.as_ref();
    let text = |mount: &lab_measure::disk::Mount| {
        format!("{} on {} ({}), device {}", mount.filesystem, mount.source, mount.options, mount.device)
    };
    add("file system", mount.map(text));
    add("bytes written", lab_measure::environment::counting_note(machine));
    add("governor", machine.governor.clone());
    add("clock source", machine.clock_source.clone());
    add("huge pages", machine.huge_pages.clone());
    add("open files", machine.open_files_limit.map(|limit| limit.to_string()));
    add("load average at the start", machine.load_average.map(|load| format!("{load:.2}")));
    all
}

/// What the engine counted during each step, folded away.
fn counters(lines: &Lines<'_>) -> String {
    let mut out = String::new();
    for line in &lines.all {
        let mut rows: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (place, step) in lines.steps.iter().enumerate() {
            let Some(entry) = line.entry(step) else { continue };
            for (name, after) in &entry.record.counters_after {
                let before = entry.record.counters_before.get(name).copied().unwrap_or(0);
                let change = *after as f64 - before as f64;
                let row = rows.entry(name).or_insert_with(|| vec![String::new(); lines.steps.len()]);
                row[place] = if change == 0.0 {
                    grouped(*after as f64)
                } else {
                    format!("{} ({:+.0})", grouped(*after as f64), change)
                };
            }
        }
        if rows.is_empty() {
            continue;
        }
        let headings: Vec<&str> = ["counter"].into_iter().chain(lines.steps.iter().map(String::as_str)).collect();
        let mut table = Table::new("Value after the step (change during it)", &headings);
        rows.into_iter().for_each(|(name, cells)| table.plain_row(name, cells));
        out.push_str(&format!(
            "<details><summary>Engine counters: {}</summary>\n{}</details>\n",
            escaped(&line.name),
            table.finished()
        ));
    }
    out
}
