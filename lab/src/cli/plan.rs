//! Options of `lab run plan.toml`.

use std::path::PathBuf;

use clap::Args;

use super::Format;

/// What follows the help of `lab run`.
pub const AFTER_HELP: &str = "\
A plan is a file of targets, configurations, workloads and tables; five are built in (lab list --plans), and lab reference tells
every key. Targets take turns within a workload and workloads within a repetition. Each turn that is done is kept: the same command with
--resume FOLDER goes on with the first one that is not. A target that cannot be had is named with the reason, and the plan
goes on; the code at the end is still 0, or 1 with --require-targets, or where no target at all could be had. A target that
fails or violates an invariant is not run any further; the plan goes on, and ends with code 1 or 4.

Examples:
  lab run seed-000 --dry-run                what would be run, and how long it would take
  lab run seed-000 --scale mini             all of it in less than a minute
  lab run my-plan.toml --resume bench-results/latest";

/// Options of `lab run plan.toml`.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// The plan's file, or the name of one that is built in
    #[arg(value_name = "PLAN")]
    pub file: Option<PathBuf>,

    /// Another size that the plan has, for example mini
    #[arg(long, value_name = "NAME")]
    pub scale: Option<String>,

    /// Say what would be run and how long that takes, and run nothing
    #[arg(long)]
    pub dry_run: bool,

    /// End with code 1 if a target cannot be had
    #[arg(long)]
    pub require_targets: bool,

    /// Behind everything else one more repetition of each target, whose stacks perf samples: flame graphs, and in no number
    #[arg(long)]
    pub sample: bool,

    /// Where databases are made [default: what the plan says, else in the run folder]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// The run folder [default: bench-results/TIME-NAME]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub out: Option<PathBuf>,

    /// Go on with an interrupted run of the plan: turns that are done are kept
    #[arg(long, value_name = "RUN")]
    pub resume: Option<PathBuf>,

    /// Write the running numbers to this file once a second, as Prometheus text
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// No progress, only results
    #[arg(long, short)]
    pub quiet: bool,
}
