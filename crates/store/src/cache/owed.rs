//! What pages owe to the data file beside their own bytes: large values that no block holds yet.
//!
//! Whoever lets writes in counts it with the dirty pages (P4): a value of megabytes beside a dirty page would find no room otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many bytes are owed. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Owed(Arc<AtomicU64>);

/// Counts some bytes as owed until it is dropped.
#[derive(Debug)]
pub struct Owing {
    bytes: u64,
    to: Owed,
}

impl Owed {
    /// `bytes` more, until the answer is dropped.
    #[must_use]
    pub fn owe(&self, bytes: u64) -> Owing {
        // Relaxed, here and below: a sum, which orders nothing.
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Owing { bytes, to: self.clone() }
    }

    /// What is owed now, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Owing {
    fn drop(&mut self) {
        self.to.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
