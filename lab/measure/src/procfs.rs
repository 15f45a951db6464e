//! The kernel's own counters, read from `/proc` directly. What cannot be read is `None`, never zero.

use std::fs;

use serde::{Deserialize, Serialize};

/// Clock ticks a second in `/proc` (fixed in the kernel's user interface on every common architecture).
const TICKS_PER_SECOND: f64 = 100.0;
/// The kernel counts block input and output of a process in bytes; status lines in KiB.
const KIB: u64 = 1024;

/// `/proc/stat`: the whole machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Seconds in user mode, nice included, over all processors.
    pub user_secs: f64,
    /// Seconds in the kernel, interrupts included.
    pub system_secs: f64,
    /// Seconds idle.
    pub idle_secs: f64,
    /// Seconds waiting for input or output.
    pub iowait_secs: f64,
    /// Seconds taken by the hypervisor.
    pub steal_secs: f64,
    /// Context switches.
    pub context_switches: u64,
}

impl Host {
    /// Reads the counters.
    #[must_use]
    pub fn read() -> Option<Host> {
        Host::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(text: &str) -> Option<Host> {
        let cpu = text.lines().find(|line| line.starts_with("cpu "))?;
        let ticks: Vec<f64> = cpu.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        let secs = |field: usize| ticks.get(field).copied().unwrap_or(0.0) / TICKS_PER_SECOND;
        let switches = text.lines().find_map(|line| line.strip_prefix("ctxt "))?;
        Some(Host {
            user_secs: secs(0) + secs(1),
            system_secs: secs(2) + secs(5) + secs(6),
            idle_secs: secs(3),
            iowait_secs: secs(4),
            steal_secs: secs(7),
            context_switches: switches.trim().parse().ok()?,
        })
    }

    /// All seconds of all processors.
    #[must_use]
    pub fn total_secs(&self) -> f64 {
        self.user_secs + self.system_secs + self.idle_secs + self.iowait_secs + self.steal_secs
    }
}

/// Where the engine under test runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runs {
    /// In this process, which it shares with the driver.
    #[default]
    Inside,
    /// In the process of this number.
    Beside(u32),
    /// In the process of this number and those that it started, one for each connection.
    Family(u32),
    /// Where this machine's kernel does not see it.
    Elsewhere,
}

impl Runs {
    /// The folder of its process below `/proc`.
    fn folder(self) -> Option<String> {
        match self {
            Runs::Inside => Some("/proc/self".into()),
            Runs::Beside(process) | Runs::Family(process) => Some(format!("/proc/{process}")),
            Runs::Elsewhere => None,
        }
    }

    /// The numbers of all its processes, the first one first.
    #[must_use]
    pub fn processes(self) -> Vec<u32> {
        match self {
            Runs::Inside => vec![std::process::id()],
            Runs::Beside(process) => vec![process],
            Runs::Family(process) => [vec![process], children_of(process)].concat(),
            Runs::Elsewhere => Vec::new(),
        }
    }

    /// The folders of all its processes, the first one first.
    fn folders(self) -> Vec<String> {
        let mut all: Vec<String> = self.folder().into_iter().collect();
        if let Runs::Family(process) = self {
            all.extend(children_of(process).iter().map(|child| format!("/proc/{child}")));
        }
        all
    }
}

/// `stat`, `status` and `io` of a process below `/proc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Seconds in user mode, threads that ended included.
    pub user_secs: f64,
    /// Seconds in the kernel.
    pub system_secs: f64,
    /// Resident memory.
    pub rss_bytes: u64,
    /// Largest resident memory so far.
    pub peak_rss_bytes: u64,
    /// Bytes fetched from storage, if the kernel tells.
    pub read_bytes: Option<u64>,
    /// Bytes sent to storage, if the kernel tells.
    pub write_bytes: Option<u64>,
}

impl Process {
    /// Reads the counters of this process.
    #[must_use]
    pub fn read() -> Option<Process> {
        Process::of(Runs::Inside)
    }

    /// Reads the counters of the engine's process.
    #[must_use]
    pub fn of(engine: Runs) -> Option<Process> {
        let read = |folder: &str, name: &str| fs::read_to_string(format!("{folder}/{name}")).ok();
        let of = |folder: &String| {
            let (stat, status) = (read(folder, "stat")?, read(folder, "status")?);
            let process = Process::parse(&stat, &status, read(folder, "io").as_deref())?;
            Some((process, stat, status))
        };
        let mut folders = engine.folders().into_iter();
        let (mut all, stat, status) = of(&folders.next()?)?;
        if let Runs::Family(_) = engine {
            // The kernel adds what an ended child did to its parent: bytes to the parent's own, time beside it.
            let ended = Process::ended_children(&stat)?;
            (all.user_secs, all.system_secs) = (all.user_secs + ended.0, all.system_secs + ended.1);
            let mut shared = status_number(&status, "RssShmem:").unwrap_or(0) * KIB;
            // One that ends meanwhile is left out; it is the parent's at the next look.
            for (child, _, status) in folders.filter_map(|folder| of(&folder)) {
                all.add(&child, &status, &mut shared);
            }
        }
        Some(all)
    }

    /// Seconds of children that have ended: in user mode and in the kernel.
    fn ended_children(stat: &str) -> Option<(f64, f64)> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let secs = |field: usize| Some(fields.get(field)?.parse::<f64>().ok()? / TICKS_PER_SECOND);
        Some((secs(13)?, secs(14)?))
    }

    /// Adds a child. Of the shared memory, which each that touched a page counts, the largest share counts once.
    fn add(&mut self, child: &Process, status: &str, shared: &mut u64) {
        let own = status_number(status, "RssAnon:").unwrap_or(0) * KIB;
        let of_child = status_number(status, "RssShmem:").unwrap_or(0) * KIB;
        self.rss_bytes += own + of_child.saturating_sub(*shared);
        *shared = of_child.max(*shared);
        self.peak_rss_bytes = self.peak_rss_bytes.max(self.rss_bytes);
        (self.user_secs, self.system_secs) = (self.user_secs + child.user_secs, self.system_secs + child.system_secs);
        let sum = |all: Option<u64>, more: Option<u64>| Some(all? + more?);
        self.read_bytes = sum(self.read_bytes, child.read_bytes);
        self.write_bytes = sum(self.write_bytes, child.write_bytes);
    }

    fn parse(stat: &str, status: &str, io: Option<&str>) -> Option<Process> {
        // The command name may hold blanks and brackets; the fields are counted from the last bracket.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |field: usize| fields.get(field).and_then(|word| word.parse::<f64>().ok());
        Some(Process {
            user_secs: ticks(11)? / TICKS_PER_SECOND,
            system_secs: ticks(12)? / TICKS_PER_SECOND,
            rss_bytes: status_number(status, "VmRSS:")? * KIB,
            peak_rss_bytes: status_number(status, "VmHWM:")? * KIB,
            read_bytes: io.and_then(|io| status_number(io, "read_bytes:")),
            write_bytes: io.and_then(|io| status_number(io, "write_bytes:")),
        })
    }

    /// Seconds of processor time, user and system.
    #[must_use]
    pub fn cpu_secs(&self) -> f64 {
        self.user_secs + self.system_secs
    }
}

fn status_number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn switches_of(status: &str) -> Option<u64> {
    Some(status_number(status, "voluntary_ctxt_switches:")? + status_number(status, "nonvoluntary_ctxt_switches:")?)
}

/// Context switches of the calling thread since it started.
#[must_use]
pub fn thread_switches() -> Option<u64> {
    switches_of(&fs::read_to_string("/proc/thread-self/status").ok()?)
}

/// Processes whose parent is this one.
fn children_of(parent: u32) -> Vec<u32> {
    let is_child = |process: &u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok();
        let parent_of = |stat: String| stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok();
        stat.and_then(parent_of) == Some(parent)
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}

/// Context switches of every living thread of the engine's processes, by thread id.
#[must_use]
pub fn switches_by_thread(engine: Runs) -> Vec<(u64, u64)> {
    let tasks = engine.folders().into_iter().filter_map(|folder| fs::read_dir(format!("{folder}/task")).ok());
    let mut all = Vec::new();
    for task in tasks.flatten().flatten() {
        let id = task.file_name().to_str().and_then(|name| name.parse().ok());
        let count = fs::read_to_string(task.path().join("status")).ok().as_deref().and_then(switches_of);
        if let (Some(id), Some(count)) = (id, count) {
            all.push((id, count));
        }
    }
    all
}

/// The one-minute load average.
#[must_use]
pub fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_line_is_summed_as_vmstat_does() {
        let text = "cpu  100 20 30 400 50 6 7 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\nctxt 12345\n";
        let host = Host::parse(text).unwrap();
        assert!((host.user_secs - 1.2).abs() < 1e-9);
        assert!((host.system_secs - 0.43).abs() < 1e-9);
        assert_eq!(host.context_switches, 12_345);
        assert!((host.total_secs() - 6.21).abs() < 1e-9);
    }

    #[test]
    fn a_command_name_with_brackets_does_not_shift_the_fields() {
        let stat = "42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 100 1000 200";
        let status = "VmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n";
        let process = Process::parse(stat, status, Some("read_bytes: 4096\nwrite_bytes: 8192\n")).unwrap();
        assert!((process.cpu_secs() - 3.0).abs() < 1e-9);
        assert_eq!((process.rss_bytes, process.peak_rss_bytes), (1 << 20, 2 << 20));
        assert_eq!((process.read_bytes, process.write_bytes), (Some(4_096), Some(8_192)));
        assert_eq!(Process::parse(stat, status, None).unwrap().read_bytes, None);
    }

    /// What a family did is what its members did, those that have ended included.
    #[test]
    fn a_family_is_counted_together() {
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut parent = std::process::Command::new("sh");
        // A child that works and ends, then one that works and stays.
        parent.args(["-c", &format!("sh -c '{script}'; echo; sh -c '{script}; echo; read -r line; true'; true")]);
        parent.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut parent = parent.spawn().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(parent.stdout.take().unwrap()));
        let family = Runs::Family(parent.id());
        lines.next().unwrap().unwrap();
        let first = Process::of(family).unwrap().cpu_secs();
        lines.next().unwrap().unwrap();
        let both = Process::of(family).unwrap();
        let alone = Process::of(Runs::Beside(parent.id())).unwrap();
        assert!(first > alone.cpu_secs() && both.cpu_secs() > first, "{first} {both:?} {alone:?}");
        assert!(both.rss_bytes > alone.rss_bytes);
        assert!(switches_by_thread(family).len() > 1);
        drop(parent.stdin.take());
        parent.wait().unwrap();
    }

    #[test]
    fn this_machine_can_be_read() {
        assert!(Host::read().is_some_and(|host| host.total_secs() > 0.0));
        assert!(Process::read().is_some_and(|process| process.rss_bytes > 0));
        assert!(thread_switches().is_some());
        assert!(!switches_by_thread(Runs::Inside).is_empty());
        let own = Runs::Beside(std::process::id());
        assert!(Process::of(own).is_some_and(|process| process.rss_bytes > 0) && !switches_by_thread(own).is_empty());
        assert!(Process::of(Runs::Elsewhere).is_none() && switches_by_thread(Runs::Elsewhere).is_empty());
    }
}
