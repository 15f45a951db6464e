//! A grant that is kept for a while: by a commit that is ready and waits for its turn, in an order that somebody else
//! decides. As long as it is kept, its room in the ring and on disk is nobody else's: whoever keeps many bounds them.
//!
//! And promises: room on disk alone, for records that come much later and must not be refused.

use std::sync::Arc;

use base::Lsn;

use crate::log::{Inner, SpaceGrant, Wal};
use crate::record::{RecordKind, record_bytes};

/// As a [`SpaceGrant`], and holds the log itself. Dropping it gives the room back.
#[must_use = "dropping a grant gives its room back"]
pub struct HeldGrant {
    log: Arc<Inner>,
    bytes: u64,
}

impl Drop for HeldGrant {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.log.room.release(self.bytes, 1);
        }
    }
}

impl std::fmt::Debug for HeldGrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HeldGrant({} bytes)", self.bytes)
    }
}

impl HeldGrant {
    /// Bytes of the ring that it keeps.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Wal {
    /// From now on ordinary grants leave space on disk for a record with a payload of this length, beside the reserve: one
    /// that must not be refused whenever it comes, as the decision about what is prepared. It is granted as privileged.
    pub fn promise(&self, payload_bytes: usize) {
        self.0.room.promise(record_bytes(payload_bytes));
    }

    /// That record was appended, or will not come.
    pub fn end_promise(&self, payload_bytes: usize) {
        self.0.room.end_promise(record_bytes(payload_bytes));
    }

    /// Keeps a grant of this log.
    pub fn hold(&self, mut grant: SpaceGrant<'_>) -> HeldGrant {
        HeldGrant { log: self.0.clone(), bytes: std::mem::take(&mut grant.bytes) }
    }

    /// As [`Wal::append`].
    ///
    /// # Panics
    /// As [`Wal::append`].
    pub fn append_held(&self, mut grant: HeldGrant, kind: RecordKind, payload: &[u8]) -> (Lsn, Lsn) {
        let bytes = std::mem::take(&mut grant.bytes);
        let grant = SpaceGrant { log: &grant.log, bytes };
        self.append(grant, kind, payload)
    }
}
