//! Load and all tests on one target.
//!
//! 1. The load: one thread a table inserts its rows in key order and then creates its index.
//! 2. A test: one thread a client runs events for the length of the test.
//! 3. After what writes, all tables are checked; then the record is handed to the watcher. A step whose answers or
//!    invariants are wrong hands over nothing and ends the run.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use lab_measure::record::StepRecord;
use lab_measure::{Clock, Kind, disk};
use lab_target::Target;
use lab_target::sysbench::Tables;

use super::catalogue::{Step, Test};
use super::check::{Expected, check};
use super::client::{self, Brought};
use super::event::{Events, Known, World};
use super::plan::Plan;
use super::rows::{hash, loaded};
use crate::assemble::{self, About, Around, StepKind};
use crate::check::{Checked, verify};
use crate::coordinator::{Outlook, Stage};
use crate::drive::drive;
use crate::random::Random;
use crate::rest;
use crate::sequence::{Place, RunError, Watcher};
use crate::totals::{Totals, add_asked, add_written};
use crate::worker::Written;

/// Rows of a statement of the load: half a megabyte of SQL.
const LOAD_ROWS: usize = 2_500;

/// What stays the same over all steps of one run on one target.
struct Runner<'a> {
    target: &'a dyn Target,
    tables: &'a dyn Tables,
    plan: &'a Plan,
    stage: Stage<'a>,
    about: About,
    dir: &'a Path,
    world: World,
    /// What each table should hold.
    expected: Vec<Expected>,
    is_last: bool,
    /// The load just done, until it is known whether a settle follows.
    last_load: Option<StepRecord>,
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
    let case = place.case;
    let tables = target.sysbench()?;
    (0..case.tables).try_for_each(|table| tables.create_table(table))?;
    let table_rows = plan.table_rows(case.tables);
    let known = Known {
        answers: target.ability().stores_rows,
        all_there: true,
        none_added: true,
        k_as_loaded: true,
        texts_differ: true,
    };
    let next_id = (0..case.tables).map(|_| AtomicI32::new(table_rows as i32 + 1)).collect();
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
        world: World { seed: plan.seed, tables: case.tables, table_rows, next_id, known },
        expected: vec![Expected { rows: table_rows as i64, ..Expected::default() }; case.tables as usize],
        is_last: false,
        last_load: None,
    };
    let steps = plan.parsed_steps()?;
    for (number, (step, name)) in steps.iter().zip(&plan.steps).enumerate() {
        if runner.stage.is_interrupted() {
            return Err(RunError::Interrupted);
        }
        watcher.begins(name);
        runner.is_last = number + 1 == steps.len();
        runner.step(number as u64, step, name)?;
    }
    Ok(())
}

impl Runner<'_> {
    fn step(&mut self, number: u64, step: &Step, name: &str) -> Result<(), RunError> {
        if *step == Step::Settle {
            let least = Duration::from_secs(self.plan.settle_seconds);
            return rest::settle((self.target, self.dir), &self.stage, least, self.last_load.take(), self.is_last);
        }
        self.last_load = None;
        let counters_before = self.target.counters()?;
        match step {
            Step::Test(test) => {
                self.learn(step, *test);
                let (totals, brought) = self.test(number, name, *test)?;
                self.expect(step, &brought);
                let around = rest::around((self.target, self.dir), counters_before, || {
                    self.check(name, step.only_reads(), false)
                })?;
                let record = self.record_of_test(name, *test, totals, around, &brought);
                self.stage.watcher.finished(name, &record);
            }
            _ => {
                let totals = self.load(name)?;
                let around = rest::around((self.target, self.dir), counters_before, || self.check(name, false, true))?;
                let kind = StepKind { to_fixed_rows: true, ..StepKind::plain("sysbench", name, false) };
                let record = assemble::record(&self.about, kind, totals, around);
                self.stage.watcher.finished(name, &record);
                self.last_load = Some(record);
            }
        }
        Ok(())
    }

    fn load(&mut self, name: &str) -> Result<Totals, RunError> {
        let (tables, world, clock) = (self.tables, &self.world, &self.stage.clock);
        let sessions = (0..world.tables).map(|_| tables.session()).collect::<Result<Vec<_>, _>>()?;
        let outlook = Outlook::load(name, world.table_rows.div_ceil(LOAD_ROWS as u64) * u64::from(world.tables));
        let (mut totals, written, from_ns) =
            drive(&self.stage, sessions, outlook, |place, session, (recorder, _), stop| {
                let (table, mut out) = (place as u32, Written::new(recorder));
                let last = world.table_rows as i32;
                for first in (1..=last).step_by(LOAD_ROWS) {
                    if stop.load(Ordering::Relaxed) {
                        return Ok(out);
                    }
                    let ids = first..=last.min(first + LOAD_ROWS as i32 - 1);
                    let rows: Vec<_> = ids.map(|id| loaded(world.seed, table, id, world.table_rows)).collect();
                    out.hash = rows.iter().fold(out.hash, |sum, row| sum.wrapping_add(hash(row)));
                    let begin_ns = clock.now_ns();
                    session.load(table, &rows)?;
                    out.recorder.record(begin_ns, clock.now_ns(), rows.len() as u64, None);
                    out.rows += rows.len() as u64;
                    out.statements += 1;
                }
                tables.create_index(table)?;
                out.end_ns = clock.now_ns();
                out.recorder.finish();
                out.switches = lab_measure::procfs::thread_switches().unwrap_or(0);
                Ok(out)
            })?;
        for (expected, written) in self.expected.iter_mut().zip(&written) {
            expected.hash = Some(written.hash);
        }
        add_written(&mut totals, written, from_ns);
        Ok(totals)
    }

    /// What is known of the answers while this step runs, and after it.
    fn learn(&mut self, step: &Step, test: Test) {
        let known = &mut self.world.known;
        known.all_there &= !step.deletes();
        known.none_added &= test != Test::Insert;
        known.k_as_loaded &= !step.changes_k();
        known.texts_differ &= test != Test::UpdateInlist;
    }

    fn test(&self, number: u64, name: &str, test: Test) -> Result<(Totals, Vec<Brought>), RunError> {
        let (tables, clients, clock) = (self.tables, self.about.case.clients, &self.stage.clock);
        let sessions = (0..clients).map(|_| tables.session()).collect::<Result<Vec<_>, _>>()?;
        let outlook = Outlook::timed(name, self.plan.warmup, self.plan.seconds, self.plan.max_seconds);
        let (mut totals, mut brought, from_ns) =
            drive(&self.stage, sessions, outlook, |place, session, recorder, stop| {
                let random = Random::new(self.plan.seed, 0x6576_0000_0000_0000 | number << 32 | place as u64);
                let events = Events::new(&self.world, place as u32, random);
                client::run(test, events, session.as_mut(), clock, recorder, (stop, self.world.tables))
            })?;
        add_asked(&mut totals, brought.iter_mut().map(|brought| brought.asked.take()), from_ns);
        Ok((totals, brought))
    }

    /// What the tables should hold after a test.
    fn expect(&mut self, step: &Step, brought: &[Brought]) {
        if step.only_reads() {
            return;
        }
        for (table, expected) in self.expected.iter_mut().enumerate() {
            let of_table = |brought: &Brought| brought.changed[table];
            let (rows, sum) = brought.iter().map(of_table).fold((0, 0), |all, more| (all.0 + more.0, all.1 + more.1));
            expected.rows += rows;
            expected.sum = expected.sum.filter(|_| !step.deletes() && !step.replaces_rows()).map(|all| all + sum);
            expected.hash = None;
        }
    }

    /// Looks at all tables unless nobody wrote; what they hold is what the next step starts from.
    fn check(&mut self, name: &str, nobody_wrote: bool, is_load: bool) -> Result<Checked, RunError> {
        if !self.world.known.answers {
            return Ok(Checked { verdict: "not checked: the target stores no rows".into(), ..Checked::default() });
        }
        self.stage.watcher.phase("checking invariants");
        let after = |error: RunError| error.after(name);
        let mut checksum = 0u64;
        for (table, expected) in self.expected.iter_mut().enumerate().filter(|_| !nobody_wrote) {
            let mut session = self.tables.session()?;
            let holds = check(session.as_mut(), table as u32, *expected).map_err(after)?;
            expected.sum = Some(holds.sum);
            checksum = checksum.wrapping_add(lab_target::row::mix(holds.hash ^ table as u64));
        }
        if self.is_last {
            verify(self.target).map_err(after)?;
        }
        let rows = self.expected.iter().map(|expected| expected.rows as u64).sum();
        // What a test leaves depends on how much of it was done.
        let checksum = is_load.then(|| format!("{checksum:016x}"));
        Ok(Checked { verdict: "ok".into(), rows: Some(rows), checksum })
    }

    fn record_of_test(
        &self,
        name: &str,
        test: Test,
        totals: Totals,
        around: Around,
        brought: &[Brought],
    ) -> StepRecord {
        let events = totals.kinds[Kind::Query as usize].statements;
        let found: u64 = totals.clients.iter().map(|client| client.fetched).sum();
        // Its pauses are no stalls.
        let has_statements = !matches!(test, Test::UpdateRate { .. });
        let kind = StepKind { has_statements, ..StepKind::plain("sysbench", name, true) };
        let mut record = assemble::record(&self.about, kind, totals, around);
        let throughput = &mut record.result.throughput;
        throughput.tpm = throughput.secs.filter(|secs| *secs > 0.0).map(|secs| events as f64 * 60.0 / secs);
        throughput.rows = (test == Test::Scan).then_some(found as f64);
        throughput.aborts = Some(0.0);
        throughput.retries = Some(brought.iter().map(|brought| brought.restarts).sum::<u64>() as f64);
        record
    }
}
