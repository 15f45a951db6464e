//! What differs from engine to engine: settings of a private server, how it comes to rest, what its files are.
//!
//! Equal terms: one budget, one durability, a log of the same size, and whatever memory and threads the other engines of
//! the server would take are not there.

use std::path::Path;
use std::time::{Duration, Instant};

use lab_measure::disk::occupied_bytes;
use lab_measure::procfs::{Process, Runs};

use super::admin;
use super::binaries::Binaries;
use super::client::Client;
use super::parameters::Engine;
use crate::api::{Durability, IoMode, Result, Setup, Sizes, TargetError};

/// What an engine gets where the run names no budget.
pub const BUDGET_BYTES_DEFAULT: u64 = 512 << 20;
/// Log that an engine may keep before it has to write pages back or to flush.
pub const LOG_BYTES: u64 = 1 << 30;
/// A server at rest uses less of a processor and writes nothing, so long.
const REST: Duration = Duration::from_millis(600);
const REST_CPU_SECS: f64 = 0.03;
/// Versions that are not reclaimed, of a history that is empty but for InnoDB's own.
const HISTORY_AT_REST: u64 = 50;
/// A server that does nothing and has so long done nothing about what is left will not: MySQL 5.5 leaves history until somebody writes.
const NO_PROGRESS: Duration = Duration::from_secs(20);
/// After how many rounds of purge history is cut off; versions of today's MariaDB have no such setting.
const TRUNCATE_FREQUENCY: &str = "innodb_purge_rseg_truncate_frequency";

impl Engine {
    /// How the names of its variables and counters begin.
    pub fn prefix(&self) -> String {
        format!("{}_", self.name())
    }

    /// Its library among the server's plugins; InnoDB is part of the server.
    pub fn plugin(&self) -> Option<&'static str> {
        match self {
            Engine::RocksDb => Some("ha_rocksdb.so"),
            Engine::Trefoil => Some("ha_trefoil.so"),
            Engine::InnoDb | Engine::Postgres | Engine::Other(_) => None,
        }
    }

    /// Options of every table.
    pub fn table_options(&self, compression: Option<&str>) -> String {
        let own = match (self, compression) {
            (Engine::Trefoil, Some(name)) => format!(" COMPRESSION={name}"),
            _ => String::new(),
        };
        if *self == Engine::Postgres { String::new() } else { format!("ENGINE={self} DEFAULT CHARSET=latin1{own}") }
    }

    /// Settings of a private server.
    pub fn settings(&self, setup: &Setup, binaries: &Binaries) -> Vec<(String, String)> {
        let budget = setup.budget_bytes.unwrap_or(BUDGET_BYTES_DEFAULT);
        let at_commit = match setup.durability {
            Durability::Sync => 1,
            Durability::Write => 2,
            Durability::Buffered => 0,
        };
        let set = |pairs: &[(&str, String)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
        };
        let without_innodb = [("innodb", "OFF".into()), ("default_storage_engine", "Aria".into())];
        let (loaded, direct) = (self.plugin().unwrap_or_default().to_owned(), setup.io != Some(IoMode::Buffered));
        match self {
            Engine::InnoDb => {
                let mut all = set(&[
                    ("innodb_buffer_pool_size", budget.to_string()),
                    ("innodb_flush_log_at_trx_commit", at_commit.to_string()),
                    ("innodb_flush_method", if direct { "O_DIRECT" } else { "fsync" }.into()),
                    ("innodb_io_capacity", "2000".into()),
                ]);
                // MySQL has one size for all files of the log; MariaDB has one file since 10.5, and two before.
                all.extend(match (binaries.is_mariadb, binaries.version) {
                    (false, version) if version >= (8, 4) => {
                        set(&[("innodb_redo_log_capacity", LOG_BYTES.to_string())])
                    }
                    (true, version) if version >= (10, 5) => set(&[("innodb_log_file_size", LOG_BYTES.to_string())]),
                    _ => set(&[("innodb_log_file_size", (LOG_BYTES / 2).to_string())]),
                });
                if binaries.is_mariadb || binaries.version >= (5, 6) {
                    all.extend(set(&[
                        ("innodb_flush_neighbors", "0".into()),
                        ("innodb_io_capacity_max", "4000".into()),
                    ]));
                }
                if binaries.version < (5, 6) {
                    all.extend(set(&[("innodb_file_per_table", "1".into())]));
                }
                all
            }
            Engine::RocksDb => {
                let direct_io = u8::from(setup.io == Some(IoMode::Direct)).to_string();
                let own = set(&[
                    ("plugin_load_add", loaded),
                    ("rocksdb_block_cache_size", (budget / 4 * 3).to_string()),
                    ("rocksdb_db_write_buffer_size", (budget / 4).to_string()),
                    ("rocksdb_max_total_wal_size", LOG_BYTES.to_string()),
                    ("rocksdb_flush_log_at_trx_commit", at_commit.to_string()),
                    // Otherwise the log stays in the server's memory up to a second, whatever the line above says.
                    ("rocksdb_manual_wal_flush", if at_commit == 0 { "ON" } else { "OFF" }.into()),
                    ("rocksdb_use_direct_reads", direct_io.clone()),
                    ("rocksdb_use_direct_io_for_flush_and_compaction", direct_io),
                    ("rocksdb_default_cf_options", column_family(setup.compression.as_deref())),
                ]);
                [set(&without_innodb), own].concat()
            }
            Engine::Trefoil => {
                let own = set(&[
                    ("plugin_maturity", "experimental".into()),
                    ("plugin_load_add", loaded),
                    ("trefoil_buffer_size", budget.to_string()),
                    ("trefoil_log_capacity", LOG_BYTES.to_string()),
                    ("trefoil_flush_log_at_commit", at_commit.to_string()),
                ]);
                [set(&without_innodb), own].concat()
            }
            Engine::Postgres | Engine::Other(_) => Vec::new(),
        }
    }

    /// What the reader of a report has to know about terms that the engine does not have.
    pub fn notes(&self, setup: &Setup) -> Vec<String> {
        let mut notes = Vec::new();
        let compresses = matches!(self, Engine::RocksDb | Engine::Trefoil);
        if let Some(name) = setup.compression.as_deref().filter(|name| *name != "none" && !compresses) {
            notes.push(format!("{self}: compression {name} has no effect"));
        }
        if *self == Engine::Trefoil && setup.io.is_some() {
            notes.push("trefoil in a server has no setting for direct i/o: it is the engine's own choice".into());
        }
        notes
    }

    /// Sizes of a private server's files.
    pub fn sizes_of(&self, data: &Path, database: &str) -> Sizes {
        let of = |path: &Path| occupied_bytes(path);
        let data_bytes = match self {
            Engine::RocksDb => of_files(&data.join("#rocksdb"), "sst"),
            Engine::Trefoil => {
                of(&data.join("trefoil")).zip(of_files(&data.join("trefoil"), "log")).map(|(all, log)| all - log)
            }
            Engine::InnoDb | Engine::Postgres | Engine::Other(_) => of(&data.join(database)),
        };
        Sizes { data_bytes, total_bytes: of(data), classes: Default::default() }
    }

    /// The settings that [`Engine::calm`] changes, as they are now: somebody's own file may have them. A limit comes before what
    /// the server keeps below it.
    fn changed_to_be_calm(&self, client: &mut Client) -> Result<Vec<(String, String)>> {
        let mut all = Vec::new();
        if *self == Engine::InnoDb {
            for name in ["innodb_max_dirty_pages_pct", "innodb_max_dirty_pages_pct_lwm", TRUNCATE_FREQUENCY] {
                client.ask(&format!("SHOW GLOBAL VARIABLES LIKE '{name}'"), &mut |row| {
                    all.push((row.string(0), row.string(1)));
                    Ok(())
                })?;
            }
        }
        Ok(all)
    }

    /// Asks the engine to do what it put off.
    fn calm(&self, client: &mut Client, before: &[(String, String)]) -> Result<()> {
        match self {
            Engine::InnoDb => {
                client.say("SET GLOBAL innodb_max_dirty_pages_pct = 0")?;
                // Purged history counts until it is cut off, which MySQL at rest does after minutes.
                let truncates = before.iter().any(|(name, _)| name == TRUNCATE_FREQUENCY);
                if truncates { client.say(&format!("SET GLOBAL {TRUNCATE_FREQUENCY} = 1")) } else { Ok(()) }
            }
            Engine::RocksDb => client.say("SET GLOBAL rocksdb_force_flush_memtable_and_lzero_now = 1"),
            Engine::Trefoil | Engine::Postgres | Engine::Other(_) => client.say("FLUSH LOGS"),
        }
    }

    /// What is left of that.
    fn left(&self, client: &mut Client) -> Result<u64> {
        match self {
            Engine::InnoDb => {
                let history = admin::history(client)?.unwrap_or(0);
                Ok(status(client, "Innodb_buffer_pool_pages_dirty")? + history.saturating_sub(HISTORY_AT_REST))
            }
            Engine::RocksDb => {
                let pending = "SELECT COALESCE(SUM(VALUE), 0) FROM information_schema.ROCKSDB_CFSTATS WHERE STAT_TYPE IN \
                               ('COMPACTION_PENDING', 'MEM_TABLE_FLUSH_PENDING', 'NUM_IMMUTABLE_MEM_TABLE')";
                Ok(client.value(pending)?.and_then(|sum| sum.parse::<f64>().ok()).map_or(0, |sum| sum as u64))
            }
            Engine::Trefoil | Engine::Postgres | Engine::Other(_) => Ok(0),
        }
    }
}

/// LZ4 above and zstd at the bottom, where most of it lies, unless another one is asked for; filters and indexes of files as
/// the embedded RocksDB has them: a filter of one piece does not fit into a shard of a small cache.
fn column_family(compression: Option<&str>) -> String {
    let (upper, bottom) = match compression {
        Some("none") => ("kNoCompression", "kNoCompression"),
        Some("lz4") => ("kLZ4Compression", "kLZ4Compression"),
        _ => ("kLZ4Compression", "kZSTD"),
    };
    format!(
        "compression={upper};bottommost_compression={bottom};level_compaction_dynamic_level_bytes=true;\
         block_based_table_factory={{cache_index_and_filter_blocks=1;\
         cache_index_and_filter_blocks_with_high_priority=1;pin_l0_filter_and_index_blocks_in_cache=1;\
         pin_top_level_index_and_filter=1;index_type=kTwoLevelIndexSearch;partition_filters=1;\
         filter_policy=bloomfilter:10:false;whole_key_filtering=1}}"
    )
}

/// What the files with this ending occupy.
fn of_files(dir: &Path, ending: &str) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir(dir).ok()?.flatten();
    let files = files.filter(|file| file.path().extension().is_some_and(|own| own == ending));
    Some(files.filter_map(|file| file.metadata().ok()).map(|meta| meta.blocks() * 512).sum())
}

fn status(client: &mut Client, name: &str) -> Result<u64> {
    let mut value = 0;
    client.ask(&format!("SHOW GLOBAL STATUS LIKE '{name}'"), &mut |row| {
        value = row.number(1)? as u64;
        Ok(())
    })?;
    Ok(value)
}

/// Brings the engine to rest: nothing is left to do, and its process, if it can be seen, has nothing to do. Settings are as
/// before at the end, however that came.
pub fn settle(engine: &Engine, client: &mut Client, runs: Runs, limit: Duration) -> Result<()> {
    with_settings_back(engine, client, |client, before| {
        let began = Instant::now();
        engine.calm(client, before)?;
        let (mut left, mut since) = (engine.left(client)?, Instant::now());
        while left > 0 && began.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(100));
            let now = engine.left(client)?;
            if now != left {
                (left, since) = (now, Instant::now());
            } else if since.elapsed() > NO_PROGRESS && is_idle(runs) {
                break;
            }
        }
        rest(runs, limit.saturating_sub(began.elapsed()));
        Ok(())
    })
}

/// Does `work`, which may change settings and may fail, and sets them as they were.
fn with_settings_back(
    engine: &Engine,
    client: &mut Client,
    work: impl FnOnce(&mut Client, &[(String, String)]) -> Result<()>,
) -> Result<()> {
    let before = engine.changed_to_be_calm(client)?;
    let done = work(client, &before);
    // Each of them, also behind one that failed.
    before.iter().fold(done, |all, (name, value)| {
        let one = client.say(&format!("SET GLOBAL {name} = {value}"));
        all.and(one)
    })
}

/// Waits until the server's processes, if they can be seen, have nothing to do.
pub fn rest(runs: Runs, limit: Duration) {
    let began = Instant::now();
    while began.elapsed() < limit && !is_idle(runs) {}
}

fn is_idle(runs: Runs) -> bool {
    let before = Process::of(runs);
    std::thread::sleep(REST);
    before.zip(Process::of(runs)).is_none_or(|(then, now)| {
        now.cpu_secs() - then.cpu_secs() < REST_CPU_SECS && now.write_bytes == then.write_bytes
    })
}

/// Refuses an engine that the server does not have, and says what it has.
pub fn check_engine(engine: &Engine, client: &mut Client) -> Result<()> {
    let mut there = Vec::new();
    client.ask("SELECT ENGINE FROM information_schema.ENGINES WHERE SUPPORT IN ('YES', 'DEFAULT')", &mut |row| {
        there.push(row.string(0));
        Ok(())
    })?;
    if there.iter().any(|name| name.eq_ignore_ascii_case(engine.name())) {
        return Ok(());
    }
    let remedy = match engine {
        Engine::Trefoil => "mariadb/mariadb.sh build makes its plugin, INSTALL SONAME 'ha_trefoil' loads it".to_owned(),
        Engine::RocksDb => "install mariadb-plugin-rocksdb, then INSTALL SONAME 'ha_rocksdb'".to_owned(),
        other => format!("INSTALL SONAME 'ha_{other}' loads it if the server has its plugin"),
    };
    Err(TargetError::Unsupported(format!(
        "the server has no engine `{engine}`; it has {}; {remedy}",
        there.join(", ").to_lowercase()
    )))
}

#[cfg(test)]
mod tests {
    use super::super::parameters::Parameters;
    use super::*;
    use crate::{DiskLimits, Price, TargetSpec};

    /// Within seconds what is purged is off the list, too, and settings are as the option file has them.
    fn comes_to_rest(product: &str) {
        let dir = tempfile::tempdir().unwrap();
        let cnf = dir.path().join("cnf");
        std::fs::write(&cnf, "[mysqld]\ninnodb_max_dirty_pages_pct=50\nloose_innodb_max_dirty_pages_pct_lwm=20\n")
            .unwrap();
        let spec = TargetSpec::parse(&format!("server:{product}engine=innodb&cnf={}", cnf.display())).unwrap();
        let setup = Setup {
            dir: dir.path().into(),
            durability: Durability::Write,
            budget_bytes: Some(32 << 20),
            io: None,
            compression: None,
            disk: DiskLimits::default(),
            seed: 1,
            price: Price::Int,
        };
        let (mut private, _, mut client) = admin::start(&Parameters::parse(spec).unwrap(), &setup).unwrap();
        client.say("CREATE TABLE t (a INT PRIMARY KEY, b INT NOT NULL) ENGINE=InnoDB").unwrap();
        (0..100).for_each(|number| client.say(&format!("INSERT INTO t VALUES ({number}, 0)")).unwrap());
        (0..100).for_each(|number| client.say(&format!("UPDATE t SET b = 1 WHERE a = {number}")).unwrap());
        let set = |client: &mut Client| {
            let names = ["innodb_max_dirty_pages_pct", "innodb_max_dirty_pages_pct_lwm", TRUNCATE_FREQUENCY];
            let all = admin::variables(client).unwrap();
            names.map(|name| all.get(name).and_then(|value| value.parse::<f64>().ok()))
        };
        let before = set(&mut client);
        // MySQL 5.5 has no low-water mark.
        assert!(before[0] == Some(50.0) && before[1].is_none_or(|percent| percent == 20.0), "{before:?}");
        let began = Instant::now();
        settle(&Engine::InnoDb, &mut client, Runs::Beside(private.process()), Duration::from_secs(300)).unwrap();
        assert!(began.elapsed() < Duration::from_secs(60), "{product} {:?}", began.elapsed());
        let history = admin::history(&mut client).unwrap().unwrap();
        assert!(history <= HISTORY_AT_REST || product.contains("5.5"), "{history}");
        assert_eq!(set(&mut client), before, "{product}");
        settle(&Engine::InnoDb, &mut client, Runs::Beside(private.process()), Duration::ZERO).unwrap();
        assert_eq!(set(&mut client), before, "{product} out of time");
        let fails = with_settings_back(&Engine::InnoDb, &mut client, |client, before| {
            Engine::InnoDb.calm(client, before)?;
            client.say("SELECT nothing")
        });
        assert!(fails.unwrap_err().to_string().contains("nothing"));
        assert_eq!(set(&mut client), before, "{product} after a failure");
        drop(client);
        private.stop().unwrap();
    }

    #[test]
    fn mariadb_comes_to_rest() {
        if std::env::var_os("TREFOIL_SERVERS").is_some() {
            comes_to_rest("mariadb?");
        }
    }

    #[test]
    fn mysql_comes_to_rest() {
        if std::env::var_os("TREFOIL_MYSQL").is_some() {
            comes_to_rest("mysql?version=9.7&");
        }
    }

    #[test]
    fn other_versions_come_to_rest() {
        if std::env::var_os("TREFOIL_VERSIONS").is_some() {
            ["mysql?version=5.5&", "mariadb?version=10.5&"].iter().for_each(|product| comes_to_rest(product));
        }
    }
}
