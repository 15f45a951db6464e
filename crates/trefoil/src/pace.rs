//! The background gives way to commits.
//!
//! Upkeep and checkpoints are a small part of all work, but they come in bursts: a second in which they have one of two processors
//! is one with half as many commits. So between two steps they rest as long as the last one took, while commits come and little is
//! owed ([`rest_behind`]), and nobody waits for what they do.

use std::time::Duration;

use base::Lsn;
use index::LogGate;
use vfs::sync::Mutex;
use vfs::time::Instant;

use crate::controller::FREE_SECONDS;
use crate::engine::Engine;

/// The longest rest.
const REST_MAX: Duration = Duration::from_millis(50);
/// Whoever waits for what the background does is seen after so long.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The log for background work, which rests between its steps.
pub struct Paced<'a> {
    engine: &'a Engine,
    /// When the step began.
    since: Mutex<Instant>,
}

impl<'a> Paced<'a> {
    /// A step begins.
    pub fn new(engine: &'a Engine) -> Self {
        Self { engine, since: Mutex::new(Instant::now()) }
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
        let (begun, worked) = (Instant::now(), self.since.lock().elapsed());
        self.engine.rest_from_writing();
        self.engine.give_way_behind(worked.saturating_sub(begun.elapsed()));
        *self.since.lock() = Instant::now();
    }

    fn give_way(&self) {
        let worked = self.since.lock().elapsed();
        self.engine.give_way_behind(worked);
        *self.since.lock() = Instant::now();
    }
}

impl Engine {
    /// Leaves the processors to commits, if they want them, behind a step that took `worked`.
    fn give_way_behind(&self, worked: Duration) {
        let begun = Instant::now();
        let rest = rest_behind(worked, self.controller.lag(self.opened.elapsed()));
        while let left = rest.saturating_sub(begun.elapsed())
            && !left.is_zero()
            && !self.write_back_hurries()
            && !self.checkpoint_hurries()
        {
            vfs::thread::sleep(left.min(LOOK_EVERY));
        }
    }
}

/// As long as the step took while nothing is owed, less the more is, not at all where commits are delayed, or none come.
fn rest_behind(worked: Duration, lag: Option<f64>) -> Duration {
    lag.map_or(Duration::ZERO, |lag| worked.min(REST_MAX).mul_f64((1.0 - lag / FREE_SECONDS).max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_background_rests_while_commits_come_and_little_is_owed() {
        let worked = Duration::from_millis(10);
        assert_eq!(rest_behind(worked, Some(0.0)), worked);
        assert_eq!(rest_behind(worked, Some(0.5)), worked / 2);
        assert_eq!(rest_behind(worked, Some(1.0)), Duration::ZERO);
        assert_eq!(rest_behind(worked, Some(7.0)), Duration::ZERO);
        assert_eq!(rest_behind(worked, None), Duration::ZERO);
        assert_eq!(rest_behind(Duration::from_secs(9), Some(0.0)), REST_MAX);
    }
}
