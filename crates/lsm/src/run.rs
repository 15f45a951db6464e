//! Sorted runs in the data file: immutable, of data blocks behind an index of two levels.
//!
//! The manifest names a run's top blocks; these name its partitions ([`Partition`]), each with the index block that names its data
//! blocks, with the first version, the counts and the filter of each. The top is read when the run is first needed, and stays in memory:
//! about a ten-thousandth of the run. Index blocks and data blocks come and go as pages of the cache. Until the top is read nobody owns
//! the run's blocks, and they stay what the manifest counts.

use std::sync::{Arc, OnceLock};

use base::bytes::{Reader, printable, put_bytes, put_varint};
use base::limits::KEY_BYTES_MAX;
use base::{CommitTs, Corruption, Fault, Result};
use store::epoch::Guard;
use store::{BlockKind, BlockRef, KeyHash};
use vfs::sync::Mutex;

use crate::block::Version;
use crate::choose::BOTTOM;
use crate::lsm::Env;
use crate::partition::{NamedPartition, Partition};
use crate::slot::Slot;
use crate::top::{Top, decode_top, is_ascending};

/// What is known of a run without its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunInfo {
    /// 0: from a memtable or an attached run; up to [`BOTTOM`].
    pub level: u8,
    pub entries: u64,
    /// Keys whose newest version in the run is a value, and keys of which it is a delete.
    pub live: u64,
    pub deleted: u64,
    /// Data blocks.
    pub slots: u64,
    /// Bytes of all its blocks on disk.
    pub stored_bytes: u64,
    /// Timestamps of its versions.
    pub oldest: CommitTs,
    pub newest: CommitTs,
    /// Highest timestamp that was in it, or justified leaving something out [A6].
    pub log_need: CommitTs,
    /// Its first key.
    pub min_key: Vec<u8>,
    /// No key is above.
    pub max_key: Vec<u8>,
}

/// Something of what a look-up takes is not in memory.
#[derive(Debug)]
pub(crate) struct OnDisk;

/// A run.
#[derive(Debug)]
pub(crate) struct Run {
    pub info: RunInfo,
    /// Addresses of the top blocks.
    top_at: Vec<BlockRef>,
    top: OnceLock<Top>,
    /// One reader loads it.
    loading: Mutex<()>,
}

impl Run {
    /// A run that was just written.
    pub fn written(info: RunInfo, top: Top) -> Arc<Self> {
        let top_at = top.blocks.iter().map(|block| block.at()).collect();
        Arc::new(Self { info, top_at, top: OnceLock::from(top), loading: Mutex::default() })
    }

    /// A run that the manifest names.
    pub fn named(info: RunInfo, top_at: Vec<BlockRef>) -> Arc<Self> {
        Arc::new(Self { info, top_at, top: OnceLock::new(), loading: Mutex::default() })
    }

    /// The same on another level: its blocks stay where they are.
    pub fn moved(&self, env: &Env, level: u8) -> Result<Arc<Self>> {
        let top = self.top(env)?.clone();
        Ok(Self::written(RunInfo { level, ..self.info.clone() }, top))
    }

    pub fn top_at(&self) -> &[BlockRef] {
        &self.top_at
    }

    /// The top, if it was read.
    pub fn loaded(&self) -> Option<&Top> {
        self.top.get()
    }

    /// The top; read if it was not.
    pub fn top(&self, env: &Env) -> Result<&Top> {
        if let Some(top) = self.top.get() {
            return Ok(top);
        }
        let _one = self.loading.lock();
        if let Some(top) = self.top.get() {
            return Ok(top);
        }
        let named = self.read_top(env)?;
        // Only now, with all of it sound: a block is adopted once.
        let blocks = self.top_at.iter().map(|at| env.space.adopt(*at)).collect();
        let partitions = named.into_iter().map(|named| Partition::adopt(&env.space, named)).collect();
        Ok(self.top.get_or_init(|| Top { partitions, blocks }))
    }

    /// Reads the top blocks and holds them against what is known of the run.
    pub fn read_top(&self, env: &Env) -> Result<Vec<NamedPartition>> {
        let mut all: Vec<NamedPartition> = Vec::new();
        let mut bytes = Vec::new();
        for at in &self.top_at {
            let read = env.space.read(*at, BlockKind::Run, env.id, &mut bytes);
            read.map_err(|fault| fault.in_index(env.id, || self.keys()))?;
            let named = decode_top(&bytes).map_err(|what| self.damage(env, *at, "a sound block", what))?;
            if !named.iter().all(|named| named.bytes.is_within(&env.space)) {
                return Err(self.damage(env, *at, "blocks within extents", "others".to_owned()));
            }
            all.extend(named);
        }
        let first = self.top_at.first().copied().unwrap_or(BlockRef { offset: 0, stored_bytes: 0, crc: 0 });
        let slots = all.iter().map(|named| u64::from(named.info.slots)).sum::<u64>();
        let begins = all.first().is_some_and(|named| *named.info.key == *self.info.min_key);
        if slots != self.info.slots || !begins || !is_ascending(&all) {
            let expected = format!("{} blocks of {}", self.info.slots, self.keys());
            return Err(self.damage(env, first, &expected, format!("{slots} blocks, or others")));
        }
        Ok(all)
    }

    fn damage(&self, env: &Env, at: BlockRef, expected: &str, found: String) -> Fault {
        let problem = Corruption::of_index(env.id, self.keys(), "top of a run", expected.to_owned(), found);
        Fault::Corrupt(Box::new(problem.at(env.space.file_name(), at.offset)))
    }

    /// Its keys, printable.
    pub fn keys(&self) -> String {
        format!("[{}, {}]", printable(&self.info.min_key), printable(&self.info.max_key))
    }

    /// True if it may have a version of `key` that a reader at `at` sees.
    pub fn concerns(&self, key: &[u8], at: CommitTs) -> bool {
        self.info.oldest <= at && *self.info.min_key <= *key && *key <= *self.info.max_key
    }

    /// Calls `found` with the newest version of `key` at or below `at`, if there is one, from memory.
    pub fn get(
        &self,
        (key, hash): (&[u8], KeyHash),
        at: CommitTs,
        guard: &Guard,
        mut found: impl FnMut(Version<'_>),
    ) -> Result<(), OnDisk> {
        let top = self.loaded().ok_or(OnDisk)?;
        let partition = top.partition_of(key, at);
        if let Some(partition) = partition.map(|at| &top.partitions[at]) {
            let index = partition.seen(guard).ok_or(OnDisk)?;
            let open = |at| Slot { index, at }.seen(guard).ok_or(OnDisk);
            if index.spot(key, hash, at).find(index, key, at, open, &mut found)? {
                return Ok(());
            }
        }
        let next = partition.map_or(0, |at| at + 1);
        let Some(partition) = top.partitions.get(next).filter(|next| *next.info.key == *key) else { return Ok(()) };
        let index = partition.seen(guard).ok_or(OnDisk)?;
        let block = Slot { index, at: 0 }.seen(guard).ok_or(OnDisk)?;
        found(block.version(0).1);
        Ok(())
    }

    /// Appends what the manifest says of it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let info = &self.info;
        out.push(info.level);
        for n in [info.entries, info.live, info.deleted, info.slots, info.stored_bytes] {
            put_varint(out, n);
        }
        for ts in [info.oldest, info.newest, info.log_need] {
            put_varint(out, ts.0);
        }
        put_bytes(out, &info.min_key);
        put_bytes(out, &info.max_key);
        put_varint(out, self.top_at.len() as u64);
        self.top_at.iter().for_each(|at| at.encode(out));
    }

    pub fn decode(r: &mut Reader<'_>) -> Option<Arc<Self>> {
        let level = r.u8().filter(|level| *level <= BOTTOM)?;
        let mut next = || r.varint();
        let (entries, live, deleted, slots, stored_bytes) = (next()?, next()?, next()?, next()?, next()?);
        let (oldest, newest, log_need) = (CommitTs(next()?), CommitTs(next()?), CommitTs(next()?));
        let mut key = || r.bytes().filter(|key| key.len() <= KEY_BYTES_MAX).map(<[u8]>::to_vec);
        let (min_key, max_key) = (key()?, key()?);
        let count = r.length()?;
        let is_counted = live.checked_add(deleted).is_some_and(|keys| keys <= entries);
        let is_ordered = min_key <= max_key && oldest <= newest;
        if r.rest().len() / BlockRef::BYTES < count || count == 0 || !is_ordered || !is_counted {
            return None;
        }
        let top_at = (0..count).map(|_| BlockRef::decode(r)).collect::<Option<_>>()?;
        let info =
            RunInfo { level, entries, live, deleted, slots, stored_bytes, oldest, newest, log_need, min_key, max_key };
        Some(Self::named(info, top_at))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run of which nothing but this is looked at.
    pub(crate) fn bare(level: u8, keys: (&[u8], &[u8]), ts: (CommitTs, CommitTs)) -> Arc<Run> {
        let info = RunInfo {
            level,
            entries: 1,
            live: 1,
            deleted: 0,
            slots: 1,
            stored_bytes: 1,
            oldest: ts.0,
            newest: ts.1,
            log_need: ts.1,
            min_key: keys.0.to_vec(),
            max_key: keys.1.to_vec(),
        };
        Run::named(info, Vec::new())
    }
}
