//! A hot backup: a copy of the database as of one moment, while readers and writers go on.
//!
//! 1. A checkpoint runs. While it is the newest one, the space is pinned and the log held at its floor: from now on
//!    neither a block that its manifest reaches nor a record behind its floor goes away.
//! 2. The extents that the manifest reaches are copied. In between, the log is copied as it grows and the hold moves
//!    on, so that a long backup does not keep the log.
//! 3. The log is made durable and the rest of it copied: its end is the moment that the backup shows. Then the run
//!    files, which are durable before the records that name them.
//! 4. The manifest is written, with that end as its durable mark: a damaged end of the copy's log is corruption, not
//!    a torn tail. Last comes the header file: without it the directory is not a database.
//!
//! Opening the backup is an ordinary recovery. What the manifest's blocks hold above its F is in the copied log too,
//! because no block is written before its records are durable (rule A6).
//!
//! Definitions do not change meanwhile: the rows of an index built beside the backup would be in neither the blocks nor
//! the log that are copied (rule A16f).

use std::io::ErrorKind;
use std::path::Path;

use base::{CommitTs, Fault, Lsn};
use store::SpacePin;
use vfs::OpenHow;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::layout::create_durably;
use crate::manifest::Manifest;

/// Bytes of the data file between two looks at the log.
const LOG_EVERY_BYTES: u64 = 64 << 20;
/// Bytes of a run file copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// The log's copy so far.
struct LogCopy {
    segments: u64,
    end: Lsn,
}

/// Lets the log go when the backup is over, however it ends.
struct Held<'a>(&'a Engine);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.0.held_log.lock() = None;
    }
}

impl Engine {
    /// Copies the database to `dir`, which is empty or not there. Returns the moment the copy shows: it holds every
    /// commit at or below, and none above.
    pub fn backup_to(&self, dir: &Path) -> Result<CommitTs> {
        self.check_writable()?;
        // One backup at a time, and no change of definitions beside it.
        let _no_ddl = self.ddl.lock();
        // The log that a damaged index needs reaches back over lives, which a copy does not.
        self.upkept_indexes().iter().try_for_each(|entry| self.check_undamaged(entry))?;
        self.make_target(dir)?;
        let (manifest, pin) = self.begin_backup()?;
        let _held = Held(self);
        vfs::thread::point("backup.begun");
        let mut log = LogCopy { segments: 0, end: manifest.log_floor };
        self.copy_data(dir, &manifest, &pin, &mut log)?;
        self.copy_log(dir, &mut log)?;
        vfs::thread::point("backup.log_copied");
        self.copy_runs(dir)?;
        self.sync_dirs(dir)?;
        let end = log.end.max(manifest.log_durable);
        Manifest { log_durable: end, ..manifest }.publish(&self.layout.vfs, dir)?;
        self.layout.seal_copy(dir)?;
        Ok(end.as_commit_ts())
    }

    fn make_target(&self, dir: &Path) -> Result<()> {
        let vfs = &self.layout.vfs;
        let io = |op, e: &std::io::Error| Error::from(Fault::io(op, dir.display(), e));
        if vfs.exists(dir).map_err(|e| io("look at", &e))?
            && let Some(name) = vfs.list(dir).map_err(|e| io("list", &e))?.first()
        {
            let why = format!("{} holds {name:?}; a backup goes to an empty or new directory", dir.display());
            return Err(Error::InvalidArgument(why));
        }
        [dir.to_owned(), dir.join("wal"), dir.join("runs")].iter().try_for_each(|dir| create_durably(vfs, dir))
    }

    /// Step 1.
    fn begin_backup(&self) -> Result<(Manifest, SpacePin)> {
        let mut published = self.checkpoint.lock();
        let manifest = self.publish_checkpoint(&mut published)?;
        let pin = self.space.pin();
        *self.held_log.lock() = Some(manifest.log_floor);
        drop(published);
        self.after_checkpoint(&manifest)?;
        Ok((manifest, pin))
    }

    /// Step 2.
    fn copy_data(&self, dir: &Path, manifest: &Manifest, pin: &SpacePin, log: &mut LogCopy) -> Result<()> {
        let mut next_look = LOG_EVERY_BYTES;
        self.space.copy_to(pin, &manifest.space, dir, &mut |done, _| {
            if self.closed.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(Fault::Unsupported("a backup while the database is being closed".into()));
            }
            if done >= next_look {
                next_look += LOG_EVERY_BYTES;
                self.copy_log(dir, log)?;
            }
            vfs::thread::point("backup.copying");
            Ok(())
        })?;
        Ok(())
    }

    fn copy_log(&self, dir: &Path, log: &mut LogCopy) -> base::Result<()> {
        let end = self.wal.copy_to(&dir.join("wal"), log.end, log.segments + 1)?;
        if end > log.end {
            *log = LogCopy { segments: log.segments + 1, end };
            *self.held_log.lock() = Some(end);
        }
        Ok(())
    }

    /// All that are there: a file that nothing copied names is removed when the backup is opened.
    fn copy_runs(&self, dir: &Path) -> Result<()> {
        let vfs = &self.layout.vfs;
        let (from, to) = (self.layout.runs(), dir.join("runs"));
        for name in vfs.list(&from).map_err(|e| Fault::io("list", from.display(), &e))? {
            let path = from.join(&name);
            let file = match vfs.open(&path, OpenHow::default()) {
                Ok(file) => file,
                // Of a commit that came to nothing.
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => return Err(Fault::io("open", path.display(), &e).into()),
            };
            let how = OpenHow { write: true, create: true, ..OpenHow::default() };
            let target = to.join(&name);
            let failed = |e: &std::io::Error| Error::from(Fault::io("copy", target.display(), e));
            let copy = vfs.open(&target, how).map_err(|e| failed(&e))?;
            let len = file.len().map_err(|e| failed(&e))?;
            let mut piece = Vec::new();
            for at in (0..len).step_by(PIECE_BYTES) {
                piece.resize(PIECE_BYTES.min((len - at) as usize), 0);
                file.read_at(&mut piece, at).and_then(|()| copy.write_at(&piece, at)).map_err(|e| failed(&e))?;
            }
            copy.sync().map_err(|e| failed(&e))?;
        }
        Ok(())
    }

    fn sync_dirs(&self, dir: &Path) -> Result<()> {
        for dir in [dir.to_owned(), dir.join("wal"), dir.join("runs")] {
            self.layout.vfs.sync_dir(&dir).map_err(|e| Fault::io("sync directory", dir.display(), &e))?;
        }
        Ok(())
    }
}
