//! `trefoil verify` and `trefoil rebuild`.

use std::io::Write;

use serde_json::json;
use trefoil::Corruption;

use crate::{Failure, Format, Opened};

fn in_json(damage: &Corruption) -> serde_json::Value {
    json!({
        "what": damage.what, "expected": damage.expected, "found": damage.found, "file": damage.file,
        "offset": damage.offset, "index": damage.index.map(|id| id.0), "keys": damage.key_range,
    })
}

/// Checks a database: one line a part of it, then what is wrong, if anything is.
pub(crate) fn run(database: &Opened, format: Format, out: &mut impl Write) -> Result<(), Failure> {
    let opened = database.open_to_read()?;
    let reports = opened.verify()?;
    let mut problems = 0;
    for (name, report) in &reports {
        problems += report.problems.len();
        let (entries, nodes) = (report.entries, report.nodes);
        match format {
            Format::Text => {
                let verdict = if report.problems.is_empty() { "ok" } else { "DAMAGED" };
                writeln!(out, "{name}: {verdict}, {entries} entries, {nodes} nodes")?;
                report.problems.iter().try_for_each(|problem| writeln!(out, "  {problem}"))?;
            }
            Format::Json => {
                let problems: Vec<_> = report.problems.iter().map(in_json).collect();
                let line = json!({"index": name, "entries": entries, "nodes": nodes, "problems": problems});
                writeln!(out, "{line}")?;
            }
        }
    }
    let path = database.path().display();
    if problems > 0 {
        let remedy = "rebuild damaged secondary indexes, restore what else is damaged from a backup";
        return Err(Failure::Damaged(format!("{problems} problems in {path}; {remedy}")));
    }
    let prepared = opened.stats().prepared;
    opened.close()?;
    if format == Format::Text {
        if prepared > 0 {
            writeln!(out, "{prepared} prepared transactions wait for their decision: trefoil prepared {path}")?;
        }
        writeln!(out, "{path}: ok, {} checks", reports.len())?;
    }
    Ok(())
}

/// Makes a secondary index anew.
pub(crate) fn rebuild(database: &Opened, name: &str, out: &mut impl Write) -> Result<(), Failure> {
    let opened = database.open()?;
    let mut known = Vec::new();
    for table in opened.names().1 {
        let table = opened.table(&table)?;
        for index in table.schema().indexes() {
            let full = format!("{}.{}", table.name(), index.name());
            if full == name {
                opened.rebuild_index(&table, index.name())?;
                opened.close()?;
                writeln!(out, "{}: {name} is rebuilt", database.path().display())?;
                return Ok(());
            }
            known.push(full);
        }
    }
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(Failure::Usage(format!("no secondary index {name:?}; there are: {known}")))
}
