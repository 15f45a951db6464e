//! The log-structured merge tree (ENGINE.md section 5).
//!
//! What is applied goes into a memtable; full ones are flushed to sorted runs, runs are merged to larger ones. Nothing that was written
//! is changed: a reader takes the list of what there is, once, and everything in it stays as it is until he lets go.
//!
//! | module | owns |
//! |---|---|
//! | [`lsm`] | what all modules share, and [`Lsm`], the index behind the seam |
//! | `memtable` | versions in memory |
//! | `block`, `slot`, `run` | a data block's payload; a block as the index of a run names it; runs |
//! | `writer` | a run from sorted versions |
//! | `input`, `merge` | everything of a source in order; many sources into one run, a piece at a time |
//! | `collect` | what stays of a key's versions |
//! | `choose` | which runs are merged next: a pure function |
//! | `maintenance` | flushes and merges in bounded steps; memory for who waits for it |
//! | `read`, `source`, `cursor` | point reads; what a reader sees of one source; range reads |
//! | `checkpoint`, `state` | what the manifest keeps |
//! | `estimate`, `stats` | how many keys lie in a range; counts |
//! | `verify` | checks; what the last checkpoint reaches; taking an index apart |
//!
//! # Order is by timestamp
//!
//! Every version carries its commit's timestamp, and every source knows the lowest and the highest of its own. Reads and merges go by
//! these alone: of several sources the newest version wins, wherever it lies, and a source is passed over only if all it has is older
//! than what was found, or newer than the reader. So it does not matter in which order memtables are sealed, runs attached or
//! merged [A18], and an entry may come late [A4].

#![forbid(unsafe_code)]

mod block;
mod checkpoint;
mod choose;
mod collect;
mod cursor;
mod estimate;
#[doc(hidden)]
pub mod fuzzing;
mod input;
pub mod lsm;
mod maintenance;
mod memtable;
mod merge;
mod read;
mod run;
mod slot;
mod source;
mod state;
mod stats;
mod verify;
mod writer;

pub use lsm::Lsm;
pub use state::is_state;
