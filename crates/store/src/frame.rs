//! Frames: the buffers under pages in memory, used again by whatever thread needs the next one.
//!
//! A page is loaded by one thread and evicted by another. General allocators keep what was freed for the thread that
//! had allocated it, so that memory which the budget counts as free stays resident: 1 GiB for a budget of 512 MiB was
//! measured with glibc's after the work moved from a client to the background. Frames given back here are taken by the
//! next page, whoever loads it.
//!
//! Invariants: `spare_bytes` >= the bytes of all frames in the queues, and what is given back above `limit_bytes` goes
//! back to the allocator. What is spare is not charged: at most as much as the cache keeps ready, above
//! the budget only when others have taken what was ready.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::SegQueue;
use crossbeam_utils::CachePadded;

/// Sizes kept: powers of two from 512 B, the smallest node, to 64 KiB, the largest.
const SIZES: usize = 8;
const SMALLEST_SHIFT: u32 = 9;

/// Frames that nobody uses, for the next page.
#[derive(Debug)]
pub struct FramePool {
    queues: [SegQueue<Box<[u8]>>; SIZES],
    /// Relaxed: a bound, no order hangs on it.
    spare_bytes: CachePadded<AtomicU64>,
    limit_bytes: u64,
}

impl FramePool {
    /// A pool that keeps at most so many bytes.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self { queues: Default::default(), spare_bytes: CachePadded::default(), limit_bytes })
    }

    /// A frame of zeroes, which comes back to this pool when it is dropped.
    #[must_use]
    pub fn frame(self: &Arc<Self>, bytes: usize) -> Frame {
        let spare = self.queue(bytes).and_then(SegQueue::pop);
        let buffer = match spare {
            Some(mut spare) => {
                self.spare_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
                spare.fill(0);
                spare
            }
            None => vec![0; bytes].into_boxed_slice(),
        };
        Frame { buffer, pool: Some(self.clone()) }
    }

    /// Bytes of the frames that nobody uses.
    #[must_use]
    pub fn spare_bytes(&self) -> u64 {
        self.spare_bytes.load(Ordering::Relaxed)
    }

    fn give_back(&self, buffer: Box<[u8]>) {
        let Some(queue) = self.queue(buffer.len()) else { return };
        let bytes = buffer.len() as u64;
        // Counted first, so that the queues never hold more than is counted.
        if self.spare_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.limit_bytes {
            self.spare_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return;
        }
        queue.push(buffer);
    }

    fn queue(&self, bytes: usize) -> Option<&SegQueue<Box<[u8]>>> {
        let size = bytes.is_power_of_two().then(|| bytes.ilog2())?.checked_sub(SMALLEST_SHIFT)?;
        self.queues.get(size as usize)
    }
}

/// The buffer of one page.
#[derive(Debug)]
pub struct Frame {
    buffer: Box<[u8]>,
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
        Self { buffer: vec![0; bytes].into_boxed_slice(), pool: None }
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
            pool.give_back(std::mem::take(&mut self.buffer));
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

    #[test]
    fn a_frame_comes_back_as_zeroes_and_no_more_is_kept_than_allowed() {
        let pool = FramePool::new(3 * 4096);
        let mut frames: Vec<Frame> = (0..5).map(|_| pool.frame(4096)).collect();
        frames.iter_mut().for_each(|frame| frame.fill(7));
        let addresses: Vec<*const u8> = frames.iter().map(|frame| frame.as_ptr()).collect();
        drop(frames);
        assert_eq!(pool.spare_bytes(), 3 * 4096, "two went back to the allocator");
        let again = pool.frame(4096);
        assert!(addresses.contains(&again.as_ptr()), "a new buffer although three were spare");
        assert!(again.iter().all(|byte| *byte == 0));
        assert_eq!(pool.frame(8192).len(), 8192, "another size");
        drop(pool.frame(5000));
        drop(Frame::from(4096));
        drop(again.clone());
        assert_eq!(
            pool.spare_bytes(),
            2 * 4096,
            "neither an odd size nor a frame without a pool is kept, 8 KiB is too much"
        );
    }
}
