//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use lab_workload::DeleteForm;

mod endure;
mod fetch;
mod flame;
mod plan;
pub mod resume;
mod serve;
mod sysbench;
mod tpcc;

pub use endure::{Bounds, Endure, Proof};
pub use fetch::Fetch;
pub use flame::Flame;
pub use plan::Plan;
pub use serve::Serve;
pub use sysbench::Sysbench;
pub use tpcc::Tpcc;

/// Measures storage engines: throughput, latency, stalls, and what each operation costs.
#[derive(Debug, Parser)]
#[command(
    name = "lab",
    version,
    propagate_version = true,
    max_term_width = 110,
    after_help = "\
Start here:
  lab doctor                                        is this machine fit for measuring?
  lab run ibench --rows 100k --seconds 2            a first run, less than a minute
  lab run ibench --target trefoil --rows 10m        the insert benchmark, all steps
  lab run sysbench --tests point-query,update-one   tests on 8 tables and on 1, with 1, 8 and 48 clients
  lab run tpcc --warehouses 1                       orders and payments a minute, conditions checked
  lab run seed-000 --scale mini                     a study: targets, configurations and workloads of one file
  lab compare bench-results/latest                  better, worse, same or unclear, with intervals
  lab report bench-results/latest -o report.html    one self-contained page
  lab endure soak --out soak --budget 256m          half an hour close to the highest rate, and a verdict
  lab serve                                         watch a run, browse and compare the others

Exit codes: 0 ok, 1 failed, 2 usage, 3 regression, 4 an invariant was violated, 5 rate missed, 130 interrupted."
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a workload on one or more targets, or a plan of several
    #[command(args_conflicts_with_subcommands = true, after_help = crate::cli::plan::AFTER_HELP)]
    Run {
        /// Which workload.
        #[command(subcommand)]
        workload: Option<Workload>,
        /// A plan instead.
        #[command(flatten)]
        plan: Plan,
    },
    /// Make one self-contained HTML page of one or more runs
    Report {
        /// Run folders; the first target of the first run is the base of the relative tables
        #[arg(required = true, value_name = "RUN")]
        runs: Vec<PathBuf>,
        /// Where to write [default: report.html in the first run folder]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Write a folder for documents as well: README.md with the tables, and the first chart of each section as a picture
        #[arg(long, value_name = "DIR")]
        gallery: Option<PathBuf>,
    },
    /// List the runs of a directory, newest first
    List {
        /// Where runs are kept [default: bench-results]
        dir: Option<PathBuf>,
        /// List what a target may be instead, and the parameters of trefoil
        #[arg(long, conflicts_with = "dir")]
        targets: bool,
        /// List the plans that are built in instead
        #[arg(long, conflicts_with_all = ["dir", "targets"])]
        plans: bool,
    },
    /// Show plan, environment and results of one run
    Show {
        /// The run folder
        run: PathBuf,
        /// How results are printed
        #[arg(long, value_enum, default_value_t = Format::Table)]
        format: Format,
    },
    /// Check whether this machine is fit for measuring
    #[command(after_help = "Ends with code 0 whatever was found; with --strict, with 1 if there is a warning.")]
    Doctor {
        /// Where the database would be
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// End with code 1 if there is a warning
        #[arg(long)]
        strict: bool,
    },
    /// Compare runs, or the targets of one run: better, worse, same or unclear
    Compare(Compare),
    /// Explain a difference: where the time of an operation went, part by part
    Explain(Explain),
    /// Draw the flame graph of a sampled step, or what changed from one run to another
    Flame(Flame),
    /// Watch a run under way and browse the others, in a browser
    Serve(Serve),
    /// Show what has to hold for half an hour: debt under deletes, or a soak close to the highest rate
    Endure(Endure),
    /// Replay a recorded workload (not built yet)
    #[command(hide = true)]
    Replay(Unbuilt),
    /// Check that a run folder is whole and agrees with itself
    Verify {
        /// The run folder
        run: PathBuf,
    },
    /// Bring a server of another version from the package registries, without installing it
    Fetch(Fetch),
    /// Completions for a shell, on stdout
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// The manual page, on stdout
    Man,
    /// Keys of plans and numbers of results, as Markdown on stdout
    Reference,
    /// The process that step crash of TPC-C kills
    #[command(hide = true)]
    TpccChild {
        /// What it has to do
        order: String,
    },
}

/// Options of `lab compare`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Every ratio has a 95 % interval, from the logarithms of the repetitions (Welch). better and worse are claimed only if
the difference stands after correction for the number of ratios (Holm): a comparison of a thing with itself claims
nothing in at least 95 of 100. same: the interval lies within the margin. unclear: repeat more; with fewer than 5
repetitions of a side everything is unclear.

Examples:
  lab compare bench-results/latest                                targets of one run against the first
  lab compare bench-results/latest --base rocksdb                 against another
  lab compare before after --fail-on 'l.i1.ips<-5%' --fail-on '*.p99>20%'")]
pub struct Compare {
    /// Run folders
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,

    /// A run folder or a target [default: the first run; the first target of a single run]
    #[arg(long, value_name = "RUN|TARGET")]
    pub base: Option<String>,

    /// End with code 3 if a number is worse, and by more than this; repeatable. A step of * is every step
    #[arg(long, value_name = "STEP.NUMBER<-N%")]
    pub fail_on: Vec<String>,

    /// Numbers to compare, by their names in --format json, or all [default: rate, p99, cpu, bytes, size, stall, min-key]
    #[arg(long, value_delimiter = ',', value_name = "NUMBER,…")]
    pub metrics: Vec<String>,

    /// A difference that does not matter, in percent
    #[arg(long, default_value_t = 5.0, value_parser = percent, value_name = "PERCENT")]
    pub margin: f64,

    /// How the comparison is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// Write every comparison as a test case, for a CI system: worse is a failure, unclear is skipped
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,

    /// Print a line ::error, ::warning or ::notice for each that is worse, exceeds a condition, or is better
    #[arg(long)]
    pub annotations: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim_end_matches('%').parse().map_err(|_| format!("`{text}` is not a number"))?;
    if (0.0..100.0).contains(&number) { Ok(number) } else { Err("not between 0 and 100".into()) }
}

/// Options of `lab explain`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The time of an operation is that of the threads that do it, by the operations: with c clients in a closed loop c / rate. Its
parts add up to it: the driver, reads, writes and syncs of files, waits that the engine counts (the log's company and room, row
locks, frames, delays by reason), processor time, waiting for a processor, and what is left as unexplained. Beside it stand
costs that nobody waits for: background processor time, bytes, and how much of the time lies in stalls.

Examples:
  lab explain before after                              the same targets of two runs, or the only ones
  lab explain before after --step l.i1 --format json
  lab explain run run --base-target trefoil:structure=btree --target trefoil:structure=lsm")]
pub struct Explain {
    /// The run that is explained from
    #[arg(value_name = "RUN_A")]
    pub base: PathBuf,
    /// The run that is explained
    #[arg(value_name = "RUN_B")]
    pub run: PathBuf,
    /// The target of the first run [default: every one that both have]
    #[arg(long, value_name = "TARGET")]
    pub base_target: Option<String>,
    /// The target of the second run
    #[arg(long, value_name = "TARGET")]
    pub target: Option<String>,
    /// One step alone
    #[arg(long, value_name = "STEP")]
    pub step: Option<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = ExplainFormat::Text)]
    pub format: ExplainFormat,
}

/// How an explanation is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExplainFormat {
    /// For people
    Text,
    /// One array, one object a step
    Json,
}

/// What a command that is not built yet was given.
#[derive(Clone, Debug, Args)]
pub struct Unbuilt {
    /// Anything.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub rest: Vec<String>,
}

/// The workloads.
#[derive(Debug, Subcommand)]
pub enum Workload {
    /// The insert benchmark: load, indexes, inserts with deletes, queries beside inserts
    Ibench(Box<Ibench>),
    /// sysbench: point, range and write tests on one table and on several
    Sysbench(Box<Sysbench>),
    /// TPC-C: orders, payments and deliveries, with the twelve consistency conditions
    Tpcc(Box<Tpcc>),
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// One array, one object per step and repetition
    Json,
    /// One line per step and repetition
    Csv,
    /// A Markdown table
    Md,
}

/// When a commit is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// On the device at commit
    Sync,
    /// Handed to the operating system at commit
    Write,
    /// Handed to the operating system within a second
    Buffered,
}

/// How data files are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Io {
    /// Past the page cache
    Direct,
    /// Through the page cache
    Buffered,
}

/// The form of the delete statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeleteFormArgument {
    /// The n smallest keys from m on
    Limit,
    /// Keys in m..m+n
    Range,
}

impl From<DeleteFormArgument> for DeleteForm {
    fn from(form: DeleteFormArgument) -> DeleteForm {
        match form {
            DeleteFormArgument::Limit => DeleteForm::Limit,
            DeleteFormArgument::Range => DeleteForm::Range,
        }
    }
}

/// What kind of column `price` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PriceArgument {
    /// A whole number, since December 2023
    Int,
    /// FLOAT with two decimals, which goes up with the customer, until then
    Float,
}

/// Options of `lab run ibench`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Steps of the 2023 form, in order:
  l.i0    load in key order, primary key only, 100 rows a statement
  l.x     create three secondary indexes
  l.i1    inserts and as many deletes, 50 rows a statement, as fast as possible
  l.i2    the same with 5 rows a statement
  settle  bring the engine to rest; the debt of the load before it is added to that load's costs
  qrN     ten-row range queries on the secondary indexes beside N inserts/s (and deletes/s) a client
  qpN     ten-key look-ups on the primary key beside N inserts/s
Steps of the 2017 form, in order:
  load    load in key order with the three secondary indexes there from the start, 100 rows a statement
  scan.pk1 scan.market scan.register scan.pdc scan.pk2
          every row, or every entry of an index, with a condition that none meets; the first right after the load
  q1000 q100   ten-row range queries beside N inserts/s a client, 100 rows a statement, no deletes
  gets    one row by a random key that exists, each in a read transaction of its own, with nobody writing

Targets: name or name:key=value,key=value. Several --target options take turns, repetition by repetition.
  trefoil:compression=zstd  the embedded engine; compression, structure, node_size, log_capacity, …: lab list --targets
  trefoil:structure=lsm,shape=leveled,compaction_pri=none,l0_l0=off,controller=delayed_write_rate:2m
                            log-structured merge trees, with policies that are there to be compared with
  redb fjall lmdb sqlite rocksdb   peers, if built in: cargo run --release -p lab --features redb -- …
  server:mariadb?engine=trefoil    a private server of MariaDB with engine innodb, rocksdb or trefoil, started and wiped;
                            protocol=text|prepared, binlog=on|off, dir=BINARIES, cnf=OPTION_FILE
  mysql://user:password@host:port/database?engine=innodb   a server that runs; protocol, socket=PATH
  model                     ordered maps in memory, for checking the lab
  null                      does nothing: shows what the driver itself costs

Examples:
  lab run ibench --rows 1m --seconds 10
  lab run ibench --target trefoil --clients 4 --tables 1 --rows 4m --budget 512m
  lab run ibench --steps l.i0,l.x,l.i1 --rows 10m --durability sync --format json")]
pub struct Ibench {
    /// Rows of l.i0, over all clients (k, m, g = thousands, millions, billions)
    #[arg(long, default_value = "1m", value_parser = count, value_name = "N")]
    pub rows: u64,

    /// Rows of l.i1 [default: half of --rows]
    #[arg(long, value_parser = count, value_name = "N")]
    pub rows_i1: Option<u64>,

    /// Rows of l.i2 [default: an eighth of --rows]
    #[arg(long, value_parser = count, value_name = "N")]
    pub rows_i2: Option<u64>,

    /// Length of each query step
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub seconds: u64,

    /// Steps to run, in order [default: all of the form]
    #[arg(long, value_delimiter = ',', value_name = "STEP,…")]
    pub steps: Vec<String>,

    /// Clients; several values run one after the other
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "N,…")]
    pub clients: Vec<u32>,

    /// Tables; several values run one after the other [default: one a client]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub tables: Vec<u32>,

    /// Form of the benchmark
    #[arg(long, default_value = "2023", value_name = "2017|2023")]
    pub form: String,

    /// Definition of the secondary indexes [default: that of the form]
    #[arg(long, value_name = "2017|2023")]
    pub index_set: Option<String>,

    /// Column `price`
    #[arg(long, value_enum, default_value_t = PriceArgument::Int)]
    pub price: PriceArgument,

    /// How rows to delete are chosen
    #[arg(long, value_enum, default_value_t = DeleteFormArgument::Limit)]
    pub delete_form: DeleteFormArgument,

    /// Pace of the load steps, in rows a second and client; 0 = as fast as possible
    #[arg(long, default_value = "0", value_parser = count, value_name = "N")]
    pub inserts_per_second: u64,

    /// Hold a transaction open for so long, again and again, beside every step from l.i1 on; 0 = never
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    pub htap_transaction_seconds: u64,

    /// End with code 5 if a query step missed its background rate
    #[arg(long)]
    pub require_sla: bool,

    /// What every workload has
    #[command(flatten)]
    pub common: Common,
}

/// Options that every workload has.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Engine under test, repeatable [default: trefoil]
    #[arg(long = "target", value_name = "TARGET")]
    pub targets: Vec<String>,

    /// Unmeasured seconds before each step that has a length
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    pub warmup: u64,

    /// End a step after so many seconds even if its rows are not done; 0 = never
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    pub max_seconds: u64,

    /// The shortest settle
    #[arg(long, default_value_t = 2, value_name = "SECONDS")]
    pub settle_seconds: u64,

    /// Compression: none, lz4 or zstd, where an engine has it; rocksdb keeps lz4 above zstd [default: the engine's own]
    #[arg(long, value_name = "NAME")]
    pub compression: Option<String>,

    /// When a commit is safe
    #[arg(long, value_enum, default_value_t = Durability::Write)]
    pub durability: Durability,

    /// Memory of the engine under test (k, m, g = KiB, MiB, GiB) [default: three quarters of --memory-limit, else the engine's own]
    #[arg(long, value_parser = bytes, value_name = "BYTES")]
    pub budget: Option<u64>,

    /// How data files are read and written [default: the engine's own]
    #[arg(long, value_enum)]
    pub io: Option<Io>,

    /// Memory of engine, driver and page cache together, by a control group; a run that needs more is killed
    #[arg(long, value_parser = bytes, value_name = "BYTES")]
    pub memory_limit: Option<u64>,

    /// A slower disk: reads, writes and syncs a second, MiB a second, what each takes beside that. With a peer among the
    /// targets iops and mb are those of a control group, for all of them, and there is no latency
    #[arg(long, value_name = "iops=N,mb=N,latency=Nms")]
    pub disk_limit: Option<String>,

    /// A smaller disk, for trefoil alone
    #[arg(long, value_parser = bytes, value_name = "BYTES")]
    pub disk_size: Option<u64>,

    /// What the drive is rated to write in its life (k, m, g, t = powers of 1000), for drive_life_years
    #[arg(long, value_parser = count, value_name = "BYTES")]
    pub drive_rated: Option<u64>,

    /// Seed of all rows and queries
    #[arg(long, default_value_t = 42, value_name = "N")]
    pub seed: u64,

    /// Repetitions; targets take turns
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub repeat: u32,

    /// Where databases are made, one fresh directory each, removed afterwards [default: in the run folder]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// The run folder [default: bench-results/TIME-WORKLOAD]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Go on with an interrupted run: finished targets and repetitions are kept. What it does is in its folder, and cannot be given
    /// again; but --target, for a password, which no folder has
    #[arg(long, value_name = "RUN", conflicts_with = "out")]
    pub resume: Option<PathBuf>,

    /// Keep the databases
    #[arg(long)]
    pub keep: bool,

    /// Write the running numbers to this file once a second, as Prometheus text
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,

    /// One more repetition of each target whose stacks perf samples: flame graphs in the report, and in no number
    #[arg(long)]
    pub sample: bool,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// Processor time in the older reports' unit (Mcpu: millionths of a percentage point an operation)
    #[arg(long)]
    pub legacy_units: bool,

    /// No progress, only results
    #[arg(long, short)]
    pub quiet: bool,
}

fn scaled(text: &str, step: u64) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let power = match &lower[digits.len()..] {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        other => return Err(format!("`{other}` is not a unit; use k, m, g or t")),
    };
    let number: f64 = digits.parse().map_err(|_| format!("`{text}` is not a number"))?;
    let value = number * (step.pow(power) as f64);
    if value.fract() != 0.0 || !(0.0..=1e18).contains(&value) {
        return Err(format!("`{text}` is not a whole number"));
    }
    Ok(value as u64)
}

/// `10m` = 10 000 000.
pub fn count(text: &str) -> Result<u64, String> {
    scaled(text, 1_000)
}

/// `512m` = 512 MiB.
pub fn bytes(text: &str) -> Result<u64, String> {
    scaled(text, 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn units_are_read() {
        assert_eq!(count("10m"), Ok(10_000_000));
        assert_eq!(count("1.5k"), Ok(1_500));
        assert_eq!(bytes("512m"), Ok(512 << 20));
        assert_eq!((count("7"), count("600t")), (Ok(7), Ok(600_000_000_000_000)));
        for wrong in ["", "m", "10x", "1.5", "-3", "0.0001k"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
    }
}
