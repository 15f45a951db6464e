//! A sorted map of versions that can be collected.

use std::collections::BTreeMap;
use std::ops::Bound;

use base::{CommitTs, GcView};
use trefoil_index::{Batch, Direction, EntryBatch, KeyRange, Op};

use super::Bug;

/// A version: its value, or none for a delete.
type Value = Option<Vec<u8>>;

#[derive(Debug, Default)]
pub struct Versions {
    keys: BTreeMap<Vec<u8>, BTreeMap<CommitTs, Value>>,
    bytes: u64,
    len: u64,
}

impl Versions {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn live(&self) -> u64 {
        self.keys.values().filter(|v| v.values().next_back().is_some_and(Option::is_some)).count() as u64
    }

    pub fn put(&mut self, key: &[u8], ts: CommitTs, value: Value) {
        let bytes = (key.len() + value.as_ref().map_or(0, Vec::len) + 32) as u64;
        let versions = self.keys.entry(key.to_vec()).or_default();
        if versions.insert(ts, value).is_none() {
            self.len += 1;
            self.bytes += bytes;
        }
    }

    pub fn put_all(&mut self, batch: &Batch, ts: CommitTs) {
        for (key, op) in batch.iter() {
            let value = match op {
                Op::Put(value) => Some(value.to_vec()),
                Op::Delete => None,
            };
            self.put(key, ts, value);
        }
    }

    pub fn newest(&self, key: &[u8], at: CommitTs) -> Option<(CommitTs, Value)> {
        self.keys.get(key)?.range(..=at).next_back().map(|(ts, v)| (*ts, v.clone()))
    }

    pub fn keep_newest(&mut self, key: &[u8]) {
        let Some(versions) = self.keys.get_mut(key) else { return };
        self.len -= versions.len() as u64 - 1;
        let newest = versions.pop_last().expect("a key has a version");
        *versions = BTreeMap::from([newest]);
    }

    /// The interval rule over one key.
    pub fn collect(&mut self, key: &[u8], view: &GcView, bug: Bug) {
        let Some(versions) = self.keys.get_mut(key) else { return };
        let view = if bug == Bug::GcForgetsSnapshots { &GcView::new(view.floor(), Vec::new()) } else { view };
        let before = versions.len();
        let times: Vec<CommitTs> = versions.keys().copied().collect();
        for (i, ts) in times.iter().enumerate() {
            if !view.keeps(*ts, times.get(i + 1).copied()) {
                versions.remove(ts);
            }
        }
        // A tombstone that everybody sees hides nothing once nothing is below it.
        let all_see = |ts: CommitTs| view.all_see(ts) || (bug == Bug::GcTakesTombstonesFirst && ts <= view.floor());
        while let Some((&ts, None)) = versions.iter().find(|(_, v)| v.is_none() || bug != Bug::GcTakesTombstonesFirst)
            && all_see(ts)
        {
            versions.remove(&ts);
        }
        self.len -= (before - versions.len()) as u64;
        if versions.is_empty() {
            self.keys.remove(key);
        }
    }

    pub fn collect_all(&mut self, view: &GcView, bug: Bug) {
        let keys: Vec<Vec<u8>> = self.keys.keys().cloned().collect();
        keys.iter().for_each(|key| self.collect(key, view, bug));
    }

    /// Copies up to `max` entries that are seen at `at`, tombstones included. The last key looked at, if there may
    /// be more.
    pub fn copy(
        &self,
        at: CommitTs,
        range: &KeyRange,
        direction: Direction,
        max: usize,
        out: &mut EntryBatch,
    ) -> Option<Vec<u8>> {
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) = range.bounds();
        let mut keys = self.keys.range::<[u8], _>(bounds);
        loop {
            let next = match direction {
                Direction::Forward => keys.next(),
                Direction::Backward => keys.next_back(),
            };
            let (key, versions) = next?;
            if let Some((ts, value)) = versions.range(..=at).next_back() {
                out.push_any(key, value.as_deref(), *ts);
            }
            if out.has_enough(max) {
                return Some(key.clone());
            }
        }
    }

    /// Every version.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], CommitTs, Option<&[u8]>)> {
        self.keys.iter().flat_map(|(key, versions)| versions.iter().map(move |(ts, v)| (&key[..], *ts, v.as_deref())))
    }
}
