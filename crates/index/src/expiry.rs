//! When the versions of an index expire: so many seconds after their commit, as if each had been deleted then.
//!
//! A commit timestamp is a position in the log, not a time. A [`Tick`] is what a clock said at a position: *what was committed at or below
//! `through` was committed before `ms`*. Somebody reads the clock now and then, and commits the tick durably ([`Expiry::next`],
//! [`Expiry::take`]). Of these a reader needs one number: **the cut**, the highest timestamp at or below which everything has expired for him.
//! So a version is seen if it lies above the cut and at or below the snapshot, and whatever it hides has expired with it.
//!
//! Rules:
//! 1. A version never expires before its time: a tick's `through` is read before its clock.
//! 2. A snapshot's cut is fixed: it follows from the last tick that was committed at or below the snapshot. A tick is known before any
//!    snapshot can have it, since it is taken before its commit is marked applied.
//!    Who reads the newest goes by the last tick that is visible, as a snapshot taken now would: were it the last that is taken, he would miss a row
//!    that a snapshot behind him finds [A17].
//! 3. Cuts only ascend, from snapshot to snapshot, whatever the clock does.
//! 4. **What has expired for anybody stays so behind a crash.** The moment that a tick lets readers go by is that of the tick *before*, which was
//!    durable when this one was written. Whatever is lost of the log, who opens it finds that one, and goes by its moment from the start:
//!    the cut is the same or higher. Schedule that asks for it: tick 7 is committed, not durable, and goes by its own clock; a reader misses
//!    a row; the machine stops, tick 7 is lost; the clock is set back by a day; the row is there again.
//! 5. What lies at or below the cut of every reader may be dropped in any order: a merge that drops a delete and leaves the older put that it hid
//!    changes nothing for anybody.

use std::sync::Arc;

use base::bytes::{Reader, put_varint};
use base::{CommitTs, GcView};
use store::{EpochCell, epoch};
use vfs::sync::Mutex;

use crate::ReadAt;

/// A tick for each of so many parts of the time that a version lives; twice as late it has expired, at most.
const TICKS_PER_TTL: u64 = 64;
/// Not more often than that, in milliseconds.
const TICK_MS_MIN: u64 = 250;
/// Behind that many a last tick waits for its time as others do: who opens and closes all the time makes no long list.
const SAMPLES_MAX: usize = 4 * TICKS_PER_TTL as usize;
const FORMAT: u8 = 1;

/// True if a version is not there for a reader with this cut; nothing has expired by cut 0.
#[must_use]
pub fn has_expired(ts: CommitTs, cut: CommitTs) -> bool {
    ts <= cut && cut > CommitTs::ZERO
}

/// What was committed at or below `through` was committed before `ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    through: CommitTs,
    /// Milliseconds since 1970.
    ms: u64,
}

/// What is committed of the clock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tick {
    /// What the clock said, in milliseconds since 1970; never less than the tick before.
    ms: u64,
    /// From this tick on nobody sees anything at or below.
    cut: CommitTs,
    /// Above the cut, ascending in both.
    samples: Vec<Sample>,
}

impl Tick {
    /// The bytes that are committed.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        put_varint(&mut out, self.ms);
        put_varint(&mut out, self.cut.0);
        put_varint(&mut out, self.samples.len() as u64);
        let mut before = Sample { through: self.cut, ms: 0 };
        for sample in &self.samples {
            put_varint(&mut out, sample.through.0 - before.through.0);
            put_varint(&mut out, sample.ms - before.ms);
            before = *sample;
        }
        out
    }

    /// None if they are not a tick's.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        if r.u8()? != FORMAT {
            return None;
        }
        let mut tick = Self { ms: r.varint()?, cut: CommitTs(r.varint()?), samples: Vec::new() };
        let mut before = Sample { through: tick.cut, ms: 0 };
        for _ in 0..r.varint()? {
            let through = before.through.0.checked_add(r.varint()?)?;
            let ms = before.ms.checked_add(r.varint()?)?;
            if through == before.through.0 || ms > tick.ms {
                return None;
            }
            before = Sample { through: CommitTs(through), ms };
            tick.samples.push(before);
        }
        r.is_empty().then_some(tick)
    }

    /// What the clock said, in milliseconds since 1970.
    #[must_use]
    pub fn ms(&self) -> u64 {
        self.ms
    }

    /// What has expired at its own moment.
    fn cut_at_its_moment(&self, ttl_ms: u64) -> CommitTs {
        let expired = self.samples.partition_point(|sample| sample.ms.saturating_add(ttl_ms) <= self.ms);
        expired.checked_sub(1).map_or(self.cut, |last| self.samples[last].through)
    }
}

#[derive(Debug, Clone, Default)]
struct Moments {
    /// (from, cut): who reads at or above `from`, and below the next one's, has this cut. Ascending in both; the first is from 0 on until
    /// nobody is left who reads below the second.
    cuts: Vec<(CommitTs, CommitTs)>,
    last: Tick,
}

impl Moments {
    /// Of a moment from before all cuts that are left, the first: nobody reads as of that.
    fn at(&self, ts: CommitTs) -> (CommitTs, CommitTs) {
        let known = self.cuts.partition_point(|(from, _)| *from <= ts);
        self.cuts[..known].last().or(self.cuts.first()).copied().unwrap_or_default()
    }
}

/// Since when which versions of one index have expired.
pub struct Expiry {
    ttl_seconds: u64,
    /// Who reads it writes no line that others read.
    moments: EpochCell<Arc<Moments>>,
    /// Held by who replaces `moments`.
    changing: Mutex<()>,
    /// The newest moment that a snapshot may be taken at.
    visible: Visible,
}

/// The newest moment that a snapshot may be taken at.
pub type Visible = Box<dyn Fn() -> CommitTs + Send + Sync>;

impl std::fmt::Debug for Expiry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Expiry").field("ttl_seconds", &self.ttl_seconds).finish_non_exhaustive()
    }
}

impl Expiry {
    /// Of an index whose versions live for so long, and of which no tick is known; whatever is applied is visible.
    #[must_use]
    pub fn new(ttl_seconds: u64) -> Arc<Self> {
        Self::beside(ttl_seconds, Box::new(|| CommitTs::MAX))
    }

    /// The same beside others: what is visible is asked for.
    #[must_use]
    pub fn beside(ttl_seconds: u64, visible: Visible) -> Arc<Self> {
        let moments = Moments { cuts: vec![(CommitTs::ZERO, CommitTs::ZERO)], last: Tick::default() };
        Arc::new(Self { ttl_seconds, moments: EpochCell::new(Arc::new(moments)), changing: Mutex::new(()), visible })
    }

    /// How long a version lives, in seconds.
    #[must_use]
    pub fn ttl_seconds(&self) -> u64 {
        self.ttl_seconds
    }

    fn ttl_ms(&self) -> u64 {
        self.ttl_seconds.saturating_mul(1000)
    }

    fn now(&self) -> Arc<Moments> {
        self.moments.load(&epoch::pin()).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Moments)) {
        let _one = self.changing.lock();
        let mut next = Moments::clone(self.moments.load(&epoch::pin()));
        change(&mut next);
        vfs::thread::point("expiry.changed");
        self.moments.replace(Arc::new(next));
    }

    /// The last tick that is known when the database is opened; before anybody reads.
    pub fn restore(&self, tick: Tick) {
        // Rule 4: by its own moment.
        let cut = tick.cut_at_its_moment(self.ttl_ms());
        self.change(|moments| *moments = Moments { cuts: vec![(CommitTs::ZERO, cut)], last: tick });
    }

    /// The cut of a reader: he sees nothing at or below it.
    #[must_use]
    pub fn cut(&self, at: ReadAt) -> CommitTs {
        match at {
            ReadAt::Newest => self.newest().1,
            ReadAt::Snapshot(ts) => self.at(ts).1,
        }
    }

    /// The cut of who reads the newest, and from which snapshot on it holds.
    #[must_use]
    pub fn newest(&self) -> (CommitTs, CommitTs) {
        // Behind the cuts: asked before, it may lie below all that are left when these are read. A tick that comes between is simply not there yet.
        let moments = self.now();
        vfs::thread::point("expiry.moments_read");
        let visible = (self.visible)();
        moments.at(visible)
    }

    fn at(&self, ts: CommitTs) -> (CommitTs, CommitTs) {
        let guard = epoch::pin();
        self.moments.load(&guard).at(ts)
    }

    /// The cut that everybody has whom a view knows of, or a higher one.
    #[must_use]
    pub fn cut_of_all(&self, view: &GcView) -> CommitTs {
        // The view may be older than one by which cuts were forgotten: then nobody has them.
        self.at(view.oldest()).1
    }

    /// The same without a view: no reader has a lower one.
    #[must_use]
    pub fn least(&self) -> CommitTs {
        self.now().cuts.first().copied().unwrap_or_default().1
    }

    /// The clock of the last tick, in milliseconds since 1970; 0 if there was none.
    #[must_use]
    pub fn last_ms(&self) -> u64 {
        self.now().last.ms
    }

    /// True if a tick is due: time has passed, or the last one is durable now and something has expired at its moment.
    #[must_use]
    pub fn is_due(&self, now_ms: u64) -> bool {
        let last = &self.now().last;
        now_ms >= last.ms.saturating_add(self.tick_ms()) || last.cut_at_its_moment(self.ttl_ms()) > last.cut
    }

    fn tick_ms(&self) -> u64 {
        (self.ttl_ms() / TICKS_PER_TTL).max(TICK_MS_MIN)
    }

    /// True if something expires by this tick, or by the one behind it: it is how space comes back.
    #[must_use]
    pub fn is_worth_space(&self, tick: &Tick) -> bool {
        tick.cut > self.now().last.cut || tick.cut_at_its_moment(self.ttl_ms()) > tick.cut
    }

    /// The next tick, to be committed: the one before is durable. `through` was the log's end before the clock said `now_ms`. The last one for
    /// a while says so of all there is, also right behind the one before.
    #[must_use]
    pub fn next(&self, through: CommitTs, now_ms: u64, is_last: bool) -> Tick {
        let last = &self.now().last;
        let (ms, cut) = (now_ms.max(last.ms), last.cut_at_its_moment(self.ttl_ms()));
        let mut samples = last.samples.clone();
        samples.retain(|sample| sample.through > cut);
        let newest = samples.last().copied();
        let is_last = is_last && samples.len() < SAMPLES_MAX;
        let is_news =
            |newest: Sample| through > newest.through && (is_last || ms >= newest.ms.saturating_add(self.tick_ms()));
        if through > cut && newest.is_none_or(is_news) {
            samples.push(Sample { through, ms });
        }
        Tick { ms, cut, samples }
    }

    /// A tick has its place in the log, `from`, and is not marked applied (rule 2).
    pub fn take(&self, from: CommitTs, tick: Tick) {
        self.change(|moments| {
            let before = moments.cuts.last().map_or(CommitTs::ZERO, |(_, cut)| *cut);
            if tick.cut > before {
                moments.cuts.push((from, tick.cut));
            }
            moments.last = tick;
        });
    }

    /// Forgets cuts that nobody has any more, by a view.
    pub fn trim(&self, view: &GcView) {
        let is_used = |cuts: &[(CommitTs, CommitTs)], i: usize| {
            let Some((next, _)) = cuts.get(i + 1) else { return true };
            let at = view.snapshots().partition_point(|snapshot| *snapshot < cuts[i].0);
            *next > view.floor() || view.snapshots().get(at).is_some_and(|snapshot| snapshot < next)
        };
        let cuts = &self.now().cuts;
        if (0..cuts.len()).all(|i| is_used(cuts, i)) {
            return;
        }
        self.change(|moments| {
            let cuts = std::mem::take(&mut moments.cuts);
            moments.cuts = (0..cuts.len()).filter(|i| is_used(&cuts, *i)).map(|i| cuts[i]).collect();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(n: u64) -> CommitTs {
        CommitTs(n)
    }

    /// Ticks at these (from, clock in seconds); commits lie at all timestamps below.
    fn ticked(expiry: &Expiry, ticks: &[(u64, u64)]) {
        for (from, seconds) in ticks {
            expiry.take(ts(*from), expiry.next(ts(from - 1), seconds * 1000, false));
        }
    }

    #[test]
    fn nothing_expires_before_its_time_and_everything_soon_after() {
        let expiry = Expiry::new(100);
        ticked(&expiry, &[(100, 1000), (200, 1010), (300, 1099), (400, 1100)]);
        assert_eq!(expiry.cut(ReadAt::Newest), ts(0), "the tick before was 1 s short");
        assert!(expiry.is_due(1_100_001), "something has expired at the moment that is durable now");
        ticked(&expiry, &[(500, 1100)]);
        assert_eq!(expiry.cut(ReadAt::Newest), ts(99), "what the first tick has below");
        assert!(!expiry.is_due(1_100_001));
        assert_eq!(expiry.cut(ReadAt::Snapshot(ts(499))), ts(0), "a snapshot from before keeps its moment");
        assert_eq!(expiry.cut(ReadAt::Snapshot(ts(500))), ts(99));
        assert!(has_expired(ts(99), ts(99)) && !has_expired(ts(100), ts(99)) && !has_expired(ts(0), ts(0)));
    }

    /// What is committed of it can be read again, is short, and cuts ascend, whatever comes between ticks. Guards, in `next`: samples at or below the cut go;
    /// those of nothing new, of what lies below the cut, and those that come too early are none; of last ticks there are so many. In `take`: cuts that say the same.
    #[test]
    fn ticks_are_sound_and_short_whatever_the_clock_says() {
        let mut rng = vfs::random::Rng::new(9);
        for seed in 0..30 {
            let (expiry, mut end, mut clock, mut longest) = (Expiry::new(10), 0, 1_000_000, 0);
            // In some of them each tick is the last for a while.
            let last_of = [1, 2, 1000][seed % 3];
            for _ in 0..1000 {
                end += 16 * rng.below(3);
                clock = match rng.below(1000) {
                    0..5 => clock - rng.below(5000),
                    5..8 => clock + 20_000,
                    8..200 => clock + rng.below(300),
                    _ => clock,
                };
                let tick = expiry.next(ts(end), clock, rng.below(last_of) == 0);
                assert_eq!(Tick::decode(&tick.encode()), Some(tick.clone()));
                assert!(tick.samples.is_sorted_by(|a, b| a.through < b.through && a.ms <= b.ms), "{tick:?}");
                assert!(tick.samples.first().is_none_or(|first| first.through > tick.cut), "{tick:?}");
                longest = longest.max(tick.samples.len());
                end += 16 * rng.below(2);
                expiry.take(ts(end), tick);
                let cuts = expiry.now().cuts.clone();
                assert!(cuts.is_sorted_by(|a, b| a.1 < b.1), "{cuts:?}");
            }
            // Past so many of last ticks come those whose time has come.
            let most = TICKS_PER_TTL as usize + if last_of == 1000 { 16 } else { SAMPLES_MAX };
            assert!((10..=most).contains(&longest), "{longest} samples; of {last_of} ticks one is the last");
        }
    }

    /// Guard: `ms` of a tick is at least that of the tick before.
    #[test]
    fn a_clock_that_is_set_back_brings_nothing_back() {
        let expiry = Expiry::new(10);
        ticked(&expiry, &[(100, 1000), (200, 1020), (300, 1020)]);
        assert_eq!(expiry.cut(ReadAt::Newest), ts(99));
        ticked(&expiry, &[(400, 3), (500, 4)]);
        assert_eq!((expiry.last_ms(), expiry.cut(ReadAt::Newest)), (1_020_000, ts(99)));
        let again = Expiry::new(10);
        again.restore(Tick::decode(&expiry.now().last.encode()).expect("decodes"));
        assert!(again.cut(ReadAt::Newest) >= ts(99));
    }

    /// A tick that has its place and is not visible yet is no reader's. Guard: `visible` in [`Expiry::newest`].
    #[test]
    fn who_reads_the_newest_is_not_ahead_of_who_takes_a_snapshot() {
        let visible = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let asked = visible.clone();
        let expiry = Expiry::beside(10, Box::new(move || ts(asked.load(std::sync::atomic::Ordering::Acquire))));
        ticked(&expiry, &[(100, 1000), (200, 1020), (300, 1020)]);
        assert_eq!((expiry.cut(ReadAt::Newest), expiry.newest()), (ts(0), (ts(0), ts(0))));
        visible.store(299, std::sync::atomic::Ordering::Release);
        assert_eq!(expiry.cut(ReadAt::Newest), expiry.cut(ReadAt::Snapshot(ts(299))));
        visible.store(300, std::sync::atomic::Ordering::Release);
        assert_eq!(expiry.newest(), (ts(300), ts(99)));
    }

    /// Rule 4, by every prefix of the ticks that may be left of a log of which all but the last tick was durable. Guard: `Expiry::restore` goes by
    /// the tick's own moment; a tick by the moment of the one before.
    #[test]
    fn whatever_is_lost_the_cut_is_no_lower() {
        let (expiry, mut durable) = (Expiry::new(10), Tick::default());
        let mut clock = 1000;
        for n in 1..200u64 {
            clock += [1, 3, 20, 0, 0][n as usize % 5];
            let tick = expiry.next(ts(n * 100 - 1), clock * 1000, false);
            expiry.take(ts(n * 100), tick.clone());
            let seen = expiry.cut(ReadAt::Newest);
            let left = Expiry::new(10);
            left.restore(durable);
            assert!(left.cut(ReadAt::Snapshot(ts(1 << 40))) >= seen, "tick {n} is lost");
            durable = tick;
        }
        assert!(expiry.cut(ReadAt::Newest) > ts(10_000));
        assert!(durable.samples.len() <= 64, "{}", durable.samples.len());
    }

    #[test]
    fn cuts_are_forgotten_when_nobody_has_them() {
        let expiry = Expiry::new(10);
        for n in 1..50u64 {
            ticked(&expiry, &[(n * 100, 1000 + 5 * n)]);
        }
        let cut_of = |at: u64| expiry.cut(ReadAt::Snapshot(ts(at)));
        let (old, floor) = (cut_of(2050), cut_of(4000));
        let count = expiry.now().cuts.len();
        expiry.trim(&GcView::new(ts(4000), vec![ts(2050)]));
        assert!(expiry.now().cuts.len() < count / 2);
        assert_eq!((cut_of(2050), cut_of(4000)), (old, floor));
        assert_eq!(expiry.cut_of_all(&GcView::new(ts(4000), vec![ts(2050)])), old);
        assert_eq!(expiry.least(), old);
    }

    #[test]
    fn a_tick_comes_back_and_damage_is_found() {
        let expiry = Expiry::new(1000);
        ticked(&expiry, &[(100, 1000), (200, 1020), (300, 1040)]);
        let tick = expiry.now().last.clone();
        let bytes = tick.encode();
        assert_eq!(Tick::decode(&bytes), Some(tick));
        for cut in 0..bytes.len() {
            assert_eq!(Tick::decode(&bytes[..cut]), None, "{cut}");
        }
        let of = |through, ms| Tick { ms: 5, cut: ts(7), samples: vec![Sample { through: ts(through), ms }] }.encode();
        assert!(Tick::decode(&of(8, 5)).is_some());
        assert_eq!(
            (Tick::decode(&of(7, 5)), Tick::decode(&of(8, 6))),
            (None, None),
            "not above the cut; behind the clock"
        );
    }
}
