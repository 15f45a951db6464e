//! The insert benchmark on a server: one connection a session, every statement a transaction of its own.

use std::sync::Arc;

use super::client::{Argument, Cells, Client, Dialect, Sees};
use super::sql::Sql;
use crate::api::{PointRow, RangeQuery, Result, Session, TargetError};
use crate::row::{Batch, Column, Entry, Price, RowView, Secondary};

/// A connection and the statements on each table.
pub struct Connection {
    pub client: Client,
    pub tables: Vec<Arc<Sql>>,
}

fn failed(what: impl std::fmt::Display) -> TargetError {
    TargetError::Failed(format!("server: {what}"))
}

/// The statements on a table.
pub fn table_of(tables: &[Arc<Sql>], table: u32) -> Result<Arc<Sql>> {
    tables.get(table as usize).cloned().ok_or_else(|| failed(format!("no table {table}")))
}

/// The columns behind the key.
fn row_of<'a>(cells: &'a Cells<'_>, price: Price) -> Result<RowView<'a>> {
    Ok(RowView {
        dateandtime: cells.seconds(1)?,
        cashregisterid: cells.small(2)?,
        customerid: cells.small(3)?,
        productid: cells.small(4)?,
        price: if price == Price::Float { cells.hundredths(5)? } else { cells.small(5)? },
        data: cells.text(6)?,
    })
}

/// The columns of an index.
fn entry_of(cells: &Cells<'_>, columns: &[Column], price: Price) -> Result<Entry> {
    let mut entry = [0; 3];
    for (place, (value, column)) in entry.iter_mut().zip(columns).enumerate() {
        *value = match (column, price) {
            (Column::DateAndTime, _) => cells.seconds(place)?,
            (Column::Price, Price::Float) => cells.hundredths(place)?.into(),
            _ => cells.number(place)?,
        };
    }
    Ok(entry)
}

/// Runs a statement that has the order of an index within, so that PostgreSQL reads that index: it sorts only where it has
/// to, which is without.
pub fn reading_the_index<T>(client: &mut Client, run: &mut dyn FnMut(&mut Client) -> Result<T>) -> Result<()> {
    let forces = client.dialect() == Dialect::Postgres;
    if forces {
        client.say("SET enable_sort = off; SET enable_incremental_sort = off")?;
    }
    let ran = run(client).map(|_| ());
    if forces {
        client.say("SET enable_sort = on; SET enable_incremental_sort = on")?;
    }
    ran
}

fn looked(client: &mut Client, sql: &str) -> Result<(u64, u64)> {
    let mut counts = (0, 0);
    client.run(sql, &[], &mut |cells| {
        counts = (cells.number(0)? as u64, cells.number(1)? as u64);
        Ok(())
    })?;
    Ok(counts)
}

impl Connection {
    fn sql(&self, table: u32) -> Result<Arc<Sql>> {
        table_of(&self.tables, table)
    }

    fn key(&mut self, sql: &str) -> Result<Option<u64>> {
        let mut key = None;
        self.client.run(sql, &[], &mut |cells| {
            key = if cells.is_null(0) { None } else { Some(cells.number(0)? as u64) };
            Ok(())
        })?;
        Ok(key)
    }
}

impl Session for Connection {
    fn insert(&mut self, table: u32, rows: &Batch) -> Result<u64> {
        let table = self.sql(table)?;
        let sql = table.insert(rows.len());
        let mut arguments = Vec::with_capacity(rows.len() * 6);
        for row in rows.iter() {
            let numbers = [row.cashregisterid, row.customerid, row.productid];
            arguments.push(Argument::Seconds(row.dateandtime));
            arguments.extend(numbers.map(|number| Argument::Number(i64::from(number))));
            arguments.push(match table.price {
                Price::Int => Argument::Number(i64::from(row.price)),
                Price::Float => Argument::Hundredths(row.price),
            });
            arguments.push(Argument::Text(row.data));
        }
        let mut told = None;
        let mut done = self.client.run(&sql, &arguments, &mut |cells| {
            told = Some((cells.number(0)? as u64, cells.number(1)? as u64));
            Ok(())
        })?;
        if let Some((key, rows)) = told {
            (done.first_key, done.rows) = (Some(key), rows);
        }
        if done.rows != rows.len() as u64 {
            return Err(failed(format!("an insert of {} rows says it inserted {}", rows.len(), done.rows)));
        }
        done.first_key.ok_or_else(|| failed("an insert does not say which key it got"))
    }

    fn delete_smallest(&mut self, table: u32, from: u64, count: u32) -> Result<u32> {
        let sql = self.sql(table)?;
        let arguments = [Argument::Number(from as i64), Argument::Number(i64::from(count))];
        Ok(self.client.write(&sql.delete_smallest, &arguments)?.rows as u32)
    }

    fn delete_range(&mut self, table: u32, from: u64, to: u64) -> Result<u32> {
        let sql = self.sql(table)?;
        let arguments = [Argument::Number(from as i64), Argument::Number(to as i64)];
        Ok(self.client.write(&sql.delete_range, &arguments)?.rows as u32)
    }

    fn range(&mut self, table: u32, query: RangeQuery, out: &mut Vec<Entry>) -> Result<()> {
        out.clear();
        let sql = self.sql(table)?;
        let index = sql.indexed(query.index).map_err(failed)?;
        let statement = if query.strict { &index.above } else { &index.from };
        let first = match (index.columns.first(), sql.price) {
            (Some(Column::Price), Price::Float) => {
                let hundredths = i32::try_from(query.first).map_err(|_| failed("a price that is none"))?;
                Argument::Hundredths(hundredths)
            }
            _ => Argument::Number(query.first),
        };
        let arguments = [first, Argument::Number(i64::from(query.limit))];
        // MariaDB 10.11 forgets that a forced index covers a prepared statement once the table was read by another index: it
        // then reads a row for each entry, with every engine.
        self.client.run_as_text_on_mysql(statement, &arguments, &mut |cells| {
            out.push(entry_of(&cells, index.columns, sql.price)?);
            Ok(())
        })?;
        Ok(())
    }

    fn get(&mut self, table: u32, key: u64, found: &mut dyn FnMut(u64, RowView<'_>)) -> Result<bool> {
        let sql = self.sql(table)?;
        let mut there = false;
        self.client.run(&sql.get, &[Argument::Number(key as i64)], &mut |cells| {
            there = true;
            found(cells.number(0)? as u64, row_of(&cells, sql.price)?);
            Ok(())
        })?;
        Ok(there)
    }

    fn points(&mut self, table: u32, keys: &[u64], out: &mut Vec<PointRow>) -> Result<()> {
        // SQL has no empty list.
        if keys.is_empty() {
            out.clear();
            return Ok(());
        }
        let sql = self.sql(table)?.points(keys.len());
        let arguments: Vec<_> = keys.iter().map(|key| Argument::Number(*key as i64)).collect();
        let mut found = 0;
        self.client.run(&sql, &arguments, &mut |cells| {
            // The rows of the last answer are overwritten, so that their text is not allocated again.
            if found == out.len() {
                out.push(PointRow::default());
            }
            let place: &mut PointRow = &mut out[found];
            (place.transactionid, place.productid) = (cells.number(0)? as u64, cells.small(1)?);
            place.data.clear();
            place.data.extend_from_slice(cells.text(2)?);
            found += 1;
            Ok(())
        })?;
        out.truncate(found);
        Ok(())
    }

    fn min_key(&mut self, table: u32) -> Result<Option<u64>> {
        let sql = self.sql(table)?;
        self.key(&sql.min_key)
    }

    fn max_key(&mut self, table: u32) -> Result<Option<u64>> {
        let sql = self.sql(table)?;
        self.key(&sql.max_key)
    }

    fn hold_begin(&mut self, table: u32) -> Result<()> {
        let sql = self.sql(table)?;
        self.client.begin(Sees::OneSnapshotAndWrites)?;
        self.key(&sql.min_key).map(|_| ())
    }

    fn hold_end(&mut self) -> Result<()> {
        self.client.say("COMMIT")
    }

    fn scan_table(&mut self, table: u32, each: &mut dyn FnMut(u64, RowView<'_>)) -> Result<()> {
        let sql = self.sql(table)?;
        self.client.run(&sql.scan, &[], &mut |cells| {
            each(cells.number(0)? as u64, row_of(&cells, sql.price)?);
            Ok(())
        })?;
        Ok(())
    }

    fn scan_customers(&mut self, table: u32, each: &mut dyn FnMut(i32)) -> Result<()> {
        let sql = self.sql(table)?;
        self.client.run(&sql.customers, &[], &mut |cells| {
            each(cells.small(0)?);
            Ok(())
        })?;
        Ok(())
    }

    fn scan_index(&mut self, table: u32, index: Secondary, each: &mut dyn FnMut(Entry, u64)) -> Result<()> {
        let sql = self.sql(table)?;
        let indexed = sql.indexed(index).map_err(failed)?;
        reading_the_index(&mut self.client, &mut |client| {
            client.run(&indexed.scan, &[], &mut |cells| {
                let entry = entry_of(&cells, indexed.columns, sql.price)?;
                each(entry, cells.number(indexed.columns.len())? as u64);
                Ok(())
            })
        })
    }

    fn look_at_table(&mut self, table: u32) -> Result<(u64, u64)> {
        let sql = self.sql(table)?;
        looked(&mut self.client, &sql.look)
    }

    fn look_at_index(&mut self, table: u32, index: Secondary) -> Result<(u64, u64)> {
        let sql = self.sql(table)?;
        let look = &sql.indexed(index).map_err(failed)?.look;
        let mut counts = (0, 0);
        reading_the_index(&mut self.client, &mut |client| looked(client, look).map(|found| counts = found))?;
        Ok(counts)
    }
}
