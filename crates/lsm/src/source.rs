//! What a reader at one moment sees of one source, as a sorted source of a merge: of each key the newest version at or below the
//! moment, tombstones included.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use base::bytes::printable;
use base::{CommitTs, Fault, Result};
use index::damaged::just_above;
use index::expiry::has_expired;
use index::merge::{RunSource as FileSource, Source};
use index::{DamagedRange, Direction, EntryBatch, KeyRange, Prefix, Skips};
use store::KeyHash;

use crate::block::{DataBlock, Entry, Value, Version};
use crate::index_block::IndexBlock;
use crate::lsm::{Attached, Core};
use crate::memtable::Memtable;
use crate::prefix::common_prefix;
use crate::run::Run;
use crate::slot::{Slot, read_large};

mod ahead;
mod strand;

pub(crate) use strand::StrandSource;

/// What all sources of one cursor share.
#[derive(Clone)]
pub(crate) struct Look {
    pub core: Arc<Core>,
    pub at: CommitTs,
    /// What lies at or below has expired for the reader.
    pub cut: CommitTs,
    pub range: KeyRange,
    pub direction: Direction,
    pub skips: Option<Skips>,
    /// Whoever looks wants no values: those that are given out are empty.
    pub keys_only: bool,
}

impl Look {
    /// What the reader has of a version's value: none of what has expired.
    fn value<'a>(&self, ts: CommitTs, value: Option<&'a [u8]>) -> Option<&'a [u8]> {
        let value = value.filter(|_| !has_expired(ts, self.cut));
        if self.keys_only { value.map(|_| [].as_slice()) } else { value }
    }
}

/// A memtable.
pub(crate) struct MemtableSource {
    look: Arc<Look>,
    table: Arc<Memtable>,
    /// Where it goes on; none at the end.
    position: Option<Bound<Vec<u8>>>,
}

impl MemtableSource {
    pub fn new(look: Arc<Look>, table: Arc<Memtable>) -> Self {
        let start = if look.direction == Direction::Forward { &look.range.low } else { &look.range.high };
        Self { position: Some(start.clone()), look, table }
    }

    fn fill_forward(&mut self, from: &Bound<Vec<u8>>, out: &mut EntryBatch, max: usize) -> Option<Bound<Vec<u8>>> {
        let Look { at, range, .. } = &*self.look;
        let (mut is_past, mut is_full) = (false, false);
        let next = self.table.leaf_from(from, |key, ts, value, _| {
            is_past = range.is_above(key);
            let is_known = out.len().checked_sub(1).is_some_and(|last| out.key(last) == key);
            if is_past || ts > *at || is_known {
                return !is_past;
            }
            is_full = out.len() == max;
            if !is_full {
                out.push_any(key, self.look.value(ts, value), ts);
            }
            !is_full
        });
        match out.len().checked_sub(1) {
            _ if is_past => None,
            Some(last) if is_full => Some(Bound::Excluded(out.key(last).to_vec())),
            _ => next.filter(|next| !range.is_above(next)).map(Bound::Included),
        }
    }

    fn fill_backward(&mut self, below: &Bound<Vec<u8>>, out: &mut EntryBatch, max: usize) -> Option<Bound<Vec<u8>>> {
        let Look { at, range, .. } = &*self.look;
        let mut seen = EntryBatch::new();
        let low = self.table.leaf_below(below, |key, ts, value| {
            let is_known = seen.len().checked_sub(1).is_some_and(|last| seen.key(last) == key);
            if ts <= *at && !is_known && !range.is_below(key) {
                seen.push_any(key, self.look.value(ts, value), ts);
            }
        });
        for i in (0..seen.len()).rev().take(max) {
            let value = (!seen.is_tombstone(i)).then(|| seen.value(i));
            out.push_any(seen.key(i), value, seen.ts(i));
        }
        if seen.len() > max {
            return Some(Bound::Excluded(out.key(out.len() - 1).to_vec()));
        }
        low.filter(|low| !range.is_below(low)).map(Bound::Excluded)
    }
}

impl Source for MemtableSource {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        out.clear();
        if let Some(position) = self.position.take() {
            self.position = match self.look.direction {
                Direction::Forward => self.fill_forward(&position, out, max.max(1)),
                Direction::Backward => self.fill_backward(&position, out, max.max(1)),
            };
        }
        Ok(self.position.is_some())
    }
}

/// An attached run.
pub(crate) struct AttachedSource {
    source: FileSource,
    look: Arc<Look>,
    attached: Arc<Attached>,
    /// The last key given out.
    last: Option<Vec<u8>>,
}

impl AttachedSource {
    pub fn new(look: Arc<Look>, attached: Arc<Attached>) -> Self {
        let source = FileSource::new(&attached.run, attached.ts, look.range.clone(), look.direction);
        let source = if look.keys_only { source.keys_only() } else { source };
        Self { source, look, attached, last: None }
    }

    /// It cannot be read from here on: all that is left of it is passed over.
    #[cold]
    fn pass_rest(&self, fault: Fault) -> Result<bool> {
        let Some(skips) = &self.look.skips else { return Err(fault) };
        let (min, max) = self.attached.run.key_range().expect("an attached run has entries");
        let (low, high) = match (self.look.direction, &self.last) {
            (Direction::Forward, key) => (key.as_ref().map_or(min.to_vec(), |key| just_above(key)), just_above(max)),
            (Direction::Backward, Some(key)) => (min.to_vec(), key.clone()),
            (Direction::Backward, None) => (min.to_vec(), just_above(max)),
        };
        skips.add(DamagedRange::met(fault, self.look.core.env.id, &low, Some(&high))?, self.attached.ts);
        Ok(false)
    }
}

impl Source for AttachedSource {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        let filled = self.source.fill(out, max);
        if let Some(last) = out.len().checked_sub(1) {
            self.last = Some(out.key(last).to_vec());
        }
        filled.or_else(|fault| self.pass_rest(fault))
    }
}

/// A run.
struct RunSource {
    look: Arc<Look>,
    run: Arc<Run>,
    /// Where it goes on; none at the end, and before the first call.
    place: Option<Place>,
    /// The index block of the place's partition, and the data block of the place.
    index: Option<Arc<IndexBlock>>,
    block: Option<Arc<DataBlock>>,
    /// Forward: the range may end in the block.
    may_end: bool,
    /// Blocks that come next and were read with it, and how many blocks it has come through.
    ahead: VecDeque<Arc<DataBlock>>,
    passed: u32,
    started: bool,
    /// What all keys of the range begin with, if filters know: blocks without any of these are passed over.
    prefix: Option<KeyHash>,
    /// Blocks that were.
    skipped: u32,
    /// The key decided last (forward, when a block is left), or under way (backward).
    key: Vec<u8>,
    has_key: bool,
    /// Backward: the block and place of the newest version of `key` seen so far that the reader sees. Only the last one is read.
    found: Option<(Arc<DataBlock>, usize)>,
}

/// Partition, data block in it, version in that. What is not known yet is where one that comes from the direction enters.
#[derive(Debug, Clone, Copy)]
struct Place {
    partition: usize,
    slot: Option<usize>,
    at: Option<usize>,
}

impl RunSource {
    fn new(look: Arc<Look>, run: Arc<Run>) -> Self {
        let prefix_bytes = look.core.env.options.prefix_bytes;
        // Who passes over damage has to meet it.
        let prefix = common_prefix(&look.range, prefix_bytes).filter(|_| look.skips.is_none()).map(KeyHash::of);
        Self {
            look,
            run,
            prefix,
            skipped: 0,
            place: None,
            index: None,
            block: None,
            may_end: true,
            ahead: VecDeque::new(),
            passed: 0,
            started: false,
            key: Vec::new(),
            has_key: false,
            found: None,
        }
    }

    fn is_forward(&self) -> bool {
        self.look.direction == Direction::Forward
    }

    /// Finds where to begin: at the first version at or behind the bound (forward), or at the one before that (backward).
    fn start(&mut self) -> Result<()> {
        self.started = true;
        let core = self.look.core.clone();
        let top = match self.run.top(&core.env) {
            Ok(top) => top,
            Err(fault) => return self.pass_run(fault),
        };
        let last = top.partitions.len() - 1;
        let enter = |partition| Some(Place { partition, slot: None, at: None });
        let bound = match (self.look.direction, &self.look.range.low, &self.look.range.high) {
            (Direction::Forward, Bound::Included(key), _) | (Direction::Backward, _, Bound::Excluded(key)) => {
                Some(key.clone())
            }
            (Direction::Forward, Bound::Excluded(key), _) | (Direction::Backward, _, Bound::Included(key)) => {
                Some(just_above(key))
            }
            _ => None,
        };
        let Some(bound) = bound else {
            self.place = enter(if self.is_forward() { 0 } else { last });
            return Ok(());
        };
        // A version at or behind (key, MAX) is of the key or a higher one.
        let Some(partition) = top.partition_of(&bound, CommitTs::MAX) else {
            self.place = enter(0).filter(|_| self.is_forward());
            return Ok(());
        };
        self.place = enter(partition);
        if !self.enter_index()? {
            return Ok(());
        }
        let slot = self.index.as_ref().expect("just entered").first_behind(&bound, CommitTs::MAX).saturating_sub(1);
        self.place = Some(Place { partition, slot: Some(slot), at: None });
        if !self.enter()? {
            return Ok(());
        }
        let at = self.block.as_ref().expect("just entered").seek(&bound, CommitTs::MAX);
        match (self.is_forward(), at.checked_sub(1)) {
            (true, _) => self.place = Some(Place { partition, slot: Some(slot), at: Some(at) }),
            (false, Some(at)) => self.place = Some(Place { partition, slot: Some(slot), at: Some(at) }),
            (false, None) => self.leave_block(),
        }
        Ok(())
    }

    /// Past a data block that has nothing of the range, unread.
    fn skip_block(&mut self) {
        self.skipped += 1;
        // It may have been read with the one before.
        self.ahead.pop_front();
        self.leave_block();
    }

    /// To the next data block in the direction.
    fn leave_block(&mut self) {
        self.block = None;
        let Some(Place { partition, slot: Some(slot), .. }) = self.place else { return self.leave_partition() };
        let next = if self.is_forward() {
            Some(slot + 1).filter(|slot| self.index.as_ref().is_some_and(|index| *slot < index.len()))
        } else {
            slot.checked_sub(1)
        };
        match next {
            Some(slot) => self.place = Some(Place { partition, slot: Some(slot), at: None }),
            None => self.leave_partition(),
        }
    }

    /// To the next partition in the direction.
    fn leave_partition(&mut self) {
        (self.index, self.block) = (None, None);
        self.ahead.clear();
        let Some(Place { partition, .. }) = self.place else { return };
        let count = self.run.loaded().map_or(0, |top| top.partitions.len());
        let next = if self.is_forward() { Some(partition + 1) } else { partition.checked_sub(1) };
        let next = next.filter(|partition| *partition < count);
        self.place = next.map(|partition| Place { partition, slot: None, at: None });
    }

    /// The first key behind a place's data block; none at the end.
    fn next_key(&self, partition: usize, index: &IndexBlock, slot: usize) -> Option<Vec<u8>> {
        if slot + 1 < index.len() {
            return Some(index.first_version(slot + 1).0.to_vec());
        }
        Some(self.run.loaded()?.partitions.get(partition + 1)?.info.key.to_vec())
    }

    /// Gets the index block of the place, if it has not been. False if the range ends before it, or it cannot be read and was passed over.
    fn enter_index(&mut self) -> Result<bool> {
        if self.index.is_some() {
            return Ok(true);
        }
        let core = self.look.core.clone();
        let Some(Place { partition, slot, at }) = self.place else { return Ok(false) };
        let parts = &self.run.top(&core.env)?.partitions;
        let info = &parts[partition].info;
        let next = parts.get(partition + 1).map(|next| &next.info);
        let is_past = match self.look.direction {
            Direction::Forward => self.look.range.is_above(&info.key),
            Direction::Backward => next.is_some_and(|next| self.look.range.is_below(&next.key)),
        };
        if is_past {
            self.place = None;
            return Ok(false);
        }
        match parts[partition].share(&core.env) {
            Ok(index) => {
                let slot = slot.unwrap_or(if self.is_forward() { 0 } else { index.len() - 1 });
                self.place = Some(Place { partition, slot: Some(slot), at });
                self.index = Some(index);
                Ok(true)
            }
            Err(fault) => {
                let high = match next {
                    Some(next) if next.continues => just_above(&next.key),
                    Some(next) => next.key.to_vec(),
                    None => just_above(&self.run.info.max_key),
                };
                self.pass(fault, &info.key, &high)?;
                self.leave_partition();
                Ok(false)
            }
        }
    }

    /// Gets the block of the place, if it has not been. False if the range ends before it, or it cannot be read and was passed over.
    fn enter(&mut self) -> Result<bool> {
        if self.block.is_some() {
            return Ok(true);
        }
        if !self.enter_index()? {
            return Ok(false);
        }
        let (Some(Place { partition, slot: Some(slot), at }), Some(index)) = (self.place, self.index.clone()) else {
            return Ok(false);
        };
        let named = index.get(slot);
        let next = self.next_key(partition, &index, slot);
        let is_past = match self.look.direction {
            Direction::Forward => self.look.range.is_above(named.key),
            Direction::Backward => next.as_ref().is_some_and(|next| self.look.range.is_below(next)),
        };
        if is_past {
            self.place = None;
            return Ok(false);
        }
        if self.prefix.is_some_and(|prefix| !named.may_have(prefix)) {
            self.skip_block();
            return Ok(false);
        }
        match self.load(&index, slot) {
            Ok(block) => {
                // Backward a block is entered at its end.
                let at = at.unwrap_or(if self.is_forward() { 0 } else { block.len() - 1 });
                self.place = Some(Place { partition, slot: Some(slot), at: Some(at) });
                // No key of it lies above the next one's first.
                self.may_end = self.look.range.is_above(next.as_ref().unwrap_or(&self.run.info.max_key));
                self.block = Some(block);
                Ok(true)
            }
            Err(fault) => {
                let high = match next {
                    Some(next) if !named.may_have(KeyHash::of(&next)) => next,
                    Some(next) => just_above(&next),
                    None => just_above(&self.run.info.max_key),
                };
                self.pass(fault, named.key, &high)?;
                self.leave_block();
                Ok(false)
            }
        }
    }

    fn load(&mut self, index: &IndexBlock, slot: usize) -> Result<Arc<DataBlock>> {
        let core = self.look.core.clone();
        let place = Slot { index, at: slot };
        let block = match self.ahead.pop_front() {
            Some(block) => Ok(block),
            None if self.passed == 0 || place.resident().is_some() => {
                place.load(&core.env, || core.counters.count_load())
            }
            None => ahead::load(&core, place, self.look.direction, self.passed).map(|blocks| {
                self.ahead.extend(blocks);
                self.ahead.pop_front().expect("at least one")
            }),
        };
        self.passed += 1;
        block
    }

    /// Passes over `[low, high)`, which cannot be read, if that is what the reader wants.
    #[cold]
    fn pass(&self, fault: Fault, low: &[u8], high: &[u8]) -> Result<()> {
        let Some(skips) = &self.look.skips else { return Err(fault) };
        skips.add(DamagedRange::met(fault, self.look.core.env.id, low, Some(high))?, self.run.info.newest);
        Ok(())
    }

    /// Nothing of the run can be read.
    fn pass_run(&self, fault: Fault) -> Result<()> {
        self.pass(fault, &self.run.info.min_key, &just_above(&self.run.info.max_key))
    }

    /// Gives out a version of `key`. A large value that cannot be read is passed over, if that is what the reader wants: what is older than
    /// the version is not the newest of the key.
    fn give(&self, version: Version<'_>, out: &mut EntryBatch) -> Result<()> {
        let Version { ts, value } = version;
        match value {
            _ if has_expired(ts, self.look.cut) => out.push_any(&self.key, None, ts),
            Value::Delete => out.push_any(&self.key, None, ts),
            Value::Inline(value) | Value::Fresh(value) => out.push_any(&self.key, self.look.value(ts, Some(value)), ts),
            Value::Large(_) if self.look.keys_only => out.push_any(&self.key, Some(&[]), ts),
            Value::Large(pieces) => {
                let env = &self.look.core.env;
                match (read_large(env, pieces, env.id), &self.look.skips) {
                    (Ok(value), _) => out.push_any(&self.key, Some(&value), ts),
                    (Err(fault), None) => return Err(fault.in_index(env.id, || printable(&self.key))),
                    (Err(fault), Some(skips)) => {
                        skips.add(DamagedRange::met(fault, env.id, &self.key, Some(&just_above(&self.key)))?, ts);
                    }
                }
            }
        }
        Ok(())
    }

    fn fill_forward(&mut self, out: &mut EntryBatch, max: usize) -> Result<()> {
        while self.place.is_some() {
            if !self.enter()? {
                continue;
            }
            let block = self.block.clone().expect("just entered");
            if !self.give_block(&block, out, max)? {
                return Ok(());
            }
            self.leave_block();
        }
        Ok(())
    }

    /// Gives out what the reader sees of a block, from the place on. False if something is left and there are `max`, or if the range ends.
    fn give_block(&mut self, block: &DataBlock, out: &mut EntryBatch, max: usize) -> Result<bool> {
        let from = self.place.and_then(|place| place.at).expect("just entered");
        let prefix = Prefix::new(block.prefix());
        let mut entries = block.entries_from(from).peekable();
        // Of the key decided last what lies behind the prefix.
        let known = entries.peek().filter(|_| self.has_key && block.is_of(from, &self.key));
        let mut decided = known.map(|first| first.suffix);
        let wanted = (block.len() - from).min(max.saturating_sub(out.len()));
        // Of one key there may be many versions, of which one is wanted.
        let bytes = wanted * (block.memory_bytes() / block.len() + block.prefix().len());
        out.reserve(wanted, bytes.min(block.memory_bytes()));
        let mut is_over = false;
        for (i, entry) in (from..).zip(entries) {
            let Entry { suffix, version, .. } = entry;
            if version.ts <= self.look.at && decided != Some(suffix) {
                if out.has_enough(max) {
                    self.place = self.place.map(|place| Place { at: Some(i), ..place });
                    is_over = true;
                    break;
                }
                if self.may_end && self.is_past(block, suffix) {
                    self.place = None;
                    return Ok(false);
                }
                match entry.piece() {
                    Some(piece) if !self.look.keys_only && !has_expired(version.ts, self.look.cut) => {
                        out.push_piece(&prefix, piece, version.ts);
                    }
                    _ => {
                        block.whole_key_into(suffix, &mut self.key);
                        self.give(version, out)?;
                    }
                }
                decided = Some(suffix);
            }
        }
        if let Some(suffix) = decided {
            block.whole_key_into(suffix, &mut self.key);
            self.has_key = true;
        }
        Ok(!is_over)
    }

    /// True if the range ends before this key of a block.
    fn is_past(&mut self, block: &DataBlock, suffix: &[u8]) -> bool {
        block.whole_key_into(suffix, &mut self.key);
        self.look.range.is_above(&self.key)
    }

    fn fill_backward(&mut self, out: &mut EntryBatch, max: usize) -> Result<()> {
        while self.place.is_some() {
            if !self.enter()? {
                continue;
            }
            let block = self.block.clone().expect("just entered");
            let mut i = self.place.and_then(|place| place.at).expect("just entered");
            loop {
                if !(self.has_key && block.is_of(i, &self.key)) {
                    self.give_found(out)?;
                    if out.has_enough(max) {
                        self.place = self.place.map(|place| Place { at: Some(i), ..place });
                        return Ok(());
                    }
                    block.key_into(i, &mut self.key);
                    self.has_key = true;
                    if self.look.range.is_below(&self.key) {
                        self.place = None;
                        return Ok(());
                    }
                }
                if block.version(i).1.ts <= self.look.at {
                    self.found = Some((block.clone(), i));
                }
                match i.checked_sub(1) {
                    Some(before) => i = before,
                    None => break,
                }
            }
            self.leave_block();
        }
        if !out.has_enough(max) {
            self.give_found(out)?;
        }
        Ok(())
    }

    fn give_found(&mut self, out: &mut EntryBatch) -> Result<()> {
        match self.found.take() {
            Some((block, i)) => self.give(block.version(i).1, out),
            None => Ok(()),
        }
    }
}

impl Drop for RunSource {
    fn drop(&mut self) {
        if self.skipped > 0 {
            self.look.core.counters.add_prefix_skips(self.passed == 0, u64::from(self.skipped));
        }
    }
}

impl Source for RunSource {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        out.clear();
        if !self.started {
            self.start()?;
        }
        match self.look.direction {
            Direction::Forward => self.fill_forward(out, max.max(1))?,
            Direction::Backward => self.fill_backward(out, max.max(1))?,
        }
        Ok(self.place.is_some() || self.found.is_some())
    }
}
