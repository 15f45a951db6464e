//! The vocabulary of the engine: identifiers, log positions, visibility rules, byte order, checksums
//! and faults. No I/O, no threads, no other crate of the house.
//!
//! | module | owns |
//! |---|---|
//! | [`ids`] | one new type for each identifier |
//! | [`gc`] | the GC view and the interval rule that decides which versions may be dropped |
//! | [`bytes`] | little-endian and variable-length integers, bounded readers |
//! | [`checksum`] | CRC32C |
//! | [`sum`] | what long pieces of bytes are told apart by |
//! | [`fault`] | what can go wrong below the public API |
//! | [`link_buffer`] | the contiguous-prefix tracker behind `visible` and the log's written prefix |
//! | [`limits`] | sizes that are promises to the user |

#![forbid(unsafe_code)]

pub mod bytes;
pub mod checksum;
pub mod fault;
pub mod gc;
pub mod ids;
pub mod limits;
pub mod link_buffer;
pub mod sum;

pub use fault::{Corruption, Fault, Poison, Result, TellPoison};
pub use gc::GcView;
pub use ids::{CommitTs, IndexId, Lsn, TxnId};
