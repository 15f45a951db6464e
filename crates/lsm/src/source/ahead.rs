//! What a reader of a run brings into memory at once, and what of it stays there.

use std::sync::Arc;

use base::Result;
use index::Direction;

use crate::block::DataBlock;
use crate::lsm::Core;
use crate::slot::{Slot, ahead_bytes, read_ahead, read_back};

/// Half of what is read by who has come through one block, in bytes of the file, at most; doubled with each block.
const FIRST_AHEAD_BYTES: u64 = 8 << 10;
/// Who has come through so many blocks scans.
const SCAN_BLOCKS: u32 = 16;

/// Reads a data block and some that come next in the direction: more the longer the reader has come.
pub(super) fn load(core: &Core, place: Slot<'_>, direction: Direction, passed: u32) -> Result<Vec<Arc<DataBlock>>> {
    let span = (FIRST_AHEAD_BYTES << passed.min(8)).min(ahead_bytes(&core.env));
    let blocks = match direction {
        Direction::Forward => read_ahead(&core.env, place, place.at + 1..place.index.len(), span)?,
        Direction::Backward => read_back(&core.env, place, span)?,
    };
    for (i, block) in blocks.iter().enumerate() {
        core.counters.count_load();
        // A long scan leaves memory to what is read again and again.
        if passed < SCAN_BLOCKS || !core.env.cache.is_nearly_full() {
            let at = if direction == Direction::Forward { place.at + i } else { place.at - i };
            Slot { at, ..place }.keep(&core.env, block);
        }
    }
    core.counters.add_read_ahead(blocks.len() as u64 - 1);
    Ok(blocks)
}
