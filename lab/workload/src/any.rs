//! The plan of a run, whichever workload it is of.

use std::sync::atomic::AtomicBool;

use lab_target::{Price, Target};
use serde::{Deserialize, Serialize};

use crate::plan::{Case, Plan, PlanError};
use crate::sequence::{Place, RunError, Watcher};
use crate::{sequence, sysbench, tpcc};

/// A plan of a known workload. Each has keys that no other has, so that it can be told when it is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AnyPlan {
    /// The insert benchmark.
    Ibench(Plan),
    /// sysbench.
    Sysbench(sysbench::Plan),
    /// TPC-C.
    Tpcc(tpcc::Plan),
}

impl AnyPlan {
    /// The workload's name.
    #[must_use]
    pub fn workload(&self) -> &'static str {
        match self {
            AnyPlan::Ibench(_) => "ibench",
            AnyPlan::Sysbench(_) => "sysbench",
            AnyPlan::Tpcc(_) => "tpcc",
        }
    }

    /// Rows of the load.
    #[must_use]
    pub fn rows(&self) -> u64 {
        match self {
            AnyPlan::Ibench(plan) => plan.rows,
            AnyPlan::Sysbench(plan) => plan.rows,
            AnyPlan::Tpcc(plan) => tpcc::population::rows_expected(&plan.size()),
        }
    }

    /// Tables and clients, one run of all steps each.
    #[must_use]
    pub fn cases(&self) -> &[Case] {
        match self {
            AnyPlan::Ibench(plan) => &plan.cases,
            AnyPlan::Sysbench(plan) => &plan.cases,
            AnyPlan::Tpcc(plan) => &plan.cases,
        }
    }

    /// Step names in order.
    #[must_use]
    pub fn steps(&self) -> &[String] {
        match self {
            AnyPlan::Ibench(plan) => &plan.steps,
            AnyPlan::Sysbench(plan) => &plan.steps,
            AnyPlan::Tpcc(plan) => &plan.steps,
        }
    }

    /// The longest a step may take; 0 = no limit.
    #[must_use]
    pub fn max_seconds(&self) -> u64 {
        match self {
            AnyPlan::Ibench(plan) => plan.max_seconds,
            AnyPlan::Sysbench(plan) => plan.max_seconds,
            AnyPlan::Tpcc(plan) => plan.max_seconds,
        }
    }

    /// The seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        match self {
            AnyPlan::Ibench(plan) => plan.seed,
            AnyPlan::Sysbench(plan) => plan.seed,
            AnyPlan::Tpcc(plan) => plan.seed,
        }
    }

    /// What kind of column the price of the insert benchmark is.
    #[must_use]
    pub fn price(&self) -> Price {
        match self {
            AnyPlan::Ibench(plan) => plan.price,
            AnyPlan::Sysbench(_) | AnyPlan::Tpcc(_) => Price::Int,
        }
    }

    /// Checks what the types do not.
    pub fn check(&self) -> Result<(), PlanError> {
        match self {
            AnyPlan::Ibench(plan) => plan.check(),
            AnyPlan::Sysbench(plan) => plan.check(),
            AnyPlan::Tpcc(plan) => plan.check(),
        }
    }

    /// What a report tells of it, behind the rows.
    #[must_use]
    pub fn settings(&self) -> Vec<(String, String)> {
        let mut settings = match self {
            AnyPlan::Ibench(plan) => vec![
                ("rows (l.i0 / l.i1 / l.i2)".into(), format!("{} / {} / {}", plan.rows, plan.rows_i1, plan.rows_i2)),
                ("seconds of a query step".to_owned(), plan.seconds.to_string()),
                ("warm-up seconds".into(), plan.warmup.to_string()),
                ("index set".into(), format!("{:?}", plan.index_set).trim_start_matches('Y').into()),
                ("delete form".into(), format!("{:?}", plan.delete_form).to_lowercase()),
                ("price".into(), format!("{:?}", plan.price).to_lowercase()),
            ],
            AnyPlan::Sysbench(plan) => vec![
                ("rows of all tables".into(), plan.rows.to_string()),
                ("seconds of a test".into(), plan.seconds.to_string()),
                ("warm-up seconds".into(), plan.warmup.to_string()),
            ],
            AnyPlan::Tpcc(plan) => vec![
                ("warehouses".into(), plan.warehouses.to_string()),
                ("size divided by".into(), plan.scale.to_string()),
                ("seconds of a run".into(), plan.seconds.to_string()),
                ("warm-up seconds".into(), plan.warmup.to_string()),
            ],
        };
        settings.push(("seed".into(), self.seed().to_string()));
        if let AnyPlan::Ibench(plan) = self {
            if plan.htap_seconds > 0 {
                settings.push(("held transaction".into(), format!("{} s", plan.htap_seconds)));
            }
            if plan.inserts_per_second > 0 {
                settings.push(("pace of load steps".into(), format!("{} rows/s a client", plan.inserts_per_second)));
            }
        }
        settings
    }

    /// Runs all steps on an open target.
    ///
    /// # Errors
    /// Why the run ended before its time; steps that were finished have been handed to the watcher.
    pub fn run_case(
        &self,
        target: &dyn Target,
        place: &Place<'_>,
        interrupt: &AtomicBool,
        watcher: &dyn Watcher,
    ) -> Result<(), RunError> {
        match self {
            AnyPlan::Ibench(plan) => sequence::run_case(target, place, plan, interrupt, watcher),
            AnyPlan::Sysbench(plan) => sysbench::run_case(target, place, plan, interrupt, watcher),
            AnyPlan::Tpcc(plan) => tpcc::run_case(target, place, plan, interrupt, watcher),
        }
    }
}
