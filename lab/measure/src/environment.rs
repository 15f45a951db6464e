//! The machine's fingerprint: what a number depends on besides the engine.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::disk::Mount;
use crate::procfs::Process;

const PAGE_BYTES: u64 = 4096;
use crate::procfs::load_average;

/// Where a run took place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Name of the processor.
    pub cpu: String,
    /// Processors this process may use.
    pub cores: u32,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Memory limit of the control group, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Name and release of the kernel.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// Frequency governor of the first processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// The kernel's clock source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_source: Option<String>,
    /// Transparent huge pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<String>,
    /// The file system that holds the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<Mount>,
    /// Bytes that the kernel counts as written by the process when one byte of a large buffered file is changed: 4096, or
    /// more where it caches in larger pieces and counts whole ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_write_bytes: Option<u64>,
    /// Open files allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files_limit: Option<u64>,
    /// Load average when the run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_average: Option<f64>,
    /// Commit the lab and the embedded engine were built from.
    pub commit: String,
    /// Build profile.
    pub build: String,
}

impl Environment {
    /// Reads the fingerprint; `dir` is where the database lives.
    #[must_use]
    pub fn read(dir: &Path, commit: &str) -> Environment {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        Environment {
            cpu: after(&cpuinfo, "model name", ':').unwrap_or_else(|| std::env::consts::ARCH.into()),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            memory_bytes: after(&meminfo, "MemTotal", ':').and_then(|text| kib(&text)).unwrap_or(0),
            memory_limit_bytes: memory_limit(),
            kernel: format!(
                "{} {}",
                line_of("/proc/sys/kernel/ostype").unwrap_or_default(),
                line_of("/proc/sys/kernel/osrelease").unwrap_or_default()
            ),
            system: after(&release, "PRETTY_NAME", '=').unwrap_or_default().trim_matches('"').into(),
            governor: line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            clock_source: line_of("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            huge_pages: line_of("/sys/kernel/mm/transparent_hugepage/enabled").map(|text| chosen(&text)),
            mount: Mount::of(dir),
            counted_write_bytes: counted_write_bytes(dir),
            open_files_limit: open_files_limit(),
            load_average: load_average(),
            commit: commit.into(),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.into(),
        }
    }
}

fn line_of(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn after(text: &str, name: &str, mark: char) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(mark).map(|(_, value)| value.trim().to_owned())
}

fn kib(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// `always [madvise] never` → `madvise`.
fn chosen(text: &str) -> String {
    text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(text, |(word, _)| word).to_owned()
}

/// The tightest limit of the control groups this process is in, as far as their files are where they usually are.
fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut files = vec!["/sys/fs/cgroup/memory.max".to_owned()];
    files.push("/sys/fs/cgroup/memory/memory.limit_in_bytes".to_owned());
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        match (parts.next(), parts.next()) {
            (Some(""), Some(path)) => files.push(format!("/sys/fs/cgroup{path}/memory.max")),
            (Some("memory"), Some(path)) => files.push(format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes")),
            _ => {}
        }
    }
    // The first version of control groups writes "no limit" as a number near 2^63.
    files.iter().filter_map(|file| line_of(file)?.parse().ok()).filter(|limit: &u64| *limit < 1 << 60).min()
}

/// Changes one byte of a file that was written in one piece and synced, and sees what that counted.
fn counted_write_bytes(dir: &Path) -> Option<u64> {
    const PIECE_BYTES: usize = 2 << 20;
    let path = dir.join(format!(".lab-probe-{}", std::process::id()));
    let counted = || {
        let file = fs::OpenOptions::new().create(true).truncate(true).write(true).open(&path).ok()?;
        file.write_all_at(&vec![1; PIECE_BYTES], 0).ok()?;
        file.sync_all().ok()?;
        let before = Process::read()?.write_bytes?;
        file.write_all_at(&[2], 0).ok()?;
        Process::read()?.write_bytes?.checked_sub(before)
    };
    let counted = counted().filter(|bytes| *bytes > 0);
    let _ = fs::remove_file(&path);
    counted
}

/// What a reader has to know where the kernel counts more than it writes.
#[must_use]
pub fn counting_note(environment: &Environment) -> Option<String> {
    let bytes = environment.counted_write_bytes.filter(|bytes| *bytes > PAGE_BYTES)?;
    Some(format!(
        "this kernel counts up to {bytes} bytes for each byte changed in a buffered file: wkb_* and wmb_per_s of engines \
         that sync small buffered writes are too high, written.* and the device's counters are not"
    ))
}

fn open_files_limit() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_fingerprint() {
        let environment = Environment::read(Path::new("/"), "abc");
        assert!(environment.cores >= 1 && environment.memory_bytes > 0);
        assert!(environment.kernel.starts_with("Linux"));
        let large = Environment { counted_write_bytes: Some(2 << 20), ..environment.clone() };
        assert!(counting_note(&large).is_some_and(|note| note.contains("2097152 bytes")));
        assert_eq!(counting_note(&Environment { counted_write_bytes: Some(4096), ..environment.clone() }), None);
        assert!(environment.mount.is_some() && environment.open_files_limit.is_some());
        assert_eq!(chosen("always [madvise] never"), "madvise");
    }
}
