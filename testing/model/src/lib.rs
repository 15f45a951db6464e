//! What an engine should answer, small enough to believe.
//!
//! | module | owns |
//! |---|---|
//! | [`versions`] | one index: a sorted map from key to its versions |
//! | [`tables`] | tables with secondary indexes, and transactions on them |
//!
//! Nothing here is fast, clever or shared between threads. Reads walk; garbage is collected only when a test
//! asks what the interval rule would leave. A model never forgets a version by itself, so it answers for every
//! snapshot there ever was.

#![forbid(unsafe_code)]

pub mod tables;
pub mod versions;

pub use tables::{Conflict, Reading, Row, Secondary, Shape, Tables, Transaction};
pub use versions::{Entry, Model, Version};
