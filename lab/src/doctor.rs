//! `lab doctor`: is this machine fit for measuring? Each line is ok, a note, or a warning with its remedy.

mod machine;

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use lab_measure::environment::Environment;
use lab_measure::procfs::Process;

use crate::outcome::Failure;

/// `O_DIRECT` on the architectures Linux servers run on.
const O_DIRECT: i32 = if cfg!(any(target_arch = "aarch64", target_arch = "arm")) { 0o200_000 } else { 0o40_000 };
/// Open files that a database with many tables needs.
const OPEN_FILES_WANTED: u64 = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ok,
    Note(&'static str),
    Warning(&'static str),
}

/// What was looked at, what was found, what it means.
type Finding = (&'static str, String, Verdict);

/// Prints the findings. Warnings do not fail the command unless that is asked for: a measurement on this machine is still a
/// measurement.
pub fn doctor(dir: &Path, strict: bool) -> Result<(), Failure> {
    if !dir.is_dir() {
        let why = "is no directory: name the one where databases would be made with --dir";
        return Err(Failure::Usage(format!("{} {why}", dir.display())));
    }
    let environment = Environment::read(dir, env!("LAB_COMMIT"));
    let mut warnings = 0;
    for (what, found, verdict) in findings(&environment, dir) {
        let (mark, remedy) = match verdict {
            Verdict::Ok => ("ok  ", ""),
            Verdict::Note(remedy) => ("note", remedy),
            Verdict::Warning(remedy) => {
                warnings += 1;
                ("WARN", remedy)
            }
        };
        let arrow = if remedy.is_empty() { "" } else { " -> " };
        println!("{mark}  {what:<18} {found}{arrow}{remedy}");
    }
    match warnings {
        0 => println!("\nfit for measuring; try: lab run ibench --rows 1m --seconds 10"),
        _ if strict => return Err(Failure::Failed(format!("{warnings} warnings, and --strict was given"))),
        _ => println!("\n{warnings} warnings: numbers will be noisier or slower than this hardware can do"),
    }
    Ok(())
}

fn findings(environment: &Environment, dir: &Path) -> Vec<Finding> {
    let mut all = vec![
        ("build", format!("{} of commit {}", environment.build, environment.commit), build(environment)),
        ("processor", format!("{}, {} usable", environment.cpu, environment.cores), cores(environment)),
        ("memory", format!("{} MiB", environment.memory_bytes >> 20), memory(environment)),
        ("kernel", environment.kernel.clone(), Verdict::Ok),
    ];
    if let Some(load) = environment.load_average {
        let busy = load > f64::from(environment.cores) * 0.25;
        let verdict =
            if busy { Verdict::Warning("other programs are running; wait until they are done") } else { Verdict::Ok };
        all.push(("load", format!("{load:.2}"), verdict));
    }
    all.push(match environment.governor.as_deref() {
        Some("performance") => ("governor", "performance".into(), Verdict::Ok),
        Some(other) => ("governor", other.into(), Verdict::Warning("cpupower frequency-set -g performance")),
        None => ("governor", "not visible".into(), Verdict::Note("a virtual machine: the host decides")),
    });
    all.push(match environment.clock_source.as_deref() {
        Some(source @ ("tsc" | "kvm-clock" | "arch_sys_counter")) => ("clock", source.into(), Verdict::Ok),
        Some(other) => ("clock", other.into(), Verdict::Warning("a slow clock source adds to every response time")),
        None => ("clock", "not visible".into(), Verdict::Ok),
    });
    all.push(match environment.open_files_limit {
        Some(limit) if limit < OPEN_FILES_WANTED => {
            ("open files", limit.to_string(), Verdict::Warning("ulimit -n 65536"))
        }
        Some(limit) => ("open files", limit.to_string(), Verdict::Ok),
        None => ("open files", "not visible".into(), Verdict::Ok),
    });
    all.extend(machine::findings(dir, environment.cores, environment.huge_pages.as_deref()));
    all.push(storage(environment));
    all.push(direct_io(dir));
    all.push(kernel_counters());
    all.push(match environment.counted_write_bytes {
        Some(bytes) if bytes > 4096 => (
            "write counting",
            format!("{bytes} bytes for one changed"),
            Verdict::Note("wkb_* of small synced writes are too high"),
        ),
        Some(bytes) => ("write counting", format!("{bytes} bytes for one changed"), Verdict::Ok),
        None => {
            ("write counting", "nothing is counted here".into(), Verdict::Note("bytes an operation will be missing"))
        }
    });
    all.push(match browser() {
        Some(path) => ("browser", path, Verdict::Ok),
        None => ("browser", "none".into(), Verdict::Note("apt-get install chromium, to test reports")),
    });
    all
}

fn build(environment: &Environment) -> Verdict {
    if environment.build == "release" { Verdict::Ok } else { Verdict::Warning("cargo run --release -p lab") }
}

fn cores(environment: &Environment) -> Verdict {
    if environment.cores > 1 { Verdict::Ok } else { Verdict::Warning("one processor for driver and engine together") }
}

fn memory(environment: &Environment) -> Verdict {
    match environment.memory_limit_bytes {
        Some(limit) if limit < 1 << 30 => Verdict::Warning("the control group allows less than 1 GiB: set --budget"),
        Some(_) => Verdict::Note("limited by a control group"),
        None => Verdict::Ok,
    }
}

fn storage(environment: &Environment) -> Finding {
    let Some(mount) = &environment.mount else {
        return ("file system", "not visible".into(), Verdict::Warning("device counters will be missing"));
    };
    let found = format!("{} at {} ({})", mount.filesystem, mount.point.display(), mount.source);
    let has_device = lab_measure::disk::Disk::read(&mount.device).is_some();
    let verdict = match mount.filesystem.as_str() {
        "tmpfs" | "ramfs" => Verdict::Note("in memory: writes cost nothing and do not survive"),
        "overlay" => Verdict::Warning("use --dir on a real file system: device counters will be missing"),
        _ if !has_device => Verdict::Note("no line in /proc/diskstats: device counters will be missing"),
        _ => Verdict::Ok,
    };
    ("file system", found, verdict)
}

fn direct_io(dir: &Path) -> Finding {
    let path = dir.join(format!(".lab-doctor-{}", std::process::id()));
    let opened = fs::OpenOptions::new().create(true).truncate(true).write(true).custom_flags(O_DIRECT).open(&path);
    let _ = fs::remove_file(&path);
    match opened {
        Ok(_) => ("direct i/o", "works".into(), Verdict::Ok),
        Err(error) => ("direct i/o", error.to_string(), Verdict::Note("engines fall back to the page cache here")),
    }
}

fn kernel_counters() -> Finding {
    match Process::read().and_then(|process| process.write_bytes) {
        Some(_) => ("process i/o", "counted".into(), Verdict::Ok),
        None => ("process i/o", "not counted".into(), Verdict::Warning("bytes an operation will be missing")),
    }
}

/// A browser that can check a report.
pub fn browser() -> Option<String> {
    ["chromium", "chromium-browser", "google-chrome", "chrome"].into_iter().find_map(|name| {
        let output = Command::new(name).arg("--version").output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    })
}
