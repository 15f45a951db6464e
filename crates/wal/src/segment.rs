//! Segment files: made ahead, started, trimmed, used again.
//!
//! A file goes through these states; its name is `wal-<id>.log` in all but the first:
//!
//! ```text
//!  making ──▶ spare ──▶ current ──▶ full ──trim──▶ recyclable ──▶ spare (under a new id)
//!  (tmp)                                       └─▶ removed, above the capacity, or at rest (a half-made one, too)
//! ```
//!
//! - *making*: allocated at full length, which is where a full disk shows (rule B7), then filled with zeroes,
//!   because a sync after a write into allocated space that was never written has to commit metadata as well.
//! - *spare*: has its final name and length, and the directory is synced; it may hold frames of its old life,
//!   which do not validate under the new id. It has no valid header for its id, which is how recovery knows it.
//! - *current*: the writer has put a header on it.
//!
//! A name is made durable before the file is used under it: otherwise a crash could bring the old name back with
//! the new contents.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Fault, Lsn, Poison, Result};
use vfs::sync::Mutex;
use vfs::{File, OpenHow, Vfs};

use crate::format::{Decoded, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentId};
use crate::options::{WalOptions, WalStart};
use crate::relog::{Relogged, relog};

/// Name of a segment that is being made.
pub(crate) const MAKING_NAME: &str = "wal-new.tmp";
/// Bytes of zeroes written in one step.
const FILL_BYTES: u64 = 1 << 20;

/// An open segment file.
pub(crate) struct Segment {
    pub(crate) id: SegmentId,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
}

impl Segment {
    /// Writes zeroes to `[from, to)`.
    pub(crate) fn fill(&self, from: u64, to: u64) -> Result<()> {
        fill(&*self.file, &self.path, from, to)
    }
}

/// A segment that can be started.
pub(crate) struct Spare {
    pub(crate) segment: Arc<Segment>,
    /// The file has been written up to here.
    pub(crate) filled: u64,
}

/// A segment whose records are not trimmed; it ends where the next one continues.
struct Live {
    id: SegmentId,
    continues_at: Lsn,
}

struct Making {
    file: Arc<dyn File>,
    filled: u64,
}

struct Files {
    live: VecDeque<Live>,
    spares: VecDeque<Spare>,
    recyclable: VecDeque<SegmentId>,
    /// There is a file of [`Making`], which has its full length from the first step on. `Pool::making` says so too, but is held through I/O.
    is_making: bool,
    next_id: SegmentId,
    recycled: u64,
    filled_bytes: u64,
}

/// The segment files of one directory.
pub(crate) struct Pool {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    segment_bytes: u64,
    files_kept: u64,
    poison: Poison,
    files: Mutex<Files>,
    /// Held through the I/O of making a spare. Taken before `files`.
    making: Mutex<Option<Making>>,
}

/// In place of the current segment of a log that nobody appends to.
struct NoFile;

impl NoFile {
    fn refused<T>() -> io::Result<T> {
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the log is only read"))
    }
}

impl File for NoFile {
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        Self::refused()
    }
    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Self::refused()
    }
    fn sync(&self) -> io::Result<()> {
        Self::refused()
    }
    fn len(&self) -> io::Result<u64> {
        Ok(0)
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Self::refused()
    }
    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Self::refused()
    }
    fn punch(&self, _: u64, _: u64) -> io::Result<()> {
        Self::refused()
    }
    fn is_direct(&self) -> bool {
        false
    }
}

/// Sizes for the statistics.
pub(crate) struct PoolSizes {
    pub(crate) live: u64,
    pub(crate) spares: u64,
    pub(crate) files: u64,
    pub(crate) recycled: u64,
    pub(crate) filled_bytes: u64,
}

impl Pool {
    fn new(vfs: Arc<dyn Vfs>, dir: &Path, options: &WalOptions, poison: Poison) -> Self {
        Self {
            segment_bytes: options.segment_bytes,
            files_kept: (options.capacity_bytes / options.segment_bytes).max(2),
            dir: dir.to_owned(),
            poison,
            making: Mutex::new(None),
            files: Mutex::new(Files {
                live: VecDeque::new(),
                spares: VecDeque::new(),
                recyclable: VecDeque::new(),
                is_making: false,
                next_id: SegmentId(1),
                recycled: 0,
                filled_bytes: 0,
            }),
            vfs,
        }
    }

    /// Opens the directory for a new life: writes the accepted tail once more, starts the first segment and makes
    /// it durable. Recovery has judged what is there. Also returns the number of frames that the life has used.
    pub(crate) fn open(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        options: &WalOptions,
        start: &WalStart,
        poison: Poison,
    ) -> Result<(Self, Spare, u64)> {
        let pool = Self::new(vfs, dir, options, poison);
        let earlier = pool.take_stock(start)?;
        let mut relogged = Relogged { continues_at: start.end, frames: 0 };
        if start.durable < start.end {
            let id = pool.take_id();
            relogged = relog(&*pool.vfs, dir, start, id, &pool.dir.join(MAKING_NAME))?;
            pool.files.lock().live.push_back(Live { id, continues_at: relogged.continues_at });
        }
        // A blank file first: what it holds was dead when recovery judged it, and saves making one.
        let mut making = pool.making.lock();
        while !pool.make_step(&mut making, true)? {}
        drop(making);
        let spare = pool.promote(start.end).expect("a spare was made just now");
        let header = SegmentHeader {
            database: start.database,
            segment: spare.segment.id,
            incarnation: start.incarnation,
            first_lsn: start.first_lsn,
            continues_at: start.end,
            segment_bytes: options.segment_bytes,
        };
        let written = spare.segment.file.write_at(&header.encode(), 0).and_then(|()| spare.segment.file.sync());
        written.map_err(|e| pool.fault("start log segment", &spare.segment.path, &e))?;
        pool.bury_the_dead(relogged.continues_at, earlier);
        Ok((pool, spare, relogged.frames))
    }

    /// Of a log that nobody appends to: the files are counted and left alone.
    pub(crate) fn read_only(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        options: &WalOptions,
        poison: Poison,
    ) -> Result<(Self, Spare)> {
        let pool = Self::new(vfs, dir, options, poison);
        let names = pool.vfs.list(dir).map_err(|e| Fault::io("list", dir.display(), &e))?;
        let ids = names.iter().filter_map(|name| SegmentId::from_file_name(name));
        pool.files.lock().live.extend(ids.map(|id| Live { id, continues_at: Lsn::ZERO }));
        let segment = Segment { id: SegmentId(0), path: dir.to_owned(), file: Arc::new(NoFile) };
        Ok((pool, Spare { segment: Arc::new(segment), filled: 0 }))
    }

    /// Lists the files of earlier lives. Those without a header can be used again; those with one are returned.
    fn take_stock(&self, start: &WalStart) -> Result<Vec<Live>> {
        let names = self.vfs.list(&self.dir).map_err(|e| Fault::io("list", self.dir.display(), &e))?;
        let mut files = self.files.lock();
        let mut earlier = Vec::new();
        for name in names {
            if name == MAKING_NAME {
                self.remove(&self.dir.join(name))?;
                continue;
            }
            let Some(id) = SegmentId::from_file_name(&name) else { continue };
            files.next_id = SegmentId(id.0 + 1);
            let path = self.dir.join(&name);
            let (header, len) = read_header(&*self.vfs, &path)?;
            match header {
                Decoded::Valid(header) if header.segment == id => {
                    if header.database != start.database || header.incarnation >= start.incarnation {
                        let found = format!("database {}, incarnation {}", header.database, header.incarnation.0);
                        let expected = format!("database {}, below {}", start.database, start.incarnation.0);
                        return Err(Fault::corrupt(path.display(), 0, "log segment", expected, found));
                    }
                    earlier.push(Live { id, continues_at: header.continues_at });
                }
                Decoded::Newer(version) => {
                    return Err(crate::reader::newer_format(&path.display().to_string(), version));
                }
                _ if len == self.segment_bytes => files.recyclable.push_back(id),
                _ => self.remove(&path)?,
            }
        }
        Ok(earlier)
    }

    /// Segments of earlier lives that only hold what is dead can be used again, now that the new life's segments
    /// say so for good. The others are live, before the new ones.
    fn bury_the_dead(&self, dead_from: Lsn, earlier: Vec<Live>) {
        let mut files = self.files.lock();
        for segment in earlier.into_iter().rev() {
            if segment.continues_at >= dead_from {
                files.recyclable.push_back(segment.id);
            } else {
                files.live.push_front(segment);
            }
        }
    }

    fn take_id(&self) -> SegmentId {
        let mut files = self.files.lock();
        let id = files.next_id;
        files.next_id = SegmentId(id.0 + 1);
        id
    }

    /// Takes a spare to be the current segment from `continues_at` on; `None` if there is none, which grants
    /// exclude.
    pub(crate) fn promote(&self, continues_at: Lsn) -> Option<Spare> {
        let mut files = self.files.lock();
        let spare = files.spares.pop_front()?;
        files.live.push_back(Live { id: spare.segment.id, continues_at });
        Some(spare)
    }

    /// One bounded step towards a spare; true when one is ready. In a hurry the zeroes are left to the writer.
    ///
    /// # Errors
    /// [`Fault::NoSpace`], which is an ordinary error here; anything else poisons.
    pub(crate) fn prepare(&self, in_a_hurry: bool) -> Result<bool> {
        self.poison.check()?;
        let mut making = self.making.lock();
        self.make_step(&mut making, in_a_hurry)
    }

    fn make_step(&self, making: &mut Option<Making>, in_a_hurry: bool) -> Result<bool> {
        let recyclable = self.files.lock().recyclable.pop_front();
        if let Some(old) = recyclable {
            return self.recycle(old);
        }
        let tmp = self.dir.join(MAKING_NAME);
        let Some(made) = making else {
            *making = Some(Making { file: self.allocate(&tmp)?, filled: SEGMENT_HEADER_BYTES });
            self.files.lock().is_making = true;
            return Ok(false);
        };
        if made.filled < self.segment_bytes && !(in_a_hurry && made.filled >= FILL_BYTES.min(self.segment_bytes)) {
            let to = (made.filled + FILL_BYTES).min(self.segment_bytes);
            fill(&*made.file, &tmp, made.filled, to).map_err(|fault| self.poison.set(fault))?;
            self.files.lock().filled_bytes += to - made.filled;
            made.filled = to;
            return Ok(false);
        }
        made.file.sync().map_err(|e| self.fault("sync", &tmp, &e))?;
        let made = making.take().expect("it is being made");
        self.files.lock().is_making = false;
        self.add_spare(&tmp, made.file, made.filled)?;
        Ok(true)
    }

    /// Allocates a segment at full length.
    fn allocate(&self, tmp: &Path) -> Result<Arc<dyn File>> {
        let how = OpenHow { write: true, create: true, ..OpenHow::default() };
        let allocated = self.vfs.open(tmp, how).and_then(|file| {
            file.set_len(0)?;
            file.allocate(0, self.segment_bytes)?;
            Ok(file)
        });
        allocated.map_err(|e| {
            // Whatever part of it was allocated is given back, if there is such a part.
            let _ = self.vfs.remove(tmp);
            no_space(&e, self.segment_bytes).unwrap_or_else(|| self.fault("allocate", tmp, &e))
        })
    }

    /// Makes a spare of a trimmed segment.
    fn recycle(&self, old: SegmentId) -> Result<bool> {
        let path = self.dir.join(old.file_name());
        let how = OpenHow { write: true, ..OpenHow::default() };
        let opened = self.vfs.open(&path, how).and_then(|file| file.len().map(|len| (file, len)));
        let (file, len) = opened.map_err(|e| self.fault("open", &path, &e))?;
        if len != self.segment_bytes {
            // Made under another segment size.
            drop(file);
            self.remove(&path)?;
            return Ok(false);
        }
        self.add_spare(&path, file, self.segment_bytes)?;
        self.files.lock().recycled += 1;
        Ok(true)
    }

    fn add_spare(&self, from: &Path, file: Arc<dyn File>, filled: u64) -> Result<()> {
        let id = self.take_id();
        let path = self.dir.join(id.file_name());
        self.vfs.rename(from, &path).map_err(|e| self.fault("rename", from, &e))?;
        self.vfs.sync_dir(&self.dir).map_err(|e| self.fault("sync", &self.dir, &e))?;
        let spare = Spare { segment: Arc::new(Segment { id, path, file }), filled };
        self.files.lock().spares.push_back(spare);
        Ok(())
    }

    /// Where the newest segment continues; zero if there is none.
    pub(crate) fn newest_start(&self) -> Lsn {
        self.files.lock().live.back().map_or(Lsn::ZERO, |newest| newest.continues_at)
    }

    /// Gives up the segments that end at or below `floor`.
    pub(crate) fn trim(&self, floor: Lsn) -> Result<()> {
        let mut removed = Vec::new();
        {
            let mut files = self.files.lock();
            while files.live.get(1).is_some_and(|next| next.continues_at <= floor) {
                let id = files.live.pop_front().expect("there are two").id;
                if files.count() < self.files_kept {
                    files.recyclable.push_back(id);
                } else {
                    removed.push(id);
                }
            }
        }
        removed.iter().try_for_each(|id| self.remove(&self.dir.join(id.file_name())))
    }

    /// Removes the trimmed segments that nothing has used again so far, and one that was begun and not needed since: while trimmed ones
    /// are used again nobody goes on with it. True if there were any.
    pub(crate) fn give_back(&self) -> Result<bool> {
        // Nobody makes a spare of one of them meanwhile.
        let mut making = self.making.lock();
        let (unused, begun) = {
            let mut files = self.files.lock();
            files.is_making = false;
            (std::mem::take(&mut files.recyclable), making.take())
        };
        let mut paths: Vec<PathBuf> = unused.iter().map(|id| self.dir.join(id.file_name())).collect();
        if begun.is_some() {
            drop(begun);
            paths.push(self.dir.join(MAKING_NAME));
        }
        paths.iter().try_for_each(|path| self.remove(path))?;
        Ok(!paths.is_empty())
    }

    /// The file system, and the directory of the segments.
    pub(crate) fn place(&self) -> (&dyn Vfs, &Path) {
        (&*self.vfs, &self.dir)
    }

    pub(crate) fn sizes(&self) -> PoolSizes {
        let files = self.files.lock();
        PoolSizes {
            live: files.live.len() as u64,
            spares: files.spares.len() as u64,
            files: files.all(),
            recycled: files.recycled,
            filled_bytes: files.filled_bytes,
        }
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.vfs.remove(path).map_err(|e| self.fault("remove", path, &e))
    }

    fn fault(&self, op: &'static str, path: &Path, error: &io::Error) -> Fault {
        self.poison.set(Fault::io(op, path.display(), error))
    }
}

impl Files {
    fn count(&self) -> u64 {
        (self.live.len() + self.spares.len() + self.recyclable.len()) as u64
    }

    /// The same with the one that is being made.
    fn all(&self) -> u64 {
        self.count() + u64::from(self.is_making)
    }
}

/// The ordinary error for a full disk, if that is what it is.
pub(crate) fn no_space(error: &io::Error, bytes: u64) -> Option<Fault> {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded).then(|| Fault::NoSpace {
        what: format!("a log segment of {bytes} bytes"),
        remedy: "free space on its file system; writes resume by themselves".into(),
    })
}

fn fill(file: &dyn File, path: &Path, from: u64, to: u64) -> Result<()> {
    let zeroes = vec![0; FILL_BYTES.min(to - from) as usize];
    let mut at = from;
    while at < to {
        let step = (to - at).min(FILL_BYTES);
        file.write_at(&zeroes[..step as usize], at).map_err(|e| Fault::io("write", path.display(), &e))?;
        at += step;
    }
    Ok(())
}

/// Reads a segment's header block, and the file's length.
fn read_header(vfs: &dyn Vfs, path: &Path) -> Result<(Decoded<SegmentHeader>, u64)> {
    let io = |e: io::Error| Fault::io("read", path.display(), &e);
    let file = vfs.open(path, OpenHow::default()).map_err(io)?;
    let len = file.len().map_err(io)?;
    if len < SEGMENT_HEADER_BYTES {
        return Ok((Decoded::Nothing, len));
    }
    let mut block = vec![0; SEGMENT_HEADER_BYTES as usize];
    file.read_at(&mut block, 0).map_err(io)?;
    Ok((SegmentHeader::decode(&block), len))
}
