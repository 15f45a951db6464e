//! Which memtables are flushed: of all indexes that share the budget.
//!
//! Memtables grow side by side. When they take more than should be buffered, the largest is sealed, and the next largest if that is not enough. So of *n*
//! indexes that grow equally fast one is flushed after the other, each twice as large as if all were flushed at once, and the background
//! has some of it to do all the time. (All at once, their memory comes back late: in each such wave commits were delayed, and
//! merges left alone.) A memtable that takes half of what should be buffered is sealed by its index itself, as is one for a checkpoint.
//!
//! What is sealed does not count, as long as somebody flushes it.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use store::Class;
use vfs::sync::Mutex;
use vfs::time::Instant;

use crate::engine::Engine;
use crate::entry::IndexEntry;

/// So much less than what should be buffered is left to take writes, as a part of it.
const LEFT_SHARE: u64 = 16;
/// So much of it may be unwritten beyond it before it is asked whether somebody flushes what is sealed.
const STUCK_SHARE: u64 = 8;
/// So much of it may be in memory beyond it, written or not, before a flush hurries.
const HELD_SHARE: u64 = 4;
/// Who found nothing to seal, though there is too much, has the next one look after so long: of ten thousand memtables all may be too small.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// One thread at a time chooses; not before this, if nothing was found.
#[derive(Debug, Default)]
pub struct Flushes(Mutex<Option<Instant>>);

impl Engine {
    /// Seals memtables of these indexes, which are kept up, the largest first, while more takes writes than should be buffered.
    pub fn seal_the_largest(&self, entries: &[Arc<IndexEntry>]) {
        let (aim, cache) = (self.cache.buffered_aim(), &self.cache);
        let is_stuck = || cache.unwritten_bytes() > aim + aim / STUCK_SHARE;
        if cache.unsealed_bytes() <= aim && !is_stuck() {
            return;
        }
        let Some(mut again) = self.flushes.0.try_lock() else { return };
        if again.is_some_and(|again| Instant::now() < again) {
            return;
        }
        let mut memtables: Vec<_> = entries.iter().map(|entry| (entry.index.memtables(), entry)).collect();
        let coming_back: u64 = memtables.iter().map(|(bytes, _)| bytes.sealed).sum();
        let taken = self.budget.used(Class::Buffers).saturating_sub(coming_back);
        // A dropped index gives its memory back as it is.
        memtables.retain(|(bytes, entry)| bytes.active > 0 && entry.dropped_at().is_none());
        memtables.sort_by_key(|(bytes, _)| Reverse(bytes.active));
        let mut excess = if taken > aim { taken - (aim - aim / LEFT_SHARE) } else { 0 };
        let mut sealed = 0;
        for (_, entry) in memtables {
            if excess == 0 {
                break;
            }
            let bytes = entry.index.seal();
            (excess, sealed) = (excess.saturating_sub(bytes), sealed + bytes);
        }
        *again = (sealed == 0).then(|| Instant::now() + LOOK_AGAIN);
    }

    /// True if an index has a memtable to flush that others should wait for.
    pub fn flush_hurries(&self, entry: &IndexEntry) -> bool {
        let (aim, used) = (self.cache.buffered_aim(), self.budget.used(Class::Buffers));
        let is_too_much = self.cache.unwritten_bytes() > aim || used > aim + aim / HELD_SHARE;
        is_too_much && entry.is_kept_up() && entry.index.memtables().sealed > 0
    }
}
