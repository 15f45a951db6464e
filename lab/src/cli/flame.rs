//! Options of `lab flame`.

use std::path::PathBuf;

use clap::Args;

/// Options of `lab flame`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A run that was made with --sample has the stacks of every step. With two runs the picture has the widths of the second, red where
a frame's share of the samples grew, blue where it shrank.

Examples:
  lab run ibench --rows 1m --steps l.i0,l.x,l.i1 --sample
  lab flame bench-results/latest --step l.i1 -o l.i1.svg
  lab flame before after --step l.i1 -o change.svg")]
pub struct Flame {
    /// The run, or the one that is compared with
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// The run whose change is drawn
    #[arg(value_name = "RUN_B")]
    pub other: Option<PathBuf>,
    /// The step [default: the only one]
    #[arg(long, value_name = "STEP")]
    pub step: Option<String>,
    /// The target [default: the only one]
    #[arg(long, value_name = "TARGET")]
    pub target: Option<String>,
    /// The case of tables and clients, by its position in the run from 1 [default: the only one]
    #[arg(long, value_name = "N")]
    pub case: Option<usize>,
    /// Where the picture is written [default: stdout]
    #[arg(short, long, value_name = "FILE.svg")]
    pub output: Option<PathBuf>,
}
