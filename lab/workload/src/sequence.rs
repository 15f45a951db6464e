//! All steps of the insert benchmark on one target.
//!
//! For each step: counters → the step → counters, sizes → invariants → the record is handed to the watcher. A step
//! whose invariant fails hands over nothing and ends the run.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lab_measure::record::StepRecord;
use lab_measure::{Clock, disk};
use lab_target::{Batch, Description, Target, TargetError};

use crate::assemble::{self, About, StepKind};
use crate::check::{Checked, check, verify};
use crate::coordinator::{Stage, Tick};
use crate::plan::{Case, Plan, PlanError, Scan, Step};
use crate::rest;
use crate::rows::{ROWS_PER_SECOND, Replay, RowMaker};
use crate::step::{self, Client, Context};
use crate::totals::Totals;
use crate::worker::WorkerError;

/// Why a run ended before its time.
#[derive(Clone, Debug)]
pub enum RunError {
    /// The options make no sense.
    Plan(PlanError),
    /// The engine failed, or could not be asked.
    Target(TargetError),
    /// A result was wrong: the step has no number.
    Violated(String),
    /// Ended from outside.
    Interrupted,
}

impl fmt::Display for RunError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Plan(error) => error.fmt(formatter),
            RunError::Target(error) => error.fmt(formatter),
            RunError::Violated(what) => write!(formatter, "an invariant was violated: {what}"),
            RunError::Interrupted => formatter.write_str("interrupted"),
        }
    }
}

impl RunError {
    /// Says after which step something was found wrong.
    pub(crate) fn after(self, step: &str) -> RunError {
        match self {
            RunError::Violated(what) => RunError::Violated(format!("after {step}: {what}")),
            other => other,
        }
    }
}

impl From<TargetError> for RunError {
    fn from(error: TargetError) -> RunError {
        RunError::Target(error)
    }
}

impl From<PlanError> for RunError {
    fn from(error: PlanError) -> RunError {
        RunError::Plan(error)
    }
}

impl From<WorkerError> for RunError {
    fn from(error: WorkerError) -> RunError {
        match error {
            WorkerError::Failed(text) => RunError::Target(TargetError::Failed(text)),
            WorkerError::Wrong(text) => RunError::Violated(text),
        }
    }
}

/// Who is told how a run goes.
pub trait Watcher: Sync {
    /// The step of this name begins.
    fn begins(&self, step: &str);

    /// A second of a step went by.
    fn tick(&self, step: &str, tick: &Tick);

    /// A step is done and its invariants hold. Called again with the same record, amended, when a settle has paid
    /// the debt of a load.
    fn finished(&self, step: &str, record: &StepRecord);

    /// A phase without numbers of its own: "checking", "settling".
    fn phase(&self, text: &str);
}

/// What stays the same over all steps of one run on one target.
pub struct Runner<'a> {
    ctx: Context<'a>,
    case: Case,
    clients: Vec<Client>,
    about: About,
    dir: &'a Path,
    indexed: bool,
    is_last: bool,
    /// The load step just done, until it is known whether a settle follows.
    last_load: Option<StepRecord>,
}

/// Where and as what a target runs.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The target string.
    pub target: &'a str,
    /// The directory of its files.
    pub dir: &'a Path,
    /// Tables and clients.
    pub case: Case,
    /// The repetition, from 1.
    pub repeat: u32,
    /// What the rows' texts are cut from: [`crate::rows::text_pool`] of the plan's seed.
    pub text: Arc<[u8]>,
    /// Resident memory before the target was opened, the texts included.
    pub rss_before_open_bytes: Option<u64>,
    /// What the drive may write in its life.
    pub drive_rated_bytes: Option<u64>,
}

impl Place<'_> {
    /// What is the same for all steps.
    pub(crate) fn about(&self, description: Description) -> About {
        About {
            target: self.target.into(),
            description,
            repeat: self.repeat,
            case: self.case,
            rss_before_open_bytes: self.rss_before_open_bytes,
            drive_rated_bytes: self.drive_rated_bytes,
        }
    }
}

/// Runs all steps of `plan` on an open target.
///
/// # Errors
/// Why the run ended before its time; steps that were finished have been handed to the watcher.
pub fn run_case(
    target: &dyn Target,
    place: &Place<'_>,
    plan: &Plan,
    interrupt: &AtomicBool,
    watcher: &dyn Watcher,
) -> Result<(), RunError> {
    plan.check()?;
    let (case, dir) = (place.case, place.dir);
    let clients = (0..case.clients).map(|number| {
        let maker = RowMaker::new(plan.seed, number, place.text.clone()).with_price(plan.price);
        let replay = Replay::of(&maker);
        Client { number, table: number % case.tables, maker, replay, inserted: 0, deleted: 0, inserted_hash: 0 }
    });
    let device = disk::Mount::of(dir).map(|mount| mount.device);
    let mut runner = Runner {
        ctx: Context {
            target,
            plan,
            stage: Stage { clock: Clock::start(), device, target, engine: target.runs(), interrupt, watcher },
        },
        case,
        clients: clients.collect(),
        about: place.about(target.describe()),
        dir,
        indexed: false,
        is_last: false,
        last_load: None,
    };
    for table in 0..case.tables {
        target.create_table(table)?;
    }
    let steps = plan.parsed_steps()?;
    for (number, step) in steps.iter().copied().enumerate() {
        if interrupt.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        watcher.begins(&step.name());
        runner.is_last = number + 1 == steps.len();
        runner.step(number as u64, step)?;
    }
    Ok(())
}

impl Runner<'_> {
    fn step(&mut self, number: u64, step: Step) -> Result<(), RunError> {
        if step == Step::Settle {
            let least = Duration::from_secs(self.ctx.plan.settle_seconds);
            let here = (self.ctx.target, self.dir);
            return rest::settle(here, &self.ctx.stage, least, self.last_load.take(), self.is_last);
        }
        self.last_load = None;
        if step == Step::Load {
            self.create_indexes()?;
        }
        let counters_before = self.ctx.target.counters()?;
        let totals = match (self.ctx.plan.work(step, self.case.clients), step) {
            (Some(work), _) => step::run(&self.ctx, number, step, work, &mut self.clients)?,
            (None, Step::Scan(what)) => self.scan(what)?,
            (None, _) => self.build_indexes()?,
        };
        let around = rest::around((self.ctx.target, self.dir), counters_before, || self.check(step))?;
        let work = self.ctx.plan.work(step, self.case.clients);
        let record = assemble::record(&self.about, StepKind::of(step, work, self.case.clients), totals, around);
        self.ctx.stage.watcher.finished(&step.name(), &record);
        if step.is_load() {
            self.last_load = Some(record);
        }
        Ok(())
    }

    fn check(&mut self, step: Step) -> Result<Checked, RunError> {
        self.ctx.stage.watcher.phase("checking invariants");
        let indexes = self.indexed.then_some(self.ctx.plan.index_set);
        let checked = check(self.ctx.target, &mut self.clients, indexes)
            .and_then(|checked| if self.is_last { verify(self.ctx.target).map(|()| checked) } else { Ok(checked) });
        checked.map_err(|error| error.after(&step.name()))
    }

    /// l.x: every client inserts one statement of 100 rows, then the indexes of all tables are created in parallel.
    /// Each row counts once, although three indexes are built.
    fn build_indexes(&mut self) -> Result<Totals, RunError> {
        let (target, plan) = (self.ctx.target, self.ctx.plan);
        let begin = self.ctx.stage.snapshot();
        let mut session = target.session()?;
        let mut batch = Batch::default();
        for client in &mut self.clients {
            client.maker.fill(&mut batch, plan.rows_before_indexes(), ROWS_PER_SECOND);
            let first_key = session.insert(client.table, &batch)?;
            client.replay.made(1, plan.rows_before_indexes(), ROWS_PER_SECOND);
            client.inserted += batch.len() as u64;
            for (key, row) in (first_key..).zip(batch.iter()) {
                client.inserted_hash = client.inserted_hash.wrapping_add(row.hash(key));
            }
        }
        drop(session);
        self.create_indexes()?;
        let end = self.ctx.stage.snapshot();
        let mut totals = Totals { kernel: end.since(&begin), ..Totals::default() };
        totals.secs = totals.kernel.secs;
        totals.rss_bytes = end.process.map_or(0, |process| process.rss_bytes);
        totals.kinds[0].amount = self.clients.iter().map(|client| client.inserted - client.deleted).sum();
        Ok(totals)
    }

    fn create_indexes(&mut self) -> Result<(), RunError> {
        let (target, set) = (self.ctx.target, self.ctx.plan.index_set);
        self.ctx.stage.watcher.phase("creating indexes");
        self.for_each_table(|table| target.create_indexes(table, set).map_err(RunError::from))?;
        self.indexed = true;
        Ok(())
    }

    /// Calls `body` with each table, at the same time.
    fn for_each_table<T: Send>(&self, body: impl Fn(u32) -> Result<T, RunError> + Sync) -> Result<Vec<T>, RunError> {
        let body = &body;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.case.tables).map(|table| scope.spawn(move || body(table))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            // All are waited for, whichever failed.
            threads.into_iter().map(join).collect::<Vec<_>>().into_iter().collect()
        })
    }

    /// Reads everything, with a condition that no row meets: it is looked at, and nothing is returned.
    fn scan(&self, what: Scan) -> Result<Totals, RunError> {
        let target = self.ctx.target;
        self.ctx.stage.watcher.phase("scanning");
        let begin = self.ctx.stage.snapshot();
        let seen = self.for_each_table(|table| {
            let mut session = target.session()?;
            let (rows, met) = match what {
                Scan::FirstRows | Scan::SecondRows => session.look_at_table(table)?,
                Scan::Index(index) => session.look_at_index(table, index)?,
            };
            match met {
                0 => Ok(rows),
                _ => Err(RunError::Violated(format!("{met} rows met a condition that none can meet"))),
            }
        })?;
        let end = self.ctx.stage.snapshot();
        let mut totals = Totals { kernel: end.since(&begin), ..Totals::default() };
        totals.secs = totals.kernel.secs;
        totals.rss_bytes = end.process.map_or(0, |process| process.rss_bytes);
        totals.kinds[0].amount = seen.iter().sum();
        let expected: u64 = self.clients.iter().map(|client| client.inserted - client.deleted).sum();
        if totals.kinds[0].amount != expected && target.ability().stores_rows {
            let found = totals.kinds[0].amount;
            return Err(RunError::Violated(format!("a scan found {found} of {expected} rows")));
        }
        Ok(totals)
    }
}
