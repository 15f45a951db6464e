//! Frames: the buffers under pages in memory, cut from chunks that are no allocator's business.
//!
//! A page is loaded by one thread and evicted by another. General allocators keep what was freed for the thread that
//! had allocated it, so that memory which the budget counts as free stays resident: 1 GiB for a budget of 512 MiB was
//! measured with glibc's after the work moved from a client to the background. So frames come from chunks of two mebibytes
//! (fewer bytes under a small budget), mapped by the system one by one. A frame that is given back is spare for whoever
//! comes next, the oldest chunk's first: since every page is evicted some day, the youngest chunks empty, and go back as
//! a whole.
//!
//! What is spare is not charged: at most twice as much as the cache keeps ready. Beyond that the memory of a frame of the youngest chunk is
//! given back to the system where a frame is whole pages of it: the frame is bare then, an address without memory, and is not taken as long as
//! one has some. To give memory back and be given it again costs more than to fill the frame. Smaller frames keep theirs until
//! nobody uses one of their chunk.
//!
//! Invariants: the frames of a chunk that nobody uses are in `spare` or `bare` under its number, if there are any, but for one that a thread is
//! about to make bare; of each size `spare_bytes` is the sum of `spare`, and the pool has two sums, of the sizes whose frames can become bare and
//! of the smaller ones; only what is in `spare` counts for whether one more keeps its memory.

pub mod arena;
#[allow(unsafe_code, reason = "cuts memory of the system into pieces, behind a safe face")]
mod chunk;
pub mod slab;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use vfs::sync::Mutex;

use self::chunk::Piece;

/// Sizes kept: powers of two from 512 B, the smallest node, to 64 KiB, the largest.
const SIZES: usize = 8;
const SMALLEST_SHIFT: u32 = 9;
const LEAST_BYTES: usize = 1 << SMALLEST_SHIFT;
/// A larger frame is a mapping of its own, of so many bytes or a multiple.
const OWN_STEP_BYTES: usize = 4 << 10;
const CHUNK_BYTES_MAX: u64 = 2 << 20;
const SMALL_CHUNK_BYTES_MAX: u64 = 128 << 10;

/// Frames that nobody uses, for the next page. One mutex for each size: a frame changes hands when a page is read from
/// disk or split, which takes a hundred times as long as what is done under it.
#[derive(Debug)]
pub struct FramePool {
    sizes: [Mutex<Chunks>; SIZES],
    /// Bytes that are spare, of all sizes whose frames cannot become bare, and of all others. Changed under a size's mutex. Relaxed: a
    /// threshold.
    spare_bytes: [CachePadded<AtomicU64>; 2],
    chunk_bytes: u64,
    keep_bytes: u64,
}

/// The chunks of one frame size.
#[derive(Debug, Default)]
struct Chunks {
    /// Frames with memory, by number of the chunk, oldest first.
    spare: BTreeMap<u64, Vec<Piece>>,
    spare_bytes: u64,
    /// Frames without.
    bare: BTreeMap<u64, Vec<Piece>>,
    /// Chunks there are, spare or not.
    count: u64,
    next: u64,
}

impl FramePool {
    /// A pool for pages under `budget_bytes` in which frames of at most `keep_bytes` keep their memory while nobody uses them, and
    /// of each size an eighth of that.
    #[must_use]
    pub fn new(budget_bytes: u64, keep_bytes: u64) -> Arc<Self> {
        let chunk_bytes = (budget_bytes / 64).min(CHUNK_BYTES_MAX);
        Arc::new(Self { sizes: Default::default(), spare_bytes: Default::default(), chunk_bytes, keep_bytes })
    }

    /// A frame of zeroes, which comes back to this pool when it is dropped.
    #[must_use]
    pub fn frame(self: &Arc<Self>, bytes: usize) -> Frame {
        let mut frame = self.written_frame(bytes);
        frame.fill(0);
        frame
    }

    /// A frame that begins with these bytes; what it had before may stand behind them.
    #[must_use]
    pub fn frame_of(self: &Arc<Self>, bytes: &[u8]) -> Frame {
        let mut frame = self.written_frame(Self::bytes_for(bytes.len()));
        frame[..bytes.len()].copy_from_slice(bytes);
        frame
    }

    /// Bytes of a frame that has so many: of one that is kept, or whole pages of the system.
    #[must_use]
    pub const fn bytes_for(bytes: usize) -> usize {
        let kept = if bytes < LEAST_BYTES { LEAST_BYTES } else { bytes.next_power_of_two() };
        if kept <= LEAST_BYTES << (SIZES - 1) { kept } else { Self::bytes_alone(bytes) }
    }

    /// The same of a frame that is a mapping of its own.
    const fn bytes_alone(bytes: usize) -> usize {
        bytes.next_multiple_of(OWN_STEP_BYTES)
    }

    /// A frame with what was written to it before.
    fn written_frame(self: &Arc<Self>, bytes: usize) -> Frame {
        let Some(size) = self.size(bytes) else { return Frame::from(bytes) };
        let (chunk, buffer) = self.change(size, bytes, |chunks| chunks.take(bytes, self.frames_of(bytes)));
        Frame { buffer, chunk, pool: Some(self.clone()) }
    }

    /// Changes the chunks of a size, and with them the sum that it is in.
    fn change<R>(&self, size: &Mutex<Chunks>, bytes: usize, change: impl FnOnce(&mut Chunks) -> R) -> R {
        let mut chunks = size.lock();
        let before = chunks.spare_bytes;
        let result = change(&mut chunks);
        // Wraps around for less, as the sum does.
        self.spare_of_all(bytes).fetch_add(chunks.spare_bytes.wrapping_sub(before), Ordering::Relaxed);
        result
    }

    fn spare_of_all(&self, bytes: usize) -> &AtomicU64 {
        &self.spare_bytes[usize::from(chunk::can_be_released(bytes))]
    }

    /// Frames of so many bytes in a chunk.
    fn frames_of(&self, bytes: usize) -> usize {
        // All frames of a chunk have to be unused for small ones to give their memory back.
        let most = if chunk::can_be_released(bytes) { CHUNK_BYTES_MAX } else { SMALL_CHUNK_BYTES_MAX };
        (self.chunk_bytes.min(most) as usize / bytes).max(1)
    }

    /// Bytes of the frames that nobody uses and that have memory.
    #[cfg(test)]
    fn spare_bytes(&self) -> u64 {
        let sizes: Vec<u64> = self.sizes.iter().map(|size| size.lock().spare_bytes).collect();
        for kind in [false, true] {
            let of_kind = (0..SIZES).filter(|n| chunk::can_be_released(LEAST_BYTES << n) == kind).map(|n| sizes[n]);
            let sum = self.spare_bytes[usize::from(kind)].load(Ordering::Relaxed);
            assert_eq!(sum, of_kind.sum::<u64>(), "the sum of those of {sizes:?}");
        }
        sizes.iter().sum()
    }

    /// Bytes of all chunks.
    #[cfg(test)]
    fn mapped_bytes(&self) -> u64 {
        let of = |n: usize| self.sizes[n].lock().count * (self.frames_of(LEAST_BYTES << n) * (LEAST_BYTES << n)) as u64;
        (0..SIZES).map(of).sum()
    }

    /// Bytes of the frames that nobody uses and that have no memory.
    #[cfg(test)]
    fn bare_bytes(&self) -> u64 {
        let of = |n: usize| self.sizes[n].lock().bare.values().map(Vec::len).sum::<usize>() << n;
        (0..SIZES).map(|n| (LEAST_BYTES * of(n)) as u64).sum()
    }

    /// Bytes of the frames that somebody uses.
    #[cfg(test)]
    fn used_bytes(&self) -> u64 {
        self.mapped_bytes() - self.spare_bytes() - self.bare_bytes()
    }

    fn give_back(&self, chunk: u64, buffer: Piece) {
        let Some(size) = self.size(buffer.len()) else { return };
        let (bytes, frames) = (buffer.len(), self.frames_of(buffer.len()));
        let can_be_bare = chunk::can_be_released(bytes);
        let surplus = self.change(size, bytes, |chunks| {
            let others = self.spare_of_all(bytes).load(Ordering::Relaxed).saturating_sub(chunks.spare_bytes);
            // Of each size some stay, also where others have more; of small ones half as much in all.
            let is_kept = |of_size: u64| match can_be_bare {
                true => of_size <= self.keep_bytes / SIZES as u64 || others + of_size <= self.keep_bytes,
                false => others + of_size <= self.keep_bytes / 2,
            };
            chunks.give_back(chunk, buffer, frames, can_be_bare, is_kept)
        });
        // Without the mutex: the system takes its time.
        if let Surplus::Frame(chunk, mut buffer) = surplus {
            buffer.release();
            drop(self.change(size, bytes, |chunks| chunks.give_back_bare(chunk, buffer, frames)));
        }
    }

    fn size(&self, bytes: usize) -> Option<&Mutex<Chunks>> {
        let size = bytes.is_power_of_two().then(|| bytes.ilog2())?.checked_sub(SMALLEST_SHIFT)?;
        self.sizes.get(size as usize)
    }
}

impl Chunks {
    /// A frame with the number of its chunk, of a new one if there is none.
    fn take(&mut self, bytes: usize, frames: usize) -> (u64, Piece) {
        if self.spare.is_empty() && self.bare.is_empty() {
            let cut = chunk::cut(bytes, frames);
            if chunk::is_on_huge_pages(bytes * frames) {
                // All of it has memory once a byte is written.
                self.spare.insert(self.next, cut);
                self.spare_bytes += (bytes * frames) as u64;
            } else {
                self.bare.insert(self.next, cut);
            }
            self.next += 1;
            self.count += 1;
        }
        let unused = if self.spare.is_empty() {
            &mut self.bare
        } else {
            self.spare_bytes -= bytes as u64;
            &mut self.spare
        };
        let mut oldest = unused.first_entry().expect("a chunk was added if there was none");
        let (number, buffer) = (*oldest.key(), oldest.get_mut().pop().expect("chunks without any are not listed"));
        if oldest.get().is_empty() {
            oldest.remove();
        }
        (number, buffer)
    }

    /// Returns what is more than is kept of so many spare bytes.
    fn give_back(
        &mut self,
        number: u64,
        buffer: Piece,
        frames: usize,
        can_be_bare: bool,
        is_kept: impl Fn(u64) -> bool,
    ) -> Surplus {
        let bytes = buffer.len() as u64;
        self.spare_bytes += bytes;
        self.spare.entry(number).or_default().push(buffer);
        if is_kept(self.spare_bytes) {
            return Surplus::None;
        }
        let youngest = self.spare.last_key_value().map_or(number, |(youngest, _)| *youngest);
        for unused in [number, youngest] {
            let [spare, bare] = [&self.spare, &self.bare].map(|chunks| chunks.get(&unused).map_or(0, Vec::len));
            // Where frames can go one by one, a chunk goes only if what others have is as much as is kept.
            let beside =
                if can_be_bare { self.spare_bytes - bytes * spare.saturating_sub(1) as u64 } else { self.spare_bytes };
            if spare + bare == frames && !is_kept(beside) {
                self.spare_bytes -= bytes * spare as u64;
                self.count -= 1;
                return Surplus::Chunk { _gone: [self.spare.remove(&unused), self.bare.remove(&unused)] };
            }
        }
        if can_be_bare { self.take_youngest(youngest, bytes) } else { Surplus::None }
    }

    fn take_youngest(&mut self, youngest: u64, bytes: u64) -> Surplus {
        let Entry::Occupied(mut spare) = self.spare.entry(youngest) else { return Surplus::None };
        let Some(buffer) = spare.get_mut().pop() else { return Surplus::None };
        if spare.get().is_empty() {
            spare.remove();
        }
        self.spare_bytes -= bytes;
        Surplus::Frame(youngest, buffer)
    }

    /// Returns the frames of the chunk if it is to go, all of them being bare.
    fn give_back_bare(&mut self, number: u64, buffer: Piece, frames: usize) -> Option<Vec<Piece>> {
        let bare = self.bare.entry(number).or_default();
        bare.push(buffer);
        if bare.len() < frames {
            return None;
        }
        self.count -= 1;
        self.bare.remove(&number)
    }
}

/// What is given back to the system.
enum Surplus {
    None,
    /// The frames of a chunk, spare and bare.
    Chunk {
        _gone: [Option<Vec<Piece>>; 2],
    },
    /// A frame that is to become bare, and the number of its chunk.
    Frame(u64, Piece),
}

/// The buffer of one page.
#[derive(Debug)]
pub struct Frame {
    buffer: Piece,
    /// Number of its chunk in the pool.
    chunk: u64,
    pool: Option<Arc<FramePool>>,
}

impl Frame {
    /// Another frame of zeroes, of the same size and pool.
    #[must_use]
    pub fn another(&self) -> Self {
        match &self.pool {
            Some(pool) => pool.frame(self.buffer.len()),
            None => Self::from(self.buffer.len()),
        }
    }
}

/// A frame of so many zeroes that belongs to no pool.
impl From<usize> for Frame {
    fn from(bytes: usize) -> Self {
        Self { buffer: chunk::cut(bytes, 1).pop().expect("one piece"), chunk: 0, pool: None }
    }
}

impl Clone for Frame {
    fn clone(&self) -> Self {
        let mut copy = self.another();
        copy.copy_from_slice(self);
        copy
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.give_back(self.chunk, std::mem::take(&mut self.buffer));
        }
    }
}

impl Deref for Frame {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl DerefMut for Frame {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(pool: &FramePool) -> u64 {
        pool.sizes.iter().map(|size| size.lock().count).sum()
    }

    #[test]
    fn frames_are_used_again_as_zeroes_the_oldest_chunk_first() {
        let pool = FramePool::new(64 * 4 * 4096, 4 * 4096);
        let mut frames: Vec<Frame> = (0..8).map(|_| pool.frame(4096)).collect();
        frames.iter_mut().for_each(|frame| frame.fill(7));
        assert_eq!((chunks(&pool), pool.spare_bytes()), (2, 0), "four frames a chunk");
        let (late, early) = (frames.remove(7).chunk, frames.remove(0).chunk);
        assert_eq!((late, early, pool.spare_bytes(), pool.used_bytes()), (1, 0, 2 * 4096, 6 * 4096));
        let again = pool.frame(4096);
        assert!(again.chunk == 0 && again.iter().all(|byte| *byte == 0));
        drop(pool.frame(5000));
        drop(Frame::from(4096));
        assert_eq!(again.clone().len(), 4096);
        assert_eq!((chunks(&pool), pool.spare_bytes()), (2, 4096), "an odd size or a frame without a pool is not kept");
        assert_eq!(pool.frame(8192).len(), 8192, "another size has chunks of its own");
    }

    #[test]
    fn bytes_come_into_the_smallest_frame_that_has_them() {
        let pool = FramePool::new(1 << 20, 1 << 20);
        for (bytes, taken) in
            [(0, 512), (512, 512), (513, 1024), (40_000, 65_536), (65_537, 69_632), (100_000, 102_400)]
        {
            let from: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
            let frame = pool.frame_of(&from);
            assert_eq!((frame.len(), &frame[..bytes]), (taken, &from[..]));
            assert_eq!(frame.pool.is_some(), bytes <= 65_536, "{bytes}");
        }
    }

    /// Guard: what is kept is kept of all sizes together.
    #[test]
    fn d10_of_all_sizes_together_no_more_is_kept_than_twice_as_allowed() {
        let pool = FramePool::new(64 << 20, 1 << 20);
        for shift in 9..=16 {
            drop((0..(4 << 20) >> shift).map(|_| pool.frame(1 << shift)).collect::<Vec<_>>());
        }
        assert!(pool.spare_bytes() <= 2 << 20, "{}", pool.spare_bytes());
        let chunks_of = |n: usize| pool.sizes[n].lock().count;
        let most = |n: usize| if chunk::can_be_released(LEAST_BYTES << n) { 1 } else { 4 };
        assert!((0..SIZES).all(|n| chunks_of(n) <= most(n)), "{:?}", (0..SIZES).map(chunks_of).collect::<Vec<_>>());
        // Of small frames, which cannot become bare, the larger ones know nothing.
        let (others, small) =
            (pool.spare_of_all(4096).load(Ordering::Relaxed), [512; 3].map(|bytes| pool.frame(bytes)));
        drop(small);
        assert_eq!(pool.spare_of_all(4096).load(Ordering::Relaxed), others);
    }

    /// Guards: what has memory is taken before what has none, of that the oldest chunk's first; what has none is not counted.
    #[test]
    fn d10_frames_that_come_and_go_beside_a_gap_keep_their_memory() {
        let pool = FramePool::new(64 * 4 * 4096, 4 * 4096);
        let mut frames: Vec<Frame> = (0..64).map(|_| pool.frame(4096)).collect();
        frames.iter_mut().for_each(|frame| frame.fill(7));
        let mut nth = 0;
        frames.retain(|_| {
            nth += 1;
            nth % 4 == 1
        });
        assert_eq!((chunks(&pool), pool.used_bytes(), pool.spare_bytes()), (16, 16 * 4096, 4 * 4096));
        assert_eq!(pool.bare_bytes(), 44 * 4096, "of three quarters four keep their memory");
        for _ in 0..100 {
            let some: Vec<Frame> = (0..4).map(|_| pool.frame(4096)).collect();
            assert_eq!((pool.spare_bytes(), pool.bare_bytes()), (0, 44 * 4096));
            drop(some);
            assert_eq!((pool.spare_bytes(), pool.bare_bytes()), (4 * 4096, 44 * 4096));
        }
        let mut some: Vec<Frame> = (0..4).map(|_| pool.frame(4096)).collect();
        let bare = pool.written_frame(4096);
        assert!(bare.iter().all(|byte| *byte == 0), "its memory went");
        assert!(some.iter().all(|frame| frame.chunk <= bare.chunk) && bare.chunk <= 1, "{}", bare.chunk);
        some.push(bare);
        frames.append(&mut some);
        // The last one of each chunk but the oldest comes back as the youngest.
        frames.sort_by_key(|frame| frame.chunk);
        drop(frames);
        assert_eq!((pool.used_bytes(), pool.bare_bytes()), (0, 0), "a chunk of bare frames goes");
        assert_eq!((chunks(&pool), pool.spare_bytes()), (1, 4 * 4096));
    }

    /// A chunk goes that others had counted on. Guard: what it had is not taken off the sum.
    #[test]
    fn d10_a_youngest_chunk_that_goes_is_not_counted_any_more() {
        let pool = FramePool::new(64 * 4 * 4096, 4 * 4096);
        let mut frames: Vec<Frame> = (0..8).map(|_| pool.frame(4096)).collect();
        frames.truncate(4);
        assert_eq!((chunks(&pool), pool.spare_bytes()), (2, 4 * 4096), "all of the second chunk");
        for left in [3, 2, 1, 0] {
            frames.truncate(left);
            assert_eq!(pool.spare_bytes(), 4 * 4096, "{left} are used");
        }
        assert_eq!((chunks(&pool), pool.bare_bytes()), (1, 0));
    }

    /// Two threads make the last frames of a chunk bare at the same time. Guard: who comes last looks whether it goes.
    #[test]
    fn d10_a_chunk_goes_when_its_last_frames_become_bare_together() {
        let mut chunks = Chunks::default();
        let taken: Vec<_> = (0..2).map(|_| chunks.take(4096, 2)).collect();
        let under_way: Vec<_> =
            taken.into_iter().map(|(number, buffer)| chunks.give_back(number, buffer, 2, true, |_| false)).collect();
        let mut gone = under_way.into_iter().map(|surplus| match surplus {
            Surplus::Frame(number, buffer) => chunks.give_back_bare(number, buffer, 2).is_some(),
            _ => panic!("another one is used or under way"),
        });
        assert_eq!([gone.next(), gone.next()], [Some(false), Some(true)]);
        drop(gone);
        assert_eq!((chunks.count, chunks.spare_bytes, chunks.bare.len()), (0, 0, 0));
    }

    /// Frames of several sizes come and go in any order, by two threads. Guards: each change is told to its sum; frames that cannot become bare
    /// have one of their own.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "threads of a test")]
    fn d10_what_is_spare_is_bounded_whatever_comes_and_goes() {
        let pool = FramePool::new(64 << 20, 1 << 20);
        std::thread::scope(|scope| {
            for seed in 0..2 {
                let pool = &pool;
                scope.spawn(move || {
                    let (mut rng, mut frames) = (vfs::random::Rng::new(seed), Vec::new());
                    for round in 0..20_000 {
                        let grows = round / 1000 % 2 == 0;
                        if frames.is_empty() || rng.below(8) < if grows { 6 } else { 2 } {
                            frames.push(pool.written_frame(LEAST_BYTES << rng.index(SIZES)));
                        } else if rng.below(2) == 0 {
                            drop(frames.swap_remove(rng.index(frames.len())));
                        } else {
                            drop(frames.pop());
                        }
                    }
                });
            }
        });
        assert_eq!(pool.used_bytes(), 0);
        assert!(pool.spare_bytes() <= 2 << 20, "{}", pool.spare_bytes());
    }

    #[test]
    fn whole_chunks_go_back_and_no_more_is_kept_than_allowed() {
        let pool = FramePool::new(64 * 4 * 4096, 4 * 4096);
        let mut frames: Vec<Frame> = (0..64).map(|_| pool.frame(4096)).collect();
        assert_eq!(chunks(&pool), 16);
        // Every page is evicted some day, and half of what is free is used again at once.
        let mut at = 0;
        while frames.len() > 8 {
            at = (at * 5 + 3) % frames.len();
            drop(frames.swap_remove(at));
            drop(frames.swap_remove(at % frames.len()));
            frames.push(pool.frame(4096));
        }
        assert!(chunks(&pool) <= 5, "{} chunks for 8 frames, which fill two", chunks(&pool));
        drop(frames);
        assert_eq!((chunks(&pool), pool.spare_bytes()), (1, 4 * 4096), "one chunk may be kept");
        assert_eq!(pool.frame(4096).len(), 4096);
    }
}
