//! The running transactions that have written something: where readers look for keys that are pending (rule A22).
//!
//! A transaction enters before its first write and leaves when that is applied or taken back. The list is sharded by
//! transaction; who looks through it copies a shard and then looks into one write set at a time.

use std::ops::Bound;
use std::sync::Arc;

use base::{IndexId, Result, TxnId};
use crossbeam_utils::CachePadded;
use vfs::sync::Mutex;

use crate::write_set::{Seq, SharedWriteSet};

const SHARDS: usize = 16;
/// Values come along with the keys: those of one transaction end a look here.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// Transactions with writes.
#[derive(Debug, Default)]
pub struct Writers {
    shards: [CachePadded<Mutex<Vec<Arc<SharedWriteSet>>>>; SHARDS],
}

/// Keys that running transactions have written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// The keys, in no order, some twice.
    pub keys: Vec<Vec<u8>>,
    /// The range was looked through up to this key, included; none: to its end.
    pub up_to: Option<Vec<u8>>,
}

impl Writers {
    /// Nobody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Before the first write of `txn`.
    pub fn enter(&self, txn: TxnId, set: &Arc<SharedWriteSet>) {
        self.shard(txn).lock().push(set.clone());
    }

    /// After the writes of `txn` were applied, or taken back for good.
    pub fn leave(&self, txn: TxnId, set: &Arc<SharedWriteSet>) {
        self.shard(txn).lock().retain(|other| !Arc::ptr_eq(other, set));
    }

    /// Keys of a range of an index that transactions other than `own` have written, or deleted. At most `limit` of each
    /// and not many more than a MiB of their values, from the lower end; with `backward` from the upper one.
    ///
    /// # Errors
    /// Faults of reading writes that lie in files.
    pub fn pending(
        &self,
        index: IndexId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        own: &Arc<SharedWriteSet>,
        limit: usize,
        backward: bool,
    ) -> Result<Pending> {
        let mut found = Pending::default();
        for shard in &self.shards {
            let sets: Vec<_> = shard.lock().iter().filter(|set| !Arc::ptr_eq(set, own)).cloned().collect();
            for set in sets {
                vfs::thread::point("writers.probe");
                let copied = set.copy(index, range, Seq::LATEST, backward, (limit, VALUE_BYTES_MAX))?;
                found.keys.extend(copied.entries.into_iter().map(|(key, _)| key));
                if copied.more {
                    let last = found.keys.last().expect("at least one").clone();
                    let nearer = |old: &Vec<u8>| if backward { *old < last } else { *old > last };
                    if found.up_to.as_ref().is_none_or(nearer) {
                        found.up_to = Some(last);
                    }
                }
            }
        }
        if let Some(end) = &found.up_to {
            found.keys.retain(|key| if backward { key >= end } else { key <= end });
        }
        Ok(found)
    }

    fn shard(&self, txn: TxnId) -> &Mutex<Vec<Arc<SharedWriteSet>>> {
        &self.shards[txn.0 as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_keys_of_others_are_found_up_to_a_limit() {
        let writers = Writers::new();
        let sets: Vec<_> = (0..3u64).map(|_| Arc::new(SharedWriteSet::new())).collect();
        for (n, set) in sets.iter().enumerate() {
            writers.enter(TxnId(n as u64), set);
            for key in (n as u8..60).step_by(3) {
                set.write(|set| set.put(IndexId(1), &[key], b"")).expect("put");
            }
        }
        let probe = |limit, backward| {
            let range = (Bound::Included(&[10][..]), Bound::Excluded(&[40][..]));
            let mut found = writers.pending(IndexId(1), range, &sets[0], limit, backward).expect("memory");
            found.keys.sort_unstable();
            (found.keys.concat(), found.up_to.map(|key| key[0]))
        };
        let others: Vec<u8> = (10..40).filter(|key| key % 3 != 0).collect();
        assert_eq!(probe(100, false), (others.clone(), None));
        assert_eq!(probe(2, false), (vec![10, 11, 13], Some(13)));
        assert_eq!(probe(2, true), (vec![35, 37, 38], Some(35)));
        // Large values end a look early, behind at least one key.
        sets[1].write(|set| set.put(IndexId(1), &[13], &vec![0; VALUE_BYTES_MAX])).expect("put");
        assert_eq!(probe(100, false), (vec![10, 11, 13], Some(13)));
        writers.leave(TxnId(1), &sets[1]);
        assert_eq!(probe(100, true), (others.into_iter().filter(|key| key % 3 == 2).collect(), None));
    }
}
