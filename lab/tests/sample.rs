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
    assert!(text(&output.stderr).contains("--sample needs perf, install"), "{}", text(&output.stderr));
    assert!(!dir.path().join("bench-results").exists());
}

#[test]
fn a_sampled_repetition_is_drawn_and_in_no_number() {
    let perf = ["record", "--quiet", "--event=cpu-clock", "--output=/dev/null", "--", "true"];
    if !Command::new("perf").args(perf).output().is_ok_and(|output| output.status.success()) {
        let required = std::env::var("TREFOIL_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|part| part == "perf"), "TREFOIL_REQUIRE asks for perf, which may not sample");
        let _ = writeln!(std::io::stderr(), "skipped: sampled stacks, install linux-perf and allow it to sample");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let output = lab(dir, &format!("{RUN} --out run"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json = |path: &str| -> Value { serde_json::from_slice(&std::fs::read(dir.join(path)).unwrap()).unwrap() };
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
