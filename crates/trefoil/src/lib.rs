//! Trefoil: a transactional storage engine whose index structure is chosen per index.
//!
//! Start at [`Database`]. Plain ordered indexes: [`Database::create_index`]; typed tables with secondary indexes:
//! [`Database::create_table`]. Everything is synchronous; handles are cheap to clone and may be used from many
//! threads; a [`Transaction`] belongs to one thread at a time and rolls back when dropped. The default durability
//! is [`Durability::Sync`]: a commit that has returned survives a power cut.
//!
//! How it works: docs/ARCHITECTURE.md.

#![forbid(unsafe_code)]

mod background;
mod build;
mod catalog;
mod checkpoint;
mod commit;
mod cursor;
mod database;
mod ddl;
mod engine;
mod entry;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod handle;
mod layout;
mod manifest;
mod open;
mod options;
mod record;
mod recovery;
mod rows;
mod runs;
mod snapshot;
mod stats;
pub mod table;
mod transaction;
mod verify;

pub use base::CommitTs;
pub use cursor::Cursor;
pub use database::Database;
pub use error::{Error, Result};
pub use handle::{Index, Table};
pub use index::{IndexStats, VerifyReport};
pub use options::{Durability, IndexOptions, Isolation, Options, Structure};
pub use rows::{ALL, Entries, Rows, ValueRange};
pub use snapshot::Snapshot;
pub use stats::Stats;
pub use store::Compression;
pub use table::{Column, ColumnType, IndexSchema, OwnedValue, Schema, SchemaBuilder, Value};
pub use transaction::{Savepoint, Transaction};
