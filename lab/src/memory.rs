//! `--memory-limit`: a control group of this process's own, so that engine, driver and the page cache of their files
//! together have no more memory than that.
//!
//! 1. The group this process is in is found: first version (a `memory` hierarchy of its own) or second (one hierarchy).
//! 2. A group below it is made, its limit set and read back, swapping turned off where that can be said.
//! 3. The process moves in; what it allocates, and what it makes the kernel cache, counts from there on.
//! 4. At the end it moves back and the group is removed.
//!
//! What is not permitted is refused with its reason, before anything is measured. Nothing of other groups is changed,
//! except in the second version that the group above must hand the memory controller down.

use std::fs;
use std::path::{Path, PathBuf};

use crate::outcome::Failure;

/// Name of a group, before the number of its process.
const GROUP: &str = "lab-";

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
    fn find(mounts: &str, groups: &str) -> Result<Hierarchy, String> {
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
        let has_memory = |list: &str| list.split(',').any(|word| word == "memory");
        let is_second = own(&has_memory).is_none();
        let path = if is_second { own(&str::is_empty) } else { own(&has_memory) };
        let path = path.ok_or("this kernel has no control groups")?;
        let mount = mounted(&|kind, options| match is_second {
            true => kind == "cgroup2",
            false => kind == "cgroup" && has_memory(options),
        });
        let (root, point) = mount.ok_or("the control groups of memory are not mounted")?;
        // In a container the mount may begin below the root of the hierarchy.
        let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(&path);
        Ok(Hierarchy { group: point.join(below.trim_start_matches('/')), is_second })
    }
}

/// This process in a group of its own; dropped, it is where it was before.
#[derive(Debug)]
pub struct MemoryGroup {
    parent: PathBuf,
    group: PathBuf,
    is_second: bool,
    /// The limit as it was read back.
    pub limit_bytes: u64,
}

impl MemoryGroup {
    /// Moves this process into a group with a limit.
    pub fn enter(limit_bytes: u64) -> Result<MemoryGroup, Failure> {
        let refused = |why: String| Failure::Usage(format!("unsupported: --memory-limit is not possible here: {why}"));
        let text = |path: &str| fs::read_to_string(path).map_err(|error| refused(format!("{path}: {error}")));
        let (mounts, groups) = (text("/proc/self/mountinfo")?, text("/proc/self/cgroup")?);
        let hierarchy = Hierarchy::find(&mounts, &groups).map_err(refused)?;
        MemoryGroup::below(&hierarchy, limit_bytes).map_err(refused)
    }

    fn below(hierarchy: &Hierarchy, limit_bytes: u64) -> Result<MemoryGroup, String> {
        let parent = hierarchy.group.clone();
        if hierarchy.is_second {
            let given = fs::read_to_string(parent.join("cgroup.controllers")).unwrap_or_default();
            if !given.split_whitespace().any(|name| name == "memory") {
                return Err(format!("{} was not given the memory controller", parent.display()));
            }
        }
        remove_left_over(&parent);
        let group = parent.join(format!("{GROUP}{}", std::process::id()));
        fs::create_dir(&group).map_err(|error| format!("cannot make {}: {error}", group.display()))?;
        let mut made = MemoryGroup { parent, group, is_second: hierarchy.is_second, limit_bytes };
        made.set(limit_bytes)?;
        Ok(made)
    }

    fn set(&mut self, limit_bytes: u64) -> Result<(), String> {
        let (limit, swap) = match self.is_second {
            true => ("memory.max", ("memory.swap.max", "0".to_owned())),
            false => ("memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", limit_bytes.to_string())),
        };
        let own = std::process::id().to_string();
        if self.is_second {
            // A group that hands controllers down holds no process itself.
            write(&self.group.join("cgroup.procs"), &own)?;
            write(&self.parent.join("cgroup.subtree_control"), "+memory")?;
        }
        write(&self.group.join(limit), &limit_bytes.to_string())?;
        // Not every kernel counts swapping.
        let _ = write(&self.group.join(swap.0), &swap.1);
        if !self.is_second {
            write(&self.group.join("cgroup.procs"), &own)?;
        }
        let in_force = number(&self.group.join(limit)).ok_or("the limit cannot be read back")?;
        // The kernel rounds to pages.
        if in_force.abs_diff(limit_bytes) > 65_536 {
            return Err(format!("{limit_bytes} bytes were set, {in_force} are in force"));
        }
        self.limit_bytes = in_force;
        Ok(())
    }

    /// The most that was used, as far as the kernel tells.
    pub fn peak_bytes(&self) -> Option<u64> {
        number(&self.group.join(if self.is_second { "memory.peak" } else { "memory.max_usage_in_bytes" }))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = write(&self.parent.join("cgroup.procs"), &std::process::id().to_string());
        let _ = fs::remove_dir(&self.group);
    }
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
        let first = Hierarchy::find(mounts, "4:memory:/user/a\n1:cpu:/\n0::/b\n").unwrap();
        assert_eq!(first, Hierarchy { group: "/sys/fs/cgroup/memory/user/a".into(), is_second: false });
        let second =
            Hierarchy::find("33 27 0:29 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/box/b\n").unwrap();
        assert_eq!(second, Hierarchy { group: "/sys/fs/cgroup/b".into(), is_second: true });
        assert!(Hierarchy::find("", "4:memory:/a\n").unwrap_err().contains("not mounted"));
        assert!(Hierarchy::find(mounts, "").unwrap_err().contains("no control groups"));
    }

    #[test]
    fn a_group_that_may_not_be_made_is_refused_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("absent");
        let why = MemoryGroup::below(&Hierarchy { group, is_second: false }, 1 << 20).unwrap_err();
        assert!(why.contains("cannot make"), "{why}");
        // The group of a process that is gone is removed on the way, that of another is not.
        let (left, own) = (dir.path().join("lab-999999999"), dir.path().join("lab-1"));
        fs::create_dir(&left).unwrap();
        fs::create_dir(&own).unwrap();
        remove_left_over(dir.path());
        assert!(!left.exists() && own.exists());
        let group = dir.path().to_path_buf();
        fs::write(group.join("cgroup.controllers"), "cpu pids\n").unwrap();
        let why = MemoryGroup::below(&Hierarchy { group, is_second: true }, 1 << 20).unwrap_err();
        assert!(why.contains("was not given the memory controller"), "{why}");
    }
}
