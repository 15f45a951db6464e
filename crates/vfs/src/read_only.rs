//! A file system through which nothing is changed: under a database that is opened only to be read. Whatever asks for a
//! change gets an error, also what nobody thought of.
//!
//! Files are opened for reading whatever was asked for, so that they need not be writable. The lock is shared with other
//! readers; it is done without if there is no lock file, or if it may not be opened.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::file::{File, FileLock, OpenHow, Vfs};

/// Reads through another file system, and changes nothing.
///
/// ```
/// use std::{path::Path, sync::Arc};
/// use vfs::{OpenHow, ReadOnlyVfs, Vfs, sim};
///
/// let disk = Arc::new(sim::SimDisk::new(sim::DiskConfig::default()));
/// let (path, new) = (Path::new("/f"), OpenHow { write: true, create: true, ..OpenHow::default() });
/// disk.open(path, new)?.write_at(b"there", 0)?;
/// let reader = ReadOnlyVfs::new(disk);
/// let file = reader.open(path, new)?;
/// let mut bytes = [0; 5];
/// file.read_at(&mut bytes, 0)?;
/// assert!(&bytes == b"there" && file.write_at(b"other", 0).is_err() && reader.remove(path).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ReadOnlyVfs(Arc<dyn Vfs>);

impl ReadOnlyVfs {
    /// Over `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Vfs>) -> Self {
        Self(inner)
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the database is opened read-only"))
}

impl Vfs for ReadOnlyVfs {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        if how.create_new {
            return refused();
        }
        let inner = self.0.open(path, OpenHow { write: false, create: false, ..how })?;
        Ok(Arc::new(ReadOnlyFile(inner)))
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.exists(path)
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        Ok(self.0.lock_shared(path)?.unwrap_or_else(|| Box::new(NoLock)))
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.0.free_bytes(dir)
    }
}

/// Where there is no lock to take.
struct NoLock;

impl FileLock for NoLock {}

struct ReadOnlyFile(Arc<dyn File>);

impl File for ReadOnlyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        refused()
    }

    fn sync(&self) -> io::Result<()> {
        refused()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        refused()
    }

    fn punch(&self, _: u64, _: u64) -> io::Result<()> {
        refused()
    }

    fn is_direct(&self) -> bool {
        self.0.is_direct()
    }
}
