//! From the root to a latched leaf.
//!
//! Steps of a descent: (1) pin the epoch; (2) from the root handle down, load each node from its cell and choose a
//! child; (3) latch the leaf; (4) check that it is not obsolete and that its range still has the key; otherwise
//! start again from (1) [A2].
//!
//! Step (4) is cheap as a rule: if the parent's cell still holds the node that led here, and the place wanted is in its
//! range, nothing has changed the leaf's range, since whoever changes it publishes a new parent before it lets go of the
//! leaf's latch. Only otherwise are the leaf's fences looked at, which lie elsewhere in memory. Without the look at
//! the parent's range:
//!
//! > A reader of k holds the old grandparent. Parent N splits at m <= k. The reader loads N's cell, the left half now,
//! > and is led to its last leaf. N's cell does not change any more: the leaf is taken for that of k.
//!
//! What makes an old node harmless: its separators were right when it was replaced, and every change since then
//! can be seen at the leaf. A split moved the upper part of a range away: `high` tells. A merge made the right
//! one obsolete. Clamping at an inner node whose range shrank ends at its last leaf, whose `high` tells. The guard
//! keeps the nodes and, by their counted pointers, the handles; the hot path clones no pointer and writes no
//! shared line but the leaf latch.
//!
//! What is not in memory is loaded with the guard and the latch let go; then the descent starts again.

use std::convert::Infallible;
use std::ptr;
use std::sync::Arc;

use base::{CommitTs, Result};
use store::epoch::{self, Guard};

use crate::handle::{Child, InnerHandle, InnerState, LeafHandle, LeafSlot, LeafState};
use crate::image::Fence;
use crate::node::Inner;
use crate::settle::Payloads;
use crate::tree::Core;
use crate::uncached::Read;

/// Which leaf is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Seek<'k> {
    /// The one whose range has the key.
    At(&'k [u8]),
    /// The one that holds the greatest keys below this key (not empty).
    Before(&'k [u8]),
    /// The last one.
    Last,
}

/// A leaf and how it was found. Good as long as the guard.
#[derive(Clone, Copy)]
pub(crate) struct Place<'g> {
    pub leaf: &'g Arc<LeafHandle>,
    pub parent: &'g InnerHandle,
    pub keys: &'g Inner<Child>,
    pub index: usize,
}

/// An inner node that must be loaded before the descent can go on.
pub(crate) struct ColdInner {
    pub handle: Arc<InnerHandle>,
    pub low: Fence,
    pub high: Option<Fence>,
}

/// Why a descent stopped.
pub(crate) enum Stop {
    Cold(ColdInner),
    /// Came by an inner node that no longer is one.
    Obsolete,
}

/// Why a leaf could not be used.
enum Missing {
    Inner(ColdInner),
    Leaf(Arc<LeafHandle>),
    /// Start again.
    Nothing,
}

/// The state of an inner handle, as a descent needs it.
#[inline]
pub(crate) fn loaded<'g>(handle: &InnerHandle, guard: &'g Guard) -> Option<&'g Inner<Child>> {
    match handle.cell.load(guard) {
        InnerState::Loaded(node) => Some(&node.keys),
        InnerState::Cold | InnerState::Obsolete => None,
    }
}

impl Seek<'_> {
    #[inline]
    pub fn choose(self, keys: &Inner<Child>) -> usize {
        match self {
            Seek::At(key) => keys.child_for(key),
            Seek::Before(key) => keys.child_before(key),
            Seek::Last => keys.len() - 1,
        }
    }

    /// Is the place wanted below this upper fence? The lower fence was right when the node was chosen, and lower fences
    /// do not change: splits keep the left half, merges are into the left neighbour.
    #[inline]
    fn is_below(self, high: Option<&[u8]>) -> bool {
        match (self, high) {
            (_, None) => true,
            (Seek::At(key), Some(high)) => key < high,
            (Seek::Before(key), Some(high)) => key <= high,
            (Seek::Last, Some(_)) => false,
        }
    }

    /// True if child `chosen` was only the nearest, the place wanted being beyond the node: the node was split, and the
    /// descent came by an old parent. Only the last child can be.
    #[inline]
    pub fn is_beyond(self, keys: &Inner<Child>, chosen: usize) -> bool {
        chosen + 1 == keys.len() && !self.is_below(keys.hi())
    }
}

impl<'g> Place<'g> {
    pub fn new(leaf: &'g Arc<LeafHandle>, parent: &'g InnerHandle, keys: &'g Inner<Child>, index: usize) -> Self {
        Self { leaf, parent, keys, index }
    }

    /// True if the node above is what it was: under the leaf's latch, it has the leaf's range.
    #[inline]
    pub fn is_current(&self, guard: &Guard) -> bool {
        matches!(self.parent.cell.load(guard), InnerState::Loaded(node) if ptr::eq(&node.keys, self.keys))
    }

    /// Step 4, under the leaf's latch.
    #[inline]
    pub fn is_for(&self, seek: Seek<'_>, slot: &LeafSlot, guard: &Guard) -> bool {
        if matches!(slot.state, LeafState::Obsolete) {
            return false;
        }
        (self.is_current(guard) && !seek.is_beyond(self.keys, self.index)) || seek.is_below(slot.high.as_deref())
    }
}

impl Core {
    /// Steps 1 and 2.
    #[inline]
    pub(crate) fn seek<'g>(&'g self, guard: &'g Guard, seek: Seek<'_>) -> Result<Place<'g>, Stop> {
        let mut parent: &'g InnerHandle = &self.root;
        let mut above: Option<(&'g Inner<Child>, usize)> = None;
        loop {
            let Some(keys) = loaded(parent, guard) else { return Err(self.stop(parent, above)) };
            let index = seek.choose(keys);
            match keys.child(index) {
                Child::Leaf(leaf) => return Ok(Place { leaf, parent, keys, index }),
                Child::Inner(child) => {
                    vfs::thread::point("tree.descend");
                    above = Some((keys, index));
                    parent = child;
                }
            }
        }
    }

    /// The node above the leaf of a key, and which child that is; none if a node on the way is not in memory.
    #[inline]
    pub(crate) fn seek_above<'g>(
        &'g self,
        guard: &'g Guard,
        key: &[u8],
    ) -> Option<(&'g InnerHandle, &'g Inner<Child>, usize)> {
        let mut parent: &'g InnerHandle = &self.root;
        loop {
            let InnerState::Loaded(node) = parent.cell.load(guard) else { return None };
            let index = node.keys.child_for(key);
            if node.level <= 1 {
                return Some((parent, &node.keys, index));
            }
            match node.keys.child(index) {
                Child::Inner(child) => parent = child,
                Child::Leaf(_) => unreachable!("leaves are below level 1"),
            }
        }
    }

    /// Why `handle`, child `above`, cannot be passed.
    #[cold]
    pub(crate) fn stop(&self, handle: &InnerHandle, above: Option<(&Inner<Child>, usize)>) -> Stop {
        if !matches!(handle.cell.load(&epoch::pin()), InnerState::Cold) {
            // Absorbed, or loaded since.
            return Stop::Obsolete;
        }
        match above {
            None => Stop::Cold(ColdInner { handle: self.root.clone(), low: Fence::from([]), high: None }),
            Some((keys, index)) => {
                let Child::Inner(handle) = keys.child(index) else { unreachable!("inner nodes were followed so far") };
                let (low, high) = keys.fence_of(index);
                Stop::Cold(ColdInner { handle: handle.clone(), low: low.into(), high: high.map(Fence::from) })
            }
        }
    }

    /// Calls `f` with the wanted leaf, resident or EMPTY, under its shared latch; loads what is missing first, as the leaf at the end of
    /// a range.
    pub(crate) fn read_leaf<R>(&self, seek: Seek<'_>, mut f: impl FnMut(&Place<'_>, &LeafSlot) -> R) -> Result<R> {
        let load =
            |leaf: &Arc<LeafHandle>| self.load_to_read(leaf, &mut Payloads::default()).map(|()| None::<Infallible>);
        match self.read_leaf_or(seek, load, |place, slot| f(place, slot))? {
            Read::InMemory(result) => Ok(result),
            Read::Uncached(never) => match never {},
        }
    }

    /// The same, but asks `uncached` first whether a leaf that is not in memory has to be loaded.
    pub(crate) fn read_leaf_or<R, U>(
        &self,
        seek: Seek<'_>,
        uncached: impl Fn(&Arc<LeafHandle>) -> Result<Option<U>>,
        mut f: impl FnMut(&Place<'_>, &LeafSlot) -> R,
    ) -> Result<Read<R, U>> {
        loop {
            let missing = {
                let guard = epoch::pin();
                match self.seek(&guard, seek) {
                    Ok(place) => {
                        vfs::thread::point("tree.before_latch");
                        let slot = place.leaf.latch.read();
                        match &slot.state {
                            _ if !place.is_for(seek, &slot, &guard) => Missing::Nothing,
                            LeafState::Resident(_) | LeafState::Empty => return Ok(Read::InMemory(f(&place, &slot))),
                            _ => Missing::Leaf(place.leaf.clone()),
                        }
                    }
                    Err(stop) => stop.into(),
                }
            };
            vfs::thread::point("tree.leaf_unlatched");
            if let Missing::Leaf(leaf) = &missing
                && let Some(read) = uncached(leaf)?
            {
                return Ok(Read::Uncached(read));
            }
            self.fetch(missing)?;
        }
    }

    /// Calls `f` with the leaf of `key` under its exclusive latch. Never waits for I/O: the inner nodes above
    /// are in memory, and the leaf is as it is found (`f` sees every state but OBSOLETE).
    pub(crate) fn write_leaf<R>(&self, key: &[u8], mut f: impl FnMut(&Place<'_>, &mut LeafSlot) -> R) -> R {
        loop {
            {
                let guard = epoch::pin();
                match self.seek(&guard, Seek::At(key)) {
                    Ok(place) => {
                        vfs::thread::point("tree.before_latch");
                        let mut slot = place.leaf.latch.write();
                        if place.is_for(Seek::At(key), &slot, &guard) {
                            return f(&place, &mut slot);
                        }
                    }
                    Err(Stop::Obsolete) => {}
                    Err(Stop::Cold(_)) => unreachable!("inner nodes stay in memory once a reservation came by"),
                }
            }
            vfs::thread::spin();
        }
    }

    #[cold]
    fn fetch(&self, missing: Missing) -> Result<()> {
        match missing {
            Missing::Inner(cold) => self.load_inner(&cold),
            Missing::Leaf(leaf) => self.load_leaf(&leaf, None),
            Missing::Nothing => {
                // Whoever replaced the node publishes before it lets go of the leaf: the next descent gets there.
                vfs::thread::spin();
                Ok(())
            }
        }
    }

    /// The inner handles from the root to the parent of the leaf of `key`, as they are now; the leaf's parent last.
    /// Everything on the path is in memory: the caller holds a latch of a leaf below, or came by one.
    pub(crate) fn path<'g>(&'g self, guard: &'g Guard, key: &[u8]) -> Vec<Step<'g>> {
        self.path_to(guard, key, 1)
    }

    /// The same down to the inner node of a level: what lies below need not be in memory.
    pub(crate) fn path_to<'g>(&'g self, guard: &'g Guard, key: &[u8], level: u8) -> Vec<Step<'g>> {
        'again: loop {
            let mut path = Vec::with_capacity(4);
            let mut handle: &'g Arc<InnerHandle> = &self.root;
            loop {
                let InnerState::Loaded(node) = handle.cell.load(guard) else {
                    vfs::thread::spin();
                    continue 'again;
                };
                let index = node.keys.child_for(key);
                path.push(Step { handle, keys: &node.keys, level: node.level, index });
                if node.level <= level {
                    return path;
                }
                match node.keys.child(index) {
                    Child::Leaf(_) => unreachable!("leaves are below level 1"),
                    Child::Inner(child) => handle = child,
                }
            }
        }
    }

    /// After a change of the leaf that starts at `low`: notes it on the handles above, and clears their marks if the
    /// leaf came alive; lowest first [A9, A25].
    ///
    /// The path may be outdated when it is used: then a structure change came between, which itself noted a
    /// change and cleared the marks on every node it touched and above, after the leaf had changed.
    pub(crate) fn climb(&self, low: &[u8], came_alive: bool) {
        let guard = epoch::pin();
        for step in self.path(&guard, low).iter().rev() {
            vfs::thread::point("tree.climb");
            step.handle.note_change();
            if came_alive {
                step.handle.mark.set(None);
            }
        }
    }
}

/// One inner node of a path.
#[derive(Clone, Copy)]
pub(crate) struct Step<'g> {
    pub handle: &'g Arc<InnerHandle>,
    pub keys: &'g Inner<Child>,
    pub level: u8,
    pub index: usize,
}

impl From<Stop> for Missing {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Cold(cold) => Missing::Inner(cold),
            Stop::Obsolete => Missing::Nothing,
        }
    }
}

/// Highest of two optional marks' timestamps.
pub(crate) fn later(a: Option<CommitTs>, b: Option<CommitTs>) -> Option<CommitTs> {
    a.zip(b).map(|(a, b)| a.max(b))
}
