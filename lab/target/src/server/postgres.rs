//! A connection to PostgreSQL: simple queries as text, or statements that are prepared once a connection, with values in
//! binary.
//!
//! `wire` owns the bytes and who may connect, `values` the forms of values; `admin` is what the target does beside the
//! workloads, `private` a server of the run's own.

pub mod admin;
pub mod private;
mod values;
mod wire;

use std::collections::HashMap;

use fallible_iterator::FallibleIterator;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::{DataRowBody, Message};
use postgres_protocol::message::frontend;

use super::address::Address;
use super::client::{Argument, Cells as AnyCells, Dialect, Done, fill_in};
use super::mysql::{GONE, NO_SPACE};
use super::parameters::Protocol;
use crate::api::{Result, TargetError};
pub use values::Cells;
use wire::{Complaint, Wire};

/// What every connection begins with. Indexes are forced as far as the server lets itself be: what an index serves is not
/// read by scans of the whole table or by bitmaps, however small the table is.
const FIRST: &str = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                     SET standard_conforming_strings = on; SET datestyle = 'ISO'; SET client_min_messages = error; \
                     SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off";
/// A conflict with another transaction, a deadlock, a lock wait: the transaction can be run again.
const RETRYABLE: [&str; 3] = ["40001", "40P01", "55P03"];

/// A statement that the server knows.
struct Prepared {
    name: String,
    parameters: Vec<u32>,
    columns: Vec<u32>,
}

/// A connection.
pub struct PostgresClient {
    wire: Wire,
    protocol: Protocol,
    prepared: HashMap<String, Prepared>,
    sql: String,
}

/// An error that the server told.
fn wrong(complaint: &Complaint) -> TargetError {
    let Complaint { code, message } = complaint;
    match code.as_str() {
        "40001" => TargetError::Retry(format!("server: {code} conflict: {message}")),
        code if RETRYABLE.contains(&code) => TargetError::Retry(format!("server: {code} {message}")),
        "53100" => TargetError::Failed(format!("server: {code} {message}{NO_SPACE}")),
        // An administrator, a crash of another connection, a start.
        "57P01" | "57P02" | "57P03" => TargetError::Failed(format!("server: {code} {message}: {GONE}")),
        _ => TargetError::Failed(format!("server: {code} {message}")),
    }
}

fn lost(error: std::io::Error) -> TargetError {
    TargetError::Failed(format!("server: {GONE} ({error})"))
}

/// `?` as `$1`, `$2`, …
fn numbered(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len() + 16);
    for (place, piece) in sql.split('?').enumerate() {
        if place > 0 {
            out.push('$');
            out.push_str(&place.to_string());
        }
        out.push_str(piece);
    }
    out
}

impl PostgresClient {
    /// Connects.
    pub fn open(address: &Address, protocol: Protocol) -> Result<PostgresClient> {
        let wire = Wire::open(address)?;
        let mut client = PostgresClient { wire, protocol, prepared: HashMap::new(), sql: String::new() };
        client.ask(FIRST, &mut |_| Ok(()))?;
        Ok(client)
    }

    /// Runs a statement; `each` gets the rows that it finds.
    pub fn run(
        &mut self,
        sql: &str,
        arguments: &[Argument<'_>],
        each: &mut dyn FnMut(AnyCells<'_>) -> Result<()>,
    ) -> Result<Done> {
        if self.protocol == Protocol::Text {
            let mut text = std::mem::take(&mut self.sql);
            let done = fill_in(Dialect::Postgres, sql, arguments, &mut text).and_then(|()| self.query(&text, each));
            self.sql = text;
            return done;
        }
        if !self.prepared.contains_key(sql) {
            self.prepare(sql)?;
        }
        let prepared = &self.prepared[sql];
        let types = prepared.parameters.iter().copied();
        if types.len() != arguments.len() {
            return Err(TargetError::Failed(format!("server: {} values for `{sql}`", arguments.len())));
        }
        let values = types.zip(arguments.iter().copied());
        let bound = frontend::bind(
            "",
            &prepared.name,
            [1],
            values,
            |(kind, argument), out| values::write(kind, argument, out),
            [1],
            &mut self.wire.output,
        );
        if bound.is_err() {
            self.wire.output.clear();
            return Err(TargetError::Failed(format!("server: a value does not fit into `{sql}`")));
        }
        frontend::execute("", 0, &mut self.wire.output).map_err(lost)?;
        frontend::sync(&mut self.wire.output);
        self.wire.send().map_err(lost)?;
        answer(&mut self.wire, Some(&prepared.columns), each)
    }

    /// The rows of a statement of administration.
    pub fn ask(&mut self, sql: &str, each: &mut dyn FnMut(AnyCells<'_>) -> Result<()>) -> Result<()> {
        self.query(sql, each).map(|_| ())
    }

    fn query(&mut self, sql: &str, each: &mut dyn FnMut(AnyCells<'_>) -> Result<()>) -> Result<Done> {
        frontend::query(sql, &mut self.wire.output).map_err(lost)?;
        self.wire.send().map_err(lost)?;
        answer(&mut self.wire, None, each)
    }

    fn prepare(&mut self, sql: &str) -> Result<()> {
        let name = format!("s{}", self.prepared.len());
        frontend::parse(&name, &numbered(sql), [], &mut self.wire.output).map_err(lost)?;
        frontend::describe(b'S', &name, &mut self.wire.output).map_err(lost)?;
        frontend::sync(&mut self.wire.output);
        self.wire.send().map_err(lost)?;
        let (mut parameters, mut columns, mut problem) = (Vec::new(), Vec::new(), None);
        loop {
            match self.wire.receive().map_err(lost)? {
                Message::ParameterDescription(body) => parameters = body.parameters().collect().map_err(lost)?,
                Message::RowDescription(body) => {
                    columns = body.fields().map(|field| Ok(field.type_oid())).collect().map_err(lost)?;
                }
                Message::ErrorResponse(body) => problem = Some(wrong(&Complaint::of(&body))),
                Message::ReadyForQuery(_) => break,
                _ => (),
            }
        }
        if let Some(problem) = problem {
            return Err(problem);
        }
        self.prepared.insert(sql.to_owned(), Prepared { name, parameters, columns });
        Ok(())
    }
}

/// Reads the answer to its end, whatever goes wrong on the way. `columns` are the types of values in binary; without them
/// they are texts.
fn answer(wire: &mut Wire, columns: Option<&[u32]>, each: &mut dyn FnMut(AnyCells<'_>) -> Result<()>) -> Result<Done> {
    let (mut done, mut problem, mut ranges, mut told) = (Done::default(), None, Vec::new(), Vec::new());
    loop {
        match wire.receive().map_err(lost)? {
            Message::DataRow(row) if problem.is_none() => {
                let types = columns.map_or((told.as_slice(), false), |columns| (columns, true));
                problem = hand(&row, types, &mut ranges, each).err();
            }
            Message::RowDescription(body) if columns.is_none() => {
                told = body.fields().map(|field| Ok(field.type_oid())).collect().map_err(lost)?;
            }
            Message::CommandComplete(body) => {
                let tag = body.tag().map_err(lost)?;
                done.rows = tag.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
            }
            Message::ErrorResponse(body) => {
                problem.get_or_insert(wrong(&Complaint::of(&body)));
            }
            Message::ReadyForQuery(_) => break,
            _ => (),
        }
    }
    problem.map_or(Ok(done), Err)
}

fn hand(
    row: &DataRowBody,
    (types, binary): (&[u32], bool),
    ranges: &mut Vec<Option<std::ops::Range<usize>>>,
    each: &mut dyn FnMut(AnyCells<'_>) -> Result<()>,
) -> Result<()> {
    ranges.clear();
    let mut all = row.ranges();
    while let Some(range) = all.next().map_err(lost)? {
        ranges.push(range);
    }
    each(AnyCells::Postgres(&Cells { buffer: row.buffer(), ranges, types, binary }))
}

/// Of [`values::write`].
type Written = std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is let in by which password, however the server keeps it.
    #[test]
    fn postgres_lets_in_by_password() {
        if std::env::var_os("TREFOIL_POSTGRES").is_none() {
            return;
        }
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let (rules, cnf) = (dir.path().join("hba"), dir.path().join("cnf"));
        let lines = [("scram", "scram-sha-256"), ("hashed", "md5"), ("clear", "password"), ("lab", "trust")];
        let text: String = lines.iter().map(|(role, how)| format!("local all {role} {how}\n")).collect();
        std::fs::write(&rules, text).unwrap();
        std::fs::write(&cnf, format!("hba_file = '{}'\n", rules.display())).unwrap();
        let spec = format!("server:postgres?cnf={}", cnf.display());
        let parameters = super::super::Parameters::parse(crate::TargetSpec::parse(&spec).unwrap()).unwrap();
        let setup = crate::Setup {
            dir: dir.path().into(),
            durability: crate::Durability::Write,
            budget_bytes: Some(32 << 20),
            io: None,
            compression: None,
            disk: crate::DiskLimits::default(),
            seed: 1,
            price: crate::Price::Int,
        };
        let (mut private, address, mut client) = admin::start(&parameters, &setup).unwrap();
        client.say("CREATE ROLE scram LOGIN PASSWORD 'a:b@c'; CREATE ROLE clear LOGIN PASSWORD 'a:b@c'").unwrap();
        client.say("SET password_encryption = md5; CREATE ROLE hashed LOGIN PASSWORD 'a:b@c'").unwrap();
        let super::super::client::Address::Postgres(address) = address else { panic!("it is PostgreSQL") };
        for (role, _) in &lines[..3] {
            let with = |password: Option<&str>| {
                let password = password.map(|text| crate::secret::Secret(text.to_owned()));
                let address = Address { user: (*role).into(), password, ..address.clone() };
                PostgresClient::open(&address, Protocol::Prepared)
            };
            assert!(with(Some("a:b@c")).is_ok(), "{role}");
            for wrong in [with(Some("wrong")), with(None)] {
                let complaint = wrong.err().unwrap().to_string();
                assert!(complaint.contains("denies access") && complaint.contains("pgpass"), "{role}: {complaint}");
            }
        }
        drop(client);
        private.stop().unwrap();
    }

    #[test]
    fn places_of_values_are_numbered() {
        assert_eq!(numbered("SELECT 1"), "SELECT 1");
        assert_eq!(numbered("? + ?, (?)"), "$1 + $2, ($3)");
    }

    #[test]
    fn errors_that_may_be_tried_again_are_told_apart() {
        let of = |code: &str| wrong(&Complaint { code: code.into(), message: "could not".into() });
        assert!(matches!(of("40001"), TargetError::Retry(why) if why.contains("conflict")));
        assert!(matches!(of("40P01"), TargetError::Retry(_)) && matches!(of("55P03"), TargetError::Retry(_)));
        assert!(matches!(of("23505"), TargetError::Failed(_)));
        assert!(of("53100").to_string().contains("make room") && of("57P01").to_string().contains("gone"));
    }
}
