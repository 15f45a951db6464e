//! Leaves in memory that are written and not read.
//!
//! To find the place of one change in a leaf costs some hundreds of nanoseconds; of many changes in key order, a tenth of that.
//! So after [`UNREAD_WRITES`] changes that nobody has read, a leaf of a Bε-tree that is not dirty is PARKED: it stays in memory as
//! it is, and what comes is pending beside it, as beside a COLD one. Whoever needs the leaf, also the flush, first puts into it what
//! it has missed, under its latch and without I/O. Under pressure its page goes like that of any leaf that is not dirty. Changes
//! of keys that are there do not count: what they hide is collected in the leaf [D4].
//!
//! Invariants: a PARKED leaf has everything that image and segments have, and the first [`Pending::in_leaf`] bytes of what is
//! pending, besides what is on its way into a segment; it is not dirty; its counts are those of a COLD leaf.

use std::sync::Arc;

use crate::handle::{LeafHandle, LeafSlot, LeafState, Resident};
use crate::tree::Core;

/// Changes without a reader between them.
const UNREAD_WRITES: u8 = 4;

impl Core {
    /// After a change of the leaf that became a message.
    pub(crate) fn park_if_unread(&self, handle: &LeafHandle, slot: &mut LeafSlot) {
        let was_read = handle.take_read();
        let (Some(pending), LeafState::Resident(resident)) = (&mut slot.pending, &mut slot.state) else { return };
        resident.unread_writes = if was_read { 0 } else { resident.unread_writes.saturating_add(1) };
        if resident.unread_writes < UNREAD_WRITES || handle.record.lock().is_dirty() {
            return;
        }
        pending.note_in_leaf();
        let (live, entries) = resident.beyond_image;
        self.counters.add(handle, pending.surplus() - live, pending.count() as i64 - entries);
        if let LeafState::Resident(resident) = std::mem::replace(&mut slot.state, LeafState::Cold) {
            slot.state = LeafState::Parked(resident);
        }
    }

    /// A PARKED leaf is RESIDENT again.
    pub(crate) fn unpark(&self, handle: &Arc<LeafHandle>, slot: &mut LeafSlot) {
        let LeafState::Parked(_) = slot.state else { return };
        let LeafState::Parked(resident) = std::mem::replace(&mut slot.state, LeafState::Cold) else { return };
        let (live, entries) = resident.beyond_image;
        slot.state = LeafState::Resident(Box::new(Resident { unread_writes: 0, ..*resident }));
        let Some(pending) = slot.pending.take() else {
            self.counters.add(handle, live, entries);
            return;
        };
        self.counters.add(handle, live - pending.surplus(), entries - pending.count() as i64);
        let missing = pending.not_in_leaf();
        // Of the halves of a split one has no messages any more, and its image none of them, also not of those that the leaf had. If
        // nothing is pending there is nothing to split the leaf for.
        let lacks = pending.oldest();
        let (more_live, more_entries) = self.insert_messages(handle, slot, &missing, lacks, &mut None);
        let is_heavy = self.is_heavy(pending.bytes());
        drop(missing);
        slot.pending = Some(pending);
        let resident = slot.resident_mut().expect("it was just made so");
        resident.note_counted(more_live, more_entries);
        let was_split = resident.oldest_unwritten != base::CommitTs::MAX;
        self.refresh_mark(handle, &resident.leaf);
        if was_split || is_heavy {
            self.give_up_pending(handle, slot);
        }
        self.keep_mark(handle, slot, true);
    }
}
