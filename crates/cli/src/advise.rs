//! `trefoil advise`.

use std::io::Write;

use serde_json::json;
use trefoil::{Advice, Amplification, Structure};

use crate::{Failure, Format, Opened};

/// Prints what each index costs, and of trees what the other structure would give: as far as a database that is not in use shows it.
pub(crate) fn run(database: &Opened, format: Format, out: &mut impl Write) -> Result<(), Failure> {
    let opened = database.open_to_read()?;
    let (all, damaged) = (opened.advise()?, opened.stats().quarantined);
    match format {
        Format::Text => {
            writeln!(
                out,
                "{:<32} {:<8} {:>7} {:>7} {:>7}   {:<8} {:>7} {:>7} {:>7}   advice",
                "index", "is", "writes", "reads", "space", "as", "writes", "reads", "space"
            )?;
            for advice in &all {
                writeln!(
                    out,
                    "{:<32} {:<8} {}   {:<8} {}   {}",
                    advice.index,
                    name(advice.structure),
                    numbers(&advice.measured),
                    other(advice).unwrap_or("-"),
                    numbers(&advice.predicted),
                    advice.verdict()
                )?;
            }
            for index in damaged {
                writeln!(out, "{index:<32} is damaged and set aside: trefoil rebuild")?;
            }
            writeln!(
                out,
                "\nWrites and reads are counted while a program has the database open, and are asked for there: Database::advise.\n\
                 Nothing was changed. lsm is compared with nothing, and an index whose versions expire could be nothing else."
            )?;
        }
        Format::Json => {
            let of_index = |advice: &Advice| {
                json!({
                    "index": advice.index, "structure": name(advice.structure), "other": other(advice),
                    "changes": advice.changes, "point_reads": advice.point_reads,
                    "measured": object(&advice.measured), "predicted": object(&advice.predicted),
                    "error": Advice::ERROR, "verdict": advice.verdict(), "notes": advice.notes,
                })
            };
            let all = json!({ "indexes": all.iter().map(of_index).collect::<Vec<_>>(), "quarantined": damaged });
            writeln!(out, "{all:#}")?;
        }
    }
    Ok(opened.close()?)
}

fn numbers(of: &Amplification) -> String {
    let number = |n: Option<f64>| n.map_or("-".to_owned(), |n| format!("{n:.2}"));
    format!("{:>7} {:>7} {:>7}", number(of.write), number(of.read), number(of.space))
}

fn object(of: &Amplification) -> serde_json::Value {
    json!({ "write": of.write, "read": of.read, "space": of.space })
}

/// What it is compared with.
fn other(advice: &Advice) -> Option<&'static str> {
    (advice.other != advice.structure).then(|| name(advice.other))
}

fn name(structure: Structure) -> &'static str {
    match structure {
        Structure::Auto | Structure::Btree => "btree",
        Structure::Betree => "betree",
        Structure::Lsm => "lsm",
    }
}
