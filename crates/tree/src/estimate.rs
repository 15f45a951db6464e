//! How many live keys lie in a range, without reading them.
//!
//! Steps: (1) what undrained runs have in the range is estimated; (2) the leaf at the low end is latched and its part of
//! the range counted; if the range ends there, that is all; (3) the same with the leaf at the high end; (4) what lies
//! between the two leaves is weighed from the inner nodes, which the two descents have brought into memory: the
//! children that lie in the range whole, in groups of neighbours. A group of at most [`LOOKS`] leaves is added up; of a
//! larger one as many children are looked at, one in each of equal parts, and stand for the others.
//!
//! A child that is not in memory says what its image says of it, and what the messages add that the image lacks; nothing is
//! read for it. One that is latched, or whose image is of another range, is left to the average of the others.
//!
//! Nothing is held between the steps, and the tree may change: it is an estimate. Where step 1 says something else behind the others, a drain
//! has moved what was counted, and all is counted again. That there is nothing is said only if
//! no key was seen, dead ones included, and no leaf lies between.

use std::ops::{Bound, Range};

use base::{CommitTs, Result};
use index::{KeyRange, ReadAt};
use store::epoch::{self, Guard};

use crate::buffered::added_keys;
use crate::descent::{Seek, Stop, loaded};
use crate::handle::{Child, InnerHandle, InnerState, LeafHandle, LeafSlot, LeafState};
use crate::image::Fence;
use crate::node::{Inner, Leaf};
use crate::tree::Core;

/// Children of one group that are looked at.
const LOOKS: usize = 16;

/// So often it is counted in the hope that no drain comes in between; then once more, and that counts.
const TRIES: usize = 2;

fn live(leaves: &Counted, (puts, deletes): (u64, u64)) -> u64 {
    let live = (leaves.live.round() as u64 + puts).saturating_sub(deletes);
    live.max(u64::from(leaves.any || puts + deletes > 0))
}

/// What was counted.
#[derive(Debug, Default)]
struct Counted {
    live: f64,
    /// There may be keys of which some reader sees a version.
    any: bool,
}

impl Counted {
    fn add(&mut self, other: &Counted) {
        self.live += other.live;
        self.any |= other.any;
    }
}

impl Core {
    /// Keys in the range whose newest version is a put, about.
    pub(crate) fn estimate(&self, range: &KeyRange) -> Result<u64> {
        if range.is_empty() {
            return Ok(0);
        }
        let mut left = self.left_of_runs(range)?;
        for _ in 0..TRIES {
            vfs::thread::point("tree.runs_estimated");
            let leaves = self.count_leaves(range)?;
            // What is drained meanwhile is counted twice.
            let (before, now) = (left, self.left_of_runs(range)?);
            left = now;
            if before == now {
                return Ok(live(&leaves, before));
            }
        }
        // Rather twice than not at all: the runs before the leaves.
        Ok(live(&self.count_leaves(range)?, left))
    }

    /// Step 1: puts and deletes of undrained runs.
    fn left_of_runs(&self, range: &KeyRange) -> Result<(u64, u64)> {
        let (mut puts, mut deletes) = (0, 0);
        for run in self.runs.seen_at(ReadAt::Newest) {
            let left = run.left_in(range)?;
            puts += left.puts;
            deletes += left.deletes;
        }
        Ok((puts, deletes))
    }

    /// Steps 2 to 4.
    fn count_leaves(&self, range: &KeyRange) -> Result<Counted> {
        let low = match &range.low {
            Bound::Included(key) | Bound::Excluded(key) => Seek::At(key),
            Bound::Unbounded => Seek::At(b""),
        };
        let (mut counted, goes_on_at) = self.read_leaf(low, |_, slot| {
            let goes_on = slot.high.as_ref().filter(|high| !range.is_above(high)).cloned();
            (count_part(slot, range), goes_on)
        })?;
        let Some(from) = goes_on_at else { return Ok(counted) };
        let high = match &range.high {
            Bound::Included(key) => Seek::At(key),
            Bound::Excluded(key) => Seek::Before(key),
            Bound::Unbounded => Seek::Last,
        };
        let (part, to) = self.read_leaf(high, |place, slot| (count_part(slot, range), place.leaf.low.clone()))?;
        counted.add(&part);
        counted.add(&self.count_between(&from, &to));
        Ok(counted)
    }

    /// Step 4: the leaves from the one that starts at `from` to the one before that which starts at `to`.
    fn count_between(&self, from: &Fence, to: &Fence) -> Counted {
        let mut counted = Counted::default();
        if from >= to {
            return counted;
        }
        let guard = epoch::pin();
        let mut groups = Vec::new();
        collect_whole(&self.root, Some(from), Some(to), &guard, &mut groups);
        for group in groups {
            counted.any = true;
            let known = self.weigh(&group, LOOKS, &guard);
            counted.live += known.unwrap_or_else(|| group.children.len() as f64 * self.keys_of_a_leaf());
        }
        counted
    }

    /// Live keys below children, from at most `looks` of them; `None` if none of those could say.
    fn weigh(&self, group: &Group<'_>, looks: usize, guard: &Guard) -> Option<f64> {
        let Group { node, keys, children } = group;
        let looked_at = children.len().min(looks);
        let (mut sum, mut known) = (0.0, 0);
        for n in 0..looked_at {
            // One from each of the equal parts, not always from the same place in it: data may have a period. The golden
            // ratio spreads the places.
            let place = n as f64 + if looked_at < children.len() { (n as f64 * 0.618_034).fract() } else { 0.5 };
            let i = children.start + (place * children.len() as f64 / looked_at as f64) as usize;
            let live = match keys.child(i) {
                Child::Leaf(leaf) => live_of_leaf(leaf).map(|(live, through)| {
                    (live + through.map_or(0.0, |through| added_keys(node, keys, i, through))).max(0.0)
                }),
                Child::Inner(inner) => self.live_below(inner, (looks / looked_at).max(1), guard),
            };
            if let Some(live) = live {
                sum += live;
                known += 1;
            }
        }
        (known > 0).then(|| sum / f64::from(known) * children.len() as f64)
    }

    fn live_below(&self, inner: &InnerHandle, looks: usize, guard: &Guard) -> Option<f64> {
        match inner.cell.load(guard) {
            InnerState::Loaded(node) => {
                let all = Group { node: inner, keys: &node.keys, children: 0..node.keys.len() };
                self.weigh(&all, looks, guard)
            }
            InnerState::Cold => {
                let record = inner.record.lock();
                record.image.as_ref().filter(|image| image.is_exact).map(|image| image.live as f64)
            }
            InnerState::Obsolete => None,
        }
    }

    fn keys_of_a_leaf(&self) -> f64 {
        let stats = self.stats();
        stats.live_keys as f64 / stats.leaves.max(1) as f64
    }

    /// Up to `count` ascending keys that cut the tree in parts of about the same size: the first one is where it begins.
    pub(crate) fn split_keys(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let mut keys = vec![Vec::new()];
        for run in self.runs.seen_at(ReadAt::Newest) {
            keys.extend(run.split_keys(count / 2)?);
        }
        for n in 0..count {
            let mut low = Vec::new();
            // The part of the children that lies before the place, on every level.
            let part = (2 * n + 1) as f64 / (2 * count) as f64;
            while let Err(stop) = self.descend_to_part(part, &mut low) {
                match stop {
                    Stop::Cold(cold) => self.load_inner(&cold)?,
                    Stop::Obsolete => vfs::thread::spin(),
                }
                low.clear();
            }
            keys.push(low);
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    fn descend_to_part(&self, mut part: f64, low: &mut Vec<u8>) -> std::result::Result<(), Stop> {
        let guard = epoch::pin();
        let mut handle: &InnerHandle = &self.root;
        let mut above = None;
        loop {
            let Some(keys) = loaded(handle, &guard) else { return Err(self.stop(handle, above)) };
            let place = part * keys.len() as f64;
            let index = (place as usize).min(keys.len() - 1);
            match keys.child(index) {
                Child::Leaf(_) => {
                    keys.append_lo_of(index, low);
                    return Ok(());
                }
                Child::Inner(inner) => {
                    (part, above, handle) = (place - index as f64, Some((keys, index)), inner);
                }
            }
        }
    }
}

/// The part of the range that a leaf has.
fn count_part(slot: &LeafSlot, range: &KeyRange) -> Counted {
    let Some(resident) = slot.resident() else { return Counted::default() };
    let window = window(&resident.leaf, range);
    let any = !window.is_empty();
    Counted { live: resident.leaf.live_in(window) as f64, any }
}

/// The slots of a leaf that lie in the range.
fn window(leaf: &Leaf, range: &KeyRange) -> Range<usize> {
    let start = match &range.low {
        Bound::Included(key) => leaf.lower_bound(key),
        Bound::Excluded(key) => leaf.upper_bound(key),
        Bound::Unbounded => 0,
    };
    let end = match &range.high {
        Bound::Excluded(key) => leaf.lower_bound(key),
        Bound::Included(key) => leaf.upper_bound(key),
        Bound::Unbounded => leaf.slots(),
    };
    start..end.max(start)
}

/// Neighbours below one node.
struct Group<'g> {
    node: &'g InnerHandle,
    keys: &'g Inner<Child>,
    children: Range<usize>,
}

/// The children that lie between two fences whole, highest nodes first as far as they reach.
fn collect_whole<'g>(
    handle: &'g InnerHandle,
    from: Option<&Fence>,
    to: Option<&Fence>,
    guard: &'g Guard,
    groups: &mut Vec<Group<'g>>,
) {
    // One that was absorbed meanwhile has its children elsewhere.
    let Some(keys) = loaded(handle, guard) else { return };
    let first = from.map_or(0, |fence| keys.child_for(fence));
    let end = to.map_or(keys.len(), |fence| keys.child_for(fence));
    let mut part = |index: usize, from, to| {
        if let Some(Child::Inner(inner)) = keys.children().get(index) {
            collect_whole(inner, from, to, guard, groups);
        }
    };
    let whole = match keys.child(0) {
        Child::Leaf(_) => first..end,
        Child::Inner(_) if first == end => return part(first, from, to),
        // The nodes at the two ends may have both: children inside, and children outside.
        Child::Inner(_) => {
            if from.is_some() {
                part(first, from, None);
            }
            if to.is_some() {
                part(end, None, to);
            }
            (if from.is_some() { first + 1 } else { first })..end
        }
    };
    if !whole.is_empty() {
        groups.push(Group { node: handle, keys, children: whole });
    }
}

/// What a leaf says of itself without being read: its live keys; and, if it is not in memory, the moment from which on messages in
/// the buffer above add to them.
fn live_of_leaf(leaf: &LeafHandle) -> Option<(f64, Option<CommitTs>)> {
    let slot = leaf.latch.try_read()?;
    match &slot.state {
        LeafState::Resident(resident) => Some((resident.leaf.stats().live.into(), None)),
        LeafState::Empty => Some((0.0, None)),
        LeafState::Cold | LeafState::Parked(_) | LeafState::Loading(_) => {
            let record = leaf.record.lock();
            let image = record.image.as_ref()?;
            let is_of_this = image.is_exact && image.is_whole(&leaf.low, slot.high.as_deref());
            let pending = slot.pending.as_ref().map_or(0, |pending| pending.surplus());
            is_of_this.then(|| (image.live as f64 + pending as f64, Some(image.complete_through())))
        }
        LeafState::Obsolete => None,
    }
}
