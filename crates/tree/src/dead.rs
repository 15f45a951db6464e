//! Dead spans [A25, C7]: marks, and the purge that unlinks what is dead for everybody.
//!
//! A leaf whose keys all end in a tombstone is marked "dead for snapshots at or above T", T its highest delete.
//! The mark lives in the handle, is changed under the leaf's exclusive latch, and travels in the image's descriptor.
//! An inner handle's mark says the same of everything below. Scans hop over marked children without a latch.
//!
//! Setting an inner mark: (1) under the structure latch, all child marks are found set; (2) the node is said to be judged,
//! which is no mark yet; (3) the child marks are looked at again; (4) if none is gone, and nobody has cleared the mark
//! since 2, it is set. Putting a live entry: (1) the leaf's mark is cleared under its latch; (2) the marks above are
//! cleared, lowest first, before the commit is marked applied. All of these are SeqCst, so that of a marker and a put at
//! least one sees the other:
//!
//! > Without the second look: the marker finds all of N's leaves dead; a put clears leaf L's mark, climbs, finds N not
//! > marked yet; the marker marks N. A scan hops over N and misses the row.
//!
//! > With the mark set before the second look, to be taken back behind it: the same, by a scan that comes in between.
//!
//! Messages for leaves on disk are outside marks: a delete among them does not say whether its key was there. A leaf that is dead by its
//! counts is loaded by upkeep, which sets its mark or finds it alive.
//!
//! Attached runs are outside marks: scans merge them anyway.

use std::collections::{BTreeMap, BTreeSet};

use base::{CommitTs, GcView};
use store::epoch;
use vfs::sync::Mutex;

use crate::descent::later;
use crate::handle::{Child, LeafHandle, LeafSlot, LeafState};
use crate::image::Fence;
use crate::messages::Pending;
use crate::node::{Inner, Leaf};
use crate::structure::Latched;
use crate::tree::Core;

/// Lower fences of leaves with something to do, each once, and from when on: when everybody sees that timestamp. A hint:
/// what stands there when maintenance comes by decides.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<BTreeMap<Fence, CommitTs>>);

/// Places that [`Places::due`] looks at.
const SAMPLE: usize = 1024;

impl Places {
    pub fn offer(&self, low: Fence, from: CommitTs) {
        self.0.lock().insert(low, from);
    }

    /// Takes the first place, or none.
    pub fn take(&self) -> Option<(Fence, CommitTs)> {
        self.0.lock().pop_first()
    }

    /// Forgets a place that was seen to.
    pub fn forget(&self, low: &Fence) {
        self.0.lock().remove(low);
    }

    /// Number of the places whose time has come for those who see `oldest` or newer. Of many, some are looked at.
    pub fn due(&self, oldest: CommitTs) -> u64 {
        let places = self.0.lock();
        let looked_at = places.len().min(SAMPLE);
        let due = places.values().take(looked_at).filter(|from| **from <= oldest).count();
        (due * places.len()) as u64 / looked_at.max(1) as u64
    }
}

/// Places whose time has not come.
#[derive(Debug, Default)]
pub(crate) struct Waiting(BTreeSet<(CommitTs, Fence)>);

impl Waiting {
    pub fn insert(&mut self, low: Fence, from: CommitTs) {
        self.0.insert((from, low));
    }

    /// Those whose time has come go to `places`.
    pub fn wake(&mut self, view: &GcView, places: &Places) {
        while let Some((from, _)) = self.0.first()
            && view.all_see(*from)
            && let Some((from, low)) = self.0.pop_first()
        {
            places.offer(low, from);
        }
    }
}

/// The mark that a leaf's content deserves.
pub(crate) fn mark_of(leaf: &Leaf) -> Option<CommitTs> {
    let stats = leaf.stats();
    (stats.live == 0).then_some(stats.highest_delete_ts)
}

/// The mark that all children together deserve: the latest, if all have one.
fn mark_of_all(keys: &Inner<Child>) -> Option<CommitTs> {
    keys.children().iter().map(|child| child.mark().get()).try_fold(CommitTs::ZERO, |all, one| later(Some(all), one))
}

impl Core {
    /// By its counts a leaf that is not in memory is dead with what is pending. Whether it is, the leaf itself says: a message counts
    /// as a key more or less, whether the key is there or not.
    pub(crate) fn seems_dead(&self, handle: &LeafHandle, state: &LeafState, pending: &Pending) -> bool {
        let live = match state {
            LeafState::Parked(resident) => resident.counted_on_disk().0,
            _ => handle.record.lock().counted().0,
        };
        live + pending.surplus() <= 0
    }

    /// A leaf that is dead by what was put into it is to be written, so that its image says so, too: messages do not, and a mark in
    /// memory alone goes with a crash. If nobody needs it any more, it is unlinked before. `lacks`: its image does not have all of it.
    pub(crate) fn keep_mark(&self, handle: &LeafHandle, slot: &mut LeafSlot, lacks: bool) {
        if self.wants_mark(handle, lacks) {
            self.give_up_pending(handle, slot);
            if let Some(resident) = slot.resident_mut() {
                self.note_applied(handle, resident, CommitTs::ZERO);
            }
        }
    }

    /// True if the leaf is dead, its image does not say so, or will not once what it lacks is in a segment, and it may be written.
    pub(crate) fn wants_mark(&self, handle: &LeafHandle, lacks: bool) -> bool {
        handle.mark.get().is_some()
            && self.may_write()
            && handle.record.lock().image.as_ref().is_some_and(|image| lacks || image.dead_from.is_none())
    }

    /// Makes the leaf's mark follow its content. The caller holds the leaf's exclusive latch.
    pub(crate) fn refresh_mark(&self, handle: &LeafHandle, leaf: &Leaf) {
        let (before, now) = (handle.mark.get(), mark_of(leaf));
        if before == now {
            return;
        }
        handle.mark.set(now);
        match now {
            None => {
                vfs::thread::point("tree.mark_cleared");
                self.climb(&handle.low, true);
            }
            Some(from) => {
                self.purge.offer(handle.low.clone(), from);
                let latched = self.latch_structure();
                self.summarise(&latched, &handle.low);
            }
        }
    }

    /// Marks the inner nodes above `low`, as far up as everything below is dead.
    pub(crate) fn summarise(&self, _latched: &Latched<'_>, low: &[u8]) {
        let guard = epoch::pin();
        for step in self.path(&guard, low).iter().rev() {
            if mark_of_all(step.keys).is_none() {
                return;
            }
            vfs::thread::point("tree.inner_judging");
            let is_marked = step.handle.mark.judge(|| {
                let dead_from = mark_of_all(step.keys);
                vfs::thread::point("tree.inner_judged");
                dead_from
            });
            vfs::thread::point("tree.inner_marked");
            if !is_marked {
                return;
            }
        }
    }
}
