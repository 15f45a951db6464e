//! Frames: the buffers under pages in memory, cut from chunks that are no allocator's business.
//!
//! A page is loaded by one thread and evicted by another. General allocators keep what was freed for the thread that
//! had allocated it, so that memory which the budget counts as free stays resident: 1 GiB for a budget of 512 MiB was
//! measured with glibc's after the work moved from a client to the background. So frames come from chunks of two mebibytes
//! (fewer bytes under a small budget), mapped by the system one by one. A frame that is given back is spare for whoever
//! comes next, the oldest chunk's first: since every page is evicted some day, the youngest chunks empty, and go back as
//! a whole.
//!
//! What is spare is not charged: at most twice as much as the cache keeps ready. The memory of a frame beyond that is given back to the
//! system where a frame is whole pages of it: the frame is bare then, an address without memory, and is not taken as long as one has some. To give memory
//! back and be given it again costs more than to fill the frame.
//!
//! Invariants: the frames of a chunk that nobody uses are in `spare` or `bare` under its number, if there are any; `spare_bytes` is the
//! sum of `spare`, and whether one more stays is asked of that alone; a chunk of which nobody uses a frame stays only if none is bare
//! and all spare frames are at most `keep_bytes`, or those of its size an eighth of that.

pub mod arena;
#[allow(unsafe_code, reason = "cuts memory of the system into pieces, behind a safe face")]
mod chunk;
pub mod slab;

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

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

/// Frames that nobody uses, for the next page. One mutex for each size: a frame changes hands when a page is read from
/// disk or split, which takes a hundred times as long as what is done under it.
#[derive(Debug)]
pub struct FramePool {
    sizes: [Mutex<Chunks>; SIZES],
    /// Bytes that are spare, of all sizes. Relaxed: a threshold. Signed: who takes a frame may tell before who has given it back.
    spare_bytes: CachePadded<AtomicI64>,
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
    /// A pool for pages under `budget_bytes` that keeps at most `keep_bytes` of whole chunks.
    #[must_use]
    pub fn new(budget_bytes: u64, keep_bytes: u64) -> Arc<Self> {
        let chunk_bytes = (budget_bytes / 64).min(CHUNK_BYTES_MAX);
        Arc::new(Self { sizes: Default::default(), spare_bytes: CachePadded::default(), chunk_bytes, keep_bytes })
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
        let (chunk, buffer, was_spare) = size.lock().take(bytes, self.frames_of(bytes));
        if was_spare {
            self.spare_bytes.fetch_sub(bytes as i64, Ordering::Relaxed);
        }
        Frame { buffer, chunk, pool: Some(self.clone()) }
    }

    /// Frames of so many bytes in a chunk.
    fn frames_of(&self, bytes: usize) -> usize {
        (self.chunk_bytes as usize / bytes).max(1)
    }

    /// Bytes of the frames that nobody uses and that have memory.
    #[must_use]
    pub fn spare_bytes(&self) -> u64 {
        self.spare_bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// Bytes of the frames that somebody uses.
    #[cfg(test)]
    fn used_bytes(&self) -> u64 {
        let of = |(n, size): (usize, &Mutex<Chunks>)| {
            let (bytes, chunks) = (LEAST_BYTES << n, size.lock());
            let unused: usize = chunks.spare.values().chain(chunks.bare.values()).map(Vec::len).sum();
            (bytes * (chunks.count as usize * self.frames_of(bytes) - unused)) as u64
        };
        self.sizes.iter().enumerate().map(of).sum()
    }

    fn give_back(&self, chunk: u64, buffer: Piece) {
        let Some(size) = self.size(buffer.len()) else { return };
        let (bytes, frames) = (buffer.len(), self.frames_of(buffer.len()));
        let all = self.spare_bytes.load(Ordering::Relaxed).max(0) as u64 + bytes as u64;
        // Of each size some stay, also where others have more.
        let is_kept = |of_size: u64| all <= self.keep_bytes || of_size <= self.keep_bytes / SIZES as u64;
        let mut chunks = size.lock();
        let before = chunks.spare_bytes;
        let gone = chunks.give_back(chunk, buffer, frames, is_kept);
        let surplus = if gone.is_none() && !is_kept(chunks.spare_bytes) { chunks.take_youngest(bytes) } else { None };
        let more = chunks.spare_bytes as i64 - before as i64;
        drop(chunks);
        self.spare_bytes.fetch_add(more, Ordering::Relaxed);
        drop(gone);
        if let Some((chunk, mut buffer)) = surplus {
            // Without the mutex: the system takes its time.
            buffer.release();
            let gone = size.lock().give_back_bare(chunk, buffer, frames);
            drop(gone);
        }
    }

    fn size(&self, bytes: usize) -> Option<&Mutex<Chunks>> {
        let size = bytes.is_power_of_two().then(|| bytes.ilog2())?.checked_sub(SMALLEST_SHIFT)?;
        self.sizes.get(size as usize)
    }
}

impl Chunks {
    /// A frame with the number of its chunk, of a new one if there is none; and whether it was spare, or else bare.
    fn take(&mut self, bytes: usize, frames: usize) -> (u64, Piece, bool) {
        let was_spare = !self.spare.is_empty();
        if was_spare {
            self.spare_bytes -= bytes as u64;
        } else if self.bare.is_empty() {
            self.bare.insert(self.next, chunk::cut(bytes, frames));
            self.next += 1;
            self.count += 1;
        }
        let unused = if was_spare { &mut self.spare } else { &mut self.bare };
        let mut oldest = unused.first_entry().expect("a chunk was added if there was none");
        let (number, buffer) = (*oldest.key(), oldest.get_mut().pop().expect("chunks without any are not listed"));
        if oldest.get().is_empty() {
            oldest.remove();
        }
        (number, buffer, was_spare)
    }

    /// Returns the frames of the chunk if it is to go.
    fn give_back(
        &mut self,
        number: u64,
        buffer: Piece,
        frames: usize,
        is_kept: impl Fn(u64) -> bool,
    ) -> Option<Unused> {
        self.spare_bytes += buffer.len() as u64;
        self.spare.entry(number).or_default().push(buffer);
        let has_bare = self.bare.contains_key(&number);
        if has_bare || !is_kept(self.spare_bytes) { self.take_whole(number, frames) } else { None }
    }

    /// A spare frame of the youngest chunk, to become bare, if frames of this size can; and its number.
    fn take_youngest(&mut self, bytes: usize) -> Option<(u64, Piece)> {
        let mut youngest = self.spare.last_entry().filter(|_| chunk::can_be_released(bytes))?;
        let (number, buffer) = (*youngest.key(), youngest.get_mut().pop()?);
        if youngest.get().is_empty() {
            youngest.remove();
        }
        self.spare_bytes -= bytes as u64;
        Some((number, buffer))
    }

    fn give_back_bare(&mut self, number: u64, buffer: Piece, frames: usize) -> Option<Unused> {
        self.bare.entry(number).or_default().push(buffer);
        self.take_whole(number, frames)
    }

    /// All frames of a chunk, if nobody uses one.
    fn take_whole(&mut self, number: u64, frames: usize) -> Option<Unused> {
        let unused = [&self.spare, &self.bare].map(|unused| unused.get(&number).map_or(0, Vec::len));
        if unused[0] + unused[1] < frames {
            return None;
        }
        self.count -= 1;
        let spare = self.spare.remove(&number);
        self.spare_bytes -= spare.iter().flatten().map(|buffer| buffer.len() as u64).sum::<u64>();
        Some([spare, self.bare.remove(&number)])
    }
}

/// Frames of a chunk, spare and bare.
type Unused = [Option<Vec<Piece>>; 2];

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
            assert_eq!(pool.spare_bytes(), pool.sizes.iter().map(|size| size.lock().spare_bytes).sum::<u64>());
        }
        assert!(pool.spare_bytes() <= 2 << 20, "{}", pool.spare_bytes());
        assert!(pool.sizes.iter().all(|size| size.lock().count <= 1));
    }

    /// Guards: what has memory is taken before what has none; what has none is not counted.
    #[test]
    fn d10_frames_that_come_and_go_beside_a_gap_keep_their_memory() {
        let pool = FramePool::new(64 * 4 * 4096, 4 * 4096);
        let mut frames: Vec<Frame> = (0..64).map(|_| pool.frame(4096)).collect();
        let mut nth = 0;
        frames.retain(|_| {
            nth += 1;
            nth % 4 == 1
        });
        let bare = || pool.size(4096).map(|size| size.lock().bare.values().map(Vec::len).sum::<usize>());
        assert_eq!((chunks(&pool), pool.used_bytes(), pool.spare_bytes()), (16, 16 * 4096, 4 * 4096));
        assert_eq!(bare(), Some(44), "of three quarters four keep their memory");
        for _ in 0..100 {
            let some: Vec<Frame> = (0..4).map(|_| pool.frame(4096)).collect();
            assert_eq!((pool.spare_bytes(), bare()), (0, Some(44)));
            drop(some);
            assert_eq!((pool.spare_bytes(), bare()), (4 * 4096, Some(44)));
        }
        let fifth: Vec<Frame> = (0..5).map(|_| pool.frame(4096)).collect();
        assert_eq!(bare(), Some(43), "a bare one comes when there is no other");
        assert!(fifth.iter().all(|frame| frame.iter().all(|byte| *byte == 0)));
        drop((fifth, frames));
        assert_eq!(pool.used_bytes(), 0);
        assert!(bare() == Some(0) && chunks(&pool) <= 1, "a chunk with bare frames that nobody uses goes");
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
