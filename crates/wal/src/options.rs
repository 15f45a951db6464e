//! How a log is opened.

use base::limits::SECTOR_BYTES;
use base::{Fault, Lsn, Result};

use crate::format::{DatabaseId, FRAME_ALIGN, FRAME_HEADER_BYTES, Incarnation, SEGMENT_HEADER_BYTES};
use crate::recovery::WalEnd;

/// Most that one record can cost on disk beside its own bytes: a frame of its own, padded to the next frame
/// boundary, and the rest of the block that a sync seals behind it.
pub(crate) const FRAME_ROOM_BYTES: u64 = FRAME_HEADER_BYTES as u64 + FRAME_ALIGN + SECTOR_BYTES as u64;

/// Sizes of the log.
#[derive(Debug, Clone, Copy)]
pub struct WalOptions {
    /// Length of a segment file.
    pub segment_bytes: u64,
    /// Up to here segment files are kept and used again after they are trimmed. Not a wall: a log that cannot
    /// be trimmed grows past it until the disk is full; see [`crate::WalStats::disk_bytes`].
    pub capacity_bytes: u64,
    /// Bytes of records that may wait to be written; a power of two. A record is at most half of it.
    pub ring_bytes: u64,
}

impl Default for WalOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, capacity_bytes: 1 << 30, ring_bytes: 4 << 20 }
    }
}

impl WalOptions {
    /// Longest record, with its header and padding.
    #[must_use]
    pub fn record_bytes_max(&self) -> u64 {
        self.ring_bytes / 2
    }

    /// Bytes at the end of a segment that are not counted on: a frame that does not fit goes to the next one.
    fn slack_bytes(&self) -> u64 {
        self.record_bytes_max() + FRAME_ROOM_BYTES
    }

    /// Offset in a segment up to which its space is counted on.
    pub(crate) fn counted_end(&self) -> u64 {
        self.segment_bytes - self.slack_bytes()
    }

    /// Bytes of a fresh segment that grants may count on.
    pub(crate) fn usable_bytes(&self) -> u64 {
        self.counted_end() - SEGMENT_HEADER_BYTES
    }

    /// Bytes that ordinary grants leave for commits that must not be refused (schedules page, P4): a longest record at least.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        (self.usable_bytes() / 8).max(self.record_bytes_max())
    }

    pub(crate) fn check(&self) -> Result<()> {
        let ring_max = 128 << 20;
        if !self.ring_bytes.is_power_of_two() || !(4096..=ring_max).contains(&self.ring_bytes) {
            return Err(Fault::Limit {
                what: "log ring, bytes, a power of two",
                limit: ring_max,
                got: self.ring_bytes,
            });
        }
        let segment_min = self.ring_bytes + self.ring_bytes.max(64 * 1024);
        if self.segment_bytes < segment_min || !self.segment_bytes.is_multiple_of(SECTOR_BYTES as u64) {
            let what = "log segment, bytes, whole blocks, at least twice the ring, and 64 KiB more than it";
            return Err(Fault::Limit { what, limit: segment_min, got: self.segment_bytes });
        }
        Ok(())
    }
}

/// Where a life of the log starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalStart {
    /// Whose log it is.
    pub database: DatabaseId,
    /// Number of this life; higher than any before.
    pub incarnation: Incarnation,
    /// Position of the first record; above everything an earlier life may have written.
    pub first_lsn: Lsn,
    /// The end that recovery found.
    pub end: Lsn,
    /// What recovery knows to be durable. The records from here to `end` are written once more, as part of the
    /// new life; older frames from here on are dead.
    pub durable: Lsn,
}

impl WalStart {
    /// The first life of a new database.
    #[must_use]
    pub fn fresh(database: DatabaseId) -> Self {
        Self { database, incarnation: Incarnation(1), first_lsn: Lsn(4096), end: Lsn::ZERO, durable: Lsn::ZERO }
    }

    /// The life after what recovery found.
    #[must_use]
    pub fn after(database: DatabaseId, end: &WalEnd) -> Self {
        Self {
            database,
            incarnation: end.next_incarnation,
            first_lsn: end.next_first_lsn,
            end: end.end,
            durable: end.durable,
        }
    }

    /// Where a log that is only read ends: no life begins.
    #[must_use]
    pub fn end_of(database: DatabaseId, end: &WalEnd) -> Self {
        Self { first_lsn: end.end, ..Self::after(database, end) }
    }
}
