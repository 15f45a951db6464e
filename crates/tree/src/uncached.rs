//! Point reads of leaves that stay on disk.
//!
//! While memory is short, a leaf that comes in for one key pushes out another one that is read as often, and making a page of it
//! costs more than reading it. So the key's version is taken from what the leaf is made of: image, segments and pending messages. A leaf is
//! loaded when it is read at a snapshot for the [`LOADED_AT`]-th time, or, if its image is packed, for the [`LOADED_PACKED_AT`]-th in one turn.
//! Who reads what is newest is about to write, and needs the leaf anyway: that read loads it.
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
//! lies, with its checksum. Its stored bytes are kept, too, packed, as a page of the cache: in the same memory there is place for twice as many leaves
//! or more, and a basement of one is decompressed in a tenth of what a read takes. Of an image that is not packed any more one basement is read, and
//! all of it once more when it is read twice in one turn of the cache. In a turn as much as half of the budget leaves memory.
//! A packed image that is loaded is not packed any more.
//!
//! What is newer than all of the rest needs no look at the rest. Large values, version chains and damage are left to the loader. Of a
//! damaged leaf whoever needs what is damaged is told; whoever does not may get an answer until a load has met the damage.

use std::ops::Range;
use std::sync::Arc;

use base::{CommitTs, Fault, Result};
use index::ReadAt;
use store::{BlockKind, Cache, Cell, Class, Grant, OpenBlock, Packed};

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
/// A leaf whose image is packed comes there when so many reads found it so in one turn, whether memory is short or not.
const LOADED_PACKED_AT: u8 = 64;
/// Outlines of images are kept while they take less than one part in so many of the budget.
const OUTLINES_SHARE: u64 = 16;

/// How a leaf was read.
pub(crate) enum Read<R, U> {
    InMemory(R),
    Uncached(U),
}

impl Core {
    /// The version of the first of some ascending keys, which lies in `leaf`, which is on disk; if there is none, the leaf is in memory now.
    #[cold]
    pub(crate) fn look_up_cold(
        &self,
        leaf: &Arc<LeafHandle>,
        at: ReadAt,
        keys: &[&[u8]],
    ) -> Result<Option<Option<Version>>> {
        let is_packed = is_packed(leaf);
        if !is_packed {
            self.counters.count_cold_read();
        }
        if let ReadAt::Snapshot(limit) = at
            && self.may_stay(leaf, is_packed)
            && let found @ Some(_) = self.look_up_uncached(leaf, limit, keys)?
        {
            return Ok(found);
        }
        let mut payloads = Payloads::default();
        self.load_leaf_with(leaf, None, &mut payloads)?;
        self.counters.add_point_blocks(payloads.blocks_read());
        Ok(None)
    }

    /// That version; `None` if the leaf is to be loaded.
    fn look_up_uncached(&self, leaf: &LeafHandle, limit: CommitTs, keys: &[&[u8]]) -> Result<Option<Option<Version>>> {
        match self.version_on_disk(leaf, limit, keys).map_err(Fault::into_damage) {
            Ok(found) => {
                found.iter().for_each(|_| self.counters.count_uncached_read());
                Ok(found)
            }
            Err(Ok(_damage)) => Ok(None),
            Err(Err(fault)) => Err(fault),
        }
    }

    /// Counts a read of a leaf that is not in memory; false if it is to come there.
    fn may_stay(&self, leaf: &LeafHandle, is_packed: bool) -> bool {
        let cache = &self.env.cache;
        // A message that the image has, too, may be a sum there [A21]: the loader looks at the image first.
        !self.env.options.counters
            && match is_packed {
                true => leaf.may_stay_packed(cache.balance().turn(), LOADED_PACKED_AT),
                false => cache.is_nearly_full() && leaf.may_stay_on_disk(LOADED_AT),
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
        let is_all = self.offer_from_image(leaf, &image, (key, limit), [Vec::new(), bytes], &mut newest)?;
        Ok(is_all.then_some(newest.version))
    }

    /// Offers what the image has of the key; false if that is to be looked for beside it.
    fn offer_from_image(
        &self,
        leaf: &LeafHandle,
        image: &Image,
        wanted: (&[u8], CommitTs),
        mut buffers: [Vec<u8>; 2],
        newest: &mut Newest,
    ) -> Result<bool> {
        let (cache, mut grant) = (&self.env.cache, None);
        if let Some(outline) = image.outline.get() {
            let packed = outline.packed.share();
            if packed.is_none() && outline.is_wanted_again(cache.balance().turn()) {
                grant = grant_packed(cache, outline);
            }
            if grant.is_none() {
                if packed.is_none() {
                    self.counters.add_point_blocks(1);
                    // Of basements about alike, one.
                    let bytes = image.block.stored_bytes() / (outline.parts.count().max(2) - 1) as u64;
                    leaf.note_image_read(cache, image, bytes);
                }
                return offer_from(&Outlined { core: self, image, outline, packed }, wanted, &mut buffers, newest);
            }
        }
        self.counters.add_point_blocks(1);
        leaf.note_image_read(cache, image, image.block.stored_bytes());
        self.env.space.read_with(image.address(), BlockKind::Leaf, self.env.id, |block| {
            self.keep_packed(leaf, image, grant, block)?;
            offer_from(block, wanted, &mut buffers, newest)
        })
    }

    /// Keeps what was read of an image as it is stored, if there is room.
    fn keep_packed(
        &self,
        leaf: &LeafHandle,
        image: &Image,
        mut grant: Option<Grant>,
        block: &OpenBlock<'_>,
    ) -> Result<()> {
        let cache = &self.env.cache;
        if image.outline.get().is_none() {
            let outline = if self.has_room_for_outlines() { Outline::of(block)? } else { None };
            outline.into_iter().for_each(|outline| image.learn(outline));
            grant = image.outline.get().and_then(|outline| grant_packed(cache, outline));
        }
        if let (Some(outline), Some(grant)) = (image.outline.get(), grant) {
            outline.packed.keep_granted(cache, &Arc::new(block.pack(cache.frames())), grant);
            leaf.note_packed();
        }
        Ok(())
    }

    /// The payload of an image whose stored bytes are in memory, where they are not needed any more. What does not hold is read from disk again.
    pub(crate) fn take_packed(&self, image: &Image) -> Option<Vec<u8>> {
        let outline = image.outline.get()?;
        let packed = outline.packed.share()?;
        self.env.cache.let_go(&*outline.packed);
        let (mut payload, all) = (Vec::new(), 0..outline.parts.payload_bytes());
        let read = self.env.space.unpack(image.address(), self.env.id, &outline.parts, &packed, all, &mut payload);
        read.ok().map(|_| payload)
    }

    fn has_room_for_outlines(&self) -> bool {
        let budget = self.env.cache.budget();
        budget.used(Class::Outlines) < budget.limit() / OUTLINES_SHARE
    }
}

/// Room for the stored bytes of an image; if there is none, some is made for the next one.
fn grant_packed(cache: &Cache, outline: &Outline) -> Option<Grant> {
    cache.try_grant_or_wish(Cell::<Packed>::bytes_for(outline.parts.packed_bytes()))
}

/// True if what the image of the leaf is read from is in memory.
fn is_packed(leaf: &LeafHandle) -> bool {
    let image = leaf.record.lock().image.clone();
    image.is_some_and(|image| image.packed().is_some())
}

/// An image of which one basement is read: that is what a point read costs, where all of the block would take as long again.
struct Outlined<'a> {
    core: &'a Core,
    image: &'a Image,
    outline: &'a Outline,
    packed: Option<Arc<Packed>>,
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
        let (env, parts) = (&self.core.env, &self.outline.parts);
        match &self.packed {
            Some(packed) => env.space.unpack(self.image.address(), env.id, parts, packed, range, out),
            None => env.space.read_parts(self.image.address(), env.id, parts, range, out),
        }
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
