//! Arenas: memory for what is small, grows, and goes all at once, as what a memtable has.
//!
//! An [`Arena`] takes frames of the page cache, 64 KiB each (less under a small budget), and gives them out as [`ArenaPart`]s, which never move: of what is free the
//! smallest piece that is large enough. What comes back is free, together with what is free beside it; its frame goes with the arena.
//! The first few parts, as long as all of them together are small, are frames of their own: of ten thousand memtables most have
//! a row or two.
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
use std::sync::atomic::{AtomicU64, Ordering};

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
    free: Mutex<Free>,
}

/// What nobody has, of frames that are shared.
#[derive(Default)]
struct Free {
    pieces: BTreeMap<Place, Cut<Keeper>>,
    /// How large each is, and where.
    sizes: BTreeSet<(usize, Place)>,
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
        Self { pool, budget, class, frame_bytes, charged: AtomicU64::new(0), free: Mutex::default() }
    }

    /// Bytes charged.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// What one more part of so many bytes costs under a budget, at most.
    #[must_use]
    pub fn bytes_for(budget: &Budget, bytes: usize) -> u64 {
        charged_bytes(if bytes <= frame_bytes(budget) { frame_bytes(budget) } else { FramePool::bytes_for(bytes) })
    }

    /// A part of at least so many bytes, with anything in it. It is charged from `room` if that has as much; else the limit may be passed.
    #[must_use]
    pub fn take(&self, bytes: usize, room: &mut Charge) -> ArenaPart {
        let frame_bytes = self.frame_bytes;
        if bytes > frame_bytes || self.bytes() + bytes as u64 <= frame_bytes as u64 / SMALL_SHARE {
            return ArenaPart(self.frame(FramePool::bytes_for(bytes), None, room));
        }
        let bytes = bytes.next_multiple_of(STEP_BYTES);
        let mut free = self.free.lock();
        if let Some(part) = free.take(bytes) {
            return ArenaPart(part);
        }
        free.frames += 1;
        let frame = self.frame(frame_bytes, Some(free.frames), room);
        free.put(frame);
        ArenaPart(free.take(bytes).expect("no more than a frame"))
    }

    /// Takes a part back.
    pub fn give_back(&self, part: ArenaPart) {
        let Keeper { number, charge } = part.0.keeper();
        if number.is_some() {
            self.free.lock().put(part.0);
        } else {
            self.charged.fetch_sub(charge.bytes(), Ordering::Relaxed);
        }
    }

    fn frame(&self, bytes: usize, number: Option<u64>, room: &mut Charge) -> Cut<Keeper> {
        let needed = charged_bytes(bytes);
        let mut charge = self.budget.charge(self.class, 0);
        if room.bytes() < needed {
            charge.grow(needed);
        } else {
            charge.merge(room.split(needed));
        }
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
        self.sizes.insert((piece.len(), place(&piece)));
        self.pieces.insert(place(&piece), piece);
    }

    fn remove(&mut self, at: Place) -> Option<Cut<Keeper>> {
        let piece = self.pieces.remove(&at)?;
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
        let third = arena.take(30_000, &mut room);
        assert_eq!((third.len(), arena.bytes() > 64 << 10), (30_016, true));
        let large = arena.take(100_000, &mut room);
        assert_eq!(large.len(), 102_400);
        let with_large = arena.bytes();
        assert!(with_large <= 2 * Arena::bytes_for(&budget, 1) + Arena::bytes_for(&budget, 100_000));
        arena.give_back(large);
        assert_eq!(with_large - arena.bytes(), Arena::bytes_for(&budget, 100_000));
        assert_eq!(budget.total(), arena.bytes());
        drop((second, third, arena));
        assert_eq!(budget.total(), 0);
    }

    /// Guard: what is charged comes from the room as long as it lasts.
    #[test]
    fn d10_frames_of_an_arena_are_charged() {
        let (budget, arena) = arena();
        let mut room = budget.charge(Class::Frames, Arena::bytes_for(&budget, 1) + 10);
        let hog = budget.charge(Class::Frames, budget.free());
        let first = arena.take(20_000, &mut room);
        assert_eq!((room.bytes(), budget.over_commits().count), (10, 0));
        let second = arena.take(60_000, &mut room);
        assert_eq!((room.bytes(), budget.over_commits().count), (10, 1));
        drop((first, second, arena, hog, room));
        assert_eq!(budget.total(), 0);
    }
}
