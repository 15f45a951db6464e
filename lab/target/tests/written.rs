//! Bytes by cause add up to what the kernel counted for the process, under direct I/O. A program of its own: the kernel
//! counts all threads together.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use lab_measure::procfs::Process;
use lab_target::trefoil::TrefoilTarget;
use lab_target::{Batch, DiskLimits, Durability, IndexSet, IoMode, RowView, Setup, Target, TargetSpec};
use vfs::{File, FileLock, OpenHow, RealVfs, Vfs};

/// The machine's file system, written page by page: newer kernels cache a large write in one piece, and count the whole
/// piece again whenever a byte of it is changed.
struct Pagewise;

const PAGE_BYTES: usize = 4096;

struct PagewiseFile(Arc<dyn File>);

impl Vfs for Pagewise {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(PagewiseFile(RealVfs.open(path, how)?)))
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
    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        RealVfs.free_bytes(dir)
    }
}

impl File for PagewiseFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        if self.0.is_direct() {
            return self.0.write_at(bytes, offset);
        }
        while !bytes.is_empty() {
            let piece = (PAGE_BYTES - offset as usize % PAGE_BYTES).min(bytes.len());
            self.0.write_at(&bytes[..piece], offset)?;
            (bytes, offset) = (&bytes[piece..], offset + piece as u64);
        }
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.allocate(offset, len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.punch(offset, len)
    }
    fn is_direct(&self) -> bool {
        self.0.is_direct()
    }
}

/// Where the test may write: not in memory, where nothing is counted.
fn place() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("written-{}", std::process::id()))
}

/// Recovery reads a whole segment, which is then cached in large pieces: they are dropped, as `dd` can.
fn forget_cached(dir: &Path) {
    for file in std::fs::read_dir(dir).unwrap().flatten() {
        let of = format!("of={}", file.path().display());
        let mut dd = Command::new("dd");
        dd.args([&of, "oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"]);
        assert!(dd.status().unwrap().success());
    }
}

fn written_by_process() -> Option<u64> {
    Process::read()?.write_bytes
}

#[test]
fn bytes_by_cause_are_what_the_kernel_counted() {
    let dir = place();
    std::fs::create_dir_all(&dir).unwrap();
    let setup = Setup {
        dir: dir.clone(),
        // Each commit is synced, so the kernel never writes back by itself what is written again later.
        durability: Durability::Sync,
        budget_bytes: Some(32 << 20),
        io: Some(IoMode::Direct),
        compression: None,
        disk: DiskLimits::default(),
        seed: 1,
        price: lab_target::Price::Int,
    };
    let counted_before = written_by_process();
    let spec = TargetSpec::parse("trefoil:log_capacity=32m,inline_batch=256k").unwrap();
    let target = TrefoilTarget::open_over(spec, &setup, Arc::new(Pagewise)).unwrap();
    let why = match (counted_before, &target.describe().settings["io"]) {
        (None, _) => Some("the kernel does not count the bytes of a process"),
        (_, io) if io != "direct" => Some("the file system has no direct I/O"),
        _ => None,
    };
    if let Some(why) = why {
        let _ = writeln!(std::io::stderr(), "skipped: bytes by cause against the kernel, {why}");
        return;
    }
    forget_cached(&dir.join("wal"));
    target.create_table(0).unwrap();
    let mut session = target.session().unwrap();
    let mut batch = Batch::default();
    // Rows, then indexes, then rows again: more than the budget holds.
    for round in 0..900u32 {
        if round == 600 {
            target.create_indexes(0, IndexSet::Y2023).unwrap();
        }
        batch.clear();
        for row in 0..100u32 {
            let number = (round * 100 + row).wrapping_mul(2_654_435_761);
            batch.push(RowView {
                dateandtime: i64::from(round),
                cashregisterid: (number >> 3) as i32 & 1_023,
                customerid: (number >> 7) as i32 & 65_535,
                productid: (number >> 11) as i32 & 8_191,
                price: (number >> 5) as i32 & 511,
                data: format!("{number:020}{number:020}{number:020}{number:020}").as_bytes(),
            });
        }
        session.insert(0, &batch).unwrap();
    }
    target.settle(std::time::Duration::from_secs(60)).unwrap();
    let (counters, kernel) = (target.counters().unwrap(), written_by_process());
    drop(session);
    target.close().unwrap();
    drop(target);
    std::fs::remove_dir_all(dir).unwrap();
    let causes: Vec<_> = counters.iter().filter(|(name, _)| name.starts_with("written.")).collect();
    let sum = causes.iter().map(|(_, bytes)| **bytes).sum::<u64>() as f64;
    let kernel = (kernel.unwrap() - counted_before.unwrap()) as f64;
    let apart = 100.0 * (sum - kernel) / kernel;
    assert!(apart.abs() <= 1.0, "{sum} by cause, {kernel} by the kernel: {apart:+.2} %; {causes:?}");
    for cause in ["log", "log_ahead", "runs", "checkpoint"] {
        assert!(counters[&format!("written.{cause}")] > 0, "{causes:?}");
    }
}
