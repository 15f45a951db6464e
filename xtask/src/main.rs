//! The house's own commands, behind `make`: `check`, `test`, `tidy`, `fuzz`, `soak`.
//!
//! | module | owns |
//! |---|---|
//! | [`source`] | Rust text with comments and literals blanked; where tests and functions are |
//! | [`tree`] | the files of the checkout, the crates, which file is reached from where |
//! | [`tidy`] | the rules of the house that no compiler checks |
//! | [`parts`] | what `check` and `test` consist of |
//! | [`fuzz`] | the fuzz targets under libFuzzer |
//! | [`soak`] | the simulator and killed processes for a long time |
//! | [`run`] | running a part, its one line, counting its tests |
//! | [`watchdog`] | ending a part that hangs |

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "not part of the engine, never simulated")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod fuzz;
mod parts;
mod run;
mod soak;
mod source;
mod tidy;
mod tree;
mod watchdog;

const USAGE: &str = "\
usage: cargo run -p xtask -- COMMAND
  check            formatting, lints, tidy
  test [PART...]   check and every test; with names, only those parts
  tidy [DIR]       the rules of the house (of another directory: for tests)
  parts            the names of the parts of `test`
  fuzz SECONDS [TARGET...]   fuzz targets under libFuzzer, one after the other
  soak SECONDS     the simulator and killed processes in turns, with seeds never tried before";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let ok = match words.as_slice() {
        ["check"] => run::run(&root(), &parts::check()),
        ["test"] => run::run(&root(), &parts::test()),
        ["test", names @ ..] => run_named(names),
        ["tidy"] => tidy::report(&root()),
        ["tidy", dir] => tidy::report(Path::new(dir)),
        ["fuzz", seconds, names @ ..] if seconds.parse::<u64>().is_ok() => {
            fuzz::run(&root(), seconds.parse().unwrap_or(60), names)
        }
        ["soak", seconds] if seconds.parse::<u64>().is_ok() => soak::run(&root(), seconds.parse().unwrap_or(1800)),
        ["parts"] => {
            parts::test().iter().for_each(|p| println!("{}", p.name));
            true
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_named(names: &[&str]) -> bool {
    let parts: Vec<_> = parts::test().into_iter().filter(|p| names.contains(&p.name)).collect();
    if parts.len() != names.len() {
        eprintln!("unknown part; `cargo run -p xtask -- parts` lists them");
        return false;
    }
    run::run(&root(), &parts)
}

/// The checkout this program was built from.
fn root() -> PathBuf {
    let manifest =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest.parent().expect("xtask lies in the checkout").to_path_buf()
}
