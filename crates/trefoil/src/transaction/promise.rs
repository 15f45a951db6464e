//! Room on the disk that a transaction was let in for (rule P4).
//!
//! A full disk is told at the statement. So a write that is let in is promised its room, and the commit, or the first phase of one, does not ask again:
//! whatever takes room in between, merges of the background first, would refuse it.
//! 1. The statement asks for room beside what is owed, what others were promised and what this write will owe. Two that ask at the same moment may
//!    both get the last of it: the reserve has that, too.
//! 2. The write is promised ([`Promise::add`]), which counts as owed from then on ([`Engine::owed_bytes`](crate::engine::Engine)).
//! 3. What is taken back gives its promise back ([`Promise::take_back`]); the end of the transaction, all of it. A commit has been applied by then: what it
//!    owes is counted where it lies, in memtables, leaves and runs.
//!
//! A write owes what it is in memory: merges and write-back make it no larger. In a tree it owes a leaf, too, which is written anew: as many as
//! take a quarter of the reserve. A commit that makes more leaves dirty takes from the reserve, which is there for commits in flight.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;
use txn::write_set::Seq;

/// The least that is promised at once, and the most that is without being asked for: all write to one counter.
const PART_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 20;
/// What a version takes beside key and value.
const VERSION_BYTES: u64 = 64;
/// Leaves of one transaction may take one in so many bytes of the reserve.
const LEAVES_SHARE: u64 = 4;

/// What all running transactions were promised, in bytes. Relaxed: it orders nothing, and who asks at the same moment is not waited for.
#[derive(Debug, Default)]
pub(crate) struct Promised(CachePadded<AtomicU64>);

impl Promised {
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one write will owe. `leaf_bytes`: of a leaf, if it makes one dirty; `writes`: of the transaction so far.
pub(super) fn owed_by(payload_bytes: u64, leaf_bytes: u64, writes: u64, reserve_bytes: u64) -> u64 {
    let leaf = if writes.saturating_mul(leaf_bytes) < reserve_bytes / LEAVES_SHARE { leaf_bytes } else { 0 };
    payload_bytes + payload_bytes / 4 + VERSION_BYTES + leaf
}

/// What one transaction was promised.
#[derive(Debug, Default)]
pub(super) struct Promise {
    parts: SmallVec<[Part; 1]>,
    bytes: u64,
    /// Of it, not used yet.
    left: u64,
}

#[derive(Debug)]
struct Part {
    /// Where the transaction stood when it got this one.
    at: Seq,
    bytes: u64,
    /// Not used of those before.
    left: u64,
}

impl Promise {
    /// Promises a write at `at`.
    pub fn add(&mut self, all: &Promised, at: Seq, bytes: u64) {
        if bytes <= self.left {
            self.left -= bytes;
            return;
        }
        let missing = bytes - self.left;
        let part = missing.max((self.bytes / 8).clamp(*PART_BYTES.start(), *PART_BYTES.end()));
        all.0.fetch_add(part, Ordering::Relaxed);
        self.parts.push(Part { at, bytes: part, left: self.left });
        self.bytes += part;
        self.left = part - missing;
    }

    /// The transaction goes back to `to`. What it wrote behind that from a part that stays is not known: it stays promised until the end.
    pub fn take_back(&mut self, all: &Promised, to: Seq) {
        let kept = self.parts.partition_point(|part| part.at < to);
        let Some(first) = self.parts.get(kept) else { return };
        self.left = first.left;
        let bytes: u64 = self.parts.drain(kept..).map(|part| part.bytes).sum();
        all.0.fetch_sub(bytes, Ordering::Relaxed);
        self.bytes -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::random::Rng;

    /// Guards: a part is given back with the write that asked for it; what is left of it goes with it.
    #[test]
    fn what_was_written_is_promised_and_what_was_taken_back_is_not() {
        let mut rng = Rng::new(3);
        let all = Promised::default();
        // With what was written, and whether some of it was taken back.
        let mut some: Vec<(Promise, Vec<u64>, bool)> = (0..4).map(|_| Default::default()).collect();
        for _ in 0..20_000 {
            let (promise, writes, went_back) = &mut some[rng.index(4)];
            match rng.below(40) {
                0 => {
                    let to = rng.index(writes.len() + 1);
                    writes.truncate(to);
                    promise.take_back(&all, Seq(to as u64));
                    *went_back = true;
                }
                1 => {
                    writes.clear();
                    promise.take_back(&all, Seq(0));
                    assert_eq!(promise.bytes, 0);
                    *went_back = false;
                }
                _ => {
                    let bytes = rng.below(20_000);
                    promise.add(&all, Seq(writes.len() as u64), bytes);
                    writes.push(bytes);
                }
            }
            let written: u64 = writes.iter().sum();
            assert!(promise.bytes >= written + promise.left, "{promise:?} {written}");
            assert!(*went_back || promise.bytes <= written + written / 8 + PART_BYTES.start(), "{promise:?} {written}");
            assert_eq!(all.bytes(), some.iter().map(|(promise, ..)| promise.bytes).sum::<u64>());
        }
    }
}
