//! `lab endure`: what has to hold for half an hour, as one command that says in the end whether it did.
//!
//! | module | owns |
//! |---|---|
//! | [`keep`] | the folder: plan, a line a second, parts that are done, verdict |
//! | [`load`] | clients, deleter and looks of one part |
//! | [`judge`] | conditions, as pure functions of the seconds |
//!
//! Steps: (1) the plan is written, or found to be that of the folder; (2) each part that is not done begins with a fresh database of
//! `rows` rows, is driven second by second, each second appended, and then noted as done; (3) the conditions are judged from what was
//! kept, printed and written.

pub mod judge;
pub mod keep;
pub mod load;

use std::time::Instant;

use lab_target::{DiskLimits, Durability, Setup, TargetSpec, registry};

use crate::cli::{Endure, Proof};
use crate::outcome::Failure;
use crate::run::interrupt_flag;

use judge::{Condition, Seconds};
use keep::{Folder, Outcome, Plan, Second};
use load::{Load, Work};

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
    let spec = TargetSpec::parse(&options.target)?;
    registry::check(&spec)?;
    let interrupt = interrupt_flag()?;
    let folder = Folder::open(&options.out, &plan)?;
    for part in parts(plan.proof) {
        if folder.outcome(part)?.is_some() {
            eprintln!("{part}: done before");
            continue;
        }
        let (disk, work) = asked(&plan, &folder, part)?;
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
        let memory_before = load::resident_bytes();
        let target = registry::open(&spec, &setup)?;
        let load = Load::new(&*target, work, interrupt.clone());
        let begun = Instant::now();
        let filled = load.fill(plan.rows)?;
        let attempt = folder.attempt(part)?;
        eprintln!("{part}: {} rows in {:.0} s; now {} s", plan.rows, begun.elapsed().as_secs_f64(), work.seconds);
        load.drive(|second| {
            print_second(part, &second, work.seconds);
            folder.append(part, attempt, &second)
        })?;
        let outcome = Outcome {
            attempt,
            filled_bytes: filled,
            disk_size: disk.size_bytes,
            rate: work.rate,
            memory_before,
            budget_bytes: load::budget_of(&*target, plan.budget_bytes),
        };
        drop(load);
        target.close()?;
        drop(target);
        folder.note_done(part, &outcome)?;
    }
    let conditions = judged(&plan, &folder)?;
    folder.keep_verdict(&conditions)?;
    conditions.iter().for_each(|condition| println!("{condition}"));
    let missed = conditions.iter().filter(|condition| !condition.holds).count();
    if missed == 0 { Ok(()) } else { Err(Failure::Regression(format!("{missed} of the conditions do not hold"))) }
}

/// The disk and the work of a part.
fn asked(plan: &Plan, folder: &Folder, part: &str) -> Result<(DiskLimits, Work), Failure> {
    let work = Work { seconds: plan.seconds, clients: plan.clients, rate: None, deletes: false, holds: false };
    Ok(match part {
        "deletes" => (DiskLimits::default(), Work { deletes: true, ..work }),
        "search" => (DiskLimits::default(), Work { seconds: plan.search_seconds, ..work }),
        "soak" => {
            let (search, seconds) = folder.done("search")?;
            let rate = plan.share as f64 / 100.0 * judge::highest_rate(&seconds);
            let rows = rate * plan.seconds as f64;
            let disk_bytes = judge::disk_bytes(search.filled_bytes, &seconds, rows);
            let budget = search.budget_bytes.unwrap_or(0);
            // What is in memory has to find room, and a reserve of 64 MiB beside it: that decides in small proofs alone.
            let size = (disk_bytes * 100 / plan.full).max(disk_bytes + 4 * budget + (128 << 20));
            let disk = DiskLimits { size_bytes: Some(size), ..DiskLimits::default() };
            (disk, Work { rate: Some(rate), holds: true, ..work })
        }
        _ => (DiskLimits::default(), work),
    })
}

fn judged(plan: &Plan, folder: &Folder) -> Result<Vec<Condition>, Failure> {
    let [first, second] = parts(plan.proof);
    let ((_, before), (outcome, seconds)) = (folder.done(first)?, folder.done(second)?);
    Ok(match plan.proof {
        Proof::GcDebt => judge::gc_debt(&before, &seconds),
        Proof::Soak => judge::soak(plan, &outcome, &seconds),
    })
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
            second.dead,
            second.disk_bytes >> 20
        );
    }
}

/// All rows are made of it.
const SEED: u64 = 42;

/// Seconds of one part.
pub type Part = (Outcome, Seconds);
