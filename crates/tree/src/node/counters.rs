//! Counters of a leaf [A21]: versions that say what is added become versions that say what the counter is.
//!
//! Whoever drops versions of a key sums up first: from the oldest version on, up to the floor of the view by which it drops. Then
//! each version that stays and is the next newer one of one that goes is a sum: one goes only if its next newer one is at or below
//! the floor. Above the floor something older may still arrive, and nothing is dropped.
//!
//! A sum takes the place of what it sums up, in as many bytes, under the same timestamp. So nothing lacks an image for it: a leaf
//! that is made anew from its image and messages has the versions that were summed up.

use base::{CommitTs, GcView};
use index::counter::Counter;

use super::chain::{Chain, ChainValue};
use super::leaf::Leaf;
use super::page::Kind;

impl Leaf {
    /// The same leaf, of an index of counters or not.
    #[must_use]
    pub fn of_counters(mut self, of_counters: bool) -> Self {
        self.of_counters = of_counters;
        self
    }

    /// Sums up the versions at or below the floor of the key with the slots from `first` until before `past`, if it is a counter.
    pub(super) fn sum_up(&mut self, first: usize, past: usize, view: &GcView) {
        if !self.of_counters {
            return;
        }
        let (floor, mut end, mut sum) = (view.floor(), past, 0);
        if self.page.slot(past - 1).kind() == Kind::Chain {
            end -= 1;
            sum = self.sum_up_chain(end, floor);
        }
        for i in (first..end).rev() {
            let slot = self.page.slot(i);
            if self.page.ts(slot) > floor {
                return;
            }
            let version = Counter::decode(self.page.value(slot));
            sum = version.map_or(0, |version| version.over(sum));
            if matches!(version, Some(Counter::Delta(_))) {
                self.page.value_mut(slot).copy_from_slice(&Counter::Sum(sum).encode());
            }
        }
    }

    /// Sums up the chain that slot `at` names. Returns what its newest member at or below the floor is.
    fn sum_up_chain(&mut self, at: usize, floor: CommitTs) -> i64 {
        let id = self.page.side_id(self.page.slot(at));
        let has_some = self.side.chain(id).versions().iter().any(|v| v.ts <= floor && is_delta(&v.value));
        if has_some {
            let mut chain = self.side.lend_chain(id);
            chain.sum_up(floor);
            self.side.replace_chain(id, chain);
        }
        match self.side.chain(id).visible(floor).map(|v| counter(&v.value)) {
            Some(Some(Counter::Sum(sum))) => sum,
            _ => 0,
        }
    }
}

impl Chain {
    fn sum_up(&mut self, floor: CommitTs) {
        let mut sum = 0;
        for v in self.versions_mut().iter_mut().rev().take_while(|v| v.ts <= floor) {
            sum = counter(&v.value).map_or(0, |version| version.over(sum));
            if is_delta(&v.value) {
                v.value = ChainValue::Inline(Counter::Sum(sum).encode().into());
            }
        }
    }
}

fn counter(value: &ChainValue) -> Option<Counter> {
    match value {
        ChainValue::Inline(value) => Counter::decode(value),
        ChainValue::Tombstone | ChainValue::Overflow(_) => None,
    }
}

fn is_delta(value: &ChainValue) -> bool {
    matches!(counter(value), Some(Counter::Delta(_)))
}

#[cfg(test)]
mod tests {
    use index::{Op, ReadAt};
    use vfs::random::Rng;

    use super::super::leaf::{Insert, Lookup, Value};
    use super::*;

    const KEYS: u64 = 3;

    /// Every operation that ever came, by key.
    type Model = Vec<Vec<(u64, Option<Counter>)>>;

    fn key(n: u64) -> [u8; 1] {
        [b'a' + n as u8]
    }

    /// The sum by all operations up to `at`, in order of their timestamps.
    fn expected(operations: &[(u64, Option<Counter>)], at: u64) -> Option<i64> {
        let mut sorted: Vec<_> = operations.iter().filter(|(ts, _)| *ts <= at).collect();
        sorted.sort_unstable_by_key(|(ts, _)| *ts);
        sorted.iter().fold(None, |sum, (_, operation)| match operation {
            None => None,
            Some(Counter::Sum(sum)) => Some(*sum),
            Some(Counter::Delta(delta)) => Some(sum.unwrap_or(0).wrapping_add(*delta)),
        })
    }

    /// The sum as readers find it, from version to version.
    fn found(leaf: &Leaf, key: &[u8], mut at: u64) -> Option<i64> {
        let mut sum = None;
        loop {
            let version = match leaf.get(key, ReadAt::Snapshot(CommitTs(at))) {
                Lookup::Found { ts, value: Value::Inline(value) } => (ts.0, Counter::decode(value).expect("a counter")),
                Lookup::Found { .. } => panic!("a counter lies in the page"),
                Lookup::Tombstone { .. } | Lookup::Absent => return sum,
            };
            match version {
                (_, Counter::Sum(rest)) => return Some(sum.unwrap_or(0i64).wrapping_add(rest)),
                (ts, Counter::Delta(delta)) => {
                    sum = Some(sum.unwrap_or(0i64).wrapping_add(delta));
                    at = ts - 1;
                }
            }
        }
    }

    fn check(leaf: &Leaf, model: &Model, view: &GcView, now: u64) {
        leaf.check().expect("a sound leaf");
        let moments = view.snapshots().iter().map(|ts| ts.0).chain(view.floor().0..=now);
        for at in moments {
            for n in 0..KEYS {
                let expected = expected(&model[n as usize], at);
                assert_eq!(found(leaf, &key(n), at), expected, "key {n} at {at}, {view:?}, now {now}");
            }
        }
    }

    /// A commit for each timestamp, some of them late but above the floor, under views that come and go, with collection of the
    /// whole leaf now and then: every reader that the view knows finds the sum of all that came. Guards: both floors in this file,
    /// that versions are summed up before some are dropped, by an insert and by a collection.
    #[test]
    fn a21_sums_are_of_all_that_came() {
        let mut chains = 0;
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let mut leaf = Leaf::new(512, b"", None).of_counters(true);
            let mut model: Model = vec![Vec::new(); KEYS as usize];
            let (mut now, mut floor) = (0, 0);
            let mut snapshots: Vec<u64> = Vec::new();
            let mut late: Vec<u64> = Vec::new();
            let lag = [2, 30][rng.index(2)];
            for _ in 0..150 {
                now += 1;
                if rng.chance(0.2) {
                    late.push(now);
                    continue;
                }
                let ts = if late.is_empty() || rng.chance(0.7) { now } else { late.remove(0) };
                if ts != now {
                    late.push(now);
                }
                // The floor stays below what is still to come.
                let cap = late.iter().copied().chain([ts]).min().expect("one comes now") - 1;
                let before = floor;
                floor = floor.max(cap.min(now.saturating_sub(rng.below(lag))));
                if rng.chance(0.2) && floor > before {
                    snapshots.push(before);
                }
                if rng.chance(0.1) && !snapshots.is_empty() {
                    snapshots.swap_remove(rng.index(snapshots.len()));
                }
                let known = snapshots.iter().map(|ts| CommitTs(*ts)).collect();
                let view = GcView::new(CommitTs(floor), known);
                let n = rng.below(KEYS);
                let operation = match rng.below(10) {
                    0 => None,
                    1 => Some(Counter::Sum(rng.below(1000) as i64)),
                    _ => Some(Counter::Delta(rng.below(1000) as i64 - 500)),
                };
                let value = operation.map(Counter::encode);
                let op = value.as_ref().map_or(Op::Delete, |value| Op::Put(value));
                match leaf.insert(&key(n), CommitTs(ts), op, &view, None) {
                    Insert::Done(_) => {}
                    Insert::Full => break,
                }
                model[n as usize].push((ts, operation));
                check(&leaf, &model, &view, now);
                chains += usize::from(leaf.side.chains().next().is_some());
                if rng.chance(0.1) {
                    leaf.collect(&view);
                    check(&leaf, &model, &view, now);
                }
            }
        }
        assert!(chains > 1000, "{chains} times with a chain");
    }
}
