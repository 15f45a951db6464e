//! One step made of statements: threads, barrier, sampling, totals.
//!
//! 1. Sessions are opened and threads started; all wait at one barrier. The step begins when the coordinator reaches it.
//! 2. A client's inserter, deleter and maker count down; the last one sets the client's stop flag, which its query
//!    threads and its snapshot holder look at.
//! 3. The coordinator ([`crate::coordinator`]) watches; on an interrupt, an error or the time limit all feeds are closed,
//!    and at the end of the length of its own that a step has in which nobody writes.
//! 4. When every thread is gone the kernel's counters are read again and the measurements are added up
//!    ([`crate::totals`]).
//!
//! The end of a step is the end of its last insert, delete or paced second; queries are counted up to there. Where nobody
//! writes it is the end of the last query.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{Scope, ScopedJoinHandle};

use lab_measure::{Kind, Recorder};
use lab_target::{Session, Target};

use crate::coordinator::{Cells, Coordinator, Outlook, Stage};
use crate::crew::Crew;
use crate::feed::{Feed, Pace};
use crate::plan::{Plan, Step, Work};
use crate::random::Random;
use crate::rows::{ROWS_PER_SECOND, Replay, RowMaker};
use crate::sequence::RunError;
use crate::totals::{self, Collected, Terms, Totals};
use crate::worker::{self, Asked, Shared, WorkerError, Written};

/// What a run shares with its steps.
pub struct Context<'a> {
    /// The engine.
    pub target: &'a dyn Target,
    /// The options.
    pub plan: &'a Plan,
    /// What all workloads share.
    pub stage: Stage<'a>,
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

/// State of a running step that threads and coordinator share.
struct Running<'a> {
    shared: &'a [Shared<'a>],
    crew: &'a Crew,
    /// Inserter, deleter and maker of each client that are still at work.
    writers: &'a [AtomicUsize],
}

impl Running<'_> {
    fn close_all(&self) {
        for shared in self.shared {
            shared.feed.close();
            shared.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Runs a thread of a client; the last writer of a client stops its query threads.
    fn thread<T>(&self, client: usize, is_writer: bool, body: impl FnOnce(u64) -> Result<T, WorkerError>) -> Option<T> {
        let result = self.crew.thread(body, || self.close_all());
        if is_writer && self.writers[client].fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared[client].stop.store(true, Ordering::Relaxed);
        }
        result
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

/// Runs a step. `number` is its place in the plan, which seeds its queries.
pub fn run(ctx: &Context<'_>, number: u64, step: Step, work: Work, clients: &mut [Client]) -> Result<Totals, RunError> {
    let holders = ctx.plan.htap_seconds > 0 && work.deletes;
    let writes = work.alone_ns.is_none();
    let a_client = usize::from(writes) + usize::from(work.deletes) + usize::from(work.pace.is_some());
    let threads_each = a_client + usize::from(work.query.is_some()) + usize::from(holders);
    let shared: Vec<Shared<'_>> = clients.iter().map(|client| shared_of(ctx, client, work)).collect();
    let crew = Crew::new(threads_each * clients.len());
    let writers: Vec<AtomicUsize> = clients.iter().map(|_| AtomicUsize::new(a_client)).collect();
    let running = Running { shared: &shared, crew: &crew, writers: &writers };
    let cells: Vec<Cells> = clients.iter().map(|_| Cells::default()).collect();
    // Every session is opened before the first thread starts, so that a failure leaves nobody at the barrier.
    let mut sessions = Vec::new();
    for _ in 0..threads_each * clients.len() {
        sessions.push(ctx.target.session()?);
    }
    let mut totals = Totals::default();
    let mut coordinator = Coordinator::new(&ctx.stage, outlook(ctx.plan, step, work, clients.len() as u64), &cells);
    let collected = std::thread::scope(|scope| {
        let handles: Vec<Handles<'_>> = clients
            .iter_mut()
            .enumerate()
            .map(|(place, client)| spawn(scope, ctx, &running, place, client, &cells[place], number, &mut sessions))
            .collect();
        coordinator.watch(&crew, || running.close_all());
        handles.into_iter().map(collect).collect::<Vec<_>>()
    });
    let end = ctx.stage.snapshot();
    let from_ns = crew.start_ns() + work.warmup_ns;
    crew.outcome()?;
    if ctx.stage.is_interrupted() {
        return Err(RunError::Interrupted);
    }
    coordinator.finish(&mut totals, &end);
    collected.iter().zip(clients).for_each(|(brought, client)| client.note(brought, work));
    let terms = Terms { paced: work.pace.is_some(), deletes: work.deletes, alone: work.alone_ns.is_some(), from_ns };
    totals::add_up(&mut totals, collected, terms);
    Ok(totals)
}

fn outlook(plan: &Plan, step: Step, work: Work, clients: u64) -> Outlook {
    Outlook {
        name: step.name(),
        warmup_ns: work.warmup_ns,
        alone_ns: work.alone_ns,
        limit_ns: plan.max_seconds * 1_000_000_000,
        paced: work.pace.is_some(),
        main: if work.query.is_some() { Kind::Query } else { Kind::Insert },
        planned_secs: work.planned_secs(),
        statements: work.statements * clients,
    }
}

impl Client {
    /// What its threads wrote in a step.
    fn note(&mut self, brought: &Collected, work: Work) {
        if let Some(written) = &brought.inserted {
            self.replay.made(written.statements, work.rows, work.pace.unwrap_or(ROWS_PER_SECOND));
            self.inserted += written.rows;
            self.inserted_hash = self.inserted_hash.wrapping_add(written.hash);
        }
        self.deleted += brought.deleted.as_ref().map_or(0, |deleted| deleted.rows);
    }
}

fn shared_of<'a>(ctx: &'a Context<'_>, client: &Client, work: Work) -> Shared<'a> {
    Shared {
        feed: Feed::new(work.statements, work.pace.is_some(), work.deletes),
        min_key: AtomicU64::new(1),
        stop: AtomicBool::new(false),
        table: client.table,
        work,
        clock: &ctx.stage.clock,
        price: ctx.plan.price,
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
                pace.run(&shared.feed, &ctx.stage.clock, start);
                Ok(ctx.stage.clock.now_ns())
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
