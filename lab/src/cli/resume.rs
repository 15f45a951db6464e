//! What may stand beside `--resume`: how a run is shown and where it works. What it does was said when it began.

use clap::ArgMatches;
use clap::parser::ValueSource;

/// Options of a workload that a run under way may be given anew. `target` has to be the one of the run: its password is in no folder.
const ALLOWED: &[&str] =
    &["target", "dir", "keep", "metrics", "sample", "format", "legacy-units", "quiet", "require-sla", "resume"];

/// The first option that would be passed over, by its name on the command line.
pub fn passed_over(matches: &ArgMatches) -> Option<String> {
    let (name, run) = matches.subcommand()?;
    let (_, workload) = run.subcommand().filter(|_| name == "run")?;
    let was_given = |id: &str| workload.value_source(id) == Some(ValueSource::CommandLine);
    if !was_given("resume") {
        return None;
    }
    // Names of fields are those of options, but for that of the targets, which may be several.
    let long = |id: &clap::Id| id.as_str().replace('_', "-");
    let ids = workload.ids().filter(|id| was_given(id.as_str()) && id.as_str() != "targets");
    // Groups of options (all of a workload, those of every one) are no options.
    let mut names = ids.filter(|id| id.as_str().starts_with(|first: char| first.is_lowercase())).map(long);
    names.find(|name| !ALLOWED.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Arguments;
    use clap::CommandFactory;

    fn of(line: &str) -> Option<String> {
        passed_over(&Arguments::command().try_get_matches_from(line.split_whitespace()).unwrap())
    }

    #[test]
    fn what_a_run_was_begun_with_cannot_be_given_beside_resume() {
        for line in [
            "lab run ibench --rows 1k",
            "lab run ibench --resume run",
            "lab run ibench --resume run --quiet --keep --format json --dir x --metrics y --target trefoil --require-sla",
            "lab run plan.toml --resume run",
            "lab list",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
        for (line, name) in [
            ("lab run ibench --resume run --rows 1m", "rows"),
            ("lab run ibench --rows-i1 1m --resume run", "rows-i1"),
            ("lab run sysbench --resume run --tests insert", "tests"),
            ("lab run tpcc --resume run --quiet --warehouses 1", "warehouses"),
            ("lab run ibench --resume run --durability write", "durability"),
        ] {
            assert_eq!(of(line).as_deref(), Some(name), "{line}");
        }
    }
}
