//! `lab endure` from outside, in seconds instead of half an hour: what the conditions come to there says nothing.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

const SMALL: &str = "--rows 20k --budget 16m --target trefoil:log_capacity=8m --read-seconds 1";

fn command(dir: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(arguments.split_whitespace()).current_dir(dir);
    command
}

fn lab(dir: &Path, arguments: &str) -> Output {
    command(dir, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(dir: &Path, file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(dir.join(file)).unwrap()).unwrap()
}

/// The conditions of a proof that came to its end, whatever they are.
fn verdict(dir: &Path, out: &str, output: &Output) -> Vec<Value> {
    let said = text(&output.stdout);
    let verdict = std::fs::read(dir.join(out).join("verdict.json"));
    let verdict: Value =
        serde_json::from_slice(&verdict.unwrap_or_else(|_| panic!("{}", text(&output.stderr)))).unwrap();
    let conditions = verdict["conditions"].as_array().unwrap().clone();
    let missed = conditions.iter().filter(|condition| condition["holds"] == false).count();
    assert_eq!(output.status.code(), Some(if missed == 0 { 0 } else { 3 }), "{said}{}", text(&output.stderr));
    // The last two lines are the target, and what is not covered.
    assert_eq!((said.lines().count(), said.matches("MISSED").count()), (conditions.len() + 2, missed), "{said}");
    assert!(said.contains("not covered: "), "{said}");
    conditions
}

/// Lines of an attempt of a part: rows inserted and deleted.
fn seconds(dir: &Path, out: &str, part: &str, attempt: &str) -> Vec<(u64, u64)> {
    let lines = std::fs::read_to_string(dir.join(out).join("seconds.tsv")).unwrap();
    let fields = lines.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let of_part = fields.filter(|fields| fields.len() == 15 && fields[0] == part && fields[1] == attempt);
    of_part.map(|fields| (fields[3].parse().unwrap(), fields[4].parse().unwrap())).collect()
}

#[test]
fn gc_debt_in_seconds_goes_on_where_it_was_broken_off() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let run = format!("endure gc-debt --out proof --seconds 5 {SMALL}");
    // Killed within the second part.
    let mut broken = command(dir, &run).spawn().unwrap();
    let begun = Instant::now();
    while !dir.join("proof/seconds.tsv").exists() || seconds(dir, "proof", "deletes", "1").is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(120) && broken.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(20));
    }
    let second = lab(dir, &run);
    assert_eq!(second.status.code(), Some(2), "{}", text(&second.stderr));
    assert!(text(&second.stderr).contains("another process"), "{}", text(&second.stderr));
    broken.kill().unwrap();
    broken.wait().unwrap();
    // Its last line was cut off.
    let lines = dir.join("proof/seconds.tsv");
    let whole = std::fs::read(&lines).unwrap();
    std::fs::write(&lines, &whole[..whole.len() - 3]).unwrap();
    let other = lab(dir, &run.replace("--seconds 5", "--seconds 4"));
    assert_eq!(other.status.code(), Some(2), "{}", text(&other.stderr));
    assert!(text(&other.stderr).contains("another --out"), "{}", text(&other.stderr));
    let output = lab(dir, &run);
    assert!(text(&output.stderr).contains("alone: done before"), "{}", text(&output.stderr));
    let conditions = verdict(dir, "proof", &output);
    assert_eq!(conditions.len(), 5);
    assert!(text(&output.stdout).contains("io ") && text(&output.stdout).contains("primary "));
    let (alone, deletes) = (seconds(dir, "proof", "alone", "1"), seconds(dir, "proof", "deletes", "2"));
    assert_eq!((alone.len(), deletes.len()), (5, 5));
    assert!(alone.iter().all(|(inserted, deleted)| *inserted > 0 && *deleted == 0), "{alone:?}");
    assert!(deletes.iter().all(|(inserted, deleted)| *inserted > 0 && *deleted > 0), "{deletes:?}");
    // Each part had a process of its own.
    let process = |part: &str| json(dir, &format!("proof/done-{part}.json"))["process"].as_u64().unwrap();
    assert!(process("alone") != process("deletes"));
    // All parts are done: only the verdict comes again.
    let again = lab(dir, &run);
    assert_eq!(verdict(dir, "proof", &again), conditions);
    assert_eq!(seconds(dir, "proof", "deletes", "3"), []);
}

#[test]
fn a_soak_in_seconds_keeps_to_its_rate_on_a_small_disk() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let output = lab(dir, &format!("endure soak --out soak --seconds 3 --search-seconds 2 --share 20 {SMALL}"));
    let conditions = verdict(dir, "soak", &output);
    assert_eq!(conditions.len(), 11, "{conditions:?}");
    assert!(conditions.iter().all(|condition| condition["found"] != "not measured"), "{conditions:?}");
    // What is no matter of speed holds in seconds too: the disk is full from the first one, and what somebody deletes is still seen.
    for what in ["the disk at its emptiest, percent full", "rows that the snapshot sees"] {
        let condition = conditions.iter().find(|condition| condition["what"] == what).unwrap();
        assert!(condition["holds"] == true, "{condition}");
    }
    let done = json(dir, "soak/done-soak.json");
    let seen = &done["snapshot"];
    assert!(seen["first"] == seen["last"] && seen["first"][0] == 20_000, "{seen}");
    assert!((18_000..=20_000).contains(&seen["deleted"].as_u64().unwrap()), "{seen}");
    assert!(done["reads"]["ranges"].as_f64() > Some(0.0) && done["reads"]["points"].as_f64() > Some(0.0), "{done}");
    assert!(done["disk_size"].as_u64() > Some(1 << 20) && done["budget_bytes"] == 16 << 20, "{done}");
    let highest = seconds(dir, "soak", "search", "1")[1].0 as f64;
    assert!((done["rate"].as_f64().unwrap() / (0.2 * highest) - 1.0).abs() < 0.01, "{done}, {highest}");
    let kept = seconds(dir, "soak", "soak", "1");
    assert_eq!(kept.len(), 3);
    // A fifth of what was possible: no machine is so busy that it would be exceeded.
    let inserted: u64 = kept.iter().map(|(inserted, _)| inserted).sum();
    assert!(inserted as f64 <= 3.2 * 0.2 * highest, "{kept:?} at {highest}");
}

#[test]
fn what_a_target_does_not_tell_is_missed_and_a_folder_of_another_build_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let run = "endure gc-debt --out proof --seconds 3 --rows 1k --target null";
    let conditions = verdict(dir, "proof", &lab(dir, run));
    let dead: Vec<_> = conditions.iter().filter(|condition| condition["found"] == "not measured").collect();
    assert!(dead.len() == 1 && dead[0]["holds"] == false, "{conditions:?}");
    let plan = dir.join("proof/plan.json");
    let mut kept: Value = serde_json::from_slice(&std::fs::read(&plan).unwrap()).unwrap();
    kept["commit"] = "another".into();
    std::fs::write(&plan, kept.to_string()).unwrap();
    let other = lab(dir, run);
    assert_eq!(other.status.code(), Some(2), "{}", text(&other.stderr));
    assert!(text(&other.stderr).contains("another build"), "{}", text(&other.stderr));
}

#[test]
fn rows_that_are_lost_are_a_violation_and_no_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let output = lab(dir, "endure gc-debt --out proof --seconds 3 --rows 1k --target model:fault=lose-entry");
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr).matches("entries for").count(), 1, "told once: {}", text(&output.stderr));
    assert!(!dir.join("proof/verdict.json").exists() && !dir.join("proof/done-alone.json").exists());
}
