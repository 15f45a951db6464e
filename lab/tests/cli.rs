//! The command line from outside: exit codes, what goes to stdout, the run folder, resuming.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn lab(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lab")).args(arguments).current_dir(dir).output().unwrap()
}

const SMALL: &[&str] = &[
    "run",
    "ibench",
    "--target",
    "model",
    "--rows",
    "2k",
    "--seconds",
    "1",
    "--settle-seconds",
    "0",
    "--steps",
    "l.i0,l.x,l.i1,settle,qr100",
];

fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().copied().chain(more.iter().copied()).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_run_prints_results_alone_on_stdout_and_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let output = lab(dir.path(), &small(&["--out", "run", "--format", "json", "--repeat", "2", "--target", "model"]));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON array");
    let results = results.as_array().unwrap();
    // Four steps with a number, twice, and their medians. The same target twice is one row of repetitions.
    let medians = results.iter().filter(|result| result["repeat"] == "median").count();
    assert_eq!((results.len(), medians), (20, 4));
    let query = results.iter().find(|result| result["step"] == "qr100").unwrap();
    for key in ["target", "version", "qps_av", "ips_av", "dps_av", "query_p99_us", "cpu_us_per_query", "stall_max_ms"] {
        assert!(query.get(key).is_some(), "{key}");
    }
    // Whether a rate is kept for a second is up to the machine; `a_missed_rate_is_code_5_only_when_asked` looks at that.
    assert!(query["sla_met"].is_boolean() && query["invariants"] == "ok", "{query}");
    assert!(query.get("tpm").is_none(), "what was not measured is absent");
    let run: Value = serde_json::from_slice(&std::fs::read(dir.path().join("run/run.json")).unwrap()).unwrap();
    assert_eq!((run["state"].clone(), run["schema"].clone()), ("done".into(), "trefoil-lab/1".into()));
    assert!(run["environment"]["cores"].as_u64().unwrap() >= 1);
    for file in ["results.json", "report.html", "log.txt", "progress.tsv"] {
        assert!(dir.path().join("run").join(file).exists(), "{file}");
    }
    let left = std::fs::read_dir(dir.path().join("run")).unwrap().flatten();
    assert!(left.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with("db-")));
}

#[test]
fn the_embedded_engine_holds_the_same_rows_as_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let mut arguments = small(&["--target", "trefoil:node_size=4096", "--format", "json", "--budget", "32m"]);
    arguments.extend(["--htap-transaction-seconds", "1", "--compression", "zstd"]);
    let output = lab(dir.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checksum_of = |target: &str, step: &str| {
        let mut all = results.as_array().unwrap().iter();
        let found = all.find(|result| result["target"].as_str().unwrap().starts_with(target) && result["step"] == step);
        found.unwrap()["checksum"].as_str().unwrap().to_owned()
    };
    for step in ["l.i0", "l.x", "l.i1", "qr100"] {
        assert_eq!(checksum_of("model", step), checksum_of("trefoil", step), "{step}");
    }
    let run: Value =
        serde_json::from_slice(&std::fs::read(dir.path().join("bench-results/latest/run.json")).unwrap()).unwrap();
    let settings = &run["described"][1]["settings"];
    assert_eq!((settings["compression"].clone(), settings["budget"].clone()), ("zstd".into(), "33554432".into()));
}

/// From the first moment of a step that is measured to its last, whatever the structure; the page draws them.
#[test]
fn what_each_index_of_the_embedded_engine_cost_is_kept_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let run =
        "run ibench --target trefoil:pk=lsm --rows 2k --warmup 1 --seconds 2 --settle-seconds 0 --quiet --out run";
    let mut arguments: Vec<&str> = run.split(' ').collect();
    arguments.extend(["--steps", "l.i0,l.x,l.i1,l.i2,qp100"]);
    let output = lab(dir.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let costs_of = |step: &str| {
        let step = std::fs::read(dir.path().join(format!("run/steps/t01-c01-r01-{step}.json"))).unwrap();
        serde_json::from_slice::<Value>(&step).unwrap()["costs"].as_array().unwrap().clone()
    };
    let number = |at: &Value, index: &str, number: &str| at["indexes"][index][number].as_u64().unwrap();
    // Nobody writes between the two: the second begins before any of its statements does.
    let (before, load) = (costs_of("02-li1"), costs_of("03-li2"));
    let (first, last) = (&load[0], &load[load.len() - 1]);
    assert!(first["secs"] == 0.0, "{load:?}");
    let left = number(&before[before.len() - 1], "pi1.primary", "ingested_bytes");
    assert_eq!(number(first, "pi1.primary", "ingested_bytes"), left, "{load:?}");
    for index in ["pi1.primary", "pi1.marketsegment", "pi1.registersegment", "pi1.pdc"] {
        assert!(number(last, index, "ingested_bytes") > number(first, index, "ingested_bytes"), "{index}: {load:?}");
        assert!(number(last, index, "versions") >= 2_000, "{index}: {load:?}");
        // A log-structured merge tree does not know.
        assert_eq!(number(last, index, "live_keys") > 0, index != "pi1.primary", "{index}: {load:?}");
    }
    let asked = costs_of("04-qp100");
    let (first, last) = (&asked[0], &asked[asked.len() - 1]);
    let (began, ended) = (first["secs"].as_f64().unwrap(), last["secs"].as_f64().unwrap());
    assert!(began >= 1.0 && ended > began, "the warm-up is not measured: {asked:?}");
    assert!(number(last, "pi1.primary", "point_reads") > number(first, "pi1.primary", "point_reads"), "{asked:?}");
    let page = std::fs::read_to_string(dir.path().join("run/report.html")).unwrap();
    let of_step = page.split_once("<h2 id=\"qp100\">").unwrap().1;
    assert!(of_step.contains("<h3>Amplification</h3>") && of_step.contains("trefoil"), "no costs in the page");
}

#[test]
fn the_last_lines_are_the_table_the_report_and_the_next_command() {
    let dir = tempfile::tempdir().unwrap();
    let output = lab(dir.path(), SMALL);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(lines[0].starts_with("step "), "{stdout}");
    assert!(lines[lines.len() - 2].starts_with("report: bench-results/"), "{stdout}");
    assert!(lines[lines.len() - 1].starts_with("next:   lab run ibench"), "{stdout}");
    let list = lab(dir.path(), &["list"]);
    assert!(text(&list.stdout).contains("done") && text(&list.stdout).lines().count() == 1);
    let show = lab(dir.path(), &["show", "bench-results/latest", "--format", "csv"]);
    assert!(text(&show.stdout).starts_with("schema,target,") && show.status.success());
    let report = lab(dir.path(), &["report", "bench-results/latest", "-o", "all.html"]);
    assert!(report.status.success() && dir.path().join("all.html").exists());
    assert_eq!(lab(dir.path(), &["show", "nowhere"]).status.code(), Some(1));
    let doctor = lab(dir.path(), &["doctor"]);
    assert_eq!(doctor.status.code(), Some(0));
    let told = text(&doctor.stdout);
    for what in
        ["free memory", "swap", "huge pages", "free disk", "stolen time", "governor", "clock", "direct i/o", "load"]
    {
        assert!(told.lines().any(|line| line[6..].starts_with(what)), "{what}: {told}");
    }
    let warned = told.lines().any(|line| line.starts_with("WARN"));
    assert_eq!(lab(dir.path(), &["doctor", "--strict"]).status.code(), Some(if warned { 1 } else { 0 }), "{told}");
    let nowhere = lab(dir.path(), &["doctor", "--dir", "nowhere"]);
    assert!(nowhere.status.code() == Some(2) && text(&nowhere.stderr).contains("is no directory"));
}

#[test]
fn mistakes_and_what_is_not_built_are_code_2() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&["--form", "2018"][..], "the forms are 2017 and 2023"),
        (&["--memory-limit", "512m", "--budget", "1g"], "leaves no room"),
        (&["--disk-limit", "iops=fast"], "above 0"),
        (&["--legacy-units", "--format", "json"], "no effect"),
        (&["--target", "rocksdb"], "unsupported"),
        (&["--target", "trefoil@main"], "building version"),
        (&["--target", "mysql://root@localhost/test"], "which engine"),
        (&["--target", "oracle"], "no engine is called"),
        (&["--target", "model:speed=9"], "no parameter `speed`"),
        (&["--steps", "l.x"], "first step has to be l.i0"),
        (&["--steps", "l.i0,l.i9"], "no step is called"),
        (&["--rows", "ten"], "not a unit"),
        (&["--index-set", "1999"], "--index-set"),
        (&["--clients", "2", "--tables", "3"], "tables"),
        (&["--repeat", "0"], "--repeat"),
        (&["--no-such-option"], "unexpected argument"),
    ] {
        let mut all = vec!["run", "ibench"];
        all.extend(arguments);
        let output = lab(dir.path(), &all);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
    for command in [&["run", "sysbench", "--target", "sqlite"], &["run", "tpcc", "--target", "sqlite"]] {
        let output = lab(dir.path(), command);
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        assert!(text(&output.stderr).contains("unsupported"), "{command:?}: {}", text(&output.stderr));
    }
    assert!(!dir.path().join("bench-results").exists(), "nothing is made before the command line is understood");
    assert_eq!(lab(dir.path(), &["--help"]).status.code(), Some(0));
    assert!(text(&lab(dir.path(), &["run", "ibench", "--help"]).stdout).contains("Steps of the 2023 form"));
}

#[test]
fn a_violated_invariant_is_code_4_and_keeps_the_sound_steps() {
    let dir = tempfile::tempdir().unwrap();
    let mut arguments = small(&["--out", "run"]);
    arguments[3] = "model:fault=lose-delete";
    let output = lab(dir.path(), &arguments);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("after l.i1"), "{}", text(&output.stderr));
    assert!(!text(&output.stdout).contains("l.i1"), "a step whose invariant fails prints no number");
    let run: Value = serde_json::from_slice(&std::fs::read(dir.path().join("run/run.json")).unwrap()).unwrap();
    assert_eq!(run["state"], "failed");
    let results: Value = serde_json::from_slice(&std::fs::read(dir.path().join("run/results.json")).unwrap()).unwrap();
    assert_eq!(results.as_array().unwrap().len(), 2);
}

#[test]
fn a_missed_rate_is_code_5_only_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let steps = ["run", "ibench", "--rows", "200", "--seconds", "1", "--steps", "l.i0,l.x,qr1000", "--target"];
    let slow = "model:pause_ms=100,pause_every=1";
    let arguments: Vec<&str> = steps.iter().copied().chain([slow, "--require-sla"]).collect();
    assert_eq!(lab(dir.path(), &arguments).status.code(), Some(5));
    assert_eq!(lab(dir.path(), &arguments[..arguments.len() - 1]).status.code(), Some(0));
}

#[test]
fn what_cannot_be_written_is_code_1_and_an_old_run_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    assert_eq!(lab(dir.path(), &small(&["--out", "file/run"])).status.code(), Some(1));
    std::fs::create_dir(dir.path().join("run")).unwrap();
    std::fs::write(dir.path().join("run/run.json"), "{}").unwrap();
    let output = lab(dir.path(), &small(&["--out", "run"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("already holds a run"));
    let damaged = lab(dir.path(), &["show", "run"]);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(text(&damaged.stderr).contains("schema none, this lab reads trefoil-lab/1"), "{}", text(&damaged.stderr));
    std::fs::write(dir.path().join("run/run.json"), r#"{"schema": "trefoil-lab/1"}"#).unwrap();
    assert!(text(&lab(dir.path(), &["show", "run"]).stderr).contains("damaged"));
}

#[test]
fn a_reader_that_has_read_enough_ends_nothing_and_a_full_disk_behind_stdout_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    for command in [&["man"][..], &["reference"], &["completions", "bash"], &["list", "--targets"]] {
        let of = |out: Stdio| {
            let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"));
            lab.args(command).current_dir(dir.path()).stdout(out).stderr(Stdio::piped()).output().unwrap()
        };
        // Nobody reads.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let enough = of(writer.into());
        assert!(enough.status.success() && enough.stderr.is_empty(), "{command:?}: {}", text(&enough.stderr));
        let full = of(std::fs::File::options().write(true).open("/dev/full").unwrap().into());
        let told = text(&full.stderr);
        assert_eq!((full.status.code(), told.lines().count()), (Some(1), 1), "{command:?}: {told}");
        assert!(told.starts_with("lab: cannot write to stdout: No space left"), "{told}");
    }
}

#[test]
fn ctrl_c_keeps_partial_results_and_the_run_can_be_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = [
        "run",
        "ibench",
        "--target",
        "model",
        "--rows",
        "2k",
        "--seconds",
        "3",
        "--steps",
        "l.i0,l.x,qr100",
        "--repeat",
        "2",
        "--out",
        "run",
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(arguments)
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let second_turn = dir.path().join("run/steps/t01-c01-r02-01-lx.json");
    let began = Instant::now();
    while !second_turn.exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "the second repetition never began");
        std::thread::sleep(Duration::from_millis(20));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let read = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(dir.path().join("run").join(name)).unwrap()).unwrap()
    };
    assert_eq!(
        (read("run.json")["state"].clone(), read("results.json").as_array().unwrap().len() >= 5),
        ("interrupted".into(), true)
    );
    // What is kept agrees with itself, and can be shown and reported.
    for command in [&["verify", "run"][..], &["show", "run"], &["report", "run"]] {
        assert_eq!(lab(dir.path(), command).status.code(), Some(0), "{command:?}");
    }
    // What it does is in its folder: who says something else is told, and the run stays as it is.
    for (arguments, words) in [
        (&["run", "ibench", "--resume", "run", "--rows", "2k"][..], "--rows is of a run's beginning"),
        (&["run", "ibench", "--resume", "run", "--target", "trefoil"], "the run that --resume names has model"),
        (&["run", "sysbench", "--resume", "run"], "run is a run of ibench: lab run ibench --resume run"),
    ] {
        let output = lab(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(read("run.json")["state"], "interrupted");
    }
    let output = lab(dir.path(), &["run", "ibench", "--resume", "run", "--target", "model", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let repeats: Vec<String> = results.as_array().unwrap().iter().map(|result| result["repeat"].to_string()).collect();
    assert_eq!(repeats, ["1", "1", "1", "2", "2", "2", "\"median\"", "\"median\"", "\"median\""]);
    assert_eq!(read("run.json")["state"], "done");
}

const SYSBENCH: &[&str] =
    &["run", "sysbench", "--target", "model", "--rows", "4k", "--seconds", "1", "--settle-seconds", "0"];

#[test]
fn sysbench_runs_every_number_of_clients_on_every_number_of_tables() {
    let dir = tempfile::tempdir().unwrap();
    let of = |more: &[&str]| lab(dir.path(), &[SYSBENCH, more].concat());
    let output = of(&["--tests", "point-query", "--tables", "2,1", "--clients", "1,2", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = results.as_array().unwrap();
    let cases: Vec<(u64, u64)> = results
        .iter()
        .filter(|result| result["step"] == "point-query")
        .map(|result| (result["tables"].as_u64().unwrap(), result["clients"].as_u64().unwrap()))
        .collect();
    assert_eq!(cases, [(2, 1), (2, 2), (1, 1), (1, 2)]);
    for result in results {
        assert_eq!((&result["workload"], &result["invariants"]), (&"sysbench".into(), &"ok".into()));
        let keys = if result["step"] == "load" { ["ips_av", "insert_p99_us"] } else { ["qps_av", "tpm"] };
        assert!(keys.iter().all(|key| result[key].is_number()), "{result}");
    }
    let list = lab(dir.path(), &["list"]);
    assert!(text(&list.stdout).contains("sysbench"), "{}", text(&list.stdout));
    assert_eq!(lab(dir.path(), &["verify", "bench-results/latest"]).status.code(), Some(0));
    for (more, words) in [
        (&["--tests", "hot-point"][..], "no test is called `hot-point`"),
        (&["--tests", "insert,insert"], "given twice"),
        (&["--tables", "40"], "100 a table"),
        (&["--form", "2023"], "the forms are 2017, today and all"),
    ] {
        let output = of(more);
        assert_eq!((output.status.code(), text(&output.stderr).contains(words)), (Some(2), true), "{more:?}");
    }
    let output =
        of(&["--target", "model:fault=wrong-get", "--tests", "point-query", "--tables", "1", "--clients", "1"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
}

const TPCC: &[&str] = &["run", "tpcc", "--scale", "100", "--seconds", "1", "--settle-seconds", "0"];

#[test]
fn tpcc_runs_every_number_of_sessions_on_every_number_of_cores() {
    let dir = tempfile::tempdir().unwrap();
    let of = |more: &[&str]| lab(dir.path(), &[TPCC, more].concat());
    let output =
        of(&["--target", "model", "--target", "trefoil", "--cores", "1", "--clients", "1,2", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = results.as_array().unwrap();
    let runs: Vec<&Value> = results.iter().filter(|result| result["step"] == "run").collect();
    let cases: Vec<_> =
        runs.iter().map(|run| (run["clients"].as_u64().unwrap(), run["target"].as_str().unwrap())).collect();
    assert_eq!(cases, [(1, "model"), (1, "trefoil"), (2, "model"), (2, "trefoil")]);
    assert!(results.iter().all(|result| result["cores"] == 1 && result["invariants"] == "ok"));
    for run in runs {
        let keys = ["tpm", "nopm", "retries", "cores_cpu_pct", "p99_us", "rkb_per_op", "cpu_us_per_op"];
        assert!(keys.iter().all(|key| run[key].is_number()), "{run}");
        let of_kind = &run["transactions"]["new-order"];
        assert!(["count", "p90_us", "p95_us", "max_us"].iter().all(|key| of_kind[key].is_number()), "{run}");
    }
    let loads: Vec<&Value> = results.iter().filter(|result| result["step"] == "load").collect();
    assert!(loads.iter().all(|load| load["checksum"] == loads[0]["checksum"]), "the same rows on every target");
    assert_eq!(lab(dir.path(), &["verify", "bench-results/latest"]).status.code(), Some(0));
    assert_eq!(lab(dir.path(), &["compare", "bench-results/latest"]).status.code(), Some(0));
    for (more, words) in [
        (&["--steps", "walk"][..], "step `walk` is none of"),
        (&["--steps", "load"], "comes first by itself"),
        (&["--warehouses", "0"], "--warehouses has to be"),
        (&["--cores", "100000"], "this process may use"),
    ] {
        let output = of(more);
        assert_eq!((output.status.code(), text(&output.stderr).contains(words)), (Some(2), true), "{more:?}");
    }
    let output = of(&["--clients", "3", "--steps", "run,crash", "--out", "killed"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let step = std::fs::read_dir(dir.path().join("killed/steps")).unwrap();
    let told: Vec<String> = step.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    let told = told.iter().find(|text| text.contains("killed after")).expect("the step is kept");
    assert!(told.contains("all are there") && !told.contains("killed after 0"), "{told}");
    assert_eq!(lab(dir.path(), &["verify", "killed"]).status.code(), Some(0));
    let output = of(&["--target", "model", "--steps", "run,crash"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let output = of(&["--target", "model:fault=lose-update", "--clients", "1", "--steps", "run"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("after run: condition 10"), "{}", text(&output.stderr));
}

/// What is measured is the engine: the driver's own share is what a target that does nothing shows. Processor time, of the
/// better of two repetitions: other programs take turns with it, and only ever add.
#[test]
fn the_driver_makes_two_million_operations_a_second_of_a_processor() {
    let dir = tempfile::tempdir().unwrap();
    let common = ["--target", "null", "--settle-seconds", "0", "--seconds", "1", "--repeat", "2", "--format", "json"];
    let ibench = ["run", "ibench", "--rows", "1m", "--steps", "l.i0,l.x,l.i1,settle,qr100", "--quiet"];
    let sysbench = ["run", "sysbench", "--rows", "1k", "--tables", "1", "--clients", "1", "--quiet", "--tests"];
    let sysbench = [&sysbench[..], &["point-query,update-one"]].concat();
    for (arguments, steps) in
        [(&ibench[..], &["l.i0", "l.i1", "qr100"][..]), (&sysbench, &["point-query", "update-one"])]
    {
        let output = lab(dir.path(), &[arguments, &common].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let results: Value = serde_json::from_slice(&output.stdout).unwrap();
        for step in steps {
            let of_step = results.as_array().unwrap().iter().filter(|result| result["step"] == *step);
            let costs: Vec<f64> = of_step.filter_map(|result| result["cpu_us_per_op"].as_f64()).collect();
            let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
            assert!(least <= 0.5, "{step}: {costs:?} us an operation");
        }
    }
}
