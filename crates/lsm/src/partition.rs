//! A part of a run: some hundred data blocks in a row, those of their large values, and the index block that names them all.
//!
//! Of a partition memory holds what is here: where it begins, counts, where its index block is, and a [`Lot`] that owns its blocks. The
//! index block with its filters is a page of the cache. So what a run takes in memory whatever the budget is a few hundred bytes for
//! a partition: about a ten-thousandth of it.
//!
//! Runs may share a partition: a merge takes one over as it is where nothing else has keys there. It may also take over stretches of blocks, or
//! keep large values: these are cut out of the lot, and then both have them, until the one that had them first is gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::bytes::{Reader, printable, put_bytes, put_varint};
use base::limits::KEY_BYTES_MAX;
use base::{CommitTs, Corruption, Fault, Result};
use store::epoch::Guard;
use store::{Block, BlockKind, BlockRef, Cell, Class, Lot, LotBytes, Space, allocated};
use vfs::sync::Mutex;

use crate::index_block::IndexBlock;
use crate::lsm::Env;

/// What is known of a partition without its index block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionInfo {
    /// Its first version.
    pub key: Box<[u8]>,
    pub ts: CommitTs,
    /// That version is of the key that the partition before ends with.
    pub continues: bool,
    /// The index block.
    pub index: BlockRef,
    /// Data blocks.
    pub slots: u32,
    pub entries: u64,
    /// Keys whose newest version in the run is here and a value, and keys of which it is a delete.
    pub live: u64,
    pub deleted: u64,
}

/// A partition of one run or more.
#[derive(Debug)]
pub(crate) struct Partition {
    pub info: PartitionInfo,
    space: Space,
    owned: Mutex<Owned>,
    page: Arc<Cell<IndexBlock>>,
    /// Bytes of memory. What is apart has its own, and the lot stays about as it was.
    memory_bytes: u64,
}

/// The blocks of a partition.
#[derive(Debug)]
struct Owned {
    lot: Lot,
    /// Those that another partition has, or had, too; by offset.
    apart: BTreeMap<u64, Arc<Block>>,
}

impl Partition {
    /// One that was written: `lot` has its blocks but for those `apart`.
    pub fn new(space: &Space, info: PartitionInfo, lot: Lot, apart: Vec<Arc<Block>>) -> Arc<Self> {
        const CELL: usize = size_of::<Cell<IndexBlock>>() + 64;
        let of_this = [2 * size_of::<usize>() + size_of::<Self>(), CELL, info.key.len(), lot.memory_bytes()];
        let memory_bytes = of_this.into_iter().map(allocated).sum();
        space.hold(Class::Inner, memory_bytes);
        let apart = apart.into_iter().map(|block| (block.at().offset, block)).collect();
        let owned = Mutex::new(Owned { lot, apart });
        Arc::new(Self { info, space: space.clone(), owned, page: Cell::new(), memory_bytes })
    }

    /// Of the manifest that the database was opened from: once for each such partition.
    pub fn adopt(space: &Space, named: NamedPartition) -> Arc<Self> {
        Self::new(space, named.info, Lot::adopt(space, named.bytes), Vec::new())
    }

    /// The index block, if it is in memory, as long as the guard.
    pub fn seen<'g>(&self, guard: &'g Guard) -> Option<&'g IndexBlock> {
        self.page.get(guard).map(|index| &**index)
    }

    /// The same for who reads from disk and keeps it.
    pub fn share(&self, env: &Env) -> Result<Arc<IndexBlock>> {
        if let Some(index) = self.page.share() {
            return Ok(index);
        }
        let index = Arc::new(self.read(env)?);
        self.keep(env, &index);
        Ok(self.page.share().unwrap_or(index))
    }

    /// Keeps the index block in memory, if there is room.
    pub fn keep(&self, env: &Env, index: &Arc<IndexBlock>) {
        self.page.keep(&env.cache, index, index.memory_bytes());
    }

    /// Reads and checks the index block.
    pub fn read(&self, env: &Env) -> Result<IndexBlock> {
        self.info.read(env)
    }

    /// A block that its index block names, for another one to have too; none if it is not here.
    pub fn part(&self, at: BlockRef) -> Option<Arc<Block>> {
        let Owned { lot, apart } = &mut *self.owned.lock();
        if let Some(block) = apart.get(&at.offset) {
            return (block.at() == at).then(|| block.clone());
        }
        let block = lot.cut(at)?;
        apart.insert(at.offset, block.clone());
        Some(block)
    }

    /// An image of the next manifest names it.
    pub fn publish(&self) {
        let Owned { lot, apart } = &mut *self.owned.lock();
        lot.publish();
        for block in apart.values() {
            block.publish();
        }
    }

    /// One that named it is gone.
    pub fn unpublish(&self) {
        let Owned { lot, apart } = &mut *self.owned.lock();
        lot.unpublish();
        for block in apart.values() {
            block.unpublish();
        }
    }

    /// What nobody else has any more goes back into the lot.
    pub fn fold(&self) {
        let Owned { lot, apart } = &mut *self.owned.lock();
        let blocks = std::mem::take(apart).into_values();
        *apart = blocks.filter_map(|block| lot.fold(block)).map(|block| (block.at().offset, block)).collect();
    }

    /// What its blocks take, in each extent.
    pub fn bytes(&self) -> LotBytes {
        let owned = self.owned.lock();
        let mut bytes = owned.lot.bytes();
        owned.apart.values().for_each(|block| bytes.add(&self.space, block.at()));
        bytes
    }

    /// Bytes of its blocks that no other partition has.
    pub fn bytes_alone(&self) -> u64 {
        let owned = self.owned.lock();
        let apart = owned.apart.values().filter(|block| Arc::strong_count(block) == 1);
        owned.lot.bytes().sum() + apart.map(|block| block.stored_bytes()).sum::<u64>()
    }

    /// Appends what a top block says of it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let PartitionInfo { key, ts, continues, index, slots, entries, live, deleted } = &self.info;
        put_bytes(out, key);
        put_varint(out, ts.0);
        out.push(u8::from(*continues));
        index.encode(out);
        for n in [u64::from(*slots), *entries, *live, *deleted] {
            put_varint(out, n);
        }
        self.bytes().encode(out);
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.space.release(Class::Inner, self.memory_bytes);
    }
}

impl PartitionInfo {
    /// Reads the index block and holds it against what is known of the partition.
    pub fn read(&self, env: &Env) -> Result<IndexBlock> {
        let mut bytes = Vec::new();
        let place = || format!("from {}", printable(&self.key));
        let read = env.space.read(self.index, BlockKind::Run, env.id, &mut bytes);
        read.map_err(|fault| fault.in_index(env.id, place))?;
        let damage = |expected: &str, found: String| {
            let problem = Corruption::of_index(env.id, place(), "index block of a run", expected.to_owned(), found);
            Fault::Corrupt(Box::new(problem.at(env.space.file_name(), self.index.offset)))
        };
        let index = IndexBlock::parse(&bytes, env.cache.frames()).map_err(|what| damage("a sound block", what))?;
        if (index.len(), index.first_version(0)) != (self.slots as usize, (&*self.key, self.ts)) {
            let (key, ts) = index.first_version(0);
            let expected = format!("{} data blocks from {} at {}", self.slots, printable(&self.key), self.ts);
            return Err(damage(&expected, format!("{} from {} at {ts}", index.len(), printable(key))));
        }
        Ok(index)
    }
}

/// What a top block says of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedPartition {
    pub info: PartitionInfo,
    /// What its blocks take, in each extent.
    pub bytes: LotBytes,
}

impl NamedPartition {
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let key = r.bytes().filter(|key| key.len() <= KEY_BYTES_MAX)?.into();
        let ts = CommitTs(r.varint()?);
        let continues = match r.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let index = BlockRef::decode(r)?;
        let slots = u32::try_from(r.varint()?).ok().filter(|slots| *slots > 0)?;
        let (entries, live, deleted) = (r.varint()?, r.varint()?, r.varint()?);
        live.checked_add(deleted).filter(|keys| *keys <= entries)?;
        let info = PartitionInfo { key, ts, continues, index, slots, entries, live, deleted };
        Some(Self { info, bytes: LotBytes::decode(r)? })
    }
}
