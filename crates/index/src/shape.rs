//! How the runs of a log-structured merge tree are kept in shape: values that its chooser goes by.

use store::Compression;

/// How many runs a reader may have to look at, against how often everything is written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// A bottom that is one sorted run, above it levels of up to four: written little, read nearly as fast.
    #[default]
    Lazy,
    /// Every level below the first is one sorted run, a tenth of the next: the fewest runs to look at and the least space, written most.
    Leveled,
    /// Sorted runs that are merged with their next older one when they have grown to its size: written least.
    Universal,
}

/// What only comparisons switch: everything has a default that is meant to be left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergePolicy {
    /// Of a level that is too large, the run goes first below which the least lies for each byte of it; else the largest one.
    pub least_overlap: bool,
    /// While what lies below is being merged, the runs that flushes wrote are merged among themselves.
    pub merges_at_top: bool,
    /// Whether threads that have nothing to do go on with merges that others have begun, and a merge is cut in two for one.
    pub subcompactions: Subcompactions,
    /// Compression by level; none: by that of the index ([`LevelCompression::of`]).
    pub compression: Option<LevelCompression>,
    /// A value that takes more bytes than this with its key gets blocks of its own, which merges leave where they are; none: more than half a
    /// block, and never more than that. Of the example `large_values`, not of the lab's target (decision 0022).
    pub separated_bytes: Option<usize>,
}

/// When a merge is cut in two by keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Subcompactions {
    /// Never; and who has nothing to do takes no merge that others have begun.
    Off,
    /// If a thread has nothing else to do, and the merge is large enough.
    #[default]
    On,
    /// Whenever it can be, however small it is, whoever is there: for tests.
    Always,
}

impl Default for MergePolicy {
    fn default() -> Self {
        Self {
            least_overlap: true,
            merges_at_top: true,
            subcompactions: Subcompactions::On,
            compression: None,
            separated_bytes: None,
        }
    }
}

/// Compression of the runs that flushes write, of the bottom, and of what lies between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelCompression {
    /// What flushes write, soon merged.
    pub top: Compression,
    /// Between top and bottom.
    pub middle: Compression,
    /// Most of the bytes, seldom written.
    pub bottom: Compression,
}

impl LevelCompression {
    /// That of an index with this compression: the same on all levels. So a run that overlaps nothing sinks to the bottom as it is, and what was just
    /// written takes no more of the disk than what has been merged.
    #[must_use]
    pub fn of(compression: Compression) -> Self {
        Self { top: compression, middle: compression, bottom: compression }
    }
}

/// Levels of a log-structured merge tree.
pub const LEVELS: usize = 8;

/// One level of a log-structured merge tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelStats {
    /// Runs in it.
    pub runs: u64,
    /// Of these so many at most have one key in common: what a reader has to look at for it.
    pub strands: u64,
    /// Bytes of their blocks on disk.
    pub disk_bytes: u64,
    /// Versions in them, tombstones included.
    pub versions: u64,
    /// Keys whose newest version in a run is a value.
    pub live_keys: u64,
    /// Tombstones that are a key's newest version in a run.
    pub deleted_keys: u64,
    /// Bytes of blocks that merges into it have written since open, indexes included. What flushes write, to the first level, is not in it.
    pub merged_bytes: u64,
    /// Bytes of blocks that came to it since open as they were: runs that were moved, and what merges took over unread.
    pub moved_bytes: u64,
}

impl LevelStats {
    /// How much of its versions is none that a reader of the newest finds in it, 0 to 1; 0 of an empty one.
    #[must_use]
    pub fn dead_share(&self) -> f64 {
        self.versions.saturating_sub(self.live_keys) as f64 / self.versions.max(1) as f64
    }

    /// The same of two indexes together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            runs: self.runs + other.runs,
            strands: self.strands + other.strands,
            disk_bytes: self.disk_bytes + other.disk_bytes,
            versions: self.versions + other.versions,
            live_keys: self.live_keys + other.live_keys,
            deleted_keys: self.deleted_keys + other.deleted_keys,
            merged_bytes: self.merged_bytes + other.merged_bytes,
            moved_bytes: self.moved_bytes + other.moved_bytes,
        }
    }
}
