//! The whole engine under the deterministic simulator: random concurrent transactions on a disk that loses, tears
//! and refuses, crashes at any moment and during recovery, and afterwards the question what must be there.
//!
//! | module | owns |
//! |---|---|
//! | [`history`] | what every transaction did and what every reader saw |
//! | [`world`] | an open database with its handles, and reading all of it |
//! | [`workload`] | the threads of one life |
//! | [`lives`] | one seed: several lives of one database, with what goes wrong in each |
//! | [`judge`] | what must be there after a crash, and whether every reader saw one moment |
//! | [`space`] | whether every block that is held can be reached |
//!
//! One seed is one history: the same bytes, the same switches, the same end. A failing seed is run again with
//! `cargo run --profile sim -p trefoil-sim -- seed N`.

#![forbid(unsafe_code)]

pub mod history;
pub mod judge;
pub mod lives;
pub mod space;
pub mod workload;
pub mod world;
