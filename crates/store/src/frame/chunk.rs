//! Chunks: memory straight from the system, cut into pieces that are given out one by one.
//!
//! Beside `epoch.rs` the only unsafe file of the crate. What must hold, and who guarantees it:
//! * a piece lies within its chunk, and no two pieces of one chunk overlap: [`cut`], the only one that makes pieces, maps
//!   as much as they are long together and steps by their length; a [`Piece`] is neither `Clone` nor `Copy`;
//! * the chunk stays mapped as long as a piece of it is there: each holds an `Arc` of it;
//! * nobody else reads or writes the mapping: it is private to this file, and it has no file behind it;
//! * what [`Piece::release`] gives back is whole pages of the system within the piece.
//!
//! Why not the allocator: glibc's maps a mebibyte only until the first one is freed; later ones come from its heaps, between
//! whatever else lives there, and stay resident when they are freed. Under a budget of 64 MiB that was 35 MiB.
//!
//! Why huge pages: a cached search touches a few lines in each of several pages, and misses the TLB for each.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use memmap2::{Advice, MmapMut, MmapRaw, UncheckedAdvice};

/// A page of the system, or several.
const SYSTEM_PAGE_BYTES: usize = if cfg!(target_arch = "x86_64") { 4 << 10 } else { 64 << 10 };

/// Size of what the system can map as one page of its tables; asked for, not required.
const HUGE_BYTES: usize = 2 << 20;

/// A part of a chunk, and the only way to its bytes. Zeroes at first.
pub(super) struct Piece {
    start: NonNull<u8>,
    len: usize,
    /// None for the empty piece.
    chunk: Option<Arc<MmapRaw>>,
}

/// The empty piece.
impl Default for Piece {
    fn default() -> Self {
        Self { start: NonNull::dangling(), len: 0, chunk: None }
    }
}

// SAFETY: a piece is the only way to its bytes, like a box.
unsafe impl Send for Piece {}
// SAFETY: without `&mut` its bytes can only be read.
unsafe impl Sync for Piece {}

/// `count` pieces of `bytes` each, of one chunk. On huge pages if they fill some.
///
/// Ends the process if the system has no memory, as allocators do.
pub(super) fn cut(bytes: usize, count: usize) -> Vec<Piece> {
    let mapped = bytes * count;
    let Ok(mapping) = MmapMut::map_anon(mapped) else {
        handle_alloc_error(Layout::from_size_align(mapped, 1).expect("an alignment of one"));
    };
    if mapped.is_multiple_of(HUGE_BYTES) {
        // Neighbours with the same advice are one area to the system, in which a huge page may lie across chunks; of areas a
        // process may have some 65,000. Refused by systems that have no huge pages: then they are small ones.
        let _ = mapping.advise(Advice::HugePage);
    }
    let chunk = Arc::new(MmapRaw::from(mapping));
    let piece = |n: usize| {
        // SAFETY: `n < count`, so `(n + 1) * bytes <= mapped`, and the mapping is that long.
        let start = unsafe { chunk.as_mut_ptr().add(n * bytes) };
        Piece { start: NonNull::new(start).expect("a mapping is not at zero"), len: bytes, chunk: Some(chunk.clone()) }
    };
    (0..count).map(piece).collect()
}

impl Piece {
    /// Gives the memory back to the system if it is whole pages of it; the bytes are zeroes then. The piece is as good as before.
    pub(super) fn release(&mut self) {
        let Some(chunk) = &self.chunk else { return };
        let offset = self.start.as_ptr().addr() - chunk.as_mut_ptr().addr();
        if !self.len.is_multiple_of(SYSTEM_PAGE_BYTES) || !offset.is_multiple_of(SYSTEM_PAGE_BYTES) {
            return;
        }
        // SAFETY: the bytes are this piece's, which `&mut self` alone reaches, and no others: a mapping begins at a page of
        // the system, and so, by the check above, does the piece, which ends at one. The mapping is private and has no file
        // behind it, so what is read afterwards is zeroes.
        let _ = unsafe { chunk.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, self.len) };
    }
}

impl Deref for Piece {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: empty; or mapped and zeroed by the system, alive by `chunk`, and no other piece has these bytes.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Piece {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only reference to this piece.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces are apart, zero, and outlive each other; on huge pages and without.
    #[test]
    fn pieces_do_not_overlap() {
        for (bytes, count) in [(512, 3), (4096, 16), (16 << 10, 128), (64 << 10, 64)] {
            let mut pieces = cut(bytes, count);
            assert_eq!(pieces.len(), count);
            for (n, piece) in pieces.iter_mut().enumerate() {
                assert!(piece.len() == bytes && piece.iter().all(|byte| *byte == 0));
                piece.fill(n as u8 + 1);
            }
            let last = pieces.pop().expect("some");
            for (n, piece) in pieces.iter().enumerate() {
                assert!(piece.iter().all(|byte| *byte == n as u8 + 1));
            }
            drop(pieces);
            assert!(last.iter().all(|byte| *byte == count as u8), "the chunk is there as long as a piece");
        }
    }

    /// What is released is zeroes and can be written again; its neighbours keep theirs, also if they share a page of the system.
    #[test]
    fn released_pieces_leave_their_neighbours_alone() {
        for bytes in [512, 4096, 16 << 10, 64 << 10] {
            let mut pieces = cut(bytes, 16);
            for (n, piece) in pieces.iter_mut().enumerate() {
                piece.fill(n as u8 + 1);
            }
            pieces.iter_mut().skip(3).step_by(2).for_each(Piece::release);
            for (n, piece) in pieces.iter_mut().enumerate() {
                let released = n >= 3 && n % 2 == 1 && bytes >= SYSTEM_PAGE_BYTES;
                let expected = if released { 0 } else { n as u8 + 1 };
                assert!(piece.iter().all(|byte| *byte == expected), "piece {n} of {bytes} bytes");
                piece.fill(7);
                assert!(piece.iter().all(|byte| *byte == 7));
            }
        }
    }

    /// Many chunks are few areas to the system. Guard: the advice is for the whole mapping; for the aligned part of it each
    /// chunk would be two areas, and 64 GiB of frames all that a process may have.
    #[cfg(target_os = "linux")]
    #[test]
    #[expect(clippy::disallowed_methods, reason = "asks the system about the memory of this process")]
    fn chunks_side_by_side_are_one_area() {
        let pieces: Vec<_> = (0..200).flat_map(|_| cut(HUGE_BYTES, 1)).collect();
        assert!(pieces.iter().all(|piece| (piece.start.as_ptr() as usize).is_multiple_of(HUGE_BYTES)));
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the system tells");
        let holds_a_piece = |line: &&str| {
            let (from, to) = line.split_once(' ').and_then(|(range, _)| range.split_once('-')).expect("a range");
            let [from, to] = [from, to].map(|end| usize::from_str_radix(end, 16).expect("an address"));
            pieces.iter().any(|piece| (from..to).contains(&(piece.start.as_ptr() as usize)))
        };
        let areas = maps.lines().filter(holds_a_piece).count();
        assert!(areas < 50, "{areas} areas for 200 chunks");
    }
}
