//! Threads of a step, one for each session: they start together, are watched, told to stop, and joined.

use std::sync::atomic::{AtomicBool, Ordering};

use lab_measure::Recorder;

use crate::coordinator::{Cells, Coordinator, Outlook, Stage};
use crate::crew::Crew;
use crate::sequence::RunError;
use crate::totals::Totals;
use crate::worker::WorkerError;

/// Runs `body` in one thread for each session, and adds up nothing yet: totals with the kernel's counters, what each
/// thread brought, and where measuring began. `body` gets its place, its session, a recorder with where that begins, and
/// what tells it to stop.
pub(crate) fn drive<S: Send, T: Send>(
    stage: &Stage<'_>,
    sessions: Vec<S>,
    outlook: Outlook,
    body: impl Fn(usize, &mut S, (Recorder, u64), &AtomicBool) -> Result<T, WorkerError> + Sync,
) -> Result<(Totals, Vec<T>, u64), RunError> {
    let (crew, stop) = (Crew::new(sessions.len()), AtomicBool::new(false));
    let cells: Vec<Cells> = sessions.iter().map(|_| Cells::default()).collect();
    let (kind, warmup_ns) = (outlook.main, outlook.warmup_ns);
    let mut coordinator = Coordinator::new(stage, outlook, &cells);
    // Pairs with the relaxed loads of the threads, which are joined afterwards.
    let close = || stop.store(true, Ordering::Relaxed);
    let brought = std::thread::scope(|scope| {
        let (crew, body, stop, cells) = (&crew, &body, &stop, &cells);
        let threads: Vec<_> = sessions
            .into_iter()
            .enumerate()
            .map(|(place, mut session)| {
                scope.spawn(move || {
                    let run = |start_ns: u64| {
                        let from_ns = start_ns + warmup_ns;
                        let recorder = Recorder::new(kind, cells[place].0[kind as usize].clone(), from_ns);
                        body(place, &mut session, (recorder, from_ns), stop)
                    };
                    crew.thread(run, close)
                })
            })
            .collect();
        coordinator.watch(crew, close);
        let join = |thread: std::thread::ScopedJoinHandle<'_, Option<T>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().filter_map(join).collect()
    });
    let end = stage.snapshot();
    let from_ns = crew.start_ns() + warmup_ns;
    crew.outcome()?;
    if stage.is_interrupted() {
        return Err(RunError::Interrupted);
    }
    let mut totals = Totals::default();
    coordinator.finish(&mut totals, &end);
    Ok((totals, brought, from_ns))
}
