//! The options of a run, resolved.

use serde::{Deserialize, Serialize};

use super::catalogue::Step;
use crate::plan::{Case, PlanError};

/// The least rows of a table: the hundred of `hot-points` begin in its middle.
pub const TABLE_ROWS_MIN: u64 = 200;

/// The options of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Rows of all tables together.
    pub rows: u64,
    /// Length of each test.
    pub seconds: u64,
    /// Unmeasured seconds before each test.
    pub warmup: u64,
    /// The longest a step may take; 0 = no limit.
    pub max_seconds: u64,
    /// The shortest settle.
    pub settle_seconds: u64,
    /// Step names in order, the load first.
    pub steps: Vec<String>,
    /// Tables and clients, one run of all steps each.
    pub cases: Vec<Case>,
    /// The seed of all rows and events.
    pub seed: u64,
}

impl Plan {
    /// The steps.
    pub fn parsed_steps(&self) -> Result<Vec<Step>, PlanError> {
        self.steps.iter().map(|name| Step::parse(name)).collect()
    }

    /// Rows of one table.
    #[must_use]
    pub fn table_rows(&self, tables: u32) -> u64 {
        self.rows / u64::from(tables.max(1))
    }

    /// Checks what the types do not.
    pub fn check(&self) -> Result<(), PlanError> {
        let usage = |text: String| Err(PlanError::Usage(text));
        let steps = self.parsed_steps()?;
        if steps.first() != Some(&Step::Load) || steps.iter().filter(|step| **step == Step::Load).count() > 1 {
            return usage("the load comes first and once".into());
        }
        let tests: Vec<&String> = self
            .steps
            .iter()
            .zip(&steps)
            .filter(|(_, step)| matches!(step, Step::Test(_)))
            .map(|(name, _)| name)
            .collect();
        for (place, name) in tests.iter().enumerate() {
            if tests[..place].contains(name) {
                return usage(format!("test {name} is given twice: say {name}.post for the second"));
            }
        }
        if self.seconds == 0 {
            return usage("--seconds has to be at least 1".into());
        }
        for case in &self.cases {
            if case.clients == 0 || case.tables == 0 {
                return usage("--clients and --tables have to be at least 1".into());
            }
            let rows = self.table_rows(case.tables);
            if rows < TABLE_ROWS_MIN || rows > i32::MAX as u64 / 2 {
                return usage(format!(
                    "--rows {} in {} tables are {rows} a table: {TABLE_ROWS_MIN} to {} fit",
                    self.rows,
                    case.tables,
                    i32::MAX / 2
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let sound = Plan {
            rows: 2_000,
            seconds: 1,
            warmup: 0,
            max_seconds: 0,
            settle_seconds: 0,
            steps: ["load", "settle", "insert", "settle"].map(String::from).into(),
            cases: vec![Case { tables: 8, clients: 1, cores: None }],
            seed: 1,
        };
        assert!(sound.check().is_ok());
        let with = |change: &dyn Fn(&mut Plan)| {
            let mut plan = sound.clone();
            change(&mut plan);
            plan.check().unwrap_err().to_string()
        };
        assert!(with(&|plan| plan.steps.push("insert".into())).contains("twice"));
        assert!(with(&|plan| drop(plan.steps.remove(0))).contains("load"));
        assert!(with(&|plan| plan.rows = 1_000).contains("125 a table"));
        assert!(with(&|plan| plan.cases[0].clients = 0).contains("--clients"));
        assert!(with(&|plan| plan.seconds = 0).contains("--seconds"));
    }
}
