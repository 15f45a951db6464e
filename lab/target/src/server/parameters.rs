//! What a target string of a server says.

use std::fmt;
use std::path::PathBuf;

use super::address::Address;
use super::passwords;
use crate::api::{Result, TargetError};
use crate::spec::{PRODUCT, TargetSpec};
use crate::url::{PARAMETERS, Url};

/// A server that can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// MariaDB.
    MariaDb,
    /// MySQL.
    MySql,
    /// PostgreSQL.
    Postgres,
}

impl Product {
    /// As it stands behind `server:` and before `@`.
    pub const ALL: [(&'static str, Product); 3] =
        [("mariadb", Product::MariaDb), ("mysql", Product::MySql), ("postgres", Product::Postgres)];

    /// By its name.
    pub fn of(name: &str) -> Option<Product> {
        Product::ALL.iter().find(|(own, _)| *own == name).map(|(_, product)| *product)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Product::ALL.iter().find(|(_, product)| *product == self).map_or("", |(name, _)| name)
    }
}

/// An engine of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// InnoDB.
    InnoDb,
    /// MyRocks.
    RocksDb,
    /// This repository's plugin.
    Trefoil,
    /// The only one of PostgreSQL.
    Postgres,
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
            Engine::Postgres => "postgres",
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
        /// What is started.
        product: Product,
        /// Which of those that `lab fetch` knows.
        version: Option<String>,
        /// A directory of binaries; without it packages.
        dir: Option<PathBuf>,
        /// An option file that is read behind the lab's settings.
        cnf: Option<PathBuf>,
        /// Whether there is a binary log.
        binlog: bool,
        /// Who runs a server that does not run for the administrator.
        user: Option<String>,
    },
    /// MariaDB or MySQL, started by somebody else.
    Running(Address),
    /// PostgreSQL, started by somebody else.
    RunningPostgres(Address),
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
        let name = spec.take(PRODUCT).unwrap_or_default();
        let product = match spec.name.as_str() {
            "server" => {
                let what = || format!("target `{text}`: the servers that can be started are mariadb, mysql, postgres");
                Some(Product::of(&name).ok_or_else(|| TargetError::Unsupported(what()))?)
            }
            _ => None,
        };
        let is_postgres = product == Some(Product::Postgres) || spec.name.starts_with("postgres");
        let engine = match (is_postgres, spec.take("engine")) {
            (true, None) => Engine::Postgres,
            (true, Some(_)) => return Err(usage("PostgreSQL has one engine: leave engine= out".into())),
            (false, engine) => engine_of(engine).map_err(usage)?,
        };
        let protocol = match spec.take("protocol").as_deref() {
            None | Some("prepared") => Protocol::Prepared,
            Some("text") => Protocol::Text,
            Some(other) => return Err(usage(format!("protocol={other}: it is text or prepared"))),
        };
        let (place, known): (Place, &[&str]) = match product {
            Some(product) => (private(&mut spec, product, &engine).map_err(usage)?, known_of(product)),
            None if is_postgres => (running_postgres(&mut spec).map_err(usage)?, &PARAMETERS[1..]),
            None => (running(&mut spec).map_err(usage)?, &PARAMETERS),
        };
        spec.finish(known)?;
        Ok(Parameters { engine, protocol, place })
    }
}

fn engine_of(engine: Option<String>) -> Result<Engine, String> {
    let engine = engine.ok_or("which engine? engine=innodb, rocksdb or trefoil")?;
    if !engine.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(format!("`{engine}` is not an engine name"));
    }
    Ok(Engine::of(&engine))
}

fn known_of(product: Product) -> &'static [&'static str] {
    match product {
        Product::MariaDb | Product::MySql => &["engine", "protocol", "binlog", "version", "dir", "cnf"],
        Product::Postgres => &["protocol", "version", "dir", "cnf", "user"],
    }
}

/// A server that is to be started.
fn private(spec: &mut TargetSpec, product: Product, engine: &Engine) -> Result<Place, String> {
    let (version, dir) = (spec.take("version"), spec.take("dir").map(PathBuf::from));
    if version.is_some() && dir.is_some() {
        return Err("version= is one of those that `lab fetch` brings, dir= a directory of your own: not both".into());
    }
    let is_other = version.is_some() || product == Product::MySql;
    match engine {
        Engine::Other(name) => {
            return Err(format!("engine={name}: a private server has innodb, rocksdb and trefoil"));
        }
        Engine::Trefoil | Engine::RocksDb if is_other && dir.is_none() => {
            return Err(format!(
                "engine={engine}: its plugin is built for the pinned MariaDB; other versions and MySQL have innodb"
            ));
        }
        _ => (),
    }
    // PostgreSQL has none, so that whoever asks for one is told.
    let binlog = if product == Product::Postgres { None } else { spec.take("binlog") };
    let binlog = match binlog.as_deref() {
        None | Some("off") => false,
        Some("on") => true,
        Some(other) => return Err(format!("binlog={other}: it is on or off")),
    };
    let user = if product == Product::Postgres { spec.take("user") } else { None };
    Ok(Place::Private { product, version, dir, cnf: spec.take("cnf").map(PathBuf::from), binlog, user })
}

/// `postgres://user:password@host:port/database`; a password that is not there is looked for elsewhere.
fn running_postgres(spec: &mut TargetSpec) -> Result<Place, String> {
    let (mut address, is_masked) = Address::of(spec, 5432)?;
    let is_whole = !address.user.is_empty() && address.database.as_ref().is_some_and(|name| !name.contains('/'));
    if !is_whole {
        return Err("whose database, and which? postgres://user:password@host:port/database".into());
    }
    address.password = passwords::of_postgres(spec, &address, is_masked)?;
    Ok(Place::RunningPostgres(address))
}

/// `mysql://user:password@host:port/database`, with the password from elsewhere where it is not there.
fn running(spec: &mut TargetSpec) -> Result<Place, String> {
    let who = Url::of(&spec.whole.0).ok_or("it is no URL")?.who;
    if who.is_some_and(|who| who.contains(['/', '?', '#'])) {
        // Other programs would cut it there.
        return Err(
            "a part of the address is no part of a URL; in a user's name or a password / ? # @ and % are written \
                    %2F %3F %23 %40 and %25"
                .into(),
        );
    }
    let (mut address, is_masked) = Address::of(spec, 3306)?;
    if address.database.is_none() {
        return Err("which database? mysql://user@host:port/database?engine=innodb".into());
    }
    if address.password.is_none() {
        address.password = passwords::of_mysql(spec, &address.user, &address.host, is_masked)?;
    }
    Ok(Place::Running(address))
}

#[cfg(test)]
mod tests {
    use super::super::tls::Tls;
    use super::*;
    use crate::secret::Secret;

    fn parse(text: &str) -> Result<Parameters> {
        Parameters::parse(TargetSpec::parse(text).unwrap())
    }

    #[test]
    fn a_private_server_and_one_that_runs() {
        let private = parse("server:mariadb?engine=InnoDB&binlog=on&dir=/opt/mariadb").unwrap();
        assert_eq!((private.engine, private.protocol), (Engine::InnoDb, Protocol::Prepared));
        let place = |product, version: Option<&str>, dir: Option<&str>, binlog, user: Option<&str>| Place::Private {
            product,
            version: version.map(str::to_owned),
            dir: dir.map(PathBuf::from),
            cnf: None,
            binlog,
            user: user.map(str::to_owned),
        };
        assert_eq!(private.place, place(Product::MariaDb, None, Some("/opt/mariadb"), true, None));
        let old = parse("server:mysql?version=5.5&engine=innodb").unwrap();
        assert_eq!(old.place, place(Product::MySql, Some("5.5"), None, false, None));
        let postgres = parse("server:postgres?user=me&protocol=text").unwrap();
        assert_eq!((&postgres.engine, postgres.protocol), (&Engine::Postgres, Protocol::Text));
        assert_eq!(postgres.place, place(Product::Postgres, None, None, false, Some("me")));
        let running = parse("mysql://root:a@localhost:3307/test?engine=aria&protocol=text").unwrap();
        assert_eq!((running.engine.name(), running.protocol), ("aria", Protocol::Text));
        let wanted = Address {
            host: "localhost".into(),
            port: 3307,
            socket: None,
            user: "root".into(),
            password: Some(Secret("a".into())),
            database: Some("test".into()),
            tls: Tls::Off,
        };
        assert_eq!(running.place, Place::Running(wanted));
    }

    #[test]
    fn a_url_of_postgres() {
        let parsed = parse("postgres://me:a%40b@db.example:5433/test?socket=/run/pg").unwrap();
        let Place::RunningPostgres(address) = parsed.place else { panic!("it is PostgreSQL") };
        let wanted = Address {
            host: "db.example".into(),
            port: 5433,
            socket: Some("/run/pg".into()),
            user: "me".into(),
            password: Some(Secret("a@b".into())),
            database: Some("test".into()),
            tls: Tls::Off,
        };
        assert_eq!(address, wanted);
    }

    #[test]
    fn a_password_with_a_question_mark_is_read_and_hidden() {
        let spec = TargetSpec::parse("postgres://me:a?b@h/d?protocol=text").unwrap();
        assert_eq!(spec.text, "postgres://me:***@h/d?protocol=text");
        let Place::RunningPostgres(address) = Parameters::parse(spec).unwrap().place else { panic!("PostgreSQL") };
        assert_eq!((address.host.as_str(), address.password), ("h", Some(Secret("a?b".into()))));
        for text in [
            "mysql://me:1?s3cr@h/d?engine=innodb",
            "mysql://me:1/s3cr?x@h/d?engine=innodb",
            "postgres://me:a?s3cr@h/d?x=y",
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains("me:***@h/d") && !message.contains("s3cr"), "{message}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("server:oracle?engine=innodb", "mariadb, mysql, postgres"),
            ("server:mariadb", "which engine"),
            ("server:mariadb?engine=aria", "innodb, rocksdb and trefoil"),
            ("server:mariadb?engine=innodb&binlog=maybe", "on or off"),
            ("server:mariadb?engine=innodb&socket=/tmp/a", "no parameter `socket`"),
            ("server:mariadb?engine=innodb&user=me", "no parameter `user`"),
            ("server:mysql?engine=trefoil&version=9.7", "pinned MariaDB"),
            ("server:mysql?engine=innodb&version=9.7&dir=/opt", "not both"),
            ("server:postgres?engine=heap", "one engine"),
            ("server:postgres?binlog=on", "no parameter `binlog`"),
            ("mysql://root@localhost/test", "which engine"),
            ("mysql://root@localhost?engine=innodb", "which database"),
            ("mysql://root@localhost/test?engine=innodb&protocol=odbc", "text or prepared"),
            ("mysql://root@localhost/test?engine=in'nodb", "not an engine name"),
            ("postgres://localhost/test", "whose database"),
            ("postgres://me@localhost", "whose database"),
            ("postgres://me@localhost:x/test", "no port"),
            ("postgres://m%zz@localhost/test", "not a part of a URL"),
            ("postgres://me@localhost/test?tls=maybe", "on, unverified or off"),
            ("postgres://me@localhost/test?ca=/nowhere", "tls=on"),
            ("mysql://root@localhost/test?engine=innodb&tls=on&ca=/nowhere", "/nowhere"),
            ("mysql://root@localhost/test?engine=innodb&passfile=/nowhere", "/nowhere"),
            ("mysql://root:a/b@localhost/test?engine=innodb", "written %2F"),
            ("mysql://root:1?b@h/d?engine=innodb", "written %2F %3F"),
            ("mysql://root@localhost/test?engine=innodb&tls=on&socket=/a", "leave one"),
            ("postgres://me@localhost/test?tls=unverified&socket=/a", "leave one"),
            (
                "mysql://ro:***@localhost/test?engine=innodb&passfile=/dev/null",
                "passfile=/dev/null: no password for ro at",
            ),
            (
                "postgres://ro:***@db.example/test?passfile=/dev/null",
                "passfile=/dev/null: no line for db.example:5432:test:ro",
            ),
            ("postgres://me@localhost/test?sslmode=require", "no parameter `sslmode`"),
            ("postgres://me@localhost/test?passfile=/nowhere", "/nowhere"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(word), "{text}: {message}");
        }
    }
}
