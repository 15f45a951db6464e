//! Load, runs and checks on one target.
//!
//! 1. The load: threads take parts of the rows, one after the other, until none is left.
//! 2. `run`: one thread a session takes cards from its deck for the length of the step.
//! 3. `snapshot`: the same, while one more thread checks the conditions in one snapshot after another.
//! 4. After each of them, with nobody at work, the conditions, rows and entries are checked; then the record is handed
//!    to the watcher. A step whose answers or conditions are wrong hands over nothing and ends the run.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use lab_measure::record::StepRecord;
use lab_measure::{Clock, disk};
use lab_target::Target;
use lab_target::tpcc::{Session, Table, Tables, hash, warehouse};

use super::check::{conditions, contents};
use super::client::{self, Brought};
use super::conditions::{Expected, broken};
use super::plan::{Plan, Step};
use super::population::{LOAD_ROWS, Part, Population, parts, rows_expected};
use super::results;
use super::transactions::Transactions;
use super::world::{Counts, World};
use crate::assemble::{self, About, StepKind};
use crate::check::{Checked, verify};
use crate::coordinator::{Outlook, Stage};
use crate::drive::drive;
use crate::random::Random;
use crate::rest;
use crate::sequence::{Place, RunError, Watcher};
use crate::totals::{Totals, add_asked, add_written};
use crate::worker::{WorkerError, Written};

/// What stays the same over all steps of one run on one target.
struct Runner<'a> {
    target: &'a dyn Target,
    tables: &'a dyn Tables,
    plan: &'a Plan,
    stage: Stage<'a>,
    about: About,
    dir: &'a Path,
    world: World,
    is_last: bool,
    /// The load just done, until it is known whether a settle follows.
    last_load: Option<StepRecord>,
}

/// Runs all steps of `plan` but `crash` on an open target.
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
    let tables = target.tpcc()?;
    tables.create()?;
    let mut runner = Runner {
        target,
        tables: &*tables,
        plan,
        stage: Stage {
            clock: Clock::start(),
            device: disk::Mount::of(place.dir).map(|mount| mount.device),
            target,
            engine: target.runs(),
            interrupt,
            watcher,
        },
        about: place.about(target.describe()),
        dir: place.dir,
        world: World::new(plan.size(), plan.seed, target.ability().stores_rows, 0),
        is_last: false,
        last_load: None,
    };
    let steps = plan.parsed_steps()?;
    let here = steps.iter().zip(&plan.steps).filter(|(step, _)| **step != Step::Crash).collect::<Vec<_>>();
    for (number, (step, name)) in here.iter().enumerate() {
        if runner.stage.is_interrupted() {
            return Err(RunError::Interrupted);
        }
        watcher.begins(name);
        runner.is_last = number + 1 == here.len();
        runner.step(number as u64, **step, name)?;
    }
    Ok(())
}

/// Fills the tables with nobody looking: for who wants a database to try something on.
///
/// # Errors
/// Those of the engine.
pub fn fill(session: &mut dyn Session, plan: &Plan) -> Result<(), RunError> {
    let population = Population::new(plan.size(), plan.seed);
    for part in parts(&plan.size()) {
        population.make(part, &mut |table, rows| {
            session.begin(false)?;
            session.insert(table, &rows)?;
            session.commit()
        })?;
    }
    Ok(())
}

impl Runner<'_> {
    fn step(&mut self, number: u64, step: Step, name: &str) -> Result<(), RunError> {
        if step == Step::Settle {
            let least = Duration::from_secs(self.plan.settle_seconds);
            return rest::settle((self.target, self.dir), &self.stage, least, self.last_load.take(), self.is_last);
        }
        self.last_load = None;
        let counters_before = self.target.counters()?;
        if step == Step::Load {
            let (totals, made) = self.load(name)?;
            let around = rest::around((self.target, self.dir), counters_before, || self.check(name, Some(made)))?;
            let mut record = assemble::record(&self.about, StepKind::plain("tpcc", name, false), totals, around);
            record.notes.extend(self.plan.deviations());
            self.stage.watcher.finished(name, &record);
            self.last_load = Some(record);
            return Ok(());
        }
        let (totals, brought, checks) = self.run(number, name, step == Step::Snapshot)?;
        let around = rest::around((self.target, self.dir), counters_before, || self.check(name, None))?;
        let mut record = assemble::record(&self.about, StepKind::plain("tpcc", name, true), totals, around);
        results::add(&mut record, &brought);
        record.notes.extend(self.plan.deviations());
        if step == Step::Snapshot {
            record.notes.push(format!("the conditions were checked in {checks} snapshots beside the transactions"));
        }
        self.stage.watcher.finished(name, &record);
        Ok(())
    }

    /// Returns also the sum of the hashes of all rows.
    fn load(&self, name: &str) -> Result<(Totals, u64), RunError> {
        let (size, clock) = (self.world.size, &self.stage.clock);
        let (parts, population) = (parts(&size), Population::new(size, self.plan.seed));
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(parts.len());
        let sessions = (0..threads).map(|_| self.tables.session()).collect::<Result<Vec<_>, _>>()?;
        let outlook = Outlook::load(name, rows_expected(&size) / LOAD_ROWS as u64);
        let next = AtomicUsize::new(0);
        let (mut totals, written, from_ns) =
            drive(&self.stage, sessions, outlook, |_, session, (recorder, _), stop| {
                let mut out = Written::new(recorder);
                // It only hands out numbers: relaxed.
                while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    load_part(&population, *part, session.as_mut(), clock, &mut out)?;
                }
                out.end_ns = clock.now_ns();
                out.recorder.finish();
                out.switches = lab_measure::procfs::thread_switches().unwrap_or(0);
                Ok(out)
            })?;
        let made = written.iter().fold(0u64, |sum, written| sum.wrapping_add(written.hash));
        add_written(&mut totals, written, from_ns);
        Ok((totals, made))
    }

    /// Runs transactions, and if wanted checks snapshots beside them; returns how many of these there were.
    fn run(&self, number: u64, name: &str, checks: bool) -> Result<(Totals, Vec<Brought>, u64), RunError> {
        let (tables, clients, clock) = (self.tables, self.about.case.clients, &self.stage.clock);
        let checks = checks && self.world.answers;
        let sessions = (0..clients as usize + usize::from(checks)).map(|_| tables.session());
        let sessions = sessions.collect::<Result<Vec<_>, _>>()?;
        let outlook = Outlook::timed(name, self.plan.warmup, self.plan.seconds, self.plan.max_seconds);
        let done = AtomicU64::new(0);
        let (mut totals, mut brought, from_ns) =
            drive(&self.stage, sessions, outlook, |place, session, recorder, stop| {
                if place == clients as usize {
                    while !stop.load(Ordering::Relaxed) {
                        self.check_snapshot(session.as_mut())?;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    return Ok(Brought::default());
                }
                let random = Random::new(self.plan.seed, 0x7478_0000_0000_0000 | number << 32 | place as u64);
                let transactions = Transactions::new(&self.world, place as u32, random);
                client::run(transactions, session.as_mut(), clock, recorder, stop, &|_| Ok(()))
            })?;
        brought.truncate(clients as usize);
        add_asked(&mut totals, brought.iter_mut().map(|brought| brought.asked.take()), from_ns);
        Ok((totals, brought, done.into_inner()))
    }

    /// What was acknowledged before the snapshot has to be in it; nothing can be in it that was not begun once it stands.
    fn check_snapshot(&self, session: &mut dyn Session) -> Result<(), WorkerError> {
        let done = self.world.done();
        session.begin(true)?;
        session.scan(Table::Warehouse, (&[1], &[1]), &[warehouse::ID], &mut |_| ())?;
        let expected = Expected { done, begun: self.world.begun() };
        let all = broken(session, self.world.size, &expected)?;
        session.commit()?;
        let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
        if texts.is_empty() {
            return Ok(());
        }
        Err(WorkerError::Wrong(format!("in a snapshot while transactions go on: {}", texts.join("; "))))
    }

    /// Looks at everything; `made` is the sum of the hashes of all rows right after the load.
    fn check(&self, name: &str, made: Option<u64>) -> Result<Checked, RunError> {
        if !self.world.answers {
            return Ok(Checked { verdict: "not checked: the target stores no rows".into(), ..Checked::default() });
        }
        self.stage.watcher.phase("checking the twelve conditions");
        let after = |error: RunError| error.after(name);
        let expected = match made {
            Some(_) => Expected::exactly(Counts::none(&self.world.size)),
            None => Expected { done: self.world.done(), begun: self.world.begun() },
        };
        let mut session = self.tables.session()?;
        conditions(session.as_mut(), self.world.size, &expected).map_err(after)?;
        let holds = contents(session.as_mut(), self.world.size).map_err(after)?;
        if made.is_some_and(|made| made != holds.hash) {
            return Err(after(RunError::Violated("a row does not hold what was sent".into())));
        }
        drop(session);
        if self.is_last {
            verify(self.target).map_err(after)?;
        }
        // What a run leaves depends on how much of it was done.
        let checksum = made.map(|made| format!("{made:016x}"));
        Ok(Checked { verdict: "ok".into(), rows: Some(holds.rows), checksum })
    }
}

fn load_part(
    population: &Population,
    part: Part,
    session: &mut dyn Session,
    clock: &Clock,
    out: &mut Written,
) -> Result<(), WorkerError> {
    population.make(part, &mut |table, rows| {
        out.hash = rows.iter().fold(out.hash, |sum, row| sum.wrapping_add(hash(table, row)));
        let begin_ns = clock.now_ns();
        session.begin(false)?;
        session.insert(table, &rows)?;
        session.commit()?;
        out.recorder.record(begin_ns, clock.now_ns(), rows.len() as u64, None);
        out.rows += rows.len() as u64;
        out.statements += 1;
        Ok(())
    })
}
