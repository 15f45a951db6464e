//! The tables of TPC-C on a server. A row is locked and read in one statement and changed in a second one, of those columns
//! that have changed; deadlocks and lock waits are told, never tried again here.
//!
//! Amounts of money are whole hundredths (BIGINT), as on every target; times have six digits where the server has them; texts are compared by their
//! bytes.

use super::ServerTarget;
use super::client::{Argument, Cells, Client, Dialect, Sees};
use super::ibench::reading_the_index;
use super::sql::repeated;
use crate::api::{Result, TargetError};
use crate::tpcc::{Cell, Definition, Key, Kind, Row, Session, Table, Tables, customer};

/// Keys of one list; a list has a power of two of them, so that a connection prepares few statements.
const LIST_MAX: usize = 256;
/// Bytes of a text: the longest is a customer's.
const TEXT_BYTES: usize = 50;
const LONG_TEXT_BYTES: usize = 500;

/// The tables of a run.
pub struct TpccTables<'a> {
    target: &'a ServerTarget,
}

impl<'a> TpccTables<'a> {
    /// None are created yet.
    pub fn new(target: &'a ServerTarget) -> TpccTables<'a> {
        TpccTables { target }
    }
}

fn index_name(definition: &Definition) -> String {
    format!("{}_by", definition.name)
}

fn names(definition: &Definition, columns: &[usize]) -> String {
    columns.iter().map(|column| definition.columns[*column].0).collect::<Vec<_>>().join(", ")
}

/// The type of a time. MySQL before 5.6.4 knows no parts of a second, and drops them where it is told some: nothing reads them.
fn time_of(dialect: Dialect, version: &str) -> &'static str {
    let mut numbers = version.split(|letter: char| !letter.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    let mut next = || numbers.next().unwrap_or(0);
    match dialect {
        Dialect::Postgres => "TIMESTAMP(6)",
        Dialect::MySql if !version.contains("MariaDB") && (next(), next(), next()) < (5, 6, 4) => "DATETIME",
        Dialect::MySql => "DATETIME(6)",
    }
}

fn kind_of(table: Table, column: usize, dialect: Dialect, time: &str) -> String {
    let bytes = if table == Table::Customer && column == customer::DATA { LONG_TEXT_BYTES } else { TEXT_BYTES };
    let order = if dialect == Dialect::MySql { "COLLATE latin1_bin" } else { "COLLATE \"C\"" };
    match table.definition().columns[column].1 {
        Kind::Int => "INT NOT NULL".into(),
        Kind::Long => "BIGINT NOT NULL".into(),
        Kind::Time => format!("{time} NOT NULL"),
        Kind::Text => format!("VARCHAR({bytes}) {order} NOT NULL"),
        Kind::MaybeInt => "INT NULL".into(),
        Kind::MaybeTime => format!("{time} NULL"),
    }
}

/// Creates a table, and on PostgreSQL by a statement of its own its index.
fn create(table: Table, (dialect, version): (Dialect, &str), options: &str) -> (String, Option<String>) {
    let (definition, time) = (table.definition(), time_of(dialect, version));
    let column = |number: usize| format!("{} {}", definition.columns[number].0, kind_of(table, number, dialect, time));
    let mut parts: Vec<String> = (0..definition.columns.len()).map(column).collect();
    parts.push(format!("PRIMARY KEY ({})", names(definition, &(0..definition.key).collect::<Vec<_>>())));
    let (name, by) = (definition.name, index_name(definition));
    let index = definition.index.map(|columns| names(definition, columns));
    let mut second = None;
    match (dialect, index) {
        (Dialect::MySql, Some(columns)) => parts.push(format!("INDEX {by} ({columns})")),
        (Dialect::Postgres, Some(columns)) => second = Some(format!("CREATE INDEX {by} ON {name} ({columns})")),
        (_, None) => (),
    }
    (format!("CREATE TABLE {name} ({}) {options}", parts.join(", ")), second)
}

impl Tables for TpccTables<'_> {
    fn create(&self) -> Result<()> {
        for table in Table::ALL {
            let of = (self.target.dialect(), self.target.description.version.as_str());
            let (first, second) = create(*table, of, &self.target.table_options);
            self.target.create(table.definition().name, &first)?;
            second.iter().try_for_each(|sql| self.target.own()?.say(sql))?;
        }
        Ok(())
    }

    fn attach(&self) -> Result<()> {
        for table in Table::ALL {
            let name = table.definition().name;
            self.target.own()?.say(&format!("SELECT 1 FROM {name} WHERE 1 = 0"))?;
            self.target.remember(name);
        }
        Ok(())
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Connection { client: self.target.connect()?, begun: false }))
    }
}

struct Connection {
    client: Client,
    begun: bool,
}

fn argument<'a>(kind: Kind, cell: &'a Cell<'_>) -> Argument<'a> {
    match (cell, kind) {
        (Cell::Null, _) => Argument::Null,
        (Cell::Text(text), _) => Argument::Text(text),
        (Cell::Number(micros), Kind::Time | Kind::MaybeTime) => Argument::Micros(*micros),
        (Cell::Number(number), _) => Argument::Number(*number),
    }
}

fn cell<'a>(kind: Kind, cells: &'a Cells<'_>, place: usize) -> Result<Cell<'a>> {
    if cells.is_null(place) {
        return Ok(Cell::Null);
    }
    Ok(match kind {
        Kind::Int | Kind::Long | Kind::MaybeInt => Cell::Number(cells.number(place)?),
        Kind::Time | Kind::MaybeTime => Cell::Number(cells.micros(place)?),
        Kind::Text => cells.text(place)?.into(),
    })
}

/// Those columns of a row that a statement selects in this order, behind some others.
fn row<'a>(definition: &Definition, columns: &[usize], cells: &'a Cells<'_>, behind: usize) -> Result<Vec<Cell<'a>>> {
    let of = |(place, column): (usize, &usize)| cell(definition.columns[*column].1, cells, place + behind);
    columns.iter().enumerate().map(of).collect()
}

fn numbers(values: &[i64]) -> Vec<Argument<'static>> {
    values.iter().map(|value| Argument::Number(*value)).collect()
}

/// A condition on the beginning of the key: what two bounds have in common, and a range of what is behind.
fn within(definition: &Definition, (low, high): (&[i64], &[i64])) -> (String, Vec<Argument<'static>>) {
    let same = low.iter().zip(high).take_while(|(low, high)| low == high).count();
    let mut parts: Vec<String> = (0..same).map(|column| format!("{} = ?", definition.columns[column].0)).collect();
    let mut values = low[..same].to_vec();
    let mut bound = |bound: &[i64], compare: &str| {
        let rest: Vec<usize> = (same..bound.len()).collect();
        match rest.as_slice() {
            [] => return,
            [column] => parts.push(format!("{} {compare} ?", definition.columns[*column].0)),
            all => parts.push(format!("({}) {compare} ({})", names(definition, all), repeated("?", all.len()))),
        }
        values.extend(&bound[same..]);
    };
    bound(low, ">=");
    bound(high, "<=");
    let condition = if parts.is_empty() { String::new() } else { format!(" WHERE {}", parts.join(" AND ")) };
    (condition, numbers(&values))
}

/// That the whole key is this.
fn is(definition: &Definition, key: &Key) -> (String, Vec<Argument<'static>>) {
    within(definition, (&key[..definition.key], &key[..definition.key]))
}

fn order(definition: &Definition, columns: &[usize], backwards: bool) -> String {
    let direction = if backwards { " DESC" } else { "" };
    let of = |column: &usize| format!("{}{direction}", definition.columns[*column].0);
    format!(" ORDER BY {}", columns.iter().map(of).collect::<Vec<_>>().join(", "))
}

impl Connection {
    /// Looks up one row.
    fn get_one(
        &mut self,
        definition: &Definition,
        key: &Key,
        columns: &[usize],
        found: &mut dyn FnMut(&[Cell<'_>]),
    ) -> Result<usize> {
        let (condition, values) = is(definition, key);
        let sql = format!("SELECT {} FROM {}{condition}", names(definition, columns), definition.name);
        let mut there = 0;
        self.client.run(&sql, &values, &mut |cells| {
            there += 1;
            found(&row(definition, columns, &cells, 0)?);
            Ok(())
        })?;
        Ok(there)
    }

    /// Looks up rows whose keys differ in their last column alone.
    fn get_list(
        &mut self,
        definition: &Definition,
        keys: &[Key],
        columns: &[usize],
        found: &mut dyn FnMut(usize, &[Cell<'_>]),
    ) -> Result<usize> {
        let last = definition.key - 1;
        let ends = keys[0][..last].to_vec();
        let (condition, mut values) = within(definition, (&ends, &ends));
        let joint = if condition.is_empty() { " WHERE" } else { " AND" };
        let count = keys.len().next_power_of_two();
        let name = definition.columns[last].0;
        let sql = format!(
            "SELECT {name}, {} FROM {}{condition}{joint} {name} IN ({})",
            names(definition, columns),
            definition.name,
            repeated("?", count)
        );
        // The last one fills the list up; SQL finds a row once, however often a list names it.
        let wanted = (0..count).map(|place| keys[place.min(keys.len() - 1)][last]);
        values.extend(wanted.map(Argument::Number));
        let mut there = 0;
        self.client.run(&sql, &values, &mut |cells| {
            let number = cells.number(0)?;
            let row = row(definition, columns, &cells, 1)?;
            // A key may be asked for twice.
            for (place, _) in keys.iter().enumerate().filter(|(_, key)| key[last] == number) {
                there += 1;
                found(place, &row);
            }
            Ok(())
        })?;
        Ok(there)
    }

    /// Entries of the index that begin with `prefix`.
    fn entries(
        &mut self,
        definition: &Definition,
        prefix: &[Cell<'_>],
        last_alone: bool,
        each: &mut dyn FnMut(&[Cell<'_>]),
    ) -> Result<()> {
        let own = definition.index.unwrap_or_default();
        let columns = definition.entry_columns();
        let force = match self.client.dialect() {
            Dialect::MySql => format!(" FORCE INDEX ({})", index_name(definition)),
            Dialect::Postgres => String::new(),
        };
        let parts: Vec<String> =
            own[..prefix.len()].iter().map(|column| format!("{} = ?", definition.columns[*column].0)).collect();
        let condition = if parts.is_empty() { String::new() } else { format!(" WHERE {}", parts.join(" AND ")) };
        let (order, limit) = (order(definition, &columns, last_alone), if last_alone { " LIMIT 1" } else { "" });
        let list = names(definition, &columns);
        let is_all = prefix.is_empty() && !last_alone;
        let sql = match self.client.dialect() {
            // All of it is read to be checked: the order within says which index it is.
            Dialect::Postgres if is_all => {
                let (name, own) = (definition.name, names(definition, own));
                format!("SELECT {list} FROM (SELECT {list} FROM {name} ORDER BY {own} OFFSET 0) AS entries{order}")
            }
            _ => format!("SELECT {list} FROM {}{force}{condition}{order}{limit}", definition.name),
        };
        let pairs = own.iter().zip(prefix);
        let values: Vec<_> = pairs.map(|(column, cell)| argument(definition.columns[*column].1, cell)).collect();
        let mut run = |client: &mut Client| {
            client.run(&sql, &values, &mut |cells| {
                each(&row(definition, &columns, &cells, 0)?);
                Ok(())
            })
        };
        // Of a part the statistics know the index.
        if is_all { reading_the_index(&mut self.client, &mut run) } else { run(&mut self.client).map(|_| ()) }
    }
}

impl Session for Connection {
    fn begin(&mut self, only_reads: bool) -> Result<()> {
        self.begun = true;
        self.client.begin(if only_reads { Sees::OneSnapshot } else { Sees::TheNewest })
    }

    fn commit(&mut self) -> Result<()> {
        self.client.say("COMMIT")?;
        self.begun = false;
        Ok(())
    }

    fn rollback(&mut self) {
        if std::mem::take(&mut self.begun) {
            // A connection that is lost fails at its next statement.
            let _ = self.client.say("ROLLBACK");
        }
    }

    fn insert(&mut self, table: Table, rows: &[Row]) -> Result<()> {
        let definition = table.definition();
        if rows.is_empty() {
            return Ok(());
        }
        let all: Vec<usize> = (0..definition.columns.len()).collect();
        let values = format!("({})", repeated("?", all.len()));
        let (name, columns) = (definition.name, names(definition, &all));
        let sql = format!("INSERT INTO {name} ({columns}) VALUES {}", repeated(&values, rows.len()));
        let cells = rows.iter().flat_map(|row| definition.columns.iter().zip(row));
        let arguments: Vec<_> = cells.map(|((_, kind), cell)| argument(*kind, cell)).collect();
        let done = self.client.write(&sql, &arguments)?;
        match done.rows == rows.len() as u64 {
            true => Ok(()),
            false => Err(TargetError::Failed(format!("server: {} rows of {} were inserted", done.rows, rows.len()))),
        }
    }

    fn get(
        &mut self,
        table: Table,
        keys: &[Key],
        columns: &[usize],
        found: &mut dyn FnMut(usize, &[Cell<'_>]),
    ) -> Result<usize> {
        let (definition, mut there) = (table.definition(), 0);
        let last = definition.key - 1;
        for (first, part) in keys.chunks(LIST_MAX).enumerate().map(|(number, part)| (number * LIST_MAX, part)) {
            let is_list = part.len() > 1 && part.iter().all(|key| key[..last] == part[0][..last]);
            if is_list {
                there += self.get_list(definition, part, columns, &mut |place, row| found(first + place, row))?;
                continue;
            }
            for (place, key) in part.iter().enumerate() {
                there += self.get_one(definition, key, columns, &mut |row| found(first + place, row))?;
            }
        }
        Ok(there)
    }

    fn update(&mut self, table: Table, key: Key, change: &mut dyn FnMut(&mut [Cell<'_>])) -> Result<bool> {
        let definition = table.definition();
        let (condition, values) = is(definition, &key);
        let all: Vec<usize> = (0..definition.columns.len()).collect();
        let (name, columns) = (definition.name, names(definition, &all));
        let sql = format!("SELECT {columns} FROM {name}{condition} FOR UPDATE");
        let mut before: Option<Row> = None;
        self.client.run(&sql, &values, &mut |cells| {
            before = Some(row(definition, &all, &cells, 0)?.iter().map(Cell::owned).collect());
            Ok(())
        })?;
        let Some(before) = before else { return Ok(false) };
        let mut after: Vec<Cell<'_>> = before.iter().map(Cell::borrowed).collect();
        change(&mut after);
        let changed: Vec<usize> = all.into_iter().filter(|column| after[*column] != before[*column]).collect();
        if changed.is_empty() {
            return Ok(true);
        }
        let parts: Vec<String> =
            changed.iter().map(|column| format!("{} = ?", definition.columns[*column].0)).collect();
        let sql = format!("UPDATE {name} SET {}{condition}", parts.join(", "));
        let new = changed.iter().map(|column| argument(definition.columns[*column].1, &after[*column]));
        let arguments: Vec<_> = new.chain(values).collect();
        match self.client.write(&sql, &arguments)?.rows {
            1 => Ok(true),
            rows => Err(TargetError::Failed(format!("server: a locked row of {name}, and {rows} were changed"))),
        }
    }

    fn delete(&mut self, table: Table, key: Key) -> Result<bool> {
        let definition = table.definition();
        let (condition, values) = is(definition, &key);
        Ok(self.client.write(&format!("DELETE FROM {}{condition}", definition.name), &values)?.rows == 1)
    }

    fn take_first(&mut self, table: Table, prefix: &[i64]) -> Result<Option<Key>> {
        let definition = table.definition();
        let all: Vec<usize> = (0..definition.key).collect();
        let (condition, values) = within(definition, (prefix, prefix));
        let (name, columns, order) = (definition.name, names(definition, &all), order(definition, &all, false));
        let sql = format!("SELECT {columns} FROM {name}{condition}{order} LIMIT 1 FOR UPDATE");
        let mut first = None;
        self.client.run(&sql, &values, &mut |cells| {
            first = Some(definition.key_of(&row(definition, &all, &cells, 0)?));
            Ok(())
        })?;
        let Some(key) = first else { return Ok(None) };
        match self.delete(table, key)? {
            true => Ok(Some(key)),
            false => Err(TargetError::Failed(format!("server: the locked row {key:?} of {name} is gone"))),
        }
    }

    fn scan(
        &mut self,
        table: Table,
        range: (&[i64], &[i64]),
        columns: &[usize],
        each: &mut dyn FnMut(&[Cell<'_>]),
    ) -> Result<()> {
        let definition = table.definition();
        let (condition, values) = within(definition, range);
        let order = order(definition, &(0..definition.key).collect::<Vec<_>>(), false);
        let sql = format!("SELECT {} FROM {}{condition}{order}", names(definition, columns), definition.name);
        self.client.run(&sql, &values, &mut |cells| {
            each(&row(definition, columns, &cells, 0)?);
            Ok(())
        })?;
        Ok(())
    }

    fn scan_index(&mut self, table: Table, prefix: &[Cell<'_>], each: &mut dyn FnMut(&[Cell<'_>])) -> Result<()> {
        self.entries(table.definition(), prefix, false, each)
    }

    fn last_entry(&mut self, table: Table, prefix: &[Cell<'_>], found: &mut dyn FnMut(&[Cell<'_>])) -> Result<bool> {
        let mut there = false;
        self.entries(table.definition(), prefix, true, &mut |entry| {
            there = true;
            found(entry);
        })?;
        Ok(there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::{order_line, orders};

    #[test]
    fn conditions_on_the_key() {
        let (sql, values) = within(&order_line::DEFINITION, (&[1, 2, 5], &[1, 2, 9]));
        assert_eq!(sql, " WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id >= ? AND ol_o_id <= ?");
        assert_eq!(format!("{values:?}"), "[Number(1), Number(2), Number(5), Number(9)]");
        assert_eq!(within(&order_line::DEFINITION, (&[1, 2], &[1, 2])).0, " WHERE ol_w_id = ? AND ol_d_id = ?");
        let (sql, values) = within(&order_line::DEFINITION, (&[1, 2], &[2, 1]));
        assert_eq!(sql, " WHERE (ol_w_id, ol_d_id) >= (?,?) AND (ol_w_id, ol_d_id) <= (?,?)");
        assert_eq!(values.len(), 4);
        assert_eq!(within(&orders::DEFINITION, (&[], &[])).0, "");
    }

    #[test]
    fn times_have_what_the_version_knows() {
        for (version, kind) in [
            ("5.5.9", "DATETIME"),
            ("5.6.3-m6", "DATETIME"),
            ("5.6.4", "DATETIME(6)"),
            ("9.7.4-2", "DATETIME(6)"),
            ("5.5.68-MariaDB", "DATETIME(6)"),
            ("10.2.11-MariaDB", "DATETIME(6)"),
        ] {
            assert_eq!(time_of(Dialect::MySql, version), kind, "{version}");
        }
    }

    #[test]
    fn tables_are_made_in_both_languages() {
        let (sql, second) = create(Table::Orders, (Dialect::MySql, "9.7.4"), "ENGINE=innodb");
        assert!(
            sql.contains("o_carrier_id INT NULL") && sql.contains("INDEX orders_by (o_w_id, o_d_id, o_c_id, o_id)")
        );
        assert!(sql.contains("o_entry_d DATETIME(6) NOT NULL") && sql.ends_with("ENGINE=innodb") && second.is_none());
        let (sql, second) = create(Table::Customer, (Dialect::Postgres, "15.18"), "");
        assert!(sql.contains("c_data VARCHAR(500) COLLATE \"C\" NOT NULL"), "{sql}");
        assert_eq!(second.unwrap(), "CREATE INDEX customer_by ON customer (c_w_id, c_d_id, c_last, c_first)");
    }
}
