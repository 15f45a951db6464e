//! Who needs the log as it is, and the run files: a backup under way, and `verify`.
//!
//! While there is anybody, a checkpoint trims the log no further than all of them allow and removes no run file. That it left something is
//! noted: once the last of them has let go, one more checkpoint is due though there is nothing to write
//! ([`Engine::log_is_worth_trimming`](crate::engine::Engine::log_is_worth_trimming)).

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Lsn;
use vfs::sync::Mutex;

/// From where on the log is needed, by whom.
#[derive(Default)]
pub struct HeldLog(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    holds: BTreeMap<u64, Lsn>,
    next: u64,
    /// A checkpoint has left something behind.
    has_left: bool,
}

/// Keeps the log, from a position on, and all run files until it is dropped.
pub struct Hold {
    held: Arc<HeldLog>,
    number: u64,
}

impl HeldLog {
    /// From now on the log stays from `from` on.
    pub fn hold(self: &Arc<Self>, from: Lsn) -> Hold {
        let mut inner = self.0.lock();
        inner.next += 1;
        let number = inner.next;
        inner.holds.insert(number, from);
        Hold { held: self.clone(), number }
    }

    /// For a checkpoint that is about to trim: no further than this. None if nobody needs anything.
    pub fn look(&self) -> Option<Lsn> {
        let mut inner = self.0.lock();
        inner.has_left = !inner.holds.is_empty();
        inner.holds.values().min().copied()
    }

    /// True if a checkpoint has left something for who does not need it any more.
    pub fn has_left(&self) -> bool {
        let inner = self.0.lock();
        inner.has_left && inner.holds.is_empty()
    }
}

impl Hold {
    /// The log is needed from here on only.
    pub fn move_to(&self, from: Lsn) {
        self.held.0.lock().holds.insert(self.number, from);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held.0.lock().holds.remove(&self.number);
    }
}
