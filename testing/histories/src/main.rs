//! `trefoil-histories seeds N [FIRST]` runs and checks N seeds; `trefoil-histories seed S` one of them.

use std::process::ExitCode;

use trefoil_histories::run::run;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).and_then(|s| s.parse::<u64>().ok());
    let (first, count) = match (args.first().map(String::as_str), number(1)) {
        (Some("seed"), Some(seed)) => (seed, 1),
        (Some("seeds"), Some(count)) => (number(2).unwrap_or(0), count),
        _ => {
            eprintln!("usage: trefoil-histories seeds COUNT [FIRST] | trefoil-histories seed SEED");
            return ExitCode::from(2);
        }
    };
    let (mut committed, mut edges, mut cycles, mut failed) = (0, 0, 0, 0);
    for seed in first..first + count {
        match run(seed) {
            Ok(counts) => {
                committed += counts.committed;
                edges += counts.edges;
                cycles += counts.cycles;
            }
            Err(failure) => {
                failed += 1;
                let front: String = failure.message.chars().take(if count == 1 { usize::MAX } else { 1500 }).collect();
                eprintln!("seed {seed} failed: {:?} in {}: {front}", failure.kind, failure.thread);
                eprintln!("  again: cargo run --profile sim -p trefoil-histories -- seed {seed}");
            }
        }
    }
    println!(
        "histories: {committed} transactions, {edges} dependencies, {cycles} lives with a cycle that their level allows"
    );
    println!("{} passed, {failed} failed", count - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
