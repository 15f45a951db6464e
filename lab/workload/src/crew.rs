//! The threads of a step: they start together, none of them can leave the others waiting, and all are counted out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

use lab_measure::Clock;

use crate::worker::WorkerError;

/// What threads and coordinator share.
pub(crate) struct Crew {
    start_ns: AtomicU64,
    barrier: Barrier,
    threads: AtomicUsize,
    failures: Mutex<Vec<WorkerError>>,
}

impl Crew {
    /// A crew of so many threads and one coordinator.
    pub(crate) fn new(threads: usize) -> Crew {
        Crew {
            start_ns: AtomicU64::new(0),
            barrier: Barrier::new(threads + 1),
            threads: AtomicUsize::new(threads),
            failures: Mutex::default(),
        }
    }

    /// The coordinator starts everybody.
    pub(crate) fn start(&self, clock: &Clock) {
        self.start_ns.store(clock.now_ns(), Ordering::Relaxed);
        self.barrier.wait();
    }

    /// When that was.
    pub(crate) fn start_ns(&self) -> u64 {
        self.start_ns.load(Ordering::Relaxed)
    }

    /// Threads that are not done.
    pub(crate) fn threads(&self) -> usize {
        // Acquire: pairs with the release of each thread's count-out.
        self.threads.load(Ordering::Acquire)
    }

    /// Waits for the start, runs `body`, and whatever happens counts the thread out. If it failed, `stop` is called.
    pub(crate) fn thread<T>(&self, body: impl FnOnce(u64) -> Result<T, WorkerError>, stop: impl FnOnce()) -> Option<T> {
        struct CountOut<'a>(&'a AtomicUsize);
        impl Drop for CountOut<'_> {
            fn drop(&mut self) {
                // Release: pairs with the coordinator's acquire load.
                self.0.fetch_sub(1, Ordering::Release);
            }
        }
        let _count_out = CountOut(&self.threads);
        self.barrier.wait();
        // Written before the coordinator reached the barrier, which orders it.
        let start_ns = self.start_ns.load(Ordering::Relaxed);
        // A thread that died silently would leave the others waiting for it; the message is on stderr already.
        let result = catch_unwind(AssertUnwindSafe(|| body(start_ns)))
            .unwrap_or_else(|_| Err(WorkerError::Failed("a thread of the step panicked".into())));
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.failures.lock().expect("no thread panics while it reports").push(error);
                stop();
                None
            }
        }
    }

    /// The first failure.
    pub(crate) fn outcome(self) -> Result<(), WorkerError> {
        let failures = self.failures.into_inner().expect("no thread panics while it reports");
        failures.into_iter().next().map_or(Ok(()), Err)
    }
}
