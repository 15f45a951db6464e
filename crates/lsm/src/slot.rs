//! One data block of a run, as its index block knows it, and its bytes while they are in memory.

use std::sync::Arc;

use base::bytes::printable;
use base::{Corruption, Fault, IndexId, Result};
use store::epoch::Guard;
use store::{BlockKind, BlockRef, Cell, allocated};

use crate::block::{DataBlock, Pieces};
use crate::index_block::{IndexBlock, Named};
use crate::lsm::Env;

/// A data block by its place in an index block.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a> {
    pub index: &'a IndexBlock,
    pub at: usize,
}

impl<'a> Slot<'a> {
    pub fn named(self) -> Named<'a> {
        self.index.get(self.at)
    }

    /// The block, if it is in memory, as long as the guard.
    pub fn seen(self, guard: &Guard) -> Option<&DataBlock> {
        self.index.known_cell(self.at)?.get(guard).map(|block| &**block)
    }

    /// The block; from disk, if it is not in memory, and then it stays there if that has room. `note_read` is called if it was on disk.
    pub fn load(self, env: &Env, note_read: impl FnOnce()) -> Result<Arc<DataBlock>> {
        if let Some(block) = self.resident() {
            return Ok(block);
        }
        note_read();
        self.note_read(env);
        let block = Arc::new(self.read(env)?);
        self.keep(env, &block);
        Ok(block)
    }

    /// It is read from disk.
    pub fn note_read(self, env: &Env) {
        self.index.cell(self.at).note_read(&env.cache, u64::from(self.named().block.stored_bytes));
    }

    /// Keeps what was read in memory, if that has room.
    pub fn keep(self, env: &Env, block: &Arc<DataBlock>) {
        self.index.cell(self.at).keep(&env.cache, block, page_bytes(block));
    }

    /// The block, if it is in memory.
    pub fn resident(self) -> Option<Arc<DataBlock>> {
        self.index.known_cell(self.at)?.share()
    }

    /// Reads and checks the block.
    pub fn read(self, env: &Env) -> Result<DataBlock> {
        let mut bytes = Vec::new();
        env.space.read(self.named().block, BlockKind::Run, env.id, &mut bytes)?;
        parse(env, &self.named(), bytes)
    }
}

fn parse(env: &Env, named: &Named<'_>, bytes: Vec<u8>) -> Result<DataBlock> {
    let block =
        DataBlock::parse(bytes, env.cache.frames()).map_err(|what| damage(env, named, "a sound block", &what))?;
    let agrees =
        block.len() == named.entries as usize && block.is_of(0, named.key) && block.version(0).1.ts == named.ts;
    if !agrees {
        let expected = format!("{} versions from {} at {}", named.entries, printable(named.key), named.ts);
        return Err(damage(env, named, &expected, &format!("{} versions, or others", block.len())));
    }
    Ok(block)
}

fn damage(env: &Env, named: &Named<'_>, expected: &str, found: &str) -> Fault {
    let from = format!("from {}", printable(named.key));
    let problem = Corruption::of_index(env.id, from, "block of a run", expected.to_owned(), found.to_owned());
    Fault::Corrupt(Box::new(problem.at(env.space.file_name(), named.block.offset)))
}

/// Bytes of the file between two blocks that are read together, at most: the rest of a sector.
const GAP_BYTES: u64 = 4096;

/// Reads a data block, with the first of those behind it, `more` of the same index block, that lie next to each other in the file, within about
/// `span` bytes of it, as one read. One that is damaged ends the list, unless it is the first.
pub(crate) fn read_ahead(
    env: &Env,
    place: Slot<'_>,
    more: impl IntoIterator<Item = usize>,
    span: u64,
) -> Result<Vec<Arc<DataBlock>>> {
    let Slot { index, at: first } = place;
    let start = place.named().block.offset;
    let (mut near, mut last) = (vec![first], place.named().block);
    for at in more {
        let block = index.get(at).block;
        if !are_near(env, last, block) || block.end() - start > span || is_resident(index, at) {
            break;
        }
        near.push(at);
        last = block;
    }
    let (blocks, read) = read_together(env, index, &near);
    match read {
        // Whatever lies behind it may be what cannot be read.
        Err(_) if blocks.is_empty() && near.len() > 1 => Ok(vec![Arc::new(place.read(env)?)]),
        Err(fault) if blocks.is_empty() => Err(fault),
        _ => Ok(blocks),
    }
}

/// The same with those before it, the last one first: down to one that cannot be read.
pub(crate) fn read_back(env: &Env, place: Slot<'_>, span: u64) -> Result<Vec<Arc<DataBlock>>> {
    let Slot { index, at: last } = place;
    let end = place.named().block.end();
    let mut from = last;
    while from > 0
        && are_near(env, index.get(from - 1).block, index.get(from).block)
        && end - index.get(from - 1).block.offset <= span
        && !is_resident(index, from - 1)
    {
        from -= 1;
    }
    loop {
        let (mut blocks, read) = read_together(env, index, &(from..=last).collect::<Vec<_>>());
        // The first that cannot be read; who comes to it meets its fault.
        let damaged = from + blocks.len();
        match read {
            Ok(()) => {
                blocks.reverse();
                return Ok(blocks);
            }
            Err(_) if damaged < last => from = damaged + 1,
            Err(fault) => return Err(fault),
        }
    }
}

/// True if a data block and one behind it lie next to each other in the file.
fn are_near(env: &Env, block: BlockRef, next: BlockRef) -> bool {
    next.offset >= block.end()
        && next.offset - block.end() < GAP_BYTES
        && env.space.extent_of(next) == env.space.extent_of(block)
}

fn is_resident(index: &IndexBlock, at: usize) -> bool {
    Slot { index, at }.resident().is_some()
}

/// Reads data blocks that lie next to each other: those that were read before a fault, and that.
fn read_together(env: &Env, index: &IndexBlock, near: &[usize]) -> (Vec<Arc<DataBlock>>, Result<()>) {
    let refs: Vec<_> = near.iter().map(|at| index.get(*at).block).collect();
    let mut blocks = Vec::with_capacity(near.len());
    let read = env.space.read_neighbours(&refs, BlockKind::Run, env.id, |i, open| {
        let mut bytes = Vec::new();
        open.read_whole(&mut bytes)?;
        blocks.push(Arc::new(parse(env, &index.get(near[i]), bytes)?));
        Ok(())
    });
    (blocks, read)
}

/// How far a source of this index reads ahead, in bytes of the file.
pub(crate) fn ahead_bytes(env: &Env) -> u64 {
    (env.cache.budget().limit() / AHEAD_SHARE).min(AHEAD_BYTES_MAX)
}

/// One in so many bytes of the budget, for each source of a merge.
const AHEAD_SHARE: u64 = 1024;
const AHEAD_BYTES_MAX: u64 = 256 << 10;

/// A block that is about to be written, in memory while nothing has to leave for it: what was written last is read soon, by the next merge if by nobody
/// else, and then need not be brought back, uncompressed and checked.
pub(crate) fn written(env: &Env, payload: &[u8]) -> Option<Arc<Cell<DataBlock>>> {
    if env.cache.is_nearly_full() {
        return None;
    }
    // Of sources that do not ascend a merge makes a block that does not, either: whoever reads it says so, as of any other.
    let block = Arc::new(DataBlock::parse(payload.to_vec(), env.cache.frames()).ok()?);
    let cell = Cell::new();
    cell.keep_spare(&env.cache, &block, page_bytes(&block));
    Some(cell)
}

/// What a block takes in memory, as charged.
fn page_bytes(block: &DataBlock) -> u64 {
    block.memory_bytes() as u64 + allocated(2 * size_of::<usize>() + size_of::<DataBlock>())
}

/// Reads a large value.
pub(crate) fn read_large(env: &Env, pieces: Pieces<'_>, id: IndexId) -> Result<Vec<u8>> {
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
