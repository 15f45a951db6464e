//! Writing a run from versions in order.
//!
//! Blocks are written as they fill, a batch at a time. Nothing names them before the run is in the list, and no manifest before a
//! checkpoint: a writer that is dropped gives its space back, and what is written needs no log to be durable yet [A6].

use std::sync::Arc;

use base::{CommitTs, Result};
use index::LevelCompression;
use store::{AllocScope, Block, BlockKind, BlockRef, Compression, KeyHash, NewBlock, RunDepth, UpdateGroup};

use crate::block::{BlockBuilder, DataBlock, Pieces, Value, encode_pieces};
use crate::choose::{BOTTOM, compression_of};
use crate::index_block::Named;
use crate::index_writer::{Draft, IndexWriter, Parts};
use crate::lsm::Env;
use crate::partition::Partition;
use crate::prefix;
use crate::run::{Run, RunInfo};
use crate::slot::written;

/// Payload written in one batch, about.
const BATCH_BYTES: usize = 512 << 10;
/// What a version takes in its block's memory beside key and value, at most, with a share of the block's front.
const VERSION_BYTES: usize = 48;
/// Bytes of a large value in one block, at most.
const PIECE_BYTES: usize = 1 << 20;

/// A version on its way to disk.
pub(crate) enum NewValue<'a> {
    Delete,
    Bytes(&'a [u8]),
    /// A large value that lies in these blocks already.
    Kept {
        value_bytes: u64,
        pieces: Vec<Arc<Block>>,
    },
}

/// A run being written.
pub(crate) struct Writer {
    out: Out,
    builder: BlockBuilder,
    draft: Draft,
    batch: Vec<(NewBlock, Draft)>,
    batch_bytes: usize,
    index: IndexWriter,
    /// The key pushed last; none at first, and behind a block that was taken over: its keys do not come again.
    last_key: Option<Vec<u8>>,
    /// No key is above.
    max_key: Vec<u8>,
    oldest: CommitTs,
    newest: CommitTs,
    /// Bytes of blocks taken over as they are.
    moved_bytes: u64,
    /// What was taken over last; it has the last key if nothing was pushed since.
    taken: Taken,
}

/// Something that was taken over.
enum Taken {
    Nothing,
    Block(BlockRef),
    Partition(Arc<Partition>),
}

/// The compression of runs of an index by level.
pub(crate) fn level_compression(env: &Env) -> LevelCompression {
    let options = &env.options;
    options.policy.compression.unwrap_or_else(|| LevelCompression::of(options.compression))
}

/// Where blocks go.
struct Out {
    env: Env,
    scope: AllocScope,
    level: u8,
    compression: Compression,
    /// Bytes of blocks written so far, on disk.
    written_bytes: u64,
}

impl Writer {
    pub fn new(env: &Env, level: u8, scope: AllocScope) -> Self {
        let compression = compression_of(level_compression(env), level);
        Self {
            out: Out { env: env.clone(), scope, level, compression, written_bytes: 0 },
            builder: BlockBuilder::default(),
            draft: Draft::default(),
            batch: Vec::new(),
            batch_bytes: 0,
            index: IndexWriter::new(env),
            last_key: None,
            max_key: Vec::new(),
            oldest: CommitTs::MAX,
            newest: CommitTs::ZERO,
            moved_bytes: 0,
            taken: Taken::Nothing,
        }
    }

    /// Bytes of memory that a block takes, at most, unless one version takes more.
    fn block_bytes(&self) -> usize {
        let env = &self.out.env;
        env.options.node_bytes.min(env.space.payload_bytes_max() / 2)
    }

    /// Appends a version, behind the last one. A large one is not kept as fresh.
    pub fn push(&mut self, key: &[u8], ts: CommitTs, value: NewValue<'_>, is_fresh: bool) -> Result<()> {
        let is_first = self.last_key.as_deref() != Some(key);
        let most = self.block_bytes();
        // Two of the largest fit into a block.
        let most_inline = self.out.env.options.policy.separated_bytes.map_or(most / 2, |bytes| bytes.min(most / 2));
        let is_inline = |bytes: &[u8]| bytes.len() + key.len() + VERSION_BYTES <= most_inline;
        let value_bytes = match &value {
            NewValue::Delete => 0,
            NewValue::Bytes(bytes) if is_inline(bytes) => bytes.len(),
            NewValue::Bytes(bytes) => Pieces::block_bytes(bytes.len().div_ceil(self.out.piece_bytes())),
            NewValue::Kept { pieces, .. } => Pieces::block_bytes(pieces.len()),
        };
        if !self.builder.is_empty() && !self.builder.fits(key, ts, value_bytes, most) {
            self.end_block()?;
        }
        let is_delete = matches!(value, NewValue::Delete);
        let refs;
        let value = match value {
            NewValue::Delete => Value::Delete,
            NewValue::Bytes(bytes) if is_inline(bytes) => {
                if is_fresh {
                    Value::Fresh(bytes)
                } else {
                    Value::Inline(bytes)
                }
            }
            NewValue::Bytes(bytes) => {
                let pieces = self.out.write_pieces(bytes)?;
                refs = encode_pieces(pieces.iter().map(|piece| piece.at()));
                self.draft.beside.extend(pieces);
                Value::Large(Pieces::new(bytes.len() as u64, &refs))
            }
            NewValue::Kept { value_bytes, pieces } => {
                refs = encode_pieces(pieces.iter().map(|piece| piece.at()));
                self.draft.beside.extend(pieces);
                Value::Large(Pieces::new(value_bytes, &refs))
            }
        };
        if self.builder.is_empty() {
            self.draft.key = key.to_vec();
            self.draft.ts = ts;
            self.draft.continues = !is_first;
        }
        self.builder.push(key, ts, value);
        let draft = &mut self.draft;
        draft.entries += 1;
        // Of each key in it once; it may have begun in the block before.
        if is_first || draft.hashes.is_empty() {
            draft.hashes.push(KeyHash::of(key));
            if let Some(prefix) = prefix::hash_of(key, self.out.env.options.prefix_bytes)
                && draft.prefix.replace(prefix) != Some(prefix)
            {
                draft.hashes.push(prefix);
            }
        }
        if is_first {
            draft.live += u32::from(!is_delete);
            draft.deleted += u32::from(is_delete);
            let last = self.last_key.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
            self.max_key.clear();
            self.max_key.extend_from_slice(key);
        }
        self.oldest = self.oldest.min(ts);
        self.newest = self.newest.max(ts);
        Ok(())
    }

    /// Takes over a block as it is, with those beside it: it lies behind the last version and up to `past`, and none of its keys is there
    /// already, or comes again. `ts` are the lowest and the highest timestamp that may be in it.
    pub fn take_over(
        &mut self,
        named: &Named<'_>,
        parts: Parts,
        past: Vec<u8>,
        ts: (CommitTs, CommitTs),
    ) -> Result<()> {
        self.end_block()?;
        self.write_batch()?;
        self.moved_bytes += named.stored_bytes();
        let Self { index, out, .. } = self;
        index.take_over(named, parts, &mut |payload| out.write_index(payload))?;
        self.taken = Taken::Block(named.block);
        self.note_taken(past, ts);
        Ok(())
    }

    /// The same for a whole partition. False if it is not wanted: small ones are better written anew.
    pub fn take_over_partition(
        &mut self,
        partition: &Arc<Partition>,
        past: &[u8],
        ts: (CommitTs, CommitTs),
    ) -> Result<bool> {
        if !self.index.wants(partition) {
            return Ok(false);
        }
        self.end_block()?;
        self.write_batch()?;
        self.moved_bytes += partition.bytes().sum();
        let Self { index, out, .. } = self;
        index.take_over_partition(partition, &mut |payload| out.write_index(payload))?;
        self.taken = Taken::Partition(partition.clone());
        self.note_taken(past.to_vec(), ts);
        Ok(true)
    }

    fn note_taken(&mut self, past: Vec<u8>, ts: (CommitTs, CommitTs)) {
        self.last_key = None;
        self.max_key = past;
        self.oldest = self.oldest.min(ts.0);
        self.newest = self.newest.max(ts.1);
    }

    /// Bytes of the run so far, on disk; about, while blocks wait to be written.
    pub fn stored_bytes(&self) -> u64 {
        self.out.written_bytes + self.moved_bytes + self.batch_bytes as u64
    }

    /// Bytes of blocks in it that were taken over as they are.
    pub fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.index.is_empty() && self.batch.is_empty() && self.builder.is_empty()
    }

    /// What its blocks are compressed with.
    pub fn compression(&self) -> Compression {
        self.out.compression
    }

    /// Bytes of a block that is under way: less are not worth ending it early.
    pub fn open_bytes(&self) -> usize {
        self.builder.payload_bytes()
    }

    fn end_block(&mut self) -> Result<()> {
        if self.builder.is_empty() {
            return Ok(());
        }
        let payload = self.builder.finish();
        self.draft.cell = written(&self.out.env, &payload);
        self.batch_bytes += payload.len();
        let block = self.out.new_block(BlockKind::Run, self.out.group(), payload);
        self.batch.push((block, std::mem::take(&mut self.draft)));
        if self.batch_bytes >= BATCH_BYTES { self.write_batch() } else { Ok(()) }
    }

    pub fn write_batch(&mut self) -> Result<()> {
        let (blocks, drafts): (Vec<_>, Vec<_>) = std::mem::take(&mut self.batch).into_iter().unzip();
        self.batch_bytes = 0;
        if blocks.is_empty() {
            return Ok(());
        }
        let Self { index, out, .. } = self;
        for (block, draft) in out.write(blocks)?.into_iter().zip(drafts) {
            index.add(block, draft, &mut |payload| out.write_index(payload))?;
        }
        Ok(())
    }

    /// Ends the run where another begins: nothing may say that keys of that one are in it. Else as [`Writer::finish`].
    pub fn finish_before(mut self, log_need: CommitTs) -> Result<(Option<Arc<Run>>, u64)> {
        if self.last_key.is_none() {
            self.find_last_key()?;
        }
        self.finish(log_need)
    }

    /// Of what was taken over last only a key is known that none is above.
    fn find_last_key(&mut self) -> Result<()> {
        let env = &self.out.env;
        let at = match &self.taken {
            Taken::Nothing => return Ok(()),
            Taken::Block(at) => *at,
            Taken::Partition(partition) => {
                let index = partition.share(env)?;
                index.get(index.len() - 1).block
            }
        };
        let mut bytes = Vec::new();
        env.space.read(at, BlockKind::Run, env.id, &mut bytes)?;
        // A block that is none is found, and named, by who reads its run: the bound is good enough for that.
        if let Ok(block) = DataBlock::parse(bytes, env.cache.frames()) {
            block.key_into(block.len() - 1, &mut self.max_key);
        }
        Ok(())
    }

    /// Ends the run; none if nothing is in it. `log_need` is the highest timestamp that was looked at.
    pub fn finish(mut self, log_need: CommitTs) -> Result<(Option<Arc<Run>>, u64)> {
        self.end_block()?;
        self.write_batch()?;
        let Self { index, mut out, .. } = self;
        let data_bytes = index.data_bytes;
        let Some((top, index_bytes)) = index.finish(&mut |payload| out.write_index(payload))? else {
            return Ok((None, out.written_bytes));
        };
        let sum = |of: fn(&Partition) -> u64| top.partitions.iter().map(|partition| of(partition)).sum();
        let info = RunInfo {
            level: out.level,
            entries: sum(|partition| partition.info.entries),
            live: sum(|partition| partition.info.live),
            deleted: sum(|partition| partition.info.deleted),
            slots: sum(|partition| u64::from(partition.info.slots)),
            stored_bytes: data_bytes + index_bytes,
            oldest: self.oldest,
            newest: self.newest,
            log_need: log_need.max(self.newest),
            min_key: top.partitions[0].info.key.to_vec(),
            max_key: self.max_key,
        };
        Ok((Some(Run::written(info, top)), out.written_bytes))
    }
}

impl Out {
    fn new_block(&self, kind: BlockKind, group: UpdateGroup, payload: Vec<u8>) -> NewBlock {
        // A large value stays where it is, whatever becomes of its key's run.
        let usual = if kind == BlockKind::Overflow { level_compression(&self.env).bottom } else { self.compression };
        let compression = if payload.len() < 64 { Compression::None } else { usual };
        NewBlock { kind, index: self.env.id, compression, group, payload, cuts: Vec::new() }
    }

    fn group(&self) -> UpdateGroup {
        let depth = match self.level {
            0 => RunDepth::Top,
            BOTTOM.. => RunDepth::Bottom,
            _ => RunDepth::Middle,
        };
        UpdateGroup::of_runs(self.env.id, depth)
    }

    /// Bytes of a piece of a large value, at most.
    fn piece_bytes(&self) -> usize {
        PIECE_BYTES.min(self.env.space.payload_bytes_max())
    }

    fn write_pieces(&mut self, value: &[u8]) -> Result<Vec<Arc<Block>>> {
        let bytes = self.piece_bytes();
        let mut pieces = Vec::new();
        for some in value.chunks(bytes) {
            let block = self.new_block(BlockKind::Overflow, UpdateGroup::Cold, some.to_vec());
            pieces.extend(self.write(vec![block])?);
        }
        Ok(pieces)
    }

    fn write(&mut self, blocks: Vec<NewBlock>) -> Result<Vec<Arc<Block>>> {
        let written = self.env.space.write_in(self.scope, blocks)?;
        self.written_bytes += written.iter().map(|block| block.stored_bytes()).sum::<u64>();
        Ok(written)
    }

    /// A block of the index.
    fn write_index(&mut self, payload: Vec<u8>) -> Result<Arc<Block>> {
        let block = self.new_block(BlockKind::Run, self.group(), payload);
        Ok(self.write(vec![block])?.pop().expect("one was asked for"))
    }
}
