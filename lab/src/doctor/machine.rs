//! What of the machine a measurement feels beside its processor: memory that is free or swapped out, pages, the disk's room,
//! limits of control groups, what the host of a virtual machine takes. Texts of the kernel become findings by functions that
//! are given the text.

use std::fs;
use std::path::Path;

use super::{Finding, Verdict};

const MIB: u64 = 1 << 20;
/// Programs that were swapped out by more than this are waited for.
const SWAPPED_BYTES: u64 = 64 * MIB;
/// A file system with less room than this, or than one part in twenty, is nearly full.
const FREE_BYTES: u64 = 2 << 30;
const FREE_PART: u64 = 20;
/// Percent of the time since the start that the host may have taken.
const STOLEN_PERCENT: f64 = 1.0;

/// All of them, as far as they are visible.
pub fn findings(dir: &Path, cores: u32, huge_pages: Option<&str>) -> Vec<Finding> {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let meminfo = text("/proc/meminfo");
    let swappiness = text("/proc/sys/vm/swappiness").trim().parse().ok();
    let mut all = vec![available(&meminfo), swap(&meminfo, swappiness), pages(huge_pages)];
    all.extend(room(dir));
    all.extend(quota(&text("/proc/self/cgroup"), cores));
    all.extend(stolen(&text("/proc/stat")));
    all
}

fn kib_of(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn available(meminfo: &str) -> Finding {
    let (Some(total), Some(free)) = (kib_of(meminfo, "MemTotal"), kib_of(meminfo, "MemAvailable")) else {
        return ("free memory", "not visible".into(), Verdict::Ok);
    };
    let verdict = match free < total / 4 {
        true => Verdict::Warning("other programs hold most of it: end them, or keep --budget far below what is left"),
        false => Verdict::Ok,
    };
    ("free memory", format!("{} of {} MiB", free / MIB, total / MIB), verdict)
}

fn swap(meminfo: &str, swappiness: Option<u32>) -> Finding {
    let total = kib_of(meminfo, "SwapTotal").unwrap_or(0);
    let used = total.saturating_sub(kib_of(meminfo, "SwapFree").unwrap_or(total));
    let found = if total == 0 { "none".to_owned() } else { format!("{} of {} MiB used", used / MIB, total / MIB) };
    let verdict = match swappiness {
        _ if used > SWAPPED_BYTES => Verdict::Warning("what is swapped out is waited for: swapoff -a && swapon -a"),
        Some(more) if total > 0 && more > 10 => {
            Verdict::Note("memory of an engine may be swapped out: sysctl vm.swappiness=1")
        }
        _ => Verdict::Ok,
    };
    ("swap", found, verdict)
}

fn pages(chosen: Option<&str>) -> Finding {
    const ALWAYS: &str =
        "the kernel stops programs to join pages: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
    match chosen {
        Some("always") => ("huge pages", "always".into(), Verdict::Warning(ALWAYS)),
        Some(other) => ("huge pages", other.into(), Verdict::Ok),
        None => ("huge pages", "not visible".into(), Verdict::Ok),
    }
}

fn room(dir: &Path) -> Option<Finding> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(room_of(stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
}

fn room_of(free: u64, total: u64) -> Finding {
    let verdict = match free < FREE_BYTES || free < total / FREE_PART {
        true => Verdict::Warning(
            "a full disk ends a run, and a nearly full one is slower: free some, or name another --dir",
        ),
        false => Verdict::Ok,
    };
    (
        "free disk",
        format!("{:.1} of {:.1} GiB", free as f64 / 1024.0 / MIB as f64, total as f64 / 1024.0 / MIB as f64),
        verdict,
    )
}

/// The control groups for processor time that a process is in, as `/proc/self/cgroup` names them, with all above them.
fn groups_of(text: &str) -> Vec<String> {
    let mut paths = vec![String::new()];
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        if let (Some(controllers), Some(path)) = (parts.next(), parts.next())
            && (controllers.is_empty() || controllers.split(',').any(|name| name == "cpu"))
        {
            let above = Path::new(path).ancestors().map(|path| path.display().to_string());
            paths.extend(above.filter(|path| path != "/"));
        }
    }
    paths
}

/// Processor time that the control groups allow: of all groups this process is in, the tightest.
fn quota(groups: &str, cores: u32) -> Option<Finding> {
    let mut limits = Vec::new();
    let read = |path: String| fs::read_to_string(path).ok();
    for path in groups_of(groups) {
        limits.extend(read(format!("/sys/fs/cgroup{path}/cpu.max")).and_then(|text| processors(&text)));
        for first in ["cpu", "cpu,cpuacct"] {
            let file = |name: &str| read(format!("/sys/fs/cgroup/{first}{path}/cpu.cfs_{name}_us"));
            let line =
                file("quota").zip(file("period")).map(|(quota, period)| format!("{} {}", quota.trim(), period.trim()));
            limits.extend(line.and_then(|text| processors(&text)));
        }
    }
    limits.into_iter().reduce(f64::min).map(|limit| quota_of(limit, cores))
}

/// `200000 100000` = 2 processors; `max 100000` and `-1 100000` = no limit.
fn processors(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

fn quota_of(limit: f64, cores: u32) -> Finding {
    let verdict = match limit < f64::from(cores) {
        true => {
            Verdict::Warning("a control group stops the run for part of every period: lift its limit of processor time")
        }
        false => Verdict::Ok,
    };
    ("processor limit", format!("{limit:.2} processors"), verdict)
}

/// What the host of a virtual machine took, of all time since the start.
fn stolen(stat: &str) -> Option<Finding> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<f64> = line.split_whitespace().take(8).filter_map(|time| time.parse().ok()).collect();
    let (all, steal): (f64, f64) = (times.iter().sum(), *times.get(7)?);
    let percent = 100.0 * steal / all.max(1.0);
    let verdict = match percent > STOLEN_PERCENT {
        true => {
            Verdict::Warning("the host gives this machine's processors to others: repeat more, or measure elsewhere")
        }
        false => Verdict::Ok,
    };
    Some(("stolen time", format!("{percent:.2} % since the start"), verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(finding: &Finding) -> &'static str {
        match finding.2 {
            Verdict::Ok => "ok",
            Verdict::Note(_) => "note",
            Verdict::Warning(_) => "warning",
        }
    }

    fn memory(available_mib: u64, swap_mib: u64, swap_free_mib: u64) -> String {
        format!(
            "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   {} kB\nSwapTotal: {} kB\nSwapFree: {} kB\n",
            available_mib * 1024,
            swap_mib * 1024,
            swap_free_mib * 1024
        )
    }

    #[test]
    fn memory_is_short_when_others_hold_it_or_it_is_swapped_out() {
        assert_eq!(available(&memory(4_096, 0, 0)), ("free memory", "4096 of 8192 MiB".into(), Verdict::Ok));
        assert_eq!(mark(&available(&memory(1_000, 0, 0))), "warning");
        assert_eq!(swap(&memory(1, 0, 0), Some(60)), ("swap", "none".into(), Verdict::Ok));
        assert_eq!(mark(&swap(&memory(1, 1_000, 1_000), Some(60))), "note");
        assert_eq!(mark(&swap(&memory(1, 1_000, 1_000), Some(1))), "ok");
        assert_eq!(mark(&swap(&memory(1, 1_000, 900), Some(1))), "warning");
        assert_eq!((mark(&pages(Some("always"))), mark(&pages(Some("madvise")))), ("warning", "ok"));
    }

    #[test]
    fn a_nearly_full_disk_is_told_from_one_with_room() {
        let gib = 1u64 << 30;
        assert_eq!(room_of(50 * gib, 100 * gib), ("free disk", "50.0 of 100.0 GiB".into(), Verdict::Ok));
        assert_eq!((mark(&room_of(gib, 10 * gib)), mark(&room_of(40 * gib, 1_000 * gib))), ("warning", "warning"));
    }

    #[test]
    fn a_group_is_limited_by_all_above_it() {
        assert_eq!(groups_of("0::/a/b/c\n"), ["", "/a/b/c", "/a/b", "/a"]);
        assert_eq!(groups_of("4:cpu,cpuacct:/x\n3:memory:/y\n0::/\n"), ["", "/x"]);
    }

    #[test]
    fn limits_and_stolen_time_are_read_as_the_kernel_writes_them() {
        assert_eq!(
            (processors("150000 100000\n"), processors("max 100000"), processors("-1 100000")),
            (Some(1.5), None, None)
        );
        assert_eq!((mark(&quota_of(1.5, 2)), mark(&quota_of(2.0, 2))), ("warning", "ok"));
        let stat = |steal: u32| format!("cpu  100 0 100 {} 0 0 0 {steal} 0 0\ncpu0 1 1 1 1 1 1 1 1\n", 800 - steal);
        let found = stolen(&stat(20)).unwrap();
        assert_eq!((found.1.as_str(), mark(&found)), ("2.00 % since the start", "warning"));
        assert_eq!((mark(&stolen(&stat(2)).unwrap()), stolen("intr 1")), ("ok", None));
    }
}
