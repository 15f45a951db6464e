//! Bytes to and from PostgreSQL, and how a connection is allowed: `trust`, a password in clear, MD5 or SCRAM.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{ErrorResponseBody, Message};
use postgres_protocol::message::frontend;

use super::super::address::Address;
use super::super::stream::Stream;
use super::super::tls::Tls;
use crate::api::{Result, TargetError};

/// The first message of a connection that is to be encrypted, before the protocol's version.
const ASKS_FOR_TLS: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
/// Bytes that are asked for at a time.
const PIECE: usize = 64 << 10;

fn place(address: &Address) -> String {
    match &address.socket {
        Some(_) => format!("the socket {}", socket_file(address).display()),
        None => format!("{}:{}", address.host, address.port),
    }
}

fn socket_file(address: &Address) -> PathBuf {
    let folder = address.socket.clone().unwrap_or_default();
    if folder.is_dir() { folder.join(format!(".s.PGSQL.{}", address.port)) } else { folder }
}

/// Why there is no connection, and what to do.
fn refused(address: &Address, complaint: &Complaint) -> TargetError {
    let (place, Complaint { code, message }) = (place(address), complaint);
    TargetError::Failed(match code.as_str() {
        "28P01" | "28000" => format!(
            "the server at {place} denies access ({message}); user and password stand in the target, \
             postgres://user:password@host/database, or the password in ~/.pgpass"
        ),
        "3D000" => format!("the server at {place}: {message}; CREATE DATABASE makes it"),
        "57P03" => format!("the server at {place} does not answer yet: {message}"),
        _ => format!("the server at {place}: {code} {message}"),
    })
}

fn silent(address: &Address, error: &io::Error) -> TargetError {
    let place = place(address);
    TargetError::Failed(format!(
        "no server answers at {place}, or not as it is asked ({error}); start it, or let the lab start one: server:postgres"
    ))
}

/// What the server complains about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The five letters of SQL's standard.
    pub code: String,
    /// In words.
    pub message: String,
}

impl Complaint {
    /// Reads a message.
    pub fn of(body: &ErrorResponseBody) -> Complaint {
        let (mut code, mut message) = (String::new(), String::new());
        let mut fields = body.fields();
        while let Ok(Some(field)) = fields.next() {
            match field.type_() {
                b'C' => code = String::from_utf8_lossy(field.value_bytes()).into_owned(),
                b'M' => message = String::from_utf8_lossy(field.value_bytes()).into_owned(),
                _ => (),
            }
        }
        Complaint { code, message }
    }
}

/// Over the network, encrypted if it shall be.
fn reach(address: &Address) -> io::Result<Stream> {
    let mut stream = Stream::remote(&address.host, address.port)?;
    if address.tls == Tls::Off {
        return Ok(stream);
    }
    stream.write_all(&ASKS_FOR_TLS)?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    match answer {
        [b'S'] => stream.secured(&address.tls, &address.host),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "it has no TLS: ssl = on there, or tls=off here")),
    }
}

/// A connection.
pub struct Wire {
    stream: Stream,
    /// Where bytes are read to: not filled with zeros each time.
    piece: Vec<u8>,
    input: BytesMut,
    /// Messages that [`Wire::send`] sends.
    pub output: BytesMut,
}

impl Wire {
    /// Connects, and is let in.
    pub fn open(address: &Address) -> Result<Wire> {
        let stream = match &address.socket {
            Some(_) => Stream::local(&socket_file(address)),
            None => reach(address),
        };
        let stream = stream.map_err(|error| silent(address, &error))?;
        let mut wire = Wire { stream, piece: vec![0; PIECE], input: BytesMut::new(), output: BytesMut::new() };
        wire.enter(address).map_err(|refusal| match refusal {
            Refusal::Lost(error) => silent(address, &error),
            Refusal::Told(complaint) => refused(address, &complaint),
        })?;
        Ok(wire)
    }

    /// Sends what was written into `output`.
    pub fn send(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.output).and_then(|()| self.stream.flush());
        self.output.clear();
        sent
    }

    /// The next message.
    pub fn receive(&mut self) -> io::Result<Message> {
        loop {
            if let Some(message) = Message::parse(&mut self.input)? {
                return Ok(message);
            }
            match self.stream.read(&mut self.piece)? {
                0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed it")),
                read => self.input.extend_from_slice(&self.piece[..read]),
            }
        }
    }

    /// From the first message to the first time that the server waits for a statement.
    fn enter(&mut self, address: &Address) -> Result<(), Refusal> {
        let database = address.database.as_deref().unwrap_or(&address.user);
        let parameters = [("user", address.user.as_str()), ("database", database), ("application_name", "lab")];
        frontend::startup_message(parameters, &mut self.output)?;
        self.send()?;
        let password = || {
            let missing = || Complaint { code: "28P01".into(), message: "it wants a password".into() };
            address.password.as_ref().map(|password| password.0.as_str()).ok_or_else(missing)
        };
        let mut scram: Option<ScramSha256> = None;
        loop {
            match self.receive()? {
                Message::AuthenticationCleartextPassword => {
                    frontend::password_message(password()?.as_bytes(), &mut self.output)?;
                }
                Message::AuthenticationMd5Password(body) => {
                    let hash = md5_hash(address.user.as_bytes(), password()?.as_bytes(), body.salt());
                    frontend::password_message(hash.as_bytes(), &mut self.output)?;
                }
                Message::AuthenticationSasl(body) => {
                    let mechanisms: Vec<String> = body.mechanisms().map(|name| Ok(name.to_owned())).collect()?;
                    if !mechanisms.iter().any(|name| name == SCRAM_SHA_256) {
                        return Err(unknown(&format!("password by {}", mechanisms.join(", "))).into());
                    }
                    let begun = ScramSha256::new(password()?.as_bytes(), ChannelBinding::unsupported());
                    frontend::sasl_initial_response(SCRAM_SHA_256, begun.message(), &mut self.output)?;
                    scram = Some(begun);
                }
                Message::AuthenticationSaslContinue(body) => {
                    let scram = scram.as_mut().ok_or_else(|| unknown("an answer to nothing"))?;
                    scram.update(body.data())?;
                    frontend::sasl_response(scram.message(), &mut self.output)?;
                }
                Message::AuthenticationSaslFinal(body) => {
                    scram.as_mut().ok_or_else(|| unknown("an answer to nothing"))?.finish(body.data())?;
                }
                Message::ErrorResponse(body) => return Err(Complaint::of(&body).into()),
                Message::ReadyForQuery(_) => return Ok(self.stream.is_let_in()?),
                Message::AuthenticationOk
                | Message::ParameterStatus(_)
                | Message::BackendKeyData(_)
                | Message::NoticeResponse(_) => (),
                _ => return Err(unknown("a way to be let in that this program does not know").into()),
            }
            if !self.output.is_empty() {
                self.send()?;
            }
        }
    }
}

impl Drop for Wire {
    /// A server that is gone needs no farewell.
    fn drop(&mut self) {
        self.output.clear();
        frontend::terminate(&mut self.output);
        let _ = self.send();
    }
}

fn unknown(what: &str) -> Complaint {
    Complaint { code: "28000".into(), message: format!("it wants {what}") }
}

/// Why somebody is not let in.
enum Refusal {
    Lost(io::Error),
    Told(Complaint),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal::Lost(error)
    }
}

impl From<Complaint> for Refusal {
    fn from(complaint: Complaint) -> Refusal {
        Refusal::Told(complaint)
    }
}
