//! Checking a whole database: each structure by itself, then rows against secondary indexes at a snapshot.
//!
//! The comparison is online: rows and entries are read at one snapshot and compared by count and by a sum of
//! hashes that does not depend on their order. Only if those differ are the entries looked up one by one, to
//! name the first that are wrong.

use std::ops::Bound::Unbounded;

use base::bytes::printable;
use base::checksum::crc32c_append;
use index::{Direction, EntryBatch, ReadAt, VerifyReport};

use crate::engine::Engine;
use crate::entry::{IndexEntry, TableShape};
use crate::error::Result;

/// Gets a key and a value.
type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

const PROBLEMS_MAX: usize = 100;

/// Checks every index and table.
pub fn verify(engine: &Engine) -> Result<Vec<(String, VerifyReport)>> {
    let mut reports = Vec::new();
    for entry in engine.all_indexes() {
        let name = engine.index_name(&entry);
        let report = entry
            .index
            .verify()
            .unwrap_or_else(|fault| VerifyReport { problems: vec![fault.to_string()], ..VerifyReport::default() });
        reports.push((name, report));
    }
    let tables: Vec<_> = engine.names.read().tables.values().cloned().collect();
    let snapshot = engine.snapshots.take();
    let at = ReadAt::Snapshot(snapshot.ts());
    for table in tables {
        let shape = table.shape();
        for n in 0..shape.secondaries.len() {
            if shape.secondaries[n].check_snapshot(at).is_err() {
                continue;
            }
            let name = format!("{}.{} against its rows", table.name, shape.secondaries[n].def.name);
            let report = compare(&shape, n, at)
                .unwrap_or_else(|error| VerifyReport { problems: vec![error.to_string()], ..VerifyReport::default() });
            reports.push((name, report));
        }
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
    fn add(&mut self, key: &[u8]) {
        // Two checksums of the same bytes from different starts: 64 bits, enough to find what is lost or
        // doubled; whoever forges entries has better ways.
        let hash = u128::from(crc32c_append(0, key)) << 32 | u128::from(crc32c_append(0x9e37_79b9, key));
        self.sum = self.sum.wrapping_add(hash * 0x2545_f491_4f6c_dd1d);
        self.count += 1;
    }
}

fn compare(shape: &TableShape, n: usize, at: ReadAt) -> Result<VerifyReport> {
    let (mut rows, mut entries) = (Digest::default(), Digest::default());
    let mut key = Vec::new();
    each(&shape.primary, at, &mut |pk, row| {
        shape.def.schema.secondary_key(n, pk, row, &mut key)?;
        rows.add(&key);
        Ok(())
    })?;
    each(&shape.secondaries[n], at, &mut |key, _| {
        entries.add(key);
        Ok(())
    })?;
    let mut report = VerifyReport { entries: entries.count, ..VerifyReport::default() };
    if rows != entries {
        report.problems.push(format!("{} rows, {} entries, or other entries", rows.count, entries.count));
        name_differences(shape, n, at, &mut report)?;
    }
    Ok(report)
}

/// Looks each entry up on the other side.
fn name_differences(shape: &TableShape, n: usize, at: ReadAt, report: &mut VerifyReport) -> Result<()> {
    let schema = &shape.def.schema;
    let (mut key, mut expected) = (Vec::new(), Vec::new());
    each(&shape.primary, at, &mut |pk, row| {
        schema.secondary_key(n, pk, row, &mut key)?;
        let mut there = false;
        shape.secondaries[n].index.get_many(at, &[&key], &mut |_, _, _| there = true)?;
        if !there && report.problems.len() < PROBLEMS_MAX {
            report.problems.push(format!("row {} has no entry {}", printable(pk), printable(&key)));
        }
        Ok(())
    })?;
    each(&shape.secondaries[n], at, &mut |entry, _| {
        let pk = schema.primary_key_of(n, entry)?;
        let mut row = None;
        shape.primary.index.get_many(at, &[pk], &mut |_, _, value| row = Some(value.to_vec()))?;
        let right = match &row {
            Some(row) => {
                schema.secondary_key(n, pk, row, &mut expected)?;
                expected == entry
            }
            None => false,
        };
        if !right && report.problems.len() < PROBLEMS_MAX {
            report.problems.push(format!("entry {} has no such row", printable(entry)));
        }
        Ok(())
    })
}

fn each(entry: &IndexEntry, at: ReadAt, visit: &mut Visit<'_>) -> Result<()> {
    let mut cursor = entry.index.cursor(at, (Unbounded, Unbounded), Direction::Forward);
    let mut batch = EntryBatch::new();
    loop {
        let more = cursor.fill(&mut batch, 1024)?;
        for i in 0..batch.len() {
            visit(batch.key(i), batch.value(i))?;
        }
        if !more {
            return Ok(());
        }
    }
}
