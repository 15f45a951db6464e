//! What is kept of one key's versions: the interval rule (decision D4), as a function of values.

use std::sync::Arc;

use base::{CommitTs, GcView};

use crate::run::Run;

/// What a pass does not see.
#[derive(Debug, Clone)]
pub(crate) struct Elsewhere {
    /// Nothing at or below this is in memory, or may arrive.
    below: CommitTs,
    /// Runs, the one that begins earliest first.
    runs: Vec<Arc<Run>>,
}

impl Elsewhere {
    pub fn new(below: CommitTs, mut runs: Vec<Arc<Run>>) -> Self {
        runs.sort_by_key(|run| run.info.oldest);
        Self { below, runs }
    }

    /// False if whatever is older than this of the key is in the pass.
    fn may_have_older(&self, key: &[u8], ts: CommitTs) -> bool {
        let is_of = |run: &Arc<Run>| *run.info.min_key <= *key && *key <= *run.info.max_key;
        ts > self.below || self.runs.iter().take_while(|run| run.info.oldest <= ts).any(is_of)
    }
}

/// What may be collected in one pass.
#[derive(Debug, Clone)]
pub(crate) struct Collection {
    view: GcView,
    elsewhere: Elsewhere,
}

impl Collection {
    /// Drops superseded versions by `view`, and tombstones at or below its floor, of which nothing older is `elsewhere`: the
    /// pass sees all that is older.
    pub fn new(view: GcView, elsewhere: Elsewhere) -> Self {
        Self { view, elsewhere }
    }

    /// Drops nothing.
    pub fn nothing() -> Self {
        Self::new(GcView::keep_all(), Elsewhere::new(CommitTs::ZERO, Vec::new()))
    }

    /// Which of a key's versions stay; they come newest first, each timestamp once: (timestamp, is a delete).
    ///
    /// 1. A version goes if nobody may see it below its next newer one.
    /// 2. Then the oldest go while they are tombstones: over nothing older they are the same as no entry.
    pub fn keep(&self, key: &[u8], versions: &[(CommitTs, bool)], keep: &mut Vec<bool>) {
        keep.clear();
        let mut newer = None;
        for (ts, _) in versions {
            keep.push(self.view.keeps(*ts, newer));
            newer = Some(*ts);
        }
        for (i, (ts, is_delete)) in versions.iter().enumerate().rev() {
            if !keep[i] {
                continue;
            }
            if !is_delete || *ts > self.view.floor() || self.elsewhere.may_have_older(key, *ts) {
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
        collection.keep(b"k", &versions, &mut keep);
        versions.iter().zip(&keep).filter(|(_, keep)| **keep).map(|((ts, _), _)| ts.0).collect()
    }

    fn collection(view: GcView, below: CommitTs) -> Collection {
        Collection::new(view, Elsewhere::new(below, Vec::new()))
    }

    fn view(floor: u64, snapshots: &[u64]) -> GcView {
        GcView::new(CommitTs(floor), snapshots.iter().map(|ts| CommitTs(*ts)).collect())
    }

    #[test]
    fn tombstones_go_when_nothing_older_can_be() {
        let put_and_delete = [(50, true), (30, false)];
        let whole = collection(view(100, &[]), CommitTs::MAX);
        assert!(kept(&whole, &put_and_delete).is_empty());
        assert_eq!(kept(&whole, &[(50, true), (30, true), (20, false)]), [] as [u64; 0]);
        assert_eq!(kept(&whole, &[(110, true), (30, false)]), [110, 30], "newer than the floor");
        let part = collection(view(100, &[]), CommitTs(49));
        assert_eq!(kept(&part, &put_and_delete), [50], "something older may lie elsewhere");
        let dump = collection(view(100, &[40]), CommitTs::MAX);
        assert_eq!(kept(&dump, &put_and_delete), [50, 30]);
        assert_eq!(kept(&dump, &[(90, false), (50, true), (35, true)]), [90], "the dump sees a tombstone: nothing");
        assert_eq!(kept(&Collection::nothing(), &put_and_delete), [50, 30]);
    }

    #[test]
    fn a_run_elsewhere_holds_back_its_own_keys_only() {
        let run = |keys: (&[u8], &[u8]), oldest| crate::run::tests::bare(0, keys, (CommitTs(oldest), CommitTs(90)));
        let elsewhere = |runs: Vec<Arc<Run>>| Collection::new(view(100, &[]), Elsewhere::new(CommitTs(70), runs));
        let deleted = [(50, true)];
        assert!(kept(&elsewhere(vec![run((b"l", b"z"), 10), run((b"a", b"j"), 10)]), &deleted).is_empty());
        assert!(kept(&elsewhere(vec![run((b"a", b"z"), 51)]), &deleted).is_empty(), "all newer");
        for keys in [(b"k", b"z"), (b"a", b"k")] {
            assert_eq!(kept(&elsewhere(vec![run((b"a", b"z"), 60), run((keys.0, keys.1), 50)]), &deleted), [50]);
        }
        assert_eq!(kept(&elsewhere(Vec::new()), &[(80, true)]), [80], "in memory");
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
            let collection = collection(view.clone(), CommitTs(whole_below));
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
