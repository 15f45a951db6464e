//! `lab endure`: what has to hold for half an hour, as one command that says in the end whether it did.
//!
//! | module | owns |
//! |---|---|
//! | [`keep`] | the folder: plan, a line a second, parts that are done, verdict |
//! | [`process`] | a part's own process |
//! | [`load`] | clients, deleter and looks of one part |
//! | [`reads`] | ranges and look-ups behind it |
//! | [`judge`] | conditions, as pure functions of the seconds |
//!
//! Steps: (1) the folder is locked, and the plan written, or found to be that of the folder; (2) each part that is not done begins with a fresh database of
//! `rows` rows in a process of its own, is driven second by second, each second appended, is checked row by row, and then noted as done; (3) the conditions are judged from what was
//! kept, printed and written.

pub mod judge;
pub mod keep;
pub mod load;
mod process;
mod reads;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use lab_target::{DiskLimits, Durability, Setup, TargetSpec, registry};

use crate::cli::{Endure, Proof};
use crate::outcome::Failure;
use crate::run::interrupt_flag;

use judge::{Condition, Seconds};
use keep::{Folder, Outcome, Plan, Second, Verdict};
use load::{Deletes, Load, Work};

/// The parts of a proof, in order.
fn parts(proof: Proof) -> [&'static str; 2] {
    match proof {
        Proof::GcDebt => ["alone", "deletes"],
        Proof::Soak => ["search", "soak"],
    }
}

/// Runs what is missing of a proof and judges all of it.
pub fn endure(options: &Endure) -> Result<(), Failure> {
    let plan = Plan::of(options);
    let interrupt = interrupt_flag()?;
    if let Some(part) = &options.part {
        process::child(|| run_part(&plan, &Folder::open(&options.out, &plan)?, part, interrupt));
    }
    registry::check(&TargetSpec::parse(&options.target)?)?;
    let held = keep::lock(&options.out)?;
    let folder = Folder::open(&options.out, &plan)?;
    for part in parts(plan.proof) {
        match folder.outcome(part)? {
            Some(_) => eprintln!("{part}: done before"),
            None => process::run(part, &held, &interrupt)?,
        }
    }
    let (conditions, target) = judged(&plan, &folder)?;
    let not_covered = not_covered(plan.proof);
    folder.keep_verdict(&Verdict { conditions: &conditions, target: &target, not_covered })?;
    conditions.iter().for_each(|condition| println!("{condition}"));
    let said: Vec<String> = SAID.iter().filter_map(|name| Some(format!("{name} {}", target.get(*name)?))).collect();
    println!(
        "target {}: {}",
        plan.target,
        if said.is_empty() { "says nothing of itself".into() } else { said.join(", ") }
    );
    println!("not covered: {not_covered}");
    let missed = conditions.iter().filter(|condition| !condition.holds).count();
    if missed == 0 { Ok(()) } else { Err(Failure::Regression(format!("{missed} of the conditions do not hold"))) }
}

/// A part from an empty folder to its end, in a process of its own.
fn run_part(plan: &Plan, folder: &Folder, part: &str, interrupt: Arc<AtomicBool>) -> Result<(), Failure> {
    // Before anything is opened.
    let memory_before = load::resident_bytes();
    let spec = TargetSpec::parse(&plan.target)?;
    let (rows, disk, work) = asked(plan, folder, part)?;
    let setup = Setup {
        dir: folder.database()?,
        durability: Durability::Write,
        budget_bytes: plan.budget_bytes,
        io: None,
        compression: None,
        price: lab_target::Price::Int,
        disk,
        seed: SEED,
    };
    registry::check_disk(&spec, &setup.disk)?;
    load::forget_peak()?;
    let target = registry::open(&spec, &setup)?;
    let load = Load::new(&*target, rows, work, interrupt.clone());
    let begun = Instant::now();
    let filled = load.fill()?;
    let attempt = folder.attempt(part)?;
    eprintln!("{part}: {rows} rows in {:.0} s; now {} s", begun.elapsed().as_secs_f64(), work.seconds);
    let each = |second: Second| {
        print_second(part, &second, work.seconds);
        folder.append(part, attempt, &second)
    };
    let is_soak = plan.proof == Proof::Soak;
    let reads = || is_soak.then(|| reads::reads(&*target, plan.read_seconds, &interrupt)).transpose();
    let (snapshot, reads) = load.drive(each, reads)?;
    eprintln!("{part}: checking all rows and index entries");
    load.check_rows()?;
    let outcome = Outcome {
        attempt,
        filled_rows: rows,
        filled_bytes: filled,
        disk_size: disk.size_bytes,
        rate: work.rate,
        memory_before,
        budget_bytes: load::budget_of(&*target, plan.budget_bytes),
        settings: target.describe().settings,
        process: std::process::id(),
        snapshot,
        reads,
    };
    drop(load);
    target.close()?;
    drop(target);
    folder.note_done(part, &outcome)
}

/// The rows that a part begins with, its disk and its work.
fn asked(plan: &Plan, folder: &Folder, part: &str) -> Result<(u64, DiskLimits, Work), Failure> {
    let work = Work { seconds: plan.seconds, clients: plan.clients, rate: None, deletes: Deletes::None, holds: false };
    Ok(match part {
        "deletes" => {
            // As large all the time as the other is on average.
            let (alone, seconds) = folder.done("alone", plan.seconds)?;
            let rows = judge::mean_rows(alone.filled_rows, &seconds) as u64;
            (rows, DiskLimits::default(), Work { deletes: Deletes::AsInserted, ..work })
        }
        "search" => (plan.rows, DiskLimits::default(), Work { seconds: plan.search_seconds, ..work }),
        "soak" => {
            let (search, seconds) = folder.done("search", plan.search_seconds)?;
            let rate = plan.share as f64 / 100.0 * judge::highest_rate(&seconds);
            if rate <= 0.0 {
                return Err(Failure::Failed(format!(
                    "the search inserted no row in the second half of its {} s, so there is no rate to keep: give another --out and \
                     more --search-seconds",
                    plan.search_seconds
                )));
            }
            let rows = rate * plan.seconds as f64;
            let disk_bytes = judge::disk_bytes(search.filled_bytes, &seconds, rows).ok_or_else(|| {
                Failure::Usage(format!(
                    "{}: does not tell its bytes on disk, by which a soak sizes its disk",
                    plan.target
                ))
            })?;
            let budget = search.budget_bytes.unwrap_or(0);
            // What is in memory has to find room in what is free, and a reserve of 64 MiB beside it: that decides in small proofs alone,
            // whose disk is mostly ballast.
            let room = 4 * budget + (128 << 20);
            let size = (disk_bytes * 100 / plan.full).max(room * 100 / (100 - plan.full)).max(disk_bytes + room);
            let disk = DiskLimits { size_bytes: Some(size), full_pct: Some(plan.full), ..DiskLimits::default() };
            (plan.rows, disk, Work { rate: Some(rate), deletes: Deletes::OfBefore, holds: true, ..work })
        }
        _ => (plan.rows, DiskLimits::default(), work),
    })
}

/// The conditions, and what the target said about itself in the second part.
fn judged(plan: &Plan, folder: &Folder) -> Result<(Vec<Condition>, BTreeMap<String, String>), Failure> {
    let [first, second] = parts(plan.proof).map(|part| folder.done(part, plan.seconds_of(part)));
    let (first, second) = (first?, second?);
    let conditions = match plan.proof {
        Proof::GcDebt => judge::gc_debt(&first, &second),
        Proof::Soak => judge::soak(plan, &first, &second),
    };
    Ok((conditions, second.0.settings))
}

/// What is printed of the target's settings; verdict.json has them all.
const SAID: [&str; 7] = ["primary", "secondary", "shape", "compression", "io", "budget", "durability"];

/// What a proof says nothing about.
fn not_covered(proof: Proof) -> &'static str {
    match proof {
        Proof::GcDebt => "bytes written and processor time a row, ranges, look-ups by key (points)",
        Proof::Soak => {
            "what a peer does on the same machine: --ranges, --points, --bytes-a-row and --cpu-a-row are for that"
        }
    }
}

fn print_second(part: &str, second: &Second, of: u64) {
    // Each second of a short one, one in ten of a long one.
    if of < 60 || second.second.is_multiple_of(10) || second.second == of {
        eprintln!(
            "{part} {}/{of} s: {} rows/s, {} deleted, slowest {:.1} ms, min-key {:.1} ms, {} dead, {} MiB on disk",
            second.second,
            second.inserted,
            second.deleted,
            second.worst_us as f64 / 1e3,
            second.min_key_us as f64 / 1e3,
            second.dead.map_or_else(|| "unknown".into(), |dead| dead.to_string()),
            second.disk_bytes.unwrap_or(0) >> 20
        );
    }
}

/// All rows are made of it.
const SEED: u64 = 42;

/// Seconds of one part.
pub type Part = (Outcome, Seconds);
