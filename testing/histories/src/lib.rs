//! Recorded histories of concurrent transactions, and what they say about isolation.
//!
//! Transactions append to lists and write registers, and note what they read. A list shows the order of all that was
//! appended to it, so that nobody has to be asked for the order of versions (Kingsbury, Alvaro: "Elle: Inferring Isolation
//! Anomalies from Experimental Observations", VLDB 2020); of registers the commit timestamps tell it. From that follow the
//! dependencies between transactions (Adya, Liskov, O'Neil: "Generalized Isolation Level Definitions", ICDE 2000), and a
//! cycle among them that the level forbids is a wrong answer of the engine.
//!
//! | file | owns |
//! |---|---|
//! | `record.rs` | what a history is |
//! | `check.rs` | what must hold at every level, and the dependencies |
//! | `graph.rs` | cycles, and which of them a level allows |
//! | `run.rs` | histories of the engine in the simulator, across crashes |

#![forbid(unsafe_code)]

pub mod check;
pub mod graph;
pub mod record;
pub mod run;
