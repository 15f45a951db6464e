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

use base::{Fault, IndexId};
use index::VerifyReport;

use crate::database::Database;
use crate::engine::Engine;
use crate::entry::TableShape;
use crate::error::{Error, Result};
use crate::handle::Table;

/// Checks the files, every index and table.
pub fn verify(engine: &Engine) -> Result<Vec<(String, VerifyReport)>> {
    let mut reports = vec![files::files(engine)?];
    let mut damaged = Vec::new();
    for entry in engine.shown_indexes() {
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
        let found = rows::table(&table.shape(), snapshot.ts(), &damaged, &|| true)?;
        reports.extend(found.into_iter().map(|(_, name, report)| (name, report)));
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
        let reports = verified(self.engine(), &table.0.shape(), against_rows, goes_on)?;
        Ok(reports.into_iter().map(|(_, name, report)| (name, report)).collect())
    }

    /// Checks a table as [`Database::verify_table`] does, and makes each secondary index anew that is set aside, that is
    /// damaged, or that does not agree with its rows, as [`Database::rebuild_index`] does. Returns their names. Nothing is
    /// done if all are sound.
    ///
    /// # Errors
    /// `Damaged` or `Corrupt` if the rows are, from which nothing can be made anew: before anything is changed. As
    /// [`Database::rebuild_index`]; those that were made before the error stay.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// for index in db.repair_table(&people, true, &|| true)? {
    ///     println!("people.{index} is made anew");
    /// }
    /// assert!(db.verify_table(&people, true, &|| true)?.iter().all(|(_, report)| report.problems.is_empty()));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn repair_table(&self, table: &Table, against_rows: bool, goes_on: &dyn Fn() -> bool) -> Result<Vec<String>> {
        let engine = self.engine();
        let shape = table.0.shape();
        let (mut rows, mut secondaries) = (None, Vec::new());
        for (id, _, report) in verified(engine, &shape, against_rows, goes_on)? {
            let Some(problem) = report.problems.into_iter().next() else { continue };
            match shape.secondaries.iter().find(|entry| entry.id() == id) {
                Some(entry) => secondaries.push(entry.name().to_owned()),
                None => rows = rows.or(Some(problem)),
            }
        }
        if let Some(problem) = rows {
            return Err(Error::Corrupt(Box::new(problem)));
        }
        secondaries.iter().try_for_each(|name| self.rebuild_index(table, name))?;
        Ok(secondaries)
    }
}

/// The reports of a table, each with the index that it is about.
fn verified(
    engine: &Engine,
    shape: &TableShape,
    against_rows: bool,
    goes_on: &dyn Fn() -> bool,
) -> Result<Vec<(IndexId, String, VerifyReport)>> {
    engine.check_open()?;
    let (mut reports, mut damaged) = (Vec::new(), Vec::new());
    for entry in std::iter::once(&shape.primary).chain(&shape.secondaries) {
        if !goes_on() {
            return Err(Error::Cancelled);
        }
        let report = entry.index.verify()?;
        if !report.problems.is_empty() {
            damaged.push(entry.id());
        }
        reports.push((entry.id(), engine.index_name(entry), report));
    }
    if against_rows {
        let snapshot = engine.snapshots.take();
        reports.extend(rows::table(shape, snapshot.ts(), &damaged, goes_on)?);
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
