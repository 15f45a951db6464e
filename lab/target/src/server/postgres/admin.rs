//! PostgreSQL beside the workloads: its settings on equal terms, described, counted, checked, brought to rest.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use lab_measure::disk::occupied_bytes;
use lab_measure::procfs::Runs;

use super::super::client::{Address, Client};
use super::super::engines::{BUDGET_BYTES_DEFAULT, LOG_BYTES, rest};
use super::super::parameters::{Parameters, Place};
use super::super::private::Private;
use super::private;
use crate::api::{Counters, Durability, IoMode, Result, Setup, Sizes, TargetError};

/// The role of a private server, and its database.
const ROLE: &str = "lab";
/// Views of counters; which there are depends on the version.
const VIEWS: [&str; 5] =
    ["pg_stat_wal", "pg_stat_bgwriter", "pg_stat_checkpointer", "pg_stat_database", "pg_stat_archiver"];
const MIB: u64 = 1 << 20;

/// Starts a private server.
pub fn start(parameters: &Parameters, setup: &Setup) -> Result<(Private, Address, Client)> {
    let Place::Private { version, dir, cnf, user, .. } = &parameters.place else {
        return Err(TargetError::Failed("server: nothing to start".into()));
    };
    let cnf = cnf.as_ref().map(std::fs::canonicalize).transpose();
    let cnf = cnf.map_err(|error| TargetError::Usage(format!("cnf: {error}")))?;
    let programs = private::Programs::find(version.as_deref(), dir.as_deref())?;
    let options = options(setup, cnf.as_deref());
    let mut private = private::start(&programs, &setup.dir, &options, (ROLE, user.as_deref()))?;
    let address = |database: &str| {
        Address::Postgres(super::super::address::Address {
            host: String::new(),
            port: private::PORT,
            socket: Some(private.sockets().to_owned()),
            user: ROLE.into(),
            password: None,
            database: Some(database.into()),
            tls: super::super::tls::Tls::Off,
        })
    };
    let (first, own) = (address("postgres"), address(ROLE));
    let mut client = private.wait(|| Client::open(&first, parameters.protocol))?;
    let there = client.value(&format!("SELECT 1 FROM pg_database WHERE datname = '{ROLE}'"))?;
    if there.is_none() {
        client.say(&format!("CREATE DATABASE {ROLE}"))?;
    }
    drop(client);
    let mut client = Client::open(&own, parameters.protocol)?;
    client.say("CREATE EXTENSION IF NOT EXISTS amcheck")?;
    Ok((private, own, client))
}

/// The settings of a private server. One budget; a commit is synced, handed to the operating system, or neither.
fn options(setup: &Setup, cnf: Option<&Path>) -> String {
    let budget = setup.budget_bytes.unwrap_or(BUDGET_BYTES_DEFAULT) / MIB;
    let (fsync, at_commit) = match setup.durability {
        Durability::Sync => ("on", "on"),
        Durability::Write => ("off", "on"),
        Durability::Buffered => ("on", "off"),
    };
    let settings = [
        ("listen_addresses", "''".to_owned()),
        ("max_connections", "300".into()),
        ("shared_buffers", format!("{}MB", budget.max(1))),
        ("maintenance_work_mem", format!("{}MB", (budget / 8).clamp(16, 1024))),
        ("max_wal_size", format!("{}MB", LOG_BYTES / MIB)),
        ("fsync", fsync.into()),
        ("synchronous_commit", at_commit.into()),
        ("logging_collector", "off".into()),
    ];
    let mut text: String = settings.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
    if let Some(cnf) = cnf {
        // Read behind the rest, so it has the last word.
        text.push_str(&format!("include '{}'\n", cnf.display()));
    }
    text
}

/// What the reader of a report has to know about terms that it does not have.
pub fn notes(setup: &Setup, is_private: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if setup.compression.as_deref().is_some_and(|name| name != "none") {
        notes.push("postgres: compression has no effect on rows of this size".into());
    }
    if is_private {
        if setup.io == Some(IoMode::Direct) {
            notes.push(
                "postgres: no direct i/o: the page cache helps beside shared_buffers, which is the budget".into(),
            );
        }
        if setup.durability == Durability::Write {
            notes.push(
                "postgres: durability write is fsync=off: a commit is written, and nothing is ever synced".into(),
            );
        }
    }
    notes
}

/// Settings that somebody set, or that others like to know.
pub fn settings(client: &mut Client) -> Result<BTreeMap<String, String>> {
    let mut settings = BTreeMap::new();
    let sql = "SELECT name, current_setting(name) FROM pg_settings WHERE source <> 'default' OR name ~ \
               '^(autovacuum|checkpoint|effective|fsync|full_page|jit|max_wal|random_page|shared_buf|synchronous|wal_|work)'";
    client.ask(sql, &mut |row| {
        settings.insert(row.string(0), row.string(1));
        Ok(())
    })?;
    settings.insert("version".into(), client.value("SHOW server_version")?.unwrap_or_default());
    Ok(settings)
}

/// The postmaster of a server that somebody else started, if it is on this machine: the parent of this connection's process.
pub fn process_of(client: &mut Client, address: &super::super::address::Address) -> Option<u32> {
    let is_here = address.socket.is_some() || ["localhost", "127.0.0.1", "::1"].contains(&address.host.as_str());
    let own = client.value("SELECT pg_backend_pid()").ok().flatten()?;
    let stat = std::fs::read_to_string(format!("/proc/{own}/stat")).ok()?;
    let (name, fields) = stat.rsplit_once(')')?;
    (is_here && name.contains("(postgres")).then(|| fields.split_whitespace().nth(1)?.parse().ok()).flatten()
}

/// Its counters. `gc_debt` are dead rows that no vacuum has taken away, as the server estimates them.
pub fn counters(client: &mut Client) -> Result<Counters> {
    let mut counters = Counters::new();
    for view in VIEWS {
        if client.value(&format!("SELECT to_regclass('pg_catalog.{view}')"))?.is_none() {
            continue;
        }
        let own = if view == "pg_stat_database" { " WHERE datname = current_database()" } else { "" };
        let sql = format!("SELECT key, value FROM (SELECT * FROM {view}{own}) s, jsonb_each_text(to_jsonb(s))");
        client.ask(&sql, &mut |row| {
            if let Ok(value) = row.string(1).parse() {
                counters.insert(format!("{view}.{}", row.string(0)), value);
            }
            Ok(())
        })?;
    }
    let tables = "SELECT COALESCE(SUM(n_dead_tup), 0)::bigint, COALESCE(SUM(n_live_tup), 0)::bigint, \
                  COALESCE(SUM(vacuum_count + autovacuum_count), 0)::bigint FROM pg_stat_user_tables";
    client.ask(tables, &mut |row| {
        for (place, name) in ["gc_debt", "live_rows", "vacuums"].into_iter().enumerate() {
            counters.insert(name.into(), row.number(place)? as u64);
        }
        Ok(())
    })?;
    Ok(counters)
}

/// Every entry of every row is in each index, and rows can be read, as its own extension checks it; where a running server
/// does not have that, nothing is checked.
pub fn verify(client: &mut Client, table: &str) -> Result<()> {
    if client.value("SELECT 1 FROM pg_extension WHERE extname = 'amcheck'")?.is_none() {
        return Ok(());
    }
    let wrong = |error: TargetError| TargetError::Failed(format!("amcheck of {table}: {error}"));
    let indexes = "SELECT bt_index_check(indexrelid, true) FROM pg_index WHERE indrelid =";
    client.ask(&format!("{indexes} '{table}'::regclass"), &mut |_| Ok(())).map_err(wrong)?;
    let rows = format!("SELECT msg FROM verify_heapam('{table}')");
    match client.value("SELECT to_regproc('verify_heapam')")?.is_some() {
        true => client.value(&rows).map_err(wrong)?.map_or(Ok(()), |what| Err(wrong(TargetError::Failed(what)))),
        false => Ok(()),
    }
}

/// What tables occupy, indexes included, as the server has it.
pub fn bytes_of(client: &mut Client, tables: &[String]) -> Result<Option<u64>> {
    let names: Vec<String> = tables.iter().map(|name| format!("pg_total_relation_size('{name}')")).collect();
    let sum = if names.is_empty() { "0".to_owned() } else { names.join(" + ") };
    Ok(client.value(&format!("SELECT {sum}"))?.and_then(|bytes| bytes.parse().ok()))
}

/// Sizes of a private server's files, with and without the write-ahead log.
pub fn sizes_of(data: &Path) -> Sizes {
    let (total_bytes, log) = (occupied_bytes(data), occupied_bytes(&data.join("pg_wal")));
    let classes = log.map(|log| ("wal".to_owned(), log)).into_iter().collect();
    Sizes { data_bytes: total_bytes.zip(log).map(|(total, log)| total - log), total_bytes, classes }
}

/// Dead rows go, statistics are made, dirty pages are written; then it lasts until nobody works.
pub fn settle(client: &mut Client, tables: &[String], (runs, limit, is_private): (Runs, Duration, bool)) -> Result<()> {
    let began = std::time::Instant::now();
    for table in tables {
        client.say(&format!("VACUUM (ANALYZE, INDEX_CLEANUP ON) {table}"))?;
    }
    if is_private {
        client.say("CHECKPOINT")?;
        rest(runs, limit.saturating_sub(began.elapsed()));
    }
    Ok(())
}
