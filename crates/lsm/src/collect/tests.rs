use index::Op;
use store::{Budget, Cache, CacheOptions, Class};
use vfs::random::Rng;

use super::*;
use crate::memtable::{Memtable, Prune};

/// (Timestamp, what it says) of those that stay.
fn judged(collection: &Collection, versions: &[(u64, Says)]) -> Vec<(u64, Says)> {
    let stamps: Vec<_> = versions.iter().map(|(ts, says)| (CommitTs(*ts), *says)).collect();
    let mut fates = Vec::new();
    collection.judge(b"k", &stamps, &mut fates);
    let stays = versions.iter().zip(&fates).filter(|(_, fate)| **fate != Fate::Goes);
    stays.map(|((ts, says), fate)| (*ts, if *fate == Fate::Plain { Says::Put } else { *says })).collect()
}

fn kept(collection: &Collection, versions: &[(u64, bool)]) -> Vec<u64> {
    let says = |delete: bool| if delete { Says::Delete } else { Says::Put };
    let versions: Vec<_> = versions.iter().map(|(ts, delete)| (*ts, says(*delete))).collect();
    judged(collection, &versions).into_iter().map(|(ts, _)| ts).collect()
}

fn collection(view: GcView, below: CommitTs) -> Collection {
    Collection::new(view, Elsewhere::new(below, &[]))
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

/// A superseded delete, over what may lie elsewhere: kept for a fresh put that may stand on it, and only where there are any.
#[test]
fn a15_where_no_put_is_fresh_superseded_deletes_go() {
    let versions = [(90, false), (50, true)];
    for (single_deletes, expected) in [(true, &[90, 50][..]), (false, &[90])] {
        let options = IndexOptions { single_deletes, ..IndexOptions::default() };
        let part = collection(view(100, &[]), CommitTs(49)).of(&options);
        assert_eq!(kept(&part, &versions), expected);
    }
}

#[test]
fn a_run_elsewhere_holds_back_its_own_keys_only() {
    let run = |keys: (&[u8], &[u8]), oldest| crate::run::tests::bare(0, keys, (CommitTs(oldest), CommitTs(90)));
    let elsewhere = |runs: Vec<Arc<Run>>| Collection::new(view(100, &[]), Elsewhere::new(CommitTs(70), &runs));
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

fn fates(collection: &Collection, versions: &[(u64, Says)]) -> Vec<(u64, Says)> {
    judged(collection, versions)
}

const DELETE: Says = Says::Delete;
const PUT: Says = Says::Put;
const FRESH: Says = Says::Fresh;

/// A delete goes with the fresh put that it deletes, whatever is older elsewhere; with any other it stays. Guards: `is_fresh` in `judge`.
#[test]
fn a15_a_delete_goes_with_the_fresh_put_below_it() {
    let below = crate::run::tests::bare(6, (b"a", b"z"), (CommitTs(1), CommitTs(5)));
    let over = |snapshots: &[u64]| {
        Collection::new(view(100, snapshots), Elsewhere::new(CommitTs(70), std::slice::from_ref(&below)))
    };
    assert!(fates(&over(&[]), &[(50, DELETE), (30, FRESH)]).is_empty());
    assert_eq!(fates(&over(&[]), &[(50, DELETE), (30, PUT)]), [(50, DELETE)]);
    // One after the other, down to what was there before.
    let churn = [(60, DELETE), (50, FRESH), (40, DELETE), (30, FRESH), (20, DELETE), (10, PUT)];
    assert_eq!(fates(&over(&[]), &churn), [(60, DELETE)]);
    assert!(fates(&over(&[]), &churn[..4]).is_empty());
    // Nobody may see the put: neither who is there already nor who comes. Guard: `keeps` in `judge`.
    assert_eq!(fates(&over(&[40]), &[(50, DELETE), (30, FRESH)]), [(50, DELETE), (30, FRESH)]);
    assert!(fates(&over(&[29]), &[(50, DELETE), (30, FRESH)]).is_empty());
    assert!(fates(&over(&[50]), &[(50, DELETE), (30, FRESH)]).is_empty(), "who is behind both sees neither");
    let late = Collection::new(view(49, &[]), Elsewhere::new(CommitTs(70), std::slice::from_ref(&below)));
    assert_eq!(fates(&late, &[(50, DELETE), (30, FRESH)]), [(50, DELETE), (30, FRESH)]);
    // An update is between: not the next older one.
    assert_eq!(fates(&over(&[]), &[(50, DELETE), (40, PUT), (30, FRESH)]), [(50, DELETE)]);
    assert_eq!(fates(&over(&[40]), &[(50, DELETE), (40, PUT), (30, FRESH)]), [(50, DELETE), (40, PUT)]);
}

/// Something elsewhere may be between the two, or be a copy of one: in memory, to come, or in a run of that time. Guard: `Elsewhere::is_apart`.
#[test]
fn a15_only_the_next_older_version_goes_with_a_delete() {
    let run = |keys: (&[u8], &[u8]), ts| crate::run::tests::bare(0, keys, ts);
    let kept = |below, ts: (u64, u64), keys: (&[u8], &[u8])| {
        let runs = vec![run(keys, (CommitTs(ts.0), CommitTs(ts.1))), run((b"a", b"z"), (CommitTs(1), CommitTs(5)))];
        let collection = Collection::new(view(100, &[]), Elsewhere::new(CommitTs(below), &runs));
        fates(&collection, &[(50, DELETE), (30, FRESH)])
    };
    assert!(kept(50, (60, 70), (b"a", b"z")).is_empty());
    assert!(kept(50, (6, 29), (b"a", b"z")).is_empty());
    assert!(kept(50, (6, 90), (b"a", b"j")).is_empty(), "of other keys");
    for ts in [(31, 49), (6, 30), (50, 60), (6, 90)] {
        assert_eq!(kept(70, ts, (b"a", b"z")), [(50, DELETE)], "{ts:?}");
    }
    assert_eq!(kept(49, (6, 29), (b"a", b"z")), [(50, DELETE)], "in memory");
}

/// A delete that a fresh put stands on is not dropped for it and the put called fresh all the same. Guard: [`Fate::Plain`] in `judge`.
#[test]
fn a15_a_fresh_put_that_loses_its_delete_is_plain() {
    let below = crate::run::tests::bare(6, (b"a", b"z"), (CommitTs(1), CommitTs(5)));
    let over = |runs: Vec<Arc<Run>>| Collection::new(view(100, &[]), Elsewhere::new(CommitTs(70), &runs));
    assert_eq!(fates(&over(vec![below.clone()]), &[(50, FRESH), (30, DELETE)]), [(50, PUT)]);
    assert_eq!(fates(&over(Vec::new()), &[(50, FRESH), (30, DELETE)]), [(50, FRESH)], "nothing is below it");
    let between = crate::run::tests::bare(0, (b"a", b"z"), (CommitTs(35), CommitTs(45)));
    let both = [(50, FRESH), (30, DELETE)];
    assert_eq!(fates(&over(vec![below, between]), &both), both, "whose delete it is is not known");
}

/// One key in a memtable and runs, with all that was ever written to it, what a checkpoint has saved of it, and who may read.
struct History {
    rng: Rng,
    cache: Cache,
    written: Vec<(u64, Says)>,
    table: Memtable,
    runs: Vec<Vec<(u64, Says)>>,
    saved: (Vec<Vec<(u64, Says)>>, u64),
    floor: u64,
    snapshots: Vec<u64>,
}

impl History {
    fn new(seed: u64) -> Self {
        let cache = Cache::new(Budget::new(1 << 30), CacheOptions::default());
        let table = Memtable::new(&cache);
        let (written, runs, snapshots) = (vec![(1, PUT)], vec![vec![(1, PUT)]], Vec::new());
        let saved = (runs.clone(), 1);
        Self { rng: Rng::new(seed), cache, written, table, runs, saved, floor: 0, snapshots }
    }

    fn last(&self) -> u64 {
        self.written[self.written.len() - 1].0
    }

    fn view(&self) -> GcView {
        view(self.floor, &self.snapshots)
    }

    fn in_memory(&self) -> Vec<(u64, Says)> {
        let mut all = Vec::new();
        self.table.leaf_from(&std::ops::Bound::Unbounded, |_, ts, value, is_fresh| {
            all.push((
                ts.0,
                if value.is_none() {
                    DELETE
                } else if is_fresh {
                    FRESH
                } else {
                    PUT
                },
            ));
            true
        });
        all
    }

    fn apply(&mut self, (ts, says): (u64, Says), view: &GcView) {
        let op = if says == DELETE { Op::Delete } else { Op::Put(b"") };
        let above = self.runs.iter().flatten().map(|(ts, _)| *ts).max().unwrap_or(0);
        self.table.announce(CommitTs(ts));
        self.table.insert(
            b"k",
            CommitTs(ts),
            (op, says == FRESH),
            &Prune { view, single_deletes: true, above: CommitTs(above) },
            &mut self.cache.budget().charge(Class::Buffers, 0),
        );
    }

    /// A writer who knows what is there.
    fn commit(&mut self) {
        let ts = self.last() + 1 + self.rng.below(3);
        let is_alive = self.written[self.written.len() - 1].1 != DELETE;
        let says = match self.rng.index(10) {
            0 => PUT,
            1 if !is_alive => DELETE,
            _ if is_alive => DELETE,
            _ => FRESH,
        };
        self.written.push((ts, says));
        if self.rng.chance(0.1) {
            // As a run, which says nothing of it.
            self.runs.push(vec![(ts, if says == FRESH { PUT } else { says })]);
        } else {
            let view = self.view();
            self.apply((ts, says), &view);
        }
    }

    /// What stays of these in a pass; the rest of the runs is elsewhere.
    fn pass(&self, sources: &[Vec<(u64, Says)>], from_memory: bool) -> Vec<(u64, Says)> {
        let elsewhere = self.runs.iter().filter(|run| !run.is_empty()).map(|run| {
            let ts = |at: Option<&(u64, Says)>| CommitTs(at.expect("it has some").0);
            crate::run::tests::bare(0, (b"a", b"z"), (ts(run.last()), ts(run.first())))
        });
        let below = if from_memory { CommitTs::MAX } else { CommitTs(self.table.oldest().0.saturating_sub(1)) };
        let collection = Collection::new(self.view(), Elsewhere::new(below, &elsewhere.collect::<Vec<_>>()));
        let mut all: Vec<_> = sources.concat();
        all.sort_by_key(|(ts, _)| std::cmp::Reverse(*ts));
        all.dedup_by_key(|(ts, _)| *ts);
        judged(&collection, &all)
    }

    fn flush(&mut self) {
        let all = self.in_memory();
        let stays = self.pass(std::slice::from_ref(&all), true);
        self.runs.push(stays);
        self.table = Memtable::new(&self.cache);
        self.runs.retain(|run| !run.is_empty());
    }

    fn merge(&mut self) {
        let mut sources = Vec::new();
        for _ in 0..1 + self.rng.index(3) {
            if !self.runs.is_empty() {
                let at = self.rng.index(self.runs.len());
                sources.push(self.runs.swap_remove(at));
            }
        }
        let stays = self.pass(&sources, false);
        self.runs.push(stays);
        self.runs.retain(|run| !run.is_empty());
    }

    /// The log from some F on is replayed over what the last checkpoint has.
    fn crash(&mut self) {
        let (runs, f) = self.saved.clone();
        self.runs = runs;
        self.table = Memtable::new(&self.cache);
        self.snapshots.clear();
        let f = f.saturating_sub(self.rng.below(8));
        for (ts, says) in self.written.clone().into_iter().filter(|(ts, _)| *ts > f) {
            self.apply((ts, if says == FRESH { PUT } else { says }), &GcView::keep_all());
        }
    }

    fn step(&mut self) {
        match self.rng.index(24) {
            0..10 => self.commit(),
            10..13 => self.flush(),
            13..18 => self.merge(),
            18..20 => self.floor = self.last(),
            20 => self.snapshots.push(self.last()),
            21 => {
                self.snapshots.pop();
            }
            22 => {
                self.flush();
                self.saved = (self.runs.clone(), self.last());
            }
            _ => self.crash(),
        }
    }

    fn check(&self, seed: u64) {
        let seen = |versions: &[(u64, Says)], at: u64| {
            let newest = versions.iter().filter(|(ts, _)| *ts <= at).max_by_key(|(ts, _)| *ts);
            newest.filter(|(_, says)| *says != DELETE).map(|(ts, _)| *ts)
        };
        let (all, runs) = (self.in_memory(), self.runs.concat());
        for at in self.snapshots.iter().copied().chain(self.floor..self.last() + 2) {
            let found = seen(&[&all[..], &runs[..]].concat(), at);
            assert_eq!(
                found,
                seen(&self.written, at),
                "seed {seed} at {at}: {all:?} {:?} of {:?}",
                self.runs,
                self.written
            );
        }
    }
}

/// Whatever is flushed, merged with whatever, pruned in memory, lost and replayed: nobody sees a difference. Guards, each of them: `keeps`, `is_fresh`,
/// [`Fate::Plain`] in `judge`; what is older in [`Elsewhere::is_apart`], and what is in memory; `above` and [`Fate::Plain`] in a
/// memtable.
#[test]
fn a15_nobody_sees_a_difference_wherever_versions_lie() {
    for seed in 0..1500 {
        let mut history = History::new(seed);
        for _ in 0..100 {
            history.step();
            history.check(seed);
        }
    }
}
