//! sysbench: point, range and write tests on one table or several, with its names and in its order.
//!
//! | module | owns |
//! |---|---|
//! | [`catalogue`] | the tests, their names and their order |
//! | [`plan`] | options of a run |
//! | [`rows`] | rows and texts, and what can be told of them afterwards |
//! | [`zipf`] | numbers of which a few come often |
//! | [`event`] | what one event of a test does, and whether the answers are right |
//! | [`client`] | the thread of a client: events, restarts, what it changed |
//! | [`check`] | the invariants after a step |
//! | [`sequence`] | load and all tests on one target |

pub mod catalogue;
pub mod check;
pub mod client;
pub mod event;
pub mod plan;
pub mod rows;
pub mod sequence;
pub mod zipf;

pub use catalogue::{Step, Test};
pub use plan::Plan;
pub use sequence::run_case;
