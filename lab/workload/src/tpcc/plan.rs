//! The options of a run, resolved.

use lab_target::tpcc::Table;
use serde::{Deserialize, Serialize};

use crate::plan::{Case, PlanError};

/// Districts of a warehouse.
pub const DISTRICTS: i64 = 10;
/// Items of the specification.
pub const ITEMS: i64 = 100_000;
/// Customers, and orders, of a district of the specification.
pub const CUSTOMERS: i64 = 3_000;
/// The largest divisor of the size: a hundred items have to differ in an order's lines more often than not.
pub const SCALE_MAX: u32 = 100;
/// The most warehouses: keys of history are in 40 bits.
pub const WAREHOUSES_MAX: u32 = 10_000;

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Fills the tables.
    Load,
    /// Brings the engine to rest.
    Settle,
    /// Sessions run transactions.
    Run,
    /// The same while the conditions are checked in one snapshot after another.
    Snapshot,
    /// A process that runs transactions is killed, and the database opened again. Carried out by who can start one.
    Crash,
}

impl Step {
    const ALL: [(&'static str, Step); 5] = [
        ("load", Step::Load),
        ("settle", Step::Settle),
        ("run", Step::Run),
        ("snapshot", Step::Snapshot),
        ("crash", Step::Crash),
    ];

    /// Reads a step's name.
    ///
    /// # Errors
    /// `Usage` lists the known names.
    pub fn parse(name: &str) -> Result<Step, PlanError> {
        let known = Step::ALL.iter().find(|(known, _)| *known == name).map(|(_, step)| *step);
        known.ok_or_else(|| PlanError::Usage(format!("step `{name}` is none of load, settle, run, snapshot, crash")))
    }
}

/// How large the tables are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Warehouses.
    pub warehouses: i64,
    /// Items, and rows of stock of a warehouse.
    pub items: i64,
    /// Customers of a district; it has as many orders and payments.
    pub customers: i64,
}

impl Size {
    /// The last order that is delivered when the tables have been loaded; in each district seven of ten are.
    #[must_use]
    pub fn delivered(&self) -> i64 {
        self.customers * 7 / 10
    }

    /// Rows of a table that always has as many.
    #[must_use]
    pub fn rows(&self, table: Table) -> Option<i64> {
        match table {
            Table::Item => Some(self.items),
            Table::Warehouse => Some(self.warehouses),
            Table::District => Some(self.warehouses * DISTRICTS),
            Table::Customer => Some(self.warehouses * DISTRICTS * self.customers),
            Table::Stock => Some(self.warehouses * self.items),
            Table::History | Table::Orders | Table::NewOrders | Table::OrderLine => None,
        }
    }

    /// All districts: warehouse and number.
    pub fn districts(&self) -> impl Iterator<Item = (i64, i64)> + use<> {
        (1..=self.warehouses).flat_map(|warehouse| (1..=DISTRICTS).map(move |district| (warehouse, district)))
    }

    /// The place of a district among all of them, if there is such a one.
    #[must_use]
    pub fn place(&self, warehouse: i64, district: i64) -> Option<usize> {
        let there = (1..=self.warehouses).contains(&warehouse) && (1..=DISTRICTS).contains(&district);
        there.then(|| ((warehouse - 1) * DISTRICTS + district - 1) as usize)
    }
}

/// The options of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Warehouses.
    pub warehouses: u32,
    /// Items, customers and orders are divided by this; 1 is the specification.
    pub scale: u32,
    /// Length of each step of transactions.
    pub seconds: u64,
    /// Unmeasured seconds before each.
    pub warmup: u64,
    /// The longest a step may take; 0 = no limit.
    pub max_seconds: u64,
    /// The shortest settle.
    pub settle_seconds: u64,
    /// Step names in order, the load first.
    pub steps: Vec<String>,
    /// Sessions and cores, one run of all steps each; tables are warehouses.
    pub cases: Vec<Case>,
    /// The seed of all rows and transactions.
    pub seed: u64,
}

impl Plan {
    /// How large the tables are.
    #[must_use]
    pub fn size(&self) -> Size {
        let scale = i64::from(self.scale.max(1));
        Size { warehouses: self.warehouses.into(), items: ITEMS / scale, customers: CUSTOMERS / scale }
    }

    /// What makes a run differ from the specification, for whoever reads its numbers.
    #[must_use]
    pub fn deviations(&self) -> Vec<String> {
        let mut out = vec![
            "no terminals: no keying and think times, deliveries are not deferred; NOPM is not tpmC, which is at most 12.86 \
             a warehouse with them"
                .to_owned(),
        ];
        if self.scale != 1 {
            let Size { items, customers, .. } = self.size();
            out.push(format!("not of standard size: {items} items, {customers} customers and orders a district"));
        }
        out
    }

    /// Whether a process is to be killed at the end.
    #[must_use]
    pub fn crashes(&self) -> bool {
        self.parsed_steps().is_ok_and(|steps| steps.contains(&Step::Crash))
    }

    /// The steps.
    ///
    /// # Errors
    /// `Usage` for an unknown name.
    pub fn parsed_steps(&self) -> Result<Vec<Step>, PlanError> {
        self.steps.iter().map(|name| Step::parse(name)).collect()
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// `Usage` says what makes no sense.
    pub fn check(&self) -> Result<(), PlanError> {
        let usage = |text: &str| Err(PlanError::Usage(text.into()));
        let steps = self.parsed_steps()?;
        let times = |wanted: Step| steps.iter().filter(|step| **step == wanted).count();
        if steps.first() != Some(&Step::Load) || times(Step::Load) > 1 {
            return usage("the load comes first and once");
        }
        if times(Step::Run) > 1 || times(Step::Snapshot) > 1 {
            return usage("run and snapshot can be given once each");
        }
        if steps[..steps.len() - 1].contains(&Step::Crash) {
            return usage("crash comes last: the database is closed then");
        }
        if self.seconds == 0 {
            return usage("--seconds has to be at least 1");
        }
        if !(1..=SCALE_MAX).contains(&self.scale) {
            return usage("--scale has to be from 1 to 100");
        }
        if !(1..=WAREHOUSES_MAX).contains(&self.warehouses) {
            return usage("--warehouses has to be from 1 to 10000");
        }
        if self.cases.iter().any(|case| case.clients == 0 || case.cores == Some(0)) {
            return usage("--clients and --cores have to be at least 1");
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
            warehouses: 2,
            scale: 100,
            seconds: 1,
            warmup: 0,
            max_seconds: 0,
            settle_seconds: 0,
            steps: ["load", "settle", "run", "snapshot", "crash"].map(String::from).into(),
            cases: vec![Case { tables: 2, clients: 1, cores: None }],
            seed: 1,
        };
        assert!(sound.check().is_ok());
        let with = |change: &dyn Fn(&mut Plan)| {
            let mut plan = sound.clone();
            change(&mut plan);
            plan.check().unwrap_err().to_string()
        };
        assert!(with(&|plan| drop(plan.steps.remove(0))).contains("load"));
        assert!(with(&|plan| plan.steps.push("run".into())).contains("once"));
        assert!(with(&|plan| plan.steps.swap(3, 4)).contains("crash comes last"));
        assert!(with(&|plan| plan.steps[2] = "walk".into()).contains("none of"));
        assert!(with(&|plan| plan.scale = 101).contains("--scale"));
        assert!(with(&|plan| plan.warehouses = 0).contains("--warehouses"));
        assert!(with(&|plan| plan.seconds = 0).contains("--seconds"));
        assert!(with(&|plan| plan.cases[0].cores = Some(0)).contains("--cores"));
        assert_eq!((sound.deviations().len(), sound.size().items, sound.size().delivered()), (2, 1_000, 21));
    }
}
