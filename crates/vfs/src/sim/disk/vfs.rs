//! The file system traits on a simulated disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::limits::SECTOR_BYTES;

use super::inode::Inode;
use super::names::{InodeId, Node, normal};
use super::operate::Detail;
use super::{Disk, SimDisk, State};
use crate::fault::Class;
use crate::file::{File, FileLock, OpenHow, Vfs};

impl SimDisk {
    fn operate<R>(&self, class: Class, path: &Path, effect: impl FnOnce(&mut State) -> io::Result<R>) -> io::Result<R> {
        self.disk.operate(class, path, Detail::default(), effect)
    }
}

impl Vfs for SimDisk {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let path = normal(path);
        let mut opened = None;
        let result = self.operate(Class::Open, &path, |state| {
            opened = Some(state.open(&path, how)?);
            Ok(())
        });
        // From here on the handle is closed by its drop, also if the operation failed after its effect.
        let file = opened.map(|id| {
            let direct = how.direct && self.disk.config.direct;
            SimFile { disk: Arc::clone(&self.disk), id, path, writable: how.write, direct }
        });
        result?;
        Ok(Arc::new(file.expect("an operation that succeeds had its effect")))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        self.operate(Class::Remove, &path, |state| {
            let number = state.next_number();
            state.names.remove(&path, number)?;
            state.collect();
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (normal(from), normal(to));
        self.operate(Class::Rename, &to, |state| {
            let number = state.next_number();
            state.names.rename(&from, &to, number)?;
            state.collect();
            Ok(())
        })
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        self.operate(Class::CreateDir, &path, |state| {
            let number = state.next_number();
            state.names.create_dir_all(&path, number)
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let dir = normal(dir);
        self.operate(Class::List, &dir, |state| state.names.list(&dir))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let path = normal(path);
        self.operate(Class::Exists, &path, |state| Ok(state.names.get(&path).is_some()))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = normal(dir);
        // As with files: what is changed while the sync runs is not promised.
        let upto = self.disk.state.lock().number;
        self.operate(Class::SyncDir, &dir, |state| {
            state.names.sync(&dir, upto)?;
            state.collect();
            Ok(())
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let path = normal(path);
        let mut locked = false;
        let result = self.operate(Class::Lock, &path, |state| {
            if state.locked.contains(&path) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let how = OpenHow { write: true, create: true, ..OpenHow::default() };
            let id = state.open(&path, how)?;
            state.close(id);
            locked = state.locked.insert(path.clone());
            Ok(())
        });
        let held = locked.then(|| SimLock { disk: Arc::clone(&self.disk), path });
        result?;
        Ok(Box::new(held.expect("an operation that succeeds had its effect")))
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.operate(Class::FreeBytes, &normal(dir), |state| {
            Ok(state.capacity_sectors.saturating_sub(state.used_sectors).saturating_mul(SECTOR_BYTES as u64))
        })
    }
}

impl State {
    fn open(&mut self, path: &Path, how: OpenHow) -> io::Result<InodeId> {
        let id = match self.names.get(path) {
            Some(Node::Dir) => return Err(io::ErrorKind::IsADirectory.into()),
            Some(Node::File(_)) if how.create_new => return Err(io::ErrorKind::AlreadyExists.into()),
            Some(Node::File(id)) => id,
            None if !how.create && !how.create_new => return Err(io::ErrorKind::NotFound.into()),
            None => {
                let (id, number) = (self.next_inode, self.next_number());
                self.names.create(path, id, number)?;
                self.next_inode += 1;
                self.inodes.insert(id, Inode::default());
                id
            }
        };
        self.inode(id).handles += 1;
        Ok(id)
    }

    fn close(&mut self, id: InodeId) {
        let inode = self.inode(id);
        inode.handles -= 1;
        if inode.handles == 0 {
            self.collect();
        }
    }
}

struct SimLock {
    disk: Arc<Disk>,
    path: PathBuf,
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.state.lock().locked.remove(&self.path);
    }
}

struct SimFile {
    disk: Arc<Disk>,
    id: InodeId,
    path: PathBuf,
    writable: bool,
    direct: bool,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.disk.state.lock().close(self.id);
    }
}

impl SimFile {
    fn operate<R>(
        &self,
        class: Class,
        offset: u64,
        len: u64,
        effect: impl FnOnce(&mut State) -> io::Result<R>,
    ) -> io::Result<R> {
        self.disk.operate(class, &self.path, Detail { offset, len, contents: 0 }, effect)
    }

    fn require_writable(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(io::Error::new(io::ErrorKind::PermissionDenied, "opened read-only")) }
    }

    /// As a kernel would, with `EINVAL`.
    fn require_aligned(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let aligned = buf.as_ptr().addr().is_multiple_of(SECTOR_BYTES)
            && buf.len().is_multiple_of(SECTOR_BYTES)
            && offset.is_multiple_of(SECTOR_BYTES as u64);
        if !self.direct || aligned {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "direct I/O that is not aligned to sectors"))
        }
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.require_aligned(buf, offset)?;
        self.disk.read(self.id, &self.path, buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.require_writable()?;
        self.require_aligned(bytes, offset)?;
        self.disk.write(self.id, &self.path, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync(self.id, &self.path)
    }

    fn len(&self) -> io::Result<u64> {
        self.operate(Class::Len, 0, 0, |state| Ok(state.inode(self.id).len))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.require_writable()?;
        self.operate(Class::SetLen, 0, len, |state| {
            let number = state.next_number();
            state.inode(self.id).set_len(len, number);
            state.give_space_back(self.id, len.div_ceil(SECTOR_BYTES as u64), u64::MAX);
            Ok(())
        })
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.require_writable()?;
        self.operate(Class::Allocate, offset, len, |state| {
            let end = offset + len;
            state.allocate(self.id, offset / SECTOR_BYTES as u64, end.div_ceil(SECTOR_BYTES as u64))?;
            if len > 0 && end > state.inode(self.id).len {
                let number = state.next_number();
                state.inode(self.id).set_len(end, number);
            }
            Ok(())
        })
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.require_writable()?;
        self.operate(Class::Punch, offset, len, |state| {
            let number = state.next_number();
            state.inode(self.id).zero(offset, len, number);
            let (first, last) = (offset.div_ceil(SECTOR_BYTES as u64), (offset + len) / SECTOR_BYTES as u64);
            if first < last {
                state.give_space_back(self.id, first, last);
            }
            Ok(())
        })
    }

    fn is_direct(&self) -> bool {
        self.direct
    }
}
