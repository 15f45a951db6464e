//! How a connection to MariaDB and MySQL begins.
//!
//! 1. The server says what it can do, and a random text.
//! 2. If both shall be encrypted, that is asked for, and everything after it is.
//! 3. The user, the database, and a proof of the password: hashed with the random text, so that it cannot be used again.
//! 4. The server lets in, or wants another proof. `caching_sha2_password` wants the password itself where it has not seen it
//!    since it started: in clear where nobody listens, else encrypted with the server's public key.

use std::io;

use mysql_common::constants::{CapabilityFlags, MariadbCapabilities};
use mysql_common::crypto;
use mysql_common::io::ParseBuf;
use mysql_common::packets::{AuthPlugin, AuthSwitchRequest, HandshakePacket, HandshakeResponse, SslRequest};
use mysql_common::proto::MySerialize;

use super::super::address::Address;
use super::super::stream::Stream;
use super::super::tls::Tls;
use super::Refusal;
use super::wire::{Wire, short};

/// What is said first about the size of packets: the server keeps its own limit.
const LARGEST_BYTES: u32 = 1 << 30;
/// Bytes of the random text.
const NONCE_BYTES: usize = 20;
/// utf8mb4_general_ci; the first statement of a connection sets another one.
const COLLATION: u8 = 45;
/// First bytes of what the server says meanwhile.
const LET_IN: u8 = 0x00;
const MORE: u8 = 0x01;
const ANOTHER_PROOF: u8 = 0xfe;
/// Behind `MORE`, of `caching_sha2_password`.
const PROOF_WAS_GOOD: u8 = 0x03;
const WANTS_THE_PASSWORD: u8 = 0x04;
/// Asks for the public key.
const KEY_PLEASE: u8 = 0x02;

/// Connects, and is let in.
pub fn open(address: &Address) -> Result<Wire, Refusal> {
    let stream = match &address.socket {
        Some(path) => Stream::local(path)?,
        None => Stream::remote(&address.host, address.port)?,
    };
    let mut wire = Wire::new(stream);
    let payload = Refusal::unless_told(wire.receive()?)?;
    let greeting: HandshakePacket<'_> = ParseBuf(payload).parse(())?;
    let mut nonce = greeting.nonce();
    nonce.resize(NONCE_BYTES, 0);
    // Servers that offer any other plugin ask for it once they know who comes.
    let plugin = match greeting.auth_plugin() {
        Some(plugin @ AuthPlugin::CachingSha2Password) => plugin.into_owned(),
        _ => AuthPlugin::MysqlNativePassword,
    };
    let version = greeting.server_version_parsed().unwrap_or_default();
    let more = greeting.mariadb_ext_capabilities() & MariadbCapabilities::MARIADB_CLIENT_CACHE_METADATA;
    let encrypted = address.tls != Tls::Off;
    let wanted = capabilities(address, encrypted);
    let offered = greeting.capabilities();
    if encrypted && !offered.contains(CapabilityFlags::CLIENT_SSL) {
        return Err(
            io::Error::new(io::ErrorKind::Unsupported, "it has no TLS: ssl_cert= there, or tls=off here").into()
        );
    }
    let agreed = wanted & offered;
    if encrypted {
        let request = SslRequest::new(agreed, LARGEST_BYTES, COLLATION).with_mariadb_capabilities(more);
        request.serialize(wire.reply());
        wire.send()?;
        wire = wire.over(|stream| stream.secured(&address.tls, &address.host))?;
    }
    let password = address.password.as_ref().map(|password| password.0.as_str());
    let proof = plugin.gen_data(password, &nonce);
    let response = HandshakeResponse::new(
        proof.as_deref(),
        version,
        Some(address.user.as_bytes()),
        address.database.as_deref().map(str::as_bytes),
        Some(plugin.borrow()),
        agreed,
        None,
        LARGEST_BYTES,
    );
    response.with_mariadb_ext_capabilities(more).serialize(wire.reply());
    wire.send()?;
    prove(&mut wire, plugin, nonce, password)?;
    wire.stream.is_let_in()?;
    Ok(wire)
}

fn capabilities(address: &Address, encrypted: bool) -> CapabilityFlags {
    let always = CapabilityFlags::CLIENT_PROTOCOL_41
        | CapabilityFlags::CLIENT_SECURE_CONNECTION
        | CapabilityFlags::CLIENT_LONG_PASSWORD
        | CapabilityFlags::CLIENT_LONG_FLAG
        | CapabilityFlags::CLIENT_TRANSACTIONS
        | CapabilityFlags::CLIENT_MULTI_RESULTS
        | CapabilityFlags::CLIENT_PS_MULTI_RESULTS
        | CapabilityFlags::CLIENT_PLUGIN_AUTH
        // An UPDATE counts the rows that it finds, not those that it changes.
        | CapabilityFlags::CLIENT_FOUND_ROWS;
    let of = |is_wanted: bool, flag| if is_wanted { flag } else { CapabilityFlags::empty() };
    always
        | of(address.database.is_some(), CapabilityFlags::CLIENT_CONNECT_WITH_DB)
        | of(encrypted, CapabilityFlags::CLIENT_SSL)
}

/// Answers until the server lets in.
fn prove(
    wire: &mut Wire,
    mut plugin: AuthPlugin<'static>,
    mut nonce: Vec<u8>,
    password: Option<&str>,
) -> Result<(), Refusal> {
    loop {
        let payload = Refusal::unless_told(wire.receive()?)?;
        match *payload {
            [LET_IN, ..] => return Ok(()),
            [ANOTHER_PROOF, _, ..] => {
                let request: AuthSwitchRequest<'_> = ParseBuf(payload).parse(())?;
                (plugin, nonce) = (request.auth_plugin().into_owned(), request.plugin_data().to_vec());
                nonce.truncate(NONCE_BYTES);
                let is_known = matches!(plugin, AuthPlugin::MysqlNativePassword | AuthPlugin::CachingSha2Password);
                if !is_known {
                    let name = String::from_utf8_lossy(plugin.as_bytes()).into_owned();
                    return Err(unknown(&format!("the password by `{name}`")));
                }
                let proof = plugin.gen_data(password, &nonce);
                wire.reply().extend_from_slice(proof.as_deref().unwrap_or_default());
                wire.send()?;
            }
            [MORE, PROOF_WAS_GOOD] if plugin == AuthPlugin::CachingSha2Password => (),
            [MORE, WANTS_THE_PASSWORD] if plugin == AuthPlugin::CachingSha2Password => {
                hand_over(wire, &nonce, password.unwrap_or_default())?;
            }
            _ => return Err(unknown("a way to be let in that this program does not know")),
        }
    }
}

/// The password itself, with a zero behind it.
fn hand_over(wire: &mut Wire, nonce: &[u8], password: &str) -> Result<(), Refusal> {
    let mut text = [password.as_bytes(), &[0]].concat();
    if !wire.stream.is_private() {
        wire.reply().push(KEY_PLEASE);
        wire.send()?;
        let key = Refusal::unless_told(wire.receive()?)?.get(1..).ok_or_else(short)?;
        for (letter, with) in text.iter_mut().zip(nonce.iter().cycle()) {
            *letter ^= with;
        }
        text = crypto::encrypt(&text, key);
    }
    wire.reply().extend(text);
    Ok(wire.send()?)
}

fn unknown(what: &str) -> Refusal {
    Refusal::Told { code: 1045, message: format!("it wants {what}") }
}
