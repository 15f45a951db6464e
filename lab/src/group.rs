//! `--memory-limit` and, for engines that reach the disk by themselves, `--disk-limit`: control groups of this process's
//! own. Engine, driver and the page cache of their files together have no more memory than that, and no faster disk.
//!
//! 1. The group this process is in is found: first version (a hierarchy for each controller) or second (one hierarchy).
//! 2. A group below it is made, its limits set and read back, swapping turned off where that can be said.
//! 3. The process moves in; what it allocates, what it makes the kernel cache, and what it reads and writes counts from
//!    there on. The first version does not see what the kernel writes back from the page cache by itself.
//! 4. At the end it moves back and the group is removed.
//!
//! What is not permitted is refused with its reason, before anything is measured. Nothing of other groups is changed,
//! except in the second version that the group above must hand the controller down. There the two limits exclude each
//! other: a process is in one group.

use std::fs;
use std::path::{Path, PathBuf};

use lab_measure::disk::Mount;
use lab_target::DiskLimits;

use crate::outcome::Failure;

/// Name of a group, before the number of its process.
const GROUP: &str = "lab-";

/// What a group limits: its name in the first version and in the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Controller(&'static str, &'static str);

const MEMORY: Controller = Controller("memory", "memory");
const DISK: Controller = Controller("blkio", "io");

/// Where the group of this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    /// The group this process is in.
    group: PathBuf,
    /// Whether it is the second version.
    is_second: bool,
}

impl Hierarchy {
    /// Finds it in `/proc/self/mountinfo` and `/proc/self/cgroup`.
    fn find(mounts: &str, groups: &str, controller: Controller) -> Result<Hierarchy, String> {
        let own = |wanted: &dyn Fn(&str) -> bool| {
            groups.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let (controllers, path) = (parts.next()?, parts.next()?);
                wanted(controllers).then(|| path.to_owned())
            })
        };
        let mounted = |is_it: &dyn Fn(&str, &str) -> bool| {
            mounts.lines().find_map(|line| {
                let (left, right) = line.split_once(" - ")?;
                let mut words = right.split(' ');
                let (kind, options) = (words.next()?, words.nth(1)?);
                let mut fields = left.split(' ').skip(3);
                let (root, point) = (fields.next()?, fields.next()?);
                is_it(kind, options).then(|| (root.to_owned(), PathBuf::from(point)))
            })
        };
        let is_listed = |list: &str| list.split(',').any(|word| word == controller.0);
        let is_second = own(&is_listed).is_none();
        let path = if is_second { own(&str::is_empty) } else { own(&is_listed) };
        let path = path.ok_or("this kernel has no control groups")?;
        let mount = mounted(&|kind, options| match is_second {
            true => kind == "cgroup2",
            false => kind == "cgroup" && is_listed(options),
        });
        let (root, point) = mount.ok_or_else(|| format!("the control groups of {} are not mounted", controller.0))?;
        // In a container the mount may begin below the root of the hierarchy.
        let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(&path);
        Ok(Hierarchy { group: point.join(below.trim_start_matches('/')), is_second })
    }
}

/// This process in a group of its own; dropped, it is where it was before.
#[derive(Debug)]
struct Group {
    parent: PathBuf,
    path: PathBuf,
    is_second: bool,
}

impl Group {
    fn own(controller: Controller) -> Result<Group, String> {
        let text = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let hierarchy = Hierarchy::find(&text("/proc/self/mountinfo")?, &text("/proc/self/cgroup")?, controller)?;
        Group::below(&hierarchy, controller)
    }

    /// Makes the group. In the second version the process is in it from here on, since a group that hands controllers
    /// down holds no process itself.
    fn below(hierarchy: &Hierarchy, controller: Controller) -> Result<Group, String> {
        let (parent, is_second) = (hierarchy.group.clone(), hierarchy.is_second);
        if is_second {
            let given = fs::read_to_string(parent.join("cgroup.controllers")).unwrap_or_default();
            if !given.split_whitespace().any(|name| name == controller.1) {
                return Err(format!("{} was not given the {} controller", parent.display(), controller.1));
            }
        }
        remove_left_over(&parent);
        let path = parent.join(format!("{GROUP}{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        let group = Group { parent, path, is_second };
        if is_second {
            group.enter()?;
            write(&group.parent.join("cgroup.subtree_control"), &format!("+{}", controller.1))?;
        }
        Ok(group)
    }

    fn enter(&self) -> Result<(), String> {
        write(&self.path.join("cgroup.procs"), &std::process::id().to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = write(&self.parent.join("cgroup.procs"), &std::process::id().to_string());
        let _ = fs::remove_dir(&self.path);
    }
}

/// Less memory.
#[derive(Debug)]
pub struct MemoryGroup {
    group: Group,
    /// The limit as it was read back.
    pub limit_bytes: u64,
}

impl MemoryGroup {
    /// Moves this process into a group with a limit.
    pub fn enter(limit_bytes: u64) -> Result<MemoryGroup, Failure> {
        MemoryGroup::made(limit_bytes).map_err(|why| refused("--memory-limit", &why))
    }

    fn made(limit_bytes: u64) -> Result<MemoryGroup, String> {
        let group = Group::own(MEMORY)?;
        let (limit, swap) = match group.is_second {
            true => ("memory.max", ("memory.swap.max", "0".to_owned())),
            false => ("memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", limit_bytes.to_string())),
        };
        write(&group.path.join(limit), &limit_bytes.to_string())?;
        // Not every kernel counts swapping.
        let _ = write(&group.path.join(swap.0), &swap.1);
        group.enter()?;
        let in_force = number(&group.path.join(limit)).ok_or("the limit cannot be read back")?;
        // The kernel rounds to pages.
        if in_force.abs_diff(limit_bytes) > 65_536 {
            return Err(format!("{limit_bytes} bytes were set, {in_force} are in force"));
        }
        Ok(MemoryGroup { group, limit_bytes: in_force })
    }

    /// The most that was used, as far as the kernel tells.
    pub fn peak_bytes(&self) -> Option<u64> {
        number(&self.group.path.join(if self.group.is_second { "memory.peak" } else { "memory.max_usage_in_bytes" }))
    }
}

/// A slower disk.
#[derive(Debug)]
pub struct DiskGroup {
    _group: Group,
    /// The limits as they were read back.
    pub in_force: String,
}

impl DiskGroup {
    /// Moves this process into a group in which the device below `dir` has these rates, for reads and for writes each.
    pub fn enter(limits: &DiskLimits, dir: &Path) -> Result<DiskGroup, Failure> {
        DiskGroup::made(limits, dir)
            .map_err(|why| refused("--disk-limit for engines that reach the disk themselves", &why))
    }

    fn made(limits: &DiskLimits, dir: &Path) -> Result<DiskGroup, String> {
        let mount = Mount::of(dir).ok_or("nobody knows what device the directory is on")?;
        let device = whole_disk(&mount.device);
        let group = Group::own(DISK)?;
        let settings = settings(limits, &device, group.is_second);
        for (file, text) in &settings {
            write(&group.path.join(file), text)?;
        }
        group.enter()?;
        let mut in_force = Vec::new();
        for (file, text) in &settings {
            let found = fs::read_to_string(group.path.join(file)).unwrap_or_default();
            let line = found.lines().find(|line| line.starts_with(&format!("{device} "))).unwrap_or("");
            let is_in_force = text.split(' ').skip(1).all(|word| line.split(' ').any(|other| other == word));
            if !is_in_force {
                return Err(format!("{file}: `{text}` was set, `{line}` is in force"));
            }
            in_force.push(format!("{file} {line}"));
        }
        Ok(DiskGroup { _group: group, in_force: in_force.join(", ") })
    }
}

/// Files of a group and what is written to them.
fn settings(limits: &DiskLimits, device: &str, is_second: bool) -> Vec<(&'static str, String)> {
    let (operations, bytes) = (limits.operations_per_second, limits.bytes_per_second);
    if is_second {
        let mut line = device.to_owned();
        for (names, rate) in [(["riops", "wiops"], operations), (["rbps", "wbps"], bytes)] {
            rate.iter().for_each(|rate| names.iter().for_each(|name| line.push_str(&format!(" {name}={rate}"))));
        }
        return vec![("io.max", line)];
    }
    let files = [
        ("blkio.throttle.read_iops_device", operations),
        ("blkio.throttle.write_iops_device", operations),
        ("blkio.throttle.read_bps_device", bytes),
        ("blkio.throttle.write_bps_device", bytes),
    ];
    files.into_iter().filter_map(|(file, rate)| Some((file, format!("{device} {}", rate?)))).collect()
}

/// A partition's rates are those of its disk.
fn whole_disk(device: &str) -> String {
    let here = Path::new("/sys/dev/block").join(device);
    if !here.join("partition").exists() {
        return device.to_owned();
    }
    // The link leads to …/disk/partition.
    let disk = fs::canonicalize(&here).ok().and_then(|path| fs::read_to_string(path.parent()?.join("dev")).ok());
    disk.map_or_else(|| device.to_owned(), |text| text.trim().to_owned())
}

fn refused(what: &str, why: &str) -> Failure {
    Failure::Usage(format!("unsupported: {what} is not possible here: {why}"))
}

/// Groups of runs that were killed: those whose process is gone.
fn remove_left_over(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(GROUP)?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found() {
        let mounts = "31 27 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            32 27 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            33 27 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let find = |mounts: &str, groups: &str| Hierarchy::find(mounts, groups, MEMORY);
        let first = find(mounts, "4:memory:/user/a\n1:cpu:/\n0::/b\n").unwrap();
        assert_eq!(first, Hierarchy { group: "/sys/fs/cgroup/memory/user/a".into(), is_second: false });
        let second = find("33 27 0:29 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/box/b\n").unwrap();
        assert_eq!(second, Hierarchy { group: "/sys/fs/cgroup/b".into(), is_second: true });
        assert!(find("", "4:memory:/a\n").unwrap_err().contains("not mounted"));
        assert!(find(mounts, "").unwrap_err().contains("no control groups"));
    }

    #[test]
    fn a_group_that_may_not_be_made_is_refused_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("absent");
        let why = Group::below(&Hierarchy { group, is_second: false }, MEMORY).unwrap_err();
        assert!(why.contains("cannot make"), "{why}");
        // The group of a process that is gone is removed on the way, that of another is not.
        let (left, own) = (dir.path().join("lab-999999999"), dir.path().join("lab-1"));
        fs::create_dir(&left).unwrap();
        fs::create_dir(&own).unwrap();
        remove_left_over(dir.path());
        assert!(!left.exists() && own.exists());
        let group = dir.path().to_path_buf();
        fs::write(group.join("cgroup.controllers"), "cpu pids\n").unwrap();
        let why = Group::below(&Hierarchy { group, is_second: true }, DISK).unwrap_err();
        assert!(why.contains("was not given the io controller"), "{why}");
    }
    /// Rates that no other test of this process feels.
    #[test]
    fn a_group_of_the_disk_is_in_force_or_refused_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let limits = DiskLimits { operations_per_second: Some(900_000), ..DiskLimits::default() };
        let before = fs::read_to_string("/proc/self/cgroup").unwrap();
        match DiskGroup::enter(&limits, dir.path()) {
            Ok(group) => {
                assert!(group.in_force.contains("900000"), "{group:?}");
                assert!(fs::read_to_string("/proc/self/cgroup").unwrap().contains(GROUP));
            }
            Err(why) => assert!(why.to_string().contains("is not possible here: "), "{why}"),
        }
        assert_eq!(fs::read_to_string("/proc/self/cgroup").unwrap(), before, "it is where it was before");
    }

    #[test]
    fn rates_are_those_of_reads_and_of_writes() {
        let limits = DiskLimits { operations_per_second: Some(500), ..DiskLimits::default() };
        let first = settings(&limits, "8:0", false);
        assert_eq!(first.len(), 2);
        assert_eq!(first[1], ("blkio.throttle.write_iops_device", "8:0 500".to_owned()));
        let both = DiskLimits { bytes_per_second: Some(9), ..limits };
        let line = "8:0 riops=500 wiops=500 rbps=9 wbps=9".to_owned();
        assert_eq!(settings(&both, "8:0", true), [("io.max", line)]);
        assert_eq!(settings(&both, "8:0", false).len(), 4);
    }
}
