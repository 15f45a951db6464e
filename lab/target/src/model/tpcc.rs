//! The tables of TPC-C as ordered maps: one transaction at a time, of all sessions together.
//!
//! Bugs that can be planted: `lose-update` (says that it changed a row of `customer`, once, and did not), `lose-entry`
//! (forgets one index entry), `flip-value` (stores one row with another number), `lose-delete` (one order stays in the
//! queue), `conflict` (now and then a change is refused and has to be run again), `panic`.

use std::collections::{BTreeMap, BTreeSet};

use super::turns::{Shared, Turns};
use super::{Parameters, Planted};
use crate::api::{Result, TargetError};
use crate::tpcc::{Cell, Key, Row, Session, Table, Tables};

/// Changes between two planted conflicts: more than a transaction has, or it would never come to its end.
const CONFLICT_EVERY: u64 = 300;

/// Invariant: `entries` holds exactly the index columns and the key of each row.
#[derive(Debug, Default)]
struct Stored {
    rows: BTreeMap<Key, Row>,
    entries: BTreeSet<Row>,
}

impl Stored {
    /// Puts a row, or none, in the place of what is there, which it returns.
    fn set(&mut self, table: Table, key: Key, row: Option<Row>) -> Option<Row> {
        let columns = table.definition().entry_columns();
        let entry = |row: &Row| columns.iter().map(|column| row[*column].clone()).collect::<Row>();
        let is_indexed = table.definition().index.is_some();
        let new = row.as_ref().filter(|_| is_indexed).map(entry);
        let old = match row {
            Some(row) => self.rows.insert(key, row),
            None => self.rows.remove(&key),
        };
        let before = old.as_ref().filter(|_| is_indexed).map(entry);
        if before != new {
            if let Some(entry) = before {
                self.entries.remove(&entry);
            }
            self.entries.extend(new);
        }
        old
    }
}

#[derive(Debug, Default)]
struct All {
    tables: BTreeMap<Table, Stored>,
    planted: bool,
}

impl All {
    fn table(&mut self, table: Table) -> &mut Stored {
        self.tables.entry(table).or_default()
    }

    /// Whether this bug is to be planted now, if it is the one: once.
    fn plants(&mut self, fault: Option<Planted>, this: Planted) -> bool {
        let now = !self.planted && fault == Some(this);
        self.planted |= now;
        now
    }
}

/// The tables of a run.
#[derive(Debug)]
pub(super) struct ModelTables(Shared<All>);

impl ModelTables {
    pub(super) fn new(parameters: Parameters) -> ModelTables {
        ModelTables(Shared::new(parameters))
    }
}

impl Tables for ModelTables {
    fn create(&self) -> Result<()> {
        Ok(())
    }

    fn attach(&self) -> Result<()> {
        Err(TargetError::Unsupported("model: what was in memory is gone".into()))
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(ModelConnection(self.0.turns())))
    }
}

struct ModelConnection<'a>(Turns<'a, All>);

impl ModelConnection<'_> {
    fn set(&mut self, all: &mut All, table: Table, key: Key, row: Option<Row>) {
        let old = all.table(table).set(table, key, row);
        self.0.note(move |all| {
            all.table(table).set(table, key, old);
        });
    }
}

/// Some columns of a row.
fn some<'r>(row: &'r Row, columns: &[usize]) -> Vec<Cell<'r>> {
    columns.iter().map(|column| row[*column].borrowed()).collect()
}

impl Session for ModelConnection<'_> {
    fn begin(&mut self, _only_reads: bool) -> Result<()> {
        self.0.begin()
    }

    fn commit(&mut self) -> Result<()> {
        self.0.end(false);
        Ok(())
    }

    fn rollback(&mut self) {
        self.0.end(true);
    }

    fn insert(&mut self, table: Table, rows: &[Row]) -> Result<()> {
        self.0.mischief();
        let (mut all, fault) = (self.0.alone(), self.0.fault);
        for row in rows {
            let key = table.definition().key_of(row);
            if all.table(table).rows.contains_key(&key) {
                return Err(TargetError::Failed(format!("model: {table:?} {key:?} exists")));
            }
            let mut row = row.clone();
            if table == Table::Stock && all.plants(fault, Planted::FlipValue) {
                row[crate::tpcc::stock::QUANTITY] = Cell::Number(1);
            }
            self.set(&mut all, table, key, Some(row));
        }
        Ok(())
    }

    fn get(
        &mut self,
        table: Table,
        keys: &[Key],
        columns: &[usize],
        found: &mut dyn FnMut(usize, &[Cell<'_>]),
    ) -> Result<usize> {
        let mut all = self.0.alone();
        let rows = &all.table(table).rows;
        let there = keys.iter().enumerate().filter_map(|(place, key)| Some((place, rows.get(key)?)));
        Ok(there.map(|(place, row)| found(place, &some(row, columns))).count())
    }

    fn update(&mut self, table: Table, key: Key, change: &mut dyn FnMut(&mut [Cell<'_>])) -> Result<bool> {
        self.0.may_conflict(CONFLICT_EVERY)?;
        let (mut all, fault) = (self.0.alone(), self.0.fault);
        let Some(mut row) = all.table(table).rows.get(&key).cloned() else { return Ok(false) };
        change(&mut row);
        if table == Table::Customer && all.plants(fault, Planted::LoseUpdate) {
            return Ok(true);
        }
        if table == Table::Stock && all.plants(fault, Planted::LoseEntry) {
            all.table(table).entries.pop_first();
        }
        self.set(&mut all, table, key, Some(row));
        Ok(true)
    }

    fn delete(&mut self, table: Table, key: Key) -> Result<bool> {
        self.0.may_conflict(CONFLICT_EVERY)?;
        let mut all = self.0.alone();
        let there = all.table(table).rows.contains_key(&key);
        if there {
            self.set(&mut all, table, key, None);
        }
        Ok(there)
    }

    fn take_first(&mut self, table: Table, prefix: &[i64]) -> Result<Option<Key>> {
        self.0.may_conflict(CONFLICT_EVERY)?;
        let (mut all, fault) = (self.0.alone(), self.0.fault);
        let low = crate::tpcc::key(prefix);
        let first = all.table(table).rows.range(low..).next().map(|(key, _)| *key);
        let first = first.filter(|key| key.starts_with(prefix));
        if let Some(key) = first
            && !all.plants(fault, Planted::LoseDelete)
        {
            self.set(&mut all, table, key, None);
        }
        Ok(first)
    }

    fn scan(
        &mut self,
        table: Table,
        (low, high): (&[i64], &[i64]),
        columns: &[usize],
        each: &mut dyn FnMut(&[Cell<'_>]),
    ) -> Result<()> {
        let mut last = [i64::MAX; 4];
        last[..high.len()].copy_from_slice(high);
        let mut all = self.0.alone();
        let rows = all.table(table).rows.range(crate::tpcc::key(low)..=last);
        rows.for_each(|(_, row)| each(&some(row, columns)));
        Ok(())
    }

    fn scan_index(&mut self, table: Table, prefix: &[Cell<'_>], each: &mut dyn FnMut(&[Cell<'_>])) -> Result<()> {
        let low: Row = prefix.iter().map(Cell::owned).collect();
        let mut all = self.0.alone();
        let entries = all.table(table).entries.range(low.clone()..);
        entries.take_while(|entry| entry.starts_with(&low)).for_each(|entry| each(entry));
        Ok(())
    }

    fn last_entry(&mut self, table: Table, prefix: &[Cell<'_>], found: &mut dyn FnMut(&[Cell<'_>])) -> Result<bool> {
        let mut last = None;
        self.scan_index(table, prefix, &mut |entry| last = Some(entry.iter().map(Cell::owned).collect::<Row>()))?;
        Ok(last.inspect(|entry| found(entry)).is_some())
    }
}
