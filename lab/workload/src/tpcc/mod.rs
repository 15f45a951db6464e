//! TPC-C: orders, payments and deliveries of a wholesaler, with the twelve consistency conditions.
//!
//! | module | owns |
//! |---|---|
//! | [`plan`] | options of a run, and how large the tables are |
//! | [`draw`] | the specification's random numbers and texts |
//! | [`population`] | the rows of the load |
//! | [`transactions`] | the five transactions, and whether the answers are right |
//! | [`world`] | what all sessions of a step share: what was begun and what was acknowledged |
//! | [`client`] | the thread of a session: the shuffled deck, attempts, what it measured |
//! | [`conditions`] | the twelve conditions, in one snapshot |
//! | [`crash`] | what is left of a process that was killed |
//! | [`check`] | rows, index entries and contents |
//! | `results` | what a record has beside what every record has |
//! | [`sequence`] | all steps on one target |

pub mod check;
pub mod client;
pub mod conditions;
pub mod crash;
pub mod draw;
pub mod plan;
pub mod population;
mod results;
pub mod sequence;
pub mod transactions;
pub mod world;

pub use plan::{Plan, Size};
pub use sequence::run_case;
