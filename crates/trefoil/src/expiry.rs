//! The clock that versions expire by ([`index::expiry`]): read now and then, and committed.
//!
//! A tick is a row of the catalog, one for each index whose versions expire, some that are due in one commit. So it is logged, replayed, backed up and
//! restored as definitions are, and no state of an index can be met without it. One that brings anything about is followed by another at once:
//! what a tick says counts from the one behind it on, when it is durable. While nothing in an index can expire its clock stands still.
//!
//! Steps of [`Engine::keep_time`], one thread at a time (`Engine::catalog_rows`): (1) the log's end; (2) the clock, behind it: what has a place in the log
//! was there before; (3) the rows are committed, and the ticks taken before anybody can have a snapshot that sees them; (4) the commit is durable, or
//! nothing more is written. A drop takes the row away under the same latch; a row that outlives its index is passed over.
//!
//! The clock itself never goes back: [`Clock`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::{Fault, Result};
use index::Expiry;
use vfs::sync::Mutex;
use vfs::time::Instant;

use crate::catalog;
use crate::commit::Room;
use crate::ddl::CatalogChange;
use crate::engine::Engine;
use crate::entry::IndexEntry;
use crate::error::Error;

/// A clock that goes on with the machine's time of day where that is ahead, and by itself where that was set back.
#[derive(Debug, Default)]
pub struct Clock(Mutex<Option<(Duration, Instant)>>);

impl Clock {
    /// It is this late at least, in milliseconds since 1970.
    pub fn go_on_from(&self, ms: u64) {
        let mut known = self.0.lock();
        let ms = Duration::from_millis(ms);
        if known.is_none_or(|(then, _)| then < ms) {
            *known = Some((ms, Instant::now()));
        }
    }

    /// In milliseconds since 1970.
    fn now_ms(&self) -> u64 {
        let mut known = self.0.lock();
        let passed = known.map_or(Duration::ZERO, |(then, at)| then + at.elapsed());
        let now = vfs::time::unix_time().max(passed);
        *known = Some((now, Instant::now()));
        now.as_millis() as u64
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Now,
    AtClose,
}

/// Their rows have a few hundred bytes each, up to 1.5 KiB, and a record under the least budget 4 KiB.
const INDEXES_PER_COMMIT: usize = 2;

/// On a full disk a tick that brings nothing about comes so many times while a version lives.
const SELDOM: u64 = 8;

/// One tick says what the clock is, one that it counts.
const TICKS: usize = 2;

impl Engine {
    /// Commits what the clock says for indexes whose versions expire, where that is due. True if any was.
    pub fn keep_time(&self) -> Result<bool> {
        let mut ticks = 0;
        while ticks < TICKS && !self.recovering.load(Ordering::Acquire) && self.tick(Due::Now)? {
            ticks += 1;
        }
        Ok(ticks > 0)
    }

    /// The same; that the disk is full, or memory short, keeps nobody from going on.
    pub fn keep_time_if_can(&self) -> Result<bool> {
        match self.keep_time() {
            Err(Fault::NoSpace { .. } | Fault::Limit { .. }) => Ok(false),
            other => other,
        }
    }

    /// The same before the database is closed, due or not: what was written last would else count as written when it is opened again.
    pub fn keep_time_at_close(&self) {
        // What fails here fails the checkpoint that follows, or costs no more than that.
        let _ = self.tick(Due::AtClose);
    }

    /// True if any clock has ticked.
    fn tick(&self, due: Due) -> Result<bool> {
        let is_wanted = |entry: &&Arc<IndexEntry>| {
            let is_due = |expiry: &Arc<Expiry>| due == Due::AtClose || expiry.is_due(self.clock.now_ms());
            entry.index.expiry().is_some_and(is_due) && entry.index.has_unexpired()
        };
        if !self.names.read().plain.values().any(|entry| is_wanted(&entry)) {
            return Ok(false);
        }
        let _rows = match due {
            // Who has it may wait for what this thread does beside.
            Due::Now => match self.catalog_rows.try_lock() {
                Some(rows) => rows,
                None => return Ok(false),
            },
            Due::AtClose => self.catalog_rows.lock(),
        };
        // What was dropped has left the names under the latch.
        let entries: Vec<_> = self.names.read().plain.values().filter(is_wanted).cloned().collect();
        let mut ticked = false;
        for some in entries.chunks(INDEXES_PER_COMMIT) {
            ticked |= self.tick_some(some, due)?;
        }
        Ok(ticked)
    }

    /// One commit of the ticks of a few indexes. Beside them little else fits into a record.
    fn tick_some(&self, entries: &[Arc<IndexEntry>], due: Due) -> Result<bool> {
        let through = self.wal.end().as_commit_ts();
        vfs::thread::point("expiry.log_end");
        let now_ms = self.clock.now_ms();
        let view = self.snapshots.view();
        let (mut ticks, mut is_worth, mut is_long) = (Vec::new(), false, false);
        let mut change: CatalogChange = Vec::new();
        for entry in entries {
            let expiry = entry.index.expiry().expect("just looked at");
            expiry.trim(&view);
            let tick = expiry.next(through, now_ms, due == Due::AtClose);
            is_worth |= expiry.is_worth_space(&tick);
            is_long |= now_ms >= expiry.last_ms().saturating_add(expiry.ttl_seconds().saturating_mul(1000) / SELDOM);
            change.push((catalog::clock_key(entry.id()).to_vec(), Some(tick.encode())));
            ticks.push((expiry, tick));
        }
        // What others were promised of the log is touched only if space comes back by it. On a full disk, or with a log that no checkpoint trims, now and then all the same: what was written last
        // expires by a tick behind it.
        let is_tight = !is_long && (self.log_is_half_full() || self.is_full());
        if due == Due::Now && is_tight && !is_worth {
            return Ok(false);
        }
        // Without a wait for others, who may wait for this thread.
        let committed = self.commit_catalog_noting(change, Room::Reserve, |ts| {
            ticks.into_iter().for_each(|(expiry, tick)| expiry.take(ts, tick));
        });
        vfs::thread::point("expiry.committed");
        committed.map(|_| true).map_err(as_fault)
    }
}

/// As the background knows it.
fn as_fault(error: Error) -> Fault {
    match error {
        Error::Limit { what, limit, got } => Fault::Limit { what, limit, got },
        Error::DiskFull { what, remedy } => Fault::NoSpace { what, remedy },
        Error::Corrupt(corruption) => Fault::Corrupt(corruption),
        Error::Poisoned { cause } | Error::CommitOutcomeUnknown { cause, .. } => Fault::Poisoned(cause.into()),
        other => Fault::io("commit", "the clock of indexes whose versions expire", &std::io::Error::other(other)),
    }
}
