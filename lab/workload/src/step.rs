//! One step made of statements: threads, barrier, sampling, totals.
//!
//! 1. Sessions are opened and threads started; all wait at one barrier. The step begins when the coordinator reaches it.
//! 2. A client's inserter, deleter and maker count down; the last one sets the client's stop flag, which its query
//!    threads and its snapshot holder look at.
//! 3. The coordinator wakes every 20 ms: it watches for stalls, once a second it samples memory and tells the
//!    watcher, and on an interrupt, an error or the time limit it closes all feeds. A step in which nobody writes has a
//!    length of its own, at whose end it does the same.
//! 4. When every thread is gone the kernel's counters are read again and the measurements are added up
//!    ([`crate::totals`]).
//!
//! The end of a step is the end of its last insert, delete or paced second; queries are counted up to there. Where nobody
//! writes it is the end of the last query.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use lab_measure::{Clock, Kind, LiveCell, LiveTotals, Recorder, Snapshot, procfs};
use lab_target::{Session, Target};

use crate::feed::{Feed, Pace};
use crate::plan::{Plan, Step, Work};
use crate::random::Random;
use crate::rows::{Replay, RowMaker};
use crate::sequence::{RunError, Watcher};
use crate::totals::{self, Collected, Totals};
use crate::worker::{self, Asked, Shared, WorkerError, Written};

const POLL: Duration = Duration::from_millis(20);

/// What a run shares with its steps.
pub struct Context<'a> {
    /// The engine.
    pub target: &'a dyn Target,
    /// The options.
    pub plan: &'a Plan,
    /// The run's clock.
    pub clock: Clock,
    /// `major:minor` of the device that holds the database.
    pub device: Option<String>,
    /// Set from outside to end the run; read every 20 ms.
    pub interrupt: &'a AtomicBool,
    /// Who is told.
    pub watcher: &'a dyn Watcher,
}

/// A client from step to step.
#[derive(Debug)]
pub struct Client {
    /// Number, from 0.
    pub number: u32,
    /// Its table.
    pub table: u32,
    /// Makes its rows.
    pub maker: RowMaker,
    /// Makes them again, for checking.
    pub replay: Replay,
    /// Rows inserted so far.
    pub inserted: u64,
    /// Rows deleted so far.
    pub deleted: u64,
    /// Sum of the hashes of all rows inserted so far.
    pub inserted_hash: u64,
}

/// Progress of a step, once a second.
#[derive(Clone, Debug, Default)]
pub struct Tick {
    /// Seconds since the step began.
    pub elapsed_secs: f64,
    /// Share of the step that is done.
    pub done: f64,
    /// Seconds since the last tick.
    pub interval_secs: f64,
    /// Rows inserted, rows deleted, queries: so far.
    pub totals: [u64; 3],
    /// The same in this interval.
    pub interval: [u64; 3],
    /// Worst response of each kind in this interval, in microseconds.
    pub worst_us: [u64; 3],
    /// 99th percentile of the step's main kind in this interval, in microseconds.
    pub p99_us: Option<u64>,
    /// Stalls of 50 ms and more so far, as seen every 20 ms.
    pub stalls: u64,
}

/// State of a running step that threads and coordinator share.
struct Running<'a> {
    shared: &'a [Shared<'a>],
    start_ns: &'a AtomicU64,
    barrier: &'a Barrier,
    threads: &'a AtomicUsize,
    /// Inserter, deleter and maker of each client that are still at work.
    writers: &'a [AtomicUsize],
    failures: &'a Mutex<Vec<WorkerError>>,
}

impl Running<'_> {
    fn close_all(&self) {
        for shared in self.shared {
            shared.feed.close();
            shared.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Waits for the start, runs `body`, and whatever happens counts the thread out.
    fn thread<T>(&self, client: usize, is_writer: bool, body: impl FnOnce(u64) -> Result<T, WorkerError>) -> Option<T> {
        struct CountOut<'a>(&'a AtomicUsize);
        impl Drop for CountOut<'_> {
            fn drop(&mut self) {
                // Release: pairs with the coordinator's acquire load.
                self.0.fetch_sub(1, Ordering::Release);
            }
        }
        let _count_out = CountOut(self.threads);
        self.barrier.wait();
        // Written before the coordinator reached the barrier, which orders it.
        let start_ns = self.start_ns.load(Ordering::Relaxed);
        // A thread that died silently would leave the others waiting for it; the message is on stderr already.
        let result = catch_unwind(AssertUnwindSafe(|| body(start_ns)))
            .unwrap_or_else(|_| Err(WorkerError::Failed("a thread of the step panicked".into())));
        if is_writer && self.writers[client].fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared[client].stop.store(true, Ordering::Relaxed);
        }
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.failures.lock().expect("no thread panics while it reports").push(error);
                self.close_all();
                None
            }
        }
    }
}

/// Handles of one client's threads.
struct Handles<'scope> {
    inserter: Option<ScopedJoinHandle<'scope, Option<Written>>>,
    deleter: Option<ScopedJoinHandle<'scope, Option<Written>>>,
    maker: Option<ScopedJoinHandle<'scope, Option<(Pace, u64)>>>,
    query: Option<ScopedJoinHandle<'scope, Option<Asked>>>,
    holder: Option<ScopedJoinHandle<'scope, Option<u64>>>,
}

/// The live cells of one client.
#[derive(Clone, Default)]
struct Cells([Arc<LiveCell>; 3]);

/// Runs a step. `number` is its place in the plan, which seeds its queries.
pub fn run(ctx: &Context<'_>, number: u64, step: Step, work: Work, clients: &mut [Client]) -> Result<Totals, RunError> {
    let holders = ctx.plan.htap_seconds > 0 && work.deletes;
    let writes = work.alone_ns.is_none();
    let a_client = usize::from(writes) + usize::from(work.deletes) + usize::from(work.pace.is_some());
    let threads_each = a_client + usize::from(work.query.is_some()) + usize::from(holders);
    let shared: Vec<Shared<'_>> = clients.iter().map(|client| shared_of(ctx, client, work)).collect();
    let (start_ns, barrier) = (AtomicU64::new(0), Barrier::new(threads_each * clients.len() + 1));
    let threads = AtomicUsize::new(threads_each * clients.len());
    let writers: Vec<AtomicUsize> = clients.iter().map(|_| AtomicUsize::new(a_client)).collect();
    let failures = Mutex::default();
    let running = Running {
        shared: &shared,
        start_ns: &start_ns,
        barrier: &barrier,
        threads: &threads,
        writers: &writers,
        failures: &failures,
    };
    let cells: Vec<Cells> = clients.iter().map(|_| Cells::default()).collect();
    // Every session is opened before the first thread starts, so that a failure leaves nobody at the barrier.
    let mut sessions = Vec::new();
    for _ in 0..threads_each * clients.len() {
        sessions.push(ctx.target.session()?);
    }
    let mut totals = Totals::default();
    let mut coordinator = Coordinator::new(ctx, step, work, &cells);
    let collected = std::thread::scope(|scope| {
        let handles: Vec<Handles<'_>> = clients
            .iter_mut()
            .enumerate()
            .map(|(place, client)| spawn(scope, ctx, &running, place, client, &cells[place], number, &mut sessions))
            .collect();
        let begin = Snapshot::take(&ctx.clock, ctx.device.as_deref());
        start_ns.store(ctx.clock.now_ns(), Ordering::Relaxed);
        barrier.wait();
        coordinator.watch(&running, begin);
        handles.into_iter().map(collect).collect::<Vec<_>>()
    });
    let end = Snapshot::take(&ctx.clock, ctx.device.as_deref());
    let failed = failures.into_inner().expect("no thread panics while it reports");
    if let Some(error) = failed.into_iter().next() {
        return Err(error.into());
    }
    if ctx.interrupt.load(Ordering::Relaxed) {
        return Err(RunError::Interrupted);
    }
    coordinator.finish(&mut totals, &end);
    let from_ns = start_ns.into_inner() + work.warmup_ns;
    totals::add_up(&mut totals, collected, clients, work, from_ns);
    Ok(totals)
}

fn shared_of<'a>(ctx: &'a Context<'_>, client: &Client, work: Work) -> Shared<'a> {
    Shared {
        feed: Feed::new(work.statements, work.pace.is_some(), work.deletes),
        min_key: AtomicU64::new(1),
        stop: AtomicBool::new(false),
        table: client.table,
        work,
        clock: &ctx.clock,
    }
}

#[allow(clippy::too_many_arguments)]
fn spawn<'scope, 'env: 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    ctx: &'env Context<'_>,
    running: &'env Running<'env>,
    place: usize,
    client: &'env mut Client,
    cells: &'env Cells,
    number: u64,
    sessions: &mut Vec<Box<dyn Session>>,
) -> Handles<'scope> {
    let shared = &running.shared[place];
    let work = shared.work;
    let mut session = || sessions.pop().expect("one session was opened for each thread");
    let recorder =
        move |kind: Kind, start_ns: u64| Recorder::new(kind, cells.0[kind as usize].clone(), start_ns + work.warmup_ns);
    let maker = &mut client.maker;
    let inserter = work.alone_ns.is_none().then(|| {
        let mut own = session();
        scope.spawn(move || {
            running
                .thread(place, true, |start| worker::insert(shared, own.as_mut(), maker, recorder(Kind::Insert, start)))
        })
    });
    let deleter = work.deletes.then(|| {
        let (mut own, form) = (session(), ctx.plan.delete_form);
        scope.spawn(move || {
            running
                .thread(place, true, |start| worker::delete(shared, own.as_mut(), form, recorder(Kind::Delete, start)))
        })
    });
    let maker = work.pace.map(|rate| {
        // The original's statement maker has a connection too.
        let idle = session();
        scope.spawn(move || {
            let mut pace = Pace::new(rate, work.rows);
            let out = running.thread(place, true, |start| {
                pace.run(&shared.feed, &ctx.clock, start);
                Ok(ctx.clock.now_ns())
            });
            drop(idle);
            out.map(|end_ns| (pace, end_ns))
        })
    });
    let query = work.query.map(|kind| {
        let (mut own, set) = (session(), ctx.plan.index_set);
        let random = Random::new(ctx.plan.seed, 0x7175_0000_0000_0000 | number << 32 | u64::from(client.number));
        scope.spawn(move || {
            running.thread(place, false, |start| {
                worker::query(shared, own.as_mut(), kind, set, random, recorder(Kind::Query, start))
            })
        })
    });
    let holder = (ctx.plan.htap_seconds > 0 && work.deletes).then(|| {
        let (mut own, seconds) = (session(), ctx.plan.htap_seconds);
        scope.spawn(move || running.thread(place, false, |_| worker::hold(shared, own.as_mut(), seconds)))
    });
    Handles { inserter, deleter, maker, query, holder }
}

fn collect(handles: Handles<'_>) -> Collected {
    fn join<T>(handle: ScopedJoinHandle<'_, Option<T>>) -> Option<T> {
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
    let collected = Collected {
        inserted: handles.inserter.and_then(join),
        deleted: handles.deleter.and_then(join),
        pace: handles.maker.and_then(join),
        asked: handles.query.and_then(join),
    };
    handles.holder.map(join);
    collected
}

/// What the coordinator keeps while the threads run.
struct Coordinator<'a> {
    ctx: &'a Context<'a>,
    step: Step,
    work: Work,
    cells: &'a [Cells],
    begin: Snapshot,
    rss_bytes: u64,
    cut_short: bool,
    stalls: u64,
    last: [LiveTotals; 3],
    last_tick_ns: u64,
}

impl<'a> Coordinator<'a> {
    fn new(ctx: &'a Context<'a>, step: Step, work: Work, cells: &'a [Cells]) -> Coordinator<'a> {
        Coordinator {
            ctx,
            step,
            work,
            cells,
            begin: Snapshot::default(),
            rss_bytes: 0,
            cut_short: false,
            stalls: 0,
            last: Default::default(),
            last_tick_ns: 0,
        }
    }

    fn live(&self) -> [LiveTotals; 3] {
        let mut totals: [LiveTotals; 3] = Default::default();
        for cells in self.cells {
            for (total, cell) in totals.iter_mut().zip(&cells.0) {
                total.add(cell);
            }
        }
        totals
    }

    /// Steps 3 of the module: until every thread is gone.
    fn watch(&mut self, running: &Running<'_>, begin: Snapshot) {
        let start_ns = begin.at_ns;
        let mut warm = self.work.warmup_ns == 0;
        self.begin = begin;
        self.last_tick_ns = start_ns;
        let (mut moved_ns, mut seen, mut stalled) = (start_ns, 0, false);
        // Pairs with the release of each thread's count-out.
        while running.threads.load(Ordering::Acquire) > 0 {
            std::thread::sleep(POLL);
            let now_ns = self.ctx.clock.now_ns();
            if !warm && now_ns - start_ns >= self.work.warmup_ns {
                warm = true;
                self.begin = Snapshot::take(&self.ctx.clock, self.ctx.device.as_deref());
            }
            let live = self.live();
            let statements = live.iter().map(|kind| kind.statements).sum();
            if statements != seen {
                (seen, moved_ns, stalled) = (statements, now_ns, false);
            } else if self.work.pace.is_none() && !stalled && now_ns - moved_ns >= lab_measure::stall::STALL_NS {
                (stalled, self.stalls) = (true, self.stalls + 1);
            }
            if now_ns - self.last_tick_ns >= 1_000_000_000 {
                self.tick(now_ns, start_ns, live);
            }
            let limit_ns = self.ctx.plan.max_seconds * 1_000_000_000;
            if limit_ns > 0 && now_ns - start_ns > limit_ns && !self.cut_short {
                self.cut_short = true;
                running.close_all();
            }
            let is_over = self.work.alone_ns.is_some_and(|length_ns| now_ns - start_ns >= length_ns);
            if is_over || self.ctx.interrupt.load(Ordering::Relaxed) {
                running.close_all();
            }
        }
        self.sample_rss();
    }

    fn sample_rss(&mut self) {
        self.rss_bytes = self.rss_bytes.max(procfs::Process::read().map_or(0, |process| process.rss_bytes));
    }

    fn tick(&mut self, now_ns: u64, start_ns: u64, live: [LiveTotals; 3]) {
        self.sample_rss();
        let main = if self.work.query.is_some() { Kind::Query } else { Kind::Insert };
        let planned = self.work.statements * self.cells.len() as u64;
        let worst_us = Kind::ALL.map(|kind| {
            self.cells.iter().map(|cells| cells.0[kind as usize].take_worst_ns()).max().unwrap_or(0) / 1_000
        });
        let elapsed_secs = (now_ns - start_ns) as f64 / 1e9;
        // The statements of a paced second come in a burst: there, time is the better measure.
        let done = match self.work.planned_secs() {
            Some(planned_secs) => elapsed_secs / planned_secs,
            None => live[Kind::Insert as usize].statements as f64 / planned.max(1) as f64,
        };
        let tick = Tick {
            elapsed_secs,
            done: done.min(1.0),
            interval_secs: (now_ns - self.last_tick_ns) as f64 / 1e9,
            totals: Kind::ALL.map(|kind| live[kind as usize].amount),
            interval: Kind::ALL.map(|kind| live[kind as usize].amount - self.last[kind as usize].amount),
            worst_us,
            p99_us: live[main as usize].p99_ns_since(&self.last[main as usize]).map(|ns| ns / 1_000),
            stalls: self.stalls,
        };
        self.ctx.watcher.tick(self.step, &tick);
        self.last = live;
        self.last_tick_ns = now_ns;
    }

    fn finish(self, totals: &mut Totals, end: &Snapshot) {
        totals.kernel = end.since(&self.begin);
        totals.rss_bytes = self.rss_bytes;
        totals.cut_short = self.cut_short;
    }
}
