//! How long keys may be.
//!
//! A key takes three quarters of a node at most, so that a leaf has room for it with its newest versions, and an inner node for
//! it and a child. Builds before format 5 took what is longer than 3 KiB for damage: a database of an older format has no such key.

use base::limits::SHORT_KEY_BYTES_MAX;

use crate::database::Database;
use crate::engine::Engine;
use crate::entry::IndexEntry;
use crate::error::{Error, Result};
use crate::layout::FORMAT_LONG_KEYS;
use crate::options::IndexOptions;

impl Engine {
    /// Most bytes of a key in an index that is created with these settings.
    fn key_bytes_max_of_new(&self, options: &IndexOptions) -> Result<usize> {
        self.key_bytes_max(&options.chosen(self.layout.format, self.options.budget_bytes))
    }

    /// Most bytes of a key in an index that has these settings.
    fn key_bytes_max(&self, options: &IndexOptions) -> Result<usize> {
        let of_node = tree::node::max_key_bytes(options.resolve()?.node_bytes);
        Ok(if self.layout.format < FORMAT_LONG_KEYS { of_node.min(SHORT_KEY_BYTES_MAX) } else { of_node })
    }

    /// An error if the index takes no key of this length.
    #[inline]
    pub fn check_key(&self, entry: &IndexEntry, key: &[u8]) -> Result<()> {
        if key.len() <= SHORT_KEY_BYTES_MAX { Ok(()) } else { self.check_long_key(entry, key) }
    }

    #[cold]
    fn check_long_key(&self, entry: &IndexEntry, key: &[u8]) -> Result<()> {
        let fits = |options| -> Result<()> {
            let (limit, got) = (self.key_bytes_max(options)? as u64, key.len() as u64);
            if got <= limit { Ok(()) } else { Err(Error::Limit { what: "length of a key in bytes", limit, got }) }
        };
        fits(&entry.def.options)?;
        // What is being built beside it takes no such key: that is not the writer's fault.
        let Some(twin) = &entry.twin else { return Ok(()) };
        match (fits(&twin.options), &twin.build) {
            (Err(error), Some(build)) if build.fail_build(error.clone()) => Ok(()),
            (fits, _) => fits,
        }
    }
}

impl Database {
    /// Most bytes that a key may have in an index that is created with these settings: three quarters of a node; 3072 in a
    /// database of a format before 5, whatever the node ([`Database::upgrade`]).
    ///
    /// # Errors
    /// `InvalidArgument`, `Unsupported` if no index can have the settings.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// use trefoil::{IndexOptions, Structure};
    ///
    /// assert_eq!(db.key_bytes_max(&IndexOptions { structure: Structure::Btree, ..IndexOptions::default() })?, 12 << 10);
    /// let large = IndexOptions::default();
    /// let index = db.create_index("long keys", large)?;
    /// let mut tx = db.begin()?;
    /// tx.put(&index, &vec![b'k'; db.key_bytes_max(&large)?], b"v")?;
    /// tx.commit()?;
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn key_bytes_max(&self, options: &IndexOptions) -> Result<usize> {
        self.engine().key_bytes_max_of_new(options)
    }
}
