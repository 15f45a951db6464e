//! Arenas: memory for what is small, grows, and goes all at once, as what a memtable has.
//!
//! An [`Arena`] takes frames of the page cache, and gives them out as [`ArenaPart`]s, which never move: of what is free the
//! smallest piece that is large enough. What comes back is free, together with what is free beside it; its frame goes with the arena.
//! A frame is as large as all before it together, up to 64 KiB (less under a small budget): of ten thousand memtables most have a row or two. What is
//! larger than a third of that is a mapping of its own.
//!
//! Whoever must not pass the budget asks [`Arena::wants_frame`] first, and brings the charge of the next frame when it is near: one of all who
//! ask has to.
//!
//! Invariants: a frame is charged from before it is taken until it is back in its pool; `free` and `sizes` have the same pieces, of which no two are neighbours.
//!
//! Why not [`Slabs`](super::slab::Slabs): each of them that has a free granule is looked at for the next part, of a memtable that would be thousands.
//! Why neighbours are joined: leaves that fill at the same rate grow at the same time, and none would want what the others leave: two thirds of
//! a memtable would be free.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use vfs::sync::Mutex;

use super::FramePool;
use super::chunk::Cut;
use crate::{Budget, Cache, Charge, Class, allocated};

/// Bytes of a frame that is given out in parts: one in so many of the budget, between these.
const FRAME_SHARE: u64 = 256;
const FRAME_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=64 << 10;
/// Bytes of a part, or a multiple of them: parts share no cache line.
const STEP_BYTES: usize = 64;
/// Up to one in so many bytes of a frame in all a part is a frame of its own.
const SMALL_SHARE: u64 = 4;
/// A part that is larger than one in so many bytes of a frame is a mapping of its own: what is left of a frame could be none like it.
const ALONE_SHARE: usize = 3;

/// Whose a frame is.
struct Keeper {
    /// Of a frame that is shared: which of the arena's it is.
    number: Option<u64>,
    charge: Charge,
}

/// Where a piece begins: number of its frame, offset in it. Not its address: the same requests shall be served in the same way each time.
type Place = (u64, usize);

/// Memory that goes all at once. One mutex, for those who take a part or give one back.
///
/// ```
/// use trefoil_store::{Arena, Budget, Cache, CacheOptions, Class};
///
/// let budget = Budget::new(1 << 20);
/// let arena = Arena::new(&Cache::new(budget.clone(), CacheOptions::default()), Class::Buffers);
/// let mut part = arena.take(5000, &mut budget.charge(Class::Buffers, 0));
/// part[..5].copy_from_slice(b"apple");
/// assert!(part.len() >= 5000 && budget.used(Class::Buffers) == arena.bytes());
/// drop((part, arena));
/// assert_eq!(budget.total(), 0);
/// ```
pub struct Arena {
    pool: Arc<FramePool>,
    budget: Budget,
    class: Class,
    frame_bytes: usize,
    /// What all its frames are charged with. Relaxed: nothing hangs on it but sizes.
    charged: AtomicU64,
    /// Bytes of pieces in `free`, and of the largest. Relaxed, likewise.
    free_bytes: AtomicU64,
    largest: AtomicUsize,
    free: Mutex<Free>,
    /// Charged for the next frame.
    next: Mutex<Option<Charge>>,
}

/// What nobody has, of frames that are shared.
#[derive(Default)]
struct Free {
    pieces: BTreeMap<Place, Cut<Keeper>>,
    /// How large each is, and where.
    sizes: BTreeSet<(usize, Place)>,
    /// Bytes of all.
    bytes: u64,
    /// Frames so far.
    frames: u64,
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Arena {
    /// An empty one; its frames are charged to `class`.
    #[must_use]
    pub fn new(cache: &Cache, class: Class) -> Self {
        let (pool, budget) = (cache.frames().clone(), cache.budget().clone());
        let frame_bytes = frame_bytes(&budget);
        let (charged, free_bytes, largest) = Default::default();
        let (free, next) = (Mutex::default(), Mutex::default());
        Self { pool, budget, class, frame_bytes, charged, free_bytes, largest, free, next }
    }

    /// Bytes charged.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Bytes that parts have.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.bytes().saturating_sub(self.free_bytes.load(Ordering::Relaxed))
    }

    /// What the next frame will be charged with, if that is near and nobody has brought it.
    #[must_use]
    pub fn wants_frame(&self) -> Option<u64> {
        // No piece is large enough for any part that may come.
        let is_near = self.bytes() > 0 && self.largest.load(Ordering::Relaxed) < self.frame_bytes / ALONE_SHARE;
        (is_near && self.next.lock().is_none()).then(|| charged_bytes(self.next_bytes(0)))
    }

    /// Brings the charge of the next frame.
    pub fn bring(&self, charge: Charge) {
        self.next.lock().get_or_insert(charge);
    }

    /// Nobody will ask for more: gives back what was brought.
    pub fn close(&self) {
        drop(self.next.lock().take());
    }

    /// Bytes of the next frame, for a part of so many.
    fn next_bytes(&self, bytes: usize) -> usize {
        let so_far = usize::try_from(self.bytes()).unwrap_or(usize::MAX).min(self.frame_bytes);
        so_far.next_power_of_two().min(self.frame_bytes).max(bytes.next_power_of_two())
    }

    /// A part of at least so many bytes, with anything in it. It is charged from what was brought and from `room`; beyond that the limit may be passed.
    #[must_use]
    pub fn take(&self, bytes: usize, room: &mut Charge) -> ArenaPart {
        if bytes > self.frame_bytes / ALONE_SHARE {
            return ArenaPart(self.frame(FramePool::bytes_alone(bytes), None, room));
        }
        if self.bytes() + bytes as u64 <= self.frame_bytes as u64 / SMALL_SHARE {
            return ArenaPart(self.frame(FramePool::bytes_for(bytes), None, room));
        }
        let bytes = bytes.next_multiple_of(STEP_BYTES);
        let mut free = self.free.lock();
        loop {
            if let Some(part) = free.take(bytes) {
                self.note_free(&free);
                return ArenaPart(part);
            }
            free.frames += 1;
            let number = free.frames;
            // Mapped by the system, perhaps: others go on meanwhile.
            drop(free);
            let frame = self.frame(self.next_bytes(bytes), Some(number), room);
            free = self.free.lock();
            free.put(frame);
        }
    }

    /// Takes a part back.
    pub fn give_back(&self, part: ArenaPart) {
        let Keeper { number, charge } = part.0.keeper();
        if number.is_some() {
            let mut free = self.free.lock();
            free.put(part.0);
            self.note_free(&free);
        } else {
            self.charged.fetch_sub(charge.bytes(), Ordering::Relaxed);
        }
    }

    fn note_free(&self, free: &Free) {
        self.free_bytes.store(free.bytes, Ordering::Relaxed);
        self.largest.store(free.sizes.last().map_or(0, |(bytes, _)| *bytes), Ordering::Relaxed);
    }

    fn frame(&self, bytes: usize, number: Option<u64>, room: &mut Charge) -> Cut<Keeper> {
        let needed = charged_bytes(bytes);
        let mut charge = self.budget.charge(self.class, 0);
        if let Some(brought) = self.next.lock().take() {
            charge.merge(brought);
        }
        charge.merge(room.split(needed.saturating_sub(charge.bytes()).min(room.bytes())));
        charge.set(needed);
        self.charged.fetch_add(needed, Ordering::Relaxed);
        Cut::new(self.pool.written_frame(bytes), Keeper { number, charge })
    }
}

fn place(piece: &Cut<Keeper>) -> Place {
    (piece.keeper().number.unwrap_or(0), piece.offset())
}

impl Free {
    fn put(&mut self, mut piece: Cut<Keeper>) {
        let (number, offset) = place(&piece);
        if let Some(next) = self.remove((number, offset + piece.len())) {
            piece = joined(piece, next);
        }
        let before = self.pieces.range(..(number, offset)).next_back().map(|(at, before)| (*at, before.len()));
        let before = before.filter(|((of, at), len)| *of == number && at + len == offset);
        if let Some(before) = before.and_then(|(at, _)| self.remove(at)) {
            piece = joined(before, piece);
        }
        self.insert(piece);
    }

    fn insert(&mut self, piece: Cut<Keeper>) {
        self.bytes += piece.len() as u64;
        self.sizes.insert((piece.len(), place(&piece)));
        self.pieces.insert(place(&piece), piece);
    }

    fn remove(&mut self, at: Place) -> Option<Cut<Keeper>> {
        let piece = self.pieces.remove(&at)?;
        self.bytes -= piece.len() as u64;
        self.sizes.remove(&(piece.len(), at));
        Some(piece)
    }

    fn take(&mut self, bytes: usize) -> Option<Cut<Keeper>> {
        let (_, at) = *self.sizes.range((bytes, (0, 0))..).next()?;
        let mut piece = self.remove(at)?;
        let front = piece.split_front(bytes);
        if !piece.is_empty() {
            self.insert(piece);
        }
        front
    }
}

fn joined(mut piece: Cut<Keeper>, next: Cut<Keeper>) -> Cut<Keeper> {
    let apart = piece.join(next);
    debug_assert!(apart.is_none(), "neighbours of one frame");
    piece
}

fn frame_bytes(budget: &Budget) -> usize {
    let share = (budget.limit() / FRAME_SHARE).max(1).next_power_of_two();
    usize::try_from(share).unwrap_or(usize::MAX).clamp(*FRAME_BYTES.start(), *FRAME_BYTES.end())
}

/// What a frame of so many bytes is charged with.
const fn charged_bytes(bytes: usize) -> u64 {
    bytes as u64 + allocated(2 * size_of::<usize>() + size_of::<super::Frame>() + size_of::<Keeper>())
}

/// A part of an arena: bytes that are nobody else's.
pub struct ArenaPart(Cut<Keeper>);

impl Deref for ArenaPart {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for ArenaPart {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl fmt::Debug for ArenaPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArenaPart({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cache, CacheOptions};
    use vfs::random::Rng;

    fn arena() -> (Budget, Arena) {
        let budget = Budget::new(64 << 20);
        let arena = Arena::new(&Cache::new(budget.clone(), CacheOptions::default()), Class::Buffers);
        (budget, arena)
    }

    /// Parts that grow, as leaves of a memtable do: nobody writes to another's, what is charged is what there is, and not much of it is
    /// nobody's.
    #[test]
    fn d10_parts_grow_apart_from_each_other_and_leave_little_unused() {
        let (budget, arena) = arena();
        let mut rng = Rng::new(1);
        let mut parts: Vec<(ArenaPart, usize, u8)> = Vec::new();
        let mut room = budget.charge(Class::Buffers, 0);
        for round in 0..20_000_u32 {
            let with = round as u8;
            let at = rng.index(parts.len() + 1);
            match parts.get_mut(at) {
                Some((part, used, old)) if rng.chance(0.9) => {
                    *used += 100;
                    if *used > 9000 {
                        *used = 4500;
                    }
                    if *used > part.len() {
                        let mut grown = arena.take(*used + *used / 4, &mut room);
                        assert!(grown.len() >= *used && part.iter().all(|byte| byte == old));
                        grown.fill(with);
                        *old = with;
                        arena.give_back(std::mem::replace(part, grown));
                    }
                }
                _ => {
                    let mut part = arena.take(4500, &mut room);
                    part.fill(with);
                    parts.push((part, 4500, with));
                }
            }
            assert_eq!(budget.used(Class::Buffers), arena.bytes());
        }
        assert!(parts.iter().all(|(part, _, with)| part.iter().all(|byte| byte == with)));
        let held_bytes: usize = parts.iter().map(|(part, ..)| part.len()).sum();
        assert!((held_bytes as u64..=held_bytes as u64 + arena.bytes() / 100).contains(&arena.used_bytes()));
        let (held, used) = parts.iter().fold((0, 0), |sum, (part, used, _)| (sum.0 + part.len(), sum.1 + used));
        let charged = arena.bytes() as usize;
        assert!(held <= charged && used > charged / 3 * 2, "{used} used, {held} held, {charged} charged");
        drop(parts);
        drop(arena);
        assert_eq!(budget.total(), 0);
    }

    /// A simulation that is run again does the same. Guard: pieces are in the order of their frames, not of their addresses.
    #[test]
    fn the_same_requests_are_served_in_the_same_way() {
        let served = |above: bool| {
            let (budget, arena) = arena();
            // Frames of the pool come in the order in which they were given back.
            let mut frames: Vec<_> = (0..40).map(|_| arena.pool.frame(arena.frame_bytes)).collect();
            while !frames.is_empty() {
                drop(frames.remove(if above { frames.len() - 1 } else { 0 }));
            }
            let mut rng = Rng::new(2);
            let mut parts: Vec<ArenaPart> = Vec::new();
            let mut served = Vec::new();
            for _ in 0..3000 {
                if rng.chance(0.6) {
                    parts.push(arena.take(17_000 + rng.index(9000), &mut budget.charge(Class::Buffers, 0)));
                } else if !parts.is_empty() {
                    arena.give_back(parts.swap_remove(rng.index(parts.len())));
                }
                served.push((arena.bytes(), parts.last().map(|part| place(&part.0))));
            }
            served
        };
        assert!(served(false) == served(true));
    }

    #[test]
    fn a_small_arena_takes_little_and_a_large_part_has_a_frame_of_its_own() {
        let (budget, arena) = arena();
        let mut room = budget.charge(Class::Buffers, 0);
        let first = arena.take(100, &mut room);
        assert!(first.len() >= 100 && arena.bytes() < 1024, "{}", arena.bytes());
        let second = arena.take(3000, &mut room);
        arena.give_back(first);
        assert!((4096..4500).contains(&arena.bytes()), "the first is gone: {}", arena.bytes());
        let third = arena.take(14_000, &mut room);
        assert!((14_000..14_100).contains(&third.len()) && arena.bytes() < 21 << 10, "{}", arena.bytes());
        let before = arena.bytes();
        for bytes in [23_000, 33_000, 100_000] {
            let large = arena.take(bytes, &mut room);
            assert!((bytes..bytes + 4096).contains(&large.len()));
            assert!((arena.bytes() - before).abs_diff(large.len() as u64) < 200);
            arena.give_back(large);
            assert_eq!(arena.bytes(), before);
        }
        let parts: Vec<_> = (0..20).map(|_| arena.take(15_000, &mut room)).collect();
        assert!(arena.bytes() < 20 * 15_000 + (80 << 10), "no more than a frame is free: {}", arena.bytes());
        assert_eq!(budget.total(), arena.bytes());
        drop((second, third, parts, arena));
        assert_eq!(budget.total(), 0);
    }

    /// Guard: what is charged comes from what was brought and from the room, as long as these last.
    #[test]
    fn d10_frames_of_an_arena_are_charged() {
        let (budget, arena) = arena();
        let mut parts = Vec::new();
        assert_eq!(arena.wants_frame(), None, "nothing was taken yet");
        let mut brought = 0;
        for round in 0..200 {
            if let Some(bytes) = arena.wants_frame() {
                arena.bring(budget.charge(Class::Frames, bytes));
                assert_eq!((arena.wants_frame(), budget.used(Class::Frames)), (None, bytes));
                brought += 1;
            }
            // All else is somebody's.
            let hog = budget.charge(Class::Locks, budget.free() - 5000);
            let mut room = budget.charge(Class::Frames, 5000);
            parts.push(arena.take(5000, &mut room));
            drop(hog);
            assert!(budget.over_commits().count <= 1, "{round}: only the first frame comes unasked for");
        }
        assert!((16..24).contains(&brought), "{brought} frames for a million bytes");
        arena.bring(budget.charge(Class::Frames, 9));
        arena.close();
        assert_eq!((budget.used(Class::Buffers), budget.total()), (arena.bytes(), arena.bytes()));
        drop((parts, arena));
        assert_eq!(budget.total(), 0);
    }
}
