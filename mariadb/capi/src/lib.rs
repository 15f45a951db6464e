// SPDX-License-Identifier: GPL-2.0-only
//! The engine behind a C interface, for the handler of MariaDB (`mariadb/capi/include/capi.h`). No policy: what a statement
//! needs is asked for by the handler; storage, locks and transactions are the engine's tables.
//!
//! | module | owns |
//! |---|---|
//! | `abi` | structures that both sides know |
//! | `raw` | pointers of the server as slices that carry their promise |
//! | `entry` | the C functions: one line each, no panic gets out |
//! | `failure` | errors of the engine as codes and texts |
//! | `field` | one column: bytes of the server's record as a value, and back |
//! | `layout` | the server's table as a schema; records and keys as values |
//! | `database` | the one database, and counters of its tables |
//! | `numbers` | numbers of AUTO_INCREMENT, kept |
//! | `table` | an open table |
//! | `alter` | a table changed in place |
//! | `session` | the transaction of one connection |
//! | `status` | numbers and a text for administrators |
//! | `key_bytes` | how long keys may get, and whether there is room |
//! | `batch` | rows read ahead, as packed records |
//! | `packed` | records without what is behind the values of VARCHARs |
//! | `error_log` | what helps, in lines of the error log, and how often |
//! | `crash` | places where tests let the server die |
//! | `watch` | what connections do, for others to look at |
//! | `information` | tables of INFORMATION_SCHEMA |
//! | `shedding` | memory that tests let be short all the time |
//! | `cursor` | reading: where a scan is, and how it goes on |
//! | `reads` | rows by their keys, entries as the server judges them |
//! | `write` | rows written |
//!
//! A cursor of the engine borrows its transaction, and a statement writes between two reads. So rows are read in batches,
//! as records; a scan goes on behind the last row given out. What was read ahead is forgotten when the session writes:
//! the scan meets its own writes as they are. Reads that lock read ahead what the server is sure to ask for: a
//! lock is taken for no other rows.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "not part of the engine, never simulated")]

pub mod abi;
mod alter;
mod batch;
mod collation;
mod column_set;
mod crash;
mod cursor;
mod database;
pub mod entry;
mod error_log;
mod failure;
mod field;
mod filling;
mod foreign;
mod information;
mod key_bytes;
mod layout;
mod numbers;
mod packed;
mod ranges;
mod raw;
mod reads;
mod session;
mod shedding;
mod status;
mod table;
mod watch;
mod write;
mod writes;
