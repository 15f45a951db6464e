//! Where the time of one thread went: on a processor, waiting for one, in calls of the file layer, waiting for its partner.
//!
//! A thread of the driver runs the foreground of an embedded engine itself, so what happens on it is what its operations
//! waited for. Each call that may block adds its length, and the processor time within it, to a cell of the thread; the
//! recorder reads the cell, the thread's clock and the kernel's run queue wait at the beginning and at the end.
//!
//! The kernel's times are those of the thread: `CLOCK_THREAD_CPUTIME_ID`, exact at every moment, and the second number of
//! `/proc/thread-self/schedstat`, which grows whenever the thread gets a processor.

use std::cell::Cell;
use std::fs;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A call that may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Reading a file.
    Read,
    /// Writing a file.
    Write,
    /// Making a file durable.
    Sync,
    /// Waiting for the other side of a client, or for the pace.
    Partner,
    /// A pause that the target was told to make.
    Pause,
}

const KINDS: usize = 5;

/// What one kind of call took on this thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    count: u64,
    ns: u64,
    cpu_ns: u64,
}

thread_local! {
    static SPENT: Cell<[Spent; KINDS]> = const { Cell::new([Spent { count: 0, ns: 0, cpu_ns: 0 }; KINDS]) };
}

/// Processor time of this thread in nanoseconds.
fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// How long this thread has waited for a processor, in nanoseconds, if the kernel tells.
fn run_queue_ns() -> Option<u64> {
    fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// Runs `body` and adds what it took to this thread's cell.
pub fn timed<T>(doing: Doing, body: impl FnOnce() -> T) -> T {
    let (began, cpu) = (Instant::now(), cpu_ns());
    let out = body();
    let (ns, cpu) = (began.elapsed().as_nanos() as u64, cpu_ns().saturating_sub(cpu));
    SPENT.with(|cell| {
        let mut all = cell.get();
        let spent = &mut all[doing as usize];
        (spent.count, spent.ns, spent.cpu_ns) = (spent.count + 1, spent.ns + ns, spent.cpu_ns + cpu);
        cell.set(all);
    });
    out
}

/// A thread at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    at: Instant,
    cpu_ns: u64,
    run_queue_ns: Option<u64>,
    spent: [Spent; KINDS],
}

impl Mark {
    /// This thread now.
    #[must_use]
    pub fn now() -> Mark {
        Mark { at: Instant::now(), cpu_ns: cpu_ns(), run_queue_ns: run_queue_ns(), spent: SPENT.with(Cell::get) }
    }

    /// What this thread did since, of which `statements_ns` were statements.
    #[must_use]
    pub fn until_now(&self, statements_ns: u64) -> ThreadTimes {
        let now = Mark::now();
        let us = |ns: u64| ns as f64 / 1e3;
        let of = |doing: Doing| {
            let (then, now) = (self.spent[doing as usize], now.spent[doing as usize]);
            ((now.count - then.count) as f64, us(now.ns - then.ns), us(now.cpu_ns - then.cpu_ns))
        };
        let (reads, read_us, read_cpu_us) = of(Doing::Read);
        let (writes, write_us, write_cpu_us) = of(Doing::Write);
        let (syncs, sync_us, sync_cpu_us) = of(Doing::Sync);
        let waited = now.run_queue_ns.zip(self.run_queue_ns).map(|(now, then)| us(now.saturating_sub(then)));
        ThreadTimes {
            threads: 1,
            wall_us: us(now.at.duration_since(self.at).as_nanos() as u64),
            statement_us: us(statements_ns),
            cpu_us: us(now.cpu_ns.saturating_sub(self.cpu_ns)),
            run_queue_us: waited,
            reads,
            read_us,
            writes,
            write_us,
            syncs,
            sync_us,
            file_cpu_us: read_cpu_us + write_cpu_us + sync_cpu_us,
            partner_us: of(Doing::Partner).1,
            pause_us: of(Doing::Pause).1,
        }
    }
}

/// The times of all threads of one kind in a step, added up, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadTimes {
    /// How many threads.
    pub threads: u32,
    /// From begin to end.
    pub wall_us: f64,
    /// In statements: execution and fetch.
    pub statement_us: f64,
    /// On a processor.
    pub cpu_us: f64,
    /// Waiting for a processor.
    pub run_queue_us: Option<f64>,
    /// Reads of files.
    pub reads: f64,
    /// In them.
    pub read_us: f64,
    /// Writes of files.
    pub writes: f64,
    /// In them.
    pub write_us: f64,
    /// Syncs of files.
    pub syncs: f64,
    /// In them.
    pub sync_us: f64,
    /// On a processor in reads, writes and syncs.
    pub file_cpu_us: f64,
    /// Waiting for the other side of the client, or for the pace.
    pub partner_us: f64,
    /// In pauses that the target was told to make.
    pub pause_us: f64,
}

impl ThreadTimes {
    /// Adds another thread.
    pub fn add(&mut self, other: &ThreadTimes) {
        self.run_queue_us = match self.threads {
            0 => other.run_queue_us,
            _ => self.run_queue_us.zip(other.run_queue_us).map(|(left, right)| left + right),
        };
        self.threads += other.threads;
        for (sum, more) in [
            (&mut self.wall_us, other.wall_us),
            (&mut self.statement_us, other.statement_us),
            (&mut self.cpu_us, other.cpu_us),
            (&mut self.reads, other.reads),
            (&mut self.read_us, other.read_us),
            (&mut self.writes, other.writes),
            (&mut self.write_us, other.write_us),
            (&mut self.syncs, other.syncs),
            (&mut self.sync_us, other.sync_us),
            (&mut self.file_cpu_us, other.file_cpu_us),
            (&mut self.partner_us, other.partner_us),
            (&mut self.pause_us, other.pause_us),
        ] {
            *sum += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_call_that_sleeps_takes_time_and_no_processor() {
        let mark = Mark::now();
        timed(Doing::Sync, || std::thread::sleep(Duration::from_millis(20)));
        timed(Doing::Read, || ());
        let times = mark.until_now(5_000);
        assert!(times.sync_us >= 20_000.0 && times.wall_us >= times.sync_us, "{times:?}");
        assert!(times.file_cpu_us < 10_000.0 && times.cpu_us < times.wall_us, "{times:?}");
        assert_eq!((times.syncs, times.reads, times.writes, times.statement_us), (1.0, 1.0, 0.0, 5.0));
        // Another thread has a cell of its own.
        let other = std::thread::spawn(|| Mark::now().until_now(0)).join().unwrap();
        assert_eq!(other.syncs, 0.0);
        let mut sum = times;
        sum.add(&other);
        assert_eq!((sum.threads, sum.syncs), (2, 1.0));
    }
}
