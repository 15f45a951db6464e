//! Checking a whole database, while it is in use.
//!
//! | file | checks |
//! |---|---|
//! | `mod.rs` | each index by itself; one table |
//! | `files.rs` | header, manifest, run files, log; who names which block of the data file |
//! | `rows.rs` | rows, and secondary indexes against them, at one snapshot |
//!
//! One damage is one problem as far as can be told: what cannot be compared because a part of it cannot be read is not
//! compared.

mod files;
mod rows;

use base::Fault;
use index::VerifyReport;

use crate::database::Database;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::handle::Table;

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
        reports.extend(rows::table(&table.shape(), snapshot.ts(), &damaged, &|| true)?);
    }
    Ok(reports)
}

impl Database {
    /// Reads and checks one table, while readers and writers go on: each of its indexes by itself, as [`Database::verify`]
    /// does; and, if asked for, its rows and its secondary indexes against them, at one snapshot. `goes_on` is asked now and
    /// then; once it says no the check ends with [`Error::Cancelled`].
    ///
    /// # Errors
    /// Only what prevents the check itself; damage is in the reports.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// let reports = db.verify_table(&people, true, &|| true)?;
    /// assert!(reports.iter().all(|(_, report)| report.problems.is_empty()));
    /// let names: Vec<&str> = reports.iter().map(|(name, _)| name.as_str()).collect();
    /// assert_eq!(names, ["people.primary", "people.by_name", "people rows", "people.by_name against its rows"]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn verify_table(
        &self,
        table: &Table,
        against_rows: bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Vec<(String, VerifyReport)>> {
        let engine = self.engine();
        engine.check_open()?;
        let shape = table.0.shape();
        let (mut reports, mut damaged) = (Vec::new(), Vec::new());
        for entry in std::iter::once(&shape.primary).chain(&shape.secondaries) {
            if !goes_on() {
                return Err(Error::Cancelled);
            }
            let report = entry.index.verify()?;
            if !report.problems.is_empty() {
                damaged.push(entry.id());
            }
            reports.push((engine.index_name(entry), report));
        }
        if against_rows {
            let snapshot = engine.snapshots.take();
            reports.extend(rows::table(&shape, snapshot.ts(), &damaged, goes_on)?);
        }
        Ok(reports)
    }
}

/// Adds a corruption to a report; any other error comes back.
fn note(report: &mut VerifyReport, error: Error) -> Result<()> {
    match error {
        Error::Corrupt(corruption) => Ok(report.note(Fault::Corrupt(corruption))?),
        other => Err(other),
    }
}
