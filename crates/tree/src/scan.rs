//! Leaves as a sorted source, both ways.
//!
//! A [`LeafSource`] copies out of one leaf at a time. Steps: (1) descend to where it stands, hopping over children
//! whose dead mark hides them from the reader [A25]; (2) under the shared latch, copy entries until enough are there,
//! the leaf ends or the range ends; (3) let everything go and remember the KEY to go on from, never a position: between
//! two leaves the tree may change in any way.
//!
//! A hop trusts that the marked child covers what its parent says. That holds only while the parent is current: a
//! split shrinks the child without touching the old parent. So after reading marks, the parent's cell is looked at
//! again; if it was replaced, the descent starts over:
//!
//! > A reader stands on N, where A has [a, z). A splits at m, A2 with a live row is N's successor's child. What is
//! > left of A is deleted: A is marked. The reader sees the mark and hops to z: the row in [m, z) is missed.
//!
//! For the same reason the place sought must be in the node's range before the node's children are looked at: whoever
//! came by an old grandparent may stand on a current node that lost the place to its right half.
//!
//! What cannot be read is a fault, or, if the source is told to skip, a range that is added to a list: that of the leaf,
//! that of the inner node as its parent has it, or one key whose large value is damaged. The source goes on beyond it.
//!
//! A source that is merged with runs shows tombstones, which hide what a run holds, and hops only where none does: a
//! tombstone hides puts that are older, so a leaf whose highest delete is older than every run with a put may be hopped
//! over. Runs of deletes alone are in nobody's way.

use std::ops::{Bound, Deref, Range};
use std::sync::Arc;

use base::{CommitTs, Fault, Result};
use index::damaged::just_above;
use index::merge::Source;
use index::{DamagedRange, Direction, EntryBatch, KeyRange, ReadAt, Skips};
use store::epoch::{self, Guard};

use crate::descent::{Place, Seek, Stop, loaded};
use crate::handle::{Child, InnerHandle, LeafHandle, LeafSlot, LeafState, Resident};
use crate::image::Fence;
use crate::load::range;
use crate::node::{Key, Leaf};
use crate::read::{Distant, Found, locate};
use crate::settle::{Around, Payloads};
use crate::tree::{Core, Hand};

/// Leaves visited in one call, at most: the caller may want to look around.
const LEAVES_PER_FILL: usize = 64;

/// The leaves as a sorted source.
pub(crate) struct LeafSource {
    pub hand: Hand,
    pub stand: Stand,
}

/// Where a source stands. Apart from the tree, so that a step clones no pointer to it.
pub(crate) struct Stand {
    pub at: ReadAt,
    pub direction: Direction,
    /// What is left.
    pub range: KeyRange,
    /// For a merge: every key's version, deletes too.
    pub show_tombstones: bool,
    /// Tombstones above this may hide what is merged: no hops over them.
    pub needed_above: CommitTs,
    /// Damage is passed over, and told here.
    pub skips: Option<Skips>,
    /// Values that lie on disk by themselves are not read.
    pub keys_only: bool,
    ended: bool,
    key: Vec<u8>,
    /// Blocks of messages that reach into the leaf that was loaded last.
    payloads: Payloads,
    /// Fences that it passed, going from neighbour to neighbour; 0: it sought the leaf.
    passed: usize,
}

/// What a visit of a leaf came to.
enum Visit {
    /// Enough was copied; the last key copied is in `key`.
    Full,
    /// The next entry's value must be read from disk; its key is in `key`.
    Distant(CommitTs, Distant),
    /// The leaf has no more; go on beyond its fence.
    LeafEnd,
    /// The range has no more.
    RangeEnd,
}

/// Step 1's end.
enum Hop<'g> {
    /// This leaf; if a key is given, from there on.
    Leaf(Place<'g>, Option<Vec<u8>>),
    /// All children were hidden: go on from this fence.
    Beyond(Vec<u8>),
    End,
    Stop(Stop),
}

impl Stand {
    pub fn new(at: ReadAt, range: KeyRange, direction: Direction) -> Self {
        let ended = range.is_empty();
        Self {
            at,
            direction,
            range,
            show_tombstones: false,
            needed_above: CommitTs::MAX,
            skips: None,
            keys_only: false,
            ended,
            key: Vec::new(),
            payloads: Payloads::default(),
            passed: 0,
        }
    }

    /// The next entry lies beyond `key`.
    pub fn go_on_past(&mut self, key: &[u8]) {
        let bound = match self.direction {
            Direction::Forward => &mut self.range.low,
            Direction::Backward => &mut self.range.high,
        };
        set_bound(bound, key, true);
    }

    /// The next entry lies at or above (below) `fence`.
    fn go_on_from(&mut self, fence: &[u8]) {
        self.passed += 1;
        match self.direction {
            Direction::Forward => set_bound(&mut self.range.low, fence, false),
            Direction::Backward => set_bound(&mut self.range.high, fence, true),
        }
        self.ended = self.range.is_empty();
    }

    /// One leaf.
    fn step(&mut self, core: &Core, out: &mut EntryBatch, max: usize) -> Result<()> {
        while let Some(missing) = self.step_in_memory(core, out, max)? {
            match missing {
                Missing::Leaf(leaf) => {
                    if let Err(fault) = self.load(core, &leaf) {
                        if self.step_around(core, &leaf, out, max)? {
                            return Ok(());
                        }
                        let high = leaf.latch.read().high.clone();
                        return self.pass(core, fault, &leaf.low, high.as_deref());
                    }
                }
                Missing::Stop(Stop::Cold(cold)) => {
                    if let Err(fault) = core.load_inner(&cold) {
                        return self.pass(core, fault, &cold.low, cold.high.as_deref());
                    }
                }
                Missing::Stop(Stop::Obsolete) => vfs::thread::spin(),
            }
        }
        Ok(())
    }

    /// The same, or what it would need that is not in memory.
    fn step_in_memory(&mut self, core: &Core, out: &mut EntryBatch, max: usize) -> Result<Option<Missing>> {
        loop {
            let guard = epoch::pin();
            let place = match self.hop(core, &guard) {
                Hop::End => {
                    self.ended = true;
                    return Ok(None);
                }
                Hop::Beyond(fence) => {
                    self.go_on_from(&fence);
                    return Ok(None);
                }
                Hop::Stop(stop) => return Ok(Some(Missing::Stop(stop))),
                Hop::Leaf(place, None) => place,
                Hop::Leaf(place, Some(fence)) => {
                    self.go_on_from(&fence);
                    if self.ended {
                        return Ok(None);
                    }
                    place
                }
            };
            vfs::thread::point("tree.before_latch");
            let slot = place.leaf.latch.read();
            if !place.is_for(self.seek(), &slot, &guard) {
                continue;
            }
            let visit = match &slot.state {
                LeafState::Resident(resident) => {
                    place.leaf.note_read();
                    self.copy(resident, &slot, out, max)
                }
                LeafState::Empty => Visit::LeafEnd,
                LeafState::Cold | LeafState::Parked(_) | LeafState::Loading(_) => {
                    return Ok(Some(Missing::Leaf(place.leaf.clone())));
                }
                LeafState::Obsolete => unreachable!("not for anybody"),
            };
            return self.finish(core, visit, &place.leaf.low, slot, out).map(|()| None);
        }
    }

    fn load(&mut self, core: &Core, leaf: &Arc<LeafHandle>) -> Result<()> {
        if self.passed == 0 {
            return core.load_to_read(leaf, &mut self.payloads);
        }
        if self.direction == Direction::Forward && !self.payloads.images.has(leaf) {
            core.read_ahead_of_scan(leaf, self.passed, &self.range, &mut self.payloads);
        }
        core.load_leaf_with(leaf, None, &mut self.payloads)
    }

    /// One leaf that lacks messages which cannot be read: what else there is of it, if damage is passed over. It is put together
    /// anew each time, and is nobody else's. False if there is nothing.
    #[cold]
    fn step_around(&mut self, core: &Core, leaf: &LeafHandle, out: &mut EntryBatch, max: usize) -> Result<bool> {
        let Some(skips) = self.skips.as_ref().filter(|_| core.env.options.buffered) else { return Ok(false) };
        let Some(Around { parts, missing }) = core.read_around(leaf)? else { return Ok(false) };
        missing.into_iter().for_each(|(range, newest)| skips.add(range, newest));
        let holds = |slot: &LeafSlot| {
            let resident = slot.resident().expect("it was made so");
            match self.seek() {
                Seek::At(key) => slot.is_below_high(key),
                Seek::Before(key) => *resident.leaf.lo() < *key && slot.high.as_deref().is_none_or(|high| high >= key),
                Seek::Last => slot.high.is_none(),
            }
        };
        let Some(part) = parts.into_iter().find(holds) else { return Ok(false) };
        let resident = part.resident().expect("it was made so");
        let low = resident.leaf.lo().to_vec();
        let visit = self.copy(resident, &part, out, max);
        self.finish(core, visit, &low, &part, out)?;
        Ok(true)
    }

    /// Goes on beyond `[low, high)`, which cannot be read, if that is what the source is to do.
    #[cold]
    fn pass(&mut self, core: &Core, fault: Fault, low: &[u8], high: Option<&[u8]>) -> Result<()> {
        let Some(skips) = &self.skips else {
            return Err(fault.in_index(core.env.id, || range(low, high.map(Fence::from).as_ref())));
        };
        skips.add(DamagedRange::met(fault, core.env.id, low, high)?, core.runs.missing_in_leaves());
        match (self.direction, high) {
            (Direction::Forward, Some(high)) => self.go_on_from(high),
            (Direction::Backward, _) if !low.is_empty() => self.go_on_from(low),
            _ => self.ended = true,
        }
        Ok(())
    }

    /// Step 3.
    fn finish(
        &mut self,
        core: &Core,
        visit: Visit,
        low: &[u8],
        slot: impl Deref<Target = LeafSlot>,
        out: &mut EntryBatch,
    ) -> Result<()> {
        match visit {
            Visit::Full => self.pass_key(),
            Visit::RangeEnd => self.ended = true,
            Visit::LeafEnd => match (self.direction, slot.high.as_deref()) {
                (Direction::Forward, Some(high)) => self.go_on_from(high),
                (Direction::Backward, _) if !low.is_empty() => self.go_on_from(low),
                _ => self.ended = true,
            },
            Visit::Distant(ts, distant) => {
                drop(slot);
                match core.read_distant(&distant) {
                    Ok(value) => {
                        out.push(&self.key, &value, ts);
                        self.pass_key();
                    }
                    Err(fault) => {
                        let key = std::mem::take(&mut self.key);
                        self.pass(core, fault, &key, Some(&just_above(&key)))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn pass_key(&mut self) {
        let key = std::mem::take(&mut self.key);
        self.go_on_past(&key);
        self.key = key;
    }

    fn seek(&self) -> Seek<'_> {
        match self.direction {
            Direction::Forward => match &self.range.low {
                Bound::Included(key) | Bound::Excluded(key) => Seek::At(key),
                Bound::Unbounded => Seek::At(b""),
            },
            Direction::Backward => match &self.range.high {
                Bound::Excluded(key) => Seek::Before(key),
                Bound::Included(key) => Seek::At(key),
                Bound::Unbounded => Seek::Last,
            },
        }
    }

    /// Step 1.
    fn hop<'g>(&self, core: &'g Core, guard: &'g Guard) -> Hop<'g> {
        let mut hopped: Option<Vec<u8>> = None;
        let mut parent: &'g InnerHandle = &core.root;
        let mut above = None;
        loop {
            let Some(keys) = loaded(parent, guard) else { return Hop::Stop(core.stop(parent, above)) };
            let seek = match &hopped {
                Some(fence) if self.direction == Direction::Forward => Seek::At(fence),
                Some(fence) => Seek::Before(fence),
                None => self.seek(),
            };
            let first = seek.choose(keys);
            if seek.is_beyond(keys, first) {
                return Hop::Stop(Stop::Obsolete);
            }
            vfs::thread::point("tree.before_hop");
            let mut index = first;
            let hidden = |i: usize| keys.child(i).mark().hides_from(self.at, self.needed_above);
            while hidden(index) {
                let next = match self.direction {
                    Direction::Forward => Some(index + 1).filter(|i| *i < keys.len()),
                    Direction::Backward => index.checked_sub(1),
                };
                let Some(next) = next else { break };
                index = next;
            }
            let all_hidden = hidden(index);
            if index != first || all_hidden {
                vfs::thread::point("tree.hop");
                if !loaded(parent, guard).is_some_and(|now| std::ptr::eq(now, keys)) {
                    return Hop::Stop(Stop::Obsolete);
                }
            }
            if all_hidden {
                return match self.direction {
                    Direction::Forward => keys.hi().map_or(Hop::End, |hi| Hop::Beyond(hi.to_vec())),
                    Direction::Backward if keys.lo().is_empty() => Hop::End,
                    Direction::Backward => Hop::Beyond(keys.lo().to_vec()),
                };
            }
            if index != first {
                let (low, high) = keys.fence_of(index);
                hopped = Some(match self.direction {
                    Direction::Forward => low,
                    Direction::Backward => high.expect("a child before another one ends"),
                });
            }
            match keys.child(index) {
                Child::Leaf(leaf) => return Hop::Leaf(Place::new(leaf, parent, keys, index), hopped),
                Child::Inner(inner) => {
                    above = Some((keys, index));
                    parent = inner;
                }
            }
        }
    }

    /// Step 2.
    fn copy(&mut self, resident: &Resident, slot: &LeafSlot, out: &mut EntryBatch, max: usize) -> Visit {
        let leaf = &resident.leaf;
        let (mut slots, end) = self.window(leaf, slot);
        loop {
            slots = leaf.copy_puts(slots, self.at, self.direction, out, max);
            if out.len() >= max {
                self.key.clear();
                self.key.extend_from_slice(out.key(out.len() - 1));
                return Visit::Full;
            }
            let item = match (self.direction, self.show_tombstones) {
                (Direction::Forward, false) => leaf.next_live(slots.clone(), self.at),
                (Direction::Forward, true) => leaf.next_item(slots.clone(), self.at),
                (Direction::Backward, false) => leaf.previous_live(slots.clone(), self.at),
                (Direction::Backward, true) => leaf.previous_item(slots.clone(), self.at),
            };
            let Some(item) = item else { return end };
            match self.direction {
                Direction::Forward => slots.start = item.next,
                Direction::Backward => slots.end = item.first,
            }
            let value = match item.value.map(|value| locate(value, resident)) {
                None => None,
                Some(Found::Here(value)) => Some(value),
                Some(Found::Distant(_)) if self.keys_only => Some([].as_slice()),
                Some(Found::Distant(distant)) => {
                    self.note_key(item.key);
                    return Visit::Distant(item.ts, distant);
                }
            };
            out.push_split(item.key.prefix, item.key.suffix, value, item.ts);
            if out.len() >= max {
                self.note_key(item.key);
                return Visit::Full;
            }
        }
    }

    fn note_key(&mut self, key: Key<'_>) {
        self.key.clear();
        key.append_to(&mut self.key);
    }

    /// The slots of the leaf that lie in the range, and what their end is the end of. Only a leaf that may hold the far
    /// bound looks for it.
    fn window(&self, leaf: &Leaf, slot: &LeafSlot) -> (Range<usize>, Visit) {
        let start = || match &self.range.low {
            Bound::Included(key) => leaf.lower_bound(key),
            Bound::Excluded(key) => leaf.upper_bound(key),
            Bound::Unbounded => 0,
        };
        let end = || match &self.range.high {
            Bound::Excluded(key) => leaf.lower_bound(key),
            Bound::Included(key) => leaf.upper_bound(key),
            Bound::Unbounded => leaf.slots(),
        };
        match (self.direction, &self.range.low, &self.range.high) {
            (Direction::Forward, _, Bound::Included(bound) | Bound::Excluded(bound))
                if slot.high.as_deref().is_none_or(|high| high > bound.as_slice()) =>
            {
                (start()..end(), Visit::RangeEnd)
            }
            (Direction::Forward, ..) => (start()..leaf.slots(), Visit::LeafEnd),
            (Direction::Backward, Bound::Included(bound) | Bound::Excluded(bound), _) if *leaf.lo() <= **bound => {
                (start()..end(), Visit::RangeEnd)
            }
            (Direction::Backward, ..) => (0..end(), Visit::LeafEnd),
        }
    }
}

enum Missing {
    Leaf(Arc<LeafHandle>),
    Stop(Stop),
}

fn set_bound(bound: &mut Bound<Vec<u8>>, key: &[u8], excluded: bool) {
    let mut bytes = match std::mem::replace(bound, Bound::Unbounded) {
        Bound::Included(bytes) | Bound::Excluded(bytes) => bytes,
        Bound::Unbounded => Vec::new(),
    };
    bytes.clear();
    bytes.extend_from_slice(key);
    *bound = if excluded { Bound::Excluded(bytes) } else { Bound::Included(bytes) };
}

impl Source for LeafSource {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        out.clear();
        let mut leaves = 0;
        while !self.stand.ended && !out.has_enough(max) && leaves < LEAVES_PER_FILL {
            self.stand.step(&self.hand, out, max)?;
            leaves += 1;
        }
        if self.stand.ended {
            self.stand.payloads.clear();
        }
        Ok(!self.stand.ended)
    }
}
