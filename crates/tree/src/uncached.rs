//! Point reads of leaves that stay on disk.
//!
//! While memory is short, a leaf that comes in for one key pushes out another one that is read as often, and making a page of it
//! costs more than reading it. So a leaf is loaded when it is read at a snapshot for the [`LOADED_AT`]-th time; until then the key's
//! version is taken from what the leaf is made of: image, segments and pending messages. Who reads what is newest is about to write,
//! and needs the leaf anyway: that read loads it.
//!
//! Steps: (1) under the leaf's shared latch: it is COLD; its image, and what is pending for the key; (2) under the structure latch:
//! the blocks of the buffer above that may have the key, as far as their filters are known (`filter`); (3) under the latch again: the
//! leaf is COLD, has the same image, and its range has the key; otherwise it is loaded; (4) what was found is read; the newest version
//! that the reader may see counts.
//!
//! Why nothing is missed [A10]. What was pending at step 1 is known. What was not is in the image, or in a block that the buffer had
//! before step 1, and loses only once it is void: when an image of the key's leaf has it. That would be another image, or another
//! leaf, at step 3. Blocks on disk are not reused while somebody holds them [A20]. What is committed after step 1 may be seen or not,
//! as by any reader who came at that moment.
//!
//! Of an image that is read like this for the first time all is read and checked, and its outline kept in memory: its front, and where each basement
//! lies, with its checksum. From then on one basement is read.
//!
//! What is newer than all of the rest needs no look at the rest. Large values, version chains and damage are left to the loader. Of a
//! damaged leaf whoever needs what is damaged is told; whoever does not may get an answer until a load has met the damage.

use std::ops::Range;
use std::sync::Arc;

use base::{CommitTs, Fault, Result};
use index::ReadAt;
use store::{BlockKind, Class};

use crate::handle::{LeafHandle, LeafSlot, LeafState};
use crate::image::Image;
use crate::messages::Messages;
use crate::node::{ImageLookup, Outline, Payload, look_up_in_image};
use crate::read::{Newest, Version};
use crate::segment;
use crate::settle::Payloads;
use crate::tree::Core;

/// A leaf comes into memory when so many reads of it found it on disk while memory was short.
const LOADED_AT: u8 = 8;
/// Outlines of images are kept while they take less than one part in so many of the budget.
const OUTLINES_SHARE: u64 = 16;

/// How a leaf was read.
pub(crate) enum Read<R, U> {
    InMemory(R),
    Uncached(U),
}

impl Core {
    /// As [`Core::look_up_uncached`]; if that finds nothing, the leaf is in memory.
    #[cold]
    pub(crate) fn look_up_cold(
        &self,
        leaf: &Arc<LeafHandle>,
        at: ReadAt,
        keys: &[&[u8]],
    ) -> Result<Option<Option<Version>>> {
        self.counters.count_cold_read();
        if let found @ Some(_) = self.look_up_uncached(leaf, at, keys)? {
            return Ok(found);
        }
        let mut payloads = Payloads::default();
        self.load_leaf_with(leaf, None, &mut payloads)?;
        self.counters.add_point_blocks(payloads.blocks_read());
        Ok(None)
    }

    /// The version of the first of some ascending keys, which lies in `leaf`; `None` if the leaf is to be loaded.
    #[cold]
    pub(crate) fn look_up_uncached(
        &self,
        leaf: &LeafHandle,
        at: ReadAt,
        keys: &[&[u8]],
    ) -> Result<Option<Option<Version>>> {
        let ReadAt::Snapshot(limit) = at else { return Ok(None) };
        // A message that the image has, too, may be a sum there [A21]: the loader looks at the image first.
        if self.env.options.counters || !self.env.cache.is_nearly_full() || !leaf.may_stay_on_disk(LOADED_AT) {
            return Ok(None);
        }
        match self.version_on_disk(leaf, limit, keys).map_err(Fault::into_damage) {
            Ok(found) => {
                found.iter().for_each(|_| self.counters.count_uncached_read());
                Ok(found)
            }
            Err(Ok(_damage)) => Ok(None),
            Err(Err(fault)) => Err(fault),
        }
    }

    fn version_on_disk(&self, leaf: &LeafHandle, limit: CommitTs, keys: &[&[u8]]) -> Result<Option<Option<Version>>> {
        let (key, mut newest) = (keys[0], Newest::below(limit));
        let image = {
            let slot = leaf.latch.read();
            let is_for_more = keys.get(1).is_some_and(|next| slot.is_below_high(next));
            let Some(image) = cold_image(leaf, &slot, key).filter(|_| !is_for_more) else { return Ok(None) };
            let pending = slot.pending.iter().flat_map(|pending| pending.parts()).flat_map(Messages::iter);
            let seen = pending.filter(|message| message.ts <= limit && message.key == key);
            seen.max_by_key(|message| message.ts)
                .iter()
                .for_each(|m| newest.offer(m.ts, || m.op.value().map(<[u8]>::to_vec)));
            image
        };
        vfs::thread::point("tree.uncached");
        let through = image.complete_through();
        let blocks = self.segments_at(key, through);
        vfs::thread::point("tree.uncached_blocks");
        if !cold_image(leaf, &leaf.latch.read(), key).is_some_and(|now| Arc::ptr_eq(&now, &image)) {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        for block in blocks {
            if newest.is_at_least(block.newest) {
                break;
            }
            block.note_read(&self.env.cache);
            self.read_segment(&block, &mut bytes)?;
            self.counters.add_point_blocks(1);
            let offer = |ts, value: Option<&[u8]>| {
                if ts > through {
                    newest.offer(ts, || value.map(<[u8]>::to_vec));
                }
            };
            segment::versions_of(&bytes, key, offer)
                .and_then(|()| block.learn(&bytes))
                .map_err(|what| self.corrupt(block.block.at(), "segment of messages", what))?;
        }
        if newest.is_at_least(image.max_ts) {
            return Ok(Some(newest.version));
        }
        let mut buffers = [Vec::new(), bytes];
        self.counters.add_point_blocks(1);
        // Of basements about alike, one.
        let parts = image.outline.get().map_or(1, |outline| outline.parts.count().max(2) - 1);
        leaf.note_image_read(&self.env.cache, image.block.stored_bytes() / parts as u64);
        let is_all = match image.outline.get() {
            Some(outline) => {
                let block = Outlined { core: self, image: &image, outline };
                offer_from(&block, (key, limit), &mut buffers, &mut newest)
            }
            None => self.env.space.read_with(image.address(), BlockKind::Leaf, self.env.id, |block| {
                let outline = if self.has_room_for_outlines() { Outline::of(block)? } else { None };
                outline.into_iter().for_each(|outline| image.learn(outline));
                offer_from(block, (key, limit), &mut buffers, &mut newest)
            }),
        }?;
        Ok(is_all.then_some(newest.version))
    }

    fn has_room_for_outlines(&self) -> bool {
        let budget = self.env.cache.budget();
        budget.used(Class::Outlines) < budget.limit() / OUTLINES_SHARE
    }
}

/// An image of which one basement is read: that is what a point read costs, where all of the block would take as long again.
struct Outlined<'a> {
    core: &'a Core,
    image: &'a Image,
    outline: &'a Outline,
}

impl Payload for Outlined<'_> {
    fn payload_bytes(&self) -> usize {
        self.outline.parts.payload_bytes()
    }

    fn read(&self, range: Range<usize>, out: &mut Vec<u8>) -> Result<usize> {
        let front = &self.outline.front;
        if range.end <= front.len() {
            out.clear();
            out.extend_from_slice(front);
            return Ok(0);
        }
        let env = &self.core.env;
        env.space.read_parts(self.image.address(), env.id, &self.outline.parts, range, out)
    }

    fn corrupt(&self, what: &str) -> Fault {
        self.core.corrupt(self.image.address(), "leaf image", what.to_owned())
    }
}

/// Offers what the image has of the key; false if that is to be looked for beside it.
fn offer_from(
    block: &impl Payload,
    (key, limit): (&[u8], CommitTs),
    buffers: &mut [Vec<u8>; 2],
    newest: &mut Newest,
) -> Result<bool> {
    match look_up_in_image(block, key, limit, buffers)? {
        ImageLookup::Version(ts, value) => newest.offer(ts, || value.map(<[u8]>::to_vec)),
        ImageLookup::Absent => {}
        ImageLookup::Beside => return Ok(false),
    }
    Ok(true)
}

/// The image of a COLD leaf whose range has the key, if it can be read and all of the leaf is in it: large values and chains are not.
fn cold_image(leaf: &LeafHandle, slot: &LeafSlot, key: &[u8]) -> Option<Arc<Image>> {
    if !matches!(slot.state, LeafState::Cold) || !slot.is_below_high(key) {
        return None;
    }
    let record = leaf.record.lock();
    record.image.clone().filter(|image| !record.is_damaged && !image.has_blocks_beside)
}
