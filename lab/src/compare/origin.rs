//! Where numbers come from: a run, or a part of a plan; which of them belong together, and what a reader has to know of two
//! that do. `lab compare` and `lab explain` ask the same.

use std::path::{Path, PathBuf};

use crate::folder::{Folder, RunRecord, SAMPLED};
use crate::outcome::Failure;
use crate::run::plan::{expanded, is_plan, summary_of};

/// A run that was read.
#[derive(Debug)]
pub struct Origin {
    /// Its folder.
    pub path: PathBuf,
    /// Its record.
    pub record: RunRecord,
    /// The plan that it is a part of.
    pub part: Option<Part>,
}

/// A part of a plan, by names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The plan.
    pub plan: String,
    /// The part.
    pub name: String,
    /// Whether the plan has others, whether or not they have begun.
    pub has_others: bool,
}

impl Origin {
    /// The run with this name, or the parts of the plan that have begun. A sampled run is no measurement.
    pub fn all(named: &Path) -> Result<Vec<Origin>, Failure> {
        let plan = if is_plan(named) { Some(summary_of(named)?) } else { None };
        let mut all = Vec::new();
        for path in expanded(&[named.to_path_buf()])? {
            let (_, record) = Folder::open(&path)?;
            if record.is_sampled {
                return Err(Failure::Usage(format!("{} is sampled: {SAMPLED}", path.display())));
            }
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let has_others = plan.as_ref().is_some_and(|plan| plan.parts.len() > 1);
            let part = plan.as_ref().map(|plan| Part { plan: plan.name.clone(), name, has_others });
            all.push(Origin { path, record, part });
        }
        Ok(all)
    }

    /// Why two do not belong together, if they do not.
    pub fn apart(&self, other: &Origin) -> Option<String> {
        if self.record.workload != other.record.workload {
            return Some(format!("{} is not {}", self.record.workload, other.record.workload));
        }
        let what = match (&self.part, &other.part) {
            // Who names two runs means these two.
            (None, None) => return None,
            (Some(mine), Some(theirs)) if mine.plan != theirs.plan => {
                return Some(format!("plan {} is not plan {}", mine.plan, theirs.plan));
            }
            (Some(mine), Some(theirs)) if mine.name != theirs.name => {
                return Some(format!("part {} is not part {}", mine.name, theirs.name));
            }
            (Some(part), _) | (None, Some(part)) => &part.name,
        };
        let (rows, others) = (self.record.plan.rows(), other.record.plan.rows());
        (rows != others).then(|| format!("{what} has {rows} rows here and {others} there: another --scale"))
    }

    /// What differs beside what is looked at.
    pub fn differences(&self, other: &Origin) -> Vec<&'static str> {
        let (before, after) = (&self.record, &other.record);
        [
            ("plan", serde_json::to_value(&before.plan).ok() != serde_json::to_value(&after.plan).ok()),
            ("setup", before.setup != after.setup),
            ("processor", before.environment.cpu != after.environment.cpu),
            ("kernel", before.environment.kernel != after.environment.kernel),
            ("build", before.environment.build != after.environment.build),
        ]
        .into_iter()
        .filter_map(|(what, differs)| differs.then_some(what))
        .collect()
    }
}
