//! One connection: statements with `?` for their values, sent in one of the two protocols.

use std::collections::HashMap;
use std::fmt::Write as _;

use mysql::consts::CapabilityFlags;
use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder, Params, QueryResult, Row, Statement, Value};

use super::dates;
use super::parameters::Protocol;
use crate::api::{Result, TargetError};

/// A deadlock, a lock wait, a row that has changed since the snapshot: the transaction can be run again.
const RETRYABLE: [u16; 3] = [1213, 1205, 1020];
/// What every connection begins with. The texts of both workloads are ASCII, and their tables latin1.
const FIRST: [&str; 3] = [
    "SET NAMES latin1",
    "SET SESSION autocommit = 1, sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO'",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
];

/// An error of the server or of the connection.
pub fn wrong(error: mysql::Error) -> TargetError {
    match error {
        mysql::Error::MySqlError(error) if RETRYABLE.contains(&error.code) => {
            TargetError::Retry(format!("server: {} {}", error.code, error.message))
        }
        mysql::Error::MySqlError(error) => TargetError::Failed(format!("server: {} {}", error.code, error.message)),
        other => TargetError::Failed(format!("server: {other}")),
    }
}

/// A value of a statement.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    /// A whole number.
    Number(i64),
    /// A text.
    Text(&'a [u8]),
    /// Seconds since 1970, a DATETIME.
    Seconds(i64),
}

impl Argument<'_> {
    fn value(self) -> Value {
        match self {
            Argument::Number(number) => Value::Int(number),
            Argument::Text(text) => Value::Bytes(text.to_vec()),
            Argument::Seconds(seconds) => {
                let [year, month, day, hour, minute, second] = dates::civil(seconds);
                Value::Date(year as u16, month as u8, day as u8, hour as u8, minute as u8, second as u8, 0)
            }
        }
    }

    fn write(self, sql: &mut String) -> Result<()> {
        match self {
            Argument::Number(number) => write!(sql, "{number}"),
            Argument::Text(text) => {
                let text = std::str::from_utf8(text).ok().filter(|text| text.is_ascii());
                let text = text.ok_or_else(|| TargetError::Failed("server: a text that is not ASCII".into()))?;
                sql.push('\'');
                for letter in text.chars() {
                    if matches!(letter, '\'' | '\\') {
                        sql.push('\\');
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
        }
        .map_err(|_| TargetError::Failed("server: a statement that cannot be written".into()))
    }
}

/// The columns of a row that was found.
pub struct Cells<'a>(&'a Row);

impl Cells<'_> {
    fn cell(&self, place: usize) -> &Value {
        self.0.as_ref(place).unwrap_or(&Value::NULL)
    }

    fn strange(&self, place: usize, wanted: &str) -> TargetError {
        TargetError::Failed(format!("server: column {place} is {:?}, not {wanted}", self.cell(place)))
    }

    /// Whether it is NULL.
    pub fn is_null(&self, place: usize) -> bool {
        *self.cell(place) == Value::NULL
    }

    /// A whole number, in whatever form it comes.
    pub fn number(&self, place: usize) -> Result<i64> {
        let number = match self.cell(place) {
            Value::Int(number) => Some(*number),
            Value::UInt(number) => i64::try_from(*number).ok(),
            Value::Bytes(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
            _ => None,
        };
        number.ok_or_else(|| self.strange(place, "a whole number"))
    }

    /// A column of 32 bits.
    pub fn small(&self, place: usize) -> Result<i32> {
        i32::try_from(self.number(place)?).map_err(|_| self.strange(place, "a number of 32 bits"))
    }

    /// A text.
    pub fn text(&self, place: usize) -> Result<&[u8]> {
        match self.cell(place) {
            Value::Bytes(text) => Ok(text),
            _ => Err(self.strange(place, "a text")),
        }
    }

    /// A text as a string, for what the server says about itself.
    pub fn string(&self, place: usize) -> String {
        match self.cell(place) {
            Value::Bytes(text) => String::from_utf8_lossy(text).into_owned(),
            Value::Int(number) => number.to_string(),
            Value::UInt(number) => number.to_string(),
            _ => String::new(),
        }
    }

    /// A DATETIME as seconds since 1970.
    pub fn seconds(&self, place: usize) -> Result<i64> {
        let seconds = match self.cell(place) {
            Value::Date(year, month, day, hour, minute, second, _) => {
                let small = [*month, *day, *hour, *minute, *second].map(i64::from);
                Some(dates::seconds([i64::from(*year), small[0], small[1], small[2], small[3], small[4]]))
            }
            Value::Bytes(text) => dates::parse(text),
            _ => None,
        };
        seconds.ok_or_else(|| self.strange(place, "a DATETIME"))
    }
}

/// What a statement that writes did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows written; of an UPDATE those that its condition found.
    pub rows: u64,
    /// The first number that AUTO_INCREMENT handed out.
    pub first_key: Option<u64>,
}

/// A connection.
pub struct Client {
    connection: Conn,
    protocol: Protocol,
    prepared: HashMap<String, Statement>,
    sql: String,
}

impl Client {
    /// Connects.
    pub fn open(opts: &Opts, protocol: Protocol) -> mysql::Result<Client> {
        let opts = OptsBuilder::from_opts(opts.clone())
            .prefer_socket(false)
            .stmt_cache_size(0)
            .additional_capabilities(CapabilityFlags::CLIENT_FOUND_ROWS)
            .init(FIRST.to_vec());
        Ok(Client { connection: Conn::new(opts)?, protocol, prepared: HashMap::new(), sql: String::new() })
    }

    /// Runs a statement; `each` gets the rows that it finds.
    pub fn run(
        &mut self,
        sql: &str,
        arguments: &[Argument<'_>],
        each: &mut dyn FnMut(Cells<'_>) -> Result<()>,
    ) -> Result<Done> {
        match self.protocol {
            Protocol::Text => self.run_text(sql, arguments, each),
            Protocol::Prepared => {
                if !self.prepared.contains_key(sql) {
                    let statement = self.connection.prep(sql).map_err(wrong)?;
                    self.prepared.insert(sql.to_owned(), statement);
                }
                let parameters = match arguments {
                    [] => Params::Empty,
                    arguments => Params::Positional(arguments.iter().map(|argument| argument.value()).collect()),
                };
                let statement = &self.prepared[sql];
                drain(self.connection.exec_iter(statement, parameters).map_err(wrong)?, each)
            }
        }
    }

    /// The same as text whatever the protocol is, for what a server does not prepare well.
    pub fn run_text(
        &mut self,
        sql: &str,
        arguments: &[Argument<'_>],
        each: &mut dyn FnMut(Cells<'_>) -> Result<()>,
    ) -> Result<Done> {
        fill_in(sql, arguments, &mut self.sql)?;
        drain(self.connection.query_iter(&self.sql).map_err(wrong)?, each)
    }

    /// Runs a statement that finds no rows.
    pub fn write(&mut self, sql: &str, arguments: &[Argument<'_>]) -> Result<Done> {
        self.run(sql, arguments, &mut |_| Ok(()))
    }

    /// Runs a statement as text whatever the protocol is: of transactions, definitions and administration.
    pub fn say(&mut self, sql: &str) -> Result<()> {
        self.connection.query_drop(sql).map_err(wrong)
    }

    /// The rows of such a statement.
    pub fn ask(&mut self, sql: &str, each: &mut dyn FnMut(Cells<'_>) -> Result<()>) -> Result<()> {
        drain(self.connection.query_iter(sql).map_err(wrong)?, each).map(|_| ())
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
fn fill_in(sql: &str, arguments: &[Argument<'_>], out: &mut String) -> Result<()> {
    out.clear();
    let mut arguments = arguments.iter();
    for (place, piece) in sql.split('?').enumerate() {
        if place > 0 {
            let argument = arguments.next().ok_or_else(|| TargetError::Failed("server: a value is missing".into()))?;
            argument.write(out)?;
        }
        out.push_str(piece);
    }
    Ok(())
}

fn drain<P: mysql::prelude::Protocol>(
    mut result: QueryResult<'_, '_, '_, P>,
    each: &mut dyn FnMut(Cells<'_>) -> Result<()>,
) -> Result<Done> {
    let done = Done { rows: result.affected_rows(), first_key: result.last_insert_id().filter(|key| *key > 0) };
    for row in result.by_ref() {
        each(Cells(&row.map_err(wrong)?))?;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_into_the_text() {
        let mut sql = String::new();
        let arguments = [Argument::Number(-5), Argument::Text(b"it's a \\"), Argument::Seconds(1_700_000_000)];
        fill_in("INSERT INTO t VALUES (?, ?, ?)", &arguments, &mut sql).unwrap();
        assert_eq!(sql, r"INSERT INTO t VALUES (-5, 'it\'s a \\', '2023-11-14 22:13:20')");
        assert!(fill_in("?", &[], &mut sql).is_err());
        assert!(fill_in("?", &[Argument::Text(b"\xff")], &mut sql).is_err());
    }
}
