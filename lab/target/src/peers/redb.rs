//! redb: a copy-on-write B-tree in one file, one writer at a time.
//!
//! Durability: redb knows "on the device" and "not yet written". `sync` is the first. `write` and `buffered` run on a
//! file whose sync does nothing, so that every commit writes its pages to the operating system and does not wait for
//! the device: what `write` promises, and more than `buffered` does.

use std::cell::OnceCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use ::redb::{
    Builder, Database, Durability as Commit, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable,
    StorageBackend, Table, TableDefinition, WriteTransaction,
};

use super::kv::{KvTarget, Reader, Store, TREES, Writer, settings, tree_names};
use super::{BUDGET_BYTES_DEFAULT, buffered_only, failed, no_compression};
use crate::api::{Counters, Description, Durability, Result, Setup, Sizes, TargetError};
use crate::spec::TargetSpec;

type Definition<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;

fn wrong(error: impl Into<::redb::Error>) -> TargetError {
    failed("redb", error.into())
}

/// A file whose sync does nothing. The operating system has what was written.
#[derive(Debug)]
struct Unsynced(File);

impl StorageBackend for Unsynced {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}

/// The open database.
pub struct Redb {
    database: Database,
    path: PathBuf,
    cache_bytes: u64,
    durability: Durability,
    notes: Vec<String>,
}

/// Refuses parameters: there are none.
pub fn check(spec: TargetSpec) -> Result<()> {
    spec.finish(&[])
}

/// Creates a database in the run's directory; the whole budget is its cache.
pub fn open(spec: TargetSpec, setup: &Setup) -> Result<KvTarget<Redb>> {
    check(spec)?;
    let mut notes = vec!["one write transaction at a time".into(), "no check of its own is run".into()];
    no_compression("redb", setup, &mut notes);
    buffered_only("redb", setup, &mut notes);
    let cache_bytes = setup.budget_bytes.unwrap_or(BUDGET_BYTES_DEFAULT);
    let path = setup.dir.join("data.redb");
    let mut builder = Builder::new();
    builder.set_cache_size(cache_bytes as usize);
    let database = if setup.durability == Durability::Sync {
        builder.create(&path)
    } else {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        notes.push("a commit is written to the operating system and not synced; redb alone has no such mode".into());
        builder.create_with_backend(Unsynced(file.map_err(|error| failed("redb", error))?))
    };
    let database = database.map_err(wrong)?;
    Ok(KvTarget::new(Redb { database, path, cache_bytes, durability: setup.durability, notes }, cache_bytes))
}

impl Store for Redb {
    type Trees = [String; TREES];

    const PARALLEL_WRITES: bool = false;

    fn create(&self, table: u32) -> Result<[String; TREES]> {
        let names = tree_names(table);
        let transaction = self.database.begin_write().map_err(wrong)?;
        for name in &names {
            transaction.open_table(Definition::new(name)).map_err(wrong)?;
        }
        transaction.commit().map_err(wrong)?;
        Ok(names)
    }

    fn read<R>(&self, names: &[String; TREES], run: impl FnOnce(&dyn Reader) -> Result<R>) -> Result<R> {
        let transaction = self.database.begin_read().map_err(wrong)?;
        run(&Reading { transaction, names, tables: Default::default() })
    }

    fn write<R>(&self, names: &[String; TREES], run: impl FnOnce(&mut dyn Writer) -> Result<R>) -> Result<R> {
        let mut transaction = self.database.begin_write().map_err(wrong)?;
        transaction.set_durability(Commit::Immediate).map_err(wrong)?;
        // Dropped without a commit, the transaction is rolled back.
        let result = run(&mut Writing { transaction: &transaction, names, tables: Default::default() })?;
        transaction.commit().map_err(wrong)?;
        Ok(result)
    }

    fn describe(&self) -> Description {
        Description {
            engine: "redb".into(),
            version: env!("LAB_REDB_VERSION").into(),
            config: "redb".into(),
            settings: settings([
                ("cache_size", self.cache_bytes.to_string()),
                ("durability", format!("{:?}", self.durability).to_lowercase()),
                ("commit", "immediate".into()),
                ("sync_at_commit", (self.durability == Durability::Sync).to_string()),
                ("two_phase_commit", "false".into()),
                ("quick_repair", "false".into()),
                ("compression", "none".into()),
                ("io", "buffered".into()),
            ]),
            notes: self.notes.clone(),
        }
    }

    /// There is no background work; what the operating system still has goes to the device.
    fn settle(&self, _limit: Duration) -> Result<()> {
        File::open(&self.path).and_then(|file| file.sync_data()).map_err(|error| failed("redb", error))
    }

    fn sizes(&self) -> Result<Sizes> {
        let length = std::fs::metadata(&self.path).map_err(|error| failed("redb", error))?.len();
        Ok(Sizes { data_bytes: Some(length), ..Sizes::default() })
    }

    fn counters(&self) -> Result<Counters> {
        Ok(Counters::new())
    }

    fn verify(&self) -> Result<()> {
        Ok(())
    }
}

type ReadTable = ReadOnlyTable<&'static [u8], &'static [u8]>;
type WriteTable<'t> = Table<'t, &'static [u8], &'static [u8]>;

/// Tables are opened when they are first asked for.
struct Reading<'s> {
    transaction: ReadTransaction,
    names: &'s [String; TREES],
    tables: [OnceCell<ReadTable>; TREES],
}

struct Writing<'s> {
    transaction: &'s WriteTransaction,
    names: &'s [String; TREES],
    tables: [OnceCell<WriteTable<'s>>; TREES],
}

impl Reading<'_> {
    fn table(&self, tree: usize) -> Result<&ReadTable> {
        if let Some(table) = self.tables[tree].get() {
            return Ok(table);
        }
        let table = self.transaction.open_table(Definition::new(&self.names[tree])).map_err(wrong)?;
        Ok(self.tables[tree].get_or_init(|| table))
    }
}

impl<'s> Writing<'s> {
    fn table(&self, tree: usize) -> Result<&WriteTable<'s>> {
        if let Some(table) = self.tables[tree].get() {
            return Ok(table);
        }
        let table = self.transaction.open_table(Definition::new(&self.names[tree])).map_err(wrong)?;
        Ok(self.tables[tree].get_or_init(|| table))
    }

    fn table_mut(&mut self, tree: usize) -> Result<&mut WriteTable<'s>> {
        self.table(tree)?;
        Ok(self.tables[tree].get_mut().expect("the line above opened it"))
    }
}

fn get(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &[u8],
    found: &mut dyn FnMut(&[u8]),
) -> Result<bool> {
    let value = table.get(key).map_err(wrong)?;
    if let Some(value) = &value {
        found(value.value());
    }
    Ok(value.is_some())
}

fn scan(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    (from, to): (&[u8], &[u8]),
    each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<()> {
    let found = if to.is_empty() { table.range(from..) } else { table.range(from..to) };
    for pair in found.map_err(wrong)? {
        let (key, value) = pair.map_err(wrong)?;
        if !each(key.value(), value.value()) {
            break;
        }
    }
    Ok(())
}

fn last(table: &impl ReadableTable<&'static [u8], &'static [u8]>, found: &mut dyn FnMut(&[u8])) -> Result<()> {
    if let Some((key, _)) = table.last().map_err(wrong)? {
        found(key.value());
    }
    Ok(())
}

impl Reader for Reading<'_> {
    fn get(&self, tree: usize, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(self.table(tree)?, key, found)
    }

    fn scan(&self, tree: usize, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        scan(self.table(tree)?, (from, to), each)
    }

    fn last(&self, tree: usize, found: &mut dyn FnMut(&[u8])) -> Result<()> {
        last(self.table(tree)?, found)
    }
}

impl Reader for Writing<'_> {
    fn get(&self, tree: usize, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(self.table(tree)?, key, found)
    }

    fn scan(&self, tree: usize, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        scan(self.table(tree)?, (from, to), each)
    }

    fn last(&self, tree: usize, found: &mut dyn FnMut(&[u8])) -> Result<()> {
        last(self.table(tree)?, found)
    }
}

impl Writer for Writing<'_> {
    /// An insert tells what was there before: the check costs no second descent.
    fn insert_new(&mut self, tree: usize, key: &[u8], value: &[u8]) -> Result<bool> {
        Ok(self.table_mut(tree)?.insert(key, value).map_err(wrong)?.is_none())
    }

    fn put(&mut self, tree: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.table_mut(tree)?.insert(key, value).map_err(wrong)?;
        Ok(())
    }

    fn delete(&mut self, tree: usize, key: &[u8]) -> Result<()> {
        self.table_mut(tree)?.remove(key).map_err(wrong)?;
        Ok(())
    }
}
