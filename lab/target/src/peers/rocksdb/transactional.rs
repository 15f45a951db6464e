//! With pessimistic transactions: a statement locks the keys that it writes, and the check of an insert locks its key.

use std::path::Path;

use ::rocksdb::{
    DBAccess, DBPinnableSlice, DBRawIteratorWithThreadMode, Error, ErrorKind, FlushOptions, MultiThreaded, Options,
    ReadOptions, Transaction, TransactionDB, TransactionDBOptions, TransactionOptions, WriteOptions,
};

use super::sysbench::RocksTables;
use super::tpcc::TpccTables;
use super::{Engine, Rocks, Snapshot, wrong};
use crate::api::{Result as TargetResult, TargetError};
use crate::{sysbench, tpcc};

/// Its properties are known in this form only.
pub type Locking = TransactionDB<MultiThreaded>;

impl Engine for Locking {
    type Write<'s> = Transaction<'s, Locking>;

    const CONFIG: &'static str = "rocksdb-pessimistic";
    const NOTE: &'static str = "deletes of one table take turns; every key written is locked";

    fn create(options: &Options, dir: &Path) -> Result<Locking, Error> {
        Locking::open(options, &TransactionDBOptions::default(), dir)
    }

    fn snapshot(&self) -> Snapshot<'_, Locking> {
        Locking::snapshot(self)
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

    fn begin(&self, options: &WriteOptions) -> Transaction<'_, Locking> {
        self.transaction_opt(options, &TransactionOptions::default())
    }

    fn exists(
        transaction: &Transaction<'_, Locking>,
        _snapshot: &Snapshot<'_, Locking>,
        key: &[u8],
    ) -> Result<bool, Error> {
        Ok(transaction.get_pinned_for_update(key, true)?.is_some())
    }

    fn put(transaction: &mut Transaction<'_, Locking>, key: &[u8], value: &[u8]) -> Result<(), Error> {
        transaction.put(key, value)
    }

    fn delete(transaction: &mut Transaction<'_, Locking>, key: &[u8]) -> Result<(), Error> {
        transaction.delete(key)
    }

    /// Dropped without a commit, the transaction is rolled back.
    fn commit(&self, transaction: Transaction<'_, Locking>, _options: &WriteOptions) -> Result<(), Error> {
        transaction.commit()
    }

    fn sysbench(rocks: &Rocks<Locking>) -> TargetResult<Box<dyn sysbench::Tables + '_>> {
        Ok(Box::new(RocksTables::new(rocks)))
    }

    fn tpcc(rocks: &Rocks<Locking>) -> TargetResult<Box<dyn tpcc::Tables + '_>> {
        Ok(Box::new(TpccTables::new(rocks)))
    }
}

impl Rocks<Locking> {
    /// One that finds deadlocks; with a snapshot, a write of a row that has changed since is a conflict.
    pub fn transaction(&self, write_options: &WriteOptions, with_snapshot: bool) -> Transaction<'_, Locking> {
        let mut options = TransactionOptions::default();
        options.set_snapshot(with_snapshot);
        options.set_deadlock_detect(true);
        self.database.transaction_opt(write_options, &options)
    }
}

/// What can be run again, and what cannot.
pub fn judged(error: Error) -> TargetError {
    match error.kind() {
        ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain | ErrorKind::Aborted => {
            TargetError::Retry(format!("rocksdb: {error}"))
        }
        _ => wrong(error),
    }
}

/// What is called with keys and values.
pub type Each<'e> = &'e mut dyn FnMut(&[u8], &[u8]) -> TargetResult<()>;

/// Hands keys and values from `from` on to `each`.
pub fn walk<D: DBAccess>(
    pairs: &mut DBRawIteratorWithThreadMode<'_, D>,
    from: &[u8],
    each: Each<'_>,
) -> TargetResult<()> {
    pairs.seek(from);
    while let Some((key, value)) = pairs.item() {
        each(key, value)?;
        pairs.next();
    }
    pairs.status().map_err(judged)
}
