//! The workloads, engine-neutral and seeded: the insert benchmark, and sysbench and TPC-C in modules of their own.
//!
//! | module | owns |
//! |---|---|
//! | [`random`] | the seeded generator of uniform numbers |
//! | [`rows`] | rows of the insert benchmark, and their replay |
//! | [`plan`] | options of a run, the steps, and what each step does |
//! | [`feed`] | the coupling of inserter and deleter, and the pace |
//! | [`worker`] | the threads of one client |
//! | [`step`] | one step: its threads and what they share |
//! | [`coordinator`] | what watches a step; the parts of a run that all workloads share |
//! | `drive` | threads of a step, one for each session |
//! | `crew` | the threads of a step: start together, end together |
//! | `rest` | settling, and the sizes then |
//! | [`totals`] | what the threads of a step measured, added up |
//! | [`check`] | the invariants after a step |
//! | [`assemble`] | from totals to the record that is kept |
//! | [`sequence`] | all steps on one target |
//! | [`sysbench`] | its tests, events and checks |
//! | [`tpcc`] | TPC-C: its rows, transactions and conditions |
//! | [`any`] | a plan of any of them |

#![forbid(unsafe_code)]
// The lab drives engines from outside, on real clocks and real threads; the simulator never runs it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod any;
pub mod assemble;
pub mod check;
pub mod coordinator;
mod crew;
mod drive;
pub mod feed;
pub mod plan;
pub mod random;
mod rest;
pub mod rows;
pub mod sequence;
pub mod step;
pub mod sysbench;
pub mod totals;
pub mod tpcc;
pub mod worker;

pub use any::AnyPlan;
pub use coordinator::Tick;
pub use plan::{Case, DeleteForm, Plan, PlanError, Step};
pub use sequence::{Place, RunError, Watcher, run_case};
