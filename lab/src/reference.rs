//! What is made of the code itself: shell completions, the manual page, and the reference of plan keys, table numbers and
//! result keys (`lab/REFERENCE.md`, which a test holds against this).

use clap::CommandFactory;
use lab_measure::result::{Costs, LastQuarter, OfTransaction, Responses, Space, Steadiness, Throughput};
use lab_measure::study::NUMBERS;

use crate::cli::Arguments;
use crate::outcome::Failure;
use crate::run::plan::{CODES, keys, options};

/// `lab completions`.
pub fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    // The generator panics where it cannot write.
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "lab", &mut out);
    print!("{}", String::from_utf8_lossy(&out));
    Ok(())
}

/// `lab man`: one page, the commands' options behind it.
pub fn man() -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("cannot write the manual page: {error}"));
    let command = Arguments::command();
    let mut out = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut out).map_err(failed)?;
    for under in command.get_subcommands().filter(|under| !under.is_hide_set()) {
        subpage(under, &format!("lab {}", under.get_name()), &mut out).map_err(failed)?;
        for below in under.get_subcommands() {
            subpage(below, &format!("lab {} {}", under.get_name(), below.get_name()), &mut out).map_err(failed)?;
        }
    }
    print!("{}", String::from_utf8_lossy(&out));
    Ok(())
}

fn subpage(command: &clap::Command, name: &str, out: &mut Vec<u8>) -> std::io::Result<()> {
    use std::io::Write;
    writeln!(out, ".SH \"{}\"", name.to_uppercase())?;
    let man = clap_mangen::Man::new(command.clone().disable_help_flag(true));
    let mut options = Vec::new();
    man.render_synopsis_section(&mut options)?;
    man.render_description_section(&mut options)?;
    man.render_options_section(&mut options)?;
    // Sections of a command are subsections of the page.
    out.extend(String::from_utf8_lossy(&options).replace(".SH ", ".SS ").into_bytes());
    Ok(())
}

/// `lab reference`.
pub fn print() -> Result<(), Failure> {
    print!("{}", text());
    Ok(())
}

fn row(cells: &[&str]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// The reference, as Markdown.
fn text() -> String {
    let mut out = String::from(
        "# Reference: keys of plans, numbers of tables, keys of results\n\nMade by `lab reference`; a test holds it against the code.\n\n## A plan\n",
    );
    for (title, keys) in [
        ("At the top", keys::TOP),
        ("`[[target]]`", keys::TARGET),
        ("`[[config]]`", keys::CONFIG),
        ("`[config.FAMILY]`, one for each kind of target", keys::FAMILY),
        ("`[[run]]`, beside the options of its workload", keys::RUN),
        ("`[[table]]`", keys::TABLE),
    ] {
        out.push_str(&format!("\n### {title}\n\n| key | value | |\n|---|---|---|\n"));
        keys.iter().for_each(|(key, value, about)| out.push_str(&row(&[&format!("`{key}`"), value, about])));
    }
    for workload in options::WORKLOADS {
        out.push_str(&format!("\n### Options of {workload}\n\n| key | value | default | |\n|---|---|---|---|\n"));
        for key in options::keys_of(workload) {
            out.push_str(&row(&[&format!("`{}`", key.name), &key.value, &key.default, &key.about]));
        }
    }
    out.push_str("\n### Codes that `lab run PLAN` ends with\n\n| code | |\n|---|---|\n");
    CODES.iter().for_each(|(code, about)| out.push_str(&row(&[&code.to_string(), about])));
    out.push_str("\n## Numbers of `[[table]]`\n\nBeside these, every key of results.\n\n| number | |\n|---|---|\n");
    NUMBERS.iter().for_each(|(name, about, _)| out.push_str(&row(&[&format!("`{name}`"), about])));
    out.push_str("\n## Keys of results\n\nA missing key was not measured; it is never 0 for that reason.\n");
    for (title, keys) in [
        ("Rates", Throughput::ABOUT),
        ("Response times", Responses::ABOUT),
        ("Costs", Costs::ABOUT),
        ("Space", Space::ABOUT),
        ("Steadiness", Steadiness::ABOUT),
        ("The end of a load", LastQuarter::ABOUT),
        ("One kind of transaction, below `transactions`", OfTransaction::ABOUT),
    ] {
        out.push_str(&format!("\n### {title}\n\n| key | |\n|---|---|\n"));
        keys.iter().for_each(|(key, about)| out.push_str(&row(&[&format!("`{key}`"), about.trim()])));
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_document_is_what_the_code_says() {
        let kept = include_str!("../REFERENCE.md");
        assert_eq!(kept, super::text(), "lab/REFERENCE.md: cargo run -p lab -- reference > lab/REFERENCE.md");
    }
}
