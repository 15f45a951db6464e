//! The tables of sysbench on a server: the statements as sysbench sends them.

use std::sync::atomic::{AtomicU32, Ordering};

use super::ServerTarget;
use super::client::{Argument, Cells, Client};
use super::sql::repeated;
use crate::api::{Result, TargetError};
use crate::sysbench::{C_BYTES, Found, On, Order, Row, Select, Session, Tables, text_of};

fn name(table: u32) -> String {
    format!("sbtest{}", table + 1)
}

fn number(value: i32) -> Argument<'static> {
    Argument::Number(i64::from(value))
}

/// The tables of a run.
pub struct ServerTables<'a> {
    target: &'a ServerTarget,
    tables: AtomicU32,
}

impl<'a> ServerTables<'a> {
    /// None are created yet.
    pub fn new(target: &'a ServerTarget) -> ServerTables<'a> {
        ServerTables { target, tables: AtomicU32::new(0) }
    }
}

impl Tables for ServerTables<'_> {
    fn create_table(&self, table: u32) -> Result<()> {
        let (name, options) = (name(table), &self.target.table_options);
        self.target.create(
            &name,
            &format!(
                "CREATE TABLE {name} (id INTEGER NOT NULL AUTO_INCREMENT, k INTEGER NOT NULL DEFAULT 0, \
                 c CHAR(120) NOT NULL DEFAULT '', pad CHAR(60) NOT NULL DEFAULT '', PRIMARY KEY (id)) {options}"
            ),
        )?;
        // A count that sessions are opened with, once all tables exist: relaxed.
        self.tables.fetch_max(table + 1, Ordering::Relaxed);
        Ok(())
    }

    fn create_index(&self, table: u32) -> Result<()> {
        let mut client = self.target.connect()?;
        client.say(&format!("ALTER TABLE {} ADD INDEX k_{} (k)", name(table), table + 1))
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let tables = (0..self.tables.load(Ordering::Relaxed)).map(Statements::new).collect();
        Ok(Box::new(Connection { client: self.target.connect()?, tables, begun: false }))
    }
}

/// The statements on a table whose text does not depend on their values.
struct Statements {
    name: String,
    index: String,
    point: String,
    update_k: String,
    delete: String,
    insert: String,
    sum: String,
    count: String,
}

impl Statements {
    fn new(table: u32) -> Statements {
        let name = name(table);
        Statements {
            index: format!("k_{}", table + 1),
            point: format!("SELECT c FROM {name} WHERE id = ?"),
            update_k: format!("UPDATE {name} SET k = k + 1 WHERE id = ?"),
            delete: format!("DELETE FROM {name} WHERE id = ?"),
            insert: format!("INSERT INTO {name} (id, k, c, pad) VALUES (?, ?, ?, ?)"),
            sum: format!("SELECT COUNT(k), COALESCE(SUM(k), 0) FROM {name} WHERE id BETWEEN ? AND ?"),
            count: format!("SELECT COUNT(c) FROM {name} WHERE id BETWEEN ? AND ?"),
            name,
        }
    }
}

struct Connection {
    client: Client,
    tables: Vec<Statements>,
    begun: bool,
}

/// What is selected in a condition on a column, and where the number and `c` are in a row.
fn projection(on: On, select: Select) -> (&'static str, Option<usize>, Option<usize>) {
    match (on, select) {
        (On::Id, Select::Key) => ("id", Some(0), None),
        (On::Id, Select::KeyAndC) => ("id, c", Some(0), Some(1)),
        (On::K, Select::Key) | (_, Select::K) => ("k", Some(0), None),
        (On::K, Select::KeyAndC) => ("k, c", Some(0), Some(1)),
        (_, Select::C) => ("c", None, Some(0)),
    }
}

fn column(on: On) -> &'static str {
    match on {
        On::Id => "id",
        On::K => "k",
    }
}

fn hand(cells: &Cells<'_>, at: (Option<usize>, Option<usize>), each: &mut dyn FnMut(Found<'_>)) -> Result<()> {
    let number = at.0.map(|place| cells.small(place)).transpose()?.unwrap_or(0);
    let c = at.1.map(|place| cells.text(place)).transpose()?.unwrap_or_default();
    each(Found { number, c });
    Ok(())
}

fn row_of(cells: &Cells<'_>) -> Result<Row> {
    let (id, k) = (cells.small(0)?, cells.small(1)?);
    match (text_of(cells.text(2)?), text_of(cells.text(3)?)) {
        (Some(c), Some(pad)) => Ok(Row { id, k, c, pad }),
        _ => Err(TargetError::Failed(format!("server: a text of id {id} came back with another length"))),
    }
}

impl Connection {
    fn statements(&self, table: u32) -> Result<&Statements> {
        self.tables.get(table as usize).ok_or_else(|| TargetError::Failed(format!("server: no table {table}")))
    }

    /// Runs the statement of a table that `of` chooses.
    fn run(
        &mut self,
        table: u32,
        of: impl Fn(&Statements) -> &String,
        arguments: &[Argument<'_>],
        each: &mut dyn FnMut(Cells<'_>) -> Result<()>,
    ) -> Result<u64> {
        let statements = self.tables.get(table as usize);
        let statements = statements.ok_or_else(|| TargetError::Failed(format!("server: no table {table}")))?;
        Ok(self.client.run(of(statements), arguments, each)?.rows)
    }

    fn counts<const N: usize>(&mut self, sql: &str, arguments: &[Argument<'_>]) -> Result<[i64; N]> {
        let mut counts = [0; N];
        self.client.run(sql, arguments, &mut |cells| {
            for (place, count) in counts.iter_mut().enumerate() {
                *count = cells.number(place)?;
            }
            Ok(())
        })?;
        Ok(counts)
    }
}

impl Session for Connection {
    fn begin(&mut self) -> Result<()> {
        self.begun = true;
        self.client.say("BEGIN")
    }

    fn commit(&mut self) -> Result<()> {
        self.begun = false;
        self.client.say("COMMIT")
    }

    fn rollback(&mut self) {
        if std::mem::take(&mut self.begun) {
            // A connection that is lost fails at its next statement.
            let _ = self.client.say("ROLLBACK");
        }
    }

    fn load(&mut self, table: u32, rows: &[Row]) -> Result<()> {
        let name = &self.statements(table)?.name;
        let sql = format!("INSERT INTO {name} (id, k, c, pad) VALUES {}", repeated("(?,?,?,?)", rows.len()));
        let row = |row| {
            let Row { id, k, c, pad }: &Row = row;
            [number(*id), number(*k), Argument::Text(c), Argument::Text(pad)]
        };
        let arguments: Vec<_> = rows.iter().flat_map(row).collect();
        self.client.write(&sql, &arguments).map(|_| ())
    }

    fn point(&mut self, table: u32, id: i32, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut there = false;
        self.run(table, |all| &all.point, &[number(id)], &mut |cells| {
            there = true;
            found(cells.text(0)?);
            Ok(())
        })?;
        Ok(there)
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
        let (columns, number_at, c_at) = projection(on, select);
        // In the order of an index that covers it, which then costs nothing; a small table may be read by another one.
        let order = match (on, select) {
            (On::K, Select::C | Select::KeyAndC) => String::new(),
            _ => format!(" ORDER BY {}", column(on)),
        };
        let name = &self.statements(table)?.name;
        let sql = format!("SELECT {columns} FROM {name} WHERE {} BETWEEN ? AND ?{order}", column(on));
        self.client
            .run(&sql, &[number(from), number(to)], &mut |cells| hand(&cells, (number_at, c_at), each))
            .map(|_| ())
    }

    fn in_list(
        &mut self,
        table: u32,
        on: On,
        keys: &[i32],
        select: Select,
        each: &mut dyn FnMut(Found<'_>),
    ) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        // Which row a text is of is looked at: the id comes with it.
        let with_id = if on == On::Id && select == Select::C { Select::KeyAndC } else { select };
        let (columns, number_at, c_at) = projection(on, with_id);
        let list = repeated("?", keys.len());
        let name = &self.statements(table)?.name;
        let sql = format!("SELECT {columns} FROM {name} WHERE {} IN ({list})", column(on));
        let arguments: Vec<_> = keys.iter().map(|key| number(*key)).collect();
        self.client.run(&sql, &arguments, &mut |cells| hand(&cells, (number_at, c_at), each)).map(|_| ())
    }

    fn scan(&mut self, table: u32, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        let sql = format!("SELECT c FROM {}", self.statements(table)?.name);
        self.client
            .run(&sql, &[], &mut |cells| {
                each(cells.text(0)?);
                Ok(())
            })
            .map(|_| ())
    }

    fn update_k(&mut self, table: u32, id: i32) -> Result<bool> {
        Ok(self.run(table, |all| &all.update_k, &[number(id)], &mut |_| Ok(()))? == 1)
    }

    fn update_c(&mut self, table: u32, ids: &[i32], c: &[u8; C_BYTES]) -> Result<usize> {
        let name = &self.statements(table)?.name;
        let sql = match ids {
            [_] => format!("UPDATE {name} SET c = ? WHERE id = ?"),
            _ => format!("UPDATE {name} SET c = ? WHERE id IN ({})", repeated("?", ids.len())),
        };
        let arguments: Vec<_> = [Argument::Text(c)].into_iter().chain(ids.iter().map(|id| number(*id))).collect();
        Ok(self.client.write(&sql, &arguments)?.rows as usize)
    }

    fn delete(&mut self, table: u32, id: i32) -> Result<bool> {
        Ok(self.run(table, |all| &all.delete, &[number(id)], &mut |_| Ok(()))? == 1)
    }

    fn insert(&mut self, table: u32, row: &Row) -> Result<()> {
        let arguments = [number(row.id), number(row.k), Argument::Text(&row.c), Argument::Text(&row.pad)];
        self.run(table, |all| &all.insert, &arguments, &mut |_| Ok(())).map(|_| ())
    }

    fn scan_rows(&mut self, table: u32, each: &mut dyn FnMut(&Row)) -> Result<()> {
        let sql = format!("SELECT id, k, c, pad FROM {} ORDER BY id", self.statements(table)?.name);
        self.client
            .run(&sql, &[], &mut |cells| {
                each(&row_of(&cells)?);
                Ok(())
            })
            .map(|_| ())
    }

    /// As a range of the index from its beginning: its entries come as they lie there.
    fn scan_index(&mut self, table: u32, each: &mut dyn FnMut(i32, i32)) -> Result<()> {
        let Statements { name, index, .. } = self.statements(table)?;
        let sql = format!("SELECT k, id FROM {name} FORCE INDEX ({index}) WHERE k >= {}", i32::MIN);
        self.client
            .run(&sql, &[], &mut |cells| {
                each(cells.small(0)?, cells.small(1)?);
                Ok(())
            })
            .map(|_| ())
    }

    /// In one statement that the server answers: only counts travel.
    fn look_at_all(&mut self, table: u32) -> Result<(u64, u64)> {
        let name = &self.statements(table)?.name;
        let sql = format!("SELECT COUNT(*), COUNT(CASE WHEN LENGTH(c) <> {C_BYTES} THEN 1 END) FROM {name}");
        let [rows, wrong] = self.counts(&sql, &[])?;
        Ok((rows as u64, wrong as u64))
    }

    fn count_c(&mut self, table: u32, from: i32, to: i32) -> Result<u64> {
        let sql = self.statements(table)?.count.clone();
        let [rows] = self.counts(&sql, &[number(from), number(to)])?;
        Ok(rows as u64)
    }

    /// The number of rows comes with the sum, so that both can be checked.
    fn sum_k(&mut self, table: u32, from: i32, to: i32) -> Result<(u64, i64)> {
        let sql = self.statements(table)?.sum.clone();
        let [rows, sum] = self.counts(&sql, &[number(from), number(to)])?;
        Ok((rows as u64, sum))
    }

    fn texts(&mut self, table: u32, from: i32, to: i32, order: Order, out: &mut Vec<[u8; C_BYTES]>) -> Result<()> {
        out.clear();
        let (distinct, order) = match order {
            Order::AsTheyCome => ("", ""),
            Order::Sorted => ("", " ORDER BY c"),
            Order::Distinct => ("DISTINCT ", " ORDER BY c"),
        };
        let name = &self.statements(table)?.name;
        let sql = format!("SELECT {distinct}c FROM {name} WHERE id BETWEEN ? AND ?{order}");
        self.client
            .run(&sql, &[number(from), number(to)], &mut |cells| {
                out.extend(text_of(cells.text(0)?));
                Ok(())
            })
            .map(|_| ())
    }
}
