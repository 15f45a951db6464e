//! `trefoil-sim seeds N [FIRST]` runs N seeds and stops at the first failure; `trefoil-sim seed S` runs one and
//! shows it whole.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

#[allow(clippy::disallowed_methods, reason = "the simulations run on threads of the machine")]
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).and_then(|s| s.parse::<u64>().ok());
    match (args.first().map(String::as_str), number(1)) {
        (Some("seed"), Some(seed)) => match trefoil_sim::lives::run(seed) {
            Ok(steps) => {
                println!("seed {seed}: {steps} steps, sound");
                ExitCode::SUCCESS
            }
            Err(failure) => {
                eprintln!("{failure}");
                ExitCode::FAILURE
            }
        },
        (Some("seeds"), Some(count)) => seeds(number(2).unwrap_or(0), count),
        _ => {
            eprintln!("usage: trefoil-sim seeds COUNT [FIRST] | trefoil-sim seed SEED");
            ExitCode::from(2)
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the simulations run on threads of the machine")]
fn seeds(first: u64, count: u64) -> ExitCode {
    let (next, failed, steps) = (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || failed.load(Ordering::Relaxed) >= 5 {
                        return;
                    }
                    match trefoil_sim::lives::run(seed) {
                        Ok(n) => drop(steps.fetch_add(n, Ordering::Relaxed)),
                        Err(failure) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            let first_lines: String = failure.message.chars().take(600).collect();
                            eprintln!("seed {seed} failed: {:?} in {}: {first_lines}", failure.kind, failure.thread);
                            eprintln!("  again: cargo run --profile sim -p trefoil-sim -- seed {seed}");
                        }
                    }
                    let done = seed - first + 1;
                    if done.is_multiple_of(200) {
                        eprintln!("{done} of {count} seeds");
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    println!("simulator: {} steps", steps.into_inner());
    println!("{} passed, {failed} failed", count.min(next.into_inner() - first) - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
