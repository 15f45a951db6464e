//! Waiting for the end of a transaction.
//!
//! Who has a range of an index (`crate::ranges`) holds, from its first range there to its end, the lock of a key that stands
//! for just that. Who must not insert into the range asks for this lock: an ordinary wait, with its edges for the deadlock
//! search, its time limit and its cancellation. When it is granted the owner of the range is gone.

use std::time::Duration;

use base::{IndexId, TxnId};

use super::entry::Mode;
use super::owner::LockOwner;
use super::{LockOutcome, LockRequest, Locks};

/// Stands for no index; such numbers are not reached.
pub(super) const ENDS: IndexId = IndexId(u32::MAX);

fn key(txn: TxnId, index: IndexId) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&txn.0.to_be_bytes());
    key[8..].copy_from_slice(&index.0.to_be_bytes());
    key
}

/// The index that such a key is about.
pub(super) fn index_of(key: &[u8]) -> IndexId {
    IndexId(u32::from_be_bytes(key[8..].try_into().expect("twelve bytes")))
}

impl Locks {
    /// From now on others can wait for the end of `owner`, before its first range on `index`.
    pub fn announce_end(&self, owner: &mut LockOwner, index: IndexId) {
        let key = key(owner.txn(), index);
        let request = LockRequest { index: ENDS, key: &key, mode: Mode::Exclusive, timeout: None, weight: 0 };
        let outcome = self.lock(owner, &request);
        debug_assert!(matches!(outcome, LockOutcome::Granted { .. }), "nobody asks before it is announced");
    }

    /// Waits until `other`, which has a range on `index`, has ended. `wanted` is the key that cannot be inserted until then.
    pub fn wait_for_end(
        &self,
        owner: &mut LockOwner,
        other: TxnId,
        (index, wanted): (IndexId, &[u8]),
        timeout: Option<Duration>,
        weight: usize,
    ) -> LockOutcome {
        owner.state.set_wanted(wanted);
        let key = key(other, index);
        let outcome = self.lock(owner, &LockRequest { index: ENDS, key: &key, mode: Mode::Shared, timeout, weight });
        self.release_one(owner, ENDS, &key);
        outcome
    }
}
