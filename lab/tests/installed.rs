//! The program alone, as `cargo install` leaves it: no checkout above it, none above the working directory.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Scratch files of a whole test run lie within the checkout; this one may not.
const OUTSIDE: &str = "/tmp";

fn installed() -> TempDir {
    let dir = tempfile::tempdir_in(OUTSIDE).unwrap();
    assert!(dir.path().ancestors().all(|above| !above.join("mariadb/mariadb.sh").exists()));
    std::fs::create_dir_all(dir.path().join("bin")).unwrap();
    std::fs::create_dir_all(dir.path().join("work")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_lab"), dir.path().join("bin/lab")).unwrap();
    dir
}

fn lab(dir: &Path, arguments: &str) -> Output {
    let mut command = Command::new(dir.join("bin/lab"));
    command.env("TREFOIL_SERVERS_CACHE", dir.join("servers")).current_dir(dir.join("work"));
    command.args(arguments.split_whitespace());
    // A program that another test starts at this moment holds the copy open for writing until it is itself.
    let is_busy = |output: &std::io::Result<Output>| {
        output.as_ref().is_err_and(|fault| fault.kind() == ErrorKind::ExecutableFileBusy)
    };
    let mut output = command.output();
    for _ in 0..500 {
        if !is_busy(&output) {
            break;
        }
        sleep(Duration::from_millis(10));
        output = command.output();
    }
    output.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_program_alone_does_everything_but_build_a_plugin() {
    let dir = installed();
    for (arguments, words) in [
        ("--help", "Exit codes:"),
        ("completions bash", "complete -F _lab"),
        ("man", "lab run ibench"),
        ("reference", "## Keys of results"),
        ("doctor", "huge pages"),
        ("list --targets", "trefoil"),
        ("list --plans", "seed-004  "),
        ("fetch", "mysql@9.7"),
        ("run ibench --rows 2k --steps l.i0,l.x,l.i1 --settle-seconds 0 --out run", "l.i1"),
        ("show run", "l.i0"),
        ("verify run", "sound"),
        ("run seed-000 --scale test --dry-run", "trefoil.lsm"),
        ("run seed-003 --scale test --out plan --dry-run", "trefoil.btree"),
    ] {
        let output = lab(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains(words), "{arguments}: {}", text(&output.stdout));
    }
    let plugin = lab(dir.path(), "run ibench --rows 2k --target server:mariadb?engine=trefoil --out plugin");
    let told = text(&plugin.stderr);
    assert!(plugin.status.code() == Some(1) && told.contains("run inside the checkout, or name a directory"), "{told}");
    assert!(!dir.path().join("servers").exists(), "nothing is fetched for what cannot be had");
}

#[test]
fn a_plan_is_a_file_or_the_name_of_one_that_is_built_in() {
    let dir = installed();
    for (arguments, words) in [
        ("run plans/seed-003.toml", "seed-003 is built in: lab run seed-003"),
        ("run seed-005", "did you mean `seed-000`?"),
        ("run nowhere.toml", "seed-004 are built in, and the workloads are"),
    ] {
        let output = lab(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(text(&output.stderr).contains(words), "{arguments}: {}", text(&output.stderr));
    }
    // A file comes before what is built in.
    std::fs::write(dir.path().join("work/seed-000"), "name = \"own\"\n").unwrap();
    let own = lab(dir.path(), "run seed-000 --dry-run");
    assert!(text(&own.stderr).contains("at least one [[target]]"), "{}", text(&own.stderr));
    std::fs::remove_file(dir.path().join("work/seed-000")).unwrap();
    // It is run, kept in its folder, and gone on with, under its name.
    let mut run = Command::new(dir.path().join("bin/lab"));
    run.args(["run", "seed-002", "--scale", "test", "--out", "run", "--quiet"]).current_dir(dir.path().join("work"));
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let progress = dir.path().join("work/run/parts/memory.fast/progress.tsv");
    let begun = Instant::now();
    while !progress.exists() {
        assert!(begun.elapsed() < Duration::from_secs(60) && run.try_wait().unwrap().is_none(), "nothing was begun");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
    let output = run.wait_with_output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(told.contains("lab run seed-002 --scale test --resume run"), "{told}");
    let kept = std::fs::read_to_string(dir.path().join("work/run/plan.toml")).unwrap();
    assert_eq!(kept, include_str!("../../plans/seed-002.toml"));
}
