//! Everything that a source holds, in order, for merging: every version of every key, ascending by key, the newest first.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use base::{CommitTs, Result};
use index::EntryBatch;
use store::{Block, RunCursor};

use crate::block::{DataBlock, Value};
use crate::lsm::{Attached, Env};
use crate::memtable::Memtable;
use crate::run::Run;
use crate::slot::{Slot, ahead_bytes, read_ahead};
use crate::writer::NewValue;

/// A block, where the next one begins (none at the end), and the run.
type WholeBlock<'a> = (&'a Arc<Slot>, Option<&'a [u8]>, &'a Arc<Run>);

/// A source on its way through a merge. It stands on a version, or at its end.
pub(crate) struct Input {
    from: From,
    key: Vec<u8>,
    ts: CommitTs,
    stands: bool,
}

enum From {
    Memtable {
        table: Arc<Memtable>,
        leaf: EntryBatch,
        at: usize,
        next: Option<Vec<u8>>,
    },
    Attached {
        cursor: RunCursor,
        ts: CommitTs,
    },
    Run {
        run: Arc<Run>,
        slot: usize,
        block: Option<Arc<DataBlock>>,
        at: usize,
        /// The blocks behind this one that were read with it.
        ahead: VecDeque<Arc<DataBlock>>,
    },
}

impl Input {
    /// The versions of a memtable to which nobody writes any more.
    pub fn memtable(table: Arc<Memtable>) -> Self {
        let mut input = Self::new(From::Memtable { table, leaf: EntryBatch::new(), at: 0, next: Some(Vec::new()) });
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

    pub fn run(env: &Env, run: Arc<Run>) -> Result<Self> {
        run.index(env)?;
        let mut input = Self::new(From::Run { run, slot: 0, block: None, at: 0, ahead: VecDeque::new() });
        input.note();
        Ok(input)
    }

    fn new(from: From) -> Self {
        Self { from, key: Vec::new(), ts: CommitTs::ZERO, stands: false }
    }

    /// True if it stands on a version.
    pub fn stands(&self) -> bool {
        self.stands
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }

    pub fn ts(&self) -> CommitTs {
        self.ts
    }

    /// The version's value, handed to `with`; of a run the block is read if that was put off.
    pub fn with_value<T>(&mut self, env: &Env, with: impl FnOnce(NewValue<'_>) -> Result<T>) -> Result<T> {
        self.read_block(env)?;
        match &self.from {
            From::Memtable { leaf, at, .. } if leaf.is_tombstone(*at) => with(NewValue::Delete),
            From::Memtable { leaf, at, .. } => with(NewValue::Bytes(leaf.value(*at))),
            From::Attached { cursor, .. } => match cursor.value()? {
                None => with(NewValue::Delete),
                Some(value) => with(NewValue::Bytes(&value)),
            },
            From::Run { run, slot, block, at, .. } => {
                let slot = &run.loaded().expect("loaded at first").slots[*slot];
                match block.as_ref().expect("just read").version(*at).1.value {
                    Value::Delete => with(NewValue::Delete),
                    Value::Inline(value) => with(NewValue::Bytes(value)),
                    Value::Large(pieces) => {
                        let owner = |at| slot.beside.iter().find(|block: &&Arc<Block>| block.at() == at).cloned();
                        let owned: Option<Vec<_>> = pieces.iter().map(owner).collect();
                        match owned {
                            Some(owned) => with(NewValue::Kept { value_bytes: pieces.value_bytes, pieces: owned }),
                            // The index does not name them: they are read, or found missing.
                            None => with(NewValue::Bytes(&crate::slot::read_large(env, pieces, env.id)?)),
                        }
                    }
                }
            }
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
            From::Run { slot, block, at, .. } => {
                *at += 1;
                if block.as_ref().is_some_and(|block| *at == block.len()) {
                    (*slot, *at, *block) = (*slot + 1, 0, None);
                }
            }
        }
        self.note();
        Ok(())
    }

    /// The block that it stands at the beginning of.
    pub fn whole_block(&self) -> Option<WholeBlock<'_>> {
        let From::Run { run, slot, at: 0, .. } = &self.from else { return None };
        let slots = &run.loaded()?.slots;
        Some((slots.get(*slot)?, slots.get(*slot + 1).map(|next| &*next.key), run))
    }

    /// Passes over the block that it stands at the beginning of.
    pub fn pass_block(&mut self) {
        if let From::Run { slot, block, at: 0, ahead, .. } = &mut self.from {
            if block.take().is_none() {
                ahead.pop_front();
            }
            *slot += 1;
        }
        self.note();
    }

    fn load_leaves(&mut self) {
        let From::Memtable { table, leaf, at, next } = &mut self.from else { return };
        while *at == leaf.len() {
            let Some(from) = next.take() else { return };
            (*at, *next) = (0, None);
            leaf.clear();
            *next = table.leaf_from(&Bound::Included(from), |key, ts, value| {
                leaf.push_any(key, value, ts);
                true
            });
        }
    }

    /// A run's first version of a block is known from the index: the block is read only if it has to be.
    fn read_block(&mut self, env: &Env) -> Result<()> {
        let From::Run { run, slot, block: block @ None, ahead, .. } = &mut self.from else { return Ok(()) };
        let Some(slots) = run.loaded().and_then(|index| index.slots.get(*slot..)) else { return Ok(()) };
        let Some(first) = slots.first() else { return Ok(()) };
        *block = ahead.pop_front().or_else(|| first.resident());
        if block.is_none() {
            ahead.extend(read_ahead(env, slots, ahead_bytes(env))?);
            *block = ahead.pop_front();
        }
        Ok(())
    }

    /// Takes key and timestamp of where it stands.
    fn note(&mut self) {
        let Self { from, key, ts, stands } = self;
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
            From::Run { run, slot, block, at, .. } => {
                match (run.loaded().and_then(|index| index.slots.get(*slot)), block) {
                    (None, _) => false,
                    (Some(slot), None) => {
                        key.clear();
                        key.extend_from_slice(&slot.key);
                        *ts = slot.ts;
                        true
                    }
                    (Some(_), Some(block)) => {
                        block.key_into(*at, key);
                        *ts = block.version(*at).1.ts;
                        true
                    }
                }
            }
        };
    }
}
