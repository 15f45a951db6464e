//! Run folders from outside: `lab verify` finds what contradicts itself, `lab list` is not stopped by a damaged run.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn lab(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lab")).args(arguments).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Changes a JSON file of a copy of the run.
fn changed(dir: &Path, file: &str, change: impl Fn(&mut Value)) {
    let copied = Command::new("cp").args(["-r", "run", "changed"]).current_dir(dir).status().unwrap();
    assert!(copied.success());
    let path = dir.join("changed").join(file);
    let mut value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut value);
    std::fs::write(&path, value.to_string()).unwrap();
}

/// A change of a JSON value.
type Change = fn(&mut Value);

#[test]
fn a_sound_folder_is_sound_and_each_contradiction_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let run = "run ibench --target model --target trefoil --rows 2k --seconds 1 --settle-seconds 0 --repeat 2 --quiet \
               --steps l.i0,l.x,l.i1,settle,qr100 --out run";
    assert!(lab(dir, &run.split_whitespace().collect::<Vec<_>>()).status.success());
    let sound = lab(dir, &["verify", "run"]);
    assert_eq!(sound.status.code(), Some(0), "{}", text(&sound.stdout));
    assert!(text(&sound.stdout).contains("16 steps, 24 results, done: sound"), "{}", text(&sound.stdout));
    let step = "steps/t01-c01-r01-02-li1.json";
    let changes: [(&str, Change, &str); 10] = [
        (step, |step| step["schema"] = "trefoil-lab/0".into(), "schema trefoil-lab/0"),
        (step, |step| step["result"]["step"] = "l.i7".into(), "step l.i7 is none of the plan"),
        (step, |step| step["result"]["target"] = "trefoil".into(), "its name is not that of its target"),
        (step, |step| step["histograms"]["insert"]["statements"] = 3.into(), "3 insert statements"),
        (step, |step| step["series"]["delete"]["counts"] = vec![1].into(), "second by second Some(1)"),
        (step, |step| step["by_client"][0]["delete"]["counts"] = vec![1].into(), "delete of all clients"),
        (step, |step| step["result"]["ips_av"] = 7.into(), "are not 7 rows/s"),
        (step, |step| step["result"]["rows"] = 9.into(), "Some(9.0) rows"),
        (step, |step| step["result"]["checksum"] = "0".into(), "holds other rows"),
        ("results.json", |all| drop(all.as_array_mut().unwrap().remove(0)), "results.json lacks"),
    ];
    for (file, change, words) in changes {
        changed(dir, file, change);
        let output = lab(dir, &["verify", "changed"]);
        assert_eq!(output.status.code(), Some(4), "{words}: {}", text(&output.stdout));
        assert!(text(&output.stdout).contains(words), "{words}: {}", text(&output.stdout));
        std::fs::remove_dir_all(dir.join("changed")).unwrap();
    }
    changed(dir, "results.json", |all| all[23]["ips_av"] = 7.into());
    assert!(text(&lab(dir, &["verify", "changed"]).stdout).contains("the median of"));
    std::fs::remove_dir_all(dir.join("changed")).unwrap();
    changed(dir, "run.json", |run| drop(run["turns_done"].as_array_mut().unwrap().pop()));
    assert!(text(&lab(dir, &["verify", "changed"]).stdout).contains("3 of 4 turns"));
    std::fs::remove_file(dir.join("changed/steps/t02-c01-r01-01-lx.json")).unwrap();
    std::fs::remove_file(dir.join("changed/steps/t02-c01-r02-00-li0.json")).unwrap();
    std::fs::write(dir.join("changed/steps/t02-c01-r02-00-li0.tmp"), "").unwrap();
    let output = lab(dir, &["verify", "changed"]);
    assert!(text(&output.stdout).contains("results.json has no step for"), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("li0.tmp is left over"), "{}", text(&output.stdout));
    // What cannot be read at all is code 1.
    std::fs::write(dir.join("changed").join(step), "{").unwrap();
    assert_eq!(lab(dir, &["verify", "changed"]).status.code(), Some(1));
    assert_eq!(lab(dir, &["verify", "nowhere"]).status.code(), Some(1));
    // And does not hide the others.
    std::fs::write(dir.join("changed/run.json"), "{}").unwrap();
    let list = lab(dir, &["list", "."]);
    assert_eq!((list.status.code(), text(&list.stdout).lines().count()), (Some(0), 1));
    assert!(text(&list.stderr).contains("changed has schema none"), "{}", text(&list.stderr));
}

/// A run that was killed says of itself that it is running; whoever looks sees that nobody writes it, and how it goes on.
#[test]
fn a_killed_run_is_interrupted_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut child = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args("run ibench --target model --rows 100m --steps l.i0 --quiet --out killed".split(' '))
        .current_dir(dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !std::fs::read_to_string(dir.join("killed/log.txt")).unwrap_or_default().contains("step l.i0 begins") {
        assert!(began.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none(), "no step began");
        std::thread::sleep(Duration::from_millis(20));
    }
    let listed = || text(&lab(dir, &["list", "."]).stdout);
    assert!(listed().contains("  running ") && !listed().contains("goes on with"), "{}", listed());
    child.kill().unwrap();
    child.wait().unwrap();
    let told = listed();
    assert!(
        told.contains("  interrupted ") && told.contains("goes on with: lab run ibench --resume ./killed"),
        "{told}"
    );
    assert!(text(&lab(dir, &["show", "killed"]).stdout).contains("(interrupted)"));
}

/// All text files below a folder.
fn all_text(dir: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        match entry.path().is_dir() {
            true => all.push_str(&all_text(&entry.path())),
            false => all.push_str(&String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap())),
        }
    }
    all
}

/// Nobody answers there; what a folder says of the target lacks its password, and whoever goes on has it from elsewhere.
#[test]
fn passwords_are_in_no_file_and_in_no_message() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let target = "mysql://me:s3,cr'et@127.0.0.1:1/test?engine=innodb";
    let run =
        ["run", "ibench", "--rows", "1k", "--steps", "l.i0", "--target", "model", "--target", target, "--out", "run"];
    let output = lab(dir, &run);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let plan = format!(
        "name = \"secret\"\n[[target]]\nname = \"model\"\nuse = \"model\"\n[[target]]\nname = \"far\"\nuse = \"{target}\"\n\
         [[run]]\nname = \"one\"\nworkload = \"ibench\"\nrows = \"1k\"\nsteps = [\"l.i0\"]\n"
    );
    std::fs::write(dir.join("secret.toml"), plan).unwrap();
    let of_plan = lab(dir, &["run", "secret.toml", "--out", "plan"]);
    assert_eq!(of_plan.status.code(), Some(0), "{}", text(&of_plan.stderr));
    let dry = lab(dir, &["run", "secret.toml", "--dry-run"]);
    let said: String = [&output.stdout, &output.stderr, &of_plan.stdout, &of_plan.stderr, &dry.stdout, &dry.stderr]
        .map(|it| text(it))
        .concat();
    for (place, all) in [("messages", said), ("run", all_text(&dir.join("run"))), ("plan", all_text(&dir.join("plan")))]
    {
        assert!(!all.contains("s3,cr") && all.contains("me:***@127.0.0.1:1"), "{place}: {all}");
    }
    for file in ["plan/plan.json", "plan/plan.toml", "plan/report.html", "run/run.json", "run/log.txt"] {
        assert!(dir.join(file).exists(), "{file}");
    }
    let again = |variable: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
        command.args(["run", "ibench", "--resume", "run"]).current_dir(dir).env("HOME", dir).env(variable, "x");
        text(&command.output().unwrap().stderr)
    };
    assert!(again("NOTHING").contains("not kept in run folders"), "{}", again("NOTHING"));
    assert!(again("MYSQL_PWD").contains("no server answers"), "{}", again("MYSQL_PWD"));
    // So has the target, named again.
    let named = lab(dir, &["run", "ibench", "--resume", "run", "--target", "model", "--target", target]);
    assert!(text(&named.stderr).contains("no server answers"), "{}", text(&named.stderr));
    assert!(!text(&named.stderr).contains("s3,cr"), "{}", text(&named.stderr));
    // The plan's file has it still.
    let file = lab(dir, &["run", "secret.toml", "--resume", "plan"]);
    assert!(text(&file.stderr).contains("no server answers"), "{}", text(&file.stderr));
}

/// A mark in a password is no beginning of parameters; the copy of a plan's file lacks passwords however they are written there,
/// and those of targets that no run has.
#[test]
fn passwords_are_hidden_however_they_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let plan = r#"name = "secret"
[[target]]
name = "model"
use = "model"
[[target]]
name = "far"
use = "postgres://me:a?s3cr1@127.0.0.1:1/d?protocol=text"
[[target]]
name = "near"
use = "mysql://me:x?s3cr2@127.0.0.1:1/d?engine=innodb"
[[target]]
name = "escaped"
use = "postgres://me:s3cr3@127.0.0.1:1/d"
[[target]]
name = "unused"
use = "postgres://me:a/'<>&s3cr4@127.0.0.1:1/d"
[[run]]
name = "one"
targets = ["model", "far", "near", "escaped"]
workload = "ibench"
rows = "1k"
steps = ["l.i0"]
"#;
    std::fs::write(dir.join("secret.toml"), plan).unwrap();
    let run = lab(dir, &["run", "secret.toml", "--out", "plan"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let dry = lab(dir, &["run", "secret.toml", "--dry-run"]);
    let said = [&run.stdout, &run.stderr, &dry.stdout, &dry.stderr].map(|it| text(it)).concat();
    for (place, all) in [("messages", said), ("plan", all_text(&dir.join("plan")))] {
        assert!(!all.contains("s3cr") && all.contains("me:***@127.0.0.1:1/d"), "{place}: {all}");
    }
    let copy = std::fs::read_to_string(dir.join("plan/plan.toml")).unwrap();
    assert_eq!(copy.matches("me:***@127.0.0.1:1/d").count(), 4, "{copy}");
    std::fs::write(dir.join("copy.toml"), copy).unwrap();
    let again = lab(dir, &["run", "copy.toml", "--dry-run"]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
}

/// Where nothing can be written, that is said before anything is run, and by which folder.
#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("file"), "").unwrap();
    for arguments in [
        &["run", "ibench", "--target", "model", "--rows", "1k", "--out", "file/run"][..],
        &["run", "ibench", "--target", "model", "--rows", "1k", "--out", "run", "--dir", "file/data"],
    ] {
        let output = lab(dir, arguments);
        let told = text(&output.stderr);
        assert!(output.status.code() == Some(1) && told.contains("cannot make file/"), "{arguments:?}: {told}");
    }
}
