//! Blocks for leaves that are loaded one after the other, read ahead of that.
//!
//! Leaves that were drained together lie behind one another in the file, in the order of their keys, and so do the blocks of a
//! segment: a drain reads them as a few pieces, not one by one, and so does a scan. What is read ahead is not in the cache and nobody else's: whoever
//! loads a leaf meanwhile reads it himself.

use std::collections::BTreeMap;
use std::sync::Arc;

use index::KeyRange;
use store::{Block, BlockKind, BlockRef, Charge, Class, epoch};

use crate::drain::is_void_for;
use crate::handle::{Child, LeafHandle, LeafState};
use crate::image::Image;
use crate::segment::SegmentBlock;
use crate::settle::Payloads;
use crate::tree::Core;

/// Bytes of the file between two blocks that are read together, at most: less than another read costs.
const GAP_BYTES: u64 = 16 << 10;
/// Bytes of the file that are read at once, at most.
const SPAN_BYTES: u64 = 1 << 20;
/// Images read ahead, and segments, may each take one in so many bytes of the budget; for a scan, of which there may be many, less.
const MEMORY_SHARE: u64 = 128;
const SCAN_MEMORY_SHARE: u64 = 1024;
/// Leaves that a scan reads ahead, at most.
const SCAN_LEAVES: usize = 16;

/// Images of leaves by their places in the file, which are theirs as long as they are held [A20].
#[derive(Default)]
pub(crate) struct ImagesAhead {
    held: BTreeMap<u64, ImageAhead>,
}

struct ImageAhead {
    _block: Arc<Block>,
    payload: Vec<u8>,
    _charge: Charge,
}

impl ImagesAhead {
    /// The payload of the image's block, if it was read ahead.
    pub fn take(&mut self, image: &Image) -> Option<Vec<u8>> {
        self.held.remove(&image.address().offset).map(|ahead| ahead.payload)
    }

    /// True if the leaf's image was read ahead.
    pub fn has(&self, leaf: &LeafHandle) -> bool {
        let offset = leaf.record.lock().image.as_ref().map(|image| image.address().offset);
        offset.is_some_and(|offset| self.held.contains_key(&offset))
    }
}

impl Core {
    /// Reads the images of those of `leaves` that are on disk, and `segments` that are not held yet, as far as several lie together.
    /// What cannot be read is left to whoever loads the leaf.
    pub(crate) fn read_ahead(
        &self,
        leaves: &[Arc<LeafHandle>],
        segments: Vec<Arc<SegmentBlock>>,
        payloads: &mut Payloads,
    ) {
        payloads.images.held.clear();
        let most = (self.env.cache.budget().limit() / MEMORY_SHARE / self.page_bytes()) as usize;
        let is_cold = |leaf: &&Arc<LeafHandle>| matches!(leaf.latch.read().state, LeafState::Cold);
        let block = |leaf: &Arc<LeafHandle>| leaf.record.lock().image.as_ref().map(|image| image.block.clone());
        let images: Vec<_> = leaves.iter().filter(is_cold).filter_map(block).take(most).collect();
        self.read_groups(
            BlockKind::Leaf,
            images,
            |block| block.at(),
            |block, payload| {
                let _charge = self.env.cache.budget().charge(Class::Work, payload.capacity() as u64);
                let ahead = ImageAhead { _block: block.clone(), payload, _charge };
                payloads.images.held.insert(block.at().offset, ahead);
            },
        );
        let wanted = segments.into_iter().filter(|block| !payloads.holds(block));
        let wanted = wanted.take(most.saturating_sub(payloads.count())).collect();
        self.read_groups(
            BlockKind::Segment,
            wanted,
            |block| block.block.at(),
            |block, payload| {
                payloads.hold(self, block, payload);
            },
        );
    }

    /// What a scan will need that came by so many leaves and stands before this one: as much again, within its range.
    pub(crate) fn read_ahead_of_scan(
        &self,
        leaf: &LeafHandle,
        passed: usize,
        range: &KeyRange,
        payloads: &mut Payloads,
    ) {
        let most = (self.env.cache.budget().limit() / SCAN_MEMORY_SHARE / self.page_bytes()) as usize;
        let count = passed.min(SCAN_LEAVES).min(most);
        if count < 2 {
            return;
        }
        let (leaves, end) = {
            let guard = epoch::pin();
            let path = self.path(&guard, &leaf.low);
            let bottom = path.last().expect("a path has a root");
            let past = (bottom.index + count).min(bottom.keys.len());
            let leaves: Vec<_> = bottom.keys.children()[bottom.index..past]
                .iter()
                .filter_map(|child| match child {
                    Child::Leaf(leaf) if !range.is_above(&leaf.low) => Some(leaf.clone()),
                    Child::Leaf(_) | Child::Inner(_) => None,
                })
                .collect();
            (leaves, bottom.keys.fence_of(past - 1).1)
        };
        let is_needed = |block: &Arc<SegmentBlock>| leaves.iter().any(|leaf| !is_void_for(leaf, block));
        let segments = match self.env.options.buffered {
            true => self.segments_over(&leaf.low, end.as_deref()).into_iter().filter(is_needed).collect(),
            false => Vec::new(),
        };
        self.read_ahead(&leaves, segments, payloads);
    }

    /// Hands on the payloads of those that lie next to others, each such group by one read. Of several of one place the first.
    fn read_groups<T>(
        &self,
        kind: BlockKind,
        mut blocks: Vec<T>,
        at: impl Fn(&T) -> BlockRef,
        mut each: impl FnMut(&T, Vec<u8>),
    ) {
        blocks.sort_unstable_by_key(|block| at(block).offset);
        // Halves of a leaf that was split have one image.
        blocks.dedup_by_key(|block| at(block).offset);
        let mut rest = &blocks[..];
        while let Some(first) = rest.first() {
            let is_near = |pair: &&[T]| {
                let (here, next) = (at(&pair[0]), at(&pair[1]));
                (here.end()..=here.end() + GAP_BYTES).contains(&next.offset)
                    && next.end() - at(first).offset <= SPAN_BYTES
                    && self.env.space.extent_of(here) == self.env.space.extent_of(next)
            };
            let near = 1 + rest.windows(2).take_while(is_near).count();
            let group;
            (group, rest) = rest.split_at(near);
            // One alone is read as well when it is needed.
            if group.len() == 1 {
                continue;
            }
            let places: Vec<_> = group.iter().map(&at).collect();
            // A fault is met again, and told, by whoever needs the block.
            let _ = self.env.space.read_neighbours(&places, kind, self.env.id, |i, open| {
                let mut payload = Vec::new();
                open.read_whole(&mut payload)?;
                each(&group[i], payload);
                self.counters.count_read_ahead();
                Ok(())
            });
        }
    }
}
