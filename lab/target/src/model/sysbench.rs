//! The tables of sysbench as ordered maps: one transaction at a time, of all sessions together.
//!
//! Bugs that can be planted: those of [`Planted`] that fit, and `lose-update` (says that it raised `k`, and did not),
//! `short-range` (leaves out the last row of a range), `conflict` (every tenth write is refused and has to be run again).

use std::collections::{BTreeMap, BTreeSet};

use super::turns::{Shared, Turns};
use super::{Parameters, Planted};
use crate::api::{Result, TargetError};
use crate::sysbench::{C_BYTES, Found, On, Row, Select, Session, Tables};

/// Writes between two planted conflicts.
const CONFLICT_EVERY: u64 = 10;

/// Invariant: once `indexed`, `index` holds exactly (k, id) of each row.
#[derive(Debug, Default)]
struct Table {
    rows: BTreeMap<i32, Row>,
    index: BTreeSet<(i32, i32)>,
    indexed: bool,
    planted: bool,
}

impl Table {
    /// A new row as it is kept.
    fn kept(&mut self, row: &Row, fault: Option<Planted>) -> Row {
        let mut row = row.clone();
        if !self.planted && fault == Some(Planted::FlipValue) {
            self.planted = true;
            row.k ^= 1;
        }
        row
    }

    /// Puts a row, or none, in the place of what is there, which it returns.
    fn set(&mut self, id: i32, row: Option<Row>) -> Option<Row> {
        if self.indexed {
            self.index.extend(row.iter().map(|row| (row.k, id)));
        }
        let old = match row {
            Some(row) => self.rows.insert(id, row),
            None => self.rows.remove(&id),
        };
        if let Some(old) = &old
            && self.rows.get(&id).is_none_or(|row| row.k != old.k)
        {
            self.index.remove(&(old.k, id));
        }
        old
    }
}

/// The tables of a run.
#[derive(Debug)]
pub(super) struct ModelTables(Shared<Vec<Table>>);

impl ModelTables {
    pub(super) fn new(parameters: Parameters) -> ModelTables {
        ModelTables(Shared::new(parameters))
    }
}

impl Tables for ModelTables {
    fn create_table(&self, table: u32) -> Result<()> {
        let mut tables = self.0.tables();
        let count = tables.len().max(table as usize + 1);
        tables.resize_with(count, Table::default);
        Ok(())
    }

    fn create_index(&self, table: u32) -> Result<()> {
        let mut tables = self.0.tables();
        let table = &mut tables[table as usize];
        table.indexed = true;
        table.index = table.rows.values().map(|row| (row.k, row.id)).collect();
        Ok(())
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(ModelConnection(self.0.turns())))
    }
}

struct ModelConnection<'a>(Turns<'a, Vec<Table>>);

impl ModelConnection<'_> {
    /// Runs a write: the row that shall be in the place of the one that is there.
    fn change<R>(
        &mut self,
        table: u32,
        id: i32,
        run: impl FnOnce(&mut Table) -> (R, Option<Option<Row>>),
    ) -> Result<R> {
        self.0.may_conflict(CONFLICT_EVERY)?;
        let (place, mut tables) = (table as usize, self.0.alone());
        let (result, new) = run(&mut tables[place]);
        if let Some(row) = new {
            let old = tables[place].set(id, row);
            self.0.note(move |tables| {
                tables[place].set(id, old);
            });
        }
        Ok(result)
    }
}

fn found(row: &Row, on: On, select: Select, each: &mut dyn FnMut(Found<'_>)) {
    let key = if on == On::Id { row.id } else { row.k };
    match select {
        Select::Key => each(Found { number: key, c: &[] }),
        Select::K => each(Found { number: row.k, c: &[] }),
        Select::C | Select::KeyAndC => each(Found { number: key, c: &row.c }),
    }
}

/// Rows whose `on` is from one number to another.
fn rows_between(table: &Table, on: On, from: i32, to: i32) -> Vec<&Row> {
    match on {
        On::Id => table.rows.range(from..=to).map(|(_, row)| row).collect(),
        On::K => {
            table.index.range((from, i32::MIN)..=(to, i32::MAX)).filter_map(|(_, id)| table.rows.get(id)).collect()
        }
    }
}

impl Session for ModelConnection<'_> {
    fn begin(&mut self) -> Result<()> {
        self.0.mischief();
        self.0.begin()
    }

    fn commit(&mut self) -> Result<()> {
        self.0.end(false);
        Ok(())
    }

    fn rollback(&mut self) {
        self.0.end(true);
    }

    fn load(&mut self, table: u32, rows: &[Row]) -> Result<()> {
        self.0.mischief();
        let fault = self.0.fault;
        let mut tables = self.0.alone();
        let table = &mut tables[table as usize];
        for row in rows {
            let row = table.kept(row, fault);
            table.set(row.id, Some(row));
        }
        Ok(())
    }

    fn point(&mut self, table: u32, id: i32, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.0.mischief();
        let behind = i32::from(self.0.fault == Some(Planted::WrongGet));
        let tables = self.0.alone();
        let row = tables[table as usize].rows.get(&(id + behind));
        row.inspect(|row| found(&row.c));
        Ok(row.is_some())
    }

    fn between(
        &mut self,
        table: u32,
        on: On,
        from: i32,
        to: i32,
        select: Select,
        each: &mut dyn FnMut(Found<'_>),
    ) -> Result<()> {
        self.0.mischief();
        let left_out = usize::from(self.0.fault == Some(Planted::ShortRange));
        let tables = self.0.alone();
        let rows = rows_between(&tables[table as usize], on, from, to);
        for row in &rows[..rows.len().saturating_sub(left_out)] {
            match select {
                Select::C => each(Found { number: 0, c: &row.c }),
                _ => found(row, on, select, each),
            }
        }
        Ok(())
    }

    fn in_list(
        &mut self,
        table: u32,
        on: On,
        keys: &[i32],
        select: Select,
        each: &mut dyn FnMut(Found<'_>),
    ) -> Result<()> {
        self.0.mischief();
        let tables = self.0.alone();
        for key in keys {
            let rows = rows_between(&tables[table as usize], on, *key, *key);
            rows.into_iter().for_each(|row| found(row, on, select, each));
        }
        Ok(())
    }

    fn scan(&mut self, table: u32, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.scan_rows(table, &mut |row| each(&row.c))
    }

    fn update_k(&mut self, table: u32, id: i32) -> Result<bool> {
        let fault = self.0.fault;
        self.change(table, id, |table| {
            let Some(row) = table.rows.get(&id).cloned() else { return (false, None) };
            if !table.planted && fault == Some(Planted::LoseUpdate) {
                table.planted = true;
                return (true, None);
            }
            if fault == Some(Planted::LoseEntry) {
                // That of another row: this one's is about to be moved.
                if let Some(other) = table.index.iter().find(|(_, other)| *other != id).copied() {
                    table.index.remove(&other);
                }
            }
            (true, Some(Some(Row { k: row.k + 1, ..row })))
        })
    }

    fn update_c(&mut self, table: u32, ids: &[i32], c: &[u8; C_BYTES]) -> Result<usize> {
        let mut there = 0;
        for id in ids {
            there += usize::from(self.change(table, *id, |table| {
                let row = table.rows.get(id).cloned();
                (row.is_some(), row.map(|row| Some(Row { c: *c, ..row })))
            })?);
        }
        Ok(there)
    }

    fn delete(&mut self, table: u32, id: i32) -> Result<bool> {
        let fault = self.0.fault;
        self.change(table, id, |table| {
            let there = table.rows.contains_key(&id);
            if there && !table.planted && fault == Some(Planted::LoseDelete) {
                table.planted = true;
                return (true, None);
            }
            (there, there.then_some(None))
        })
    }

    fn insert(&mut self, table: u32, row: &Row) -> Result<()> {
        let fault = self.0.fault;
        let is_new = self.change(table, row.id, |table| {
            let is_new = !table.rows.contains_key(&row.id);
            (is_new, is_new.then(|| Some(table.kept(row, fault))))
        })?;
        if is_new { Ok(()) } else { Err(TargetError::Failed(format!("model: id {} exists", row.id))) }
    }

    fn scan_rows(&mut self, table: u32, each: &mut dyn FnMut(&Row)) -> Result<()> {
        self.0.alone()[table as usize].rows.values().for_each(each);
        Ok(())
    }

    fn scan_index(&mut self, table: u32, each: &mut dyn FnMut(i32, i32)) -> Result<()> {
        self.0.alone()[table as usize].index.iter().for_each(|(k, id)| each(*k, *id));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: i32, k: i32) -> Row {
        Row { id, k, c: [b'c'; C_BYTES], pad: [b'p'; crate::sysbench::PAD_BYTES] }
    }

    #[test]
    fn a_rollback_puts_back_rows_and_entries_and_others_wait() {
        let all = ModelTables::new(Parameters::default());
        all.create_table(0).unwrap();
        let mut one = all.session().unwrap();
        one.load(0, &[row(1, 5), row(2, 7)]).unwrap();
        all.create_index(0).unwrap();
        one.begin().unwrap();
        assert!(one.update_k(0, 1).unwrap() && one.delete(0, 2).unwrap());
        one.insert(0, &row(2, 9)).unwrap();
        let sums = std::thread::scope(|scope| {
            let other = scope.spawn(|| all.session().unwrap().sum_k(0, 1, 9).unwrap());
            assert_eq!(one.sum_k(0, 1, 9).unwrap(), (2, 15));
            one.rollback();
            other.join().unwrap()
        });
        assert_eq!(sums, (2, 12));
        let mut entries = Vec::new();
        one.scan_index(0, &mut |k, id| entries.push((k, id))).unwrap();
        assert_eq!(entries, [(5, 1), (7, 2)]);
        assert!(one.insert(0, &row(1, 1)).is_err(), "the id exists");
    }
}
