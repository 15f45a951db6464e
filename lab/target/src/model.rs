//! Ordered maps in memory behind one latch a table: short enough to be seen right, so that a disagreement with it is
//! the other engine's.
//!
//! It can plant a bug on purpose (`model:fault=…`), which is how the lab's own invariants are tested:
//! `lose-delete` reports a deleted row that is still there, `lose-entry` forgets one index entry, `flip-value` stores
//! one row with another price, `panic` panics in every tenth statement, `wrong-get` looks up the key behind the one asked
//! for, `damage` fails the engine's own check; for sysbench and TPC-C those and more, see their modules.
//! `pause_ms=P,pause_every=N` makes every N-th statement of a session P ms longer, which is how stalls and missed rates
//! are tested.
//!
//! Latches: one mutex a table, held for a whole statement; the list of tables behind a read-write lock that is
//! released before a table's mutex is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use lab_measure::thread_time::{Doing, timed};

use crate::api::{
    Ability, Counters, Description, PointRow, RangeQuery, Result, Session, Setup, Sizes, Target, TargetError,
};
use crate::row::{Batch, Entry, IndexSet, RowView, Secondary};
use crate::spec::TargetSpec;
use crate::sysbench::Tables;

mod sysbench;
mod tpcc;
mod turns;

use sysbench::ModelTables;

const PARAMETERS: &[&str] = &["fault", "pause_ms", "pause_every"];

/// A bug planted on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    LoseDelete,
    LoseEntry,
    FlipValue,
    Panic,
    WrongGet,
    LoseUpdate,
    ShortRange,
    Conflict,
    Damage,
}

const FAULTS: &[(&str, Planted)] = &[
    ("lose-delete", Planted::LoseDelete),
    ("lose-entry", Planted::LoseEntry),
    ("flip-value", Planted::FlipValue),
    ("panic", Planted::Panic),
    ("wrong-get", Planted::WrongGet),
    ("lose-update", Planted::LoseUpdate),
    ("short-range", Planted::ShortRange),
    ("conflict", Planted::Conflict),
    ("damage", Planted::Damage),
];

/// What `model:…` was given.
#[derive(Clone, Copy, Debug, Default)]
struct Parameters {
    fault: Option<Planted>,
    pause: Duration,
    pause_every: u64,
}

impl Parameters {
    fn parse(mut spec: TargetSpec) -> Result<Parameters> {
        let fault = match spec.take("fault") {
            None => None,
            Some(name) => match FAULTS.iter().find(|(known, _)| *known == name) {
                Some((_, fault)) => Some(*fault),
                None => {
                    let known: Vec<&str> = FAULTS.iter().map(|(known, _)| *known).collect();
                    return Err(TargetError::Usage(format!(
                        "target `{spec}`: fault `{name}` is none of {}",
                        known.join(", ")
                    )));
                }
            },
        };
        let pause = Duration::from_millis(spec.take_number("pause_ms")?.unwrap_or(0));
        let pause_every = spec.take_number("pause_every")?.unwrap_or(100).max(1);
        spec.finish(PARAMETERS)?;
        Ok(Parameters { fault, pause, pause_every })
    }

    /// One more statement of a session, which may pause or panic.
    fn mischief(&self, statements: &mut u64) {
        *statements += 1;
        let planted = self.fault == Some(Planted::Panic) && statements.is_multiple_of(10);
        assert!(!planted, "planted");
        if !self.pause.is_zero() && statements.is_multiple_of(self.pause_every) {
            timed(Doing::Pause, || std::thread::sleep(self.pause));
        }
    }
}

#[derive(Clone, Debug)]
struct Stored {
    dateandtime: i64,
    cashregisterid: i32,
    customerid: i32,
    productid: i32,
    price: i32,
    data: Box<[u8]>,
}

impl Stored {
    fn from_view(row: RowView<'_>) -> Stored {
        Stored {
            dateandtime: row.dateandtime,
            cashregisterid: row.cashregisterid,
            customerid: row.customerid,
            productid: row.productid,
            price: row.price,
            data: row.data.into(),
        }
    }

    fn view(&self) -> RowView<'_> {
        RowView {
            dateandtime: self.dateandtime,
            cashregisterid: self.cashregisterid,
            customerid: self.customerid,
            productid: self.productid,
            price: self.price,
            data: &self.data,
        }
    }
}

/// Invariant: once `set` is given, each of `indexes` holds exactly one (entry, key) per row of `rows`.
#[derive(Debug, Default)]
struct Table {
    next_key: u64,
    rows: BTreeMap<u64, Stored>,
    set: Option<IndexSet>,
    indexes: [BTreeSet<(Entry, u64)>; 3],
    planted: bool,
}

impl Table {
    fn insert(&mut self, batch: &Batch, fault: Option<Planted>) -> u64 {
        let first = self.next_key + 1;
        for row in batch.iter() {
            self.next_key += 1;
            let mut stored = Stored::from_view(row);
            if fault == Some(Planted::FlipValue) && !self.planted {
                stored.price ^= 1;
                self.planted = true;
            }
            self.add_entries(self.next_key, &stored.view(), fault);
            self.rows.insert(self.next_key, stored);
        }
        first
    }

    fn add_entries(&mut self, key: u64, row: &RowView<'_>, fault: Option<Planted>) {
        let Some(set) = self.set else { return };
        for index in Secondary::ALL {
            if fault == Some(Planted::LoseEntry) && !self.planted {
                self.planted = true;
                continue;
            }
            self.indexes[index.position()].insert((set.entry(index, row), key));
        }
    }

    fn delete(&mut self, keys: &[u64], fault: Option<Planted>) {
        for key in keys {
            if fault == Some(Planted::LoseDelete) && !self.planted {
                self.planted = true;
                continue;
            }
            let Some(stored) = self.rows.remove(key) else { continue };
            let Some(set) = self.set else { continue };
            for index in Secondary::ALL {
                self.indexes[index.position()].remove(&(set.entry(index, &stored.view()), *key));
            }
        }
    }
}

/// The target.
#[derive(Debug, Default)]
pub struct ModelTarget {
    parameters: Parameters,
    tables: RwLock<Vec<Arc<Mutex<Table>>>>,
}

impl ModelTarget {
    /// Checks the parameters.
    pub fn check(spec: TargetSpec) -> Result<()> {
        Parameters::parse(spec).map(|_| ())
    }

    /// Opens an empty one.
    pub fn open(spec: TargetSpec, _setup: &Setup) -> Result<ModelTarget> {
        Ok(ModelTarget { parameters: Parameters::parse(spec)?, tables: RwLock::default() })
    }

    fn tables(&self) -> Vec<Arc<Mutex<Table>>> {
        self.tables.read().expect("no thread panics while it holds the list").clone()
    }
}

fn table_of(tables: &[Arc<Mutex<Table>>], table: u32) -> Result<MutexGuard<'_, Table>> {
    let table = tables.get(table as usize).ok_or_else(|| TargetError::Failed(format!("model: no table {table}")))?;
    Ok(table.lock().expect("no thread panics while it holds a table"))
}

impl Target for ModelTarget {
    fn describe(&self) -> Description {
        let mut settings = BTreeMap::new();
        if let Some(fault) = self.parameters.fault {
            settings.insert("fault".into(), format!("{fault:?}"));
        }
        if !self.parameters.pause.is_zero() {
            settings.insert("pause_ms".into(), self.parameters.pause.as_millis().to_string());
            settings.insert("pause_every".into(), self.parameters.pause_every.to_string());
        }
        Description {
            engine: "model".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            config: "model".into(),
            settings,
            notes: vec![
                "in memory only: durability, budget, io, compression and limits of the disk have no effect".into(),
            ],
        }
    }

    fn ability(&self) -> Ability {
        Ability { stores_rows: true, dense_keys: true }
    }

    fn create_table(&self, table: u32) -> Result<()> {
        let mut tables = self.tables.write().expect("no thread panics while it holds the list");
        while tables.len() <= table as usize {
            tables.push(Arc::default());
        }
        Ok(())
    }

    fn create_indexes(&self, table: u32, set: IndexSet) -> Result<()> {
        let tables = self.tables();
        let mut table = table_of(&tables, table)?;
        table.set = Some(set);
        for index in Secondary::ALL {
            let entries =
                table.rows.iter().map(|(key, row)| (set.entry(index, &row.view()), *key)).collect::<BTreeSet<_>>();
            table.indexes[index.position()] = entries;
        }
        Ok(())
    }

    fn sysbench(&self) -> Result<Box<dyn Tables + '_>> {
        Ok(Box::new(ModelTables::new(self.parameters)))
    }

    fn tpcc(&self) -> Result<Box<dyn crate::tpcc::Tables + '_>> {
        Ok(Box::new(tpcc::ModelTables::new(self.parameters)))
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(ModelSession { tables: self.tables(), parameters: self.parameters, statements: 0 }))
    }

    fn settle(&self, _limit: Duration) -> Result<()> {
        Ok(())
    }

    fn sizes(&self) -> Result<Sizes> {
        Ok(Sizes::default())
    }

    fn counters(&self) -> Result<Counters> {
        let mut counters = Counters::new();
        let tables = self.tables();
        let mut rows = 0;
        for table in 0..tables.len() {
            rows += table_of(&tables, table as u32)?.rows.len() as u64;
        }
        counters.insert("rows".into(), rows);
        counters.insert("gc_debt".into(), 0);
        Ok(counters)
    }

    fn verify(&self) -> Result<()> {
        if self.parameters.fault == Some(Planted::Damage) {
            return Err(TargetError::Failed("model: planted damage".into()));
        }
        Ok(())
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

struct ModelSession {
    tables: Vec<Arc<Mutex<Table>>>,
    parameters: Parameters,
    statements: u64,
}

impl ModelSession {
    fn table(&self, table: u32) -> Result<MutexGuard<'_, Table>> {
        table_of(&self.tables, table)
    }

    fn mischief(&mut self) {
        self.parameters.mischief(&mut self.statements);
    }
}

impl Session for ModelSession {
    fn insert(&mut self, table: u32, rows: &Batch) -> Result<u64> {
        self.mischief();
        let fault = self.parameters.fault;
        Ok(self.table(table)?.insert(rows, fault))
    }

    fn delete_smallest(&mut self, table: u32, from: u64, count: u32) -> Result<u32> {
        self.mischief();
        let fault = self.parameters.fault;
        let mut table = self.table(table)?;
        let keys: Vec<u64> = table.rows.range(from..).take(count as usize).map(|(key, _)| *key).collect();
        table.delete(&keys, fault);
        Ok(keys.len() as u32)
    }

    fn delete_range(&mut self, table: u32, from: u64, to: u64) -> Result<u32> {
        self.mischief();
        let fault = self.parameters.fault;
        let mut table = self.table(table)?;
        let keys: Vec<u64> = table.rows.range(from..to).map(|(key, _)| *key).collect();
        table.delete(&keys, fault);
        Ok(keys.len() as u32)
    }

    fn range(&mut self, table: u32, query: RangeQuery, out: &mut Vec<Entry>) -> Result<()> {
        self.mischief();
        out.clear();
        let table = self.table(table)?;
        let first = query.first + i64::from(query.strict);
        let from = ([first, i64::MIN, i64::MIN], 0);
        let index = &table.indexes[query.index.position()];
        out.extend(index.range(from..).take(query.limit as usize).map(|(entry, _)| *entry));
        Ok(())
    }

    fn get(&mut self, table: u32, key: u64, found: &mut dyn FnMut(u64, RowView<'_>)) -> Result<bool> {
        self.mischief();
        let behind = u64::from(self.parameters.fault == Some(Planted::WrongGet));
        let table = self.table(table)?;
        let row = table.rows.range(key + behind..).next().filter(|(other, _)| **other == key + behind);
        if let Some((key, row)) = row {
            found(*key, row.view());
        }
        Ok(row.is_some())
    }

    fn points(&mut self, table: u32, keys: &[u64], out: &mut Vec<PointRow>) -> Result<()> {
        self.mischief();
        out.clear();
        let table = self.table(table)?;
        for key in keys {
            if let Some(row) = table.rows.get(key) {
                out.push(PointRow { transactionid: *key, productid: row.productid, data: row.data.to_vec() });
            }
        }
        Ok(())
    }

    fn min_key(&mut self, table: u32) -> Result<Option<u64>> {
        Ok(self.table(table)?.rows.first_key_value().map(|(key, _)| *key))
    }

    fn max_key(&mut self, table: u32) -> Result<Option<u64>> {
        Ok(self.table(table)?.rows.last_key_value().map(|(key, _)| *key))
    }

    fn hold_begin(&mut self, table: u32) -> Result<()> {
        self.min_key(table).map(|_| ())
    }

    fn hold_end(&mut self) -> Result<()> {
        Ok(())
    }

    fn scan_table(&mut self, table: u32, each: &mut dyn FnMut(u64, RowView<'_>)) -> Result<()> {
        for (key, row) in &self.table(table)?.rows {
            each(*key, row.view());
        }
        Ok(())
    }

    fn scan_customers(&mut self, table: u32, each: &mut dyn FnMut(i32)) -> Result<()> {
        self.scan_table(table, &mut |_, row| each(row.customerid))
    }

    fn scan_index(&mut self, table: u32, index: Secondary, each: &mut dyn FnMut(Entry, u64)) -> Result<()> {
        for (entry, key) in &self.table(table)?.indexes[index.position()] {
            each(*entry, *key);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(text: &str) -> ModelTarget {
        let parameters = Parameters::parse(TargetSpec::parse(text).unwrap()).unwrap();
        ModelTarget { parameters, tables: RwLock::default() }
    }

    fn batch(prices: &[i32]) -> Batch {
        let mut batch = Batch::default();
        for price in prices {
            let row =
                RowView { dateandtime: 5, cashregisterid: 1, customerid: 2, productid: 3, price: *price, data: b"abc" };
            batch.push(row);
        }
        batch
    }

    #[test]
    fn rows_and_indexes_follow_inserts_and_deletes() {
        let target = open("model");
        target.create_table(0).unwrap();
        let mut session = target.session().unwrap();
        assert_eq!(session.insert(0, &batch(&[30, 10, 20])).unwrap(), 1);
        target.create_indexes(0, IndexSet::Y2023).unwrap();
        assert_eq!(session.insert(0, &batch(&[15])).unwrap(), 4);
        let mut out = Vec::new();
        let query = RangeQuery { index: Secondary::Pdc, first: 10, strict: false, limit: 2 };
        session.range(0, query, &mut out).unwrap();
        assert_eq!(out, [[10, 5, 2], [15, 5, 2]]);
        session.range(0, RangeQuery { strict: true, ..query }, &mut out).unwrap();
        assert_eq!(out, [[15, 5, 2], [20, 5, 2]]);
        assert_eq!(session.delete_smallest(0, 2, 2).unwrap(), 2);
        assert_eq!((session.min_key(0).unwrap(), session.max_key(0).unwrap()), (Some(1), Some(4)));
        let mut found = Vec::new();
        session.points(0, &[1, 2, 4], &mut found).unwrap();
        assert_eq!(found.iter().map(|row| row.transactionid).collect::<Vec<_>>(), [1, 4]);
        let mut keys = Vec::new();
        session.scan_index(0, Secondary::Pdc, &mut |_, key| keys.push(key)).unwrap();
        assert_eq!(keys, [4, 1]);
    }

    #[test]
    fn a_planted_fault_is_planted_once() {
        let target = open("model:fault=lose-delete");
        target.create_table(0).unwrap();
        let mut session = target.session().unwrap();
        session.insert(0, &batch(&[1, 2, 3, 4])).unwrap();
        assert_eq!(session.delete_smallest(0, 1, 2).unwrap(), 2);
        let mut left = 0;
        session.scan_table(0, &mut |_, _| left += 1).unwrap();
        assert_eq!(left, 3);
        assert!(Parameters::parse(TargetSpec::parse("model:fault=none").unwrap()).is_err());
    }
}
