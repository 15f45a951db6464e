//! How memory is shared between pages and what is buffered: by what a little more of it would spare either of them.
//!
//! What is buffered (messages for leaves on disk, memtables) is flushed beyond an *aim*; the rest of the budget is left to pages. The aim
//! follows the reads and writes that a sixteenth of the budget more would have spared, in bytes of files:
//!
//! - *Pages.* A page that is read again, and left memory less than so many bytes of pages ago, would have been there still. That is the
//!   refault distance of Linux (`mm/workingset.c`): a list of what has left, without the list.
//! - *Messages.* A block of messages that is read, and was flushed less than so many bytes of messages ago, would still be in memory.
//! - *Memtables.* Merges write each byte about ln(data ÷ memory) times, so so much more memory spares more ÷ (memory · ln(data ÷ memory)) of
//!   what they read and write (the derivative of Luo and Carey, "Breaking Down Memory Walls", VLDB 2021).
//!
//! At most once a second the aim takes a step of 1/64 of the budget to where more is spared, if that is more by a quarter, and worth it: more
//! than 1/256 of the budget of late. What was spared fades by a quarter a second. Floors: a quarter of the budget for what is
//! buffered (less made more blocks of messages to read beside leaves, and won nothing in any measurement), and a half for everything else. It does not rise
//! to where a quarter of the budget more, the wall of the write controller, would not be left beside all else, what flushes have written and still hold, and
//! an eighth for pages; it falls by a quarter of a step
//! while what is buffered does not follow, so that commits are not delayed for it by much. Who neither reads nor flushes moves nothing.
//!
//! Counts are taken where a file is read or written, never at a hit.
//!
//! What a memtable takes comes back when its flush ends, all at once. So two more things are known of what is buffered: what is [`Sealed`], for which no
//! other memtable is, and what of it is written, which is no debt any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use vfs::time::Instant;

use crate::{Budget, Class};

/// One part in so many of the budget: what is asked about.
const MORE_SHARE: u64 = 16;
/// The least and the most that is buffered, as parts of the budget. The least at first.
const LEAST_SHARE: u64 = 4;
const MOST_SHARE: u64 = 2;
/// So much more than the aim is the wall of the controller.
const WALL_SHARE: u64 = 4;
/// A step, and what must be spared for one, as parts of the budget.
const STEP_SHARE: u64 = 64;
const WORTH_SHARE: u64 = 256;
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So much of what was spared is left after a second.
const FADING: f64 = 0.75;

/// When something left memory, as bytes of its kind that had left until then, in KiB; 0: never, or nobody knows. It comes around after
/// 4 TiB: a page that was gone for so long may count as just gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftAt(u32);

impl LeftAt {
    /// The later of two moments.
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        let is_before =
            self == Self::default() || (other != Self::default() && (self.0.wrapping_sub(other.0) as i32) < 0);
        if is_before { other } else { self }
    }
}

/// A [`LeftAt`] that whoever has it may change. Relaxed: a hint.
#[derive(Debug, Default)]
pub struct LeftMark(AtomicU32);

impl LeftMark {
    /// It has left.
    pub fn set(&self, at: LeftAt) {
        self.0.store(at.0, Ordering::Relaxed);
    }

    /// When it left last.
    #[must_use]
    pub fn get(&self) -> LeftAt {
        LeftAt(self.0.load(Ordering::Relaxed))
    }
}

/// The aim of one budget, and what it follows.
///
/// ```
/// use trefoil_store::Balance;
///
/// let balance = Balance::new(64 << 20);
/// assert_eq!(balance.buffered_aim(), 16 << 20);
/// // A page leaves, and is read again at once: a little more memory would have spared that.
/// let left = balance.note_evicted(16 << 10);
/// balance.note_page_read(left, 16 << 10);
/// assert_eq!(balance.spared(), (16 << 10, 0));
/// ```
#[derive(Debug)]
pub struct Balance {
    limit: u64,
    began: Instant,
    aim: CachePadded<AtomicU64>,
    // Relaxed throughout: thresholds, no order hangs on them.
    evicted: CachePadded<AtomicU64>,
    flushed: CachePadded<AtomicU64>,
    spared: CachePadded<Spared>,
    coming_back: Arc<ComingBack>,
    /// When the last look was, in nanoseconds since `began`.
    looked: CachePadded<AtomicU64>,
}

/// Bytes that more memory would have spared.
#[derive(Debug, Default)]
struct Spared {
    by_pages: AtomicU64,
    by_buffers: AtomicU64,
}

/// Bytes of memory that flushes give back: what they have to write, and what of it they have written.
#[derive(Debug, Default)]
struct ComingBack {
    sealed: AtomicU64,
    written: AtomicU64,
}

/// Memory of a memtable that takes no more writes: counted until this is dropped with it, which is when it is back.
///
/// ```
/// use trefoil_store::Balance;
///
/// let balance = Balance::new(64 << 20);
/// let sealed = balance.seal(100);
/// sealed.note_written(60);
/// assert_eq!((balance.sealed_bytes(), balance.written_bytes()), (100, 60));
/// drop(sealed);
/// assert_eq!((balance.sealed_bytes(), balance.written_bytes()), (0, 0));
/// ```
#[derive(Debug)]
pub struct Sealed {
    of: Arc<ComingBack>,
    bytes: u64,
    /// One flush at a time changes it.
    written: AtomicU64,
}

impl Sealed {
    /// Its flush has written what takes so much of it; 0: it begins anew.
    pub fn note_written(&self, bytes: u64) {
        let (now, before) = (bytes.min(self.bytes), self.written.load(Ordering::Relaxed));
        self.written.store(now, Ordering::Relaxed);
        // Modulo 2^64, where it is less than before.
        self.of.written.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        self.note_written(0);
        self.of.sealed.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Balance {
    /// For a budget of `limit_bytes`.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            limit: limit_bytes,
            began: Instant::now(),
            aim: CachePadded::new(AtomicU64::new(limit_bytes / LEAST_SHARE)),
            evicted: CachePadded::default(),
            flushed: CachePadded::default(),
            spared: CachePadded::default(),
            coming_back: Arc::default(),
            looked: CachePadded::default(),
        }
    }

    /// What is buffered is flushed beyond this, in bytes.
    #[must_use]
    pub fn buffered_aim(&self) -> u64 {
        self.aim.load(Ordering::Relaxed)
    }

    /// A memtable of so many bytes takes no more writes.
    #[must_use]
    pub fn seal(&self, bytes: u64) -> Sealed {
        self.coming_back.sealed.fetch_add(bytes, Ordering::Relaxed);
        Sealed { of: self.coming_back.clone(), bytes, written: AtomicU64::new(0) }
    }

    /// Bytes of memtables that take no more writes, of all indexes.
    #[must_use]
    pub fn sealed_bytes(&self) -> u64 {
        self.coming_back.sealed.load(Ordering::Relaxed)
    }

    /// What of them is written.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.coming_back.written.load(Ordering::Relaxed)
    }

    /// Bytes that a sixteenth of the budget more would have spared of late: more for pages, and more for what is buffered.
    #[must_use]
    pub fn spared(&self) -> (u64, u64) {
        (self.spared.by_pages.load(Ordering::Relaxed), self.spared.by_buffers.load(Ordering::Relaxed))
    }

    /// A page of `bytes` left memory to make room.
    pub fn note_evicted(&self, bytes: u64) -> LeftAt {
        left_at(self.evicted.fetch_add(bytes, Ordering::Relaxed) + bytes)
    }

    /// How often as much as half of the budget, which pages have about, has left memory: what is read twice in one turn is worth a place.
    #[must_use]
    pub fn turn(&self) -> u32 {
        (self.evicted.load(Ordering::Relaxed) / (self.limit / 2).max(1)) as u32
    }

    /// A page that left memory then is read from disk, as `bytes`. Who calls this looks ([`Balance::look_if_due`]) some time.
    pub fn note_page_read(&self, left: LeftAt, bytes: u64) {
        if self.is_near(left, &self.evicted) {
            self.spared.by_pages.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Messages that took `bytes` of memory were flushed.
    pub fn note_flushed(&self, bytes: u64) -> LeftAt {
        left_at(self.flushed.fetch_add(bytes, Ordering::Relaxed) + bytes)
    }

    /// Messages that were flushed then are read from disk, as `bytes`.
    pub fn note_messages_read(&self, flushed: LeftAt, bytes: u64) {
        if self.is_near(flushed, &self.flushed) {
            self.spared.by_buffers.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// A merge wrote `bytes` of an index that has `data_bytes` on disk.
    pub fn note_merged(&self, bytes: u64, data_bytes: u64) {
        let memory = self.buffered_aim().max(1) as f64;
        let times = (data_bytes as f64 / memory).max(std::f64::consts::E).ln();
        // Read and written.
        let spared = 2.0 * bytes as f64 * self.more() as f64 / (memory * times);
        self.spared.by_buffers.fetch_add(spared as u64, Ordering::Relaxed);
    }

    /// Moves the aim of this budget, if it is time.
    pub fn look_if_due(&self, budget: &Budget) {
        let (now, looked) = (self.began.elapsed(), self.looked.load(Ordering::Relaxed));
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let is_due = now.saturating_sub(looked) >= LOOK_EVERY.as_nanos() as u64;
        // Whoever loses the race leaves the look to the other.
        if !is_due || self.looked.compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let seconds = Duration::from_nanos(now.saturating_sub(looked)).as_secs_f64();
        let left = FADING.powf(seconds);
        let fade = |of: &AtomicU64| {
            let faded = |bytes: u64| (bytes as f64 * left) as u64;
            faded(of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bytes| Some(faded(bytes))).unwrap_or(0))
        };
        let spared = (fade(&self.spared.by_pages), fade(&self.spared.by_buffers));
        let aim = self.buffered_aim();
        let written = self.written_bytes();
        let unwritten = budget.used(Class::Buffers).saturating_sub(written);
        let next = next_aim(self.limit, aim, spared, unwritten, most_buffered(budget).saturating_sub(written));
        if next != aim {
            self.aim.store(next, Ordering::Relaxed);
        }
    }

    fn more(&self) -> u64 {
        self.limit / MORE_SHARE
    }

    /// Less than so much has left since.
    fn is_near(&self, then: LeftAt, now: &AtomicU64) -> bool {
        let distance = left_at(now.load(Ordering::Relaxed)).0.wrapping_sub(then.0);
        then != LeftAt::default() && u64::from(distance) <= self.more() >> KIB_BITS
    }
}

const KIB_BITS: u32 = 10;

fn left_at(bytes: u64) -> LeftAt {
    // Not 0, which stands for never.
    LeftAt(((bytes >> KIB_BITS) as u32).max(1))
}

/// As much as may be buffered: with the wall of the controller above, what pages have for themselves, and all else as it is now, it fits.
fn most_buffered(budget: &Budget) -> u64 {
    let limit = budget.limit();
    let other = |class: &&Class| !matches!(class, Class::Frames | Class::Buffers);
    let used: u64 = Class::ALL.iter().filter(other).map(|class| budget.used(*class)).sum();
    let least_of_pages = limit / 8;
    (limit / MOST_SHARE).min(limit.saturating_sub(least_of_pages + limit / WALL_SHARE + used))
}

/// The aim after `aim`, where more memory would have spared so much, for pages and for what is buffered, of which `buffered` is not written now, and
/// may be `most`.
fn next_aim(limit: u64, aim: u64, (by_pages, by_buffers): (u64, u64), buffered: u64, most: u64) -> u64 {
    let is_more = |one: u64, other: u64| one > other + other / 4 && one > limit / WORTH_SHARE;
    let (step, least) = (limit / STEP_SHARE, limit / LEAST_SHARE);
    if is_more(by_pages, by_buffers) || aim > most {
        // What is above the aim is a debt: it does not grow at once.
        let fall = if buffered > aim + step / 4 { step / 4 } else { step };
        aim.saturating_sub(fall).max(least)
    } else if is_more(by_buffers, by_pages) && buffered > aim / 4 {
        (aim + step).min(most.max(least))
    } else {
        aim
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LIMIT: u64 = 512 * MIB;

    #[test]
    fn the_aim_goes_where_more_is_spared_and_stays_between_its_floors() {
        let (mut aim, most) = (LIMIT / 4, LIMIT / 2);
        for _ in 0..100 {
            aim = next_aim(LIMIT, aim, (10 * MIB, 20 * MIB), aim, most);
        }
        assert_eq!(aim, LIMIT / 2);
        let first = next_aim(LIMIT, aim, (20 * MIB, 10 * MIB), aim, most);
        assert_eq!(first, LIMIT / 2 - LIMIT / 64);
        // While what was buffered is flushed, little more falls due.
        assert_eq!(next_aim(LIMIT, first, (20 * MIB, 10 * MIB), aim, most), first - LIMIT / 256);
        for _ in 0..100 {
            aim = next_aim(LIMIT, aim, (20 * MIB, 10 * MIB), aim, most);
        }
        assert_eq!(aim, LIMIT / 4);
        // Neither little more, nor little, nor for who does not take what there is.
        let third = LIMIT / 3;
        assert_eq!(next_aim(LIMIT, third, (10 * MIB, 12 * MIB), third, most), third);
        assert_eq!(next_aim(LIMIT, third, (12 * MIB, 10 * MIB), third, most), third);
        assert_eq!(next_aim(LIMIT, third, (0, 2 * MIB), third, most), third);
        assert_eq!(next_aim(LIMIT, third, (0, 20 * MIB), LIMIT / 16, most), third);
        assert_eq!(next_aim(0, 0, (20, 10), 0, 0), 0);
    }

    #[test]
    fn the_wall_of_the_controller_stays_within_the_budget() {
        let most = LIMIT / 3;
        let aim = next_aim(LIMIT, most, (0, 20 * MIB), most, most);
        assert_eq!(aim, most);
        assert!(next_aim(LIMIT, LIMIT / 2, (0, 20 * MIB), LIMIT / 2, most) < LIMIT / 2);
        // Also while it is passed, for what others took is not there.
        assert!(next_aim(LIMIT, LIMIT / 2, (0, 20 * MIB), LIMIT, most) < LIMIT / 2);
        assert_eq!(next_aim(LIMIT, LIMIT / 4, (0, 20 * MIB), LIMIT / 4, 0), LIMIT / 4);
    }

    #[test]
    fn what_others_hold_is_not_there_for_messages() {
        let budget = Budget::new(LIMIT);
        let _pages = budget.charge(Class::Frames, LIMIT / 2);
        let _messages = budget.charge(Class::Buffers, LIMIT / 4);
        assert_eq!(most_buffered(&budget), LIMIT / 2);
        let _sets = budget.charge(Class::WriteSets, LIMIT / 8);
        let _log = budget.charge(Class::Log, LIMIT / 16);
        assert_eq!(most_buffered(&budget), LIMIT - LIMIT / 8 - LIMIT / 4 - LIMIT / 8 - LIMIT / 16);
        let _work = budget.charge(Class::Work, LIMIT);
        assert_eq!(most_buffered(&budget), 0);
    }

    #[test]
    fn what_left_too_long_ago_spares_nothing() {
        let balance = Balance::new(LIMIT);
        let page = balance.note_evicted(64 << 10);
        balance.note_evicted(LIMIT / 16);
        balance.note_page_read(page, 1000);
        assert_eq!(balance.spared(), (1000, 0));
        balance.note_evicted(1024);
        balance.note_page_read(page, 1000);
        balance.note_page_read(LeftAt::default(), 1000);
        assert_eq!(balance.spared(), (1000, 0));
        // Messages have a distance of their own.
        let messages = balance.note_flushed(1 << 20);
        balance.note_messages_read(messages, 500);
        balance.note_flushed(LIMIT);
        balance.note_messages_read(messages, 500);
        assert_eq!(balance.spared(), (1000, 500));
    }

    #[test]
    fn the_later_mark_counts_also_where_marks_come_around() {
        let (never, old, new, around) = (LeftAt::default(), LeftAt(u32::MAX - 5), LeftAt(u32::MAX), LeftAt(3));
        for (earlier, later) in [(never, old), (old, new), (new, around), (old, around), (never, never), (new, new)] {
            assert_eq!((earlier.later(later), later.later(earlier)), (later, later), "{earlier:?} and {later:?}");
        }
    }

    #[test]
    fn distances_hold_where_their_marks_come_around() {
        let balance = Balance::new(LIMIT);
        balance.evicted.store((4 << 40) - MIB, Ordering::Relaxed);
        let page = balance.note_evicted(64 << 10);
        balance.note_evicted(2 * MIB);
        balance.note_page_read(page, 1000);
        assert_eq!(balance.spared(), (1000, 0));
        balance.note_evicted(LIMIT);
        balance.note_page_read(page, 1000);
        assert_eq!(balance.spared(), (1000, 0));
    }

    #[test]
    fn merges_are_spared_less_the_more_memory_there_is() {
        let spared_at = |aim: u64, data: u64| {
            let balance = Balance::new(LIMIT);
            balance.aim.store(aim, Ordering::Relaxed);
            balance.note_merged(100 * MIB, data);
            balance.spared().1
        };
        let (little, much) = (spared_at(LIMIT / 8, 8 * LIMIT), spared_at(LIMIT / 2, 8 * LIMIT));
        // 200 MiB · (1/16) / ((1/8) · ln 64), and of a half, ln 16.
        assert!((23 * MIB..25 * MIB).contains(&little), "{little}");
        assert!((8 * MIB..10 * MIB).contains(&much), "{much}");
        assert!(spared_at(LIMIT / 4, LIMIT) > spared_at(LIMIT / 4, 100 * LIMIT));
    }
}
