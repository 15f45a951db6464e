//! Many sources into runs, a piece at a time.
//!
//! Steps for each key: (1) the versions of all sources that stand on it are gathered, newest first, copies of one left out; (2) what
//! nobody may see goes ([`Collection`]); (3) the rest is written. Mostly there is one version, which need not be gathered. A whole
//! partition of a run behind which every other source stands, or a stretch of such blocks, is taken over as it is, unread, if nothing can
//! be collected in it; none of a run of which something has expired for everybody.
//!
//! A run is ended when it has the bytes it should, or where one begins that has to stay apart: always between two keys. There the merge can be
//! cut ([`Merge::cut`]): what it has written has all versions of the keys passed, what is left of its sources all of the others. So its sources give
//! way piece by piece, and it needs little more space than a few runs take. What was not handed out so is undone if the merge ends early:
//! the sources stay in the list, and are read, until then.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use base::{CommitTs, Result};
use index::expiry::has_expired;
use index::loser_tree::LoserTree;
use store::{AllocScope, Block, KeyHash};

use crate::choose::compression_of;
use crate::collect::{Collection, Fate, Says};
use crate::index_block::Named;
use crate::input::{Input, Whole};
use crate::lsm::Env;
use crate::run::Run;
use crate::writer::{NewValue, Writer, level_compression};

/// A block is taken over only if that ends no other one that has less than so much of its size: small blocks would stay for good.
const SMALL_BLOCK: usize = 4;
/// Nor if it is small itself, by what it takes on disk, where most blocks take at least one in so many bytes of what they hold.
const COMPRESSED: usize = 16;
/// Nor if not so many, full and as large on disk as in memory, lie together with nobody else's keys between: a few that stay behind
/// hold all of their extent, and end the batch of what is written around them.
const STRETCH_BLOCKS: usize = 8;
/// What taking something over costs, as bytes of a step: next to nothing.
const TAKEN_BYTES: usize = 512;
/// What a version costs beside its key and value, and what a large value that stays where it is does.
const ENTRY_BYTES: usize = 16;
const KEPT_BYTES: usize = 64;

/// What a merge makes.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub level: u8,
    pub scope: AllocScope,
    /// Bytes of a run, about.
    pub run_bytes: u64,
    /// Where runs have to end, ascending: keys at which others begin that they may not reach over.
    pub ends: VecDeque<Vec<u8>>,
}

/// Runs that were written, and bytes that were written for them.
pub(crate) type Written = (Vec<Arc<Run>>, u64);

/// A merge under way.
pub(crate) struct Merge {
    env: Env,
    inputs: Vec<Input>,
    /// By key; who has ended comes last.
    order: LoserTree,
    collection: Collection,
    outcome: Outcome,
    writer: Writer,
    /// What is ended and was not handed out.
    ended: Written,
    /// Bytes of blocks in it that were taken over.
    moved: u64,
    pub log_need: CommitTs,
    key: Vec<u8>,
    gathered: Vec<(CommitTs, Owned, bool)>,
    stamps: Vec<(CommitTs, Says)>,
    fates: Vec<Fate>,
    /// The input whose blocks are being taken over, one behind the other.
    taking: Option<usize>,
    /// Versions that went in.
    pub entries: u64,
    /// Of these, so many went since they had expired, and nobody was told yet.
    expired: u64,
}

/// A value between its source and the writer.
enum Owned {
    Delete,
    Bytes(Vec<u8>),
    Kept(u64, Vec<Arc<Block>>),
}

/// What one call did.
pub(crate) struct Step {
    /// Versions looked at.
    pub entries: u64,
    /// Nothing is left.
    pub is_done: bool,
    /// So many runs are ended and were not handed out; only then, and only right now, it may be cut.
    pub ended: usize,
}

impl Merge {
    /// A merge of `inputs`; `log_need` is the highest timestamp in them, or that anything was left out of them for.
    pub fn new(env: &Env, outcome: Outcome, inputs: Vec<Input>, collection: Collection, log_need: CommitTs) -> Self {
        Self {
            env: env.clone(),
            order: LoserTree::new(inputs.len(), |a, b| is_before(&inputs, a, b)),
            inputs,
            collection,
            writer: Writer::new(env, outcome.level, outcome.scope),
            outcome,
            ended: Written::default(),
            moved: 0,
            log_need,
            key: Vec::new(),
            gathered: Vec::new(),
            stamps: Vec::new(),
            fates: Vec::new(),
            taking: None,
            entries: 0,
            expired: 0,
        }
    }

    /// Goes on until about so many bytes were looked at, or a run is ended.
    pub fn step(&mut self, bytes: usize) -> Result<Step> {
        let (mut seen, before) = (0, self.entries);
        let ended = self.ended.0.len();
        while seen < bytes {
            let Some(least) = self.least() else { break };
            if self.is_end(least)? {
                self.end_run()?;
                if self.ended.0.len() > ended {
                    let ended = self.ended.0.len();
                    return Ok(Step { entries: self.entries - before, is_done: false, ended });
                }
            }
            seen += match self.take_over(least)? {
                Some(bytes) => bytes,
                None => {
                    self.taking = None;
                    if self.has_key_alone(least) && self.inputs[least].is_last_of_key(&self.env)? {
                        self.pass_version(least)?
                    } else {
                        self.merge_key(least)?
                    }
                }
            };
        }
        Ok(Step { entries: self.entries - before, is_done: self.least().is_none(), ended: 0 })
    }

    /// True if the next key may not be in the run under way.
    fn is_end(&mut self, least: usize) -> Result<bool> {
        let key = self.inputs[least].key();
        let behind = self.outcome.ends.partition_point(|end| **end <= *key);
        self.outcome.ends.drain(..behind);
        if behind == 0 && self.writer.stored_bytes() >= self.outcome.run_bytes {
            // What waits counts as before compression: runs that end by it are too small, and would be joined to as small ones for ever.
            self.writer.write_batch()?;
        }
        Ok(!self.writer.is_empty() && (behind > 0 || self.writer.stored_bytes() >= self.outcome.run_bytes))
    }

    fn end_run(&mut self) -> Result<()> {
        let fresh = Writer::new(&self.env, self.outcome.level, self.outcome.scope);
        self.moved += self.writer.moved_bytes();
        let (run, bytes) = std::mem::replace(&mut self.writer, fresh).finish_before(self.log_need)?;
        self.ended.0.extend(run);
        self.ended.1 += bytes;
        Ok(())
    }

    /// Right after a step that ended a run: hands out what was written, and what is left of the sources, runs of their own where
    /// need be.
    pub fn cut(&mut self) -> Result<(Written, Vec<Arc<Run>>)> {
        let mut left = Vec::new();
        for input in &mut self.inputs {
            let (runs, bytes) = input.cut(&self.env)?;
            left.extend(runs);
            self.ended.1 += bytes;
        }
        Ok((std::mem::take(&mut self.ended), left))
    }

    /// The runs that were not handed out; none if nothing is left of the sources.
    pub fn finish(&mut self) -> Result<Written> {
        let fresh = Writer::new(&self.env, self.outcome.level, self.outcome.scope);
        self.moved += self.writer.moved_bytes();
        let (run, bytes) = std::mem::replace(&mut self.writer, fresh).finish(self.log_need)?;
        let (mut runs, before) = std::mem::take(&mut self.ended);
        runs.extend(run);
        Ok((runs, before + bytes))
    }

    /// Bytes of blocks that were taken over, in what was handed out since this was asked last.
    pub fn pass_moved(&mut self) -> u64 {
        std::mem::take(&mut self.moved)
    }

    /// Versions that had expired, since this was asked last.
    pub fn pass_expired(&mut self) -> u64 {
        std::mem::take(&mut self.expired)
    }

    /// An input that stands on the lowest key.
    fn least(&self) -> Option<usize> {
        self.order.winner().filter(|least| self.inputs[*least].stands())
    }

    /// True if no other input stands on the key of the least one.
    fn has_key_alone(&self, least: usize) -> bool {
        debug_assert_eq!(self.order.winner(), Some(least), "others are known of the least one only");
        let is_same = |other: &Input| other.stands() && other.cmp_key(&self.inputs[least]) == Ordering::Equal;
        !self.order.beaten().any(|other| is_same(&self.inputs[other]))
    }

    /// The least input has moved on.
    fn replay(&mut self) {
        self.order.replay(|a, b| is_before(&self.inputs, a, b));
    }

    /// The lowest key on which another input than the least one stands.
    fn next_key(&self) -> Option<&[u8]> {
        self.order.beaten().map(|other| &self.inputs[other]).filter(|other| other.stands()).map(Input::key).min()
    }

    /// True if every other source stands behind `past`.
    fn is_apart(&self, past: &[u8]) -> bool {
        self.next_key().is_none_or(|key| key > past)
    }

    /// A partition or a block as it is, if that can be. Returns about what it cost.
    fn take_over(&mut self, least: usize) -> Result<Option<usize>> {
        let open = self.writer.open_bytes();
        let small = self.env.options.node_bytes / SMALL_BLOCK;
        let Some(level) = self.inputs[least].level() else { return Ok(None) };
        if self.may_have_expired(least) {
            return Ok(None);
        }
        let is_compressed = compression_of(level_compression(&self.env), level) == self.writer.compression();
        if !is_compressed || (open > 0 && open < small) {
            return Ok(None);
        }
        if self.take_over_partition(least)? {
            // The blocks behind it lie beside it.
            self.taking = Some(least);
            return Ok(Some(TAKEN_BYTES));
        }
        self.inputs[least].read_index(&self.env)?;
        let Some(Whole { it: named, next, run }) = self.inputs[least].whole_block() else { return Ok(None) };
        // All keys of the block lie below the next one, or are at most the run's last.
        let past = next.unwrap_or(&run.info.max_key);
        // A key that goes on in the next block is not alone in this one.
        let goes_on = next.is_some_and(|next| named.may_have(KeyHash::of(next)));
        if !self.is_wanted(&named) || goes_on || !self.is_apart(past) {
            return Ok(None);
        }
        if self.taking != Some(least) && !self.is_stretch(least) {
            return Ok(None);
        }
        // Not all of its blocks are where the index says: it is read, and that is found.
        let Some(parts) = self.inputs[least].parts() else { return Ok(None) };
        let (past, ts) = (past.to_vec(), (run.info.oldest, run.info.newest));
        self.entries += u64::from(named.entries);
        self.writer.take_over(&named, parts, past, ts)?;
        self.inputs[least].pass_block(&self.env)?;
        self.replay();
        self.taking = Some(least);
        Ok(Some(TAKEN_BYTES))
    }

    /// True if a block may be taken over, as far as it is only its own affair.
    fn is_wanted(&self, named: &Named<'_>) -> bool {
        let small = self.env.options.node_bytes / SMALL_BLOCK;
        named.is_plain() && u64::from(named.block.stored_bytes) >= (small / COMPRESSED) as u64
    }

    /// True if enough blocks of the input lie in front of all other sources to leave them where they are.
    fn is_stretch(&self, least: usize) -> bool {
        let bytes = (STRETCH_BLOCKS * self.env.options.node_bytes) as u64;
        self.inputs[least].stretches(self.next_key(), bytes, |named| self.is_wanted(named))
    }

    /// Blocks do not say how old their versions are, runs do.
    fn may_have_expired(&self, least: usize) -> bool {
        let expired = self.collection.expired();
        self.inputs[least].oldest_of_run().is_some_and(|oldest| has_expired(oldest, expired))
    }

    fn take_over_partition(&mut self, least: usize) -> Result<bool> {
        let Some(Whole { it: partition, next, run }) = self.inputs[least].whole_partition() else { return Ok(false) };
        let info = &partition.info;
        let past = next.unwrap_or(&run.info.max_key);
        if info.live != info.entries || !self.is_apart(past) {
            return Ok(false);
        }
        if !self.writer.take_over_partition(partition, past, (run.info.oldest, run.info.newest))? {
            return Ok(false);
        }
        self.entries += info.entries;
        self.inputs[least].pass_partition(&self.env)?;
        self.replay();
        Ok(true)
    }

    /// Steps 2 and 3 for a key that has one version, of one input. Returns its bytes.
    fn pass_version(&mut self, least: usize) -> Result<usize> {
        let Self { env, inputs, collection, writer, stamps, fates, key, .. } = self;
        let input = &mut inputs[least];
        let ts = input.ts();
        key.clear();
        key.extend_from_slice(input.key());
        let bytes = input.with_value(env, |value, is_fresh| {
            let bytes = key.len() + bytes_of(&value) + ENTRY_BYTES;
            stamps.clear();
            stamps.push((ts, says(&value, is_fresh)));
            collection.judge(key, stamps, fates);
            let fate = fates[0];
            if fate != Fate::Goes {
                writer.push(key, ts, value, is_fresh && fate == Fate::Stays)?;
            }
            Ok(bytes)
        })?;
        self.expired += u64::from(has_expired(ts, collection.expired()));
        self.entries += 1;
        input.advance(env)?;
        self.replay();
        Ok(bytes)
    }

    /// Steps 1 to 3 for one key. Returns its bytes.
    fn merge_key(&mut self, least: usize) -> Result<usize> {
        let Self { env, inputs, order, gathered, key, .. } = self;
        key.clear();
        key.extend_from_slice(inputs[least].key());
        gathered.clear();
        let mut bytes = 0;
        while let Some(input) = order.winner().map(|least| &mut inputs[least])
            && input.stands()
            && input.key() == key.as_slice()
        {
            let ts = input.ts();
            let (value, is_fresh) = input.with_value(env, |value, is_fresh| {
                bytes += key.len() + bytes_of(&value) + ENTRY_BYTES;
                Ok((Owned::from(value), is_fresh))
            })?;
            gathered.push((ts, value, is_fresh));
            self.entries += 1;
            input.advance(env)?;
            order.replay(|a, b| is_before(inputs, a, b));
        }
        gathered.sort_by_key(|(ts, ..)| std::cmp::Reverse(*ts));
        gathered.dedup_by_key(|(ts, ..)| *ts);
        self.stamps.clear();
        self.stamps.extend(gathered.iter().map(|(ts, value, is_fresh)| (*ts, says(&value.lent(), *is_fresh))));
        self.collection.judge(key, &self.stamps, &mut self.fates);
        let expired = self.collection.expired();
        self.expired += self.stamps.iter().filter(|(ts, _)| has_expired(*ts, expired)).count() as u64;
        for ((ts, value, is_fresh), fate) in gathered.drain(..).zip(&self.fates) {
            if *fate != Fate::Goes {
                self.writer.push(key, ts, value.lent(), is_fresh && *fate == Fate::Stays)?;
            }
        }
        Ok(bytes)
    }
}

/// True if the key of input `a` is lower than that of `b`. One that has ended comes last.
fn is_before(inputs: &[Input], a: usize, b: usize) -> bool {
    let (a, b) = (&inputs[a], &inputs[b]);
    if a.stands() && b.stands() { a.cmp_key(b) == Ordering::Less } else { a.stands() }
}

fn says(value: &NewValue<'_>, is_fresh: bool) -> Says {
    match value {
        NewValue::Delete => Says::Delete,
        _ if is_fresh => Says::Fresh,
        _ => Says::Put,
    }
}

/// Bytes of a value that were looked at.
fn bytes_of(value: &NewValue<'_>) -> usize {
    match value {
        NewValue::Delete => 0,
        NewValue::Bytes(bytes) => bytes.len(),
        NewValue::Kept { .. } => KEPT_BYTES,
    }
}

impl From<NewValue<'_>> for Owned {
    fn from(value: NewValue<'_>) -> Self {
        match value {
            NewValue::Delete => Owned::Delete,
            NewValue::Bytes(bytes) => Owned::Bytes(bytes.to_vec()),
            NewValue::Kept { value_bytes, pieces } => Owned::Kept(value_bytes, pieces),
        }
    }
}

impl Owned {
    fn lent(&self) -> NewValue<'_> {
        match self {
            Owned::Delete => NewValue::Delete,
            Owned::Bytes(bytes) => NewValue::Bytes(bytes),
            Owned::Kept(value_bytes, pieces) => NewValue::Kept { value_bytes: *value_bytes, pieces: pieces.clone() },
        }
    }
}
