//! With pessimistic transactions: a statement locks the keys that it writes, and the check of an insert locks its key.

use std::path::Path;

use ::rocksdb::{
    DBPinnableSlice, Error, FlushOptions, MultiThreaded, Options, ReadOptions, Transaction, TransactionDB,
    TransactionDBOptions, TransactionOptions, WriteOptions,
};

use super::sysbench::RocksTables;
use super::{Engine, Rocks, Snapshot};
use crate::sysbench::Tables;

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

    fn sysbench(rocks: &Rocks<Locking>) -> crate::api::Result<Box<dyn Tables + '_>> {
        Ok(Box::new(RocksTables::new(rocks)))
    }
}
