//! Policies that are there to be compared with what the engine does by itself, as experiments of others did with theirs. They are
//! parameters of the lab's target, or of an example, and no options: nothing says how well they serve, only what they cost.
//!
//! They are those of the process that opened the database; nothing on disk says which they were. So a database may be opened with others
//! each time, and whatever they made is read by everybody.

use std::path::Path;

pub use index::{LevelCompression, MergePolicy, Subcompactions};

use crate::catalog::Role;
use crate::database::Database;
use crate::error::Result;
use crate::options::Options;

/// Everything that can be switched. The default is what the engine does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Policies {
    /// Of log-structured merge trees that hold a table's rows, and of plain indexes.
    pub rows: MergePolicy,
    /// Of those that are secondary indexes.
    pub secondary: MergePolicy,
    /// RocksDB's way before it learnt better (`delayed_write_rate`): commits are admitted as they come until the background is as far
    /// behind as it may be, and then so many bytes of them a second, until it is not.
    pub delayed_write_rate: Option<u64>,
}

impl Policies {
    /// Of an index with this role.
    pub(crate) fn of(&self, role: Role) -> MergePolicy {
        match role {
            Role::Plain | Role::Primary => self.rows,
            Role::Secondary(_) => self.secondary,
        }
    }
}

/// Those that a database was opened with.
#[must_use]
pub fn of(database: &Database) -> Policies {
    database.engine().policies
}

/// As [`Database::open`], under these policies.
///
/// # Errors
/// As [`Database::open`].
pub fn open(path: impl AsRef<Path>, options: Options, policies: Policies) -> Result<Database> {
    Database::open_under(path.as_ref(), options, policies)
}
