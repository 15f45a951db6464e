//! The tables of TPC-C as ordered maps: one transaction at a time, of all sessions together.
//!
//! What a transaction changes it notes, so that a rollback can put it back. Bugs that can be planted: `lose-update` (says
//! that it changed a row of `customer`, once, and did not), `lose-entry` (forgets one index entry), `flip-value` (stores
//! one row with another number), `lose-delete` (one order stays in the queue), `conflict` (now and then a
//! change is refused and has to be run again), `panic`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard};

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
struct State {
    tables: BTreeMap<Table, Stored>,
    /// Whether somebody is in a transaction.
    taken: bool,
    planted: bool,
}

impl State {
    fn table(&mut self, table: Table) -> &mut Stored {
        self.tables.entry(table).or_default()
    }

    /// Whether the bug is to be planted now: once.
    fn plants(&mut self, parameters: Parameters, fault: Planted) -> bool {
        let now = !self.planted && parameters.fault == Some(fault);
        self.planted |= now;
        now
    }
}

/// The tables of a run.
#[derive(Debug)]
pub(super) struct ModelTables {
    parameters: Parameters,
    state: Mutex<State>,
    /// `taken` was cleared.
    free: Condvar,
}

impl ModelTables {
    pub(super) fn new(parameters: Parameters) -> ModelTables {
        ModelTables { parameters, state: Mutex::default(), free: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the tables")
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
        Ok(Box::new(ModelConnection { all: self, inside: false, undo: Vec::new(), changes: 0 }))
    }
}

struct ModelConnection<'a> {
    all: &'a ModelTables,
    /// In a transaction that was begun.
    inside: bool,
    /// What the transaction replaced: table, key, the row before.
    undo: Vec<(Table, Key, Option<Row>)>,
    changes: u64,
}

impl ModelConnection<'_> {
    fn mischief(&mut self) {
        self.changes += 1;
        let parameters = self.all.parameters;
        let is_tenth = self.changes.is_multiple_of(10);
        assert!(parameters.fault != Some(Planted::Panic) || !is_tenth, "planted");
        if !parameters.pause.is_zero() && self.changes.is_multiple_of(parameters.pause_every) {
            std::thread::sleep(parameters.pause);
        }
    }

    fn conflict(&mut self) -> Result<()> {
        self.mischief();
        if self.all.parameters.fault == Some(Planted::Conflict) && self.changes.is_multiple_of(CONFLICT_EVERY) {
            return Err(TargetError::Retry("model: planted conflict".into()));
        }
        Ok(())
    }

    fn set(&mut self, state: &mut State, table: Table, key: Key, row: Option<Row>) {
        let old = state.table(table).set(table, key, row);
        self.undo.push((table, key, old));
    }

    fn end(&mut self, put_back: bool) {
        if !self.inside {
            return;
        }
        let undo = std::mem::take(&mut self.undo);
        let mut state = self.all.state();
        for (table, key, old) in undo.into_iter().rev().filter(|_| put_back) {
            state.table(table).set(table, key, old);
        }
        state.taken = false;
        drop(state);
        self.inside = false;
        self.all.free.notify_all();
    }
}

impl Drop for ModelConnection<'_> {
    fn drop(&mut self) {
        // A thread that panicked in a transaction lets the others go on to their end.
        if !self.all.state.is_poisoned() {
            self.end(true);
        }
    }
}

/// Some columns of a row.
fn some<'r>(row: &'r Row, columns: &[usize]) -> Vec<Cell<'r>> {
    columns.iter().map(|column| row[*column].borrowed()).collect()
}

impl Session for ModelConnection<'_> {
    fn begin(&mut self, _only_reads: bool) -> Result<()> {
        if self.inside {
            return Err(TargetError::Failed("model: a transaction was begun already".into()));
        }
        let state = self.all.state();
        let free = self.all.free.wait_while(state, |state| state.taken);
        free.expect("no thread panics while it holds the tables").taken = true;
        self.inside = true;
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.end(false);
        Ok(())
    }

    fn rollback(&mut self) {
        self.end(true);
    }

    fn insert(&mut self, table: Table, rows: &[Row]) -> Result<()> {
        self.mischief();
        let all = self.all;
        let mut state = all.state();
        for row in rows {
            let key = table.definition().key_of(row);
            if state.table(table).rows.contains_key(&key) {
                return Err(TargetError::Failed(format!("model: {table:?} {key:?} exists")));
            }
            let mut row = row.clone();
            if table == Table::Stock && state.plants(all.parameters, Planted::FlipValue) {
                row[crate::tpcc::stock::QUANTITY] = Cell::Number(1);
            }
            self.set(&mut state, table, key, Some(row));
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
        let mut state = self.all.state();
        let rows = &state.table(table).rows;
        let there = keys.iter().enumerate().filter_map(|(place, key)| Some((place, rows.get(key)?)));
        Ok(there.map(|(place, row)| found(place, &some(row, columns))).count())
    }

    fn update(&mut self, table: Table, key: Key, change: &mut dyn FnMut(&mut [Cell<'_>])) -> Result<bool> {
        self.conflict()?;
        let all = self.all;
        let mut state = all.state();
        let Some(mut row) = state.table(table).rows.get(&key).cloned() else { return Ok(false) };
        change(&mut row);
        if table == Table::Customer && state.plants(all.parameters, Planted::LoseUpdate) {
            return Ok(true);
        }
        if table == Table::Stock && state.plants(all.parameters, Planted::LoseEntry) {
            state.table(table).entries.pop_first();
        }
        self.set(&mut state, table, key, Some(row));
        Ok(true)
    }

    fn delete(&mut self, table: Table, key: Key) -> Result<bool> {
        self.conflict()?;
        let all = self.all;
        let mut state = all.state();
        let there = state.table(table).rows.contains_key(&key);
        if there {
            self.set(&mut state, table, key, None);
        }
        Ok(there)
    }

    fn take_first(&mut self, table: Table, prefix: &[i64]) -> Result<Option<Key>> {
        self.conflict()?;
        let all = self.all;
        let mut state = all.state();
        let low = crate::tpcc::key(prefix);
        let first = state.table(table).rows.range(low..).next().map(|(key, _)| *key);
        let first = first.filter(|key| key.starts_with(prefix));
        if let Some(key) = first
            && !state.plants(all.parameters, Planted::LoseDelete)
        {
            self.set(&mut state, table, key, None);
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
        let mut state = self.all.state();
        let rows = state.table(table).rows.range(crate::tpcc::key(low)..=last);
        rows.for_each(|(_, row)| each(&some(row, columns)));
        Ok(())
    }

    fn scan_index(&mut self, table: Table, prefix: &[Cell<'_>], each: &mut dyn FnMut(&[Cell<'_>])) -> Result<()> {
        let low: Row = prefix.iter().map(Cell::owned).collect();
        let mut state = self.all.state();
        let entries = state.table(table).entries.range(low.clone()..);
        entries.take_while(|entry| entry.starts_with(&low)).for_each(|entry| each(entry));
        Ok(())
    }

    fn last_entry(&mut self, table: Table, prefix: &[Cell<'_>], found: &mut dyn FnMut(&[Cell<'_>])) -> Result<bool> {
        let mut last = None;
        self.scan_index(table, prefix, &mut |entry| last = Some(entry.iter().map(Cell::owned).collect::<Row>()))?;
        Ok(last.inspect(|entry| found(entry)).is_some())
    }
}
