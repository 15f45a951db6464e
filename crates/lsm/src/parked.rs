//! Merges of cursors that wait for their next call.
//!
//! A cursor that nobody moves must hold nothing: a memtable that was flushed, a run that was merged away would stay for as long as it is
//! open. So between two calls what it has begun belongs to the list of sources that it was begun on, and goes with that when another list
//! takes its place. The cursor then begins anew behind the key that it has come to.

use std::collections::BTreeMap;

use index::merge::{Merge, Source};
use vfs::sync::Mutex;

/// A merge of what a reader sees of each source.
pub(crate) type Begun = Merge<Box<dyn Source>>;

/// Cursors that come from different places rarely meet.
const SHARDS: usize = 32;

/// What cursors have begun on one list. A copy of the list has nothing.
pub(crate) struct Parked {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    next: u64,
    begun: BTreeMap<u64, Begun>,
}

/// Where a merge is parked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    shard: usize,
    number: u64,
}

impl Parked {
    /// Takes a merge; `hint` is about the same for cursors that are the same.
    pub fn put(&self, hint: u64, begun: Begun) -> Ticket {
        let shard = hint as usize % SHARDS;
        let mut to = self.shards[shard].lock();
        to.next += 1;
        let number = to.next;
        to.begun.insert(number, begun);
        Ticket { shard, number }
    }

    /// Gives it back.
    pub fn take(&self, ticket: Ticket) -> Option<Begun> {
        self.shards[ticket.shard].lock().begun.remove(&ticket.number)
    }
}

impl Default for Parked {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Clone for Parked {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl std::fmt::Debug for Parked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parked")
    }
}
