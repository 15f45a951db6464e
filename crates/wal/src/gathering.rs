//! Waiting a moment for company before a sync.
//!
//! A sync releases many threads at once. Those that come back soon with their next records should share the next sync:
//! otherwise two halves of them take turns, each waiting through the other's. So the leader lets others run, for a part of
//! the time that a sync takes, until as many wait again.
//!
//! Where they have more to do than to commit, that time is lost. And where the processors have other work, letting others
//! run once may take a turn of the scheduler, milliseconds in which nothing is synced: then company comes indeed, and
//! costs far more than it saves. After each such try twice as many syncs start without one, until one does well.

use std::time::Duration;

use vfs::thread;
use vfs::time::Instant;

use crate::stage::{Lead, Stage};

/// Part of the last sync's time for which company is waited for.
const WAITED_PART: u32 = 8;
/// After a wait that brought little, or took longer than a sync, so many syncs start without.
const PAUSE: u32 = 7;
/// Never more than so many.
const PAUSE_MAX: u32 = 1023;

/// Whether the next sync waits for company. For the leader of the sync stage alone.
#[derive(Default)]
pub(crate) struct Gathering {
    synced_at: Option<Instant>,
    /// So many syncs start without waiting.
    pause: u32,
    /// The last pause, if no wait went well since.
    last_pause: u32,
}

impl Gathering {
    /// Lets those whom the last sync has released come back before the next one starts, if it seems to pay.
    pub(crate) fn wait(&mut self, stage: &Stage, lead: &Lead<'_>, last_sync: Duration) {
        let limit = last_sync / WAITED_PART;
        let is_recent = self.synced_at.is_some_and(|at| at.elapsed() < limit);
        if lead.company <= stage.waiting() || !(lead.handed_over || is_recent) {
            return;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        let began = Instant::now();
        let (came, took) = loop {
            let (came, took) = (stage.waiting(), began.elapsed());
            if came >= lead.company || took >= limit {
                break (came, took);
            }
            thread::yield_now();
        };
        let pays = came * 2 >= lead.company && took < last_sync;
        self.last_pause = if pays { 0 } else { (self.last_pause * 2 + 1).clamp(PAUSE, PAUSE_MAX) };
        self.pause = self.last_pause;
    }

    /// A sync has ended.
    pub(crate) fn synced(&mut self) {
        self.synced_at = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{Fault, Lsn, Poison};
    use vfs::sim::{Bias, Config, Simulation, Strategy};

    use super::*;
    use crate::stage::Turn;

    /// Another thread that has so many microseconds to run before it waits for the next sync, too: how long the leader
    /// waits for it.
    fn waits(gathering: &mut Gathering, stage: &Arc<Stage>, lead: &mut Lead<'_>, runs_micros: u64) -> Duration {
        let seated = stage.waiting();
        lead.company = seated + 1;
        let waiter = stage.clone();
        let body = move || {
            (0..runs_micros).for_each(|_| thread::point("test.runs"));
            assert!(matches!(waiter.enter(Lsn::MAX), Turn::Look), "it is woken by the fault");
        };
        thread::spawn("company", body).expect("a thread");
        let began = Instant::now();
        gathering.wait(stage, lead, Duration::from_millis(1));
        let took = began.elapsed();
        while stage.waiting() == seated {
            thread::sleep(Duration::from_millis(1));
        }
        took
    }

    /// Company that came because it had the processor for longer than a sync is no reason to wait for it again.
    /// Guards: such a wait does not pay; each that does not doubles the pause; one that does ends it.
    #[test]
    fn company_that_takes_longer_than_a_sync_is_waited_for_seldom() {
        let biases = vec![Bias { prefix: "test.runs".into(), switch: 0.0 }];
        let strategy = Strategy::Random { switch: 0.0 };
        let config = Config { strategy, biases, step_time: Duration::from_micros(1), ..Config::default() };
        Simulation::new(1, config).run(|_| {
            let poison = Poison::new();
            let stage = Arc::new(Stage::long(Lsn(0), poison.clone()));
            let Turn::Lead(mut lead) = stage.enter(Lsn(16)) else { panic!("nobody leads") };
            lead.handed_over = true;
            let mut gathering = Gathering::default();
            let mut wait = |runs_micros| waits(&mut gathering, &stage, &mut lead, runs_micros);
            let waited: Vec<_> = (0..60).filter(|_| wait(3000) > Duration::from_millis(2)).collect();
            assert_eq!(waited, [0, 8, 24, 56], "the turns that waited");
            let paused = (0..).find(|_| wait(20) >= Duration::from_micros(20));
            assert_eq!(paused, Some(63 - 3), "it tries again");
            assert!((0..10).all(|_| wait(20) >= Duration::from_micros(20)), "what pays goes on");
            poison.set(Fault::Unsupported("a test".into()));
            drop(lead);
        });
    }
}
