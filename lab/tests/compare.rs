//! `lab compare` from outside: verdicts, exit codes, clear errors, and a real comparison of an engine with itself.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn lab(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lab")).args(arguments).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the benchmark on two names of the same engine, five times each in turns.
fn run(dir: &Path, out: &str) {
    let arguments =
        "run ibench --target model --target model:pause_ms=0 --rows 20k --steps l.i0,l.x,l.i1 --repeat 5 --quiet --out";
    let arguments: Vec<&str> = arguments.split(' ').chain([out]).collect();
    let output = lab(dir, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// Gives a run known insert rates: 1000 rows/s with 1 % noise, times a factor for each of the two targets.
fn write_rates(dir: &Path, out: &str, factors: [f64; 2]) {
    let path = dir.join(out).join("results.json");
    let mut results: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for result in results.as_array_mut().unwrap() {
        let factor = factors[usize::from(result["target"] != "model")];
        let repeat = result["repeat"].as_f64().unwrap_or(0.0);
        result["ips_av"] = (1_000.0 * factor * (1.0 + 0.01 * (repeat - 3.0))).into();
    }
    std::fs::write(&path, results.to_string()).unwrap();
}

fn copy(dir: &Path, from: &str, to: &str) {
    let copied = Command::new("cp").args(["-r", from, to]).current_dir(dir).status().unwrap();
    assert!(copied.success());
}

#[test]
fn a_comparison_says_what_is_known_and_ends_with_code_3_on_a_regression() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    run(dir, "before");
    write_rates(dir, "before", [1.0, 1.0]);
    copy(dir, "before", "after");
    write_rates(dir, "after", [0.8, 1.0]);
    // Every second repetition went through the targets backwards.
    let record: Value = serde_json::from_slice(&std::fs::read(dir.join("before/run.json")).unwrap()).unwrap();
    let order: Vec<u64> =
        record["turns_done"].as_array().unwrap().iter().map(|turn| turn["target"].as_u64().unwrap()).collect();
    assert_eq!(order, [0, 1, 1, 0, 0, 1, 1, 0, 0, 1]);
    // Across targets inside one run: the base is the first target, or the one that is named.
    let output = lab(dir, &["compare", "after", "--metrics", "ips_av", "--format", "json"]);
    let lines: Value = serde_json::from_slice(&output.stdout).unwrap();
    for line in lines.as_array().unwrap() {
        assert_eq!((line["verdict"].as_str(), line["target"].as_str()), (Some("better"), Some("model:pause_ms=0")));
        assert!((line["ratio"].as_f64().unwrap() - 1.25).abs() < 1e-9, "{line}");
        assert!(line["ratio_low"].as_f64().unwrap() > 1.2 && line["ratio_high"].as_f64().unwrap() < 1.3, "{line}");
    }
    assert_eq!(lines.as_array().unwrap().len(), 3);
    let output = lab(dir, &["compare", "after", "--base", "model:pause_ms=0", "--metrics", "ips", "--format", "csv"]);
    assert_eq!(text(&output.stdout).matches(",worse\n").count(), 3, "{}", text(&output.stdout));
    // Across runs: each target beside itself.
    let output = lab(dir, &["compare", "before", "after", "--metrics", "ips", "--format", "md"]);
    let table = text(&output.stdout);
    assert_eq!((table.matches("| worse |").count(), table.matches("| same |").count()), (3, 3), "{table}");
    assert!(text(&output.stderr).contains("did not take turns"));
    let same = lab(dir, &["compare", "before", "after", "--base", "./before", "--metrics", "ips", "--format", "md"]);
    assert_eq!(text(&same.stdout), table);
    // Regressions.
    let fails = |condition: &str| lab(dir, &["compare", "before", "after", "--fail-on", condition]);
    let output = fails("l.i1.ips<-5%");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("-20.0 %"), "{}", text(&output.stderr));
    assert_eq!(fails("*.ips<-25%").status.code(), Some(0));
    assert_eq!(fails("qr100.qps<-5%").status.code(), Some(2));
    assert_eq!(fails("l.i1.ips>5%").status.code(), Some(2));
    let better = lab(dir, &["compare", "after", "before", "--fail-on", "*.ips<-5%"]);
    assert_eq!(better.status.code(), Some(0), "{}", text(&better.stderr));
}

#[test]
fn what_cannot_be_compared_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let complaint = |arguments: &[&str], code: i32| {
        let output = lab(dir, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty());
        text(&output.stderr)
    };
    assert!(complaint(&["compare", "nowhere"], 1).contains("nowhere does not exist"));
    std::fs::create_dir(dir.join("old")).unwrap();
    assert!(complaint(&["compare", "old"], 1).contains("holds no run"));
    std::fs::write(dir.join("old/run.json"), r#"{"schema": "trefoil-lab/0"}"#).unwrap();
    assert!(complaint(&["compare", "old"], 1).contains("schema trefoil-lab/0, this lab reads trefoil-lab/1"));
    complaint(&["compare"], 2);
    let small = "run ibench --target model --rows 1k --steps l.i0 --quiet --out one";
    assert!(lab(dir, &small.split(' ').collect::<Vec<_>>()).status.success());
    assert!(complaint(&["compare", "one"], 2).contains("nothing to compare"));
    assert!(complaint(&["compare", "one", "--base", "redb"], 2).contains("neither a run folder nor a target"));
    copy(dir, "one", "two");
    // One repetition has no interval: nothing is claimed, and a condition cannot be judged.
    let output = lab(dir, &["compare", "one", "two"]);
    assert!(output.status.success() && text(&output.stdout).contains("0 better, 0 worse, 0 same"));
    let output = lab(dir, &["compare", "one", "two", "--fail-on", "l.i0.ips<-5%"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("needs 5 repetitions"), "{}", text(&output.stderr));
    std::fs::remove_file(dir.join("two/results.json")).unwrap();
    assert!(complaint(&["compare", "one", "two"], 1).contains("holds no finished step"));
}

/// A comparison of the same engine under two names, really measured. It may claim something in 5 of 100, so it does
/// only fail if it does so twice.
#[test]
fn a_real_comparison_of_an_engine_with_itself_claims_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut said = Vec::new();
    for out in ["first", "second"] {
        run(dir.path(), out);
        let output = lab(dir.path(), &["compare", out, "--format", "json"]);
        let lines: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(lines.as_array().unwrap().len() >= 10);
        let claims = |line: &&Value| line["verdict"] == "better" || line["verdict"] == "worse";
        let claimed: Vec<Value> = lines.as_array().unwrap().iter().filter(claims).cloned().collect();
        if claimed.is_empty() {
            return;
        }
        said.push(claimed);
    }
    panic!("the same engine is said to differ from itself, twice: {said:#?}");
}

#[test]
fn a_plan_and_a_run_stand_side_by_side_where_they_have_one_size() {
    let dir = tempfile::tempdir().unwrap();
    let run = |out: &str, rows: &str| {
        let arguments = format!("run ibench --target model --rows {rows} --steps l.i0 --repeat 1 --quiet --out {out}");
        let output = lab(dir.path(), &arguments.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    };
    run("small", "1k");
    run("large", "2k");
    // Plans with two parts, of which one has begun.
    for plan in ["one", "other"] {
        std::fs::create_dir_all(dir.path().join(plan).join("parts")).unwrap();
        copy(dir.path(), "large", &format!("{plan}/parts/a"));
        let part = |name: &str| json!({ "name": name, "title": "", "workload": "ibench", "options": [], "rows": [] });
        let record = json!({
            "schema": "trefoil-lab-plan/1", "name": plan, "title": "", "about": "", "source": "", "scale": null,
            "began": "", "state": "running", "parts": [part("a"), part("b")], "knobs": [], "tables": [], "files": {},
        });
        std::fs::write(dir.path().join(plan).join("plan.json"), record.to_string()).unwrap();
    }
    for command in ["compare", "explain"] {
        for (arguments, words) in [
            ([command, "one", "small"], "another --scale"),
            ([command, "small", "one"], "another --scale"),
            ([command, "one", "other"], "plan one is not plan other"),
        ] {
            let output = lab(dir.path(), &arguments);
            let said = text(&output.stderr);
            assert!(output.status.code() == Some(2) && said.contains(words), "{arguments:?}: {said}");
        }
        let output = lab(dir.path(), &[command, "large", "one"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    // Its name does not depend on how many parts have begun.
    assert!(text(&lab(dir.path(), &["explain", "large", "one"]).stdout).contains("model -> model [a], "));
}
