// SPDX-License-Identifier: GPL-2.0-only
//! SQL for a differential test: the same statements for two engines, and the same has to come of them.
//!
//! `differential round SEED` writes one table of random columns and keys, statements that change it and queries of it.
//! `differential collations` writes for each collation the order and the equality of many texts. Standard input has a collation
//! and its character set on each line. What is written depends on these alone.
//!
//! An answer may hang on nothing but the rows and their collations: every list is in an order that leaves no choice, of values
//! that are equal the weight is shown.

mod chance;
mod column;
mod round;
mod sweep;

use std::io::{self, Write};
use std::process::ExitCode;

/// A collation and its character set.
struct Collation {
    name: String,
    charset: String,
}

fn collations() -> io::Result<Vec<Collation>> {
    let text = io::read_to_string(io::stdin())?;
    let pairs = text.lines().filter_map(|line| line.split_once('\t'));
    Ok(pairs.map(|(name, charset)| Collation { name: name.into(), charset: charset.into() }).collect())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let sql = match arguments[..] {
        ["round", seed] => collations().map(|all| round::round(seed.parse().unwrap_or(0), &all)),
        ["collations"] => collations().map(|all| sweep::sweep(&all)),
        _ => Err(io::Error::other("usage: differential round SEED | collations < COLLATIONS")),
    };
    match sql.and_then(|sql| io::stdout().write_all(sql.as_bytes())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
