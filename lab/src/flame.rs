//! `lab flame`: the flame graph of a step, or what changed from one run to another.

use std::path::Path;

use lab_report::flame::{Flame, drawn};

use crate::cli;
use crate::folder::{Folder, write_whole};
use crate::outcome::Failure;
use crate::sample::flames_of;

/// Runs the command.
pub fn flame(options: &cli::Flame) -> Result<(), Failure> {
    let first = chosen(&options.run, options.step.as_deref(), options.target.as_deref(), options.case)?;
    let svg = match &options.other {
        None => drawn(&title(&first), &first.stacks, None),
        Some(other) => {
            // The same step; the same target and case where the other run has them.
            let others = all_of(other)?;
            let has_it = others.iter().any(|flame| flame.target == first.target);
            let target = options.target.as_deref().or(has_it.then_some(first.target.as_str()));
            let same_case = others.iter().find(|flame| flame.case == first.case).map(|flame| flame.number);
            let second = chosen(other, Some(&first.step), target, same_case)?;
            let title = format!("{} -> {}", title(&first), title(&second));
            drawn(&title, &second.stacks, Some(&first.stacks))
        }
    };
    match &options.output {
        Some(path) => write_whole(path, &svg),
        None => {
            print!("{svg}");
            Ok(())
        }
    }
}

fn title(flame: &Flame) -> String {
    let case = if flame.case.is_empty() { String::new() } else { format!(", case {}: {}", flame.number, flame.case) };
    format!("{}, {}{case}", flame.step, flame.target)
}

fn all_of(run: &Path) -> Result<Vec<Flame>, Failure> {
    let (folder, record) = Folder::open(run)?;
    let all = flames_of(&folder.path, &record);
    match all.is_empty() {
        true => Err(Failure::Usage(format!("{} was not sampled: lab run … --sample", run.display()))),
        false => Ok(all),
    }
}

fn chosen(run: &Path, step: Option<&str>, target: Option<&str>, case: Option<usize>) -> Result<Flame, Failure> {
    let all = all_of(run)?;
    let fits = |flame: &&Flame| {
        step.is_none_or(|step| flame.step == step)
            && target.is_none_or(|target| flame.target == target)
            && case.is_none_or(|case| flame.number == case)
    };
    let mut found = all.iter().filter(fits);
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only.clone()),
        _ => {
            let names: Vec<String> = all.iter().map(title).collect();
            Err(Failure::Usage(format!(
                "{}: name one graph with --step, --target and --case; there are {}",
                run.display(),
                names.join("; ")
            )))
        }
    }
}
