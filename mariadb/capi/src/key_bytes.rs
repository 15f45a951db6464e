// SPDX-License-Identifier: GPL-2.0-only
//! How long the keys of an index may get, and whether the engine has room for them: asked when a definition is accepted, so
//! that no row is refused for the length of a key.
//!
//! An entry of a secondary index has the primary key behind its own columns. Of each column the longest key counts: of bytes
//! each may be 0, which takes two; of text every character may have as many weights as the collation gives to any. A key that
//! may be too long for the nodes of the default size gets larger ones, if the definition does not say how large.

use std::sync::Arc;

use trefoil::{Database, IndexOptions};

use crate::collation::Server;
use crate::failure::{Code, Failure, Result};

/// Sizes of nodes that an index gets by itself, 0 for the default.
const NODE_SIZES: [usize; 3] = [0, 32 << 10, 64 << 10];

/// What room there is.
#[derive(Clone)]
pub struct Room {
    db: Database,
    pub collations: Arc<Server>,
}

impl Room {
    pub fn new(db: &Database, collations: &Arc<Server>) -> Self {
        Self { db: db.clone(), collations: collations.clone() }
    }

    /// The settings that are wanted, with nodes for keys of this length if they do not say how large.
    pub fn fit(&self, wanted: IndexOptions, key_bytes: usize) -> Result<IndexOptions> {
        if wanted.node_bytes != 0 || self.is_old()? {
            return Ok(wanted);
        }
        let mut fitting = wanted;
        for node_bytes in NODE_SIZES {
            fitting.node_bytes = node_bytes;
            if self.db.key_bytes_max(&fitting)? >= key_bytes {
                break;
            }
        }
        Ok(fitting)
    }

    /// Why a key does not fit, if it does not.
    pub fn check(&self, name: &str, options: &IndexOptions, key_bytes: usize) -> Result<()> {
        let most = self.db.key_bytes_max(options)?;
        if key_bytes <= most || self.is_old()? {
            return Ok(());
        }
        let largest = IndexOptions { node_bytes: NODE_SIZES[2], ..*options };
        let remedy = match self.db.key_bytes_max(&largest)? >= key_bytes {
            true => "give it a larger NODE_SIZE, or put only the front of its columns in it",
            false => "put only the front of its columns in it",
        };
        let text = format!(
            "key `{name}` may take {key_bytes} bytes with the primary key behind it, there is room for {most}: {remedy}"
        );
        Err(Failure::new(Code::TooLong, &text))
    }

    /// The database is from before keys of this kind, whatever the nodes: its tables stay as they are, and a row may be refused.
    fn is_old(&self) -> Result<bool> {
        let of = |node_bytes| self.db.key_bytes_max(&IndexOptions { node_bytes, ..IndexOptions::default() });
        Ok(of(NODE_SIZES[2])? <= of(NODE_SIZES[1])?)
    }
}

#[cfg(test)]
pub mod tests {
    use trefoil::Structure;

    use super::*;
    use crate::abi;

    extern "C" fn describe(_: u32, _: &mut abi::Collation) -> u8 {
        0
    }
    extern "C" fn weights(_: u32, _: u8, _: *const u8, _: usize, _: *mut u8, _: usize) -> usize {
        0
    }
    extern "C" fn front(_: u32, _: *const u8, _: usize, _: usize, _: &mut usize) -> usize {
        0
    }
    extern "C" fn weights_max(_: u32, _: usize, _: &mut usize) -> usize {
        0
    }

    /// For a server without collations.
    pub fn room(db: &Database) -> Room {
        Room::new(db, &Arc::new(Server::new(abi::Collations { describe, weights, front, weights_max })))
    }

    #[test]
    fn a_key_gets_the_smallest_nodes_that_have_room() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let db = Database::open(dir.path(), trefoil::Options::default()).expect("a new database");
        let room = room(&db);
        let with = |node_bytes| IndexOptions { structure: Structure::Btree, node_bytes, ..IndexOptions::default() };
        for (bytes, node_bytes) in [(1, 0), (12 << 10, 0), (12289, 32 << 10), (24577, 64 << 10), (48 << 10, 64 << 10)] {
            let fitting = room.fit(with(0), bytes).expect("valid settings");
            assert_eq!(fitting.node_bytes, node_bytes, "{bytes}");
            room.check("k", &fitting, bytes).expect("there is room");
        }
        let auto = room.fit(IndexOptions::default(), 48 << 10).expect("valid settings");
        assert_eq!(auto.node_bytes, 0, "a Bε-tree's are as large as that");
        assert_eq!(room.fit(with(4096), 3073).expect("valid settings").node_bytes, 4096);
        let why = room.check("k", &with(4096), 3073).expect_err("the nodes are small");
        assert!(why.is(Code::TooLong) && format!("{why:?}").contains("NODE_SIZE"), "{why:?}");
        let why = room.check("k", &with(64 << 10), 49153).expect_err("no node is large enough");
        assert!(why.is(Code::TooLong) && !format!("{why:?}").contains("NODE_SIZE"), "{why:?}");
    }
}
