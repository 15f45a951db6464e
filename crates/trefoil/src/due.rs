//! When a checkpoint is due: the log behind the last one, what was written since, and space that only another one sets free.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::Engine;

/// Bytes written to the data file that are never worth a checkpoint. Of a small database they are what its file grows by:
/// 256 MiB were ten times the data of one of 44 MiB; 32 MiB cost no throughput that could be measured.
const REPLACED_BYTES_MIN: u64 = 32 << 20;

/// Bytes that are only kept for the last manifest are worth a checkpoint from one in so many of what it names on, and from so many on.
/// A merge of the bottom makes all of it superfluous, and writes nothing of note if it is there to drop what was deleted.
const SUPERSEDED_SHARE: u64 = 4;
const SUPERSEDED_BYTES_MIN: u64 = 8 << 20;
/// Or from one in so many on, if no more than one in so many of them were logged since the last one: it writes next to nothing.
const SUPERSEDED_SHARE_AT_REST: u64 = 16;
const LOGGED_SHARE_AT_REST: u64 = 8;

/// While somebody is refused space what was committed meanwhile, or done by upkeep, calls for a checkpoint, not more often than that: others may write all the time.
const REFUSED_REST: Duration = Duration::from_secs(1);

/// While no commits come for so long, or few, a checkpoint trims the log, which gives back the segments that it keeps to use again.
pub const LOG_REST: Duration = Duration::from_secs(10);

/// Or for a shorter time, in proportion, where the log takes more of the disk than one in so many bytes of what lives in the data file.
const LOG_SHARE: u64 = 8;
/// Never a shorter one than this share of it.
const LOG_REST_MIN: f64 = 0.1;

/// Log replayed in a second on one core of a small machine: measured 40–80 MB/s, see docs/PERFORMANCE.md.
const REPLAY_BYTES_PER_SECOND: f64 = 40e6;

impl Engine {
    /// Bytes of log behind the last checkpoint.
    pub fn log_behind(&self) -> u64 {
        self.wal.end().0.saturating_sub(self.log_at_checkpoint.load(Ordering::Relaxed))
    }

    /// True if replaying the log behind the last checkpoint would take longer than allowed, the log is half full, or so
    /// much was written that what it replaced, which only a checkpoint sets free, may be half as much as there is. What
    /// the checkpoint itself wrote does not count: one that rewrites everything would call for the next one.
    pub fn checkpoint_due(&self) -> bool {
        let (written, live) = self.space.written_and_live();
        let replaced = written.saturating_sub(self.written_at_checkpoint.load(Ordering::Relaxed));
        if replaced >= (live / 2).max(REPLACED_BYTES_MIN) {
            return true;
        }
        let replay = self.options.checkpoint_replay.as_secs_f64() * REPLAY_BYTES_PER_SECOND;
        self.log_behind() >= (self.options.log_capacity_bytes / 2).min(replay as u64)
    }

    /// True if a checkpoint gives back a segment of the log, unless somebody holds it, or spares the next opening as much replay
    /// as two may hold: frames are compressed, positions are not. Neither comes again before more is appended. Or if one had to leave what
    /// nobody holds any more.
    pub fn log_is_worth_trimming(&self) -> bool {
        let starts_behind = self.wal.segment_start().0 >= self.log_at_checkpoint.load(Ordering::Relaxed);
        starts_behind || self.log_behind() >= 2 * self.segment_bytes() || self.held_log.has_left()
    }

    /// How long no commits come, or few, before the log is trimmed.
    pub fn log_rest(&self) -> Duration {
        let (log, live) = (self.wal.stats().disk_bytes, self.space.written_and_live().1);
        LOG_REST.mul_f64((live as f64 / (LOG_SHARE * log).max(1) as f64).clamp(LOG_REST_MIN, 1.0))
    }

    /// Bytes of a segment of the log, about.
    pub fn segment_bytes(&self) -> u64 {
        self.options.log_segment_bytes.min(self.options.log_capacity_bytes / 4)
    }

    /// As much of the log may lie behind a checkpoint before commits are limited: one is due at the half, and takes its time.
    pub fn log_free_bytes(&self) -> u64 {
        (self.options.log_capacity_bytes / 4 * 3).min(self.log_full_bytes())
    }

    fn log_full_bytes(&self) -> u64 {
        let capacity = self.options.log_capacity_bytes;
        capacity - (capacity / 32).max(2 * self.options.log_segment_bytes.min(capacity / 4))
    }

    /// True if commits will wait for room in the log before long.
    pub fn log_is_nearly_full(&self) -> bool {
        self.log_behind() >= self.log_full_bytes()
    }

    /// True if half of what the log may keep lies behind the last checkpoint.
    pub fn log_is_half_full(&self) -> bool {
        self.log_behind() >= self.options.log_capacity_bytes / 2
    }

    /// True if a checkpoint brings back space that is worth one: much of what lives is only kept for the last manifest, or
    /// somebody is refused space and any would come back. What it brings back does not wait for another one, so none calls for the next.
    /// What was committed `since` the last one may be deletes, of which only memory knows: of large values they are few and short. And of leaves that upkeep
    /// has unlinked since, what they were on disk is named by the manifest still.
    pub fn space_is_due(&self, since: Duration) -> bool {
        let superseded: u64 = self.upkept_indexes().iter().map(|entry| entry.index.superseded_bytes()).sum();
        let live = self.space.written_and_live().1;
        if are_worth_a_checkpoint(superseded, live, self.log_behind()) {
            return true;
        }
        let is_full = self.is_full();
        if self.space.take_refused() || is_full {
            let has_changed = self.log_behind() > 0 || self.upkept.load(Ordering::Relaxed);
            let is_refused_long = since >= REFUSED_REST && has_changed;
            let is_dirty = is_full && self.cache.stats().dirty_bytes > 0;
            return superseded + self.space.releasable_bytes() > 0 || is_dirty || is_refused_long;
        }
        false
    }
}

/// Superseded bytes, of what lives, with so much logged since the last checkpoint.
fn are_worth_a_checkpoint(superseded: u64, live: u64, logged: u64) -> bool {
    let rests = logged <= superseded / LOGGED_SHARE_AT_REST;
    let share = if rests { SUPERSEDED_SHARE_AT_REST } else { SUPERSEDED_SHARE };
    superseded >= (live / share).max(SUPERSEDED_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_worth_a_checkpoint_that_writes_next_to_nothing() {
        let mib = |n: u64| n << 20;
        assert!(are_worth_a_checkpoint(mib(40), mib(160), mib(400)));
        assert!(!are_worth_a_checkpoint(mib(39), mib(160), mib(5)), "five to be written");
        assert!(are_worth_a_checkpoint(mib(10), mib(160), mib(1)));
        assert!(!are_worth_a_checkpoint(mib(9), mib(160), 0), "a twentieth");
        assert!(!are_worth_a_checkpoint(mib(7), mib(10), 0), "of a small database most");
    }
}
