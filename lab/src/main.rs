//! The lab: which engine, version and configuration serves a workload best, at what cost, and where does it stall?
//!
//! | module | owns |
//! |---|---|
//! | [`cli`] | the command line |
//! | [`run`] | `lab run`: targets in turns, repetitions, results |
//! | [`affinity`] | `--cores`: the processors of this process |
//! | [`group`] | `--memory-limit`, `--disk-limit` beside peers: control groups |
//! | [`keeper`] | what a run keeps while it goes on |
//! | [`across`] | checksums of all targets, medians of repetitions |
//! | [`compare`] | `lab compare`: sides, thresholds, verdicts |
//! | [`explain`] | `lab explain` |
//! | [`mod@reference`] | completions, the manual page, the reference of keys |
//! | [`folder`] | the run folder: names, layout, reading and writing |
//! | [`metrics`] | `--metrics`: the running numbers as Prometheus text |
//! | [`progress`] | what is shown while a run goes on |
//! | [`table`] | results as a table, JSON, CSV or Markdown |
//! | [`browse`] | `lab report`, `lab list`, `lab show` |
//! | [`sample`] | `--sample`: stacks of a repetition that is not measured |
//! | [`mod@flame`] | `lab flame` |
//! | [`mod@serve`] | `lab serve` |
//! | [`verify`] | `lab verify` |
//! | [`mod@endure`] | `lab endure`: proofs of half an hour |
//! | [`doctor`] | `lab doctor` |
//! | [`fetch`] | `lab fetch` |
//! | [`out`] | stdout |
//! | [`outcome`] | exit codes |

#![forbid(unsafe_code)]
// A program of its own beside the engine: real clocks, threads and files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

// Its `print!` is that of all modules below.
#[macro_use]
mod out;

mod across;
mod affinity;
mod browse;
mod cli;
mod compare;
mod doctor;
mod endure;
mod explain;
mod fetch;
mod flame;
mod folder;
mod group;
mod keeper;
mod metrics;
mod outcome;
mod progress;
mod reference;
mod run;
mod sample;
mod serve;
mod table;
mod verify;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let read = cli::Arguments::command().try_get_matches();
    let passed_over = read.as_ref().ok().and_then(cli::resume::passed_over);
    let arguments = match read.and_then(|matches| cli::Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are results and go to stdout; mistakes go to stderr.
            let _ = error.print();
            return if error.use_stderr() { outcome::USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    if let Some(option) = passed_over {
        eprintln!(
            "lab: --{option} is of a run's beginning, and the folder that --resume names has it: leave it out, or leave --resume out \
             to begin anew"
        );
        return outcome::USAGE.into();
    }
    let unbuilt = |what: &str| Err(outcome::Failure::Usage(format!("unsupported: `{what}` is not built yet")));
    let result = match arguments.command {
        cli::Command::Run { workload, plan } => match workload {
            Some(cli::Workload::Ibench(options)) => run::ibench(*options),
            Some(cli::Workload::Sysbench(options)) => run::sysbench(*options),
            Some(cli::Workload::Tpcc(options)) => run::tpcc(*options),
            None => run::plan::run_plan(&plan),
        },
        cli::Command::Report { runs, output, gallery } => browse::report(&runs, output.as_deref(), gallery.as_deref()),
        cli::Command::List { targets: true, .. } => browse::list_targets(),
        cli::Command::List { plans: true, .. } => browse::list_plans(),
        cli::Command::List { dir, .. } => browse::list(dir.as_deref()),
        cli::Command::Show { run, format } => browse::show(&run, format),
        cli::Command::Doctor { dir, strict } => doctor::doctor(&dir, strict),
        cli::Command::Compare(options) => compare::compare(&options),
        cli::Command::Flame(options) => flame::flame(&options),
        cli::Command::Explain(options) => explain::explain(&options),
        cli::Command::Completions { shell } => reference::completions(shell),
        cli::Command::Man => reference::man(),
        cli::Command::Reference => reference::print(),
        cli::Command::Endure(options) => endure::endure(&options),
        cli::Command::Serve(options) => serve::serve(&options),
        cli::Command::Replay(_) => unbuilt("lab replay"),
        cli::Command::Fetch(options) => fetch::fetch(&options),
        cli::Command::Verify { run } => verify::verify(&run),
        cli::Command::TpccChild { order } => run::crash_child(&order),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("lab: {failure}");
            failure.code().into()
        }
    }
}
