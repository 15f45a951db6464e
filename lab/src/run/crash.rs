//! Step `crash` of TPC-C: a process of its own opens the database, runs transactions and is killed in their middle; then
//! the database is opened here and looked at.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab_measure::record::StepRecord;
use lab_measure::result::{Repeat, SCHEMA, StepResult};
use lab_target::{Description, DiskLimits, Durability, IoMode, Setup, TargetSpec, registry};
use lab_workload::tpcc::Plan;
pub use lab_workload::tpcc::crash::counts;
use lab_workload::tpcc::crash::{Acknowledged, READY, check, sessions};
use lab_workload::tpcc::world::Counts;
use lab_workload::{Case, RunError, Watcher};
use serde::{Deserialize, Serialize};

use super::Turn;
use crate::affinity;
use crate::keeper::Keeper;
use crate::outcome::Failure;

/// What the other process has to know.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    target: String,
    dir: std::path::PathBuf,
    durability: Durability,
    budget_bytes: Option<u64>,
    io: Option<IoMode>,
    compression: Option<String>,
    disk: DiskLimits,
    plan: Plan,
    clients: u32,
}

/// The other process: does not return but with an error.
pub fn child(order: &str) -> Result<(), Failure> {
    let order: Order = serde_json::from_str(order).map_err(|error| Failure::Usage(format!("not an order: {error}")))?;
    let setup = Setup {
        dir: order.dir,
        durability: order.durability,
        budget_bytes: order.budget_bytes,
        io: order.io,
        compression: order.compression,
        disk: order.disk,
        seed: order.plan.seed,
        price: lab_target::Price::Int,
    };
    let target = registry::open(&TargetSpec::parse(&order.target)?, &setup)?;
    Ok(sessions(&*target, &order.plan, order.clients, std::io::stdout())?)
}

/// Runs the step on a database that was closed, and hands its record to the keeper.
pub fn crash(
    (spec, setup, description): (&TargetSpec, &Setup, &Description),
    (plan, case, turn): (&Plan, Case, Turn),
    before: &Counts,
    keeper: &Keeper,
) -> Result<(), Failure> {
    keeper.begins("crash");
    keeper.phase("running transactions in a process that will be killed");
    let order = Order {
        target: spec.text.clone(),
        dir: setup.dir.clone(),
        durability: setup.durability,
        budget_bytes: setup.budget_bytes,
        io: setup.io,
        compression: setup.compression.clone(),
        disk: setup.disk,
        plan: plan.clone(),
        clients: case.clients,
    };
    let acknowledged = killed(&order, plan.seconds)?;
    keeper.phase("opening the database again");
    let began = Instant::now();
    let target = registry::open(spec, setup)?;
    let secs = began.elapsed().as_secs_f64();
    keeper.phase("checking the twelve conditions");
    let may_lose = setup.durability == Durability::Buffered;
    let sound = check(&*target, plan, (before, &acknowledged), (case.clients, may_lose));
    let closed = target.close();
    sound?;
    closed?;
    let orders = acknowledged.orders().len();
    let promise = if may_lose { "durability buffered does not promise them" } else { "all are there" };
    let told = format!(
        "killed after {} acknowledged transactions, {orders} of them new orders: {promise}",
        acknowledged.transactions
    );
    let mut result = StepResult {
        schema: SCHEMA.into(),
        target: spec.text.clone(),
        version: description.version.clone(),
        config: description.config.clone(),
        workload: "tpcc".into(),
        step: "crash".into(),
        tables: case.tables,
        clients: case.clients,
        cores: affinity::available() as u32,
        repeat: Repeat::Number(turn.repeat),
        invariants: "ok".into(),
        ..StepResult::default()
    };
    result.throughput.secs = Some(secs);
    let mut notes = vec![told, format!("opened again in {secs:.3} s")];
    notes.extend(plan.deviations());
    let record = StepRecord { schema: SCHEMA.into(), result, notes, ..StepRecord::default() };
    keeper.finished("crash", &record);
    Ok(())
}

/// Starts the other process, lets it run for so long, kills it, and reads what it had acknowledged.
fn killed(order: &Order, seconds: u64) -> Result<Acknowledged, Failure> {
    let failed = |what: &str| Failure::Failed(format!("the process to be killed {what}"));
    let text = serde_json::to_string(order).map_err(|_| failed("cannot be told what to do"))?;
    let program = std::env::current_exe().map_err(|_| failed("cannot be found"))?;
    let child = Command::new(program).args(["tpcc-child", &text]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| failed(&format!("does not start: {error}")))?;
    let mut lines = BufReader::new(child.stdout.take().expect("its output was asked for"));
    let mut first = String::new();
    let begins = lines.read_line(&mut first);
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        lines.read_to_string(&mut text).map(|_| text)
    });
    if begins.is_ok() && first.trim_end() == READY {
        std::thread::sleep(Duration::from_secs(seconds));
    }
    let ended_early = child.try_wait().is_ok_and(|ended| ended.is_some());
    let _ = child.kill();
    let _ = child.wait();
    let text = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    if ended_early {
        return Err(failed("ended by itself"));
    }
    let text = text.map_err(|error| failed(&format!("cannot be read: {error}")))?;
    let acknowledged = Acknowledged::parse(&text)?;
    match acknowledged.transactions {
        0 => Err(RunError::Violated("the process to be killed acknowledged nothing".into()).into()),
        _ => Ok(acknowledged),
    }
}
