//! Bringing a database of an older format to this build's.
//!
//! A format says what a build must know to open a database. Format 2 differs from 1 in what may come: rows of several
//! versions, which a build that knows format 1 alone would take for damage. Nothing that is there changes, so an upgrade is one
//! step: the header is written anew, by a rename, and is the old one or the new one whatever happens.

use std::path::Path;

use crate::database::Database;
use crate::error::Result;
use crate::layout::FORMAT;
use crate::options::Options;

/// What [`Database::upgrade`] did.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// use trefoil::{Database, Options, Upgraded};
///
/// Database::open(dir.path(), Options::default())?.close()?;
/// let upgraded = Database::upgrade(dir.path(), Options::default())?;
/// assert!(matches!(upgraded, Upgraded { from, to } if from == to)); // it was made by this build
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upgraded {
    /// The format that it had.
    pub from: u32,
    /// The format that it has.
    pub to: u32,
}

impl Database {
    /// Brings the database in directory `path` to the newest format, which earlier releases do not open: what came with it can
    /// be used then ([`Database::alter_table`]). It is opened first, its log replayed, and closed again. Interrupted, it has the
    /// old format or the new one. Nothing is done to a database that has the newest format, nor created where there is none.
    ///
    /// # Errors
    /// As [`Database::open`]; `ReadOnly`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// use trefoil::{Database, Options};
    ///
    /// Database::open(dir.path(), Options::default())?.close()?;
    /// let upgraded = Database::upgrade(dir.path(), Options::default())?;
    /// println!("format {}, was {}", upgraded.to, upgraded.from);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn upgrade(path: impl AsRef<Path>, options: Options) -> Result<Upgraded> {
        let db = Self::open(path, Options { create: false, ..options })?;
        db.engine().check_not_read_only()?;
        let layout = &db.engine().layout;
        let from = layout.format;
        // Under the lock of the open database, and after all of it was read that an open reads.
        if from < FORMAT {
            layout.seal_newest()?;
        }
        db.close()?;
        Ok(Upgraded { from, to: FORMAT })
    }
}
