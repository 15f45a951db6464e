//! One connection of either protocol: statements with `?` for their values, sent as text or prepared.
//!
//! What differs between the languages of the servers is asked of [`Client::dialect`]; how bytes travel is in `mysql` and
//! in `postgres`.

use std::fmt::Write as _;

use super::address::Address as Place;
use super::dates;
use super::mysql::{self, MySqlClient};
use super::parameters::Protocol;
use super::postgres::{self, PostgresClient};
use crate::api::{Result, TargetError};

/// Whose SQL a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// MariaDB and MySQL.
    MySql,
    /// PostgreSQL.
    Postgres,
}

/// Where a connection goes.
#[derive(Clone, Debug)]
pub enum Address {
    /// To MariaDB or MySQL.
    MySql(Place),
    /// To PostgreSQL.
    Postgres(Place),
}

/// A value of a statement.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    /// None.
    Null,
    /// A whole number.
    Number(i64),
    /// A FLOAT in hundredths.
    Hundredths(i32),
    /// A text.
    Text(&'a [u8]),
    /// Seconds since 1970, a DATETIME.
    Seconds(i64),
    /// Microseconds since 1970, a DATETIME with six digits.
    Micros(i64),
}

impl Argument<'_> {
    /// As it stands in SQL.
    pub fn write(self, dialect: Dialect, sql: &mut String) -> Result<()> {
        match self {
            Argument::Null => {
                sql.push_str("NULL");
                Ok(())
            }
            Argument::Number(number) => write!(sql, "{number}"),
            Argument::Hundredths(number) => write!(sql, "{}.{:02}", number / 100, number % 100),
            Argument::Text(text) => {
                let text = std::str::from_utf8(text).ok().filter(|text| text.is_ascii());
                let text = text.ok_or_else(|| TargetError::Failed("server: a text that is not ASCII".into()))?;
                sql.push('\'');
                for letter in text.chars() {
                    match letter {
                        '\'' => sql.push('\''),
                        '\\' if dialect == Dialect::MySql => sql.push('\\'),
                        _ => (),
                    }
                    sql.push(letter);
                }
                sql.push('\'');
                Ok(())
            }
            Argument::Seconds(seconds) => {
                let [year, month, day, hour, minute, second] = dates::civil(seconds);
                write!(sql, "'{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}'")
            }
            Argument::Micros(micros) => {
                let [year, month, day, hour, minute, second] = dates::civil(micros.div_euclid(1_000_000));
                let rest = micros.rem_euclid(1_000_000);
                write!(sql, "'{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{rest:06}'")
            }
        }
        .map_err(|_| TargetError::Failed("server: a statement that cannot be written".into()))
    }
}

/// The columns of a row that was found.
pub enum Cells<'a> {
    /// As MariaDB and MySQL send them.
    MySql(&'a mysql::Cells<'a>),
    /// As PostgreSQL sends them.
    Postgres(&'a postgres::Cells<'a>),
}

impl Cells<'_> {
    fn strange(&self, place: usize, wanted: &str) -> TargetError {
        TargetError::Failed(format!("server: column {place} is {:?}, not {wanted}", self.string(place)))
    }

    /// Whether it is NULL.
    pub fn is_null(&self, place: usize) -> bool {
        match self {
            Cells::MySql(row) => row.is_null(place),
            Cells::Postgres(row) => row.is_null(place),
        }
    }

    /// A whole number, in whatever form it comes.
    pub fn number(&self, place: usize) -> Result<i64> {
        let number = match self {
            Cells::MySql(row) => row.number(place),
            Cells::Postgres(row) => row.number(place),
        };
        number.ok_or_else(|| self.strange(place, "a whole number"))
    }

    /// A column of 32 bits.
    pub fn small(&self, place: usize) -> Result<i32> {
        i32::try_from(self.number(place)?).map_err(|_| self.strange(place, "a number of 32 bits"))
    }

    /// A FLOAT in hundredths, in whatever form it comes.
    pub fn hundredths(&self, place: usize) -> Result<i32> {
        let number = match self {
            Cells::MySql(row) => row.float(place),
            Cells::Postgres(row) => row.float(place),
        };
        let hundredths =
            number.map(|number| (number * 100.0).round()).filter(|number| number.abs() < f64::from(i32::MAX));
        hundredths.map(|number| number as i32).ok_or_else(|| self.strange(place, "a FLOAT"))
    }

    /// A text.
    pub fn text(&self, place: usize) -> Result<&[u8]> {
        let text = match self {
            Cells::MySql(row) => row.text(place),
            Cells::Postgres(row) => row.text(place),
        };
        text.ok_or_else(|| self.strange(place, "a text"))
    }

    /// A text as a string, for what the server says about itself.
    pub fn string(&self, place: usize) -> String {
        match self {
            Cells::MySql(row) => row.string(place),
            Cells::Postgres(row) => row.string(place),
        }
    }

    /// A DATETIME as seconds since 1970.
    pub fn seconds(&self, place: usize) -> Result<i64> {
        Ok(self.micros(place)?.div_euclid(1_000_000))
    }

    /// A DATETIME as microseconds since 1970.
    pub fn micros(&self, place: usize) -> Result<i64> {
        let micros = match self {
            Cells::MySql(row) => row.micros(place),
            Cells::Postgres(row) => row.micros(place),
        };
        micros.ok_or_else(|| self.strange(place, "a DATETIME"))
    }
}

/// What a statement that writes did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows written; of an UPDATE those that its condition found.
    pub rows: u64,
    /// The first number that AUTO_INCREMENT handed out; PostgreSQL says it in a row.
    pub first_key: Option<u64>,
}

/// What a transaction sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// One snapshot, and it writes nothing.
    OneSnapshot,
    /// One snapshot with plain reads; it writes too.
    OneSnapshotAndWrites,
    /// The newest rows where the server can; it writes.
    TheNewest,
}

/// A connection.
pub enum Client {
    /// To MariaDB or MySQL.
    MySql(Box<MySqlClient>),
    /// To PostgreSQL.
    Postgres(Box<PostgresClient>),
}

impl Client {
    /// Connects.
    pub fn open(address: &Address, protocol: Protocol) -> Result<Client> {
        match address {
            Address::MySql(address) => Ok(Client::MySql(Box::new(MySqlClient::open(address, protocol)?))),
            Address::Postgres(address) => Ok(Client::Postgres(Box::new(PostgresClient::open(address, protocol)?))),
        }
    }

    /// Whose SQL it speaks.
    pub fn dialect(&self) -> Dialect {
        match self {
            Client::MySql(_) => Dialect::MySql,
            Client::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Runs a statement; `each` gets the rows that it finds.
    pub fn run(
        &mut self,
        sql: &str,
        arguments: &[Argument<'_>],
        each: &mut dyn FnMut(Cells<'_>) -> Result<()>,
    ) -> Result<Done> {
        match self {
            Client::MySql(client) => client.run(sql, arguments, each),
            Client::Postgres(client) => client.run(sql, arguments, each),
        }
    }

    /// The same as text whatever the protocol is, where a server of the family of MySQL does not prepare it well.
    pub fn run_as_text_on_mysql(
        &mut self,
        sql: &str,
        arguments: &[Argument<'_>],
        each: &mut dyn FnMut(Cells<'_>) -> Result<()>,
    ) -> Result<Done> {
        match self {
            Client::MySql(client) => client.run_text(sql, arguments, each),
            Client::Postgres(client) => client.run(sql, arguments, each),
        }
    }

    /// Runs a statement that finds no rows.
    pub fn write(&mut self, sql: &str, arguments: &[Argument<'_>]) -> Result<Done> {
        self.run(sql, arguments, &mut |_| Ok(()))
    }

    /// Runs a statement as text whatever the protocol is: of transactions, definitions and administration.
    pub fn say(&mut self, sql: &str) -> Result<()> {
        self.ask(sql, &mut |_| Ok(()))
    }

    /// The rows of such a statement.
    pub fn ask(&mut self, sql: &str, each: &mut dyn FnMut(Cells<'_>) -> Result<()>) -> Result<()> {
        match self {
            Client::MySql(client) => client.ask(sql, each),
            Client::Postgres(client) => client.ask(sql, each),
        }
    }

    /// Begins a transaction. Connections of MariaDB and MySQL are at REPEATABLE READ, whose locking reads and writes see
    /// the newest rows all the same; PostgreSQL's refuse them, so that it has a level for each.
    pub fn begin(&mut self, sees: Sees) -> Result<()> {
        let sql = match (self.dialect(), sees) {
            (Dialect::MySql, _) | (Dialect::Postgres, Sees::TheNewest) => "BEGIN",
            (Dialect::Postgres, Sees::OneSnapshot) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            (Dialect::Postgres, Sees::OneSnapshotAndWrites) => "BEGIN ISOLATION LEVEL REPEATABLE READ",
        };
        self.say(sql)
    }

    /// The first column of the first row, if there is one that is not NULL.
    pub fn value(&mut self, sql: &str) -> Result<Option<String>> {
        let mut value = None;
        self.ask(sql, &mut |row| {
            if value.is_none() && !row.is_null(0) {
                value = Some(row.string(0));
            }
            Ok(())
        })?;
        Ok(value)
    }
}

/// Puts the values into a statement.
pub fn fill_in(dialect: Dialect, sql: &str, arguments: &[Argument<'_>], out: &mut String) -> Result<()> {
    out.clear();
    let mut arguments = arguments.iter();
    for (place, piece) in sql.split('?').enumerate() {
        if place > 0 {
            let argument = arguments.next().ok_or_else(|| TargetError::Failed("server: a value is missing".into()))?;
            argument.write(dialect, out)?;
        }
        out.push_str(piece);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_into_the_text() {
        let mut sql = String::new();
        let arguments = [Argument::Number(-5), Argument::Text(b"it's a \\"), Argument::Seconds(1_700_000_000)];
        let statement = "INSERT INTO t VALUES (?, ?, ?)";
        fill_in(Dialect::MySql, statement, &arguments, &mut sql).unwrap();
        assert_eq!(sql, r"INSERT INTO t VALUES (-5, 'it''s a \\', '2023-11-14 22:13:20')");
        fill_in(Dialect::Postgres, statement, &arguments, &mut sql).unwrap();
        assert_eq!(sql, r"INSERT INTO t VALUES (-5, 'it''s a \', '2023-11-14 22:13:20')");
        fill_in(Dialect::MySql, "? ?", &[Argument::Null, Argument::Micros(-1)], &mut sql).unwrap();
        assert_eq!(sql, "NULL '1969-12-31 23:59:59.999999'");
        fill_in(Dialect::Postgres, "?", &[Argument::Hundredths(100_405)], &mut sql).unwrap();
        assert_eq!(sql, "1004.05");
        assert!(fill_in(Dialect::MySql, "?", &[], &mut sql).is_err());
        assert!(fill_in(Dialect::MySql, "?", &[Argument::Text(b"\xff")], &mut sql).is_err());
    }
}
