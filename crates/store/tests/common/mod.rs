//! What the integration tests share: a directory that goes away, and made-up payloads.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "test support; not every test uses all of it"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{IndexId, Poison};
use trefoil_store::{BlockKind, Compression, NewBlock, Space, SpaceOptions, UpdateGroup};
use vfs::{RealVfs, Vfs};

/// A directory of its own for each test, removed at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("trefoil-store-{}-{name}", std::process::id()));
        RealVfs.create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn real() -> Arc<dyn Vfs> {
    Arc::new(RealVfs)
}

pub const EXTENT: u64 = 64 << 10;

pub fn options() -> SpaceOptions {
    SpaceOptions { extent_bytes: EXTENT, direct: false, reserve_bytes: 0, max_bytes: None, budget: None }
}

pub fn open(dir: &Path, saved: Option<&[u8]>) -> Space {
    Space::open(real(), dir, options(), saved, Poison::new()).unwrap()
}

pub const INDEX: IndexId = IndexId(7);

/// A block of `bytes` that does not compress, different for each seed.
pub fn noise(seed: u64, bytes: usize) -> NewBlock {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut payload = Vec::with_capacity(bytes + 8);
    while payload.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        payload.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    payload.truncate(bytes);
    let (kind, compression, group) = (BlockKind::Leaf, Compression::Lz4, UpdateGroup::Warm);
    NewBlock { kind, index: INDEX, compression, group, payload, cuts: Vec::new() }
}
