//! The tables of TPC-C in the embedded engine: typed rows, secondary indexes that the engine keeps.
//!
//! Numbers have the width of their columns; texts are of one byte a character, so they are byte strings. A row is locked,
//! read and changed in one statement.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::OnceLock;

use ::trefoil::{
    ALL, ColumnType, Database, Error, IndexSchema, LockMode, RowRef, Schema, Timestamp, Transaction, Value, ValueRange,
};

use super::TrefoilTarget;
use crate::api::{Result, TargetError};
use crate::tpcc::{Cell, Definition, Key, Kind, Row, Session, Table, Tables};

/// Name of every secondary index; each table has at most one.
const INDEX: &str = "by";

/// The tables of a run.
pub(super) struct TpccTables<'a> {
    target: &'a TrefoilTarget,
    /// In the order of [`Table::ALL`].
    tables: OnceLock<Vec<::trefoil::Table>>,
}

impl<'a> TpccTables<'a> {
    pub(super) fn new(target: &'a TrefoilTarget) -> TpccTables<'a> {
        TpccTables { target, tables: OnceLock::new() }
    }

    fn schema_of(&self, definition: &Definition) -> Result<Schema, Error> {
        let mut builder = Schema::builder();
        for (name, kind) in definition.columns {
            builder = match kind {
                Kind::Int => builder.column(name, ColumnType::I32),
                Kind::Long => builder.column(name, ColumnType::I64),
                Kind::Time => builder.column(name, ColumnType::Timestamp),
                Kind::Text => builder.column(name, ColumnType::Bytes),
                Kind::MaybeInt => builder.nullable(name, ColumnType::I32),
                Kind::MaybeTime => builder.nullable(name, ColumnType::Timestamp),
            };
        }
        let names = |columns: &[usize]| columns.iter().map(|column| definition.columns[*column].0).collect::<Vec<_>>();
        let key: Vec<usize> = (0..definition.key).collect();
        let parameters = &self.target.parameters;
        builder = builder.primary_key(&names(&key)).primary_options(self.target.index_options(parameters.rows));
        if let Some(columns) = definition.index {
            let options = self.target.index_options(parameters.secondary);
            builder = builder.index(IndexSchema::new(INDEX, &names(columns)).with_options(options));
        }
        Ok(builder.build()?)
    }
}

impl Tables for TpccTables<'_> {
    fn create(&self) -> Result<()> {
        let create = |table: &Table| {
            let definition = table.definition();
            Ok(self.target.database.create_table(definition.name, self.schema_of(definition)?)?)
        };
        let tables = Table::ALL.iter().map(create).collect::<Result<Vec<_>>>()?;
        self.tables.set(tables).map_err(|_| TargetError::Failed("trefoil: the tables are there already".into()))
    }

    fn attach(&self) -> Result<()> {
        let open = |table: &Table| Ok(self.target.database.table(table.definition().name)?);
        let tables = Table::ALL.iter().map(open).collect::<Result<Vec<_>>>()?;
        self.tables.set(tables).map_err(|_| TargetError::Failed("trefoil: the tables are open already".into()))
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let none = || TargetError::Failed("trefoil: there are no tables".into());
        let tables = self.tables.get().ok_or_else(none)?.clone();
        Ok(Box::new(Connection { database: &self.target.database, tables, transaction: None }))
    }
}

struct Connection<'a> {
    database: &'a Database,
    tables: Vec<::trefoil::Table>,
    /// The transaction that was begun.
    transaction: Option<Transaction>,
}

fn none_begun() -> TargetError {
    TargetError::Failed("trefoil: no transaction was begun".into())
}

impl Connection<'_> {
    fn reading(&self, table: Table) -> Result<(&Transaction, &::trefoil::Table)> {
        Ok((self.transaction.as_ref().ok_or_else(none_begun)?, &self.tables[table as usize]))
    }

    fn writing(&mut self, table: Table) -> Result<(&mut Transaction, &::trefoil::Table)> {
        Ok((self.transaction.as_mut().ok_or_else(none_begun)?, &self.tables[table as usize]))
    }
}

fn value_of<'a>(kind: Kind, cell: &'a Cell<'_>) -> Value<'a> {
    match cell {
        Cell::Null => Value::Null,
        Cell::Text(text) => Value::Bytes(Cow::Borrowed(text)),
        Cell::Number(number) => match kind {
            Kind::Int | Kind::MaybeInt => Value::I32(*number as i32),
            Kind::Time | Kind::MaybeTime => Value::Timestamp(*number),
            Kind::Long | Kind::Text => Value::I64(*number),
        },
    }
}

fn values_of<'a>(definition: &Definition, row: &'a Row) -> Vec<Value<'a>> {
    definition.columns.iter().zip(row).map(|((_, kind), cell)| value_of(*kind, cell)).collect()
}

fn cell_of(value: Value<'_>) -> Cell<'_> {
    match value {
        Value::I32(number) => Cell::Number(number.into()),
        Value::I64(number) | Value::Timestamp(number) => Cell::Number(number),
        Value::Bytes(text) => Cell::Text(text),
        _ => Cell::Null,
    }
}

fn column_of<'a>(definition: &Definition, row: &RowRef<'a>, column: usize) -> Result<Cell<'a>, Error> {
    let maybe = |number: Option<i64>| number.map_or(Cell::Null, Cell::Number);
    Ok(match definition.columns[column].1 {
        Kind::Int => Cell::Number(row.column_as::<i32>(column)?.into()),
        Kind::Long => Cell::Number(row.column_as(column)?),
        Kind::Time => Cell::Number(row.column_as::<Timestamp>(column)?.0),
        Kind::Text => Cell::Text(row.column_as(column)?),
        Kind::MaybeInt => maybe(row.column_as::<Option<i32>>(column)?.map(i64::from)),
        Kind::MaybeTime => maybe(row.column_as::<Option<Timestamp>>(column)?.map(|time| time.0)),
    })
}

fn columns_of<'a>(definition: &Definition, row: &RowRef<'a>, columns: &[usize]) -> Result<Vec<Cell<'a>>, Error> {
    columns.iter().map(|column| column_of(definition, row, *column)).collect()
}

/// The beginning of a primary key.
fn key_values(definition: &Definition, key: &[i64]) -> Vec<Value<'static>> {
    let number = |((_, kind), number): (&(_, Kind), &i64)| match kind {
        Kind::Int => Value::I32(*number as i32),
        _ => Value::I64(*number),
    };
    definition.columns.iter().zip(key).map(number).collect()
}

/// Everything that begins with values from one list to another.
fn range_of<'v>(low: &'v [Value<'v>], high: &'v [Value<'v>]) -> ValueRange<'v> {
    if low.is_empty() { ALL } else { (Bound::Included(low), Bound::Included(high)) }
}

impl Session for Connection<'_> {
    fn begin(&mut self, _only_reads: bool) -> Result<()> {
        self.transaction = Some(self.database.begin()?);
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        match self.transaction.take() {
            Some(transaction) => Ok(transaction.commit().map(|_| ())?),
            None => Err(none_begun()),
        }
    }

    fn rollback(&mut self) {
        self.transaction = None;
    }

    fn insert(&mut self, table: Table, rows: &[Row]) -> Result<()> {
        let definition = table.definition();
        let (transaction, table) = self.writing(table)?;
        match rows {
            [row] => Ok(transaction.insert(table, &values_of(definition, row))?),
            _ => {
                let rows: Vec<_> = rows.iter().map(|row| values_of(definition, row)).collect();
                Ok(transaction.insert_many(table, &rows)?)
            }
        }
    }

    fn get(
        &mut self,
        table: Table,
        keys: &[Key],
        columns: &[usize],
        found: &mut dyn FnMut(usize, &[Cell<'_>]),
    ) -> Result<usize> {
        let definition = table.definition();
        let keys: Vec<_> = keys.iter().map(|key| key_values(definition, &key[..definition.key])).collect();
        let (transaction, table) = self.reading(table)?;
        Ok(transaction.get_rows(table, &keys, |place, row| {
            found(place, &columns_of(definition, &row, columns)?);
            Ok(())
        })?)
    }

    fn update(&mut self, table: Table, key: Key, change: &mut dyn FnMut(&mut [Cell<'_>])) -> Result<bool> {
        let definition = table.definition();
        let key = key_values(definition, &key[..definition.key]);
        let (transaction, table) = self.writing(table)?;
        Ok(transaction.update_with(table, &key, |row| {
            let mut cells: Vec<Cell<'_>> =
                row.iter_mut().map(|value| cell_of(std::mem::replace(value, Value::Null))).collect();
            change(&mut cells);
            for ((value, cell), (_, kind)) in row.iter_mut().zip(cells).zip(definition.columns) {
                *value = match cell {
                    Cell::Text(text) => Value::Bytes(text),
                    Cell::Null => Value::Null,
                    Cell::Number(number) => value_of(*kind, &Cell::Number(number)).into_owned(),
                };
            }
        })?)
    }

    fn delete(&mut self, table: Table, key: Key) -> Result<bool> {
        let definition = table.definition();
        let key = key_values(definition, &key[..definition.key]);
        let (transaction, table) = self.writing(table)?;
        Ok(transaction.delete_row(table, &key)?)
    }

    fn take_first(&mut self, table: Table, prefix: &[i64]) -> Result<Option<Key>> {
        let definition = table.definition();
        let bound = key_values(definition, prefix);
        let (transaction, table) = self.writing(table)?;
        let mut rows = transaction.scan_locked(table, range_of(&bound, &bound), LockMode::Exclusive)?.expect(1);
        let Some(row) = rows.next_row()? else { return Ok(None) };
        let all: Vec<usize> = (0..definition.key).collect();
        let first = definition.key_of(&columns_of(definition, &row, &all)?);
        drop(rows);
        transaction.delete_row(table, &key_values(definition, &first[..definition.key]))?;
        Ok(Some(first))
    }

    fn scan(
        &mut self,
        table: Table,
        (low, high): (&[i64], &[i64]),
        columns: &[usize],
        each: &mut dyn FnMut(&[Cell<'_>]),
    ) -> Result<()> {
        let definition = table.definition();
        let (low, high) = (key_values(definition, low), key_values(definition, high));
        let (transaction, table) = self.reading(table)?;
        let mut rows = transaction.scan(table, range_of(&low, &high))?;
        while let Some(row) = rows.next_row()? {
            each(&columns_of(definition, &row, columns)?);
        }
        Ok(())
    }

    fn scan_index(&mut self, table: Table, prefix: &[Cell<'_>], each: &mut dyn FnMut(&[Cell<'_>])) -> Result<()> {
        let prefix = index_values(table, prefix);
        let (transaction, indexed) = self.reading(table)?;
        let mut entries = transaction.scan_index(indexed, INDEX, range_of(&prefix, &prefix))?;
        let again = told_again(table);
        while let Some(values) = entries.next()? {
            each(&cells_of(values, &again));
        }
        Ok(())
    }

    fn last_entry(&mut self, table: Table, prefix: &[Cell<'_>], found: &mut dyn FnMut(&[Cell<'_>])) -> Result<bool> {
        let prefix = index_values(table, prefix);
        let (transaction, indexed) = self.reading(table)?;
        let mut entries = transaction.scan_index_back(indexed, INDEX, range_of(&prefix, &prefix))?.expect(1);
        let last = entries.next()?;
        Ok(last.map(|values| found(&cells_of(values, &told_again(table)))).is_some())
    }
}

/// The beginning of an entry.
fn index_values<'a>(table: Table, prefix: &'a [Cell<'_>]) -> Vec<Value<'a>> {
    let definition = table.definition();
    let columns = definition.index.unwrap_or_default().iter().zip(prefix);
    columns.map(|(column, cell)| value_of(definition.columns[*column].1, cell)).collect()
}

/// The engine's entries end with the whole primary key, whatever the index has of it: which of their values were there
/// before.
fn told_again(table: Table) -> Vec<bool> {
    let definition = table.definition();
    let columns = definition.index.unwrap_or_default();
    columns.iter().map(|_| false).chain((0..definition.key).map(|column| columns.contains(&column))).collect()
}

fn cells_of<'a>(entry: Vec<Value<'a>>, again: &[bool]) -> Vec<Cell<'a>> {
    entry.into_iter().zip(again).filter(|(_, again)| !**again).map(|(value, _)| cell_of(value)).collect()
}
