//! The thread of a client: events until it is told to stop. One that met a deadlock and its like is rolled back, and
//! another is started in its place, as sysbench does; the time that was lost is part of the response.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lab_measure::procfs::thread_switches;
use lab_measure::{Clock, Recorder};
use lab_target::sysbench::Session;

use super::catalogue::Test;
use super::event::{Events, Stopped};
use crate::worker::{Asked, WorkerError};

/// What follows an event of `update-rate`: no part of its response.
const PAUSE: Duration = Duration::from_secs(1);
/// The coordinator does not wait longer for a client that pauses.
const LOOKS: u32 = 50;

/// What a client hands back.
#[derive(Debug)]
pub struct Brought {
    /// The measurements: an event is a statement of the recorder, its queries are the amount.
    pub asked: Option<Asked>,
    /// Events that were started again, after the warm-up.
    pub restarts: u64,
    /// What it changed, table by table, the warm-up included: rows more, and what `k` of all rows is more.
    pub changed: Vec<(i64, i64)>,
}

/// Runs events of one test.
///
/// # Errors
/// An error of the engine that is no reason to start again, and a wrong answer.
pub fn run(
    test: Test,
    mut events: Events<'_>,
    session: &mut dyn Session,
    clock: &Clock,
    (recorder, from_ns): (Recorder, u64),
    (stop, tables): (&AtomicBool, u32),
) -> Result<Brought, WorkerError> {
    let mut asked = Asked { recorder, fetched: 0, end_ns: 0, switches: 0 };
    let mut out = Brought { asked: None, restarts: 0, changed: vec![(0, 0); tables as usize] };
    // Pairs with the relaxed store of the coordinator; the thread is joined afterwards.
    'events: while !stop.load(Ordering::Relaxed) {
        let begin_ns = clock.now_ns();
        let done = loop {
            match events.run(test, session) {
                Ok(done) => break done,
                Err(Stopped::Worker(error)) => return Err(error),
                Err(Stopped::Again) => {
                    session.rollback();
                    out.restarts += u64::from(begin_ns >= from_ns);
                    if stop.load(Ordering::Relaxed) {
                        break 'events;
                    }
                }
            }
        };
        let end_ns = clock.now_ns();
        asked.recorder.record(begin_ns, end_ns, done.queries, None);
        if begin_ns >= from_ns {
            asked.fetched += done.found;
        }
        asked.end_ns = end_ns;
        let (rows, sum) = &mut out.changed[done.table as usize];
        *rows += done.rows;
        *sum += done.sum;
        if matches!(test, Test::UpdateRate { .. }) {
            pause(stop);
        }
    }
    asked.recorder.finish();
    asked.switches = thread_switches().unwrap_or(0);
    out.asked = Some(asked);
    Ok(out)
}

fn pause(stop: &AtomicBool) {
    for _ in 0..LOOKS {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(PAUSE / LOOKS);
    }
}
