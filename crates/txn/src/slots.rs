//! The words of the snapshot pool and the two sides of rule A11, written once over an abstract atomic so that the
//! test below can run the very same steps under loom.
//!
//! A reader that takes a snapshot: (1) its slot says PENDING, (2) fence, (3) load `visible`, (4) its slot says the
//! value. A GC view: (1) load `visible` as the floor, (2) fence, (3) read all slots. The schedule that needs it,
//! with steps 1 and 2 left out of the reader:
//!
//! ```text
//! reader: load visible = 100
//!                             writer: K@150 replaces K@90; visible = 200
//!                             view:   floor = 200, no slot used: K@90 is dropped
//! reader: store 100, read K: gone
//! ```
//!
//! With them, either the view sees PENDING (and holds its floor back to the floor of the view before it), or the
//! reader's fence comes after the view's and the reader loads a `visible` at or above the floor.

use std::sync::atomic::Ordering;

use crate::word::Word;

/// The slot belongs to nobody.
pub(crate) const FREE: u64 = u64::MAX;
/// The slot's owner is between step 1 and step 4: its timestamp may be anything from the floor of the view before.
pub(crate) const PENDING: u64 = u64::MAX - 1;

/// Step 1 of a reader: the slot is its own and says PENDING.
pub(crate) fn claim<W: Word>(slot: &W) -> bool {
    // Acquire, with the Release of `release`: the slot's earlier owner is done.
    slot.load(Ordering::Relaxed) == FREE && slot.replace(FREE, PENDING, Ordering::Acquire)
}

/// Steps 2 to 4 of a reader that has claimed `slot`: returns its timestamp.
pub(crate) fn announce<W: Word>(slot: &W, visible: impl FnOnce() -> u64) -> u64 {
    // Partner: the fence in `scan`.
    W::fence(Ordering::SeqCst);
    let ts = visible();
    vfs::thread::point("snapshot.loaded");
    // Release, with the Acquire of `scan`: a view that sees this timestamp comes after it.
    slot.store(ts, Ordering::Release);
    ts
}

/// Gives a slot back. Release, with the Acquire of `scan`: what the snapshot read, it read before versions it
/// needed can be dropped.
pub(crate) fn release<W: Word>(slot: &W) {
    slot.store(FREE, Ordering::Release);
}

/// What a scan found.
#[derive(Debug)]
pub(crate) struct Scan {
    /// `visible`, loaded before the slots.
    pub(crate) floor: u64,
    /// Timestamps of live snapshots, in slot order.
    pub(crate) snapshots: Vec<u64>,
    /// Some slot was PENDING.
    pub(crate) pending: bool,
}

/// The three steps of a GC view.
pub(crate) fn scan<'a, W: Word + 'a>(visible: impl FnOnce() -> u64, slots: impl Iterator<Item = &'a W>) -> Scan {
    let floor = visible();
    vfs::thread::point("view.floor");
    // Partner: the fence in `announce`.
    W::fence(Ordering::SeqCst);
    let mut found = Scan { floor, snapshots: Vec::new(), pending: false };
    for slot in slots {
        match slot.load(Ordering::Acquire) {
            FREE => {}
            PENDING => found.pending = true,
            ts => found.snapshots.push(ts),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic as model;

    use super::*;

    /// All interleavings, and all values the memory model allows, of one reader, one writer that moves `visible`
    /// and a view made twice: a snapshot is always in the newest view or at or above its floor.
    #[test]
    fn a11_take_against_view() {
        loom::model(|| {
            let visible = Arc::new(model::AtomicU64::new(100));
            let slot = Arc::new(model::AtomicU64::new(FREE));
            let writer = {
                let visible = visible.clone();
                loom::thread::spawn(move || visible.store(200, Ordering::Release))
            };
            let reader = {
                let (visible, slot) = (visible.clone(), slot.clone());
                loom::thread::spawn(move || {
                    assert!(claim(&*slot));
                    announce(&*slot, || visible.load(Ordering::Acquire))
                })
            };
            // The view before these was made at 100, before the reader came.
            let mut floor = 100;
            let mut views = Vec::new();
            for _ in 0..2 {
                let found = scan(|| visible.load(Ordering::Acquire), std::iter::once(&*slot));
                if !found.pending {
                    floor = floor.max(found.floor);
                }
                views.push((floor, found.snapshots));
            }
            writer.join().expect("writer");
            let ts = reader.join().expect("reader");
            for (floor, snapshots) in views {
                assert!(ts >= floor || snapshots.contains(&ts), "snapshot {ts}, floor {floor}, {snapshots:?}");
            }
        });
    }
}
