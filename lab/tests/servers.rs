//! `lab run` on servers.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use lab_measure::procfs::Runs;
use lab_target::{DiskLimits, Durability, Setup, TargetSpec, registry};
use serde_json::Value;

const TREFOIL: &str = "server:mariadb?engine=trefoil";
const INNODB: &str = "server:mariadb?engine=innodb";

/// Servers of MariaDB take seconds to start and are not on every machine: the part `lab-servers` asks for them.
fn servers_are_wanted() -> bool {
    std::env::var_os("TREFOIL_SERVERS").is_some()
}

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(arguments);
    command
}

/// Inside the repository, where the script that fetches MariaDB is found.
fn run(dir: &Path, arguments: &[&str]) -> Output {
    let out = dir.join("run").display().to_string();
    lab(arguments).args(["--dir", &dir.display().to_string(), "--out", &out, "--quiet"]).output().unwrap()
}

fn results(output: &Output) -> Vec<Value> {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{complaint}");
    serde_json::from_slice::<Value>(&output.stdout).unwrap().as_array().unwrap().clone()
}

/// Rows, checksums and checks are those of every target; what a server costs is told apart from what the driver does.
#[test]
fn the_insert_benchmark_on_servers() {
    if !servers_are_wanted() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let steps = "l.i0,l.x,l.i1,l.i2,settle,qr100,qp100";
    let text = format!("{INNODB}&protocol=text");
    let mut arguments = vec!["run", "ibench", "--target", TREFOIL, "--target", &text, "--target", "model"];
    arguments.extend(["--rows", "3k", "--clients", "2", "--seconds", "1", "--settle-seconds", "0", "--steps", steps]);
    arguments.extend(["--htap-transaction-seconds", "1", "--budget", "64m", "--format", "json"]);
    let results = results(&run(dir.path(), &arguments));
    assert_eq!(results.len(), 18);
    for result in &results {
        let of_server = result["target"] != "model";
        let step = result["step"].as_str().unwrap();
        assert!(result["invariants"] == "ok", "{result}");
        for key in ["cpu_us_per_op", "client_cpu_us_per_op"] {
            let there = of_server || key != "client_cpu_us_per_op";
            assert_eq!(result.get(key).is_some(), there, "{key} {result}");
        }
        assert!(!of_server || result["data_bytes"].as_f64().unwrap() > 0.0, "{result}");
        let latency = if step.starts_with('q') { "query_p99_us" } else { "insert_p99_us" };
        assert!(step == "l.x" || result[latency].as_f64().unwrap() > 0.0, "{result}");
    }
    let record: Value = serde_json::from_slice(&std::fs::read(dir.path().join("run/run.json")).unwrap()).unwrap();
    let settings = &record["described"][0]["settings"];
    assert_eq!(settings["trefoil_buffer_size"], (64 << 20).to_string());
    assert!(settings["server.cnf"].as_str().unwrap().contains("trefoil_buffer_size=67108864"));
}

#[test]
fn sysbench_on_servers() {
    if !servers_are_wanted() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let text = format!("{TREFOIL}&protocol=text&binlog=on");
    let tests = "point-query,scan,random-points.10,hot-points,range-covered-si,range-notcovered-si,read-only-count.10,\
                 update-one,update-inlist,update-index,read-write.10,write-only,delete,insert";
    let mut arguments = vec!["run", "sysbench", "--target", INNODB, "--target", &text, "--tests", tests];
    arguments.extend(["--rows", "2k", "--tables", "2", "--clients", "4", "--seconds", "1", "--settle-seconds", "0"]);
    arguments.extend(["--format", "json", "--budget", "64m"]);
    let results = results(&run(dir.path(), &arguments));
    assert_eq!(results.len(), 30);
    for result in results {
        assert!(result["invariants"] == "ok" && result["ops"].as_f64().unwrap() > 0.0, "{result}");
        assert!(result["step"] == "load" || result["retries"].as_f64().is_some(), "{result}");
    }
}

/// A server of one's own is asked by its URL, left as it was, and where it has tables of these names, left alone.
#[test]
fn a_server_that_runs_is_asked_by_its_url() {
    if !servers_are_wanted() {
        return;
    }
    let (server_dir, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let setup = Setup {
        dir: server_dir.path().into(),
        durability: Durability::Write,
        budget_bytes: Some(64 << 20),
        io: None,
        compression: None,
        disk: DiskLimits::default(),
        seed: 1,
    };
    let server = registry::open(&TargetSpec::parse(INNODB).unwrap(), &setup).unwrap();
    let Runs::Beside(process) = server.runs() else { panic!("it has a process of its own") };
    let command = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap();
    let socket = command.split('\0').find_map(|word| word.strip_prefix("--socket=")).unwrap().to_owned();
    let url = |user: &str, engine: &str| format!("mysql://{user}@localhost/lab?engine={engine}&socket={socket}");
    let asked = |target: &str| {
        let mut arguments = vec!["run", "ibench", "--target", target, "--rows", "1k", "--steps", "l.i0,l.x,settle"];
        arguments.extend(["--settle-seconds", "0", "--format", "json"]);
        let dir = tempfile::tempdir_in(dir.path()).unwrap();
        run(dir.path(), &arguments)
    };
    for _ in 0..2 {
        let results = results(&asked(&url("root", "innodb")));
        // It is on this machine, so its process is seen.
        assert!(results[0]["cpu_us_per_op"].as_f64().is_some() && results[0]["client_cpu_us_per_op"].is_number());
    }
    server.create_table(0).unwrap();
    let complaint = |target: &str| {
        let output = asked(target);
        assert_ne!(output.status.code(), Some(0));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(complaint(&url("root", "innodb")).contains("DROP TABLE pi1"));
    assert_eq!(server.session().unwrap().min_key(0).unwrap(), None, "somebody's table is still there");
    assert!(complaint(&url("root", "trefoil")).contains("no engine `trefoil`"));
    assert!(complaint(&url("nobody:wrong", "innodb")).contains("denies access"));
    let elsewhere = url("root", "innodb").replace("/lab?", "/nowhere?");
    assert!(complaint(&elsewhere).contains("CREATE DATABASE"));
    server.close().unwrap();
}

#[test]
fn a_server_ends_with_the_lab_that_started_it() {
    if !servers_are_wanted() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db").display().to_string();
    std::fs::create_dir(&data).unwrap();
    let mut command = lab(&["run", "ibench", "--target", INNODB, "--rows", "100m", "--dir", &data, "--quiet"]);
    command.args(["--out", &dir.path().join("run").display().to_string()]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let server = || {
        let of_this = |path: &Path| {
            let command = std::fs::read(path.join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command);
            command.contains("mariadbd\0") && command.contains(&format!("--datadir={data}"))
        };
        std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()).find(|path| of_this(path))
    };
    let wait = |wanted: bool| {
        let began = Instant::now();
        while server().is_some() != wanted {
            assert!(began.elapsed() < Duration::from_secs(60), "is a server there? {}", server().is_some());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait(true);
    child.kill().unwrap();
    child.wait().unwrap();
    wait(false);
}

#[test]
fn what_cannot_be_reached_is_said_with_its_remedy() {
    let dir = tempfile::tempdir().unwrap();
    for (target, code, words) in [
        ("mysql://root@127.0.0.1:1/test?engine=innodb", 1, "let the lab start one"),
        ("server:mariadb?engine=innodb&dir=/nowhere", 1, "/nowhere"),
        ("server:mariadb?engine=heap", 2, "innodb, rocksdb and trefoil"),
        ("server:postgres?engine=heap", 2, "is MariaDB"),
    ] {
        let dir = tempfile::tempdir_in(dir.path()).unwrap();
        let output = run(dir.path(), &["run", "ibench", "--target", target, "--rows", "100", "--steps", "l.i0"]);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && complaint.contains(words), "{target}: {complaint}");
    }
    let mut arguments = vec!["run", "tpcc", "--target", INNODB, "--warehouses", "1"];
    let output = run(dir.path(), &arguments);
    assert!(
        output.status.code() == Some(2) && String::from_utf8_lossy(&output.stderr).contains("no adapter for TPC-C")
    );
    let limited = "mysql://root@127.0.0.1:1/test?engine=innodb";
    arguments = vec!["run", "ibench", "--target", limited, "--memory-limit", "1g"];
    let output = run(dir.path(), &arguments);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && complaint.contains("runs already"), "{complaint}");
}
