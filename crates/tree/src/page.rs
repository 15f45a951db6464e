//! A leaf as a page of the cache: eviction and write-back.
//!
//! Steps of a write: (1) under the latch, the leaf is collected by one GC view [A5]; (2) if large values or chains
//! are not on disk yet, this write is theirs, and the leaf stays dirty: its image will name their blocks, and until the next
//! checkpoint that is not of what is written ([`TO_BE_RENEWED`]) nobody does; (3) otherwise
//! the image is encoded, and what was unwritten is now in flight; (4) without a latch: the log is made durable to
//! `log_need` [A6], the blocks are written; (5) the image is published and nothing is in flight any more, or, after
//! a fault, what was in flight is unwritten again.
//!
//! Between (3) and (5) the leaf is read and written as always. A split meanwhile gives the right half the OLD image
//! and what was unwritten or in flight: the image that comes back is the left half's alone, trimmed to its range.
//! Eviction, merging, unlinking and a second write leave a leaf in flight alone.
//!
//! A page leaves memory only if it is clean and no running commit reserved it [A1]. What is pending beside it stays, and is all that
//! image and segments lack.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use base::{CommitTs, Lsn, Result};
use store::{Block, BlockKind, BlockRef, Evict, LeftAt, NewBlock, Page, PageWrite, UpdateGroup, WriteEnv};

use crate::collect::is_stale;
use crate::handle::{LeafHandle, LeafSlot, LeafState, Resident};
use crate::image::{Fence, Image};
use crate::node::{NodeKind, Unwritten, basement_bytes};
use crate::settle::TO_BE_RENEWED;
use crate::tree::Core;

impl Page for LeafHandle {
    fn take_referenced(&self) -> bool {
        LeafHandle::take_referenced(self)
    }

    fn try_evict(&self) -> Evict {
        let Some(core) = self.core.upgrade() else { return Evict::Gone };
        let Some(mut slot) = self.latch.try_write() else { return Evict::Busy };
        let counted = match &slot.state {
            LeafState::Resident(resident) | LeafState::Parked(resident) => resident.counted_on_disk(),
            // A place of an earlier stay: a loader gives the leaf a new one.
            LeafState::Empty | LeafState::Cold | LeafState::Loading(_) | LeafState::Obsolete => return Evict::Gone,
        };
        {
            let record = self.record.lock();
            if record.in_flight {
                return Evict::Busy;
            }
            if record.is_dirty() {
                return Evict::Dirty;
            }
            debug_assert!(record.image.is_some(), "a clean leaf has an image");
        }
        if !core.tickets.is_released(self.last_reserved()) {
            return Evict::Busy;
        }
        let leaf = std::mem::replace(&mut slot.state, LeafState::Cold);
        self.record.lock().set_counted(counted);
        let (surplus, count) = slot.pending.as_ref().map_or((0, 0), |p| (p.surplus(), p.count() as i64));
        if let LeafState::Resident(resident) = &leaf {
            core.counters.add(self, surplus - resident.beyond_image.0, count - resident.beyond_image.1);
        }
        drop(slot);
        // The memory is given back without the latch.
        drop(leaf);
        core.counters.add_resident(-1);
        Evict::Evicted
    }

    fn note_left(&self, at: LeftAt) {
        LeafHandle::note_left(self, at);
    }

    fn begin_write(self: Arc<Self>, env: &WriteEnv) -> Result<Option<PageWrite>> {
        let Some(core) = self.core.upgrade() else { return Ok(None) };
        Ok(core.begin_leaf_write(&self, env))
    }

    fn is_dirty_hint(&self) -> bool {
        self.record.lock().is_dirty()
    }

    fn log_need_hint(&self) -> Lsn {
        let need = self.latch.try_read().and_then(|slot| slot.resident().map(|r| r.leaf.stats().max_ts));
        need.unwrap_or_default().as_lsn()
    }
}

/// What is known of an image before it has an address.
struct Encoded {
    low: Fence,
    high: Option<Fence>,
    beside: Vec<Arc<Block>>,
    entries: u64,
    live: u64,
    dead_from: Option<CommitTs>,
    log_need: CommitTs,
    write_lsn: Lsn,
}

impl Core {
    /// Steps 1 to 3.
    fn begin_leaf_write(self: &Arc<Self>, handle: &Arc<LeafHandle>, env: &WriteEnv) -> Option<PageWrite> {
        let mut slot = handle.latch.write();
        let high = slot.high.clone();
        {
            let record = handle.record.lock();
            if record.in_flight || !record.is_dirty() {
                return None;
            }
        }
        self.collect_before_write(handle, &mut slot, env);
        let resident = slot.resident_mut()?;
        let log_need = resident.leaf.stats().max_ts.as_lsn();
        let unwritten = resident.leaf.unwritten();
        if !unwritten.is_empty() {
            handle.record.lock().in_flight = true;
            return Some(self.write_beside(handle, &unwritten, log_need));
        }
        let mut payload = Vec::with_capacity(self.env.options.node_bytes);
        let basement_bytes = if self.env.basements { basement_bytes(self.env.options.node_bytes) } else { usize::MAX };
        let cuts = resident.leaf.encode_basements(basement_bytes, &mut payload);
        let through = self.complete_through(resident, env);
        let encoded = Encoded::of(handle, high, resident, through);
        let never_written = {
            let mut record = handle.record.lock();
            record.oldest_in_flight = record.oldest_unwritten.min(record.oldest_pending);
            (record.oldest_unwritten, record.oldest_pending) = (CommitTs::MAX, CommitTs::MAX);
            record.in_flight = true;
            record.composed.is_none()
        };
        resident.oldest_unwritten = CommitTs::MAX;
        (resident.beyond_image, resident.has_image) = ((0, 0), true);
        // From now on what comes at or below this is late, also if this image is not the one that gets there.
        resident.through = resident.through.max(CommitTs(through.0));
        let used_bytes = resident.leaf.used_bytes();
        // The image has it.
        slot.pending = None;
        self.env.cache.note_clean(self.page_bytes());
        // A leaf written for the first time and nearly full was filled by appends: it will hardly change.
        let filled_once = never_written && used_bytes * 8 > self.env.options.node_bytes * 7;
        let group = if filled_once { UpdateGroup::Cold } else { UpdateGroup::Warm };
        let (core, handle) = (self.clone(), handle.clone());
        Some(PageWrite {
            blocks: vec![NewBlock { cuts, ..self.block(BlockKind::Leaf, group, payload) }],
            log_need,
            done: Box::new(move |written| core.leaf_written(&handle, encoded, written)),
        })
    }

    /// Step 1.
    fn collect_before_write(&self, handle: &LeafHandle, slot: &mut LeafSlot, env: &WriteEnv) {
        let Some(resident) = slot.resident_mut() else { return };
        if resident.leaf.dead() == 0 {
            return;
        }
        let used_before = resident.leaf.used_bytes();
        self.collect_leaf(handle, resident, &self.capped(&env.view));
        self.refresh_mark(handle, &resident.leaf);
        self.note_thin(handle, used_before, slot);
    }

    /// What an image of the leaf, encoded now, is complete through: everything that was applied before the write began, save
    /// what may still arrive late [A4]; and what may have been dropped from it [A5]. Not above what the log is durable to: after a
    /// crash what comes instead must not be taken for what the image has.
    fn complete_through(&self, resident: &Resident, env: &WriteEnv) -> Lsn {
        let applied = env.applied.min(env.durable).min(self.runs.cap().as_lsn());
        applied.max(resident.through.as_lsn())
    }

    pub(crate) fn block(&self, kind: BlockKind, group: UpdateGroup, payload: Vec<u8>) -> NewBlock {
        let (index, compression) = (self.env.id, self.env.options.compression);
        NewBlock { kind, index, compression, group, payload, cuts: Vec::new() }
    }

    /// Step 5.
    fn leaf_written(&self, handle: &LeafHandle, encoded: Encoded, written: Result<Vec<Arc<Block>>>) {
        vfs::thread::point("tree.leaf_written");
        let (mut outdated, mut dirty_again) = (None, false);
        if written.is_ok() && is_stale(encoded.entries, encoded.live) {
            self.stale.offer(encoded.low.clone(), encoded.log_need);
        }
        {
            let mut record = handle.record.lock();
            match written {
                Ok(blocks) => {
                    self.counters.add_written(BlockKind::Leaf, &blocks);
                    let block = blocks.into_iter().next().expect("one block was given");
                    outdated = record.image.replace(encoded.into_image(block));
                    record.oldest_in_flight = CommitTs::MAX;
                    self.counters.count_write();
                }
                Err(_) => {
                    dirty_again = record.oldest_unwritten == CommitTs::MAX;
                    record.oldest_unwritten = record.oldest();
                    record.oldest_in_flight = CommitTs::MAX;
                }
            }
            record.in_flight = false;
        }
        if dirty_again {
            self.env.cache.note_dirty(self.page_bytes());
        }
        // Its blocks are freed, if nobody else names them, without the mutex.
        drop(outdated);
        self.landed.announce();
    }

    /// Step 2: large values, or the chains that name them, as blocks of their own.
    fn write_beside(self: &Arc<Self>, handle: &Arc<LeafHandle>, unwritten: &[Unwritten], log_need: Lsn) -> PageWrite {
        let piece_bytes = self.env.space.payload_bytes_max().min(BESIDE_BLOCK_BYTES);
        let mut blocks = Vec::new();
        let mut owners = Vec::with_capacity(unwritten.len());
        for item in unwritten {
            let pieces = item.payload.chunks(piece_bytes);
            owners.push((item.id, item.edition, pieces.len()));
            blocks.extend(pieces.map(|piece| self.block(BlockKind::Overflow, UpdateGroup::Cold, piece.to_vec())));
        }
        let (core, handle) = (self.clone(), handle.clone());
        let done = move |written: Result<Vec<Arc<Block>>>| {
            let mut slot = handle.latch.write();
            if let (Ok(blocks), Some(resident)) = (written, slot.resident_mut()) {
                core.counters.add_written(BlockKind::Overflow, &blocks);
                let (mut blocks, mut are_held) = (blocks.into_iter(), false);
                for (id, edition, count) in owners {
                    let mine: Vec<_> = blocks.by_ref().take(count).collect();
                    let refs: Vec<BlockRef> = mine.iter().map(|block| block.at()).collect();
                    // Replaced or moved to a right half meanwhile: the blocks go again.
                    if resident.leaf.set_stored(id, edition, refs) {
                        are_held = true;
                        resident.beside.extend(mine.into_iter().map(|block| (block.at().offset, block)));
                    }
                }
                if resident.leaf.memory_bytes() > RELEASE_ABOVE_PAGES * core.env.options.node_bytes {
                    resident.leaf.release_stored_values();
                }
                resident.charge.set(resident.leaf.memory_bytes() as u64);
                if are_held {
                    core.note_applied(&handle, resident, TO_BE_RENEWED);
                }
            }
            handle.record.lock().in_flight = false;
            drop(slot);
            core.landed.announce();
        };
        PageWrite { blocks, log_need, done: Box::new(done) }
    }
}

/// Large values and chains are cut into blocks of this payload.
const BESIDE_BLOCK_BYTES: usize = 128 << 10;
/// A leaf that takes more than this many pages of memory lets its stored large values go.
const RELEASE_ABOVE_PAGES: usize = 8;

impl Encoded {
    fn of(handle: &LeafHandle, high: Option<Fence>, resident: &mut Resident, applied: Lsn) -> Self {
        let mut named = BTreeMap::new();
        resident.leaf.for_each_block(&mut |at| {
            let block = resident.beside.get(&at.offset).expect("a block that a leaf names is held by it");
            named.insert(at.offset, block.clone());
        });
        let beside = named.values().cloned().collect();
        resident.beside = named;
        let stats = resident.leaf.stats();
        Self {
            low: handle.low.clone(),
            high,
            beside,
            entries: u64::from(stats.entries),
            live: u64::from(stats.live),
            dead_from: (stats.live == 0).then_some(stats.highest_delete_ts),
            log_need: stats.max_ts,
            write_lsn: applied,
        }
    }

    fn into_image(self, block: Arc<Block>) -> Arc<Image> {
        let has_blocks_beside = !self.beside.is_empty();
        block.set_beside(self.beside);
        Image {
            kind: NodeKind::Leaf,
            block,
            has_blocks_beside,
            low: self.low,
            high: self.high,
            is_exact: true,
            entries: self.entries,
            live: self.live,
            dead_from: self.dead_from,
            max_ts: self.log_need,
            write_lsn: self.write_lsn,
            outline: OnceLock::new(),
        }
        .share()
    }
}
