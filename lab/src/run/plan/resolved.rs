//! A plan as it is carried out: every target a line of text, every workload a line of options. It is `plan.json` of the
//! plan's folder, so that what was run can be read, and gone on with, without the file that it came from.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use lab_measure::study;
use lab_target::secret::masked_target;
use serde::{Deserialize, Serialize};

use crate::folder::{State, read_json, write_json};
use crate::outcome::Failure;

/// Version of the layout of `plan.json`.
pub const SCHEMA: &str = "trefoil-lab-plan/1";
/// The file.
pub const FILE: &str = "plan.json";
/// Stands for the plan's folder in target strings.
pub const FOLDER: &str = "{folder}";

/// A plan, resolved.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resolved {
    /// The layout.
    pub schema: String,
    /// Its short name.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// What a reader should know.
    pub about: String,
    /// The file it came from.
    pub source: String,
    /// The scale, if one was asked for.
    pub scale: Option<String>,
    /// When the run began, UTC.
    pub began: String,
    /// How far it got.
    pub state: State,
    /// Its workloads in order.
    pub parts: Vec<Part>,
    /// What each configuration becomes.
    pub knobs: Vec<Knob>,
    /// The study's tables.
    pub tables: Vec<study::Spec>,
    /// Option files that it writes: name below the folder, and text.
    pub files: BTreeMap<String, String>,
}

/// One workload with its targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The name of its folder below `parts`.
    pub name: String,
    /// What it is.
    pub title: String,
    /// `ibench`, `sysbench` or `tpcc`.
    pub workload: String,
    /// Options as on the command line.
    pub options: Vec<String>,
    /// Targets in order.
    pub rows: Vec<Row>,
}

/// A target under its name in tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// The target string.
    pub target: String,
}

/// What a configuration becomes for a kind of target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knob {
    /// The configuration.
    pub config: String,
    /// What it is in the study.
    pub about: String,
    /// The kind of target.
    pub family: String,
    /// What it becomes.
    pub becomes: String,
    /// Whether it is not run, because it would be the same as another.
    pub is_no_op: bool,
}

impl Resolved {
    /// Reads it from a plan's folder.
    pub fn open(folder: &Path) -> Result<Resolved, Failure> {
        let plan: Resolved = read_json(&folder.join(FILE))?;
        if plan.schema != SCHEMA {
            return Err(Failure::Failed(format!(
                "{} has schema {}, this lab reads {SCHEMA}: read it with the lab that wrote it, or run it again",
                folder.display(),
                plan.schema
            )));
        }
        let is_a_name = |name: &str| {
            let mut parts = Path::new(name).components();
            matches!((parts.next(), parts.next()), (Some(Component::Normal(only)), None) if only == name)
        };
        match plan.parts.iter().find(|part| !is_a_name(&part.name)) {
            // Its folder would be anywhere.
            Some(part) => Err(Failure::Failed(format!(
                "{} is damaged: `{}` is no name of a part's folder",
                folder.join(FILE).display(),
                part.name
            ))),
            None => Ok(plan),
        }
    }

    /// Writes it, without the passwords of its targets.
    pub fn write(&self, folder: &Path) -> Result<(), Failure> {
        write_json(&folder.join(FILE), &Resolved { parts: self.shown(), ..self.clone() })
    }

    /// The parts as they may be seen.
    fn shown(&self) -> Vec<Part> {
        let row = |row: &Row| Row { name: row.name.clone(), target: masked_target(&row.target) };
        self.parts.iter().map(|part| Part { rows: part.rows.iter().map(row).collect(), ..part.clone() }).collect()
    }

    /// Whether two are the same work.
    pub fn is_the_work_of(&self, other: &Resolved) -> bool {
        (self.shown(), &self.files, &self.scale) == (other.shown(), &other.files, &other.scale)
    }
}

/// Whether a folder is that of a plan.
pub fn is_plan(folder: &Path) -> bool {
    folder.join(FILE).exists()
}

/// The folder of a part.
pub fn folder_of(folder: &Path, part: &str) -> PathBuf {
    folder.join("parts").join(part)
}

/// A run folder as itself, a plan's folder as those of its parts that have begun.
pub fn expanded(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut all = Vec::new();
    for path in paths {
        if !is_plan(path) {
            all.push(path.clone());
            continue;
        }
        let parts = Resolved::open(path)?.parts;
        let begun = parts.iter().map(|part| folder_of(path, &part.name)).filter(|part| part.join("run.json").exists());
        let before = all.len();
        all.extend(begun);
        if all.len() == before {
            return Err(Failure::Failed(format!("{}: no part of this plan has begun", path.display())));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_lies_in_the_plans_folder() {
        let dir = tempfile::tempdir().unwrap();
        let plan = |name: &str| {
            let part = Part {
                name: name.into(),
                title: String::new(),
                workload: String::new(),
                options: vec![],
                rows: vec![],
            };
            Resolved {
                schema: SCHEMA.into(),
                name: "p".into(),
                title: String::new(),
                about: String::new(),
                source: String::new(),
                scale: None,
                began: String::new(),
                state: State::Done,
                parts: vec![part],
                knobs: vec![],
                tables: vec![],
                files: BTreeMap::new(),
            }
        };
        for (name, is_one) in
            [("main", true), ("/x", false), ("../..", false), ("a/b", false), ("", false), (".", false), ("a/", false)]
        {
            plan(name).write(dir.path()).unwrap();
            assert_eq!(Resolved::open(dir.path()).is_ok(), is_one, "{name:?}");
        }
    }
}
