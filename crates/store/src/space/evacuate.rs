//! Which extents are emptied to bring space back, where there is not enough to write all that is dirty.
//!
//! A leaf that is written takes new space, and its place before comes back only with its whole extent. So leaves that are written in
//! the order of their keys, or of memory, may take all that is left before any extent is empty. An extent of which everything is written anew takes no more than
//! itself, and comes back with the next checkpoint: so whatever is dirty can be written with the last of the reserve, extent by
//! extent.
//!
//! Those come first of which least would be written that need not be: what is clean.

use std::collections::{BTreeMap, BTreeSet};

use base::Result;

use super::Space;
use super::allocator::{ExtentId, State};

/// Of what is left so much goes to what is moved, the rest to the nodes above it and to what begins other extents.
const MOVED_SHARE: u64 = 2;

/// Bytes of an extent that can be written elsewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    /// As they are.
    pub clean: u64,
    /// Of pages that are dirty, and are to be written anyway.
    pub dirty: u64,
}

/// By extent.
pub type Weights = BTreeMap<ExtentId, Weight>;

impl Space {
    /// Extents to empty, ascending: full ones of which `weights` has everything, and no more than so much of a hundred is clean; as many as there
    /// is space for, none of `tried`.
    ///
    /// # Errors
    /// [`base::Fault::Io`] if the file system does not say what is left.
    pub fn to_evacuate(
        &self,
        weights: &Weights,
        tried: &BTreeSet<ExtentId>,
        clean_percent: u64,
    ) -> Result<Vec<ExtentId>> {
        let extent_bytes = self.0.options.extent_bytes;
        let left = self.left_bytes()?;
        let mut found: Vec<(u64, u64, ExtentId)> = {
            let allocator = self.0.allocator.lock();
            let sealed = allocator.extents().filter(|(id, e)| e.state == State::Sealed && !tried.contains(id));
            let weighed = sealed.filter_map(|(id, e)| Some((id, e.held, weights.get(&id)?)));
            let movable = weighed.filter(|(_, held, weight)| weight.clean + weight.dirty >= *held);
            movable.map(|(id, held, weight)| (weight.clean, held, id)).collect()
        };
        found.retain(|(clean, ..)| *clean * 100 <= extent_bytes * clean_percent);
        found.sort_unstable();
        let mut room = left / MOVED_SHARE;
        let fits = found.into_iter().take_while(|(_, held, _)| {
            let fits = *held <= room;
            room = room.saturating_sub(*held);
            fits
        });
        let mut ids: Vec<ExtentId> = fits.map(|(.., id)| id).collect();
        ids.sort_unstable();
        Ok(ids)
    }
}
