//! The runs there are, newest first.

use std::fs;
use std::path::Path;

use super::place::sound;
use crate::folder::{Folder, RunRecord, State, is_under_way, state_in_a_word};
use crate::outcome::Failure;
use crate::run::plan::{Summary, expanded, is_plan, summary_of};
use crate::table::brief_count;

/// A run or a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name below the folder.
    pub name: String,
    /// When it began.
    pub began: String,
    /// How far it got.
    pub state: &'static str,
    /// `ibench`, `sysbench`, `tpcc` or `plan`.
    pub workload: String,
    /// How large it is.
    pub size: String,
    /// The targets, or the plan's title.
    pub what: String,
    /// Everything a search looks at beside these.
    more: String,
}

/// How far a run got, in the word that `lab list` has for it. A part of a plan waits for its turn while another one has it.
pub fn state_of(path: &Path, state: State) -> &'static str {
    let plan = path.parent().and_then(Path::parent).filter(|folder| is_plan(folder));
    let parts = plan.and_then(|plan| expanded(&[plan.to_path_buf()]).ok()).unwrap_or_default();
    state_in_a_word(state, is_under_way(path) || parts.iter().any(|part| is_under_way(part)))
}

/// Reads the run or plan in a folder; `None` if there is none.
pub fn entry_of(path: &Path, name: &str) -> Option<Result<Entry, Failure>> {
    if is_plan(path) {
        return Some(summary_of(path).map(|plan| plan_entry(path, name, plan)));
    }
    path.join("run.json").exists().then(|| Ok(run_entry(path, name, Folder::open(path)?.1)))
}

fn run_entry(path: &Path, name: &str, run: RunRecord) -> Entry {
    let shown = if run.names.is_empty() { &run.targets } else { &run.names };
    let environment = &run.environment;
    let steps = run.plan.steps().join(" ");
    let more =
        [run.command.join(" "), steps, environment.cpu.clone(), environment.commit.clone(), run.targets.join(" ")];
    Entry {
        name: name.to_owned(),
        began: run.began,
        state: state_of(path, run.state),
        workload: run.workload,
        size: format!("{} rows", brief_count(run.plan.rows() as f64)),
        what: shown.join(", "),
        more: more.join(" "),
    }
}

fn plan_entry(path: &Path, name: &str, plan: Summary) -> Entry {
    let parts = expanded(&[path.to_path_buf()]).unwrap_or_default();
    let state = state_in_a_word(plan.state, parts.iter().any(|part| is_under_way(part)));
    Entry {
        name: name.to_owned(),
        began: plan.began,
        state,
        workload: "plan".into(),
        size: format!("{} targets", plan.targets.len()),
        what: format!("{}: {}", plan.name, plan.title),
        more: format!("{} {}", plan.targets.join(" "), plan.scale.unwrap_or_default()),
    }
}

/// All runs directly below the folder whose words contain all of the search's, and what could not be read.
pub fn entries(root: &Path, search: &str) -> Result<(Vec<Entry>, Vec<String>), Failure> {
    let (mut all, mut unreadable) = (Vec::new(), Vec::new());
    for child in fs::read_dir(root).map_err(|error| Failure::io("list", root, &error))?.flatten() {
        // `latest` points at a run that is listed under its own name.
        if !child.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = child.file_name().to_string_lossy().into_owned();
        if let Err(why) = sound(root, &child.path(), false) {
            unreadable.push(why);
            continue;
        }
        match entry_of(&child.path(), &name) {
            Some(Ok(entry)) if matches(&entry, search) => all.push(entry),
            Some(Ok(_)) | None => {}
            // One run that cannot be read does not hide the others.
            Some(Err(failure)) => unreadable.push(failure.to_string()),
        }
    }
    all.sort_by(|left, right| (&right.began, &right.name).cmp(&(&left.began, &left.name)));
    unreadable.sort();
    Ok((all, unreadable))
}

fn matches(entry: &Entry, search: &str) -> bool {
    let Entry { name, began, state, workload, size, what, more } = entry;
    let text = format!("{name} {began} {state} {workload} {size} {what} {more}").to_lowercase();
    search.to_lowercase().split_whitespace().all(|word| text.contains(word))
}

/// Names of the runs and parts of plans that are under way.
pub fn under_way(root: &Path) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for entry in entries(root, "")?.0.iter().filter(|entry| entry.state == "running") {
        for path in expanded(&[root.join(&entry.name)])?.iter().filter(|path| is_under_way(path)) {
            let name = path.strip_prefix(root).expect("parts of a plan are below its folder");
            names.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_waits_while_another_one_is_under_way() {
        let dir = tempfile::tempdir().unwrap();
        let parts = ["first", "second"].map(|name| dir.path().join("parts").join(name));
        for part in &parts {
            fs::create_dir_all(part).unwrap();
            fs::write(part.join("run.json"), "{}").unwrap();
        }
        let part =
            |name: &str| format!(r#"{{"name": "{name}", "title": "", "workload": "", "options": [], "rows": []}}"#);
        let plan = format!(
            r#"{{"schema": "trefoil-lab-plan/1", "name": "p", "title": "", "about": "", "source": "", "scale": null, "began": "",
               "state": "running", "parts": [{}, {}], "knobs": [], "tables": [], "files": {{}}}}"#,
            part("first"),
            part("second")
        );
        fs::write(dir.path().join("plan.json"), plan).unwrap();
        assert_eq!(state_of(&parts[1], State::Running), "interrupted", "nobody is at work");
        let held = Folder { path: parts[0].clone() }.hold().unwrap();
        assert_eq!(parts.map(|part| state_of(&part, State::Running)), ["running"; 2]);
        drop(held);
    }

    #[test]
    fn a_search_wants_every_word_wherever_it_stands() {
        let entry = Entry {
            name: "20260101T000000Z-ibench".into(),
            began: "2026-01-01T00:00:00Z".into(),
            state: "done",
            workload: "ibench".into(),
            size: "1.00m rows".into(),
            what: "trefoil:structure=lsm, redb".into(),
            more: "l.i0 l.i1".into(),
        };
        assert!(matches(&entry, "") && matches(&entry, "LSM done l.i1") && matches(&entry, "2026-01"));
        assert!(!matches(&entry, "lsm failed"));
    }
}
