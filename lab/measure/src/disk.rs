//! Which device and file system hold a path, and the device's line in `/proc/diskstats`.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// `/proc/diskstats` counts in sectors of this size whatever the device's own is.
const SECTOR_BYTES: u64 = 512;

/// Where a path lives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Where the file system is mounted.
    pub point: PathBuf,
    /// Its type.
    pub filesystem: String,
    /// Its options.
    pub options: String,
    /// What is mounted there.
    pub source: String,
    /// `major:minor` of the device.
    pub device: String,
}

impl Mount {
    /// The mount that holds `path`.
    #[must_use]
    pub fn of(path: &Path) -> Option<Mount> {
        let path = nearest_existing(path)?;
        Mount::parse(&fs::read_to_string("/proc/self/mountinfo").ok()?, &path)
    }

    fn parse(mountinfo: &str, path: &Path) -> Option<Mount> {
        let mut best: Option<Mount> = None;
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let left: Vec<&str> = left.split(' ').collect();
            let right: Vec<&str> = right.split(' ').collect();
            let (Some(device), Some(point), Some(options)) = (left.get(2), left.get(4), left.get(5)) else { continue };
            let point = PathBuf::from(unescaped(point));
            // Later lines cover earlier ones at the same point.
            let deeper = best.as_ref().is_none_or(|best| point.components().count() >= best.point.components().count());
            if path.starts_with(&point) && deeper {
                best = Some(Mount {
                    point,
                    filesystem: right.first().unwrap_or(&"").to_string(),
                    options: options.to_string(),
                    source: right.get(1).unwrap_or(&"").to_string(),
                    device: device.to_string(),
                });
            }
        }
        best
    }
}

fn nearest_existing(path: &Path) -> Option<PathBuf> {
    let absolute = if path.is_absolute() { path.to_path_buf() } else { std::env::current_dir().ok()?.join(path) };
    absolute.ancestors().find_map(|ancestor| ancestor.canonicalize().ok())
}

/// `mountinfo` writes blanks and backslashes as octal.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// A device's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Merges and times.
    #[serde(default)]
    pub queue: DiskQueue,
}

/// What a device's line has beside numbers of requests and bytes: what became of requests on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskQueue {
    /// Reads that were merged with others before the device got them.
    pub read_merges: u64,
    /// Writes that were merged.
    pub write_merges: u64,
    /// Milliseconds that reads took, waiting included, all of them added.
    pub read_ms: u64,
    /// The same of writes.
    pub write_ms: u64,
    /// Milliseconds with a request under way.
    pub busy_ms: u64,
    /// Milliseconds, each times the requests that were under way or waiting in it.
    pub weighted_ms: u64,
}

impl DiskQueue {
    /// What came since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &DiskQueue) -> DiskQueue {
        self.with(earlier, u64::saturating_sub)
    }

    /// This and what came in a later span.
    #[must_use]
    pub fn plus(&self, more: &DiskQueue) -> DiskQueue {
        self.with(more, |left, right| left + right)
    }

    fn with(&self, other: &DiskQueue, of: impl Fn(u64, u64) -> u64) -> DiskQueue {
        DiskQueue {
            read_merges: of(self.read_merges, other.read_merges),
            write_merges: of(self.write_merges, other.write_merges),
            read_ms: of(self.read_ms, other.read_ms),
            write_ms: of(self.write_ms, other.write_ms),
            busy_ms: of(self.busy_ms, other.busy_ms),
            weighted_ms: of(self.weighted_ms, other.weighted_ms),
        }
    }
}

impl Disk {
    /// Reads the counters of the device `major:minor`; `None` for file systems without a device (tmpfs, overlay).
    #[must_use]
    pub fn read(device: &str) -> Option<Disk> {
        Disk::parse(&fs::read_to_string("/proc/diskstats").ok()?, device)
    }

    fn parse(diskstats: &str, device: &str) -> Option<Disk> {
        for line in diskstats.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.len() < 14 || format!("{}:{}", words[0], words[1]) != device {
                continue;
            }
            let number = |field: usize| words[field].parse::<u64>().ok();
            return Some(Disk {
                reads: number(3)?,
                read_bytes: number(5)? * SECTOR_BYTES,
                writes: number(7)?,
                write_bytes: number(9)? * SECTOR_BYTES,
                queue: DiskQueue {
                    read_merges: number(4)?,
                    write_merges: number(8)?,
                    read_ms: number(6)?,
                    write_ms: number(10)?,
                    busy_ms: number(12)?,
                    weighted_ms: number(13)?,
                },
            });
        }
        None
    }
}

/// Bytes that the files under a directory occupy on the device (what `du` counts).
#[must_use]
pub fn occupied_bytes(dir: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    for entry in fs::read_dir(dir).ok()?.flatten() {
        // A file may vanish between the listing and the look: it then occupies nothing.
        let Ok(meta) = entry.metadata() else { continue };
        sum += if meta.is_dir() { occupied_bytes(&entry.path()).unwrap_or(0) } else { meta.blocks() * SECTOR_BYTES };
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        30 27 0:27 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=1k\n\
        31 27 254:16 / /data\\040disk rw,noatime - xfs /dev/vdb rw\n";

    #[test]
    fn the_deepest_mount_wins() {
        assert_eq!(Mount::parse(MOUNTS, Path::new("/srv/x")).unwrap().device, "254:0");
        let mount = Mount::parse(MOUNTS, Path::new("/data disk/run")).unwrap();
        assert_eq!((mount.device.as_str(), mount.filesystem.as_str()), ("254:16", "xfs"));
        assert_eq!(Mount::parse(MOUNTS, Path::new("/dev/shm/a")).unwrap().filesystem, "tmpfs");
    }

    #[test]
    fn sectors_become_bytes() {
        let text = " 254 0 vda 30099 6703 5262066 13926 6316 11352 1092504 3418 0 5684 \
            17344\n 7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n";
        let disk = Disk::parse(text, "254:0").unwrap();
        assert_eq!((disk.reads, disk.writes), (30_099, 6_316));
        assert_eq!((disk.read_bytes, disk.write_bytes), (5_262_066 * 512, 1_092_504 * 512));
        let queue = DiskQueue {
            read_merges: 6_703,
            write_merges: 11_352,
            read_ms: 13_926,
            write_ms: 3_418,
            busy_ms: 5_684,
            weighted_ms: 17_344,
        };
        assert_eq!(disk.queue, queue);
        assert_eq!(queue.plus(&queue).since(&queue), queue);
        assert_eq!(Disk::parse(text, "0:27"), None);
    }
}
