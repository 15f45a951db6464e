//! Point reads: one latch per leaf, however many of the keys are in it.
//!
//! Steps: (1) the list of attached runs is taken; (2) leaf by leaf in key order, under the shared latch, each key's
//! version is looked up and handed out; a leaf on disk may stay there (`uncached`); (3) a large value that is on disk only is noted, with its blocks held so
//! that they are not reused, and read when the latch is gone; (4) if there are runs, none of which was removed
//! since step 1, the newest of what leaf and runs have counts. A dead mark is no short cut here: the leaf's tombstones hide what the runs hold.

use std::sync::Arc;

use base::bytes::printable;
use base::{CommitTs, Result};
use index::ReadAt;
use store::{Block, BlockRef};

use crate::descent::Seek;
use crate::handle::{LeafHandle, LeafSlot, Resident};
use crate::node::{Lookup, OverflowValue, Value};
use crate::runs::Attached;
use crate::tree::Core;
use crate::uncached::Read;

/// A large value to be read without a latch.
pub(crate) struct Distant {
    refs: Arc<[BlockRef]>,
    /// Keeps the blocks.
    _held: Vec<Arc<Block>>,
    bytes: u64,
}

/// A value as it is found under the latch.
pub(crate) enum Found<'a> {
    Here(&'a [u8]),
    Distant(Distant),
}

/// A value found that is handed out later.
enum Waiting {
    Here(Vec<u8>),
    Distant(Distant),
}

/// Takes the place of a key in the list, the timestamp of its version, and the value; none for a tombstone.
type Each<'a> = dyn FnMut(usize, CommitTs, Option<Found<'_>>) + 'a;

/// A version that a reader sees.
#[derive(Debug)]
pub(crate) struct Version {
    pub ts: CommitTs,
    /// None for a tombstone.
    pub value: Option<Vec<u8>>,
}

/// The newest version of a key at or below `limit`, of what was offered so far.
pub(crate) struct Newest {
    limit: CommitTs,
    pub version: Option<Version>,
}

impl Newest {
    pub fn below(limit: CommitTs) -> Self {
        Self { limit, version: None }
    }

    pub fn offer(&mut self, ts: CommitTs, value: impl FnOnce() -> Option<Vec<u8>>) {
        if ts <= self.limit && !self.is_at_least(ts) {
            self.version = Some(Version { ts, value: value() });
        }
    }

    /// Nothing at or below `ts` is newer.
    pub fn is_at_least(&self, ts: CommitTs) -> bool {
        self.version.as_ref().is_some_and(|version| version.ts >= ts)
    }
}

impl Core {
    pub(crate) fn get_many(
        &self,
        at: ReadAt,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, CommitTs, &[u8]),
    ) -> Result<()> {
        debug_assert!(keys.is_sorted(), "keys ascend");
        self.counters.add_point_reads(keys.len() as u64);
        loop {
            let runs = self.runs.seen_at(at);
            if runs.is_empty() {
                break;
            }
            if self.get_many_merged(at, keys, &runs, found)? {
                return Ok(());
            }
        }
        // Once a value has to wait, all behind it do: they are handed out in key order.
        let mut waiting = Vec::new();
        self.look_up(at, keys, &mut |i, ts, value| match value {
            Some(Found::Here(value)) if waiting.is_empty() => found(i, ts, value),
            Some(Found::Here(value)) => waiting.push((i, ts, Waiting::Here(value.to_vec()))),
            Some(Found::Distant(value)) => waiting.push((i, ts, Waiting::Distant(value))),
            None => {}
        })?;
        for (i, ts, value) in waiting {
            match value {
                Waiting::Here(value) => found(i, ts, &value),
                Waiting::Distant(value) => found(i, ts, &self.read_value_of(keys[i], &value)?),
            }
        }
        Ok(())
    }

    /// Step 2: calls `each` for every key of which the leaves have a version, with its value unless that is a tombstone.
    #[inline]
    fn look_up(&self, at: ReadAt, keys: &[&[u8]], each: &mut Each<'_>) -> Result<()> {
        let mut next = 0;
        while next < keys.len() {
            let cold = |leaf: &Arc<LeafHandle>| self.look_up_cold(leaf, at, &keys[next..]);
            let read = self.read_leaf_or(Seek::At(keys[next]), cold, |place, slot| {
                if let Some(resident) = slot.resident() {
                    place.leaf.note_read();
                    let mut i = next;
                    // The first one is why the leaf was latched.
                    while i == next || (i < keys.len() && slot.is_below_high(keys[i])) {
                        match resident.leaf.get(keys[i], at) {
                            Lookup::Found { ts, value } => each(i, ts, Some(locate(value, resident))),
                            Lookup::Tombstone { ts } => each(i, ts, None),
                            Lookup::Absent => {}
                        }
                        i += 1;
                    }
                    i
                } else {
                    skip_below(slot, keys, next)
                }
            })?;
            next = match read {
                Read::InMemory(next) => next,
                Read::Uncached(version) => {
                    if let Some(Version { ts, value }) = &version {
                        each(next, *ts, value.as_deref().map(Found::Here));
                    }
                    next + 1
                }
            };
        }
        Ok(())
    }

    /// Step 4. False, and nothing handed out, if a run was removed meanwhile.
    fn get_many_merged(
        &self,
        at: ReadAt,
        keys: &[&[u8]],
        runs: &[Arc<Attached>],
        found: &mut dyn FnMut(usize, CommitTs, &[u8]),
    ) -> Result<bool> {
        let mut newest: Vec<_> = keys.iter().map(|_| Newest::below(CommitTs::MAX)).collect();
        let mut distant = Vec::new();
        self.look_up(at, keys, &mut |i, ts, value| match value {
            Some(Found::Here(value)) => newest[i].offer(ts, || Some(value.to_vec())),
            Some(Found::Distant(value)) => distant.push((i, ts, value)),
            None => newest[i].offer(ts, || None),
        })?;
        vfs::thread::point("tree.leaves_read");
        if runs.iter().any(|run| run.is_removed()) {
            return Ok(false);
        }
        for (i, ts, value) in distant {
            let value = self.read_value_of(keys[i], &value)?;
            newest[i].offer(ts, || Some(value));
        }
        for run in runs {
            for (key, newest) in keys.iter().zip(&mut newest) {
                if !newest.is_at_least(run.ts)
                    && let Some(value) = run.run.get(key)?
                {
                    newest.offer(run.ts, || value);
                }
            }
        }
        for (i, newest) in newest.iter().enumerate() {
            if let Some(Version { ts, value: Some(value) }) = &newest.version {
                found(i, *ts, value);
            }
        }
        Ok(true)
    }

    fn read_value_of(&self, key: &[u8], value: &Distant) -> Result<Vec<u8>> {
        self.read_distant(value).map_err(|fault| fault.in_index(self.env.id, || printable(key)))
    }

    /// Step 3.
    pub(crate) fn read_distant(&self, value: &Distant) -> Result<Vec<u8>> {
        self.read_beside(&value.refs, value.bytes)
    }
}

/// The first of the ascending keys at or above the upper fence.
fn skip_below(slot: &LeafSlot, keys: &[&[u8]], from: usize) -> usize {
    from + keys[from..].iter().take_while(|key| slot.is_below_high(key)).count()
}

/// A value in a leaf, or what is needed to read it later.
#[inline]
pub(crate) fn locate<'a>(value: Value<'a>, resident: &Resident) -> Found<'a> {
    match value {
        Value::Inline(bytes) => Found::Here(bytes),
        Value::Overflow(value) => match value.resident() {
            Some(bytes) => Found::Here(bytes),
            None => Found::Distant(distant(value, resident)),
        },
    }
}

#[cold]
fn distant(value: &OverflowValue, resident: &Resident) -> Distant {
    let refs = value.stored().expect("a large value is in memory or stored").clone();
    let held =
        |at: &BlockRef| resident.beside.get(&at.offset).expect("a block that a leaf names is held by it").clone();
    Distant { _held: refs.iter().map(held).collect(), bytes: value.len_bytes(), refs }
}
