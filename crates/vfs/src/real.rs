//! The machine's own file system.
//!
//! What is promised in [`crate::file`] is mapped to Linux so: contents become durable with `fdatasync` (which
//! also writes the length, because the contents cannot be read without it), names with `fsync` on their
//! directory, the lock is `flock` on an open file description (so it also excludes a second open in the same
//! process), allocation is `fallocate`.
//!
//! Direct I/O is switched on after the open, by `F_SETFL`, not in the open itself: a file system that refuses
//! `O_DIRECT` answers `EINVAL` only after it has created the file, and a second attempt with `create_new`
//! would then find it there.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::file::{File, FileLock, OpenHow, Vfs};

/// The machine's own file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealVfs;

/// Files are readable by the owner and the group: a database holds what its users may not all see.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP);

impl Vfs for RealVfs {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(RealFile::open(path, how)?))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            // A name that is not UTF-8 is none of ours; its lossy form never equals one of ours either.
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        std::fs::exists(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let fd = retry(|| fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()))?;
        retry(|| fs::fsync(&fd))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let fd = retry(|| fs::open(path, flags, FILE_MODE))?;
        retry(|| fs::flock(&fd, FlockOperation::NonBlockingLockExclusive))?;
        Ok(Box::new(RealLock(fd)))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn FileLock>>> {
        let fd = match retry(|| fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())) {
            Ok(fd) => fd,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => return Ok(None),
            Err(e) => return Err(e),
        };
        retry(|| fs::flock(&fd, FlockOperation::NonBlockingLockShared))?;
        Ok(Some(Box::new(RealLock(fd))))
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = retry(|| fs::statvfs(dir))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

/// Held by the open file description.
struct RealLock(OwnedFd);

impl FileLock for RealLock {}

impl Drop for RealLock {
    /// Unlocked, not only closed: a process that another thread is starting holds the same description between `fork` and
    /// `exec`, and would keep the lock for as long.
    fn drop(&mut self) {
        // It fails for nothing that is locked; closing follows.
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }
}

struct RealFile {
    fd: OwnedFd,
    direct: bool,
}

impl RealFile {
    fn open(path: &Path, how: OpenHow) -> io::Result<Self> {
        let mut flags = OFlags::CLOEXEC;
        flags |= if how.write { OFlags::RDWR } else { OFlags::RDONLY };
        if how.create || how.create_new {
            flags |= OFlags::CREATE;
        }
        if how.create_new {
            flags |= OFlags::EXCL;
        }
        let fd = retry(|| fs::open(path, flags, FILE_MODE))?;
        let direct = how.direct && switch_to_direct(&fd)?;
        Ok(Self { fd, direct })
    }

    /// Direct I/O with a wrong alignment is a bug of the caller that buffered file systems would hide.
    fn check_alignment(&self, buf: &[u8], offset: u64) {
        let sector = base::limits::SECTOR_BYTES;
        debug_assert!(
            !self.direct
                || (buf.as_ptr().addr().is_multiple_of(sector)
                    && buf.len().is_multiple_of(sector)
                    && offset.is_multiple_of(sector as u64)),
            "direct I/O of {} bytes at {offset} is not aligned",
            buf.len()
        );
    }
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.check_alignment(buf, offset);
        let mut done = 0;
        while done < buf.len() {
            match retry(|| rustix::io::pread(&self.fd, &mut buf[done..], offset + done as u64))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => done += n,
            }
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check_alignment(bytes, offset);
        let mut done = 0;
        while done < bytes.len() {
            match retry(|| rustix::io::pwrite(&self.fd, &bytes[done..], offset + done as u64))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => done += n,
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        retry(|| fs::fdatasync(&self.fd))
    }

    fn len(&self) -> io::Result<u64> {
        let stat = retry(|| fs::fstat(&self.fd))?;
        Ok(u64::try_from(stat.st_size).expect("the kernel gives no negative length"))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        retry(|| fs::ftruncate(&self.fd, len))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        match retry_errno(|| fs::fallocate(&self.fd, FallocateFlags::empty(), offset, len)) {
            Err(Errno::OPNOTSUPP) => self.allocate_by_writing(offset + len),
            other => other.map_err(named),
        }
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry_errno(|| fs::fallocate(&self.fd, flags, offset, len)) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            other => other.map_err(named),
        }
    }

    fn is_direct(&self) -> bool {
        self.direct
    }
}

impl RealFile {
    /// Where the file system has no `fallocate`: writes zeroes from the end of the file to `end`. Holes before
    /// the end of the file stay holes; files that are only extended by `allocate` have none.
    fn allocate_by_writing(&self, end: u64) -> io::Result<()> {
        const CHUNK_BYTES: usize = 1 << 20;
        let zeroes = crate::AlignedBuf::zeroed(CHUNK_BYTES);
        let sector = base::limits::SECTOR_BYTES as u64;
        let mut at = self.len()?;
        if at >= end {
            return Ok(());
        }
        if self.direct {
            at = base::limits::round_up(at, sector);
        }
        while at < end {
            // The last piece of a direct file is rounded up to whole sectors, then cut below.
            let piece = base::limits::round_up(end - at, sector).min(CHUNK_BYTES as u64);
            self.write_at(&zeroes[..piece as usize], at)?;
            at += piece;
        }
        if at > end { self.set_len(end) } else { Ok(()) }
    }
}

/// Tries to bypass the page cache; false where the file system refuses.
fn switch_to_direct(fd: &OwnedFd) -> io::Result<bool> {
    let flags = retry(|| fs::fcntl_getfl(fd))?;
    match retry_errno(|| fs::fcntl_setfl(fd, flags | OFlags::DIRECT)) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(named(errno)),
    }
}

/// Repeats a call that a signal interrupted.
fn retry_errno<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

fn retry<T>(call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    retry_errno(call).map_err(named)
}

/// The `io::Error` of an error number. A used-up quota is a full disk to the engine.
fn named(errno: Errno) -> io::Error {
    match errno {
        Errno::DQUOT => io::Error::new(io::ErrorKind::StorageFull, "the disk quota is used up"),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuf;
    use std::path::PathBuf;

    const NEW: OpenHow = OpenHow { write: true, create: false, create_new: true, direct: false };

    /// A directory of its own for each test, removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            Self::under(&std::env::temp_dir(), name)
        }

        fn under(root: &Path, name: &str) -> Self {
            let dir = root.join(format!("trefoil-vfs-{}-{name}", std::process::id()));
            RealVfs.create_dir_all(&dir).unwrap();
            Self(dir)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn reads_what_was_written() {
        let dir = Scratch::new("rw");
        let file = RealVfs.open(&dir.0.join("a"), NEW).unwrap();
        assert!(file.is_empty().unwrap());
        file.write_at(b"hello", 3).unwrap();
        file.sync().unwrap();
        let mut buf = [9u8; 8];
        file.read_at(&mut buf, 0).unwrap();
        assert_eq!(&buf, b"\0\0\0hello");
        let short = file.read_at(&mut buf, 1).unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
        file.set_len(2).unwrap();
        assert_eq!(file.len().unwrap(), 2);
        assert_eq!(RealVfs.open(&dir.0.join("a"), NEW).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
        let reader = RealVfs.open(&dir.0.join("a"), OpenHow::default()).unwrap();
        assert!(reader.write_at(b"x", 0).is_err(), "opened read-only");
    }

    #[test]
    fn names() {
        let dir = Scratch::new("names");
        let (a, b) = (dir.0.join("a"), dir.0.join("b"));
        RealVfs.open(&b, NEW).unwrap().write_at(b"old", 0).unwrap();
        RealVfs.open(&a, NEW).unwrap();
        assert_eq!(RealVfs.list(&dir.0).unwrap(), ["a", "b"]);
        RealVfs.rename(&a, &b).unwrap();
        RealVfs.sync_dir(&dir.0).unwrap();
        assert!(!RealVfs.exists(&a).unwrap());
        assert!(RealVfs.open(&b, OpenHow::default()).unwrap().is_empty().unwrap());
        RealVfs.remove(&b).unwrap();
        assert_eq!(RealVfs.remove(&b).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(RealVfs.free_bytes(&dir.0).unwrap() > 0);
    }

    #[test]
    fn the_lock_excludes_a_second_open() {
        let dir = Scratch::new("lock");
        let path = dir.0.join("LOCK");
        let held = RealVfs.lock(&path).unwrap();
        assert_eq!(RealVfs.lock(&path).err().unwrap().kind(), io::ErrorKind::WouldBlock);
        drop(held);
        RealVfs.lock(&path).unwrap();
        // A second descriptor of the same description, as a child has before it starts its program.
        let held = fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let inherited = held.try_clone().unwrap();
        fs::flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        drop(RealLock(held));
        RealVfs.lock(&path).unwrap();
        drop(inherited);
    }

    #[test]
    fn allocate_extends_and_punch_zeroes() {
        let dir = Scratch::new("allocate");
        let file = RealVfs.open(&dir.0.join("a"), NEW).unwrap();
        file.allocate(0, 64 << 10).unwrap();
        assert_eq!(file.len().unwrap(), 64 << 10);
        file.write_at(&[7; 8192], 0).unwrap();
        file.punch(4096, 4096).unwrap();
        let mut buf = [1u8; 8192];
        file.read_at(&mut buf, 0).unwrap();
        assert!(buf[..4096].iter().all(|b| *b == 7) && buf[4096..].iter().all(|b| *b == 0));
        assert_eq!(file.len().unwrap(), 64 << 10, "the length stays");
        let full = file.allocate(0, 1 << 50).unwrap_err();
        assert!(matches!(full.kind(), io::ErrorKind::StorageFull | io::ErrorKind::FileTooLarge), "{full}");
    }

    #[test]
    fn allocation_by_writing_stops_at_the_asked_length() {
        let dir = Scratch::new("by-writing");
        for direct in [false, true] {
            let path = dir.0.join(format!("{direct}"));
            let fd = fs::open(&path, OFlags::RDWR | OFlags::CREATE, FILE_MODE).unwrap();
            let direct = direct && switch_to_direct(&fd).unwrap();
            let file = RealFile { fd, direct };
            file.allocate_by_writing((1 << 20) + 5000).unwrap();
            assert_eq!(file.len().unwrap(), (1 << 20) + 5000);
            file.allocate_by_writing(100).unwrap();
            assert_eq!(file.len().unwrap(), (1 << 20) + 5000, "never cut");
        }
    }

    #[test]
    fn direct_where_it_can_be() {
        let dir = Scratch::new("direct");
        let file = RealFile::open(&dir.0.join("a"), OpenHow { direct: true, ..NEW }).unwrap();
        let flags = fs::fcntl_getfl(&file.fd).unwrap();
        assert_eq!(file.is_direct(), flags.contains(OFlags::DIRECT), "is_direct tells the truth");
        let mut bytes = AlignedBuf::zeroed(8192);
        bytes.fill(5);
        file.write_at(&bytes, 4096).unwrap();
        file.sync().unwrap();
        let mut back = AlignedBuf::zeroed(4096);
        file.read_at(&mut back, 8192).unwrap();
        assert!(back.iter().all(|b| *b == 5));
    }

    #[test]
    fn memory_file_systems_fall_back_to_buffered() {
        let shm = Path::new("/dev/shm");
        if !RealVfs.exists(shm).unwrap() {
            return;
        }
        let dir = Scratch::under(shm, "shm");
        // create_new: an attempt that leaves the file behind would fail here.
        let file = RealVfs.open(&dir.0.join("a"), OpenHow { direct: true, ..NEW }).unwrap();
        if !file.is_direct() {
            file.write_at(b"odd length", 1).unwrap();
        }
        file.allocate(0, 4096).unwrap();
        file.punch(0, 4096).unwrap();
        assert_eq!(file.len().unwrap(), 4096);
    }
}
