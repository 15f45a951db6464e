//! The GC view and the interval rule (decision D4).
//!
//! A version `t` of a key whose next newer version is `u` (or none) is kept if and only if some snapshot of
//! the view, or some future snapshot `s >= floor`, has `t <= s < u`. The floor is read *before* the snapshot
//! slots are scanned [A11], so a snapshot taken during the scan has a timestamp at or above the floor and is
//! covered by "future". All drop decisions of one pass use one view.
//!
//! Invariant: `snapshots` is sorted ascending without repeats, and every element is `< floor`.

use std::sync::Arc;

use crate::CommitTs;

/// What no reader, present or future, can see below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GcView {
    floor: CommitTs,
    snapshots: Arc<[CommitTs]>,
}

impl GcView {
    /// A view from the floor and the live snapshots, in any order.
    #[must_use]
    pub fn new(floor: CommitTs, mut snapshots: Vec<CommitTs>) -> Self {
        snapshots.retain(|s| *s < floor);
        snapshots.sort_unstable();
        snapshots.dedup();
        Self { floor, snapshots: snapshots.into() }
    }

    /// The view that keeps everything.
    #[must_use]
    pub fn keep_all() -> Self {
        Self { floor: CommitTs::ZERO, snapshots: Arc::from([]) }
    }

    /// Every future snapshot is at or above this.
    #[must_use]
    pub fn floor(&self) -> CommitTs {
        self.floor
    }

    /// Live snapshots below the floor, ascending.
    #[must_use]
    pub fn snapshots(&self) -> &[CommitTs] {
        &self.snapshots
    }

    /// The oldest timestamp at which anyone may read.
    #[must_use]
    pub fn oldest(&self) -> CommitTs {
        self.snapshots.first().copied().unwrap_or(self.floor)
    }

    /// The interval rule: may anyone see version `t` whose next newer version is `newer`?
    #[must_use]
    pub fn keeps(&self, t: CommitTs, newer: Option<CommitTs>) -> bool {
        match newer {
            None => true,
            Some(u) => u > self.floor.max(t) || self.any_snapshot_in(t, u),
        }
    }

    /// True if every present and future reader sees `ts` or something newer: a tombstone at `ts` over
    /// nothing older is then the same as no entry at all.
    #[must_use]
    pub fn all_see(&self, ts: CommitTs) -> bool {
        ts <= self.oldest()
    }

    /// True if a live snapshot `s` has `t <= s < u`.
    fn any_snapshot_in(&self, t: CommitTs, u: CommitTs) -> bool {
        let at = self.snapshots.partition_point(|s| *s < t);
        self.snapshots.get(at).is_some_and(|s| *s < u)
    }

    /// The same view with tombstone and version collection held back below `cap`: entries at or above `cap`
    /// are kept although nobody sees them, because something older may still arrive (rule A4).
    #[must_use]
    pub fn capped(&self, cap: CommitTs) -> Self {
        if cap >= self.floor {
            return self.clone();
        }
        let mut snapshots = self.snapshots.to_vec();
        snapshots.retain(|s| *s < cap);
        Self { floor: cap, snapshots: snapshots.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(n: u64) -> CommitTs {
        CommitTs(n)
    }

    #[test]
    fn newest_is_kept_and_hidden_is_not() {
        let v = GcView::new(ts(100), vec![]);
        assert!(v.keeps(ts(50), None));
        assert!(!v.keeps(ts(50), Some(ts(90))));
        assert!(!v.keeps(ts(50), Some(ts(100))), "snapshots from 100 on see the newer one");
        assert!(v.keeps(ts(50), Some(ts(101))), "snapshot 100 sees the older one");
        assert!(v.keeps(ts(120), Some(ts(130))), "newer than the floor");
    }

    #[test]
    fn a_long_dump_pins_one_version() {
        let v = GcView::new(ts(1000), vec![ts(10)]);
        assert!(v.keeps(ts(10), Some(ts(20))));
        assert!(v.keeps(ts(5), Some(ts(11))));
        assert!(!v.keeps(ts(11), Some(ts(20))));
        assert!(!v.keeps(ts(3), Some(ts(5))));
    }

    #[test]
    fn all_see_needs_the_oldest() {
        let v = GcView::new(ts(100), vec![ts(40)]);
        assert!(v.all_see(ts(40)));
        assert!(!v.all_see(ts(41)));
    }

    /// The rule against its definition, by brute force.
    #[test]
    fn agrees_with_the_definition() {
        for floor in 0..8u64 {
            for mask in 0..(1u32 << floor) {
                let snaps: Vec<_> = (0..floor).filter(|s| mask >> s & 1 == 1).map(ts).collect();
                let view = GcView::new(ts(floor), snaps.clone());
                for t in 0..10u64 {
                    for u in t + 1..12 {
                        let seen = (floor..40).map(ts).chain(snaps.iter().copied());
                        let expect = seen.into_iter().any(|s| ts(t) <= s && s < ts(u));
                        assert_eq!(view.keeps(ts(t), Some(ts(u))), expect, "floor {floor} {snaps:?} {t}..{u}");
                    }
                }
            }
        }
    }
}
