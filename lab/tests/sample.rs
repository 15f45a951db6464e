//! `lab run --sample` and `lab flame` from outside.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn lab(dir: &Path, arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lab")).args(arguments.split_whitespace()).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const RUN: &str =
    "run ibench --target model --rows 2k --seconds 1 --settle-seconds 0 --quiet --steps l.i0,l.x,qr100 --sample";

#[test]
fn without_perf_nothing_is_begun() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(RUN.split_whitespace())
        .current_dir(dir.path())
        .env("PATH", dir.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--sample: it needs perf, install"), "{}", text(&output.stderr));
    assert!(!dir.path().join("bench-results").exists());
}

/// Whether perf may sample here, or a line that says what is skipped.
fn perf_samples() -> bool {
    let perf = ["record", "--quiet", "--event=cpu-clock", "--output=/dev/null", "--", "true"];
    let works = Command::new("perf").args(perf).output().is_ok_and(|output| output.status.success());
    if !works {
        let required = std::env::var("TREFOIL_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|part| part == "perf"), "TREFOIL_REQUIRE asks for perf, which may not sample");
        let _ = writeln!(std::io::stderr(), "skipped: sampled stacks, install linux-perf and allow it to sample");
    }
    works
}

fn json(dir: &Path, path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(dir.join(path)).unwrap()).unwrap()
}

const PLAN: &str = r#"name = "small"
[[target]]
name = "first"
use = "model"
[[target]]
name = "gone"
use = "postgres://nobody@127.0.0.1:1/nowhere"
[[run]]
name = "one"
workload = "ibench"
rows = "2k"
steps = ["l.i0", "l.x", "qr100"]
seconds = 1
settle_seconds = 0
"#;

/// Each part of a plan has its sampled repetition behind all turns; what could not be had is not sampled either.
#[test]
fn a_plan_is_sampled_behind_its_turns_and_in_no_number() {
    if !perf_samples() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("small.toml"), PLAN).unwrap();
    let output = lab(dir, "run small.toml --out plan --sample");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let turn = text(&output.stderr).find("repetition 1 of 1").unwrap();
    assert!(turn < text(&output.stderr).find("sampled and in no number").unwrap(), "{}", text(&output.stderr));
    let part = json(dir, "plan/parts/one/run.json");
    assert_eq!((part.get("is_sampled"), part["turns_done"].as_array().unwrap().len()), (None, 1));
    assert_eq!(json(dir, "plan/parts/one/sampled/run.json")["is_sampled"], true);
    assert_eq!(json(dir, "plan/parts/one/results.json").as_array().unwrap().len(), 3);
    let flames = std::fs::read_dir(dir.join("plan/parts/one/sampled/flames")).unwrap().flatten();
    let mut names: Vec<String> = flames.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.contains("qr100"));
    assert_eq!(names, ["t01-c01-qr100.folded"], "of the target that was there");
    assert!(std::fs::read_to_string(dir.join("plan/report.html")).unwrap().contains("<svg class=\"flame\""));
    assert!(lab(dir, "verify plan").status.success());
    assert!(lab(dir, "flame plan/parts/one --step qr100 -o one.svg").status.success());
}

/// Of all programs there are gdb and sleep alone.
#[test]
fn where_perf_is_not_gdb_looks_at_the_stacks() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let gdb = std::env::var("PATH").unwrap_or_default();
    let Some(gdb) = gdb.split(':').map(|place| Path::new(place).join("gdb")).find(|gdb| gdb.is_file()) else {
        let _ = writeln!(std::io::stderr(), "skipped: stacks by gdb, install gdb");
        return;
    };
    std::fs::create_dir(dir.join("bin")).unwrap();
    std::os::unix::fs::symlink(gdb, dir.join("bin/gdb")).unwrap();
    let run = RUN.replace("--seconds 1", "--seconds 4");
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(run.split_whitespace()).args(["--out", "run"]).current_dir(dir).env("PATH", dir.join("bin"));
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    if output.status.code() == Some(2) && said.contains("ptrace") {
        let _ = writeln!(std::io::stderr(), "skipped: stacks by gdb, which may not look at other processes here");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    let stacks = std::fs::read_to_string(dir.join("run/sampled/flames/t01-c01-qr100.folded")).unwrap();
    assert!(stacks.lines().any(|line| line.contains("workload/src/worker.rs")), "{stacks}");
    assert!(!stacks.contains("sample/gdb.rs"), "who looks is not looked at: {stacks}");
    let log = std::fs::read_to_string(dir.join("run/sampled/log.txt")).unwrap();
    assert!(log.contains("by the clock on the wall"), "{log}");
    assert_eq!(json(dir, "run/results.json").as_array().unwrap().len(), 3);
}

#[test]
fn a_sampled_repetition_is_drawn_and_in_no_number() {
    if !perf_samples() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let output = lab(dir, &format!("{RUN} --out run"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json = |path: &str| json(dir, path);
    let (record, results) = (json("run/run.json"), json("run/results.json"));
    assert_eq!((record["turns_done"].as_array().unwrap().len(), results.as_array().unwrap().len()), (1, 3));
    assert_eq!((record.get("is_sampled"), json("run/sampled/run.json")["is_sampled"].clone()), (None, true.into()));
    assert!(lab(dir, "verify run").status.success());
    // The threads that ask are met.
    let stacks = std::fs::read_to_string(dir.join("run/sampled/flames/t01-c01-qr100.folded")).unwrap();
    assert!(stacks.lines().any(|line| line.contains(";lab_workload::worker::")), "{stacks}");
    assert!(!dir.join("run/sampled/flames/perf.data").exists());
    let report = std::fs::read_to_string(dir.join("run/report.html")).unwrap();
    assert!(report.contains("<svg class=\"flame\"") && report.contains("in no number"), "no graph in the report");
    assert!(text(&lab(dir, "show run/sampled").stdout).contains("its numbers are no measurement"));
    assert!(!text(&lab(dir, "show run").stdout).contains("its numbers are no measurement"));
    assert!(!dir.join("run/metrics.prom").exists() && !dir.join("run/sampled/flames/perf.txt").exists());
    assert!(lab(dir, "flame run --step qr100 --case 1 -o case.svg").status.success());
    // One graph, and the difference of a thing and itself.
    assert!(lab(dir, "flame run --step qr100 -o one.svg").status.success());
    let one = std::fs::read_to_string(dir.join("one.svg")).unwrap();
    assert!(one.starts_with("<svg") && one.contains("worker") && !one.contains("points"), "{one}");
    let change = text(&lab(dir, "flame run run --step qr100").stdout);
    let points = change.matches(" points").count();
    assert!(points > 1 && points == change.matches("+0.0 points").count(), "{change}");
    for (arguments, words) in [
        ("flame run --target trefoil", "name one graph with --step, --target and --case; there are "),
        ("flame run --step l.i9", "there are"),
        ("flame run --step qr100 --case 2", "there are"),
        ("flame run/sampled", "was not sampled"),
        ("explain run/sampled run", "is sampled"),
        ("compare run/sampled", "is sampled"),
    ] {
        let output = lab(dir, arguments);
        assert!(output.status.code() == Some(2) && text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}
