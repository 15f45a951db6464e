//! Files in memory that count what is asked of them and can be told to fail.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vfs::sync::{Mutex, RwLock};
use vfs::{File, FileLock, OpenHow, Vfs};

/// A file system in memory.
#[derive(Default)]
pub struct MemoryVfs {
    files: Mutex<BTreeMap<PathBuf, Arc<MemoryFile>>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    reads: AtomicU64,
    writes: AtomicU64,
    fail_reads: AtomicBool,
    fail_writes: AtomicBool,
    is_full: AtomicBool,
}

struct MemoryFile {
    bytes: RwLock<Vec<u8>>,
    shared: Arc<Shared>,
}

impl MemoryVfs {
    pub fn reads(&self) -> u64 {
        self.shared.reads.load(Ordering::SeqCst)
    }

    pub fn writes(&self) -> u64 {
        self.shared.writes.load(Ordering::SeqCst)
    }

    pub fn fail_reads(&self, fail: bool) {
        self.shared.fail_reads.store(fail, Ordering::SeqCst);
    }

    pub fn fail_writes(&self, fail: bool) {
        self.shared.fail_writes.store(fail, Ordering::SeqCst);
    }

    /// Nothing more can be allocated.
    pub fn set_full(&self, full: bool) {
        self.shared.is_full.store(full, Ordering::SeqCst);
    }

    /// Changes a bit of the data file. Done twice, it is undone.
    pub fn rot(&self, at: u64) {
        let files = self.files.lock();
        let (_, data) = files.iter().find(|(path, _)| path.ends_with("data.trefoil")).expect("there is one");
        data.bytes.write()[at as usize] ^= 8;
    }
}

struct Lock;
impl FileLock for Lock {}

fn broken() -> io::Error {
    io::Error::other("told to fail")
}

impl Vfs for MemoryVfs {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let mut files = self.files.lock();
        match files.get(path) {
            Some(_) if how.create_new => Err(io::ErrorKind::AlreadyExists.into()),
            Some(file) => Ok(file.clone()),
            None if how.create || how.create_new => {
                let file = Arc::new(MemoryFile { bytes: RwLock::default(), shared: self.shared.clone() });
                files.insert(path.to_owned(), file.clone());
                Ok(file)
            }
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.lock().remove(path).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.files.lock();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(self.files.lock().keys().filter(|path| path.parent() == Some(dir)).filter_map(name).collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.files.lock().contains_key(path))
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _path: &Path) -> io::Result<Box<dyn FileLock>> {
        Ok(Box::new(Lock))
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(if self.shared.is_full.load(Ordering::SeqCst) { 0 } else { 1 << 40 })
    }
}

impl File for MemoryFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        vfs::thread::point("file.read");
        self.shared.reads.fetch_add(1, Ordering::SeqCst);
        if self.shared.fail_reads.load(Ordering::SeqCst) {
            return Err(broken());
        }
        let bytes = self.bytes.read();
        let there = bytes.get(offset as usize..offset as usize + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(there);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        vfs::thread::point("file.write");
        self.shared.writes.fetch_add(1, Ordering::SeqCst);
        if self.shared.fail_writes.load(Ordering::SeqCst) {
            return Err(broken());
        }
        let mut all = self.bytes.write();
        let end = offset as usize + bytes.len();
        if all.len() < end {
            all.resize(end, 0);
        }
        all[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.read().len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.bytes.write().resize(len as usize, 0);
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.shared.is_full.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut bytes = self.bytes.write();
        if bytes.len() < (offset + len) as usize {
            bytes.resize((offset + len) as usize, 0);
        }
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.bytes.write()[offset as usize..(offset + len) as usize].fill(0);
        Ok(())
    }

    fn is_direct(&self) -> bool {
        false
    }
}
