//! The engines under test, seen in engine-neutral terms.
//!
//! | module | owns |
//! |---|---|
//! | [`row`] | the insert benchmark's row, batches of rows, the three secondary indexes and their two column sets |
//! | [`api`] | [`Target`] and [`Session`]: everything the driver ever asks of an engine |
//! | [`sysbench`] | what the sysbench tests ask of an engine |
//! | [`tpcc`] | what TPC-C asks of an engine |
//! | [`spec`] | the target string, `name:key=value,…` |
//! | [`secret`] | passwords in target strings, and texts without them |
//! | [`url`] | where the URL of a server is cut |
//! | [`counted`] | what Trefoil writes, by file |
//! | [`limited`] | a disk that is slower or smaller than the machine's |
//! | [`registry`] | from a target string to an open target |
//! | [`null`] | an engine that does nothing: the price of the driver itself |
//! | [`trefoil`] | the embedded engine, through its typed tables |
//! | [`peers`] | other embedded engines, each behind a feature of its own |
//! | [`server`] | MariaDB and MySQL over their protocol: a private server, or one that runs |
//! | [`model`] | ordered maps behind one latch a table: obviously right, and able to plant a known bug |
//!
//! A new engine is one file that implements the two traits and one line in [`registry`].

// A memory map is unsafe to open: one function of the LMDB adapter.
#![cfg_attr(not(feature = "lmdb"), forbid(unsafe_code))]
#![cfg_attr(feature = "lmdb", deny(unsafe_code))]
// The lab measures engines from outside, on real clocks and real threads; the simulator never runs it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod api;
pub mod counted;
pub mod limited;
pub mod model;
pub mod null;
pub mod peers;
pub mod registry;
pub mod row;
pub mod secret;
pub mod server;
pub mod spec;
pub mod sysbench;
pub mod tpcc;
pub mod trefoil;
pub mod url;

pub use api::{
    Ability, Counters, Description, Durability, IoMode, PointRow, RangeQuery, Result, Session, Setup, Sizes, Target,
    TargetError,
};
pub use limited::DiskLimits;
pub use registry::{known_targets, open};
pub use row::{Batch, Column, Entry, IndexSet, Price, RowView, Secondary};
pub use spec::TargetSpec;
