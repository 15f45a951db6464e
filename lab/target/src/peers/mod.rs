//! Other embedded engines, each behind a feature of its own and none in the default build.
//!
//! | module | owns |
//! |---|---|
//! | `keys` | keys and values as bytes whose order is that of the columns |
//! | `kv` | what is asked of an ordered key-value store, and the target built on it once for all of them |
//! | `redb`, `fjall`, `lmdb`, `rocksdb` | one store each |
//! | `sqlite` | the same statements in SQL |
//!
//! The terms are those of [`Setup`]: one budget, one durability, one directory. A peer does the work that typed tables
//! do: an insert finds out whether its primary key exists, a delete reads the row to know its index keys, a range query
//! reads index keys only.

use crate::api::{Result, Setup, Target, TargetError};
use crate::spec::TargetSpec;

#[cfg(feature = "fjall")]
pub mod fjall;
#[cfg(any(feature = "fjall", feature = "lmdb", feature = "redb", feature = "rocksdb"))]
pub mod keys;
#[cfg(any(feature = "fjall", feature = "lmdb", feature = "redb", feature = "rocksdb"))]
pub mod kv;
#[cfg(feature = "lmdb")]
pub mod lmdb;
#[cfg(feature = "redb")]
pub mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
#[cfg(feature = "sqlite")]
pub mod sqlite;

/// The peers with one line each for the help text, and whether this build has them. A peer's feature has its name.
pub const PEERS: &[(&str, &str, bool)] = &[
    ("rocksdb", "RocksDB: a log-structured merge tree in C++", cfg!(feature = "rocksdb")),
    ("sqlite", "SQLite: SQL over B-trees with a write-ahead log", cfg!(feature = "sqlite")),
    ("lmdb", "LMDB: a copy-on-write B-tree in a memory map", cfg!(feature = "lmdb")),
    ("redb", "redb: a copy-on-write B-tree in Rust", cfg!(feature = "redb")),
    ("fjall", "fjall: a log-structured merge tree in Rust", cfg!(feature = "fjall")),
];

/// What a peer is given where the run names no budget.
#[cfg(any(feature = "fjall", feature = "lmdb", feature = "redb", feature = "rocksdb", feature = "sqlite"))]
const BUDGET_BYTES_DEFAULT: u64 = 128 << 20;

/// Checks a peer's parameters; refuses a peer that this build does not have.
pub fn check(spec: TargetSpec) -> Result<()> {
    match spec.name.as_str() {
        #[cfg(feature = "fjall")]
        "fjall" => fjall::check(spec),
        #[cfg(feature = "lmdb")]
        "lmdb" => lmdb::check(spec),
        #[cfg(feature = "redb")]
        "redb" => redb::check(spec),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => rocksdb::check(spec),
        #[cfg(feature = "sqlite")]
        "sqlite" => sqlite::check(spec),
        name => Err(unbuilt(name, &spec)),
    }
}

/// Opens a peer in `setup.dir`.
pub fn open(spec: TargetSpec, setup: &Setup) -> Result<Box<dyn Target>> {
    // Without any peer no one looks at it.
    let _ = setup;
    match spec.name.as_str() {
        #[cfg(feature = "fjall")]
        "fjall" => Ok(Box::new(fjall::open(spec, setup)?)),
        #[cfg(feature = "lmdb")]
        "lmdb" => Ok(Box::new(lmdb::open(spec, setup)?)),
        #[cfg(feature = "redb")]
        "redb" => Ok(Box::new(redb::open(spec, setup)?)),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => rocksdb::open(spec, setup),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Box::new(sqlite::open(spec, setup)?)),
        name => Err(unbuilt(name, &spec)),
    }
}

fn unbuilt(name: &str, spec: &TargetSpec) -> TargetError {
    TargetError::Unsupported(format!(
        "target `{spec}`: this build is without `{name}`; `cargo run -p lab --release --features {name}` has it"
    ))
}

/// An error of a peer.
#[cfg(any(feature = "fjall", feature = "lmdb", feature = "redb", feature = "rocksdb", feature = "sqlite"))]
fn failed(engine: &str, error: impl std::fmt::Display) -> TargetError {
    TargetError::Failed(format!("{engine}: {error}"))
}

/// For peers that do not compress; the reader of a report has to know.
#[cfg(any(feature = "lmdb", feature = "redb", feature = "sqlite"))]
fn no_compression(engine: &str, setup: &Setup, notes: &mut Vec<String>) {
    if let Some(name) = setup.compression.as_deref().filter(|name| *name != "none") {
        notes.push(format!("{engine} does not compress: compression {name} has no effect"));
    }
}

/// For peers that know the page cache only.
#[cfg(any(feature = "fjall", feature = "lmdb", feature = "redb", feature = "sqlite"))]
fn buffered_only(engine: &str, setup: &Setup, notes: &mut Vec<String>) {
    if setup.io == Some(crate::api::IoMode::Direct) {
        notes.push(format!("{engine} has no direct i/o: its files go through the page cache"));
    }
}
