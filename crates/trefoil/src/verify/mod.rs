//! Checking a whole database, while it is in use.
//!
//! | file | checks |
//! |---|---|
//! | `mod.rs` | each index by itself |
//! | `files.rs` | header, manifest, run files, log; who names which block of the data file |
//! | `rows.rs` | rows, and secondary indexes against them, at one snapshot |
//!
//! One damage is one problem as far as can be told: what cannot be compared because a part of it cannot be read is not
//! compared.

mod files;
mod rows;

use base::Fault;
use index::VerifyReport;

use crate::engine::Engine;
use crate::error::{Error, Result};

/// Checks the files, every index and table.
pub fn verify(engine: &Engine) -> Result<Vec<(String, VerifyReport)>> {
    let mut reports = vec![files::files(engine)?];
    let mut damaged = Vec::new();
    for entry in engine.all_indexes() {
        let report = entry.index.verify()?;
        if !report.problems.is_empty() {
            damaged.push(entry.id());
        }
        reports.push((engine.index_name(&entry), report));
    }
    reports.push(files::space(engine, damaged.is_empty())?);
    let tables: Vec<_> = engine.names.read().tables.values().cloned().collect();
    let snapshot = engine.snapshots.take();
    for table in tables {
        reports.extend(rows::table(&table.shape(), snapshot.ts(), &damaged)?);
    }
    Ok(reports)
}

/// Adds a corruption to a report; any other error comes back.
fn note(report: &mut VerifyReport, error: Error) -> Result<()> {
    match error {
        Error::Corrupt(corruption) => Ok(report.note(Fault::Corrupt(corruption))?),
        other => Err(other),
    }
}
