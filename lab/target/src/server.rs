//! Servers over their protocol, MariaDB, MySQL and PostgreSQL: the same workloads as SQL.
//!
//! | module | owns |
//! |---|---|
//! | `parameters`, `passwords`, `tls` | what a target string says, what stands elsewhere, who may listen |
//! | `binaries`, `private`, `made`, `fetch` | a server of the run's own: found or fetched, installed, started, stopped |
//! | `engines`, `admin` | MariaDB and MySQL: settings on equal terms, rest, sizes, counters |
//! | `postgres` | the same of PostgreSQL, and its connection |
//! | `address`, `stream` | where a server is; the bytes on the way |
//! | `client`, `mysql` | one connection, text or prepared |
//! | `sql`, `ibench`, `sysbench`, `tpcc` | the statements, and sessions that send them |
//!
//! `server:mariadb?engine=…` starts a private server; `mysql://…?engine=…` and `postgres://…` ask one that runs. There the
//! terms are the server's own: nothing global is set, and the run's tables are dropped at its end.

mod address;
mod admin;
mod binaries;
mod client;
mod dates;
mod engines;
pub mod fetch;
mod ibench;
mod knobs;
mod made;
mod mysql;
mod parameters;
mod passwords;
mod postgres;
mod private;
mod sql;
mod stream;
mod sysbench;
mod tls;
mod tpcc;

use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use lab_measure::procfs::Runs;

use crate::api::{Ability, Counters, Description, Result, Session, Setup, Sizes, Target, TargetError};
use crate::row::{IndexSet, Price};
use crate::spec::TargetSpec;
use crate::sysbench::Tables;
use client::{Address, Client, Dialect};
pub use mysql::NO_SPACE;
pub use parameters::Product;
use parameters::{Engine, Parameters, Place};
pub use private::ERROR_LOG;
use private::Private;
use sql::Sql;

/// The target.
pub struct ServerTarget {
    parameters: Parameters,
    address: Address,
    table_options: String,
    price: Price,
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
    let is_postgres = engine == Engine::Postgres;
    let (private, address, mut client) = match &parameters.place {
        Place::Private { .. } => {
            let start = if is_postgres { postgres::admin::start } else { admin::start };
            let (private, address, client) = start(&parameters, setup)?;
            (Some(private), address, client)
        }
        Place::Running(_) | Place::RunningPostgres(_) => {
            let address = address_of(&parameters.place)?;
            let client = Client::open(&address, parameters.protocol)?;
            (None, address, client)
        }
    };
    if !is_postgres {
        engines::check_engine(&engine, &mut client).map_err(|error| admin::with_log(error, private.as_ref()))?;
    }
    let runs = runs(&address, private.as_ref(), &mut client);
    let mut notes = if is_postgres { postgres::admin::notes(setup, private.is_some()) } else { engine.notes(setup) };
    if private.is_none() {
        notes.push("a server that runs already: budget, durability and io are its own".into());
        if runs == Runs::Elsewhere {
            notes.push("its process is not seen from here: processor time, memory and bytes are not measured".into());
        }
    }
    notes.extend(private.iter().flat_map(Private::warnings));
    if let (Some(private), false) = (&private, is_postgres) {
        notes.extend(knobs::without_effect(&private.options, &admin::variables(&mut client)?));
    }
    let description = describe(&parameters, &mut client, setup, private.as_ref(), notes)?;
    Ok(ServerTarget {
        table_options: engine.table_options(setup.compression.as_deref()),
        price: setup.price,
        parameters,
        address,
        description,
        runs,
        own: Mutex::new(client),
        private: private.map(Mutex::new),
        tables: RwLock::default(),
        created: Mutex::default(),
    })
}

/// Where a server that runs is reached.
fn address_of(place: &Place) -> Result<Address> {
    match place {
        Place::Private { .. } => Err(TargetError::Failed("server: it is not started yet".into())),
        Place::RunningPostgres(address) => Ok(Address::Postgres(address.clone())),
        Place::Running(address) => Ok(Address::MySql(address.clone())),
    }
}

/// Where it runs. PostgreSQL has a process for each connection.
fn runs(address: &Address, private: Option<&Private>, client: &mut Client) -> Runs {
    match (address, private) {
        (Address::MySql(_), Some(private)) => Runs::Beside(private.process()),
        (Address::Postgres(_), Some(private)) => Runs::Family(private.process()),
        (Address::MySql(_), None) => admin::process_of(client).map_or(Runs::Elsewhere, Runs::Beside),
        (Address::Postgres(address), None) => {
            postgres::admin::process_of(client, address).map_or(Runs::Elsewhere, Runs::Family)
        }
    }
}

fn describe(
    parameters: &Parameters,
    client: &mut Client,
    setup: &Setup,
    private: Option<&Private>,
    notes: Vec<String>,
) -> Result<Description> {
    let engine = &parameters.engine;
    let mut settings = match client.dialect() {
        Dialect::MySql => admin::settings(engine, client)?,
        Dialect::Postgres => postgres::admin::settings(client)?,
    };
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
        Client::open(&self.address, self.parameters.protocol)
    }

    fn dialect(&self) -> Dialect {
        match self.address {
            Address::MySql(_) => Dialect::MySql,
            Address::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Creates a table, and remembers its name.
    fn create(&self, name: &str, sql: &str) -> Result<()> {
        self.own()?.say(sql).map_err(|error| match error {
            TargetError::Failed(what) if what.contains(" 1050 ") || what.contains(" 42P07 ") => TargetError::Failed(
                format!("{what}: left by a run that was cut short, or somebody's own; DROP TABLE {name} if it may go"),
            ),
            other => other,
        })?;
        self.remember(name);
        Ok(())
    }

    /// That this table is there.
    fn remember(&self, name: &str) {
        let mut created = self.created.lock().expect("no thread panics while it holds the list");
        if !created.iter().any(|own| own == name) {
            created.push(name.into());
        }
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
        // MyRocks and PostgreSQL hand out the keys of a statement one by one, so those of two statements can be mixed.
        Ability { stores_rows: true, dense_keys: matches!(self.parameters.engine, Engine::InnoDb | Engine::Trefoil) }
    }

    fn create_table(&self, table: u32) -> Result<()> {
        let mut tables = self.tables.write().expect("no thread panics while it holds the list");
        while tables.len() <= table as usize {
            let sql = Sql::new(tables.len() as u32, &self.table_options, self.dialect(), self.price);
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

    fn tpcc(&self) -> Result<Box<dyn crate::tpcc::Tables + '_>> {
        Ok(Box::new(tpcc::TpccTables::new(self)))
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(ibench::Connection { client: self.connect()?, tables: self.tables() }))
    }

    /// Statistics are made for every table, then the engine does what it put off.
    fn settle(&self, limit: Duration) -> Result<()> {
        let (mut own, tables, how) = (self.own()?, self.created(), (self.runs, limit, self.private.is_some()));
        match self.dialect() {
            Dialect::MySql => admin::settle(&self.parameters.engine, &mut own, &tables, how),
            Dialect::Postgres => postgres::admin::settle(&mut own, &tables, how),
        }
    }

    fn sizes(&self) -> Result<Sizes> {
        if let Some(private) = &self.private {
            let private = private.lock().map_err(|_| TargetError::Failed("server: a thread panicked".into()))?;
            return Ok(match self.dialect() {
                Dialect::MySql => self.parameters.engine.sizes_of(&private.data, admin::DATABASE),
                Dialect::Postgres => postgres::admin::sizes_of(&private.data),
            });
        }
        let (mut own, tables) = (self.own()?, self.created());
        let data_bytes = match self.dialect() {
            Dialect::MySql => admin::bytes_of(&mut own, &tables)?,
            Dialect::Postgres => postgres::admin::bytes_of(&mut own, &tables)?,
        };
        Ok(Sizes { data_bytes, ..Sizes::default() })
    }

    fn counters(&self) -> Result<Counters> {
        match self.dialect() {
            Dialect::MySql => admin::counters(&self.parameters.engine, &mut *self.own()?),
            Dialect::Postgres => postgres::admin::counters(&mut *self.own()?),
        }
    }

    /// The server's own check of each table.
    fn verify(&self) -> Result<()> {
        let mut own = self.own()?;
        self.created().iter().try_for_each(|table| match self.dialect() {
            Dialect::MySql => admin::verify(&mut own, table),
            Dialect::Postgres => postgres::admin::verify(&mut own, table),
        })
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
