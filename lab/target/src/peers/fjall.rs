//! fjall: log-structured merge trees, one a keyspace, under one journal.
//!
//! Writes are atomic batches and run side by side. Durability: `sync` syncs the journal at each commit; `write` and
//! `buffered` hand it to the operating system at each commit, which is more than `buffered` asks.
//!
//! Of the budget a quarter is for memtables and the rest is the block cache. A memtable is sized for one table: its
//! four keyspaces have one memtable each that is filled and one that is flushed.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ::fjall::config::{CompressionPolicy, FilterPolicy};
use ::fjall::{
    CompressionType, Database, Guard, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable, Snapshot,
};

use super::kv::{KvTarget, ROWS, Reader, Store, TREES, Writer, settings, tree_names};
use super::{BUDGET_BYTES_DEFAULT, buffered_only, failed};
use crate::api::{Counters, Description, Durability, Result, Setup, Sizes, TargetError};
use crate::spec::TargetSpec;

/// Memtables of one table: four keyspaces, one being filled and one being flushed.
const MEMTABLES: u64 = 2 * TREES as u64;

fn wrong(error: ::fjall::Error) -> TargetError {
    failed("fjall", error)
}

/// The open database.
pub struct Fjall {
    database: Database,
    keyspaces: Mutex<Vec<Keyspace>>,
    persist: PersistMode,
    compression: Option<&'static str>,
    memtable_bytes: u64,
    durability: Durability,
    notes: Vec<String>,
}

/// Refuses parameters: there are none.
pub fn check(spec: TargetSpec) -> Result<()> {
    spec.finish(&[])
}

/// Creates a database in the run's directory.
pub fn open(spec: TargetSpec, setup: &Setup) -> Result<KvTarget<Fjall>> {
    check(spec)?;
    let compression = match setup.compression.as_deref() {
        None => None,
        Some("none") => Some("none"),
        Some("lz4") => Some("lz4"),
        Some(other) => return Err(TargetError::Usage(format!("fjall: compression `{other}` is none of none, lz4"))),
    };
    let mut notes =
        vec!["deletes of one table take turns; inserts take no row locks".into(), "no check of its own is run".into()];
    buffered_only("fjall", setup, &mut notes);
    let budget_bytes = setup.budget_bytes.unwrap_or(BUDGET_BYTES_DEFAULT);
    let memtable_bytes = (budget_bytes / 4 / MEMTABLES).clamp(1 << 20, 64 << 20);
    let cache_bytes = budget_bytes.saturating_sub(memtable_bytes * MEMTABLES);
    let persist = if setup.durability == Durability::Sync { PersistMode::SyncData } else { PersistMode::Buffer };
    let database = Database::builder(setup.dir.join("fjall")).cache_size(cache_bytes).open().map_err(wrong)?;
    let store = Fjall {
        database,
        keyspaces: Mutex::default(),
        persist,
        compression,
        memtable_bytes,
        durability: setup.durability,
        notes,
    };
    Ok(KvTarget::new(store, budget_bytes))
}

impl Fjall {
    fn keyspaces(&self) -> MutexGuard<'_, Vec<Keyspace>> {
        self.keyspaces.lock().expect("no thread panics while it holds the list")
    }

    /// Filters serve look-ups of whole keys, and only rows are looked up so.
    fn options(&self, tree: usize) -> KeyspaceCreateOptions {
        let mut options = KeyspaceCreateOptions::default().max_memtable_size(self.memtable_bytes);
        options = match self.compression {
            None => options,
            Some("none") => options.data_block_compression_policy(CompressionPolicy::all(CompressionType::None)),
            Some(_) => options.data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4)),
        };
        if tree == ROWS { options } else { options.filter_policy(FilterPolicy::disabled()) }
    }

    fn at_rest(&self) -> bool {
        self.database.outstanding_flushes() == 0
            && self.database.active_compactions() == 0
            && self.keyspaces().iter().all(|keyspace| keyspace.sealed_memtable_count() == 0)
    }
}

impl Store for Fjall {
    type Trees = [Keyspace; TREES];

    const PARALLEL_WRITES: bool = true;

    fn create(&self, table: u32) -> Result<[Keyspace; TREES]> {
        let names = tree_names(table);
        let open = |tree: usize| self.database.keyspace(&names[tree], || self.options(tree)).map_err(wrong);
        let trees = [open(0)?, open(1)?, open(2)?, open(3)?];
        self.keyspaces().extend(trees.iter().cloned());
        Ok(trees)
    }

    fn read<R>(&self, trees: &[Keyspace; TREES], run: impl FnOnce(&dyn Reader) -> Result<R>) -> Result<R> {
        run(&Reading { snapshot: self.database.snapshot(), trees })
    }

    /// A keyspace answers with its newest value, without a snapshot of them all.
    fn get(&self, trees: &[Keyspace; TREES], key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = trees[ROWS].get(key).map_err(wrong)?;
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn write<R>(&self, trees: &[Keyspace; TREES], run: impl FnOnce(&mut dyn Writer) -> Result<R>) -> Result<R> {
        let batch = self.database.batch().durability(Some(self.persist));
        let mut writing = Writing { reading: Reading { snapshot: self.database.snapshot(), trees }, batch };
        let result = run(&mut writing)?;
        writing.batch.commit().map_err(wrong)?;
        Ok(result)
    }

    fn describe(&self) -> Description {
        let compression = self.compression.unwrap_or("levels 0-1 none, below lz4");
        Description {
            engine: "fjall".into(),
            version: env!("LAB_FJALL_VERSION").into(),
            config: "fjall".into(),
            settings: settings([
                ("cache_size", self.database.cache_capacity().to_string()),
                ("max_memtable_size", self.memtable_bytes.to_string()),
                ("durability", format!("{:?}", self.durability).to_lowercase()),
                ("persist_mode", format!("{:?}", self.persist)),
                ("compression", compression.into()),
                ("filters", "rows: default, indexes: none".into()),
                ("io", "buffered".into()),
            ]),
            notes: self.notes.clone(),
        }
    }

    /// Flushes every memtable and waits for flushes and compactions.
    fn settle(&self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        for keyspace in self.keyspaces().iter() {
            keyspace.rotate_memtable().map_err(wrong)?;
        }
        // A flush that ends asks for a compaction a moment later: at rest is at rest twice in a row.
        let mut quiet = 0;
        while quiet < 5 && start.elapsed() < limit {
            quiet = if self.at_rest() { quiet + 1 } else { 0 };
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn sizes(&self) -> Result<Sizes> {
        let journal = self.database.journal_disk_space().map_err(wrong)?;
        let data = self.keyspaces().iter().map(Keyspace::disk_space).sum();
        Ok(Sizes { data_bytes: Some(data), classes: [("journal".into(), journal)].into(), ..Sizes::default() })
    }

    fn counters(&self) -> Result<Counters> {
        let keyspaces = self.keyspaces();
        let sum = |count: fn(&Keyspace) -> usize| keyspaces.iter().map(count).sum::<usize>() as u64;
        Ok([
            ("compactions", self.database.compactions_completed() as u64),
            ("compaction_us", self.database.time_compacting().as_micros() as u64),
            ("journals", self.database.journal_count() as u64),
            ("tables", sum(Keyspace::table_count)),
            ("tables.l0", sum(Keyspace::l0_table_count)),
            ("cache.used_bytes", self.database.cache_size()),
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
    snapshot: Snapshot,
    trees: &'s [Keyspace; TREES],
}

struct Writing<'s> {
    reading: Reading<'s>,
    batch: OwnedWriteBatch,
}

impl Reader for Reading<'_> {
    fn get(&self, tree: usize, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.snapshot.get(&self.trees[tree], key).map_err(wrong)?;
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, tree: usize, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let keyspace = &self.trees[tree];
        let found =
            if to.is_empty() { self.snapshot.range(keyspace, from..) } else { self.snapshot.range(keyspace, from..to) };
        for pair in found {
            let (key, value) = pair.into_inner().map_err(wrong)?;
            if !each(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn last(&self, tree: usize, found: &mut dyn FnMut(&[u8])) -> Result<()> {
        if let Some(key) = self.snapshot.last_key_value(&self.trees[tree]).map(Guard::key) {
            found(&key.map_err(wrong)?);
        }
        Ok(())
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
        let exists = self.reading.snapshot.contains_key(&self.reading.trees[tree], key).map_err(wrong)?;
        if !exists {
            self.batch.insert(&self.reading.trees[tree], key, value);
        }
        Ok(!exists)
    }

    fn put(&mut self, tree: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.insert(&self.reading.trees[tree], key, value);
        Ok(())
    }

    fn delete(&mut self, tree: usize, key: &[u8]) -> Result<()> {
        self.batch.remove(&self.reading.trees[tree], key);
        Ok(())
    }
}
