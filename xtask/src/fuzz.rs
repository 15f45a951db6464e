//! `make fuzz`: every target under libFuzzer, one after the other, on stable Rust.
//!
//! The coverage instrumentation is a pass of LLVM that stable rustc runs when asked; only the sanitizers of
//! `cargo fuzz` need nightly, and the engine has next to no unsafe code of its own for them to watch. libFuzzer itself is C++,
//! so a C++ compiler is needed. What was found before is kept in `fuzz/corpus`, what fails in `fuzz/artifacts`.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::run::cargo;

/// As `cargo fuzz` sets them, without sanitizers.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Runs every target, or those named, `seconds` each; true if none failed.
pub fn run(root: &Path, seconds: u64, names: &[&str]) -> bool {
    if !succeeds(Command::new("c++").arg("--version").stdout(Stdio::null())) {
        println!("skipped: fuzz, install g++ (libFuzzer is C++)");
        return false;
    }
    let dir = root.join("fuzz");
    let target_dir = root.join("target/fuzz");
    // A target triple keeps the flags away from build scripts.
    let triple = host();
    let mut build = cargo(&["build", "--release", "--locked", "--bins", "--target", &triple]);
    build.current_dir(&dir).env("RUSTFLAGS", RUSTFLAGS).env("CARGO_TARGET_DIR", &target_dir);
    if !succeeds(&mut build) {
        return false;
    }
    let mut ok = true;
    for name in targets(&dir).iter().filter(|n| names.is_empty() || names.contains(&n.as_str())) {
        println!("== {name}: {seconds} s");
        let (corpus, artifacts) = (dir.join("corpus").join(name), dir.join("artifacts").join(name));
        for folder in [&corpus, &artifacts] {
            if let Err(error) = std::fs::create_dir_all(folder) {
                println!("{}: {error}", folder.display());
                return false;
            }
        }
        let mut program = Command::new(target_dir.join(&triple).join("release").join(name));
        program.arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
        program.arg(format!("-artifact_prefix={}/", artifacts.display())).arg(corpus);
        ok &= succeeds(program.current_dir(root));
    }
    ok
}

fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// The machine's own target triple.
fn host() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let output = output.unwrap_or_default();
    output.lines().find_map(|l| l.strip_prefix("host: ")).unwrap_or("x86_64-unknown-linux-gnu").to_owned()
}

fn targets(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir.join("fuzz_targets")) else { return Vec::new() };
    let names = entries.filter_map(Result::ok).map(|e| e.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter_map(|n| n.strip_suffix(".rs").map(str::to_owned)).collect();
    names.sort();
    names
}
