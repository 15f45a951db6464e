//! The tables of sysbench in the embedded engine: typed rows, an index on `k` that the engine keeps.
//!
//! `c` and `pad` are of one byte a character, so they are byte strings. The transactions are those that the engine comes
//! with: plain reads see one snapshot, a write acts on the newest committed row under its lock.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::RwLock;

use ::trefoil::{ALL, ColumnType, Database, Error, IndexSchema, RowRef, Schema, Table, Transaction, Value};

use super::TrefoilTarget;
use crate::api::{Result, TargetError};
use crate::sysbench::{C_BYTES, Found, On, Row, Select, Session, Tables, text_of};

/// Numbers of the columns.
const ID: usize = 0;
const K: usize = 1;
const C: usize = 2;
const PAD: usize = 3;

/// The tables of a run.
pub(super) struct SysbenchTables<'a> {
    target: &'a TrefoilTarget,
    tables: RwLock<Vec<Table>>,
}

impl<'a> SysbenchTables<'a> {
    pub(super) fn new(target: &'a TrefoilTarget) -> SysbenchTables<'a> {
        SysbenchTables { target, tables: RwLock::default() }
    }

    fn tables(&self) -> Vec<Table> {
        self.tables.read().expect("no thread panics while it holds the list").clone()
    }
}

fn no_table(table: u32) -> TargetError {
    TargetError::Failed(format!("trefoil: no table {table}"))
}

impl Tables for SysbenchTables<'_> {
    fn create_table(&self, table: u32) -> Result<()> {
        let mut tables = self.tables.write().expect("no thread panics while it holds the list");
        while tables.len() <= table as usize {
            let schema = Schema::builder()
                .column("id", ColumnType::I32)
                .column("k", ColumnType::I32)
                .column("c", ColumnType::Bytes)
                .column("pad", ColumnType::Bytes)
                .primary_key(&["id"])
                .primary_options(self.target.index_options(self.target.parameters.rows))
                .build()
                .map_err(Error::from)?;
            let name = format!("sbtest{}", tables.len() + 1);
            tables.push(self.target.database.create_table(&name, schema)?);
        }
        Ok(())
    }

    fn create_index(&self, table: u32) -> Result<()> {
        let options = self.target.index_options(self.target.parameters.secondary);
        let index = IndexSchema::new("k", &["k"]).with_options(options);
        let tables = self.tables();
        let table = tables.get(table as usize).ok_or_else(|| no_table(table))?;
        Ok(self.target.database.create_table_indexes(table, vec![index])?)
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Connection { database: &self.target.database, tables: self.tables(), transaction: None }))
    }
}

struct Connection<'a> {
    database: &'a Database,
    tables: Vec<Table>,
    /// The transaction that was begun.
    transaction: Option<Transaction>,
}

fn values_of(row: &Row) -> [Value<'_>; 4] {
    let text = |bytes| Value::Bytes(Cow::Borrowed(bytes));
    [Value::I32(row.id), Value::I32(row.k), text(&row.c), text(&row.pad)]
}

impl Connection<'_> {
    /// Reads in the transaction that was begun, else in one of its own.
    fn reading<R>(&self, table: u32, run: impl FnOnce(&Transaction, &Table) -> Result<R>) -> Result<R> {
        let table = self.tables.get(table as usize).ok_or_else(|| no_table(table))?;
        match &self.transaction {
            Some(transaction) => run(transaction, table),
            None => run(&self.database.begin()?, table),
        }
    }

    /// Writes in the transaction that was begun, else in one of its own.
    fn writing<R>(&mut self, table: u32, run: impl FnOnce(&mut Transaction, &Table) -> Result<R, Error>) -> Result<R> {
        let table = self.tables.get(table as usize).ok_or_else(|| no_table(table))?;
        match &mut self.transaction {
            Some(transaction) => Ok(run(transaction, table)?),
            None => {
                let mut transaction = self.database.begin()?;
                let result = run(&mut transaction, table)?;
                transaction.commit()?;
                Ok(result)
            }
        }
    }
}

fn with_found(row: RowRef<'_>, key: i32, select: Select, each: &mut dyn FnMut(Found<'_>)) -> Result<(), Error> {
    match select {
        Select::Key => each(Found { number: row.column_as(ID)?, c: &[] }),
        Select::K => each(Found { number: row.column_as(K)?, c: &[] }),
        Select::C | Select::KeyAndC => {
            let c: Cow<'_, [u8]> = row.column_as(C)?;
            each(Found { number: key, c: &c });
        }
    }
    Ok(())
}

fn between_ids(
    transaction: &Transaction,
    table: &Table,
    (from, to): (i32, i32),
    select: Select,
    each: &mut dyn FnMut(Found<'_>),
) -> Result<()> {
    let (low, high) = ([Value::I32(from)], [Value::I32(to)]);
    let range = (Bound::Included(&low[..]), Bound::Included(&high[..]));
    let mut rows = transaction.scan(table, range)?.expect((to - from) as usize + 1);
    while let Some(row) = rows.next_row()? {
        let key = if select == Select::KeyAndC { row.column_as(ID)? } else { 0 };
        with_found(row, key, select, each)?;
    }
    Ok(())
}

/// Entries of the index from one number to another: handed out, or added to `rows` to be looked up.
fn entries(
    transaction: &Transaction,
    table: &Table,
    (from, to): (i32, i32),
    each: &mut dyn FnMut(i32, i32),
) -> Result<()> {
    let (low, high) = ([Value::I32(from)], [Value::I32(to)]);
    let range = (Bound::Included(&low[..]), Bound::Included(&high[..]));
    let mut entries = transaction.scan_index(table, "k", range)?.expect((to - from) as usize + 1);
    while let Some((k, id)) = entries.next_as::<(i32, i32)>()? {
        each(k, id);
    }
    Ok(())
}

/// What a condition on `k` found in the index, and what it takes of the rows.
fn on_k(
    transaction: &Transaction,
    table: &Table,
    ranges: impl Iterator<Item = (i32, i32)>,
    select: Select,
    each: &mut dyn FnMut(Found<'_>),
) -> Result<()> {
    let (mut numbers, mut keys) = (Vec::new(), Vec::new());
    for range in ranges {
        entries(transaction, table, range, &mut |k, id| match select {
            Select::Key | Select::K => each(Found { number: k, c: &[] }),
            Select::C | Select::KeyAndC => {
                numbers.push(k);
                keys.push([Value::I32(id)]);
            }
        })?;
    }
    if !keys.is_empty() {
        transaction.get_rows(table, &keys, |place, row| with_found(row, numbers[place], select, each))?;
    }
    Ok(())
}

impl Session for Connection<'_> {
    fn begin(&mut self) -> Result<()> {
        self.transaction = Some(self.database.begin()?);
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        match self.transaction.take() {
            Some(transaction) => Ok(transaction.commit().map(|_| ())?),
            None => Ok(()),
        }
    }

    fn rollback(&mut self) {
        self.transaction = None;
    }

    fn load(&mut self, table: u32, rows: &[Row]) -> Result<()> {
        let values: Vec<[Value<'_>; 4]> = rows.iter().map(values_of).collect();
        self.writing(table, |transaction, table| transaction.insert_many(table, &values))
    }

    fn point(&mut self, table: u32, id: i32, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.reading(table, |transaction, table| {
            let there = transaction.get_rows(table, &[[Value::I32(id)]], |_, row| {
                with_found(row, id, Select::C, &mut |row| found(row.c))
            })?;
            Ok(there == 1)
        })
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
        self.reading(table, |transaction, table| match on {
            On::Id => between_ids(transaction, table, (from, to), select, each),
            On::K => on_k(transaction, table, [(from, to)].into_iter(), select, each),
        })
    }

    fn in_list(
        &mut self,
        table: u32,
        on: On,
        keys: &[i32],
        select: Select,
        each: &mut dyn FnMut(Found<'_>),
    ) -> Result<()> {
        self.reading(table, |transaction, table| match on {
            On::Id => {
                let wanted: Vec<[Value<'_>; 1]> = keys.iter().map(|key| [Value::I32(*key)]).collect();
                transaction.get_rows(table, &wanted, |place, row| with_found(row, keys[place], select, each))?;
                Ok(())
            }
            On::K => on_k(transaction, table, keys.iter().map(|key| (*key, *key)), select, each),
        })
    }

    fn scan(&mut self, table: u32, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.reading(table, |transaction, table| {
            let mut rows = transaction.scan(table, ALL)?;
            while let Some(row) = rows.next_row()? {
                let c: Cow<'_, [u8]> = row.column_as(C)?;
                each(&c);
            }
            Ok(())
        })
    }

    fn update_k(&mut self, table: u32, id: i32) -> Result<bool> {
        self.writing(table, |transaction, table| {
            transaction.update_with(table, &[Value::I32(id)], |row| {
                if let Value::I32(k) = &mut row[K] {
                    *k += 1;
                }
            })
        })
    }

    fn update_c(&mut self, table: u32, ids: &[i32], c: &[u8; C_BYTES]) -> Result<usize> {
        self.writing(table, |transaction, table| {
            let mut there = 0;
            for id in ids {
                let set = |row: &mut [Value<'_>]| row[C] = Value::Bytes(Cow::Owned(c.to_vec()));
                there += usize::from(transaction.update_with(table, &[Value::I32(*id)], set)?);
            }
            Ok(there)
        })
    }

    fn delete(&mut self, table: u32, id: i32) -> Result<bool> {
        self.writing(table, |transaction, table| transaction.delete_row(table, &[Value::I32(id)]))
    }

    fn insert(&mut self, table: u32, row: &Row) -> Result<()> {
        self.writing(table, |transaction, table| transaction.insert(table, &values_of(row)))
    }

    fn scan_rows(&mut self, table: u32, each: &mut dyn FnMut(&Row)) -> Result<()> {
        self.reading(table, |transaction, table| {
            let mut rows = transaction.scan(table, ALL)?;
            while let Some(row) = rows.next_row()? {
                let (c, pad): (Cow<'_, [u8]>, Cow<'_, [u8]>) = (row.column_as(C)?, row.column_as(PAD)?);
                let (Some(c), Some(pad)) = (text_of(&c), text_of(&pad)) else {
                    return Err(TargetError::Failed("trefoil: a text came back with another length".into()));
                };
                each(&Row { id: row.column_as(ID)?, k: row.column_as(K)?, c, pad });
            }
            Ok(())
        })
    }

    fn scan_index(&mut self, table: u32, each: &mut dyn FnMut(i32, i32)) -> Result<()> {
        self.reading(table, |transaction, table| {
            let mut entries = transaction.scan_index(table, "k", ALL)?;
            while let Some((k, id)) = entries.next_as::<(i32, i32)>()? {
                each(k, id);
            }
            Ok(())
        })
    }
}
