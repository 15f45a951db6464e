//! Bringing a database of an older format to this build's.
//!
//! A format says what a build must know to open a database. Each differs from the one before in what may come, and a build that
//! does not know it would take for damage: rows of several versions since format 2, columns of fixed width, collations, and
//! keys of columns descending or the front of them since format 3, clustering indexes since format 4, Bε-trees
//! (inner images with message segments) and keys longer than 3 KiB since format 5, leaves in basements (blocks of several parts)
//! since format 6, counters since format 7, log-structured merge trees since format 8, foreign keys since format 9,
//! ranges deleted whole and indexes whose versions expire since format 10.
//! Nothing that is there changes, so an upgrade is one step: the header is written anew, by a rename, and is the old one or the
//! new one whatever happens.

use std::path::Path;

use crate::database::Database;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::layout::FORMAT;
use crate::options::Options;

impl Engine {
    /// An error if the database is older than the format in which this can be written.
    pub fn check_format(&self, needed: u32) -> Result<()> {
        if self.layout.format >= needed {
            return Ok(());
        }
        let path = self.layout.dir.display().to_string();
        Err(Error::UpgradeRequired { path, found: self.layout.format, supported: FORMAT })
    }
}

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
