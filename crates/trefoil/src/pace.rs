//! The background gives way to commits.
//!
//! Upkeep and checkpoints are a small part of all work, but they come in bursts: a second in which they have one of two processors
//! is one with half as many commits. So between two steps they rest, while commits come and little is owed ([`rest_behind`]), and
//! nobody waits for what they do: upkeep as long as the last step took, a checkpoint so long that it ends not long before the next
//! one is due ([`Spread`]). What it writes would otherwise be written in one go, behind a time in which nothing was.

use std::time::Duration;

use base::Lsn;
use index::LogGate;
use vfs::sync::Mutex;
use vfs::time::Instant;

use crate::controller::FREE_SECONDS;
use crate::engine::Engine;

/// The longest step that is rested for in proportion.
const STEP_MAX: Duration = Duration::from_millis(50);
/// Whoever waits for what the background does is seen after so long.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A checkpoint ends after this share of the time that the one before began earlier.
const SPREAD_SHARE: f64 = 0.8;
/// Or before the log grows so far that commits are limited, by this much of the way.
const LOG_SHARE: f64 = 0.9;
/// What it rests for each moment that it works: as much as upkeep at least, never more than this.
const RESTS: std::ops::RangeInclusive<f64> = 1.0..=20.0;

/// How the next checkpoint is spread, by the last one.
#[derive(Debug, Default)]
pub struct Spread(Mutex<Option<Last>>);

#[derive(Debug, Clone, Copy)]
struct Last {
    begun: Instant,
    worked: Duration,
}

impl Spread {
    /// What a checkpoint that begins now rests for each moment that it works. `log_room`: bytes that the log may still grow, as a share of
    /// what it grew since the last one began.
    fn rests(&self, now: Instant, log_room: f64) -> f64 {
        let Some(Last { begun, worked }) = *self.0.lock() else { return *RESTS.start() };
        let until_due = (now - begun).as_secs_f64() * SPREAD_SHARE.min(LOG_SHARE * log_room);
        (until_due / worked.as_secs_f64().max(1e-3) - 1.0).clamp(*RESTS.start(), *RESTS.end())
    }

    fn note(&self, begun: Instant, worked: Duration) {
        *self.0.lock() = Some(Last { begun, worked });
    }
}

/// The log for background work, which rests between its steps.
pub struct Paced<'a> {
    engine: &'a Engine,
    begun: Instant,
    /// For each moment of work.
    rests: f64,
    step: Mutex<Step>,
}

struct Step {
    since: Instant,
    /// In the steps before.
    worked: Duration,
}

impl<'a> Paced<'a> {
    /// A step of upkeep begins.
    pub fn new(engine: &'a Engine) -> Self {
        Self::resting(engine, *RESTS.start())
    }

    /// A checkpoint begins. A bound on what is written in a second spreads it by itself.
    pub fn checkpoint(engine: &'a Engine) -> Self {
        if engine.io_budget.rate().is_some() {
            return Self::new(engine);
        }
        let behind = engine.log_behind();
        let room = engine.log_free_bytes().saturating_sub(behind) as f64 / behind.max(1) as f64;
        Self::resting(engine, engine.spread.rests(Instant::now(), room))
    }

    fn resting(engine: &'a Engine, rests: f64) -> Self {
        let now = Instant::now();
        Self { engine, begun: now, rests, step: Mutex::new(Step { since: now, worked: Duration::ZERO }) }
    }

    /// The checkpoint ended.
    pub fn note_checkpoint(&self) {
        let step = self.step.lock();
        self.engine.spread.note(self.begun, step.worked + step.since.elapsed());
    }

    /// Behind a step, which ended at `end`.
    fn rest_behind(&self, end: Instant) {
        let worked = {
            let mut step = self.step.lock();
            let worked = end - step.since;
            step.worked += worked;
            worked
        };
        self.engine.give_way_behind(worked, self.rests);
        self.step.lock().since = Instant::now();
    }
}

impl LogGate for Paced<'_> {
    fn durable(&self) -> Lsn {
        self.engine.durable()
    }

    fn make_durable(&self, lsn: Lsn) -> base::Result<()> {
        self.engine.make_durable(lsn)
    }

    fn rest(&self) {
        let end = Instant::now();
        self.engine.rest_from_writing();
        self.rest_behind(end);
    }

    fn give_way(&self) {
        self.rest_behind(Instant::now());
    }
}

impl Engine {
    /// Leaves the processors to commits, if they want them, behind a step that took `worked`.
    fn give_way_behind(&self, worked: Duration, rests: f64) {
        let begun = Instant::now();
        let rest = rest_behind(worked, rests, self.controller.lag(self.opened.elapsed()));
        while let left = rest.saturating_sub(begun.elapsed())
            && !left.is_zero()
            && !self.write_back_hurries()
            && !self.checkpoint_hurries()
        {
            vfs::thread::sleep(left.min(LOOK_EVERY));
        }
    }
}

/// So many times as long as the step took while nothing is owed, less the more is, not at all where commits are delayed, or none come.
fn rest_behind(worked: Duration, rests: f64, lag: Option<f64>) -> Duration {
    lag.map_or(Duration::ZERO, |lag| worked.min(STEP_MAX).mul_f64(rests * (1.0 - lag / FREE_SECONDS).max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_background_rests_while_commits_come_and_little_is_owed() {
        let worked = Duration::from_millis(10);
        assert_eq!(rest_behind(worked, 1.0, Some(0.0)), worked);
        assert_eq!(rest_behind(worked, 8.0, Some(0.0)), 8 * worked);
        assert_eq!(rest_behind(worked, 8.0, Some(0.5)), 4 * worked);
        assert_eq!(rest_behind(worked, 8.0, Some(1.0)), Duration::ZERO);
        assert_eq!(rest_behind(worked, 1.0, Some(7.0)), Duration::ZERO);
        assert_eq!(rest_behind(worked, 1.0, None), Duration::ZERO);
        assert_eq!(rest_behind(Duration::from_secs(9), 1.0, Some(0.0)), STEP_MAX);
    }

    #[test]
    fn a_checkpoint_ends_before_the_next_one_is_due() {
        let (spread, begun) = (Spread::default(), Instant::now());
        let later = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(spread.rests(begun, 9.0), 1.0, "nothing is known");
        spread.note(begun, Duration::from_secs(4));
        assert_eq!(spread.rests(later(20), 9.0), 3.0, "16 s of 20 for 4 s of work");
        assert_eq!(spread.rests(later(40), 9.0), 7.0);
        assert_eq!(spread.rests(later(2), 9.0), 1.0, "somebody asked for it");
        assert_eq!(spread.rests(later(4000), 9.0), 20.0, "it is not stretched without end");
        // Half a log came in 40 s: it ends within 18 s, before there are three quarters.
        assert_eq!(spread.rests(later(40), 0.5), 3.5);
        assert_eq!(spread.rests(later(40), 0.0), 1.0, "the log is full");
    }
}
