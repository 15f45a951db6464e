//! What couples the inserter and the deleter of a client, and what paces them.
//!
//! The original has a statement maker that feeds two queues of depth 8, so that inserter and deleter stay within 8
//! statements of each other and a paced maker gives a stalled worker 8 statements of credit, not more. Making a row
//! takes nanoseconds here, so the inserter makes its own statements before its clock starts, and the feed keeps only
//! the counting:
//!
//! 1. Without a pace, a worker may take its next statement unless it is 8 ahead of the other one. A worker that had
//!    to wait goes on when it is at most 4 ahead, so that it is not woken for every statement.
//! 2. With a pace, a maker thread releases statements: `K = max(1, ceil(rate / rows))` of them, then, if the second
//!    is not over, it sleeps to its end. It waits while one of the workers is 8 behind. Time lost is not caught up:
//!    a late second starts the next one.
//! 3. The feed ends after the planned number of statements, or when it is closed.
//!
//! **Intended starts.** Statement `j` of a second is meant to start `j/K` seconds into it, although the burst issues
//! it earlier; lateness counts from there. Statements that were never issued, because a late second was not caught
//! up, are counted as if each had waited from its own intended start until the maker went on ([`Pace::lost`]).
//!
//! Latch: one mutex, held for a few instructions. One feed a client, two workers and a maker.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use lab_measure::clock::SECOND_NS;
use lab_measure::thread_time::{Doing, timed};
use lab_measure::{Clock, Latency};

/// How far one worker may be ahead of the other, and the maker ahead of both.
pub const DEPTH: u64 = 8;
const RESUME: u64 = DEPTH / 2;
/// A second shorter than this is filled up with sleep.
const SHORT_SECOND_NS: u64 = 950_000_000;

/// Which worker asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The inserter.
    Insert,
    /// The deleter.
    Delete,
}

/// Invariants: `taken[side] <= total`; with a pace `taken[side] <= made <= min(taken) + DEPTH`;
/// without one `|taken[0] - taken[1]| <= DEPTH` when there is a deleter.
#[derive(Debug)]
struct Counts {
    taken: [u64; 2],
    made: u64,
    intended_ns: [u64; 2 * DEPTH as usize],
    closed: bool,
    waiting: [bool; 2],
}

/// The feed of one client.
#[derive(Debug)]
pub struct Feed {
    total: u64,
    paced: bool,
    with_deletes: bool,
    counts: Mutex<Counts>,
    changed: Condvar,
}

impl Feed {
    /// A feed of `total` statements each way.
    #[must_use]
    pub fn new(total: u64, paced: bool, with_deletes: bool) -> Feed {
        let counts =
            Counts { taken: [0; 2], made: 0, intended_ns: [0; 2 * DEPTH as usize], closed: false, waiting: [false; 2] };
        Feed { total, paced, with_deletes, counts: Mutex::new(counts), changed: Condvar::new() }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("no thread panics while it counts")
    }

    fn wait<'a>(&self, counts: MutexGuard<'a, Counts>) -> MutexGuard<'a, Counts> {
        timed(Doing::Partner, || self.changed.wait(counts).expect("no thread panics while it counts"))
    }

    /// The next statement of a side: its intended start in rate mode; `None` when there is no more.
    pub fn next(&self, side: Side) -> Option<Option<u64>> {
        let (own, other) = (side as usize, 1 - side as usize);
        let mut counts = self.counts();
        let mut allowed_ahead = DEPTH;
        loop {
            if counts.closed || counts.taken[own] == self.total {
                return None;
            }
            let ahead = counts.taken[own].saturating_sub(counts.taken[other]);
            let free =
                if self.paced { counts.taken[own] < counts.made } else { !self.with_deletes || ahead < allowed_ahead };
            if free {
                break;
            }
            allowed_ahead = RESUME + 1;
            counts.waiting[own] = true;
            counts = self.wait(counts);
        }
        counts.waiting[own] = false;
        let statement = counts.taken[own];
        counts.taken[own] += 1;
        let intended = self.paced.then(|| counts.intended_ns[statement as usize % (2 * DEPTH as usize)]);
        let other_ahead = counts.taken[other].saturating_sub(counts.taken[own]);
        let wake = self.paced || (counts.waiting[other] && other_ahead <= RESUME);
        drop(counts);
        if wake {
            self.changed.notify_all();
        }
        Some(intended)
    }

    /// Releases one more statement; false when the feed is closed or all are released.
    fn release(&self, intended_ns: u64) -> bool {
        let mut counts = self.counts();
        loop {
            if counts.closed || counts.made == self.total {
                return false;
            }
            let deleted = if self.with_deletes { counts.taken[1] } else { counts.made };
            if counts.made - counts.taken[0].min(deleted) < DEPTH {
                break;
            }
            counts = self.wait(counts);
        }
        let place = counts.made as usize % (2 * DEPTH as usize);
        counts.intended_ns[place] = intended_ns;
        counts.made += 1;
        drop(counts);
        self.changed.notify_all();
        true
    }

    /// Ends the feed early; everyone who waits goes home.
    pub fn close(&self) {
        self.counts().closed = true;
        self.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        self.counts().closed
    }
}

/// The pace of one client.
#[derive(Debug)]
pub struct Pace {
    statements_per_second: u64,
    /// Lateness of the statements that were never issued.
    pub lost: Latency,
    /// Seconds that were late.
    pub late_seconds: u64,
}

impl Pace {
    /// The pace of `rows_per_second` in statements of `rows`.
    #[must_use]
    pub fn new(rows_per_second: u64, rows: u32) -> Pace {
        let statements_per_second = rows_per_second.div_ceil(u64::from(rows.max(1))).max(1);
        Pace { statements_per_second, lost: Latency::default(), late_seconds: 0 }
    }

    /// The maker: releases the statements of `feed` second by second from `start_ns` on.
    pub fn run(&mut self, feed: &Feed, clock: &Clock, start_ns: u64) {
        let interval_ns = SECOND_NS / self.statements_per_second;
        let mut second_ns = start_ns;
        let mut issued = 0;
        while feed.release(second_ns + (issued % self.statements_per_second) * interval_ns) {
            issued += 1;
            if issued % self.statements_per_second == 0 {
                second_ns = self.end_second(feed, clock, second_ns);
            }
        }
    }

    /// Sleeps to the end of the second that began at `second_ns`, or counts what was lost; returns where the next
    /// one begins.
    fn end_second(&mut self, feed: &Feed, clock: &Clock, second_ns: u64) -> u64 {
        let now_ns = clock.now_ns();
        let length_ns = now_ns - second_ns;
        if length_ns < SHORT_SECOND_NS {
            let end_ns = second_ns + SECOND_NS;
            sleep_until(clock, end_ns, || feed.is_closed());
            return end_ns;
        }
        if length_ns > SECOND_NS {
            self.late_seconds += 1;
            let interval_ns = (SECOND_NS / self.statements_per_second).max(1);
            let mut late_ns = length_ns - SECOND_NS;
            while late_ns >= interval_ns {
                self.lost.record(late_ns);
                late_ns -= interval_ns;
            }
        }
        now_ns
    }
}

/// Sleeps until `until_ns`, in slices so that `stop` is noticed.
pub fn sleep_until(clock: &Clock, until_ns: u64, stop: impl Fn() -> bool) {
    const SLICE_NS: u64 = 50_000_000;
    loop {
        let now_ns = clock.now_ns();
        if now_ns >= until_ns || stop() {
            return;
        }
        std::thread::sleep(Duration::from_nanos((until_ns - now_ns).min(SLICE_NS)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering};

    #[test]
    fn inserter_and_deleter_stay_within_eight_statements() {
        let feed = Feed::new(20_000, false, true);
        let (balance, widest) = (AtomicI64::new(0), AtomicI64::new(0));
        std::thread::scope(|scope| {
            for (side, step) in [(Side::Insert, 1), (Side::Delete, -1)] {
                let (feed, balance, widest) = (&feed, &balance, &widest);
                scope.spawn(move || {
                    let mut taken = 0u32;
                    while feed.next(side).is_some() {
                        let now = balance.fetch_add(step, Ordering::SeqCst) + step;
                        widest.fetch_max(now.abs(), Ordering::SeqCst);
                        taken += 1;
                        if side == Side::Delete && taken.is_multiple_of(64) {
                            std::thread::yield_now();
                        }
                    }
                    assert_eq!(taken, 20_000);
                });
            }
        });
        assert_eq!(balance.into_inner(), 0);
        // A thread may be between its take and its count, so one more than the depth can be seen on each side.
        assert!(widest.into_inner() <= DEPTH as i64 + 1);
    }

    #[test]
    fn without_a_deleter_nothing_waits_and_close_ends_it() {
        let feed = Feed::new(100, false, false);
        assert!((0..100).all(|_| feed.next(Side::Insert) == Some(None)));
        assert_eq!(feed.next(Side::Insert), None);
        let feed = Feed::new(100, true, true);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| feed.next(Side::Insert));
            feed.close();
            assert_eq!(waiting.join().unwrap(), None);
        });
    }

    #[test]
    fn the_pace_holds_and_the_last_second_is_full() {
        let feed = Feed::new(6, true, false);
        let clock = Clock::start();
        let mut pace = Pace::new(150, 50);
        assert_eq!(pace.statements_per_second, 3);
        let intended: Vec<u64> = std::thread::scope(|scope| {
            let worker = scope.spawn(|| std::iter::from_fn(|| feed.next(Side::Insert)).flatten().collect());
            pace.run(&feed, &clock, 0);
            worker.join().unwrap()
        });
        let third = SECOND_NS / 3;
        assert_eq!(intended, [0, third, 2 * third, SECOND_NS, SECOND_NS + third, SECOND_NS + 2 * third]);
        let took = clock.now_ns();
        assert!((2 * SECOND_NS..2 * SECOND_NS + SECOND_NS / 2).contains(&took), "{took}");
        assert_eq!(pace.lost.count(), 0);
    }

    #[test]
    fn lost_time_is_counted_not_caught_up() {
        let feed = Feed::new(12, true, false);
        let clock = Clock::start();
        let mut pace = Pace::new(500, 50);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _first = feed.next(Side::Insert);
                std::thread::sleep(Duration::from_millis(1_300));
                while feed.next(Side::Insert).is_some() {}
            });
            pace.run(&feed, &clock, 0);
        });
        // The second of ten statements took 1.3 s: about three intervals of 100 ms were lost.
        assert_eq!(pace.late_seconds, 1);
        assert!((2..=4).contains(&pace.lost.count()), "{}", pace.lost.count());
    }

    #[test]
    fn a_rate_below_one_statement_is_one_statement_a_second() {
        assert_eq!(Pace::new(10, 50).statements_per_second, 1);
        assert_eq!(Pace::new(1_000, 50).statements_per_second, 20);
    }
}
