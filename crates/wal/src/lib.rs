//! The write-ahead log: one stream of records for the whole database.
//!
//! # What it owns
//! The segment files `wal-<id>.log`, the ring in which records wait to be written, and the two numbers
//! everybody else asks for: how far the log is *written* (handed to the system: survives the process) and how
//! far it is *durable* (survives the machine). What a record says is the engine's business.
//!
//! # Steps of one record
//! 1. [`Wal::reserve_space`] gets room in the ring and on disk. It is the only step that waits or fails for want
//!    of space, and it runs before the record has a position (step 1b of a commit, rule A1).
//! 2. [`Wal::append`] takes the position with one `fetch_add`, copies the record into the ring beside other
//!    threads, and marks the byte range copied (rule A12).
//! 3. [`Wal::write_to`] frames the contiguous copied prefix and hands it to the system.
//! 4. [`Wal::sync_to`] makes it durable. Whoever comes first does the work for all who wait; the next group
//!    fills, and if it is large is written, while the previous one syncs.
//! 5. [`Wal::trim`] gives segments below a position back, to be used again under new numbers.
//!
//! # Invariants
//! - `durable <= written <= taken <= copied prefix <= end`, and `end - taken <= ring size`.
//! - Bytes and records between `taken` and `end`, and those granted but not yet appended, are covered by space
//!   in segments that exist: a write never extends a file.
//! - A sector that holds bytes acknowledged as durable is never written again (rule A19): the block in which a
//!   sync finds the end is sealed, and the next frame starts a fresh one.
//! - Bytes of an earlier life, of an earlier use of the file, or of another database never validate: segment
//!   number and incarnation are in each frame, and the database's identity seeds its checksum (rule A13).
//!
//! | module | owns |
//! |---|---|
//! | [`mod@format`] | segment headers and frame headers, to the byte |
//! | [`record`] | records inside a frame |
//! | `held` | a grant that is kept for a while |
//! | `ring` | the bytes between append and write |
//! | `room` | how much may be granted |
//! | `stage` | one leader at a time, the others wait for its group |
//! | `wanted` | where the maker of segments sleeps |
//! | `segment` | segment files: made ahead, started, trimmed, used again |
//! | `writer` | frames: what one group becomes on disk |
//! | [`log`] | [`Wal`]: the steps above |
//! | `reader` | frames found in a segment file |
//! | [`recovery`] | the records that a crash left, torn tail told from corruption |
//! | `copy` | a copy of an open log, for a backup |
//! | `relog` | what recovery accepted and nobody knows to be durable, written once more |
//! | [`fuzzing`] | bodies that hostile bytes must not panic |

#![forbid(unsafe_code)]

mod copy;
pub mod format;
pub mod fuzzing;
mod gathering;
mod held;
pub mod log;
pub mod options;
mod reader;
pub mod record;
pub mod recovery;
mod relog;
mod ring;
mod room;
mod segment;
mod stage;
mod stats;
mod wanted;
mod writer;

pub use format::{DatabaseId, Incarnation, SegmentId};
pub use held::HeldGrant;
pub use log::{SpaceGrant, Wal};
pub use options::{WalOptions, WalStart};
pub use record::{RecordKind, RecordRef};
pub use recovery::{ManifestMark, WalEnd, recover};
pub use stats::WalStats;
