//! Faults before any file system: for tests on the real one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Action, Class, Faults, Gone, eio, storage_full};
use crate::file::{File, FileLock, OpenHow, Vfs};

/// A file system whose operations fail by plan, in front of another one. After `Action::Kill` or `PowerCut` every
/// operation fails: reopen the inner one to see what a killed process leaves.
#[derive(Debug, Clone)]
pub struct FaultVfs<V> {
    inner: V,
    gate: Gate,
}

impl<V: Vfs> FaultVfs<V> {
    /// No faults yet.
    pub fn new(inner: V) -> Self {
        Self { inner, gate: Gate::default() }
    }

    /// The plan and the counters.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.gate.faults
    }

    /// Lets every operation fail from now on.
    pub fn kill(&self) {
        self.gate.gone.store(true, Ordering::SeqCst);
    }
}

#[derive(Debug, Clone, Default)]
struct Gate {
    faults: Faults,
    /// Set by whoever kills, read by all operations; nothing else hangs on it.
    gone: Arc<AtomicBool>,
}

impl Gate {
    /// An operation begins. An error means that it fails having done nothing; an action is left to the caller.
    fn begin(&self, class: Class, path: &Path) -> io::Result<Option<Action>> {
        let action = self.faults.begin(class, path);
        if self.gone.load(Ordering::SeqCst) {
            return Err(Gone::error());
        }
        match action {
            Some(Action::Kill | Action::PowerCut(_)) => {
                self.gone.store(true, Ordering::SeqCst);
                Err(Gone::error())
            }
            Some(Action::Eio) if class != Class::Write => Err(eio()),
            Some(Action::StorageFull) if class != Class::Write => Err(storage_full()),
            Some(Action::Slow(time)) => {
                crate::thread::sleep(time);
                Ok(None)
            }
            other => Ok(other),
        }
    }

    fn run<R>(&self, class: Class, path: &Path, operation: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        self.begin(class, path)?;
        operation()
    }
}

impl<V: Vfs> Vfs for FaultVfs<V> {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let inner = self.gate.run(Class::Open, path, || self.inner.open(path, how))?;
        Ok(Arc::new(FaultFile { inner, path: path.to_owned(), gate: self.gate.clone() }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.gate.run(Class::Remove, path, || self.inner.remove(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.gate.run(Class::Rename, to, || self.inner.rename(from, to))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.gate.run(Class::CreateDir, path, || self.inner.create_dir_all(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.gate.run(Class::List, dir, || self.inner.list(dir))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.gate.run(Class::Exists, path, || self.inner.exists(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.gate.run(Class::SyncDir, dir, || self.inner.sync_dir(dir))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.gate.run(Class::Lock, path, || self.inner.lock(path))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn FileLock>>> {
        self.gate.run(Class::Lock, path, || self.inner.lock_shared(path))
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.gate.run(Class::FreeBytes, dir, || self.inner.free_bytes(dir))
    }
}

struct FaultFile {
    inner: Arc<dyn File>,
    path: PathBuf,
    gate: Gate,
}

impl FaultFile {
    /// The first half of a write that fails, in whole sectors.
    fn write_half(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let half = bytes.len() / 2 / base::limits::SECTOR_BYTES * base::limits::SECTOR_BYTES;
        self.inner.write_at(&bytes[..half], offset)
    }

    /// The same bytes with one bit wrong, aligned as direct I/O wants it.
    fn flipped(bytes: &[u8]) -> crate::AlignedBuf {
        let mut copy = crate::AlignedBuf::zeroed(bytes.len());
        copy.copy_from_slice(bytes);
        flip_some_bit(&mut copy);
        copy
    }
}

fn flip_some_bit(bytes: &mut [u8]) {
    if !bytes.is_empty() {
        let bit = crate::random::u64() as usize % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

impl File for FaultFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let action = self.gate.begin(Class::Read, &self.path)?;
        self.inner.read_at(buf, offset)?;
        if action == Some(Action::FlipBit) {
            flip_some_bit(buf);
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self.gate.begin(Class::Write, &self.path)? {
            None => self.inner.write_at(bytes, offset),
            Some(Action::Lost) => Ok(()),
            Some(Action::Misdirected(by)) => self.inner.write_at(bytes, offset + by),
            Some(Action::FlipBit) => self.inner.write_at(&Self::flipped(bytes), offset),
            Some(Action::StorageFull) => self.write_half(bytes, offset).and(Err(storage_full())),
            Some(Action::Eio | Action::Slow(_) | Action::PowerCut(_) | Action::Kill) => {
                self.write_half(bytes, offset).and(Err(eio()))
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self.gate.begin(Class::Sync, &self.path)? {
            Some(Action::Lost) => Ok(()),
            _ => self.inner.sync(),
        }
    }

    fn len(&self) -> io::Result<u64> {
        self.gate.run(Class::Len, &self.path, || self.inner.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.gate.run(Class::SetLen, &self.path, || self.inner.set_len(len))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.gate.run(Class::Allocate, &self.path, || self.inner.allocate(offset, len))
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.gate.run(Class::Punch, &self.path, || self.inner.punch(offset, len))
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealVfs;
    use crate::fault::Rule;

    const NEW: OpenHow = OpenHow { write: true, create: true, create_new: false, direct: false };

    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn scratch(name: &str) -> (Scratch, FaultVfs<RealVfs>) {
        let dir = std::env::temp_dir().join(format!("trefoil-fault-{}-{name}", std::process::id()));
        RealVfs.create_dir_all(&dir).unwrap();
        (Scratch(dir), FaultVfs::new(RealVfs))
    }

    fn contents(path: &Path) -> Vec<u8> {
        std::fs::read(path).unwrap()
    }

    #[test]
    fn every_operation_can_fail() {
        let (dir, vfs) = scratch("every");
        let (a, b) = (dir.0.join("a"), dir.0.join("b"));
        let save = || -> io::Result<()> {
            let file = vfs.open(&a, NEW)?;
            file.allocate(0, 4096)?;
            file.write_at(&[1; 4096], 0)?;
            file.read_at(&mut [0; 16], 0)?;
            file.punch(0, 4096)?;
            file.set_len(file.len()?)?;
            file.sync()?;
            assert!(!file.is_direct());
            drop(vfs.lock(&dir.0.join("LOCK"))?);
            vfs.rename(&a, &b)?;
            vfs.create_dir_all(&dir.0.join("c"))?;
            vfs.sync_dir(&dir.0)?;
            vfs.list(&dir.0)?;
            vfs.exists(&b)?;
            vfs.free_bytes(&dir.0)?;
            vfs.remove(&b)
        };
        for n in 0..Class::ALL.len() as u64 {
            let before = vfs.faults().fired();
            vfs.faults().add(Rule::new(Action::Eio).nth(n));
            assert_eq!(save().unwrap_err().raw_os_error(), eio().raw_os_error(), "operation {n}");
            assert_eq!(vfs.faults().fired(), before + 1);
        }
        save().unwrap();
        assert!(Class::ALL.iter().all(|class| vfs.faults().counts().of(*class) > 0));
    }

    #[test]
    fn writes_that_lie() {
        let (dir, vfs) = scratch("lie");
        let path = dir.0.join("a");
        let file = vfs.open(&path, NEW).unwrap();
        file.write_at(&[1; 8192], 0).unwrap();
        vfs.faults().add(Rule::new(Action::Lost).on(Class::Write));
        file.write_at(&[2; 8192], 0).unwrap();
        assert_eq!(contents(&path), [1; 8192]);
        vfs.faults().add(Rule::new(Action::Eio).on(Class::Write));
        file.write_at(&[3; 8192], 0).unwrap_err();
        assert_eq!(contents(&path), [[3; 4096], [1; 4096]].concat(), "in part");
        vfs.faults().add(Rule::new(Action::Misdirected(4096)).on(Class::Write));
        file.write_at(&[4; 4096], 0).unwrap();
        assert_eq!(contents(&path), [[3; 4096], [4; 4096]].concat());
        vfs.faults().add(Rule::new(Action::FlipBit).on(Class::Write));
        file.write_at(&[0; 8192], 0).unwrap();
        assert_eq!(contents(&path).iter().map(|b| b.count_ones()).sum::<u32>(), 1);
        vfs.faults().add(Rule::new(Action::FlipBit).on(Class::Read));
        let mut buf = [0; 8192];
        file.read_at(&mut buf, 0).unwrap();
        assert_ne!(buf, *contents(&path), "this time");
        file.read_at(&mut buf, 0).unwrap();
        assert_eq!(buf, *contents(&path), "not for ever");
        vfs.faults().add(Rule::new(Action::Slow(std::time::Duration::from_millis(1))));
        vfs.faults().add(Rule::new(Action::Lost).on(Class::Sync).nth(1));
        file.sync().unwrap();
        file.sync().unwrap();
    }

    #[test]
    fn a_killed_process_can_do_nothing() {
        let (dir, vfs) = scratch("kill");
        let path = dir.0.join("a");
        let file = vfs.open(&path, NEW).unwrap();
        vfs.faults().add(Rule::new(Action::Kill).on(Class::Write).nth(1));
        file.write_at(b"kept", 0).unwrap();
        assert!(Gone::is(&file.write_at(b"never", 0).unwrap_err()));
        assert!(Gone::is(&vfs.remove(&path).unwrap_err()) && Gone::is(&file.sync().unwrap_err()));
        assert_eq!(contents(&path), b"kept");
        vfs.faults().add(Rule::new(Action::StorageFull));
        let fresh = FaultVfs::new(RealVfs);
        fresh.kill();
        assert!(Gone::is(&fresh.exists(&path).unwrap_err()));
    }
}
