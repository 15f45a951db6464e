//! Limits of a run from outside: a slower disk, a smaller disk, less memory.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn lab(dir: &Path, arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lab")).args(arguments.split(' ')).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_slow_disk_is_slow_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let run = "run ibench --target trefoil --rows 5k --steps l.i0 --durability sync --quiet --format json --out";
    let fast = lab(dir.path(), &format!("{run} fast --drive-rated 600t"));
    let slow = lab(dir.path(), &format!("{run} slow --disk-limit iops=2000,latency=10ms"));
    let secs = |output: &Output| -> f64 {
        let results: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
        results[0]["secs"].as_f64().unwrap()
    };
    // 50 commits, each a write and a sync of at least 10 ms.
    assert!(secs(&slow) >= 1.0 && secs(&slow) > 2.0 * secs(&fast), "{} and {}", secs(&slow), secs(&fast));
    // Years of a life are known where the drive's is.
    let results = |output: &Output| -> Value { serde_json::from_slice(&output.stdout).unwrap() };
    assert!(results(&fast)[0]["drive_life_years"].as_f64().unwrap() > 0.0);
    assert!(results(&slow)[0].get("drive_life_years").is_none());
    let record = json(&dir.path().join("slow/run.json"));
    assert_eq!(record["described"][0]["settings"]["disk"], "iops=2000,latency=10000us");
    let step = json(&dir.path().join("slow/steps/t01-c01-r01-00-li0.json"));
    assert!(step["counters_after"]["disk_limit.waits"].as_u64().unwrap() >= 100, "{step}");
    // Others do not have that file layer: nothing is made.
    let peer = lab(dir.path(), "run ibench --target redb --rows 1k --disk-limit latency=1ms --out peer");
    assert_eq!(peer.status.code(), Some(2));
    assert!(!dir.path().join("peer").exists());
}

#[test]
fn a_small_disk_is_full_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let run = "run ibench --target trefoil:log_capacity=16m --rows 20m --steps l.i0 --quiet --max-seconds 120 --out full --budget 32m --disk-size 160m";
    let output = lab(dir.path(), run);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.to_lowercase().contains("full") || stderr.contains("space"), "{stderr}");
    assert_eq!(json(&dir.path().join("full/run.json"))["state"], "failed");
}

#[test]
fn a_memory_limit_is_in_force_or_refused_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let run = "run ibench --target trefoil --rows 20k --steps l.i0 --memory-limit 256m --out run";
    let output = lab(dir.path(), run);
    let stderr = text(&output.stderr);
    if output.status.code() == Some(2) {
        assert!(stderr.contains("--memory-limit is not possible here: "), "{stderr}");
        assert!(!dir.path().join("run").exists());
        let _ = writeln!(std::io::stderr(), "skipped: a memory limit, run where control groups may be made");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let record = json(&dir.path().join("run/run.json"));
    assert_eq!(record["setup"]["memory_limit_bytes"].as_u64(), Some(256 << 20));
    assert_eq!(record["setup"]["budget_bytes"].as_u64(), Some(192 << 20), "room is left for the driver");
    // The machine's fingerprint reads it where the kernel keeps it.
    assert_eq!(record["environment"]["memory_limit_bytes"].as_u64(), Some(256 << 20));
    assert!(stderr.contains("MiB of 256 MiB were used"), "{stderr}");
}

/// Peers reach the disk by themselves: a control group slows them, and Trefoil beside them by the same.
#[cfg(feature = "redb")]
#[test]
fn a_slow_disk_of_a_peer_is_a_control_group() {
    let dir = tempfile::tempdir().unwrap();
    let run =
        "run ibench --target redb --target trefoil --rows 5k --steps l.i0 --durability sync --quiet --format json";
    let fast = lab(dir.path(), &format!("{run} --out fast"));
    let slow = lab(dir.path(), &format!("{run} --out slow --disk-limit iops=50"));
    if slow.status.code() == Some(2) {
        assert!(text(&slow.stderr).contains("is not possible here: "), "{}", text(&slow.stderr));
        assert!(!dir.path().join("slow").exists());
        let _ = writeln!(std::io::stderr(), "skipped: a slower disk, run where control groups may be made");
        return;
    }
    let secs = |output: &Output, target: usize| -> f64 {
        let results: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
        results[target]["secs"].as_f64().unwrap()
    };
    for target in [0, 1] {
        let (fast, slow) = (secs(&fast, target), secs(&slow, target));
        // 50 commits of at least one write each.
        assert!(slow >= 0.9 && slow > 2.0 * fast, "{fast} s, {slow} s in the group");
    }
    let record = json(&dir.path().join("slow/run.json"));
    assert!(record["setup"]["disk_group"].as_str().unwrap().contains("50"), "{record}");
    assert_eq!(record["described"][1]["settings"]["disk"], "the machine's");
}
