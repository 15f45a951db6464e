//! LMDB (through heed): a copy-on-write B-tree in a memory map, one writer at a time.
//!
//! Durability: `sync` syncs at each commit. `write` and `buffered` run without sync: a commit writes its pages to the
//! operating system, which is what `write` promises for the process, and more than `buffered` asks. A machine that
//! fails may leave a broken file behind, which `write` allows too.
//!
//! There is no cache besides the system's page cache, so a budget has no effect and is said to have none.

use std::ops::Bound;
use std::time::Duration;

use ::heed::types::Bytes;
use ::heed::{Database, Env, EnvFlags, EnvOpenOptions, MdbError, PutFlags, RoTxn, RwTxn};

use super::kv::{KvTarget, Reader, Store, TREES, Writer, settings, tree_names};
use super::{BUDGET_BYTES_DEFAULT, buffered_only, failed, no_compression};
use crate::api::{Counters, Description, Durability, Result, Setup, Sizes, TargetError};
use crate::spec::TargetSpec;

/// Address space of the map; the file grows as it is filled.
const MAP_BYTES: usize = 1 << 40;
/// The most trees an environment may have: 16 tables. Every read transaction clears a place for each of them.
const TREES_MAX: u32 = 64;

type Tree = Database<Bytes, Bytes>;

fn wrong(error: ::heed::Error) -> TargetError {
    failed("lmdb", error)
}

/// The open environment.
pub struct Lmdb {
    env: Env,
    durability: Durability,
    notes: Vec<String>,
}

/// Refuses parameters: there are none.
pub fn check(spec: TargetSpec) -> Result<()> {
    spec.finish(&[])
}

/// Creates an environment in the run's directory.
pub fn open(spec: TargetSpec, setup: &Setup) -> Result<KvTarget<Lmdb>> {
    check(spec)?;
    let mut notes = vec!["one write transaction at a time".into(), "it has no check of its own".into()];
    no_compression("lmdb", setup, &mut notes);
    buffered_only("lmdb", setup, &mut notes);
    if setup.budget_bytes.is_some() {
        notes.push("lmdb has no cache but the page cache: the budget has no effect".into());
    }
    let mut flags = EnvFlags::NO_MEM_INIT;
    if setup.durability != Durability::Sync {
        flags |= EnvFlags::NO_SYNC;
        notes.push("a commit is written to the operating system and not synced".into());
    }
    let env = open_env(setup, flags).map_err(wrong)?;
    let budget_bytes = setup.budget_bytes.unwrap_or(BUDGET_BYTES_DEFAULT);
    Ok(KvTarget::new(Lmdb { env, durability: setup.durability, notes }, budget_bytes))
}

#[allow(unsafe_code)]
fn open_env(setup: &Setup, flags: EnvFlags) -> ::heed::Result<Env> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_dbs(TREES_MAX);
    // SAFETY: a map is sound as long as no one else changes the file. The directory is new and this run's own, and
    // LMDB's lock file is in use. The flags touch durability and the zeroing of new pages, not the locking.
    unsafe { options.flags(flags).open(&setup.dir) }
}

impl Store for Lmdb {
    type Trees = [Tree; TREES];

    const PARALLEL_WRITES: bool = false;

    fn create(&self, table: u32) -> Result<[Tree; TREES]> {
        let names = tree_names(table);
        let mut transaction = self.env.write_txn().map_err(wrong)?;
        let mut open = |tree: usize| self.env.create_database(&mut transaction, Some(&names[tree])).map_err(wrong);
        let trees = [open(0)?, open(1)?, open(2)?, open(3)?];
        transaction.commit().map_err(wrong)?;
        Ok(trees)
    }

    fn read<R>(&self, trees: &[Tree; TREES], run: impl FnOnce(&dyn Reader) -> Result<R>) -> Result<R> {
        let transaction = self.env.read_txn().map_err(wrong)?;
        run(&Reading { transaction: &transaction, trees })
    }

    fn write<R>(&self, trees: &[Tree; TREES], run: impl FnOnce(&mut dyn Writer) -> Result<R>) -> Result<R> {
        // Dropped without a commit, the transaction is rolled back.
        let mut writing = Writing { transaction: self.env.write_txn().map_err(wrong)?, trees };
        let result = run(&mut writing)?;
        writing.transaction.commit().map_err(wrong)?;
        Ok(result)
    }

    fn describe(&self) -> Description {
        let info = self.env.info();
        let flags = self.env.flags().ok().flatten();
        let version = ::heed::lmdb_version();
        Description {
            engine: "lmdb".into(),
            version: format!("{}.{}.{}", version.major, version.minor, version.patch),
            config: "lmdb".into(),
            settings: settings([
                ("heed", env!("LAB_HEED_VERSION").into()),
                ("map_size", info.map_size.to_string()),
                ("max_readers", info.maximum_number_of_readers.to_string()),
                ("durability", format!("{:?}", self.durability).to_lowercase()),
                ("flags", flags.map_or_else(|| "unknown".into(), |flags| format!("{flags:?}"))),
                ("compression", "none".into()),
                ("io", "memory map".into()),
            ]),
            notes: self.notes.clone(),
        }
    }

    /// There is no background work; what the operating system still has goes to the device.
    fn settle(&self, _limit: Duration) -> Result<()> {
        self.env.force_sync().map_err(wrong)
    }

    fn sizes(&self) -> Result<Sizes> {
        Ok(Sizes { data_bytes: Some(self.env.real_disk_size().map_err(wrong)?), ..Sizes::default() })
    }

    fn counters(&self) -> Result<Counters> {
        let info = self.env.info();
        Ok([
            ("pages", info.last_page_number as u64 + 1),
            ("transactions", info.last_txn_id as u64),
            ("readers", u64::from(info.number_of_readers)),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect())
    }

    fn verify(&self) -> Result<()> {
        Ok(())
    }
}

struct Reading<'s> {
    transaction: &'s RoTxn<'s>,
    trees: &'s [Tree; TREES],
}

struct Writing<'s> {
    transaction: RwTxn<'s>,
    trees: &'s [Tree; TREES],
}

impl Reader for Reading<'_> {
    fn get(&self, tree: usize, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.trees[tree].get(self.transaction, key).map_err(wrong)?;
        if let Some(value) = value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, tree: usize, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let end = if to.is_empty() { Bound::Unbounded } else { Bound::Excluded(to) };
        // No key is empty, and LMDB does not look for one that is.
        let start = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        for pair in self.trees[tree].range(self.transaction, &(start, end)).map_err(wrong)? {
            let (key, value) = pair.map_err(wrong)?;
            if !each(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn last(&self, tree: usize, found: &mut dyn FnMut(&[u8])) -> Result<()> {
        if let Some((key, _)) = self.trees[tree].last(self.transaction).map_err(wrong)? {
            found(key);
        }
        Ok(())
    }
}

impl Writing<'_> {
    fn reading(&self) -> Reading<'_> {
        Reading { transaction: &self.transaction, trees: self.trees }
    }

    /// Stores a key unless it exists, behind all others if that is its place; says whether it did.
    fn put_with(&mut self, tree: usize, flags: PutFlags, key: &[u8], value: &[u8]) -> Result<bool> {
        match self.trees[tree].put_with_flags(&mut self.transaction, flags, key, value) {
            Ok(()) => Ok(true),
            Err(::heed::Error::Mdb(MdbError::KeyExist)) => Ok(false),
            Err(error) => Err(wrong(error)),
        }
    }
}

impl Reader for Writing<'_> {
    fn get(&self, tree: usize, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.reading().get(tree, key, found)
    }

    fn scan(&self, tree: usize, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.reading().scan(tree, from, to, each)
    }

    fn last(&self, tree: usize, found: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.reading().last(tree, found)
    }
}

impl Writer for Writing<'_> {
    /// Row keys rise: at the end a page is left full instead of split in halves. A key that is not the largest is
    /// refused there, and is stored, or found to exist, on the second way.
    fn insert_new(&mut self, tree: usize, key: &[u8], value: &[u8]) -> Result<bool> {
        Ok(self.put_with(tree, PutFlags::APPEND, key, value)?
            || self.put_with(tree, PutFlags::NO_OVERWRITE, key, value)?)
    }

    fn put(&mut self, tree: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.trees[tree].put(&mut self.transaction, key, value).map_err(wrong)
    }

    fn append(&mut self, tree: usize, key: &[u8], value: &[u8]) -> Result<()> {
        if self.put_with(tree, PutFlags::APPEND, key, value)? { Ok(()) } else { self.put(tree, key, value) }
    }

    fn delete(&mut self, tree: usize, key: &[u8]) -> Result<()> {
        self.trees[tree].delete(&mut self.transaction, key).map_err(wrong)?;
        Ok(())
    }
}
