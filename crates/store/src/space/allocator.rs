//! Which bytes of the data file hold what: extents, their live bytes, and when one may be used again. Pure: no
//! I/O, no latch, no clock; [`super::Space`] wraps it in a mutex and does what it decides.
//!
//! Life of an extent: *free* → *open* (blocks are appended, for one update group) → *sealed* (full; its blocks are
//! freed one by one) → *pending* (nobody names a byte of it any more) → free. Space is only ever reused by whole
//! extents, so there is no list of holes and no sector that is written twice in one life of an extent.
//!
//! Invariants, over all extents:
//! 1. `held` = bytes of blocks that are being written, that an `Arc<Block>` names, or that the manifest opened
//!    from names and nobody has adopted yet. `held > 0` ⇒ the extent is open or sealed.
//! 2. `published` = bytes of blocks with `published > 0`. What is saved is `published`, so it is what the manifest
//!    reaches (P9); an extent that is not in the saved list is free at open.
//! 3. `fill` (the next byte to write) only grows within one life, each reservation starts at a multiple of the
//!    sector, and no two reservations share a byte (A19).
//! 4. pending → free, and open → free of one that is empty again, only when `counted < horizon` (A20). `counted` = number of the last manifest that counts
//!    bytes in it, 0 if none does: what write-back wrote and wrote again between two checkpoints. `horizon` = min(newest durable manifest, oldest that is pinned).
//!    A manifest counts exactly what it names (P9, 2), so none that is durable, pinned, or on its way to being durable names a byte of such an extent.
//! 5. An extent has the generation of the manifest after which a block of it was last published: what a copy of that manifest or
//!    a later one has of it is all that there is of it (`is_changed_since`).
//!
//! Schedule behind 4: manifest 7 counts B, and is being written; B is replaced and freed; 7 becomes durable, naming B. B must wait for manifest 8,
//! which does not: `counted` = 7, not < 7. Was it replaced before 7 counted, B is free with 7, though freed while that was being made.

use std::collections::{BTreeMap, BTreeSet};

use base::limits::{SECTOR_BYTES, round_up};

use super::UpdateGroup;
use crate::BlockRef;

/// Number of an extent: its offset divided by the extent size. 0 is the file's header.
pub type ExtentId = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Usable or not, see `backed`; nothing in it is named.
    Free,
    /// Being filled.
    Open,
    /// Full, or found non-empty at open.
    Sealed,
    /// Empty, waiting for a checkpoint.
    Pending,
    /// Being allocated or given back to the file system, outside the mutex.
    Moving,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) state: State,
    /// The file system has allocated it: writes cannot fail for want of space.
    pub(super) backed: bool,
    pub(super) held: u64,
    /// Signed: two parents may tell their changes in the other order.
    pub(super) published: i64,
    pub(super) fill: u64,
    /// The last manifest that counts bytes in it, in this life; 0: none.
    counted: u64,
    /// Passes of cleaning that ended with it: each index makes its own.
    pub(super) passes: u16,
    /// The newest manifest when a block of it was last published; 0: before the file was opened.
    generation: u64,
}

impl Extent {
    const BARE: Extent = Extent {
        state: State::Free,
        backed: false,
        held: 0,
        published: 0,
        fill: 0,
        counted: 0,
        passes: 0,
        generation: 0,
    };

    /// True if something was put into it, of which nothing is left in it, nor in manifest `n` or a later one.
    fn is_emptied_before(&self, n: u64) -> bool {
        self.held == 0 && self.fill > 0 && self.counted < n
    }
}

/// A contiguous reservation: blocks `first..first + count` of one group, packed from `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) first: usize,
    pub(super) count: usize,
    /// Bytes of the blocks; the piece occupies this rounded up to whole sectors.
    pub(super) bytes: u64,
}

/// Blocks of one group to place: their stored sizes, in order.
pub(super) struct Wish<'a> {
    pub(super) group: UpdateGroup,
    pub(super) sizes: &'a [u32],
}

/// Extents that are missing for a reservation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shortage(pub(super) u64);

#[derive(Debug)]
pub(super) struct Allocator {
    extent_bytes: u64,
    /// By number; the first stands for the file's header and is never used.
    extents: Vec<Extent>,
    /// Free and backed: usable at once.
    usable: BTreeSet<ExtentId>,
    /// Free, not backed (punched, or of unknown backing since open).
    bare: BTreeSet<ExtentId>,
    /// Of these, the ones of unknown backing.
    doubtful: BTreeSet<ExtentId>,
    open: [Option<ExtentId>; UpdateGroup::COUNT],
    pending: BTreeSet<ExtentId>,
    /// Manifests are numbered by when the state for them was taken, from that on which the file was opened from, number 1. The newest one, which may
    /// never become durable.
    saved: u64,
    /// The newest durable one.
    durable: u64,
    /// Manifests that are pinned, with a count.
    pins: BTreeMap<u64, u32>,
    held: u64,
    published: i64,
    /// Extents that are `backed`.
    backed: u64,
    /// Of these, on their way back to the file system.
    returning: u64,
    /// Extents opened since the newest durable checkpoint, and between that and the one before.
    opened: u64,
    steady: u64,
}

impl Allocator {
    /// The allocator of a data file of `extent_count` extents (header included) whose newest durable manifest
    /// names `live` bytes in some of them.
    pub(super) fn new(extent_bytes: u64, extent_count: u32, live: &[(ExtentId, u64)]) -> Self {
        let mut this = Self {
            extent_bytes,
            extents: vec![Extent::BARE; extent_count.max(1) as usize],
            usable: BTreeSet::new(),
            bare: (1..extent_count).collect(),
            doubtful: BTreeSet::new(),
            open: [None; UpdateGroup::COUNT],
            pending: BTreeSet::new(),
            saved: 1,
            durable: 1,
            pins: BTreeMap::new(),
            held: 0,
            published: 0,
            backed: live.len() as u64,
            returning: 0,
            opened: 0,
            steady: 0,
        };
        this.extents[0].state = State::Sealed;
        for &(id, bytes) in live {
            let published = i64::try_from(bytes).expect("live bytes fit their extent");
            this.extents[id as usize] = Extent {
                state: State::Sealed,
                backed: true,
                held: bytes,
                published,
                fill: extent_bytes,
                counted: this.durable,
                passes: 0,
                generation: 0,
            };
            this.bare.remove(&id);
            this.held += bytes;
            this.published += published;
        }
        this.doubtful = this.bare.clone();
        this
    }

    pub(super) fn extent_of(&self, offset: u64) -> Option<ExtentId> {
        let id = offset / self.extent_bytes;
        (id >= 1 && id < self.extents.len() as u64).then_some(id as ExtentId)
    }

    /// Places all wishes or none. What needs another extent leaves `kept` usable ones behind.
    pub(super) fn reserve(&mut self, wishes: &[Wish<'_>], kept: u64) -> Result<Vec<Vec<Piece>>, Shortage> {
        let needed: u64 = wishes.iter().map(|wish| self.extents_needed(wish)).sum();
        let usable = self.usable.len() as u64;
        if needed > 0 && needed + kept > usable {
            return Err(Shortage(needed + kept - usable));
        }
        Ok(wishes.iter().map(|wish| self.place(wish)).collect())
    }

    fn room_in_open(&self, group: UpdateGroup) -> u64 {
        self.open[group.place()].map_or(0, |id| self.extent_bytes - self.extents[id as usize].fill)
    }

    fn extents_needed(&self, wish: &Wish<'_>) -> u64 {
        let mut room = self.room_in_open(wish.group);
        let mut needed = 0;
        for &size in wish.sizes {
            if u64::from(size) > room {
                needed += 1;
                room = self.extent_bytes;
            }
            room -= u64::from(size);
        }
        needed
    }

    fn place(&mut self, wish: &Wish<'_>) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut first = 0;
        while first < wish.sizes.len() {
            let mut room = self.room_in_open(wish.group);
            let fits = wish.sizes[first..].iter().take_while(|size| {
                let fits = u64::from(**size) <= room;
                room = room.saturating_sub(u64::from(**size));
                fits
            });
            let count = fits.count();
            if count == 0 {
                self.open_next(wish.group);
                continue;
            }
            let bytes = wish.sizes[first..first + count].iter().map(|size| u64::from(*size)).sum();
            let id = self.open[wish.group.place()].expect("blocks fit only an open extent");
            let extent = &mut self.extents[id as usize];
            pieces.push(Piece { offset: u64::from(id) * self.extent_bytes + extent.fill, first, count, bytes });
            extent.fill = round_up(extent.fill + bytes, SECTOR_BYTES as u64);
            extent.held += bytes;
            self.held += bytes;
            first += count;
        }
        pieces
    }

    fn open_next(&mut self, group: UpdateGroup) {
        if let Some(full) = self.open[group.place()].take() {
            self.seal(full);
        }
        let id = self.usable.pop_first().expect("the need was counted before");
        self.extents[id as usize] = Extent { state: State::Open, backed: true, ..Extent::BARE };
        self.open[group.place()] = Some(id);
        self.opened += 1;
    }

    fn seal(&mut self, id: ExtentId) {
        let extent = &mut self.extents[id as usize];
        extent.state = State::Sealed;
        if extent.held == 0 {
            self.set_pending(id);
        }
    }

    /// The oldest manifest that anybody may read still: the newest durable one, or an older one that is pinned. What is counted last by one before it is free.
    fn horizon(&self) -> u64 {
        self.pins.keys().next().map_or(self.durable, |pin| self.durable.min(*pin))
    }

    fn set_pending(&mut self, id: ExtentId) {
        let horizon = self.horizon();
        let extent = &mut self.extents[id as usize];
        if extent.counted < horizon {
            *extent = Extent { backed: true, ..Extent::BARE };
            self.usable.insert(id);
        } else {
            extent.state = State::Pending;
            self.pending.insert(id);
        }
    }

    pub(super) fn publish(&mut self, at: BlockRef, by: i64) {
        if let Some(id) = self.extent_of(at.offset) {
            let bytes = by * i64::from(at.stored_bytes);
            let extent = &mut self.extents[id as usize];
            extent.published += bytes;
            if by > 0 {
                extent.generation = self.saved;
            }
            self.published += bytes;
        }
    }

    /// `bytes` at `offset` are no longer named. True if their extent is usable again at once.
    pub(super) fn free(&mut self, offset: u64, bytes: u64) -> bool {
        // A reference that leads outside the file was reported when the block was read.
        let Some(id) = self.extent_of(offset) else { return false };
        let extent = &mut self.extents[id as usize];
        debug_assert!(extent.held >= bytes, "extent {id} holds {} bytes, {bytes} are freed", extent.held);
        // A block freed twice would make room of another one's bytes: such an extent is not used again in this life.
        let Some(held) = extent.held.checked_sub(bytes) else { return false };
        extent.held = held;
        self.held -= bytes;
        if held > 0 || extent.state != State::Sealed {
            return false;
        }
        self.set_pending(id);
        self.extents[id as usize].state == State::Free
    }

    /// The live bytes of the next manifest, by extent: what is published from here on it does not reach.
    pub(super) fn save(&mut self) -> Vec<(ExtentId, u64)> {
        self.saved += 1;
        let mut live = Vec::new();
        for (id, extent) in self.extents.iter_mut().enumerate() {
            if let Ok(bytes @ 1..) = u64::try_from(extent.published) {
                extent.counted = self.saved;
                live.push((id as ExtentId, bytes));
            }
        }
        live
    }

    /// The manifest that was last saved for is durable. Returns how many extents became free.
    pub(super) fn note_durable(&mut self) -> usize {
        self.durable = self.saved;
        self.steady = std::mem::take(&mut self.opened);
        self.release()
    }

    /// False if all that a manifest reaches in the extent, now or later as long as this stays false, the manifest of that
    /// generation reached too: whoever copied the extent then has it. A block may be placed, and written, long before it is
    /// published, so that is what counts.
    pub(super) fn is_changed_since(&self, id: ExtentId, generation: u64) -> bool {
        self.extents.get(id as usize).is_none_or(|extent| extent.generation >= generation)
    }

    /// Holds back everything that the newest durable manifest reaches.
    /// The number of that manifest, for [`Allocator::is_changed_since`], too.
    pub(super) fn pin(&mut self) -> u64 {
        *self.pins.entry(self.durable).or_default() += 1;
        self.durable
    }

    pub(super) fn is_pinned(&self) -> bool {
        !self.pins.is_empty()
    }

    pub(super) fn unpin(&mut self, pin: u64) -> usize {
        if let Some(count) = self.pins.get_mut(&pin) {
            *count -= 1;
            if *count == 0 {
                self.pins.remove(&pin);
            }
        }
        self.release()
    }

    fn release(&mut self) -> usize {
        let horizon = self.horizon();
        let before = self.usable.len();
        let extents = &mut self.extents;
        self.pending.retain(|&id| {
            let extent = &mut extents[id as usize];
            let reusable = extent.counted < horizon;
            if reusable {
                *extent = Extent { backed: true, ..Extent::BARE };
                self.usable.insert(id);
            }
            !reusable
        });
        // What is being filled, too, if nothing is in it any more: the next block might come long after.
        for open in &mut self.open {
            if let Some(id) = open.take_if(|id| extents[*id as usize].is_emptied_before(horizon)) {
                extents[id as usize] = Extent { backed: true, ..Extent::BARE };
                self.usable.insert(id);
            }
        }
        self.usable.len() - before
    }

    /// Extents that are free once another manifest is durable: no pin holds them.
    pub(super) fn releasable_count(&self) -> u64 {
        let oldest_pin = self.pins.keys().next().copied().unwrap_or(u64::MAX);
        let pending = self.pending.iter().filter(|id| self.extents[**id as usize].counted < oldest_pin);
        let open = self.open.iter().flatten().filter(|id| self.extents[**id as usize].is_emptied_before(oldest_pin));
        (pending.count() + open.count()) as u64
    }

    /// Picks `count` extents to be allocated in the file: holes first, then the end.
    pub(super) fn start_growth(&mut self, count: u64) -> Vec<ExtentId> {
        let mut ids: Vec<ExtentId> = self.bare.iter().copied().take(count as usize).collect();
        for id in &ids {
            self.bare.remove(id);
            self.doubtful.remove(id);
        }
        while (ids.len() as u64) < count {
            ids.push(ExtentId::try_from(self.extents.len()).expect("2^32 extents are more than any file holds"));
            self.extents.push(Extent::BARE);
        }
        for &id in &ids {
            self.extents[id as usize].state = State::Moving;
        }
        ids
    }

    /// The file system has allocated (or refused) an extent of `start_growth`.
    pub(super) fn finish_growth(&mut self, id: ExtentId, backed: bool) {
        self.extents[id as usize] = Extent { backed, ..Extent::BARE };
        self.backed += u64::from(backed);
        if backed { &mut self.usable } else { &mut self.bare }.insert(id);
        if !backed {
            // Some of it may have been.
            self.doubtful.insert(id);
        }
    }

    /// Takes free extents beyond `spare` out of use, the last ones of the file first, and then such as may have to be given back since the file was
    /// opened; no more than `most`.
    pub(super) fn start_give_back(&mut self, spare: u64, most: usize) -> Vec<ExtentId> {
        let mut ids = Vec::new();
        while self.usable.len() as u64 > spare && ids.len() < most {
            ids.extend(self.usable.pop_last());
        }
        self.returning += ids.len() as u64;
        while ids.len() < most
            && let Some(id) = self.doubtful.pop_last()
        {
            self.bare.remove(&id);
            ids.push(id);
        }
        ids.iter().for_each(|id| self.extents[*id as usize].state = State::Moving);
        ids
    }

    /// Number of extents up to and with the last that is neither free without backing nor being given back.
    pub(super) fn used_extents(&self) -> u32 {
        let unused = |e: &&Extent| e.state == State::Moving || (e.state == State::Free && !e.backed);
        (self.extents.len() - self.extents.iter().rev().take_while(unused).count()) as u32
    }

    /// Forgets extents from `count` on: the file was cut there.
    pub(super) fn truncate(&mut self, count: u32) {
        self.extents.truncate(count as usize);
        self.bare.split_off(&count);
        self.doubtful.split_off(&count);
    }

    /// The file system has taken the space of an extent of `start_give_back`.
    pub(super) fn finish_give_back(&mut self, id: ExtentId) {
        let extent = std::mem::replace(&mut self.extents[id as usize], Extent::BARE);
        self.backed -= u64::from(extent.backed);
        self.returning -= u64::from(extent.backed);
        self.bare.insert(id);
    }

    pub(super) fn extent_count(&self) -> u32 {
        self.extents.len() as u32
    }

    /// Extents opened between the two newest checkpoints: what steady work takes.
    pub(super) fn steady_count(&self) -> u64 {
        self.steady
    }

    pub(super) fn usable_count(&self) -> u64 {
        self.usable.len() as u64
    }

    /// Extents the file system has allocated, the header's not counted.
    pub(super) fn backed_count(&self) -> u64 {
        self.backed
    }

    /// Those of them that are on their way back to the file system.
    pub(super) fn returning_count(&self) -> u64 {
        self.returning
    }

    pub(super) fn extents(&self) -> impl Iterator<Item = (ExtentId, &Extent)> {
        self.extents.iter().enumerate().skip(1).map(|(id, e)| (id as ExtentId, e))
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.held
    }

    pub(super) fn published_bytes(&self) -> u64 {
        self.published.max(0) as u64
    }

    fn is_sparse(&self, e: &Extent) -> bool {
        e.state == State::Sealed && e.held * 2 < self.extent_bytes
    }

    /// What cleaning is to move, and the dead bytes that it wins: extents less than half held that fewer than `passes`
    /// passes have been through. What all have been through is moved and leaves with the next checkpoints, or holds what
    /// cleaning does not move.
    pub(super) fn cleaning_debt(&self, passes: u16) -> (u64, u64) {
        let owed = self.extents().filter(|(_, e)| self.is_sparse(e) && e.passes < passes);
        owed.fold((0, 0), |(held, dead), (_, e)| (held + e.held, dead + self.extent_bytes - e.held))
    }

    /// A pass of cleaning has ended with these.
    pub(super) fn note_passed(&mut self, ids: &[ExtentId]) {
        for &id in ids {
            // The file may have been cut meanwhile.
            if let Some(extent) = self.extents.get_mut(id as usize) {
                extent.passes = extent.passes.saturating_add(1);
            }
        }
    }

    /// Sealed extents less than half held that `wanted` has: the emptiest, as many as hold `bytes` together. Ascending.
    pub(super) fn cleaning_candidates(&self, bytes: u64, wanted: impl Fn(ExtentId) -> bool) -> Vec<ExtentId> {
        let mut found: Vec<(u64, ExtentId)> =
            self.extents().filter(|(id, e)| self.is_sparse(e) && wanted(*id)).map(|(id, e)| (e.held, id)).collect();
        found.sort_unstable();
        let mut left = bytes;
        let fits = found.into_iter().take_while(|(held, _)| {
            let fits = *held <= left;
            left = left.saturating_sub(*held);
            fits
        });
        let mut ids: Vec<ExtentId> = fits.map(|(_, id)| id).collect();
        ids.sort_unstable();
        ids
    }
}
