//! The write controller (ENGINE.md section 8, decision D11): how fast commits are admitted.
//!
//! Debt is background writing that is needed to return to shape. Each kind of it has a *lag*: 10 s when it is as much as is
//! allowed, in proportion below, so that it says how near the wall is.
//!
//! | kind | debt | allowed | r |
//! |---|---|---|---|
//! | `runs` | memory of runs that are not drained; their number; that of deleted ranges | an eighth of the budget; 512; 4096 | bytes committed less what they added to the runs |
//! | `buffers` | memory of messages, and of memtables that is not written yet, above what is flushed at (`store::balance`) | a quarter of the budget | bytes committed less what they added to the messages |
//! | `drains` | messages on disk above what is there while one node after the other is drained (`tree::filling`) | as much again, 64 MiB | such messages drained, as bytes of commits |
//! | `dirty` | dirty leaves above what write-back aims at | what is left of the budget | bytes written to the data file, as bytes of commits |
//! | `log` | log behind the last checkpoint, above three quarters (a small log: the half), one is due at the half | the rest of the log | bytes committed while nothing was limited |
//! | `gc` | leaves to be unlinked, merged or collected, as pages | what lives in the data file, 64 MiB; or ten times a limit that was set | such pages paid, as bytes of commits |
//! | `space` | dead bytes that cleaning can win, above half of what lives | twice what lives; 128 MiB | bytes moved by cleaning, as bytes of commits |
//!
//! The worst lag decides ([`admitted`]): below 1 s nothing is limited; from 1 s to 2 s admission falls from 2 r to r, from
//! 2 s to 10 s from r to a tenth of r, and it never stops. r is what the background keeps up with, smoothed over two
//! seconds; none of them follows what is admitted, or less would be admitted because less was. At the wall of `runs` a
//! commit waits before step 1b ([`Controller::runs_are_full`]).
//!
//! Only what waiting can pay is a debt. What an open snapshot, or an undrained run, still needs is not in `gc`: the trees
//! keep it apart until the view has moved. What cleaning has been through, and cannot move or has moved and a checkpoint
//! will free, is not in `space`. On a full disk neither counts: nothing is collected or moved there, and P4 rules.
//! Otherwise a writer would wait for the end of its own snapshot.
//!
//! Why these limits: dead leaves are hopped over and cost little, but one that is mostly dead is read and kept like any
//! other. At a tenth of what is allowed, where admission begins to be limited, with compression to a half one leaf in twenty
//! waits. Dead space below half of what lives is what cleaning extents under 50 % leaves behind in any case; limits begin
//! where the file is about twice, and the wall is where it is about four times as large as what lives.
//!
//! For comparisons only ([`Controller::delay_at_wall`]): nothing is limited before 10 s, and behind that so many bytes a second are
//! admitted, whatever is paid off. That is what D11 is there to be without.
//!
//! A commit looks at one word. While nothing is limited that is all; otherwise its bytes take their turn on a line of
//! time ([`Line`]), and the committer sleeps until its turn is over: after its locks are released, 20 ms at a time for as
//! long as there is a limit, and never more than 200 ms. The commit that finds the last look 50 ms old looks at the debt
//! again; there is no thread.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use vfs::sync::Mutex;
use vfs::time::Instant;

#[cfg(test)]
mod tests;

/// Lag up to which nothing is limited, in seconds: half of [`SOFT_SECONDS`].
pub(crate) const FREE_SECONDS: f64 = 1.0;
/// Lag at which as much is admitted as is paid off.
const SOFT_SECONDS: f64 = 2.0;
/// Lag at which the least is admitted.
const HARD_SECONDS: f64 = 10.0;
/// The least, as a share of what is paid off.
const LEAST: f64 = 0.1;
/// Admitted in any case, in bytes a second: what is paid off is not known at first.
const LEAST_BYTES_PER_SECOND: f64 = 256.0 * 1024.0;
/// What is paid off is smoothed over this time.
const SMOOTHED_SECONDS: f64 = 2.0;
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The longest sleep before the committer looks whether there still is a limit.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// The line is never longer, and so is no delay.
const LINE_MAX: Duration = Duration::from_millis(200);
/// The same where a fixed rate is compared with ([`Controller::delay_at_wall`]).
const LINE_MAX_AT_WALL: Duration = Duration::from_secs(60);

/// Why commits are delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Runs,
    Buffers,
    Drains,
    Dirty,
    Log,
    Gc,
    Space,
}

impl Reason {
    const ALL: [Reason; 7] =
        [Reason::Runs, Reason::Buffers, Reason::Drains, Reason::Dirty, Reason::Log, Reason::Gc, Reason::Space];
    const NAMES: [&'static str; 7] = ["runs", "buffers", "drains", "dirty", "log", "gc", "space"];
}

/// What is owed, as of one moment. Bytes unless the name says otherwise.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Debts {
    /// Committed since open: the log's end, and run files.
    pub committed: u64,
    /// Written to the data file since open.
    pub written: u64,
    /// Of runs not drained yet, in memory and in files.
    pub run_bytes: u64,
    /// Number of runs, of all indexes.
    pub runs: u64,
    /// Number of deleted ranges that are not drained to runs yet, of all indexes.
    pub ranges: u64,
    /// Memory of runs, and what they may take.
    pub run_memory: u64,
    pub run_memory_max: u64,
    /// Memory of messages and memtables that is not written yet, and at how much it is flushed.
    pub buffered: u64,
    pub buffered_aim: u64,
    /// Messages on disk, as many as are there while drains keep up, and those drained since open.
    pub messages: u64,
    pub messages_aim: u64,
    pub drained: u64,
    /// Dirty leaves, what write-back aims at, and the budget.
    pub dirty: u64,
    pub dirty_aim: u64,
    pub budget: u64,
    /// Log behind the last checkpoint, and what the log may keep.
    pub log_behind: u64,
    /// As much of it delays nobody.
    pub log_free: u64,
    pub log_capacity: u64,
    /// Leaves to be unlinked, merged or collected, as pages, and those paid since open.
    pub gc: u64,
    pub gc_paid: u64,
    /// As much of it as delays nobody; 0: a tenth of what lives.
    pub gc_limit: u64,
    /// What cleaning has to move and what that wins, what it moved since open, and what lives.
    pub to_move: u64,
    pub dead: u64,
    pub moved: u64,
    pub live: u64,
    /// What the background may write in a second, if that is bounded.
    pub io_rate: Option<u64>,
}

/// Runs at the wall: each read merges those of its index, and each one in a file holds a descriptor.
const RUNS_MAX: u64 = 512;
/// Deleted ranges: each is a run that is to be made. Four times what one transaction may delete. There is no wall: who deletes more helps first.
const RANGES_MAX: u64 = 4096;
/// As much counts as living at least: what is dead in a small file does no harm.
const LIVE_MIN: u64 = 64 << 20;

impl Debts {
    /// The worst lag in seconds, and whose it is.
    fn lag(&self) -> (f64, Reason) {
        let share = |part: u64, whole: u64| HARD_SECONDS * part as f64 / whole.max(1) as f64;
        let runs = share(self.run_memory, self.run_memory_max).max(share(self.runs, RUNS_MAX));
        let runs = runs.max(share(self.ranges, RANGES_MAX));
        let buffers = share(self.buffered.saturating_sub(self.buffered_aim), self.budget / 4);
        let drains = share(self.messages.saturating_sub(self.messages_aim), self.messages_aim.max(LIVE_MIN));
        let dirty_room = (self.budget - self.budget / 8).saturating_sub(self.dirty_aim);
        let dirty = share(self.dirty.saturating_sub(self.dirty_aim), dirty_room);
        let log = share(self.log_behind.saturating_sub(self.log_free), self.log_capacity - self.log_free);
        let live = self.live.max(LIVE_MIN);
        let gc_most = match self.gc_limit {
            0 => live,
            // At this share of the most begins what is not free.
            limit => (limit as f64 * (HARD_SECONDS / FREE_SECONDS)) as u64,
        };
        let gc = share(self.gc, gc_most);
        let space = share(self.dead.saturating_sub(live / 2), 2 * live);
        let lags = [runs, buffers, drains, dirty, log, gc, space];
        let worst = (1..lags.len()).fold(0, |worst, i| if lags[i] > lags[worst] { i } else { worst });
        (lags[worst], Reason::ALL[worst])
    }
}

/// Bytes a second to admit at a lag, or `None` for all. `paid`: what the background keeps up with, in bytes a second.
/// `least`: what is admitted in any case.
fn admitted(lag: f64, paid: f64, least: f64) -> Option<f64> {
    if lag < FREE_SECONDS {
        return None;
    }
    let share = if lag < SOFT_SECONDS {
        2.0 - (lag - FREE_SECONDS) / (SOFT_SECONDS - FREE_SECONDS)
    } else {
        (1.0 - (1.0 - LEAST) * (lag - SOFT_SECONDS) / (HARD_SECONDS - SOFT_SECONDS)).max(LEAST)
    };
    Some((share * paid).max(least))
}

/// Commits that pay one after the other: each takes the time that its bytes cost.
#[derive(Debug, Default)]
struct Line(CachePadded<AtomicU64>);

impl Line {
    /// Joins at `now` with `cost`, both in nanoseconds; returns how long until its turn is over.
    fn join(&self, now: u64, cost: u64, longest: Duration) -> u64 {
        let end_of = |line: u64| (line.max(now) + cost).min(now + longest.as_nanos() as u64);
        // Relaxed: a clock, no other memory hangs on it.
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |line| Some(end_of(line)));
        end_of(before.unwrap_or_else(|line| line)) - now
    }
}

/// What delays for one reason came to.
#[derive(Debug, Default)]
struct Delays {
    count: AtomicU64,
    sum_us: AtomicU64,
    worst_us: AtomicU64,
}

/// Delays of commits for one reason, since open.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// let idle: Vec<trefoil::DelayStats> = db.stats().delays;
/// assert!(idle.iter().any(|delay| delay.reason == "runs" && delay.count == 0));
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DelayStats {
    /// `runs`, `buffers`, `drains`, `dirty`, `log`, `gc` or `space`: which background work the commits ran ahead of.
    pub reason: &'static str,
    /// Commits that were delayed.
    pub count: u64,
    /// Sum of their delays, in microseconds.
    pub sum_us: u64,
    /// The longest, in microseconds; above about 200 ms only at the wall of `runs`.
    pub worst_us: u64,
}

/// Bytes a second, smoothed.
#[derive(Debug, Default)]
struct Rate(Option<f64>);

impl Rate {
    fn take(&mut self, bytes: f64, seconds: f64) {
        let rate = bytes.max(0.0) / seconds;
        // The first counts fully: an average from nothing would start far too low.
        let weight = 1.0 - (-seconds / SMOOTHED_SECONDS).exp();
        self.0 = Some(self.0.map_or(rate, |known| known + weight * (rate - known)));
    }

    fn get(&self) -> f64 {
        self.0.unwrap_or(0.0)
    }
}

/// What is remembered between two looks.
#[derive(Debug, Default)]
struct Meter {
    first: Option<Debts>,
    last: Option<(Instant, Debts)>,
    /// Committed and not added to the runs: applied at once, or drained.
    absorbed: Rate,
    flushed: Rate,
    /// Messages on disk that were drained.
    drained: Rate,
    /// Written to the data file.
    written: Rate,
    /// Pages of GC debt that were paid.
    collected: Rate,
    /// Moved by cleaning.
    moved: Rate,
    /// Committed while nothing was limited.
    free: Rate,
}

impl Meter {
    /// Takes one look in.
    fn look(&mut self, now: Instant, debts: Debts, is_free: bool) {
        self.first.get_or_insert(debts);
        if let Some((then, before)) = self.last.replace((now, debts)) {
            let seconds = (now - then).as_secs_f64().max(1e-6);
            let came = debts.committed.saturating_sub(before.committed) as f64;
            self.absorbed.take(came - (debts.run_bytes as f64 - before.run_bytes as f64), seconds);
            self.flushed.take(came - (debts.buffered as f64 - before.buffered as f64), seconds);
            if is_free {
                self.free.take(came, seconds);
            }
            self.written.take(debts.written.saturating_sub(before.written) as f64, seconds);
            self.drained.take(debts.drained.saturating_sub(before.drained) as f64, seconds);
            self.collected.take(debts.gc_paid.saturating_sub(before.gc_paid) as f64, seconds);
            self.moved.take(debts.moved.saturating_sub(before.moved) as f64, seconds);
        }
    }

    /// Bytes of commits a second that the background keeps up with.
    fn kept_up(&self, reason: Reason) -> f64 {
        let (Some(first), Some((_, last))) = (self.first, self.last) else { return 0.0 };
        // How much work came with a byte committed, over the whole life: it does not follow what is admitted now.
        // Who was preempted between looking and coming here may have seen less than the first who came.
        let committed = last.committed.saturating_sub(first.committed).max(1) as f64;
        let as_commits = |paid: &Rate, came: f64| paid.get() / (came / committed).max(0.01);
        let came = |owed: fn(&Debts) -> u64, paid: fn(&Debts) -> u64| {
            (owed(&last) + paid(&last)) as f64 - (owed(&first) + paid(&first)) as f64
        };
        let kept_up = match reason {
            Reason::Runs => self.absorbed.get(),
            Reason::Buffers => self.flushed.get(),
            Reason::Drains => as_commits(&self.drained, came(|debts| debts.messages, |debts| debts.drained)),
            Reason::Log => self.free.get(),
            Reason::Dirty => as_commits(&self.written, came(|_| 0, |debts| debts.written)),
            Reason::Gc => as_commits(&self.collected, came(|debts| debts.gc, |debts| debts.gc_paid)),
            Reason::Space => as_commits(&self.moved, came(|debts| debts.to_move, |debts| debts.moved)),
        };
        // Whatever is owed is paid by writing.
        last.io_rate.map_or(kept_up, |rate| {
            let a_second = rate as f64 / (came(|_| 0, |debts| debts.written) / committed).max(0.01);
            kept_up.min(a_second)
        })
    }
}

/// The controller of one database.
#[derive(Debug, Default)]
pub(crate) struct Controller {
    /// Bytes a second; 0: as fast as they come. Read by every commit, written by looks that change it.
    rate: CachePadded<AtomicU64>,
    reason: AtomicUsize,
    line: Line,
    delays: [Delays; Reason::ALL.len()],
    /// When the last look was, in nanoseconds since open.
    looked: CachePadded<AtomicU64>,
    /// At the last look: number of runs, and the worst lag in milliseconds.
    runs: AtomicU64,
    lag_ms: AtomicU64,
    /// Bytes of run files that commits wrote.
    in_files: AtomicU64,
    /// [`Debts::gc_limit`].
    gc_limit: AtomicU64,
    /// Bytes a second at the wall, and no limit before it; 0: as the debt asks.
    at_wall: AtomicU64,
    meter: Mutex<Meter>,
}

impl Controller {
    /// After a commit of `bytes`, its locks released: the debt is looked at if it is time, and the commit takes its turn.
    /// `now`: since open.
    pub fn pay(&self, bytes: u64, now: Duration, debts: impl FnOnce() -> Debts) {
        let now = now.as_nanos() as u64;
        self.look_if_due(now, debts);
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return;
        }
        let cost = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        // The old way keeps to its rate, however long that takes.
        let longest = if self.at_wall.load(Ordering::Relaxed) == 0 { LINE_MAX } else { LINE_MAX_AT_WALL };
        let turn = Duration::from_nanos(self.line.join(now, cost.min(u128::from(u64::MAX / 4)) as u64, longest));
        let began = Instant::now();
        while let left = turn.saturating_sub(began.elapsed())
            && !left.is_zero()
            && self.rate.load(Ordering::Relaxed) != 0
        {
            vfs::thread::sleep(left.min(SLEEP_MAX));
        }
        self.note_delay(self.reason.load(Ordering::Relaxed), began.elapsed());
    }

    /// A commit wrote so much into run files, which the log does not count.
    pub fn note_files(&self, bytes: u64) {
        self.in_files.fetch_add(bytes, Ordering::Relaxed);
    }

    /// From the next look on so many bytes of `gc` delay nobody; 0: a tenth of what lives.
    pub fn limit_gc(&self, bytes: u64) {
        self.gc_limit.store(bytes, Ordering::Relaxed);
    }

    /// Commits are limited at the wall only, and to so many bytes a second; none: as the debt asks. For comparisons.
    pub fn delay_at_wall(&self, bytes_per_second: Option<u64>) {
        self.at_wall.store(bytes_per_second.unwrap_or(0), Ordering::Relaxed);
    }

    /// True at the wall: a commit that may leave runs waits until some are drained. Looks if it is time.
    pub fn runs_are_full(&self, now: Duration, debts: impl Fn() -> Debts) -> bool {
        self.look_if_due(now.as_nanos() as u64, &debts);
        self.runs.load(Ordering::Relaxed) >= RUNS_MAX
    }

    /// The worst lag in seconds when it was looked at last; none if no commit came since two looks would have been due.
    pub fn lag(&self, now: Duration) -> Option<f64> {
        let looked = Duration::from_nanos(self.looked.load(Ordering::Relaxed));
        (now.saturating_sub(looked) <= 2 * LOOK_EVERY).then(|| self.lag_ms.load(Ordering::Relaxed) as f64 / 1000.0)
    }

    /// A commit waited at the wall of the runs.
    pub fn note_wall(&self, waited: Duration) {
        self.note_delay(Reason::Runs as usize, waited);
    }

    fn note_delay(&self, reason: usize, slept: Duration) {
        let (delays, slept) = (&self.delays[reason], slept.as_micros() as u64);
        delays.count.fetch_add(1, Ordering::Relaxed);
        delays.sum_us.fetch_add(slept, Ordering::Relaxed);
        delays.worst_us.fetch_max(slept, Ordering::Relaxed);
    }

    /// What was delayed, by reason.
    pub fn stats(&self) -> Vec<DelayStats> {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let named = Reason::NAMES.iter().zip(&self.delays);
        named
            .map(|(reason, d)| DelayStats {
                reason,
                count: get(&d.count),
                sum_us: get(&d.sum_us),
                worst_us: get(&d.worst_us),
            })
            .collect()
    }

    fn look_if_due(&self, now: u64, debts: impl FnOnce() -> Debts) {
        let looked = self.looked.load(Ordering::Relaxed);
        let due = now.saturating_sub(looked) >= LOOK_EVERY.as_nanos() as u64;
        // Relaxed: whoever loses the race leaves the look to the other.
        if !due || self.looked.compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let mut debts = debts();
        debts.committed += self.in_files.load(Ordering::Relaxed);
        debts.gc_limit = self.gc_limit.load(Ordering::Relaxed);
        self.runs.store(debts.runs, Ordering::Relaxed);
        let (lag, reason) = debts.lag();
        self.lag_ms.store((lag * 1000.0) as u64, Ordering::Relaxed);
        // A budget says what is paid off; more than that would be written at once by whoever waits for it.
        let least =
            debts.io_rate.map_or(LEAST_BYTES_PER_SECOND, |rate| LEAST_BYTES_PER_SECOND.min(rate as f64 / 100.0));
        let kept_up = {
            let mut meter = self.meter.lock();
            meter.look(Instant::now(), debts, self.rate.load(Ordering::Relaxed) == 0);
            meter.kept_up(reason)
        };
        let rate = match self.at_wall.load(Ordering::Relaxed) {
            0 => admitted(lag, kept_up, least.max(1.0)).map_or(0, |rate| rate as u64),
            fixed if lag >= HARD_SECONDS => fixed,
            _ => 0,
        };
        self.reason.store(reason as usize, Ordering::Relaxed);
        if self.rate.load(Ordering::Relaxed) != rate {
            self.rate.store(rate, Ordering::Relaxed);
        }
    }
}
