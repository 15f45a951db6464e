//! `trefoil`: looks after a database from the command line.
//!
//! | file | owns |
//! |---|---|
//! | `main.rs` | the command line, exit codes |
//! | `check.rs` | `verify`, `rebuild` |
//! | `numbers.rs` | `stats` |
//! | `advise.rs` | `advise` |
//! | `dump.rs` | `dump` |
//! | `copies.rs` | `backup`, `restore`, `upgrade` |
//! | `prepared.rs` | `prepared`, `commit`, `rollback` |
//!
//! Results go to stdout, everything else to stderr. `verify`, `stats`, `advise`, `dump` and `prepared` open the database to read only:
//! they change nothing, and after a crash they replay its log in memory. The others open it as a program would. While another
//! process has it open, nothing is touched.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "not part of the engine, never simulated")]

mod advise;
mod check;
mod copies;
mod dump;
mod numbers;
mod prepared;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use trefoil::{Database, Options};

use prepared::Decision;

/// Looks after a Trefoil database.
#[derive(Debug, Parser)]
#[command(
    name = "trefoil",
    version,
    propagate_version = true,
    max_term_width = 110,
    after_help = "\
Examples:
  trefoil verify shop.db                     is everything in order?
  trefoil stats shop.db                      sizes, by index
  trefoil advise shop.db                     would another structure suit an index better?
  trefoil dump shop.db --table orders        rows as tab-separated text
  trefoil dump shop.db --table orders --salvage
                                             the rows that can be read, whatever is damaged
  trefoil backup shop.db monday              a copy of a database that is not in use
  trefoil backup shop.db tuesday --since monday
                                             only what was written since monday's
  trefoil restore monday shop.db             the copy back in place, checked
  trefoil restore monday tuesday shop.db     the same of a full backup and the increments to it
  trefoil upgrade shop.db                    the newest format, for what came with it
  trefoil rebuild shop.db orders.by_day      a damaged secondary index, made anew
  trefoil prepared shop.db                   transactions that wait for their decision
  trefoil commit shop.db order-7             one of them, decided by hand

A database in use is backed up by the program that has it open: Database::backup.

Exit codes: 0 ok, 1 failed, 2 usage, 4 the database is damaged, 5 salvaged what could be read of it."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read and check everything: checksums, order, counts, secondary indexes against their rows
    Verify {
        #[command(flatten)]
        database: Opened,
        /// How results are printed
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Make a secondary index anew from the rows of its table: for one that is damaged
    Rebuild {
        #[command(flatten)]
        database: Opened,
        /// The index as `verify` names it: TABLE.INDEX
        index: String,
    },
    /// Sizes and counts, of the database and of each index
    Stats {
        #[command(flatten)]
        database: Opened,
        /// How results are printed
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// What each index costs, and what it would with another structure; changes nothing
    ///
    /// Writes: bytes written to the data file for one byte that came in. Reads: blocks read from disk for one key looked up.
    /// Space: bytes on disk for one byte of live keys and values. "-" is not known: writes and reads are counted while a
    /// program has the database open, so this command shows space, and the program asks for the rest with Database::advise.
    ///
    /// A prediction may be wrong by a quarter; what differs by less is "nothing to gain". To convert an index, make one with the
    /// other STRUCTURE in its place: that is never done on its own.
    #[command(verbatim_doc_comment)]
    Advise {
        #[command(flatten)]
        database: Opened,
        /// How results are printed
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Print the rows of a table or the entries of an index, in key order, as of one moment
    Dump {
        #[command(flatten)]
        database: Opened,
        /// A table: one row a line, columns separated by tabs, names first
        #[arg(long, conflicts_with = "index", required_unless_present = "index")]
        table: Option<String>,
        /// A plain index: one entry a line, key, tab, value
        #[arg(long)]
        index: Option<String>,
        /// Go on past what cannot be read; what is passed over is said on stderr, and the exit code is 5
        #[arg(long)]
        salvage: bool,
        /// Tab-separated text, or one JSON object a line
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Copy a database that no other process has open
    Backup {
        #[command(flatten)]
        database: Opened,
        /// Where the copy goes: an empty or new directory
        target: PathBuf,
        /// Read and write at most so many bytes a second (k, m, g = KiB, MiB, GiB) [default: as fast as it goes]
        #[arg(long, value_name = "BYTES", value_parser = copies::rate)]
        rate: Option<u64>,
        /// Make an increment to the backup in this directory, full or an increment itself: only what was written since
        #[arg(long, value_name = "BACKUP")]
        since: Option<PathBuf>,
    },
    /// List prepared transactions: they hold their locks until somebody commits them or rolls them back
    Prepared {
        #[command(flatten)]
        database: Opened,
        /// How results are printed
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Commit a prepared transaction: its coordinator did, and cannot say so any more
    Commit {
        #[command(flatten)]
        database: Opened,
        /// Its name as `prepared` prints it
        xid: String,
    },
    /// Roll back a prepared transaction: its coordinator never committed it
    Rollback {
        #[command(flatten)]
        database: Opened,
        /// Its name as `prepared` prints it
        xid: String,
    },
    /// Bring a database of an older release to the newest format; older releases do not open it any more then
    Upgrade {
        #[command(flatten)]
        database: Opened,
    },
    /// Put a backup in place as a database, and check it
    Restore {
        /// The directory of the backup; then those of the increments to it, in the order in which they were made
        #[arg(required = true, value_name = "BACKUP")]
        backups: Vec<PathBuf>,
        #[command(flatten)]
        database: Opened,
    },
}

/// Which database, and how it is opened.
#[derive(Debug, Args)]
struct Opened {
    /// The directory of the database
    #[arg(value_name = "DATABASE")]
    path: PathBuf,
    /// Memory to use, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    memory: u64,
}

impl Opened {
    fn open(&self) -> Result<Database, Failure> {
        Ok(Database::open(&self.path, self.options())?)
    }

    fn open_to_read(&self) -> Result<Database, Failure> {
        Ok(Database::open(&self.path, Options { read_only: true, ..self.options() })?)
    }

    fn options(&self) -> Options {
        Options { create: false, budget_bytes: self.memory << 20, ..Options::default() }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Why the program ends without success.
#[derive(Debug)]
enum Failure {
    /// Something failed.
    Failed(String),
    /// What was asked for does not exist.
    Usage(String),
    /// The database is damaged.
    Damaged(String),
    /// Printed is what could be read of a damaged database.
    Gaps(String),
    /// Nobody reads the results any more, as in `| head`.
    Unread,
}

impl From<trefoil::Error> for Failure {
    fn from(error: trefoil::Error) -> Self {
        let text = error.to_string();
        match error {
            trefoil::Error::Corrupt(_) => Failure::Damaged(text),
            trefoil::Error::NotFound { .. } => Failure::Usage(text),
            _ => Failure::Failed(text),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Unread,
            _ => Failure::Failed(format!("cannot write the results: {error}")),
        }
    }
}

fn main() -> ExitCode {
    let out = &mut io::BufWriter::new(io::stdout().lock());
    let done = match Arguments::parse().command {
        Command::Verify { database, format } => check::run(&database, format, out),
        Command::Rebuild { database, index } => check::rebuild(&database, &index, out),
        Command::Stats { database, format } => numbers::run(&database, format, out),
        Command::Advise { database, format } => advise::run(&database, format, out),
        Command::Backup { database, target, rate, since } => copies::backup(&database, &target, rate, since, out),
        Command::Restore { backups, database } => copies::restore(&backups, &database, out),
        Command::Upgrade { database } => copies::upgrade(&database, out),
        Command::Prepared { database, format } => prepared::list(&database, format, out),
        Command::Commit { database, xid } => prepared::decide(&database, &xid, Decision::Commit, out),
        Command::Rollback { database, xid } => prepared::decide(&database, &xid, Decision::Rollback, out),
        Command::Dump { database, table, index, salvage, format } => {
            dump::run(&database, (table, index), salvage, format, out)
        }
    };
    let done = done.and_then(|()| Ok(io::Write::flush(out)?));
    let (text, code) = match done {
        Ok(()) | Err(Failure::Unread) => return ExitCode::SUCCESS,
        Err(Failure::Failed(text)) => (text, 1),
        Err(Failure::Usage(text)) => (text, 2),
        Err(Failure::Damaged(text)) => (text, 4),
        Err(Failure::Gaps(text)) => (text, 5),
    };
    // What was found before goes out first.
    let _ = io::Write::flush(out);
    eprintln!("trefoil: {text}");
    ExitCode::from(code)
}
