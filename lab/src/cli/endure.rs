//! Options of `lab endure`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::{bytes, count};

/// What is to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// Deletes at the rate of inserts: the debt stays flat, and inserts pay no tax
    GcDebt,
    /// Close to the highest rate, with a snapshot held open and the disk nearly full
    Soak,
}

/// Options of `lab endure`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
gc-debt: (1) inserts alone, from --rows rows on; (2) the same with deletes of the oldest rows at the rate of the inserts, in a table
that begins with as many rows as (1) had on average, and keeps to them. Conditions: the deletes keep up, a straight line through the dead
versions of the last two thirds grows by no more than five seconds of deletes leave, the smallest key is found within 10 ms at each look
(one a second), (2) inserts at least 0.9 times as fast as (1), and its table has 0.9 to 1.1 times as many rows as that of (1), each on
average over its seconds: rates are compared at equal mean size.

soak: (1) the highest rate; (2) --share percent of it, with a snapshot held open from the first second and the disk as small as makes
it --full percent full at the end. Conditions: the rate is kept, 99.9 % of the inserts are back within 20 ms of when they were due, none
takes longer than 100 ms, 99 % of the seconds reach 0.7 times the average, the disk is as full at the end as asked within 10
percent, and resident memory grew at its peak, the fill included, by the budget and 5 % of it, 32 MiB at least.

Neither covers bytes written and processor time a row, ranges, and look-ups by key. What was not measured is a condition missed.

Each second is a line of seconds.tsv. The same command with the same --out goes on with an interrupted proof: parts that are done are
kept, the one that was under way begins again, since what is asked is that long without a break; another build, host or process beside it is refused. verdict.json has the conditions; the
code is 3 if one of them does not hold.

Examples:
  lab endure gc-debt --out gc-debt --budget 256m
  lab endure soak --out soak --budget 256m --search-seconds 300")]
pub struct Endure {
    /// What is to be shown
    #[arg(value_enum)]
    pub proof: Proof,
    /// Where lines, verdict and database are; that of an interrupted proof to go on with it
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Engine under test
    #[arg(long, value_name = "TARGET", default_value = crate::run::DEFAULT_TARGET)]
    pub target: String,
    /// Length of each part
    #[arg(long, default_value_t = 1800, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(3..))]
    pub seconds: u64,
    /// Of a soak, length of the search for the highest rate, of which the second half counts
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub search_seconds: u64,
    /// Rows that are there before each part
    #[arg(long, default_value = "1m", value_parser = count, value_name = "N")]
    pub rows: u64,
    /// Threads that insert
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub clients: u32,
    /// Memory of the engine under test (k, m, g = KiB, MiB, GiB) [default: the engine's own]
    #[arg(long, value_parser = bytes, value_name = "BYTES")]
    pub budget: Option<u64>,
    /// Of a soak, percent of the highest rate
    #[arg(long, default_value_t = 95, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=100))]
    pub share: u64,
    /// Of a soak, percent of the disk that are full at the end
    #[arg(long, default_value_t = 85, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=99))]
    pub full: u64,
}
