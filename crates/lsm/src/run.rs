//! Sorted runs in the data file: immutable, of data blocks behind an index of them.
//!
//! The manifest names a run's index blocks; an index block names data blocks, with the first version, the counts and the filter of
//! each. The index is read when the run is first needed, and stays in memory: about a hundredth of what the run takes on disk.
//! Until then nobody owns its blocks, and they stay what the manifest counts.

use std::sync::{Arc, OnceLock};

use base::bytes::{Reader, printable, put_bytes, put_varint};
use base::limits::KEY_BYTES_MAX;
use base::{CommitTs, Corruption, Fault, Result};
use store::{Block, BlockKind, BlockRef, KeyHash};
use vfs::sync::Mutex;

use crate::lsm::Env;
use crate::slot::{Named, Slot};

const INDEX_FORMAT: u8 = 1;

/// What is known of a run without its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunInfo {
    /// 0: from a memtable or an attached run; one more for each merge of a whole level.
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

/// A run.
#[derive(Debug)]
pub(crate) struct Run {
    pub info: RunInfo,
    /// Addresses of the index blocks.
    index_at: Vec<BlockRef>,
    index: OnceLock<RunIndex>,
    /// One reader loads it.
    loading: Mutex<()>,
}

/// The index in memory.
#[derive(Debug)]
pub(crate) struct RunIndex {
    pub slots: Vec<Arc<Slot>>,
    /// The index blocks.
    pub blocks: Vec<Arc<Block>>,
}

impl RunIndex {
    /// The last slot that begins at or before (`key`, `ts`); none if the run begins behind it.
    pub fn slot_of(&self, key: &[u8], ts: CommitTs) -> Option<usize> {
        self.first_behind(key, ts).checked_sub(1)
    }

    /// The first slot that begins behind (`key`, `ts`).
    fn first_behind(&self, key: &[u8], ts: CommitTs) -> usize {
        self.slots.partition_point(|slot| *slot.key < *key || (*slot.key == *key && slot.ts >= ts))
    }

    /// All blocks.
    pub fn all_blocks(&self) -> impl Iterator<Item = &Arc<Block>> {
        self.blocks.iter().chain(self.slots.iter().flat_map(|slot| slot.blocks()))
    }
}

/// What an index block holds.
pub(crate) fn encode_index(slots: &[Arc<Slot>]) -> Vec<u8> {
    let mut out = vec![INDEX_FORMAT];
    put_varint(&mut out, slots.len() as u64);
    slots.iter().for_each(|slot| slot.encode(&mut out));
    out
}

/// What an index block names.
///
/// # Errors
/// A sentence that says what is wrong with the bytes.
pub(crate) fn decode_index(bytes: &[u8]) -> Result<Vec<Named>, String> {
    let mut r = Reader::new(bytes);
    let mut decode = || {
        if r.u8()? != INDEX_FORMAT {
            return None;
        }
        let count = r.length()?;
        let mut named: Vec<Named> = Vec::new();
        for _ in 0..count {
            let next = Named::decode(&mut r)?;
            named.push(next);
        }
        r.is_empty().then_some(named)
    };
    let named = decode().ok_or("run: an index block does not hold")?;
    let ascends = named
        .windows(2)
        .all(|pair| pair[0].key < pair[1].key || (pair[0].key == pair[1].key && pair[0].ts > pair[1].ts));
    if ascends { Ok(named) } else { Err("run: an index block does not ascend".to_owned()) }
}

impl Run {
    /// A run that was just written.
    pub fn written(info: RunInfo, index: RunIndex) -> Arc<Self> {
        let index_at = index.blocks.iter().map(|block| block.at()).collect();
        Arc::new(Self { info, index_at, index: OnceLock::from(index), loading: Mutex::default() })
    }

    /// A run that the manifest names.
    pub fn named(info: RunInfo, index_at: Vec<BlockRef>) -> Arc<Self> {
        Arc::new(Self { info, index_at, index: OnceLock::new(), loading: Mutex::default() })
    }

    pub fn index_at(&self) -> &[BlockRef] {
        &self.index_at
    }

    /// The index, if it was read.
    pub fn loaded(&self) -> Option<&RunIndex> {
        self.index.get()
    }

    /// The index; read if it was not.
    pub fn index(&self, env: &Env) -> Result<&RunIndex> {
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        let _one = self.loading.lock();
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        let named = self.read_index(env)?;
        // Only now, with all of it sound: a block is adopted once.
        let blocks = self.index_at.iter().map(|at| env.space.adopt(*at)).collect();
        let slots = named.into_iter().map(|named| named.adopt(&env.space)).collect();
        Ok(self.index.get_or_init(|| RunIndex { slots, blocks }))
    }

    /// Reads the index blocks and holds them against what is known of the run.
    pub fn read_index(&self, env: &Env) -> Result<Vec<Named>> {
        let mut all: Vec<Named> = Vec::new();
        let mut bytes = Vec::new();
        for at in &self.index_at {
            env.space
                .read(*at, BlockKind::Run, env.id, &mut bytes)
                .map_err(|fault| fault.in_index(env.id, || self.keys()))?;
            let named = decode_index(&bytes).map_err(|what| self.damage(env, *at, "a sound block", what))?;
            all.extend(named);
        }
        let first = self.index_at.first().copied().unwrap_or(BlockRef { offset: 0, stored_bytes: 0, crc: 0 });
        if all.len() as u64 != self.info.slots || all.first().is_some_and(|named| named.key != self.info.min_key) {
            let (expected, found) =
                (format!("{} blocks of {}", self.info.slots, self.keys()), format!("{} blocks, or others", all.len()));
            return Err(self.damage(env, first, &expected, found));
        }
        Ok(all)
    }

    fn damage(&self, env: &Env, at: BlockRef, expected: &str, found: String) -> Fault {
        let problem = Corruption::of_index(env.id, self.keys(), "index of a run", expected.to_owned(), found);
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

    /// Calls `found` with the newest version of `key` at or below `at`, if there is one.
    pub fn get<T>(
        &self,
        env: &Env,
        (key, hash): (&[u8], KeyHash),
        at: CommitTs,
        note_read: &mut dyn FnMut(),
        found: impl FnOnce(crate::block::Version<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let index = self.index(env)?;
        let slot = index.slot_of(key, at);
        if let Some(slot) = slot.map(|slot| &index.slots[slot])
            && slot.may_have(hash)
        {
            let block = slot.load(env, &mut *note_read)?;
            let i = block.seek(key, at);
            if i < block.len() {
                return if block.is_of(i, key) { found(block.version(i).1).map(Some) } else { Ok(None) };
            }
        }
        // Versions of one key may lie in several blocks: the one looked for begins the next.
        let next = slot.map_or(0, |slot| slot + 1);
        match index.slots.get(next) {
            Some(slot) if *slot.key == *key => {
                let block = slot.load(env, note_read)?;
                found(block.version(0).1).map(Some)
            }
            _ => Ok(None),
        }
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
        put_varint(out, self.index_at.len() as u64);
        self.index_at.iter().for_each(|at| at.encode(out));
    }

    pub fn decode(r: &mut Reader<'_>) -> Option<Arc<Self>> {
        let level = r.u8()?;
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
        let index_at = (0..count).map(|_| BlockRef::decode(r)).collect::<Option<_>>()?;
        let info =
            RunInfo { level, entries, live, deleted, slots, stored_bytes, oldest, newest, log_need, min_key, max_key };
        Some(Self::named(info, index_at))
    }
}
