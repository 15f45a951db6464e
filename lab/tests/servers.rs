//! `lab run` on servers.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

#[path = "servers/trouble.rs"]
mod trouble;

use std::path::Path;
use std::process::{Command, Output};

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

/// PostgreSQL and MySQL have parts of their own, `postgres` and `mysql`.
fn is_wanted(part: &str) -> bool {
    std::env::var_os(part).is_some()
}

/// A directory that another user may enter: PostgreSQL does not run for the administrator.
fn room() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
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
        assert!(!of_server || result["gc_debt"].is_number(), "{result}");
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
    // Statements are the same on every engine of the server: all of them in text on Trefoil; prepared, on InnoDB, one of each
    // kind of statement.
    let all = "point-query,scan,random-points.10,hot-points,range-covered-si,range-notcovered-si,read-only-count.10,\
               update-one,update-inlist,update-index,read-write.10,write-only,delete,insert";
    let of_each_kind = "point-query,random-points.10,range-covered-si,update-inlist,read-write.10,insert";
    let text = format!("{TREFOIL}&protocol=text&binlog=on");
    for (target, tests) in [(INNODB, of_each_kind), (&text, all)] {
        let dir = tempfile::tempdir().unwrap();
        let mut arguments =
            vec!["run", "sysbench", "--target", target, "--tests", tests, "--rows", "2k", "--tables", "2"];
        arguments.extend(["--clients", "4", "--seconds", "1", "--settle-seconds", "0", "--format", "json"]);
        arguments.extend(["--budget", "64m"]);
        let results = results(&run(dir.path(), &arguments));
        assert_eq!(results.len(), 1 + tests.split(',').count());
        for result in results {
            assert!(result["invariants"] == "ok" && result["ops"].as_f64().unwrap() > 0.0, "{result}");
            assert!(result["step"] == "load" || result["retries"].as_f64().is_some(), "{result}");
        }
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
        price: lab_target::Price::Int,
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

/// Of four knobs one works, one is none of this server's, one is taken back by the server, and one it calls old.
#[test]
fn a_knob_of_a_server_without_effect_is_told() {
    if !servers_are_wanted() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let cnf = dir.path().join("own.cnf");
    let knobs = "innodb_io_capacity=300\nloose_no_such_knob=1\ninnodb_lru_scan_depth=1\ninnodb_page_cleaners=4\n";
    std::fs::write(&cnf, format!("[mysqld]\n{knobs}")).unwrap();
    let target = format!("{INNODB}&cnf={}", cnf.display());
    let arguments = ["run", "ibench", "--target", &target, "--rows", "1k", "--steps", "l.i0", "--format", "json"];
    results(&run(dir.path(), &arguments));
    let record: Value = serde_json::from_slice(&std::fs::read(dir.path().join("run/run.json")).unwrap()).unwrap();
    let described = &record["described"][0];
    assert_eq!(described["settings"]["innodb_io_capacity"], "300", "the one that works is read back");
    let notes: Vec<&str> = described["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let about = |knob: &str| notes.iter().filter(|note| note.contains(knob)).count();
    assert!(notes.contains(&"no_such_knob: the server has no such variable, so it has no effect"), "{notes:?}");
    assert!(notes.contains(&"innodb_lru_scan_depth: 1 was asked for, 100 is in force"), "{notes:?}");
    assert_eq!((about("io_capacity"), about("page_cleaners") + about("page-cleaners")), (0, 1), "{notes:?}");
}

/// The twelve conditions after the load, beside the transactions, after them, and after the server was killed.
fn tpcc_on(targets: &[&str], clients: &str) {
    let dir = room();
    let mut arguments =
        vec!["run", "tpcc", "--warehouses", "2", "--scale", "100", "--clients", clients, "--seconds", "1"];
    arguments.extend(targets.iter().flat_map(|target| ["--target", target]));
    arguments.extend(["--steps", "run,snapshot,crash", "--settle-seconds", "0", "--budget", "64m", "--format", "json"]);
    let results = results(&run(dir.path(), &arguments));
    assert_eq!(results.len(), 4 * targets.len());
    for result in &results {
        assert!(result["invariants"] == "ok", "{result}");
        let is_timed = ["run", "snapshot"].contains(&result["step"].as_str().unwrap());
        assert!(!is_timed || result["tpm"].as_f64().unwrap() > 0.0, "{result}");
        assert!(!is_timed || result["retries"].as_f64().is_some(), "{result}");
        assert!(!is_timed || result["gc_debt"].is_number(), "{result}");
    }
    // Every row of the load is as the plan has it, on all of them: `run` compares the checksums, and says where they differ.
    let log = std::fs::read_to_string(dir.path().join("run/log.txt")).unwrap_or_default();
    assert!(!log.contains("differ"), "{log}");
}

#[test]
fn tpcc_on_servers() {
    if servers_are_wanted() {
        tpcc_on(&[TREFOIL, INNODB, "server:mariadb?engine=rocksdb&protocol=text"], "4");
    }
}

#[test]
fn tpcc_on_postgres() {
    if is_wanted("TREFOIL_POSTGRES") {
        tpcc_on(&["server:postgres"], "4");
    }
}

#[test]
fn the_insert_benchmark_and_sysbench_on_postgres() {
    if !is_wanted("TREFOIL_POSTGRES") {
        return;
    }
    for (form, steps) in [("2023", "l.i0,l.x,l.i1,l.i2,settle,qr100,qp100"), ("2017", "")] {
        let dir = room();
        let mut arguments = vec!["run", "ibench", "--target", "server:postgres", "--target", "model", "--form", form];
        arguments.extend(["--rows", "3k", "--clients", "2", "--seconds", "1", "--settle-seconds", "0"]);
        arguments.extend(["--budget", "64m", "--format", "json"]);
        if !steps.is_empty() {
            arguments.extend(["--steps", steps, "--htap-transaction-seconds", "1"]);
        }
        for result in results(&run(dir.path(), &arguments)) {
            let of_server = result["target"] != "model";
            assert!(result["invariants"] == "ok", "{result}");
            assert_eq!(result.get("client_cpu_us_per_op").is_some(), of_server, "{result}");
            assert!(!of_server || result["data_bytes"].as_f64() < result["total_bytes"].as_f64(), "{result}");
            assert!(!of_server || result["gc_debt"].is_number(), "{result}");
        }
        let record: Value = serde_json::from_slice(&std::fs::read(dir.path().join("run/run.json")).unwrap()).unwrap();
        assert_eq!(record["described"][0]["settings"]["shared_buffers"], "64MB");
    }
    let dir = room();
    let tests = "point-query,scan,random-points.10,hot-points,range-covered-si,range-notcovered-si,read-only-count.10,\
                 update-one,update-inlist,update-index,read-write.10,write-only,delete,insert";
    let mut arguments = vec!["run", "sysbench", "--target", "server:postgres?protocol=text", "--tests", tests];
    arguments.extend(["--rows", "2k", "--tables", "2", "--clients", "4", "--seconds", "1", "--settle-seconds", "0"]);
    arguments.extend(["--format", "json", "--budget", "64m"]);
    let results = results(&run(dir.path(), &arguments));
    assert_eq!(results.len(), 15);
    for result in results {
        assert!(result["invariants"] == "ok" && result["ops"].as_f64().unwrap() > 0.0, "{result}");
    }
}

/// The processes of its connections are there when a step has begun: perf goes on with what the server starts.
#[test]
fn the_processes_of_postgres_are_sampled() {
    let perf = ["record", "--quiet", "--event=cpu-clock", "--output=/dev/null", "--", "true"];
    let may_sample = || Command::new("perf").args(perf).output().is_ok_and(|output| output.status.success());
    if !is_wanted("TREFOIL_POSTGRES") || !may_sample() {
        return;
    }
    let dir = room();
    let mut arguments = vec!["run", "ibench", "--target", "server:postgres", "--rows", "3k", "--seconds", "3"];
    arguments.extend(["--steps", "l.i0,l.x,qr100", "--settle-seconds", "0", "--budget", "64m", "--sample"]);
    let results = results(&run(dir.path(), &[&arguments[..], &["--format", "json"]].concat()));
    assert_eq!(results.len(), 3, "what is sampled is in no number");
    let stacks = std::fs::read_to_string(dir.path().join("run/sampled/flames/t01-c01-qr100.folded")).unwrap();
    // The loop of a connection's process, and what it is asked to do.
    assert!(stacks.lines().any(|line| line.contains("PostgresMain;")), "{stacks}");
    assert!(!stacks.contains("lab_workload::"), "the driver is another process: {stacks}");
}

/// A server of PostgreSQL that runs is left as it was; what is in the way stays.
#[test]
fn postgres_that_runs_is_asked_by_its_url() {
    if !is_wanted("TREFOIL_POSTGRES") {
        return;
    }
    let (server_dir, dir) = (room(), room());
    let setup = Setup {
        dir: server_dir.path().into(),
        durability: Durability::Write,
        budget_bytes: Some(64 << 20),
        io: None,
        compression: None,
        disk: DiskLimits::default(),
        seed: 1,
        price: lab_target::Price::Int,
    };
    let server = registry::open(&TargetSpec::parse("server:postgres").unwrap(), &setup).unwrap();
    let Runs::Family(process) = server.runs() else { panic!("it has a process a connection") };
    let command = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap();
    let socket = command.split('\0').skip_while(|word| *word != "-k").nth(1).unwrap().to_owned();
    let url = |database: &str| format!("postgres://lab@localhost/{database}?socket={socket}");
    let asked = |target: &str, arguments: &[&str]| {
        let mut all =
            vec!["run", "ibench", "--target", target, "--rows", "1k", "--settle-seconds", "0", "--format", "json"];
        all.extend(arguments);
        run(room_in(dir.path()).path(), &all)
    };
    let results = results(&asked(&url("lab"), &["--steps", "l.i0,l.x,settle"]));
    // It is on this machine, so its processes are seen.
    assert!(results[0]["cpu_us_per_op"].as_f64().is_some() && results[0]["client_cpu_us_per_op"].is_number());
    server.create_table(0).unwrap();
    let complaint = |target: &str| {
        let output = asked(target, &["--steps", "l.i0"]);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(complaint(&url("lab")).contains("DROP TABLE pi1"));
    assert_eq!(server.session().unwrap().min_key(0).unwrap(), None, "somebody's table is still there");
    assert!(complaint(&url("nowhere")).contains("CREATE DATABASE"));
    let crash = ["run", "tpcc", "--target", &url("lab"), "--warehouses", "1", "--steps", "run,crash"];
    let output = run(room_in(dir.path()).path(), &crash);
    assert!(output.status.code() == Some(2) && String::from_utf8_lossy(&output.stderr).contains("after a crash"));
    server.close().unwrap();
}

fn room_in(dir: &Path) -> tempfile::TempDir {
    tempfile::tempdir_in(dir).unwrap()
}

/// Another version than the pinned one, and another product.
#[test]
fn the_workloads_on_mysql() {
    if !is_wanted("TREFOIL_MYSQL") {
        return;
    }
    let target = "server:mysql?version=9.7&engine=innodb";
    let dir = room();
    let mut arguments =
        vec!["run", "ibench", "--target", target, "--target", "model", "--rows", "3k", "--clients", "2"];
    arguments.extend(["--seconds", "1", "--settle-seconds", "0", "--steps", "l.i0,l.x,l.i1,settle,qr100"]);
    arguments.extend(["--budget", "64m", "--format", "json"]);
    for result in results(&run(dir.path(), &arguments)) {
        assert!(result["invariants"] == "ok", "{result}");
    }
    tpcc_on(&[target], "2");
}

/// The oldest there is: it knows no parts of a second, and tells the length of its history in a report alone. It is fetched: with
/// TREFOIL_VERSIONS only.
#[test]
fn tpcc_on_an_old_server() {
    if is_wanted("TREFOIL_VERSIONS") {
        tpcc_on(&["server:mysql?version=5.5&engine=innodb"], "2");
    }
}
