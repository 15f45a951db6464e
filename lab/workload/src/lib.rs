//! The workloads, engine-neutral and seeded. Today: the insert benchmark in its 2023 form.
//!
//! | module | owns |
//! |---|---|
//! | [`random`] | the seeded generator of uniform numbers |
//! | [`rows`] | rows of the insert benchmark, and their replay |
//! | [`plan`] | options of a run, the steps, and what each step does |
//! | [`feed`] | the coupling of inserter and deleter, and the pace |
//! | [`worker`] | the threads of one client |
//! | [`step`] | one step: threads, barrier, sampling |
//! | [`totals`] | what the threads of a step measured, added up |
//! | [`check`] | the invariants after a step |
//! | [`assemble`] | from totals to the record that is kept |
//! | [`sequence`] | all steps on one target |

#![forbid(unsafe_code)]
// The lab drives engines from outside, on real clocks and real threads; the simulator never runs it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod assemble;
pub mod check;
pub mod feed;
pub mod plan;
pub mod random;
pub mod rows;
pub mod sequence;
pub mod step;
pub mod totals;
pub mod worker;

pub use plan::{Case, DeleteForm, Plan, PlanError, Step};
pub use sequence::{Place, RunError, Watcher, run_case};
pub use step::Tick;
