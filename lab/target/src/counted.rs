//! What Trefoil writes, by file, in the bytes that the kernel counts for the process.
//!
//! A direct file costs what is written. A file behind the page cache costs a page whenever a write makes it dirty: a
//! page that was written since the last sync is dirty still and costs nothing. Each file remembers one range of such
//! pages, which is all that a log written from front to back has. What the kernel writes back by itself in between, and
//! counts again when the page is written again, is not seen: with `--durability sync` there is none.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lab_measure::thread_time::{Doing, timed};
use vfs::{File, FileLock, OpenHow, Vfs};

const PAGE_BYTES: u64 = 4096;

/// Which file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Log,
    Data,
    Runs,
    Names,
}

impl Kind {
    fn of(path: &Path) -> Kind {
        let parent = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        match (parent, path.file_name().and_then(|name| name.to_str())) {
            (Some("wal"), _) => Kind::Log,
            (Some("runs"), _) => Kind::Runs,
            (_, Some(name)) if name.starts_with("data.") => Kind::Data,
            _ => Kind::Names,
        }
    }
}

/// Bytes written by kind of file, and how often files were read. Read for reports only: relaxed.
#[derive(Debug, Default)]
struct Written([AtomicU64; 4], AtomicU64);

/// A file system that counts.
#[derive(Clone)]
pub struct CountedVfs {
    inner: Arc<dyn Vfs>,
    written: Arc<Written>,
}

impl CountedVfs {
    /// Counts what goes to another one.
    #[must_use]
    pub fn new(inner: Arc<dyn Vfs>) -> CountedVfs {
        CountedVfs { inner, written: Arc::default() }
    }

    fn read(&self, kind: Kind) -> u64 {
        self.written.0[kind as usize].load(Ordering::Relaxed)
    }

    /// Bytes written to the log, what was filled ahead included.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        self.read(Kind::Log)
    }

    /// Bytes written to the data file.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.read(Kind::Data)
    }

    /// Bytes written to run files.
    #[must_use]
    pub fn run_bytes(&self) -> u64 {
        self.read(Kind::Runs)
    }

    /// Bytes written to manifests and everything else.
    #[must_use]
    pub fn other_bytes(&self) -> u64 {
        self.read(Kind::Names)
    }

    /// How often files were read.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.written.1.load(Ordering::Relaxed)
    }

    /// Everything.
    #[must_use]
    pub fn all_bytes(&self) -> u64 {
        self.log_bytes() + self.data_bytes() + self.run_bytes() + self.other_bytes()
    }
}

impl Vfs for CountedVfs {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, how)?;
        let written = Arc::clone(&self.written);
        Ok(Arc::new(CountedFile { inner, kind: Kind::of(path), written, dirty: Mutex::default() }))
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
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.inner.free_bytes(dir)
    }
}

/// Pages from `.0` to before `.1` are dirty.
type Pages = (u64, u64);

/// How many pages a write makes dirty, given those that are.
fn made_dirty(dirty: &mut Pages, offset: u64, bytes: u64) -> u64 {
    let (from, to) = (offset / PAGE_BYTES, (offset + bytes).div_ceil(PAGE_BYTES));
    let (low, high) = (from.max(dirty.0), to.min(dirty.1));
    let known = high.saturating_sub(low);
    let touches = from <= dirty.1 && to >= dirty.0 && dirty.0 < dirty.1;
    *dirty = if touches { (from.min(dirty.0), to.max(dirty.1)) } else { (from, to) };
    to - from - known
}

struct CountedFile {
    inner: Arc<dyn File>,
    kind: Kind,
    written: Arc<Written>,
    dirty: Mutex<Pages>,
}

impl CountedFile {
    fn dirty(&self) -> std::sync::MutexGuard<'_, Pages> {
        self.dirty.lock().expect("no thread panics while it holds the pages")
    }
}

impl File for CountedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.written.1.fetch_add(1, Ordering::Relaxed);
        timed(Doing::Read, || self.inner.read_at(buf, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        timed(Doing::Write, || self.inner.write_at(bytes, offset))?;
        let cost = match self.inner.is_direct() {
            true => bytes.len() as u64,
            false => made_dirty(&mut self.dirty(), offset, bytes.len() as u64) * PAGE_BYTES,
        };
        self.written.0[self.kind as usize].fetch_add(cost, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        // What is written while the sync goes on is dirty after it.
        *self.dirty() = Pages::default();
        timed(Doing::Sync, || self.inner.sync())
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
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

    #[test]
    fn a_page_costs_once_until_it_is_synced() {
        let mut dirty = Pages::default();
        assert_eq!(made_dirty(&mut dirty, 0, 100), 1);
        assert_eq!(made_dirty(&mut dirty, 100, 100), 0);
        assert_eq!(made_dirty(&mut dirty, 200, 4_096), 1);
        assert_eq!(made_dirty(&mut dirty, 8_192, 8_192), 2);
        assert_eq!(made_dirty(&mut dirty, 0, 20_480), 1);
        dirty = Pages::default();
        assert_eq!(made_dirty(&mut dirty, 300, 10), 1);
    }

    #[test]
    fn files_are_told_apart() {
        let kinds = ["db/wal/1", "db/runs/run-1", "db/data.trefoil", "db/MANIFEST-1.tmp"];
        assert_eq!(kinds.map(|path| Kind::of(Path::new(path))), [Kind::Log, Kind::Runs, Kind::Data, Kind::Names]);
    }
}
