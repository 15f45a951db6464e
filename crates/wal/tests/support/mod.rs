//! A disk in memory that keeps only what the contract of `Vfs` makes it keep, and breaks what it may break.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part of it; a test may panic")]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::limits::SECTOR_BYTES;
use base::{Fault, Lsn, Poison, Result};
use trefoil_wal::{DatabaseId, ManifestMark, RecordKind, Wal, WalEnd, WalOptions, WalStart};
use vfs::sync::Mutex;
use vfs::{File, FileLock, OpenHow, Vfs};

/// The database of all tests.
pub const DATABASE: DatabaseId = DatabaseId(*b"a test database!");

/// Small sizes: a segment of 96 KiB, a ring of 16 KiB.
pub const SMALL: WalOptions =
    WalOptions { segment_bytes: 96 * 1024, capacity_bytes: 384 * 1024, ring_bytes: 16 * 1024 };

/// A generator of the shift-and-xor kind (Marsaglia 2003), for reproducible choices.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

/// What happened to a file, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Write { path: PathBuf, offset: u64, len: usize },
    Sync { path: PathBuf },
    SyncDir,
}

#[derive(Default)]
struct State {
    names: BTreeMap<PathBuf, Arc<Contents>>,
    durable_names: BTreeMap<PathBuf, Arc<Contents>>,
    events: Vec<Event>,
    violations: Vec<String>,
    full: bool,
    fail_write: Option<usize>,
    fail_sync: Option<usize>,
    snapshots: Option<Vec<Disk>>,
    note: [u64; 2],
    sync_time: std::time::Duration,
}

#[derive(Default)]
struct Contents {
    bytes: Mutex<FileBytes>,
}

#[derive(Default, Clone)]
struct FileBytes {
    path: PathBuf,
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Writes since the last sync, in order.
    unsynced: Vec<(u64, Vec<u8>)>,
    /// Sectors whose contents other than zeroes a sync has made durable under the present name.
    kept: std::collections::BTreeSet<u64>,
}

/// The disk; clones are the same disk.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<State>>);

impl Disk {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn vfs(&self) -> Arc<dyn Vfs> {
        Arc::new(self.clone())
    }

    pub fn events(&self) -> Vec<Event> {
        self.0.lock().events.clone()
    }

    /// Writes that touched a sector which a sync had made durable before. With one thread, or when no write passes
    /// a sync in flight, that sync acknowledged the sector, and rule A19 is broken.
    pub fn violations(&self) -> Vec<String> {
        self.0.lock().violations.clone()
    }

    pub fn set_full(&self, full: bool) {
        self.0.lock().full = full;
    }

    /// The write after so many others fails, and all later ones.
    pub fn fail_write_after(&self, writes: usize) {
        self.0.lock().fail_write = Some(writes);
    }

    pub fn fail_sync_after(&self, syncs: usize) {
        self.0.lock().fail_sync = Some(syncs);
    }

    /// Nothing fails from now on.
    pub fn repair(&self) {
        let mut state = self.0.lock();
        (state.fail_write, state.fail_sync) = (None, None);
    }

    pub fn set_sync_time(&self, time: std::time::Duration) {
        self.0.lock().sync_time = time;
    }

    /// From now on the disk is copied before each sync, of files and of directories.
    pub fn copy_before_syncs(&self) {
        self.0.lock().snapshots = Some(Vec::new());
    }

    /// What the test promises itself at this moment; copies carry it.
    pub fn set_note(&self, note: [u64; 2]) {
        self.0.lock().note = note;
    }

    /// Raises both numbers of the note.
    pub fn raise_note(&self, note: [u64; 2]) {
        let mut state = self.0.lock();
        state.note = [state.note[0].max(note[0]), state.note[1].max(note[1])];
    }

    pub fn note(&self) -> [u64; 2] {
        self.0.lock().note
    }

    pub fn take_copies(&self) -> Vec<Disk> {
        self.0.lock().snapshots.take().unwrap_or_default()
    }

    pub fn segment_names(&self) -> Vec<String> {
        self.list(Path::new("/")).unwrap().into_iter().filter(|name| name.ends_with(".log")).collect()
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        self.0.lock().names[&Path::new("/").join(name)].bytes.lock().now.clone()
    }

    /// Replaces a file's contents, as bit rot or an operator would.
    pub fn overwrite(&self, name: &str, bytes: Vec<u8>) {
        let contents = self.0.lock().names[&Path::new("/").join(name)].clone();
        let mut file = contents.bytes.lock();
        (file.now, file.durable) = (bytes.clone(), bytes);
        file.unsynced.clear();
    }

    /// An independent copy.
    pub fn copy(&self) -> Disk {
        copy_of(&self.0.lock())
    }

    /// The disk after a power cut: each write that was not synced is there, gone or torn, sector by sector; each
    /// name that was not synced is there or gone.
    pub fn after_power_cut(&self, dice: &mut Dice) -> Disk {
        let copy = self.copy();
        {
            let mut state = copy.0.lock();
            if dice.roll(2) == 0 {
                state.names = state.durable_names.clone();
            }
            state.durable_names = state.names.clone();
            for contents in state.names.values() {
                contents.bytes.lock().cut_power(dice);
            }
        }
        copy
    }
}

fn copy_of(state: &State) -> Disk {
    let mut copies: BTreeMap<*const Contents, Arc<Contents>> = BTreeMap::new();
    let mut copied = |contents: &Arc<Contents>| {
        let copy = || Arc::new(Contents { bytes: Mutex::new(contents.bytes.lock().clone()) });
        copies.entry(Arc::as_ptr(contents)).or_insert_with(copy).clone()
    };
    let mut copied = |names: &BTreeMap<PathBuf, Arc<Contents>>| {
        names.iter().map(|(path, contents)| (path.clone(), copied(contents))).collect::<BTreeMap<_, _>>()
    };
    let (names, durable_names) = (copied(&state.names), copied(&state.durable_names));
    Disk(Arc::new(Mutex::new(State { names, durable_names, note: state.note, ..State::default() })))
}

impl FileBytes {
    fn cut_power(&mut self, dice: &mut Dice) {
        let mut bytes = std::mem::take(&mut self.durable);
        bytes.resize(self.now.len().max(bytes.len()), 0);
        let kind = dice.roll(4);
        for (offset, data) in std::mem::take(&mut self.unsynced) {
            let mut done = 0;
            while done < data.len() {
                let at = offset as usize + done;
                let sector = at / SECTOR_BYTES * SECTOR_BYTES;
                let len = (sector + SECTOR_BYTES - at).min(data.len() - done);
                let part = &data[done..done + len];
                match (kind, dice.roll(8)) {
                    (0, _) | (1..=2, 0..=3) | (3, 0..=6) => {}
                    (_, 4) => bytes[sector..].iter_mut().take(SECTOR_BYTES).for_each(|b| *b ^= dice.roll(256) as u8),
                    _ => bytes[at..at + len].copy_from_slice(part),
                }
                done += len;
            }
        }
        (self.now, self.durable) = (bytes.clone(), bytes);
    }
}

fn down(counter: &mut Option<usize>) -> io::Result<()> {
    match counter {
        None => Ok(()),
        Some(0) => Err(io::Error::other("broken on purpose")),
        Some(left) => {
            *left -= 1;
            Ok(())
        }
    }
}

impl Vfs for Disk {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let mut state = self.0.lock();
        if how.create && !state.names.contains_key(path) {
            let contents = Arc::<Contents>::default();
            contents.bytes.lock().path = path.to_owned();
            state.names.insert(path.to_owned(), contents);
        }
        let contents = state.names.get(path).ok_or(io::ErrorKind::NotFound)?.clone();
        Ok(Arc::new(Handle { disk: self.clone(), contents }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.lock().names.remove(path).map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        let contents = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        {
            let mut file = contents.bytes.lock();
            file.path = to.to_owned();
            file.kept.clear();
        }
        state.names.insert(to.to_owned(), contents);
        Ok(())
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.0.lock();
        let inside = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.0.lock().names.contains_key(path))
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        let copy = state.snapshots.is_some().then(|| copy_of(&state));
        state.snapshots.as_mut().into_iter().for_each(|copies| copies.extend(copy.clone()));
        state.durable_names = state.names.clone();
        state.events.push(Event::SyncDir);
        Ok(())
    }

    fn lock(&self, _: &Path) -> io::Result<Box<dyn FileLock>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(if self.0.lock().full { 0 } else { 1 << 40 })
    }
}

struct Handle {
    disk: Disk,
    contents: Arc<Contents>,
}

impl File for Handle {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let file = self.contents.bytes.lock();
        let bytes = file.now.get(offset as usize..).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        down(&mut state.fail_write)?;
        let mut file = self.contents.bytes.lock();
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if file.now.len() < end {
            file.now.resize(end, 0);
        }
        for sector in offset / SECTOR_BYTES as u64..(end as u64).div_ceil(SECTOR_BYTES as u64) {
            if file.kept.contains(&sector) {
                state.violations.push(format!("{} sector {sector}", file.path.display()));
            }
        }
        file.now[start..end].copy_from_slice(bytes);
        file.unsynced.push((offset, bytes.to_vec()));
        state.events.push(Event::Write { path: file.path.clone(), offset, len: bytes.len() });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let time = self.disk.0.lock().sync_time;
        if !time.is_zero() {
            vfs::thread::sleep(time);
        }
        let mut state = self.disk.0.lock();
        let copy = state.snapshots.is_some().then(|| copy_of(&state));
        state.snapshots.as_mut().into_iter().for_each(|copies| copies.extend(copy.clone()));
        down(&mut state.fail_sync)?;
        let mut file = self.contents.bytes.lock();
        file.durable = file.now.clone();
        let mut kept = Vec::new();
        for (offset, data) in file.unsynced.drain(..).filter(|(_, data)| data.iter().any(|&b| b != 0)) {
            kept.extend(offset / SECTOR_BYTES as u64..(offset + data.len() as u64).div_ceil(SECTOR_BYTES as u64));
        }
        file.kept.extend(kept);
        state.events.push(Event::Sync { path: file.path.clone() });
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.contents.bytes.lock().now.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.contents.bytes.lock().now.resize(len as usize, 0);
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.disk.0.lock().full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut file = self.contents.bytes.lock();
        let end = (offset + len) as usize;
        if file.now.len() < end {
            file.now.resize(end, 0);
        }
        Ok(())
    }

    fn punch(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn is_direct(&self) -> bool {
        false
    }
}

/// A record as the tests remember it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub start: Lsn,
    pub end: Lsn,
    pub kind: RecordKind,
    pub payload: Vec<u8>,
}

/// Opens a log that is new.
pub fn fresh(disk: &Disk, options: WalOptions) -> Wal {
    open(disk, options, WalStart::fresh(DATABASE))
}

pub fn open(disk: &Disk, options: WalOptions, start: WalStart) -> Wal {
    Wal::open(disk.vfs(), Path::new("/"), options, start, Poison::new()).unwrap()
}

/// Recovers everything from the start.
pub fn recover(disk: &Disk) -> Result<(Vec<Kept>, WalEnd)> {
    recover_from(disk, Lsn::ZERO, ManifestMark::default())
}

pub fn recover_from(disk: &Disk, from: Lsn, mark: ManifestMark) -> Result<(Vec<Kept>, WalEnd)> {
    let mut records = Vec::new();
    let end = trefoil_wal::recover(disk, Path::new("/"), DATABASE, from, mark, &mut |record| {
        let payload = record.payload.to_vec();
        records.push(Kept { start: record.start, end: record.end, kind: record.kind, payload });
        Ok(())
    })?;
    Ok((records, end))
}

/// Appends a record.
pub fn append(wal: &Wal, kind: u8, payload: &[u8]) -> Kept {
    let grant = wal.reserve_space(payload.len()).unwrap();
    let kind = RecordKind(kind);
    let (start, end) = wal.append(grant, kind, payload);
    Kept { start, end, kind, payload: payload.to_vec() }
}

/// The start of the life after `end`.
pub fn next_life(end: &WalEnd) -> WalStart {
    WalStart::after(DATABASE, end)
}

/// File and offset of a corruption.
pub fn corruption(fault: Fault) -> (String, u64) {
    match fault {
        Fault::Corrupt(corruption) => (corruption.file, corruption.offset.expect("the log names its places")),
        other => panic!("expected a corruption, got: {other}"),
    }
}

/// Payload of a length, different for each seed and hard to compress.
pub fn payload(seed: u64, len: usize) -> Vec<u8> {
    let mut dice = Dice::new(seed + 1);
    (0..len).map(|_| dice.roll(256) as u8).collect()
}
