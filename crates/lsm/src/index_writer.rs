//! Writing the index of a run beside its data blocks: an index block for each partition as that ends, a top block for each some thousand
//! partitions. So no step writes more than a few blocks, however large the run is, and of what is written only the partitions stay in memory.

use std::sync::Arc;

use base::{CommitTs, Result};
use store::{Block, BlockRef, Cell, KeyHash, Lot};

use crate::block::DataBlock;
use crate::index_block::{IndexBlock, IndexBuilder, Named, NewNamed, put_filter};
use crate::lsm::Env;
use crate::partition::{Partition, PartitionInfo};
use crate::top::{Top, TopBuilder};

/// Bytes of an index block in memory, at most, if its entries are alike.
const INDEX_BYTES: usize = 32 << 10;
/// Payload of a top block, about.
const TOP_BYTES: usize = 64 << 10;
/// A partition is taken over, or ends another one early, only if it has one in so many bytes of that: small ones would stay for good.
const SMALL_PARTITION: usize = 4;

/// Writes a block, as the run's writer does.
pub(crate) type WriteBlock<'a> = &'a mut dyn FnMut(Vec<u8>) -> Result<Arc<Block>>;

/// A data block that was written, for its index.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// Blocks of its large values.
    pub beside: Vec<Arc<Block>>,
    /// Its first version; and whether that is of the key that the block before ends with.
    pub key: Vec<u8>,
    pub ts: CommitTs,
    pub continues: bool,
    pub entries: u32,
    pub live: u32,
    pub deleted: u32,
    /// Of its keys, and of what they begin with if that is kept.
    pub hashes: Vec<KeyHash>,
    /// What its last key begins with.
    pub prefix: Option<KeyHash>,
    /// Where it is in memory.
    pub cell: Option<Arc<Cell<DataBlock>>>,
}

/// The blocks of a data block of another run, and where that is in memory.
pub(crate) struct Parts {
    pub blocks: Vec<Arc<Block>>,
    pub cell: Option<Arc<Cell<DataBlock>>>,
}

/// The index of a run being written.
pub(crate) struct IndexWriter {
    env: Env,
    most_bytes: usize,
    builder: IndexBuilder,
    /// The partition under way; `index` is not known yet.
    info: Option<PartitionInfo>,
    lot: Lot,
    apart: Vec<Arc<Block>>,
    /// Of its data blocks, those that are in memory: they stay there with the index block, or leave with it.
    cells: Vec<Option<Arc<Cell<DataBlock>>>>,
    partitions: Vec<Arc<Partition>>,
    top: TopBuilder,
    top_blocks: Vec<Arc<Block>>,
    /// Bytes on disk of data blocks and those beside them.
    pub data_bytes: u64,
}

impl IndexWriter {
    pub fn new(env: &Env) -> Self {
        Self {
            env: env.clone(),
            most_bytes: INDEX_BYTES.min(env.space.payload_bytes_max() / 2),
            builder: IndexBuilder::default(),
            info: None,
            lot: Lot::new(&env.space),
            apart: Vec::new(),
            cells: Vec::new(),
            partitions: Vec::new(),
            top: TopBuilder::default(),
            top_blocks: Vec::new(),
            data_bytes: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty() && self.info.is_none()
    }

    /// Appends a data block that was written.
    pub fn add(&mut self, block: Arc<Block>, draft: Draft, write: WriteBlock<'_>) -> Result<()> {
        let Draft { beside, key, ts, continues, entries, live, deleted, hashes, prefix: _, cell } = draft;
        let new = NewNamed { key: &key, ts, block: block.at(), entries, live, deleted };
        self.count(&new, continues);
        self.builder.push(&new, beside.iter().map(|block| block.at()), |out| put_filter(&hashes, out));
        self.own(std::iter::once(block).chain(beside));
        self.cells.push(cell);
        if self.builder.is_full(self.most_bytes) { self.end_partition(write) } else { Ok(()) }
    }

    /// Appends a data block of another run.
    pub fn take_over(&mut self, named: &Named<'_>, parts: Parts, write: WriteBlock<'_>) -> Result<()> {
        let &Named { key, ts, block, entries, live, deleted, .. } = named;
        // No key of it was there before.
        self.count(&NewNamed { key, ts, block, entries, live, deleted }, false);
        self.builder.push_named(named);
        self.own(parts.blocks);
        self.cells.push(parts.cell);
        if self.builder.is_full(self.most_bytes) { self.end_partition(write) } else { Ok(()) }
    }

    /// True if a partition of another run is to be taken over as it is, if nothing else speaks against it.
    pub fn wants(&self, partition: &Partition) -> bool {
        let least = self.most_bytes / SMALL_PARTITION;
        let is_small = (partition.info.index.stored_bytes as usize) < least / 2;
        let ends_early = self.info.is_some() && self.builder.memory_bytes() < least;
        !is_small && !ends_early
    }

    /// Appends a partition of another run.
    pub fn take_over_partition(&mut self, partition: &Arc<Partition>, write: WriteBlock<'_>) -> Result<()> {
        self.end_partition(&mut *write)?;
        self.data_bytes += partition.bytes().sum().saturating_sub(u64::from(partition.info.index.stored_bytes));
        self.push(partition.clone(), write)
    }

    fn count(&mut self, new: &NewNamed<'_>, continues: bool) {
        let info = self.info.get_or_insert_with(|| PartitionInfo {
            key: new.key.into(),
            ts: new.ts,
            continues,
            index: BlockRef { offset: 0, stored_bytes: 0, crc: 0 },
            slots: 0,
            entries: 0,
            live: 0,
            deleted: 0,
        });
        info.slots += 1;
        info.entries += u64::from(new.entries);
        info.live += u64::from(new.live);
        info.deleted += u64::from(new.deleted);
    }

    fn own(&mut self, blocks: impl IntoIterator<Item = Arc<Block>>) {
        for block in blocks {
            self.data_bytes += block.stored_bytes();
            self.apart.extend(self.lot.fold(block));
        }
    }

    fn end_partition(&mut self, write: WriteBlock<'_>) -> Result<()> {
        let Some(mut info) = self.info.take() else { return Ok(()) };
        let payload = self.builder.finish();
        // Held against what readers ask of it, before it leaves.
        let index = Arc::new(IndexBlock::parse(&payload, self.env.cache.frames()).expect("what is written is sound"));
        let block = write(payload)?;
        info.index = block.at();
        self.apart.extend(self.lot.fold(block));
        let lot = std::mem::replace(&mut self.lot, Lot::new(&self.env.space));
        let partition = Partition::new(&self.env.space, info, lot, std::mem::take(&mut self.apart));
        let cells = std::mem::take(&mut self.cells).into_iter().enumerate();
        cells.for_each(|(i, cell)| cell.into_iter().for_each(|cell| index.adopt_cell(i, cell)));
        if !self.env.cache.is_nearly_full() {
            partition.keep(&self.env, &index);
        }
        self.push(partition, write)
    }

    fn push(&mut self, partition: Arc<Partition>, write: WriteBlock<'_>) -> Result<()> {
        self.top.push(&partition);
        self.partitions.push(partition);
        if self.top.payload_bytes() >= TOP_BYTES.min(self.most_bytes * 2) { self.end_top(write) } else { Ok(()) }
    }

    fn end_top(&mut self, write: WriteBlock<'_>) -> Result<()> {
        if let Some(payload) = self.top.finish() {
            self.top_blocks.push(write(payload)?);
        }
        Ok(())
    }

    /// The index, and its bytes on disk; none if nothing is in it.
    pub fn finish(mut self, write: WriteBlock<'_>) -> Result<Option<(Top, u64)>> {
        self.end_partition(&mut *write)?;
        self.end_top(write)?;
        if self.partitions.is_empty() {
            return Ok(None);
        }
        let index = self.partitions.iter().map(|partition| u64::from(partition.info.index.stored_bytes)).sum::<u64>();
        let top = self.top_blocks.iter().map(|block| block.stored_bytes()).sum::<u64>();
        Ok(Some((Top { partitions: self.partitions.into(), blocks: self.top_blocks.into() }, index + top)))
    }
}
