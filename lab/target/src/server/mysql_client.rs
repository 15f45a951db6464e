//! A connection to MariaDB or MySQL.

use std::collections::HashMap;

use mysql::consts::CapabilityFlags;
use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder, Params, QueryResult, Statement, Value};

use super::client::{Argument, Cells, Dialect, Done, fill_in};
use super::dates;
use super::parameters::Protocol;
use crate::api::{Result, TargetError};

/// A deadlock, a lock wait, a row that has changed since the snapshot: the transaction can be run again.
const RETRYABLE: [u16; 3] = [1213, 1205, 1020];
/// What every connection begins with. The texts of all workloads are ASCII, and their tables latin1.
const FIRST: [&str; 3] = [
    "SET NAMES latin1",
    "SET SESSION autocommit = 1, sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO'",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
];

/// An error of the server or of the connection.
fn wrong(error: mysql::Error) -> TargetError {
    match error {
        mysql::Error::MySqlError(error) if RETRYABLE.contains(&error.code) => {
            TargetError::Retry(format!("server: {} {}", error.code, error.message))
        }
        mysql::Error::MySqlError(error) => {
            let remedy = if error.code == 1114 || error.message.contains("No space left") { NO_SPACE } else { "" };
            TargetError::Failed(format!("server: {} {}{remedy}", error.code, error.message))
        }
        mysql::Error::IoError(error) => TargetError::Failed(format!("server: {GONE} ({error})")),
        mysql::Error::CodecError(error) => TargetError::Failed(format!("server: {GONE} ({error})")),
        other => TargetError::Failed(format!("server: {other}")),
    }
}

/// Of a connection that ended by itself.
pub const GONE: &str = "the connection was lost: the server is gone, its log says why; what is finished is kept, and \
                        --resume goes on";
/// Of a full disk.
pub const NO_SPACE: &str = "; the server's disk is full: make room or give --dir on another one, then --resume";

/// Why there is no connection, and what to do.
pub fn unreachable(opts: &Opts, error: mysql::Error) -> TargetError {
    let place = match opts.get_socket() {
        Some(socket) => format!("the socket {socket}"),
        None => format!("{}:{}", opts.get_ip_or_hostname(), opts.get_tcp_port()),
    };
    TargetError::Failed(match error {
        mysql::Error::MySqlError(error) => match error.code {
            1044 | 1045 | 1698 => format!(
                "the server at {place} denies access ({}); user and password stand in the target: \
                 mysql://user:password@host/database",
                error.message
            ),
            1049 => format!("the server at {place}: {}; CREATE DATABASE makes it", error.message),
            _ => format!("the server at {place}: {} {}", error.code, error.message),
        },
        other => format!(
            "no server answers at {place}, or not as it is asked ({other}); start it, or let the lab start one: \
             server:mariadb?engine=innodb"
        ),
    })
}

fn value_of(argument: Argument<'_>) -> Value {
    let date = |seconds: i64, micros: i64| {
        let [year, month, day, hour, minute, second] = dates::civil(seconds);
        Value::Date(year as u16, month as u8, day as u8, hour as u8, minute as u8, second as u8, micros as u32)
    };
    match argument {
        Argument::Null => Value::NULL,
        Argument::Number(number) => Value::Int(number),
        Argument::Hundredths(number) => Value::Float((f64::from(number) / 100.0) as f32),
        Argument::Text(text) => Value::Bytes(text.to_vec()),
        Argument::Seconds(seconds) => date(seconds, 0),
        Argument::Micros(micros) => date(micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000)),
    }
}

/// A connection.
pub struct MySqlClient {
    connection: Conn,
    protocol: Protocol,
    prepared: HashMap<String, Statement>,
    sql: String,
}

impl MySqlClient {
    /// Connects.
    pub fn open(opts: &Opts, protocol: Protocol) -> mysql::Result<MySqlClient> {
        let opts = OptsBuilder::from_opts(opts.clone())
            .prefer_socket(false)
            .stmt_cache_size(0)
            .additional_capabilities(CapabilityFlags::CLIENT_FOUND_ROWS)
            .init(FIRST.to_vec());
        Ok(MySqlClient { connection: Conn::new(opts)?, protocol, prepared: HashMap::new(), sql: String::new() })
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
                    arguments => Params::Positional(arguments.iter().map(|argument| value_of(*argument)).collect()),
                };
                let statement = &self.prepared[sql];
                drain(self.connection.exec_iter(statement, parameters).map_err(wrong)?, each)
            }
        }
    }

    /// The same as text whatever the protocol is.
    pub fn run_text(
        &mut self,
        sql: &str,
        arguments: &[Argument<'_>],
        each: &mut dyn FnMut(Cells<'_>) -> Result<()>,
    ) -> Result<Done> {
        fill_in(Dialect::MySql, sql, arguments, &mut self.sql)?;
        drain(self.connection.query_iter(&self.sql).map_err(wrong)?, each)
    }

    /// The rows of a statement of administration.
    pub fn ask(&mut self, sql: &str, each: &mut dyn FnMut(Cells<'_>) -> Result<()>) -> Result<()> {
        drain(self.connection.query_iter(sql).map_err(wrong)?, each).map(|_| ())
    }
}

fn drain<P: mysql::prelude::Protocol>(
    mut result: QueryResult<'_, '_, '_, P>,
    each: &mut dyn FnMut(Cells<'_>) -> Result<()>,
) -> Result<Done> {
    let done = Done { rows: result.affected_rows(), first_key: result.last_insert_id().filter(|key| *key > 0) };
    for row in result.by_ref() {
        each(Cells::MySql(&row.map_err(wrong)?))?;
    }
    Ok(done)
}
