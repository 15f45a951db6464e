//! The log-structured merge tree (ENGINE.md section 5).
//!
//! What is applied goes into a memtable; full ones are flushed to sorted runs, runs are merged to larger ones. Nothing that was written
//! is changed: a reader takes the list of what there is, once, and everything in it stays as it is until he lets go.
//!
//! | module | owns |
//! |---|---|
//! | [`lsm`] | what all modules share, and [`Lsm`], the index behind the seam |
//! | `memtable` | versions in memory |
//! | `run`, `top`, `partition` | runs; the upper level of a run's index; a part of a run with its index block |
//! | `index_block`, `block`, `slot` | payloads; a data block as its index block names it |
//! | `writer`, `index_writer` | a run from sorted versions; its index beside it |
//! | `input`, `merge` | everything of a source in order; many sources into one run, a piece at a time |
//! | `collect` | what stays of a key's versions |
//! | `strand` | runs of a level that do not overlap: what a reader looks at |
//! | `prefix` | which blocks a range passes over unread, since nothing in them begins as its keys do |
//! | `choose` | which runs are merged next: a pure function, with a module for each shape |
//! | `maintenance`, `jobs` | flushes in bounded steps, memory for who waits for it; merges in bounded steps |
//! | `split` | a merge cut in two, for a thread that has nothing to do |
//! | `read`, `source`, `cursor`, `parked` | point reads; what a reader sees of one source; range reads, and those that wait |
//! | `dead`, `explore` | ranges of keys in which nothing is visible, over which cursors hop; who finds them |
//! | `checkpoint`, `state` | what the manifest keeps |
//! | `estimate`, `stats` | how many keys lie in a range; counts |
//! | `fresh` | what fresh puts stand on, for `verify` |
//! | `verify` | checks; what the last checkpoint reaches; taking an index apart |
//!
//! # Order is by timestamp
//!
//! Every version carries its commit's timestamp, and every source knows the lowest and the highest of its own. Reads and merges go by
//! these alone: of several sources the newest version wins, wherever it lies, and a source is passed over only if all it has is older
//! than what was found, or newer than the reader. So it does not matter in which order memtables are sealed, runs attached or
//! merged [A18], and an entry may come late [A4].

#![forbid(unsafe_code)]

// What tests share speaks of this crate from without.
#[cfg(test)]
extern crate self as trefoil_lsm;

mod batch;
mod block;
mod checkpoint;
mod choose;
mod collect;
mod cursor;
mod dead;
mod estimate;
mod explore;
mod fresh;
#[doc(hidden)]
pub mod fuzzing;
mod index_block;
mod index_writer;
mod input;
mod jobs;
pub mod lsm;
mod maintenance;
mod memtable;
mod merge;
mod parked;
mod partition;
mod prefix;
mod read;
mod run;
mod signposts;
mod slot;
mod source;
mod split;
mod state;
mod stats;
mod strand;
mod top;
mod verify;
mod writer;

pub use lsm::Lsm;
pub use state::is_state;
