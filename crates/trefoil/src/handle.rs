//! Handles of indexes and tables.

use std::sync::Arc;

use crate::entry::{IndexEntry, TableEntry};
use crate::table::Schema;

/// A plain ordered index: byte keys to byte values. Cheap to clone.
#[derive(Clone)]
pub struct Index(pub(crate) Arc<IndexEntry>);

/// A table: typed rows under a primary key, with secondary indexes that the engine keeps. Cheap to clone.
#[derive(Clone)]
pub struct Table(pub(crate) Arc<TableEntry>);

impl Index {
    pub(crate) fn entry(&self) -> &Arc<IndexEntry> {
        &self.0
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.def.name
    }

    /// Counts and sizes.
    #[must_use]
    pub fn stats(&self) -> index::IndexStats {
        self.0.index.stats()
    }
}

impl Table {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Columns and indexes as of now.
    #[must_use]
    pub fn schema(&self) -> Schema {
        self.0.shape().def.schema.clone()
    }
}
