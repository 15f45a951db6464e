//! What one thread reads behind the last second of a part, with its snapshot still held and nobody writing: ten-row ranges of the
//! three indexes, and rows by key. Answers are looked at as in the insert benchmark.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lab_measure::{Clock, Kind, Recorder};
use lab_target::{IndexSet, Price, Target};
use lab_workload::RunError;
use lab_workload::feed::Feed;
use lab_workload::plan::{QueryKind, Work};
use lab_workload::random::Random;
use lab_workload::worker::{Shared, WorkerError, query};

use super::SEED;
use super::keep::Reads;
use crate::outcome::Failure;

/// Of both, for so many seconds each.
pub fn reads(target: &dyn Target, seconds: u64, interrupt: &AtomicBool) -> Result<Reads, Failure> {
    let rate = |kind| rate(target, kind, Duration::from_secs(seconds), interrupt);
    Ok(Reads { ranges: rate(QueryKind::Range2017)?, points: rate(QueryKind::Gets)? })
}

fn rate(target: &dyn Target, kind: QueryKind, length: Duration, interrupt: &AtomicBool) -> Result<f64, Failure> {
    let (clock, mut session) = (Clock::start(), target.session()?);
    let work =
        Work { rows: 0, statements: 0, deletes: false, pace: None, query: Some(kind), warmup_ns: 0, alone_ns: None };
    let shared = Shared {
        feed: Feed::new(0, false, false),
        min_key: AtomicU64::new(1),
        stop: AtomicBool::new(false),
        table: 0,
        work,
        clock: &clock,
        price: Price::Int,
    };
    let begun = Instant::now();
    let asked = std::thread::scope(|scope| {
        let (shared, session) = (&shared, session.as_mut());
        let asking = scope.spawn(move || {
            let recorder = Recorder::new(Kind::Query, Default::default(), 0);
            query(shared, session, kind, IndexSet::Y2017, Random::new(SEED, 0), recorder)
        });
        while begun.elapsed() < length && !asking.is_finished() && !interrupt.load(Ordering::Relaxed) {
            std::thread::sleep(length.saturating_sub(begun.elapsed()).min(Duration::from_millis(50)));
        }
        shared.stop.store(true, Ordering::Relaxed);
        asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    if interrupt.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted("interrupted; the same command goes on with it".into()));
    }
    match asked {
        Ok(asked) => Ok(asked.recorder.totals.amount as f64 / begun.elapsed().as_secs_f64()),
        Err(WorkerError::Wrong(what)) => Err(RunError::Violated(what).into()),
        Err(WorkerError::Failed(what)) => Err(Failure::Failed(what)),
    }
}
