//! One data block of a run, as the run's index knows it: where it is, what it begins with, its filter, and its bytes while they are
//! in memory.
//!
//! A slot is shared by the runs that name its block: a merge takes a block over as it is where nothing else has keys there.
//! The bytes are a page of the cache, always clean.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::bytes::{Reader, printable, put_bytes, put_varint};
use base::limits::KEY_BYTES_MAX;
use base::{CommitTs, Corruption, Fault, IndexId, Result};
use store::{
    Block, BlockKind, BlockRef, Charge, Class, Evict, Filter, KeyHash, Page, PageWrite, Space, WriteEnv, allocated,
};
use vfs::sync::RwLock;

use crate::block::DataBlock;
use crate::lsm::Env;

/// What a run's index says of a data block.
#[derive(Debug)]
pub(crate) struct Slot {
    pub block: Arc<Block>,
    /// Blocks of the large values in it.
    pub beside: Box<[Arc<Block>]>,
    /// Its first version.
    pub key: Box<[u8]>,
    pub ts: CommitTs,
    /// Versions in it.
    pub entries: u32,
    /// Of the keys whose newest version in the run is in it: those that have a value, and those that are deleted.
    pub live: u32,
    pub deleted: u32,
    pub filter: Filter,
    page: RwLock<Option<Resident>>,
    referenced: AtomicBool,
}

#[derive(Debug)]
struct Resident {
    block: Arc<DataBlock>,
    _charge: Charge,
}

/// A slot that is not shared yet.
pub(crate) struct SlotParts {
    pub block: Arc<Block>,
    pub beside: Vec<Arc<Block>>,
    pub key: Vec<u8>,
    pub ts: CommitTs,
    pub entries: u32,
    pub live: u32,
    pub deleted: u32,
    pub filter: Filter,
}

impl Slot {
    /// Shares it, and charges for it.
    pub fn share(from: SlotParts) -> Arc<Self> {
        let SlotParts { block, beside, key, ts, entries, live, deleted, filter } = from;
        let slot = Self {
            block,
            beside: beside.into(),
            key: key.into(),
            ts,
            entries,
            live,
            deleted,
            filter,
            page: RwLock::new(None),
            referenced: AtomicBool::new(false),
        };
        slot.block.space().hold(Class::Inner, slot.memory_bytes());
        Arc::new(slot)
    }

    fn memory_bytes(&self) -> u64 {
        allocated(2 * size_of::<usize>() + size_of::<Self>())
            + allocated(self.key.len())
            + allocated(size_of_val(&*self.beside))
            + self.filter.memory_bytes()
    }

    /// True if every version is the only one of its key, and a value: nothing could be collected.
    pub fn is_plain(&self) -> bool {
        self.live == self.entries
    }

    /// Its block and those beside it.
    pub fn blocks(&self) -> impl Iterator<Item = &Arc<Block>> {
        std::iter::once(&self.block).chain(&self.beside)
    }

    /// Bytes of them on disk.
    pub fn stored_bytes(&self) -> u64 {
        self.blocks().map(|block| block.stored_bytes()).sum()
    }

    /// False if the key is not in it.
    pub fn may_have(&self, key: KeyHash) -> bool {
        self.filter.may_have(key)
    }

    /// The block, from memory or from disk; there it stays in memory if that has room. `note_read` is called if it was on disk.
    pub fn load(self: &Arc<Self>, env: &Env, note_read: impl FnOnce()) -> Result<Arc<DataBlock>> {
        if let Some(resident) = &*self.page.read() {
            // Relaxed: a hint for the cache. Read first, so that hits write nothing.
            if !self.referenced.load(Ordering::Relaxed) {
                self.referenced.store(true, Ordering::Relaxed);
            }
            return Ok(resident.block.clone());
        }
        note_read();
        let block = Arc::new(self.read(env)?);
        self.keep(env, &block);
        Ok(block)
    }

    /// Keeps what was read in memory, if that has room.
    pub fn keep(self: &Arc<Self>, env: &Env, block: &Arc<DataBlock>) {
        let bytes = page_bytes(block);
        if let Some(grant) = env.cache.try_grant(bytes) {
            let mut page = self.page.write();
            if page.is_none() {
                *page = Some(Resident { block: block.clone(), _charge: grant.into_charge() });
                drop(page);
                let this: Arc<dyn Page> = self.clone();
                env.cache.insert(Arc::downgrade(&this), bytes);
            }
        }
    }

    /// The block, if it is in memory.
    pub fn resident(&self) -> Option<Arc<DataBlock>> {
        self.page.read().as_ref().map(|resident| resident.block.clone())
    }

    /// Reads and checks the block.
    pub fn read(&self, env: &Env) -> Result<DataBlock> {
        let mut bytes = Vec::new();
        env.space.read(self.block.at(), BlockKind::Run, env.id, &mut bytes)?;
        self.parse(env, bytes)
    }

    fn parse(&self, env: &Env, bytes: Vec<u8>) -> Result<DataBlock> {
        let block = DataBlock::parse(bytes).map_err(|what| self.damage(env, "a sound block", &what))?;
        let agrees =
            block.len() == self.entries as usize && block.is_of(0, &self.key) && block.version(0).1.ts == self.ts;
        if !agrees {
            let expected = format!("{} versions from {} at {}", self.entries, printable(&self.key), self.ts);
            return Err(self.damage(env, &expected, &format!("{} versions, or others", block.len())));
        }
        Ok(block)
    }

    fn damage(&self, env: &Env, expected: &str, found: &str) -> Fault {
        let from = format!("from {}", printable(&self.key));
        let problem = Corruption::of_index(env.id, from, "block of a run", expected.to_owned(), found.to_owned());
        Fault::Corrupt(Box::new(problem.at(env.space.file_name(), self.block.at().offset)))
    }

    /// Appends what an index block says of it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.block.at().encode(out);
        put_bytes(out, &self.key);
        put_varint(out, self.ts.0);
        for n in [self.entries, self.live, self.deleted] {
            put_varint(out, u64::from(n));
        }
        put_varint(out, self.beside.len() as u64);
        self.beside.iter().for_each(|block| block.at().encode(out));
        self.filter.encode(out);
    }

    /// Bytes of [`Slot::encode`], about.
    pub fn encoded_bytes(&self) -> usize {
        48 + self.key.len() + self.beside.len() * BlockRef::BYTES + self.filter.memory_bytes() as usize
    }
}

/// Bytes of the file between two blocks that are read together, at most: the rest of a sector.
const GAP_BYTES: u64 = 4096;

/// Reads the block of the first slot, with those behind it that lie next to it in the file, within about `span` bytes of it, as one read.
/// One that is damaged ends the list, unless it is the first.
pub(crate) fn read_ahead(env: &Env, slots: &[Arc<Slot>], span: u64) -> Result<Vec<Arc<DataBlock>>> {
    let first = slots[0].block.at();
    let mut near = vec![first];
    for slot in &slots[1..] {
        let (at, end) = (slot.block.at(), near[near.len() - 1].end());
        let is_next = at.offset >= end && at.offset - end < GAP_BYTES && at.end() - first.offset <= span;
        if !is_next || env.space.extent_of(at) != env.space.extent_of(first) || slot.resident().is_some() {
            break;
        }
        near.push(at);
    }
    let mut blocks = Vec::with_capacity(near.len());
    let read = env.space.read_neighbours(&near, BlockKind::Run, env.id, |i, open| {
        let mut bytes = Vec::new();
        open.read_whole(&mut bytes)?;
        blocks.push(Arc::new(slots[i].parse(env, bytes)?));
        Ok(())
    });
    match read {
        // Whatever lies behind it may be what cannot be read.
        Err(_) if blocks.is_empty() && slots.len() > 1 => read_ahead(env, &slots[..1], span),
        Err(fault) if blocks.is_empty() => Err(fault),
        _ => Ok(blocks),
    }
}

/// How far a source of this index reads ahead, in bytes of the file.
pub(crate) fn ahead_bytes(env: &Env) -> u64 {
    (env.cache.budget().limit() / AHEAD_SHARE).min(AHEAD_BYTES_MAX)
}

/// One in so many bytes of the budget, for each source of a merge.
const AHEAD_SHARE: u64 = 1024;
const AHEAD_BYTES_MAX: u64 = 256 << 10;

/// What a block takes in memory, as charged.
fn page_bytes(block: &DataBlock) -> u64 {
    allocated(block.memory_bytes()) + 96
}

/// What an index block says of a data block.
pub(crate) struct Named {
    pub block: BlockRef,
    pub beside: Vec<BlockRef>,
    pub key: Vec<u8>,
    pub ts: CommitTs,
    entries: u32,
    live: u32,
    deleted: u32,
    filter: Filter,
}

impl Named {
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let block = BlockRef::decode(r)?;
        let key = r.bytes().filter(|key| key.len() <= KEY_BYTES_MAX)?.to_vec();
        let ts = CommitTs(r.varint()?);
        let mut next = || u32::try_from(r.varint()?).ok();
        let (entries, live, deleted) = (next()?, next()?, next()?);
        if entries == 0 || u64::from(live) + u64::from(deleted) > u64::from(entries) {
            return None;
        }
        let count = r.length()?;
        // So many bytes must follow: a wrong count asks for no memory.
        if r.rest().len() / BlockRef::BYTES < count {
            return None;
        }
        let beside = (0..count).map(|_| BlockRef::decode(r)).collect::<Option<_>>()?;
        Some(Self { block, beside, key, ts, entries, live, deleted, filter: Filter::decode(r)? })
    }

    /// Makes its blocks this slot's: once for each.
    pub fn adopt(self, space: &Space) -> Arc<Slot> {
        let Self { block, beside, key, ts, entries, live, deleted, filter } = self;
        Slot::share(SlotParts {
            block: space.adopt(block),
            beside: beside.into_iter().map(|at| space.adopt(at)).collect(),
            key,
            ts,
            entries,
            live,
            deleted,
            filter,
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.block.space().release(Class::Inner, self.memory_bytes());
    }
}

impl Page for Slot {
    fn take_referenced(&self) -> bool {
        // Relaxed: a hint.
        self.referenced.swap(false, Ordering::Relaxed)
    }

    fn try_evict(&self) -> Evict {
        let Some(mut page) = self.page.try_write() else { return Evict::Busy };
        match page.take() {
            Some(_) => Evict::Evicted,
            None => Evict::Gone,
        }
    }

    fn begin_write(self: Arc<Self>, _env: &WriteEnv) -> Result<Option<PageWrite>> {
        Ok(None)
    }

    fn is_dirty_hint(&self) -> bool {
        false
    }
}

/// Reads a large value.
pub(crate) fn read_large(env: &Env, pieces: crate::block::Pieces<'_>, id: IndexId) -> Result<Vec<u8>> {
    let mut value = Vec::new();
    let mut piece = Vec::new();
    for at in pieces.iter() {
        env.space.read(at, BlockKind::Overflow, id, &mut piece)?;
        value.extend_from_slice(&piece);
    }
    if value.len() as u64 != pieces.value_bytes {
        let (expected, found) = (format!("{} bytes", pieces.value_bytes), format!("{} bytes", value.len()));
        let fault = Fault::corrupt(env.space.file_name(), 0, "length of a large value", expected, found);
        return Err(fault.of_index(id));
    }
    Ok(value)
}
