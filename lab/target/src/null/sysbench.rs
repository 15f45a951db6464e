//! The tables of sysbench that nobody keeps.

use crate::api::Result;
use crate::sysbench::{C_BYTES, Found, On, Row, Select, Session, Tables};

/// Every text.
const TEXT: [u8; C_BYTES] = [b'0'; C_BYTES];

/// The tables.
pub(super) struct NullTables;

impl Tables for NullTables {
    fn create_table(&self, _table: u32) -> Result<()> {
        Ok(())
    }

    fn create_index(&self, _table: u32) -> Result<()> {
        Ok(())
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(NullConnection))
    }
}

struct NullConnection;

impl Session for NullConnection {
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        Ok(())
    }

    fn rollback(&mut self) {}

    fn load(&mut self, _table: u32, _rows: &[Row]) -> Result<()> {
        Ok(())
    }

    fn point(&mut self, _table: u32, _id: i32, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        found(&TEXT);
        Ok(true)
    }

    fn between(
        &mut self,
        _table: u32,
        _on: On,
        from: i32,
        to: i32,
        _select: Select,
        each: &mut dyn FnMut(Found<'_>),
    ) -> Result<()> {
        (from..=to).for_each(|number| each(Found { number, c: &TEXT }));
        Ok(())
    }

    fn in_list(
        &mut self,
        _table: u32,
        _on: On,
        keys: &[i32],
        _select: Select,
        each: &mut dyn FnMut(Found<'_>),
    ) -> Result<()> {
        keys.iter().for_each(|number| each(Found { number: *number, c: &TEXT }));
        Ok(())
    }

    fn scan(&mut self, _table: u32, _each: &mut dyn FnMut(&[u8])) -> Result<()> {
        Ok(())
    }

    fn update_k(&mut self, _table: u32, _id: i32) -> Result<bool> {
        Ok(true)
    }

    fn update_c(&mut self, _table: u32, ids: &[i32], _c: &[u8; C_BYTES]) -> Result<usize> {
        Ok(ids.len())
    }

    fn delete(&mut self, _table: u32, _id: i32) -> Result<bool> {
        Ok(true)
    }

    fn insert(&mut self, _table: u32, _row: &Row) -> Result<()> {
        Ok(())
    }

    fn scan_rows(&mut self, _table: u32, _each: &mut dyn FnMut(&Row)) -> Result<()> {
        Ok(())
    }

    fn scan_index(&mut self, _table: u32, _each: &mut dyn FnMut(i32, i32)) -> Result<()> {
        Ok(())
    }
}
