//! Everything that a source holds, in order, for merging: every version of every key, ascending by key, the newest first.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use base::{CommitTs, Result};
use index::EntryBatch;
use index::merge::front;
use store::{AllocScope, Block, KeyHash, RunCursor};

use crate::block::{DataBlock, Pieces, Value};
use crate::index_block::{IndexBlock, Named};
use crate::index_writer::Parts;
use crate::lsm::{Attached, Env};
use crate::memtable::Memtable;
use crate::partition::Partition;
use crate::run::Run;
use crate::slot::{Slot, ahead_bytes, read_ahead};
use crate::writer::{NewValue, Writer};

/// A block or partition that a source stands at the beginning of.
pub(crate) struct Whole<'a, T> {
    pub it: T,
    /// The first key behind it in the run; none at the end.
    pub next: Option<&'a [u8]>,
    pub run: &'a Run,
}

/// A source on its way through a merge. It stands on a version, or at its end.
pub(crate) struct Input {
    from: From,
    key: Vec<u8>,
    /// Of the key: inputs that differ there are not looked at any further.
    front: u64,
    ts: CommitTs,
    stands: bool,
}

enum From {
    Memtable { table: Arc<Memtable>, leaf: EntryBatch, fresh: Vec<bool>, at: usize, next: Option<Vec<u8>> },
    Attached { cursor: RunCursor, ts: CommitTs },
    Run(Box<InRun>),
}

/// A place in a run. What it stands on is known from what is above it, so that nothing is read before it has to be: a partition from the
/// top, a data block from its index block.
struct InRun {
    run: Arc<Run>,
    /// The runs of the strand behind it.
    rest: VecDeque<Arc<Run>>,
    partition: usize,
    index: Option<Arc<IndexBlock>>,
    /// The data block in the partition.
    slot: usize,
    block: Option<Arc<DataBlock>>,
    /// The version in the data block.
    at: usize,
    /// The blocks behind this one that were read with it, of the same partition.
    ahead: VecDeque<Arc<DataBlock>>,
}

impl InRun {
    /// The beginning of the first of these runs; none if there is none.
    fn at_first(env: &Env, mut runs: VecDeque<Arc<Run>>) -> Result<Option<Self>> {
        let Some(run) = runs.pop_front() else { return Ok(None) };
        run.top(env)?;
        let ahead = VecDeque::new();
        Ok(Some(Self { run, rest: runs, partition: 0, index: None, slot: 0, block: None, at: 0, ahead }))
    }

    /// Behind the last block of a run: to the next run, if there is one.
    fn enter_run(&mut self, env: &Env) -> Result<()> {
        if self.partition().is_none()
            && let Some(next) = Self::at_first(env, std::mem::take(&mut self.rest))?
        {
            *self = next;
        }
        Ok(())
    }

    /// True if nothing of the run was passed.
    fn begins_run(&self) -> bool {
        self.partition == 0 && self.slot == 0 && self.at == 0
    }

    fn partitions(&self) -> &[Arc<Partition>] {
        self.run.loaded().map_or(&[], |top| &top.partitions)
    }

    /// The partition, if it is not at the end.
    fn partition(&self) -> Option<&Arc<Partition>> {
        self.partitions().get(self.partition)
    }

    fn read_index(&mut self, env: &Env) -> Result<()> {
        if self.index.is_none()
            && let Some(partition) = self.partition()
        {
            self.index = Some(partition.share(env)?);
        }
        Ok(())
    }

    fn read_block(&mut self, env: &Env) -> Result<()> {
        self.read_index(env)?;
        let Self { index: Some(index), slot, block: block @ None, ahead, .. } = self else { return Ok(()) };
        *block = ahead.pop_front().or_else(|| Slot { index, at: *slot }.resident());
        if block.is_none() {
            ahead.extend(read_ahead(env, Slot { index, at: *slot }, *slot + 1..index.len(), ahead_bytes(env))?);
            *block = ahead.pop_front();
        }
        Ok(())
    }

    /// To the next data block.
    fn next_block(&mut self) {
        (self.slot, self.at, self.block) = (self.slot + 1, 0, None);
        if self.index.as_ref().is_some_and(|index| self.slot == index.len()) {
            self.next_partition();
        }
    }

    fn next_partition(&mut self) {
        (self.partition, self.index, self.slot, self.at, self.block) = (self.partition + 1, None, 0, 0, None);
        self.ahead.clear();
    }

    /// True if it stands at the beginning of a data block.
    fn begins_block(&self) -> bool {
        self.at == 0
    }

    /// The blocks of a large value, if the index names them.
    fn pieces(&self, pieces: Pieces<'_>) -> Option<Vec<Arc<Block>>> {
        let named = self.index.as_ref()?.get(self.slot);
        let partition = self.partition()?;
        let owner = |at| named.beside().find(|other| *other == at).and_then(|at| partition.part(at));
        pieces.iter().map(owner).collect()
    }

    /// Takes key and timestamp of where it stands. False at the end.
    fn note(&self, key: &mut Vec<u8>, ts: &mut CommitTs) -> bool {
        let Some(partition) = self.partition() else { return false };
        let first = match (&self.index, &self.block) {
            (_, Some(block)) => {
                let (suffix, version) = block.version(self.at);
                block.whole_key_into(suffix, key);
                *ts = version.ts;
                return true;
            }
            (Some(index), None) => index.first_version(self.slot),
            (None, None) => (&*partition.info.key, partition.info.ts),
        };
        key.clear();
        key.extend_from_slice(first.0);
        *ts = first.1;
        true
    }
}

impl Input {
    /// The versions of a memtable to which nobody writes any more.
    pub fn memtable(table: Arc<Memtable>) -> Self {
        let (leaf, fresh, next) = (EntryBatch::new(), Vec::new(), Some(Vec::new()));
        let mut input = Self::new(From::Memtable { table, leaf, fresh, at: 0, next });
        input.load_leaves();
        input.note();
        input
    }

    pub fn attached(attached: &Attached) -> Result<Self> {
        let mut cursor = attached.run.cursor();
        cursor.seek_first()?;
        let mut input = Self::new(From::Attached { cursor, ts: attached.ts });
        input.note();
        Ok(input)
    }

    /// Runs that do not overlap, ascending; at least one.
    pub fn runs(env: &Env, runs: Vec<Arc<Run>>) -> Result<Self> {
        let place = InRun::at_first(env, runs.into())?.expect("at least one");
        let mut input = Self::new(From::Run(Box::new(place)));
        input.note();
        Ok(input)
    }

    fn new(from: From) -> Self {
        Self { from, key: Vec::new(), front: 0, ts: CommitTs::ZERO, stands: false }
    }

    /// The level of the run that it stands in; none if it is in none.
    pub fn level(&self) -> Option<u8> {
        if let From::Run(place) = &self.from { Some(place.run.info.level) } else { None }
    }

    /// The lowest timestamp of the run that it stands in; none if it is in none.
    pub fn oldest_of_run(&self) -> Option<CommitTs> {
        if let From::Run(place) = &self.from { Some(place.run.info.oldest) } else { None }
    }

    /// True if it stands on a version.
    pub fn stands(&self) -> bool {
        self.stands
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// How its key compares with another one's.
    pub fn cmp_key(&self, other: &Self) -> Ordering {
        self.front.cmp(&other.front).then_with(|| self.key.cmp(&other.key))
    }

    pub fn ts(&self) -> CommitTs {
        self.ts
    }

    /// True if its next version surely is of another key: in a run, of the same block, which is read if that was put off.
    pub fn is_last_of_key(&mut self, env: &Env) -> Result<bool> {
        self.read_block(env)?;
        Ok(match &self.from {
            // Keys of a leaf are in no other one.
            From::Memtable { leaf, at, .. } => at + 1 == leaf.len() || leaf.key(at + 1) != self.key,
            // Each key once.
            From::Attached { .. } => true,
            From::Run(place) => place.block.as_ref().is_some_and(|block| {
                let next = place.at + 1;
                next < block.len() && !block.same_key(place.at, next)
            }),
        })
    }

    /// The version's value, handed to `with`, and whether it is a fresh put; of a run the block is read if that was put off.
    pub fn with_value<T>(&mut self, env: &Env, with: impl FnOnce(NewValue<'_>, bool) -> Result<T>) -> Result<T> {
        self.read_block(env)?;
        match &self.from {
            From::Memtable { leaf, at, .. } if leaf.is_tombstone(*at) => with(NewValue::Delete, false),
            From::Memtable { leaf, fresh, at, .. } => with(NewValue::Bytes(leaf.value(*at)), fresh[*at]),
            From::Attached { cursor, .. } => match cursor.value()? {
                None => with(NewValue::Delete, false),
                Some(value) => with(NewValue::Bytes(&value), false),
            },
            From::Run(place) => match place.block.as_ref().expect("just read").version(place.at).1.value {
                Value::Delete => with(NewValue::Delete, false),
                Value::Inline(value) => with(NewValue::Bytes(value), false),
                Value::Fresh(value) => with(NewValue::Bytes(value), true),
                Value::Large(pieces) => match place.pieces(pieces) {
                    Some(owned) => with(NewValue::Kept { value_bytes: pieces.value_bytes, pieces: owned }, false),
                    // The index does not name them: they are read, or found missing.
                    None => with(NewValue::Bytes(&crate::slot::read_large(env, pieces, env.id)?), false),
                },
            },
        }
    }

    /// To the next version.
    pub fn advance(&mut self, env: &Env) -> Result<()> {
        self.read_block(env)?;
        match &mut self.from {
            From::Memtable { at, .. } => {
                *at += 1;
                self.load_leaves();
            }
            From::Attached { cursor, .. } => drop(cursor.next()?),
            From::Run(place) => {
                place.at += 1;
                if place.block.as_ref().is_some_and(|block| place.at == block.len()) {
                    place.next_block();
                    place.enter_run(env)?;
                }
            }
        }
        self.note();
        Ok(())
    }

    /// Runs that have what it has not come through yet, and bytes written for them: where it stands in the middle of a run, the
    /// rest of that is made a run of its own, of the same blocks, and it goes on there. It stands on the first version of a key.
    pub fn cut(&mut self, env: &Env) -> Result<(Vec<Arc<Run>>, u64)> {
        let From::Run(place) = &mut self.from else { return Ok((Vec::new(), 0)) };
        if !self.stands {
            return Ok((Vec::new(), 0));
        }
        let mut bytes = 0;
        if !place.begins_run() {
            let (run, mut runs) = (place.run.clone(), std::mem::take(&mut place.rest));
            let mut writer = Writer::new(env, run.info.level, AllocScope::Ordinary);
            self.copy_until(env, &run, None, &mut writer)?;
            let (left, written) = writer.finish(run.info.log_need)?;
            bytes = written;
            runs.push_front(left.expect("it stood on a version"));
            let place = InRun::at_first(env, runs)?.expect("just put there");
            self.from = From::Run(Box::new(place));
            self.note();
        }
        let From::Run(place) = &self.from else { unreachable!("it was one") };
        Ok((std::iter::once(&place.run).chain(&place.rest).cloned().collect(), bytes))
    }

    /// What is left of the run below a key, as it is where that can be: partitions, blocks, and the versions of blocks of which only a part is
    /// left. None: all of it.
    pub fn copy_until(&mut self, env: &Env, run: &Run, until: Option<&[u8]>, writer: &mut Writer) -> Result<()> {
        let ts = (run.info.oldest, run.info.newest);
        let is_below = |key: &[u8]| until.is_none_or(|until| key < until);
        let mut copied = Vec::new();
        while self.stands && is_below(&self.key) {
            // A key that goes on from the block before, or in the next one, is counted where it begins: both are copied.
            let goes_on = *copied == *self.key;
            if !goes_on && self.take_over_rest(env, run, (ts, until), writer)? {
                copied.clear();
                continue;
            }
            loop {
                copied.clone_from(&self.key);
                let at = self.ts;
                self.with_value(env, |value, is_fresh| writer.push(&copied, at, value, is_fresh))?;
                self.advance(env)?;
                let begins_block = matches!(&self.from, From::Run(place) if place.begins_block());
                if begins_block || !is_below(&self.key) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// One partition or block, if it stands at the beginning of one that can be taken over as it is, and that lies below `until`.
    fn take_over_rest(
        &mut self,
        env: &Env,
        run: &Run,
        (ts, until): ((CommitTs, CommitTs), Option<&[u8]>),
        writer: &mut Writer,
    ) -> Result<bool> {
        let is_below = |next: Option<&[u8]>| until.is_none_or(|until| next.is_some_and(|next| next <= until));
        if let Some(Whole { it, next, .. }) = self.whole_partition().filter(|whole| is_below(whole.next))
            && writer.take_over_partition(it, next.unwrap_or(&run.info.max_key), ts)?
        {
            self.pass_partition(env)?;
            return Ok(true);
        }
        self.read_index(env)?;
        let Some(Whole { it: named, next, .. }) = self.whole_block().filter(|whole| is_below(whole.next)) else {
            return Ok(false);
        };
        if next.is_some_and(|next| named.may_have(KeyHash::of(next))) {
            return Ok(false);
        }
        let Some(parts) = self.parts() else { return Ok(false) };
        writer.take_over(&named, parts, next.unwrap_or(&run.info.max_key).to_vec(), ts)?;
        self.pass_block(env)?;
        Ok(true)
    }

    /// The partition that it stands at the beginning of.
    pub fn whole_partition(&self) -> Option<Whole<'_, &Arc<Partition>>> {
        let From::Run(place) = &self.from else { return None };
        let it = place.partition().filter(|_| place.slot == 0 && place.begins_block())?;
        let next = place.partitions().get(place.partition + 1);
        // A key that goes on in the next one is not alone in this one.
        if next.is_some_and(|next| next.info.continues) {
            return None;
        }
        Some(Whole { it, next: next.map(|next| &*next.info.key), run: &place.run })
    }

    /// Passes over the partition that it stands at the beginning of.
    pub fn pass_partition(&mut self, env: &Env) -> Result<()> {
        if let From::Run(place) = &mut self.from {
            place.next_partition();
            place.enter_run(env)?;
        }
        self.note();
        Ok(())
    }

    /// The block that it stands at the beginning of, if its index block was read; see [`Input::read_index`].
    pub fn whole_block(&self) -> Option<Whole<'_, Named<'_>>> {
        let From::Run(place) = &self.from else { return None };
        let index = place.index.as_ref().filter(|_| place.begins_block())?;
        let next = if place.slot + 1 < index.len() {
            Some(index.first_version(place.slot + 1).0)
        } else {
            place.partitions().get(place.partition + 1).map(|next| &*next.info.key)
        };
        Some(Whole { it: index.get(place.slot), next, run: &place.run })
    }

    /// True if `wanted` blocks of so many bytes on disk, from the one that it stands at the beginning of on, lie below `until`; or all up
    /// to a partition that does.
    pub fn stretches(&self, until: Option<&[u8]>, bytes: u64, wanted: impl Fn(&Named<'_>) -> bool) -> bool {
        let From::Run(place) = &self.from else { return false };
        let Some(index) = &place.index else { return false };
        let is_below = |key: &[u8]| until.is_none_or(|until| key < until);
        let end_of = |partition: usize| match place.partitions().get(partition + 1) {
            Some(next) => &*next.info.key,
            None => &*place.run.info.max_key,
        };
        let mut seen = 0;
        for slot in place.slot..index.len() {
            let is_last = slot + 1 == index.len();
            if !is_below(if is_last { end_of(place.partition) } else { index.first_version(slot + 1).0 }) {
                return false;
            }
            let named = index.get(slot);
            if !wanted(&named) {
                return false;
            }
            seen += u64::from(named.block.stored_bytes);
            if seen >= bytes {
                return true;
            }
        }
        place.partition + 1 < place.partitions().len() && is_below(end_of(place.partition + 1))
    }

    /// The blocks of the block that it stands at the beginning of, for another run to have too.
    pub fn parts(&self) -> Option<Parts> {
        let From::Run(place) = &self.from else { return None };
        let (partition, index) = (place.partition()?, place.index.as_ref()?);
        let blocks = index.get(place.slot).blocks().map(|at| partition.part(at)).collect::<Option<_>>()?;
        Some(Parts { blocks, cell: index.known_cell(place.slot).cloned() })
    }

    /// Passes over the block that it stands at the beginning of.
    pub fn pass_block(&mut self, env: &Env) -> Result<()> {
        if let From::Run(place) = &mut self.from {
            if place.block.is_none() {
                place.ahead.pop_front();
            }
            place.next_block();
            place.enter_run(env)?;
        }
        self.note();
        Ok(())
    }

    /// Reads the index block of where it stands, if that was put off: a look at whole blocks needs it.
    pub fn read_index(&mut self, env: &Env) -> Result<()> {
        match &mut self.from {
            From::Run(place) if place.begins_block() => place.read_index(env),
            _ => Ok(()),
        }
    }

    fn load_leaves(&mut self) {
        let From::Memtable { table, leaf, fresh, at, next } = &mut self.from else { return };
        while *at == leaf.len() {
            let Some(from) = next.take() else { return };
            (*at, *next) = (0, None);
            leaf.clear();
            fresh.clear();
            *next = table.leaf_from(&Bound::Included(from), |key, ts, value, is_fresh| {
                leaf.push_any(key, value, ts);
                fresh.push(is_fresh);
                true
            });
        }
    }

    fn read_block(&mut self, env: &Env) -> Result<()> {
        if let From::Run(place) = &mut self.from { place.read_block(env) } else { Ok(()) }
    }

    /// Takes key and timestamp of where it stands.
    fn note(&mut self) {
        let Self { from, key, ts, stands, .. } = self;
        *stands = match from {
            From::Memtable { leaf, at, .. } if *at < leaf.len() => {
                key.clear();
                key.extend_from_slice(leaf.key(*at));
                *ts = leaf.ts(*at);
                true
            }
            From::Memtable { .. } => false,
            From::Attached { cursor, ts: of } => {
                let stands = cursor.is_valid();
                if stands {
                    key.clear();
                    key.extend_from_slice(cursor.key());
                    *ts = *of;
                }
                stands
            }
            From::Run(place) => place.note(key, ts),
        };
        self.front = front(&self.key);
    }
}
