//! What is kept of one key's versions: the interval rule (decision D4), as a function of values.

use base::{CommitTs, GcView};

/// What may be collected in one pass.
#[derive(Debug, Clone)]
pub(crate) struct Collection {
    view: GcView,
    /// Nothing older than what the pass sees exists, or may arrive, below or at this.
    whole_below: CommitTs,
}

impl Collection {
    /// Drops superseded versions by `view`, and tombstones at or below both its floor and `whole_below`: of a key that has one there the
    /// pass sees all that is older.
    pub fn new(view: GcView, whole_below: CommitTs) -> Self {
        Self { view, whole_below }
    }

    /// Drops nothing.
    pub fn nothing() -> Self {
        Self::new(GcView::keep_all(), CommitTs::ZERO)
    }

    /// Which of a key's versions stay; they come newest first, each timestamp once: (timestamp, is a delete).
    ///
    /// 1. A version goes if nobody may see it below its next newer one.
    /// 2. Then the oldest go while they are tombstones: over nothing older they are the same as no entry.
    pub fn keep(&self, versions: &[(CommitTs, bool)], keep: &mut Vec<bool>) {
        keep.clear();
        let mut newer = None;
        for (ts, _) in versions {
            keep.push(self.view.keeps(*ts, newer));
            newer = Some(*ts);
        }
        let most = self.view.floor().min(self.whole_below);
        for (i, (ts, is_delete)) in versions.iter().enumerate().rev() {
            if !keep[i] {
                continue;
            }
            if !is_delete || *ts > most {
                break;
            }
            keep[i] = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::random::Rng;

    fn kept(collection: &Collection, versions: &[(u64, bool)]) -> Vec<u64> {
        let versions: Vec<_> = versions.iter().map(|(ts, delete)| (CommitTs(*ts), *delete)).collect();
        let mut keep = Vec::new();
        collection.keep(&versions, &mut keep);
        versions.iter().zip(&keep).filter(|(_, keep)| **keep).map(|((ts, _), _)| ts.0).collect()
    }

    fn view(floor: u64, snapshots: &[u64]) -> GcView {
        GcView::new(CommitTs(floor), snapshots.iter().map(|ts| CommitTs(*ts)).collect())
    }

    #[test]
    fn tombstones_go_when_nothing_older_can_be() {
        let put_and_delete = [(50, true), (30, false)];
        let whole = Collection::new(view(100, &[]), CommitTs::MAX);
        assert!(kept(&whole, &put_and_delete).is_empty());
        assert_eq!(kept(&whole, &[(50, true), (30, true), (20, false)]), [] as [u64; 0]);
        assert_eq!(kept(&whole, &[(110, true), (30, false)]), [110, 30], "newer than the floor");
        let part = Collection::new(view(100, &[]), CommitTs(49));
        assert_eq!(kept(&part, &put_and_delete), [50], "something older may lie elsewhere");
        let dump = Collection::new(view(100, &[40]), CommitTs::MAX);
        assert_eq!(kept(&dump, &put_and_delete), [50, 30]);
        assert_eq!(kept(&dump, &[(90, false), (50, true), (35, true)]), [90], "the dump sees a tombstone: nothing");
        assert_eq!(kept(&Collection::nothing(), &put_and_delete), [50, 30]);
    }

    /// Every reader that the view knows finds the same, whatever older version lies elsewhere above `whole_below`.
    #[test]
    fn d4_nobody_sees_a_difference() {
        let mut rng = Rng::new(5);
        let visible = |versions: &[(u64, bool)], at: u64| {
            versions
                .iter()
                .filter(|(ts, _)| *ts <= at)
                .max_by_key(|(ts, _)| *ts)
                .filter(|(_, delete)| !delete)
                .map(|(ts, _)| *ts)
        };
        for _ in 0..20_000 {
            let mut seen: Vec<(u64, bool)> = (0..rng.below(6)).map(|_| (rng.below(40), rng.chance(0.5))).collect();
            seen.sort_by_key(|(ts, _)| std::cmp::Reverse(*ts));
            seen.dedup_by_key(|(ts, _)| *ts);
            let whole_below = rng.below(40);
            let elsewhere: Vec<(u64, bool)> = (0..rng.below(3))
                .map(|_| (whole_below + 1 + rng.below(20), rng.chance(0.3)))
                .filter(|(ts, _)| seen.iter().all(|(other, _)| other != ts))
                .collect();
            let floor = rng.below(60);
            let view = view(floor, &(0..rng.below(3)).map(|_| rng.below(40)).collect::<Vec<_>>());
            let collection = Collection::new(view.clone(), CommitTs(whole_below));
            let left: Vec<_> = kept(&collection, &seen)
                .into_iter()
                .map(|ts| *seen.iter().find(|(t, _)| *t == ts).expect("one of them"))
                .collect();
            for at in view.snapshots().iter().map(|ts| ts.0).chain(floor..70) {
                let (before, after) = ([&seen[..], &elsewhere].concat(), [&left[..], &elsewhere].concat());
                assert_eq!(
                    visible(&before, at),
                    visible(&after, at),
                    "at {at}: {seen:?} became {left:?}, {elsewhere:?} elsewhere, {collection:?}"
                );
            }
        }
    }
}
