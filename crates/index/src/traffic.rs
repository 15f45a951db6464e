//! What an index took in, wrote and read: the counts that the adviser works from.

use crate::IndexStats;

/// Bytes and blocks of one index since open. Log and run files are not in it: all structures write them alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexTraffic {
    /// Keys and values of puts, keys of deletes, in bytes, applied or attached; of a run file that another life wrote, a prepared
    /// transaction's too, what it takes there.
    pub ingested_bytes: u64,
    /// Changes were made in so many leaves, one counted once for each commit.
    pub visits: u64,
    /// Of these, leaves that were on disk: a B-tree loads them, a Bε-tree puts messages beside them, which counts once for all that one thread puts
    /// there before it comes to another one on disk.
    pub cold_visits: u64,
    /// Blocks of leaves written, in bytes on disk.
    pub leaf_bytes: u64,
    /// Blocks of inner nodes written, in bytes on disk.
    pub inner_bytes: u64,
    /// Blocks of messages written, in bytes on disk.
    pub segment_bytes: u64,
    /// Blocks of large values and version chains written, in bytes on disk.
    pub beside_bytes: u64,
    /// Keys that were looked up.
    pub point_reads: u64,
    /// Of these, keys whose leaf was on disk; of a log-structured merge tree, keys that were not decided by what is in memory.
    pub cold_reads: u64,
    /// Blocks of leaves, of messages and of runs read for them. Large values, inner nodes and index blocks are not in it.
    pub point_blocks: u64,
}

/// What an index's blocks on disk are, as its handles in memory name them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexShape {
    /// Blocks of leaves, in bytes on disk.
    pub leaf_bytes: u64,
    /// Live keys in them: without those that are in memory or in messages only, and without counting those there that hide others.
    pub live_keys: u64,
    /// Blocks of messages, in bytes on disk.
    pub segment_bytes: u64,
    /// Inner nodes just above the leaves.
    pub bottoms: u64,
}

impl IndexStats {
    /// Levels of a log-structured merge tree.
    pub const LEVELS: usize = crate::LEVELS;

    /// Bytes of blocks written for one byte of keys and values that came in, since open; none if nothing came in. The log and run files are not in it.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        ratio(self.traffic.written_bytes(), self.traffic.ingested_bytes)
    }

    /// Blocks read from disk for one key that was looked up, since open; none if none was.
    #[must_use]
    pub fn read_amplification(&self) -> Option<f64> {
        ratio(self.traffic.point_blocks, self.traffic.point_reads)
    }

    /// Versions that are kept for one live key, its own included; none if none is live. Of a log-structured merge tree a key that several runs have counts as
    /// live in each, until a merge has met them.
    #[must_use]
    pub fn space_amplification(&self) -> Option<f64> {
        ratio(self.live_keys + self.dead_versions, self.live_keys)
    }
}

fn ratio(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

impl IndexTraffic {
    /// What came since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less = |of: fn(&Self) -> u64| of(self).saturating_sub(of(before));
        Self {
            ingested_bytes: less(|t| t.ingested_bytes),
            visits: less(|t| t.visits),
            cold_visits: less(|t| t.cold_visits),
            leaf_bytes: less(|t| t.leaf_bytes),
            inner_bytes: less(|t| t.inner_bytes),
            segment_bytes: less(|t| t.segment_bytes),
            beside_bytes: less(|t| t.beside_bytes),
            point_reads: less(|t| t.point_reads),
            cold_reads: less(|t| t.cold_reads),
            point_blocks: less(|t| t.point_blocks),
        }
    }

    /// All blocks written, in bytes on disk.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.leaf_bytes + self.inner_bytes + self.segment_bytes + self.beside_bytes
    }
}
