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

soak: (1) the highest rate; (2) --share percent of it, with a snapshot held open from the first second, the rows that it sees deleted
bit by bit by somebody else, and the disk --full percent full all the time: what the data leave of that is ballast. Conditions: the rate
is kept, 99.9 % of the inserts are back within 20 ms of when they were due, none takes longer than 100 ms, 99 % of the seconds reach
0.7 times the average, the disk is never emptier than asked (5 percent aside), resident memory grew at its peak, the fill included, by
the budget and 5 % of it, 32 MiB at least, the snapshot sees at the end what it saw at the beginning, and, behind the last second of each
part, with the snapshot still held, ranges and look-ups by key are at least half as fast as behind (1). An insert writes at most 2 times the
bytes and takes at most 1.5 times the processor time of (1), driver included. --ranges, --points, --bytes-a-row and --cpu-a-row are
bounds of your own in place of those last four.

Each part runs in a process of its own, and ends with a check of all rows and index entries; a part that fails it is code 4. What was not
measured is a condition missed.

Each second is a line of seconds.tsv. The same command with the same --out goes on with an interrupted proof: parts that are done are
kept, the one that was under way begins again, since what is asked is that long without a break; another build, host or process beside
it is refused. verdict.json has the conditions; the code is 3 if one of them does not hold.

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
    /// Of a soak, percent of the disk that are full
    #[arg(long, default_value_t = 85, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=99))]
    pub full: u64,
    /// Of a soak, length of the ranges, and of the look-ups, behind each part
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub read_seconds: u64,
    /// Of a soak, the bounds in place of those by its first part
    #[command(flatten)]
    pub bounds: Bounds,
    /// The part that this process runs
    #[arg(long, hide = true)]
    pub part: Option<String>,
}

/// What a soak is held to, where it is not what its first part found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
pub struct Bounds {
    /// The most bytes that an inserted row writes
    #[arg(long, value_name = "BYTES")]
    pub bytes_a_row: Option<f64>,
    /// The most processor time that an inserted row takes, driver included, in microseconds
    #[arg(long, value_name = "MICROSECONDS")]
    pub cpu_a_row: Option<f64>,
    /// The least ten-row ranges a second, one thread
    #[arg(long, value_name = "N")]
    pub ranges: Option<f64>,
    /// The least look-ups by key a second, one thread
    #[arg(long, value_name = "N")]
    pub points: Option<f64>,
}
