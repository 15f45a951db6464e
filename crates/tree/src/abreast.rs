//! Several leaves of a batch side by side.
//!
//! A batch of keys at random meets a leaf for each of them, none of which is in a near cache, and lines of it that are found one by the other:
//! the child in the node above, handle, fence and messages, slots, entries. So one line of each of several leaves is asked for before the
//! first of them is needed, then the next one of each.
//!
//! Nothing hangs on it: what was seen is looked at again by whoever changes the leaf. Latches are shared, and only tried: nobody is
//! waited for.

use std::ops::Range;

use index::Batch;
use store::epoch::Guard;
use store::{PREFETCHES, prefetch, prefetch_at};

use crate::descent::Place;
use crate::handle::{Child, LeafSlot};
use crate::node::Leaf;
use crate::reserve::Known;
use crate::tree::Core;

/// So many.
pub(crate) const ABREAST: usize = 8;
/// Operations of one leaf whose places are asked for.
const PLACES_MAX: usize = 4;

/// A leaf with its operations, by the node above.
pub(crate) struct Ahead<'g> {
    pub place: Place<'g>,
    pub ops: Range<usize>,
}

impl Core {
    /// The leaves of the operations from `first` on, as far as the nodes above are in memory.
    pub(crate) fn look_ahead<'g>(
        &'g self,
        guard: &'g Guard,
        batch: &Batch,
        mut first: usize,
    ) -> [Option<Ahead<'g>>; ABREAST] {
        let mut above = [const { None }; ABREAST];
        for above in &mut above {
            if first == batch.len() {
                break;
            }
            let Some((parent, keys, index)) = self.seek_above(guard, batch.key(first)) else { break };
            prefetch(keys.child(index));
            let end = (first + 1..batch.len()).find(|op| !keys.is_in(index, batch.key(*op))).unwrap_or(batch.len());
            *above = Some((parent, keys, index, first..end));
            first = end;
        }
        above.map(|above| {
            let (parent, keys, index, ops) = above?;
            let Child::Leaf(leaf) = keys.child(index) else { unreachable!("leaves are below level 1") };
            prefetch(&**leaf);
            Some(Ahead { place: Place::new(leaf, parent, keys, index), ops })
        })
    }
}

/// Asks for what the changes of the next leaves from `place` on will touch. Returns the place behind them.
pub(crate) fn look_into(known: &[Known], place: usize, batch: &Batch) -> usize {
    let end = (place + ABREAST).min(known.len());
    // One by itself waits for as much as it would have.
    if !PREFETCHES || end - place == 1 {
        return end;
    }
    let group = &known[place..end];
    // Whoever reserved them may have done so on another core.
    group.iter().for_each(|known| prefetch(&*known.leaf));
    let mut held = [const { None }; ABREAST];
    for (held, place) in held.iter_mut().zip(place..end) {
        let latch = &known[place].leaf.latch;
        // What others are busy with is near enough to them, and they are not to wait for the other leaves.
        if latch.is_locked() {
            continue;
        }
        let ops = known[place].first..known.get(place + 1).map_or(batch.len(), |next| next.first);
        let Some(slot) = latch.try_read() else { continue };
        ask_for_parts(&slot);
        *held = Some((slot, ops));
    }
    held.iter().flatten().for_each(|(slot, _)| ask_for_ends(slot));
    let resident = || held.iter().flatten().filter_map(|(slot, ops)| Some((&slot.resident()?.leaf, ops)));
    for ask in [Leaf::prefetch_guess, Leaf::prefetch_entries] {
        resident().for_each(|(leaf, ops)| ops.clone().take(PLACES_MAX).for_each(|op| ask(leaf, batch.key(op))));
    }
    end
}

/// What a slot points to.
pub(crate) fn ask_for_parts(slot: &LeafSlot) {
    if let Some(high) = &slot.high {
        prefetch_at(high.as_ptr().addr());
    }
    if let Some(pending) = &slot.pending {
        prefetch(&**pending);
    }
    if let Some(resident) = slot.resident() {
        prefetch(resident);
    }
}

/// What any change touches of these.
fn ask_for_ends(slot: &LeafSlot) {
    if let Some(pending) = &slot.pending {
        pending.open.prefetch_end();
    }
    if let Some(resident) = slot.resident() {
        resident.leaf.prefetch_ends();
    }
}
