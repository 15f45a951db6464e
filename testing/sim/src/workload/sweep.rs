//! Commits all over the wide index: more cold leaves than a commit loads, so that the batch is attached in memory and
//! its only durable copy is its log record until it is drained.

use trefoil::{Durability, Error, Isolation};
use vfs::random::Rng;

use super::Shared;
use super::doing::Doing;
use crate::history::{Acknowledged, Map};
use crate::world::{WIDE_KEYS, World};

/// Five or six such entries fill one of the smallest nodes.
const VALUE_BYTES: usize = 56;

/// Fills the wide index, if it is empty, down to the disk: the next life finds it cold.
pub fn fill(world: &World, history: &Shared) -> Result<(), Error> {
    let Some(wide) = &world.wide else { return Ok(()) };
    if !world.all(Map::Wide).is_empty() {
        return Ok(());
    }
    let mut doing = Doing::begin(world, history, Isolation::ReadCommitted)?;
    for key in 0..WIDE_KEYS {
        doing.put(Map::Wide, wide, &key.to_be_bytes(), vec![key as u8; VALUE_BYTES])?;
    }
    doing.commit_with(history, Durability::Write, Acknowledged::Written)?;
    world.db.settle()
}

/// Changes every so-many-th key.
pub fn sweep(world: &World, history: &Shared, rng: &mut Rng) -> Result<(), Error> {
    let Some(wide) = &world.wide else { return Ok(()) };
    let mut doing = Doing::begin(world, history, Isolation::ReadCommitted)?;
    let (stride, value) = (5 + rng.below(2), vec![rng.u64() as u8; VALUE_BYTES]);
    let deletes = rng.chance(0.2);
    let mut key = rng.below(stride);
    while key < WIDE_KEYS {
        if deletes && key.is_multiple_of(3) {
            doing.delete(Map::Wide, wide, &key.to_be_bytes())?;
        } else {
            doing.put(Map::Wide, wide, &key.to_be_bytes(), value.clone())?;
        }
        key += stride;
    }
    doing.commit(history, rng)
}
