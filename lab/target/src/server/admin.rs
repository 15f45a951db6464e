//! MariaDB and MySQL beside the workloads: started, described, counted, checked.

use std::collections::BTreeMap;
use std::path::Path;

use super::address;
use super::binaries::Binaries;
use super::client::{Address, Client};
use super::engines;
use super::parameters::{Engine, Parameters, Place};
use super::private::{Private, option_file};
use super::tls::Tls;
use crate::api::{Counters, Durability, Result, Setup, TargetError};

/// The database of a private server.
pub const DATABASE: &str = "lab";
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

/// Starts a private server.
pub fn start(parameters: &Parameters, setup: &Setup) -> Result<(Private, Address, Client)> {
    let Place::Private { product, version, dir, cnf, binlog, .. } = &parameters.place else {
        return Err(TargetError::Failed("server: nothing to start".into()));
    };
    let engine = &parameters.engine;
    let cnf = cnf.as_ref().map(std::fs::canonicalize).transpose();
    let cnf = cnf.map_err(|error| TargetError::Usage(format!("cnf: {error}")))?;
    let binaries = Binaries::find(*product, version.as_deref(), dir.as_deref(), engine)?;
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
    settings.extend(engine.settings(setup, &binaries));
    settings.extend(binaries.settings(*binlog));
    let options = option_file(&settings, cnf.as_deref())?;
    // Nobody but the lab asks it, unless somebody's own file has a port.
    let text = cnf.as_ref().map(|path| std::fs::read_to_string(path).unwrap_or_default()).unwrap_or_default();
    let listens = text.lines().any(|line| line.trim_start().starts_with("port"));
    let mut private = Private::start(&binaries, &setup.dir, &options, (*engine == Engine::InnoDb, listens))?;
    let address = |database: Option<&str>| {
        Address::MySql(address::Address {
            host: String::new(),
            port: 0,
            socket: Some(private.socket().to_owned()),
            user: "root".into(),
            password: None,
            database: database.map(str::to_owned),
            tls: Tls::Off,
        })
    };
    let (anywhere, own) = (address(None), address(Some(DATABASE)));
    let mut client = private.wait(|| Client::open(&anywhere, parameters.protocol))?;
    client.say(&format!("CREATE DATABASE IF NOT EXISTS {DATABASE} DEFAULT CHARACTER SET latin1"))?;
    client.say(&format!("USE {DATABASE}"))?;
    Ok((private, own, client))
}

/// A server goes on without an engine that did not start; its log says why.
pub fn with_log(error: TargetError, private: Option<&Private>) -> TargetError {
    match (error, private) {
        (TargetError::Unsupported(what), Some(private)) => {
            TargetError::Failed(format!("{what}; the server's log ends with\n{}", private.tail()))
        }
        (error, _) => error,
    }
}

/// The process of a server that somebody else started, if it is on this machine.
pub fn process_of(client: &mut Client) -> Option<u32> {
    let value = |client: &mut Client, name: &str| client.value(&format!("SELECT @@{name}")).ok().flatten();
    let here = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let (host, data) = (value(client, "hostname")?, value(client, "datadir")?);
    let file = Path::new(&data).join(value(client, "pid_file")?);
    let process = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    let is_server = ["mariadbd", "mysqld"].contains(&name.trim());
    (host == here.trim() && is_server).then_some(process)
}

/// Every setting of the server.
pub fn variables(client: &mut Client) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    client.ask("SHOW GLOBAL VARIABLES", &mut |row| {
        all.insert(row.string(0).to_lowercase(), row.string(1));
        Ok(())
    })?;
    Ok(all)
}

/// Every setting of the engine, and some of the server.
pub fn settings(engine: &Engine, client: &mut Client) -> Result<BTreeMap<String, String>> {
    let prefix = engine.prefix();
    let mut settings = variables(client)?;
    settings.retain(|name, _| name.starts_with(&prefix) || VARIABLES.contains(&name.as_str()));
    Ok(settings)
}

/// The engine's counters, and some of the server.
pub fn counters(engine: &Engine, client: &mut Client) -> Result<Counters> {
    let (prefix, mut counters) = (engine.prefix(), Counters::new());
    client.ask("SHOW GLOBAL STATUS", &mut |row| {
        let name = row.string(0).to_lowercase();
        let wanted = name.starts_with(&prefix) || name.starts_with("handler_") || name.starts_with("binlog_");
        if let (true, Ok(value)) = (wanted, row.string(1).parse()) {
            counters.insert(name, value);
        }
        Ok(())
    })?;
    let debt = match engine {
        Engine::RocksDb => asked(client, TOMBSTONES),
        Engine::Trefoil => asked(client, DEAD_VERSIONS),
        Engine::InnoDb => history(client)?,
        Engine::Postgres | Engine::Other(_) => None,
    };
    counters.extend(debt.map(|debt| ("gc_debt".to_owned(), debt)));
    Ok(counters)
}

/// Of the files of MyRocks; what is in memory it does not tell.
const TOMBSTONES: &str =
    "SELECT COALESCE(SUM(ENTRY_DELETES + ENTRY_SINGLEDELETES), 0) FROM information_schema.ROCKSDB_INDEX_FILE_MAP";
const DEAD_VERSIONS: &str = "SELECT COALESCE(SUM(DEAD_VERSIONS), 0) FROM information_schema.TREFOIL_INDEXES";

/// Length of InnoDB's history of versions that are not purged. MariaDB has a counter of it; MySQL has it in the engine's report alone,
/// which not every user may read: then it is not known.
pub fn history(client: &mut Client) -> Result<Option<u64>> {
    let mut length = None;
    client.ask("SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'", &mut |row| {
        length = row.string(1).parse().ok();
        Ok(())
    })?;
    if length.is_some() {
        return Ok(length);
    }
    let _ = client.ask("SHOW ENGINE INNODB STATUS", &mut |row| {
        length = history_in(&row.string(2));
        Ok(())
    });
    Ok(length)
}

fn history_in(report: &str) -> Option<u64> {
    report.lines().find_map(|line| line.strip_prefix("History list length ")?.trim().parse().ok())
}

/// A whole number; none where this user may not ask, or the server does not have it.
fn asked(client: &mut Client, sql: &str) -> Option<u64> {
    client.value(sql).ok().flatten()?.parse().ok()
}

/// `CHECK TABLE`; an engine that cannot be asked says so in a note.
pub fn verify(client: &mut Client, table: &str) -> Result<()> {
    let mut problem = None;
    client.ask(&format!("CHECK TABLE {table} EXTENDED"), &mut |row| {
        let (kind, text) = (row.string(2), row.string(3));
        if matches!(kind.as_str(), "error" | "Error" | "warning") || (kind == "status" && text != "OK") {
            problem.get_or_insert(text);
        }
        Ok(())
    })?;
    problem.map_or(Ok(()), |problem| Err(TargetError::Failed(format!("server: CHECK TABLE {table}: {problem}"))))
}

/// What tables occupy, as the server has it.
pub fn bytes_of(client: &mut Client, tables: &[String]) -> Result<Option<u64>> {
    let names: Vec<String> = tables.iter().map(|name| format!("'{name}'")).collect();
    let sql = format!(
        "SELECT SUM(DATA_LENGTH + INDEX_LENGTH) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND \
         TABLE_NAME IN ({})",
        names.join(", ")
    );
    Ok(client.value(&sql)?.and_then(|bytes| bytes.parse().ok()))
}

/// Makes statistics, then the engine does what it put off.
pub fn settle(
    engine: &Engine,
    client: &mut Client,
    tables: &[String],
    (runs, limit, is_private): (lab_measure::procfs::Runs, std::time::Duration, bool),
) -> Result<()> {
    for table in tables {
        client.ask(&format!("ANALYZE TABLE {table}"), &mut |_| Ok(()))?;
    }
    if is_private { engines::settle(engine, client, runs, limit) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_read_from_the_report_of_innodb() {
        let report = "TRANSACTIONS\n------------\nTrx id counter 1807\nHistory list length 42\nLIST OF TRANSACTIONS";
        assert_eq!(history_in(report), Some(42));
        assert_eq!(history_in("TRANSACTIONS\n"), None);
    }
}
