//! Files as the engine uses them.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenHow {
    /// Writable; otherwise read-only.
    pub write: bool,
    /// Created if absent.
    pub create: bool,
    /// Must not exist before.
    pub create_new: bool,
    /// Bypass the page cache where the file system can; [`File::is_direct`] tells whether it does.
    /// Offsets, lengths and buffers of a direct file are multiples of 4096 bytes.
    pub direct: bool,
}

/// A file system.
///
/// What is asked of it, and nothing more: (1) after `sync` returns, bytes written before are there after a
/// power cut; (2) a write that was not synced may be there wholly, partly by 4 KiB sectors, or not at all;
/// a sector being overwritten may be torn, which damages what it held before; (3) names created, renamed or
/// removed are there after `sync_dir` on their directory.
pub trait Vfs: Send + Sync + 'static {
    /// Opens a file.
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Renames a file within its directory, replacing the target. An error leaves open whether it happened.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Creates a directory and its parents.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Names in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// True if the path exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Makes names in the directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes the exclusive lock file at `path`, created if absent; `WouldBlock` if another process has it.
    /// Released on drop.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;
    /// Takes the lock file at `path` against whoever takes it with [`Vfs::lock`], and creates nothing: `None` if there is
    /// no such file or it may not be opened. Readers share it where the file system can.
    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn FileLock>>> {
        if self.exists(path)? { self.lock(path).map(Some) } else { Ok(None) }
    }
    /// Bytes an ordinary user can still allocate in the file system of `dir`.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// Held while the database is open.
pub trait FileLock: Send + Sync {}

/// An open file. Positions are explicit; all methods may be called from many threads.
pub trait File: Send + Sync + 'static {
    /// Fills `buf` from `offset`; `UnexpectedEof` if the file ends before.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the contents durable, and what metadata is needed to read them.
    fn sync(&self) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// True if the length is 0.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends (with zeroes, sparse).
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Allocates space for `[offset, offset + len)`, extending the file if needed, so that later writes there
    /// cannot fail for want of space. `StorageFull` if there is none.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Gives the space of `[offset, offset + len)` back; it reads as zeroes. A no-op where unsupported.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;
    /// True if the page cache is bypassed.
    fn is_direct(&self) -> bool;
}

/// A byte buffer whose start is aligned to 4096 bytes, as direct I/O wants it.
pub struct AlignedBuf {
    // Over-allocated by one sector; `start` is the first aligned byte.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    const ALIGN: usize = base::limits::SECTOR_BYTES;

    /// A zeroed buffer of `len` bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let bytes = vec![0u8; len + Self::ALIGN];
        let start = bytes.as_ptr().align_offset(Self::ALIGN);
        Self { bytes, start, len }
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
