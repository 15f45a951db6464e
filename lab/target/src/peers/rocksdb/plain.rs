//! Without transactions: a statement reads a snapshot and writes one atomic batch.

use std::path::Path;

use ::rocksdb::{DB, DBPinnableSlice, Error, FlushOptions, Options, ReadOptions, WriteBatch, WriteOptions};

use super::{Engine, Rocks, Snapshot};
use crate::api::TargetError;
use crate::{sysbench, tpcc};

impl Engine for DB {
    type Write<'s> = WriteBatch;

    const CONFIG: &'static str = "rocksdb";
    const NOTE: &'static str = "deletes of one table take turns; inserts take no row locks";

    fn create(options: &Options, dir: &Path) -> Result<DB, Error> {
        DB::open(options, dir)
    }

    fn snapshot(&self) -> Snapshot<'_, DB> {
        DB::snapshot(self)
    }

    fn newest(&self, key: &[u8], options: &ReadOptions) -> Result<Option<DBPinnableSlice<'_>>, Error> {
        self.get_pinned_opt(key, options)
    }

    fn property(&self, name: &str) -> Result<Option<u64>, Error> {
        self.property_int_value(name)
    }

    fn flush(&self, options: &FlushOptions) -> Result<(), Error> {
        self.flush_opt(options)
    }

    fn begin(&self, _options: &WriteOptions) -> WriteBatch {
        WriteBatch::default()
    }

    fn exists(_batch: &WriteBatch, snapshot: &Snapshot<'_, DB>, key: &[u8]) -> Result<bool, Error> {
        Ok(snapshot.get_pinned(key)?.is_some())
    }

    fn put(batch: &mut WriteBatch, key: &[u8], value: &[u8]) -> Result<(), Error> {
        batch.put(key, value);
        Ok(())
    }

    fn delete(batch: &mut WriteBatch, key: &[u8]) -> Result<(), Error> {
        batch.delete(key);
        Ok(())
    }

    fn commit(&self, batch: WriteBatch, options: &WriteOptions) -> Result<(), Error> {
        self.write_opt(batch, options)
    }

    fn sysbench(_rocks: &Rocks<DB>) -> crate::api::Result<Box<dyn sysbench::Tables + '_>> {
        Err(TargetError::Unsupported("sysbench needs transactions: rocksdb:txn=pessimistic".into()))
    }

    fn tpcc(_rocks: &Rocks<DB>) -> crate::api::Result<Box<dyn tpcc::Tables + '_>> {
        Err(TargetError::Unsupported("TPC-C needs transactions: rocksdb:txn=pessimistic".into()))
    }
}
