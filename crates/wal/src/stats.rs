//! Counts and sizes of the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts since open, sizes now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Bytes of records appended, headers and padding included.
    pub appended_bytes: u64,
    /// Bytes handed to the system for frames: compressed, with frame headers and padding to whole blocks.
    pub written_bytes: u64,
    /// Zeroes written into new segments ahead of their use.
    pub filled_bytes: u64,
    /// Frames written.
    pub frames: u64,
    /// Frames among them that are compressed.
    pub compressed_frames: u64,
    /// Syncs.
    pub syncs: u64,
    /// Time spent in syncs.
    pub sync_time: Duration,
    /// Segments that hold records not trimmed yet, the current one included.
    pub segments: u64,
    /// Segments ready to be started.
    pub spare_segments: u64,
    /// Segment files of any state, one that is being made included: what the log takes on disk is this many times the segment size.
    pub segment_files: u64,
    /// Bytes of all segment files.
    pub disk_bytes: u64,
    /// Times that a segment file was used again.
    pub recycled_segments: u64,
    /// Grants that did not find room at once.
    pub room_waits: u64,
    /// Time they took.
    pub room_wait_time: Duration,
    /// The longest of them.
    pub room_wait_worst: Duration,
    /// Time that callers waited for whoever wrote or synced for them.
    pub company_wait_time: Duration,
}

/// Counters behind [`WalStats`]. Relaxed: each is a statistic that nothing is decided from.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) written_bytes: AtomicU64,
    pub(crate) filled_bytes: AtomicU64,
    pub(crate) frames: AtomicU64,
    pub(crate) compressed_frames: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) sync_nanos: AtomicU64,
    last_sync_nanos: AtomicU64,
    pub(crate) room_waits: AtomicU64,
    pub(crate) room_wait_nanos: AtomicU64,
    pub(crate) room_wait_worst_nanos: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn room_wait(&self, took: Duration) {
        let nanos = nanos(took);
        Self::add(&self.room_waits, 1);
        Self::add(&self.room_wait_nanos, nanos);
        self.room_wait_worst_nanos.fetch_max(nanos, Ordering::Relaxed);
    }

    pub(crate) fn sync(&self, took: Duration) {
        Self::add(&self.syncs, 1);
        Self::add(&self.sync_nanos, nanos(took));
        self.last_sync_nanos.store(nanos(took), Ordering::Relaxed);
    }

    /// How long the last sync took.
    pub(crate) fn last_sync(&self) -> Duration {
        Duration::from_nanos(self.last_sync_nanos.load(Ordering::Relaxed))
    }

    /// The counters; sizes are left at 0.
    pub(crate) fn read(&self) -> WalStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WalStats {
            written_bytes: get(&self.written_bytes),
            filled_bytes: get(&self.filled_bytes),
            frames: get(&self.frames),
            compressed_frames: get(&self.compressed_frames),
            syncs: get(&self.syncs),
            sync_time: Duration::from_nanos(get(&self.sync_nanos)),
            room_waits: get(&self.room_waits),
            room_wait_time: Duration::from_nanos(get(&self.room_wait_nanos)),
            room_wait_worst: Duration::from_nanos(get(&self.room_wait_worst_nanos)),
            ..WalStats::default()
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
