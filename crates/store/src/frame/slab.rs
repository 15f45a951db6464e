//! Slabs: frames that many small holders share, charged as a whole as long as one of them has something.
//!
//! What is held in small vectors that grow, and goes in another order than it came in, leaves gaps in an allocator's heaps: of 128
//! MiB of messages 60 MiB more were resident, and 110 MiB stayed when they were gone. So a [`Slabs`] cuts frames of the page cache
//! into granules, and gives out neighbouring ones as a [`SlabPart`], which is written front to back and never moves. Those whose parts
//! come and go together, as the leaves below one inner node, should share one: then its slabs fill and empty as a whole.
//!
//! Invariants: a slab is charged from before its frame is taken until the frame is back in its pool, so what parts take is never
//! resident uncharged; a slab is in `open` if and only if some of its granules are free and some are not.
//!
//! Why not charge parts: what is free between them is resident, and nobody else can use it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use vfs::sync::Mutex;

use super::FramePool;
use super::chunk::{GRANULES, Part, Shared};
use crate::{Budget, Charge, Class, Grant, allocated};

type Slab = Shared<Keeper>;

/// Whose a slab is.
struct Keeper {
    slabs: Arc<Slabs>,
    _charge: Charge,
}

/// Memory for what is small, and comes and goes together. One mutex, for those who take or let go of a part.
///
/// ```
/// use trefoil_store::{Budget, Cache, CacheOptions, Class};
///
/// let budget = Budget::new(1 << 20);
/// let slabs = Cache::new(budget.clone(), CacheOptions::default()).slabs(Class::Buffers, 16 << 10);
/// let mut part = slabs.take(100, 1000, &mut None);
/// part.append(5).expect("at least 100 bytes").copy_from_slice(b"apple");
/// assert!(&*part == b"apple" && part.capacity() >= 1000);
/// assert!(budget.used(Class::Buffers) >= 16 << 10, "the whole slab");
/// drop(part);
/// assert_eq!(budget.total(), 0);
/// ```
pub struct Slabs {
    pool: Arc<FramePool>,
    budget: Budget,
    class: Class,
    slab_bytes: usize,
    open: Mutex<Vec<Arc<Slab>>>,
}

impl fmt::Debug for Slabs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slabs").field("slab_bytes", &self.slab_bytes).finish_non_exhaustive()
    }
}

impl Slabs {
    pub(crate) fn new(pool: Arc<FramePool>, budget: Budget, class: Class, slab_bytes: usize) -> Arc<Self> {
        Arc::new(Self { pool, budget, class, slab_bytes, open: Mutex::default() })
    }

    /// Bytes that a part of a slab of so many bytes has at least, and by which it grows.
    #[must_use]
    pub const fn granule_bytes(slab_bytes: usize) -> usize {
        slab_bytes / GRANULES as usize
    }

    /// Bytes of a slab.
    #[must_use]
    pub fn slab_bytes(&self) -> usize {
        self.slab_bytes
    }

    /// What a slab of so many bytes is charged with: as if each were the only one.
    #[must_use]
    pub const fn charged_bytes(slab_bytes: usize) -> u64 {
        let of_all = 2 * size_of::<usize>() + size_of::<Slabs>();
        slab_bytes as u64 + allocated(2 * size_of::<usize>() + size_of::<Slab>()) + allocated(of_all)
    }

    /// A part of `wish` bytes, or fewer where those are free already, but not fewer than `least`. Granted memory is used as long as
    /// it lasts; then the limit may be passed.
    #[must_use]
    pub fn take(self: &Arc<Self>, least: usize, wish: usize, grant: &mut Option<Grant>) -> SlabPart {
        let granules = |bytes: usize| bytes.div_ceil(Self::granule_bytes(self.slab_bytes)).max(1) as u32;
        let (least_granules, wish) = (granules(least), granules(wish.max(least)));
        if least_granules > GRANULES {
            // Of a slab of its own, which is never open.
            let bytes = least.next_multiple_of(GRANULES as usize).next_power_of_two();
            return SlabPart::all_of(self.slab(bytes, grant));
        }
        let mut open = self.open.lock();
        let found = open.iter().enumerate().find_map(|(at, slab)| Some((at, slab.take(least_granules, wish)?)));
        if let Some((at, (part, free))) = found {
            if free == 0 {
                open.swap_remove(at);
            }
            return SlabPart(Some(part));
        }
        let slab = self.slab(self.slab_bytes, grant);
        let (part, free) = slab.take(least_granules, wish).expect("all of a new slab is free");
        if free > 0 {
            open.push(slab);
        }
        SlabPart(Some(part))
    }

    fn slab(self: &Arc<Self>, bytes: usize, grant: &mut Option<Grant>) -> Arc<Slab> {
        let needed = Self::charged_bytes(bytes);
        let charge = match grant.as_mut().and_then(|grant| grant.try_take(needed)) {
            Some(granted) => {
                let mut charge = self.budget.charge(self.class, 0);
                charge.merge(granted);
                charge
            }
            None => self.budget.charge(self.class, needed),
        };
        Arc::new(Shared::new(self.pool.written_frame(bytes), Keeper { slabs: self.clone(), _charge: charge }))
    }
}

/// A part of a slab: what is written to it. Dropped, it is free for others; the last one takes the slab with it.
pub struct SlabPart(Option<Part<Keeper>>);

impl SlabPart {
    fn all_of(slab: Arc<Slab>) -> Self {
        Self(slab.take(GRANULES, GRANULES).map(|(part, _)| part))
    }

    /// Bytes it has room for, written or not.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.part().capacity()
    }

    /// So many bytes behind those written, to be written now. `None` if there is no room for them.
    #[inline]
    pub fn append(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.0.as_mut().expect(THERE).append(bytes)
    }

    #[inline]
    fn part(&self) -> &Part<Keeper> {
        self.0.as_ref().expect(THERE)
    }
}

const THERE: &str = "there until it is dropped";

impl Deref for SlabPart {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.part()
    }
}

impl fmt::Debug for SlabPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlabPart({} of {} bytes)", self.len(), self.capacity())
    }
}

impl Drop for SlabPart {
    fn drop(&mut self) {
        let Some(part) = self.0.take() else { return };
        let (slab, granules) = (part.of().clone(), part.granules());
        let mut open = slab.keeper.slabs.open.lock();
        let free = part.end();
        let mut empty = None;
        if free == GRANULES {
            let at = open.iter().position(|other| Arc::ptr_eq(other, &slab));
            empty = at.map(|at| open.swap_remove(at));
        } else if free == granules {
            open.push(slab.clone());
        }
        // The frame is given back without the mutex.
        drop(open);
        drop((empty, slab));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cache, CacheOptions};
    use vfs::random::Rng;

    const SLAB: usize = 4096;
    const KEEP: u64 = 64 << 10;

    fn pool_and_budget() -> (Arc<FramePool>, Budget) {
        (FramePool::new(4 << 20, KEEP), Budget::new(4 << 20))
    }

    fn slabs((pool, budget): &(Arc<FramePool>, Budget)) -> Arc<Slabs> {
        Slabs::new(pool.clone(), budget.clone(), Class::Buffers, SLAB)
    }

    /// What is mapped is charged, but for what the pool keeps spare: while parts come, while they go in any order, and when they are
    /// gone. And nobody writes to another's.
    #[test]
    fn d10_slabs_that_are_mapped_are_charged() {
        let from = pool_and_budget();
        let owners: Vec<_> = (0..5).map(|_| slabs(&from)).collect();
        let (pool, budget) = &from;
        let mut rng = Rng::new(1);
        let mut parts: Vec<(SlabPart, u8)> = Vec::new();
        for round in 0..6000_u32 {
            let grows = round % 2000 < 1200;
            if rng.below(8) < if grows { 6 } else { 2 } {
                let least = if rng.chance(0.01) { 3 * SLAB } else { rng.index(SLAB / 6) };
                let mut part = owners[rng.index(5)].take(least, rng.index(SLAB / 4), &mut None);
                assert!(part.capacity() >= least);
                part.append(least).expect("as many as were asked for").fill(round as u8);
                parts.push((part, round as u8));
            } else if !parts.is_empty() {
                drop(parts.swap_remove(rng.index(parts.len())));
            }
            let in_use = pool.used_bytes();
            assert!(in_use <= budget.used(Class::Buffers), "round {round}: {in_use} of {}", budget.total());
            assert!(parts.iter().all(|(part, with)| part.iter().all(|byte| byte == with)));
        }
        let charged = budget.total();
        assert!(charged > 100 * SLAB as u64, "{charged}");
        drop(parts);
        assert_eq!((budget.total(), pool.used_bytes()), (0, 0));
        assert!(pool.mapped_bytes() <= KEEP * 2, "{} bytes, for two sizes", pool.mapped_bytes());
    }

    /// Parts that lie together share slabs, which are filled before there is another one; what is free is used again.
    #[test]
    fn slabs_are_filled_before_there_are_more() {
        let from = pool_and_budget();
        let (slabs, budget) = (slabs(&from), &from.1);
        let one = Slabs::charged_bytes(SLAB);
        let mut parts: Vec<_> = (0..2 * GRANULES).map(|_| slabs.take(100, 100, &mut None)).collect();
        assert!(parts.iter().all(|part| part.capacity() == SLAB / GRANULES as usize));
        assert_eq!(budget.total(), 2 * one);
        parts.drain(10..20);
        let again: Vec<_> = (0..5).map(|_| slabs.take(10, 2 * SLAB / GRANULES as usize, &mut None)).collect();
        assert_eq!(
            (budget.total(), again.iter().map(|part| part.capacity()).sum::<usize>()),
            (2 * one, 10 * SLAB / 32)
        );
        drop((again, parts.drain(..GRANULES as usize - 10)));
        assert_eq!(budget.total(), one, "the first slab is empty");
        drop(parts);
        assert_eq!(budget.total(), 0);
    }

    #[test]
    fn a1_grants_are_used_first_and_the_limit_stops_nobody() {
        let budget = Budget::new(256 << 10);
        let cache = Cache::new(budget.clone(), CacheOptions::default());
        let slabs = cache.slabs(Class::Buffers, SLAB);
        let one = Slabs::charged_bytes(SLAB);
        let mut grant = cache.try_grant(one + 100);
        let hog = budget.charge(Class::Frames, budget.free());
        let first = slabs.take(SLAB, SLAB, &mut grant);
        assert_eq!((grant.as_ref().map(Grant::bytes), budget.used(Class::Buffers)), (Some(100), one));
        assert_eq!(budget.over_commits().count, 0);
        let second = slabs.take(SLAB, SLAB, &mut grant);
        assert_eq!((grant.as_ref().map(Grant::bytes), budget.used(Class::Buffers)), (Some(100), 2 * one));
        assert_eq!(budget.over_commits().worst_bytes, one);
        drop((first, second, grant, hog));
        assert_eq!(budget.total(), 0);
    }

    /// Parts are taken by one thread and dropped by another.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "threads of a test")]
    fn threads_share_slabs() {
        let from = pool_and_budget();
        let slabs = slabs(&from);
        std::thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel::<(SlabPart, u8)>();
            scope.spawn(move || {
                for (part, with) in receiver {
                    assert!(part.iter().all(|byte| *byte == with));
                }
            });
            for thread in 0..3 {
                let (sender, slabs) = (sender.clone(), slabs.clone());
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    let mut own = Vec::new();
                    for n in 0..5000_u32 {
                        let mut part = slabs.take(100, rng.index(600), &mut None);
                        part.append(100).expect("as many as were asked for").fill(n as u8);
                        match rng.below(3) {
                            0 => drop(own.pop()),
                            1 => sender.send((part, n as u8)).expect("the other end lives"),
                            _ => own.push((part, n as u8)),
                        }
                    }
                    assert!(own.iter().all(|(part, with)| part.iter().all(|byte| byte == with)));
                });
            }
        });
        assert_eq!(from.1.total(), 0);
    }
}
