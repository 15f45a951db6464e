//! What the log says of leaves that cannot be read, of an index that cannot be made anew.
//!
//! The newest version of such a row may be in the log alone: it is not lost with the leaf. The index is only read from then
//! on ([`crate::quarantine`]).
//!
//! 1. An operation that cannot be applied because its leaf, or a node above, cannot be read is kept.
//! 2. So are all later ones of the same key, whether the leaf can be read by then or not: else an older one would lie
//!    over a newer one.
//! 3. What is kept becomes one run at the timestamp of the newest of it: before a run of the log is attached, which is
//!    newer, and at the end. Only the last operation of a key counts, since nobody reads what was before the opening.
//! 4. The oldest of it becomes a run of its own, at its own timestamp: a run in memory holds F back below itself, and what
//!    is kept has to be found in the log by the next opening, all of it.
//!
//! Readers merge the run like any other. A read of the damaged range is an error; a cursor that skips it shows what is
//! in the run ([`index::Skips`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{CommitTs, Fault, Result};
use index::Op;
use store::{Cache, Charge, Class, Run};
use vfs::sync::Mutex;

/// Memory of an operation beside its key and value, about.
const OPERATION_BYTES: usize = 100;
/// Memory is asked for in pieces of so many bytes.
const CHARGE_BYTES: u64 = 16 << 10;

/// The kept operations of one index.
pub struct Refused {
    cache: Arc<Cache>,
    /// False while nothing is kept, so that others need no mutex. Relaxed: operations of one key are one thread's.
    any: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    operations: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    newest: CommitTs,
    /// The oldest operation.
    oldest: Option<(CommitTs, Vec<u8>, Option<Vec<u8>>)>,
    bytes: u64,
    charge: Option<Charge>,
}

impl Refused {
    /// Nothing yet; memory is that of `cache`.
    pub fn new(cache: Arc<Cache>) -> Self {
        Self { cache, any: AtomicBool::new(false), kept: Mutex::default() }
    }

    /// True if an operation of this key was kept.
    pub fn has(&self, key: &[u8]) -> bool {
        self.any.load(Ordering::Relaxed) && self.kept.lock().operations.contains_key(key)
    }

    /// Keeps an operation.
    pub fn keep(&self, key: &[u8], op: Op<'_>, ts: CommitTs) -> Result<()> {
        let value = match op {
            Op::Put(value) => Some(value.to_vec()),
            Op::Delete => None,
        };
        let mut kept = self.kept.lock();
        kept.bytes += (key.len() + op.value_bytes() + OPERATION_BYTES) as u64;
        let held = kept.charge.as_ref().map_or(0, Charge::bytes);
        if held < kept.bytes {
            let more = self.cache.charge_waiting(Class::Work, (kept.bytes - held).max(CHARGE_BYTES))?;
            match &mut kept.charge {
                Some(charge) => charge.merge(more),
                None => kept.charge = Some(more),
            }
        }
        if kept.oldest.as_ref().is_none_or(|(oldest, ..)| ts < *oldest) {
            kept.oldest = Some((ts, key.to_vec(), value.clone()));
        }
        kept.operations.insert(key.to_vec(), value);
        kept.newest = kept.newest.max(ts);
        self.any.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Steps 3 and 4: runs, older ones first.
    pub fn take(&self) -> Vec<(Run, CommitTs)> {
        let kept = std::mem::take(&mut *self.kept.lock());
        self.any.store(false, Ordering::Relaxed);
        let (Some((oldest, key, value)), Some(charge)) = (kept.oldest, kept.charge) else { return Vec::new() };
        let mut runs = vec![(Run::from_sorted(kept.operations).with_charge(charge), kept.newest)];
        if oldest < kept.newest {
            runs.insert(0, (Run::from_sorted([(key, value)]), oldest));
        }
        runs
    }

    /// A charge for what is kept elsewhere until it is drained: past the limit if need be. What is read only is never drained, and refused.
    pub fn charge(&self, bytes: usize, read_only: bool) -> Result<Charge> {
        match self.cache.charge_waiting(Class::Work, bytes as u64) {
            Err(Fault::Limit { .. }) if !read_only => Ok(self.cache.budget().charge(Class::Work, bytes as u64)),
            charged => charged,
        }
    }
}
