//! A leaf and its messages are put together [A10].
//!
//! A loader (1) sets the leaf LOADING; (2) then asks the buffer above for the blocks that reach into its range, under the
//! structure latch, so that no split or merge of the parent comes between; (3) reads image and blocks without a latch;
//! (4) under the leaf's latch, merges what it has read with what is pending, and only then lets others see the leaf.
//!
//! Why nothing is missed: a flush puts its segment in the buffer before it removes anything from a COLD leaf, and removes nothing
//! from a LOADING one. If the segment is not in what step 2 found, then its messages are still pending at step 4. If it is, they may be
//! pending all the same.
//!
//! Messages of segments at or below what the image is complete through are void: the image has them, or has dropped them
//! together with what hid them [A5]. The others are inserted and nothing is collected, so the leaf lacks nothing that image
//! and segments do not have together: it is clean and may be thrown out again as it is. What is pending stays so, beside the leaf that
//! has it, too, while it is little (`apply`).
//!
//! What is pending is never void: it may come late, from a run or when the log is replayed, and hide what is in a run still. Such
//! a message, at or below what the image is complete through, does not go to a segment: the leaf is loaded for it.
//!
//! If they do not fit, the leaf is split. The right half's latch is taken before anybody can find it and held until it, too, has
//! everything.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use base::{CommitTs, Fault, GcView, Result};
use index::DamagedRange;
use index::damaged::just_above;
use store::{BlockKind, Charge, Class, Grant, KeyHash, epoch};

use crate::ahead::ImagesAhead;
use crate::handle::{LeafHandle, LeafSlot, LeafState, Resident};
use crate::image::{Fence, Image};
use crate::messages::{Message, Messages, sorted};
use crate::node::{Insert, Leaf};
use crate::segment::{self, Place, SegmentBlock};
use crate::tree::Core;

/// A leaf without messages that cannot be read, for salvage.
pub(crate) struct Around {
    /// The leaf, in as many pages as it takes with the others.
    pub parts: Vec<LeafSlot>,
    /// Where something is missing, and up to which moment that may be newer than what is there.
    pub missing: Vec<(DamagedRange, CommitTs)>,
}

/// Stands for "to be written although nothing is missing": unwritten, but above every F.
pub(crate) const TO_BE_WRITTEN: CommitTs = CommitTs(u64::MAX - 1);
/// Stands for "to be written by the next checkpoint although nothing is missing", as a leaf is that lies where space is to be freed, that was
/// collected, or whose large values have been written: unwritten, below every F and every commit. A checkpoint of what is written does without.
pub(crate) const TO_BE_RENEWED: CommitTs = CommitTs(1);

/// The messages that a loader has found in the buffer.
pub(crate) struct Gathered {
    messages: Messages,
    /// Of them, those that are pending too: a flush had put them into the buffer, and not come to the leaf yet. They count once.
    twice: Option<Arc<Messages>>,
}

/// Blocks that one thread has read, for leaves that are loaded one after the other, as neighbours are: those that reach into the
/// last one. By their places, which are theirs as long as they are held [A20].
#[derive(Default)]
pub(crate) struct Payloads {
    held: BTreeMap<u64, Held>,
    /// Of leaves that come next.
    pub images: ImagesAhead,
    blocks_read: u64,
    /// Bytes on disk of the blocks that the last leaf needed beside its image.
    needed_bytes: u64,
}

struct Held {
    block: Arc<SegmentBlock>,
    payload: Vec<u8>,
    /// Behind the messages of the last leaf; none before the first.
    place: Option<Place>,
    _charge: Charge,
}

impl Held {
    fn new(core: &Core, block: &Arc<SegmentBlock>, payload: Vec<u8>) -> Self {
        let _charge = core.env.cache.budget().charge(Class::Work, payload.capacity() as u64);
        Self { block: block.clone(), payload, place: None, _charge }
    }
}

impl Payloads {
    fn of(&mut self, core: &Core, block: &Arc<SegmentBlock>) -> Result<&mut Held> {
        self.needed_bytes += block.block.stored_bytes();
        Ok(match self.held.entry(block.block.at().offset) {
            Entry::Occupied(read) => read.into_mut(),
            Entry::Vacant(place) => {
                let mut payload = Vec::new();
                block.note_read(&core.env.cache);
                core.read_segment(block, &mut payload)?;
                self.blocks_read += 1;
                place.insert(Held::new(core, block, payload))
            }
        })
    }

    /// Blocks of messages that are held.
    pub fn count(&self) -> usize {
        self.held.len()
    }

    pub fn holds(&self, block: &SegmentBlock) -> bool {
        self.held.contains_key(&block.block.at().offset)
    }

    /// Read ahead.
    pub fn hold(&mut self, core: &Core, block: &Arc<SegmentBlock>, payload: Vec<u8>) {
        block.note_read(&core.env.cache);
        self.held.insert(block.block.at().offset, Held::new(core, block, payload));
        self.blocks_read += 1;
    }

    /// The leaf's own block was read.
    pub fn note_leaf_read(&mut self) {
        self.blocks_read += 1;
    }

    /// Blocks read so far, those of leaves and those of messages.
    pub fn blocks_read(&self) -> u64 {
        self.blocks_read
    }

    /// The next leaf is that of `[low, high)`: forgets what does not reach into it, unless it was read ahead and nobody has come to it.
    fn come_to(&mut self, low: &[u8], high: Option<&[u8]>) {
        self.held.retain(|_, held| held.place.is_none() || held.block.overlaps(low, high));
        self.needed_bytes = 0;
    }

    /// Forgets what does not reach into `[low, high)`.
    pub fn move_to(&mut self, low: &[u8], high: Option<&[u8]>) {
        self.held.retain(|_, held| held.block.overlaps(low, high));
        self.needed_bytes = 0;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.held.clear();
    }
}

impl Core {
    /// Loads the leaf in which a range begins. If more had to be read for its messages than for its image, it is to be written: then
    /// it can leave memory and come back without them. A drain would do the same later. Not for who looks for one key: filters spare
    /// him the messages, and at five changes a look-up the bytes written came to three times as many.
    pub(crate) fn load_to_read(&self, leaf: &Arc<LeafHandle>, payloads: &mut Payloads) -> Result<()> {
        payloads.needed_bytes = 0;
        self.load_leaf_with(leaf, None, payloads)?;
        let image_bytes = || leaf.record.lock().image.as_ref().map_or(0, |image| image.block.stored_bytes());
        if payloads.needed_bytes > 0
            && payloads.needed_bytes > image_bytes()
            && self.may_write()
            && let Some(resident) = leaf.latch.write().resident_mut()
        {
            self.note_applied(leaf, resident, TO_BE_WRITTEN);
        }
        Ok(())
    }

    /// Nothing is written in a database that is only read, or poisoned: a leaf that is to be written there would stay in memory for good.
    pub(crate) fn may_write(&self) -> bool {
        !self.env.read_only && !self.env.space.is_poisoned()
    }

    /// Step 2.
    pub(crate) fn segments_over(&self, low: &[u8], high: Option<&[u8]>) -> Vec<Arc<SegmentBlock>> {
        self.blocks_above(low, None, |block| block.overlaps(low, high)).0
    }

    /// The blocks of the buffer above that may have messages newer than `above` for `key`; the newest first.
    pub(crate) fn segments_at(&self, key: &[u8], above: CommitTs) -> Vec<Arc<SegmentBlock>> {
        if !self.env.options.buffered {
            return Vec::new();
        }
        let hash = KeyHash::of(key);
        let (mut blocks, _) = self.blocks_above(key, None, |block| block.newest > above && block.may_have(key, hash));
        blocks.sort_by_key(|block| std::cmp::Reverse(block.newest));
        blocks
    }

    /// Those of the buffer above the leaf that has `key`; and whether what was on its way to it is among them.
    fn blocks_above(
        &self,
        key: &[u8],
        on_its_way: Option<&Messages>,
        wanted: impl Fn(&SegmentBlock) -> bool,
    ) -> (Vec<Arc<SegmentBlock>>, bool) {
        let _latched = self.latch_structure();
        let guard = epoch::pin();
        let path = self.path(&guard, key);
        let record = path.last().expect("a path has a root").handle.record.lock();
        let blocks = record.segments.iter().filter(|block| wanted(block)).cloned().collect();
        (blocks, on_its_way.is_some_and(Messages::is_placed))
    }

    /// Step 3 for the messages. `on_its_way`: those that a flush has taken, and not yet removed.
    pub(crate) fn gather(
        &self,
        leaf: &LeafHandle,
        high: Option<&Fence>,
        image: &Image,
        payloads: &mut Payloads,
        on_its_way: Option<Arc<Messages>>,
    ) -> Result<Gathered> {
        let mut gathered = Messages::default();
        let (high, through) = (high.map(|high| &**high), image.complete_through());
        payloads.come_to(&leaf.low, high);
        let reaches_in = |block: &SegmentBlock| block.overlaps(&leaf.low, high);
        let (blocks, has_it) = self.blocks_above(&leaf.low, on_its_way.as_deref(), reaches_in);
        for block in blocks {
            vfs::thread::point("tree.gather");
            if block.newest > through {
                self.gather_from(&block, (&leaf.low, high), through, payloads, &mut gathered)?;
            }
        }
        Ok(Gathered { messages: gathered, twice: on_its_way.filter(|_| has_it) })
    }

    pub(crate) fn read_segment(&self, block: &SegmentBlock, payload: &mut Vec<u8>) -> Result<()> {
        self.env.space.read(block.block.at(), BlockKind::Segment, self.env.id, payload)
    }

    /// Step 4: the leaf is RESIDENT, and has everything.
    pub(crate) fn publish_leaf(
        &self,
        handle: &Arc<LeafHandle>,
        slot: &mut LeafSlot,
        resident: Resident,
        Gathered { messages: gathered, twice }: &Gathered,
        funds: &mut Option<Grant>,
    ) {
        slot.state = LeafState::Resident(Box::new(resident));
        let pending = slot.pending.take();
        let parts = pending.iter().flat_map(|pending| pending.parts());
        let messages = sorted(parts.chain([gathered]));
        let lacks_some = !messages.is_empty();
        let (pending_surplus, pending_count) = pending.as_ref().map_or((0, 0), |p| (p.surplus(), p.count() as i64));
        let counts = |messages: &Messages| (messages.surplus, messages.count as i64);
        let (twice_surplus, twice_count) = twice.as_deref().map_or((0, 0), counts);
        let (surplus, count) = (gathered.surplus - twice_surplus, gathered.count as i64 - twice_count);
        self.counters.add(handle, -surplus - pending_surplus, -count - pending_count);
        // Nothing is written in a database that is only read: the halves go out as the whole came in.
        let lacks = if self.env.read_only { CommitTs::MAX } else { TO_BE_WRITTEN };
        let lacks = pending.as_ref().map_or(lacks, |pending| lacks.min(pending.oldest()));
        let (live, entries) = self.insert_messages(handle, slot, &messages, lacks, funds);
        let through = handle.complete_through();
        let resident = slot.resident_mut().expect("it stays so");
        resident.beyond_image = (live - surplus, entries - count);
        if let Some(pending) = pending {
            let was_split = resident.oldest_unwritten != CommitTs::MAX;
            let is_little = through < Some(pending.oldest()) && !self.is_worth_loading(pending.bytes());
            let stays = !was_split && (is_little || self.env.read_only);
            let placed = pending.placed();
            slot.pending = Some(pending);
            match placed {
                _ if !stays => self.give_up_pending(handle, slot),
                Some(messages) => Self::end_flush(handle, slot, &messages),
                None => {}
            }
        }
        let resident = slot.resident_mut().expect("it stays so");
        // Trimmed, or with its messages, it may be dead where the whole image is not, or alive where that is dead.
        self.refresh_mark(handle, &resident.leaf);
        self.keep_mark(handle, slot, lacks_some);
    }

    /// Inserts messages of the leaf's. If it is split, the halves lack what `lacks` says on disk. Returns the live keys and entries
    /// that came.
    pub(crate) fn insert_messages(
        &self,
        handle: &Arc<LeafHandle>,
        slot: &mut LeafSlot,
        mut messages: &[Message<'_>],
        lacks: CommitTs,
        funds: &mut Option<Grant>,
    ) -> (i64, i64) {
        let keep_all = GcView::keep_all();
        let (mut live, mut entries, mut hint) = (0, 0, None);
        let mut in_right_halves = (0, 0);
        while let Some((message, rest)) = messages.split_first() {
            let resident = slot.resident_mut().expect("its latch is held");
            match resident.leaf.insert(message.key, message.ts, message.op, &keep_all, hint) {
                Insert::Done(applied) => {
                    hint = Some(applied.hint);
                    live += i64::from(applied.live_delta);
                    entries += i64::from(applied.entries_delta);
                    messages = rest;
                }
                Insert::Full => {
                    hint = None;
                    let right = self.split_off(handle, slot, message.key, false, lacks, funds);
                    let mut right_slot = right.latch.write();
                    let (left, beyond) = messages.split_at(messages.partition_point(|m| *m.key < *right.low));
                    if !beyond.is_empty() {
                        // It may come alive: nobody hops over it before it has everything.
                        right.mark.set(None);
                    }
                    self.link_right(handle, &right);
                    let (more_live, more_entries) = self.insert_messages(&right, &mut right_slot, beyond, lacks, funds);
                    // Which has counted them.
                    in_right_halves.0 += more_live;
                    in_right_halves.1 += more_entries;
                    let resident = right_slot.resident().expect("its latch is held");
                    self.refresh_mark(&right, &resident.leaf);
                    self.keep_mark(&right, &mut right_slot, true);
                    messages = left;
                }
            }
        }
        let resident = slot.resident_mut().expect("its latch is held");
        resident.charge.set(resident.leaf.memory_bytes() as u64);
        self.counters.add(handle, live, entries);
        (live + in_right_halves.0, entries + in_right_halves.1)
    }
}

impl Core {
    /// What can be read of a leaf on disk, put together as a loader does, but for nobody else. `None` if it is not there. If its
    /// image cannot be read, these are its messages, of which only what is newer than all of the image counts.
    pub(crate) fn read_around(&self, leaf: &LeafHandle) -> Result<Option<Around>> {
        let (high, pending, image) = {
            let slot = leaf.latch.read();
            let (LeafState::Cold, Some(image)) = (&slot.state, leaf.record.lock().image.clone()) else {
                return Ok(None);
            };
            let mut pending = Messages::default();
            let parts = slot.pending.iter().flat_map(|pending| pending.parts());
            parts.flat_map(Messages::iter).for_each(|message| pending.push(message));
            (slot.high.clone(), pending, image)
        };
        let charge = || self.env.cache.budget().charge(Class::Frames, self.page_bytes());
        let (mut gathered, mut missing, through) = (Messages::default(), Vec::new(), image.complete_through());
        let (bounds, mut payloads) = ((&*leaf.low, high.as_deref()), Payloads::default());
        let whole = match self.read_resident(leaf, &image, high.as_ref(), None, charge()) {
            Ok(whole) => whole,
            Err(fault) => {
                missing.push((DamagedRange::met(fault, self.env.id, bounds.0, bounds.1)?, image.max_ts));
                Resident::new(Leaf::new(self.page_frame(), bounds.0, bounds.1), through, charge())
            }
        };
        for block in self.segments_over(&leaf.low, high.as_deref()).iter().filter(|block| block.newest > through) {
            if let Err(fault) = self.gather_from(block, bounds, through, &mut payloads, &mut gathered) {
                missing.push((self.missing_of(block, bounds, fault)?, CommitTs::ZERO));
            }
        }
        let whole = LeafSlot { high, state: LeafState::Resident(Box::new(whole)), pending: None };
        Ok(Some(Around { parts: settled_apart(whole, &sorted([&pending, &gathered])), missing }))
    }

    fn gather_from(
        &self,
        block: &Arc<SegmentBlock>,
        (low, high): (&[u8], Option<&[u8]>),
        through: CommitTs,
        payloads: &mut Payloads,
        gathered: &mut Messages,
    ) -> Result<()> {
        let held = payloads.of(self, block)?;
        segment::select(&held.payload, &mut held.place, (low, high), through, gathered)
            .map_err(|what| self.corrupt(block.block.at(), "segment of messages", what))
    }

    /// Keys of a leaf that a damaged block may have messages for.
    fn missing_of(
        &self,
        block: &SegmentBlock,
        (low, high): (&[u8], Option<&[u8]>),
        fault: Fault,
    ) -> Result<DamagedRange> {
        let (first, past) = (low.max(&block.first), just_above(&block.last));
        // What stands for messages that were lost names no last key.
        let past = if block.is_lost() { high } else { high.filter(|high| **high < *past).or(Some(past.as_slice())) };
        let met = DamagedRange::met(fault, self.env.id, first, past)?;
        Ok(DamagedRange { is_incomplete: true, ..met })
    }
}

/// The messages in the leaf, which becomes several if they do not fit.
fn settled_apart(whole: LeafSlot, messages: &[Message<'_>]) -> Vec<LeafSlot> {
    let (mut parts, keep_all) = (vec![whole], GcView::keep_all());
    for message in messages {
        loop {
            let at = parts.iter().position(|part| part.is_below_high(message.key)).expect("a message of the leaf");
            let part = &mut parts[at];
            let resident = part.resident_mut().expect("it was made so");
            if let Insert::Done(_) = resident.leaf.insert(message.key, message.ts, message.op, &keep_all, None) {
                break;
            }
            let point = resident.leaf.choose_split(message.key, false);
            let right = resident.leaf.split(&point);
            let charge = resident.charge.split(0);
            let right = Resident { beside: resident.beside.clone(), ..Resident::new(right, resident.through, charge) };
            let high = part.high.replace(point.separator.as_slice().into());
            parts.insert(at + 1, LeafSlot { high, state: LeafState::Resident(Box::new(right)), pending: None });
        }
    }
    parts
}
