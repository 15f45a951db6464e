//! SQLite: the statements in SQL over its B-trees, with a write-ahead log.
//!
//! Every session is a connection of its own; statements are prepared once. Writers take turns at a mutex, which wakes
//! the next one at once where SQLite's own busy handler would sleep. The key column is the rowid, so a table is one
//! B-tree, and an insert of an existing key is refused; an index ends in the rowid and covers its query.
//!
//! Durability: `sync` syncs the log at each commit (`synchronous=FULL`); `write` and `buffered` write it to the
//! operating system at each commit and sync at checkpoints only (`NORMAL`), which is more than `buffered` asks.
//!
//! Every connection has a page cache of its own, so the budget is divided by `connections`, the parameter that says
//! how many to expect; a client has three.

mod sql;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};

use ::rusqlite::types::FromSql;
use ::rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use super::{BUDGET_BYTES_DEFAULT, buffered_only, failed, no_compression};
use crate::api::{
    Ability, Counters, Description, Durability, PointRow, RangeQuery, Result, Session, Setup, Sizes, Target,
    TargetError,
};
use crate::row::{Batch, Entry, IndexSet, RowView, Secondary};
use crate::spec::TargetSpec;
use sql::Sql;

const CONNECTIONS_DEFAULT: u64 = 4;
/// Pages in the log before a commit copies them into the file: 64 MiB.
const CHECKPOINT_PAGES: u64 = 16 * 1024;
/// Bytes of cache of a connection that holds a snapshot and does nothing else.
const HOLDER_CACHE_BYTES: u64 = 1 << 20;
const STATEMENTS_CACHED: usize = 64;

fn wrong(error: ::rusqlite::Error) -> TargetError {
    failed("sqlite", error)
}

/// A table's statements and its key counter, which only hands out numbers: relaxed.
#[derive(Clone)]
struct Open {
    sql: Arc<Sql>,
    keys: Arc<AtomicU64>,
}

/// How connections are opened.
#[derive(Clone)]
struct Opener {
    path: PathBuf,
    synchronous: &'static str,
}

impl Opener {
    fn open(&self, cache_bytes: u64) -> Result<Connection> {
        let connection = Connection::open(&self.path).map_err(wrong)?;
        connection.busy_timeout(Duration::from_secs(60)).map_err(wrong)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
        let kib = cache_bytes / 1024;
        connection
            .execute_batch(&format!(
                "PRAGMA journal_mode=WAL; PRAGMA synchronous={}; PRAGMA cache_size=-{kib}; \
                 PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES};",
                self.synchronous
            ))
            .map_err(wrong)?;
        Ok(connection)
    }
}

/// The target.
pub struct SqliteTarget {
    opener: Opener,
    cache_bytes: u64,
    durability: Durability,
    notes: Vec<String>,
    /// For schema changes, checkpoints and questions.
    own: Mutex<Connection>,
    /// Held by whoever writes. Taken before `own`.
    writer: Arc<Mutex<()>>,
    tables: RwLock<Vec<Open>>,
}

fn connections(mut spec: TargetSpec) -> Result<u64> {
    let connections = spec.take_number("connections")?.unwrap_or(CONNECTIONS_DEFAULT).max(1);
    spec.finish(&["connections"])?;
    Ok(connections)
}

/// Checks the parameters.
pub fn check(spec: TargetSpec) -> Result<()> {
    connections(spec).map(|_| ())
}

/// Creates a database in the run's directory.
pub fn open(spec: TargetSpec, setup: &Setup) -> Result<SqliteTarget> {
    let connections = connections(spec)?;
    let mut notes = vec![format!("the budget is divided by {connections} connections")];
    no_compression("sqlite", setup, &mut notes);
    buffered_only("sqlite", setup, &mut notes);
    let cache_bytes = setup.budget_bytes.unwrap_or(BUDGET_BYTES_DEFAULT) / connections;
    let synchronous = if setup.durability == Durability::Sync { "FULL" } else { "NORMAL" };
    let opener = Opener { path: setup.dir.join("data.sqlite"), synchronous };
    let own = Mutex::new(opener.open(cache_bytes)?);
    let (durability, writer, tables) = (setup.durability, Arc::default(), RwLock::default());
    Ok(SqliteTarget { opener, cache_bytes, durability, notes, own, writer, tables })
}

impl SqliteTarget {
    fn tables(&self) -> Vec<Open> {
        self.tables.read().expect("no thread panics while it holds the list").clone()
    }

    fn own(&self) -> MutexGuard<'_, Connection> {
        self.own.lock().expect("no thread panics while it holds the connection")
    }
}

fn table_of(tables: &[Open], table: u32) -> Result<&Open> {
    tables.get(table as usize).ok_or_else(|| TargetError::Failed(format!("sqlite: no table {table}")))
}

fn pragma<T: FromSql>(connection: &Connection, name: &str) -> Result<T> {
    connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0)).map_err(wrong)
}

impl Target for SqliteTarget {
    fn describe(&self) -> Description {
        let own = self.own();
        let number =
            |name: &str| pragma::<i64>(&own, name).map_or_else(|_| "unknown".into(), |value| value.to_string());
        let settings = [
            ("journal_mode", pragma::<String>(&own, "journal_mode").unwrap_or_else(|_| "unknown".into())),
            ("synchronous", number("synchronous")),
            ("cache_size", number("cache_size")),
            ("page_size", number("page_size")),
            ("wal_autocheckpoint", number("wal_autocheckpoint")),
            ("mmap_size", number("mmap_size")),
            ("durability", format!("{:?}", self.durability).to_lowercase()),
            ("compression", "none".into()),
            ("io", "buffered".into()),
        ];
        Description {
            engine: "sqlite".into(),
            version: ::rusqlite::version().into(),
            config: "sqlite".into(),
            settings: settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            notes: self.notes.clone(),
        }
    }

    fn ability(&self) -> Ability {
        Ability { stores_rows: true, dense_keys: true }
    }

    fn create_table(&self, table: u32) -> Result<()> {
        let mut tables = self.tables.write().expect("no thread panics while it holds the list");
        while tables.len() <= table as usize {
            let sql = Sql::new(tables.len() as u32);
            self.own().execute_batch(&sql.create_table).map_err(wrong)?;
            tables.push(Open { sql: Arc::new(sql), keys: Arc::default() });
        }
        Ok(())
    }

    fn create_indexes(&self, table: u32, set: IndexSet) -> Result<()> {
        let open = table_of(&self.tables(), table)?.clone();
        let _turn = self.writer.lock().expect("no thread panics while it writes");
        let own = self.own();
        for statement in open.sql.create_indexes(set) {
            own.execute_batch(&statement).map_err(wrong)?;
        }
        open.sql.index(set).map_err(|what| failed("sqlite", what))
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(SqliteSession {
            connection: self.opener.open(self.cache_bytes)?,
            opener: self.opener.clone(),
            writer: self.writer.clone(),
            tables: self.tables(),
            held: None,
        }))
    }

    /// Copies the log into the file, which waits for readers of old pages.
    fn settle(&self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            let busy: i64 = {
                let _turn = self.writer.lock().expect("no thread panics while it writes");
                pragma(&self.own(), "wal_checkpoint(TRUNCATE)")?
            };
            if busy == 0 || start.elapsed() >= limit {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn sizes(&self) -> Result<Sizes> {
        let own = self.own();
        let pages: u64 = pragma::<i64>(&own, "page_count")? as u64;
        let page_bytes = pragma::<i64>(&own, "page_size")? as u64;
        let free: u64 = pragma::<i64>(&own, "freelist_count")? as u64;
        let classes = [("free".to_owned(), free * page_bytes)].into();
        Ok(Sizes { data_bytes: Some(pages * page_bytes), total_bytes: None, classes })
    }

    fn counters(&self) -> Result<Counters> {
        let own = self.own();
        let pages = pragma::<i64>(&own, "page_count")? as u64;
        let free = pragma::<i64>(&own, "freelist_count")? as u64;
        Ok([("pages".to_owned(), pages), ("pages.free".to_owned(), free)].into())
    }

    /// The check compares every index with its table.
    fn verify(&self) -> Result<()> {
        match pragma::<String>(&self.own(), "integrity_check")?.as_str() {
            "ok" => Ok(()),
            problem => Err(failed("sqlite", problem)),
        }
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

struct SqliteSession {
    connection: Connection,
    opener: Opener,
    writer: Arc<Mutex<()>>,
    tables: Vec<Open>,
    held: Option<Connection>,
}

impl SqliteSession {
    fn open(&self, table: u32) -> Result<&Open> {
        table_of(&self.tables, table)
    }

    fn statement(&self, sql: &str) -> Result<CachedStatement<'_>> {
        self.connection.prepare_cached(sql).map_err(wrong)
    }

    fn execute(&self, sql: &str) -> Result<()> {
        self.statement(sql)?.execute([]).map(|_| ()).map_err(wrong)
    }

    /// Runs `run` as one transaction that begins with `begin`.
    fn transaction<R>(&self, begin: &str, run: impl FnOnce() -> Result<R>) -> Result<R> {
        self.execute(begin)?;
        match run() {
            Ok(result) => self.execute("COMMIT").map(|()| result),
            Err(error) => {
                // The first error is the one to tell.
                let _ = self.execute("ROLLBACK");
                Err(error)
            }
        }
    }

    fn write<R>(&self, run: impl FnOnce() -> Result<R>) -> Result<R> {
        let _turn = self.writer.lock().map_err(|_| failed("sqlite", "a writer panicked"))?;
        self.transaction("BEGIN IMMEDIATE", run)
    }

    fn key(&self, sql: &str) -> Result<Option<u64>> {
        let key: Option<i64> = self.statement(sql)?.query_row([], |row| row.get(0)).map_err(wrong)?;
        Ok(key.map(|key| key as u64))
    }
}

/// The columns of an index as an entry; what is behind them is not looked at.
fn entry_of(row: &Row<'_>, columns: usize) -> ::rusqlite::Result<Entry> {
    let mut entry = [0; 3];
    for (position, place) in entry.iter_mut().take(columns).enumerate() {
        *place = row.get(position)?;
    }
    Ok(entry)
}

impl Session for SqliteSession {
    fn insert(&mut self, table: u32, rows: &Batch) -> Result<u64> {
        let open = self.open(table)?;
        let first = open.keys.fetch_add(rows.len() as u64, Ordering::Relaxed) + 1;
        self.write(|| {
            let mut insert = self.statement(&open.sql.insert)?;
            for (key, row) in (first..).zip(rows.iter()) {
                let values = params![
                    key as i64,
                    row.dateandtime,
                    row.cashregisterid,
                    row.customerid,
                    row.productid,
                    row.price,
                    row.data
                ];
                insert.execute(values).map_err(wrong)?;
            }
            Ok(first)
        })
    }

    fn delete_smallest(&mut self, table: u32, from: u64, count: u32) -> Result<u32> {
        let open = self.open(table)?;
        self.write(|| {
            let deleted = self.statement(&open.sql.delete_smallest)?.execute(params![from as i64, count]);
            Ok(deleted.map_err(wrong)? as u32)
        })
    }

    fn delete_range(&mut self, table: u32, from: u64, to: u64) -> Result<u32> {
        let open = self.open(table)?;
        self.write(|| {
            let deleted = self.statement(&open.sql.delete_range)?.execute(params![from as i64, to as i64]);
            Ok(deleted.map_err(wrong)? as u32)
        })
    }

    fn range(&mut self, table: u32, query: RangeQuery, out: &mut Vec<Entry>) -> Result<()> {
        out.clear();
        let index = self.open(table)?.sql.indexed(query.index).map_err(|what| failed("sqlite", what))?;
        let mut select = self.statement(if query.strict { &index.above } else { &index.from })?;
        let mut rows = select.query(params![query.first, query.limit]).map_err(wrong)?;
        while let Some(row) = rows.next().map_err(wrong)? {
            out.push(entry_of(row, index.columns).map_err(wrong)?);
        }
        Ok(())
    }

    /// One statement is a read transaction by itself.
    fn get(&mut self, table: u32, key: u64, found: &mut dyn FnMut(u64, RowView<'_>)) -> Result<bool> {
        let mut select = self.statement(&self.open(table)?.sql.get)?;
        let there = select.query_row([key as i64], |row| {
            let view = RowView {
                dateandtime: row.get(1)?,
                cashregisterid: row.get(2)?,
                customerid: row.get(3)?,
                productid: row.get(4)?,
                price: row.get(5)?,
                data: row.get_ref(6)?.as_blob()?,
            };
            found(row.get::<_, i64>(0)? as u64, view);
            Ok(())
        });
        Ok(there.optional().map_err(wrong)?.is_some())
    }

    fn points(&mut self, table: u32, keys: &[u64], out: &mut Vec<PointRow>) -> Result<()> {
        let open = self.open(table)?;
        let mut found = 0;
        self.transaction("BEGIN", || {
            let mut select = self.statement(&open.sql.point)?;
            for key in keys {
                // The rows of the last answer are overwritten, so that their text is not allocated again.
                if found == out.len() {
                    out.push(PointRow::default());
                }
                let place: &mut PointRow = &mut out[found];
                let there = select.query_row([*key as i64], |row| {
                    (place.transactionid, place.productid) = (*key, row.get(0)?);
                    place.data.clear();
                    place.data.extend_from_slice(row.get_ref(1)?.as_blob()?);
                    Ok(())
                });
                found += usize::from(there.optional().map_err(wrong)?.is_some());
            }
            Ok(())
        })?;
        out.truncate(found);
        Ok(())
    }

    fn min_key(&mut self, table: u32) -> Result<Option<u64>> {
        self.key(&self.open(table)?.sql.min_key)
    }

    fn max_key(&mut self, table: u32) -> Result<Option<u64>> {
        self.key(&self.open(table)?.sql.max_key)
    }

    /// On a connection of its own: statements of the session stay transactions of their own.
    fn hold_begin(&mut self, table: u32) -> Result<()> {
        let holder = self.opener.open(HOLDER_CACHE_BYTES)?;
        holder.execute_batch("BEGIN").map_err(wrong)?;
        let read: Option<i64> =
            holder.query_row(&self.open(table)?.sql.min_key, [], |row| row.get(0)).map_err(wrong)?;
        let _ = read;
        self.held = Some(holder);
        Ok(())
    }

    fn hold_end(&mut self) -> Result<()> {
        self.held.take().map_or(Ok(()), |holder| holder.execute_batch("COMMIT").map_err(wrong))
    }

    fn scan_table(&mut self, table: u32, each: &mut dyn FnMut(u64, RowView<'_>)) -> Result<()> {
        let mut select = self.statement(&self.open(table)?.sql.scan)?;
        let mut rows = select.query([]).map_err(wrong)?;
        while let Some(row) = rows.next().map_err(wrong)? {
            let read = || -> ::rusqlite::Result<(i64, RowView<'_>)> {
                let view = RowView {
                    dateandtime: row.get(1)?,
                    cashregisterid: row.get(2)?,
                    customerid: row.get(3)?,
                    productid: row.get(4)?,
                    price: row.get(5)?,
                    data: row.get_ref(6)?.as_blob()?,
                };
                Ok((row.get(0)?, view))
            };
            let (key, view) = read().map_err(wrong)?;
            each(key as u64, view);
        }
        Ok(())
    }

    fn scan_customers(&mut self, table: u32, each: &mut dyn FnMut(i32)) -> Result<()> {
        let mut select = self.statement(&self.open(table)?.sql.scan)?;
        let mut rows = select.query([]).map_err(wrong)?;
        while let Some(row) = rows.next().map_err(wrong)? {
            each(row.get(3).map_err(wrong)?);
        }
        Ok(())
    }

    fn scan_index(&mut self, table: u32, index: Secondary, each: &mut dyn FnMut(Entry, u64)) -> Result<()> {
        let index = self.open(table)?.sql.indexed(index).map_err(|what| failed("sqlite", what))?;
        let mut select = self.statement(&index.scan)?;
        let mut rows = select.query([]).map_err(wrong)?;
        while let Some(row) = rows.next().map_err(wrong)? {
            let key: i64 = row.get(index.columns).map_err(wrong)?;
            each(entry_of(row, index.columns).map_err(wrong)?, key as u64);
        }
        Ok(())
    }
}
