//! Transactions without data: which commits a reader sees, who may change a row, and what a transaction has
//! written so far. Judges visibility, reads no index.
//!
//! | module | owns |
//! |---|---|
//! | [`visible`] | the end of the contiguous applied prefix, and those who wait for it |
//! | [`snapshots`] | slots of live snapshots |
//! | [`views`] | GC views built from the slots |
//! | [`locks`] | row locks, their queues, deadlock detection, locks folded when there are too many |
//! | [`ranges`] | range locks of an index, and who may write beside them |
//! | [`Writers`] | the write sets of running transactions, to look for pending keys in |
//! | [`write_set`] | the writes of a running transaction: operation log and ordered maps, and what of it lies in files |

#![forbid(unsafe_code)]

pub mod locks;
pub mod ranges;
mod slots;
pub mod snapshots;
pub mod views;
pub mod visible;
mod word;
pub mod write_set;
mod writers;

pub use locks::{KeyNames, LockOutcome, LockOwner, LockRequest, Locks, Mode, lock_bytes};
pub use ranges::Ranges;
pub use snapshots::{SnapshotSlot, Snapshots};
pub use visible::Visible;
pub use write_set::{Seq, SharedWriteSet, WriteSet, Written};
pub use writers::{Pending, Writers};
