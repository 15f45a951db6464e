//! What a thread that waits tells whoever listens: that it begins to wait, who is in its way, that it has waited.
//!
//! All of it is told by the thread that waits, with no latch held: who is listening may end the transaction in the way
//! before it returns. So by the time it hears of somebody, that one may have ended; it has to know those that run itself.
//!
//! Who is in the way is told again and again, if that is wanted: a lock that is shared may be taken by others ahead of one
//! who sleeps (C2), and nobody wakes it for that. Of many only [`TOLD_MAX`] are told at a time, holders first, the next ones the
//! next time: so a row that hundreds wait for costs each of them a look at its queue, and not a call for everybody else.

use std::sync::Arc;
use std::time::Duration;

use base::TxnId;
use vfs::time::Instant;

use super::Locks;
use super::owner::{OwnerState, Place};

/// Transactions in somebody's way that are told at once, at most.
pub const TOLD_MAX: usize = 64;

/// What a thread that waits for a lock tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitNews<'a> {
    /// It is about to wait. The answer says after how long each time the next kind of news is wanted again.
    Begins,
    /// These transactions are in its way now: they hold the lock, or stand before it. Told at first and then as often as was
    /// asked for; at most [`TOLD_MAX`] of them, in turns.
    Blocked(&'a [TxnId]),
    /// It has waited.
    Ends,
}

/// Whoever is told. Only the answer to [`WaitNews::Begins`] counts; without one nobody hears who is in the way.
pub type Report = Box<dyn Fn(WaitNews<'_>) -> Option<Duration> + Send + Sync>;

impl Locks {
    /// From now on waits are told to `report`, unless somebody else is told already.
    pub fn report_waits(&self, report: Report) {
        self.report.set(report).ok();
    }

    /// Tells whoever listens: also of a wait that is for no lock, and is told as one.
    pub fn tell(&self, news: WaitNews<'_>) -> Option<Duration> {
        self.report.get().and_then(|report| report(news))
    }

    /// Sleeps until the wait is no longer plainly waiting or the deadline has passed; each `every` it tells who is in the way.
    pub(super) fn sleep(
        &self,
        owner: &Arc<OwnerState>,
        place: Place,
        deadline: Option<Instant>,
        every: Option<Duration>,
    ) {
        let Some(every) = every else { return owner.sleep(deadline) };
        let mut told = 0;
        while owner.is_waiting() {
            let blockers = self.blockers(owner, place, told);
            // Behind the last of them it begins with the first one again.
            told = if blockers.len() < TOLD_MAX { 0 } else { told + blockers.len() };
            if !blockers.is_empty() {
                self.tell(WaitNews::Blocked(&blockers));
            }
            let next = Instant::now() + every;
            owner.sleep(Some(deadline.map_or(next, |deadline| deadline.min(next))));
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return;
            }
        }
    }

    /// Who is in the way of `owner`, which waits there; without the first `skip`.
    fn blockers(&self, owner: &Arc<OwnerState>, place: Place, skip: usize) -> Vec<TxnId> {
        let shard = self.shard(place.shard).lock();
        let entry = shard.entry(place.entry);
        let Some(at) = entry.position(owner) else { return Vec::new() };
        entry.blockers(at).skip(skip).take(TOLD_MAX).map(|other| other.txn).collect()
    }
}
