//! The oracle of the scripts: a sorted map of versions, and the interval rule by its definition.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use base::{CommitTs, GcView};

/// One version as a leaf gives it out: timestamp, and the value or a tombstone.
pub(super) type Version = (u64, Option<Vec<u8>>);

/// A key and a timestamp, in the order of every structure.
type InternalKey = (Vec<u8>, Reverse<u64>);

/// Every version that was ever written.
#[derive(Default)]
pub(super) struct Model {
    versions: BTreeMap<InternalKey, Option<Vec<u8>>>,
}

impl Model {
    pub(super) fn get(&self, key: &[u8], ts: u64) -> Option<&Option<Vec<u8>>> {
        self.versions.get(&(key.to_vec(), Reverse(ts)))
    }

    pub(super) fn insert(&mut self, key: &[u8], ts: u64, value: Option<Vec<u8>>) {
        self.versions.insert((key.to_vec(), Reverse(ts)), value);
    }

    /// What snapshot `s` sees: keys with a value.
    pub(super) fn visible(&self, s: u64) -> BTreeMap<Vec<u8>, Version> {
        let mut out = BTreeMap::new();
        for ((key, Reverse(ts)), value) in &self.versions {
            if *ts <= s && !out.contains_key(key) {
                out.insert(key.clone(), (*ts, value.clone()));
            }
        }
        out.retain(|_, (_, value)| value.is_some());
        out
    }
}

/// What collection by `view` leaves of one key's versions, newest first; straight from the definitions.
pub(super) fn collected(versions: &[Version], view: &GcView) -> Vec<Version> {
    let seen: Vec<u64> = view.snapshots().iter().map(|s| s.0).collect();
    let mut out = Vec::new();
    for (i, version) in versions.iter().enumerate() {
        let newer = if i == 0 { u64::MAX } else { versions[i - 1].0 };
        let future = version.0.max(view.floor().0) < newer;
        if future || seen.iter().any(|s| version.0 <= *s && *s < newer) {
            out.push(version.clone());
        }
    }
    while matches!(out.last(), Some((ts, None)) if view.all_see(CommitTs(*ts))) {
        out.pop();
    }
    out
}
