//! What people are shown: who waits for whom now, and how the last deadlocks came about.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::{IndexId, TxnId};
use vfs::sync::Mutex;
use vfs::time::Instant;

use super::Locks;
use super::deadlock::Deadlock;
use super::ends::ENDS;
use super::entry::Mode;

/// Deadlocks remembered.
pub const DEADLOCKS_KEPT: usize = 64;

/// Who waits for what, and who is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitEdge {
    /// The waiting transaction.
    pub waiter: TxnId,
    /// The index of the lock it waits for.
    pub index: IndexId,
    /// The key of the lock it waits for.
    pub key: Vec<u8>,
    /// The mode it wants.
    pub mode: Mode,
    /// It would insert the key into a range that the blocker has locked.
    pub on_range: bool,
    /// The transaction that holds the lock, or stands before it in the queue.
    pub blocker: TxnId,
    /// How long it has waited.
    pub waited: Duration,
}

/// A key that is locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLock {
    /// Who has it.
    pub txn: TxnId,
    /// The index.
    pub index: IndexId,
    /// The key.
    pub key: Vec<u8>,
    /// How it is locked.
    pub mode: Mode,
    /// How many wait for it.
    pub waiters: usize,
}

/// The last deadlocks, oldest first.
#[derive(Debug, Default)]
pub(super) struct RecentDeadlocks(Mutex<VecDeque<(Instant, Deadlock)>>);

impl RecentDeadlocks {
    pub(super) fn keep(&self, deadlock: Deadlock) {
        let mut kept = self.0.lock();
        if kept.len() == DEADLOCKS_KEPT {
            kept.pop_front();
        }
        kept.push_back((Instant::now(), deadlock));
    }
}

impl Locks {
    /// The last [`DEADLOCKS_KEPT`] deadlocks, newest first, and how long ago each was ended.
    #[must_use]
    pub fn deadlocks(&self) -> Vec<(Duration, Deadlock)> {
        let kept = self.deadlocks.0.lock();
        kept.iter().rev().map(|(ended, deadlock)| (ended.elapsed(), deadlock.clone())).collect()
    }

    /// Keys that are locked, each with each who has it, at most `most` of them. One shard is looked at after the other, as in
    /// [`Locks::waits`]. What a large transaction has folded is not in the table.
    #[must_use]
    pub fn held(&self, most: usize) -> Vec<HeldLock> {
        let mut held = Vec::new();
        for slot in &self.shards {
            let shard = slot.shard.lock();
            for entry in shard.entries().filter(|entry| entry.index != ENDS) {
                let waiters = entry.waiters().filter(|waiter| waiter.owner.is_live()).count();
                for (owner, mode) in entry.holders() {
                    if held.len() == most {
                        return held;
                    }
                    let (txn, key) = (owner.txn, entry.key.as_bytes().to_vec());
                    held.push(HeldLock { txn, index: entry.index, key, mode, waiters });
                }
            }
        }
        held
    }

    /// Every waiter with every transaction in its way. One shard is looked at after the other: a wait that begins or ends
    /// meanwhile may be missing or still there.
    #[must_use]
    pub fn waits(&self) -> Vec<WaitEdge> {
        let mut edges = Vec::new();
        if self.stats.waiting.load(Ordering::Relaxed) == 0 {
            return edges;
        }
        for slot in &self.shards {
            let shard = slot.shard.lock();
            for entry in shard.entries() {
                for (at, _) in entry.waiters().enumerate().filter(|(_, waiter)| waiter.owner.is_live()) {
                    edges.extend(entry.blockers(at).map(|blocker| entry.edge(at, blocker)));
                }
            }
        }
        edges
    }
}
