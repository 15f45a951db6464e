//! A file system that counts what passes, fails on demand, and does not wait for the disk.
//!
//! Syncs are counted and not passed on: a crash in this suite loses the process, not the machine, and thousands
//! of small histories would otherwise wait for thousands of syncs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vfs::{File, FileLock, OpenHow, Vfs};

use super::Disk;

/// Counts and switches of one watched file system. Relaxed throughout: read by the thread that set them, or after
/// joining the others.
#[derive(Debug, Default)]
pub struct Watch {
    reads: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
    fail_reads: AtomicBool,
    fail_writes: AtomicBool,
}

impl Watch {
    /// Reads, writes and syncs so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        [&self.reads, &self.writes, &self.syncs].iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// Reads so far.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// From now on reads fail, or succeed again.
    pub fn fail_reads(&self, fail: bool) {
        self.fail_reads.store(fail, Ordering::Relaxed);
    }

    /// From now on writes, syncs and allocations fail, or succeed again.
    pub fn fail_writes(&self, fail: bool) {
        self.fail_writes.store(fail, Ordering::Relaxed);
    }

    fn read(&self) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        fail_if(&self.fail_reads, "a read fails as told")
    }

    fn write(&self) -> io::Result<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        fail_if(&self.fail_writes, "a write fails as told")
    }
}

fn fail_if(switch: &AtomicBool, why: &'static str) -> io::Result<()> {
    if switch.load(Ordering::Relaxed) { Err(io::Error::other(why)) } else { Ok(()) }
}

/// A file system under watch.
pub struct Watched {
    inner: Arc<dyn Vfs>,
    watch: Arc<Watch>,
}

impl Watched {
    /// Puts `inner` under `watch`.
    #[must_use]
    pub fn new(inner: Arc<dyn Vfs>, watch: Arc<Watch>) -> Self {
        Self { inner, watch }
    }
}

impl Vfs for Watched {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let how = OpenHow { direct: false, ..how };
        Ok(Arc::new(WatchedFile { inner: self.inner.open(path, how)?, watch: self.watch.clone() }))
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
    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        self.watch.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }
    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.inner.free_bytes(dir)
    }
}

struct WatchedFile {
    inner: Arc<dyn File>,
    watch: Arc<Watch>,
}

impl File for WatchedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.watch.read()?;
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.watch.write()?;
        self.inner.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.watch.syncs.fetch_add(1, Ordering::Relaxed);
        fail_if(&self.watch.fail_writes, "a sync fails as told")
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        fail_if(&self.watch.fail_writes, "an allocation fails as told")?;
        self.inner.allocate(offset, len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.punch(offset, len)
    }
    fn is_direct(&self) -> bool {
        false
    }
}

/// A fresh directory of the machine's own file system, removed when its guard is dropped.
#[allow(clippy::disallowed_methods, reason = "the scratch directory of a test")]
pub fn scratch() -> Disk {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("trefoil-conformance-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("the scratch directory can be created");
    (Arc::new(vfs::RealVfs), dir.clone(), Box::new(Scratch(dir)))
}

struct Scratch(PathBuf);

impl Drop for Scratch {
    #[allow(clippy::disallowed_methods, reason = "the scratch directory of a test")]
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
