//! Rows, and the entries of secondary indexes against them, online at one snapshot.
//!
//! Rows and entries are compared by count and by a sum of hashes that does not depend on their order. Only if those
//! differ are the entries looked up one by one, to name those that are wrong.

use std::ops::Bound::Unbounded;

use base::bytes::printable;
use base::checksum::crc32c_append;
use base::{CommitTs, Corruption, IndexId};
use index::{Direction, EntryBatch, ReadAt, VerifyReport};

use crate::entry::{IndexEntry, TableShape};
use crate::error::{Error, Result};
use crate::table::Schema;

/// Gets a key and a value.
type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// Checks the rows of a table, and each secondary index against them: reports, each with the index that it is about. Indexes that
/// are `damaged` are left out, and those whose keys cannot be made for want of a collation.
pub(super) fn table(
    shape: &TableShape,
    snapshot: CommitTs,
    damaged: &[IndexId],
    goes_on: &dyn Fn() -> bool,
) -> Result<Vec<(IndexId, String, VerifyReport)>> {
    let at = ReadAt::Snapshot(snapshot);
    if damaged.contains(&shape.primary.id()) {
        return Ok(Vec::new());
    }
    let usable = |n: &usize| {
        let entry = &shape.secondaries[*n];
        let makes_keys = shape.def.schema.makes_keys_of(*n);
        makes_keys && entry.check_snapshot(at).is_ok() && !damaged.contains(&entry.id())
    };
    let secondaries: Vec<usize> = (0..shape.secondaries.len()).filter(usable).collect();
    let (rows, sums) = rows(shape, &secondaries, at, goes_on)?;
    let mut reports = vec![(shape.primary.id(), format!("{} rows", shape.def.name), rows)];
    for (n, sum) in secondaries.into_iter().zip(sums) {
        let index = &shape.secondaries[n];
        let name = format!("{}.{} against its rows", shape.def.name, index.name());
        reports.push((index.id(), name, entries(shape, n, at, &sum, goes_on)?));
    }
    Ok(reports)
}

/// Count and order-independent sum of entries.
#[derive(Default, PartialEq, Eq)]
struct Digest {
    count: u64,
    sum: u128,
}

impl Digest {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        // Two checksums of the same bytes from different starts: 64 bits, enough to find what is lost or
        // doubled; whoever forges entries has better ways.
        let crc = |start| crc32c_append(crc32c_append(crc32c_append(start, key), &[0]), value);
        let hash = u128::from(crc(0)) << 32 | u128::from(crc(0x9e37_79b9));
        self.sum = self.sum.wrapping_add(hash * 0x2545_f491_4f6c_dd1d);
        self.count += 1;
    }
}

/// Every row can be read; what entries the rows ask for in each of these indexes.
fn rows(
    shape: &TableShape,
    secondaries: &[usize],
    at: ReadAt,
    goes_on: &dyn Fn() -> bool,
) -> Result<(VerifyReport, Vec<Digest>)> {
    let schema = &shape.def.schema;
    let mut report = VerifyReport::default();
    let mut sums: Vec<Digest> = secondaries.iter().map(|_| Digest::default()).collect();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    each(&shape.primary, at, goes_on, &mut |pk, row| {
        report.entries += 1;
        if let Err(fault) = schema.decode_row(pk, row) {
            report.add(|| wrong(&shape.primary, pk, "row", "values of its columns", fault.to_string()));
            return Ok(());
        }
        for (n, sum) in secondaries.iter().zip(&mut sums) {
            schema.secondary_key(*n, pk, row, &mut key)?;
            schema.secondary_value(*n, pk, row, &mut value)?;
            sum.add(&key, &value);
        }
        Ok(())
    })?;
    Ok((report, sums))
}

/// The entries of one index against the sum of what the rows ask for.
fn entries(
    shape: &TableShape,
    n: usize,
    at: ReadAt,
    rows: &Digest,
    goes_on: &dyn Fn() -> bool,
) -> Result<VerifyReport> {
    let index = &shape.secondaries[n];
    let mut report = VerifyReport::default();
    let schema = &shape.def.schema;
    let mut sum = Digest::default();
    // The entry before.
    let mut last = Vec::new();
    each(index, at, goes_on, &mut |key, value| {
        sum.add(key, value);
        if let Some(doubled) = doubled(schema, n, &last, key) {
            report.add(|| wrong(index, key, "value of a unique index", "one row with it", doubled));
        }
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    })?;
    report.entries = sum.count;
    if sum != *rows {
        name_differences(shape, n, at, goes_on, &mut report)?;
    }
    Ok(report)
}

/// If two entries of a unique index that follow each other have one value: the rows.
fn doubled(schema: &Schema, n: usize, last: &[u8], entry: &[u8]) -> Option<String> {
    // What is malformed is no row's entry, and named for that.
    let value = schema.unique_value(n, entry).ok()??;
    if schema.unique_value(n, last).ok()?? != value {
        return None;
    }
    let row = |entry: &[u8]| printable(&entry[value.len()..]);
    Some(format!("rows {} and {}", row(last), row(entry)))
}

/// Looks each entry up on the other side. Rows that cannot be read are not asked: they were named before.
fn name_differences(
    shape: &TableShape,
    n: usize,
    at: ReadAt,
    goes_on: &dyn Fn() -> bool,
    report: &mut VerifyReport,
) -> Result<()> {
    let (schema, index) = (&shape.def.schema, &shape.secondaries[n]);
    let [mut key, mut expected, mut beside] = [const { Vec::new() }; 3];
    each(&shape.primary, at, goes_on, &mut |pk, row| {
        if schema.decode_row(pk, row).is_err() {
            return Ok(());
        }
        schema.secondary_key(n, pk, row, &mut key)?;
        let mut there = false;
        index.index.get_many(at, &[&key], &mut |_, _, _| there = true)?;
        if !there {
            let of_row = format!("one for the row {}", printable(pk));
            report.add(|| wrong(index, &key, "missing index entry", &of_row, "none"));
        }
        Ok(())
    })?;
    each(index, at, goes_on, &mut |entry, value| {
        let pk = match schema.primary_key_of(n, entry) {
            Ok(pk) => pk,
            Err(fault) => {
                report.add(|| wrong(index, entry, "index entry", "columns and a primary key", fault.to_string()));
                return Ok(());
            }
        };
        let mut row = None;
        shape.primary.index.get_many(at, &[pk], &mut |_, _, value| row = Some(value.to_vec()))?;
        let found = match &row {
            None => "no row".to_owned(),
            Some(row) if schema.decode_row(pk, row).is_err() => return Ok(()),
            Some(row) => {
                schema.secondary_key(n, pk, row, &mut expected)?;
                schema.secondary_value(n, pk, row, &mut beside)?;
                if expected == entry && beside == value {
                    return Ok(());
                }
                if expected == entry {
                    let of_row = printable(&beside);
                    report.add(|| wrong(index, entry, "value of an index entry", &of_row, printable(value)));
                    return Ok(());
                }
                format!("a row of other values: {}", printable(&expected))
            }
        };
        let says = format!("a row {} with these values", printable(pk));
        report.add(|| wrong(index, entry, "index entry without its row", &says, found));
        Ok(())
    })
}

fn wrong(
    entry: &IndexEntry,
    key: &[u8],
    what: &'static str,
    expected: &str,
    found: impl std::fmt::Display,
) -> Corruption {
    Corruption::of_index(entry.id(), printable(key), what, expected, found)
}

fn each(entry: &IndexEntry, at: ReadAt, goes_on: &dyn Fn() -> bool, visit: &mut Visit<'_>) -> Result<()> {
    let mut cursor = entry.index.cursor(at, (Unbounded, Unbounded), Direction::Forward);
    let mut batch = EntryBatch::new();
    loop {
        if !goes_on() {
            return Err(Error::Cancelled);
        }
        let more = cursor.fill(&mut batch, 1024).map_err(Error::from)?;
        for i in 0..batch.len() {
            visit(batch.key(i), batch.value(i))?;
        }
        if !more {
            return Ok(());
        }
    }
}
