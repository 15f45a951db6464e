//! The leaves of a batch, and what `apply` may need for each: step 2 of a reservation (`reserve`).
//!
//! What must stay true [A1]: every operation is in exactly one leaf that is noted here, and that leaf is reserved under its latch, shared, with
//! which its range was seen. Several leaves are latched at a time, all but the first without waiting (`abreast`).

use std::ops::Range;
use std::sync::Arc;

use base::{CommitTs, Result};
use index::Batch;
use store::{Slabs, epoch};

use crate::abreast::{ABREAST, Ahead, ask_for_parts};
use crate::descent::{Place, Seek, Stop};
use crate::handle::{LeafHandle, LeafSlot, LeafState};
use crate::messages::{may_be_message, reserved_bytes};
use crate::node::max_inline_bytes;
use crate::reserve::Known;
use crate::tree::Core;

/// Allowance for what an entry takes in a leaf besides key and value.
const ENTRY_BYTES: usize = 40;

/// What was found.
#[derive(Default)]
pub(crate) struct Survey {
    pub leaves: Vec<Known>,
    pub cold: Vec<Arc<LeafHandle>>,
    /// Pages that splits and fresh leaves may take, at worst.
    pages: usize,
    /// Bytes of values too long for a leaf.
    beside_bytes: usize,
    /// Bytes that messages may take beside their leaves.
    pub message_bytes: usize,
    /// Address of the last inner node that a slab for them is reserved of.
    slab_of: usize,
    drained: Option<CommitTs>,
}

/// A batch that is walked.
pub(crate) struct Walked<'a> {
    pub batch: &'a Batch,
    pub ticket: u64,
    /// Leaves that may be cold; past that, and past so many bytes of messages, the walk ends.
    pub cold_max: usize,
    pub message_bytes_max: usize,
}

impl Core {
    /// From the first operation to the last, or to where it is too much.
    pub(crate) fn survey(&self, walked: &Walked<'_>, drained: Option<CommitTs>) -> Result<Survey> {
        let mut survey = Survey { drained, ..Survey::default() };
        let mut next = 0;
        while survey.goes_on(walked, next) {
            let before = next;
            if next + 1 < walked.batch.len() {
                next = self.survey_some(walked, next, &mut survey);
            }
            if next == before {
                next = self.survey_leaf(walked, next, &mut survey)?;
            }
        }
        Ok(survey)
    }

    /// Some leaves, of which several are looked for at a time. Returns the first operation beyond them.
    fn survey_some(&self, walked: &Walked<'_>, first: usize, survey: &mut Survey) -> usize {
        let (guard, mut next) = (epoch::pin(), first);
        let mut held = [const { None }; ABREAST];
        let ahead = self.look_ahead(&guard, walked.batch, first).into_iter().flatten();
        for (Ahead { place, ops }, held) in ahead.zip(&mut held) {
            vfs::thread::point("tree.looked_ahead");
            let latch = &place.leaf.latch;
            // Nobody is waited for while others are held.
            let slot = if next == first { Some(latch.read()) } else { latch.try_read() };
            let Some(slot) = slot.filter(|_| ops.start == next) else { break };
            if !place.is_for(Seek::At(walked.batch.key(next)), &slot, &guard) {
                break;
            }
            // The leaf's fence lies elsewhere in memory.
            let ops = if place.is_current(&guard) { ops } else { next..end_in(&slot, walked.batch, next) };
            next = ops.end;
            ask_for_parts(&slot);
            *held = Some((place, slot, ops));
        }
        next = first;
        for (place, slot, ops) in held.into_iter().flatten() {
            if !survey.goes_on(walked, next) {
                break;
            }
            next = ops.end;
            survey.note(self, &place, &slot, walked, ops);
        }
        next
    }

    /// One leaf, whatever has to be loaded on the way to it. Returns the first operation beyond it.
    fn survey_leaf(&self, walked: &Walked<'_>, first: usize, survey: &mut Survey) -> Result<usize> {
        let key = walked.batch.key(first);
        loop {
            let cold = {
                let guard = epoch::pin();
                match self.seek(&guard, Seek::At(key)) {
                    Ok(place) => {
                        let slot = place.leaf.latch.read();
                        if place.is_for(Seek::At(key), &slot, &guard) {
                            let end = end_in(&slot, walked.batch, first);
                            survey.note(self, &place, &slot, walked, first..end);
                            return Ok(end);
                        }
                        None
                    }
                    Err(Stop::Cold(cold)) => Some(cold),
                    Err(Stop::Obsolete) => None,
                }
            };
            match cold {
                Some(cold) => self.load_inner(&cold)?,
                None => vfs::thread::spin(),
            }
        }
    }
}

/// The first operation behind `first` that is beyond the leaf.
fn end_in(slot: &LeafSlot, batch: &Batch, first: usize) -> usize {
    (first + 1..batch.len()).find(|op| !slot.is_below_high(batch.key(*op))).unwrap_or(batch.len())
}

impl Survey {
    fn goes_on(&self, walked: &Walked<'_>, next: usize) -> bool {
        let is_little = self.cold.len() <= walked.cold_max && self.message_bytes <= walked.message_bytes_max;
        next < walked.batch.len() && is_little
    }

    /// The leaf has these operations: they are reserved.
    fn note(&mut self, core: &Core, place: &Place<'_>, slot: &LeafSlot, walked: &Walked<'_>, ops: Range<usize>) {
        let batch = walked.batch;
        place.leaf.reserve_for(walked.ticket);
        self.leaves.push(Known { first: ops.start, leaf: place.leaf.clone() });
        let (leaf, node_bytes, buffered) = (place.leaf, core.env.options.node_bytes, core.env.options.buffered);
        let (mut bytes, mut are_messages) = (0, buffered);
        for i in ops {
            are_messages &= may_be_message(node_bytes, batch.key(i), batch.op(i));
            let (key, value) = (batch.key(i).len(), batch.op(i).value_bytes());
            if value > max_inline_bytes(node_bytes, key) {
                self.beside_bytes += value;
                bytes += key + ENTRY_BYTES;
            } else {
                bytes += key + value + ENTRY_BYTES;
            }
        }
        let free = match &slot.state {
            LeafState::Resident(resident) => {
                // What is in the leaf may be pending, too.
                if buffered {
                    self.note_messages(place, slot, bytes, node_bytes);
                }
                node_bytes - resident.leaf.used_bytes().min(node_bytes)
            }
            LeafState::Empty => {
                self.pages += 1;
                node_bytes
            }
            // Messages: what they take beside the leaf.
            LeafState::Cold | LeafState::Parked(_) | LeafState::Loading(_)
                if are_messages && !self.is_late_for(leaf) =>
            {
                self.note_messages(place, slot, bytes, node_bytes);
                return;
            }
            LeafState::Cold | LeafState::Parked(_) | LeafState::Loading(_) => {
                self.cold.push(leaf.clone());
                0
            }
            LeafState::Obsolete => unreachable!("checked by the caller"),
        };
        // Twice the need: others who reserved the same leaf may come first.
        if bytes * 2 > free {
            self.pages += 1 + bytes * 4 / node_bytes;
        }
    }

    /// Messages of so many bytes, ENTRY_BYTES each included, may be pending beside the leaf.
    fn note_messages(&mut self, place: &Place<'_>, slot: &LeafSlot, bytes: usize, node_bytes: usize) {
        let before = slot.pending.as_ref().map_or(0, |pending| pending.open.bytes());
        self.message_bytes += reserved_bytes(bytes, before, node_bytes);
        let node = std::ptr::from_ref(place.parent).addr();
        if self.slab_of != node {
            self.slab_of = node;
            self.message_bytes += Slabs::charged_bytes(node_bytes) as usize;
        }
    }

    fn is_late_for(&self, leaf: &LeafHandle) -> bool {
        self.drained.is_some_and(|ts| leaf.complete_through().is_some_and(|through| through >= ts))
    }

    pub fn bytes(&self, page_bytes: u64) -> u64 {
        (self.cold.len() + self.pages) as u64 * page_bytes + (self.beside_bytes + self.message_bytes) as u64
    }
}
