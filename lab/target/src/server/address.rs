//! Where a server is, and who asks.

use std::path::PathBuf;

use super::tls::Tls;
use crate::secret::{STARS, Secret};
use crate::spec::TargetSpec;
use crate::url::Url;

/// What the URL of a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// A name or number of a machine.
    pub host: String,
    /// The port, which with PostgreSQL is part of a socket's name too.
    pub port: u16,
    /// A unix socket instead of the host; with PostgreSQL it may be its directory.
    pub socket: Option<PathBuf>,
    /// The user or role.
    pub user: String,
    /// The password.
    pub password: Option<Secret>,
    /// The database.
    pub database: Option<String>,
    /// Whether what is said on the way can be read there; a socket has no way.
    pub tls: Tls,
}

impl Address {
    /// `user:password@host:port/database`, of which all but the place may be missing. Tells besides whether stars stand for
    /// the password, as in what a run folder keeps.
    pub fn of(spec: &mut TargetSpec, default_port: u16) -> Result<(Address, bool), String> {
        let text = spec.whole.0.clone();
        let (who, place) = Url::of(&text).map_or(("", ""), |url| (url.who.unwrap_or_default(), url.place));
        let (at, database) = place.split_once('/').unwrap_or((place, ""));
        let (user, password) = who.split_once(':').map_or((who, None), |(user, password)| (user, Some(password)));
        let (host, port) = match at.rsplit_once(':') {
            // The colons of a number between brackets are its own.
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| format!("`{port}` is no port"))?)
            }
            _ => (at, default_port),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let (socket, tls) = socket_and_tls(spec)?;
        let given = password.filter(|password| !password.is_empty() && *password != STARS);
        let address = Address {
            host: if host.is_empty() { "localhost".into() } else { host.into() },
            port,
            socket,
            user: plain(user)?,
            password: given.map(plain).transpose()?.map(Secret),
            database: Some(plain(database)?).filter(|database| !database.is_empty()),
            tls,
        };
        Ok((address, password == Some(STARS)))
    }
}

/// A socket is a file of this machine, on which nothing is encrypted: who asks for both would believe it was.
fn socket_and_tls(spec: &mut TargetSpec) -> Result<(Option<PathBuf>, Tls), String> {
    match (spec.take("socket").map(PathBuf::from), Tls::of(spec)?) {
        (Some(socket), Tls::Verified(_) | Tls::Unverified) => Err(format!(
            "tls= with socket={}: nothing is encrypted on a socket; leave one of them out",
            socket.display()
        )),
        both => Ok(both),
    }
}

/// A part of a URL without its percent signs.
fn plain(text: &str) -> Result<String, String> {
    let strange = || "user, password or database is not a part of a URL: a percent sign is written %25".to_owned();
    let mut pieces = text.split('%');
    let mut out: Vec<u8> = pieces.next().unwrap_or_default().into();
    for piece in pieces {
        let code = piece.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(strange)?;
        out.push(code);
        out.extend(piece[2..].bytes());
    }
    String::from_utf8(out).map_err(|_| strange())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_be_a_number_with_colons() {
        for (text, host, port) in [
            ("mysql://me@[::1]/d", "::1", 3306),
            ("mysql://me@[::1]:4000/d", "::1", 4000),
            ("mysql://me@h:4000/d", "h", 4000),
            ("mysql://me@/d", "localhost", 3306),
        ] {
            let (address, masked) = Address::of(&mut TargetSpec::parse(text).unwrap(), 3306).unwrap();
            assert_eq!((address.host.as_str(), address.port, masked), (host, port, false), "{text}");
            assert_eq!((address.user.as_str(), address.database.as_deref()), ("me", Some("d")));
        }
    }
}
