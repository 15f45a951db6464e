//! Chunks: memory straight from the system, cut into pieces that are given out one by one.
//!
//! With `epoch.rs` and `prefetch.rs` the unsafe files of the crate. What must hold, and who guarantees it:
//! * a piece lies within its chunk, and no two pieces of one chunk overlap: [`cut`], the only one that makes pieces, maps
//!   as much as they are long together and steps by their length; a [`Piece`] is neither `Clone` nor `Copy`;
//! * the chunk stays mapped as long as a piece of it is there: each holds an `Arc` of it;
//! * nobody else reads or writes the mapping: it is private to this file, and it has no file behind it;
//! * what [`Piece::release`] gives back is whole pages of the system within the piece;
//! * a [`Part`] lies within its frame, and no two parts of one frame overlap: [`Shared::take`], the only one that makes parts,
//!   takes granules whose bits are clear and sets them; [`Part::end`] alone clears them, and ends the part; a part is neither
//!   `Clone` nor `Copy`. The frame is there as long as a part of it: each holds the [`Shared`], which looks into it nowhere else;
//! * a [`Cut`] lies within its frame, and no two of one frame overlap: the first, which [`Cut::new`] makes of a frame that nobody else
//!   has, has all of it; [`Cut::split_front`] takes from one what it gives to another, and [`Cut::join`] makes one of two neighbours of one frame, which
//!   end; a cut is neither `Clone` nor `Copy`. The frame is there as long as a cut of it: each holds the [`Whole`], which looks into it nowhere else.
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
use vfs::sync::Mutex;

use super::Frame;

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
    if is_on_huge_pages(mapped) {
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

/// True if a chunk of so many bytes may have memory as soon as one is written.
pub(super) const fn is_on_huge_pages(bytes: usize) -> bool {
    bytes.is_multiple_of(HUGE_BYTES)
}

/// True if pieces of so many bytes are whole pages of the system.
pub(super) const fn can_be_released(bytes: usize) -> bool {
    bytes.is_multiple_of(SYSTEM_PAGE_BYTES)
}

impl Piece {
    /// Gives the memory back to the system if it is whole pages of it; the bytes are zeroes then. The piece is as good as before.
    pub(super) fn release(&mut self) {
        let Some(chunk) = &self.chunk else { return };
        let offset = self.start.as_ptr().addr() - chunk.as_mut_ptr().addr();
        if !can_be_released(self.len) || !offset.is_multiple_of(SYSTEM_PAGE_BYTES) {
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

/// A frame is shared out in so many granules, those that a part has being neighbours.
pub(super) const GRANULES: u32 = u32::BITS;

/// A frame that is shared out in parts.
pub(super) struct Shared<T> {
    whole: Frame,
    /// A bit for each granule: it is in a part.
    taken: Mutex<u32>,
    /// Whose it is; goes after the frame.
    pub(super) keeper: T,
}

/// Some bytes of a shared frame, the first of them written. Who lets one go without [`Part::end`] loses the granules.
pub(super) struct Part<T> {
    of: Arc<Shared<T>>,
    first: u16,
    count: u16,
    written: u32,
}

impl<T> Shared<T> {
    pub(super) fn new(whole: Frame, keeper: T) -> Self {
        Self { whole, taken: Mutex::new(0), keeper }
    }

    fn granule_bytes(&self) -> usize {
        self.whole.buffer.len / GRANULES as usize
    }

    /// A part of `wish` granules; if so many neighbours are not free, of as many as are, but not below `least`. And how many
    /// are free then, in all.
    pub(super) fn take(self: &Arc<Self>, least: u32, wish: u32) -> Option<(Part<T>, u32)> {
        let mut taken = self.taken.lock();
        let (count, first) = (least.max(1)..=wish.min(GRANULES)).rev().find_map(|count| {
            // Bit n: n and the next so many are free.
            let runs = (1..count).fold(!*taken, |free, n| free & (!*taken >> n));
            (runs != 0).then(|| (count, runs.trailing_zeros()))
        })?;
        *taken |= bits(first, count);
        let part = Part { of: self.clone(), first: first as u16, count: count as u16, written: 0 };
        Some((part, taken.count_zeros()))
    }
}

fn bits(first: u32, count: u32) -> u32 {
    (u32::MAX >> (GRANULES - count)) << first
}

impl<T> Part<T> {
    pub(super) fn of(&self) -> &Arc<Shared<T>> {
        &self.of
    }

    pub(super) fn granules(&self) -> u32 {
        u32::from(self.count)
    }

    pub(super) fn capacity(&self) -> usize {
        usize::from(self.count) * self.of.granule_bytes()
    }

    /// So many bytes behind those written, to be written now, if there is room for them.
    pub(super) fn append(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let at = self.written as usize;
        if bytes > self.capacity() - at {
            return None;
        }
        self.written += bytes as u32;
        // SAFETY: `at + bytes` is within this part, and the part within the frame, as in `start`. The bytes were mapped and zeroed by
        // the system; no other part has them, and `&mut self` is the only reference to this one.
        Some(unsafe { slice::from_raw_parts_mut(self.start().add(at), bytes) })
    }

    /// The granules are free again. How many are, in all.
    pub(super) fn end(self) -> u32 {
        let mut taken = self.of.taken.lock();
        *taken &= !bits(self.first.into(), self.count.into());
        taken.count_zeros()
    }

    fn start(&self) -> *mut u8 {
        let frame = self.of.whole.buffer.start.as_ptr();
        // SAFETY: `first + count <= GRANULES`, and so many granules are at most as long as the frame.
        unsafe { frame.add(usize::from(self.first) * self.of.granule_bytes()) }
    }
}

/// What is written.
impl<T> Deref for Part<T> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `append` keeps `written` within the part; mapped and zeroed by the system, alive by `of`, and no other part has
        // these bytes.
        unsafe { slice::from_raw_parts(self.start(), self.written as usize) }
    }
}

/// A frame that is cut, and whose it is. Nobody looks into it but through its cuts.
struct Whole<T> {
    frame: Frame,
    keeper: T,
}

/// Some bytes of a frame that are nobody else's. The frame goes with the last of them.
pub(super) struct Cut<T> {
    start: NonNull<u8>,
    len: usize,
    of: Arc<Whole<T>>,
}

// SAFETY: a cut is the only way to its bytes, like a box; what it shares can be sent and shared.
unsafe impl<T: Send + Sync> Send for Cut<T> {}
// SAFETY: without `&mut` its bytes can only be read.
unsafe impl<T: Send + Sync> Sync for Cut<T> {}

impl<T> Cut<T> {
    /// All of a frame.
    pub(super) fn new(frame: Frame, keeper: T) -> Self {
        let (start, len) = (frame.buffer.start, frame.buffer.len);
        Self { start, len, of: Arc::new(Whole { frame, keeper }) }
    }

    pub(super) fn keeper(&self) -> &T {
        &self.of.keeper
    }

    /// Takes so many bytes from the front, if it has them.
    pub(super) fn split_front(&mut self, bytes: usize) -> Option<Self> {
        let rest = self.len.checked_sub(bytes)?;
        let front = Self { start: self.start, len: bytes, of: self.of.clone() };
        // SAFETY: `bytes <= len`, so this is within the frame or just behind it.
        self.start = unsafe { self.start.add(bytes) };
        self.len = rest;
        Some(front)
    }

    /// Where in the frame it begins.
    pub(super) fn offset(&self) -> usize {
        self.start.as_ptr().addr() - self.of.frame.buffer.start.as_ptr().addr()
    }

    /// Takes over the one right behind it; that comes back if it is not, or of another frame.
    pub(super) fn join(&mut self, next: Self) -> Option<Self> {
        if !Arc::ptr_eq(&self.of, &next.of) || self.offset() + self.len != next.offset() {
            return Some(next);
        }
        self.len += next.len;
        None
    }
}

impl<T> Deref for Cut<T> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: within the frame, whose bytes were mapped and zeroed by the system and are there by `of`; no other cut has these.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Cut<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only reference to this cut.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cuts have the whole frame and do not overlap, and it is there as long as one of them.
    #[test]
    fn cuts_of_a_frame_do_not_overlap() {
        let mut rng = vfs::random::Rng::new(1);
        for bytes in [512, 4096, 64 << 10] {
            let kept = Arc::new(());
            let mut rest = Cut::new(Frame::from(bytes), kept.clone());
            let mut cuts = Vec::new();
            while !rest.is_empty() {
                assert!(rest.split_front(rest.len() + 1).is_none());
                let mut cut = rest.split_front(1 + rng.index(rest.len())).expect("it has so many");
                cut.fill(cuts.len() as u8);
                cuts.push(cut);
            }
            assert!(cuts[0].join(rest).is_some_and(|rest| cuts.len() > 1 || rest.is_empty()));
            for (n, cut) in cuts.iter_mut().enumerate() {
                assert!(cut.iter().all(|byte| *byte == n as u8));
                cut.fill(n as u8 + 1);
            }
            assert_eq!(cuts.iter().map(|cut| cut.len()).sum::<usize>(), bytes);
            let apart = Cut::new(Frame::from(bytes), kept.clone());
            let last = cuts.len() - 1;
            assert!(cuts[last].join(apart).is_some(), "of another frame");
            while cuts.len() > 2 && rng.chance(0.5) {
                let at = rng.index(cuts.len() - 1);
                let next = cuts.remove(at + 1);
                let (len, with) = (cuts[at].len() + next.len(), cuts[at].first().copied().unwrap_or(0));
                assert!(cuts[at].join(next).is_none() && cuts[at].len() == len);
                cuts[at].fill(with);
            }
            while cuts.len() > 1 {
                drop(cuts.swap_remove(rng.index(cuts.len())));
            }
            assert!(cuts[0].iter().all(|byte| *byte == cuts[0][0]) && Arc::strong_count(&kept) == 2);
            drop(cuts);
            assert_eq!(Arc::strong_count(&kept), 1);
        }
    }

    /// Parts do not overlap, lie in the frame, and keep what is written to them, whatever is taken and given back around them.
    #[test]
    fn parts_of_a_frame_do_not_overlap() {
        let mut rng = vfs::random::Rng::new(1);
        for bytes in [512, 1000, 16 << 10] {
            let shared = Arc::new(Shared::new(Frame::from(bytes), ()));
            let mut parts: Vec<(Part<()>, u8)> = Vec::new();
            let mut free = GRANULES;
            for round in 0..5000_u32 {
                if rng.below(5) < 3 {
                    let least = 1 + rng.below(8) as u32;
                    let wish = least + rng.below(30) as u32;
                    let Some((mut part, left)) = shared.take(least, wish) else { continue };
                    assert!((least..=wish).contains(&part.granules()), "{} granules", part.granules());
                    assert_eq!(left, free - part.granules());
                    assert!(part.is_empty() && part.append(part.capacity() + 1).is_none());
                    let half = part.capacity() / 2;
                    part.append(half).expect("there is room").fill(round as u8);
                    part.append(part.capacity() - half).expect("there is room").fill(round as u8);
                    assert!(part.append(1).is_none() && part.len() == part.capacity());
                    (free, _) = (left, parts.push((part, round as u8)));
                } else if !parts.is_empty() {
                    let (part, _) = parts.swap_remove(rng.index(parts.len()));
                    let granules = part.granules();
                    free += granules;
                    assert_eq!(part.end(), free);
                }
                for (part, with) in &parts {
                    assert!(part.iter().all(|byte| byte == with), "round {round}");
                }
            }
            for (part, _) in parts {
                part.end();
            }
            let whole = shared.take(GRANULES, GRANULES).expect("all is free").0;
            assert_eq!(whole.capacity(), bytes / GRANULES as usize * GRANULES as usize);
        }
    }

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
