//! Messages from memory to disk: into segments of the buffer above the leaves.
//!
//! Steps for one inner node of level 1: (1) one flush of the tree at a time; (2) leaf by leaf, under its latch, what is
//! pending is set on its way; it can be read as before; a leaf in memory that has to be written anyway becomes dirty
//! instead, and what has to be waited for comes last; (3) the messages, in key order, are cut into blocks
//! of neighbouring leaves; (4) the log is made durable to the newest of them [A6], the blocks are written; (5) under the structure
//! latch they are put into the buffers of the nodes that have the range today: the node may have been split; (6) leaf
//! by leaf what is in the buffer is removed; of one that is being loaded, its loader does that once the leaf has all [A10].
//!
//! After a fault everything stays where it is, and is on its way again with the next flush. Damage is no fault here: what came
//! late for a damaged leaf stays pending, and the checkpoint's F below it.
//!
//! A block that reaches into two nodes, after a split, is in both buffers; before one of them is composed, it gets its part
//! as a block of its own ([`Core::separate`]), so that on disk every block is named once.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use base::{CommitTs, Fault, Result};
use index::LogGate;
use store::{Block, BlockKind, LeftAt, NewBlock, UpdateGroup, epoch};

use crate::descent::Step;
use crate::handle::{Arrival, Child, InnerHandle, InnerState, LeafHandle, LeafSlot, LeafState};
use crate::image::Fence;
use crate::messages::{Message, Messages, sorted};
use crate::segment::{self, SegmentBlock};
use crate::tree::Core;

/// Messages of so many bytes are in a block, or of one leaf more.
const BLOCK_BYTES: usize = 16 << 10;
/// One flush takes messages of at most so many bytes, and those of one leaf more.
const FLUSH_BYTES: usize = 4 << 20;

/// A leaf, and what of it is on its way.
type Flushing = (Arc<LeafHandle>, Arc<Messages>);

impl Core {
    /// Brings all that is pending below `handle`, when it begins, into its buffer, save what is stuck. Returns how many
    /// messages that were, about.
    pub(crate) fn flush(&self, handle: &InnerHandle, log: &dyn LogGate) -> Result<u64> {
        let (mut moved, mut put_off) = self.flush_what_can_be(self.leaves_of(handle), How::First, log)?;
        while !put_off.is_empty() {
            let mut again = Vec::new();
            // With no lock held: what is waited for may wait for memory.
            for (leaf, met) in put_off {
                match met {
                    Met::Arrival(arrival) => arrival.wait(),
                    Met::Landing => self.landed.wait_while(|| leaf.record.lock().in_flight),
                    Met::Late => match self.load_leaf(&leaf, None).map_err(Fault::into_damage) {
                        Ok(()) => moved += 1,
                        Err(Ok(_damage)) => {}
                        Err(Err(fault)) => return Err(fault),
                    },
                }
                again.push(leaf);
            }
            let (more, rest) = self.flush_what_can_be(again, How::Again, log)?;
            (moved, put_off) = (moved + more, rest);
        }
        Ok(moved)
    }

    /// The same, for who frees memory: waits for nothing but the disk. What came late for one leaf goes into the leaf, in a page
    /// past the limit if need be, which can be written and thrown out; none before that is.
    pub(crate) fn flush_at_once(&self, handle: &InnerHandle, log: &dyn LogGate) -> Result<u64> {
        let (moved, put_off) = self.flush_what_can_be(self.leaves_of(handle), How::AtOnce, log)?;
        let budget = self.env.cache.budget();
        for (leaf, _) in put_off.iter().filter(|(_, met)| matches!(met, Met::Late)) {
            if budget.total() > budget.limit() {
                break;
            }
            let mut page = self.env.cache.grant_at_once(self.page_bytes());
            match self.load_leaf(leaf, Some(&mut page)).map_err(Fault::into_damage) {
                Ok(()) => return Ok(moved + 1),
                Err(Ok(_damage)) => {}
                Err(Err(fault)) => return Err(fault),
            }
        }
        Ok(moved)
    }

    /// Steps 1 to 6, batch by batch. Returns how many messages that were, about, and the leaves that have to be waited for first.
    fn flush_what_can_be(
        &self,
        leaves: Vec<Arc<LeafHandle>>,
        how: How,
        log: &dyn LogGate,
    ) -> Result<(u64, Vec<PutOff>)> {
        let (mut leaves, mut moved, mut put_off) = (leaves.into_iter(), 0, Vec::new());
        while leaves.len() > 0 {
            let one_at_a_time = match how {
                How::First | How::Again => Some(self.flushing.lock()),
                How::AtOnce => self.flushing.try_lock(),
            };
            if one_at_a_time.is_none() {
                break;
            }
            let (mut flushing, mut bytes) = (Vec::new(), 0);
            while bytes < FLUSH_BYTES
                && let Some(leaf) = leaves.next()
            {
                match self.start(&leaf, how) {
                    Ok(None) => {}
                    Ok(Some(messages)) => {
                        bytes += messages.bytes();
                        moved += messages.count;
                        flushing.push((leaf, messages));
                    }
                    Err(met) => put_off.push((leaf, met)),
                }
            }
            let flushed = self.flush_some(&flushing, log);
            self.flushing_newest.store(0, Ordering::Release);
            // While this has them, another flush could only copy them.
            drop(flushing);
            drop(one_at_a_time);
            flushed?;
            log.give_way();
        }
        Ok((moved, put_off))
    }

    pub(crate) fn leaves_of(&self, handle: &InnerHandle) -> Vec<Arc<LeafHandle>> {
        let guard = epoch::pin();
        let InnerState::Loaded(node) = handle.cell.load(&guard) else { return Vec::new() };
        let leaf = |child: &Child| match child {
            Child::Leaf(leaf) => Some(leaf.clone()),
            Child::Inner(_) => None,
        };
        node.keys.children().iter().filter_map(leaf).collect()
    }

    /// Step 2: what goes into a segment, or what is to be waited for first. What came late for a leaf that could not be loaded stays
    /// pending, and the checkpoint leaves it to the log ([`crate::handle::LeafRecord::is_stuck`]).
    fn start(&self, leaf: &Arc<LeafHandle>, how: How) -> std::result::Result<Option<Arc<Messages>>, Met> {
        let mut slot = leaf.latch.write();
        self.unpark(leaf, &mut slot);
        let LeafSlot { state, pending: Some(pending), .. } = &mut *slot else { return Ok(None) };
        let (in_flight, is_dirty, is_damaged) = {
            let record = leaf.record.lock();
            (record.in_flight, record.is_dirty(), record.is_damaged)
        };
        let through = leaf.complete_through();
        let came_late = through >= Some(pending.oldest());
        let messages = match state {
            LeafState::Loading(arrival) => return Err(Met::Arrival(arrival.clone())),
            // What its image will be complete through is not known here.
            _ if in_flight => return Err(Met::Landing),
            LeafState::Cold if came_late && is_damaged && how != How::First => {
                pending.start_flush_above(through.expect("a cold leaf has an image"))
            }
            LeafState::Cold if came_late => return Err(Met::Late),
            LeafState::Cold => Some(pending.start_flush()),
            LeafState::Resident(_) if is_dirty || came_late => {
                self.give_up_pending(leaf, &mut slot);
                return Ok(None);
            }
            LeafState::Resident(_) => Some(pending.start_flush()),
            LeafState::Parked(_) => unreachable!("it was made RESIDENT"),
            LeafState::Empty | LeafState::Obsolete => unreachable!("nothing is pending there"),
        };
        if let Some(messages) = &messages {
            self.flushing_newest.fetch_max(messages.newest.0, Ordering::AcqRel);
        }
        Ok(messages)
    }

    /// Steps 3 to 6.
    fn flush_some(&self, flushing: &[Flushing], log: &dyn LogGate) -> Result<()> {
        let mut blocks = Blocks::default();
        for (_, messages) in flushing {
            blocks.add(&sorted([&**messages]));
        }
        let bytes = flushing.iter().map(|(_, messages)| messages.bytes() as u64).sum();
        let segment = self.write_segment(blocks, log, self.env.cache.note_flushed(bytes))?;
        vfs::thread::point("tree.segment_written");
        self.place(&segment, flushing);
        vfs::thread::point("tree.segment_placed");
        for (leaf, messages) in flushing {
            let mut slot = leaf.latch.write();
            // Whoever loads it does the same at the end, if he can read all of it.
            if !matches!(slot.state, LeafState::Loading(_)) {
                Self::end_flush(leaf, &mut slot, messages);
            }
        }
        Ok(())
    }

    /// Step 6 for one leaf: what was on its way is in the buffer, and pending no more.
    pub(crate) fn end_flush(leaf: &LeafHandle, slot: &mut LeafSlot, messages: &Arc<Messages>) {
        let LeafSlot { state, pending: Some(pending), .. } = slot else { return };
        if !pending.end_flush(messages) {
            return;
        }
        let mut record = leaf.record.lock();
        match state {
            LeafState::Resident(resident) | LeafState::Parked(resident) => {
                resident.note_counted(-messages.surplus, -(messages.count as i64));
            }
            _ => record.note_added(messages.surplus, messages.count as i64),
        }
        record.oldest_pending = pending.oldest();
        drop(record);
        if pending.count() == 0 {
            slot.pending = None;
        }
    }

    /// Step 4.
    fn write_segment(&self, blocks: Blocks, log: &dyn LogGate, flushed: LeftAt) -> Result<Vec<Arc<SegmentBlock>>> {
        let (parts, payloads) = blocks.finish();
        let Some(need) = parts.iter().map(|part| part.newest.as_lsn()).max() else { return Ok(Vec::new()) };
        if log.durable() < need {
            log.make_durable(need)?;
        }
        let written = self.env.space.write(payloads.into_iter().map(|payload| self.new_segment(payload)).collect())?;
        self.counters.add_written(BlockKind::Segment, &written);
        Ok(parts.into_iter().zip(written).map(|(part, block)| part.with(block, flushed).share()).collect())
    }

    /// A block to write.
    pub(crate) fn new_segment(&self, payload: Vec<u8>) -> NewBlock {
        NewBlock {
            kind: BlockKind::Segment,
            index: self.env.id,
            compression: self.env.options.compression,
            group: UpdateGroup::Hot,
            payload,
            cuts: Vec::new(),
        }
    }

    /// Step 5.
    fn place(&self, segment: &[Arc<SegmentBlock>], flushing: &[Flushing]) {
        let _latched = self.latch_structure();
        let guard = epoch::pin();
        let mut reached: Vec<Step<'_>> = Vec::new();
        for block in segment {
            let mut key = block.first.to_vec();
            loop {
                let mut path = self.path(&guard, &key);
                let bottom = path.last().expect("a path has a root");
                bottom.handle.record.lock().segments.push(block.clone());
                bottom.handle.raise_log_need(block.newest);
                // Dead marks stay as they are: who wrote the message has cleared them.
                path.iter().rev().for_each(|step| step.handle.note_change());
                let bottom = path.pop().expect("a path has a root");
                let next = bottom.keys.hi().filter(|hi| *hi <= &*block.last).map(<[u8]>::to_vec);
                if reached.last().is_none_or(|last| !Arc::ptr_eq(last.handle, bottom.handle)) {
                    reached.push(bottom);
                }
                match next {
                    Some(next) => key = next,
                    None => break,
                }
            }
        }
        for node in reached {
            let filling = self.filling(&node.handle.record.lock().segments, node.keys);
            self.fillings.note(node.keys.lo(), filling, true);
        }
        flushing.iter().for_each(|(_, messages)| messages.note_placed());
    }

    fn part_of(&self, block: &SegmentBlock, low: &[u8], high: Option<&[u8]>, own: &mut Messages) -> Result<()> {
        let mut payload = Vec::new();
        self.read_segment(block, &mut payload)?;
        segment::select(&payload, &mut None, (low, high), CommitTs::ZERO, own)
            .map_err(|what| self.corrupt(block.block.at(), "segment of messages", what))
    }

    /// The part of `handle` in blocks that reach beyond it, as blocks of its own. In place of one that is damaged each node
    /// gets a block which says so.
    pub(crate) fn separate(&self, handle: &InnerHandle, shared: &[Arc<SegmentBlock>], log: &dyn LogGate) -> Result<()> {
        let _one = self.flushing.lock();
        let last_low;
        let fences = {
            let guard = epoch::pin();
            let InnerState::Loaded(node) = handle.cell.load(&guard) else { return Ok(()) };
            last_low = node.keys.fence_of(node.keys.len() - 1).0;
            (Fence::from(node.keys.lo()), node.keys.hi().map(Fence::from))
        };
        let (low, high) = (&*fences.0, fences.1.as_deref());
        for block in shared {
            let mut own = Messages::default();
            let mut blocks = Blocks::default();
            match self.part_of(block, low, high, &mut own) {
                Ok(()) => blocks.add(&sorted([&own])),
                // What could not be read counts as lost; a disk that does not answer is asked again.
                Err(Fault::Corrupt(_)) => blocks.add_lost(block, low, &last_low),
                Err(fault) => return Err(fault),
            }
            let written = self.write_segment(blocks, log, block.flushed)?;
            let _latched = self.latch_structure();
            let mut record = handle.record.lock();
            let before = record.segments.len();
            record.segments.retain(|other| !Arc::ptr_eq(other, block));
            // Merged with its neighbour meanwhile, or drained: then what was written is not needed.
            let fits = matches!(handle.cell.load(&epoch::pin()), InnerState::Loaded(node)
                if node.keys.lo() == low && node.keys.hi() == high);
            if before == record.segments.len() {
                continue;
            }
            if fits { record.segments.extend(written) } else { record.segments.push(block.clone()) }
        }
        Ok(())
    }
}

/// How a flush goes about it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Leaves that were damaged are tried again.
    First,
    Again,
    /// Waiting for nobody.
    AtOnce,
}

/// A leaf, and what it has to be waited for.
type PutOff = (Arc<LeafHandle>, Met);

/// What has to be waited for.
enum Met {
    /// The leaf is being loaded.
    Arrival(Arc<Arrival>),
    /// It is being written.
    Landing,
    /// A message came late: in a segment it would be void. Loaded, the leaf becomes dirty instead.
    Late,
}

/// A block before it is written.
struct Part {
    first: Fence,
    last: Fence,
    count: u64,
    deletes: u64,
    bytes: u64,
    newest: CommitTs,
    leaves: usize,
}

impl Part {
    fn with(self, block: Arc<Block>, flushed: LeftAt) -> SegmentBlock {
        let Self { first, last, count, deletes, bytes, newest, leaves } = self;
        SegmentBlock { block, first, last, count, deletes, bytes, newest, leaves, flushed, filter: OnceLock::new() }
    }
}

/// Step 3: a block ends behind a leaf, once it is large enough.
#[derive(Default)]
struct Blocks<'a> {
    open: Vec<Message<'a>>,
    open_bytes: usize,
    open_leaves: usize,
    parts: Vec<Part>,
    payloads: Vec<Vec<u8>>,
}

impl<'a> Blocks<'a> {
    /// The messages of one leaf, beyond all before.
    fn add(&mut self, messages: &[Message<'a>]) {
        self.open.extend_from_slice(messages);
        self.open_bytes += messages.iter().map(message_bytes).sum::<usize>();
        self.open_leaves += 1;
        if self.open_bytes >= BLOCK_BYTES {
            self.close();
        }
    }

    /// In place of a block that is damaged: over the same leaves, as far as they are at or above `low` and the last one begins
    /// at `last_low`. That one is the last also when it was split since: then it was in memory, with all messages.
    fn add_lost(&mut self, block: &SegmentBlock, low: &[u8], last_low: &[u8]) {
        let first = low.max(&block.first);
        let last = first.max(last_low).min(&block.last);
        let payload = segment::lost();
        let (count, deletes, bytes, newest) = (0, 0, payload.len() as u64, block.newest);
        self.parts.push(Part { first: first.into(), last: last.into(), count, deletes, bytes, newest, leaves: 1 });
        self.payloads.push(payload);
    }

    fn close(&mut self) {
        // Also between versions of one key: of one that is not read for long, as that of a damaged leaf, there may be any number.
        let mut open = std::mem::take(&mut self.open);
        self.open_bytes = 0;
        let leaves = std::mem::take(&mut self.open_leaves);
        while !open.is_empty() {
            let mut bytes = 0;
            let mut fits = |message: &Message<'_>| {
                bytes += message_bytes(message);
                bytes <= 4 * BLOCK_BYTES
            };
            let end = open.iter().take_while(|m| fits(m)).count().max(1);
            let rest = open.split_off(end);
            let (first, last) = (&open[0], &open[open.len() - 1]);
            let payload = segment::encode(&open);
            self.parts.push(Part {
                first: first.key.into(),
                last: last.key.into(),
                count: open.len() as u64,
                deletes: open.iter().filter(|m| m.op.value().is_none()).count() as u64,
                bytes: payload.len() as u64,
                newest: open.iter().map(|m| m.ts).max().unwrap_or_default(),
                leaves,
            });
            self.payloads.push(payload);
            open = rest;
        }
    }

    fn finish(mut self) -> (Vec<Part>, Vec<Vec<u8>>) {
        self.close();
        (self.parts, self.payloads)
    }
}

fn message_bytes(message: &Message<'_>) -> usize {
    message.key.len() + message.op.value_bytes() + 8
}
