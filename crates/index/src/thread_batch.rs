//! Memory that a thread's short scans use one after another.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use crate::EntryBatch;

/// A thread keeps no more between two scans: what some hundred rows take.
const SPARE_BYTES_MAX: usize = 32 << 10;

thread_local! {
    static SPARE: Cell<EntryBatch> = Cell::default();
}

/// A batch that begins in the memory of the one that its thread dropped last, so that a short scan asks the allocator for nothing.
///
/// ```
/// use base::CommitTs;
/// use trefoil_index::ThreadBatch;
/// let mut first = ThreadBatch::default();
/// first.push(b"pear", b"7", CommitTs(16));
/// drop(first);
/// assert!(ThreadBatch::default().is_empty());
/// ```
#[derive(Debug)]
pub struct ThreadBatch(EntryBatch);

impl Default for ThreadBatch {
    fn default() -> Self {
        // A thread that ends has none any more.
        Self(SPARE.try_with(Cell::take).unwrap_or_default())
    }
}

impl Drop for ThreadBatch {
    fn drop(&mut self) {
        if (1..=SPARE_BYTES_MAX).contains(&self.0.capacity_bytes()) {
            self.0.clear();
            let left = std::mem::take(&mut self.0);
            let _ = SPARE.try_with(|spare| spare.set(left));
        }
    }
}

impl Deref for ThreadBatch {
    type Target = EntryBatch;

    #[inline(always)]
    fn deref(&self) -> &EntryBatch {
        &self.0
    }
}

impl DerefMut for ThreadBatch {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut EntryBatch {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use base::CommitTs;

    use super::*;

    /// Guards: the memory is taken up again, empty; not that of a long scan.
    #[test]
    fn a_short_scan_leaves_its_memory_to_the_next_and_a_long_one_does_not() {
        let mut batch = ThreadBatch::default();
        batch.push(b"key", &[0; 9000], CommitTs(16));
        let kept = batch.capacity_bytes();
        drop(batch);
        let mut batch = ThreadBatch::default();
        assert!(batch.is_empty() && kept >= 9000 && batch.capacity_bytes() == kept);
        batch.push(b"key", &[0; SPARE_BYTES_MAX], CommitTs(16));
        drop(batch);
        assert_eq!(ThreadBatch::default().capacity_bytes(), 0);
    }
}
