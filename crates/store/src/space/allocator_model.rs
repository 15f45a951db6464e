//! The allocator against a model that remembers every block: what a durable manifest, a pin, or a living block
//! needs is never written over, not even a sector that it shares with something else; and the sums are sums.

use base::limits::SECTOR_BYTES;
use vfs::random::Rng;

use super::allocator::{Allocator, ExtentId, Shortage, Wish};
use super::saved::Saved;
use super::{UpdateGroup, allocator::State};
use crate::BlockRef;

const EXTENT: u64 = 32 << 10;
const SECTOR: u64 = SECTOR_BYTES as u64;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Known {
    at: BlockRef,
    live: bool,
    published: bool,
}

/// What a manifest reaches: indices of blocks.
type Reached = Vec<usize>;

struct Model {
    allocator: Allocator,
    blocks: Vec<Known>,
    /// On its way to being durable.
    saved: Option<(Saved, Reached)>,
    durable: (Saved, Reached),
    pins: Vec<(u64, Reached)>,
    /// Holes that are being punched.
    returning: Vec<ExtentId>,
    reused: u64,
}

impl Model {
    fn new() -> Self {
        let allocator = Allocator::new(EXTENT, 1, &[]);
        let saved = as_saved(&allocator, Vec::new());
        Self {
            allocator,
            blocks: Vec::new(),
            saved: None,
            durable: (saved, Vec::new()),
            pins: Vec::new(),
            returning: Vec::new(),
            reused: 0,
        }
    }

    fn write(&mut self, rng: &mut Rng) {
        let mut sizes: Vec<(UpdateGroup, Vec<u32>)> = Vec::new();
        for group in UpdateGroup::all() {
            let count = rng.below(if matches!(group, UpdateGroup::Runs(_)) { 2 } else { 5 });
            let most = if rng.chance(0.1) { EXTENT } else { 9000 };
            sizes.push((group, (0..count).map(|_| 40 + rng.below(most - 40) as u32).collect()));
        }
        let wishes: Vec<Wish<'_>> = sizes.iter().map(|(group, sizes)| Wish { group: *group, sizes }).collect();
        let pieces = loop {
            match self.allocator.reserve(&wishes, 0) {
                Ok(pieces) => break pieces,
                Err(Shortage(missing)) => {
                    for id in self.allocator.start_growth(missing) {
                        self.allocator.finish_growth(id, true);
                    }
                }
            }
        };
        for ((_, sizes), pieces) in sizes.iter().zip(pieces) {
            assert_eq!(pieces.iter().map(|p| p.count).sum::<usize>(), sizes.len(), "all blocks are placed");
            for piece in pieces {
                self.check_untouched(piece.offset, piece.bytes);
                let mut offset = piece.offset;
                for &stored_bytes in &sizes[piece.first..piece.first + piece.count] {
                    let at = BlockRef { offset, stored_bytes, crc: 0 };
                    assert_eq!(offset / EXTENT, (at.end() - 1) / EXTENT, "a block lies within an extent");
                    self.blocks.push(Known { at, live: true, published: false });
                    offset += u64::from(stored_bytes);
                }
                assert_eq!(offset, piece.offset + piece.bytes);
            }
        }
    }

    /// A write of whole sectors meets nothing that anybody needs.
    fn check_untouched(&mut self, offset: u64, bytes: u64) {
        assert_eq!(offset % SECTOR, 0, "a call starts on a fresh sector");
        let id = (offset / EXTENT) as ExtentId;
        assert!(!self.returning.contains(&id), "extent {id} is used while it is given back");
        let (start, end) = (offset / SECTOR, (offset + bytes).div_ceil(SECTOR));
        let meets = |i: usize| {
            let at = self.blocks[i].at;
            at.offset / SECTOR < end && start < at.end().div_ceil(SECTOR)
        };
        let needed = |i: &usize| {
            self.blocks[*i].live
                || self.durable.1.contains(i)
                || self.saved.as_ref().is_some_and(|(_, reached)| reached.contains(i))
                || self.pins.iter().any(|(_, reached)| reached.contains(i))
        };
        for i in 0..self.blocks.len() {
            if meets(i) {
                assert!(!needed(&i), "block {i} {:?} is written over at {offset}", self.blocks[i]);
                self.reused += 1;
            }
        }
    }

    fn free(&mut self, rng: &mut Rng) {
        let live: Vec<usize> = (0..self.blocks.len()).filter(|i| self.blocks[*i].live).collect();
        // Now and then a whole neighbourhood, so that extents empty.
        let count = if rng.chance(0.3) { live.len() / 2 } else { 1 };
        let Some(first) = (!live.is_empty()).then(|| rng.index(live.len())) else { return };
        for &i in live[first..].iter().take(count) {
            let block = &mut self.blocks[i];
            if block.published {
                self.allocator.publish(block.at, -1);
                block.published = false;
            }
            block.live = false;
            self.allocator.free(block.at.offset, u64::from(block.at.stored_bytes));
        }
    }

    fn compose(&mut self, rng: &mut Rng) {
        for block in self.blocks.iter_mut().filter(|b| b.live) {
            if rng.chance(0.3) {
                continue;
            }
            let by = if block.published { -1 } else { 1 };
            if by == 1 || rng.chance(0.2) {
                self.allocator.publish(block.at, by);
                block.published = by == 1;
            }
        }
    }

    fn checkpoint_step(&mut self, rng: &mut Rng) {
        match self.saved.take() {
            // There was no space for it.
            Some(_) if rng.chance(0.1) => {}
            Some(saved) => {
                self.durable = saved;
                self.allocator.note_durable();
            }
            None => {
                self.compose(rng);
                let reached = (0..self.blocks.len()).filter(|i| self.blocks[*i].published).collect();
                let live = self.allocator.save();
                self.saved = Some((as_saved(&self.allocator, live), reached));
            }
        }
    }

    /// The end is cut at once, other steps come between holes.
    fn give_back(&mut self, rng: &mut Rng) {
        if !self.returning.is_empty() {
            for id in self.returning.split_off(rng.index(self.returning.len())) {
                self.allocator.finish_give_back(id);
            }
            return;
        }
        let ids = self.allocator.start_give_back(rng.below(3), 1 + rng.index(20));
        for &id in &ids {
            self.check_untouched(u64::from(id) * EXTENT, EXTENT);
        }
        let used = self.allocator.used_extents();
        let end = u64::from(used) * EXTENT;
        for (i, block) in self.blocks.iter().enumerate() {
            let reached = block.live || self.durable.1.contains(&i);
            assert!(!reached || block.at.end() <= end, "the file is cut below block {i}");
        }
        let (holes, end): (Vec<_>, Vec<_>) = ids.into_iter().partition(|id| *id < used);
        end.into_iter().for_each(|id| self.allocator.finish_give_back(id));
        self.allocator.truncate(used);
        self.returning = holes;
    }

    fn check_sums(&self) {
        let mut held = vec![0u64; self.allocator.extent_count() as usize];
        let mut published = vec![0i64; held.len()];
        for block in self.blocks.iter().filter(|b| b.live) {
            let id = (block.at.offset / EXTENT) as usize;
            held[id] += u64::from(block.at.stored_bytes);
            published[id] += i64::from(block.at.stored_bytes) * i64::from(block.published);
        }
        for (id, extent) in self.allocator.extents() {
            assert_eq!((extent.held, extent.published), (held[id as usize], published[id as usize]), "extent {id}");
            assert!(extent.held == 0 || matches!(extent.state, State::Open | State::Sealed), "extent {id}");
            assert!(extent.held <= extent.fill || extent.state == State::Sealed, "extent {id}");
        }
        let backed = self.allocator.extents().filter(|(_, e)| e.backed).count();
        assert_eq!(self.allocator.backed_count(), backed as u64);
        let returning = self.allocator.extents().filter(|(id, e)| e.backed && self.returning.contains(id)).count();
        assert_eq!(self.allocator.returning_count(), returning as u64);
        assert_eq!(self.allocator.held_bytes(), held.iter().sum::<u64>());
        assert_eq!(self.allocator.published_bytes() as i64, published.iter().sum::<i64>());
    }

    /// Power cut: what the newest durable manifest reaches is there, everything else is free.
    fn crash(&mut self) {
        let (saved, reached) = self.durable.clone();
        let saved = Saved::decode(&saved.encode()).unwrap();
        let mut live = vec![0; saved.extent_count as usize];
        for &i in &reached {
            live[(self.blocks[i].at.offset / EXTENT) as usize] += u64::from(self.blocks[i].at.stored_bytes);
        }
        let named: Vec<(ExtentId, u64)> = (0..).zip(live).filter(|(_, bytes)| *bytes > 0).collect();
        assert_eq!(saved.live, named, "the manifest's counts are what it reaches");
        let extents = self.allocator.extent_count().max(saved.extent_count);
        self.allocator = Allocator::new(EXTENT, extents, &saved.live);
        for (i, block) in self.blocks.iter_mut().enumerate() {
            block.live = reached.contains(&i);
            block.published = block.live;
        }
        self.saved = None;
        self.pins.clear();
        self.returning.clear();
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.below(100) {
            0..40 => self.write(rng),
            40..62 => self.free(rng),
            62..86 => self.checkpoint_step(rng),
            86..90 => self.pins.push((self.allocator.pin(), self.durable.1.clone())),
            90..93 if !self.pins.is_empty() => {
                let (pin, _) = self.pins.swap_remove(rng.index(self.pins.len()));
                self.allocator.unpin(pin);
            }
            93..98 => self.give_back(rng),
            98 => self.crash(),
            _ => {}
        }
        // What nobody can ever need again only slows the checks down.
        if self.blocks.len() > 3000 {
            self.crash();
            let reached: Vec<Known> = self.durable.1.iter().map(|i| self.blocks[*i]).collect();
            self.durable.1 = (0..reached.len()).collect();
            self.blocks = reached;
        }
    }
}

fn as_saved(allocator: &Allocator, live: Vec<(ExtentId, u64)>) -> Saved {
    Saved { database_id: 1, extent_bytes: EXTENT, extent_count: allocator.extent_count(), live }
}

#[test]
fn random_histories_agree_with_the_model() {
    let mut reused = 0;
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut model = Model::new();
        for _ in 0..250 {
            model.step(&mut rng);
            model.check_sums();
        }
        reused += model.reused;
    }
    assert!(reused > 1000, "extents are used again: {reused}");
}

/// Reserves one block of a whole extent, so that the next call seals it.
fn fill_extent(allocator: &mut Allocator) -> BlockRef {
    let sizes = [EXTENT as u32];
    let wish = [Wish { group: UpdateGroup::Warm, sizes: &sizes }];
    let pieces = match allocator.reserve(&wish, 0) {
        Ok(pieces) => pieces,
        Err(Shortage(missing)) => {
            for id in allocator.start_growth(missing) {
                allocator.finish_growth(id, true);
            }
            allocator.reserve(&wish, 0).unwrap()
        }
    };
    BlockRef { offset: pieces[0][0].offset, stored_bytes: EXTENT as u32, crc: 0 }
}

/// A block that has an extent to itself.
fn named_by_a_durable_manifest() -> (Allocator, BlockRef) {
    let mut a = Allocator::new(EXTENT, 1, &[]);
    let block = fill_extent(&mut a);
    // Seals the one before.
    fill_extent(&mut a);
    a.publish(block, 1);
    a.save();
    a.note_durable();
    (a, block)
}

#[test]
fn a20_a_block_freed_during_a_checkpoint_waits_for_the_next() {
    let mut a = Allocator::new(EXTENT, 1, &[]);
    let block = fill_extent(&mut a);
    fill_extent(&mut a);
    a.publish(block, 1);
    a.save();
    // The manifest that is being written names the block; then it is replaced.
    a.publish(block, -1);
    a.free(block.offset, EXTENT);
    assert_ne!(fill_extent(&mut a).offset, block.offset, "it may become durable");
    a.note_durable();
    assert_ne!(fill_extent(&mut a).offset, block.offset, "the durable manifest reaches it");
    a.save();
    assert_ne!(fill_extent(&mut a).offset, block.offset, "not durable yet");
    a.note_durable();
    assert_eq!(fill_extent(&mut a).offset, block.offset);
}

#[test]
fn a20_a_block_replaced_before_a_manifest_counts_is_free_with_it() {
    let (mut a, block) = named_by_a_durable_manifest();
    // Composed for the next one, and still held by a reader.
    a.publish(block, -1);
    a.save();
    a.note_durable();
    assert_ne!(fill_extent(&mut a).offset, block.offset, "it is read");
    assert!(a.free(block.offset, EXTENT), "no manifest names it");
    assert_eq!(fill_extent(&mut a).offset, block.offset);
}

#[test]
fn a20_a_pin_holds_back_what_its_manifest_reaches() {
    let (mut a, block) = named_by_a_durable_manifest();
    let pin = a.pin();
    a.publish(block, -1);
    a.free(block.offset, EXTENT);
    for _ in 0..3 {
        a.save();
        a.note_durable();
        assert_ne!(fill_extent(&mut a).offset, block.offset, "a backup is reading it");
    }
    a.unpin(pin);
    assert_eq!(fill_extent(&mut a).offset, block.offset);
}

#[test]
fn a19_each_call_starts_on_a_fresh_sector() {
    let mut a = Allocator::new(EXTENT, 1, &[]);
    let sizes = [100, 200, 5000];
    let mut end = 0;
    for _ in 0..3 {
        let wish = [Wish { group: UpdateGroup::Hot, sizes: &sizes }];
        let pieces = a.reserve(&wish, 0).or_else(|Shortage(missing)| {
            for id in a.start_growth(missing) {
                a.finish_growth(id, true);
            }
            a.reserve(&wish, 0)
        });
        let piece = pieces.unwrap()[0][0];
        assert_eq!((piece.offset % SECTOR, piece.bytes), (0, 5300), "blocks of a call are packed");
        assert!(piece.offset >= end, "no sector is shared with an earlier call");
        end = piece.offset + piece.bytes;
    }
}
