//! The machine's file system with a disk of limited size and writes that fail on demand.
#![allow(dead_code, reason = "test support; not every test uses all of it")]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use vfs::sync::{Condvar, Mutex};
use vfs::{File, FileLock, OpenHow, RealVfs, Vfs};

/// What goes wrong, and what was asked for.
#[derive(Default)]
pub struct Faults {
    /// Bytes that can still be allocated.
    pub free_bytes: AtomicU64,
    /// Said to be free beside these, and not there when it is allocated: another program was faster.
    pub claimed_bytes: AtomicU64,
    /// Writes fail with `StorageFull`.
    pub writes_fail: AtomicBool,
    /// Syncs fail.
    pub syncs_fail: AtomicBool,
    /// Allocations fail for another reason than space.
    pub allocations_break: AtomicBool,
    /// Bytes punched or cut.
    pub punched_bytes: AtomicU64,
    /// The next of them waits, for at most ten seconds, until a write comes.
    pub punch_awaits_write: AtomicBool,
    /// A hole takes so long, in milliseconds.
    pub punch_takes: AtomicU64,
    /// Writes begun.
    pub writes: AtomicU64,
    /// Each write waits, for at most ten seconds, until this many are under way at once.
    pub writes_meet: AtomicU64,
    under_way: Mutex<u64>,
    met: Condvar,
}

impl Faults {
    fn meet(&self) {
        let wanted = self.writes_meet.load(Ordering::SeqCst);
        let mut under_way = self.under_way.lock();
        *under_way += 1;
        self.met.notify_all();
        while *under_way < wanted {
            assert!(!self.met.wait_for(&mut under_way, Duration::from_secs(10)), "writes never were under way at once");
        }
    }

    fn await_write(&self) {
        let mut under_way = self.under_way.lock();
        let before = *under_way;
        while *under_way == before {
            assert!(!self.met.wait_for(&mut under_way, Duration::from_secs(10)), "no write came");
        }
    }
}

#[derive(Clone)]
pub struct FaultyVfs(pub Arc<Faults>);

impl FaultyVfs {
    pub fn new(free_bytes: u64) -> Self {
        Self(Arc::new(Faults { free_bytes: AtomicU64::new(free_bytes), ..Faults::default() }))
    }
}

impl Vfs for FaultyVfs {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(FaultyFile { inner: RealVfs.open(path, how)?, faults: self.0.clone() }))
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        RealVfs.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealVfs.rename(from, to)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        RealVfs.create_dir_all(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealVfs.list(dir)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealVfs.exists(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealVfs.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        RealVfs.lock(path)
    }
    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(self.0.free_bytes.load(Ordering::SeqCst) + self.0.claimed_bytes.load(Ordering::SeqCst))
    }
}

struct FaultyFile {
    inner: Arc<dyn File>,
    faults: Arc<Faults>,
}

impl File for FaultyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.faults.writes.fetch_add(1, Ordering::SeqCst);
        if self.faults.writes_fail.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.faults.meet();
        self.inner.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        if self.faults.syncs_fail.load(Ordering::SeqCst) {
            return Err(io::Error::other("the cable is loose"));
        }
        self.inner.sync()
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        let cut = self.inner.len()?.saturating_sub(len);
        self.faults.punched_bytes.fetch_add(cut, Ordering::SeqCst);
        self.faults.free_bytes.fetch_add(cut, Ordering::SeqCst);
        self.inner.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.faults.allocations_break.load(Ordering::SeqCst) {
            return Err(io::Error::other("the cable is loose"));
        }
        let taken =
            self.faults.free_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |free| free.checked_sub(len));
        taken.map_err(|_| io::Error::from(io::ErrorKind::StorageFull))?;
        self.inner.allocate(offset, len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.faults.punched_bytes.fetch_add(len, Ordering::SeqCst);
        if self.faults.punch_awaits_write.swap(false, Ordering::SeqCst) {
            self.faults.await_write();
        }
        vfs::thread::sleep(Duration::from_millis(self.faults.punch_takes.load(Ordering::SeqCst)));
        self.faults.free_bytes.fetch_add(len, Ordering::SeqCst);
        self.inner.punch(offset, len)
    }
    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
}
