//! A part of a run's index: what some hundred data blocks begin with, hold and may have, searched where it lies.
//!
//! Layout of the payload in `docs/formats/lsm.md`. Bytes from disk are checked once, by [`IndexBlock::parse`]. In memory it lies in one frame
//! of the page cache, with a signpost for each entry behind the payload, and has a cell for each of its data blocks that is in memory; when it
//! leaves memory these do: each look at one was a look at it.

use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

use base::CommitTs;
use base::bytes::{Reader, put_bytes, put_varint};
use base::limits::KEY_BYTES_MAX;
use store::{BlockRef, Cell, Filter, FilterRef, Frame, FramePool, KeyHash, allocated};

use crate::block::{DataBlock, Version, common_prefix_bytes};
use crate::estimate::Counts;
use crate::signposts::Signposts;

const INDEX_FORMAT: u8 = 2;
/// Bytes of an entry's offset.
const OFFSET_BYTES: usize = 4;
/// Bytes before the first entry, at most.
const FRONT_BYTES: usize = 1 + 4;
/// What lies before each so many data blocks is kept as a sum.
const SUM_STEP: usize = 16;

/// What an index block says of a data block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named<'a> {
    /// Its first version.
    pub key: &'a [u8],
    pub ts: CommitTs,
    pub block: BlockRef,
    /// Versions in it.
    pub entries: u32,
    /// Of the keys whose newest version in the run is in it: those that have a value, and those that are deleted.
    pub live: u32,
    pub deleted: u32,
    beside: &'a [u8],
    filter: FilterRef<'a>,
}

impl Named<'_> {
    /// True if every version is the only one of its key, and a value: nothing could be collected.
    pub fn is_plain(&self) -> bool {
        self.live == self.entries
    }

    pub fn counts(&self) -> Counts {
        Counts::new(self.live.into(), self.deleted.into(), self.entries.into())
    }

    /// False if the key is not in it.
    pub fn may_have(&self, key: KeyHash) -> bool {
        self.filter.may_have(key)
    }

    /// The blocks of the large values in it.
    pub fn beside(&self) -> impl Iterator<Item = BlockRef> {
        self.beside.chunks_exact(BlockRef::BYTES).map(|at| BlockRef::decode(&mut Reader::new(at)).expect("16 bytes"))
    }

    /// Its block and those beside it.
    pub fn blocks(&self) -> impl Iterator<Item = BlockRef> {
        std::iter::once(self.block).chain(self.beside())
    }

    /// Bytes of them on disk.
    pub fn stored_bytes(&self) -> u64 {
        self.blocks().map(|at| u64::from(at.stored_bytes)).sum()
    }
}

/// A data block that an index block is to name.
pub(crate) struct NewNamed<'a> {
    pub key: &'a [u8],
    pub ts: CommitTs,
    pub block: BlockRef,
    pub entries: u32,
    pub live: u32,
    pub deleted: u32,
}

/// Builds the payload of one index block.
#[derive(Debug, Default)]
pub(crate) struct IndexBuilder {
    bytes: Vec<u8>,
    /// Where the entries begin in `bytes`.
    starts: Vec<usize>,
}

impl IndexBuilder {
    /// Bytes of memory, with a signpost for each entry, about.
    pub fn memory_bytes(&self) -> usize {
        FRONT_BYTES + self.bytes.len() + 2 * self.starts.len() * OFFSET_BYTES
    }

    /// True if it is to be ended: another entry like the last one would not fit into so many bytes of memory. One alone never is.
    pub fn is_full(&self, most: usize) -> bool {
        if self.starts.len() < 2 {
            return false;
        }
        let last = self.starts.last().map_or(0, |start| self.bytes.len() - start);
        // Filters differ by the entries of their blocks.
        self.memory_bytes() + last + last / 4 + 2 * OFFSET_BYTES > most
    }

    /// Appends a data block, behind the last one, with the filter that `put_filter` appends.
    pub fn push(
        &mut self,
        new: &NewNamed<'_>,
        beside: impl ExactSizeIterator<Item = BlockRef>,
        put_filter: impl FnOnce(&mut Vec<u8>),
    ) {
        self.starts.push(self.bytes.len());
        let out = &mut self.bytes;
        put_bytes(out, new.key);
        put_varint(out, new.ts.0);
        new.block.encode(out);
        for n in [new.entries, new.live, new.deleted] {
            put_varint(out, u64::from(n));
        }
        put_varint(out, (beside.len() * BlockRef::BYTES) as u64);
        beside.for_each(|at| at.encode(out));
        put_filter(out);
    }

    /// Appends a block as another index names it.
    pub fn push_named(&mut self, named: &Named<'_>) {
        let &Named { key, ts, block, entries, live, deleted, beside, filter } = named;
        let beside = beside.chunks_exact(BlockRef::BYTES);
        let beside = beside.map(|at| BlockRef::decode(&mut Reader::new(at)).expect("16 bytes"));
        self.push(&NewNamed { key, ts, block, entries, live, deleted }, beside, |out| filter.encode(out));
    }

    /// The payload; the builder is empty afterwards.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.memory_bytes());
        out.push(INDEX_FORMAT);
        put_varint(&mut out, self.starts.len() as u64);
        let front = out.len();
        out.append(&mut self.bytes);
        for start in self.starts.drain(..) {
            let at = u32::try_from(front + start).expect("a block is below 4 MiB");
            out.extend_from_slice(&at.to_le_bytes());
        }
        out
    }
}

/// Appends a filter of these keys.
pub(crate) fn put_filter(keys: &[KeyHash], out: &mut Vec<u8>) {
    Filter::of(keys).encode(out);
}

/// An index block whose bytes were checked.
#[derive(Debug)]
pub(crate) struct IndexBlock {
    /// The payload, and signposts.
    frame: Frame,
    /// Where the offsets begin.
    offsets: usize,
    /// What the keys of all entries start with, in bytes.
    common: usize,
    /// What is in the first data blocks: none, [`SUM_STEP`], twice as many, and so on.
    sums: Box<[Counts]>,
    /// By data block: those that were looked at have a cell.
    cells: Box<[OnceLock<Arc<Cell<DataBlock>>>]>,
}

impl IndexBlock {
    /// Checks a payload.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the bytes.
    pub fn parse(bytes: &[u8], frames: &Arc<FramePool>) -> Result<Self, String> {
        let front = || {
            let mut r = Reader::new(bytes);
            if r.u8()? != INDEX_FORMAT {
                return None;
            }
            let count = r.length().filter(|count| *count > 0)?;
            let behind = bytes.len() - r.rest().len();
            let offsets = bytes.len().checked_sub(count.checked_mul(OFFSET_BYTES)?)?;
            (offsets >= behind).then_some((count, behind, offsets))
        };
        let (count, behind, offsets) = front().ok_or("run: the front of an index block does not hold")?;
        let cells = (0..count).map(|_| OnceLock::new()).collect();
        let mut frame = frames.frame(FramePool::bytes_for(bytes.len() + count * OFFSET_BYTES));
        frame[..bytes.len()].copy_from_slice(bytes);
        let mut this = Self { frame, offsets, common: 0, sums: Box::default(), cells };
        this.sums = this.check(behind)?;
        let (first, last) = (this.first_version(0).0, this.first_version(count - 1).0);
        this.common = common_prefix_bytes(first, last);
        let mut posts = Vec::with_capacity(count * OFFSET_BYTES);
        Signposts::put(1, count, |i| &this.first_version(i).0[this.common..], &mut posts);
        this.frame[bytes.len()..][..posts.len()].copy_from_slice(&posts);
        Ok(this)
    }

    /// Every entry lies where its offset says, one behind the other, in order. Returns the sums.
    fn check(&self, mut at: usize) -> Result<Box<[Counts]>, String> {
        let mut last: Option<(&[u8], CommitTs)> = None;
        let (mut sum, mut sums) = (Counts::default(), Vec::with_capacity(self.len() / SUM_STEP + 1));
        for i in 0..self.len() {
            if i % SUM_STEP == 0 {
                sums.push(sum);
            }
            if self.offset(i) != at {
                return Err("run: an offset of an index block does not name an entry".to_owned());
            }
            let mut r = Reader::new(&self.frame[at..self.offsets]);
            let named = decode(&mut r).ok_or("run: the bytes of an index block do not hold")?;
            if last.is_some_and(|(key, ts)| !(key < named.key || (key == named.key && ts > named.ts))) {
                return Err("run: an index block does not ascend".to_owned());
            }
            last = Some((named.key, named.ts));
            sum.add(named.counts());
            at = self.offsets - r.rest().len();
        }
        if at == self.offsets {
            Ok(sums.into())
        } else {
            Err("run: bytes behind the last entry of an index block".to_owned())
        }
    }

    fn offset(&self, i: usize) -> usize {
        let offsets = self.frame[self.offsets..].as_chunks().0;
        u32::from_le_bytes(offsets[i]) as usize
    }

    fn posts(&self) -> Signposts<'_> {
        let fronts = self.frame[self.offsets + self.len() * OFFSET_BYTES..].as_chunks().0;
        Signposts::new(1, &fronts[..self.len()])
    }

    /// Number of data blocks, at least one.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// What it says of one.
    pub fn get(&self, i: usize) -> Named<'_> {
        decode(&mut Reader::new(&self.frame[self.offset(i)..self.offsets])).expect("a checked block")
    }

    /// What it says of all.
    pub fn iter(&self) -> impl Iterator<Item = Named<'_>> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// What some neighbours have together.
    pub fn counts(&self, of: Range<usize>) -> Counts {
        let before = |end: usize| {
            let step = (end / SUM_STEP).min(self.sums.len() - 1);
            let mut sum = self.sums[step];
            (step * SUM_STEP..end).for_each(|i| sum.add(self.get(i).counts()));
            sum
        };
        before(of.end).less(before(of.start))
    }

    /// The first version of a data block.
    pub fn first_version(&self, i: usize) -> (&[u8], CommitTs) {
        let mut r = Reader::new(&self.frame[self.offset(i)..self.offsets]);
        let key = r.bytes().expect("a checked block");
        (key, CommitTs(r.varint().expect("a checked block")))
    }

    /// The first data block that begins behind (`key`, `ts`).
    pub fn first_behind(&self, key: &[u8], ts: CommitTs) -> usize {
        let prefix = &self.first_version(0).0[..self.common];
        let (_, Range { start: mut low, end: mut high }) = self.posts().narrow(prefix, key, self.len());
        while low < high {
            let mid = low + (high - low) / 2;
            let (first, at) = self.first_version(mid);
            if first < key || (first == key && at >= ts) {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        low
    }

    /// Where the newest version of a key at or below a moment may be.
    pub fn spot(&self, key: &[u8], hash: KeyHash, at: CommitTs) -> Spot {
        let next = self.first_behind(key, at);
        Spot { within: next.checked_sub(1).filter(|within| self.get(*within).may_have(hash)), next }
    }

    /// A data block has a place in memory already: it was just written, or another index block names it, too.
    pub fn adopt_cell(&self, i: usize, cell: Arc<Cell<DataBlock>>) {
        let adopted = self.cells[i].set(cell);
        debug_assert!(adopted.is_ok(), "before anybody asks for it");
    }

    /// Where a data block is kept in memory.
    pub fn cell(&self, i: usize) -> &Arc<Cell<DataBlock>> {
        self.cells[i].get_or_init(Cell::new)
    }

    /// The same, if it was ever asked for.
    pub fn known_cell(&self, i: usize) -> Option<&Arc<Cell<DataBlock>>> {
        self.cells[i].get()
    }

    /// Bytes of memory, as if each data block had been asked for: its cell stays from then on.
    pub fn memory_bytes(&self) -> u64 {
        let cell = allocated(2 * size_of::<usize>() + size_of::<Cell<DataBlock>>()) + allocated(size_of::<usize>());
        let cells = allocated(size_of_val(&*self.cells)) + cell * self.cells.len() as u64;
        self.frame.len() as u64 + cells + allocated(size_of_val(&*self.sums)) + allocated(size_of::<Self>())
    }
}

/// Where a version that is looked for may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    /// The last data block that begins at or before it, unless its filter knows better.
    within: Option<usize>,
    /// The one behind: it may begin with it.
    next: usize,
}

impl Spot {
    /// The data block that is looked at first, if there is one.
    pub fn wants(self, index: &IndexBlock, key: &[u8]) -> Option<usize> {
        self.within.or_else(|| self.begins_next(index, key).then_some(self.next))
    }

    fn begins_next(self, index: &IndexBlock, key: &[u8]) -> bool {
        self.next < index.len() && index.first_version(self.next).0 == key
    }

    /// Calls `found` with the version, if there is one; `open` gives data blocks. False if it may still be what the next partition begins with.
    #[inline]
    pub fn find<B: Deref<Target = DataBlock>, E>(
        self,
        index: &IndexBlock,
        key: &[u8],
        at: CommitTs,
        mut open: impl FnMut(usize) -> Result<B, E>,
        found: impl FnOnce(Version<'_>),
    ) -> Result<bool, E> {
        if let Some(within) = self.within {
            let block = open(within)?;
            let i = block.seek(key, at);
            if i < block.len() {
                if block.is_of(i, key) {
                    found(block.version(i).1);
                }
                return Ok(true);
            }
        }
        // Versions of one key may lie in several blocks: the one looked for begins the next.
        if self.begins_next(index, key) {
            found(open(self.next)?.version(0).1);
            return Ok(true);
        }
        Ok(self.next < index.len())
    }
}

fn decode<'a>(r: &mut Reader<'a>) -> Option<Named<'a>> {
    let key = r.bytes().filter(|key| key.len() <= KEY_BYTES_MAX)?;
    let ts = CommitTs(r.varint()?);
    let block = BlockRef::decode(r)?;
    let mut next = || u32::try_from(r.varint()?).ok();
    let (entries, live, deleted) = (next()?, next()?, next()?);
    if entries == 0 || u64::from(live) + u64::from(deleted) > u64::from(entries) {
        return None;
    }
    let beside = r.bytes().filter(|refs| refs.len() % BlockRef::BYTES == 0)?;
    Some(Named { key, ts, block, entries, live, deleted, beside, filter: FilterRef::decode(r)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Arc<FramePool> {
        FramePool::new(1 << 20, 0)
    }

    fn at(n: u64) -> BlockRef {
        BlockRef { offset: n << 12, stored_bytes: 100 + n as u32, crc: n as u32 }
    }

    fn built() -> Vec<u8> {
        let mut builder = IndexBuilder::default();
        for n in 0..20u8 {
            // Two blocks of each key, the newer versions first.
            let key = [b'k', n / 2];
            let new = NewNamed {
                key: &key,
                ts: CommitTs(1000 - u64::from(n)),
                block: at(u64::from(n)),
                entries: 3,
                live: 2,
                deleted: 1,
            };
            let beside = (0..u64::from(n % 3)).map(|i| at(100 + i)).collect::<Vec<_>>();
            builder.push(&new, beside.into_iter(), |out| put_filter(&[KeyHash::of(&key)], out));
        }
        builder.finish()
    }

    #[test]
    fn what_is_named_comes_back() {
        let block = IndexBlock::parse(&built(), &frames()).expect("what was built is sound");
        assert_eq!(block.len(), 20);
        let mut again = IndexBuilder::default();
        for (n, named) in block.iter().enumerate() {
            assert_eq!((named.key, named.ts), ([b'k', n as u8 / 2].as_slice(), CommitTs(1000 - n as u64)));
            assert_eq!((named.block, named.beside().count()), (at(n as u64), n % 3));
            assert!(named.may_have(KeyHash::of(named.key)) && !named.is_plain());
            again.push_named(&named);
        }
        assert_eq!(again.finish(), built());
        for (key, ts, behind) in [(0, 2000, 0), (0, 1000, 1), (0, 999, 2), (0, 0, 2), (3, 994, 7), (9, 0, 20)] {
            assert_eq!(block.first_behind(&[b'k', key], CommitTs(ts)), behind, "{key} at {ts}");
        }
    }

    #[test]
    fn damaged_bytes_are_found_or_name_others() {
        let bytes = built();
        for i in 0..bytes.len() {
            assert!(IndexBlock::parse(&bytes[..i], &frames()).is_err(), "cut at {i}");
            let mut bad = bytes.clone();
            bad[i] ^= 1 << (i % 8);
            if let Ok(block) = IndexBlock::parse(&bad, &frames()) {
                assert!(block.iter().all(|named| named.entries > 0));
                block.first_behind(b"k", CommitTs(7));
            }
        }
    }
}
