//! One index: for each key its versions, for each version its commit timestamp and what was done.

use std::collections::BTreeMap;
use std::ops::Bound;

use base::{CommitTs, GcView};

/// One committed version of a key; no value is a tombstone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// When it was committed.
    pub ts: CommitTs,
    /// What the key has since then.
    pub value: Option<Vec<u8>>,
}

/// A live entry as a read returns it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// When its value was committed.
    pub ts: CommitTs,
    /// Its value.
    pub value: Vec<u8>,
}

/// A sorted map of versions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    keys: BTreeMap<Vec<u8>, BTreeMap<CommitTs, Option<Vec<u8>>>>,
}

impl Model {
    /// An empty index.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one version. The same again changes nothing.
    ///
    /// # Panics
    /// If `key` has another value at `ts`: a commit writes a key once.
    pub fn put(&mut self, ts: CommitTs, key: &[u8], value: Option<&[u8]>) {
        let versions = self.keys.entry(key.to_vec()).or_default();
        let before = versions.insert(ts, value.map(<[u8]>::to_vec));
        assert!(before.is_none_or(|b| b.as_deref() == value), "a commit writes a key once");
    }

    /// Adds the versions of one commit.
    pub fn commit<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        ts: CommitTs,
        writes: impl IntoIterator<Item = (K, Option<V>)>,
    ) {
        for (key, value) in writes {
            self.put(ts, key.as_ref(), value.as_ref().map(AsRef::as_ref));
        }
    }

    /// The value of `key` for a reader at `at`; `CommitTs::MAX` reads the newest.
    #[must_use]
    pub fn get(&self, at: CommitTs, key: &[u8]) -> Option<Entry> {
        let version = self.version_at(at, key)?;
        Some(Entry { key: key.to_vec(), ts: version.ts, value: version.value? })
    }

    /// The newest version of `key` with `ts <= at`, tombstones included.
    #[must_use]
    pub fn version_at(&self, at: CommitTs, key: &[u8]) -> Option<Version> {
        let (ts, value) = self.keys.get(key)?.range(..=at).next_back()?;
        Some(Version { ts: *ts, value: value.clone() })
    }

    /// The newest version of `key` with `ts < before`, tombstones included.
    #[must_use]
    pub fn newest_before(&self, before: CommitTs, key: &[u8]) -> Option<Version> {
        let (ts, value) = self.keys.get(key)?.range(..before).next_back()?;
        Some(Version { ts: *ts, value: value.clone() })
    }

    /// Live entries for a reader at `at` within bounds, ascending; `rev()` runs the other way.
    pub fn range<'a>(
        &'a self,
        at: CommitTs,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
    ) -> impl DoubleEndedIterator<Item = Entry> + use<'a> {
        let (low, high) = (low.map(<[u8]>::to_vec), high.map(<[u8]>::to_vec));
        let above = move |key: &Vec<u8>| match &low {
            Bound::Included(low) => key >= low,
            Bound::Excluded(low) => key > low,
            Bound::Unbounded => true,
        };
        let below = move |key: &Vec<u8>| match &high {
            Bound::Included(high) => key <= high,
            Bound::Excluded(high) => key < high,
            Bound::Unbounded => true,
        };
        self.keys.keys().filter(move |key| above(key) && below(key)).filter_map(move |key| self.get(at, key))
    }

    /// All versions of all keys, ascending by key, newest first.
    pub fn versions(&self) -> impl Iterator<Item = (&[u8], CommitTs, Option<&[u8]>)> {
        self.keys.iter().flat_map(|(key, versions)| {
            versions.iter().rev().map(move |(ts, value)| (key.as_slice(), *ts, value.as_deref()))
        })
    }

    /// What the interval rule keeps: no version that neither a snapshot of `view` nor a later one can see, no
    /// tombstone that everybody sees and that hides nothing.
    #[must_use]
    pub fn collected(&self, view: &GcView) -> Self {
        let mut kept = Self::new();
        for (key, versions) in &self.keys {
            let all: Vec<(CommitTs, &Option<Vec<u8>>)> = versions.iter().map(|(ts, v)| (*ts, v)).collect();
            let newer = |i: usize| all.get(i + 1).map(|(ts, _)| *ts);
            let mut hides_nothing = true;
            for (i, (ts, value)) in all.iter().enumerate() {
                if !view.keeps(*ts, newer(i)) || (value.is_none() && hides_nothing && view.all_see(*ts)) {
                    continue;
                }
                hides_nothing = false;
                kept.put(*ts, key, value.as_deref());
            }
        }
        kept
    }

    /// Forgets every commit after `ts`: what a crash does to what was not durable.
    pub fn forget_after(&mut self, ts: CommitTs) {
        self.keys.retain(|_, versions| {
            versions.retain(|t, _| *t <= ts);
            !versions.is_empty()
        });
    }

    /// Number of keys with at least one version.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(n: u64) -> CommitTs {
        CommitTs(n)
    }

    fn sample() -> Model {
        let mut m = Model::new();
        m.commit(ts(10), [(b"a", Some(b"1")), (b"b", Some(b"1"))]);
        m.commit(ts(20), [(b"a", None), (b"c", Some(b"2"))]);
        m.commit(ts(30), [(b"a", Some(b"3"))]);
        m
    }

    fn keys(m: &Model, at: u64, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Vec<Vec<u8>> {
        m.range(ts(at), range).map(|e| e.key).collect()
    }

    #[test]
    fn each_snapshot_sees_its_own() {
        let m = sample();
        assert_eq!(m.get(ts(9), b"a"), None);
        assert_eq!(m.get(ts(19), b"a").unwrap().value, b"1");
        assert_eq!(m.get(ts(20), b"a"), None);
        assert_eq!(m.get(CommitTs::MAX, b"a").unwrap().ts, ts(30));
        assert_eq!(m.newest_before(ts(30), b"a"), Some(Version { ts: ts(20), value: None }));
        assert_eq!(m.newest_before(ts(10), b"a"), None);
    }

    #[test]
    fn ranges_keep_their_bounds_both_ways() {
        let m = sample();
        assert_eq!(keys(&m, 10, (Bound::Unbounded, Bound::Unbounded)), [b"a", b"b"]);
        assert_eq!(keys(&m, 20, (Bound::Unbounded, Bound::Unbounded)), [b"b", b"c"]);
        assert_eq!(keys(&m, 30, (Bound::Excluded(b"a"), Bound::Included(b"c"))), [b"b", b"c"]);
        assert_eq!(keys(&m, 30, (Bound::Included(b"a"), Bound::Excluded(b"c"))), [b"a", b"b"]);
        assert_eq!(keys(&m, 30, (Bound::Included(b"c"), Bound::Included(b"a"))), Vec::<Vec<u8>>::new());
        let back: Vec<_> = m.range(ts(30), (Bound::Unbounded, Bound::Unbounded)).rev().map(|e| e.key).collect();
        assert_eq!(back, [b"c", b"b", b"a"]);
    }

    #[test]
    fn collecting_changes_no_answer_that_may_be_asked() {
        let mut m = sample();
        m.commit(ts(40), [(b"b", None::<&[u8]>)]);
        let everything: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);
        for floor in [5, 10, 15, 25, 35, 45] {
            for snapshots in [vec![], vec![ts(12)], vec![ts(22), ts(3)]] {
                let view = GcView::new(ts(floor), snapshots);
                let kept = m.collected(&view);
                for at in view.snapshots().iter().copied().chain((floor..50).map(ts)) {
                    assert!(kept.range(at, everything).eq(m.range(at, everything)), "at {at}, {view:?}");
                }
            }
        }
        assert_eq!(m.collected(&GcView::new(ts(45), vec![])).versions().count(), 2, "a@30 and c@20 are left");
    }

    #[test]
    fn a_crash_forgets_the_tail() {
        let mut m = sample();
        m.forget_after(ts(10));
        assert_eq!(
            m.versions().map(|(k, t, _)| (k.to_vec(), t)).collect::<Vec<_>>(),
            [(b"a".to_vec(), ts(10)), (b"b".to_vec(), ts(10))]
        );
    }

    #[test]
    #[should_panic(expected = "writes a key once")]
    fn two_values_at_one_timestamp_are_a_bug() {
        let mut m = sample();
        m.put(ts(10), b"a", Some(b"other"));
    }
}
