//! Whole extents are emptied, so that they come back with the next checkpoint ([`store::Space::to_evacuate`]).
//!
//! Steps: (1) [`Core::weigh_extents`]: what of each extent is this tree's newest images, and which of these are of dirty leaves; (2) once the
//! engine has chosen extents, [`Core::evacuate`] writes every leaf whose image lies in one of them, dirty or not, a few at a time, and notes inner
//! nodes whose images do as changed, as cleaning does; (3) a checkpoint of what is written ([`index::Index::checkpoint_written`]) names these in
//! the place of the old ones.
//!
//! Large values, chains and blocks of messages are not moved: an extent that has some is not chosen.

use std::sync::Arc;

use base::Result;
use index::Upkeep;
use store::{AllocScope, Weights};

use crate::descent::Step;
use crate::handle::{Child, LeafHandle};
use crate::image::Image;
use crate::settle::TO_BE_WRITTEN;
use crate::tree::Core;

/// Leaves loaded before they are written may take one in so many bytes of the budget.
const MEMORY_SHARE: u64 = 16;

impl Core {
    /// Step 1.
    pub(crate) fn weigh_extents(&self, weights: &mut Weights) -> Result<()> {
        let mut from = Vec::new();
        loop {
            match self.at_parent(&from, |path| self.weigh_path(path, weights))? {
                Some(end) => from = end.to_vec(),
                None => return Ok(()),
            }
        }
    }

    /// A parent's leaves, and the inner nodes of which it is the first.
    fn weigh_path(&self, path: &[Step<'_>], weights: &mut Weights) {
        let mut add = |image: &Image, is_dirty: bool| {
            let at = image.address();
            let weight = weights.entry(self.env.space.extent_of(at)).or_default();
            *if is_dirty { &mut weight.dirty } else { &mut weight.clean } += u64::from(at.stored_bytes);
        };
        let bottom = path.last().expect("a path has a root");
        for step in path.iter().filter(|step| step.keys.lo() == bottom.keys.lo()) {
            step.handle.record.lock().image.iter().for_each(|image| add(image, step.handle.is_changed()));
        }
        let mut last: Option<Arc<Image>> = None;
        for child in bottom.keys.children() {
            let Child::Leaf(leaf) = child else { continue };
            let record = leaf.record.lock();
            let Some(image) = &record.image else { continue };
            // Halves of a leaf have one together.
            if !last.as_ref().is_some_and(|last| Arc::ptr_eq(last, image)) {
                add(image, record.is_dirty());
                last = Some(image.clone());
            }
        }
    }

    /// Step 2. What cannot be loaded stays. Leaves of many parents are written together: each write begins on a fresh sector.
    pub(crate) fn evacuate(&self, extents: &[u32], upkeep: &Upkeep<'_>) -> Result<()> {
        let in_memory = (self.env.cache.budget().limit() / MEMORY_SHARE / self.page_bytes()) as usize;
        let at_once = in_memory.clamp(1, self.env.cache.batch_pages());
        let (mut from, mut waiting) = (Vec::new(), Vec::new());
        loop {
            let (leaves, end) = self.leaves_in(extents, &from)?;
            for leaf in leaves {
                // If there is no space for it after all, no checkpoint needs it.
                self.make_dirty(&leaf, TO_BE_WRITTEN)?;
                waiting.push(leaf);
                if waiting.len() == at_once {
                    self.write_evacuated(&std::mem::take(&mut waiting), upkeep)?;
                }
            }
            match end {
                Some(end) => from = end.to_vec(),
                None => return self.write_evacuated(&waiting, upkeep),
            }
        }
    }

    fn write_evacuated(&self, leaves: &[Arc<LeafHandle>], upkeep: &Upkeep<'_>) -> Result<()> {
        self.write_leaves(leaves, upkeep, AllocScope::RESERVE)?;
        // Of those with large values these were written, and not the leaves.
        self.write_leaves(leaves, upkeep, AllocScope::RESERVE)
    }
}
