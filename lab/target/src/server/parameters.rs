//! What a target string of a server says.

use std::fmt;
use std::path::PathBuf;

use crate::api::{Result, TargetError};
use crate::spec::{PRODUCT, TargetSpec};

/// An engine of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// InnoDB.
    InnoDb,
    /// MyRocks.
    RocksDb,
    /// This repository's plugin.
    Trefoil,
    /// Any other, of a server that runs.
    Other(String),
}

impl Engine {
    fn of(name: &str) -> Engine {
        match name.to_ascii_lowercase().as_str() {
            "innodb" => Engine::InnoDb,
            "rocksdb" | "myrocks" => Engine::RocksDb,
            "trefoil" => Engine::Trefoil,
            other => Engine::Other(other.into()),
        }
    }

    /// As it is written in `ENGINE=`.
    pub fn name(&self) -> &str {
        match self {
            Engine::InnoDb => "innodb",
            Engine::RocksDb => "rocksdb",
            Engine::Trefoil => "trefoil",
            Engine::Other(name) => name,
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// How statements reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// As SQL with the values in it.
    Text,
    /// Prepared once a connection, values in binary.
    Prepared,
}

impl Protocol {
    /// As the parameter has it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Text => "text",
            Protocol::Prepared => "prepared",
        }
    }
}

/// Where the server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Started here.
    Private {
        /// A directory of binaries; without it the pinned packages.
        dir: Option<PathBuf>,
        /// An option file that is read behind the lab's settings.
        cnf: Option<PathBuf>,
        /// Whether there is a binary log.
        binlog: bool,
    },
    /// Started by somebody else.
    Running {
        /// The URL without parameters.
        url: String,
        /// A unix socket instead of host and port.
        socket: Option<PathBuf>,
    },
}

/// All parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The storage engine of all tables.
    pub engine: Engine,
    /// How statements are sent.
    pub protocol: Protocol,
    /// Where to.
    pub place: Place,
}

impl Parameters {
    /// Takes them out of a target string and refuses what is left.
    pub fn parse(mut spec: TargetSpec) -> Result<Parameters> {
        let text = spec.text.clone();
        let usage = |what: String| TargetError::Usage(format!("target `{text}`: {what}"));
        let product = spec.take(PRODUCT);
        let is_private = spec.name == "server";
        if is_private && product.as_deref() != Some("mariadb") {
            let what = "the server that can be started is MariaDB: server:mariadb?engine=innodb";
            return Err(TargetError::Unsupported(format!("target `{text}`: {what}")));
        }
        let engine =
            spec.take("engine").ok_or_else(|| usage("which engine? engine=innodb, rocksdb or trefoil".into()))?;
        if !engine.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(usage(format!("`{engine}` is not an engine name")));
        }
        let engine = Engine::of(&engine);
        let protocol = match spec.take("protocol").as_deref() {
            None | Some("prepared") => Protocol::Prepared,
            Some("text") => Protocol::Text,
            Some(other) => return Err(usage(format!("protocol={other}: it is text or prepared"))),
        };
        let place = if is_private {
            if let Engine::Other(name) = &engine {
                return Err(usage(format!("engine={name}: a private server has innodb, rocksdb and trefoil")));
            }
            let binlog = match spec.take("binlog").as_deref() {
                None | Some("off") => false,
                Some("on") => true,
                Some(other) => return Err(usage(format!("binlog={other}: it is on or off"))),
            };
            Place::Private {
                dir: spec.take("dir").map(PathBuf::from),
                cnf: spec.take("cnf").map(PathBuf::from),
                binlog,
            }
        } else {
            let url = text.split_once('?').map_or(text.as_str(), |(url, _)| url).to_owned();
            if mysql::Opts::from_url(&url).map_err(|error| usage(error.to_string()))?.get_db_name().is_none() {
                return Err(usage("which database? mysql://user@host:port/database?engine=innodb".into()));
            }
            Place::Running { url, socket: spec.take("socket").map(PathBuf::from) }
        };
        let known: &[&str] = match is_private {
            true => &["engine", "protocol", "binlog", "dir", "cnf"],
            false => &["engine", "protocol", "socket"],
        };
        spec.finish(known)?;
        Ok(Parameters { engine, protocol, place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Parameters> {
        Parameters::parse(TargetSpec::parse(text).unwrap())
    }

    #[test]
    fn a_private_server_and_one_that_runs() {
        let private = parse("server:mariadb?engine=InnoDB&binlog=on&dir=/opt/mariadb").unwrap();
        assert_eq!((private.engine, private.protocol), (Engine::InnoDb, Protocol::Prepared));
        assert_eq!(private.place, Place::Private { dir: Some("/opt/mariadb".into()), cnf: None, binlog: true });
        let running = parse("mysql://root:a@localhost:3307/test?engine=aria&protocol=text").unwrap();
        assert_eq!((running.engine.name(), running.protocol), ("aria", Protocol::Text));
        assert_eq!(running.place, Place::Running { url: "mysql://root:a@localhost:3307/test".into(), socket: None });
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("server:mysql?engine=innodb", "is MariaDB"),
            ("server:mariadb", "which engine"),
            ("server:mariadb?engine=aria", "innodb, rocksdb and trefoil"),
            ("server:mariadb?engine=innodb&binlog=maybe", "on or off"),
            ("server:mariadb?engine=innodb&socket=/tmp/a", "no parameter `socket`"),
            ("mysql://root@localhost/test", "which engine"),
            ("mysql://root@localhost?engine=innodb", "which database"),
            ("mysql://root@localhost/test?engine=innodb&protocol=odbc", "text or prepared"),
            ("mysql://root@localhost/test?engine=in'nodb", "not an engine name"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(word), "{text}: {message}");
        }
    }
}
