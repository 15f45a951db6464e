//! Without transactions: a statement reads a snapshot and writes one atomic batch.

use std::time::Duration;

use ::rocksdb::{DB, ReadOptions, SnapshotWithThreadMode, WriteBatch};

use super::super::kv::{KvTarget, ROWS, Reader, Store, Writer};
use super::options::Tuned;
use super::{Facts, Trees, bounded, end_of, flush_waiting, prefixed, trees, wrong};
use crate::api::{Counters, Description, Result, Setup, Sizes};

/// The open database.
pub struct Plain {
    database: DB,
    tuned: Tuned,
    read_options: ReadOptions,
}

pub fn open(tuned: Tuned, setup: &Setup) -> Result<KvTarget<Plain>> {
    let database = DB::open(&tuned.options(), &setup.dir).map_err(wrong)?;
    let budget_bytes = tuned.budget_bytes;
    Ok(KvTarget::new(Plain { database, tuned, read_options: ReadOptions::default() }, budget_bytes))
}

impl Plain {
    fn property(&self, name: &str) -> Result<Option<u64>> {
        self.database.property_int_value(name).map_err(wrong)
    }

    fn facts<R>(&self, ask: impl FnOnce(&Facts<'_>) -> R) -> R {
        ask(&Facts { tuned: &self.tuned, config: "rocksdb", property: &|name| self.property(name) })
    }
}

impl Store for Plain {
    type Trees = Trees;

    const PARALLEL_WRITES: bool = true;

    fn create(&self, table: u32) -> Result<Trees> {
        Ok(trees(table))
    }

    fn read<R>(&self, trees: &Trees, run: impl FnOnce(&dyn Reader) -> Result<R>) -> Result<R> {
        run(&Reading { snapshot: self.database.snapshot(), trees })
    }

    /// The newest value, without a snapshot.
    fn get(&self, trees: &Trees, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut buffer = [0; 12];
        buffer[..4].copy_from_slice(&trees[ROWS]);
        buffer[4..].copy_from_slice(key);
        let value = self.database.get_pinned_opt(buffer, &self.read_options).map_err(wrong)?;
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn write<R>(&self, trees: &Trees, run: impl FnOnce(&mut dyn Writer) -> Result<R>) -> Result<R> {
        let reading = Reading { snapshot: self.database.snapshot(), trees };
        let mut writing = Writing { reading, batch: WriteBatch::default(), key: Vec::new() };
        let result = run(&mut writing)?;
        self.database.write_opt(writing.batch, &self.tuned.write_options()).map_err(wrong)?;
        Ok(result)
    }

    fn describe(&self) -> Description {
        self.facts(|facts| facts.describe(&["deletes of one table take turns; inserts take no row locks"]))
    }

    fn settle(&self, limit: Duration) -> Result<()> {
        self.database.flush_opt(&flush_waiting()).map_err(wrong)?;
        self.facts(|facts| facts.settle(limit))
    }

    fn sizes(&self) -> Result<Sizes> {
        self.facts(|facts| facts.sizes())
    }

    fn counters(&self) -> Result<Counters> {
        self.facts(|facts| facts.counters())
    }

    /// Checksums are verified by every read; the lab itself compares indexes with rows.
    fn verify(&self) -> Result<()> {
        Ok(())
    }
}

struct Reading<'s> {
    snapshot: SnapshotWithThreadMode<'s, DB>,
    trees: &'s Trees,
}

struct Writing<'s> {
    reading: Reading<'s>,
    batch: WriteBatch,
    key: Vec<u8>,
}

impl Reader for Reading<'_> {
    fn get(&self, tree: usize, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut buffer = Vec::with_capacity(12);
        let value = self.snapshot.get_pinned(prefixed(&mut buffer, self.trees[tree], key)).map_err(wrong)?;
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, tree: usize, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let prefix = self.trees[tree];
        let mut pairs = self.snapshot.raw_iterator_opt(bounded(end_of(prefix, to)));
        pairs.seek([&prefix, from].concat());
        while let Some((key, value)) = pairs.item() {
            if !each(&key[prefix.len()..], value) {
                break;
            }
            pairs.next();
        }
        pairs.status().map_err(wrong)
    }

    fn last(&self, tree: usize, found: &mut dyn FnMut(&[u8])) -> Result<()> {
        let prefix = self.trees[tree];
        let mut pairs = self.snapshot.raw_iterator();
        pairs.seek_for_prev(end_of(prefix, &[]));
        if let Some(key) = pairs.key().and_then(|key| key.strip_prefix(&prefix)) {
            found(key);
        }
        pairs.status().map_err(wrong)
    }
}

impl Reader for Writing<'_> {
    fn get(&self, tree: usize, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.reading.get(tree, key, found)
    }

    fn scan(&self, tree: usize, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.reading.scan(tree, from, to, each)
    }

    fn last(&self, tree: usize, found: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.reading.last(tree, found)
    }
}

impl Writer for Writing<'_> {
    fn insert_new(&mut self, tree: usize, key: &[u8], value: &[u8]) -> Result<bool> {
        let exists = self.reading.get(tree, key, &mut |_| ())?;
        if !exists {
            self.put(tree, key, value)?;
        }
        Ok(!exists)
    }

    fn put(&mut self, tree: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.put(prefixed(&mut self.key, self.reading.trees[tree], key), value);
        Ok(())
    }

    fn delete(&mut self, tree: usize, key: &[u8]) -> Result<()> {
        self.batch.delete(prefixed(&mut self.key, self.reading.trees[tree], key));
        Ok(())
    }
}
