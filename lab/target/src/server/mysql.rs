//! A connection to MariaDB or MySQL: statements as text, or prepared once a connection, with values in binary.
//!
//! `wire` owns the bytes, `enter` who is let in, `values` the forms of values. The messages of the beginning are those of
//! `mysql_common`; the rest is spoken here, so that a statement costs the client little: one write, one wait and one read, no
//! allocation for a row or a value, and the columns of a prepared statement are described once where the server can leave them
//! out later, which MariaDB can.

mod enter;
mod values;
mod wire;

use std::collections::HashMap;
use std::io;
use std::ops::Range;

use super::address::Address;
use super::client::{Argument, Cells as AnyCells, Dialect, Done, fill_in};
use super::parameters::Protocol;
use crate::api::{Result, TargetError};
pub use values::Cells;
use values::Column;
use wire::{Left, Wire, short};

/// A deadlock, a lock wait, a row that has changed since the snapshot: the transaction can be run again.
const RETRYABLE: [u16; 3] = [1213, 1205, 1020];
/// What every connection begins with. The texts of all workloads are ASCII, and their tables latin1.
const FIRST: [&str; 3] = [
    "SET NAMES latin1",
    "SET SESSION autocommit = 1, sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO'",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
];

/// Commands to the server.
const QUIT: u8 = 0x01;
const QUERY: u8 = 0x03;
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;
/// First bytes of answers; anything else is the number of columns, or a row.
const OK: u8 = 0x00;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;
/// A row may begin as the end of rows does, but then it is longer.
const END_BYTES: usize = 8;
/// Of the state of a connection: the statement has another answer.
const MORE_RESULTS: u16 = 0x0008;

/// Of a connection that ended by itself.
pub const GONE: &str = "the connection was lost: the server is gone, its log says why; what is finished is kept, and \
                        --resume goes on";
/// Of a full disk.
pub const NO_SPACE: &str = "; the server's disk is full: make room or give --dir on another one, then --resume";

/// Why there is no answer, or nobody is let in.
#[derive(Debug)]
pub enum Refusal {
    /// The connection ended, or what came is no answer.
    Lost(io::Error),
    /// The server says so.
    Told {
        /// The number of the error.
        code: u16,
        /// In words.
        message: String,
    },
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal::Lost(error)
    }
}

impl Refusal {
    /// A payload that is no error.
    fn unless_told(payload: &[u8]) -> std::result::Result<&[u8], Refusal> {
        match *payload {
            [] => Err(short().into()),
            [ERROR, low, high, ref message @ ..] => {
                // A state of five letters may stand before the words.
                let words = if message.first() == Some(&b'#') { message.get(6..).unwrap_or_default() } else { message };
                let message = String::from_utf8_lossy(words).into_owned();
                Err(Refusal::Told { code: u16::from_le_bytes([low, high]), message })
            }
            _ => Ok(payload),
        }
    }

    /// Of a statement.
    fn of_statement(self) -> TargetError {
        match self {
            Refusal::Lost(error) => TargetError::Failed(format!("server: {GONE} ({error})")),
            Refusal::Told { code, message } if RETRYABLE.contains(&code) => {
                TargetError::Retry(format!("server: {code} {message}"))
            }
            Refusal::Told { code, message } => {
                let remedy = if code == 1114 || message.contains("No space left") { NO_SPACE } else { "" };
                TargetError::Failed(format!("server: {code} {message}{remedy}"))
            }
        }
    }

    /// Why there is no connection, and what to do.
    fn of_connection(self, address: &Address) -> TargetError {
        let place = match &address.socket {
            Some(socket) => format!("the socket {}", socket.display()),
            None => format!("{}:{}", address.host, address.port),
        };
        TargetError::Failed(match self {
            Refusal::Told { code: 1044 | 1045 | 1698, message } => format!(
                "the server at {place} denies access ({message}); user and password stand in the target: \
                 mysql://user:password@host/database"
            ),
            Refusal::Told { code: 1049, message } => {
                format!("the server at {place}: {message}; CREATE DATABASE makes it")
            }
            Refusal::Told { code, message } => format!("the server at {place}: {code} {message}"),
            Refusal::Lost(error) => format!(
                "no server answers at {place}, or not as it is asked ({error}); start it, or let the lab start one: \
                 server:mariadb?engine=innodb or server:mysql?engine=innodb"
            ),
        })
    }
}

fn lost(error: io::Error) -> TargetError {
    Refusal::Lost(error).of_statement()
}

/// A statement that the server knows.
struct Prepared {
    number: u32,
    parameters: usize,
    columns: Vec<Column>,
    /// Types of the arguments that it was given last.
    kinds: Vec<u8>,
}

/// A connection.
pub struct MySqlClient {
    wire: Wire,
    protocol: Protocol,
    prepared: HashMap<String, Prepared>,
    sql: String,
    /// Of the answer to a text.
    columns: Vec<Column>,
    ranges: Vec<Option<Range<usize>>>,
}

impl MySqlClient {
    /// Connects.
    pub fn open(address: &Address, protocol: Protocol) -> Result<MySqlClient> {
        let wire = enter::open(address).map_err(|refusal| refusal.of_connection(address))?;
        let mut client = MySqlClient {
            wire,
            protocol,
            prepared: HashMap::new(),
            sql: String::new(),
            columns: Vec::new(),
            ranges: Vec::new(),
        };
        FIRST.iter().try_for_each(|sql| client.ask(sql, &mut |_| Ok(())))?;
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
            return self.run_text(sql, arguments, each);
        }
        if !self.prepared.contains_key(sql) {
            let prepared = self.prepare(sql)?;
            self.prepared.insert(sql.to_owned(), prepared);
        }
        let Some(prepared) = self.prepared.get_mut(sql) else {
            return Err(TargetError::Failed(format!("server: `{sql}` is not prepared")));
        };
        if prepared.parameters != arguments.len() {
            return Err(TargetError::Failed(format!("server: {} values for `{sql}`", arguments.len())));
        }
        let out = self.wire.command(EXECUTE);
        out.extend(prepared.number.to_le_bytes());
        // No cursor; once.
        out.extend([0, 1, 0, 0, 0]);
        if !arguments.is_empty() {
            values::write_all(arguments, &mut prepared.kinds, out);
        }
        self.wire.send().map_err(lost)?;
        answer(&mut self.wire, true, &mut prepared.columns, &mut self.ranges, each)
    }

    /// The same as text whatever the protocol is.
    pub fn run_text(
        &mut self,
        sql: &str,
        arguments: &[Argument<'_>],
        each: &mut dyn FnMut(AnyCells<'_>) -> Result<()>,
    ) -> Result<Done> {
        fill_in(Dialect::MySql, sql, arguments, &mut self.sql)?;
        self.wire.command(QUERY).extend_from_slice(self.sql.as_bytes());
        self.wire.send().map_err(lost)?;
        answer(&mut self.wire, false, &mut self.columns, &mut self.ranges, each)
    }

    /// The rows of a statement of administration.
    pub fn ask(&mut self, sql: &str, each: &mut dyn FnMut(AnyCells<'_>) -> Result<()>) -> Result<()> {
        self.wire.command(QUERY).extend_from_slice(sql.as_bytes());
        self.wire.send().map_err(lost)?;
        answer(&mut self.wire, false, &mut self.columns, &mut self.ranges, each).map(|_| ())
    }

    fn prepare(&mut self, sql: &str) -> Result<Prepared> {
        let mut prepare = || -> std::result::Result<Prepared, Refusal> {
            self.wire.command(PREPARE).extend_from_slice(sql.as_bytes());
            self.wire.send()?;
            let mut left = Left(Refusal::unless_told(self.wire.receive()?)?);
            left.bytes(1)?;
            let number = u32::from_le_bytes(left.array()?);
            let [count, parameters] = [left.array()?, left.array()?].map(u16::from_le_bytes);
            if parameters > 0 {
                read_columns(&mut self.wire, parameters.into(), &mut Vec::new())?;
            }
            let mut columns = Vec::new();
            if count > 0 {
                read_columns(&mut self.wire, count.into(), &mut columns)?;
            }
            Ok(Prepared { number, parameters: parameters.into(), columns, kinds: Vec::new() })
        };
        prepare().map_err(Refusal::of_statement)
    }
}

impl Drop for MySqlClient {
    /// A server that is gone needs no farewell.
    fn drop(&mut self) {
        self.wire.command(QUIT);
        let _ = self.wire.send();
    }
}

/// Reads definitions of columns, and the end behind them.
fn read_columns(wire: &mut Wire, count: usize, columns: &mut Vec<Column>) -> io::Result<()> {
    columns.clear();
    for _ in 0..count {
        columns.push(Column::of(wire.receive()?)?);
    }
    wire.receive().map(|_| ())
}

/// Reads the answer to its end, whatever `each` says on the way. `columns` are those that the server described last, and
/// does not describe again if it need not.
fn answer(
    wire: &mut Wire,
    binary: bool,
    columns: &mut Vec<Column>,
    ranges: &mut Vec<Option<Range<usize>>>,
    each: &mut dyn FnMut(AnyCells<'_>) -> Result<()>,
) -> Result<Done> {
    let (mut done, mut problem) = (None, None);
    loop {
        let refused = |refusal: Refusal| refusal.of_statement();
        let payload = Refusal::unless_told(wire.receive().map_err(lost)?).map_err(refused)?;
        let state = if payload[0] == OK {
            let (told, state) = done_of(payload).map_err(lost)?;
            done.get_or_insert(told);
            state
        } else {
            let (count, is_described) = shape_of(payload).map_err(lost)?;
            if is_described {
                read_columns(wire, count, columns).map_err(lost)?;
            } else {
                wire.receive().map_err(lost)?;
            }
            done.get_or_insert_default();
            rows(wire, (columns, binary), ranges, &mut problem, each).map_err(refused)?
        };
        if state & MORE_RESULTS == 0 {
            return problem.map_or(Ok(done.unwrap_or_default()), Err);
        }
    }
}

/// What an answer without rows says, and the state of the connection.
fn done_of(payload: &[u8]) -> io::Result<(Done, u16)> {
    let mut left = Left(&payload[1..]);
    let rows = left.number()?.unwrap_or(0);
    let first_key = left.number()?.filter(|key| *key > 0);
    Ok((Done { rows, first_key }, u16::from_le_bytes(left.array()?)))
}

/// How many columns the rows have, and whether these are described.
fn shape_of(payload: &[u8]) -> io::Result<(usize, bool)> {
    let mut left = Left(payload);
    let count = left.number()?.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it asks for a file"))?;
    // Servers that may leave the descriptions out say whether they do.
    Ok((usize::try_from(count).map_err(|_| short())?, left.0.first() != Some(&0)))
}

/// Hands the rows on until `each` has a problem, reads the rest, and tells the state of the connection.
fn rows(
    wire: &mut Wire,
    (columns, binary): (&[Column], bool),
    ranges: &mut Vec<Option<Range<usize>>>,
    problem: &mut Option<TargetError>,
    each: &mut dyn FnMut(AnyCells<'_>) -> Result<()>,
) -> std::result::Result<u16, Refusal> {
    loop {
        let row = Refusal::unless_told(wire.receive()?)?;
        if row[0] == END && row.len() <= END_BYTES {
            // How many warnings there were comes before it.
            let mut left = Left(&row[1..]);
            left.bytes(2)?;
            return Ok(u16::from_le_bytes(left.array()?));
        }
        if problem.is_none() {
            values::find(row, columns, binary, ranges)?;
            *problem = each(AnyCells::MySql(&Cells { row, ranges, columns, binary })).err();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::client::{Address as AnyAddress, Client};
    use super::super::parameters::Parameters;
    use super::super::{admin, tls::Tls};
    use super::*;
    use crate::secret::Secret;
    use crate::{DiskLimits, Durability, Price, Setup, TargetSpec};

    /// A server on a socket and on an address of this machine that nobody has.
    fn started(product: &str, host: &str, dir: &Path) -> (super::super::private::Private, Address, Client) {
        let cnf = dir.join("cnf");
        std::fs::write(&cnf, format!("[mysqld]\nport=3306\nbind_address={host}\n")).unwrap();
        let spec = TargetSpec::parse(&format!("server:{product}engine=innodb&cnf={}", cnf.display())).unwrap();
        let setup = Setup {
            dir: dir.into(),
            durability: Durability::Write,
            budget_bytes: Some(32 << 20),
            io: None,
            compression: None,
            disk: DiskLimits::default(),
            seed: 1,
            price: Price::Int,
        };
        let (private, address, client) = admin::start(&Parameters::parse(spec).unwrap(), &setup).unwrap();
        let AnyAddress::MySql(address) = address else { panic!("it speaks the protocol of MySQL") };
        (private, address, client)
    }

    fn is_let_in(address: &Address, tls: Tls, password: Option<&str>) -> Result<()> {
        let password = password.map(|text| Secret(text.to_owned()));
        let address = Address { user: "me".into(), password, tls, ..address.clone() };
        MySqlClient::open(&address, Protocol::Prepared).map(drop)
    }

    fn lets_in_by_password(product: &str, host: &str, plugins: &[&str]) {
        let dir = tempfile::tempdir().unwrap();
        let (mut private, local, mut client) = started(product, host, dir.path());
        let remote = Address { socket: None, host: host.into(), port: 3306, ..local.clone() };
        for plugin in plugins {
            client.say(&format!("CREATE USER me@'%' IDENTIFIED {plugin}")).unwrap();
            client.say("GRANT ALL ON *.* TO me@'%'").unwrap();
            // The first time is the one in which a server that keeps no password wants it.
            for address in [&remote, &remote, &local] {
                is_let_in(address, Tls::Off, Some("a:b@c")).unwrap();
                for password in [Some("wrong"), Some(""), None] {
                    let complaint = is_let_in(address, Tls::Off, password).unwrap_err().to_string();
                    assert!(complaint.contains("denies access"), "{plugin} {password:?}: {complaint}");
                }
            }
            client.say("DROP USER me@'%'").unwrap();
        }
        drop(client);
        private.stop().unwrap();
    }

    #[test]
    fn mariadb_lets_in_by_password() {
        if std::env::var_os("TREFOIL_SERVERS").is_some() {
            lets_in_by_password("mariadb?", "127.0.0.79", &["BY 'a:b@c'"]);
        }
    }

    /// Passwords that the server does not keep: in the clear where nobody listens, else by its key or encrypted.
    #[test]
    fn mysql_lets_in_by_password() {
        if std::env::var_os("TREFOIL_MYSQL").is_none() {
            return;
        }
        let product = "mysql?version=9.7&";
        lets_in_by_password(product, "127.0.0.80", &["WITH caching_sha2_password BY 'a:b@c'"]);
        let dir = tempfile::tempdir().unwrap();
        let (mut private, local, mut client) = started(product, "127.0.0.80", dir.path());
        let remote = Address { socket: None, host: "127.0.0.80".into(), port: 3306, ..local };
        client.say("CREATE USER me@'%' IDENTIFIED BY 'a:b@c' REQUIRE SSL").unwrap();
        client.say("GRANT ALL ON *.* TO me@'%'").unwrap();
        is_let_in(&remote, Tls::Unverified, Some("a:b@c")).unwrap();
        is_let_in(&remote, Tls::Unverified, Some("wrong")).unwrap_err();
        is_let_in(&remote, Tls::Off, Some("a:b@c")).unwrap_err();
        drop(client);
        private.stop().unwrap();
    }

    /// What one connection is asked after each other: errors, NULL, texts longer than a packet, answers that are given up.
    #[test]
    fn a_connection_goes_on_behind_whatever_was_asked() {
        if std::env::var_os("TREFOIL_SERVERS").is_none() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (mut private, local, mut client) = started("mariadb?", "127.0.0.81", dir.path());
        client.say("SET GLOBAL max_allowed_packet = 64 << 20").unwrap();
        client.say("CREATE TABLE t (id INT PRIMARY KEY, c LONGTEXT) ENGINE=InnoDB").unwrap();
        let long = vec![b'x'; (16 << 20) + 5];
        for protocol in [Protocol::Text, Protocol::Prepared] {
            let mut client = MySqlClient::open(&local, protocol).unwrap();
            let nothing = &mut |_: AnyCells<'_>| Ok(());
            let insert = "INSERT INTO t VALUES (?, ?), (2, ?)";
            let arguments = [Argument::Number(1), Argument::Null, Argument::Text(&long)];
            assert_eq!(client.run(insert, &arguments, nothing).unwrap().rows, 2);
            let again = client.run(insert, &arguments, nothing).unwrap_err().to_string();
            assert!(again.contains("1062"), "{again}");
            let missing = client.run("SELECT * FROM nowhere", &[], nothing).unwrap_err().to_string();
            assert!(missing.contains("1146"), "{missing}");
            let mut found = Vec::new();
            let all = "SELECT id, c FROM t WHERE id >= ? ORDER BY id";
            client
                .run(all, &[Argument::Number(0)], &mut |cells| {
                    found.push((cells.number(0)?, if cells.is_null(1) { None } else { Some(cells.text(1)?.len()) }));
                    Ok(())
                })
                .unwrap();
            assert_eq!(found, [(1, None), (2, Some(long.len()))]);
            // An answer with a row that does not please is read to its end all the same.
            let refused = client.run(all, &[Argument::Number(0)], &mut |cells| cells.text(1).map(|_| ()));
            assert!(refused.unwrap_err().to_string().contains("not a text"));
            assert_eq!(client.run("DELETE FROM t WHERE id > ?", &[Argument::Number(0)], nothing).unwrap().rows, 2);
        }
        drop(client);
        private.stop().unwrap();
    }
}
