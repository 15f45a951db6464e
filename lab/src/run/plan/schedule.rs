//! The order of turns, and how long they take.
//!
//! For each repetition: for each workload, case and target. Every second repetition goes through the targets backwards, so
//! that a steady drift of the machine favours none. Workloads take turns by repetition too: a drift over hours is the same
//! for all of them.

use std::path::Path;

use lab_target::secret::masked_target;
use lab_workload::AnyPlan;

use super::resolved::{Part, Resolved, folder_of};
use super::{common_of, options, plan_of};
use crate::cli::Common;
use crate::folder::{Folder, Turn};
use crate::outcome::Failure;

/// Rows a second that a load is estimated with.
const LOAD_RATE: f64 = 50_000.0;
/// Rows a second that a scan, a check or an index build is estimated with.
const SCAN_RATE: f64 = 500_000.0;
/// Seconds that a private server takes to be made, started and stopped.
const SERVER_SECS: f64 = 8.0;

/// A part with its options read.
pub struct Ready {
    /// The part.
    pub part: Part,
    /// What every workload has.
    pub options: Common,
    /// The workload's own.
    pub plan: AnyPlan,
}

/// Reads the options of all parts.
pub fn ready(plan: &Resolved) -> Result<Vec<Ready>, Failure> {
    let read = |part: &Part| {
        let workload = options::parsed(&part.workload, &part.options, &[])
            .map_err(|error| Failure::Usage(format!("run `{}`: {error}", part.name)))?;
        let plan = plan_of(&workload)?;
        Ok(Ready { part: part.clone(), options: common_of(workload), plan })
    };
    plan.parts.iter().map(read).collect()
}

/// All turns in order: the part, and the turn in it.
pub fn turns(parts: &[Ready]) -> Vec<(usize, Turn)> {
    let most = parts.iter().map(|part| part.options.repeat).max().unwrap_or(0);
    let mut all = Vec::new();
    for repeat in 1..=most {
        for (number, part) in parts.iter().enumerate().filter(|(_, part)| repeat <= part.options.repeat) {
            let targets = part.part.rows.len();
            for case in 0..part.plan.cases().len() {
                let order = (0..targets).map(|place| if repeat % 2 == 0 { targets - 1 - place } else { place });
                all.extend(order.map(|target| (number, Turn { target, case, repeat })));
            }
        }
    }
    all
}

/// Seconds of one turn: those of timed steps as they are, rows at assumed rates.
pub fn estimated_secs(part: &Ready, turn: Turn) -> f64 {
    let rows = part.plan.rows() as f64;
    let (settle, warmup) = (part.options.settle_seconds as f64, part.options.warmup as f64);
    let steps = part.plan.steps();
    let secs: f64 = match &part.plan {
        AnyPlan::Ibench(plan) => steps
            .iter()
            .map(|step| match step.as_str() {
                "settle" => settle,
                "l.i0" | "load" => rows / LOAD_RATE + rows / SCAN_RATE,
                "l.x" => 3.0 * rows / SCAN_RATE,
                "l.i1" => plan.rows_i1 as f64 / LOAD_RATE * 2.0 + rows / SCAN_RATE,
                "l.i2" => plan.rows_i2 as f64 / LOAD_RATE * 4.0 + rows / SCAN_RATE,
                scan if scan.starts_with("scan.") => rows / SCAN_RATE,
                _ => plan.seconds as f64 + warmup + rows / SCAN_RATE,
            })
            .sum(),
        AnyPlan::Sysbench(plan) => {
            let timed = steps.iter().filter(|step| !matches!(step.as_str(), "load" | "settle")).count();
            timed as f64 * (plan.seconds as f64 + warmup) + rows / LOAD_RATE + settle
        }
        AnyPlan::Tpcc(plan) => {
            let timed = steps.iter().filter(|step| !matches!(step.as_str(), "load" | "settle")).count();
            timed as f64 * (plan.seconds as f64 + warmup + rows / SCAN_RATE) + rows / LOAD_RATE + settle
        }
    };
    let is_server = part.part.rows[turn.target].target.starts_with("server:");
    secs + if is_server { SERVER_SECS } else { 0.0 }
}

/// `1 h 5 min`, `12 min 30 s`, `45 s`.
pub fn spoken(secs: f64) -> String {
    let secs = secs.round() as u64;
    match (secs / 3_600, secs / 60 % 60, secs % 60) {
        (0, 0, secs) => format!("{secs} s"),
        (0, minutes, secs) => format!("{minutes} min {secs} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// A turn in words.
pub fn told(part: &Ready, turn: Turn) -> String {
    let case = part.plan.cases()[turn.case];
    let tables = if part.plan.workload() == "tpcc" { "warehouses" } else { "tables" };
    let cores = case.cores.map(|cores| format!(", {cores} cores")).unwrap_or_default();
    format!(
        "{}: {}, {} clients, {} {tables}{cores}, repetition {} of {}",
        part.part.name, part.part.rows[turn.target].name, case.clients, case.tables, turn.repeat, part.options.repeat
    )
}

/// Prints what would be run.
pub fn dry_run(plan: &Resolved, resumed: Option<&Path>) -> Result<(), Failure> {
    let parts = ready(plan)?;
    println!("{}: {}", plan.name, plan.title);
    for part in &parts {
        println!("run {}: lab run {} {}", part.part.name, part.part.workload, part.part.options.join(" "));
        println!("    steps {}", part.plan.steps().join(" "));
        for row in &part.part.rows {
            match super::execute::why_not(&row.target, part) {
                None => println!("    {:<24} {}", row.name, masked_target(&row.target)),
                Some(why) => println!("    {:<24} {}  not to be had: {why}", row.name, masked_target(&row.target)),
            }
        }
    }
    for knob in &plan.knobs {
        let what = if knob.is_no_op { "no-op" } else { "becomes" };
        println!("config {:<6} {:<10} {what}: {}", knob.config, knob.family, knob.becomes);
    }
    let done = |number: usize| -> Vec<Turn> {
        let folder = resumed.map(|folder| folder_of(folder, &parts[number].part.name));
        folder.and_then(|folder| Folder::open(&folder).ok()).map(|(_, record)| record.turns_done).unwrap_or_default()
    };
    let done: Vec<Vec<Turn>> = (0..parts.len()).map(done).collect();
    let (mut total, mut count, mut kept) = (0.0, 0, 0);
    for (number, turn) in turns(&parts) {
        let part = &parts[number];
        if super::execute::why_not(&part.part.rows[turn.target].target, part).is_some() {
            continue;
        }
        if done[number].contains(&turn) {
            kept += 1;
            continue;
        }
        let secs = estimated_secs(part, turn);
        (total, count) = (total + secs, count + 1);
        println!("turn {count:>4}  {:>10}  {}", spoken(secs), told(part, turn));
    }
    let kept = if kept > 0 { format!(", {kept} are done already") } else { String::new() };
    println!(
        "{count} turns{kept}, about {}: timed steps as they are, loads at {LOAD_RATE} rows/s, checks and scans at {SCAN_RATE}",
        spoken(total)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spoken() {
        assert_eq!([spoken(45.2), spoken(750.0), spoken(3_900.0)], ["45 s", "12 min 30 s", "1 h 5 min"]);
    }
}
