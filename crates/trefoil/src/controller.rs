//! The write controller (ENGINE.md section 8, decision D11): how fast commits are admitted.
//!
//! Debt is background writing that is needed to return to shape. Each kind of it is measured in *lag*, the seconds in
//! which it would be paid off if nothing were added:
//!
//! | kind | debt | lag |
//! |---|---|---|
//! | `runs` | bytes, number and memory of runs that are not drained | bytes by drain rate; share of what is allowed |
//! | `dirty` | dirty leaves above what write-back aims at | share of what is left of the budget |
//! | `log` | log behind the last checkpoint, above the half at which one is due | share of the log's other half |
//! | `cleaning` | dead bytes in the data file above twice the live ones | share of twice the live bytes |
//!
//! The worst lag decides ([`admitted`]): below 1 s nothing is limited; from 1 s to 2 s admission falls from 2 r to r, from
//! 2 s to 10 s from r to a tenth of r, and it never stops. r is what the background keeps up with: the bytes that were
//! committed less what they added to the debt, smoothed over two seconds. So debt settles near 2 s.
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

/// Lag up to which nothing is limited, in seconds: half of [`SOFT_SECONDS`].
const FREE_SECONDS: f64 = 1.0;
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
/// Between two looks at the extents, all of which are counted.
const SPACE_EVERY: Duration = Duration::from_secs(1);
/// The longest sleep before the committer looks whether there still is a limit.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// The line is never longer, and so is no delay.
const LINE_MAX: Duration = Duration::from_millis(200);

/// Why commits are delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Runs,
    Dirty,
    Log,
    Cleaning,
}

impl Reason {
    const ALL: [Reason; 4] = [Reason::Runs, Reason::Dirty, Reason::Log, Reason::Cleaning];
    const NAMES: [&'static str; 4] = ["runs", "dirty", "log", "cleaning"];
}

/// What is owed, as of one moment. Bytes unless the name says otherwise.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Debts {
    /// Committed since open: the log's end.
    pub committed: u64,
    /// Of runs not drained yet, in memory and in files.
    pub run_bytes: u64,
    /// The most runs that a reader of one index merges.
    pub runs: u64,
    /// Memory of runs, and what they may take before commits slow down most.
    pub run_memory: u64,
    pub run_memory_max: u64,
    /// Dirty leaves, what write-back aims at, and the budget.
    pub dirty: u64,
    pub dirty_aim: u64,
    pub budget: u64,
    /// Log behind the last checkpoint, and what the log may keep.
    pub log_behind: u64,
    pub log_capacity: u64,
    pub space: SpaceDebt,
}

/// Of the data file: live bytes, and those taken by blocks that are dead but not given back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SpaceDebt {
    pub live: u64,
    pub dead: u64,
}

/// Who owes.
pub(crate) trait Owing {
    /// All but the space.
    fn debts(&self) -> Debts;
    /// The space: slow.
    fn space(&self) -> SpaceDebt;
}

/// Runs of one index at which commits slow down most: each read merges them all.
const RUNS_MAX: u64 = 2048;
/// Dead bytes of a data file that are never too many.
const DEAD_FREE: u64 = 1 << 30;

impl Debts {
    /// The worst lag in seconds, and whose it is. `paid`: bytes a second.
    fn lag(&self, paid: f64) -> (f64, Reason) {
        let share = |part: u64, whole: u64| HARD_SECONDS * part as f64 / whole.max(1) as f64;
        // While little is in memory, the debt of runs is not measured against a rate that is not known yet.
        let by_rate = if self.run_bytes > self.run_memory_max / 16 { self.run_bytes as f64 / paid } else { 0.0 };
        let runs = by_rate.max(share(self.run_memory, self.run_memory_max)).max(share(self.runs, RUNS_MAX));
        let dirty_room = (self.budget - self.budget / 8).saturating_sub(self.dirty_aim);
        let dirty = share(self.dirty.saturating_sub(self.dirty_aim), dirty_room);
        let half = self.log_capacity / 2;
        let log = share(self.log_behind.saturating_sub(half), half);
        let too_dead = (2 * self.space.live).max(DEAD_FREE);
        let cleaning = share(self.space.dead.saturating_sub(too_dead), too_dead);
        let lags = [runs, dirty, log, cleaning];
        let worst = (1..lags.len()).fold(0, |worst, i| if lags[i] > lags[worst] { i } else { worst });
        (lags[worst], Reason::ALL[worst])
    }
}

/// Bytes a second to admit at a lag, or `None` for all. `paid`: what the background keeps up with, in bytes a second.
fn admitted(lag: f64, paid: f64) -> Option<f64> {
    if lag < FREE_SECONDS {
        return None;
    }
    let share = if lag < SOFT_SECONDS {
        2.0 - (lag - FREE_SECONDS) / (SOFT_SECONDS - FREE_SECONDS)
    } else {
        (1.0 - (1.0 - LEAST) * (lag - SOFT_SECONDS) / (HARD_SECONDS - SOFT_SECONDS)).max(LEAST)
    };
    Some((share * paid).max(LEAST_BYTES_PER_SECOND))
}

/// Commits that pay one after the other: each takes the time that its bytes cost.
#[derive(Debug, Default)]
struct Line(CachePadded<AtomicU64>);

impl Line {
    /// Joins at `now` with `cost`, both in nanoseconds; returns how long until its turn is over.
    fn join(&self, now: u64, cost: u64) -> u64 {
        let end_of = |line: u64| (line.max(now) + cost).min(now + LINE_MAX.as_nanos() as u64);
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
    /// `runs`, `dirty`, `log` or `cleaning`: which background work the commits ran ahead of.
    pub reason: &'static str,
    /// Commits that were delayed.
    pub count: u64,
    /// Sum of their delays, in microseconds.
    pub sum_us: u64,
    /// The longest, in microseconds; at most about 200 ms.
    pub worst_us: u64,
}

/// What is remembered between two looks.
#[derive(Debug, Default)]
struct Meter {
    last: Option<(Instant, Debts)>,
    space: Option<(Instant, SpaceDebt)>,
    /// Bytes a second that the background keeps up with, smoothed.
    paid: f64,
}

impl Meter {
    /// What the extents hold, asked for again if that is too long ago.
    fn space(&mut self, now: Instant, count: impl FnOnce() -> SpaceDebt) -> SpaceDebt {
        match self.space {
            Some((then, known)) if now - then < SPACE_EVERY => known,
            _ => self.space.insert((now, count())).1,
        }
    }

    /// Takes one look in. Returns what is paid off, in bytes a second.
    fn look(&mut self, now: Instant, debts: Debts) -> f64 {
        if let Some((then, before)) = self.last.replace((now, debts)) {
            let seconds = (now - then).as_secs_f64().max(1e-6);
            let came = debts.committed.saturating_sub(before.committed) as f64;
            let grown = debts.run_bytes as f64 - before.run_bytes as f64;
            let rate = (came - grown).max(0.0) / seconds;
            // The first looks count fully: an average from nothing would start far too low.
            let weight = if self.paid == 0.0 { 1.0 } else { 1.0 - (-seconds / SMOOTHED_SECONDS).exp() };
            self.paid += weight * (rate - self.paid);
        }
        self.paid.max(1.0)
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
    meter: Mutex<Meter>,
}

impl Controller {
    /// After a commit of `bytes`, its locks released: the debt is looked at if it is time, and the commit takes its turn.
    /// `now`: since open.
    pub fn pay(&self, bytes: u64, now: Duration, owing: &impl Owing) {
        let now = now.as_nanos() as u64;
        self.look_if_due(now, owing);
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return;
        }
        let cost = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let turn = Duration::from_nanos(self.line.join(now, cost.min(u128::from(u64::MAX / 4)) as u64));
        let began = Instant::now();
        while let left = turn.saturating_sub(began.elapsed())
            && !left.is_zero()
            && self.rate.load(Ordering::Relaxed) != 0
        {
            vfs::thread::sleep(left.min(SLEEP_MAX));
        }
        let delays = &self.delays[self.reason.load(Ordering::Relaxed)];
        let slept = began.elapsed().as_micros() as u64;
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

    fn look_if_due(&self, now: u64, owing: &impl Owing) {
        let looked = self.looked.load(Ordering::Relaxed);
        let due = now.saturating_sub(looked) >= LOOK_EVERY.as_nanos() as u64;
        // Relaxed: whoever loses the race leaves the look to the other.
        if !due || self.looked.compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let (now, mut debts) = (Instant::now(), owing.debts());
        let paid = {
            let mut meter = self.meter.lock();
            debts.space = meter.space(now, || owing.space());
            meter.look(now, debts)
        };
        let (lag, reason) = debts.lag(paid);
        let rate = admitted(lag, paid).map_or(0, |rate| rate as u64);
        self.reason.store(reason as usize, Ordering::Relaxed);
        if self.rate.load(Ordering::Relaxed) != rate {
            self.rate.store(rate, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// 64 MiB of budget, nothing owed.
    fn in_shape() -> Debts {
        Debts {
            run_memory_max: 8 * MIB,
            dirty_aim: 25 * MIB,
            budget: 64 * MIB,
            log_capacity: 1024 * MIB,
            space: SpaceDebt { live: 1024 * MIB, dead: 0 },
            ..Debts::default()
        }
    }

    fn dead(dead: u64) -> Debts {
        let mut debts = in_shape();
        debts.space.dead = dead;
        debts
    }

    #[test]
    fn admission_falls_without_a_cliff_and_never_stops() {
        let paid = 1e7;
        assert_eq!(admitted(0.99, paid), None);
        let at = |lag| admitted(lag, paid).unwrap() / paid;
        for (lag, share) in [(1.0, 2.0), (1.5, 1.5), (2.0, 1.0), (6.0, 0.55), (10.0, 0.1), (1e9, 0.1)] {
            assert!((at(lag) - share).abs() < 1e-9, "{lag} s: {}", at(lag));
        }
        let steps = (100..1200).map(|i| (at(f64::from(i) / 100.0), at(f64::from(i + 1) / 100.0)));
        assert!(steps.into_iter().all(|(now, next)| next <= now && now - next < 0.02), "a cliff");
        assert!(admitted(10.0, 0.0).unwrap() >= LEAST_BYTES_PER_SECOND);
    }

    #[test]
    fn each_debt_delays_under_its_own_name() {
        let paid = 1e6;
        assert!(in_shape().lag(paid).0 < FREE_SECONDS);
        let cases = [
            (Debts { run_bytes: 4_000_000, ..in_shape() }, Reason::Runs, 4.0),
            (Debts { run_memory: 4 * MIB, ..in_shape() }, Reason::Runs, 5.0),
            (Debts { runs: 1024, ..in_shape() }, Reason::Runs, 5.0),
            (Debts { dirty: 56 * MIB, ..in_shape() }, Reason::Dirty, 10.0),
            (Debts { log_behind: 768 * MIB, ..in_shape() }, Reason::Log, 5.0),
            (dead(3 * 1024 * MIB), Reason::Cleaning, 5.0),
        ];
        for (debts, reason, lag) in cases {
            let (found, named) = debts.lag(paid);
            assert_eq!(named, reason, "{debts:?}");
            assert!((found - lag).abs() < 0.01, "{debts:?}: {found} s");
        }
        for debts in
            [Debts { dirty: 25 * MIB, ..in_shape() }, Debts { log_behind: 512 * MIB, ..in_shape() }, dead(2048 * MIB)]
        {
            assert!(debts.lag(paid).0 < FREE_SECONDS, "{debts:?} is in shape");
        }
    }

    #[test]
    fn commits_pay_one_after_the_other_and_the_line_has_an_end() {
        let line = Line::default();
        let ms = 1_000_000;
        assert_eq!(line.join(1000 * ms, 5 * ms), 5 * ms);
        assert_eq!(line.join(1001 * ms, 5 * ms), 9 * ms, "behind the first");
        assert_eq!(line.join(2000 * ms, 5 * ms), 5 * ms, "time that nobody used is gone");
        assert_eq!(line.join(2000 * ms, 90_000 * ms), LINE_MAX.as_nanos() as u64);
    }

    /// A store that drains at a fixed rate under writers who would be three times as fast.
    #[test]
    fn debt_settles_where_as_much_is_admitted_as_is_drained() {
        let (mut meter, drain, offered, step) = (Meter::default(), 1e6, 3e6, 0.05);
        let (mut committed, mut owed, start) = (0.0, 0.0f64, Instant::now());
        let (mut lags, mut rates) = (Vec::new(), Vec::new());
        for i in 0..2400 {
            let debts = Debts { committed: committed as u64, run_bytes: owed as u64, ..in_shape() };
            let paid = meter.look(start + Duration::from_secs_f64(f64::from(i) * step), debts);
            let (lag, _) = debts.lag(paid);
            let rate = admitted(lag, paid).map_or(offered, |rate| rate.min(offered));
            committed += rate * step;
            owed = (owed + (rate - drain) * step).max(0.0);
            lags.push(lag);
            rates.push(rate);
        }
        let settled = &lags[1200..];
        assert!(settled.iter().all(|lag| (1.5..2.5).contains(lag)), "{:?}", &settled[..20]);
        assert!(rates[1200..].iter().all(|rate| (rate / drain - 1.0).abs() < 0.1), "{:?}", &rates[1200..1220]);
        assert!(lags.iter().all(|lag| *lag < HARD_SECONDS), "overshoot");
        assert!(rates.iter().all(|rate| *rate > 0.0));
    }
}
