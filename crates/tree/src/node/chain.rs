//! The oldest versions of one key, when they are too many for the page [A27].
//!
//! Members are sorted by timestamp descending and all are older than the key's versions in the page. A chain
//! is in memory whenever its leaf is: the loader reads the chain's blocks before it publishes the leaf. Why
//! not lazily: every late insert, collection and read would need a third outcome "load first", for a
//! structure that only hot rows under long snapshots have.
//!
//! Invariants:
//! 1. `versions` strictly descends; a resident chain has at least one member.
//! 2. If `stored` is set, the blocks hold exactly `versions`, and every large value among them is stored.

use std::sync::Arc;

use base::bytes::{Reader, put_bytes, put_varint};
use base::{CommitTs, GcView};
use store::BlockRef;

use super::descriptor::{put_refs, read_refs};
use super::leaf::Dropped;
use super::side::{OverflowValue, Side};

/// Format of a chain's bytes.
const CHAIN_FORMAT: u8 = 1;

/// A member's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChainValue {
    Tombstone,
    Inline(Box<[u8]>),
    /// Row of the leaf's table of large values.
    Overflow(u32),
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChainVersion {
    pub ts: CommitTs,
    pub value: ChainValue,
}

/// A chain.
#[derive(Debug, Clone, Default)]
pub(super) struct Chain {
    /// Which content this is.
    pub edition: u64,
    /// Where the content is stored, if it is.
    pub stored: Option<Arc<[BlockRef]>>,
    /// Bytes stored there.
    pub stored_bytes: u64,
    /// Members on disk while the chain is not in memory; 0 afterwards.
    cold: u32,
    versions: Vec<ChainVersion>,
}

impl Chain {
    /// A chain that the image names and nobody has read yet.
    pub(super) fn cold(members: u32, stored_bytes: u64, stored: Arc<[BlockRef]>) -> Self {
        Chain { edition: 0, stored: Some(stored), stored_bytes, cold: members, versions: Vec::new() }
    }

    pub(super) fn is_resident(&self) -> bool {
        self.cold == 0
    }

    /// Number of members.
    pub(super) fn len(&self) -> u32 {
        if self.cold > 0 { self.cold } else { u32::try_from(self.versions.len()).expect("bounded by memory") }
    }

    /// The members. The chain is resident.
    pub(super) fn versions(&self) -> &[ChainVersion] {
        debug_assert!(self.is_resident(), "chains are installed before the leaf is published");
        &self.versions
    }

    pub(super) fn versions_mut(&mut self) -> &mut [ChainVersion] {
        &mut self.versions
    }

    /// The newest member at or below `limit`.
    pub(super) fn visible(&self, limit: CommitTs) -> Option<&ChainVersion> {
        self.versions().get(self.versions.partition_point(|v| v.ts > limit))
    }

    /// Puts newer members, descending, before all others.
    pub(super) fn prepend(&mut self, mut newer: Vec<ChainVersion>) {
        debug_assert!(self.is_resident());
        debug_assert!(newer.last().zip(self.versions.first()).is_none_or(|(a, b)| a.ts > b.ts));
        newer.append(&mut self.versions);
        self.versions = newer;
    }

    /// Where `ts` is (`Ok`) or belongs (`Err`).
    pub(super) fn position(&self, ts: CommitTs) -> Result<usize, usize> {
        self.versions().binary_search_by(|v| ts.cmp(&v.ts))
    }

    /// Adds a member at its position.
    pub(super) fn insert(&mut self, at: usize, version: ChainVersion) {
        self.versions.insert(at, version);
    }

    /// True if [`Self::prune`] would drop something. `newer` is the key's oldest version in the page.
    pub(super) fn is_prunable(&self, newer: CommitTs, view: &GcView) -> bool {
        let mut newer = newer;
        for v in self.versions() {
            if !view.keeps(v.ts, Some(newer)) {
                return true;
            }
            newer = v.ts;
        }
        matches!(self.versions.last(), Some(v) if v.value == ChainValue::Tombstone && view.all_see(v.ts))
    }

    /// Drops members by the interval rule, and tombstones at the end that everybody sees. Rows of large values
    /// that go are appended to `values`.
    pub(super) fn prune(&mut self, newer: CommitTs, view: &GcView, values: &mut Vec<u32>) -> Dropped {
        let mut dropped = Dropped::default();
        let mut newer = newer;
        self.versions.retain(|v| {
            let keep = view.keeps(v.ts, Some(newer));
            newer = v.ts;
            if !keep {
                dropped.versions += 1;
                if let ChainValue::Overflow(id) = v.value {
                    values.push(id);
                }
            }
            keep
        });
        while matches!(self.versions.last(), Some(v) if v.value == ChainValue::Tombstone && view.all_see(v.ts)) {
            self.versions.pop();
            dropped.versions += 1;
            dropped.tombstones += 1;
        }
        dropped
    }

    /// Gives every large value of the chain a row in another table.
    pub(super) fn move_values(&mut self, from: &mut Side, to: &mut Side) {
        for v in &mut self.versions {
            if let ChainValue::Overflow(id) = &mut v.value {
                *id = to.add_value(from.remove_value(*id));
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let values = self.versions.iter().map(|v| match &v.value {
            ChainValue::Inline(bytes) => bytes.len(),
            ChainValue::Tombstone | ChainValue::Overflow(_) => 0,
        });
        values.sum::<usize>() + self.versions.capacity() * size_of::<ChainVersion>()
    }

    /// The chain as bytes. All its large values are stored.
    pub(super) fn encode(&self, side: &Side) -> Vec<u8> {
        let mut out = vec![CHAIN_FORMAT];
        put_varint(&mut out, self.versions().len() as u64);
        let mut newer = CommitTs::MAX;
        for v in &self.versions {
            put_varint(&mut out, newer.0 - v.ts.0);
            newer = v.ts;
            match &v.value {
                ChainValue::Tombstone => out.push(2),
                ChainValue::Inline(bytes) => {
                    out.push(0);
                    put_bytes(&mut out, bytes);
                }
                ChainValue::Overflow(id) => {
                    out.push(1);
                    let value = side.value(*id);
                    put_varint(&mut out, value.len_bytes());
                    put_refs(&mut out, value.stored().expect("large values are stored before the chain is encoded"));
                }
            }
        }
        out
    }

    /// A resident chain from a cold one and its bytes. Its large values get rows only if all bytes are sound.
    fn decode_versions(&self, bytes: &[u8], inline_max: usize) -> Option<Vec<(CommitTs, ColdValue)>> {
        let mut r = Reader::new(bytes);
        if r.u8()? != CHAIN_FORMAT || r.varint()? != u64::from(self.cold) {
            return None;
        }
        let mut out = Vec::new();
        let mut newer = CommitTs::MAX.0;
        for i in 0..self.cold {
            let delta = r.varint()?;
            if delta == 0 && i > 0 {
                return None;
            }
            newer = newer.checked_sub(delta)?;
            let value = match r.u8()? {
                0 => ColdValue::Inline(r.bytes().filter(|b| b.len() <= inline_max)?.into()),
                1 => ColdValue::Overflow(r.varint()?, read_refs(&mut r)?),
                2 => ColdValue::Tombstone,
                _ => return None,
            };
            out.push((CommitTs(newer), value));
        }
        r.is_empty().then_some(out)
    }

    pub(super) fn decode(self, bytes: &[u8], inline_max: usize, side: &mut Side) -> Result<Self, String> {
        let versions = self
            .decode_versions(bytes, inline_max)
            .ok_or_else(|| format!("version chain of {} members: {} bytes do not hold it", self.cold, bytes.len()))?;
        let versions = versions
            .into_iter()
            .map(|(ts, value)| {
                let value = match value {
                    ColdValue::Tombstone => ChainValue::Tombstone,
                    ColdValue::Inline(bytes) => ChainValue::Inline(bytes),
                    ColdValue::Overflow(bytes, refs) => {
                        ChainValue::Overflow(side.add_value(OverflowValue::stored_only(bytes, refs)))
                    }
                };
                ChainVersion { ts, value }
            })
            .collect();
        Ok(Chain { cold: 0, versions, ..self })
    }
}

enum ColdValue {
    Tombstone,
    Inline(Box<[u8]>),
    Overflow(u64, Arc<[BlockRef]>),
}
