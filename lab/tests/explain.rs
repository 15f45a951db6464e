//! `lab explain` from outside: a planted slowdown is named first, and what is not explained is within 5 % of the change.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn lab(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lab")).args(arguments).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A run of the insert benchmark in a folder.
fn run(dir: &Path, out: &str, more: &[&str]) {
    let mut arguments = vec!["run", "ibench", "--settle-seconds", "0", "--out", out, "--quiet", "--dir", "."];
    arguments.extend(more);
    let output = lab(dir, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// The explanation of one step of two runs. Its parts are the change; what is planted is named first and is most of it.
fn named_first(dir: &Path, step: &str, planted: &str) {
    let output = lab(dir, &["explain", "before", "after", "--step", step, "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let explained = &all.as_array().unwrap()[0];
    let number = |value: &Value| value.as_f64().unwrap();
    assert_eq!(explained["first"], planted, "{explained:#}");
    let change = number(&explained["change_us"]);
    let parts: f64 = explained["parts"].as_array().unwrap().iter().map(|part| number(&part["change_us"])).sum();
    assert!(change > 0.0 && (parts - change).abs() <= change * 1e-6, "{explained:#}");
    assert!(number(&explained["unexplained_pct"]).abs() <= 5.0, "{explained:#}");
    let told = text(&lab(dir, &["explain", "before", "after", "--step", step]).stdout);
    assert!(told.contains(&format!("first: {planted}\n")) && told.contains("% of the change"), "{told}");
}

#[test]
fn a_planted_sleep_is_named_first() {
    let dir = tempfile::tempdir().unwrap();
    let steps = ["--rows", "20k", "--steps", "l.i0"];
    run(dir.path(), "before", &[&steps[..], &["--target", "model"]].concat());
    run(dir.path(), "after", &[&steps[..], &["--target", "model:pause_ms=20,pause_every=1"]].concat());
    named_first(dir.path(), "l.i0", "delay: pause");
}

#[test]
fn planted_syncs_are_named_first() {
    let dir = tempfile::tempdir().unwrap();
    let steps =
        ["--target", "trefoil", "--rows", "10k", "--steps", "l.i0", "--disk-limit", "latency=15ms", "--budget", "64m"];
    run(dir.path(), "before", &[&steps[..], &["--durability", "write"]].concat());
    run(dir.path(), "after", &[&steps[..], &["--durability", "sync"]].concat());
    named_first(dir.path(), "l.i0", "log sync");
}

#[test]
fn planted_reads_are_named_first() {
    let dir = tempfile::tempdir().unwrap();
    // Rows that one budget holds and the other does not.
    let target = "trefoil:structure=btree,compression=none";
    let steps = ["--target", target, "--rows", "150k", "--steps", "l.i0,gets", "--seconds", "2"];
    run(dir.path(), "before", &[&steps[..], &["--budget", "256m"]].concat());
    run(dir.path(), "after", &[&steps[..], &["--budget", "8m", "--disk-limit", "latency=300us"]].concat());
    named_first(dir.path(), "gets", "reads");
}

#[test]
fn runs_without_a_step_in_common_are_a_mistake() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), "before", &["--target", "model", "--rows", "1k", "--steps", "l.i0"]);
    let same = lab(dir.path(), &["explain", "before", "before", "--step", "l.i1"]);
    assert!(same.status.code() == Some(2) && text(&same.stderr).contains("no step"), "{}", text(&same.stderr));
    let nobody = lab(dir.path(), &["explain", "before", "before", "--target", "trefoil"]);
    assert!(
        nobody.status.code() == Some(2) && text(&nobody.stderr).contains("has no target"),
        "{}",
        text(&nobody.stderr)
    );
    assert_eq!(lab(dir.path(), &["explain", "before", "nowhere"]).status.code(), Some(1));
}
