//! What goes wrong with a server: one line that names it and the remedy, a code, what was finished is kept, and the run goes on
//! when the cause is gone.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{INNODB, is_wanted, lab, room, run, servers_are_wanted};

const MYSQL: &str = "server:mysql?version=9.7&engine=innodb";
const POSTGRES: &str = "server:postgres";

/// A run of the insert benchmark in whose third step something happens.
struct Long {
    child: Child,
    began: Instant,
    data: PathBuf,
    out: PathBuf,
}

impl Long {
    /// In its third step when this returns.
    fn begin(dir: &Path, target: &str, steps: &str, arguments: &[&str]) -> Long {
        let (data, out) = (dir.join("db"), dir.join("run"));
        std::fs::create_dir_all(&data).unwrap();
        let mut command = lab(&["run", "ibench", "--target", target, "--rows", "2k", "--steps", steps, "--quiet"]);
        command.args(["--settle-seconds", "0"]).args(arguments);
        command.arg("--dir").arg(&data).arg("--out").arg(&out);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut long = Long { child, began: Instant::now(), data, out };
        while long.finished() < 2 {
            if long.child.try_wait().unwrap().is_some() {
                panic!("{}", long.complaint());
            }
            long.pause();
        }
        long
    }

    fn finished(&self) -> usize {
        std::fs::read_dir(self.out.join("steps")).map_or(0, |entries| entries.flatten().count())
    }

    fn pause(&mut self) {
        std::thread::sleep(Duration::from_millis(20));
        if self.began.elapsed() > Duration::from_secs(300) {
            let _ = self.child.kill();
            panic!("{} steps are finished, and it goes on", self.finished());
        }
    }

    /// It fails, and two steps of three are kept. Returns what it says.
    fn complaint(self) -> String {
        let output = self.child.wait_with_output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        let json = |name: &str| serde_json::from_slice::<Value>(&std::fs::read(self.out.join(name)).unwrap()).unwrap();
        assert_eq!(json("run.json")["state"], "failed");
        assert_eq!(json("results.json").as_array().unwrap().len(), 2, "what is finished is kept");
        complaint
    }
}

/// Whatever serves these data is killed in the middle of a step: that is said, and the run goes on to its end.
fn a_server_that_is_killed_is_gone_on_without(target: &str, program: &str) {
    let dir = room();
    let long = Long::begin(dir.path(), target, "l.i0,l.x,l.i1", &["--rows-i1", "100k"]);
    let data = long.data.display().to_string();
    let serves = |process: &u32| {
        let command = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).into_owned();
        command.contains(program) && command.contains(&data)
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let server = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).filter(serves).min().unwrap();
    Command::new("kill").args(["-KILL", &server.to_string()]).status().unwrap();
    let out = long.out.display().to_string();
    let complaint = long.complaint();
    // In the middle of a statement, or of the connections of the next step.
    let says = complaint.contains("the server is gone") || complaint.contains("no server answers");
    assert!(says, "{target}: {complaint}");
    let mut command = lab(&["run", "ibench", "--resume", &out, "--dir", &data, "--quiet", "--format", "json"]);
    let output = command.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{target}: {complaint}");
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of_step = |result: &Value| (result["step"].as_str().unwrap().to_owned(), result["ops"].as_f64().unwrap());
    let results: Vec<_> = results.as_array().unwrap().iter().map(of_step).collect();
    assert_eq!(results.len(), 3, "{target}: {results:?}");
    assert_eq!(results[2], ("l.i1".to_owned(), 100_000.0), "{target}");
}

#[test]
fn a_server_that_is_gone_is_said() {
    if servers_are_wanted() {
        a_server_that_is_killed_is_gone_on_without(INNODB, "mariadbd\0");
    }
}

#[test]
fn mysql_that_is_gone_is_said() {
    if is_wanted("TREFOIL_MYSQL") {
        a_server_that_is_killed_is_gone_on_without(MYSQL, "/mysqld");
    }
}

#[test]
fn postgres_that_is_gone_is_said() {
    if is_wanted("TREFOIL_POSTGRES") {
        a_server_that_is_killed_is_gone_on_without(POSTGRES, "postgres\0-D\0");
    }
}

/// A small file system of its own, if this process may have one; gone with the value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn of(place: &Path) -> Option<SmallDisk> {
        std::fs::create_dir(place).unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=400m", "none"]).arg(place).stderr(Stdio::null());
        let disk = command.status().is_ok_and(|status| status.success()).then(|| SmallDisk(place.to_owned()));
        if disk.is_none() {
            let _ = writeln!(std::io::stderr(), "skipped: a server's full disk, run where file systems may be mounted");
        }
        disk
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// A third step that deletes as much as it inserts, as fast as it can.
const STEADY: &[&str] = &["l.i0,l.x,l.i1", "--rows-i1", "100m"];
/// One that inserts a thousand rows a second and deletes none: a server that purges as fast as rows go needs no room in the other one.
/// Not for InnoDB of MariaDB, which ends itself where a disk fills so slowly.
const GROWING: &[&str] = &["load,scan.pk1,q1000", "--form", "2017", "--seconds", "1000"];

/// The disk fills up behind the second step: that is said with the remedy, and what was finished is kept.
fn a_full_disk_is_said(target: &str, cnf: &str, steps: &[&str]) {
    let dir = room();
    let Some(_disk) = SmallDisk::of(&dir.path().join("db")) else { return };
    let mut target = target.to_owned();
    if !cnf.is_empty() {
        let path = dir.path().join("cnf");
        std::fs::write(&path, cnf).unwrap();
        target = format!("{target}&cnf={}", path.display());
    }
    let arguments = [&steps[1..], &["--budget", "32m", "--io", "buffered"]].concat();
    let mut long = Long::begin(dir.path(), &target, steps[0], &arguments);
    // All that is left but a little, of which the server may take more meanwhile.
    let ballast = std::fs::File::create(long.data.join("ballast")).unwrap();
    let mut filled = 0;
    while long.child.try_wait().unwrap().is_none() {
        let disk = rustix::fs::statvfs(&long.data).unwrap();
        let left = disk.f_bavail * disk.f_frsize;
        if left > 256 << 10
            && rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), filled, left / 2).is_ok()
        {
            filled += left / 2;
        }
        long.pause();
    }
    let complaint = long.complaint();
    assert!(complaint.contains("disk is full: make room") && complaint.contains("--resume"), "{target}: {complaint}");
}

#[test]
fn a_disk_that_is_full_is_said_by_a_server() {
    if servers_are_wanted() {
        a_full_disk_is_said(INNODB, "[mysqld]\ninnodb_log_file_size = 16M\n", STEADY);
    }
}

#[test]
fn a_disk_that_is_full_is_said_by_mysql() {
    if is_wanted("TREFOIL_MYSQL") {
        a_full_disk_is_said(MYSQL, "[mysqld]\ninnodb_redo_log_capacity = 16M\n", GROWING);
    }
}

#[test]
fn a_disk_that_is_full_is_said_by_postgres() {
    if is_wanted("TREFOIL_POSTGRES") {
        a_full_disk_is_said(POSTGRES, "", STEADY);
    }
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
        ("server:postgres?engine=heap", 2, "one engine"),
        ("server:postgres?dir=/nowhere", 1, "/nowhere"),
        ("server:mysql?engine=innodb&version=4.0", 2, "mysql@9.7"),
        ("postgres://me@127.0.0.1:1/test", 1, "let the lab start one"),
        ("postgres://me@127.0.0.1:1", 2, "which"),
    ] {
        let dir = tempfile::tempdir_in(dir.path()).unwrap();
        let output = run(dir.path(), &["run", "ibench", "--target", target, "--rows", "100", "--steps", "l.i0"]);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && complaint.contains(words), "{target}: {complaint}");
        let is_empty_folder = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("db-");
        let left = std::fs::read_dir(dir.path()).unwrap().flatten().find(is_empty_folder);
        assert!(left.is_none(), "{target}: nothing is left of a database that never was: {left:?}");
    }
    for target in ["mysql://root@127.0.0.1:1/test?engine=innodb", "postgres://me@127.0.0.1:1/test"] {
        let output = run(dir.path(), &["run", "ibench", "--target", target, "--memory-limit", "1g"]);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && complaint.contains("runs already"), "{complaint}");
    }
}
