//! An engine that does nothing: what a run on it takes is the price of the driver.
//!
//! It counts keys, so that statements and probes get believable answers, and stores no row: invariants do not apply.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use crate::api::{Ability, Counters, Description, PointRow, RangeQuery, Result, Session, Sizes, Target, TargetError};
use crate::row::{Batch, Entry, IndexSet, RowView, Secondary};
use crate::spec::TargetSpec;
use crate::sysbench::Tables;

mod sysbench;
mod tpcc;

/// Smallest and next key of one table. Relaxed throughout: nothing else is published through these counters.
#[derive(Debug, Default)]
struct Keys {
    deleted: AtomicU64,
    inserted: AtomicU64,
}

/// The target.
#[derive(Debug, Default)]
pub struct NullTarget {
    tables: RwLock<Vec<Arc<Keys>>>,
}

impl NullTarget {
    /// Refuses parameters: there are none.
    pub fn check(spec: TargetSpec) -> Result<()> {
        spec.finish(&[])
    }

    /// Opens it.
    pub fn open(spec: TargetSpec) -> Result<NullTarget> {
        NullTarget::check(spec)?;
        Ok(NullTarget::default())
    }
}

impl Target for NullTarget {
    fn describe(&self) -> Description {
        Description {
            engine: "null".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            config: "null".into(),
            settings: BTreeMap::new(),
            notes: vec!["stores nothing, so no knob has an effect: the numbers are the driver's own cost".into()],
        }
    }

    fn ability(&self) -> Ability {
        Ability { stores_rows: false, dense_keys: false }
    }

    fn create_table(&self, table: u32) -> Result<()> {
        let mut tables = self.tables.write().expect("no thread panics while it holds the list");
        while tables.len() <= table as usize {
            tables.push(Arc::default());
        }
        Ok(())
    }

    fn create_indexes(&self, _table: u32, _set: IndexSet) -> Result<()> {
        Ok(())
    }

    fn sysbench(&self) -> Result<Box<dyn Tables + '_>> {
        Ok(Box::new(sysbench::NullTables))
    }

    fn tpcc(&self) -> Result<Box<dyn crate::tpcc::Tables + '_>> {
        Ok(Box::new(tpcc::NullTables))
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        let tables = self.tables.read().expect("no thread panics while it holds the list").clone();
        Ok(Box::new(NullSession { tables }))
    }

    fn settle(&self, _limit: Duration) -> Result<()> {
        Ok(())
    }

    fn sizes(&self) -> Result<Sizes> {
        Ok(Sizes::default())
    }

    fn counters(&self) -> Result<Counters> {
        Ok(Counters::new())
    }

    fn verify(&self) -> Result<()> {
        Ok(())
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// What every look-up finds: a row that the insert benchmark could have made.
const ROW: RowView<'static> = RowView {
    dateandtime: 1_700_000_000,
    cashregisterid: 1,
    customerid: 1,
    productid: 1,
    price: 1,
    data: b"aaaaaaaXYZ",
};

struct NullSession {
    tables: Vec<Arc<Keys>>,
}

impl NullSession {
    fn keys(&self, table: u32) -> Result<&Keys> {
        self.tables
            .get(table as usize)
            .map(|keys| &**keys)
            .ok_or_else(|| TargetError::Failed(format!("null: no table {table}")))
    }
}

impl Session for NullSession {
    fn insert(&mut self, table: u32, rows: &Batch) -> Result<u64> {
        Ok(self.keys(table)?.inserted.fetch_add(rows.len() as u64, Ordering::Relaxed) + 1)
    }

    fn delete_smallest(&mut self, table: u32, _from: u64, count: u32) -> Result<u32> {
        self.keys(table)?.deleted.fetch_add(u64::from(count), Ordering::Relaxed);
        Ok(count)
    }

    fn delete_range(&mut self, table: u32, from: u64, to: u64) -> Result<u32> {
        self.delete_smallest(table, from, (to - from) as u32)
    }

    fn range(&mut self, _table: u32, query: RangeQuery, out: &mut Vec<Entry>) -> Result<()> {
        out.clear();
        out.resize(query.limit as usize, [query.first + i64::from(query.strict), 0, 0]);
        Ok(())
    }

    fn get(&mut self, _table: u32, key: u64, found: &mut dyn FnMut(u64, RowView<'_>)) -> Result<bool> {
        found(key, ROW);
        Ok(true)
    }

    fn points(&mut self, _table: u32, _keys: &[u64], out: &mut Vec<PointRow>) -> Result<()> {
        out.clear();
        Ok(())
    }

    fn min_key(&mut self, table: u32) -> Result<Option<u64>> {
        Ok(Some(self.keys(table)?.deleted.load(Ordering::Relaxed) + 1))
    }

    fn max_key(&mut self, table: u32) -> Result<Option<u64>> {
        Ok(Some(self.keys(table)?.inserted.load(Ordering::Relaxed)))
    }

    fn hold_begin(&mut self, _table: u32) -> Result<()> {
        Ok(())
    }

    fn hold_end(&mut self) -> Result<()> {
        Ok(())
    }

    fn scan_table(&mut self, _table: u32, _each: &mut dyn FnMut(u64, RowView<'_>)) -> Result<()> {
        Ok(())
    }

    fn scan_customers(&mut self, _table: u32, _each: &mut dyn FnMut(i32)) -> Result<()> {
        Ok(())
    }

    fn scan_index(&mut self, _table: u32, _index: Secondary, _each: &mut dyn FnMut(Entry, u64)) -> Result<()> {
        Ok(())
    }
}
