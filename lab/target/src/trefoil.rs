//! The embedded engine, through its table layer: typed rows, secondary indexes that the engine keeps, the unique
//! check of the primary key.
//!
//! Parameters are those of [`PARAMETERS`]; compression goes before that of the run. Durability, budget and io are the run's own.
//!
//! Keys are handed out by a counter a table, as an auto-increment column does. Every statement is one transaction;
//! an error of any kind ends the run, a retryable one included, because autocommit statements must never conflict.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use ::trefoil::{
    ALL, ColumnType, Compression, Database, Error, IndexInfo, IndexOptions, IndexSchema, Options, Schema, Structure,
    Table, Transaction, Value, comparing,
};
use ::vfs::Vfs;

use lab_measure::record::{IndexCosts, LevelsAt};

use crate::api::{
    Ability, Counters, Description, PointRow, RangeQuery, Result, Session, Setup, Sizes, Target, TargetError,
};
use crate::counted::CountedVfs;
use crate::limited::LimitedVfs;
use crate::row::{Batch, Column, Entry, IndexSet, RowView, Secondary};
use crate::spec::TargetSpec;
use crate::sysbench::Tables;

mod counters;
mod parameters;
mod policies;
mod sysbench;
mod tpcc;
mod values;

use counters::{costs_of, counters_of, levels_of};
use parameters::Parameters;
use policies::{Kind, name_of};
use values::{CUSTOMERID, key_of, next_entry, row_of, values_of};

/// What may be given behind `trefoil:`: name, values, what they mean.
pub const PARAMETERS: &[(&str, &str, &str)] = policies::HELP;

impl From<Error> for TargetError {
    fn from(error: Error) -> TargetError {
        match error {
            Error::Unsupported(what) => TargetError::Unsupported(format!("trefoil: {what}")),
            Error::InvalidArgument(what) => TargetError::Usage(format!("trefoil: {what}")),
            other if other.is_retryable() => TargetError::Retry(format!("trefoil: {other}")),
            other => TargetError::Failed(format!("trefoil: {other}")),
        }
    }
}

/// A table and its key counter. The counter only hands out numbers: relaxed.
#[derive(Clone)]
struct Open {
    table: Table,
    keys: Arc<AtomicU64>,
    /// Which secondary indexes it has, once it has them.
    set: Arc<OnceLock<IndexSet>>,
}

/// The target.
pub struct TrefoilTarget {
    database: Database,
    options: Options,
    parameters: Parameters,
    compression: Compression,
    counted: CountedVfs,
    limited: Option<LimitedVfs>,
    tables: RwLock<Vec<Open>>,
}

impl TrefoilTarget {
    /// Checks the parameters.
    pub fn check(spec: TargetSpec) -> Result<()> {
        Parameters::parse(spec).map(|_| ())
    }

    /// Creates a database in the run's directory.
    pub fn open(spec: TargetSpec, setup: &Setup) -> Result<TrefoilTarget> {
        let limited = setup.disk.is_any().then(|| LimitedVfs::new(setup.disk, &setup.dir));
        let disk = limited.clone().map_or_else(|| Options::default().vfs, |limited| Arc::new(limited) as Arc<dyn Vfs>);
        Ok(TrefoilTarget { limited, ..TrefoilTarget::open_over(spec, setup, disk)? })
    }

    /// Creates a database over a file system of the caller's.
    pub fn open_over(spec: TargetSpec, setup: &Setup, disk: Arc<dyn Vfs>) -> Result<TrefoilTarget> {
        let parameters = Parameters::parse(spec)?;
        let compression = Parameters::compression(setup)?;
        let mut options = parameters.options(setup);
        let counted = CountedVfs::new(disk);
        options.vfs = Arc::new(counted.clone());
        let database = comparing::open(&setup.dir, options.clone(), parameters.policies())?;
        Ok(TrefoilTarget {
            database,
            options,
            parameters,
            compression,
            counted,
            limited: None,
            tables: RwLock::default(),
        })
    }

    fn index_options(&self, kind: Kind) -> IndexOptions {
        kind.index_options(self.compression, self.parameters.node_bytes)
    }

    /// As the catalog has it, of every index of every table, each value once; before there are tables, what was asked for.
    fn of_indexes(&self, value: fn(&IndexOptions) -> Option<String>) -> String {
        let mut names: Vec<String> = Vec::new();
        let tables = self.database.names().1;
        for table in tables.iter().filter_map(|name| self.database.table(name).ok()) {
            let schema = table.schema();
            let all = [schema.primary_options()].into_iter().chain(schema.indexes().iter().map(IndexSchema::options));
            names.extend(all.filter_map(|options| value(&options)));
        }
        if names.is_empty() {
            let asked = [self.parameters.rows, self.parameters.secondary];
            names.extend(asked.iter().filter_map(|kind| value(&self.index_options(*kind))));
        }
        names.sort_unstable();
        names.dedup();
        names.join(" and ")
    }

    /// Short name of what was asked for.
    fn configuration(&self, compression: &str, delayed_write_rate: Option<u64>) -> String {
        let (rows, secondary) = (self.parameters.rows.name(), self.parameters.secondary.name());
        let mut config = if rows == secondary { rows } else { format!("{rows}+{secondary}") };
        let kinds = [self.parameters.rows, self.parameters.secondary];
        let asked = kinds.map(|kind| self.index_options(kind).compression);
        let by_level = kinds.iter().find_map(|kind| kind.merges.compression);
        if let Some(levels) = by_level {
            config = format!("{config}-{}", [levels.top, levels.middle, levels.bottom].map(name_of).join("/"));
        } else if asked.iter().any(|compression| *compression != Compression::default()) {
            config = format!("{config}-{compression}");
        }
        delayed_write_rate.map_or(config.clone(), |rate| format!("{config}-delayed{}k", rate >> 10))
    }

    fn compression(&self) -> String {
        self.of_indexes(|options| Some(name_of(options.compression)))
    }

    /// As the indexes of tables have it, each size once; before there are tables, what was asked for.
    fn node_sizes(&self) -> String {
        let stats = self.database.stats();
        let of_tables = stats.indexes.iter().filter(|(name, _)| name != "catalog");
        let mut sizes: Vec<u64> = of_tables.map(|(_, index)| index.node_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        match (sizes.as_slice(), self.parameters.node_bytes) {
            ([], None) => "default".into(),
            ([], Some(bytes)) => bytes.to_string(),
            (sizes, _) => sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(" and "),
        }
    }

    fn tables(&self) -> Vec<Open> {
        self.tables.read().expect("no thread panics while it holds the list").clone()
    }
}

fn table_of(tables: &[Open], table: u32) -> Result<&Open> {
    tables.get(table as usize).ok_or_else(|| TargetError::Failed(format!("trefoil: no table {table}")))
}

impl Target for TrefoilTarget {
    fn describe(&self) -> Description {
        let stats = self.database.stats();
        let options = &self.options;
        let or_own = |value: u64| if value == 0 { "the engine's own".to_owned() } else { value.to_string() };
        let name = |kind: Kind| format!("{:?}", kind.structure).to_lowercase();
        let (rows, secondary) = (self.parameters.rows, self.parameters.secondary);
        let policies = comparing::of(&self.database);
        let compression = self.compression();
        let config = self.configuration(&compression, policies.delayed_write_rate);
        let (primary, secondary_name) = (name(rows), name(secondary));
        let mut notes = Vec::new();
        if options.direct_io && !stats.space.direct {
            notes.push("direct i/o is not possible here: data files go through the page cache".into());
        }
        if stats.budget_bytes != options.budget_bytes {
            notes.push(format!(
                "a budget of {} was asked for, {} is in force",
                options.budget_bytes, stats.budget_bytes
            ));
        }
        let disk =
            self.limited.as_ref().map_or_else(|| "the machine's".to_owned(), |limited| limited.limits().to_string());
        let settings = [
            ("disk", disk),
            ("primary", primary),
            ("secondary", secondary_name),
            ("compression", compression),
            ("node_size", self.node_sizes()),
            ("durability", format!("{:?}", options.durability).to_lowercase()),
            ("budget", stats.budget_bytes.to_string()),
            ("io", if stats.space.direct { "direct" } else { "buffered" }.into()),
            ("log_capacity", options.log_capacity_bytes.to_string()),
            ("gc_debt_limit", or_own(options.gc_debt_limit_bytes)),
            ("io_budget", or_own(options.io_budget_bytes)),
            ("background_threads", or_own(options.background_threads as u64)),
            ("log_segment", options.log_segment_bytes.to_string()),
            ("checkpoint_replay", format!("{} s", options.checkpoint_replay.as_secs())),
            ("extent", options.extent_bytes.to_string()),
            ("inline_batch", options.inline_batch_bytes.to_string()),
            (
                "parallel_apply",
                match options.parallel_apply_from {
                    usize::MAX => "off".into(),
                    operations => operations.to_string(),
                },
            ),
        ];
        let mut settings: BTreeMap<_, _> = settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let shapes = self.of_indexes(|options| {
            (options.structure == Structure::Lsm).then(|| format!("{:?}", options.shape).to_lowercase())
        });
        settings.extend((!shapes.is_empty()).then(|| ("shape".to_owned(), shapes)));
        settings.extend(policies::in_force(&policies, rows, secondary));
        Description { engine: "trefoil".into(), version: env!("CARGO_PKG_VERSION").into(), config, settings, notes }
    }

    fn ability(&self) -> Ability {
        Ability { stores_rows: true, dense_keys: true }
    }

    fn create_table(&self, table: u32) -> Result<()> {
        let mut tables = self.tables.write().expect("no thread panics while it holds the list");
        while tables.len() <= table as usize {
            let schema = Schema::builder()
                .column("transactionid", ColumnType::I64)
                .nullable("dateandtime", ColumnType::Timestamp)
                .column("cashregisterid", ColumnType::I32)
                .column("customerid", ColumnType::I32)
                .column("productid", ColumnType::I32)
                .column("price", ColumnType::I32)
                .nullable("data", ColumnType::Text)
                .primary_key(&["transactionid"])
                .primary_options(self.index_options(self.parameters.rows))
                .build()
                .map_err(Error::from)?;
            let table = self.database.create_table(&format!("pi{}", tables.len() + 1), schema)?;
            tables.push(Open { table, keys: Arc::default(), set: Arc::default() });
        }
        Ok(())
    }

    fn create_indexes(&self, table: u32, set: IndexSet) -> Result<()> {
        let options = self.index_options(self.parameters.secondary);
        let indexes = Secondary::ALL.map(|index| {
            let columns: Vec<&str> = set.columns(index).iter().map(|column| column.name()).collect();
            IndexSchema::new(index.name(), &columns).with_options(options)
        });
        let tables = self.tables();
        let open = table_of(&tables, table)?;
        self.database.create_table_indexes(&open.table, indexes.into())?;
        let _ = open.set.set(set);
        Ok(())
    }

    fn sysbench(&self) -> Result<Box<dyn Tables + '_>> {
        Ok(Box::new(sysbench::SysbenchTables::new(self)))
    }

    fn tpcc(&self) -> Result<Box<dyn crate::tpcc::Tables + '_>> {
        Ok(Box::new(tpcc::TpccTables::new(self)))
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(TrefoilSession { database: self.database.clone(), tables: self.tables(), held: None }))
    }

    fn settle(&self, limit: Duration) -> Result<()> {
        Ok(self.database.settle_for(limit).map(|_| ())?)
    }

    /// Everything on disk is what the files occupy, which the caller finds out by itself.
    fn sizes(&self) -> Result<Sizes> {
        let stats = self.database.stats();
        let space = &stats.space;
        let classes = [
            ("live", space.live_bytes),
            ("pending", space.pending_bytes),
            ("free", space.free_bytes),
            ("dead", space.dead_bytes),
            ("log", stats.log.disk_bytes),
            ("runs", stats.indexes.iter().map(|(_, index)| index.run_bytes).sum()),
        ];
        Ok(Sizes {
            data_bytes: Some(space.file_bytes),
            total_bytes: None,
            classes: classes.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect(),
        })
    }

    fn counters(&self) -> Result<Counters> {
        let mut counters = counters_of(&self.database.stats(), &self.counted);
        let limited = self.limited.iter().flat_map(LimitedVfs::counters);
        counters.extend(limited.map(|(name, value)| (name.to_owned(), value)));
        Ok(counters)
    }

    fn levels(&self) -> Option<LevelsAt> {
        levels_of(&self.database.stats())
    }

    fn costs(&self) -> BTreeMap<String, IndexCosts> {
        let costs = |index: &IndexInfo| (index.full_name(), costs_of(&index.stats, index.options.structure));
        self.database.indexes().iter().map(costs).collect()
    }

    fn verify(&self) -> Result<()> {
        for (index, report) in self.database.verify()? {
            if let Some(problem) = report.problems.first() {
                let count = report.problems.len();
                return Err(TargetError::Failed(format!("trefoil: index {index}: {problem} ({count} problems)")));
            }
        }
        Ok(())
    }

    fn close(&self) -> Result<()> {
        Ok(self.database.close()?)
    }
}

struct TrefoilSession {
    database: Database,
    tables: Vec<Open>,
    held: Option<Transaction>,
}

impl TrefoilSession {
    fn open(&self, table: u32) -> Result<&Open> {
        table_of(&self.tables, table)
    }

    /// A table with its indexes' columns.
    fn open_index(&self, table: u32, index: Secondary) -> Result<(&Open, &'static [Column])> {
        let open = self.open(table)?;
        let none = || TargetError::Failed(format!("trefoil: table {table} has no indexes"));
        Ok((open, open.set.get().ok_or_else(none)?.columns(index)))
    }
}

impl Session for TrefoilSession {
    fn insert(&mut self, table: u32, rows: &Batch) -> Result<u64> {
        let open = self.open(table)?;
        let first = open.keys.fetch_add(rows.len() as u64, Ordering::Relaxed) + 1;
        let values = (first..).zip(rows.iter()).map(|(key, row)| values_of(key, row)).collect::<Result<Vec<_>>>()?;
        let mut transaction = self.database.begin()?;
        transaction.insert_many(&open.table, &values)?;
        transaction.commit()?;
        Ok(first)
    }

    fn delete_smallest(&mut self, table: u32, from: u64, count: u32) -> Result<u32> {
        let low = [Value::I64(from as i64)];
        let mut transaction = self.database.begin()?;
        let range = (Bound::Included(&low[..]), Bound::Unbounded);
        let deleted = transaction.delete_first(&self.open(table)?.table, range, count as usize)?;
        transaction.commit()?;
        Ok(deleted as u32)
    }

    fn delete_range(&mut self, table: u32, from: u64, to: u64) -> Result<u32> {
        let (low, high) = ([Value::I64(from as i64)], [Value::I64(to as i64)]);
        let mut transaction = self.database.begin()?;
        let range = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
        let deleted = transaction.delete_first(&self.open(table)?.table, range, (to - from) as usize)?;
        transaction.commit()?;
        Ok(deleted as u32)
    }

    fn range(&mut self, table: u32, query: RangeQuery, out: &mut Vec<Entry>) -> Result<()> {
        out.clear();
        // The bound's type is its column's: all first columns are 32-bit numbers.
        let low = [Value::I32(query.first as i32)];
        let bound = if query.strict { Bound::Excluded(&low[..]) } else { Bound::Included(&low[..]) };
        let transaction = self.database.begin()?;
        let limit = query.limit as usize;
        let range = (bound, Bound::Unbounded);
        let (open, columns) = self.open_index(table, query.index)?;
        let mut entries = transaction.scan_index(&open.table, query.index.name(), range)?.expect(limit);
        while out.len() < limit {
            let Some((entry, _)) = next_entry(&mut entries, columns)? else { break };
            out.push(entry);
        }
        Ok(())
    }

    fn get(&mut self, table: u32, key: u64, found: &mut dyn FnMut(u64, RowView<'_>)) -> Result<bool> {
        let transaction = self.database.begin()?;
        let wanted = [[Value::I64(key as i64)]];
        let there = transaction.get_rows(&self.open(table)?.table, &wanted, |_, row| {
            let columns = row.read_as()?;
            let (key, row) = row_of(&columns);
            found(key, row);
            Ok(())
        })?;
        Ok(there == 1)
    }

    fn points(&mut self, table: u32, keys: &[u64], out: &mut Vec<PointRow>) -> Result<()> {
        let transaction = self.database.begin()?;
        let wanted: Vec<[Value<'_>; 1]> = keys.iter().map(|key| [Value::I64(*key as i64)]).collect();
        let mut found = 0;
        transaction.get_rows(&self.open(table)?.table, &wanted, |_, row| {
            let columns = row.read_as()?;
            let (transactionid, row) = row_of(&columns);
            // The rows of the last answer are overwritten, so that their text is not allocated again.
            if found == out.len() {
                out.push(PointRow::default());
            }
            let place: &mut PointRow = &mut out[found];
            (place.transactionid, place.productid) = (transactionid, row.productid);
            place.data.clear();
            place.data.extend_from_slice(row.data);
            found += 1;
            Ok(())
        })?;
        out.truncate(found);
        Ok(())
    }

    fn min_key(&mut self, table: u32) -> Result<Option<u64>> {
        let transaction = self.database.begin()?;
        key_of(transaction.scan(&self.open(table)?.table, ALL)?.expect(1).next_key()?)
    }

    fn max_key(&mut self, table: u32) -> Result<Option<u64>> {
        let transaction = self.database.begin()?;
        key_of(transaction.scan_back(&self.open(table)?.table, ALL)?.expect(1).next_key()?)
    }

    fn hold_begin(&mut self, table: u32) -> Result<()> {
        let transaction = self.database.begin()?;
        transaction.scan(&self.open(table)?.table, ALL)?.expect(1).next()?;
        self.held = Some(transaction);
        Ok(())
    }

    fn held_rows(&mut self, table: u32, to: u64) -> Result<(u64, u64)> {
        let none = || TargetError::Failed("trefoil: no snapshot is held".into());
        let last = [Value::I64(to as i64)];
        let range = (Bound::Unbounded, Bound::Included(&last[..]));
        let mut rows = self.held.as_ref().ok_or_else(none)?.scan(&self.open(table)?.table, range)?;
        let (mut count, mut hash) = (0, 0u64);
        while let Some(columns) = rows.next_as()? {
            let (key, row) = row_of(&columns);
            (count, hash) = (count + 1, hash.wrapping_add(row.hash(key)));
        }
        Ok((count, hash))
    }

    fn hold_end(&mut self) -> Result<()> {
        match self.held.take() {
            Some(transaction) => Ok(transaction.commit().map(|_| ())?),
            None => Ok(()),
        }
    }

    fn scan_table(&mut self, table: u32, each: &mut dyn FnMut(u64, RowView<'_>)) -> Result<()> {
        let transaction = self.database.begin()?;
        let mut rows = transaction.scan(&self.open(table)?.table, ALL)?;
        while let Some(columns) = rows.next_as()? {
            let (key, row) = row_of(&columns);
            each(key, row);
        }
        Ok(())
    }

    fn scan_customers(&mut self, table: u32, each: &mut dyn FnMut(i32)) -> Result<()> {
        let transaction = self.database.begin()?;
        let mut rows = transaction.scan(&self.open(table)?.table, ALL)?;
        while let Some(row) = rows.next_row()? {
            each(row.column_as(CUSTOMERID)?);
        }
        Ok(())
    }

    fn scan_index(&mut self, table: u32, index: Secondary, each: &mut dyn FnMut(Entry, u64)) -> Result<()> {
        let transaction = self.database.begin()?;
        let (open, columns) = self.open_index(table, index)?;
        let mut entries = transaction.scan_index(&open.table, index.name(), ALL)?;
        while let Some((entry, key)) = next_entry(&mut entries, columns)? {
            each(entry, key);
        }
        Ok(())
    }
}
