//! The options of a workload as keys of a plan: whatever `lab run WORKLOAD` takes, under the same names.
//!
//! A key is a long option, with `-` or `_` between its words; a list is several values, `true` a switch. What the
//! command line would refuse is refused here, with the line of the plan.

use clap::{ArgAction, Command, CommandFactory, Parser};

use super::near::did_you_mean;
use super::source::{Located, Section, Source, Value};
use crate::affinity;
use crate::cli::{Arguments, Workload};
use crate::outcome::Failure;

/// The workloads.
pub const WORKLOADS: [&str; 3] = ["ibench", "sysbench", "tpcc"];

/// Options that are not the plan's: what is measured, where results go, how they are shown.
const NOT_OF_A_PLAN: &[&str] = &[
    "target",
    "out",
    "resume",
    "keep",
    "format",
    "legacy-units",
    "quiet",
    "require-sla",
    "help",
    "version",
    "metrics",
    "sample",
];

/// An option of a workload.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its name as a key.
    pub name: String,
    /// What it is, as `--help` has it.
    pub about: String,
    /// Its value, as `--help` has it; empty for a switch.
    pub value: String,
    /// What it is unless told otherwise.
    pub default: String,
}

/// The keys of a workload.
pub fn keys_of(workload: &str) -> Vec<Key> {
    let command = Arguments::command();
    let found = command.find_subcommand("run").and_then(|run| run.find_subcommand(workload));
    found.map(keys).unwrap_or_default()
}

fn keys(command: &Command) -> Vec<Key> {
    let of_plan = |argument: &&clap::Arg| argument.get_long().is_some_and(|long| !NOT_OF_A_PLAN.contains(&long));
    let text = |words: Vec<String>| words.join(",");
    command
        .get_arguments()
        .filter(of_plan)
        .map(|argument| Key {
            name: argument.get_long().unwrap_or_default().replace('-', "_"),
            about: argument.get_help().map(ToString::to_string).unwrap_or_default(),
            value: match is_switch(argument) {
                true => "true|false".into(),
                false => text(argument.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect()),
            },
            default: match is_switch(argument) {
                true => String::new(),
                false => {
                    text(argument.get_default_values().iter().map(|it| it.to_string_lossy().into_owned()).collect())
                }
            },
        })
        .collect()
}

fn is_switch(argument: &clap::Arg) -> bool {
    matches!(argument.get_action(), ArgAction::SetTrue)
}

/// A plan is for many machines: numbers of processors that this one does not have are passed over. Of those that it
/// has none of, the command line says so.
fn had_here(words: Vec<String>) -> Vec<String> {
    let is_had = |word: &String| word.parse().map_or(true, |cores: usize| cores <= affinity::available());
    let had: Vec<String> = words.iter().filter(|word| is_had(word)).cloned().collect();
    if had.is_empty() { words } else { had }
}

/// Values by key: what comes later replaces what came before.
#[derive(Clone, Debug, Default)]
pub struct Given(Vec<(String, Located)>);

impl Given {
    /// Takes every option of any workload out of a section; those of other workloads are passed over, which is for
    /// sections that hold for several.
    pub fn take(&mut self, section: &mut Section, workload: &str) {
        let own: Vec<String> = keys_of(workload).into_iter().map(|key| key.name).collect();
        let all: Vec<String> = WORKLOADS.iter().flat_map(|name| keys_of(name)).map(|key| key.name).collect();
        let names: Vec<String> = section.keys.keys().cloned().collect();
        for written in names {
            let name = written.replace('-', "_");
            if !all.contains(&name) {
                continue;
            }
            let value = section.take(&written);
            if own.contains(&name) {
                self.0.retain(|(other, _)| *other != name);
                self.0.extend(value.map(|value| (name, value)));
            }
        }
    }

    /// As on the command line.
    pub fn arguments(&self, source: &Source) -> Result<Vec<String>, Failure> {
        let mut out = Vec::new();
        for (key, value) in &self.0 {
            let option = format!("--{}", key.replace('_', "-"));
            match &value.value {
                Value::Flag(false) => {}
                Value::Flag(true) => out.push(option),
                Value::Section(_) => {
                    return Err(source.mistake(value.at, format!("`{key}` is a value, not a section")));
                }
                Value::Word(_) | Value::List(_) => {
                    let mut words: Vec<String> = value.words(source, key)?.into_iter().map(|(_, word)| word).collect();
                    if key == "cores" {
                        words = had_here(words);
                    }
                    out.push(format!("{option}={}", words.join(",")));
                }
            }
        }
        Ok(out)
    }

    /// Where a key was given.
    pub fn place(&self, key: &str) -> Option<usize> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.at)
    }

    /// The words of a list, each with its place.
    pub fn words(&self, source: &Source, key: &str) -> Result<Vec<(usize, String)>, Failure> {
        match self.0.iter().find(|(name, _)| name == key) {
            Some((_, value)) => value.words(source, key),
            None => Ok(Vec::new()),
        }
    }

    /// Checks values by reading them as the command line does; a mistake has the line of its key.
    pub fn checked(&self, source: &Source, at: usize, workload: &str) -> Result<Workload, Failure> {
        self.check_steps(source, workload)?;
        parsed(workload, &self.arguments(source)?, &[]).map_err(|error| {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            let key = self.0.iter().find(|(key, _)| line.contains(&format!("--{}", key.replace('_', "-"))));
            let tip =
                text.lines().map(str::trim).find(|line| line.starts_with("tip:") || line.starts_with("[possible"));
            let line = format!("{line}{}", tip.map(|tip| format!("; {tip}")).unwrap_or_default());
            source.mistake(key.map_or(at, |(_, value)| value.at), line)
        })
    }

    /// Steps have names of their own, and a place each.
    fn check_steps(&self, source: &Source, workload: &str) -> Result<(), Failure> {
        let key = if workload == "sysbench" { "tests" } else { "steps" };
        for (at, word) in self.words(source, key)? {
            let known = known_steps(workload);
            let is_step = match workload {
                "ibench" => lab_workload::Step::parse(&word).is_ok(),
                "sysbench" => {
                    let spelled = lab_workload::sysbench::catalogue::spelled_out(std::slice::from_ref(&word));
                    spelled.iter().all(|name| lab_workload::sysbench::Step::parse(name).is_ok())
                }
                _ => known.contains(&word),
            };
            if !is_step {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                return Err(
                    source.mistake(at, format!("{workload} has no step `{word}`; {}", did_you_mean(&word, &known)))
                );
            }
        }
        Ok(())
    }
}

/// Names of the steps of a workload, for whoever mistypes one.
pub fn known_steps(workload: &str) -> Vec<String> {
    match workload {
        "ibench" => {
            let forms = lab_workload::Step::FORM_2023.into_iter().chain(lab_workload::Step::FORM_2017);
            forms.map(lab_workload::Step::name).collect()
        }
        "sysbench" => {
            use lab_workload::sysbench::catalogue::{OF_2017, TODAY, base_of};
            let mut names: Vec<String> =
                TODAY.iter().chain(OF_2017).flat_map(|name| [(*name).to_owned(), base_of(name).to_owned()]).collect();
            names.sort();
            names.dedup();
            names
        }
        _ => ["run", "snapshot", "crash"].map(String::from).into(),
    }
}

/// Options as the command line reads them.
pub fn parsed(workload: &str, options: &[String], more: &[String]) -> Result<Workload, clap::Error> {
    let line = ["lab", "run", workload].map(String::from).into_iter().chain(options.iter().cloned());
    let arguments = Arguments::try_parse_from(line.chain(more.iter().cloned()))?;
    match arguments.command {
        crate::cli::Command::Run { workload: Some(workload), .. } => Ok(workload),
        _ => unreachable!("the command line names a workload"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_that_this_machine_lacks_are_passed_over() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(had_here(words(&["1", "1000000"])), ["1"]);
        assert_eq!(had_here(words(&["1000000"])), ["1000000"], "the command line refuses it");
        assert_eq!(had_here(words(&["many"])), ["many"], "likewise");
    }
}
