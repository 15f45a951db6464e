//! The tables of TPC-C that nobody keeps: every row is there and says nothing, no range has any.

use crate::api::Result;
use crate::tpcc::{Cell, Key, Kind, Row, Session, Table, Tables, key};

/// The tables.
pub(super) struct NullTables;

impl Tables for NullTables {
    fn create(&self) -> Result<()> {
        Ok(())
    }

    fn attach(&self) -> Result<()> {
        Ok(())
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(NullConnection))
    }
}

struct NullConnection;

fn nothing(table: Table, column: usize) -> Cell<'static> {
    match table.definition().columns[column].1 {
        Kind::Text => Cell::from(vec![b'0'; 24]),
        _ => Cell::Number(1),
    }
}

impl Session for NullConnection {
    fn begin(&mut self, _only_reads: bool) -> Result<()> {
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        Ok(())
    }

    fn rollback(&mut self) {}

    fn insert(&mut self, _table: Table, _rows: &[Row]) -> Result<()> {
        Ok(())
    }

    fn get(
        &mut self,
        table: Table,
        keys: &[Key],
        columns: &[usize],
        found: &mut dyn FnMut(usize, &[Cell<'_>]),
    ) -> Result<usize> {
        let cells: Vec<Cell<'_>> = columns.iter().map(|column| nothing(table, *column)).collect();
        (0..keys.len()).for_each(|place| found(place, &cells));
        Ok(keys.len())
    }

    fn update(&mut self, table: Table, _key: Key, change: &mut dyn FnMut(&mut [Cell<'_>])) -> Result<bool> {
        let columns = 0..table.definition().columns.len();
        change(&mut columns.map(|column| nothing(table, column)).collect::<Vec<_>>());
        Ok(true)
    }

    fn delete(&mut self, _table: Table, _key: Key) -> Result<bool> {
        Ok(true)
    }

    fn take_first(&mut self, _table: Table, prefix: &[i64]) -> Result<Option<Key>> {
        Ok(Some(key(&[prefix, &[1]].concat())))
    }

    fn scan(
        &mut self,
        _table: Table,
        _range: (&[i64], &[i64]),
        _columns: &[usize],
        _each: &mut dyn FnMut(&[Cell<'_>]),
    ) -> Result<()> {
        Ok(())
    }

    fn scan_index(&mut self, table: Table, _prefix: &[Cell<'_>], each: &mut dyn FnMut(&[Cell<'_>])) -> Result<()> {
        let cells: Vec<Cell<'_>> =
            table.definition().entry_columns().iter().map(|column| nothing(table, *column)).collect();
        each(&cells);
        Ok(())
    }

    fn last_entry(&mut self, table: Table, prefix: &[Cell<'_>], found: &mut dyn FnMut(&[Cell<'_>])) -> Result<bool> {
        self.scan_index(table, prefix, found).map(|()| true)
    }
}
