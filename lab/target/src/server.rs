//! Servers over their protocol, MariaDB and MySQL: the same workloads as SQL.
//!
//! | module | owns |
//! |---|---|
//! | `parameters` | what a target string says |
//! | `binaries`, `private` | a server of the run's own: found, installed, started, stopped |
//! | `engines` | settings on equal terms, rest, sizes |
//! | `client` | one connection, text or prepared |
//! | `sql`, `ibench`, `sysbench` | the statements, and sessions that send them |
//!
//! `server:mariadb?engine=…` starts a private server; `mysql://…?engine=…` asks one that runs. There the terms are the
//! server's own: nothing global is set, and the run's tables are dropped at its end.

mod binaries;
mod client;
mod dates;
mod engines;
mod ibench;
mod parameters;
mod private;
mod sql;
mod sysbench;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use lab_measure::procfs::Runs;
use mysql::{Opts, OptsBuilder};

use crate::api::{Ability, Counters, Description, Durability, Result, Session, Setup, Sizes, Target, TargetError};
use crate::row::IndexSet;
use crate::spec::TargetSpec;
use crate::sysbench::Tables;
use binaries::Binaries;
use client::Client;
use parameters::{Engine, Parameters, Place};
use private::{Private, option_file};
use sql::Sql;

/// The database of a private server.
const DATABASE: &str = "lab";
/// What a server is asked about itself beside everything of its engine.
const VARIABLES: [&str; 14] = [
    "autocommit",
    "binlog_format",
    "character_set_server",
    "default_storage_engine",
    "log_bin",
    "max_connections",
    "optimizer_switch",
    "performance_schema",
    "query_cache_type",
    "sync_binlog",
    "thread_handling",
    "tx_isolation",
    "version",
    "version_comment",
];

/// The target.
pub struct ServerTarget {
    parameters: Parameters,
    opts: Opts,
    table_options: String,
    description: Description,
    runs: Runs,
    /// For definitions, administration and questions.
    own: Mutex<Client>,
    private: Option<Mutex<Private>>,
    tables: RwLock<Vec<Arc<Sql>>>,
    /// Names of all tables that were created.
    created: Mutex<Vec<String>>,
}

/// Checks the parameters.
pub fn check(spec: TargetSpec) -> Result<()> {
    Parameters::parse(spec).map(|_| ())
}

/// Opens a server: starts it, or connects to it.
pub fn open(spec: TargetSpec, setup: &Setup) -> Result<ServerTarget> {
    let parameters = Parameters::parse(spec)?;
    let engine = parameters.engine.clone();
    let (private, opts, mut client) = match &parameters.place {
        Place::Private { .. } => {
            let (private, opts, client) = start(&parameters, setup)?;
            (Some(private), opts, client)
        }
        Place::Running { url, socket } => {
            let opts =
                OptsBuilder::from_opts(Opts::from_url(url).map_err(|error| TargetError::Usage(error.to_string()))?);
            let opts = Opts::from(opts.socket(socket.as_ref().map(|path| path.display().to_string())));
            let client = Client::open(&opts, parameters.protocol).map_err(|error| unreachable(&opts, error))?;
            (None, opts, client)
        }
    };
    engines::check_engine(&engine, &mut client).map_err(|error| with_log(error, private.as_ref()))?;
    let runs = match &private {
        Some(private) => Runs::Beside(private.process()),
        None => process_of(&mut client).map_or(Runs::Elsewhere, Runs::Beside),
    };
    let mut notes = engine.notes(setup);
    if private.is_none() {
        notes.push("a server that runs already: budget, durability and io are its own".into());
        if runs == Runs::Elsewhere {
            notes.push("its process is not seen from here: processor time, memory and bytes are not measured".into());
        }
    }
    notes.extend(private.iter().flat_map(Private::warnings));
    let description = describe(&parameters, &mut client, setup, private.as_ref(), notes)?;
    Ok(ServerTarget {
        table_options: engine.table_options(setup.compression.as_deref()),
        parameters,
        opts,
        description,
        runs,
        own: Mutex::new(client),
        private: private.map(Mutex::new),
        tables: RwLock::default(),
        created: Mutex::default(),
    })
}

fn start(parameters: &Parameters, setup: &Setup) -> Result<(Private, Opts, Client)> {
    let Place::Private { dir, cnf, binlog } = &parameters.place else {
        return Err(TargetError::Failed("server: nothing to start".into()));
    };
    let engine = &parameters.engine;
    let cnf = cnf.as_ref().map(std::fs::canonicalize).transpose();
    let cnf = cnf.map_err(|error| TargetError::Usage(format!("cnf: {error}")))?;
    let binaries = Binaries::find(dir.as_deref(), engine)?;
    let mut settings: Vec<(String, String)> = [
        ("character_set_server", "latin1"),
        ("collation_server", "latin1_swedish_ci"),
        ("max_connections", "1000"),
        ("thread_cache_size", "256"),
        ("max_allowed_packet", "64M"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    if *binlog {
        let sync = u8::from(setup.durability == Durability::Sync).to_string();
        let log = [("log_bin", "binlog"), ("binlog_format", "ROW"), ("server_id", "1"), ("sync_binlog", &sync)];
        settings.extend(log.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    settings.extend(engine.settings(setup));
    let options = option_file(&settings, cnf.as_deref())?;
    let mut private = Private::start(&binaries, &setup.dir, &options, *engine == Engine::InnoDb)?;
    let root = OptsBuilder::new().user(Some("root")).socket(Some(private.socket().display().to_string()));
    let anywhere = Opts::from(root.clone());
    let mut client = private.wait(|| Client::open(&anywhere, parameters.protocol))?;
    client.say(&format!("CREATE DATABASE {DATABASE} DEFAULT CHARACTER SET latin1"))?;
    client.say(&format!("USE {DATABASE}"))?;
    Ok((private, Opts::from(root.db_name(Some(DATABASE))), client))
}

/// Why there is no connection, and what to do.
fn unreachable(opts: &Opts, error: mysql::Error) -> TargetError {
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
            "no server answers at {place} ({other}); start it, or let the lab start one: server:mariadb?engine=innodb"
        ),
    })
}

/// A server goes on without an engine that did not start; its log says why.
fn with_log(error: TargetError, private: Option<&Private>) -> TargetError {
    match (error, private) {
        (TargetError::Unsupported(what), Some(private)) => {
            TargetError::Failed(format!("{what}; the server's log ends with\n{}", private.tail()))
        }
        (error, _) => error,
    }
}

/// The process of a server that somebody else started, if it is on this machine.
fn process_of(client: &mut Client) -> Option<u32> {
    let value = |client: &mut Client, name: &str| client.value(&format!("SELECT @@{name}")).ok().flatten();
    let here = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let (host, data) = (value(client, "hostname")?, value(client, "datadir")?);
    let file = Path::new(&data).join(value(client, "pid_file")?);
    let process = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    let is_server = ["mariadbd", "mysqld"].contains(&name.trim());
    (host == here.trim() && is_server).then_some(process)
}

fn describe(
    parameters: &Parameters,
    client: &mut Client,
    setup: &Setup,
    private: Option<&Private>,
    notes: Vec<String>,
) -> Result<Description> {
    let (engine, mut settings) = (&parameters.engine, BTreeMap::new());
    let prefix = engine.prefix();
    client.ask("SHOW GLOBAL VARIABLES", &mut |row| {
        let name = row.string(0);
        if name.starts_with(&prefix) || VARIABLES.contains(&name.as_str()) {
            settings.insert(name, row.string(1));
        }
        Ok(())
    })?;
    settings.insert("protocol".into(), parameters.protocol.name().into());
    settings.insert("compression".into(), setup.compression.clone().unwrap_or_else(|| "default".into()));
    if let Some(private) = private {
        settings.insert("durability".into(), format!("{:?}", setup.durability).to_lowercase());
        settings.insert("server.cnf".into(), private.options.clone());
    }
    let binlog = if settings.get("log_bin").is_some_and(|on| on == "ON") { "-binlog" } else { "" };
    Ok(Description {
        engine: engine.name().into(),
        version: settings.get("version").cloned().unwrap_or_default(),
        config: format!("{engine}-{}{binlog}", parameters.protocol.name()),
        settings,
        notes,
    })
}

impl ServerTarget {
    fn own(&self) -> Result<MutexGuard<'_, Client>> {
        self.own.lock().map_err(|_| TargetError::Failed("server: a thread panicked with the connection".into()))
    }

    fn connect(&self) -> Result<Client> {
        Client::open(&self.opts, self.parameters.protocol).map_err(client::wrong)
    }

    /// Creates a table, and remembers its name.
    fn create(&self, name: &str, sql: &str) -> Result<()> {
        self.own()?.say(sql).map_err(|error| match error {
            TargetError::Failed(what) if what.contains(" 1050 ") => TargetError::Failed(format!(
                "{what}: left by a run that was cut short, or somebody's own; DROP TABLE {name} if it may go"
            )),
            other => other,
        })?;
        self.created.lock().expect("no thread panics while it holds the list").push(name.into());
        Ok(())
    }

    fn created(&self) -> Vec<String> {
        self.created.lock().expect("no thread panics while it holds the list").clone()
    }

    fn tables(&self) -> Vec<Arc<Sql>> {
        self.tables.read().expect("no thread panics while it holds the list").clone()
    }
}

impl Target for ServerTarget {
    fn describe(&self) -> Description {
        self.description.clone()
    }

    fn ability(&self) -> Ability {
        // MyRocks hands out the keys of a statement one by one, so those of two statements can be mixed.
        Ability { stores_rows: true, dense_keys: matches!(self.parameters.engine, Engine::InnoDb | Engine::Trefoil) }
    }

    fn create_table(&self, table: u32) -> Result<()> {
        let mut tables = self.tables.write().expect("no thread panics while it holds the list");
        while tables.len() <= table as usize {
            let sql = Sql::new(tables.len() as u32, &self.table_options);
            self.create(sql.name(), &sql.create_table)?;
            tables.push(Arc::new(sql));
        }
        Ok(())
    }

    fn create_indexes(&self, table: u32, set: IndexSet) -> Result<()> {
        let sql = ibench::table_of(&self.tables(), table)?;
        let mut client = self.connect()?;
        for statement in sql.create_indexes(set, &self.parameters.engine) {
            client.say(&statement)?;
        }
        sql.index(set).map_err(|what| TargetError::Failed(format!("server: {what}")))
    }

    fn runs(&self) -> Runs {
        self.runs
    }

    fn sysbench(&self) -> Result<Box<dyn Tables + '_>> {
        Ok(Box::new(sysbench::ServerTables::new(self)))
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(ibench::Connection { client: self.connect()?, tables: self.tables() }))
    }

    /// Statistics are made for every table, then the engine does what it put off.
    fn settle(&self, limit: Duration) -> Result<()> {
        let mut own = self.own()?;
        for table in self.created() {
            own.ask(&format!("ANALYZE TABLE {table}"), &mut |_| Ok(()))?;
        }
        match self.private {
            Some(_) => engines::settle(&self.parameters.engine, &mut own, self.runs, limit),
            None => Ok(()),
        }
    }

    fn sizes(&self) -> Result<Sizes> {
        if let Some(private) = &self.private {
            let private = private.lock().map_err(|_| TargetError::Failed("server: a thread panicked".into()))?;
            return Ok(self.parameters.engine.sizes_of(&private.data, DATABASE));
        }
        let names: Vec<String> = self.created().iter().map(|name| format!("'{name}'")).collect();
        let sql = format!(
            "SELECT SUM(DATA_LENGTH + INDEX_LENGTH) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND \
             TABLE_NAME IN ({})",
            names.join(", ")
        );
        let data_bytes = self.own()?.value(&sql)?.and_then(|bytes| bytes.parse().ok());
        Ok(Sizes { data_bytes, ..Sizes::default() })
    }

    fn counters(&self) -> Result<Counters> {
        let (prefix, mut counters) = (self.parameters.engine.prefix(), Counters::new());
        self.own()?.ask("SHOW GLOBAL STATUS", &mut |row| {
            let name = row.string(0).to_lowercase();
            let wanted = name.starts_with(&prefix) || name.starts_with("handler_") || name.starts_with("binlog_");
            if let (true, Ok(value)) = (wanted, row.string(1).parse()) {
                counters.insert(name, value);
            }
            Ok(())
        })?;
        if let Some(history) = counters.get("innodb_history_list_length").copied() {
            counters.insert("gc_debt".into(), history);
        }
        Ok(counters)
    }

    /// `CHECK TABLE`; an engine that cannot be asked says so in a note.
    fn verify(&self) -> Result<()> {
        let mut own = self.own()?;
        for table in self.created() {
            let mut problem = None;
            own.ask(&format!("CHECK TABLE {table} EXTENDED"), &mut |row| {
                let (kind, text) = (row.string(2), row.string(3));
                if matches!(kind.as_str(), "error" | "Error" | "warning") || (kind == "status" && text != "OK") {
                    problem.get_or_insert(text);
                }
                Ok(())
            })?;
            if let Some(problem) = problem {
                return Err(TargetError::Failed(format!("server: CHECK TABLE {table}: {problem}")));
            }
        }
        Ok(())
    }

    fn close(&self) -> Result<()> {
        match &self.private {
            Some(private) => {
                private.lock().map_err(|_| TargetError::Failed("server: a thread panicked".into()))?.stop()
            }
            None => {
                let mut own = self.own()?;
                self.created().iter().try_for_each(|table| own.say(&format!("DROP TABLE {table}")))
            }
        }
    }
}
