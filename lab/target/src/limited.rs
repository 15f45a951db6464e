//! A disk that is slower or smaller than the machine's: a [`Vfs`] that makes its callers wait, or tells them that it is
//! full.
//!
//! 1. The disk has two timelines, one of operations and one of bytes. An operation takes its place at the end of both;
//!    it is done when both have got there, and its latency later. Latencies of several threads overlap, as in a device.
//! 2. A timeline that was idle is at most `CREDIT` behind: a sleep that overslept loses nothing, a pause earns no burst.
//! 3. Reads, writes and syncs count, whether or not the page cache would have served them: what an engine asks is
//!    what is limited. Names, lengths and allocations cost nothing.
//! 4. Size: before a file grows, or space in it is allocated, what all files occupy is known to leave room for it. What
//!    was added since the last look counts in full; only when that would not fit the files are looked at again.
//! 5. Ballast: a disk that is to be so full from its first moment on has something of others on it, which gives way to the files at
//!    most once in `BALLAST_PAUSE`. What is left free is then always the same, and no more than that can be taken at once.
//!
//! One mutex for the timelines and one for the sizes, neither held while anything waits or while the other is taken.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use vfs::{File, FileLock, OpenHow, RealVfs, Vfs};

/// The most that an idle disk may do at once afterwards.
const CREDIT: Duration = Duration::from_millis(10);
/// How long the ballast stays as it is.
const BALLAST_PAUSE: Duration = Duration::from_secs(1);
const MIB: f64 = 1024.0 * 1024.0;

/// What a disk can do; `None` = what the machine's can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskLimits {
    /// Reads, writes and syncs a second.
    pub operations_per_second: Option<u64>,
    /// Bytes read and written a second.
    pub bytes_per_second: Option<u64>,
    /// What each operation takes beside its share of the rates, in microseconds.
    pub latency_us: Option<u64>,
    /// Bytes that all files may occupy.
    pub size_bytes: Option<u64>,
    /// Percent of them that are taken at least, by ballast where not by the files.
    pub full_pct: Option<u64>,
}

impl DiskLimits {
    /// Reads `iops=N,mb=N,latency=Nms`, each of them optional.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<DiskLimits, String> {
        let mut limits = DiskLimits::default();
        for part in text.split(',') {
            let (key, value) =
                part.split_once('=').ok_or_else(|| format!("`{part}` is none of iops=N, mb=N, latency=Nms"))?;
            let number = |digits: &str| digits.parse::<u64>().ok().filter(|number| *number > 0);
            let wrong = || format!("`{part}`: not a whole number above 0");
            match key {
                "iops" => limits.operations_per_second = Some(number(value).ok_or_else(wrong)?),
                "mb" => {
                    limits.bytes_per_second =
                        Some(number(value).and_then(|mib| mib.checked_mul(1 << 20)).ok_or_else(wrong)?)
                }
                "latency" => {
                    let (digits, unit_us) = match (value.strip_suffix("ms"), value.strip_suffix("us")) {
                        (Some(digits), _) => (digits, 1_000),
                        (None, Some(digits)) => (digits, 1),
                        (None, None) => return Err(format!("`{part}` lacks its unit: latency=2ms or latency=150us")),
                    };
                    limits.latency_us = Some(number(digits).and_then(|n| n.checked_mul(unit_us)).ok_or_else(wrong)?);
                }
                _ => return Err(format!("`{key}` is none of iops, mb, latency")),
            }
        }
        Ok(limits)
    }

    /// The same without operations and bytes a second.
    #[must_use]
    pub fn without_rates(&self) -> DiskLimits {
        DiskLimits { operations_per_second: None, bytes_per_second: None, ..*self }
    }

    /// Whether anything is limited.
    #[must_use]
    pub fn is_any(&self) -> bool {
        *self != DiskLimits::default()
    }
}

impl fmt::Display for DiskLimits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.operations_per_second.map(|number| format!("iops={number}")));
        parts.extend(self.bytes_per_second.map(|bytes| format!("mb={}", bytes as f64 / MIB)));
        parts.extend(self.latency_us.map(|us| format!("latency={us}us")));
        parts.extend(self.size_bytes.map(|bytes| format!("size={bytes}")));
        parts.extend(self.full_pct.map(|percent| format!("full={percent}%")));
        formatter.write_str(&parts.join(","))
    }
}

/// When the operations and the bytes taken on so far will be done.
#[derive(Debug)]
struct Timelines {
    operations: Instant,
    bytes: Instant,
}

/// What the files occupied when they were looked at, what was added since, and what others occupy since when.
#[derive(Debug)]
struct Occupied {
    seen: u64,
    added: u64,
    ballast: u64,
    since: Option<Instant>,
}

impl Occupied {
    /// What is taken at the last look.
    fn taken(&self) -> u64 {
        self.seen + self.ballast
    }
}

/// State that all files share. The counters are read for reports only: relaxed.
#[derive(Debug)]
struct Disk {
    limits: DiskLimits,
    root: PathBuf,
    timelines: Mutex<Timelines>,
    occupied: Mutex<Occupied>,
    waits: AtomicU64,
    wait_us: AtomicU64,
    refusals: AtomicU64,
}

impl Disk {
    /// Waits until an operation of so many bytes is done.
    fn pass(&self, bytes: usize) {
        let now = Instant::now();
        let take = |until: &mut Instant, cost: Duration| {
            let from = (*until).max(now.checked_sub(CREDIT).unwrap_or(now));
            *until = from + cost;
            *until
        };
        let mut done = now;
        {
            let mut lines = self.timelines.lock().expect("no thread panics while it holds the timelines");
            if let Some(rate) = self.limits.operations_per_second {
                done = done.max(take(&mut lines.operations, Duration::from_secs_f64(1.0 / rate as f64)));
            }
            if let Some(rate) = self.limits.bytes_per_second {
                done = done.max(take(&mut lines.bytes, Duration::from_secs_f64(bytes as f64 / rate as f64)));
            }
        }
        done += Duration::from_micros(self.limits.latency_us.unwrap_or(0));
        let wait = done.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            self.waits.fetch_add(1, Ordering::Relaxed);
            self.wait_us.fetch_add(wait.as_micros() as u64, Ordering::Relaxed);
            std::thread::sleep(wait);
        }
    }

    /// Bytes that the files occupy, as far as known.
    fn look(&self, occupied: &mut Occupied) {
        (occupied.seen, occupied.added) = (lab_measure::disk::occupied_bytes(&self.root).unwrap_or(0), 0);
        let DiskLimits { size_bytes: Some(size), full_pct: Some(percent), .. } = self.limits else { return };
        if occupied.since.is_none_or(|since| since.elapsed() >= BALLAST_PAUSE) {
            occupied.ballast = (size / 100 * percent).saturating_sub(occupied.seen);
            occupied.since = Some(Instant::now());
        }
    }

    /// Makes sure that so many bytes more fit.
    fn grow(&self, bytes: u64) -> io::Result<()> {
        let Some(size) = self.limits.size_bytes else { return Ok(()) };
        let mut occupied = self.occupied.lock().expect("no thread panics while it holds the sizes");
        if occupied.taken() + occupied.added + bytes > size {
            self.look(&mut occupied);
        }
        if occupied.taken() + bytes > size {
            self.refusals.fetch_add(1, Ordering::Relaxed);
            return Err(io::Error::new(io::ErrorKind::StorageFull, format!("the disk of {size} bytes is full")));
        }
        occupied.added += bytes;
        Ok(())
    }
}

/// The machine's file system behind limits.
#[derive(Clone, Debug)]
pub struct LimitedVfs {
    inner: RealVfs,
    disk: Arc<Disk>,
}

impl LimitedVfs {
    /// A limited disk that holds the files under `root`.
    #[must_use]
    pub fn new(limits: DiskLimits, root: &Path) -> LimitedVfs {
        let now = Instant::now();
        let disk = Disk {
            limits,
            root: root.to_path_buf(),
            timelines: Mutex::new(Timelines { operations: now, bytes: now }),
            // Looked at before anything is added.
            occupied: Mutex::new(Occupied { seen: 0, added: limits.size_bytes.unwrap_or(0), ballast: 0, since: None }),
            waits: AtomicU64::new(0),
            wait_us: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
        };
        LimitedVfs { inner: RealVfs, disk: Arc::new(disk) }
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> DiskLimits {
        self.disk.limits
    }

    /// How often somebody waited, for how many microseconds altogether, how often there was no room, and what is taken now.
    #[must_use]
    pub fn counters(&self) -> [(&'static str, u64); 4] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut occupied = self.disk.occupied.lock().expect("no thread panics while it holds the sizes");
        self.disk.look(&mut occupied);
        [
            ("disk_limit.taken_bytes", occupied.taken()),
            ("disk_limit.waits", read(&self.disk.waits)),
            ("disk_limit.wait_us", read(&self.disk.wait_us)),
            ("disk_limit.refusals", read(&self.disk.refusals)),
        ]
    }
}

impl Vfs for LimitedVfs {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, how)?;
        Ok(Arc::new(LimitedFile { inner, disk: Arc::clone(&self.disk) }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)?;
        self.disk.pass(0);
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let free = self.inner.free_bytes(dir)?;
        let Some(size) = self.disk.limits.size_bytes else { return Ok(free) };
        let mut occupied = self.disk.occupied.lock().expect("no thread panics while it holds the sizes");
        self.disk.look(&mut occupied);
        Ok(free.min(size.saturating_sub(occupied.taken())))
    }
}

struct LimitedFile {
    inner: Arc<dyn File>,
    disk: Arc<Disk>,
}

impl File for LimitedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buf, offset)?;
        self.disk.pass(buf.len());
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        // What lies within the file was allocated, and writing there cannot fail for want of space.
        if self.disk.limits.size_bytes.is_some() {
            let end = offset + bytes.len() as u64;
            self.disk.grow(end.saturating_sub(self.inner.len()?).min(bytes.len() as u64))?;
        }
        self.inner.write_at(bytes, offset)?;
        self.disk.pass(bytes.len());
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()?;
        self.disk.pass(0);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.disk.grow(len)?;
        self.inner.allocate(offset, len)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.punch(offset, len)
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(text: &str) -> (PathBuf, LimitedVfs) {
        let dir = std::env::temp_dir().join(format!("lab-limited-{}-{}", std::process::id(), text.replace('=', "")));
        std::fs::create_dir_all(&dir).unwrap();
        let limits = match text.strip_prefix("size=") {
            Some(size) => DiskLimits { size_bytes: Some(size.parse().unwrap()), ..DiskLimits::default() },
            None => DiskLimits::parse(text).unwrap(),
        };
        (dir.clone(), LimitedVfs::new(limits, &dir))
    }

    fn file(vfs: &LimitedVfs, dir: &Path) -> Arc<dyn File> {
        vfs.open(&dir.join("a"), OpenHow { write: true, create: true, ..OpenHow::default() }).unwrap()
    }

    /// Milliseconds that `times` writes of `bytes` take on each of `threads` threads.
    fn written(text: &str, threads: u64, times: u64, bytes: usize) -> u64 {
        let (dir, vfs) = limited(text);
        let file = file(&vfs, &dir);
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..times).for_each(|_| file.write_at(&vec![7; bytes], 0).unwrap()));
            }
        });
        let took = began.elapsed().as_millis() as u64;
        std::fs::remove_dir_all(dir).unwrap();
        took
    }

    #[test]
    fn operations_and_bytes_have_a_rate_that_threads_share() {
        // 200 operations at 1000/s, less the credit of 10 ms; the upper bounds leave room for a busy machine.
        let took = written("iops=1000", 4, 50, 512);
        assert!((180..2_000).contains(&took), "{took} ms");
        // 8 MiB at 40 MiB/s.
        let took = written("mb=40", 2, 16, 256 << 10);
        assert!((180..2_000).contains(&took), "{took} ms");
    }

    #[test]
    fn a_pause_earns_no_burst() {
        let (dir, vfs) = limited("iops=2000");
        let file = file(&vfs, &dir);
        file.write_at(&[1], 0).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let began = Instant::now();
        (0..200).for_each(|_| file.write_at(&[1], 0).unwrap());
        assert!(began.elapsed() >= Duration::from_millis(85), "{:?}", began.elapsed());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn latencies_add_up_in_one_thread_and_overlap_in_several() {
        let alone = written("latency=20ms", 1, 10, 512);
        assert!(alone >= 200, "{alone} ms");
        let beside = written("latency=20ms", 8, 10, 512);
        assert!((200..1_200).contains(&beside), "{beside} ms: eight times as much, one after the other, is 1600");
    }

    #[test]
    fn a_small_disk_is_full_before_the_machine_is() {
        let (dir, vfs) = limited("size=1048576");
        let file = file(&vfs, &dir);
        file.allocate(0, 768 << 10).unwrap();
        assert!((1 << 17..=1 << 18).contains(&vfs.free_bytes(&dir).unwrap()), "{}", vfs.free_bytes(&dir).unwrap());
        assert_eq!(file.allocate(768 << 10, 512 << 10).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.write_at(&vec![1; 512 << 10], 768 << 10).unwrap_err().kind(), io::ErrorKind::StorageFull);
        // What was allocated can be written, as often as one likes.
        (0..8).for_each(|_| file.write_at(&vec![1; 512 << 10], 0).unwrap());
        file.punch(0, 512 << 10).unwrap();
        file.allocate(768 << 10, 256 << 10).unwrap();
        assert!(vfs.counters().contains(&("disk_limit.refusals", 2)));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn ballast_keeps_a_disk_full_and_gives_way_once_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let limits = DiskLimits { size_bytes: Some(10 << 20), full_pct: Some(80), ..DiskLimits::default() };
        let vfs = LimitedVfs::new(limits, dir);
        let file = file(&vfs, dir);
        let free = || vfs.free_bytes(dir).unwrap() >> 10;
        assert_eq!(free(), 2 << 10, "a fifth");
        file.allocate(0, 1 << 20).unwrap();
        // Within the second the ballast is as large as it was.
        assert_eq!(free(), 1 << 10);
        assert_eq!(file.allocate(1 << 20, 2 << 20).unwrap_err().kind(), io::ErrorKind::StorageFull);
        std::thread::sleep(BALLAST_PAUSE);
        assert_eq!(free(), 2 << 10, "the same again");
        file.allocate(1 << 20, 2 << 20).unwrap();
        assert_eq!(free(), 0);
    }

    #[test]
    fn limits_are_read_and_mistakes_named() {
        let limits = DiskLimits::parse("iops=500,mb=20,latency=2ms").unwrap();
        assert_eq!(limits.to_string(), "iops=500,mb=20,latency=2000us");
        assert!(limits.is_any() && !DiskLimits::default().is_any());
        for (text, words) in [
            ("iops", "none of iops=N"),
            ("iops=0", "above 0"),
            ("mb=x", "above 0"),
            ("latency=2", "lacks its unit"),
            ("speed=2", "none of iops, mb, latency"),
        ] {
            let complaint = DiskLimits::parse(text).unwrap_err();
            assert!(complaint.contains(words), "{text}: {complaint}");
        }
    }
}
